# SPDX-License-Identifier: Apache-2.0
"""A unit in one command: tide-hub token, tide-power enrol over HTTPS, and the real tide-power that comes of it gets its
policy and is revoked."""
import http.server
import json
import re
import shutil
import ssl
import subprocess
import threading

import pytest

from daemon import GUARD_S, eventually
from hub import TOOLS, Serving, end_listener

pytestmark = pytest.mark.skipif(not all(map(shutil.which, TOOLS)),
                                reason="mosquitto-clients and openssl are not installed")
POLICY = "version: 1\norg: unlp\nzone: UTC\nareas:\n- {area: unlp/hall, unit: hall}\nrules:\n- {area: unlp, cap: 700 W}\n"


@pytest.fixture
def hub(build_dir, tmp_path):
    if not (build_dir / "tide-power").exists():
        pytest.skip("tide-power was built without libmosquitto")
    made = Serving(build_dir / "tide-hub", tmp_path)
    (tmp_path / "etc.yaml").write_text(POLICY)
    made.options = ("--policy", tmp_path / "etc.yaml")
    made.start()
    made.serve()
    eventually(lambda: url(made))
    yield made
    made.stop()


def url(hub):
    found = re.findall(r"serving https://[^:]+:(\d+)/", hub.said())
    return f"https://127.0.0.1:{found[-1]}" if found else None


def token(hub, *options):
    code, out, err = hub.run("token", *options)
    assert code == 0, err
    return out.strip()


def enrol(build_dir, hub, secret, *options, folder="lab3", at=None):
    done = subprocess.run([build_dir / "tide-power", "enrol", at or url(hub), secret, "--state", hub.folder / folder,
                           "--config", hub.folder / f"{folder}.conf", *options], capture_output=True, text=True,
                          timeout=GUARD_S)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def unit(build_dir, hub):
    """lab3, enrolled and running; its log."""
    code, said = enrol(build_dir, hub, token(hub, "lab3", "--area", "unlp/lab3"))
    assert code == 0, said
    with open(hub.folder / "unit.log", "ab") as log:
        process = subprocess.Popen([build_dir / "tide-power", "--config", hub.folder / "lab3.conf"], stdout=log,
                                   stderr=log)
    yield hub.folder / "unit.log"
    process.terminate()
    process.wait(GUARD_S)


def last_state(heard):
    """The state that the unit itself last told."""
    told = [line.split(" ", 1)[1] for line in heard.read_text().splitlines() if line.startswith("tide/1/lab3/up/state {")]
    return json.loads(told[-1]) if told else {}


def test_an_enrolled_unit_connects_stands_in_its_area_and_obeys_the_policy(hub, unit):
    eventually(lambda: "lab3: connected (unit" in hub.said())
    assert "- {area: unlp/lab3, unit: lab3}" in hub.run("policy", "show")[1]
    process, heard = hub.listen("hub", "tide/1/lab3/up/state")
    try:
        (hub.folder / "capped.yaml").write_text(hub.run("policy", "show")[1] + "- {area: unlp/lab3, cap: 300 W}\n")
        assert hub.run("policy", "apply", hub.folder / "capped.yaml")[0] == 0
        number = int((hub.state / "policy.yaml").read_text().split()[3])
        eventually(lambda: (last_state(heard).get("policy"), last_state(heard).get("cap_uw")) == (number, 300_000_000))
    finally:
        end_listener(process)
    assert (hub.folder / "lab3/unit.key").stat().st_mode & 0o777 == 0o600
    assert hub.run("policy", "apply", hub.folder / "etc.yaml")[0] == 0  # without lab3


def test_a_token_is_used_once(build_dir, hub):
    secret = token(hub, "lab3")
    assert enrol(build_dir, hub, secret)[0] == 0
    code, said = enrol(build_dir, hub, secret, folder="thief")
    assert code == 1 and "the token is unknown, was used, or has ended" in said
    assert not (hub.folder / "thief/unit.crt").exists()
    code, said = enrol(build_dir, hub, token(hub, "lab3"))
    assert code == 1 and "this is a unit already (--force replaces it)" in said
    code, said = enrol(build_dir, hub, token(hub, "lab3"), "--force")
    assert code == 0 and "stays as it is; it needs:" in said


def test_another_hub_does_not_learn_the_token(build_dir, hub, tmp_path):
    (tmp_path / "other").mkdir()
    other = Serving(build_dir / "tide-hub", tmp_path / "other")
    other.start()
    other.serve()
    try:
        secret = token(hub, "lab3")
        eventually(lambda: url(other))
        code, said = enrol(build_dir, hub, secret, at=url(other))
        assert code == 1 and "is not the hub that made the token" in said
        assert enrol(build_dir, hub, secret)[0] == 0  # it was not used up
    finally:
        other.stop()


def test_wrong_use_says_what_is_right(build_dir, hub):
    code, said = enrol(build_dir, hub, "tide-123")
    assert code == 2 and "this is no token of 'tide-hub token NAME', or not all of it" in said
    code, said = enrol(build_dir, hub, token(hub, "lab3"), at="http://127.0.0.1:1")
    assert code == 2 and "use https://HOST" in said
    code, said = enrol(build_dir, hub, token(hub, "lab3"), at="https://127.0.0.1:1")
    assert code == 1 and "https://127.0.0.1:1" in said
    assert hub.run("token", "Lab 3")[0] == 3
    assert "at most 30 days" in hub.run("token", "lab3", "--for", "31d")[2]


