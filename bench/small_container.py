#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pools sized for the host in a container that may use one or two of its cores: what the agent alone is worth.

    small_container.py [--rounds 10] [--slice 4] [--cores 1,2] [--cases tensorflow-mlp,…]     as root

Nobody runs a daemon: the agent reads the container's limit and lets as many threads run. Three sides, each in a
control group with the quota (what `docker run --cpus` writes), in turn, two of them stopped while one runs:

    stock     the program as it is, a thread for each processor
    agent     the same with LD_PRELOAD=libtide-agent.so
    right     the same started with as many threads as it has cores

This machine has fewer than 64 processors: many_cpus.c makes TensorFlow believe it has them. On a real one of that size
stock's threads use the quota up faster, and wait longer for the next. PyTorch counts cores by itself: its pool is this
machine's, so that there is nothing to match where the quota is as large.
Throughput in steps/s, latency from one step's end to the next, over all slices. Goals: p99 of stock / agent at least
3; throughput agent / right at least 0.97.
"""

import argparse
import os
import pathlib
import subprocess
import sys

import cluster
import harness

HERE = pathlib.Path(__file__).resolve().parent
AGENT = harness.BUILD / "libtide-agent.so"
MANY = 64
P99_GOAL, RATE_GOAL = 3, 0.97
WARM_STEPS = 5
CASES = {
    "tensorflow-inference": "savedmodel", "tensorflow-mlp": "mlp", "tensorflow-cnn": "cnn",
    "pytorch-mlp": "mlp", "pytorch-cnn": "cnn", "pytorch-transformer": "transformer",
}
VARIABLES = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


def command(bench, case):
    if case.startswith("tensorflow"):
        return bench.program(CASES[case])
    return [harness.TORCH, HERE / "runtime_work.py", "--work", CASES[case], "--seconds", harness.FOREVER]


def compiled(folder):
    library = pathlib.Path(folder) / "libmany-cpus.so"
    subprocess.run(["gcc", "-O1", "-D_GNU_SOURCE", "-shared", "-fPIC", HERE / "many_cpus.c", "-ldl", "-o", library],
                   check=True)
    return library


def environments(bench, cores, library):
    base = {**bench.env, "MANY_CPUS": str(MANY)}
    return {"stock": {**base, "LD_PRELOAD": f"{library}"},
            "agent": {**base, "LD_PRELOAD": f"{library}:{AGENT}"},
            "right": {**base, "LD_PRELOAD": f"{library}", **{name: str(cores) for name in VARIABLES}}}


def measured(case, cores, rounds, slice_s):
    groups = cluster.Groups()
    try:
        with harness.Bench() as bench:
            library = compiled(bench.folder)
            sides = []
            for name, env in environments(bench, cores, library).items():
                job = bench._job([*groups.limited(cores), *map(str, command(bench, case))], env, name)
                sides.append(harness.Side(name, [job]))
                sides[-1].warm_up(WARM_STEPS)
            for i in range(rounds):
                for k in range(len(sides)):
                    sides[(i + k) % len(sides)].run(slice_s)
            for side in sides:
                side.finish_steps()
            return {side.name: (side.rates(), latencies(side)) for side in sides}
    finally:
        groups.end()


def latencies(side):
    """Seconds from one step's end to the next, of those that lie within one slice."""
    steps = side.jobs[0].steps()
    return [b - a for begin, end in side.slices for a, b in zip(steps, steps[1:]) if begin <= a and b <= end]


def row(case, cores, found):
    rate = {name: harness.quantile(rates, 0.5) for name, (rates, _) in found.items()}
    late = {name: 1000 * harness.quantile(values, 0.99) for name, (_, values) in found.items() if values}
    ratio = {other: harness.ratio_stats([a / b for a, b in zip(found["agent"][0], found[other][0]) if b > 0])
             for other in ("stock", "right")}
    gain = late["stock"] / late["agent"] if "stock" in late and "agent" in late else None
    right = ratio["right"]
    pool = MANY if case.startswith("tensorflow") else os.cpu_count()
    return {"model": f"{case}, pool {pool}, quota {cores}",
            **{f"{name} steps/s": round(rate[name], 2) for name in found},
            **{f"{name} p99 ms": round(late[name], 1) for name in late},
            "p99 stock / agent": round(gain, 2) if gain else "no whole step of stock in a slice",
            "agent / stock": round(ratio["stock"]["ratio"], 2),
            "agent / right": f"{right['ratio']:.2f} ({right['low']:.2f} … {right['high']:.2f})",
            "steps": len(found["stock"][1]),
            "p99 three times better": "met" if gain and gain >= P99_GOAL else "missed",
            "0.97 of right": "met" if right["low"] >= RATE_GOAL else
            "not shown" if right["high"] >= RATE_GOAL else "missed"}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=10)
    p.add_argument("--slice", type=float, default=4)
    p.add_argument("--cores", default="1,2")
    p.add_argument("--cases", default=",".join(CASES))
    args = p.parse_args()
    unknown = set(args.cases.split(",")) - set(CASES)
    if unknown:
        p.error(f"no case {', '.join(sorted(unknown))}: {', '.join(CASES)}")
    if os.geteuid():
        sys.exit("small_container.py makes control groups: run it as root")
    for case in args.cases.split(","):
        for cores in map(int, args.cores.split(",")):
            found = measured(case, cores, args.rounds, args.slice)
            line = row(case, cores, found)
            print("  ".join(f"{key}: {value}" for key, value in line.items()), flush=True)
            harness.save("small-container", [line])


if __name__ == "__main__":
    main()
