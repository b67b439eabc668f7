# SPDX-License-Identifier: Apache-2.0
"""`tide-kube inject` and a real API server: pods that ask for the agent get it, others do not, and whatever
becomes of us, pods are made and start. PyTorch in an unmodified pod follows its limit, on the runner."""
import base64
import concurrent.futures
import contextlib
import datetime
import http.client
import json
import os
import pathlib
import platform
import re
import socket
import ssl
import subprocess
import threading
import time
import urllib.request

import pytest

from control_plane import tools_folder
from controller import ROOT
from daemon import GUARD_S, eventually
from injector import ACCOUNT, AGENT, ASKS, DONE, SPACE, WEBHOOK, Injector, call, installed, make, said, token
from objects import Pods
from program import TORCH_PYTHON

KEY = {"x86_64": "agent-amd64"}.get(platform.machine(), "agent-arm64")
PRELOAD = "/opt/threadtide/$LIB/libtide-agent.so"
# Settings that Pod Security's `restricted` wants of a pod.
RESTRICTED = {"runAsNonRoot": True, "runAsUser": 65532, "allowPrivilegeEscalation": False,
              "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}}


@pytest.fixture(scope="module")
def cluster(plane):
    with installed(plane):
        yield plane


@pytest.fixture(scope="module")
def injector(cluster, tmp_path_factory):
    result = Injector(cluster, tmp_path_factory.mktemp("inject"))
    yield result
    result.end()


def test_the_pods_of_a_job_ask_by_their_template(cluster, injector, namespace):
    """examples/kubernetes/job.yaml, made into pods by the Job controller."""
    cluster.kubectl("apply", "-n", namespace, "-f", str(ROOT / "examples/kubernetes/job.yaml"))

    def made():
        return cluster.must("GET", f"/api/v1/namespaces/{namespace}/pods?labelSelector=job-name%3Dmatrix")["items"]
    assert said(eventually(made)[0]) == "train: agent, sized for 4"


def test_who_asks_gets_the_agent_and_nobody_else(cluster, injector, namespace):
    plane, maps = cluster, f"/api/v1/namespaces/{namespace}/configmaps"
    assert said(make(plane, namespace, "dry", query="?dryRun=All")) == "main: agent, sized for 1"
    assert plane.api("GET", f"{maps}/{AGENT}")[0] == 404  # a dry run writes nothing, here neither

    made = make(plane, namespace, "asks", cpu="1500m", container={"env": [{"name": "LD_PRELOAD", "value": "/x.so"}]})
    container, env = made["spec"]["containers"][0], {e["name"]: e.get("value") for e in made["spec"]["containers"][0]["env"]}
    assert said(made) == "main: agent, sized for 2"
    assert env["LD_PRELOAD"] == f"/x.so:{PRELOAD}" and env["OMP_NUM_THREADS"] == "2"
    assert {"name": AGENT, "mountPath": "/opt/threadtide", "readOnly": True} in container["volumeMounts"]
    volume, = (v["configMap"] for v in made["spec"]["volumes"] if v["name"] == AGENT)
    assert volume["optional"] is True and {"key": KEY, "path": "lib64/libtide-agent.so"} in volume["items"]
    there = plane.must("GET", f"{maps}/{AGENT}")
    assert [f["manager"] for f in there["metadata"]["managedFields"]] == [KEY.replace("agent", "tide-inject")]  # another architecture's keys stay
    kept = base64.b64decode(there["binaryData"][KEY])
    assert kept.startswith(b"\x7fELF") and len(kept) < 900 << 10

    assert said(make(plane, namespace, "silent", labels=None)) is None
    assert said(make(plane, namespace, "refuses", notes={"threadtide.io/inject": "false"})) is None
    assert said(make(plane, namespace, "training", labels={**ASKS, "threadtide.io/job": "x"})) is None
    assert said(make(plane, "kube-system", "system", query="?dryRun=All")) is None
    assert said(make(plane, namespace, "host", hostPID=True)) == "no: it shares the node's processes"

    plane.must("PATCH", f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {
        **ASKS, "pod-security.kubernetes.io/enforce": "restricted"}}})
    eventually(lambda: said(make(plane, namespace, "try", labels=None, query="?dryRun=All", container={"securityContext": RESTRICTED})))
    assert said(make(plane, namespace, "spaces", labels=None, container={"securityContext": RESTRICTED}))
    assert said(make(plane, namespace, "without", labels={"threadtide.io/inject": "false"},
                     container={"securityContext": RESTRICTED})) is None


