# SPDX-License-Identifier: Apache-2.0
"""A tided that measures energy on a tree of powercap files which the test moves on."""
import subprocess
import sys

import pytest

from daemon import eventually
from power_tree import PowerTree

PARTS = ("jobs", "system", "idle", "unattributed")


def conf(place, root, *lines):
    path = place.base / "tide.conf"
    path.write_text("\n".join(("[daemon]", f"power-root={root}", *lines, "")))
    path.chmod(0o644)
    return path


@pytest.fixture
def world(place):
    """A function that makes a tree and a daemon on it; both end with the test."""
    trees = []

    def make(watts, *lines, **more):
        root = place.base / f"root{len(trees)}"
        trees.append(PowerTree(root, watts, **more))
        return trees[-1], place.daemon("--cpus", "0-1", "--config", conf(place, root, *lines)).start()
    yield make
    for tree in trees:
        tree.end()


def power(tided):
    status, answer = tided.api("GET", "/v1/power")
    assert status == 200
    return answer


def energy(tided, query=""):
    status, answer = tided.api("GET", "/v1/energy" + query)
    assert status == 200, answer
    return answer


def known(tided):
    return eventually(lambda: (p := power(tided))["power"]["uw"] is not None and p)


def check_sum(p):
    parts = [p["parts"][name] for name in PARTS]
    assert sum(part["uj"] or 0 for part in parts) == (p["energy"]["uj"] or 0), p
    for amount in (*parts, p["energy"]):
        assert (amount["basis"] == "unknown") == (amount["uj"] is None), p
        if amount["uj"] is not None:
            assert amount["low_uj"] <= amount["uj"] <= amount["high_uj"], p


def busy(tided):
    """A job that computes; the process and the job's id."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        status, answer = tided.api("POST", "/v1/jobs", {"pid": process.pid})
        assert status == 201, answer
    except BaseException:
        process.kill()
        raise
    return process, answer["id"]
