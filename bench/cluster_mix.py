#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Eight real trainings come to a small cluster: how long each takes from its arrival to its end (as root).

    cluster_mix.py [--length longer|original] [--rounds 3] [--folder DIR] [--passes N] [--sides SIDE,…]

  static   one worker and one parameter server each, as long as it runs: who does not know what others
           will need asks for what there is a place for at once, and what is free stays free
  elastic  one to four workers, as the policy of tide-kube says; otherwise the same
  start    as elastic, and a new worker has a limit of one core until it is in the training (workers.cpu.start);
           only where --sides names it
  full     four workers each, and none begins before there is room for all of it: the queue that
           asking for more means

The cluster is one node with room for eight workers of a tenth of a core each (a quota of the
processor), so that eight real workers fit on a machine with two cores beside everything else: chiefs
and parameter servers are not limited. Arrivals are a Poisson process of a seed that was chosen before
any run. Real: control plane, tide-kube, TensorFlow, quotas. All sides are run by tide-kube, with the
same programs, data, seeds and slots; the losses of all epochs are compared bit for bit.

Passes are kept in --folder and taken from there; a round is one pass a side, the order turns.
"""

import argparse
import dataclasses
import json
import pathlib
import random
import signal
import statistics
import sys
import tempfile
import time

import harness
import stamp
import cluster_bed as bed

WORKER_MCPU, CHIEF_MCPU, PS_MCPU, PLACES = 100, 50, 25, 8
NODE_MCPU = PLACES * WORKER_MCPU + 4 * (CHIEF_MCPU + PS_MCPU)
MOST, SLOTS, PERIOD_US = 4, 4, 20_000
SIDES = {"static": {"min": 1, "max": 1}, "elastic": {"min": 1, "max": MOST},
         "start": {"min": 1, "max": MOST, "cpu": {"start": "1"}}, "full": {"min": MOST, "max": MOST}}
# Epochs of each model's trainings, and the mean gap between two arrivals: as the benchmark had them at first,
# and the longer ones that it got after two misses. Both are measured.
LENGTHS = {"longer": ({"cnn": (10, 12, 15, 18, 20), "embedding": (5, 8), "mlp": (10,)}, 30),
           "original": ({"cnn": (4, 5, 6, 7, 8), "embedding": (2, 3), "mlp": (4,)}, 12)}
MODELS, SEED = ("cnn", "embedding", "mlp"), 1
GUARD_S, GOAL = 900, 0.65


@dataclasses.dataclass
class Job:
    name: str
    model: str
    epochs: int
    arrival_s: float


def mix(length="longer"):
    """Every model in every length, in an order of chance that is always the same."""
    chance, (lengths, gap_s) = random.Random(SEED), LENGTHS[length]
    kinds = [(model, epochs) for model, all_epochs in lengths.items() for epochs in all_epochs]
    chance.shuffle(kinds)
    jobs, arrival = [], 0.0
    for model, epochs in kinds:
        jobs.append(Job(f"{model}-{epochs}", model, epochs, round(arrival, 2)))
        arrival += chance.expovariate(1 / gap_s)
    return jobs


# ---- one pass ----

def until(deadline_s, holds, follower):
    while not holds():
        now = time.monotonic() - follower.zero
        failed = [name for name, phases in follower.phases.items() if phases.keys() & {"Failed", "Invalid"}]
        if now > deadline_s or failed:
            raise RuntimeError(f"after {now:.0f} s, failed: {failed}, phases: {follower.phases}")
        time.sleep(0.02)


def run(side, jobs):
    with bed.Bed(NODE_MCPU, PERIOD_US) as b:
        meter, follower = bed.Meter(b.runner), bed.Follower(b.plane)
        for job in jobs:
            until(GUARD_S, lambda: time.monotonic() - follower.zero >= job.arrival_s, follower)
            b.plane.must("POST", bed.PATH, bed.training(
                job.name, bed.command(job.model, job.epochs), SIDES[side], SLOTS, CHIEF_MCPU, PS_MCPU,
                WORKER_MCPU))
        until(GUARD_S, lambda: all("Succeeded" in follower.phases.get(job.name, ()) for job in jobs),
              follower)
        measured = stamp.today(harness.BUILD, "cluster-mix", harness.machine())
        return {"side": side, "measured": measured, "used_s": meter.end(), "jobs": [{
            **dataclasses.asdict(job), "phases": follower.phases[job.name],
            "took_s": follower.phases[job.name]["Succeeded"] - job.arrival_s,
            "workers": follower.workers[job.name], "restarts": follower.status[job.name]["restarts"],
            "losses": b.losses(job.name)} for job in jobs],
            "events": [f"{e['involvedObject']['name']}: {e['reason']}: {e['message']}" for e in
                       b.plane.must("GET", "/api/v1/namespaces/default/events")["items"]]}


# ---- the tables ----

def mean_took(taken):
    return statistics.fmean(job["took_s"] for job in taken["jobs"])


def makespan(taken):
    return max(job["arrival_s"] + job["took_s"] for job in taken["jobs"])


def use(taken):
    """Part of the eight workers' processor time that was used until the last training ended."""
    return taken["used_s"].get("worker", 0) / (PLACES * WORKER_MCPU / 1000 * makespan(taken))


