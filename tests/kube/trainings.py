# SPDX-License-Identifier: Apache-2.0
"""Trainings with real TensorFlow (train.py), steered by tide-kube on the real control plane."""
import json
import os
import pathlib
import re
import signal
import sys

from controller import BUILD, ROOT, TRAININGS, Controller, kubectl
from daemon import eventually
from objects import Pods

PROGRAM = pathlib.Path(__file__).with_name("train.py")
IMAGE = "local/tensorflow"
SOON_S = 120  # TensorFlow starts on a busy machine
MOST = 40     # epochs of the training that nobody touches, with which others are compared
IDLE = ["sleep", "1000"]


class Stage:
    """Nodes, tide-kube with @options, and trainings in folders of their own."""

    def __init__(self, plane, make_runner, gateway, folder, *options, url=None):
        self.plane, self.make_runner, self.gateway, self.folder = plane, make_runner, gateway, folder
        virtual = pathlib.Path(sys.executable).parent.parent
        self.environment = {"PATH": f"{BUILD}:{virtual}/bin:{os.environ['PATH']}",
                            "VIRTUAL_ENV": str(virtual), "PYTHONPATH": str(ROOT / "python"),
                            "TF_CPP_MIN_LOG_LEVEL": "2", "OMP_NUM_THREADS": "1"}
        self.nodes = {}
        self.controller = Controller(plane, *options, url=url, listen=gateway)

    def node(self, name, cpu):
        self.nodes[name] = self.make_runner(name, cpu=cpu, images={IMAGE}, environment=self.environment,
                                            labels={"tide-test/pool": name.rpartition("-")[0]})
        return self.nodes[name]

    def runner_of(self, pod):
        return self.nodes[pod["spec"]["nodeName"]]


def amounts(cpu, limited):
    values = {"cpu": cpu, "memory": "256Mi"}
    return {"requests": values, **({"limits": values} if limited else {})}


def at(pool):
    return {"nodeSelector": {"tide-test/pool": pool}}


