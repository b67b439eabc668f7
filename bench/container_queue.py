#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A queue of 16 real containers, each a stock TensorFlow training, three ways (root only).

    container_queue.py [--rounds 3] [--folder DIR] [--passes N] [--policy SPEC]

  threadtide   `tide submit -- docker run …`, malleable, under the policy that does best
  none         all of them started when they arrive, with the threads that TensorFlow takes
  strict       one after the other in their order, each with all that it asks for: the machine

The arrivals are the thesis' prueba1, the one of which it measured no control, too: 16 jobs, one about
every 39 s where one takes 101 s alone on the machine, here in the same proportion. Its jobs are all
alike; these are of four models and four lengths. Each asks for the whole machine: half of this one is
a single core, on which there is nothing to control. What starting Python and TensorFlow takes is part
of all three, and a good third of the mean job: the jobs are short, so that rounds can be repeated.

Passes are kept in --folder and taken from there; a round is one pass each way, the order turns.
With the measured ones come predictions: of a pass from the recording of another one, and of all
three ways from the models' runs alone.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import harness
import replay
import thesis

sys.path.insert(0, str(harness.ROOT / "demo"))
import container_side  # noqa: E402
from engine import Engine  # noqa: E402

CORES = 2
THESIS_ALONE_S = 101  # a job of prueba1 alone on its 16 cores
LENGTHS_S = (1.5, 3, 5, 10)  # of training alone
WAYS = ("threadtide", "none", "strict")
MODELS = ("mlp", "cnn", "lstm", "attention")
ALONE_STEPS = {"mlp": 160, "cnn": 50, "lstm": 120, "attention": 60}
POLICY = "response"
POLL_S = 0.02
GUARD_S = 600
GOALS = {"none": (1.2, 1.5), "strict": (1.5, 3.0)}


@dataclasses.dataclass
class Job:
    name: str
    model: str
    steps: int
    arrival_s: float

    def program(self):
        return [sys.executable, harness.MODELS, "--model", self.model, "--steps", str(self.steps)]


# ---- the three ways ----

class Way:
    """A Docker Engine, and how a job that has arrived gets to run."""

    def __init__(self, engine, folder):
        self.engine, self.folder = engine, folder
        self.env = {**container_side.side.without_our_variables(), "TF_CPP_MIN_LOG_LEVEL": "3",
                    "DOCKER_HOST": f"unix://{engine.socket}"}

    def docker_run(self, job, *options):
        return ["docker", "run", "--rm", "--name", job.name, "--network", "host",
                *container_side.mounts(self.folder), "--env", "TF_CPP_MIN_LOG_LEVEL=3",
                *options, container_side.IMAGE, *job.program()]

    def output(self, job):
        return self.folder / f"{job.name}.out"

    def spawn(self, job, command):
        self.output(job).unlink(missing_ok=True)
        with open(self.output(job), "w", encoding="utf-8") as out:
            return subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, stdout=out,
                                    stderr=subprocess.STDOUT)

    def begin(self, job, running):
        """Its process, or None: it has to wait."""
        return self.spawn(job, self.docker_run(job))

    def close(self):
        pass


class Strict(Way):
    def begin(self, job, running):
        return None if running else super().begin(job, running)


