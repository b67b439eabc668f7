# SPDX-License-Identifier: Apache-2.0
"""tided measures the machine's energy and divides it: on a tree of powercap files that the test moves on."""
import sqlite3
import pathlib
import json
import os
import re
import subprocess
import sys
import time

import pytest

import power_fit
from daemon import eventually
from power_tree import PowerTree

OWNER, OTHER = 61001, 61002  # users without a name
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


def test_the_parts_are_the_machine_at_every_sample(world):
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


def test_with_a_model_a_job_has_its_share(world, place):
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
        told = subprocess.run([tide, "energy", "--by", "part"], env=env, capture_output=True, text=True).stdout
        assert [line.split()[0] for line in told.splitlines()][:3] == ["PART", "machine", "jobs"], told
        assert f'tide_job_energy_joules_total{{job="{job}"' in (text := metrics(tided))
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


def test_packages_are_a_lower_bound_of_the_machine(world):
    _, tided = world({"intel-rapl:0": 30, "intel-rapl:0:0": 5})
    p = known(tided)
    assert p["power"]["basis"] == "modelled" and p["power"]["high_uw"] >= 2 * p["power"]["uw"]
    sources = {s["name"]: s for s in tided.api("GET", "/v1/power/sources")[1]}
    assert set(sources) == {"package-0", "package-0/dram"}
    assert all(s["used"] and not s["problem"] for s in sources.values())
    assert sources["package-0/dram"]["part"] == "dram"


def test_a_person_sees_the_sources_and_the_parts(world, place):
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


def test_without_a_sensor_nothing_is_zero(world, place):
    _, tided = world({"intel-rapl:1": 40}, "power=none")
    job = tided.job()
    p = power(tided)
    assert p["power"] == {"uw": None, "low_uw": None, "high_uw": None, "basis": "unknown"}
    assert p["energy"]["uj"] is None
    assert tided.api("GET", "/v1/power/sources") == (200, [])
    done = subprocess.run([place.program.parent / "tide", "power", "--sources"], capture_output=True, text=True,
                          env={**os.environ, "TIDE_DIR": str(tided.dir)}, check=True)
    assert done.stdout.startswith("No source of watts") and "power=file:/PATH" in done.stdout
    assert job.get()["power_uw"] is None and job.get()["energy_uj"] is None


def test_a_wrap_is_no_gap_and_loses_nothing(world):
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


def test_a_counter_that_begins_anew_is_a_gap(world):
    tree, tided = world({"intel-rapl:1": 40}, begin={"intel-rapl:1": 30_000_000_000})
    tided.job()
    before = known(tided)
    tree.set("intel-rapl:1", 5_000_000_000)
    after = eventually(lambda: (p := power(tided))["energy"]["gap_ms"] > 0 and p)
    check_sum(after)
    assert after["energy"]["uj"] - before["energy"]["uj"] < 1000e6  # none of the 25,000 J
    eventually(lambda: power(tided)["energy"]["uj"] > after["energy"]["uj"])


def test_a_sensor_that_goes_and_comes_back(world):
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


def test_a_counter_that_stands_still_is_never_0_watts(world):
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


def test_a_coarse_counter_loses_nothing(world):
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
    watts = {p["power"]["uw"] for p in seen} - {None}
    assert 0 not in watts and max(watts) < 80e6
    assert seen[-1]["energy"]["uj"] <= tree.used["intel-rapl:1"] + 100e6
    # Until the tree became coarse it told what is finer: that may fall once, by less than a step.
    assert len({p["energy"]["gap_ms"] for p in seen if (p["energy"]["uj"] or 0) > 100e6}) == 1
    check_sum(seen[-1])


def test_a_file_tells_watts(world, place):
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


def test_a_chip_that_nobody_named_tells_its_watts_and_is_not_the_machine(world, place):
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


def test_a_sensor_costs_one_read_a_second_and_stays_open(world, place):
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


def test_two_packages_and_their_memory_are_the_machine(world):
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


