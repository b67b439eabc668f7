# SPDX-License-Identifier: Apache-2.0
"""Async mode's promises, and a controller that comes and goes; real trainings as in sync mode."""

import base64
import http.server
import json
import pathlib
import ssl
import subprocess
import threading

from elastic import Chief, cluster
from peer import wait_until
from program import tensorflow_pythons

PYTHON = tensorflow_pythons()[0]
EXAMPLES, STEPS_PER_EPOCH = 256, 8


def test_async_applies_at_least_once_and_counts_what_may_be_twice(tmp_path):
    with cluster(PYTHON, workers=2, mode="async") as nodes, Chief(PYTHON, nodes.env,
                                                                  log=tmp_path / "log") as chief:
        # Graceful changes: exactly once, although nobody waits for anybody.
        chief.begin(2 * STEPS_PER_EPOCH)
        nodes.start("worker", 1)
        nodes.leave("worker", 0)
        chief.wait_nodes(worker=[1, 2])
        chief.begin(2 * STEPS_PER_EPOCH)
        nodes.start("ps", 1)
        chief.wait_nodes(ps=[0, 1])
        chief.stepped(), chief.stepped()
        # All workers at once, and a server that cannot wait for others to come.
        chief.begin(4 * STEPS_PER_EPOCH)
        done = chief.report()["step"]
        wait_until(lambda: chief.report()["step"] > done, "steps are under way")
        nodes.nodes["worker", 1].leave = nodes.nodes["worker", 2].leave = True
        nodes.leave("ps", 1)  # one file for the three
        wait_until(lambda: len(nodes.nodes) == 1, "all have ended")
        nodes.start("worker", 2)
        chief.stepped()
        assert chief.report()["duplicates"] == 0
        # A worker is killed: nothing is missing, and what may have been done twice is counted.
        chief.begin(4 * STEPS_PER_EPOCH)
        nodes.kill("worker", 3)
        chief.stepped()
        duplicates = chief.report()["duplicates"]
        end = chief.end()
        steps = 12 * STEPS_PER_EPOCH
        assert steps <= end["applied"] <= steps + duplicates
        excess = sum(end["seen"]) - 12 * EXAMPLES
        assert min(end["seen"]) >= 12 and 0 <= excess <= duplicates * EXAMPLES / STEPS_PER_EPOCH


def test_async_steps_beside_one_that_failed_are_not_done_again(tmp_path):
    """A failed step's number is the next one's, so numbers of those that ended before it would not be theirs alone."""
    with cluster(PYTHON, workers=2, ps=2, mode="async") as nodes, Chief(
            PYTHON, nodes.env, log=tmp_path / "log", checkpoints=str(tmp_path / "kept")) as chief:
        chief.run(STEPS_PER_EPOCH)
        assert chief.checkpoint() == STEPS_PER_EPOCH
        assert chief.stumble(2) == STEPS_PER_EPOCH + 2
        assert chief.checkpoint() == STEPS_PER_EPOCH + 2
        nodes.kill("ps", 1)
        assert chief.run(1) == STEPS_PER_EPOCH + 3
        end = chief.end()
        assert end["report"]["duplicates"] == 0 and end["applied"] == STEPS_PER_EPOCH + 3


class Controller:
    """The controller's side of the channel: TLS, a bearer token, members in the answer."""

    def __init__(self, directory, members):
        self.members, self.reports, self.tokens = members, [], []
        self.stale = None  # what a replica answers that does not know that another leads now
        key, self.ca = directory / "key.pem", directory / "ca.crt"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                        "-keyout", key, "-out", self.ca], check=True, capture_output=True)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(self.ca, key)
        self.port = 0
        self.start()

    def start(self):
        controller = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                assert self.path == "/v1/jobs/lab/train/report"
                controller.tokens.append(self.headers["Authorization"])
                controller.reports.append(body)
                answer = json.dumps({"members": controller.stale or controller.members()}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        self._server.socket = self._context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self):
        self._server.shutdown()
        self._server.server_close()


def token(number):
    claims = {"kubernetes.io": {"namespace": "lab"}, "n": number}
    return "h." + base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=") + ".s"


def test_the_controller_may_go_and_come_back(tmp_path):
    with cluster(PYTHON) as nodes:
        controller = Controller(tmp_path, lambda: json.loads(
            pathlib.Path(nodes.env["TIDE_CLUSTER"]).read_text()))
        secret = tmp_path / "token"
        secret.write_text(token(1))
        env = {"TIDE_CONTROLLER": f"https://localhost:{controller.port}", "TIDE_JOB": "train",
               "TIDE_CONTROLLER_CA": str(controller.ca), "TIDE_TOKEN_FILE": str(secret),
               "TIDE_SLOTS": "3"}  # the controller says 4
        try:
            with Chief(PYTHON, env, log=tmp_path / "log") as chief:
                chief.run(8)
                assert chief.report()["slots"] == 3
                before = controller.members()
                controller.stop()
                chief.begin(24)
                wait_until(lambda: "members: " in chief.words(), "the chief misses the controller")
                assert chief.stepped() == 32
                secret.write_text(token(2))
                nodes.start("worker", 1)
                controller.start()
                chief.wait_nodes(worker=[0, 1])
                controller.stale, told = before, len(controller.reports)
                chief.run(8)
                wait_until(lambda: len(controller.reports) > told + 2, "stale members are told")
                controller.stale = None
                chief.end()
                assert "is no member any more" not in chief.words()
                assert controller.tokens[0] == f"Bearer {token(1)}"
                assert controller.tokens[-1] == f"Bearer {token(2)}"
        finally:
            controller.stop()
    last = controller.reports[-1]
    assert last["finished"] and last["step"] == 40 and last["examples"] == 40 * 32
    assert last["compute_permille"] + last["communication_permille"] == 1000
    told = [p for r in controller.reports for p in r["pauses_ms"]]
    assert told and all(p >= 0 for p in told)  # a worker joined: the pause it made was told
    assert {n["state"] for n in controller.reports[-2]["nodes"]} == {"in"}
