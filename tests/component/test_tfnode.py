# SPDX-License-Identifier: Apache-2.0
"""tide-tfnode itself: its control port, signals and messages. Real TensorFlow, but no training."""
import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

import conftest
from daemon import GUARD_S, eventually

sys.path.insert(0, str(conftest.ROOT / "python"))
from threadtide.tensorflow import NodeLinks, nodes  # noqa: E402
from threadtide.tensorflow.local import find_tensorflow  # noqa: E402

MAX = 4  # threads of the pools, whatever the machine has


class Node:
    """A running tide-tfnode on ports of the kernel's choice."""

    def __init__(self, program, folder, *options, env=()):
        self.log = folder / "node.log"
        command = [program, "--role", "worker", "--index", 3, "--job", "mnist", "--port", 0,
                   "--control-port", 0, "--tensorflow", find_tensorflow(), *options]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                list(map(str, command)), stdin=subprocess.PIPE, stdout=log, stderr=log,
                env={**conftest.plain_env(), "TIDE_MAX": str(MAX), "TF_CPP_MIN_LOG_LEVEL": "2",
                     **dict(env)})
        self.port = int(self.says(r"control port (\d+)")[1])

    def says(self, pattern):
        def find():
            return re.search(pattern, self.log.read_text(errors="replace"))
        return eventually(find)

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), GUARD_S)

    def call(self, method, path, body=None):
        """Status and JSON of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=GUARD_S)
        with contextlib.closing(connection):
            connection.request(method, path, body, {"Content-Type": "application/json"}
                               if method == "POST" else {})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def raw(self, data):
        """Returns all that comes back until the node hangs up."""
        with self.connect() as client:
            client.sendall(data)
            return b"".join(iter(lambda: client.recv(65536), b""))

    def wait(self):
        return self.process.wait(GUARD_S)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()


class Watch:
    """A chief's view: the lines of /v1/watch."""

    def __init__(self, node):
        self.connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=GUARD_S)
        self.connection.request("GET", "/v1/watch")
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200

    def next(self):
        """The next line, or None: the node has ended."""
        try:
            line = self.answer.readline()
        except (http.client.IncompleteRead, ConnectionResetError):
            return None
        return json.loads(line) if line else None

    def until(self, **wanted):
        while True:
            line = self.next()
            assert line, f"it ended before {wanted}"
            if all(line[name] == value for name, value in wanted.items()):
                return line

    def close(self):
        self.connection.close()
        self.answer.close()


@pytest.fixture
def start(build_dir, tmp_path):
    nodes = []

    def start_(*options, **more):
        nodes.append(Node(build_dir / "tide-tfnode", tmp_path, *options, **more))
        return nodes[-1]
    yield start_
    for node in nodes:
        node.end()


@pytest.fixture(scope="module")
def ready(build_dir, tmp_path_factory):
    """A node that listens; tests leave it so."""
    node = Node(build_dir / "tide-tfnode", tmp_path_factory.mktemp("ready"))
    try:
        node.says("TensorFlow .* listens")
        yield node
    finally:
        node.end()


def run(build_dir, *options, **env):
    return subprocess.run([build_dir / "tide-tfnode", *map(str, options)], capture_output=True,
                          text=True, timeout=GUARD_S, stdin=subprocess.DEVNULL,
                          env={**conftest.plain_env(), **env})


def addresses(port):
    """Where somebody listens on a port, in the kernel's hexadecimal."""
    found = set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path("/proc/net", table).read_text().splitlines()[1:]:
            local, state = line.split()[1], line.split()[3]
            if state == "0A" and local.endswith(f":{port:04X}"):
                found.add(local.partition(":")[0])
    return found


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}


def test_both_ports_listen_where_they_are_told_to(start, ready):
    node = start("--bind", "127.0.0.1")
    port = int(node.says(r"listens on port (\d+)")[1])
    for each in (port, node.port):
        assert addresses(each) and addresses(each) <= LOOPBACK
        socket.create_connection(("127.0.0.1", each), GUARD_S).close()
    assert addresses(ready.port) <= LOOPBACK  # it was told nothing


