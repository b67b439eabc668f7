# SPDX-License-Identifier: Apache-2.0
"""tide-power on a serial line: two terminals wired to each other, and a Modbus device of libmodbus at the other end."""
import os
import select
import subprocess
import threading
import tty

import pytest

from daemon import eventually
from site_bed import MONDAY_17, Clock, Hand, wait
from unit_bed import GUARD_S, bed, program, rig  # noqa: F401

pytestmark = pytest.mark.skipif(bool(rig.missing()), reason=f"not installed: {', '.join(rig.missing())}")


class Line:
    """Two terminals; what one end writes, the other reads. `noise` damages what the device says."""

    def __init__(self):
        self.near, self.far = os.openpty(), os.openpty()
        for master, slave in (self.near, self.far):
            tty.setraw(master)
            tty.setraw(slave)
        self.noise = False
        self.quit = os.pipe()
        self.thread = threading.Thread(target=self.carry, daemon=True)
        self.thread.start()

    def carry(self):
        near, far = self.near[0], self.far[0]
        while True:
            ready, _, _ = select.select([near, far, self.quit[0]], [], [])
            if self.quit[0] in ready:
                return
            for end in ready:
                data = os.read(end, 256)
                if end == far and self.noise:
                    data = data[:-1] + bytes([data[-1] ^ 0x10])
                os.write(far if end == near else near, data)

    def names(self):
        return os.ttyname(self.near[1]), os.ttyname(self.far[1])

    def end(self):
        os.write(self.quit[1], b"x")
        self.thread.join(GUARD_S)
        for fd in (*self.near, *self.far, *self.quit):
            os.close(fd)


@pytest.fixture
def line():
    line = Line()
    yield line
    line.end()


@pytest.fixture
def device(build_dir, line):
    server = build_dir / "tests/component/rtu_server"
    if not server.exists():
        pytest.skip("libmodbus is missing")
    process = subprocess.Popen([server, line.names()[1], "3"], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    process.said = []
    threading.Thread(target=lambda: process.said.extend(iter(process.stdout.readline, "")), daemon=True).start()
    yield process
    process.kill()
    process.wait(GUARD_S)


def bus(line, unit=3):
    return f"kind = modbus\ndevice = {line.names()[0]}\nbaud = 19200\nparity = even\nmodbus-unit = {unit}\n"


def steady(records):
    """Two records of a meter one after the other, of which the second has no gap; None: there are none yet."""
    return next((pair for pair in zip(records, records[1:]) if pair[1]["gap"] == 0 and pair[0]["uj"] > 1000e6), None)


def test_meters_relay_and_sensor_share_a_line(bed, line, device, tmp_path):  # noqa: F811
    broker = bed.broker()
    parent, hub, clock = bed.parent(broker), Hand(tmp_path, broker), Clock(tmp_path, MONDAY_17)
    unit = bed.unit(
        f"[unit]\nname = lab3\n[uplink]\nbroker = 127.0.0.1:{broker.port}\nseal = {hub.public}\n"
        f"[meter a]\n{bus(line)}"
        f"[meter b]\n{bus(line)}registers = holding\npower-register = 0x10\npower-type = int32-swapped\n"
        f"power-unit = 0.01 W\nenergy-register = none\n"
        f"[meter away]\n{bus(line, 9)}\n[meter none]\n{bus(line)}power-register = 0x100\n"
        f"[switch pump]\n{bus(line)}coil = 2\ncommand = yes\n[presence door]\n{bus(line)}input = 4\n",
        TIDE_CLOCK=str(clock.path))
    parent.wait(lambda p: p.states and any(s["known"] and s["on"] for s in p.states[-1].get("switches", ())))
    unit.wait_line("meter away: ")  # and the others go on
    unit.wait_line("meter none: the meter refuses (Modbus exception 2)")
    parent.wait(lambda p: len(p.of("meter:a")) >= 2 and p.of("meter:a")[-1]["uj"] > 0)
    # 1234.56 W up to the last reading, which is up to two seconds old when a record begins or ends: the device that
    # is away holds up the line. A gap counts where it ends, also what lies in the record before it.
    parent.wait(lambda p: steady(p.of("meter:b")))
    first, last = steady(parent.of("meter:b"))
    assert 950 < (last["uj"] - first["uj"]) / (last["to"] - first["to"]) / 1000 < 1520
    ident = hub.command("pump", False, MONDAY_17 + 3000)
    parent.wait(lambda p: any(e["data"].get("id") == ident and e["data"]["state"] == "done" for e in p.events if e["type"] == "switch"))
    eventually(lambda: device.said == ["coil 2 off\n"])
    line.noise = True
    wait(lambda: any("meter a: what it answers is damaged" in text or "meter a: no answer" in text for text in unit.lines),
         lambda: unit.lines)
    parent.wait(lambda p: p.draws[-1] is None)
    line.noise = False
    wait(lambda: any("meter a: heard again" in text for text in unit.lines), lambda: unit.lines)
    parent.wait(lambda p: p.states[-1]["absent_s"] > 0)


def test_a_line_that_is_not_there_is_told(bed):  # noqa: F811
    unit = bed.unit("[unit]\nname = lab3\n[meter a]\nkind = modbus\ndevice = /dev/ttyTide9\n")
    unit.wait_line("meter a: /dev/ttyTide9: No such file or directory")
