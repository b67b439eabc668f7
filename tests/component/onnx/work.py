# SPDX-License-Identifier: Apache-2.0
"""A small program with ONNX Runtime: it computes, and each line of its stdin is a statement of Python that it runs in between.

    work.py [THREADS]                with a session of so many (0: ONNX Runtime's choice; 8); says "begun"
    work.py serve                    computes nothing but what it is told
    work.py say EXPRESSION           says what it comes to
"""
import ctypes  # noqa: F401 (for statements)
import hashlib
import os
import pathlib
import re
import sys
import threading
import time

import numpy
import onnxruntime

HERE = pathlib.Path(__file__).resolve()
sys.path += [str(HERE.parents[1]), str(HERE.parents[3] / "bench")]
from runtime_work import field  # noqa: E402
from statements import goes_on, in_child, listen, say, timed  # noqa: E402, F401 (statements use them)

WIDTH, BATCH = 512, 64


# ---- models, as protocol buffers have them (onnx.proto3), without the package onnx ----

def node(kind, inputs, outputs, **integers):
    named = b"".join(field(5, field(1, name) + field(3, value) + field(20, 2)) for name, value in integers.items())
    return field(1, b"".join(field(1, i) for i in inputs) + b"".join(field(2, o) for o in outputs) + field(4, kind) + named)


def constant(name, array):
    kind = {"float32": 1, "int64": 7}[array.dtype.name]
    return field(5, b"".join(field(1, n) for n in array.shape) + field(2, kind) + field(8, name) + field(9, array.tobytes()))


def value(number, name, *shape, kind=1):
    dims = b"".join(field(1, field(1, n)) for n in shape)
    return field(number, field(1, name) + field(2, field(1, field(1, kind) + field(2, dims))))


def model(graph):
    return field(1, 8) + field(7, graph + field(2, "work")) + field(8, field(2, 17))


def weights(*shape):
    return numpy.random.default_rng(sum(shape)).standard_normal(shape, dtype="float32") / shape[-1] ** .5


def layers(count=4):
    """Products, Softmax (sums) and LayerNormalization; input "x", output "y"."""
    graph, before = constant("one", numpy.ones(WIDTH, "float32")), "x"
    for i in range(count):
        after = "y" if i == count - 1 else f"h{i}"
        graph += constant(f"w{i}", weights(WIDTH, WIDTH) * (i + 1))
        graph += node("MatMul", [before, f"w{i}"], [f"m{i}"]) + node("Softmax", [f"m{i}"], [f"s{i}"])
        graph += node("LayerNormalization", [f"s{i}", "one"], [after])
        before = after
    return model(graph + value(11, "x", BATCH, WIDTH) + value(12, "y", BATCH, WIDTH))


def branches(count=6):
    """Products side by side, for the parallel executor."""
    graph = b""
    for i in range(count):
        graph += constant(f"w{i}", weights(WIDTH, WIDTH) * (i + 1)) + node("MatMul", ["x", f"w{i}"], [f"m{i}"])
    graph += node("Sum", [f"m{i}" for i in range(count)], ["y"])
    return model(graph + value(11, "x", BATCH, WIDTH) + value(12, "y", BATCH, WIDTH))


def recurrent(steps=16, hidden=256):
    """A GRU, whose loops are in one section: its helpers stay from loop to loop."""
    graph = constant("w", weights(1, 3 * hidden, WIDTH)) + constant("r", weights(1, 3 * hidden, hidden))
    graph += node("GRU", ["x", "w", "r"], ["y"], hidden_size=hidden)
    return model(graph + value(11, "x", steps, 8, WIDTH) + value(12, "y", steps, 1, 8, hidden))


def picking():
    """Fails when it is asked for a row that there is not."""
    graph = constant("rows", weights(64, WIDTH)) + node("Gather", ["rows", "x"], ["y"])
    return model(graph + value(11, "x", 4096, kind=7) + value(12, "y", 4096, WIDTH))


# ---- what it computes ----