def test_in_a_pod_it_listens_at_all_addresses(start):
    node = start(env={"POD_IP": "127.0.0.1"})
    assert addresses(node.port) == {"0" * 32} or addresses(node.port) == {"0" * 8}


# ---- what a person sees ----

def test_wrong_usage_is_explained(build_dir):
    done = run(build_dir)
    assert done.returncode == 2
    assert "--role ps or --role worker" in done.stderr and "--help" in done.stderr
    done = run(build_dir, "--help")
    assert done.returncode == 0 and done.stdout.startswith("Usage: tide-tfnode")
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_missing_tensorflow_is_told_with_where_it_was_looked_for(build_dir, tmp_path):
    done = run(build_dir, "--role", "ps", "--tensorflow", tmp_path)
    assert done.returncode == 1
    assert f"  {tmp_path}\n  {tmp_path}/tensorflow\n" in done.stderr
    assert "pip install tensorflow" in done.stderr


def test_library_that_is_none_ends_it_with_the_reason(build_dir, tmp_path):
    (tmp_path / "libtensorflow_cc.so.2").write_text("no library")
    done = run(build_dir, "--role", "ps", "--port", 0, "--control-port", 0, "--tensorflow",
               tmp_path)
    assert done.returncode == 1
    assert "libtensorflow_cc.so.2: " in done.stderr


def test_taken_ports_end_it_with_the_reason(build_dir, ready):
    done = run(build_dir, "--role", "ps", "--control-port", ready.port, "--tensorflow",
               find_tensorflow())
    assert done.returncode == 1
    assert f"the control port {ready.port} cannot be opened" in done.stderr
    taken = Watch(ready)
    port = taken.next()["port"]
    taken.close()
    done = run(build_dir, "--role", "ps", "--port", port, "--control-port", 0, "--tensorflow",
               find_tensorflow(), TF_CPP_MIN_LOG_LEVEL="3")
    assert done.returncode == 1
    assert f"did not start on port {port}" in done.stderr


# ---- the control port ----

def test_probes_and_watch_tell_the_state(ready):
    assert ready.call("GET", "/healthz") == (200, {"healthy": True})
    assert ready.call("GET", "/readyz?x") == (200, {"state": "ready"})
    watch = Watch(ready)
    line = watch.until(state="ready")
    assert line["tensorflow"].startswith("2.") and line["port"] > 0
    assert (line["job"], line["role"], line["index"]) == ("mnist", "worker", 3)
    assert line["max"] == MAX and 1 <= line["threads"] <= MAX
    watch.close()


def test_threads_are_acknowledged_and_told_to_watchers(ready):
    watch = Watch(ready)
    free = watch.next()["threads"]
    for threads in (1, 3, MAX):
        assert ready.call("POST", "/v1/threads", json.dumps({"threads": threads})) == (
            200, {"threads": threads})
        watch.until(threads=threads)
    assert ready.call("POST", "/v1/threads", '{"threads": 4096}') == (200, {"threads": MAX})
    assert ready.call("POST", "/v1/threads", '{"threads": 0}') == (200, {"threads": free})
    watch.close()


JSON = b"POST %b HTTP/1.1\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize("request_, status", [
    (b"GET /other HTTP/1.1\r\n\r\n", 404),
    (JSON % b"/healthz" + b"\r\n", 405),
    (b"GET /v1/release HTTP/1.1\r\n\r\n", 405),
    (b"GET /v1/watch HTTP/1.0\r\n\r\n", 505),
    (JSON % b"/v1/threads" + b"Content-Length: 2\r\n\r\n{}", 400),
    (JSON % b"/v1/disconnect" + b"Content-Length: 2\r\n\r\n{}", 400),
    (JSON % b"/v1/release" + b"Origin: http://evil.example\r\n\r\n", 403),
    (JSON % b"/v1/release" + b"Host: evil.example\r\n\r\n", 403),
    (b"GET /v1/watch HTTP/1.1\r\nHost: evil.example:2223\r\n\r\n", 403),
    (b"POST /v1/release HTTP/1.1\r\nContent-Type: text/plain\r\n\r\n", 415),
    (b"POST /v1/release HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 415),
    (b"POST /v1/threads HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 501),
    (b"POST /v1/threads HTTP/1.1\r\nContent-Length: 99999\r\n\r\n", 413),
    (b"GET /" + b"x" * 4000, 413),
    (b"\x16\x03\x01\x00\xa5\x01\x00\n", 400),
])
def test_wrong_requests_are_refused(ready, request_, status):
    head, _, body = ready.raw(request_).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert json.loads(body)["error"]
    assert ready.call("GET", "/readyz")[0] == 200


