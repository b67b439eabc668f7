# SPDX-License-Identifier: Apache-2.0
"""Targets that move at random beside a test; the test fails with whatever goes wrong there."""
import collections
import contextlib
import random
import threading


class Restless:
    """Orders that a thread gives until the block ends.

    @find returns the jobs that are to move. What came of it: .statuses counts the answers to orders, .numbers holds, for each
    runtime that the agent governs, the threads with which it was seen at work. A job may end between two looks, so 404 is no fault.
    """

    def __init__(self, tided, find, seed, pause=(0.005, 0.05), deadline_ms=20):
        self.tided, self.find, self.pause, self.deadline_ms = tided, find, pause, deadline_ms
        self.orders, self.over, self.fault = random.Random(seed), threading.Event(), None
        self.statuses, self.numbers = collections.Counter(), collections.defaultdict(set)
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        try:
            while not self.over.wait(self.orders.uniform(*self.pause)):
                self._move()
        except BaseException as fault:  # an assertion, too: the test's own thread raises it
            self.fault = fault

    def _move(self):
        for job in self.find():
            for backend in job["backends"]:
                if backend["malleable"]:
                    self.numbers[backend["name"]].add(backend["active"])
            status, answer = self.tided.api("PATCH", f"/v1/jobs/{job['id']}",
                                            {"threads": self.orders.randint(1, 8), "deadline_ms": self.deadline_ms})
            assert status in (200, 404), (status, answer)
            self.statuses[answer["status"] if status == 200 else "gone"] += 1

    @property
    def moves(self):
        """Orders that the daemon took."""
        return sum(self.statuses.values()) - self.statuses["gone"]

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, value, trace):
        self.over.set()
        self.thread.join()
        if self.fault and not kind:
            raise self.fault


@contextlib.contextmanager
def moving(tided, find, seed, runtime, **more):
    """The same, and in the end the threads of @runtime must have followed: more numbers were seen than the first and one other."""
    with Restless(tided, find, seed, **more) as restless:
        yield restless
    assert restless.moves > 10, restless.statuses
    assert len(restless.numbers[runtime]) > 2, f"{runtime} kept its threads: {dict(restless.numbers)}"
