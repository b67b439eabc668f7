# SPDX-License-Identifier: Apache-2.0
"""A real tided linked to a real area: it gets a lease, obeys it, and its energy goes up."""
import http.server
import json
import pathlib
import socketserver
import subprocess
import threading
import time

import pytest

from daemon import eventually
from test_unit_leases import Machine
from unit_bed import Parent, Unit, bed, program, rig  # noqa: F401

pytestmark = pytest.mark.skipif(bool(rig.missing()), reason=f"not installed: {', '.join(rig.missing())}")

W = 1_000_000
CORES = 16


@pytest.fixture
def tided(place):
    """20 W idle, 120 W at work, by a model: no meter is needed to divide and to obey."""
    path = place.base / "tide.conf"
    path.write_text("[daemon]\npower=none\npower-model=points:20,35,75,120\n")
    path.chmod(0o644)
    return place.daemon("--cpus", f"0-{CORES - 1}", "--config", path).start()


def cap(tided):
    return tided.api("GET", "/v1/power/cap")[1]


def leases(folder):
    rows = (pathlib.Path(folder) / "leases").read_text().splitlines()[1:]
    return {row.split()[0]: int(row.split()[2]) for row in rows}


def test_a_machine_obeys_its_areas_lease(bed, program, tided, tmp_path):  # noqa: F811
    broker = bed.broker()
    (bed.folder() / "leases").write_text("threadtide leases 1 0 0\n")
    area = bed.unit(f"[unit]\nname = lab3\ncap = 80 W\n[local]\nbroker = 127.0.0.1:{broker.port}\n"
                    "[child m1]\nfloor = 30 W\nmost = 200 W\n")
    parent = bed.keep(Parent(broker, "m1"))
    tided.job("--max", str(CORES), name="train")
    link = bed.keep(Unit(program, tmp_path / "link",
                         f"[unit]\nname = m1\n[uplink]\nbroker = 127.0.0.1:{broker.port}\n"
                         f"[tided]\nsocket = {tided.dir}/api.sock\n"))
    eventually(lambda: leases(bed.folder()).get("m1", 0) > 30 * W)
    assert leases(bed.folder())["m1"] <= 80 * W
    eventually(lambda: cap(tided)["source"] == "lease" and cap(tided)["uw"] == leases(bed.folder())["m1"])
    assert cap(tided)["caps"][0]["floor_uw"] == 30 * W
    parent.wait(lambda p: len(p.of("machine")) >= 5 and len(p.of("part:idle")) >= 5)
    assert parent.states[-1]["role"] == "machine"
    assert not [line for line in area.lines + link.lines if "ignored" in line or "not understood" in line]


def test_a_machine_without_jobs_has_what_is_left_until_another_has_a_use_for_it(bed, program, tided, tmp_path):  # noqa: F811
    """As a node of Kubernetes, whose pods are no jobs. It draws 120 W at most, with its margin 130 W."""
    broker = bed.broker()
    (bed.folder() / "leases").write_text("threadtide leases 1 0 0\n")
    bed.unit(f"[unit]\nname = lab3\ncap = 310 W\n[local]\nbroker = 127.0.0.1:{broker.port}\n"
             "[child m1]\nfloor = 10 W\n[child m2]\nfloor = 20 W\n")
    parent = bed.keep(Parent(broker, "m1"))
    other = bed.keep(Machine(broker, "m2", 20, [(20, 0), (30, 1000)]))
    bed.keep(Unit(program, tmp_path / "link",
                  f"[unit]\nname = m1\n[uplink]\nbroker = 127.0.0.1:{broker.port}\n[tided]\nsocket = {tided.dir}/api.sock\n"))
    parent.wait(lambda p: p.demands and len(p.demands[-1]["points"]) == 1)
    told = len(parent.demands)
    parent.wait(lambda p: len(p.demands) > told + 5)  # the area has read the first
    eventually(lambda: 279 * W < cap(tided)["uw"] <= 280 * W)  # what is hardly more is no message worth
    other.points = [[20 * W, 0], [400 * W, 9000]]
    eventually(lambda: other.may_draw() > 150 * W and cap(tided)["uw"] + other.may_draw() <= 310 * W)


