# SPDX-License-Identifier: Apache-2.0
"""A user who floods api.sock or agent.sock: others' jobs keep their changes, root its answers; api.sock's flood gets 429,
agent.sock's waits."""
import concurrent.futures
import errno
import json
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import time

import pytest

from daemon import GUARD_S, QUIET, SET, SLOWNESS, WAIT, UnixConnection, backend, control, eventually, hello, local
from test_tided_users import ONE, THREE, TWO, call, conf

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

BOUND_S = 1.0 * SLOWNESS  # of one change: without the cure it takes many seconds
ROWS = 100_000

# Connections that send the next request with each answer, until its input ends; prints how often each status came.
FLOOD = """
import collections, json, os, select, socket, sys, time
path, request, connections = sys.argv[1], sys.argv[2].encode(), int(sys.argv[3])
counts, open_ones, more = collections.Counter(), set(), True
def dial():
    s = socket.socket(socket.AF_UNIX)
    try:
        s.connect(path)
        s.send(b"GET " + request + b" HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
        open_ones.add(s)
    except OSError:
        counts["refused"] += 1
        s.close()
while more:
    for _ in range(connections - len(open_ones)):
        dial()
    for s in select.select([*open_ones, sys.stdin], [], [], .1)[0]:
        if s == sys.stdin:
            more = False
            continue
        try:
            data = s.recv(1 << 20)
            if data.startswith(b"HTTP/1.1 "):
                counts[data[9:12].decode()] += 1
                if data[9:12] == b"429" and counts["429"] == 1:
                    print("full", flush=True)
                s.send(b"GET " + request + b" HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
        except OSError:
            data = b""
        if not data:
            counts["refused"] += 1
            open_ones.remove(s)
            s.close()
print(json.dumps(counts))
"""


def as_user(uid, *command):
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--pdeathsig=KILL", *map(str, command)]


class Flood:
    def __init__(self, tided, uid, request, processes=4, connections=16):
        self.processes = [subprocess.Popen(as_user(uid, sys.executable, "-c", FLOOD, tided.dir / "api.sock", request,
                                                   connections),
                                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                          for _ in range(processes)]
        for process in self.processes:
            assert process.stdout.readline() == "full\n"  # each has had too much

    def kill(self):
        for process in self.processes:
            process.kill()
            process.wait()

    def end(self):
        """How often each status came."""
        sums = {}
        for process in self.processes:
            for status, n in json.loads(process.communicate(timeout=GUARD_S)[0]).items():
                sums[status] = sums.get(status, 0) + n
        return sums


@pytest.fixture
def floods(tided):
    made = []
    yield lambda *args, **more: made.append(Flood(tided, *args, **more)) or made[-1]
    for flood in made:
        flood.kill()


@pytest.fixture
def tided(place):
    return place.daemon("--cpus", "0-7", "--policy", "equal").start()


def fill_history(tided, rows):
    """As many jobs that have ended as history holds, of somebody whom nobody asks about."""
    tided.stop()
    db = sqlite3.connect(tided.dir / "history.db")
    db.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
               "INSERT INTO job (number, submitted, name, owner, uid, kind, command, begun, ended, run, wait,"
               " weight, priority, class, placement) SELECT i + 1000, i, 'old' || i, 'somebody', ?, 'process', 'x', i, i,"
               " 1, 1, 100, 0, 0, 'shared' FROM n", (rows, ONE))
    db.commit()
    db.close()
    tided.start()


def change(job, n):
    """Seconds until a job's agent has another target, which its user's other job made room for."""
    began = time.monotonic()
    assert job.daemon.controller().order(SET, flags=WAIT, job=job.id, intra=n, deadline_ms=60000)["status"] == 0
    job.peer.expect("target", n)
    return time.monotonic() - began


def replan(tided, job, expected):
    """Seconds from a death that the kernel tells of to what others get of its cores."""
    guest = tided.job("--max", "8")
    job.peer.expect("target", expected)
    began = time.monotonic()
    guest.peer.end()
    job.peer.expect("target", 8)
    return time.monotonic() - began


def served(tided, uid, path):
    """Whether the user has an answer; none comes while all of its connections are still counted."""
    try:
        return call(tided, uid, ("api", "GET", path))[0][0] == 200
    except subprocess.CalledProcessError:
        return False


@pytest.mark.parametrize("request_", ["/v1/history?job=nobody", "/v1/history?since=2000000000", "/v1/jobs", "/metrics"])
def test_changes_take_no_longer(tided, floods, request_):
    fill_history(tided, ROWS)
    job = tided.job("--max", "8")
    job.target(8)
    flood = floods(ONE, request_)
    changes = [change(job, n) for n in (1, 2, 3, 4) * 5]
    assert job.patch(auto=True)[0] == 200
    job.peer.expect("target", 8)
    plans = [replan(tided, job, 4) for _ in range(5)]
    counts = flood.end()
    assert max(map(statistics.median, (changes, plans))) < BOUND_S, (changes, plans, counts)
    assert counts.get("429", 0) > 0, counts
    assert counts.get("200", 0) > 0 or "since" in request_, counts  # the one search may still go on


