# SPDX-License-Identifier: Apache-2.0
"""tided measures the machine's energy and divides it: on a tree of powercap files that the test moves on."""
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

from daemon import eventually
from energy_daemon import busy, check_sum, conf, energy, known, power
from energy_daemon import world  # noqa: F401 (a fixture)


def test_the_parts_are_the_machine_at_every_sample(world):  # noqa: F811
    tree, tided = world({"intel-rapl:1": 40})
    process, _ = busy(tided)
    try:
        before, seen = known(tided), set()
        end = time.monotonic() + 4
        while time.monotonic() < end:
            p = power(tided)
            check_sum(p)
            seen.add(p["energy"]["uj"])
            time.sleep(0.05)
        assert len(seen) > 2  # it moved
        assert p["power"]["basis"] == "measured"
        # The tree's own account of 40 W; the daemon's clock and the tree's are the same.
        assert 20e6 < p["power"]["uw"] < 80e6
        assert p["energy"]["uj"] <= tree.used["intel-rapl:1"]
        # Without a model nobody knows what a part of it is; readings of several loads teach one later.
        assert before["parts"]["unattributed"]["uj"] == before["energy"]["uj"]
        assert before["parts"]["idle"]["uj"] is None and before["parts"]["jobs"]["uj"] is None
        assert p["load"]["mcpu"] >= 500 and before["energy"]["gap_ms"] == p["energy"]["gap_ms"]
    finally:
        process.kill()
        process.wait()


def test_with_a_model_a_job_has_its_share(world, place):  # noqa: F811
    tree, tided = world({"intel-rapl:1": 40}, "power-model=points:20,60")
    process, job = busy(tided)
    idler = tided.job()
    try:
        def shown():
            check_sum(power(tided))
            j = tided.api("GET", f"/v1/jobs/{job}")[1]
            return j["power_uw"] is not None and j
        j = eventually(shown, pause=0.2)  # at the end of the first ten seconds
        assert 0 < j["energy_low_uj"] <= j["energy_uj"] <= j["energy_high_uj"] and j["power_uw"] > 0
        assert j["power_low_uw"] <= j["power_uw"] <= j["power_high_uw"] and j["power_basis"] == j["energy_basis"]
        assert j["energy_basis"] in ("modelled", "calibrated")
        parts = power(tided)["parts"]
        assert parts["idle"]["uj"] > 0 and parts["jobs"]["uj"] >= j["energy_uj"]
        assert (idler.get()["energy_uj"] or 0) < j["energy_uj"] / 4
        rows = {row["key"]: row for row in energy(tided)["rows"]}
        assert rows[job]["uj"] >= j["energy_uj"] and rows[job]["owner"]
        assert rows[job]["uj"] <= {r["key"]: r for r in energy(tided, "?by=part")["rows"]}["jobs"]["uj"]
        (user,) = energy(tided, "?by=user")["rows"]
        assert user["uj"] >= rows[job]["uj"]
        env = {**os.environ, "TIDE_DIR": str(tided.dir)}
        tide = place.program.parent / "tide"
        listed = subprocess.run([tide, "ps", "--power"], env=env, capture_output=True, text=True, check=True).stdout
        assert " W " in next(line for line in listed.splitlines() if line.startswith(job + " ")), listed
        screen = subprocess.run([tide, "top"], env=env, capture_output=True, text=True, check=True).stdout
        assert re.search(r"^ID .* POWER +ENERGY ", screen, re.M) and re.search(rf"^{job} .* W .* (J|Wh) ", screen, re.M), screen
        told = subprocess.run([tide, "energy", "--by", "part"], env=env, capture_output=True, text=True).stdout
        assert [line.split()[0] for line in told.splitlines()][:3] == ["PART", "machine", "jobs"], told
        assert f'tide_job_energy_joules_total{{job="{job}"' in (text := tided.metrics())
        assert '\nkepler_node_cpu_idle_joules_total{zone="machine"} ' in text
        assert '\nkepler_node_cpu_active_joules_total{zone="machine"} ' in text
        # It outlives the daemon.
        assert tided.stop() == 0
        tided.start()
        again = tided.api("GET", f"/v1/jobs/{job}")[1]
        assert again["energy_uj"] >= j["energy_uj"] and again["energy_gap_ms"] > 0
        eventually(lambda: tided.api("GET", f"/v1/jobs/{job}")[1]["energy_uj"] > again["energy_uj"], pause=0.5)
    finally:
        process.kill()
        process.wait()


