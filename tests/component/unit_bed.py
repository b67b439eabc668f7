# SPDX-License-Identifier: Apache-2.0
"""The bed of tide-power's tests: the program with a configuration, a parent that reads and stores, brokers."""
import json
import os
import pathlib
import queue
import signal
import subprocess
import sys
import threading
import time

import pytest

from hub import end_listener

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "plant"))
import rig  # noqa: E402

GUARD_S = rig.GUARD_S


class Parent:
    """Reads what a unit sends, and stores it: a set of records. Receipts only if asked for."""

    def __init__(self, broker, name="lab3"):
        self.name, self.broker = name, broker
        self.records, self.states, self.draws, self.double = {}, [], [], 0
        self.events, self.asks, self.acks, self.demands, self.shrunk = [], [], [], [], []
        self.giving = True
        self.news = queue.Queue()
        self.process = None
        self.listen()

    def listen(self):
        """Also anew, at a broker that came back."""
        if self.process and self.process.poll() is None:
            self.end()
        self.process = subprocess.Popen(
            ["mosquitto_sub", "-p", str(self.broker.port), "-q", "1", "-v", "-t", f"tide/1/{self.name}/up/#"],
            stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.read, args=(self.process,), daemon=True).start()

    def read(self, process):
        for line in process.stdout:
            topic, text = line.split(" ", 1)
            self.take(topic.rsplit("/", 1)[1], json.loads(text))
            self.news.put(None)

    def take(self, leaf, message):
        if leaf == "state":
            self.states.append(message)
        elif leaf == "demand":
            self.draws.append(message.get("draw"))
            self.demands.append(message)
        elif leaf in ("event", "ask", "ack"):
            getattr(self, leaf + "s").append(message)
        elif leaf == "shrunk":
            self.shrunk.append(message)
        elif leaf == "energy":
            for r in message["records"]:
                key = (message["boot"], r["seq"])
                self.double += key in self.records
                assert self.records.setdefault(key, r) == r
            if self.giving:
                self.receipt(message["boot"], message["records"][-1]["seq"])

    def receipt(self, boot, seq):
        self.broker.publish(f"tide/1/{self.name}/down/receipt", json.dumps({"v": 1, "boot": boot, "seq": seq}))

    def of(self, point):
        return [r for _, r in sorted(self.records.items()) if r["point"] == point]

    def wait(self, good):
        until = time.monotonic() + GUARD_S
        while not good(self):
            try:
                self.news.get(timeout=max(until - time.monotonic(), 0.01))
            except queue.Empty:
                if time.monotonic() > until:
                    raise TimeoutError(f"{GUARD_S} s; states {self.states[-2:]}, {len(self.records)} records, "
                                       f"draws {self.draws[-3:]}, events {self.events}") from None
        return self

    def end(self):
        end_listener(self.process)


class Unit:
    """A running tide-power."""

    def __init__(self, program, folder, text, **env):
        self.folder, self.program, self.env = pathlib.Path(folder), program, env
        self.folder.mkdir(exist_ok=True)
        self.conf = self.folder / "tide-power.conf"
        self.conf.write_text(text + f"\n[unit]\nstate-dir = {self.folder}\n")
        self.lines = []
        self.begin()

    def begin(self):
        self.process = subprocess.Popen([self.program, "--config", self.conf], stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, **self.env})
        threading.Thread(target=self.read, args=(self.process,), daemon=True).start()

    def read(self, process):
        for line in process.stderr:
            self.lines.append(line.rstrip("\n"))

    def wait_line(self, part, since=0):
        until = time.monotonic() + GUARD_S
        while time.monotonic() < until:
            if any(part in line for line in self.lines[since:]):
                return
            time.sleep(0.05)
        raise TimeoutError(f"no '{part}' in {self.lines}")

    def kill(self):
        self.process.kill()
        self.process.wait(GUARD_S)

    def end(self):
        self.process.terminate()
        return self.process.wait(GUARD_S)


@pytest.fixture
def program(build_dir):
    if not (build_dir / "tide-power").exists():
        pytest.skip("tide-power was not built: libmosquitto is missing")
    return build_dir / "tide-power"


@pytest.fixture
def bed(tmp_path, program):
    """Makes what ends with the test: bed.broker(), bed.unit(text), bed.parent(broker), bed.keep(thing)."""
    class Bed:
        things = []

        def keep(self, thing):
            self.things.append(thing)
            return thing

        def broker(self, name="broker"):
            (tmp_path / name).mkdir()
            return self.keep(rig.Broker(tmp_path / name))

        def unit(self, text, **env):
            return self.keep(Unit(program, tmp_path / "unit", text, **env))

        def folder(self):
            """The unit's state directory."""
            (tmp_path / "unit").mkdir(exist_ok=True)
            return tmp_path / "unit"

        def parent(self, broker):
            return self.keep(Parent(broker))

    bed = Bed()
    yield bed
    for thing in reversed(bed.things):
        if thing.process.poll() is None:
            thing.process.send_signal(signal.SIGCONT)
            thing.end()
