# SPDX-License-Identifier: Apache-2.0
"""The demo's organization: a hub with its broker and users, three areas with meters, plugs, lights and sensors, and
this machine as a node of the first area. Everything on loopback, in one folder, and gone with the demo.
"""

import datetime
import json
import os
import pathlib
import ssl
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / name) for name in ("component", "plant")]

import hub as hub_bed  # noqa: E402
import rig  # noqa: E402

USER, PASSWORD = "ada", "a demonstration"
GUARD_S = 30
ORG = "unlp"
LIGHTS_W = {"lab": 0, "office": 80, "hall": 120}  # the laboratory's meter and cap are its machine's alone
NAMES = {"lab": "Laboratory", "office": "Office", "hall": "Hall"}
FLOOR_SHARE = 0.05  # of the way from idle to full power: a node's floor


def wait(check, what, guard=GUARD_S):
    until = time.monotonic() + guard
    while not (value := check()):
        if time.monotonic() > until:
            raise TimeoutError(f"not within {guard} s: {what}")
        time.sleep(0.1)
    return value


def policy_text(caps):
    """@caps: (floor, cap of the evening) of the laboratory, in W."""
    floor, cap = caps
    areas = "".join(f"- {{area: {ORG}/{area}, unit: {area}, name: {NAMES[area]}}}\n" for area in NAMES)
    return (f"version: 1\norg: {ORG}\nzone: UTC\nareas:\n{areas}"
            "tariff:\n  unit: EUR\n  price: 0.12 EUR/kWh\n  windows:\n"
            "  - {when: \"18:00-23:00\", price: 0.30 EUR/kWh}\n"
            "rules:\n"
            f"- {{area: {ORG}/lab, floor: {floor:.0f} W}}\n"
            f"- {{area: {ORG}/lab, when: \"18:00-23:00\", cap: {cap:.0f} W, kind: breaker}}\n"
            f"- {{room: {ORG}/office, when: absent 5 s, off: [lights]}}\n")


class Clock:
    """The demo's time of the day, which begins shortly before 18:00 and goes on at the pace of every clock: faster, and
    the watts on the page would be wrong. Programs read it from a file."""

    def __init__(self, folder):
        self.path = folder / "clock"

    def set(self, seconds_before):
        """It is 18:00 in so many seconds."""
        six = datetime.datetime.now(datetime.timezone.utc).replace(hour=18, minute=0, second=0, microsecond=0).timestamp()
        self.shift = six - seconds_before - time.time()
        partial = self.path.with_suffix(".new")
        partial.write_text(f"{six - seconds_before:.3f},1,{time.time():.3f}\n")
        partial.rename(self.path)

    def says(self):
        return datetime.datetime.fromtimestamp(time.time() + self.shift, datetime.timezone.utc).strftime("%H:%M:%S")


