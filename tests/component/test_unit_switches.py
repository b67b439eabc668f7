# SPDX-License-Identifier: Apache-2.0
"""The right to switch: the table of docs/permissions.md, row by row, with relays on a real broker. Nothing that must
stay on goes off, whatever fails."""
import subprocess
import time
import uuid

import pytest

from site_bed import MONDAY_17, Clock, Hand, Relay, rule, wait
from unit_bed import bed, program, rig  # noqa: F401

pytestmark = pytest.mark.skipif(bool(rig.missing()), reason=f"not installed: {', '.join(rig.missing())}")

SWITCHES = """
[switch lights]
kind = tasmota
topic = lights
command = yes
restore = yes
[switch ac]
kind = shelly
topic = ac
command = yes
min-on = 10min
[switch fridge]
kind = tasmota
topic = fridge
always-on = yes
command = yes
[switch press]
kind = tasmota
topic = press
rules = no
[presence door]
kind = json
topic = door
path = occupancy
"""
EMPTY = {"if": "absent", "absent": 900}


@pytest.fixture
def room(bed, tmp_path):  # noqa: F811
    """room() -> the unit with .hub, .parent, .clock and its relays .lights, .ac, .fridge, .press, all on."""
    def make(switches=SWITCHES, relays=("lights", "ac", "fridge", "press"), **env):
        broker = bed.broker()
        parent, hub, clock = bed.parent(broker), Hand(tmp_path, broker), Clock(tmp_path, MONDAY_17)
        of = {name: bed.keep(Relay(broker, name, kind="shelly" if name == "ac" else "tasmota")) for name in relays}
        unit = bed.unit(f"[unit]\nname = lab3\n[local]\nbroker = 127.0.0.1:{broker.port}\n"
                        f"[uplink]\nbroker = 127.0.0.1:{broker.port}\nseal = {hub.public}\n{switches}",
                        TIDE_CLOCK=str(clock.path), **env)
        unit.broker, unit.hub, unit.parent, unit.clock = broker, hub, parent, clock
        unit.__dict__.update(of)
        parent.wait(lambda p: p.states and len(p.states[-1].get("switches", ())) == len(relays)
                    and all(s["known"] for s in p.states[-1]["switches"]))
        return unit
    return make


def outcome(parent, ident):
    return next((e["data"]["state"] for e in parent.events if e["type"] == "switch" and e["data"].get("id") == ident), None)


def text(parent, ident):
    return next(e["text"] for e in parent.events if e["type"] == "switch" and e["data"].get("id") == ident)


def is_on(parent, name):
    return next((s["on"] for s in parent.states[-1].get("switches", ()) if s["name"] == name), None)


def empty_for_long(unit):
    """The room is empty, and a rule says that this is long."""
    unit.hub.policy(unit.parent.states[-1]["policy"] + 1,
                    [rule("off", 0, line=10, off="lights ac fridge press", **{"if": "absent", "absent": 1})])
    unit.broker.publish("door", '{"occupancy": false}')


def test_who_may_switch_what(room):
    unit = room()
    parent, hub = unit.parent, unit.hub
    told = {s["name"]: (s["always_on"], s["command"]) for s in parent.states[-1]["switches"]}
    assert told == {"lights": (False, True), "ac": (False, True), "fridge": (True, True), "press": (False, False)}
    soon = MONDAY_17 + 300
    rows = [  # switch, on, outcome, part of the reason
        ("lights", False, "done", "switched"),
        ("lights", False, "done", "it was so already"),
        ("ac", False, "refused", "stays on for at least 600 s"),
        ("fridge", False, "refused", "stays on by configuration"),
        ("fridge", True, "done", "it was so already"),
        ("press", False, "refused", "people may not switch it"),
        ("oven", False, "refused", "no such switch"),
    ]
    for name, on, state, why in rows:
        ident = hub.command(name, on, soon)
        parent.wait(lambda p, i=ident: outcome(p, i))
        assert (outcome(parent, ident), why in text(parent, ident)) == (state, True), (name, on, text(parent, ident))
    late = hub.command("lights", True, MONDAY_17 - 5)
    far = hub.command("lights", True, MONDAY_17 + 9000)
    parent.wait(lambda p: outcome(p, late) == "expired" and outcome(p, far) == "refused")
    ident = uuid.uuid4().hex
    for sealed in (hub.seal("policy", hub.cmd_text("lights", True, soon, ident)),  # not sealed as a command
                   hub.seal("cmd", hub.cmd_text("lights", True, soon, ident, unit="lab4"), name="lab4"),
                   hub.seal("cmd", hub.cmd_text("lights", True, soon, ident, unit="lab4")),
                   b"x" * 64 + hub.cmd_text("lights", True, soon, ident).encode()):
        hub.publish("cmd", sealed)
    parent.wait(lambda p: sum(e["type"] == "refused" for e in p.events) == 4)
    unit.kill()
    hub.publish("cmd", hub.seal("cmd", hub.cmd_text("lights", True, soon, ident)), "-r")
    unit.begin()
    parent.wait(lambda p: any("a retained message" in e["text"] for e in p.events))
    assert (unit.lights.orders, unit.ac.orders, unit.fridge.orders, unit.press.orders) == (["off"], [], [], [])


