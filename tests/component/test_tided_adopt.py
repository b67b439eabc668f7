# SPDX-License-Identifier: Apache-2.0
"""Containers with a will of their own: adopted, kept out, renamed, changed by other hands, pinned."""
import os
import signal
import socket
import threading

import pytest

from box import (ALL, HALVES, N, boxes, connected, cores, engine, job_of,  # noqa: F401, fixtures too
                 joined, order, tided)
from daemon import eventually
from engine import CGROUP, Proxy
from test_tided_engine_faults import answer
from test_tided_observe import DESCRIPTION, check_value

SLEEP = ["/bin/sleep", "1000"]
EXCLUSIVE = {"io.threadtide.placement": "exclusive"}


@pytest.fixture
def plain(boxes):  # noqa: F811
    """plain(name, …): a container without anything of ours."""
    return lambda name, **more: boxes(name, agent=False, command=SLEEP, **more)


def adopt(daemon, container, **request):
    return daemon.api("POST", "/v1/adoptions", {"container": container, **request})


def adopted(daemon, box, **request):
    status, job = adopt(daemon, box.name, **request)
    assert status == 201, job
    return job


def complaint(answer):
    status, body = answer
    return status, body["error"]["message"]


# ---- tide adopt ----

def test_an_adopted_container_is_a_job_until_it_ends(tided, plain):  # noqa: F811
    first, second = plain("first", CpuShares=512), plain("second")
    assert tided.jobs() == []
    job = adopted(tided, first, placement="exclusive")
    check_value(DESCRIPTION["components"]["schemas"]["Job"], job, "adoption")
    assert (job["malleable"], job["adopted"], job["state"]) == (False, True, "rigid")
    assert "malleable: no" in job["note"] and job["pids"] == [first.inspect()["State"]["Pid"]]
    eventually(lambda: first.cpus() == ALL)
    adopted(tided, second, placement="exclusive")
    eventually(lambda: sorted((first.cpus(), second.cpus())) == HALVES)
    second.kill()
    eventually(lambda: job_of(tided, second) is None)
    eventually(lambda: first.cpus() == ALL)
    eventually(lambda: second.limits()[0] == ALL)  # for its next start
    second.start()
    joined(tided, first)
    assert job_of(tided, second) is None  # that was another run


def test_what_is_asked_for_it_is_as_with_labels_and_outlives_the_daemon(tided, plain):  # noqa: F811
    box = plain("first", CpusetCpus=ALL, CpuShares=512)
    job = adopted(tided, box, min=1, max=1, weight=300, priority=7, request=1, placement="exclusive")
    assert (job["limit"], job["weight"], job["priority"], job["request"]) == (1, 300, 7, 1)
    eventually(lambda: box.cpus() not in ("", ALL))
    tided.signal(signal.SIGKILL)
    eventually(lambda: box.limits()[:2] == (ALL, 512))  # by the guardian
    tided.start()
    again = joined(tided, box, id=job["id"], adopted=True, limit=1, weight=300)
    assert again["note"] == job["note"]
    eventually(lambda: box.cpus() not in ("", ALL))


@pytest.mark.skipif((CGROUP / "cgroup.controllers").exists(), reason="it can be looked at: tests/cluster")
def test_memory_that_cannot_be_looked_at_is_not_lowered(tided, plain):  # noqa: F811
    """On cgroup v1 these engines limit no memory (engine.py)."""
    box, alone = plain("first"), tided.job()
    job = adopted(tided, box)
    assert (job["memory_limit"], job["memory_high"], job["memory_least"]) == (None, None, None)
    path = f"/v1/jobs/{job['id']}/memory-limit"
    status, message = complaint(tided.api("PUT", path, {"bytes": 1 << 30}))
    assert status == 409 and "is not known" in message
    assert tided.api("PUT", path, {"bytes": None})[0] == 200  # it has none
    status, message = complaint(tided.api("PUT", f"/v1/jobs/{alone.id}/memory-limit", {"bytes": 1 << 30}))
    assert status == 409 and "is no container" in message
    for bad in (0, 512, -1, 1.5, "1G", True, 1 << 60):
        assert tided.api("PUT", path, {"bytes": bad})[0] == 400, bad
    assert tided.api("PUT", path, {})[0] == 400
    assert tided.api("PUT", path, {"bytes": None, "byte": 1})[0] == 400
    assert tided.api("PUT", "/v1/jobs/none/memory-limit", {"bytes": None})[0] == 404


