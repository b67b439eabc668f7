#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Plugs, lights and presence sensors on a real MQTT broker, in the topics and texts of real firmware.

usage: plant_plug.py [--broker HOST:PORT] [--period S] DEVICE…

DEVICE is KIND:NAME=LOAD. Each is a client of its own, with its own last will.
  tasmota:NAME=LOAD   tele/NAME/SENSOR, STATE, LWT; obeys cmnd/NAME/POWER (ON, OFF, TOGGLE)
  shelly:NAME=LOAD    NAME/status/switch:0, NAME/online; obeys NAME/command/switch:0 (on, off, toggle)
  json:NAME=LOAD      NAME: {"power": W, "energy": kWh}, for a generic JSON path
  presence:NAME=FILE  NAME/occupancy: {"occupancy": true|false}: true while FILE exists
LOAD is a constant, such as 60W, or the path of a counter of µJ: the plant's, as plant_meter shows it in its tree.
A path needs the right to read it. A plug that is off draws nothing, and counts nothing.

Prints "ready" when all are connected. Figures have the resolution of the real thing: Tasmota whole W and Wh, Shelly
0.1 W and mWh. Ends by SIGTERM or with its parent.
"""
import argparse
import ctypes
import datetime
import json
import os
import pathlib
import select
import signal
import sys
import time

import paho.mqtt.client as mqtt

PR_SET_PDEATHSIG = 1
QOS = 1
VOLTS = 230
SHORTEST_S = 1e-3  # between two looks at a load


class Load:
    """Joules since the beginning: a constant's, or a counter's, which may wrap."""

    def __init__(self, text):
        self.watts = float(text[:-1]) if text[-1:] == "W" and text[:-1].replace(".", "", 1).isdigit() else None
        self.path = None if self.watts is not None else pathlib.Path(text)
        self.wrap = 0
        if self.path:
            self.wrap = int((self.path.parent / "max_energy_range_uj").read_text()) + 1
        self.at, self.raw, self.joules, self.last = time.monotonic(), self.counter(), 0.0, 0.0

    def counter(self):
        return int(self.path.read_text()) if self.path else 0

    def step(self, on):
        """Mean W since the last step."""
        now, raw = time.monotonic(), self.counter()
        seconds = max(now - self.at, SHORTEST_S)
        joules = (raw - self.raw) % self.wrap / 1e6 if self.path else self.watts * seconds
        self.at, self.raw = now, raw
        self.joules += joules if on else 0
        self.last = joules / seconds if on else 0.0
        return self.last


class Device:
    """A client of the broker; kinds differ in topics and texts."""
    will = command_topic = None

    def __init__(self, name, load, broker):
        self.name, self.load, self.on = name, load, True
        self.started = datetime.datetime.now().isoformat(timespec="seconds")
        self.client = mqtt.Client(client_id=f"plug-{name}", protocol=mqtt.MQTTv311)
        self.client.max_inflight_messages_set(100)
        if self.will:
            self.client.will_set(*self.will, qos=QOS, retain=True)
        self.client.on_connect = self.connected
        self.client.on_message = self.commanded
        self.broker, self.is_up, self.next_try = broker, False, 0.0
        self.connect()

    def connect(self):
        self.next_try = time.monotonic() + 1
        try:
            self.client.connect(*self.broker, keepalive=15)
        except OSError as error:
            print(f"plant_plug: {self.name}: {error}", file=sys.stderr)

    def connected(self, client, userdata, flags, code):
        self.is_up = code == 0
        if self.command_topic:
            client.subscribe(self.command_topic, QOS)
        self.greet()
        self.report()

    def commanded(self, client, userdata, message):
        word = message.payload.decode(errors="replace").strip().lower()
        if word in ("on", "off", "toggle", "1", "0"):
            self.load.step(self.on)  # what went by belongs to the old state
            self.on = not self.on if word == "toggle" else word in ("on", "1")
            self.answer()
        elif not word and isinstance(self, Tasmota):  # asks, as the firmware has it
            self.answer()

    def publish(self, topic, text, retain=False):
        self.client.publish(topic, text if isinstance(text, str) else json.dumps(text), QOS, retain)

    def greet(self):
        pass

    def answer(self):
        self.report()


class Tasmota(Device):
    def __init__(self, name, load, broker):
        self.will = (f"tele/{name}/LWT", "Offline")
        self.command_topic = f"cmnd/{name}/POWER"
        super().__init__(name, load, broker)

    def state(self):
        return "ON" if self.on else "OFF"

    def greet(self):
        self.publish(f"tele/{self.name}/LWT", "Online", retain=True)

    def answer(self):
        self.publish(f"stat/{self.name}/RESULT", {"POWER": self.state()})
        self.publish(f"stat/{self.name}/POWER", self.state())

    def report(self):
        watts = self.load.step(self.on)
        now = datetime.datetime.now().isoformat(timespec="seconds")
        kwh = round(self.load.joules / 3.6e6, 3)
        self.publish(f"tele/{self.name}/STATE", {"Time": now, "POWER": self.state()})
        self.publish(f"tele/{self.name}/SENSOR", {"Time": now, "ENERGY": {
            "TotalStartTime": self.started, "Total": kwh, "Yesterday": 0.0, "Today": kwh, "Period": 0,
            "Power": round(watts), "ApparentPower": round(watts), "ReactivePower": 0, "Factor": 1.0,
            "Voltage": VOLTS, "Current": round(watts / VOLTS, 3)}})


class Shelly(Device):
    def __init__(self, name, load, broker):
        self.will = (f"{name}/online", "false")
        self.command_topic = f"{name}/command/switch:0"
        super().__init__(name, load, broker)

    def greet(self):
        self.publish(f"{self.name}/online", "true", retain=True)

    def report(self):
        watts = self.load.step(self.on)
        self.publish(f"{self.name}/status/switch:0", {
            "id": 0, "source": "MQTT", "output": self.on, "apower": round(watts, 1), "voltage": VOLTS,
            "current": round(watts / VOLTS, 3), "pf": 1.0,
            "aenergy": {"total": round(self.load.joules / 3600, 3), "by_minute": [0.0, 0.0, 0.0],
                        "minute_ts": int(time.time()) // 60 * 60},
            "temperature": {"tC": 38.5, "tF": 101.3}})


class Json(Device):
    def report(self):
        watts = self.load.step(self.on)
        self.publish(self.name, {"power": round(watts, 3), "energy": round(self.load.joules / 3.6e6, 6)})


class Presence(Device):
    """Tells of a change at once, and of the state each period."""
    seen = None

    def occupied(self):
        return self.load.exists()

    def report(self):
        self.seen = self.occupied()
        self.publish(f"{self.name}/occupancy", {"occupancy": self.seen})


KINDS = {"tasmota": Tasmota, "shelly": Shelly, "json": Json, "presence": Presence}


def device(text, broker):
    kind, _, rest = text.partition(":")
    name, _, load = rest.partition("=")
    if kind not in KINDS or not name or not load:
        sys.exit(f"plant_plug: '{text}': expected KIND:NAME=LOAD, KIND one of {', '.join(KINDS)}")
    return KINDS[kind](name, pathlib.Path(load) if kind == "presence" else Load(load), broker)


def serve(devices, period):
    """One thread for all: paho's own would be one each."""
    due, ready = time.monotonic() + period, False
    while True:
        sockets = {d.client.socket(): d for d in devices if d.client.socket()}
        writers = [s for s, d in sockets.items() if d.client.want_write()]
        readable, writable, _ = select.select(list(sockets), writers, [], min(max(due - time.monotonic(), 0), 0.1))
        for s in readable:
            sockets[s].client.loop_read()
        for s in writable:
            sockets[s].client.loop_write()
        now = time.monotonic()
        for d in devices:
            d.client.loop_misc()
            if not d.client.socket() and now >= d.next_try:
                d.is_up = False
                d.connect()
            elif isinstance(d, Presence) and d.is_up and d.occupied() != d.seen:
                d.report()
        if now >= due:
            due += max(period, (now - due) // period * period)
            for d in devices:
                if d.is_up:
                    d.report()
        if not ready and all(d.is_up for d in devices):
            ready = True
            print("ready", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--broker", default="127.0.0.1:1883")
    parser.add_argument("--period", type=float, default=1.0)
    parser.add_argument("device", nargs="+")
    options = parser.parse_args()
    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit("plant_plug: its parent has ended")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    host, _, port = options.broker.rpartition(":")
    serve([device(text, (host, int(port))) for text in options.device], options.period)


if __name__ == "__main__":
    main()
