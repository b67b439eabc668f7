# SPDX-License-Identifier: Apache-2.0
"""The broker of tide-hub, a real mosquitto: who may connect, and what each may say and hear."""
import ctypes
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

from conftest import ROOT
from daemon import GUARD_S, eventually
from hub import AS_ROOT, TOOLS, Hub, end_listener

pytestmark = pytest.mark.skipif(not all(map(shutil.which, TOOLS)),
                                reason="mosquitto-clients and openssl are not installed")


@pytest.fixture
def hub(build_dir, tmp_path):
    made = Hub(build_dir / "tide-hub", tmp_path)
    made.start()
    yield made
    made.stop()


def test_a_unit_speaks_to_the_hub_below_its_own_name_alone(hub):
    hub.enrol("lab3")
    hub.enrol("lab4")
    process, heard = hub.listen("hub", "tide/1/+/up/#")
    try:
        assert hub.publish("lab3", "tide/1/lab3/up/state", "mine") == (0, ""), hub.log()
        hub.publish("lab4", "tide/1/lab3/up/state", "forged")
        hub.publish("lab4", "tide/1/lab4/down/lease", "forged")
        assert hub.publish("lab4", "tide/1/lab4/up/state", "last")[0] == 0
        eventually(lambda: "last" in heard.read_text())
        assert "tide/1/lab3/up/state mine" in heard.read_text()
        assert "forged" not in heard.read_text()
    finally:
        end_listener(process)


def test_a_unit_cannot_fill_the_broker_with_topics_that_nobody_reads(hub):
    hub.enrol("lab3")
    process, heard = hub.listen("hub", "tide/1/+/up/#")
    try:
        for leaf in ("up/pile-1", "up/state/pile-2", "up"):
            hub.publish("lab3", f"tide/1/lab3/{leaf}", "piled", "-r")
        for leaf in ("state", "energy", "demand", "ask", "ack", "event", "request"):
            assert hub.publish("lab3", f"tide/1/lab3/up/{leaf}", f"my {leaf}")[0] == 0
        eventually(lambda: "my request" in heard.read_text())
        assert heard.read_text().count(" my ") == 7
        assert "piled" not in heard.read_text()
    finally:
        end_listener(process)


def test_a_unit_hears_what_is_for_it_alone(hub):
    hub.enrol("lab3")
    process, heard = hub.listen("lab3", "tide/1/#")
    try:
        hub.publish("hub", "tide/1/lab4/down/lease", "other")
        hub.publish("hub", "tide/1/lab3/down/lease", "for me")
        eventually(lambda: "for me" in heard.read_text())
        assert "other" not in heard.read_text()
    finally:
        end_listener(process)


def test_who_has_no_certificate_of_ours_does_not_connect(hub):
    hub.enrol("lab3")
    # A certificate that it signed itself.
    subprocess.run(["openssl", "req", "-x509", "-key", hub.folder / "lab3.key", "-subj", "/CN=tide-hub",
                    "-out", hub.folder / "self.crt", "-days", "2"], check=True, capture_output=True)
    shutil.copy(hub.folder / "lab3.key", hub.folder / "self.key")
    assert hub.publish("self", "tide/1/tide-hub/up/state", "x")[0] != 0
    done = subprocess.run(["mosquitto_pub", "-h", "127.0.0.1", "-p", str(hub.port), "--cafile",
                           hub.state / "trust/ca.crt", "-t", "tide/1/lab3/up/state", "-m", "x"],
                          capture_output=True, timeout=GUARD_S)
    assert done.returncode != 0


def test_no_unit_takes_anothers_place_by_its_client_id(hub):
    hub.enrol("lab3")
    hub.enrol("lab4")
    process, heard = hub.listen("lab3", "tide/1/lab3/down/#")
    try:
        hub.publish("lab4", "tide/1/lab4/up/state", "x", "-i", "lab3")
        hub.publish("hub", "tide/1/lab3/down/lease", "still there")
        eventually(lambda: "still there" in heard.read_text())
        assert process.poll() is None
    finally:
        end_listener(process)


