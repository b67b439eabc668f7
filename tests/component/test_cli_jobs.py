# SPDX-License-Identifier: Apache-2.0
"""`tide ps`, `set`, `explain`, `policy`, `signal`, `top` with the real daemon and malleable jobs."""
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest

from cli_tools import GUARD_S, assert_error, tide  # noqa: F401

FIELDS = ["id", "name", "owner", "state", "pids", "cores", "allowed", "target", "active", "max",
          "oversubscribed", "backends", "progress", "reason"]
BACKEND_FIELDS = ["name", "version", "max", "target", "active", "malleable", "note"]


@pytest.fixture
def empty(tide):
    """A daemon without jobs."""
    assert tide("run", "--", "true").returncode == 0
    tide.wait(lambda: tide.jobs() == [])
    return tide


def test_no_jobs(empty):
    done = empty("ps")
    assert (done.returncode, done.stderr) == (0, "")
    assert "tide run --" in done.stdout
    assert empty("ps", "--json").stdout == "[]\n"
    assert empty("ps", "-q").stdout == ""
    assert "No jobs" not in empty("top").stderr


@pytest.mark.parametrize("args", [["set", "nobody", "--threads", "2"], ["explain", "nobody"],
                                  ["explain", "j999"], ["explain", "1"], ["explain", "../x y%"],
                                  ["signal", "nobody", "2"]], ids=" ".join)
def test_unknown_job_is_exit_3(empty, args):
    assert_error(empty(*args), 3, f"tide: {args[0]}: ", args[1], "tide ps")


def test_ps_shows_every_job(tide):
    first = tide.start_pool("cnn")
    tide.start("run", "--name", "plain", "--", "sleep", "600")
    tide.wait(lambda: len(tide.jobs()) == 2)
    jobs = tide.jobs()
    for job in jobs:
        assert set(FIELDS) <= set(job)
    cnn = tide.job("cnn")
    assert (cnn["pids"], cnn["state"], cnn["max"]) == ([first.pid], "running", 4)
    assert set(BACKEND_FIELDS) <= set(cnn["backends"][0])
    assert cnn["backends"][0]["malleable"] is True
    tide.wait(lambda: tide.job("cnn")["progress"]["done"] == 7)
    lines = tide("ps").stdout.splitlines()
    assert lines[0].split() == ["ID", "NAME", "OWNER", "STATE", "PIDS", "CORES", "ALLOWED", "TARGET",
                                "ACTIVE", "MAX", "MEMORY", "PROGRESS", "RATE", "REASON"]
    assert "cnn" in lines[1] and "7/50 steps" in lines[1]
    assert "plain" in lines[2] and "starting" in lines[2]
    assert tide("ps", "-q").stdout.split() == [job["id"] for job in jobs]
    assert tide("ps", "--names").stdout.split() == ["cnn", "plain"]


def test_a_job_without_agent_is_not_starting_for_ever(tide):
    tide.start("run", "--name", "plain", "--", "sleep", "600")
    tide.wait(lambda: tide("ps").returncode == 0 and [job["state"] for job in tide.jobs()] == ["starting"])
    assert tide.job("plain")["note"] == "" and "note: j1" not in tide("ps").stdout
    tide.wait(lambda: tide.job("plain")["state"] == "rigid")
    assert tide.job("plain")["note"].startswith("no agent reports (")
    assert "uses 0.0 cores" in tide.job("plain")["note"]
    assert "\nnote: j1: no agent reports (" in tide("ps").stdout
    assert "\n  note: no agent reports (" in tide("explain", "plain").stdout


def test_set_says_from_to_and_how_long_it_took(tide):
    process = tide.start_pool("cnn")
    tide("set", "cnn", "--threads", 4)
    for job, start, end in (("cnn", 4, 2), (tide.job("cnn")["id"], 2, 1), (process.pid, 1, 3)):
        done = tide("set", job, "--threads", end)
        assert (done.returncode, done.stderr) == (0, "")
        found = re.match(r"j\d+ cnn: (\d+) → (\d+) threads?, acknowledged in \d+\.\d ms", done.stdout)
        assert found, done.stdout
        assert (int(found[1]), int(found[2])) == (start, end)
        now = tide.job("cnn")
        assert (now["target"], now["active"], now["pinned"]) == (end, end, end)
    answer = json.loads(tide("set", "cnn", "--threads", 2, "--json").stdout)
    assert (answer["from"], answer["to"], answer["status"]) == (3, 2, "done")
    assert answer["latency_us"] > 0


