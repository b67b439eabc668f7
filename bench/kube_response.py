#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How quickly an elastic training uses what becomes free in a cluster, and gives it back.

Another workload has three quarters of a node's room for workers; it ends, and later returns, again and
again, beside one training. Real are the control plane, tide-kube with what it ships with, and
TensorFlow's processes; the node is tests/kube/runner.py, which starts pods as local processes with a
quota (as root). Times are those at which the API server's watches tell of it.

    TIDE_BUILD_DIR=build .venv/bin/python bench/kube_response.py --rounds 10
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import sys
import tempfile
import threading
import time

import harness

sys.path[:0] = [str(harness.ROOT / folder) for folder in ("tests/component", "tests/kube")]

import cluster  # noqa: E402
from control_plane import ControlPlane, missing  # noqa: E402
from controller import TRAININGS, Controller, install  # noqa: E402
from network import PodNetwork  # noqa: E402
from objects import pod  # noqa: E402
from runner import Runner  # noqa: E402

WORKERS, WORKER_MCPU = 4, 250
NODE_MCPU = 500 + WORKERS * WORKER_MCPU + 50  # chief 400, a server 100, and a little
OTHER_MCPU = (WORKERS - 1) * WORKER_MCPU
SPACE, GUARD_S, DWELL_S = "default", 120, 7  # longer than the pause after something has left
CLOSURE, EPOCH_STEPS = "a closure", 10  # cluster_train.py: 640 examples in batches of 64
SPIN = ("sh", "-c", "while :; do :; done")


def amounts(mcpu, limited):
    values = {"cpu": f"{mcpu}m", "memory": "256Mi"}
    return {"resources": {"requests": values, **({"limits": values} if limited else {})}}


def training(folder):
    return {
        "apiVersion": "threadtide.io/v1alpha1", "kind": "ElasticTrainingJob",
        "metadata": {"name": "job"}, "spec": {
            "image": "local/tensorflow", "slots": 8,
            "command": [harness.PYTHON, cluster.TRAIN, "--data", str(cluster.data()),
                        "--log", f"{folder}/job.jsonl", "--epochs", "100000"],
            "env": [{"name": "TF_CPP_MIN_LOG_LEVEL", "value": "3"},
                    {"name": "OMP_NUM_THREADS", "value": "1"}],
            "chief": amounts(400, False), "ps": {"max": 1, **amounts(100, False)},
            "workers": {"max": WORKERS, **amounts(WORKER_MCPU, True)}}}


class Seen:
    """Objects by name, as a watch tells of them, and when it did."""

    def __init__(self, plane, path):
        self.now, self.changed = {}, threading.Condition()
        threading.Thread(target=self.follow, args=(plane, path), daemon=True).start()

    def follow(self, plane, path):
        with contextlib.suppress(OSError, AssertionError):  # it ends with the control plane
            for event in plane.watch(path):
                found = event["object"]
                with self.changed:
                    if event["type"] == "DELETED":
                        self.now.pop(found["metadata"]["name"], None)
                    else:
                        self.now[found["metadata"]["name"]] = found
                    self.changed.notify_all()

    def when(self, what, holds):
        """The time at which holds(objects by name) came true."""
        with self.changed:
            if not self.changed.wait_for(lambda: holds(self.now), GUARD_S):
                raise TimeoutError(what)
            return time.monotonic()


def ready(trainings):
    return trainings.get("job", {}).get("status", {}).get("workers", {}).get("ready", 0)


def leaving(pods):
    return [name for name, found in pods.items()
            if "threadtide.io/leave" in found["metadata"].get("annotations", {})]


def phase(pods, name):
    return pods.get(name, {}).get("status", {}).get("phase")


