# SPDX-License-Identifier: Apache-2.0
"""tided keeps what energy was used: by job, user and day; who may see it, and the report."""
import contextlib
import datetime
import json
import os
import pathlib
import re
import sqlite3
import subprocess
import sys
import time
import zoneinfo

import pytest

from daemon import eventually
from energy_daemon import busy, conf, energy, known, power
from energy_daemon import world  # noqa: F401 (a fixture)

OWNER, OTHER = 61001, 61002  # users without a name


def test_history_has_the_same_energy_as_the_account(world):  # noqa: F811
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


def test_a_query_for_nothing_is_empty_and_a_wrong_one_is_named(world):  # noqa: F811
    _, tided = world({"intel-rapl:1": 40})
    assert energy(tided, "?until=5")["rows"] == []
    assert energy(tided)["currency"] is None
    for query, words in (("?by=week", "use job, user, part or day"), ("?since=soon", "seconds since 1970"),
                         ("?until=-1", "seconds since 1970")):
        status, answer = tided.api("GET", "/v1/energy" + query)
        assert status == 400 and words in answer["error"]["message"]


def test_without_history_the_reason_is_told(world):  # noqa: F811
    _, tided = world({"intel-rapl:1": 40}, "history=none")
    status, answer = tided.api("GET", "/v1/energy")
    assert status == 503 and "history=none" in answer["error"]["message"]


SCHEMAS = pathlib.Path(__file__).resolve().parents[1] / "energy/schemas"


@pytest.mark.parametrize("version", [int(p.stem.split("-")[1]) for p in SCHEMAS.glob("energy-*.sql")])
def test_history_of_every_version_is_read_and_goes_on(world, version):  # noqa: F811
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


def test_tide_energy_since_a_day_has_what_was_used_since_then_and_its_carbon(world, place):  # noqa: F811
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


def test_tide_energy_of_a_job_of_users_and_of_days(world, place):  # noqa: F811
    _, tided = world({"intel-rapl:1": 40}, "power-model=points:20,60")
    process, job = busy(tided)

    def tide(*words):
        return json.loads(subprocess.run([place.program.parent / "tide", "energy", "--json", *words], capture_output=True, text=True,
                                         env={**os.environ, "TIDE_DIR": str(tided.dir)}, check=True).stdout)["rows"]
    try:
        eventually(lambda: any(row["uj"] for row in tide(job)), pause=0.3)
        assert [row["key"] for row in tide(job)] == [job]
        assert tide("j999") == []
        (user,) = tide("--by", "user")
        assert user["key"] == tide(job)[0]["owner"] and user["uj"] > 0
        assert [row["key"] for row in tide("--by", "day")] == [time.strftime("%Y-%m-%d")]
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("night,hours", [("2026-03-29", 23), ("2026-10-25", 25)])
def test_a_day_of_summer_time_has_the_energy_of_its_hours(world, night, hours):  # noqa: F811
    """A quarter of an hour in each hour of three days in Madrid, read by a daemon that lives there."""
    _, tided = world({"intel-rapl:1": 40})
    known(tided)
    assert tided.stop() == 0
    path, zone = tided.dir / "energy.db", zoneinfo.ZoneInfo("Europe/Madrid")
    noon = datetime.datetime.fromisoformat(f"{night}T12:00").replace(tzinfo=zone)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        columns = [row[1] for row in db.execute("PRAGMA table_info(part)")]
        one = db.execute("SELECT * FROM part WHERE part = 0").fetchone()
        db.execute("DELETE FROM part")
        for hour in range(-40, 40):
            row = {**dict(zip(columns, one)), "time": int(noon.timestamp()) + hour * 3600, "uj": 1000}
            db.execute(f"INSERT INTO part ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})", [row[key] for key in columns])
    tided.env["TZ"] = "Europe/Madrid"
    tided.start()
    since = int(noon.timestamp()) - 2 * 86400
    days = {row["key"]: row["uj"] for row in energy(tided, f"?by=day&since={since}&until={since + 4 * 86400}")["rows"]}
    assert days[night] == hours * 1000, days


def rows_of(path):
    """Returns the µJ of the machine that are in the file."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT sum(uj) FROM part WHERE part = 0").fetchone()[0]


def test_a_damaged_file_is_moved_aside(world):  # noqa: F811
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


def test_a_file_that_cannot_be_written_is_tried_again_and_nothing_is_lost(world):  # noqa: F811
    _, tided = world({"intel-rapl:1": 40})
    known(tided)
    assert tided.stop() == 0
    path = tided.dir / "energy.db"
    had = rows_of(path)
    aside = path.rename(tided.dir / "aside.db")
    path.mkdir()
    tided.start()
    status, answer = tided.api("GET", "/v1/energy?by=part")
    assert status == 503 and "no history of energy" in answer["error"]["message"]
    before = eventually(lambda: (uj := power(tided)["energy"]["uj"]) > had + 20e6 and uj)
    path.rmdir()
    aside.rename(path)
    assert {row["key"]: row for row in energy(tided, "?by=part")["rows"]}["machine"]["uj"] >= had
    assert tided.stop() == 0
    assert rows_of(path) >= before
    assert tided.log.read_text().count("cannot keep the history of energy") == 1


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
def used(by):
    rows = json.load(ask("GET", f"/v1/energy?by={by}"))["rows"]
    return sum(row["uj"] or 0 for row in rows if by != "part" or row["key"] == "machine")
looks = [lambda: json.load(ask("GET", "/v1/power"))["energy"]["uj"] or 0,
         lambda: json.load(ask("GET", "/v1/power/sources"))[0]["uj"] or 0,
         lambda: float(re.search('part="machine",bound="value".* (.*)', ask("GET", "/metrics").read().decode())[1]),
         lambda: used("part"), lambda: used("day"), lambda: used("job")]
seen = [set() for _ in looks]
for _ in range(15):
    for values, look in zip(seen, looks):
        values.add(look())
    time.sleep(0.4)
print(json.dumps([sorted(values) for values in seen]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_strangers_see_the_machines_energy_at_the_pace_of_a_jobs(world):  # noqa: F811
    """And its history as it was written: of a minute ago, not nothing."""
    _, tided = world({"intel-rapl:1": 40})
    tided.job(uid=OWNER)
    known(tided)
    eventually(lambda: energy(tided, "?by=part")["rows"])
    for options, live in (([f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups"], False),
                          ([f"--reuid={OWNER}", f"--regid={OWNER}", "--clear-groups"], False),
                          (["--reuid=0", "--regid=0", "--clear-groups"], True)):
        done = subprocess.run(["setpriv", *options, sys.executable, "-c", WATCHER, tided.dir / "api.sock"],
                              capture_output=True, text=True, check=True)
        *machine, by_part, by_day, by_job = json.loads(done.stdout)
        assert by_part[0] > 0 and by_day[0] > 0, (options, done.stdout)
        assert all(len(values) > 3 if live else len(values) <= 2 for values in (*machine, by_part, by_day)), (options, done.stdout)
        assert live or len(by_job) <= 2, (options, done.stdout)


def test_the_report_of_a_day_has_energy_and_cost_by_user_and_job(world, place):  # noqa: F811
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
