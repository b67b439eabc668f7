# SPDX-License-Identifier: Apache-2.0
"""tide-pods between a runtime that speaks NRI (nri_runtime.py) and a real tided: containers of pods become jobs, follow
each other, and stay as they are when something of ours, or the runtime, is missing, slow or says nonsense. The real
containerd and kubelet: tests/kube/shared_node.py."""
import os
import signal
import subprocess
import threading
import time
import types

import pytest

from box import ALL, HALVES, N
from daemon import GUARD_S, Peer, UnixConnection, eventually
from nri_runtime import CREATE_CONTAINER, POST_START_CONTAINER, REMOVE_CONTAINER, STOP_CONTAINER, Container, Runtime, adjustment, encode

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="control groups of containers need root")

ELASTIC = {"threadtide.io/elastic": "true"}
EXCLUSIVE = {"threadtide.io/placement": "exclusive"}
INJECT = {"threadtide.io/inject": "true", **ELASTIC}


class Pods:
    """The program, and a fake peer as the first process of each container."""

    def __init__(self, build_dir, place, runtime, tided, *options):
        self.build_dir, self.place, self.runtime, self.tided = build_dir, place, runtime, tided
        self.options, self.process, self.peers = options, None, []
        self.log = place.base / "pods.log"
        self.socket = place.base / "pods.sock"

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [self.build_dir / "tide-pods", "--socket", self.socket, "--nri", self.runtime.path, "--cpu-manager",
                 self.place.base / "cpu_manager_state", *self.options],
                stderr=log, env={**os.environ, "TIDE_DIR": str(self.tided.dir)})
        eventually(lambda: self.answers() or self.process.poll() is not None)
        assert self.answers(), self.log.read_text()
        return self

    def answers(self):
        try:
            return self.ask("GET", "/_ping")[0] == 200
        except OSError:
            return False

    def ask(self, method, path, body=None):
        connection = UnixConnection(self.socket)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        return self.process.wait(GUARD_S)

    def peer(self, container):
        """Starts the container with a fake peer, which speaks through its control directory once there is one."""
        folder = self.tided.dir / "containers" / container.id
        peer = Peer(self.place.peer_program, types.SimpleNamespace(dir=folder), "--max", str(N))
        self.peers.append(peer)
        folder.mkdir(exist_ok=True)
        self.runtime.start(container, peer.pid)
        return peer

    def run(self, name, **more):
        """A container that is made, started and connected."""
        container = Container(name, **more)
        self.runtime.create(container)
        peer = self.peer(container)
        eventually(lambda: self.job(name))
        peer.go()
        peer.expect("welcome")
        return container, peer

    def job(self, name):
        return next((j for j in self.tided.jobs() if j["name"] == f"default.{name}.main"), None)

    def has(self, name, **wanted):
        return eventually(lambda: (j := self.job(name)) and all(j[k] == v for k, v in wanted.items()) and j)

    def end_container(self, container, peer, code=0):
        peer.end()
        self.peers.remove(peer)
        self.runtime.stop(container, code)
        container.groups.remove()
        container.groups = None
        self.runtime.remove(container)

    def end(self):
        for peer in self.peers:
            peer.end()
        if self.process and self.process.poll() is None:
            self.process.terminate()  # it would wait for tided
            time.sleep(0.05)
            assert self.stop() == 0, self.log.read_text()


@pytest.fixture
def runtime(place):
    result = Runtime(place.base)
    yield result
    result.end()


@pytest.fixture
def make(build_dir, place, runtime):
    """make(options of tide-pods): with a tided that watches it."""
    made = []

    def start(*options, policy="equal", tided=None):
        tided = tided or place.daemon("--engine", place.base / "pods.sock", "--policy", policy).start()
        made.append(Pods(build_dir, place, runtime, tided, *options))
        return made[-1].start()
    yield start
    for pods in made:
        pods.end()


