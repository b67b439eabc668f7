# SPDX-License-Identifier: Apache-2.0
"""A real unit, a real broker, a real hub and its store, killed and cut off from each other at random and at each step of
storing: what the meter counted is stored in the end, once, and time that nobody measured is a gap. TIDE_SOAK=1: 1,000
kills and partitions for each store, or a piece of them."""
import contextlib
import json
import pathlib
import random
import re
import shutil
import socket
import sqlite3
import subprocess
import threading
import time

import pytest

import postgres
from daemon import GUARD_S, eventually
from hub import TOOLS, Serving, free_port
from unit_bed import bed, program, rig  # noqa: F401
from workers import share

pytestmark = pytest.mark.skipif(not all(map(shutil.which, TOOLS)) or bool(rig.missing()),
                                reason="mosquitto, its clients or openssl are not installed")
ROOT = pathlib.Path(__file__).resolve().parents[2]
POINTS = [p for p in re.findall(r'\[FAILPOINT_\w+\] = "([a-z-]+)"', (ROOT / "src/base/failpoint.c").read_text())
          if p.startswith("energy-")]
MWH_UJ = 3_600_000  # a meter tells thousandths of a watt-hour
TICK_S = 0.2
SLACK_MS = 50  # between a look at the clock and the signal, and between the next start and the next look
MOST_MS = 3000  # what a unit had not written when it was killed, and its start


class Link:
    """A connection through us, which can be cut: open connections end, and nobody gets through."""

    def __init__(self, port):
        self.to, self.cut, self.open = port, False, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                try:
                    far = None if self.cut else socket.create_connection(("127.0.0.1", self.to))
                except OSError:
                    far = None
                if not far:
                    near.close()
                    continue
                self.open += [near, far]
                for a, b in ((near, far), (far, near)):
                    threading.Thread(target=self.pump, args=(a, b), daemon=True).start()

    @staticmethod
    def pump(a, b):
        with contextlib.suppress(OSError):
            while data := a.recv(65536):
                b.sendall(data)
        for end in (a, b):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def break_it(self):
        self.cut = True
        for end in self.open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self.open = []

    def mend(self):
        self.cut = False

    def close(self):
        self.listener.close()
        self.break_it()


class Plug:
    """A meter that counts what the truth is."""

    def __init__(self, port, chance):
        self.total, self.chance, self.stop, self.still = 1_000_000, chance, threading.Event(), False
        self.out = subprocess.Popen(["mosquitto_pub", "-p", str(port), "-l", "-q", "1", "-t", "p/status/switch:0"],
                                    stdin=subprocess.PIPE, text=True)
        self.tell()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def tell(self):
        text = json.dumps({"apower": 900.0, "aenergy": {"total": self.total / 1000}})
        self.out.stdin.write(text + "\n")
        self.out.stdin.flush()

    def run(self):
        while not self.stop.wait(TICK_S):
            self.total += 0 if self.still else self.chance.randrange(1, 100)
            self.tell()

    def end(self):
        self.stop.set()
        if self.thread.is_alive():
            self.thread.join(GUARD_S)
        self.out.stdin.close()
        self.out.wait(GUARD_S)


class File:
    """SQLite. A kill of the store is one of the hub."""
    own = False

    def __init__(self, folder):
        self.path = folder / "state/hub.db"
        self.where = str(self.path)

    def rows(self, sql):
        db = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)
        try:
            return db.execute(sql).fetchall()
        finally:
            db.close()

    def end(self):
        pass


class Database:
    own = True

    def __init__(self, folder):
        self.server = postgres.Server()
        self.where = self.server.url()

    def rows(self, sql):
        return [tuple(map(int, line.split("|"))) for line in self.server.ask(sql).splitlines()]

    def kill(self):
        self.server.kill()
        self.server.start()

    def end(self):
        self.server.end()


STORES = [pytest.param(File, id="sqlite"),
          pytest.param(Database, id="postgres", marks=pytest.mark.skipif(
              not postgres.programs(), reason="PostgreSQL is not installed"))]
OF_AREA = "FROM {} s JOIN point p ON p.id = s.point WHERE p.name = 'area'"