def test_packages_are_a_lower_bound_of_the_machine(world):  # noqa: F811
    _, tided = world({"intel-rapl:0": 30, "intel-rapl:0:0": 5})
    p = known(tided)
    assert p["power"]["basis"] == "modelled" and p["power"]["high_uw"] >= 2 * p["power"]["uw"]
    sources = {s["name"]: s for s in tided.api("GET", "/v1/power/sources")[1]}
    assert set(sources) == {"package-0", "package-0/dram"}
    assert all(s["used"] and not s["problem"] for s in sources.values())
    assert sources["package-0/dram"]["part"] == "dram"


def test_a_person_sees_the_sources_and_the_parts(world, place):  # noqa: F811
    tree, tided = world({"intel-rapl:1": 40, "intel-rapl:0": 30}, "power-model=points:20,60")
    known(tided)

    def tide(*words):
        return subprocess.run([place.program.parent / "tide", "power", *words], capture_output=True, text=True,
                              env={**os.environ, "TIDE_DIR": str(tided.dir)}, check=True).stdout
    rows = {line.split()[0]: line.split() for line in tide("--sources").splitlines()}
    assert rows["psys"][:3] == ["psys", "powercap", "psys"] and rows["psys"][-1] == "yes"
    assert rows["package-0"][-1] == "no"
    assert json.loads(tide("--sources", "--json"))[0]["name"]
    eventually(lambda: "idle" in tide() and "since tided counts" in tide())
    doctor = subprocess.run([place.program.parent / "tide", "doctor", "--json"], capture_output=True, text=True,
                            env={**os.environ, "TIDE_DIR": str(tided.dir)}).stdout
    checks = {check["name"]: check["text"] for check in json.loads(doctor)["checks"]}
    assert checks["power"] == "watts are told by psys"
    (tree.folder("intel-rapl:1") / "energy_uj").write_text("?\n")
    tree.end()
    (tree.folder("intel-rapl:1") / "energy_uj").write_text("?\n")
    eventually(lambda: "its text is no amount" in tide("--sources"), pause=0.3)


def test_without_a_sensor_nothing_is_zero(world, place):  # noqa: F811
    _, tided = world({"intel-rapl:1": 40}, "power=none")
    job = tided.job()
    p = power(tided)
    assert p["power"] == {"uw": None, "low_uw": None, "high_uw": None, "basis": "unknown"}
    assert p["energy"]["uj"] is None
    assert tided.api("GET", "/v1/power/sources") == (200, [])
    done = subprocess.run([place.program.parent / "tide", "power", "--sources"], capture_output=True, text=True,
                          env={**os.environ, "TIDE_DIR": str(tided.dir)}, check=True)
    assert done.stdout.startswith("No source of watts") and "power=file:/PATH" in done.stdout
    assert all(job.get()[key] is None for key in ("power_uw", "power_low_uw", "power_high_uw", "power_basis")) and job.get()["energy_uj"] is None


def test_a_wrap_is_no_gap_and_loses_nothing(world):  # noqa: F811
    begin = 65_532_610_987 - 100_000_000
    tree, tided = world({"intel-rapl:1": 40}, begin={"intel-rapl:1": begin})
    tided.job()
    known(tided)
    assert tree.uj["intel-rapl:1"] > begin  # 100 J before the end of its range
    eventually(lambda: tree.uj["intel-rapl:1"] < begin)
    p = eventually(lambda: (p := power(tided))["energy"]["uj"] > 110e6 and p)
    check_sum(p)
    assert p["energy"]["gap_ms"] == 0
    assert p["energy"]["uj"] <= tree.used["intel-rapl:1"]