def test_a_command_of_an_hour_is_taken_though_the_hubs_clock_is_ahead(room):
    unit = room("[switch lights]\nkind = tasmota\ntopic = lights\ncommand = yes\n", ("lights",))
    ident = unit.hub.command("lights", False, MONDAY_17 + 3600 + 40)  # the unit's clock has run since the start
    unit.parent.wait(lambda p: outcome(p, ident))
    assert outcome(unit.parent, ident) == "done", text(unit.parent, ident)


def restart(unit):
    since = len(unit.parent.states)
    if unit.process.poll() is None:
        unit.kill()
    unit.begin()
    unit.parent.wait(lambda p: any(s.get("switches") and all(w["known"] for w in s["switches"]) for s in p.states[since:]))


def test_a_command_counts_once_also_after_a_restart(room):
    unit = room()
    ident, message = uuid.uuid4().hex, None
    message = unit.hub.seal("cmd", unit.hub.cmd_text("lights", False, MONDAY_17 + 3000, ident))
    unit.hub.publish("cmd", message)
    unit.parent.wait(lambda p: outcome(p, ident) == "done")
    unit.lights.press()  # somebody wants light
    unit.parent.wait(lambda p: is_on(p, "lights"))
    unit.hub.publish("cmd", message)
    restart(unit)
    unit.hub.publish("cmd", message)
    other = unit.hub.command("lights", True, MONDAY_17 + 3000)
    unit.parent.wait(lambda p: outcome(p, other) == "done")
    assert unit.lights.on and unit.lights.orders.count("off") == 1


def test_an_empty_room_goes_dark_and_what_a_person_does_stays(room):
    unit = room()
    empty_for_long(unit)
    wait(lambda: not unit.lights.on, lambda: unit.lines)
    unit.parent.wait(lambda p: not is_on(p, "lights") and p.states[-1]["absent_s"] >= 0)
    assert any(e["data"]["by"] == "rule" for e in unit.parent.events if e["type"] == "switch")
    unit.lights.press()  # the sensor is wrong, and somebody sits there
    unit.parent.wait(lambda p: is_on(p, "lights") and any(e["type"] == "switch" and e["data"]["by"] == "hand" for e in p.events))
    time.sleep(2.5)  # the rule says off still
    assert unit.lights.on
    unit.broker.publish("door", '{"occupancy": true}')
    unit.parent.wait(lambda p: p.states[-1]["absent_s"] == 0)
    unit.broker.publish("door", '{"occupancy": false}')
    wait(lambda: not unit.lights.on, lambda: unit.lines)
    unit.broker.publish("door", '{"occupancy": true}')  # restore = yes
    wait(lambda: unit.lights.on, lambda: unit.lines)
    assert unit.ac.on and unit.fridge.on and unit.press.on  # min-on; always-on; rules = no
    assert (unit.ac.orders, unit.fridge.orders, unit.press.orders) == ([], [], [])


def test_nothing_is_switched_when_the_policy_ends(room):
    unit = room()
    empty_for_long(unit)
    wait(lambda: not unit.lights.on, lambda: unit.lines)
    unit.clock.set(MONDAY_17 + 8 * 86400)
    unit.parent.wait(lambda p: any("past its end" in e["text"] for e in p.events if e["type"] == "policy"))
    time.sleep(2.5)
    assert not unit.lights.on and unit.lights.orders == ["off"]  # though restore = yes
    unit.lights.press()
    time.sleep(2.5)
    assert unit.lights.on and unit.lights.orders == ["off"]


EVENING = {"if": "window", "window": {"days": 127, "from": 17 * 60, "to": 23 * 60, "zone": 0}}
LIGHTS = "[switch lights]\nkind = tasmota\ntopic = lights\nrestore = yes\n"


