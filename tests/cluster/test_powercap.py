# SPDX-License-Identifier: Apache-2.0
"""The kernel's own powercap class with the plant's module behind it, in the machine of `image.py --plant`."""
import contextlib
import errno
import os
import pathlib
import signal
import stat
import subprocess
import sys
import time

import pytest

from daemon import eventually

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULE = ROOT / "build/tide_plant.ko"
CLASS = pathlib.Path("/sys/class/powercap")
TRUTH = pathlib.Path("/sys/kernel/debug/tide_plant")
SPEED = pathlib.Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")
NOBODY = 65534
sys.path.append(str(ROOT / "tests/plant"))

import plant_draw  # noqa: E402

pytestmark = pytest.mark.skipif(not MODULE.exists(), reason="tide_plant.ko is in machines of image.py --plant alone")
PARAMS = plant_draw.draw("vm", os.cpu_count(), "server")


def load(*options, params=None):
    numbers = ",".join(map(str, (params or PARAMS).values()))
    return subprocess.run(["insmod", MODULE, f"params={numbers}", *options], capture_output=True, text=True,
                          check=False)


@contextlib.contextmanager
def loaded(*options):
    if not TRUTH.parent.is_mount():
        subprocess.run(["mount", "-t", "debugfs", "debugfs", TRUTH.parent], check=True)
    done = load(*options)
    assert done.returncode == 0, done.stderr + "".join(
        subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout.splitlines(True)[-5:])
    try:
        yield
    finally:
        subprocess.run(["rmmod", "tide_plant"], check=True)


@pytest.fixture
def plant():
    with loaded("psys=1", "seed=7"):
        yield


def value(path):
    return int(pathlib.Path(path).read_text())


def watts(seconds=2.0, name="package_uj"):
    """The plant's own mean over some steps."""
    first = value(TRUTH / "time_ns"), value(TRUTH / name)
    time.sleep(seconds)
    last = value(TRUTH / "time_ns"), value(TRUTH / name)
    return (last[1] - first[1]) * 1000 / (last[0] - first[0])


@contextlib.contextmanager
def busy(n):
    spinners = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(n)]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


def test_zones_are_those_of_a_package_and_only_root_reads_energy(plant):
    names = {zone.name: (zone / "name").read_text().strip() for zone in CLASS.glob("intel-rapl:*")}
    assert names == {"intel-rapl:0": "package-0", "intel-rapl:0:0": "core", "intel-rapl:0:1": "dram",
                     "intel-rapl:1": "psys"}
    for zone in names:
        path = CLASS / zone / "energy_uj"
        assert stat.S_IMODE(path.stat().st_mode) == 0o400
        assert subprocess.run(["cat", path], user=NOBODY, capture_output=True).returncode != 0
    assert (CLASS / "intel-rapl:0/constraint_0_name").read_text() == "long_term\n"


