# SPDX-License-Identifier: Apache-2.0
"""A Keras model trained on a cluster that grows and shrinks.

On Kubernetes this is the `command` of an ElasticTrainingJob. On this machine, with two workers that
come and go::

    python examples/elastic_mlp.py --local

Against the same loop with stock TensorFlow's ParameterServerStrategy five lines differ, marked (1)
to (5); the stock lines stand above them.
"""

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")


def train(epochs):
    import keras
    import numpy as np
    import tensorflow as tf

    import threadtide.tensorflow as tide

    # strategy = tf.distribute.ParameterServerStrategy(resolver)
    strategy = tide.ElasticParameterServerStrategy(checkpoint_dir=os.environ.get("CHECKPOINTS"))  # (1)
    # coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    coordinator = tide.ElasticCoordinator(strategy)  # (2)

    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential([
            keras.Input((64,)),
            keras.layers.Dense(256, activation="relu"),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(10),
        ])
        # optimizer = keras.optimizers.Adam(1e-3)
        optimizer = strategy.optimizer(keras.optimizers.Adam(1e-3))  # (3)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def train_step(iterator):
        def replica_step(x, y):
            with tf.GradientTape() as tape:
                loss = loss_of(y, model(x, training=True))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            return loss

        return strategy.run(replica_step, args=next(iterator))

    rng = np.random.default_rng(0)
    x = rng.standard_normal((8192, 64), np.float32)
    y = (x @ rng.standard_normal((64, 10))).argmax(axis=1)
    # dataset = coordinator.create_per_worker_dataset(dataset_fn)
    dataset = coordinator.create_epochs((x, y), batch_size=256)  # (4)
    iterator = iter(dataset)

    for epoch in range(epochs):
        for _ in range(dataset.steps_per_epoch):
            loss = coordinator.schedule(train_step, args=(iterator,))
        coordinator.join()
        print(f"epoch {epoch}: loss {loss.fetch():.9g}", flush=True)
    coordinator.close()  # (5) tells the controller that it has finished


def local(epochs):
    """The training in a process of its own, and a cluster that changes under it."""
    import subprocess
    import sys
    import time

    from threadtide.tensorflow import LocalCluster

    with LocalCluster(ps=1, workers=1, threads=1) as cluster:
        training = subprocess.Popen([sys.executable, __file__, "--epochs", str(epochs)],
                                    env={**os.environ, **cluster.env})
        time.sleep(15)
        cluster.start("worker")
        time.sleep(5)
        cluster.leave("worker", 0)
        sys.exit(training.wait())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--local", action="store_true", help="start nodes on this machine")
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    (local if options.local else train)(options.epochs)
