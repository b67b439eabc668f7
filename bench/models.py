#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stock TensorFlow workloads that the benchmarks and system tests measure.

Nothing here knows of Threadtide: these are programs as a user would have written them. Each
trains on random numbers from a fixed seed, so that only the speed and the bits of the losses
matter. The one line of JSON at the end is the result:

    steps, steps_per_s     gradient steps in all; their rate after the warm-up
    cpu_s, wall_s          CPU and wall time of the steps after the warm-up
    loss, losses_md5       repr of the last loss; md5 over the reprs of the first `losses_hashed`
    rss_kib, rss_max_kib   resident memory at the end, and its peak

    models.py --model cnn --seconds 20
    models.py --model mlp --steps 200 --intra 2 --inter 2
    models.py --model savedmodel --export DIR      what savedmodel_infer runs
"""

import argparse
import hashlib
import json
import os
import resource
import sys
import time

import resting

SAMPLES = 4096
BATCH = 128
HASHED_BY_TIME = 50  # losses that every run long enough to be timed has: their md5 compares


class EndOfRun(Exception):
    """Ends model.fit() in the middle of an epoch (Keras swallows StopIteration itself)."""


def parse_args():
    p = argparse.ArgumentParser(description="Train a small stock TensorFlow model, print a line of JSON.")
    p.add_argument("--model", required=True, choices=[*BUILDERS, "savedmodel"])
    length = p.add_mutually_exclusive_group()
    length.add_argument("--seconds", type=float, default=20, help="length after the warm-up (default 20)")
    length.add_argument("--steps", type=int, help="exact number of steps, warm-up included")
    p.add_argument("--warmup", type=int, default=5, metavar="N", help="steps that are not timed (default 5)")
    p.add_argument("--intra", type=int, help="tf.config intra_op_parallelism_threads")
    p.add_argument("--inter", type=int, help="tf.config inter_op_parallelism_threads")
    p.add_argument("--threads", type=int, help="both, by TensorFlow's environment variables instead")
    p.add_argument("--tfdata", action="store_true", help="feed through a parallel tf.data pipeline")
    p.add_argument("--jit", action="store_true", help="compile the step with XLA")
    p.add_argument("--times", metavar="FILE", help="write CLOCK_MONOTONIC at the end of every step")
    p.add_argument("--pause-after", type=int, default=0, metavar="N", help="rest after every N steps, as if data were awaited …")
    p.add_argument("--pause", type=float, default=3, metavar="S", help="… for so many seconds (default 3)")
    p.add_argument("--export", metavar="DIR", help="where savedmodel goes")
    args = p.parse_args()
    if (args.model == "savedmodel") != bool(args.export):
        p.error("--model savedmodel and --export DIR go together")
    if args.steps is not None and args.steps <= args.warmup:
        p.error("--steps must be above --warmup")
    return args


def cnn(keras, rng):
    layers = keras.layers
    return rng.standard_normal((SAMPLES, 32, 32, 3), dtype="float32"), keras.Sequential([
        layers.Input((32, 32, 3)),
        layers.Conv2D(32, 3, activation="relu", padding="same"),
        layers.Conv2D(32, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Conv2D(64, 3, activation="relu", padding="same"),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(128, activation="relu"),
        layers.Dense(10)])


def mlp(keras, rng):
    layers = keras.layers
    return rng.standard_normal((SAMPLES, 1024), dtype="float32"), keras.Sequential([
        layers.Input((1024,)),
        layers.Dense(1024, activation="relu"),
        layers.Dense(1024, activation="relu"),
        layers.Dense(10)])


def lstm(keras, rng):
    layers = keras.layers
    return rng.standard_normal((SAMPLES, 32, 64), dtype="float32"), keras.Sequential([
        layers.Input((32, 64)),
        layers.LSTM(128),
        layers.Dense(10)])


def attention(keras, rng):
    layers = keras.layers
    tokens = layers.Input((32, 128))
    mixed = layers.LayerNormalization()(layers.MultiHeadAttention(4, 32)(tokens, tokens) + tokens)
    wide = layers.Dense(128)(layers.Dense(512, activation="relu")(mixed))
    pooled = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(wide + mixed))
    return (rng.standard_normal((SAMPLES, 32, 128), dtype="float32"),
            keras.Model(tokens, layers.Dense(10)(pooled)))


BUILDERS = {"cnn": cnn, "mlp": mlp, "lstm": lstm, "attention": attention}


def export_savedmodel(tf, keras, rng, path):
    """A small convolutional net with one float input, and the names by which C finds its ends."""
    _, net = cnn(keras, rng)
    module = tf.Module()
    # Keras 3 wraps TensorFlow's variables, and a tf.Module saves those that it can see.
    module.state = [v if isinstance(v, tf.Variable) else v.value for v in net.variables]
    module.serve = tf.function(lambda x: net(x, training=False),
                               input_signature=[tf.TensorSpec([None, 32, 32, 3], tf.float32, name="x")])
    tf.saved_model.save(module, path, signatures=module.serve)
    print(json.dumps({"model": "savedmodel", "path": path, "tensorflow": tf.__version__,
                      "input": "serving_default_x", "output": "StatefulPartitionedCall"}))


def input_pipeline(tf, x, y, parallel):
    """Without end: where one epoch passes into the next, stock TensorFlow tears its iterator down
    and now and then sleeps half a second, all threads of it."""
    data = tf.data.Dataset.from_tensor_slices((x, y))
    if parallel:
        data = data.map(lambda a, b: (a * 1.0, b), num_parallel_calls=tf.data.AUTOTUNE)
        data = data.shuffle(512, seed=1)
    return data.repeat().batch(BATCH).prefetch(tf.data.AUTOTUNE)


def step_clock(keras, args):
    """A Keras callback that takes the times and losses, and ends the training."""

    class StepClock(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.losses = []
            self.begin = self.end = self.cpu_begin = self.cpu_end = None
            self.times = open(args.times, "w", buffering=1) if args.times else None

        def on_train_batch_end(self, batch, logs=None):
            now = time.monotonic()
            self.losses.append(float(logs["loss"]))
            if self.times:
                self.times.write(f"{now:.6f}\n")
            if len(self.losses) == args.warmup or self.begin is None and args.warmup == 0:
                self.begin, self.cpu_begin = now, time.process_time()
            if self.begin is None:
                return
            if (len(self.losses) >= args.steps if args.steps is not None
                    else now - self.begin >= args.seconds and len(self.losses) > args.warmup):
                self.end, self.cpu_end = now, time.process_time()
                raise EndOfRun  # model.stop_training would first finish the epoch
            if args.pause_after and len(self.losses) % args.pause_after == 0:
                resting.rest(args.pause)

    return StepClock()


def resident_kib():
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def main():
    args = parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if args.threads is not None:
        os.environ["TF_NUM_INTRAOP_THREADS"] = os.environ["TF_NUM_INTEROP_THREADS"] = str(args.threads)

    import numpy as np
    import tensorflow as tf
    keras = tf.keras

    if args.intra is not None:
        tf.config.threading.set_intra_op_parallelism_threads(args.intra)
    if args.inter is not None:
        tf.config.threading.set_inter_op_parallelism_threads(args.inter)
    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(0)
    if args.model == "savedmodel":
        return export_savedmodel(tf, keras, rng, args.export)

    x, net = BUILDERS[args.model](keras, rng)
    y = rng.integers(0, 10, SAMPLES)
    net.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                jit_compile=args.jit)
    clock = step_clock(keras, args)
    try:
        net.fit(input_pipeline(tf, x, y, args.tfdata), steps_per_epoch=1_000_000, verbose=0,
                callbacks=[clock])
    except EndOfRun:
        pass

    steps = len(clock.losses)
    hashed = clock.losses[:args.steps or HASHED_BY_TIME]
    wall = clock.end - clock.begin
    print(json.dumps({
        "model": args.model, "tensorflow": tf.__version__, "pid": os.getpid(),
        "intra": args.intra, "inter": args.inter, "threads": args.threads,
        "tfdata": args.tfdata, "jit": args.jit, "steps": steps,
        "steps_per_s": round((steps - args.warmup) / wall, 4) if wall > 0 else None,
        "wall_s": round(wall, 4), "cpu_s": round(clock.cpu_end - clock.cpu_begin, 4),
        "loss": repr(clock.losses[-1]), "losses_hashed": len(hashed),
        "losses_md5": hashlib.md5(repr(hashed).encode()).hexdigest(),
        "rss_kib": resident_kib(),
        "rss_max_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
