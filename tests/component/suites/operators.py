# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own samples of its operators: each result close to that of one thread, which an earlier run has written.

TIDE_SUITE_RESULTS: the file of results; without the agent it is written, with it compared.
"""
import atexit
import os
import sys
import types
import unittest

import pytest
import torch

sys.modules.setdefault("expecttest", types.SimpleNamespace(TestCase=unittest.TestCase))  # PyTorch's own tests need it
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

FILE = os.environ["TIDE_SUITE_RESULTS"]
COMPARES = "LD_PRELOAD" in os.environ
SAMPLES = 3  # of each operator
NAMES = {f"{op.name}.{op.variant_test_name}".rstrip("."): op for op in op_db
         if torch.float32 in op.supported_dtypes("cpu") and "empty" not in op.name}
results = torch.load(FILE, weights_only=True) if COMPARES else {}
if not COMPARES:
    atexit.register(lambda: torch.save(results, FILE))


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value.detach().clone()] if value.layout == torch.strided else []
    return [t for part in value for t in tensors(part)] if isinstance(value, (list, tuple)) else []


@pytest.mark.parametrize("name", NAMES)
def test_operator(name):
    op, got = NAMES[name], []
    torch.manual_seed(5)
    for i, sample in enumerate(op.sample_inputs("cpu", torch.float32, requires_grad=False)):
        if i == SAMPLES:
            break
        got += tensors(op(sample.input, *sample.args, **sample.kwargs))
    if COMPARES:
        torch.testing.assert_close(got, results[name], equal_nan=True)
    else:
        results[name] = got
