#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small network on handwritten digits in an elastic cluster, and writes what came of it.

An ordinary training program of threadtide.tensorflow, used by benchmarks and demo; the lines marked
(1) to (5) are what stock ParameterServerStrategy would have otherwise. TIDE_CLUSTER or the controller
says who is in the cluster. A variable counts how often each example was applied, by a gradient that
is the same for all of them: one that was lost, or done twice, shows.
"""

import argparse
import hashlib
import json
import os
import pathlib
import sys
import time

os.environ.update(CUDA_VISIBLE_DEVICES="", KERAS_BACKEND="tensorflow")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))

import keras
import numpy as np
import tensorflow as tf

import threadtide.tensorflow as tide


PIXELS = 28 * 28


def network(name, width):
    if name == "mlp":
        return keras.Sequential([
            keras.layers.Flatten(), keras.layers.Dense(width, activation="relu"),
            keras.layers.Dropout(0.2, seed=3), keras.layers.Dense(10)])
    if name == "embedding":  # each pixel is one of four words of its own
        words = 4 * np.arange(PIXELS)
        return keras.Sequential([
            keras.layers.Flatten(), keras.layers.Lambda(
                lambda x: keras.ops.cast(keras.ops.minimum(4 * x, 3), "int32") + words),
            keras.layers.Embedding(4 * PIXELS, width), keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dropout(0.2, seed=3), keras.layers.Dense(10)])
    return keras.Sequential([
        keras.layers.Conv2D(width, 3, activation="relu", padding="same"),
        keras.layers.Conv2D(width, 3, activation="relu"), keras.layers.MaxPooling2D(),
        keras.layers.Conv2D(2 * width, 3, activation="relu", padding="same"),
        keras.layers.MaxPooling2D(), keras.layers.Flatten(), keras.layers.Dropout(0.2, seed=3),
        keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)])


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--data", required=True, metavar="NPZ", help="made by demo/digits.py")
    p.add_argument("--log", required=True, metavar="FILE", help="a JSON object a line")
    p.add_argument("--model", default="cnn", choices=("cnn", "mlp", "embedding"))
    p.add_argument("--width", type=int, default=16)
    p.add_argument("--examples", type=int, default=640)
    p.add_argument("--epochs", type=int, default=8)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--rate", type=float, default=2e-3)
    p.add_argument("--seed", type=int, default=1)
    return p.parse_args()


class Training:
    def __init__(self, args):
        self.args = args
        with np.load(args.data) as data:
            self.images = data["x_train"][:args.examples].astype("float32")
            self.labels = data["y_train"][:args.examples].astype("int64")
            self.test = data["x_test"].astype("float32"), data["y_test"]
        self.count = len(self.labels)
        self.strategy = tide.ElasticParameterServerStrategy()                            # (1)
        self.coordinator = tide.ElasticCoordinator(self.strategy)                        # (2)
        keras.utils.set_random_seed(args.seed)
        with self.strategy.scope():
            self.model = network(args.model, args.width)
            self.model.build((None, *self.images.shape[1:]))
            self.seen = tf.Variable(tf.zeros([self.count]), name="seen")
            self.adam = self.strategy.optimizer(keras.optimizers.Adam(args.rate))        # (3)
            self.counter = self.strategy.optimizer(keras.optimizers.SGD(float(args.batch)))
        self.batches = self.coordinator.create_epochs(                                   # (4)
            (np.arange(self.count), self.images, self.labels), batch_size=args.batch,
            seed=args.seed, drop_remainder=True)
        self.step = self.make_step()

    def make_step(self):
        model, seen, adam, counter = self.model, self.seen, self.adam, self.counter

        @tf.function
        def step(iterator):
            number, images, labels = next(iterator)
            with tf.GradientTape(persistent=True) as tape:
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
                    labels, model(images, training=True)))
                count = -tf.reduce_mean(tf.gather(seen, number))
            variables = model.trainable_variables
            adam.apply_gradients(zip(tape.gradient(loss, variables), variables))
            counter.apply_gradients([(tape.gradient(count, seen), seen)])
            return loss
        return step

    def epoch(self):
        """The mean loss of an epoch's steps; NaN if a new chief has not seen all of them."""
        results = [self.coordinator.schedule(self.step, args=(iter(self.batches),))
                   for _ in range(self.batches.steps_per_epoch)]
        return float(np.mean([np.nan if r.resumed else r.fetch() for r in results]))

    def result(self):
        digest = hashlib.sha256()
        for variable in self.model.trainable_variables:
            digest.update(variable.numpy().tobytes())
        copy = network(self.args.model, self.args.width)  # evaluation is not the cluster's business
        copy.build((None, *self.images.shape[1:]))
        copy.set_weights([v.numpy() for v in self.model.weights])
        logits = copy.predict(self.test[0], batch_size=256, verbose=0)
        return {"digest": digest.hexdigest()[:16],
                "accuracy": float(np.mean(np.argmax(logits, axis=1) == self.test[1])),
                "applied": float(self.seen.numpy().sum()),
                "expected": self.args.epochs * self.batches.steps_per_epoch * self.args.batch,
                "duplicates": self.coordinator.duplicates,
                "pauses_ms": [round(p, 1) for p in self.coordinator.progress.pauses]}


def main():
    args = arguments()
    with open(args.log, "a", buffering=1, encoding="utf-8") as log:
        def say(**what):
            print(json.dumps({"t": time.monotonic(), **what}), file=log)
        training = Training(args)
        say(ready=True)  # once more when a new chief resumes; epochs that it skips have NaN for a loss
        for epoch in range(args.epochs):
            loss = training.epoch()
            report = training.coordinator.report()
            nodes = [n["role"] for n in report["nodes"] if n["state"] == "in"]
            say(epoch=epoch + 1, loss=loss, workers=nodes.count("worker"), ps=nodes.count("ps"),
                computing=report["compute_permille"])
        say(**training.result())
        training.coordinator.close()                                                     # (5)


if __name__ == "__main__":
    main()
