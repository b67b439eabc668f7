# SPDX-License-Identifier: Apache-2.0
"""llama.cpp's real server under the agent and a real tided: tokens and prompts are computed with the target's threads.

TIDE_PYTHON_TORCH names a Python that has xllamacpp, whose wheel contains the server.
"""
import pathlib
import platform
import random
import subprocess

import pytest

import program as programs
from daemon import GUARD_S, eventually
from program import TARGETS, TORCH_PYTHON, run, tided  # noqa: F401 (fixtures)

FOLDER = pathlib.Path(__file__).parent / "llama"
WORK = FOLDER / "work.py"
MOST = 6  # of work.py
pytestmark = [pytest.mark.skipif(not TORCH_PYTHON or subprocess.run([TORCH_PYTHON, "-c", "import xllamacpp"]).returncode,
                                 reason="TIDE_PYTHON_TORCH names no Python with xllamacpp"),
              pytest.mark.skipif(platform.machine() != "x86_64", reason="ggml is malleable on x86-64")]


@pytest.fixture
def model(tmp_path):
    subprocess.run([TORCH_PYTHON, FOLDER / "model.py", tmp_path / "model.gguf"], check=True, timeout=GUARD_S)
    return tmp_path / "model.gguf"


@pytest.fixture
def program(run, model):  # noqa: F811
    def start(*threads, **env):
        started = run(TORCH_PYTHON, WORK, model, *threads, backend="ggml", OMP_WAIT_POLICY="passive", **env)
        started.expect("begun")
        eventually(lambda: started.row())
        return started
    return start


def test_tokens_and_prompts_have_the_targets_threads(program):
    started = program(MOST)
    shown = started.row()
    assert shown["malleable"] and shown["max"] == MOST and shown["version"]
    assert started.ask("number()", "for_prompts()") == [str(MOST)] * 2
    for threads in (3, 1, 5, 2):
        started.follows(threads)
        assert started.ask("for_prompts()") == str(threads)
        started.becomes(active=threads, target=threads)
    started.follows(8, MOST)
    started.becomes(active=MOST)
    started.end()


def test_a_number_for_tokens_and_another_one_for_prompts(program):
    """As llama-server has it (-t, -tb): each is the most of its own graphs."""
    started = program(2, MOST)
    assert started.row()["max"] == MOST
    assert started.ask("number()", "for_prompts()") == ["2", str(MOST)]
    for threads in (4, 1, 8):
        started.follows(threads, min(threads, 2))
        eventually(lambda: started.ask("for_prompts()") == str(min(threads, MOST)))
    started.end()


def test_random_targets_and_each_token_is_that_of_stock(program, model):
    stock = set(programs.plain(TORCH_PYTHON, WORK, model, "digests"))
    assert len(stock) == 1, "llama.cpp's tokens depend on the number of threads"
    started, orders = program(MOST), random.Random(14)
    started.tell("say('digests', *digests())")
    for _ in range(TARGETS):
        started.set(orders.randint(1, 8), deadline_ms=20)
    started.tell("pass")
    answers, *found = started.expect("digests", guard=10 * GUARD_S)[1:]
    assert int(answers) > 10 and set(found) == stock, (answers, found)
    started.end()