def test_the_documents_commands_tell_the_api_server_of_authority_and_path(cluster, injector):
    plane = cluster
    plane.must("PATCH", WEBHOOK, [{"op": "replace", "path": f"/webhooks/{i}/clientConfig", "value": {
        "service": {"name": "tide-inject", "namespace": SPACE, "port": 443}}} for i in range(2)])
    commands = re.search(r"(?ms)^      ca=\$\(kubectl .*?done$", (ROOT / "docs/kubernetes.md").read_text())[0]
    subprocess.run(["bash", "-ec", commands], check=True, timeout=GUARD_S, env={
        "PATH": f"{tools_folder()}:{os.environ['PATH']}", "HOME": str(plane.folder), "KUBECONFIG": str(plane.kubeconfig())})
    told = [hook["clientConfig"] for hook in plane.must("GET", WEBHOOK)["webhooks"]]
    call(plane, plane.address.ip, injector.ports[0], injector.authority)
    assert told == 2 * [{"caBundle": base64.b64encode(injector.authority.encode()).decode(), "service": {
        "name": "tide-inject", "namespace": SPACE, "port": 443, "path": f"/pods/{token(plane)}"}}]


def test_it_says_when_its_authority_ends(cluster, injector):
    ip, (_, _, metrics) = cluster.address.ip, injector.ports
    with urllib.request.urlopen(f"http://{ip}:{metrics}/metrics", timeout=GUARD_S) as answer:
        end = re.search(r"(?m)^tide_inject_authority_end_timestamp_seconds (\S+)", answer.read().decode())[1]
    wanted = subprocess.run(["openssl", "x509", "-noout", "-enddate", "-dateopt", "iso_8601"], input=injector.authority, text=True,
                            capture_output=True, check=True).stdout.strip().removeprefix("notAfter=")
    assert datetime.datetime.fromisoformat(wanted.replace("Z", "+00:00")).timestamp() == float(end)


def test_numbers_and_probes_have_addresses_of_their_own(cluster, injector):
    """Probes come from the whole cluster; numbers are for those who reach an address that the manifest keeps to the pod."""
    ip, (_, health, metrics) = cluster.address.ip, injector.ports
    assert all(cluster.answers(f"http://{ip}:{health}", path) for path in ("/healthz", "/readyz"))
    assert not cluster.answers(f"http://{ip}:{health}", "/metrics")
    assert cluster.answers(f"http://{ip}:{metrics}", "/metrics") and not cluster.answers(f"http://{ip}:{metrics}", "/readyz")
    text = (ROOT / "dist/kubernetes/inject.yaml").read_text()
    assert "--health=:8080" in text and "--metrics=127.0.0.1:8081" in text


