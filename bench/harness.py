# SPDX-License-Identifier: Apache-2.0
"""Paired measurements of running programs on a noisy machine.

Both sides are started once and then run in turn: while one runs, the other is stopped (SIGSTOP), a
few seconds each, A B B A A B …  A drift of the machine meets both sides, start-up meets neither,
and every pair of slices gives one ratio. Programs write CLOCK_MONOTONIC at the end of every step;
progress within a step is interpolated over the time in which its side was running.
"""

import bisect
import ctypes
import functools
import json
import math
import mmap
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import stamp

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("TIDE_BUILD_DIR", ROOT / "build")).resolve()
RESULTS = pathlib.Path(os.environ.get("TIDE_BENCH_RESULTS", ROOT / "bench" / "results"))  # another folder: a trial
PYTHON = os.environ.get("TIDE_BENCH_PYTHON", str(ROOT / ".venv" / "bin" / "python"))
TORCH = os.environ.get("TIDE_PYTHON_TORCH", str(ROOT / ".venv-torch" / "bin" / "python"))  # with PyTorch and others
TIDE = str(BUILD / "tide")
MODELS = str(ROOT / "bench" / "models.py")
FOREVER = "86400"


def ratio_stats(ratios):
    """Median of paired ratios with its distribution-free 95 % interval (sign test), and repeats.

    Not the mean: now and then a program that was continued makes no step for a second or more, stock
    programs as often as others, and one such slice is a ratio of 0.05 or 20.
    """
    ordered, n = sorted(ratios), len(ratios)
    cut, tail = 0, 0.0  # how many values below the interval: P(fewer heads than that) <= 2.5 %
    while (tail := tail + math.comb(n, cut) / 2 ** n) <= 0.025:
        cut += 1
    low, high = (ordered[cut - 1], ordered[n - cut]) if cut else (0.0, math.inf)
    return {"ratio": statistics.median(ordered), "low": low, "high": high, "min": ordered[0],
            "max": ordered[-1], "repeats": n}


# Two-sided 95 % quantiles of Student's t by degrees of freedom.
T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228, 11: 2.201, 12: 2.179,
       13: 2.160, 14: 2.145, 15: 2.131, 16: 2.120, 17: 2.110, 18: 2.101, 19: 2.093, 24: 2.064, 29: 2.045, 39: 2.023, 59: 2.001,
       119: 1.980}


def half_width(values):
    """Half of the 95 % interval of their mean by Student's t; of one value there is none. In between two numbers of T95 the larger t."""
    n = len(values)
    if n < 2:
        return math.inf
    return T95[max(freedom for freedom in T95 if freedom < n)] * statistics.stdev(values) / math.sqrt(n)


