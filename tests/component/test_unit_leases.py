# SPDX-License-Identifier: Apache-2.0
"""tide-power lends an area's cap to its machines: the sum is kept whoever is killed, and watts go where they do most."""
import json
import random
import sqlite3
import subprocess
import threading
import time

import pytest

from hub import end_listener
from unit_bed import GUARD_S, bed, program, rig  # noqa: F401

pytestmark = pytest.mark.skipif(bool(rig.missing()), reason=f"not installed: {', '.join(rig.missing())}")

TTL_S = 30
W = 1_000_000
KNOWN_BOOK = "threadtide leases 1 0 0\n"


def conf(local, cap, *children):
    text = f"[unit]\nname = lab3\ncap = {cap} W\n[local]\nbroker = 127.0.0.1:{local.port}\n"
    return text + "".join(f"[child {name}]\nfloor = {floor} W\n" for name, floor in children)


class Machine:
    """A child that obeys: it takes a lease, and acknowledges it `slow` seconds later."""

    def __init__(self, broker, name, floor, points, slow=0.1):
        self.broker, self.name, self.floor, self.slow = broker, name, floor * W, slow
        self.points = [[uw * W, value] for uw, value in points]
        self.lease = {"uw": floor * W, "number": 0}
        self.until, self.leases, self.draw = 0, 0, None
        self.boot = random.getrandbits(62)
        self.lock = threading.Lock()
        self.quit = threading.Event()
        self.process = subprocess.Popen(
            ["mosquitto_sub", "-p", str(broker.port), "-q", "1", "-t", f"tide/1/{name}/down/lease"],
            stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.listen, daemon=True).start()
        threading.Thread(target=self.live, daemon=True).start()

    def send(self, leaf, **message):
        self.broker.publish(f"tide/1/{self.name}/up/{leaf}", json.dumps({"v": 1, **message}))

    def ask(self):
        self.send("ask", boot=self.boot, stamp=time.clock_gettime_ns(time.CLOCK_BOOTTIME))

    def live(self):
        asked = 0
        while not self.quit.wait(0.3):
            self.send("demand", points=self.points, floor=self.floor, **({"draw": self.draw} if self.draw else {}))
            if time.monotonic() - asked > 3:
                asked = time.monotonic()
                self.ask()

    def listen(self):
        for line in self.process.stdout:
            m = json.loads(line)
            end = m["stamp"] / 1e9 + m["ttl"] / 1e3
            if m["boot"] != self.boot or end < time.clock_gettime(time.CLOCK_BOOTTIME):
                continue
            with self.lock:
                if m["number"] < self.lease["number"]:
                    continue
                shrinks = m["uw"] < self.lease["uw"]
                old = self.lease
            if shrinks:
                time.sleep(self.slow)
            with self.lock:
                if self.lease is old:
                    self.lease, self.until = m, end
                    self.leases += 1
            self.send("ack", boot=self.boot, number=m["number"], uw=m["uw"], kept=True)

    def may_draw(self):
        with self.lock:
            return self.lease["uw"] if time.clock_gettime(time.CLOCK_BOOTTIME) < self.until else self.floor

    def end(self):
        self.quit.set()
        end_listener(self.process)


def wait(good, what):
    until = time.monotonic() + GUARD_S
    while not good():
        assert time.monotonic() < until, what()
        time.sleep(0.05)


STEEP, FLAT = [(40, 0), (100, 6000)], [(40, 0), (100, 600)]


def test_watts_go_where_they_do_most(bed):  # noqa: F811
    local = bed.broker()
    (bed.folder() / "leases").write_text(KNOWN_BOOK)
    bed.unit(conf(local, 200, ("a", 40), ("b", 40), ("c", 40)))
    a, b, c = (bed.keep(Machine(local, name, 40, points)) for name, points in
               (("a", STEEP), ("b", FLAT), ("c", FLAT)))
    wait(lambda: (a.may_draw(), b.may_draw(), c.may_draw()) == (100 * W, 50 * W, 50 * W),
         lambda: [m.may_draw() for m in (a, b, c)])
    a.points, c.points = c.points, a.points
    wait(lambda: (a.may_draw(), b.may_draw(), c.may_draw()) == (50 * W, 50 * W, 100 * W),
         lambda: [m.may_draw() for m in (a, b, c)])


def measured(watts):
    return {"uw": watts * W, "low": watts * W, "high": watts * W, "basis": "measured"}


