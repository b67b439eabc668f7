# SPDX-License-Identifier: Apache-2.0
"""tided, as root, acts upon processes of a job's own user alone: no recycled pid and no setuid program
becomes a member of a job, and one that turns into a setuid program is left alone."""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from daemon import GUARD_S, NOBODY, eventually, hello

OWNER, OTHER = 61001, 61002  # users without a name

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
two_cpus = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")


def as_user(uid, *command, **more):
    return subprocess.Popen(["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *map(str, command)],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **more)


def uids(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return text.split("Uid:")[1].split("\n")[0].split()[:3]


def is_setuid(pid):
    return uids(pid) == [str(OWNER), "0", "0"]


@pytest.fixture
def setuid_sleep(public_dir):
    """A program that is root's, as passwd or sudo are; also when a user starts it."""
    program = public_dir / "sleep"
    shutil.copy("/bin/sleep", program)
    program.chmod(0o4755)
    return program


def ended(process, number):
    """Whether it has been signalled; one that was not is still there after a while."""
    try:
        return process.wait(1) == -number
    except subprocess.TimeoutExpired:
        return False


# ---- joining ----

def test_a_pid_that_becomes_a_setuid_program_joins_nobodys_job(place, setuid_sleep):
    """Its connection, made while it was the user's own, is used by another process of the user."""
    tided = place.daemon("--cpus", "0-1").start()
    job = tided.job(uid=OWNER)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    theirs.set_inheritable(True)
    code = ("import os, socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET);"
            f"s.connect('{tided.dir}/agent.sock');"
            f"socket.send_fds(socket.socket(fileno={theirs.fileno()}), [b'x'], [s.fileno()]);"
            "sys.stdin.readline();"
            f"os.execv('{setuid_sleep}', ['sleep', '600'])")
    victim = as_user(OWNER, sys.executable, "-c", code, pass_fds=[theirs.fileno()])
    connection = socket.socket(fileno=socket.recv_fds(ours, 1, 1)[1][0])
    try:
        status, own = tided.api("POST", "/v1/jobs", {"pid": victim.pid})  # the connection is accepted by now
        assert status == 201, own
        victim.stdin.write("\n")
        victim.stdin.flush()
        eventually(lambda: is_setuid(victim.pid))
        connection.settimeout(30)
        connection.send(hello(job.token))
        while connection.recv(2048):  # a result that says no, then it is hung up on
            pass
        assert victim.pid not in job.get()["pids"]
        assert tided.api("GET", f"/v1/jobs/{own['id']}")[1]["pids"] == [victim.pid]  # as before
        assert tided.api("DELETE", f"/v1/jobs/{job.id}")[0] == 200
        job.peer.process.wait(30)
        assert not ended(victim, signal.SIGTERM)
    finally:
        victim.kill()
        victim.wait()
        connection.close()


def register(uid, tided, pid):
    """POST /v1/jobs as user @uid: the status and the answer's text."""
    code = ("import http.client, json, socket, sys\n"
            "c = http.client.HTTPConnection('x')\n"
            "c.sock = socket.socket(socket.AF_UNIX); c.sock.connect(sys.argv[1])\n"
            "c.request('POST', '/v1/jobs', json.dumps({'pid': int(sys.argv[2])}))\n"
            "a = c.getresponse(); print(a.status, a.read().decode())")
    done = as_user(uid, sys.executable, "-c", code, tided.dir / "api.sock", pid)
    return done.communicate(timeout=30)[0].split(" ", 1)


def test_a_server_that_acts_for_a_user_for_a_moment_is_not_the_users_to_register(place):
    tided = place.daemon("--cpus", "0-1").start()
    server = subprocess.Popen([sys.executable, "-c", f"import os; os.seteuid({OWNER}); input()"],
                              stdin=subprocess.PIPE)
    try:
        eventually(lambda: uids(server.pid) == ["0", str(OWNER), "0"])
        status, text = register(OWNER, tided, server.pid)
        assert status == "403" and "rights of another user" in text
        assert tided.jobs() == []
    finally:
        server.kill()
        server.wait()


def test_what_the_daemons_shell_left_behind_is_not_its_guardian(place):
    """Children of the program that became tided are tided's children."""
    tided = place.daemon("--cpus", "0-1")
    tided.program = ["sh", "-c", 'sleep 600 & echo $! > "$0"; exec "$@"', place.base / "child", tided.program]
    tided.start()
    child = int((place.base / "child").read_text())
    try:
        assert pathlib.Path(f"/proc/{child}/stat").read_text().split()[3] == str(tided.process.pid)
        status, answer = tided.api("POST", "/v1/jobs", {"pid": child})
        assert status == 201, answer
        children = pathlib.Path(f"/proc/{tided.process.pid}/task/{tided.process.pid}/children")
        guardian, = {int(pid) for pid in children.read_text().split()} - {child}
        status, answer = tided.api("POST", "/v1/jobs", {"pid": guardian})
        assert status == 403 and "tided's guardian" in answer["error"]["message"]
    finally:
        os.kill(child, signal.SIGKILL)


# ---- after joining ----

class Turncoat:
    """A job's process that becomes a setuid program when it is told to."""

    def __init__(self, tided, program, **request):
        self.tided = tided
        self.process = as_user(OWNER, sys.executable, "-c", "import os, sys; print(flush=True); sys.stdin.readline();"
                               f"os.execv('{program}', ['sleep', '600'])")
        self.pid = self.process.pid
        self.process.stdout.readline()
        status, answer = tided.api("POST", "/v1/jobs", {"pid": self.pid, **request})
        assert status == 201, answer
        self.id = answer["id"]

    def turn(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        eventually(lambda: is_setuid(self.pid))

    def patch(self, **body):
        return self.tided.api("PATCH", f"/v1/jobs/{self.id}", body)

    def end(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def turncoat(place, setuid_sleep):
    tided = place.daemon().start()
    result = Turncoat(tided, setuid_sleep)
    yield result
    result.end()


def cancel(turncoat, build_dir):
    """`tide cancel`"""
    return subprocess.run([build_dir / "tide", "cancel", turncoat.id], capture_output=True, text=True,
                          env={**os.environ, "TIDE_DIR": str(turncoat.tided.dir)}, timeout=GUARD_S)


def test_a_process_that_became_a_setuid_program_is_not_signalled(turncoat, build_dir):
    turncoat.turn()
    status, answer = turncoat.tided.api("DELETE", f"/v1/jobs/{turncoat.id}")
    assert (status, answer["signalled"]) == (200, 0)
    done = cancel(turncoat, build_dir)
    assert done.returncode == 6 and "was not asked to end" in done.stderr and "sudo kill" in done.stderr
    assert not ended(turncoat.process, signal.SIGTERM)


def test_one_that_did_not_is_signalled(turncoat):
    status, answer = turncoat.tided.api("DELETE", f"/v1/jobs/{turncoat.id}")
    assert (status, answer["signalled"]) == (200, 1)
    assert ended(turncoat.process, signal.SIGTERM)


@pytest.mark.parametrize("mode, status", [(0o755, 1), (0o4755, None)])
def test_an_exit_status_that_the_kernel_hides_is_not_taken_for_success(place, public_dir, mode, status):
    """A user's own daemon may not read it of a setuid program, and sees a 0."""
    program = public_dir / "false"
    shutil.copy("/bin/false", program)
    program.chmod(mode)
    tided = place.daemon("--cpus", "0-1", uid=NOBODY).start()
    process = as_user(NOBODY, "sh", "-c", f"echo; read go; exec {program}")
    process.stdout.readline()
    answer = tided.api("POST", "/v1/jobs", {"pid": process.pid})
    assert answer[0] == 201, answer
    process.stdin.write("\n")
    process.stdin.flush()  # nobody waits for it: it stays a zombie
    eventually(lambda: tided.jobs() == [])
    assert [job["exit"] for job in tided.api("GET", "/v1/history")[1]] == [status]
    process.wait()


@two_cpus
def test_a_process_that_became_a_setuid_program_keeps_its_processors(turncoat):
    cpus = os.sched_getaffinity(turncoat.pid)
    turncoat.turn()
    assert turncoat.patch(pin=True, cores=str(min(cpus)))[0] == 200
    assert os.sched_getaffinity(turncoat.pid) == cpus


@two_cpus
def test_a_fenced_process_that_became_a_setuid_program_has_its_own_processors_again(place, setuid_sleep):
    tided = place.daemon()
    tided.env = {"TIDE_FAILPOINT": "group-make:1+:EIO"}  # by affinity alone
    turncoat = Turncoat(tided.start(), setuid_sleep)
    try:
        own = os.sched_getaffinity(turncoat.pid)
        first, second = sorted(own)[:2]
        assert turncoat.patch(pin=True, cores=str(first))[0] == 200
        eventually(lambda: os.sched_getaffinity(turncoat.pid) == {first})
        turncoat.turn()
        time.sleep(1.5)  # a tick looks at who has changed an affinity
        assert turncoat.patch(pin=True, cores=str(second))[0] == 200
        time.sleep(1.5)
        assert os.sched_getaffinity(turncoat.pid) in ({first}, own)  # no more fences
        assert tided.stop() == 0
        assert os.sched_getaffinity(turncoat.pid) == own
    finally:
        turncoat.end()


@two_cpus
def test_one_that_did_not_gets_the_processors_of_its_pin(turncoat):
    first = min(os.sched_getaffinity(turncoat.pid))
    assert turncoat.patch(pin=True, cores=str(first))[0] == 200
    eventually(lambda: os.sched_getaffinity(turncoat.pid) == {first})


def test_a_setuid_program_in_a_submitted_jobs_group_is_not_signalled(place, setuid_sleep):
    """Its first process leads a group, all of which is asked to end: but for that program."""
    tided = place.daemon("--cpus", "0-1").start()
    leader = as_user(OWNER, "sh", "-c", f"{setuid_sleep} 600 & echo $!; sleep 600 & echo $!; wait",
                     start_new_session=True)
    program, plain = int(leader.stdout.readline()), int(leader.stdout.readline())
    try:
        eventually(lambda: is_setuid(program))
        status, job = tided.api("POST", "/v1/jobs", {"pid": leader.pid, "queue": True})
        assert status == 201, job
        assert tided.api("DELETE", f"/v1/jobs/{job['id']}")[0] == 200
        assert ended(leader, signal.SIGTERM)
        eventually(lambda: not pathlib.Path(f"/proc/{plain}/exe").exists())
        assert pathlib.Path(f"/proc/{program}/stat").read_text().split()[2] == "S"
    finally:
        for pid in (program, plain):
            subprocess.run(["kill", "-KILL", str(pid)], check=False, capture_output=True)
        leader.kill()
        leader.wait()


@pytest.mark.skipif(not os.access("/sys/fs/cgroup", os.W_OK), reason="needs control groups")
@pytest.mark.parametrize("turned", [False, True])
def test_a_job_with_a_setuid_program_is_not_paused(place, setuid_sleep, turned):
    """It would stand still with the others, and whatever waits for it."""
    tided = place.daemon("--cpus", "0-1", "--policy", "priority").start()
    program = setuid_sleep if turned else "sleep"
    leaders = [as_user(OWNER, "sh", "-c", f"read go; {program} 600 & echo $!; wait", start_new_session=True)
               for _ in range(2)]
    for leader in leaders:  # registered before setpriv has changed it, it would be root's
        eventually(lambda: pathlib.Path(f"/proc/{leader.pid}/comm").read_text() == "sh\n")
    jobs, children = [], []

    def state(job):
        return tided.api("GET", f"/v1/jobs/{job['id']}")[1]["state"]
    try:
        for priority, leader in enumerate(leaders):
            status, job = tided.api("POST", "/v1/jobs", {"pid": leader.pid, "queue": True, "request": 2,
                                                         "priority": priority})
            assert status == 201, job
            jobs.append(job)
            if priority == 0:
                eventually(lambda: state(jobs[0]) not in ("queued", "held"))
                leader.stdin.write("\n")
                leader.stdin.flush()
                children.append(int(leader.stdout.readline()))
                eventually(lambda: is_setuid(children[0]) == turned)
        if turned:
            eventually(lambda: "cannot be paused" in tided.log.read_text())
            assert state(jobs[0]) != "paused"
        else:
            eventually(lambda: state(jobs[0]) == "paused")
    finally:
        for pid in children:
            subprocess.run(["kill", "-KILL", str(pid)], check=False, capture_output=True)
        for leader in leaders:
            leader.kill()
            leader.wait()
