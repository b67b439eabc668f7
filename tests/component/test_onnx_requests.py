# SPDX-License-Identifier: Apache-2.0
"""Calls of a real ONNX Runtime are taken for requests where there is a promise of latency and the program tells none.

TIDE_PYTHON_TORCH names a Python that has ONNX Runtime, too.
"""
import pathlib

import pytest

import program as programs
from calls import counts, latency, promise, say
from conftest import ROOT
from daemon import eventually
from program import TORCH_PYTHON, run, tided  # noqa: F401 (fixtures)

WORK = pathlib.Path(__file__).parent / "onnx" / "work.py"
RUN = "main_session.run(None, main_inputs)"
pytestmark = pytest.mark.skipif(not TORCH_PYTHON, reason="TIDE_PYTHON_TORCH names no Python with ONNX Runtime")


@pytest.fixture
def server(run, build_dir):  # noqa: F811
    """Its calls are seen, and none has been made."""
    started = run(TORCH_PYTHON, WORK, "serve", backend="onnxruntime", PYTHONPATH=str(ROOT / "python"),
                  options=["--name", "server", "--slo", "p99=50ms", "--max", "8"], TIDE_LIBRARY=str(build_dir / "libtide.so.1"))
    started.expect("begun")
    eventually(lambda: started.ask("seen()") == "True")
    return started


def test_each_call_is_a_request_that_took_as_long(server, build_dir):
    least, most = map(float, server.ask(f"timed(30, lambda: {RUN})"))
    counts(server, 30)
    now = latency(server)
    assert now["source"] == "onnxruntime" and now["promise_us"] == 50_000
    assert now["p99_us"] is None or 0.8 * least < now["p99_us"] < 1.2 * most + 100
    assert "estimated from calls of ONNX Runtime" in say(build_dir, server, "explain", "server")
    assert " p99 ~" in say(build_dir, server, "ps")
    server.tell("one = session(2); binding = bind()")
    server.ask("len(side_by_side([main_session, one], 10))")  # in two threads
    counts(server, 50)
    server.ask("[main_session.run_with_iobinding(binding) for _ in range(3)]")
    counts(server, 53)
    server.ask("len([main_session.run_with_ort_values(None, {'x': onnxruntime.OrtValue.ortvalue_from_numpy(main_inputs['x'])})"
               " for _ in range(4)])")
    counts(server, 57)
    server.end()


def test_slow_calls_get_the_cores_of_another_job(run):  # noqa: F811
    batch = run(TORCH_PYTHON, WORK, backend="onnxruntime")
    server = run(TORCH_PYTHON, WORK, backend="onnxruntime", options=["--name", "server", "--slo", "p99=1ms", "--max", "8"])
    batch.expect("begun"), server.expect("begun")
    eventually(lambda: "its promise p99=1ms needs" in server.job()["reason"] and server.job()["target"] > 4 > batch.job()["target"])


def test_results_and_errors_are_stocks(server):
    answers = ("' '.join([digests(main_session, 5), complaint(1), complaint(), complaint(['y'], main_inputs, nothing=1), "
               "complaint(['none'], main_inputs, None), ''.join(main_session._sess.run.__doc__.split()), main_session._sess.run.__name__])")
    made = "globals().update(main_session=session(), main_inputs=inputs(session(), 0))"
    assert server.ask(answers) == programs.plain(TORCH_PYTHON, WORK, "say", f"[{made}, {answers}][1]")[1:]


def test_a_call_that_fails_has_ended(server):
    server.tell("failing = session(8, picking())")
    assert server.ask("all(fails(failing) for _ in range(5))") == "True"
    counts(server, 5)


def test_a_call_within_a_call_counts_once(server):
    server.tell("import capi; c = capi.Session(layers())")
    eventually(lambda: server.ask("c.seen()") == "True")
    server.tell("Inputs.meanwhile = lambda self: (main_session.run(None, main_inputs), c.run(main_inputs['x']))")
    assert server.ask("len(main_session._sess.run(['y'], Inputs(main_inputs), None))") == "1"
    server.ask(f"len({RUN})")
    counts(server, 2)


def test_what_the_program_tells_wins(server):
    server.ask(f"timed(3, lambda: {RUN})")
    counts(server, 3)
    server.tell("import threadtide; answer = threadtide.request()(lambda: main_session.run(None, main_inputs))")
    server.ask("timed(7, answer)")
    eventually(lambda: latency(server)["source"] == "told")
    server.ask(f"timed(3, lambda: {RUN})")
    server.ask("timed(1, answer)")
    counts(server, 8)


def test_a_child_computes_and_its_parent_counts_on(server):
    want = programs.plain(TORCH_PYTHON, WORK, "say", "digests(session(), 3)")[1:]
    server.ask(f"len({RUN})")
    assert [server.ask("*in_child(lambda: digests(session(), 3))")] == want
    server.ask(f"len({RUN})")
    eventually(lambda: 2 <= latency(server)["requests"] <= 5)  # the child's agent may hear of the promise too late


def test_calls_of_the_c_api(server):
    server.tell("import capi; c, array = capi.Session(layers()), main_inputs['x']")
    eventually(lambda: server.ask("c.seen()") == "True")
    want = server.ask("digest(main_session, 0)")
    assert server.ask("c.run(array)", "c.run_async(array)", "c.run_bound(array)") == [want, "42", "1", want, "None"]
    counts(server, 4)
    assert latency(server)["p99_us"] is None or latency(server)["p99_us"] > 200
    server.tell("failing, wrong = capi.Session(picking()), numpy.full(4096, 64, 'int64')")
    assert server.ask("failing.fails(wrong)", "failing.fails(wrong, 'run_async')",  # by its answer, and at once
                      "capi.Session(layers(), 1).fails(array, 'run_async')") == ["True"] * 3
    counts(server, 7)
    server.end()


def test_a_second_library_is_not_read(server, tmp_path):
    """The stubs of the first would call its functions."""
    server.tell("import capi; c, array = capi.Session(layers()), main_inputs['x']")
    eventually(lambda: server.ask("c.seen()") == "True")
    server.tell(f"import shutil; capi.LIBRARY = shutil.copy(capi.LIBRARY, {str(tmp_path)!r}); d = capi.Session(layers())")
    server.ask("time.sleep(0.5)")
    assert server.ask("c.seen()", "d.seen()", "c.run(array) == d.run(array)") == ["True", "False", "True"]
    counts(server, 1)


def test_without_a_promise_the_module_is_not_touched(run):  # noqa: F811
    started = run(TORCH_PYTHON, WORK, "serve", backend="onnxruntime")
    started.expect("begun")
    started.ask(f"timed(3, lambda: {RUN})")
    started.shown()
    started.tell("import capi; c = capi.Session(layers())")
    assert started.ask("seen()") == started.ask("c.seen()") == "False" and started.job()["latency"] is None
    promise(started, "p99=50ms")
    eventually(lambda: started.ask("seen()") == started.ask("c.seen()") == "True")
    started.ask(f"timed(4, lambda: {RUN})")
    counts(started, 4)
    promise(started, None)
    eventually(lambda: (before := latency(started)["requests"], started.ask(f"timed(1, lambda: {RUN})"), started.ask("time.sleep(0.3)"))
               and latency(started)["requests"] == before)
    started.end()
