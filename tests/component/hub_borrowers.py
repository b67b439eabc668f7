#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Units that borrow power from a hub, each by a connection of its own (paho, a Debian package), in one thread, so that
what they may draw together is known at each moment.

usage: hub_borrowers.py PORT CA FOLDER FLOOR_UW NAME…

stdin: a line of what each would use, in uW: all ask for it from then on, five times a second, but those that would use
0; or a name and the JSON of its energy. stdout: a line of JSON five times
a second and after each lease: what each may draw, number and kind of its lease."""
import json
import random
import select
import ssl
import sys
import time

import paho.mqtt.client as mqtt


class Unit:
    def __init__(self, port, ca, folder, floor, name, tell):
        self.name, self.floor, self.tell, self.boot = name, floor, tell, random.getrandbits(62) | 1
        self.uw, self.until, self.number, self.want, self.kind = floor, 0, 0, floor, None
        self.client = mqtt.Client(name, protocol=mqtt.MQTTv5)
        self.client.tls_set(ca, f"{folder}/{name}.crt", f"{folder}/{name}.key", tls_version=ssl.PROTOCOL_TLS_CLIENT)
        self.client.on_connect = lambda *_: self.client.subscribe(f"tide/1/{name}/down/lease", 1)
        self.client.on_message = lambda _c, _u, m: self.take(json.loads(m.payload))
        self.client.connect("127.0.0.1", port, keepalive=60)

    def send(self, leaf, message):
        self.client.publish(f"tide/1/{self.name}/up/{leaf}", json.dumps({"v": 1, **message}), 1)

    def take(self, m):
        end = m["stamp"] + m["ttl"] * 1_000_000
        if m["boot"] != self.boot or end <= time.monotonic_ns() or m["number"] < self.number:
            return
        self.uw, self.until, self.number, self.kind = m["uw"], end, m["number"], m["kind"]  # it draws no more than that at once
        self.tell()
        self.send("ack", {"boot": self.boot, "number": m["number"], "uw": m["uw"], "kept": True})

    def ask(self):
        if not self.want:
            return
        self.send("ask", {"boot": self.boot, "stamp": time.monotonic_ns()})
        self.send("demand", {"floor": self.floor, "points": [[self.floor, 0], [self.want, self.want // 1000]],
                             "draw": None})

    def may_draw(self):
        return self.uw if time.monotonic_ns() < self.until else self.floor


def main():
    port, ca, folder, floor, *names = sys.argv[1:]
    units = []

    def tell():
        print(json.dumps({"draw": [u.may_draw() for u in units], "number": [u.number for u in units],
                          "kind": [u.kind for u in units]}), flush=True)

    units += [Unit(int(port), ca, folder, int(floor), name, tell) for name in names]
    asking, due, line = False, 0, ""
    while True:
        readable = select.select([sys.stdin, *(u.client.socket() for u in units if u.client.socket())], [], [], 0.05)[0]
        if sys.stdin in readable:
            line = sys.stdin.readline()
            if not line:
                return
            first, _, rest = line.partition(" ")
            if first in names:
                units[names.index(first)].send("energy", json.loads(rest))
                continue
            for unit, want in zip(units, line.split()):
                unit.want = int(want)
            asking = True
        for unit in units:
            if unit.client.loop(0.001) != mqtt.MQTT_ERR_SUCCESS:
                unit.client.reconnect()
        if asking and time.monotonic() > due:
            due = time.monotonic() + 0.2
            for unit in units:
                unit.ask()
            tell()


if __name__ == "__main__":
    main()
