# SPDX-License-Identifier: Apache-2.0
"""A PyTorch program that computes what it is told: each line of its stdin is a statement of Python.

    serve.py                  says "begun"; `say(…)` in a statement answers
    serve.py train            trains by itself, with a validation and a checkpoint, and says "trained"
    serve.py say EXPRESSION   says what it comes to
"""
import ctypes
import hashlib
import pathlib
import sys
import time

import torch
import torch.utils.checkpoint

sys.path.append(str(pathlib.Path(__file__).parent.parent))
from statements import elsewhere, say, serve, timed  # noqa: E402, F401 (statements use them)

vectorcall = ctypes.pythonapi.PyVectorcall_Function
vectorcall.argtypes, vectorcall.restype = [ctypes.py_object], ctypes.c_void_p


class Picky(torch.nn.Module):
    """Raises what it is told to."""

    def __init__(self):
        super().__init__()
        self.inner, self.fault = torch.nn.Linear(64, 64), None

    def forward(self, x):
        if self.fault:
            raise self.fault
        return self.inner(x)


torch.manual_seed(1)
net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Sequential(torch.nn.Linear(256, 64)))
picky, x = Picky(), torch.randn(32, 64)


def answer(model=None):
    with torch.inference_mode():
        return (net if model is None else model)(x)


def answers(count, model=None):
    return timed(count, lambda: answer(model))


def without_gradients(model=None):
    with torch.no_grad():
        return (net if model is None else model)(x)


def checkpointed():
    """A function of autograd runs the model without gradients, and when it needs them again with them."""
    return torch.utils.checkpoint.checkpoint(net, x.clone().requires_grad_(), use_reentrant=True)


def step(run=lambda: net(x)):
    """A step of a training."""
    outputs = run()
    outputs.square().mean().backward()
    return outputs


def fails(fault):
    picky.fault = fault
    try:
        answer(picky)
    except BaseException as error:
        return error is fault
    finally:
        picky.fault = None


def exported():
    """Modules that others make of it: TorchScript, torch.fx, a copy."""
    import copy
    return torch.jit.trace(net, x), torch.fx.symbolic_trace(net), copy.deepcopy(net)


def digest(*models):
    return hashlib.sha256(b"".join(answer(m).numpy().tobytes() for m in models or (net,))).hexdigest()[:16]


def compiled():
    """A compiled model, which fails if it has to be compiled a second time."""
    import torch._dynamo
    torch._dynamo.config.error_on_recompile = True
    return torch.compile(net, backend="eager")


def graphs():
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def seen():
    """Whether calls of modules pass by the agent."""
    return vectorcall(torch.nn.Module.__call__) != vectorcall(torch.nn.Module.train)


if sys.argv[1:2] == ["say"]:
    say("answer", eval(sys.argv[2]))
elif sys.argv[1:2] == ["train"]:
    while not seen():
        time.sleep(0.01)
    for _ in range(10):
        [without_gradients() for _ in range(5)]
        [step(checkpointed) for _ in range(20)]
        step()
    say("trained")
    serve(globals())
else:
    serve(globals())
