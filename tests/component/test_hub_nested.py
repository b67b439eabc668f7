# SPDX-License-Identifier: Apache-2.0
"""A faculty's hub is an area of its university's: energy goes up, caps and leases come down."""
import json
import shutil
import subprocess
import time

import pytest

from daemon import eventually
from hub import KWH, TOOLS, Serving, end_listener
from test_hub_leases import FLOOR, PAHO, W, Borrowers

pytestmark = pytest.mark.skipif(not PAHO or not all(map(shutil.which, TOOLS)),
                                reason="mosquitto-clients, openssl or python3-paho-mqtt are not installed")
ABOVE = """version: 1
org: university
zone: UTC
areas: [{area: university/faculty, unit: faculty}, {area: university/hall, unit: hall}]
rules: [{area: university, cap: 900 W}, {area: university/faculty, cap: CAP W, floor: 150 W}]
"""
BELOW = """version: 1
org: faculty
zone: UTC
areas: [{area: faculty/lab3, unit: lab3}, {area: faculty/lab4, unit: lab4}, {area: faculty/hall, unit: hall}]
rules: [{area: faculty, cap: 1000 W}, {area: faculty/lab3, floor: 50 W}, {area: faculty/lab4, floor: 50 W},
        {area: faculty/hall, floor: 50 W}]
"""

# The hall lies in the laboratory, whose meter sees it, too.
NESTED = BELOW[:BELOW.index("rules:")].replace("faculty/hall", "faculty/lab3/hall") + "rules: [{area: faculty, cap: 1000 W}]\n"


def hub_with(build_dir, folder, policy, *options):
    folder.mkdir()
    made = Serving(build_dir / "tide-hub", folder)
    (folder / "etc.yaml").write_text(policy)
    made.options = ("--policy", folder / "etc.yaml", *options)
    made.start()
    (made.state / "leases").write_text("threadtide leases 1 0 0\n")
    return made


@pytest.fixture
def hubs(request, build_dir, tmp_path):
    if b"serve" not in subprocess.run([build_dir / "tide-hub", "--help"], capture_output=True).stdout:
        pytest.skip("tide-hub was built without libmosquitto")
    cap, floor = getattr(request, "param", ("400", "150"))
    above = hub_with(build_dir, tmp_path / "above", ABOVE.replace("CAP", cap).replace("150", floor))
    above.serve()
    files = tmp_path / "files"  # as tide-power enrol writes them
    files.mkdir()
    above.enrol("faculty")
    for name, source in (("unit.key", above.folder / "faculty.key"), ("unit.crt", above.folder / "faculty.crt"),
                         ("ca.crt", above.state / "trust/ca.crt"), ("hub-seal.pub", above.state / "trust/seal.pub")):
        shutil.copy(source, files / name)
    below = hub_with(build_dir, tmp_path / "below", BELOW, "--parent", f"127.0.0.1:{above.port}", "--parent-name",
                     "faculty", "--parent-files", files)
    for name in ("lab3", "lab4", "hall"):
        below.enrol(name)
    below.serve()
    yield above, below
    below.stop()
    above.stop()


@pytest.fixture
def noon(monkeypatch):
    monkeypatch.setenv("TIDE_CLOCK", "1795521600,1")  # 2026-11-24 12:00 UTC, for each program when it begins


def apply(hub, text):
    path = hub.folder / "new.yaml"
    path.write_text(text)
    code, out, err = hub.run("policy", "apply", path)
    assert code == 0, out + err


def test_a_budget_of_the_hub_above_bounds_all_that_is_below(noon, hubs):
    above, below = hubs
    eventually(lambda: "of the hub above for university/faculty" in below.said())
    units = Borrowers(below, ("lab3", "lab4", "hall"))
    units.floor_cap = 1000
    try:
        units.settle((600, 600, 60), [170, 170, 60])
        apply(above, ABOVE.replace("CAP", "400").replace("W, floor", "W, budget: 3.84 kWh/day, floor"))
        units.settle((600, 600, 60), [130, 130, 60])  # 3.84 kWh in twelve hours
    finally:
        units.end()


