#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long an area's cap takes from the command to the last machine's acknowledgement.

    energy_area.py [--commands 200]

Three machines, each a tided with a job of 16 threads in a directory of its own and a tide-power that links it; one tide-power for
their area; a hub with its broker. The command is a new power policy (tide-hub policy apply): the area's cap
changes between LOW and HIGH, in turn. It is done when each machine has acknowledged that it keeps the newest lease that it was
offered, and the leases' sum is all of the new cap. What passes through the area's broker is heard by a client with rights to
all of it, which also checks that acknowledged leases and those under way never exceed the cap, old or new.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import harness

sys.path[:0] = [str(harness.ROOT / "tests/component"), str(harness.ROOT / "tests/plant")]
import daemon  # noqa: E402
import hub as hub_bed  # noqa: E402
import rig  # noqa: E402

W = 1_000_000
NAMES = ("m1", "m2", "m3")
FLOOR, MOST, CORES = 30, 120, 16
MODEL = "points:20,35,75,120"
LOW, HIGH = 150, 270
GUARD_S = 90
GOAL_S = 2.0
PAUSE_S = 1.0


def policy(cap):
    return ("version: 1\norg: unlp\nzone: UTC\nareas:\n- {area: unlp/lab, unit: lab, name: Laboratory}\nrules:\n"
            f"- {{area: unlp/lab, cap: {cap} W, floor: {FLOOR * len(NAMES)} W, kind: breaker}}\n")


class Ear(threading.Thread):
    """All leases and acknowledgements on the area's broker."""

    def __init__(self, broker):
        super().__init__(daemon=True)
        self.offered, self.acked = {}, {}  # name -> (number, µW)
        self.changed = threading.Condition()
        self.bound, self.over = HIGH * W, False  # the cap in force, while it changes the higher one; whether it was exceeded
        self.process = subprocess.Popen(["stdbuf", "-oL", "mosquitto_sub", "-p", str(broker.port), "-q", "1", "-v", "-t",
                                         "tide/1/+/down/lease", "-t", "tide/1/+/up/ack"], stdout=subprocess.PIPE, text=True)
        self.start()

    def run(self):
        for line in self.process.stdout:
            self.hear(line)

    def hear(self, line):
        topic, text = line.split(" ", 1)
        _, _, name, _, leaf = topic.split("/")
        message = json.loads(text)
        if leaf == "ack" and not message["kept"]:
            return  # it has the lease, and draws more for the moment
        with self.changed:
            (self.offered if leaf == "lease" else self.acked)[name] = (message["number"], message["uw"])
            if len(self.offered) == len(NAMES):
                self.over |= self.counts() > self.bound
            self.changed.notify_all()

    def counts(self):
        """Sums what the machines may draw: the larger of offer and acknowledgement."""
        return sum(max(self.offered[n][1], self.acked.get(n, (0, 0))[1]) for n in NAMES)

    def wait(self, done):
        until = time.monotonic() + GUARD_S
        with self.changed:
            while not done():
                if not self.changed.wait(max(0.0, until - time.monotonic())) and time.monotonic() > until:
                    raise TimeoutError(f"offered {self.offered}, acknowledged {self.acked}")
            return time.monotonic()

    def changes(self, cap):
        """From now until hold() the sum may be that of the old cap or of the new one."""
        with self.changed:
            self.bound = max(self.bound, cap * W)

    def hold(self, cap):
        """The time at which all had acknowledged the new cap; from then on it alone holds."""
        with self.changed:
            at = self.wait(lambda: self.settled(cap))
            self.bound = cap * W
            return at

    def settled(self, cap):
        """All have acknowledged, and all of the cap is lent but for what is less than a watt."""
        return set(self.offered) == set(NAMES) and all(self.acked.get(n) == self.offered[n] for n in NAMES) and \
            cap * W - len(NAMES) * W < sum(uw for _, uw in self.offered.values()) <= cap * W

    def end(self):
        hub_bed.end_listener(self.process)


