# SPDX-License-Identifier: Apache-2.0
"""The client of container engines: against a real Docker Engine and podman, and against an engine
that is broken in every way that we could think of."""
import contextlib
import json
import os
import pathlib
import queue
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
from errno import (EBADMSG, EBUSY, ECONNRESET, EINVAL, EMSGSIZE, ENOENT, ENOTCONN, EPROTO,
                   EREMOTEIO, ETIMEDOUT)

import pytest
from box import real_engine
from conftest import ROOT
from daemon import GUARD_S, eventually
from engine import IMAGE

SLEEP = ["/usr/bin/sleep", "1000"]


class Probe:
    """engine_probe: told what to do in JSON, its words in a queue; news apart from results."""

    def __init__(self, path):
        build = pathlib.Path(os.environ.get("TIDE_BUILD_DIR") or ROOT / "build")
        self.process = subprocess.Popen([build / "tests/component/engine_probe", path],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        bufsize=1)
        self.answers, self.news = queue.Queue(), queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            word = json.loads(line)
            (self.news if "news" in word else self.answers).put(word)

    def tell(self, verb, id=None, **more):
        order = {"do": verb, **({"id": id} if id else {}), **more}
        self.process.stdin.write(json.dumps(order) + "\n")

    def answer(self):
        return self.answers.get(timeout=GUARD_S)

    def ask(self, verb, id=None, **more):
        """The result of a call; fails when the engine refuses it."""
        result = self.attempt(verb, id, **more)
        assert result["code"] == 0, result
        return result

    def attempt(self, verb, id=None, **more):
        self.tell(verb, id, **more)
        result = self.answer()
        assert result.get("done") == verb or result.get("refused") == verb, result
        return result

    def fails(self, code, verb, id=None, **more):
        """The reason of a call that has to fail like this."""
        result = self.attempt(verb, id, **more)
        assert result["code"] == -code, result
        assert result["text"].count("\n") == 0
        return result["text"]

    def inspect(self, id):
        return self.ask("inspect", id)["containers"][0]

    def hears(self, kind, **fields):
        """The next news of this kind that has these fields; what comes before is dropped."""
        end = time.monotonic() + GUARD_S
        while True:
            try:
                news = self.news.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no news like {kind} {fields}") from None
            if news["news"] == kind and all(news.get(k) == v for k, v in fields.items()):
                return news

    def next_news(self):
        return self.news.get(timeout=GUARD_S)

    def returns(self):
        """The first news of an engine that was lost, for whatever reasons."""
        while (news := self.next_news()["news"]) == "lost":
            pass
        return news

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(GUARD_S) == 0  # a sanitizer's word, too


@pytest.fixture
def probes():
    made = []

    def make(path):
        made.append(Probe(path))
        return made[-1]
    yield make
    for probe in made:
        probe.end()


# ---- real engines ----

@pytest.fixture(scope="module", params=["docker", "podman"])
def any_engine(request):
    yield from real_engine(request.param)


@pytest.fixture(scope="module")
def docker():
    yield from real_engine("docker")


@pytest.fixture(scope="module")
def podman():
    yield from real_engine("podman")


@pytest.fixture
def container(probes):
    """container(engine, name, …) makes and starts one, and is given a client that is ready."""
    made = []

    def make(engine, name, argv=SLEEP, labels=None, env=(), **limits):
        probe = probes(engine.socket)
        probe.hears("resync")
        made.append((engine, name))
        engine.make_container(name, argv, labels or {}, ["/usr:/usr:ro"], list(env), limits)
        act(engine, name, "start")
        return probe
    yield make
    for engine, name in made:
        engine.remove(name)


def act(engine, name, verb):
    engine.ask("POST", f"/containers/{name}/{verb}")


def quota(engine, container):
    group = engine.groups(container)
    if (group / "cpu.max").exists():
        limit, period = (group / "cpu.max").read_text().split()
        return -1 if limit == "max" else int(limit), int(period)
    return tuple(int((group / f"cpu.cfs_{word}_us").read_text()) for word in ("quota", "period"))


