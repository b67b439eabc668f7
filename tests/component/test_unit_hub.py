# SPDX-License-Identifier: Apache-2.0
"""A real unit and a real hub, with certificates: what the plug counts arrives, also when the hub dies in between."""
import sqlite3
import time

import pytest

from daemon import eventually
from test_hub_serve import hub  # noqa: F401
from unit_bed import bed, program, rig  # noqa: F401

pytestmark = pytest.mark.skipif(bool(rig.missing()), reason=f"not installed: {', '.join(rig.missing())}")


def kwh(hub):  # noqa: F811
    return hub.energy().get(("lab3", "area"), 0)


def test_a_plugs_energy_arrives_though_the_hub_is_killed(hub, bed):  # noqa: F811
    hub.enrol("lab3")
    local = bed.broker()
    unit = bed.unit(f"[unit]\nname = lab3\n[local]\nbroker = 127.0.0.1:{local.port}\n"
                    f"[uplink]\nbroker = 127.0.0.1:{hub.port}\nca = {hub.state}/trust/ca.crt\n"
                    f"cert = {hub.folder}/lab3.crt\nkey = {hub.folder}/lab3.key\n"
                    "[meter p]\nkind = shelly\ntopic = p\nmost = 30 kW\n")
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
