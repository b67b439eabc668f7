# SPDX-License-Identifier: Apache-2.0
"""A real unit and a real hub, with certificates: what the plug counts arrives, also when the hub dies in between."""
import sqlite3
import time

import pytest

from daemon import eventually
from hub import KWH
from hub_web import hub as web  # noqa: F401 (a fixture)
from test_hub_serve import hub  # noqa: F401
from unit_bed import Unit, bed, program, rig  # noqa: F401

pytestmark = pytest.mark.skipif(bool(rig.missing()), reason=f"not installed: {', '.join(rig.missing())}")


def kwh(hub):  # noqa: F811
    return hub.energy().get(("lab3", "area"), 0)


def configuration(hub, local):  # noqa: F811
    return (f"[unit]\nname = lab3\n[local]\nbroker = 127.0.0.1:{local.port}\n"
            f"[uplink]\nbroker = 127.0.0.1:{hub.port}\nca = {hub.state}/trust/ca.crt\n"
            f"cert = {hub.folder}/lab3.crt\nkey = {hub.folder}/lab3.key\n"
            "[meter p]\nkind = shelly\ntopic = p\nmost = 30 kW\n")


def test_a_plugs_energy_arrives_though_the_hub_is_killed(hub, bed):  # noqa: F811
    hub.enrol("lab3")
    local = bed.broker()
    unit = bed.unit(configuration(hub, local))
    bed.keep(rig.Plugs(local, "shelly:p=20000W", period=0.3))
    unit.wait_line("uplink: connected")
    eventually(lambda: kwh(hub) > 0.02)
    before = kwh(hub)
    hub.kill()
    time.sleep(14)  # the broker lives: it takes at least one message that nobody stores
    hub.serve()
    eventually(lambda: kwh(hub) > before + 0.1)
    with sqlite3.connect(hub.state / "hub.db") as db:
        [longest] = db.execute("SELECT max(s.to_ms - s.from_ms) FROM sample s JOIN point p ON p.id = s.point"
                               " WHERE p.name = 'area' AND s.step = 1").fetchone()
    assert longest < 5000  # no message was passed over
    assert not [line for line in unit.lines if "ignored" in line or "refused" in line]


def total(unit):
    """The kWh that its outbox has counted."""
    with sqlite3.connect(unit.folder / "outbox.db") as db:
        return db.execute("SELECT uj FROM total WHERE point = 'area'").fetchone()[0] / KWH


def connections(unit):
    return sum("uplink: connected" in line for line in unit.lines)


def test_two_units_of_one_name_count_once_and_the_hub_says_so(web, bed, program, tmp_path):  # noqa: F811
    """A machine was replaced and its predecessor runs on: each has an outbox of its own, and the broker ends the
    connection of the one when the other connects."""
    web.enrol("lab3")
    local, other = bed.broker(), bed.broker("other")
    unit = bed.unit(configuration(web, local))
    bed.keep(rig.Plugs(local, "shelly:p=20000W", period=0.3))
    bed.keep(rig.Plugs(other, "shelly:p=20000W", period=0.3))
    eventually(lambda: kwh(web) > 0.05)
    twin = bed.keep(Unit(program, tmp_path / "twin", configuration(web, other)))
    eventually(lambda: "two programs say that they are lab3" in web.said())
    ada = web.script("ada")
    assert [row["two_of_a_name"] for row in ada.call("GET", "/v1/units")[1] if row["name"] == "lab3"] == [True]
    turns = connections(twin)
    eventually(lambda: connections(twin) >= turns + 3)
    unit.end()
    eventually(lambda: kwh(web) > total(unit) + total(twin) - 0.02)  # nobody disturbs the one that is left
    stored = kwh(web)
    assert stored <= total(unit) + total(twin) + 0.000001
    assert web.said().count("two programs say that they are lab3") == 1  # not at each turn
