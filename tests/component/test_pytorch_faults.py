# SPDX-License-Identifier: Apache-2.0
"""Faults of a PyTorch program's own making, while targets move at random: it fares as without the agent.

TIDE_PYTHON_TORCH names a Python that has PyTorch, scikit-learn and XGBoost.
"""
import contextlib
import os
import pathlib
import random
import subprocess
import sys
import sysconfig

import pytest

import program as programs
from program import LONG_S, TORCH_PYTHON, run, tided  # noqa: F401 (fixtures)
from restless import moving

FOLDER = pathlib.Path(__file__).parent / "pytorch"
pytestmark = pytest.mark.skipif(not TORCH_PYTHON, reason="TIDE_PYTHON_TORCH names no Python with PyTorch")


@pytest.fixture
def restless(run):  # noqa: F811
    """A program whose target moves until the test ends: PyTorch's threads follow, or the test fails."""
    with contextlib.ExitStack() as until_the_end:
        def start(python=TORCH_PYTHON, **env):
            program = run(python, FOLDER / "work.py", backend="pytorch", **env)
            program.shown()
            until_the_end.enter_context(moving(program.tided, lambda: [program.job()], 17, "pytorch", pause=(0.005, 0.03),
                                               deadline_ms=10))
            program.tell("import faults; say('imported')")
            program.expect("imported", guard=LONG_S)
            return program
        yield start


def test_signals_without_end(restless):
    assert restless().ask("*faults.storm(lambda: train(*model(64, 64)), 3)") == ["True", "True"]


def test_exceptions_in_backward_passes(restless):
    assert restless().ask("faults.exceptions(200)") == "200"


def test_sub_interpreters(restless):
    assert restless().ask("faults.other_interpreters(50)") == "50"


def test_children_that_end_at_once(restless):
    assert restless().ask("*faults.forks(200)") == "1"


def test_four_libraries_in_one_process(restless):
    stock = programs.plain(TORCH_PYTHON, "-c", f"import sys; sys.path.append({str(FOLDER)!r}); import faults; print(*faults.together(5))")
    assert restless().ask("*faults.together(5)") == stock


@pytest.mark.skipif(not os.environ.get("TIDE_SOAK"), reason="TIDE_SOAK is not set")
def test_tensorflow_in_the_same_process(restless):
    """This Python's, which both kinds of packages have to be made for."""
    there = subprocess.run([TORCH_PYTHON, "-c", "import sys, sysconfig; print(sys.version_info[:2], sysconfig.get_path('purelib'))"],
                           check=True, capture_output=True, text=True).stdout.rsplit(maxsplit=1)
    if there[0] != str(sys.version_info[:2]):
        pytest.skip("the two environments have different Pythons")
    env = {"PYTHONPATH": f"{sysconfig.get_path('purelib')}:{there[1]}", "TF_CPP_MIN_LOG_LEVEL": "3"}
    stock = programs.plain(sys.executable, "-c",
                           f"import sys; sys.path.append({str(FOLDER)!r}); import faults; print(*faults.beside_tensorflow(5))", **env)
    program = restless(sys.executable, **env)
    assert program.ask("*faults.beside_tensorflow(5)") == stock
    assert {b["name"] for b in program.job()["backends"] if b["malleable"]} >= {"tensorflow", "pytorch", "xgboost"}


@pytest.mark.parametrize("end", ["sys.exit(3)", "os._exit(3)", "threading.Thread(target=lambda: os._exit(3)).start() or time.sleep(9)"])
def test_it_ends_with_its_own_status_in_the_middle_of_orders(tided, build_dir, end):  # noqa: F811
    """Three programs, each told to move while it ends."""
    code = ("import os, sys, threading, time, torch; x = torch.randn(300, 300)\n"
            "[(x @ x).sin() for _ in range(200)]; print('here', flush=True); " + end)
    env = {**os.environ, **programs.WAITS, "LD_PRELOAD": str(build_dir / "libtide-agent.so"), "TIDE_MAX": "8",
           "TIDE_SOCKET": str(tided.dir / "agent.sock")}
    started = [subprocess.Popen([TORCH_PYTHON, "-c", code], env=env, stdout=subprocess.PIPE) for _ in range(3)]
    orders = random.Random(9)
    while any(process.poll() is None for process in started):
        for job in tided.jobs():
            tided.api("PATCH", f"/v1/jobs/{job['id']}", {"threads": orders.randint(1, 8), "deadline_ms": 10})
    assert [(process.returncode, process.stdout.read()) for process in started] == [(3, b"here\n")] * 3
