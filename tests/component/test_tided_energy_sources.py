# SPDX-License-Identifier: Apache-2.0
"""Readings that are handed to tided, and what stands in for a sensor that is away."""
import time

import power_fit
from daemon import eventually
from energy_daemon import busy, check_sum, known, power
from energy_daemon import world  # noqa: F401 (a fixture)


def hand_down(tided, **reading):
    return tided.api("POST", "/v1/power/readings", reading)


def test_a_plugs_watts_are_the_machines(world):  # noqa: F811
    _, tided = world({"intel-rapl:0": 10})
    tided.job()
    eventually(lambda: power(tided)["power"]["uw"])

    def plugged():
        assert hand_down(tided, name="plug1", uw=90_000_000, error_permille=10)[0] == 200
        p = power(tided)
        return p["power"]["uw"] == 90_000_000 and p
    p = eventually(plugged, pause=0.3)
    assert p["power"]["basis"] == "measured" and p["power"]["low_uw"] == 89_100_000
    check_sum(p)
    first = p["energy"]["uj"]
    p = eventually(lambda: plugged() and (p := power(tided))["energy"]["uj"] > first + 100e6 and p, pause=0.3)
    check_sum(p)
    sources = {s["name"]: s for s in tided.api("GET", "/v1/power/sources")[1]}
    assert sources["plug1"]["kind"] == "handed" and sources["plug1"]["used"]
    assert sources["plug1"]["part"] == "machine"


def taught(world, tree_watts, weights, *lines, beside, **more):
    """A daemon that has learnt from a meter for an hour."""
    tree, tided = world(tree_watts, *lines)
    assert tided.stop() == 0
    power_fit.write(tided.dir / "power-fit", tree.root, weights, power=lines[0][6:] if lines else "auto",
                    beside=beside, **more)
    tided.start()
    return tree, tided


def test_what_a_missing_sensor_taught_stands_in_for_it(world):  # noqa: F811
    """Not the packages' 10 W, which are a part of the machine's 40."""
    tree, tided = taught(world, {"intel-rapl:1": 40, "intel-rapl:0": 10}, (20.0, 2.0, 0.0, 0.0), beside=True)
    tided.job()
    assert known(tided)["power"]["basis"] == "measured"
    with tree.lock:
        (tree.folder("intel-rapl:1") / "energy_uj").unlink()
    p = eventually(lambda: (p := power(tided))["power"]["basis"] == "calibrated" and p)
    gap = p["energy"]["gap_ms"]
    first = p["energy"]["uj"]
    # 20 W and twice what the packages draw, within the errors of the forecasts and of the meter.
    p = eventually(lambda: (p := power(tided))["energy"]["uj"] > first + 100e6 and p)
    assert p["power"]["basis"] == "calibrated" and p["energy"]["gap_ms"] == gap
    assert 30e6 < p["power"]["uw"] < 50e6
    assert p["power"]["low_uw"] < 0.95 * p["power"]["uw"] and p["power"]["high_uw"] > 1.05 * p["power"]["uw"]
    check_sum(p)
    with tree.lock:
        tree.write("intel-rapl:1")
    eventually(lambda: power(tided)["power"]["basis"] == "measured")


def test_packages_that_go_with_the_sensor_leave_the_curve(world):  # noqa: F811
    """A factor learnt beside them is not used without them."""
    tree, tided = taught(world, {"intel-rapl:1": 40, "intel-rapl:0": 10}, (20.0, 2.0, 0.0, 0.0), beside=True)
    tided.job()
    assert known(tided)["power"]["basis"] == "measured"
    with tree.lock:
        for zone in tree.watts:
            (tree.folder(zone) / "energy_uj").unlink()
    p = eventually(lambda: (p := power(tided))["power"]["basis"] == "calibrated" and p)
    assert 19e6 < p["power"]["uw"] < 21e6  # the curve's idle power: the file has no slope by load


def put(path, text):
    """As a whole: nobody reads half of it."""
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").replace(path)


def test_watts_that_are_not_written_anew_are_no_new_reading(world):  # noqa: F811
    """They are not of the load's time: they teach nothing, and their energy counts on."""
    tree, tided = world({"intel-rapl:0": 10}, "power=file:/watts")
    watts = tree.root / "watts"
    put(watts, "83.5 W\n")
    tided.job()
    writes = 1
    for _ in range(2):
        p = eventually(lambda: (p := power(tided))["energy"]["uj"] and p)
        put(watts, "83.5 W\n")
        writes += 1
        # Twice as long as a counter may stand still.
        p = eventually(lambda: (now := power(tided))["energy"]["uj"] >= p["energy"]["uj"] + 12 * 83.5e6 and now, guard=60)
        assert p["power"]["uw"] == 83_500_000 and p["power"]["basis"] == "measured"
        check_sum(p)
    assert tided.stop() == 0
    assert 1 <= power_fit.samples(tided.dir / "power-fit") <= writes


def test_a_count_that_jumps_seldom_is_not_counted_beside_what_stands_in(world):  # noqa: F811
    """A kWh in steps of twelve seconds: after ten of them what was learnt tells the machine's watts."""
    tree, tided = taught(world, {"intel-rapl:0": 10}, (40.0, 0.0, 0.0, 0.0), "power=file:/count", beside=False)
    count, begin, step = tree.root / "count", time.monotonic(), 0
    tided.job()
    seen = []

    def jumped():
        nonlocal step
        if time.monotonic() - begin >= 12 * step:
            put(count, f"{40 * 12 * (step + 1) / 3.6e6:.9f} kWh\n")
            step += 1
        seen.append(power(tided))
        return step == 5
    eventually(jumped, pause=0.1, guard=90)
    check_sum(seen[-1])
    used = 40e6 * (time.monotonic() - begin)
    assert 0.6 * used < seen[-1]["energy"]["uj"] < 1.2 * used
    assert max(p["power"]["uw"] or 0 for p in seen) < 60e6
    assert tided.stop() == 0
    assert power_fit.samples(tided.dir / "power-fit") == 3600  # no jump has taught


