# SPDX-License-Identifier: Apache-2.0
"""docs/first-hour.md, typed as it stands: each command succeeds, and what the page shows of their output is what they say.

Durations, times, sizes, pids, ids, work done and the length of columns are those of the day; threads, targets and cores are the page's. `train.py`, the reader's own, is a small training of TensorFlow.
"""
import contextlib
import getpass
import os
import re
import subprocess
import threading
import time

import pytest

from program import BUILD, ROOT, clean_env, tensorflow_pythons

PYTHON = tensorflow_pythons()[0]
PAGE = ROOT / "docs/first-hour.md"  # scripts/check-documents.py sees to it that the Spanish one has the same commands and output
LONG_S = 240
LOOK_S = 60  # until a look shows what the page shows
TRAIN = """
import numpy as np
import tensorflow as tf
np.ones([500, 500]) @ np.ones([500, 500])
x, w = tf.random.normal([512, 256]), tf.Variable(tf.random.normal([256, 256]))
@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(tf.tanh(x @ w)))
    w.assign_sub(0.01 * tape.gradient(loss, w))
while True:
    step()
"""
SETS_UP = ("make", "export ")  # what the test has done already
MAY_FAIL = ("tide doctor", "tide ps")  # what is missing on this machine; no daemon yet
ENDLESS = ("tide events --follow",)
LOOKS = ("tide ps", "tide explain one")  # again after some seconds: idle cores may be lent just then


def parts(text):
    """("commands", lines) and ("output", lines) in their order."""
    found = []
    for block in re.findall(r"^```\n((?:.*\n)*?)^```$|((?:^    .+\n)+)", text, re.M):
        kind, lines = ("output", block[0].splitlines()) if block[0] else ("commands", block[1].splitlines())
        found.append((kind, [line.removeprefix("    ") if kind == "commands" else line for line in lines]))
    return found


VARIES = (
    r"\bj\d+\b",                          # which job was first
    r"\b\d\d:\d\d:\d\d\.\d+",            # the time of the day
    r"\d+(?:\.\d+)?(?= (?:ms|s)\b)",      # how long it took
    r"\b\d+(?:\.\d+)?[kMG]\b",           # memory
    r"\d+(?:\.\d+)?[kM]?(?= tasks|/s)",   # work
    r"(?<=running )\d+|(?<=process )\d+",  # pids
    r"(?<=tensorflow )\d+\.\d+\.\d+", r"(?<=openblas )\d+\.\d+\.\d+",
)


def shape(line):
    """A line without the figures that vary, and the width of its columns. ALLOWED, TARGET, ACTIVE and MAX stay."""
    return re.sub("|".join(VARIES), "0", re.sub(r"\s+", " ", line)).strip()


class Shell:
    """One terminal."""

    def __init__(self, folder, env):
        self.process = subprocess.Popen(["taskset", "-c", "0,1", "bash"], cwd=folder, env=env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1)
        self.guard = threading.Timer(LONG_S, self.process.kill)

    def type(self, command):
        """Status and output."""
        self.process.stdin.write(f'{command}\nstatus=$?; echo; echo "@end $status"\n')
        said = []
        for line in self.process.stdout:
            if line.startswith("@end "):
                return int(line.split()[1]), "".join(said)
            said.append(line)
        raise AssertionError(f"{command}: the shell ended: {''.join(said)}")

    def end(self):
        self.guard.cancel()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(LONG_S)


@pytest.fixture
def shell(tmp_path):
    home, folder = tmp_path / "home", tmp_path / "work"
    for path in (home, folder, tmp_path / "claims"):
        path.mkdir()
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "train.py").write_text(TRAIN)
    env = clean_env(HOME=str(home), TIDE_DIR=str(tmp_path / "tide"), TIDE_CLAIMS_DIR=str(tmp_path / "claims"), TF_CPP_MIN_LOG_LEVEL=3,
                    PATH=f"{BUILD}:{os.path.dirname(PYTHON)}:{os.environ['PATH']}")
    shell = Shell(folder, env)
    try:
        yield shell
    finally:  # nobody else ends these trainings, also where the shell is gone
        for job in ("one", "two", "night"):
            subprocess.run([f"{BUILD}/tide", "cancel", job], env=env, capture_output=True, timeout=LOOK_S)
        shell.end()


def does(shell, command):
    """Types a command as a reader would; its output."""
    if command.startswith(ENDLESS):
        shell.type(f"timeout -s INT 2 {command}")
        return ""
    status, said = shell.type(command.replace("PID", "$!"))
    assert status == 0 or command in MAY_FAIL, (command, said)
    return said


def lacks(said, output):
    """The first line of the page's output that stands nowhere in what was said; None if all do."""
    lines = {shape(re.sub(rf"\b{getpass.getuser()}\b", "root", line)) for line in said.splitlines()}
    return next((line for line in output if line and shape(line) not in lines), None)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the page is that of two cores")
@pytest.mark.timeout(2 * LONG_S)
def test_the_first_hour_is_as_it_says(shell):
    found, said = parts(PAGE.read_text()), ""
    assert sum(kind == "output" for kind, _ in found) >= 3 and sum(kind == "commands" for kind, _ in found) >= 9
    shell.guard.start()
    for number, (kind, lines) in enumerate(found):
        if kind == "output":
            assert not (missing := lacks(said, lines)), f"no line like {missing!r} in:\n{said}"
            continue
        said = ""
        for line in lines:
            command = re.sub(r"\s+#.*", "", line)
            if command.startswith(SETS_UP):
                continue
            said += does(shell, command)
            shown = found[number + 1][1] if found[number + 1:] and found[number + 1][0] == "output" else []
            end = time.monotonic() + LOOK_S
            while command in LOOKS and lacks(said, shown) and time.monotonic() < end:
                time.sleep(0.5)
                said = does(shell, command)
    shell.guard.cancel()
    end = time.monotonic() + 30
    while shell.type("tide ps")[0] == 0 and time.monotonic() < end:
        time.sleep(0.2)
    assert shell.type("tide ps")[0] != 0, "the daemon goes on"
