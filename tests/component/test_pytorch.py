# SPDX-License-Identifier: Apache-2.0
"""A real PyTorch under the agent and a real tided: its threads follow targets at Python's safe points.

TIDE_PYTHON_TORCH names a Python that has PyTorch.
"""
import os
import pathlib
import random

import pytest

import program as programs
from daemon import eventually
from program import LONG_S, SOAK, TORCH_PYTHON, run, tided  # noqa: F401 (fixtures)

WORK = pathlib.Path(__file__).parent / "pytorch" / "work.py"
ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TIDE_BUILD_DIR") or ROOT / "build").resolve()
pytestmark = pytest.mark.skipif(not TORCH_PYTHON, reason="TIDE_PYTHON_TORCH names no Python with PyTorch")


@pytest.fixture
def torch_program(run):  # noqa: F811
    def start(**env):
        return run(TORCH_PYTHON, WORK, backend="pytorch", **env)
    return start


def plain(*words):
    """The words of a training without the agent."""
    return programs.plain(TORCH_PYTHON, WORK, *words)


def test_the_number_follows_the_target_and_the_program_sees_its_own(torch_program):
    program = torch_program()
    assert program.shown()["malleable"] and program.shown()["max"] == 8
    own = program.ask("own")
    for threads in (3, 1, 8, 2, 5):
        program.follows(threads)
        assert program.ask("torch.get_num_threads()") == own
        assert program.ask("team(lambda: [torch.sin(big) for _ in range(20)])") == str(threads)
        program.becomes(active=threads)
    program.end()


def test_what_the_user_has_set_is_the_most(torch_program):
    program = torch_program(OMP_NUM_THREADS="4")
    assert program.shown()["max"] == 4
    program.follows(3)
    program.follows(6, 4)


def test_growth_ends_where_a_limit_is(torch_program):
    """PyTorch's libgomp ends a program for which it cannot make a thread."""
    program = torch_program()
    program.shown()
    program.follows(2)
    program.limits_memory(160 << 20)
    program.set(8)
    note = "limits of the process leave no room for more threads"
    row = program.becomes(note=note)
    assert 2 <= row["active"] < 8
    assert int(program.ask("team(lambda: torch.sin(big) is None)")) < 8
    program.limits_memory(None)
    program.becomes(note="", active=8)
    assert program.ask("team(lambda: [torch.sin(big) for _ in range(20)])") == "8"
    program.end()


def test_what_the_program_sets_is_the_most(torch_program):
    program = torch_program()
    program.shown()
    program.follows(1)
    assert program.ask("torch.set_num_threads(3)", "torch.get_num_threads()") == ["None", "3"]
    eventually(lambda: program.ask("number()") == "1")
    assert program.ask("torch.get_num_threads()") == "3"
    program.follows(8, 3)
    program.follows(2)
    program.becomes(max=3)


def test_without_a_daemon_the_number_follows_the_processors_that_it_may_use(torch_program):
    program = torch_program(TIDE_SOCKET="")
    own = program.ask("own")
    for cpus in ({0}, {0, 1}, {1}):
        program.may_use(cpus)
        eventually(lambda: program.ask("number()") == str(len(cpus)))
        assert program.ask("torch.get_num_threads()") == own
    assert program.ask("torch.set_num_threads(2)") == "None"
    eventually(lambda: program.ask("number()") == "2")
    program.end()


def test_other_threads_have_stocks_number(torch_program):
    program = torch_program()
    program.shown()
    program.follows(5)
    own = program.ask("own")
    assert program.becomes(active=5)["note"] == ""
    assert program.ask("elsewhere(number)", "elsewhere(torch.get_num_threads)", "number()") == [own, own, "5"]
    program.becomes(note="other threads than the main one keep their number")
    # In PyTorch a number set by one thread is that of threads that begin later.
    assert program.ask("elsewhere(lambda: torch.set_num_threads(3))", "elsewhere(number)", "number()",
               "torch.get_num_threads()") == ["None", "3", "5", own]
    program.follows(1)
    assert program.ask("elsewhere(number)", "number()") == ["3", "1"]


