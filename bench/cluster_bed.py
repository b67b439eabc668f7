# SPDX-License-Identifier: Apache-2.0
"""A small cluster for measurements: a real control plane, tide-kube with the rights of its manifests,
and one node whose pods are local processes with quotas of the processor (tests/kube/runner.py, which
is no kubelet). As root.

Everything of a measurement happens in one thread; a Follower and a Meter have one each.
"""

import contextlib
import json
import os
import pathlib
import sys
import threading
import time

import harness

sys.path[:0] = [str(harness.ROOT / folder) for folder in ("tests/component", "tests/kube", "demo")]

import digits  # noqa: E402
from control_plane import ControlPlane, missing  # noqa: E402
from controller import TRAININGS, Controller, install  # noqa: E402
from network import PodNetwork  # noqa: E402
from runner import Runner  # noqa: E402

PATH = TRAININGS.format("default")
TICK_S = os.sysconf("SC_CLK_TCK")
METER_S = 1
LEASE = ("--lease-duration=15s", "--lease-deadline=10s", "--lease-retry=2s")  # as it is by itself
MODELS = {"mlp": "examples/elastic_mlp.py", "embedding": "examples/elastic_embedding.py",
          "cnn": "bench/cluster_train.py"}


def command(model, epochs):
    """A training as its user would start it. The two examples print the loss of each epoch; the third
    program writes it."""
    words = [harness.PYTHON, "-u", str(harness.ROOT / MODELS[model]), "--epochs", str(epochs)]
    if model == "cnn":
        words += ["--data", str(digits.prepare(harness.ROOT / "demo" / ".cache")[0]), "--log",
                  "/dev/stdout", "--model", "cnn", "--width", "16", "--examples", "640",
                  "--batch", "128"]
    return words


def amounts(mcpu, memory, limited=True):
    values = {"cpu": f"{mcpu}m", "memory": memory}
    return {"requests": values, **({"limits": values} if limited else {})}


def training(name, words, workers, slots, chief_mcpu, ps_mcpu, worker_mcpu):
    """Chief and parameter server are not limited: the processor that workers leave is theirs."""
    return {
        "apiVersion": "threadtide.io/v1alpha1", "kind": "ElasticTrainingJob",
        "metadata": {"name": name}, "spec": {
            "image": "local/tensorflow", "slots": slots, "command": words,
            "env": [{"name": "TF_CPP_MIN_LOG_LEVEL", "value": "3"},
                    {"name": "OMP_NUM_THREADS", "value": "1"}],
            "chief": {"resources": amounts(chief_mcpu, "512Mi", limited=False)},
            "ps": {"resources": amounts(ps_mcpu, "256Mi", limited=False)},
            "workers": {**workers, "resources": amounts(worker_mcpu, "256Mi")}}}


class Bed:
    """.plane, .runner, .controller; ends with all its programs."""

    def __init__(self, node_mcpu, period_us):
        if os.geteuid() != 0 or missing():
            sys.exit(missing() or "pods have namespaces and control groups: as root")
        self.stack, self.node_mcpu, self.period_us = contextlib.ExitStack(), node_mcpu, period_us

    def __enter__(self):
        with self.stack:
            self.plane = ControlPlane()
            self.stack.callback(self.plane.end)
            self.plane.start()
            network = PodNetwork()
            self.stack.callback(network.end)
            install(self.plane)
            virtual = pathlib.Path(harness.PYTHON).parent.parent
            self.runner = Runner(
                self.plane, network, "node-1", cpu=f"{self.node_mcpu}m", memory="20Gi", environment={
                    "PATH": f"{harness.BUILD}:{virtual}/bin:{os.environ['PATH']}",
                    "VIRTUAL_ENV": str(virtual), "PYTHONPATH": str(harness.ROOT / "python")},
                period_us=self.period_us).start()
            self.stack.callback(self.runner.end)
            # Trainings take a minute here and not hours: what is waited between changes is in proportion.
            self.controller = Controller(self.plane, "--settle=1s", *LEASE, listen=network.gateway)
            self.stack.callback(self.controller.end)
            self.controller.start()
            self.stack = self.stack.pop_all()
        return self

    def __exit__(self, *exc):
        if exc[0]:
            print(self.controller.log.read_text()[-3000:], *self.runner.said[-10:], sep="\n",
                  file=sys.stderr)
        self.stack.close()

    def losses(self, name):
        """Losses of all epochs, every bit of them, and the digest of the weights where the program has one."""
        found = []
        for line in self.runner.log(f"{name}-chief").splitlines():
            if line.startswith("epoch "):
                found.append(line.rpartition(" ")[2])
            elif line.startswith("{"):
                said = json.loads(line)
                found += [repr(said[key]) for key in ("loss", "digest") if key in said]
        return found


class Follower(threading.Thread):
    """When each training came into a phase, and its workers (desired, actual, in the training) over
    time with the reason, as the API tells."""

    def __init__(self, plane):
        super().__init__(daemon=True)
        self.plane, self.zero = plane, time.monotonic()
        self.phases, self.workers, self.status = {}, {}, {}
        self.start()

    def run(self):
        # ends with the control plane
        with contextlib.suppress(Exception):
            for event in self.plane.watch(PATH):
                self.hear(event["object"], time.monotonic() - self.zero)

    def hear(self, etj, now):
        name, status = etj["metadata"]["name"], etj.get("status")
        if not status:
            return
        self.status[name] = status
        self.phases.setdefault(name, {}).setdefault(status["phase"], now)
        counts = [status["workers"][key] for key in ("desired", "actual", "ready")]
        line = self.workers.setdefault(name, [])
        if not line or line[-1][1] != counts:
            line.append((now, counts, status.get("message", "")))


class Meter(threading.Thread):
    """Processor time of pods by role, read while they run."""

    def __init__(self, runner):
        super().__init__(daemon=True)
        self.runner, self.ended, self.used = runner, threading.Event(), {}
        self.start()

    def run(self):
        while not self.ended.wait(METER_S):
            with self.runner.lock:
                pods = list(self.runner.pods.values())
            for pod in pods:
                role = pod.pod["metadata"].get("labels", {}).get("threadtide.io/role", "other")
                for run in pod.runs.values():
                    pid = run.container and run.container.pid
                    with contextlib.suppress(OSError, IndexError):
                        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
                        fields = stat.rpartition(")")[2].split()
                        self.used[pod.uid] = role, (int(fields[11]) + int(fields[12])) / TICK_S

    def end(self):
        """Seconds by role."""
        self.ended.set()
        self.join()
        total = {}
        for role, seconds in self.used.values():
            total[role] = total.get(role, 0) + seconds
        return total
