# SPDX-License-Identifier: Apache-2.0
"""`tide sim --policy external:SOCKET`: a decider that works, and each way in which one can fail."""
import csv
import json
import os
import socket
import socketserver
import subprocess
import sys
import threading
import time

import pytest

from cli_tools import tide  # noqa: F401
from conftest import GUARD_S, ROOT

TWO = {"machine": {"cores": 4}, "jobs": [{"name": "long", "work": 40, "speedup": 1},
                                         {"name": "short", "work": 8, "speedup": 1}]}

# Under equal, the weight ends the long job first.
WEIGHED = {"machine": {"cores": 4}, "jobs": [{"name": "long", "work": 120, "speedup": 1, "weight": 300},
                                             {"name": "short", "work": 80, "speedup": 1}]}


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "two.json"
    path.write_text(json.dumps(TWO))
    return path


@pytest.fixture
def decider(tmp_path):
    """decider(answer): the path of a socket where answer(question, handler) writes."""
    servers = []

    def start(answer):
        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                try:
                    for line in self.rfile:
                        answer(json.loads(line), self)
                except OSError:  # the simulator hung up
                    pass

        path = tmp_path / "decider.sock"
        server = socketserver.ThreadingUnixStreamServer(str(path), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return path
    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def run(tide, scenario, path):
    done = tide("sim", scenario, "--policy", f"equal,external:{path}", "--check", "--json")
    assert done.returncode == 0, done.stderr
    return [p["metrics"]["turnaround"]["mean"] for p in json.loads(done.stdout)["policies"]], done.stderr


def listens(path):
    with socket.socket(socket.AF_UNIX) as s:
        return s.connect_ex(str(path)) == 0


def order(tide, scenario, policy, tmp_path):
    """The jobs' names in the order in which they end."""
    done = tide("sim", scenario, "--policy", policy, "--check", "--csv", tmp_path / "jobs.csv")
    assert done.returncode == 0, done.stderr
    with open(tmp_path / "jobs.csv") as f:
        return [job["name"] for job in sorted(csv.DictReader(f), key=lambda j: float(j["finish"]))], done.stderr


def test_the_example_ends_the_short_job_first(tide, scenario, tmp_path):
    scenario.write_text(json.dumps(WEIGHED))
    path = tmp_path / "example.sock"
    with subprocess.Popen([sys.executable, ROOT / "examples/decider.py", path]) as process:
        try:
            end = time.monotonic() + GUARD_S
            while not listens(path) and time.monotonic() < end:
                time.sleep(0.01)
            equal, _ = order(tide, scenario, "equal", tmp_path)
            external, said = order(tide, scenario, f"external:{path}", tmp_path)
        finally:
            process.kill()
    assert said == ""
    assert (equal, external) == (["long", "short"], ["short", "long"])


def late(question, handler):
    time.sleep(1.5)
    handler.wfile.write(b"{}\n")


FAULTS = {
    "answers late": (late, "no answer before the deadline"),
    "no JSON": (lambda q, h: h.wfile.write(b"plan: all\n"), "no JSON"),
    "ends": (lambda q, h: h.connection.shutdown(2), "it closed the connection"),
    "a long line": (lambda q, h: h.wfile.write(b"[" * (10 << 20)), "longer than 4 MiB"),
    "two lines": (lambda q, h: h.wfile.write(b"{}\n{}\n"), "more than one line"),
    "stale": (lambda q, h: h.wfile.write(b'{"snapshot": 0, "plan": []}\n'), "it answers snapshot 0"),
    "too many cores": (lambda q, h: h.wfile.write(json.dumps(
        {"snapshot": q["snapshot"], "plan": [{"job": j["id"], "cores": 4} for j in q["jobs"]]}).encode() + b"\n"),
        "more than the machine has"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_or_late_answer_leaves_the_decision_to_equal(tide, scenario, decider, fault):
    answer, why = FAULTS[fault]
    (equal, external), said = run(tide, scenario, decider(answer))
    assert why in said and "the policy equal the others" in said
    if fault != "too many cores":  # the last job alone may have all four
        assert external == equal


def test_without_a_decider_the_simulation_says_so(tide, scenario, tmp_path):
    done = tide("sim", scenario, "--policy", f"external:{tmp_path}/none.sock")
    assert done.returncode != 0
    assert "no decider at" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a process of another user")
def test_a_decider_of_another_user_is_refused(tide, scenario, tmp_path):
    path = tmp_path / "other.sock"
    code = ("import os, socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); os.setuid(65534); "
            "s.listen(); print(flush=True); time.sleep(60)")
    with subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE) as process:
        try:
            process.stdout.readline()
            done = tide("sim", scenario, "--policy", f"external:{path}")
        finally:
            process.kill()
    assert done.returncode != 0
    assert "another user's" in done.stderr