class World:
    def __init__(self, build_dir, tmp_path, bed, store, chance):  # noqa: F811
        self.chance = chance
        self.hub = Serving(build_dir / "tide-hub", tmp_path)
        self.store = store(tmp_path)
        self.hub.options = ("--store", self.store.where)
        self.hub.start()
        self.hub.serve()
        self.hub.enrol("lab3")
        self.link = Link(self.hub.port)
        self.local = bed.broker()
        self.unit = bed.unit(
            f"[unit]\nname = lab3\n[local]\nbroker = 127.0.0.1:{self.local.port}\n"
            f"[uplink]\nbroker = 127.0.0.1:{self.link.port}\nca = {self.hub.state}/trust/ca.crt\n"
            f"cert = {self.hub.folder}/lab3.crt\nkey = {self.hub.folder}/lab3.key\n"
            "[meter p]\nkind = shelly\ntopic = p\ncovers = area\nmost = 300 kW\n")
        self.down_ms, self.unit_kills = 0, 0
        self.unit.wait_line("uplink: connected")
        self.plug = Plug(self.local.port, chance)
        self.first = self.plug.total
        eventually(lambda: self.records() > 0)
        self.begun = time.time()
        self.plug.thread.start()

    def records(self):
        """How many the unit has put."""
        db = sqlite3.connect(f"file:{self.unit.folder}/outbox.db?mode=ro", uri=True)
        try:
            return db.execute("SELECT count(*) FROM total WHERE raw > 0").fetchone()[0]
        finally:
            db.close()

    def stored(self, table="sample"):
        rows = self.store.rows(f"SELECT coalesce(sum(s.uj), 0), coalesce(sum(s.gap), 0) {OF_AREA.format(table)}")
        return int(rows[0][0]), int(rows[0][1])

    def serve_again(self):
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.hub.process.wait(GUARD_S)
        self.hub.env = None
        self.hub.serve()

    # ---- what happens ----

    def hub_dies(self):
        self.hub.kill()
        time.sleep(self.chance.random() * 0.3)
        self.serve_again()

    def hub_dies_at_a_step(self):
        point = self.chance.choice(POINTS)
        self.hub.kill()
        self.hub.env = {"TIDE_FAILPOINT": f"{point}:{self.chance.randrange(1, 4)}"}
        self.hub.serve()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.hub.process.wait(self.chance.random() * 2)
        self.hub.kill()
        self.serve_again()

    def unit_dies(self):
        self.unit_kills += 1
        down = time.monotonic()
        self.unit.kill()
        time.sleep(0.2 + self.chance.random() * 0.5)
        self.unit.begin()
        self.down_ms += (time.monotonic() - down) * 1000

    def link_breaks(self):
        self.link.break_it()
        time.sleep(self.chance.random())
        self.link.mend()

    def broker_dies(self):
        self.hub.broker.kill()
        self.hub.broker.wait(GUARD_S)
        time.sleep(self.chance.random() * 0.2)
        self.hub.start()

    def store_dies(self):
        if self.store.own:
            self.store.kill()
        else:
            self.hub_dies()

    def something(self):
        events = [self.hub_dies] * 3 + [self.hub_dies_at_a_step] * 3 + [self.unit_dies] * 2 + \
            [self.link_breaks] * 2 + [self.broker_dies, self.store_dies]
        self.chance.choice(events)()
        time.sleep(self.chance.random() * 0.4)

    # ---- what has to come of it ----

    def settle(self):
        """The meter stands still; the unit connects anew, so that it sends at once what has no receipt."""
        self.plug.still = True
        time.sleep(2 * TICK_S)
        truth = (self.plug.total - self.first) * MWH_UJ
        until = time.monotonic() + 3 * GUARD_S
        while self.stored()[0] != truth and time.monotonic() < until:
            self.link.break_it()
            self.link.mend()
            with contextlib.suppress(AssertionError):
                eventually(lambda: self.stored()[0] == truth, guard=3, pause=0.2)
        return truth

    def end(self):
        self.plug.end()
        self.link.close()
        self.hub.stop()
        self.store.end()


@pytest.fixture(params=STORES)
def world(request, build_dir, tmp_path, bed):  # noqa: F811
    _, seed = share(0, 0)
    made = World(build_dir, tmp_path, bed, request.param, random.Random(7 + seed))
    yield made
    made.end()


def test_no_microjoule_is_lost_or_counted_twice_whoever_dies(world):
    kills, _ = share(7, 1000)
    acknowledged = 0
    for _ in range(kills):
        world.something()
        now = world.stored()[0]
        assert now >= acknowledged  # what was stored once stays
        acknowledged = now
    world.unit_dies()  # at least once
    truth = world.settle()
    energy, gap_ms = world.stored()
    assert energy == truth
    assert world.stored("day") == (energy, gap_ms)
    least = world.down_ms - world.unit_kills * SLACK_MS
    assert least <= gap_ms <= world.down_ms + world.unit_kills * MOST_MS + 1000


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("world", STORES if share(0, 1)[0] else STORES[:1], indirect=True)
def test_the_hub_is_killed_at_each_step_of_storing(world, point):
    """Each passes, and is heard of: a step that the hub never comes to would test nothing."""
    world.hub.kill()
    world.hub.env = {"TIDE_FAILPOINT": f"{point}:1"}
    world.hub.serve()
    world.link.break_it()  # a unit that connects anew sends at once
    world.link.mend()
    assert world.hub.process.wait(GUARD_S) == -9
    before = world.stored()[0]
    assert (before > 0) or point == "energy-put"
    world.serve_again()
    assert world.settle() == world.stored()[0]
