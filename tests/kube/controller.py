# SPDX-License-Identifier: Apache-2.0
"""tide-kube as a process, with the rights of dist/kubernetes/rbac.yaml and no others, and a chief that
reports as the Python package does, but trains nothing."""
import contextlib
import http.client
import json
import os
import pathlib
import signal
import ssl
import subprocess
import threading

import kwok
from control_plane import tools_folder
from daemon import GUARD_S, eventually

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TIDE_BUILD_DIR", "build")).resolve()
MANIFESTS = ROOT / "dist/kubernetes"
TRAININGS = "/apis/threadtide.io/v1alpha1/namespaces/{}/elastictrainingjobs"
QUICK = ("--lease-duration=2s", "--lease-deadline=1500ms", "--lease-retry=300ms", "--batch=100ms",
         "--settle=300ms")


def admit(plane, namespace):
    """Lets the controller make pods there, as rbac.yaml says."""
    plane.must("POST", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings", {
        "metadata": {"name": "tide-kube-by-hand"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                    "name": "tide-kube-trainings"},
        "subjects": [{"kind": "ServiceAccount", "name": "tide-kube", "namespace": "threadtide"}]})


def install(plane):
    """Definition, account, rights and what bounds them, and the empty Secret, as the manifests have them."""
    for name in ("crd.yaml", "namespace.yaml", "rbac.yaml", "admission.yaml"):
        def applied(name=name):
            return plane.kubectl("apply", "--server-side", "--force-conflicts", "-f",
                                 str(MANIFESTS / name), check=False)[0] == 0
        eventually(applied)
    plane.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tide-kube-ca",
                                                            "namespace": "threadtide"}}))
    eventually(lambda: plane.api("GET", TRAININGS.format("default"))[0] == 200)


def run_kubectl(plane, *words):
    """With our plugin and its completion on the PATH, and itself."""
    path = plane.folder / "plugins"
    path.mkdir(exist_ok=True)
    for name, target in (("kubectl-tide", BUILD / "tide-kube"),
                         ("kubectl_complete-tide", ROOT / "completions/kubectl_complete-tide"),
                         ("kubectl", tools_folder() / "kubectl")):
        with contextlib.suppress(FileExistsError):
            (path / name).symlink_to(target)
    done = subprocess.run(
        [path / "kubectl", *words], capture_output=True, text=True, timeout=GUARD_S,
        env={"PATH": f"{path}:{os.environ['PATH']}", "KUBECONFIG": str(plane.kubeconfig()),
             "HOME": str(plane.folder)})
    return done.returncode, done.stdout, done.stderr


def kubectl(plane, namespace, *words):
    """`kubectl tide …` as kubectl runs it; what it prints."""
    return run_kubectl(plane, "tide", *words, "-n", namespace)


