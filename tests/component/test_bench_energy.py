# SPDX-License-Identifier: Apache-2.0
"""Figures that energy's benchmarks compute from what they measure; nothing is measured here."""
import json
import random
import sys
import types

import pytest

from conftest import ROOT

sys.path.append(str(ROOT / "bench"))

import energy_area
import energy_attribution
import energy_load
import energy_model
import energy_work


def test_the_error_is_what_was_given_to_the_wrong_jobs():
    truth = {"a": 60.0, "b": 40.0}
    error, covered = energy_attribution.score({"a": (54, 50, 58), "b": (44, 30, 50)}, truth)
    assert error == pytest.approx(0.1)
    assert covered == {"a": False, "b": True}


def test_the_truth_between_two_lines_is_interpolated():
    lines = [{"time_ns": t, "wall": {"jobs": jobs}} for t, jobs in
             ((100, {"a": 0}), (200, {"a": 10, "b": 0}), (300, {"a": 30, "b": 8}))]
    assert energy_attribution.truth_at(lines, 225) == {"a": 15, "b": 2}
    assert energy_attribution.truth_at(lines, 150) == {"a": 5, "b": 0}
    assert energy_attribution.truth_at(lines, 100) == {"a": 0}


def test_a_job_is_compared_over_the_time_between_its_own_figures():
    lines = [{"time_ns": t, "wall": {"jobs": {"a": t, "b": 2 * t}}} for t in range(0, 1000, 100)]
    seen = {"a": [(50, 1, 1, 1), (150, 10, 8, 15), (450, 110, 88, 165)],
            "b": [(90, 0, 0, 0), (210, 5, 4, 6), (310, 15, 10, 20), (410, 305, 304, 306)]}
    assert energy_attribution.differences(seen, lines) == (
        {"a": (100, 80, 150), "b": (300, 300, 300)}, {"a": 300, "b": 400})


def test_points_are_drawn_through_readings_at_other_loads():
    readings = [(550, 65.0), (50, 20.0), (150, 30.0), (1000, 95.0)]
    assert [energy_attribution.drawn_through(readings, load) for load in (0, 100, 550, 1000)] == [15, 25, 65, 95]
    assert energy_attribution.drawn_through([(0, 10.0), (900, 100.0)], 1000) == pytest.approx(110)


def test_the_fit_finds_the_line_that_runs_lie_on():
    runs = [{"rate": r, "broker_percent": 0.5 + 0.02 * r, "p99_ms": 3 + energy_load.wait_ms(r, 0.02)}
            for r in (10, 30, 100, 300)]
    assert energy_load.fit(runs) == pytest.approx((0.5, 0.02, 3))


def test_a_forecast_tells_what_the_rate_costs_from_what_the_number_of_units_costs():
    """Each with a message in 10, 3 or 1 s: of one rate there are several numbers of units."""
    runs = [{"units": n, "rate": n / s, "broker_percent": 0.3 * (n / s) ** 0.5 * n ** 0.1}
            for n, s in ((100, 10), (300, 10), (1000, 10), (3000, 10), (3000, 3), (300, 1), (1000, 1))]
    value, weights = energy_load.forecast(runs, "broker_percent", 10_000, 1000)
    assert value == pytest.approx(0.3 * 1000 ** 0.5 * 10_000 ** 0.1)
    assert weights[1:] == pytest.approx([0.5, 0.1])
    assert energy_load.usual([{"units": 1}, {"units": 2, "period_s": 1}]) == [{"units": 1}]


