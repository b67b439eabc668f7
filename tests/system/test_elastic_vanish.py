# SPDX-License-Identifier: Apache-2.0
"""A machine that is gone from one moment to the next: nothing is refused, reset or said. As root.

Each node has a network namespace of its own; to vanish, its side of the wire goes down.
"""

import json
import os
import subprocess
import sys

import pytest

from elastic import Chief, cluster
from program import ROOT, tensorflow_pythons

sys.path[:0] = [str(ROOT / "tests/component"), str(ROOT / "tests/kube")]

from network import PodNetwork, hold_namespaces, inside  # noqa: E402

PYTHON = tensorflow_pythons()[0]
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces: as root")


class Machines:
    """A network, and a namespace in it for each node."""

    def __init__(self, nodes):
        self.nodes, self.network, self.holders = nodes, PodNetwork(), {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for holder, _ in self.holders.values():
            holder.kill()
            holder.wait()
        self.network.end()

    def start(self, role):
        holder = hold_namespaces(role)
        address = self.network.attach(holder)
        enter = ["nsenter", f"--net=/proc/{holder.pid}/ns/net"]
        node = self.nodes.start(role, wrapper=enter, host=address)[0]
        self.holders[role, node.index] = holder, address
        # Packets to a machine that is gone are sent; nobody says that there is no such address.
        link = subprocess.run([*enter, "ip", "-json", "link", "show", "eth0"], check=True,
                              capture_output=True).stdout
        subprocess.run(["ip", "neigh", "replace", address, "lladdr", json.loads(link)[0]["address"],
                        "dev", self.network.name, "nud", "permanent"], check=True)

    def vanish(self, role, index):
        _, address = self.holders[role, index]
        inside(self.network.keeper, f"link set pod{address.rpartition('.')[2]} down")


def test_the_training_goes_on(tmp_path):
    with cluster(PYTHON, ps=0, workers=0) as nodes, Machines(nodes) as machines:
        for role in ("ps", "ps", "worker", "worker", "worker"):
            machines.start(role)
        env = {**nodes.env, "POD_IP": machines.network.gateway}
        with Chief(PYTHON, env, log=tmp_path / "log") as chief:
            chief.run(8)
            chief.begin(24)
            machines.vanish("worker", 1)
            assert chief.stepped() == 32
            assert chief.checkpoint() == 32
            chief.begin(24)
            machines.vanish("ps", 1)
            assert chief.stepped() == 56
            assert "restarted after step 32" in chief.words()
            assert chief.function() < 8  # is told to all nodes of the cluster: none of those two
            machines.start("worker")
            machines.start("ps")
            chief.begin(8)
            chief.wait_nodes(worker=[0, 2, 3], ps=[0, 2])
            assert chief.stepped() == 64
            assert chief.end()["seen"] == [8.0] * 256
