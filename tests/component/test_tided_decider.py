# SPDX-License-Identifier: Apache-2.0
"""The policy external: tided by a decider's answers, and by equal in each way in which one can fail."""
import json
import os
import signal
import socketserver
import subprocess
import sys
import threading
import time

import pytest

import decider_program
from daemon import NOBODY, eventually


def good(question, handler):
    handler.wfile.write(decider_program.divide(question))


class Decider:
    """Listens in a thread; `answer` may be changed meanwhile."""

    def __init__(self, path, answer):
        self.answer = answer
        decider = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                try:
                    for line in self.rfile:
                        decider.answer(json.loads(line), self)
                except OSError:  # tided hung up
                    pass
        self.server = socketserver.ThreadingUnixStreamServer(str(path), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def end(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def program(public_dir):
    """program(uid): a decider of that user; it is killed at the end."""
    started = []

    def start(uid=0):
        path = public_dir / "decider.sock"
        path.unlink(missing_ok=True)
        started.append(subprocess.Popen([sys.executable, decider_program.__file__, path, str(uid)], stdout=subprocess.PIPE))
        started[-1].stdout.readline()
        return started[-1]
    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def start(place, public_dir, more=""):
    conf = public_dir / "t.conf"
    conf.write_text(f"[daemon]\ncpus=0-7\npolicy=external\ndecider={public_dir}/decider.sock\n{more}")
    conf.chmod(0o644)
    return place.daemon("--config", conf).start()


def status(tided):
    return tided.api("GET", "/v1/policy")[1]["external"]


def decide(tided):
    assert tided.api("PUT", "/v1/policy", {"policy": "external"})[0] == 200


def lines(tided):
    return [line for line in tided.log.read_text().splitlines() if "decider" in line]


def test_jobs_get_what_the_decider_says_and_move_once_when_another_one_comes(place, public_dir, program):
    program()
    tided = start(place, public_dir, "decider-deadline=1s\n")
    a, b = tided.job(name="a"), tided.job(name="b")
    a.target(6)
    b.target(2)
    before = len(a.changes()), len(b.changes())
    c = tided.job(name="c")
    c.target(1)
    a.target(5)  # already while the decider has not answered for three jobs yet
    eventually(lambda: "the decider gives it 5 cores" in a.get()["reason"])
    assert (len(a.changes()), len(b.changes())) == (before[0] + 1, before[1])
    assert status(tided).startswith("answered ")
    assert tided.api("GET", f"/v1/jobs/{a.id}/explain")[1]["external"].startswith("answered ")
    assert lines(tided) == []


def test_external_needs_a_decider_in_the_configuration(place):
    tided = place.daemon("--cpus", "0-7").start()
    code, answer = tided.api("PUT", "/v1/policy", {"policy": "external"})
    assert code == 400 and "tide.conf names no decider" in answer["error"]["message"]
    assert tided.api("GET", "/v1/policy")[1]["name"] == "equal"


def late(question, handler):
    time.sleep(0.2)
    good(question, handler)


def too_many(question, handler):
    plan = [{"job": j["id"], "cores": 8} for j in question["jobs"]]
    handler.wfile.write(json.dumps({"snapshot": question["snapshot"], "plan": plan}).encode() + b"\n")


FAULTS = {
    "never answers": (lambda q, h: None, "no answer within 100 ms"),
    "answers late": (late, "no answer within 100 ms"),
    "answers an older snapshot": (lambda q, h: good({**q, "snapshot": 0}, h), "no answer within 100 ms"),
    "a line of 10 MB": (lambda q, h: h.wfile.write(b"[" * (10 << 20)), "longer than 4 MiB"),
    "no JSON": (lambda q, h: h.wfile.write(b"pl\xc3 \xff\n"), "no JSON"),
    "too many cores": (too_many, "more than the machine has"),
    "hangs up": (lambda q, h: h.connection.shutdown(2), "it closed the connection"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_equal_decides_while_the_decider_fails(place, public_dir, fault):
    answer, why = FAULTS[fault]
    decider = Decider(public_dir / "decider.sock", good)
    try:
        tided = start(place, public_dir, "decider-deadline=1s\n")
        a, b = tided.job(name="a"), tided.job(name="b")
        a.target(6)
        b.target(2)
        (public_dir / "t.conf").write_text((public_dir / "t.conf").read_text().replace("=1s", "=100ms"))
        decider.answer = answer
        tided.signal(signal.SIGHUP)
        eventually(lambda: why in (status(tided) or ""))
        assert "not answering since" in status(tided) and "equal decides" in status(tided)
        a.target(4)
        b.target(4)
        decide(tided)
        decider.answer = good
        eventually(lambda: decide(tided) or (status(tided) or "").startswith("answered"), pause=0.3)
        a.target(6)
        assert [line.split(": ", 2)[-1] for line in lines(tided)][1:] == ["answers again"]
    finally:
        decider.end()


def test_a_decider_that_comes_and_goes(place, public_dir, program):
    tided = start(place, public_dir, "decider-deadline=1s\n")
    a, b = tided.job(name="a"), tided.job(name="b")
    a.target(4)
    assert "cannot connect" in status(tided)
    first = program()
    a.target(6)
    b.target(2)
    first.send_signal(signal.SIGKILL)
    a.target(4)
    b.target(4)
    assert "not answering since" in status(tided)
    program()
    a.target(6)
    assert status(tided).startswith("answered ")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a process of another user")
def test_a_decider_has_to_be_of_the_user_that_the_configuration_names(place, public_dir, program):
    program(NOBODY)
    tided = start(place, public_dir, "decider-deadline=1s\n")
    a = tided.job(name="a")
    tided.job(name="b")
    a.target(4)
    assert f"it is user {NOBODY}'s" in status(tided)
    with open(public_dir / "t.conf", "a") as f:
        f.write(f"decider-user={NOBODY}\n")
    tided.signal(signal.SIGHUP)
    a.target(6)
