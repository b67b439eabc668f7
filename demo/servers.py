# SPDX-License-Identifier: Apache-2.0
"""The mix that servers really run, for demo/run.py: TensorFlow, PyTorch, XGBoost and a forest, arrivals apart.

PyTorch and the others come from an interpreter of their own
(TIDE_PYTHON_TORCH, else .venv-torch: `scripts/setup.sh torch`), TensorFlow from the demo's.
"""

import collections.abc
import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import mix
import report
import side

ROOT = pathlib.Path(__file__).resolve().parent.parent
PYTHON = os.environ.get("TIDE_PYTHON_TORCH", str(ROOT / ".venv-torch" / "bin" / "python"))
TRAIN = pathlib.Path(__file__).with_name("train_servers.py")
KINDS = {"cnn": "TensorFlow", "transformer": "PyTorch", "xgboost": "XGBoost", "forest": "scikit-learn"}

MIX = (mix.Spec("cnn", 0), mix.Spec("transformer", 8), mix.Spec("xgboost", 16), mix.Spec("forest", 24))
QUICK = (mix.Spec("cnn", 0, 1), mix.Spec("transformer", 1, 1), mix.Spec("xgboost", 2, 5), mix.Spec("forest", 3, 5))


@dataclasses.dataclass(frozen=True)
class Case:
    """A mix, and the sides that can run and watch it."""

    specs: tuple
    quick: tuple
    mix: type
    stock: type
    threadtide: type
    table: collections.abc.Callable  # of the jobs
    measures: tuple  # those of report.MEASURES that mean something
    versions: collections.abc.Callable
    what: str
    how: str


class Job(mix.Job):
    def program(self):
        return [sys.executable, str(mix.TRAIN)] if KINDS[self.name] == "TensorFlow" else [PYTHON, str(TRAIN)]


class Mix(mix.Mix):
    job = Job


def missing():
    """Names what the mix needs and this machine lacks; None: nothing. Reads the libraries from the disk, too."""
    if not os.access(PYTHON, os.X_OK) or not os.path.isfile(PYTHON):
        return f"{PYTHON} is missing: run scripts/setup.sh torch"
    done = subprocess.run([PYTHON, "-c", "import torch, xgboost, sklearn.ensemble"], capture_output=True, text=True)
    return (done.stderr.strip().splitlines() or ["it does not start"])[-1] if done.returncode else None


class Stock(side.Stock):
    """A program has as many threads as cores, once it has made them; those without a name are counted."""

    def observe(self, pids):
        others = {name: pid for name, pid in pids.items() if KINDS[name] != "TensorFlow"}
        seen = super().observe({name: pid for name, pid in pids.items() if name not in others})
        for name, pid in others.items():
            threads = min(sum(1 for _ in side.threads_of(pid, "comm")), len(os.sched_getaffinity(pid)))
            if threads:
                seen[name] = {"threads": threads, "cores": side.cores_text(pid), "reason": ""}
        return seen


class Threadtide(side.Threadtide):
    """A job without a malleable runtime has the threads that it was started with, or one for each of its cores."""

    def observe(self, pids):
        answer = subprocess.run([self.tide, "ps", "--json"], env=self.environment(), check=False,
                                capture_output=True, text=True, timeout=side.CALL_TIMEOUT_S)
        jobs = json.loads(answer.stdout) if answer.returncode == 0 else []
        return {job["name"]: {"threads": job["active"] or job["sized"] or -int(-job["allowed"] // 1),
                              "cores": job["cores"], "reason": job["reason"]}
                for job in jobs if job["name"] in pids and job["state"] != "starting"}


def table(rounds):
    """Each program's turnaround both ways, and its gain: as report.job_table(), with what it runs."""
    rows = report.job_table(rounds)
    return [[row[0], "runtime" if n == 0 else KINDS[row[0]], *row[1:]] for n, row in enumerate(rows)]


def versions():
    """Versions of the packages, which are asked without being loaded."""
    code = "import importlib.metadata as m, json; print(json.dumps({n: m.version(n) for n in ('torch', 'xgboost', 'scikit-learn')}))"
    return json.loads(subprocess.run([PYTHON, "-c", code], check=True, capture_output=True, text=True).stdout)


CASE = Case(specs=MIX, quick=QUICK, mix=Mix, stock=Stock, threadtide=Threadtide, table=table,
            measures=tuple(m for m in report.MEASURES if m[0] != "total steps/s"),  # steps of different kinds
            versions=versions, what="TensorFlow, PyTorch, XGBoost and a forest",
            how="Each starts with a thread for every core. Threadtide chooses their threads, and changes those of three while they train.")