def dark(unit):
    """A rule has switched the lights off, and the disk knows it."""
    unit.hub.policy(1, [rule("off", 0, line=10, off="lights", **EVENING)])
    wait(lambda: not unit.lights.on, lambda: unit.lines)
    wait(lambda: "lights 1 1" in ruled(unit), lambda: ruled(unit))


def ruled(unit):
    file = unit.folder / "ruled"
    return file.read_text() if file.exists() else ""


def test_a_restart_begins_no_rule_again(room):
    unit = room(LIGHTS, ("lights",))
    dark(unit)
    unit.lights.press()  # somebody works late
    wait(lambda: "lights 1 0" in ruled(unit), lambda: ruled(unit))
    restart(unit)
    unit.parent.wait(lambda p: p.states[-1].get("policy") == 1)
    time.sleep(2.5)
    assert unit.lights.on and unit.lights.orders == ["off"]
    unit.kill()
    unit.clock.set(MONDAY_17 + 86400)  # another evening
    unit.begin()
    wait(lambda: not unit.lights.on, lambda: unit.lines)


def test_what_a_rule_switched_off_comes_on_also_after_a_restart(room):
    unit = room(LIGHTS, ("lights",))
    dark(unit)
    unit.kill()
    unit.clock.set(MONDAY_17, tail=",unsynchronised")
    unit.begin()
    unit.parent.wait(lambda p: p.states[-1].get("policy") == 1 and not p.states[-1].get("synced", True))
    time.sleep(2.5)
    assert not unit.lights.on and unit.lights.orders == ["off"]  # it may be evening still
    unit.clock.set(MONDAY_17 + 6 * 3600 + 60)
    wait(lambda: unit.lights.on, lambda: unit.lines)


def test_a_restart_lights_no_empty_room(room):
    unit = room(LIGHTS + "[presence door]\nkind = json\ntopic = door\npath = occupancy\n", ("lights",))
    empty_for_long(unit)
    wait(lambda: not unit.lights.on, lambda: unit.lines)
    wait(lambda: "lights 1 1" in ruled(unit), lambda: ruled(unit))
    restart(unit)
    unit.hub.policy(9, [rule("off", 0, line=10, off="lights", **EMPTY)])
    unit.broker.publish("door", '{"occupancy": false}')
    time.sleep(2.5)
    assert not unit.lights.on and unit.lights.orders == ["off"]
    unit.broker.publish("door", '{"occupancy": true}')
    wait(lambda: unit.lights.on, lambda: unit.lines)


def test_a_deaf_relay_is_told_and_left(room):
    unit = room()
    unit.lights.deaf = True
    ident = unit.hub.command("lights", False, MONDAY_17 + 3000)
    unit.parent.wait(lambda p: outcome(p, ident))
    assert outcome(unit.parent, ident) == "disobeyed" and "does not obey" in text(unit.parent, ident)
    assert unit.lights.on and unit.lights.orders == ["off"] * 3


def test_a_command_ends_in_its_time_also_when_the_clock_is_set_back(room):
    unit = room("[switch lights]\nkind = tasmota\ntopic = lights\ncommand = yes\n", ("lights",))
    unit.lights.deaf = True
    ident = unit.hub.command("lights", False, MONDAY_17 + 16)  # the clock has run since; at least ten seconds are left
    wait(lambda: unit.lights.orders, lambda: unit.lines)
    unit.clock.set(MONDAY_17 - 86400)
    unit.parent.wait(lambda p: outcome(p, ident))
    assert outcome(unit.parent, ident) == "expired", text(unit.parent, ident)
    orders = len(unit.lights.orders)
    time.sleep(12)  # longer than the pause between two orders
    assert len(unit.lights.orders) == orders


def test_an_order_that_the_broker_holds_for_a_relay_ends_with_its_command(room):
    unit = room("[switch lights]\nkind = tasmota\ntopic = lights\ncommand = yes\n", ("lights",))
    unit.lights.end()
    relay = ["mosquitto_sub", "-V", "5", "-p", str(unit.broker.port), "-q", "1", "-i", "lights", "-c", "-x", "300",
             "-t", "cmnd/lights/POWER", "-F", "x%p"]
    subprocess.run([*relay, "-E"], check=True, timeout=30)  # its connection is broken from now on
    unit.clock.set(MONDAY_17)
    ident = unit.hub.command("lights", False, MONDAY_17 + 4)
    unit.parent.wait(lambda p: outcome(p, ident))
    assert outcome(unit.parent, ident) == "expired", text(unit.parent, ident)
    time.sleep(1.5)  # the broker counts in whole seconds
    heard = subprocess.run([*relay, "-W", "3"], capture_output=True, text=True, timeout=30, check=False).stdout
    assert "xOFF" not in heard.splitlines()


