# SPDX-License-Identifier: Apache-2.0
"""Jobs with threads that run, as processes and as containers, and what the kernel says of them."""
import http.client
import mmap
import os
import pathlib
import struct
import time
from typing import NamedTuple

import pytest

from daemon import GUARD_S, eventually

CPUS = sorted(os.sched_getaffinity(0))
CGROUP = pathlib.Path("/sys/fs/cgroup")
V2 = (CGROUP / "cgroup.controllers").exists()
CPU_GROUP = CGROUP if V2 else CGROUP / "cpu"
cpu_groups = pytest.mark.skipif(not V2 and not (CPU_GROUP / "cpu.shares").exists(),
                                reason="needs control groups of the processors")
GONE = (OSError, http.client.HTTPException, ValueError)


def share(usual, soak):
    """How many of them, and a seed. TIDE_SOAK=1 is a whole soak, K/N its K-th piece of N."""
    text = os.environ.get("TIDE_SOAK", "0")
    piece, _, pieces = text.partition("/")
    return (soak // int(pieces or 1), int(piece)) if text != "0" else (usual, 0)


class Seen(NamedTuple):
    """A job as the kernel shows it at one moment."""
    cores: frozenset  # of all its threads
    active: int  # of its threads
    quota: int  # in whole cores, at least one; 0: none
    frozen: bool


def cores_of(text):
    """The CPUs of a list as the kernel writes it: "0-2,5"."""
    found = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return frozenset(found)


def group(job):
    lines = pathlib.Path(f"/proc/{job.peer.pid}/cgroup").read_text().splitlines()
    path = next(path for _, names, path in (line.split(":", 2) for line in lines)
                if "cpu" in names.split(",") or V2)
    return CPU_GROUP / path.lstrip("/")


def weight(job):
    """As in cgroup v2; there is none of a root's."""
    if V2:
        return int((group(job) / "cpu.weight").read_text())
    return int((group(job) / "cpu.shares").read_text()) * 100 // 1024


def weighs(job, wanted):
    """Shares of v1 are whole numbers, too: one more or less."""
    return eventually(lambda: group(job) != CPU_GROUP and abs(weight(job) - wanted) <= 1)


def whole_cores(quota_us, period_us=100000):
    return max(1, int(quota_us) // int(period_us)) if int(quota_us) > 0 else 0


def affinity(pid):
    """Each thread's CPUs, as the kernel says."""
    seen = set()
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            seen.add(frozenset(os.sched_getaffinity(int(task.name))))
        except ProcessLookupError:
            pass
    return seen


def groups(pid):
    """controller → its control group, if that is one of ours."""
    found = {}
    for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if "/tide" in path:
            found.update((name, path.lstrip("/")) for name in names.split(","))
    return found


class Page:
    """The numbers of fake_peer.c's --page: active threads and target."""

    def __init__(self, path):
        path.write_bytes(bytes(8))
        self.path = path
        with open(path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 8)

    def read(self):
        return struct.unpack("II", self.map)


PEER = ("--max", "8", "--retry", "4", "--quiet", "--pool", "--page")


class Worker:
    """A process of a job, with threads that run."""

    def __init__(self, daemon, name, *options, **request):
        self.daemon, self.name = daemon, name
        self.page = Page(daemon.dir.parent / f"{name}.page")
        self.peer = daemon.peer(*PEER, self.page.path, *options)
        self.pids = [self.peer.pid]
        self.request = {"pid": self.peer.pid, "name": name, **request}

    def join(self):
        status, answer = self.daemon.api("POST", "/v1/jobs", self.request)
        assert status == 201, answer
        self.peer.go(answer["token"], answer["id"], answer["name"])
        return self

    def fork(self):
        """A second process of the job, which ends with the first."""
        self.peer.tell("fork")
        children = pathlib.Path(f"/proc/{self.peer.pid}/task/{self.peer.pid}/children")
        self.pids.append(int(eventually(children.read_text)))
        return self

    def look(self):
        cores = frozenset().union(*(cpus for pid in self.pids for cpus in affinity(pid)))
        limited = self.request.get("placement") == "quota"
        group = groups(self.pids[0]).get("cpu") if limited else None
        quota = (CPU_GROUP / group / "cpu.cfs_quota_us").read_text() if group else -1
        return Seen(cores, self.page.read()[0], whole_cores(quota), False)

    def end(self):
        self.peer.end()
        self.daemon.peers.remove(self.peer)
        self.page.path.unlink()


class Container:
    """A container with such a process; started as often as one likes."""
    files = ()

    def __init__(self, boxes, name, *options, labels=None, **more):
        self.name = name
        self.box = boxes(name, *PEER, "/box/page", *options, start=False,
                         labels={"io.threadtide.request": "1", **(labels or {})}, **more)
        self.page = Page(self.box.dir / "page")

    def start(self):
        self.box.start()
        self.pids = [self.box.inspect()["State"]["Pid"]]
        self.box.go()
        return self

    def read(self, controller, name):
        return (self.box.engine.groups(self.box.id, controller) / name).read_text().strip()

    def cores(self):
        return cores_of(self.read("cpuset", "cpuset.cpus"))

    def watch(self):
        """Keeps the files of its control groups open, for a quick look()."""
        self.unwatch()
        self.files = [os.open(self.box.engine.groups(self.box.id, name.split(".")[0]) / name,
                              os.O_RDONLY)
                      for name in ("freezer.state", "cpuset.cpus", "cpu.cfs_quota_us",
                                   "cpu.cfs_period_us")]

    def unwatch(self):
        files, self.files = self.files, ()
        for fd in files:
            os.close(fd)

    def look(self):
        state, cpus, *quota = (os.pread(fd, 256, 0).decode().strip() for fd in self.files)
        if state == "FROZEN":
            return Seen(frozenset(), 0, 0, True)
        return Seen(cores_of(cpus), self.page.read()[0], whole_cores(*quota), False)


def settled(scene, state, expected=None):
    """The truth when it is what is expected, or where it rests; None when the daemon ends first."""
    end, since, before = time.monotonic() + GUARD_S, time.monotonic(), None
    while True:
        try:
            now = scene.truth()
        except (OSError, KeyError):
            now = None  # a group is not there yet
        if scene.daemon.ended():
            return None
        if now != before:
            since, before = time.monotonic(), now
        if now and (now == expected or (expected is None and time.monotonic() - since > 0.5)):
            return now
        assert time.monotonic() < end, (
            f"{state}: {now} instead of {expected}\n{scene.daemon.jobs()}\n"
            f"{scene.daemon.log.read_text()[-3000:]}")
        time.sleep(0.002)
