# SPDX-License-Identifier: Apache-2.0
"""Trainings in queues of Kueue itself, run by hand: `scripts/setup.sh kueue` builds it, and prints what TIDE_KUEUE has
to be: a folder with the program `kueue` and its definitions in `crd/`. Its webhook checks what tide-kube writes."""
import base64
import contextlib
import http.client
import json
import os
import pathlib
import subprocess

import pytest

from controller import TRAININGS, kubectl, with_nodes
from daemon import GUARD_S, eventually
from test_scheduling import (KUEUE, QUEUE, Workload, pods, reason, start, status,  # noqa: F401
                             train, until_ready)

TOOL = os.environ.get("TIDE_KUEUE")
pytestmark = pytest.mark.skipif(not TOOL, reason="by hand, with TIDE_KUEUE (HACKING.md)")
HOOK = "kueue-x-k8s-io-v1beta2-workload"
# It looks for its certificate of metrics at a path that nothing changes: an /etc of its own.
BEGIN = """mount -t tmpfs none /etc && mkdir -p /etc/kueue/metrics/certs && cp tls.crt tls.key /etc/kueue/metrics/certs/ &&
exec setpriv --pdeathsig KILL "$0" --config=config.json --feature-gates=VisibilityOnDemand=false"""
QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: fakes}
spec: {nodeLabels: {type: fake}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: all}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors:
    - name: fakes
      resources: [{name: cpu, nominalQuota: 2500m}, {name: memory, nominalQuota: 1Ti}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: urgent}
value: 1000
"""


@pytest.fixture(scope="module")
def cluster(plane):
    """Nodes enough: the queue's quota is what bounds."""
    yield from with_nodes(plane, {"count": 4, "cpu": "4", "prefix": "node-"})


@pytest.fixture(scope="module")
def kueue(cluster):
    """Its definitions, the webhook for Workloads, and itself with an administrator's rights."""
    cluster.kubectl("apply", "--server-side", *(word for path in sorted(pathlib.Path(TOOL, "crd").iterdir())
                                                for word in ("-f", str(path))))
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=50s")
    cluster.kubectl("create", "namespace", "kueue-system")
    folder = cluster.folder / "kueue"
    folder.mkdir()
    health, hook = cluster.address.port(), cluster.address.port()
    certificate, key = cluster.pki.issue("kueue", "kueue", hosts=[cluster.address.ip])
    (folder / "tls.crt").write_bytes(certificate.read_bytes())
    (folder / "tls.key").write_bytes(key.read_bytes())
    (folder / "config.json").write_text(json.dumps({
        "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "namespace": "kueue-system",
        "health": {"healthProbeBindAddress": f"{cluster.address.ip}:{health}"}, "metrics": {"bindAddress": "0"},
        "webhook": {"host": cluster.address.ip, "port": hook, "certDir": str(folder)},
        "leaderElection": {"leaderElect": False}, "internalCertManagement": {"enable": False},
        "waitForPodsReady": {"timeout": "5m", "blockAdmission": False},
        "integrations": {"frameworks": ["batch/job"]}}))
    log = folder / "log"
    with open(log, "wb") as out:
        process = subprocess.Popen(
            ["unshare", "--map-root-user", "--mount", "sh", "-c", BEGIN, f"{TOOL}/kueue"], stdout=out, stderr=out, cwd=folder,
            env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig()), "HOME": str(folder)})

    def serves():
        assert process.poll() is None, log.read_text()[-3000:]
        with contextlib.suppress(OSError):
            connection = http.client.HTTPConnection(cluster.address.ip, health, timeout=5)
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        return False
    try:
        eventually(serves, 120)
        rule = {"apiGroups": ["kueue.x-k8s.io"], "apiVersions": ["v1beta2"], "operations": ["CREATE", "UPDATE"],
                "resources": ["workloads", "workloads/status"]}
        for kind, plural, verb in (("Validating", "validatingwebhookconfigurations", "validate"),
                                   ("Mutating", "mutatingwebhookconfigurations", "mutate")):
            cluster.must("POST", f"/apis/admissionregistration.k8s.io/v1/{plural}", {
                "metadata": {"name": "kueue"}, "webhooks": [{
                    "name": "workload.kueue.x-k8s.io", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                    "rules": [rule if verb == "validate" else {**rule, "operations": ["CREATE"]}],
                    "failurePolicy": "Fail", "clientConfig": {
                        "url": f"https://{cluster.address.ip}:{hook}/{verb}-{HOOK}",
                        "caBundle": base64.b64encode(cluster.pki.ca.read_bytes()).decode()}}]})
        cluster.kubectl("apply", "--server-side", "-f", "-", input=QUEUES)
        yield cluster
    finally:
        process.kill()
        for plural in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
            cluster.api("DELETE", f"/apis/admissionregistration.k8s.io/v1/{plural}/kueue")
        print(log.read_text()[-6000:])


