# SPDX-License-Identifier: Apache-2.0
"""A node's watts: a real tided and a real tide-power tell a real API server what the power cap leaves to
the node, with the rights of dist/kubernetes/power.yaml and no others; tide-kube obeys."""
import datetime
import subprocess
import threading

import pytest

import kwok
from controller import BUILD, MANIFESTS, TRAININGS, Chief, Controller, install, training, trains
from daemon import GUARD_S, Place, eventually

pytestmark = pytest.mark.skipif(not (BUILD / "tide-power").exists(),
                                reason="tide-power was not built: libmosquitto is missing")
CPU, UNTIL, CAP, DRAW = (f"threadtide.io/power-{what}" for what in ("cpu", "until", "cap", "draw"))
SPACE, ACCOUNT = "threadtide-power", "tide-power"
NODE, OTHER = "watts-0", "watts-1"
CONF = "[daemon]\npower=none\npower-model=points:20,35,75,120\n"  # 16 cores: 20 W idle, 120 W at work


@pytest.fixture(scope="module")
def cluster(plane):
    """Two nodes of 16 cores, and the rights of the DaemonSet. No kubelet: nobody runs its pods."""
    install(plane)
    eventually(lambda: plane.kubectl("apply", "--server-side", "--validate=strict", "-f", str(MANIFESTS / "power.yaml"),
                                     check=False)[0] == 0)  # its namespace may still be on its way out
    nodes = kwok.Kwok(plane).start()
    try:
        nodes.nodes(2, cpu="16", prefix="watts-")
        yield plane
    finally:
        plane.kubectl("delete", "--wait=false", "--ignore-not-found", "-f", str(MANIFESTS / "power.yaml"))
        nodes.end()


@pytest.fixture(scope="module")
def pod_token(cluster):
    """pod_token(NODE): of a pod of the DaemonSet on this node, as its kubelet would get it."""
    def pods():
        found = cluster.must("GET", f"/api/v1/namespaces/{SPACE}/pods")["items"]
        return {p["spec"]["nodeName"]: p for p in found if p["spec"].get("nodeName")}
    eventually(lambda: {NODE, OTHER} <= pods().keys())
    return lambda node: cluster.token(ACCOUNT, SPACE, pod=pods()[node])


@pytest.fixture
def tided(tmp_path):
    place = Place(BUILD / "tided", None)
    conf = place.base / "tide.conf"
    conf.write_text(CONF)
    conf.chmod(0o644)
    yield place.daemon("--cpus", "0-15", "--config", conf).start()
    place.end()


class Node:
    """tide-power of one node, with the files of a service account."""

    def __init__(self, plane, token, folder, socket, valid="4s", node=NODE, port=None):
        self.folder, self.lines = folder, []
        self.folder.mkdir()
        (folder / "..data").mkdir()  # as kubelet lays out a projected volume
        for name, text in (("token", token), ("ca.crt", plane.pki.ca.read_text()), ("tide-power.conf", "")):
            (folder / "..data" / name).write_text(text)
            (folder / name).symlink_to(f"..data/{name}")
        conf = folder / "tide-power.conf"
        conf.write_text(f"[unit]\nstate-dir = {folder}\n[tided]\nsocket = {socket}\n"
                        f"[kubernetes]\ncredentials = {folder}\nvalid = {valid}\n")
        self.process = subprocess.Popen(
            [BUILD / "tide-power", "--config", conf], stderr=subprocess.PIPE, text=True,
            env={"NODE_NAME": node, "KUBERNETES_SERVICE_HOST": plane.address.ip,
                 "KUBERNETES_SERVICE_PORT": str(port or plane.port)})
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))
            print(line, end="")

    def said(self, part):
        return any(part in line for line in self.lines)

    def end(self):
        self.process.terminate()
        assert self.process.wait(GUARD_S) == 0, self.lines


@pytest.fixture
def link(cluster, pod_token, tided, tmp_path):
    """link(…): tide-power of a node, ended afterwards with what it has written."""
    made = []

    def begin(**more):
        made.append(Node(cluster, pod_token(NODE), tmp_path / f"link{len(made)}", tided.dir / "api.sock", **more))
        return made[-1]
    yield begin
    for one in made:
        if one.process.poll() is None:
            one.end()
    cluster.kubectl("annotate", "node", NODE, *(f"{a}-" for a in (CPU, UNTIL, CAP, DRAW)))


def notes(plane, node=NODE):
    return plane.must("GET", f"/api/v1/nodes/{node}")["metadata"].get("annotations", {})


def cores(plane):
    """The cores that the node's annotation allows, None without one."""
    text = notes(plane).get(CPU)
    assert text is None or text.endswith("m")
    return text and int(text[:-1]) / 1000


