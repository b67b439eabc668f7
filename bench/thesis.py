# SPDX-License-Identifier: Apache-2.0
"""The thesis' scheduler on its own request lists: calibrated on prueba1 and 2, predicting 3 and 5.

The rules of its scheduler were read off all logs; of numbers, nothing of prueba3 and 5 is used but
their request lists. From prueba1 and 2:

- time on 2, 3, 4, 8, 16 cores (prueba10.json, `speedups`); its cores are 1 for the inter-op thread,
  which computes nothing, and the rest for intra-op threads, so 2 cores are one computing thread;
- 2.7 s from a decision to a running container, 10 s until the end of a job is noticed;
- the CPU time that parallel running wastes: without control, 7 threads of 16 jobs on 16 cores;
- what a job gains that is given cores while it runs. TensorFlow is built with the threads of its
  start: nothing for the original; ×1.6 for the malleable one (median of prueba2's growths), with 2
  or with 6 cores more.

Three ways to say this in a scenario, from plain to fitted:

  plain     the policies as they are; a malleable job loses 24 s at a resize (4 s, after 20 s).
  threads   besides, jobs have the speed-up of the threads that they started with (above), found by
            simulating the moldable twin first. An original job is given cores too, and wastes them.
  noticed   besides, ends are noticed together every 10 s (`resolution`) and work spreads by 0.5 %,
            as in prueba2; 20 seeds.
"""

import csv
import random
import statistics

from sim_runs import SCENARIOS, load, simulate

LISTS = ("prueba1", "prueba2-32", "prueba3", "prueba5")
# log: its request list, its TensorFlow
LOGS = {
    "prueba1-16-control": ("prueba1", "original"),
    "prueba2-16-original": ("prueba2", "original"),
    "prueba2-32-original": ("prueba2-32", "original"),
    "prueba3-64-original": ("prueba3", "original"),
    "prueba5-128-original": ("prueba5", "original"),
    "prueba2-16-maleable": ("prueba2", "malleable"),
    "prueba2-32-maleable": ("prueba2-32", "malleable"),
    "prueba3-64-maleable": ("prueba3", "malleable"),
    "prueba5-128-maleable": ("prueba5", "malleable"),
}
NO_CONTROL = "prueba1-16-notcontrol"
WORK_S = 776  # of one computing thread
GAIN = {"original": 1.0, "malleable": 1.6}
RESIZE_COST = {"original": "0s", "malleable": "24s"}
NOTICE_S, SPREAD, SPREAD_SEEDS = 10, 0.005, 20


# ---- data -----------------------------------------------------------------------------------------

def read_csv(name):
    with (SCENARIOS / "thesis" / name).open() as file:
        return list(csv.DictReader(file))


def requests(name):
    return [{"name": r["name"], "arrival": r["arrival"], "request": int(r["request"])}
            for r in read_csv(f"requests-{name}.csv")]


def measured(log):
    return {f"job-{r['job']}": {k: float(r[k]) for k in ("arrival", "start", "finish")}
            for r in read_csv(f"measured-{log}.csv")}


def totals(log):
    """Makespan and mean turnaround; a job that the log lost counts in neither."""
    jobs = measured(log).values()
    return (max(j["finish"] for j in jobs) - min(j["arrival"] for j in jobs),
            statistics.mean(j["finish"] - j["arrival"] for j in jobs))


# ---- scenarios ------------------------------------------------------------------------------------

def machine_of(file, **defaults):
    scenario = load(f"thesis/{file}.json")
    del scenario["workload"]
    scenario["defaults"] |= {"work": f"{WORK_S}s", **defaults}
    return scenario


def under_threadtide(name):
    """A core for each computing thread; without control, the 7 of a request for 8."""
    return machine_of("prueba10-threads", threads=7) | {"jobs": requests(name)}


def without_waste(name):
    """As slow without control, but because there is more work, not because threads cost CPU time."""
    scenario = under_threadtide(name)
    waste = scenario["defaults"].pop("waste")
    factor = 1 + waste * (1 - 1 / 7)
    scenario["defaults"]["work"] = f"{WORK_S * factor}s"
    points = [[k, v * factor] for k, v in scenario["speedups"]["resnet"]["table"]]
    scenario["speedups"]["resnet"]["table"] = [[k, min(k, v)] for k, v in points]
    return scenario


def speed(table, cores):
    """On the line between the points around it, as the simulator has it."""
    for (a, low), (b, high) in zip(table, table[1:]):
        if a <= cores <= b:
            return low + (high - low) * (cores - a) / (b - a)
    return table[-1][1]


def started_with(table, cores, gain):
    """The speed-up of a job with the threads of @cores, which gains so much from more cores."""
    top = gain * speed(table, cores)
    return {"table": [[k, speed(table, k) if k <= cores else min(top, speed(table, k))]
                      for k in range(1, 17)]}


# ---- the three ways -------------------------------------------------------------------------------

