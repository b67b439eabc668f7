#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ITB's scenario: another workload ends early in a training and frees three quarters of the processors.

The cluster is one node of four quarter cores for workers, with a real control plane and tide-kube, which
decides everything that happens after the other workload's end. At first the training has one quarter
core and the other workload, a pod that computes, three; it ends after the first epoch. Then, in turn:

  static      goes on with its one worker of a quarter core: it asked for no more
  workers     may have one to four workers
  in place    has one worker, which may be resized to a full core
  full size   has four workers from the start, and no other workload

Same data, seed, epochs and slots; the weights at the end are compared bit for bit. The time runs from the
moment that the training is ready to the end of its last epoch, so it holds everything that tide-kube takes
to notice and to act (--settle=1s, see cluster_bed.py). As root.
"""

import argparse
import json
import statistics
import sys
import time

import cluster
import cluster_bed as bed
import harness

QUARTER_MCPU, CHIEF_MCPU, PS_MCPU, SLOTS = 250, 50, 25, 8
NODE_MCPU = 5 * QUARTER_MCPU  # four for workers; chief and parameter server need 75 of the fifth's 250
PODS = "/api/v1/namespaces/default/pods"
ONE = {"min": 1, "max": 1}
SIDES = {"static": ONE, "workers": {"min": 1, "max": 4},
         "in place": {**ONE, "cpu": {"min": f"{QUARTER_MCPU}m", "max": f"{4 * QUARTER_MCPU}m"}},
         "full size": {"min": 4, "max": 4}}
NAME, GUARD_S = "training", 600


def other_workload():
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other"}, "spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [{
            "name": "main", "image": "local/none", "command": [sys.executable, "-c", "while True: pass"],
            "resources": bed.amounts(3 * QUARTER_MCPU, "16Mi")}]}}


def until(holds, follower):
    """Returns the result of @holds() as soon as that is something."""
    end = time.monotonic() + GUARD_S
    while not (found := holds()):
        phases = follower.phases.get(NAME, {})
        if time.monotonic() > end or phases.keys() & {"Failed", "Invalid"}:
            raise RuntimeError(f"the training's phases are {phases}")
        time.sleep(0.02)
    return found


def run(side, options):
    with bed.Bed(NODE_MCPU, cluster.PERIOD_US) as b:
        meter, follower = bed.Meter(b.runner), bed.Follower(b.plane)

        def events():
            try:
                lines = b.runner.log(f"{NAME}-chief").splitlines()
            except (AssertionError, StopIteration, OSError):
                return []  # there is no such pod yet
            return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

        def used_s():
            return sum(seconds for role, seconds in meter.used.values() if role in ("worker", "other"))
        if side != "full size":
            b.plane.must("POST", PODS, other_workload())
            until(lambda: b.plane.must("GET", f"{PODS}/other")["status"].get("phase") == "Running", follower)
        words = [harness.PYTHON, "-u", cluster.TRAIN, "--data", str(cluster.data()), "--log", "/dev/stdout",
                 *map(str, options)]
        b.plane.must("POST", bed.PATH, bed.training(NAME, words, SIDES[side], SLOTS, CHIEF_MCPU, PS_MCPU,
                                                    QUARTER_MCPU))
        until(lambda: any("ready" in e for e in events()), follower)
        begin, used = time.monotonic(), used_s()
        if side != "full size":
            until(lambda: any(e.get("epoch", -1) >= 1 for e in events()), follower)
            b.plane.must("DELETE", f"{PODS}/other")
        last = until(lambda: next((e for e in events() if "digest" in e), None), follower)
        time.sleep(bed.METER_S)  # it reads so often
        use = (used_s() - used) / (4 * QUARTER_MCPU / 1000 * (time.monotonic() - bed.METER_S - begin))
        until(lambda: "Succeeded" in follower.phases.get(NAME, {}), follower)
        meter.end()
        return {**last, **cluster.outcome(events()), "use": use,
                "changes": [(round(at, 2), counts, why) for at, counts, why in follower.workers[NAME]]}


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
        "95 %": interval([r["total_s"] / s["total_s"] for r, s in both]),
        "processors used": f"{statistics.median(r['use'] for r, _ in both):.2f}",
        "use / static": " ".join(f"{r['use'] / s['use']:.2f}" for r, s in both),
        "final loss": f"{both[-1][0]['losses'][-1]:.6f}",
        "weights": "the same" if all(r["digest"] == s["digest"] for r, s in both) else "differ",
        "epochs s": " ".join(f"{t:.1f}" for t in both[-1][0]["epoch_s"]),
        "workers": " ".join(map(str, both[-1][0]["workers"]))}


def interval(ratios):
    middle, low, high = harness.log_interval(ratios)
    return f"{middle:.2f} [{low:.2f}, {high:.2f}]" if len(ratios) > 1 else "one round"


def summary(runs):
    rows = [row(runs, side) for side in SIDES if pairs(runs, side)]
    for r in rows:
        both = pairs(runs, r["side"])
        if r["side"] == "workers" and len(both) > 1:
            _, low, high = harness.log_interval([w["total_s"] / s["total_s"] for w, s in both])
            _, use_low, use_high = harness.log_interval([w["use"] / s["use"] for w, s in both])
            time_said = "met" if high <= 0.5 else "not shown" if low <= 0.5 else "missed"
            use_said = "met" if use_low >= 1.25 else "not shown" if use_high >= 1.25 else "missed"
            r["goal"] = f"time <= 0.5: {time_said}; use >= 1.25: {use_said}"
    return rows


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--round", type=int, help="this one alone, joined with those measured before")
    p.add_argument("--sides", help="with --round: these alone, separated by commas")
    p.add_argument("--epochs", type=int, default=12)
    args = p.parse_args()
    options = ["--epochs", args.epochs, "--examples", 3072, "--batch", 1024]
    kept = harness.saved_runs("cluster-quota") if args.round else []
    sides = args.sides.split(",") if args.sides else list(SIDES)
    for number in [args.round] if args.round else range(1, args.rounds + 1):
        for side in sides if number % 2 else reversed(sides):
            result = run(side, options)
            print(f"round {number}: {side} {result['total_s']:.1f} s", flush=True)
            kept = [r for r in kept if (r["round"], r["side"]) != (number, side)]
            kept.append({"round": number, "side": side, **result})
            if rows := summary(kept):
                harness.save("cluster-quota", rows, kept)
    for r in summary(kept):
        print("  ".join(f"{key} {value}" for key, value in r.items()), flush=True)


if __name__ == "__main__":
    main()
