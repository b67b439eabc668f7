# SPDX-License-Identifier: Apache-2.0
"""Requests that the agent reads from a server's sockets, where `tide run --sockets` asks for that; a real tided."""
import concurrent.futures
import http.client
import os
import pathlib
import socket
import ssl
import subprocess
import sys
import time

import pytest

from daemon import GUARD_S, eventually
from program import run, tided  # noqa: F401 (fixtures)

SERVE = pathlib.Path(__file__).parent / "sockets/serve.py"
PYTHON = os.environ.get("TIDE_TF_PYTHONS", sys.executable).split(":")[0]


@pytest.fixture
def serve(run):  # noqa: F811
    """Starts a server of serve.py as a job with a promise; it has .port then."""
    def start(*args, python=PYTHON, options=("--slo", "p99=100ms", "--sockets"), **env):
        program = run(python, SERVE, *args, options=options, **env)
        program.port, *plain = map(int, program.expect("port")[1:])
        program.plain = plain[0] if plain else program.port
        return program
    return start


def job_of(program):
    return next(j for j in program.tided.jobs() if program.process.pid in j["pids"])


def latency(program):
    return job_of(program)["latency"]


def begun(program, ask, times=1):
    """Asks so often until requests are read: the agent begins with the first connection. Returns how many are known."""
    def there():
        for _ in range(times):
            ask()
        return (seen := latency(program)) and seen["requests"]
    eventually(there, pause=0.2)

    def told():  # the last ones, too
        before = latency(program)
        time.sleep(0.5)
        seen = latency(program)
        return seen["in_flight"] == 0 and seen["requests"] == before["requests"] and seen
    seen = eventually(told)
    assert seen["source"] == "sockets"
    return seen["requests"]


def counted(program, number):
    """The latency of its requests, once so many are known and none is in flight."""
    def there():
        seen = latency(program)
        return (seen["requests"], seen["in_flight"]) == (number, 0) and seen
    return eventually(there)


def connect(program, port=None):
    return http.client.HTTPConnection("127.0.0.1", port or program.port, timeout=GUARD_S)


def get(connection, path):
    connection.request("GET", path)
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"hello" * (3 if answer.headers.get("Transfer-Encoding") else 1))


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_requests_of_http_are_read_with_how_long_they_take(serve, kind):
    server = serve(kind)
    connection = connect(server)
    known = begun(server, lambda: get(connection, "/0"))
    for _ in range(40):
        get(connection, "/0.02")
    seen = counted(server, known + 40)
    assert 20_000 <= seen["p99_us"] < 500_000
    said = subprocess.run([server.tided.program.parent / "tide", "explain", job_of(server)["id"]], text=True,
                          capture_output=True, env={**os.environ, "TIDE_DIR": str(server.tided.dir)}).stdout
    assert "estimated from its sockets" in said
    get(connect(server), "/0")
    counted(server, known + 41)


def test_many_connections_at_once_are_in_flight_and_end(serve):
    server = serve("threads")
    known = begun(server, lambda: get(connect(server), "/0"))
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        asked = [pool.submit(lambda: get(connect(server), "/1")) for _ in range(16)]
        eventually(lambda: latency(server)["in_flight"] == 16)
        for one in asked:
            one.result()
    counted(server, known + 16)


def test_a_process_that_the_server_starts_takes_no_request_along(serve):
    """The child of vfork() closes descriptors in its parent's memory."""
    server = serve("threads")
    connection = connect(server)
    known = begun(server, lambda: get(connection, "/0"))
    for _ in range(10):
        get(connection, "/spawn")
    counted(server, known + 10)


def test_a_request_without_an_answer_is_none_that_was_fast(serve):
    server = serve("threads")
    known = begun(server, lambda: get(connect(server), "/0"))
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        get(connect(server), "/0.777")
    seen = counted(server, known + 1)
    assert seen["p99_us"] is None or seen["p99_us"] < 500_000


