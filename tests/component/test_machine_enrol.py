# SPDX-License-Identifier: Apache-2.0
"""A machine below an area's unit in one command: a token of the hub, TLS to the area's own broker (a mosquitto that
tide-power makes), a lease, a real tided that obeys it; renewed and revoked as units are."""
import shutil
import socket
import subprocess

import pytest

from daemon import GUARD_S, eventually
from hub import TOOLS, Serving, free_port
from test_hub_enrol import enrol, token, url

pytestmark = pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason="mosquitto-clients or openssl is not installed")
W = 1_000_000
POLICY = ("version: 1\norg: unlp\nzone: UTC\nareas:\n- {area: unlp/lab3, unit: lab3}\n"
          "rules:\n- {area: unlp/lab3, cap: 80 W, floor: 30 W}\n")


class Area:
    """A hub, the unit lab3 with a broker of its own, and machines below it."""

    def __init__(self, build_dir, folder):
        self.build, self.folder, self.running = build_dir, folder, []
        self.hub = Serving(build_dir / "tide-hub", folder)
        (folder / "policy.yaml").write_text(POLICY)
        self.hub.options = ("--policy", folder / "policy.yaml")
        self.hub.start()
        self.hub.serve()
        eventually(lambda: url(self.hub))
        self.port, self.plugs = free_port(), free_port()

    def start(self, name, *arguments):
        with open(self.folder / f"{name}.log", "ab") as log:
            process = subprocess.Popen([self.build / "tide-power", *map(str, arguments)], stdout=log, stderr=log)
        self.running.append(process)
        return process

    def log(self, name):
        return (self.folder / f"{name}.log").read_text()

    def enrol(self, name, *options, tided=()):
        code, said = enrol(self.build, self.hub, token(self.hub, name, *options), *tided, folder=name)
        assert code == 0, said
        return (self.folder / f"{name}.conf").read_text()

    def begin(self):
        """The unit, and its broker."""
        self.enrol("lab3", "--broker", f"127.0.0.1:{self.port}")
        with open(self.folder / "lab3.conf", "a", encoding="utf-8") as conf:
            conf.write("\n[child m1]\nfloor = 30 W\nmost = 200 W\n")
        (self.folder / "lab3/leases").write_text("threadtide leases 1 0 0\n")  # none was ever lent
        self.broker = self.start("own-broker", "broker", "--config", self.folder / "lab3.conf", "--address", "127.0.0.1",
                                 "--port", self.port, "--plugs", f"127.0.0.1:{self.plugs}")
        eventually(self.listens)
        self.unit = self.start("lab3", "--config", self.folder / "lab3.conf")
        eventually(lambda: "local: connected" in self.log("lab3") and "is in force" in self.log("lab3"))

    def listens(self):
        assert self.broker.poll() is None, self.log("own-broker")
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def machine(self, tided):
        self.enrol("m1", "--unit", "lab3", tided=("--tided", f"{tided.dir}/api.sock"))
        return self.start_machine()

    def start_machine(self):
        return self.start("m1", "--config", self.folder / "m1.conf")

    def publish(self, name, topic, port=None, text="{}"):
        """Exit code and words of a client with that certificate, or none."""
        files = self.folder / name if name else None
        trust = ("--cafile", files / "ca.crt", "--cert", files / "unit.crt", "--key", files / "unit.key") if name else ()
        done = subprocess.run(["mosquitto_pub", "-V", "5", "-h", "127.0.0.1", "-p", str(port or self.port), "-q", "1",
                               "-t", topic, "-m", text, *map(str, trust)], capture_output=True, text=True, timeout=GUARD_S)
        return done.returncode, done.stderr

    def end(self):
        for process in reversed(self.running):
            process.terminate()
            process.wait(GUARD_S)
        self.hub.stop()


@pytest.fixture
def area(build_dir, tmp_path):
    if not (build_dir / "tide-power").exists():
        pytest.skip("tide-power was built without libmosquitto")
    made = Area(build_dir, tmp_path)
    yield made
    made.end()


@pytest.fixture
def tided(place):
    """20 W idle, 120 W at work, by a model: no meter is needed to divide and to obey."""
    path = place.base / "tide.conf"
    path.write_text("[daemon]\npower=none\npower-model=points:20,35,75,120\n")
    path.chmod(0o644)
    return place.daemon("--cpus", "0-15", "--config", path).start()


def cap(tided):
    return tided.api("GET", "/v1/power/cap")[1]


def text_of(cert, *what):
    return subprocess.run(["openssl", "x509", "-noout", *what, "-in", cert], capture_output=True, text=True, check=True).stdout


