# SPDX-License-Identifier: Apache-2.0
"""A program that has its work done by other processes or threads, and runs what stdin tells it in between.

    host.py plain                  says what work(0 … 5) comes to, in this process alone
    host.py KIND                   begins, says "begun"; each(function, arguments) in a statement
KIND: joblib, loader, fork, spawn, forkserver, dask-processes, dask-threads, ray
"""
import contextlib
import multiprocessing
import os
import pathlib
import signal
import sys
import tempfile
import time

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parent.parent)]
from statements import goes_on, listen, say  # noqa: E402
from work import number, process, work  # noqa: E402, F401 (statements use them)

WORKERS = 2


@contextlib.contextmanager
def with_joblib():
    import joblib
    with joblib.Parallel(n_jobs=WORKERS) as parallel:
        yield lambda function, arguments: parallel(joblib.delayed(function)(a) for a in arguments)


@contextlib.contextmanager
def with_loader():
    import torch

    class Items(torch.utils.data.Dataset):
        def __init__(self, function, arguments):
            self.function, self.arguments = function, list(arguments)

        def __len__(self):
            return len(self.arguments)

        def __getitem__(self, i):
            return self.function(self.arguments[i])
    yield lambda function, arguments: list(torch.utils.data.DataLoader(
        Items(function, arguments), batch_size=None, num_workers=WORKERS, collate_fn=lambda item: item))


@contextlib.contextmanager
def with_pool(kind):
    import torch  # noqa: F401 (a fork has it from here)
    with multiprocessing.get_context(kind).Pool(WORKERS) as pool:
        yield lambda function, arguments: pool.map(function, arguments, 1)


@contextlib.contextmanager
def with_dask(kind):
    import distributed
    with distributed.LocalCluster(n_workers=WORKERS, threads_per_worker=2, processes=kind == "processes",
                                  dashboard_address=None, silence_logs=50) as cluster:
        with distributed.Client(cluster) as client:
            yield lambda function, arguments: client.gather(client.map(function, arguments, pure=False))


@contextlib.contextmanager
def with_ray():
    import ray
    with tempfile.TemporaryDirectory(prefix="tide-ray-") as folder:  # a socket's path has to be short
        ray.init(num_cpus=WORKERS, include_dashboard=False, logging_level="error", log_to_driver=False, _temp_dir=folder)
        try:
            yield lambda function, arguments: ray.get([ray.remote(function).remote(a) for a in arguments])
        finally:
            ray.shutdown()


def kills_one(pid):
    """Ends a worker in the middle of its work."""
    def soon():
        time.sleep(0.3)
        os.kill(pid, signal.SIGKILL)
    import threading
    threading.Thread(target=soon).start()


def main(kind):
    global each
    name, _, more = kind.partition("-")
    make = {"joblib": with_joblib, "loader": with_loader, "ray": with_ray, "dask": lambda: with_dask(more)}
    with make.get(name, lambda: with_pool(name))() as each:
        say("begun")
        while goes_on(globals()):
            time.sleep(0.02)


if __name__ == "__main__":
    if sys.argv[1] == "plain":
        say(*(figure for seed in range(6) for figure in work(seed)))
    else:
        listen()
        main(sys.argv[1])
        say("over")
