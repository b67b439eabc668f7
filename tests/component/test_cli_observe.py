# SPDX-License-Identifier: Apache-2.0
"""`tide history` and `tide events` with the real daemon."""
import http.server
import json
import os
import re
import signal
import socketserver
import subprocess
import threading
import time

import pytest

from cli_tools import GUARD_S, assert_error, tide  # noqa: F401

TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


def end_daemon(tide, number=signal.SIGTERM):
    pid = tide.daemon()
    os.kill(pid, number)
    tide.wait(lambda: tide.daemon() != pid)


def objects(done):
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def gone(tide, name):
    tide.wait(lambda: name not in tide("ps", "--names").stdout.split())


# ---- history ----

def test_history_lists_what_ran_and_runs(tide):
    since = int(time.time())
    assert tide("run", "--name", "short", "--weight", 50, "--", "true").returncode == 0
    gone(tide, "short")
    pool = tide.start_pool("cnn")
    assert tide("set", "cnn", "--threads", 1).returncode == 0
    tide.wait(lambda: re.search(r"command: \S*python3 -c", tide("history", "cnn").stdout))
    done = tide("history", env={"TZ": "UTC"})
    assert (done.returncode, done.stderr) == (0, "")
    title, short, cnn = done.stdout.splitlines()
    assert title.split() == ["ID", "NAME", "OWNER", "STATE", "SUBMITTED", "WAITED", "RAN", "EXIT",
                             "THREADS", "RATE", "COMMAND"]
    assert short.split()[1] == "short" and short.split()[3] == "ended"
    assert cnn.split()[1] == "cnn" and cnn.split()[3] == "running" and "python3 -c" in cnn
    assert time.strftime("%F", time.gmtime(since)) in short
    assert [job["name"] for job in objects(tide("history", "--json"))] == ["short", "cnn"]
    assert [job["name"] for job in objects(tide("history", "-n", 1, "--json"))] == ["cnn"]
    assert len(objects(tide("history", "--since", since, "--json"))) == 2
    assert [j["name"] for j in objects(tide("history", "-js", since + 3600))] == ["cnn"]
    told = tide("history", "cnn").stdout
    assert told.startswith("j2 cnn: running\n  command: ")
    assert re.search(rf"\n  submitted {TIME} by root, waited 0s, ran \d+s\n", told)
    assert "\n  placement shared, weight 100\n" in told
    assert re.search(rf"\n{TIME} +1  \S+ +pinned to 1 by hand\n$", told)
    assert "weight 50" in tide("history", "j1").stdout
    assert_error(tide("history", "nobody"), 3, "tide: history: ", "'nobody'", "tide history")
    pool.kill()


def test_history_outlives_the_daemon_and_knows_who_was_lost(tide):
    job = tide.start("run", "--name", "cnn", "--", "sleep", "600")
    tide.wait(lambda: tide("history", "cnn").returncode == 0)
    assert objects(tide("history", "--json"))[0]["state"] == "starting"
    end_daemon(tide, signal.SIGKILL)
    job.kill()
    job.wait()
    assert tide.daemon() is None
    done = tide("history")  # starts a daemon, which alone reads the file
    assert done.returncode == 0 and re.search(r"cnn +root +lost ", done.stdout), done
    later = tide("history", "--since", int(time.time()) + 10)
    assert later.stdout == "No job since then. Start one: tide run -- python train.py\n"


def test_history_that_is_not_kept_is_an_error_that_says_why(tide):
    tide.dir.mkdir(mode=0o700)
    (tide.dir / "history.db").mkdir()
    tide.start("run", "--name", "cnn", "--", "sleep", "600")
    tide.wait(lambda: tide("ps").returncode == 0)
    assert_error(tide("history"), 5, f"tide: history: cannot keep history in {tide.dir}/history.db",
                 "Is a directory", "tided(8)")


# ---- events ----

