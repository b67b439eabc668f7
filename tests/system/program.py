# SPDX-License-Identifier: Apache-2.0
"""Starts workload.py under a stock TensorFlow, with or without the agent, and talks to it."""

import json
import os
import pathlib
import select
import subprocess
import tempfile
import time

from peer import GUARD_S, wait_until

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = pathlib.Path(os.environ.get("TIDE_BUILD_DIR", ROOT / "build")).resolve()
VENVS = (".venv", ".venv-tf218", ".venv-tf215")
IMPORT_GUARD_S = 10 * GUARD_S
VAIN_NS = 300_000  # a worker that slept in the pool wakes up once more, runs nothing, and parks


def agent_library():
    """As `tide run` names it; ld.so fills in $LIB."""
    if (BUILD / "agent/lib").is_dir():
        return str(BUILD / "agent/$LIB/libtide-agent.so")
    return str(BUILD / "libtide-agent.so")


def tensorflow_pythons():
    """The interpreters to test with: $TIDE_TF_PYTHONS (colons between), else the checkout's."""
    given = os.environ.get("TIDE_TF_PYTHONS")
    return given.split(":") if given else [str(ROOT / v / "bin/python") for v in VENVS]


def is_newest(python):
    """Whether it is the newest to test with."""
    return python == tensorflow_pythons()[0]


def clean_env(**more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TIDE_", "TF_", "LD_PRELOAD"))}
    env.update({k: str(v) for k, v in more.items()})
    return env


def agent_env(daemon=None, **more):
    if daemon:
        more.update(TIDE_SOCKET=daemon.path, TIDE_TOKEN="0" * 32, TIDE_JOB_ID="j1")
    return clean_env(LD_PRELOAD=agent_library(), **more)


def thread_cpu_ns(pid, tid):
    with open(f"/proc/{pid}/task/{tid}/schedstat") as f:
        return int(f.read().split()[0])


class Program:
    """A running workload.py."""

    def __init__(self, python, env, wrapper=()):
        self._stderr = tempfile.TemporaryFile()
        self.python = python
        self.process = subprocess.Popen([*wrapper, python, str(HERE / "workload.py")], env=env,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self._stderr)
        self.pid = self.process.pid
        self._pending = b""
        self._answer(GUARD_S)

    def send(self, op, **arguments):
        self.process.stdin.write(json.dumps({"op": op, **arguments}).encode() + b"\n")
        self.process.stdin.flush()

    def _answer(self, guard_s):
        end = time.monotonic() + guard_s
        out = self.process.stdout
        while b"\n" not in self._pending:
            ready = select.select([out], [], [], max(0, end - time.monotonic()))[0]
            assert ready, f"the program hangs: no answer for {guard_s} s\n{self.stacks()}"
            data = os.read(out.fileno(), 65536)
            assert data, f"the program ended: {self.process.wait()}\n{self.errors()}"
            self._pending += data
        line, self._pending = self._pending.split(b"\n", 1)
        return json.loads(line)["answer"]

    def call(self, op, guard_s=GUARD_S, **arguments):
        self.send(op, **arguments)
        return self._answer(guard_s)

    def answer(self, guard_s=GUARD_S):
        """The answer to an earlier send()."""
        return self._answer(guard_s)

    def load(self, built, **arguments):
        """Imports TensorFlow; learns which threads are the workers of its two big pools.

        They are born in one go, in this order: the agent's, intra-op, inter-op, others.
        """
        answer = self.call("import", IMPORT_GUARD_S, **arguments)
        tids = [t for t in answer["tids"] if self.comm(t) != "tide-agent"]
        self.version = answer["version"]
        self.intra = tids[:built]
        self.inter = tids[built:2 * built]
        assert len(self.inter) == built, answer
        return self

    def comm(self, tid):
        return pathlib.Path(f"/proc/{self.pid}/task/{tid}/comm").read_text().strip()

    def moved(self, tids, during, beyond_ns=VAIN_NS):
        """How many of the threads used CPU while during() ran."""
        before = {t: thread_cpu_ns(self.pid, t) for t in tids}
        during()
        return sum(thread_cpu_ns(self.pid, t) - before[t] > beyond_ns for t in tids)

    def errors(self):
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace")[-2000:]

    def stacks(self):
        """Where its threads sleep, for the message of a failed test."""
        lines = []
        for task in sorted(pathlib.Path(f"/proc/{self.pid}/task").glob("*")):
            try:
                lines.append(f"{task.name} {(task / 'comm').read_text().strip()} "
                             f"{(task / 'wchan').read_text()} "
                             f"{(task / 'stat').read_text().rsplit(')', 1)[1].split()[0]}")
            except OSError:
                pass
        return "\n".join(lines)

    def wait(self, guard_s=GUARD_S):
        """The exit status; a program that does not end fails the test."""
        try:
            return self.process.wait(guard_s)
        except subprocess.TimeoutExpired:
            stacks = self.stacks()
            self.process.kill()
            raise AssertionError(f"the program does not end\n{stacks}") from None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self._stderr):
            try:
                pipe.close()
            except OSError:
                pass


__all__ = ["BUILD", "HERE", "IMPORT_GUARD_S", "Program", "agent_env", "agent_library", "clean_env",
           "tensorflow_pythons", "thread_cpu_ns", "wait_until"]
