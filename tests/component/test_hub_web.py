# SPDX-License-Identifier: Apache-2.0
"""The hub's REST interface: who may do what, what is answered, what harms nobody."""
import fcntl
import json
import re
import socket
import ssl
import subprocess
import threading
import time

import pytest

from conftest import ROOT
from daemon import GUARD_S, eventually
from hub import KWH
from hub_web import PASSWORD, POLICY, Hub, areas, needs_tools
from hub_web import hub  # noqa: F401 (a fixture)
from permissions import table_behind
from test_tided_observe import read_yaml

pytestmark = needs_tools

DESCRIPTION = read_yaml((ROOT / "docs/openapi-hub.yaml").read_text())


# ---- who may do what ----

BODIES = {"POST /v1/login": {"user": "eve", "password": "not a password"},
          "POST /v1/me/password": {"old": "not a password", "new": "x"},
          "POST /v1/areas/unlp/switches/ac": {"on": False}, "PUT /v1/policy": {"text": "", "number": 99},
          "POST /v1/policy/check": {"text": ""}, "POST /v1/tokens": {"name": "No Name"},
          "POST /v1/enrol": {"token": "none", "request": "none"},
          "POST /v1/users": {"user": "No Name", "role": "viewer", "password": PASSWORD},
          "PATCH /v1/users/eve": {"role": "viewer"}}


def refused(client, request):
    """Whether it is refused for who asks; whatever else may be wrong with it."""
    method, path = request.split()
    if path == "/v1/events":
        connection = client.connect()
        connection.request(method, path, headers=client.headers())
        status = connection.getresponse().status
        connection.close()
        return status != 200
    body = BODIES.get(request)
    _, headers, text = client.raw(method, path, None if body is None else json.dumps(body))
    if "json" not in headers["Content-Type"]:
        return False
    message = (json.loads(text) if text else {})
    message = message["error"]["message"] if isinstance(message, dict) and "error" in message else ""
    assert "there is no /" not in message and "cannot be done to" not in message, message
    return message == "nobody is logged in" or ": this takes " in message


def test_each_role_may_do_what_the_table_says(hub):  # noqa: F811
    who = {"nobody": hub.guest(), **{role: hub.script(name) for name, role in (
        ("vera", "viewer"), ("olga", "operator"), ("ada", "administrator"))}}
    asked = set()
    for row, cells in table_behind("## At the hub"):
        if row.startswith("others' energy"):
            continue  # below, with energy
        for request in re.findall(r"`([A-Z]+ /[^`]+)`", row):
            asked.add(request.split("?")[0])
            for role, client in who.items():
                assert refused(client, request) == (cells[role] == "no"), (row, request, role)
    described = {f"{method.upper()} {path}" for path, methods in DESCRIPTION["paths"].items() for method in methods}
    patterns = [re.compile(re.sub(r"\{area\}", "unlp", re.sub(r"\{name\}", "[^/]+", each))) for each in described]
    for pattern in patterns:
        assert any(pattern.fullmatch(request) for request in asked), f"no row of the table has {pattern.pattern}"


def test_a_refusal_is_in_the_log(hub):  # noqa: F811
    hub.script("vera").call("POST", "/v1/areas/unlp/lab3/switches/ac", {"on": True})
    row = hub.script("ada").call("GET", "/v1/audit?limit=3")[1]
    assert ("vera", "refused: vera is viewer") in [(r["user"], r["outcome"]) for r in row]


def test_a_flood_of_logins_and_tokens_fills_no_log(hub):  # noqa: F811
    """Each wrong one is a row; of all that is not even looked at one tells: nobody needs a password to send it."""
    guest = hub.guest()
    answers = [guest.call("POST", "/v1/login", {"user": "olga", "password": "wrong"})[0] for _ in range(40)]
    answers += [guest.call("POST", "/v1/enrol", {"token": "wrong", "request": "none"})[0] for _ in range(40)]
    assert answers.count(401) >= 5 and answers.count(429) >= 50
    log = hub.user("ada").call("GET", "/v1/audit?limit=1000")[1]
    refused = [row for row in log if row["outcome"].startswith("refused")]
    assert len(refused) == answers.count(401) + answers.count(403) + 1


