# SPDX-License-Identifier: Apache-2.0
"""Submitted processes that a policy pauses: they stand still, all of them, and go on as the same
processes; whatever becomes of the daemon, they do not stay frozen."""
import contextlib
import os
import pathlib
import signal
import time

import pytest

from cli_tools import Queue, name_of, tide  # noqa: F401

NOBODY = 65534
FREEZER = pathlib.Path("/sys/fs/cgroup/freezer")
# The registered process is a shell; what spins is its child, and an orphan that has left it.
SPINNER = "(while :; do :; done) & (nohup sh -c 'while :; do sleep 0.01; done' &); wait"


def writable():
    return os.geteuid() == 0 and os.access(FREEZER if FREEZER.exists() else "/sys/fs/cgroup", os.W_OK)


V1 = pytest.mark.skipif(not FREEZER.exists(), reason="looks at a group of cgroup v1")
pytestmark = pytest.mark.skipif(not writable(), reason="needs root and a freezer")


def knob(pid):
    lines = pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    name = next(line.split(":", 2)[2] for line in lines if ":freezer:" in line)
    return FREEZER / name[1:] / "freezer.state"


class Priority(Queue):
    """Two jobs do not fit; the more urgent one runs."""

    def start(self, *more):
        return super().start("--cpus", "0-1", "--policy", "priority", *more)

    def spinner(self):
        """A job that is busy, and one that would be more urgent waits for a `pause`."""
        job = self.submit("--request", 2, "--", "sh", "-c", SPINNER)
        self.tide.wait(lambda: len(self.family(job)) >= 4)
        return job

    def urgent(self):
        return self.submit("--request", 2, "--priority", 5, "--name", "urgent", "--", "sleep", 600)

    def family(self, job):
        """pid → processor time in ticks, of everything that the job has started."""
        mark = f"TIDE_JOB_ID={job}\0".encode()
        found = {}
        for pid in self.processes():
            try:
                folder = pathlib.Path(f"/proc/{pid}")
                if mark in (folder / "environ").read_bytes():
                    fields = (folder / "stat").read_text().rpartition(")")[2].split()
                    found[pid] = sum(map(int, fields[11:15]))
            except OSError:
                pass
        return found

    def stands_still(self, job):
        before = self.family(job)
        time.sleep(0.2)
        return self.family(job) == before

    def paused(self, job):
        self.waits_for(job, "paused")
        assert self.stands_still(job)

    def goes_on(self, job, pids):
        self.tide.wait(lambda: not self.stands_still(job))
        assert pids == self.job(job)["pids"]

    def group(self, job):
        """The knob of its group on v1."""
        return knob(self.job(job)["pids"][0])

    def end(self):
        """Nothing stays frozen, also where a test failed without daemon and guardian."""
        for pid in self.processes():
            with contextlib.suppress(OSError):  # it may end at this moment
                if FREEZER.exists() and knob(pid).exists():
                    knob(pid).write_text("THAWED")
        super().end()


@pytest.fixture
def place(tide):
    result = Priority(tide)
    yield result
    result.end()


@pytest.fixture
def queue(place):
    return place.start()


def test_a_policy_pauses_all_of_a_submitted_job_and_lets_it_go_on(queue):
    job = queue.spinner()
    pids, processes = queue.job(job)["pids"], set(queue.family(job))
    urgent = queue.urgent()
    queue.waits_for(urgent, "starting", "rigid")
    queue.paused(job)
    assert [row["id"] for row in queue.waiting()] == [job]
    assert "paused" in queue.tide("explain", job).stdout.splitlines()[0]
    held = queue.tide("hold", job)
    assert held.returncode != 0 and "has started" in held.stderr
    assert queue.tide("cancel", urgent).returncode == 0
    queue.goes_on(job, pids)
    assert processes >= set(pids) and pids[0] in queue.family(job)
    assert queue.job(job)["state"] in ("starting", "rigid")


def test_who_is_cancelled_while_paused_ends(queue):
    job = queue.spinner()
    queue.urgent()
    queue.paused(job)
    done = queue.tide("cancel", job)
    assert (done.returncode, done.stdout) == (0, f"{job} sh: ended\n")
    queue.tide.wait(lambda: not queue.family(job) or len(queue.family(job)) == 1)