def test_a_machine_of_an_area_without_a_cap_is_free(bed, program, tided, tmp_path):  # noqa: F811
    broker = bed.broker()
    (bed.folder() / "leases").write_text("threadtide leases 1 0 0\n")
    bed.unit(f"[unit]\nname = lab3\n[local]\nbroker = 127.0.0.1:{broker.port}\n[child m1]\nfloor = 30 W\n"
             f"[uplink]\nbroker = 127.0.0.1:{broker.port}\nlease = no\n")
    bed.keep(Parent(broker, "m1"))
    tided.job("--max", str(CORES), name="train")
    link = bed.keep(Unit(program, tmp_path / "link",
                         f"[unit]\nname = m1\n[uplink]\nbroker = 127.0.0.1:{broker.port}\n"
                         f"[tided]\nsocket = {tided.dir}/api.sock\n"))
    eventually(lambda: [c["source"] for c in cap(tided)["caps"]] == ["lease"] and cap(tided)["uw"] is None)
    assert cap(tided)["caps"][0]["floor_uw"] == 30 * W
    assert "power cap" not in tided.log.read_text()
    assert not [line for line in link.lines if "uw must be" in line]


@pytest.mark.parametrize("users", ["no", "yes"])
def test_who_was_shrunk_for_the_cap_goes_up_to_the_area_and_its_parent(bed, program, tided, tmp_path, users):  # noqa: F811
    broker, above = bed.broker(), bed.broker("above")
    (bed.folder() / "leases").write_text("threadtide leases 1 0 0\n")
    bed.unit(f"[unit]\nname = lab3\ncap = 60 W\n[local]\nbroker = 127.0.0.1:{broker.port}\n"
             f"[uplink]\nbroker = 127.0.0.1:{above.port}\n[child m1]\nfloor = 30 W\nmost = 200 W\n")
    parent = bed.keep(Parent(above))
    link = bed.keep(Unit(program, tmp_path / "link",
                         f"[unit]\nname = m1\n[uplink]\nbroker = 127.0.0.1:{broker.port}\n"
                         f"[tided]\nsocket = {tided.dir}/api.sock\nusers = {users}\n"))
    eventually(lambda: cap(tided)["source"] == "lease")
    assert tided.api("GET", "/v1/power/shrunk") == (200, {"jobs": []})  # no job yet
    job = tided.job("--max", str(CORES), name="train")

    def less():
        """The cap leaves it fewer cores, one at least, and the answer says how many fewer; load of others moves both."""
        rows, left = tided.api("GET", "/v1/power/shrunk")[1]["jobs"], max(cap(tided)["cores"], 1)
        return [(row["name"], row["cores"]) for row in rows] == [("train", CORES - left)] and left < CORES and rows

    told = eventually(less)
    parent.wait(lambda p: any(m["nodes"] for m in p.shrunk))
    message = next(m for m in reversed(parent.shrunk) if m["nodes"])
    assert [(n["node"], n["jobs"]) for n in message["nodes"]] == [("m1", 1)] and message["nodes"][0]["cores"] > 0
    assert [(j["node"], j["job"], j["user"]) for j in message["jobs"]] == (
        [("m1", "train", told[0]["user"])] if users == "yes" else [])
    job.end()
    parent.wait(lambda p: not p.shrunk[-1]["nodes"])
    assert not [line for line in link.lines if "not understood" in line]


class PlayedTided(socketserver.ThreadingUnixStreamServer):
    """Takes its time for its first lease: .release lets it answer. `told`: the watts of each lease; `power`: what it answers
    about power."""
    daemon_threads = True

    def __init__(self, path):
        self.told, self.asked, self.release, self.power = [], threading.Event(), threading.Event(), None
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self, status, body):
                text = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(text)
                self.close_connection = True

            def do_PUT(self):
                lease = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.set()
                outer.release.wait(4)  # tide-power waits five seconds
                outer.told.append(lease["uw"])
                self.answer(200, {})

            def do_GET(self):
                if self.path == "/v1/power" and outer.power:
                    self.answer(200, outer.power)
                else:
                    self.answer(404, {"error": {"message": "not here", "hint": ""}})
            do_POST = do_GET

            def log_message(self, *words):
                pass
        super().__init__(str(path), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *error):
        self.release.set()
        self.shutdown()
        self.server_close()


