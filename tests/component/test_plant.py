# SPDX-License-Identifier: Apache-2.0
"""The plant's fronts: a powercap tree, a Modbus meter, plugs on a real broker. They show what the truth tells."""
import json
import os
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import time

import pytest

from conftest import PLANT_METER, ROOT
from daemon import GUARD_S

sys.path.append(str(ROOT / "tests/plant"))

import rig  # noqa: E402


@pytest.fixture
def meter(build_dir, tmp_path):
    """meter(*options): a plant_meter of the seed "test"."""
    if not (build_dir / PLANT_METER).exists():
        pytest.skip("plant_meter is not built: libmodbus-dev is missing, scripts/setup.sh build installs it")
    started = []

    def start(*options, seed="test"):
        started.append(rig.Meter(build_dir, tmp_path / f"meter{len(started)}", seed, *options))
        return started[-1]
    yield start
    for one in started:
        one.end()


SPIN = "while :; do :; done"


@pytest.fixture
def shell():
    """shell(command): the pid of a bash that runs it; it and what it starts end with the test."""
    started = []

    def start(command):
        started.append(subprocess.Popen(["bash", "-c", command], start_new_session=True,
                                        stdin=subprocess.PIPE))
        return started[-1]
    yield start
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdin.close()


def eventually(what):
    until = time.monotonic() + GUARD_S
    while not (result := what()):
        assert time.monotonic() < until
        time.sleep(0.05)
    return result


def test_the_tree_is_a_powercap_class_whose_counters_follow_the_plant(meter):
    plant = meter("--psys", "--packages", "2")
    class_ = plant.tree / "sys/class/powercap"
    names = {entry.name: (entry / "name").read_text().strip() for entry in class_.iterdir() if ":" in entry.name}
    assert names == {"intel-rapl:0": "package-0", "intel-rapl:0:0": "core", "intel-rapl:0:1": "dram",
                     "intel-rapl:1": "package-1", "intel-rapl:1:0": "core", "intel-rapl:1:1": "dram",
                     "intel-rapl:2": "psys"}
    for zone in names:
        assert stat.S_IMODE((plant.zone(zone) / "energy_uj").stat().st_mode) == 0o400
    with open(plant.zone("intel-rapl:2") / "energy_uj", encoding="ascii") as kept:
        before = plant.wait_truth(lambda line: line["wall_uj"] > 0)
        after = plant.wait_truth(lambda line: line["wall_uj"] > before["wall_uj"])
        shown = int(kept.read())  # from the descriptor that was opened before
    assert after["wall_uj"] <= shown
    assert shown >= before["wall_uj"] + plant.params["idle_uw"] // 2
    packages = plant.value("intel-rapl:0") + plant.value("intel-rapl:1")
    assert after["package_uj"] - 2 <= packages
    assert plant.value("intel-rapl:0:1") * 2 >= after["dram_uj"] - 2


def test_counters_begin_anew_after_their_largest_value(meter):
    plant = meter("--psys", "--wrap", "39999999")
    seen, falls = [], 0
    while falls < 2:
        seen.append(plant.value("intel-rapl:1"))
        falls += len(seen) > 1 and seen[-1] < seen[-2]
        assert seen[-1] <= 39999999
        assert len(seen) < GUARD_S * 20
        time.sleep(0.05)
    assert plant.value("intel-rapl:1", "max_energy_range_uj") == 39999999
    assert plant.wait_truth(lambda line: line["wall_uj"] > 39999999)


def test_shares_add_up_and_who_does_nothing_has_none(meter, shell):
    plant = meter()
    plant.add_jobs({"busy": shell(SPIN).pid, "waits": shell("sleep 1000").pid})
    begin = plant.wait_truth(lambda line: "waits" in line["wall"]["jobs"])
    line = plant.wait_truth(lambda line: line["time_ns"] > begin["time_ns"] + 3_000_000_000)
    for of in ("wall", "rapl"):
        part = line[of]
        assert part["system"] + sum(part["jobs"].values()) == part["all"] - part["idle"]
        assert part["jobs"]["busy"] > 20 * max(part["jobs"]["waits"], 1)
    assert line["rapl"]["all"] == pytest.approx(line["package_uj"] + line["dram_uj"], abs=4)


