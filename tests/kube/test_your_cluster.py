# SPDX-License-Identifier: Apache-2.0
"""The demo on a cluster that exists (demo/your_cluster.py): the tests' control plane is that cluster, which the demo knows by a
kubeconfig alone. Its node is the runner, where real TensorFlow trains. As root."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

from control_plane import tools_folder
from controller import BUILD, ROOT, Controller, install
from daemon import eventually

IMAGE, SPACE = "local/tensorflow", "threadtide-demo"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/elastictrainingjobs.threadtide.io"


def demonstrate(plane, *options, guard=400):
    """Returns the demo, ended."""
    return subprocess.run([ROOT / "demo/your_cluster.py", *options], capture_output=True, text=True, timeout=guard, check=False, cwd=ROOT, env={
        "PATH": f"{tools_folder()}:{os.environ['PATH']}", "HOME": str(plane.folder), "KUBECONFIG": str(plane.kubeconfig()),
        "TIDE_BUILD_DIR": str(BUILD)})


def nothing_is_left(plane, *paths):
    def gone():
        return all(plane.api("GET", path)[0] == 404 for path in (f"/api/v1/namespaces/{SPACE}", *paths))
    eventually(gone, 60)


@pytest.fixture
def bare(plane):
    """A cluster in which nothing of ours is."""
    plane.kubectl("delete", "--ignore-not-found", "namespace/threadtide", "crd/elastictrainingjobs.threadtide.io")
    yield plane


def test_a_cluster_without_room_and_one_that_is_not_there_are_told(bare):
    done = demonstrate(bare)
    assert done.returncode == 1 and "no node has 800 millicores" in done.stderr, done.stderr
    done = demonstrate(bare, "--context", "nowhere")
    assert done.returncode == 1 and "nowhere" in done.stderr, done.stderr
    nothing_is_left(bare, DEFINITION)


def test_what_is_installed_for_the_demo_is_removed_with_it(bare, kwok):
    """A simulated node runs no program: tide-kube is installed, and never decides."""
    kwok.nodes(1, cpu="4", memory="8Gi")
    done = demonstrate(bare, "--image", IMAGE, "--wait", "8")
    assert done.returncode == 1 and "tide-kube: not within 8 s (tide-kube-" in done.stderr, done.stderr
    assert "the demo installs it" in done.stdout and "have to have the images" in done.stdout
    nothing_is_left(bare, "/api/v1/namespaces/threadtide", DEFINITION, "/apis/rbac.authorization.k8s.io/v1/clusterroles/tide-kube")


def test_the_training_grows_and_shrinks_on_a_cluster_that_exists(bare, pod_network, make_runner):
    """Its tide-kube is there before, and stays."""
    plane, virtual = bare, pathlib.Path(sys.executable).parent.parent
    install(plane)
    controller = Controller(plane, "--settle=1s", listen=pod_network.gateway)
    try:
        controller.start()
        make_runner("node-1", cpu="1900m", memory="6Gi", images={IMAGE}, environment={
            "PATH": f"{BUILD}:{virtual}/bin:{os.environ['PATH']}", "VIRTUAL_ENV": str(virtual), "PYTHONPATH": str(ROOT / "python"),
            "OMP_NUM_THREADS": "1"})
        done = demonstrate(plane, "--image", IMAGE)
        assert done.returncode == 0, done.stdout + done.stderr
        grown = re.search(r"without it +1 -> ([2-4])$", done.stdout, re.M)
        assert grown and re.search(r"workers then +1$", done.stdout, re.M), done.stdout
        assert "a tide-kube decides here already" in done.stdout and "installs it" not in done.stdout
        nothing_is_left(plane)
        assert controller.leads() and plane.api("GET", DEFINITION)[0] == 200
    finally:
        controller.end()