def test_pods_are_jobs_by_label_annotation_namespace_or_class(make, runtime, build_dir):
    wanted = {"label": {"labels": ELASTIC}, "note": {"notes": ELASTIC}, "space": {"space": "team"},
              "class": {"qos": "besteffort"}}
    others = {"other": {}, "refuses": {"space": "team", "labels": {"threadtide.io/elastic": "false"}},
              "system": {"space": "kube-system", "labels": ELASTIC}, "ours": {"space": "threadtide", "labels": ELASTIC},
              "training": {"labels": {**ELASTIC, "threadtide.io/job": "digits"}},
              "except": {"labels": ELASTIC, "notes": {"threadtide.io/inject-except": "log, main"}}}
    containers = {name: runtime.add(Container(name, **more)) for name, more in {**wanted, **others}.items()}
    peers = {name: subprocess.Popen(["sleep", "1000"]) for name in containers}
    for name, container in containers.items():
        runtime.start(container, peers[name].pid, notify=False)
    runtime.per_message = 3
    pods = make("--namespace", "team", "--qos", "BestEffort", "--own-namespace", "threadtide")
    try:
        assert runtime.plugin.registered == ["threadtide", "90"]
        eventually(lambda: {j["name"].split(".")[1] for j in pods.tided.jobs()} == set(wanted))
        # The others are in sight for `tide adopt`, but for those that nobody governs.
        cli = [build_dir / "tide", "adopt"]
        env = {**os.environ, "TIDE_DIR": str(pods.tided.dir)}
        assert subprocess.run([*cli, "default.other.main"], env=env, capture_output=True).returncode == 0
        refused = subprocess.run([*cli, "team.refuses.main"], env=env, capture_output=True, text=True)
        assert refused.returncode != 0 and "io.threadtide=false" in refused.stderr, refused.stderr
        absent = subprocess.run([*cli, "kube-system.system.main"], env=env, capture_output=True, text=True)
        assert absent.returncode != 0
    finally:
        for peer in peers.values():
            peer.kill()
            peer.wait()


