# SPDX-License-Identifier: Apache-2.0
"""The training's report: rates, pauses, and where a step's time goes.

Compute and communication. A closure's time on a worker holds both, and TensorFlow overlaps them, so
neither can be read off. Instead, now and then, a worker gets a *probe*: a function that reads the
same variables and writes as many gradients as a step, and computes nothing in between. With c the
median of closures, p that of probes, a of the application of the slots and s of whole steps, the
share of computing is (1 - p/c) (s - a)/s; the rest, including what the parameter servers do, counts
as communication. More workers make the first part smaller, more parameter servers the second.
"""

import collections
import math
import statistics
import threading
import time

import numpy as np

from threadtide.tensorflow.log import log

LOG_S = 10.0
AFTER = 3  # steps that a change of the cluster may still slow down


class Progress:
    """Written by the training's thread, read by the channel's."""

    def __init__(self, step):
        self._lock = threading.Lock()
        self.finished = False
        self.pauses = []  # milliseconds, of all changes so far
        self.step_times = collections.deque(maxlen=50)
        self._closures = collections.deque(maxlen=100)
        self._probes = collections.deque(maxlen=9)
        self._applies = collections.deque(maxlen=50)
        self._epoch, self._loss, self._examples = 0, math.nan, 0
        self._rate = collections.deque(maxlen=51)  # (time, examples) of the last steps
        self._told = 0  # pauses that were reported
        self._last = self._logged = time.monotonic()
        self._probed = 0.0
        self._probe = None
        self._excess, self._left = 0.0, 0

    def changed(self):
        """A node came, left or was lost."""
        self._left = AFTER

    def resumed(self):
        """The training goes on after a suspension, whose time is no step's."""
        self._last = time.monotonic()

    def probe_due(self, interval_s):
        """Whether a probe shall be made now."""
        if self._probe and self._probe.finished:
            if not self._probe.error:
                self._probes.append(self._probe.result)
            self._probe = None
        now = time.monotonic()
        if now - self._probed < interval_s:
            return False
        self._probed = now
        return True

    def applied(self, apply_s, closures_s, probe):
        self._applies.append(apply_s)
        self._closures.extend(closures_s)
        self._probe = probe or self._probe

    def step_done(self, step, epoch, value, examples):
        now = time.monotonic()
        gap, self._last = now - self._last, now
        with self._lock:
            self._pause(gap)
            if not self._left:
                self.step_times.append(gap)
            self._epoch, self._loss = epoch, _first_number(value)
            self._examples += examples
            self._rate.append((now, self._examples))
        if now - self._logged >= LOG_S:
            self._logged = now
            told = self.report(step, 0, [])
            log(f"step {step} epoch {epoch} loss {self._loss:.6g} "
                f"{told['examples_per_s']:.0f} examples/s, step {told['step_s'] * 1e3:.1f} ms, "
                f"computing {told['compute_permille'] / 10:.0f} %")

    def _pause(self, gap):
        """After a change, what the next steps take beyond the usual is the pause it made."""
        if not self._left:
            return
        usual = statistics.median(self.step_times) if self.step_times else gap
        self._excess += max(0.0, gap - usual)
        self._left -= 1
        if not self._left:
            self.pauses.append(self._excess * 1e3)
            self._excess = 0.0
            self._closures.clear()  # the split is another one now: the controller goes by it
            self._probes.clear()
            self._probed = 0.0

    def _compute_share(self, step_s):
        if not self._closures or not self._probes:
            return 0.0
        closure = statistics.median(list(self._closures))
        alone = 1.0 - min(1.0, statistics.median(list(self._probes)) / closure)
        apply_s = statistics.median(list(self._applies))
        return alone * max(0.0, 1.0 - apply_s / step_s) if step_s else alone

    def report(self, step, duplicates, nodes, tell=False):
        """The dict that coordinator.report() returns. With @tell, for the controller, `pauses_ms`
        has only the pauses that no report before has told; else all of the training so far."""
        with self._lock:
            times = list(self.step_times)
            step_s = statistics.median(times) if times else 0.0
            rate = 0.0
            if len(self._rate) > 1:
                (then, before), (now, after) = self._rate[0], self._rate[-1]
                rate = (after - before) / max(1e-9, now - then)
            compute = round(1000 * self._compute_share(step_s))
            pauses = self.pauses
            if tell:
                pauses = pauses[self._told:]
                self._told = len(self.pauses)
            return {"step": step, "epoch": self._epoch,
                    "loss": self._loss if math.isfinite(self._loss) else None,
                    "examples": self._examples, "examples_per_s": rate, "step_s": step_s,
                    "compute_permille": compute, "communication_permille": 1000 - compute,
                    "finished": self.finished, "pauses_ms": [round(p) for p in pauses],
                    "duplicates": duplicates, "nodes": nodes}


def _first_number(value):
    """The loss: the first scalar of what a step returned."""
    while isinstance(value, (tuple, list, dict)) and value:
        value = next(iter(value.values())) if isinstance(value, dict) else value[0]
    array = np.asarray(value)
    return float(array) if array.shape == () and array.dtype.kind in "fiu" else math.nan
