#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How well tided divides a machine's energy among jobs, judged by plants that it cannot see into (tests/plant).

    energy_attribution.py [--seeds 20] [--seconds 120] [--commit REV] [--busy]

The watts are a plant's, the programs and their CPU time are real: 3 to 8 jobs at a time, of which up to two are
trainings of TensorFlow and the others C programs that work and wait as their schedule says. Plant, jobs and schedules
follow from the hash of the commit and the seed's number.

tided reads the plant's counter of the whole machine and frequencies below a tree of its own. It knows the watts at four
loads, which this program reads from the same counter before the jobs start, as an administrator would with a meter.
With --busy, on a machine that other programs keep busy, it reads them from a second plant with the same parameters that
does nothing else, as on a quiet day; what the others use is "system" for tided and for the truth alike.

A job's energy is compared from its second figure to its last: between them lie whole windows of ten seconds.
Per seed: error = sum over jobs of |tided's energy - true share| / sum of true shares; a job is covered if its true share
lies within tided's interval. The truth is each job's Shapley share, from the file that the plant alone writes, read
when the seed has ended. The plant's own CPU time counts as system.
"""

import argparse
import contextlib
import hashlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time

import harness

sys.path[:0] = [str(harness.ROOT / "tests/component"), str(harness.ROOT / "tests/plant")]
import daemon  # noqa: E402
import plant_draw  # noqa: E402
import rig  # noqa: E402

POOL = harness.BUILD / "tests/component/pool"
TF_MODELS = ("mlp", "cnn", "attention")
POINT_LOADS = (0, 100, 500, 1000)  # permille of the machine
POINT_S = 8
LOOK_S = 0.2


class Worker:
    """A job that works and waits: pool's threads spin between SIGUSR1 and SIGUSR2."""

    def __init__(self, bench, name, random_):
        self.name, self.random = name, random_
        self.busy, self.due = False, 0.0
        self.share, self.period = random_.uniform(0.1, 1.0), random_.uniform(0.3, 6.0)
        self.process = subprocess.Popen(
            [harness.TIDE, "run", "--name", name, "--", POOL, str(random_.choice((1, 2, 4)))],
            env=bench.tide_env, stdout=subprocess.PIPE, text=True)
        self.pid = int(self.process.stdout.readline().split()[1])

    def step(self, now):
        """Switches if it is time; returns when it is next."""
        if now >= self.due:
            self.busy = not self.busy
            os.kill(self.pid, signal.SIGUSR1 if self.busy else signal.SIGUSR2)
            length = self.period * (self.share if self.busy else 1 - self.share)
            self.due = now + max(length * self.random.uniform(0.5, 1.5), 0.02)
        return self.due

    def end(self):
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait()


class Training:
    """A job of TensorFlow."""

    def __init__(self, bench, name, random_):
        self.name = name
        self.job = bench.tide(random_.choice(TF_MODELS), name)
        self.pid = self.job.pid
        self.job.wait_steps(5)

    def step(self, now):
        self.job.check()
        return now + 1

    def end(self):
        self.job.end()


def draw_jobs(bench, random_):
    count = random_.randint(3, 8)
    trainings = random_.randint(0, 2)
    return [(Training if i < trainings else Worker)(bench, f"job{i}", random_) for i in range(count)]


class Watch:
    """Notes what tided tells of each job: its energy in windows of ten seconds that begin with the job. A new
    figure is that of the moment when it appears, so looks come often."""

    def __init__(self, tided):
        self.tided, self.seen = tided, {}  # name -> [(ns, energy, low, high)], a row per new figure

    def look(self):
        status, body = self.tided.api("GET", "/v1/power")
        assert status == 200, body
        for job in body["jobs"]:
            figures = tuple(job[key] for key in ("energy_uj", "energy_low_uj", "energy_high_uj"))
            rows = self.seen.setdefault(job["name"], [])
            if None not in figures and (not rows or rows[-1][1:] != figures):
                rows.append((time.monotonic_ns(), *figures))


def run_jobs(jobs, seconds, watch):
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        watch.look()
        due = min([end, now + LOOK_S, *(job.step(now) for job in jobs)])
        time.sleep(max(0.0, due - time.monotonic()))


