# SPDX-License-Identifier: Apache-2.0
"""Meters behind programs and management controllers: a command, OpenIPMI's simulator asked by ipmitool, a Redfish server
over HTTPS with a certificate of its own authority; and what they tell a machine's tided."""
import base64
import http.server
import json
import os
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import threading
import types

import pytest

from daemon import eventually
from unit_bed import Parent, Unit, bed, program, rig  # noqa: F401

ROOT = pathlib.Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(bool(rig.missing()), reason=f"not installed: {', '.join(rig.missing())}")


def conf(broker, meter):
    return f"[unit]\nname = lab3\n[uplink]\nbroker = 127.0.0.1:{broker.port}\n[meter bmc]\n{meter}\n"


def draws(watts, off=0.02):
    return lambda parent: parent.draws and parent.draws[-1] and abs(parent.draws[-1]["uw"] / 1e6 / watts - 1) < off


# ---- a program ----

def test_a_program_tells_watts(bed, tmp_path):  # noqa: F811
    broker = bed.broker()
    parent = bed.parent(broker)
    (tmp_path / "watts").write_text("a warning\n83.5 W\n")
    bed.unit(conf(broker, f"kind = command\ncommand = /bin/cat {tmp_path}/watts\nperiod = 1s"))
    parent.wait(draws(83.5))
    (tmp_path / "watts").write_text("120\n")
    parent.wait(draws(120))


def has_libcurl(unit):
    """Two megabytes that a unit without a controller saves."""
    return "libcurl" in pathlib.Path(f"/proc/{unit.process.pid}/maps").read_text()


def test_a_programs_counter_is_energy(bed, tmp_path):  # noqa: F811
    broker = bed.broker()
    parent = bed.parent(broker)
    (tmp_path / "kwh").write_text("12.5 kWh\n")
    unit = bed.unit(conf(broker, f"kind = command\ncommand = cat {tmp_path}/kwh\nperiod = 1s\nmost = 10 MW"))
    parent.wait(lambda p: len(p.of("area")) >= 3)
    (tmp_path / "kwh").write_text("12.6 kWh\n")
    parent.wait(lambda p: p.of("area")[-1]["uj"] == 360_000_000_000)
    assert not [line for line in unit.lines if "bmc" in line], unit.lines
    assert not has_libcurl(unit)


@pytest.mark.parametrize("command, words", [
    ("/bin/echo much", "prints no line like '83.2 W'"),
    ("/nonexistent/watts", "cannot run /nonexistent/watts: No such file"),
    ("/bin/ls /nonexistent/folder", "/bin/ls failed (2): "),
    ("/bin/sleep 60", "/bin/sleep did not end within 10 s")])
def test_why_a_program_tells_nothing_is_said(bed, command, words):  # noqa: F811
    unit = bed.unit(conf(bed.broker(), f"kind = command\ncommand = {command}\nperiod = 1s"))
    unit.wait_line(words)
    assert subprocess.run(["pgrep", "-f", f"^{command}$"], capture_output=True, check=False).returncode == 1


def test_the_service_has_room_for_the_programs_of_all_meters_at_once(bed):  # noqa: F811
    """The pauses of all begin together."""
    service = (ROOT / "dist/tide-power.service.in").read_text()
    room = int(re.search(r"^TasksMax=(\d+)$", service, re.M)[1])
    meters = "".join(f"[meter m{number}]\nkind = command\ncommand = /bin/sleep 9\nperiod = 30s\n" for number in range(256))
    unit = bed.unit(f"[unit]\nname = lab3\n{meters}")
    task = pathlib.Path(f"/proc/{unit.process.pid}/task")
    children = task / f"{unit.process.pid}/children"
    eventually(lambda: len(children.read_text().split()) == 256)
    assert 256 + len(list(task.iterdir())) <= room


# ---- IPMI ----

SENSOR = "Pwr Consumption"
needs_ipmi = pytest.mark.skipif(not shutil.which("ipmi_sim") or not shutil.which("ipmitool"),
                                reason="openipmi or ipmitool is not installed")


