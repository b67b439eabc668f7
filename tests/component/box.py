# SPDX-License-Identifier: Apache-2.0
"""Containers of a real engine as jobs of a real tided. A module that imports the fixtures has an
engine of its own."""
import contextlib
import http.client
import os
import queue
import shutil
import threading

import pytest

from daemon import Peer, eventually
from engine import Engine

SOCKET = "TIDE_SOCKET=/run/threadtide/agent.sock"
N = len(os.sched_getaffinity(0)) & ~1  # cores, to be halved


def cores(first, last):
    return f"{first}-{last}" if first < last else str(first)


ALL, HALVES = cores(0, N - 1), [cores(0, N // 2 - 1), cores(N // 2, N - 1)]


def real_engine(*args, **more):
    if os.geteuid() != 0:
        pytest.skip("container engines of one's own need root")
    engine = Engine(*args, **more)
    try:
        yield engine.start().make_image()
    finally:
        engine.end()


@pytest.fixture(scope="module")
def engine():
    yield from real_engine("docker")


@pytest.fixture
def tided(place, engine):
    return place.daemon("--engine", engine.socket).start()


@pytest.fixture
def boxes(engine, place):
    """boxes(name, …): a container in which fake_peer runs; all are removed at the end."""
    with contextlib.ExitStack() as made:  # one that cannot be removed keeps no other one
        def make(*args, **more):
            box = Box(engine, place, *args, **more)
            made.callback(box.remove)
            return box
        yield make


class Box(Peer):
    """A container; what the peer in it is told and says goes through two named pipes."""

    def __init__(self, engine, place, name, *options, labels=None, agent=True, start=True,
                 command=None, binds=(), **limits):
        self.engine, self.name = engine, name
        self.dir = place.base / f"box-{name}"
        self.dir.mkdir()
        shutil.copy(place.peer_program, self.dir / "peer")
        for pipe in ("in", "out"):
            os.mkfifo(self.dir / pipe)
        self.keep = [os.open(self.dir / pipe, os.O_RDWR) for pipe in ("in", "out")]
        binds = ["/usr:/usr:ro", f"{self.dir}:/box", *binds]
        if agent:
            control = place.daemons[0].dir / "containers" / name
            binds.append(f"{control}:/run/threadtide:ro")
            labels = {"io.threadtide.key": name, **(labels or {})}
        peer = f"exec /box/peer {' '.join(options)} </box/in >/box/out"
        if agent and engine.kind == "podman":  # unlike Docker, it makes no directory that is missing
            control.mkdir(parents=True, exist_ok=True)
        self.id = engine.make_container(name, command or ["/bin/sh", "-c", peer], labels or {}, binds,
                                        [SOCKET], limits)
        self.words = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()
        if start:
            self.start()

    def read(self):
        with open(self.dir / "out", encoding="utf-8") as lines:
            for line in lines:
                self.words.put(line.split())

    def tell(self, line):
        os.write(self.keep[0], f"{line}\n".encode())

    def act(self, verb):
        self.engine.ask("POST", f"/containers/{self.id}/{verb}")

    def start(self):
        self.act("start")
        return self

    def inspect(self):
        return self.engine.ask("GET", f"/containers/{self.id}/json", expected=200)

    def limits(self):
        """Docker's word; podman remembers none but the first, the kernel has to say."""
        if self.engine.kind == "podman":
            quota = int((self.engine.groups(self.id, "cpu") / "cpu.cfs_quota_us").read_text())
            return self.cpus(), self.shares(), quota, 0
        host = self.inspect()["HostConfig"]
        return host["CpusetCpus"], host["CpuShares"], host["CpuQuota"], host["NanoCpus"]

    def update(self, **limits):
        """Sets limits by hand, in Docker's words."""
        self.engine.ask("POST", f"/containers/{self.id}/update", limits, 200)

    def cpus(self):
        """Returns the kernel's list: the truth."""
        group = self.engine.groups(self.id, "cpuset")
        v2 = group / "cpuset.cpus.effective"
        return (v2 if v2.exists() else group / "cpuset.cpus").read_text().strip()

    def shares(self):
        """Its shares in the kernel; on cgroup v2 as many as have the same effect on v1."""
        group = self.engine.groups(self.id, "cpu")
        if (group / "cpu.shares").exists():
            return int((group / "cpu.shares").read_text())
        return int((group / "cpu.weight").read_text()) * 1024 // 100

    def kill(self):
        self.act("kill")

    def remove(self):
        self.engine.remove(self.id)
        for fd in self.keep:
            os.close(fd)
        self.keep = []


def job_of(tided, box):
    return next((j for j in tided.jobs() if j["name"] == box.name), None)


def joined(tided, box, **wanted):
    """Its job, once it has these members."""
    return eventually(lambda: (j := job_of(tided, box)) and
                      all(j[key] == value for key, value in wanted.items()) and j)


def connected(tided, box):
    joined(tided, box)
    box.go()
    box.expect("welcome")
    return joined(tided, box, state="running")


def order(tided, box, threads):
    """Holds it at so many threads, or lets go; whoever is killed meanwhile does not answer."""
    try:
        tided.api("PATCH", f"/v1/jobs/{box.name}", {"threads": threads} if threads else {"auto": True})
    except (OSError, http.client.HTTPException, ValueError):
        pass


def give_way(place, socket, boxes):
    """A daemon, and a container that it has paused for a more urgent job: peer and answer."""
    daemon = place.daemon("--engine", socket, "--policy", "priority").start()
    box = boxes("patient", f"--max {N}", labels={"io.threadtide.request": str(N)})
    connected(daemon, box)
    peer = daemon.peer()
    status, urgent = daemon.api("POST", "/v1/jobs", {"pid": peer.pid, "queue": True, "priority": 10,
                                                     "request": N, "name": "urgent"})
    assert status == 201, urgent
    joined(daemon, box, state="paused")
    return daemon, box, peer, urgent
