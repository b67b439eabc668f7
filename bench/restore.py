#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How soon original limits are back (root only): after `kill -9` of tided by its guardian, for processes
and for containers, and when somebody else has written a container's limits, by tided.

    restore.py [--repeats 30]
"""

import argparse
import os
import signal

import harness
from containers import EXCLUSIVE, own_engine, row, timed

from box import Box, connected
from daemon import eventually

CPUS = sorted(os.sched_getaffinity(0))
ALL = f"{CPUS[0]}-{CPUS[-1]}"
DRIFT_FREE = 4  # src/daemon/containers/container_drift.c


def killed(tided, fenced, free):
    """Seconds from the kill to free(); before it fenced() holds. Then a new daemon starts."""
    eventually(fenced)
    seconds = timed(lambda: (tided.signal(signal.SIGKILL), eventually(free, pause=0.001)))
    tided.start()
    return seconds


def processes(place, repeats):
    """Two jobs with cores of their own; their affinity is back when both may run everywhere."""
    tided = place.daemon("--engine", "none", "--placement", "exclusive").start()
    jobs = [tided.job("--max", "8", name=name) for name in ("one", "two")]

    def affinities():
        return [os.sched_getaffinity(job.peer.pid) for job in jobs]
    times = [killed(tided, lambda: not set.intersection(*affinities()),
                    lambda: affinities() == [set(CPUS)] * 2) for _ in range(repeats)]
    tided.end()
    place.daemons.remove(tided)
    return row("tided killed → processes have their own affinity again", times, 5000)


def cpus(boxes):
    return [box.cpus() for box in boxes]


def two_boxes(tided, engine, place, number):
    boxes = [Box(engine, place, f"{name}{number}", "--max 8", labels=EXCLUSIVE) for name in ("a", "b")]
    for box in boxes:
        connected(tided, box)
    eventually(lambda: len(set(cpus(boxes))) == 2)
    return boxes


def drifts(boxes):
    """As many as tided puts right at once, before it slows down with somebody who keeps at it."""
    for _ in range(DRIFT_FREE):
        before = boxes[0].cpus()
        boxes[0].update(CpusetCpus=ALL)
        yield timed(lambda: eventually(lambda: boxes[0].cpus() == before, pause=0.001))


def containers(place, engine, repeats):
    tided = place.daemon("--engine", engine.socket).start()
    restored, repaired = [], []
    while len(restored) < repeats:
        boxes = two_boxes(tided, engine, place, len(restored))
        repaired += drifts(boxes)
        for _ in range(DRIFT_FREE):
            restored.append(killed(tided, lambda: len(set(cpus(boxes))) == 2,
                                   lambda: cpus(boxes) == [ALL] * 2))
        for box in boxes:
            box.remove()
    return [row("tided killed → containers have their own cores again", restored, 5000),
            row("somebody else writes a container's cores → put right", repaired, 2000)]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--repeats", type=int, default=30)
    args = p.parse_args()
    if os.geteuid() != 0:
        p.error("a container engine of one's own needs root")
    with own_engine() as (place, engine):
        rows = [processes(place, args.repeats), *containers(place, engine, args.repeats)]
        harness.save("restore", rows)


if __name__ == "__main__":
    main()
