# SPDX-License-Identifier: Apache-2.0
"""What energy's benchmarks compute from what they measure; nothing is measured here."""
import random
import sys

import pytest

from conftest import ROOT

sys.path.append(str(ROOT / "bench"))

import energy_load
import energy_model


def test_the_fit_finds_the_line_that_runs_lie_on():
    runs = [{"rate": r, "broker_percent": 0.5 + 0.02 * r, "p99_ms": 3 + energy_load.wait_ms(r, 0.02)}
            for r in (10, 30, 100, 300)]
    assert energy_load.fit(runs) == pytest.approx((0.5, 0.02, 3))


@pytest.mark.parametrize("load", (0.2, 0.5, 0.8))
def test_the_wait_is_that_of_a_simulated_queue(load):
    service, draw = 0.001, random.Random(1)
    rate, wait, waits = load / service, 0.0, []
    for _ in range(200_000):
        waits.append(wait)
        wait = max(0.0, wait + service - draw.expovariate(rate))
    simulated = sorted(waits)[len(waits) * 99 // 100] * 1e3
    assert energy_load.wait_ms(rate, service * 100) == pytest.approx(simulated, rel=0.1)


def test_a_machine_is_never_forecast_by_machines_of_its_own_processor():
    results = [("x", (2017, 2, [1])), ("x", (2017, 2, [2])), ("y", (2017, 2, [3])), ("z", (2019, 2, [4]))]
    others = [found for _, found in energy_model.without(results, lambda r: r[0])]
    assert others == [[(2017, 2, [3])], [(2017, 2, [3])], [(2017, 2, [1]), (2017, 2, [2])], []]


def test_blocks_are_pieces_of_time():
    blocks = [line[0] for line in energy_model.blocked([(0, 0, 0, 0)] * 25)]
    assert blocks == sorted(blocks) and set(blocks) == set(range(10))
