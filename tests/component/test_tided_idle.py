# SPDX-License-Identifier: Apache-2.0
"""tided lends idle cores as extra threads. What runs and waits stands in files of the test's own (TIDE_IDLE_ROOT),
written on while it goes: whatever else this machine does counts nothing."""
import os
import re
import threading
import time

import pytest

from daemon import eventually

CPUS = 8


class Load:
    """proc/stat and the schedstat of jobs' processes, as if each kept so many cores busy and waited for so many."""

    def __init__(self, root):
        self.root, self.jobs, self.idle, self.cpu = root, {}, 0.0, 0
        self.sums, self.idle_s, self.ended = {}, [0.0] * CPUS, threading.Event()
        (root / "proc").mkdir()
        self.write(0)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def set(self, free, /, cpu=0, **jobs):
        """@free cores, all as if of @cpu; for each job, by name: busy cores, or (busy, waiting)."""
        self.idle, self.cpu = free, cpu
        self.jobs = {job: value if isinstance(value, tuple) else (value, 0) for job, value in jobs.items()}

    def of(self, **jobs):
        """The peers' pids by their jobs' names."""
        self.pids = {name: job.peer.pid for name, job in jobs.items()}
        for pid in self.pids.values():
            (self.root / f"proc/{pid}/task/{pid}").mkdir(parents=True)

    def put(self, path, text):
        new = self.root / "new"
        new.write_text(text)
        new.rename(self.root / path)

    def write(self, passed):
        self.idle_s[self.cpu] += self.idle * passed
        ticks = [int(s * os.sysconf("SC_CLK_TCK")) for s in self.idle_s]
        rows = [f"cpu  0 0 0 {sum(ticks)} 0 0 0 0 0 0"]
        rows += [f"cpu{n} 0 0 0 {ticks[n]} 0 0 0 0 0 0" for n in range(CPUS)]
        self.put("proc/stat", "\n".join(rows) + "\nintr 1 2\n")
        for job, (busy, wait) in list(self.jobs.items()):
            sums = self.sums.setdefault(job, [0.0, 0.0])
            sums[0] += busy * passed
            sums[1] += wait * passed
            pid = self.pids[job]
            self.put(f"proc/{pid}/task/{pid}/schedstat", f"{int(sums[0] * 1e9)} {int(sums[1] * 1e9)} 1\n")

    def run(self):
        last = time.monotonic()
        while not self.ended.wait(0.02):
            now = time.monotonic()
            self.write(now - last)
            last = now

    def end(self):
        self.ended.set()
        self.thread.join()


@pytest.fixture
def load(tmp_path):
    load = Load(tmp_path)
    yield load
    load.end()


@pytest.fixture
def start(place, load):
    def start(*options):
        tided = place.daemon("--cpus", f"0-{CPUS - 1}", *options)
        tided.env["TIDE_IDLE_ROOT"] = str(load.root)
        return tided.start()
    return start


def two(tided, load, waits=0, **request):
    """Jobs of four cores each: the first could use more, the second one is in a serial phase. @waits: of the first one's
    threads so many wait beside idle cores, as the kernel has not moved them."""
    jobs = tided.job(name="busy", **request), tided.job(name="idle")
    for job in jobs:
        job.target(4)
    load.of(busy=jobs[0], idle=jobs[1])
    load.set(3, busy=(4, waits), idle=1)
    return jobs


@pytest.mark.parametrize("waits", (0, 0.4))
def test_idle_cores_are_lent_and_come_back(start, load, waits):
    tided = start("--idle-cores", "lend")
    busy, idle = two(tided, load, waits)
    job = busy.target(7)
    assert job["extra"] == 3 and job["reason"].endswith("; +3 from idle cores"), job
    assert idle.get()["extra"] == 0
    assert busy.changes()[-1]["reason"] == "+3 from idle cores"
    assert re.search(r'tide_job_threads{[^}]*name="busy"[^}]*kind="extra"} 3\n', tided.metrics())
    # The second job is back, and has not all of its cores.
    load.set(0, busy=4.5, idle=(3.5, 0.5))
    job = busy.target(4)
    assert job["extra"] == 0 and "idle cores" not in job["reason"], job
    assert busy.changes()[-1]["reason"] == "idle cores taken back: a job waited for a core"
    assert sum("idle cores" in c["reason"] for c in busy.changes()) == 1  # one row, and not one each time


def test_a_process_of_no_job_is_given_way(start, load):
    busy, _ = two(start("--idle-cores", "lend"), load)
    busy.target(7)
    load.set(0, busy=4.0, idle=1)
    busy.target(4)
    assert busy.changes()[-1]["reason"] == "idle cores taken back: no core is idle any more"


def test_an_arrival_ends_a_loan_at_once(start, load):
    tided = start("--idle-cores", "lend")
    busy, _ = two(tided, load)
    busy.target(7)
    tided.job(name="third")
    job = busy.target(3)
    assert job["extra"] == 0


def test_what_was_asked_for_bounds_a_loan(start, load):
    tided = start("--idle-cores", "lend")
    busy, _ = two(tided, load, max=5)
    assert busy.target(5)["extra"] == 1
    assert busy.patch(threads=4)[0] == 200  # a pin: no thread more
    assert busy.target(4)["extra"] == 0
    assert busy.patch(auto=True)[0] == 200
    assert busy.target(5)["extra"] == 1
    assert busy.patch(max=None)[0] == 200
    busy.target(7)


def test_cores_of_an_exclusive_job_are_nobody_elses(start, load):
    """Its own stay idle; the two that share the rest use it."""
    tided = start("--idle-cores", "lend")
    jobs = {name: tided.job(name=name) for name in ("a", "b")}
    jobs["alone"] = tided.job(name="alone", placement="exclusive")
    for job in jobs.values():
        job.settled()
    share = jobs["a"].get()["target"]
    load.of(**jobs)
    own = int(jobs["alone"].get()["cores"].split("-")[0])
    assert own < CPUS - 1
    load.set(2, cpu=own, a=share, b=share, alone=0.1)
    time.sleep(1.5)
    assert [job.get()["extra"] for job in jobs.values()] == [0, 0, 0]
    load.set(2, cpu=CPUS - 1, a=share, b=share, alone=3)
    eventually(lambda: jobs["a"].get()["extra"] + jobs["b"].get()["extra"] == 2)
    assert jobs["alone"].get()["extra"] == 0


def test_idle_cores_are_lent_unless_they_are_to_be_left(start, load):
    busy, _ = two(start(), load)
    assert busy.target(7)["extra"] == 3


def test_nothing_is_lent_where_idle_cores_are_left(start, load):
    busy, _ = two(start("--idle-cores", "leave"), load)
    time.sleep(2)
    job = busy.get()
    assert (job["target"], job["extra"]) == (4, 0)
