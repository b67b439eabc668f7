# SPDX-License-Identifier: Apache-2.0
"""How long a training stands still when its cluster changes, against checkpoint and restart.

One training in sync mode; workers and parameter servers come, leave and die while it runs. The
pause of a change is what the steps that it can be felt in take beyond the usual: the longest gap
between two finished steps from the order until three steps after it took effect, less the median
gap. After a server's death it holds the steps since the last checkpoint, which are done again;
here it is a moment old. Each kind of change has a row of its own: they differ tenfold. On the
other side stands what a static job must do for the same: write a checkpoint, end, start again,
read it: from the last step before to the first one after. All in one run, in turns.

    TIDE_BUILD_DIR=build .venv/bin/python bench/elastic_pause.py --rounds 20
"""

import argparse
import json
import os
import pathlib
import queue
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import harness

sys.path.insert(0, str(harness.ROOT / "python"))
GUARD_S = 120
RESTART = "checkpoint and restart"
GOAL_MS = 500  # the 95th percentile of each kind of change
GOAL_SHARE = 0.1  # of the median of checkpoint and restart
DWELL_S = 1.5


def chief(checkpoints):
    """The training's process: says when each step was done. On a line it writes a checkpoint, and
    ends if the line is "end"."""
    os.environ.update(KERAS_BACKEND="tensorflow", CUDA_VISIBLE_DEVICES="")
    import keras
    import numpy as np
    import tensorflow as tf

    import threadtide.tensorflow as tide

    strategy = tide.ElasticParameterServerStrategy(checkpoint_dir=checkpoints,
                                                   checkpoint_interval_s=3600)
    coordinator = tide.ElasticCoordinator(strategy)
    with strategy.scope():
        model = keras.Sequential([keras.Input((128,)), keras.layers.Dense(512, activation="relu"),
                                  keras.layers.Dropout(0.2), keras.layers.Dense(512, "relu"),
                                  keras.layers.Dense(10)])
        optimizer = strategy.optimizer(keras.optimizers.Adam(1e-3))

    @tf.function
    def step(iterator):
        x, y = next(iterator)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(
                y, model(x, training=True), from_logits=True))
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables),
                                      model.trainable_variables))
        return loss

    rng = np.random.default_rng(0)
    data = rng.standard_normal((4096, 128), np.float32), rng.integers(0, 10, 4096)
    iterator = iter(coordinator.create_epochs(data, batch_size=256))
    orders = queue.Queue()
    threading.Thread(target=lambda: [orders.put(line) for line in sys.stdin], daemon=True).start()
    order = ""
    while order != "end":
        result = coordinator.schedule(step, args=(iterator,))
        result.fetch()
        if not result.resumed:
            print(json.dumps({"t": time.monotonic()}), flush=True)
        if not orders.empty():
            order = orders.get().strip()
            coordinator.checkpoint()
            print(json.dumps({"checkpoint": coordinator.step}), flush=True)
    coordinator.close(release=False)


class Training:
    """The chief as the measurement sees it."""

    def __init__(self, cluster, checkpoints, log):
        self._command = [sys.executable, __file__, "--chief", checkpoints]
        self._env = {**os.environ, **cluster.env, "TF_CPP_MIN_LOG_LEVEL": "2"}
        self._log, self.times, self._checkpoints = log, [], 0
        self.during = ""  # which change is measured, for a message
        self.start()

    def start(self):
        self._process = subprocess.Popen(self._command, env=self._env, stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, stderr=self._log, text=True)
        threading.Thread(target=self._read, args=(self._process,), daemon=True).start()

    def _read(self, process):
        for line in process.stdout:
            said = json.loads(line)
            if "t" in said:
                self.times.append(said["t"])
            else:
                self._checkpoints += 1

    def wait(self, condition, what):
        end = time.monotonic() + GUARD_S
        while not condition():
            ended = self._process.poll()
            if time.monotonic() > end or ended not in (None, 0):
                why = f"the chief ended with {ended}" if ended else f"none in {GUARD_S} s"
                sys.exit(f"elastic_pause: not {what} {self.during}: {why}; see {self._log.name}")
            time.sleep(0.005)

    def wait_steps(self, count):
        have = len(self.times)
        self.wait(lambda: len(self.times) >= have + count, f"{count} more steps")

    def said(self, text):
        return pathlib.Path(self._log.name).read_text(errors="replace").count(text)

    def order(self, word):
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def checkpoint(self):
        have = self._checkpoints
        self.order("checkpoint")
        self.wait(lambda: self._checkpoints > have, "a checkpoint")
        self.wait_steps(3)

    def end(self):
        self.order("end")
        if self._process.wait(GUARD_S):
            sys.exit(f"elastic_pause: the chief failed; see {self._log.name}")

    def restart(self):
        """Checkpoint and restart; the seconds without a step."""
        self.end()
        before = len(self.times)
        self.start()
        self.wait(lambda: len(self.times) > before, "a step after the restart")
        return self.times[before] - self.times[before - 1]


