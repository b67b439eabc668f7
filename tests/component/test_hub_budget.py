# SPDX-License-Identifier: Apache-2.0
"""A day's budget of the whole organization, shared among units by a real hub: what is left of it, as the hub's store knows,
is lent as a cap. The day is of 23 hours."""
import datetime
import json
import zoneinfo

import pytest

import postgres
from daemon import eventually
from hub import KWH, Serving
from site_bed import Clock
from test_hub_leases import FLOOR, W, Borrowers, pytestmark  # noqa: F401

ZONE = "Europe/Berlin"
NAMES = ("lab3", "lab4", "hall")
POLICY = f"""version: 1
org: unlp
zone: {ZONE}
areas:
- {{area: unlp/floor1/lab3, unit: lab3}}
- {{area: unlp/floor1/lab4, unit: lab4}}
- {{area: unlp/hall, unit: hall}}
rules:
- {{area: unlp, budget: 23 kWh/day}}
- {{area: unlp/floor1/lab3, floor: {FLOOR} W}}
- {{area: unlp/floor1/lab4, floor: {FLOOR} W}}
- {{area: unlp/hall, floor: {FLOOR} W}}
"""


def moment(hour, day=29):
    """March 29, 2026: clocks go from 02:00 to 03:00."""
    return int(datetime.datetime(2026, 3, day, hour, tzinfo=zoneinfo.ZoneInfo(ZONE)).timestamp())


class Units(Borrowers):
    cap = floor_cap = float("inf")  # the budget is the only bound

    def read_sum(self):
        return sum(self.last["draw"]) / W


def make_hub(build_dir, tmp_path, policy, *options):
    made = Serving(build_dir / "tide-hub", tmp_path)
    made.clock = Clock(tmp_path, moment(23, 28), factor=1)
    made.env = {"TIDE_CLOCK": str(made.clock.path)}
    made.seq, made.ends = 0, dict.fromkeys(NAMES, moment(22, 28))
    (tmp_path / "etc.yaml").write_text(policy)
    made.options = ("--policy", tmp_path / "etc.yaml", *options)
    made.start()
    for name in NAMES:
        made.enrol(name)
    (made.state / "leases").write_text("threadtide leases 1 0 0\n")  # the first start of all
    return made


@pytest.fixture
def hub(build_dir, tmp_path):
    made = make_hub(build_dir, tmp_path, POLICY)
    yield made
    made.stop()


@pytest.fixture
def units(hub):
    made = Units(hub, NAMES)
    yield made
    made.end()


def stored(hub, units, line, point, total):
    """Sends it, as a unit does until it has a receipt: the hub may not have subscribed yet."""
    units.process.stdin.write(line)
    units.process.stdin.flush()
    return hub.energy().get(point) == total


def used(hub, units, until, *kwh):
    """Each unit's record up to that hour, with all that it used since the first one; None: it is late."""
    hub.seq += 1
    for name, total in zip(NAMES, kwh):
        if total is None:
            continue
        before, hub.ends[name] = hub.ends[name], until
        uj = int(total * KWH)
        line = name + " " + json.dumps({"boot": 7, "records": [
            {"point": "area", "seq": hub.seq, "from": before * 1000, "to": until * 1000, "mono": hub.seq * 10**9,
             "uj": uj, "low": uj, "high": uj, "basis": "measured", "gap": 0}]}) + "\n"
        eventually(lambda: stored(hub, units, line, (name, "area"), total))


def lent(units, low, high, guard=30):
    eventually(lambda: low <= units.read_sum() <= high or None, guard)
    units.after(3)
    assert low <= units.read_sum() <= high, units.last


def test_the_units_of_an_organization_share_what_is_left_of_its_day(hub, units):
    hub.serve()
    used(hub, units, moment(23, 28), 0.5, 0.5, 0.5)
    units.want(2000, 300, 2000)
    hub.clock.set(moment(0))
    lent(units, 985, 1001)  # 23 kWh in 23 hours, and the earlier day's use is another day's
    hub.clock.set(moment(12))  # eleven hours later
    used(hub, units, moment(12), 6.5, 3, 8.5)
    hub.clock.set(moment(12) + 61)
    lent(units, 530, 545)  # 6.5 kWh in twelve hours
    code, out, _ = hub.run("policy", "explain", "unlp/hall", "--file", hub.folder / "etc.yaml")
    assert code == 0 and "budget 23 kWh/day, flat, shared by units (without the hub 6.4" in out
    code, out, _ = hub.run("policy", "check", hub.folder / "etc.yaml")
    assert code == 0 and "line 9    unlp: budget 23 kWh/day, flat, shared by units" in out


def test_a_unit_that_is_late_keeps_its_part_until_its_records_say_better(hub, units):
    hub.serve()
    used(hub, units, moment(23, 28), 0.5, 0.5, 0.5)
    units.want(400, 100, 2000)
    hub.clock.set(moment(0))
    lent(units, 985, 1001)
    hub.clock.set(moment(6))
    used(hub, units, moment(6), None, 0.5, 0.5)
    hub.clock.set(moment(6) + 61)  # lab3 may have drawn its 400 W for five hours: 2 of the 23 kWh
    lent(units, 1155, 1168)
    used(hub, units, moment(6), 1)  # it used a quarter of that
    hub.clock.set(moment(6) + 122)
    lent(units, 1238, 1251)


