# SPDX-License-Identifier: Apache-2.0
"""A real XGBoost under the agent and a real tided: its threads follow targets between two of its calls.

TIDE_PYTHON_TORCH names a Python that has XGBoost, scikit-learn, LightGBM and threadpoolctl, too.
"""
import os
import pathlib
import random
import subprocess

import pytest

from daemon import GUARD_S, eventually
from program import run  # noqa: F401 (a fixture)

PYTHON = os.environ.get("TIDE_TORCH_PYTHON") or os.environ.get("TIDE_PYTHON_TORCH")  # of check.py; the user's
WORK = pathlib.Path(__file__).parent / "xgboost" / "work.py"
STEPS = 40
pytestmark = pytest.mark.skipif(not PYTHON, reason="TIDE_PYTHON_TORCH names no Python with XGBoost")


@pytest.fixture
def tided(place):
    return place.daemon("--cpus", "0-7").start()


@pytest.fixture
def program(run):  # noqa: F811
    def start(**env):
        started = run(PYTHON, WORK, **env)
        started.expect("begun")
        eventually(lambda: (shown := row(started)) and shown["version"])
        return started
    return start


def row(program):
    return next((b for b in program.job()["backends"] if b["name"] == "xgboost"), None)


def becomes(program, **values):
    def as_wanted():
        shown = row(program)
        return shown and all(shown[name] == value for name, value in values.items()) and shown
    return eventually(as_wanted)


def ask(program, *expressions):
    program.tell(f"say('answer', {', '.join(expressions)})")
    answer = program.expect("answer")[1:]
    return answer[0] if len(answer) == 1 else answer


def follows(program, threads, expected=None):
    assert program.set(threads)[1]["status"] in ("done", "waiting")
    eventually(lambda: ask(program, "number()") == str(expected or threads))


def plain(*words, **env):
    """What a training without the agent says."""
    stock = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("TIDE_")}
    return subprocess.run([PYTHON, WORK, *map(str, words)], env={**stock, **env}, check=True, capture_output=True,
                          text=True, timeout=10 * GUARD_S).stdout.splitlines()[-1].split()


def test_the_number_follows_the_target(program):
    started = program()
    shown = row(started)
    assert shown["malleable"] and shown["max"] == 8 and shown["version"].startswith("3.")
    for threads in (3, 1, 8, 2, 5):
        follows(started, threads)
        assert int(ask(started, "team()")) == min(threads, len(os.sched_getaffinity(0)))
        becomes(started, active=threads, target=threads)
    started.end()


def test_what_the_user_has_set_is_the_most(program):
    started = program(OMP_NUM_THREADS="4")
    assert row(started)["max"] == 4
    follows(started, 3)
    follows(started, 6, 4)


def test_it_changes_between_two_calls_only(program):
    """XGBoost calls Python for the parts of a matrix, and goes on with what it has built for its first number."""
    started = program()
    follows(started, 3)
    started.tell("say('seen', *numbers_within(3))")
    started.expect("building")
    assert started.set(6, deadline_ms=800)[1]["status"] != "done"
    eventually(lambda: started.job()["note"].startswith("waiting for a safe point"))
    assert started.expect("seen")[1:] == ["3"]
    eventually(lambda: ask(started, "number()") == "6")


def test_other_threads_and_children_have_stocks_number(program):
    started = program()
    own = ask(started, "own")
    for threads in (5, 1):
        follows(started, threads)
        assert ask(started, "elsewhere(number)", "in_child()", "number()") == [own, own, str(threads)]


def test_who_sleeps_within_a_call_has_not_come_to_a_safe_point(program):
    started = program()
    follows(started, 3)
    started.tell("time.sleep(1.5)")  # outside: the number is there before the next call
    assert started.set(5)[1]["status"] == "done"
    started.tell("say('number', number())")
    assert started.expect("number") == ["number", "5"]


def test_a_number_that_the_program_has_set_is_the_most(run):  # noqa: F811
    started = run(PYTHON, WORK, TIDE_XGBOOST_LIMIT="4")
    started.expect("begun")
    shown = eventually(lambda: (shown := row(started)) and shown["version"] and shown)
    assert shown["max"] == 4
    follows(started, 8, 4)
    follows(started, 2)


def test_a_limit_of_threadpoolctl_holds_until_it_ends(program):
    started = program()
    follows(started, 5)
    started.tell("import threadpoolctl; limit = threadpoolctl.threadpool_limits(4, 'openmp')")
    assert ask(started, "number()", "in_child()") == ["4", "4"]
    started.set(2)
    for _ in range(20):
        assert ask(started, "number()") == "4"
    becomes(started, note="a library has set the number of threads itself")
    started.tell("limit.restore_original_limits()")
    eventually(lambda: ask(started, "number()") == "2")
    becomes(started, note="")


def test_scikit_learn_may_share_its_openmp_and_others_may_not(program, tmp_path):
    started = program()
    follows(started, 3)
    started.tell("import sklearn.cluster, sklearn.ensemble, lightgbm")  # LightGBM has another copy
    assert ask(started, "len(sklearn.cluster.KMeans(2).fit(data(100)[0]).labels_)") == "100"
    follows(started, 5)
    assert row(started)["malleable"]
    library = ask(started, "copy()._name")
    other = tmp_path / "libother.so"
    (tmp_path / "other.c").write_text("int omp_get_max_threads(void); int most(void) { return omp_get_max_threads(); }")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", other, tmp_path / "other.c", library], check=True)
    started.tell(f"other = ctypes.CDLL({str(other)!r})")
    shown = becomes(started, malleable=False)
    assert shown["note"] == "moldable: libother.so uses XGBoost's OpenMP, too"
    eventually(lambda: ask(started, "other.most()") == ask(started, "own"))


def test_a_training_whose_target_never_moves_is_bitwise_stocks(program):
    own = len(os.sched_getaffinity(0))
    started = program(TIDE_MAX=str(own))
    becomes(started, target=own, active=own)
    assert ask(started, f"*training({STEPS})") == plain("training", STEPS)


def test_random_targets_leave_the_errors_in_the_range_of_fixed_numbers(program):
    fixed = [[float(error) for error in plain("training", 5 * STEPS, n)[1:]] for n in (1, 2, 3, 5, 8)]
    ranges = [(min(errors), max(errors)) for errors in zip(*fixed)]
    started, orders = program(), random.Random(7)
    started.tell(f"say('errors', *training(5 * {STEPS})[1:])")
    for _ in range(300):
        started.set(orders.randint(1, 8), deadline_ms=20)
    errors = [float(error) for error in started.expect("errors", guard=10 * GUARD_S)[1:]]
    outside = [(step, error, ends) for step, (error, ends) in enumerate(zip(errors, ranges))
               if not ends[0] * (1 - 1e-4) <= error <= ends[1] * (1 + 1e-4)]
    assert len(errors) == 5 * STEPS and not outside, outside[:3]
    started.end()