@pytest.fixture
def follow(tide):
    """follow(*options): `tide events -f` from the job "old" on, whose first event it has told."""
    def start(*options):
        tide.start_pool("old")
        process = tide.start("events", "--follow", "--since", "1h", *options,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert "old" in process.stdout.readline()
        return process
    yield start
    for process in tide.started:
        if process.stderr:
            process.kill()
            process.stderr.close()


def test_events_tell_what_happened(tide):
    tide.start_pool("cnn")
    tide("set", "cnn", "--threads", 2)
    assert tide("run", "--name", "short", "--", "true").returncode == 0
    gone(tide, "short")
    tide("policy", "set", "fcfs")
    done = tide("events")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert all(re.match(rf"{TIME}\.\d{{3}}  [a-z-]+ +\S", line) for line in lines)
    assert re.match(r".*  job-added       j1 cnn: starting", lines[0])
    assert any(re.search(r"  job-changed     j1 cnn: running, 2 threads, cores \S+: pinned to 2 by "
                         r"hand$", line) for line in lines)
    assert any(re.search(r"  job-ended       j2 short: ran 0s, exit status 0$", line) for line in lines)
    assert lines[-1].endswith("  policy-changed  fcfs") or "policy-changed  fcfs" in done.stdout
    short = objects(tide("events", "--json", "short"))
    assert [event["event"] for event in short] == ["job-added", "job-ended"]
    assert short[1]["name"] == "short" and abs(short[1]["time"] - time.time()) < 60
    kinds = {e["event"] for e in objects(tide("events", "-jt", "job-ended,policy-changed"))}
    assert kinds == {"job-ended", "policy-changed"}
    assert "has no such event" in tide("events", "--since", int(time.time()) + 60).stdout
    assert "has no such event" in tide("events", "nobody").stdout


def test_followed_events_come_at_once_over_a_restart_of_the_daemon_until_ctrl_c(tide, follow):
    events = follow("--json")
    tide.start_pool("cnn")
    while json.loads(events.stdout.readline())["name"] != "cnn":
        pass
    end_daemon(tide, signal.SIGKILL)
    assert "the daemon has ended" in events.stderr.readline()
    assert tide("run", "--name", "next", "--", "true").returncode == 0
    assert "the daemon answers again" in events.stderr.readline()
    assert "some events are missing" in events.stderr.readline()
    while json.loads(events.stdout.readline())["name"] != "next":
        pass
    events.send_signal(signal.SIGINT)
    assert events.wait(GUARD_S) == -signal.SIGINT


class Answers(http.server.BaseHTTPRequestHandler):
    """A daemon that has events for the first reader, no room for the next, and refuses the third."""
    left = []

    def do_GET(self):
        status, body = self.left.pop(0) if self.left else (403, {"message": "not yours"})
        text = body if isinstance(body, str) else json.dumps({"error": body})
        self.send_response(status)
        self.send_header("Content-Type", "text/event-stream" if status == 200 else "application/json")
        self.end_headers()
        self.wfile.write(text.encode())
        self.close_connection = True

    def address_string(self):
        return "tide"

    def log_message(self, *_):
        pass


def test_who_is_refused_follows_no_longer_and_who_finds_no_room_asks_again(tide):
    event = {"time": 1.0, "id": "j1", "name": "cnn", "state": "running"}
    Answers.left = [(200, f"event: job-added\nid: 1-1\ndata: {json.dumps(event)}\n\n"), (503, {"message": "full"})]
    tide.dir.mkdir()
    with socketserver.ThreadingUnixStreamServer(str(tide.dir / "api.sock"), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = tide("events", "--follow")
        server.shutdown()
    assert " cnn: running" in done.stdout and done.returncode == 4, done
    assert re.search("has no room .*\n.*not yours", done.stderr) and "has ended" not in done.stderr


def test_following_ends_when_nobody_reads(tide, follow):
    events = follow()
    events.stdout.close()
    assert events.wait(GUARD_S) in (0, -signal.SIGPIPE)  # before it has something to say, or then
    assert events.stderr.read() == ""
