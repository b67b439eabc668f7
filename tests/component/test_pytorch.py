# SPDX-License-Identifier: Apache-2.0
"""A real PyTorch under the agent and a real tided: its threads follow targets at Python's safe points.

TIDE_PYTHON_TORCH names a Python that has PyTorch.
"""
import os
import pathlib
import random
import subprocess

import pytest

from daemon import GUARD_S, eventually
from program import run  # noqa: F401 (a fixture)

PYTHON = os.environ.get("TIDE_TORCH_PYTHON") or os.environ.get("TIDE_PYTHON_TORCH")  # of check.py; the user's
LONG_S = 10 * GUARD_S  # compilers run
WORK = pathlib.Path(__file__).parent / "pytorch" / "work.py"
pytestmark = pytest.mark.skipif(not PYTHON, reason="TIDE_PYTHON_TORCH names no Python with PyTorch")


@pytest.fixture
def tided(place):
    return place.daemon("--cpus", "0-7").start()


@pytest.fixture
def torch_program(run):  # noqa: F811
    def start(**env):
        return run(PYTHON, WORK, **env)
    return start


def pytorch(program):
    return next((b for b in program.job()["backends"] if b["name"] == "pytorch"), None)


def shown(program):
    """Its row, once PyTorch is there."""
    return eventually(lambda: (b := pytorch(program)) and b["version"] and b)


def becomes(program, **values):
    def as_wanted():
        row = pytorch(program)
        return row and all(row[name] == value for name, value in values.items()) and row
    return eventually(as_wanted)


def ask(program, *expressions):
    program.tell(f"say('answer', {', '.join(expressions)})")
    answer = program.expect("answer", guard=LONG_S)[1:]
    return answer[0] if len(answer) == 1 else answer


def follows(program, threads, expected=None):
    assert program.set(threads)[1]["status"] in ("done", "waiting")
    eventually(lambda: ask(program, "real()") == str(expected or threads))


def plain(*words, **env):
    """The last line that a training without the agent says."""
    stock = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("TIDE_")}
    return subprocess.run([PYTHON, WORK, *words], env={**stock, **env}, check=True, capture_output=True, text=True,
                          timeout=LONG_S).stdout.splitlines()[-1].split()


def test_the_number_follows_the_target_and_the_program_sees_its_own(torch_program):
    program = torch_program()
    assert shown(program)["malleable"] and shown(program)["max"] == 8
    own = ask(program, "own")
    for threads in (3, 1, 8, 2, 5):
        follows(program, threads)
        assert ask(program, "torch.get_num_threads()") == own
        assert ask(program, "team()") == str(threads)
        becomes(program, active=threads)
    program.end()


def test_what_the_user_has_set_is_the_most(torch_program):
    program = torch_program(OMP_NUM_THREADS="4")
    assert shown(program)["max"] == 4
    follows(program, 3)
    follows(program, 6, 4)


def test_what_the_program_sets_is_the_most(torch_program):
    program = torch_program()
    shown(program)
    follows(program, 1)
    assert ask(program, "torch.set_num_threads(3)", "torch.get_num_threads()") == ["None", "3"]
    eventually(lambda: ask(program, "real()") == "1")
    assert ask(program, "torch.get_num_threads()") == "3"
    follows(program, 8, 3)
    follows(program, 2)
    becomes(program, max=3)


def test_other_threads_have_stocks_number(torch_program):
    program = torch_program()
    shown(program)
    follows(program, 5)
    own = ask(program, "own")
    assert ask(program, "elsewhere(real)", "elsewhere(torch.get_num_threads)", "real()") == [own, own, "5"]
    # In PyTorch a number set by one thread is that of threads that begin later.
    assert ask(program, "elsewhere(lambda: torch.set_num_threads(3))", "elsewhere(real)", "real()",
               "torch.get_num_threads()") == ["None", "3", "5", own]
    follows(program, 1)
    assert ask(program, "elsewhere(real)", "real()") == ["3", "1"]


def test_code_of_inductor_meets_the_programs_number_and_is_never_compiled_again(torch_program):
    want = plain("compiled")
    program = torch_program()
    shown(program)
    follows(program, 1)
    program.tell("compiled = compile_model()")
    program.tell("say('first', *compiled())")
    assert program.expect("first", guard=LONG_S)[1:] == want
    orders = random.Random(4)
    for _ in range(20):
        program.set(orders.randint(1, 8))
        assert [ask(program, "*compiled()")] == want
    row = becomes(program, malleable=False, target=int(ask(program, "own")))
    assert "torch.compile" in row["note"]
    assert ask(program, "real()", "torch.get_num_threads()") == [ask(program, "own")] * 2
    assert ask(program, "torch._dynamo.utils.counters['stats']['unique_graphs']") == "1"
    program.end()


