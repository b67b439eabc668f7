# SPDX-License-Identifier: Apache-2.0
"""Every optimizer of Keras, with each of its options, on a cluster that changes.

elastic_optimizers.py: for each option one step function trains a small layer with each optimizer.
It does so twice from the same values: in a cluster that stays as it is, then through 1 -> 3 -> 2
workers, 1 -> 2 -> 1 parameter servers, and the death of a server. One JSON line says of each option
and optimizer "same", "differs", or why it was refused as the optimizer was wrapped.
"""

import json
import os
import pathlib
import sys

os.environ.update(CUDA_VISIBLE_DEVICES="", KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="2")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from elastic import GUARD_S, cluster
from peer import wait_until

STEPS = 2  # between two changes of the cluster
CHANGES = 6


class Group:
    """All optimizers with one option: a layer of its own for each, one step function for all."""

    def __init__(self, name, make, training):
        import keras
        import tensorflow as tf
        self.name, self._training = name, training
        self.refused, self._pairs, self._entries = {}, {}, {}
        for kind in optimizers():
            known = len(training.strategy.variables_in.entries)
            with training.strategy.scope():
                layer = keras.layers.Dense(3, kernel_initializer="ones", bias_initializer="ones")
                layer.build((None, 4))
                try:
                    optimizer = training.strategy.optimizer(make(kind))
                except ValueError as error:
                    self.refused[kind.__name__] = str(error)
                    continue
            optimizer.build(layer.trainable_variables)
            self._pairs[kind.__name__] = layer, optimizer
            # Keras' own list lacks what an optimizer makes that a LossScaleOptimizer builds.
            self._entries[kind.__name__] = training.strategy.variables_in.entries[known:]
        self._step = tf.function(self._losses)
        self._initial = [v.numpy() for v in self._variables()]

    def _variables(self):
        return [entry.variable for entries in self._entries.values() for entry in entries]

    def _losses(self, batch):
        import tensorflow as tf
        x, y = next(batch)
        with tf.GradientTape(persistent=True) as tape:
            losses = {name: optimizer.scale_loss(tf.reduce_mean((layer(x) - y) ** 2))
                      for name, (layer, optimizer) in self._pairs.items()}
        for name, (layer, optimizer) in self._pairs.items():
            weights = layer.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(losses[name], weights), weights))
        return tf.add_n(list(losses.values()))

    def begin(self):
        """The initial values of everything, and the first batch."""
        for variable, value in zip(self._variables(), self._initial):
            variable.assign(value)
        self._batches = iter(self._training.coordinator.create_epochs(
            self._training.data, batch_size=16, seed=3))

    def schedule(self):
        for _ in range(STEPS):
            self._training.coordinator.schedule(self._step, args=(self._batches,))

    def values(self):
        """{optimizer: the bytes of its layer and of all that it keeps}"""
        return {name: [entry.variable.numpy().tobytes() for entry in entries]
                for name, entries in self._entries.items()}


def optimizers():
    """Every optimizer of Keras that takes a learning rate."""
    import keras
    found = [kind for name, kind in vars(keras.optimizers).items() if isinstance(kind, type)
             and issubclass(kind, keras.optimizers.Optimizer) and name == kind.__name__
             and name not in ("Optimizer", "LossScaleOptimizer")]
    assert len(found) >= 11, found
    return found


def options():
    """{option: makes an optimizer of a class with it}"""
    import keras
    decay = keras.optimizers.schedules.ExponentialDecay(0.05, decay_steps=2, decay_rate=0.9)

    def with_(**more):
        return lambda kind: kind(**{"learning_rate": 0.05, **more})

    return {
        "plain": with_(),
        "weight_decay": with_(weight_decay=0.02),
        "clipnorm": with_(clipnorm=0.5),
        "global_clipnorm": with_(global_clipnorm=0.5),
        "use_ema": with_(use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=2),
        "schedule": with_(learning_rate=decay),
        "accumulation": with_(gradient_accumulation_steps=2),
        "loss_scale": lambda kind: keras.optimizers.LossScaleOptimizer(  # grows each four steps
            kind(0.05), initial_scale=16.0, dynamic_growth_steps=4),
    }


class Training:
    def __init__(self, nodes):
        os.environ.update(nodes.env)
        import numpy as np

        import threadtide.tensorflow as tide
        self.nodes = nodes
        self.strategy = tide.ElasticParameterServerStrategy()
        self.coordinator = tide.ElasticCoordinator(self.strategy)
        rng = np.random.default_rng(0)
        self.data = tuple(rng.standard_normal((64, n), np.float32) for n in (4, 3))
        self.groups = [Group(name, make, self) for name, make in options().items()]

    def run(self, changes):
        for group in self.groups:
            group.begin()
        for change in changes:
            change()
            for group in self.groups:
                group.schedule()
            self.coordinator.join()
        return [group.values() for group in self.groups]

    def serve(self, **indices):
        """Waits until exactly these nodes serve: serve(worker=[0, 2])."""
        wait_until(lambda: all([n.index for n in self.strategy.cluster.of(role, "in")] == wanted
                               for role, wanted in indices.items()), f"nodes {indices}", GUARD_S)

    def changes(self):
        """The cluster's changes, one after the other, from one worker and one server."""
        nodes = self.nodes
        return [
            lambda: None,
            lambda: (nodes.start("worker", 2), self.serve(worker=[0, 1, 2])),
            lambda: (nodes.leave("worker", 1), nodes.start("ps"),
                     self.serve(worker=[0, 2], ps=[0, 1])),
            lambda: (nodes.leave("ps", 0), self.serve(ps=[1])),
            lambda: (nodes.start("ps"), self.serve(ps=[1, 2])),
            lambda: (nodes.kill("ps", 1), self.serve(ps=[2])),
        ]


def main():
    with cluster(sys.executable) as nodes:
        training = Training(nodes)
        fixed = training.run([lambda: None] * CHANGES)
        changed = training.run(training.changes())
        table = {}
        for group, before, after in zip(training.groups, fixed, changed):
            table[group.name] = {**group.refused, **{
                name: "same" if before[name] == after[name] else "differs" for name in before}}
        training.coordinator.close()
    print(json.dumps(table), flush=True)


main()
