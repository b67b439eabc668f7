# SPDX-License-Identifier: Apache-2.0
"""`tide run`: it becomes the program, starts the daemon, and fails open."""
import http.server
import json
import os
import signal
import socketserver
import subprocess
import sys
import threading

import pytest

from cli_tools import assert_error, tide  # noqa: F401

SHOW = 'echo "$TIDE_JOB_ID|$TIDE_JOB_NAME|$TIDE_MAX|$LD_PRELOAD|$TIDE_SOCKET|${#TIDE_TOKEN}"'


def test_the_first_run_starts_a_daemon_that_ends_with_its_last_job(tide):
    process = tide.start("run", "--name", "first", "--", "sleep", "600")
    tide.wait(lambda: tide("ps").returncode == 0)
    pid = tide.daemon()
    assert pid and pid != process.pid
    job = tide.job("first")
    assert (job["pids"], job["owner"]) == ([process.pid], tide.jobs()[0]["owner"])
    tide.start("run", "--name", "second", "--", "sleep", "600")
    tide.wait(lambda: len(tide.jobs()) == 2)
    assert tide.daemon() == pid
    for started in tide.started:
        started.kill()
    tide.wait(lambda: tide.daemon() is None)
    assert_error(tide("ps"), 5, "tide: ps: no daemon runs")