def test_undone_it_goes_on_with_what_it_began_with(tided, plain):  # noqa: F811
    box, labelled = plain("first", CpusetCpus=ALL, CpuShares=512), plain("second", labels=EXCLUSIVE)
    adopted(tided, box, placement="exclusive")
    eventually(lambda: box.cpus() not in ("", ALL))
    status, answer = tided.api("DELETE", f"/v1/jobs/{box.id[:12]}/adoption")
    assert status == 200 and answer["name"] == "first"
    assert job_of(tided, box) is None
    eventually(lambda: box.limits()[:2] == (ALL, 512))
    assert box.inspect()["State"]["Running"]
    status, message = complaint(tided.api("DELETE", "/v1/jobs/second/adoption"))
    assert status == 409 and "no adopted container" in message
    joined(tided, labelled)
    adopted(tided, box, placement="exclusive")  # and once more
    eventually(lambda: box.cpus() not in ("", ALL))


def test_adopted_again_while_it_is_being_let_go_of(place, engine, plain):  # noqa: F811
    """Limits that are not its own yet are no reason to ask without a pause."""
    proxy = Proxy(place.base / "engine.sock", engine.socket)
    daemon = place.daemon("--engine", proxy.path).start()
    box = plain("first")
    adopted(daemon, box)
    eventually(lambda: box.shares() == 1024 * N)
    go = threading.Event()

    def hold(client, ask):
        go.wait(20)
        client.sendall(ask())
    proxy.rule = lambda method, path: hold if path.endswith("/update") else None
    assert daemon.api("DELETE", "/v1/jobs/first/adoption")[0] == 200
    threading.Timer(1.5, go.set).start()
    began = len(proxy.calls)
    adopted(daemon, box)
    assert sum(path.endswith("/json") for _, path in proxy.calls[began:]) <= 6
    eventually(lambda: box.shares() == 1024 * N)
    proxy.end()


@pytest.mark.parametrize("refused", [False, True])
def test_undone_while_a_policy_has_it_paused_it_goes_on(place, engine, plain, refused):  # noqa: F811
    """Also when its engine writes its limits no more."""
    proxy = Proxy(place.base / "engine.sock", engine.socket)
    daemon = place.daemon("--engine", proxy.path, "--policy", "priority").start()
    box = plain("meek", CpuShares=512)
    adopted(daemon, box, request=2)
    eventually(lambda: box.limits()[1] != 512)
    peer = daemon.peer()
    urgent = daemon.api("POST", "/v1/jobs", {"pid": peer.pid, "queue": True, "priority": 10,
                                             "request": 2, "name": "urgent"})
    assert urgent[0] == 201
    joined(daemon, box, state="paused")
    if refused:
        proxy.rule = lambda method, path: answer("500 Oh") if path.endswith("/update") else None
    assert daemon.api("DELETE", "/v1/jobs/meek/adoption")[0] == 200
    peer.end()  # no job is left for which tided would look at anything
    eventually(lambda: not box.inspect()["State"]["Paused"])
    proxy.end()


def test_what_cannot_be_adopted_is_said(tided, plain, place):  # noqa: F811
    box, stopped = plain("first"), plain("stopped", start=False)
    refuses = plain("refuses", labels={"io.threadtide": "false"})
    others = [box, stopped, refuses]
    while len({b.id[0] for b in others}) == len(others):  # until two ids begin alike
        others.append(plain(f"other{len(others)}", start=False))
    heads = [b.id[0] for b in others]
    alike = next(head for head in heads if heads.count(head) > 1)
    assert complaint(adopt(tided, "nowhere")) == (404, "there is no container 'nowhere'")
    assert complaint(adopt(tided, alike))[0] == 400
    assert "several" in complaint(adopt(tided, alike))[1]
    assert complaint(adopt(tided, "stopped")) == (409, "container stopped is not running: it is created")
    assert "io.threadtide=false" in complaint(adopt(tided, refuses.id))[1]
    assert adopt(tided, box.id[:40])[0] == 201
    assert complaint(adopt(tided, "first")) == (409, "container first is already job j1")
    assert complaint(adopt(tided, "first", max="many"))[0] == 400
    assert complaint(tided.api("POST", "/v1/adoptions", {}))[0] == 400
    assert [j["name"] for j in tided.jobs()] == ["first"]
    lonely = place.daemon("--engine", place.base / "nobody.sock").start()
    assert complaint(adopt(lonely, "first"))[0] == 503


def test_a_process_in_it_that_has_our_agent_is_governed(tided, boxes):  # noqa: F811
    """It is a job by itself, through the daemon's own socket, until its container is adopted."""
    box = boxes("first", "--max 8", agent=False,
                binds=[f"{tided.dir}:/run/threadtide"])
    box.go()
    box.expect("welcome")
    assert [j["adopted"] for j in tided.jobs()] == [False]
    adopted(tided, box)
    box.expect("closed")
    box.expect("welcome")
    assert joined(tided, box, state="running", adopted=True, malleable=True)["note"] == ""
    assert len(tided.jobs()) == 1
    assert tided.api("PATCH", "/v1/jobs/first", {"threads": 1})[0] == 200
    box.expect("target", 1)