def test_a_container_is_described_as_it_is(any_engine, container):
    probe = container(any_engine, "web", labels={"io.threadtide.min": "1", "other": "ä \"x\""},
                      env=["A=b"], CpuShares=700)
    seen = probe.inspect("web")
    assert seen["name"] == "web" and re.fullmatch("[0-9a-f]{64}", seen["id"])
    assert seen["image"].removeprefix("localhost/") == IMAGE
    assert seen["labels"] == {"io.threadtide.min": "1", "other": "ä \"x\""}
    assert seen["state"] == "running" and seen["inspected"] and seen["shares"] == 700
    assert seen["cgroup_parent"] == ("" if any_engine.kind == "docker" else any_engine.cgroup)
    program = pathlib.Path(f"/proc/{seen['pid']}/cmdline")
    eventually(lambda: program.read_text() == "\0".join(SLEEP) + "\0")  # runc's init at first
    assert b"A=b" in pathlib.Path(f"/proc/{seen['pid']}/environ").read_bytes()
    assert abs(seen["started_ns"] / 1e9 - time.time()) < 100
    (listed,) = probe.ask("list", label="io.threadtide.min")["containers"]
    for key in ("id", "name", "labels", "state", "image"):
        assert listed[key] == seen[key]
    assert probe.ask("list", label="io.threadtide.min=2")["containers"] == []
    assert probe.inspect(seen["id"][:12])["id"] == seen["id"]


def test_updates_arrive_in_the_control_group(any_engine, container):
    probe = container(any_engine, "up")
    id = probe.inspect("up")["id"]
    probe.ask("update", "up", cpus="1", shares=512, mcpu=500)
    assert (any_engine.groups(id, "cpuset") / "cpuset.cpus").read_text().strip() == "1"
    assert (any_engine.groups(id) / "cpu.shares").read_text().strip() == "512"
    assert quota(any_engine, id) == (50000, 100000)
    probe.ask("update", "up", cpus="0-1")
    assert (any_engine.groups(id, "cpuset") / "cpuset.cpus").read_text().strip() == "0-1"
    assert quota(any_engine, id) == (50000, 100000)  # not mentioned: left as it was
    probe.ask("update", "up", quota_us=20000, period_us=50000)
    assert quota(any_engine, id) == (20000, 50000)
    probe.ask("update", "up", mcpu=0)
    limit, period = quota(any_engine, id)
    assert limit == -1 or limit >= os.cpu_count() * period  # crun knows no -1 on cgroup v1


def test_pausing_and_the_end_of_a_container(any_engine, container):
    probe = container(any_engine, "short", ["/usr/bin/python3", "-c", "import os; os._exit(7)"])
    eventually(lambda: probe.inspect("short")["state"] == "exited")
    assert probe.inspect("short")["exit_code"] == 7 and probe.inspect("short")["pid"] == 0
    act(any_engine, "short", "start")
    # podman does not remove what is just about to end.
    eventually(lambda: any_engine.remove("short") in (200, 204))
    probe.fails(ENOENT, "inspect", "short")

    probe = container(any_engine, "long")
    probe.ask("pause", "long")
    assert probe.inspect("long")["state"] == "paused"
    assert "already paused" in probe.fails(EBUSY, "pause", "long")
    probe.ask("update", "long", cpus="0")  # also while it is paused
    probe.ask("unpause", "long")
    probe.ask("stop", "long", grace=0)
    assert probe.inspect("long")["exit_code"] == 137
    assert probe.ask("stop", "long", grace=0)["status"] == 304  # already so