def test_slow_clients_are_cut_while_watchers_get_a_sign_of_life(ready):
    watch = Watch(ready)
    line = watch.next()
    with ready.connect() as slow, ready.connect() as silent:
        slow.sendall(b"GET /healthz HTTP/1.1\r\n")
        assert slow.recv(1) == b"" and silent.recv(1) == b""
    assert watch.next() == line
    watch.close()


def test_flood_of_clients_leaves_room_for_probes(ready):
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(ready.connect()) for _ in range(70)]
        assert ready.call("GET", "/healthz")[0] == 200
        assert clients[0].recv(1) == b""  # the oldest had to go
        watches = [stack.enter_context(contextlib.closing(Watch(ready))) for _ in range(16)]
        assert ready.call("GET", "/v1/watch")[0] == 503
        assert watches[0].next()["state"] == "ready"
    eventually(lambda: ready.call("GET", "/readyz")[0] == 200)


def test_watcher_that_talks_without_end_is_cut(ready):
    with ready.connect() as client:
        client.sendall(b"GET /v1/watch HTTP/1.1\r\n\r\n")
        assert client.recv(16).startswith(b"HTTP/1.1 200")
        with pytest.raises(OSError):
            for _ in range(10000):
                client.sendall(b"x" * 65536)


@pytest.mark.parametrize("host", ["127.0.0.1", "::ffff:127.0.0.1"])
def test_connections_to_a_machine_that_is_gone_are_ended(ready, host):
    with ready.connect() as gone, ready.connect() as other:
        eventually(lambda: ready.call("POST", "/v1/disconnect", json.dumps(
            {"host": host, "port": gone.getsockname()[1]})) == (200, {"ended": 1}))
        assert gone.recv(1) == b""
        other.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert other.recv(16).startswith(b"HTTP/1.1 200")
    assert ready.call("POST", "/v1/disconnect", '{"host": "a.name", "port": 1}')[0] == 400


# ---- its end ----

def test_without_a_chief_sigterm_ends_it_at_once(start):
    node = start()
    node.process.send_signal(signal.SIGTERM)
    assert node.wait() == 0


def test_while_tensorflow_loads_it_is_not_ready_and_may_be_ended(start, tmp_path):
    os.mkfifo(tmp_path / "libtensorflow_cc.so.2")  # opening it takes for ever
    node = start("--tensorflow", tmp_path)
    watch = Watch(node)
    line = watch.next()
    assert (line["state"], line["threads"], line["max"]) == ("starting", 0, 0)
    assert node.call("GET", "/readyz") == (503, {"state": "starting"})
    assert node.call("GET", "/healthz")[0] == 200
    assert node.call("POST", "/v1/release") == (200, {"released": True})
    assert node.wait() == 0


def test_it_drains_until_it_is_released(start):
    node = start()
    watch = Watch(node)
    watch.next()
    node.process.send_signal(signal.SIGTERM)
    watch.until(state="draining")
    assert node.call("GET", "/readyz") == (503, {"state": "draining"})
    node.says("TensorFlow .* listens")  # it goes on with what it does
    assert node.call("GET", "/readyz") == (503, {"state": "draining"})
    assert node.call("POST", "/v1/release") == (200, {"released": True})
    assert node.wait() == 0
    while watch.next():
        pass


