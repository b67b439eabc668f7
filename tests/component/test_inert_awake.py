# SPDX-License-Identifier: Apache-2.0
"""The agent once it is awake, under programs that fork, exec, exit, unload it or take its files."""
import pytest


@pytest.fixture
def awake(compiled):
    return compiled("inert/awake.c", "-ldl")


def test_exit_with_the_control_thread_running(preloaded, awake):
    for _ in range(20):
        result = preloaded.with_agent(awake, "exit")
        assert (result.returncode, result.stderr) == (0, "")


def test_closing_every_descriptor_costs_the_connection_only(preloaded, awake, tmp_path):
    result = preloaded.with_agent(awake, "closeall", tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert preloaded.connections() >= 2, "closed under it, then made anew"


def test_closing_one_descriptor_after_the_other_costs_the_connection_only(preloaded, awake):
    result = preloaded.with_agent(awake, "closehalf")
    assert (result.returncode, result.stderr) == (0, "")


def test_closing_every_descriptor_before_a_daemon_has_answered_and_gone_costs_no_processor_time(preloaded, awake):
    result = preloaded.with_agent(awake, "closelate", preloaded.env["TIDE_SOCKET"])
    assert (result.returncode, result.stderr) == (0, "")


def test_child_of_fork_has_an_agent_of_its_own(preloaded, awake):
    result = preloaded.with_agent(awake, "fork")
    assert (result.returncode, result.stderr) == (0, "")


def test_exec_leaves_nothing_behind(preloaded, awake):
    result = preloaded.with_agent(awake, "exec")
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("state", [[], ["declare"]], ids=["asleep", "awake"])
def test_dlclose_does_not_take_the_code_away(preloaded, awake, state):
    library = preloaded.directory.parent / "libtide-agent.so"
    result = preloaded.without(awake, "dlclose", library, *state)
    assert (result.returncode, result.stderr) == (0, "")


def test_switched_off_agent_stays_asleep(preloaded, awake):
    """And so shows that these tests fail where no control thread comes."""
    preloaded.env["TIDE_DISABLE"] = "1"
    result = preloaded.with_agent(awake, "exit")
    assert result.returncode == 1 and preloaded.connections() == 0