def result(scenario, policy):
    runs = simulate(scenario, [policy], jobs=True)
    return runs[policy]["makespan"][0], runs[policy]["turnaround"][0], runs.jobs


def plain(name, variant, policy=None):
    scenario = machine_of("prueba10", resize_cost=RESIZE_COST[variant]) | {"jobs": requests(name)}
    kind = "moldable" if variant == "original" else "malleable"
    return scenario, policy or f"fcfs/max-prop/{kind}/grow"


def with_threads_of_start(scenario, reassignment, variant, seed=1):
    """The jobs, listed, with the speed-up of what the moldable twin starts them with."""
    table = scenario["speedups"]["resnet"]["table"]
    policy = f"fcfs/{reassignment}/moldable/grow"
    twins = simulate(scenario, [policy], (seed, seed), jobs=True).jobs
    scenario = {k: v for k, v in scenario.items() if k != "workload"} | {"jobs": []}
    for twin in twins:
        cores = round(twin["core_seconds"] / twin["execution"])
        scenario["speedups"][f"of-{cores}"] = started_with(table, cores, GAIN[variant])
        scenario["jobs"].append({"name": twin["name"], "arrival": f"{twin['arrival']}s",
                                 "request": int(twin["request"]), "speedup": f"of-{cores}"})
    return scenario, f"fcfs/{reassignment}/malleable/grow"


def threads(name, variant):
    return with_threads_of_start(plain(name, variant)[0], "max-prop", variant)


def noticed(name, variant, seed):
    scenario, policy = threads(name, variant)
    rng = random.Random(seed)
    scenario["resolution"] = f"{NOTICE_S}s"
    scenario["defaults"]["start_cost"] = "2.7s"
    for job in scenario["jobs"]:
        job["work"] = f"{WORK_S * rng.gauss(1, SPREAD):.3f}s"
    return scenario, policy


def start_error(scenario, jobs, log):
    """Median of |predicted/measured − 1|; a log's start is that of the container's work."""
    cost = float(scenario["defaults"]["start_cost"].rstrip("s"))
    was = measured(log)
    return statistics.median(abs((j["start"] + cost) / was[j["name"]]["start"] - 1)
                             for j in jobs if j["name"] in was)


def predict(log, way):
    """Makespan, turnaround and median error of start times; medians over the seeds, if any."""
    name, variant = LOGS[log]
    if way == "noticed":
        made = [noticed(name, variant, seed) for seed in range(1, SPREAD_SEEDS + 1)]
    elif log == "prueba1-16-control":
        made = [plain(name, variant, "fcfs/strict/rigid")]
    else:
        made = [(threads if way == "threads" else plain)(name, variant)]
    figures = []
    for scenario, policy in made:
        makespan, turnaround, jobs = result(scenario, policy)
        figures.append((makespan, turnaround, start_error(scenario, jobs, log)))
    return [statistics.median(column) for column in zip(*figures)]


def predictions(name):
    """(log, policy as a reader knows it, predicted totals) of the logs of a request list."""
    for log, (its_list, variant) in LOGS.items():
        if its_list == name:
            policy = "strict" if "control" in log else f"max-prop, {variant}"
            yield log, policy, predict(log, "threads")[:2]


# ---- the table ------------------------------------------------------------------------------------

def no_control():
    """Job 9 was overlooked until the machine was empty; it comes here when it was begun."""
    was = measured(NO_CONTROL)
    scenario = under_threadtide("prueba1")
    late = next(j for j in scenario["jobs"] if j["name"] == "job-9")
    late["arrival"] = f"{was['job-9']['start'] - 2.7:.1f}s"
    makespan, _, jobs = result(scenario, "none")
    return (makespan, statistics.mean(j["finish"] - was[j["name"]]["arrival"] for j in jobs),
            start_error(scenario, jobs, NO_CONTROL))


def row(log, way, predicted, role):
    was = totals(log)
    cells = [log.replace("maleable", "malleable"), role, way]
    for then, now in zip(was, predicted):
        cells += [f"{then:.0f}", f"{now:.0f}", f"{now / then - 1:+.1%}"]
    return cells + [f"{predicted[2]:.1%}"]


def calibration():
    rows = [row(NO_CONTROL, "plain", no_control(), "calibration")]
    for log in LOGS:
        role = "calibration" if log.startswith(("prueba1", "prueba2")) else "prediction"
        for way in ("plain",) if log == "prueba1-16-control" else ("plain", "threads", "noticed"):
            rows.append(row(log, way, predict(log, way), role))
    return {"title": "Its own scheduler, simulated and measured",
            "goal": "no control and strict within 10 %, max_prop within 15 %, median error of start "
                    "times ≤ 10 %",
            "note": "The three ways are described in bench/thesis.py; `noticed` is the median of 20 "
                    "seeds.",
            "columns": ["run", "", "way", "makespan measured s", "simulated s", "error",
                        "turnaround measured s", "simulated s", "error", "start times"],
            "rows": rows}
