# SPDX-License-Identifier: Apache-2.0
"""`tide` of the build tree, with a daemon directory of the test's own. For test_cli*.py."""
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

import pytest

import conftest
from daemon import GUARD_S, remove

# A malleable program without work to do: four threads that follow the target, on paper.
POOL = """
import ctypes, os, signal, sys, time
lib = ctypes.CDLL(os.environ["TEST_LIBRARY"])
class State(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("max", ctypes.c_uint32), ("target", ctypes.c_uint32)]
FN = ctypes.CFUNCTYPE(None, ctypes.POINTER(State), ctypes.c_void_p)
def change(state, arg):
    lib.tide_active(max(1, min(4, state.contents.target)))
keep = FN(change)
assert lib.tide_declare(4) >= 0
lib.tide_on_change(keep, None)
lib.tide_active(4)
lib.tide_progress(ctypes.c_uint64(7), ctypes.c_uint64(50), b"steps")
print("ready", flush=True)
time.sleep(600)
"""


BUILD = pathlib.Path(os.environ.get("TIDE_BUILD_DIR") or conftest.ROOT / "build").resolve()


def filled_in(template):
    """A source of manual pages or completions, as the build makes it."""
    return subprocess.run([BUILD / "document"], input=template, text=True, capture_output=True,
                          check=True, timeout=GUARD_S).stdout


class Tide:
    def __init__(self, build_dir, folder):
        self.program = build_dir / "tide"
        self.dir = folder / "run"
        self.started = []
        self.env = {
            **conftest.plain_env(),
            "TIDE_DIR": str(self.dir),
            "TIDE_CLAIMS_DIR": str(folder / "claims"),
            "TEST_LIBRARY": str(build_dir / "libtide.so"),
            "LC_ALL": "C.UTF-8",
        }

    def __call__(self, *args, env=None, **more):
        """Runs `tide ARGS` to its end; stdout, stderr, returncode."""
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE,
                   "stderr": subprocess.PIPE, **more}
        return subprocess.run([self.program, *map(str, args)], env={**self.env, **(env or {})},
                              text=True, timeout=GUARD_S, **options)

    def start(self, *args, env=None, **more):
        """Starts `tide ARGS`, which the test's end kills."""
        process = subprocess.Popen([self.program, *map(str, args)], env={**self.env, **(env or {})},
                                   stdin=subprocess.DEVNULL, text=True, **more)
        self.started.append(process)
        return process

    def start_pool(self, name, *options):
        """A malleable job, once it has its pool. Returns its process."""
        process = self.start("run", "--name", name, *options, "--", "python3", "-c", POOL,
                             stdout=subprocess.PIPE)
        assert process.stdout.readline() == "ready\n"
        self.wait(lambda: self.job(name)["state"] == "running")
        return process

    def jobs(self):
        done = self("ps", "--json")
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    def job(self, name):
        return next(job for job in self.jobs() if job["name"] == name)

    @staticmethod
    def wait(condition):
        end = time.monotonic() + GUARD_S
        while not condition():
            assert time.monotonic() < end, f"it never happened, see line {condition.__code__.co_firstlineno}"
            time.sleep(0.02)

    def daemon(self):
        """The daemon's pid, or None when none holds the directory."""
        try:
            pid = int((self.dir / "tided.lock").read_text())
            stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
        except (OSError, ValueError):
            return None
        # Dead, though init may not have noticed yet.
        return pid if "(tided) " in stat and "(tided) Z" not in stat else None

    def end(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()
        pid = self.daemon()
        if pid:
            os.kill(pid, signal.SIGCONT)
            os.kill(pid, signal.SIGTERM)
            self.wait(lambda: self.daemon() != pid)


def name_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return None


class Queue:
    """A daemon for eight cores on which jobs begin in their order, as far as their requests fit."""

    def __init__(self, tide):
        self.tide, self.process = tide, None
        self.base = tide.dir.parent
        self.work = self.base / "work"
        self.base.chmod(0o755)
        self.work.mkdir()
        self.work.chmod(0o777)

    def start(self, *options, **more):
        self.tide.dir.mkdir(mode=0o755, exist_ok=True)
        with open(self.base / "tided.log", "a") as log:
            self.process = subprocess.Popen(
                [self.tide.program.parent / "tided", "--dir", self.tide.dir,
                 *(options or ["--cpus", "0-7", "--policy", "fcfs/strict"])],
                env=self.tide.env, stderr=log, **more)
        self.tide.wait(lambda: self.tide("ps").returncode == 0)
        return self

    def stop(self, number):
        self.process.send_signal(number)
        self.process.wait(GUARD_S)

    def submit(self, *args, **more):
        """The id of a job that was put into the queue."""
        done = self.tide("submit", "-q", *args, cwd=self.work, **more)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout.strip()

    def block(self):
        """A job that has all cores; what comes after it waits."""
        job = self.submit("--name", "blocker", "--request", 8, "--", "sleep", 600)
        self.waits_for("blocker", "starting", "rigid")
        return job

    def waiter(self, *options):
        """The id of a job that waits, and says so in its output once it has begun."""
        job = self.submit("--request", 8, *options, "--", "sh", "-c", "echo begun; exec sleep 600")
        self.waits_for(job, "queued", "held")
        return job

    def job(self, name):
        return next((job for job in self.tide.jobs() if name in (job["id"], job["name"])), None)

    def waits_for(self, name, *states):
        self.tide.wait(lambda: (self.job(name) or {}).get("state") in states)

    def begun(self, name):
        self.tide.wait(lambda: "begun\n" in self.output(name))

    def output(self, name):
        file = self.work / f"tide-{name}.out"
        return file.read_text() if file.exists() else ""

    def waiting(self):
        return json.loads(self.tide("queue", "--json").stdout)

    def processes(self):
        """Whatever was started from here and is detached by now: its environment names the place."""
        mark = f"TIDE_DIR={self.tide.dir}\0".encode()
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if mark in (folder / "environ").read_bytes() and int(folder.name) != os.getpid():
                    yield int(folder.name)
            except OSError:
                continue

    def end(self):
        if self.process and self.process.poll() is None:
            self.stop(signal.SIGTERM)
        self.tide.wait(lambda: "tided-guardian" not in map(name_of, self.processes()))
        self.tide.wait(self.all_killed)

    def all_killed(self):
        """Looks twice: a process in the middle of exec() shows no environment."""
        for pid in list(self.processes()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.05)
        return not list(self.processes())


@pytest.fixture
def tide(build_dir):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tide-cli-"))
    result = Tide(build_dir, folder)
    yield result
    result.end()
    remove(folder)


def assert_error(done, code, first, *words):
    """One line that says what was wrong, one that says what to do, one with the word of `tide why`, and the exit code."""
    lines = done.stderr.splitlines()
    assert done.returncode == code, done.stderr
    assert re.fullmatch(r"See 'tide why [a-z-]+'\.", lines.pop()), done.stderr
    assert done.stdout == ""
    assert len(lines) == 2, done.stderr
    assert re.match(r"('tide |tide-sim\(1\) |[A-Z]).*[.?]$", lines[1]), "the hint is no sentence"
    assert lines[0].startswith(first)
    for word in words:
        assert word in done.stderr
