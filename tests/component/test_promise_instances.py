# SPDX-License-Identifier: Apache-2.0
"""A prefork server with a promise of latency: few of its processes get many threads each, or many few, as requests come."""
import contextlib
import os
import socket
import subprocess
import sys
import threading

import pytest

from cli_tools import BUILD
from conftest import ROOT
from daemon import eventually

CPUS, WORKERS = 8, 4

# Each worker answers one connection at a time, by as many threads as it is told to have.
PREFORK = f"""
import ctypes, os, socket, sys, threading, time
import threadtide
lib = ctypes.CDLL(os.environ["TIDE_LIBRARY"])
listener = socket.create_server(("127.0.0.1", 0))
def work():
    ctypes.CDLL(None).prctl(1, 9)  # ends with its parent
    lib.tide_declare({CPUS})
    threadtide.on_change(lambda state: lib.tide_active(min({CPUS}, state.target)))
    while True:
        connection, _ = listener.accept()
        with threadtide.request():
            threads = min({CPUS}, threadtide.state().target)
            pool = [threading.Thread(target=time.sleep, args=(0.24 / threads,)) for _ in range(threads)]
            [t.start() for t in pool], [t.join() for t in pool]
        connection.sendall(b"%d\\n" % threads)
        connection.close()
for _ in range({WORKERS}):
    if os.fork() == 0:
        work()
print(listener.getsockname()[1], flush=True)
sys.stdin.read()
"""


class Clients:
    """So many ask one question after the other."""

    def __init__(self, port):
        self.port, self.number, self.failed = port, 0, []
        self.ended = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(i,), daemon=True) for i in range(WORKERS)]
        [thread.start() for thread in self.threads]

    def run(self, i):
        while not self.ended.wait(0.01):
            if i >= self.number:
                continue
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=60) as s:
                    s.makefile().readline()
            except OSError as e:
                self.failed.append(e)

    def end(self):
        self.ended.set()
        [thread.join(60) for thread in self.threads]
        assert not self.failed


@pytest.fixture
def server(place):
    tided = place.daemon("--cpus", f"0-{CPUS - 1}").start()
    env = {**os.environ, "TIDE_DIR": str(tided.dir), "PYTHONPATH": str(ROOT / "python"), "TIDE_LIBRARY": str(BUILD / "libtide.so.1")}
    run = subprocess.Popen([BUILD / "tide", "run", "--name", "server", "--slo", "p99=2s", "--", sys.executable, "-c", PREFORK], env=env,
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    clients = Clients(int(run.stdout.readline()))
    try:
        run.tide = lambda *words: subprocess.run([BUILD / "tide", *words], env=env, capture_output=True, text=True, check=True).stdout
        run.job = lambda: next(j for j in tided.jobs() if j["name"] == "server")
        yield run, clients
        clients.end()
    finally:
        clients.ended.set()
        with contextlib.suppress(OSError):
            run.stdin.close()
        run.wait(60)


def shape(job):
    chosen = (job["latency"] or {}).get("instances")
    return chosen and (chosen["at_a_time"], chosen["threads"])


def threads(job):
    return sorted(part["threads"] for part in job["split"] or [])


def test_one_request_at_a_time_gets_all_cores_and_many_get_few_each(server):
    run, clients = server
    clients.number = WORKERS
    eventually(lambda: (job := run.job())["latency"] and job["latency"]["in_flight"] == WORKERS and len(threads(job)) == WORKERS)
    assert shape(run.job()) is None and sum(threads(run.job())) == CPUS  # by what they use
    clients.number = 1
    eventually(lambda: shape(run.job()) == (1, CPUS) and threads(run.job()) == [CPUS] * WORKERS)
    told = run.tide("explain", "server")
    assert "; 1 process at a time with 8 threads each" in told and "among its processes by requests in flight: 8 python" in told
    assert "1 of its processes at a time with 8 threads each, by requests in flight" in told  # why they changed
    clients.number = WORKERS
    eventually(lambda: shape(run.job()) is None and sum(threads(run.job())) == CPUS)


def test_without_a_promise_threads_are_divided_by_what_processes_use(server):
    run, clients = server
    clients.number = 1
    eventually(lambda: shape(run.job()) == (1, CPUS))
    run.tide("set", "server", "--slo", "none")
    eventually(lambda: shape(run.job()) is None and sum(threads(run.job())) == CPUS)
    run.tide("set", "server", "--slo", "p99=2s")
    eventually(lambda: shape(run.job()) == (1, CPUS))
    run.tide("set", "server", "--threads", "4")
    eventually(lambda: shape(run.job()) is None and sum(threads(run.job())) == 4)
