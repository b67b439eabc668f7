# SPDX-License-Identifier: Apache-2.0
"""An embedding table in shards that move between parameter servers while it is trained.

With stock TensorFlow's ParameterServerStrategy the same five lines differ as in elastic_mlp.py. The
partitioner makes eight shards, whatever number of servers there is: a table is spread over one to
eight of them. Workers read the text themselves: the coordinator sends numbers of examples.

    python examples/elastic_embedding.py --local
"""

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

WORDS, LENGTH, EXAMPLES = 100_000, 16, 16_384


def train(epochs):
    import keras
    import tensorflow as tf

    import threadtide.tensorflow as tide

    strategy = tide.ElasticParameterServerStrategy(  # (1)
        variable_partitioner=tf.distribute.experimental.partitioners.MinSizePartitioner(
            min_shard_bytes=1 << 20, max_shards=8),
        checkpoint_dir=os.environ.get("CHECKPOINTS"))
    coordinator = tide.ElasticCoordinator(strategy)  # (2)

    with strategy.scope():
        table = tf.Variable(tf.random.stateless_uniform([WORDS, 32], [1, 2], -0.05, 0.05))
        weights = tf.Variable(tf.zeros([32, 1]))
        variables = [*table.variables, weights]
        optimizer = strategy.optimizer(keras.optimizers.Adam(1e-2))  # (3)

    @tf.function
    def train_step(iterator):
        words, label = next(iterator)
        with tf.GradientTape() as tape:
            bag = tf.reduce_mean(tf.nn.embedding_lookup(table, words), axis=1)
            logits = tf.squeeze(bag @ weights, axis=1)
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(label, logits))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    def load(numbers):
        """Stands for reading files: it runs on the worker."""
        seeds = tf.stack([numbers, tf.zeros_like(numbers)], axis=1)
        words = tf.map_fn(lambda seed: tf.random.stateless_uniform(
            [LENGTH], seed, 0, WORDS, tf.int64), seeds)
        return words, tf.cast(tf.reduce_sum(words % 2, axis=1) > LENGTH // 2, tf.float32)

    dataset = coordinator.create_epochs(tide.Examples(EXAMPLES, load), batch_size=512)  # (4)
    iterator = iter(dataset)
    for epoch in range(epochs):
        for _ in range(dataset.steps_per_epoch):
            loss = coordinator.schedule(train_step, args=(iterator,))
        coordinator.join()
        print(f"epoch {epoch}: loss {loss.fetch():.9g}", flush=True)
    coordinator.close()  # (5)


def local(epochs):
    """The training in a process of its own; a parameter server and a worker join later."""
    import subprocess
    import sys
    import time

    from threadtide.tensorflow import LocalCluster

    with LocalCluster(ps=1, workers=1, threads=1) as cluster:
        training = subprocess.Popen([sys.executable, __file__, "--epochs", str(epochs)],
                                    env={**os.environ, **cluster.env})
        time.sleep(15)
        cluster.start("ps")
        cluster.start("worker")
        sys.exit(training.wait())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--local", action="store_true", help="start nodes on this machine")
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    (local if options.local else train)(options.epochs)