def cap(tided, watts):
    status, answer = (tided.api("PUT", "/v1/power/cap", {"uw": int(watts * 1e6)}) if watts else
                      tided.api("DELETE", "/v1/power/cap"))
    assert status in (200, 202), answer


def seconds_left(plane):
    end = datetime.datetime.fromisoformat(notes(plane)[UNTIL].replace("Z", "+00:00"))
    return (end - datetime.datetime.now(datetime.timezone.utc)).total_seconds()


def test_the_configuration_of_the_daemonset_is_understood(cluster, tmp_path):
    data = cluster.must("GET", f"/api/v1/namespaces/{SPACE}/configmaps/tide-power")["data"]
    for name, program, option in (("tide.conf", "tided", "--check-config"), ("tide-power.conf", "tide-power", "--check")):
        path = tmp_path / name
        path.write_text(data[name])
        path.chmod(0o644)
        done = subprocess.run([BUILD / program, "--config", path, option], capture_output=True, text=True,
                              env={"NODE_NAME": "ip-1.internal"})
        assert done.returncode == 0, done.stderr
    assert "ip-1-internal" in done.stdout


def test_a_node_says_what_its_cap_allows_as_long_as_it_stands(cluster, tided, link):
    cap(tided, 70)
    node = link()
    eventually(lambda: cores(cluster))
    first = cores(cluster)
    assert 4 < first < 8  # 75 W are half of the cores
    assert -1 < seconds_left(cluster) <= 4
    until = notes(cluster)[UNTIL]
    eventually(lambda: notes(cluster)[UNTIL] > until and cores(cluster) == first)  # told again in time
    cap(tided, 40)
    eventually(lambda: cores(cluster) < first - 2)
    cap(tided, 15)  # below what the idle machine draws
    eventually(lambda: cores(cluster) == 0)
    fields = cluster.must("GET", f"/api/v1/nodes/{NODE}")["metadata"]["managedFields"]
    mine = [f for f in fields if f["manager"] == "tide-power"]
    assert [f["operation"] for f in mine] == ["Apply"]
    assert set(mine[0]["fieldsV1"]["f:metadata"]["f:annotations"]) == {f"f:{a}" for a in (CPU, UNTIL, CAP, DRAW)}
    assert notes(cluster)[CAP] == "15.0" and float(notes(cluster)[DRAW]) >= 20
    cap(tided, None)
    eventually(lambda: not {CPU, UNTIL, CAP, DRAW} & notes(cluster).keys())
    assert notes(cluster)[kwok.ANNOTATION] == "fake"
    assert [line for line in node.lines if "kubernetes" in line] == [f"tide-power: kubernetes: node {NODE} is annotated"]


def test_what_an_earlier_process_left_goes_when_there_is_no_cap(cluster, tided, link):
    cap(tided, 70)
    first = link(valid="2min")
    eventually(lambda: cores(cluster))
    first.process.kill()
    cap(tided, None)
    assert cores(cluster)
    link()
    eventually(lambda: CPU not in notes(cluster))


def test_a_pod_changes_these_annotations_of_its_own_node_and_nothing_else(cluster, pod_token):
    mine = cluster.client(token=pod_token(NODE))
    patch = "application/merge-patch+json"

    def try_patch(node, body, client=mine, path=""):
        status, answer = client.api("PATCH", f"/api/v1/nodes/{node}{path}", body, patch)
        return status, answer.get("message", "")
    eventually(lambda: try_patch(OTHER, {"metadata": {"annotations": {CPU: "1"}}})[0] == 422)  # in force
    assert try_patch(NODE, {"metadata": {"annotations": {CPU: "1", UNTIL: "2030-01-01T00:00:00Z"}}})[0] == 200
    assert try_patch(NODE, {"metadata": {"annotations": {CPU: None, UNTIL: None}}})[0] == 200
    for body in ({"metadata": {"annotations": {"a": "b"}}}, {"metadata": {"annotations": {kwok.ANNOTATION: None}}},
                 {"metadata": {"annotations": {kwok.ANNOTATION: "other"}}},
                 {"metadata": {"labels": {"a": "b"}}}, {"metadata": {"labels": None}},
                 {"metadata": {"finalizers": ["a.b/c"]}}, {"spec": {"unschedulable": True}},
                 {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}},
                 {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x"}]}}):
        status, said = try_patch(NODE, body)
        assert status == 422 and "tide-power changes" in said, (body, status, said)
    status, said = try_patch(OTHER, {"metadata": {"annotations": {CPU: "1"}}})
    assert status == 422 and "the node that its pod runs on" in said
    without_pod = cluster.client(token=cluster.token(ACCOUNT, SPACE))
    assert try_patch(NODE, {"metadata": {"annotations": {CPU: "1"}}}, without_pod)[0] == 422
    for path, body in (("/status", {"status": {"capacity": {"cpu": "1"}}}),):
        assert try_patch(NODE, body, path=path)[0] == 403
    assert mine.api("GET", f"/api/v1/nodes/{NODE}")[0] == 403
    assert mine.api("PATCH", "/api/v1/nodes/new?fieldManager=x&force=true", {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "new"}},
        "application/apply-patch+yaml")[0] == 403  # would make it
    assert CPU not in notes(cluster) and notes(cluster)[kwok.ANNOTATION] == "fake"