def test_a_relay_that_chatters_is_told_and_left_alone(room):
    unit = room("[switch lights]\nkind = tasmota\ntopic = lights\ncommand = yes\nmost-per-hour = 6\n", ("lights",))
    for _ in range(9):
        unit.lights.press()
    unit.parent.wait(lambda p: any(e["type"] == "chatter" for e in p.events))
    unit.parent.wait(lambda p: is_on(p, "lights") == unit.lights.on)
    ident = unit.hub.command("lights", not unit.lights.on, MONDAY_17 + 3000)
    unit.parent.wait(lambda p: outcome(p, ident) == "refused" and "too often" in text(p, ident))
    assert unit.lights.orders == [] and sum(e["type"] == "chatter" for e in unit.parent.events) == 1


def test_nothing_goes_off_when_broker_hub_sensor_clock_or_disk_fail(room):
    unit = room()
    fridge = unit.fridge
    unit.hub.policy(1, [rule("off", 0, line=10, off="lights ac fridge press", **EMPTY),
                        rule("off", 0, line=11, off="lights fridge",
                             **{"if": "window", "window": {"days": 127, "from": 1320, "to": 360, "zone": 0}})], valid=86400 * 2)
    unit.parent.wait(lambda p: p.states[-1]["policy"] == 1)
    unit.broker.publish("door", '{"occupancy": "perhaps"}')
    unit.broker.publish("door", "{")
    unit.clock.set(MONDAY_17, tail=",unsynchronised")  # 22:00 may be now: off needs to be sure
    unit.parent.wait(lambda p: not p.states[-1]["synced"])
    unit.clock.set(MONDAY_17 + 4 * 86400)  # past the policy's end, at 17:00
    unit.parent.wait(lambda p: p.states[-1]["synced"])
    unit.clock.set(MONDAY_17 + 4 * 86400 + 6 * 3600)  # and at 23:00
    since = len(unit.lines)
    unit.broker.kill()
    unit.wait_line("local: ", since)
    unit.broker.start()
    unit.parent.listen()
    unit.kill()
    unit.env["TIDE_FAILPOINT"] = "unit-order-store:1+:ENOSPC"
    unit.begin()
    for relay in (unit.lights, unit.ac, fridge, unit.press):
        assert relay.on and relay.orders == [], unit.lines


def test_a_disk_that_cannot_note_a_command_refuses_it(room):
    unit = room(TIDE_FAILPOINT="unit-order-store:1+:ENOSPC")
    ident = unit.hub.command("lights", False, MONDAY_17 + 3000)
    unit.parent.wait(lambda p: outcome(p, ident) == "refused" and "carried out twice" in text(p, ident))
    assert unit.lights.on


def test_more_commands_than_a_unit_remembers_are_refused_as_such(room):
    unit = room()
    unit.kill()
    (unit.folder / "commands").write_text("".join(f"{(MONDAY_17 + 60) * 1000} {n}\n" for n in range(512)))
    restart(unit)
    ident = unit.hub.command("lights", False, MONDAY_17 + 3000)
    unit.parent.wait(lambda p: outcome(p, ident) == "refused" and "too many commands came" in text(p, ident))
    assert unit.lights.on


def test_names_that_are_cut_inside_of_a_character_are_told_all_the_same(room):
    unit = room()
    for name, by in (("x" * 46 + "é", "ana@hub"), ("oven", "y" * 39 + "é@hub")):
        ident = uuid.uuid4().hex
        unit.hub.publish("cmd", unit.hub.seal("cmd", unit.hub.cmd_text(name, False, MONDAY_17 + 300, ident, by=by)))
        unit.parent.wait(lambda p, i=ident: outcome(p, i) == "refused" and "no such switch" in text(p, i))


def test_killed_behind_a_noted_command_it_is_not_carried_out(room):
    unit = room(TIDE_FAILPOINT="unit-order-noted:1")
    ident, message = uuid.uuid4().hex, None
    message = unit.hub.seal("cmd", unit.hub.cmd_text("lights", False, MONDAY_17 + 3000, ident))
    unit.hub.publish("cmd", message)
    unit.process.wait(30)
    unit.env.pop("TIDE_FAILPOINT")
    restart(unit)
    unit.hub.publish("cmd", message)
    other = unit.hub.command("lights", True, MONDAY_17 + 3000)
    unit.parent.wait(lambda p: outcome(p, other) == "done")
    assert unit.lights.on and unit.lights.orders == []
