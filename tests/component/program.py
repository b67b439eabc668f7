# SPDX-License-Identifier: Apache-2.0
"""A program with the agent that is a job of a real tided, told what to do through stdin.

statements.py is the other end of it, in programs of Python.
"""
import os
import pathlib
import queue
import resource
import subprocess
import threading
import time

import pytest

from daemon import GUARD_S, eventually

# A Python with PyTorch, scikit-learn, XGBoost, ONNX Runtime, ggml and others: check.py's, or the user's.
TORCH_PYTHON = os.environ.get("TIDE_TORCH_PYTHON") or os.environ.get("TIDE_PYTHON_TORCH")
SOAK = bool(os.environ.get("TIDE_SOAK"))  # make soak: longer, nothing left out
TARGETS = 5000 if SOAK else 300  # random ones in a test of a runtime
ROUNDS = 17 if SOAK else 1  # of 300 targets, where the work of one round has an end
LONG_S = 10 * GUARD_S  # a training, a compiler
# As `tide run` sets them: tests share two cores.
WAITS = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "1000", "OPENBLAS_THREAD_TIMEOUT": "15"}


def plain(*command, **env):
    """The words of the last line that a program says without the agent."""
    stock = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("TIDE_")}
    return subprocess.run([str(c) for c in command], env={**stock, **WAITS, **env}, check=True, capture_output=True,
                          text=True, timeout=LONG_S).stdout.splitlines()[-1].split()


class Program:
    """A program with the agent, which makes a job for itself; told what to do through stdin.

    @backend: whose row is asked for. @options: it is begun by `tide run` with them, as users do.
    """

    def __init__(self, tided, build_dir, *command, backend=None, options=None, **env):
        self.tided, self.backend, self.words = tided, backend, queue.Queue()
        agent = {"LD_PRELOAD": str(build_dir / "libtide-agent.so"), "TIDE_MAX": "8",
                 "TIDE_SOCKET": str(tided.dir / "agent.sock")}
        if options is not None:
            command, agent = [build_dir / "tide", "run", *options, "--", *command], {"TIDE_DIR": str(tided.dir)}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, bufsize=1, env={**os.environ, **WAITS, **agent, **env})
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

    def ask(self, *expressions, guard=LONG_S):
        """Returns the values of these expressions of Python, as text."""
        self.tell(f"say('answer', {', '.join(expressions)})")
        answer = self.expect("answer", guard=guard)[1:]
        return answer[0] if len(answer) == 1 else answer

    def row(self):
        return next((b for b in self.job()["backends"] if b["name"] == self.backend), None)

    def shown(self):
        """Its row, once the runtime is there."""
        return eventually(lambda: (row := self.row()) and row["version"] and row)

    def becomes(self, **values):
        def as_wanted():
            row = self.row()
            return row and all(row[name] == value for name, value in values.items()) and row
        return eventually(as_wanted)

    def follows(self, threads, expected=None):
        """The program's number() becomes the target."""
        assert self.set(threads)[1]["status"] in ("done", "waiting")
        eventually(lambda: self.ask("number()") == str(expected or threads))

    def may_use(self, cpus):
        """All its threads, and those that it makes, run on these CPUs alone: what a smaller cpuset does."""
        for task in os.listdir(f"/proc/{self.process.pid}/task"):
            os.sched_setaffinity(int(task), cpus)

    def limits_memory(self, more):
        """It may map this many bytes more than now; None: as many as it likes."""
        pages = int(pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[0])
        limit = resource.RLIM_INFINITY if more is None else pages * resource.getpagesize() + more
        resource.prlimit(self.process.pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(GUARD_S) == 0


@pytest.fixture
def tided(place):
    """With more cores than there are, so that targets can be larger."""
    return place.daemon("--cpus", "0-7").start()


@pytest.fixture
def run(tided, build_dir):
    programs = []

    def start(*command, **more):
        programs.append(Program(tided, build_dir, *[str(c) for c in command], **more))
        return programs[-1]
    yield start
    for program in programs:
        program.process.kill()
        program.process.wait()
