# SPDX-License-Identifier: Apache-2.0
"""`srun --malleable` on a real Slurm: what tasks get, who shares cores with whom, and what may be missing."""
import os
import pathlib
import signal

import pytest

from bed import BUILD, USERS, eventually

LOOP = BUILD / "examples/malleable_loop"
ENDLESS, SHORT = 10 ** 9, 3000
GIVEN = {"TIDE_DIR", "TIDE_SOCKET", "TIDE_TOKEN", "TIDE_JOB_ID", "TIDE_JOB_NAME", "TIDE_MAX", "TIDE_STARTUP", "LD_PRELOAD",
         "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OPENBLAS_THREAD_TIMEOUT"}
NOT_A_JOB = "the task runs, but not as a job"


def folder(user, job):
    return f"/tmp/tide-{USERS[user]}/slurm-{job}"


def variables(done):
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


def threads(node, user, job, **more):
    """Active threads of the allocation's jobs that have any, by name."""
    return {name: row["active"] for name, row in node.jobs(user, folder(user, job), **more).items() if row["active"]}


def loop(cluster, *options, user="alice", chunks=ENDLESS):
    """A job of the node n1 whose pool has two threads; its number."""
    return cluster.sbatch(f"exec srun {LOOP} 2 {chunks}\n", "--output=%j.out", "--nodelist=n1", "--ntasks=1",
                          "--cpus-per-task=2", *options, user=user)


def test_a_task_becomes_a_job_and_has_the_agent(slurm):
    given = variables(slurm.srun("--malleable=1-2", "env"))
    assert given["LD_PRELOAD"].endswith("/libtide-agent.so")
    assert given["TIDE_JOB_NAME"] == f"slurm-{given['SLURM_JOB_ID']}.0.0" and given["TIDE_MAX"] == "2"
    assert given["TIDE_DIR"] == folder("alice", given["SLURM_JOB_ID"])


def test_without_the_option_the_environment_is_slurms(slurm):
    with_plugin = variables(slurm.srun("env"))
    slurm.configure("# none\n")
    without = variables(slurm.srun("env"))
    assert set(with_plugin) == set(without) and not GIVEN & set(without)


def test_the_option_adds_what_tide_run_adds(slurm):
    plain = variables(slurm.srun("env"))
    assert set(variables(slurm.srun("--malleable=1-2", "env"))) - set(plain) == GIVEN


@pytest.mark.parametrize("value", ["2", "3-2", "0-2", "1-4097", "1-2-3", "-1", "a-b", " 1-2", "1-2 ", ""])
def test_srun_refuses_a_wrong_value(slurm, value):
    done = slurm.srun(f"--malleable={value}", "true", check=False)
    assert done.returncode != 0 and "threadtide: --malleable: '" in done.stderr, done.stderr


def test_sbatch_refuses_a_wrong_value(slurm):
    done = slurm.ctl.run("sbatch", "--malleable=8-2", "--wrap=true", user="alice", check=False)
    assert done.returncode != 0 and "'8-2' is no range of threads" in done.stderr
    assert not slurm.ctl.run("squeue", "-h").stdout


def test_tasks_of_a_step_are_jobs_of_one_daemon(slurm):
    step = slurm.ctl.start("srun", "--malleable=1-2", "--nodelist=n1", "--ntasks=2", LOOP, 1, ENDLESS, user="alice")
    job = eventually(lambda: slurm.ctl.run("squeue", "-h", "-t", "R", "-o", "%A").stdout.strip())
    names = {f"slurm-{job}.0.{task}": 1 for task in (0, 1)}
    eventually(lambda: threads(slurm.n1, "alice", job) == names)
    slurm.ctl.run("scancel", job)
    step.wait(timeout=60)


@pytest.mark.parametrize("other", ["alice", "bob"])
def test_oversubscribed_jobs_share_their_cores_and_the_first_grows_again(slurm, other):
    first = loop(slurm, "--partition=shared", "--malleable=1-2")
    alone, shared = {f"slurm-{first}.0.0": 2}, {f"slurm-{first}.0.0": 1}
    eventually(lambda: threads(slurm.n1, "alice", first) == alone)
    second = loop(slurm, "--partition=shared", "--malleable=1-2", user=other)
    eventually(lambda: threads(slurm.n1, other, second) == {f"slurm-{second}.0.0": 1})
    eventually(lambda: threads(slurm.n1, "alice", first) == shared)
    slurm.ctl.run("scancel", second)
    eventually(lambda: threads(slurm.n1, "alice", first) == alone)


