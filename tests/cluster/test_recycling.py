# SPDX-License-Identifier: Apache-2.0
"""A job's process ends, and its pid goes to a process of another user while tided looks away. There are
few pids here, so that each comes round again soon. tided never signals, moves or limits the newcomer."""
import os
import pathlib
import signal
import socket
import sys
import threading

import pytest

from daemon import GUARD_S, UnixConnection, eventually, hello
from test_tided_errors import lose_both
from test_tided_owner import OTHER, OWNER, as_user, uids

PID_MAX, RESERVED = 500, 300  # the kernel's count begins again after its RESERVED_PIDS
ALL = os.sched_getaffinity(0)
FIRST = min(ALL)

pytestmark = pytest.mark.skipif("TIDE_TEST_SLOWNESS" not in os.environ or os.geteuid() != 0 or len(ALL) < 2,
                                reason="needs a machine of its own, with two CPUs")


def use_up():
    """Uses the next pid, and gives it back. Returns it."""
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    return thread.native_id


@pytest.fixture(scope="module", autouse=True)
def few_pids():
    setting = pathlib.Path("/proc/sys/kernel/pid_max")
    before = setting.read_text()
    setting.write_text(str(PID_MAX))
    eventually(lambda: use_up() in range(RESERVED, PID_MAX), pause=0)  # a smaller one is never used again
    yield
    setting.write_text(before)


class Newcomer:
    """A process of OTHER's with the pid of one that has ended."""

    def __init__(self, pid):
        self.pid = pid
        for _ in range(10 * PID_MAX):
            last = use_up()
            if last < pid and all(os.path.exists(f"/proc/{n}") for n in range(last + 1, pid)):
                child = os.fork()
                if child == 0:
                    if os.getpid() != pid:
                        os._exit(0)
                    os.setgroups([])
                    os.setresgid(OTHER, OTHER, OTHER)
                    os.setresuid(OTHER, OTHER, OTHER)
                    os.execvp("sleep", ["sleep", "600"])
                if child == pid:
                    break
                os.waitpid(child, 0)
        else:
            pytest.fail(f"pid {pid} did not come round again")
        eventually(lambda: uids(pid) == [str(OTHER)] * 3 and self.word("comm") == "sleep")
        self.groups = self.word("cgroup")

    def word(self, name):
        return pathlib.Path(f"/proc/{self.pid}/{name}").read_text().strip()

    def check(self, cores=ALL):
        """Asserts that nothing was done to it."""
        assert os.waitpid(self.pid, os.WNOHANG) == (0, 0)
        assert self.word("stat").split()[2] != "T"
        assert os.sched_getaffinity(self.pid) == cores
        assert self.word("cgroup") == self.groups

    def end(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


@pytest.fixture
def newcomer():
    """newcomer(process): it takes over the pid of that one, which is ended for it."""
    made = []

    def make(process):
        process.kill()
        process.wait()
        made.append(Newcomer(process.pid))
        return made[-1]
    yield make
    for one in made:
        one.end()


def job_of(tided, **request):
    """A process of OWNER's, and the job that it is."""
    process = as_user(OWNER, "sh", "-c", "echo; exec sleep 600", start_new_session=True)
    process.stdout.readline()
    status, job = tided.api("POST", "/v1/jobs", {"pid": process.pid, **request})
    assert status == 201, job
    return process, job


@pytest.mark.parametrize("method, body, attributes", [
    ("DELETE", None, {}), ("DELETE", None, {"queue": True, "request": 1}),
    ("PATCH", f'{{"pin": true, "cores": "{FIRST}"}}', {})])
def test_an_order_for_a_job_whose_pid_is_anothers_by_now(place, newcomer, method, body, attributes):
    tided = place.daemon("--policy", "fcfs").start()
    process, job = job_of(tided, **attributes)
    path = f"/v1/jobs/{job['id']}"
    eventually(lambda: tided.api("GET", path)[1]["state"] not in ("queued", "held"))
    tided.signal(signal.SIGSTOP)
    order = UnixConnection(tided.dir / "api.sock")
    order.request(method, path, body)
    other = newcomer(process)
    tided.signal(signal.SIGCONT)
    order.getresponse()
    eventually(lambda: tided.api("GET", path)[0] == 404)
    other.check()


def test_a_connection_whose_pid_is_anothers_by_now_joins_no_job(place, newcomer):
    """Made by a process that ends before tided accepts it; another process of its user speaks on it."""
    tided = place.daemon().start()
    leader, job = job_of(tided, placement="exclusive")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    theirs.set_inheritable(True)
    tided.signal(signal.SIGSTOP)
    code = ("import socket, time; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET);"
            f"s.connect('{tided.dir}/agent.sock');"
            f"socket.send_fds(socket.socket(fileno={theirs.fileno()}), [b'x'], [s.fileno()]);"
            "time.sleep(600)")
    process = as_user(OWNER, sys.executable, "-S", "-E", "-c", code, pass_fds=[theirs.fileno()])
    connection = socket.socket(fileno=socket.recv_fds(ours, 1, 1)[1][0])
    connection.settimeout(GUARD_S)
    other = newcomer(process)
    connection.send(hello(job["token"]))
    tided.signal(signal.SIGCONT)
    try:
        while connection.recv(2048):
            pass
    except ConnectionResetError:
        pass
    assert tided.api("GET", f"/v1/jobs/{job['id']}")[1]["pids"] == [leader.pid]
    assert tided.api("DELETE", f"/v1/jobs/{job['id']}")[1]["signalled"] == 1
    assert leader.wait(GUARD_S) == -signal.SIGTERM
    other.check()


@pytest.fixture
def fenced(place):
    """tided, and two processes that it keeps apart by their affinities."""
    tided = place.daemon("--placement", "exclusive")
    tided.env = {"TIDE_FAILPOINT": "group-make:1+:EIO"}  # no cpusets
    tided.start()
    processes = [job_of(tided, request=1)[0] for _ in range(2)]
    eventually(lambda: all(os.sched_getaffinity(process.pid) != ALL for process in processes))
    return tided, processes


def test_what_a_daemon_puts_back_at_its_end_is_not_put_upon_the_next_with_that_pid(fenced, newcomer):
    tided, processes = fenced
    tided.signal(signal.SIGSTOP)
    others = [newcomer(process) for process in processes]
    for other in others:
        os.sched_setaffinity(other.pid, {FIRST})
    tided.signal(signal.SIGTERM)
    tided.signal(signal.SIGCONT)
    tided.process.wait(GUARD_S)
    tided.start()  # its guardian is through, too
    for other in others:
        other.check({FIRST})


def test_what_daemon_and_guardian_left_behind_is_not_put_upon_the_next_with_that_pid(fenced, newcomer):
    tided, processes = fenced
    lose_both(tided)
    others = [newcomer(process) for process in processes]
    for other in others:
        os.sched_setaffinity(other.pid, {FIRST})
    tided.start()
    assert tided.jobs() == []
    assert tided.stop() == 0
    for other in others:
        other.check({FIRST})
