# SPDX-License-Identifier: Apache-2.0
"""`tide` without a daemon: help, wrong command lines, what it says when nobody answers."""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import threading

import pytest

from cli_tools import BUILD, GUARD_S, assert_error, filled_in, tide  # noqa: F401
from conftest import ROOT

COMMANDS = ["run", "adopt", "memory", "pin", "unpin", "submit", "queue", "cancel", "hold", "release", "ps", "set", "top",
            "dashboard", "report",
            "explain", "history", "energy", "events", "policy", "sim", "record", "signal", "doctor", "why", "version",
            "help"]


def test_overview_lists_every_command(tide):
    done = tide("--help")
    assert done.returncode == 0
    assert done.stdout == tide("help").stdout
    for command in COMMANDS:
        assert f"\n  {command} " in done.stdout
    alone = tide()
    assert (alone.returncode, alone.stdout) == (2, done.stdout)


def test_every_commands_start_is_without_the_screens_libraries():
    """They alone cost nearly as much as the rest of a start: `tide top` is a program of its own."""
    dynamic = {name: subprocess.check_output(["readelf", "-d", BUILD / name], text=True) for name in ("tide", "tide-top")}
    curses = re.compile(r"NEEDED\).*\[lib(ncurses|tinfo)")
    assert curses.search(dynamic["tide-top"])
    assert not curses.search(dynamic["tide"])


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_examples(tide, command):
    done = tide(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: tide {command}")
    assert "Example" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert tide("help", command).stdout == done.stdout


def options_of(text):
    return set(re.findall(r"(?<![\w-])--?[a-z]+(?:-[a-z]+)*\b", text)) - {"--help"}


# Programs of their own, and their commands; tide-slurm, which Slurm's plugin runs, has no options.
PROGRAMS = {"tide-kube.8.scd": ("inject",), "tide-pods.8.scd": (), "tide-tfnode.1.scd": (), "tide-power.8.scd": ("enrol", "broker"), "tide-gate.8.scd": (),
            "tide-hub.8.scd": ("policy", "token", "unit", "broker", "serve", "energy", "user", "audit")}


@pytest.mark.parametrize("page", [page for page in sorted(ROOT.glob("man/tide-*.scd"))
                                  if page.name not in (*PROGRAMS, "tide-power.conf.5.scd", "tide-hub.conf.5.scd",
                                                       "tide-slurm.8.scd")],
                         ids=lambda p: p.name)
def test_help_manual_and_completions_have_the_same_options(tide, page):
    command = page.name.split(".")[0].removeprefix("tide-")
    lines = tide("help", command).stdout.splitlines()
    lines = lines[:1] + [line for line in lines if re.match(r" +-", line)]
    told = options_of(re.sub("'.*?'", "", "\n".join(lines)))  # quoted are other commands
    manual = options_of("\n".join(re.findall(r"^\*-.*", filled_in(page.read_text()), re.M)))
    assert manual == told
    for name in ("_tide.in", "tide.bash.in"):
        completions = options_of(filled_in((ROOT / "completions" / name).read_text()))
        assert {option for option in told if option.startswith("--")} <= completions


@pytest.mark.parametrize("page", PROGRAMS)
def test_programs_of_their_own_and_their_manuals_have_the_same_options(build_dir, page):
    program = build_dir / page.split(".")[0]
    text = ""
    for command in ((), *((word,) for word in PROGRAMS[page])):
        done = subprocess.run([program, *command, "--help"], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        text += done.stdout
    option = r"(?<![\w-])--[a-z][a-z-]*[a-z]"
    told = set(re.findall(option, "\n".join(
        line for line in text.splitlines() if re.match(r" +-", line)))) - {"--help", "--version"}
    manual = re.findall(r"^\*-.*", (ROOT / "man" / page).read_text(), re.M)
    assert set(re.findall(option, "\n".join(manual))) - {"--help", "--version"} == told


@pytest.mark.parametrize("word, meant", [
    ("sett", "set"), ("polcy", "policy"), ("eplxain", None), ("stpo", None), ("frobnicate", None),
])
def test_unknown_command_is_told_what_may_be_meant(tide, word, meant):
    done = tide(word)
    assert_error(done, 2, f"tide: there is no command '{word}'")
    assert (f"did you mean '{meant}'?" in done.stderr) == (meant is not None)
    assert_error(tide("help", word), 2, f"tide: there is no command '{word}'")


@pytest.mark.parametrize("options, words", [
    (["--min", "4", "--max", "2"], ["--min 4", "--max 2"]),
    (["--threads", "4", "--max", "2"], ["--threads 4", "--max 2"]),
    (["--threads", "1", "--min", "2"], ["--threads 1", "--min 2"]),
    (["--threads", "0"], ["run: --threads: 0 is outside 1 … 4096\n"]),
    (["--threads", "-1"], ["--threads: -1 is outside"]),
    (["--threads=1000000000"], ["--threads: 1000000000 is outside"]),
    (["--threads", "99999999999999999999999"], ["is outside 1 … 4096"]),
    (["--threads", "abc"], ["--threads: 'abc' is no whole number (1 … 4096)"]),
    (["--threads", "2x"], ["--threads: '2x'"]),
    (["--threads", "-"], ["--threads: '-'"]),
    (["--threads", ""], ["--threads: ''"]),
    (["--threads", " 2"], ["--threads: ' 2'"]),
    (["--min", "0"], ["--min: 0 is outside"]),
    (["--max", "4097"], ["--max: 4097 is outside"]),
    (["--weight", "0"], ["--weight: 0 is outside 1 … 10000"]),
    (["--weight", "10001"], ["--weight: 10001 is outside"]),
    (["--placement", "anywhere"], ["--placement: 'anywhere'", "shared, exclusive and quota"]),
    (["--priority", "1001"], ["--priority: 1001 is outside -1000 … 1000"]),
    (["--priority", "-1001"], ["--priority: -1001 is outside"]),
    (["--priority", "--5"], ["--priority: '--5' is no whole number"]),
    (["--class", "-1"], ["--class: -1 is outside"]),
    (["--request", "0"], ["--request: 0 is outside"]),
    (["--deadline", "90"], ["--deadline: '90' is no time", "18:30"]),
    (["--deadline", "0s"], ["--deadline: '0s'"]),
    (["--deadline", "24:00"], ["--deadline: '24:00'"]),
    (["--name", "a/b"], ["--name: 'a/b'"]),
    (["--name", ""], ["''"]),
    (["--name", "n" * 64], ["63"]),
    (["--name", "ü"], ["'ü'"]),
    (["--name", "--"], ["'--'"]),
    (["--bogus"], ["--bogus"]),
    (["-x"], ["'-x'"]),
], ids=" ".join)
def test_run_refuses_nonsense_without_running(tide, tmp_path, options, words):
    done = tide("run", *options, "--", "touch", tmp_path / "ran")
    assert_error(done, 2, "tide: run: ", *words, "tide help run")
    assert not (tmp_path / "ran").exists()
    assert tide.daemon() is None


@pytest.mark.parametrize("args", [["run"], ["run", "--"], ["run", "--name"], ["run", ""],
                                  ["set"], ["set", "a", "b", "--auto"], ["set", "a"],
                                  ["set", "a", "--threads"], ["set", "a", "--auto=1"],
                                  ["set", "a", "--intra", "2"],
                                  ["set", "a", "--threads", "2", "--auto"],
                                  ["set", "a", "--threads", "2", "--intra", "2"],
                                  ["set", "a", "--min", "3", "--max", "2"],
                                  ["set", "", "--auto"],
                                  ["explain"], ["signal", "a"], ["signal", "a", "0"],
                                  ["signal", "a", "b"], ["ps", "a"], ["ps", "-jq"], ["policy", "a", "b"],
                                  ["policy", "set"], ["policy", "show", "a", "b"],
                                  ["set", "a", "--deadline", "100"], ["set", "a", "--class"],
                                  ["history", "a", "b"], ["history", ""], ["history", "-n", "0"],
                                  ["history", "--since", "soon"], ["events", "--since", "1"],
                                  ["events", "--type", "job-eaten"], ["events", "--type", ""],
                                  ["top", "a"], ["version", "a"]], ids=" ".join)
def test_wrong_command_lines_exit_2_and_point_to_the_help(tide, args):
    assert_error(tide(*args), 2, f"tide: {args[0]}: ", f"tide help {args[0]}")


@pytest.mark.parametrize("value", ["0", "-1", "1000000000", "abc", "1.5", ""])
@pytest.mark.parametrize("option", ["--threads", "--min", "--max", "--weight", "--wait"])
def test_set_refuses_what_is_no_number(tide, option, value):
    assert_error(tide("set", "a", option, value), 2, f"tide: set: {option}: ", f"{value}")


@pytest.mark.parametrize("args", [["ps"], ["ps", "--json"], ["set", "a", "--threads", "2"],
                                  ["explain", "a"], ["policy", "show"], ["top"],
                                  ["history"], ["history", "a"], ["events"], ["events", "-f"],
                                  ["signal", "a", "2"]], ids=" ".join)
def test_without_a_daemon_exit_5_and_what_to_do(tide, args):
    assert_error(tide(*args), 5, f"tide: {args[0]}: no daemon runs", str(tide.dir), "tide run --")
    assert tide.daemon() is None


def test_version_needs_no_daemon(tide):
    done = tide("version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == tide("--version").stdout
    assert done.stdout.startswith("tide ")


def test_output_is_ascii_where_the_locale_is(tide):
    done = tide("set", "a", "--threads", "x", env={"LC_ALL": "C"})
    assert "(1 ... 4096)" in done.stderr
    assert done.stderr.isascii()
    assert tide("help", "run", env={"LC_ALL": "C"}).stdout.isascii()


def test_full_disk_is_no_success(tide):
    with open("/dev/full", "w") as full:
        done = tide("help", stdout=full)
    assert done.returncode == 1
    assert "No space left" in done.stderr


@pytest.fixture
def server(tide):
    """server(answer): a daemon gone mad, which says `answer` (None: nothing) to whoever asks."""
    tide.dir.mkdir(mode=0o700)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tide.dir / "api.sock"))
    listener.listen(8)
    threads = []

    def serve(answer):
        def loop():
            kept = []
            while True:
                try:
                    peer = listener.accept()[0]
                except OSError:
                    return
                if answer is None:
                    kept.append(peer)
                else:
                    peer.recv(65536)
                    peer.sendall(answer)
                    peer.close()
        threads.append(threading.Thread(target=loop))
        threads[0].start()

    yield serve
    listener.shutdown(socket.SHUT_RDWR)
    for thread in threads:
        thread.join(GUARD_S)
    listener.close()


def test_daemon_that_does_not_answer_is_not_waited_for_forever(tide, server):
    server(None)
    assert_error(tide("set", "a", "--threads", "2", "--wait", "10"), 5, "tide: set: ",
                 "does not answer", "tided.log")


def test_run_goes_on_without_a_daemon_that_does_not_answer(tide, server):
    server(None)
    done = tide("run", "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert len(done.stderr.splitlines()) == 1
    assert "does not answer" in done.stderr


@pytest.mark.parametrize("answer", [
    b"", b"hello\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{{{",
    b"HTTP/1.1 200 OK\r\nContent-Length: 300\r\n\r\n[]",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\xff\xfe",
    b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"])
def test_unreadable_answers_are_an_error_not_a_crash(tide, server, answer):
    server(answer)
    for args in (["ps"], ["ps", "--json"], ["explain", "a"], ["policy"], ["signal", "a", "2"],
                 ["set", "a", "--auto"], ["top"], ["history"], ["events"], ["events", "-f"]):
        done = tide(*args)
        assert done.returncode in (1, 5), (args, done)
        assert done.stderr.startswith(f"tide: {args[0]}: ")
    done = tide("run", "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (0, "ran\n")


@pytest.mark.parametrize("body", [b"null", b"{}", b"[]", b"[null,3,{}]", b'"x"',
                                  b'[{"id":3,"pids":"x","backends":[1],"progress":[]}]'])
def test_answers_of_another_shape_are_survived(tide, server, body):
    server(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    for args in (["ps"], ["ps", "-q"], ["explain", "a"], ["policy"], ["set", "a", "--auto"],
                 ["signal", "a", "2"], ["top"], ["version"], ["history"], ["history", "a"],
                 ["history", "--json"], ["events"]):
        assert tide(*args).returncode in (0, 3, 5), args


def test_names_cannot_steer_the_terminal(tide, server):
    body = rb'[{"id":"j1","name":"\u001b[31mred\u009b","reason":"a\u0007b","owner":"\u007f"}]'
    server(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    for args in (["ps"], ["ps", "--json"], ["ps", "--names"], ["top"], ["history"],
                 ["history", "a"]):
        out = tide(*args).stdout
        assert "[31mred" in out
        assert all(c == "\n" or ord(c) >= 32 and not 127 <= ord(c) < 160 for c in out)


def test_events_cannot_steer_the_terminal(tide, server):
    server(b"HTTP/1.0 200 OK\r\n\r\nretry: 1000\n\nid: 1.1\nevent: job-added\ndata: "
           b'{"id":"j1","name":"\\u001b[31mred\\u009b","reason":"a\\u0007b"}\n\nevent: job-ended\n'
           b'data: [1]\n\nevent: job-ended\ndata: {half\n\n:\n\ndata: {"id":"j1"}\n\nevent: job-ended\n'
           b'data: {"id":"j2"}')
    done = tide("events")
    assert done.stderr == "" and done.returncode == 0
    line, = done.stdout.splitlines()  # the rest is none, unknown or cut off
    assert "j1 ?[31mred??: : a?b" in line


# ---- tide signal ----

@pytest.fixture
def queued(compiled):
    program = compiled("cli/queued.c")
    started = []

    def start(offset, **env):
        process = subprocess.Popen([program, str(offset)], stdout=subprocess.PIPE, text=True,
                                   env={**os.environ, **env})
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process
    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def test_signal_queues_the_number_of_threads(tide, queued):
    process = queued(7)
    done = tide("signal", process.pid, 3)
    assert (done.returncode, done.stderr) == (0, "")
    assert process.stdout.readline() == "3\n"
    tide("signal", process.pid, 4096)
    assert process.stdout.readline() == "4096\n"


def test_signal_takes_the_offset_from_the_process(tide, queued):
    process = queued(9, TIDE_SIGNAL="9")
    assert tide("signal", process.pid, 2).returncode == 0
    assert process.stdout.readline() == "2\n"


@pytest.mark.parametrize("offset", ["0", "-3", "9999", "x"])
def test_signal_that_is_switched_off_is_not_sent(tide, queued, offset):
    process = queued(7, TIDE_SIGNAL=offset)
    assert_error(tide("signal", process.pid, 2), 3, "tide: signal: no signal sent")
    assert process.poll() is None


def test_signal_spares_a_process_without_handler(tide):
    process = subprocess.Popen(["sleep", "600"])
    try:
        done = tide("signal", process.pid, 2)
        assert_error(done, 3, "tide: signal: no signal sent", "no handler")
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def test_signal_says_that_there_is_no_such_process(tide):
    highest = int(pathlib.Path("/proc/sys/kernel/pid_max").read_text())
    assert_error(tide("signal", highest - 1, 2), 3, "tide: signal: there is no process")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_signal_to_somebody_elses_process_is_denied(tide, queued):
    process = queued(7)
    done = tide("signal", process.pid, 2, user=65534, group=65534, extra_groups=[])
    assert_error(done, 4, "tide: signal: ")
    os.kill(process.pid, signal.SIGKILL)
    assert process.stdout.read() == ""


def test_policies_are_listed_and_explained_without_a_daemon(tide):
    listed = tide("policy", "list")
    assert (listed.returncode, listed.stderr) == (0, "")
    names = [line.split()[0] for line in listed.stdout.split("\n\n")[0].splitlines()]
    assert {"equal", "fcfs", "power-cap"} <= set(names) and "*" not in listed.stdout
    assert "no policy is in force" in listed.stdout
    assert "(default 0)" in tide("policy", "show", "priority").stdout
    without = json.loads(tide("policy", "--json").stdout)
    assert (without["name"], without["policy"]) == (None, None)
    assert tide.daemon() is None
    tide.start_pool("job")
    tide("policy", "set", "equal")
    with_one = json.loads(tide("policy", "--json").stdout)
    for policy in with_one["policies"]:
        for param in policy["params"]:
            param["value"] = param["default"]
    assert with_one["policies"] == without["policies"]


def test_a_policy_may_be_chosen_before_the_first_job(tide):
    assert tide("policy", "set", "fcfs/max-prop").stdout == "In force: fcfs/max-prop\n"
    tide.wait(lambda: tide.daemon() is None)  # it has no job
    tide.start_pool("job")
    assert "In force: fcfs/max-prop" in tide("policy").stdout
    assert_error(tide("policy", "set", "fcfs", env={"TIDE_DIR": "/nonexistent/run"}), 5, "tide: policy: ")


def test_the_same_note_of_many_jobs_takes_one_line(tide):
    for _ in range(5):
        tide.start("run", "--", "sleep", "600")
    tide.wait(lambda: tide("ps").returncode == 0)
    tide.wait(lambda: len(tide.jobs()) == 5 and all(job["note"] for job in tide.jobs()))
    notes = [line for line in tide("ps").stdout.splitlines() if line.startswith("note: j")]
    assert len(notes) == 1 and re.match(r"note: j\d+ and 4 more: \w", notes[0]), notes


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_a_listener_of_another_user_is_not_talked_to(tide, public_dir):
    """Anybody can make /tmp/tide-UID before its user does."""
    nobody, victim = 65534, 65533
    folder = public_dir / "tide"
    folder.mkdir()
    script = ("import os, socket, sys; os.setuid(%d); s = socket.socket(socket.AF_UNIX);"
              "s.bind(sys.argv[1]); os.chmod(sys.argv[1], 0o777); s.listen(); print('ready', flush=True);"
              "c = s.accept()[0]; print(len(c.recv(1000)), flush=True)" % nobody)
    folder.chmod(0o777)
    with subprocess.Popen(["python3", "-c", script, folder / "api.sock"], text=True,
                          stdout=subprocess.PIPE) as listener:
        assert listener.stdout.readline() == "ready\n"
        env = {"TIDE_DIR": "", "XDG_RUNTIME_DIR": str(public_dir)}
        who = {"user": victim, "group": victim, "extra_groups": [], "cwd": "/", "env": env}
        done = tide("ps", **who)
        assert_error(done, 4, "tide: ps: ", str(folder / "api.sock"), "another user", "TIDE_DIR")
        assert listener.stdout.readline() == "0\n"  # it was told nothing
    done = tide("run", "echo", "ran", **who)
    assert (done.returncode, done.stdout) == (0, "ran\n")


def offered(program, *words):
    """Returns bash's offers for the last of the words."""
    script = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); ${1/#*/_${1//-/_}}; '
              'printf "%s\n" "${COMPREPLY[@]}"')
    return subprocess.run(["bash", "-c", script, "bash", BUILD / "completions" / program, program, *words], text=True,
                          capture_output=True, check=True, timeout=GUARD_S).stdout.split()


@pytest.mark.parametrize("program", ["tide-hub", "tide-power"])
def test_completions_of_hub_and_unit_are_good_for_their_shells_and_have_every_option(program):
    if not (BUILD / program).exists():
        pytest.skip(f"built without {program}")
    for shell, name in (("bash", program), ("zsh", f"_{program}"), ("fish", f"{program}.fish")):
        if shutil.which(shell):
            subprocess.run([shell, "-n", BUILD / "completions" / name], check=True, timeout=GUARD_S)
    commands = [word for word in offered(program, "") if not word.startswith("-")]
    assert commands if program == "tide-hub" else sorted(commands) == ["broker", "enrol"]
    for words in ([], *([command] for command in commands)):
        said = subprocess.run([BUILD / program, *words, "--help"], text=True, capture_output=True, check=True).stdout
        named = set(re.findall(r"(?m)^  (--[a-z][\w-]*)", said)) | {"--help"}
        assert named <= set(offered(program, *words, "--")), words
        for name in (f"_{program}", f"{program}.fish"):
            text = (BUILD / "completions" / name).read_text()
            assert all(re.search(rf"(--|-l ){option[2:]}\b", text) for option in named), (name, words)


def test_completions_of_the_hub_know_verbs_roles_and_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "new.yaml").touch()
    assert offered("tide-hub", "user", "") == ["add", "passwd", "role", "remove", "token", "list"]
    assert offered("tide-hub", "unit", "r") == ["revoke"]
    assert offered("tide-hub", "user", "add", "ada", "--role", "o") == ["operator"]
    assert offered("tide-hub", "policy", "check", "n") == offered("tide-hub", "serve", "--policy", "") == ["new.yaml"]
    assert offered("tide-hub", "token", "--for", "") == []
