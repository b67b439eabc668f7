#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training grows from one worker and one parameter server as a competing workload ends, and shrinks
when that returns; then the same training again with a fixed size.

Real are: the control plane of Kubernetes (etcd, API server, controller manager, scheduler), tide-kube
with the rights of its manifests, TensorFlow's processes, and the quotas of the processor that pods
have (cgroup v1). The node is tests/kube/runner.py, which starts pods as local processes and is no
kubelet. As root.
"""

import argparse
import contextlib
import json
import math
import os
import pathlib
import signal
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("tests/component", "tests/kube", "demo")]

import cluster_picture  # noqa: E402
import digits  # noqa: E402
from control_plane import ControlPlane, missing  # noqa: E402
from controller import BUILD, TRAININGS, Controller, install  # noqa: E402
from network import PodNetwork  # noqa: E402
from objects import pod  # noqa: E402
from runner import Runner  # noqa: E402

WORKER_MCPU, OTHER_MCPU = 250, 750
NODE_MCPU = 1650  # chief 400, servers 100 each, four workers of a quarter core, and a little
NAMESPACE, GUARD_S, LOOK_S = "default", 240, 0.25
SPIN = ("sh", "-c", "while :; do :; done")


def done(events):
    """The epochs that were trained; a chief that resumes passes over those before."""
    return [e for e in events if "epoch" in e and not math.isnan(e["loss"])]


def amounts(mcpu, memory, limited=True):
    values = {"cpu": f"{mcpu}m", "memory": memory}
    return {"requests": values, **({"limits": values} if limited else {})}


def training(name, workers, servers, data, log, epochs, more):
    """The training as a user would write it. Chief and servers are not limited: the processor of
    this machine that the workers leave is theirs."""
    return {
        "apiVersion": "threadtide.io/v1alpha1", "kind": "ElasticTrainingJob",
        "metadata": {"name": name}, "spec": {
            "image": "local/tensorflow", "slots": 8,
            "command": [sys.executable, str(ROOT / "bench/cluster_train.py"), "--data", str(data),
                        "--log", str(log), "--epochs", str(epochs), *more],
            "env": [{"name": "TF_CPP_MIN_LOG_LEVEL", "value": "3"},
                    {"name": "OMP_NUM_THREADS", "value": "1"}],
            "checkpoint": {"path": f"{log}.checkpoints", "intervalSeconds": 20},
            "chief": {"resources": amounts(400, "512Mi", limited=False)},
            "ps": {"max": servers, "resources": amounts(100, "256Mi", limited=False)},
            "workers": {"max": workers, "resources": amounts(WORKER_MCPU, "256Mi")}}}


class Watcher(threading.Thread):
    """Writes down what uses the node, as (seconds, {name: mcpu}), and how many workers are in the
    training, as its chief has reported."""

    def __init__(self, plane, name):
        super().__init__(daemon=True)
        self.plane, self.name, self.ended = plane, name, threading.Event()
        self.begin, self.samples, self.ready = time.monotonic(), [], []

    def look(self):
        used = {"other workload": 0, "chief": 0, "servers": 0, "workers": 0}
        for item in self.plane.must("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]:
            if item["status"].get("phase") != "Running":
                continue
            role = item["metadata"].get("labels", {}).get("threadtide.io/role")
            name = {"chief": "chief", "ps": "servers", "worker": "workers"}.get(role, "other workload")
            request = item["spec"]["containers"][0]["resources"]["requests"]["cpu"]
            used[name] += int(request[:-1]) if request.endswith("m") else 1000 * int(request)
        return used

    def run(self):
        while not self.ended.wait(LOOK_S):
            with contextlib.suppress(AssertionError, OSError):
                self.samples.append((time.monotonic() - self.begin, self.look()))
                status = self.plane.must("GET", f"{TRAININGS.format(NAMESPACE)}/{self.name}")["status"]
                self.ready.append((time.monotonic(), status["workers"]["ready"]))

    def end(self):
        self.ended.set()
        self.join()
        return self.samples

    def since(self, begin, holds):
        """Seconds from @begin until @holds(sample of the node, workers that are in); None: never."""
        for (t, used), (at, ready) in zip(self.samples, self.ready):
            if at >= begin and holds(used, ready):
                return at - begin
        return None


class Demo:
    def __init__(self, plane, folder, data, args):
        self.plane, self.folder, self.data = plane, folder, data
        self.epochs, self.more = args.epochs, args.more.split()
        self.begin, self.freed, self.wanted = time.monotonic(), 0, 0

    def say(self, text):
        print(f"{time.monotonic() - self.begin:6.1f} s  {text}", flush=True)

    def other(self, present):
        """The competing workload: three quarters of a core, really used."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        if present:
            made = pod("other", *SPIN, cpu=f"{OTHER_MCPU}m")
            made["spec"]["terminationGracePeriodSeconds"] = 0
            self.plane.must("POST", path, made)
        else:
            self.plane.api("DELETE", f"{path}/other?gracePeriodSeconds=0")

    def until(self, what, check):
        end = time.monotonic() + GUARD_S
        while not (result := check()):
            if time.monotonic() > end:
                raise TimeoutError(what)
            time.sleep(0.05)
        return result

    def events(self, log):
        return [json.loads(line) for line in log.read_text().split("\n")[:-1]] if log.exists() else []

    def follow(self, name, log, stops):
        """Tells of every epoch; @stops is {epoch: what to do after it}. The epochs."""
        seen = 0
        while True:
            events = self.events(log)
            epochs = done(events)
            for event in epochs[seen:]:
                seen += 1
                self.say(f"{name}: epoch {event['epoch']:2}  loss {event['loss']:.4f}  "
                         f"{event['ps']} server{'s' * (event['ps'] > 1)}, "
                         f"{event['workers']} worker{'s' * (event['workers'] > 1)}")
                if event["epoch"] in stops:
                    stops[event["epoch"]]()
            if events and "digest" in events[-1]:
                return events
            phase = self.plane.must("GET", f"{TRAININGS.format(NAMESPACE)}/{name}").get(
                "status", {}).get("phase")
            if phase in ("Failed", "Invalid"):
                raise RuntimeError(f"{name}: {phase}")
            time.sleep(0.1)

    def run(self, name, workers, servers, stops):
        log = self.folder / f"{name}.jsonl"
        self.other(True)
        self.until("the other workload", lambda: self.phase("other") == "Running")
        self.plane.must("POST", TRAININGS.format(NAMESPACE),
                        training(name, workers, servers, self.data, log, self.epochs, self.more))
        self.say(f"{name}: created beside a workload that has {OTHER_MCPU} of the "
                 f"{NODE_MCPU - 500} millicores that the node has for both")
        self.until(f"{name}'s chief", lambda: self.events(log))
        watcher = Watcher(self.plane, name)
        watcher.start()
        events = self.follow(name, log, stops)
        samples = watcher.end()
        self.plane.api("DELETE", f"{TRAININGS.format(NAMESPACE)}/{name}")
        self.other(False)
        self.until(f"{name}'s end", lambda: not self.plane.must(
            "GET", f"/api/v1/namespaces/{NAMESPACE}/pods")["items"])
        times = [next(e["t"] for e in events if "ready" in e), *(e["t"] for e in done(events))]
        return {"name": name, "samples": [(t + watcher.begin - times[0], used) for t, used in samples],
                "ends": [t - times[0] for t in times[1:]], "epochs": done(events),
                "last": events[-1], "restarts": sum("ready" in e for e in events) - 1,
                "grew_s": watcher.since(self.freed, lambda used, ready: ready > 1),
                "grown_s": watcher.since(self.freed, lambda used, ready: ready == workers),
                "gave_back_s": watcher.since(self.wanted, lambda used, ready: used["other workload"])}

    def phase(self, name):
        code, found = self.plane.api("GET", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}")
        return found["status"].get("phase") if code == 200 else None

    def stops(self, elastic):
        """The other workload ends after the second epoch, and is back two epochs before the end."""
        def ends():
            self.say("the other workload ends")
            self.other(False)
            self.freed = time.monotonic()

        def returns():
            self.until("the other's end", lambda: not self.phase("other"))
            self.say("the other workload is back" + " and waits for room" * elastic)
            self.other(True)
            self.wanted = time.monotonic()
        return {2: ends, self.epochs - 2: returns}


