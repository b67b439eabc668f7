# SPDX-License-Identifier: Apache-2.0
"""Pods that share a node: the chart's DaemonSet (tided and tide-pods) with a real kubelet and a real containerd 2 in a
virtual machine. Unmodified PyTorch and TensorFlow compute in pods with images that know nothing of us, and have as many
threads as their pods have cores, while a third comes and goes. Run by `make check-pods`; parts that need no machine:
tests/component/test_pods.py. TIDE_MACHINE as in test_kubelet.py."""
import contextlib
import functools
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess

import pytest

import control_plane
from controller import BUILD, ROOT
from daemon import eventually
from objects import Pods, pod
from test_kubelet import CNI, IMAGE, NODE_IMAGE, Machine, ready

SPACE, CORES = "threadtide-pods", 4
MACHINE_S = 1800  # everything is emulated in there, and PyTorch brings three gigabytes of libraries
soon = functools.partial(eventually, guard=MACHINE_S, pause=0.5)

# The thread that computes tells PyTorch's own number: torch.get_num_threads() says what it would be without the agent.
TORCH = """
import re, socket, threading, torch
threads = 0
def tell():
    server = socket.create_server(("", 7000))
    while True:
        client = server.accept()[0]
        client.sendall(f"{threads}\\n".encode())
        client.close()
threading.Thread(target=tell, daemon=True).start()
a = torch.randn(192, 192)
while True:
    threads = int(re.search(r"at::get_num_threads\\(\\) : (\\d+)", torch.__config__.parallel_info())[1])
    b = a @ a
"""
TENSORFLOW = """
import tensorflow as tf
a = tf.random.normal((192, 192))
while True:
    b = tf.matmul(a, a)
"""
# Tells what a program has loaded: packages, and libraries as they are mapped.
LOADED = """
import sys
exec(sys.argv[1])
print("\\n".join({name.partition(".")[0] for name in sys.modules}))
print("\\n".join({line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}))
"""


def bundle(python, program, folder):
    """Copies what the program needs beside Debian's Python, as a folder for PYTHONPATH."""
    said = subprocess.run([python, "-c", LOADED, program], capture_output=True, text=True, check=True).stdout.split()
    source = pathlib.Path(subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('platlib'))"],
                                         capture_output=True, text=True, check=True).stdout.strip())
    for name in said:
        path = pathlib.Path(name)
        if name.startswith(f"{source}/") or re.match(r"/(usr/)?lib/\S*/lib(stdc|gcc_s|gomp|gfortran|quadmath|z)\b", name):
            to = folder / (path.relative_to(source) if name.startswith(f"{source}/") else re.match(r"(.*\.so\.\d+|.*)", f"lib/{path.name}")[1])
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, to)
        elif (source / name).is_dir():
            shutil.copytree(source / name, folder / name, dirs_exist_ok=True,
                            ignore=shutil.ignore_patterns("*.so", "*.so.*", "include", "__pycache__", "*.a", "tests", "testing_data"))
        elif (source / f"{name}.py").exists():
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / f"{name}.py", folder)


def fill(content):
    shutil.copytree(control_plane.containerd(), content / "containerd2")
    subprocess.run([ROOT / "scripts/images.py", "--build", BUILD, "--to", content, "--version", "test", "tide-pods"], check=True)
    bundle(os.environ["TIDE_PYTHON_TORCH"], "import torch; a = torch.randn(192, 192); a @ a", content / "torch-packages")
    bundle(os.environ["TIDE_PYTHON_TF221"], "import tensorflow as tf; a = tf.random.normal((192, 192)); tf.matmul(a, a)", content / "tensorflow-packages")
    (content / "run-torch.py").write_text(TORCH)
    (content / "run-tensorflow.py").write_text(TENSORFLOW)


