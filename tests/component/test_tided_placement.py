# SPDX-License-Identifier: Apache-2.0
"""Placement of jobs on cores: exclusive sets, weights, quotas, and the division between users."""
import fcntl
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from daemon import NOBODY, SET, WAIT, eventually
from workers import CPU_GROUP, V2, cpu_groups, group, weighs

ROOT = pathlib.Path(__file__).resolve().parents[2]
ONE = 61001  # a user without a name
CPUS = sorted(os.sched_getaffinity(0))
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")


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
@pytest.mark.parametrize("uid", [pytest.param(None, id="as-we-are"),
                                 pytest.param(NOBODY, id="nobody", marks=root_only)])
def test_a_process_that_joins_another_job_leaves_its_former_jobs_cores(place, uid):
    """As in `tide run -- tide run -- …`: the fence of the one is no limit for the other."""
    tided = place.daemon("--placement", "exclusive", uid=uid).start()
    outer = tided.job(uid=uid, name="outer")
    other = tided.job(uid=uid, name="other")
    eventually(lambda: len(affinity(outer)) == len(CPUS) // 2)
    status, answer = tided.api("POST", "/v1/jobs", {"pid": outer.peer.pid, "name": "inner",
                                                    "placement": "shared"})
    assert status == 201, answer
    eventually(lambda: affinity(outer) and not affinity(outer) & affinity(other))
    other.end()
    eventually(lambda: affinity(outer) == set(CPUS))
    assert [(j["name"], j["allowed"]) for j in tided.jobs()] == [("inner", len(CPUS))]


@two_cpus
def test_one_of_two_processes_that_joins_another_job_leaves_the_others_cores(place):
    tided = place.daemon().start()
    outer = tided.job(name="outer", placement="exclusive", max=1)
    outer.peer.tell("fork")
    eventually(lambda: len(outer.get()["pids"]) == 2 and len(affinity(outer)) == 1)
    status, answer = tided.api("POST", "/v1/jobs", {"pid": outer.peer.pid, "name": "inner"})
    assert status == 201, answer
    eventually(lambda: affinity(outer) == set(CPUS) - cores_of(outer.get()["cores"]))


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


def quota(job):
    """In cores."""
    if V2:
        return int((group(job) / "cpu.max").read_text().split()[0]) / 100000
    return int((group(job) / "cpu.cfs_quota_us").read_text()) / 100000


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
    assert any("weights not set" in note for note in machine["notes"])
    peer = tided.peer(uid=NOBODY)
    status, answer = tided.api("POST", "/v1/jobs", {"pid": peer.pid, "placement": "quota"})
    assert status == 201 and "root" in answer["note"]
    peer.go(answer["token"], answer["id"], answer["name"])
    peer.expect("target", 4)


# ---- several users ----

@pytest.fixture
def claims(place):
    """The directory of machine shares, which a user's daemon cannot make in the place's."""
    path = place.base / "claims"
    path.mkdir()
    path.chmod(0o1777)
    return path


@root_only
def test_users_daemons_divide_the_machine_by_user_and_then_by_jobs(place, claims):
    mine = place.daemon("--cpus", "0-7", uid=ONE).start()
    theirs = place.daemon("--cpus", "0-7", uid=NOBODY).start()
    first = mine.job(uid=ONE)
    first.target(8)
    second = theirs.job(uid=NOBODY)
    first.target(4), second.target(4)
    third = theirs.job(uid=NOBODY)
    first.target(4), second.target(2), third.target(2)
    more = place.daemon("--cpus", "0-7", uid=NOBODY).start()
    fourth = more.job(uid=NOBODY)
    first.target(4), fourth.target(1), eventually(lambda: second.get()["target"] + third.get()["target"] == 3)
    notes = mine.api("GET", "/v1/machine")[1]["notes"]
    assert any("other users' daemons" in note for note in notes)
    more.signal(signal.SIGKILL)
    second.target(2), third.target(2)
    theirs.signal(signal.SIGKILL)  # its jobs run on, uncommanded; its claim is void
    first.target(8)
    theirs.start()
    first.target(4), second.target(2), third.target(2)


@root_only
def test_users_daemons_have_what_roots_daemon_leaves(place, claims):
    users = place.daemon("--cpus", "0-7", uid=NOBODY).start()
    job = users.job(uid=NOBODY)
    job.target(8)
    roots = place.daemon("--cpus", "0-7").start()
    first = roots.job("--max", "6")
    first.target(6), job.target(2)
    second = roots.job()
    first.target(4), second.target(4), job.target(1)
    first.end(), second.end()
    job.target(8)


@root_only
@two_cpus
def test_two_users_exclusive_jobs_never_share_a_core(place, claims):
    mine = place.daemon("--placement", "exclusive", uid=ONE).start()
    theirs = place.daemon("--placement", "exclusive", uid=NOBODY).start()
    first = mine.job(uid=ONE)
    eventually(lambda: len(affinity(first)) == len(CPUS) and first.get()["cores"])
    second = theirs.job(uid=NOBODY)
    eventually(lambda: second.get()["cores"] and not affinity(first) & affinity(second))
    first.end()
    eventually(lambda: affinity(second) == set(CPUS))


FORGER = """
import fcntl, os, signal, sys
folder, count, mode, lock, pid, cores = sys.argv[1], int(sys.argv[2]), int(sys.argv[3], 8), *sys.argv[4:7]
for i in range(count):
    child = os.fork() if count > 1 else 0
    if child == 0:
        break
else:
    os.read(0, 1)  # ends with the test
    os._exit(0)
name = f"{folder}/.{os.getuid()}-{os.getpid()}"
claim = open(name, "w+")
os.chmod(name, mode)
claim.write(f"2 {int(pid) or os.getpid()} 512 8 {cores}\\n")
claim.flush()
if lock != "none":
    fcntl.lockf(claim, fcntl.LOCK_EX if lock == "write" else fcntl.LOCK_SH)
os.rename(name, name.replace("/.", "/"))
os.read(0, 1)
"""


@pytest.fixture
def forge(claims):
    """Starts processes of a user that each say in a file of their own that they have 512 jobs."""
    forgers = []

    def start(uid, count=1, mode="644", lock="write", pid=0, cores=""):
        def files():  # not the daemon's own, which may come meanwhile
            return len(list(claims.glob(f"{uid}-*")))

        before = files()
        forgers.append(subprocess.Popen(
            ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", sys.executable, "-c", FORGER, claims,
             str(count), mode, lock, str(pid), cores], stdin=subprocess.PIPE, start_new_session=True))
        eventually(lambda: files() == before + count)
        return forgers[-1]

    yield start
    for forger in forgers:
        os.killpg(forger.pid, signal.SIGKILL)
        forger.wait()


