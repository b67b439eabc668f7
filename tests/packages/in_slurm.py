# SPDX-License-Identifier: Apache-2.0
"""A slurmctld and two slurmd of Debian's (tests/slurm/bed.py) with the packaged plugin; each test goes on where the
one before has ended. Run by test_slurm.py in a clean root, where the packages are installed."""
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(HERE / "tests/slurm"))

from bed import USERS, Cluster, eventually  # noqa: E402

LOOP, ENDLESS = "/packages/loop", 10 ** 9
SNIPPET = pathlib.Path("/etc/slurm/plugstack.conf.d/threadtide.conf")
PLUGIN = pathlib.Path("/usr/lib/x86_64-linux-gnu/slurm-wlm/threadtide.so")


def run(*words):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    assert done.returncode == 0, f"{words}\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def slurm():
    """With the plugstack.conf that Debian ships."""
    made = Cluster(cpus=2)
    try:
        made.configure("include /etc/slurm/plugstack.conf\n")
        yield made
    finally:
        made.end()


def variables(done):
    assert done.stderr == ""
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


def threads(cluster, user, job):
    rows = cluster.n1.jobs(user, f"/tmp/tide-{USERS[user]}/slurm-{job}")
    return {name: row["active"] for name, row in rows.items() if row["active"]}


@pytest.fixture(scope="module")
def start(slurm):
    """A job of a user whose task has two threads, and may share its cores; its number."""
    def submit(user):
        return slurm.sbatch(f"exec srun {LOOP} 2 {ENDLESS}\n", "--output=%j.out", "--nodelist=n1", "--ntasks=1",
                            "--cpus-per-task=2", "--partition=shared", "--malleable=1-2", user=user)
    return submit


@pytest.fixture(scope="module")
def first(start):
    return start("alice")


def test_the_plugin_is_on_and_no_file_of_slurms_was_changed():
    run("sh", "/packages/debian/tests/slurm-option")
    assert run("dpkg", "--verify", "slurm-wlm-basic-plugins", "threadtide-slurm") == ""


def test_slurmd_makes_a_task_a_job_with_the_packaged_agent(slurm):
    given = variables(slurm.srun("--malleable=1-2", "env"))
    assert given["TIDE_JOB_NAME"] == f"slurm-{given['SLURM_JOB_ID']}.0.0"
    assert given["LD_PRELOAD"] == "/usr/lib/threadtide/$LIB/libtide-agent.so"
    assert not {"LD_PRELOAD", "TIDE_JOB_NAME"} & variables(slurm.srun("env")).keys()


def test_two_users_jobs_on_the_same_cores_share_them(slurm, start, first):
    eventually(lambda: threads(slurm, "alice", first) == {f"slurm-{first}.0.0": 2})
    second = start("bob")
    eventually(lambda: threads(slurm, "bob", second) == {f"slurm-{second}.0.0": 1})
    eventually(lambda: threads(slurm, "alice", first) == {f"slurm-{first}.0.0": 1})
    slurm.ctl.run("scancel", second)
    eventually(lambda: threads(slurm, "alice", first) == {f"slurm-{first}.0.0": 2})


def test_a_new_version_leaves_running_tasks_alone_and_has_the_next_ones(slurm, first):
    run("apt-get", "-qq", "-y", "install", *map(str, pathlib.Path("/packages/later").glob("*.deb")))
    assert slurm.state(first) == "RUNNING" and threads(slurm, "alice", first) == {f"slurm-{first}.0.0": 2}
    assert "LD_PRELOAD" in variables(slurm.srun("--malleable=1-2", "--nodelist=n2", "env"))


def test_removed_it_leaves_jobs_running_and_slurm_as_it_was(slurm, first):
    run("apt-get", "-qq", "-y", "remove", "threadtide-slurm")
    assert not PLUGIN.exists() and SNIPPET.exists()
    assert slurm.state(first) == "RUNNING" and threads(slurm, "alice", first) == {f"slurm-{first}.0.0": 2}
    slurm.ctl.run("scancel", first)
    assert slurm.ended(first) == "CANCELLED"
    assert "LD_PRELOAD" not in variables(slurm.srun("env"))  # nor a word of a missing plugin
    done = slurm.srun("--malleable=1-2", "true", check=False)
    assert done.returncode and "unrecognized option '--malleable=1-2'" in done.stderr


def test_purged_it_leaves_nothing():
    run("dpkg", "--purge", "threadtide-slurm")
    assert os.listdir("/etc/slurm/plugstack.conf.d") == []
    assert run("find", "/etc", "/usr", "-xdev", "-path", "*tide*slurm*", "-o", "-path", "*slurm*tide*") == ""
    assert run("dpkg", "--verify", "slurm-wlm-basic-plugins") == ""
