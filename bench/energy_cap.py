#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How soon and how well tided keeps a power cap, judged by plants that it cannot see into (tests/plant).

    energy_cap.py [--seeds 20] [--commands 3] [--no-limit] [--kernel] [--commit REV]

The watts are a plant's; programs, threads and quotas are real. As root: tided reads the plant's counters, and writes the
packages' limit, which acts on the plant's speeds, and its control group's quota.

Each seed draws a plant and three jobs that keep all their threads busy. tided learns the plant from its counter while the
jobs warm up; then caps follow, each at 30 to 80 percent between idle power and the power before the command, for 14 s,
with 8 s without a cap between them. Plants and caps follow from the hash of the commit and the seed's number. A cap that
the plant's idle power alone would break is not drawn.

The plant's µJ at the wall are read every 20 ms, with the time when they were written. For each command:
  kept       the time from the command until the mean of every following second is at most 3 % above the cap
  overshoot  the highest mean of a second that begins 1 s after the command or later, above the cap
  windows    windows of 10 s that begin 1 s after the command or later, and lie above the cap
--no-limit: the packages have no limit, as on machines without one; threads and the quota alone keep the cap.
--kernel: the plant is behind the kernel's powercap class (tide_plant.ko, in a machine of image.py --plant).
"""

import argparse
import bisect
import contextlib
import hashlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

import harness

sys.path[:0] = [str(harness.ROOT / "tests/component"), str(harness.ROOT / "tests/plant")]
import daemon  # noqa: E402
import plant_draw  # noqa: E402
import rig  # noqa: E402

POOL = harness.BUILD / "tests/component/pool"
JOBS = 3
WARM_S, CAP_S, FREE_S, LOOK_S = 25, 14, 8, 0.02
SECOND, WINDOW = 1.0, 10.0
GOAL_S, GOAL_OVER = 1.0, 0.03
NICE = 10  # the plant and this program go before jobs: who is late tells another power
MODULE = harness.BUILD / "tide_plant.ko"
TRUTH = pathlib.Path("/sys/kernel/debug/tide_plant/wall_uj")


class Tree:
    """The plant below a directory."""

    def __init__(self, folder, seed, limit):
        self.meter = rig.Meter(harness.BUILD, folder, seed, "--psys")
        self.root = self.meter.tree
        self.params = self.meter.params
        if not limit:
            for file in self.root.glob("sys/class/powercap/*/constraint_0_power_limit_uw"):
                file.unlink()

    def look(self):
        """When the counter was written, and what it shows."""
        with open(self.meter.zone("intel-rapl:1") / "energy_uj", encoding="ascii") as file:
            uj, when = int(file.read()), os.fstat(file.fileno()).st_mtime_ns
        return when / 1e9 - time.time() + time.monotonic(), uj

    def end(self):
        self.meter.end()


class Kernel:
    """The plant behind the kernel's class."""

    def __init__(self, folder, seed, limit):
        self.root = pathlib.Path("/")
        self.params = plant_draw.draw(seed, os.cpu_count())
        if not TRUTH.parents[1].is_mount():
            subprocess.run(["mount", "-t", "debugfs", "debugfs", TRUTH.parents[1]], check=True)
        numbers = ",".join(map(str, self.params.values()))
        subprocess.run(["insmod", MODULE, f"params={numbers}", "psys=1", "seed=7"], check=True)

    def look(self):
        return time.monotonic(), int(TRUTH.read_text())

    def end(self):
        subprocess.run(["rmmod", "tide_plant"], check=True)


class Trace:
    """(s, µJ at the wall), a row each time it has changed."""

    def __init__(self, plant):
        self.plant, self.rows, self.ending = plant, [], threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.ending.wait(LOOK_S):
            with contextlib.suppress(ValueError):
                when, uj = self.plant.look()
                if not self.rows or self.rows[-1][1] != uj and self.rows[-1][0] < when:
                    self.rows.append((when, uj))

    def end(self):
        self.ending.set()
        self.thread.join()

    def mean_w(self, begin, seconds):
        """From @begin on; the counter is interpolated between its steps."""
        return (self.at(begin + seconds) - self.at(begin)) / seconds / 1e6

    def at(self, when):
        i = min(max(bisect.bisect_right(self.rows, (when, 0)), 1), len(self.rows) - 1)
        (t0, uj0), (t1, uj1) = self.rows[i - 1], self.rows[i]
        return uj0 + (uj1 - uj0) * (when - t0) / (t1 - t0)


def means(trace, begin, end, seconds, step=0.1):
    """(begin, mean W) of all windows of that length in the time."""
    found, at = [], begin
    while at + seconds <= end:
        found.append((at, trace.mean_w(at, seconds)))
        at += step
    return found