def test_a_token_becomes_a_lease_that_tided_obeys(area, tided):
    area.begin()
    tided.job("--max", "16", name="train")
    area.machine(tided)
    eventually(lambda: cap(tided).get("source") == "lease" and 30 * W < cap(tided)["uw"] <= 80 * W)
    assert cap(tided)["caps"][0]["floor_uw"] == 30 * W
    # With TLS and a certificate, below its own name alone; plugs without one reach nothing of it.
    assert area.publish(None, "tide/1/m1/up/ask")[0] != 0
    area.enrol("lab4")
    assert "Not authorized" in area.publish("lab4", "tide/1/m1/down/lease")[1]
    assert "Not authorized" in area.publish(None, "tide/1/m1/down/lease", area.plugs)[1]
    assert area.publish(None, "tele/plug/SENSOR", area.plugs) == (0, "")
    assert (area.folder / "m1/unit.key").stat().st_mode & 0o777 == 0o600


def test_a_machine_asks_for_its_next_certificate_through_its_unit(area, tided):
    area.begin()
    area.enrol("m1", "--unit", "lab3", tided=("--tided", f"{tided.dir}/api.sock"))
    key, cert, request = (area.folder / "m1" / name for name in ("unit.key", "unit.crt", "again.csr"))
    subprocess.run(["openssl", "req", "-new", "-key", key, "-subj", "/CN=m1", "-out", request], check=True)
    subprocess.run(["openssl", "x509", "-req", "-in", request, "-CA", area.hub.state / "trust/ca.crt", "-CAkey",
                    area.hub.state / "trust/ca.key", "-days", "20", "-out", cert, "-extfile", "/dev/stdin"], check=True,
                   input="extendedKeyUsage=clientAuth\nkeyUsage=digitalSignature\n", text=True, capture_output=True)
    before = text_of(cert, "-serial")
    area.start_machine()
    eventually(lambda: "the certificate was renewed" in area.log("m1"))
    assert text_of(cert, "-serial") != before and "CN = m1" in text_of(cert, "-subject")
    eventually(lambda: area.log("m1").count("uplink: connected") == 2)
    assert "m1: has a new certificate" in area.hub.said()


def test_a_unit_asks_for_no_machine_but_its_own(area):
    """Neither for one of another unit nor for another unit."""
    area.begin()
    area.enrol("lab4")
    area.unit.terminate()  # its name is free for the client below
    area.unit.wait(GUARD_S)
    code, said = area.publish("lab3", "tide/1/lab3/up/request", area.hub.port, "lab4\n" + area.hub.request("x").read_text())
    assert code == 0, said
    eventually(lambda: "it asks for a machine that was not enrolled below it" in area.hub.said())
    assert "lab4: has a new certificate" not in area.hub.said()


def test_a_revoked_machine_is_not_heard_and_cannot_connect(area, tided):
    area.begin()
    tided.job("--max", "16", name="train")
    machine = area.machine(tided)
    eventually(lambda: cap(tided).get("source") == "lease" and cap(tided)["uw"] > 30 * W)
    assert area.hub.run("unit", "revoke", "m1")[0] == 0
    eventually(lambda: "another list of revoked machines" in area.log("lab3"))
    eventually(lambda: cap(tided)["uw"] == 30 * W, guard=2 * GUARD_S)  # its last lease has ended
    machine.terminate()
    machine.wait(GUARD_S)
    assert area.publish("m1", "tide/1/m1/up/ask")[0] != 0
    code, said = enrol(area.build, area.hub, token(area.hub, "m1", "--unit", "lab3"), "--force", folder="m1")
    assert code == 1 and "unit m1 was revoked" in said
    assert area.hub.run("unit", "admit", "m1")[0] == 0
    eventually(lambda: "m1" not in (area.folder / "lab3/broker/revoked").read_text())
    assert area.publish("m1", "tide/1/m1/up/ask")[0] != 0  # the old certificate stays refused
    assert enrol(area.build, area.hub, token(area.hub, "m1", "--unit", "lab3"), "--force", folder="m1")[0] == 0
    eventually(lambda: area.publish("m1", "tide/1/m1/up/ask") == (0, ""))


def test_a_broken_list_of_revoked_certificates_shuts_nobody_out(area):
    area.begin()
    good = (area.folder / "lab3/broker/revoked.crl").read_text()
    area.hub.publish("hub", "tide/1/lab3/down/revoked", "m1\n-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n")
    eventually(lambda: "list of revoked certificates" in area.log("lab3"))
    assert (area.folder / "lab3/broker/revoked.crl").read_text() == good
    assert "user m1" not in (area.folder / "lab3/broker/acl").read_text()