def test_the_account_outlives_the_daemon(world):
    _, tided = world({"intel-rapl:1": 40})
    tided.job()
    before = eventually(lambda: (p := known(tided))["energy"]["uj"] and p)
    assert tided.stop() == 0
    tided.start()
    after = known(tided)
    assert after["energy"]["uj"] >= before["energy"]["uj"]
    assert after["energy"]["gap_ms"] > before["energy"]["gap_ms"]  # nobody read it meanwhile
    check_sum(after)


def test_a_daemon_without_jobs_answers_with_what_is_now(world):
    tree, tided = world({"intel-rapl:1": 40})
    known(tided)  # asking has it read
    tree.watts["intel-rapl:1"] = 400
    eventually(lambda: power(tided)["power"]["uw"] > 200e6)


def test_metrics_have_keplers_names_and_no_line_for_what_is_unknown(world):
    _, tided = world({"intel-rapl:1": 40})
    tided.job()
    known(tided)
    text = metrics(tided)
    assert 'kepler_node_cpu_joules_total{zone="psys",path="/sys/class/powercap/intel-rapl:1",node_name="' in text
    assert 'tide_machine_energy_joules_total{part="machine",bound="value",basis="measured"} ' in text
    assert 'tide_machine_power_watts{bound="high",basis="measured"} ' in text
    assert 'part="idle"' not in text  # no model
    tided.stop()
    tided.options = (*tided.options[:-1], tided.options[-1].with_name("none.conf"))
    tided.options[-1].write_text("[daemon]\npower=none\n")
    (tided.dir / "energy").unlink()
    tided.start()
    text = metrics(tided)
    assert "tide_energy_gap_seconds_total 0\n" in text
    assert "\ntide_machine_power_watts{" not in text and "\nkepler_node_cpu_watts{" not in text


def metrics(tided):
    from daemon import UnixConnection
    connection = UnixConnection(tided.dir / "api.sock")
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return text


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


# ---- readings that are handed down ----

def hand_down(tided, **reading):
    return tided.api("POST", "/v1/power/readings", reading)


def test_a_plugs_watts_are_the_machines(world):
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


def test_what_a_missing_sensor_taught_stands_in_for_it(world):
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


def test_packages_that_go_with_the_sensor_leave_the_curve(world):
    """What was learnt beside them is not used without them."""
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


def test_watts_that_are_not_written_anew_are_no_new_reading(world):
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


def test_a_count_that_jumps_seldom_is_not_counted_beside_what_stands_in(world):
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


def test_a_cap_is_kept_by_the_upper_bound_of_what_stands_in(world):
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


def test_between_readings_of_a_management_controller_the_watts_follow_the_load(world):
    """It told 90 W when nothing ran."""
    _, tided = taught(world, {"intel-rapl:0": 10}, (20.0, 0.0, 10.0, 0.0), "power=none", beside=False)
    process, _ = busy(tided)
    try:
        def told():
            assert hand_down(tided, name="bmc", uw=90_000_000, error_permille=10, slow=True)[0] == 200
            p = power(tided)["power"]
            return p["basis"] == "measured" and p["uw"] == 90_000_000
        eventually(told, pause=1)
        p = eventually(lambda: (p := power(tided)["power"])["basis"] == "calibrated" and p, pause=0.2)
        assert 25e6 < p["uw"] and p["uw"] != 90_000_000  # 20 W and 10 W a busy core
        total = power(tided)["energy"]
        eventually(told, pause=1)
        after = power(tided)["energy"]  # what is counted is the meter's alone
        assert after["basis"] == total["basis"] and after["gap_ms"] == total["gap_ms"]
    finally:
        process.kill()
        process.wait()


def test_a_plug_that_tells_0_watts_is_no_reading(world):
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


def test_a_plugs_counter_counts_without_any_sensor(world):
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


