# SPDX-License-Identifier: Apache-2.0
"""tided killed at every step of its transactions, see src/base/failpoint.h: the jobs run on, and the
next daemon brings them to where an undisturbed one would. TIDE_SOAK=1: 10,000 kills, or a piece of
them, see workers.py."""
import os
import pathlib
import random
import re
import signal
import subprocess
import time

import pytest

from box import boxes, engine  # noqa: F401, fixtures
from daemon import GUARD_S, eventually
from workers import CPU_GROUP, CPUS, GONE, Container, Worker, affinity, groups, settled, share

ROOT = pathlib.Path(__file__).resolve().parents[2]
POINTS = re.findall(r'\[FAILPOINT_\w+\] = "([a-z-]+)"', (ROOT / "src/base/failpoint.c").read_text())
# Those of the hub and units: test_hub_leases.py, test_hub_kills.py, test_unit_parent.py, test_unit_switches.py.
POINTS = [p for p in POINTS if not p.startswith(("lease", "policy-", "unit-", "energy-"))]
CONTAINERS = [p for p in POINTS if p.startswith(("container-", "update-", "engine-", "pause-",
                                                 "unpause-"))]

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
              pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")]


class Scene:
    """Jobs, what may be done to them, and what has to come of it."""

    def __init__(self, daemon, chance):
        self.daemon, self.chance = daemon, chance
        self.expected = {}  # of a state: what an undisturbed daemon makes of it
        self.guest = None

    def order(self, worker, **change):
        self.daemon.api("PATCH", f"/v1/jobs/{worker.name}", change)

    def invite(self, **request):
        """A program that waits for its turn."""
        if not self.guest:
            self.guest = subprocess.Popen(["sleep", "1000"])
            try:
                self.daemon.api("POST", "/v1/jobs",
                                {"pid": self.guest.pid, "queue": True, **request})
            except GONE:
                self.see_off()  # nobody knows of it
                raise

    def see_off(self):
        if self.guest:
            self.guest.kill()
            self.guest.wait()
        self.guest = None

    def pids(self):
        """All that have to live on."""
        return [pid for worker in self.workers() for pid in worker.pids]

    def restored(self):
        return all(affinity(pid) == {frozenset(CPUS)} and not groups(pid) for pid in self.pids())


class Exclusive(Scene):
    """One job has all cores, or shares them with another that comes and goes."""
    options = ("--placement", "exclusive")
    states = ("alone", "both")
    points = ["guardian-noted", "group-made", "target-lowered", "ack-received", "process-fenced",
              "cores-narrowed", "cores-widened", "store-written", "store-renamed", "socket-bound"]

    def begin(self):
        self.first, self.second, self.n = Worker(self.daemon, "first").join().fork(), None, 0

    def step(self, state=None):
        """Another state, or the one that is named."""
        if state == ("both" if self.second else "alone"):
            return
        if self.second:
            self.second.end()
            self.second = None
            self.daemon.answers()
            return
        self.n += 1
        worker = Worker(self.daemon, f"second{self.n}")
        try:
            worker.join()
        except GONE:
            worker.end()
            raise
        self.second = worker

    def workers(self):
        return [worker for worker in (self.first, self.second) if worker]

    def truth(self):
        """How many cores and threads each has, when no core has two owners; and all cores."""
        sets = [set().union(*(affinity(pid) for pid in worker.pids)) for worker in self.workers()]
        if any(len(seen) != 1 for seen in sets):
            return None  # under way
        owned = [next(iter(seen)) for seen in sets]
        every = frozenset().union(*owned)
        if sum(map(len, owned)) != len(every):
            return None
        return [(len(cores), *worker.page.read())
                for cores, worker in zip(owned, self.workers())], every


class Shared(Scene):
    """Eight CPUs that are not all there, shared by weight; one job has a quota."""
    options = ("--cpus", "0-7")
    states = ("plain", "heavy", "pinned", "small", "all")
    points = ["group-made", "target-lowered", "ack-received", "quota-set", "target-raised",
              "weight-set", "job-begun", "store-written", "store-renamed", "socket-bound"]

    def begin(self):
        self.first = Worker(self.daemon, "first").join()
        self.second = Worker(self.daemon, "second", placement="quota").join()

    def step(self, state=None):
        chosen = state or self.chance.choice(self.states)
        if state or self.chance.random() < 0.3:
            self.see_off()
        elif self.chance.random() < 0.5:
            self.invite()
        self.order(self.first, weight=300 if chosen in ("heavy", "all") else 100)
        self.order(self.second, max=2 if chosen in ("small", "all") else None)
        self.order(self.first, **({"threads": 3} if chosen in ("pinned", "all") else {"auto": True}))

    def workers(self):
        return [self.first, self.second]

    def truth(self):
        """Threads, weight and quota of each."""
        return [(*worker.page.read(), *(
            (CPU_GROUP / groups(worker.peer.pid)["cpu"] / name).read_text().strip()
            for name in ("cpu.shares", "cpu.cfs_quota_us"))) for worker in self.workers()]