@pytest.mark.timeout(2 * LONG_S)
def test_code_of_inductor_meets_the_programs_number_and_is_never_compiled_again(torch_program):
    want = plain("compiled")
    program = torch_program()
    program.shown()
    program.follows(1)
    program.tell("compiled = compile_model()")
    program.tell("say('first', *compiled())")
    assert program.expect("first", guard=LONG_S)[1:] == want
    orders = random.Random(4)
    for _ in range(20):
        program.set(orders.randint(1, 8))
        assert [program.ask("*compiled()")] == want
    row = program.becomes(malleable=False, target=int(program.ask("own")))
    assert "torch.compile" in row["note"]
    assert program.ask("number()", "torch.get_num_threads()") == [program.ask("own")] * 2
    assert program.ask("torch._dynamo.utils.counters['stats']['unique_graphs']") == "1"
    program.end()


def has_template(cache):
    """Whether code in this cache of Inductor has its own product of matrices, in C++."""
    return any("CppMicroGemm" in path.read_text() or "micro_gemm" in path.read_text() for path in cache.rglob("*.cpp"))


@pytest.mark.timeout(4 * LONG_S)
@pytest.mark.parametrize("options", [("dynamic=yes", "mode=max-autotune", "backends=CPP"),
                                     *([("dynamic=no",), ("dynamic=yes",), ("dynamic=no", "mode=max-autotune", "backends=CPP"),
                                        ("dynamic=no", "mode=max-autotune"), ("dynamic=yes", "mode=max-autotune")] if SOAK else [])],
                         ids=lambda options: "-".join(option.split("=")[1] for option in options))
def test_a_cache_of_compiled_code_serves_runs_with_and_without_the_agent(torch_program, tmp_path, options):
    """A governed run leaves code in the cache that is as good for others as stock's, however it chooses its threads."""
    def governed(cache, targets):
        program = torch_program(TORCHINDUCTOR_CACHE_DIR=str(cache))
        program.shown()
        program.follows(1)
        said = ", ".join("{}={!r}".format(*option.split("=")) for option in options)
        program.tell(f"digest = compile_product({said})")
        program.tell("say('first', *digest())")
        found = [program.expect("first", guard=LONG_S)[1:]]
        for target in targets:
            program.set(target)
            found.append(program.ask("*digest()"))
        assert program.ask("torch._dynamo.utils.counters['stats']['unique_graphs']") == "1"
        program.end()
        return found

    def stock(cache):
        return programs.plain(TORCH_PYTHON, WORK, "product", *options, TORCHINDUCTOR_CACHE_DIR=str(cache))

    want = stock(tmp_path / "stocks")
    assert want[1] == "True"
    assert governed(tmp_path / "stocks", (3, 8, 1)) == [want] * 4
    made = governed(tmp_path / "ours", (5, 2))  # max-autotune may have chosen another product where it has a choice
    assert made[0][1] == "True" and made == [made[0]] * 3
    assert stock(tmp_path / "ours") == made[0]
    chosen = [has_template(tmp_path / cache) for cache in ("stocks", "ours")]
    if "backends=CPP" in options:
        assert chosen == [True, True], "max-autotune has written no product of its own"
    if "mode=max-autotune" not in options:
        assert chosen == [False, False]
    if "backends=CPP" in options or "mode=max-autotune" not in options:
        assert made[0] == want


def test_code_of_other_compilers_follows_and_is_never_compiled_again(torch_program):
    program = torch_program()
    program.shown()
    program.tell("compiled = compile_model(backend='eager')")
    for threads in (1, 5, 2):
        program.tell("say('sum', *compiled())")
        program.expect("sum", guard=LONG_S)
        program.follows(threads)
    assert program.ask("torch._dynamo.utils.counters['stats']['unique_graphs']") == "1"
    assert program.shown()["malleable"]


def test_workers_of_a_data_loader_have_one_thread(torch_program):
    program = torch_program()
    program.shown()
    program.follows(5)
    assert program.ask("*load()") == ["1"] * 6
    program.follows(3)


def test_the_child_of_a_fork_has_stocks_number(torch_program):
    program = torch_program()
    program.shown()
    program.follows(5)
    own = program.ask("own")
    assert program.ask("*in_child(numbers)", "number()") == [own, own, "5"]
    program.follows(1)


