#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much real trainings do under a power cap, by who divides it (tests/plant tells the watts).

    energy_work.py [--plants desktop,old,server,…] [--rounds 2] [--commit REV]     twenty plants, ten minutes each

Three trainings of TensorFlow with different speed-up curves (JOBS) share this machine under a cap of CAP_SHARE of the
way from idle to full power. Work is the sum of each job's steps per second over its steps per second alone on one
core with one thread. Jobs, cap and the plants' ranges were fixed before the first measurement; the plants' parameters
follow from the commit's hash.

    threadtide   tided with the policy power-cap and the cap in watts; it sees the plant's counter and frequencies
    static       the cap divided equally: each job has a third of the cores that fit below the cap, as a CPU quota
    clamp        everybody is throttled alike, as by RAPL: one quota on all three, steered by the watts every second
    division     all divisions by hand: the cores that fit below the cap in PARTS equal parts, at least one for each
                 job, with one or two threads each; each for a moment, then the best ones in turn with the others

static, clamp and the divisions run stock TensorFlow. Their quotas follow from the watts at four loads, and are trimmed
until their mean power is just below the cap: they know the plant's counter as well as tided does. Sides run in turn,
the others stand still meanwhile. A core's speed is the plant's and does not change the work that programs do; so the
packages' own power limit is hidden from tided, which is left with threads, cores and a quota on its group.
As root, on a machine that does nothing else. What is measured is kept after each plant: the same command goes on with those that
are missing. Where the best division gains less than GOAL_GAIN over equal parts, nobody can reach that goal: it is judged on the other plants.
"""

import argparse
import contextlib
import itertools
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time

import energy_attribution
import harness

sys.path[:0] = [str(harness.ROOT / "tests/component"), str(harness.ROOT / "tests/plant")]
import daemon  # noqa: E402
import plant_draw  # noqa: E402
import rig  # noqa: E402

CPU_GROUPS, PERIOD_US = pathlib.Path("/sys/fs/cgroup/cpu"), 20_000
JOBS = ("cnn", "lstm", "attention")
PLANTS = 20
CAP_SHARE = 0.6
PARTS = 6
TRIED_S, TRIED_SETTLE_S = 2.0, 0.7  # a division, before the best ones are known
BEST = 3
SETTLE_S, MEASURE_S = 4.0, 10.0
OURS_SETTLE_S, OURS_MEASURE_S = 20.0, 15.0  # a keeper grows ten seconds after others' load has gone
TRIM_S, TRIMS, TRIMMED = 4.0, 8, 0.98
LEAST_CORES = 0.05
GOAL_BEST, GOAL_GAIN = 0.95, 1.2


class Group:
    """A control group with a quota, and one below it for each job."""

    def __init__(self, groups, jobs):
        self.groups = groups
        self.all = groups.make()
        self.each = [groups.make(self.all) for _ in jobs]

    def set(self, total, each=None):
        """In cores; None: without a quota. The kernel takes no quota above the one around it."""
        for group in self.each:
            self.groups.quota(group, None)
        self.groups.quota(self.all, total)
        for group, cores in zip(self.each, each or [None] * len(self.each)):
            self.groups.quota(group, cores)


class Groups:
    """Groups of the cpu controller (cgroup v1), below one folder of our own."""

    def __init__(self):
        self.root = CPU_GROUPS / f"tide-bench-{os.getpid()}"
        self.made = [self.root]
        self.root.mkdir()

    def make(self, inside=None):
        path = (inside or self.root) / str(len(self.made))
        path.mkdir()
        self.made.append(path)
        return path

    @staticmethod
    def quota(group, cores):
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text("-1" if cores is None else
                                                str(max(1000, int(cores * PERIOD_US))))

    @staticmethod
    def enter(group):
        return ["sh", "-c", f'echo $$ >{group}/cgroup.procs; exec "$0" "$@"']

    def end(self):
        until = time.monotonic() + rig.GUARD_S
        for group in reversed(self.made):
            while group.exists() and time.monotonic() < until:
                with contextlib.suppress(OSError):
                    group.rmdir()
                time.sleep(0.02)


class Setting:
    """Jobs that run together, and what holds them back."""

    def __init__(self, name, jobs, apply):
        self.name, self.jobs, self.apply = name, jobs, apply

    def go(self, meter, settle, seconds):
        """{"uw": mean, "rates": of each job, in steps per second}"""
        self.apply()
        for job in self.jobs:
            job.send(signal.SIGCONT)
        time.sleep(settle)
        begin, joules = time.monotonic(), meter.value("intel-rapl:1")
        time.sleep(seconds)
        end, joules = time.monotonic(), meter.value("intel-rapl:1") - joules
        rates = [self.rate(job.steps(), begin, end) for job in self.jobs]
        for job in self.jobs:
            job.send(signal.SIGSTOP)
        return {"uw": joules / (end - begin), "rates": rates}

    @staticmethod
    def rate(steps, begin, end):
        """The step under way at an end of the window counts by its part, at the pace of the window."""
        inside = [t for t in steps if begin <= t <= end]
        if len(inside) < 2:
            return len(inside) / (end - begin)
        pace = (inside[-1] - inside[0]) / (len(inside) - 1)
        edges = min(1.0, (inside[0] - begin) / pace) + min(1.0, (end - inside[-1]) / pace)
        return (len(inside) - 1 + edges) / (end - begin)


def work(rates, alone):
    """Jobs' speeds in cores' worth of one thread."""
    return sum(rate / one for rate, one in zip(rates, alone))


def divisions(parts, jobs, threads=(1, 2)):
    """All (parts of each job, threads of each job)."""
    for cut in itertools.product(range(1, parts), repeat=jobs):
        if sum(cut) == parts:
            for count in itertools.product(threads, repeat=jobs):
                yield cut, count


def cores_below(points, watts, cpus):
    """Busy cores at which the line through @points draws @watts."""
    pairs = list(zip(energy_attribution.POINT_LOADS, points))
    for (x, low), (y, high) in itertools.pairwise(pairs):
        if watts <= high or y == pairs[-1][0]:
            return max(LEAST_CORES, (x + (y - x) * (watts - low) / max(high - low, 1e-9)) / 1000 * cpus)


class Bed:
    """One plant, the stock trainings with one and with two threads, tided and its own three."""

    def __init__(self, bench, stack, seed, kind):
        self.meter = rig.Meter(harness.BUILD, bench.folder / "meter", seed, "--psys", kind=kind)
        stack.callback(self.meter.end)
        self.points = energy_attribution.points(self.meter)
        self.cap_w = self.points[0] + CAP_SHARE * (self.points[-1] - self.points[0])
        self.cores = cores_below(self.points, self.cap_w, os.cpu_count())
        self.groups = Groups()
        stack.callback(self.groups.end)
        self.group = Group(self.groups, JOBS)
        self.trimmed = {}
        self.bench = bench
        self.tided = daemon.Daemon(harness.BUILD / "tided", None, bench.run_dir, bench.folder / "claims", "--engine",
                                   "none", "--config", self.configure()).start()
        stack.callback(self.tided.end)
        self.stock = {}
        for threads in (1, 2):
            for i, model in enumerate(JOBS):
                job = bench.stock(model, f"{model}-{threads}", "--threads", str(threads),
                                  prefix=self.groups.enter(self.group.each[i]))
                stack.callback(job.end)  # before its group
                self.stock[model, threads] = job
        self.rest(self.stock.values())
        self.ours = [bench.tide(model, f"{model}-ours") for model in JOBS]
        self.rest(self.ours)
        self.alone = [Setting(model, [self.stock[model, 1]], lambda: self.group.set(None)).go(
            self.meter, 1, 6)["rates"][0] for model in JOBS]

    @staticmethod
    def rest(jobs):
        for job in jobs:
            job.wait_steps(8)
            job.send(signal.SIGSTOP)

    def configure(self):
        """Without the packages, which have a power limit."""
        root = self.bench.folder / "root"
        (root / "sys/class/powercap").mkdir(parents=True)
        (root / "sys/devices/system").mkdir(parents=True)
        (root / "sys/class/powercap/intel-rapl:1").symlink_to(self.meter.zone("intel-rapl:1").resolve())
        (root / "sys/devices/system/cpu").symlink_to(self.meter.tree / "sys/devices/system/cpu")
        config = self.bench.folder / "tide.conf"
        config.write_text("[daemon]\npower=powercap\npolicy=power-cap\n"
                          f"power-root={root}\npower-cap={self.cap_w:.2f} W\n"
                          f"power-model=points:{','.join(f'{w:.2f}' for w in self.points)}\n")
        return config

    def ours_setting(self):
        return Setting("threadtide", self.ours, lambda: None)

    def by_hand(self, name, shares, threads, together=False):
        """@shares of the cores that fit, of each job, or one quota on all @together."""
        def apply():
            cores = self.trimmed.get(name, self.cores)
            self.group.set(cores, None if together else [cores * share for share in shares])
        return Setting(name, [self.stock[model, n] for model, n in zip(JOBS, threads)], apply)

    def trim(self, setting):
        """Moves the quota until the mean power is just below the cap, as far as this machine goes: by the curve's
        slope, and between the nearest quotas below and above the cap once both are known."""
        slope = max((self.points[-1] - self.points[0]) / os.cpu_count(), 0.1)  # W per core
        cores, seen = self.cores, []
        for _ in range(TRIMS):
            self.trimmed[setting.name] = cores
            drawn = setting.go(self.meter, 2, TRIM_S)["uw"] / 1e6
            seen.append((cores, drawn))
            if TRIMMED * self.cap_w <= drawn <= self.cap_w:
                break
            low = max((s for s in seen if s[1] <= self.cap_w), default=None)
            high = min((s for s in seen if s[1] > self.cap_w), default=None)
            if low and high and high[0] > low[0]:
                part = (self.cap_w * 0.995 - low[1]) / (high[1] - low[1])
                cores = low[0] + (high[0] - low[0]) * min(max(part, 0.1), 0.9)
            else:
                cores = min(max(cores + 0.7 * (self.cap_w * 0.995 - drawn) / slope, LEAST_CORES), os.cpu_count())
        below = [s for s in seen if s[1] <= self.cap_w]
        self.trimmed[setting.name] = max(below)[0] if below else seen[-1][0]


def tried(bed):
    """All divisions for a moment each, the most work first."""
    found = []
    for cut, threads in divisions(PARTS, len(JOBS)):
        name = f"{'-'.join(map(str, cut))} with {'-'.join(map(str, threads))} threads"
        setting = bed.by_hand(name, [part / PARTS for part in cut], threads)
        run = setting.go(bed.meter, TRIED_SETTLE_S, TRIED_S)
        found.append((work(run["rates"], bed.alone), setting, run))
    return sorted(found, key=lambda row: -row[0])


def one_plant(seed, kind, rounds):
    with harness.Bench() as bench, contextlib.ExitStack() as stack:
        bed = Bed(bench, stack, seed, kind)
        print(f"{kind}: {bed.points} W, cap {bed.cap_w:.1f} W, {bed.cores:.2f} cores; alone {bed.alone}", flush=True)
        third = [1 / len(JOBS)] * len(JOBS)
        default = [os.cpu_count()] * len(JOBS)
        sides = [bed.by_hand("static", third, default), bed.by_hand("clamp", third, default, together=True)]
        all_tried = tried(bed)
        sides += [setting for _, setting, _ in all_tried[:BEST]]
        for setting in sides:
            bed.trim(setting)
        ours = bed.ours_setting()
        runs = {setting.name: [] for setting in [ours, *sides]}
        for n in range(rounds):
            for setting in [ours, *sides] if n % 2 == 0 else [*reversed(sides), ours]:
                times = (OURS_SETTLE_S, OURS_MEASURE_S) if setting is ours else (SETTLE_S, MEASURE_S)
                run = setting.go(bed.meter, *times)
                runs[setting.name].append({"work": work(run["rates"], bed.alone), "w": run["uw"] / 1e6,
                                           "rates": run["rates"]})
                print(kind, n, setting.name, round(runs[setting.name][-1]["work"], 3),
                      f"{run['uw'] / 1e6:.2f} W", flush=True)
    best = max((s.name for s in sides[2:]), key=lambda name: statistics.median(r["work"] for r in runs[name]))
    return {"plant": kind, "seed": seed, "cap_w": bed.cap_w, "points_w": bed.points, "cores": bed.cores,
            "alone": bed.alone, "best": best, "runs": runs, "trimmed": bed.trimmed,
            "tried": [(setting.name, value, run["uw"] / 1e6) for value, setting, run in all_tried]}


def ratios(result, over, under):
    return [a["work"] / b["work"] for a, b in zip(result["runs"][over], result["runs"][under])]


def gains(result):
    """Whether the best division reaches the goal on this plant."""
    return statistics.median(ratios(result, result["best"], "static")) >= GOAL_GAIN


def rows(results):
    """A row for each comparison, over all plants; rounds are paired."""
    found = []

    def row(what, pick, goal):
        values = [value for result in results for value in pick(result)]
        stats = harness.ratio_stats(values)
        verdict = "" if goal is None else \
            "met" if stats["low"] >= goal else "not shown" if stats["high"] >= goal else "missed"
        found.append({"what": what, "median": round(stats["ratio"], 3), "95 % low": round(stats["low"], 3),
                      "95 % high": round(stats["high"], 3), "repeats": stats["repeats"], "goal": goal or "–",
                      "verdict": verdict})
    row("Threadtide / best division by hand", lambda r: ratios(r, "threadtide", r["best"]), GOAL_BEST)
    row("best division by hand / equal, static", lambda r: ratios(r, r["best"], "static"), None)
    row("Threadtide / equal, static", lambda r: ratios(r, "threadtide", "static"), None)
    if any(map(gains, results)):
        row("the same, plants on which the best division gains a fifth", lambda r: ratios(r, "threadtide", "static") if gains(r) else [],
            GOAL_GAIN)
    row("best division by hand / clamp", lambda r: ratios(r, r["best"], "clamp"), None)
    row("Threadtide / clamp", lambda r: ratios(r, "threadtide", "clamp"), None)
    for what in ("threadtide", "static", "clamp"):
        shares = [run["w"] / r["cap_w"] for r in results for run in r["runs"][what]]
        found.append({"what": f"{what}: mean power over the cap", "median": round(statistics.median(shares), 3),
                      "95 % low": round(min(shares), 3), "95 % high": round(max(shares), 3), "repeats": len(shares),
                      "goal": "≤ 1", "verdict": "least and most of all slices"})
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plants", default=",".join(itertools.islice(itertools.cycle(sorted(plant_draw.RANGES)), PLANTS)))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--commit", help="whose hash the plants follow from (usual: that of the plants already measured, else HEAD)")
    options = parser.parse_args()
    results = harness.saved_runs("energy-work")
    asked = options.commit or (results[0]["commit"] if results else "HEAD")
    commit = subprocess.run(["git", "-C", harness.ROOT, "rev-parse", asked], check=True, text=True, capture_output=True).stdout.strip()
    results = [result for result in results if result["commit"] == commit]
    kinds = options.plants.split(",")
    for kind, seed in zip(kinds, plant_draw.seeds(commit, len(kinds))):
        if seed in [result["seed"] for result in results]:
            continue
        results.append({"commit": commit, **one_plant(seed, kind, options.rounds)})
        harness.save("energy-work", rows(results), results)
        for row in rows(results):
            print(*row.values(), flush=True)


if __name__ == "__main__":
    main()
