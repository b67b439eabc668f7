# SPDX-License-Identifier: Apache-2.0
"""The work of workers, with NumPy, PyTorch and scikit-learn; a module of its own, which their processes import."""
import os
import time


def work(seed):
    """Three figures, rounded as far as numbers of threads change them."""
    import numpy
    import sklearn.cluster
    import torch
    rng, generator = numpy.random.default_rng(seed), torch.Generator().manual_seed(seed)
    a = rng.random((300, 300))
    traces = sum(float((a @ a).trace()) for _ in range(5))
    x, w = (torch.randn(300, 300, generator=generator) for _ in range(2))
    w.requires_grad_()
    for _ in range(5):
        (x @ w).sigmoid().mean().backward()
    spread = sklearn.cluster.KMeans(4, n_init=1, random_state=0).fit(rng.random((2000, 8))).inertia_
    return [f"{figure:.4g}" for figure in (traces, w.grad.abs().sum().item(), spread)]


def number(_=None):
    """The worker's process, and how many threads PyTorch says that it has."""
    import torch
    return os.getpid(), torch.get_num_threads()


def process(_=None):
    """The worker's process, which takes its time, so that another one takes the next."""
    time.sleep(0.3)
    return os.getpid()
