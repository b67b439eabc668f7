# SPDX-License-Identifier: Apache-2.0
"""The runner does for pods what kubelet would: see runner.py for what it does not."""
import json
import os
import pathlib
import signal
import sys

import pytest

import container
from daemon import eventually
from objects import Pods

SERVER = """
import http.server, os, signal, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(500 if os.path.exists(f"/run/tide-switch/{self.path}") else 200)
        self.end_headers()
    log_message = print
signal.signal(signal.SIGTERM, lambda *_: (print("asked to end", flush=True), sys.exit(0)))
http.server.HTTPServer(("0.0.0.0", 8080), Handler).serve_forever()
"""
SWITCHED = {"volumes": [{"name": "switch", "emptyDir": {}}]}
MOUNTED = {"volumeMounts": [{"name": "switch", "mountPath": "/run/tide-switch"}]}
PROBE = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 1, "failureThreshold": 2}


@pytest.fixture(scope="module")
def node(make_runner):
    return make_runner("runner-a", cpu="2", memory="4Gi", images={"local/none"},
                       environment={"GIVEN": "by the image"})


@pytest.fixture
def pods(plane, namespace, node):
    return Pods(plane, namespace)


def tell(*names):
    """A program that prints these of its environment, its files, and who it is."""
    return [sys.executable, "-c", "import json, os, socket, sys\n"
            f"print(json.dumps(dict(pid=os.getpid(), host=socket.gethostname(), "
            f"env={{n: os.environ.get(n) for n in {names}}}, "
            "files={p: open(p).read() for p in sys.argv[1:]})))\nsys.exit(3)"]


