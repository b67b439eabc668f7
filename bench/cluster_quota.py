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
import threading
import time

import cluster
import harness

QUARTER = 0.25
SPIN = "while True: pass"


def more_workers(c, groups):
    """All at once, each worker with a share of its own."""
    starts = [threading.Thread(target=c.start, args=("ps",))]
    starts += [threading.Thread(target=c.start, args=("worker",),
                                kwargs={"wrapper": groups.limited(QUARTER)}) for _ in range(3)]
    for start in starts:
        start.start()
    for start in starts:
        start.join()


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


def pairs(runs, side):
    """(run of @side, static run of the same round), by round."""
    of = {(r["round"], r["side"]): r for r in runs}
    return [(of[n, side], of[n, "static"]) for n in sorted({r["round"] for r in runs})
            if (n, side) in of and (n, "static") in of]


def row(runs, side):
    both = pairs(runs, side)
    totals = [r["total_s"] for r, _ in both]
    return {
        "side": side, "rounds": len(both), "total s": f"{statistics.median(totals):.1f}",
        "min … max": f"{min(totals):.1f} … {max(totals):.1f}",
        "/ static": " ".join(f"{r['total_s'] / s['total_s']:.2f}" for r, s in both),
        "processors used": f"{statistics.median(r['use'] for r, _ in both):.2f}",
        "use / static": " ".join(f"{r['use'] / s['use']:.2f}" for r, s in both),
        "final loss": f"{both[-1][0]['losses'][-1]:.6f}",
        "weights": "the same" if all(r["digest"] == s["digest"] for r, s in both) else "differ",
        "epochs s": " ".join(f"{t:.1f}" for t in both[-1][0]["epoch_s"]),
        "workers": " ".join(map(str, both[-1][0]["workers"]))}


def summary(runs):
    rows = [row(runs, side) for side in SIDES if pairs(runs, side)]
    for r in rows:
        if r["side"] == "workers":
            time_ok = max(map(float, r["/ static"].split())) <= 0.5
            use_ok = min(map(float, r["use / static"].split())) >= 1.25
            r["goal"] = (f"time <= 0.5: {'met' if time_ok else 'missed'}; "
                         f"use >= 1.25: {'met' if use_ok else 'missed'}")
    return rows


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--round", type=int, help="this one alone, joined with those measured before")
    p.add_argument("--sides", help="with --round: these alone, separated by commas")
    p.add_argument("--epochs", type=int, default=12)
    args = p.parse_args()
    options = ["--epochs", args.epochs, "--examples", 3072, "--batch", 1024]
    kept = harness.saved_runs("cluster-quota") if args.round else []
    sides = args.sides.split(",") if args.sides else list(SIDES)
    with cluster.scratch() as folder:
        for number in [args.round] if args.round else range(1, args.rounds + 1):
            for side in sides if number % 2 else reversed(sides):
                result = run(folder, side, options)
                print(f"round {number}: {side} {result['total_s']:.1f} s", flush=True)
                kept = [r for r in kept if (r["round"], r["side"]) != (number, side)]
                kept.append({"round": number, "side": side, **result})
                if rows := summary(kept):
                    harness.save("cluster-quota", rows, kept)
    for r in summary(kept):
        print("  ".join(f"{key} {value}" for key, value in r.items()), flush=True)


if __name__ == "__main__":
    main()