def test_a_library_that_shares_pytorchs_openmp_meets_the_programs_number(torch_program):
    program = torch_program()
    program.shown()
    program.follows(5)
    own = program.ask("own")
    # The library's first lines would meet this: no safe point of the interpreter is in between.
    program.tell("copy, path = openmp(), lightgbm_path(); ctypes.CDLL(path); say('met', copy.omp_get_max_threads_())")
    assert program.expect("met")[1] == own
    program.tell("import lightgbm; say('imported')")
    program.expect("imported")
    assert "lib_lightgbm.so" in program.becomes(malleable=False)["note"]
    program.set(3)
    assert program.ask("number()") == own


def test_a_number_that_a_library_has_set_is_left_alone(torch_program):
    program = torch_program()
    program.shown()
    program.follows(5)
    program.tell("import threadpoolctl; limits = threadpoolctl.threadpool_limits(3, user_api='openmp'); say('limited')")
    program.expect("limited")
    program.set(7)
    for _ in range(5):
        assert program.ask("number()", "torch.get_num_threads()") == ["3", "3"]
    program.tell("limits.restore_original_limits()")
    eventually(lambda: program.ask("number()") == "7")


def test_a_limit_on_blas_that_ends_after_the_next_target_puts_back_the_programs_own_number(torch_program):
    """threadpoolctl puts back the numbers of all libraries, as scikit-learn has it do around its fits."""
    program = torch_program()
    program.shown()
    program.tell("import threadpoolctl")
    program.tell("told = lambda: [x['num_threads'] for x in threadpoolctl.threadpool_info() if x['filepath'] == openmp()._name]")
    for before, after in ((5, 7), (1, 3), (3, 1)):
        program.follows(before)
        program.tell("limits = threadpoolctl.threadpool_limits(1, user_api='blas')")
        assert program.ask("number()") == str(before)
        program.follows(after)
        assert program.ask("*told()", "own") == [program.ask("own")] * 2
        program.tell("limits.restore_original_limits()")
        eventually(lambda: program.ask("number()") == str(after))
    program.becomes(note="")
    # A limit that is the target's number holds, too.
    program.follows(3)
    program.tell("limits = threadpoolctl.threadpool_limits(3, user_api='openmp')")
    assert program.ask("number()") == "3"
    program.set(6)
    for _ in range(20):
        assert program.ask("number()") == "3"
    program.tell("limits.restore_original_limits()")
    eventually(lambda: program.ask("number()") == "6")


