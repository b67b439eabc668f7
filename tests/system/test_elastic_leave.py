# SPDX-License-Identifier: Apache-2.0
"""Nodes that are given back leave nothing behind, whenever they are asked to go."""

import contextlib
import re
import socket
import types

import pytest

from elastic import Chief, cluster
from peer import wait_until
from program import tensorflow_pythons

PYTHON = tensorflow_pythons()[0]


@contextlib.contextmanager
def nobody_answers(port):
    """Whoever connects to @port is not even refused, as at the address of a pod that is gone."""
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.socket())
        full.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        full.bind(("127.0.0.1", port))
        full.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        yield


def test_a_new_function_does_not_wait_for_nodes_that_left(tmp_path):
    with cluster(PYTHON, ps=2, workers=2) as nodes, Chief(PYTHON, nodes.env,
                                                          log=tmp_path / "log") as chief:
        chief.run(8)
        ports = [nodes.nodes[key].port for key in (("worker", 0), ("ps", 1))]
        nodes.leave("worker", 0)
        nodes.leave("ps", 1)
        wait_until(lambda: len(nodes.nodes) == 2, "both have ended", 30)
        with nobody_answers(ports[0]), nobody_answers(ports[1]):
            assert chief.function() < 8
            assert chief.run(8) == 16
            chief.end()


def test_nodes_asked_to_leave_as_they_come(tmp_path):
    with cluster(PYTHON) as nodes, Chief(PYTHON, nodes.env, log=tmp_path / "log",
                                         leave_in_between=True) as chief:
        chief.begin(32)
        nodes.start("worker", 1)
        nodes.start("ps", 1)
        wait_until(lambda: len(nodes.nodes) == 2, "both have ended", 30)
        assert chief.stepped() == 32
        end, words = chief.end(), chief.words()
        assert end["seen"] == [4.0] * 256
        assert "worker 1 is released" in words and "ps 1 is released" in words
        assert not any(text in words for text in ("cannot join", "restarted after", "is lost")), words


@pytest.mark.parametrize("count", (1, 2))
def test_a_call_that_is_never_answered_is_made_again(tmp_path, count):
    """Once: by the same worker, which stays; if that is not answered either, by another."""
    with cluster(PYTHON) as nodes, Chief(PYTHON, nodes.env, log=tmp_path / "log",
                                         lose_answers=count) as chief:
        chief.run(4)
        chief.begin(28)
        nodes.start("worker", 1)
        assert chief.stepped() == 32
        assert chief.end()["seen"] == [4.0] * 256
        words = chief.words()
        assert "worker 0 has not answered a call since the cluster changed" in words
        assert ("worker 0 is lost: it does not answer its call" in words) == (count == 2)


def trains(folder, lose, **nodes):
    """The chief's words after sixteen steps, of which each example had its two, whatever was lost."""
    with cluster(PYTHON, **nodes) as found, Chief(PYTHON, found.env, log=folder / "log", lose=lose) as chief:
        assert chief.run(16) == 16
        assert chief.end()["seen"] == [2.0] * 256
        return chief.words()


@pytest.mark.parametrize("after", (0, 16))
def test_a_micro_batch_that_is_never_answered_is_done_again(tmp_path, after):
    """Though nothing in the cluster changes, the first one and a later one."""
    words = trains(tmp_path, ["micro", after, 1])
    assert re.search(r"worker 0 has not answered a call for \d+ s: it is made again", words), words
    assert "is lost" not in words


@pytest.mark.parametrize("again_runs", (True, False))
def test_the_first_answer_counts_of_a_call_that_was_made_again(again_runs):
    from threadtide.tensorflow import dispatch
    dispatcher = dispatch.Dispatcher(types.SimpleNamespace(updated=0.0), lambda: False)
    task = dispatch.Task(None, dispatch.Usual(), repeatable=True)
    node = types.SimpleNamespace(state="in")
    slow, again = (types.SimpleNamespace(node=node, replaced=replaced, doubted=not replaced) for replaced in (True, False))
    dispatcher.submit([task])
    if again_runs:
        assert dispatcher.take(again) is task
    dispatcher.done(task, slow, "slow", 70.0)
    assert task.finished and task.result == "slow" and task.usual.seconds == 70.0 and not dispatcher.running
    dispatcher.done(task, again, "again", 1.0)
    assert task.result == "slow" and not again.doubted
    assert not dispatcher.forget() and not dispatcher.running


def test_a_worker_that_answers_neither_of_two_calls_is_given_up(tmp_path):
    assert "worker 0 is lost: it does not answer its call" in trains(tmp_path, ["micro", 8, 2], workers=2)


@pytest.mark.parametrize("after", (0, 4))
def test_an_application_that_is_never_answered_goes_back_to_the_checkpoint(tmp_path, after):
    """It was done, which nobody can know: all variables are built anew, and no example counts twice."""
    words = trains(tmp_path, ["apply", after, 1])
    assert f"the parameter servers have not applied step {after + 1} for " in words
    assert "restarted after step 0" in words