class Threadtide(Way):
    def __init__(self, engine, folder, policy):
        super().__init__(engine, folder)
        self.run = pathlib.Path(tempfile.mkdtemp(prefix="tide-bench-"))
        self.env |= {"TIDE_DIR": str(self.run), "TIDE_CLAIMS_DIR": str(self.run / "claims")}
        self.daemon = subprocess.Popen([harness.BUILD / "tided", "--dir", self.run, "--engine",
                                        engine.socket, "--policy", policy], env=self.env,
                                       stderr=open(folder / "tided.log", "w"))
        while subprocess.run([harness.TIDE, "ps"], env=self.env, capture_output=True).returncode:
            time.sleep(0.05)
        self.recorder = subprocess.Popen([harness.TIDE, "record", "-o", folder / "recording.json"],
                                         env=self.env, stderr=subprocess.DEVNULL)

    def begin(self, job, running):
        self.output(job).unlink(missing_ok=True)
        return subprocess.Popen(
            [harness.TIDE, "submit", "--quiet", "--wait", "--name", job.name, "--request",
             str(CORES), "--output", self.output(job), "--", *self.docker_run(job)], env=self.env,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def scenario(self):
        self.recorder.send_signal(signal.SIGINT)
        self.recorder.wait()
        return json.loads((self.folder / "recording.json").read_text())

    def close(self):
        for process in (self.recorder, self.daemon):
            if process.poll() is None:
                process.terminate()
                process.wait()
        shutil.rmtree(self.run, ignore_errors=True)


def result_of(way, job):
    lines = way.output(job).read_text().splitlines()
    return json.loads(next(line for line in reversed(lines) if line.startswith("{")))


def run_jobs(way, jobs):
    """Each job's arrival, end, loss; a job begins when @way lets it, in the order of arrival."""
    waiting, running, done = list(jobs), {}, {}
    zero = time.monotonic()
    try:
        while waiting or running:
            now = time.monotonic() - zero
            assert now < GUARD_S, f"{len(waiting)} wait, {list(running)} run"
            while waiting and waiting[0].arrival_s <= now:
                process = way.begin(waiting[0], running)
                if not process:
                    break
                job = waiting.pop(0)
                running[job.name] = (job, process)
            for name, (job, process) in list(running.items()):
                if process.poll() is not None:
                    assert process.returncode == 0, way.output(job).read_text()
                    done[name] = now
                    del running[name]
            time.sleep(POLL_S)
    finally:
        for _, process in running.values():
            process.terminate()
    return [{"name": j.name, "model": j.model, "arrival_s": j.arrival_s,
             "finished_s": round(done[j.name], 3), "loss": result_of(way, j)["loss"]} for j in jobs]


# ---- alone ----

def alone(engine, folder):
    """{model: seconds of its start, its steps per second by cores}, each alone on the machine."""
    found, way = {}, Way(engine, folder)
    for model in MODELS:
        found[model] = {"rate": {}}
        for cores in range(1, CORES + 1):
            job = Job(f"alone-{model}-{cores}", model, ALONE_STEPS[model], 0)
            begin = time.monotonic()
            process = way.spawn(job, way.docker_run(job, f"--cpuset-cpus=0-{cores - 1}"))
            assert process.wait(GUARD_S) == 0, way.output(job).read_text()
            took, result = time.monotonic() - begin, result_of(way, job)
            found[model]["rate"][cores] = result["steps_per_s"]
            if cores == CORES:
                found[model]["start_s"] = round(took - job.steps / result["steps_per_s"], 3)
    return found


def mix(profiles):
    """Every model in every length, in an order of chance that is always the same."""
    kinds = [(model, length) for model in MODELS for length in LENGTHS_S]
    random.Random(5).shuffle(kinds)
    mean_s = statistics.fmean(length + profiles[model]["start_s"] for model, length in kinds)
    arrivals = [float(job["arrival"].rstrip("s")) for job in thesis.requests("prueba1")]
    return [Job(f"{model}-{length:g}", model, math.ceil(length * profiles[model]["rate"][str(CORES)]),
                round(arrival * mean_s / THESIS_ALONE_S, 3))
            for (model, length), arrival in zip(kinds, arrivals)]


# ---- predicted ----

def simulated(jobs, policy, told):
    """Makespan and mean turnaround of a scenario's @jobs."""
    with tempfile.TemporaryDirectory(prefix="tide-bench-") as folder:
        path = pathlib.Path(folder) / "scenario.json"
        path.write_text(json.dumps({**told, "jobs": jobs}))
        answer = subprocess.run([harness.TIDE, "sim", path, "--policy", policy, "--json"], check=True,
                                capture_output=True, text=True)
    metrics = json.loads(answer.stdout)["policies"][0]["metrics"]
    return metrics["makespan"]["mean"], metrics["turnaround"]["mean"]


def from_alone(profiles, jobs, way, policy, request=CORES):
    """Simulates what the models' runs alone let expect: nothing measured in the queue is in it."""
    rigid = way == "strict"
    told = {"machine": {"cores": CORES},
            "speedups": {model: {"table": [p["rate"][str(k)] / p["rate"]["1"]
                                           for k in range(1, CORES + 1)]}
                         for model, p in profiles.items()},
            "defaults": {"estimate": "none", "told_speedup": "none", "request": request,
                         "malleability": "rigid" if rigid else "malleable"}}
    rows = [{"name": j.name, "arrival": j.arrival_s, "speedup": j.model,
             "work": j.steps / profiles[j.model]["rate"]["1"],
             "start_work": profiles[j.model]["start_s"]} for j in jobs]
    return simulated(rows, {"threadtide": policy, "none": "none", "strict": "fcfs/strict"}[way], told)


# ---- the table ----

def measure(way_name, engine, folder, jobs, policy):
    makers = {"none": Way, "strict": Strict, "threadtide": lambda *a: Threadtide(*a, policy)}
    way = makers[way_name](engine, folder)
    try:
        busy = replay.busy_s()
        rows = run_jobs(way, jobs)
        busy = replay.busy_s() - busy
        return {"jobs": rows, "busy": busy / max(row["finished_s"] for row in rows), "policy": policy,
                "scenario": way.scenario() if way_name == "threadtide" else None}
    finally:
        way.close()


def totals(taken):
    times = {j["name"]: (j["arrival_s"], j["finished_s"]) for j in taken["jobs"]}
    return replay.makespan(times), replay.turnaround(times)


def interval(ratios):
    """A 95 % interval of the mean of logarithms; there is none for one round."""
    if len(ratios) < 2:
        return ""
    _, low, high = harness.log_interval(ratios)
    return f"{low:.2f} … {high:.2f}"


def difference(a, b):
    """Largest relative difference of a job's loss."""
    losses = {j["name"]: float(j["loss"]) for j in a["jobs"]}
    return max(abs(float(j["loss"]) / losses[j["name"]] - 1) for j in b["jobs"])


def measured_rows(rounds):
    rows = []
    for way in WAYS:
        taken = [r[way] for r in rounds if way in r]
        row = {"way": way, "rounds": len(taken)}
        for i, what in enumerate(("makespan", "mean turnaround")):
            values = [totals(t)[i] for t in taken]
            ratios = [totals(r[way])[i] / totals(r["threadtide"])[i] for r in rounds
                      if way in r and "threadtide" in r]
            goal = GOALS.get(way, ("", ""))[i]
            row |= {f"{what} s": " / ".join(f"{v:.0f}" for v in values),
                    f"{what}: threadtide ×": f"{statistics.geometric_mean(ratios):.2f}",
                    f"{what} 95 %": interval(ratios), f"{what} goal": goal}
        losses = max((difference(r[way], r["threadtide"]) for r in rounds
                      if way in r and "threadtide" in r), default=0)
        rows.append(row | {"cores busy": round(statistics.fmean(t["busy"] for t in taken), 2),
                           "losses differ by at most": f"{losses:.1e}"})
    return rows


def predicted_row(what, way, guess, real):
    row = {"from": what, "way": way}
    for name, predicted, was in zip(("makespan", "turnaround"), guess, real):
        row |= {f"{name} s": round(was, 1), f"predicted {name} s": round(predicted, 1),
                f"{name} error %": replay.percent(predicted, was)}
    return row | {"goal %": replay.GOAL_PERCENT, "verdict": replay.verdict(row)}


def predicted_rows(profiles, jobs, rounds, policy):
    """From the runs alone; and from a recording, of its own pass and of the other ways' passes."""
    rows = []
    for way in WAYS:
        real = [statistics.fmean(c) for c in zip(*(totals(r[way]) for r in rounds if way in r))]
        rows.append(predicted_row("alone", way, from_alone(profiles, jobs, way, policy), real))
    for number, taken in enumerate(rounds, 1):
        recorded = taken.get("threadtide")
        for way in ("threadtide", "none") if recorded else ():
            for other in rounds if way == "threadtide" else [taken]:
                if way in other:
                    guess = replay.predict(recorded["scenario"], other[way]["jobs"],
                                           policy if way == "threadtide" else "none")
                    rows.append(predicted_row(f"recording {number}", way, (
                        replay.makespan(guess), replay.turnaround(guess)), totals(other[way])))
    return rows


# ---- the whole ----

def parse_args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--folder", type=lambda f: pathlib.Path(f).resolve(), help="keep passes there, use those that it holds")
    p.add_argument("--passes", type=int, default=10 ** 6, help="run at most so many now")
    p.add_argument("--policy", default=POLICY)
    return p.parse_args()


def kept(path, make, left):
    """Returns what @path holds, else what make() gives if there is one left to be made."""
    if not path.exists() and left[0] > 0:
        left[0] -= 1
        engine = Engine("docker")
        try:
            engine.start().make_image()
            path.write_text(json.dumps(make(engine)))
        finally:
            engine.end()
    return json.loads(path.read_text()) if path.exists() else None


def main():
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # nothing stays
    args = parse_args()
    container_side.check()
    with tempfile.TemporaryDirectory(prefix="tide-bench-") as scratch:
        folder, left = args.folder or pathlib.Path(scratch), [args.passes]
        folder.mkdir(parents=True, exist_ok=True)
        profiles = kept(folder / "alone.json", lambda engine: alone(engine, folder), left)
        if not profiles:
            return
        jobs, rounds = mix(profiles), []
        for number in range(args.rounds):
            order = WAYS[number % 3:] + WAYS[:number % 3]
            taken = {way: kept(folder / f"{number + 1}-{way}.json",
                               lambda engine, way=way: measure(way, engine, folder, jobs, args.policy),
                               left) for way in order}
            rounds.append({way: t for way, t in taken.items() if t})
    if all(any(way in r for r in rounds) for way in WAYS):
        harness.save("container-queue", measured_rows(rounds))
        harness.save("container-queue-predicted", predicted_rows(profiles, jobs, rounds, args.policy))


if __name__ == "__main__":
    main()
