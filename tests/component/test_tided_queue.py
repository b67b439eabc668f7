# SPDX-License-Identifier: Apache-2.0
"""Submitted jobs: they wait until the policy starts them, in its order, over restarts too."""
import errno
import os
import signal
import subprocess

import pytest

from daemon import BEGIN, SET, WAIT, Raw, backend, eventually, hello


@pytest.fixture
def tided(place):
    return place.daemon("--cpus", "0-7", "--policy", "fcfs/strict").start()


class Submitted:
    """A runner: registered, and waiting for the word on a connection of its own."""

    def __init__(self, tided, **request):
        self.tided, self.peer = tided, tided.peer()
        status, self.job = tided.api("POST", "/v1/jobs",
                                     {"pid": self.peer.pid, "queue": True, **request})
        assert status == 201, self.job
        self.wait()

    def wait(self):
        self.controller = self.tided.controller()
        self.controller.send_order(BEGIN, job=self.job["id"])

    def get(self):
        return self.tided.api("GET", f"/v1/jobs/{self.job['id']}")[1]

    def state(self):
        return self.get()["state"]

    def waits(self, state="queued"):
        return eventually(lambda: self.state() == state)

    def begins(self):
        assert self.controller.result()["status"] == 0
        assert self.state() not in ("queued", "held")
        return self

    def become(self):
        """The runner becomes the program, whose agent says hello."""
        self.peer.go(self.job["token"], self.job["id"], self.job["name"])
        self.peer.expect("welcome")

    def end(self):
        self.peer.end()
        eventually(lambda: self.tided.api("GET", f"/v1/jobs/{self.job['id']}")[0] == 404)


@pytest.fixture
def second(tided):
    """It waits behind one that has all cores."""
    Submitted(tided, request=8).begins()
    result = Submitted(tided, request=8)
    result.waits()
    return result


def test_jobs_begin_in_order_when_their_requests_fit(tided):
    first = Submitted(tided, request=6).begins()
    second = Submitted(tided, request=4)
    third = Submitted(tided, request=2)
    second.waits()
    third.waits()
    assert "4" in second.get()["reason"]
    assert second.get()["run_s"] == 0 and second.get()["submitted"]
    first.end()
    second.begins()
    third.begins()
    assert eventually(lambda: second.get()["wait_s"] > 0)


def test_a_job_begins_with_its_request_and_leaves_the_rest_to_the_next(place):
    """Nobody knows what its program can do: what it is given beyond its request it could never give back."""
    tided = place.daemon("--cpus", "0-1", "--policy", "fcfs/strict").start()
    Submitted(tided, request=1).begins()
    Submitted(tided, request=1).begins()


def test_time_that_was_waited_and_run_outlives_a_killed_daemon(tided):
    runs, waits = Submitted(tided, request=8).begins(), Submitted(tided, request=8)
    waits.waits()
    waited = eventually(lambda: (s := waits.get()["wait_s"]) > 0.5 and s)
    tided.signal(signal.SIGKILL)
    tided.start()
    assert waits.get()["wait_s"] >= waited
    assert runs.get()["run_s"] >= waited


def test_what_began_keeps_its_cores_until_its_agent_reports(tided):
    first = Submitted(tided, request=6).begins()
    Submitted(tided, request=4).waits()
    # The six of its request, and not one, as a silent `tide run` has; more once it can give it back.
    eventually(lambda: "6 cores of its start" in first.get()["reason"])
    first.become()
    eventually(lambda: first.get()["target"] == 8)


def test_who_began_by_itself_is_in_nobodys_queue(tided):
    Submitted(tided, request=8).begins()
    job = tided.job()
    assert job.get()["state"] == "running" and not job.get()["submitted"]


def test_a_held_job_lets_others_pass(tided):
    first = Submitted(tided, request=8).begins()
    second = Submitted(tided, request=8)
    third = Submitted(tided, request=8)
    second.waits()
    assert tided.api("PATCH", f"/v1/jobs/{second.job['id']}", {"held": True})[0] == 200
    second.waits("held")
    first.end()
    third.begins()
    assert second.state() == "held"
    assert tided.api("PATCH", f"/v1/jobs/{second.job['id']}", {"held": False})[0] == 200
    third.end()
    second.begins()


