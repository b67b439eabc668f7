# SPDX-License-Identifier: Apache-2.0
"""tide-kube on a real control plane, with simulated nodes: trainings grow, shrink, pause and go;
replicas, the API server and the network fail."""
import json
import re

import pytest

import fault_proxy
from controller import TRAININGS, Controller, admit, kubectl, run_kubectl, training, trains, with_nodes
from daemon import GUARD_S, eventually


@pytest.fixture(scope="module")
def cluster(plane):
    """Two nodes of two cores."""
    yield from with_nodes(plane, {"count": 2, "cpu": "2", "prefix": "node-"})


@pytest.fixture
def start(cluster):
    """start(…): a controller, ended afterwards."""
    running = []

    def begin(*options, lead=True, **more):
        running.append(Controller(cluster, *options, **more))
        return running[-1].start(lead)
    yield begin
    cluster.proxy.forget()
    for one in running:
        one.end()
        # No right is missing: User "…" cannot … A conflict is an operation that cannot be.
        assert one.may_be_forbidden or '" cannot ' not in one.log.read_text(), one.log.read_text()
        assert "AddressSanitizer" not in one.log.read_text(), one.log.read_text()


@pytest.fixture
def train(cluster, namespace):
    yield from trains(cluster, namespace)


def get(plane, namespace, name="job"):
    return plane.must("GET", f"{TRAININGS.format(namespace)}/{name}")


