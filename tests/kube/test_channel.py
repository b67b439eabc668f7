# SPDX-License-Identifier: Apache-2.0
"""The chiefs' channel: certificates that it makes or is given, tokens of real pods, reports."""
import http.client
import importlib.util
import json
import pathlib
import socket
import ssl
import time

import pytest

import control_plane
import fault_proxy
from daemon import GUARD_S, eventually
from test_client import Probe, probe  # noqa: F401  (a fixture)

SECRET = "tide-kube-ca"


def secret(plane, namespace):
    plane.must("POST", f"/api/v1/namespaces/{namespace}/secrets", {"metadata": {"name": SECRET}})


def chief(plane, namespace, name="job-chief"):
    """A pod, as the API server has it: nobody runs it."""
    return plane.must("POST", f"/api/v1/namespaces/{namespace}/pods", {
        "metadata": {"name": name}, "spec": {"containers": [{"name": "tide", "image": "local/none"}]}})


def where(running):
    """(port, authority) of the channel that a probe serves."""
    def said():
        return [i for i, line in enumerate(running.lines) if line == "."]
    end = eventually(said)[-1]
    start = max(i for i, line in enumerate(running.lines[:end]) if line.startswith("port "))
    return int(running.lines[start].split()[1]), "\n".join(running.lines[start + 1:end]) + "\n"


class Chief:
    """Reports over one connection."""

    def __init__(self, running, token, namespace, authority=None, address="127.0.0.1"):
        port, ca = where(running)
        context = ssl.create_default_context(cadata=authority or ca)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        self.connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=GUARD_S, context=context,
                                                      source_address=(address, 0))
        self.token, self.path = token, f"/v1/jobs/{namespace}/job/report"

    def post(self, body, path=None, method="POST"):
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        data = body if isinstance(body, bytes) else json.dumps(body)
        self.connection.request(method, path or self.path, data, headers)
        answer = self.connection.getresponse()
        return answer.status, json.loads(answer.read())


def report(step=1, **more):
    return {"step": step, "epoch": 0, "loss": 1.5, "examples": 10, "examples_per_s": 5.0, "step_s": 0.1,
            "compute_permille": 800, "communication_permille": 200, "finished": False, "pauses_ms": [],
            "duplicates": 0, "nodes": [{"role": "worker", "index": 0, "state": "in", "threads": 2}],
            **more}


@pytest.fixture
def channel(plane, proxy, namespace):  # noqa: F811
    secret(plane, namespace)
    with probe(plane.kubeconfig(url=proxy.url), "channel", namespace, SECRET) as running:
        where(running)
        yield running


def test_a_chief_with_its_pods_token_is_answered(plane, proxy, namespace, channel):  # noqa: F811
    pod = chief(plane, namespace)
    client = Chief(channel, plane.token("default", namespace, "threadtide", pod), namespace)
    for step in range(1, 11):
        status, answer = client.post(report(step))
        assert (status, answer["members"]["generation"]) == (200, 7)
    uid = pod["metadata"]["uid"]
    channel.wait(*(f"{namespace}/job {uid} step {step} nodes 1" for step in range(1, 11)))
    reviews = [r for r in proxy.requests if r.path.endswith("/tokenreviews") and r.status]
    assert len(reviews) == 1, "the API server is asked once, not at each report"


def test_the_python_packages_client_keeps_its_connection_and_finds_the_leader(
        plane, namespace, channel, tmp_path):
    path = pathlib.Path(__file__).resolve().parents[2] / "python/threadtide/tensorflow/members.py"
    spec = importlib.util.spec_from_file_location("members", path)
    members = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(members)
    port, authority = where(channel)
    (tmp_path / "ca.crt").write_text(authority)
    (tmp_path / "token").write_text(plane.token("default", namespace, "threadtide",
                                                chief(plane, namespace)))
    source = members.Controller(f"https://127.0.0.1:{port}", tmp_path / "ca.crt", tmp_path / "token",
                                namespace, "job")
    assert source.exchange(report()).generation == 7
    first = source._connection.sock.getsockname()
    assert source.exchange(report(2)).generation == 7
    assert source._connection.sock.getsockname() == first
    source._connection.sock.shutdown(socket.SHUT_RDWR)  # as a controller that went does
    assert source.exchange(report(3)).generation == 7
    answers = iter([503, 503, 200])
    ask, source._ask = source._ask, lambda *words: (
        (503, b"{}") if next(answers) == 503 else ask(*words))
    assert source.exchange(report(4)).generation == 7


def forged(token):
    return token.rpartition(".")[0] + "." + "x" * 300


def reviews(proxy):  # noqa: F811
    return sum(r.path.endswith("/tokenreviews") and bool(r.status) for r in proxy.requests)