def test_readings_that_are_none_are_refused(world):
    _, tided = world({"intel-rapl:0": 10}, "power=none")
    for reading, status, words in (
            ({"uw": 5}, 400, "name is ''"), ({"name": "a b", "uw": 5}, 400, "name is 'a b'"),
            ({"name": "x" * 64, "uw": 5}, 400, "use 1 to 63"), ({"name": "a"}, 400, "neither uj nor uw"),
            ({"name": "a", "uw": -5}, 400, "uw is no whole number"), ({"name": "a", "uw": 2.5}, 400, "whole number"),
            ({"name": "a", "uw": 1 << 41}, 400, "no machine draws so much"),
            ({"name": "a", "uw": 5, "error_permille": 2000}, 400, "no meter errs so"),
            ({"name": "a", "uw": 5, "covers": "room"}, 400, "covers must be"),
            ({"name": "a", "uw": 5, "time": 1000}, 409, "s old"), ({"name": "a", "watts": 5}, 400, "unknown field")):
        assert (answer := hand_down(tided, **reading))[0] == status, (reading, answer)
        assert words in answer[1]["error"]["message"], answer
    for i in range(8):
        assert hand_down(tided, name=f"m{i}", uw=5)[0] == 200
    assert hand_down(tided, name="m8", uw=5)[0] == 503
    assert power(tided)["energy"]["uj"] is None or power(tided)["energy"]["uj"] >= 0


# ---- the history ----

def energy(tided, query=""):
    status, answer = tided.api("GET", "/v1/energy" + query)
    assert status == 200, answer
    return answer


def test_history_has_the_same_energy_as_the_account(world):
    _, tided = world({"intel-rapl:1": 40}, "tariff=0.25 EUR/kWh", "carbon=400 g/kWh")
    tided.job()
    eventually(lambda: (power(tided)["energy"]["uj"] or 0) > 20e6)
    before = power(tided)["energy"]["uj"]
    parts = {row["key"]: row for row in energy(tided, "?by=part")["rows"]}
    after = power(tided)["energy"]["uj"]
    machine = parts["machine"]
    assert before <= machine["uj"] <= after and machine["basis"] == "measured"
    assert parts["unattributed"]["uj"] == machine["uj"]
    assert abs(machine["kwh"] - machine["uj"] / 3.6e12) < 1e-9
    assert abs(machine["cost"] - machine["kwh"] * 0.25) < 1e-9
    assert abs(machine["gco2"] - machine["kwh"] * 400) < 1e-6
    (day,) = energy(tided, "?by=day")["rows"]
    assert day["uj"] >= machine["uj"] and day["key"] == time.strftime("%Y-%m-%d")
    # It outlives the daemon, and nothing is counted twice.
    assert tided.stop() == 0
    tided.start()
    known(tided)
    again = {row["key"]: row for row in energy(tided, "?by=part")["rows"]}
    now = power(tided)["energy"]["uj"]
    assert machine["uj"] <= again["machine"]["uj"] <= now


def test_a_query_for_nothing_is_empty_and_a_wrong_one_is_named(world):
    _, tided = world({"intel-rapl:1": 40})
    assert energy(tided, "?until=5")["rows"] == []
    assert energy(tided)["currency"] is None
    for query, words in (("?by=week", "use job, user, part or day"), ("?since=soon", "seconds since 1970"),
                         ("?until=-1", "seconds since 1970")):
        status, answer = tided.api("GET", "/v1/energy" + query)
        assert status == 400 and words in answer["error"]["message"]


def test_without_history_the_reason_is_told(world):
    _, tided = world({"intel-rapl:1": 40}, "history=none")
    status, answer = tided.api("GET", "/v1/energy")
    assert status == 503 and "history=none" in answer["error"]["message"]


SCHEMAS = pathlib.Path(__file__).resolve().parents[1] / "energy/schemas"


@pytest.mark.parametrize("version", [int(p.stem.split("-")[1]) for p in SCHEMAS.glob("energy-*.sql")])
def test_history_of_every_version_is_read_and_goes_on(world, version):
    _, tided = world({"intel-rapl:1": 40})
    known(tided)
    assert tided.stop() == 0
    for ending in ("", "-wal", "-shm"):
        (tided.dir / f"energy.db{ending}").unlink(missing_ok=True)
    quarter = int(time.time()) // 900 * 900 - 1800
    with sqlite3.connect(tided.dir / "energy.db") as db:
        db.executescript((SCHEMAS / f"energy-{version}.sql").read_text().replace("QUARTER", str(quarter)))
    db.close()
    (tided.dir / "energy.db").chmod(0o600)
    tided.start()
    rows = {row["key"]: row for row in energy(tided, f"?by=part&since={quarter}&until={quarter + 900}")["rows"]}
    assert rows["machine"]["uj"] == 3000 and rows["machine"]["low_uj"] == 2700 and rows["idle"]["uj"] == 1000
    (job,) = energy(tided, f"?by=job&since={quarter}&until={quarter + 900}")["rows"]
    assert (job["key"], job["name"], job["owner"], job["uj"]) == ("j7", "train", "ana", 2000)
    eventually(lambda: {r["key"]: r for r in energy(tided, "?by=part")["rows"]}["machine"]["uj"] > 3000)


