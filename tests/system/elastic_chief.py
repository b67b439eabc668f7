# SPDX-License-Identifier: Apache-2.0
"""A training for the tests of elastic clusters: an embedding table in shards, dropout, Adam.

It obeys lines on standard input and answers with JSON: `run N` schedules steps and says {"step": N}
when they are done, `stumble N` as many beside one that fails, and later than they end, `report` what
the nodes are, at once, `evaluate` a sum over the weights, and `function` how many seconds a function
takes that is new to TensorFlow. `end` prints a digest of all variables and how often each example was
applied, which a variable of its own counts: its gradient is the same for every example, so an example
done twice, or not at all, shows.
"""

import faulthandler
import hashlib
import json
import os
import pathlib
import signal
import sys
import threading
import time

os.environ.update(CUDA_VISIBLE_DEVICES="", KERAS_BACKEND="tensorflow")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import keras
import numpy as np
import tensorflow as tf

import threadtide.tensorflow as tide
from threadtide.tensorflow import dispatch, private, steps

EXAMPLES, BATCH, WORDS, LENGTH, CLASSES = 256, 32, 4096, 6, 5


def say(**what):
    print(json.dumps(what), flush=True)


def leave_in_between(strategy):
    """Worker 1 is asked to leave as TensorFlow connects to it, server 1 as variables move to it."""
    cluster, variables = strategy.cluster, strategy.variables_in
    update, move = private.update_cluster, variables.move

    def updating(add, remove):
        if ("worker", 1) in add:
            cluster.leave(cluster.nodes["worker", 1])
            time.sleep(0.5)  # it ends sooner, if it may
        update(add, remove)

    def moving(servers):
        moved = move(servers)
        if 1 in servers:
            cluster.leave(cluster.nodes["ps", 1])
        return moved

    private.update_cluster, variables.move = updating, moving


def lose_answers(count):
    """The next @count calls of worker 0, from when worker 1 joins, are never answered."""
    update, done = private.update_cluster, dispatch.Dispatcher.done
    joins, asked = threading.Event(), threading.Event()

    def updating(add, remove):
        if ("worker", 1) in add:
            joins.set()
            asked.wait()
        update(add, remove)

    def losing(self, task, worker, result, seconds):
        nonlocal count
        if joins.is_set() and worker.node.index == 0 and count:
            count -= 1
            asked.set()
            threading.Event().wait()
        done(self, task, worker, result, seconds)

    private.update_cluster, dispatch.Dispatcher.done = updating, losing
    dispatch.AGAIN_S = dispatch.OVERDUE_S = 1.0


def lose_some_answers(kind, after, count):
    """@count calls behind the first @after ones are done and never answered, though nothing changes: micro-batches of
    worker 0, or applications."""
    where, name = (dispatch.Dispatcher, "done") if kind == "micro" else (steps.SyncStep, "apply")
    original, calls, lock = getattr(where, name), 0, threading.Lock()

    def losing(self, *args):
        nonlocal calls
        if kind == "micro" and args[1].node.index != 0:
            return original(self, *args)
        with lock:
            calls += 1
            lost = after < calls <= after + count
        if kind == "micro" and lost:
            threading.Event().wait()
        answer = original(self, *args)
        if lost:
            threading.Event().wait()
        return answer

    setattr(where, name, losing)
    dispatch.STUCK_S, dispatch.OVERDUE_S = 5.0, 1.0