def test_a_revoked_unit_is_cut_off_and_gets_no_new_certificate(build_dir, hub, unit):
    eventually(lambda: "lab3: connected (unit" in hub.said())
    assert hub.run("unit", "revoke", "lab3")[0] == 0
    eventually(lambda: "Reloading config" in hub.log())
    code, said = enrol(build_dir, hub, token(hub, "lab3"), folder="again")
    assert code == 1 and "unit lab3 was revoked" in said


def test_a_cut_that_fails_leaves_no_key_and_is_tried_again(hub, unit):
    eventually(lambda: "lab3: connected (unit" in hub.said())
    (hub.state / "cut.crt").mkdir()  # the hub cannot write its certificate in the unit's name
    assert hub.run("unit", "revoke", "lab3")[0] == 0
    eventually(lambda: "lab3: is revoked, and its connection may be open still" in hub.said())
    assert not (hub.state / "cut.key").exists()
    assert "its connection is cut" not in hub.said()
    (hub.state / "cut.crt").rmdir()
    eventually(lambda: "lab3: is revoked: its connection is cut" in hub.said())
    eventually(lambda: not (hub.state / "cut.key").exists() and not (hub.state / "cut.crt").exists())


def test_a_key_that_a_killed_hub_left_goes_at_the_next_start(hub):
    hub.kill()
    (hub.state / "cut.key").write_text("a key in a unit's name")
    hub.serve()
    eventually(lambda: not (hub.state / "cut.key").exists())


class Liar:
    """A hub with the right authority whose answers are changed."""

    def __init__(self, hub, change):
        outer, self.hub, self.change = self, hub, change

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def answer(self, body):
                text = json.dumps(body).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def do_GET(self):
                self.answer({"ca": (hub.state / "trust/ca.crt").read_text()})

            def do_POST(self):
                self.answer(outer.enrol(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]))

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(hub.state / "broker/broker.crt", hub.state / "broker/broker.key")
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def enrol(self, request):
        path = self.hub.folder / "asked.csr"
        path.write_text(request)
        code, cert, err = self.hub.run("unit", "sign", "lab3", path)
        assert code == 0, err
        return {"name": "lab3", "certificate": cert, "ca": (self.hub.state / "trust/ca.crt").read_text(),
                "seal": (self.hub.state / "trust/seal.pub").read_text(), "broker": "127.0.0.1:1", **self.change}


@pytest.mark.parametrize("change, told", [
    ({}, None),
    ({"broker": "127.0.0.1:1\n\n[meter m]\ntype = command\ncommand = /bin/true"}, "no HOST:PORT"),
    ({"name": "lab4"}, "not for the key made here"),
    ({"name": "../lab3"}, "lacks a name"),
])
def test_a_hub_that_lies_writes_nothing_into_the_configuration(build_dir, hub, change, told):
    liar = Liar(hub, change)
    try:
        code, said = enrol(build_dir, hub, token(hub, "lab3"), at=liar.url)
        assert (code == 0) == (told is None) and (told or "") in said, said
        assert (hub.folder / "lab3.conf").exists() == (hub.folder / "lab3/unit.crt").exists() == (told is None)
    finally:
        liar.server.shutdown()


def test_a_machine_without_a_tided_gets_the_folder_of_its_configuration(build_dir, hub):
    """/etc/tide, whoever's the umask is: another user reads what is in it."""
    config = hub.folder / "etc/tide-power.conf"
    done = subprocess.run([build_dir / "tide-power", "enrol", url(hub), token(hub, "lab3"), "--state", hub.folder / "lab3",
                           "--config", config], capture_output=True, text=True, timeout=GUARD_S, umask=0o077)
    assert done.returncode == 0 and "is written" in done.stdout, done.stdout + done.stderr
    assert "name = lab3\n" in config.read_text()
    assert (config.parent.stat().st_mode & 0o777, config.stat().st_mode & 0o777) == (0o755, 0o644)


def test_a_configuration_that_cannot_be_written_costs_no_token(build_dir, hub):
    secret = token(hub, "lab3")
    (hub.folder / "file").write_text("")
    code, said = enrol(build_dir, hub, secret, "--config", hub.folder / "file/tide/tide-power.conf")
    assert code == 1 and "cannot make" in said, said
    code, said = enrol(build_dir, hub, secret)
    assert code == 0, said


def test_the_token_may_come_from_a_file_and_who_is_enrolled_asks_no_more(build_dir, hub):
    """As the init container of a Kubernetes node does, each time that its pod begins."""
    file = hub.folder / "token"
    file.write_text(token(hub, "node-1") + "\n")
    code, said = enrol(build_dir, hub, f"@{file}", "--keep", folder="node-1")
    assert code == 0 and "this machine is unit node-1 now" in said
    certificate = (hub.folder / "node-1/unit.crt").read_text()
    file.unlink()
    assert enrol(build_dir, hub, f"@{file}", "--keep", folder="node-1", at="https://127.0.0.1:1") == (0, "")
    assert (hub.folder / "node-1/unit.crt").read_text() == certificate


def test_an_expired_certificate_is_refused(hub):
    hub.enrol("lab3")
    assert hub.publish("lab3", "tide/1/lab3/up/event", "{}")[0] == 0
    done = subprocess.run(["openssl", "x509", "-req", "-in", hub.folder / "lab3.csr", "-CA", hub.state / "trust/ca.crt",
                           "-CAkey", hub.state / "trust/ca.key", "-set_serial", "99", "-days", "0", "-out",
                           hub.folder / "lab3.crt"], capture_output=True, text=True, timeout=GUARD_S)
    assert done.returncode == 0, done.stderr
    eventually(lambda: hub.publish("lab3", "tide/1/lab3/up/event", "{}")[0] != 0, pause=0.5)
    eventually(lambda: "expired" in hub.log())