def test_what_a_job_starts_belongs_to_it(meter, shell):
    parent = shell(f"read -r; ({SPIN}) & wait")
    plant = meter()
    plant.add_jobs({"parent": parent.pid})
    plant.wait_truth(lambda line: "parent" in line["wall"]["jobs"])
    parent.stdin.write(b"go\n")
    parent.stdin.flush()
    plant.wait_truth(lambda line: line["wall"]["jobs"]["parent"] > 1_000_000)


def test_a_limit_slows_the_clock_and_holds_the_package_below_it(meter, shell):
    plant = meter()
    for _ in range(os.cpu_count()):
        shell(SPIN)
    speed = plant.tree / "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq"
    plant.wait_truth(lambda line: line["time_ns"])
    first, second = (plant.wait_truth(lambda line, n=n: len(plant.truth()) > n) for n in (2, 3))
    free_uw = (second["package_uj"] - first["package_uj"]) * 1000 // \
        ((second["time_ns"] - first["time_ns"]) // 1_000_000)
    limit = (free_uw + plant.params["package_idle_uw"]) // 2
    (plant.zone("intel-rapl:0") / "constraint_0_power_limit_uw").write_text(f"{limit}\n")
    eventually(lambda: int(speed.read_text()) < 1_900_000)
    n = len(plant.truth())
    first = plant.wait_truth(lambda line: len(plant.truth()) > n + 1)
    second = plant.wait_truth(lambda line: line["time_ns"] > first["time_ns"])
    held = (second["package_uj"] - first["package_uj"]) * 1000 / \
        ((second["time_ns"] - first["time_ns"]) / 1_000_000)
    assert held <= limit * 1.01
    (plant.zone("intel-rapl:0") / "enabled").write_text("0\n")
    eventually(lambda: int(speed.read_text()) >= 2_000_000)


def registers(peer, address, count, function=4):
    """Returns the answer's function code and data."""
    peer.sendall(struct.pack(">HHHBBHH", 7, 0, 6, 1, function, address, count))
    head = peer.recv(7, socket.MSG_WAITALL)
    body = peer.recv(struct.unpack(">H", head[4:6])[0] - 1, socket.MSG_WAITALL)
    return body[0], body[1:]


def test_the_meter_speaks_modbus_with_the_registers_of_a_real_one(meter):
    plant = meter("--modbus", "0", "--lifetime", "1234")
    half = socket.create_connection(("127.0.0.1", plant.port), GUARD_S)
    half.sendall(b"\0\7\0\0\0")  # and no more
    peer = socket.create_connection(("127.0.0.1", plant.port), GUARD_S)

    def power():
        function, data = registers(peer, 0x34, 2)
        assert (function, data[0]) == (4, 4)
        return struct.unpack(">f", data[1:])[0]
    watts = eventually(power)
    lines = plant.truth()
    assert 0.8 * plant.params["idle_uw"] / 1e6 < watts < 1000
    assert lines[-1]["wall_uj"] > 0
    phases = struct.unpack(">fff", registers(peer, 0x0c, 6)[1][1:])
    assert sum(phases) == pytest.approx(struct.unpack(">f", registers(peer, 0x34, 2)[1][1:])[0], rel=0.5)
    assert struct.unpack(">f", registers(peer, 0, 2)[1][1:])[0] == 230
    assert registers(peer, 0x7000, 2) == (0x84, b"\2")  # illegal data address
    assert half.recv(1) == b""  # hung up
    kwh = struct.unpack(">f", registers(peer, 0x48, 2)[1][1:])[0]
    assert kwh == pytest.approx(1234 + plant.truth()[-1]["wall_uj"] / 3.6e12, abs=0.0015)


def test_parameters_that_are_missing_or_wrong_are_named(build_dir, tmp_path, meter):
    meter()  # skips where it is not built
    good = (tmp_path / "meter0/params").read_text()
    for text, said in (("", "idle_uw is out of its bounds"), (good + "nonsense=1\n", "no parameter 'nonsense'"),
                       (good + "turbo_permille=1\n", "turbo_permille is out of its bounds")):
        (tmp_path / "bad").write_text(text)
        run = subprocess.run([build_dir / PLANT_METER, "--params", tmp_path / "bad"],
                             capture_output=True, text=True, timeout=GUARD_S, check=False)
        assert run.returncode == 1 and said in run.stderr


class Listener:
    """All messages of a broker."""

    def __init__(self, broker):
        self.process = subprocess.Popen(
            ["mosquitto_sub", "-p", str(broker.port), "-t", "#", "-F", "%r %t %p"], stdout=subprocess.PIPE)
        self.rest = b""

    def wait(self, good):
        """The first message from now on for which good(topic, text): both."""
        until = time.monotonic() + GUARD_S
        while time.monotonic() < until:
            while b"\n" in self.rest:
                line, self.rest = self.rest.split(b"\n", 1)
                retained, topic, text = line.decode().split(" ", 2)
                if good(topic, text):
                    return topic, text
            if select.select([self.process.stdout], [], [], 0.1)[0]:
                self.rest += os.read(self.process.stdout.fileno(), 65536)
        raise TimeoutError("no such message")

    def json(self, topic, good=lambda member: True):
        return json.loads(self.wait(lambda t, text: t == topic and good(json.loads(text)))[1])


@pytest.fixture
def broker(tmp_path):
    if rig.missing():
        pytest.skip(f"not installed: {', '.join(rig.missing())}; scripts/setup.sh check installs them")
    broker = rig.Broker(tmp_path)
    yield broker
    broker.end()


@pytest.fixture
def listen(broker):
    """A function that begins to listen; all end with the test."""
    listeners = []

    def begin():
        listeners.append(Listener(broker))
        return listeners[-1]
    yield begin
    for listener in listeners:
        listener.process.kill()
        listener.process.communicate()


def test_plugs_speak_as_tasmota_and_shelly_and_obey(broker, tmp_path, meter, listen):
    plant = meter("--psys")
    counter = plant.zone("intel-rapl:1") / "energy_uj"
    listener = listen()
    (tmp_path / "here").touch()
    plugs = rig.Plugs(broker, "tasmota:plug1=60W", f"tasmota:machine={counter}", "shelly:shelly-1=12.5W",
                      f"presence:room1={tmp_path}/here", "json:meters/7=3W", period=0.3)
    try:
        assert listener.json("tele/plug1/SENSOR", lambda m: m["ENERGY"]["Power"] == 60)["ENERGY"]["Voltage"] == 230
        idle_w = plant.params["idle_uw"] / 1e6
        assert listener.json("tele/machine/SENSOR", lambda m: m["ENERGY"]["Power"] > 0)["ENERGY"]["Power"] > idle_w / 2
        assert listener.json("shelly-1/status/switch:0", lambda m: m["aenergy"]["total"] > 0)["apower"] == 12.5
        assert listener.json("meters/7", lambda m: m["energy"] > 0)["power"] == pytest.approx(3, rel=0.01)
        broker.publish("cmnd/plug1/POWER", "OFF")
        assert listener.json("stat/plug1/RESULT") == {"POWER": "OFF"}
        assert listener.json("tele/plug1/STATE")["POWER"] == "OFF"
        assert listener.json("tele/plug1/SENSOR")["ENERGY"]["Power"] == 0
        broker.publish("shelly-1/command/switch:0", "off")
        off = listener.json("shelly-1/status/switch:0", lambda m: not m["output"])["aenergy"]["total"]
        later = listener.json("shelly-1/status/switch:0", lambda m: m["apower"] == 0)["aenergy"]["total"]
        assert later == off
        (tmp_path / "here").unlink()
        listener.json("room1/occupancy", lambda m: not m["occupancy"])
        # A broker that dies and comes back finds them again; a plug that dies is reported by its will.
        broker.kill()
        broker.start()
        listener = listen()
        listener.json("tele/plug1/SENSOR")
        plugs.process.kill()
        wills = {("tele/plug1/LWT", "Offline"), ("tele/machine/LWT", "Offline"), ("shelly-1/online", "false")}
        while wills:
            wills.discard(listener.wait(lambda topic, text: (topic, text) in wills))
    finally:
        plugs.end()