def test_two_pods_shrink_and_grow_as_a_third_comes_and_goes(make, runtime):
    pods = make()
    first, one = pods.run("one", labels=ELASTIC, notes=EXCLUSIVE)
    pods.has("one", target=N, active=N)
    second, two = pods.run("two", labels=ELASTIC, notes=EXCLUSIVE)
    pods.has("one", target=N // 2, active=N // 2)
    pods.has("two", target=N // 2, active=N // 2)
    eventually(lambda: sorted([first.groups.cpus(), second.groups.cpus()]) == sorted(HALVES))
    pods.end_container(second, two)
    pods.has("one", target=N, active=N)
    eventually(lambda: first.groups.cpus() == ALL)
    eventually(lambda: pods.job("two") is None)
    eventually(lambda: not (pods.tided.dir / "containers" / second.id).exists())
    assert not pods.has("one")["note"]


def test_attributes_of_a_pod_are_those_of_its_job(make, runtime):
    pods = make()
    notes = {"threadtide.io/min": "1", "threadtide.io/weight": "300", "threadtide.io/slo": "p99=50ms", "threadtide.io/priority": "7"}
    pods.run("asks", labels={**ELASTIC, "threadtide.io/max": "1"}, notes=notes)
    job = pods.has("asks", target=1)
    assert (job["min"], job["limit"], job["weight"], job["priority"], job["slo"]) == (1, 1, 300, 7, "p99=50ms")
    pods.run("wrong", labels={**ELASTIC, "threadtide.io/min": "many"})
    assert "min=many" in pods.has("wrong")["note"]


def test_a_persons_word_counts_and_only_the_cluster_ends_a_pod(make, runtime):
    pods = make()
    pods.run("held", labels=ELASTIC)
    job = pods.has("held", target=N)
    assert pods.tided.api("PATCH", f"/v1/jobs/{job['id']}", {"threads": 1})[0] == 200
    pods.has("held", target=1, active=1)
    status, answer = pods.tided.api("DELETE", f"/v1/jobs/{job['id']}")
    assert status == 409 and "kubectl delete pod" in answer["error"]["message"], answer
    assert pods.tided.api("PATCH", f"/v1/jobs/{job['id']}", {"auto": True})[0] == 200
    pods.has("held", target=N)


def test_the_kubelets_limit_is_the_room(make, runtime):
    """An in-place resize, both ways; neither weight nor quota is ever written by us (nri_runtime.py looks)."""
    pods = make()
    container, _ = pods.run("resized", labels=ELASTIC, notes=EXCLUSIVE, quota=N * 100000)
    pods.has("resized", target=N)
    runtime.resize(container, 100000)
    pods.has("resized", target=1, active=1, allowed=1.0)
    time.sleep(2.5)  # tided looks at control groups once a second
    pods.has("resized", target=1)
    runtime.resize(container, N * 100000)
    pods.has("resized", target=N, active=N)
    assert not pods.has("resized")["note"] and "another program" not in pods.tided.log.read_text()


def test_a_limit_that_changed_while_the_adapter_was_away_is_found(make, runtime):
    pods = make()
    container, _ = pods.run("resized", labels=ELASTIC, quota=N * 100000)
    pods.has("resized", target=N)
    pods.kill()
    container.quota = 100000
    container.groups.set(quota=100000)
    pods.start()
    pods.has("resized", target=1, active=1)


def test_an_update_that_does_not_know_the_kubelets_last_word_is_refused(make, runtime):
    pods = make()
    container, _ = pods.run("raced", labels=ELASTIC)
    pods.tided.signal(signal.SIGSTOP)
    try:
        runtime.resize(container, 50000)
        path = f"/v1.41/containers/{container.id}"
        status, answer = pods.ask("POST", f"{path}/update", '{"CpusetCpus": "0"}')
        assert status == 409 and "meanwhile" in answer
        assert '"CpuQuota":50000' in pods.ask("GET", f"{path}/json")[1].replace(" ", "")
        assert pods.ask("POST", f"{path}/update", '{"CpusetCpus": "0"}')[0] == 200
        assert runtime.updates[-1] == (container.id, "0")
    finally:
        pods.tided.signal(signal.SIGCONT)


def test_cores_stay_where_the_kubelets_cpu_manager_places_containers(make, runtime, place):
    (place.base / "cpu_manager_state").write_text('{"policyName": "static", "defaultCpuSet": "0-1", "checksum": 1}')
    pods = make()
    first, _ = pods.run("one", labels=ELASTIC, notes=EXCLUSIVE)
    pods.run("two", labels=ELASTIC, notes=EXCLUSIVE)
    pods.has("one", target=N // 2, active=N // 2)
    pods.has("two", target=N // 2, active=N // 2)
    assert runtime.updates == [] and first.groups.cpus() == ALL
    eventually(lambda: "CPU manager" in (pods.job("one")["note"] or pods.job("two")["note"] or ""))


def test_cores_stay_once_the_kubelet_itself_names_them(make, runtime):
    """As when its CPU manager's policy was changed and its file cannot be seen."""
    pods = make()
    first, _ = pods.run("one", labels=ELASTIC, notes=EXCLUSIVE)
    pods.has("one", target=N)
    runtime.resize(first, cpus=HALVES[0])
    pods.has("one", target=N // 2, active=N // 2)  # the room
    eventually(lambda: "CPU manager" in pods.job("one")["note"])
    eventually(lambda: first.groups.cpus() == HALVES[0])
    assert pods.ask("POST", f"/v1.41/containers/{first.id}/update", '{"CpusetCpus": "0-1"}')[0] == 409
    updates = len(runtime.updates)
    time.sleep(2.5)  # it is not asked for again
    assert len(runtime.updates) == updates and first.groups.cpus() == HALVES[0]


# ---- what a container is given ----

def agent_of(build_dir):
    return str(build_dir / "agent")


def test_a_container_that_asks_gets_agent_socket_and_sizes(make, runtime, build_dir):
    pods = make()
    container = Container("asks", labels=INJECT, quota=100000, env=["PATH=/bin", "LD_PRELOAD=/lib/own.so"])
    given = runtime.create(container)
    control = pods.tided.dir / "containers" / container.id
    assert given["mounts"] == {"/opt/threadtide": agent_of(build_dir), "/run/threadtide": str(control)}
    assert given["options"]["/opt/threadtide"] >= {"ro", "nosuid", "nodev"}
    assert "noexec" not in given["options"]["/opt/threadtide"] and "noexec" in given["options"]["/run/threadtide"]
    assert given["env"]["LD_PRELOAD"] == "/lib/own.so:/opt/threadtide/$LIB/libtide-agent.so" and given["unset"] == ["LD_PRELOAD"]
    assert given["env"]["TIDE_SOCKET"] == "/run/threadtide/agent.sock"
    assert given["env"]["OMP_NUM_THREADS"] == "1" and "PATH" not in given["env"]
    assert control.stat().st_mode & 0o7777 == 0o711 and (control / "startup").exists()


@pytest.mark.parametrize("why, more", [
    ("it does not ask", {"labels": ELASTIC}),
    ("it refuses", {"labels": {**ELASTIC, "threadtide.io/inject": "false"}}),
    ("one of its mounts is there", {"labels": INJECT, "mounts": ["/opt/threadtide"]}),
    ("one of its mounts is around", {"labels": INJECT, "mounts": ["/opt"]}),
    ("one of its mounts is inside", {"labels": INJECT, "mounts": ["/opt/threadtide/lib64"]}),
    ("it is left out", {"labels": INJECT, "notes": {"threadtide.io/inject-except": "main"}}),
    ("it is the system's", {"labels": INJECT, "space": "kube-system"}),
])
def test_a_container_stays_as_it_is(make, runtime, why, more):
    make()
    assert runtime.create(Container("stays", **more))["env"] == {}, why


def test_a_container_with_the_webhooks_agent_gets_its_socket(make, runtime):
    make()
    given = runtime.create(Container("has", labels=INJECT, mounts=["/opt/threadtide"],
                                     env=["LD_PRELOAD=/opt/threadtide/$LIB/libtide-agent.so"]))
    assert set(given["mounts"]) == {"/run/threadtide"} and set(given["env"]) == {"TIDE_SOCKET"}


def test_own_variables_stay(make, runtime):
    make("--inject=yes")
    given = runtime.create(Container("own", labels=ELASTIC, quota=100000, env=["OMP_NUM_THREADS=3", "TIDE_SOCKET=/x"]))
    assert "OMP_NUM_THREADS" not in given["env"] and "TIDE_SOCKET" not in given["env"] and "LD_PRELOAD" in given["env"]


def test_without_an_agent_containers_are_made_all_the_same(make, runtime, place):
    make("--inject=yes", "--agent-dir", str(place.base / "nowhere"))
    assert runtime.create(Container("bare", labels=ELASTIC)) == {"env": {}, "unset": [], "mounts": {}, "options": {}}


# ---- faults ----

def test_a_runtime_of_before_the_dedicated_calls_is_served(make, runtime):
    """NRI before 0.11 tells by StateChange what has a call of its own later."""
    pods = make()
    container = Container("old", labels=ELASTIC)
    runtime.add(container)

    def change(event):
        return runtime.plugin.ask("StateChange", {1: event, 2: container.pod(), 3: container.container()})
    change(CREATE_CONTAINER)
    peer = subprocess.Popen(["sleep", "1000"])
    runtime.start(container, peer.pid, notify=False)
    change(POST_START_CONTAINER)
    pods.has("old")
    peer.kill()
    peer.wait()
    change(STOP_CONTAINER)
    change(REMOVE_CONTAINER)
    eventually(lambda: pods.job("old") is None)
    assert runtime.plugin.call("NoSuchCall", b"")[0] == 12  # unimplemented


def test_the_adapter_is_killed_and_comes_back(make, runtime):
    pods = make()
    first, _ = pods.run("one", labels=ELASTIC, notes=EXCLUSIVE)
    second, _ = pods.run("two", labels=ELASTIC, notes=EXCLUSIVE)
    eventually(lambda: sorted([first.groups.cpus(), second.groups.cpus()]) == sorted(HALVES))
    pods.kill()
    eventually(lambda: not runtime.sessions)
    eventually(lambda: "does not answer" in str(pods.tided.api("GET", "/v1/machine")[1]))
    assert first.groups.cpus() in HALVES  # it stays as it is
    ids = {name: pods.job(name)["id"] for name in ("one", "two")}
    pods.start()
    third, _ = pods.run("three", labels=ELASTIC)
    assert {name: pods.has(name, state="running")["id"] for name in ids} == ids


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_limits_are_restored_when_tided_ends(make, runtime, how):
    pods = make()
    first, _ = pods.run("one", labels=ELASTIC, notes=EXCLUSIVE)
    second, _ = pods.run("two", labels=ELASTIC, notes=EXCLUSIVE)
    eventually(lambda: sorted([first.groups.cpus(), second.groups.cpus()]) == sorted(HALVES))
    pods.tided.signal(how)
    eventually(lambda: first.groups.cpus() == ALL and second.groups.cpus() == ALL)


def test_both_end_at_once_and_limits_are_restored(make, runtime):
    """As when their pod is deleted: the adapter ends after tided."""
    pods = make()
    first, _ = pods.run("one", labels=ELASTIC, notes=EXCLUSIVE)
    second, _ = pods.run("two", labels=ELASTIC, notes=EXCLUSIVE)
    eventually(lambda: sorted([first.groups.cpus(), second.groups.cpus()]) == sorted(HALVES))
    pods.process.terminate()
    pods.tided.process.terminate()
    assert pods.process.wait(GUARD_S) == 0 and pods.tided.process.wait(GUARD_S) == 0
    eventually(lambda: first.groups.cpus() == ALL and second.groups.cpus() == ALL)


def test_a_tided_that_is_told_to_wait_ends_when_limits_are_restored(make, runtime, place):
    """Its guardian would be killed with it, in a pod with the node's processes."""
    tided = place.daemon("--engine", place.base / "pods.sock", "--policy", "equal")
    tided.env = {"TIDE_RESTORE_WAIT": "20"}
    pods = make(tided=tided.start())
    first, _ = pods.run("one", labels=ELASTIC, notes=EXCLUSIVE)
    second, _ = pods.run("two", labels=ELASTIC, notes=EXCLUSIVE)
    eventually(lambda: sorted([first.groups.cpus(), second.groups.cpus()]) == sorted(HALVES))
    runtime.rule = lambda name, cpus: time.sleep(0.5)
    assert tided.stop() == 0
    assert first.groups.cpus() == ALL and second.groups.cpus() == ALL


def test_a_container_that_is_told_of_in_a_broken_way_is_made(make, runtime):
    pods = make()
    for payload in (b"", b"\xff", b"\x0a\xff", os.urandom(200), encode({1: {1: "p"}, 2: {1: "../../etc"}}), encode({2: {1: "x" * 100}})):
        for method in ("CreateContainer", "PostStartContainer", "UpdateContainer", "StopContainer", "RemoveContainer", "StateChange", "Synchronize"):
            code, answer = runtime.plugin.call(method, payload)
            assert code == 0 and adjustment({1: [b""]} if not answer else {})["env"] == {}
    assert pods.answers()


@pytest.mark.parametrize("data", [b"\xff" * 64, b"\0\0\0\1\xff\xff\xff\xff", b"\0\0\0\1\0\0\0\x0a\xff\xff\xff\xff\0\0\0\1\1\0",
                                  b"\0\0\0\2\0\0\0\x0b\0\0\0\1\0\0\0\1\2\0\xff", os.urandom(4096)])
def test_a_runtime_that_says_nonsense_is_left_and_looked_for_again(make, runtime, data):
    pods = make()
    container, _ = pods.run("stays", labels=ELASTIC)
    old = runtime.plugin
    old.socket.sendall(data)
    old.cut()
    eventually(lambda: runtime.sessions and runtime.sessions[-1] is not old)
    eventually(pods.answers)
    pods.has("stays", state="running")
    assert pods.process.poll() is None


def test_a_runtime_that_hangs_up_amid_an_update_is_asked_again(make, runtime):
    pods = make()
    pods.run("one", labels=ELASTIC, notes=EXCLUSIVE)

    def hang_up(name, cpus):
        runtime.rule = None
        runtime.plugin.cut()
        return {}
    runtime.rule = hang_up
    second, _ = pods.run("two", labels=ELASTIC, notes=EXCLUSIVE)
    eventually(lambda: second.groups.cpus() in HALVES)
    pods.has("two", target=N // 2, active=N // 2)


def test_a_slow_runtime_delays_cores_and_nothing_else(make, runtime):
    pods = make()
    first, _ = pods.run("one", labels=ELASTIC, notes=EXCLUSIVE)
    go = threading.Event()

    def wait(name, cpus):
        go.wait(GUARD_S)
    runtime.rule = wait
    container = Container("two", labels=ELASTIC, notes=EXCLUSIVE)
    begin = time.monotonic()
    runtime.create(container)
    peer = pods.peer(container)
    eventually(lambda: pods.job("two"))
    peer.go()
    eventually(lambda: runtime.updates)
    runtime.create(Container("three", labels=INJECT))  # is answered while the update waits
    assert time.monotonic() - begin < 10
    go.set()
    pods.has("two", target=N // 2, active=N // 2)
    eventually(lambda: sorted([first.groups.cpus(), container.groups.cpus()]) == sorted(HALVES))


def test_a_runtime_that_refuses_has_its_way_and_the_job_a_note(make, runtime):
    pods = make()
    runtime.rule = lambda name, cpus: {1: [{1: name}]}
    pods.run("one", labels=ELASTIC, notes=EXCLUSIVE)
    pods.run("two", labels=ELASTIC, notes=EXCLUSIVE)
    try:
        eventually(lambda: "could not change" in pods.job("one")["note"] + pods.job("two")["note"], 8)
    except AssertionError:
        print(pods.tided.log.read_text(), runtime.updates, pods.job("one"))
        raise
    pods.has("one", active=N // 2)


def test_without_a_runtime_it_waits_and_says_so(make, build_dir, place, runtime):
    runtime.listener.close()
    runtime.path.unlink()
    pods = Pods(build_dir, place, runtime, types.SimpleNamespace(dir=place.base / "run"))
    (place.base / "run").mkdir(mode=0o755)
    with open(pods.log, "ab") as log:
        pods.process = subprocess.Popen([build_dir / "tide-pods", "--socket", pods.socket, "--nri", runtime.path], stderr=log,
                                        env={**os.environ, "TIDE_DIR": str(place.base / "run")})
    status, answer = eventually(lambda: pods.socket.exists() and pods.ask("GET", "/_ping"))
    assert status == 503
    eventually(lambda: "no runtime speaks NRI" in pods.ask("GET", "/_ping")[1])
    assert pods.socket.stat().st_mode & 0o777 == 0o600
    pods.end()
    assert not pods.socket.exists()
