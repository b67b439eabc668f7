# SPDX-License-Identifier: Apache-2.0
"""The hub's REST interface: who may do what, what is answered, what harms nobody. Units are played by mosquitto's clients."""
import json
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import time

import pytest

from conftest import ROOT
from daemon import GUARD_S, eventually
from hub import KWH, TOOLS, end
from hub_web import PASSWORD, Client, Web
from test_tided_observe import read_yaml

pytestmark = pytest.mark.skipif(not all(map(shutil.which, TOOLS)),
                                reason="mosquitto-clients and openssl are not installed")
POLICY = """\
version: 1
org: unlp
zone: America/Argentina/Buenos_Aires
areas:
- {area: unlp/lab3, unit: lab3, name: "Laboratory 3"}
- {area: unlp/lab4, unit: lab4}
tariff:
  unit: EUR
  price: 0.25 EUR/kWh
rules:
- {area: unlp/lab3, cap: 1200 W, floor: 300 W, kind: breaker}
- {area: unlp, budget: 90 kWh/day}
"""
DESCRIPTION = read_yaml((ROOT / "docs/openapi-hub.yaml").read_text())


class Hub(Web):
    def policy(self, text=POLICY):
        path = self.folder / "policy.yaml"
        path.write_text(text)
        self.options = ("--policy", str(path))

    def state_of(self, unit, **more):
        """The unit says how it is."""
        message = {"v": 1, "online": True, "synced": True, "role": "unit", "version": "0.1.0", "boot": 7, "policy": 0}
        self.publish(unit, f"tide/1/{unit}/up/state", json.dumps({**message, **more}), "-r")

    def draws(self, unit, watts):
        uw = int(watts * 1_000_000)
        self.publish(unit, f"tide/1/{unit}/up/demand", json.dumps(
            {"v": 1, "points": [], "floor": 0, "draw": {"uw": uw, "low": uw, "high": uw, "basis": "measured"}}))

    def shrinks(self, unit, node, *jobs):
        """The unit tells whose jobs have fewer cores: (job, user, cores), …"""
        nodes = [{"node": node, "jobs": len(jobs), "cores": sum(cores for _, _, cores in jobs)}] if jobs else []
        self.publish(unit, f"tide/1/{unit}/up/shrunk", json.dumps(
            {"v": 1, "nodes": nodes, "jobs": [{"node": node, "job": job, "user": user, "cores": cores}
                                              for job, user, cores in jobs if user]}))

    def used(self, unit, kwh, point="area"):
        """The unit sends a record of the last quarter of an hour."""
        now, uj = int(time.time() * 1000), int(kwh * KWH)
        record = {"point": point, "seq": 1, "from": now - 900_000, "to": now, "mono": 10**9, "uj": uj, "low": uj,
                  "high": uj, "basis": "measured", "gap": 0}
        assert self.send(unit, {"v": 1, "boot": 7, "records": [record]})


@pytest.fixture
def hub(build_dir, tmp_path):
    if b"serve" not in subprocess.run([build_dir / "tide-hub", "--help"], capture_output=True).stdout:
        pytest.skip("tide-hub was built without libmosquitto")
    made = Hub(build_dir / "tide-hub", tmp_path)
    made.start()
    for name, role in (("ada", "administrator"), ("olga", "operator"), ("vera", "viewer")):
        made.add_user(name, role)
    made.policy()
    made.serve()
    yield made
    made.stop()


def areas(client):
    return {area["area"]: area for area in client.call("GET", "/v1/areas")[1]["areas"]}


# ---- who may do what ----

def rows_of_permissions():
    text = (ROOT / "docs/permissions.md").read_text().split("## At the hub")[1]
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and set(cells[1:]) <= {"yes", "no"}:
            yield cells[0], dict(zip(("nobody", "viewer", "operator", "administrator"), cells[1:]))


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


def test_each_role_may_do_what_the_table_says(hub):
    who = {"nobody": hub.guest(), **{role: hub.script(name) for name, role in (
        ("vera", "viewer"), ("olga", "operator"), ("ada", "administrator"))}}
    asked = set()
    for row, cells in rows_of_permissions():
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


