#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a training loses when TensorFlow stands still at the end of an epoch (docs/tensorflow-stall.md), and how much of it the agent gives back.

    stalls.py [--rounds 10] [--epochs 12]

A round runs the same training of Keras three times, in an order that turns from round to round: in stock TensorFlow; with the agent alone, no
daemon; in stock TensorFlow with its data set not tuned, which cannot stand still (the oracle). Each on one core, and on all. A figure is the time of all
epochs but the first, by the program's own clock. `back` is the part of what stock loses against the oracle that the agent gives back.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

import harness

AGENT = str(harness.BUILD / "libtide-agent.so")
SIDES = ("stock", "agent", "not tuned")
LIMIT_S = 300
GOAL = 0.9

TRAINING = """
import os, sys, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras, numpy as np, tensorflow as tf
epochs, tuned = int(sys.argv[1]), sys.argv[2] != "not tuned"
rng = np.random.default_rng(3)
x, y = rng.normal(size=(6000, 64)).astype("float32"), rng.integers(0, 10, 6000)
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(6000, seed=3).map(
    lambda a, b: (a * 2.0 + 1.0, b), num_parallel_calls=tf.data.AUTOTUNE).batch(16).prefetch(tf.data.AUTOTUNE)
options = tf.data.Options()
options.autotune.enabled = tuned
data = data.with_options(options)
keras.utils.set_random_seed(3)
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(256, activation="relu"), keras.layers.Dense(10)])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
ends = []
history = model.fit(data, epochs=epochs, verbose=0, callbacks=[keras.callbacks.LambdaCallback(
    on_epoch_begin=lambda epoch, logs: ends.append(time.monotonic()))])
print(time.monotonic() - ends[1], history.history["loss"][-1].hex())
"""


def run(side, cpus, epochs):
    """Seconds of the epochs but the first, and the last loss."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TIDE_", "LD_PRELOAD"))}
    if side == "agent":
        env |= {"LD_PRELOAD": AGENT, "TIDE_SOCKET": ""}
    done = subprocess.run(["taskset", "-c", cpus, harness.PYTHON, "-c", TRAINING, str(epochs), side], env=env, capture_output=True,
                          text=True, timeout=LIMIT_S)
    if done.returncode:
        sys.exit(f"stalls.py: {side}: {done.stderr.strip()[-1000:]}")
    seconds, loss = done.stdout.split()
    return float(seconds), loss


def row(name, rounds):
    took = {side: [r[side] for r in rounds] for side in SIDES}
    lost = [s - o for s, o in zip(took["stock"], took["not tuned"])]
    back = [(s - a) / (s - o) for s, a, o in zip(took["stock"], took["agent"], took["not tuned"]) if s > o]
    found = {"model": name, "rounds": len(rounds), **{f"{side} s": round(statistics.median(took[side]), 2) for side in SIDES}}
    for against in ("agent", "not tuned"):
        middle, low, high = harness.log_interval([s / a for s, a in zip(took["stock"], took[against])])
        found |= {f"stock / {against}": round(middle, 3), f"stock / {against} 95 %": f"{low:.3f} … {high:.3f}"}
    half = harness.half_width(back) if len(back) > 1 else float("inf")
    middle = statistics.fmean(back) if back else float("nan")
    verdict = "met" if middle - half >= GOAL else "not shown" if middle + half >= GOAL else "missed"
    return {**found, "lost s": round(statistics.median(lost), 2), "back": round(middle, 2), "back 95 %": f"{middle - half:.2f} … {middle + half:.2f}",
            "goal": f">= {GOAL}: {verdict}"}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=10)
    p.add_argument("--epochs", type=int, default=12)
    args = p.parse_args()
    cpus = sorted(os.sched_getaffinity(0))
    rows, runs = [], []
    for name, places in (("one core", str(cpus[0])), (f"{len(cpus)} cores", ",".join(map(str, cpus)))):
        rounds, losses = [], set()
        for number in range(args.rounds):
            took = {}
            for side in SIDES[number % 3:] + SIDES[:number % 3]:
                took[side], loss = run(side, places, args.epochs)
                losses.add(loss)
            rounds.append(took)
            print(name, json.dumps({side: round(s, 2) for side, s in took.items()}), flush=True)
        runs.append({"model": name, "took": rounds})
        rows.append({**row(name, rounds), "losses": "equal" if len(losses) == 1 else "differ"})
        harness.save("stalls", rows, runs)
    for one in rows:
        print("  ".join(f"{k} {v}" for k, v in one.items()))


if __name__ == "__main__":
    main()