def judge(trace, cap_w, command, end):
    seconds = means(trace, command, end, SECOND)
    late = [at for at, watts in seconds if watts > cap_w * (1 + GOAL_OVER)]
    settled = [watts for at, watts in seconds if at >= command + GOAL_S]
    windows = [watts for at, watts in means(trace, command, end, WINDOW) if at >= command + GOAL_S]
    return {"cap W": round(cap_w, 2), "kept s": round(max(late) + 0.1 - command, 2) if late else 0.0,
            "over": round(max(settled) / cap_w - 1, 4), "windows": len(windows),
            "above": sum(watts > cap_w for watts in windows),
            "used": round(trace.mean_w(command + GOAL_S, end - command - GOAL_S) / cap_w, 4)}


def put(tided, watts):
    if watts is None:
        status, answer = tided.api("DELETE", "/v1/power/cap")
    else:
        status, answer = tided.api("PUT", "/v1/power/cap", {"uw": int(watts * 1e6)})
    assert status in (200, 202), answer


def as_others():
    os.nice(NICE)


def start_job(folder):
    env = {"PATH": "/usr/bin:/bin", "TIDE_DIR": str(folder / "run"), "TIDE_CLAIMS_DIR": str(folder / "claims")}
    job = subprocess.Popen([harness.TIDE, "run", "--", POOL, str(os.cpu_count())], env=env, stdout=subprocess.PIPE,
                           text=True, preexec_fn=as_others)
    os.kill(int(job.stdout.readline().split()[1]), signal.SIGUSR1)
    return job


def run_seed(folder, seed, options):
    choose = random.Random(hashlib.sha256(f"{seed} caps".encode()).digest())
    folder.mkdir()
    (folder / "claims").mkdir()
    found = []
    with contextlib.ExitStack() as stack:
        plant = (Kernel if options.kernel else Tree)(folder / "plant", seed, not options.no_limit)
        stack.callback(plant.end)
        (folder / "tide.conf").write_text(f"[daemon]\npower=powercap\npower-root={plant.root}\n")
        tided = daemon.Daemon(harness.BUILD / "tided", None, folder / "run", folder / "claims", "--engine", "none",
                              "--config", folder / "tide.conf").start()
        stack.callback(tided.end)
        trace = Trace(plant)
        stack.callback(trace.end)
        time.sleep(3)
        idle_w = trace.mean_w(trace.rows[0][0], 2)
        for _ in range(JOBS):
            job = start_job(folder)
            stack.callback(job.wait)
            stack.callback(job.kill)
            time.sleep(WARM_S / JOBS)
        for _ in range(options.commands):
            before_w = trace.mean_w(time.monotonic() - 3, 2.5)
            cap_w = idle_w + (before_w - idle_w) * choose.uniform(0.3, 0.8)
            command = time.monotonic()
            put(tided, cap_w)
            time.sleep(CAP_S)
            end = time.monotonic() - 0.3
            put(tided, None)
            found.append({"seed": seed, **judge(trace, cap_w, command, end)})
            print(found[-1], flush=True)
            time.sleep(FREE_S)
    return found


def rows_of(found, what):
    n = len(found)
    kept = harness.quantile([f["kept s"] for f in found], 0.99)
    over = harness.quantile([f["over"] for f in found], 0.99)
    above, windows = sum(f["above"] for f in found), sum(f["windows"] for f in found)
    used = sorted(f["used"] for f in found)[n // 2]
    return [{"what": f"{what}: until kept, p99", "value": round(kept, 2), "most": round(max(f["kept s"] for f in found), 2),
             "unit": "s", "goal": "≤ 1", "verdict": "met" if kept <= GOAL_S else "missed", "commands": n},
            {"what": f"{what}: overshoot of a second's mean, p99", "value": round(100 * over, 1), "most": round(100 * max(f["over"] for f in found), 1),
             "unit": "%", "goal": "≤ 3", "verdict": "met" if over <= GOAL_OVER else "missed", "commands": n},
            {"what": f"{what}: windows of 10 s above the cap", "value": above, "unit": f"of {windows}", "goal": "0",
             "verdict": "met" if above == 0 else "missed", "commands": n},
            {"what": f"{what}: mean power, part of the cap", "value": round(used, 3), "unit": "median", "goal": "",
             "verdict": "", "commands": n}]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--commands", type=int, default=3)
    parser.add_argument("--no-limit", action="store_true")
    parser.add_argument("--kernel", action="store_true")
    parser.add_argument("--commit", default="HEAD")
    parser.add_argument("--dry", action="store_true", help="prints, and keeps nothing")
    options = parser.parse_args()
    where = "kernel's powercap" if options.kernel else "no power limit" if options.no_limit else "power limit"
    commit = options.commit if options.kernel else subprocess.run(
        ["git", "-C", harness.ROOT, "rev-parse", options.commit], check=True, capture_output=True, text=True).stdout.strip()
    found = []
    os.nice(-NICE)
    with harness.Bench() as bench:
        for i, seed in enumerate(plant_draw.seeds(commit, options.seeds)):
            found += run_seed(bench.folder / f"seed{i}", seed, options)
    rows = rows_of(found, where)
    for row in rows:
        print(*row.values(), sep="; ")
    if not options.dry:
        side = where.replace("'", "").replace(" ", "-")
        harness.save(f"energy-cap-{side}", rows, found)


if __name__ == "__main__":
    main()