@pytest.fixture(scope="module")
def machine(plane, pod_network, tmp_path_factory):
    image = os.environ.get("TIDE_MACHINE")
    if not image:
        pytest.skip("make check-pods sets TIDE_MACHINE")
    for needed in (control_plane.tools_folder() / "kubelet", control_plane.containerd() / "containerd", CNI / "bridge"):
        if not needed.exists():
            pytest.skip(f"not installed: {needed}")
    result = Machine(plane, pod_network, tmp_path_factory.mktemp("pods"), image, fill, bytes=8 << 30, memory=6144, limit=7200)
    try:
        soon(lambda: ready(plane, result))
        yield result
    finally:
        result.end()


@pytest.fixture
def shared(plane, helm, namespace, machine):
    """The chart, whose DaemonSet has the namespace's pods as its jobs; without a controller, whose image is not there."""
    own = Pods(plane, SPACE)
    soon(lambda: plane.api("GET", f"/api/v1/namespaces/{SPACE}")[0] == 404)  # an earlier test's
    helm("install", "threadtide", str(ROOT / "dist/helm/threadtide"), "--namespace", "threadtide", "--create-namespace", "--set",
         f"replicas=0,pods.enabled=true,pods.image.tag=test,pods.inject=true,pods.namespaces={{{namespace}}},pods.placement=exclusive")

    def uninstall():
        helm("uninstall", "threadtide", "--namespace", "threadtide", "--ignore-not-found")

    def runs():
        found = plane.must("GET", own.path)["items"]
        return machine.runs() and found and all(
            c["ready"] for c in found[0]["status"].get("containerStatuses", [{"ready": False}]))
    try:
        soon(runs)
        yield uninstall
    except AssertionError:
        print(json.dumps([found["status"] for found in plane.must("GET", own.path)["items"]], indent=1),
              plane.kubectl("events", "--namespace", SPACE))
        raise
    finally:
        uninstall()


def python_pod(program, packages):
    """A pod of Debian's Python, which the machine has, and the packages of pip's wheels; nothing of ours."""
    folders = {"usr": "/usr", "lib": "/usr/lib", "lib64": "/usr/lib64", "kube": "/kube"}
    amounts = {"cpu": str(CORES), "memory": "1536Mi"}
    made = pod("python", "/usr/bin/python3", f"/kube/{program}", terminationGracePeriodSeconds=1,
               volumes=[{"name": key, "hostPath": {"path": path}} for key, path in folders.items()],
               container={"image": IMAGE, "imagePullPolicy": "Never",
                          "env": [{"name": "PYTHONPATH", "value": f"/kube/{packages}"}, {"name": "HOME", "value": "/tmp"},
                                  {"name": "LD_LIBRARY_PATH", "value": f"/kube/{packages}/lib"}],
                          "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}, "limits": amounts},
                          "volumeMounts": [{"name": key, "mountPath": f"/{key}", "readOnly": True} for key in folders]})
    return made


def blas_pod(notes=None):
    """A program of C with NumPy's OpenBLAS, which starts at once."""
    made = pod("blas", "/blas/blas", "7000", terminationGracePeriodSeconds=1, cpu=str(CORES),
               volumes=[{"name": "blas", "hostPath": {"path": "/kube/blas"}}],
               container={"image": NODE_IMAGE, "imagePullPolicy": "Never", "env": [{"name": "LD_LIBRARY_PATH", "value": "/blas"}],
                          "volumeMounts": [{"name": "blas", "mountPath": "/blas", "readOnly": True}],
                          "resources": {"requests": {"cpu": "500m", "memory": "64Mi"}, "limits": {"cpu": str(CORES), "memory": "256Mi"}}})
    made["metadata"]["annotations"] = notes or {}
    return made


def cpus(text):
    found = set()
    for part in (text or "").split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1)) if first else set()
    return found