def test_children_that_accept_count_together(serve):
    server = serve("forks")
    known = begun(server, lambda: get(connect(server), "/0"), times=50)
    for _ in range(30):
        get(connect(server), "/0.002")
    counted(server, known + 30)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(lambda: get(connect(server), "/1")) for _ in range(4)]
        eventually(lambda: latency(server)["in_flight"] == 4)
        for one in asked:
            one.result()


def test_requests_of_grpc_are_streams(serve):
    if subprocess.run([PYTHON, "-c", "import grpc"], capture_output=True).returncode:
        pytest.skip("TIDE_TF_PYTHONS names no Python with grpcio")
    server = serve("grpc")

    def ask(one_by_one, at_once):
        subprocess.run([PYTHON, "-c", f"""
import grpc, concurrent.futures
with grpc.insecure_channel("127.0.0.1:{server.port}") as channel:
    take = channel.unary_unary("/test.Server/Take")
    for _ in range({one_by_one}):
        assert take(b"0.02") == b"done"
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(take, [b"0.05"] * {at_once}))
"""], check=True, timeout=GUARD_S)
    known = begun(server, lambda: ask(1, 0))
    ask(20, 40)
    seen = counted(server, known + 60)
    assert 50_000 <= seen["p99_us"] < 700_000


def stays_alone(server, ask):
    """The thing that @ask asks for is no request, while the same process' plain HTTP is read before, meanwhile and afterwards."""
    plain = connect(server, server.plain)
    known = begun(server, lambda: get(plain, "/0"))
    for _ in range(20):
        ask()
        get(plain, "/0")
    counted(server, known + 20)
    for _ in range(20):
        ask()
        time.sleep(0.05)  # several messages of the agent
    get(plain, "/0")
    counted(server, known + 21)


def test_a_protocol_that_is_no_http_is_left_alone(serve):
    server = serve("echo")
    with socket.create_connection(("127.0.0.1", server.port), timeout=GUARD_S) as peer:
        def ask():
            for data in (b"*1\r\n$4\r\nPING\r\n", bytes(range(256)), b"GET / HTTP/1.1\r\n\r\n"):
                peer.sendall(data)
                back = b""
                while len(back) < len(data):
                    back += peer.recv(4096)
                assert back == data
        stays_alone(server, ask)


def test_tls_is_left_alone(serve, tmp_path):
    key = tmp_path / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-keyout", key, "-out", tmp_path / "cert.pem"], check=True, capture_output=True)
    key.write_text(key.read_text() + (tmp_path / "cert.pem").read_text())
    server = serve("tls", key)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    kept = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=GUARD_S, context=context)

    def ask():
        get(kept, "/0")
        get(http.client.HTTPSConnection("127.0.0.1", server.port, timeout=GUARD_S, context=context), "/0")
    stays_alone(server, ask)


def test_without_the_option_nothing_is_read(serve):
    """As long as begun() would ask, and longer: with the option the first requests are known within a second."""
    server, read = serve("threads", options=("--slo", "p99=100ms")), serve("threads")
    kept = connect(server)

    def ask():
        get(kept, "/0"), get(connect(server), "/0"), get(connect(read), "/0")
    begun(read, ask)
    for _ in range(40):
        ask()
        time.sleep(0.05)
    assert latency(read)["requests"] >= 40
    assert not latency(server) or latency(server)["requests"] == 0


def test_a_promise_that_comes_later_has_them_read_then(serve):
    server = serve("threads", options=("--sockets",))
    connection = connect(server)
    get(connection, "/0")  # the agent begins with the first connection
    eventually(lambda: server.tided.api("PATCH", f"/v1/jobs/{job_of(server)['id']}", {"slo": "p99=50ms"})[0] == 200)

    def told():
        get(connection, "/0.001")
        seen = latency(server)
        return seen and seen["requests"] > 0 and seen["source"] == "sockets"
    eventually(told)
