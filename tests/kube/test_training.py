# SPDX-License-Identifier: Apache-2.0
"""Trainings with real TensorFlow (train.py), in pods of the runner and steered by tide-kube on the
real control plane: they grow, give back, are paused, lose what they have, and end as one that nobody
touched. As root."""
import re

import pytest

from controller import install, kubectl
from objects import Pods
from trainings import IMAGE, MOST, Job, Stage, at


@pytest.fixture(scope="module")
def stage(plane, pod_network, make_runner, tmp_path_factory):
    install(plane)
    result = Stage(plane, make_runner, pod_network.gateway, tmp_path_factory.mktemp("trainings"),
                   "--node-lost=2s", "--silent=8s", "--pending=7s")
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


def started_larger(job, name):
    """The worker began with more cores, and has its usual ones, in its control group, too; its class stays."""
    def is_usual():
        pod, run = job.here("worker")[name], job.stage.runner_of(job.pods.get(name)).run_of(name)
        return pod["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "250m" == run.resources["limits"]["cpu"]
    job.until(is_usual)
    pod = job.here("worker")[name]
    assert pod["metadata"]["annotations"]["threadtide.io/start-cpu"] == "1"
    assert pod["status"]["qosClass"] == "Burstable"


def test_a_training_grows_gives_back_and_has_the_static_ones_result(plane, stage, namespace, calm, train):
    pods = Pods(plane, namespace)
    pods.make("other", "sleep", "1000", cpu="300m", container={"image": IMAGE}, **at("own"))
    pods.until("other", "Running")
    job = train("grows", "own", count=(1, 2), workers={"cpu": {"start": "1"}})
    job.may_go(MOST - 1)
    job.until_workers(1)
    job.until_epoch(1)
    started_larger(job, "grows-worker-0")
    chief = job.chief()
    assert re.search(r"grows +Running +sync +1/1 \(1-1\) +1/1 \(1-2\)", kubectl(plane, namespace, "status")[1])
    assert "grows-worker-0" in kubectl(plane, namespace, "explain", "grows")[1]
    pods.delete("other")
    job.until_workers(2)
    started_larger(job, "grows-worker-1")
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
    assert job.condition("Suspended")["status"] == "True"
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
