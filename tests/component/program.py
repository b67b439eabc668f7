# SPDX-License-Identifier: Apache-2.0
"""A program with the agent that is a job of a real tided, told what to do through stdin."""
import os
import queue
import subprocess
import threading
import time

import pytest

from daemon import GUARD_S, eventually


class Program:
    """A program with the agent, which makes a job for itself; told what to do through stdin."""

    def __init__(self, tided, build_dir, *command, **env):
        self.tided, self.words = tided, queue.Queue()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, bufsize=1,
            env={**os.environ, "LD_PRELOAD": str(build_dir / "libtide-agent.so"), "TIDE_MAX": "8",
                 "TIDE_SOCKET": str(tided.dir / "agent.sock"), **env})
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.words.put(line.split())
        self.words.put(["ended"])

    def tell(self, line):
        self.process.stdin.write(line + "\n")

    def expect(self, *words, guard=GUARD_S):
        """The next line that begins with these words; lines before it are dropped."""
        end = time.monotonic() + guard
        while True:
            try:
                got = self.words.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"the program never said {words}") from None
            if got[:len(words)] == [str(w) for w in words]:
                return got
            assert got != ["ended"], self.process.wait()

    def job(self):
        return eventually(lambda: next((j for j in self.tided.jobs() if
                                        self.process.pid in j["pids"] and j["backends"]), None))

    def set(self, threads, **more):
        return self.tided.api("PATCH", f"/v1/jobs/{self.job()['id']}",
                              {"threads": threads, **more})

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(GUARD_S) == 0


@pytest.fixture
def run(tided, build_dir):
    programs = []

    def start(*command, **env):
        programs.append(Program(tided, build_dir, *[str(c) for c in command], **env))
        return programs[-1]
    yield start
    for program in programs:
        program.process.kill()
        program.process.wait()