WITHOUT_GIL = """if True:
    import ctypes, runpy, struct, sys
    text = ctypes.create_string_buffer(sys.version.replace(" (", " free-threading build (", 1).encode())
    function = ctypes.cast(ctypes.pythonapi.Py_GetVersion, ctypes.c_void_p).value
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(function & -4096), 8192, 7) == 0
    ctypes.memmove(function, struct.pack("<2sQs", b"\\x48\\xb8", ctypes.addressof(text), b"\\xc3"), 11)  # mov $text, %rax; ret
    sys.argv[:] = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_an_interpreter_without_a_gil_is_left_alone(run):  # noqa: F811
    """One that says that it is; TIDE_PYTHON_NOGIL names a real one with PyTorch."""
    real = os.environ.get("TIDE_PYTHON_NOGIL")
    program = run(*([real] if real else [TORCH_PYTHON, "-c", WITHOUT_GIL]), WORK, backend="pytorch")
    program.expect("begun", guard=LONG_S)
    row = program.becomes(malleable=False)
    assert row["note"] == "moldable: Python without a GIL"
    program.set(1)
    for _ in range(20):
        assert program.ask("numbers()") == program.ask("f'{own} {own}'")
    assert program.row()["note"] == row["note"]


def test_a_main_thread_in_a_lock_keeps_nobody_waiting(torch_program):
    program = torch_program()
    program.shown()
    program.follows(5)
    program.tell("sleep_in_lock()")
    program.expect("asleep")
    assert program.set(2)[1]["status"] in ("done", "waiting")
    program.becomes(target=2)
    eventually(lambda: not program.job().get("pending"))
    program.tell("lock.release()")
    program.expect("awake", 2)


@pytest.mark.parametrize("work", ["training", "convolutions"])
def test_the_bits_are_stocks_with_the_same_number(torch_program, work):
    program = torch_program()
    program.shown()
    own = program.ask("own")
    steps, more = ("40", "5") if SOAK else ("15", "3")  # threads that spin on a core each make it long
    stock = {n: plain(work, steps, *n) for n in ((), ("1",), (more,))}
    assert stock["1",] != stock[more,] or work != "training", "the training does not show the number"
    for n in ("1", more):
        program.follows(int(n))
        assert program.ask(f"*{work}({steps})") == stock[n,]
    program.follows(int(own))
    assert program.ask(f"*{work}({steps})") == stock[()]


def test_a_training_whose_target_never_moves_is_bitwise_stocks(torch_program):
    stock, own = plain("training", "40"), str(len(os.sched_getaffinity(0)))
    program = torch_program(TIDE_MAX=own)
    if program.ask("own") != own:
        pytest.skip("PyTorch has another number by itself than there are cores")
    program.becomes(target=int(own), active=int(own))
    assert program.ask("*training(40)") == stock


def test_random_targets_leave_the_loss_in_the_range_of_fixed_numbers(torch_program):
    """… and each bit of the weights as it is where the program sets the same numbers itself."""
    steps, seed = 5000 if SOAK else 300, 3
    *fixed, moved, bits = plain("losses", str(steps), str(seed))
    program = torch_program()
    program.shown()
    assert program.ask("globals().update(mine=model())") == "None"
    orders = random.Random(seed)
    for _ in range(steps):
        threads = orders.randint(1, 8)
        program.follows(threads)
        program.tell("loss = train(*mine); say('step', number())")
        assert program.expect("step")[1] == str(threads)
    loss, weights = program.ask("loss.item().hex()", "bits_of(mine[0])")
    assert (loss, weights) == (moved, bits)
    # Bits differ between numbers of threads, so fixed ones have a range, without which this says nothing.
    numbers = [float.fromhex(one) for one in fixed]
    assert min(numbers) < max(numbers) and min(numbers) <= float.fromhex(loss) <= max(numbers)
    program.end()


def test_four_at_once_share_the_cores_and_grow_when_two_have_ended(torch_program):
    losses = [float.fromhex(loss) for loss in plain("losses", "300", "4")[:4]]
    width = max(losses) - min(losses)  # nobody knows when they grow: as much on either side is still millionths of a loss
    four = [torch_program() for _ in range(4)]
    for program in four:
        program.becomes(target=2, active=2)
    for program in four:
        program.tell("say('loss', training(300)[0])")
    for program in four:
        assert 0 < width and min(losses) - width <= float.fromhex(program.expect("loss", guard=LONG_S)[1]) <= max(losses) + width
    for program in four[:2]:
        program.end()
    for program in four[2:]:  # or more: idle cores are lent
        eventually(lambda: (row := program.row()) and row["active"] == row["target"] >= 4)
    for program in four[2:]:
        program.end()


def test_backward_passes_are_its_units_of_work(torch_program):
    program = torch_program()
    program.shown()
    for _ in range(3):
        before = int(program.ask("steps"))
        done = eventually(lambda: (p := program.job()["progress"])["unit"] == "tasks" and p["done"] > before + 50 and p["done"])
        assert done <= int(program.ask("steps"))


def test_the_agent_can_be_turned_off(torch_program, tided):  # noqa: F811
    program = torch_program(TIDE_DISABLE="1")
    program.expect("begun")
    assert program.ask("number() == torch.get_num_threads() == own") == "True"
    assert not [j for j in tided.jobs() if program.process.pid in j["pids"]]
    program.end()


def test_a_program_whose_threads_openmp_binds_is_left_alone(torch_program, tided):  # noqa: F811
    """Its main thread is allowed one core from its first region on, and the process is not."""
    program = torch_program(OMP_PROC_BIND="true")
    own = program.ask("torch.get_num_threads()")
    assert [program.ask("number()") for _ in range(3)] == [own] * 3
    assert tided.jobs() == []


def test_steps_that_the_program_counts_have_a_total(torch_program):
    program = torch_program(PYTHONPATH=str(ROOT / "python"),
                            TIDE_LIBRARY=str(BUILD / "libtide.so.1"))
    program.shown()
    program.tell("import threadtide.torch; parts = model(); handle = threadtide.torch.count_steps(parts[1], 40)")
    program.tell("say('trained', len([train(*parts) for _ in range(30)]))")
    program.expect("trained", guard=LONG_S)
    eventually(lambda: (p := program.job()["progress"])["unit"] == "steps" and (p["done"], p["total"]) == (30, 40))
    program.tell("handle.remove(); train(*parts); say('removed')")
    program.expect("removed")
    assert program.job()["progress"]["done"] == 30