def test_a_revoked_unit_is_silent_at_once_and_cannot_come_again(hub):
    hub.enrol("lab3")
    hub.enrol("lab4")
    unit, heard = hub.listen("lab3", "tide/1/lab3/down/#")
    try:
        hub.publish("hub", "tide/1/lab3/down/lease", "before")
        eventually(lambda: "before" in heard.read_text())
        assert hub.run("unit", "revoke", "lab3") == (0, "", "")
        eventually(lambda: "Reloading config" in hub.log())
        hub.publish("hub", "tide/1/lab3/down/lease", "after")
        time.sleep(0.2)  # it would have come long before the next test's end
        assert "after" not in heard.read_text()
    finally:
        end_listener(unit)
    process, heard = hub.listen("hub", "tide/1/+/up/#")
    try:
        assert hub.publish("lab3", "tide/1/lab3/up/state", "revoked")[0] != 0
        assert hub.publish("lab4", "tide/1/lab4/up/state", "last")[0] == 0
        eventually(lambda: "last" in heard.read_text())
        assert "revoked" not in heard.read_text()
        assert hub.run("unit", "sign", "lab3", hub.folder / "lab3.csr")[0] == 3
    finally:
        end_listener(process)
    assert hub.run("unit", "admit", "lab3") == (0, "", "")
    assert hub.publish("lab3", "tide/1/lab3/up/state", "old one")[0] != 0
    hub.enrol("lab3")
    assert hub.publish("lab3", "tide/1/lab3/up/state", "new one")[0] == 0


def test_the_list_of_units_tells_what_was_signed(hub):
    hub.enrol("lab3")
    hub.enrol("lab4")
    hub.run("unit", "revoke", "lab3")
    lines = [line.split() for line in hub.run("unit", "list")[1].splitlines()]
    assert [(line[0], line[2]) for line in lines] == [("lab3", "revoked"), ("lab4", "signed")]
    serial = subprocess.run(["openssl", "x509", "-in", hub.folder / "lab4.crt", "-noout", "-serial"],
                            check=True, capture_output=True, text=True).stdout
    assert serial.strip().lower() == f"serial={lines[1][1]}"


@pytest.mark.parametrize("arguments, code, told", [
    (("unit", "sign", "Lab 3", "none.csr"), 3, "none.csr: No such file"),
    (("unit", "sign", "tide-hub", None), 3, "tide-hub is the hub's own name"),
    (("unit", "sign", "Lab3", None), 3, "'Lab3' is no name of a unit"),
    (("unit", "revoke", "nobody"), 3, "there is no unit nobody with a certificate"),
    (("unit", "revoke"), 2, "Usage: tide-hub unit"),
    (("broker",), 2, "Usage: tide-hub broker"),
    (("broker", "--host", "a", "--port", "70000"), 2, "use a number from 1 to 65535"),
    (("broker", "--host", "a", "--address", "all"), 2, "use an address as 127.0.0.1"),
])
def test_wrong_use_says_what_is_right(build_dir, tmp_path, arguments, code, told):
    hub = Hub(build_dir / "tide-hub", tmp_path)
    arguments = [hub.request("lab3") if a is None else a for a in arguments]
    status, out, err = hub.run(*arguments)
    assert (status, out) == (code, "")
    assert told in err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_root_becomes_the_owner_of_the_state_before_it_is_the_broker(build_dir):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        folder.chmod(0o755)
        hub = Hub(build_dir / "tide-hub", folder)
        hub.state.mkdir(mode=0o700)
        os.chown(hub.state, 65534, 65534)
        with open(folder / "broker.log", "wb") as log:
            hub.broker = subprocess.Popen(
                [hub.program, "broker", "--state", hub.state, "--port", str(hub.port), "--address", "127.0.0.1",
                 "--host", "127.0.0.1"], stdout=log, stderr=log)
        try:
            eventually(hub.listens)
            status = pathlib.Path(f"/proc/{hub.broker.pid}/status").read_text()
            assert re.search(r"^Name:\s+mosquitto$", status, re.M)
            for kind in ("Uid", "Gid"):
                assert re.search(rf"^{kind}:\s+65534\s+65534\s+65534\s+65534$", status, re.M), status
            assert re.search(r"^Groups:\s*(65534)?\s*$", status, re.M), status
            assert {path.stat().st_uid for path in hub.state.rglob("*")} == {65534}
            assert "root started it: the broker and its files are nobody's" in hub.log()
        finally:
            hub.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="for root alone")
@pytest.mark.parametrize("more, told", [
    (("--user", "nobody"), "does not belong to nobody: chown -R nobody it"),
    (("--user", "no-such-user"), "there is no user 'no-such-user'"),
    ((), "root shall not be the broker|does not belong to tide-hub"),
])
def test_root_is_told_whose_the_broker_shall_be(build_dir, tmp_path, more, told):
    hub = Hub(build_dir / "tide-hub", tmp_path)
    hub.state.mkdir()
    code, _, err = hub.run("broker", "--host", "127.0.0.1", "--write", *more)
    assert code == 3 and re.search(told, err)
    assert not list(hub.state.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root writes into another user's directory")
def test_root_leaves_the_services_files_to_its_user(build_dir, tmp_path):
    hub = Hub(build_dir / "tide-hub", tmp_path)
    assert hub.run("unit", "list")[0] == 0
    os.chown(hub.state, 65534, -1)
    code, _, err = hub.run("unit", "list")
    assert code == 3 and "belongs to another user: run it as sudo -u nobody tide-hub" in err


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_the_services_are_what_systemd_understands(build_dir, tmp_path):
    units = []
    for name in ("tide-hub.service", "tide-hub-broker.service"):
        text = (ROOT / "dist" / f"{name}.in").read_text().replace("@BINDIR@", str(build_dir))
        (tmp_path / name).write_text(text)
        units.append(tmp_path / name)
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True,
                          timeout=60)
    ours = [line for line in done.stderr.splitlines() if "tide-hub" in line]
    assert done.returncode == 0 and not ours, done.stderr