def log_interval(ratios):
    """Geometric mean and its 95 % interval by Student's t; of one ratio there is none."""
    logs = [math.log(ratio) for ratio in ratios]
    middle, half = statistics.fmean(logs), half_width(logs)
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def quantile(values, q):
    """The q-quantile (nearest rank) of a non-empty list."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(q * len(ordered)) - 1))]


class Job:
    """One program that writes the time of each step; started at once, stopped until resume()."""

    def __init__(self, command, env, folder, name):
        self.name = name
        self.times = pathlib.Path(folder) / f"{name}.times"
        self.times.touch()
        self.log = open(pathlib.Path(folder) / f"{name}.log", "w", encoding="utf-8")
        self.process = subprocess.Popen(
            [*command, "--times", str(self.times)], env=env, stdin=subprocess.DEVNULL,
            stdout=self.log, stderr=self.log)

    @property
    def pid(self):
        return self.process.pid

    def steps(self):
        return [float(line) for line in self.times.read_text().split("\n")[:-1]]

    def check(self):
        if self.process.poll() is not None:
            text = pathlib.Path(self.log.name).read_text()[-2000:]
            raise RuntimeError(f"{self.name} ended with {self.process.returncode}:\n{text}")

    def wait_steps(self, n, timeout_s=180):
        end = time.monotonic() + timeout_s
        while len(self.steps()) < n:
            self.check()
            if time.monotonic() > end:
                raise RuntimeError(f"{self.name}: fewer than {n} steps in {timeout_s} s")
            time.sleep(0.1)

    def send(self, number):
        self.check()
        os.kill(self.pid, number)

    def rss_kib(self):
        with open(f"/proc/{self.pid}/statm", encoding="ascii") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        self.log.close()


def active_progress(steps, slices, tail, leads=()):
    """Steps done within each (begin, end) slice, fractions interpolated over the time that ran.

    `tail` is a last slice that only ends the steps which the others began; `leads` count for none.
    """
    def active(t):
        return sum(min(max(t, b), e) - b for b, e in [*leads, *slices, tail])
    axis = [active(t) for t in steps]
    return [interpolate(axis, active(e)) - interpolate(axis, active(b)) for b, e in slices]


def interpolate(axis, x):
    """How many steps were done at active time x: 0, 1, 2 … at axis[0], axis[1] …"""
    i = bisect.bisect_right(axis, x)
    if i == 0 or i == len(axis):
        return float(i)
    width = axis[i] - axis[i - 1]
    return i + ((x - axis[i - 1]) / width if width > 0 else 0.0)


class Side:
    """The jobs that run together."""

    def __init__(self, name, jobs):
        self.name, self.jobs, self.leads, self.slices, self.tail = name, jobs, [], [], (0, 0)

    def warm_up(self, steps):
        for job in self.jobs:
            job.wait_steps(steps)
        self.stop()

    def stop(self):
        for job in self.jobs:
            job.send(signal.SIGSTOP)

    def run(self, seconds, lead_s=0):
        """@lead_s: how long the jobs run before the slice begins, for a daemon that first has to see that they do."""
        begin = time.monotonic()
        for job in self.jobs:
            job.send(signal.SIGCONT)
        time.sleep(lead_s + seconds)
        end = time.monotonic()
        self.stop()
        self.leads += [(begin, begin + lead_s)] * bool(lead_s)
        self.slices.append((begin + lead_s, end))

    def finish_steps(self):
        """Runs on until every job has ended the step that the last slice cut."""
        begin = time.monotonic()
        for job in self.jobs:
            seen = len(job.steps())
            job.send(signal.SIGCONT)
            job.wait_steps(seen + 1)
        self.stop()
        self.tail = (begin, time.monotonic())

    def rates(self):
        """Steps per second of all jobs together, one number a slice."""
        per_job = [active_progress(job.steps(), self.slices, self.tail, self.leads) for job in self.jobs]
        return [sum(counts) / (e - b) for counts, (b, e) in zip(zip(*per_job), self.slices)]

    def end(self):
        for job in self.jobs:
            job.end()


def interleave(a, b, pairs, slice_s):
    """Runs side a and side b in turn; returns the paired ratios rate(b) / rate(a)."""
    for i in range(pairs):
        for side in ((a, b) if i % 2 == 0 else (b, a)):
            side.run(slice_s)
    for side in (a, b):
        side.finish_steps()
    return [y / x for x, y in zip(a.rates(), b.rates())]


@functools.cache
def hold_libraries():
    """Locks TensorFlow's libraries in memory for as long as this process lives.

    A kernel that reclaims cold pages early (DAMON) takes those of the side that is stopped, which
    then spends its next slice reading them from the disk again. Without the right to lock: no effect.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                          ctypes.c_long]
    libc.mlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    for path in pathlib.Path(PYTHON).parent.parent.glob("lib/python3*/site-packages/**/*.so*"):
        size = path.stat().st_size
        with open(path, "rb") as f:
            address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, f.fileno(), 0)
        if address not in (None, ctypes.c_void_p(-1).value):
            libc.mlock(address, size)


