# SPDX-License-Identifier: Apache-2.0
"""Tests against a real control plane, one for each process of pytest; each test has a namespace."""
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "component"), str(HERE)]  # in this order: two are conftest

import control_plane  # noqa: E402
from controller import admit  # noqa: E402
from daemon import GUARD_S, eventually  # noqa: E402
from kwok import Kwok  # noqa: E402
from network import PodNetwork  # noqa: E402
from runner import Runner  # noqa: E402


@pytest.fixture(scope="session")
def plane():
    """Runs, and runs again after a test that ended some of its programs."""
    if control_plane.missing():
        pytest.skip(control_plane.missing())
    result = control_plane.ControlPlane()
    try:
        yield result.start()
    finally:
        result.end()


@pytest.fixture
def proxy(plane):
    """Without faults before and after."""
    plane.proxy.forget()
    yield plane.proxy
    plane.proxy.forget()
    if plane.proxy.server is None:
        plane.proxy.start()


@pytest.fixture(scope="module")
def kwok(plane):
    """Simulated nodes, none at first."""
    if not (control_plane.tools_folder() / "kwok").exists():
        pytest.skip("not installed: kwok (scripts/setup.sh kube)")
    result = Kwok(plane)
    try:
        yield result.start()
    finally:
        result.end()


@pytest.fixture(scope="module")
def helm(plane):
    """helm(word, …) returns what it prints."""
    program = control_plane.helm()
    if not program.exists():
        pytest.skip(f"not installed: {program} (scripts/setup.sh kube)")

    def run(*words):
        done = subprocess.run([program, *words], capture_output=True, text=True, timeout=2 * GUARD_S,
                              env={"PATH": os.environ["PATH"], "HOME": str(plane.folder), "KUBECONFIG": str(plane.kubeconfig())})
        assert done.returncode == 0, done.stderr
        return done.stdout
    run.program = program
    return run


@pytest.fixture(scope="session")
def pod_network():
    if os.geteuid() != 0:
        pytest.skip("pods as local processes need root")
    result = PodNetwork()
    yield result
    result.end()


@pytest.fixture(scope="module")
def make_runner(plane, pod_network):
    """make_runner(name, …): a node of the test's own, see runner.py; it ends with the module."""
    made = []

    def make(name, **options):
        made.append(Runner(plane, pod_network, name, **options))
        return made[-1].start()
    yield make
    for runner in made:
        runner.end()


def no_trainings(plane, namespace):
    """Deletes those of a namespace, whoever holds them by a finalizer; whether none is left."""
    path = f"/apis/threadtide.io/v1alpha1/namespaces/{namespace}/elastictrainingjobs"
    status, found = plane.api("GET", path)
    left = found["items"] if status == 200 else []  # without the definition there are none
    for training in left:
        one = f"{path}/{training['metadata']['name']}"
        plane.api("PATCH", one, {"metadata": {"finalizers": []}})
        plane.api("DELETE", one)
    return not left


@pytest.fixture
def namespace(plane):
    """The name of a new one, deleted afterwards with all that is in it (in the background). Its trainings
    go first: the next test's controller would still act for them, as long as the namespace lasts."""
    name = plane.must("POST", "/api/v1/namespaces", {"metadata": {"generateName": "test-"}})[
        "metadata"]["name"]
    eventually(lambda: plane.api("GET", f"/api/v1/namespaces/{name}/serviceaccounts/default")[0] == 200)
    admit(plane, name)
    yield name
    eventually(lambda: no_trainings(plane, name))
    plane.api("DELETE", f"/api/v1/namespaces/{name}")  # one test has done so already
