# SPDX-License-Identifier: Apache-2.0
"""ONNX's own cases of its operators on ONNX Runtime: results as ONNX says, and the bits that an earlier run has written.

Making the cases takes longer than running them, so a sample (TIDE_SUITE_ONE_IN) is one of operators.
TIDE_SUITE_RESULTS: the file of bits; without the agent it is written, with it compared.
"""
import atexit
import hashlib
import importlib
import json
import os
import pkgutil
import zlib

import numpy
import onnx
import onnx.backend.test.case.node as node
import onnxruntime
import pytest
from onnx.backend.test.runner import Runner

THREADS = 8  # of a session
FILE = os.environ["TIDE_SUITE_RESULTS"]
COMPARES = "LD_PRELOAD" in os.environ
DRAWN = ("bernoulli", "random", "dropout", "multinomial")  # by numbers that differ from run to run
one_in, seed = int(os.environ.pop("TIDE_SUITE_ONE_IN", "1")), os.environ.get("TIDE_SUITE_SEED", "")
for module in pkgutil.iter_modules(node.__path__):
    if zlib.crc32((seed + module.name).encode()) % one_in == 0:
        importlib.import_module(f"{node.__name__}.{module.name}")
CASES = {case.name: case for case in node._NodeTestCases if not any(word in case.name for word in DRAWN)}
bits = json.load(open(FILE)) if COMPARES else {}
if not COMPARES:
    atexit.register(lambda: json.dump(bits, open(FILE, "w")))


def session_of(model):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def product():
    """A session that stays: those of the cases are gone before a target can reach them, and have what this one was told."""
    numbers, shape = onnx.TensorProto.FLOAT, [256, 256]
    x, y = (onnx.helper.make_tensor_value_info(name, numbers, shape) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("MatMul", ["x", "x"], ["y"])], "product", [x], [y])
    opset = [onnx.helper.make_opsetid("", 17)]
    return session_of(onnx.helper.make_model(graph, ir_version=8, opset_imports=opset))


STAYS, ONES = product(), numpy.ones((256, 256), numpy.float32)


def digest(value):
    if isinstance(value, (list, tuple)):
        return [digest(part) for part in value]
    return hashlib.sha256(value.tobytes()).hexdigest() if isinstance(value, numpy.ndarray) and value.dtype != object else str(value)


@pytest.mark.parametrize("name", CASES)
def test_case(name):
    for _ in range(20):  # long enough for targets to come meanwhile
        STAYS.run(None, {"x": ONES})
    case, session = CASES[name], session_of(CASES[name].model)
    for i, (inputs, outputs) in enumerate(case.data_sets):
        got = session.run(None, dict(zip((one.name for one in session.get_inputs()), inputs)))
        Runner.assert_similar_outputs(outputs, got, case.rtol, case.atol)
        if COMPARES:
            assert digest(got) == bits[f"{name} {i}"]
        else:
            bits[f"{name} {i}"] = digest(got)