def test_set_to_what_it_has_and_to_what_it_cannot_have(tide):
    tide.start_pool("cnn")
    tide("set", "cnn", "--threads", 1)
    assert "cnn: stays at 1 thread" in tide("set", "cnn", "--weight", 200).stdout
    done = tide("set", "cnn", "--threads", 300)
    assert done.returncode == 0
    assert re.search(r"cnn: 1 → 300 threads, acknowledged in .*, oversubscribed\n", done.stdout)
    assert "built with 4 threads" in done.stdout


def test_auto_gives_the_job_back(tide):
    tide.start_pool("cnn")
    share = tide.job("cnn")["target"]
    tide("set", "cnn", "--threads", 4)
    assert tide.job("cnn")["pinned"] == 4
    done = tide("set", "cnn", "--auto")
    assert done.returncode == 0
    now = tide.job("cnn")
    assert (now["pinned"], now["target"]) == (None, share)


def test_intra_and_inter_are_set_together(tide):
    tide.start_pool("cnn")
    assert tide("set", "cnn", "--intra", 2, "--inter", 1).returncode == 0
    assert tide.job("cnn")["target"] == 2


def test_bounds_and_weight(tide):
    tide.start_pool("cnn")
    assert tide("set", "cnn", "--min", 1, "--max", 1, "--weight", 300).returncode == 0
    job = tide.job("cnn")
    assert (job["min"], job["limit"], job["weight"], job["target"]) == (1, 1, 300, 1)


def test_min_above_the_jobs_max_is_refused(tide):
    tide.start_pool("cnn", "--max", 2)
    assert_error(tide("set", "cnn", "--min", 3), 2, "tide: set: ")


def test_what_set_cannot_change_and_what_there_is_nothing_to_undo_of(tide):
    tide.start_pool("cnn")
    done = tide("set", "cnn", "--placement", "exclusive")
    assert_error(done, 2, "tide: set: --placement: ", "fixed when it starts")
    assert "tide pin" in done.stderr
    done = tide("unpin", "cnn")
    assert (done.returncode, done.stdout) == (0, "j1 cnn: is not pinned\n")
    assert tide("pin", "cnn").stdout.startswith("j1 cnn: pinned, ")
    assert tide("unpin", "cnn").stdout.startswith("j1 cnn: unpinned, ")


def test_set_before_there_is_a_pool_is_accepted(tide):
    tide.start("run", "--name", "plain", "--", "sleep", "600")
    tide.wait(lambda: tide("ps").returncode == 0 and tide.jobs())
    done = tide("set", "plain", "--threads", 1)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 thread, takes effect with its first thread pool" in done.stdout
    done = tide("set", "plain", "--auto")
    assert "plain: automatic, takes effect with its first thread pool" in done.stdout


def test_job_that_does_not_acknowledge_is_partly_applied(tide):
    process = tide.start_pool("cnn")
    tide("set", "cnn", "--threads", 4)
    process.send_signal(signal.SIGSTOP)
    tide.wait(lambda: all(") T " in stat.read_text()
                          for stat in pathlib.Path(f"/proc/{process.pid}/task").glob("*/stat")))
    done = tide("set", "cnn", "--threads", 1, "--wait", 100)
    assert done.returncode == 6
    assert "not acknowledged within 100 ms" in done.stdout
    process.send_signal(signal.SIGCONT)
    tide.wait(lambda: tide.job("cnn")["active"] == 1)


def test_more_threads_than_cores_are_marked(tide):
    tide.start_pool("cnn")
    cores = os.cpu_count()
    done = tide("set", "cnn", "--threads", cores + 1)
    assert done.returncode == 0
    assert "oversubscribed" in done.stdout
    assert tide.job("cnn")["oversubscribed"] is True
    out = tide("ps").stdout
    assert f" {cores + 1}! " in out
    assert "\n! oversubscribed: more threads than cores" in out


