# SPDX-License-Identifier: Apache-2.0
"""tide-power and a Modbus device whose line is busy or breaks: an order is written in its time, or never."""
import socket
import struct
import threading

import pytest

from site_bed import MONDAY_17, Clock, Hand, wait
from test_unit_switches import outcome
from unit_bed import GUARD_S, bed, program, rig  # noqa: F401

pytestmark = pytest.mark.skipif(bool(rig.missing()), reason=f"not installed: {', '.join(rig.missing())}")
READ_COIL, READ_METER, WRITE_COIL = 1, 4, 5


class Device:
    """A meter, and a relay that is on, over TCP. hold(): it does not answer the meter's next question until go()."""

    def __init__(self):
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.on, self.asked, self.written, self.ends = True, [], [], []
        self.free, self.holding = threading.Event(), threading.Event()
        self.free.set()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            with connection:
                try:
                    while self.answer(connection):
                        pass
                    self.ends.append("closed")
                except OSError as error:
                    self.ends.append(type(error).__name__)

    def answer(self, connection):
        """Whether the other end goes on."""
        head = connection.recv(7, socket.MSG_WAITALL)
        if len(head) < 7:
            return False
        number, _, length, unit = struct.unpack(">HHHB", head)
        body = connection.recv(length - 1, socket.MSG_WAITALL)
        function, _, count = struct.unpack(">BHH", body)
        self.asked.append(function)
        if function == READ_METER and not self.free.is_set():
            self.holding.set()
            self.free.wait(GUARD_S)
            try:
                if not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                    return False
            except BlockingIOError:
                pass
        if function == WRITE_COIL:
            self.on = count == 0xff00
            self.written.append(self.on)
        elif function == READ_COIL:
            body = bytes([function, 1, self.on])
        else:
            body = bytes([function, 2 * count]) + bytes(2 * count)
        connection.sendall(struct.pack(">HHHB", number, 0, len(body) + 1, unit) + body)
        return True

    def hold(self):
        self.holding.clear()
        self.free.clear()
        wait(self.holding.is_set, lambda: self.asked)

    def go(self):
        self.free.set()


@pytest.fixture
def pump(bed, tmp_path):  # noqa: F811
    """A unit with .device, .hub, .parent, .clock; its switch "pump" is on."""
    broker, device = bed.broker(), Device()
    parent, hub, clock = bed.parent(broker), Hand(tmp_path, broker), Clock(tmp_path, MONDAY_17)
    bus = f"kind = modbus\naddress = 127.0.0.1:{device.port}\n"
    unit = bed.unit(f"[unit]\nname = lab3\n[uplink]\nbroker = 127.0.0.1:{broker.port}\nseal = {hub.public}\n"
                    f"[meter a]\n{bus}[switch pump]\n{bus}coil = 2\ncommand = yes\n", TIDE_CLOCK=str(clock.path))
    unit.device, unit.hub, unit.parent, unit.clock = device, hub, parent, clock
    parent.wait(lambda p: p.states and any(s["known"] and s["on"] for s in p.states[-1].get("switches", ())))
    yield unit
    device.go()
    device.server.close()


def order(unit, on, end_s):
    """An order, which waits behind the meter's question."""
    unit.device.hold()
    ident, noted = unit.hub.command("pump", on, MONDAY_17 + end_s), unit.folder / "commands"
    wait(lambda: noted.exists() and ident in noted.read_text(), lambda: unit.lines)
    return ident


def test_an_order_that_waits_for_its_line_is_written_in_its_time_alone(pump):
    soon = order(pump, False, 300)
    pump.device.go()
    pump.parent.wait(lambda p: outcome(p, soon))
    assert outcome(pump.parent, soon) == "done" and pump.device.written == [False]
    late = order(pump, True, 900)
    pump.clock.set(MONDAY_17 + 901)
    pump.parent.wait(lambda p: outcome(p, late))
    asked = len(pump.device.asked)
    pump.device.go()
    wait(lambda: READ_COIL in pump.device.asked[asked:], lambda: pump.lines)
    assert outcome(pump.parent, late) == "expired" and pump.device.written == [False]


def test_a_line_that_is_given_up_delivers_nothing_later(pump):
    """It is reset: the kernel would go on sending what a slow network has not taken."""
    pump.device.hold()
    pump.wait_line(": no answer")
    pump.device.go()
    wait(lambda: pump.device.ends, lambda: pump.lines)
    assert pump.device.ends[0] == "ConnectionResetError"
