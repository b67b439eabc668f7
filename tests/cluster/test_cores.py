# SPDX-License-Identifier: Apache-2.0
"""Policies and the choice of cores on machines with NUMA nodes, threads of cores, 32 or 64 CPUs.

What a machine is like, its kernel says; tests read that for themselves and ask tided nothing. On
one without several nodes and threads of cores they fail.
"""
import os
import pathlib

import pytest

from daemon import eventually

CPU = pathlib.Path("/sys/devices/system/cpu")
NODE = pathlib.Path("/sys/devices/system/node")


def cpus(text):
    result = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        result |= set(range(int(first), int(last or first) + 1))
    return result


ALL = cpus((CPU / "online").read_text())
NODES = [cpus(p.read_text()) for p in sorted(NODE.glob("node[0-9]*/cpulist"))]
CORES = {frozenset(cpus(p.read_text()))
         for p in CPU.glob("cpu[0-9]*/topology/thread_siblings_list")}
N, PER_NODE = len(ALL), len(ALL) // len(NODES)


def nodes_of(owned):
    return [n for n, node in enumerate(NODES) if node & owned]


def is_whole(owned):
    """No core is shared with somebody else."""
    return all(core <= owned or not core & owned for core in CORES)


def affinity(job):
    return os.sched_getaffinity(job.peer.pid)


def placed(job, count):
    """Waits until kernel and tided agree on so many CPUs for it; returns these."""
    eventually(lambda: len(affinity(job)) == count and cpus(job.get()["cores"]) == affinity(job))
    return affinity(job)


@pytest.fixture
def tided(place):
    return place.daemon("--placement", "exclusive").start()


def test_the_machine_is_what_it_was_asked_to_be(tided):
    """Or the other tests say nothing."""
    assert len(NODES) > 1 and sum(map(len, NODES)) == N and len(CORES) == N // 2
    assert tided.api("GET", "/v1/machine")[1]["cpus"] == N


def test_exclusive_jobs_get_whole_cores_of_one_node_each(tided):
    most = PER_NODE - 4
    jobs = [tided.job("--max", str(most)) for _ in NODES]
    owned = [placed(job, most) for job in jobs]
    assert all(len(nodes_of(o)) == 1 and is_whole(o) for o in owned), owned
    assert len(set().union(*owned)) == most * len(NODES)
    # The rest of a node is enough for a small one.
    small = placed(tided.job("--max", "4"), 4)
    assert len(nodes_of(small)) == 1 and is_whole(small)
    assert not any(small & o for o in owned)


def test_a_job_that_shrinks_keeps_whole_cores_and_its_node(tided):
    first = tided.job("--max", str(PER_NODE))
    before = placed(first, PER_NODE)
    assert first.patch(threads=6)[0] == 200
    after = placed(first, 6)
    assert after < before and is_whole(after) and len(nodes_of(after)) == 1
    second = placed(tided.job("--max", str(PER_NODE)), PER_NODE)
    assert len(nodes_of(second)) == 1 and not second & after
    assert first.patch(auto=True)[0] == 200
    assert placed(first, PER_NODE) == before  # its node was left for it


def test_one_that_needs_more_than_a_node_fills_nodes(tided):
    wide = placed(tided.job("--max", str(PER_NODE + 2)), PER_NODE + 2)
    assert is_whole(wide) and len(nodes_of(wide)) == 2
    assert any(node <= wide for node in NODES)


def test_many_jobs_share_all_of_the_machine_and_no_core_twice(tided):
    """Equal shares, odd ones among them: cores are parted then (tests/unit/test_policy_cores.c)."""
    jobs = [tided.job("--max", str(N)) for _ in range(5)]
    eventually(lambda: sorted(len(affinity(j)) for j in jobs) ==
               sorted(N // 5 + (i < N % 5) for i in range(5)))
    owned = [placed(j, j.get()["target"]) for j in jobs]
    assert set().union(*owned) == ALL and sum(map(len, owned)) == N
    jobs[0].end()
    eventually(lambda: sorted(len(affinity(j)) for j in jobs[1:]) == [N // 4] * 4)
    owned = [placed(j, N // 4) for j in jobs[1:]]
    assert set().union(*owned) == ALL
    assert sum(map(len, owned)) == N


def test_shared_jobs_have_what_exclusive_ones_leave(place):
    tided = place.daemon().start()
    shared = tided.job("--max", str(N))
    exclusive = tided.job("--max", str(PER_NODE), placement="exclusive")
    own = placed(exclusive, PER_NODE)
    assert len(nodes_of(own)) == 1 and is_whole(own)
    eventually(lambda: affinity(shared) == ALL - own)
    exclusive.end()
    eventually(lambda: affinity(shared) == ALL)


@pytest.mark.parametrize("policy", ["equal", "throughput", "makespan", "hesrpt"])
def test_policies_give_every_core_to_somebody(place, policy):
    tided = place.daemon("--policy", policy).start()
    jobs = [tided.job("--max", str(N), weight=weight) for weight in (100, 300)]
    eventually(lambda: sum(j.get()["target"] for j in jobs) == N)
    assert all(j.get()["target"] >= 1 for j in jobs)
    if policy == "equal":
        jobs[0].target(N // 4), jobs[1].target(3 * N // 4)


def test_people_are_told(tide):
    """A malleable program under `tide run`; `tide ps` and `tide explain` on a wide machine."""
    tide.start_pool("wide", "--placement", "exclusive")
    pid = tide.job("wide")["pids"][0]
    tide.wait(lambda: len(os.sched_getaffinity(pid)) == 4)
    assert len(nodes_of(os.sched_getaffinity(pid))) == 1 and is_whole(os.sched_getaffinity(pid))
    row = next(line for line in tide("ps").stdout.splitlines() if " wide " in line).split()
    assert tide.job("wide")["cores"] in row
    assert "4" in tide("explain", "wide").stdout