def test_caps_of_the_hub_above_bound_those_below(hubs):
    above, below = hubs
    eventually(lambda: "faculty: connected (hub" in above.said())
    eventually(lambda: "of the hub above for university/faculty" in below.said())
    units = Borrowers(below, ("lab3", "lab4", "hall"))
    units.floor_cap = 1000
    try:
        units.settle((600, 600, 60), [170, 170, 60])
        apply(above, ABOVE.replace("CAP", "250"))
        units.settle((600, 600, 60), [95, 95, 60])
        above.kill()  # the signed policy holds on
        units.after(10)
        assert sum(units.last["draw"]) <= 250 * W
        apply(below, BELOW.replace("1000 W", "200 W"))  # its own is smaller now
        units.settle((600, 600, 60), [70, 70, 60])
    finally:
        units.end()
    assert FLOOR == 50


def test_a_breaker_of_the_hub_above_falls_to_the_floor_when_its_policy_ends(hubs, monkeypatch):
    """The cap is the faculty's own: nothing is shared with others, so the hub above lends nothing."""
    above, below = hubs
    apply(above, ABOVE.replace("{area: university, cap: 900 W}, ", "").replace("CAP", "400"))
    units = Borrowers(below, ("lab3", "lab4", "hall"))
    units.floor_cap = 1000
    try:
        units.settle((600, 600, 60), [170, 170, 60])
        above.kill()
        below.kill()
        monkeypatch.setenv("TIDE_CLOCK", f"{int(time.time()) + 8 * 86400},1")
        below.serve()
        units.settle((600, 600, 60), [50, 50, 50])
        units.after(60)
        assert units.last["draw"] == [50 * W] * 3
    finally:
        units.end()


@pytest.mark.parametrize("hubs", [("100", "60")], indirect=True)
def test_floors_that_are_not_promised_above_are_said(hubs):
    _, below = hubs
    units = Borrowers(below, ("lab3", "lab4", "hall"))
    units.floor_cap = 1000  # no area between them and the organization
    try:
        units.want(600, 600, 60)
        eventually(lambda: "less than the floors of this hub's areas, 150 W" in below.said())
    finally:
        units.end()


def test_the_certificate_at_the_hub_above_is_renewed_before_it_ends(hubs):
    above, below = hubs
    below.kill()
    cert = below.options[below.options.index("--parent-files") + 1] / "unit.crt"
    subprocess.run(["openssl", "x509", "-req", "-in", above.folder / "faculty.csr", "-CA", above.state / "trust/ca.crt", "-CAkey",
                    above.state / "trust/ca.key", "-days", "20", "-out", cert, "-extfile", "/dev/stdin"],
                   input="extendedKeyUsage=clientAuth\nkeyUsage=digitalSignature\n", text=True, check=True, capture_output=True)

    def lasts(days):
        return subprocess.run(["openssl", "x509", "-checkend", str(days * 86400), "-in", cert], capture_output=True).returncode == 0

    assert lasts(19) and not lasts(21)
    before = below.said().count("above: uplink: connected")
    below.serve()
    eventually(lambda: "above: the certificate was renewed" in below.said())
    assert lasts(80)
    eventually(lambda: below.said().count("above: uplink: connected") == before + 2)
    assert "faculty: has a new certificate" in above.said()


def above_has(above):
    """In kWh."""
    row = [line.split() for line in above.run("energy")[1].splitlines() if line.startswith("faculty")]
    return float(row[0][4]) if row and row[0][4] != "-" else 0


def begins(above):
    """The first record of all, which knows nothing."""
    eventually(lambda: "faculty" in above.run("energy")[1], pause=0.3)


