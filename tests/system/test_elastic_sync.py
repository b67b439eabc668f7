# SPDX-License-Identifier: Apache-2.0
"""A cluster that changes gives what one that stays gives, bit for bit, in sync mode.

The training has dropout, Adam, and an embedding table in four shards. Its `seen` says how often each
example was applied.
"""

import subprocess

import pytest

from elastic import GUARD_S, Chief, cluster
from peer import wait_until
from threadtide.tensorflow.local import Node
from program import tensorflow_pythons

STEPS, EPOCHS = 48, 6  # of 256 examples in batches of 32

PYTHON = tensorflow_pythons()[0]


@pytest.fixture(scope="module")
def static(tmp_path_factory):
    """One worker and one parameter server from the beginning to the end."""
    with cluster(PYTHON) as nodes:
        with Chief(PYTHON, nodes.env, log=tmp_path_factory.mktemp("static") / "log") as chief:
            assert chief.run(STEPS) == STEPS
            return chief.end()


def same(end, static):
    assert end["seen"] == [EPOCHS] * len(end["seen"])  # every example once in each epoch
    assert end["applied"] == STEPS  # applied / expected = 1.000
    assert end["digest"] == static["digest"]  # variables and optimizer slots, bit for bit


def test_each_example_is_applied_once_in_an_epoch(static):
    same(static, static)


def test_one_to_three_to_two_workers_and_one_to_two_to_one_servers(static, tmp_path):
    with cluster(PYTHON) as nodes, Chief(PYTHON, nodes.env, log=tmp_path / "log") as chief:
        chief.begin(12)
        nodes.start("worker", 2)
        chief.wait_nodes(worker=[0, 1, 2])
        before = chief.evaluate()
        assert before[0] == before[1]
        chief.begin(8)
        nodes.leave("worker", 1)
        nodes.start("ps", 1)
        chief.wait_nodes(worker=[0, 2], ps=[0, 1])
        chief.begin(12)
        chief.stepped(), chief.stepped(), chief.stepped()
        assert "variables moved; parameter servers: [0, 1]" in chief.words()
        chief.begin(8)
        nodes.leave("ps", 0)
        chief.wait_nodes(ps=[1])
        chief.begin(8)
        assert [chief.stepped(), chief.stepped()] == [40, 48]
        after = chief.evaluate()  # traced before the variables moved, twice
        assert after[0] == after[1] != before[0]
        same(chief.end(), static)
        assert "restarted after" not in chief.words()


def test_killed_workers_and_one_that_is_absent(static, tmp_path):
    with cluster(PYTHON, workers=2) as nodes, Chief(PYTHON, nodes.env,
                                                    log=tmp_path / "log") as chief:
        absent(nodes)
        chief.begin(24)
        chief.begin(8)
        nodes.kill("worker", 0)
        chief.stepped(), chief.stepped()
        nodes.start("worker", 1)
        chief.begin(16)
        chief.wait_nodes(worker=[1, 2])
        assert chief.stepped() == STEPS
        states = {(n["role"], n["index"]): n["state"] for n in chief.report()["nodes"]}
        assert states["worker", 900] == "joining"
        same(chief.end(), static)


def absent(nodes):
    """Another member, at an address where nobody listens."""
    nobody = Node("worker", 900, 0, None)
    nobody.port = nobody.control_port = 1
    nobody.process = subprocess.Popen(["true"], stdin=subprocess.PIPE)
    nodes.nodes["worker", 900] = nobody
    nodes.set_threads("worker", 900, 1)  # writes the file


def test_a_lost_server_costs_an_interval_at_most(static, tmp_path):
    with cluster(PYTHON, ps=2) as nodes, Chief(PYTHON, nodes.env, log=tmp_path / "log") as chief:
        chief.run(16)
        assert chief.checkpoint() == 16
        chief.run(8)
        before = chief.evaluate()
        nodes.kill("ps", 1)
        # Not those of the checkpoint: a scheduled function comes after the steps before it.
        assert chief.evaluate()[0] == before[0]
        assert chief.run(24) == STEPS
        assert "restarted after step 16" in chief.words()
        same(chief.end(), static)


def test_a_training_is_suspended_and_says_nothing_of_mode_and_slots(tmp_path):
    with cluster(PYTHON, mode="", slots=0) as nodes, Chief(PYTHON, nodes.env,
                                                           log=tmp_path / "log") as chief:
        chief.run(8)
        report = chief.report()
        assert (report["mode"], report["slots"]) == ("sync", 8)
        nodes.suspend()
        wait_until(lambda: suspended(chief), "it is suspended", GUARD_S)
        done = chief.report()["step"]
        chief.begin(8)
        nodes.start("worker", 1)  # comes while nothing goes on
        chief.wait_nodes(worker=[0, 1])
        assert chief.report()["step"] == done == 8
        nodes.suspend(False)
        assert chief.stepped() == 16
        assert chief.end()["seen"] == [2.0] * 256


def test_a_training_that_is_suspended_before_its_first_step_begins_after(static, tmp_path):
    with cluster(PYTHON) as nodes, Chief(PYTHON, nodes.env, log=tmp_path / "log") as chief:
        nodes.suspend()
        wait_until(lambda: suspended(chief), "it is suspended", GUARD_S)
        assert nodes.stop("ps", 0) == 0  # with its variables
        nodes.start("ps", 1)
        nodes.suspend(False)
        assert chief.run(STEPS) == STEPS
        same(chief.end(), static)


def suspended(chief):
    return "suspended" in chief.words()


def test_a_new_chief_resumes(static, tmp_path):
    with cluster(PYTHON, workers=2) as nodes:
        with Chief(PYTHON, nodes.env, log=tmp_path / "log", checkpoints=str(tmp_path)) as chief:
            chief.run(16)
            assert chief.checkpoint() == 16
            chief.begin(20)
        with Chief(PYTHON, nodes.env, log=tmp_path / "log2", checkpoints=str(tmp_path)) as chief:
            assert chief.run(STEPS) == STEPS  # the same program from the beginning
            assert "resuming after step 16" in chief.words()
            same(chief.end(), static)