def test_a_counter_that_begins_anew_is_a_gap(world):  # noqa: F811
    tree, tided = world({"intel-rapl:1": 40}, begin={"intel-rapl:1": 30_000_000_000})
    tided.job()
    before = known(tided)
    tree.set("intel-rapl:1", 5_000_000_000)
    after = eventually(lambda: (p := power(tided))["energy"]["gap_ms"] > 0 and p)
    check_sum(after)
    assert after["energy"]["uj"] - before["energy"]["uj"] < 1000e6  # none of the 25,000 J
    eventually(lambda: power(tided)["energy"]["uj"] > after["energy"]["uj"])


def test_a_sensor_that_goes_and_comes_back(world):  # noqa: F811
    tree, tided = world({"intel-rapl:1": 40})
    tided.job()
    known(tided)
    path = tree.folder("intel-rapl:1") / "energy_uj"
    with tree.lock:
        path.unlink()
    eventually(lambda: power(tided)["power"]["uw"] is None)
    assert tided.api("GET", "/v1/power/sources")[1][0]["problem"] == "there is no such file"
    with tree.lock:
        tree.write("intel-rapl:1")
    p = known(tided)
    assert p["energy"]["gap_ms"] > 0
    check_sum(p)


def test_a_counter_that_stands_still_is_never_0_watts(world):  # noqa: F811
    """As virtual machines have it that show a register nobody fills."""
    tree, tided = world({"intel-rapl:1": 0})
    tided.job()
    seen = []
    p = eventually(lambda: seen.append(power(tided)) or seen[-1]["energy"]["gap_ms"] > 8_000 and seen[-1], guard=60)
    assert {p["power"]["uw"] for p in seen} == {None} and p["energy"]["uj"] is None
    with tree.lock:
        tree.watts["intel-rapl:1"] = 40
    assert known(tided)["power"]["uw"] > 0
    with tree.lock:
        tree.watts["intel-rapl:1"] = 0
    before = power(tided)["energy"]["gap_ms"]
    seen = []
    eventually(lambda: seen.append(power(tided)) or seen[-1]["energy"]["gap_ms"] > before, guard=60)
    assert 0 not in {p["power"]["uw"] for p in seen}
    check_sum(seen[-1])