def test_a_machine_that_ignores_its_lease_counts_with_what_it_draws(bed):  # noqa: F811
    """It acknowledges 100 W and draws 150: the other one has what is left of the cap, not what the two agreed on."""
    local = bed.broker()
    (bed.folder() / "leases").write_text(KNOWN_BOOK)
    unit = bed.unit(conf(local, 200, ("a", 40), ("b", 40)))
    a, b = (bed.keep(Machine(local, name, 40, STEEP)) for name in "ab")
    shares = lambda: (a.may_draw(), b.may_draw(), unit.lines[-3:])
    wait(lambda: (a.may_draw(), b.may_draw()) == (100 * W, 100 * W), shares)
    b.draw = measured(150)
    wait(lambda: a.may_draw() <= 50 * W, shares)
    time.sleep(3)  # for what comes next
    assert 40 * W <= a.may_draw() <= 50 * W and b.may_draw() == 100 * W, shares()  # nobody is rewarded
    b.draw = measured(95)
    time.sleep(3)
    assert a.may_draw() <= 50 * W  # one second of obedience is none


def test_the_sum_is_kept_when_the_unit_is_killed(bed):  # noqa: F811
    local = bed.broker()
    (bed.folder() / "leases").write_text(KNOWN_BOOK)
    unit = bed.unit(conf(local, 200, ("a", 20), ("b", 20), ("c", 20)))
    machines = [bed.keep(Machine(local, name, 20, [(20, 0), (180, 1000)], slow=0.3)) for name in "abc"]
    chance, most = random.Random(13), 0
    wait(lambda: sum(m.may_draw() for m in machines) > 150 * W, lambda: unit.lines)
    for _ in range(12):
        for m in machines:
            m.points = [[20 * W, 0], [(21 + chance.randrange(180)) * W, 1 + chance.randrange(10000)]]
        for _ in range(chance.randrange(5, 25)):
            time.sleep(0.05)
            most = max(most, sum(m.may_draw() for m in machines))
        unit.kill()
        unit.begin()
    assert most <= 200 * W
    machines[0].points, machines[1].points, machines[2].points = ([[20 * W, 0], [140 * W, 10 ** 6]],
                                                                  [[20 * W, 0], [30 * W, 10]], [[20 * W, 0], [30 * W, 5]])
    until = time.monotonic() + 3 * GUARD_S  # what was lent before a kill counts for a term
    while machines[0].may_draw() != 140 * W:
        assert sum(m.may_draw() for m in machines) <= 200 * W
        assert time.monotonic() < until, unit.lines
        time.sleep(0.05)


def test_without_its_book_a_unit_waits_for_a_term(bed):  # noqa: F811
    local = bed.broker()
    begun = time.monotonic()
    unit = bed.unit(conf(local, 200, ("a", 40)))
    a = bed.keep(Machine(local, "a", 40, STEEP))
    unit.wait_line("which leases are in force is not known")
    while a.leases == 0:
        assert time.monotonic() < begun + 2 * GUARD_S
        time.sleep(0.1)
    assert time.monotonic() - begun >= TTL_S
    assert (bed.folder() / "leases").read_text().startswith("threadtide leases 1 ")


def test_strangers_and_twins_get_nothing(bed):  # noqa: F811
    local = bed.broker()
    (bed.folder() / "leases").write_text(KNOWN_BOOK)
    unit = bed.unit(conf(local, 200, ("a", 40)))
    unit.wait_line("local: connected")
    stranger = bed.keep(Machine(local, "mallory", 40, STEEP))
    unit.wait_line("'mallory' asks for a lease of power, and this unit has no section [child mallory] for it")
    a = bed.keep(Machine(local, "a", 40, STEEP))
    wait(lambda: a.may_draw() == 100 * W, a.may_draw)
    bed.keep(Machine(local, "a", 40, STEEP))
    unit.wait_line("two programs say that they are a")
    assert stranger.leases == 0


@pytest.mark.parametrize("text, problem", [
    ("[child a]\nfloor = 40 W\n", "children need [unit] cap="),
    ("[unit]\ncap = 30 W\n[child a]\nfloor = 40 W\n", "the floors of all children exceed cap="),
    ("[unit]\ncap = 30 W\n", "[unit] has a cap and no [child NAME]"),
    ("[unit]\nkind = fuse\n", "'fuse' is none of breaker, budget, advice"),
    ("[unit]\ncap = 90 W\n[child a]\nfloor = 40 W\nmost = 30 W\n", "child 'a': most= is less than floor="),
])
def test_contradictions_are_told(program, tmp_path, text, problem):  # noqa: F811
    file = tmp_path / "x.conf"
    file.write_text(f"[unit]\nname = lab3\n[local]\nbroker = 127.0.0.1\n{text}")
    done = subprocess.run([program, "--check", "--config", file], capture_output=True, text=True, timeout=GUARD_S,
                          check=False)
    assert done.returncode == 1 and problem in done.stderr, done.stderr


