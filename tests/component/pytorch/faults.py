# SPDX-License-Identifier: Apache-2.0
"""Faults of a program's own making: endless signals, exceptions amid a step, other interpreters, other libraries."""
import os
import signal
import sys
import time

import torch


def storm(train, seconds):
    """Trains under a signal each millisecond. Returns how many came, and whether the loss is a number."""
    came, loss, until = [0], None, time.monotonic() + seconds

    def handler(number, frame):
        came[0] += 1
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        while time.monotonic() < until:
            loss = train()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return came[0] > 10, bool(torch.isfinite(loss))


class Fails(torch.autograd.Function):
    """Its backward pass raises, which goes through the engine of autograd."""

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        raise ValueError("on purpose")


def exceptions(rounds):
    """How many of the exceptions that were raised within backward passes have come out."""
    caught = 0
    for _ in range(rounds):
        x = torch.ones(1000, 100, requires_grad=True)
        try:
            (Fails.apply(x * 2).sin() @ torch.ones(100, 100)).sum().backward()
        except ValueError:
            caught += 1
    return caught


def other_interpreters(rounds):
    """Each computes for a moment, as a sub-interpreter of this process."""
    try:
        import _xxsubinterpreters as interpreters
    except ModuleNotFoundError:
        import _interpreters as interpreters
    for _ in range(rounds):
        one = interpreters.create()
        interpreters.run_string(one, "sum(i * i for i in range(20000))")
        interpreters.destroy(one)
    return rounds


def forks(rounds):
    """Exit codes of children that end without any of Python's or the agent's own ends."""
    codes = set()
    for i in range(rounds):
        pid = os.fork()
        if pid == 0:
            os._exit(i % 7 + 1)
        codes.add(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) - i % 7)
    return sorted(codes)


def together(rounds):
    """PyTorch, scikit-learn, XGBoost and NumPy in turn in one process: their errors, rounded as far as threads change them."""
    import numpy
    import sklearn.cluster
    import sklearn.linear_model
    import xgboost
    rng = numpy.random.default_rng(3)
    x, errors = rng.random((3000, 16), dtype=numpy.float32), []
    y = x.sum(axis=1)
    net, data = torch.nn.Linear(16, 1), torch.from_numpy(x)
    torch.manual_seed(0)
    torch.nn.init.zeros_(net.weight), torch.nn.init.zeros_(net.bias)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    for _ in range(rounds):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(data)[:, 0], torch.from_numpy(y))
        loss.backward()
        optimizer.step()
        trees = xgboost.train({"max_depth": 3, "eta": 0.5}, xgboost.DMatrix(x, y), 3)
        errors += [loss.item(), float(numpy.abs(trees.predict(xgboost.DMatrix(x)) - y).mean()),
                   sklearn.cluster.KMeans(4, n_init=1, random_state=0).fit(x).inertia_,
                   float(sklearn.linear_model.Ridge().fit(x, y).coef_.sum()), float((x.T @ x).sum())]
    return [f"{error:.3g}" for error in errors]


def beside_tensorflow(rounds):
    """The same, and TensorFlow in turn with them."""
    sys.modules["triton"] = None  # a program with its LLVM and TensorFlow's ends
    import tensorflow as tf
    x = tf.random.stateless_normal((4000, 64), (1, 2))
    w, v = (tf.Variable(tf.random.stateless_normal(shape, (3, 4))) for shape in ((64, 256), (256, 1)))

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.nn.relu(x @ w) @ v - tf.reduce_sum(x, 1, keepdims=True)) ** 2)
        for variable, gradient in zip((w, v), tape.gradient(loss, (w, v))):
            variable.assign_sub(1e-5 * gradient)
        return loss
    errors = []
    for _ in range(rounds):
        errors += [f"{float(step()):.3g}" for _ in range(20)][-1:] + together(1)
    return errors