def test_a_coarse_counter_loses_nothing(world):  # noqa: F811
    """It moves in steps of 100 J, one in two and a half seconds."""
    tree, tided = world({"intel-rapl:1": 40})
    write = tree.write

    def coarse(zone):
        fine, tree.uj[zone] = tree.uj[zone], tree.uj[zone] // 100e6 * 100e6
        write(zone)
        tree.uj[zone] = fine
    tree.write = coarse
    tided.job()
    seen = []
    eventually(lambda: seen.append(power(tided)) or (seen[-1]["energy"]["uj"] or 0) > 500e6, guard=60)
    # A step that is seen late on a busy machine is followed by one that seems to come early.
    watts = sorted({p["power"]["uw"] for p in seen} - {None})
    assert 0 not in watts and watts[len(watts) // 2] < 80e6
    assert seen[-1]["energy"]["uj"] <= tree.used["intel-rapl:1"] + 100e6
    # Until the tree became coarse it told what is finer: that may fall once, by less than a step.
    assert len({p["energy"]["gap_ms"] for p in seen if (p["energy"]["uj"] or 0) > 100e6}) == 1
    check_sum(seen[-1])


def test_a_file_tells_watts(world, place):  # noqa: F811
    watts = place.base / "watts"
    watts.write_text("83.5 W\n")
    _, tided = world({"intel-rapl:0": 10}, f"power=file:{watts}", "power-root=/")
    tided.job()
    p = known(tided)
    assert abs(p["power"]["uw"] - 83_500_000) < 1000 and p["power"]["basis"] == "measured"
    watts.write_text("nan\n")
    eventually(lambda: power(tided)["power"]["uw"] is None)
    assert "no amount" in tided.api("GET", "/v1/power/sources")[1][0]["problem"]
    watts.write_text("83.5 W\n")
    known(tided)
    watts.write_text("0 W\n")
    eventually(lambda: power(tided)["power"]["uw"] is None)
    assert "0 W" in tided.api("GET", "/v1/power/sources")[1][0]["problem"]


def test_a_chip_that_nobody_named_tells_its_watts_and_is_not_the_machine(world, place):  # noqa: F811
    chip = place.base / "root0/sys/class/hwmon/hwmon0"
    chip.mkdir(parents=True)
    (chip / "name").write_text("ltc4215\n")
    (chip / "power1_input").write_text("61000000\n")
    _, tided = world({}, "power=hwmon")
    tided.job()
    source = eventually(lambda: (s := tided.api("GET", "/v1/power/sources")[1][0])["uw"] and s)
    assert (source["uw"], source["used"]) == (61_000_000, False)
    assert power(tided)["power"]["uw"] is None
    (chip / "power1_input").write_text("0\n")
    eventually(lambda: tided.api("GET", "/v1/power/sources")[1][0]["uw"] is None)


def test_a_sensor_costs_one_read_a_second_and_stays_open(world, place):  # noqa: F811
    _, tided = world({"intel-rapl:0": 40, "intel-rapl:0:0": 5, "intel-rapl:1": 60})
    tided.job()
    known(tided)
    calls = place.base / "calls"
    tracer = subprocess.Popen(["strace", "-f", "-y", "-e", "trace=%desc,%file", "-o", calls, "-p",
                               str(tided.process.pid)], stderr=subprocess.PIPE, text=True)
    said = tracer.stderr.readline()
    if "attached" not in said:
        tracer.wait(30)
        pytest.skip(f"strace cannot trace here: {said.strip()}")
    eventually(lambda: calls.read_text().count("intel-rapl:1/energy_uj>") >= 10)
    tracer.terminate()
    tracer.wait(30)
    tracer.stderr.close()
    found = re.findall(r"^\d+ +(\w+)\(.*powercap/(intel-rapl[:\d]+)/", calls.read_text(), re.MULTILINE)
    # In a real tree nothing is asked about the file either: sysfs replaces none.
    assert {call for call, _ in found} <= {"pread64", "newfstatat", "fstat"}
    reads = [zone for call, zone in found if call == "pread64"]
    assert len({reads.count(zone) for zone in ("intel-rapl:0", "intel-rapl:0:0")}) == 1


def test_two_packages_and_their_memory_are_the_machine(world):  # noqa: F811
    begin = 65_532_610_987 - 200_000_000  # 200 J before the end of one's range, which costs the sum nothing
    tree, tided = world({"intel-rapl:0": 40, "intel-rapl:0:0": 5, "intel-rapl:2": 30}, begin={"intel-rapl:2": begin})
    tided.job()
    eventually(lambda: known(tided)["power"]["uw"] == pytest.approx(75e6, rel=0.2))  # two readings of each
    assert known(tided)["power"]["basis"] == "modelled"
    used = {s["name"] for s in tided.api("GET", "/v1/power/sources")[1] if s["used"]}
    assert used == {"package-0", "package-0/dram", "package-1"}
    before = eventually(lambda: (e := power(tided)["energy"])["uj"] and e)
    assert tree.uj["intel-rapl:2"] > begin
    eventually(lambda: tree.uj["intel-rapl:2"] < begin)
    wrapped = power(tided)["energy"]["uj"]
    after = eventually(lambda: (p := power(tided))["energy"]["uj"] > wrapped + 150e6 and p)
    assert after["energy"]["gap_ms"] == before["gap_ms"]
    check_sum(after)


def test_the_account_outlives_the_daemon(world):  # noqa: F811
    _, tided = world({"intel-rapl:1": 40})
    tided.job()
    before = eventually(lambda: (p := known(tided))["energy"]["uj"] and p)
    assert tided.stop() == 0
    tided.start()
    after = known(tided)
    assert after["energy"]["uj"] >= before["energy"]["uj"]
    assert after["energy"]["gap_ms"] > before["energy"]["gap_ms"]  # nobody read it meanwhile
    check_sum(after)


def test_what_a_model_would_have_said_while_its_process_was_dead_is_a_gap(place):
    """Nothing but a model, near 50 W whatever runs: what it tells and the gap are the whole time, and what nobody told is gap."""
    path = place.base / "tide.conf"
    path.write_text("[daemon]\npower=none\npower-model=points:50,51\n")
    path.chmod(0o644)
    begun = time.monotonic()
    tided = place.daemon("--cpus", "0-1", "--config", path).start()
    tided.job()
    eventually(lambda: (power(tided)["energy"]["uj"] or 0) > 100e6)
    lived = time.monotonic() - begun
    tided.signal(signal.SIGKILL)
    time.sleep(6)
    tided.start()
    tided.job()
    again = time.monotonic()
    before = power(tided)["energy"]["uj"] or 0
    after = eventually(lambda: (p := power(tided))["energy"]["uj"] and p["energy"]["uj"] > before + 100e6 and p)
    told_s, gap_s, all_s = after["energy"]["uj"] / 50.5e6, after["energy"]["gap_ms"] / 1000, time.monotonic() - begun
    assert gap_s >= 6
    assert told_s <= lived + (time.monotonic() - again) + 2, "energy of a time in which nobody lived"
    assert told_s + gap_s == pytest.approx(all_s, abs=3)


def test_a_daemon_without_jobs_answers_with_what_is_now(world):  # noqa: F811
    tree, tided = world({"intel-rapl:1": 40})
    known(tided)  # asking has it read
    tree.watts["intel-rapl:1"] = 400
    eventually(lambda: power(tided)["power"]["uw"] > 200e6)


def test_metrics_have_keplers_names_and_no_line_for_what_is_unknown(world):  # noqa: F811
    _, tided = world({"intel-rapl:1": 40})
    tided.job()
    known(tided)
    text = tided.metrics()
    assert 'kepler_node_cpu_joules_total{zone="psys",path="/sys/class/powercap/intel-rapl:1",node_name="' in text
    assert 'tide_machine_energy_joules_total{part="machine",bound="value",basis="measured"} ' in text
    assert 'tide_machine_power_watts{bound="high",basis="measured"} ' in text
    assert 'part="idle"' not in text  # no model
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs/reference-metrics.md").read_text()
    assert not [name for name in re.findall(r"^# TYPE (\S+)", text, re.M) if not name.startswith("process_") and f"`{name}`" not in page]
    tided.stop()
    tided.options = (*tided.options[:-1], tided.options[-1].with_name("none.conf"))
    tided.options[-1].write_text("[daemon]\npower=none\n")
    (tided.dir / "energy").unlink()
    tided.start()
    text = tided.metrics()
    assert "tide_energy_gap_seconds_total 0\n" in text
    assert "\ntide_machine_power_watts{" not in text and "\nkepler_node_cpu_watts{" not in text


def test_a_mistake_in_the_keys_is_named(place):
    for line, words in (("power=ipmi", "'ipmi' is no sensor: use auto, none, powercap"),
                        ("power=file:watts", "file:/PATH"),
                        ("power-root=here", "absolute path")):
        path = conf(place, "/", line)
        done = subprocess.run([place.program, "--check-config", "--config", path], capture_output=True, text=True)
        assert done.returncode == 2 and words in done.stderr, done.stderr
    daemon = place.daemon("--config", conf(place, place.base / "nowhere"))
    daemon.start(ready=False)
    assert daemon.process.wait(30) == 1
    assert "power-root: cannot open" in daemon.log.read_text()
    daemon.process = None
