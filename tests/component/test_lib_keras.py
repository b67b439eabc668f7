# SPDX-License-Identifier: Apache-2.0
"""threadtide.keras.ProgressCallback in real trainings of the Keras that is installed, 2 or 3."""

import copy
import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
BUILD = pathlib.Path(os.environ.get("TIDE_BUILD_DIR") or ROOT / "build").resolve()
os.environ.setdefault("TIDE_LIBRARY", str(BUILD / "libtide.so.1"))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

keras = pytest.importorskip("keras")
import numpy  # noqa: E402
import threadtide.keras  # noqa: E402


@pytest.fixture
def reports(monkeypatch):
    """The reports that reach the agent: (done, total, unit) of each."""
    seen = []
    monkeypatch.setattr(threadtide.keras, "progress", lambda *report: seen.append(report))
    return seen


def model(steps_per_execution=1):
    net = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    net.compile("sgd", "mse", steps_per_execution=steps_per_execution)
    return net


def data(examples=40):
    return numpy.ones((examples, 3), "float32"), numpy.ones((examples, 1), "float32")


def batches(steps, endless=True):
    while True:
        for _ in range(steps):
            yield data(8)
        if not endless:
            return


def fit(net, *args, **options):
    net.fit(*args, verbose=0, **options)


def test_counts_every_step_over_all_epochs(reports):
    fit(model(), *data(), batch_size=8, epochs=3, callbacks=[threadtide.keras.ProgressCallback()])
    assert [report[0] for report in reports] == list(range(1, 16))
    assert {report[1:] for report in reports} == {(15, "steps")}


def test_validation_and_prediction_do_not_count(reports):
    net, callback = model(), threadtide.keras.ProgressCallback("batches")
    fit(net, *data(), batch_size=8, validation_data=data(), callbacks=[callback])
    net.predict(data()[0], verbose=0, callbacks=[callback])
    assert reports[-1] == (5, 5, "batches")


def test_resumed_training_counts_what_is_left(reports):
    callback = threadtide.keras.ProgressCallback()
    fit(model(), *data(), batch_size=8, epochs=5, initial_epoch=3, callbacks=[callback])
    assert reports[0] == (1, 10, "steps")
    assert reports[-1] == (10, 10, "steps")


def test_a_second_fit_continues_the_count(reports):
    net, callback = model(), threadtide.keras.ProgressCallback()
    for _ in range(2):
        fit(net, *data(), batch_size=8, epochs=2, callbacks=[callback])
    assert reports[9] == (10, 10, "steps")
    assert reports[-1] == (20, 20, "steps")
    assert [report[0] for report in reports] == list(range(1, 21))


def test_several_steps_in_one_execution_count_as_such(reports):
    callback = threadtide.keras.ProgressCallback()
    fit(model(steps_per_execution=4), *data(64), batch_size=8, epochs=2, callbacks=[callback])
    assert [report[0] for report in reports] == [4, 8, 12, 16]


def test_generator_of_unknown_length_has_no_total_that_is_wrong(reports):
    callback = threadtide.keras.ProgressCallback()
    fit(model(), batches(4), steps_per_epoch=4, epochs=2, callbacks=[callback])
    assert reports[-1][0] == 8
    assert reports[-1][1] in (0, 8)
    reports.clear()
    fit(model(), batches(6, endless=False), epochs=1, callbacks=[callback])
    assert reports[-1][0] == 14
    assert reports[-1][1] in (0, 14)


def test_works_beside_other_callbacks_and_early_stop(reports):
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 2

    fit(
        model(),
        *data(),
        batch_size=8,
        epochs=3,
        callbacks=[Stop(), threadtide.keras.ProgressCallback()],
    )
    assert reports[-1] == (3, 15, "steps")


def test_reads_no_metric_and_can_be_copied():
    callback = threadtide.keras.ProgressCallback()
    assert isinstance(callback, keras.callbacks.Callback)
    assert callback.async_safe  # Keras 3 does not wait for the metrics
    assert callback._supports_tf_logs  # nor does Keras 2
    assert copy.deepcopy(callback)._unit == "steps"


def test_without_an_agent_training_is_as_ever():
    callback = threadtide.keras.ProgressCallback()
    net = model()
    fit(net, *data(), batch_size=8, callbacks=[callback])
    assert callback._base == 5