def test_a_flood_that_the_hub_does_not_read_stays_within_the_brokers_memory(hub):
    hub.enrol("lab3")
    process, _ = hub.listen("hub", "tide/1/+/up/#")
    try:
        process.send_signal(signal.SIGSTOP)
        pour = subprocess.Popen(hub.client("mosquitto_pub", "lab3", "-t", "tide/1/lab3/up/energy", "-l"), stdin=subprocess.PIPE)
        for _ in range(1500):  # 300 MB
            pour.stdin.write(b"x" * 200_000 + b"\n")
        pour.stdin.close()
        assert pour.wait(GUARD_S) == 0
        status = pathlib.Path(f"/proc/{hub.broker.pid}/status").read_text()
        assert 64_000 < int(re.search(r"VmHWM:\s+(\d+)", status)[1]) < 160_000  # KiB
        assert hub.publish("lab3", "tide/1/lab3/up/state", "goes on")[0] == 0
    finally:
        process.kill()  # asked to end, it would read all of it first
        process.wait()


LANDLOCK = ctypes.CDLL(None).syscall(444, None, 0, 1)  # landlock_create_ruleset asks for its version


@pytest.mark.skipif(LANDLOCK < 1, reason="this kernel has no Landlock")
def test_a_broker_that_was_taken_over_reads_no_key_but_its_own(build_dir, tmp_path):
    hub = Hub(build_dir / "tide-hub", tmp_path)
    assert hub.run("broker", "--host", "127.0.0.1", "--write", *AS_ROOT)[0] == 0
    programs = tmp_path / "programs"
    programs.mkdir()
    probe = programs / "mosquitto"  # stands where the broker would: what it can open, the broker could
    probe.write_text(f"""#!/bin/sh
for file in {hub.state}/trust/ca.key {hub.state}/trust/seal.key {hub.state}/hub.key {hub.state}/broker/broker.key
do cat $file >&2 && echo "reads $file" >&2; done
for file in {hub.state}/broker/acl {hub.state}/new {tmp_path}/new
do echo x >> $file && echo "writes $file" >&2; done
{"" if LANDLOCK < 3 else "/usr/bin/python3 -c 'import os, sys; os.truncate(sys.argv[1], 0)' "}{hub.state}/broker/acl && echo "writes by emptying" >&2
""")
    probe.chmod(0o755)
    done = subprocess.run([hub.program, "broker", "--host", "127.0.0.1", "--state", hub.state, *AS_ROOT], capture_output=True,
                          text=True, timeout=60, env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"})
    said = [line for line in done.stderr.splitlines() if line.startswith(("reads", "writes"))]
    assert said == [f"reads {hub.state}/broker/broker.key"], done.stderr


@pytest.mark.parametrize("name", ["tide-hub", "tide-hub-broker", "tide-power"])
def test_who_has_keys_in_memory_leaves_none_on_disk_when_it_crashes(name):
    assert "\nLimitCORE=0\n" in (ROOT / "dist" / f"{name}.service.in").read_text()


@pytest.mark.parametrize("program, words", [("tide-hub", ["serve"]), ("tide-power", [])])
def test_a_wrong_configuration_is_said_once_and_not_each_five_seconds(build_dir, tmp_path, program, words):
    if not (build_dir / program).exists():
        pytest.skip(f"{program} was not built: libmosquitto is missing")
    (tmp_path / "wrong.conf").write_text("[nonsense]\nx = y\n")
    done = subprocess.run([build_dir / program, *words, "--config", tmp_path / "wrong.conf"], capture_output=True, text=True, timeout=GUARD_S)
    assert done.returncode == 2 and "nonsense" in done.stderr, done.stderr
    assert "\nRestartPreventExitStatus=2\n" in (ROOT / "dist" / f"{program}.service.in").read_text()


def test_the_state_is_nobody_elses(build_dir, tmp_path):
    hub = Hub(build_dir / "tide-hub", tmp_path)
    assert hub.run("broker", "--host", "127.0.0.1", "--write", *AS_ROOT)[0] == 0
    for path in [hub.state, *pathlib.Path(hub.state).rglob("*")]:
        public = path.parent.name == "trust" and path.name in ("ca.crt", "seal.pub", "revoked.crl")
        assert path.stat().st_mode & 0o077 == (0o044 if public else 0), path