class Training:
    def __init__(self, options):
        if options.get("lose"):
            lose_some_answers(*options["lose"])
        if options.get("lose_answers"):
            lose_answers(options["lose_answers"])
        self.strategy = tide.ElasticParameterServerStrategy(
            checkpoint_dir=options.get("checkpoints"),
            checkpoint_interval_s=options.get("interval_s", 30.0),
            variable_partitioner=tf.distribute.experimental.partitioners.MinSizePartitioner(
                min_shard_bytes=1 << 14, max_shards=4))
        if options.get("leave_in_between"):
            leave_in_between(self.strategy)
        self.coordinator = tide.ElasticCoordinator(self.strategy)
        keras.utils.set_random_seed(7)
        with self.strategy.scope():
            self.table = tf.Variable(
                tf.random.stateless_normal([WORDS, 16], [1, 2]) * 0.1, name="table")
            self.model = keras.Sequential([
                keras.Input((16,)), keras.layers.Dense(32, activation="relu"),
                keras.layers.Dropout(0.3, seed=3), keras.layers.Dense(CLASSES)])
            self.seen = tf.Variable(tf.zeros([EXAMPLES]), name="seen")
            self.adam = self.strategy.optimizer(keras.optimizers.Adam(1e-2))
            self.counter = self.strategy.optimizer(keras.optimizers.SGD(float(BATCH)))
        rng = np.random.default_rng(0)
        words = rng.integers(0, WORDS, (EXAMPLES, LENGTH))
        labels = rng.integers(0, CLASSES, EXAMPLES)
        self.batches = self.coordinator.create_epochs(
            (np.arange(EXAMPLES), words, labels), batch_size=BATCH, seed=5)
        self.step = tf.function(self._step)
        self.total = tf.function(lambda words: tf.reduce_sum(self._bag(words)))
        inner = tf.function(lambda: tf.add_n([tf.reduce_sum(tf.abs(v))
                                              for v in self.model.trainable_variables]))
        self.weights = tf.function(lambda: inner() * 1.0)

    def _bag(self, words):
        return tf.reduce_mean(tf.nn.embedding_lookup(self.table, words), 1)

    def _step(self, iterator):
        number, words, labels = next(iterator)
        variables = [*self.table.variables, *self.model.trainable_variables]
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels, self.model(self._bag(words), training=True)))
            count = -tf.reduce_mean(tf.gather(self.seen, number))
        self.adam.apply_gradients(zip(tape.gradient(loss, variables), variables))
        self.counter.apply_gradients([(tape.gradient(count, self.seen), self.seen)])
        return loss, {"examples": tf.size(labels)}

    def run(self, steps):
        results = [self.coordinator.schedule(self.step, args=(iter(self.batches),))
                   for _ in range(steps)]
        self.coordinator.join()
        for loss, counts in self.coordinator.fetch(results):
            assert np.isfinite(loss) and counts["examples"] == BATCH
        say(step=self.coordinator.step, loss=float(loss))

    def stumble(self, steps):
        """@steps steps end on another worker before the one that was begun first fails."""
        wanted = int(self.adam.iterations.numpy()) + steps

        def fails(iterator):
            next(iterator)
            done = tf.while_loop(lambda n: n < wanted, lambda _: tf.cast(self.adam.iterations, tf.int64),
                                 (tf.constant(0, tf.int64),))[0]
            with tf.control_dependencies([done]):  # they are applied; their answers take a moment
                _, slow = tf.while_loop(lambda i, _: i < 100, lambda i, a: (i + 1, tf.tanh(tf.matmul(a, a))),
                                        (0, tf.ones([500, 500])))
            tf.debugging.assert_equal(tf.reduce_sum(slow), -1.0)
            return slow[0, 0]

        self.coordinator.schedule(fails, args=(iter(self.batches),))
        for _ in range(steps):
            self.coordinator.schedule(self.step, args=(iter(self.batches),))
        try:
            self.coordinator.join()
        except tf.errors.InvalidArgumentError:
            say(stumbled=self.coordinator.step)

    def evaluate(self):
        """A sum over the weights: by a function of our own, which nobody else is told of, and by one
        that was scheduled."""
        scheduled = self.coordinator.schedule(self.weights).fetch()
        say(weights=float(scheduled), own=float(self.weights()))

    def end(self):
        words = tf.reshape(tf.range(WORDS, dtype=tf.int64), [-1, LENGTH - 2])
        total = self.coordinator.schedule(self.total, args=(words,)).fetch()  # on a worker
        assert np.isclose(total, float(tf.reduce_sum(self._bag(words))), rtol=1e-3), total
        digest = hashlib.sha256()
        for entry in self.strategy.variables_in.entries:
            digest.update(entry.variable.numpy().tobytes())
        say(digest=digest.hexdigest(), seen=self.seen.numpy().tolist(),
            applied=int(self.adam.iterations.numpy()), report=self.coordinator.report())
        self.coordinator.close()


def main():
    faulthandler.register(signal.SIGUSR2)
    training = Training(json.loads(sys.argv[1]))
    say(ready=True)
    orders, arrived = [], threading.Condition()

    def read():
        for line in sys.stdin:
            if line.strip() == "report":
                strategy = training.strategy
                say(report={**training.coordinator.report(), "mode": strategy.mode,
                            "slots": strategy.slots})
                continue
            with arrived:
                orders.append(line.split())
                arrived.notify()

    threading.Thread(target=read, daemon=True).start()
    while True:
        with arrived:
            arrived.wait_for(lambda: orders)
            order = orders.pop(0)
        if order[0] == "run":
            training.run(int(order[1]))
        elif order[0] == "stumble":
            training.stumble(int(order[1]))
        elif order[0] == "checkpoint":
            training.coordinator.checkpoint()
            say(checkpoint=training.coordinator.step)
        elif order[0] == "evaluate":
            training.evaluate()
        elif order[0] == "function":
            begin = time.monotonic()
            tf.function(lambda: tf.constant(1.0) + 1.0)()
            say(function=time.monotonic() - begin)
        else:
            training.end()
            return


main()