def test_chief_that_hangs_up_releases_a_draining_node(start):
    node = start()
    watch = Watch(node)
    watch.next()
    node.process.send_signal(signal.SIGTERM)
    watch.until(state="draining")
    watch.close()
    assert node.wait() == 0


@pytest.mark.parametrize("end", ["second signal", "grace"])
def test_chief_that_says_nothing_does_not_hold_it(start, end):
    node = start("--grace", 1 if end == "grace" else 600)
    watch = Watch(node)
    watch.next()
    node.process.send_signal(signal.SIGTERM)
    watch.until(state="draining")
    if end == "second signal":
        node.process.send_signal(signal.SIGTERM)
    assert node.wait() == 0


def test_it_ends_with_its_lifeline(start):
    node = start("--lifeline")
    node.process.stdin.close()
    assert node.wait() == 0


def test_without_the_agent_it_works_with_fixed_threads(start, tmp_path):
    node = start("--threads", 2, env={"TIDE_AGENT_DIR": str(tmp_path)})
    node.says("without the agent, its threads are fixed: there is no agent in ")
    watch = Watch(node)
    line = watch.until(state="ready")
    assert (line["threads"], line["max"]) == (2, 2)
    status, body = node.call("POST", "/v1/threads", '{"threads": 1}')
    assert status == 501 and "no agent" in body["error"]
    watch.close()


# ---- a chief's links, against nodes and against what is none ----

def events_until(links, *kinds):
    """Events until each of the kinds has come; all of them."""
    found = []

    def come():
        found.extend(links.events(0.05))
        return set(kinds) <= {event.kind for event in found}
    eventually(come)
    return found


def test_link_finds_a_node_that_starts_later_and_tells_it_its_threads(start):
    with socket.socket() as kept, NodeLinks() as links:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))  # nobody else gets it, and nobody listens
        port = kept.getsockname()[1]
        links.add("worker", 3, "localhost", port)
        links.set_threads("worker", 3, 1)
        assert links.events(0.1) == [] and links.states() == {}
        start("--control-port", port)
        found = events_until(links, "up", "ready", "threads")
        assert [e.kind for e in found][0] == "up" and found[-1].role == "worker"
        eventually(lambda: links.states()["worker", 3].threads == 1)
        links.release("worker", 3)
        assert events_until(links, "released")[-1].kind == "released"
        assert links.states() == {}


def test_node_that_was_released_before_it_came_ends_when_it_does(start):
    with socket.socket() as kept, NodeLinks() as links:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        port = kept.getsockname()[1]
        links.add("worker", 3, "127.0.0.1", port)
        links.release("worker", 3)
        node = start("--control-port", port)
        events_until(links, "released")
        assert node.wait() == 0


def take_request(server):
    """The next connection and its request, with its body."""
    client, _ = server.accept()
    client.settimeout(GUARD_S)
    data = b""
    while b"\r\n\r\n" not in data or not data.endswith((b"}", b"\r\n\r\n")):
        data += client.recv(4096)
    return client, data


def test_of_many_orders_one_is_on_its_way_and_the_last_one_stays():
    """The older of two at once might come last. The peer is a node that takes its time."""
    line = json.dumps({"role": "ps", "index": 0, "state": "ready", "threads": 4}) + "\n"
    answer = b'{"threads": 1}'
    with socket.create_server(("127.0.0.1", 0)) as server, NodeLinks() as links:
        server.settimeout(GUARD_S)
        links.add("ps", 0, "127.0.0.1", server.getsockname()[1])
        with take_request(server)[0] as watch:
            watch.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                          + f"{len(line):x}\r\n{line}\r\n".encode())
            events_until(links, "ready")
            for threads in (1, 2, 3):
                links.set_threads("ps", 0, threads)
            first, request = take_request(server)
            assert request.endswith(b'{"threads": 1}')
            server.settimeout(0.2)
            with first:
                with pytest.raises(TimeoutError):
                    server.accept()
                first.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + answer)
            server.settimeout(GUARD_S)
            second, request = take_request(server)
            second.close()
            assert request.endswith(b'{"threads": 3}')
            third, request = take_request(server)  # again, since nobody answered
            third.close()
            assert request.endswith(b'{"threads": 3}')