@pytest.mark.parametrize("load", (0.2, 0.5, 0.8))
def test_the_wait_is_that_of_a_simulated_queue(load):
    service, draw = 0.001, random.Random(1)
    rate, wait, waits = load / service, 0.0, []
    for _ in range(200_000):
        waits.append(wait)
        wait = max(0.0, wait + service - draw.expovariate(rate))
    simulated = sorted(waits)[len(waits) * 99 // 100] * 1e3
    assert energy_load.wait_ms(rate, service * 100) == pytest.approx(simulated, rel=0.1)


def test_the_interval_of_a_quantile_holds_it_as_often_as_it_says():
    draw, held, ends = random.Random(2), 0, 0
    for _ in range(1000):
        _, low, high = energy_load.quantile_interval([draw.random() for _ in range(500)], 0.99)
        held += low <= 0.99 <= high
        ends += high < 1
    assert 940 <= held <= 1000 and ends == 1000
    assert energy_load.quantile_interval([1.0] * 20, 0.99)[2] == float("inf")  # too few to tell


def test_a_prediction_is_judged_by_all_runs_of_its_size(monkeypatch):
    said = [{"units": 10_000, "broker_percent": 20.0, "p99_ms": 10.0, "measured": "then"}]
    runs = [{"units": 10_000, "broker_percent": 20 * x, "p99_ms": 20.0} for x in (0.9, 0.95, 1, 1, 1.05, 1.1)]
    monkeypatch.setattr(energy_load.harness, "saved_runs", lambda name: [{"units": 100}, *runs])
    broker, p99 = energy_load.predicted_rows(said)
    assert (broker["verdict"], broker["repeats"], p99["verdict"]) == ("met", 6, "missed")
    monkeypatch.setattr(energy_load.harness, "saved_runs", lambda name: [{"units": 100}])
    assert "verdict" not in energy_load.predicted_rows(said)[0]


def test_a_page_that_misses_one_message_in_fifty_is_too_late():
    run = {"units": 10, "draws": False, "event_s": [0.1] * 490 + [None] * 10, "demand_s": [0.1] * 500,
           "broker_percent": 1, "hub_percent": 1, "told_per_s": 1, "measured": {"date": "", "hash": ""}}
    assert [row["verdict"] for row in energy_load.page_rows([run])] == ["missed", "met"]


def test_a_machine_is_never_forecast_by_machines_of_its_own_processor():
    results = [("x", (2017, 2, [1])), ("x", (2017, 2, [2])), ("y", (2017, 2, [3])), ("z", (2019, 2, [4]))]
    others = [found for _, found in energy_model.without(results, lambda r: r[0])]
    assert others == [[(2017, 2, [3])], [(2017, 2, [3])], [(2017, 2, [1]), (2017, 2, [2])], []]


def test_blocks_are_pieces_of_time():
    blocks = [line[0] for line in energy_model.blocked([(0, 0, 0, 0)] * 25)]
    assert blocks == sorted(blocks) and set(blocks) == set(range(10))


def test_divisions_are_all_ways_to_give_everybody_a_part():
    found = list(energy_work.divisions(6, 3))
    assert len(found) == len(set(found)) == 10 * 8
    assert all(sum(cut) == 6 and min(cut) >= 1 for cut, _ in found)
    assert ((1, 1, 4), (2, 1, 2)) in found


def test_cores_below_a_cap_lie_on_the_line_through_the_points():
    points = [20.0, 30.0, 50.0, 60.0]  # at 0, 10, 50 and 100 %
    for watts, cores in ((25, 0.1), (30, 0.2), (40, 0.6), (60, 2.0), (70, 3.0)):
        assert energy_work.cores_below(points, watts, 2) == pytest.approx(cores)
    assert energy_work.cores_below(points, 10, 2) == energy_work.LEAST_CORES


def test_a_rate_counts_parts_of_steps_at_both_ends():
    steps = [0.5 + i for i in range(20)]
    assert energy_work.Setting.rate(steps, 3.0, 9.0) == pytest.approx(1.0)
    assert energy_work.Setting.rate(steps, 3.2, 3.4) == 0


@pytest.mark.parametrize("more, over", [(0, False), (1, True)])
def test_the_sum_of_leases_is_held_against_the_cap_in_force(monkeypatch, more, over):
    """A sum below an earlier, higher cap is above the cap that holds now."""
    monkeypatch.setattr(energy_area.subprocess, "Popen", lambda *_, **__: types.SimpleNamespace(stdout=[]))
    ear, w = energy_area.Ear(types.SimpleNamespace(port=1)), energy_area.W

    def say(leaf, number, watts, kept=True):
        for name in energy_area.NAMES:
            where = "down" if leaf == "lease" else "up"
            ear.hear(f"tide/1/{name}/{where}/{leaf} {json.dumps({'number': number, 'uw': watts * w, 'kept': kept})}")
    each = {cap: cap // len(energy_area.NAMES) for cap in (energy_area.HIGH, energy_area.LOW)}
    say("lease", 1, each[energy_area.HIGH])
    say("ack", 1, each[energy_area.HIGH])
    ear.changes(energy_area.LOW)
    say("lease", 2, each[energy_area.LOW])
    assert not ear.over  # what was acknowledged before counts, and was allowed
    say("ack", 2, each[energy_area.LOW], kept=False)
    assert not ear.settled(energy_area.LOW)  # it draws more for the moment
    say("ack", 2, each[energy_area.LOW])
    ear.hold(energy_area.LOW)
    say("lease", 3, each[energy_area.LOW] + more)
    assert ear.over == over