def test_an_authority_of_which_people_told_stays_until_it_ends(cluster, injector, tmp_path):
    """It lasts 400 days. Another one would be served at once, and nobody would tell the API server."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "400", "-subj",
                    "/CN=old", "-keyout", tmp_path / "ca.key", "-out", tmp_path / "ca.crt"], check=True, capture_output=True)
    secrets = f"/api/v1/namespaces/{SPACE}/secrets"
    data = {name: base64.b64encode((tmp_path / name).read_bytes()).decode() for name in ("ca.crt", "ca.key")}
    cluster.must("POST", secrets, {"metadata": {"name": "old"}, "data": data})
    process = injector.begin(*(cluster.address.port() for _ in range(3)), "--drain=0", "--ca-secret=old", "--kubeconfig", cluster.kubeconfig())
    try:
        kept = cluster.must("GET", f"{secrets}/old")["data"]
        assert {**kept, **data} == kept and len(base64.b64decode(kept["path"])) == 64  # which it has added
    finally:
        process.terminate()
        process.wait(GUARD_S)
        cluster.must("DELETE", f"{secrets}/old")


def test_two_replicas_are_admitted_where_pods_may_do_least(cluster):
    pods = f"/api/v1/namespaces/{SPACE}/pods?labelSelector=app.kubernetes.io/name%3Dtide-inject"
    eventually(lambda: len(cluster.must("GET", pods)["items"]) == 2)


def test_the_account_may_write_the_agent_and_nothing_else(cluster, injector):
    def may(verb, what, name, namespace="default"):
        return cluster.must("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": {
            "user": f"system:serviceaccount:{SPACE}:{ACCOUNT}", "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": {"namespace": namespace, "verb": verb, "resource": what, "name": name}}})["status"]["allowed"]
    assert may("create", "configmaps", AGENT) and may("patch", "configmaps", AGENT) and may("get", "secrets", "tide-inject-ca", SPACE)
    for verb, what, name in (("create", "configmaps", "other"), ("create", "configmaps", ""), ("get", "configmaps", AGENT),
                             ("list", "pods", ""), ("create", "pods", ""), ("get", "secrets", "tide-inject-ca"),
                             ("patch", "mutatingwebhookconfigurations", "tide-inject"), ("list", "namespaces", "")):
        assert not may(verb, what, name), f"{verb} {what} {name}"


class Impostor(threading.Thread):
    """Somebody else at the webhook's address. .mode: how it fails; .seen: connections."""

    def __init__(self, plane):
        super().__init__(daemon=True)
        self.plane, self.mode, self.seen, self.held = plane, "garbage", 0, []
        ip = plane.address.ip
        good, expired = plane.pki.issue("impostor", "impostor", hosts=[ip]), plane.folder / "pki/expired.crt"
        plane.pki.openssl("x509", "-req", "-in", "impostor.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-set_serial", "7",
                          "-days", "-1", "-extfile", "impostor.ext", "-out", expired.name)
        plane.pki.openssl("req", "-x509", "-key", "impostor.key", "-days", "30", "-subj", "/CN=nobody", "-addext",
                          f"subjectAltName=IP:{ip}", "-out", "foreign.crt")
        self.contexts = {}
        for name, certificate in (("good", good[0]), ("expired", expired), ("foreign", plane.folder / "pki/foreign.crt")):
            self.contexts[name] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.contexts[name].load_cert_chain(certificate, good[1])
        self.listener = socket.create_server((ip, plane.address.port()))
        self.port = self.listener.getsockname()[1]
        self.start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                connection = self.listener.accept()[0]
                self.seen += 1
                with contextlib.suppress(OSError, ValueError):
                    self.serve(connection)

    def serve(self, connection):
        if self.mode == "silent":
            self.held.append(connection)
            return
        with self.contexts.get(self.mode, self.contexts["good"]).wrap_socket(connection, server_side=True) as tls:
            head, _, body = tls.recv(65536).partition(b"\r\n\r\n")
            wanted = int(re.search(rb"(?i)content-length: (\d+)", head)[1])
            while len(body) < wanted:
                body += tls.recv(65536)
            tls.sendall(self.answer(json.loads(body)["request"]["uid"]))

    def answer(self, uid):
        patch = base64.b64encode(json.dumps([{"op": "add", "path": "/metadata/annotations", "value": {DONE: "by nobody"}}]).encode())
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {
            "uid": uid if self.mode == "works" else "other", "allowed": True, "patchType": "JSONPatch", "patch": patch.decode()}}
        text = {"garbage": b"{{{", "empty": b"", "half": json.dumps(review).encode()[:40]}.get(self.mode, json.dumps(review).encode())
        status = 500 if self.mode == "fails" else 200
        length = len(text) + 1000 * (self.mode == "cut")
        return f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n".encode() + text

    def end(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for connection in self.held:
            connection.close()


def test_whatever_answers_in_our_place_pods_are_made(cluster, injector, namespace):
    plane, impostor = cluster, Impostor(cluster)
    try:
        impostor.mode = "works"  # so the API server calls it from now on
        call(plane, plane.address.ip, impostor.port, plane.pki.ca.read_text())
        eventually(lambda: said(make(plane, namespace, "try", query="?dryRun=All")) == "by nobody")
        for mode in ("garbage", "empty", "half", "fails", "uid", "cut", "expired", "foreign", "silent"):
            impostor.mode, seen = mode, impostor.seen
            begun = time.monotonic()
            assert said(make(plane, namespace, mode)) is None, mode
            assert impostor.seen > seen, f"{mode}: it was not asked"
            assert time.monotonic() - begun < 10, mode  # timeoutSeconds is 2
    finally:
        impostor.end()
    assert said(make(plane, namespace, "gone")) is None
    call(plane, plane.address.ip, injector.ports[0], injector.authority)
    eventually(lambda: (said(make(plane, namespace, "try", query="?dryRun=All")) or "").startswith("main: agent"))


def test_junk_is_refused_and_a_huge_pod_allowed_as_it_is(cluster, injector):
    """Straight to the webhook, as anybody in the network can; some leave before they are answered."""
    context = ssl.create_default_context(cadata=injector.authority)

    right = f"/pods/{token(cluster)}"
    assert len(right) >= 6 + 32

    def asked(body, method="POST", path=right):
        connection = http.client.HTTPSConnection(cluster.address.ip, injector.ports[0], context=context, timeout=GUARD_S)
        connection.request(method, path, body)
        return connection

    def answer(*words):
        with contextlib.closing(asked(*words)) as connection:
            found = connection.getresponse()
            return found.status, found.read()
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u-1", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "operation": "CREATE", "namespace": "not-there",
        "object": {"metadata": {}, "spec": {"containers": [{"name": "a"}]}}}}
    for words in ((b"{",), (b"",), (b"[]",), (b"\0\xff",)):
        assert answer(*words)[0] == 400, words
    question = json.dumps(review)
    for words in (("GET", right), ("POST", "/pods"), ("POST", "/pods/"), ("POST", right[:-1]), ("POST", f"{right}x"), ("POST", right[5:]),
                  ("POST", f"/pods/{'0' * 64}"), ("POST", "/")):
        assert answer(question, *words)[0] == 404, words
    for _ in range(5):
        asked(json.dumps(review)).close()
    review["request"]["object"]["metadata"]["annotations"] = {"large": "x" * (2 << 20)}
    status, text = answer(json.dumps(review))
    assert status == 200 and json.loads(text)["response"] == {"uid": "u-1", "allowed": True}
    with contextlib.suppress(OSError):
        assert answer(b"x" * (10 << 20))[0] == 413
    assert said(make(cluster, "default", "try", query="?dryRun=All"))


