# SPDX-License-Identifier: Apache-2.0
"""Processes that a policy or a person pauses: they stand still, all of them, and go on as the same
processes; whatever becomes of the daemon, they do not stay frozen."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from cli_tools import Queue, name_of, tide  # noqa: F401

NOBODY = 65534
FREEZER = pathlib.Path("/sys/fs/cgroup/freezer")
# The registered process is a shell; what spins is its child, and an orphan that has left it.
FAMILY = "(while :; do :; done) & sh -c 'while :; do sleep 0.01; done' & wait"
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
    assert queue.tide("hold", job).returncode == 0  # what a policy has paused, too, a person keeps there
    assert queue.tide("cancel", urgent).returncode == 0
    queue.tide.wait(lambda: "tide release" in queue.job(job)["reason"])
    queue.paused(job)
    assert queue.tide("release", job).returncode == 0
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


def test_a_held_job_stands_still_and_others_have_its_cores(place):
    place.start("--cpus", "0-1", "--policy", "fcfs/strict")
    job = place.submit("--request", 2, "--", "sh", "-c", SPINNER)
    place.tide.wait(lambda: len(place.family(job)) >= 4)
    pids, second = place.job(job)["pids"], place.submit("--request", 2, "--name", "second", "--", "sleep", 600)
    place.waits_for(second, "queued")
    assert place.tide("hold", job).stdout == f"{job} sh: held\n"
    place.paused(job)
    assert (place.job(job)["held"], place.job(job)["reason"]) == (True, "paused by hand: 'tide release' lets it go on")
    place.waits_for(second, "starting", "rigid")
    assert place.tide("hold", job).stdout == f"{job} sh: is held already\n"
    assert place.tide("release", job).returncode == 0
    assert not place.job(job)["held"]
    time.sleep(0.5)
    assert place.stands_still(job)  # it has its turn again, and no core is free
    assert place.tide("cancel", second).returncode == 0
    place.goes_on(job, pids)


@pytest.fixture
def running(place):
    """A program of `tide run` and its children; unlike a submitted one's it cannot tell orphans from others'."""
    place.start("--cpus", "0-1", "--policy", "equal")
    place.program = subprocess.Popen([place.tide.program, "run", "--name", "mine", "--", "sh", "-c", FAMILY],
                                     env=place.tide.env, start_new_session=True)
    place.waits_for("mine", "starting", "rigid")
    place.id = place.job("mine")["id"]
    place.tide.wait(lambda: len(place.family(place.id)) >= 3)
    yield place
    place.program.kill()
    place.program.wait()


def test_a_program_of_tide_run_is_paused_by_hand_and_goes_on_at_once(running):
    pids, family = running.job("mine")["pids"], set(running.family(running.id))
    for _ in range(3):
        assert running.tide("hold", "mine").returncode == 0
        running.paused(running.id)
        running.tide("policy", "set", "priority")
        time.sleep(0.3)
        assert running.stands_still(running.id)
        assert running.tide("release", "mine").returncode == 0
        running.goes_on(running.id, pids)
        running.tide("policy", "set", "equal")
    assert family >= set(pids)
    assert [change["to"] for change in json.loads(running.tide("explain", "mine", "--json").stdout)["changes"]][-1] > 0


def test_nobody_pauses_the_job_that_it_is_in(place):
    place.start("--cpus", "0-1", "--policy", "equal")
    script = f"{place.tide.program} hold mine; echo ended with $?"
    done = place.tide("run", "--name", "mine", "--", "sh", "-c", script)
    assert "cannot be paused from inside" in done.stderr and "ended with 2" in done.stdout


def test_a_process_of_another_user_in_the_job_lets_nobody_pause_it(place):
    """It could not be moved: the others would stand still for it, and it would go on with the cores of others."""
    place.start("--cpus", "0-1", "--policy", "equal")
    stranger = "import os, time; os.setuid(65534); print('there', flush=True); time.sleep(600)"
    with subprocess.Popen([place.tide.program, "run", "--name", "mine", "--", "sh", "-c",
                           f"{sys.executable} -c \"{stranger}\" & wait"], env=place.tide.env, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout.readline() == "there\n"
        done = place.tide("hold", "mine")
        if done.returncode:  # root's jobs may hold any process
            assert "another user" in done.stderr, done.stderr
            assert place.job("mine")["state"] != "paused" and not place.job("mine")["held"]
        assert place.tide("cancel", "mine").returncode == 0
        program.kill()


def test_the_time_of_a_hold_is_no_time_of_waiting(place):
    """Else a long hold would buy a turn before all others, by the bounded slowdown of `response`."""
    place.start("--cpus", "0-1", "--policy", "fcfs/strict")
    job = place.submit("--hold", "--", "sleep", 600)
    place.waits_for(job, "held")
    time.sleep(1)
    assert place.tide("release", job).returncode == 0
    place.waits_for(job, "starting", "rigid")
    assert place.job(job)["wait_s"] >= 1  # people are told all of it


def test_who_looks_idle_goes_on_too(place):
    place.start("--cpus", "0-1", "--policy", "fcfs/strict")
    with subprocess.Popen([place.tide.program, "run", "--name", "idle", "--", "cat"], env=place.tide.env,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as idle:
        place.waits_for("idle", "starting", "rigid")
        assert place.tide("hold", "idle").returncode == 0
        place.waits_for("idle", "paused")
        assert place.tide("release", "idle").returncode == 0
        idle.stdin.write(b"on\n")
        idle.stdin.close()
        assert idle.stdout.read() == b"on\n" and idle.wait(60) == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_person_paused_outlives_the_daemon_and_is_not_left_frozen(running, number):
    pids = running.job("mine")["pids"]
    assert running.tide("hold", "mine").returncode == 0
    running.paused(running.id)
    running.stop(number)
    running.tide.wait(lambda: not running.stands_still(running.id))  # nobody would let it go on
    running.start("--cpus", "0-1", "--policy", "equal")
    running.paused(running.id)
    assert running.tide("release", "mine").returncode == 0
    running.goes_on(running.id, pids)


def test_who_is_killed_or_cancelled_while_a_person_pauses_it_ends(running):
    assert running.tide("hold", "mine").returncode == 0
    running.paused(running.id)
    done = running.tide("cancel", "mine")
    assert (done.returncode, done.stdout) == (0, f"{running.id} mine: ended\n")
    assert running.program.wait(60) != 0


@V1
def test_what_cannot_be_paused_is_not_and_the_person_is_told_why(running):
    """A process in another program's control group would stay behind."""
    other, moved = FREEZER / "threadtide-test-other", int(running.job("mine")["pids"][0])
    other.mkdir()
    try:
        (other / "cgroup.procs").write_text(str(moved))
        done = running.tide("hold", "mine")
        assert done.returncode == 2 and f"cannot be paused: process {moved} stays in its group" in done.stderr, done
        assert "tide why cannot-be-paused" in done.stderr
        assert not running.job("mine")["held"] and running.job("mine")["state"] != "paused"
        assert not running.stands_still(running.id)
    finally:
        (FREEZER / "cgroup.procs").write_text(str(moved))
        other.rmdir()


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
        done = place.tide("hold", first, **nobody)
        assert done.returncode == 2 and "cannot be paused: " in done.stderr and "not permitted" in done.stderr
        assert place.tide("hold", second, **nobody).returncode == 0  # it only waits
    finally:
        place.end()
