# SPDX-License-Identifier: Apache-2.0
"""Runs `tide sim` and compares its runs, seed by seed."""

import csv
import json
import math
import os
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIDE = pathlib.Path(os.environ.get("TIDE_BUILD_DIR", ROOT / "build")).resolve() / "tide"
SCENARIOS = ROOT / "bench" / "scenarios"


class Runs(dict):
    """Maps a policy to a list for each metric, one value a seed. `jobs`: by policy and seed, job by job."""

    jobs = None


def simulate(scenario, policies, seeds=(1, 1), jobs=False):
    """@scenario as tide-sim(1) has it, as a dictionary; @seeds first and last."""
    with tempfile.TemporaryDirectory(prefix="tide-reproduction-") as folder:
        path = pathlib.Path(folder) / "scenario.json"
        path.write_text(json.dumps(scenario))
        command = [TIDE, "sim", path, "--json", "--seeds", f"{seeds[0]}-{seeds[1]}",
                   "--policy", ",".join(policies)]
        table = pathlib.Path(folder) / "jobs.csv"
        if jobs:
            command += ["--csv", table]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        runs = Runs()
        for given, entry in zip(policies, json.loads(done.stdout)["policies"], strict=True):
            runs[given] = {name: [run[name] for run in entry["runs"]]
                           for name in entry["runs"][0] if name not in ("seed", "stuck")}
        if jobs:
            runs.jobs = [{"name": row["name"], **{key: float(row[key]) for key in
                         ("arrival", "start", "finish", "execution", "core_seconds", "request")}}
                         for row in csv.DictReader(table.open())]
    return runs


def load(name):
    return json.loads((SCENARIOS / name).read_text())


# Two-sided 95 % quantile of Student's t by degrees of freedom; in between, the larger one.
T95 = {4: 2.776, 9: 2.262, 19: 2.093, 29: 2.045}


def gain(before, after):
    """How many times less @after is than @before: mean of the ratios, half its 95 % interval."""
    ratios = [b / a for b, a in zip(before, after, strict=True)]
    n = len(ratios)
    if n < 2:
        return ratios[0], None
    t = T95[max(k for k in T95 if k <= max(n - 1, 4))]
    return statistics.mean(ratios), t * statistics.stdev(ratios) / math.sqrt(n)


def mean(values):
    return statistics.mean(values)
