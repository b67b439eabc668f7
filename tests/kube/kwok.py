# SPDX-License-Identifier: Apache-2.0
"""Simulated nodes and pods, by hundreds and thousands: KWOK (Kubernetes WithOut Kubelet), which writes
to the API server what kubelets would, and runs nothing. It manages the nodes with its annotation; the
stages below say what becomes of them and of pods on them."""
import concurrent.futures
import json

from control_plane import Program
from daemon import eventually

ANNOTATION = "kwok.x-k8s.io/node"
RUNS_FOR = "threadtide.io/test-runs-for"   # a pod's annotation: it succeeds after so long ("3s")
WRITERS = 8
NODE_READY = """
conditions:
- lastHeartbeatTime: {{ Now | Quote }}
  lastTransitionTime: {{ .metadata.creationTimestamp | Quote }}
  message: ""
  reason: KwokReady
  status: "True"
  type: Ready
addresses:
- {type: InternalIP, address: {{ NodeIP | Quote }}}
- {type: Hostname, address: {{ NodeName | Quote }}}
"""
POD_READY = """
{{ $now := Now }}
conditions:
{{ range (list "Initialized" "Ready" "ContainersReady") }}
- {type: {{ . | Quote }}, status: "True", lastTransitionTime: {{ $now | Quote }}}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: true
  restartCount: 0
  started: true
  state: {running: {startedAt: {{ $now | Quote }}}}
{{ end }}
{{ with NodeIPsWith .spec.nodeName }}
hostIP: {{ index . 0 | Quote }}
{{ end }}
{{ with PodIPsWith .spec.nodeName ( or .spec.hostNetwork false ) .metadata.uid .metadata.name .metadata.namespace }}
podIP: {{ index . 0 | Quote }}
podIPs: [{ip: {{ index . 0 | Quote }}}]
{{ end }}
phase: Running
startTime: {{ $now | Quote }}
"""
POD_COMPLETE = """
{{ $now := Now }}
conditions:
{{ range (list "Ready" "ContainersReady") }}
- {type: {{ . | Quote }}, status: "False", reason: PodCompleted, lastTransitionTime: {{ $now | Quote }}}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: false
  restartCount: 0
  started: false
  state: {terminated: {exitCode: 0, reason: Completed, finishedAt: {{ $now | Quote }}}}
{{ end }}
phase: Succeeded
"""


def exists(key):
    return {"key": key, "operator": "Exists"}


def absent(key):
    return {"key": key, "operator": "DoesNotExist"}


def equals(key, value):
    return {"key": key, "operator": "In", "values": [value]}


def stage(name, kind, selector, following, **more):
    return {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": name},
            "spec": {"resourceRef": {"apiGroup": "v1", "kind": kind},
                     "selector": {"matchExpressions": selector}, "next": following, **more}}


def status(template):
    return {"statusTemplate": template}


STAGES = [
    stage("node-ready", "Node", [
        {"key": '.status.conditions.[] | select( .type == "Ready" ) | .status',
         "operator": "NotIn", "values": ["True"]}], status(NODE_READY)),
    stage("pod-ready", "Pod", [absent(".metadata.deletionTimestamp"), equals(".status.phase", "Pending")],
          status(POD_READY)),
    stage("pod-complete", "Pod", [
        absent(".metadata.deletionTimestamp"), equals(".status.phase", "Running"),
        exists(f'.metadata.annotations["{RUNS_FOR}"]')], status(POD_COMPLETE),
        delay={"durationMilliseconds": 1000,
               "durationFrom": {"expressionFrom": f'.metadata.annotations["{RUNS_FOR}"]'}}),
    stage("pod-delete", "Pod", [exists(".metadata.deletionTimestamp")],
          {"delete": True}),
]


class Kwok:
    """@lease_s: of the nodes' leases, which are their heartbeat."""

    def __init__(self, plane, lease_s=40):
        self.plane = plane
        port = plane.address.port()
        config = plane.folder / "kwok.yaml"
        # Several documents, of which JSON is one.
        config.write_text("\n---\n".join(json.dumps(entry) for entry in STAGES))
        self.program = Program(
            plane.folder, lambda: plane.answers(f"http://{plane.address.ip}:{port}", "/healthz"),
            "kwok", f"--kubeconfig={plane.kubeconfig()}", f"--config={config}",
            f"--manage-nodes-with-annotation-selector={ANNOTATION}=fake",
            f"--server-address={plane.address.ip}:{port}", f"--node-ip={plane.address.ip}",
            f"--node-lease-duration-seconds={lease_s}")
        self.made = []

    def start(self):
        self.program.start()
        return self

    def nodes(self, count, cpu="32", memory="256Gi", prefix="fake-", labels=None, more=None):
        """Makes so many, and waits until they are Ready and pods may come to them. @more: of other resources."""
        amounts = {"cpu": cpu, "memory": memory, "pods": "110", **(more or {})}
        names = [f"{prefix}{number}" for number in range(count)]

        def make(name):
            self.plane.must("POST", "/api/v1/nodes", {
                "metadata": {"name": name, "annotations": {ANNOTATION: "fake"},
                             "labels": {"kubernetes.io/hostname": name, "type": "fake", **(labels or {})}},
                "status": {"capacity": amounts, "allocatable": amounts}})
        self.made += names
        each(make, names)
        eventually(lambda: sum(self.ready(n) for n in self.plane.must(
            "GET", "/api/v1/nodes")["items"] if n["metadata"]["name"].startswith(prefix)) >= count, 120)
        return names

    @staticmethod
    def ready(node):
        conditions = {entry["type"]: entry["status"] for entry in node["status"].get("conditions", ())}
        return conditions.get("Ready") == "True" and not node["spec"].get("taints")

    def end(self):
        """With all nodes; their pods are left to whoever has made them."""
        each(lambda name: self.plane.api("DELETE", f"/api/v1/nodes/{name}"), self.made)
        self.program.kill()


def each(function, items):
    """Calls it for many objects in several threads: the API server's answers are what takes time."""
    with concurrent.futures.ThreadPoolExecutor(WRITERS) as pool:
        return list(pool.map(function, items))
