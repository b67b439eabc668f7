# SPDX-License-Identifier: Apache-2.0
"""A small XGBoost program: it trains, and each line of its stdin is a statement of Python that it runs in between.

    work.py                          says "begun"; `say(…)` in a statement answers
    work.py training STEPS [N]       with N threads all the time
"""
import ctypes
import hashlib
import os
import pathlib
import queue
import re
import sys
import threading
import time

import numpy
import xgboost

if "TIDE_XGBOOST_LIMIT" in os.environ:
    import threadpoolctl
    threadpoolctl.threadpool_limits(int(os.environ["TIDE_XGBOOST_LIMIT"]), "openmp")

lines = queue.Queue()


def say(*words):
    print(*words, flush=True)


def copy():
    maps = pathlib.Path("/proc/self/maps").read_text()
    return ctypes.CDLL(re.search(r"/\S*/(?:xgboost|scikit_learn)\.libs/libgomp\S*", maps)[0])


def number():
    """The calling thread's number for its next region."""
    return copy().omp_get_max_threads()


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


def team():
    """Threads that take part in a training: those that use processor time meanwhile."""
    def times():
        found = {}
        others = {t.native_id for t in threading.enumerate() if t is not threading.main_thread()}
        for task in pathlib.Path("/proc/self/task").iterdir():
            try:
                if int(task.name) not in others and (task / "comm").read_text() != "tide-agent\n":
                    found[task.name] = (task / "schedstat").read_text().split()[0]
            except OSError:
                pass  # it has ended
        return found
    before = times()
    training(3)
    return sum(before.get(t) != value for t, value in times().items())


def elsewhere(function):
    """What @function returns in a new thread."""
    result = []
    thread = threading.Thread(target=lambda: result.append(function()))
    thread.start()
    thread.join()
    return result[0]


def in_child():
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(theirs, str(number()).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    return os.read(ours, 100).decode()


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
    while True:
        trained.update(matrix, step)
        step += 1
        if step % 200 == 0:
            trained = booster(matrix)
        if not lines.empty():
            line = lines.get()
            if line is None:
                return
            exec(line, globals())


if sys.argv[1:2] == ["training"]:
    more = {"nthread": int(sys.argv[3])} if len(sys.argv) > 3 else {}
    say(*training(int(sys.argv[2]), **more))
else:
    stdin = os.fdopen(os.dup(0))  # children of a fork close sys.stdin, which a thread is not to hold then
    threading.Thread(target=lambda: ([lines.put(line) for line in stdin], lines.put(None)), daemon=True).start()
    main()
