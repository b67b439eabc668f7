# SPDX-License-Identifier: Apache-2.0
"""Where the pods of trainings go on a real control plane, and when: zones, nodes with GPUs, queues of Kueue. The
test plays Kueue's part with a small definition of its Workload; Kueue itself: test_kueue.py, by hand."""
import pytest

from controller import TRAININGS, Controller, trains, with_nodes
from daemon import GUARD_S, eventually

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
QUEUE = {"kueue.x-k8s.io/queue-name": "team"}
ZONE = "topology.kubernetes.io/zone"


@pytest.fixture(scope="module")
def cluster(plane):
    """Zone a with a node of two cores, zone b with two, and a large node with GPUs in b."""
    yield from with_nodes(plane, {"count": 1, "cpu": "2", "prefix": "zone-a-", "labels": {ZONE: "a"}},
                          {"count": 2, "cpu": "2", "prefix": "zone-b-", "labels": {ZONE: "b"}},
                          {"count": 1, "cpu": "32", "prefix": "gpu-", "labels": {ZONE: "b"}, "more": {"nvidia.com/gpu": "4"}})


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
    yield from trains(cluster, namespace)


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


def test_a_queue_that_nobody_serves_holds_nobody_up(cluster, namespace, start, train):
    """Without Kueue its label means nothing."""
    train([start()], labels=QUEUE)
    until_ready(cluster, namespace, 4)


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


# ---- queues ----

def definition(kind, plural, scope, **schema):
    """As far as tide-kube reads and writes such an object."""
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.kueue.x-k8s.io", "annotations": {
                "api-approved.kubernetes.io": "unapproved, a test's"}},
            "spec": {"group": "kueue.x-k8s.io", "scope": scope,
                     "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
                     "versions": [{"name": "v1beta2", "served": True, "storage": True, **schema}]}}


FREE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
ANY = {"schema": {"openAPIV3Schema": FREE}}
DEFINITIONS = [
    definition("Workload", "workloads", "Namespaced", subresources={"status": {}}, schema={"openAPIV3Schema": {
        "type": "object", "properties": {
            "spec": {"type": "object", "required": ["podSets"], "x-kubernetes-preserve-unknown-fields": True,
                     "properties": {"active": {"type": "boolean", "default": True}, "queueName": {"type": "string"},
                                    "priority": {"type": "integer"}}},
            "status": FREE}}}),
    definition("ResourceFlavor", "resourceflavors", "Cluster", **ANY),
    definition("WorkloadPriorityClass", "workloadpriorityclasses", "Cluster", **ANY)]


@pytest.fixture(scope="module")
def kueue(cluster):
    """Kueue's objects, without Kueue."""
    for one in DEFINITIONS:
        cluster.must("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", one)
    eventually(lambda: all(cluster.api("GET", f"{KUEUE}/{one['spec']['names']['plural']}")[0] == 200
                           for one in DEFINITIONS))
    cluster.must("POST", f"{KUEUE}/resourceflavors", {
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "zone-b"},
        "spec": {"nodeLabels": {ZONE: "b"}, "tolerations": [{"key": "spot", "operator": "Exists"}]}})
    yield cluster
    for one in DEFINITIONS:
        cluster.must("DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + one["metadata"]["name"])


class Workload:
    """The one of a namespace, and what Kueue says of it."""

    def __init__(self, plane, namespace):
        self.plane, self.path = plane, f"{KUEUE}/namespaces/{namespace}/workloads"

    def get(self):
        items = self.plane.must("GET", self.path)["items"]
        return items[0] if items else None

    def conditions(self):
        return {c["type"]: c["status"] for c in self.get().get("status", {}).get("conditions", ())}

    def say(self, conditions, **status):
        """@conditions: {type: (status, reason)}, over those that there are."""
        now = self.get()
        kept = [c for c in now.get("status", {}).get("conditions", ()) if c["type"] not in conditions]
        made = [{"type": kind, "status": truth, "reason": reason, "message": "the test says so",
                 "lastTransitionTime": "2026-01-01T00:00:00Z"} for kind, (truth, reason) in conditions.items()]
        self.plane.must("PATCH", f"{self.path}/{now['metadata']['name']}/status",
                        {"status": {"conditions": kept + made, **status}})

    def admit(self, workers):
        flavors = {"cpu": "zone-b", "memory": "zone-b"}
        self.say({"QuotaReserved": ("True", "Reserved"), "Admitted": ("True", "Admitted"),
                  "Evicted": ("False", "Reserved")},
                 admission={"clusterQueue": "all", "podSetAssignments": [
                     {"name": name, "count": count, "flavors": flavors}
                     for name, count in (("chief", 1), ("ps", 1), ("worker", workers))]})


def reason(plane, namespace):
    return {c["type"]: c["reason"] for c in status(plane, namespace).get("conditions", ())}.get("Suspended")


def test_a_training_waits_for_its_queue_and_obeys_it(kueue, namespace, start, train):
    """It waits, runs with as many workers as were admitted, on the nodes of the flavor, is evicted, and ends."""
    controller = start()
    chief = train([controller], labels=QUEUE, gpuNodes="use")
    work = Workload(kueue, namespace)
    made = eventually(work.get)
    assert made["spec"]["queueName"] == "team" and made["metadata"]["ownerReferences"][0]["kind"] == (
        "ElasticTrainingJob")
    assert [(s["name"], s["count"], s.get("minCount")) for s in made["spec"]["podSets"]] == [
        ("chief", 1, None), ("ps", 1, None), ("worker", 4, 1)]
    eventually(lambda: reason(kueue, namespace) == "Queued")
    assert not pods(kueue, namespace)
    work.admit(2)
    until_ready(kueue, namespace, 2)
    eventually(lambda: work.conditions().get("PodsReady") == "True")
    assert not [node for node in nodes_of(kueue, namespace).values() if node not in ("zone-b", "gpu")]
    worker = pods(kueue, namespace)["job-worker-0"]["spec"]
    assert worker["nodeSelector"] == {ZONE: "b"} and "spot" in [t.get("key") for t in worker["tolerations"]]
    work.say({"Evicted": ("True", "Preempted")})
    eventually(lambda: work.conditions()["QuotaReserved"] == "False", 2 * GUARD_S)
    assert not pods(kueue, namespace) and "admission" not in work.get()["status"]
    assert work.conditions()["Requeued"] == "True" and reason(kueue, namespace) == "Evicted"
    work.admit(3)
    until_ready(kueue, namespace, 3)
    chief.finished = True
    kueue.must("PATCH", f"/api/v1/namespaces/{namespace}/pods/job-chief/status", {"status": {"phase": "Succeeded"}})
    eventually(lambda: work.conditions().get("Finished") == "True", 2 * GUARD_S)
    kueue.must("DELETE", f"{TRAININGS.format(namespace)}/job")
    eventually(lambda: work.get() is None)  # goes with its training
