# SPDX-License-Identifier: Apache-2.0
"""What a program may do around its steps, and what it is told: one training in this process.

All tests share the cluster and the coordinator; each makes variables and optimizers of its own.
"""

import os
import sys

import numpy as np
import pytest

from elastic import GUARD_S, cluster
from peer import wait_until

SLOTS = 2


class Bed:
    """The training, and what it says."""

    def __init__(self, nodes, strategy, coordinator, tf, keras):
        self.nodes, self.strategy, self.coordinator = nodes, strategy, coordinator
        self.tf, self.keras = tf, keras

    def variable(self, value=0.0, dtype="float32"):
        with self.strategy.scope():
            return self.tf.Variable(self.tf.constant(value, dtype))

    def sgd(self, rate=1.0):
        with self.strategy.scope():
            return self.strategy.optimizer(self.keras.optimizers.SGD(rate))

    def epochs(self, *arrays, batch_size=None):
        return iter(self.coordinator.create_epochs(
            arrays, batch_size=batch_size or len(arrays[0]), shuffle=False))

    def done(self, function, *args, **kwargs):
        """The result of a call."""
        result = self.coordinator.schedule(function, args=args, kwargs=kwargs)
        self.coordinator.join()
        return result.fetch()


@pytest.fixture(scope="module")
def bed():
    environ = {"CUDA_VISIBLE_DEVICES": "", "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "2"}
    with pytest.MonkeyPatch.context() as patch, cluster(sys.executable, slots=SLOTS) as nodes:
        for name, value in {**environ, **nodes.env}.items():
            patch.setenv(name, value)
        import keras
        import tensorflow as tf

        import threadtide.tensorflow as tide
        strategy = tide.ElasticParameterServerStrategy()
        with tide.ElasticCoordinator(strategy) as coordinator:
            yield Bed(nodes, strategy, coordinator, tf, keras)


def ones(count=4):
    return np.ones(count, np.float32)


def test_a_learning_rate_that_is_set_is_used(bed):
    weight, sgd = bed.variable(), bed.sgd(1.0)

    def step(batch):
        slope, = next(batch)
        sgd.apply([bed.tf.reduce_mean(slope)], [weight])
        return weight.read_value()

    batch = bed.epochs(ones())
    bed.done(step, batch)
    assert weight.numpy() == -1.0 and int(sgd.iterations.numpy()) == 1  # once for all slots
    sgd.learning_rate = 0.25
    bed.done(step, batch)
    assert weight.numpy() == -1.25 and float(sgd.learning_rate) == 0.25


def test_functions_of_the_program_follow_variables_that_move(bed):
    tf = bed.tf
    weights = [bed.variable([1.0, 2.0]) for _ in range(4)]
    traces = []

    @tf.function
    def inner():
        return tf.add_n([w.read_value() for w in weights])

    @tf.function
    def total(times):
        traces.append(1)
        value = inner()
        for _ in tf.range(times):
            value += weights[0]
        return tf.cond(times > 0, lambda: value + weights[1], lambda: value)

    assert total(tf.constant(1)).numpy().tolist() == [6.0, 12.0]
    homes = [w.device for w in weights]
    bed.nodes.start("ps")
    wait_until(lambda: [w.device for w in weights] != homes, "variables have moved", GUARD_S)
    for weight in weights:
        weight.assign([5.0, 6.0])
    assert total(tf.constant(1)).numpy().tolist() == [30.0, 36.0] and len(traces) == 1


def test_a_function_is_traced_anew_when_what_it_is_given_differs(bed, capfd):
    tf = bed.tf
    weight, sgd = bed.variable(), bed.sgd(1.0)
    traces = []

    class Model:
        def __init__(self, factor):
            self.factor = factor

        def step(self, batch, scale, rate=1.0):
            traces.append(rate)
            slope, = next(batch)
            sgd.apply_gradients([(tf.reduce_mean(slope) * scale * rate * self.factor, weight)])
            return scale

    batch, one = bed.epochs(ones()), tf.constant(1.0)

    def moved(function, *args, **kwargs):
        before = float(weight.numpy())
        bed.done(function, *args, **kwargs)
        return before - float(weight.numpy())

    assert moved(Model(2.0).step, batch, one) == 2.0
    model = Model(3.0)
    assert moved(model.step, batch, one) == 3.0
    assert moved(model.step, batch, one, rate=2.0) == 6.0
    known = len(traces)
    assert moved(model.step, batch=batch, scale=one, rate=2.0) == 6.0
    known += 1  # by name: another structure
    for scale in (2.0, 3.0, 4.0):  # neither new tensors nor new lambdas are traced again
        assert moved(model.step, batch, tf.constant(scale)) == 3.0 * scale
        calls = [bed.done(lambda x: model.factor * x, np.float32(scale)) for _ in range(2)]
        assert calls == [3.0 * scale] * 2
    assert len(traces) == known
    assert "times, which is slow" not in capfd.readouterr().err
    for number in range(8):
        bed.done(lambda x: x + float(number), one)
    assert "times, which is slow" in capfd.readouterr().err
    with pytest.raises(ValueError, match="one iterator"):
        bed.coordinator.schedule(model.step, args=(batch, bed.epochs(ones())))