def pause(training, change, text):
    """The pause, in seconds, that change() makes; @text is what the chief logs as it takes effect.

    A node is started before: what its start takes from this machine's processors is no pause.
    """
    usual = statistics.median(b - a for a, b in zip(training.times[-40:], training.times[-39:]))
    said, first = training.said(text), len(training.times) - 1
    if change():
        first = len(training.times) - 1
    training.wait(lambda: training.said(text) > said, text)
    training.wait_steps(4)
    gaps = [b - a for a, b in zip(training.times[first:], training.times[first + 1:])]
    time.sleep(DWELL_S)
    return max(0.0, max(gaps) - usual)


def measure(rounds, directory):
    from threadtide.tensorflow import LocalCluster
    found = {what: [] for what in ("worker joins", "worker leaves", "worker killed", "server joins",
                                   "server leaves", "server killed", RESTART)}
    with LocalCluster(ps=1, workers=1, threads=1, slots=4, directory=directory) as cluster, \
            open(pathlib.Path(directory) / "chief.log", "w+") as log:
        training = Training(cluster, str(pathlib.Path(directory) / "checkpoints"), log)
        training.wait_steps(60)
        for number in range(rounds):
            node = {}

            def start(role):
                node[role] = cluster.start(role)[0].index
                return True

            def measured(what, change, text):
                training.during = f"in round {number + 1}, {what}"
                found[what].append(pause(training, change, text))

            measured("worker joins", lambda: start("worker"), " joins")
            measured("server joins", lambda: start("ps"), "variables moved")
            measured("server leaves", lambda: cluster.leave("ps", node["ps"]), "is released")
            measured("worker leaves", lambda: cluster.leave("worker", node["worker"]), "is released")
            start("worker")
            training.wait_steps(45)
            measured("worker killed", lambda: cluster.kill("worker", node["worker"]), "is lost")
            start("ps")
            training.wait_steps(45)
            training.checkpoint()
            measured("server killed", lambda: cluster.kill("ps", node["ps"]), "restarted after step")
            training.wait_steps(45)
            training.during = f"in round {number + 1}, {RESTART}"
            found[RESTART].append(training.restart())
            training.wait_steps(45)
        training.end()
    return found


def p95(values):
    return sorted(values)[max(0, -(-95 * len(values) // 100) - 1)]


def row(what, values):
    ms = [1e3 * value for value in values]
    return {"what": what, "unit": "ms", "n": len(ms), "median": round(statistics.median(ms)),
            "p95": round(p95(ms)), "most": round(max(ms)),
            "goal": "" if what == RESTART else f"p95 {GOAL_MS}"}


def share(what, values, restart):
    """The 95th percentile of a kind of change against checkpoint and restart."""
    return {"what": f"p95 of {what} / median of {RESTART}", "unit": "", "n": len(values),
            "median": round(p95(values) / restart, 3), "goal": GOAL_SHARE}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--chief")
    options = parser.parse_args()
    if options.chief:
        return chief(options.chief)
    directory = tempfile.mkdtemp()
    save(measure(options.rounds, directory))
    shutil.rmtree(directory)  # who failed leaves what was logged


def save(found):
    restart = statistics.median(found[RESTART])
    rows = [row(what, values) for what, values in found.items()]
    rows += [share(what, values, restart) for what, values in found.items() if what != RESTART]
    for r in rows:
        print(*r.values())
    harness.save("elastic-pause", rows, [{"what": what, "ms": [round(1e3 * v, 1) for v in values]}
                                         for what, values in found.items()])


if __name__ == "__main__":
    main()
