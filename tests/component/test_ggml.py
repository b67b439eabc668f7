# SPDX-License-Identifier: Apache-2.0
"""A real ggml under the agent and a real tided: each graph has the number of threads that the target says.

TIDE_PYTHON_TORCH names a Python that has pywhispercpp, whose wheel brings ggml, too.
"""
import pathlib
import platform
import random

import pytest

import program as programs
from daemon import GUARD_S, eventually
from program import TARGETS, TORCH_PYTHON, run, tided  # noqa: F401 (fixtures)

WORK = pathlib.Path(__file__).parent / "ggml" / "work.py"
ASKED = 6  # of work.py
pytestmark = [pytest.mark.skipif(not TORCH_PYTHON, reason="TIDE_PYTHON_TORCH names no Python with pywhispercpp"),
              pytest.mark.skipif(platform.machine() != "x86_64", reason="ggml is malleable on x86-64")]


@pytest.fixture
def program(run):  # noqa: F811
    def start(**env):
        started = run(TORCH_PYTHON, WORK, backend="ggml", OMP_WAIT_POLICY="passive", **env)
        started.expect("begun")
        eventually(lambda: started.row())
        return started
    return start


def follows(program, threads, expected=None, copy="copy"):
    assert program.set(threads)[1]["status"] in ("done", "waiting")
    eventually(lambda: program.ask(f"{copy}.compute()") == str(expected or threads))


def test_each_graph_follows_the_target(program):
    started = program()
    shown = started.row()
    assert shown["malleable"] and shown["max"] == ASKED and shown["version"] == started.ask("copy.version().decode()")
    assert started.ask("copy.compute()") == str(ASKED)
    for threads in (3, 1, 5, 2):
        follows(started, threads)
        started.becomes(active=threads, target=threads)
    follows(started, 8, ASKED)
    started.becomes(active=ASKED)
    started.end()


def test_a_graph_that_runs_keeps_its_number_and_is_waited_for(program):
    started = program()
    follows(started, 4)
    started.tell("say('ran', copy.compute(3), copy.compute())")
    started.expect("within")
    assert started.set(2, deadline_ms=100)[1]["status"] != "done"
    eventually(lambda: started.job()["note"].startswith("waiting for a safe point"))
    started.becomes(active=4, target=2)
    assert started.expect("ran")[1:] == ["4", "2"]
    started.becomes(active=2, target=2, note="")


def test_a_pool_of_the_program(program):
    started = program()
    started.tell(f"copy.use_pool({ASKED})")
    for threads in (2, 5, 1):
        follows(started, threads)
    assert started.row()["malleable"]


def test_a_ggml_without_a_version(program, compiled, build_dir):
    """Ollama's. It may be older than the mend of pools that shrink, so a pool of the program keeps its number."""
    nameless = compiled("ggml/nameless.c", "-shared", "-fPIC")
    started = program(LD_PRELOAD=f"{build_dir / 'libtide-agent.so'}:{nameless}")
    for threads in (3, 5):
        follows(started, threads)
    assert started.row()["version"] == ""
    started.tell(f"copy.use_pool({ASKED})")
    follows(started, 2, ASKED)


def test_a_plan_that_is_kept_keeps_its_number_and_nobody_waits_for_it(program):
    started = program()
    follows(started, 5)
    assert started.ask("globals().update(plan=copy.backend_graph_plan_create(copy.backend, copy.graph))") == "None"
    follows(started, 2)
    assert started.ask("copy.compute_kept(plan)", "copy.compute()") == ["5", "2"]
    assert started.set(3)[1]["status"] == "done"


def test_two_copies_in_a_process(program):
    started = program()
    started.tell("second = Copy(SECOND); second.compute()")
    for threads in (2, 4):
        follows(started, threads)
        follows(started, threads, copy="second")
    assert started.row()["note"] == ""


def test_the_child_of_a_fork_computes(program):
    started = program()
    follows(started, 3)
    assert started.ask("child()", "copy.compute()") == ["1", "3"]


def test_random_targets_and_each_result_is_that_of_its_number_bit_for_bit(program):
    stock = set(programs.plain(TORCH_PYTHON, WORK, "results"))
    assert len(stock) == ASKED
    started, orders = program(), random.Random(57)
    started.tell("say('results', *results())")
    for _ in range(TARGETS):
        started.set(orders.randint(1, 8), deadline_ms=20)
    started.tell("pass")
    graphs, *found = started.expect("results", guard=10 * GUARD_S)[1:]
    assert int(graphs) > 50 and set(found) <= stock and len(found) > 3, (graphs, set(found) - stock)
    started.end()
