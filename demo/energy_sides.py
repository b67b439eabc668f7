# SPDX-License-Identifier: Apache-2.0
"""The evening of the demo of energy: three trainings in one go, and what the plant's meter says meanwhile.

A pass is BEFORE_S seconds with no cap, then, at 18:00, AFTER_S seconds under one. Its trainings start before it and go
on through it; nothing is started anew.
"""

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

TRAIN = pathlib.Path(__file__).with_name("train.py")
MODELS = ("cnn", "mlp", "attention")
EPOCHS = 10_000  # more than a demo's time
GUARD_S = 180
LOOK_S = 0.02
GRACE_S = 3  # a cap is kept after that
WINDOW_S = 10  # … in the mean of so long


class Failed(Exception):
    pass


class Training:
    """A training of demo/train.py, and the steps that it has made."""

    def __init__(self, model, data, folder, prefix=(), env=None):
        self.model, self.log = model, folder / f"{model}.jsonl"
        self.output = folder / f"{model}.txt"
        with open(self.output, "w", encoding="utf-8") as output:
            self.process = subprocess.Popen(
                [*prefix, sys.executable, str(TRAIN), "--model", model, "--data", str(data), "--log", str(self.log),
                 "--epochs", str(EPOCHS)], env=env, start_new_session=True, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT)

    def steps(self):
        """[(seconds since 1970, step)]"""
        if not self.log.exists():
            return []
        text = self.log.read_text(encoding="utf-8")
        return [(line["time"], line["step"]) for line in map(json.loads, text[:text.rfind("\n") + 1].splitlines())]

    def check(self):
        if self.process.poll() is not None:
            said = "\n".join(self.output.read_text(errors="replace").splitlines()[-15:])
            raise Failed(f"{self.model} ended with status {self.process.returncode}:\n{said}")

    def wait_steps(self, count):
        until = time.monotonic() + GUARD_S
        while len(self.steps()) < count:
            self.check()
            if time.monotonic() > until:
                raise Failed(f"{self.model} made no steps in {GUARD_S} s")
            time.sleep(0.2)

    def rate(self, begin, end):
        """Steps per second between two times."""
        at = self.steps()
        return (step_at(at, end) - step_at(at, begin)) / (end - begin)

    def used_ns(self):
        """CPU time, by the process's own clock (clock_getcpuclockid(3)): who limits others must not use much itself."""
        try:
            return time.clock_gettime_ns(~self.process.pid << 3 | 2)
        except OSError:
            return 0

    def end(self):
        for number in (signal.SIGCONT, signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is None:
                os.kill(self.process.pid, number)
                time.sleep(0.1 if number != signal.SIGTERM else 1)
        self.process.wait()


def step_at(steps, when):
    """Steps made until @when, between two lines of the log by proportion."""
    before = (0.0, 0)
    for time_, step in steps:
        if time_ >= when:
            span = time_ - before[0]
            return before[1] + (step - before[1]) * (when - before[0]) / span if before[0] and span else step
        before = (time_, step)
    return before[1]


class Limiter(threading.Thread):
    """Holds each training to a part of the machine, in cores, as cpulimit(1) does: by stopping it for moments."""

    def __init__(self, trainings, cores):
        super().__init__(daemon=True)
        self.trainings, self.quit = trainings, threading.Event()
        self.set(cores)

    def set(self, cores):
        """Energy that was not used until now is gone."""
        self.cores, self.since = cores, (time.monotonic(), [t.used_ns() for t in self.trainings])

    def run(self):
        stopped = [False] * len(self.trainings)
        while not self.quit.wait(LOOK_S):
            (begin, base), cores = self.since, self.cores
            for i, training in enumerate(self.trainings):
                may = (time.monotonic() - begin) * 1e9 * cores
                stop = training.used_ns() - base[i] > may
                if stop != stopped[i] and training.process.poll() is None:
                    training.process.send_signal(signal.SIGSTOP if stop else signal.SIGCONT)
                    stopped[i] = stop
        for training in self.trainings:
            if training.process.poll() is None:
                training.process.send_signal(signal.SIGCONT)

    def end(self):
        self.quit.set()
        self.join()


class Watts(threading.Thread):
    """The plant's counter of the whole machine, once a second."""

    def __init__(self, meter):
        super().__init__(daemon=True)
        self.meter, self.samples, self.quit = meter, [], threading.Event()

    def run(self):
        while True:
            self.samples.append((time.time(), self.meter.value("intel-rapl:1")))
            if self.quit.wait(1):
                return

    def joules(self, begin, end):
        inside = [(t, uj) for t, uj in self.samples if begin <= t <= end]
        return (inside[-1][1] - inside[0][1]) / 1e6 * (end - begin) / (inside[-1][0] - inside[0][0])

    def seconds_above(self, begin, end, watts):
        """Seconds in windows of ten whose mean is above @watts, and the most that one is above, in percent."""
        inside = [(t, uj) for t, uj in self.samples if begin <= t <= end]
        above, worst = set(), 0.0
        for i, (t, uj) in enumerate(inside):
            last = next((s for s in inside[i:] if s[0] - t >= WINDOW_S - 0.5), None)
            if last is None:
                break
            mean = (last[1] - uj) / 1e6 / (last[0] - t)
            worst = max(worst, mean / watts - 1)
            if mean > watts:
                above.update(int(s) for s, _ in inside if t <= s <= last[0])
        return len(above), max(worst, 0) * 100

    def end(self):
        self.quit.set()
        self.join()


@dataclasses.dataclass
class Evening:
    """The findings of a pass."""
    name: str
    before: list  # steps per second of each training
    after: list
    kwh: float
    above_s: int
    worst_percent: float
    others: float = 0.0  # cores that everything but the trainings kept busy after 18:00

    @staticmethod
    def of(name, trainings, watts, times, cap_w, others):
        begin, six, end = times
        above, worst = watts.seconds_above(six + GRACE_S, end, cap_w)
        return Evening(name, [t.rate(begin, six) for t in trainings], [t.rate(six + GRACE_S, end) for t in trainings],
                       watts.joules(begin, end) / 3.6e6, above, worst, others)


def busy_s():
    """Seconds that this machine's cores were busy."""
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


class Others:
    """Busy cores since the beginning, without the trainings'."""

    def __init__(self, trainings):
        self.trainings = trainings
        self.begun = time.monotonic(), self.now()

    def now(self):
        return busy_s() - sum(training.used_ns() for training in self.trainings) / 1e9

    def cores(self):
        return max(0.0, (self.now() - self.begun[1]) / (time.monotonic() - self.begun[0]))


def work(rates, full):
    """Percent: the mean of the trainings' speeds against those of the uncapped pass."""
    return 100 * sum(rate / one for rate, one in zip(rates, full)) / len(full)


def table(evenings):
    """Rows of words; the first one is the head."""
    full = [(before + after) / 2 for before, after in zip(evenings[0].before, evenings[0].after)]
    rows = [("", "work before 18:00", "work after 18:00", "energy", "seconds above the cap", "most above it",
             "other programs")]
    for e in evenings:
        rows.append((e.name, f"{work(e.before, full):.0f} %", f"{work(e.after, full):.0f} %", f"{e.kwh * 1000:.2f} Wh",
                     f"{e.above_s}", f"{e.worst_percent:.1f} %", f"{e.others:.2f} cores"))
    return rows
