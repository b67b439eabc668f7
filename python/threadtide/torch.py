# SPDX-License-Identifier: Apache-2.0
"""``threadtide.torch.count_steps(optimizer)`` for PyTorch 2.0 and newer; PyTorch itself is not imported here."""

import itertools

from threadtide._lib import progress

__all__ = ["count_steps"]


def count_steps(optimizer, total: int = 0, unit: str = "steps"):
    """Reports every ``optimizer.step()`` from now on: done and, if @total is given, how many there will be.

    Without it a training's backward passes are its progress, which have no total. Of several optimizers give the one
    that steps most often: each report replaces the one before it. Costs about a microsecond a step. Returns a handle;
    its ``remove()`` ends the reports. Raises AttributeError when @optimizer is none of PyTorch 2.0 or newer.
    """
    done = itertools.count(1)

    def report(*_):
        progress(next(done), total, unit)
    return optimizer.register_step_post_hook(report)
