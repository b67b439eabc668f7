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
MACHINE_S = 900  # everything is emulated in there, and PyTorch brings three gigabytes of libraries
soon = functools.partial(eventually, guard=MACHINE_S, pause=0.5)

TORCH = """
import socket, threading, torch
def tell():
    server = socket.create_server(("", 7000))
    while True:
        client = server.accept()[0]
        client.sendall(f"{torch.get_num_threads()}\\n".encode())
        client.close()
threading.Thread(target=tell, daemon=True).start()
a = torch.randn(192, 192)
while True:
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
    result = Machine(plane, pod_network, tmp_path_factory.mktemp("pods"), image, fill, bytes=8 << 30, memory=6144)
    try:
        soon(lambda: ready(plane, result))
        yield result
    finally:
        result.end()


@pytest.fixture
def shared(plane, namespace, machine):
    """The chart's DaemonSet, as `helm install` makes it; the namespace's pods are its jobs."""
    done = subprocess.run(
        [control_plane.helm(), "template", "t", str(ROOT / "dist/helm/threadtide"), "--namespace", "threadtide", "--kube-version",
         "1.34.0", "--show-only", "templates/pods.yaml", "--set", "pods.enabled=true,pods.image.tag=test,pods.inject=true",
         "--set", f"pods.namespaces={{{namespace}}},pods.placement=exclusive"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    plane.kubectl("apply", "--server-side", "--validate=strict", "-f", "-", input=done.stdout)
    own = Pods(plane, SPACE)

    def runs():
        found = plane.must("GET", own.path)["items"]
        return machine.runs() and found and all(
            c["ready"] for c in found[0]["status"].get("containerStatuses", [{"ready": False}]))
    try:
        soon(runs)
        yield lambda: plane.kubectl("delete", "--wait=false", "--ignore-not-found", "-f", "-", input=done.stdout)
    except AssertionError:
        print(json.dumps([found["status"] for found in plane.must("GET", own.path)["items"]], indent=1),
              plane.kubectl("events", "--namespace", SPACE))
        raise
    finally:
        plane.kubectl("delete", "--wait=false", "--ignore-not-found", "-f", "-", input=done.stdout)


def python_pod(name, program, packages, notes=None, cpu=str(CORES)):
    """A pod of Debian's Python, which the machine has, and the packages of pip's wheels; nothing of ours."""
    folders = {"usr": "/usr", "lib": "/usr/lib", "lib64": "/usr/lib64", "kube": "/kube"}
    amounts = {"cpu": cpu, "memory": "1536Mi"}
    made = pod(name, "/usr/bin/python3", f"/kube/{program}", terminationGracePeriodSeconds=1,
               volumes=[{"name": key, "hostPath": {"path": path}} for key, path in folders.items()],
               container={"image": IMAGE, "imagePullPolicy": "Never",
                          "env": [{"name": "PYTHONPATH", "value": f"/kube/{packages}"}, {"name": "HOME", "value": "/tmp"},
                                  {"name": "LD_LIBRARY_PATH", "value": f"/kube/{packages}/lib"}],
                          "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}, "limits": amounts},
                          "volumeMounts": [{"name": key, "mountPath": f"/{key}", "readOnly": True} for key in folders]})
    made["metadata"]["annotations"] = notes or {}
    return made


def blas_pod(name, notes):
    """A program of C with NumPy's OpenBLAS, which starts at once."""
    made = pod(name, "/blas/blas", "7000", terminationGracePeriodSeconds=1, cpu=str(CORES),
               volumes=[{"name": "blas", "hostPath": {"path": "/kube/blas"}}],
               container={"image": NODE_IMAGE, "imagePullPolicy": "Never", "env": [{"name": "LD_LIBRARY_PATH", "value": "/blas"}],
                          "volumeMounts": [{"name": "blas", "mountPath": "/blas", "readOnly": True}],
                          "resources": {"requests": {"cpu": "500m", "memory": "64Mi"}, "limits": {"cpu": str(CORES), "memory": "256Mi"}}})
    made["metadata"]["annotations"] = notes
    return made


def cpus(text):
    found = set()
    for part in (text or "").split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1)) if first else set()
    return found


def test_pytorch_and_tensorflow_shrink_and_grow_as_a_third_comes_and_goes(plane, namespace, machine, shared):
    pods = Pods(plane, namespace)
    made = {}

    def make(name, *args, **more):
        made[name] = plane.must("POST", pods.path, python_pod(name, *args, **more))

    def told():
        """PyTorch says it itself."""
        address = pods.get("torch")["status"].get("podIP")
        with contextlib.suppress(OSError):
            with socket.create_connection((address, 7000), 10) as asked:
                return int(asked.makefile().read() or 0)

    def job(name):
        """(target, active threads, cores) by tided, cores by the kernel."""
        said = machine.last("job", f"{namespace}.{name}.main")
        words = said.split() if said else ["0", "0", "-"]
        return int(words[0]), int(words[1]), cpus(machine.last("cpuset", made[name]["metadata"]["uid"]))

    def have(**threads):
        def so():
            found = {name: job(name) for name in threads}
            return machine.runs() and all(found[n][:2] == (k, k) and len(found[n][2]) == k for n, k in threads.items()) and (
                sum(map(len, (f[2] for f in found.values()))) == len(set().union(*(f[2] for f in found.values()))))
        try:
            soon(so)
        except AssertionError as error:
            raise AssertionError(f"{threads}: {[(n, job(n)) for n in threads]}, {machine.lines[-30:]}") from error
    make("torch", "run-torch.py", "torch-packages")
    make("tensorflow", "run-tensorflow.py", "tensorflow-packages")
    have(torch=2, tensorflow=2)
    soon(lambda: told() == 2)
    made["third"] = plane.must("POST", pods.path, blas_pod("third", {"threadtide.io/min": "2"}))
    have(torch=1, tensorflow=1, third=2)
    soon(lambda: told() == 1)
    pods.delete("third")
    have(torch=2, tensorflow=2)
    soon(lambda: told() == 2)
    # The kubelet's limit is the room.
    for limit, threads in (("1", 1), ("4", 2)):
        plane.must("PATCH", f"{pods.path}/torch/resize", {"spec": {"containers": [{"name": "main", "resources": {
            "limits": {"cpu": limit}}}]}}, "application/strategic-merge-patch+json")
        have(torch=threads, tensorflow=CORES - threads)
        soon(lambda threads=threads: told() == threads)
        soon(lambda limit=limit: machine.cpu_max(made["torch"])[-1] == f"{limit}00000 100000")
    pods.delete("tensorflow")
    have(torch=CORES)
    soon(lambda: told() == CORES)
    made["third"] = plane.must("POST", pods.path, blas_pod("third", {}))
    have(torch=2, third=2)
    # We go, and they stay, with all that was theirs.
    shared()
    for name in ("torch", "third"):
        soon(lambda name=name: machine.runs() and len(cpus(machine.last("cpuset", made[name]["metadata"]["uid"]))) == CORES)
    states = [c for name in ("torch", "third") for c in pods.get(name)["status"]["containerStatuses"]]
    assert [c["restartCount"] for c in states] == [0, 0] and all("running" in c["state"] for c in states)
    for name in ("torch", "third"):
        pods.delete(name)
