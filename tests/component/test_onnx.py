# SPDX-License-Identifier: Apache-2.0
"""A real ONNX Runtime under the agent and a real tided: each of its parallel loops begins with the target's threads.

TIDE_PYTHON_TORCH names a Python that has ONNX Runtime, too.
"""
import os
import pathlib
import random
import subprocess

import pytest

import program as programs
from daemon import GUARD_S, eventually
from program import ROUNDS, TORCH_PYTHON, run, tided  # noqa: F401 (fixtures)

WORK = pathlib.Path(__file__).parent / "onnx" / "work.py"
CORES = len(os.sched_getaffinity(0))
SIZED_BY_TIDE = {"TIDE_STARTUP": "3:8:400", "ORT_INTRA_OP_NUM_THREADS": "3"}  # as `tide run --request 3 --max 8`
pytestmark = pytest.mark.skipif(not TORCH_PYTHON, reason="TIDE_PYTHON_TORCH names no Python with ONNX Runtime")


@pytest.fixture
def program(run):  # noqa: F811
    def start(*words, **env):
        started = run(TORCH_PYTHON, WORK, *words, backend="onnxruntime", **env)
        started.expect("begun")
        eventually(lambda: (shown := started.row()) and shown["version"])
        return started
    return start


def follows(program, threads, expected=None):
    expected = expected or threads
    assert program.set(threads)[1]["status"] == "done"
    program.becomes(active=expected)
    eventually(lambda: int(program.ask("team()")) <= expected)


def plain(expression):
    """Its value without the agent, in words."""
    return programs.plain(TORCH_PYTHON, WORK, "say", expression)[1:]


def random_targets(program, seed, count=300):
    orders = random.Random(seed)
    for _ in range(count):
        program.set(orders.randint(1, 8), deadline_ms=20)


def test_loops_follow_the_target(program):
    started = program()
    shown = started.row()
    assert shown["malleable"] and shown["max"] == 8 and shown["version"].startswith("1.")
    for threads in (3, 1, 8, 2, 5):
        follows(started, threads)
        if threads > 1 and CORES > 1:  # a helper that comes too late for all loops has used no time
            eventually(lambda: int(started.ask("team()")) > 1)
    started.end()


def test_the_sessions_number_is_the_most(program):
    started = program(3)
    assert started.row()["max"] == 3
    follows(started, 8, 3)
    follows(started, 2)


def test_what_the_user_has_set_is_the_most(program):
    started = program(0, ORT_INTRA_OP_NUM_THREADS="4")
    assert started.row()["max"] == 4
    follows(started, 6, 4)
    follows(started, 1)


def test_a_size_that_tide_has_chosen_may_grow(program):
    started = program(0, **SIZED_BY_TIDE)
    assert started.row()["max"] == 8
    follows(started, 2)
    follows(started, 8)
    assert started.ask("os.environ['ORT_INTRA_OP_NUM_THREADS']") == "3"


def test_a_session_of_one_thread_has_no_pool(run, tided):  # noqa: F811
    started = run(TORCH_PYTHON, WORK, 1, backend="onnxruntime")
    started.expect("begun")
    assert started.ask("team()") == "1"
    assert not [b for j in tided.jobs() for b in j["backends"] if b["name"] == "onnxruntime"]
    started.end()


@pytest.mark.parametrize("made", ["layers()", "branches()", "recurrent()", "branches(), parallel=True"])
def test_results_are_bitwise_stocks_whatever_the_targets(program, made):
    """A loop is divided by the pool's size, and who computes which part of it does not matter."""
    want = plain(f"digests(session(8, {made}), 200)")
    started = program()
    started.tell(f"one = session(8, {made})")
    assert [started.ask("digests(one, 200)")] == want  # the target has not moved
    for n in range(ROUNDS):
        started.tell("say('sum', digests(one, 200))")
        random_targets(started, 7 + n)
        assert started.expect("sum", guard=10 * GUARD_S)[1:] == want
    for threads in (1, 3):
        follows(started, threads)
        assert [started.ask("digests(one, 200)")] == want
    started.end()


