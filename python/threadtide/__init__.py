# SPDX-License-Identifier: Apache-2.0
"""Threadtide for Python programs: pure Python over libtide.so, never required.

A program reports its progress and may steer its own threads::

    import threadtide

    for step in range(steps):
        train_one(step)
        threadtide.progress(step + 1, steps)

A server tells its requests, for their latency::

    with threadtide.request():
        answer()

Without the library or without the agent (the program was not started by ``tide run``) every
function here does nothing and says so by its return value; importing always works. A scheduler
uses :class:`Controller`, a Keras training ``threadtide.keras.ProgressCallback``.
"""

from threadtide._lib import Source, State, available, freeze, on_change, progress, request, set_threads, state
from threadtide.controller import ASYNC, Controller, Job, Result

__all__ = [
    "ASYNC",
    "Controller",
    "Job",
    "Result",
    "Source",
    "State",
    "available",
    "freeze",
    "on_change",
    "progress",
    "request",
    "set_threads",
    "state",
]
__version__ = "0.9.0"


def load_ipython_extension(shell):
    """``%load_ext threadtide`` in a notebook: the line magic ``%tide``."""
    from threadtide import kernel

    kernel.load_ipython_extension(shell)
