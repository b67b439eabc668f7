# SPDX-License-Identifier: Apache-2.0
"""The two ways in which the demo runs a program, and how each is watched.

Both have the same face: `command` and `environment` start a program, `observe` tells the threads
that each one's pool keeps active, `close` leaves nothing behind.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

CALL_TIMEOUT_S = 10
DAEMON_END_S = 5
POOL_SIGN = "tf_Compute"  # a thread that TensorFlow has as soon as it has its pools


class Stock:
    """As users start programs today: nobody decides how many threads run.

    TensorFlow then builds its pool with a thread for every core that the process may use. The
    threads bear no name in /proc to count them by, so the number is taken from that rule.
    """

    key, title = "stock", "stock, uncontrolled"
    child = True  # the process that is started becomes the program

    def command(self, name, command):
        return command

    def environment(self):
        return without_our_variables()

    def observe(self, pids):
        """{name: {"threads", "cores", "reason"}} of those whose pool exists."""
        return {name: {"threads": len(os.sched_getaffinity(pid)), "cores": cores_text(pid), "reason": ""}
                for name, pid in pids.items() if has_pool(pid)}

    def daemon_s(self):
        """Processor time of what belongs to this side and is no child of the demo."""
        return 0.0

    def close(self):
        pass


class Threadtide:
    """Under `tide run`, with a daemon of the demo's own.

    Its run directory and its claims on cores are private: the jobs of other daemons neither shrink
    for the demo, nor make it share less than the stock pass had.
    """

    key, title = "threadtide", "Threadtide"
    child = True

    def __init__(self, build):
        self.tide = str(build / "tide")
        self.build = build
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tide-demo-"))

    def command(self, name, command):
        return [self.tide, "run", "--name", name, "--", *command]

    def environment(self):
        return {**without_our_variables(), "TIDE_DIR": str(self.folder),
                "TIDE_CLAIMS_DIR": str(self.folder / "claims")}

    def observe(self, pids):
        """The same from `tide ps --json`; empty as long as no daemon answers."""
        answer = subprocess.run([self.tide, "ps", "--json"], env=self.environment(), check=False,
                                capture_output=True, text=True, timeout=CALL_TIMEOUT_S)
        if answer.returncode != 0:
            return {}
        return {job["name"]: {"threads": job["active"], "cores": job["cores"], "reason": job["reason"]}
                for job in json.loads(answer.stdout) if job["name"] in pids and job["active"]}

    def daemon_s(self):
        pid = self.daemon_pid()
        return sum(cpu_s(p) for p in (pid, *children_of(pid))) if pid else 0.0

    def close(self):
        """The daemon ends by itself after its last job; one that does not is told to."""
        pid = self.daemon_pid()
        deadline = time.monotonic() + DAEMON_END_S
        while pid and self.is_ours(pid) and time.monotonic() < deadline:
            time.sleep(0.1)
        if pid and self.is_ours(pid):
            os.kill(pid, signal.SIGTERM)
        shutil.rmtree(self.folder, ignore_errors=True)

    def daemon_pid(self):
        try:
            return int((self.folder / "tided.lock").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return None

    def is_ours(self, pid):
        """A number in a file may be another process's by now: ask which program it runs."""
        try:
            return os.readlink(f"/proc/{pid}/exe").startswith(str(self.build / "tided"))
        except OSError:
            return False


def without_our_variables():
    """The demo's programs start clean, also when it runs inside a `tide run` itself."""
    return {k: v for k, v in os.environ.items()
            if not k.startswith("TIDE_") and not (k == "LD_PRELOAD" and "libtide-agent" in v)}


def threads_of(pid, what):
    """Yields the content of one file of every thread of the process; none when it has ended."""
    for path in pathlib.Path(f"/proc/{pid}/task").glob(f"*/{what}"):
        try:
            yield path.read_text()
        except OSError:
            pass  # this thread has ended


def children_of(pid):
    return [int(child) for text in threads_of(pid, "children") for child in text.split()]


def cpu_s(pid):
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0  # it has ended
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def has_pool(pid):
    return any(comm.strip() == POOL_SIGN for comm in threads_of(pid, "comm"))


def waited_s(pid):
    """How long the threads that the process has now were ready to run but had no core."""
    return sum(int(stat.split()[1]) for stat in threads_of(pid, "schedstat")) / 1e9


def cores_text(pid):
    try:
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("Cpus_allowed_list:"):
                return line.split()[1]
    except OSError:
        pass
    return ""