class Simulator:
    """OpenIPMI's: a controller on loopback with one sensor, whose watts are twice what a file says."""

    def __init__(self, folder):
        folder.mkdir()
        (folder / "state").mkdir()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.file = folder / "watts"
        self.set(200)
        self.password = folder / "password"
        self.password.write_text("secret\n")
        name = SENSOR.encode()
        full = [0x20, 0, 1, 7, 1, 0x7f, 0x68, 0x0b, 0x01, *[0] * 6, 0, 6, 0, 0, 2, *[0] * 6, 0, 0, 0, 0xff, *[0] * 12,
                0xc0 | len(name), *name]
        record = " ".join(f"{byte:#04x}" for byte in [0, 0, 0x51, 1, len(full), *full])
        none = "0" * 15
        (folder / "sim.emu").write_text(
            "mc_setbmc 0x20\nmc_add 0x20 0 has-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02\nsel_enable 0x20 1000 0x0a\n"
            f"sensor_add 0x20 0 1 0x0b 0x01 poll 200 file \"{self.file}\"\n"
            f"sensor_set_event_support 0x20 0 1 enable scanning per-state {none} {none} {none} {none}\n"
            f"main_sdr_add 0x20 {record}\nmc_enable 0x20\n")
        auths = "".join(f"    allowed_auths_{who} none md5 straight\n" for who in ("callback", "user", "operator", "admin"))
        (folder / "lan.conf").write_text(
            f"name \"sim\"\nset_working_mc 0x20\n  startlan 1\n    addr 127.0.0.1 {self.port}\n    priv_limit admin\n"
            f"{auths}    guid a123456789abcdefa123456789abcdef\n  endlan\n"
            "  user 2 true \"reader\" \"secret\" admin 10 none md5 straight\n")
        self.process = subprocess.Popen(["ipmi_sim", "-c", folder / "lan.conf", "-f", folder / "sim.emu", "-s",
                                         folder / "state", "-n"], stdout=subprocess.DEVNULL)

    def set(self, watts):
        self.file.write_text(f"{watts // 2}\n")

    def meter(self, sensor=SENSOR):
        # The simulator does not answer which suites it has.
        return (f"kind = ipmi\naddress = 127.0.0.1:{self.port}\nuser = reader\npassword-file = {self.password}\n"
                f"cipher = 3\nsensor = {sensor}\nperiod = 1s")

    def end(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def simulator(bed, tmp_path):  # noqa: F811
    return bed.keep(Simulator(tmp_path / "ipmi"))


@needs_ipmi
def test_ipmitool_reads_a_controllers_sensor(bed, simulator):  # noqa: F811
    broker = bed.broker()
    parent = bed.parent(broker)
    unit = bed.unit(conf(broker, simulator.meter()))
    parent.wait(draws(200))
    simulator.set(300)
    parent.wait(draws(300))
    simulator.end()
    unit.wait_line("ipmitool did not end within 10 s")
    assert "secret" not in "".join(unit.lines)


@needs_ipmi
def test_another_name_of_the_sensor_is_said(bed, simulator):  # noqa: F811
    unit = bed.unit(conf(bed.broker(), simulator.meter(sensor="Power")))
    unit.wait_line("ipmitool tells no watts: sensor= names another sensor")


# ---- Redfish ----

def links(*paths):
    return {"Members": [{"@odata.id": path} for path in paths]}


class Controller(http.server.ThreadingHTTPServer):
    """A Redfish service: a chassis without power, and one with. @auth: "basic" or "session"."""

    daemon_threads = True

    def __init__(self, folder, auth="basic", resource="EnvironmentMetrics"):
        super().__init__(("127.0.0.1", 0), Answers)
        self.auth, self.resource, self.watts, self.tokens, self.asked = auth, resource, 240.0, set(), []
        self.ca, cert, key = certificates(folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.password = folder / "password"
        self.password.write_text("se:cret\n")
        self.thread = threading.Thread(target=self.serve_forever, daemon=True)
        self.thread.start()
        self.process = self  # to the bed it is one

    def poll(self):
        return None

    def send_signal(self, number):
        pass

    def handle_error(self, request, client_address):
        pass  # a client that does not trust us

    def tree(self):
        chassis = "/redfish/v1/Chassis"
        return {chassis: links(f"{chassis}/Blank", f"{chassis}/1"),
                f"{chassis}/Blank": {"Id": "Blank"},
                f"{chassis}/1": {"Id": "1", self.resource: {"@odata.id": f"{chassis}/1/{self.resource}"}},
                f"{chassis}/1/EnvironmentMetrics": {"PowerWatts": {"Reading": self.watts, "DataSourceUri": None}},
                f"{chassis}/1/Power": {"PowerControl": [{"PowerConsumedWatts": self.watts}]}}

    def allows(self, headers):
        if self.auth == "session":
            return headers.get("X-Auth-Token") in self.tokens
        return headers.get("Authorization") == "Basic " + base64.b64encode(b"reader:se:cret").decode()

    def meter(self, more=""):
        return (f"kind = redfish\nurl = https://localhost:{self.server_port}\nca = {self.ca}\nuser = reader\n"
                f"password-file = {self.password}\nperiod = 1s\n{more}")

    def end(self):
        self.shutdown()
        self.server_close()


class Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body, *headers):
        text = json.dumps(body).encode()
        self.send_response(status)
        for name, value in (("Content-Length", str(len(text))), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        self.server.asked.append(self.path)
        if not self.server.allows(self.headers):
            self.answer(401, {"error": {}})
        elif self.path in self.server.tree():
            self.answer(200, self.server.tree()[self.path])
        else:
            self.answer(404, {"error": {}})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/redfish/v1/SessionService/Sessions" or body != {"UserName": "reader", "Password": "se:cret"}:
            self.answer(401, {"error": {}})
            return
        token = f"token{len(self.server.asked)}"
        self.server.tokens = {token}
        self.answer(201, {"Id": "1"}, ("X-Auth-Token", token), ("Location", "/redfish/v1/SessionService/Sessions/1"))

    def log_message(self, *args):
        pass


def certificates(folder):
    """An authority, and a certificate of it for localhost: files."""
    folder.mkdir(exist_ok=True)

    def run(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
    run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "ca.key", "-out",
        "ca.crt", "-subj", "/CN=authority", "-days", "2")
    run("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "bmc.key", "-out", "bmc.csr",
        "-subj", "/CN=localhost")
    (folder / "ext").write_text("subjectAltName=DNS:localhost\n")
    run("x509", "-req", "-in", "bmc.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-out", "bmc.crt",
        "-days", "1", "-extfile", "ext")
    return folder / "ca.crt", folder / "bmc.crt", folder / "bmc.key"


@pytest.mark.parametrize("auth", ["basic", "session"])
@pytest.mark.parametrize("resource", ["EnvironmentMetrics", "Power"])
def test_a_redfish_controller_is_asked_where_its_power_is(bed, tmp_path, auth, resource):  # noqa: F811
    broker, controller = bed.broker(), bed.keep(Controller(tmp_path / "bmc", auth, resource))
    parent = bed.parent(broker)
    unit = bed.unit(conf(broker, controller.meter()))
    parent.wait(draws(240))
    controller.watts = 310.5
    parent.wait(draws(310.5))
    found = f"/redfish/v1/Chassis/1/{resource}"
    assert set(controller.asked[-2:]) == {found}, "it goes on asking all of them"
    controller.tokens.clear()  # the session has ended
    controller.watts = 150.0
    parent.wait(draws(150))
    assert "cret" not in "".join(unit.lines)
    assert has_libcurl(unit)


def test_a_controller_of_another_authority_is_told_nothing(bed, tmp_path):  # noqa: F811
    controller = bed.keep(Controller(tmp_path / "bmc"))
    other, _, _ = certificates(tmp_path / "other")
    unit = bed.unit(conf(bed.broker(), controller.meter().replace(str(controller.ca), str(other))))
    unit.wait_line("certificate")
    assert controller.asked == []


def test_a_wrong_password_and_a_controller_without_power_are_said(bed, tmp_path):  # noqa: F811
    controller = bed.keep(Controller(tmp_path / "bmc"))
    controller.password.write_text("wrong\n")
    unit = bed.unit(conf(bed.broker(), controller.meter()))
    unit.wait_line("opens no session (HTTP 401)")
    controller.resource = "None"
    controller.auth = "basic"
    unit.end()
    controller.password.write_text("se:cret\n")
    unit.begin()
    unit.wait_line("none of its chassis tells its power")


# ---- readings for a machine's tided ----

def sourced(tided):
    return {s["name"]: s for s in tided.api("GET", "/v1/power/sources")[1]}


@pytest.fixture
def tided(place):
    path = place.base / "tide.conf"
    path.write_text("[daemon]\npower=none\n")
    path.chmod(0o644)
    daemon = place.daemon("--config", path).start()
    daemon.job()
    return daemon


@needs_ipmi
def test_a_controllers_watts_measure_the_machine_and_steer_no_cap(bed, simulator, tided, program):  # noqa: F811
    bed.keep(Unit(program, bed.folder() / "link", f"[unit]\nname = m1\n[tided]\nsocket = {tided.dir}/api.sock\n"
                  f"[meter bmc]\n{simulator.meter()}\ncovers = machine\n"))
    eventually(lambda: (tided.api("GET", "/v1/power")[1]["power"]["uw"] or 0) == 200_000_000)
    assert tided.api("GET", "/v1/power")[1]["power"]["basis"] == "measured" and sourced(tided)["bmc"]["used"]
    simulator.set(400)
    eventually(lambda: tided.api("GET", "/v1/power")[1]["power"]["uw"] == 400_000_000)
    assert sourced(tided)["bmc"]["slow"]


def test_a_cap_that_only_a_controller_checks_says_so_and_is_over_when_that_told_more_for_a_minute(bed, simulator, place, program):  # noqa: F811
    path = place.base / "tide.conf"
    path.write_text("[daemon]\npower=none\npower-model=points:100,150,250,300\n")
    path.chmod(0o644)
    daemon = place.daemon("--config", path).start()
    bed.keep(Unit(program, bed.folder() / "link", f"[unit]\nname = m1\n[tided]\nsocket = {daemon.dir}/api.sock\n"
                  f"[meter bmc]\n{simulator.meter()}\ncovers = machine\n"))
    eventually(lambda: (daemon.api("GET", "/v1/power")[1]["power"]["uw"] or 0) == 200_000_000)
    assert daemon.api("PUT", "/v1/power/cap", {"uw": 350_000_000})[0] == 200
    cap = daemon.api("GET", "/v1/power/cap")[1]
    assert cap["state"] == "kept" and "a minute ago" in cap["why"]
    simulator.set(400)
    eventually(lambda: daemon.api("GET", "/v1/power")[1]["power"]["uw"] == 400_000_000)
    eventually(lambda: "400.0 W by its only meter" in daemon.api("GET", "/v1/power/cap")[1]["why"], guard=90)
    assert daemon.api("GET", "/v1/power/cap")[1]["state"] == "over"
    assert daemon.api("PUT", "/v1/power/cap", {"uw": 500_000_000})[0] == 200
    assert daemon.api("GET", "/v1/power/cap")[1]["state"] == "kept"


def test_the_areas_plug_measures_a_machine(bed, tided, program, tmp_path):  # noqa: F811
    broker = bed.broker()
    bed.unit(f"[unit]\nname = lab3\n[local]\nbroker = 127.0.0.1:{broker.port}\n"
             "[meter plug1]\nkind = tasmota\ntopic = plug1\nerror = 1 %\ncovers = machine m1\n")
    link = bed.keep(Unit(program, tmp_path / "link",
                         f"[unit]\nname = m1\n[uplink]\nbroker = 127.0.0.1:{broker.port}\n"
                         f"[tided]\nsocket = {tided.dir}/api.sock\n"))
    bed.keep(rig.Plugs(broker, "tasmota:plug1=90W", period=0.5))
    eventually(lambda: abs((tided.api("GET", "/v1/power")[1]["power"]["uw"] or 0) / 90e6 - 1) < 0.02)
    assert sourced(tided)["plug1"]["used"] and not sourced(tided)["plug1"]["slow"] and sourced(tided)["plug1"]["error_permille"] == 10
    broker.publish("tide/1/m1/down/reading", '{"v":1,"name":"liar","error":0,"slow":false,"uw":-5}')
    link.wait_line("a message of the parent is ignored: ")
    broker.publish("tide/1/m1/down/reading", '{"v":1,"name":"a b","error":0,"slow":false,"uw":5}')
    link.wait_line("tided: ")
    assert set(sourced(tided)) == {"plug1"}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: jobs of other users")
def test_users_energy_goes_up_only_where_it_is_said(bed, place, program, tmp_path):  # noqa: F811
    path = place.base / "tide.conf"
    path.write_text("[daemon]\npower=none\npower-model=points:20,35,75,120\n")
    path.chmod(0o644)
    daemon = place.daemon("--config", path).start()
    job = subprocess.Popen([program.parent / "tide", "run", "--", "sh", "-c", "while :; do :; done"],
                           env={**os.environ, "TIDE_DIR": str(daemon.dir), "TIDE_CLAIMS_DIR": str(place.base / "claims")})
    bed.keep(types.SimpleNamespace(process=job, end=job.kill))
    eventually(lambda: daemon.api("GET", "/v1/energy?by=user&since=0")[1]["rows"])
    broker = bed.broker()
    for name, users in (("m1", "yes"), ("m2", "no")):
        bed.keep(Unit(program, tmp_path / name, f"[unit]\nname = {name}\n[uplink]\nbroker = 127.0.0.1:{broker.port}\n"
                      f"[tided]\nsocket = {daemon.dir}/api.sock\nusers = {users}\n"))
    told, untold = bed.keep(Parent(broker, "m1")), bed.keep(Parent(broker, "m2"))
    told.wait(lambda p: p.of("user:root"))
    untold.wait(lambda p: len(p.of("machine")) > 2)
    assert not [r for r in untold.records.values() if r["point"].startswith("user:")]