def test_many_questions_at_once_from_one_address_about_a_new_namespace(cluster, injector, namespace):
    """As an API server asks, each on a connection of its own, which it keeps."""
    context, many = ssl.create_default_context(cadata=injector.authority), 300
    review = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u-1", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "operation": "CREATE", "namespace": namespace,
        "object": {"metadata": {}, "spec": {"containers": [{"name": "a"}]}}}})
    path, all_answered = f"/pods/{token(cluster)}", threading.Barrier(many)

    def ask(_):
        with contextlib.closing(http.client.HTTPSConnection(cluster.address.ip, injector.ports[0], context=context, timeout=GUARD_S)) as connection:
            connection.request("POST", path, review)
            patch = base64.b64decode(json.loads(connection.getresponse().read())["response"]["patch"])
            all_answered.wait(GUARD_S)
            return b"/spec/volumes" in patch
    with concurrent.futures.ThreadPoolExecutor(many) as pool:
        assert all(pool.map(ask, range(many)))


def test_a_namespace_that_cannot_have_the_agent_has_its_pods(cluster, injector, namespace):
    """A quota of ConfigMaps that is used up: kube-root-ca.crt is one."""
    plane = cluster
    plane.must("POST", f"/api/v1/namespaces/{namespace}/resourcequotas", {
        "metadata": {"name": "few"}, "spec": {"hard": {"count/configmaps": "1"}}})
    eventually(lambda: plane.must("GET", f"/api/v1/namespaces/{namespace}/resourcequotas/few")["status"].get("used") ==
               {"count/configmaps": "1"})
    assert said(make(plane, namespace, "asks")) == "no: the agent could not be put into the namespace"
    assert said(make(plane, namespace, "again")) == "no: the agent could not be put into the namespace"


