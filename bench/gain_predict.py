#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `tide sim` predicts of the ten mixes of `make bench-gain`, beside what their runs took.

    curves of single programs, jobs of a round -> scenario() -> tide sim -> makespan, mean turnaround
                                                       beside the same of the round -> rows()

    gain_predict.py      of the runs in bench/results/gain-mixes.json; gain_runs.py does it at its end

A scenario knows each program by its runs alone: steps in a second with 1, 2, … threads, and how long it takes to start. One
number of the machine is not known from single runs: what threads beyond the cores cost. It is chosen once for a number of
cores, from the first round of each mix with no control (the recorded pass), and that round is not judged. Goal: makespan and
mean turnaround of two thirds of all other runs within 10 %, of all within 20 %, no control included.

Not in a scenario: a program that spins, or suffers from others more than the average; a stranger is a job of one core there, which
tided, unlike the simulator's policy, does not know. A program that rests is one that sleeps for that part of its time.
"""

import json
import math
import statistics

import gain_mixes as mixes
import harness
import sim_runs

# Sides that the simulator has, and their names there; tided lends idle cores unless it is told not to.
POLICIES = {"none": "none", "equal": "equal+idle", "equal+lend": "equal+idle", "equal+leave": "equal", "response": "response+idle"}
LOSSES = (0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2, 3, 5, 8)
NEAR, FAR, NEAR_SHARE = 0.10, 0.20, 2 / 3
STRANGER = "stranger"


def scenario(mix, jobs, known, starts, cores, loss=0):
    """@starts: {program: seconds}, of one that is missing 0. @loss: as the machine's oversubscription."""
    def described(job):
        computing = job.steps / known.rate(job.program, 1)
        resting = (job.steps - 1) // job.rest[0] * job.rest[1] if job.rest else 0
        return {"name": job.name, "arrival": job.arrival, "work": computing + resting, "speedup": job.program, "user": job.user,
                "start_work": starts.get(job.program, 0), "idle": resting / (computing + resting), "preemptible": False}
    listed = [described(job) for job in jobs]
    if mixes.MIXES[mix].stranger:
        total = sum(job["work"] + job["start_work"] for job in listed) + max(job["arrival"] for job in listed)
        listed.append({"name": STRANGER, "work": 20 * total, "speedup": 0, "malleability": "rigid", "request": 1, "threads": 1})
    table = {program: {"table": [[n, rate / of[min(of)]] for n, rate in sorted(of.items())]} for program, of in known.rates.items()}
    return {"machine": {"cores": cores, "oversubscription": loss},
            "speedups": {job.program: table[job.program] for job in jobs}, "jobs": listed}


def predicted(described, side):
    """{"makespan", "turnaround"} in seconds."""
    rows = [row for row in sim_runs.simulate(described, [POLICIES[side]], jobs=True).jobs if row["name"] != STRANGER]
    return {"makespan": max(row["finish"] for row in rows) - min(row["arrival"] for row in rows),
            "turnaround": statistics.fmean(row["finish"] - row["arrival"] for row in rows)}


def jobs_of(of):
    return [mixes.Job(**{**job, "rest": tuple(job["rest"])}) for job in of["jobs"]]


def passes(runs, cores):
    """The first round of each mix that has a run with no control: {mix: (round, that run)}."""
    found = {}
    for of in sorted((of for of in runs if of["cores"] == cores), key=lambda of: of["round"]):
        for run in of["runs"]:
            if run["side"] == "none":
                found.setdefault(of["mix"], (of, run))
    return found


def fitted_loss(runs, known, starts, cores):
    """The cost of threads beyond the cores with which the makespans of the recorded pass come out best."""
    def error(loss):
        return statistics.fmean(abs(math.log(predicted(scenario(mix, jobs_of(of), known, starts, cores, loss), "none")["makespan"] /
                                             run["makespan"])) for mix, (of, run) in passes(runs, cores).items())
    return min(LOSSES, key=error)


def verdict(errors):
    """The goal, judged by relative errors."""
    near, far = sum(e <= NEAR for e in errors) / len(errors), sum(e <= FAR for e in errors) / len(errors)
    return {"within 10 %": round(near, 3), "within 20 %": round(far, 3), "worst": f"{100 * max(errors):.0f} %",
            "goal": "2/3 within 10 %, all within 20 %: " + ("met" if near >= NEAR_SHARE and far == 1 else "missed")}


def rows(runs, known, starts, cores):
    """A row for each mix and side, and one for all; [] where there is no run but of the recorded pass."""
    passed = {id(of) for of, _ in passes(runs, cores).values()}
    judged = [of for of in runs if of["cores"] == cores and id(of) not in passed]
    if not judged or not passed:
        return []
    loss, found, errors = fitted_loss(runs, known, starts, cores), {}, []
    for of in judged:
        described = scenario(of["mix"], jobs_of(of), known, starts, cores, loss)
        for run in (run for run in of["runs"] if run["side"] in POLICIES):
            found.setdefault((of["mix"], run["side"]), []).append((predicted(described, run["side"]), run))
    table = []
    for (mix, side), pairs in found.items():
        row = {"model": f"{mix}, {cores} cores: {side}", "rounds": len(pairs)}
        for measure in ("makespan", "turnaround"):
            ratios = [said[measure] / run[measure] for said, run in pairs]
            errors += [abs(ratio - 1) for ratio in ratios]
            row |= {f"{measure} predicted / measured": round(statistics.median(ratios), 3),
                    f"{measure}: least and most": f"{min(ratios):.2f} … {max(ratios):.2f}"}
        table.append(row)
    return [*table, {"model": f"all mixes, {cores} cores", "oversubscription": loss, "figures": len(errors), **verdict(errors)}]


def save(runs, known, starts, cores):
    if found := rows(runs, known, starts, cores):
        harness.save("gain-predicted", found)
        print("prediction:", "  ".join(f"{key}: {value}" for key, value in found[-1].items()))


def main():
    runs, of_curves = harness.saved_runs("gain-mixes"), harness.RESULTS / "gain-curves.json"
    if not runs or not of_curves.exists():
        raise SystemExit(f"gain_predict.py: {harness.RESULTS} has no gain-mixes.json and gain-curves.json; 'make bench-gain' makes them")
    for cores in sorted({of["cores"] for of in runs}):
        curves = [row for row in json.loads(of_curves.read_text())["rows"] if row["cores"] == cores]
        save(runs, mixes.Curves({row["program"]: row["rates"] for row in curves}),
             {row["program"]: row.get("start_s", 0) for row in curves}, cores)


if __name__ == "__main__":
    main()