# ---- who asks to stay out ----

def test_who_refuses_stays_out_under_the_runtime_too(tided, plain):  # noqa: F811
    """tide-runc makes a directory for every container that it starts: the label goes before it."""
    willing = plain("willing", start=False)
    refuses = plain("refuses", start=False, labels={"io.threadtide": "false"})
    for box in (willing, refuses):
        (tided.dir / "containers" / box.id).mkdir(mode=0o711)
        box.start()
    joined(tided, willing)
    assert job_of(tided, refuses) is None
    assert not (tided.dir / "containers" / refuses.id / "agent.sock").exists()
    refuses.remove()
    eventually(lambda: not (tided.dir / "containers" / refuses.id).exists())


# ---- renamed, started again ----

def test_a_new_name_is_the_jobs_too(tided, plain):  # noqa: F811
    box = plain("before", labels=EXCLUSIVE)
    job = joined(tided, box)

    def rename(name):
        box.act(f"rename?name={name}")
        box.name = name
    rename("after")
    assert joined(tided, box)["id"] == job["id"]
    tided.signal(signal.SIGKILL)
    rename("later")  # while nobody listens
    tided.start()
    assert joined(tided, box)["id"] == job["id"]
    assert [j["name"] for j in tided.jobs()] == ["later"]


class Relay:
    """Between tided and the engine: keeps back events with a word in them until they are let go."""

    def __init__(self, path, target, word):
        self.target, self.word, self.kept, self.listeners = str(target), word, [], []
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(str(path))
        self.server.listen(64)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                peer, _ = self.server.accept()
            except OSError:
                return
            there = socket.socket(socket.AF_UNIX)
            there.connect(self.target)
            threading.Thread(target=self.copy, args=(peer, there), daemon=True).start()
            threading.Thread(target=self.copy, args=(there, peer, True), daemon=True).start()

    def copy(self, source, sink, back=False):
        try:
            while data := source.recv(1 << 16):
                if back and self.word in data:  # dockerd writes an event at a time
                    self.kept.append((sink, data))
                else:
                    sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def let_go(self):
        for sink, data in self.kept:
            sink.sendall(data)

    def end(self):
        self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()


def test_a_late_word_of_the_run_before_ends_nothing(place, engine, plain):  # noqa: F811
    relay = Relay(place.base / "relay.sock", engine.socket, b'"Action":"die"')
    daemon = place.daemon("--engine", place.base / "relay.sock").start()
    box, other = plain("again", labels=EXCLUSIVE), plain("other", labels=EXCLUSIVE)
    first = joined(daemon, box)
    box.act("restart?t=0")
    second = eventually(lambda: (j := job_of(daemon, box)) and j["id"] != first["id"] and j)
    assert relay.kept
    relay.let_go()
    other.update(CpuShares=77)  # events come in their order: when this one has, so has the other
    eventually(lambda: other.shares() != 77)
    assert job_of(daemon, box)["id"] == second["id"]
    eventually(lambda: box.cpus() not in ("", ALL))
    relay.end()


# ---- other hands ----

def knobs(box):
    """The files of its control group: CPUs, weight, quota."""
    group = box.engine.groups(box.id)
    v2 = (group / "cpu.weight").exists()
    return (box.engine.groups(box.id, "cpuset") / "cpuset.cpus",
            group / ("cpu.weight" if v2 else "cpu.shares"),
            group / ("cpu.max" if v2 else "cpu.cfs_quota_us"))


def test_what_is_written_past_the_engine_is_put_right(tided, boxes):  # noqa: F811
    box = boxes("first", "--max 8", labels={"io.threadtide.placement": "quota"})
    connected(tided, box)
    order(tided, box, 1)
    files = knobs(box)
    before = [file.read_text() for file in files]
    for file, other in zip(files, ("0", "77", "50000")):
        file.write_text(other)
        assert file.read_text().split()[0] == other
    eventually(lambda: [f.read_text() for f in files] == before)
    assert "another program changed its container's limits" in tided.log.read_text()


def test_a_limit_of_dockers_other_kind_is_lifted_for_good(tided, boxes):  # noqa: F811
    box = boxes("first", "--max 8", labels=EXCLUSIVE)
    connected(tided, box)
    order(tided, box, 1)
    box.update(NanoCpus=600000000)
    eventually(lambda: box.limits()[3] == os.cpu_count() * 10**9)  # that is none
    for verb, state in (("pause", "paused"), ("unpause", "running")):  # it is looked at again
        box.act(verb)
        joined(tided, box, state=state)
    assert tided.log.read_text().count("another program changed") == 1
    eventually(lambda: knobs(box)[2].read_text().strip() == str(os.cpu_count() * 100000))


