# SPDX-License-Identifier: Apache-2.0
"""Random transactions: processes and containers of every placement come, are changed through tided
and by hand, are paused, and die, while observer.py looks on. TIDE_SOAK=1: 10,000 orders of each
kind, or a piece of that, see workers.py."""
import collections
import os
import random
import subprocess
import sys
import time

import pytest

from box import ALL, boxes, engine  # noqa: F401, fixtures
from daemon import BORROW, LEND, RECLAIM, RETURN, eventually
from observer import Observer
from workers import CPUS, Container, Worker, affinity, cores_of, groups, share

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
              pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")]
EVERY_US = len(CPUS) * 10**5  # a quota of all there is: as good as none
WRITES = 2  # by hand in a container's life: tided fights whoever keeps at it ever more slowly


class Tenant(Container):
    """A container that comes and goes; what it began with, and what is done to it past tided."""

    def __init__(self, boxes, name, placement, *options, **own):
        self.placement, self.own, self.writes = placement, own, 0
        super().__init__(boxes, name, *options, labels={"io.threadtide.placement": placement},
                         **own)

    def ask(self, what, body=None):
        """As somebody else does, who may be refused."""
        return self.box.engine.api("POST", f"/containers/{self.box.id}/{what}", body)[0] < 300

    def join(self):
        self.start()
        self.writes = 0
        self.watch()

    def frozen(self):
        return self.read("freezer", "freezer.state") != "THAWED"

    def end(self):
        """Nobody who is paused can be killed; a policy may do that again at once."""
        eventually(lambda: self.ask("unpause") | self.ask("kill") or not self.runs())
        eventually(lambda: not self.runs())
        self.unwatch()

    def runs(self):
        return self.box.inspect()["State"]["Running"]

    def restored(self):
        quota = self.own.get("CpuQuota", self.own.get("NanoCpus", 0) // 10**4) or EVERY_US
        found = int(self.read("cpu", "cpu.cfs_quota_us"))
        return (self.cores() == cores_of(self.own["CpusetCpus"]) and not self.frozen() and
                int(self.read("cpu", "cpu.shares")) == self.own["CpuShares"] and
                (found if 0 < found < EVERY_US else EVERY_US) == quota)


class Stream:
    """Orders by chance, within what the machine can do: more exclusive jobs than cores overlap."""

    def __init__(self, daemon, chance, cpus, placements, boxes=None):
        self.daemon, self.chance, self.cpus = daemon, chance, cpus
        self.placements, self.boxes = placements, boxes
        self.observer = Observer(cpus)
        self.jobs, self.terms = [], {}  # by age; of each: what it was asked for
        self.stopped = []  # containers, for another time
        self.guest, self.n = None, 0
        self.story = collections.deque(maxlen=20)
        self.verbs = {self.set: 6, self.auto: 6, self.limit: 5, self.weigh: 5, self.urge: 2,
                      self.pin: 4, self.policy: 2, self.lend: 5, self.queue: 4, self.leave: 4}
        if boxes:
            self.verbs.update({self.write: 6, self.pause: 6})

    # ---- what there is room for ----

    def fits(self, name=None, **change):
        """Would each have what it is to have at least, and an exclusive job cores of its own?"""
        terms = [{**t, **(change if n == name else {})} for n, t in self.terms.items()]
        if name not in self.terms:
            terms.append(change)
        alone = [t for t in terms if t["placement"] == "exclusive" or t.get("core") is not None]
        owners = len(alone) + (len(alone) < len(terms))
        exclusive = any(t["placement"] == "exclusive" for t in terms)
        return ((not exclusive or owners <= self.cpus) and
                sum(max(t.get("threads") or 1, t.get("min") or 1) for t in terms) <= self.cpus)

    def change(self, worker, **terms):
        if self.fits(worker.name, **{**self.terms[worker.name], **terms}):
            self.terms[worker.name].update(terms)
            return True
        return False

    # ---- coming and going ----

    def process(self, placement):
        self.n += 1
        return Worker(self.daemon, f"job{self.n}", "--ack-after",
                      str(self.chance.choice((0, 3, 15))), placement=placement)

    def container(self, placement):
        """One that has run before, or a new one."""
        for box in self.stopped:
            if box.placement == placement and self.chance.random() < 0.7:
                self.stopped.remove(box)
                return box
        self.n += 1
        own = {"CpusetCpus": ALL, "CpuShares": 512}
        if self.chance.random() < 0.3:
            own.update(self.cpus_option(len(CPUS)))
        return Tenant(self.boxes, f"box{self.n}", placement, "--ack-after",
                      str(self.chance.choice((0, 3, 15))), **own)

    def cpus_option(self, cores):
        """`--cpus`, of which Docker writes down no more than there are."""
        made_up = self.cpus > len(CPUS)
        return {"CpuQuota": int(cores * 10**5)} if made_up else {"NanoCpus": int(cores * 10**9)}

    def arrive(self):
        placement = self.chance.choice(self.placements)
        if len(self.jobs) > 3 or not self.fits(placement=placement):
            return
        kind = self.container if self.boxes and self.chance.random() < 0.7 else self.process
        worker = kind(placement)
        self.terms[worker.name] = {"placement": placement}
        self.jobs.append(worker)
        self.observer.add(worker, placement)
        with self.observer.grace(worker):
            worker.join()
            eventually(lambda: self.commanded(worker))
            self.order(worker, weight=100)  # is answered when its cores are in place, too

    def job(self, worker):
        status, job = self.daemon.api("GET", f"/v1/jobs/{worker.name}")
        return job if status == 200 else None

    def commanded(self, worker):
        """Before, it has all threads that it was built with, wherever it is."""
        job = self.job(worker)
        return job and (job["state"] == "paused" or
                        (job["malleable"] and job["target"] == job["active"]))

    def leave(self, worker):
        if len(self.jobs) == 1:
            return
        self.observer.forget(worker)
        self.jobs.remove(worker)
        worker.end()
        eventually(lambda: not self.job(worker))
        accepted = self.terms.pop(worker.name).get("accepted")
        if isinstance(worker, Tenant) and accepted:
            worker.box.remove()
        elif isinstance(worker, Tenant):
            self.stopped.append(worker)

    # ---- orders ----

    def order(self, worker, **change):
        if isinstance(worker, Tenant) and worker.frozen():
            change["deadline_ms"] = 20  # it cannot answer
        status, answer = self.daemon.api("PATCH", f"/v1/jobs/{worker.name}", change)
        assert status == 200, answer

    def set(self, worker):
        threads = self.chance.randint(1, self.cpus)
        if self.terms[worker.name].get("core") is None and self.change(worker, threads=threads):
            with self.observer.grace(worker):
                self.order(worker, threads=threads)

    def auto(self, worker):
        if not self.terms[worker.name].get("accepted") and \
                self.change(worker, threads=None, core=None):
            with self.observer.grace(worker):
                self.order(worker, auto=True)

    def limit(self, worker):
        low = self.chance.choice((None, 1, 2, 3))
        high = self.chance.choice((None, 3, 5))
        if self.change(worker, min=low, max=high):
            self.order(worker, min=low, max=high)

    def weigh(self, worker):
        weight = self.chance.choice((50, 100, 300))
        self.change(worker, weight=weight)
        self.order(worker, weight=weight)

    def urge(self, worker):
        self.order(worker, priority=self.chance.randint(-2, 2))

    def taken(self):
        """Cores on which somebody is pinned."""
        return {t.get("core") for t in self.terms.values()}

    def pin(self, worker):
        seen = self.observer.members[worker.name].look()
        free = sorted((seen.cores if seen else set()) - self.taken())
        if self.cpus == len(CPUS) and free and not self.terms[worker.name].get("accepted") and \
                self.change(worker, core=free[0], threads=1):
            with self.observer.grace(worker):
                self.order(worker, pin=True, cores=str(free[0]), threads=1)

    def policy(self, worker):
        names = [p["name"] for p in self.daemon.api("GET", "/v1/policy")[1]["policies"]
                 if p["name"] != "power-cap"]  # refused: nobody knows the watts
        status, answer = self.daemon.api("PUT", "/v1/policy", {"policy": self.chance.choice(names)})
        assert status == 200, answer

    def lend(self, worker):
        verb, n = self.chance.choice(((LEND, 1), (LEND, 2), (BORROW, 1), (BORROW, 2),
                                      (RECLAIM, 0), (RETURN, 0)))
        self.controller.order(verb, intra=n, job=worker.name)

    def queue(self, worker):
        """A program that waits for its turn, is held, let go, cancelled."""
        if self.guest is None and self.fits(placement="shared"):
            self.guest = subprocess.Popen(["sleep", "1000"])
            self.daemon.api("POST", "/v1/jobs", {
                "pid": self.guest.pid, "name": "guest", "queue": True, "placement": "shared",
                "held": self.chance.random() < 0.3, "request": self.chance.randint(1, self.cpus),
                "priority": self.chance.choice((0, 10))})
            self.terms["guest"] = {"placement": "shared"}
        elif self.guest and self.chance.random() < 0.5:
            self.daemon.api("PATCH", "/v1/jobs/guest", {"held": self.chance.random() < 0.5})
        else:
            self.see_off()

    def see_off(self):
        if self.guest:
            self.daemon.api("DELETE", "/v1/jobs/guest")
            self.guest.wait(10)
            eventually(lambda: self.daemon.api("GET", "/v1/jobs/guest")[0] == 404)
            self.guest = None
            del self.terms["guest"]

    # ---- other hands ----

    def write(self, worker):
        """`docker update`: put right, but of who is pinned accepted."""
        if not isinstance(worker, Tenant) or worker.writes == WRITES:
            return
        pinned = self.terms[worker.name].get("core") is not None
        cores = sorted(set(CPUS) - self.taken()) if pinned else (*CPUS, None)
        if not cores:
            return
        core = self.chance.choice(cores)
        limits = self.chance.choice(({"CpusetCpus": ALL if core is None else str(core)},
                                     {"CpuShares": 300}, {"CpuQuota": 60000},
                                     self.cpus_option(0.6)))
        with self.observer.grace(worker, hand=True):
            done = worker.ask("update", limits)  # of the two kinds of quota Docker refuses one
        if done:
            worker.writes += 1
        if done and pinned:
            worker.own.update(limits)
            self.terms[worker.name]["accepted"] = True
            if "CpusetCpus" in limits:
                self.terms[worker.name]["core"] = core

    def pause(self, worker):
        """Also of who is paused by the policy."""
        if isinstance(worker, Tenant):
            with self.observer.grace(worker, hand=True):
                worker.ask("unpause" if worker.frozen() else "pause")

    # ---- the whole ----

    def step(self):
        if self.chance.random() < 0.2:
            self.arrive()
        else:
            verb = self.chance.choices(list(self.verbs), self.verbs.values())[0]
            worker = self.chance.choice(self.jobs)
            self.story.append(f"{verb.__name__} {worker.name}")
            verb(worker)
        if self.chance.random() < 0.3:
            time.sleep(self.chance.choice((0.001, 0.01, 0.03)))

    def run(self, steps):
        self.controller = self.daemon.controller()
        self.default = self.daemon.api("GET", "/v1/policy")[1]["policy"]
        self.arrive()
        interval = sys.getswitchinterval()
        sys.setswitchinterval(0.0005)
        self.observer.start()
        try:
            for i in range(steps):
                self.step()
                assert not self.observer.wrong, self.tell(i)
        finally:
            self.observer.stop = True
            self.observer.join()
            sys.setswitchinterval(interval)
        assert not self.observer.wrong
        assert self.observer.moments > steps

    def tell(self, step):
        """Tells what led to a failure."""
        return "\n".join((f"order {step}: {self.observer.wrong}", "last orders:", *self.story,
                          "what was seen:", *map(str, self.observer.story),
                          *map(str, self.daemon.jobs()), self.daemon.log.read_text()[-3000:]))

    def calm(self):
        """Nobody holds anything any more; weights and limits stay."""
        self.see_off()
        for worker in self.jobs:
            if isinstance(worker, Tenant):
                worker.ask("unpause")
            self.order(worker, auto=True, priority=0)
            for verb in (RECLAIM, RETURN):
                self.controller.order(verb, job=worker.name)
        self.daemon.api("PUT", "/v1/policy", {"policy": self.default})
        self.controller.close()
        eventually(self.agreed)

    def agreed(self):
        """Whether tided says what is there."""
        for worker in self.jobs:
            job, seen = self.job(worker), worker.look()
            alone = job["placement"] == "exclusive"
            if seen.frozen or not job["target"] == job["active"] == seen.active or \
                    (alone and cores_of(job["cores"]) != seen.cores):
                return False
        return True

    def restored(self):
        return all(worker.restored() if isinstance(worker, Tenant) else
                   not groups(worker.peer.pid) and affinity(worker.peer.pid) == {frozenset(CPUS)}
                   for worker in self.jobs)


def live(stream, steps):
    """Everything that is done to them, and the end."""
    try:
        stream.run(steps)
    finally:
        if stream.guest and stream.guest.poll() is None and stream.observer.wrong:
            stream.guest.kill()
    stream.calm()
    assert stream.daemon.stop() == 0
    eventually(stream.restored)


def test_of_cores_no_two_owners(place):
    steps, seed = share(500, 10000)
    live(Stream(place.daemon("--placement", "exclusive").start(), random.Random(5 + seed),
                len(CPUS), ("exclusive", "exclusive", "shared")), steps)


def test_of_cores_no_two_owners_among_containers(place, engine, boxes):  # noqa: F811
    steps, seed = share(500, 5000)
    daemon = place.daemon("--engine", engine.socket).start()
    live(Stream(daemon, random.Random(5 + seed), len(CPUS),
                ("exclusive", "exclusive", "shared", "quota"), boxes), steps)


def test_of_eight_cores_no_thread_too_many(place, engine, boxes):  # noqa: F811
    """More than there are, shared by weight or with quotas."""
    steps, seed = share(250, 5000)
    daemon = place.daemon("--engine", engine.socket, "--cpus", "0-7").start()
    live(Stream(daemon, random.Random(5 + seed), 8, ("shared", "quota"), boxes), steps)