def test_tide_energy_since_a_day_has_what_was_used_since_then_and_its_carbon(world, place):
    """The history holds a quarter of an hour of ten days ago, and what was used now."""
    tree, tided = world({"intel-rapl:1": 40}, "tariff=0.25 EUR/kWh", "carbon=400 g/kWh")
    known(tided)
    assert tided.stop() == 0
    for ending in ("", "-wal", "-shm"):
        (tided.dir / f"energy.db{ending}").unlink(missing_ok=True)
    quarter = int(time.time()) // 900 * 900 - 10 * 86400
    schema = (SCHEMAS / "energy-1.sql").read_text().replace("QUARTER", str(quarter))
    with sqlite3.connect(tided.dir / "energy.db") as db:
        db.executescript(schema.replace("3000, 2700, 3300", "9000000000, 2700, 9900000000"))
    db.close()
    (tided.dir / "energy.db").chmod(0o600)
    tided.start()
    known(tided)

    def tide(*words):
        return subprocess.run([place.program.parent / "tide", "energy", "--by", "part", *words], capture_output=True,
                              text=True, env={**os.environ, "TIDE_DIR": str(tided.dir)}, check=True).stdout

    def day(days):
        return time.strftime("%Y-%m-%d", time.localtime(time.time() - days * 86400))
    eventually(lambda: "machine" in tide("--since", "2h"))
    assert "idle" not in tide("--since", "2h") and "idle" not in tide("--since", day(5)) and "idle" not in tide()
    text = tide("--since", day(12))
    assert "idle" in text
    machine = next(line for line in text.splitlines() if line.startswith("machine"))
    assert "CO2" in text.splitlines()[0].split(), text
    row = {r["key"]: r for r in json.loads(tide("--since", day(12), "--json"))["rows"]}["machine"]
    assert row["uj"] >= 9_000_000_000 and row["gco2"] >= 9e9 / 3.6e12 * 400
    assert re.search(r" [0-9.]+ EUR +[0-9.]+ g ", machine + " "), machine


def test_a_damaged_file_is_moved_aside(world):
    _, tided = world({"intel-rapl:1": 40})
    known(tided)
    assert tided.stop() == 0
    (tided.dir / "energy.db").write_bytes(b"no database" * 1000)
    for ending in ("-wal", "-shm"):
        (tided.dir / f"energy.db{ending}").unlink(missing_ok=True)
    tided.start()
    assert energy(tided, "?by=part")["rows"] is not None
    assert (tided.dir / "energy.db.corrupt").exists()
    assert "moved aside" in tided.log.read_text()


# ---- who may see a job's watts: docs/permissions.md ----