def test_what_lights_drew_before_a_restart_is_not_lent_after_it(bed):  # noqa: F811
    """The meter has no `most`, and tells nothing to the tide-power that begins anew."""
    broker = bed.broker()
    (bed.folder() / "leases").write_text(KNOWN_BOOK)
    unit = bed.unit(conf(broker, 500, ("a", 50), ("b", 50)) +
                    "[meter lights]\nkind = shelly\ntopic = lights\nerror = 10 %\ncovers = other\n")
    unit.wait_line("local: connected")
    broker.publish("lights/status/switch:0", json.dumps({"id": 0, "apower": 100}))
    wait(lambda: unit.process.poll() is None and noted(unit.folder), lambda: unit.lines)
    machines = [bed.keep(Machine(broker, name, 50, [(50, 0), (400, 1000)])) for name in "ab"]
    wait(lambda: 380 * W < sum(m.lease["uw"] for m in machines) <= 390 * W, lambda: ([m.lease for m in machines], unit.lines))
    unit.kill()
    unit.begin()
    before = [m.leases for m in machines]
    wait(lambda: all(m.leases >= n + 3 for m, n in zip(machines, before)), lambda: unit.lines)
    assert sum(m.lease["uw"] for m in machines) <= 390 * W


def test_nothing_more_is_lent_before_a_new_meter_of_lights_is_heard(bed):  # noqa: F811
    broker = bed.broker()
    (bed.folder() / "leases").write_text(KNOWN_BOOK)
    unit = bed.unit(conf(broker, 500, ("a", 50)) +
                    "[meter lights]\nkind = shelly\ntopic = lights\nerror = 10 %\ncovers = other\n")
    unit.wait_line("local: connected")
    a = bed.keep(Machine(broker, "a", 50, [(50, 0), (480, 1000)]))
    wait(lambda: a.leases >= 2, lambda: unit.lines)
    assert a.lease["uw"] == 50 * W
    broker.publish("lights/status/switch:0", json.dumps({"id": 0, "apower": 100}))
    wait(lambda: 380 * W < a.lease["uw"] <= 390 * W, lambda: (a.lease, unit.lines))


def noted(folder):
    """Whether the largest power of the lights is on the disk."""
    with sqlite3.connect(f"file:{folder}/outbox.db?mode=ro", uri=True) as box:
        return box.execute("SELECT count(*) FROM total WHERE point = 'other:lights'").fetchone()[0]


def test_what_lights_draw_is_not_lent_again(bed, program):  # noqa: F811
    """500 W of cap and 100 W of lights, a tenth of error: machines have 390 W at most. Less light is theirs half a minute later."""
    broker, above = bed.broker(), bed.broker("above")
    (bed.folder() / "leases").write_text(KNOWN_BOOK)
    lights = "[meter lights]\nkind = shelly\ntopic = lights\nerror = 10 %\ncovers = other\nmost = 200 W\n"
    unit = bed.unit(conf(broker, 500, ("a", 50), ("b", 50)) + lights + f"[uplink]\nbroker = 127.0.0.1:{above.port}\n")
    parent = bed.parent(above)
    machines = [Machine(broker, name, 50, [(50, 0), (400, 1000)]) for name in "ab"]

    def light(watts):
        broker.publish("lights/status/switch:0", json.dumps({"id": 0, "apower": watts}))

    def lent(good):
        until = time.monotonic() + 3 * GUARD_S  # half a minute passes before less counts
        while not good(sum(m.lease["uw"] for m in machines)):
            assert time.monotonic() < until, ([m.lease for m in machines], unit.lines)
            time.sleep(0.2)

    try:
        lent(lambda uw: 290 * W < uw <= 300 * W)  # never heard: its `most` counts
        light(100)
        lent(lambda uw: 380 * W < uw <= 390 * W)
        parent.wait(lambda p: p.demands and p.demands[-1]["floor"] == 210 * W)  # the parent's watts pay for lights, too
        light(180)
        lent(lambda uw: uw <= 302 * W)
        light(5000)  # more than it can draw: it is not believed, and its most counts
        lent(lambda uw: 290 * W < uw <= 300 * W)
    finally:
        for m in machines:
            m.end()