class Controller:
    """@url: of a proxy before the API server. @listen: a host that pods reach. @pace: of lease and
    decisions."""
    may_be_forbidden = False  # a test takes rights from it

    def __init__(self, plane, *options, url=None, listen="127.0.0.1", service=None, pace=QUICK):
        self.plane, self.listen = plane, listen
        token = plane.token("tide-kube", "threadtide")
        config = plane.kubeconfig("tide-kube", url=url, token=token)
        self.ports = [plane.address.__class__(host).port() for host in (listen, "127.0.0.1")]
        self.log = plane.folder / f"tide-kube-{self.ports[0]}.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [BUILD / "tide-kube", "--kubeconfig", config, "--lease-namespace", "threadtide",
                 f"--listen={listen}:{self.ports[0]}", f"--metrics=127.0.0.1:{self.ports[1]}",
                 f"--service={service or listen}:{self.ports[0]}", *pace, *options], stderr=log)

    def ask(self, path):
        """(status, text) of the port for metrics and probes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[1], timeout=GUARD_S)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def metrics(self):
        lines = self.ask("/metrics")[1].splitlines()
        return {name: float(value) for name, _, value in
                (line.rpartition(" ") for line in lines if not line.startswith("#"))}

    def ready(self):
        assert self.process.poll() is None, self.log.read_text()
        with contextlib.suppress(OSError):
            return self.ask("/readyz")[0] == 200
        return False

    def leads(self):
        with contextlib.suppress(OSError):
            return self.metrics().get("tide_kube_leading") == 1
        return False

    def start(self, lead=True):
        eventually(self.ready)
        if lead:
            eventually(self.leads)
        return self

    def kill(self):
        self.process.kill()
        self.process.wait(GUARD_S)

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(GUARD_S) == 0, self.log.read_text()


class Chief:
    """Reports for a training that it is in with all nodes it is told of, and hands back those that
    are to leave. @controllers: asked in turn. It stays while its pod does."""
    every_s = 0.1

    def __init__(self, plane, namespace, job, controllers):
        self.plane, self.namespace, self.job, self.controllers = plane, namespace, job, controllers
        self.step, self.members, self.finished, self.statuses = 0, {}, False, []
        self.rate = lambda workers: 100.0 * workers
        self.pace = lambda workers: workers  # steps, of ten examples each, between two reports
        self.threads = lambda member: member["threads"] or 1  # that a node has in place
        self.released, self.uid, self.connection, self.where = set(), None, None, 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def connect(self):
        space = f"/api/v1/namespaces/{self.namespace}"
        found, pod = self.plane.api("GET", f"{space}/pods/{self.job}-chief")
        known, authority = self.plane.api("GET", f"{space}/configmaps/{self.job}-ca")
        if (found, known) != (200, 200) or pod["status"].get("phase") != "Running":
            return False
        if pod["metadata"]["uid"] != self.uid:
            self.uid, self.released, self.members = pod["metadata"]["uid"], set(), {}
            self.token = self.plane.token("default", self.namespace, "threadtide", pod)
        self.context = ssl.create_default_context(cadata=authority["data"]["ca.crt"])
        return self.dial()

    def dial(self):
        """The next controller."""
        self.where = (self.where + 1) % len(self.controllers)
        to = self.controllers[self.where]
        self.connection = http.client.HTTPSConnection(to.listen, to.ports[0], timeout=5,
                                                      context=self.context)
        return True

    def nodes(self):
        for role in ("ps", "worker"):
            for member in self.members.get(role, ()):
                key = (role, member["index"])
                if member["leave"]:
                    self.released.add(key)
                yield {"role": role, "index": member["index"], "threads": self.threads(member),
                       "state": "released" if key in self.released else "in"}

    def report(self):
        workers = sum(not m["leave"] for m in self.members.get("worker", ()))
        rate = self.rate(workers)
        self.step += self.pace(workers)
        return {"step": self.step, "epoch": 0, "loss": 1 / (1 + self.step), "examples": 10 * self.step,
                "examples_per_s": rate, "step_s": 0.1, "compute_permille": 900,
                "communication_permille": 100, "finished": self.finished, "pauses_ms": [],
                "duplicates": 0, "nodes": list(self.nodes())}

    def run(self):
        while not self.ended.wait(self.every_s):
            try:
                if not self.connection and not self.connect():
                    continue
                self.connection.request(
                    "POST", f"/v1/jobs/{self.namespace}/{self.job}/report",
                    json.dumps(self.report()), {"Authorization": f"Bearer {self.token}"})
                answer = self.connection.getresponse()
                body = json.loads(answer.read())
                self.statuses.append(answer.status)
                if answer.status == 200:
                    self.members = body["members"]
                else:
                    self.connection.close()
                    self.connection = None
            except (OSError, http.client.HTTPException, ValueError, KeyError):
                self.connection = None

    def end(self):
        self.ended.set()
        self.thread.join(GUARD_S)


def training(name, **spec):
    small = {"requests": {"cpu": "100m", "memory": "64Mi"}}
    return {"apiVersion": "threadtide.io/v1alpha1", "kind": "ElasticTrainingJob",
            "metadata": {"name": name},
            "spec": {"image": "local/none", "command": ["train"], "chief": {"resources": small},
                     "ps": {"resources": small},
                     "workers": {"min": 1, "max": 4,
                                 "resources": {"requests": {"cpu": "1", "memory": "64Mi"}}}, **spec}}


def with_nodes(plane, *groups):
    """For a fixture: a plane with what the controller needs, and these groups of simulated nodes (kwok.Kwok.nodes)."""
    install(plane)
    nodes = kwok.Kwok(plane).start()
    try:
        for group in groups:
            nodes.nodes(**group)
        yield plane
    finally:
        nodes.end()


def trains(cluster, namespace):
    """For a fixture: begin(controllers, name, …), a training and its chief; deleted afterwards."""
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
