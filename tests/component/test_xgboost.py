# SPDX-License-Identifier: Apache-2.0
"""A real XGBoost under the agent and a real tided: its threads follow targets between two of its calls.

TIDE_PYTHON_TORCH names a Python that has XGBoost, scikit-learn, LightGBM and threadpoolctl, too.
"""
import os
import pathlib
import random
import subprocess

import pytest

import program as programs
from daemon import eventually
from program import LONG_S, ROUNDS, TORCH_PYTHON, run, tided  # noqa: F401 (fixtures)

WORK = pathlib.Path(__file__).parent / "xgboost" / "work.py"
STEPS = 40
pytestmark = pytest.mark.skipif(not TORCH_PYTHON, reason="TIDE_PYTHON_TORCH names no Python with XGBoost")


@pytest.fixture
def program(run):  # noqa: F811
    def start(**env):
        started = run(TORCH_PYTHON, WORK, backend="xgboost", **env)
        started.expect("begun")
        started.shown()
        return started
    return start


def plain(*words):
    """The words of a training without the agent."""
    return programs.plain(TORCH_PYTHON, WORK, *words)


def test_the_number_follows_the_target(program):
    started = program()
    shown = started.row()
    assert shown["malleable"] and shown["max"] == 8 and shown["version"].startswith("3.")
    for threads in (3, 1, 8, 2, 5):
        started.follows(threads)
        assert int(started.ask("team(lambda: training(3))")) == min(threads, len(os.sched_getaffinity(0)))
        started.becomes(active=threads, target=threads)
    started.end()


def test_what_the_user_has_set_is_the_most(program):
    started = program(OMP_NUM_THREADS="4")
    assert started.row()["max"] == 4
    started.follows(3)
    started.follows(6, 4)


def test_growth_ends_where_a_limit_is(program):
    """libgomp ends a program for which it cannot make a thread."""
    started = program()
    started.follows(2)
    started.limits_memory(64 << 20)
    started.set(8)
    row = started.becomes(note="limits of the process leave no room for more threads")
    assert 2 <= row["active"] < 8
    started.limits_memory(None)
    started.becomes(note="", active=8)
    assert int(started.ask("team(lambda: training(3))")) == min(8, len(os.sched_getaffinity(0)))
    started.end()


def test_it_changes_between_two_calls_only(program):
    """XGBoost calls Python for the parts of a matrix, and goes on with what it has built for its first number."""
    started = program()
    started.follows(3)
    started.tell("say('seen', *numbers_within(3))")
    started.expect("building")
    assert started.set(6, deadline_ms=800)[1]["status"] != "done"
    eventually(lambda: started.job()["note"].startswith("waiting for a safe point"))
    assert started.expect("seen")[1:] == ["3"]
    eventually(lambda: started.ask("number()") == "6")


def test_other_threads_and_children_have_stocks_number(program):
    started = program()
    own = started.ask("own")
    for threads in (5, 1):
        started.follows(threads)
        assert started.ask("elsewhere(number)", "*in_child(number)", "number()") == [own, own, str(threads)]


def test_who_sleeps_within_a_call_has_not_come_to_a_safe_point(program):
    started = program()
    started.follows(3)
    started.tell("time.sleep(1.5)")  # outside: the number is there before the next call
    assert started.set(5)[1]["status"] == "done"
    started.tell("say('number', number())")
    assert started.expect("number") == ["number", "5"]


def test_a_number_that_the_program_has_set_is_the_most(run):  # noqa: F811
    started = run(TORCH_PYTHON, WORK, backend="xgboost", TIDE_XGBOOST_LIMIT="4")
    started.expect("begun")
    assert started.shown()["max"] == 4
    started.follows(8, 4)
    started.follows(2)


def test_a_limit_of_threadpoolctl_holds_until_it_ends(program):
    started = program()
    started.follows(5)
    started.tell("import threadpoolctl; limit = threadpoolctl.threadpool_limits(4, 'openmp')")
    assert started.ask("number()", "*in_child(number)") == ["4", "4"]
    started.set(2)
    for _ in range(20):
        assert started.ask("number()") == "4"
    started.becomes(note="a library has set the number of threads itself")
    started.tell("limit.restore_original_limits()")
    eventually(lambda: started.ask("number()") == "2")
    started.becomes(note="")


def test_a_limit_on_blas_that_ends_after_the_next_target_puts_back_the_programs_own_number(program):
    """threadpoolctl puts back the numbers of all libraries, as scikit-learn has it do around its fits."""
    started = program()
    started.tell("import threadpoolctl")
    started.tell("told = lambda: [x['num_threads'] for x in threadpoolctl.threadpool_info() if x['filepath'] == copy()._name]")
    for before, after in ((5, 7), (1, 3), (3, 1)):
        started.follows(before)
        started.tell("limits = threadpoolctl.threadpool_limits(1, user_api='blas')")
        assert started.ask("number()") == str(before)
        started.follows(after)
        assert started.ask("*told()", "own") == [started.ask("own")] * 2
        started.tell("limits.restore_original_limits()")
        eventually(lambda: started.ask("number()") == str(after))
    started.becomes(note="")
    # A limit that is the target's number holds, too.
    started.follows(3)
    started.tell("limits = threadpoolctl.threadpool_limits(3, user_api='openmp')")
    assert started.ask("number()") == "3"
    started.set(6)
    for _ in range(20):
        assert started.ask("number()") == "3"
    started.tell("limits.restore_original_limits()")
    eventually(lambda: started.ask("number()") == "6")


def test_scikit_learn_may_share_its_openmp_and_others_may_not(program, tmp_path):
    started = program()
    started.follows(3)
    started.tell("import sklearn.cluster, sklearn.ensemble, lightgbm")  # LightGBM has another copy
    assert started.ask("len(sklearn.cluster.KMeans(2).fit(data(100)[0]).labels_)") == "100"
    started.follows(5)
    assert started.row()["malleable"]
    library = started.ask("copy()._name")
    other = tmp_path / "libother.so"
    (tmp_path / "other.c").write_text("int omp_get_max_threads(void); int most(void) { return omp_get_max_threads(); }")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", other, tmp_path / "other.c", library], check=True)
    started.tell(f"other = ctypes.CDLL({str(other)!r})")
    shown = started.becomes(malleable=False)
    assert shown["note"] == "moldable: libother.so uses XGBoost's OpenMP, too"
    eventually(lambda: started.ask("other.most()") == started.ask("own"))


def test_a_training_whose_target_never_moves_is_bitwise_stocks(program):
    own = len(os.sched_getaffinity(0))
    started = program(TIDE_MAX=str(own))
    started.becomes(target=own, active=own)
    assert started.ask(f"*training({STEPS})") == plain("training", STEPS)


def test_random_targets_leave_the_errors_in_the_range_of_fixed_numbers(program):
    fixed = [[float(error) for error in plain("training", 5 * STEPS, n)[1:]] for n in (1, 2, 3, 5, 8)]
    ranges = [(min(errors), max(errors)) for errors in zip(*fixed)]
    started, orders = program(), random.Random(7)
    for _ in range(ROUNDS):
        started.tell(f"say('errors', *training(5 * {STEPS})[1:])")
        for _ in range(300):
            started.set(orders.randint(1, 8), deadline_ms=20)
        errors = [float(error) for error in started.expect("errors", guard=LONG_S)[1:]]
        outside = [(step, error, ends) for step, (error, ends) in enumerate(zip(errors, ranges))
                   if not ends[0] * (1 - 1e-4) <= error <= ends[1] * (1 + 1e-4)]
        assert len(errors) == 5 * STEPS and not outside, outside[:3]
    started.end()
