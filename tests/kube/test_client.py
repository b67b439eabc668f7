# SPDX-License-Identifier: Apache-2.0
"""src/kube against the API server, and what goes wrong between the two: client, watch, lease."""
import contextlib
import json
import os
import pathlib
import queue
import signal
import subprocess
import threading
import time

import pytest

import fault_proxy
from daemon import GUARD_S, eventually

BUILD = pathlib.Path(os.environ.get("TIDE_BUILD_DIR", "build")).resolve()
PROBE = BUILD / "tests/kube/kube_probe"
FAST = ("1500", "1000", "200")  # of a lease: duration, deadline, retry in ms


class Probe:
    """A running kube_probe; .lines are all that it has said."""

    def __init__(self, config, *words, prefix=()):
        self.lines, self.news = [], queue.Queue()
        self.process = subprocess.Popen([*prefix, PROBE, config, *words], stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def has(self, *lines):
        """All of them, in this order, with others between."""
        rest = iter(list(self.lines))
        return all(any(have == want for have in rest) for want in lines)

    def wait(self, *lines):
        def said():
            assert self.process.poll() is None, f"it has ended: {self.lines}"
            return self.has(*lines)
        try:
            eventually(said)
        except AssertionError:
            raise AssertionError(f"not said: {lines}, but {self.lines[-20:]}") from None

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(GUARD_S) == 0


@contextlib.contextmanager
def probe(config, *words, prefix=()):
    running = Probe(config, *words, prefix=prefix)
    try:
        yield running
        running.end()
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait(GUARD_S)


def ask(config, *words):
    done = subprocess.run([PROBE, config, "ask", *words], capture_output=True, text=True,
                          timeout=GUARD_S)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def configmaps(namespace, name=""):
    return f"/api/v1/namespaces/{namespace}/configmaps{name and '/'}{name}"


def put(plane, namespace, name, value):
    """Creates or changes a ConfigMap; its version."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
            "data": {"v": str(value)}}
    path = f"{configmaps(namespace, name)}?fieldManager=test&force=true"
    return plane.must("PATCH", path, json.dumps(body), "application/apply-patch+yaml")["metadata"][
        "resourceVersion"]


def put_many(plane, namespace, count, start=0):
    return {f"c{i}": put(plane, namespace, f"c{i}", i) for i in range(start, start + count)}


class Model:
    """The objects that a consumer knows; fails on a repeated or impossible change."""

    def __init__(self):
        self.objects, self.used = {}, 0

    def follow(self, lines):
        for line in lines[self.used:]:
            mark, *words = line.split(" ")
            if mark in "+~-":
                key, version = words
                assert (key in self.objects) == (mark != "+"), f"{line} repeats or skips something"
                assert mark != "~" or self.objects[key] != version, f"{line} is no change"
                if mark == "-":
                    del self.objects[key]
                else:
                    self.objects[key] = version
            self.used += 1
        return self.objects


def truth(plane, namespace):
    listed = plane.must("GET", configmaps(namespace))["items"]
    return {f"{namespace}/{i['metadata']['name']}": i["metadata"]["resourceVersion"] for i in listed}


def agrees(plane, namespace, watcher, model):
    """Waits until the consumer knows what the API server has."""
    def equal():
        return model.follow(list(watcher.lines)) == truth(plane, namespace)
    eventually(equal)


@pytest.fixture
def watcher(plane, proxy, namespace):
    """A watch of the namespace's ConfigMaps through the proxy, synced."""
    config = plane.kubeconfig(url=proxy.url)
    put_many(plane, namespace, 3)
    with probe(config, "watch", configmaps(namespace)) as running:
        running.wait("synced")
        yield running


# ---- requests ----

def test_every_kind_of_request_says_what_came_of_it(plane, namespace):
    config = plane.kubeconfig()
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"a": "1"}}
    made = ask(config, "POST", configmaps(namespace), json.dumps(body))
    assert (made["code"], made["status"]) == (0, 201)
    uid = made["body"]["metadata"]["uid"]
    again = ask(config, "POST", configmaps(namespace), json.dumps(body))
    assert (again["reason"], again["code"]) == ("AlreadyExists", -17)
    assert "already exists" in again["text"] and "POST /api/v1" in again["text"]
    applied = ask(config, "APPLY", configmaps(namespace, "one"),
                  json.dumps({**body, "data": {"a": "2"}}))
    assert applied["body"]["data"] == {"a": "2"}
    managers = {m["manager"] for m in applied["body"]["metadata"]["managedFields"]}
    assert managers == {"tide-kube"}
    merged = ask(config, "MERGE", configmaps(namespace, "one"), '{"data":{"b":"3"}}')
    assert merged["body"]["data"] == {"a": "2", "b": "3"}
    old = made["body"]["metadata"]["resourceVersion"]
    late = ask(config, "MERGE", configmaps(namespace, "one"),
               json.dumps({"metadata": {"resourceVersion": old}, "data": {"b": "4"}}))
    assert (late["reason"], late["code"]) == ("Conflict", -11)
    other = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "another"}}
    assert ask(config, "DELETE", configmaps(namespace, "one"), json.dumps(other))["code"] == -11
    other["preconditions"]["uid"] = uid
    assert ask(config, "DELETE", configmaps(namespace, "one"), json.dumps(other))["code"] == 0
    assert ask(config, "GET", configmaps(namespace, "one"))["code"] == -2
    assert ask(config, "POST", configmaps(namespace), "{}")["code"] == -22