def test_a_link_of_the_services_user_is_not_followed(area, build_dir):
    """Whoever takes over tide-power owns its folder, where root writes at the next enrolment."""
    victim = area.folder / "victim"
    victim.mkdir(mode=0o755)
    (area.folder / "lab3").mkdir()
    (area.folder / "lab3/broker").symlink_to(victim)
    code, said = enrol(build_dir, area.hub, token(area.hub, "lab3", "--broker", f"127.0.0.1:{area.port}"), folder="lab3")
    assert code != 0 and "lab3/broker" in said, said
    assert list(victim.iterdir()) == [] and victim.stat().st_mode & 0o777 == 0o755


def test_the_units_certificate_stays_good_for_its_brokers_host(area):
    """Signed again, as it is when it is renewed."""
    area.begin()
    assert "IP Address:127.0.0.1" in text_of(area.folder / "lab3/unit.crt", "-ext", "subjectAltName")
    request = area.folder / "again.csr"
    subprocess.run(["openssl", "req", "-new", "-key", area.folder / "lab3/unit.key", "-subj", "/CN=x", "-out", request], check=True)
    (area.folder / "again.crt").write_text(area.hub.run("unit", "sign", "lab3", request)[1])
    assert "IP Address:127.0.0.1" in text_of(area.folder / "again.crt", "-ext", "subjectAltName")
    area.hub.enrol("lab4")
    done = subprocess.run(["openssl", "x509", "-noout", "-ext", "subjectAltName,extendedKeyUsage", "-in",
                           area.hub.folder / "lab4.crt"], capture_output=True, text=True, check=True)
    assert "127.0.0.1" not in done.stdout and "Server" not in done.stdout


def test_what_is_missing_is_said(area, build_dir):
    code, _, err = area.hub.run("token", "m1", "--unit", "lab3")
    assert code == 3 and "unit lab3 has no broker of its own for machines" in err
    assert area.hub.run("token", "lab3", "--broker", "a b")[0] == 2
    conf = area.enrol("lab3")
    assert "[local]" not in conf and "[tided]" not in conf
    done = subprocess.run([build_dir / "tide-power", "broker", "--config", area.folder / "lab3.conf"],
                          capture_output=True, text=True, timeout=GUARD_S)
    assert done.returncode == 1 and "lab3 is enrolled without a broker" in done.stderr
    conf = area.enrol("node7", tided=("--machine",))
    assert "[tided]\nsocket = /run/tide/api.sock\n" in conf and "seal = " in conf


def put(area, rules):
    """Puts a policy in force in which a machine is a unit of the hub."""
    path = area.folder / "machine.yaml"
    path.write_text("version: 1\norg: unlp\nzone: UTC\nareas:\n- {area: unlp/node1, unit: node1}\n"
                    + "rules:\n" + "".join(f"- {{area: {rule}}}\n" for rule in rules))
    code, _, err = area.hub.run("policy", "apply", path)
    assert code == 0, err


@pytest.fixture
def node1(area, tided):
    """The hub's own unit node1: a machine that is busy."""
    (area.hub.state / "leases").write_text("threadtide leases 1 0 0\n")  # none was ever lent
    area.hub.kill()
    area.hub.serve()
    tided.job("--max", "16", name="train")
    area.enrol("node1", tided=("--machine", "--tided", f"{tided.dir}/api.sock"))
    return area.start("node1", "--config", area.folder / "node1.conf")


def lease(tided):
    told = cap(tided)
    return told["uw"] if told.get("source") == "lease" else None


def test_a_cap_of_a_machine_that_is_a_unit_is_its_lease(area, tided, node1):
    """A machine reads no policy."""
    put(area, ["unlp/node1, cap: 90 W"])
    eventually(lambda: lease(tided) == 90 * W)
    put(area, ["unlp/node1, cap: 60 W"])
    eventually(lambda: lease(tided) == 60 * W)
    area.hub.kill()  # it has not heard the machine's role yet when it looks at its caps
    area.hub.serve()
    put(area, ["unlp, cap: 50 W", "unlp/node1, floor: 30 W"])  # of the area above, which has no other unit
    eventually(lambda: lease(tided) == 50 * W)
    assert cap(tided)["caps"][0]["floor_uw"] == 30 * W
    put(area, ["unlp/node1, floor: 30 W"])
    eventually(lambda: cap(tided)["uw"] is None)


def test_a_budget_of_a_machine_that_is_a_unit_is_lent(area, tided, node1):
    """A small one, of which soon nothing is left."""
    put(area, ["unlp/node1, budget: 0.001 kWh/day"])
    eventually(lambda: lease(tided) is not None and lease(tided) < 20 * W, guard=2 * GUARD_S)