def same_losses(a, b):
    return all(x["losses"] == y["losses"] and x["losses"] for x, y in zip(a["jobs"], b["jobs"]))


def row_of(side, rounds):
    taken = [r[side] for r in rounds if side in r]
    pairs = [(r["elastic"], r[side]) for r in rounds if side in r and "elastic" in r]
    row = {"side": side, "rounds": len(taken),
           "mean completion s": " / ".join(f"{mean_took(t):.1f}" for t in taken),
           "makespan s": " / ".join(f"{makespan(t):.0f}" for t in taken),
           "workers' processors used": f"{statistics.fmean(use(t) for t in taken):.2f}",
           "processor time s: worker, ps, chief": " ".join(
               f"{statistics.fmean(t['used_s'].get(role, 0) for t in taken):.0f}"
               for role in ("worker", "ps", "chief")),
           "losses as static": "bit for bit" if all(
               same_losses(r[side], rounds[0]["static"]) for r in rounds if side in r) else "differ"}
    if side == "elastic" or not pairs:
        return row
    ratios = [mean_took(elastic) / mean_took(other) for elastic, other in pairs]
    middle, low, high = harness.log_interval(ratios)
    goal = {"static": GOAL}.get(side)
    return row | {"elastic /": f"{middle:.2f}",
                  "95 %": f"{low:.2f} … {high:.2f}" if len(ratios) > 1 else "one round",
                  "single rounds": " ".join(f"{ratio:.2f}" for ratio in ratios),
                  **({"goal": f"<= {goal}: " + ("met" if high <= goal else "not shown" if low <= goal
                                               else "missed")} if goal else {})}


def job_rows(rounds, sides):
    rows = []
    for number, job in enumerate(rounds[0]["static"]["jobs"]):
        found = {side: [r[side]["jobs"][number] for r in rounds if side in r] for side in sides}
        row = {"training": job["name"], "arrival s": job["arrival_s"]}
        for side, taken in found.items():
            row[f"{side} s"] = f"{statistics.median(t['took_s'] for t in taken):.1f}"
        row["elastic: until it runs s"] = " ".join(
            f"{t['phases'].get('Running', float('nan')) - t['arrival_s']:.1f}" for t in found["elastic"])
        row["most workers"] = " ".join(str(max(counts[2] for _, counts, _ in t["workers"])) for t in found["elastic"])
        row["last loss"] = [x for x in job["losses"] if "'" not in x][-1][:12]  # others are digests
        rows.append(row)
    return rows


def kept(path, make, left):
    """Returns what @path holds, else what make() gives if there is one left to be made."""
    if not path.exists() and left[0] > 0:
        left[0] -= 1
        path.write_text(json.dumps(make()))
    return json.loads(path.read_text()) if path.exists() else None


def main():
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # nothing stays
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--length", choices=LENGTHS, default="longer", help="of the trainings")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--folder", type=lambda f: pathlib.Path(f).resolve(),
                   help="keep passes there, use those that it holds")
    p.add_argument("--passes", type=int, default=10 ** 6, help="run at most so many now")
    p.add_argument("--sides", default="static,elastic,full")
    args = p.parse_args()
    sides, jobs, rounds = args.sides.split(","), mix(args.length), []
    with tempfile.TemporaryDirectory(prefix="tide-bench-") as scratch:
        folder, left = args.folder or pathlib.Path(scratch), [args.passes]
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(args.rounds):
            order = sides[number % len(sides):] + sides[:number % len(sides)]
            taken = {side: kept(folder / f"{args.length}-{number + 1}-{side}.json",
                                lambda side=side: run(side, jobs), left) for side in order}
            rounds.append({side: t for side, t in taken.items() if t})
            print({side: round(mean_took(t), 1) for side, t in rounds[-1].items()}, flush=True)
    if all("static" in r and "elastic" in r for r in rounds):
        rows = [row_of(side, rounds) for side in sides if any(side in r for r in rounds)]
        for row in rows:
            print("  ".join(f"{key} {value}" for key, value in row.items()))
        name = "cluster-mix" if args.length == "longer" else "cluster-mix-original"
        passes = [{"round": number, "side": side, "measured": taken["measured"],
                   "took_s": {job["name"]: round(job["took_s"], 2) for job in taken["jobs"]}}
                  for number, taken_of in enumerate(rounds, 1) for side, taken in taken_of.items()]
        harness.save(name, rows, passes)
        harness.save(f"{name}-trainings", job_rows(rounds, [s for s in sides if s in rounds[0]]), passes)


if __name__ == "__main__":
    main()
