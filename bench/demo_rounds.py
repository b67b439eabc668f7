#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The mix of `make demo` several times, without and with Threadtide, in turn: A B B A …

    demo_rounds.py [--rounds 5]      some four minutes each

A row is a measure of the whole mix, or the turnaround of one program: medians of both sides, in seconds, and the
gain, of which the median and the range of the rounds are told. The rounds themselves are kept, too, and the last
one's picture is that of README. Goals hold in every round, of five or more, and fewer show nothing.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile

import harness

sys.path.insert(0, str(harness.ROOT / "demo"))  # before this folder, which has a report.py, too
import report  # noqa: E402  (the path comes first)


ROUNDS = 5
GOALS = {"makespan": 1.05, "mean turnaround": 1.3}


def verdict(gains, goal):
    """"1.05 in 5 of 5: met"; met in all rounds, of ROUNDS at least."""
    good = sum(gain >= goal for gain in gains)
    return f"{goal} in {good} of {len(gains)}: " + ("missed" if good < len(gains) else "met" if good >= ROUNDS else "not shown")


def row(what, unit, stock, tide, gains):
    return {"what": what, "unit": unit, "stock": f"{harness.quantile(stock, 0.5):.1f}",
            "threadtide": f"{harness.quantile(tide, 0.5):.1f}", "gain": f"{harness.quantile(gains, 0.5):.2f}",
            "range": f"{min(gains):.2f} … {max(gains):.2f}", "rounds": len(gains),
            **({"goal": verdict(gains, GOALS[what])} if what in GOALS else {})}


def turnarounds(rounds, side, name):
    jobs = [next(job for job in one[side] if job["name"] == name) for one in rounds]
    return [job["finished_s"] - job["arrival_s"] for job in jobs]


def table(rounds):
    sides = [[report.measures(one[side]) for one in rounds] for side in ("stock", "threadtide")]
    rows = []
    for name, unit, _ in report.MEASURES:
        if name in sides[0][0] and unit:
            stock, tide = ([one[name] for one in side] for side in sides)
            rows.append(row(name, unit, stock, tide, report.gains(rounds)[name]))
    for job in rounds[0]["stock"]:
        stock, tide = (turnarounds(rounds, side, job["name"]) for side in ("stock", "threadtide"))
        rows.append(row(f"turnaround of {job['name']}", "s", stock, tide, [a / b for a, b in zip(stock, tide)]))
    return rows


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=ROUNDS)
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([harness.PYTHON, harness.ROOT / "demo" / "run.py", "--mix", "servers", "--rounds",
                        str(args.rounds), "--out", folder], check=True)
        with open(f"{folder}/result.json") as file:
            rounds = json.load(file)["rounds"]
        shutil.copy(f"{folder}/demo.svg", harness.ROOT / "docs/img/demo.svg")
    for one in rounds:
        for job in one["stock"] + one["threadtide"]:
            del job["threads"]  # a picture of the run, no figure
    harness.save("demo", table(rounds), rounds)


if __name__ == "__main__":
    main()
