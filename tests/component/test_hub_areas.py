# SPDX-License-Identifier: Apache-2.0
"""The hub's areas, policy and switches, as people and scripts use them."""
import json
import re
import signal
import struct
import subprocess
import time

import pytest

from daemon import eventually
from hub import KWH, end_listener
from hub_web import POLICY, Hub, areas, needs_tools
from hub_web import hub  # noqa: F401 (a fixture)
from site_bed import Clock
from test_hub_leases import PAHO, SYSTEM_PYTHON

pytestmark = needs_tools


def test_all_see_which_machines_were_shrunk_and_each_user_only_its_own_jobs(hub):  # noqa: F811
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
        while not any(told["area"] == "unlp/lab3" for told in stream.next("power")[2]):
            pass
    assert counted.counts()[0] - before < 20 * rooms * tellings  # each looks at each room once, not rooms times
    stream.close()


def test_the_power_of_many_areas_comes_in_few_events(counted):
    """A page of 10,000 units, of which 1,000 draw something else each second, is as old as its messages are many."""
    names = {f"unlp/room{i}" for i in range(250)}
    counted.policy(POLICY.replace("tariff:", "".join(f"- {{area: {name}, name: Room}}\n" for name in sorted(names)) + "tariff:"))
    counted.serve()
    counted.enrol("lab3")
    stream = counted.user("vera").stream()
    counted.state_of("lab3")
    told, sizes = set(), []
    while not names <= told:
        areas_told = [one["area"] for one in stream.next("power")[2]]
        assert told.isdisjoint(areas_told)
        told.update(areas_told)
        sizes.append(len(areas_told))
    assert sizes[:2] == [100, 100] and len(sizes) == 3
    stream.close()


MANY_STATES = """
import json, ssl, sys, paho.mqtt.client as mqtt
port, ca, cert, key, rooms = int(sys.argv[1]), *sys.argv[2:5], int(sys.argv[5])
c = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2) if hasattr(mqtt, "CallbackAPIVersion") else mqtt.Client()
c.tls_set(ca, cert, key)
c.max_inflight_messages_set(1000)
c.connect("127.0.0.1", port)
c.loop_start()
state = json.dumps({"v": 1, "online": True, "synced": True, "role": "unit", "version": "0.1.0", "boot": 7, "policy": 0})
for m in [c.publish(f"tide/1/r{i}/up/state", state, qos=1) for i in range(rooms)]:
    m.wait_for_publish(30)
c.disconnect()
"""


@pytest.mark.skipif(not PAHO, reason="python3-paho-mqtt is not installed")
def test_the_states_of_all_units_at_once_are_told_in_few_walks(counted):
    rooms = 400
    counted.policy(POLICY.replace("tariff:", "".join(f"- {{area: unlp/r{i}, unit: r{i}}}\n" for i in range(rooms)) + "tariff:"))
    counted.serve()
    counted.enrol("helper")
    (counted.state / "broker/acl").write_text("user tide-hub\ntopic readwrite #\nuser helper\ntopic readwrite #\n")
    counted.broker.send_signal(signal.SIGHUP)
    eventually(lambda: counted.publish("helper", "tide/1/r0/up/state", "?")[0] == 0 and "r0: sent a state" in counted.said())
    stream = counted.user("vera").stream()
    before, heard = counted.counts()[0], set()
    subprocess.run([SYSTEM_PYTHON, "-c", MANY_STATES, str(counted.port), counted.state / "trust/ca.crt",
                    counted.folder / "helper.crt", counted.folder / "helper.key", str(rooms)], check=True, timeout=60)
    while len(heard) < rooms:
        data = stream.next("state")[2]
        if data["area"].startswith("unlp/r") and data["state"] == "connected":
            heard.add(data["area"])
    walks = rooms / 40 + 4  # batches of forty, and the power of some seconds
    assert counted.counts()[0] - before < 20 * rooms * walks
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


def test_a_question_that_takes_too_long_is_given_up(counted):
    """Each unit is asked of its area, then of its machine: after the first unit more than 20 s are over."""
    counted.policy()
    counted.env |= {"COUNT_CALLS_US": "10100000", "COUNT_CALLS_OF": "SELECT (s.to_ms - 1) /"}
    counted.serve()
    status, answer = counted.script("vera").call("GET", "/v1/areas/unlp/energy")
    assert status == 400 and "unlp takes too long to look up" in answer["error"]["message"], answer


def test_units_inside_of_another_units_area_tell_of_their_own_machines(hub):  # noqa: F811
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


