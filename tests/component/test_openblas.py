# SPDX-License-Identifier: Apache-2.0
"""NumPy's own OpenBLAS under the agent and a real tided: its threads follow targets."""
import json
import os
import pathlib
import random
import re
import subprocess
import sys

import pytest

import program as programs
from daemon import GUARD_S, eventually
from program import LONG_S, SOAK, run, tided  # noqa: F401 (fixtures)

WORK = pathlib.Path(__file__).parent / "openblas" / "work.py"
pytest.importorskip("numpy")


@pytest.fixture
def program(run):  # noqa: F811
    def start(**env):
        started = run(sys.executable, WORK, backend="openblas", **{"TIDE_OPENBLAS_POOL": "8", **env})
        started.expect("begun")
        started.becomes(max=int(started.ask("pool()")))
        return started
    return start


def stocks(*numbers):
    """All results without the agent, for these numbers of threads."""
    return {word for n in numbers for word in programs.plain(sys.executable, WORK, "products", n)}


def test_the_number_follows_the_target(program):
    started = program()
    shown = started.shown()
    assert shown["malleable"] and shown["max"] == 8 and shown["version"].startswith("0.3.")
    for threads in (3, 1, 8, 2, 5):
        started.follows(threads)
        assert int(started.ask("team(lambda: [left @ right for _ in range(40)])")) == threads
        started.becomes(active=threads, target=threads)
    started.end()


def test_doctor_explain_and_ps_tell_the_size_of_its_pool(program, build_dir):
    """The agent has reported it. A process without one is in test_doctor.py."""
    started = program()
    started.follows(3)
    started.becomes(active=3)
    job, pid = started.job(), started.process.pid

    def tide(*words):
        return subprocess.run([build_dir / "tide", *words], env={**os.environ, "TIDE_DIR": str(started.tided.dir)}, text=True,
                              capture_output=True, timeout=GUARD_S).stdout
    doctor = json.loads(tide("doctor", str(pid), "--json"))["runtimes"]
    explain = next(p for p in json.loads(tide("explain", job["id"], "--json"))["processes"] if p["pid"] == pid)["runtimes"]
    for runtimes in (doctor, explain):
        shown = next(runtime for runtime in runtimes if runtime["name"] == "openblas")
        assert shown["version"].startswith("0.3.") and shown["reported"] and shown["except"] is None
        assert (shown["kind"], shown["max"], shown["active"], shown["inter"]) == ("malleable", 8, 3, None)
    for text in (tide("doctor", str(pid)), tide("explain", job["id"])):
        assert re.search(r"  openblas 0\.3\.\S+: malleable \(.*\), pool of 8, 3 active\n", text), text
    listed = f"process {pid}: openblas {started.row()['version']}: malleable, pool of 8, 3 active\n"
    assert listed in tide("ps", "--verbose")


def test_it_never_has_more_than_it_began_with(program):
    started = program(TIDE_OPENBLAS_POOL="4")
    assert started.row()["max"] == 4
    started.follows(3)
    started.follows(6, 4)


def test_without_a_daemon_the_number_follows_the_processors_that_it_may_use(run):  # noqa: F811
    started = run(sys.executable, WORK, TIDE_SOCKET="")
    started.expect("begun")
    for cpus in ({0}, {0, 1}, {1}):
        started.may_use(cpus)
        eventually(lambda: started.ask("number()") == str(len(cpus)))
    started.end()


@pytest.mark.parametrize("chosen", ({"OPENBLAS_NUM_THREADS": "2"}, {"TIDE_OPENBLAS_POOL": "3"}), ids=["variable", "call"])
def test_without_a_daemon_the_number_that_the_user_chose_stays(run, chosen):  # noqa: F811
    started = run(sys.executable, WORK, TIDE_SOCKET="", **chosen)
    started.expect("begun")
    number = started.ask("number()")
    assert number == chosen.get("OPENBLAS_NUM_THREADS", "3")
    started.may_use({0})
    assert {started.ask("threading.Event().wait(0.1)", "number()")[1] for _ in range(10)} == {number}
    started.end()


def test_without_a_daemon_a_size_that_tide_set_at_the_start_is_nobodys_choice(run):  # noqa: F811
    """The second row of src/base/startup.c is OMP_NUM_THREADS."""
    started = run(sys.executable, WORK, TIDE_SOCKET="", OMP_NUM_THREADS="2", TIDE_STARTUP="2:0:2")
    started.expect("begun")
    for cpus in ({0}, {0, 1}):
        started.may_use(cpus)
        eventually(lambda: started.ask("number()") == str(len(cpus)))
    started.end()


def test_a_program_with_one_thread_is_left_alone(run, tided):  # noqa: F811
    started = run(sys.executable, WORK, OPENBLAS_NUM_THREADS="1")
    started.expect("begun")
    assert [started.ask("number()") for _ in range(3)] == ["1"] * 3
    assert tided.jobs() == []


def test_another_threads_product_follows_as_well(program):
    started = program()
    started.follows(5)
    assert started.ask("elsewhere(number)") == "5"
    started.follows(2)
    assert started.ask("elsewhere(number)") == "2"


def test_a_number_that_somebody_sets_holds_until_it_is_put_back(program):
    started = program()
    started.follows(5)
    assert started.ask("set_number(4)", "number()") == ["None", "4"]  # as threadpoolctl.threadpool_limits() does
    started.set(2)
    for _ in range(20):
        assert started.ask("number()") == "4"
    started.becomes(note="a library has set the number of threads itself")
    assert started.ask("set_number(5)") == "None"
    eventually(lambda: started.ask("number()") == "2")
    started.becomes(note="")


def test_the_child_of_a_fork_computes_with_stocks_number(program):
    started = program()
    started.follows(3)
    assert started.ask("*in_child(number)") == "8"
    assert set(started.ask("*in_child(lambda: ' '.join(product()))")) <= stocks(8)
    started.follows(5)


def test_products_are_bitwise_stocks_when_the_target_never_moves(program):
    own = len(os.sched_getaffinity(0))
    started = program(TIDE_MAX=str(own), TIDE_OPENBLAS_POOL=str(own))
    assert set(started.ask("*product()")) == stocks(own)


def test_random_targets_leave_each_result_as_one_of_a_fixed_number(program):
    """A call keeps the number with which it began, so no result is of two numbers."""
    fixed, started, orders = stocks(*range(1, 9)), program(), random.Random(55)
    assert len(fixed) > 2, "the sum does not show the number of threads"
    products, changes = (6000, 5000) if SOAK else (400, 300)
    started.tell(f"say('products', *in_threads(2, {products}))")
    for _ in range(changes):
        started.set(orders.randint(1, 8), deadline_ms=20)
    assert set(started.expect("products", guard=LONG_S)[1:]) <= fixed
    started.follows(1)
    started.end()
