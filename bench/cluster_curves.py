#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast the trainings of cluster_mix.py are with one to four workers, each with its quota (as root).

    cluster_curves.py [--models mlp,…] [--epochs 3]

Workers join one by one while the training runs; with each number so many whole epochs are timed, of
which the first does not begin before the newest worker takes part. What it takes to have one more: the
time from the order until it listens and is in the training. The shortest epoch counts: whatever else
happens on a machine only makes them longer. cluster_simulated.py reads what this writes.
"""

import argparse
import os
import subprocess
import time

import cluster
import cluster_bed as bed
import cluster_mix as mix
import harness

GUARD_S = 400


class Chief:
    """The training's process, and when each of its epochs ended."""

    def __init__(self, folder, model, env):
        self.log, self.ends = folder / f"{model}.log", []
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                bed.command(model, 1000), stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                env={**cluster.clean_environment(), "PYTHONPATH": str(harness.ROOT / "python"), **env})
        self.begin = time.monotonic()

    def read(self):
        lines = self.log.read_text(errors="replace").split("\n")[:-1]
        epochs = sum(line.startswith(("epoch ", "{")) and "loss" in line for line in lines)
        self.ends += [time.monotonic()] * (epochs - len(self.ends))

    def said(self, text):
        return text in self.log.read_text(errors="replace")

    def until(self, holds):
        while not holds():
            if self.process.poll() is not None or time.monotonic() - self.begin > GUARD_S:
                raise RuntimeError(self.log.read_text(errors="replace")[-3000:])
            time.sleep(0.005)
            self.read()

    def until_epochs(self, count):
        self.until(lambda: len(self.ends) >= count)

    def end(self):
        self.process.kill()
        self.process.wait()


def measure(folder, model, epochs):
    groups, times, joins = cluster.Groups(), {}, []
    quota = groups.limited
    try:
        with cluster.local_cluster(ps=1, slots=mix.SLOTS) as c:
            c.start("worker", 1, wrapper=quota(mix.WORKER_MCPU / 1000))
            chief = Chief(folder, model, c.env)
            try:
                chief.until_epochs(1)
                start_s = chief.ends[0] - chief.begin
                for workers in range(1, mix.MOST + 1):
                    if workers > 1:
                        ordered = time.monotonic()
                        c.start("worker", 1, wrapper=quota(mix.WORKER_MCPU / 1000))
                        chief.until(lambda: chief.said(f"worker {workers - 1} joins"))
                        joins.append(time.monotonic() - ordered)
                    chief.until_epochs(len(chief.ends) + 1)  # slow: functions are prepared
                    first = len(chief.ends)
                    chief.until_epochs(first + epochs)
                    ends = chief.ends[first - 1:first + epochs]
                    times[workers] = [b - a for a, b in zip(ends, ends[1:])]
            finally:
                chief.end()
    finally:
        groups.end()
    return start_s, times, joins


def rows_of(model, start_s, times, joins):
    one, rows = min(times[1]), []
    for workers, each in times.items():
        rows.append({"model": model, "workers": workers,
                     "epoch s": round(min(each), 3), "longest s": round(max(each), 3),
                     "epochs": len(each), "speed-up": round(one / min(each), 3),
                     "start and first epoch s": round(start_s, 1) if workers == 1 else "",
                     "order to part of it s": round(joins[workers - 2], 1) if workers > 1 else ""})
    return rows


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--models", default=",".join(mix.MODELS))
    p.add_argument("--epochs", type=int, default=3)
    args = p.parse_args()
    if os.geteuid() != 0:
        p.error("workers have control groups: as root")
    cluster.PERIOD_US = mix.PERIOD_US
    for model in args.models.split(","):
        with cluster.scratch() as folder:
            rows = rows_of(model, *measure(folder, model, args.epochs))
        for row in rows:
            print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
        harness.save("cluster-curves", rows)


if __name__ == "__main__":
    main()
