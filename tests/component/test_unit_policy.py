# SPDX-License-Identifier: Apache-2.0
"""tide-power under an organization's policy: sealed, numbered, kept, followed by the clock, and safe after its end."""
import subprocess
import time
import urllib.request

import pytest

from notify import ServiceManager, asks_for_a_watchdog
from site_bed import EVENINGS, KWH, MONDAY_17, W, Clock, Hand, rule
from unit_bed import bed, program, rig  # noqa: F401

pytestmark = pytest.mark.skipif(bool(rig.missing()), reason=f"not installed: {', '.join(rig.missing())}")

RULES = [rule("cap", 1200 * W), rule("floor", 300 * W), rule("cap", 800 * W, line=2, **{"if": "window", "window": EVENINGS})]


@pytest.fixture
def area(bed, tmp_path):  # noqa: F811
    """area(extra configuration, at=, tail=) -> the unit, with .hub (a Hand), .parent and .clock."""
    def make(extra="", at=MONDAY_17, tail=""):
        broker = bed.broker()
        parent, hub, clock = bed.parent(broker), Hand(tmp_path, broker), Clock(tmp_path, at, tail=tail)
        unit = bed.unit(f"[unit]\nname = lab3\n[local]\nbroker = 127.0.0.1:{broker.port}\n"
                        f"[uplink]\nbroker = 127.0.0.1:{broker.port}\nseal = {hub.public}\n{extra}",
                        TIDE_CLOCK=str(clock.path))
        unit.broker, unit.hub, unit.parent, unit.clock = broker, hub, parent, clock
        parent.wait(lambda p: p.states and p.states[-1]["online"])
        return unit
    return make


def cap(parent):
    return parent.states[-1].get("cap_uw", 0) / W


def events(parent, kind):
    return [e["text"] for e in parent.events if e["type"] == kind]


def test_the_cap_follows_the_policy_and_its_windows(area):
    unit = area()
    assert unit.parent.states[-1]["policy"] == 0 and "cap_uw" not in unit.parent.states[-1]
    unit.hub.policy(7, RULES)
    unit.parent.wait(lambda p: cap(p) == 1200 and p.states[-1]["policy"] == 7)
    unit.clock.set(MONDAY_17 + 3601)
    unit.parent.wait(lambda p: cap(p) == 800)
    assert "the area's cap is 800 W: line 2 of policy 7" in events(unit.parent, "cap")
    unit.clock.set(MONDAY_17 + 6 * 3600 + 1)
    unit.parent.wait(lambda p: cap(p) == 1200)


def test_only_what_the_hub_sealed_with_a_larger_number_counts(area, tmp_path):
    unit = area()
    unit.hub.policy(7, RULES)
    unit.parent.wait(lambda p: cap(p) == 1200)
    (tmp_path / "other").mkdir()
    lower = [rule("cap", 100 * W)]
    Hand(tmp_path / "other", unit.broker).policy(8, lower)
    unit.parent.wait(lambda p: any("did not seal" in t for t in events(p, "refused")))
    unit.hub.policy(6, lower)
    unit.parent.wait(lambda p: any("number 6 came, which is older than number 7" in t for t in events(p, "refused")))
    text = unit.hub.policy_text(9, lower)
    unit.hub.publish("policy", unit.hub.seal("policy", text, name="lab4"))
    unit.hub.publish("policy", unit.hub.seal("cmd", text))
    unit.parent.wait(lambda p: sum("did not seal" in t for t in events(p, "refused")) == 3)
    unit.hub.policy(9, [rule("cap", 200 * W), rule("floor", 300 * W)])
    unit.parent.wait(lambda p: any("contradicts" in t for t in events(p, "refused")))
    assert cap(unit.parent) == 1200
    unit.hub.policy(10, lower)
    unit.parent.wait(lambda p: cap(p) == 100)


def test_a_restart_without_the_hub_follows_the_policy_on_the_disk(area):
    unit = area()
    unit.hub.policy(7, RULES)
    unit.parent.wait(lambda p: cap(p) == 1200)
    unit.hub.publish("policy", b"", "-r")  # the broker forgets it
    unit.kill()
    unit.begin()
    unit.wait_line("policy 7, read from the disk, is in force")
    (unit.folder / "policy.sealed").write_bytes(b"x" * 200)
    unit.kill()
    unit.begin()
    unit.wait_line("policy.sealed is not used")


