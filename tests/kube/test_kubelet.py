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
from daemon import eventually
from fault_proxy import FaultProxy
from objects import Pods

HERE = pathlib.Path(__file__).resolve().parent
CNI = pathlib.Path("/usr/lib/cni")
IMAGE = "localhost/tide-test:1"
THIS_MACHINE = "10.0.2.2"  # as the virtual one calls it
GUARD_S = 240              # everything is emulated in there


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


def test_a_real_kubelet_runs_a_pod_and_resizes_it_in_place(plane, namespace, machine):
    soon = functools.partial(eventually, guard=GUARD_S)
    pods = Pods(plane, namespace)

    def ready():
        status, node = plane.api("GET", "/api/v1/nodes/vm")
        return machine.runs() and status == 200 and any(
            c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"])
    soon(ready)
    made = pods.make("real", "/bin/sh", "-c",
                     "trap 'exit 0' TERM; while :; do /bin/busybox sleep 0.2; done", cpu="500m",
                     container={"image": IMAGE, "imagePullPolicy": "Never"})
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