def test_who_may_not_is_told_so(plane, namespace):
    token = plane.token("default", namespace)
    refused = ask(plane.kubeconfig(token=token), "GET", configmaps(namespace))
    assert (refused["status"], refused["code"]) == (403, -13)
    assert f"system:serviceaccount:{namespace}:default" in refused["text"]
    unknown = ask(plane.kubeconfig(token="no-token-at-all"), "GET", configmaps(namespace))
    assert (unknown["status"], unknown["code"]) == (401, -13)


def test_a_certificate_of_another_authority_is_refused(plane, namespace, tmp_path):
    config = json.loads(plane.kubeconfig().read_text())
    del config["clusters"][0]["cluster"]["certificate-authority"]
    stranger = tmp_path / "config"
    stranger.write_text(json.dumps(config))
    said = ask(stranger, "GET", configmaps(namespace))
    assert said["code"] == -71 and "certificate" in said["text"]


def test_what_is_refused_for_now_is_asked_again(plane, proxy, namespace):
    config = plane.kubeconfig(url=proxy.url)
    left = [fault_proxy.refuse(429, "TooManyRequests", retry_after=1),
            fault_proxy.refuse(503, "ServiceUnavailable", retry_after=1)]
    proxy.rule = lambda request: left.pop(0) if left else None
    assert ask(config, "GET", configmaps(namespace))["code"] == 0
    times = [request.at for request in proxy.requests]
    assert len(times) == 3 and times[1] - times[0] >= 1 and times[2] - times[1] >= 1
    proxy.rule = lambda request: fault_proxy.refuse(503, "ServiceUnavailable")
    assert ask(config, "GET", configmaps(namespace))["code"] == -16  # it does not say how long


def test_the_rate_is_limited(plane, namespace):
    done = subprocess.run([PROBE, plane.kubeconfig(), "burst", "120", configmaps(namespace)],
                          capture_output=True, text=True, timeout=GUARD_S)
    assert float(done.stdout) >= (120 - 60) / 20 - 0.1


def test_no_server_is_an_answer_too(plane, proxy, namespace):
    config = plane.kubeconfig(url=proxy.url)
    proxy.stop()
    assert ask(config, "GET", configmaps(namespace))["code"] == -107
    proxy.start()
    proxy.rule = lambda request: fault_proxy.lose()
    assert ask(config, "MERGE", configmaps(namespace, "kube-root-ca.crt"), "{}")["code"] in (-104, -74)


# ---- watches ----

def test_changes_are_heard_once_each(plane, namespace, watcher):
    model = Model()
    agrees(plane, namespace, watcher, model)
    put_many(plane, namespace, 5, start=1)
    plane.must("DELETE", configmaps(namespace, "c0"))
    agrees(plane, namespace, watcher, model)
    assert "synced" in watcher.lines and watcher.lines.count("synced") == 1


def test_the_largest_objects_are_read(plane, namespace):
    """A '<' is six bytes of JSON: three of these are more than an answer may have."""
    large = {"data": {"v": "<" * 1000000}}
    for i in range(3):
        plane.must("POST", configmaps(namespace), {"metadata": {"name": f"large{i}"}, **large})
    config = plane.kubeconfig()
    with probe(config, "watch", configmaps(namespace)) as running:
        running.wait("synced")
        assert sum("/large" in line for line in running.lines) == 3
        plane.must("POST", configmaps(namespace), {"metadata": {"name": "large3"}, **large})
        eventually(lambda: any("/large3" in line for line in running.lines))
        assert running.lines.count("synced") == 1  # as a line of the stream


def test_pages_make_one_list(plane, proxy, namespace):
    put_many(plane, namespace, 20)
    config = plane.kubeconfig(url=proxy.url)

    def small(request):
        """The proxy has the API server give pages of three."""
        return shrink if "limit" in request.query and not request.is_watch else None

    def shrink(exchange):
        exchange.path = exchange.path.replace("limit=500", "limit=3")
        exchange.forward()
    proxy.rule = small
    with probe(config, "watch", configmaps(namespace)) as running:
        running.wait("synced")
        agrees(plane, namespace, running, Model())
    assert sum("continue" in request.query for request in proxy.requests) >= 6