class Program:
    """A program of ours with its words in a file."""

    def __init__(self, command, log, env=None):
        self.command, self.log, self.env = [str(word) for word in command], log, env
        self.start()

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                            env=self.env, start_new_session=True)

    def said(self):
        return self.log.read_text(errors="replace")

    def alive(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.command[0]} ended with status {self.process.returncode}:\n{self.said()[-2000:]}")
        return True

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(GUARD_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Building:
    """Starts in the order of the lines below; end() goes backwards."""

    def __init__(self, build, folder, meter, caps, clock):
        self.build, self.folder, self.meter, self.caps = build, folder, meter, caps
        self.env = {**os.environ, "TIDE_CLOCK": str(clock)}
        self.things = []
        self.rooms = {area: folder / f"somebody-in-{area}" for area in NAMES}
        for room in self.rooms.values():
            room.touch()

    def keep(self, thing):
        self.things.append(thing)
        return thing

    def begin(self):
        self.start_hub()
        self.broker = self.keep(rig.Broker(self.folder))
        lights = [f"shelly:{area}-lights={watts}W" for area, watts in LIGHTS_W.items()]
        sensors = [f"presence:{area}-room={self.rooms[area]}" for area in NAMES]
        wall = f"shelly:wall={self.meter.zone('intel-rapl:1')}/energy_uj"  # what this machine would draw
        self.keep(rig.Plugs(self.broker, wall, *lights, *sensors, "tasmota:desks=140W", "tasmota:machines=90W", period=1))
        self.units = {area: self.unit(area) for area in NAMES}

    def start_hub(self):
        (self.folder / "hub").mkdir()
        self.policy = self.folder / "policy.yaml"
        self.policy.write_text(policy_text(self.caps))
        self.hub = hub_bed.Serving(self.build / "tide-hub", self.folder / "hub")
        self.page = hub_bed.free_port()  # the same after the hub's death
        self.hub.options = ("--policy", self.policy, "--listen", f"127.0.0.1:{self.page}", "--host", "127.0.0.1")
        os.environ["TIDE_CLOCK"] = self.env["TIDE_CLOCK"]  # the hub's programs inherit it
        self.hub.start()
        self.keep(HubEnd(self.hub))
        done = subprocess.run([self.hub.program, "policy", "check", self.policy], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the demo's policy: {done.stderr}")
        done = subprocess.run([self.hub.program, "user", "add", USER, "--role", "administrator", "--state",
                               self.hub.state], input=PASSWORD + "\n", text=True, capture_output=True, check=False)
        if done.returncode:
            raise RuntimeError(f"tide-hub user add: {done.stderr}")
        self.hub.serve()

    def link(self):
        """Where the page is."""
        return f"https://127.0.0.1:{self.page}/"

    def meters(self, area):
        own = {"lab": "[meter wall]\nkind = shelly\ntopic = wall\nerror = 1 %\n",
               "office": "[meter desks]\nkind = tasmota\ntopic = desks\n",
               "hall": "[meter machines]\nkind = tasmota\ntopic = machines\n"}[area]
        return own + (f"[meter lights]\nkind = shelly\ntopic = {area}-lights\ncovers = other\n" if LIGHTS_W[area] else "")

    def unit(self, area):
        self.hub.enrol(area)
        folder = self.folder / area
        folder.mkdir()
        trust = f"ca = {self.hub.state}/trust/ca.crt\ncert = {self.hub.folder}/{area}.crt\n" \
            f"key = {self.hub.folder}/{area}.key\nseal = {self.hub.state}/trust/seal.pub\n"
        text = f"[unit]\nname = {area}\nstate-dir = {folder}\n" \
            f"[local]\nbroker = 127.0.0.1:{self.broker.port}\n[uplink]\nbroker = 127.0.0.1:{self.hub.port}\n{trust}" + \
            self.meters(area) + \
            f"[switch lights]\nkind = shelly\ntopic = {area}-lights\nrules = yes\ncommand = yes\nrestore = yes\n" \
            f"min-on = 1s\nmin-off = 1s\n" \
            f"[presence room]\nkind = json\ntopic = {area}-room/occupancy\npath = occupancy\n"
        if area == "lab":
            text += f"[child node]\nfloor = {self.caps[0]:.0f} W\n"
            # Which leases are in force is known: none.
            (folder / "leases").write_text("threadtide leases 1 0 0\n")
        (folder / "tide-power.conf").write_text(text)
        return self.keep(Program([self.build / "tide-power", "--config", folder / "tide-power.conf"], folder / "log",
                                 self.env))

    def link_node(self, socket):
        """This machine's tided joins the laboratory."""
        folder = self.folder / "node"
        folder.mkdir()
        (folder / "tide-power.conf").write_text(
            f"[unit]\nname = node\nstate-dir = {folder}\n[uplink]\nbroker = 127.0.0.1:{self.broker.port}\n"
            f"[tided]\nsocket = {socket}\n")
        self.node = self.keep(Program([self.build / "tide-power", "--config", folder / "tide-power.conf"],
                                      folder / "log", self.env))

    # ---- what people do ----

    def leave(self, area):
        self.rooms[area].unlink()

    def lights_on(self, area):
        """As the plug itself says."""
        done = subprocess.run(["mosquitto_sub", "-p", str(self.broker.port), "-t", f"{area}-lights/status/switch:0",
                               "-C", "1", "-W", "5"], capture_output=True, text=True, check=False)
        return json.loads(done.stdout)["output"] if done.stdout.strip() else None

    def kill_hub(self):
        self.hub.kill()

    def serve_hub(self):
        self.hub.serve()

    # ---- the REST interface, as a script uses it ----

    def token(self):
        code, out, err = self.hub.run("user", "token", USER)
        if code:
            raise RuntimeError(f"tide-hub user token: {err}")
        return out.split()[-1]

    def get(self, path, token):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        request = urllib.request.Request(self.link() + path, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=GUARD_S, context=context) as answer:
            return json.load(answer)

    def stored(self):
        """{(unit, point): (kWh or None, seconds of which nothing is known, time of the last record)} in the hub."""
        code, out, err = self.hub.run("energy")
        if code:
            raise RuntimeError(f"tide-hub energy: {err}")
        rows = [line.split() for line in out.splitlines()[1:]]
        return {tuple(row[:2]): (None if row[4] == "-" else float(row[4]), float(row[-1]),
                                 datetime.datetime.fromisoformat(f"{row[2]} {row[3]}").timestamp()) for row in rows if row}

    def end(self):
        for thing in reversed(self.things):
            thing.end()


class HubEnd:
    def __init__(self, hub):
        self.hub = hub

    def end(self):
        if self.hub.process and self.hub.process.poll() is None:
            self.hub.process.terminate()
            self.hub.process.wait(GUARD_S)
        self.hub.broker.terminate()
        self.hub.broker.wait(GUARD_S)
