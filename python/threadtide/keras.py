# SPDX-License-Identifier: Apache-2.0
"""``model.fit(…, callbacks=[threadtide.keras.ProgressCallback()])`` for Keras 2 and 3.

Keras is imported when ProgressCallback is first used, not before; the one that the program has
loaded already (keras, else tf_keras) is taken.
"""

import importlib
import sys
import threading

from threadtide._lib import progress

__all__ = ["ProgressCallback"]


_step_lock = threading.Lock()  # of all instances: one in each would make them impossible to copy


def _callback_base() -> type:
    for name in ("keras", "tf_keras"):
        module = sys.modules.get(name)
        if module is not None:
            return module.callbacks.Callback
    return importlib.import_module("keras").callbacks.Callback


def _make_class() -> type:
    class ProgressCallback(_callback_base()):
        """Reports every training step: done and, once known, total over all epochs.

        Costs about a microsecond a step and reads no metric, so that Keras has no reason to wait
        for the device. Fit called again continues the count.
        """

        # Keras 3: may run beside the training step. Keras 2: no need to convert the logs.
        async_safe = True

        def __init__(self, unit: str = "steps"):
            super().__init__()
            self._supports_tf_logs = True
            self._unit = unit
            self._base = 0  # steps of the epochs before this one
            self._step = 0  # last one of this epoch, counted from 1
            self._total = 0

        def on_train_begin(self, logs=None):
            self._step = 0
            self._total = 0

        def on_epoch_begin(self, epoch, logs=None):
            self._base += self._step
            self._step = 0
            # Early in the first epoch Keras does not know the steps of a generator.
            params = self.params or {}
            if params.get("steps"):
                self._total = self._base + params["steps"] * (params.get("epochs", 1) - epoch)

        def on_train_batch_end(self, batch, logs=None):
            # The index of the last step of an execution; with async_safe it may come out of order.
            with _step_lock:
                if batch + 1 > self._step:
                    self._step = batch + 1
                    progress(self._base + self._step, self._total, self._unit)

        def on_train_end(self, logs=None):
            self._base += self._step
            self._step = 0

    ProgressCallback.__module__ = __name__
    ProgressCallback.__qualname__ = "ProgressCallback"
    return ProgressCallback


def __getattr__(name: str):
    if name == "ProgressCallback":
        globals()[name] = _make_class()
        return globals()[name]
    raise AttributeError("module %r has no attribute %r" % (__name__, name))
