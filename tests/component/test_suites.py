# SPDX-License-Identifier: Apache-2.0
"""Others' test suites, while targets move at random every 5 to 50 ms: whatever fails then and not without the agent is ours.

A sample of them, a seed a day of the month; TIDE_SOAK=1: all, and also with an agent that never hears of a target. TIDE_PYTHON_TORCH
names a Python that has the packages.
"""
import datetime
import os
import pathlib
import subprocess
import xml.etree.ElementTree

import pytest

from program import SOAK, TORCH_PYTHON, WAITS, tided  # noqa: F401 (fixtures)
from restless import Restless

SUITES = pathlib.Path(__file__).parent / "suites"
LIMIT_S = 4 * 3600 if SOAK else 200
# Which: the words for pytest, one in so many when it is a sample, and the words for a sample where these are others.
WHICH = {"scikit-learn": ("--pyargs sklearn.ensemble sklearn.cluster sklearn.metrics sklearn.linear_model", 20,
                          "--pyargs sklearn.cluster.tests.test_k_means sklearn.ensemble.tests.test_forest"),
         "estimators": (SUITES / "estimators.py", 10, None), "operators": (SUITES / "operators.py", 8, None),
         "numpy": ("--pyargs numpy.linalg numpy.fft", 4, None),
         "scipy": ("--pyargs scipy.linalg scipy.fft", 100, None),
         "joblib": ("--pyargs joblib", 20, "--pyargs joblib.test.test_parallel"),
         "onnx": (SUITES / "onnx_cases.py", 20, None)}
# Two of joblib's ask OpenBLAS for its number, which is the target: docs/design/55-openblas.md, "What falls short".
LEFT_OUT = {"joblib": ["-k", "not threadpool_limitation_in_child_loky and not threadpool_limitation_in_child_context"]}
# The runtime whose threads have to be seen to change. The others compute with scikit-learn's OpenMP, which keeps its number.
FOLLOWS = {"estimators": "xgboost", "operators": "pytorch", "numpy": "openblas", "scipy": "openblas", "onnx": "onnxruntime"}
AT_LEAST = {"operators": 300}  # of tests, where all are run
pytestmark = pytest.mark.skipif(not TORCH_PYTHON, reason="TIDE_PYTHON_TORCH names no Python with these packages")


def failures(report):
    cases = list(xml.etree.ElementTree.parse(report).getroot().iter("testcase"))
    bad = {f"{case.get('classname')}::{case.get('name')}" for case in cases if {end.tag for end in case} & {"failure", "error"}}
    return len(cases), bad


@pytest.mark.timeout(3 * LIMIT_S + 60)
@pytest.mark.parametrize("suite", WHICH)
def test_suite(suite, tided, build_dir, tmp_path):  # noqa: F811
    words, one_in, fewer = WHICH[suite]
    words = str(words if SOAK or not fewer else fewer).split() + LEFT_OUT.get(suite, [])
    seed = str(datetime.date.today().day)
    env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("TIDE_")}
    env |= {**WAITS, "PYTHONPATH": str(SUITES), "TIDE_SUITE_RESULTS": str(tmp_path / "results.pt"), "TIDE_SUITE_SEED": seed,
            "TIDE_SUITE_ONE_IN": "1" if SOAK else str(one_in)}

    def run(report, **more):
        command = [TORCH_PYTHON, "-m", "pytest", "-q", "-p", "sample", "-p", "no:cacheprovider", f"--junitxml={tmp_path / report}", *words]
        done = subprocess.run(command, env={**env, **more}, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode in (0, 1), done.stdout[-2000:] + done.stderr[-2000:]
        return failures(tmp_path / report)
    agent = {"LD_PRELOAD": str(build_dir / "libtide-agent.so"), "TIDE_MAX": "8"}
    count, stock = run("stock.xml", **({"OMP_NUM_THREADS": "1"} if suite == "operators" else {}))
    assert count >= (AT_LEAST.get(suite, 10) if SOAK else 10)
    if SOAK:  # no daemon is there, so no target
        again, ours = run("idle.xml", **agent, TIDE_SOCKET=str(tmp_path / "nobody.sock"))
        assert again == count and not ours - stock, sorted(ours - stock)[:10]
    with Restless(tided, tided.jobs, 11) as restless:
        again, ours = run("restless.xml", **agent, TIDE_SOCKET=str(tided.dir / "agent.sock"))
    print(f"{suite}: {count} tests, {len(stock)} fail in stock, orders: {dict(restless.statuses)}, threads: {dict(restless.numbers)}")
    assert again == count and not ours - stock, sorted(ours - stock)[:10]
    assert restless.moves > 0, f"no target moved: {restless.statuses}"
    runtime = FOLLOWS.get(suite)
    assert not runtime or len(restless.numbers[runtime]) > 1, f"{runtime} kept its threads: {dict(restless.numbers)}"
