# SPDX-License-Identifier: Apache-2.0
"""An area from its plug to the hub: tide-power, both brokers and tide-hub, as docs/energy.md says it."""
import json
import shutil
import subprocess

import pytest

from daemon import GUARD_S, eventually
from hub import TOOLS, Serving, free_port

pytestmark = pytest.mark.skipif(not all(map(shutil.which, (*TOOLS, "mosquitto"))),
                                reason="mosquitto, mosquitto-clients or openssl are not installed")


class Area:
    """A plug's broker, and the area's tide-power."""

    def __init__(self, program, folder, hub, name):
        self.program, self.folder, self.port = program, folder, free_port()
        folder.mkdir()
        (folder / "mosquitto.conf").write_text(f"listener {self.port} 127.0.0.1\nallow_anonymous true\n")
        (folder / "tide-power.conf").write_text(
            f"[unit]\nname = {name}\nstate-dir = {folder}\n"
            f"[local]\nbroker = 127.0.0.1:{self.port}\n"
            f"[uplink]\nbroker = 127.0.0.1:{hub.port}\nca = {hub.state}/trust/ca.crt\n"
            f"cert = {hub.folder}/{name}.crt\nkey = {hub.folder}/{name}.key\n"
            "[meter wall]\nkind = tasmota\ntopic = wall\ncovers = area\nerror = 1 %\n")
        self.broker = subprocess.Popen(["mosquitto", "-c", folder / "mosquitto.conf"],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.start()

    def start(self):
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen([self.program, "--config", self.folder / "tide-power.conf"],
                                            stdout=log, stderr=log)

    def plug(self, watts, kwh):
        text = json.dumps({"Time": "2026-11-23T18:00:00", "ENERGY": {"Power": watts, "Total": kwh}})
        return subprocess.run(["mosquitto_pub", "-h", "127.0.0.1", "-p", str(self.port), "-t", "tele/wall/SENSOR",
                               "-m", text], capture_output=True, timeout=GUARD_S).returncode == 0

    def end(self):
        for process in (self.process, self.broker):
            process.terminate()
            process.wait(GUARD_S)


@pytest.fixture
def unit_program(build_dir):
    for path in (build_dir / "tide-power", build_dir / "src/unit/tide-power"):
        if path.exists():
            return path
    pytest.skip("tide-power was built without libmosquitto")


@pytest.fixture
def hub(build_dir, tmp_path, unit_program):
    made = Serving(build_dir / "tide-hub", tmp_path)
    made.start()
    made.serve()
    yield made
    made.stop()


@pytest.fixture
def area(unit_program, tmp_path, hub):
    hub.enrol("lab3")
    made = Area(unit_program, tmp_path / "area", hub, "lab3")
    yield made
    made.end()


def test_what_a_plug_counts_reaches_the_hub_even_if_it_was_dead_meanwhile(hub, area):
    kwh = [10.0]

    def turn(by=0.001):
        """The plug counts on, until the area's energy at the hub has grown."""
        kwh[0] += by
        assert area.plug(1000, round(kwh[0], 3))

    def stored():
        return hub.energy().get(("lab3", "area"), 0)

    def counted(at_least):
        turn()
        return stored() >= at_least

    eventually(lambda: "lab3: connected (unit" in hub.said())
    eventually(lambda: counted(0.002), pause=0.5)
    hub.kill()
    for _ in range(5):
        turn(0.01)
    hub.serve()
    eventually(lambda: counted(0.05), pause=0.5)
    # Nothing is counted that the plug did not count.
    eventually(lambda: abs(stored() - hub.energy().get(("lab3", "meter:wall"), 0)) < 1e-6, pause=0.5)
    assert stored() <= kwh[0] - 10.0 + 1e-6
    code, out, _ = hub.run("energy", "lab3", "area", "--step", "1min")
    assert code == 0 and " measured " in out


def test_the_hub_says_when_an_area_is_lost_and_comes_back(hub, area):
    eventually(lambda: "lab3: connected (unit" in hub.said())
    area.process.kill()
    area.process.wait(GUARD_S)
    eventually(lambda: "lab3: lost" in hub.said())
    before = hub.said().count("lab3: connected (unit")
    area.start()
    eventually(lambda: hub.said().count("lab3: connected (unit") > before)