def test_who_ends_says_so_answers_on_and_keeps_its_path(cluster, injector):
    ip, ports = cluster.address.ip, [cluster.address.port() for _ in range(3)]
    before, context = token(cluster), ssl.create_default_context(cadata=injector.authority)
    process = injector.begin(*ports, "--drain=100")
    try:
        assert token(cluster) == before
        process.terminate()
        eventually(lambda: not cluster.answers(f"http://{ip}:{ports[1]}", "/readyz"))
        with contextlib.closing(http.client.HTTPSConnection(ip, ports[0], context=context, timeout=GUARD_S)) as connection:
            connection.request("POST", f"/pods/{before}", b"{")
            assert connection.getresponse().status == 400
        process.terminate()  # a second time: at once
        assert process.wait(GUARD_S) == 0
    finally:
        process.kill()
        process.wait()


def agent_of(runner, name):
    """Whether the pod's process has the agent."""
    pid = runner.run_of(name).container.pid
    return pid and "libtide-agent.so" in pathlib.Path(f"/proc/{pid}/maps").read_text()


def test_pods_start_without_the_agent_that_they_were_promised(cluster, injector, namespace, make_runner):
    """ld.so says a line, and goes on: where the ConfigMap is gone, and where it holds something else."""
    plane, pods = cluster, Pods(cluster, namespace)
    late = make(plane, namespace, "late", "/bin/sleep", "1000", nodeSelector={"kubernetes.io/hostname": "inject-a"})
    assert said(late)
    plane.must("DELETE", f"/api/v1/namespaces/{namespace}/configmaps/{AGENT}")
    runner = make_runner("inject-a", cpu="2", memory="4Gi")
    plane.must("POST", pods.path, {"metadata": {"name": "given"}, "spec": late["spec"]})
    pods.until("late", "Running")
    eventually(lambda: "cannot be preloaded (cannot open shared object file): ignored" in runner.log("late"))
    pods.until("given", "Running")
    plane.must("POST", f"/api/v1/namespaces/{namespace}/configmaps", {
        "metadata": {"name": AGENT}, "binaryData": {KEY: base64.b64encode(b"no agent" * 1000).decode()}})
    plane.must("POST", pods.path, {"metadata": {"name": "broken"}, "spec": late["spec"]})
    pods.until("broken", "Running")
    eventually(lambda: "cannot be preloaded (invalid ELF header): ignored" in runner.log("broken"))
    assert not agent_of(runner, "late") and not agent_of(runner, "broken")


WORK = """
import re, time, torch
a = torch.randn(300, 300)
while True:
    for _ in range(20):
        a @ a
    print("threads", re.search(r"at::get_num_threads\\(\\) : (\\d+)", torch.__config__.parallel_info())[1], flush=True)
    time.sleep(0.05)
"""


@pytest.mark.skipif(not TORCH_PYTHON, reason="TIDE_PYTHON_TORCH names no Python with PyTorch")
def test_an_unmodified_pytorch_follows_its_limit(cluster, injector, namespace, make_runner):
    """The label is all that it has of us. A node of two cores, whose kubelet the runner stands in for."""
    plane, pods = cluster, Pods(cluster, namespace)
    runner = make_runner("inject-b", cpu="2", memory="4Gi")
    made = make(plane, namespace, "torch", TORCH_PYTHON, "-c", WORK, cpu="2",
                nodeSelector={"kubernetes.io/hostname": "inject-b"})
    assert said(made) == "main: agent, sized for 2"
    pods.until("torch", "Running")

    def threads():
        found = re.findall(r"threads (\d+)", runner.log("torch"))
        return found[-1] if found else None
    eventually(lambda: threads() == "2", 120)
    assert agent_of(runner, "torch")
    for cpu, wanted in (("1", "1"), ("2", "2")):
        pods.resize("torch", cpu)
        eventually(lambda wanted=wanted: threads() == wanted)
    status = pods.get("torch")["status"]["containerStatuses"][0]
    assert status["restartCount"] == 0 and "running" in status["state"]
    pods.delete("torch")