def test_a_unit_inside_of_another_units_area_is_not_counted_twice_in_days(hub):  # noqa: F811
    ada = hub.script("ada")
    text, number = (ada.call("GET", "/v1/policy")[1][key] for key in ("text", "number"))
    text = text.replace("tariff:", "- {area: unlp/lab3/box, unit: box}\ntariff:")
    assert ada.call("PUT", "/v1/policy", {"text": text, "number": number})[0] == 200
    for unit in ("lab3", "box", "guest"):
        hub.enrol(unit)
    hub.used("lab3", 1)
    hub.used("box", 0.4)  # of that one kWh
    hub.used("guest", 2)  # in no area
    by = {what: ada.call("GET", f"/v1/energy?by={what}")[1]["rows"] for what in ("area", "day")}
    assert {row["key"]: int(row["uj"]) for row in by["area"]}["unlp"] == KWH
    assert sum(int(row["uj"]) for row in by["day"]) == KWH


# ---- areas, policy, switches ----

def test_areas_show_what_units_say_and_what_the_policy_says(hub):  # noqa: F811
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


def test_an_areas_energy_has_its_cost_and_a_sum_above_it(hub):  # noqa: F811
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


def test_the_gap_of_several_units_is_their_mean(hub):  # noqa: F811
    """The page divides by the rest of the step: a sum of gaps would show more watts than were drawn."""
    end = int(time.time()) // 900 * 900_000
    for unit, gap in (("lab3", 90_000), ("lab4", 270_000)):
        hub.enrol(unit)
        assert hub.send(unit, {"v": 1, "boot": 7, "records": [
            {"point": "area", "seq": 1, "from": end - 900_000, "to": end, "mono": 10**9, "uj": KWH, "low": KWH,
             "high": KWH, "basis": "measured", "gap": gap}]})
    vera = hub.script("vera")
    for area, gap in (("unlp/lab3", 90_000), ("unlp/lab4", 270_000), ("unlp", 180_000)):
        for step in ("15min", "1h"):
            stretches = vera.call("GET", f"/v1/areas/{area}/energy?step={step}")[1]["stretches"]
            assert [s["gap_ms"] for s in stretches] == [gap], (area, step)


def test_what_was_used_at_a_dear_time_costs_what_it_did_in_sums_too(hub):  # noqa: F811
    ada = hub.script("ada")
    text, number = (ada.call("GET", "/v1/policy")[1][key] for key in ("text", "number"))
    hour = time.gmtime().tm_hour
    text = text.replace("  price: 0.25 EUR/kWh\n", "  price: 0.10 EUR/kWh\n  windows:\n  - {when: \""
                        f"{(hour - 2) % 24:02}:00-{(hour + 2) % 24:02}:00 Etc/UTC\", price: 0.50 EUR/kWh}}\n")
    assert ada.call("PUT", "/v1/policy", {"text": text, "number": number})[0] == 200
    hub.enrol("lab3")
    hub.used("lab3", 1)  # in the last quarter of an hour
    for step in ("15min", "1h"):  # an hour costs what its quarters do
        stretches = ada.call("GET", f"/v1/areas/unlp/energy?step={step}")[1]["stretches"]
        assert sum(s["cost"] for s in stretches) == pytest.approx(0.50), step
    for by in ("area", "day"):
        rows = ada.call("GET", f"/v1/energy?by={by}")[1]["rows"]
        cost = sum(row["cost"] for row in rows if by == "day" or row["key"] == "unlp")
        assert cost == pytest.approx(0.50, rel=0.02), (by, rows)


def test_a_policy_is_checked_put_and_kept_and_two_editors_do_not_overwrite_each_other(hub):  # noqa: F811
    ada = hub.user("ada")
    first = ada.call("GET", "/v1/policy")[1]
    assert first["text"].endswith(POLICY) and first["number"] > 0
    wrong = POLICY.replace("cap: 1200 W", "cap: 200 W")
    status, answer = ada.call("POST", "/v1/policy/check", {"text": wrong})
    assert status == 200 and answer["faults"][0]["line"] == 11 and answer["diff"] == []
    better = POLICY.replace("cap: 1200 W", "cap: 900 W")
    assert ada.call("POST", "/v1/policy/check", {"text": better})[1] == {
        "faults": [], "warnings": [], "diff": ["~ unlp/lab3: cap 900 W (breaker); was: cap 1200 W (breaker)"]}
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


def test_the_page_does_not_undo_what_was_applied_a_moment_before(hub):  # noqa: F811
    ada = hub.user("ada")
    number = ada.call("GET", "/v1/policy")[1]["number"]
    file = hub.state / "policy.yaml"
    file.write_text(file.read_text().replace("cap: 1200 W", "cap: 1000 W"))  # by 'policy apply', whose SIGHUP is on its way
    status, answer = ada.call("PUT", "/v1/policy", {"text": POLICY.replace("cap: 1200 W", "cap: 900 W"), "number": number})
    assert status == 409 and "read it again" in answer["error"]["message"], answer
    assert areas(ada)["unlp/lab3"]["cap_uw"] == 1_000_000_000


