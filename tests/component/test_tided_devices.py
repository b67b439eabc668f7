# SPDX-License-Identifier: Apache-2.0
"""Devices that jobs hold: real nodes, which a process has open in a /dev of its own. They have the numbers of
/dev/null, as no GPU is there; which device a node is, its name says."""
import os
import pathlib
import subprocess

import pytest

from cli_tools import BUILD
from daemon import eventually
from test_tided_queue import Submitted

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes nodes of devices")

HOLDER = """
mount -t tmpfs none /dev
for node in nvidia0 nvidia1 nvidiactl; do mknod /dev/$node c 1 3; done
: > /dev/nvidia7
echo ready
while read order node; do
    case $order in open) eval "exec 5</dev/$node" ;; also) eval "exec 6</dev/$node" ;; close) exec 5<&- ;; esac
    echo done
done
"""


class Holder:
    """A program that opens nodes when it is told to, as a job."""

    def __init__(self, tided):
        self.tided = tided
        self.process = subprocess.Popen(["unshare", "-m", "sh", "-c", HOLDER], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, bufsize=1)
        assert self.process.stdout.readline() == "ready\n"
        status, self.job = tided.api("POST", "/v1/jobs", {"pid": self.process.pid, "name": "feeder"})
        assert status == 201, self.job

    def tell(self, order):
        self.process.stdin.write(order + "\n")
        assert self.process.stdout.readline() == "done\n"

    def get(self):
        return self.tided.api("GET", f"/v1/jobs/{self.job['id']}")[1]

    def end(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def machine(place):
    """A machine of 8 cores and so many devices, all made up."""
    holders = []

    def start(devices="nvidia=2", cores=2, policy="equal"):
        config = place.base / "tide.conf"
        config.write_text(f"[daemon]\ndevices={devices}\ndevice-cores={cores}\n")
        config.chmod(0o644)
        tided = place.daemon("--config", config, "--cpus", "0-7", "--policy", policy).start()
        tided.holder = lambda: holders.append(Holder(tided)) or holders[-1]
        return tided
    yield start
    for holder in holders:
        holder.end()


def tide(tided, *args):
    done = subprocess.run([BUILD / "tide", *args], env={**os.environ, "TIDE_DIR": str(tided.dir), "LC_ALL": "C.UTF-8"},
                          text=True, capture_output=True, check=True)
    return done.stdout


def test_a_job_keeps_cores_for_the_devices_that_it_has_open(machine):
    tided = machine()
    other, holder = tided.job(), tided.holder()
    holder.tell("open nvidiactl")
    other.target(7)  # a young job counts for a core
    holder.tell("open nvidia1")
    other.target(6)
    holder.tell("also nvidia0")
    other.target(4)
    job = holder.get()
    assert (job["devices_held"], job["device_cores"]) == ("nvidia0, nvidia1", 4)
    keeps = "keeps 4 cores: feeds nvidia0, nvidia1"
    assert f"{job['id']} feeder: {keeps}\n" in tide(tided, "ps")
    assert f"  {keeps}\n" in tide(tided, "explain", "feeder")
    holder.tell("close -")
    other.target(6)
    assert holder.get()["devices_held"] == "nvidia0"


def test_a_file_that_is_named_like_a_device_counts_for_nothing(machine):
    tided = machine()
    other, holder = tided.job(), tided.holder()
    holder.tell("open nvidia7")
    holder.tell("also nvidia0")
    other.target(6)
    assert holder.get()["devices_held"] == "nvidia0"


def test_a_job_waits_until_a_device_is_free(machine):
    tided = machine(policy="fcfs/strict")
    assert tided.api("GET", "/v1/machine")[1]["devices"] == "nvidia=2"
    holder = tided.holder()
    holder.tell("open nvidia0")
    eventually(lambda: holder.get()["devices_held"])
    waits = Submitted(tided, max=1, devices="nvidia=2")
    waits.waits()
    eventually(lambda: waits.get()["reason"] ==
               "waits for nvidia devices: needs 2 nvidia devices, 1 nvidia device free")
    assert waits.get()["devices"] == "nvidia=2" and waits.get()["devices_held"] is None
    holder.end()
    waits.begins()
    third = Submitted(tided, max=1, devices="nvidia=1")  # what has begun counts before it opens anything
    third.waits()
    waits.end()
    third.begins()


def test_more_devices_than_there_are_are_refused(machine):
    tided = machine()
    for devices in ("nvidia=3", "uverbs=1"):
        status, answer = tided.api("POST", "/v1/jobs", {"pid": os.getpid(), "queue": True, "devices": devices})
        assert (status, answer["error"]["code"]) == (400, "devices-exceed-machine")
        assert answer["error"]["message"] == f"devices is {devices}: this machine has nvidia=2"
    for devices in ("gpu=1", "nvidia", 1, "nvidia=0"):
        status, answer = tided.api("POST", "/v1/jobs", {"pid": os.getpid(), "devices": devices})
        assert (status, answer["error"]["code"]) == (400, "bad-devices")
    assert tided.jobs() == []


def test_nothing_is_looked_for_where_there_are_no_devices(machine):
    tided = machine(devices="none")
    other, holder = tided.job(), tided.holder()
    holder.tell("open nvidia0")
    other.target(7)
    opened = pathlib.Path(f"/proc/{holder.process.pid}/fd")
    assert os.readlink(opened / "5") == "/dev/nvidia0"
    eventually(lambda: holder.get()["memory_used"])  # it was looked at meanwhile
    assert holder.get()["devices_held"] is None and tided.api("GET", "/v1/machine")[1]["devices"] is None
