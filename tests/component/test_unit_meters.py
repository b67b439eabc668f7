# SPDX-License-Identifier: Apache-2.0
"""tide-power with real brokers: meters of every kind become records at the parent, and nothing is lost."""
import signal
import socket
import subprocess
import time

import pytest

from conftest import ROOT
from unit_bed import GUARD_S, bed, program, rig  # noqa: F401

pytestmark = pytest.mark.skipif(bool(rig.missing()), reason=f"not installed: {', '.join(rig.missing())}")


def conf(local=None, uplink=None, meters=""):
    text = "[unit]\nname = lab3\n"
    text += f"[local]\nbroker = 127.0.0.1:{local.port}\n" if local else ""
    text += f"[uplink]\nbroker = 127.0.0.1:{uplink.port}\n" if uplink else ""
    return text + meters


PLUGS = """
[meter plug1]
kind = tasmota
topic = plug1
[meter plug2]
kind = shelly
topic = plug2
[meter plug3]
kind = json
topic = plug3
energy-path = energy
power-path = power
"""


def test_plugs_of_every_kind_become_records(bed):
    local, uplink = bed.broker("local"), bed.broker("uplink")
    parent = bed.parent(uplink)
    bed.unit(conf(local, uplink, PLUGS))
    bed.keep(rig.Plugs(local, "tasmota:plug1=1000W", "shelly:plug2=500W", "json:plug3=250W", period=0.5))
    parent.wait(lambda p: p.draws and p.draws[-1] and abs(p.draws[-1]["uw"] - 1750e6) < 20e6)
    parent.wait(lambda p: len(p.of("area")) >= 12 and len(p.of("meter:plug2")) >= 2)
    first, last = parent.of("area")[2], parent.of("area")[-1]
    watts = (last["uj"] - first["uj"]) / (last["to"] - first["to"]) / 1000
    assert 1000 < watts < 2500  # Tasmota counts whole Wh: 3.6 kJ more or less in some seconds
    assert all(r["low"] <= r["uj"] <= r["high"] for r in parent.records.values())
    assert all(a["uj"] <= b["uj"] for a, b in zip(parent.of("area"), parent.of("area")[1:]))
    assert parent.states[-1]["online"] and parent.states[-1]["role"] == "unit"


def test_a_modbus_meter_covers_the_area(bed, build_dir, tmp_path):
    uplink = bed.broker()
    parent = bed.parent(uplink)
    meter = bed.keep(rig.Meter(build_dir, tmp_path / "plant", 1, "--modbus", "0", "--lifetime", "1000"))
    unit = bed.unit(conf(None, uplink, f"[meter wall]\nkind = modbus\naddress = 127.0.0.1:{meter.port}\ncovers = area\n"))
    parent.wait(lambda p: p.draws and p.draws[-1] and p.draws[-1]["uw"] > 1e6)
    parent.wait(lambda p: len(p.of("area")) >= 8)
    parent.wait(lambda p: p.of("area")[-1]["uj"] > 0)  # it counts Wh: half a minute of an idle machine
    assert parent.of("area")[-1]["uj"] < 3.6e12  # not the meter's lifetime
    meter.process.send_signal(signal.SIGSTOP)
    unit.wait_line("meter wall: 127.0.0.1")
    parent.wait(lambda p: p.draws[-1] is None)  # nobody knows what it draws, which is not 0 W
    meter.process.send_signal(signal.SIGCONT)
    parent.wait(lambda p: p.draws[-1] is not None)


def test_nothing_is_lost_without_parent_broker_or_process(bed):
    local, uplink = bed.broker("local"), bed.broker("uplink")
    parent = bed.parent(uplink)
    unit = bed.unit(conf(local, uplink, PLUGS))
    bed.keep(rig.Plugs(local, "tasmota:plug1=100W", "shelly:plug2=5000W", "json:plug3=10W", period=0.3))
    parent.wait(lambda p: len(p.of("area")) >= 10)
    uplink.kill()
    unit.wait_line("records wait in the outbox")
    time.sleep(2)
    unit.kill()  # with records that nobody has
    unit.begin()
    time.sleep(2)
    known = dict(parent.records)
    uplink.start()
    parent.listen()
    unit.wait_line("uplink: connected", since=len(unit.lines))
    parent.wait(lambda p: len(p.of("area")) >= len([r for r in known.values() if r["point"] == "area"]) + 10)
    area = parent.of("area")
    assert all(a["uj"] <= b["uj"] for a, b in zip(area, area[1:]))  # totals go on after the restart
    times = [r["to"] for r in area]
    assert max(b - a for a, b in zip(times, times[1:])) < 4000  # no hole but that of the restart
    parent.wait(lambda p: len(p.of("meter:plug2")) >= 3)
    first, last = parent.of("meter:plug2")[0], parent.of("meter:plug2")[-1]
    watts = (last["uj"] - first["uj"]) / (last["to"] - first["to"]) / 1000
    assert 4500 < watts < 5500  # the plug's own counter tells what it used while tide-power was dead


