# SPDX-License-Identifier: Apache-2.0
"""A training in phases for the tests of resuming: what it needs, it creates when it gets there.

elastic_phases.py DIRECTORY STOP: three steps of a first layer, two of a second, two of the first
again, each with an optimizer of its own, whose rate is halved after each step, by the program, as
steps are counted. After step STOP it saves and dies; it prints weights and count after the end.
Velocities are made where a step is traced first.
"""

import json
import os
import pathlib
import sys

os.environ.update(CUDA_VISIBLE_DEVICES="", KERAS_BACKEND="tensorflow")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import keras
import numpy as np
import tensorflow as tf

import threadtide.tensorflow as tide

PHASES = (("first", 3), ("second", 2), ("first", 2))


class Phase:
    """A weight that begins with 0 and goes down a slope of 1."""

    def __init__(self, strategy):
        with strategy.scope():
            self.layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
            self.layer.build((None, 1))
            self.sgd = strategy.optimizer(keras.optimizers.SGD(1.0, momentum=0.5))
        self.step = tf.function(self._step)

    def _step(self, batch):
        x, = next(batch)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self.layer(x))
        self.sgd.apply_gradients(zip(tape.gradient(loss, self.layer.trainable_variables),
                                     self.layer.trainable_variables))
        return loss


def main(directory, stop):
    strategy = tide.ElasticParameterServerStrategy(checkpoint_dir=directory, slots=2)
    coordinator = tide.ElasticCoordinator(strategy)
    batch = iter(coordinator.create_epochs((np.ones((4, 1), np.float32),), batch_size=4))
    with strategy.scope():
        count = tf.Variable(0, name="count")
    count.assign_add(1)
    phases, done = {}, 0
    for name, steps in PHASES:
        if name not in phases:
            phases[name] = Phase(strategy)
        phase = phases[name]
        for _ in range(steps):
            coordinator.schedule(phase.step, args=(batch,))
            coordinator.join()
            done += 1
            phase.sgd.learning_rate = phase.sgd.learning_rate * 0.5
            if done == stop:
                coordinator.checkpoint()
                os._exit(0)
            count.assign_add(1)
    coordinator.close()
    # The parameter servers have ended: all variables lie in this process now.
    assert all(phase.layer(np.ones((1, 1))) == phase.layer.kernel for phase in phases.values())
    print(json.dumps({"count": int(count.numpy()),
                      **{name: float(phase.layer.kernel.numpy().sum())
                         for name, phase in phases.items()}}), flush=True)
    for late in (coordinator.checkpoint, lambda: coordinator.schedule(phase.step, args=(batch,))):
        try:
            late()
        except RuntimeError as error:
            assert "closed" in str(error)
        else:
            raise AssertionError("a closed coordinator took a call")
    coordinator.join()


main(sys.argv[1], int(sys.argv[2]))
