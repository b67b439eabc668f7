# SPDX-License-Identifier: Apache-2.0
"""tided's own units under a real systemd, on a machine with nothing but cgroup v2."""
import grp
import os
import pathlib
import signal
import subprocess

import pytest

import cli_tools
from daemon import eventually
from system import (TIDE, installed, journal, service, shown, systemctl,  # noqa: F401
                    systemd_only)

pytestmark = systemd_only
N = os.cpu_count()
CGROUP = pathlib.Path("/sys/fs/cgroup")


def tide(*words):
    return subprocess.run([TIDE, *words], capture_output=True, text=True, check=True).stdout


def affinity(job):
    return os.sched_getaffinity(job.peer.pid)


def group(job):
    path = pathlib.Path(f"/proc/{job.peer.pid}/cgroup").read_text().strip().removeprefix("0::/")
    return CGROUP / path


def daemons_groups():
    return list(CGROUP.glob("tide-*"))


def apart(jobs):
    """Each has half of the machine for itself."""
    return eventually(lambda: all(len(affinity(j)) == N // 2 for j in jobs) and
                      not affinity(jobs[0]) & affinity(jobs[1]))


def test_its_group_is_made_and_its_socket_starts_it(service):
    assert grp.getgrnam("tide-admin")
    systemctl("start", "tided.socket")
    assert shown("tided", "ActiveState") == "inactive"
    tide("ps")
    assert shown("tided", "ActiveState") == "active"
    assert os.stat("/run/tide/api.sock").st_mode & 0o777 == 0o666


def test_in_its_sandbox_it_sets_affinities_weights_and_quotas(service):
    service.start()
    big, small = service.job(weight=300), service.job()
    big.target(6), small.target(2)
    eventually(lambda: (group(big) / "cpu.weight").read_text() == "600\n")
    eventually(lambda: (group(small) / "cpu.weight").read_text() == "200\n")
    capped = service.job(placement="quota")
    eventually(lambda: capped.get()["target"] and (group(capped) / "cpu.max").read_text() ==
               f"{capped.get()['target'] * 100000} 100000\n")
    alone = service.job("--max", "2", placement="exclusive")
    eventually(lambda: len(affinity(alone)) == alone.get()["target"] and
               not affinity(alone) & affinity(big))
    assert daemons_groups() == [group(big).parent]
    service.stop()
    assert daemons_groups() == []
    assert all(len(affinity(j)) == N for j in (big, small, capped, alone))


def test_reload_takes_a_new_configuration_but_none_that_is_wrong(service):
    service.configure("policy=equal")
    service.start()
    service.configure("policy=fcfs")
    systemctl("reload", "tided")
    eventually(lambda: service.api("GET", "/v1/policy")[1]["name"] == "fcfs")
    service.configure("policy=nonsense")
    systemctl("reload", "tided")
    eventually(lambda: "nonsense" in journal())
    assert shown("tided", "ActiveState") == "active"
    assert service.api("GET", "/v1/policy")[1]["name"] == "fcfs"


def test_a_wrong_configuration_is_not_tried_again_and_again(service):
    service.configure("policy=nonsense")
    systemctl("start", "tided", check=False)
    eventually(lambda: shown("tided", "ActiveState") == "failed")
    assert shown("tided", "ExecMainStatus") == "2" and shown("tided", "NRestarts") == "0"


def test_killed_it_is_started_again_and_takes_its_jobs_over(service):
    service.configure("placement=exclusive")
    service.start()
    jobs = [service.job(), service.job()]
    apart(jobs)
    first = service.pid()
    service.signal(signal.SIGKILL)
    eventually(lambda: service.pid() not in (0, first) and shown("tided", "NRestarts") == "1")
    for job in jobs:
        job.peer.expect("welcome")
    apart(jobs)
    assert {j["id"] for j in service.jobs()} == {j.id for j in jobs}


def test_the_guardian_outlives_it_and_gives_back_what_it_took(service):
    service.amend("Restart=no")
    service.start()
    jobs = [service.job(placement="exclusive"), service.job(weight=200), service.job()]
    eventually(lambda: len(affinity(jobs[0])) < N and not affinity(jobs[0]) & affinity(jobs[1]))
    eventually(lambda: daemons_groups() == [group(jobs[1]).parent])
    service.signal(signal.SIGKILL)
    eventually(lambda: all(len(affinity(j)) == N for j in jobs) and daemons_groups() == [])
    eventually(lambda: shown("tided", "ActiveState") == "failed")


@pytest.fixture
def pool(service, build_dir):
    """A malleable program of four threads in a scope of systemd's with limits."""
    service.start()
    limits = ("-p", "CPUQuota=250%", "-p", "AllowedCPUs=0-5")
    command = ["systemd-run", "--scope", "--quiet", *limits, TIDE, "run", "--name", "pool", "--",
               "python3", "-c", cli_tools.POOL]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={
            **os.environ, "TEST_LIBRARY": f"{build_dir}/libtide.so"}) as process:
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def test_a_job_in_a_unit_of_systemds_stays_there_with_its_limits(service, pool):
    """Its agent sees what the unit is given and loses."""
    path = pathlib.Path(f"/proc/{pool.pid}/cgroup")
    scope = path.read_text().strip().rsplit("/", 1)[1]
    assert scope.endswith(".scope")

    def follows(cores, threads):
        job = service.api("GET", "/v1/jobs/pool")[1]
        return (job["allowed"], job["target"]) == (cores, threads)

    eventually(lambda: follows(2.5, 2))
    systemctl("set-property", "--runtime", scope, "CPUQuota=")
    eventually(lambda: follows(6, 4))
    systemctl("set-property", "--runtime", scope, "AllowedCPUs=1-3")
    eventually(lambda: follows(3, 3))
    assert scope in path.read_text()
