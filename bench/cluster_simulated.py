#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Larger mixes than one machine can run: `tide sim` with the curves that cluster_curves.py measured.

Every training is one of those models, of a random length, and they come at random. A core of the
simulated machine is the place of one worker, held by nobody else. As in cluster_mix.py:

  static   one worker each         elastic  one to four, `throughput`, as tide-kube decides
  full     four each, in a queue (`fcfs/strict`)

The load is the work that comes per place and second, if each training has one worker.

A change costs a training more than its pause: from the order until a new worker takes part, 4.5 s as
cluster_curves.py measured, it goes on as before. The simulator knows no such delay, only time without
progress. Larger mixes are charged the whole delay. The eight trainings of cluster_mix.py stand beside what
was measured of them, once charged the delay and once the pause alone (elastic_pause.py): how far the
simulation is from the measurement either way is a row of the table.
"""

import json
import statistics

import cluster_mix as mix
import harness
import sim_runs

SEEDS = (1, 10)
MEAN_S, SIGMA = 600, 0.8  # of the length with one worker: ten minutes, few of them an hour
SIDES = {"static": ("fcfs/strict", {"malleability": "rigid", "request": 1}),
         "elastic": ("throughput", {"malleability": "malleable", "min": 1, "max": mix.MOST}),
         "full": ("fcfs/strict", {"malleability": "rigid", "request": mix.MOST})}
GOAL = 0.65


def result(name):
    path = harness.RESULTS / f"{name}.json"
    return json.loads(path.read_text())["rows"]


def curves():
    """{model: speeds with 1, 2, … workers}"""
    found = {}
    for row in result("cluster-curves"):
        found.setdefault(row["model"], []).append(row["speed-up"])
    return found


def scenario(places, side, speedups, costs, **jobs):
    return {"machine": {"cores": places, "placement": "exclusive"},
            "speedups": {model: {"table": table} for model, table in speedups.items()},
            "defaults": {"estimate": "none", "told_speedup": "exact", **costs, **SIDES[side][1]}, **jobs}


def turnarounds(places, side, speedups, costs, seeds=SEEDS, **jobs):
    policy = SIDES[side][0]
    runs = sim_runs.simulate(scenario(places, side, speedups, costs, **jobs), [policy], seeds)[policy]
    return runs["turnaround"]


def generated(count, places, load, speedups):
    kinds = [{"name": model, "share": 1, "speedup": model,
              "work": {"lognormal": {"mean": MEAN_S, "sigma": SIGMA}}} for model in speedups]
    gap = MEAN_S / (places * load)
    return {"workload": {"jobs": count, "arrivals": {"gap": {"exponential": {"mean": gap}}},
                         "mix": kinds}}


def larger(speedups, costs):
    rows = []
    for count, places in ((50, 16), (50, 64), (500, 16), (500, 64)):
        for load in (0.3, 0.6, 0.9):
            jobs = generated(count, places, load, speedups)
            took = {side: turnarounds(places, side, speedups, costs, **jobs) for side in SIDES}
            row = {"trainings": count, "places": places, "load": load,
                   **{f"{side} s": round(statistics.fmean(took[side])) for side in SIDES}}
            for other in ("static", "full"):
                middle, low, high = harness.log_interval(
                    [e / o for e, o in zip(took["elastic"], took[other])])
                row[f"elastic / {other}"] = f"{middle:.2f}"
                row["95 %" if other == "static" else "95 % "] = f"{low:.2f} … {high:.2f}"
                if other == "static":
                    row["goal"] = (f"<= {GOAL}: " + ("met" if high <= GOAL else "not shown"
                                                    if low <= GOAL else "missed"))
            rows.append(row)
            print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    return rows


def known_mix(speedups, costs):
    """The eight trainings of cluster_mix.py, from their models' curves alone; a row for each cost."""
    first = {row["model"]: row for row in result("cluster-curves") if row["workers"] == 1}
    jobs = [{"name": job.name, "arrival": job.arrival_s, "speedup": job.model,
             "work": job.epochs * first[job.model]["epoch s"],
             "start_work": max(0, first[job.model]["start and first epoch s"]
                               - first[job.model]["epoch s"])} for job in mix.mix()]
    rows = []
    measured = {row["side"]: row for row in result("cluster-mix")}
    for cost, settings in costs.items():
        took = {side: statistics.fmean(turnarounds(mix.PLACES, side, speedups, settings, (1, 1), jobs=jobs))
                for side in SIDES}
        for side in SIDES:
            row = {"side": side, "a change costs": f"{cost}, {settings['resize_cost']}",
                   "simulated mean completion s": round(took[side], 1),
                   "measured s": measured.get(side, {}).get("mean completion s", "")}
            if side != "elastic":
                row |= {"simulated elastic /": f"{took['elastic'] / took[side]:.2f}",
                        "measured elastic /": measured.get(side, {}).get("elastic /", "")}
            rows.append(row)
            print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    return rows


def change_costs():
    """What a change costs at the most and at the least."""
    delays = [row["order to part of it s"] for row in result("cluster-curves") if row["order to part of it s"]]
    pause = next(row["median"] for row in result("elastic-pause") if row["what"] == "worker joins")
    return {"order to part of it": {"resize_cost": f"{statistics.median(delays):g}s"},
            "its pause alone": {"resize_cost": f"{pause}ms"}}


def main():
    speedups, costs = curves(), change_costs()
    harness.save("cluster-mix-simulated", known_mix(speedups, costs))
    harness.save("cluster-simulated", larger(speedups, costs["order to part of it"]))


if __name__ == "__main__":
    main()