def test_a_cap_is_kept_by_the_upper_bound_of_what_stands_in(world):  # noqa: F811
    tree, tided = taught(world, {"intel-rapl:1": 40, "intel-rapl:0": 10}, (20.0, 2.0, 0.0, 0.0), beside=True, error=0.25)
    tided.job()
    assert known(tided)["power"]["basis"] == "measured"
    with tree.lock:
        (tree.folder("intel-rapl:1") / "energy_uj").unlink()
    p = eventually(lambda: (p := power(tided))["power"]["basis"] == "calibrated" and p)
    assert p["power"]["uw"] < 45e6 and p["power"]["high_uw"] > 48e6
    assert tided.api("PUT", "/v1/power/cap", {"uw": 46_000_000})[0] in (200, 202)
    # It may draw more than 46 W: nobody says that the cap is kept.
    eventually(lambda: tided.api("GET", "/v1/power/cap")[1]["state"] == "over")


def test_between_readings_of_a_management_controller_the_watts_follow_the_load(world):  # noqa: F811
    """It told 90 W when nothing ran."""
    _, tided = taught(world, {"intel-rapl:0": 10}, (20.0, 0.0, 10.0, 0.0), "power=none", beside=False)
    process, _ = busy(tided)
    try:
        def told():
            assert hand_down(tided, name="bmc", uw=90_000_000, error_permille=10, slow=True)[0] == 200
            p = power(tided)["power"]
            return p["basis"] == "measured" and p["uw"] == 90_000_000
        eventually(told, pause=0.7)  # not in step with the samples of each second
        p = eventually(lambda: (p := power(tided)["power"])["basis"] == "calibrated" and p, pause=0.2)
        assert 25e6 < p["uw"] and p["uw"] != 90_000_000  # 20 W and 10 W a busy core
        total = power(tided)["energy"]
        eventually(told, pause=0.7)
        after = power(tided)["energy"]  # what is counted is the meter's alone
        assert after["basis"] == total["basis"] and after["gap_ms"] == total["gap_ms"]
    finally:
        process.kill()
        process.wait()


def test_a_plug_that_tells_0_watts_is_no_reading(world):  # noqa: F811
    _, tided = world({"intel-rapl:0": 10}, "power=none")
    tided.job()
    seen = []

    def hand(uw):
        assert hand_down(tided, name="plug1", uw=uw, error_permille=10)[0] == 200
        seen.append(power(tided)["power"]["uw"])
        return seen[-1]
    eventually(lambda: hand(90_000_000) == 90_000_000, pause=0.3)
    seen.clear()
    eventually(lambda: hand(0) is None, pause=0.3)
    assert 0 not in seen
    assert "0 W" in tided.api("GET", "/v1/power/sources")[1][0]["problem"]
    eventually(lambda: hand(80_000_000) == 80_000_000, pause=0.3)
    check_sum(power(tided))


def test_a_plugs_counter_counts_without_any_sensor(world):  # noqa: F811
    _, tided = world({"intel-rapl:0": 10}, "power=none")
    tided.job()
    uj = 5_000_000_000

    def go_on():
        nonlocal uj
        uj += 30_000_000
        assert hand_down(tided, name="meter", uj=uj)[0] == 200
        return (power(tided)["energy"]["uj"] or 0) >= 60_000_000
    eventually(go_on, pause=0.5)
    p = power(tided)
    check_sum(p)
    assert p["energy"]["uj"] <= uj - 5_000_000_000
    before = p["energy"]["uj"]
    assert hand_down(tided, name="meter", uj=77_000_000)[0] == 200  # it was reset
    uj = 77_000_000
    eventually(lambda: go_on() and power(tided)["energy"]["uj"] > before, pause=0.5)
    assert power(tided)["energy"]["uj"] < before + 3_600_000_000


def test_readings_that_are_none_are_refused(world):  # noqa: F811
    _, tided = world({"intel-rapl:0": 10}, "power=none")
    for reading, status, words in (
            ({"uw": 5}, 400, "name is ''"), ({"name": "a b", "uw": 5}, 400, "name is 'a b'"),
            ({"name": "x" * 64, "uw": 5}, 400, "use 1 to 63"), ({"name": "a"}, 400, "neither uj nor uw"),
            ({"name": "a", "uw": -5}, 400, "uw is no whole number"), ({"name": "a", "uw": 2.5}, 400, "whole number"),
            ({"name": "a", "uw": 1 << 41}, 400, "uw is above"),
            ({"name": "a", "uw": 5, "error_permille": 2000}, 400, "or error_permille above 1000"),
            ({"name": "a", "uw": 5, "covers": "room"}, 400, "covers must be"),
            ({"name": "a", "uw": 5, "time": 1000}, 409, "s old"), ({"name": "a", "watts": 5}, 400, "unknown field")):
        assert (answer := hand_down(tided, **reading))[0] == status, (reading, answer)
        assert words in answer[1]["error"]["message"], answer
    for i in range(8):
        assert hand_down(tided, name=f"m{i}", uw=5)[0] == 200
    assert hand_down(tided, name="m8", uw=5)[0] == 503
    assert power(tided)["energy"]["uj"] is None or power(tided)["energy"]["uj"] >= 0