@contextlib.contextmanager
def burning(permille):
    """A share of every CPU, in slices of 50 ms."""
    text = f"""import time
while True:
    end = time.monotonic() + 0.05
    while time.monotonic() < end - 0.05 * {1 - permille / 1000}: pass
    time.sleep(max(0, end - time.monotonic()))"""
    burners = [subprocess.Popen([sys.executable, "-S", "-c", text])
               for _ in range(os.cpu_count() if permille else 0)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def busy_ns():
    """Busy time of all CPUs since boot, and how many there are."""
    lines = [line.split() for line in open("/proc/stat", encoding="ascii") if line[3:4].isdigit()]
    ticks = sum(sum(map(int, words[1:4])) + sum(map(int, words[6:8])) for words in lines)
    return ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK"), len(lines)


def reading(meter, permille):
    """(load in permille, W) over some seconds of burning, whatever else runs on the machine."""
    with burning(permille):
        time.sleep(1)
        begin, joules, (busy, cpus) = time.monotonic(), meter.value("intel-rapl:1"), busy_ns()
        time.sleep(POINT_S)
        elapsed = time.monotonic() - begin
        return ((busy_ns()[0] - busy) / elapsed / cpus / 1e6,
                (meter.value("intel-rapl:1") - joules) / 1e6 / elapsed)


def drawn_through(readings, load):
    """Watts at this load on the line through the readings, which goes on beyond the first and the last."""
    readings = sorted(readings)
    (x, low), (y, high) = next((pair for pair in zip(readings, readings[1:]) if load <= pair[1][0]),
                               readings[-2:])
    return low + (high - low) * (load - x) / (y - x)


def points(meter):
    """W at POINT_LOADS, as the machine's counter and its CPU time say."""
    readings = [reading(meter, permille) for permille in POINT_LOADS]
    if max(readings)[0] - min(readings)[0] < 500:
        sys.exit(f"energy_attribution: other programs keep the machine busy, no curve can be read: {readings}")
    return monotone([drawn_through(readings, load) for load in POINT_LOADS])


def truth_at(lines, ns):
    """The truth at this time, between the two lines around it."""
    after = next(i for i, line in enumerate(lines) if line["time_ns"] >= ns)
    before = lines[max(after - 1, 0)]
    span = lines[after]["time_ns"] - before["time_ns"]
    part = (ns - before["time_ns"]) / span if span else 0.0
    return {name: (1 - part) * before["wall"]["jobs"].get(name, 0) + part * share
            for name, share in lines[after]["wall"]["jobs"].items()}


def score(ours, truth):
    """@ours: {name: (energy, low, high)}; @truth: {name: energy}. Returns the error, and who is covered."""
    total = sum(truth.values())
    error = sum(abs(ours[name][0] - share) for name, share in truth.items()) / total
    return error, {name: ours[name][1] <= share <= ours[name][2] for name, share in truth.items()}


def differences(seen, lines):
    """Returns the energy of each job from its second figure to its last: ours, and the truth in that time. The first
    figure may hold a beginning of which the plant knew nothing yet, so the second one counts."""
    ours, truth = {}, {}
    for name, rows in seen.items():
        first, last = rows[1], rows[-1]
        ours[name] = tuple(b - a for a, b in zip(first[1:], last[1:]))
        truth[name] = truth_at(lines, last[0])[name] - truth_at(lines, first[0])[name]
    return ours, truth


def monotone(watts):
    """Load never lowers power; what is left of noise would make it seem so."""
    return [max(watts[:i + 1]) for i in range(len(watts))]


def one_seed(seed, seconds, busy=False):
    random_ = random.Random(hashlib.sha256(f"jobs of {seed}".encode()).digest())
    with harness.Bench() as bench, contextlib.ExitStack() as stack:
        meter = rig.Meter(harness.BUILD, bench.folder / "meter", seed, "--psys")
        stack.callback(meter.end)
        watts = monotone(meter.points(harness.BUILD, seed, POINT_LOADS)) if busy else points(meter)
        config = bench.folder / "tide.conf"
        config.write_text(f"[daemon]\npower=powercap\npower-root={meter.tree}\n"
                          f"power-model=points:{','.join(f'{w:.2f}' for w in watts)}\n")
        tided = daemon.Daemon(harness.BUILD / "tided", None, bench.run_dir, bench.folder / "claims",
                              "--engine", "none", "--config", config).start()
        stack.callback(tided.end)
        jobs = draw_jobs(bench, random_)
        for job in jobs:
            stack.callback(job.end)
        meter.add_jobs({job.name: job.pid for job in jobs})
        watch = Watch(tided)
        run_jobs(jobs, seconds, watch)
        end = time.monotonic_ns()
        lines = meter.wait_truth(lambda line: line["time_ns"] > end) and meter.truth()
    ours, truth = differences(watch.seen, lines)
    error, covered = score(ours, truth)
    return {"seed": seed, "range": plant_draw.range_of(seed), "jobs": len(truth), "error": round(error, 4),
            "covered": sum(covered.values()),
            "width": round(sum(high - low for _, low, high in ours.values()) / sum(truth.values()), 3),
            "truth_uj": {k: round(v) for k, v in truth.items()},
            "system_uj": round(lines[-1]["wall"]["system"]), "idle_uj": round(lines[-1]["wall"]["idle"]),
            "ours_uj": ours, "points_w": [round(w, 2) for w in watts], "seconds": seconds, "busy": busy}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--commit", default="HEAD", help="whose hash the seeds follow from")
    parser.add_argument("--busy", action="store_true", help="other programs run on this machine")
    options = parser.parse_args()
    commit = subprocess.run(["git", "-C", harness.ROOT, "rev-parse", options.commit], check=True, text=True,
                            capture_output=True).stdout.strip()
    runs = []
    for seed in plant_draw.seeds(commit, options.seeds):
        runs.append(one_seed(seed, options.seconds, options.busy))
        print(json.dumps({k: runs[-1][k] for k in ("seed", "range", "jobs", "error", "covered", "width")}), flush=True)
    errors = [run["error"] for run in runs]
    low, high = harness.ratio_stats(errors)["low"], harness.ratio_stats(errors)["high"]
    share = sum(run["covered"] for run in runs) / sum(run["jobs"] for run in runs)
    width = statistics.median(run["width"] for run in runs)
    harness.save("energy-attribution", [
        {"what": "energy of jobs against their Shapley shares, watts of the plant, real programs" +
                 ", on a busy machine" * options.busy,
         "error median": round(statistics.median(errors), 4), "95 % low": low, "95 % high": high,
         "worst": max(errors), "covered": round(share, 3), "width of intervals": round(width, 2),
         "seeds": len(runs), "goal": "error 0.04, covered 0.9"}],
        runs)


if __name__ == "__main__":
    main()