def test_who_asks_for_much_that_is_refused_fills_no_log_and_is_in_it_all_the_same(hub):  # noqa: F811
    vera = hub.script("vera")
    for n in range(120):
        assert vera.call("POST", f"/v1/areas/unlp/lab3/switches/ac{n}", {"on": True})[0] == 403
    hub.script("olga").call("POST", "/v1/tokens", {"name": "lab9"})  # another user's is a row
    hub.stop()  # the rest is told each minute, and at the end
    code, log, err = hub.run("audit", "--limit", "1000")
    assert code == 0, err
    rows = [line for line in log.splitlines() if " vera " in line]
    each = [row for row in rows if "refused: vera is viewer" in row]
    more = [int(found[1]) for row in rows if (found := re.search(r"refused changes +(\d+) more +refused or failed", row))]
    assert len(each) + sum(more) == 120 and 10 <= len(each) <= 12 and 1 <= len(more) <= 3, log  # a minute may end meanwhile
    assert "refused: olga is operator" in log


def test_users_see_their_own_energy_and_administrators_everybodys(hub):  # noqa: F811
    hub.enrol("lab3")
    for user, kwh in (("vera", 0.5), ("olga", 0.25)):
        hub.used("lab3", kwh, f"user:{user}")
    seen = {name: [(row["key"], row["uj"]) for row in hub.script(name).call("GET", "/v1/energy?by=user")[1]["rows"]]
            for name in ("vera", "olga", "ada")}
    both = [("olga", str(KWH // 4)), ("vera", str(KWH // 2))]
    assert seen == {"vera": both[1:], "olga": both[:1], "ada": both}



# ---- the interface as it is described ----

TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float)}


def check_value(schema, value, where):
    """The value is as described, and nothing in it is not described."""
    nullable = schema.get("nullable")
    if "$ref" in schema:
        schema = DESCRIPTION["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    if value is None:
        assert nullable, where
        return
    assert isinstance(value, TYPES[schema["type"]]), (where, value)
    assert isinstance(value, bool) == (schema["type"] == "boolean"), (where, value)
    assert value in schema.get("enum", [value]), (where, value)
    if schema["type"] == "array":
        for item in value:
            check_value(schema["items"], item, where + "[]")
    if schema["type"] == "object":
        assert set(value) == set(schema["properties"] or ()), where
        for key, member in value.items():
            check_value(schema["properties"][key], member, f"{where}.{key}")


def test_every_route_is_described_and_nothing_else():
    source = (ROOT / "src/hub/serve/routes.c").read_text()
    routes = {(method.lower(), path.replace("**", "{area}").replace("*", "{name}"))
              for method, path in re.findall(r'\{"([A-Z]+)",\s*"([^"]+)",', source)}
    described = {(method, path) for path, methods in DESCRIPTION["paths"].items() for method in methods}
    assert routes == described and len(routes) >= 20


def test_answers_are_as_they_are_described(hub):  # noqa: F811
    hub.enrol("lab3")
    hub.state_of("lab3", switches=[{"name": "ac", "on": True, "known": True, "always_on": False, "command": True}],
                 absent_s=60, cap_uw=10**9, budget_uj=10**9, budget_used_uj=5)
    hub.draws("lab3", 100)
    hub.used("lab3", 0.125)
    hub.shrinks("lab3", "pc1", ("bert", "ada", 3))
    ada = hub.user("ada")
    eventually(lambda: areas(ada)["unlp/lab3"]["power"] and areas(ada)["unlp/lab3"]["shrunk"])
    number = ada.call("GET", "/v1/policy")[1]["edition"]
    requests = [
        ("get", "/v1/session", None), ("get", "/v1/me", None), ("get", "/v1/areas", None),
        ("get", "/v1/areas/{area}/energy", None), ("get", "/v1/areas/{area}/explain", None),
        ("get", "/v1/areas/{area}/shrunk", None),
        ("get", "/v1/energy", None), ("get", "/v1/policy", None), ("post", "/v1/policy/check", {"text": POLICY}),
        ("put", "/v1/policy", {"text": POLICY + "# again\n", "number": number}), ("get", "/v1/units", None),
        ("post", "/v1/areas/{area}/switches/ac", {"on": False}),
        ("post", "/v1/units/lab3/revoke", None), ("post", "/v1/units/lab3/admit", None),
        ("post", "/v1/users", {"user": "eve", "role": "viewer", "password": PASSWORD}), ("get", "/v1/users", None),
        ("patch", "/v1/users/eve", {"role": "operator"}), ("delete", "/v1/users/eve", None),
        ("get", "/v1/audit", None), ("get", "/v1/ca", None), ("delete", "/v1/energy?unit=lab3", None), ("post", "/v1/tokens", {"name": "lab9"}),
        ("post", "/v1/me/password", {"old": PASSWORD, "new": "another horse battery"}),
        ("post", "/v1/login", {"user": "ada", "password": "another horse battery"}), ("post", "/v1/logout", None)]
    answered = set()
    for method, path, body in requests:
        status, answer = ada.call(method.upper(), path.replace("{area}", "unlp/lab3"), body)
        described = re.sub(r"(switches|units|users)/\w+", r"\1/{name}", path.split("?")[0])
        answered.add((method, described))
        responses = DESCRIPTION["paths"][described][method]["responses"]
        assert status < 300 and str(status) in responses, (path, answer)
        check_value(responses[str(status)]["content"]["application/json"]["schema"], answer, f"{method} {path}")
    untested = {(m, p) for p, ms in DESCRIPTION["paths"].items() for m in ms} - answered
    assert untested == {("get", "/v1/events"), ("get", "/metrics"), ("post", "/v1/enrol")}


def test_a_token_is_made_behind_a_command_that_has_the_state(hub):  # noqa: F811
    """Both write the list of tokens as a whole: one of two would be lost."""
    ada, made = hub.script("ada"), []
    with open(hub.state / "lock", "r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        asking = threading.Thread(target=lambda: made.append(ada.call("POST", "/v1/tokens", {"name": "lab9"})))
        asking.start()
        asking.join(0.5)
        assert not made
    asking.join(GUARD_S)
    assert made[0][0] == 201 and made[0][1]["token"]


def test_fields_that_are_described_are_taken_and_others_refused(hub):  # noqa: F811
    ada = hub.user("ada")
    for path, methods in DESCRIPTION["paths"].items():
        for method, described in methods.items():
            if "requestBody" not in described:
                continue
            schema = described["requestBody"]["content"]["application/json"]["schema"]["$ref"].rsplit("/", 1)[1]
            for field in (*DESCRIPTION["components"]["schemas"][schema]["properties"], "misspelt"):
                status, answer = ada.call(method.upper(), path.replace("{area}", "unlp/lab3").replace("{name}", "ac"),
                                          {field: []})  # no field takes a list
                assert 400 <= status < 500, (path, field, answer)
                unknown = "unknown field" in answer["error"]["message"]
                assert unknown == (field == "misspelt"), (path, field, answer)



# ---- what is no good ----

def test_a_policy_of_ten_megabytes_is_refused_with_a_message(hub):  # noqa: F811
    ada = hub.user("ada")
    status, answer = ada.call("PUT", "/v1/policy", {"text": "x" * (10 << 20), "number": 0})
    assert (status, answer["error"]["message"]) == (413, "the body has more than 2097152 bytes")
    status, answer = ada.call("PUT", "/v1/policy", {"text": "# " + "x" * (1 << 20), "number": 0})
    assert status in (400, 409), answer
    status, answer = ada.call("POST", "/v1/users", {"user": "x" * 20000})
    assert (status, answer["error"]["message"]) == (413, "the body has more than 16384 bytes")
    status, answer = hub.guest().call("PUT", "/v1/policy", {"text": "x" * (1 << 20), "number": 0})
    assert status == 401
    assert ada.call("GET", "/v1/me")[0] == 200


@pytest.mark.parametrize("body, told", [
    ("{", "the body is no JSON: "), ("[]", "the body is no JSON object"), ("7", "the body is no JSON"),
    ('{"user":"a","user":"b"}', "duplicate object key"), ('{"user":"a\\u0000b","password":"x"}', "the body is no JSON"),
    ('{"user":7,"password":"x"}', "user is no text"), ('{"user":"ada"}', "password is missing"), ("", "user is missing"),
    ("[" * 10000, "the body is no JSON"), ('{"user":"\xff"}'.encode("latin-1"), "the body is no JSON"),
])
def test_a_body_that_is_wrong_is_answered_with_what_is_wrong(hub, body, told):  # noqa: F811
    status, _, text = hub.guest().raw("POST", "/v1/login", body)
    assert status == 400 and told in json.loads(text)["error"]["message"], text


def test_paths_and_methods_that_are_not_there_are_answered(hub):  # noqa: F811
    ada = hub.script("ada")
    assert ada.call("GET", "/v1/nothing")[0] == 404
    assert ada.call("DELETE", "/v1/areas")[0] == 405
    assert ada.call("GET", "/v1/areas//energy")[0] == 404
    assert ada.call("GET", "/v1/areas/" + "a/" * 200 + "energy")[0] == 404
    assert ada.raw("GET", "/../etc/passwd")[0] == 404
    assert ada.raw("HEAD", "/v1/areas")[0] == 200
    assert ada.raw("HEAD", "/v1/events")[0] == 200
    assert ada.raw("POST", "/")[0] == 404


def test_a_user_who_floods_is_slowed_down_and_others_are_not(hub):  # noqa: F811
    vera, olga = hub.script("vera"), hub.script("olga")
    connection = vera.connect()
    statuses = set()
    began = time.monotonic()
    while 429 not in statuses:
        connection.request("GET", "/v1/me", headers=vera.headers())
        answer = connection.getresponse()
        answer.read()
        statuses.add(answer.status)
        assert time.monotonic() - began < GUARD_S
    connection.close()
    assert statuses == {200, 429} and olga.call("GET", "/v1/me")[0] == 200


# ---- the server ----

def test_a_port_that_is_taken_costs_the_page_alone(build_dir, tmp_path):
    hub = Hub(build_dir / "tide-hub", tmp_path)
    hub.start()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        hub.options = ("--listen", f"127.0.0.1:{port}")
        try:
            hub.serve()
            assert f"cannot listen on 127.0.0.1:{port}: Address already in use: no page until it is free" in hub.said()
            hub.enrol("lab3")
            hub.used("lab3", 1)
            taken.close()
            eventually(lambda: f"serving https://" in hub.said())
        finally:
            hub.stop()


def test_the_organizations_certificate_is_served_and_read_again(hub, tmp_path):  # noqa: F811
    def make(name, serial):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-keyout", tmp_path / f"{name}.key", "-out", tmp_path / f"{name}.crt", "-days", "2",
                        "-subj", "/CN=hub.example", "-addext", "subjectAltName=IP:127.0.0.1", "-set_serial", serial],
                       check=True, capture_output=True)

    make("org", "4711")
    link = tmp_path / "link.crt"  # as what renews certificates has it
    link.symlink_to(tmp_path / "org.crt")
    hub.kill()
    hub.options += ("--certificate", str(link), "--key", str(tmp_path / "org.key"))
    hub.serve()
    context = ssl.create_default_context(cafile=tmp_path / "org.crt")
    with socket.create_connection(("127.0.0.1", hub.web_port()), timeout=GUARD_S) as plain:
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as tls:
            assert int(tls.getpeercert()["serialNumber"], 16) == 4711 and tls.version() == "TLSv1.3"
    hub.kill()
    (tmp_path / "org.key").unlink()
    done = subprocess.run([hub.program, "serve", "--state", hub.state, *hub.options], capture_output=True, text=True,
                          timeout=GUARD_S)
    assert done.returncode == 3 and f"{tmp_path}/org.key: No such file or directory" in done.stderr


@pytest.mark.parametrize("most", [3, 80])
def test_one_address_has_as_many_connections_as_the_configuration_says(hub, most):  # noqa: F811
    """80 are more than the default: a proxy needs them."""
    hub.kill()
    hub.options += ("--connections-per-address", str(most))
    hub.serve()
    context = ssl.create_default_context(cafile=hub.state / "trust/ca.crt")
    held = []
    try:
        for _ in range(most):
            plain = socket.create_connection(("127.0.0.1", hub.web_port()), timeout=GUARD_S)
            held.append(context.wrap_socket(plain, server_hostname="127.0.0.1"))
        with socket.create_connection(("127.0.0.1", hub.web_port()), timeout=GUARD_S) as plain:
            with pytest.raises(OSError):
                context.wrap_socket(plain, server_hostname="127.0.0.1")
    finally:
        for each in held:
            each.close()


def test_the_hubs_own_certificate_survives_a_restart_and_names_its_hosts(hub):  # noqa: F811
    before = (hub.state / "web.crt").read_text()
    hub.kill()
    hub.serve()
    assert (hub.state / "web.crt").read_text() == before
    hub.kill()
    hub.options += ("--host", "127.0.0.1 hub.example")
    hub.serve()
    told = subprocess.run(["openssl", "x509", "-in", hub.state / "web.crt", "-noout", "-ext", "subjectAltName"],
                          capture_output=True, text=True, check=True).stdout
    assert "DNS:hub.example" in told and "IP Address:127.0.0.1" in told
    assert hub.user("ada").call("GET", "/v1/me")[0] == 200


def test_metrics_tell_power_and_records(hub):  # noqa: F811
    hub.enrol("lab3")
    hub.state_of("lab3")
    hub.draws("lab3", 42)
    hub.used("lab3", 1)
    guest = hub.guest()
    eventually(lambda: 'tide_hub_area_watts{area="unlp/lab3"} 42.000000' in guest.raw("GET", "/metrics")[2])
    assert guest.raw("GET", "/metrics", headers={"X-Forwarded-For": "10.0.0.1"})[0] == 401  # a proxy here
    text = guest.raw("GET", "/metrics")[2]
    for line in ("tide_hub_broker_connected 1", 'tide_hub_units{state="connected"} 1',
                 'tide_hub_records_total{result="stored"} 1', 'tide_hub_area_watts{area="unlp"} 42.000000',
                 "tide_hub_users 3"):
        assert re.search(rf"^{re.escape(line)}$", text, re.M), line


def test_without_a_policy_each_unit_is_an_area(build_dir, tmp_path):
    hub = Hub(build_dir / "tide-hub", tmp_path)
    hub.start()
    hub.add_user("ada", "administrator")
    hub.options = ("--policy", str(tmp_path / "none.yaml"))
    hub.serve()
    try:
        hub.enrol("lab3")
        hub.state_of("lab3")
        ada = hub.user("ada")
        eventually(lambda: list(areas(ada)) == ["lab3"])
        assert ada.call("GET", "/v1/policy")[1] == {
            "number": 0, "edition": 0, "text": "", "made_ms": None, "valid_until_ms": None}
        assert ada.call("GET", "/v1/areas/lab3/explain")[0] == 409
        status, answer = ada.call("PUT", "/v1/policy", {"text": POLICY, "number": 0})
        assert status == 200, answer
        assert list(areas(ada)) == ["unlp", "unlp/lab3", "unlp/lab4"]
    finally:
        hub.stop()
