#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What becomes of a training's result when its cluster changes, against the same with a static one.

  sync   the same seed with 1 worker; 1 -> 3 -> 2; one killed and replaced; 1 -> 2 -> 1 parameter
         servers: are the weights the same bit for bit, was every example applied once
  async  pairs of one seed, static (2 workers) and elastic (1 -> 3 -> 2): difference of accuracy
"""

import argparse
import statistics

import cluster
import harness


def static(_run, _cluster):
    pass


def workers_1_3_2(run, c):
    run.wait_epoch(1)
    c.start("worker", 2)
    run.wait_epoch(4)
    c.leave("worker", 0)


def worker_killed(run, c):
    run.wait_epoch(1)
    c.start("worker", 2)
    run.wait_epoch(3)
    c.kill("worker", 1)
    run.wait_epoch(5)
    c.start("worker", 1)


def servers_1_2_1(run, c):
    run.wait_epoch(1)
    c.start("ps", 1)
    run.wait_epoch(4)
    c.leave("ps", 0)


def train(folder, name, change, mode, seed, options, workers=1):
    with cluster.local_cluster(ps=1, workers=workers, mode=mode) as c:
        run = cluster.Training(c, folder, name, "--seed", seed, *options)
        try:
            change(run, c)
            return run.finish()
        finally:
            run.end()


def sync_rows(runs):
    wanted = next((r for r in runs if r["change"] == "static"), None)
    return [{
        "cluster": r["change"].replace("_", " "),
        "workers": " ".join(map(str, r["workers"])), "ps": " ".join(map(str, r["ps"])),
        "loss": f"{r['losses'][-1]:.6f}", "accuracy": f"{r['accuracy']:.4f}",
        "weights": r["digest"],
        "bitwise": "the same" if wanted and r["digest"] == wanted["digest"]
                   and r["losses"] == wanted["losses"] else "differ",
        "applied / expected": f"{r['applied'] / r['expected']:.3f}",
        "pauses ms": " ".join(map(str, r["pauses_ms"])) or "-"} for r in runs]


def sync(folder, options, only):
    options = [*options, "--model", "embedding", "--rate", 2e-2]  # and dropout, and Adam
    for change in (static, workers_1_3_2, worker_killed, servers_1_2_1):
        if only in (None, change.__name__):
            run = train(folder, change.__name__, change, "sync", 1, options)
            yield {"change": change.__name__, **run}


def async_rows(runs):
    rows, differences = [], []
    for r in sorted(runs, key=lambda r: r["seed"]):
        s, e = r["static"], r["elastic"]
        differences.append(100 * (e["accuracy"] - s["accuracy"]))
        rows.append({"seed": r["seed"], "static %": f"{100 * s['accuracy']:.2f}",
                     "elastic %": f"{100 * e['accuracy']:.2f}",
                     "difference": f"{differences[-1]:+.2f}",
                     "applied / expected": f"{e['applied'] / e['expected']:.4f}",
                     "duplicates": e["duplicates"]})
    mean, half = statistics.mean(differences), harness.half_width(differences)
    rows.append({"seed": "mean", "difference": f"{mean:+.2f} [{mean - half:+.2f}, {mean + half:+.2f}]",
                 "goal": "within 0.5 points: " + ("met" if abs(mean) + half <= 0.5 else
                                                  "not shown" if abs(mean) - half <= 0.5 else "missed")})
    return rows


def asynchronous(folder, options, only, seeds):
    options = [*options, "--model", "mlp", "--width", 64, "--examples", 6400]
    for seed in [int(only)] if only else range(1, seeds + 1):
        sides = {}
        for side, change, workers in (("static", static, 2), ("elastic", workers_1_3_2, 1)):
            sides[side] = train(folder, f"{side}-{seed}", change, "async", seed, options, workers)
        yield {"seed": seed, **sides}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--case", choices=("sync", "async"), required=True)
    p.add_argument("--seeds", type=int, default=10)
    p.add_argument("--epochs", type=int, default=7)
    p.add_argument("--only", help="this change, or this seed; joined with what was measured before")
    args = p.parse_args()
    name, options = f"cluster-{args.case}", ["--epochs", args.epochs]
    kept, key = harness.saved_runs(name) if args.only else [], "change" if args.case == "sync" else "seed"
    with cluster.scratch() as folder:
        for run in (sync(folder, options, args.only) if args.case == "sync" else
                    asynchronous(folder, options, args.only, args.seeds)):
            kept = [r for r in kept if r[key] != run[key]] + [run]
            rows = (sync_rows if args.case == "sync" else async_rows)(kept)
            print("  ".join(f"{k} {v}" for k, v in rows[-1].items()), flush=True)
            harness.save(name, rows, kept)


if __name__ == "__main__":
    main()
