#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How soon a new worker is in its training, with its usual cores and with spec.workers.cpu.start (as root).

    worker_start.py [--rounds 12] [--models cnn,mlp] [--start 1]

  usual    a tenth of a core, as always
  start    a limit of --start cores until it is in the training, the same request

The node is that of cluster_mix.py: eight places for workers of a tenth of a core each, a quota of the processor.
Half of them belong to another training, which works all the time; chiefs and parameter servers are not
limited. A person asks for one more worker (spec.workers.replicas) of a training that works, and then for one
less; sides in turn, on one training. Real: control plane, tide-kube, TensorFlow, quotas. Seconds count from the
start of the worker's command:

  loaded     its TensorFlow listens, by its own log
  connected  it is in TensorFlow's cluster, as its chief sees it
  prepared   its functions are prepared, so that it is in the training

CPU s is its processor time until then, given back: when its limit is the usual one again, after that.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import sys
import threading
import time

import harness

LISTENS = re.compile(r"listens on port \d+ after ([0-9.]+) s")
TICK_S = os.sysconf("SC_CLK_TCK")
WORKER_MCPU, CHIEF_MCPU, PS_MCPU, PLACES, SLOTS, PERIOD_US = 100, 50, 25, 8, 4, 20_000
NODE_MCPU = PLACES * WORKER_MCPU + 4 * (CHIEF_MCPU + PS_MCPU)
NEIGHBOURS = 4  # workers of the other training
GUARD_S, LOOK_S, GOAL, REST_S = 120, 0.01, 3, 2
STAGES = ("loaded", "connected", "prepared")


def chief(model, data):
    """Trains for ever, and prints when each replica comes into a state."""
    import argparse as args_of

    import cluster_train
    training = cluster_train.Training(args_of.Namespace(
        data=data, model=model, width=16, examples=640, epochs=1, batch=128, rate=2e-3, seed=1))
    coordinator, seen = training.coordinator, set()

    def look():
        while True:
            time.sleep(LOOK_S)
            now = time.monotonic()
            for stage, nodes in (("connected", training.strategy.cluster.report()),
                                 ("prepared", coordinator.report()["nodes"])):
                for node in nodes:
                    key = (stage, node["role"], node["index"])
                    if node["state"] == "in" and key not in seen:
                        seen.add(key)
                        print(json.dumps({"t": now, "key": key}), flush=True)

    threading.Thread(target=look, daemon=True).start()
    while True:
        coordinator.schedule(training.step, args=(iter(training.batches),)).fetch()


class Training:
    """The measured one, as the API and the runner show it."""

    def __init__(self, bed, b, model, data):
        self.bed, self.b, self.name = bed, b, model
        self.path = f"{bed.PATH}/{model}"
        words = [harness.PYTHON, "-u", str(pathlib.Path(__file__).resolve()), "--chief", model, "--data", str(data)]
        b.plane.must("POST", bed.PATH, bed.training(model, words, {"min": 1, "max": 2, "replicas": 1}, SLOTS,
                                                    CHIEF_MCPU, PS_MCPU, WORKER_MCPU))
        self.next, self.times = 0, {}
        self.until(lambda: self.time("prepared", 0), "its first worker")
        time.sleep(10)  # it has prepared everything, and works

    def until(self, holds, what):
        end = time.monotonic() + GUARD_S
        while not (found := holds()):
            if time.monotonic() > end:
                raise RuntimeError(f"{self.name}: not {what} in {GUARD_S} s")
            time.sleep(LOOK_S)
        return found

    def time(self, stage, index):
        for line in self.lines():
            if line.startswith('{"t"'):
                said = json.loads(line)
                self.times[tuple(said["key"])] = said["t"]
        return self.times.get((stage, "worker", index))

    def lines(self):
        try:
            return self.b.runner.log(f"{self.name}-chief").split("\n")[:-1]
        except (AssertionError, OSError):
            return []

    def pod(self, index):
        return self.b.plane.api("GET", f"/api/v1/namespaces/default/pods/{self.name}-worker-{index}")

    def limit(self, index):
        return self.b.runner.run_of(f"{self.name}-worker-{index}").resources["limits"]["cpu"]

    def ask(self, replicas, start=None):
        self.b.plane.must("PATCH", self.path, {"spec": {"workers": {
            "replicas": replicas, **({"cpu": {"start": start}} if replicas > 1 else {})}}})

    def measure(self, start):
        """One worker comes and leaves."""
        self.next += 1
        index, name = self.next, f"{self.name}-worker-{self.next}"
        self.ask(2, start)
        pid = self.until(lambda: self.pid_of(name), "a process of the worker")
        prepared = self.until(lambda: self.time("prepared", index), "prepared")
        began, cpu = process(pid)
        found = {"connected": self.time("connected", index) - began, "prepared": prepared - began, "cpu_s": cpu,
                 "limit": self.pod(index)[1]["metadata"].get("annotations", {}).get("threadtide.io/start-cpu", "")}
        found["loaded"] = float(LISTENS.search(self.b.runner.log(name))[1])
        self.until(lambda: self.limit(index) == f"{WORKER_MCPU}m", "back at its usual limit")
        found["given_back"] = time.monotonic() - prepared
        time.sleep(REST_S)
        self.ask(1)
        self.until(lambda: self.pod(index)[0] == 404, "gone")
        time.sleep(REST_S)
        return {key: value if key == "limit" else round(value, 3) for key, value in found.items()}

    def pid_of(self, name):
        try:
            return self.b.runner.run_of(name).container.pid
        except (AssertionError, AttributeError):
            return None


