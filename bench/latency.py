#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How soon threads are parked or awake after a command, in milliseconds.

The benchmark is the agent's daemon itself (tests/system/peer.py), so that every acknowledgement with
its time stamps can be read. lag: per surplus worker from the later of "command sent" and "end of the
closure that it held" to parked, the worst worker counts; after a grow from "command sent" to the last
worker awake. absolute: from "command sent" to the last worker in place.

runtimes.py --part latency measures other runtimes so: absolute alone, which has in it what was waited for, a safe point
and the call that ran.
"""

import argparse
import json
import pathlib
import random
import statistics
import sys
import time

import harness

sys.path.insert(0, str(harness.ROOT / "tests" / "system"))
import peer  # noqa: E402  (the path comes first)

AGENT = str(harness.BUILD / "libtide-agent.so")


def start(bench, command, name, **env):
    job = harness.Job(command, {**bench.env, "LD_PRELOAD": AGENT, **env}, bench.folder, name)
    bench.jobs.append(job)
    return job


def resized(bench, command, size, low, load, resizes, seed, ready=peer.Agent.wait_backend, env=()):
    """The acknowledgements of a program's shrinks from @size to @low and grows back: {"shrink": [...], "grow": [...]}. @load
    programs like it run beside it; @ready(agent) waits for its runtime."""
    with peer.Daemon(bench.folder) as daemon:
        others = [start(bench, command, f"load{i}", **dict(env)) for i in range(load)]
        job = start(bench, command, "job", **dict(env), TIDE_SOCKET=daemon.path, TIDE_MAX=str(size))
        for each in [*others, job]:
            each.wait_steps(10)
        agent = daemon.wait_agent(job.pid)
        ready(agent)
        pause = random.Random(seed)
        acks = {"shrink": [], "grow": []}
        for _ in range(resizes):
            for direction, threads in (("shrink", low), ("grow", size)):
                acks[direction].append(agent.set(threads))
                time.sleep(pause.uniform(0.02, 0.12))
        return acks


def ms(values):
    """p50, p99 and the largest of nanoseconds."""
    values = [v / 1e6 for v in values]
    return [round(harness.quantile(values, q), 3) for q in (0.5, 0.99, 1.0)]


def measure(model, size, low, load, resizes, seed):
    with harness.Bench() as bench:
        acks = resized(bench, bench.program(model), size, low, load, resizes, seed)
    return [row(model, size, low, load, direction, found) for direction, found in acks.items()]


def row(model, size, low, load, direction, acks):
    lag = ms([a.lag_ns for a in acks])
    absolute = ms([a.placed_ns - a.sent_ns for a in acks])
    command = f"{low} of {size}" if direction == "shrink" else f"{low} to {size}"
    result = {"model": model, "command": f"{direction} {command}", "other jobs": load, "n": len(acks),
              "lag p50": lag[0], "lag p99": lag[1], "lag max": lag[2],
              "absolute p50": absolute[0], "p99": absolute[1], "max": absolute[2],
              "longest closure": ms([a.longest_ns for a in acks])[2],
              "surplus CPU mean": round(statistics.fmean(a.surplus_cpu_ns for a in acks) / 1e6, 3)}
    print("  ".join(f"{k} {v}" for k, v in result.items()), flush=True)
    return result


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", default="mlp,cnn")
    p.add_argument("--resizes", type=int, default=200, help="of each direction and row")
    p.add_argument("--sizes", default="2:0,8:0,2:3,8:3", help="threads:other jobs, …")
    p.add_argument("--rows", metavar="FILE", help="write the rows there as JSON, and save nothing")
    args = p.parse_args()
    rows = []
    for model in args.models.split(","):
        for size, load in (map(int, pair.split(":")) for pair in args.sizes.split(",")):
            rows += measure(model, size, 1, load, args.resizes, seed=7)
            if not args.rows:
                harness.save("latency", rows)
    if args.rows:
        pathlib.Path(args.rows).write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
