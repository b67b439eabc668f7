# SPDX-License-Identifier: Apache-2.0
"""A program's requests as tided knows them, for tests in which calls of a runtime are taken for requests."""
import os
import subprocess

from daemon import eventually


def job(started):
    """Also where no pool of its runtime has worked yet, so that it has no row."""
    return next(j for j in started.tided.jobs() if started.process.pid in j["pids"])


def latency(started):
    return job(started)["latency"] or {"requests": 0, "in_flight": 0}


def counts(started, requests):
    """All have ended."""
    eventually(lambda: latency(started)["requests"] >= requests and latency(started)["in_flight"] == 0)
    assert latency(started)["requests"] == requests


def say(build_dir, started, *words):
    return subprocess.run([build_dir / "tide", *words], env={**os.environ, "TIDE_DIR": str(started.tided.dir)}, check=True,
                          capture_output=True, text=True).stdout


def promise(started, slo):
    """None: takes it back."""
    assert started.tided.api("PATCH", f"/v1/jobs/{job(started)['id']}", {"slo": slo})[0] == 200