class Bench:
    """A private daemon directory and a scratch folder; everything ends with it."""

    def __init__(self):
        hold_libraries()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tide-bench-"))
        self.run_dir = self.folder / "run"
        self.jobs = []
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("TIDE_", "LD_PRELOAD"))}
        self.env["TF_CPP_MIN_LOG_LEVEL"] = "3"
        self.tide_env = {**self.env, "TIDE_DIR": str(self.run_dir),
                         "TIDE_CLAIMS_DIR": str(self.folder / "claims")}
        (self.folder / "claims").mkdir()

    def program(self, model):
        """The command that trains a model, or runs the inference of a SavedModel in C."""
        if model != "savedmodel":
            return [PYTHON, MODELS, "--model", model, "--seconds", FOREVER]
        path = self.folder / "savedmodel"
        if not path.exists():
            subprocess.run([PYTHON, MODELS, "--model", model, "--export", str(path)], env=self.env,
                           check=True, capture_output=True)
        library = next(pathlib.Path(PYTHON).parent.parent.glob("lib/python3*/site-packages/tensorflow"))
        return [str(BUILD / "bench" / "savedmodel_infer"), "--tensorflow", str(library), "--seconds",
                FOREVER, str(path)]

    def stock(self, model, name, *args, prefix=()):
        return self._job([*prefix, *self.program(model), *args], self.env, name)

    def tide(self, model, name, *args, run=()):
        return self._job([TIDE, "run", "--name", name, *run, "--", *self.program(model), *args],
                         self.tide_env, name)

    def _job(self, command, env, name):
        job = Job(command, env, self.folder, name)
        self.jobs.append(job)
        return job

    def cli(self, *args):
        done = subprocess.run([TIDE, *args], env=self.tide_env, capture_output=True, text=True, timeout=60)
        if done.returncode:
            sys.exit(f"tide {' '.join(args)}: {done.stderr.strip()}")
        return done.stdout

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for job in self.jobs:
            job.end()
        try:
            pid = int((self.run_dir / "tided.lock").read_text().split()[0])
            os.kill(pid, signal.SIGTERM)
        except (OSError, ValueError, IndexError):
            pass  # it has ended by itself
        if exc[0] is None:
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            print(f"logs are kept in {self.folder}", file=sys.stderr)


def machine():
    """Returns what a reader needs to judge the figures."""
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8")
                  if line.startswith("model name")), "unknown")
    return {"cpus": os.cpu_count(), "model": model, "kernel": os.uname().release,
            "load": os.getloadavg()[0]}


def save(name, rows, runs=()):
    """Writes bench/results/NAME.json; rows of models that were not measured now stay, with the commit, day
    and hash of their own. @runs: what the rows were made of, for a measurement that goes on later."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    now = stamp.today(BUILD, name, machine())
    runs = stamp.stamped(runs, now)
    rows = [{**row, "measured": stamp.of_runs(row, runs) if runs else now} for row in rows]
    models = {row.get("model") for row in rows}
    if path.exists() and None not in models:
        rows = [row for row in json.loads(path.read_text())["rows"] if row["model"] not in models] + rows
    result = {"bench": name, "machine": now["machine"], "rows": rows} | ({"runs": runs} if runs else {})
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"written to {path}")


def saved_runs(name):
    """The runs that save() was given. Those of before runs were stamped say so."""
    path = RESULTS / f"{name}.json"
    unknown = {"commit": "unknown", "date": "", "hash": "unknown", "machine": {}}
    return stamp.stamped(json.loads(path.read_text()).get("runs", []) if path.exists() else [], unknown)


def show_ratio(label, stats, goal):
    met = "met" if stats["low"] >= goal else "open" if stats["high"] >= goal else "missed"
    print(f"{label:34} {stats['ratio']:6.3f}  [{stats['low']:.3f}, {stats['high']:.3f}]  "
          f"n={stats['repeats']:<3} goal {goal:.2f}: {met}", flush=True)
