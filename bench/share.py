#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several jobs on one machine: Threadtide against the uncontrolled machine (total steps/s).

    share.py --jobs 4 --models mlp,attention --against stock
    share.py --jobs 2 --against stock --placement exclusive
    share.py --jobs 4 --against pinned      programs with 8 threads, each pinned to one core
    share.py --jobs 4 --against no-slices   Threadtide with the kernel's own time slices: what 20 ms slices add
"""

import argparse

import harness

GOALS = {(4, "stock"): {"mlp": 1.3, "attention": 1.2, "cnn": 1.15, "lstm": 1.05},
         (2, "stock"): dict.fromkeys(("mlp", "attention", "cnn", "lstm"), 0.95),
         (4, "pinned"): dict.fromkeys(("mlp", "attention", "cnn", "lstm"), 1.5)}


def measure(model, jobs, against, placement, pairs, slice_s):
    with harness.Bench() as bench, harness.Bench() as other:
        cpus = harness.machine()["cpus"]
        options = ("--placement", placement)
        if against == "no-slices":
            a = [other.tide(model, f"a{i}", run=(*options, "--no-slices")) for i in range(jobs)]
        elif against == "pinned":
            a = [bench.stock(model, f"a{i}", "--threads", "8", prefix=("taskset", "-c", str(i % cpus)))
                 for i in range(jobs)]
        else:
            a = [bench.stock(model, f"a{i}") for i in range(jobs)]
        a = harness.Side(against, a)
        a.warm_up(8)
        b = harness.Side("threadtide", [bench.tide(model, f"b{i}", run=options) for i in range(jobs)])
        b.warm_up(8)
        ratios = harness.interleave(a, b, pairs, slice_s)
        return {"model": model, "jobs": jobs, "against": against, "placement": placement,
                "slice_s": slice_s, "ratios": ratios, **harness.ratio_stats(ratios)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--jobs", type=int, default=4)
    p.add_argument("--models", default="mlp,attention,cnn,lstm")
    p.add_argument("--against", choices=["stock", "pinned", "no-slices"], default="stock")
    p.add_argument("--placement", choices=["shared", "exclusive", "quota"], default="shared")
    p.add_argument("--pairs", type=int, default=20)
    p.add_argument("--slice", type=float, default=4, metavar="SECONDS")
    args = p.parse_args()
    rows = []
    for model in args.models.split(","):
        row = measure(model, args.jobs, args.against, args.placement, args.pairs, args.slice)
        goal = GOALS.get((args.jobs, args.against), {}).get(model, 1.0)
        harness.show_ratio(f"{args.jobs} x {model}, {args.placement} / {args.against}", row, goal)
        rows.append({**row, "goal": goal})
        harness.save(f"share-{args.jobs}-{args.placement}-{args.against}", rows)


if __name__ == "__main__":
    main()