def test_a_new_connection_does_not_wait_for_searches(tided, floods):
    fill_history(tided, ROWS)
    worst = 0
    with concurrent.futures.ThreadPoolExecutor() as pool:
        flood = pool.submit(floods, ONE, "/v1/history?since=2000000000")
        while not flood.done():  # that is, from its first request on
            began = time.monotonic()
            connection = UnixConnection(tided.dir / "api.sock")
            connection.request("GET", "/v1/machine")
            assert connection.getresponse().status == 200
            connection.close()
            worst = max(worst, time.monotonic() - began)
        counts = flood.result().end()
    assert worst < BOUND_S, (worst, counts)
    assert counts.get("429", 0) > 0, counts
    eventually(lambda: served(tided, ONE, "/v1/history?since=2000000000"))


def test_who_asks_too_much_is_told_so_and_nobody_else(tided, floods, build_dir):
    flood = floods(ONE, "/v1/jobs", connections=12)  # some of its 64 are left
    refused = eventually(lambda: [answer for answer in call(tided, ONE, ("api", "GET", "/v1/jobs")) if answer[0] == 429])
    assert "user 61001 sends too many requests" in refused[0][1] and "Try again in a second." in refused[0][1]
    assert all(tided.api("GET", "/v1/jobs")[0] == 200 for _ in range(50))  # root
    assert {status for status, _ in call(tided, TWO, *[("api", "GET", "/v1/jobs")] * 50)} == {200}
    done = subprocess.run(as_user(ONE, build_dir / "tide", "ps"), capture_output=True, text=True, timeout=60,
                          env={**os.environ, "TIDE_DIR": str(tided.dir)})
    assert done.returncode in (0, 5), done  # 0: there was room in the budget a second later
    assert done.returncode == 0 or "user 61001 sends too many requests" in done.stderr
    counts = flood.end()
    assert set(counts) <= {"200", "429", "refused"}, counts
    eventually(lambda: served(tided, ONE, "/v1/jobs"))


# Behind a flood(): so many processes of it, until the test closes their input.
FLOODS = """
for _ in range(processes):
    if os.fork() == 0:
        flood()
print("begun", flush=True)
sys.stdin.read()
os.killpg(0, 9)
"""


# So many processes with so many connections each: the first messages once, then the others for ever.
ORDERS = """
import json, os, select, socket, sys
path, processes, connections, first, orders = json.loads(sys.argv[1])
def flood():
    open_ones = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(connections)]
    for s in open_ones:
        s.connect(path)
        for data in first:
            s.send(bytes.fromhex(data))
        s.setblocking(False)
    messages = [bytes.fromhex(data) for data in orders]
    while True:
        for s in select.select([], open_ones, [])[1]:
            try:
                for data in messages:
                    s.send(data)
            except BlockingIOError:
                pass
""" + FLOODS