def seconds(value):
    return "never" if value is None else f"{value:.1f} s"


def table(elastic, static):
    rows = [("", "elastic", "static"),
            ("total", f"{elastic['ends'][-1]:.1f} s", f"{static['ends'][-1]:.1f} s"),
            ("final loss", f"{elastic['epochs'][-1]['loss']:.6f}", f"{static['epochs'][-1]['loss']:.6f}"),
            ("accuracy", *(f"{100 * r['last']['accuracy']:.2f} %" for r in (elastic, static))),
            ("weights (sha256)", elastic["last"]["digest"], static["last"]["digest"]),
            ("examples applied / expected", *(
                f"{r['last']['applied'] / r['last']['expected']:.3f}" for r in (elastic, static))),
            ("restarts of the chief", *(str(r["restarts"]) for r in (elastic, static))),
            ("freed -> first new worker in it", seconds(elastic["grew_s"]), "-"),
            ("freed -> all new workers in it", seconds(elastic["grown_s"]), "-"),
            ("wanted back -> the other runs", seconds(elastic["gave_back_s"]), seconds(static["gave_back_s"])),
            ("pauses at changes", " ".join(f"{p:.0f}" for p in elastic["last"]["pauses_ms"]) + " ms", "-")]
    for number, (a, b) in enumerate(zip(elastic["epochs"], static["epochs"])):
        def cell(run, event):
            begin = run["ends"][number - 1] if number else 0
            return f"{run['ends'][number] - begin:5.1f} s  {event['ps']}+{event['workers']}"
        rows.append((f"epoch {number + 1}  loss {a['loss']:.4f}"
                     + ("" if a["loss"] == b["loss"] else f" / {b['loss']:.4f}"),
                     cell(elastic, a), cell(static, b)))
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return "\n".join("  " + "  ".join(text.ljust(w) for text, w in zip(row, widths)) for row in rows)


