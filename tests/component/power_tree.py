# SPDX-License-Identifier: Apache-2.0
"""A tree of the kernel's powercap class in a directory, whose counters a thread moves on as a machine would."""
import pathlib
import threading
import time

ZONES = {"intel-rapl:0": "package-0", "intel-rapl:0:0": "dram", "intel-rapl:1": "psys", "intel-rapl:2": "package-1"}


class PowerTree:
    def __init__(self, root, watts, wrap_uj=65_532_610_987, begin=None, step_s=0.02):
        """@watts: of each zone, "intel-rapl:0" and so on; @begin: their first µJ; they move on each @step_s."""
        self.root, self.step_s = pathlib.Path(root), step_s
        self.watts, self.wrap_uj = dict(watts), wrap_uj
        self.uj = {zone: float((begin or {}).get(zone, 1_000_000)) for zone in watts}
        self.used = dict.fromkeys(watts, 0.0)
        self.lock = threading.Lock()
        for zone in watts:
            self.folder(zone).mkdir(parents=True)
            (self.folder(zone) / "name").write_text(ZONES[zone] + "\n")
            (self.folder(zone) / "max_energy_range_uj").write_text(f"{wrap_uj}\n")
            self.write(zone)
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def folder(self, zone):
        return self.root / "sys/class/powercap" / zone

    def write(self, zone):
        """In place and in one write: sysfs never shows half a number."""
        path = self.folder(zone) / "energy_uj"
        with open(path, "r+b" if path.exists() else "wb", buffering=0) as file:
            file.write(f"{int(self.uj[zone]):020d}\n".encode())

    def run(self):
        before = time.monotonic()
        while not self.ending.wait(self.step_s):
            now = time.monotonic()
            with self.lock:
                for zone, watts in self.watts.items():
                    self.uj[zone] = (self.uj[zone] + watts * 1e6 * (now - before)) % (self.wrap_uj + 1)
                    self.used[zone] += watts * 1e6 * (now - before)
                    if (self.folder(zone) / "energy_uj").exists():
                        self.write(zone)
            before = now

    def set(self, zone, uj):
        with self.lock:
            self.uj[zone] = float(uj)
            self.write(zone)

    def end(self):
        self.ending.set()
        self.thread.join()