def test_explain_has_the_present_and_the_history(tide):
    tide.start_pool("cnn")
    tide("set", "cnn", "--threads", 3)
    tide("set", "cnn", "--threads", 1)
    done = tide("explain", "cnn")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert re.match(r"j1 cnn: running, 1 of 4 threads active, target 1, cores ", lines[0])
    assert "pinned to 1 by hand" in done.stdout
    assert re.match(r"\d\d:\d\d:\d\d\.\d{3}  3 → 1 .* ms  .*by hand", lines[-1])
    changes = json.loads(tide("explain", "cnn", "--json").stdout)["changes"]
    assert [c["to"] for c in changes[-2:]] == [3, 1]
    assert abs(changes[-1]["time"] - time.time()) < GUARD_S


def test_what_the_policy_is_told_is_set_shown_and_taken_back(tide):
    tide.start_pool("cnn", "--priority", -5, "--class", 2, "--request", 3, "--deadline", "2h")
    job = tide.job("cnn")
    assert (job["priority"], job["class"], job["request"]) == (-5, 2, 3)
    assert abs(job["deadline"] - time.time() - 7200) < GUARD_S
    done = tide("set", "cnn", "--priority", 7, "--deadline", "10min", "--request", "none")
    assert (done.returncode, done.stderr) == (0, "")
    job = tide.job("cnn")
    assert (job["priority"], job["class"], job["request"]) == (7, 2, None)
    assert abs(job["deadline"] - time.time() - 600) < GUARD_S
    out = tide("explain", "cnn").stdout
    assert re.search(r"priority 7, class 2, (uses \S+ of memory, )?deadline 20", out) and "request" not in out
    assert tide("set", "cnn", "--deadline", "none", "--class", 0, "--priority", 0).returncode == 0
    job = tide.job("cnn")
    assert (job["priority"], job["class"], job["deadline"]) == (0, 0, None)


def test_policies_are_listed_explained_and_chosen(empty):
    out = empty("policy", "list").stdout
    assert empty("policy").stdout == out
    assert re.search(r"^\* equal +\S", out, re.M)
    assert re.search(r"^  priority +\S", out, re.M)
    assert out.endswith("\nIn force: equal\n")
    shown = empty("policy", "show", "priority").stdout
    assert re.search(r"^priority: \S", shown) and "In force" not in shown
    assert re.search(r"^  ageing = \S+\n    \S.*\n    .* … .* \(default .*\)$", shown, re.M)
    assert re.search(r"^    strict, always-attend, max-prop \(default \S+\)$", shown, re.M)
    assert "\n    0 or more (default 0)\n" in empty("policy", "show", "equal").stdout
    assert "(default 500 permille)" in empty("policy", "show", "hesrpt").stdout
    for words in (["set", "priority/ageing=90s"], ["priority/ageing=90s"]):
        done = empty("policy", *words)
        assert (done.returncode, done.stdout) == (0, "In force: priority/ageing=90s\n")
    shown = empty("policy", "show").stdout
    assert "In force as priority/ageing=90s" in shown and "ageing = 90s" in shown
    answer = json.loads(empty("policy", "--json").stdout)
    assert (answer["name"], answer["policy"]) == ("priority", "priority/ageing=90s")
    assert json.loads(empty("policy", "show", "equal", "--json").stdout)["name"] == "equal"


def test_a_wrong_policy_is_refused_with_what_there_is(empty):
    assert_error(empty("policy", "set", "equl"), 2, "tide: policy: ", '"equl"',
                 "did you mean equal?", "tide policy list")
    assert_error(empty("policy", "set", "priority/ageing=long"), 2, "tide: policy: ", '"long"',
                 "tide policy show")
    assert_error(empty("policy", "show", "best"), 2, "tide: policy: ", "'best'", "tide policy list")
    assert_error(empty("policy", b"\xff"), 2, "tide: policy: ")
    assert json.loads(empty("policy", "--json").stdout)["policy"] == "equal"


def test_version_names_the_daemons_too(empty):
    assert re.fullmatch(r"tide (\S+)\ntided \1 \(pid \d+\)\n", empty("version").stdout)


