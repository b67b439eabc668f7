# SPDX-License-Identifier: Apache-2.0
"""tided whose calls fail or take long (src/base/failpoint.h): it says so once, nothing is lost, and
jobs go on as they are."""
import ast
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import time

import pytest

from daemon import NOBODY, Raw, UnixConnection, eventually, hello
from test_tided_cap import CORES, MIDDLE, MODEL, cap, conf, jobs, put, quota
from workers import CPU_GROUP, CPUS, affinity, cpu_groups, group

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAULTS = set(re.findall(r'\[FAULT_\w+\] = "((?!unit-)[a-z-]+)"', (ROOT / "src/base/failpoint.c").read_text()))
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")
ALL = {frozenset(CPUS)}


def daemon(place, failpoint, *options):
    tided = place.daemon(*options)
    tided.env = {"TIDE_FAILPOINT": failpoint}
    return tided.start()


def said(tided, text):
    return tided.log.read_text().count(text)


# ---- files ----

@pytest.mark.parametrize("fault", ["store-open:1+:ENOSPC", "store-open:1+:EMFILE", "store-open:1+:EROFS",
                                   "store-write:1+:ENOSPC", "store-write:1+:EIO",
                                   "store-rename:1+:EIO", "store-rename:1+:ENOSPC"])
def test_a_disk_that_takes_nothing_is_told_of_once_and_changes_no_job(place, fault):
    tided = daemon(place, fault, "--cpus", "0-7")
    first = tided.job(name="first")
    first.target(8)
    for threads in (3, 5, 2):
        assert first.patch(threads=threads)[0] == 200
        first.target(threads)
    second = tided.job(name="second")
    second.target(6)
    assert first.record() == second.record() == ""
    eventually(lambda: said(tided, "jobs cannot be written to") == 1)
    assert not list(tided.dir.glob("jobs/.*"))  # no half a file is left
    # A new daemon knows what their agents say.
    tided.signal(signal.SIGKILL)
    first.peer.expect("closed"), second.peer.expect("closed")
    tided.env = {}
    tided.start()
    first.peer.expect("welcome"), second.peer.expect("welcome")
    assert sorted(j["name"] for j in tided.jobs()) == ["first", "second"]
    eventually(lambda: '"first"' in first.record() and '"second"' in second.record())


def test_what_could_not_be_written_once_is_written_the_next_time(place):
    tided = daemon(place, "store-write:2:ENOSPC,store-rename:3:EIO", "--cpus", "0-7")
    job = tided.job(name="one")
    for threads in (3, 5, 2):
        job.patch(threads=threads)
        job.target(threads)
    eventually(lambda: '"intra":2' in job.record())


def test_what_could_not_be_written_is_written_without_another_change(place):
    tided = place.daemon("--cpus", "0-7").start()
    job = tided.job(name="one")
    job.target(8)
    eventually(lambda: '"one"' in job.record())
    jobs, away = tided.dir / "jobs", tided.dir / "away"
    jobs.rename(away)
    jobs.write_text("not a folder")
    job.patch(threads=3)
    job.target(3)
    eventually(lambda: said(tided, "jobs cannot be written to"))
    time.sleep(3)  # it is no longer young: nothing else makes a decision, which would write
    jobs.unlink()
    away.rename(jobs)
    eventually(lambda: '"intra":3' in job.record())


def test_an_order_is_carried_out_and_answered_before_a_slow_disk_has_it(place):
    """One of the writes never ends: the order that it is of is in place all the same."""
    tided = daemon(place, "store-write:7:delay=600000ms", "--cpus", "0-7")
    job = tided.job(name="one")
    job.target(8)
    half = tided.dir / f"jobs/.{job.id}.json"

    def hangs():
        return half.exists() and sleeps(tided) and half.exists()
    for threads in (3, 5, 3, 5, 3, 5, 3):
        status, answer = job.patch(threads=threads)
        assert (status, answer["status"], answer["to"]) == (200, "done", threads)
        eventually(lambda: f'"intra":{threads}' in job.record() or hangs())
        if hangs():
            break
    assert hangs() and f'"intra":{threads}' not in job.record()
    tided.signal(signal.SIGKILL)


# ---- connections and memory ----