def stays(job, target, seconds=1.5):
    """A tick of the daemon later, too."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert job.get()["target"] == target
        time.sleep(0.05)


@root_only
def test_claims_of_users_take_no_cores_from_roots_daemon(place, forge):
    tided = place.daemon("--cpus", "0-7").start()
    job = tided.job()
    job.target(8)
    forge(NOBODY, count=20, cores="0-7")
    forge(ONE, cores="0-7")
    stays(job, 8)


@root_only
def test_a_users_many_claims_take_no_more_than_one_share(place, forge):
    tided = place.daemon("--cpus", "0-7", uid=ONE).start()
    job = tided.job(uid=ONE)
    job.target(8)
    forger = forge(NOBODY, count=20, cores="0-7")
    job.target(4)
    stays(job, 4)
    os.killpg(forger.pid, signal.SIGKILL)
    job.target(8)


@root_only
@two_cpus
def test_a_user_who_says_to_hold_all_cores_holds_a_share_of_them(place, forge):
    tided = place.daemon("--placement", "exclusive", uid=ONE).start()
    forge(NOBODY, count=8, cores=",".join(map(str, CPUS)))
    job = tided.job(uid=ONE)  # whose cores are its own or the other half: who was seen first keeps them
    job.target(len(CPUS) // 2)
    eventually(lambda: len(affinity(job)) == len(CPUS) // 2)
    stays(job, len(CPUS) // 2)


@root_only
@pytest.mark.parametrize("lie", [{"lock": "none"}, {"lock": "read"}, {"pid": os.getpid()}, {"pid": 99999999},
                                 {"mode": "666"}], ids=["no-lock", "read-lock", "anothers-pid", "no-pid", "mode-666"])
def test_claims_that_are_forged_do_not_count(place, forge, lie):
    tided = place.daemon("--cpus", "0-7", uid=ONE).start()
    job = tided.job(uid=ONE)
    job.target(8)
    forge(NOBODY, **lie)
    stays(job, 8)
    forge(NOBODY)  # the same with everything right does count
    job.target(4)


@root_only
def test_what_is_no_claim_does_not_count(place):
    tided = place.daemon("--cpus", "0-7").start()
    job = tided.job()
    job.target(8)
    claims = tided.claims
    assert claims.stat().st_mode & 0o7777 == 0o1777
    dead = claims / "0-99"
    for name, text in {"0-99": "2 1 9 8 \n", "0-97": "nonsense", "0-96": ""}.items():
        (claims / name).write_text(text)
    (claims / "0-95").symlink_to("/proc/self/stat")
    os.mkfifo(claims / "0-94")
    (claims / "0-93").mkdir()
    (claims / ".new").write_text("")
    (claims / ".new").rename(claims / "0-92")  # the move makes the daemon read them all
    eventually(lambda: not dead.exists())  # nobody holds its lock: left by a daemon of root's that was killed
    assert job.get()["target"] == 8
    with open(claims / ".right", "w", encoding="utf-8") as right:
        right.write(f"2 {os.getpid()} 1 1 \n")
        right.flush()
        fcntl.lockf(right, fcntl.LOCK_EX)
        os.rename(right.name, claims / "0-91")
        job.target(4)
    (claims / "0-91").unlink()
    job.target(8)


@root_only
def test_root_takes_the_directory_over_from_a_user(place):
    claims = place.base / "claims"
    claims.mkdir(mode=0o700)
    os.chown(claims, NOBODY, NOBODY)
    place.daemon("--cpus", "0-7").start()
    assert (claims.stat().st_uid, claims.stat().st_mode & 0o7777) == (0, 0o1777)


def test_a_claims_directory_that_is_a_link_is_not_used(place):
    (place.base / "elsewhere").mkdir()
    (place.base / "claims").symlink_to(place.base / "elsewhere")
    tided = place.daemon("--cpus", "0-7").start()
    tided.job().target(8)
    assert list((place.base / "elsewhere").iterdir()) == []
    assert any("cannot see" in n for n in tided.api("GET", "/v1/machine")[1]["notes"])


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