def test_tokens_are_read_again_and_an_api_server_that_is_away_is_waited_for(cluster, tided, link, pod_token):
    cap(tided, 70)
    node = link(port=cluster.proxy.port, valid="2s")
    eventually(lambda: cores(cluster))
    (node.folder / "token").write_text("expired")
    eventually(lambda: node.said("cannot be annotated: 401"))
    eventually(lambda: seconds_left(cluster) < 0)  # it ends by itself
    (node.folder / "token").write_text(pod_token(NODE) + "\n")
    eventually(lambda: node.said("works again") and seconds_left(cluster) > 0)
    cluster.proxy.stop()
    try:
        eventually(lambda: sum("annotations end by themselves" in line for line in node.lines) == 2)
        eventually(lambda: seconds_left(cluster) < 0)
    finally:
        cluster.proxy.start()
    eventually(lambda: seconds_left(cluster) > 0, 2 * GUARD_S)
    tided.signal(9)
    eventually(lambda: seconds_left(cluster) < 0)  # nobody knows: nobody says
    assert node.process.poll() is None


def test_trainings_grow_no_further_than_a_nodes_watts_until_nobody_says_so(cluster, tided, link, namespace):
    """Power is cut from the unit: its word ends, and requests alone count again."""
    cluster.kubectl("cordon", OTHER)
    controller = Controller(cluster).start()
    chief = None
    try:
        cap(tided, 55)
        node = link(valid="10s")
        eventually(lambda: cores(cluster))
        room = cores(cluster)
        assert 3 < room < 6
        cluster.must("POST", TRAININGS.format(namespace), training("job", workers={
            "min": 1, "max": 8, "resources": {"requests": {"cpu": "1", "memory": "64Mi"}}}))
        chief = Chief(cluster, namespace, "job", [controller])

        def ready():
            status = cluster.must("GET", f"{TRAININGS.format(namespace)}/job").get("status", {})
            return status.get("workers", {}).get("ready", 0)
        eventually(lambda: ready() >= 2, 2 * GUARD_S)
        steps = chief.step
        eventually(lambda: chief.step > steps + 30)  # it reports on, and stays
        assert ready() + 0.2 <= room
        node.process.kill()
        eventually(lambda: ready() == 8, 2 * GUARD_S)
        assert seconds_left(cluster) < 0
    finally:
        if chief:
            path = f"{TRAININGS.format(namespace)}/job"
            cluster.api("PATCH", path, {"metadata": {"finalizers": []}})
            cluster.api("DELETE", path)
            chief.end()
        controller.end()
        cluster.kubectl("uncordon", OTHER)


@pytest.fixture
def begin(cluster, namespace):
    yield from trains(cluster, namespace)


@pytest.mark.parametrize("power, workers", [({NODE: "3500m"}, {NODE: 3, OTHER: 5}),
                                            ({NODE: "6500m", OTHER: "2500m"}, {NODE: 6, OTHER: 2})], ids=["one", "both"])
def test_the_scheduler_brings_no_worker_to_a_node_whose_watts_are_taken(cluster, namespace, begin, power, workers):
    """Requests alone would bring half of the workers to each: both nodes are as large, and take pods."""
    eventually(lambda: not cluster.must("GET", "/api/v1/pods?labelSelector=threadtide.io/job")["items"], 2 * GUARD_S)  # an earlier test's
    for node, cpu in power.items():
        cluster.kubectl("annotate", "node", node, f"{CPU}={cpu}")
    controller = Controller(cluster).start()

    def places():
        pods = cluster.must("GET", f"/api/v1/namespaces/{namespace}/pods?labelSelector=threadtide.io/role=worker")["items"]
        return [pod["spec"].get("nodeName") for pod in pods]

    def all_run():
        found = places()
        assert all(found.count(node) <= workers[node] for node in power), found
        return len(found) == 8 and None not in found
    try:
        begin([controller], workers={"min": 1, "max": 8, "resources": {"requests": {"cpu": "1", "memory": "64Mi"}}})
        eventually(all_run, 3 * GUARD_S)
        assert {node: places().count(node) for node in workers} == workers
    finally:
        for node in power:
            cluster.kubectl("annotate", "node", node, f"{CPU}-")
        controller.end()
