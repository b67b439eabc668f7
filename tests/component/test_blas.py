# SPDX-License-Identifier: Apache-2.0
"""BLIS and MKL under the agent and a real tided: each call has the target's number of threads.

Debian's BLIS, with OpenMP, with threads of its own, and as libblas.so.3. MKL with both of its layers for OpenMP, where
TIDE_PYTHON_RUNTIMES names a Python that has the package mkl; it takes 900 MB, so `make soak` alone installs it, and
blas/fake_mkl.c stands in elsewhere.
"""
import os
import pathlib
import random
import subprocess
import sys

import pytest

import program as programs
from daemon import eventually
from program import LONG_S, TARGETS, TORCH_PYTHON, run, tided  # noqa: F401 (fixtures)

FOLDER = pathlib.Path(__file__).parent / "blas"
WORK = FOLDER / "work.py"
DEBIAN = pathlib.Path("/usr/lib/x86_64-linux-gnu")
MKL = next(pathlib.Path(os.environ.get("TIDE_PYTHON_RUNTIMES", "/")).parent.parent.glob("lib/libmkl_rt.so.*"), pathlib.Path("mkl"))
OWN = 3  # threads of a program without the agent
pytest.importorskip("numpy")


class Library:
    """@counts: the function of work.py that counts a product's threads."""

    def __init__(self, backend, path, counts="number()", **env):
        self.backend, self.path, self.counts = backend, path, counts
        self.env = {"OMP_NUM_THREADS": str(OWN), "OPENBLAS_NUM_THREADS": "1", **env}

    def stock(self, *numbers):
        """All results without the agent, for these numbers of threads."""
        path = self.path.with_name("libblis.so.4") if self.path.name == "libblas.so.3" else self.path # which can be told a number
        return set(programs.plain(sys.executable, WORK, path, "results", *numbers, **self.env))


LIBRARIES = {
    "blis-openmp": Library("blis", DEBIAN / "blis-openmp/libblis.so.4"),
    "blis-pthread": Library("blis", DEBIAN / "blis-pthread/libblis.so.4", "alive()"),
    "libblas": Library("blis", DEBIAN / "blis-openmp/libblas.so.3"),
    "mkl-intel": Library("mkl", MKL, MKL_THREADING_LAYER="INTEL", MKL_DYNAMIC="FALSE"),
    "mkl-gnu": Library("mkl", MKL, MKL_THREADING_LAYER="GNU", MKL_DYNAMIC="FALSE"),
}


def with_libraries(*names):
    return pytest.mark.parametrize("library", [pytest.param(LIBRARIES[name], id=name, marks=pytest.mark.skipif(
        not LIBRARIES[name].path.exists(), reason=f"no {LIBRARIES[name].path.name} here")) for name in names])


@pytest.fixture
def program(run):  # noqa: F811
    def start(library, *words, python=sys.executable, **env):
        started = run(python, WORK, library.path, *words, backend=library.backend, **{**library.env, **env})
        started.expect("begun")
        return started
    return start


def has(started, expression, number):
    """Threads of an earlier product may still be on their way to sleep."""
    eventually(lambda: started.ask(expression) == str(number))


def follows(started, threads, expression="number()", expected=None):
    assert started.set(threads)[1]["status"] == "done"
    has(started, expression, expected or threads)


@with_libraries(*LIBRARIES)
def test_a_call_has_the_targets_number(program, library):
    started = program(library)
    started.becomes(malleable=True, max=OWN, note="")
    for threads in (2, 1, OWN):
        follows(started, threads, library.counts)
        started.becomes(active=threads, target=threads)
    started.end()


@with_libraries("blis-openmp", "mkl-intel", "mkl-gnu")
def test_the_programs_own_number_is_the_most_and_is_what_it_is_told(program, library):
    started = program(library)
    started.shown()
    follows(started, 1)
    assert started.ask("told()", "set_number(2)", "told()") == [str(OWN), "None", "2"]
    has(started, "number()", 1)
    follows(started, OWN, expected=2)
    started.ask("set_number(4)")
    has(started, "number()", OWN)
    assert started.ask("told()") == "4"


@with_libraries("mkl-intel", "mkl-gnu")
def test_numbers_of_a_thread_and_of_a_domain_count_as_well(program, library):
    started = program(library)
    started.shown()
    started.set(4)
    started.ask("library.MKL_Domain_Set_Num_Threads(4, 1)")
    has(started, "number()", 4)
    started.ask("library.MKL_Set_Num_Threads_Local(2)")
    has(started, "number()", 2)
    follows(started, 1)


@with_libraries("blis-openmp")
def test_loops_that_the_user_divides_are_left_alone(program, library):
    started = program(library, BLIS_IC_NT="2")
    started.becomes(malleable=False, max=OWN, note="moldable: BLIS_JC_NT and the like divide its loops")
    started.set(1)
    has(started, "number()", 2)


@with_libraries("blis-openmp", "libblas")
def test_with_one_thread_nothing_is_governed(run, tided, library):  # noqa: F811
    started = run(sys.executable, WORK, library.path, **{**library.env, "OMP_NUM_THREADS": "1"})
    started.expect("begun")
    assert started.ask("number()") == "1" and tided.jobs() == []


@with_libraries("blis-openmp", "mkl-intel")
def test_nothing_follows_without_the_agent(run, tided, library):  # noqa: F811
    started = run(sys.executable, WORK, library.path, **library.env, TIDE_DISABLE="1")
    started.expect("begun")
    assert started.ask("number()") == str(OWN) and tided.jobs() == []


