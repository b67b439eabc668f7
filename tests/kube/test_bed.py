# SPDX-License-Identifier: Apache-2.0
"""The test bed itself: what the other tests of this folder rely on."""
import http.client
import json
import os
import subprocess
import sys
import time

import pytest

import control_plane
import fault_proxy
from control_plane import Client
from daemon import eventually
from kwok import RUNS_FOR
from objects import pod

CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: toys.test.threadtide.io}
spec:
  group: test.threadtide.io
  scope: Namespaced
  names: {plural: toys, singular: toy, kind: Toy}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {size: {type: integer, minimum: 1}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""


def through(proxy, plane, token=None):
    """A client that asks through the proxy: as admin, or with a token."""
    return Client(proxy.ip, proxy.port, plane.admin.make_context, token)


# ---- the control plane ----

def test_custom_resources_are_checked_by_their_schema(plane, namespace):
    plane.kubectl("apply", "-f", "-", input=CRD)
    path = f"/apis/test.threadtide.io/v1/namespaces/{namespace}/toys"
    eventually(lambda: plane.api("GET", path)[0] == 200)
    toy = {"apiVersion": "test.threadtide.io/v1", "kind": "Toy", "metadata": {"name": "a"}}
    assert plane.api("POST", path, {**toy, "spec": {"size": 0}})[0] == 422
    plane.must("POST", path, {**toy, "spec": {"size": 2}})
    plane.must("PATCH", f"{path}/a/status", {"status": {"seen": True}})
    assert "true" in plane.kubectl("get", "toy", "a", "-n", namespace, "-o", "jsonpath={.status.seen}")


def test_the_scheduler_says_why_a_pod_waits_and_pods_are_seen_by_a_watch(plane, namespace):
    path = f"/api/v1/namespaces/{namespace}/pods"
    plane.must("POST", path, pod("waits", cpu="1000"))
    for event in plane.watch(path, seconds=30):
        conditions = event["object"].get("status", {}).get("conditions", ())
        if any(c["type"] == "PodScheduled" and c["reason"] == "Unschedulable" for c in conditions):
            return
    pytest.fail("nobody has looked at the pod")


def test_a_token_for_an_audience_names_its_pod_and_opens_nothing_else(plane, namespace):
    made = plane.must("POST", f"/api/v1/namespaces/{namespace}/pods", pod("speaks"))
    token = plane.token("default", namespace, audience="threadtide", pod=made)

    def review(audience):
        return plane.must("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {
            "spec": {"token": token, "audiences": [audience]}})["status"]
    status = review("threadtide")
    assert status["authenticated"] and status["audiences"] == ["threadtide"]
    assert status["user"]["username"] == f"system:serviceaccount:{namespace}:default"
    assert status["user"]["extra"]["authentication.kubernetes.io/pod-uid"] == [made["metadata"]["uid"]]
    assert not review("somebody else").get("authenticated")
    assert plane.client(token=token).api("GET", "/api")[0] == 401


def test_a_kubeconfig_has_the_rights_of_its_user(plane, namespace):
    stranger = plane.kubeconfig("stranger", ("nobody",))
    code, _, error = plane.kubectl("get", "pods", "-n", namespace, config=stranger, check=False)
    assert code == 1 and 'User "stranger" cannot list' in error


def test_objects_outlive_an_api_server_and_etcd_that_are_killed(plane, namespace):
    path = f"/api/v1/namespaces/{namespace}/configmaps/kept"
    plane.must("POST", path.rpartition("/")[0], {"metadata": {"name": "kept"}, "data": {"a": "b"}})
    plane.apiserver.kill()
    with pytest.raises(ConnectionError):
        plane.api("GET", path)
    plane.etcd.kill()
    plane.etcd.start()
    plane.apiserver.start()
    assert plane.must("GET", path)["data"] == {"a": "b"}


def test_nothing_is_left_of_a_plane_whose_process_is_killed():
    if control_plane.missing():
        pytest.skip(control_plane.missing())
    code = ("import control_plane, time; plane = control_plane.ControlPlane(); plane.etcd.start(); "
            "print(plane.folder, plane.etcd.process.pid, flush=True); time.sleep(1000)")
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "PYTHONPATH": ":".join(sys.path)}) as process:
        folder, pid = process.stdout.readline().split()
        process.kill()
    eventually(lambda: not os.path.exists(folder))
    eventually(lambda: not os.path.exists(f"/proc/{pid}/exe"))  # which a zombie has not