def again(below):
    """A hub that begins tells at once what it has not told; one that runs, every ten seconds."""
    below.kill()
    below.serve()


def test_energy_of_all_areas_goes_up_once(hubs):
    above, below = hubs
    start = int(time.time() * 1000) - 600_000

    def send(unit, last):
        message = {"v": 1, "boot": 7, "records": [
            {"point": "area", "seq": last, "from": start, "to": start + last * 1000, "mono": last, "uj": last * KWH // 1000,
             "low": last * KWH // 1000, "high": last * KWH // 1000, "basis": "measured", "gap": 0}]}
        assert below.send(unit, json.dumps(message))

    begins(above)
    send("lab3", 3)
    again(below)
    eventually(lambda: abs(above_has(above) - 0.003) < 1e-9, pause=0.3)
    send("lab4", 5)
    send("lab3", 4)
    again(below)
    eventually(lambda: abs(above_has(above) - 0.009) < 1e-9, pause=0.3)
    above.kill()
    send("lab4", 9)
    again(below)
    above.serve()
    eventually(lambda: abs(above_has(above) - 0.013) < 1e-9, pause=0.3)


def test_energy_of_a_unit_inside_of_another_units_area_goes_up_once(hubs):
    above, below = hubs
    begins(above)
    apply(below, NESTED)
    below.enrol("guest")  # in no area
    now = int(time.time() * 1000)
    for unit, watt_hours in (("lab3", 5), ("hall", 2), ("lab4", 3), ("guest", 9)):
        uj = watt_hours * KWH // 1000
        assert below.send(unit, {"v": 1, "boot": 7, "records": [
            {"point": "area", "seq": 1, "from": now - 600_000, "to": now - 590_000, "mono": 1, "uj": uj, "low": uj, "high": uj,
             "basis": "measured", "gap": 0}]})
    again(below)
    eventually(lambda: abs(above_has(above) - 0.008) < 1e-9, pause=0.3)


def stretches(above, since):
    """When each quarter of an hour began -> kWh and unknown seconds of it, as the hub above has it."""
    lines = above.run("energy", "faculty", "area", "--since", since, "--step", "15min")[1].splitlines()[1:]
    return {line[:19]: (line.split()[2], float(line.split()[-1])) for line in lines}


def test_what_a_unit_tells_late_stands_above_in_the_time_in_which_it_was_used(hubs):
    above, below = hubs
    begins(above)
    first = (int(time.time()) - 3 * 3600) // 900 * 900
    assert below.send("lab3", {"v": 1, "boot": 7, "records": [
        {"point": "area", "seq": n, "from": (first + (n - 1) * 900) * 1000, "to": (first + n * 900) * 1000, "mono": n, "uj": n * KWH,
         "low": n * KWH, "high": n * KWH, "basis": "measured", "gap": 0} for n in (1, 2, 3)]})
    again(below)
    wanted = {time.strftime("%F %T", time.localtime(first + n * 900)): ("1.000000", 0) for n in range(3)}
    eventually(lambda: wanted.items() <= stretches(above, "4h").items(), pause=0.3)
    assert sum(gap for _, gap in stretches(above, "4h").values()) < 300  # what came late opens no gap


def test_time_of_which_no_area_told_anything_is_a_gap_above(hubs):
    above, below = hubs

    def gap_s():
        rows = [line.split() for line in above.run("energy")[1].splitlines() if line.startswith("faculty")]
        return float(rows[0][-1]) if rows else None  # the last column: GAP_S

    first = eventually(gap_s, pause=0.3)
    now = int(time.time() * 1000)
    assert below.send("lab3", {"v": 1, "boot": 7, "records": [
        {"point": "area", "seq": 1, "from": now - 60_000, "to": now, "mono": 1, "uj": KWH // 1000, "low": KWH // 1000,
         "high": KWH // 1000, "basis": "measured", "gap": 0}]})
    below.kill()
    below.env = {"TIDE_CLOCK": f"{int(time.time())},300"}  # five minutes a second, without a word of lab3, lab4 and hall
    below.serve()
    eventually(lambda: gap_s() >= first + 500, pause=0.3)
    assert abs(above_has(above) - 0.001) < 1e-9


def test_energy_goes_up_also_where_a_units_sum_no_longer_fits(hubs):
    """A unit of 600 MWh begins new totals, as after a restart: what the store has of it comes to more than 2^62 uJ."""
    above, below = hubs

    def send(boot, number, kwh):  # each of another day, whose sum stays small
        end = int(time.time() * 1000) - (10 - number) * 86_400_000
        assert below.send("lab3", json.dumps({"v": 1, "boot": boot, "records": [
            {"point": "area", "seq": number, "from": end - 10_000, "to": end, "mono": number, "uj": kwh * KWH,
             "low": kwh * KWH, "high": kwh * KWH, "basis": "measured", "gap": 0}]}))

    begins(above)
    for number, boot, total, more in ((1, 7, 600_000, 600_000), (2, 8, 500_000, 500_000), (3, 8, 800_000, 300_000), (4, 8, 800_005, 5)):
        again(below)  # its own totals begin anew from 2^61 uJ on, where all have their receipt
        send(boot, number, total)
        again(below)
        eventually(lambda: f"{more:.6f}" in [kwh for kwh, _ in stretches(above, "12d").values()], pause=0.3)


def test_what_is_drawn_inside_of_another_units_area_goes_up_once(hubs):
    above, below = hubs
    apply(below, NESTED)
    above.kill()
    process, heard = above.listen("hub", "tide/1/faculty/up/demand")
    try:
        for unit, watts in (("lab3", 150), ("lab4", 50), ("hall", 40)):
            below.publish(unit, f"tide/1/{unit}/up/state", json.dumps(
                {"v": 1, "online": True, "synced": True, "role": "unit", "version": "0.1.0", "boot": 7, "policy": 0}), "-r")
            below.publish(unit, f"tide/1/{unit}/up/demand", json.dumps(
                {"v": 1, "points": [], "floor": 0, "draw": {"uw": watts * W, "low": watts * W, "high": watts * W, "basis": "measured"}}))
        eventually(lambda: f'"uw":{200 * W},' in heard.read_text().replace(" ", ""))
        assert f'"uw":{240 * W},' not in heard.read_text().replace(" ", "")
    finally:
        end_listener(process)


def test_who_was_shrunk_goes_up_as_a_sum_without_jobs_and_users(hubs):
    above, below = hubs
    above.kill()
    process, heard = above.listen("hub", "tide/1/faculty/up/shrunk")

    def told(nodes):
        return ("tide/1/faculty/up/shrunk " + json.dumps({"v": 1, "nodes": nodes, "jobs": []}, separators=(",", ":"))
                in heard.read_text()) or None

    def shrinks(unit, *jobs):
        below.publish(unit, f"tide/1/{unit}/up/shrunk", json.dumps(
            {"v": 1, "nodes": [{"node": f"{unit}-pc", "jobs": len(jobs), "cores": sum(jobs)}] if jobs else [],
             "jobs": [{"node": f"{unit}-pc", "job": "bert", "user": "vera", "cores": cores} for cores in jobs]}))

    try:
        for unit in ("lab3", "lab4"):
            below.publish(unit, f"tide/1/{unit}/up/state", json.dumps(
                {"v": 1, "online": True, "synced": True, "role": "unit", "version": "0.1.0", "boot": 7, "policy": 0}), "-r")
        shrinks("lab3", 3, 2)
        shrinks("lab4", 1)
        eventually(lambda: told([{"node": "faculty", "jobs": 3, "cores": 6}]))
        shrinks("lab3")
        shrinks("lab4")
        eventually(lambda: told([]))
        assert "vera" not in heard.read_text()
    finally:
        end_listener(process)