def test_code_of_other_compilers_follows_and_is_never_compiled_again(torch_program):
    program = torch_program()
    shown(program)
    program.tell("compiled = compile_model(backend='eager')")
    for threads in (1, 5, 2):
        program.tell("say('sum', *compiled())")
        program.expect("sum", guard=LONG_S)
        follows(program, threads)
    assert ask(program, "torch._dynamo.utils.counters['stats']['unique_graphs']") == "1"
    assert shown(program)["malleable"]


def test_workers_of_a_data_loader_have_one_thread(torch_program):
    program = torch_program()
    shown(program)
    follows(program, 5)
    assert ask(program, "*load()") == ["1"] * 6
    follows(program, 3)


def test_the_child_of_a_fork_has_stocks_number(torch_program):
    program = torch_program()
    shown(program)
    follows(program, 5)
    own = ask(program, "own")
    assert ask(program, "*in_child()", "real()") == [own, own, "5"]
    follows(program, 1)


def test_a_library_that_shares_pytorchs_openmp_meets_the_programs_number(torch_program):
    program = torch_program()
    shown(program)
    follows(program, 5)
    own = ask(program, "own")
    # What its first lines would meet: no safe point of the interpreter is in between.
    program.tell("copy, path = openmp(), lightgbm_path(); ctypes.CDLL(path); say('met', copy.omp_get_max_threads())")
    assert program.expect("met")[1] == own
    program.tell("import lightgbm; say('imported')")
    program.expect("imported")
    assert "lib_lightgbm.so" in becomes(program, malleable=False)["note"]
    program.set(3)
    assert ask(program, "real()") == own


def test_a_number_that_a_library_has_set_is_left_alone(torch_program):
    program = torch_program()
    shown(program)
    follows(program, 5)
    program.tell("import threadpoolctl; limits = threadpoolctl.threadpool_limits(3, user_api='openmp'); say('limited')")
    program.expect("limited")
    program.set(7)
    for _ in range(5):
        assert ask(program, "real()", "torch.get_num_threads()") == ["3", "3"]
    program.tell("limits.restore_original_limits()")
    eventually(lambda: ask(program, "real()") == "7")


def test_a_main_thread_in_a_lock_keeps_nobody_waiting(torch_program):
    program = torch_program()
    shown(program)
    follows(program, 5)
    program.tell("sleep_in_lock()")
    program.expect("asleep")
    assert program.set(2)[1]["status"] in ("done", "waiting")
    becomes(program, target=2)
    eventually(lambda: not program.job().get("pending"))
    program.tell("lock.release()")
    program.expect("awake", 2)


def test_the_bits_are_stocks_with_the_same_number(torch_program):
    program = torch_program()
    shown(program)
    own = ask(program, "own")
    stock = {n: plain("training", "100", *n) for n in ((), ("1",), ("5",))}
    assert stock["1",] != stock["5",], "the training does not show the number"
    for n in ("1", "5"):
        follows(program, int(n))
        assert ask(program, "*training(100)") == stock[n,]
    follows(program, int(own))
    assert ask(program, "*training(100)") == stock[()]


def test_a_training_whose_target_never_moves_is_bitwise_stocks(torch_program):
    stock, own = plain("training", "100"), str(len(os.sched_getaffinity(0)))
    program = torch_program(TIDE_MAX=own)
    if ask(program, "own") != own:
        pytest.skip("PyTorch has another number by itself than there are cores")
    becomes(program, target=int(own), active=int(own))
    assert ask(program, "*training(100)") == stock


def test_random_targets_leave_the_loss_in_the_range_of_fixed_numbers(torch_program):
    losses = [float.fromhex(plain("training", "300", str(n))[0]) for n in (1, 2, 3, 8)]
    program = torch_program()
    shown(program)
    assert ask(program, "globals().update(mine=model())") == "None"
    orders = random.Random(3)
    for _ in range(300):
        threads = orders.randint(1, 8)
        follows(program, threads)
        program.tell("loss = train(*mine); say('step', real())")
        assert program.expect("step")[1] == str(threads)
    loss = float.fromhex(ask(program, "loss.item().hex()"))
    assert min(losses) * 0.98 <= loss <= max(losses) * 1.02
    program.end()


def test_the_agent_can_be_turned_off(torch_program, tided):
    program = torch_program(TIDE_DISABLE="1")
    program.expect("begun")
    assert ask(program, "real() == torch.get_num_threads() == own") == "True"
    assert not [j for j in tided.jobs() if program.process.pid in j["pids"]]
    program.end()


def test_a_program_whose_threads_openmp_binds_is_left_alone(torch_program, tided):
    """Its main thread is allowed one core from its first region on, and the process is not."""
    program = torch_program(OMP_PROC_BIND="true")
    own = ask(program, "torch.get_num_threads()")
    assert [ask(program, "real()") for _ in range(3)] == [own] * 3
    assert tided.jobs() == []
