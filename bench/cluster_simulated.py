#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Larger mixes than one machine can run, by tide-kube's own decisions (bench/kube_mix.c) on a simulated clock.

    cluster_simulated.py [--seeds 5]

Every training is one of the models of cluster_mix.py, with the speed-up that cluster_curves.py measured; in
the larger mixes it is of a random length and comes at random. A place is room for one worker. As in
cluster_mix.py:

  static   one worker each         elastic  one to four, as tide-kube decides
  full     four each, and none begins before there is room for all of it

The load is the work that comes per place and second, if each training has one worker.

A start costs what it was measured to cost: how long a static training of each model takes, by its epochs
(cluster_mix.py, both lengths), gives an epoch's time and that of start and end together. The parts
of it that other measurements tell are set below; the trace is what is left. The eight trainings of
cluster_mix.py stand beside what was measured of them.
"""

import argparse
import json
import math
import random
import statistics
import subprocess

import numpy as np

import cluster_mix as mix
import harness

SIGMA = 0.8  # of the length with one worker: few are six times as long as their mean
# Trainings, places, and the means of the length with one worker.
LARGER = ((50, 16, (60, 120, 600)), (50, 64, (60, 120, 600)), (500, 16, (600,)), (500, 64, (600,)))
GOAL = 0.65
# Without `start`: kube_mix charges the same start of a worker to each side.
SIDES = {side: workers for side, workers in mix.SIDES.items() if "cpu" not in workers}
SETTLE_S = {"mix": 1, "larger": 5}  # as in cluster_bed.py, and by default
# Seconds: a chief's import until it reports (cluster_mix.py, "until it runs"); a worker that loads
# TensorFlow ("order to part of it" of cluster_curves.py), and that prepares its functions (0.4 s of a
# processor, by hand); the chief's evaluation at the end (by hand).
START = {"start_s": 4.5, "load_s": 4.5, "prepare_s": 4.2, "end_s": 2.5}
POD_S = 1.5  # pods come and go


def result(name):
    path = harness.RESULTS / f"{name}.json"
    return json.loads(path.read_text())["rows"]


def curves():
    """{model: speeds with 1, 2, … workers}"""
    found = {}
    for row in result("cluster-curves"):
        found.setdefault(row["model"], []).append(min(row["speed-up"], row["workers"]))
    return found


def epochs_and_start():
    """({model: seconds of an epoch}, seconds that start and end take): least squares over static trainings."""
    rows = [(row["training"].rpartition("-"), float(row["static s"]))
            for name in ("cluster-mix-trainings", "cluster-mix-original-trainings") for row in result(name)]
    models = sorted({model for (model, _, _), _ in rows})
    known = [[1.0, *(float(epochs) * (model == other) for other in models)] for (model, _, epochs), _ in rows]
    start, *epochs = np.linalg.lstsq(np.array(known), np.array([took for _, took in rows]), rcond=None)[0]
    return dict(zip(models, map(float, epochs))), float(start)


def simulate(side, jobs, seed, settle_s, room):
    workers = SIDES[side]
    scenario = {"slots": mix.SLOTS, "seed": seed, "settle_s": settle_s, "jobs": jobs, **workers, **room}
    done = subprocess.run([harness.BUILD / "bench" / "kube_mix"], input=json.dumps(scenario).encode(),
                          stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def generated(count, places, load, mean_s, speedups, start, seed):
    chance, jobs, arrival = random.Random(seed), [], 0.0
    for number in range(count):
        model = chance.choice(sorted(speedups))
        work_s = chance.lognormvariate(math.log(mean_s) - SIGMA ** 2 / 2, SIGMA)
        jobs.append({"name": f"{model}-{number}", "arrival_s": arrival, "work_s": work_s,
                     "speed": speedups[model], **start})
        arrival += chance.expovariate(places * load / mean_s)
    return jobs


def larger_row(runs):
    took = {side: [statistics.fmean(run["took_s"]) for run in of] for side, of in runs.items()}
    longest = [max(e["took_s"]) / max(s["took_s"]) for e, s in zip(runs["elastic"], runs["static"])]
    row = {**{f"{side} s": round(statistics.fmean(took[side])) for side in SIDES},
           "longest, elastic / static": f"{statistics.fmean(longest):.2f}"}
    for other in ("static", "full"):
        middle, low, high = harness.log_interval([e / o for e, o in zip(took["elastic"], took[other])])
        row[f"elastic / {other}"] = f"{middle:.2f}"
        row["95 %" if other == "static" else "95 % "] = f"{low:.2f} … {high:.2f}"
        if other == "static":
            row["goal"] = f"<= {GOAL}: " + ("met" if high <= GOAL else "not shown" if low <= GOAL else "missed")
    return row


def larger(speedups, start, seeds):
    """Chiefs and servers take next to nothing, so that places are what counts."""
    rows = []
    for count, places, means_s in LARGER:
        room = {"node_mcpu": 1000 * places + 999, "worker_mcpu": 1000, "chief_mcpu": 1, "ps_mcpu": 1}
        for mean_s in means_s:
            for load in (0.3, 0.6, 0.9):
                runs = {side: [simulate(side, generated(count, places, load, mean_s, speedups, start, seed), seed,
                                        SETTLE_S["larger"], room) for seed in seeds] for side in SIDES}
                rows.append({"trainings": count, "places": places, "mean length s": mean_s, "load": load,
                             **larger_row(runs)})
                print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    return rows


def known_mixes(speedups, epochs, start, seeds):
    """The eight trainings of cluster_mix.py in both lengths; seeds are of the rates' noise alone."""
    rows, room = [], {"node_mcpu": mix.NODE_MCPU, "worker_mcpu": mix.WORKER_MCPU,
                      "chief_mcpu": mix.CHIEF_MCPU, "ps_mcpu": mix.PS_MCPU}
    for length in mix.LENGTHS:
        jobs = [{"name": job.name, "arrival_s": job.arrival_s, "work_s": job.epochs * epochs[job.model],
                 "speed": speedups[job.model], **start} for job in mix.mix(length)]
        measured = {row["side"]: row for row in
                    result("cluster-mix" if length == "longer" else "cluster-mix-original")}
        took = {side: statistics.fmean(statistics.fmean(simulate(side, jobs, seed, SETTLE_S["mix"], room)["took_s"])
                                       for seed in seeds) for side in SIDES}
        for side in SIDES:
            row = {"length": length, "side": side, "simulated mean completion s": round(took[side], 1),
                   "measured s": measured.get(side, {}).get("mean completion s", "")}
            if side != "elastic":
                row |= {"simulated elastic /": f"{took['elastic'] / took[side]:.2f}",
                        "measured elastic /": measured.get(side, {}).get("elastic /", "")}
            rows.append(row)
            print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    return rows


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--seeds", type=int, default=5)
    seeds = range(1, p.parse_args().seeds + 1)
    speedups, (epochs, whole_s) = curves(), epochs_and_start()
    begins_s = max(START["start_s"], START["load_s"])  # chief and worker begin together
    start = {**START, "trace_s": max(0.0, whole_s - POD_S - begins_s - START["prepare_s"] - START["end_s"])}
    print(f"an epoch: {epochs}; start and end: {whole_s:.1f} s, {start}")
    harness.save("cluster-mix-simulated", known_mixes(speedups, epochs, start, seeds))
    harness.save("cluster-simulated", larger(speedups, start, seeds))


if __name__ == "__main__":
    main()