# ---- simulated nodes ----

def test_pods_run_on_simulated_nodes_complete_and_go(plane, namespace, kwok):
    kwok.nodes(10, cpu="2")
    path = f"/api/v1/namespaces/{namespace}/pods"
    for number in range(20):  # two fit on each, and no third
        plane.must("POST", path, pod(f"p{number}", cpu="1"))
    plane.must("POST", path, pod("third", cpu="1"))

    def phases():
        return [p["status"].get("phase") for p in plane.must("GET", path)["items"]]
    eventually(lambda: phases().count("Running") == 20)
    assert phases().count("Pending") == 1
    plane.must("PATCH", f"{path}/p0", {"metadata": {"annotations": {RUNS_FOR: "10ms"}}})
    eventually(lambda: sorted(set(phases())) == ["Running", "Succeeded"])
    plane.must("DELETE", path)
    eventually(lambda: not phases())


# ---- the proxy ----

def test_the_proxy_passes_on_who_speaks_and_what_is_said(plane, namespace, proxy):
    stranger = plane.kubeconfig("stranger", ("nobody",), url=proxy.url)
    _, _, error = plane.kubectl("get", "pods", "-n", namespace, config=stranger, check=False)
    assert 'User "stranger" cannot list' in error
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    assert through(proxy, plane).api("POST", path, {"metadata": {"name": "a"}})[0] == 201
    token = plane.token("default", namespace)
    status, answer = through(proxy, plane, token).api("GET", path)
    assert status == 403 and f"serviceaccount:{namespace}:default" in answer["message"]
    assert [r.status for r in proxy.requests if r.path == path] == [201, 403]


def test_the_proxy_passes_on_several_requests_of_a_connection(plane, namespace, proxy):
    """Short answers say their length beforehand, others come in pieces: after neither is a connection used up."""
    path, client = f"/api/v1/namespaces/{namespace}/configmaps", through(proxy, plane)
    connection = client.connection()
    for name, data in (("a", ""), ("b", "x" * 9000), ("c", ""), ("d", "")):
        connection.request("POST", path, json.dumps({"metadata": {"name": name}, "data": {"k": data}}),
                           {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 201, answer.read()
        answer.read()
    connection.close()


def test_the_proxy_refuses_loses_and_cuts(plane, namespace, proxy):
    path, client = f"/api/v1/namespaces/{namespace}/configmaps", through(proxy, plane)
    proxy.rule = lambda request: fault_proxy.refuse(429, "TooManyRequests", retry_after=1)
    status, answer = client.api("GET", path)
    assert status == 429 and answer["reason"] == "TooManyRequests"

    proxy.rule = lambda request: fault_proxy.lose() if request.method == "POST" else None
    with pytest.raises((OSError, http.client.HTTPException)):
        client.api("POST", path, {"metadata": {"name": "lost"}})
    assert plane.api("GET", f"{path}/lost")[0] == 200

    proxy.rule = lambda request: fault_proxy.cut(after=100)
    with pytest.raises((OSError, http.client.HTTPException)):
        client.api("GET", path)

    proxy.stop()
    with pytest.raises(ConnectionError):
        client.api("GET", path)
    proxy.start()
    proxy.forget()
    assert client.api("GET", path)[0] == 200


def test_watches_are_slow_silent_expired_and_cut(plane, namespace, proxy):
    path, client = f"/api/v1/namespaces/{namespace}/configmaps", through(proxy, plane)
    plane.must("POST", path, {"metadata": {"name": "a"}})
    assert next(client.watch(path))["type"] == "ADDED"

    proxy.rule = lambda request: fault_proxy.expire() if request.is_watch else None
    events = list(client.watch(path))
    assert [(e["type"], e["object"]["code"]) for e in events] == [("ERROR", 410)]

    proxy.rule = lambda request: fault_proxy.slow(0.5)
    begun = time.monotonic()
    assert next(client.watch(path))["type"] == "ADDED"
    assert time.monotonic() - begun >= 0.5

    proxy.rule = lambda request: fault_proxy.silent()
    watching = client.connection(timeout=0.5)
    watching.request("GET", f"{path}?watch=true")
    with pytest.raises(TimeoutError):
        watching.getresponse().readline()
    proxy.cut()
    watching.close()
