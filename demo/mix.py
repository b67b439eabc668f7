# SPDX-License-Identifier: Apache-2.0
"""Runs the demo's mix of trainings once: starts each at its time, follows it, ends with it."""

import dataclasses
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time

from side import waited_s

TRAIN = pathlib.Path(__file__).with_name("train.py")
POLL_S = 0.25
RATE_WINDOW_S = 3.0
KILL_AFTER_S = 5.0
TAIL_LINES = 15


@dataclasses.dataclass(frozen=True)
class Spec:
    """One training: when it arrives and how long it is (epochs; None: as train.py has it)."""

    name: str
    arrival_s: float
    epochs: int | None = None


class JobFailed(Exception):
    """A training ended with an error; the text holds what it said last."""


class Job:
    """One training while it runs: its process, its log read as it grows, its threads over time."""

    def __init__(self, spec, log, output):
        self.spec, self.log_path, self.output_path = spec, log, output
        self.process = self.log = None
        self.started = self.finished = None  # seconds since the mix began
        self.partial = ""
        self.marks = []  # (time, step), of the last seconds
        self.step = self.steps = 0
        self.seen = {}  # what the side's observe() said last
        self.threads = []  # [time, threads], one entry per change
        self.result = None
        self.cpu_s = self.waited_s = 0.0
        self.child = True  # our child is the program itself, whose times are known

    @property
    def name(self):
        return self.spec.name

    @property
    def running(self):
        return self.process is not None and self.finished is None

    def program(self):
        return [sys.executable, str(TRAIN)]

    def start(self, side, data, now):
        self.child = side.child
        command = [*self.program(), "--model", self.name, "--data", str(data), "--log", str(self.log_path)]
        if self.spec.epochs:
            command += ["--epochs", str(self.spec.epochs)]
        self.log_path.unlink(missing_ok=True)
        self.started = now
        with open(self.output_path, "w", encoding="utf-8") as output:
            # A session of its own: a Ctrl-C reaches the demo alone, which then ends its programs.
            self.process = subprocess.Popen(
                side.command(self.name, command), env=side.environment(), start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)

    def follow(self, now):
        """Reads what the program has logged, and notices its end."""
        self.waited_s = max(self.waited_s, waited_s(self.process.pid))  # before reap() forgets it
        ended = self.reap()
        self.read_log(now)
        if ended:
            self.finished = now
            self.note_threads(now, 0)
            if self.process.returncode != 0 or not self.result:
                raise JobFailed(self.failure())

    def reap(self):
        """wait4 instead of Popen.poll(): it also tells the CPU time of this child alone."""
        pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
        if pid == 0:
            return False
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu_s = usage.ru_utime + usage.ru_stime
        return True

    def read_log(self, now):
        if self.log is None:
            if not self.log_path.exists():
                return
            self.log = open(self.log_path, encoding="utf-8")
        text = self.partial + self.log.read()
        *lines, self.partial = text.split("\n")
        for line in map(json.loads, lines):
            self.step, self.steps = line["step"], line["steps"]
            if "accuracy" in line:
                self.result = {k: line[k] for k in ("train_loss", "test_loss", "accuracy")}
        if lines:
            self.marks.append((now, self.step))
        while len(self.marks) > 2 and now - self.marks[0][0] > RATE_WINDOW_S:
            self.marks.pop(0)

    def rate(self):
        """Steps per second over the last few seconds."""
        if len(self.marks) < 2:
            return None
        (t0, s0), (t1, s1) = self.marks[0], self.marks[-1]
        return (s1 - s0) / (t1 - t0)

    def note_threads(self, now, threads):
        if not self.threads or self.threads[-1][1] != threads:
            self.threads.append([round(now, 3), threads])

    def failure(self):
        if self.log:
            self.log.close()
        code = self.process.returncode
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        said = self.output_path.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
        return "\n".join([f"{self.name} {how}; it said ({self.output_path}):", *("  " + s for s in said)])

    def summary(self):
        return {"name": self.name, "arrival_s": round(self.started, 3),
                "finished_s": round(self.finished, 3), "steps": self.steps,
                "cpu_s": round(self.cpu_s, 3) if self.child else None,
                "waited_s": round(self.waited_s, 3) if self.child else None, "threads": self.threads, **self.result}


def busy_s():
    """Processor time since the boot of the processors that the demo may use, and that of this program and its ended
    children. What a virtual machine's neighbours have taken is in neither."""
    names = {f"cpu{n}" for n in os.sched_getaffinity(0)}
    busy = 0
    for line in open("/proc/stat", encoding="ascii"):
        name, *fields = line.split()
        if name in names:
            user, nice, system, _, _, irq, softirq = map(int, fields[:7])
            busy += user + nice + system + irq + softirq
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return busy / os.sysconf("SC_CLK_TCK"), sum(usage.ru_utime + usage.ru_stime for usage in own)


def others_share(before, after, seconds, more):
    """The part of the processors that other programs used, of 1; None where /proc/stat does not tell.

    @more: seconds of processor time of what belongs to the demo and is no child of it."""
    machine, ours = after[0] - before[0], after[1] - before[1] + more
    share = (machine - ours) / seconds / len(os.sched_getaffinity(0))
    return None if machine <= 0 or share < -0.05 else max(0.0, share)


class Mix:
    job = Job
    others = None  # the part of the machine that other programs used, of 1; None: not known

    def __init__(self, specs, folder):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.specs, self.jobs = folder, specs, []

    def run(self, side, data, screen):
        """Runs all to their end; returns a summary of each job. Leaves no process, whatever happens."""
        self.jobs = [self.job(s, self.folder / f"{side.key}-{s.name}.jsonl",
                         self.folder / f"{side.key}-{s.name}.txt") for s in self.specs]
        begin, before = time.monotonic(), busy_s()
        try:
            while any(job.finished is None for job in self.jobs):
                self.turn(side, data, time.monotonic() - begin)
                screen.draw(time.monotonic() - begin, self.jobs)
                time.sleep(POLL_S)
        finally:
            self.end_all()
        if side.child:  # else nobody knows which programs are the demo's
            self.others = others_share(before, busy_s(), time.monotonic() - begin, side.daemon_s())
        return [job.summary() for job in self.jobs]

    def turn(self, side, data, now):
        for job in self.jobs:
            if job.process is None and now >= job.spec.arrival_s:
                job.start(side, data, now)
            elif job.running:
                job.follow(now)
        seen = side.observe({job.name: job.process.pid for job in self.jobs if job.running})
        for job in self.jobs:
            if job.running and job.name in seen:
                job.seen = seen[job.name]
                job.note_threads(now, job.seen["threads"])

    def end_all(self):
        """Ends our own children by their pids: a request first, then force."""
        alive = [job for job in self.jobs if job.running and job.process.returncode is None]
        for number in (signal.SIGTERM, signal.SIGKILL):
            for job in alive:
                os.kill(job.process.pid, number)
            deadline = time.monotonic() + KILL_AFTER_S
            while alive and time.monotonic() < deadline:
                alive = [job for job in alive if not job.reap()]
                time.sleep(0.05)
