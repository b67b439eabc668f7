# SPDX-License-Identifier: Apache-2.0
"""A notebook's cells, one after the other, in a real kernel (ipykernel): notebook.py PREFIX CELL…

The kernel is what `python -m threadtide kernel install --prefix PREFIX` has written there. Prints a JSON list: what each cell
printed.
"""
import json
import os
import sys

os.environ["JUPYTER_PATH"] = f"{sys.argv[1]}/share/jupyter"

from jupyter_client.manager import start_new_kernel  # noqa: E402

GUARD_S = 90


def cell(client, code):
    said = []

    def hear(message):
        content = message["content"]
        said.append(content.get("text", "") or "\n".join(content.get("traceback", ())))
    client.execute_interactive(code, timeout=GUARD_S, output_hook=hear)
    return "".join(said)


manager, client = start_new_kernel(startup_timeout=GUARD_S, kernel_name="threadtide")
try:
    print(json.dumps([cell(client, code) for code in sys.argv[2:]]))
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