def test_after_its_end_a_breaker_falls_to_the_floor_and_a_budget_is_free(area):
    unit = area()
    unit.hub.policy(7, RULES, valid=7200 + 86400)
    unit.parent.wait(lambda p: cap(p) == 1200)
    unit.clock.set(MONDAY_17 + 3600 + 86400 + 1)
    unit.parent.wait(lambda p: cap(p) == 300)
    assert any("past its end" in t and "floor" in t for t in events(unit.parent, "policy"))
    unit.hub.policy(8, [rule("cap", 1200 * W, kind="budget"), rule("floor", 300 * W)], valid=7200)
    unit.parent.wait(lambda p: p.states[-1]["policy"] == 8 and "cap_uw" not in p.states[-1])


def test_while_nobody_knows_the_time_the_strictest_window_holds(area):
    unit = area(at=MONDAY_17, tail=",unsynchronised")
    unit.hub.policy(7, RULES)
    unit.parent.wait(lambda p: cap(p) == 800 and p.states[-1]["synced"] is False)
    unit.clock.set(MONDAY_17)
    unit.parent.wait(lambda p: cap(p) == 1200 and p.states[-1]["synced"])


def test_a_clock_that_is_set_back_does_not_begin_the_day_s_budget_anew(area):
    unit = area(METER)
    unit.hub.policy(7, RULES + [rule("budget", 240 * KWH, line=3)])
    unit.broker.publish("wall", '{"e": 5, "p": 1000}')
    unit.parent.wait(lambda p: p.states[-1].get("budget_used_uj") == 0 and cap(p) == 1200)
    unit.broker.publish("wall", '{"e": 5.0001, "p": 1000}')

    def used_at(at):
        since = len(unit.parent.states)
        unit.clock.set(at, tail=",unsynchronised")
        unit.parent.wait(lambda p: any(not s["synced"] for s in p.states[since:]))
        unit.clock.set(at)
        unit.parent.wait(lambda p: p.states[-1]["synced"])
        return unit.parent.states[-1]["budget_used_uj"]
    spent = used_at(MONDAY_17)
    assert spent == KWH // 10000
    assert used_at(MONDAY_17 - 86400) == spent  # yesterday: not a new day
    assert used_at(MONDAY_17) == spent          # back: this is the day of which it is known
    assert used_at(MONDAY_17 + 86400) == 0
    assert used_at(MONDAY_17) == spent          # a step of a day forward, and its correction
    assert unit.parent.states[-1]["policy"] == 7


def test_a_boot_without_the_time_does_not_begin_the_day_s_budget_anew(area):
    unit = area(METER)
    unit.hub.policy(7, [rule("budget", 24 * KWH)])
    unit.broker.publish("wall", '{"e": 5, "p": 1000}')
    unit.parent.wait(lambda p: "budget_used_uj" in p.states[-1])
    unit.kill()
    (unit.folder / "budget").write_text(f"threadtide budget 1 {MONDAY_17 - 17 * 3600} {20 * KWH} 0 0\n")
    unit.clock.set(MONDAY_17 - 9 * 86400, tail=",unsynchronised")  # the time of the file system's last write, say
    unit.begin()
    unit.broker.publish("wall", '{"e": 5, "p": 1000}')
    unit.parent.wait(lambda p: p.states[-1].get("synced") is False and p.states[-1]["policy"] == 7)
    time.sleep(2)
    unit.clock.set(MONDAY_17)
    unit.parent.wait(lambda p: p.states[-1].get("synced"))
    unit.parent.wait(lambda p: p.states[-1].get("budget_used_uj", 0) >= 20 * KWH)


def test_a_start_without_its_policy_keeps_what_the_day_used(area):
    unit = area(METER)
    unit.hub.policy(7, [rule("budget", 24 * KWH)])
    unit.broker.publish("wall", '{"e": 5, "p": 1000}')
    unit.parent.wait(lambda p: "budget_used_uj" in p.states[-1])
    unit.hub.publish("policy", b"", "-r")  # the broker forgets it
    unit.kill()
    (unit.folder / "policy.sealed").unlink()  # its disk was full
    (unit.folder / "budget").write_text(f"threadtide budget 1 {MONDAY_17 - 17 * 3600} {20 * KWH} 0 0\n")
    since = len(unit.parent.states)
    unit.begin()
    unit.parent.wait(lambda p: any(s["online"] and s["policy"] == 0 for s in p.states[since:]))
    time.sleep(2)
    unit.hub.policy(8, [rule("budget", 24 * KWH)])
    unit.broker.publish("wall", '{"e": 5, "p": 1000}')
    unit.parent.wait(lambda p: p.states[-1].get("policy") == 8 and "budget_used_uj" in p.states[-1])
    assert unit.parent.states[-1]["budget_used_uj"] >= 20 * KWH