def test_who_is_killed_while_paused_dies(queue):
    job = queue.spinner()
    queue.urgent()
    queue.paused(job)
    os.kill(queue.job(job)["pids"][0], signal.SIGKILL)
    queue.tide.wait(lambda: queue.job(job) is None)
    queue.tide.wait(lambda: not queue.stands_still(job))  # what it left behind goes on


def test_a_killed_daemon_leaves_nobody_frozen_and_the_next_one_pauses_again(place):
    queue = place.start()
    job = queue.spinner()
    pids = queue.job(job)["pids"]
    urgent = queue.urgent()
    queue.paused(job)
    queue.stop(signal.SIGKILL)
    queue.tide.wait(lambda: not queue.stands_still(job))
    queue.start()
    queue.paused(job)  # the orphan, too, of which no daemon was ever told
    assert queue.tide("cancel", urgent).returncode == 0
    queue.goes_on(job, pids)


def guardian_of(pid):
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return next(int(p) for p in children if name_of(p) == "tided-guardian")


@V1
def test_without_its_guardian_too_the_next_daemon_thaws(place):
    queue = place.start()
    job = queue.spinner()
    urgent = queue.urgent()
    queue.paused(job)
    guardian, group = guardian_of(queue.process.pid), queue.group(job)
    queue.process.send_signal(signal.SIGSTOP)  # it would start another one
    os.kill(guardian, signal.SIGKILL)
    queue.stop(signal.SIGKILL)
    assert queue.stands_still(job)
    queue.start()
    queue.paused(job)
    assert queue.tide("cancel", urgent).returncode == 0
    queue.tide.wait(lambda: not queue.stands_still(job))
    assert not group.exists()


def test_a_daemon_that_ends_lets_everybody_go_on(queue):
    job = queue.spinner()
    queue.urgent()
    queue.paused(job)
    queue.stop(signal.SIGTERM)
    queue.tide.wait(lambda: not queue.stands_still(job))


@V1
def test_who_is_frozen_by_hand_takes_no_part_and_who_is_thawed_is_paused_again(queue):
    job = queue.spinner()
    queue.group(job).write_text("FROZEN")
    queue.waits_for(job, "paused")
    assert queue.job(job)["reason"] == "paused by hand"
    urgent = queue.urgent()
    queue.waits_for(urgent, "starting", "rigid")  # has the cores
    assert queue.group(job).read_text() == "FROZEN\n"
    queue.group(job).write_text("THAWED")
    queue.waits_for(job, "starting", "rigid")
    assert queue.tide("cancel", urgent).returncode == 0
    queue.urgent()
    queue.paused(job)
    queue.group(job).write_text("THAWED")
    queue.tide.wait(lambda: queue.group(job).read_text() == "FROZEN\n")
    queue.group(job).write_text("THAWED")
    assert queue.tide("cancel", job).returncode == 0  # nobody pauses it again


def test_a_program_of_tide_run_is_not_paused_with_the_submitted_job_around_it(queue):
    job = queue.submit("--request", 2, "--", queue.tide.program, "run", "--name", "inner", "--",
                       "sh", "-c", "while :; do sleep 0.01; done")
    queue.waits_for("inner", "starting", "rigid", "running")
    inner = queue.job("inner")
    assert not inner["preemptible"] and "only submitted" in inner["preemptible_note"]
    queue.urgent()
    queue.waits_for("urgent", "queued", "starting", "rigid")
    queue.tide.wait(lambda: not queue.stands_still(inner["id"]))
    assert queue.job(job) is None or queue.job(job)["state"] != "paused"


def test_where_nothing_can_be_frozen_the_job_says_so_and_runs_on(tide):
    """An unprivileged daemon: more urgent jobs wait until others end."""
    place, nobody = Queue(tide), {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    tide.dir.mkdir()
    os.chown(tide.dir, NOBODY, NOBODY)
    try:
        place.start("--cpus", "0-1", "--policy", "priority", **nobody)
        first = place.submit("--request", 2, "--", "sleep", 600, **nobody)
        place.waits_for(first, "starting", "rigid")
        second = place.submit("--request", 2, "--priority", 5, "--", "sleep", 600, **nobody)
        place.waits_for(second, "queued")
        assert not place.job(first)["preemptible"]
        said = place.tide("explain", first).stdout
        assert "cannot be paused for others: " in said and "not permitted" in said
    finally:
        place.end()