@pytest.fixture
def order_floods(tided):
    made = []

    def make(uid, processes, connections, first, orders):
        order = [str(tided.dir / "agent.sock"), processes, connections, [m.hex() for m in first], [m.hex() for m in orders]]
        made.append(subprocess.Popen(as_user(uid, sys.executable, "-c", ORDERS, json.dumps(order)), start_new_session=True,
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        assert made[-1].stdout.readline() == b"begun\n"
        time.sleep(1)
    yield make
    for process in made:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def asked(job, n):
    """Seconds until `tide set` has its answer and the agent its threads."""
    began = time.monotonic()
    assert job.patch(threads=n, deadline_ms=60000)[1]["status"] == "done"
    return time.monotonic() - began


@pytest.mark.parametrize("kind", ["orders", "agents"])
def test_orders_and_agents_of_one_user_cost_the_others_nothing(tided, order_floods, kind):
    flooded, sibling = (tided.job("--max", "8", uid=ONE) for _ in range(2))
    job = tided.job("--max", "8", uid=TWO)
    job.target(4)
    if kind == "orders":
        order_floods(ONE, 64, 4, [], [control(SET, flags=QUIET, intra=n, job=flooded.id) for n in (1, 2)])
    else:
        order_floods(ONE, 64, 1, [hello(flooded.token, flooded.id, flooded.name), backend()], [local(1), local(2)])
    times = [asked(job, n) for n in (1, 2, 3, 4) * 3]
    assert statistics.median(times) < BOUND_S, times
    assert max(times) < 5 * BOUND_S, times
    if kind == "orders":  # its own agents do not wait for its orders
        assert asked(sibling, 1) < BOUND_S
    order = control(SET, intra=1, job=sibling.id)
    assert call(tided, ONE, ("agent", order.hex())) == [[0, ""]]  # late, but not lost
    assert "connection closed" not in tided.log.read_text()


# So many processes that connect and hang up, for ever.
CONNECTS = """
import os, socket, sys
path, processes = sys.argv[1], int(sys.argv[2])
def flood():
    while True:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            try:
                s.connect(path)
            except OSError:
                pass
""" + FLOODS


def cpu_s(tided):
    with open(f"/proc/{tided.process.pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_connects_of_one_user_cost_the_others_nothing(tided):
    mine, job = tided.job("--max", "8", uid=ONE), tided.job("--max", "8", uid=TWO)
    job.target(4)
    with subprocess.Popen(as_user(ONE, sys.executable, "-c", CONNECTS, tided.dir / "agent.sock", 8), start_new_session=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as flood:
        try:
            assert flood.stdout.readline() == b"begun\n"
            time.sleep(1)
            began, used = time.monotonic(), cpu_s(tided)
            times = [asked(job, n) for n in (1, 2, 3, 4) * 3]
            times += [asked(mine, n) for n in (1, 2)]  # its own agents do not wait for its connects
            guest = tided.job("--max", "8", uid=TWO)  # and others' agents come in
            guest.peer.expect("target")
            order = control(SET, intra=1, job="nobody").hex()
            assert call(tided, TWO, *[("agent", order)] * 5) == [[-errno.ESRCH, "there is no job 'nobody'"]] * 5
            time.sleep(max(0, began + 2 - time.monotonic()))
            share = (cpu_s(tided) - used) / (time.monotonic() - began)
        finally:
            os.killpg(flood.pid, signal.SIGKILL)
    assert max(times) < 5 * BOUND_S, times
    assert share < 0.45, share
    assert "connection closed" not in tided.log.read_text() and "(uid 61002)" not in tided.log.read_text()
    order = control(SET, intra=1, job=mine.id)
    assert call(tided, ONE, ("agent", order.hex())) == [[0, ""]]  # in its turn, behind what is left of the flood


HOLD = """
import socket, sys
held = []
for _ in range(int(sys.argv[3])):
    s = socket.socket(socket.AF_UNIX, getattr(socket, sys.argv[2]))
    s.connect(sys.argv[1])
    held.append(s)
print(len(held), flush=True)
sys.stdin.read()
"""


class Held:
    """Connections of a user that say nothing."""

    def __init__(self, path, kind, uid, n):
        self.process = subprocess.Popen(as_user(uid, sys.executable, "-c", HOLD, path, kind, n), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        assert int(self.process.stdout.readline()) == n

    def end(self):
        self.process.communicate(timeout=GUARD_S)


def sockets(tided):
    count = 0
    for fd in os.listdir(f"/proc/{tided.process.pid}/fd"):
        try:
            count += os.readlink(f"/proc/{tided.process.pid}/fd/{fd}").startswith("socket:")
        except FileNotFoundError:
            pass
    return count


def test_connections_to_api_sock_are_kept_for_root(tided):
    before = sockets(tided)
    held = [Held(tided.dir / "api.sock", "SOCK_STREAM", ONE + i, 80) for i in range(5)]
    eventually(lambda: sockets(tided) <= before + 256 - 32)  # API_CONNECTIONS_MAX, API_KEPT
    roots = [UnixConnection(tided.dir / "api.sock") for _ in range(30)]
    for connection in roots:
        connection.request("GET", "/v1/jobs")
        assert connection.getresponse().read() == b"[]"
    for one in (*held, *roots):
        getattr(one, "end", getattr(one, "close", None))()


def test_connections_to_agent_sock_are_kept_for_root(tided):
    before = sockets(tided)
    held = [Held(tided.dir / "agent.sock", "SOCK_SEQPACKET", uid, 600) for uid in (ONE, TWO, THREE)]
    eventually(lambda: sockets(tided) <= before + 1024 - 64)  # PROTO_CONNECTIONS_MAX, of which some are kept
    controllers = [tided.controller() for _ in range(60)]
    assert all(c.list() == [] for c in controllers)
    for one in held:
        one.end()
    for controller in controllers:
        controller.close()


def test_the_last_jobs_are_roots(place, public_dir):
    """512 in all (PROTO_JOBS_MAX), of which 16 are kept for root."""
    tided = place.daemon("--config", conf(public_dir, "user-jobs=none\n")).start()
    many = "for i in $(seq $0); do sleep 1000 & echo $!; done; read end; kill 0"
    with subprocess.Popen(as_user(ONE, "sh", "-c", many, 497), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          start_new_session=True) as users, \
            subprocess.Popen(["sh", "-c", many, "17"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             start_new_session=True) as roots:
        def register(process):
            return tided.api("POST", "/v1/jobs", {"pid": int(process.stdout.readline())})
        try:
            assert [register(users)[0] for _ in range(496)] == [201] * 496
            status, answer = register(users)
            assert status == 503 and "as many jobs as users may have, 496: the rest is root's" in answer["error"]["message"], answer
            assert [register(roots)[0] for _ in range(16)] == [201] * 16
            status, answer = register(roots)
            assert status == 503 and "as many jobs as it can, 512" in answer["error"]["message"], answer
        finally:
            for process in (users, roots):
                os.killpg(process.pid, signal.SIGKILL)
