# SPDX-License-Identifier: Apache-2.0
"""A real kubelet with a real containerd in a virtual machine (tests/cluster), joined to the control
plane on this machine: what it does with pods and with in-place resizes. TIDE_MACHINE names the folder
that tests/cluster/image.py has made. As root."""
import base64
import contextlib
import copy
import functools
import hashlib
import http.client
import importlib.util
import io
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import threading
import time

import pytest

import control_plane
import network
from controller import BUILD, ROOT, TRAININGS, Chief, Controller, install, training
from daemon import eventually
from fault_proxy import FaultProxy
from injector import AGENT, Injector, installed, make, said
from objects import Pods
from podspec import mcpu
from trainings import Job, Stage

HERE = pathlib.Path(__file__).resolve().parent
CNI = pathlib.Path("/usr/lib/cni")
IMAGE = "localhost/tide-test:1"
NODE_IMAGE = "docker.io/threadtide/tide-node:test"
CONTROL_PORT = 2223  # of tide-tfnode
GUARD_S = 240        # everything is emulated in there
IDLE = ["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do /bin/busybox sleep 0.2; done"]
LOCAL = {"image": IMAGE, "imagePullPolicy": "Never"}


def archive(files):
    """A tar of {name: bytes, or the target of a link}."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                tar.addfile(entry)
            else:
                entry.size, entry.mode = len(content), 0o755
                tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def make_image(path, pause):
    """An image as `docker save` writes one: pause, and busybox as a shell."""
    layer = archive({"pause": pause.read_bytes(), "bin/busybox": pathlib.Path("/bin/busybox").read_bytes(),
                     "bin/sh": "busybox"})
    config = json.dumps({
        "architecture": "amd64", "os": "linux", "config": {"Cmd": ["/pause"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created_by": "test_kubelet.py"}]}).encode()
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    path.write_bytes(archive({name: config, "layer.tar": layer,
                              "manifest.json": json.dumps(manifest).encode()}))


def add_needed(folder, file, source):
    """Copies what a file needs besides what lies beside it in @source."""
    needed = subprocess.run(["ldd", file], capture_output=True, text=True, check=True,
                            env={**os.environ, "LD_LIBRARY_PATH": str(source)}).stdout
    for path in re.findall(r"=> (/\S+) ", needed):
        if not path.startswith(str(source)):
            shutil.copy(path, folder)


def add_tensorflow(folder):
    """The libraries of TensorFlow's C API, and those that they need. No Python."""
    source = pathlib.Path(importlib.util.find_spec("tensorflow").origin).parent
    folder.mkdir()
    for name in ("libtensorflow_cc.so.2", "libtensorflow_framework.so.2"):
        shutil.copy(source / name, folder)
    add_needed(folder, source / "libtensorflow_cc.so.2", source)


def add_blas(folder, program):
    """A program, with NumPy's OpenBLAS and what that needs."""
    source = pathlib.Path(importlib.util.find_spec("numpy").origin).parent.with_name("numpy.libs")
    shutil.copytree(source, folder)
    library, = folder.glob("libscipy_openblas*")
    subprocess.run(["gcc", "-O1", "-o", folder / "blas", program, library, f"-Wl,-rpath-link,{folder}", "-lpthread"], check=True)
    add_needed(folder, folder / "blas", folder)


