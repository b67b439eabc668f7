# SPDX-License-Identifier: Apache-2.0
"""Libraries with the name of a runtime that the agent knows, and nothing else of it: their programs stay untouched.

ONNX Runtime's, BLIS's and MKL's are in the tests of these.
"""
import pathlib
import subprocess
import sys

import pytest

from daemon import GUARD_S
from program import run, tided  # noqa: F401 (fixtures)

SOURCE = pathlib.Path(__file__).parent / "unknown/library.c"
LOADS = ("import ctypes, sys\nfor path in sys.argv[1:]: last = ctypes.CDLL(path)\nprint('said', last.answer(), flush=True)\n"
         "for line in sys.stdin: print('said', last.answer(), flush=True)\n")


@pytest.fixture
def program(run, tmp_path):  # noqa: F811
    def start(backend, *names, options=()):
        paths = []
        for name in names:
            paths.append(tmp_path / name)
            subprocess.run(["gcc", "-Wall", "-shared", "-fPIC", SOURCE, *options, f"-Wl,-soname,{name}", "-o", paths[-1]], check=True)
        started = run(sys.executable, "-c", LOADS, *paths, backend=backend)
        assert started.expect("said") == ["said", "42"]
        return started
    return start


def goes_on(started):
    """Targets come, and nothing of the library is called."""
    for threads in (1, 3, 2):
        assert started.set(threads)[0] == 200
        started.tell("on")
        assert started.expect("said") == ["said", "42"]
    started.process.stdin.close()
    assert started.process.wait(GUARD_S) == 0


@pytest.mark.parametrize("options", [("-DTBB", "-DNEXT"), ("-DTBB",)], ids=["next-major", "functions-missing"])
def test_another_onetbb(program, options):
    started = program("tbb", "libtbb.so.12", options=options)
    row = started.becomes(malleable=False, note="moldable: an unknown oneTBB")
    assert row["version"] == "99.1"
    goes_on(started)


@pytest.mark.parametrize("options", [(), ("-DTORCH",)], ids=["nothing", "functions-missing"])
def test_another_pytorch(program, options):
    started = program("pytorch", "libtorch_cpu.so", "libtorch_python.so", options=options)
    started.becomes(malleable=False, note="moldable: an unknown PyTorch")
    goes_on(started)


def test_an_xgboost_without_openmp(program):
    started = program("xgboost", "libxgboost.so")
    started.becomes(malleable=False, note="moldable: XGBoost without libgomp")
    goes_on(started)


def test_an_xgboost_with_another_openmp(program, tmp_path):
    subprocess.run(["gcc", "-shared", "-fPIC", SOURCE, "-Wl,-soname,libgomp.so.9", "-o", tmp_path / "libgomp.so.9"], check=True)
    started = program("xgboost", "libxgboost.so", options=("-Wl,--no-as-needed", f"-L{tmp_path}", "-l:libgomp.so.9", "-Wl,-rpath,$ORIGIN"))
    started.becomes(malleable=False, note="moldable: XGBoost without libgomp")
    goes_on(started)


def test_an_openblas_that_does_not_say_what_it_computes_with(program, run):  # noqa: F811
    """Nothing is told of it; it keeps its variable."""
    started = program("openblas", "libopenblas.so.0", options=("-DOPENBLAS",))
    assert started.process.poll() is None
    started.tell("on")
    assert started.expect("said") == ["said", "42"]
    assert not any(b["name"] == "openblas" for job in started.tided.jobs() for b in job["backends"])
    started.process.stdin.close()
    assert started.process.wait(GUARD_S) == 0
