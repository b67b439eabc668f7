# SPDX-License-Identifier: Apache-2.0
"""tide-tfnode as a node of real TensorFlow clients: it computes, parks threads, drains, dies."""

import os
import pathlib
import select
import subprocess
import sys

import pytest
from conftest import BUILT
from peer import GUARD_S, wait_until
from program import (BUILD, HERE, IMPORT_GUARD_S, ROOT, clean_env, tensorflow_pythons,
                     thread_cpu_ns)

sys.path.insert(0, str(ROOT / "python"))
from threadtide.tensorflow import LocalCluster, NodeLinks  # noqa: E402

PRODUCTS = 60
BUSY_NS = 15_000_000  # a thread that takes part in the products uses more; a helper's is less


class Client:
    """node_client.py under a stock TensorFlow."""

    def __init__(self, python, node):
        address = f"127.0.0.1:{node.port}"
        self.process = subprocess.Popen(
            [python, str(HERE / "programs/node_client.py"), node.role, str(node.index), address],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0,
            env=clean_env(TF_CPP_MIN_LOG_LEVEL="3"))
        assert self._line(IMPORT_GUARD_S) == ["ready"]

    def _line(self, guard_s):
        assert select.select([self.process.stdout], [], [], guard_s)[0], "the client hangs"
        return self.process.stdout.readline().decode().split()

    def compute(self, products=PRODUCTS):
        """Device and trace of the products."""
        self.process.stdin.write(b"%d\n" % products)
        return self._line(GUARD_S)

    def end(self):
        self.process.kill()
        self.process.communicate()


class Scene:
    """Two workers, links to them, and a client of the first."""

    def __init__(self, python, directory):
        package = next(pathlib.Path(python).parent.parent.glob(
            "lib*/python3*/site-packages/tensorflow"))
        self.cluster = LocalCluster(
            workers=2, directory=str(directory), program=str(BUILD / "tide-tfnode"),
            tensorflow=str(package), env=clean_env(TIDE_MAX=BUILT, TF_CPP_MIN_LOG_LEVEL=3))
        self.links = NodeLinks()
        self.events = []
        self.nodes = [self.cluster.nodes["worker", index] for index in (0, 1)]
        for node in self.nodes:
            self.links.add(node.role, node.index, "127.0.0.1", node.control_port)
        self.client = Client(python, self.nodes[0])

    def event(self, kind, index):
        """The first such event, already here or still to come."""
        def find():
            self.events += self.links.events()
            return next((e for e in self.events if (e.kind, e.index) == (kind, index)), None)
        return wait_until(find, f"worker {index} is {kind}")

    def end(self):
        if hasattr(self, "client"):
            self.client.end()
        self.links.close()
        self.cluster.close()


@pytest.fixture
def scene(python, tmp_path):
    scene = Scene(python, tmp_path)
    yield scene
    scene.end()


def busy_threads(node, work):
    """How many threads of the process took part in the work."""
    tids = os.listdir(f"/proc/{node.process.pid}/task")
    before = {tid: thread_cpu_ns(node.process.pid, tid) for tid in tids}
    work()
    return sum(thread_cpu_ns(node.process.pid, tid) - before[tid] > BUSY_NS for tid in tids)


def threads_at_work(scene, threads):
    """Those that compute once the node has acknowledged so many."""
    key = ("worker", 0)
    scene.links.set_threads(*key, threads)
    wait_until(lambda: scene.links.states()[key].threads == threads, f"{threads} threads")
    assert scene.links.states()[key].max == BUILT
    return busy_threads(scene.nodes[0], scene.client.compute)


# One test, since each would import TensorFlow anew; the two versions that chiefs may have.
@pytest.mark.parametrize("python", tensorflow_pythons()[:2], indirect=True,
                         ids=lambda p: pathlib.Path(p).parent.parent.name.lstrip("."))
def test_node_computes_parks_acknowledged_threads_is_lost_or_drains_until_released(scene):
    scene.event("ready", 0)
    assert scene.client.compute() == ["/job:worker/replica:0/task:0/device:CPU:0", "512.0"]

    # One thread computes; TensorFlow's executor beside it may do the small operations.
    assert threads_at_work(scene, 1) <= 2
    wait_until(lambda: threads_at_work(scene, 4) >= 3, "four threads share the work")
    assert threads_at_work(scene, 1) <= 2

    scene.event("ready", 1)
    scene.cluster.kill("worker", 1)
    scene.event("lost", 1)
    assert '"index": 1' not in scene.cluster.path.read_text()

    scene.cluster.terminate("worker", 0)
    scene.event("draining", 0)
    assert scene.client.compute()[1] == "512.0"
    scene.links.release("worker", 0)
    scene.event("released", 0)
    assert scene.cluster.wait(scene.nodes[0]) == 0
    assert scene.cluster.nodes == {}
