#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small network on handwritten digits: plain Keras, as anybody would write it.

    train.py --model cnn --data digits.npz --log cnn.jsonl

There is nothing of Threadtide in this file: `demo/run.py` runs it as it is, once on its own and
once under `tide run`. --log gets a line of JSON a few times a second, and a last one with the
results: the training loss of the last epoch, and loss and accuracy over digits never trained on.
"""

import argparse
import json
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from keras import layers

LOG_EVERY_S = 0.2


def parse_args():
    p = argparse.ArgumentParser(description="Train a small network on handwritten digits.")
    p.add_argument("--model", required=True, choices=sorted(MODELS))
    p.add_argument("--data", required=True, metavar="FILE", help="x_train, y_train, x_test, y_test as .npz")
    p.add_argument("--log", required=True, metavar="FILE", help="where the progress goes")
    p.add_argument("--epochs", type=int, help="default: " + ", ".join(
        f"{name} {epochs}" for name, (_, epochs) in sorted(MODELS.items())))
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--seed", type=int, default=1)
    return p.parse_args()


def cnn(shape):
    return keras.Sequential([
        layers.Input(shape),
        layers.Conv2D(32, 3, activation="relu", padding="same"),
        layers.Conv2D(32, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Conv2D(64, 3, activation="relu", padding="same"),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dropout(0.3),
        layers.Dense(128, activation="relu"),
        layers.Dense(10)])


def mlp(shape):
    return keras.Sequential([
        layers.Input(shape),
        layers.Flatten(),
        layers.Dense(1024, activation="relu"),
        layers.Dropout(0.3),
        layers.Dense(1024, activation="relu"),
        layers.Dropout(0.3),
        layers.Dense(10)])


def attention(shape):
    """A transformer that reads a picture row by row."""
    rows, width = shape[0], 128
    image = layers.Input(shape)
    tokens = layers.Dense(width)(layers.Reshape((rows, shape[1]))(image))
    tokens += layers.Embedding(rows, width)(np.arange(rows))
    heard = layers.MultiHeadAttention(4, width // 4)(tokens, tokens)
    tokens = layers.LayerNormalization()(tokens + heard)
    thought = layers.Dense(width)(layers.Dense(4 * width, activation="relu")(tokens))
    tokens = layers.LayerNormalization()(tokens + thought)
    return keras.Model(image, layers.Dense(10)(layers.GlobalAveragePooling1D()(tokens)))


MODELS = {"cnn": (cnn, 7), "mlp": (mlp, 22), "attention": (attention, 16)}


class Log(keras.callbacks.Callback):
    def __init__(self, path, steps):
        super().__init__()
        self.file = open(path, "w", buffering=1, encoding="utf-8")
        self.steps, self.step, self.last = steps, 0, 0.0

    def on_train_batch_end(self, batch, logs=None):
        self.step += 1
        now = time.time()
        if now - self.last >= LOG_EVERY_S or self.step == self.steps:
            self.last = now
            self.write(loss=logs["loss"])

    def write(self, **values):
        self.file.write(json.dumps({"time": time.time(), "step": self.step, "steps": self.steps,
                                    **{k: float(v) for k, v in values.items()}}) + "\n")


def main():
    args = parse_args()
    build, epochs = MODELS[args.model]
    epochs = args.epochs or epochs
    keras.utils.set_random_seed(args.seed)
    data = np.load(args.data)
    x_train, y_train, x_test, y_test = (data[k] for k in ("x_train", "y_train", "x_test", "y_test"))

    steps = epochs * -(-len(x_train) // args.batch)
    model = build(x_train.shape[1:])
    model.compile(
        optimizer=keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(1e-3, steps)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    log = Log(args.log, steps)
    history = model.fit(x_train, y_train, batch_size=args.batch, epochs=epochs, verbose=0,
                        callbacks=[log]).history
    train_loss = history["loss"][-1]
    test_loss, accuracy = model.evaluate(x_test, y_test, batch_size=500, verbose=0)
    log.write(train_loss=train_loss, test_loss=test_loss, accuracy=accuracy)
    print(f"{args.model}: {steps} steps, training loss {train_loss:.6f}, "
          f"test loss {test_loss:.6f}, accuracy {accuracy:.2%}")


if __name__ == "__main__":
    main()