class Bed:
    def __init__(self, folder, stack):
        self.folder, self.stack = folder, stack
        self.hub = hub_bed.Serving(harness.BUILD / "tide-hub", self.made("hub"))
        self.policy = folder / "policy.yaml"
        self.policy.write_text(policy(HIGH))
        self.hub.options = ("--policy", self.policy)
        stack.callback(self.hub.stop)
        self.hub.start()
        self.hub.serve()
        self.hub.enrol("lab")
        self.broker = rig.Broker(folder)
        stack.callback(self.broker.end)
        self.ear = Ear(self.broker)
        stack.callback(self.ear.end)
        self.area()
        for name in NAMES:
            self.machine(name)

    def made(self, name):
        (self.folder / name).mkdir()
        return self.folder / name

    def program(self, folder, text):
        (folder / "tide-power.conf").write_text(f"{text}\n[unit]\nstate-dir = {folder}\n")
        with open(folder / "log", "wb") as log:
            process = subprocess.Popen([harness.BUILD / "tide-power", "--config", folder / "tide-power.conf"], stderr=log)
        self.stack.callback(rig.end, process)

    def area(self):
        folder = self.made("area")
        (folder / "leases").write_text("threadtide leases 1 0 0\n")
        self.program(folder, "[unit]\nname = lab\n" + f"[local]\nbroker = 127.0.0.1:{self.broker.port}\n"
                     f"[uplink]\nbroker = 127.0.0.1:{self.hub.port}\nca = {self.hub.state}/trust/ca.crt\n"
                     f"cert = {self.hub.folder}/lab.crt\nkey = {self.hub.folder}/lab.key\n"
                     f"seal = {self.hub.state}/trust/seal.pub\n" +
                     "".join(f"[child {name}]\nfloor = {FLOOR} W\nmost = {MOST} W\n" for name in NAMES))

    def machine(self, name):
        folder = self.made(name)
        (folder / "claims").mkdir()
        (folder / "tide.conf").write_text(f"[daemon]\npower=none\npower-model={MODEL}\n")
        tided = daemon.Daemon(harness.BUILD / "tided", None, folder / "run", folder / "claims",
                              "--engine", "none", "--cpus", f"0-{CORES - 1}", "--config",
                              folder / "tide.conf").start()
        self.stack.callback(tided.end)
        env = {**os.environ, "TIDE_DIR": str(tided.dir), "TIDE_CLAIMS_DIR": str(folder / "claims")}
        job = subprocess.Popen([harness.TIDE, "run", "--max", str(CORES), "--", harness.BUILD / "tests/component/pool",
                                str(CORES)], env=env, stdout=subprocess.PIPE)
        self.stack.callback(job.wait)
        self.stack.callback(job.kill)
        job.stdout.readline()
        (folder / "link").mkdir()
        self.program(folder / "link", f"[unit]\nname = {name}\n[uplink]\nbroker = 127.0.0.1:{self.broker.port}\n"
                     f"[tided]\nsocket = {tided.dir}/api.sock\n")

    def command(self, cap):
        """Seconds until all have acknowledged."""
        self.policy.write_text(policy(cap))
        self.ear.changes(cap)
        begin = time.monotonic()
        code, _, err = self.hub.run("policy", "apply", self.policy)
        if code:
            raise RuntimeError(f"tide-hub policy apply: {err}")
        return self.ear.hold(cap) - begin


def row(what, times):
    p99 = harness.quantile(times, 0.99)
    return {"what": what, "commands": len(times), "median s": round(statistics.median(times), 3),
            "p99 s": round(p99, 3), "most s": round(max(times), 3), "goal": f"p99 <= {GOAL_S} s",
            "verdict": "met" if p99 <= GOAL_S else "missed"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commands", type=int, default=200)
    options = parser.parse_args()
    times = {LOW: [], HIGH: []}
    with tempfile.TemporaryDirectory(prefix="tide-bench-") as folder, contextlib.ExitStack() as stack:
        bed = Bed(pathlib.Path(folder), stack)
        bed.ear.wait(lambda: bed.ear.settled(HIGH))
        for n in range(options.commands):
            cap = (LOW, HIGH)[n % 2]
            time.sleep(PAUSE_S)
            times[cap].append(bed.command(cap))
            print(cap, "W", round(times[cap][-1], 3), "s", flush=True)
        over = bed.ear.over
    rows = [row("area's cap falls: command to the last acknowledgement", times[LOW]),
            row("area's cap rises: command to the last acknowledgement", times[HIGH]),
            {**row("both", times[LOW] + times[HIGH]), "sum above the cap": "yes" if over else "never"}]
    for each in rows:
        print(*each.values())
    harness.save("energy-area", rows, [{"cap_w": cap, "s": t} for cap, all_ in times.items() for t in all_])


if __name__ == "__main__":
    main()