def test_a_refusal_is_in_the_log(hub):
    hub.script("vera").call("POST", "/v1/areas/unlp/lab3/switches/ac", {"on": True})
    row = hub.script("ada").call("GET", "/v1/audit?limit=3")[1]
    assert ("vera", "refused: vera is viewer") in [(r["user"], r["outcome"]) for r in row]


def test_a_flood_of_logins_and_tokens_fills_no_log(hub):
    """Each wrong one is a row; of all that is not even looked at one tells: nobody needs a password to send it."""
    guest = hub.guest()
    answers = [guest.call("POST", "/v1/login", {"user": "olga", "password": "wrong"})[0] for _ in range(40)]
    answers += [guest.call("POST", "/v1/enrol", {"token": "wrong", "request": "none"})[0] for _ in range(40)]
    assert answers.count(401) >= 5 and answers.count(429) >= 50
    log = hub.user("ada").call("GET", "/v1/audit?limit=1000")[1]
    refused = [row for row in log if row["outcome"].startswith("refused")]
    assert len(refused) == answers.count(401) + answers.count(403) + 1


def test_users_see_their_own_energy_and_administrators_everybodys(hub):
    hub.enrol("lab3")
    for user, kwh in (("vera", 0.5), ("olga", 0.25)):
        hub.used("lab3", kwh, f"user:{user}")
    seen = {name: [(row["key"], row["uj"]) for row in hub.script(name).call("GET", "/v1/energy?by=user")[1]["rows"]]
            for name in ("vera", "olga", "ada")}
    both = [("olga", str(KWH // 4)), ("vera", str(KWH // 2))]
    assert seen == {"vera": both[1:], "olga": both[:1], "ada": both}


def test_all_see_which_machines_were_shrunk_and_each_user_only_its_own_jobs(hub):
    for unit in ("lab3", "lab4"):
        hub.enrol(unit)
        hub.state_of(unit)
    hub.shrinks("lab3", "pc1", ("bert", "vera", 3), ("cnn", "olga", 2))
    hub.shrinks("lab4", "pc9", ("unet", None, 1))  # a machine that tells of no users
    vera = hub.script("vera")
    eventually(lambda: len(areas(vera)["unlp"]["shrunk"]) == 2)
    assert areas(vera)["unlp/lab3"]["shrunk"] == [{"node": "pc1", "jobs": 2, "cores": 5}]
    assert areas(vera)["unlp"]["shrunk"] == [{"node": "lab3", "jobs": 2, "cores": 5}, {"node": "lab4", "jobs": 1, "cores": 1}]
    seen = {name: [job["job"] for job in hub.script(name).call("GET", "/v1/areas/unlp/shrunk")[1]["jobs"]]
            for name in ("vera", "olga", "ada")}
    assert seen == {"vera": ["bert"], "olga": ["cnn"], "ada": ["bert", "cnn"]}
    hub.shrinks("lab3", "pc1")
    eventually(lambda: areas(vera)["unlp"]["shrunk"] == [{"node": "lab4", "jobs": 1, "cores": 1}])
    hub.state_of("lab4", online=False)
    eventually(lambda: areas(vera)["unlp"]["shrunk"] == [])
    assert hub.script("ada").call("GET", "/v1/areas/unlp/shrunk")[1]["jobs"] == []


@pytest.fixture
def counted(build_dir, tmp_path):
    """A hub whose calls of strcmp() and sqlite3_step() are counted: .counts()"""
    if not (build_dir / "tests/component/count_calls.so").exists():
        pytest.skip("needs this build's tests/component/count_calls.so")
    made = Hub(build_dir / "tide-hub", tmp_path)
    made.start()
    made.env = {"LD_PRELOAD": str(build_dir / "tests/component/count_calls.so"), "COUNT_CALLS": str(tmp_path / "counts"),
                "COUNT_CALLS_US": "2000"}
    made.counts = lambda: struct.unpack("QQ", (tmp_path / "counts").read_bytes())
    for name, role in (("ada", "administrator"), ("vera", "viewer")):
        made.add_user(name, role)
    yield made
    made.stop()


def test_the_power_of_all_areas_is_looked_at_in_one_walk(counted):
    rooms = 400
    counted.policy(POLICY.replace("tariff:", "".join(f"- {{area: unlp/r{i}, name: Room {i}}}\n" for i in range(rooms)) + "tariff:"))
    counted.serve()
    counted.enrol("lab3")
    vera = counted.user("vera")
    stream = vera.stream()
    counted.state_of("lab3")
    stream.next("state")
    before, tellings = counted.counts()[0], 5
    for i in range(tellings):
        counted.draws("lab3", 100 + i)
        while stream.next("power")[2]["area"] != "unlp/lab3":
            pass
    assert counted.counts()[0] - before < 20 * rooms * tellings  # each looks at each room once, not rooms times
    stream.close()


def test_who_asks_the_same_of_an_area_shares_the_answer_until_something_is_erased(counted):
    counted.policy()
    counted.serve()
    counted.enrol("lab3")
    ada, vera = counted.script("ada"), counted.script("vera")
    end_s = int(time.time()) // 60 * 60
    assert counted.send("lab3", {"v": 1, "boot": 7, "records": [
        {"point": "area", "seq": i, "from": (end_s - 61 + i) * 1000, "to": (end_s - 60 + i) * 1000, "mono": i, "uj": i * 10**6,
         "low": i * 10**6, "high": i * 10**6, "basis": "measured", "gap": 0} for i in range(1, 61)]})

    def ask(client, more=""):
        before = counted.counts()[1]
        rows = client.call("GET", f"/v1/areas/unlp/energy?from={(end_s - 90) * 1000}&to={end_s * 1000 + 1}&step=1s{more}")[1]["stretches"]
        return len(rows), counted.counts()[1] - before

    rows, dear = ask(ada)
    assert rows >= 59 and dear >= rows
    again, cheap = ask(vera)
    assert again == rows and cheap < dear / 4
    assert ada.call("DELETE", "/v1/energy?unit=lab3")[0] == 200
    assert ask(vera)[0] == 0


def test_units_inside_of_another_units_area_tell_of_their_own_machines(hub):
    ada = hub.script("ada")
    text, number = (ada.call("GET", "/v1/policy")[1][key] for key in ("text", "number"))
    text = text.replace("tariff:", "- {area: unlp/lab3/box, unit: box}\ntariff:")
    assert ada.call("PUT", "/v1/policy", {"text": text, "number": number})[0] == 200
    for unit in ("lab3", "box"):
        hub.enrol(unit)
        hub.state_of(unit)
    hub.shrinks("lab3", "pc1", ("bert", "vera", 3))
    hub.shrinks("box", "pc2", ("cnn", "vera", 2))
    eventually(lambda: len(areas(ada)["unlp"]["shrunk"]) == 2)
    assert areas(ada)["unlp/lab3"]["shrunk"] == [{"node": "pc1", "jobs": 1, "cores": 3}, {"node": "box", "jobs": 1, "cores": 2}]
    assert len(ada.call("GET", "/v1/areas/unlp/lab3/shrunk")[1]["jobs"]) == 2


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


def test_answers_are_as_they_are_described(hub):
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


def test_fields_that_are_described_are_taken_and_others_refused(hub):
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


# ---- areas, policy, switches ----

def test_areas_show_what_units_say_and_what_the_policy_says(hub):
    ada = hub.script("ada")
    before = areas(ada)
    assert list(before) == ["unlp", "unlp/lab3", "unlp/lab4"]
    assert before["unlp/lab3"]["state"] == "never" and before["unlp/lab3"]["power"] is None
    hub.enrol("lab3")
    hub.enrol("lab4")
    hub.state_of("lab3", switches=[{"name": "ac", "on": True, "known": True, "always_on": False, "command": True}])
    hub.state_of("lab4")
    hub.draws("lab3", 150)
    eventually(lambda: areas(ada)["unlp"]["power"])
    assert areas(ada)["unlp"]["power"]["silent"] == 1
    hub.draws("lab4", 50)
    eventually(lambda: areas(ada)["unlp"]["power"]["silent"] == 0)
    now = areas(ada)
    assert now["unlp"]["power"]["mid_uw"] == 200_000_000 and now["unlp"]["unit"] is None
    lab3 = now["unlp/lab3"]
    assert (lab3["name"], lab3["parent"], lab3["state"]) == ("Laboratory 3", "unlp", "connected")
    assert (lab3["cap_uw"], lab3["kind"], lab3["floor_uw"]) == (1_200_000_000, "breaker", 300_000_000)
    assert lab3["cap_by"] == "policy.yaml:11: unlp/lab3: cap 1200 W (breaker)"
    assert lab3["price"] == {"amount": 0.25, "unit": "EUR/kWh", "until_ms": None}
    assert lab3["switches"] == [{"name": "ac", "on": True, "known": True, "always_on": False, "may": True}]
    assert now["unlp"]["budget"]["day_uj"] == 90 * KWH
    lines = ada.call("GET", "/v1/areas/unlp/lab3/explain")[1]["lines"]
    assert [(line["what"], line["line"]) for line in lines] == [("cap", 11), ("floor", 11), ("budget", 12), ("price", None)]
    assert ada.call("GET", "/v1/areas/unlp/lab9/explain")[0] == 404


def test_an_areas_energy_has_its_cost_and_a_sum_above_it(hub):
    hub.enrol("lab3")
    hub.enrol("lab4")
    hub.used("lab3", 2)
    hub.used("lab4", 1)
    vera = hub.script("vera")
    for area, kwh in (("unlp/lab3", 2), ("unlp/lab4", 1), ("unlp", 3)):
        answer = vera.call("GET", f"/v1/areas/{area}/energy?step=15min")[1]
        assert sum(int(s["mid_uj"]) for s in answer["stretches"]) == kwh * KWH
        assert sum(s["cost"] for s in answer["stretches"]) == pytest.approx(0.25 * kwh)
        assert answer["prices"][0]["amount"] == 0.25 and answer["currency"] == "EUR"
    assert answer["caps"] == [{"from_ms": answer["caps"][0]["from_ms"], "uw": None, "by": None}]
    rows = {row["key"]: row for row in vera.call("GET", "/v1/energy?by=area")[1]["rows"]}
    assert {key: int(row["uj"]) for key, row in rows.items()} == {
        "unlp": 3 * KWH, "unlp/lab3": 2 * KWH, "unlp/lab4": KWH}
    assert rows["unlp"]["cost"] == pytest.approx(0.75)
    days = vera.call("GET", "/v1/energy?by=day")[1]["rows"]
    assert sum(int(row["uj"]) for row in days) == 3 * KWH and re.fullmatch(r"20\d\d-\d\d-\d\d", days[0]["key"])
    for query in ("step=soon", "from=x", "from=5&to=4", "step=1s&from=0"):
        assert vera.call("GET", f"/v1/areas/unlp/energy?{query}")[0] == 400, query


def test_a_policy_is_checked_put_and_kept_and_two_editors_do_not_overwrite_each_other(hub):
    ada = hub.user("ada")
    first = ada.call("GET", "/v1/policy")[1]
    assert first["text"].endswith(POLICY) and first["number"] > 0
    wrong = POLICY.replace("cap: 1200 W", "cap: 200 W")
    status, answer = ada.call("POST", "/v1/policy/check", {"text": wrong})
    assert status == 200 and answer["faults"][0]["line"] == 11 and answer["diff"] == []
    better = POLICY.replace("cap: 1200 W", "cap: 900 W")
    assert ada.call("POST", "/v1/policy/check", {"text": better})[1] == {
        "faults": [], "diff": ["~ unlp/lab3: cap 900 W (breaker); was: cap 1200 W (breaker)"]}
    assert ada.call("PUT", "/v1/policy", {"text": wrong, "number": first["number"]})[0] == 400
    assert ada.call("GET", "/v1/policy")[1]["text"] == first["text"]
    status, second = ada.call("PUT", "/v1/policy", {"text": better, "number": first["number"]})
    assert status == 200 and second["number"] > first["number"]
    status, answer = ada.call("PUT", "/v1/policy", {"text": POLICY, "number": first["number"]})
    assert status == 409, answer
    assert areas(ada)["unlp/lab3"]["cap_uw"] == 900_000_000
    hub.kill()
    hub.serve()
    ada = hub.user("ada")
    assert ada.call("GET", "/v1/policy")[1]["text"].endswith(better)
    outcomes = [(r["what"], r["outcome"].split(":")[0]) for r in ada.call("GET", "/v1/audit")[1]
                if r["what"] == "policy.put"]
    assert outcomes == [("policy.put", "failed"), ("policy.put", "done"), ("policy.put", "failed")]


def test_an_operator_switches_and_everybody_hears_what_came_of_it(hub):
    hub.enrol("lab3")
    hub.state_of("lab3", switches=[{"name": "ac", "on": True, "known": True, "always_on": False, "command": True},
                                   {"name": "fridge", "on": True, "known": True, "always_on": True, "command": True}])
    olga = hub.user("olga")
    eventually(lambda: areas(olga)["unlp/lab3"]["switches"])
    stream = hub.user("vera").stream()
    process, heard = hub.listen("lab3", "tide/1/lab3/down/cmd")
    try:
        status, answer = olga.call("POST", "/v1/areas/unlp/lab3/switches/ac", {"on": False, "for_s": 60})
        assert status == 202, answer
        eventually(lambda: answer["id"].encode() in heard.read_bytes())  # under the hub's seal
    finally:
        end(process)
    hub.publish("lab3", "tide/1/lab3/up/event", json.dumps(
        {"v": 1, "time": int(time.time() * 1000), "type": "switch", "text": "ac is off now",
         "data": {"id": answer["id"], "switch": "ac", "on": False, "state": "done", "by": "olga"}}))
    while True:
        _, _, said = stream.next("switch")
        if said["state"] != "ordered":
            break
    stream.close()
    assert (said["id"], said["area"], said["name"], said["on"], said["state"]) == (
        answer["id"], "unlp/lab3", "ac", False, "done")
    for name, expected in (("fridge", 403), ("none", 404)):
        status, answer = olga.call("POST", f"/v1/areas/unlp/lab3/switches/{name}", {"on": False})
        assert status == expected, answer
    log = [(r["user"], r["what"], r["outcome"].split(":")[0]) for r in hub.script("ada").call("GET", "/v1/audit")[1]]
    assert ("olga", "switch.off", "done") in log
    assert {row[2] for row in log if row[1] == "switch.off"} >= {"done", "refused", "failed"}
    hub.state_of("lab3", online=False)
    eventually(lambda: areas(olga)["unlp/lab3"]["state"] == "lost")
    status, answer = olga.call("POST", "/v1/areas/unlp/lab3/switches/ac", {"on": False})
    assert status == 409 and "is lost" in answer["error"]["message"], answer


def test_an_administrator_has_a_units_and_a_users_energy_forgotten(hub):
    hub.enrol("lab3")
    hub.used("lab3", 2)
    hub.used("lab3", 1, "user:vera")
    ada = hub.script("ada")
    assert ada.call("DELETE", "/v1/energy?user=vera")[0] == 200
    assert ada.call("GET", "/v1/energy?by=user")[1]["rows"] == []
    assert [row["key"] for row in ada.call("GET", "/v1/energy?by=area")[1]["rows"]] == ["unlp", "unlp/lab3"]
    assert ada.call("DELETE", "/v1/energy?unit=lab3")[0] == 200
    assert ada.call("GET", "/v1/energy?by=area")[1]["rows"] == []
    assert ada.call("DELETE", "/v1/energy?unit=lab3")[0] == 404
    assert ada.call("DELETE", "/v1/energy")[0] == ada.call("DELETE", "/v1/energy?unit=a&user=b")[0] == 400
    log = [(r["what"], r["target"], r["outcome"].split(":")[0]) for r in ada.call("GET", "/v1/audit?limit=4")[1]]
    assert log[:3] == [("energy.erase unit", "lab3", "failed"), ("energy.erase unit", "lab3", "done"),
                       ("energy.erase user", "vera", "done")]


def test_units_are_listed_revoked_and_admitted(hub):
    hub.enrol("lab3")
    hub.enrol("lab4")
    hub.state_of("lab3")
    ada = hub.script("ada")
    eventually(lambda: "connected" in [unit["state"] for unit in ada.call("GET", "/v1/units")[1]])
    units = {unit["name"]: unit for unit in ada.call("GET", "/v1/units")[1]}
    assert units["lab3"]["area"] == "unlp/lab3" and units["lab4"]["state"] == "never"
    assert units["lab3"]["certificate_until_ms"] > (time.time() + 80 * 86400) * 1000
    assert ada.call("POST", "/v1/units/lab4/revoke")[0] == 200
    assert {u["name"]: u["revoked"] for u in ada.call("GET", "/v1/units")[1]} == {"lab3": False, "lab4": True}
    assert "lab4" in hub.run("unit", "list")[1]
    assert hub.run("unit", "sign", "lab4", hub.request("lab4"))[0] == 3
    assert ada.call("POST", "/v1/units/lab4/admit")[0] == 200
    assert hub.run("unit", "sign", "lab4", hub.request("lab4"))[0] == 0
    assert ada.call("POST", "/v1/units/nobody/revoke")[0] == 404


@pytest.mark.parametrize("by_command", [False, True])
def test_a_revoked_units_connection_is_cut_and_it_counts_as_lost(hub, by_command):
    hub.enrol("lab3")
    hub.state_of("lab3")
    ada = hub.script("ada")
    unit, heard = hub.listen("lab3", "tide/1/lab3/down/receipt")
    try:
        eventually(lambda: [u["state"] for u in ada.call("GET", "/v1/units")[1]] == ["connected"])
        assert "already connected" not in hub.log()
        if by_command:
            assert hub.run("unit", "revoke", "lab3")[0] == 0
        else:
            assert ada.call("POST", "/v1/units/lab3/revoke")[0] == 200
        eventually(lambda: [u["state"] for u in ada.call("GET", "/v1/units")[1]] == ["lost"])
        eventually(lambda: "already connected, closing old connection" in hub.log())
        eventually(lambda: heard.read_text().count("sending CONNECT") > 1)  # it was hung up on, and tries again
        eventually(lambda: "lab3: is revoked: its connection is cut" in hub.said())
        assert areas(ada)["unlp/lab3"]["state"] == "lost"
        assert not list(hub.state.glob("cut.*"))
    finally:
        unit.kill()
        unit.wait()


def test_a_unit_that_was_admitted_again_is_cut_off_again_when_it_is_revoked_again(hub):
    ada = hub.script("ada")
    for times in (1, 2):
        hub.enrol("lab3")
        hub.state_of("lab3")
        unit, heard = hub.listen("lab3", "tide/1/lab3/down/receipt")
        try:
            eventually(lambda: [u["state"] for u in ada.call("GET", "/v1/units")[1]] == ["connected"])
            assert ada.call("POST", "/v1/units/lab3/revoke")[0] == 200
            eventually(lambda: hub.said().count("lab3: is revoked: its connection is cut") == times)
            eventually(lambda: heard.read_text().count("sending CONNECT") > 1)
        finally:
            unit.kill()
            unit.wait()
        assert ada.call("POST", "/v1/units/lab3/admit")[0] == 200


def test_the_hub_takes_nothing_of_a_revoked_unit_whatever_the_broker_lets_through(hub):
    hub.enrol("lab3")
    hub.enrol("helper")
    hub.state_of("lab3")
    ada = hub.script("ada")
    eventually(lambda: "connected" in {u["state"] for u in ada.call("GET", "/v1/units")[1]})
    assert ada.call("POST", "/v1/units/lab3/revoke")[0] == 200
    eventually(lambda: "its connection is cut" in hub.said())
    acl = hub.state / "broker/acl"
    acl.write_text("user tide-hub\ntopic readwrite #\nuser helper\ntopic readwrite #\n")
    hub.broker.send_signal(signal.SIGHUP)
    before = hub.said()
    eventually(lambda: hub.publish("helper", "tide/1/lab9/up/state", "?")[0] == 0 and "lab9: its state" in hub.said())
    hub.publish("helper", "tide/1/lab3/up/state", json.dumps(
        {"v": 1, "online": True, "synced": True, "role": "unit", "version": "0.1.0", "boot": 9, "policy": 0}))
    hub.publish("helper", "tide/1/lab9/up/state", "{")
    eventually(lambda: hub.said().count("lab9: its state") > before.count("lab9: its state") + 1)
    assert {u["name"]: u["state"] for u in ada.call("GET", "/v1/units")[1]}["lab3"] == "lost"


# ---- events ----

def test_a_page_that_was_away_gets_what_it_missed(hub):
    hub.enrol("lab3")
    vera = hub.user("vera")
    stream = vera.stream()
    hub.state_of("lab3")
    first, kind, said = stream.next("state")
    assert (said["area"], said["state"]) == ("unlp/lab3", "connected")
    stream.close()
    hub.publish("lab3", "tide/1/lab3/up/event", json.dumps({"v": 1, "time": 5, "type": "gap", "text": "first"}))
    hub.publish("lab3", "tide/1/lab3/up/event", json.dumps({"v": 1, "time": 6, "type": "gap", "text": "second"}))
    eventually(lambda: any("second" in str(event) for event in heard_since(vera, first, 2)))
    texts = [data["text"] for _, kind, data in heard_since(vera, first, 2) if kind == "event"]
    assert texts == ["first", "second"]


def heard_since(client, last, count):
    """Up to @count events behind @last, without power."""
    stream = client.stream(last)
    stream.connection.sock.settimeout(3)
    heard = []
    try:
        while len(heard) < count:
            heard.append(stream.next("state", "event", "switch", "policy", "missed"))
    except (TimeoutError, socket.timeout):
        pass
    stream.close()
    return heard


def test_who_missed_events_is_told(hub):
    vera = hub.user("vera")
    for last in ("1.1", "nonsense", f"{2**32 - 1}.7"):
        stream = vera.stream(last)
        assert stream.next()[1] == "missed"
        stream.close()


def test_power_comes_once_a_second_and_a_stream_ends_with_its_session(hub):
    hub.enrol("lab3")
    hub.state_of("lab3")
    vera = hub.user("vera")
    stream = vera.stream()
    for watts in range(100, 140):
        hub.draws("lab3", watts)
    while True:
        _, _, said = stream.next("power")
        if said["area"] == "unlp/lab3" and said["power"]["mid_uw"] == 139_000_000:
            break
    assert hub.run("user", "passwd", "vera")[0] == 3  # no password: nothing happens
    assert vera.call("POST", "/v1/logout")[0] == 200
    while stream.next() is not None:
        pass


class Slow:
    """A stream whose reader leaves what comes in the kernel's smallest buffer."""

    def __init__(self, client):
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain.connect(("127.0.0.1", client.port))
        self.socket = client.context.wrap_socket(plain, server_hostname="127.0.0.1")
        self.socket.sendall(f"GET /v1/events HTTP/1.1\r\nHost: x\r\nCookie: {client.cookie}\r\n\r\n".encode())
        self.socket.settimeout(GUARD_S)

    def read_until(self, text):
        """Everything up to the text."""
        heard = b""
        while text not in heard[-2 * len(text) - 70000:]:
            chunk = self.socket.recv(65536)
            assert chunk, f"hung up on after {len(heard)} bytes"
            heard += chunk
        return heard.decode()


def pour(hub, unit, leaf, messages):
    process = subprocess.Popen(hub.client("mosquitto_pub", unit, "-t", f"tide/1/{unit}/up/{leaf}", "-l"),
                               stdin=subprocess.PIPE, text=True)
    process.communicate("\n".join(json.dumps(message) for message in messages), timeout=GUARD_S)
    assert process.returncode == 0


def test_a_flood_of_states_is_told_as_the_newest_state_and_cuts_no_stream(hub):
    hub.enrol("lab3")
    slow = Slow(hub.user("vera"))
    message = {"v": 1, "online": True, "synced": True, "role": "unit", "version": "0.1.0", "boot": 7, "policy": 0,
               "switches": [{"name": f"{n:02}" + "x" * 60, "on": True, "known": True, "always_on": False,
                             "command": True} for n in range(32)]}
    began = time.monotonic()
    pour(hub, "lab3", "state", ({**message, "absent_s": n} for n in range(6000)))
    heard = slow.read_until(b'"absent_s":5999')
    assert heard.count("event: state") <= 5 * (time.monotonic() - began) + 2
    assert "missed" not in heard


def test_a_slow_reader_is_told_that_it_missed_some_and_keeps_its_stream(hub):
    hub.enrol("lab3")
    vera = hub.user("vera")
    slow = Slow(vera)
    # More than the kernel's buffers (4 MB) and the 4,096 events that are kept.
    pour(hub, "lab3", "event", ({"v": 1, "time": n, "type": "gap", "text": "x" * 180} for n in range(25000)))
    quick = vera.stream()
    hub.publish("lab3", "tide/1/lab3/up/event", json.dumps({"v": 1, "time": 6, "type": "gap", "text": "before"}))
    while quick.next("event")[2]["text"] != "before":
        pass
    quick.close()
    heard = slow.read_until(b"event: missed")
    hub.publish("lab3", "tide/1/lab3/up/event", json.dumps({"v": 1, "time": 7, "type": "gap", "text": "after"}))
    heard += slow.read_until(b'"text":"after"')
    heard = re.sub(r"\r\n[0-9A-Fa-f]+\r\n", "", heard.partition("\r\n\r\n")[2])  # without the marks of chunks
    whole = [event for event in heard.split("\n\n")[1:-1] if not event.startswith(":")]
    assert len(whole) > 1000 and all(re.fullmatch(r"(id: .*\n)?event: \w+\ndata: {.*}", event) for event in whole)


# ---- what is no good ----

def test_a_policy_of_ten_megabytes_is_refused_with_a_message(hub):
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
def test_a_body_that_is_wrong_is_answered_with_what_is_wrong(hub, body, told):
    status, _, text = hub.guest().raw("POST", "/v1/login", body)
    assert status == 400 and told in json.loads(text)["error"]["message"], text


def test_paths_and_methods_that_are_not_there_are_answered(hub):
    ada = hub.script("ada")
    assert ada.call("GET", "/v1/nothing")[0] == 404
    assert ada.call("DELETE", "/v1/areas")[0] == 405
    assert ada.call("GET", "/v1/areas//energy")[0] == 404
    assert ada.call("GET", "/v1/areas/" + "a/" * 200 + "energy")[0] == 404
    assert ada.raw("GET", "/../etc/passwd")[0] == 404
    assert ada.raw("HEAD", "/v1/areas")[0] == 200
    assert ada.raw("HEAD", "/v1/events")[0] == 200
    assert ada.raw("POST", "/")[0] == 404


def test_a_user_who_floods_is_slowed_down_and_others_are_not(hub):
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


def test_the_organizations_certificate_is_served_and_read_again(hub, tmp_path):
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


def test_the_hubs_own_certificate_survives_a_restart_and_names_its_hosts(hub):
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


def test_metrics_tell_power_and_records(hub):
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