def test_who_keeps_writing_is_not_fought_for_ever(tided, boxes):  # noqa: F811
    box = boxes("first", "--max 8", labels={"io.threadtide.placement": "exclusive"})
    connected(tided, box)
    eventually(lambda: box.cpus() == ALL)
    cpus = knobs(box)[0]

    def fought():
        if cpus.read_text().strip() == ALL:
            cpus.write_text("0")
        return "keeps writing" in job_of(tided, box)["note"]
    eventually(fought)
    assert tided.log.read_text().count("another program changed") == 4
    cpus.write_text("0")
    eventually(lambda: cpus.read_text().strip() == ALL)  # in the end


def test_by_hand_in_the_middle_of_our_own_update_is_seen(tided, boxes, engine):  # noqa: F811
    box = boxes("first", "--max 8", labels=EXCLUSIVE)
    connected(tided, box)
    order(tided, box, None)
    engine.freeze()
    try:
        threading.Thread(target=box.update, kwargs={"CpuQuota": 50000}, daemon=True).start()
        threading.Thread(target=order, args=(tided, box, 1), daemon=True).start()
        box.expect("target", 1)
    finally:
        engine.thaw()
    eventually(lambda: box.cpus() != ALL)
    eventually(lambda: box.limits()[2] == -1)
    eventually(lambda: "50000" not in knobs(box)[2].read_text())


# ---- tide pin ----

def test_a_pinned_job_stays_and_others_keep_away(tided, boxes):  # noqa: F811
    first = boxes("first", "--max 8", labels=EXCLUSIVE)
    connected(tided, first)
    status, answer = tided.api("PATCH", "/v1/jobs/first", {"pin": True, "cores": str(N - 1)})
    assert status == 200 and answer["to"] == 1, answer
    eventually(lambda: first.cpus() == str(N - 1))
    assert joined(tided, first, kept=True, pinned=1)
    second = boxes("second", "--max 8", labels=EXCLUSIVE)
    connected(tided, second)
    eventually(lambda: second.cpus() not in ("", ALL))
    assert first.cpus() == str(N - 1)
    tided.signal(signal.SIGKILL)
    tided.start()
    joined(tided, first, kept=True, pinned=1)
    eventually(lambda: first.cpus() == str(N - 1))
    assert tided.api("PATCH", "/v1/jobs/first", {"pin": False})[0] == 200
    eventually(lambda: sorted((first.cpus(), second.cpus())) == HALVES)
    status, message = complaint(tided.api("PATCH", "/v1/jobs/first", {"pin": True, "cores": "4000"}))
    assert status == 400 and "cores" in message


def test_cores_of_a_pinned_one_are_others_while_it_is_paused(tided, boxes):  # noqa: F811
    first, second = (boxes(name, "--max 8", labels=EXCLUSIVE) for name in ("first", "second"))
    connected(tided, first)
    connected(tided, second)
    assert tided.api("PATCH", "/v1/jobs/first", {"pin": True, "cores": str(N - 1)})[0] == 200
    first.act("pause")
    eventually(lambda: second.cpus() == ALL)
    joined(tided, second, target=N, active=N)
    first.act("unpause")
    eventually(lambda: second.cpus() == cores(0, N - 2))
    joined(tided, second, target=N - 1, active=N - 1)
    assert first.cpus() == str(N - 1)


def test_what_is_changed_by_hand_is_accepted_of_a_pinned_one(tided, boxes):  # noqa: F811
    box = boxes("first", "--max 8", labels=EXCLUSIVE)
    connected(tided, box)
    eventually(lambda: box.cpus() == ALL)
    assert tided.api("PATCH", "/v1/jobs/first", {"pin": True})[0] == 200
    box.update(CpusetCpus="0", CpuShares=700)
    box.expect("target", 1)  # threads follow
    joined(tided, box, cores="0", pinned=1)
    assert (box.cpus(), box.limits()[1]) == ("0", 700)
    assert tided.api("PATCH", "/v1/jobs/first", {"weight": 200})[0] == 200  # a new decision
    assert (box.cpus(), box.limits()[1]) == ("0", 700)
    assert tided.api("PATCH", "/v1/jobs/first", {"pin": False})[0] == 200
    eventually(lambda: box.limits()[1] != 700)  # the policy's again, within what the owner has given
    assert box.cpus() == "0"