AUTUMN, SPRING = 1792886400, 1806192000  # midnight UTC before the clocks of Berlin change, in 2026 and 2027


@pytest.mark.parametrize("day, steps", [
    # The hour from 2:00 to 3:00 comes twice: 0:00 to 2:00 UTC.
    (AUTUMN, [(-60, 900), (60, 500), (3660, 500), (7260, 900)]),
    # It does not come: 1:00 UTC is 3:00.
    (SPRING, [(-60, 900), (3540, 900), (3660, 900), (7260, 900)]),
])
def test_windows_follow_the_clocks_of_their_zone_when_these_change(area, day, steps):
    unit = area(at=day - 7200)
    unit.hub.policy(7, [rule("cap", 900 * W), rule("cap", 500 * W, line=2, **{"if": "window", "window": {
        "days": 127, "from": 120, "to": 180, "zone": 0}})], made=day - 86400, zone="Europe/Berlin")
    unit.parent.wait(lambda p: cap(p) == 900)
    for at, watts in steps:
        since = len(unit.parent.states)
        unit.clock.set(day + at, tail=",unsynchronised")  # so that a state comes in any case
        unit.parent.wait(lambda p, n=since: any(not s["synced"] for s in p.states[n:]))
        unit.clock.set(day + at)
        unit.parent.wait(lambda p, w=watts: p.states[-1]["synced"] and cap(p) == w)


def test_a_day_of_25_hours_has_its_budget_once(area):
    unit = area(at=AUTUMN - 7200 + 60)  # the day begins at 22:00 UTC, and has 25 hours
    unit.hub.policy(7, [rule("budget", 25 * KWH)], made=AUTUMN - 86400, zone="Europe/Berlin")
    unit.broker.publish("wall", '{"e": 5, "p": 1000}')
    unit.parent.wait(lambda p: 999 < cap(p) < 1003)


def test_a_policy_without_the_file_of_its_zone_holds_as_without_a_clock(area):
    unit = area(METER)
    unit.hub.policy(7, RULES + [rule("budget", 25 * KWH, line=3)], zone="Europe/Atlantis")
    unit.parent.wait(lambda p: p.states[-1]["policy"] == 7 and cap(p) == 800)  # 25 kWh would be 1 kW in the longest day
    unit.parent.wait(lambda p: any("no time zone 'Europe/Atlantis'" in t for t in events(p, "policy")))
    unit.hub.policy(8, RULES + [rule("budget", 25 * KWH, line=3)], zone="Europe/Atlantis")  # as each day
    unit.parent.wait(lambda p: p.states[-1]["policy"] == 8)
    assert sum("Atlantis" in t for t in events(unit.parent, "policy")) == 1
    unit.hub.publish("policy", b"", "-r")  # the broker forgets it
    unit.kill()
    unit.begin()
    unit.wait_line("policy 8, read from the disk, is in force")
    unit.parent.wait(lambda p: sum("Atlantis" in t for t in events(p, "policy")) == 2)
    unit.parent.wait(lambda p: cap(p) == 800)


def test_a_rule_about_a_switch_that_is_not_there_is_told_once(area):
    unit = area("[switch lights]\nkind = tasmota\ntopic = lights\n")

    def off(names, area="unlp/lab3", line=1):
        return rule("off", 0, off=names, area=area, line=line, **{"if": "window", "window": EVENINGS})

    def told(parent):
        return [t for t in events(parent, "policy") if "switches that this unit" in t]
    unit.hub.policy(7, [off("lights oven", area="unlp")])  # of several units: another one has an oven
    unit.parent.wait(lambda p: p.states[-1]["policy"] == 7)
    unit.hub.policy(8, [off("lihgts lights ac")])
    unit.parent.wait(lambda p: told(p) == ["rules name switches that this unit does not have: lihgts ac (tide why rule-without-effect)"])
    unit.hub.policy(9, [off("lihgts lights ac")])  # the same one, as each day
    unit.parent.wait(lambda p: p.states[-1]["policy"] == 9)
    assert len(told(unit.parent)) == 1
    unit.hub.policy(10, [off("lights")])
    unit.parent.wait(lambda p: p.states[-1]["policy"] == 10)
    unit.hub.policy(11, [off("lihgts"), off("lihgts light", line=2)])
    unit.parent.wait(lambda p: len(told(p)) == 2 and ": lihgts light (" in told(p)[1])


