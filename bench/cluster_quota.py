#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ITB's scenario: another workload ends early in a training and frees three quarters of the processors.

The cluster is four quarter cores. At first the training has one and the other workload, a real
program, three; it ends after the first epoch. Then, in turn and several times:

  static      goes on with its one worker of a quarter core
  workers     gets three more workers, and a second parameter server
  in place    its worker is resized to a full core
  full size   has four workers from the start, and no other workload

Same data, seed, epochs and slots; the weights at the end are compared bit for bit.
"""

import argparse
import statistics
import subprocess
import sys
import time

import cluster
import harness

QUARTER = 0.25
SPIN = "while True: pass"


def more_workers(c, groups):
    for _ in range(3):
        # One by one, each with a share of its own; they start side by side with the training.
        c.start("worker", 1, wrapper=groups.limited(QUARTER))
    c.start("ps", 1)


def wider(_c, groups):
    groups.set(groups.made[0], 4 * QUARTER)


def nothing(_c, _groups):
    pass


SIDES = {"static": (1, nothing), "workers": (1, more_workers), "in place": (1, wider),
         "full size": (4, None)}


def run(folder, side, options):
    workers, change = SIDES[side]
    groups = cluster.Groups()
    other = None
    try:
        with cluster.local_cluster(ps=1) as c:
            for _ in range(workers):
                c.start("worker", 1, wrapper=groups.limited(QUARTER))
            if change:
                other = subprocess.Popen([*groups.limited(3 * QUARTER), sys.executable, "-c", SPIN])
            training = cluster.Training(c, folder, side.replace(" ", "-"), *options)
            try:
                training.wait(lambda events: events)
                begin, used = time.monotonic(), groups.used_s()
                if change:
                    training.wait_epoch(1)
                    other.kill()
                    other.wait()
                    change(c, groups)
                result = training.finish()
            finally:
                training.end()
            result["use"] = (groups.used_s() - used) / (4 * QUARTER * (time.monotonic() - begin))
            return result
    finally:
        if other:
            other.kill()
            other.wait()
        groups.end()


def summary(rounds):
    rows = []
    for side in SIDES:
        results = [r[side] for r in rounds]
        rows.append({
            "side": side, "total s": f"{statistics.median(r['total_s'] for r in results):.1f}",
            "min … max": f"{min(r['total_s'] for r in results):.1f} … {max(r['total_s'] for r in results):.1f}",
            "/ static": " ".join(f"{r[side]['total_s'] / r['static']['total_s']:.2f}" for r in rounds),
            "processors used": f"{statistics.median(r['use'] for r in results):.2f}",
            "use / static": " ".join(f"{r[side]['use'] / r['static']['use']:.2f}" for r in rounds),
            "final loss": f"{results[0]['losses'][-1]:.6f}",
            "weights": "the same" if all(r[side]["digest"] == r["static"]["digest"] for r in rounds)
                       else "differ",
            "rounds": len(rounds),
            "epochs s": " ".join(f"{t:.1f}" for t in results[-1]["epoch_s"]),
            "workers": " ".join(map(str, results[-1]["workers"]))})
    ratios = [r["workers"]["total_s"] / r["static"]["total_s"] for r in rounds]
    uses = [r["workers"]["use"] / r["static"]["use"] for r in rounds]
    rows[1]["goal"] = (f"time <= 0.5: {'met' if max(ratios) <= 0.5 else 'missed'}; "
                       f"use >= 1.25: {'met' if min(uses) >= 1.25 else 'missed'}")
    return rows


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--examples", type=int, default=640)
    args = p.parse_args()
    options, rounds = ["--epochs", args.epochs, "--examples", args.examples], []
    with cluster.scratch() as folder:
        for number in range(args.rounds):
            order = list(SIDES) if number % 2 == 0 else list(reversed(SIDES))
            rounds.append({side: run(folder, side, options) for side in order})
            print({side: round(r["total_s"], 1) for side, r in rounds[-1].items()}, flush=True)
    rows = summary(rounds)
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    harness.save("cluster-quota", rows)


if __name__ == "__main__":
    main()