def test_the_systems_daemon_serves_when_it_runs(slurm):
    daemon = slurm.n1.start(BUILD / "tided", "--engine", "none", "--history", "none")
    eventually(lambda: slurm.n1.run("test", "-S", "/run/tide/api.sock", check=False).returncode == 0)
    first = loop(slurm, "--partition=shared", "--malleable=1-2")
    second = loop(slurm, "--partition=shared", "--malleable=1-2", user="bob")

    def active():
        return {name: row["active"] for name, row in slurm.n1.jobs().items() if row["active"]}
    try:
        eventually(lambda: active() == {f"slurm-{job}.0.0": 1 for job in (first, second)})
        slurm.ctl.run("scancel", first)
        eventually(lambda: active() == {f"slurm-{second}.0.0": 2})
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(timeout=30)


def test_two_steps_of_a_script_share_the_allocation(slurm):
    step = f"srun --overlap --ntasks=1 --cpus-per-task=2 {LOOP} 2"
    job = slurm.sbatch(f"{step} {ENDLESS} & {step} {SHORT} & wait %2; echo second ended; wait\n", "--output=steps.out",
                       "--nodelist=n1", "--ntasks=1", "--cpus-per-task=2", "--malleable=1-2")
    eventually(lambda: threads(slurm.n1, "alice", job) == {f"slurm-{job}.0.0": 1, f"slurm-{job}.1.0": 1})
    eventually(lambda: len(threads(slurm.n1, "alice", job)) == 1 and
               set(threads(slurm.n1, "alice", job).values()) == {2})
    slurm.ctl.run("scancel", job)


def test_a_script_that_runs_the_program_itself_is_the_job(slurm):
    job = slurm.sbatch(f"{LOOP} 2 {ENDLESS}\n", "--output=direct.out", "--nodelist=n1", "--cpus-per-task=2", "--malleable=1-2")
    eventually(lambda: threads(slurm.n1, "alice", job) == {f"slurm-{job}.batch": 2})
    slurm.ctl.run("scancel", job)


def test_the_step_goes_on_when_its_daemon_is_killed(slurm):
    job = loop(slurm, "--malleable=1-2", chunks=SHORT * 4)
    eventually(lambda: threads(slurm.n1, "alice", job))
    pid = int(slurm.n1.run("cat", f"{folder('alice', job)}/tided.lock").stdout)
    os.kill(pid, signal.SIGKILL)
    assert slurm.ended(job) == "COMPLETED"
    assert "pi" in (slurm.work / f"{job}.out").read_text()


def runs_plain(slurm, *words, options=()):
    """The task runs as without us, and one line says why; that line."""
    done = slurm.srun("--malleable=1-2", *options, "env", **({"env": words[0]} if words else {}))
    assert "LD_PRELOAD" not in variables(done) and "TIDE_TOKEN" not in variables(done)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1 and NOT_A_JOB in lines[0], done.stderr
    return lines[0]


def test_without_our_program_the_task_runs(slurm):
    slurm.configure(f"optional {BUILD}/threadtide.so helper=/nonexistent/tide-slurm\n")
    assert "/nonexistent/tide-slurm" in runs_plain(slurm)


def test_without_a_daemon_the_task_runs(slurm):
    assert "TIDE_DAEMON" in runs_plain(slurm, {"TIDE_DAEMON": "/nonexistent/tided"})


def test_another_users_folder_is_not_used(slurm):
    place = f"/tmp/tide-{USERS['bob']}"
    for node in (slurm.n1, slurm.n2):
        node.run("rm", "-rf", place)
        node.run("mkdir", place, user="alice")
    done = slurm.srun("--malleable=1-2", "env", user="bob")
    assert "belongs to another user" in done.stderr and "LD_PRELOAD" not in variables(done)
    for node in (slurm.n1, slurm.n2):
        node.run("rm", "-rf", place)


def test_a_program_that_hangs_or_answers_by_half_does_not_hold_up_the_task(slurm):
    script = slurm.folder / "helper"
    for text, why in (("sleep 1000\n", "took too long"), ("printf 'A=1\\0B'\n", "half an answer")):
        script.write_text("#!/bin/sh\n" + text)
        script.chmod(0o755)
        slurm.configure(f"optional {BUILD}/threadtide.so helper={script}\n")
        assert why in runs_plain(slurm)