def test_a_unit_whose_clock_is_ahead_is_late_all_the_same_for_a_hub_that_begins_anew(hub, units):
    hub.serve()
    used(hub, units, moment(23, 28), 0.5, 0.5, 0.5)
    units.want(400, 100, 2000)
    hub.clock.set(moment(0))
    lent(units, 985, 1001)
    used(hub, units, moment(12), 0.501, None, None)  # lab3's clock is half a day ahead
    hub.kill()
    hub.serve()  # what the store says is all that it knows
    units.after(10)
    lent(units, 985, 1001)
    hub.clock.set(moment(6))
    used(hub, units, moment(6), None, 0.5001, 0.5001)  # more, so that it is sent until it has a receipt
    hub.clock.set(moment(6) + 61)  # lab3 may have drawn its 400 W for five hours: 2 of the 23 kWh
    lent(units, 1150, 1170)


def test_a_unit_that_is_late_counts_with_what_it_is_lent_meanwhile(hub, units):
    hub.serve()
    used(hub, units, moment(23, 28), 0.5, 0.5, 0.5)
    units.want(100, 100, 100)
    hub.clock.set(moment(0))
    lent(units, 299, 301)
    hub.clock.set(moment(0) + 240)  # late by now, with 100 W each
    units.after(10)
    units.want(100, 100, 400)
    lent(units, 599, 601)
    hub.clock.set(moment(6))
    units.want(100, 100, 2000)
    lent(units, 1100, 1115)  # 600 W for five hours: 20 kWh in 18 hours


def test_a_unit_that_is_cut_off_counts_as_its_last_lease_and_keeps_its_part(hub, units):
    book = f"threadtide leases 1 9 0\nlab3 5 0 0 1 {400 * W}\n"  # its lease of 400 W has ended
    (hub.state / "leases").write_text(book)
    hub.serve()
    used(hub, units, moment(23, 28), 0.5, 0.5, 0.5)
    units.want(0, 300, 2000)
    hub.clock.set(moment(0))
    lent(units, 640, 651)  # 1000 W, of which lab3 may draw 400 W; as it is not lent them, its floor is in the sum
    hub.clock.set(moment(6))
    used(hub, units, moment(6), None, 0.5, 0.5)
    hub.clock.set(moment(6) + 61)
    lent(units, 805, 818)  # 21 kWh in 18 hours, without 350 W


def test_a_budget_that_is_used_up_leaves_floors_until_midnight_also_with_a_new_hub(hub, units):
    hub.serve()
    used(hub, units, moment(23, 28), 0.5, 0.5, 0.5)
    units.want(2000, 300, 2000)
    hub.clock.set(moment(0))
    lent(units, 985, 1001)
    hub.clock.set(moment(20))
    used(hub, units, moment(20), 8.5, 8.5, 8.5)
    hub.clock.set(moment(20) + 61)
    lent(units, 3 * FLOOR, 3 * FLOOR)
    hub.kill()
    hub.serve()
    units.after(10)
    lent(units, 3 * FLOOR, 3 * FLOOR)
    hub.clock.set(moment(0, 30))
    used(hub, units, moment(0, 30), 8.5, 8.5, 8.5)
    hub.clock.set(moment(0, 30) + 61)
    lent(units, 945, 960)  # 23 kWh in 24 hours


@pytest.mark.skipif(not postgres.programs(), reason="PostgreSQL is not installed")
def test_while_the_store_does_not_say_what_was_used_floors_alone_are_lent(build_dir, tmp_path):
    server = postgres.Server()
    hub = make_hub(build_dir, tmp_path, POLICY.replace("- {area: unlp, budget: 23 kWh/day}\n", ""), "--store", server.url())
    hub.clock.set(moment(0))
    units = Units(hub, NAMES)
    try:
        hub.serve()
        server.stop()
        path = tmp_path / "new.yaml"
        path.write_text(POLICY)
        assert hub.run("policy", "apply", path)[0] == 0
        units.want(2000, 300, 2000)
        eventually(lambda: all(units.last["number"]))
        lent(units, 3 * FLOOR, 3 * FLOOR)
        units.after(10)
        lent(units, 3 * FLOOR, 3 * FLOOR)
        server.start()
        lent(units, 985, 1001, guard=150)  # the hub connects to it again within a minute
    finally:
        units.end()
        hub.stop()
        server.end()


@pytest.mark.skipif(not postgres.programs(), reason="PostgreSQL is not installed")
def test_a_zone_that_the_store_could_not_take_is_given_to_it_again(build_dir, tmp_path):
    server = postgres.Server()
    first = POLICY.replace("- {area: unlp, budget: 23 kWh/day}\n", "").replace(ZONE, "UTC")
    hub = make_hub(build_dir, tmp_path, first, "--store", server.url())
    hub.clock.set(moment(0))
    units = Units(hub, NAMES)
    try:
        hub.serve()
        server.stop()
        path = tmp_path / "new.yaml"
        path.write_text(POLICY)  # days of Berlin: the store is told of the zone, and cannot note it
        assert hub.run("policy", "apply", path)[0] == 0
        units.want(2000, 300, 2000)
        eventually(lambda: all(units.last["number"]))
        units.after(10)
        lent(units, 3 * FLOOR, 3 * FLOOR)
        server.start()
        eventually(lambda: 985 <= units.read_sum() <= 1005 or None, guard=150)
    finally:
        units.end()
        hub.stop()
        server.end()