def test_counters_show_the_plants_energy(plant):
    with open(CLASS / "intel-rapl:1/energy_uj", encoding="ascii") as file:
        before = value(TRUTH / "wall_uj")
        eventually(lambda: value(TRUTH / "wall_uj") > before + PARAMS["idle_uw"] // 2)
        low, shown, high = value(TRUTH / "wall_uj"), int(file.read()), value(TRUTH / "wall_uj")
    assert low <= shown <= high
    low, shown, high = (value(TRUTH / "package_uj"), value(CLASS / "intel-rapl:0/energy_uj"),
                        value(TRUTH / "package_uj"))
    assert low <= shown <= high
    assert watts(name="wall_uj") >= PARAMS["idle_uw"] / 1e6 * 0.9


def test_more_busy_cpus_draw_more(plant):
    idle = watts()
    with busy(os.cpu_count()):
        eventually(lambda: watts() > idle + PARAMS["core_uw"] / 1e6 / 2)


def test_a_limit_acts_until_it_is_lifted(plant):
    limit, enabled = CLASS / "intel-rapl:0/constraint_0_power_limit_uw", CLASS / "intel-rapl:0/enabled"
    before = value(limit)
    with busy(os.cpu_count()):
        eventually(lambda: watts(0.5) > PARAMS["package_idle_uw"] / 1e6 + PARAMS["core_uw"] / 1e6)
        uw = int((watts() * 1e6 + PARAMS["package_idle_uw"]) / 2)
        limit.write_text(str(uw))
        eventually(lambda: value(SPEED) < 1_900_000)
        eventually(lambda: watts() <= uw / 1e6 * 1.01)  # the speed comes down step by step
        enabled.write_text("0")
        eventually(lambda: value(SPEED) >= 2_000_000)
        enabled.write_text("1")
        limit.write_text(str(before))
        time.sleep(0.2)
        assert value(SPEED) >= 2_000_000
    assert value(SPEED.parent / "base_frequency") == 2_000_000


def power(tided):
    status, body = tided.api("GET", "/v1/power")
    assert status == 200, body
    return body


def test_tided_measures_through_the_kernels_class(plant, place, tmp_path):
    (tmp_path / "tide.conf").write_text("[daemon]\npower=powercap\n")
    tided = place.daemon("--engine", "none", "--config", tmp_path / "tide.conf").start()
    tided.job()  # without a job it looks at its sensors once a minute only
    status, sources = tided.api("GET", "/v1/power/sources")
    assert status == 200
    assert {s["name"]: s["problem"] for s in sources} == {
        "package-0": "", "package-0/core": "", "package-0/dram": "", "psys": ""}
    eventually(lambda: power(tided)["power"]["uw"])
    first, before = power(tided), value(TRUTH / "wall_uj")
    # Long enough that a tick of a second more or less at either end is little of it.
    eventually(lambda: value(TRUTH / "wall_uj") - before > PARAMS["idle_uw"] * 12)
    last, after = power(tided), value(TRUTH / "wall_uj")
    assert last["energy"]["uj"] - first["energy"]["uj"] == pytest.approx(after - before, rel=0.2)
    assert last["power"]["basis"] == "measured"
    assert sum(part["uj"] or 0 for part in last["parts"].values()) == last["energy"]["uj"]


def capped(tided, uw):
    status, answer = tided.api("PUT", "/v1/power/cap", {"uw": uw})
    assert status in (200, 202), answer


def test_tided_sets_the_kernels_limit_for_a_cap_and_gives_it_back(plant, place, tmp_path):
    """On the real class: the limit that tided writes acts on the plant, and is what it was once the cap is lifted, and
    when tided is killed."""
    limit = CLASS / "intel-rapl:0/constraint_0_power_limit_uw"
    own, seen = value(limit), []
    (tmp_path / "tide.conf").write_text("[daemon]\npower=powercap\n")
    tided = place.daemon("--engine", "none", "--config", tmp_path / "tide.conf").start()
    with busy(os.cpu_count()):
        tided.job()
        full = eventually(lambda: power(tided)["power"]["uw"])
        eventually(lambda: watts(0.5) > PARAMS["package_idle_uw"] / 1e6 + PARAMS["core_uw"] / 1e6)
        full = max(full, int(watts(name="wall_uj") * 1e6))
        # Half of that was less than the plant draws at its lowest speed, once it is warm.
        cap = full - (full - PARAMS["idle_uw"]) // 4
        capped(tided, cap)
        eventually(lambda: value(limit) < min(own, cap))

        def acts():
            """The plant draws what the limit says, which tided sets anew from what it measures."""
            seen.append((value(limit), int(watts() * 1e6), value(limit)))
            most = max(seen[-1][0], seen[-1][2])
            return most < min(own, cap) and seen[-1][1] <= most * 1.02 and value(SPEED) < 2_000_000
        try:
            eventually(acts)
        except AssertionError as error:
            raise AssertionError(f"{error}; own {own}, cap {cap}, of {full}: limit, drawn, limit: {seen}") from error
        assert tided.api("DELETE", "/v1/power/cap")[0] == 200
        eventually(lambda: value(limit) == own)
        eventually(lambda: value(SPEED) >= 2_000_000)
        capped(tided, cap)
        eventually(lambda: value(limit) < min(own, cap))
        tided.signal(signal.SIGKILL)
        eventually(lambda: value(limit) == own)  # the guardian


PARAMETERS = pathlib.Path("/sys/module/tide_plant/parameters")


def board(what):
    (PARAMETERS / "board_uw").write_text(str(what))


def told(tided, uw):
    """Watts go through the energy of an interval and back: not to the last microwatt."""
    now = power(tided)["power"]
    return now["basis"] == "measured" and abs(now["uw"] - uw) < 100


def unknown(tided):
    """Its watts are measured no more, and at no moment until then 0. Returns what the source's problem is.

    What enough readings have taught stands in for the source; before that they are unknown."""
    seen = []
    eventually(lambda: seen.append(power(tided)["power"]) or seen[-1]["uw"] is None or seen[-1]["basis"] != "measured")
    assert 0 not in [s["uw"] for s in seen]
    return tided.api("GET", "/v1/power/sources")[1][0]["problem"]


def test_tided_reads_watts_of_a_chip_of_the_hwmon_class(place, tmp_path):
    (tmp_path / "tide.conf").write_text("[daemon]\npower=hwmon:tide_board\n")
    with loaded("board=tide_board"):
        assert "tide_board\n" in {chip.read_text() for chip in pathlib.Path("/sys/class/hwmon").glob("*/name")}
        tided = place.daemon("--engine", "none", "--config", tmp_path / "tide.conf").start()
        tided.job()
        eventually(lambda: power(tided)["power"]["uw"])
        sources = tided.api("GET", "/v1/power/sources")[1]
        assert [(s["name"], s["problem"]) for s in sources] == [("tide_board/power1", "")]
        first, before = power(tided), value(TRUTH / "wall_uj")
        eventually(lambda: value(TRUTH / "wall_uj") - before > PARAMS["idle_uw"] * 12)
        last, after = power(tided), value(TRUTH / "wall_uj")
        assert last["energy"]["uj"] - first["energy"]["uj"] == pytest.approx(after - before, rel=0.25)
        assert last["power"]["basis"] == "measured"
        board(61_000_000)
        eventually(lambda: told(tided, 61_000_000))
        board(0)  # a chip that has measured nothing yet
        assert "0 W" in unknown(tided)
        gap = power(tided)["energy"]["gap_ms"]
        board(-61_000_000)  # current flows the other way, or a register's sign was mistaken
        eventually(lambda: "no amount" in unknown(tided))
        board(10**18)  # 1 TW: a lie
        eventually(lambda: unknown(tided) == "")
        eventually(lambda: power(tided)["energy"]["gap_ms"] > gap)
        board(61_000_000)
        eventually(lambda: told(tided, 61_000_000))
        for error, words in ((errno.ENODATA, "0 W"), (errno.EIO, "error"), (errno.ETIMEDOUT, "timed out")):
            (PARAMETERS / "board_error").write_text(str(error))  # the value of before is stale: not shown any more
            assert words in unknown(tided)
            (PARAMETERS / "board_error").write_text("0")
            eventually(lambda: told(tided, 61_000_000))
    assert "driver is gone" in unknown(tided) or "no such file" in unknown(tided)
    with loaded("board=tide_board"):
        eventually(lambda: power(tided)["power"]["uw"])


def test_a_chip_that_nobody_named_is_not_the_machine(place, tmp_path):
    (tmp_path / "tide.conf").write_text("[daemon]\npower=hwmon\n")
    with loaded("board=tide_board"):
        tided = place.daemon("--engine", "none", "--config", tmp_path / "tide.conf").start()
        tided.job()
        eventually(lambda: any(s["uw"] for s in tided.api("GET", "/v1/power/sources")[1]))
        assert power(tided)["power"]["uw"] is None
    with loaded("board=power_meter"):  # ACPI's chip at the power supply
        tided = place.daemon("--engine", "none", "--config", tmp_path / "tide.conf").start()
        tided.job()
        eventually(lambda: power(tided)["power"]["uw"])


def test_counters_begin_anew_after_their_largest_value():
    with loaded("psys=1", "wrap_uj=29999999"):
        assert value(CLASS / "intel-rapl:1/max_energy_range_uj") == 29999999
        last, falls = 0, 0
        while falls < 2:
            now = value(CLASS / "intel-rapl:1/energy_uj")
            assert now <= 29999999
            falls += now < last
            last = now
            time.sleep(0.02)
        assert value(TRUTH / "wall_uj") > 29999999
    assert not (CLASS / "intel-rapl:0").exists()


def test_parameters_out_of_bounds_are_refused():
    assert load(params={**PARAMS, "turbo_permille": 999}).returncode != 0
    assert load(params=dict(list(PARAMS.items())[:-1])).returncode != 0
    assert not CLASS.joinpath("intel-rapl").exists()