class Node:
    """Pods of one namespace on the shared machine."""

    def __init__(self, plane, namespace, machine):
        self.plane, self.space, self.machine = plane, namespace, machine
        self.pods, self.made = Pods(plane, namespace), {}

    def make(self, name, made):
        made["metadata"]["name"] = name
        self.made[name] = self.plane.must("POST", self.pods.path, made)

    def told(self, name):
        """The program says itself how many threads it computes with."""
        address = self.pods.get(name)["status"].get("podIP")
        with contextlib.suppress(OSError):
            with socket.create_connection((address, 7000), 20) as asked:
                return int((asked.makefile().read().split() or ["0"])[0])
        return 0

    def cpus(self, name):
        """Those that the kernel lets it use."""
        return cpus(self.machine.last("cpuset", self.made[name]["metadata"]["uid"]))

    def job(self, name):
        """(target, active threads) by tided."""
        said = self.machine.last("job", f"{self.space}.{name}.main")
        return tuple(int(word) for word in said.split()[:2]) if said else (0, 0)

    def have(self, **threads):
        """Waits until each has so many threads, and as many CPUs that nobody else has."""
        def so():
            sets = [self.cpus(name) for name in threads]
            return self.machine.runs() and [self.job(n) for n in threads] == [(k, k) for k in threads.values()] and (
                list(map(len, sets)) == list(threads.values()) and sum(map(len, sets)) == len(set().union(*sets)))
        try:
            soon(so)
        except AssertionError as error:
            facts = {name: (self.job(name), self.cpus(name)) for name in threads}
            raise AssertionError(f"{threads}: {facts}; {self.machine.lines[-20:]}") from error

    def resize(self, name, limit):
        self.plane.must("PATCH", f"{self.pods.path}/{name}/resize", {"spec": {"containers": [{"name": "main", "resources": {
            "limits": {"cpu": limit}}}]}}, "application/strategic-merge-patch+json")

    def all_run_on(self, *names):
        """None of their containers was started anew."""
        states = [c for name in names for c in self.pods.get(name)["status"]["containerStatuses"]]
        assert [c["restartCount"] for c in states] == [0] * len(names) and all("running" in c["state"] for c in states)


def test_pytorch_shrinks_and_grows_as_others_come_and_go(plane, namespace, machine, shared):
    node = Node(plane, namespace, machine)
    node.make("torch", python_pod("run-torch.py", "torch-packages"))
    node.have(torch=CORES)
    soon(lambda: node.told("torch") == CORES)
    node.make("second", blas_pod())
    node.have(torch=2, second=2)
    soon(lambda: node.told("torch") == 2)
    node.make("third", blas_pod({"threadtide.io/min": "2"}))
    node.have(torch=1, second=1, third=2)
    soon(lambda: (node.told("torch"), node.told("second"), node.told("third")) == (1, 1, 2))
    node.pods.delete("third")
    node.have(torch=2, second=2)
    soon(lambda: node.told("torch") == 2)
    for limit, threads in (("1", 1), ("4", 2)):  # the kubelet's limit is the room
        node.resize("torch", limit)
        node.have(torch=threads, second=CORES - threads)
        soon(lambda threads=threads: node.told("torch") == threads)
        soon(lambda limit=limit: machine.cpu_max(node.made["torch"])[-1] == f"{limit}00000 100000")
    shared()  # we go, and they stay, with all that was theirs
    soon(lambda: machine.runs() and len(node.cpus("torch")) == len(node.cpus("second")) == CORES)
    node.all_run_on("torch", "second")
    for name in ("torch", "second"):
        node.pods.delete(name)


def test_tensorflow_and_pytorch_share_it(plane, namespace, machine, shared):
    """Both take minutes to load their libraries; TensorFlow does so alone, before the other one computes."""
    node = Node(plane, namespace, machine)
    node.make("tensorflow", python_pod("run-tensorflow.py", "tensorflow-packages"))
    node.have(tensorflow=CORES)
    node.make("torch", python_pod("run-torch.py", "torch-packages"))
    node.have(torch=2, tensorflow=2)
    node.make("third", blas_pod({"threadtide.io/min": "2"}))
    node.have(torch=1, tensorflow=1, third=2)
    node.pods.delete("third")
    node.have(torch=2, tensorflow=2)
    soon(lambda: node.told("torch") == 2)
    node.all_run_on("torch", "tensorflow")
    for name in ("torch", "tensorflow"):
        node.pods.delete(name)
