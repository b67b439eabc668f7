# SPDX-License-Identifier: Apache-2.0
"""tided tells what happens: history, events, metrics; and the description of its API is whole."""
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time
import types

import pytest

from conftest import PEER
from daemon import GUARD_S, NOBODY, Events, Place, eventually

ROOT = pathlib.Path(__file__).resolve().parents[2]
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def tided(place):
    return place.daemon("--cpus", "0-7").start()


@pytest.fixture(scope="module", autouse=True)
def idle(build_dir):
    """A stream on which nothing happens, from the module's beginning on: other tests take its time."""
    place = Place(build_dir / "tided", build_dir / PEER)
    daemon = place.daemon("--cpus", "0-7").start()
    yield types.SimpleNamespace(daemon=daemon, stream=Events(daemon), began=time.monotonic())
    place.end()


def history(daemon, query=""):
    status, answer = daemon.api("GET", "/v1/history" + query)
    assert status == 200, answer
    return answer


# ---- history ----

def test_history_tells_what_ran_when_with_what_and_why(tided):
    job = tided.job(name="cnn", max=6, weight=50)
    job.target(6)
    assert job.patch(threads=2)[0] == 200
    job.target(2)
    running, = history(tided)
    assert running["id"] == "j1" and running["ended"] is None and running["command"]
    job.end()
    ended, = history(tided)
    assert ended["name"] == "cnn" and ended["owner"] == "root" and ended["kind"] == "process"
    assert (ended["limit"], ended["weight"], ended["min"]) == (6, 50, None)
    assert ended["submitted"] <= ended["begun"] <= ended["ended"] <= time.time() + 1
    assert ended["run_s"] > 0 and ended["wait_s"] == 0 and ended["exit"] == 137
    newest, before = [a["threads"] for a in ended["allocations"]][:2]
    assert (newest, before) == (2, 6)
    assert all(a["cores"] and a["reason"] and a["time"] for a in ended["allocations"])


def test_history_survives_the_daemon_and_ids_that_come_again_are_other_jobs(place):
    tided = place.daemon("--cpus", "0-7").start()
    first = tided.job(name="first")
    first.target(8)
    tided.signal(signal.SIGKILL)
    tided.start()
    eventually(lambda: first.get()["state"] == "running")  # found again: the same row
    assert [j["ended"] for j in history(tided)] == [None]
    first.end()
    assert tided.stop() == 0
    tided.start()
    second = tided.job(name="second")
    second.target(8)
    names = [(j["id"], j["name"]) for j in history(tided)]
    assert names == [(second.id, "second"), ("j1", "first")]
    assert [j["name"] for j in history(tided, "?job=first")] == ["first"]
    assert [j["name"] for j in history(tided, f"?job={second.id}")][0] == "second"
    assert len(history(tided, "?limit=1")) == 1
    assert len(history(tided, f"?since={int(time.time()) + 3600}")) == 1  # has not ended
    assert history(tided, "?job=nobody") == []


@pytest.mark.parametrize("query", ["?limit=0", "?limit=1001", "?limit=x", "?since=-1", "?limit="])
def test_history_refuses_what_it_does_not_understand(tided, query):
    status, answer = tided.api("GET", "/v1/history" + query)
    assert status == 400 and query[1:6] in answer["error"]["message"]


