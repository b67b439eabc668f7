# SPDX-License-Identifier: Apache-2.0
"""What tided does to cores: exclusive sets, weights, quotas, and the division between users."""
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from daemon import NOBODY, SET, WAIT, eventually

ROOT = pathlib.Path(__file__).resolve().parents[2]
CPUS = sorted(os.sched_getaffinity(0))
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")
CGROUP = pathlib.Path("/sys/fs/cgroup")
V2 = (CGROUP / "cgroup.controllers").exists()
CPU_GROUP = CGROUP if V2 else CGROUP / "cpu"
cpu_groups = pytest.mark.skipif(not V2 and not (CPU_GROUP / "cpu.shares").exists(),
                                reason="needs control groups of the processors")


def cores_of(text):
    result = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        result |= set(range(int(first), int(last or first) + 1))
    return result


def affinity(job):
    return os.sched_getaffinity(job.peer.pid)


@two_cpus
@pytest.mark.parametrize("uid", [pytest.param(None, id="as-we-are"),
                                 pytest.param(NOBODY, id="nobody", marks=root_only)])
def test_exclusive_jobs_have_disjoint_cores_and_get_them_back(place, uid):
    tided = place.daemon("--placement", "exclusive", uid=uid).start()
    first = tided.job(uid=uid)
    eventually(lambda: first.get()["target"] == len(CPUS) or first.get()["target"] == 8)
    second = tided.job(uid=uid)
    eventually(lambda: affinity(second) and not affinity(first) & affinity(second))
    for job in (first, second):
        assert cores_of(job.get()["cores"]) == affinity(job)
    second.end()
    eventually(lambda: affinity(first) == set(CPUS))