@pytest.fixture
def queue(kueue, namespace):
    kueue.must("POST", f"{KUEUE}/namespaces/{namespace}/localqueues", {
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "team"},
        "spec": {"clusterQueue": "all"}})
    return Workload(kueue, namespace)


def usage(plane):
    """Thousandths of a core that the queue has given out."""
    found = plane.must("GET", f"{KUEUE}/clusterqueues/all")["status"].get("flavorsReservation", ())
    text = next((r["total"] for f in found for r in f["resources"] if r["name"] == "cpu"), "0")
    return int(text[:-1]) if text.endswith("m") else 1000 * int(text)


def own(work):
    """The training's Workload: the Job has one, too."""
    return next((w for w in work.plane.must("GET", work.path)["items"] if w["metadata"]["name"].startswith("etj-")), None)


def test_a_training_is_admitted_in_part_pushed_out_and_comes_back(kueue, queue, namespace, start, train):  # noqa: F811
    queue.get = lambda: own(queue)
    chief = train([start()], labels=QUEUE)
    until_ready(kueue, namespace, 2)  # 2.5 cores: chief and server have 0.2
    eventually(lambda: usage(kueue) == 2200)
    eventually(lambda: queue.conditions().get("PodsReady") == "True")
    assert pods(kueue, namespace)["job-worker-0"]["spec"]["nodeSelector"] == {"type": "fake"}
    # A Job of Kueue's own kind, more urgent, pushes it out; nothing of it runs before its pods have gone.
    kueue.must("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", {
        "metadata": {"name": "rush", "labels": {**QUEUE, "kueue.x-k8s.io/priority-class": "urgent"}},
        "spec": {"suspend": True, "template": {"spec": {"restartPolicy": "Never", "containers": [{
            "name": "c", "image": "local/none",
            "resources": {"requests": {"cpu": "2", "memory": "64Mi"}}}]}}}})
    job = f"/apis/batch/v1/namespaces/{namespace}/jobs/rush"
    eventually(lambda: status(kueue, namespace).get("phase") == "Suspended", 2 * GUARD_S)
    eventually(lambda: not kueue.must("GET", job)["spec"]["suspend"], 2 * GUARD_S)
    eventually(lambda: usage(kueue) == 2000)  # told a moment later
    assert reason(kueue, namespace) in ("Evicted", "Queued")
    kueue.must("DELETE", job, {"propagationPolicy": "Background"})
    until_ready(kueue, namespace, 2)
    # A pause gives its quota back.
    assert kubectl(kueue, namespace, "pause", "job")[0] == 0
    eventually(lambda: usage(kueue) == 0, 2 * GUARD_S)
    assert reason(kueue, namespace) == "Suspended" and not pods(kueue, namespace)
    assert kubectl(kueue, namespace, "resume", "job")[0] == 0
    until_ready(kueue, namespace, 2)
    # A training that asks for less is queued anew.
    kueue.must("PATCH", f"{TRAININGS.format(namespace)}/job", {"spec": {"workers": {"max": 1}}})
    until_ready(kueue, namespace, 1)
    eventually(lambda: usage(kueue) == 1200)
    # It ends.
    chief.finished = True
    kueue.must("PATCH", f"/api/v1/namespaces/{namespace}/pods/job-chief/status", {"status": {"phase": "Succeeded"}})
    eventually(lambda: queue.conditions().get("Finished") == "True", 2 * GUARD_S)
    eventually(lambda: usage(kueue) == 0)


def test_a_queue_that_is_missing_is_named(kueue, namespace, start, train):  # noqa: F811
    train([start()], labels={"kueue.x-k8s.io/queue-name": "none"})
    eventually(lambda: "none" in status(kueue, namespace).get("message", "")
               and reason(kueue, namespace) == "Queued")
