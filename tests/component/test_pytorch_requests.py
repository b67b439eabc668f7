# SPDX-License-Identifier: Apache-2.0
"""Calls of modules of a real PyTorch are taken for requests where there is a promise of latency, the program tells none and computes no gradients.

TIDE_PYTHON_TORCH names a Python that has PyTorch.
"""
import pathlib

import pytest

import program as programs
from calls import counts, job, latency, promise, say
from conftest import ROOT
from daemon import eventually
from program import LONG_S, TORCH_PYTHON, run, tided  # noqa: F401 (fixtures)

SERVE = pathlib.Path(__file__).parent / "pytorch" / "serve.py"
FIRST = 8  # CALLS_FIRST of src/agent/control/requests.c
PROMISED = ["--name", "server", "--slo", "p99=50ms", "--max", "8"]
pytestmark = pytest.mark.skipif(not TORCH_PYTHON, reason="TIDE_PYTHON_TORCH names no Python with PyTorch")


def test_each_outermost_call_without_gradients_is_a_request(run, build_dir):  # noqa: F811
    server = run(TORCH_PYTHON, SERVE, backend="pytorch", options=PROMISED, PYTHONPATH=str(ROOT / "python"),
                 TIDE_LIBRARY=str(build_dir / "libtide.so.1"))
    server.expect("begun", guard=LONG_S)
    eventually(lambda: server.ask("seen()") == "True")
    server.ask(f"answers({FIRST})")
    least, most = map(float, server.ask("answers(30)"))
    counts(server, 30)
    now = latency(server)
    assert now["source"] == "pytorch" and now["promise_us"] == 50_000
    assert now["p99_us"] is None or 0.5 * least < now["p99_us"] < 1.2 * most + 200
    assert "estimated from calls of PyTorch" in say(build_dir, server, "explain", "server")
    assert " p99 ~" in say(build_dir, server, "ps")
    server.ask("len([without_gradients() for _ in range(2)])", "elsewhere(lambda: answers(3))")
    counts(server, 35)
    server.tell("models = exported()")
    server.ask("time.sleep(0.3)")  # torch.jit.trace() calls it to compare results
    before = latency(server)["requests"]
    assert server.ask("digest(*models)") == programs.plain(TORCH_PYTHON, SERVE, "say", "digest(*exported())")[1]
    counts(server, before + 3)
    server.ask("len(net(x))", "elsewhere(lambda: len(checkpointed()))")  # with gradients, and for them
    server.ask("len([step() for _ in range(3)])")  # from now on this thread trains
    assert server.ask("fails(ValueError())", "elsewhere(lambda: [fails(KeyError()), fails(SystemExit())])") == ["True", "[True,", "True]"]
    counts(server, before + 5)
    assert server.ask("answers(1)", "elsewhere(lambda: answer(picky).shape[0])")
    counts(server, before + 6)
    server.tell("import threadtide; threadtide.request()(lambda: elsewhere(lambda: answers(5)))()")
    eventually(lambda: latency(server)["source"] == "told")
    counts(server, 1)
    server.end()


def test_a_training_has_no_requests(run):  # noqa: F811
    training = run(TORCH_PYTHON, SERVE, "train", backend="pytorch", options=PROMISED)
    training.expect("trained", guard=LONG_S)
    training.ask("elsewhere(lambda: answers(20))", "time.sleep(0.5)")  # nor has another thread of one
    assert training.ask("seen()") == "True" and job(training)["latency"] is None


def test_a_promise_compiles_nothing_again_and_none_changes_nothing(run):  # noqa: F811
    server = run(TORCH_PYTHON, SERVE, backend="pytorch")
    server.expect("begun", guard=LONG_S)
    server.tell("one = compiled()")
    want = server.ask("digest(one)")
    server.ask(f"answers({FIRST})")
    server.shown()
    assert server.ask("seen()") == "False" and job(server)["latency"] is None
    promise(server, "p99=50ms")
    eventually(lambda: server.ask("seen()") == "True")
    server.ask(f"answers({FIRST})")
    assert server.ask("digest(one)", "answers(2, one)[:0]", "graphs()") == [want, "1"]
    counts(server, 3)
    assert server.ask("digest(torch.compile(picky, backend='eager')) == digest(picky)", "graphs()") == ["True", "2"]
    counts(server, 5)
    promise(server, None)
    eventually(lambda: (before := latency(server)["requests"], server.ask("answers(1)"), server.ask("time.sleep(0.3)"))
               and latency(server)["requests"] == before)
    server.end()
