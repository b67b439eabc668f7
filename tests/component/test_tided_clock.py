# SPDX-License-Identifier: Apache-2.0
"""Somebody sets the machine's clock, a day ahead and back: a cap ends in its time all the same, and no energy is lost or
counted twice. tided runs with a library that moves its time of the day alone (clock_step.c)."""
import time

import pytest

from daemon import eventually
from energy_daemon import conf, energy, known, power
from power_tree import PowerTree

DAY = 86400
STEPS = (DAY, -DAY)


class Clock:
    def __init__(self, tided, library, folder):
        self.file = folder / "clock-step"
        self.set(0)
        tided.env.update(LD_PRELOAD=str(library), TEST_CLOCK_STEP=str(self.file))

    def set(self, seconds):
        self.file.write_text(str(seconds))

    def now(self):
        return time.time() + int(self.file.read_text())


@pytest.fixture
def library(compiled):
    return compiled("clock_step.c", "-shared", "-fPIC")


@pytest.fixture
def capped(place, library):
    path = place.base / "tide.conf"
    path.write_text("[daemon]\npower=none\npower-model=points:20,35,75,120\n")
    path.chmod(0o644)
    tided = place.daemon("--cpus", "0-15", "--config", path)
    clock = Clock(tided, library, place.base)
    return tided.start(), clock


def cap(tided):
    return tided.api("GET", "/v1/power/cap")[1]


def set_cap(tided, clock, seconds):
    status, answer = tided.api("PUT", "/v1/power/cap", {"uw": 90_000_000, "until": int(clock.now()) + seconds})
    assert status in (200, 202), answer


@pytest.mark.parametrize("step", STEPS)
def test_a_cap_holds_until_its_time_has_passed_whatever_the_clock_says(capped, step):
    tided, clock = capped
    set_cap(tided, clock, 3600)
    clock.set(step)
    time.sleep(1.5)  # longer than tided looks at its caps
    now = cap(tided)
    assert now["state"] != "none" and now["source"] == "person"
    assert abs(now["until"] - clock.now() - 3600) < 30  # told in the clock that people see now
    tided.stop()
    tided.start()  # in the same boot: the file counts from that
    assert abs(cap(tided)["until"] - clock.now() - 3600) < 30
    clock.set(0)
    assert abs(cap(tided)["until"] - clock.now() - 3600) < 30


@pytest.mark.parametrize("step", STEPS)
def test_a_cap_ends_in_its_time_whatever_the_clock_says(capped, step):
    tided, clock = capped
    set_cap(tided, clock, 4)
    begun = time.monotonic()
    clock.set(step)
    assert cap(tided)["state"] != "none"
    eventually(lambda: cap(tided)["state"] == "none")
    assert time.monotonic() - begun > 2


def parts(tided):
    rows = {row["key"]: row["uj"] for row in energy(tided, f"?by=part&since=0&until={int(time.time()) + 10 * DAY}")["rows"]}
    return rows["machine"]


def days(tided):
    rows = energy(tided, f"?by=day&since=0&until={int(time.time()) + 10 * DAY}")["rows"]
    return sum(row["uj"] or 0 for row in rows)


def test_the_history_of_energy_loses_nothing_to_a_clock_that_is_set(place, library):
    tree = PowerTree(place.base / "root", {"intel-rapl:1": 40})
    try:
        tided = place.daemon("--cpus", "0-1", "--config", conf(place, place.base / "root"))
        clock = Clock(tided, library, place.base)
        tided.start()
        known(tided)
        for step in (0, DAY, 0, -DAY, 0):
            clock.set(step)
            at = power(tided)["energy"]["uj"] or 0
            eventually(lambda before=at: (power(tided)["energy"]["uj"] or 0) > before + 100e6)
            low = power(tided)["energy"]["uj"]
            told = parts(tided)
            assert low <= told <= power(tided)["energy"]["uj"]
            # Days count from the first quarter of an hour that the history has, which rounds down.
            assert days(tided) >= told
        before, gap = power(tided)["energy"]["uj"], power(tided)["energy"]["gap_ms"]
        assert gap < 5000, "a step of the clock is no time in which nobody measured"
        assert tided.stop() == 0
        clock.set(DAY)
        tided.start()
        known(tided)
        assert before <= parts(tided) <= power(tided)["energy"]["uj"]
    finally:
        tree.end()