def session(threads=8, made=None, parallel=False, **config):
    """Dots in names of options are written as two underscores."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # errors alone
    if parallel:
        options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
        options.inter_op_num_threads = 3
    for name, text in config.items():
        options.add_session_config_entry(name.replace("__", "."), text)
    return onnxruntime.InferenceSession(made or layers(), options, providers=["CPUExecutionProvider"])


def inputs(one, step):
    shape = one.get_inputs()[0].shape
    return {"x": numpy.random.default_rng(step).standard_normal(shape, dtype="float32")}


def digest(one, step=0):
    return hashlib.sha256(one.run(None, inputs(one, step))[0].tobytes()).hexdigest()[:16]


def digests(one, steps):
    return hashlib.sha256("".join(digest(one, step) for step in range(steps)).encode()).hexdigest()[:16]


def asynchronously(one, step=0):
    """The same, by a thread of the pool, which leads the loops then."""
    done, result = threading.Event(), []

    def end(outputs, data, error):
        result.append(error or hashlib.sha256(outputs[0].tobytes()).hexdigest()[:16])
        done.set()
    one.run_async(None, inputs(one, step), end, None)
    assert done.wait(30)
    return result[0]


def fails(one):
    try:
        one.run(None, {"x": numpy.full(4096, 64, "int64")})
    except onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument:
        return True
    return False


def side_by_side(sessions, steps):
    """Each session in a thread of its own. What they come to."""
    results = [None] * len(sessions)

    def work(i):
        results[i] = digests(sessions[i], steps)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(sessions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


# ---- calls that the agent sees ----

def seen():
    """A method's function then has the one before it as its object, which stock's has not."""
    return callable(onnxruntime.capi.onnxruntime_pybind11_state.InferenceSession.run.__self__)


def complaint(*words, **named):
    """The exception of a call with these arguments, without addresses."""
    try:
        main_session._sess.run(*words, **named)
    except Exception as error:
        return re.sub("0x[0-9a-f]+|\\s", "", f"{type(error)}{error}")


def bind():
    binding = main_session.io_binding()
    binding.bind_cpu_input("x", main_inputs["x"])
    binding.bind_output("y")
    return binding


class Inputs(dict):
    """While the library reads them, something else runs: meanwhile()."""

    def items(self):
        self.meanwhile()
        return super().items()


# ---- which threads take part ----

def tasks():
    """Threads that are neither Python's, but for the main one, nor the agent's."""
    others = {t.native_id for t in threading.enumerate() if t is not threading.main_thread()}
    found = {}
    for task in pathlib.Path("/proc/self/task").iterdir():
        try:
            if int(task.name) not in others and (task / "comm").read_text() != "tide-agent\n":
                found[int(task.name)] = task
        except OSError:
            pass  # it has ended
    return found


def team(one=None, steps=30):
    """Threads that use processor time while so many steps run."""
    def times():
        time.sleep(0.01)  # a running thread's time is added up at a tick or a switch
        return {t: (task / "schedstat").read_text().split()[0] for t, task in tasks().items()}
    before = times()
    for step in range(steps):
        (one or main_session).run(None, main_inputs)
    return sum(before.get(t) != spent for t, spent in times().items())


def bound(expected, patience_s):
    """How many threads may not run where the main thread may: workers bind themselves some time after their birth."""
    def cpus(task):
        return next(line for line in (task / "status").read_text().splitlines() if line.startswith("Cpus_allowed:"))
    until = time.monotonic() + patience_s
    while True:
        found = sum(cpus(task) != cpus(tasks()[os.getpid()]) for task in tasks().values())
        if found == expected or time.monotonic() > until:
            return found
        time.sleep(0.01)


def main():
    global main_session, main_inputs
    serves = sys.argv[1:] == ["serve"]
    main_session = session(int(sys.argv[1]) if len(sys.argv) > 1 and not serves else 8)
    main_inputs = inputs(main_session, 0)
    say("begun")
    while goes_on(globals()):
        if not serves:
            main_session.run(None, main_inputs)
        time.sleep(0.002 if serves else 0)


if sys.argv[1:2] == ["say"]:
    say("answer", eval(sys.argv[2]))
else:
    listen()
    main()
