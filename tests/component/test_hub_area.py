# SPDX-License-Identifier: Apache-2.0
"""An area from its plug to the hub: tide-power, both brokers and tide-hub, as docs/energy.md says it."""
import json
import pathlib
import shutil
import subprocess
import textwrap

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


@pytest.mark.parametrize("way", ["kill", "terminate"])
def test_the_hub_says_when_an_area_is_lost_and_comes_back(hub, area, way):
    eventually(lambda: "lab3: connected (unit" in hub.said())
    getattr(area.process, way)()
    area.process.wait(GUARD_S)
    eventually(lambda: "lab3: lost" in hub.said())
    before = hub.said().count("lab3: connected (unit")
    area.start()
    eventually(lambda: hub.said().count("lab3: connected (unit") > before)


def test_a_second_tide_power_of_the_same_directory_ends(hub, area):
    """Two would write one outbox, and the hub would take the records of neither."""
    eventually(lambda: "lab3: connected (unit" in hub.said())
    done = subprocess.run([area.program, "--config", area.folder / "tide-power.conf"], capture_output=True, text=True,
                          timeout=GUARD_S)
    assert done.returncode == 1
    assert f"pid {area.process.pid} runs with the directory {area.folder} already" in done.stderr
    area.process.kill()
    area.process.wait(GUARD_S)
    area.start()
    eventually(lambda: hub.said().count("lab3: connected (unit") > 1)


def test_check_tells_of_a_file_that_cannot_be_read(unit_program, tmp_path):
    path = tmp_path / "tide-power.conf"
    path.write_text("[unit]\nname = lab3\n[uplink]\nbroker = hub\nca = /nowhere/ca.crt\ncert = /nowhere/unit.crt\n"
                    "key = /nowhere/unit.key\n")
    done = subprocess.run([unit_program, "--config", path, "--check"], capture_output=True, text=True, timeout=GUARD_S)
    assert done.returncode == 0 and "unit lab3, 0 meters" in done.stdout
    assert "cannot read /nowhere/unit.key: No such file or directory: 'tide-power enrol' makes it" in done.stderr


def test_the_example_of_the_documents_is_read(unit_program, tmp_path):
    text = (pathlib.Path(__file__).parents[2] / "docs/energy.md").read_text()
    block = text[text.index("    # The broker to which the plugs speak."):text.index("A comment has a line of its own.")]
    path = tmp_path / "tide-power.conf"
    path.write_text("[unit]\nname = lab3\n" + textwrap.dedent(block))
    done = subprocess.run([unit_program, "--config", path, "--check"], capture_output=True, text=True, timeout=GUARD_S)
    assert (done.returncode, done.stderr) == (0, "") and "unit lab3, 1 meters" in done.stdout
