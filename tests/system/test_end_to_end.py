# SPDX-License-Identifier: Apache-2.0
"""Nothing is replaced here: stock TensorFlow trains, tided decides, `tide` gives the orders, Docker
runs the containers, and the kernel says which threads work and on which cores."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest

from program import BUILD, HERE, ROOT, Program, clean_env, tensorflow_pythons, thread_cpu_ns

sys.path.append(str(HERE.parent / "component"))

from daemon import Daemon, eventually, remove  # noqa: E402
from engine import IMAGE, Engine, program_mounts  # noqa: E402

CORES = sorted(os.sched_getaffinity(0))
N = len(CORES) & ~1  # to be halved
TF = tensorflow_pythons()[0]
WINDOW_S = 0.5       # for which threads are watched
BUSY_NS = 5_000_000  # of it; a parked worker that was woken in vain uses far less

pytestmark = [pytest.mark.skipif(N < 2, reason="one core leaves nothing to share"),
              pytest.mark.skipif(not pathlib.Path(TF).exists(), reason=f"no TensorFlow at {TF}")]


class Tided(Daemon):
    """A daemon of these cores, and `tide` for it."""

    def __init__(self, folder, *options):
        super().__init__(BUILD / "tided", None, folder / "run", folder / "claims", "--cpus",
                         ",".join(map(str, CORES[:N])), *options)

    def environment(self, **more):
        return clean_env(TIDE_DIR=self.dir, TIDE_CLAIMS_DIR=self.claims, **more)

    def tide(self, *words, **more):
        done = subprocess.run([BUILD / "tide", *words], env=self.environment(**more),
                              capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def job(self, name):
        return next((job for job in json.loads(self.tide("ps", "--json")) if job["name"] == name), None)

    def settled(self, name, threads):
        """The job, once the daemon wants so many threads and its agent says that it has them."""
        return eventually(lambda: (job := self.job(name)) and job["state"] == "running" and
                          job["target"] == job["active"] == threads and job)


@pytest.fixture
def tided(tmp_path):
    made = []

    def start(*options):
        made.append(Tided(tmp_path, *options).start())
        return made[-1]
    yield start
    for daemon in made:
        daemon.end()
        remove(daemon.dir)


def train(program):
    """Loads TensorFlow, then trains without end."""
    program.load(N, intra=N, inter=N)
    program.call("model", name="mlp", guard_s=120)
    program.call("run")


def busy(program):
    """How many workers the kernel sees at work, of the pool with the more of them."""
    before = {tid: thread_cpu_ns(program.pid, tid) for tid in program.intra + program.inter}
    time.sleep(WINDOW_S)
    return max(sum(thread_cpu_ns(program.pid, tid) - before[tid] > BUSY_NS for tid in pool)
               for pool in (program.intra, program.inter))


def stock_losses(n):
    """Losses of one thread on one core; the MLP's are the same bits with any number of threads."""
    with Program(TF, clean_env(), ["taskset", "-c", str(CORES[0])]) as program:
        program.load(1, intra=1, inter=1)
        program.call("model", name="mlp", guard_s=120)
        return [float.fromhex(x) for x in program.call("steps", n=n, guard_s=120)]


def end(program):
    """Its losses; it ends by itself and well."""
    losses = program.call("stop", guard_s=120)
    program.process.stdin.close()
    assert program.wait() == 0, program.errors()
    return losses


def test_two_trainings_share_the_cores_and_obey_tide_set(tided):
    daemon = tided()

    def start(name):
        return Program(TF, daemon.environment(), [BUILD / "tide", "run", "--name", name, "--"])
    with start("one") as one, start("two") as two:
        train(one)
        train(two)
        daemon.settled("one", N // 2)
        daemon.settled("two", N // 2)
        eventually(lambda: busy(one) <= N // 2 and busy(two) <= N // 2)

        assert "acknowledged" in daemon.tide("set", "one", "--threads", str(N))
        daemon.settled("one", N)
        eventually(lambda: busy(one) > N // 2)
        assert "acknowledged" in daemon.tide("set", "one", "--threads", str(N // 2))
        eventually(lambda: busy(one) <= N // 2)
        daemon.tide("set", "one", "--auto")

        losses = [end(two)]
        daemon.settled("one", N)  # the cores of the one that has ended
        assert daemon.job("two") is None
        losses.append(end(one))
    compared = min(500, *map(len, losses))
    expected = stock_losses(compared)
    assert [found[:compared] for found in losses] == [expected, expected]


@pytest.fixture
def engine():
    if os.geteuid() != 0 or not shutil.which("dockerd") or not shutil.which("docker"):
        pytest.skip("a Docker Engine of one's own needs root and docker.io")
    result = Engine("docker")
    try:
        yield result.start().make_image()
    finally:
        result.end()


class Container(Program):
    """The program in a container, started by `tide docker run`; the kernel's thread numbers."""

    def __init__(self, daemon, engine, name):
        base = subprocess.run([TF, "-c", "import sys; print(sys.base_prefix)"], check=True, text=True,
                              capture_output=True).stdout.strip()
        mounts = program_mounts(pathlib.Path(TF).parent.parent, base, ROOT, HERE)
        super().__init__(TF, daemon.environment(DOCKER_HOST=f"unix://{engine.socket}"), [
            BUILD / "tide", "docker", "run", "--placement", "exclusive", "--rm", "--interactive",
            "--name", name, "--network", "host", "--pid", "host", *mounts, IMAGE])
        status, answer = engine.api("GET", f"/containers/{name}/json")
        assert status == 200, answer
        self.pid, self.group = answer["State"]["Pid"], engine.groups(answer["Id"], "cpuset")

    def cores(self):
        """The CPUs that its control group and all its threads may use; None while these differ."""
        v2 = self.group / "cpuset.cpus.effective"
        group = (v2 if v2.exists() else self.group / "cpuset.cpus").read_text().strip()
        threads = {line.split()[1] for tid in self.intra
                   for line in pathlib.Path(f"/proc/{self.pid}/task/{tid}/status").read_text().splitlines()
                   if line.startswith("Cpus_allowed_list")}
        return numbers(group) if threads == {group} else None


def numbers(text):
    """"0-2,5" as a set."""
    ends = [[int(end) for end in part.split("-")] for part in text.split(",")]
    return {n for end in ends for n in range(end[0], end[-1] + 1)}


def test_cores_and_threads_of_a_container_follow_each_other(tided, engine):
    daemon = tided("--engine", str(engine.socket))
    everything = set(CORES[:N])
    with Container(daemon, engine, "one") as one:
        train(one)
        daemon.settled("one", N)
        eventually(lambda: one.cores() == everything and busy(one) > N // 2)
        with Container(daemon, engine, "two") as two:
            train(two)
            for name in ("one", "two"):
                daemon.settled(name, N // 2)
            eventually(lambda: one.cores() and two.cores() and not one.cores() & two.cores())
            assert one.cores() | two.cores() == everything
            eventually(lambda: busy(one) <= N // 2 and busy(two) <= N // 2)
            losses = [end(two)]
        daemon.settled("one", N)
        eventually(lambda: one.cores() == everything and busy(one) > N // 2)
        assert "acknowledged" in daemon.tide("set", "one", "--threads", str(N // 2))
        eventually(lambda: busy(one) <= N // 2)
        losses.append(end(one))
    compared = min(500, *map(len, losses))
    expected = stock_losses(compared)
    assert [found[:compared] for found in losses] == [expected, expected]