def test_history_shows_others_only_their_own_jobs(tided):
    tided.job(name="roots").target(8)
    tided.dir.chmod(0o755)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # another user, as the kernel says
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        os.write(write, json.dumps(tided.api("GET", "/v1/history")).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        assert json.loads(answer.read()) == [200, []]
    os.waitpid(child, 0)
    assert len(history(tided)) == 1


def test_history_that_is_damaged_is_moved_aside_and_jobs_are_not_concerned(place):
    tided = place.daemon("--cpus", "0-7").start()
    job = tided.job(name="cnn")
    job.target(8)
    assert len(history(tided)) == 1
    tided.signal(signal.SIGKILL)
    for name in ("history.db", "history.db-wal"):
        path = tided.dir / name
        path.write_bytes(b"no database at all, " * 1000)
    tided.start()
    job.target(8)
    assert job.patch(threads=3)[0] == 200
    assert [j["name"] for j in history(tided)] == ["cnn"]
    assert list(tided.dir.glob("history.db.corrupt"))
    assert tided.log.read_text().count("is damaged") == 1


def test_history_that_cannot_be_written_is_off_and_said_once(place):
    tided = place.daemon("--cpus", "0-7")
    (tided.dir / "history.db").mkdir()
    tided.start()
    job = tided.job(name="cnn")
    job.target(8)
    assert tided.api("GET", "/v1/history")[0] == 503
    assert job.patch(threads=3)[0] == 200
    assert tided.log.read_text().count("cannot keep history") == 1


def mount(*words):
    subprocess.run(["mount", *words], check=True)


@pytest.fixture
def disk(place):
    """A small disk for the history alone."""
    path = place.base / "disk"
    path.mkdir()
    mount("-t", "tmpfs", "-o", "size=512k", "tmpfs", path)
    yield path
    subprocess.run(["umount", "-l", path], check=True)


@pytest.fixture
def on_disk(place, disk):
    tided = place.daemon("--cpus", "0-7")
    tided.env["STATE_DIRECTORY"] = str(disk)
    return tided


def has_history(tided, job):
    """Resizes the job, so that there is something to write; the message when it is not kept."""
    threads = 1 + job.get()["target"] % 8
    assert job.patch(threads=threads)[1]["status"] == "done"
    status, answer = tided.api("GET", "/v1/history")
    assert status in (200, 503)
    if status == 200:
        assert answer[0]["allocations"][0]["threads"] == threads
    return status == 200, "" if status == 200 else answer["error"]["message"]


@root_only
def test_history_stops_when_the_disk_is_full_and_goes_on_when_there_is_room(on_disk, disk):
    tided = on_disk.start()
    job = tided.job(name="cnn")
    job.target(8)
    assert has_history(tided, job)[0]
    with open(disk / "filler", "wb", buffering=0) as file, pytest.raises(OSError):
        while True:
            file.write(b"x" * 4096)
    message = eventually(lambda: has_history(tided, job)[1])
    assert str(disk) in message and "No space left" in message
    for _ in range(3):
        assert not has_history(tided, job)[0]
    (disk / "filler").unlink()
    assert has_history(tided, job)[0]
    newest = history(tided)[0]["allocations"]
    assert len(newest) >= 6  # also what happened while the disk was full
    log = tided.log.read_text()
    assert (log.count("cannot keep history"), log.count("/history.db again")) == (1, 1)
    assert "damaged" not in log


@root_only
def test_history_on_a_read_only_file_system_is_off_until_that_may_be_written(on_disk, disk):
    mount("-o", "remount,ro", disk)
    tided = on_disk.start()
    job = tided.job(name="cnn")
    job.target(8)
    for _ in range(3):
        kept, message = has_history(tided, job)
        assert not kept and "Read-only file system" in message
    mount("-o", "remount,rw", disk)
    assert has_history(tided, job)[0]
    log = tided.log.read_text()
    assert (log.count("cannot keep history"), log.count("/history.db again")) == (1, 1)


def flip(path):
    data = bytearray(path.read_bytes())
    for i in range(100, len(data), 7):
        data[i] ^= 0x10
    with open(path, "r+b") as file:  # in place: the daemon has it open
        file.write(data)


@pytest.mark.parametrize("damage", [lambda path: os.truncate(path, 0),
                                    lambda path: os.truncate(path, 5000), flip],
                         ids=["empty", "cut", "flipped"])
def test_history_that_breaks_under_the_daemon_is_begun_anew_with_the_jobs_that_run(place, damage):
    tided = place.daemon("--cpus", "0-7").start()
    job = tided.job(name="cnn")
    job.target(8)
    for _ in range(60):  # more than what waits in the log
        assert has_history(tided, job)[0]
    for path in tided.dir.glob("history.db*"):
        damage(path)
    for _ in range(20):  # what SQLite has in memory is not read again: it may not notice yet
        job.patch(threads=1 + job.get()["target"] % 8)
        assert tided.api("GET", "/v1/history")[0] == 200
    tided.signal(signal.SIGKILL)
    tided.start()
    eventually(lambda: job.get()["state"] == "running" and has_history(tided, job)[0])
    assert [j["name"] for j in history(tided)] == ["cnn"]
    log = tided.log.read_text()
    assert log.count("is damaged") <= 1  # an empty file is a new one
    assert (tided.dir / "history.db.corrupt").exists() == ("is damaged" in log)


def test_history_can_be_switched_off(place):
    tided = place.daemon("--cpus", "0-7", "--history", "none").start()
    job = tided.job(name="cnn")
    job.target(8)
    status, answer = tided.api("GET", "/v1/history")
    assert status == 503 and "keeps no history" in answer["error"]["message"]
    assert not list(tided.dir.glob("history.db*"))


@root_only
def test_the_daemon_never_waits_for_the_disk(place, tmp_path):
    """No fsync: also not when the log is written back into the file, nor at the end."""
    tided = place.daemon("--cpus", "0-7")
    tided.env["ASAN_OPTIONS"] = "detect_leaks=0"  # which is not possible under strace
    tided.start()
    calls = tmp_path / "calls"
    tracer = subprocess.Popen(
        ["strace", "-f", "-y", "-o", calls, "-p", str(tided.process.pid), "-e",
         "trace=pwrite64,fsync,fdatasync,sync_file_range,syncfs,sync,msync"],
        stderr=subprocess.PIPE, text=True)
    said = tracer.stderr.readline()
    if "attached" not in said:
        tracer.wait(GUARD_S)
        pytest.skip(f"strace cannot trace here: {said.strip()}")
    job = tided.job(name="cnn")
    job.target(8)
    eventually(lambda: has_history(tided, job) and "/history.db>" in calls.read_text())
    job.end()
    assert tided.stop() == 0
    tracer.wait(GUARD_S)
    tracer.stderr.close()
    lines = calls.read_text().splitlines()
    assert any("/history.db-wal>" in line for line in lines)
    assert [line for line in lines if "sync" in line] == []


def test_the_file_of_the_history_is_its_owners_alone(tided):
    tided.job().target(8)
    history(tided)
    for path in tided.dir.glob("history.db*"):
        assert path.stat().st_mode & 0o077 == 0, path


# ---- events ----

def test_events_tell_of_jobs_and_of_the_policy(tided):
    stream = Events(tided)
    assert stream.answer.status == 200
    assert stream.answer.getheader("Content-Type") == "text/event-stream"
    job = tided.job(name="cnn")
    kind, data, _ = stream.next()
    assert kind == "job-added" and (data["id"], data["name"]) == ("j1", "cnn")
    assert abs(data["time"] - time.time()) < 60
    job.target(8)
    job.patch(threads=2)
    assert stream.until("job-changed", lambda d: d["target"] == 2)[1]["reason"]
    assert tided.api("PUT", "/v1/policy", {"policy": "priority"})[0] == 200
    assert stream.until("policy-changed")[1]["policy"] == "priority"
    job.end()
    ended = stream.until("job-ended")[1]
    assert ended["id"] == "j1" and ended["state"] == "ended" and ended["run_s"] > 0


def test_a_job_that_stays_as_it_is_has_no_events(tided):
    """Though its reason counts by how much all together are too many."""
    held = tided.job("--max", "8", name="held")
    held.patch(threads=8)
    other = tided.job("--max", "8", name="other")
    other.patch(threads=1)
    eventually(lambda: "9 of 8 cores" in held.get()["reason"])
    stream = Events(tided)
    for n in (2, 3, 4):
        other.patch(threads=n)
        assert f"{8 + n} of 8 cores" in held.get()["reason"]
        assert stream.next()[1]["name"] == "other"
    held.patch(threads=7)
    assert stream.next()[1]["name"] == "held"


def test_events_go_on_behind_the_last_that_was_read(tided):
    stream = Events(tided)
    tided.job(name="a").target(8)
    first = stream.next()[2]
    tided.job(name="b").target(4)
    seen = [stream.until("job-added")[2]]
    stream.close()
    again = Events(tided, last=first)
    assert again.until("job-added")[2] == seen[0]
    assert Events(tided, last=first, query="?follow=false").rest().count("job-added") == 1
    for strange in ("1.1", "x", first + "0000000", "99999999999999999999999.1"):
        other = Events(tided, last=strange)
        assert other.next()[0] == "missed"
        assert other.next()[1]["name"] == "a"  # from the first that is kept
        other.close()


def test_events_of_a_time_that_has_passed_and_no_more(tided):
    began = int(time.time())
    job = tided.job(name="a")
    job.target(8)
    job.end()
    assert Events(tided, query="?follow=false").rest() == []
    kinds = Events(tided, query="?since=1&follow=false").rest()
    assert kinds[0] == "job-added" and kinds[-1] == "job-ended" and "missed" not in kinds
    assert Events(tided, query=f"?since={began}&follow=false").rest() == kinds
    assert Events(tided, query=f"?since={began + 3600}&follow=false").rest() == []
    follows = Events(tided, query="?since=1&follow=true")
    assert follows.until("job-ended")
    tided.job(name="b")
    assert follows.next()[1]["name"] == "b"
    for wrong in ("since=0", "since=now", "follow=1", "follow="):
        status, answer = tided.api("GET", "/v1/events?" + wrong)
        assert status == 400 and wrong.split("=")[0] in answer["error"]["message"]


def test_a_new_daemon_tells_all_that_it_knows_to_who_followed_the_old_one(place):
    tided = place.daemon("--cpus", "0-7").start()
    stream = Events(tided)
    job = tided.job(name="cnn")
    last = stream.next()[2]
    tided.signal(signal.SIGKILL)
    tided.start()
    again = Events(tided, last=last)
    assert again.next()[0] == "missed"
    assert again.next()[1]["name"] == "cnn"
    job.end()


def test_a_reader_that_sleeps_is_dropped_and_delays_nobody(tided):
    slow = socket.socket(socket.AF_UNIX)
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    slow.connect(str(tided.dir / "api.sock"))
    slow.sendall(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"200 OK" in slow.recv(100)
    jobs = [tided.job("--max", "8") for _ in range(30)]
    newest = Events(tided)
    for i in range(100):  # 3000 events: more than are kept and its socket holds, however tightly
        policy = ("priority", "equal")[i % 2]  # each has a reason of its own for every job
        assert tided.api("PUT", "/v1/policy", {"policy": policy})[0] == 200
        newest.until("policy-changed", lambda data: data["policy"] == policy)
    slow.settimeout(GUARD_S)
    received, end = b"", time.monotonic() + GUARD_S
    while part := slow.recv(65536):
        received += part
        assert time.monotonic() < end, "it was not dropped"
    assert not received.endswith(b"0\r\n\r\n")  # it ended without the end
    assert jobs[0].patch(threads=4)[0] == 200
    kinds = Events(tided, query="?since=1&follow=false").rest()
    assert kinds[0] == "missed" and len(kinds) == 1 + 1024


def test_streams_are_bounded_and_those_whose_readers_left_are_forgotten(tided):
    streams = [Events(tided) for _ in range(32)]
    assert all(s.answer.status == 200 for s in streams)
    assert tided.api("GET", "/v1/events")[0] == 503
    for stream in streams:
        stream.close()

    def has_room():
        stream = Events(tided)
        stream.close()
        return stream.answer.status == 200
    eventually(has_room)


def test_the_daemon_ends_its_streams_when_it_ends(place):
    tided = place.daemon("--cpus", "0-7").start()
    stream = Events(tided)
    assert stream.line() == "retry: 1000\n"
    assert tided.stop() == 0


# ---- metrics ----

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"')
NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?([eE][-+]?\d+)?|Inf|NaN)")


def parse_metrics(text):
    """{family: (type, {(name, labels): value})}, by the rules of format 0.0.4; asserts them all."""
    families, current, seen = {}, None, set()
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            current, help_text = line[7:].split(" ", 1)
            assert NAME.fullmatch(current) and current not in families and help_text.endswith(".")
            families[current] = [None, {}]
        elif line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            assert name == current and families[name][0] is None and not families[name][1]
            assert kind in ("counter", "gauge", "histogram")
            assert (kind == "counter") == name.endswith("_total"), name
            families[name][0] = kind
        else:
            name = NAME.match(line).group()
            rest, labels = line[len(name):], {}
            if rest.startswith("{"):
                at = 1
                while rest[at] != "}":
                    pair = LABEL.match(rest, at)
                    assert pair and pair[1] not in labels, line
                    labels[pair[1]] = pair[2]
                    at = pair.end()
                    assert rest[at] in ",}"
                    at += rest[at] == ","
                rest = rest[at + 1:]
            assert rest[0] == " " and NUMBER.fullmatch(rest[1:]), line
            kind, samples = families[current]
            suffixes = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
            assert name in [current + s for s in suffixes], line
            key = (name, tuple(sorted(labels.items())))
            assert key not in seen, line
            seen.add(key)
            samples[key] = float(rest[1:].replace("Inf", "inf"))
    return families


def metrics(daemon):
    families = parse_metrics(daemon.metrics())
    return families, {key: value for _, samples in families.values()
                      for key, value in samples.items()}


def sample(values, metric, **labels):
    return values[metric, tuple(sorted(labels.items()))]


def test_metrics_are_prometheus_and_true(tided):
    job = tided.job("--beat", "100", name="cnn", weight=70)
    job.target(8)
    job.peer.tell('progress 7 90 a"b\\c')
    eventually(lambda: job.get()["progress"]["done"] == 7)
    for threads in (2, 5, 3):
        assert job.patch(threads=threads)[1]["status"] == "done"
    job.target(3)
    families, values = metrics(tided)
    assert sample(values, "tide_jobs", state="running") == 1
    assert sample(values, "tide_jobs", state="queued") == 0
    for kind, value in (("target", 3), ("active", 3), ("max", 8)):
        assert sample(values, "tide_job_threads", job="j1", name="cnn", kind=kind) == value
    assert sample(values, "tide_job_cores", job="j1", name="cnn") == 8
    assert sample(values, "tide_job_weight", job="j1", name="cnn") == 70
    given = tided.api("GET", "/v1/machine")[1]["weights"]
    eventually(lambda: (sample(metrics(tided)[1], "tide_job_cpu_weight", job="j1", name="cnn") > 0)
               == given)  # written last of all
    assert sample(values, "tide_job_progress_total", job="j1", name="cnn",
                  unit='a\\"b\\\\c') == 7
    assert sample(values, "tide_cores") == 8
    assert sample(values, "tide_decisions_total") >= 4
    assert sample(values, "tide_resizes_total") >= 3
    buckets = [(float(dict(labels)["le"].replace("Inf", "inf")), value)
               for (name, labels), value in values.items() if name == "tide_resize_seconds_bucket"]
    assert buckets == sorted(buckets) and [v for _, v in buckets] == sorted(v for _, v in buckets)
    assert buckets[-1] == (float("inf"), sample(values, "tide_resize_seconds_count"))
    assert sample(values, "tide_resize_seconds_count") == sample(values, "tide_resizes_total")
    assert 0 < sample(values, "process_resident_memory_bytes") < 100e6
    assert abs(sample(values, "process_start_time_seconds") - time.time()) < 60
    assert sample(values, "process_open_fds") > 5
    assert families["tide_resize_seconds"][0] == "histogram"
    job.end()
    _, values = metrics(tided)
    assert sum(v for (name, _), v in values.items() if name == "tide_jobs") == 0
    assert not [key for key in values if key[0] == "tide_job_threads"]


# ---- the description ----

def read_yaml(text):
    """The part of YAML that docs/openapi.yaml is written in: mappings, whose values may be JSON."""
    root = {}
    stack = [(-1, root)]
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        indent = len(line) - len(line.lstrip())
        key, value = re.fullmatch(r'\s*("[^"]*"|[^":]+):\s*(.*)', line).groups()
        key = key.strip('"')
        while stack[-1][0] >= indent:
            stack.pop()
        assert key not in stack[-1][1], line
        if value:
            stack[-1][1][key] = json.loads(value) if value[0] in '{["' else value
        else:
            stack[-1][1][key] = {}
            stack.append((indent, stack[-1][1][key]))
    return root


DESCRIPTION = read_yaml((ROOT / "docs/openapi.yaml").read_text())
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int,
         "number": (int, float)}


