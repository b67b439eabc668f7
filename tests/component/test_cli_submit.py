# SPDX-License-Identifier: Apache-2.0
"""`tide submit`, `queue`, `cancel`, `hold`, `release` with the real daemon: who waits is a process of
the submitter, which neither terminal nor daemon takes its place from."""
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import time

import pytest

from cli_tools import GUARD_S, Queue, assert_error, tide  # noqa: F401

NOBODY = 65534
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")


@pytest.fixture
def place(tide):
    result = Queue(tide)
    yield result
    result.end()


@pytest.fixture
def queue(place):
    return place.start()


# ---- submitting ----

def test_jobs_begin_in_their_order(queue):
    blocker = queue.submit("--request", 6, "--", "sleep", 600)
    second = queue.submit("--request", 4, "--", "sh", "-c", "echo begun; exec sleep 600")
    third = queue.submit("--request", 2, "--", "sh", "-c", "echo begun; exec sleep 600")
    assert [blocker, second, third] == ["j1", "j2", "j3"]
    queue.waits_for(second, "queued")
    queue.waits_for(third, "queued")  # it would fit, and does not pass the second
    assert queue.output(second) + queue.output(third) == ""
    assert queue.tide("cancel", blocker).stdout == "j1 sleep: ended\n"
    queue.begun(second)
    queue.begun(third)
    assert queue.waiting() == []


def test_says_which_job_it_is_and_where_its_output_goes(queue):
    (queue.work / "tide-j1.out").write_text("before\n")
    done = queue.tide("submit", "--", "sh", "-c", "echo out; echo err >&2", cwd=queue.work)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "Submitted job j1 (sh), output in tide-j1.out\n"
    queue.tide.wait(lambda: queue.output("j1") == "before\nout\nerr\n")


@pytest.mark.parametrize("fault, words, cure", [
    ("store-open:1+:ENOSPC", "No space left on device", "Make room there"),
    ("store-write:1+:ENOSPC", "No space left on device", "Make room there"),
    ("store-open:1+:EROFS", "Read-only file system", "Make that disk writable"),
    ("store-rename:1+:EIO", "Input/output error", "Make room there")])
def test_a_job_that_cannot_be_written_down_is_not_in_the_queue(place, fault, words, cure):
    place.tide.env["TIDE_FAILPOINT"] = fault
    queue = place.start()
    for option in ("--hold", "-q"):
        done = queue.tide("submit", option, "--", "sh", "-c", "echo ran", cwd=queue.work)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"the job was not queued: it cannot be written to {queue.tide.dir}: {words}" in done.stderr
        assert f"{cure}, then submit it again." in done.stderr
    assert queue.tide.jobs() == queue.waiting() == []
    assert list(queue.work.iterdir()) == []  # it has not run, and there is no output file of it
    assert queue.tide("run", "--", "true").returncode == 0  # what runs at once needs no record


def test_a_daemon_whose_disk_has_room_again_takes_jobs(queue):
    jobs = queue.tide.dir / "jobs"
    jobs.rmdir() if jobs.exists() else None
    jobs.write_text("not a folder")
    assert queue.tide("submit", "--", "true", cwd=queue.work).returncode == 1
    jobs.unlink()
    job = queue.submit("--hold", "--", "true")
    assert queue.job(job)["state"] == "held"
    assert (jobs / f"{job}.json").exists()
    assert "cannot be written" not in queue.tide("ps").stdout


def test_output_is_named_after_the_job(queue):
    queue.submit("--name", "cnn", "--output", "%x-%j-%%-%y.log", "--", "echo", "ran")
    file = queue.work / "cnn-j1-%-%y.log"
    queue.tide.wait(lambda: file.exists() and file.read_text() == "ran\n")


def test_options_reach_the_job(queue):
    queue.submit("--hold", "--name", "a", "--min", 2, "--max", 6, "--weight", 300, "--priority", 5,
                 "--class", 2, "--request", 3, "--placement", "exclusive", "--deadline", "2h", "--",
                 "true")
    job = queue.job("a")
    assert [job[key] for key in ("min", "limit", "weight", "priority", "class", "request",
                                 "placement", "state", "submitted")] == \
        [2, 6, 300, 5, 2, 3, "exclusive", "held", True]
    assert 7000 < job["deadline"] - time.time() < 7300