@pytest.mark.parametrize("fault, words", [
    ("accept:1:EMFILE", "out of file descriptors; closed a new connection"),
    ("peer-memory:1:ENOMEM", "out of memory; closed a new connection"),
    ("process-memory:1:ENOMEM", "Cannot allocate memory"),
    ("job-memory:1:ENOMEM", "out of memory"),
])
def test_who_cannot_be_served_is_hung_up_on_and_the_next_is(place, fault, words):
    tided = daemon(place, fault, "--cpus", "0-7")
    stranger = Raw(tided.dir / "agent.sock")
    try:
        stranger.send(hello(name="stranger"))
        while stranger.receive() is not None:
            pass
    except BrokenPipeError:
        pass  # before its first word
    stranger.close()
    eventually(lambda: said(tided, words) == 1)
    assert tided.jobs() == []
    job = tided.job(name="one")
    job.target(8)


@pytest.mark.parametrize("fault", ["accept:1:EAGAIN", "send:2:EAGAIN,send:3:EAGAIN"])
def test_what_must_wait_comes_later(place, fault):
    """A call that has to be made again is made again: neither a peer nor an order is forgotten."""
    tided = daemon(place, fault, "--cpus", "0-7")
    job = tided.job(name="one")
    job.target(8)
    job.patch(threads=3)
    job.target(3)


# ---- cores and groups ----

@root_only
@two_cpus
@pytest.mark.parametrize("error, words", [("ENOMEM", "Cannot allocate memory"),
                                          ("EIO", "Input/output error")])
def test_cores_that_cannot_be_set_are_left_and_the_note_says_why(place, error, words):
    tided = daemon(place, f"affinity:1+:{error},group-make:1+:{error}", "--placement", "exclusive")
    first, second = tided.job(name="first"), tided.job(name="second")
    eventually(lambda: words in first.get()["note"] or words in second.get()["note"])
    for job in (first, second):
        job.settled()
        assert affinity(job.peer.pid) == ALL
        assert job.peer.process.poll() is None
    assert said(tided, "cores not limited") <= 2  # once for each
    assert tided.stop() == 0
    assert affinity(first.peer.pid) == affinity(second.peer.pid) == ALL


@root_only
@two_cpus
@pytest.mark.parametrize("fault", ["group-make:1+:ENOSPC", "weight-write:1+:EIO"])
def test_weights_that_cannot_be_set_are_left_and_the_note_says_why(place, fault):
    tided = daemon(place, fault, "--placement", "shared")
    first, second = tided.job(name="first", weight=300), tided.job(name="second")
    eventually(lambda: all("cannot" in job.get()["note"] for job in (first, second)))
    for job in (first, second):
        job.settled()
        assert affinity(job.peer.pid) == ALL


@root_only
@pytest.mark.skipif(not os.access("/sys/fs/cgroup", os.W_OK), reason="needs control groups")
@pytest.mark.parametrize("fault", ["freezer-list:1+:EIO", "freezer-list:2+:EIO"])  # before the freeze; and when it stands still
def test_a_job_whose_processes_cannot_be_looked_at_is_not_paused_and_asked_about_once(place, fault):
    tided = daemon(place, fault, "--cpus", "0-1", "--policy", "priority")
    sleepers, jobs = [], []
    try:
        for priority in range(2):
            sleepers.append(subprocess.Popen(["sleep", "600"], start_new_session=True))
            status, job = tided.api("POST", "/v1/jobs", {"pid": sleepers[-1].pid, "queue": True,
                                                         "request": 2, "priority": priority})
            assert status == 201, job
            jobs.append(f"/v1/jobs/{job['id']}")
            if priority == 0:
                eventually(lambda: tided.api("GET", jobs[0])[1]["state"] not in ("queued", "held"))
        eventually(lambda: said(tided, "cannot be paused"))
        for _ in range(3):  # each is a turn of its loop
            assert tided.api("PATCH", jobs[1], {"weight": 200})[0] == 200
            time.sleep(0.1)
        assert said(tided, "cannot be paused: Input/output error") == said(tided, "cannot be paused") == 1
        assert tided.api("GET", jobs[0])[1]["state"] != "paused"
        assert "Input/output error" in tided.api("GET", jobs[0])[1]["preemptible_note"]
        sleepers[0].kill()
        assert sleepers[0].wait(30) == -signal.SIGKILL  # a frozen one would stay
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()