def test_signal_reaches_the_job(tide):
    tide.start_pool("cnn")
    done = tide("signal", "cnn", 3)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "cnn: 1 process signalled to use 3 threads\n"
    tide.wait(lambda: tide.job("cnn")["active"] == 3)
    assert tide.job("cnn")["pinned_by"] == "signal"
    assert "pinned to 3 by a signal ('tide set cnn --auto' lets go)" in tide("explain", "cnn").stdout
    assert tide("set", "cnn", "--auto").returncode == 0
    tide.wait(lambda: tide.job("cnn")["pinned"] is None)


def test_signal_spares_a_job_that_switched_it_off(tide):
    process = tide.start("run", "--name", "off", "--", "sleep", "600", env={"TIDE_SIGNAL": "0"})
    tide.wait(lambda: tide("ps").returncode == 0 and tide.jobs())
    assert_error(tide("signal", "off", 2), 3, "tide: signal: no signal sent")
    assert process.poll() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_somebody_elses_daemon_is_denied(empty):
    for args in (["ps"], ["set", "j1", "--auto"], ["policy", "equal"]):
        done = empty(*args, user=65534, group=65534, extra_groups=[])
        assert_error(done, 4, f"tide: {args[0]}: ", "another user")


# ---- tide top ----

def test_top_without_a_terminal_is_one_frame_of_text(tide):
    tide.start_pool("cnn")
    tide("set", "cnn", "--threads", os.cpu_count())
    done = tide("top")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("tide top: 1 job on ")
    assert any("cnn" in line and "running" in line for line in lines)
    assert re.match(r"cores  [1 ]+   \(", lines[-1]), lines[-1]


class Terminal:
    """`tide top` on a terminal of its own; what it wrote so far is in text."""

    def __init__(self, tide, **env):
        self.master, slave = pty.openpty()
        self.resize(24, 100)
        self.text = ""
        self.process = subprocess.Popen([tide.program, "top"], stdin=slave, stdout=slave,
                                        stderr=slave, start_new_session=True,
                                        env={**tide.env, "TERM": "xterm-256color", **env})
        os.close(slave)

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def key(self, key):
        os.write(self.master, key.encode())

    def read_until(self, pattern):
        end = time.monotonic() + GUARD_S
        while not re.search(pattern, self.text):
            assert time.monotonic() < end, self.text
            if select.select([self.master], [], [], 0.1)[0]:
                self.text += os.read(self.master, 65536).decode(errors="replace")

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.fixture
def terminal(tide):
    opened = []

    def open_(**env):
        opened.append(Terminal(tide, **env))
        return opened[-1]
    yield open_
    for t in opened:
        t.close()


def test_top_changes_jobs_by_keys(tide, terminal):
    tide.start_pool("cnn")
    tide.start_pool("mlp")
    tide("set", "mlp", "--threads", 2)
    top = terminal()
    top.read_until("cnn[^$]*mlp[^$]*now")
    top.key("\x1bOB")  # down
    top.key("+")
    tide.wait(lambda: tide.job("mlp")["pinned"] == 3)
    assert tide.job("cnn")["pinned"] is None
    top.read_until("acknowledged in")
    top.key("-")
    tide.wait(lambda: tide.job("mlp")["pinned"] == 2)
    top.key("a")
    tide.wait(lambda: tide.job("mlp")["pinned"] is None)
    top.key("q")
    assert top.process.wait(GUARD_S) == 0


def test_top_survives_any_size_and_the_end_of_its_job(tide, terminal):
    job = tide.start_pool("cnn")
    top = terminal()
    top.read_until("cnn")
    for rows, columns in ((3, 10), (1, 1), (200, 300), (6, 30), (24, 80)):
        top.resize(rows, columns)
        os.kill(top.process.pid, signal.SIGWINCH)
        top.key("j")
        top.text = ""
        top.read_until("\x1b")
    job.kill()
    top.read_until("No jobs")
    os.kill(tide.daemon(), signal.SIGKILL)
    top.read_until("no daemon runs")
    top.key("+")
    top.key("q")
    assert top.process.wait(GUARD_S) == 0


def test_top_has_no_colours_under_no_color(tide, terminal):
    tide.start_pool("cnn")
    colour = terminal()
    colour.read_until("now")
    assert re.search(r"\x1b\[[0-9;]*4[0-7]m", colour.text)
    plain = terminal(NO_COLOR="1")
    plain.read_until("now")
    assert not re.search(r"\x1b\[[0-9;]*[34][0-7]m", plain.text)