def test_a_name_is_not_looked_up_any_more_when_its_node_is_removed(monkeypatch):
    asked = threading.Event()
    look_up = socket.getaddrinfo

    def unknown(host, *args, **kwargs):
        if host != "no-such-node":
            return look_up(host, *args, **kwargs)
        asked.set()
        raise socket.gaierror(socket.EAI_NONAME, "nobody knows it")

    def looking():
        return [t for t in threading.enumerate() if t.name == "tide-resolve-worker-0"]

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with NodeLinks() as links:
        links.add("worker", 0, "no-such-node", 2223)
        assert asked.wait(GUARD_S)
        eventually(looking)
        links.remove("worker", 0)
        eventually(lambda: not looking())


class Clock:
    """Stands for the module `time` of nodes.py, and may be put forward."""

    sleep = staticmethod(time.sleep)

    def __init__(self):
        self.ahead = 0.0

    def monotonic(self):
        return time.monotonic() + self.ahead


@pytest.fixture
def stopped_node(start, monkeypatch):
    """Links to a node that stands still, and their clock."""
    clock = Clock()
    monkeypatch.setattr(nodes, "time", clock)
    node = start()
    node.says("TensorFlow .* listens")
    with NodeLinks() as links:
        links.add("worker", 3, "127.0.0.1", node.port)
        events_until(links, "ready", "threads")
        node.process.send_signal(signal.SIGSTOP)
        yield node, links, clock
        node.process.send_signal(signal.SIGCONT)


def test_silent_node_is_lost(stopped_node):
    _, links, clock = stopped_node
    found = []

    def lost():
        clock.ahead += 0.5
        links.remove("none", 0)  # something to do: it looks at the clock
        found.extend(links.events(0.01))
        return [event for event in found if event.kind == "lost"]
    assert eventually(lost)[0].reason == "it says nothing"
    assert clock.ahead > 10


def test_nodes_that_stood_still_together_with_their_chief_are_not_lost(stopped_node):
    node, links, clock = stopped_node
    clock.ahead += 1000
    links.remove("none", 0)
    assert links.events(0.2) == []
    node.process.send_signal(signal.SIGCONT)
    links.set_threads("worker", 3, 1)
    assert {event.kind for event in events_until(links, "threads")} == {"threads"}


def test_killed_node_is_lost(start):
    node = start()
    with NodeLinks() as links:
        links.add("worker", 3, "127.0.0.1", node.port)
        events_until(links, "up")
        node.process.kill()
        assert events_until(links, "lost")[-1].index == 3


def test_another_node_at_the_address_is_not_taken_for_it(ready):
    with NodeLinks() as links:
        links.add("worker", 4, "127.0.0.1", ready.port)
        links.add("worker", 3, "127.0.0.1", ready.port)
        found = events_until(links, "ready")
        assert {event.index for event in found} == {3}
        assert set(links.states()) == {("worker", 3)}


@pytest.mark.parametrize("answer", [
    b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n[1]\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n[[[[[[\r\n" + b"6\r\n[[[[[[\r\n" * 999,
    b"x" * 20000,
])
def test_what_is_no_node_does_not_disturb_the_other_links(ready, answer):
    with socket.create_server(("127.0.0.1", 0)) as server, NodeLinks() as links:
        server.settimeout(GUARD_S)
        links.add("ps", 0, "127.0.0.1", server.getsockname()[1])
        for _ in range(2):  # it is cut off, and tried again
            client, _ = server.accept()
            with client:
                client.settimeout(GUARD_S)
                client.sendall(answer)
                with contextlib.suppress(ConnectionResetError):
                    while client.recv(65536):
                        pass
        links.add("worker", 3, "127.0.0.1", ready.port)
        events_until(links, "ready")
        assert set(links.states()) == {("worker", 3)}