def test_program_runs_in_place_of_tide(tide):
    process = tide.start("run", "--", "sh", "-c", "echo $$ $PPID; ls /proc/self/fd; exec sleep 600",
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout.readline() == f"{process.pid} {os.getpid()}\n"
    # 3 is the directory that ls itself has open.
    assert [process.stdout.readline() for _ in range(4)] == ["0\n", "1\n", "2\n", "3\n"]
    process.send_signal(signal.SIGTERM)  # not SIGINT: a CI job in the background ignores it
    assert process.wait(30) == -signal.SIGTERM


def test_status_and_standard_input_are_the_programs(tide):
    assert tide("run", "--", "sh", "-c", "exit 7").returncode == 7
    assert tide("run", "--", "sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM
    done = tide("run", "sh", "-c", "cat; echo $1 >&2", "sh", "--help", stdin=None, input="in")
    assert (done.returncode, done.stdout, done.stderr) == (0, "in", "--help\n")


def test_environment_of_a_job(tide, build_dir):
    done = tide("run", "--name", "a", "--max", "6", "--", "sh", "-c", SHOW)
    assert done.stderr == ""
    assert done.stdout == (f"j1|a|6|{build_dir}/agent/$LIB/libtide-agent.so|"
                           f"{tide.dir}/agent.sock|32\n")
    libc = "/lib/x86_64-linux-gnu/libc.so.6"
    done = tide("run", "--name", "b", "--", "sh", "-c", SHOW,
                env={"LD_PRELOAD": libc, "TIDE_MAX": "3"})
    assert done.stdout.startswith(f"j2|b||{libc}:{build_dir}/agent/$LIB/libtide-agent.so|")


# struct sched_attr: size, policy, flags, nice, priority, runtime (the slice), deadline, period
SLICE = """import ctypes, struct
b = ctypes.create_string_buffer(48)
r = ctypes.CDLL(None).syscall(315, 0, b, 48, 0)
print(struct.unpack_from("Q", b, 24)[0] if r == 0 else 0)"""


def test_job_computes_in_long_slices(tide):
    stock = subprocess.run([sys.executable, "-c", SLICE], capture_output=True, text=True, check=True)
    if int(stock.stdout) == 0:
        pytest.skip("this kernel has no slices of one's own (Linux 6.12)")
    done = tide("run", "--", sys.executable, "-c", SLICE)
    assert (done.stdout, done.stderr) == ("20000000\n", "")
    done = tide("run", "--no-slices", "--", sys.executable, "-c", SLICE)
    assert (done.stdout, done.stderr) == (stock.stdout, "")
    for value, slices in (("0", stock.stdout), ("1", "20000000\n"), ("", "20000000\n")):
        done = tide("run", "--", sys.executable, "-c", SLICE, env={"TIDE_SLICES": value})
        assert (done.stdout, done.stderr) == (slices, "")


def test_run_within_a_run_preloads_the_agent_once(tide):
    done = tide("run", "--name", "a", "--", tide.program, "run", "--name", "b", "--", "sh", "-c", SHOW)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("|")[3].count("libtide-agent.so") == 1


@pytest.mark.parametrize("command, name", [
    (["sleep", "600"], "sleep"),
    (["/bin/sleep", "600"], "sleep"),
    (["python3", "-u", "-c", "import time; time.sleep(600)", "dir/train.py"], "train"),
    (["bash", "-c", "sleep 600", "-x y.py"], "_x-y"),
])
def test_job_is_named_after_script_or_program(tide, command, name):
    tide.start("run", "--", *command)
    second = tide.start("run", "--", *command)
    tide.wait(lambda: tide("ps").returncode == 0 and len(tide.jobs()) == 2)
    names = sorted(job["name"] for job in tide.jobs())
    first = tide.started[0]
    assert names in ([name, f"{name}-{second.pid}"], [name, f"{name}-{first.pid}"])


def test_options_reach_the_job(tide):
    tide.start("run", "--name", "a", "--min", "2", "--max", "8", "--weight", "300", "--threads",
               "5", "--placement", "exclusive", "--", "sleep", "600")
    tide.wait(lambda: tide("ps").returncode == 0 and tide.jobs())
    job = tide.job("a")
    assert (job["min"], job["limit"], job["weight"], job["pinned"], job["placement"]) == \
        (2, 8, 300, 5, "exclusive")


@pytest.mark.parametrize("name", ["77", "j7"])
def test_name_that_looks_like_a_pid_or_an_id_is_refused(tide, tmp_path, name):
    done = tide("run", "--name", name, "--", "touch", tmp_path / "ran")
    assert_error(done, 2, "tide: run: ", f"'{name}'", "tide help run")
    assert not (tmp_path / "ran").exists()


def test_taken_name_exits_2_without_running(tide, tmp_path):
    tide.start("run", "--name", "a", "--", "sleep", "600")
    tide.wait(lambda: tide("ps").returncode == 0 and tide.jobs())
    assert_error(tide("run", "--name", "a", "--", "touch", tmp_path / "ran"), 2, "tide: run: ", "'a'")
    assert not (tmp_path / "ran").exists()
    assert len(tide.jobs()) == 1


@pytest.mark.parametrize("env", [{}, {"TIDE_DAEMON": "/bin/false"},
                                 {"TIDE_DAEMON": "/nonexistent/tided"}], ids=str)
def test_missing_programs_and_status(tide, tmp_path, env):
    plain = tmp_path / "plain"
    plain.write_text("no program")
    for name, status in ((tmp_path / "none", 127), ("no-such-program", 127), (plain, 126),
                         (tmp_path, 126)):
        done = tide("run", "--", name, env=env)
        assert done.returncode == status
        assert f"tide: run: {name}: " in done.stderr


def assert_runs_with_one_line(done, *words):
    lines = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (7, "ran\n")
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("tide: run: the program runs")
    for word in words:
        assert word in lines[0]


RAN = ["run", "--", "sh", "-c", "echo ran; exit 7"]


@pytest.mark.parametrize("daemon, words", [
    ("/bin/false", ["ended at once"]),
    ("/nonexistent/tided", ["TIDE_DAEMON names /nonexistent/tided: No such file"])])
def test_runs_without_a_daemon(tide, daemon, words):
    assert_runs_with_one_line(tide(*RAN, env={"TIDE_DAEMON": daemon}), "not as a job", *words)


def test_a_tided_that_is_not_there_is_named_by_all(tide):
    env = {"TIDE_DAEMON": "/nonexistent/tided"}
    words = "TIDE_DAEMON names /nonexistent/tided: No such file or directory"
    assert_error(tide("ps", env=env), 5, "tide: ps: no daemon runs",
                 f"'tide run' cannot start one: {words}.")
    out = tide("doctor", env=env).stdout
    assert f"no daemon runs, and {words}" in out and "unset TIDE_DAEMON" in out


@pytest.mark.parametrize("name, words", [("a b", ["blank"]), ("a:b", ["blank"]), ("none", ["none"])])
def test_runs_without_an_agent(tide, tmp_path, build_dir, name, words):
    folder = tmp_path / name
    if words == ["blank"]:
        folder.symlink_to(build_dir / "agent")
    done = tide(*RAN, env={"TIDE_AGENT_DIR": folder})
    assert_runs_with_one_line(done, "fixed number of threads", *words)
    done = tide("run", "--", "sh", "-c", 'test -z "$LD_PRELOAD"', env={"TIDE_AGENT_DIR": folder})
    assert done.returncode == 0


def make_file(path):
    path.write_text("")


def make_open_to_all(path):
    path.mkdir()
    path.chmod(0o777)


def make_link(path):
    path.with_name("elsewhere").mkdir()
    path.symlink_to(path.with_name("elsewhere"))


def make_dangling_link(path):
    path.symlink_to("nowhere")


@pytest.mark.parametrize("make, word", [
    (make_file, "is no directory: remove it"), (make_open_to_all, "others may write in"),
    (make_link, "is a symbolic link: remove it"), (make_dangling_link, "is a symbolic link"),
], ids=lambda value: getattr(value, "__name__", ""))
def test_a_directory_that_cannot_be_trusted_is_named_by_all(tide, make, word):
    """And the program runs all the same."""
    make(tide.dir)
    assert_runs_with_one_line(tide(*RAN), "not as a job", str(tide.dir), word)
    assert tide.daemon() is None
    assert_error(tide("ps"), 5, "tide: ps: no daemon runs", "'tide run' cannot start one: ", word)
    rows = {row["name"]: row for row in json.loads(tide("doctor", "--json").stdout)["checks"]}
    assert rows["directory"]["level"] == "problem" and word in rows["directory"]["text"]
    assert rows["daemon"]["level"] == "problem"


def test_a_directory_that_cannot_be_made_is_named_by_all(tide):
    env = {"TIDE_DIR": str(tide.dir / "a" / "b")}
    assert_runs_with_one_line(tide(*RAN, env=env), "not as a job", "cannot make the directory")
    assert_error(tide("ps", env=env), 5, "tide: ps: no daemon runs", "cannot make the directory")
    assert "problem directory   cannot make the directory" in tide("doctor", env=env).stdout


def test_runs_when_the_directory_has_too_long_a_name(tide):
    assert_runs_with_one_line(tide(*RAN, env={"TIDE_DIR": "/tmp/" + "x" * 100}), "not as a job")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_runs_when_the_directory_cannot_be_written(tide, public_dir):
    done = tide(*RAN, env={"TIDE_DIR": public_dir / "run"}, user=65534, group=65534, extra_groups=[],
                cwd="/")
    assert_runs_with_one_line(done, "not as a job")


class Older(http.server.BaseHTTPRequestHandler):
    """The daemon of a version without these attributes; it refuses what it does not know, and names one of them."""
    without, asked = ("slo", "class"), []

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(body)
        unknown = [key for key in self.without if key in body]
        answer = ({"error": {"code": "bad-request", "message": f"unknown field '{unknown[0]}'", "hint": "See docs/http-api.md."}}
                  if unknown else {"id": "j1", "name": "a", "token": "0" * 32, "socket": "/nowhere", "note": None})
        self.send_response(400 if unknown else 201)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())
        self.close_connection = True

    def address_string(self):
        return "tide"

    def log_message(self, *_):
        pass


@pytest.mark.parametrize("name", [(), ("--name", "a")], ids=["no name", "name"])
def test_what_an_older_daemon_does_not_know_is_left_out(tide, name):
    """The program is a job with all the rest that was asked for."""
    tide.dir.mkdir()
    Older.asked.clear()
    with socketserver.ThreadingUnixStreamServer(str(tide.dir / "api.sock"), Older) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = tide("run", *name, "--slo", "p99=50ms", "--class", "3", "--weight", "50", *RAN[1:])
        server.shutdown()
    lines = done.stderr.splitlines()
    assert (done.returncode, done.stdout, len(lines)) == (7, "ran\n", 2), done.stderr
    for option, line in zip(("--slo", "--class"), lines):
        assert line.startswith(f"tide: run: the program is a job without {option}: the daemon is of an earlier version")
    assert Older.asked[-1]["weight"] == 50 and not set(Older.without) & Older.asked[-1].keys()


def test_runs_beside_a_daemon_that_was_stopped(tide):
    tide.start("run", "--name", "a", "--", "sleep", "600")
    tide.wait(lambda: tide("ps").returncode == 0 and tide.jobs())
    os.kill(tide.daemon(), signal.SIGSTOP)
    assert_runs_with_one_line(tide(*RAN), "not as a job", "does not answer")


def test_a_killed_daemon_is_replaced(tide):
    tide.start("run", "--name", "a", "--", "sleep", "600")
    tide.wait(lambda: tide("ps").returncode == 0 and tide.jobs())
    # A job without agent is found again by its record, which is written when there is time.
    tide.wait(lambda: list((tide.dir / "jobs").glob("*.json")))
    first = tide.daemon()
    os.kill(first, signal.SIGKILL)
    tide.wait(lambda: tide("ps").returncode == 5)
    tide.start("run", "--name", "b", "--", "sleep", "600")
    tide.wait(lambda: tide("ps").returncode == 0 and len(tide.jobs()) == 2)
    assert tide.daemon() != first


def test_many_runs_at_once_share_one_daemon(tide):
    for i in range(20):
        tide.start("run", "--name", f"n{i}", "--", "sleep", "600")
    tide.wait(lambda: tide("ps").returncode == 0 and len(tide.jobs()) == 20)
    assert (tide.dir / "tided.log").read_text().count("version") == 1
