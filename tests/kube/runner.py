# SPDX-License-Identifier: Apache-2.0
"""A node of the test's own, which is NOT kubelet: it behaves like one towards the API server, and runs
the commands of the pods bound to it as local processes, without images. As root.

As with kubelet: identity and rights of a node; lease and Ready condition; every pod a network
namespace with its own address, every container process 1 of a PID namespace (a SIGTERM without a
handler does nothing) with its volumes mounted where only it sees them; environment, downward API,
projected tokens that are renewed; init containers, restarts, readiness, liveness and startup probes;
SIGTERM, grace, SIGKILL; quota and shares of the processor; in-place resize, refused when it can never
be (Infeasible) or put off when there is no room now (Deferred).

Otherwise: a container's root is this machine's; images are names (see @images); memory is counted,
not limited; back-off between restarts is short; no logs, exec or port-forward through the API:
runner.log() reads what a container has printed. Services have no addresses and no DNS: @hosts are
names that pods find in /etc/hosts.
"""
import datetime
import threading

import container
import podspec
from daemon import GUARD_S, eventually
from pod import UNREACHABLE, PodRun, now_text
from scratch import Scratch

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
LEASE_S, RENEW_S = 40, 10
API_S = 5  # a server that does not answer does not hold a pod up for longer


class Runner:
    """@network: a PodNetwork, one for all nodes of a test. @images: those that can be had, None means
    all. @environment: what every image would set, say PYTHONPATH. @hosts: {name: address}. @period_us:
    of quotas, kubelet's cpuCFSQuotaPeriod."""

    def __init__(self, plane, network, name, cpu="4", memory="8Gi", images=None, environment=None,
                 hosts=None, labels=None, period_us=container.PERIOD_US):
        self.plane, self.network, self.name = plane, network, name
        self.allocatable = {"cpu": cpu, "memory": memory, "pods": "110"}
        self.images, self.environment, self.hosts = images, environment or {}, hosts or {}
        self.labels, self.backoff_s, self.period_us = labels or {}, 0.5, period_us
        self.client = plane.client(f"system:node:{name}", ("system:nodes",), timeout=API_S)
        self.scratch = Scratch("tide-pods-", lambda path: [container.CPU / path.name])
        self.folder, self.group = self.scratch.path, self.scratch.path.name  # of files, control groups
        self.pods, self.lock, self.said = {}, threading.Lock(), []
        self.ended, self.watching = threading.Event(), None

    # ---- the node ----

    def start(self):
        """Returns when the node is Ready."""
        labels = {"kubernetes.io/hostname": self.name, "kubernetes.io/os": "linux",
                  "kubernetes.io/arch": "amd64", **self.labels}
        status = {"capacity": self.allocatable, "allocatable": self.allocatable,
                  "addresses": [{"type": "InternalIP", "address": self.network.gateway},
                                {"type": "Hostname", "address": self.name}]}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name, "labels": labels},
                "status": status}
        self.client.must("POST", "/api/v1/nodes", node)
        self.beat()
        for task in (self.follow, self.keep_beating):
            threading.Thread(target=task, daemon=True).start()
        eventually(lambda: "node.kubernetes.io/not-ready" not in str(
            self.plane.must("GET", f"/api/v1/nodes/{self.name}")["spec"].get("taints", "")))
        return self

    def beat(self):
        """Lease and condition."""
        micro = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                 "metadata": {"name": self.name, "namespace": "kube-node-lease"},
                 "spec": {"holderIdentity": self.name, "leaseDurationSeconds": LEASE_S,
                          "renewTime": micro}}
        if self.client.api("PATCH", f"{LEASES}/{self.name}", {"spec": lease["spec"]})[0] == 404:
            self.client.api("POST", LEASES, lease)
        self.client.api("PATCH", f"/api/v1/nodes/{self.name}/status", {"status": {"conditions": [{
            "type": "Ready", "status": "True", "reason": "RunnerReady", "message": "",
            "lastHeartbeatTime": now_text(), "lastTransitionTime": now_text()}]}},
            "application/strategic-merge-patch+json")

    def keep_beating(self):
        while not self.ended.wait(RENEW_S):
            try:
                self.beat()
            except UNREACHABLE:
                pass

    def follow(self):
        """List and watch of the node's pods, for as long as the node lives."""
        path = f"/api/v1/pods?fieldSelector=spec.nodeName%3D{self.name}"
        while not self.ended.is_set():
            try:
                status, answer = self.client.api("GET", path)
                if status == 200:
                    found = {pod["metadata"]["uid"]: pod for pod in answer["items"]}
                    for uid in self.pods.keys() - found.keys():
                        self.hear({"type": "DELETED", "object": self.pods[uid].pod})
                    for pod in found.values():
                        self.hear({"type": "ADDED", "object": pod})
                    version = answer["metadata"]["resourceVersion"]
                    for event in self.client.watch(f"{path}&resourceVersion={version}", 300):
                        if self.ended.is_set() or event["type"] == "ERROR":
                            break
                        self.hear(event)
            except (AssertionError, ValueError, *UNREACHABLE):
                pass  # again, from a new list
            self.ended.wait(0.2)

    def hear(self, event):
        pod = event["object"]
        with self.lock:
            known = self.pods.get(pod["metadata"]["uid"])
            if known and event["type"] == "DELETED":
                known.vanish()
            elif known:
                known.update(pod)
            elif event["type"] != "DELETED" and not self.ended.is_set():
                self.pods[pod["metadata"]["uid"]] = started = PodRun(self, pod)
                started.thread.start()

    # ---- for its pods ----

    def forget(self, pod_run):
        with self.lock:
            self.pods.pop(pod_run.uid, None)

    def judge(self, pod_run, requests):
        """(reason, message) why a pod's requests cannot become these, or (None, None)."""
        with self.lock:
            others = [run.requests for run in self.pods.values()
                      if run is not pod_run and not run.over()]
        for name, amount in requests.items():
            parse = podspec.mcpu if name == "cpu" else podspec.size_bytes
            capacity, used = parse(self.allocatable[name]), sum(other[name] for other in others)
            if amount > capacity:
                return "Infeasible", (f"Node didn't have enough capacity: {name}, "
                                      f"requested: {amount}, capacity: {capacity}")
            if amount + used > capacity:
                return "Deferred", (f"Node didn't have enough resource: {name}, "
                                    f"requested: {amount}, used: {used}, capacity: {capacity}")
        return None, None

    def say(self, text):
        """For whoever looks for the reason of a failure."""
        self.said.append(text)

    # ---- for tests ----

    def run_of(self, name, container_name=None):
        """The Run of a pod's container, by default its first: .container.pid, .signal(), .kill()."""
        with self.lock:
            pod_run = next((run for run in self.pods.values() if run.name == name), None)
        assert pod_run, f"no pod {name} is on {self.name}"
        return pod_run.runs[container_name or next(iter(pod_run.runs))]

    def log(self, name, container_name=None):
        """Returns the output of a container of a pod that is there."""
        run = self.run_of(name, container_name)
        path = run.pod_run.folder / f"{run.name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def kill(self):
        """The machine loses power: its processes are gone, and nobody is told."""
        self.ended.set()
        with self.lock:
            pods = list(self.pods.values())
        for run in pods:
            run.drop()
        for run in pods:
            run.thread.join(GUARD_S)

    def end(self):
        self.kill()
        try:
            self.plane.api("DELETE", f"/api/v1/nodes/{self.name}")
        except UNREACHABLE:
            pass  # a test that has ended the API server
        self.scratch.end()