def process(pid):
    """When it began, on the monotonic clock, and its processor time so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    boot = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
    return int(fields[19]) / TICK_S - boot, (int(fields[11]) + int(fields[12])) / TICK_S


def run(model, rounds, start):
    import cluster_bed as bed
    import digits
    data = digits.prepare(harness.ROOT / "demo" / ".cache")[0]
    with bed.Bed(NODE_MCPU, PERIOD_US) as b:
        words = [harness.PYTHON, "-u", str(pathlib.Path(__file__).resolve()), "--chief", "cnn", "--data", str(data)]
        b.plane.must("POST", bed.PATH, bed.training("other", words, {"min": NEIGHBOURS, "max": NEIGHBOURS}, SLOTS,
                                                    CHIEF_MCPU, PS_MCPU, WORKER_MCPU))
        training, found = Training(bed, b, model, data), []
        for number in range(rounds):
            sides = ("usual", "start") if number % 2 == 0 else ("start", "usual")
            taken = {side: training.measure(start if side == "start" else None) for side in sides}
            print(model, number + 1, taken, flush=True)
            found += [{"model": model, "round": number + 1, "side": side, **took} for side, took in taken.items()]
        return found


def rows_of(runs, start):
    rows = []
    for model in dict.fromkeys(r["model"] for r in runs):
        of = {side: [r for r in runs if (r["model"], r["side"]) == (model, side)] for side in ("usual", "start")}
        ratios = [a["prepared"] / b["prepared"] for a, b in zip(of["usual"], of["start"])]
        found = harness.ratio_stats(ratios)
        for side, taken in of.items():
            row = {"training": model, "side": side if side == "usual" else f"start: {start}", "rounds": len(taken)}
            row |= {f"{stage} after s": f"{statistics.median(t[stage] for t in taken):.2f}" for stage in STAGES}
            row |= {"min … max": f"{min(t['prepared'] for t in taken):.2f} … {max(t['prepared'] for t in taken):.2f}",
                    "CPU s": f"{statistics.median(t['cpu_s'] for t in taken):.2f}"}
            if side == "start":
                row |= {"given back after s": f"{statistics.median(t['given_back'] for t in taken):.2f}",
                        "usual / start": f"{found['ratio']:.2f}", "95 %": f"{found['low']:.2f} … {found['high']:.2f}",
                        "goal": f">= {GOAL}: " + ("met" if found["low"] >= GOAL else
                                                   "not shown" if found["high"] >= GOAL else "missed")}
            rows.append(row)
    return rows


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=12)
    p.add_argument("--models", default="cnn,mlp")
    p.add_argument("--start", default="1", help="cores")
    p.add_argument("--chief", help=argparse.SUPPRESS)
    p.add_argument("--data", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.chief:
        return chief(args.chief, args.data)
    if os.geteuid() != 0:
        sys.exit("worker_start.py: pods have namespaces and control groups: run it as root")
    runs = [r for model in args.models.split(",") for r in run(model, args.rounds, args.start)]
    rows = rows_of(runs, args.start)
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))
    harness.save("worker-start", rows, runs)


if __name__ == "__main__":
    main()