# ---- daemon and guardian together ----

def lose_both(tided):
    """As a memory cgroup's killer or a crash of the service's whole group does."""
    out = subprocess.run(["ps", "-o", "pid=", "--ppid", str(tided.process.pid)],
                         capture_output=True, text=True)
    tided.signal(signal.SIGSTOP)  # it would start another guardian
    for pid in out.stdout.split():
        os.kill(int(pid), signal.SIGKILL)
    tided.signal(signal.SIGKILL)


@root_only
@two_cpus
@pytest.mark.parametrize("uid", [None, NOBODY])  # with cpusets, and with affinity alone
def test_after_daemon_and_guardian_are_killed_together_the_next_gives_all_cores_back(place, uid):
    tided = place.daemon("--placement", "exclusive", uid=uid).start()
    first, second = tided.job(name="first", uid=uid), tided.job(name="second", uid=uid)
    eventually(lambda: affinity(first.peer.pid) != ALL and affinity(second.peer.pid) != ALL)
    lose_both(tided)
    tided.start()
    first.peer.expect("welcome")
    assert tided.stop() == 0
    assert affinity(first.peer.pid) == affinity(second.peer.pid) == ALL


def noted(tided):
    """The processes in the guardian's table, as guardian.c has them."""
    entries = (tided.dir / "guardian.table").read_bytes()[:4096 * 144]
    return {pid for used, pid, _, _ in struct.iter_unpack("<IiQ128s", entries) if used}


@root_only
@two_cpus
@pytest.mark.parametrize("uid", [None, NOBODY])  # as above
def test_who_joins_a_job_that_has_its_cores_is_in_the_table_too(place, uid):
    tided = place.daemon("--placement", "exclusive", uid=uid).start()
    first, second = tided.job(name="first", uid=uid), tided.job(name="second", uid=uid)
    eventually(lambda: affinity(first.peer.pid) != ALL and affinity(second.peer.pid) != ALL)
    late = tided.peer(uid=uid)
    late.go(first.token, first.id, "first")
    late.expect("welcome")
    eventually(lambda: noted(tided) == {first.peer.pid, second.peer.pid, late.pid})
    late.end()
    eventually(lambda: noted(tided) == {first.peer.pid, second.peer.pid})


@root_only
@two_cpus
def test_a_table_of_rubbish_keeps_no_daemon_from_starting_and_writes_nothing(place, tmp_path):
    tided = place.daemon("--placement", "exclusive").start()
    job = tided.job(name="one")
    lose_both(tided)
    table, victim = tided.dir / "guardian.table", tmp_path / "victim"
    victim.write_text("mine\n")
    size = table.stat().st_size
    knob = struct.pack("<I512s24s", 1, bytes(victim), b"owned\n")  # guardian.c; the last of the table
    for rubbish in (b"\xff" * size, (16 * knob).rjust(size, b"\0")):
        table.write_bytes(rubbish)
        tided.start()
        job.peer.expect("welcome")
        assert victim.read_text() == "mine\n"
        lose_both(tided)


@root_only
@two_cpus
def test_who_had_fewer_cores_of_its_own_has_those_again_after_both_were_killed(place):
    tided = place.daemon("--placement", "exclusive").start()
    peers = [tided.peer() for _ in range(2)]
    os.sched_setaffinity(peers[0].pid, CPUS[:1])
    for peer in peers:
        status, job = tided.api("POST", "/v1/jobs", {"pid": peer.pid})
        assert status == 201, job
        peer.go(job["token"], job["id"], job["name"])
    eventually(lambda: affinity(peers[1].pid) != ALL)
    lose_both(tided)
    tided.start()
    assert tided.stop() == 0
    assert affinity(peers[0].pid) == {frozenset(CPUS[:1])}
    assert affinity(peers[1].pid) == ALL


def sleeps(tided):
    connection = UnixConnection(tided.dir / "api.sock")
    connection.timeout = 0.5
    try:
        connection.request("GET", "/v1/machine")
        return connection.getresponse().status != 200
    except OSError:
        return True
    finally:
        connection.close()


@root_only
@two_cpus
@pytest.mark.parametrize("step", ["guardian-noted:1", "guardian-noted:2", "process-fenced:1",
                                  "process-fenced:2", "target-lowered:1", "ack-received:1",
                                  "cores-narrowed:1", "store-written:2", "store-renamed:2"])