CALLER = """
import http.client, json, socket, sys
def ask(method, path, body=None):
    c = http.client.HTTPConnection("x"); c.sock = socket.socket(socket.AF_UNIX)
    c.sock.connect(sys.argv[1]); c.request(method, path, body); return c.getresponse()
jobs = [row["id"] for row in json.load(ask("GET", "/v1/power"))["jobs"]]
print(json.dumps([jobs, ask("POST", "/v1/power/readings", '{"name": "plug", "uw": 5}').status]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_who_sees_a_jobs_energy_and_who_hands_readings_down(place):
    path = conf(place, "/", "admin-group=games", "power-group=mail", "power=none")
    tided = place.daemon("--cpus", "0-1", "--config", path).start()
    job = tided.job(uid=OWNER)
    group = {line.split(":")[0]: line.split(":")[2] for line in open("/etc/group")}
    for options, sees, hands in (
            (["--reuid=0", "--regid=0", "--clear-groups"], True, True),
            ([f"--reuid={OWNER}", f"--regid={OWNER}", "--clear-groups"], True, False),
            ([f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups"], False, False),
            ([f"--reuid={OTHER}", f"--regid={OTHER}", f"--groups={group['games']}"], True, True),
            ([f"--reuid={OTHER}", f"--regid={OTHER}", f"--groups={group['mail']}"], False, True),
            ([f"--reuid={OTHER}", f"--regid={group['mail']}", "--clear-groups"], False, True)):
        done = subprocess.run(["setpriv", *options, sys.executable, "-c", CALLER, tided.dir / "api.sock"],
                              capture_output=True, text=True, check=True)
        assert json.loads(done.stdout) == [[job.id] if sees else [], 200 if hands else 403], options


WATCHER = CALLER.split("jobs =")[0] + """
import re, time
seen = [set(), set(), set()]
for _ in range(15):
    seen[0].add(json.load(ask("GET", "/v1/power"))["energy"]["uj"])
    seen[1].add(json.load(ask("GET", "/v1/power/sources"))[0]["uj"])
    seen[2].add(re.search('part="machine",bound="value".* (.*)', ask("GET", "/metrics").read().decode())[1])
    time.sleep(0.4)
print(json.dumps([len(values) for values in seen]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_strangers_see_the_machines_energy_at_the_pace_of_a_jobs(world):
    _, tided = world({"intel-rapl:1": 40})
    tided.job(uid=OWNER)
    known(tided)
    for options, live in (([f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups"], False),
                          (["--reuid=0", "--regid=0", "--clear-groups"], True)):
        done = subprocess.run(["setpriv", *options, sys.executable, "-c", WATCHER, tided.dir / "api.sock"],
                              capture_output=True, text=True, check=True)
        assert all(n > 3 if live else n <= 2 for n in json.loads(done.stdout)), (options, done.stdout)


def test_the_report_of_a_day_has_energy_and_cost_by_user_and_job(world, place):
    _, tided = world({"intel-rapl:1": 40}, "power-model=points:20,60", "tariff=0.25 EUR/kWh")
    process, job = busy(tided)
    env = {**os.environ, "TIDE_DIR": str(tided.dir)}

    def report(*words):
        return subprocess.run([place.program.parent / "tide", "report", *words], env=env, capture_output=True, text=True, check=True).stdout
    try:
        eventually(lambda: any(row["uj"] for row in energy(tided)["rows"]), pause=0.3)
        page = report()
        (machine,) = [row for row in energy(tided, "?by=part")["rows"] if row["key"] == "machine"]
        joules = re.search(r"<dt>Energy</dt><dd>([0-9.]+) (J|Wh)</dd>", page)
        assert 0 < float(joules[1]) * (1 if joules[2] == "J" else 3600) <= machine["uj"] / 1e6 * 1.01
        assert re.search(r"<dt>Cost</dt><dd>[0-9.e-]+ EUR</dd>", page)
        for title, key in (("Energy by user", energy(tided, "?by=user")["rows"][0]["key"]), ("Energy by job", energy(tided)["rows"][0]["name"])):
            table = page[page.index(f"<h2>{title}</h2>"):].split("</table>")[0]
            row = next(r for r in table.split("<tr>") if f"<td>{key}</td>" in r)
            assert re.search(r"[0-9.]+ (J|Wh)</td>", row) and " EUR</td>" in row, row
        assert "Nothing is known of the machine's energy on this day." in report("--day", "2020-02-29")
    finally:
        process.kill()
        process.wait()


def test_the_report_of_a_daemon_that_measures_nothing_has_no_energy(place):
    tided = place.daemon("--cpus", "0-1").start()
    page = subprocess.run([place.program.parent / "tide", "report"], env={**os.environ, "TIDE_DIR": str(tided.dir)}, capture_output=True, text=True, check=True).stdout
    assert "<dt>Energy</dt>" not in page and "0 J" not in page
