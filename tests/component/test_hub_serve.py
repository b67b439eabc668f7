# SPDX-License-Identifier: Apache-2.0
"""tide-hub serve with a real broker: records come in, receipts go out, and nothing is lost."""
import json
import os
import shutil
import subprocess
import time

import pytest

from daemon import GUARD_S, eventually
from hub import AS_ROOT, KWH, TOOLS, Hub, Serving
from notify import ServiceManager, asks_for_a_watchdog
from site_bed import Clock

pytestmark = pytest.mark.skipif(not all(map(shutil.which, TOOLS)),
                                reason="mosquitto-clients and openssl are not installed")
START_MS = int(time.time() * 1000) - 600_000


def records(first, last, boot=7, point="machine"):
    """Records of a unit that uses a thousandth of a kWh each second."""
    return {"v": 1, "boot": boot, "records": [
        {"point": point, "seq": n, "from": START_MS + (n - 1) * 1000, "to": START_MS + n * 1000,
         "mono": n * 10**9, "uj": n * KWH // 1000, "low": n * KWH // 1250, "high": n * KWH // 800,
         "basis": "measured", "gap": 0} for n in range(first, last + 1)]}


@pytest.fixture
def hub(build_dir, tmp_path):
    if b"serve" not in subprocess.run([build_dir / "tide-hub", "--help"], capture_output=True).stdout:
        pytest.skip("tide-hub was built without libmosquitto")
    made = Serving(build_dir / "tide-hub", tmp_path)
    made.start()
    made.serve()
    yield made
    made.stop()


def test_records_are_stored_and_get_a_receipt(hub):
    hub.enrol("lab3")
    hub.enrol("lab4")
    assert hub.send("lab3", records(1, 10)) == {"v": 1, "boot": 7, "seq": 10}
    assert hub.send("lab4", records(1, 3)) == {"v": 1, "boot": 7, "seq": 3}
    assert hub.energy() == {("lab3", "machine"): 0.01, ("lab4", "machine"): 0.003}


def test_what_is_sent_twice_counts_once(hub):
    hub.enrol("lab3")
    hub.send("lab3", records(1, 10))
    assert hub.send("lab3", records(4, 10))["seq"] == 10
    assert hub.send("lab3", records(8, 12))["seq"] == 12
    assert hub.energy() == {("lab3", "machine"): 0.012}


def test_a_series_tells_each_step_with_bounds(hub):
    hub.enrol("lab3")
    hub.send("lab3", records(1, 10))
    code, out, err = hub.run("energy", "lab3", "machine", "--since", "1h", "--step", "1s")
    assert (code, err) == (0, "")
    lines = out.splitlines()[1:]
    assert len(lines) == 10
    assert "0.001000 [  0.000800,   0.001250] measured" in lines[3]
    assert hub.run("energy", "lab9", "machine")[0] == 3


def test_no_record_with_a_receipt_is_lost_when_the_hub_is_killed(hub):
    hub.enrol("lab3")
    sent = 0
    for turn in range(8):
        receipt = None
        message = records(sent + 1, sent + 5)
        if turn % 2:  # the broker has the message, the hub dies at some moment of its work
            hub.publish("lab3", "tide/1/lab3/up/energy", json.dumps(message))
            time.sleep(turn * 0.04)
        else:
            receipt = hub.send("lab3", message)
            assert receipt["seq"] == sent + 5
        hub.kill()
        hub.serve()
        if not receipt:
            assert hub.send("lab3", message)["seq"] == sent + 5
        sent += 5
        assert hub.energy() == {("lab3", "machine"): sent / 1000}


def test_the_hub_outlives_its_broker(hub):
    hub.enrol("lab3")
    hub.send("lab3", records(1, 5))
    hub.broker.kill()
    hub.broker.wait(GUARD_S)
    eventually(lambda: "no connection to the broker" in hub.said())
    before = hub.said().count("connected to the broker")
    hub.start()
    eventually(lambda: hub.said().count("connected to the broker") > before)
    assert hub.send("lab3", records(6, 7))["seq"] == 7
    assert hub.energy() == {("lab3", "machine"): 0.007}


def test_a_second_hub_or_broker_of_the_same_directory_ends_and_changes_nothing(hub):
    files = [hub.state / name for name in ("serve.pid", "broker/pid", "broker/broker.crt", "hub.crt")]
    before = [path.read_bytes() for path in files]
    for command, pid in ((("serve", "--broker", f"127.0.0.1:{hub.port}", "--listen", "none"), hub.process.pid),
                         (("broker", "--port", hub.port, "--host", "127.0.0.1", *AS_ROOT), hub.broker.pid)):
        code, _, err = hub.run(*command)
        assert code == 3 and f"pid {pid} runs with the directory {hub.state} already" in err
    assert [path.read_bytes() for path in files] == before
    hub.kill()
    hub.serve()


def test_a_clock_that_jumps_by_years_lets_nothing_go(hub, tmp_path):
    clock = Clock(tmp_path, int(time.time()))
    hub.kill()
    hub.env = {"TIDE_CLOCK": str(clock.path)}
    hub.serve()
    hub.enrol("lab3")
    assert hub.send("lab3", records(1, 10)) and hub.send("lab3", records(11, 20, point="user:ada"))
    kept = hub.energy()
    assert set(kept) == {("lab3", "machine"), ("lab3", "user:ada")}
    hub.kill()
    clock.set(int(time.time()) + 20 * 366 * 86400)
    hub.serve()
    eventually(lambda: "days ahead of the time that this hub has seen pass" in hub.said())
    hub.process.terminate()  # what it did at that time is done
    assert hub.process.wait(GUARD_S) == 0 and hub.energy() == kept
    clock.set(int(time.time()))
    hub.serve()
    assert hub.said().count("days ahead") == 1


