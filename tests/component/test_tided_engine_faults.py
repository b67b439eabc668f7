# SPDX-License-Identifier: Apache-2.0
"""tided, its jobs, and an engine that dies, stands still or answers nonsense. The engine is real
and its containers outlive it; what goes wrong otherwise is the doing of a proxy in between."""
import json
import os
import pathlib
import re
import signal
import threading
import time

import pytest

from box import (ALL, HALVES, N, boxes, connected, give_way, job_of, joined, order,  # noqa: F401
                 real_engine)
from daemon import Events, eventually
from engine import CGROUP, IMAGE, Proxy


@pytest.fixture(scope="module")
def engine():
    yield from real_engine("docker-live")


@pytest.fixture
def proxy(place, engine):
    result = Proxy(place.base / "engine.sock", engine.socket)
    yield result
    result.end()


@pytest.fixture
def tided(place, proxy):
    return place.daemon("--engine", proxy.path).start()


EXCLUSIVE = {"io.threadtide.placement": "exclusive"}


def cpu_s(tided):
    fields = pathlib.Path(f"/proc/{tided.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_kb(tided):
    status = pathlib.Path(f"/proc/{tided.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def descriptors(tided):
    return len(os.listdir(f"/proc/{tided.process.pid}/fd"))


class Bystander:
    """A job without a container: its orders are carried out at once, whatever the engine does."""

    def __init__(self, tided):
        self.tided, self.job = tided, tided.job(name="bystander")
        self.job.peer.expect("target")

    def is_served(self):
        began = time.monotonic()
        for n in (3, 2):
            status, answer = self.job.patch(threads=n)
            assert (status, answer["status"]) == (200, "done"), answer
        guest = self.tided.job()
        eventually(lambda: guest.get()["target"])
        guest.end()
        assert time.monotonic() - began < 8  # usually 20 ms; a call to the engine has ten seconds


# ---- answers that are none ----

def say(data, times=1):
    def fault(client, ask):
        for _ in range(times):
            client.sendall(data)
    return fault


def answer(status, body=b'{"message":"no"}', kind="application/json"):
    return say(f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n"
               f"Content-Length: {len(body)}\r\n\r\n".encode() + body)


def done(change):
    """The engine does what is asked, and only its answer goes wrong."""
    def fault(client, ask):
        client.sendall(change(ask()))
    return fault


def late(client, ask):
    data = ask()
    time.sleep(2)
    client.sendall(data)


def endless_body(client, ask):
    client.sendall(CHUNKED)
    while True:
        client.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ENDLESS = 1 << 30

FAULTS = {
    "it failed": answer("500 Oh"),
    "it did not, but says so": done(lambda data: data.replace(b"200 OK", b"500 Oh", 1)),
    "another state": answer("409 Conflict"),
    "no such container": answer("404 Not Found"),
    "a teapot": answer("418 Teapot", b"\x1b[2J\xff\0"),
    "garbage": say(os.urandom(5000)),
    "half an answer": done(lambda data: data[:len(data) // 2]),
    "half a head": done(lambda data: data[:20]),
    "a hang-up": lambda client, ask: None,
    "a hang-up, and done": done(lambda data: b""),
    "endless headers": say(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 10000, ENDLESS),
    "an endless body": endless_body,
    "late": late,
}


def test_an_update_may_fail_in_every_way(tided, proxy, boxes):
    """A container for each: all at once. Nobody else waits, nobody asks without a pause; what was
    wanted is in place when the engine is well again."""
    ill = {fault: boxes(f"c{i}", "--max 8") for i, fault in enumerate(FAULTS)}
    for box in ill.values():
        connected(tided, box)
    bystander = Bystander(tided)
    eventually(lambda: all(box.shares() == 1024 for box in ill.values()))
    pids = {box.inspect()["State"]["Pid"] for box in ill.values()}
    names = {box.id: fault for fault, box in ill.items()}

    def rule(method, path):
        return FAULTS[names[path.split("/")[3]]] if path.endswith("/update") else None
    proxy.rule = rule
    used, files, memory = cpu_s(tided), descriptors(tided), memory_kb(tided)
    for box in ill.values():
        tided.api("PATCH", f"/v1/jobs/{box.name}", {"threads": 2, "deadline_ms": 1})
    bystander.is_served()
    began = len(proxy.calls)
    time.sleep(3.2)
    bystander.is_served()
    calls = proxy.calls[began:]
    for id_, fault in names.items():
        tries = sum(id_ in path for _, path in calls)
        assert tries <= 9, (fault, tries)  # an update and a question each second
    assert cpu_s(tided) - used < 1.5 and memory_kb(tided) - memory < 48 << 10
    proxy.rule = lambda method, path: None
    eventually(lambda: {f: n for f, box in ill.items() if (n := box.shares()) != 2048} == {})
    assert {box.inspect()["State"]["Pid"] for box in ill.values()} == pids
    eventually(lambda: descriptors(tided) <= files + 2)


def in_turn(faults, matches):
    """Each call that matches has the next of them."""
    left = list(faults)

    def rule(method, path):
        if not matches(method, path):
            return None
        left.append(left.pop(0))
        return left[-1]
    return rule


SILLY = [*FAULTS.values(), answer("200 OK", b"<html>\0", "text/html"), answer("200 OK", b"[1]"),
         answer("200 OK", b"{}"), answer("200 OK", b"[" * 100000)]


def test_what_the_engine_could_not_say_is_asked_again(tided, proxy, boxes):
    """Answers to questions: the containers that come meanwhile are jobs when it can be understood."""
    bystander = Bystander(tided)
    proxy.rule = in_turn(SILLY, lambda method, path: method == "GET" and "/containers/" in path)
    used = cpu_s(tided)
    new = [boxes(f"new{i}", "--max 8", labels=EXCLUSIVE if i == 0 else {}) for i in range(4)]
    began = len(proxy.calls)
    time.sleep(2.2)
    bystander.is_served()
    assert len(proxy.calls) - began < 40 and cpu_s(tided) - used < 1.5
    proxy.rule = lambda method, path: None
    for box in new:
        connected(tided, box)


def test_events_that_are_none_are_asked_for_again(tided, proxy, boxes):
    old = boxes("old", "--max 8")
    connected(tided, old)
    bystander = Bystander(tided)

    def endless_line(client, ask):
        client.sendall(CHUNKED)
        while True:
            client.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
    lines = [b"rubbish\n", b"[1]\n", b'{"Type":"container"', b'{"Type":1,"Action":[]}\n', b"\0\xff\n"]
    broken = [say(CHUNKED + f"{len(line):x}\r\n".encode() + line + b"\r\n") for line in lines]
    proxy.rule = in_turn([*broken, endless_line, answer("500 Oh"), lambda client, ask: None],
                         lambda method, path: "/events" in path or path == "/_ping")
    used, memory, began = cpu_s(tided), memory_kb(tided), len(proxy.calls)
    proxy.cut()
    time.sleep(1)
    bystander.is_served()
    assert tided.api("PATCH", "/v1/jobs/old", {"threads": 1})[0] == 200
    time.sleep(1)
    assert cpu_s(tided) - used < 1.5 and memory_kb(tided) - memory < 32 << 10
    assert len(proxy.calls) - began < 100
    old.kill()
    new = boxes("new", "--max 8")
    proxy.rule = lambda method, path: None
    proxy.cut()
    connected(tided, new)
    eventually(lambda: job_of(tided, old) is None)


def test_that_memory_ran_out_is_known_when_the_job_is_gone(tided, proxy, boxes):
    """Here it does not: only the engine's word is tested, tests/cluster lets it happen."""
    box, other = boxes("tight", "--max 8"), boxes("other", "--max 8")
    for one in (box, other):
        connected(tided, one)
    text = json.dumps({"Type": "container", "Action": "oom", "time": int(time.time()),
                       "Actor": {"ID": box.id, "Attributes": {"name": box.name}}}) + "\n"

    def word(client, ask):
        client.sendall(CHUNKED + f"{len(text):x}\r\n{text}\r\n".encode())
        client.recv(1)
    proxy.rule = lambda method, path: word if "/events" in path else None
    proxy.cut()
    joined(tided, box, note="a process was killed: out of memory")
    proxy.rule = lambda method, path: None
    for one in (box, other):
        one.kill()
    proxy.cut()
    eventually(lambda: tided.jobs() == [])
    told = {job["name"]: job["oom"] for job in tided.api("GET", "/v1/history")[1]}
    assert told == {"tight": True, "other": False}


def test_how_a_container_ended_is_told_when_its_engine_is_late(tided, proxy, boxes):
    """The job ends with its process; what the engine says of it then is kept back, and let go."""
    box = boxes("late", "--max 8")
    connected(tided, box)
    stream, quiet = Events(tided), threading.Event()

    def silence(client, ask):
        client.sendall(CHUNKED)
        quiet.set()
        client.recv(1)
    proxy.rule = lambda method, path: silence if "/events" in path else None
    proxy.cut()
    assert quiet.wait(30)
    box.kill()
    eventually(lambda: tided.jobs() == [])
    ended, = tided.api("GET", "/v1/history")[1]
    assert (ended["state"], ended["exit"]) == ("ended", None)
    proxy.rule = lambda method, path: None
    proxy.cut()
    assert stream.until("job-ended")[1]["exit"] == 137
    assert tided.api("GET", "/v1/history")[1][0]["exit"] == 137


def test_without_libcurl_processes_are_governed_and_containers_left_alone(place, tmp_path):
    (tmp_path / "libcurl.so.4").touch()
    daemon = place.daemon("--engine", tmp_path / "engine.sock")
    daemon.env["LD_LIBRARY_PATH"] = str(tmp_path)
    daemon.start()
    assert (f"containers are left as they are: no client for {tmp_path}/engine.sock: libcurl.so.4 cannot be loaded "
            "(package libcurl4)") in daemon.log.read_text()
    assert daemon.job().patch(threads=1)[0] == 200


# ---- an engine that goes ----

def pair_of(tided, boxes):
    pair = [boxes(name, "--max 8", labels=EXCLUSIVE) for name in ("first", "second")]
    for box in pair:
        connected(tided, box)
    eventually(lambda: sorted(box.cpus() for box in pair) == sorted(HALVES))
    return pair


def alive(pids):
    return all(pathlib.Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z" for pid in pids)


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_containers_outlive_their_engine_and_stay_the_jobs_that_they_were(tided, boxes, engine, way):
    """Restarted in order, or killed while an update is under way."""
    pair = pair_of(tided, boxes)
    bystander = Bystander(tided)
    jobs = {box.name: job_of(tided, box) for box in pair}
    pids = [box.inspect()["State"]["Pid"] for box in pair]
    orders = [threading.Thread(target=order, args=(tided, pair[0], n)) for n in (1, None)]
    orders[0].start()
    getattr(engine, way)()
    try:
        bystander.is_served()
        status, said = tided.api("DELETE", f"/v1/jobs/{pair[1].name}")
        assert status == 503 and "does not answer" in said["error"]["message"]
        assert job_of(tided, pair[1])["preemptible_note"] == "its engine does not answer"
        assert alive(pids)
        pair[1].expect("target")  # threads need no engine
    finally:
        engine.start()
    orders[1].start()
    for one in orders:
        one.join()
    assert alive(pids)
    for box in pair:
        job = joined(tided, box, state="running")
        assert (job["id"], job["pids"]) == (jobs[box.name]["id"], jobs[box.name]["pids"])
    eventually(lambda: sorted(box.cpus() for box in pair) == sorted(HALVES))
    bystander.job.end()
    pair[0].kill()
    eventually(lambda: pair[1].cpus() == ALL)


def test_an_engine_that_stands_still_for_five_seconds(tided, boxes, engine):
    pair = pair_of(tided, boxes)
    bystander = Bystander(tided)
    used = cpu_s(tided)
    engine.freeze()
    try:
        threading.Thread(target=order, args=(tided, pair[0], 1), daemon=True).start()
        end = time.monotonic() + 5
        while time.monotonic() < end:
            bystander.is_served()
            time.sleep(0.5)
        assert cpu_s(tided) - used < 1
    finally:
        engine.thaw()
    order(tided, pair[0], None)
    eventually(lambda: sorted(box.cpus() for box in pair) == sorted(HALVES))


def test_a_cancel_that_the_engine_refuses_is_said_and_undone(tided, proxy, boxes):
    """A container's first process is deaf to SIGTERM: it goes on, as a job like others."""
    box = boxes("first", "--max 8")
    connected(tided, box)
    refuse = answer("500 Oh")
    proxy.rule = lambda method, path: refuse if "/stop" in path else None
    assert tided.api("DELETE", "/v1/jobs/first")[0] == 200
    job = eventually(lambda: (j := job_of(tided, box))["note"] and j)
    assert "could not be cancelled" in job["note"]
    assert (job["state"], job["preemptible_note"]) == ("running", "")


# ---- containers that go ----

def test_a_container_that_is_removed_while_its_update_is_under_way(tided, proxy, boxes):
    """Its update is answered 404, or 500: its cores are the other's, and nothing is left of it."""
    first = boxes("first", "--max 8", labels=EXCLUSIVE)
    second = boxes("second", "--max 8", labels=EXCLUSIVE, start=False)
    connected(tided, first)
    eventually(lambda: first.cpus() == ALL)
    held, go = threading.Event(), threading.Event()

    def hold(client, ask):
        held.set()
        go.wait(20)
        client.sendall(ask())
    proxy.rule = lambda method, path: hold if path.endswith(f"{first.id}/update") else None
    second.start()
    connected(tided, second)
    assert held.wait(20)
    first.remove()
    eventually(lambda: job_of(tided, first) is None)
    go.set()
    eventually(lambda: second.cpus() == ALL and job_of(tided, second)["cores"] == ALL)
    eventually(lambda: not (tided.dir / "containers/first").exists())


def test_a_container_that_dies_before_it_has_joined_leaves_nothing_of_its_terms(tided, proxy, boxes):
    """As if its first process had ended since: it is another number than that of any process."""
    job = tided.job("--max", "8", name="starter")
    before = {key: job.get()[key] for key in ("weight", "limit", "target")}

    def no_such_process(data):
        pid = re.search(rb'"Pid":(\d+)', data)[1]
        free = next(n for n in range(10 ** len(pid) - 1, 0, -1) if not os.path.exists(f"/proc/{n}"))
        return data.replace(b'"Pid":' + pid, b'"Pid":%d' % free)
    gone = done(no_such_process)
    proxy.rule = lambda method, path: gone if re.search(r"containers/\w{64}/json", path) else None
    boxes("inner", "--max 8", labels={"io.threadtide.job": job.token, "io.threadtide.max": "1",
                                      "io.threadtide.weight": "300"})
    eventually(lambda: "cannot become a job: it has ended" in tided.log.read_text())
    tided.job().end()  # a decision later
    assert {key: job.get()[key] for key in before} == before


def test_a_container_that_is_renamed_is_the_same_job(tided, boxes):
    box = boxes("before", "--max 8")
    job = connected(tided, box)
    for name, expected in (("after", "after"), ("4711", "after"), ("j9", "after"), ("last", "last")):
        box.act(f"rename?name={name}")
        eventually(lambda: [(j["id"], j["name"]) for j in tided.jobs()] == [(job["id"], expected)])
    assert tided.api("PATCH", "/v1/jobs/last", {"threads": 1})[1]["status"] == "done"


def test_a_burst_of_short_lives_leaves_nothing(tided, engine, place, boxes):
    """Six at a time begin and end; their directories are dockerd's doing and go with them."""
    stays = boxes("stays", "--max 8")
    connected(tided, stays)
    time.sleep(0.1)
    files = descriptors(tided)
    rounds = int(os.environ.get("TIDE_SOAK_BURST", "36")) // 6

    def live(worker):
        for i in range(rounds):
            name = f"short{worker}-{i}"
            status, made = engine.api("POST", f"/containers/create?name={name}", {
                "Image": IMAGE, "Cmd": ["/bin/true"], "Labels": {"io.threadtide.key": name},
                "HostConfig": {"Binds": ["/usr:/usr:ro",
                                         f"{tided.dir}/containers/{name}:/run/threadtide:ro"],
                               "NetworkMode": "host"}})
            assert status == 201, made
            assert engine.api("POST", f"/containers/{made['Id']}/start")[0] == 204
            engine.api("DELETE", f"/containers/{made['Id']}?force=true")
    workers = [threading.Thread(target=live, args=(n,)) for n in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    eventually(lambda: [j["name"] for j in tided.jobs()] == ["stays"])
    eventually(lambda: os.listdir(tided.dir / "containers") == ["stays"])
    eventually(lambda: sorted(p.name for p in (tided.dir / "jobs").iterdir()) ==
               [f"{job_of(tided, stays)['id']}.json"])
    eventually(lambda: descriptors(tided) <= files)
    eventually(lambda: stays.shares() == 1024 * N)  # the others had a part of it


# ---- what a dead daemon left ----

def test_a_pause_that_an_ill_engine_does_not_end_is_not_forgotten(place, proxy, boxes):
    """The guardian tries, and gives way; the next daemon goes on until the engine is well."""
    ill, refuse = threading.Event(), answer("500 Oh")

    def said(client, ask):
        time.sleep(0.1)  # questions of two parts of the daemon are not lost in each other
        refuse(client, ask)
    proxy.rule = lambda method, path: said if ill.is_set() and path.endswith("/unpause") else None
    daemon, box, peer, _ = give_way(place, proxy.path, boxes)
    ill.set()
    daemon.signal(signal.SIGKILL)
    peer.end()
    eventually(lambda: sum(path.endswith("/unpause") for _, path in proxy.calls) >= 3)
    daemon.start()
    began, began_s = len(proxy.calls), time.monotonic()
    time.sleep(2.2)
    tries = [path for _, path in proxy.calls[began:] if path.endswith("/unpause")]
    assert 1 <= len(tries) <= 2 + time.monotonic() - began_s  # once a second
    assert box.inspect()["State"]["Paused"]
    ill.clear()
    eventually(lambda: not box.inspect()["State"]["Paused"])
    joined(daemon, box, state="running")


# ---- memory limits: on cgroup v1 these engines limit none (engine.py), and what they tell of them is believed ----

on_v1 = pytest.mark.skipif((CGROUP / "cgroup.controllers").exists(), reason="the kernel's word counts: tests/cluster")


def told(limit):
    """An inspection's answer, with another memory limit."""
    def change(data):
        head, _, body = data.partition(b"\r\n\r\n")
        if b"chunked" in head:
            body = b"".join(part for n, part in enumerate(re.split(rb"\r\n", body)) if n % 2)
        seen = json.loads(body)
        seen["HostConfig"] |= {"Memory": limit, "MemorySwap": limit}
        body = json.dumps(seen).encode()
        return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    return done(change)


def is_inspection(path):
    return re.search(r"containers/\w{64}/json", path)


@on_v1
def test_an_owner_has_no_more_memory_than_the_container_began_with(tided, proxy, boxes):
    """The container joins a user's job. Root, who may, is answered by the engine, which cannot here."""
    half = told(512 << 20)
    proxy.rule = lambda method, path: half if is_inspection(path) else None
    job = tided.job("--max", "8", uid=4711, name="starter")
    boxes("inner", "--max 8", labels={"io.threadtide.job": job.token})
    eventually(lambda: job.get()["memory_limit"] == 512 << 20)
    path = f"/v1/jobs/{job.id}/memory-limit"
    status, text = tided.api_as(4711, "PUT", path, {"bytes": 1 << 30})
    assert status == 403 and "memory-above-own" in text and "began with 512M" in text
    status, text = tided.api_as(4712, "PUT", path, {"bytes": 1 << 30})
    assert status == 403 and "not-your-job" in text
    assert tided.api_as(4711, "PUT", path, {"bytes": 512 << 20})[0] == 200  # it has that


@on_v1
def test_a_change_of_memory_that_fails_leaves_the_limit_and_one_is_under_way_at_a_time(tided, proxy, boxes):
    half, go = told(512 << 20), threading.Event()

    def hold(client, ask):
        go.wait(20)
        answer("500 Oh", b'{"message":"Oh"}')(client, ask)
    proxy.rule = lambda method, path: half if is_inspection(path) else None
    box = boxes("web", "--max 8")
    connected(tided, box)
    eventually(lambda: box.shares() == 1024 * N)
    assert joined(tided, box)["memory_limit"] == 512 << 20
    proxy.rule = lambda method, path: half if is_inspection(path) else hold if path.endswith("/update") else None
    path, answers = f"/v1/jobs/{joined(tided, box)['id']}/memory-limit", []
    first = threading.Thread(target=lambda: answers.append(tided.api("PUT", path, {"bytes": 600 << 20})))
    first.start()
    eventually(lambda: joined(tided, box)["memory_counted"] == 600 << 20)  # nobody else gets what it may have in a moment
    status, body = tided.api("PUT", path, {"bytes": 700 << 20})
    assert status == 409 and "another change" in body["error"]["message"]
    go.set()
    first.join(30)
    assert answers[0][0] == 409 and "Oh" in answers[0][1]["error"]["message"], answers
    joined(tided, box, memory_counted=512 << 20, memory_limit=512 << 20)