def test_a_job_may_be_held_from_its_first_moment(tided):
    job = Submitted(tided, held=True)
    job.waits("held")
    assert tided.api("PATCH", f"/v1/jobs/{job.job['id']}", {"held": False})[0] == 200
    job.begins()


@pytest.mark.parametrize("body", [{"held": True}, {"held": 1, "queue": True},
                                  {"held": True, "queue": False}])
def test_only_who_waits_is_held(tided, body):
    status, answer = tided.api("POST", "/v1/jobs", {"pid": os.getpid(), **body})
    assert status == 400 and "held" in answer["error"]["message"]
    assert tided.jobs() == []


def test_a_job_for_which_others_make_room_can_still_be_held(place):
    tided = place.daemon("--cpus", "0-7", "--policy", "equal").start()
    other = tided.job("--max", "8", "--no-ack")
    eventually(lambda: other.get()["target"] == 8)
    job = Submitted(tided)  # begins when the other one has parked threads
    eventually(lambda: other.get()["target"] == 4)
    assert tided.api("PATCH", f"/v1/jobs/{job.job['id']}", {"held": True})[0] == 200
    other.peer.tell("ack")
    other.target(8)
    assert job.state() == "held"
    assert tided.api("PATCH", f"/v1/jobs/{job.job['id']}", {"held": False})[0] == 200
    job.begins()


def test_a_cancelled_job_never_begins(tided, second):
    status, answer = tided.api("DELETE", f"/v1/jobs/{second.job['id']}")
    assert (status, answer["signalled"]) == (200, 1)
    assert second.peer.process.wait(30) == -signal.SIGTERM
    assert second.controller.result()["status"] == -errno.ECANCELED
    eventually(lambda: tided.api("GET", f"/v1/jobs/{second.job['id']}")[0] == 404)


def test_a_runner_that_dies_leaves_the_queue(tided):
    first = Submitted(tided, request=8).begins()
    second = Submitted(tided, request=8)
    third = Submitted(tided, request=8)
    second.end()
    first.end()
    third.begins()


def test_another_daemon_finds_the_queue_as_it_was(tided):
    first = Submitted(tided, request=8).begins()
    second = Submitted(tided, request=8)
    third = Submitted(tided, request=8)
    second.waits()
    assert tided.api("PATCH", f"/v1/jobs/{third.job['id']}", {"held": True})[0] == 200
    third.waits("held")
    tided.signal(signal.SIGKILL)
    assert second.controller.receive() is None  # hung up, told nothing
    tided.start()
    second.wait()
    third.wait()
    second.waits()
    third.waits("held")
    assert first.state() not in ("queued", "held")
    first.end()
    second.begins()
    assert third.state() == "held"


def test_a_daemon_that_ends_cancels_nothing(tided, second):
    tided.stop()
    assert second.controller.receive() is None
    tided.start()
    second.wait()
    second.waits()


def test_a_daemon_that_ends_starts_nobody(tided):
    """Another's threads have not parked yet: the wait for them is given up as the daemon ends."""
    agent = Raw(tided.dir / "agent.sock")
    agent.send(hello("a" * 32))
    agent.send(backend(8))
    eventually(lambda: [job["target"] for job in tided.jobs()] == [8])
    submitted = Submitted(tided, request=6)
    submitted.waits()
    orders = tided.controller()
    orders.send_order(SET, flags=WAIT, intra=2, deadline_ms=20000, job=tided.jobs()[0]["id"])
    eventually(lambda: tided.jobs()[0]["target"] == 2)
    assert submitted.state() == "queued"  # it would start after two seconds
    tided.stop()
    assert submitted.controller.receive() is None


def test_who_began_without_its_turn_runs(tided, second):
    second.become()
    second.begins()


def test_a_policy_without_a_queue_starts_everybody(tided, second):
    assert tided.api("PUT", "/v1/policy", {"policy": "equal"})[0] == 200
    second.begins()


def test_a_request_above_the_machine_waits_for_all_of_it(tided):
    first = Submitted(tided, request=1).begins()
    big = Submitted(tided, request=9)
    big.waits()
    first.end()
    assert "request of 9" in big.begins().get()["reason"]


@pytest.mark.parametrize("body", [{"queue": 1}, {"queue": "yes"}, {"queue": None}])
def test_a_queue_is_true_or_false(tided, body):
    status, answer = tided.api("POST", "/v1/jobs", {"pid": os.getpid(), **body})
    assert status == 400 and "queue" in answer["error"]["message"]
    assert tided.jobs() == []