def test_a_check_warns_of_areas_without_a_unit_and_of_switches_that_no_unit_has(hub):  # noqa: F811
    ada = hub.script("ada")
    text = POLICY + "- {area: unlp/lab33, cap: 5 W}\n- {room: unlp/lab3, when: absent 15 min, off: [ac, lihgts]}\n"

    def warnings():
        answer = ada.call("POST", "/v1/policy/check", {"text": text})[1]
        assert answer["faults"] == [] and answer["diff"]
        return [(w["line"], w["column"], w["text"]) for w in answer["warnings"]]

    area = (13, 27, "no unit stands in unlp/lab33 or below it: nobody keeps this rule")
    assert warnings() == [area]  # of the laboratory's switches nobody knows
    hub.enrol("lab3")
    hub.state_of("lab3", switches=[{"name": "ac", "on": True, "known": True, "always_on": False, "command": True}])
    eventually(lambda: len(warnings()) == 2)
    assert warnings()[1][0::2] == (14, "no unit in unlp/lab3 or below it has a switch 'lihgts'")
    number = ada.call("GET", "/v1/policy")[1]["number"]
    assert ada.call("PUT", "/v1/policy", {"text": text, "number": number})[0] == 200  # a warning forbids nothing


def test_an_operator_switches_and_everybody_hears_what_came_of_it(hub):  # noqa: F811
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
        end_listener(process)
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


def test_an_order_ends_in_its_time_also_when_the_clock_is_set_back(hub, tmp_path):  # noqa: F811
    clock = Clock(tmp_path, int(time.time()))
    hub.kill()
    hub.env = {"TIDE_CLOCK": str(clock.path)}
    hub.serve()
    hub.enrol("lab3")
    hub.state_of("lab3", switches=[{"name": "ac", "on": True, "known": True, "always_on": False, "command": True}])
    olga = hub.user("olga")
    eventually(lambda: areas(olga)["unlp/lab3"]["switches"])
    stream = hub.user("vera").stream()
    status, answer = olga.call("POST", "/v1/areas/unlp/lab3/switches/ac", {"on": False, "for_s": 1})
    assert status == 202, answer
    clock.set(int(time.time()) - 86400)
    said = {"state": "ordered"}
    while said["state"] == "ordered":  # ten seconds behind its end nobody waits for it any more
        _, _, said = stream.next("switch")
    stream.close()
    assert (said["id"], said["state"]) == (answer["id"], "expired")


def test_an_administrator_has_a_units_and_a_users_energy_forgotten(hub):  # noqa: F811
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


def test_units_are_listed_revoked_and_admitted(hub):  # noqa: F811
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
def test_a_revoked_units_connection_is_cut_and_it_counts_as_lost(hub, by_command):  # noqa: F811
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


def test_a_unit_that_was_admitted_again_is_cut_off_again_when_it_is_revoked_again(hub):  # noqa: F811
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


def test_a_revoked_unit_that_sends_all_the_time_is_cut_though_nobody_tells_the_broker(hub):  # noqa: F811
    hub.enrol("lab3")
    hub.state_of("lab3")
    ada = hub.script("ada")
    eventually(lambda: [u["state"] for u in ada.call("GET", "/v1/units")[1]] == ["connected"])
    (hub.state / "broker/pid").unlink()  # as where only --write was run: the broker does not reload
    unit = subprocess.Popen(hub.client("mosquitto_pub", "lab3", "-t", "tide/1/lab3/up/demand", "-l"), stdin=subprocess.PIPE, text=True)

    def cut():
        try:
            unit.stdin.write("{}\n")  # five a second
            unit.stdin.flush()
        except BrokenPipeError:
            pass  # it was hung up on
        return "lab3: is revoked: its connection is cut" in hub.said()

    try:
        assert ada.call("POST", "/v1/units/lab3/revoke")[0] == 200
        eventually(cut, pause=0.2)
        assert "already connected, closing old connection" in hub.log()
    finally:
        unit.kill()
        unit.wait()


def test_the_hub_takes_nothing_of_a_revoked_unit_whatever_the_broker_lets_through(hub):  # noqa: F811
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
    eventually(lambda: hub.publish("helper", "tide/1/lab9/up/state", "?")[0] == 0 and "lab9: sent a state" in hub.said())
    hub.publish("helper", "tide/1/lab3/up/state", json.dumps(
        {"v": 1, "online": True, "synced": True, "role": "unit", "version": "0.1.0", "boot": 9, "policy": 0}))
    hub.publish("helper", "tide/1/lab9/up/state", "{")
    eventually(lambda: hub.said().count("lab9: sent a state") > before.count("lab9: sent a state") + 1)
    assert {u["name"]: u["state"] for u in ada.call("GET", "/v1/units")[1]}["lab3"] == "lost"
