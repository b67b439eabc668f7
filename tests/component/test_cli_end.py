# SPDX-License-Identifier: Apache-2.0
"""How a job has ended, as the history tells it; and processes that nobody may make a job of."""
import json
import os
import shutil
import subprocess

import pytest

from cli_tools import Queue, tide  # noqa: F401
from daemon import eventually

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="these processes are root's")


@pytest.fixture
def queue(tide):  # noqa: F811
    result = Queue(tide).start()
    yield result
    result.end()


def row(queue, job):
    rows = [json.loads(line) for line in queue.tide("history", "--json").stdout.splitlines()]
    return next((r for r in rows if r["id"] == job and r["ended"]), None)


@pytest.mark.parametrize("script, status", [("exit 7", 7), ("exit 0", 0), ("kill -9 $$", 137)])
def test_the_exit_status_of_a_submitted_job_is_in_the_history(queue, script, status):
    job = queue.submit("--", "sh", "-c", script)
    ended = eventually(lambda: row(queue, job))
    assert (ended["state"], ended["exit"]) == ("ended", status)
    assert f"exit status {status}" in queue.tide("history", job).stdout


def test_children_of_a_job_do_not_say_how_it_ended(queue):
    job = queue.submit("--", "sh", "-c", "(exec sleep 0.3; exit 5) & sh -c 'exit 4'; wait; exit 3")
    assert eventually(lambda: row(queue, job))["exit"] == 3


def test_a_cancelled_job_is_cancelled_whether_it_ran_or_waited(queue):
    running = queue.submit("--request", 8, "--", "sleep", 600)
    queue.waits_for(running, "starting", "rigid")
    waiting = queue.submit("--request", 8, "--", "sleep", 600)
    queue.waits_for(waiting, "queued")
    for job in waiting, running:
        queue.tide("cancel", job)
        assert eventually(lambda: row(queue, job))["state"] == "cancelled"
    assert row(queue, running)["exit"] == 143


def kernel_thread():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            os.readlink(f"/proc/{pid}/exe")
        except FileNotFoundError:
            if "Z" not in open(f"/proc/{pid}/stat", encoding="utf-8").read().rsplit(")", 1)[1][:3]:
                return int(pid)
        except OSError:
            pass
    return None


def refused(tided, pid):
    status, answer = tided.api("POST", "/v1/jobs", {"pid": pid})
    return status, answer["error"]["message"]


@ROOT_ONLY
def test_the_machines_own_processes_cannot_be_jobs(place):
    tided = place.daemon().start()
    own = tided.process.pid
    guardian = int(subprocess.check_output(["pgrep", "-P", str(own)], text=True).split()[0])
    assert refused(tided, 1) == (403, "process 1 is the first process of the machine: it cannot be a job")
    assert refused(tided, own) == (403, f"process {own} is tided itself: it cannot be a job")
    assert refused(tided, guardian) == (403, f"process {guardian} is tided's guardian: it cannot be a job")
    if kernel_thread():
        assert refused(tided, kernel_thread())[1].endswith("is a thread of the kernel: it cannot be a job")


# ---- what is wrong with the daemon's directory ----

@ROOT_ONLY
def test_a_full_disk_is_said_where_a_person_looks(tide):  # noqa: F811
    tide.dir.mkdir(mode=0o755)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=755", "none", tide.dir], check=True)
    queue = Queue(tide)
    try:
        queue.start()
        job = queue.submit("--", "sleep", 600)
        filler = os.open(tide.dir / "filler", os.O_WRONLY | os.O_CREAT)
        with pytest.raises(OSError):
            while True:
                os.write(filler, bytes(4096))
        os.close(filler)
        why = "No space left on device"
        done = tide("policy", "set", "fcfs")
        assert (done.returncode, done.stdout) == (0, "In force: fcfs\n")
        assert why in done.stderr and "after a restart tided has another policy" in done.stderr
        done = tide("submit", "--", "sleep", 600)
        assert done.returncode == 1 and f"cannot be written to {tide.dir}: {why}" in done.stderr
        tide("set", job, "--weight", 50)
        eventually(lambda: f"jobs cannot be written to {tide.dir}: {why}" in tide("ps").stdout)
        assert f"cannot write to {tide.dir}: {why}" in tide("doctor").stdout
    finally:
        queue.end()
        subprocess.run(["umount", "-l", tide.dir], check=True)


def test_a_daemon_whose_directory_is_removed_ends_and_its_jobs_find_the_next(queue):
    held = queue.submit("--hold", "--", "sh", "-c", "echo begun; exec sleep 600")
    queue.waits_for(held, "held")
    shutil.rmtree(queue.tide.dir, ignore_errors=True)  # the daemon tidies up, too
    assert queue.process.wait(30) == 0
    queue.start()
    eventually(lambda: [job["state"] for job in queue.tide.jobs()] == ["held"])