def test_records_without_receipt_are_sent_again(bed):
    uplink = bed.broker()
    parent = bed.parent(uplink)
    parent.giving = False
    bed.unit(conf(None, uplink))
    parent.wait(lambda p: len(p.records) >= 10)
    (boot, seq) = max(parent.records)
    uplink.kill()
    uplink.start()
    parent.end()
    parent.listen()
    parent.wait(lambda p: p.double >= 10)  # at the new connection
    parent.giving = True
    parent.wait(lambda p: max(p.records)[1] > seq + 10)
    assert boot == max(parent.records)[0]


def test_a_lying_plug_adds_nothing(bed):
    local, uplink = bed.broker("local"), bed.broker("uplink")
    parent = bed.parent(uplink)
    unit = bed.unit(conf(local, uplink, "[meter p]\nkind = tasmota\ntopic = p\nmost = 3 kW\n"))
    unit.wait_line("local: connected")

    def say(total, power):
        local.publish("tele/p/SENSOR", f'{{"ENERGY":{{"Total":{total},"Power":{power}}}}}')

    say(100, 50)
    parent.wait(lambda p: p.draws and p.draws[-1] and p.draws[-1]["uw"] == 50e6)
    say(-5, 50)
    unit.wait_line("negative")
    parent.wait(lambda p: p.draws[-1] is None)
    local.publish("tele/p/SENSOR", '{"ENERGY":{"Total":NaN}}')
    unit.wait_line("no number")
    say(9999, 50)  # a spike
    unit.wait_line("more than anything of its kind can draw")
    say(100.5, 50)
    say(100, 1e12)
    unit.wait_line("more than it can draw")
    parent.wait(lambda p: len(p.of("area")) >= 10)
    assert parent.of("area")[-1]["uj"] < 3.6e12


def test_mistakes_are_told_before_anything_starts(program, tmp_path):
    file = tmp_path / "x.conf"
    file.write_text("[unit]\nname = lab3\n[meter a]\nkind = tasmoto\n")
    done = subprocess.run([program, "--check", "--config", file], capture_output=True, text=True, timeout=GUARD_S,
                          check=False)
    assert done.returncode == 1
    assert f"{file}:4: unknown kind 'tasmoto'; did you mean tasmota" in done.stderr
    done = subprocess.run([program, "--config", file], capture_output=True, text=True, timeout=GUARD_S, check=False)
    assert done.returncode == 2 and "tasmoto" in done.stderr  # systemd does not try again
    file.write_text(f"[unit]\nname = lab3\nstate-dir = {tmp_path}\n[uplink]\nbroker = hub.example.org\n")
    done = subprocess.run([program, "--config", file], capture_output=True, text=True, timeout=GUARD_S, check=False)
    assert done.returncode == 2 and "needs TLS" in done.stderr


@pytest.mark.parametrize("file", ["kubernetes/power.yaml", "helm/threadtide/templates/power.yaml"])
def test_a_cluster_asks_its_pods_whether_they_run(program, tmp_path, file):
    """The probes of the DaemonSet's tide-power, by the configuration that it gets."""
    text = (ROOT / "dist" / file).read_text()
    container = text.split("      - name: tide-power\n", 1)[1].split("      volumes:\n", 1)[0]
    for probe in ("livenessProbe", "readinessProbe"):
        assert f"{probe}:\n          exec: {{command: [/usr/bin/tide-power, --alive, --config, /etc/tide/tide-power.conf]}}\n" in container
    part = text.split("  tide-power.conf: |\n", 1)[1].split("---\n", 1)[0]
    part = part.replace("{{ $p.valid }}", "2min").replace("broker = {{ . }}", "broker = hub:8883")
    (tmp_path / "pod.conf").write_text("\n".join(line[4:] for line in part.split("\n") if "{{" not in line))
    done = subprocess.run([program, "--alive", "--config", tmp_path / "pod.conf"], capture_output=True, text=True, timeout=GUARD_S,
                          check=False, env={"NODE_NAME": "n1.example.org"})
    assert "Connection refused" in done.stderr, done.stderr  # nothing runs here, and the port is named


def test_whoever_asks_whether_it_runs_is_told_so(bed, program):
    unit = bed.unit("[unit]\nname = lab3\n")

    def alive():
        done = subprocess.run([program, "--alive", "--config", unit.conf], capture_output=True, text=True, timeout=GUARD_S, check=False)
        return done.returncode, done.stderr

    assert alive() == (1, "tide-power: --alive asks at the port of [unit] metrics=, which is missing (tide why unit-silent)\n")
    unit.end()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    unit.conf.write_text(unit.conf.read_text() + f"metrics = {port}\n")
    assert alive() == (1, f"tide-power: no answer at 127.0.0.1:{port}: Connection refused (tide why unit-silent)\n")
    unit.begin()
    unit.wait_line("metrics: ")
    assert alive() == (0, "")
    unit.process.send_signal(signal.SIGSTOP)  # its kernel still takes the connection
    assert alive() == (1, f"tide-power: no answer at 127.0.0.1:{port} within 5 s: its event loop stands still (tide why unit-silent)\n")
    unit.process.send_signal(signal.SIGCONT)
    assert alive() == (0, "")


def test_a_broker_that_is_not_there_is_said_once(bed):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    unit = bed.unit(f"[unit]\nname = lab3\n[uplink]\nbroker = 127.0.0.1:{port}\n")
    unit.wait_line("uplink: 127.0.0.1:")
    time.sleep(4)
    assert len([line for line in unit.lines if "uplink" in line]) == 1
    assert unit.end() == 0
