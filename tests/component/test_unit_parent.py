# SPDX-License-Identifier: Apache-2.0
"""tide-power as a child: its cap is the smallest of policy, configuration and its parent's lease, and it acknowledges a
lease when its own children fit into it."""
import json
import threading
import time

import pytest

from site_bed import KWH, MONDAY_17, W, Clock, Hand, rule, wait
from test_unit_leases import KNOWN_BOOK, Machine
from unit_bed import GUARD_S, bed, program, rig  # noqa: F401

pytestmark = pytest.mark.skipif(bool(rig.missing()), reason=f"not installed: {', '.join(rig.missing())}")
CURVE = [(20, 0), (400, 1000)]


class Outer:
    """The parent of lab3: answers each ask with a lease of `uw`."""

    ttl_ms = 30000

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
             "floor": self.floor * W, "ttl": self.ttl_ms, "kind": self.kind}))


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


def test_without_the_hub_a_shared_budget_leaves_what_the_last_lease_came_to_and_then_the_units_part(area):
    unit = area("")
    budget = rule("budget", 24 * KWH, area="unlp", alone=12 * KWH)
    unit.parent.wait(lambda p: p.states)
    unit.hub.policy(1, [budget, rule("cap", 5000 * W, area="unlp", kind="budget")])
    today = lambda: unit.parent.states[-1].get("budget_uj", 0) / KWH
    capped = lambda: unit.parent.states[-1].get("cap_uw", 0) // W
    state = lambda: (unit.parent.states[-1], unit.lines[-5:])
    wait(lambda: today() == 12, state)  # nobody has lent anything yet: seven hours of the day are left
    wait(lambda: 1700 < capped() < 1730, state)
    outer = Outer(unit.uplink, unit.parent, 200, kind="budget")
    outer.ttl_ms = 4000
    wait(lambda: capped() == 200 and today() == 24, state)
    outer.quit.set()
    wait(lambda: 1.39 < today() < 1.41, state)  # 200 W for seven hours
    wait(lambda: 190 < capped() <= 200, state)
    unit.clock.set(MONDAY_17 + 8 * 3600)  # 01:00
    wait(lambda: today() == 12, state)
    wait(lambda: 500 < capped() < 530, state)


def test_a_lease_that_came_to_nothing_is_the_last_one_too(area):
    unit = area("")
    unit.parent.wait(lambda p: p.states)
    outer = Outer(unit.uplink, unit.parent, 0, kind="budget", floor=0)
    outer.ttl_ms = 4000
    last = lambda: unit.parent.states[-1]
    wait(lambda: last().get("cap_uw") == 0, last)
    budget = rule("budget", 24 * KWH, area="unlp", alone=12 * KWH)
    unit.hub.policy(1, [budget])
    wait(lambda: last().get("budget_uj") == 24 * KWH and last()["budget_used_uj"] == 0, last)  # the lender keeps the sum
    outer.quit.set()
    for number in range(2, 30):
        unit.hub.policy(number, [budget])  # its state is told anew
        wait(lambda expected=number: last()["policy"] == expected, last)
        if last()["budget_uj"] != 24 * KWH:
            break
        time.sleep(0.5)
    assert last()["budget_uj"] < KWH / 1000, last()


@pytest.mark.parametrize("failpoint", ["unit-tenure-stored:1", "leases-stored:3", "lease-sent:4", "unit-policy-stored:1",
                                       "unit-tenure-store:1:EIO"])
def test_killed_at_each_step_the_sum_stays_below_the_cap(area, failpoint):
    """From the first acknowledgement on, the parent counts on 250 W, whoever is killed: no more is lent ever after."""
    unit = area(TIDE_FAILPOINT=failpoint)
    outer = Outer(unit.uplink, unit.parent, 250)
    unit.hub.policy(1, [rule("cap", 300 * W)])
    kept, deaths, bound = 0, 0, 500
    until, settled = time.monotonic() + 4, None
    guard = time.monotonic() + GUARD_S
    while settled is None or time.monotonic() < settled:
        assert time.monotonic() < guard, (unit.lines[-5:], unit.parent.acks[-3:])
        kept = sum(a["kept"] and a["uw"] == 250 * W for a in unit.parent.acks)
        lent = drawn(unit)
        assert lent <= bound + 1, (lent, bound, unit.lines[-5:])
        bound = 250 if kept else bound
        if unit.process.poll() is not None:
            deaths += 1
            kept_before = kept
            unit.env.pop("TIDE_FAILPOINT", None)
            unit.begin()
        ended = failpoint.endswith("EIO") or (deaths and kept > kept_before)
        if settled is None and ended and time.monotonic() > until:
            settled = time.monotonic() + 2
        time.sleep(0.1)
    assert deaths == (0 if failpoint.endswith("EIO") else 1), unit.lines
    settle(unit, 250)
    outer.quit.set()