def test_events_are_told_in_order(any_engine, container):
    probe = container(any_engine, "seen")
    probe.ask("pause", "seen")
    probe.ask("unpause", "seen")
    if any_engine.kind == "docker":
        probe.ask("update", "seen", shares=100)
    assert any_engine.api("POST", "/containers/seen/rename?name=other")[0] == 204
    act(any_engine, "other", "kill")
    eventually(lambda: probe.inspect("other")["state"] == "exited")
    any_engine.remove("other")
    expected = ["create", "start", "pause", "unpause", "update", "rename", "die", "destroy"]
    if any_engine.kind == "podman":
        expected.remove("update")
    events = [probe.hears("event")]
    while events[-1]["action"] != "destroy":
        events.append(probe.hears("event"))
    actions = [event["action"] for event in events]
    if any_engine.kind == "docker":  # a busy dockerd hears late that its containerd has paused, and tells it once more
        actions = list(dict.fromkeys(actions))
    assert actions == expected
    assert len({event["id"] for event in events}) == 1
    assert [e["exit_code"] for e in events if e["action"] == "die"] == [137]
    times = [event["time_ns"] for event in events]
    assert times == sorted(times) and abs(times[0] / 1e9 - time.time()) < 100


def test_refusals_have_the_engines_words(any_engine, container):
    probe = container(any_engine, "no")
    assert "none" in probe.fails(ENOENT, "update", "none", cpus="0")
    text = probe.attempt("update", "no", cpus="900")
    assert text["code"] == (-EINVAL if any_engine.kind == "docker" else -EREMOTEIO)
    assert text["text"].startswith(f"{any_engine.kind}: update no: ")
    for bad in ("../x", "a/b", "a b", "a?b", "x" * 256, ".", "ä"):
        assert probe.attempt("inspect", bad) == {"refused": "inspect", "code": -EINVAL}
    assert probe.attempt("inspect") == {"refused": "inspect", "code": -EINVAL}


def test_a_quota_stays_of_its_kind(docker, container):
    """Docker refuses to go from --cpus to --cpu-quota and back, so the client never tries to."""
    probe = container(docker, "nano", NanoCpus=500_000_000)
    id = probe.inspect("nano")["id"]
    assert quota(docker, id) == (50000, 100000)
    probe.ask("update", "nano", mcpu=700)
    assert quota(docker, id) == (70000, 100000) and probe.inspect("nano")["nano_cpus"] == 700_000_000
    probe.ask("update", "nano", quota_us=30000, period_us=100000)  # of the wrong kind: asked again
    assert quota(docker, id) == (30000, 100000) and probe.inspect("nano")["nano_cpus"] == 300_000_000
    probe.ask("update", "nano", mcpu=0)  # all CPUs, since it cannot be lifted for good
    assert quota(docker, id) == (os.cpu_count() * 100000, 100000)
    probe.ask("update", "nano", nano_cpus=500_000_000)
    probe.ask("stop", "nano", grace=0)
    act(docker, "nano", "start")
    assert quota(docker, id) == (50000, 100000)  # what it was given at first, also after a restart

    probe = container(docker, "plain", CpuQuota=50000, CpuPeriod=100000)
    id = probe.inspect("plain")["id"]
    probe.ask("update", "plain", nano_cpus=250_000_000)
    assert quota(docker, id) == (25000, 100000) and probe.inspect("plain")["nano_cpus"] == 0
    probe.ask("update", "plain", mcpu=0)
    assert quota(docker, id) == (-1, 100000)


def test_an_engine_that_restarts_is_found_again(any_engine, container):
    probe = container(any_engine, "stay")
    probe.hears("event", action="start")
    for end in (any_engine.stop, any_engine.kill):
        end()
        assert str(any_engine.socket) in probe.hears("lost")["text"]
        probe.fails(ENOTCONN, "inspect", "stay")
        any_engine.start()
        # Docker's history is in its memory, podman's in a file.
        assert probe.returns() == {"docker": "resync", "podman": "back"}[any_engine.kind]
        assert probe.inspect("stay")["name"] == "stay"


def test_what_happened_while_podman_was_away_is_told_later(podman, container):
    """Its history is a file: nothing is missed, so there is no need to list again."""
    probe = container(podman, "died")
    pid = probe.inspect("died")["pid"]
    probe.hears("event", action="start")
    podman.kill()
    probe.hears("lost")
    os.kill(pid, signal.SIGKILL)  # its monitor writes the event
    time.sleep(1)
    podman.start()
    assert probe.returns() == "back"
    assert probe.hears("event")["action"] == "die"
    assert probe.inspect("died")["state"] == "exited"