def test_what_nobody_can_read_harms_nobody(hub):
    hub.enrol("lab3")
    for text in ("{", "[]", '{"v":1,"boot":7}', "x" * 100000):
        hub.publish("lab3", "tide/1/lab3/up/energy", text)
    assert hub.send("lab3", records(1, 1))["seq"] == 1
    assert "lab3: sent energy that is not understood" in hub.said()


def test_a_revoked_unit_gets_no_receipt(hub):
    hub.enrol("lab3")
    hub.send("lab3", records(1, 2))
    assert hub.run("unit", "revoke", "lab3")[0] == 0
    eventually(lambda: "Reloading config" in hub.log())
    assert hub.send("lab3", records(3, 4), wait=1) is None
    assert hub.energy() == {("lab3", "machine"): 0.002}


def test_a_full_disk_costs_no_record_that_has_a_receipt(hub, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root, for a file system of its own")
    hub.enrol("lab3")
    hub.stop()
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", small], check=True)
    try:
        database = hub.state / "hub.db"
        for path in hub.state.glob("hub.db*"):
            path.unlink()
        database.symlink_to(small / "hub.db")
        hub.start()
        hub.serve()
        sent = 0
        while (hub.send("lab3", records(sent + 1, sent + 60), wait=2) or {}).get("seq") == sent + 60:
            sent += 60
            assert sent < 20000, "the disk never became full"
            if sent == 120:
                (small / "filler").write_bytes(b"x" * (small_free(small) - 4096))
        assert "cannot" in hub.said()
        (small / "filler").unlink()
        assert hub.send("lab3", records(sent + 1, sent + 60))["seq"] == sent + 60
        assert hub.energy() == {("lab3", "machine"): (sent + 60) / 1000}
    finally:
        hub.stop()
        hub.process = hub.broker = None
        subprocess.run(["umount", "-l", small], check=True)


def small_free(folder):
    state = os.statvfs(folder)
    return state.f_bavail * state.f_bsize


def end_of(path, kind):
    option = "-enddate" if kind == "x509" else "-nextupdate"
    said = subprocess.run(["openssl", kind, "-in", path, "-noout", option], check=True, capture_output=True,
                          text=True).stdout
    return time.mktime(time.strptime(said.strip().split("=")[1], "%b %d %H:%M:%S %Y GMT")) - time.timezone


def test_what_ends_is_made_again_in_time(hub):
    hub.enrol("lab3")
    hub.kill()
    listed, certificate = hub.state / "trust/revoked.crl", hub.state / "hub.crt"
    before, own = listed.stat().st_ino, certificate.read_text()
    for path in (listed, hub.state / "trust/units"):
        os.utime(path, (time.time() - 2 * 86400,) * 2)
    reloads = hub.log().count("Reloading config")
    hub.serve()
    eventually(lambda: hub.log().count("Reloading config") > reloads)
    assert listed.stat().st_ino != before
    assert end_of(listed, "crl") > time.time() + 29 * 86400
    assert certificate.read_text() == own and end_of(certificate, "x509") > time.time() + 89 * 86400
    hub.kill()
    short = hub.folder / "short.csr"  # one of the hub's own that ends in 20 days
    subprocess.run(["openssl", "req", "-new", "-key", hub.state / "hub.key", "-subj", "/CN=tide-hub", "-out", short],
                   check=True, capture_output=True)
    subprocess.run(["openssl", "x509", "-req", "-in", short, "-CA", hub.state / "trust/ca.crt", "-CAkey",
                    hub.state / "trust/ca.key", "-set_serial", "7", "-days", "20", "-out", certificate],
                   check=True, capture_output=True)
    hub.serve()
    eventually(lambda: end_of(certificate, "x509") > time.time() + 89 * 86400)
    assert hub.send("lab3", records(1, 1))["seq"] == 1


@pytest.mark.parametrize("arguments, code, told", [
    (("serve",), 3, "trust/ca.crt is missing: run 'tide-hub broker --host NAME --write' first"),
    (("serve", "--broker", "host:0"), 2, "--broker 'host:0': use HOST or HOST:PORT"),
    (("serve", "--keep-1s", "7"), 2, "--keep-1s '7': use a time as 7d or 36h"),
    (("energy",), 3, "hub.db: No such file or directory"),
    (("energy", "lab3"), 2, "Usage: tide-hub energy"),
    (("energy", "--step", "x"), 2, "--step 'x': use a time as 15min"),
])
def test_wrong_use_says_what_is_right(build_dir, tmp_path, arguments, code, told):
    status, out, err = Hub(build_dir / "tide-hub", tmp_path).run(*arguments)
    assert (status, out) == (code, "")
    assert told in err


def test_the_service_manager_hears_of_a_loop_that_goes_on_and_of_no_other(hub, tmp_path):
    hub.enrol("lab3")
    hub.kill()
    manager = ServiceManager(tmp_path)
    hub.env = {**manager.env, "TIDE_FAILPOINT": "energy-put:1:delay=600000ms"}
    hub.serve()
    manager.hears_of_a_loop_that_goes_on()
    hub.publish("lab3", "tide/1/lab3/up/energy", json.dumps(records(1, 5)))  # the loop stands still
    manager.hears_no_more()
    hub.kill()
    manager.end()
    assert asks_for_a_watchdog("tide-hub")