class Boxes(Scene):
    """Two containers, of which one is held at fewer cores, or both give way; a third comes and goes."""
    options = ("--placement", "exclusive", "--policy", "priority")
    states = ("plain", "one", "urgent")
    points = CONTAINERS

    def __init__(self, daemon, chance, boxes):
        super().__init__(daemon, chance)
        self.boxes = boxes

    def begin(self):
        self.first, self.second = (
            Container(self.boxes, name, CpuShares=512, CpusetCpus="0-1").start()
            for name in ("first", "second"))
        self.third = self.boxes("third", "--max 2", start=False)

    def step(self, state=None):
        chosen = state or self.chance.choice((*self.states, "third"))
        if chosen == "urgent":
            self.invite(priority=10, request=2)
        else:
            self.see_off()
        if (chosen == "third") != self.third.inspect()["State"]["Running"]:
            (self.third.start if chosen == "third" else self.third.kill)()
        self.order(self.first, max=1 if chosen == "one" else None)

    def workers(self):
        return [self.first, self.second]

    def truth(self):
        owned = [worker.cores() for worker in self.workers()]
        every = frozenset().union(*owned)
        frozen = [worker.read("freezer", "freezer.state") for worker in self.workers()]
        if "FREEZING" in frozen or (frozen == ["THAWED"] * 2 and sum(map(len, owned)) != len(every)):
            return None
        return [(*worker.page.read(), len(cores), worker.read("cpu", "cpu.shares"))
                if state == "THAWED" else state
                for state, cores, worker in zip(frozen, owned, self.workers())], every

    def restored(self):
        return all((worker.cores(), worker.read("cpu", "cpu.shares"),
                    worker.read("freezer", "freezer.state")) ==
                   (frozenset(CPUS[:2]), "512", "THAWED") for worker in self.workers())


def learn(scene):
    """Notes what an undisturbed daemon makes of each state."""
    scene.daemon.start()
    scene.begin()
    for state in (*scene.states, scene.states[0]):
        scene.step(state)
        now = settled(scene, state, scene.expected.get(state))
        scene.expected[state] = now
    scene.daemon.signal(signal.SIGKILL)


def live(scene, steps):
    """A daemon's life up to its failpoint. True if it came to where it belongs before."""
    converged = False
    state = scene.chance.choice(scene.states)
    try:
        eventually(lambda: scene.daemon.ended() or scene.daemon.answers(), pause=0.002)
        scene.step(state)
        converged = settled(scene, state, scene.expected[state]) is not None
        for _ in range(steps):
            if scene.daemon.ended():
                break
            scene.step()
            time.sleep(scene.chance.choice((0, 0.001, 0.008)))
    except GONE:
        scene.daemon.process.wait(GUARD_S)  # for no other reason
    return converged


def kill_at(scene, kills):
    daemon, chance = scene.daemon, scene.chance
    reached, converged, pids = set(), 0, scene.pids()
    for i in range(3 * kills):
        if i >= kills and converged > kills / 4:  # on a busy machine few get that far
            break
        point, passage = chance.choice(scene.points), chance.choice((1, 1, 2, 3, 5))
        if i < len(scene.points):
            point, passage = scene.points[i], 1
        daemon.env = {"TIDE_FAILPOINT": f"{point}:{passage}"}
        daemon.start(ready=False)
        converged += live(scene, 10 if i >= len(scene.points) else 200)
        try:
            daemon.process.wait(0.1)  # it hangs up before it is gone
            reached.add(point)
        except subprocess.TimeoutExpired:
            daemon.signal(signal.SIGKILL)
        assert daemon.process.wait() == -signal.SIGKILL, daemon.log.read_text()[-3000:]
        for pid in pids:
            os.kill(pid, 0)
        if i % 16 == 0:
            eventually(scene.restored)
    daemon.env = {}
    assert reached == set(scene.points)
    assert converged > kills / 4
    daemon.start()
    for state in scene.states:
        scene.step(state)
        assert settled(scene, state, scene.expected[state])
    scene.see_off()


@pytest.mark.parametrize("kind, usual, soak", [(Exclusive, 206, 4120), (Shared, 270, 5400)],
                         ids=["cores", "weights"])
def test_killed_at_every_step_processes_come_to_where_they_belong(place, kind, usual, soak):
    kills, seed = share(usual, soak)
    scene = kind(place.daemon(*kind.options), random.Random(11 + seed))
    learn(scene)
    kill_at(scene, kills)


def test_killed_at_every_step_containers_come_to_where_they_belong(place, engine, boxes):
    kills, seed = share(24, 480)
    scene = Boxes(place.daemon("--engine", engine.socket, *Boxes.options),
                  random.Random(11 + seed), boxes)
    learn(scene)
    kill_at(scene, kills)


def test_every_step_is_killed_at():
    assert len(POINTS) > 20
    caps = {"cap-stored", "cap-placed", "backstop-noted"}  # test_tided_cap.py
    assert set(POINTS) == {*Exclusive.points, *Shared.points, *Boxes.points, *caps}