def test_an_engine_that_hangs_holds_nobody(any_engine, container):
    probe = container(any_engine, "hung")
    any_engine.freeze()
    try:
        assert "in time" in probe.fails(ETIMEDOUT, "inspect", "hung", timeout_ms=300)
        for _ in range(20):
            probe.tell("inspect", "hung", timeout_ms=200)
        assert {probe.answer()["code"] for _ in range(20)} == {-ETIMEDOUT}
    finally:
        any_engine.thaw()
    assert probe.inspect("hung")["state"] == "running"


def test_a_call_can_be_broken_off(docker, container):
    probe = container(docker, "left")
    probe.tell("stop", "left", grace=GUARD_S)  # its process has no handler of SIGTERM
    probe.tell("cancel")
    probe.tell("cancel")  # an old ticket means nothing
    act(docker, "left", "kill")
    probe.hears("event", action="die")
    assert probe.inspect("left")["exit_code"] == 137  # the next answer: the stop has none


def test_an_engine_that_comes_later_is_found(probes, tmp_path):
    path = tmp_path / "engine.sock"
    probe = probes(path)
    assert "no program listens" in probe.hears("lost")["text"]
    assert probe.attempt("list") == {"refused": "list", "code": -ENOTCONN}
    fake = Fake(path)
    probe.hears("resync", version="docker 1.41")
    fake.end()


# ---- a broken engine ----

PING = (b"HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nOstype: linux\r\nContent-Length: 2\r\n"
        b"Content-Type: text/plain\r\n\r\nOK")
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


def answer(body=b"", status="200 OK", head=b""):
    return (f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n".encode() + head + b"\r\n" +
            body)


def chunk(data):
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def event(number, action="start", id="c0ffee"):
    return json.dumps({"Type": "container", "Action": action, "timeNano": number, "Actor": {
        "ID": id, "Attributes": {"name": "web"}}}).encode() + b"\n"


class Fake:
    """Answers by what the path contains; `events` is told each connection to the stream."""

    def __init__(self, path, ping=PING):
        self.path, self.ping, self.answers, self.delay = path, ping, {}, 0
        self.requests, self.streams = queue.Queue(), queue.Queue()
        self.open = []
        self.listen()

    def listen(self):
        self.socket = socket.socket(socket.AF_UNIX)
        pathlib.Path(self.path).unlink(missing_ok=True)
        self.socket.bind(str(self.path))
        self.socket.listen(1100)
        threading.Thread(target=self._accept, args=(self.socket,), daemon=True).start()

    def _accept(self, listener):
        while True:
            try:
                connection = listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        data = b""
        while b"\r\n\r\n" not in data:
            more = connection.recv(65536)
            if not more:
                return
            data += more
        length = int((re.search(rb"(?i)content-length: *(\d+)", data) or [0, 0])[1])
        while len(data.partition(b"\r\n\r\n")[2]) < length and (more := connection.recv(65536)):
            data += more
        path = data.split()[1].decode()
        self.requests.put((path, data))
        try:
            if path == "/_ping":
                connection.sendall(self.ping)
            elif "/events" in path and not any(key in path for key in self.answers):
                connection.sendall(EVENTS)
                self.open.append(connection)
                self.streams.put((path, connection))
                return
            else:
                time.sleep(self.delay)
                for key, value in self.answers.items():
                    if key in path:
                        connection.sendall(value)
                        break
            connection.close()
        except OSError:
            connection.close()

    def stream(self):
        return self.streams.get(timeout=GUARD_S)

    def drop(self):
        """The engine dies: everything is hung up."""
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        for connection in self.open:
            connection.close()
        self.open = []

    def end(self):
        self.drop()


@pytest.fixture
def fake():
    with tempfile.TemporaryDirectory(prefix="tide-fake-") as folder:
        server = Fake(pathlib.Path(folder) / "engine.sock")
        yield server
        server.end()


@pytest.fixture
def probe(fake, probes):
    client = probes(fake.path)
    client.hears("resync")
    return client


