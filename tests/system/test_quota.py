# SPDX-License-Identifier: Apache-2.0
"""A container's --cpus changes while TensorFlow computes: its pools follow, without a daemon."""

import os

import pytest
from conftest import BUILT
from groups import CpuGroup, can_make_groups
from peer import wait_until
from program import Program, agent_env

STEPS = 30


@pytest.mark.skipif(not can_make_groups(), reason="needs root and cgroup v1's cpu hierarchy")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_pools_follow_a_quota_that_changes_while_they_work_and_no_daemon_is_there(python):
    with CpuGroup() as group, Program(python, agent_env(TIDE_MAX=BUILT)) as program:
        group.quota(1)
        group.adopt(program.pid)
        program.load(BUILT)
        program.call("model", name="mlp")

        def at_work():
            return program.moved(program.intra, lambda: program.call("steps", n=STEPS))
        for _ in range(2):
            wait_until(lambda: all(at_work() <= 1 for _ in range(3)), "one thread of eight works")
            group.quota(2)
            wait_until(lambda: at_work() == 2, "two threads work")
            wait_until(lambda: all(at_work() <= 2 for _ in range(3)), "no more than two work")
            group.quota(1)