def test_other_tokens_are_refused_with_a_reason(plane, proxy, namespace, channel):  # noqa: F811
    pod = chief(plane, namespace)
    right = plane.token("default", namespace, "threadtide", pod)
    for token, status, words in (
            (None, 401, "send the pod's token"),
            ("nonsense", 401, "no token"),
            ("a.!.c", 401, "no token"), ("a..", 401, "no token"), ("a.e30.c", 401, "another audience"),
            (plane.token("default", namespace, pod=pod), 401, "another audience"),
            (plane.token("default", namespace, "threadtide"), 403, "not a pod's")):
        got, answer = Chief(channel, token, namespace).post(report())
        assert (got, words in answer["error"]["message"]) == (status, True), answer
    got, answer = Chief(channel, right, namespace).post(report(), "/v1/jobs/elsewhere/job/report")
    assert got == 403 and "another namespace" in answer["error"]["message"]
    assert reviews(proxy) == 0, "what they say themselves was enough"
    got, answer = Chief(channel, forged(right), namespace).post(report())
    assert got == 401 and "does not know" in answer["error"]["message"] and reviews(proxy) == 1


def large(size):
    return json.dumps(report()).encode() + b" " * size


def test_little_is_kept_for_who_is_not_known(plane, namespace, channel):
    token = plane.token("default", namespace, "threadtide", chief(plane, namespace))
    assert Chief(channel, token, namespace).post(large(100_000))[0] == 503
    client = Chief(channel, token, namespace)  # its token is known now
    assert client.post(large(100_000))[0] == 200
    # Large reports of a known token have a limit, too; usual ones are taken beyond it.
    # The last that was given up leaves less room than one of these has, and that is less than `full`.
    half = [Chief(channel, token, namespace).connection for _ in range(180)]
    for connection in half:
        connection.putrequest("POST", client.path)
        connection.putheader("Authorization", f"Bearer {token}")
        connection.putheader("Content-Length", 250_000)
        connection.endheaders(b" " * 200_000)

    def full():
        status, answer = Chief(channel, token, namespace).post(large(250_000))
        return status == 503 and "too many large reports" in answer["error"]["message"]
    eventually(full)
    # full() may have used up what the pod may report now (429); and a connection that waits for long is closed.
    eventually(lambda: Chief(channel, token, namespace).post(report())[0] == 200)
    for connection in half:
        connection.close()
    eventually(lambda: Chief(channel, token, namespace).post(large(250_000))[0] == 200)


def test_who_floods_with_forged_tokens_takes_nothing_from_others(plane, proxy, namespace, channel):  # noqa: F811
    pod = chief(plane, namespace)
    token = plane.token("default", namespace, "threadtide", pod)
    loud = Chief(channel, None, namespace, address="127.0.0.2")
    statuses, begun = [], time.monotonic()
    for n in range(150):
        loud.token = forged(token) + str(n)
        statuses.append(loud.post(report())[0])
    asked = 20 + 2 * (time.monotonic() - begun) + 1  # at once, and two a second
    assert statuses[:20] == [401] * 20 and set(statuses) == {401, 429}
    assert 20 <= statuses.count(401) <= asked and reviews(proxy) <= asked
    assert Chief(channel, token, namespace).post(report())[0] == 200


def test_idle_connections_leave_descriptors_for_the_api_server(plane, proxy, namespace):  # noqa: F811
    secret(plane, namespace)
    tokens = [plane.token("default", namespace, "threadtide", chief(plane, namespace, name))
              for name in ("first", "second")]
    config = plane.kubeconfig(url=proxy.url)
    with probe(config, "channel", namespace, SECRET, prefix=("prlimit", "--nofile=300")) as running:
        client = Chief(running, tokens[0], namespace)
        assert client.post(report())[0] == 200
        idle = [socket.create_connection(("127.0.0.1", client.connection.port),
                                         source_address=(f"127.0.1.{n % 16 + 1}", 0)) for n in range(400)]
        files = pathlib.Path(f"/proc/{running.process.pid}/fd")
        eventually(lambda: len(list(files.iterdir())) > 115)  # three quarters of 150, and its own
        proxy.cut()
        client.token = tokens[1]  # about which it has to ask
        assert client.post(report())[0] == 200
        assert len(list(files.iterdir())) < 150
        for one in idle:
            one.close()


def test_a_handshake_that_comes_by_the_byte_has_an_end(plane, namespace, channel):
    """A byte every quarter of a second is never silent, and never done."""
    client = Chief(channel, plane.token("default", namespace, "threadtide", chief(plane, namespace)), namespace)
    assert client.post(report())[0] == 200
    with socket.create_connection(("127.0.0.1", client.connection.port)) as slow:
        slow.settimeout(0.25)
        begun, hello = time.monotonic(), b"\x16\x03\x01\x10\x00\x01\x00\x0f\xfc\x03\x03" + bytes(4096)
        for n in range(int(GUARD_S * 4)):
            try:
                slow.send(hello[n:n + 1])
                if not slow.recv(1):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        assert 9 < time.monotonic() - begun < GUARD_S
    assert client.post(report())[0] == 200


