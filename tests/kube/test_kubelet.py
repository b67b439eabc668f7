# SPDX-License-Identifier: Apache-2.0
"""A real kubelet with a real containerd in a virtual machine (tests/cluster), joined to the control
plane on this machine: what it does with pods and with in-place resizes. TIDE_MACHINE names the folder
that tests/cluster/image.py has made."""
import base64
import functools
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import threading

import pytest

import control_plane
from controller import TRAININGS, Chief, Controller, install, training
from daemon import eventually
from fault_proxy import FaultProxy
from objects import Pods
from podspec import mcpu

HERE = pathlib.Path(__file__).resolve().parent
CNI = pathlib.Path("/usr/lib/cni")
IMAGE = "localhost/tide-test:1"
THIS_MACHINE = "10.0.2.2"  # as the virtual one calls it
GUARD_S = 240              # everything is emulated in there
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


class Machine:
    """.lines: what it has said so far."""

    def __init__(self, plane, folder, image):
        self.proxy = FaultProxy(plane, "127.0.0.1", [THIS_MACHINE]).start()
        content = folder / "content"
        shutil.copytree(HERE / "kubelet", content)
        shutil.copytree(CNI, content / "cni")
        shutil.copy(control_plane.tools_folder() / "kubelet", content)
        subprocess.run(["gcc", "-static", "-Os", "-o", folder / "pause", content / "pause.c"], check=True)
        make_image(content / "image.tar", folder / "pause")
        (content / "kubeconfig").write_text(self.kubeconfig(plane))
        with open(folder / "drive", "wb") as drive:
            drive.truncate(400 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-d", content, folder / "drive"],
                       check=True)
        self.lines = []
        self.process = subprocess.Popen(
            [HERE.parent / "cluster/vm.py", "--network", "--cpus", "4", "--limit", "600", "--drive",
             folder / "drive", "--results", folder / "results", image,
             "mkdir /kube && mount -o ro /dev/vdd /kube && exec /kube/start.sh"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def kubeconfig(self, plane):
        """With what the files hold, and the way out of the machine."""
        config = json.loads(plane.kubeconfig("system:node:vm", ("system:nodes",)).read_text())
        config["clusters"][0]["cluster"]["server"] = f"https://{THIS_MACHINE}:{self.proxy.port}"
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
        """Of the pod's containers and of itself, all that was seen."""
        found = (re.fullmatch(rf"cpu\.max {pod['metadata']['uid']} (.+)", line) for line in self.lines)
        return [match[1] for match in found if match]

    def runs(self):
        assert self.process.poll() is None, "\n".join(self.lines[-40:])
        return True

    def end(self):
        self.process.terminate()
        self.process.wait(30)
        self.proxy.stop()


@pytest.fixture(scope="module")
def machine(plane, tmp_path_factory):
    image = os.environ.get("TIDE_MACHINE")
    if not image:
        pytest.skip("no virtual machine: TIDE_MACHINE is not set")
    for needed in (control_plane.tools_folder() / "kubelet", CNI / "bridge", pathlib.Path("/bin/busybox")):
        if not needed.exists():
            pytest.skip(f"not installed: {needed}")
    result = Machine(plane, tmp_path_factory.mktemp("kubelet"), image)
    yield result
    result.end()


soon = functools.partial(eventually, guard=GUARD_S)


def ready(plane, machine):
    status, node = plane.api("GET", "/api/v1/nodes/vm")
    return machine.runs() and status == 200 and any(
        c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"])


def test_a_real_kubelet_runs_a_pod_and_resizes_it_in_place(plane, namespace, machine):
    pods = Pods(plane, namespace)
    soon(lambda: ready(plane, machine))
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


def test_tide_kube_resizes_a_worker_threads_first_when_it_shrinks(plane, namespace, machine):
    """Nobody trains: the pods idle, and the chief that reports is this test's, which says of each
    node what threads it has. What kubelet does to the worker is real."""
    pods = Pods(plane, namespace)
    install(plane)
    soon(lambda: ready(plane, machine))
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
