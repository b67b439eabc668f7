# SPDX-License-Identifier: Apache-2.0
"""Random transactions, and an observer beside them that asks the kernel and the jobs' own pages, not
tided: no core has two owners of which one is exclusive, and no more threads are active than there
are cores to have. TIDE_SOAK=1: twenty times as many."""
import contextlib
import itertools
import os
import random
import subprocess
import sys
import threading
import time

import pytest

from daemon import BORROW, LEND, RECLAIM, RETURN, SLOWNESS, eventually
from workers import CPUS, Worker, affinity, groups

MANY = 20 if os.environ.get("TIDE_SOAK") else 1
# A job that begins or is changed by a person has its place after that long: JOB_DEADLINE_NS for who
# leaves it, and a second of a busy machine.
GRACE_S = 3 * SLOWNESS

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
              pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")]


class Member:
    """What the observer knows of a job."""

    def __init__(self, worker, exclusive):
        self.worker, self.exclusive = worker, exclusive
        self.orders = 0  # under way
        self.since = 0  # of its grace; None: it has none

    def look(self):
        """(cores of all its threads, active threads), or None: it is gone."""
        try:
            cores = frozenset().union(*(cpus for pid in self.worker.pids for cpus in affinity(pid)))
            return cores, self.worker.page.read()[0]
        except (OSError, ValueError):
            return None


class Observer(threading.Thread):
    """Two looks that agree are one moment."""

    def __init__(self, threads):
        super().__init__(daemon=True)
        self.threads = threads  # so many may be active
        self.members, self.wrong = {}, []
        self.moments, self.longest, self.stop = 0, 0, False

    def run(self):
        while not self.stop:
            members = list(self.members.values())
            first = [member.look() for member in members]
            second = [member.look() for member in members]
            now = time.monotonic()
            if members == list(self.members.values()):
                self.judge(now, {m: a for m, a, b in zip(members, first, second) if a and a == b},
                           all(a == b for a, b in zip(first, second)))
            time.sleep(0.0002)

    def judge(self, now, seen, whole):
        bad = {}  # who is in the wrong, and how
        for one, other in itertools.combinations(seen, 2):
            if (one.exclusive or other.exclusive) and seen[one][0] & seen[other][0]:
                # Who has not got its first cores is everywhere; afterwards there is no excuse.
                new = [m for m in (one, other) if seen[m][0] == set(CPUS)]
                self.accuse(bad, (one, other), new, f"both on {set(seen[one][0] & seen[other][0])}")
        for member, (cores, active) in seen.items():
            if member.exclusive and active > len(cores):
                self.accuse(bad, (member,), (member,), f"{active} threads on {set(cores)}")
        if whole:  # the sum is of one moment
            self.moments += 1
            settled = sum(active for member, (_, active) in seen.items() if member.since is None)
            total = sum(active for _, active in seen.values())
            if settled > max(self.threads, len(seen)):
                self.accuse(bad, list(seen), (), f"{settled} threads")
            elif total > max(self.threads, len(seen)):
                self.accuse(bad, list(seen), list(seen), f"{total} threads")
        for member in seen:
            if member.since is None or member.orders:
                continue
            took = now - member.since
            if member not in bad and whole:
                self.longest, member.since = max(self.longest, took), None
            elif took > GRACE_S:
                self.wrong.append(f"{member.worker.name}: {bad.get(member)} after {took:.1f} s")

    def accuse(self, bad, members, new, text):
        """Of those who may be new, the ones with grace have it."""
        late = [member for member in new if member.since is not None]
        if not late:
            self.wrong.append(f"{[m.worker.name for m in members]}: {text}")
        for member in late:
            bad[member] = text

    def add(self, worker, exclusive):
        self.members[worker.name] = Member(worker, exclusive)

    @contextlib.contextmanager
    def grace(self, worker):
        """Its grace begins when the order is through."""
        member = self.members[worker.name]
        member.orders, member.since = 1, time.monotonic()
        yield
        self.lift(member)

    @staticmethod
    def lift(member):
        member.since = time.monotonic()
        member.orders = 0