def test_folders_of_former_allocations_are_removed(slurm):
    """One whose daemon was started two days ago and has ended; no other, and nothing behind a link."""
    slurm.n1.run("sh", "-c", f"""umask 077; cd /tmp; mkdir -p tide-{USERS['alice']}; cd tide-{USERS['alice']}
        for n in 9001 9002 9003; do mkdir -p slurm-$n/jobs; touch -d '2 days ago' slurm-$n/tided.lock slurm-$n/jobs/j1.json; done
        touch slurm-9002/tided.lock; ln -s /tmp/kept slurm-9001/link; mkdir -p /tmp/kept; touch /tmp/kept/file""", user="alice")
    holder = slurm.n1.start("flock", f"{folder('alice', 9003)}/tided.lock", "sleep", "1000", user="alice",
                            start_new_session=True)
    eventually(lambda: slurm.n1.run("flock", "-n", f"{folder('alice', 9003)}/tided.lock", "true", user="alice",
                                    check=False).returncode)
    slurm.srun("--malleable=1-2", "--nodelist=n1", "true")
    left = slurm.n1.run("ls", f"/tmp/tide-{USERS['alice']}", "/tmp/kept").stdout.split()
    assert "slurm-9001" not in left and {"slurm-9002", "slurm-9003", "file"} <= set(left)
    os.killpg(holder.pid, signal.SIGKILL)


def test_unknown_arguments_of_plugstack_are_told_and_do_no_harm(slurm):
    slurm.configure(f"optional {BUILD}/threadtide.so helper={BUILD}/tide-slurm speed=11\n")
    done = slurm.srun("--malleable=1-2", "env")
    assert "TIDE_TOKEN" in variables(done) and "speed=11" in done.stderr


def test_a_fenced_steps_daemon_divides_the_allocations_processors(fenced):
    """The daemon lives in the first step's group, which has one of them."""
    job = fenced.sbatch(f"srun --overlap -n1 -c1 {LOOP} 1 {ENDLESS} & sleep 1; srun --overlap -n1 -c2 {LOOP} 2 {ENDLESS}\n",
                        "--output=%j.out", "--nodelist=n1", "--ntasks=1", "--cpus-per-task=2", "--malleable=1-2")
    eventually(lambda: threads(fenced.n1, "alice", job) == {f"slurm-{job}.0.0": 1, f"slurm-{job}.1.0": 1})
    fenced.ctl.run("scancel", f"{job}.0")
    eventually(lambda: threads(fenced.n1, "alice", job) == {f"slurm-{job}.1.0": 2})
    fenced.rest()


def test_nothing_of_ours_outlives_a_fenced_job(fenced):
    done = fenced.srun("--malleable=1-2", "--nodelist=n1", "sh", "-c", "cat $TIDE_DIR/tided.lock")
    pid = int(done.stdout)
    eventually(lambda: not pathlib.Path(f"/proc/{pid}").exists())


def test_a_malleable_job_is_accounted_as_slurm_accounts_others(accounted):
    """The allocation's cores, whatever number of threads the step had."""
    job = loop(accounted, "--malleable=1-2", chunks=SHORT)
    assert accounted.ended(job) == "COMPLETED"
    rows = eventually(lambda: (found := accounted.accounts(job, "State", "AllocCPUS", "ExitCode", "TotalCPU")) and
                      set(found) == {"", "batch", "0"} and {row[0] for row in found.values()} == {"COMPLETED"} and found)
    assert all(row[:3] == ["COMPLETED", "2", "0:0"] for row in rows.values()), rows
    assert rows["0"][3] > "00:00.000", rows


def test_a_job_goes_on_without_slurmdbd_and_is_accounted_later(accounted):
    job = loop(accounted, "--malleable=1-2")
    eventually(lambda: threads(accounted.n1, "alice", job) == {f"slurm-{job}.0.0": 2})
    accounted.slurmdbd.kill()
    accounted.slurmdbd.wait(timeout=30)
    other = loop(accounted, "--malleable=1-2", chunks=SHORT)
    accounted.ctl.run("scancel", job)
    assert accounted.ended(other) == "COMPLETED"
    accounted.slurmdbd = accounted.daemon(accounted.ctl, "slurmdbd", "-D")
    eventually(lambda: accounted.ctl.run("sacct", "-n", "-j", other, check=False).returncode == 0, pause=0.5)
    eventually(lambda: accounted.accounts(other, "State").get("0") == ["COMPLETED"], pause=0.5)
    eventually(lambda: accounted.accounts(job, "State").get("0", [""])[0].startswith("CANCELLED"), pause=0.5)