class Job:
    """A training. Chief and servers have no limit: the processor that the workers leave is theirs.
    @pool: of its nodes, @home: of its chief. @idle: nothing of it trains. @nodes: more of the pods of
    servers and workers, @place: the affinity of its workers, @workers: more about these."""

    def __init__(self, stage, namespace, name, pool, home=None, worker="250m", count=(1, 1), idle=False,
                 nodes=None, place=None, workers=None, **spec):
        self.stage, self.plane, self.namespace, self.name = stage, stage.plane, namespace, name
        self.folder = stage.folder / name
        self.folder.mkdir()
        self.pods = Pods(self.plane, namespace)
        self.path = f"{TRAININGS.format(namespace)}/{name}"

        def task(cpu, where, limited=False, **more):
            if idle:
                more["containers"] = [{"name": "tide", "command": IDLE}]
            return {"resources": amounts(cpu, limited), "template": {"spec": {**at(where), **more}}}
        self.plane.must("POST", TRAININGS.format(namespace), {
            "apiVersion": "threadtide.io/v1alpha1", "kind": "ElasticTrainingJob",
            "metadata": {"name": name}, "spec": {
                "image": IMAGE, "slots": 4,
                "command": IDLE if idle else [sys.executable, str(PROGRAM), "--pace",
                                              str(self.folder / "pace"), "--log", str(self.folder / "log")],
                "checkpoint": {"path": str(self.folder / "checkpoints"), "intervalSeconds": 1},
                "chief": task("200m", home or pool), "ps": task("100m", pool, **(nodes or {})),
                "workers": {"min": count[0], "max": count[1],
                            **task(worker, pool, True, **(nodes or {}),
                                   **({"affinity": place} if place else {})), **(workers or {})},
                **spec}})

    # ---- what it is told, and what it says ----

    def may_go(self, epoch, **more):
        """@more: see train.py."""
        with open(self.folder / "pace", "a", encoding="utf-8") as file:
            print(json.dumps({"epoch": epoch, **more}), file=file)

    def end(self):
        """After the next epoch."""
        self.may_go(min(self.epoch() + 1, MOST), end=True)
        self.until(lambda: self.status().get("phase") == "Succeeded")
        assert "end" in self.log()[-1]

    def log(self):
        path = self.folder / "log"
        return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []

    def resumed(self):
        """The steps after which its chiefs began, one after the other."""
        return [line["resumes_after"] for line in self.log() if "resumes_after" in line]

    def results(self):
        """{epoch: all that was ever said of it}."""
        found = {}
        for line in self.log():
            if "digest" in line:
                found.setdefault(line["epoch"], []).append((line["loss"], line["digest"]))
                assert line["seen"] == [line["epoch"]], "each example counts once an epoch"
        return found

    def epoch(self):
        return max(self.results(), default=0)

    def saved(self):
        """The step that the last checkpoint was made after."""
        return max((int(re.search(r"step-(\d+)\.tide$", p.name)[1])
                    for p in (self.folder / "checkpoints").glob("step-*.tide")), default=0)

    # ---- its objects ----

    def status(self):
        return self.plane.must("GET", self.path).get("status", {})

    def condition(self, kind):
        return next((c for c in self.status().get("conditions", ()) if c["type"] == kind), {})

    def events(self):
        items = self.plane.must("GET", f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")["items"]
        return [e["reason"] for e in items if e["regarding"]["name"] == self.name]

    def here(self, role):
        """{name: pod} of those that are not on their way out."""
        items = self.plane.must("GET", f"{self.pods.path}?labelSelector=threadtide.io/job%3D{self.name},"
                                       f"threadtide.io/role%3D{role}")["items"]
        return {p["metadata"]["name"]: p for p in items if "deletionTimestamp" not in p["metadata"]}

    def chief(self):
        found = self.here("chief").get(f"{self.name}-chief")
        return found and found["metadata"]["uid"]

    def kill(self, name):
        """kill -9 of what runs in the pod."""
        run = self.stage.runner_of(self.pods.get(name)).run_of(name)
        run.container.signal(signal.SIGKILL)

    def tell(self):
        """Prints what helps to understand it, when something did not come to be."""
        for node in self.stage.nodes.values():
            for run in list(node.pods.values()):
                print(f"---- {run.name}", *(p.read_text(errors="replace")[-2500:]
                                            for p in run.folder.glob("*.log")), sep="\n")
        print(self.stage.controller.log.read_text()[-3000:], json.dumps(self.status(), indent=1),
              kubectl(self.plane, self.namespace, "explain", self.name)[1], *self.resizes(), sep="\n")

    def resizes(self):
        """Yields what each pod of the namespace is to have, what it has, what kubelet says about it; and the events."""
        for pod in self.plane.must("GET", self.pods.path)["items"]:
            yield json.dumps({
                "pod": pod["metadata"]["name"], "phase": pod["status"].get("phase"),
                "going": pod["metadata"].get("deletionTimestamp"),
                "wanted": [c.get("resources") for c in pod["spec"]["containers"]],
                "actual": [c.get("resources") for c in pod["status"].get("containerStatuses", ())],
                "conditions": [c for c in pod["status"].get("conditions", ())
                               if c["type"].startswith("PodResize") or c["status"] != "True"]})
        for event in self.plane.must("GET", f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")["items"]:
            yield f"{event.get('eventTime')} {event['regarding'].get('name')} {event['reason']}: {event.get('note')}"

    def until(self, check, guard=SOON_S):
        try:
            return eventually(check, guard)
        except AssertionError:
            self.tell()
            raise

    def until_workers(self, count):
        self.until(lambda: self.status().get("workers", {}).get("ready") == count)

    def until_epoch(self, more, guard=SOON_S):
        """So many more than now."""
        goal = self.epoch() + more
        self.until(lambda: self.epoch() >= goal, guard)

    def remove(self):
        self.plane.api("PATCH", self.path, {"metadata": {"finalizers": []}})
        self.plane.api("DELETE", self.path)