def demonstrate(plane, args, data):
    with contextlib.ExitStack() as stack:
        network = PodNetwork()
        stack.callback(network.end)
        install(plane)
        virtual = pathlib.Path(sys.executable).parent.parent
        runner = Runner(plane, network, "node-1", cpu=f"{NODE_MCPU}m", memory="6Gi", environment={
            "PATH": f"{BUILD}:{virtual}/bin:{os.environ['PATH']}", "VIRTUAL_ENV": str(virtual),
            "PYTHONPATH": str(ROOT / "python")}).start()
        stack.callback(runner.end)
        controller = Controller(plane, "--settle=1s", listen=network.gateway)
        stack.callback(controller.end)
        controller.start()
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tide-demo-")))
        demo = Demo(plane, folder, data, args)
        demo.say("control plane, one node and tide-kube are up")
        try:
            elastic = demo.run("elastic", 4, 2, demo.stops(True))
            static = demo.run("static", 1, 1, demo.stops(False))
        except (TimeoutError, RuntimeError, AssertionError):
            print(controller.log.read_text()[-3000:], *runner.said[-10:], sep="\n", file=sys.stderr)
            with contextlib.suppress(Exception):
                print(runner.log("elastic-chief")[-3000:], file=sys.stderr)
            raise
    return elastic, static


def finish(args, elastic, static):
    print("\n  servers+workers at the end of each epoch; same data, seed and slots\n")
    print(table(elastic, static))
    same = elastic["last"]["digest"] == static["last"]["digest"]
    ratio = elastic["ends"][-1] / static["ends"][-1]
    print(f"\n  time elastic / static {ratio:.2f}; loss curves and weights are "
          + ("the same bit for bit" if same else "NOT the same"))
    print("\n" + cluster_picture.text([elastic, static], NODE_MCPU))
    args.out.mkdir(parents=True, exist_ok=True)
    picture = args.out / "cluster.svg"
    picture.write_text(cluster_picture.draw([elastic, static], NODE_MCPU))
    (args.out / "cluster.json").write_text(json.dumps([elastic, static], indent=1) + "\n")
    print(f"  picture: {picture}")
    return 0 if same else 1


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--epochs", type=int, default=12)
    p.add_argument("--more", default="", help="options of bench/cluster_train.py")
    p.add_argument("--out", type=pathlib.Path, default=BUILD / "demo")
    args = p.parse_args()
    if os.geteuid() != 0 or missing():
        sys.exit(f"demo: {missing() or 'this needs root: pods get namespaces and control groups'}")

    def stop(number, frame):
        raise KeyboardInterrupt(number)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    try:
        data = digits.prepare(ROOT / "demo" / ".cache")[0]
        plane = ControlPlane()
        try:
            elastic, static = demonstrate(plane.start(), args, data)
        finally:
            plane.end()
    except KeyboardInterrupt:
        print("\ndemo: stopped; its programs have been ended.", file=sys.stderr)
        return 130
    return finish(args, elastic, static)


if __name__ == "__main__":
    sys.exit(main())