def test_to_wait_for_one_that_runs_is_over_at_once(tided):
    job = tided.job()
    assert tided.controller().order(BEGIN, job=job.id)["status"] == 0


# ---- memory ----

MIB = 1 << 20


def small(place, *options, memory="1G", policy="fcfs/strict"):
    """A machine of 8 cores and little memory, both made up."""
    return place.daemon("--cpus", "0-7", "--policy", policy, "--memory", memory, *options).start()


def test_jobs_whose_memory_does_not_fit_together_run_one_after_the_other(place):
    tided = small(place)
    first = Submitted(tided, max=1, memory=600 * MIB).begins()
    second = Submitted(tided, max=1, memory=600 * MIB)
    second.waits()
    eventually(lambda: "waits for memory" in second.get()["reason"])
    assert second.get()["memory"] == second.get()["memory_counted"] == 600 * MIB
    machine = tided.api("GET", "/v1/machine")[1]
    assert machine["memory"] == 1024 * MIB and machine["memory_counted"] == 600 * MIB
    assert tided.api("PATCH", f"/v1/jobs/{second.job['id']}", {"memory": 400 * MIB})[0] == 200
    second.begins()
    third = Submitted(tided, max=1, memory=100 * MIB)
    third.waits()
    first.end()
    third.begins()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the freezer")
def test_a_paused_job_keeps_its_memory(place):
    tided = small(place, policy="priority")
    low = Submitted(tided, request=8, memory=600 * MIB).begins()
    high = Submitted(tided, request=8, priority=5, memory=300 * MIB).begins()
    low.waits("paused")
    third = Submitted(tided, request=8, priority=9, memory=200 * MIB)
    third.waits()
    eventually(lambda: "waits for memory" in third.get()["reason"])
    assert low.state() == "paused"
    high.end()
    third.begins()


def test_who_asked_for_nothing_counts_with_what_it_uses(place):
    tided = small(place)
    program = subprocess.Popen(
        ["python3", "-c", "x = b'x' * (300 << 20); print(flush=True); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        program.stdout.readline()
        status, job = tided.api("POST", "/v1/jobs", {"pid": program.pid})
        assert status == 201
        get = lambda: tided.api("GET", f"/v1/jobs/{job['id']}")[1]
        used = eventually(lambda: get()["memory_used"])
        assert 300 * MIB <= used < 400 * MIB and get()["memory"] is None
        second = Submitted(tided, max=1, memory=900 * MIB)
        second.waits()
    finally:
        program.kill()
        program.communicate()
    second.begins()


def test_more_memory_than_there_is_is_refused_at_once(place):
    tided = small(place)
    body = {"pid": os.getpid(), "queue": True, "memory": 1025 * MIB}
    status, answer = tided.api("POST", "/v1/jobs", body)
    assert status == 400 and "jobs can have 1G" in answer["error"]["message"]
    assert tided.jobs() == []
    job = Submitted(tided, request=8).begins()
    later = Submitted(tided, request=8)
    later.waits()
    assert tided.api("PATCH", f"/v1/jobs/{later.job['id']}", {"memory": 1025 * MIB})[0] == 200
    eventually(lambda: later.get()["reason"].startswith("needs 1 GiB, more than"))
    last = Submitted(tided, request=8)
    job.end()
    last.begins()  # who can never run holds nobody up
    assert later.state() == "queued"


@pytest.mark.parametrize("memory", [0, -1, 1000, "1G", 1.5, True, 1 << 60])
def test_memory_is_a_number_of_bytes(tided, memory):
    status, answer = tided.api("POST", "/v1/jobs", {"pid": os.getpid(), "memory": memory})
    assert status == 400 and "memory is" in answer["error"]["message"]
    assert tided.jobs() == []


def test_memory_outlives_the_daemon_and_can_be_left_out_of_account(place):
    tided = small(place)
    Submitted(tided, max=1, memory=600 * MIB).begins()
    second = Submitted(tided, max=1, memory=600 * MIB)
    second.waits()
    tided.signal(signal.SIGKILL)
    tided.options = ("--cpus", "0-7", "--policy", "fcfs/strict", "--memory", "none")
    tided.start()
    assert second.get()["memory"] == 600 * MIB
    assert tided.api("GET", "/v1/machine")[1]["memory"] is None
    second.wait()
    second.begins()