@two_cpus
def test_exclusive_never_has_two_owners_while_jobs_come_go_and_resize(place):
    """Looks at the daemon's own book all the time; threads are slow to park."""
    tided = place.daemon("--placement", "exclusive").start()
    seen, stop = [], threading.Event()

    def watch():
        while not stop.is_set():
            owned = [cores_of(j["cores"]) for j in tided.jobs()]
            seen.append(sum(len(o) for o in owned) == len(set().union(*owned)) if owned else True)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        first = tided.job("--ack-after", "50")
        for _ in range(5):
            second = tided.job("--ack-after", "30")
            eventually(lambda: len(affinity(second)) == len(CPUS) // 2)
            assert not affinity(first) & affinity(second)
            second.end()
            eventually(lambda: affinity(first) == set(CPUS))
    finally:
        stop.set()
        watcher.join()
    assert len(seen) > 50 and all(seen)


@two_cpus
def test_cores_are_taken_only_when_threads_are_parked_or_the_deadline_passed(place):
    tided = place.daemon("--placement", "exclusive").start()
    slow = tided.job()
    eventually(lambda: cores_of(slow.get()["cores"]) == set(CPUS))
    slow.peer.tell("mute")
    start = time.monotonic()
    second = tided.job()
    slow.peer.expect("target", len(CPUS) // 2)
    while time.monotonic() - start < 1:
        assert affinity(slow) == set(CPUS) and second.get()["cores"] == ""
    eventually(lambda: len(affinity(slow)) < len(CPUS))
    assert slow.get()["oversubscribed"]
    eventually(lambda: affinity(second) and not affinity(slow) & affinity(second))


@two_cpus
def test_a_shared_job_stays_off_exclusive_cores(place):
    tided = place.daemon().start()
    shared = tided.job(name="shared")
    exclusive = tided.job(name="exclusive", placement="exclusive")
    eventually(lambda: len(affinity(exclusive)) == len(CPUS) // 2)
    eventually(lambda: not affinity(shared) & affinity(exclusive))
    exclusive.end()
    eventually(lambda: affinity(shared) == set(CPUS))


@two_cpus
def test_an_affinity_changed_by_somebody_else_is_the_new_limit(place):
    tided = place.daemon().start()
    job = tided.job()
    eventually(lambda: job.get()["target"] == len(CPUS))
    os.sched_setaffinity(job.peer.pid, {CPUS[0]})
    job.target(1)
    assert job.get()["allowed"] == 1
    os.sched_setaffinity(job.peer.pid, CPUS)
    eventually(lambda: job.get()["target"] == len(CPUS))


@root_only
@two_cpus
def test_an_affinity_changed_under_our_fence_is_the_new_limit_too(place):
    tided = place.daemon("--placement", "exclusive", uid=NOBODY).start()
    job = tided.job(uid=NOBODY)
    eventually(lambda: cores_of(job.get()["cores"]) == set(CPUS))
    os.sched_setaffinity(job.peer.pid, {CPUS[0]})
    job.target(1)
    assert job.get()["allowed"] == 1 and job.get()["cores"] == str(CPUS[0])
    os.sched_setaffinity(job.peer.pid, CPUS)
    job.target(len(CPUS))


def group(job):
    lines = pathlib.Path(f"/proc/{job.peer.pid}/cgroup").read_text().splitlines()
    path = next(path for _, names, path in (line.split(":", 2) for line in lines)
                if "cpu" in names.split(",") or V2)
    return CPU_GROUP / path.lstrip("/")


def weight(job):
    """As in cgroup v2; there is none of a root's."""
    if V2:
        return int((group(job) / "cpu.weight").read_text())
    return int((group(job) / "cpu.shares").read_text()) * 100 // 1024


def quota(job):
    """In cores."""
    if V2:
        return int((group(job) / "cpu.max").read_text().split()[0]) / 100000
    return int((group(job) / "cpu.cfs_quota_us").read_text()) / 100000


def weighs(job, wanted):
    return eventually(lambda: group(job) != CPU_GROUP and weight(job) == wanted)


@root_only
@cpu_groups
def test_root_gives_shares_in_proportion_and_takes_them_back(place):
    tided = place.daemon("--cpus", "0-7").start()
    assert tided.api("GET", "/v1/machine")[1]["weights"]
    big, small = tided.job(weight=300), tided.job()
    big.target(6), small.target(2)
    weighs(big, 600)
    weighs(small, 200)
    made = group(big)
    tided.signal(signal.SIGKILL)
    eventually(lambda: not made.exists())
    assert group(big) == CPU_GROUP


@root_only
@cpu_groups
def test_group_of_a_large_process_that_takes_its_time_to_exit_is_removed(place):
    tided = place.daemon("--cpus", "0-7").start()
    job, other = tided.job(weight=300), tided.job()
    job.target(6), other.target(2)
    weighs(job, 600)
    made = group(job)
    with subprocess.Popen([sys.executable, "-c", "b = bytearray(b'x') * (1 << 30); print(flush=True)"
                           "; import time; time.sleep(60)"], stdout=subprocess.PIPE) as large:
        large.stdout.readline()
        (made / "cgroup.procs").write_text(str(large.pid))
        large.kill()
        tided.signal(signal.SIGKILL)
    eventually(lambda: not made.exists())


@root_only
@cpu_groups
def test_root_sets_a_quota_and_removes_it(place):
    tided = place.daemon("--cpus", "0-3").start()
    job, other = tided.job(placement="quota"), tided.job()
    job.target(2), other.target(2)
    eventually(lambda: group(job) != CPU_GROUP and quota(job) == 2)
    eventually(lambda: job.get()["allowed"] == 2)
    other.end()
    job.target(4)
    eventually(lambda: quota(job) == 4)
    made = group(job)
    assert tided.stop() == 0
    assert not made.exists()


@root_only
def test_without_privilege_weights_and_quotas_are_missing_and_said_to_be(place):
    tided = place.daemon("--cpus", "0-3", uid=NOBODY).start()
    machine = tided.api("GET", "/v1/machine")[1]
    assert not machine["weights"] and not machine["privileged"]
    assert any("no weights" in note for note in machine["notes"])
    peer = tided.peer(uid=NOBODY)
    status, answer = tided.api("POST", "/v1/jobs", {"pid": peer.pid, "placement": "quota"})
    assert status == 201 and "root" in answer["note"]
    peer.go(answer["token"], answer["id"], answer["name"])
    peer.expect("target", 4)


# ---- several users ----

@root_only
def test_two_users_daemons_divide_the_machine_by_their_jobs(place):
    mine = place.daemon("--cpus", "0-7").start()
    theirs = place.daemon("--cpus", "0-7", uid=NOBODY).start()
    first = mine.job()
    first.target(8)
    second = theirs.job(uid=NOBODY)
    first.target(4), second.target(4)
    third = theirs.job(uid=NOBODY)
    first.target(3), second.target(3), third.target(2)  # 8 as 1 : 2, remainder to the larger
    notes = mine.api("GET", "/v1/machine")[1]["notes"]
    assert any("other users' daemons" in note for note in notes)
    theirs.signal(signal.SIGKILL)  # its jobs run on, uncommanded; its claim is void
    first.target(8)
    theirs.start()
    first.target(3), second.target(3), third.target(2)


@root_only
@two_cpus
def test_two_users_exclusive_jobs_never_share_a_core(place):
    mine = place.daemon("--placement", "exclusive").start()
    theirs = place.daemon("--placement", "exclusive", uid=NOBODY).start()
    first = mine.job()
    eventually(lambda: len(affinity(first)) == len(CPUS) and first.get()["cores"])
    second = theirs.job(uid=NOBODY)
    eventually(lambda: second.get()["cores"] and not affinity(first) & affinity(second))
    first.end()
    eventually(lambda: affinity(second) == set(CPUS))


@root_only
def test_claims_that_are_forged_dead_or_damaged_do_not_count(place):
    tided = place.daemon("--cpus", "0-7").start()
    job = tided.job()
    job.target(8)
    claims = place.base / "claims"
    assert claims.stat().st_mode & 0o7777 == 0o1777
    own = pathlib.Path(f"/proc/{os.getpid()}/stat").read_text().rsplit(")", 1)[1].split()
    start = own[19]
    files = {
        "65534-1": f"1 65534 {os.getpid()} {start} 9 \n",   # not its owner
        "0-99": f"1 0 {os.getpid()} 1 9 \n",                  # started at another time
        "0-98": "1 0 99999999 5 9 \n",                        # no such process
        "0-97": "nonsense", "0-96": "",
    }
    for name, text in files.items():
        (claims / name).write_text(text)
    (claims / "0-95").symlink_to("/proc/self/stat")
    os.mkfifo(claims / "0-94")
    (claims / "0-93").mkdir()
    zombie = os.fork()
    if zombie == 0:
        os._exit(0)
    os.waitid(os.P_PID, zombie, os.WEXITED | os.WNOWAIT)
    started = pathlib.Path(f"/proc/{zombie}/stat").read_text().rsplit(")", 1)[1].split()[19]
    (claims / ".zombie").write_text(f"1 0 {zombie} {started} 9 \n")
    (claims / ".zombie").rename(claims / f"0-{zombie}")  # the move makes the daemon read them all
    time.sleep(1.5)
    assert job.get()["target"] == 8
    os.waitpid(zombie, 0)
    # The same with everything right does count.
    (claims / ".new").write_text(f"1 0 {os.getpid()} {start} 1 \n")
    (claims / ".new").rename(claims / f"0-{os.getpid()}")
    job.target(4)
    (claims / f"0-{os.getpid()}").unlink()
    job.target(8)


def test_a_claims_directory_that_is_a_link_is_not_used(place):
    (place.base / "elsewhere").mkdir()
    (place.base / "claims").symlink_to(place.base / "elsewhere")
    tided = place.daemon("--cpus", "0-7").start()
    tided.job().target(8)
    assert list((place.base / "elsewhere").iterdir()) == []
    assert any("not seen" in n for n in tided.api("GET", "/v1/machine")[1]["notes"])


def test_waiting_orders_of_many_controllers_are_all_answered(place):
    tided = place.daemon("--cpus", "0-7").start()
    tided.job("--ack-after", "20").target(8)
    controllers = [tided.controller() for _ in range(20)]
    results = []
    threads = [threading.Thread(target=lambda c=c, i=i: results.append(
        c.order(SET, flags=WAIT, intra=1 + i % 8, job="j1")["status"]))
        for i, c in enumerate(controllers)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == [0] * 20