ASK = """echo "$PWD|$WORD|$(umask)|$(ulimit -n)|$(id -u)|$(id -G)|$TIDE_JOB_ID|$$|$(ps -o tty= -p $$)"
readlink /proc/$$/fd/0; echo ${LD_PRELOAD##*/}; set -- /proc/$$/fd/*; echo $#"""  # one of these is that directory


@pytest.mark.parametrize("uid", [os.geteuid(), pytest.param(NOBODY, marks=ROOT_ONLY)])
def test_the_program_has_what_the_submitter_had(queue, uid):
    other = {"user": uid, "group": uid, "extra_groups": [7, 9]} if uid != os.geteuid() else {}
    command = f"umask 027; ulimit -n 77; exec {queue.tide.program} submit -q --hold -- sh -c '{ASK}'"
    done = subprocess.run(["sh", "-c", command], env={**queue.tide.env, "WORD": "a b"}, text=True,
                          cwd=queue.work, capture_output=True, timeout=GUARD_S, **other)
    assert (done.returncode, done.stderr) == (0, "")
    job = queue.job(done.stdout.strip())
    status = pathlib.Path(f"/proc/{job['pids'][0]}/status").read_text()
    assert f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n" in status  # who waits is the submitter's own
    assert queue.tide("release", job["id"]).stdout == f"{job['id']} sh: released\n"
    queue.tide.wait(lambda: len(queue.output(job["id"]).splitlines()) == 4)
    groups = "65534 7 9" if other else " ".join(map(str, dict.fromkeys([os.getgid(),
                                                                          *os.getgroups()])))
    lines = queue.output(job["id"]).splitlines()
    assert lines[0] == (f"{queue.work}|a b|0027|77|{uid}|{groups}|{job['id']}|{job['pids'][0]}|?")
    assert lines[1:] == ["/dev/null", "libtide-agent.so", "4"]
    file = (queue.work / f"tide-{job['id']}.out").stat()
    assert (file.st_uid, file.st_mode & 0o777) == (uid, 0o640)


def test_who_waits_holds_nothing_open(queue):
    reader, writer = os.pipe()
    queue.submit("--hold", "--name", "a", "--", "true", pass_fds=[writer])
    os.close(writer)
    assert os.read(reader, 1) == b""  # whoever waits for the end of a pipeline gets it
    os.close(reader)
    links = pathlib.Path(f"/proc/{queue.job('a')['pids'][0]}/fd").iterdir()
    assert sorted(os.readlink(link).split(":")[0] for link in links) == \
        ["/dev/null", str(queue.work / "tide-j1.out"), str(queue.work / "tide-j1.out"), "socket"]


def test_the_terminal_may_be_closed(queue):
    queue.block()
    pid, master = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever nohup we may run under
        os.chdir(queue.work)
        os.execve("/bin/sh", ["sh", "-c", f"{queue.tide.program} submit --request 8 -- "
                              "sh -c 'echo begun; exec sleep 600'; sleep 600"], queue.tide.env)
    os.read(master, 1000)  # the submitter's word
    queue.waits_for("j2", "queued")
    os.close(master)  # the shell gets SIGHUP
    os.waitpid(pid, 0)
    assert queue.job("j2")["state"] == "queued"
    queue.tide("cancel", "blocker")
    queue.begun("j2")


@pytest.mark.parametrize("options", [["--priority", "1001"], ["--bogus"], ["--output", ""],
                                     ["--output"], ["--min", "3", "--max", "2"], ["--name", "a/b"]])
def test_nonsense_is_refused_without_a_daemon(tide, options):
    done = tide("submit", *options, *(["--", "true"] if options[-1] != "--output" else []))
    assert_error(done, 2, "tide: submit: ", "tide help submit")
    assert tide.daemon() is None


