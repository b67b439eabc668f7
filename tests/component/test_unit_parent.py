# SPDX-License-Identifier: Apache-2.0
"""tide-power as a child: its cap is the smallest of policy, configuration and its parent's lease, and it acknowledges a
lease when its own children fit into it."""
import json
import threading
import time

import pytest

from site_bed import MONDAY_17, W, Clock, Hand, rule, wait
from test_unit_leases import KNOWN_BOOK, Machine
from unit_bed import bed, program, rig  # noqa: F401

pytestmark = pytest.mark.skipif(bool(rig.missing()), reason=f"not installed: {', '.join(rig.missing())}")
CURVE = [(20, 0), (400, 1000)]


class Outer:
    """The parent of lab3: answers each ask with a lease of `uw`."""

    def __init__(self, broker, parent, uw, kind="breaker", floor=60):
        self.broker, self.parent, self.uw, self.kind, self.floor, self.number = broker, parent, uw, kind, floor, 0
        self.quit, self.process = threading.Event(), parent.process
        threading.Thread(target=self.live, daemon=True).start()

    def live(self):
        seen, last = 0, None
        while not self.quit.wait(0.1):
            if len(self.parent.asks) > seen or (self.parent.asks and last != self.uw):
                seen, last = len(self.parent.asks), self.uw
                self.give(self.parent.asks[-1])

    def give(self, ask):
        self.number += 1
        self.broker.publish("tide/1/lab3/down/lease", json.dumps(
            {"v": 1, "boot": ask["boot"], "stamp": ask["stamp"], "number": self.number, "uw": self.uw * W,
             "floor": self.floor * W, "ttl": 30000, "kind": self.kind}))


def conf(local, uplink, hub, cap=""):
    return (f"[unit]\nname = lab3\n{cap}[local]\nbroker = 127.0.0.1:{local.port}\n"
            f"[uplink]\nbroker = 127.0.0.1:{uplink.port}\nseal = {hub.public}\n"
            "[child a]\nfloor = 20 W\n[child b]\nfloor = 20 W\n")


@pytest.fixture
def area(bed, tmp_path):  # noqa: F811
    def make(cap="cap = 500 W\n", **env):
        local, uplink = bed.broker("local"), bed.broker("uplink")
        (bed.folder() / "leases").write_text(KNOWN_BOOK)
        parent, hub, clock = bed.parent(uplink), Hand(tmp_path, uplink), Clock(tmp_path, MONDAY_17)
        machines = [bed.keep(Machine(local, name, 20, CURVE, slow=0.3)) for name in "ab"]
        unit = bed.unit(conf(local, uplink, hub, cap), TIDE_CLOCK=str(clock.path), **env)
        unit.local, unit.uplink, unit.parent, unit.hub, unit.clock, unit.machines = local, uplink, parent, hub, clock, machines
        unit.most = 0
        return unit
    return make


def drawn(unit):
    return sum(m.may_draw() for m in unit.machines) / W


def settle(unit, watts):
    """Waits until the children may draw about so much in all."""
    wait(lambda: watts - 3 <= drawn(unit) <= watts + 1, lambda: (drawn(unit), unit.lines[-5:], unit.parent.states[-1:]))


def test_the_smallest_of_configuration_policy_and_lease_is_divided(area):
    unit = area()
    settle(unit, 500)
    unit.hub.policy(1, [rule("cap", 300 * W), rule("cap", 200 * W, line=2, **{"if": "window", "window": {
        "days": 31, "from": 1080, "to": 1380, "zone": 0}})])
    settle(unit, 300)
    outer = Outer(unit.uplink, unit.parent, 250)
    settle(unit, 250)
    wait(lambda: any(a["kept"] and a["uw"] == 250 * W for a in unit.parent.acks), lambda: unit.parent.acks)
    assert unit.parent.demands[-1]["floor"] == 40 * W and unit.parent.demands[-1]["points"]
    unit.clock.set(MONDAY_17 + 3601)
    settle(unit, 200)
    for machine in unit.machines:
        machine.slow = 2  # the unit waits for them with its own acknowledgement
    outer.uw = 120
    wait(lambda: any(a["kept"] and a["uw"] == 120 * W for a in unit.parent.acks), lambda: unit.parent.acks)
    assert drawn(unit) <= 121
    assert any(not a["kept"] and a["uw"] == 120 * W for a in unit.parent.acks)
    outer.uw = 400
    settle(unit, 200)
    outer.quit.set()


def test_a_restart_obeys_the_floor_until_it_has_a_lease_again(area):
    unit = area()
    outer = Outer(unit.uplink, unit.parent, 250)
    settle(unit, 250)
    wait(lambda: any(a["kept"] for a in unit.parent.acks), lambda: unit.parent.acks)
    outer.quit.set()
    since = len(unit.parent.states)
    unit.kill()
    unit.begin()
    unit.parent.wait(lambda p: any(s.get("cap_uw") == 60 * W for s in p.states[since:]))
    assert (unit.folder / "tenure").read_text() == f"threadtide tenure 1 0 {60 * W}\n"


@pytest.mark.parametrize("failpoint", ["unit-tenure-stored:1", "leases-stored:3", "lease-sent:4", "unit-policy-stored:1",
                                       "unit-tenure-store:1:EIO"])
def test_killed_at_each_step_the_sum_stays_below_the_cap(area, failpoint):
    unit = area(TIDE_FAILPOINT=failpoint)
    outer = Outer(unit.uplink, unit.parent, 250)
    unit.hub.policy(1, [rule("cap", 300 * W)])
    until = time.monotonic() + 4
    while time.monotonic() < until:
        assert drawn(unit) <= 500
        if unit.process.poll() is not None:
            unit.env.pop("TIDE_FAILPOINT", None)
            unit.begin()
        time.sleep(0.1)
    assert failpoint.endswith("EIO") or "TIDE_FAILPOINT" not in unit.env, unit.lines
    outer.quit.set()
