# SPDX-License-Identifier: Apache-2.0
"""Speed-up curves outlive the run and the daemon, and are their user's own (docs/design/62-curves-kept.md)."""
import contextlib
import os
import signal
import sqlite3

from daemon import eventually

ROOT = os.geteuid() == 0
ONE, TWO = (61001, 61002) if ROOT else (None, None)  # users without a name


def speedup(job):
    return job.daemon.api("GET", f"/v1/jobs/{job.id}/explain")[1]["speedup"]


def begin(tided, uid):
    return tided.job("--beat", "100", uid=uid)  # whose work is in proportion to its threads


def learn(tided, uid):
    job = begin(tided, uid)
    for threads in (8, 2):
        job.patch(threads=threads)
        before = job.target(threads)["progress"]["done"]
        # it does 100 a second with each thread; a sample takes a second
        eventually(lambda: job.get()["progress"]["done"] - before > 250 * threads)
    eventually(lambda: speedup(job))
    assert speedup(job)["earlier"] is None
    return job


def has_none(tided, uid):
    """A job of that user stays without a curve, however often tided has looked at it."""
    job = begin(tided, uid)
    eventually(lambda: job.get()["elapsed_s"] > 2 and job.get()["progress"]["rate"])
    assert speedup(job) is None
    job.end()


def reload(tided, conf, curves):
    count = tided.log.read_text().count("configuration reloaded")
    conf.write_text(f"[daemon]\ncpus=0-7\npolicy=equal\ncurves={curves}\n")
    tided.signal(signal.SIGHUP)
    eventually(lambda: tided.log.read_text().count("configuration reloaded") > count)


def test_a_curve_outlives_run_and_daemon_and_is_its_users_own(place, tmp_path):
    conf = tmp_path / "tide.conf"
    conf.write_text("[daemon]\ncpus=0-7\npolicy=equal\n")
    tided = place.daemon("--config", conf).start()
    log = tided.dir / "curves.db-wal"
    first = begin(tided, ONE)
    size = eventually(lambda: log.exists() and log.stat().st_size)
    first.end()
    job = learn(tided, ONE)
    eventually(lambda: log.stat().st_size > size)  # within a second or two
    table = speedup(job)["table"]

    tided.signal(signal.SIGKILL)
    tided.start()
    found = eventually(lambda: speedup(job))  # the run itself goes on with it
    assert (found["earlier"], found["counts"]) == ("own", 2)
    second = begin(tided, ONE)
    found = eventually(lambda: speedup(second))
    assert found["earlier"] == "own" and len(found["table"]) == len(table)
    assert max(abs(a - b) for a, b in zip(found["table"], table)) < 0.3
    if ROOT:
        has_none(tided, TWO)
    for each in (second, job):
        each.end()

    assert tided.stop() == 0
    with contextlib.closing(sqlite3.connect(tided.dir / "curves.db")) as db:
        (row,) = db.execute("SELECT uid, threads FROM curve").fetchall()
        assert row == (ONE if ROOT else os.geteuid(), "2 8")
    assert oct((tided.dir / "curves.db").stat().st_mode)[-3:] == "600"
    tided.start()
    third = begin(tided, ONE)
    assert eventually(lambda: speedup(third))["earlier"] == "own"

    reload(tided, conf, "share")
    if ROOT:
        other = begin(tided, TWO)
        assert eventually(lambda: speedup(other))["earlier"] == "shared"
    reload(tided, conf, "none")
    has_none(tided, ONE)