def test_a_policys_cap_below_the_childrens_floors_is_told(area):
    """The hub cannot know the floors in a unit's own file."""
    unit = area("[child m1]\nfloor = 60 W\n[child m2]\nfloor = 60 W\n")

    def told(parent):
        return [t for t in events(parent, "cap") if "floors" in t]
    unit.hub.policy(7, [rule("cap", 100 * W)])
    unit.parent.wait(lambda p: cap(p) == 100)
    unit.parent.wait(lambda p: any("120 W" in t and "line 1 of policy 7" in t for t in told(p)))
    for number, watts in ((8, 90), (9, 200)):
        unit.hub.policy(number, [rule("cap", watts * W)])
        unit.parent.wait(lambda p, w=watts: cap(p) == w)
    assert len(told(unit.parent)) == 1
    unit.hub.policy(10, [rule("cap", 100 * W)])
    unit.parent.wait(lambda p: len(told(p)) == 2)


def test_policies_that_come_twice_and_out_of_order_leave_the_newest(area):
    unit = area()
    sealed = {n: unit.hub.seal("policy", unit.hub.policy_text(n, [rule("cap", n * 100 * W)])) for n in (1, 2, 3)}
    for n in (2, 1, 2, 3, 3, 1, 2):
        unit.hub.publish("policy", sealed[n])
    unit.parent.wait(lambda p: cap(p) == 300 and sum("older" in t for t in events(p, "refused")) == 3)
    assert [t for t in events(unit.parent, "policy")] == ["policy 2 is in force", "policy 3 is in force"]


def test_a_meter_that_lies_spends_nothing_of_the_budget(area):
    unit = area(METER)
    unit.hub.policy(7, [rule("budget", 24 * KWH)])
    unit.broker.publish("wall", '{"e": 5, "p": 1000}')
    unit.parent.wait(lambda p: p.states[-1].get("budget_used_uj", KWH) < KWH / 100)  # seconds of 1 kW, not 5 kWh
    for say in ('{"e": -5, "p": 1000}', '{"e": NaN, "p": 1}', '{"e": 1e30, "p": 1}', '{"e": "5"}', "[]", "\\0", '{"e": 4.0, "p": 1}'):
        since = len(unit.lines)
        unit.broker.publish("wall", say)
        unit.broker.publish("wall", '{"e": 4.00001, "p": 1000}' if "4.0" in say else '{"e": 5.00001, "p": 1000}')
        unit.wait_line("meter wall: ", since)
    since = len(unit.parent.states)
    unit.clock.set(MONDAY_17, tail=",unsynchronised")
    unit.parent.wait(lambda p: any("budget_used_uj" in s for s in p.states[since:]))
    assert unit.process.poll() is None and unit.parent.states[-1]["budget_used_uj"] < KWH / 100


METER = "[meter wall]\nkind = json\ntopic = wall\nenergy-path = e\npower-path = p\nenergy-unit = kWh\n"


