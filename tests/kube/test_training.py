# SPDX-License-Identifier: Apache-2.0
"""Trainings with real TensorFlow (train.py), in pods of the runner and steered by tide-kube on the
real control plane: they grow, give back, are paused, lose what they have, and end as one that nobody
touched. As root."""
import json
import os
import pathlib
import re
import signal
import sys

import pytest

from controller import BUILD, ROOT, TRAININGS, Controller, install, kubectl
from daemon import eventually
from objects import Pods

PROGRAM = pathlib.Path(__file__).with_name("train.py")
IMAGE = "local/tensorflow"
SOON_S = 120  # TensorFlow starts on a busy machine
MOST = 40     # epochs of the training that nobody touches, with which others are compared
IDLE = ["sleep", "1000"]


class Stage:
    """Nodes, tide-kube, and trainings in folders of their own."""

    def __init__(self, plane, make_runner, gateway, folder):
        self.plane, self.make_runner, self.gateway, self.folder = plane, make_runner, gateway, folder
        virtual = pathlib.Path(sys.executable).parent.parent
        self.environment = {"PATH": f"{BUILD}:{virtual}/bin:{os.environ['PATH']}",
                            "VIRTUAL_ENV": str(virtual), "PYTHONPATH": str(ROOT / "python"),
                            "TF_CPP_MIN_LOG_LEVEL": "2", "OMP_NUM_THREADS": "1"}
        self.nodes = {}
        self.controller = Controller(plane, "--node-lost=2s", "--silent=8s", "--pending=7s",
                                     listen=gateway)

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
    @pool: of its nodes, @home: of its chief. @idle: nothing of it trains. @place: of its workers."""

    def __init__(self, stage, namespace, name, pool, home=None, worker="250m", count=(1, 1), idle=False,
                 place=None, **spec):
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
                "chief": task("200m", home or pool), "ps": task("100m", pool),
                "workers": {"min": count[0], "max": count[1],
                            **task(worker, pool, True, **({"affinity": place} if place else {}))},
                **spec}})

    # ---- what it is told, and what it says ----

    def may_go(self, epoch, **end):
        with open(self.folder / "pace", "a", encoding="utf-8") as file:
            print(json.dumps({"epoch": epoch, **end}), file=file)

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

    def until(self, check):
        """What helps to understand it, when it does not come to be."""
        try:
            return eventually(check, SOON_S)
        except AssertionError:
            for node in self.stage.nodes.values():
                for run in list(node.pods.values()):
                    print(f"---- {run.name}", *(p.read_text(errors="replace")[-2500:]
                                                for p in run.folder.glob("*.log")), sep="\n")
            print(self.stage.controller.log.read_text()[-3000:], json.dumps(self.status(), indent=1),
                  sep="\n")
            raise

    def until_workers(self, count):
        self.until(lambda: self.status().get("workers", {}).get("ready") == count)

    def until_epoch(self, more):
        """So many more than now."""
        goal = self.epoch() + more
        self.until(lambda: self.epoch() >= goal)

    def remove(self):
        self.plane.api("PATCH", self.path, {"metadata": {"finalizers": []}})
        self.plane.api("DELETE", self.path)


@pytest.fixture(scope="module")
def stage(plane, pod_network, make_runner, tmp_path_factory):
    install(plane)
    result = Stage(plane, make_runner, pod_network.gateway, tmp_path_factory.mktemp("trainings"))
    try:
        result.controller.start()
        result.node("own-1", "900m")   # for chief, server, worker: 350m are left
        result.node("calm-1", "2")
        yield result
    finally:
        result.controller.end()
    assert "403" not in result.controller.log.read_text(), result.controller.log.read_text()


@pytest.fixture(scope="module")
def calm(stage):
    """A training of a fixed size, with a whole core, that nobody touches: all others are as it is."""
    job = Job(stage, "default", "calm", "calm", worker="1")
    job.may_go(MOST, end=True)
    yield job
    job.remove()


@pytest.fixture
def train(stage, namespace):
    made = []

    def begin(*args, **more):
        made.append(Job(stage, namespace, *args, **more))
        return made[-1]
    yield begin
    for job in made:
        job.remove()


def compare(job, calm):
    """Whatever was done twice was the same, and the same as in the other."""
    calm.until(lambda: calm.status().get("phase") == "Succeeded")
    there, here = calm.results(), job.results()
    assert len(there) == MOST and len(here) >= 3
    for epoch, said in here.items():
        assert set(said) == set(there[epoch]), f"epoch {epoch}"


def test_a_training_grows_gives_back_and_has_the_static_ones_result(plane, stage, namespace, calm, train):
    pods = Pods(plane, namespace)
    pods.make("other", "sleep", "1000", cpu="300m", container={"image": IMAGE}, **at("own"))
    pods.until("other", "Running")
    job = train("grows", "own", count=(1, 2))
    job.may_go(MOST - 1)
    job.until_workers(1)
    job.until_epoch(1)
    chief = job.chief()
    assert re.search(r"grows +Running +sync +1/1 \(1-1\) +1/1 \(1-2\)", kubectl(plane, namespace, "status")[1])
    assert "grows-worker-0" in kubectl(plane, namespace, "explain", "grows")[1]
    pods.delete("other")
    job.until_workers(2)
    pods.make("guest", "sleep", "1000", cpu="300m", container={"image": IMAGE}, **at("own"))
    pods.until("guest", "Running")
    job.until_workers(1)
    assert "GaveWay" in job.events()
    pods.delete("guest")
    assert kubectl(plane, namespace, "scale", "grows", "2")[0] == 0
    job.until_workers(2)
    assert "is pinned to 2" in kubectl(plane, namespace, "explain", "grows")[1]
    killed = sorted(job.here("worker"))[-1]
    job.kill(killed)
    job.until(lambda: len(job.here("worker")) == 2 and killed not in job.here("worker"))
    job.until_workers(2)
    job.end()
    assert job.chief() == chief and job.resumed() == [0] and job.status().get("restarts", 0) == 0
    compare(job, calm)


def no_one(job):
    return not (job.here("chief") or job.here("ps") or job.here("worker"))


def test_a_training_is_paused_and_loses_what_it_has_and_goes_on(plane, stage, namespace, calm, train):
    lost = stage.node("away-1", "1")
    job = train("suffers", "away", home="calm")
    job.may_go(MOST - 1)
    job.until(lambda: job.epoch() >= 2)
    # Paused, it gives everything back, and goes on where it was.
    assert kubectl(plane, namespace, "pause", "suffers")[0] == 0
    job.until(lambda: job.status()["phase"] == "Suspended")
    assert no_one(job) and "Suspended" in job.events()
    steps = job.saved()
    assert steps >= 4 * job.epoch()
    assert kubectl(plane, namespace, "resume", "suffers")[0] == 0
    job.until(lambda: job.resumed() == [0, steps])
    job.until_epoch(2)
    # A parameter server dies: the chief goes back to its checkpoint.
    chief, steps = job.chief(), job.saved()
    job.kill(*job.here("ps"))
    job.until(lambda: "suffers-ps-2" in job.here("ps"))
    job.until_epoch(2)
    assert job.chief() == chief
    # The chief dies: another one goes back to the checkpoint.
    steps = job.saved()
    job.kill("suffers-chief")
    job.until(lambda: len(job.resumed()) == 3 and job.resumed()[-1] >= steps)
    job.until_epoch(1)
    assert job.chief() != chief and job.status()["restarts"] == 1
    # The node dies, with all but the chief.
    chief = job.chief()
    before = job.here("ps").keys() | job.here("worker").keys()
    stage.node("away-2", "1")
    lost.kill()
    plane.must("PATCH", "/api/v1/nodes/away-1/status", {"status": {"conditions": [
        {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}},
        "application/strategic-merge-patch+json")
    job.until(lambda: job.here("ps") and job.here("worker") and
              before.isdisjoint(job.here("ps").keys() | job.here("worker").keys()))
    job.until_epoch(2)
    assert job.chief() == chief
    job.end()
    compare(job, calm)


def test_trainings_that_cannot_run_say_why_and_harm_nobody(plane, stage, namespace, calm, train):
    """Beside one that trains: without room, without an image, without a report, and with a worker that
    only the scheduler knows to have no place."""
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
        "labelSelector": {"matchLabels": {"threadtide.io/role": "worker"}},
        "topologyKey": "kubernetes.io/hostname"}]}}
    stage.node("odd-1", "2")
    job = train("works", "calm")
    job.may_go(MOST - 1)
    large = train("large", "odd", worker="3")
    absent = train("absent", "odd", idle=True, image="nowhere/absent:1")
    mute = train("mute", "odd", idle=True)
    lonely = train("lonely", "odd", worker="100m", count=(2, 2), idle=True, place=apart)

    def is_said(of, kind, reason, status="True"):
        of.until(lambda: (of.condition(kind).get("reason"), of.condition(kind).get("status")) ==
                 (reason, status))
    is_said(absent, "Degraded", "ImageUnavailable")
    assert "nowhere/absent:1" in absent.condition("Degraded")["message"]
    is_said(mute, "Progressing", "NeverReported", "False")
    is_said(lonely, "Degraded", "Unschedulable")
    assert large.status()["phase"] == "Pending" and not large.here("chief")
    assert large.status()["reason"] == "NoRoom"
    job.until_epoch(2)
    job.end()
    assert job.resumed() == [0] and not absent.status().get("restarts")
    compare(job, calm)
