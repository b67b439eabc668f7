# SPDX-License-Identifier: Apache-2.0
"""Calls of functions and sessions of a real TensorFlow are taken for requests where there is a promise of latency, the program tells none and trains nothing."""
import os
import pathlib
import sys

import pytest

import program as programs
from calls import counts, job, latency, say
from daemon import eventually
from program import LONG_S, SOAK, run, tided  # noqa: F401 (fixtures)

SERVE = pathlib.Path(__file__).parent / "tensorflow" / "serve.py"
PYTHONS = (os.environ.get("TIDE_TF_PYTHONS") or os.environ.get("TIDE_PYTHON_TF221") or sys.executable).split(":")
FIRST = 8  # CALLS_FIRST of src/agent/control/requests.c
PROMISED = ["--name", "server", "--slo", "p99=50ms", "--max", "8"]


@pytest.fixture(params=PYTHONS if SOAK else PYTHONS[:1], ids=lambda p: pathlib.Path(p).parts[-3])
def python(request):
    return request.param


def test_each_call_of_a_function_or_session_that_writes_nothing_is_a_request(run, build_dir, python):  # noqa: F811
    server = run(python, SERVE, backend="tensorflow", options=PROMISED)
    server.expect("begun", guard=LONG_S)
    eventually(lambda: server.ask("timed(1, answer)") and server.job()["latency"])  # the first ones do not count
    eventually(lambda: latency(server)["in_flight"] == 0)
    server.ask("time.sleep(0.3)")
    before = latency(server)["requests"]
    least, most = map(float, server.ask("timed(30, answer)"))
    counts(server, before + 30)
    now = latency(server)
    assert now["source"] == "tensorflow" and now["promise_us"] == 50_000
    assert now["p99_us"] is None or now["p99_us"] < 1.2 * most + 200
    assert "estimated from calls of TensorFlow" in say(build_dir, server, "explain", "server")
    server.tell("signature, run, trainer = loaded(), session(), session(trains=True)")
    server.ask("time.sleep(0.3)")
    before = latency(server)["requests"]
    server.ask("timed(3, lambda: signature(tf.constant(x)))", "timed(4, run)", "elsewhere(lambda: timed(2, answer))",
               # Operations that are no function, and what writes variables; in other threads, since these train then.
               "timed(5, lambda: tf.matmul(x, x, transpose_b=True))", "timed(5, lambda: model.counting(x))",
               *[f"timed(2, lambda: model.counts_in_{where}(x))" for where in ("loop", "branch", "map", "reduce")],
               "elsewhere(lambda: timed(3, trainer))", "elsewhere(lambda: timed(3, lambda: spare.step(x)))")
    counts(server, before + 9)
    before += 9
    server.tell("predicts = keras_model(); predicts.predict(x, verbose=0)")
    server.ask("time.sleep(0.3)")
    before = latency(server)["requests"]
    server.ask("predicts.predict(x, batch_size=16, verbose=0).shape[0]")
    before += 2 * (server.ask("__import__('keras').__version__") >= "3")  # batches; in Keras 2 predict() counts them in a variable
    counts(server, before)
    assert server.ask("fails()", "fails()") == ["True"] * 2
    counts(server, before + 2)
    answers = "' '.join([digest(answer), digest(lambda: loaded()(tf.constant(x))['output_0']), digest(session())])"
    assert server.ask(answers) == programs.plain(python, SERVE, "say", answers)[1:]
    server.ask("time.sleep(0.3)")
    before = latency(server)["requests"]
    server.ask("len([model.step_outside(x) for _ in range(2)])", "timed(3, answer)")  # from now on this thread trains
    server.ask("elsewhere(lambda: timed(1, answer))")
    counts(server, before + 1)
    server.end()


def test_a_training_has_no_requests(run, python):  # noqa: F811
    training = run(python, SERVE, "train", backend="tensorflow", options=PROMISED)
    training.expect("trained", guard=LONG_S)
    training.ask("elsewhere(lambda: timed(20, answer))", "time.sleep(0.5)")  # nor has another thread of one
    assert job(training)["latency"] is None
