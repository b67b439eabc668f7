#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast the simulator is: runs bench/sim_speed.c at three loads and keeps what it says.

Of six seeds the smallest and the largest time are a 97 % interval of the median (sign test).
"""

import json
import statistics
import subprocess

import harness

SEEDS = 6
GOAL_S = 20  # 100,000 jobs, 256 cores


def measure(policy, load):
    done = subprocess.run([str(harness.BUILD / "bench" / "sim_speed"), "--json", policy, "100000",
                           "256", str(load), str(SEEDS)], check=True, stdout=subprocess.PIPE,
                          text=True, timeout=1200)
    runs = [json.loads(line) for line in done.stdout.splitlines()]
    seconds = sorted(run["seconds"] for run in runs)
    return {"policy": policy, "jobs": 100000, "cores": 256, "load_percent": load,
            "seconds": statistics.median(seconds), "low_s": seconds[0], "high_s": seconds[-1],
            "cpu_s": statistics.median(run["cpu_seconds"] for run in runs), "repeats": SEEDS,
            "alive": max(run["alive"] for run in runs),
            "peak_mib": max(run["peak_mib"] for run in runs),
            "goal_s": GOAL_S, "verdict": "met" if seconds[-1] <= GOAL_S else "missed"}


def main():
    rows = []
    for policy, load in (("response", 50), ("response", 80), ("response", 95), ("equal", 80)):
        rows.append(measure(policy, load))
        print(*rows[-1].values(), flush=True)
    harness.save("sim-speed", rows)


if __name__ == "__main__":
    main()