def test_hostile_reports_are_refused_and_the_channel_goes_on(plane, namespace, channel):
    pod = chief(plane, namespace)
    client = Chief(channel, plane.token("default", namespace, "threadtide", pod), namespace)
    for body in (b"", b"[]", b"{", b"{\"step\":-1}", report(step="x"), report(nodes="x"),
                 report(nodes=[{"role": "king", "index": 0, "state": "in", "threads": 1}]),
                 b'{"a":' * 3000):
        status, answer = client.post(body)
        assert status == 400 and answer["error"]["message"], (body, answer)
    assert client.post(report(), "/v1/jobs")[0] == 404
    assert client.post(report(), method="PUT")[0] == 405
    client.connection.request("POST", client.path, b"x" * (300 << 10),
                              {"Authorization": f"Bearer {client.token}"})
    assert client.connection.getresponse().status == 413
    assert Chief(channel, client.token, namespace).post(report())[0] == 200


def test_a_talkative_pod_is_slowed_down_and_no_other(plane, namespace, channel):
    loud, quiet = (Chief(channel, plane.token("default", namespace, "threadtide",
                                              chief(plane, namespace, name)), namespace)
                   for name in ("loud", "quiet"))
    got = [loud.post(report())[0] for _ in range(60)]
    assert got[:10] == [200] * 10 and 429 in got
    assert quiet.post(report())[0] == 200


def test_without_an_api_server_known_tokens_count_and_others_are_to_come_again(
        plane, proxy, namespace, channel):  # noqa: F811
    known = Chief(channel, plane.token("default", namespace, "threadtide", chief(plane, namespace)),
                  namespace)
    other = Chief(channel, plane.token("default", namespace, "threadtide",
                                       chief(plane, namespace, "other")), namespace)
    assert known.post(report())[0] == 200
    proxy.rule = lambda request: fault_proxy.refuse(500) if "tokenreviews" in request.path else None
    assert known.post(report())[0] == 200
    assert other.post(report())[0] == 503
    proxy.rule = lambda request: None
    assert other.post(report())[0] == 200


def test_replicas_share_an_authority_and_a_restart_keeps_it(plane, namespace, channel):
    with probe(plane.kubeconfig(), "channel", namespace, SECRET) as second:
        assert where(second)[1] == where(channel)[1]
        pod = chief(plane, namespace)
        token = plane.token("default", namespace, "threadtide", pod)
        assert Chief(second, token, namespace, where(channel)[1]).post(report())[0] == 200


def test_two_that_begin_at_once_agree_on_one_authority(plane, namespace):
    secret(plane, namespace)
    config = plane.kubeconfig()
    running = [Probe(config, "channel", namespace, SECRET) for _ in range(3)]
    try:
        assert len({where(one)[1] for one in running}) == 1
    finally:
        for one in running:
            one.end()


def test_given_files_are_served_and_read_again_when_they_change(plane, namespace, tmp_path):
    """When somebody else signs them, pods learn of it first."""
    def install(name, pki):
        certificate, key = pki.issue(name, name, hosts=("127.0.0.1",))
        for source, target in ((pki.ca, "ca.crt"), (key, "tls.key"), (certificate, "tls.crt")):
            (tmp_path / f"{target}.new").write_bytes(source.read_bytes())
            (tmp_path / f"{target}.new").rename(tmp_path / target)

    def common_name(authority):
        context = ssl.create_default_context(cadata=authority)
        connection = http.client.HTTPSConnection("127.0.0.1", where(running)[0], timeout=GUARD_S,
                                                 context=context)
        connection.connect()
        names = dict(pair for part in connection.sock.getpeercert()["subject"] for pair in part)
        connection.close()
        return names["commonName"]

    def known():
        return where(running)[1].count("BEGIN CERTIFICATE")
    old = plane.pki.ca.read_text()
    install("first", plane.pki)
    files = [str(tmp_path / name) for name in ("tls.crt", "tls.key", "ca.crt")]
    with probe(plane.kubeconfig(), "channel", namespace, SECRET, *files) as running:
        assert common_name(old) == "first" and known() == 1
        install("second", plane.pki)
        eventually(lambda: common_name(old) == "second")
        others = control_plane.Authority(tmp_path / "pki")
        install("third", others)
        eventually(lambda: known() == 2)
        both = where(running)[1]
        assert common_name(both) in ("second", "third")  # whoever has read it gets on in any case
        eventually(lambda: common_name(both) == "third")
        eventually(lambda: known() == 1)
        assert common_name(where(running)[1]) == "third"