def test_the_program_is_looked_for_before_it_is_queued(queue, tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("no program")
    for name, status in ((tmp_path / "none", 127), ("no-such-program", 127), (plain, 126),
                         (tmp_path, 126)):
        done = queue.tide("submit", "--", name)
        assert (done.returncode, done.stdout) == (status, "")
        assert done.stderr.startswith(f"tide: submit: {name}: ")
    assert queue.tide("submit", "--", "plain", env={"PATH": f"{tmp_path}:/bin"}).returncode == 126
    assert queue.tide("submit", "--", "sh", "-c", ":", cwd=queue.work,
                      env={"PATH": f"{tmp_path}:/bin"}).returncode == 0


def test_a_program_that_is_gone_when_its_turn_comes(queue, tmp_path):
    program = tmp_path / "late"
    program.symlink_to("/bin/true")
    job = queue.submit("--hold", "--", program)
    program.unlink()
    queue.tide("release", job)
    queue.tide.wait(lambda: f"tide: submit: {program}: No such file" in queue.output(job))


def test_a_taken_name_is_refused(queue):
    queue.submit("--hold", "--name", "a", "--", "true")
    assert_error(queue.tide("submit", "--name", "a", "--", "true", cwd=queue.work), 2,
                 "tide: submit: ", "'a'")
    assert len(queue.tide.jobs()) == 1


def make_link(path):
    path.symlink_to("/dev/null")


def make_others(path):
    path.write_text("")
    os.chown(path, NOBODY, NOBODY)


@pytest.mark.parametrize("make, words", [
    (make_link, "is a symbolic link"),
    (lambda path: path.mkdir(), "Is a directory"),
    pytest.param(make_others, "belongs to another user", marks=ROOT_ONLY),
])
@pytest.mark.parametrize("options", [[], ["--output", "tide-j1.out"]], ids=["std", "given"])
def test_output_goes_where_nobody_else_sent_it(queue, make, words, options):
    make(queue.work / "tide-j1.out")
    done = queue.tide("submit", *options, "--", "sh", "-c", "echo ran", cwd=queue.work)
    assert_error(done, 1, "tide: submit: cannot write the output: tide-j1.out", words, "--output")
    queue.tide.wait(lambda: queue.tide.jobs() == [])


@pytest.mark.parametrize("output, words", [
    ("none/x.out", "none/x.out: No such file or directory"), ("x" * 300, "xx: File name too long"),
    ("%j" * 2500, "too long"), ("/proc/x", "/proc/x: "),
])
def test_an_output_that_cannot_be_made_is_an_error(queue, output, words):
    done = queue.tide("submit", "--output", output, "--", "true", cwd=queue.work)
    assert_error(done, 1, "tide: submit: cannot write the output: ", words)
    queue.tide.wait(lambda: queue.tide.jobs() == [])


@ROOT_ONLY
def test_a_directory_that_may_not_be_written_is_an_error(queue):
    done = queue.tide("submit", "--", "true", cwd="/", user=NOBODY, group=NOBODY, extra_groups=[])
    assert_error(done, 1, "tide: submit: cannot write the output: tide-j1.out: Permission denied")


def test_a_full_disk_does_not_stop_the_program(queue):
    done = queue.tide("submit", "--wait", "--output", "/dev/full", "--", "sh", "-c",
                      "echo lost; exit 7", cwd=queue.work)
    assert done.returncode == 7


# ---- --wait ----

@pytest.mark.parametrize("script, status, words", [
    ("exit 7", 7, None), ("exit 0", 0, None),
    ("kill -KILL $$", 137, "tide: submit: j1 was ended by signal 9 (Killed)"),
])
def test_wait_ends_as_the_program_does(queue, script, status, words):
    done = queue.tide("submit", "--wait", "--", "sh", "-c", script, cwd=queue.work)
    assert done.returncode == status
    assert done.stdout == "Submitted job j1 (sh), output in tide-j1.out\n"
    assert done.stderr == (words + "\n" if words else "")


def test_wait_ends_when_the_job_is_cancelled_in_the_queue(queue):
    queue.block()
    process = queue.tide.start("submit", "--wait", "--request", 8, "--", "true", cwd=queue.work,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    queue.waits_for("j2", "queued")
    queue.tide("cancel", "j2")
    assert process.wait(GUARD_S) == 128 + signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_who_interrupts_the_wait_leaves_the_job_alone(queue, number):
    queue.block()
    process = queue.tide.start("submit", "-w", "--request", 8, "--", "sh", "-c",
                               "echo begun; sleep 600", cwd=queue.work, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    assert process.stdout.readline().startswith("Submitted job j2")
    process.send_signal(number)
    expected = -number if number == signal.SIGKILL else 128 + number
    assert process.wait(GUARD_S) == expected
    if number != signal.SIGKILL:
        assert process.stderr.read() == "tide: submit: j2 goes on; 'tide cancel j2' ends it\n"
    process.stderr.close()
    queue.waits_for("j2", "queued")
    queue.tide("cancel", "blocker")
    queue.begun("j2")


def test_a_wait_under_nohup_stays(queue):
    process = queue.tide.start("submit", "-w", "--hold", "--", "true", cwd=queue.work,
                               stdout=subprocess.PIPE,
                               preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    process.stdout.readline()
    process.send_signal(signal.SIGHUP)
    queue.tide("release", "j1")
    assert process.wait(GUARD_S) == 0


# ---- cancel, hold, release ----

def test_cancelled_before_its_turn(queue):
    queue.block()
    first, second = queue.waiter(), queue.waiter("--hold")
    pid = queue.job(first)["pids"][0]
    done = queue.tide("cancel", first, second)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"j2 sh: cancelled before it began\nj3 sh-\d+: cancelled before it began\n",
                        done.stdout)
    queue.tide.wait(lambda: not os.path.exists(f"/proc/{pid}"))
    assert queue.output(first) == "tide: submit: job j2 (sh) was cancelled while it waited\n"
    assert queue.waiting() == []


def test_cancel_says_who_does_not_end(queue):
    deaf = queue.submit("--", "sh", "-c", "trap '' TERM; echo begun; while :; do sleep 1; done")
    queue.begun(deaf)
    done = queue.tide("cancel", deaf)
    assert_error(done, 6, "tide: cancel: j1 sh: ", "still runs")


def test_cancel_ends_what_a_script_has_started(queue):
    job = queue.submit("--", "sh", "-c", "sleep 600 & echo $!; sleep 601; echo went on")
    queue.tide.wait(lambda: queue.output(job).endswith("\n"))
    child = pathlib.Path(f"/proc/{queue.output(job).strip()}")
    assert queue.tide("cancel", job).returncode == 0
    queue.tide.wait(lambda: not child.exists() or ") Z " in (child / "stat").read_text())
    assert "went on" not in queue.output(job)


def test_cancel_tries_each(queue):
    job = queue.submit("--hold", "--", "true")
    done = queue.tide("cancel", "nobody", job, "j99")
    assert done.returncode == 3
    assert done.stdout == "j1 true: cancelled before it began\n"
    assert done.stderr.count("\nSee 'tide why no-such-job'.\n") == 2
    assert len(done.stderr.splitlines()) == 6


def test_cancel_all_spares_what_was_not_submitted(queue):
    queue.tide.start("run", "--name", "front", "--", "sleep", "600")
    queue.tide.wait(lambda: queue.job("front"))
    queue.submit("--name", "a", "--", "sleep", 600)
    queue.submit("--name", "b", "--hold", "--", "true")
    assert queue.tide("cancel", "--all").returncode == 0
    assert [job["name"] for job in queue.tide.jobs()] == ["front"]
    assert "none of your jobs" in queue.tide("cancel", "-a").stdout
    assert_error(queue.tide("cancel", "-a", "front"), 2, "tide: cancel: ")


@ROOT_ONLY
def test_nobody_ends_or_holds_what_is_not_his(queue):
    queue.submit("--name", "mine", "--hold", "--", "true")
    nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": [], "cwd": queue.work}
    for command in ("cancel", "hold", "release"):
        assert_error(queue.tide(command, "mine", **nobody), 4, f"tide: {command}: job j1 is root's")
    done = queue.tide("submit", "-q", "--name", "his", "--hold", "--", "true", **nobody)
    assert done.stdout == "j2\n"
    assert "j2 his: cancelled" in queue.tide("cancel", "--all", **nobody).stdout
    assert [job["id"] for job in queue.tide.jobs()] == ["j1"]


def test_a_held_job_is_passed(queue):
    queue.block()
    first, second = queue.waiter(), queue.waiter()
    assert queue.tide("release", first).stdout == f"{first} sh: is not held\n"
    assert queue.tide("hold", first).stdout == f"{first} sh: held\n"
    assert queue.tide("hold", first).stdout == f"{first} sh: is held already\n"
    waited = [json.loads(queue.tide("history", first, "--json").stdout)["wait_s"] for _ in range(2)]
    assert 0 < waited[0] < waited[1]  # though nothing has happened to it in between
    queue.tide("cancel", "blocker")
    queue.begun(second)
    assert (queue.job(first)["state"], queue.output(first)) == ("held", "")
    assert queue.tide("release", first).returncode == 0
    queue.waits_for(first, "queued")
    queue.tide("cancel", second)
    queue.begun(first)


# ---- faults ----

@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_queue_outlives_the_daemon(queue, number):
    queue.block()
    waiter, held = queue.waiter(), queue.waiter("--hold")
    before = {job["id"]: (job["name"], job["pids"]) for job in queue.tide.jobs()}
    queue.stop(number)
    queue.start()
    queue.waits_for(held, "held")
    queue.waits_for(waiter, "queued")
    assert {job["id"]: (job["name"], job["pids"]) for job in queue.tide.jobs()} == before
    queue.tide("cancel", "blocker")
    queue.begun(waiter)
    assert (queue.job(held)["state"], queue.output(held)) == ("held", "")


def test_a_daemon_without_records_gets_the_queue_anew(queue):
    queue.submit("--name", "first", "--", "sleep", 600)
    job = queue.submit("--name", "a", "--hold", "--", "sh", "-c", "echo $TIDE_JOB_ID $TIDE_JOB_NAME")
    pid = queue.job("a")["pids"]
    queue.stop(signal.SIGKILL)
    shutil.rmtree(queue.tide.dir / "jobs")
    queue.start()
    queue.waits_for("a", "held")
    assert (job, queue.job("a")["id"], queue.job("a")["pids"]) == ("j2", "j1", pid)
    queue.tide("release", "a")
    queue.tide.wait(lambda: queue.output(job).splitlines()[1:] == ["j1 a"])
    assert queue.output(job).startswith("tide: submit: the new daemon does not know job j2 (a): it is now j1 (a)")


def test_its_name_may_be_anothers_by_then(queue):
    queue.submit("--name", "a", "--hold", "--", "true")
    pid = queue.job("a")["pids"][0]
    os.kill(pid, signal.SIGSTOP)
    queue.stop(signal.SIGKILL)
    shutil.rmtree(queue.tide.dir / "jobs")
    queue.start()
    queue.submit("--name", "a", "--hold", "--", "true")
    os.kill(pid, signal.SIGCONT)
    queue.waits_for(f"a-{pid}", "held")


def test_a_job_goes_on_without_a_word_that_it_missed(queue):
    """The daemon starts the job and is killed before the runner hears of it."""
    queue.block()
    job = queue.waiter()
    pid = queue.job(job)["pids"][0]
    os.kill(pid, signal.SIGSTOP)
    queue.tide("cancel", "blocker")
    queue.waits_for(job, "starting", "rigid")
    queue.stop(signal.SIGKILL)
    queue.start()
    os.kill(pid, signal.SIGCONT)
    queue.begun(job)
    assert queue.job(job)["pids"] == [pid]


def test_a_killed_runner_leaves_the_queue(queue):
    queue.block()
    first, second = queue.waiter(), queue.waiter()
    os.kill(queue.job(first)["pids"][0], signal.SIGKILL)
    queue.tide.wait(lambda: not queue.job(first))
    queue.tide("cancel", "blocker")
    queue.begun(second)


def test_the_users_own_daemon_is_started_when_there_is_none(place):
    job = place.submit("--name", "a", "--hold", "--", "sh", "-c", "echo begun; exec sleep 600")
    first = place.tide.daemon()
    os.kill(first, signal.SIGKILL)
    place.tide.wait(lambda: place.tide.daemon() not in (None, first))  # the runner's doing
    place.tide.wait(lambda: place.tide("ps").returncode == 0)
    place.waits_for("a", "held")
    assert place.job("a")["id"] == job
    place.tide("release", "a")
    place.begun(job)
    place.tide("cancel", "a")
    place.tide.wait(lambda: place.tide.daemon() is None)  # it ends with its last job


@pytest.mark.parametrize("daemon", ["/bin/false", "/nonexistent/tided"])
def test_begins_at_once_when_no_daemon_can_be_had(place, daemon):
    done = place.tide("submit", "--", "sh", "-c", "echo ran; exit 7", cwd=place.work,
                      env={"TIDE_DAEMON": daemon})
    found = re.fullmatch(r"Started process (\d+), output in tide-(\d+).out\n", done.stdout)
    assert done.returncode == 0 and found and found[1] == found[2]
    assert done.stderr.startswith("tide: submit: the program begins at once, but not as a job: ")
    place.tide.wait(lambda: place.output(found[1]) == done.stderr + "ran\n")
    done = place.tide("submit", "-qw", "--", "sh", "-c", "exit 7", cwd=place.work,
                      env={"TIDE_DAEMON": daemon})
    assert (done.returncode, done.stdout) == (7, "")
    done = place.tide("submit", "-q", "--", "true", cwd=place.work, env={"TIDE_DAEMON": daemon})
    assert (done.returncode, done.stdout) == (5, "")  # a script has no id to go on with


def test_begins_at_once_beside_a_daemon_that_was_stopped(queue):
    queue.process.send_signal(signal.SIGSTOP)
    done = queue.tide("submit", "-w", "--", "sh", "-c", "exit 7", cwd=queue.work)
    queue.process.send_signal(signal.SIGCONT)
    assert done.returncode == 7 and "does not answer" in done.stderr


def test_begins_without_its_turn_when_no_daemon_comes_back(place):
    """Not before its patience ends, which is half a minute where nobody says else."""
    env = {"TIDE_DAEMON": "/bin/false"}
    place.start()
    place.block()
    job = place.submit("--request", 8, "--patience", "4s", "--", "sh", "-c",
                       "echo begun; exec sleep 600", env=env)
    held = place.submit("--hold", "--patience", "4s", "--", "sh", "-c", "echo begun; exec sleep 600", env=env)
    place.stop(signal.SIGKILL)
    time.sleep(3)
    assert (place.output(job), place.output(held)) == ("", "")
    place.begun(job)
    place.begun(held)
    assert place.output(job).startswith(
        "tide: submit: job j2 (sh) begins before its turn: no daemon answered for 4 s: ")


def test_from_within_a_job_it_is_a_job_of_its_own(queue):
    queue.block()
    outer = queue.tide.start("run", "--name", "outer", "--", queue.tide.program, "submit", "-w",
                             "--request", "7", "--", "sh", "-c", "echo begun; exec sleep 600",
                             cwd=queue.work, stdout=subprocess.DEVNULL)
    queue.waits_for("sh", "queued")
    assert queue.job("outer")["pids"] == [outer.pid]
    inner = queue.job("sh")["id"]
    queue.stop(signal.SIGKILL)
    queue.start()
    queue.waits_for("sh", "queued")
    assert queue.output(inner) == ""  # "outer" runs; that is no word for this one
    queue.tide("cancel", "blocker")
    queue.begun(inner)


def test_fifty_jobs_in_a_row(queue):
    queue.block()
    for i in range(50):
        queue.submit("--request", 8, "--output", "all.out", "--", "echo", i)
    assert [job["id"] for job in queue.waiting()] == [f"j{i}" for i in range(2, 52)]
    queue.tide("cancel", "blocker")
    queue.tide.wait(lambda: len((queue.work / "all.out").read_text().split()) == 50)
    assert (queue.work / "all.out").read_text().split() == [str(i) for i in range(50)]
    queue.tide.wait(lambda: queue.tide.jobs() == [])


def test_fifty_jobs_at_once(queue):
    queue.block()
    for i in range(50):
        queue.tide.start("submit", "-q", "--request", "8", "--", "sleep", "600", cwd=queue.work,
                         stdout=subprocess.DEVNULL)
    queue.tide.wait(lambda: len(queue.waiting()) == 50)
    queue.stop(signal.SIGKILL)
    queue.start()
    queue.tide.wait(lambda: len(queue.waiting()) == 50)
    assert len(queue.tide("cancel", "--all").stdout.splitlines()) == 51
    assert queue.tide.jobs() == []


# ---- views ----

def test_views_of_those_who_wait(queue):
    assert queue.tide("queue").stdout == "No job waits. Submit one: tide submit -- python train.py\n"
    queue.block()
    waiter, held = queue.waiter("--name", "a", "--priority", 7), queue.waiter("--name", "b", "--hold")
    lines = queue.tide("queue").stdout.splitlines()
    assert lines[0].split() == ["PLACE", "ID", "NAME", "OWNER", "STATE", "PRIORITY", "REQUEST", "MEMORY",
                                "WAITED", "REASON"]
    assert [line.split()[:8] for line in lines[1:]] == [
        ["1", waiter, "a", queue.job("a")["owner"], "queued", "7", "8", "-"],
        ["-", held, "b", queue.job("b")["owner"], "held", "0", "8", "-"]]
    assert re.fullmatch(r"\d+s", lines[1].split()[8])
    assert queue.tide("queue", "-q").stdout.split() == [waiter, held]
    assert queue.tide("queue", "-aq").stdout.split() == ["j1", waiter, held]
    assert [job["id"] for job in queue.waiting()] == [waiter, held]
    rows = [line.split() for line in queue.tide("ps").stdout.splitlines()[1:4]]
    assert rows[1][3] == "queued" and rows[1][5:11] == ["-"] * 6 and rows[1][11] == "waits"
    explained = queue.tide("explain", "a").stdout
    assert explained.startswith("j2 a: queued\n  why: ") and "threads" not in explained
    assert "\n  submitted, has waited " in explained
    assert "submitted, waited 0s for its turn, has run " in queue.tide("explain", "j1").stdout
    top = queue.tide("top").stdout.splitlines()
    assert next(line for line in top if line.startswith("j2")).split()[2:8] == \
        ["queued", "-", "-", "-", "-", "-"]


def test_the_queue_is_in_the_policys_order(queue):
    assert queue.tide("policy", "set", "priority/strict").returncode == 0
    queue.block()
    assert queue.tide("set", "blocker", "--priority", 100).returncode == 0  # gives way to nobody
    held, low = queue.waiter("--name", "held", "--hold"), queue.waiter("--name", "low")
    high, mid = queue.waiter("--name", "high", "--priority", 9), queue.waiter("--name", "mid",
                                                                              "--priority", 5)

    def order():
        return queue.tide("queue", "-q").stdout.split()
    queue.tide.wait(lambda: order() == [high, mid, low, held])  # a place is given by a decision
    rows = [line.split() for line in queue.tide("queue").stdout.splitlines()[1:]]
    assert [row[:2] for row in rows] == [["1", high], ["2", mid], ["3", low], ["-", held]]
    assert rows[1][-3:] == ["waits", "behind", "high"]  # by its name
    assert [job["place"] for job in queue.waiting()] == [1, 2, 3, None]
    assert queue.job("j1")["place"] is None
    assert queue.tide("policy", "set", "fcfs/strict").returncode == 0
    queue.tide.wait(lambda: order() == [low, high, mid, held])


@pytest.mark.parametrize("args", [["submit"], ["submit", "--"], ["submit", ""], ["cancel"],
                                  ["hold"], ["release"], ["queue", "a"], ["queue", "-jq"],
                                  ["hold", "--all", "a"]], ids=" ".join)
def test_wrong_command_lines_exit_2_and_point_to_the_help(tide, args):
    assert_error(tide(*args), 2, f"tide: {args[0]}: ", f"tide help {args[0]}")


@pytest.mark.parametrize("args", [["queue"], ["cancel", "a"], ["cancel", "--all"], ["hold", "a"],
                                  ["release", "a"]], ids=" ".join)
def test_without_a_daemon_exit_5(tide, args):
    assert_error(tide(*args), 5, f"tide: {args[0]}: no daemon runs", str(tide.dir))