def test_a_day_s_budget_becomes_the_cap_of_the_hour(area):
    unit = area(METER)
    unit.hub.policy(7, [rule("budget", 7 * 24 * KWH // 7)])  # 24 kWh; seven hours are left: 3.43 kW
    unit.broker.publish("wall", '{"e": 5, "p": 1000}')
    unit.parent.wait(lambda p: 3400 < cap(p) < 3440 and p.states[-1]["budget_used_uj"] < KWH / 100)
    unit.broker.publish("wall", '{"e": 15.0, "p": 1000}')  # ten more in a second: a lie
    unit.wait_line("more than anything of its kind")
    time.sleep(1)
    used = unit.parent.states[-1]["budget_used_uj"]
    unit.broker.publish("wall", '{"e": 15.0001, "p": 1000}')
    unit.parent.wait(lambda p: p.states[-1]["budget_used_uj"] > used)
    assert unit.parent.states[-1]["budget_used_uj"] < KWH


def test_what_a_day_used_survives_a_restart(area):
    unit = area(METER)
    unit.hub.policy(7, [rule("budget", 24 * KWH)])
    unit.broker.publish("wall", '{"e": 5, "p": 1000}')
    unit.parent.wait(lambda p: "budget_used_uj" in p.states[-1])
    (unit.folder / "budget").write_text(f"threadtide budget 1 {MONDAY_17 - 17 * 3600} {20 * KWH} 0 0\n")
    unit.kill()
    (unit.folder / "budget").write_text(f"threadtide budget 1 {MONDAY_17 - 17 * 3600} {20 * KWH} 0 0\n")
    unit.begin()
    unit.broker.publish("wall", '{"e": 5, "p": 1000}')
    unit.parent.wait(lambda p: p.states[-1].get("budget_used_uj", 0) >= 20 * KWH and 560 < cap(p) < 580)  # 4 of 24 left


def test_a_rule_of_a_class_is_no_rule_of_all(area):
    """An earlier hub knew rules of classes of jobs, which no machine keeps: a policy with one is refused as a whole."""
    unit = area()
    unit.hub.policy(7, RULES + [rule("scale", 500, line=9, **{"class": 9})])
    unit.wait_line("'class' is in a rule")
    unit.hub.policy(8, RULES + [rule("scale", 500, line=10, **{"if": "carbon", "above": 400})],
                    carbon=[[(MONDAY_17 - 60) * 1000, 410]])
    unit.parent.wait(lambda p: cap(p) == 600)  # the scale of all


def test_a_full_disk_keeps_no_policy_and_says_so(bed, area, tmp_path):  # noqa: F811
    unit = area()
    unit.kill()
    unit.env["TIDE_FAILPOINT"] = "unit-policy-store:1+:ENOSPC"
    unit.begin()
    unit.hub.policy(7, RULES)
    unit.wait_line("policy.sealed cannot be written (No space left on device): policy 7 is in force")
    unit.parent.wait(lambda p: cap(p) == 1200)


def test_a_hub_s_key_that_is_none_is_told(program, tmp_path):  # noqa: F811

    (tmp_path / "pub").write_text("hello\n")
    (tmp_path / "x.conf").write_text(f"[unit]\nname = lab3\nstate-dir = {tmp_path}\n[uplink]\nbroker = 127.0.0.1\n"
                                     f"seal = {tmp_path}/pub\n")
    done = subprocess.run([program, "--config", tmp_path / "x.conf"], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2 and "is no public key of a hub" in done.stderr


def test_prometheus_reads_what_is_known(area):
    unit = area(METER + "[unit]\nmetrics = 0\n")
    unit.wait_line("metrics: http://127.0.0.1:")
    url = next(line.split()[-1] for line in unit.lines if "metrics: http" in line)

    def values():
        with urllib.request.urlopen(url, timeout=30) as answer:
            return dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[0] != "#")
    assert "tide_unit_watts" not in values()  # unknown is not 0
    unit.hub.policy(7, RULES)
    unit.broker.publish("wall", '{"e": 5, "p": 1000}')
    unit.parent.wait(lambda p: cap(p) == 1200 and p.draws[-1])
    told = values()
    assert (told["tide_unit_watts"], told["tide_unit_cap_watts"], told["tide_unit_policy_number"]) == ("1000", "1200", "7")
    assert told["tide_unit_parent_connected"] == "1" and float(told["process_resident_memory_bytes"]) < 32e6


def test_the_service_manager_hears_of_a_loop_that_goes_on_and_of_no_other(area, tmp_path):
    unit = area()
    unit.kill()
    manager = ServiceManager(tmp_path)
    unit.env = {**unit.env, **manager.env, "TIDE_FAILPOINT": "unit-policy-stored:1:delay=600000ms"}
    unit.begin()
    manager.hears_of_a_loop_that_goes_on()
    unit.hub.policy(7, RULES)  # the loop stands still
    manager.hears_no_more()
    unit.kill()
    manager.end()
    assert asks_for_a_watchdog("tide-power")
