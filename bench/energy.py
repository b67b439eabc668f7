#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What energy costs tided and a parent of units.

    energy.py division    a cap divided over 10,000 machines: runs bench/power_divide.c
    energy.py machine     tided that reads sensors once a second, against tided without, 50 jobs each

machine: both daemons run at the same time, each with jobs of its own that wake up fifty times a second, and are looked
at in windows of a minute: every window gives one difference of CPU time (of all threads, /proc/PID/task/TID/schedstat)
and one of memory (Pss). The one reads the powercap tree and the frequencies of a plant (tests/plant), whose own CPU
time is not counted.
"""

import argparse
import contextlib
import json
import pathlib
import subprocess
import sys
import time

import harness

sys.path[:0] = [str(harness.ROOT / "tests/component"), str(harness.ROOT / "tests/plant")]
import daemon  # noqa: E402
import rig  # noqa: E402

DIVISION_GOAL_US = 10_000
CPU_GOAL = 0.3  # percent of a core
PSS_GOAL_KIB = 2048
JOBS = 50
SETTLE_S = 15


def division():
    done = subprocess.run([str(harness.BUILD / "bench" / "power_divide"), "--json"], check=True,
                          stdout=subprocess.PIPE, text=True, timeout=600)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    for row in rows:
        row["verdict"] = "met" if row["p99_us"] <= DIVISION_GOAL_US else "missed"
        print(*row.values())
    harness.save("energy-division", rows)


class Side:
    """A tided and its jobs, which end with @stack."""

    def __init__(self, folder, stack, *lines):
        folder.mkdir()
        (folder / "claims").mkdir()
        (folder / "tide.conf").write_text("\n".join(["[daemon]", *lines, ""]))
        self.tided = daemon.Daemon(harness.BUILD / "tided", None, folder / "run", folder / "claims",
                                   "--engine", "none", "--config", folder / "tide.conf").start()
        stack.callback(self.tided.end)
        env = {"PATH": "/usr/bin:/bin", "TIDE_DIR": str(folder / "run"), "TIDE_CLAIMS_DIR": str(folder / "claims")}
        for _ in range(JOBS):
            job = subprocess.Popen([harness.TIDE, "run", "--", harness.BUILD / "tests/component/pool", "1"],
                                   env=env, stdout=subprocess.PIPE)
            stack.callback(job.wait)
            stack.callback(job.kill)
            job.stdout.readline()

    def cpu_ns(self):
        tasks = pathlib.Path(f"/proc/{self.tided.process.pid}/task")
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir())

    def pss_kib(self):
        text = pathlib.Path(f"/proc/{self.tided.process.pid}/smaps_rollup").read_text()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))


def window(sides, seconds):
    """Percent of a core that each used, and its memory at the end."""
    begin, before = time.monotonic(), [side.cpu_ns() for side in sides]
    time.sleep(seconds)
    used = [side.cpu_ns() - ns for side, ns in zip(sides, before)]
    elapsed = time.monotonic() - begin
    return [ns / elapsed / 1e7 for ns in used], [side.pss_kib() for side in sides]


def row(what, unit, goal, pairs):
    """@pairs: (without, with)."""
    stats = harness.ratio_stats([b - a for a, b in pairs])
    verdict = "met" if stats["high"] <= goal else "not shown" if stats["low"] <= goal else "missed"
    return {"what": what, "unit": unit, "without": round(sorted(a for a, _ in pairs)[len(pairs) // 2], 3),
            "more": round(stats["ratio"], 3), "95 % low": round(stats["low"], 3),
            "95 % high": round(stats["high"], 3), "repeats": stats["repeats"], "goal": goal, "verdict": verdict}


def machine(windows, seconds):
    with harness.Bench() as bench, contextlib.ExitStack() as stack:
        meter = rig.Meter(harness.BUILD, bench.folder / "meter", "machine", "--psys")
        stack.callback(meter.end)
        sides = [Side(bench.folder / "without", stack, "power=none"),
                 Side(bench.folder / "with", stack, "power=powercap", f"power-root={meter.tree}")]
        status, power = sides[1].tided.api("GET", "/v1/power")
        assert status == 200, power
        time.sleep(SETTLE_S)
        found = []
        for _ in range(windows):
            found.append(window(sides, seconds))
            print(found[-1], flush=True)
        _, power = sides[1].tided.api("GET", "/v1/power")
        assert power["power"]["uw"], "tided has read no sensor"
    rows = [row("tided with sensors at 1 s, 50 jobs: CPU time", "% of a core", CPU_GOAL, [tuple(f[0]) for f in found]),
            row("tided with sensors at 1 s, 50 jobs: memory (Pss)", "KiB", PSS_GOAL_KIB,
                [tuple(f[1]) for f in found])]
    for each in rows:
        print(*each.values())
    harness.save("energy-machine", rows, [{"cpu_percent": [round(c, 4) for c in cpu], "pss_kib": pss}
                                          for cpu, pss in found])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=("division", "machine"))
    parser.add_argument("--windows", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    if options.case == "division":
        division()
    else:
        machine(options.windows, options.seconds)


if __name__ == "__main__":
    main()
