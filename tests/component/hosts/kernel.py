# SPDX-License-Identifier: Apache-2.0
"""A notebook without its page: it starts a Jupyter kernel, and runs what stdin tells it. cell(code) says what a cell does."""
import os
import pathlib
import sys
import threading

import jupyter_client

sys.path.append(str(pathlib.Path(__file__).parent.parent))
from statements import lines, listen, say  # noqa: E402

GUARD_S = 300
manager = jupyter_client.KernelManager()


def attach():
    global client
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=GUARD_S)


def cell(code):
    """Returns what it prints or comes to, or the name of its exception."""
    said = []

    def hear(message):
        kind, content = message["msg_type"], message["content"]
        if kind in ("stream", "execute_result", "error"):
            said.append({"stream": content.get("text"), "error": content.get("ename")}.get(kind) or content["data"]["text/plain"])
    client.execute_interactive(code, timeout=GUARD_S, output_hook=hear)
    return "".join(said).strip()


def interrupted(code, seconds):
    threading.Timer(seconds, manager.interrupt_kernel).start()
    return cell(code)


def restart():
    client.stop_channels()
    manager.restart_kernel(now=False)
    attach()
    return "restarted"


if __name__ == "__main__":
    manager.start_kernel(extra_arguments=["--log-level=50"], env={**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parent)})
    attach()
    listen()
    say("begun")
    while (line := lines.get()) is not None:
        exec(line, globals())
    client.stop_channels()
    manager.shutdown_kernel()
