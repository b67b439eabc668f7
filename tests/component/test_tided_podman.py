# SPDX-License-Identifier: Apache-2.0
"""The most important tests of test_tided_containers.py, with podman in Docker's place."""
import pytest

from box import boxes, connected, real_engine, tided  # noqa: F401, fixtures too
from daemon import eventually
from test_tided_containers import (  # noqa: F401, tests
    test_a_container_gives_way_to_who_is_more_urgent,
    test_a_container_is_a_job_as_long_as_it_runs,
    test_by_hand_paused_takes_no_part_until_that_ends,
    test_a_daemon_that_is_killed_leaves_the_original_limits,
    test_a_container_paused_by_policy_goes_on_when_no_daemon_is_left,
    test_killed_at_any_moment_of_a_resize_no_core_is_lost_or_owned_twice,
    test_containers_that_were_there_before_are_found,
    test_cores_leave_only_after_the_threads_have_parked,
    test_exclusive_cores_are_disjoint_and_given_back,
    test_the_agent_finds_a_new_daemon_through_its_directory,
    test_the_agent_inside_gets_its_targets,
    test_weights_follow_the_shares,
)


@pytest.fixture(scope="module")
def engine():
    yield from real_engine("podman")


def test_a_quota_follows_the_share_and_is_put_back(tided, boxes):
    quota = {"io.threadtide.placement": "quota"}
    first = boxes("first", "--max 8", labels=quota)
    second = boxes("second", "--max 8", labels=quota, CpuQuota=150000)
    connected(tided, first)
    connected(tided, second)
    eventually(lambda: first.limits()[2] == second.limits()[2] == 100000)
    first.kill()
    assert tided.stop() == 0
    eventually(lambda: second.limits()[2] == 150000)