@with_libraries("blis-pthread", "mkl-intel")
def test_the_child_of_a_fork_is_a_process_of_the_job(program, library):
    """It begins with the program's number."""
    started = program(library)
    started.shown()
    started.set(2)
    assert started.ask(f"in_child(lambda: comes_to(lambda: {library.counts}, 2))") == "['True']"
    follows(started, 2, library.counts)


@with_libraries("libblas")
def test_the_child_of_a_fork_has_the_programs_number(program, library):
    started = program(library)
    started.becomes(max=OWN)
    started.set(2)
    assert started.ask("in_child(variable)") == f"['{OWN}']"


@with_libraries("blis-openmp", "libblas", "mkl-intel", "mkl-gnu")
def test_random_targets_leave_each_result_as_one_of_a_fixed_number(program, library):
    """With two threads that call at the same time."""
    fixed, started, orders = library.stock(*range(1, OWN + 1)), program(library), random.Random(59)
    started.becomes(max=OWN)
    started.tell("say('results', *in_threads(2))")
    for _ in range(TARGETS):
        started.set(orders.randint(1, OWN), deadline_ms=20)
    started.tell("pass")
    assert set(started.expect("results", guard=LONG_S)[1:]) <= fixed
    follows(started, 1)
    started.end()


@with_libraries("mkl-intel", "mkl-gnu")
def test_random_targets_do_not_disturb_lapack(program, library):
    started, orders = program(library), random.Random(60)
    started.shown()
    started.tell("say('factors', *in_threads(2, factors))")
    for _ in range(TARGETS):
        started.set(orders.randint(1, OWN), deadline_ms=20)
    started.tell("pass")
    assert started.expect("factors", guard=LONG_S)[1:] == ["True"]


@with_libraries("blis-openmp")
def test_two_copies_follow(program, library):
    started = program(library, LIBRARIES["blis-pthread"].path)
    started.becomes(max=OWN, note="")
    started.ask("libraries[1].bli_thread_set_num_threads(2)")
    for threads in (1, OWN):
        follows(started, threads)
        has(started, "alive(libraries[1])", min(threads, 2))


@with_libraries("blis-openmp")
def test_beside_another_library_with_threads_it_is_not_told(program, library, compiled):
    other = compiled("blas/other.c", "-fopenmp", "-shared", "-fPIC")
    started = program(library)
    started.becomes(max=OWN)
    started.set(2)
    started.ask(f"ctypes.CDLL({str(other)!r})")
    started.becomes(malleable=False, max=OWN, note="moldable: another library computes with threads, too")
    has(started, "number()", 2)


@with_libraries("mkl-gnu")
@pytest.mark.skipif(not TORCH_PYTHON, reason="TIDE_PYTHON_TORCH names no Python with PyTorch")
def test_pytorch_and_mkl_in_one_process(program, library):
    """PyTorch has an MKL of its own inside; both follow."""
    started = program(library, python=TORCH_PYTHON)
    started.shown()
    started.ask("torch()")
    started.backend = "pytorch"
    started.becomes(malleable=True)
    for threads in (2, 1, OWN):
        follows(started, threads)
        started.becomes(active=threads)
        assert started.ask("torch().get_num_threads()") == str(OWN)


def test_an_unknown_blis_keeps_its_number(program, compiled, tmp_path):
    fake = tmp_path / "libblis.so.4"
    fake.symlink_to(compiled("blas/fake_blis.c", "-shared", "-fPIC"))
    started = program(Library("blis", fake))
    started.becomes(malleable=False, max=OWN, note="moldable: an unknown BLIS")
    started.set(1)
    assert started.ask("told()") == str(OWN)


@pytest.fixture
def fake_mkl(tmp_path):
    """fake_mkl(*options): its interface layer, which has the others loaded; ld.so binds their calls one by one."""
    def build(*options):
        parts = {"intel_thread": ["-DLAYER"], "core": ["-DCORE", *options],
                 "intel_lp64": ["-DINTERFACE", f"-L{tmp_path}", "-l:libmkl_core.so.3", "-l:libmkl_intel_thread.so.3", "-Wl,-rpath,$ORIGIN"]}
        for name, words in parts.items():
            subprocess.run(["gcc", "-O1", "-Wall", "-shared", "-fPIC", "-D_GNU_SOURCE", FOLDER / "fake_mkl.c", *words,
                            "-Wl,-z,lazy", "-o", tmp_path / f"libmkl_{name}.so.3"], check=True)
        return Library("mkl", tmp_path / "libmkl_intel_lp64.so.3")
    return build


def test_a_call_of_mkl_gets_one_number_however_often_it_asks(program, fake_mkl):
    started, orders = program(fake_mkl()), random.Random(61)
    started.becomes(malleable=True, max=OWN, version="2026.4")
    started.tell("say('numbers', *in_threads(2, lambda: [answered()]))")
    for _ in range(TARGETS):
        started.set(orders.randint(1, OWN), deadline_ms=20)
    started.tell("pass")
    numbers = started.expect("numbers", guard=LONG_S)[1:]
    assert set(numbers) == {"1", "2", "3"}
    follows(started, 1, "answered()")
    assert started.ask("library.of_fft()", "told()") == ["2", str(OWN)]
    assert started.ask("elsewhere(lambda: (dot(), library.last_number())[1])") == str(OWN), "no call has begun in that thread"
    assert started.ask("elsewhere(lambda: (product(), dot(), library.last_number())[2])") == "1"


def test_an_unknown_mkl_keeps_its_number(program, fake_mkl):
    started = program(fake_mkl("-DASKS_NOTHING"))
    started.becomes(malleable=False, max=OWN, note="moldable: an unknown MKL")
    started.set(1)
    assert started.ask("answered()") == str(OWN)
