# SPDX-License-Identifier: Apache-2.0
"""The demo of energy: its own parts, and the whole building in short, without TensorFlow."""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

from daemon import eventually

DEMO = pathlib.Path(__file__).resolve().parents[2] / "demo"
sys.path.insert(0, str(DEMO))

import energy_building
import energy_sides
import rig

SPIN = "while True: pass"


def test_steps_between_two_lines_are_by_proportion():
    steps = [(100.0, 10), (110.0, 30), (120.0, 40)]
    assert energy_sides.step_at(steps, 105.0) == 20
    assert energy_sides.step_at(steps, 120.0) == 40
    assert energy_sides.step_at(steps, 500.0) == 40


class Counter(energy_sides.Watts):
    """Figures that are given, one a second."""

    def __init__(self, watts):
        super().__init__(None)
        self.samples, joules = [(0.0, 0)], 0
        for i, each in enumerate(watts):
            joules += each * 1e6
            self.samples.append((i + 1.0, joules))


def test_a_cap_is_judged_in_windows_of_ten_seconds():
    kept = Counter([30] * 10 + [45] + [25] * 20)
    above, worst = kept.seconds_above(0, 31, 35)
    assert (above, worst) == (0, 0)
    broken = Counter([30] * 10 + [60] * 5 + [30] * 16)
    above, worst = broken.seconds_above(0, 31, 35)
    assert above >= 10 and worst == pytest.approx(100 * (45 / 35 - 1))
    assert broken.joules(0, 31) == pytest.approx(26 * 30 + 5 * 60)


def test_work_is_told_against_the_evening_without_a_cap():
    free = energy_sides.Evening("free", [10.0, 2.0], [10.0, 2.0], 0.001, 0, 0.0)
    half = energy_sides.Evening("half", [10.0, 2.0], [5.0, 1.0], 0.0005, 3, 1.5)
    head, first, second = energy_sides.table([free, half])
    assert first[1:4] == ("100 %", "100 %", "1.00 Wh") and second[1:6] == ("100 %", "50 %", "0.50 Wh", "3", "1.5 %")
    assert len(head) == len(first)


def test_the_load_of_other_programs_is_without_the_trainings():
    spinner = Spinner()
    try:
        eventually(lambda: spinner.used_ns() > 100_000_000)
        everything, others = energy_sides.Others([]), energy_sides.Others([spinner])
        used = spinner.used_ns()
        eventually(lambda: spinner.used_ns() - used > 1_000_000_000)
        assert everything.cores() - others.cores() > 0.1
    finally:
        spinner.process.kill()
        spinner.process.wait()


class Spinner(energy_sides.Training):
    def __init__(self):
        self.process = subprocess.Popen([sys.executable, "-c", SPIN])


def test_the_limiter_holds_a_program_to_its_part_and_lets_it_go():
    spinner = Spinner()
    try:
        eventually(lambda: spinner.used_ns() > 100_000_000)
        limiter = energy_sides.Limiter([spinner], 0.1)
        limiter.start()
        begin, used = time.monotonic(), spinner.used_ns()
        eventually(lambda: time.monotonic() - begin > 3)
        assert spinner.used_ns() - used <= 0.2 * (time.monotonic() - begin) * 1e9
        limiter.end()
        state = pathlib.Path(f"/proc/{spinner.process.pid}/stat")
        eventually(lambda: state.read_text().rsplit(")", 1)[1].split()[0] != "T")
    finally:
        spinner.process.send_signal(signal.SIGCONT)
        spinner.process.kill()
        spinner.process.wait()


# ---- the building ----

TOOLS = ("openssl", "mosquitto_sub")
FLOOR, CAP = 24, 30
MODEL = "points:20,24,32,40"


@pytest.mark.skipif(bool(rig.missing()) or not all(map(shutil.which, TOOLS)), reason="mosquitto, paho or openssl are missing")
def test_an_evening_with_less_power(build_dir, tmp_path):
    """At 18:00 the cap falls from the hub's policy to the node's jobs, which go on; the empty office's lights go off; the
    hub is killed and misses nothing."""
    if not (build_dir / "tide-hub").exists() or not (build_dir / "tests/plant/plant_meter").exists():
        pytest.skip("tide-hub or the plant was not built")
    things = []

    def keep(thing):
        things.append(thing)
        return thing
    try:
        meter = keep(rig.Meter(build_dir, tmp_path / "plant", "demo", "--psys", kind="desktop"))
        clock = energy_building.Clock(tmp_path)
        clock.set(3600)
        folder = tmp_path / "tided"
        (folder / "claims").mkdir(parents=True)
        (folder / "tide.conf").write_text(f"[daemon]\npower=none\npower-model={MODEL}\n")
        env = {**os.environ, "TIDE_DIR": str(folder / "run"), "TIDE_CLAIMS_DIR": str(folder / "claims")}
        keep(energy_building.Program([build_dir / "tided", "--dir", folder / "run", "--engine", "none", "--cpus", "0-15",
                                      "--config", folder / "tide.conf"], folder / "log", env))
        eventually((folder / "run/api.sock").exists)
        building = keep(energy_building.Building(build_dir, tmp_path, meter, (FLOOR, CAP), clock.path))
        building.begin()
        building.link_node(folder / "run/api.sock")
        job = keep(energy_building.Program([build_dir / "tide", "run", "--max", "16", "--name", "train", "--",
                                            build_dir / "tests/component/pool", "16"], folder / "job", env))

        def threads():
            done = subprocess.run([build_dir / "tide", "ps", "--json"], env=env, capture_output=True, text=True, check=True)
            jobs = energy_building.json.loads(done.stdout)
            return jobs[0]["active"] if jobs else 0
        eventually(lambda: threads() == 16)
        assert building.lights_on("office") is True
        clock.set(-1)
        eventually(lambda: 1 <= threads() < 16, pause=0.3)
        building.leave("office")
        eventually(lambda: building.lights_on("office") is False, pause=0.3)
        assert building.lights_on("hall") is True
        lights = ("hall", "meter:lights")
        eventually(lambda: building.stored().get(lights, (None,))[0], pause=0.5)
        building.kill_hub()
        before = building.stored()[lights]
        time.sleep(3)
        building.serve_hub()
        after = eventually(lambda: (now := building.stored()[lights])[2] > before[2] + 15 and now, guard=60, pause=0.5)
        kwh = energy_building.LIGHTS_W["hall"] * (after[2] - before[2]) / 3.6e6
        assert after[0] - before[0] == pytest.approx(kwh, rel=0.15)  # records end between two figures of the plug
        assert job.process.poll() is None
    finally:
        for thing in reversed(things):
            thing.end()
