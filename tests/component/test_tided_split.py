# SPDX-License-Identifier: Apache-2.0
"""A target over the processes of one job, by what they use: real agents, real pools, real work."""
import os
import re
import signal
import subprocess

import pytest

from conftest import POOL, plain_env
from daemon import eventually


@pytest.fixture
def pools(place, build_dir):
    """A daemon of four cores and one job of two processes, each with four threads: their pids."""
    daemon = place.daemon("--cpus", "0-3").start()
    pool = build_dir / POOL
    process = subprocess.Popen(
        [build_dir / "tide", "run", "--name", "pools", "--", "sh", "-c", f"{pool} 4 & {pool} 4 & wait"],
        stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, start_new_session=True,
        env={**plain_env(), "TIDE_DIR": str(daemon.dir)})
    try:
        yield daemon, [int(process.stdout.readline().split()[1]) for _ in range(2)]
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def tide(daemon, build_dir, *words):
    return subprocess.run([build_dir / "tide", *words], env={**plain_env(), "TIDE_DIR": str(daemon.dir)},
                          capture_output=True, text=True, check=True).stdout


def parts(daemon):
    """{pid: threads} of the job, and what its agents say that they have."""
    job = daemon.api("GET", "/v1/jobs/pools")[1]
    split = {part["pid"]: part["threads"] for part in job.get("split") or []}
    return split, {b["pid"]: b["active"] for b in job["backends"]}


def test_who_works_has_the_threads_and_the_roles_may_swap(pools, build_dir):
    daemon, (one, two) = pools
    eventually(lambda: parts(daemon) == ({one: 2, two: 2},) * 2)
    os.kill(one, signal.SIGUSR1)
    eventually(lambda: parts(daemon) == ({one: 3, two: 1},) * 2)
    # whoever connected first stands first
    eventually(lambda: re.search(rf"pools: 4 threads: .*\b3 pool {one} \(uses ",
                                 tide(daemon, build_dir, "ps", "-v")))
    assert re.search(rf"what they use: .*\b3 pool {one}\b", tide(daemon, build_dir, "explain", "pools"))
    os.kill(two, signal.SIGUSR1)
    eventually(lambda: parts(daemon) == ({one: 2, two: 2},) * 2)
    os.kill(one, signal.SIGUSR2)
    eventually(lambda: parts(daemon) == ({one: 1, two: 3},) * 2)
    changes = daemon.api("GET", "/v1/jobs/pools/explain")[1]["changes"]
    told = [c["reason"].split(" threads")[0] for c in changes if "by what they use" in c["reason"]]
    splits = iter(sorted(text.split(" + ")) for text in told)  # more of them when others take a core
    assert all(any(split == wanted for split in splits) for wanted in (["1", "3"], ["2", "2"], ["1", "3"]))


def test_fewer_threads_than_processes_are_one_for_each_and_that_is_said(pools):
    daemon, (one, two) = pools
    daemon.api("PATCH", "/v1/jobs/pools", {"threads": 1})
    eventually(lambda: parts(daemon) == ({one: 1, two: 1},) * 2)
    assert "2 processes have a thread each" in daemon.api("GET", "/v1/jobs/pools")[1]["note"]
