# SPDX-License-Identifier: Apache-2.0
"""`kubectl tide dashboard`: the page of a real cluster, with the caller's rights, in a real browser."""
import http.client
import json
import os
import pathlib
import re
import shutil
import subprocess
import time

import pytest

import kwok
from controller import BUILD, ROOT, TRAININGS, Chief, Controller, install, training
from daemon import GUARD_S, eventually

UI = ROOT / "ui"
CHROMIUM = [p for p in (os.environ.get("TIDE_CHROMIUM"), "/usr/bin/chromium", "/usr/bin/google-chrome") if p and pathlib.Path(p).exists()]


@pytest.fixture(scope="module")
def cluster(plane):
    """Three nodes of four cores, one of them with a power cap that leaves it one."""
    install(plane)
    nodes = kwok.Kwok(plane).start()
    try:
        nodes.nodes(3, cpu="4", prefix="page-")
        plane.must("PATCH", "/api/v1/nodes/page-2", {"metadata": {"annotations": {
            "threadtide.io/power-cpu": "1", "threadtide.io/power-until": "2100-01-01T00:00:00Z",
            "threadtide.io/power-cap": "80.0", "threadtide.io/power-draw": "55.5"}}})
        yield plane
    finally:
        nodes.end()


class Page:
    """`kubectl tide dashboard` as somebody, and a guest with its cookie."""

    def __init__(self, config, *words):
        self.process = subprocess.Popen([BUILD / "tide-kube", "kubectl", "dashboard", "--no-open", *words],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env={"KUBECONFIG": str(config), "HOME": "/nowhere"})
        self.link = self.process.stdout.readline().strip()
        assert self.link.startswith("http://127.0.0.1:"), self.process.stderr.read()
        self.port = int(re.search(r":(\d+)/", self.link)[1])
        self.cookie = None

    def ask(self, path, method="GET", **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=GUARD_S)
        host = f"127.0.0.1:{self.port}"
        connection.request(method, path, headers={"Host": host, **({"Cookie": self.cookie} if self.cookie else {}), **headers})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, answer.headers, text

    def enter(self):
        status, headers, _ = self.ask(self.link.partition(str(self.port))[2])
        assert status == 303
        self.cookie = headers["Set-Cookie"].partition(";")[0]
        return self

    def cluster(self):
        status, _, text = self.ask("/v1/cluster")
        assert status == 200, text
        return json.loads(text)

    def end(self):
        self.process.terminate()
        assert self.process.wait(GUARD_S) == 0
        assert self.process.stderr.read() == ""


@pytest.fixture
def page(cluster):
    made = []

    def begin(*words, user="admin", **more):
        made.append(Page(cluster.kubeconfig(user, **more), *words))
        return made[-1]
    yield begin
    for one in made:
        if one.process.poll() is None:
            one.end()


@pytest.fixture
def running(cluster, namespace):
    """A training that has grown to what the nodes have, and then shrinks to two workers."""
    controller = Controller(cluster).start()
    cluster.must("POST", TRAININGS.format(namespace), training("digits", workers={
        "min": 1, "max": 4, "resources": {"requests": {"cpu": "1", "memory": "64Mi"}}}))
    chief = Chief(cluster, namespace, "digits", [controller])
    path = f"{TRAININGS.format(namespace)}/digits"

    def ready(count):
        return cluster.must("GET", path).get("status", {}).get("workers", {}).get("ready") == count
    try:
        eventually(lambda: ready(4), 2 * GUARD_S)
        time.sleep(1)  # times of sizes are whole seconds
        cluster.must("PATCH", path, {"spec": {"workers": {"replicas": 2}}})
        eventually(lambda: ready(2), 2 * GUARD_S)
        yield namespace
    finally:
        cluster.api("PATCH", path, {"metadata": {"finalizers": []}})
        cluster.api("DELETE", path)
        chief.end()
        controller.end()


def test_trainings_their_sizes_and_what_is_free_come_with_the_callers_rights(cluster, page, running):
    mine = page().enter()
    status, _, text = mine.ask("/v1/session")
    assert (status, json.loads(text)["server"]) == (200, "cluster")

    def settled():
        found = mine.cluster()
        one, = (t for t in found["trainings"] if t["namespace"] == running)
        return one["sizes"][-1][1:] == [1, 2] and (found, one)
    found, one = eventually(settled)
    assert (one["phase"], one["workers"]["ready"], one["workers"]["max"]) == ("Running", 2, 4)
    assert [1, 4] in [size[1:] for size in one["sizes"]]
    assert all(a[0] < b[0] for a, b in zip(one["sizes"], one["sizes"][1:]))
    nodes = {n["name"]: n for n in found["nodes"]}
    assert nodes.keys() >= {"page-0", "page-1", "page-2"}
    used = sum(n["trainings_mcpu"] for n in nodes.values())
    assert used >= 2200  # two workers, chief, server; pods on their way out count, too
    for name, node in nodes.items():
        most = 1000 if name == "page-2" else node["mcpu"]
        assert node["free_mcpu"] == max(0, most - node["trainings_mcpu"] - node["others_mcpu"])
    assert (nodes["page-2"]["cap_mw"], nodes["page-2"]["draw_mw"], nodes["page-0"]["power_mcpu"]) == (80000, 55500, None)
    assert found["problems"] == []
    only = page("--namespace", "kube-public").enter().cluster()
    assert only["trainings"] == [] and len(only["nodes"]) == len(nodes)

    stranger = page(user="stranger").enter().cluster()  # may do nothing: the page says so, and shows no more
    assert stranger["trainings"] is None and stranger["nodes"] is None
    assert any("cannot list" in p for p in stranger["problems"])


def test_the_page_is_for_its_user_only_shows_and_tells_when_the_api_server_is_away(cluster, page, proxy):
    mine = page(url=proxy.url)
    assert mine.ask("/v1/cluster")[0] == 403
    mine.enter()
    assert page(url=proxy.url).ask(mine.link.partition(str(mine.port))[2])[0] == 403
    host = {"Origin": f"http://127.0.0.1:{mine.port}"}
    assert mine.ask("/v1/cluster", "POST", **host)[0] == 405 and mine.ask("/v1/cluster", "POST")[0] == 403
    assert mine.ask("/v1/jobs")[0] == 404
    mine.cluster()
    proxy.stop()
    eventually(lambda: mine.ask("/v1/cluster")[0] == 502)
    assert "error" in json.loads(mine.ask("/v1/cluster")[2])
    proxy.start()
    eventually(lambda: mine.ask("/v1/cluster")[0] == 200)


@pytest.mark.skipif(not CHROMIUM or not shutil.which("node") or not (UI / "node_modules").exists(),
                    reason="no browser: scripts/setup.sh ui")
def test_the_view_in_a_browser(cluster, page, running):
    done = subprocess.run(["node", "--test", "--test-reporter=spec", "test/cluster/view.mjs"], cwd=UI, capture_output=True,
                          text=True, timeout=4 * GUARD_S,
                          env={**os.environ, "TIDE_CLUSTER_LINK": page().link, "TIDE_CLUSTER_TRAINING": f"{running}/digits"})
    assert done.returncode == 0, done.stdout + done.stderr