def test_daemon_and_guardian_may_be_killed_together_at_each_of_nine_steps(place, step):
    tided = place.daemon("--placement", "exclusive", uid=NOBODY)
    tided.env = {"TIDE_FAILPOINT": f"{step}:delay=600000ms"}
    tided.start()
    peers = [tided.peer(uid=NOBODY) for _ in range(2)]
    for peer in peers:
        try:
            connection = UnixConnection(tided.dir / "api.sock")
            connection.timeout = 0.5
            connection.request("POST", "/v1/jobs", json.dumps({"pid": peer.pid}))
            answer = json.loads(connection.getresponse().read())
            peer.go(answer["token"], answer["id"], answer["name"])
        except OSError:
            break
    eventually(lambda: sleeps(tided))
    lose_both(tided)
    tided.env = {}
    tided.start()
    assert tided.stop() == 0
    for peer in peers:
        assert affinity(peer.pid) == ALL


@root_only
@cpu_groups
def test_groups_that_cannot_be_removed_yet_stop_nobody(place):
    tided = daemon(place, "group-remove:1+:EAGAIN", "--policy", "equal")
    survivor, jobs = tided.job(), [tided.job() for _ in range(30)]
    made = {job: group(job) for job in jobs if eventually(lambda job=job: group(job) != CPU_GROUP)}
    eventually(lambda: survivor.get()["active"] == survivor.get()["target"])
    survivor.peer.silent(0)  # what it has said by now
    for job in jobs:
        job.peer.process.kill()
    eventually(lambda: len(tided.jobs()) == 1)
    words = [said[0] for said in survivor.peer.silent(2)]
    assert "lapsed" not in words and "closed" not in words  # its lease was renewed all the time
    assert all(path.exists() for path in made.values())
    assert tided.stop() == 0
    assert not any(path.exists() for path in made.values())


@root_only
@cpu_groups
def test_a_group_that_cannot_be_removed_at_once_is_removed_later(place):
    tided = daemon(place, "group-remove:1:EAGAIN", "--policy", "equal")
    job, other = tided.job(), tided.job()
    made = eventually(lambda: group(job) != CPU_GROUP and group(job))
    job.end()
    eventually(lambda: not made.exists())
    assert group(other) != CPU_GROUP


# ---- the quota of a power cap ----

@pytest.fixture
def second_write_fails(place):
    """A daemon whose group of all jobs has a cap's quota; the next write of one fails, once."""
    tided = daemon(place, "group-quota:2:EIO", "--cpus", f"0-{CORES - 1}", "--config", conf(place, "power=none", MODEL))
    if not tided.api("GET", "/v1/machine")[1]["weights"]:
        pytest.skip("control groups cannot be written here")
    jobs(tided)
    put(tided, uw=MIDDLE)
    eventually(lambda: quota(tided) or said(tided, "no quota for the power cap"))  # a busy machine moves the quota
    return tided


@root_only
def test_a_quota_that_cannot_be_written_once_is_none(second_write_fails):
    tided = second_write_fails
    put(tided, uw=MIDDLE - 30_000_000)
    eventually(lambda: said(tided, "no quota for the power cap") == 1)
    eventually(lambda: quota(tided) is None)  # not the earlier one
    eventually(lambda: (c := cap(tided))["state"] == "kept" and sum(job["target"] for job in tided.jobs()) <= max(c["cores"], 2))
    assert said(tided, "no quota for the power cap") == 1


@root_only
def test_a_quota_that_cannot_be_lifted_at_once_is_lifted_later(second_write_fails):
    tided = second_write_fails
    assert tided.api("DELETE", "/v1/power/cap")[0] == 200
    eventually(lambda: said(tided, "no quota for the power cap") == 1)
    eventually(lambda: quota(tided) is None)
    eventually(lambda: sum(job["target"] for job in tided.jobs()) == CORES)


def test_every_fault_is_tried():
    """A test of this file tries each, whichever of them run this time."""
    texts = [node.value for node in ast.walk(ast.parse(pathlib.Path(__file__).read_text()))
             if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    tried = [re.findall(r"(?:^|,)([a-z-]+):\d+\+?:", text) for text in texts]
    assert set().union(*tried) == FAULTS