def test_a_pool_that_begins_small_computes_as_stocks_large_one(program):
    started = program(0, **SIZED_BY_TIDE)
    assert [started.ask("digests(main_session, 20)")] == plain("digests(session(8), 20)")


def test_loops_that_the_pools_own_threads_lead(program):
    """run_async() hands a step to the pool: it is run though no helper may be active."""
    want = plain("' '.join(digest(one, step) for one in [session()] for step in range(20))")
    started = program()
    for threads in (1, 4):
        follows(started, threads)
        assert started.ask("*(asynchronously(main_session, step) for step in range(20))") == want
    follows(started, 2)


def test_two_sessions_in_two_threads_share_the_target(program):
    want = plain("' '.join(digests(session(n), 40) for n in (8, 5))")
    started = program()
    started.tell("both = [session(8), session(5)]")
    for seed in (1, 2):
        started.tell("say('sums', *side_by_side(both, 40))")
        random_targets(started, seed, 100)
        assert started.expect("sums", guard=10 * GUARD_S)[1:] == want
    follows(started, 3)
    started.end()


def test_sessions_are_made_and_destroyed_under_random_targets(program):
    want = plain("digests(session(), 2)")
    started = program()
    started.tell("sums = set(); [sums.add(digests(session(), 2)) for _ in range(60)]; say('sums', *sums)")
    random_targets(started, 3)
    assert started.expect("sums", guard=10 * GUARD_S)[1:] == want
    follows(started, 2)
    started.end()


def test_a_step_that_fails_changes_nothing(program):
    started = program()
    started.tell("failing = session(8, picking())")
    for threads in (5, 1, 3):
        follows(started, threads)
        assert started.ask("all(fails(failing) for _ in range(20))") == "True"
    follows(started, 8)
    started.end()


def test_the_child_of_a_fork_computes_and_the_parent_follows(program):
    want = plain("digests(session(), 3)")
    started = program()
    for threads in (4, 1):
        follows(started, threads)
        assert [started.ask("*in_child(lambda: digests(session(), 3))")] == want
    follows(started, 3)
    started.end()


@pytest.mark.skipif(CORES < 2, reason="one core: nobody can be bound to another")
def test_workers_do_not_bind_themselves(program):
    made = "session(3, session__intra_op_thread_affinities='1;2')"
    assert plain(f"(lambda one: bound(2, {GUARD_S}))({made})") == ["2"], "stock does not bind them"
    assert program().ask(f"(lambda one: bound(2, 1))({made})") == "0"


@pytest.fixture
def library(tmp_path):
    """Has the name of ONNX Runtime's, and nothing that we know of it."""
    path = tmp_path / "libonnxruntime.so.9.9.9"
    (tmp_path / "other.c").write_text("int answer(void) { return 42; }")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", path, tmp_path / "other.c"], check=True)
    return path


def test_an_unknown_library_is_left_alone(run, library):  # noqa: F811
    started = run(TORCH_PYTHON, "-c", f"import ctypes; print('said', ctypes.CDLL({str(library)!r}).answer(), flush=True); input()",
                  backend="onnxruntime")
    assert started.expect("said") == ["said", "42"]
    shown = started.becomes(malleable=False)
    assert shown["note"] == "moldable: an unknown ONNX Runtime" and shown["version"] == "9.9.9"


def test_beside_an_unknown_library_pools_have_their_own_number(program, library):
    started = program()
    follows(started, 1)
    assert started.ask(f"ctypes.CDLL({str(library)!r}).answer()") == "42"
    started.becomes(malleable=False, target=8)
    if CORES > 1:
        eventually(lambda: int(started.ask("team()")) > 1)


def test_the_agent_can_be_turned_off(run, tided):  # noqa: F811
    started = run(TORCH_PYTHON, WORK, backend="onnxruntime", TIDE_DISABLE="1")
    started.expect("begun")
    assert [started.ask("digests(main_session, 5)")] == plain("digests(session(), 5)")
    assert tided.jobs() == []
    started.end()
