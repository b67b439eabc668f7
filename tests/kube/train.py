# SPDX-License-Identifier: Apache-2.0
"""The training that the chiefs of trainings.py run: as a user would write it, but that it says after
each epoch how often every example was applied, which a variable counts, and what the variables are.

--pace is a file with a JSON object a line, say another training's --log: the last one's "epoch" is
how far this one may go, and with "end" it ends there. With "slow" each step takes so many times as long as
one does at full speed.
"""
import argparse
import hashlib
import itertools
import json
import os
import time

os.environ.update(CUDA_VISIBLE_DEVICES="", KERAS_BACKEND="tensorflow")

import keras
import numpy as np
import tensorflow as tf

import threadtide.tensorflow as tide

EXAMPLES, BATCH, CLASSES, WIDTH = 256, 64, 4, 384
FIRST_S = 2


def lines(path):
    """The objects in a file; half a line at its end is not there yet."""
    try:
        with open(path, encoding="utf-8") as file:
            return [json.loads(line) for line in file.read().split("\n")[:-1]]
    except FileNotFoundError:
        return []


class Training:
    def __init__(self):
        self.strategy = tide.ElasticParameterServerStrategy()                            # (1)
        self.coordinator = tide.ElasticCoordinator(self.strategy)                        # (2)
        keras.utils.set_random_seed(7)
        with self.strategy.scope():
            self.model = keras.Sequential([
                keras.Input((WIDTH,)), keras.layers.Dense(WIDTH, activation="relu"),
                keras.layers.Dropout(0.3, seed=3), keras.layers.Dense(CLASSES)])
            self.seen = tf.Variable(tf.zeros([EXAMPLES]))
            self.adam = self.strategy.optimizer(keras.optimizers.Adam(1e-3))             # (3)
            # The gradient below is the same for every example: one that is done twice shows.
            self.counter = self.strategy.optimizer(keras.optimizers.SGD(float(BATCH)))
        rng = np.random.default_rng(0)
        inputs = rng.standard_normal((EXAMPLES, WIDTH), np.float32)
        labels = (inputs @ rng.standard_normal((WIDTH, CLASSES))).argmax(axis=1)
        self.batches = self.coordinator.create_epochs(                                   # (4)
            (np.arange(EXAMPLES), inputs, labels), batch_size=BATCH, seed=5)
        self.step, self.values = tf.function(self._step), tf.function(self._values)
        self.step_s = None  # at full speed, at best

    def _step(self, iterator):
        number, inputs, labels = next(iterator)
        variables = self.model.trainable_variables
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels, self.model(inputs, training=True)))
            count = -tf.reduce_mean(tf.gather(self.seen, number))
        self.adam.apply_gradients(zip(tape.gradient(loss, variables), variables))
        self.counter.apply_gradients([(tape.gradient(count, self.seen), self.seen)])
        return loss

    def _values(self):
        return [tf.identity(v) for v in (self.seen, *self.model.trainable_variables)]

    def slow_down(self, factor, took):
        """After a step. The first ones prepare much: how long these take says little."""
        time.sleep(factor * max(took, self.step_s) - took if self.step_s else (factor - 1) * min(took, FIRST_S))

    def epoch(self, slow):
        """The last step's loss; None when a checkpoint has the epoch already. @slow(): how slow it is to be."""
        slowed, begin, steps = False, time.monotonic(), self.batches.steps_per_epoch
        for _ in range(steps):
            factor, since = slow(), time.monotonic()
            loss = self.coordinator.schedule(self.step, args=(iter(self.batches),))
            if factor > 1 and not loss.resumed:
                loss.fetch()
                self.slow_down(factor, time.monotonic() - since)
                slowed = True
        if loss.resumed:
            return None
        value = float(loss.fetch())
        if not slowed:
            took = (time.monotonic() - begin) / steps
            self.step_s = min(took, self.step_s or took)
        return value

    def told(self):
        """Read by a worker, so that the loss of a server is the coordinator's business."""
        seen, *weights = self.coordinator.schedule(self.values).fetch()
        digest = hashlib.sha256(b"".join(w.tobytes() for w in weights)).hexdigest()
        return {"digest": digest[:16], "seen": sorted(set(seen.tolist()))}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--pace", required=True)
    p.add_argument("--log", required=True)
    args = p.parse_args()
    with open(args.log, "a", buffering=1, encoding="utf-8") as log:
        def say(**what):
            print(json.dumps(what), file=log)

        def pace():
            return (lines(args.pace) or [{}])[-1]
        training = Training()
        say(resumes_after=training.coordinator.step)
        for epoch in itertools.count(1):
            while (now := pace()).get("epoch", 0) < epoch and "end" not in now:
                time.sleep(0.05)
            if now.get("epoch", 0) < epoch:
                break
            loss = training.epoch(lambda: pace().get("slow", 1))
            if loss is not None:
                say(epoch=epoch, loss=loss, **training.told())
        say(epoch=epoch - 1, end=True)
        training.coordinator.close()                                                     # (5)


main()
