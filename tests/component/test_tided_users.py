# SPDX-License-Identifier: Apache-2.0
"""Several users on the system's daemon: each has a share of the machine, whatever the others ask for,
and as much of the daemon as tide.conf says. The second table of docs/permissions.md."""
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import pytest

from daemon import BORROW, LEND, RECLAIM, SET, Controller, Job, control, eventually

ONE, TWO, THREE = 61001, 61002, 61003  # users without a name
ADMINS = 61100

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

two_cpus = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")

CALLER = """
import http.client, json, socket, struct, sys
def api(method, path, body=None):
    c = http.client.HTTPConnection("x")
    c.sock = socket.socket(socket.AF_UNIX); c.sock.connect(folder + "/api.sock")
    c.request(method, path, body); answer = c.getresponse()
    return answer.status, answer.read().decode()
def agent(data):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(folder + "/agent.sock")
    s.send(bytes.fromhex(data)); answer = s.recv(2048); s.close()
    return struct.unpack_from("<i", answer, 16)[0], answer[40:].split(bytes(1))[0].decode()
folder = sys.argv[1]
print(json.dumps([(api if kind == "api" else agent)(*args) for kind, *args in json.loads(sys.argv[2])]))
"""


def call(tided, uid, *calls, groups=()):
    who = [f"--reuid={uid}", f"--regid={uid}",
           f"--groups={','.join(map(str, groups))}" if groups else "--clear-groups"]
    done = subprocess.run(["setpriv", *who, sys.executable, "-c", CALLER, tided.dir, json.dumps(calls)],
                          capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


def patch(tided, uid, job, groups=(), **body):
    return call(tided, uid, ("api", "PATCH", f"/v1/jobs/{job.id}", json.dumps(body)), groups=groups)[0]


def targets(*jobs):
    return [job.get()["target"] for job in jobs]


def settle(expected, *jobs):
    eventually(lambda: targets(*jobs) == expected)


@pytest.fixture
def tided(place):
    return place.daemon("--cpus", "0-7", "--policy", "equal").start()


def conf(public_dir, text):
    path = public_dir / "t.conf"
    path.write_text(f"[daemon]\ncpus=0-7\npolicy=equal\n{text}")
    path.chmod(0o644)
    return path


# ---- shares ----

def test_many_jobs_of_one_user_leave_another_the_half(tided):
    one = [tided.job("--max", "8", uid=ONE) for _ in range(6)]
    two = tided.job("--max", "8", uid=TWO)
    settle([4], two)
    settle([1] * 6, *one)
    text = two.get()["reason"]
    assert "its user has 4 of 8 cores, 2 users share" in text, text
    assert "its user has 4 of 8 cores" in two.changes()[-1]["reason"]
    two.end()
    settle([2, 2, 1, 1, 1, 1], *one)


def test_what_one_user_leaves_the_others_have(tided):
    one, two = tided.job("--max", "2", uid=ONE), tided.job("--max", "8", uid=TWO)
    settle([2, 6], one, two)


@pytest.mark.parametrize("ask", [{"threads": 8}, {"pin": True, "threads": 8}, {"pin": True, "cores": "0-6"},
                                 {"intra": 1, "inter": 8}, {"threads": 4096}],
                         ids=lambda ask: "-".join(map(str, itertools.chain(*ask.items()))))
def test_more_than_a_share_is_for_administrators(place, public_dir, ask):
    group = "games"
    number = int(next(line for line in open("/etc/group") if line.startswith(group + ":")).split(":")[2])
    tided = place.daemon("--cpus", "0-7", "--policy", "equal", "--admin-group", group).start()
    one, two = tided.job("--max", "8", uid=ONE), tided.job("--max", "8", uid=TWO)
    settle([4, 4], one, two)
    status, answer = patch(tided, ONE, one, **ask)
    assert status == 403 and "exceed the user's share: 4 of 8" in answer, answer
    assert "admin group" in answer
    settle([4, 4], one, two)
    assert not one.get()["pinned"]
    assert patch(tided, THREE, one, groups=[number], **ask)[0] == 200
    assert one.get()["pinned"] == ask.get("threads", ask.get("intra", 7))
    if one.get()["pinned"] > 4:
        eventually(lambda: two.get()["target"] <= 3)


def test_a_controllers_order_has_the_same_limit(tided):
    one, two = tided.job("--max", "8", uid=ONE), tided.job("--max", "8", uid=TWO)
    settle([4, 4], one, two)
    (status, text), (fine, _) = call(tided, ONE, ("agent", control(SET, intra=5, job=one.id).hex()),
                                     ("agent", control(SET, intra=3, job=one.id).hex()))
    assert status == -1 and "user's share" in text
    assert fine == 0
    settle([3, 5], one, two)


def test_a_job_does_not_begin_with_more_than_a_share(tided):
    two = tided.job("--max", "8", uid=TWO)
    settle([8], two)
    free = tided.peer(uid=ONE)
    status, answer = call(tided, ONE, ("api", "POST", "/v1/jobs", json.dumps({"pid": free.pid, "threads": 4096})))[0]
    assert status == 403 and "4096 cores exceed the user's share: 4 of 8" in answer
    assert len(tided.jobs()) == 1


def test_alone_a_user_may_pin_as_ever_until_somebody_comes(tided):
    one = tided.job("--max", "8", uid=ONE)
    assert patch(tided, ONE, one, threads=64)[0] == 200
    settle([64], one)
    two = tided.job("--max", "8", uid=TWO)
    settle([4, 4], one, two)
    two.end()
    settle([64], one)


@two_cpus
def test_a_pin_to_all_cores_is_cut_when_somebody_comes(place):
    cpus = os.sched_getaffinity(0)
    half = set(sorted(cpus)[:len(cpus) // 2])
    tided = place.daemon("--policy", "equal").start()
    one = tided.job("--max", "64", uid=ONE)
    assert patch(tided, ONE, one, pin=True, cores=",".join(map(str, cpus)))[0] == 200
    settle([len(cpus)], one)
    two = tided.job("--max", "64", uid=TWO)
    eventually(lambda: os.sched_getaffinity(one.peer.pid) == half)
    eventually(lambda: os.sched_getaffinity(two.peer.pid) == cpus - half)  # nobody may pin them away
    two.end()
    eventually(lambda: os.sched_getaffinity(one.peer.pid) == cpus)


def without_agent(tided, request, uid, busy):
    """A job of a program that never reports: it sleeps, or it keeps three cores busy."""
    loop = "while :; do :; done"
    program = ["sh", "-c", f"{loop} & {loop} & {loop}"] if busy else ["sleep", "600"]
    process = subprocess.Popen(["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *program],
                               start_new_session=True)

    def end():
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    request.addfinalizer(end)
    comm = pathlib.Path(f"/proc/{process.pid}/comm")
    eventually(lambda: comm.read_text().strip() == program[0])
    status, answer = tided.api("POST", "/v1/jobs", {"pid": process.pid, "script": True})
    assert status == 201, answer
    return Job(tided, process, answer)


@two_cpus
@pytest.mark.parametrize("busy", [False, True], ids=["sleeps", "busy"])
def test_cores_pinned_for_a_program_without_an_agent_are_cut_too(place, request, busy):
    cpus = os.sched_getaffinity(0)
    half = set(sorted(cpus)[:len(cpus) // 2])
    tided = place.daemon("--policy", "equal").start()
    one = without_agent(tided, request, ONE, busy)
    if busy:
        eventually(lambda: "no share" not in one.get()["reason"])
    assert patch(tided, ONE, one, pin=True, cores=",".join(map(str, cpus)))[0] == 200
    two = tided.job("--max", "64", uid=TWO)
    eventually(lambda: os.sched_getaffinity(one.peer.pid) == half)
    eventually(lambda: os.sched_getaffinity(two.peer.pid) == cpus - half)
    two.end()
    eventually(lambda: os.sched_getaffinity(one.peer.pid) == cpus)


@pytest.mark.parametrize("busy", [False, True], ids=["sleeps", "busy"])
def test_many_pins_together_keep_no_more_than_the_share(tided, request, busy):
    two = tided.job("--max", "8", uid=TWO)
    first, second = (without_agent(tided, request, ONE, busy) for _ in range(2))
    assert patch(tided, ONE, first, pin=True, cores="0-3")[0] == 200
    assert patch(tided, ONE, second, pin=True, cores="4-7")[0] == 200
    settle([4], two)
    settle([2, 2], first, second)


def test_nobody_is_pinned_to_cores_that_another_user_keeps(tided):
    one, two = tided.job("--max", "8", uid=ONE), tided.job("--max", "8", uid=TWO)
    settle([4, 4], one, two)
    assert patch(tided, ONE, one, pin=True, cores="0-3")[0] == 200
    status, answer = patch(tided, TWO, two, pin=True, cores="2-5")
    assert status == 403 and "a job of another user is pinned to core 2-3" in answer and "cores-pinned" in answer
    assert not two.get()["pinned"]
    assert patch(tided, TWO, two, pin=True, cores="4-6")[0] == 200
    assert one.patch(auto=True)[0] == 200
    assert patch(tided, TWO, two, pin=True, cores="2-5")[0] == 200


def test_a_pin_that_is_whole_again_leaves_what_another_user_has_pinned_meanwhile(tided):
    """Pinned alone, cut for two others; one of them goes, and the other has pinned what was cut."""
    one = tided.job("--max", "8", uid=ONE)
    assert patch(tided, ONE, one, pin=True, cores="0-6")[0] == 200
    two, three = tided.job("--max", "2", uid=TWO), tided.job("--max", "8", uid=THREE)
    settle([3, 2, 3], one, two, three)
    assert patch(tided, TWO, two, pin=True, cores="3-4")[0] == 200
    three.end()
    settle([5, 2], one, two)  # cores 0-2 and 5-6


@two_cpus
def test_minima_and_exclusive_cores_count_up_to_the_share(place):
    cpus = os.sched_getaffinity(0)
    tided = place.daemon("--policy", "equal").start()
    one = tided.job("--max", "64", uid=ONE, min=len(cpus), placement="exclusive")
    settle([len(cpus)], one)
    two = tided.job("--max", "64", uid=TWO, placement="exclusive")
    settle([len(cpus) - len(cpus) // 2, len(cpus) // 2], one, two)
    eventually(lambda: len(os.sched_getaffinity(two.peer.pid)) == len(cpus) // 2)
    assert not os.sched_getaffinity(one.peer.pid) & os.sched_getaffinity(two.peer.pid)


def weights(tided):
    """Returns each job's weight, as the kernel was told."""
    return {m[1]: int(m[2])
            for m in re.finditer(r'^tide_job_cpu_weight\{job="(j\d+)".*\} (\d+)$', tided.metrics(), re.M)}


@pytest.mark.skipif(not os.access("/sys/fs/cgroup", os.W_OK), reason="needs control groups")
def test_a_users_many_jobs_weigh_no_more_than_anothers_one(place):
    """Each job has a thread at least: 20 jobs on a core have 20, and the kernel is to share it."""
    tided = place.daemon("--policy", "equal").start()
    one = [tided.job("--max", "1", uid=ONE) for _ in range(20)]
    two = tided.job("--max", "64", uid=TWO)
    settle([len(os.sched_getaffinity(0)) // 2 or 1], two)
    eventually(lambda: all(weights(tided).values()))
    eventually(lambda: 0.9 <= sum(weights(tided)[job.id] for job in one) / weights(tided)[two.id] <= 1.1)


def test_users_have_weights(place, public_dir):
    tided = place.daemon("--config", conf(public_dir, f"user-weights={ONE}:300\n")).start()
    one, two = tided.job("--max", "8", uid=ONE), tided.job("--max", "8", uid=TWO)
    settle([6, 2], one, two)


def test_a_limit_of_cores_holds_also_alone(place, public_dir):
    tided = place.daemon("--config", conf(public_dir, "user-cores=3\n")).start()
    one = tided.job("--max", "8", uid=ONE)
    settle([3], one)
    assert "its user has 3 of 8 cores" in one.get()["reason"]
    status, answer = patch(tided, ONE, one, threads=4)
    assert status == 403 and "share: 3 of 8" in answer
    roots = tided.job("--max", "8")
    settle([3, 5], one, roots)


def test_what_an_administrator_pins_outlives_the_daemon(tided):
    one, two = tided.job("--max", "8", uid=ONE), tided.job("--max", "8", uid=TWO)
    assert one.patch(threads=7)[0] == 200  # root
    settle([7, 1], one, two)
    eventually(lambda: '"granted":true' in one.record())
    tided.signal(9)
    tided.start()
    settle([7, 1], one, two)
    assert patch(tided, ONE, one, threads=3)[0] == 200
    settle([3, 5], one, two)


def test_a_program_that_sets_its_threads_ends_what_an_administrator_has_granted(tided):
    one, two = tided.job("--max", "64", uid=ONE), tided.job("--max", "64", uid=TWO)
    assert one.patch(threads=2)[0] == 200  # root
    settle([2, 6], one, two)
    one.peer.tell("local 64 1")
    eventually(lambda: one.get()["pinned"] == 64)
    settle([4, 4], one, two)
    eventually(lambda: '"granted":false' in one.record())
    assert one.patch(threads=7)[0] == 200
    settle([7, 1], one, two)


@pytest.mark.parametrize("release", [lambda tided, job: job.patch(auto=True)[0] - 200,
                                     lambda tided, job: tided.controller().order(SET, job=job.id)["status"]],
                         ids=["api", "controller"])
def test_a_pin_that_is_released_grants_nothing_any_more(tided, release):
    one = tided.job("--max", "64", uid=ONE)
    assert one.patch(threads=7)[0] == 200
    eventually(lambda: '"granted":true' in one.record())
    assert release(tided, one) == 0
    eventually(lambda: '"granted":false' in one.record())


# ---- loans ----

def order(tided, uid, verb, job, n=0):
    """An order of the user's own controlling program; returns the answer's text, if there is any."""
    status, text = call(tided, uid, ("agent", control(verb, intra=n, job=job.id).hex()))[0]
    assert status >= 0, text
    return text


def test_what_a_user_lends_is_borrowed_by_the_users_own_jobs_first(tided):
    lender, borrower = tided.job("--max", "8", uid=ONE), tided.job("--max", "8", uid=ONE)
    greedy = tided.job("--max", "8", uid=TWO)
    settle([2, 2, 4], lender, borrower, greedy)
    assert "fewer" in order(tided, TWO, BORROW, greedy, 512)  # it has waited longest
    order(tided, ONE, LEND, lender, 1)
    assert order(tided, ONE, BORROW, borrower, 1) == ""
    settle([1, 3, 4], lender, borrower, greedy)
    assert [job.get()["borrowed"] for job in (borrower, greedy)] == [1, 0]
    order(tided, ONE, RECLAIM, lender)
    settle([2, 2, 4], lender, borrower, greedy)


def test_what_nobody_borrows_is_the_others_until_it_is_reclaimed(tided):
    lender, brother = tided.job("--max", "8", uid=ONE), tided.job("--max", "8", uid=ONE)
    two = tided.job("--max", "8", uid=TWO)
    settle([2, 2, 4], lender, brother, two)
    order(tided, ONE, LEND, lender, 1)
    settle([1, 2, 5], lender, brother, two)  # one core was lent, and no more than that
    order(tided, ONE, RECLAIM, lender)
    settle([2, 2, 4], lender, brother, two)


# ---- limits of the daemon ----

def test_one_users_jobs_leave_places_for_others(place, public_dir):
    tided = place.daemon("--config", conf(public_dir, "user-jobs=2\n")).start()
    for _ in range(2):
        tided.job(uid=ONE)
    free = tided.peer(uid=ONE)
    status, answer = call(tided, ONE, ("api", "POST", "/v1/jobs", json.dumps({"pid": free.pid})))[0]
    assert status == 503 and "as many jobs as one user may have, 2 (user-jobs)" in answer
    tided.job(uid=TWO)
    for _ in range(3):
        tided.job()


def test_one_users_processes_leave_places_for_others(place, public_dir):
    tided = place.daemon("--config", conf(public_dir, "user-processes=1\n")).start()
    tided.job(uid=ONE)
    free = tided.peer(uid=ONE)
    status, answer = call(tided, ONE, ("api", "POST", "/v1/jobs", json.dumps({"pid": free.pid})))[0]
    assert status == 503 and "cannot follow process" in answer
    tided.job(uid=TWO)


def test_limits_are_for_newcomers_not_for_jobs_that_are_found_again(place, public_dir):
    tided = place.daemon("--config", conf(public_dir, "")).start()
    jobs = [tided.job(uid=ONE) for _ in range(3)]
    eventually(lambda: all(job.record() for job in jobs))
    tided.signal(9)
    conf(public_dir, "user-jobs=1\nuser-processes=1\n")
    tided.start()
    assert {job["id"] for job in tided.jobs()} == {job.id for job in jobs}
    for job in jobs:
        job.peer.expect("welcome")
    free = tided.peer(uid=ONE)
    status, answer = call(tided, ONE, ("api", "POST", "/v1/jobs", json.dumps({"pid": free.pid})))[0]
    assert status == 503 and "(user-jobs)" in answer


def test_a_process_that_changes_its_job_is_no_newcomer(place, public_dir):
    tided = place.daemon("--config", conf(public_dir, "user-processes=1\n")).start()
    one = tided.job(uid=ONE)
    move = ("api", "POST", "/v1/jobs", json.dumps({"pid": one.peer.pid}))
    status, answer = call(tided, ONE, move)[0]
    assert status == 201, answer
    assert [(job["id"], job["pids"]) for job in tided.jobs()] == [(json.loads(answer)["id"], [one.peer.pid])]


def test_one_users_connections_leave_places_for_others(place, public_dir):
    tided = place.daemon("--config", conf(public_dir, "user-connections=3\n")).start()
    code = ("import socket, sys\n"
            "held = []\n"
            "for _ in range(20):\n"
            "    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(sys.argv[1]); held.append(s)\n"
            "alive = 0\n"
            "for s in held:\n"
            "    s.settimeout(2)\n"
            "    try:\n"
            "        alive += s.recv(1) != b''\n"
            "    except TimeoutError:\n"
            "        alive += 1\n"
            "print(alive)\n")
    done = subprocess.run(["setpriv", f"--reuid={ONE}", f"--regid={ONE}", "--clear-groups", sys.executable, "-c",
                           code, tided.dir / "agent.sock"], capture_output=True, text=True, timeout=60, check=True)
    assert int(done.stdout) == 3
    controllers = [Controller(tided.dir / "agent.sock") for _ in range(8)]  # root's
    assert all(c.list() == [] for c in controllers)


def test_a_priority_above_the_limit_is_for_administrators(place, public_dir):
    tided = place.daemon("--config", conf(public_dir, "user-priority=5\n")).start()
    one = tided.job(uid=ONE)
    status, answer = patch(tided, ONE, one, priority=6)
    assert status == 403 and "at most 5 (user-priority)" in answer
    assert patch(tided, ONE, one, priority=5)[0] == 200
    assert one.patch(priority=1000)[0] == 200
    assert patch(tided, ONE, one, weight=200)[0] == 200


@pytest.mark.parametrize("key, option, refused", [("user-cores=2", "--threads=3", "3 cores exceed the user's share: 2 of 8"),
                                                  ("user-priority=5", "--priority=6", "at most 5 (user-priority)")])
def test_a_program_that_asks_for_too_much_is_a_job_without_that(place, public_dir, build_dir, key, option, refused):
    tided = place.daemon("--config", conf(public_dir, key + "\n")).start()
    tide = shutil.copy(build_dir / "tide", public_dir)
    run = subprocess.Popen(["setpriv", f"--reuid={ONE}", f"--regid={ONE}", "--clear-groups", tide, "run", "--name", "much",
                            option, "--weight=200", "--", "sleep", "600"], env={**os.environ, "TIDE_DIR": str(tided.dir)},
                           stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        (job,) = eventually(tided.jobs)
        assert (job["name"], job["pinned"], job["weight"], job["priority"]) == ("much", None, 200, 0)
    finally:
        run.kill()
        said = run.communicate()[1]
    (line,) = [line for line in said.splitlines() if "the program is a job without" in line]
    assert f"without {option.split('=')[0]}: " in line and refused in line