def test_a_lease_that_comes_while_tided_is_told_another_is_told_before_it_is_acknowledged(bed, program, tmp_path):  # noqa: F811
    broker = bed.broker()
    parent = bed.keep(Parent(broker, "m1"))
    with PlayedTided(tmp_path / "api.sock") as tided:
        bed.keep(Unit(program, tmp_path / "link", f"[unit]\nname = m1\n[uplink]\nbroker = 127.0.0.1:{broker.port}\n"
                                                  f"[tided]\nsocket = {tmp_path}/api.sock\n"))
        parent.wait(lambda p: p.asks)

        def lend(number, watts):
            ask = parent.asks[-1]
            broker.publish("tide/1/m1/down/lease", json.dumps(
                {"v": 1, "boot": ask["boot"], "stamp": ask["stamp"], "number": number, "uw": watts * W, "floor": 30 * W,
                 "ttl": 30000, "kind": "breaker"}))

        lend(1, 80)
        assert tided.asked.wait(30)
        lend(2, 60)  # smaller; tided still has the first one in hand
        time.sleep(0.5)
        tided.release.set()
        parent.wait(lambda p: any(a["number"] == 2 and a["kept"] for a in p.acks))
        assert tided.told[-1] == 60 * W, (tided.told, parent.acks)
        assert not [a for a in parent.acks if a["number"] == 1 and a["uw"] == 60 * W]


def test_a_lease_of_no_watts_is_obeyed(bed, program, tided, tmp_path):  # noqa: F811
    """Other loads have used up what the breaker bears, and the machine has no floor."""
    broker = bed.broker()
    parent = bed.keep(Parent(broker, "m1"))
    bed.keep(Unit(program, tmp_path / "link", f"[unit]\nname = m1\n[uplink]\nbroker = 127.0.0.1:{broker.port}\n"
                                              f"[tided]\nsocket = {tided.dir}/api.sock\n"))
    parent.wait(lambda p: p.asks)
    ask = parent.asks[-1]
    broker.publish("tide/1/m1/down/lease", json.dumps(
        {"v": 1, "boot": ask["boot"], "stamp": ask["stamp"], "number": 1, "uw": 0, "floor": 0, "ttl": 30000, "kind": "breaker"}))
    parent.wait(lambda p: p.acks)
    assert parent.acks[-1]["uw"] == 0
    assert (cap(tided)["source"], cap(tided)["uw"]) == ("lease", 1)


def test_a_first_answer_that_knows_nothing_makes_no_energy(bed, program, tmp_path):  # noqa: F811
    """tided knows nothing of its watts for a moment after a start of both; what it has counted is told already."""
    def power(joules, basis="measured"):
        energy = {"uj": joules * W, "low_uj": joules * W, "high_uj": joules * W, "basis": basis, "gap_ms": 0}
        return {"energy": energy, "power": {"uw": 0}, "parts": {part: energy for part in ("jobs", "system", "idle", "unattributed")}}

    broker = bed.broker()
    parent = bed.keep(Parent(broker, "m1"))
    machine = lambda: [r["uj"] // W for r in parent.of("machine")]  # noqa: E731
    with PlayedTided(tmp_path / "api.sock") as tided:
        tided.power = power(1000)
        link = bed.keep(Unit(program, tmp_path / "link", f"[unit]\nname = m1\n[uplink]\nbroker = 127.0.0.1:{broker.port}\n"
                                                         f"[tided]\nsocket = {tmp_path}/api.sock\n"))
        parent.wait(lambda p: machine())
        tided.power = power(1010)
        parent.wait(lambda p: machine()[-1] == 10)
        link.kill()
        told = len(machine())
        tided.power = power(0, "unknown")
        link.begin()
        parent.wait(lambda p: len(machine()) >= told + 2)
        assert machine()[-1] == 10
        tided.power = power(1015)
        parent.wait(lambda p: machine()[-1] > 10)
        assert machine()[-1] == 15


def enrol(program, *words):  # noqa: F811
    done = subprocess.run([program, "enrol", "https://127.0.0.1:1", *map(str, words)], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_a_node_that_is_enrolled_asks_nobody_and_needs_no_token_any_more(program, tmp_path):  # noqa: F811
    token = tmp_path / "token"
    state = tmp_path / "state"
    code, said = enrol(program, f"@{tmp_path}/none", "--state", state, "--keep")
    assert code == 2 and f"cannot read the token in {tmp_path}/none: No such file" in said
    token.write_text("tide-0-1\n")
    code, said = enrol(program, f"@{token}", "--state", state, "--keep")
    assert code == 2 and "this is no token of 'tide-hub token NAME'" in said
    token.write_text(f"tide-{'0' * 64}-{'1' * 64}\n")
    code, said = enrol(program, f"@{token}", "--state", state, "--keep")
    assert code == 1 and "127.0.0.1:1" in said  # it would ask the hub
    (state / "unit.crt").write_text("a certificate")
    assert enrol(program, f"@{tmp_path}/none", "--state", state, "--keep") == (0, "")
    assert (state / "unit.crt").read_text() == "a certificate"