class Stream:
    """Orders by chance, within what the machine can do: more exclusive jobs than cores overlap."""

    def __init__(self, daemon, chance, cpus, placements):
        self.daemon, self.chance, self.cpus = daemon, chance, cpus
        self.placements = placements
        self.observer = Observer(cpus)
        self.jobs, self.terms = [], {}  # by age; of each: what it was asked for
        self.guest, self.n = None, 0

    # ---- what there is room for ----

    def fits(self, name=None, **change):
        """Would every job have what it is to have at least, and an exclusive one cores of its own?"""
        terms = [{**t, **(change if n == name else {})} for n, t in self.terms.items()]
        if name not in self.terms:
            terms.append(change)
        alone = [t for t in terms if t["placement"] == "exclusive" or t.get("core") is not None]
        owners = len(alone) + (len(alone) < len(terms))
        exclusive = any(t["placement"] == "exclusive" for t in terms)
        return ((not exclusive or owners <= self.cpus) and
                sum(max(t.get("threads") or 1, t.get("min") or 1) for t in terms) <= self.cpus)

    # ---- orders ----

    def order(self, worker, **change):
        status, answer = self.daemon.api("PATCH", f"/v1/jobs/{worker.name}", change)
        assert status == 200, answer

    def change(self, worker, **terms):
        if self.fits(worker.name, **{**self.terms[worker.name], **terms}):
            self.terms[worker.name].update(terms)
            return True
        return False

    def arrive(self):
        placement = self.chance.choice(self.placements)
        if len(self.jobs) > 3 or not self.fits(placement=placement):
            return
        self.n += 1
        name = f"job{self.n}"
        self.terms[name] = {"placement": placement}
        worker = Worker(self.daemon, name, "--ack-after", str(self.chance.choice((0, 3, 15))),
                        placement=placement)
        self.jobs.append(worker)
        self.observer.add(worker, placement == "exclusive")
        with self.observer.grace(worker):
            worker.join()
            eventually(lambda: self.commanded(worker))

    def commanded(self, worker):
        """Before, it has all threads that it was built with, wherever it is."""
        job = self.daemon.api("GET", f"/v1/jobs/{worker.name}")[1]
        return job["malleable"] and job["target"] == job["active"]

    def known(self, worker):
        return self.daemon.api("GET", f"/v1/jobs/{worker.name}")[0] == 200

    def leave(self, worker):
        if len(self.jobs) == 1:
            return
        del self.observer.members[worker.name]
        self.jobs.remove(worker)
        worker.end()
        eventually(lambda: not self.known(worker))
        del self.terms[worker.name]

    def set(self, worker):
        threads = self.chance.randint(1, self.cpus)
        if self.terms[worker.name].get("core") is None and self.change(worker, threads=threads):
            with self.observer.grace(worker):
                self.order(worker, threads=threads)

    def auto(self, worker):
        if self.change(worker, threads=None, core=None):
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

    def pin(self, worker):
        taken = {t.get("core") for t in self.terms.values()}
        seen = self.observer.members[worker.name].look()
        free = sorted((seen[0] if seen else set()) - taken)
        if self.cpus == len(CPUS) and free and self.change(worker, core=free[0], threads=1):
            with self.observer.grace(worker):
                self.order(worker, pin=True, cores=str(free[0]), threads=1)

    def policy(self, worker):
        names = [p["name"] for p in self.daemon.api("GET", "/v1/policy")[1]["policies"]]
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

    def step(self):
        verbs = {self.set: 6, self.auto: 6, self.limit: 5, self.weigh: 5, self.urge: 2, self.pin: 4,
                 self.policy: 2, self.lend: 5, self.queue: 4, self.leave: 4}
        if self.chance.random() < 0.2:
            self.arrive()
        else:
            verb = self.chance.choices(list(verbs), verbs.values())[0]
            verb(self.chance.choice(self.jobs))
        if self.chance.random() < 0.3:
            time.sleep(self.chance.choice((0.001, 0.01, 0.03)))

    # ---- the whole ----

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
                assert not self.observer.wrong, (i, self.observer.wrong, self.daemon.jobs())
        finally:
            self.observer.stop = True
            self.observer.join()
            sys.setswitchinterval(interval)
        assert not self.observer.wrong
        assert self.observer.moments > steps

    def calm(self):
        """Nobody holds anything any more; weights and limits stay."""
        self.see_off()
        for worker in self.jobs:
            self.order(worker, auto=True, priority=0)
            for verb in (RECLAIM, RETURN):
                self.controller.order(verb, job=worker.name)
        self.daemon.api("PUT", "/v1/policy", {"policy": self.default})
        self.controller.close()

    def restored(self):
        return all(affinity(pid) == {frozenset(CPUS)} and not groups(pid)
                   for worker in self.jobs for pid in worker.pids)


def test_of_cores_no_two_owners(place):
    stream = Stream(place.daemon("--placement", "exclusive").start(), random.Random(5), len(CPUS),
                    ("exclusive", "exclusive", "shared"))
    try:
        stream.run(500 * MANY)
    finally:
        if stream.guest:
            stream.guest.kill()
            stream.guest.wait()
    stream.calm()
    assert stream.daemon.stop() == 0
    eventually(stream.restored, guard=5)
