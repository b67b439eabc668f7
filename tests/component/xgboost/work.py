# SPDX-License-Identifier: Apache-2.0
"""A small XGBoost program: it trains, and each line of its stdin is a statement of Python that it runs in between.

    work.py                          says "begun"; `say(…)` in a statement answers
    work.py training STEPS [N]       with N threads all the time
"""
import ctypes
import hashlib
import importlib.util
import os
import pathlib
import re
import sys
import time

import numpy

sys.path.append(str(pathlib.Path(__file__).parent.parent))
from statements import elsewhere, goes_on, in_child, listen, say, team  # noqa: E402, F401 (statements use them)

if "TIDE_XGBOOST_LIMIT" in os.environ:  # before XGBoost is here: the agent cannot be first
    package = pathlib.Path(importlib.util.find_spec("xgboost").origin).parent.parent
    openmp = ctypes.CDLL(str(next(package.glob("xgboost.libs/libgomp*"))))
    openmp.omp_set_num_threads(int(os.environ["TIDE_XGBOOST_LIMIT"]))

import xgboost  # noqa: E402


def copy():
    maps = pathlib.Path("/proc/self/maps").read_text()
    return ctypes.CDLL(re.search(r"/\S*/(?:xgboost|scikit_learn)\.libs/libgomp\S*", maps)[0])


def number():
    """The calling thread's number for its next region: by Fortran's name, ctypes is told the program's own by the other."""
    return copy().omp_get_max_threads_()


own = int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0)))  # the agent may have changed it already


def data(rows=4000, columns=20):
    values = numpy.random.default_rng(1).random((rows, columns), dtype=numpy.float32)
    return values, numpy.sin(values.sum(axis=1) * 7).astype(numpy.float32)


def booster(matrix, **more):
    return xgboost.Booster({"tree_method": "hist", "max_depth": 5, "eta": 0.1, "seed": 3, **more}, [matrix])


def training(steps, **more):
    """The error of each step, and a sum of the model's bits."""
    matrix = xgboost.DMatrix(*data())
    trained, errors = booster(matrix, **more), []
    for step in range(steps):
        trained.update(matrix, step)
        errors.append(trained.eval(matrix, iteration=step).rsplit(":", 1)[1])
    return hashlib.sha256(trained.save_raw("ubj")).hexdigest(), *errors


class Parts(xgboost.DataIter):
    """Parts of a matrix, which XGBoost's own code asks Python for: the number must be one all the time."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds, self.at, self.seen = seconds, 0, []

    def next(self, input_data):
        if self.at == 8:
            return False
        if not self.seen:
            say("building")
        self.at += 1
        until = time.monotonic() + self.seconds / 32  # each part is asked for twice
        while time.monotonic() < until:
            self.seen.append(number())
        time.sleep(self.seconds / 32)
        values, labels = data(500)
        input_data(data=values, label=labels)
        return True

    def reset(self):
        self.at = 0


def numbers_within(seconds):
    """The numbers that were seen while XGBoost built a matrix from parts."""
    parts = Parts(seconds)
    xgboost.QuantileDMatrix(parts)
    return sorted(set(parts.seen))


def main():
    matrix = xgboost.DMatrix(*data(500))
    trained, step = booster(matrix), 0
    say("begun")
    while goes_on(globals()):
        trained.update(matrix, step)
        step += 1
        if step % 200 == 0:
            trained = booster(matrix)


if sys.argv[1:2] == ["training"]:
    more = {"nthread": int(sys.argv[3])} if len(sys.argv) > 3 else {}
    say(*training(int(sys.argv[2]), **more))
else:
    listen()
    main()
