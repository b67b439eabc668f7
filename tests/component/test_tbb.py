# SPDX-License-Identifier: Apache-2.0
"""Programs with oneTBB under the agent and a real tided: their number of threads follows targets.

The distribution's libtbb, and the newest one: TIDE_PYTHON_TORCH names a Python that has the package tbb.
"""
import os
import pathlib
import random

import pytest

from daemon import eventually
from program import TARGETS, TORCH_PYTHON, run, tided  # noqa: F401 (fixtures)

NEWEST = pathlib.Path(TORCH_PYTHON or "/").parent.parent / "lib"
CORES = len(os.sched_getaffinity(0))
pytestmark = [
    pytest.mark.skipif(not os.path.exists("/usr/include/oneapi/tbb/global_control.h"), reason="no libtbb-dev here"),
    pytest.mark.skipif(CORES < 2, reason="needs two cores: TBB has no more threads")]


@pytest.fixture(params=["distribution", pytest.param("newest", marks=pytest.mark.skipif(
    not (NEWEST / "libtbb.so.12").exists(), reason="TIDE_PYTHON_TORCH names no Python with tbb"))])
def library(request):
    """The environment for one of the two."""
    return {"LD_LIBRARY_PATH": str(NEWEST)} if request.param == "newest" else {}


@pytest.fixture
def work(compiled):
    def make(*options):
        return compiled("tbb/work.cc", *options, "-ltbb", "-ldl", "-lpthread", cc="g++")
    return make


@pytest.fixture
def program(work, run, library):  # noqa: F811
    def start(*options, **env):
        started = run(work(*options), backend="tbb", **library, **env)
        started.expect("ready")
        eventually(lambda: started.row())
        return started
    return start


def teams(program, loops=5):
    """The fewest and most threads of a loop."""
    program.tell(f"teams {loops}")
    return [int(word) for word in program.expect("teams")[1:]]


def follows(program, threads, expected=None):
    assert program.set(threads)[1]["status"] == "done"
    eventually(lambda: teams(program) == [expected or threads] * 2)


def threads_of(program):
    """Name and blocked signals of each thread but the agent's."""
    found = []
    for task in pathlib.Path(f"/proc/{program.process.pid}/task").iterdir():
        status = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines() if ":\t" in line)
        if status["Name"] != "tide-agent":
            found.append((status["Name"], status["SigBlk"]))
    return found


def test_loops_have_as_many_threads_as_the_target_says(program, library):
    started = program()
    shown = started.row()
    assert shown["malleable"] and shown["max"] == CORES
    assert shown["version"].startswith("2023." if library else "2021.")
    for threads in (1, 2, 1):
        follows(started, threads)
        started.becomes(active=threads, target=threads)
    follows(started, 8, CORES)
    started.becomes(active=CORES)
    started.end()


def test_a_smaller_limit_of_the_program_wins(program):
    started = program()
    started.tell("own 1")
    started.expect("own")
    assert started.set(2)[1]["status"] == "done"
    assert teams(started) == [1, 1]
    started.tell("own 0")
    started.expect("own")
    eventually(lambda: teams(started) == [2, 2])
    started.tell("own 2")
    started.expect("own")
    follows(started, 1)


def test_threads_that_a_target_starts_are_like_the_programs_own(program):
    started = program()
    follows(started, 1)
    started.tell("busy 3")  # the agent's thread starts the others
    eventually(lambda: len(threads_of(started)) == 1)
    started.set(2)
    # A thread that begins has all signals blocked at first, by glibc.
    eventually(lambda: len(found := threads_of(started)) == 2 and len(set(found)) == 1)
    started.expect("was")


def test_tasks_that_nobody_waits_for_are_done_with_one_thread(program):
    started = program()
    follows(started, 1)
    started.tell("enqueue 100")
    started.expect("enqueued", 100)


@pytest.mark.skipif(CORES < 2, reason="TBB has one thread here")
def test_tasks_that_wait_for_each_other_do_not_wait_for_ever(program):
    started = program()
    for _ in range(2):
        follows(started, 1)
        started.tell("wait")
        started.expect("waited")


def test_a_program_that_asks_for_the_limit_keeps_it(work, run, library):  # noqa: F811
    started = run(work("-DASKS"), backend="tbb", **library)
    started.expect("limit", CORES)
    started.expect("ready")
    shown = started.becomes(malleable=False)
    assert shown["note"] == "moldable: the program asks oneTBB for its limit"
    started.set(1, deadline_ms=100)
    assert teams(started)[1] == CORES


def test_a_library_that_asks_meets_the_programs_own_limit(program, work):
    started = program()
    follows(started, 1)
    started.tell(f"load {work('-DLIBRARY', '-shared', '-fPIC')}")
    started.expect("limit", CORES)
    assert "asks oneTBB for its limit" in started.becomes(malleable=False)["note"]
    eventually(lambda: teams(started)[1] == CORES)


def test_the_child_of_a_fork_and_its_parent_go_on(program):
    started = program()
    for threads in (2, 1):
        follows(started, threads)
        started.tell("fork")
        started.expect("child", 0)
    follows(started, 2)
    started.end()


def test_threads_that_tcm_gives_are_left_alone(program):
    started = program(TCM_ENABLE="1")
    assert started.row()["note"] == "moldable: TCM decides about oneTBB's threads"


def test_a_program_may_end_at_any_moment(program):
    dice = random.Random(58)
    for _ in range(10):
        started = program()
        for _ in range(dice.randint(1, 5)):
            started.tell("teams 1")
            started.set(dice.randint(1, 2), deadline_ms=1)
        started.end()


def test_exceptions_come_out_of_loops_under_random_targets(program):
    started, dice = program(), random.Random(15)
    follows(started, 1)
    for _ in range(30):
        started.tell("throws 200")
        started.set(dice.randint(1, 2), deadline_ms=100)
        started.expect("caught", 200)
    follows(started, 2)
    started.end()


def test_sums_are_equal_under_random_targets(program):
    started, dice = program(), random.Random(14)
    targets, answers = 0, []
    started.tell("check 300")
    while not answers:
        started.set(dice.randint(1, 3), deadline_ms=2000)
        targets += 1
        while not started.words.empty():
            word = started.words.get()
            answers += [word[0]] if word[0] in ("equal", "different", "ended") else []
        if targets < TARGETS and answers == ["equal"]:
            answers.clear()
            started.tell("check 300")
    assert answers == ["equal"]
    started.end()
