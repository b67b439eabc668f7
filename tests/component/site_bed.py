# SPDX-License-Identifier: Apache-2.0
"""The bed of tests of a unit's policy and switches: a hub's hand that seals, and relays on a real broker."""
import json
import subprocess
import threading
import time
import uuid

from hub import end_listener
from unit_bed import GUARD_S

W = 1_000_000
KWH = 3_600_000_000_000
MONDAY_17 = 1795464000  # 2026-11-23 17:00 in Buenos Aires
ZONE = "America/Argentina/Buenos_Aires"
EVENINGS = {"days": 31, "from": 18 * 60, "to": 23 * 60, "zone": 0}


def rule(verb, amount=0, area="unlp/lab3", line=1, **more):
    r = {"verb": verb, "area": area, "line": line, "column": 1, "amount": int(amount), **more}
    if verb == "cap":
        r.setdefault("kind", "breaker")
    if verb == "budget":
        r.setdefault("shape", "flat")
    return r


class Hand:
    """The hub's: its key, and what it sends to the unit lab3."""

    def __init__(self, folder, broker, name="lab3"):
        self.folder, self.broker, self.name = folder, broker, name
        self.key, self.public = folder / "seal.key", folder / "seal.pub"
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", self.key], check=True, capture_output=True)
        subprocess.run(["openssl", "pkey", "-in", self.key, "-pubout", "-out", self.public], check=True)

    def seal(self, context, text, name=None):
        covered = self.folder / "covered"
        covered.write_bytes(f"tide/1/{context}\0{name or self.name}\0{text}".encode())
        done = subprocess.run(["openssl", "pkeyutl", "-sign", "-rawin", "-inkey", self.key, "-in", covered],
                              check=True, capture_output=True)
        return done.stdout + text.encode()

    def publish(self, leaf, data, *options):
        file = self.folder / "message"
        file.write_bytes(data)
        subprocess.run(["mosquitto_pub", "-p", str(self.broker.port), "-q", "1", "-t",
                        f"tide/1/{self.name}/down/{leaf}", "-f", file, *options], check=True, timeout=GUARD_S)

    def policy_text(self, number, rules, made=MONDAY_17 - 3600, valid=7 * 86400, tariff=None, carbon=(), zone=ZONE):
        text = {"v": 1, "number": number, "made": made * 1000, "until": (made + valid) * 1000, "area": "unlp/lab3",
                "zones": [zone], "classes": [], "carbon": list(carbon), "rules": rules}
        return json.dumps({**text, "tariff": tariff} if tariff else text)

    def policy(self, number, rules, **more):
        """Retained, as the hub sends it."""
        self.publish("policy", self.seal("policy", self.policy_text(number, rules, **more)), "-r")

    def cmd_text(self, switch, on, until, ident=None, unit=None, by="ana@hub"):
        return json.dumps({"v": 1, "unit": unit or self.name, "id": ident or uuid.uuid4().hex, "until": int(until * 1000),
                           "switch": switch, "on": on, "by": by})

    def command(self, switch, on, until, ident=None):
        ident = ident or uuid.uuid4().hex
        self.publish("cmd", self.seal("cmd", self.cmd_text(switch, on, until, ident)))
        return ident


class Relay:
    """A relay with Tasmota or a Shelly: obeys, and tells. `deaf`: it does neither."""

    def __init__(self, broker, topic, on=True, kind="tasmota"):
        self.broker, self.topic, self.on, self.kind, self.deaf = broker, topic, on, kind, False
        self.orders = []
        order = {"tasmota": f"cmnd/{topic}/POWER", "shelly": f"{topic}/command/switch:0"}[kind]
        self.process = subprocess.Popen(["mosquitto_sub", "-p", str(broker.port), "-q", "1", "-t", order, "-F", "x%p"],
                                        stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            word = line.strip()[1:].lower()
            if word in ("on", "off"):
                self.orders.append(word)
                if not self.deaf:
                    self.on = word == "on"
            if not self.deaf:
                self.tell()

    def tell(self):
        if self.kind == "tasmota":
            self.broker.publish(f"stat/{self.topic}/POWER", "ON" if self.on else "OFF")
        else:
            self.broker.publish(f"{self.topic}/status/switch:0", json.dumps({"id": 0, "output": self.on}))

    def press(self):
        """Somebody at the wall."""
        self.on = not self.on
        self.tell()

    def end(self):
        end_listener(self.process)


def wait(good, what):
    until = time.monotonic() + GUARD_S
    while not good():
        assert time.monotonic() < until, what()
        time.sleep(0.05)


class Clock:
    """A unit's TIDE_CLOCK: a file that this can rewrite."""

    def __init__(self, folder, at, factor=1, tail=""):
        self.path = folder / "clock"
        self.set(at, factor, tail)

    def set(self, at, factor=1, tail=""):
        text = f"{at},{factor},{time.time():.3f}{tail}"
        new = self.path.with_suffix(".new")
        new.write_text(text)
        new.rename(self.path)
