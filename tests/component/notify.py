# SPDX-License-Identifier: Apache-2.0
"""A service manager that a program reports to, as systemd is."""
import pathlib
import queue
import socket
import threading

from daemon import GUARD_S, SLOWNESS, eventually

ROOT = pathlib.Path(__file__).resolve().parents[2]


class ServiceManager:
    def __init__(self, folder):
        self.path = folder / "notify"
        self.env = {"NOTIFY_SOCKET": str(self.path), "WATCHDOG_USEC": "200000"}
        self.words = queue.Queue()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(self.path))
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):  # at once: libsystemd waits where ten words lie unread
        while word := self.socket.recv(100):
            self.words.put(word.decode())

    def hear(self, seconds=GUARD_S):
        try:
            return self.words.get(timeout=seconds)
        except queue.Empty:
            return None

    def hears_of_a_loop_that_goes_on(self):
        assert (self.hear() or "").startswith("READY=1")
        for _ in range(20):
            assert self.hear() == "WATCHDOG=1"

    def hears_no_more(self):
        eventually(lambda: self.hear(2 * SLOWNESS) is None)

    def end(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.sendto(b"", str(self.path))


def asks_for_a_watchdog(service):
    """Whether systemd waits for the program's first word and watches its loop from then on."""
    lines = (ROOT / "dist" / f"{service}.service.in").read_text().splitlines()
    return "Type=notify" in lines and any(line.startswith("WatchdogSec=") for line in lines)
