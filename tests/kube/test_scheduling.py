# SPDX-License-Identifier: Apache-2.0
"""Where the pods of trainings go on a real control plane: zones, nodes with GPUs."""
import pytest

import kwok
from controller import TRAININGS, Chief, Controller, install, training
from daemon import GUARD_S, eventually

ZONE = "topology.kubernetes.io/zone"


@pytest.fixture(scope="module")
def cluster(plane):
    """Zone a with a node of two cores, zone b with two, and a large node with GPUs in b."""
    install(plane)
    nodes = kwok.Kwok(plane).start()
    try:
        nodes.nodes(1, cpu="2", prefix="zone-a-", labels={ZONE: "a"})
        nodes.nodes(2, cpu="2", prefix="zone-b-", labels={ZONE: "b"})
        nodes.nodes(1, cpu="32", prefix="gpu-", labels={ZONE: "b"}, more={"nvidia.com/gpu": "4"})
        yield plane
    finally:
        nodes.end()


@pytest.fixture
def start(cluster):
    """start(…): a controller, ended afterwards. No right is missing."""
    running = []

    def begin(*options):
        running.append(Controller(cluster, *options))
        return running[-1].start()
    yield begin
    for one in running:
        one.end()
        assert '" cannot ' not in one.log.read_text(), one.log.read_text()


@pytest.fixture
def train(cluster, namespace):
    """train(controllers, name, …): a training and its chief; deleted afterwards."""
    chiefs = []

    def begin(controllers, name="job", labels=None, **spec):
        made = training(name, **spec)
        made["metadata"]["labels"] = labels or {}
        cluster.must("POST", TRAININGS.format(namespace), made)
        chiefs.append(Chief(cluster, namespace, name, controllers))
        return chiefs[-1]
    yield begin
    for chief in chiefs:
        path = f"{TRAININGS.format(namespace)}/{chief.job}"
        cluster.api("PATCH", path, {"metadata": {"finalizers": []}})
        cluster.api("DELETE", path)
        chief.end()


def status(plane, namespace, name="job"):
    return plane.must("GET", f"{TRAININGS.format(namespace)}/{name}").get("status", {})


def until_ready(plane, namespace, count, name="job"):
    eventually(lambda: status(plane, namespace, name).get("workers", {}).get("ready") == count, 2 * GUARD_S)


def pods(plane, namespace):
    """Those that are not on their way out, by name."""
    items = plane.must("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    return {i["metadata"]["name"]: i for i in items if "deletionTimestamp" not in i["metadata"]}


def nodes_of(plane, namespace):
    """{pod: the node's name without its number}"""
    return {name: pod["spec"].get("nodeName", "")[:-2] for name, pod in pods(plane, namespace).items()}


def test_a_training_stays_in_one_zone_and_off_gpus(cluster, namespace, start, train):
    """Two nodes of two cores hold two workers beside chief and server: a third would have to leave the
    zone, or to come to the node with GPUs."""
    controller = start()
    train([controller], topology={"key": ZONE, "mode": "require"})
    until_ready(cluster, namespace, 2)
    assert set(nodes_of(cluster, namespace).values()) == {"zone-b"}
    assert "Withdrawn" not in str(cluster.must("GET", f"/api/v1/namespaces/{namespace}/events"))


def test_a_training_may_use_nodes_with_gpus(cluster, namespace, start, train):
    train([start()], topology={"key": ZONE}, gpuNodes="use")
    until_ready(cluster, namespace, 4)
    assert "gpu" in nodes_of(cluster, namespace).values()


def test_resources_that_count_as_gpus_are_an_option(cluster, namespace, start, train):
    train([start("--gpus=example.com/tpu")], workers={
        "min": 4, "max": 4, "resources": {"requests": {"cpu": "3", "memory": "64Mi"}}})
    until_ready(cluster, namespace, 4)
    assert nodes_of(cluster, namespace)["job-worker-0"] == "gpu"
