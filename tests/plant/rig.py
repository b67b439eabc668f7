# SPDX-License-Identifier: Apache-2.0
"""Starts the plant's meters, plugs and a broker of one's own for tests, benchmarks and the demo."""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
GUARD_S = 90
SYSTEM_PYTHON = "/usr/bin/python3"  # paho is a Debian package
sys.path.append(str(HERE))

import plant_draw  # noqa: E402


def missing():
    """Returns what the rig needs and this machine does not have; empty: nothing."""
    paho = subprocess.run([SYSTEM_PYTHON, "-c", "import paho.mqtt.client"], capture_output=True, check=False)
    return [name for name in ("mosquitto", "mosquitto_sub", "mosquitto_pub")
            if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")] + \
        ["python3-paho-mqtt"] * (paho.returncode != 0)


def first_line(process, what):
    line = process.stdout.readline()
    if not line.startswith("ready"):
        process.wait(GUARD_S)
        raise RuntimeError(f"{what} did not start: {process.stderr.read() if process.stderr else line}")
    return line


def end(process):
    """Returns its exit status."""
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.terminate()
    try:
        return process.wait(GUARD_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise


class Meter:
    """plant_meter with a drawn plant. @options are its command line's, without --params, --seed, --jobs, --truth."""

    def __init__(self, build, folder, seed, *options, kind=None):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.params = plant_draw.draw(seed, os.cpu_count(), kind)
        (self.folder / "params").write_text("".join(f"{k}={v}\n" for k, v in self.params.items()))
        self.tree, self.jobs = self.folder / "tree", self.folder / "jobs"
        self.process = subprocess.Popen(
            [build / "tests/plant/plant_meter", "--params", self.folder / "params", "--tree", self.tree,
             "--seed", str(plant_draw.noise_seed(seed)), "--jobs", self.jobs, "--truth", self.folder / "truth",
             *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.port = int(first_line(self.process, "plant_meter").split()[1])

    def zone(self, name):
        return self.tree / "sys/class/powercap" / name

    def value(self, zone, file="energy_uj"):
        return int((self.zone(zone) / file).read_text())

    def points(self, build, seed, permilles):
        """W at the wall at these loads, as on a quiet day: of a plant of the same parameters that does nothing else."""
        done = subprocess.run([build / "tests/plant/plant_points", str(os.cpu_count()),
                               str(plant_draw.noise_seed(seed)), *map(str, permilles)],
                              stdin=open(self.folder / "params", encoding="ascii"), capture_output=True, text=True,
                              check=True)
        return [float(line) for line in done.stdout.split()]

    def add_jobs(self, jobs):
        """{name: pid or pids}: jobs whose shares the truth tells from now on."""
        with open(self.jobs, "a", encoding="utf-8") as file:
            for name, pids in jobs.items():
                for pid in [pids] if isinstance(pids, int) else pids:
                    file.write(f"{name} {pid}\n")

    def truth(self):
        """The lines so far, oldest first."""
        text = (self.folder / "truth").read_text()
        return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]

    def wait_truth(self, good):
        """The newest line for which good(line)."""
        until = time.monotonic() + GUARD_S
        while time.monotonic() < until:
            lines = self.truth()
            if lines and good(lines[-1]):
                return lines[-1]
            if self.process.poll() is not None:
                raise RuntimeError(f"plant_meter ended: {self.process.stderr.read()}")
            time.sleep(0.1)
        raise TimeoutError(f"{GUARD_S} s, the last line is {lines[-1:]}")

    def end(self):
        return end(self.process)


class Broker:
    """mosquitto on loopback, without rights or persistence."""

    def __init__(self, folder):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.config = pathlib.Path(folder) / "mosquitto.conf"
        self.config.write_text(f"listener {self.port} 127.0.0.1\nallow_anonymous true\npersistence false\n")
        self.process = None
        self.start()

    def start(self):
        program = shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin")
        self.process = subprocess.Popen([program, "-c", self.config], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        until = time.monotonic() + GUARD_S
        while time.monotonic() < until:
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise TimeoutError("mosquitto does not listen")

    def publish(self, topic, text):
        subprocess.run(["mosquitto_pub", "-p", str(self.port), "-t", topic, "-m", text], check=True,
                       timeout=GUARD_S)

    def kill(self):
        self.process.kill()
        self.process.wait(GUARD_S)

    def end(self):
        return end(self.process)


class Plugs:
    """plant_plug.py with these devices."""

    def __init__(self, broker, *devices, period=1.0):
        self.process = subprocess.Popen(
            [SYSTEM_PYTHON, "-B", HERE / "plant_plug.py", "--broker", f"127.0.0.1:{broker.port}",
             "--period", str(period), *devices], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        first_line(self.process, "plant_plug.py")

    def end(self):
        return end(self.process)