class Machine:
    """.lines: what it has said so far. .proxy: kubelet reaches the API server through it. fill(folder) adds to what it
    finds at /kube; a folder containerd2 there has the programs of containerd 2."""

    def __init__(self, plane, pod_network, folder, image, fill=None, bytes=2 << 30, memory=3072, limit=1500):
        self.proxy = FaultProxy(plane, pod_network.gateway).start()
        content = folder / "content"
        shutil.copytree(HERE / "kubelet", content)
        shutil.copytree(CNI, content / "cni")
        shutil.copy(control_plane.tools_folder() / "kubelet", content)
        subprocess.run(["gcc", "-static", "-Os", "-o", folder / "pause", content / "pause.c"], check=True)
        make_image(content / "image.tar", folder / "pause")
        subprocess.run([ROOT / "scripts/images.py", "--build", BUILD, "--to", content, "--version", "test",
                        "tide-node", "tide-power"], check=True)
        add_tensorflow(content / "tensorflow")
        add_blas(content / "blas", content / "blas.c")
        if fill:
            fill(content)
        (content / "kubeconfig").write_text(self.kubeconfig(plane))
        with open(folder / "drive", "wb") as drive:
            drive.truncate(bytes)  # sparse
        subprocess.run(["mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-d", content, folder / "drive"],
                       check=True)
        shutil.rmtree(content)
        self.lines, wire = [], pod_network.wire()
        self.process = subprocess.Popen(
            [HERE.parent / "cluster/vm.py", "--wire", str(wire), "--cpus", "4", "--memory", str(memory), "--limit", str(limit), "--drive",
             folder / "drive", "--results", folder / "results", image,
             f"mkdir /kube && mount -o ro /dev/vdd /kube && exec /kube/start.sh {pod_network.prefix}"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, pass_fds=[wire])
        os.close(wire)
        threading.Thread(target=self.read, daemon=True).start()

    def kubeconfig(self, plane):
        """With what the files hold."""
        config = json.loads(plane.kubeconfig("system:node:vm", ("system:nodes",)).read_text())
        config["clusters"][0]["cluster"]["server"] = self.proxy.url
        for holder in (config["clusters"][0]["cluster"], config["users"][0]["user"]):
            for key in holder.keys() - {"server"}:
                holder[f"{key}-data"] = base64.b64encode(
                    pathlib.Path(holder.pop(key)).read_bytes()).decode()
        return json.dumps(config)

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            print(line, end="", file=sys.stderr)

    def cpu_max(self, pod):
        """All values that were seen for the pod's containers."""
        found = (re.fullmatch(rf"cpu\.max {pod['metadata']['uid']} (.+)", line) for line in self.lines)
        return [match[1] for match in found if match]

    def last(self, word, key):
        """The rest of its last line that begins with WORD KEY, or None."""
        begin = f"{word} {key} "
        return next((line[len(begin):] for line in reversed(self.lines) if line.startswith(begin)), None)

    def runs(self):
        assert self.process.poll() is None, "\n".join(self.lines[-40:])
        return True

    def end(self):
        self.process.terminate()
        self.process.wait(30)
        self.proxy.stop()


soon = functools.partial(eventually, guard=GUARD_S)


def ready(plane, machine):
    status, node = plane.api("GET", "/api/v1/nodes/vm")
    return machine.runs() and status == 200 and any(
        c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"])


@pytest.fixture(scope="module")
def booted(plane, pod_network, tmp_path_factory):
    """Where it does not come up, all tests fail at once, with what it said."""
    image = os.environ.get("TIDE_MACHINE")
    if not image:
        pytest.skip("no virtual machine: TIDE_MACHINE is not set")
    for needed in (control_plane.tools_folder() / "kubelet", CNI / "bridge", pathlib.Path("/bin/busybox"),
                   pathlib.Path(network.TUN)):
        if not needed.exists():
            pytest.skip(f"not installed: {needed}")
    result = Machine(plane, pod_network, tmp_path_factory.mktemp("kubelet"), image)
    try:
        soon(lambda: ready(plane, result))
        yield result
    except AssertionError as error:
        raise AssertionError(f"{error}; the machine said: {result.lines[-4:]}") from error
    finally:
        result.end()


@pytest.fixture
def machine(plane, booted):
    """It is busy after each test."""
    soon(lambda: ready(plane, booted))
    return booted


def test_a_real_kubelet_runs_a_pod_and_resizes_it_in_place(plane, namespace, machine):
    pods = Pods(plane, namespace)
    made = pods.make("real", *IDLE, cpu="500m", container=LOCAL)
    soon(lambda: machine.runs() and pods.condition("real", "Ready").get("status") == "True")

    def container():
        return pods.get("real")["status"]["containerStatuses"][0]
    started = container()["containerID"]
    soon(lambda: "50000 100000" in machine.cpu_max(made))
    pods.resize("real", "250m")
    soon(lambda: "25000 100000" in machine.cpu_max(made))
    soon(lambda: container()["resources"]["limits"]["cpu"] == "250m")
    soon(lambda: not pods.condition("real", "PodResizeInProgress"))
    pods.resize("real", "64")
    soon(lambda: pods.condition("real", "PodResizePending").get("reason") == "Infeasible")
    found = container()
    assert (found["containerID"], found["restartCount"]) == (started, 0)
    assert found["resources"]["limits"]["cpu"] == "250m"
    if os.environ.get("TIDE_TEST_SHOW"):
        print(json.dumps(pods.get("real"), indent=1))
    pods.delete("real")
    soon(lambda: pods.get("real") is None)


def test_a_start_with_more_cores_ends_in_place(plane, namespace, machine):
    """A worker's pod that starts larger (src/kube/grow/start.c): its limit alone comes down to its request, its class stays."""
    pods = Pods(plane, namespace)
    made = pods.make("start", *IDLE, container={**LOCAL, "resources": {
        "requests": {"cpu": "100m", "memory": str((16 << 20) - 1)}, "limits": {"cpu": "1", "memory": "16Mi"}}})
    soon(lambda: machine.runs() and pods.condition("start", "Ready").get("status") == "True")
    soon(lambda: "100000 100000" in machine.cpu_max(made))
    plane.must("PATCH", f"{pods.path}/start/resize", {"spec": {"containers": [{
        "name": "main", "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "100m"}}}]}},
        "application/strategic-merge-patch+json")
    soon(lambda: "10000 100000" in machine.cpu_max(made))
    soon(lambda: pods.get("start")["status"]["containerStatuses"][0]["resources"]["limits"]["cpu"] == "100m")
    found = pods.get("start")["status"]
    assert (found["qosClass"], found["containerStatuses"][0]["restartCount"]) == ("Burstable", 0)
    pods.delete("start")
    soon(lambda: pods.get("start") is None)


def test_the_daemonset_says_what_the_nodes_cap_allows(plane, namespace, machine, tmp_path):
    """tided is root without a capability, tide-power nobody, both from the image; there is no kube-proxy, so the
    API server is named. No sensor: a model says the watts."""
    done = subprocess.run(
        [control_plane.helm(), "template", "t", str(ROOT / "dist/helm/threadtide"), "--namespace", "threadtide", "--kube-version",
         "1.34.0", "--show-only", "templates/power.yaml", "--set", "power.enabled=true,power.image.tag=test,power.valid=20s",
         "--set-string", f"power.model=points:20\\,35\\,75\\,120,power.cap=70 W,power.server={machine.proxy.url}"],
        capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    plane.kubectl("apply", "--server-side", "-f", "-", input=done.stdout)
    pods = "/api/v1/namespaces/threadtide-power/pods"

    def notes():
        assert machine.runs()
        return plane.must("GET", "/api/v1/nodes/vm")["metadata"].get("annotations", {})
    try:
        eventually(lambda: "threadtide.io/power-cpu" in notes(), 120)
        cores = int(plane.must("GET", "/api/v1/nodes/vm")["status"]["capacity"]["cpu"])
        assert 0 < int(notes()["threadtide.io/power-cpu"].rstrip("m")) < 1000 * cores
        assert notes()["threadtide.io/power-cap"] == "70.0"
        pod, = plane.must("GET", pods)["items"]
        assert {c["name"]: c["restartCount"] for c in pod["status"]["containerStatuses"]} == {"tided": 0, "tide-power": 0}
        until = notes()["threadtide.io/power-until"]
        soon(lambda: notes()["threadtide.io/power-until"] > until)  # told again in time
    except AssertionError:
        print(json.dumps([pod["status"] for pod in plane.must("GET", pods)["items"]], indent=1))
        print(plane.kubectl("events", "--namespace", "threadtide-power"))
        raise
    finally:
        plane.kubectl("delete", "--wait=false", "--ignore-not-found", "-f", "-", input=done.stdout)
    soon(lambda: not plane.must("GET", pods)["items"])


def test_tide_kube_resizes_a_worker_threads_first_when_it_shrinks(plane, namespace, machine):
    """Nobody trains: the pods idle, and the chief that reports is this test's, which says of each
    node what threads it has. What kubelet does to the worker is real."""
    pods = Pods(plane, namespace)
    install(plane)
    controller = Controller(plane).start()
    spec = training("job", image=IMAGE, command=IDLE)["spec"]
    probe = {"exec": {"command": ["/bin/busybox", "true"]}, "periodSeconds": 60, "timeoutSeconds": 60}
    idle = {"spec": {"terminationGracePeriodSeconds": 1, "containers": [
        {"name": "tide", **LOCAL, "command": IDLE, "readinessProbe": probe, "livenessProbe": probe}]}}
    for role in ("chief", "ps", "workers"):
        spec[role] = {**spec[role], "template": idle}
    amounts = {"cpu": "1", "memory": "64Mi"}
    spec["workers"].update(max=1, cpu={"min": "500m", "max": "2"},
                           resources={"requests": amounts, "limits": amounts})
    path, told = f"{TRAININGS.format(namespace)}/job", []
    plane.must("POST", TRAININGS.format(namespace), {
        **training("job"), "spec": spec})
    chief = Chief(plane, namespace, "job", [controller])

    def worker():
        return pods.get("job-worker-0")

    def cores():
        return worker()["spec"]["containers"][0]["resources"]["limits"]["cpu"]

    def threads(member):
        if member["threads"] and not told:
            told.append(cores())  # it still has two
            return 2
        return member["threads"] or 2
    chief.threads = threads
    # The training is as fast as its worker has cores: where the small size was measured, too, and both
    # were equally fast, growing again would be of no use.
    chief.pace = lambda workers: workers and mcpu(cores()) // 100
    try:
        soon(lambda: machine.runs() and worker() and "200000 100000" in machine.cpu_max(worker()))
        started = worker()["status"]["containerStatuses"][0]["containerID"]
        # Room for somebody else: threads, cores, and then the other's pod.
        pods.make("other", *IDLE, cpu="2500m", container=LOCAL, terminationGracePeriodSeconds=1)
        soon(lambda: machine.runs() and pods.get("other")["status"]["phase"] == "Running")
        assert told == ["2"] and mcpu(cores()) < 2000
        soon(lambda: machine.runs() and machine.cpu_max(worker())[-1] == f"{100 * mcpu(cores())} 100000")
        assert chief.members["worker"][0]["threads"] in (0, 1)
        pods.delete("other")
        soon(lambda: machine.runs() and machine.cpu_max(worker())[-1] == "200000 100000")
        soon(lambda: chief.members["worker"][0]["threads"] == 0)
        found = worker()["status"]["containerStatuses"][0]
        assert (found["containerID"], found["restartCount"]) == (started, 0)
    finally:
        plane.api("PATCH", path, {"metadata": {"finalizers": []}})
        plane.api("DELETE", path)
        chief.end()
        controller.end()


def test_a_pod_that_knows_nothing_of_us_follows_its_limit_by_the_agent_in_a_configmap(plane, namespace, machine, tmp_path):
    """NumPy's OpenBLAS in a program of C stands in for PyTorch, which takes minutes to begin on emulated cores (on the
    runner it is PyTorch itself, test_inject.py). Beside it the same pod, whose ConfigMap is not there."""
    pods, resources = Pods(plane, namespace), {"cpu": "2", "memory": "256Mi"}

    def told(name):
        address = pods.get(name)["status"].get("podIP")
        with contextlib.suppress(OSError):
            with socket.create_connection((address, 7000), 10) as asked:
                return machine.runs() and asked.makefile().read().strip()
    with installed(plane):
        injector = Injector(plane, tmp_path)
        try:
            made = make(plane, namespace, "asks", "/blas/blas", "7000", terminationGracePeriodSeconds=1,
                        volumes=[{"name": "blas", "hostPath": {"path": "/kube/blas"}}], container={
                            "image": NODE_IMAGE, "imagePullPolicy": "Never", "env": [{"name": "LD_LIBRARY_PATH", "value": "/blas"}],
                            "volumeMounts": [{"name": "blas", "mountPath": "/blas", "readOnly": True}],
                            "resources": {"requests": resources, "limits": resources}})
        finally:
            injector.end()
    assert said(made) == "main: agent, sized for 2"
    spec = copy.deepcopy(made["spec"])
    spec["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
    agent, = (volume for volume in spec["volumes"] if volume["name"] == AGENT)
    agent["configMap"]["name"] = "absent"
    plane.must("POST", pods.path, {"metadata": {"name": "lacks"}, "spec": spec})
    soon(lambda: told("asks") == "2 agent")
    soon(lambda: told("lacks") == "2 alone")
    plane.must("PATCH", f"{pods.path}/asks/resize", {"spec": {"containers": [{"name": "main", "resources": {
        kind: {**resources, "cpu": "1"} for kind in ("requests", "limits")}}]}}, "application/strategic-merge-patch+json")
    soon(lambda: told("asks") == "1 agent")
    soon(lambda: machine.runs() and machine.cpu_max(made)[-1] == "100000 100000")
    assert told("lacks") == "2 alone"
    assert [c["restartCount"] for name in ("asks", "lacks") for c in pods.get(name)["status"]["containerStatuses"]] == [0, 0]
    for name in ("asks", "lacks"):
        pods.delete(name)


class Threads:
    """.said: the active threads of a node, as its control port tells the chief, too: [(when, how many)]."""

    def __init__(self, address):
        self.address, self.said = address, []
        self.connection = http.client.HTTPConnection(address, CONTROL_PORT, timeout=GUARD_S)
        self.connection.request("GET", "/v1/watch")
        self.answer = self.connection.getresponse()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError, AttributeError):
            for line in self.answer:
                active = json.loads(line)["threads"]
                if not self.said or self.said[-1][1] != active:
                    self.said.append((time.monotonic(), active))

    def now(self):
        return self.said[-1][1] if self.said else None


def tensorflow_pods(plane, namespace):
    """Pods of servers and workers: tide-node's image, with the machine's folder of TensorFlow. They may not
    mount folders of their node, so they claim a volume."""
    space, amount = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", {"storage": "1Gi"}
    plane.must("POST", "/api/v1/persistentvolumes", {"metadata": {"name": namespace}, "spec": {
        "capacity": amount, "accessModes": ["ReadOnlyMany"], "hostPath": {"path": "/kube/tensorflow"},
        "claimRef": {"namespace": namespace, "name": "tensorflow"}}})
    plane.must("POST", space, {"metadata": {"name": "tensorflow"}, "spec": {
        "accessModes": ["ReadOnlyMany"], "storageClassName": "", "volumeName": namespace,
        "resources": {"requests": amount}}})
    return {"volumes": [{"name": "tensorflow", "persistentVolumeClaim": {"claimName": "tensorflow"}}],
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "tide", "image": NODE_IMAGE, "imagePullPolicy": "Never",
                "command": ["/opt/threadtide/tide-tfnode"],
                "env": [{"name": name, "value": "/tensorflow"}
                        for name in ("TIDE_TENSORFLOW", "LD_LIBRARY_PATH")],
                "volumeMounts": [{"name": "tensorflow", "mountPath": "/tensorflow", "readOnly": True}]}]}


class Pace(threading.Thread):
    """Lets a training go on at its full speed while its worker has two cores, and a third of it, step by step,
    otherwise: what is measured on emulated cores of a busy machine is left to chance. If the small size
    were measured to be as fast, tide-kube would rightly not let the worker grow again."""

    def __init__(self, job, cores):
        super().__init__(daemon=True)
        self.job, self.cores, self.said, self.ended = job, cores, [], threading.Event()
        self.start()

    def run(self):
        while True:
            slow, epoch = 1 if self.cores() == 2000 else 3, self.job.epoch()
            if not self.said or self.said[-1][1:] != (slow, epoch):
                self.said.append((time.monotonic(), slow, epoch))
                self.job.may_go(epoch + 4, slow=slow)
            if self.ended.wait(1):
                return

    def end(self):
        self.ended.set()
        self.join(GUARD_S)


def test_cores_and_threads_of_a_worker_that_trains_follow_each_other(
        plane, namespace, machine, make_runner, pod_network, tmp_path):
    """TensorFlow trains; its server and worker are pods of the real kubelet with the agent inside, and
    tide-kube resizes the worker. Only the chief is a pod of the runner, where nothing is emulated."""
    pods = Pods(plane, namespace)
    install(plane)
    plane.must("PATCH", "/api/v1/nodes/vm", {"metadata": {"labels": {"tide-test/pool": "machine"}}},
               "application/merge-patch+json")
    stage = Stage(plane, make_runner, pod_network.gateway, tmp_path, "--node-lost=60s", "--silent=60s",
                  "--pending=240s", url=machine.proxy.url)
    stage.controller.start()
    stage.node("home-1", "1")
    amounts = {"cpu": "1", "memory": "768Mi"}
    sizes = {"cpu": {"min": "500m", "max": "2"}, "resources": {"requests": amounts, "limits": amounts}}
    job = Job(stage, namespace, "real", "machine", home="home", nodes=tensorflow_pods(plane, namespace),
              workers=sizes, slots=1)

    def worker():
        """The one in service: a machine so busy that it answers too late is replaced, under another number."""
        return next((p for p in plane.must("GET", pods.path)["items"] if p["metadata"]["name"].startswith("real-worker-") and
                     "deletionTimestamp" not in p["metadata"] and p["status"].get("podIP")), None)

    def cores():
        """The cores that the kernel lets the worker have, in thousandths."""
        pod = worker()
        seen = machine.cpu_max(pod) if pod else []
        return int(seen[-1].split()[0]) // 100 if seen and not seen[-1].startswith("max") else 0

    def has(active):
        """The cores that it is to have, and as many threads."""
        def facts():
            nonlocal threads
            pod = worker()
            if pod and (not threads or threads.address != pod["status"]["podIP"]):
                with contextlib.suppress(OSError):  # it does not serve yet
                    threads = Threads(pod["status"]["podIP"])
            return pod and threads and (pod["metadata"]["name"], mcpu(pod["spec"]["containers"][0]["resources"]["limits"]["cpu"]),
                            cores(), threads.now())

        def there():
            return machine.runs() and (now := facts()) and now[1] == now[2] and now[1] // 1000 == now[3] == active
        try:
            job.until(there, 2 * GUARD_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; worker, cores that it is to have, that it has, threads: {facts()}, {threads and threads.said[-3:]}, "
                                 f"slow: {pace.said[-2:]}") from error

    def resized(since):
        """When tide-kube first asked for it."""
        return next(r.at for r in machine.proxy.requests if r.at > since and
                    (r.method, r.path) == ("PATCH", f"{pods.path}/{worker()['metadata']['name']}/resize"))
    threads, pace = None, Pace(job, cores)
    try:
        job.until(lambda: machine.runs() and job.epoch() >= 1 and worker(), GUARD_S)
        has(2)
        started = worker()["status"]["containerStatuses"][0]["containerID"]
        job.until_epoch(3, GUARD_S)
        # Room for somebody else: threads, cores, and then the other's pod.
        begin = time.monotonic()
        pods.make("other", *IDLE, cpu="2600m", container=LOCAL, terminationGracePeriodSeconds=1,
                  nodeSelector={"tide-test/pool": "machine"})
        job.until(lambda: machine.runs() and pods.get("other")["status"]["phase"] == "Running", GUARD_S)
        has(1)
        parked, asked = threads.said[-1][0], resized(begin)
        assert begin < parked and (parked < asked or asked - begin > 5)  # tide-kube waits 5 s for threads
        job.until_epoch(1, GUARD_S)
        begin = time.monotonic()
        pods.delete("other")
        has(2)
        assert resized(begin) < threads.said[-1][0]
        job.until_epoch(2, GUARD_S)
        found = worker()["status"]["containerStatuses"][0]
        assert (found["containerID"], found["restartCount"]) == (started, 0)
        assert [active for _, active in threads.said][-3:] == [2, 1, 2] and job.resumed() == [0]
    finally:
        print(f"threads: {threads and threads.said}", f"(when, slow, epoch): {pace.said}",
              *(line for line in machine.lines if line.startswith("cpu.max")), sep="\n")
        pace.end()
        job.remove()
        stage.controller.end()
