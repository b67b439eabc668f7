#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the agent adds to an empty parallel region of OpenMP, which no program can do more often.

    openmp.py [--pairs 20] [--compilers gcc,clang] [--threads 1,2]

Stock and agent run in turn, A B B A …; a row has the median of each, and the mean difference of the
pairs with a 95 % interval. With one thread the region is a function call, and the hook's own cost shows
best; with two, the runtime's barrier hides it. Goal: at most 10 ns.
"""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile

import harness

HERE = pathlib.Path(__file__).resolve().parent
AGENT = str(harness.BUILD / "libtide-agent.so")
GOAL_NS = 10


def once(program, threads, agent):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TIDE_", "OMP_", "GOMP_", "KMP_"))}
    env["OMP_NUM_THREADS"] = str(threads)
    if agent:
        env |= {"LD_PRELOAD": AGENT, "TIDE_OPENMP": "on"}
    return float(subprocess.run([program, "20", "20000" if threads == 1 else "5000"], env=env, check=True,
                                capture_output=True, text=True).stdout)


def row(compiler, program, threads, pairs):
    sides = {False: [], True: []}
    for i in range(pairs):
        for agent in (False, True) if i % 2 == 0 else (True, False):
            sides[agent].append(once(program, threads, agent))
    adds = [ours - stock for stock, ours in zip(sides[False], sides[True])]
    mean, half = statistics.mean(adds), harness.half_width(adds)
    return ({"compiler": compiler, "threads": threads, "stock ns": round(statistics.median(sides[False]), 1),
             "agent ns": round(statistics.median(sides[True]), 1), "adds ns": round(mean, 1),
             "95 %": f"{mean - half:.1f} … {mean + half:.1f}", "pairs": pairs, "goal": GOAL_NS,
             "verdict": "met" if mean + half <= GOAL_NS else "not shown" if mean - half <= GOAL_NS else "missed"}, sides)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--pairs", type=int, default=20)
    p.add_argument("--compilers", default="gcc,clang")
    p.add_argument("--threads", default="1,2")
    args = p.parse_args()
    rows, raw = [], []
    with tempfile.TemporaryDirectory() as folder:
        for compiler in args.compilers.split(","):
            if not shutil.which(compiler):
                continue
            program = f"{folder}/{compiler}"
            subprocess.run([compiler, "-O2", "-fopenmp", str(HERE / "openmp_region.c"), "-o", program], check=True)
            for threads in map(int, args.threads.split(",")):
                done, sides = row(compiler, program, threads, args.pairs)
                rows.append(done)
                raw.append({"compiler": compiler, "threads": threads, "stock": sides[False], "agent": sides[True]})
                print("  ".join(f"{k} {v}" for k, v in done.items()), flush=True)
    harness.save("openmp", rows, raw)


if __name__ == "__main__":
    main()