class Bench:
    def __init__(self, plane):
        self.plane, self.path = plane, f"/api/v1/namespaces/{SPACE}/pods"
        self.pods, self.trainings = Seen(plane, self.path), Seen(plane, TRAININGS.format(SPACE))
        self.found = {}

    def note(self, what, seconds):
        self.found.setdefault(what, []).append(seconds)
        print(f"  {what}: {seconds:.2f} s", flush=True)

    def other(self):
        made = pod("other", *SPIN, cpu=f"{OTHER_MCPU}m")
        made["spec"]["terminationGracePeriodSeconds"] = 0
        self.plane.must("POST", self.path, made)
        return time.monotonic()

    def start(self, folder):
        self.other()
        self.pods.when("the other workload", lambda pods: phase(pods, "other") == "Running")
        self.plane.must("POST", TRAININGS.format(SPACE), training(folder))
        self.trainings.when("the first worker", lambda found: ready(found) == 1)
        self.trainings.when("progress", lambda found: found["job"]["status"].get(
            "progress", {}).get("step", 0) > 0)
        time.sleep(DWELL_S)

    def grow(self):
        self.plane.must("DELETE", f"{self.path}/other?gracePeriodSeconds=0")
        freed = self.pods.when("the end of the other", lambda pods: "other" not in pods)
        first = self.trainings.when("a worker more", lambda found: ready(found) > 1)
        last = self.trainings.when("all workers", lambda found: ready(found) == WORKERS)
        self.note("room is free → first new worker in the training", first - freed)
        self.note("room is free → all new workers in the training", last - freed)

    def give_back(self):
        wanted = self.other()
        asked = self.pods.when("the request to leave", leaving)
        names = set(leaving(self.pods.now))
        gone = self.pods.when("their end", lambda pods: not names & set(pods))
        runs = self.pods.when("the other", lambda pods: phase(pods, "other") == "Running")
        self.note("another's pod is made → workers are asked to leave", asked - wanted)
        self.note("workers are asked to leave → the last one is gone", gone - asked)
        self.note("another's pod is made → it runs", runs - wanted)

    def rounds(self, count):
        for _ in range(count):
            self.grow()
            time.sleep(DWELL_S)
            self.give_back()
            time.sleep(DWELL_S)


def measure(rounds, folder):
    virtual = pathlib.Path(harness.PYTHON).parent.parent
    with contextlib.ExitStack() as stack:
        plane = ControlPlane()
        stack.callback(plane.end)
        plane.start()
        network = PodNetwork()
        stack.callback(network.end)
        install(plane)
        runner = Runner(plane, network, "node-1", cpu=f"{NODE_MCPU}m", memory="6Gi", environment={
            "PATH": f"{harness.BUILD}:{virtual}/bin:{os.environ['PATH']}",
            "VIRTUAL_ENV": str(virtual), "PYTHONPATH": str(harness.ROOT / "python")}).start()
        stack.callback(runner.end)
        controller = Controller(plane, "--batch=500ms", "--settle=5s", listen=network.gateway)
        stack.callback(controller.end)
        controller.start()
        bench = Bench(plane)
        try:
            bench.start(folder)
            bench.rounds(rounds)
        except (TimeoutError, AssertionError):
            print(controller.log.read_text()[-3000:], *runner.said[-10:], sep="\n", file=sys.stderr)
            with contextlib.suppress(Exception):
                print(runner.log("job-chief")[-3000:], file=sys.stderr)
            raise
        for event in plane.must("GET", f"/api/v1/namespaces/{SPACE}/events")["items"]:
            if event["involvedObject"]["kind"] == "ElasticTrainingJob":
                print(f"  {event['reason']} ×{event.get('count', 1)}: {event['message']}")
        return {**bench.found, CLOSURE: closures(folder)}


def closures(folder):
    """Seconds of a closure in epochs with all workers: a step is two of the 8, one after the other."""
    lines = pathlib.Path(folder, "job.jsonl").read_text().split("\n")[:-1]
    epochs = [e for e in map(json.loads, lines) if "epoch" in e]
    return [(b["t"] - a["t"]) / EPOCH_STEPS / 2 for a, b in zip(epochs, epochs[1:])
            if a["workers"] == b["workers"] == WORKERS]


def summary(found):
    closure = statistics.median(found[CLOSURE])
    goals = {"room is free → first new worker in the training": 5,
             "workers are asked to leave → the last one is gone": round(1 + closure, 2)}
    rows = []
    for what, values in found.items():
        rows.append({"what": what, "unit": "s", "n": len(values),
                     "median": round(statistics.median(values), 2),
                     "p95": round(harness.quantile(values, 0.95), 2),
                     "most": round(max(values), 2), "goal": goals.get(what, "")})
        if what in goals:
            rows[-1]["verdict"] = "met" if rows[-1]["p95"] <= goals[what] else "missed"
        print(*rows[-1].values())
    return rows


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--rounds", type=int, default=10)
    p.add_argument("--values", type=pathlib.Path, metavar="FILE",
                   help="keep single values there, and count those that it has")
    args = p.parse_args()
    if os.geteuid() != 0 or missing():
        sys.exit(f"kube_response: {missing() or 'pods have namespaces and control groups: as root'}")
    with tempfile.TemporaryDirectory(prefix="tide-bench-") as folder:
        found = measure(args.rounds, folder)
    if args.values:
        kept = json.loads(args.values.read_text()) if args.values.exists() else {}
        found = {what: kept.get(what, []) + values for what, values in found.items()}
        args.values.write_text(json.dumps(found))
    harness.save("kube-response", summary(found))


if __name__ == "__main__":
    main()