def pods(plane, namespace):
    """Those that are not on their way out."""
    items = plane.must("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    return sorted(i["metadata"]["name"] for i in items if "deletionTimestamp" not in i["metadata"])


def workers(plane, namespace):
    return [name for name in pods(plane, namespace) if "-worker-" in name]


def until_ready(plane, namespace, count, name="job"):
    """So many workers in the training; the status."""
    def there():
        status = get(plane, namespace, name).get("status", {})
        return status.get("workers", {}).get("ready") == count and status
    return eventually(there, 2 * GUARD_S)


def completed(plane, *words):
    """Returns kubectl's offers for the last one, as a shell gets them."""
    status, out, _ = run_kubectl(plane, "__complete", "tide", *words)
    assert status == 0 and out.splitlines()[-1] == ":4", out
    return [line.split("\t")[0] for line in out.splitlines()[:-1]]


def test_a_training_grows_into_the_free_room_and_goes_without_a_trace(cluster, namespace, start, train):
    controller = start()
    chief = train([controller])
    status = until_ready(cluster, namespace, 2)  # of four cores, 1.8 + 1.8 are free for whole workers
    assert status["phase"] == "Running" and status["progress"]["step"] > 0
    assert pods(cluster, namespace)[:2] == ["job-chief", "job-ps-0"]
    assert chief.members["mode"] == "sync" and len(chief.members["worker"]) == 2
    assert chief.members["worker"][0]["host"].count(".") == 3
    assert f"{namespace}/" not in controller.log.read_text()  # nothing was refused, as too old either
    cluster.must("DELETE", f"{TRAININGS.format(namespace)}/job")
    eventually(lambda: cluster.api("GET", f"{TRAININGS.format(namespace)}/job")[0] == 404)
    eventually(lambda: not pods(cluster, namespace))
    metrics = controller.metrics()
    assert metrics['tide_kube_actions_total{action="create pod"}'] >= 4
    assert metrics["tide_kube_synced"] == 1 and metrics["tide_kube_reconciles_total"] > 0


def test_a_namespace_is_deleted_with_its_training(cluster, namespace, start, train):
    """Its pods go first, its training later: meanwhile the controller makes nothing anew. Its rights, which
    go with the training, in any order, go last here."""
    controller = start()
    train([controller])
    until_ready(cluster, namespace, 2)
    space = f"/api/v1/namespaces/{namespace}"
    rights = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings/tide-kube-by-hand"
    cluster.must("PATCH", rights, {"metadata": {"finalizers": ["example.com/hold"]}})
    cluster.must("DELETE", space)
    eventually(lambda: cluster.api("GET", f"{TRAININGS.format(namespace)}/job")[0] == 404, 2 * GUARD_S)
    cluster.must("PATCH", rights, {"metadata": {"finalizers": []}})
    eventually(lambda: cluster.api("GET", space)[0] == 404, 2 * GUARD_S)
    assert controller.log.read_text().count(f"{namespace}/") <= 1, controller.log.read_text()


def test_people_see_and_steer_trainings_by_kubectl(cluster, namespace, start, train):
    chief = train([start()])
    until_ready(cluster, namespace, 2)
    status, out, _ = kubectl(cluster, namespace, "status")
    assert status == 0
    title, line = out.splitlines()
    assert title.split()[:4] == ["NAME", "PHASE", "MODE", "PS"]
    assert line.split()[:5] == ["job", "Running", "sync", "1/1", "(1-1)"] and "2/2 (1-4)" in line
    assert json.loads(kubectl(cluster, namespace, "status", "job", "-o", "json")[1])["kind"] == (
        "ElasticTrainingJob")
    assert kubectl(cluster, namespace, "scale", "job", "1") == (
        0, "elastictrainingjob.threadtide.io/job scaled: 1 worker\n", "")
    until_ready(cluster, namespace, 1)
    eventually(lambda: len(workers(cluster, namespace)) == 1)
    _, out, _ = kubectl(cluster, namespace, "explain", "job")
    assert "is pinned to 1" in out and "Progressing" in out and "job-worker-0" in out
    assert kubectl(cluster, namespace, "scale", "job", "auto")[0] == 0
    assert kubectl(cluster, namespace, "pause", "job")[1].endswith("job paused\n")
    eventually(lambda: get(cluster, namespace)["status"]["phase"] == "Suspended")
    cluster.kubectl("wait", "--for=condition=Suspended", "etj/job", "-n", namespace, "--timeout=20s")
    eventually(lambda: not pods(cluster, namespace))
    assert kubectl(cluster, namespace, "resume", "job")[0] == 0
    until_ready(cluster, namespace, 2)
    assert chief.statuses
    status, _, err = kubectl(cluster, namespace, "pause", "another")
    assert status == 1 and 'elastictrainingjobs.threadtide.io "another" not found' in err
    status, _, err = kubectl(cluster, namespace, "scale", "job", "none")
    assert status == 1 and "use 1 to 1000, or auto" in err
    status, _, err = kubectl(cluster, namespace, "scale", "job", "9")
    assert status == 1 and "between min and max" in err
    assert "did you mean 'status'" in kubectl(cluster, namespace, "statsu")[2]
    help_text = run_kubectl(cluster, "tide", "--help")[1]
    assert completed(cluster, "") == re.findall(r"^  ([a-z]+) ", help_text, re.M)
    assert {f"--{o}" for o in re.findall("--([a-z-]+)", help_text)} == set(
        completed(cluster, "status", "--") + completed(cluster, "dashboard", "--"))
    assert completed(cluster, "scale", "-n", namespace, "") == ["job"]
    assert completed(cluster, "scale", f"--namespace={namespace}", "job", "") == ["auto"]
    assert namespace in completed(cluster, "status", "-n", "")


def test_a_killed_leader_is_followed_and_the_training_does_not_notice(cluster, namespace, start, train):
    first = start()
    second = start(lead=False)
    assert not second.leads()
    chief = train([first, second])
    until_ready(cluster, namespace, 2)
    before, uid, step = pods(cluster, namespace), chief.uid, chief.step
    first.kill()
    eventually(second.leads)
    eventually(lambda: chief.step > step + 20 and chief.where == 1)
    until_ready(cluster, namespace, 2)
    assert pods(cluster, namespace) == before and chief.uid == uid
    kubectl(cluster, namespace, "scale", "job", "1")
    until_ready(cluster, namespace, 1)
    generation = chief.members["generation"]
    kubectl(cluster, namespace, "scale", "job", "auto")
    until_ready(cluster, namespace, 2)
    assert chief.members["generation"] > generation
    # No index is used twice, by whichever leader.
    assert workers(cluster, namespace)[-1] == "job-worker-2"


def test_a_leader_that_ends_gives_the_lease_back(cluster, start):
    first = start("--lease-duration=60s", "--lease-deadline=40s")
    second = start("--lease-duration=60s", "--lease-deadline=40s", lead=False)
    first.end()
    eventually(second.leads)


def test_an_api_server_that_is_gone_stops_nothing_and_is_taken_up_again(cluster, namespace, start, train):
    controller = start("--lease-duration=60s", "--lease-deadline=40s", url=cluster.proxy.url)
    chief = train([controller])
    until_ready(cluster, namespace, 2)
    cluster.proxy.stop()
    step = chief.step
    eventually(lambda: "lost the watch on pods" in controller.log.read_text())
    eventually(lambda: chief.step > step + 20)  # members are answered from memory
    kubectl(cluster, namespace, "scale", "job", "1")
    assert len(workers(cluster, namespace)) == 2
    cluster.proxy.start()
    until_ready(cluster, namespace, 1)


def test_conflicts_refusals_and_lost_answers_change_nothing_but_the_time(
        cluster, namespace, start, train):
    controller = start("--lease-duration=60s", "--lease-deadline=40s", url=cluster.proxy.url)
    seen = {}

    def now_and_then(request):
        """The first two writes of every kind go wrong, each in another way."""
        if request.method == "GET" or "leases" in request.path or "tokenreviews" in request.path:
            return None
        kind = (request.method, request.path.rsplit("/", 1)[-1].rstrip("0123456789"))
        seen[kind] = seen.get(kind, 0) + 1
        faults = (fault_proxy.refuse(409, "Conflict"), fault_proxy.lose(),
                  fault_proxy.refuse(429, "TooManyRequests", retry_after=1), fault_proxy.refuse(500))
        return faults[(len(seen) + seen[kind]) % 4] if seen[kind] <= 2 else None
    cluster.proxy.rule = now_and_then
    train([controller])
    until_ready(cluster, namespace, 2)
    # Indices are used up by attempts that failed; pods are no more than are wanted.
    roles = [name.split("-")[1] for name in pods(cluster, namespace)]
    assert roles == ["chief", "ps", "worker", "worker"]
    assert len(seen) >= 5
    kubectl(cluster, namespace, "pause", "job")
    eventually(lambda: get(cluster, namespace)["status"]["phase"] == "Suspended", 2 * GUARD_S)


def test_a_controller_killed_at_each_of_its_writes_loses_nothing(cluster, namespace, train):
    """One after the other ends by SIGKILL, at its first write, its second, …; every other of these is
    carried out all the same."""
    deaths, live, left = [], [None], [0]

    def die(request):
        if request.method == "GET" or "secrets" in request.path or "tokenreviews" in request.path:
            return None
        left[0] -= 1
        if left[0] > 0:
            return None
        live[0].process.kill()
        deaths.append(f"{request.method} {request.path.rsplit('/', 1)[-1]}")
        return fault_proxy.lose() if len(deaths) % 2 else fault_proxy.refuse(500)

    def live_until(count):
        """Controllers, until so many workers are in the training."""
        for life in range(1, 30):
            left[0] = life
            live[0] = Controller(cluster, "--leader-elect=no", url=cluster.proxy.url)

            def over():
                status = get(cluster, namespace).get("status", {})
                return (live[0].process.poll() is not None or
                        status.get("workers", {}).get("ready") == count and "done")
            done = eventually(over, 2 * GUARD_S) == "done"
            live[0].kill()
            if done:
                return
    chief = train(live)
    cluster.proxy.rule = die
    try:
        live_until(2)
        kubectl(cluster, namespace, "scale", "job", "1")
        live_until(1)
        cluster.proxy.rule = lambda request: None
        live[0] = Controller(cluster, "--leader-elect=no", url=cluster.proxy.url).start()
        eventually(lambda: len(workers(cluster, namespace)) == 1)
        assert [name.split("-")[1] for name in pods(cluster, namespace)] == ["chief", "ps", "worker"]
        eventually(lambda: len(chief.members["worker"]) == 1)
    finally:
        cluster.proxy.forget()
        live[0].kill()
    assert len(deaths) >= 5 and len(set(deaths)) >= 3, deaths


def test_reports_of_others_are_refused(cluster, namespace, start, train):
    controller = start()
    chief = train([controller])
    until_ready(cluster, namespace, 2)
    pod = cluster.must("POST", f"/api/v1/namespaces/{namespace}/pods", {
        "metadata": {"name": "other"}, "spec": {"containers": [{"name": "c", "image": "local/none"}]}})
    chief.token = cluster.token("default", namespace, "threadtide", pod)
    eventually(lambda: chief.statuses[-1] == 409)
    assert get(cluster, namespace)["status"]["workers"]["desired"] == 2


def test_what_others_have_under_the_names_of_a_training_stays_theirs(cluster, namespace, start, train):
    space = f"/api/v1/namespaces/{namespace}"
    theirs = {
        "Service": f"{space}/services/job", "ConfigMap": f"{space}/configmaps/job-ca",
        "Pod": f"{space}/pods/job-chief"}
    bodies = {
        "Service": {"spec": {"clusterIP": "None", "selector": {"app": "redis"}, "ports": [{"port": 6379}]}},
        "ConfigMap": {"data": {"ca.crt": "their own"}},
        "Pod": {"spec": {"containers": [{"name": "c", "image": "local/none"}], "nodeName": "elsewhere"}}}
    made = {kind: cluster.must("POST", path.rpartition("/")[0], {
        "metadata": {"name": path.rpartition("/")[2]}, **bodies[kind]}) for kind, path in theirs.items()}
    train([start()])
    for kind, path in theirs.items():
        def told(kind=kind):
            status = get(cluster, namespace).get("status", {})
            return status.get("reason") == "NameTaken" and f"{kind} job" in status["message"]
        eventually(told)
        now = cluster.must("GET", path)
        for part in ("spec", "data"):
            assert now.get(part) == made[kind].get(part)
        assert "ownerReferences" not in now["metadata"]
        cluster.must("DELETE", path, {"gracePeriodSeconds": 0})
    until_ready(cluster, namespace, 2)
    service = cluster.must("GET", theirs["Service"])
    assert service["spec"]["selector"] == {"threadtide.io/job": "job"}
    assert service["metadata"]["ownerReferences"][0]["kind"] == "ElasticTrainingJob"


def test_a_training_in_a_namespace_that_was_not_given_says_so_and_begins_when_it_is(
        cluster, namespace, start, train):
    bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"
    cluster.must("DELETE", f"{bindings}/tide-kube-by-hand")
    controller = start()
    controller.may_be_forbidden = True
    train([controller])

    def refused():
        status = get(cluster, namespace).get("status", {})
        return status.get("reason") == "Refused" and "forbidden" in status["message"]
    eventually(refused)
    assert not cluster.must("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    admit(cluster, namespace)
    until_ready(cluster, namespace, 2)


def test_the_port_for_probes_tells_no_numbers(cluster, namespace, start):
    port = cluster.address.__class__("127.0.0.1").port()
    running = start(f"--health=127.0.0.1:{port}")
    eventually(lambda: running.ask("/readyz")[0] == 200)
    running.ports[1] = port
    assert [running.ask(path)[0] for path in ("/healthz", "/readyz", "/metrics")] == [200, 200, 404]


def test_a_finalizer_that_came_with_the_manifest_goes_and_others_stay(cluster, namespace, start, train):
    controller = start()
    path = f"{TRAININGS.format(namespace)}/job"
    body = training("job", suspend=True)
    body["metadata"]["finalizers"] = ["example.com/hold", "threadtide.io/drain"]
    cluster.must("POST", TRAININGS.format(namespace), body)
    cluster.must("DELETE", path)
    eventually(lambda: get(cluster, namespace)["metadata"]["finalizers"] == ["example.com/hold"])
    eventually(lambda: get(cluster, namespace)["status"]["phase"] == "Terminating")
    assert controller.metrics()['tide_kube_actions_total{action="remove finalizer"}'] == 1
    cluster.must("PATCH", path, {"metadata": {"finalizers": []}})
    eventually(lambda: cluster.api("GET", path)[0] == 404)


def test_nothing_that_somebody_writes_blinds_the_controller(cluster, namespace, start, train):
    """NUL and numbers beyond 64 bits: the API server takes them, JSON libraries do not."""
    space = f"/api/v1/namespaces/{namespace}"
    body = training("odd", suspend=True, workers={
        "min": 1, "max": 4, "resources": {"requests": {"cpu": "1", "memory": "64Mi"}},
        "template": {"spec": {"number": 10 ** 30, "a\0b": "c\0d"}}})
    cluster.must("POST", TRAININGS.format(namespace), body)
    cluster.must("POST", f"{space}/pods", {
        "metadata": {"name": "odd", "annotations": {"said": "a\0b"}},
        "spec": {"containers": [{"name": "c", "image": "local/none", "args": ["\0"]}]}})
    controller = start()  # lists both
    train([controller])
    until_ready(cluster, namespace, 2)
    eventually(lambda: get(cluster, namespace, "odd")["status"]["phase"] == "Suspended")
    cluster.must("PATCH", f"{TRAININGS.format(namespace)}/odd", {  # a line of the watch
        "metadata": {"annotations": {"said": "c\0d"}}, "spec": {"workers": {"max": 2}}})
    eventually(lambda: get(cluster, namespace, "odd")["status"]["observedGeneration"] == 2)
    assert controller.metrics()["tide_kube_unreadable_total"] == 0
    assert "lost the watch on" not in controller.log.read_text()
    cluster.must("DELETE", f"{TRAININGS.format(namespace)}/odd")


def test_what_other_namespaces_use_is_not_free_for_the_one_looked_after(cluster, namespace, start, train):
    pods_of_others = "/api/v1/namespaces/default/pods"
    cluster.must("POST", pods_of_others, {"metadata": {"name": "theirs"}, "spec": {
        "nodeName": "node-0", "containers": [{
            "name": "c", "image": "local/none", "resources": {"requests": {"cpu": "1500m"}}}]}})
    try:
        train([start(f"--namespace={namespace}")])
        status = until_ready(cluster, namespace, 1)
        assert status["workers"]["desired"] == 1 and len(workers(cluster, namespace)) == 1
    finally:
        cluster.must("DELETE", f"{pods_of_others}/theirs", {"gracePeriodSeconds": 0})


def until_refused(plane, namespace, text):
    def told():
        status = get(plane, namespace).get("status", {})
        return status.get("reason") == "Refused" and text in status["message"] and status
    return eventually(told)


def test_what_the_server_refuses_is_said_and_starves_nothing_else(cluster, namespace, start, train):
    space = f"/api/v1/namespaces/{namespace}"
    label = "pod-security.kubernetes.io/enforce"
    cluster.must("PATCH", space, {"metadata": {"labels": {label: "restricted"}}})
    chief = train([start()])
    status = until_refused(cluster, namespace, "violates PodSecurity")
    degraded = {c["type"]: c for c in status["conditions"]}["Degraded"]
    assert degraded["status"] == "True" and degraded["reason"] == "Refused"
    assert pods(cluster, namespace) == []

    def event():
        items = cluster.must("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
        return any(e["reason"] == "Refused" and "violates PodSecurity" in e["note"] for e in items)
    eventually(event)
    cluster.must("PATCH", space, {"metadata": {"labels": {label: None}}})
    until_ready(cluster, namespace, 2)
    # No worker is made any more: the one that is lost is taken from the chief, and it can be paused.
    cluster.must("POST", f"{space}/limitranges", {"metadata": {"name": "small"}, "spec": {
        "limits": [{"type": "Container", "max": {"cpu": "500m"}}]}})
    cluster.must("DELETE", f"{space}/pods/{workers(cluster, namespace)[0]}", {"gracePeriodSeconds": 0})
    until_refused(cluster, namespace, "500m")
    eventually(lambda: len(chief.members["worker"]) == 1)
    kubectl(cluster, namespace, "pause", "job")
    eventually(lambda: get(cluster, namespace)["status"]["phase"] == "Suspended")
    cluster.must("DELETE", f"{space}/limitranges/small")
    kubectl(cluster, namespace, "resume", "job")
    until_ready(cluster, namespace, 2)


def test_a_trainings_image_needs_none_of_our_software(cluster, namespace, start, train):
    """An init container brings it; the API server takes such pods, with the class they would have."""
    train([start("--node-image=threadtide/tide-node:0.1.0")],
          env=[{"name": "PYTHONPATH", "value": "/mine"}])
    until_ready(cluster, namespace, 2)
    for name in ("job-chief", "job-worker-0"):
        spec = cluster.must("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")["spec"]
        container, init = spec["containers"][0], spec["initContainers"][0]
        assert init["image"] == "threadtide/tide-node:0.1.0"
        assert init["resources"] == container["resources"]
        path = "/opt/threadtide/python:/mine" if name == "job-chief" else "/mine"
        assert {"name": "PYTHONPATH", "value": path} in container["env"]
        mounts = {m["mountPath"]: m["name"] for m in container["volumeMounts"]}
        assert mounts["/opt/threadtide"] == init["volumeMounts"][0]["name"]
        assert container["command"] == (["train"] if name == "job-chief" else ["/opt/threadtide/tide-tfnode"])
