# SPDX-License-Identifier: Apache-2.0
"""tided and tide on a kernel without the calls that came after Linux 4.18 (old_kernel.py), as RHEL 8 has it: no pidfds, so ends
of processes are looked for. Recycled pids are tests/unit/test_host_pidfd.c's matter."""
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from daemon import GUARD_S, NOBODY, eventually

OLD = [sys.executable, str(pathlib.Path(__file__).with_name("old_kernel.py"))]


@pytest.fixture
def tided(place, build_dir):
    daemon = place.daemon("--cpus", "0-7")
    daemon.program = [*OLD, build_dir / "tided"]
    return daemon.start()


def descriptors(daemon):
    """The kinds of tided's descriptors, but for sockets: of its clients it keeps some for a while."""
    folder, found = f"/proc/{daemon.process.pid}/fd", []
    for name in os.listdir(folder):
        try:
            found.append(os.readlink(f"{folder}/{name}"))
        except OSError:
            pass  # closed meanwhile
    return [one for one in found if not one.startswith("socket:")]


def old_tide(tided, build_dir, *words, **more):
    return subprocess.run([*OLD, build_dir / "tide", *words], capture_output=True, text=True, timeout=GUARD_S, check=False,
                          env={**os.environ, "TIDE_DIR": str(tided.dir)}, **more)


def test_the_kernel_is_old():
    """Else the other tests say nothing."""
    done = subprocess.run([*OLD, sys.executable, "-c", "import os; os.pidfd_open(os.getpid())"], capture_output=True, text=True, check=False)
    assert "Function not implemented" in done.stderr
    peer = "import socket; a, b = socket.socketpair(); a.getsockopt(socket.SOL_SOCKET, 77)"
    assert "Protocol not available" in subprocess.run([*OLD, sys.executable, "-c", peer], capture_output=True, text=True, check=False).stderr


def test_jobs_share_and_their_ends_are_seen(tided):
    before = [one for one in descriptors(tided) if "timerfd" in one or one.startswith("/proc/")]
    first = tided.job(name="first")
    first.target(8)
    assert f"/proc/{first.peer.pid}" in descriptors(tided) and "anon_inode:[pidfd]" not in descriptors(tided)
    second = tided.job(name="second")
    first.target(4), second.target(4)
    second.end()  # a process that is killed
    first.target(8)
    assert f"/proc/{second.peer.pid}" not in descriptors(tided)
    first.end()
    assert tided.jobs() == []
    left = [one for one in descriptors(tided) if "timerfd" in one or one.startswith("/proc/")]
    assert len(left) <= len(before), (left, before)  # no directory and no timer is left


def test_a_process_that_nobody_waits_for_has_ended(tided, build_dir):
    """A zombie computes nothing: its share is the others'."""
    sleeper = subprocess.Popen(["sleep", "1000"])
    status, answer = tided.api("POST", "/v1/jobs", {"pid": sleeper.pid})
    assert status == 201, answer
    sleeper.send_signal(signal.SIGKILL)
    eventually(lambda: tided.api("GET", f"/v1/jobs/{answer['id']}")[0] == 404)
    assert sleeper.wait(GUARD_S) == -signal.SIGKILL


def test_a_job_is_asked_to_end(tided, build_dir):
    sleeper = subprocess.Popen(["sleep", "1000"])
    status, answer = tided.api("POST", "/v1/jobs", {"pid": sleeper.pid})
    assert status == 201, answer
    status, said = tided.api("DELETE", f"/v1/jobs/{answer['id']}")
    assert status == 200 and said["signalled"] == 1
    assert sleeper.wait(GUARD_S) == -signal.SIGTERM


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a process of another user")
def test_a_job_takes_no_process_of_another_user(tided):
    theirs = tided.job(uid=NOBODY, name="theirs")
    theirs.target(8)
    roots = tided.peer()
    roots.go(theirs.token, theirs.id, theirs.name)
    roots.expect("closed")
    assert theirs.get()["pids"] == [theirs.peer.pid]


def test_tide_runs_submits_and_signals(tided, build_dir, tmp_path):
    done = old_tide(tided, build_dir, "run", "--", "sh", "-c", "exit 3")
    assert done.returncode == 3, done.stderr
    done = old_tide(tided, build_dir, "submit", "--name", "queued", "--", "touch", str(tmp_path / "ran"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    eventually((tmp_path / "ran").exists)
    eventually(lambda: not tided.jobs())
    peer = tided.job(name="plain")
    done = old_tide(tided, build_dir, "signal", "plain", "2")
    assert done.returncode != 0 and "has no handler for it" in done.stderr, done.stderr
    assert peer.peer.process.poll() is None


def test_the_guardian_is_started_again(tided):
    """Its end is looked for, too."""
    children = pathlib.Path(f"/proc/{tided.process.pid}/task/{tided.process.pid}/children")
    guardian, = map(int, children.read_text().split())
    os.kill(guardian, signal.SIGKILL)
    eventually(lambda: "a new guardian was started" in tided.log.read_text())
    assert children.read_text().split() not in ([], [str(guardian)])


def test_the_doctor_says_so(tided, build_dir):
    said = old_tide(tided, build_dir, "doctor").stdout
    assert "no pidfd (before Linux 5.3" in said, said
    here = subprocess.run([build_dir / "tide", "doctor"], capture_output=True, text=True, timeout=GUARD_S, check=False).stdout
    assert "has pidfd" in here and "no pidfd" not in here


def test_an_idle_tided_with_a_job_hardly_wakes(tided):
    job = tided.job(name="idle")
    job.target(8)
    stat = pathlib.Path(f"/proc/{tided.process.pid}/stat")
    def ticks():
        return sum(map(int, stat.read_text().rpartition(")")[2].split()[11:13]))
    before = ticks()
    time.sleep(3)
    assert ticks() - before < 0.2 * 3 * os.sysconf("SC_CLK_TCK"), "a directory always seems readable: nothing may poll it"
