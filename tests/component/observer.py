# SPDX-License-Identifier: Apache-2.0
"""Watches jobs while they are moved about, and asks the kernel and their own pages, not tided: no
core has two owners of which one is exclusive, and no more threads are active than have a place."""
import collections
import contextlib
import itertools
import threading
import time

from daemon import SLOWNESS
from workers import CPUS

# A job that begins, goes on after a pause or is changed by a person has its place after that long:
# JOB_GRACE_NS for the job that leaves it, and a second of a busy machine.
GRACE_S = 3 * SLOWNESS
HEAR_S = 0.2 * SLOWNESS  # by then tided has heard of what others do, and the thawed of their cores


class Member:
    """A job as the observer knows it."""

    def __init__(self, worker, placement):
        self.worker, self.placement = worker, placement
        self.orders = 0  # under way
        self.since = time.monotonic()  # of its grace; None: it has none
        self.hand = False  # somebody else has put it where it is

    @property
    def exclusive(self):
        return self.placement == "exclusive"

    def look(self):
        """Returns what is seen of it, or None: it is gone."""
        try:
            return self.worker.look()
        except (OSError, ValueError):
            return None

    def excess(self, seen):
        """Threads above what it has, in words; None: there are none."""
        if self.exclusive and not seen.frozen and seen.active > len(seen.cores):
            return f"{seen.active} threads on {set(seen.cores)}"
        if self.placement == "quota" and seen.quota and seen.active > seen.quota:
            return f"{seen.active} threads with a quota of {seen.quota}"
        return None


class Observer(threading.Thread):
    """Two looks that agree are one moment."""

    def __init__(self, threads):
        super().__init__(daemon=True)
        self.threads = threads  # so many may be active
        self.members, self.wrong = {}, []
        self.story = collections.deque(maxlen=24)  # who has grace, and was where
        self.lock = threading.Lock()  # of the members
        self.moments, self.longest, self.stop = 0, 0, False

    def run(self):
        while not self.stop:
            with self.lock:
                members = list(self.members.values())
                first = [member.look() for member in members]
                second = [member.look() for member in members]
                if not self.wrong:
                    self.remember([(m.worker.name, m.since is not None, a)
                                   for m, a in zip(members, first)])
                self.judge(time.monotonic(),
                           {m: a for m, a, b in zip(members, first, second) if a and a == b},
                           all(a == b for a, b in zip(first, second)))
            time.sleep(0.0002)

    def remember(self, seen):
        if not self.story or self.story[-1][1] != seen:
            self.story.append((time.time(), seen))

    def judge(self, now, seen, whole):
        bad = {}  # who is in the wrong, and how
        for member in seen:
            if seen[member].frozen:
                member.since = now + HEAR_S
        self.judge_cores(seen, bad)
        for member in seen:
            text = member.excess(seen[member])
            if text:
                self.accuse(bad, (member,), (member,), text)
        if whole:  # the sum is of one moment
            self.moments += 1
            self.judge_sum(seen, bad)
        self.end_graces(now, seen, bad, whole)

    def judge_cores(self, seen, bad):
        for one, other in itertools.combinations(seen, 2):
            both = seen[one].cores & seen[other].cores
            if (one.exclusive or other.exclusive) and both:
                # A job without its first cores is everywhere; afterwards we have no excuse.
                new = [m for m in (one, other) if m.hand or seen[m].cores == set(CPUS)]
                self.accuse(bad, (one, other), new, f"both on {set(both)}")

    def judge_sum(self, seen, bad):
        most = max(self.threads, len(seen))
        settled = sum(s.active for member, s in seen.items() if member.since is None)
        total = sum(s.active for s in seen.values())
        if settled > most:
            self.accuse(bad, list(seen), (), f"{settled} threads")
        elif total > most:
            self.accuse(bad, list(seen), list(seen), f"{total} threads")

    def end_graces(self, now, seen, bad, whole):
        for member in seen:
            if member.since is None or member.orders or seen[member].frozen:
                continue
            took = now - member.since
            if member not in bad and whole and took > 0:
                self.longest = max(self.longest, took)
                member.since, member.hand = None, False
            elif took > GRACE_S:
                self.wrong.append(f"{member.worker.name}: {bad.get(member)} after {took:.1f} s")

    def accuse(self, bad, members, new, text):
        """Notes a fault of @members: no fault yet of the @new ones that are within their grace."""
        late = [member for member in new if member.since is not None]
        if not late:
            self.wrong.append(f"{[m.worker.name for m in members]}: {text}")
        for member in late:
            bad[member] = text

    def add(self, worker, placement):
        with self.lock:
            self.members[worker.name] = Member(worker, placement)

    def forget(self, worker):
        with self.lock:
            del self.members[worker.name]

    @contextlib.contextmanager
    def grace(self, worker, hand=False):
        """Its grace begins when the order is through; by @hand, where it is may be wrong, too."""
        member = self.members[worker.name]
        with self.lock:
            member.orders, member.since = 1, time.monotonic()
            member.hand |= hand
        yield
        with self.lock:
            member.since = time.monotonic() + (HEAR_S if hand else 0)
            member.orders = 0