def test_a_pod_has_its_environment_token_and_files_and_its_status_is_told(plane, namespace, pods, node):
    plane.must("POST", f"/api/v1/namespaces/{namespace}/configmaps", {
        "metadata": {"name": "settings"}, "data": {"colour": "blue"}})
    folder = "/var/run/tide-bed-test"
    env = [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
           {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a']"}}},
           {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
           {"name": "BOTH", "value": "$(POD_IP):$(GIVEN):$$(x)"}]
    sources = [{"serviceAccountToken": {"audience": "threadtide", "path": "token"}},
               {"configMap": {"name": "settings"}}]
    made = pods.make("tells", *tell("POD_IP", "LABEL", "CPUS", "BOTH"), f"{folder}/token",
                     f"{folder}/colour", "/etc/hosts", "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
                     container={"env": env, "volumeMounts": [
                         {"name": "ours", "mountPath": folder, "readOnly": True}]},
                     volumes=[{"name": "ours", "projected": {"sources": sources}}],
                     hostAliases=[{"ip": "192.0.2.7", "hostnames": ["elsewhere"]}])
    plane.must("PATCH", f"{pods.path}/tells", {"metadata": {"labels": {"a": "b"}}})
    status = pods.until("tells", "Failed")["status"]
    ended = status["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (3, "Error")
    told = json.loads(node.log("tells"))
    assert told["pid"] == 1 and told["host"] == "tells"
    ip = status["podIP"]
    assert told["env"].pop("LABEL") in ("b", "")  # it may have been set too late
    assert told["env"] == {"POD_IP": ip, "CPUS": "1", "BOTH": f"{ip}:by the image:$(x)"}
    token, colour, hosts, authority = told["files"].values()
    claims = plane.token_claims(token)
    assert claims["aud"] == ["threadtide"]
    assert claims["kubernetes.io"]["pod"]["uid"] == made["metadata"]["uid"]
    assert colour == "blue" and "192.0.2.7\telsewhere" in hosts
    assert authority == plane.pki.ca.read_text()
    assert not os.path.exists(folder), "what a pod has mounted is seen by it alone"


def test_probes_make_a_pod_ready_and_sigterm_ends_it_in_order(pods, node):
    pods.make("serves", sys.executable, "-c", SERVER, **SWITCHED,
              container={"readinessProbe": PROBE, **MOUNTED})
    pods.until_ready("serves")
    run = node.run_of("serves")
    switch = run.pod_run.volumes.paths["switch"] / "healthz"
    switch.touch()
    pods.until_ready("serves", False)
    switch.unlink()
    pods.until_ready("serves")
    log, pid = run.pod_run.folder / "main.log", run.container.pid
    pods.delete("serves")
    pods.until_gone("serves")
    assert "asked to end" in log.read_text() and not os.path.exists(f"/proc/{pid}")


def test_what_does_not_listen_to_sigterm_is_killed_after_the_grace(pods, node):
    pods.make("deaf", "sleep", "1000", terminationGracePeriodSeconds=1)
    pods.until_ready("deaf")
    pods.delete("deaf")
    pods.until_gone("deaf")


def namespace_of(folder):
    try:
        return os.readlink(folder / "ns/pid")
    except OSError:
        return None  # gone meanwhile


def test_a_container_that_is_killed_fails_and_its_children_end_with_it(pods, node):
    pods.make("dies", "sh", "-c", "sleep 1000 & exec sleep 1000")
    pods.until_ready("dies")
    run = node.run_of("dies")
    space = os.readlink(f"/proc/{run.container.pid}/ns/pid")

    def members():
        return [pid for pid in pathlib.Path("/proc").glob("[0-9]*") if namespace_of(pid) == space]
    eventually(lambda: len(members()) == 2)
    run.container.signal(signal.SIGKILL)
    status = pods.until("dies", "Failed")["status"]
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
    eventually(lambda: not members())


def test_a_container_that_is_no_longer_alive_is_started_again(pods, node):
    pods.make("ill", sys.executable, "-c", SERVER, restartPolicy="Always", **SWITCHED,
              container={"livenessProbe": PROBE, "startupProbe": {**PROBE, "failureThreshold": 60}, **MOUNTED})
    pods.until_ready("ill")  # answers; asked to end before it listens to signals, it would be killed
    first = node.run_of("ill").container
    switch = node.run_of("ill").pod_run.volumes.paths["switch"] / "healthz"
    switch.touch()
    eventually(lambda: pods.get("ill")["status"]["containerStatuses"][0]["restartCount"] == 1)
    switch.unlink()
    eventually(lambda: "running" in pods.state("ill"))
    last = pods.get("ill")["status"]["containerStatuses"][0]["lastState"]["terminated"]
    assert last["exitCode"] == 0 and node.run_of("ill").container is not first


def test_an_image_that_cannot_be_had_and_a_missing_volume_make_pods_wait(plane, namespace, pods):
    pods.make("no-image", container={"image": "nowhere/absent:1"})
    pods.make("no-map", volumes=[{"name": "v", "configMap": {"name": "later"}}])
    eventually(lambda: pods.state("no-image").get("waiting", {}).get("reason") == "ImagePullBackOff")
    eventually(lambda: "later" in (pods.condition("no-map", "Ready").get("message") or ""))
    plane.must("POST", f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": "later"}})
    pods.until("no-map", "Succeeded")


def test_a_resize_takes_force_without_a_restart_is_put_off_or_refused(pods, node):
    pods.make("small", "sleep", "1000", cpu="500m", terminationGracePeriodSeconds=0)
    pods.make("other", "sleep", "1000", cpu="1", terminationGracePeriodSeconds=0)
    pods.until_ready("small")
    pods.until_ready("other")
    run = node.run_of("small")
    pid = run.container.pid

    def in_force():
        return pods.get("small")["status"]["containerStatuses"][0]["resources"]["limits"]["cpu"]
    pods.resize("small", "900m")
    eventually(lambda: in_force() == "900m")
    eventually(lambda: not pods.condition("small", "PodResizeInProgress"))
    if container.has_cpu_groups():
        assert (run.group.path / "cpu.cfs_quota_us").read_text().strip() == "90000"
        assert str(pid) in run.group.procs.read_text().split()
    pods.resize("small", "3")
    eventually(lambda: pods.condition("small", "PodResizePending").get("reason") == "Infeasible")
    pods.resize("small", "1500m")
    eventually(lambda: pods.condition("small", "PodResizePending").get("reason") == "Deferred")
    assert in_force() == "900m"
    pods.delete("other")
    eventually(lambda: in_force() == "1500m")
    eventually(lambda: not pods.condition("small", "PodResizePending"))
    assert run.container.pid == pid


def test_pods_reach_each_other_and_this_machine_by_their_addresses(pods, node):
    for name in ("one", "two"):  # on the same port
        pods.make(name, sys.executable, "-c", SERVER, container={"readinessProbe": PROBE})
    pods.until_ready("one")
    pods.until_ready("two")
    ip = pods.get("one")["status"]["podIP"]
    assert ip != pods.get("two")["status"]["podIP"]
    pods.make("asks", sys.executable, "-c", "import urllib.request\n"
              f"print(urllib.request.urlopen('http://{ip}:8080/').status)")
    pods.until("asks", "Succeeded")
    assert node.log("asks").strip() == "200"


def test_a_node_that_dies_takes_its_processes_and_says_nothing(plane, namespace, make_runner):
    node, pods = make_runner("runner-b"), Pods(plane, namespace)
    pods.make("lost", "sleep", "1000", nodeName="runner-b")
    pods.until_ready("lost")
    pid = node.run_of("lost").container.pid
    node.kill()
    assert not os.path.exists(f"/proc/{pid}")
    assert pods.get("lost")["status"]["phase"] == "Running"
    plane.must("DELETE", f"{pods.path}/lost", {"gracePeriodSeconds": 0})