def check_value(schema, value, where):
    """The value is as described, and nothing in it is not described."""
    if "$ref" in schema:
        schema = DESCRIPTION["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    if value is None:
        assert schema.get("nullable"), where
        return
    assert isinstance(value, TYPES[schema["type"]]), (where, value)
    assert isinstance(value, bool) == (schema["type"] == "boolean"), (where, value)
    assert value in schema.get("enum", [value]), (where, value)
    if schema["type"] == "array":
        for item in value:
            check_value(schema["items"], item, where + "[]")
    if schema["type"] == "object":
        assert set(value) == set(schema["properties"]), where
        for key, member in value.items():
            check_value(schema["properties"][key], member, f"{where}.{key}")


def test_every_route_is_described_and_nothing_else():
    source = (ROOT / "src/daemon/api/routes.c").read_text()
    table = source[source.index("routes[] = {"):]
    routes = {(method.lower(), path.replace("*", "{job}")) for method, path
              in re.findall(r'\{"([A-Z]+)", "([^"]+)", \w+\}', table)}
    described = {(method, path) for path, methods in DESCRIPTION["paths"].items()
                 for method in methods}
    assert routes == described and len(routes) >= 12


def test_answers_are_as_they_are_described(tided):
    peer = tided.peer("--inter", "2")
    status, answer = tided.api("POST", "/v1/jobs", {"pid": peer.pid, "name": "cnn"})
    peer.go(answer["token"], answer["id"], answer["name"])
    peer.expect("welcome")
    eventually(lambda: tided.jobs()[0]["state"] == "running")
    requests = [("get", "/v1/jobs", None), ("patch", "/v1/jobs/{job}", {"threads": 2}),
                ("get", "/v1/jobs/{job}", None), ("get", "/v1/jobs/{job}/explain", None),
                ("get", "/v1/machine", None), ("get", "/v1/policy", None),
                ("put", "/v1/policy", {"policy": "equal"}), ("get", "/v1/history", None),
                ("post", "/v1/power/readings", {"name": "plug", "uw": 5}),
                ("get", "/v1/power", None), ("get", "/v1/energy", None), ("get", "/v1/power/sources", None),
                ("get", "/v1/power/cap", None), ("delete", "/v1/power/cap", None),
                ("get", "/v1/power/demand", None), ("get", "/v1/power/shrunk", None),
                ("delete", "/v1/jobs/{job}", None)]
    answers = [("post", "/v1/jobs", status, answer)]
    for method, path, body in requests:
        status, answer = tided.api(method.upper(), path.replace("{job}", "cnn"), body)
        answers.append((method, path, status, answer))
    for method, path, status, answer in answers:
        ok = DESCRIPTION["paths"][path][method]["responses"][str(status)]["content"]
        check_value(ok["application/json"]["schema"], answer, f"{method} {path}")
    untested = {(m, p) for p, ms in DESCRIPTION["paths"].items() for m in ms} - {
        (m, p) for m, p, _, _ in answers}
    assert untested == {("get", "/v1/events"), ("get", "/metrics"),  # no JSON: tested above
                        ("post", "/v1/adoptions"), ("delete", "/v1/jobs/{job}/adoption"),
                        ("put", "/v1/jobs/{job}/memory-limit"),  # _adopt
                        ("put", "/v1/power/cap"), ("put", "/v1/power/lease")}  # _cap


def test_fields_that_are_described_are_taken_and_others_refused(tided):
    schemas = DESCRIPTION["components"]["schemas"]
    for method, path, name in (("POST", "/v1/jobs", "NewJob"),
                               ("PATCH", "/v1/jobs/cnn", "JobChange"),
                               ("PUT", "/v1/jobs/cnn/memory-limit", "MemoryLimit"),
                               ("POST", "/v1/adoptions", "Adoption"),
                               ("POST", "/v1/power/readings", "PowerReading"),
                               ("PUT", "/v1/policy", "PolicyChoice"),
                               ("PUT", "/v1/power/cap", "PowerCapChoice"),
                               ("PUT", "/v1/power/lease", "PowerLease")):
        if name == "JobChange":
            tided.job(name="cnn")
        for field in (*schemas[name]["properties"], "misspelt"):
            status, answer = tided.api(method, path, {field: []})  # no field takes a list
            assert status == 400
            unknown = "unknown field" in answer["error"]["message"]
            assert unknown == (field == "misspelt"), (field, answer)


# ---- last, as it has waited for a while then ----

def test_a_stream_outlives_the_time_after_which_idle_connections_go(idle):
    time.sleep(max(0, idle.began + 11 - time.monotonic()))  # API_IDLE_S and a little
    idle.daemon.job(name="late")
    assert idle.stream.next()[1]["name"] == "late"
    while not idle.stream.line().startswith(":"):
        pass  # a comment within 15 s keeps proxies awake