INSPECTED = {"Id": "c0ffee", "Name": "/web", "State": {"Status": "running"}, "Config": {},
             "HostConfig": {}}


def good(value=INSPECTED):
    return answer(json.dumps(value).encode())


BROKEN = {
    "an error with a message": (answer(b'{"message":"it \\u0007 rains"}', "500 Oh"), EREMOTEIO,
                                "it   rains"),
    "an error without one": (answer(b"", "500 Oh"), EREMOTEIO, "no reason given"),
    "an error that is no JSON": (answer(b"<html>\0\xff", "502 Oh"), EREMOTEIO, "<html>"),
    "an odd status": (answer(b"", "418 Teapot"), EPROTO, "no reason given"),
    "garbage": (b"\0\1\2garbage\r\n\r\n" * 100, EBADMSG, ""),
    "another protocol": (b"220 smtp ready\r\n", EBADMSG, ""),
    "a hang-up": (b"", ECONNRESET, "closed the connection"),
    "half a head": (b"HTTP/1.1 200 OK\r\nContent-", EBADMSG, ""),
    "a truncated body": (good()[:-5], EBADMSG, ""),
    "a truncated chunk": (EVENTS + b"50\r\n{\"Id\"", EBADMSG, ""),
    "an odd chunk": (EVENTS + b"zz\r\n{\"Id\"\r\n0\r\n\r\n", EBADMSG, ""),
    "no JSON": (answer(b"hello"), EBADMSG, "no JSON"),
    "nothing": (answer(b""), EBADMSG, "no JSON"),
    "JSON with rubbish behind it": (answer(json.dumps(INSPECTED).encode() + b"x"), EBADMSG, ""),
    "another kind of JSON": (good([1]), EBADMSG, "no object"),
    "an id that leaves its place": (good({**INSPECTED, "Id": "../../etc"}), EBADMSG, "Id"),
    "a number that is none": (good({**INSPECTED, "State": {"Status": "running", "Pid": "1"}}),
                              EBADMSG, "Pid"),
    "a process that cannot be": (good({**INSPECTED, "State": {"Status": "running", "Pid": -1}}),
                                 EBADMSG, "Pid"),
    "a state that is none": (good({**INSPECTED, "State": {"Status": "odd"}}), EBADMSG, "odd"),
    "deep JSON": (answer(b"[" * 100000), EBADMSG, ""),
    "a gigantic body": (answer(b" " * (17 << 20)), EMSGSIZE, "too long"),
    "a gigantic head": (b"HTTP/1.1 200 OK\r\n" + b"X: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n" * 3000,
                        EMSGSIZE, "too long"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_nonsense_is_an_error_and_nothing_worse(case, fake, probe):
    reply, code, reason = BROKEN[case]
    fake.answers["/json"] = reply
    text = probe.fails(code, "inspect", "web")
    assert text.startswith("docker: inspect web: ") and reason in text
    fake.answers["/json"] = good()
    assert probe.inspect("web")["id"] == "c0ffee"


def test_labels_beyond_the_most_are_left_out(fake, probe):
    labels = {str(i): "" for i in range(1100)}
    fake.answers["/json"] = good({**INSPECTED, "Config": {"Labels": labels}})
    assert len(probe.inspect("web")["labels"]) == 1024


def test_failures_cost_neither_descriptors_nor_memory(fake, probe):
    pid = probe.process.pid

    def descriptors():
        return len(os.listdir(f"/proc/{pid}/fd"))

    def rounds(n, cases):
        for reply, _, _ in [BROKEN[case] for case in cases] * n:
            fake.answers["/json"] = reply
            probe.attempt("inspect", "web")

    huge = [case for case in BROKEN if "gigantic" in case]
    small = [case for case in BROKEN if case not in huge]
    rounds(5, small)
    files, memory = descriptors(), memory_kb(probe)
    rounds(30, small)
    assert descriptors() == files and memory_kb(probe) < memory + 1024
    rounds(8, huge)
    assert descriptors() == files
    assert memory_kb(probe) < memory + (40 << 10)  # malloc keeps up to twice its largest piece


def test_a_slow_answer_is_waited_for_as_long_as_was_said(fake, probe):
    fake.answers["/json"], fake.delay = good(), 1
    for _ in range(50):
        probe.tell("inspect", "web")
    probe.tell("inspect", "web", timeout_ms=100)
    results = [probe.answer() for _ in range(51)]
    assert results[0]["code"] == -ETIMEDOUT  # the others did not hold it up
    assert {result["code"] for result in results[1:]} == {0}


def test_calls_under_way_are_bounded(fake, probe):
    fake.delay = GUARD_S
    for _ in range(1001):
        probe.tell("inspect", "web")
    assert probe.answer() == {"refused": "inspect", "code": -EBUSY}


def test_events_go_on_where_they_stopped(fake, probe):
    path, stream = fake.stream()
    assert "since=" in path and "container" in path
    stream.sendall(chunk(event(5_000_000_001)) + chunk(event(5_000_000_002, "pause")))
    probe.hears("event", action="pause", time_ns=5_000_000_002)
    fake.drop()
    probe.hears("lost")
    fake.listen()
    path, stream = fake.stream()
    assert path.endswith("since=5.000000002")
    # The last one again, another of the same time, and one from in between.
    stream.sendall(chunk(event(5_000_000_002, "pause") + event(5_000_000_002, "unpause") +
                         event(5_000_000_002, "pause", "c0ffee2")) +
                   chunk(event(5_000_000_003, "die")))
    assert probe.returns() == "back"
    told = [probe.next_news() for _ in range(3)]
    assert [(n["action"], n["id"]) for n in told] == [
        ("unpause", "c0ffee"), ("pause", "c0ffee2"), ("die", "c0ffee")]


def test_an_engine_that_forgot_the_last_event_makes_a_resync(fake, probe):
    _, stream = fake.stream()
    stream.sendall(chunk(event(5_000_000_001)))
    probe.hears("event")
    for replay in (event(5_000_000_009, "die"), b""):  # younger ones, or silence
        fake.drop()
        probe.hears("lost")
        fake.listen()
        _, stream = fake.stream()
        stream.sendall(chunk(replay) if replay else b"")
        assert probe.returns() == "resync"
        if replay:
            assert probe.next_news()["action"] == "die"


def test_what_is_no_event_of_a_container_is_passed_over(fake, probe):
    _, stream = fake.stream()
    other = {"Type": "network", "Action": "create", "Actor": {"ID": "x"}, "timeNano": 1}
    stream.sendall(chunk(json.dumps(other).encode() + b"\n") + chunk(event(7, "exec_create: ls")) +
                   chunk(b"\n"))
    whole = event(8, "oom")
    for i in range(len(whole)):  # byte by byte
        stream.sendall(chunk(whole[i:i + 1]))
    assert probe.next_news()["action"] == "oom"


@pytest.mark.parametrize("size", [300_000, 9_000_000])
def test_a_gigantic_event_makes_a_resync(fake, probe, size):
    """It has all the labels of its container; the ones around it are heard."""
    _, stream = fake.stream()
    long = json.loads(event(2)) | {"label": "x" * size}
    stream.sendall(chunk(event(1)) + chunk(json.dumps(long).encode()))
    probe.hears("event", time_ns=1)
    stream.sendall(chunk(b"\n" + event(3, "die")))
    probe.hears("resync")
    probe.hears("event", time_ns=3)


def test_an_endless_event_breaks_the_stream(fake, probe):
    """And costs little, however often the engine does that."""
    began = cpu_s(probe)
    for _ in range(3):
        _, stream = fake.stream()
        with contextlib.suppress(OSError):
            while True:
                stream.sendall(chunk(b"x" * 1_000_000))
        assert "bytes" in probe.hears("lost")["text"]
    assert memory_kb(probe) < 40 << 10 and cpu_s(probe) - began < 3


def cpu_s(probe):
    fields = pathlib.Path(f"/proc/{probe.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_kb(probe):
    status = pathlib.Path(f"/proc/{probe.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1])


@pytest.mark.parametrize("rubbish", [chunk(b"rubbish\n"), b"zz\r\n", chunk(b"[1]\n"),
                                     b"0\r\n\r\n",
                                     chunk(event(1, id="../x"))])
def test_a_broken_stream_is_begun_anew(fake, probe, rubbish):
    _, stream = fake.stream()
    stream.sendall(rubbish)
    assert str(fake.path) in probe.hears("lost")["text"]
    probe.hears("resync")
    _, stream = fake.stream()
    stream.sendall(chunk(event(6)))
    probe.hears("event", time_ns=6)


@pytest.mark.parametrize("ping,reason", [
    (PING.replace(b"1.41", b"1.40"), "API 1.40"),
    (PING.replace(b"1.41", b"2.0"), "neither Docker nor podman"),
    (PING.replace(b"Api-Version: 1.41\r\n", b""), "neither Docker nor podman"),
    (PING.replace(b"Ostype: linux", b"Libpod-Api-Version: 3.4.4"), "podman 3.4.4 is too old"),
    (answer(b'{"message":"no"}', "500 Oh"), "no"),
    (b"SSH-2.0-OpenSSH\r\n", ""),
])
def test_what_is_no_engine_of_ours_is_said_once(fake, probes, ping, reason):
    fake.ping = ping
    client = probes(fake.path)
    assert reason in client.next_news()["text"]
    for _ in range(4):  # it is tried again …
        eventually(lambda: not fake.requests.empty())
        fake.requests.get()
    assert client.news.empty()  # … in silence
    fake.ping = PING
    client.hears("resync")


NO_LIMIT = 0x7ffffffffffff000
LIBPOD = PING.replace(b"Ostype: linux", b"Libpod-Api-Version: 4.3.1")


@pytest.mark.parametrize("swap,bytes,both", [(0, 1 << 30, 1 << 30), (1 << 20, 1 << 30, 1025 << 20), (-1, 1 << 30, -1),
                                             (0, NO_LIMIT, -1)])
@pytest.mark.parametrize("ping", [PING, LIBPOD], ids=["docker", "podman"])
def test_memory_is_asked_for_with_the_swap_beside_it(fake, probes, ping, swap, bytes, both):
    """No engine of these tests may limit memory (engine.py): tests/cluster asks a real one."""
    fake.ping = ping
    client = probes(fake.path)
    client.hears("resync")
    fake.answers["/update"] = answer(b"{}")
    client.ask("update", "web", memory=bytes, swap=swap)
    while "/update" not in (request := fake.requests.get(timeout=GUARD_S))[0]:
        pass
    body = json.loads(request[1].partition(b"\r\n\r\n")[2])
    assert body == ({"Memory": bytes, "MemorySwap": both} if ping is PING else
                    {"cpu": {}, "memory": {"limit": bytes, "swap": both}})


@pytest.mark.parametrize("memory,both,expected", [
    (0, 0, (0, -1)), (-1, -1, (0, -1)), (1 << 30, 2 << 30, (1 << 30, 1 << 30)), (1 << 30, 1 << 30, (1 << 30, 0)),
    (1 << 30, -1, (1 << 30, -1)), (1 << 30, 0, (1 << 30, -1)), (NO_LIMIT, -1, (0, -1))])
def test_swap_is_what_both_have_beyond_memory(fake, probe, memory, both, expected):
    fake.answers["/json"] = good({**INSPECTED, "HostConfig": {"Memory": memory, "MemorySwap": both}})
    seen = probe.inspect("web")
    assert (seen["memory_bytes"], seen["swap_bytes"]) == expected


@pytest.mark.parametrize("theirs,ours", [("1.41", "/v1.41/"), ("1.45", "/v1.45/"),
                                         ("1.99", "/v1.51/")])
def test_the_newest_version_that_both_know_is_spoken(fake, probes, theirs, ours):
    fake.ping = PING.replace(b"1.41", theirs.encode())
    probes(fake.path).hears("resync")
    assert fake.stream()[0].startswith(ours)


def test_no_proxy_of_the_environment_is_used(fake, monkeypatch, probes):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    probes(fake.path).hears("resync")
