# SPDX-License-Identifier: Apache-2.0
"""Jobs with threads that run, as processes and as containers, and what the kernel says of them."""
import http.client
import mmap
import os
import pathlib
import struct
import time

from daemon import GUARD_S, eventually

CPUS = sorted(os.sched_getaffinity(0))
CPU_GROUP = pathlib.Path("/sys/fs/cgroup/cpu")
GONE = (OSError, http.client.HTTPException, ValueError)


def affinity(pid):
    """Of each of its threads, as the kernel says."""
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

    def end(self):
        self.peer.end()
        self.daemon.peers.remove(self.peer)
        self.page.path.unlink()


class Container:
    """A container with such a process; started as often as one likes."""

    def __init__(self, boxes, name, labels=None, **more):
        self.name = name
        self.box = boxes(name, *PEER, "/box/page", start=False,
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
        first, _, last = self.read("cpuset", "cpuset.cpus").partition("-")
        return frozenset(range(int(first), int(last or first) + 1))


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