def test_a_cut_stream_goes_on_where_it_was(plane, proxy, namespace, watcher):
    model = Model()
    lists = sum(not request.is_watch for request in proxy.requests)
    for after in (1, 300, 1500):
        left = [fault_proxy.cut(after)] * 3
        proxy.rule = lambda request, faults=left: faults.pop() if request.is_watch and faults else None
        proxy.cut()
        put_many(plane, namespace, 4)
        agrees(plane, namespace, watcher, model)
    assert sum(not request.is_watch for request in proxy.requests) == lists, "it was listed anew"


def test_what_was_missed_is_found_by_a_new_list(plane, proxy, namespace, watcher):
    model = Model()
    agrees(plane, namespace, watcher, model)
    left = [fault_proxy.expire(), fault_proxy.refuse(410, "Expired")]
    proxy.rule = lambda request: left.pop() if request.is_watch and left else None
    proxy.stop()
    plane.must("DELETE", configmaps(namespace, "c1"))
    put(plane, namespace, "c2", "new")
    put(plane, namespace, "c9", "new")
    proxy.start()
    agrees(plane, namespace, watcher, model)
    assert not left and watcher.lines.count("synced") >= 2


def test_garbage_is_survived(plane, proxy, namespace, watcher):
    model = Model()

    def garbage(exchange):
        exchange.answer(200, {"type": "ADDED", "object": "this is no object"})
    left = [garbage] * 4
    proxy.rule = lambda request: left.pop() if request.is_watch and left else None
    proxy.cut()
    put_many(plane, namespace, 5)
    agrees(plane, namespace, watcher, model)
    assert not left


def test_a_server_that_is_gone_for_a_while_costs_nothing_but_time(plane, proxy, namespace, watcher):
    model = Model()
    agrees(plane, namespace, watcher, model)
    proxy.stop()
    watcher.wait("lost")
    put_many(plane, namespace, 5)
    plane.must("DELETE", configmaps(namespace, "c0"))
    proxy.start()
    watcher.wait("lost", "back")
    agrees(plane, namespace, watcher, model)


def test_a_slow_stream_is_complete(plane, proxy, namespace, watcher):
    model = Model()
    proxy.rule = lambda request: fault_proxy.slow(0.05) if request.is_watch else None
    proxy.cut()
    put_many(plane, namespace, 10)
    agrees(plane, namespace, watcher, model)


# ---- leases ----

def lease(plane, namespace, name="lead"):
    return plane.must("GET", f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}")[
        "spec"]


def test_one_leads_and_the_next_takes_over_when_it_is_released(plane, namespace):
    config = plane.kubeconfig()
    with probe(config, "lease", namespace, "lead", "a", *FAST) as a:
        a.wait("leading")
        with probe(config, "lease", namespace, "lead", "b", *FAST) as b:
            b.wait("following a")
            assert not b.has("leading")
            a.end()
            b.wait("leading")
            assert a.lines == ["leading", "released"]
            spec = lease(plane, namespace)
            assert spec["holderIdentity"] == "b" and spec["leaseTransitions"] == 1


def test_a_killed_leader_is_followed_when_its_time_is_over(plane, namespace):
    config = plane.kubeconfig()
    a = Probe(config, "lease", namespace, "lead", "a", *FAST)
    a.wait("leading")
    with probe(config, "lease", namespace, "lead", "b", *FAST) as b:
        b.wait("following a")
        a.process.kill()
        a.process.wait(GUARD_S)
        b.wait("leading")


def test_a_leader_that_was_stopped_knows_that_it_leads_no_more(plane, namespace):
    config = plane.kubeconfig()
    with probe(config, "lease", namespace, "lead", "a", *FAST) as a:
        a.wait("leading")
        with probe(config, "lease", namespace, "lead", "b", *FAST) as b:
            b.wait("following a")
            a.process.send_signal(signal.SIGSTOP)
            b.wait("leading")
            a.process.send_signal(signal.SIGCONT)
            a.wait("leading", "following b")
            time.sleep(1)
            assert a.lines.count("leading") == 1 and b.lines == ["following a", "leading"]


def test_a_leader_without_a_server_gives_up_before_anybody_else_may_lead(plane, proxy, namespace):
    with probe(plane.kubeconfig(url=proxy.url), "lease", namespace, "lead", "a", *FAST) as a:
        a.wait("leading")
        with probe(plane.kubeconfig(), "lease", namespace, "lead", "b", *FAST) as b:
            b.wait("following a")
            seen = {}
            proxy.stop()

            def both():
                seen.setdefault("a", time.monotonic() if len(a.lines) > 1 else None)
                if seen["a"] is None:
                    del seen["a"]
                return b.has("leading")
            eventually(both)
            assert "a" in seen, "it still led when the other began to"
            proxy.start()
            a.wait("leading", "following b")
