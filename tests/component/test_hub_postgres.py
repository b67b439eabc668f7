# SPDX-License-Identifier: Apache-2.0
"""tide-hub with PostgreSQL: a server that restarts, is cut off, or has a full disk costs no record that has a receipt."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

import pytest

import postgres
from daemon import eventually
from hub import KWH, TOOLS, Hub, Serving
from hub_web import Web
from test_hub_serve import records, small_free

pytestmark = [pytest.mark.skipif(not postgres.programs(), reason="PostgreSQL is not installed"),
              pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason="no mosquitto-clients or openssl")]


@pytest.fixture
def server():
    made = postgres.Server()
    yield made
    made.end()


@pytest.fixture
def hub(build_dir, tmp_path, server):
    made = Serving(build_dir / "tide-hub", tmp_path)
    made.options = ("--store", server.url())
    made.start()
    made.serve()
    made.enrol("lab3")
    yield made
    made.stop()


def kwh(server, table="sample"):
    return int(server.ask(f"SELECT coalesce(sum(uj), 0) FROM {table}")) / KWH


def test_what_has_a_receipt_is_in_the_database(hub, server):
    assert hub.send("lab3", records(1, 10))["seq"] == 10
    assert kwh(server) == kwh(server, "day") == 0.01
    code, out, err = hub.run("energy", "--store", server.url())
    assert (code, err) == (0, "")
    assert "0.010000" in out
    assert server.ask("SHOW synchronous_commit") == "on"
    assert not (hub.state / "hub.db").exists()


def test_commits_wait_for_the_disk_whatever_the_server_says(hub, server):
    server.ask("ALTER SYSTEM SET synchronous_commit = off")
    hub.kill()
    server.stop()
    server.start()
    hub.serve()
    assert hub.send("lab3", records(1, 10))["seq"] == 10
    server.kill()
    server.start()
    assert kwh(server) == 0.01


def test_a_server_that_goes_and_comes_back_costs_nothing(hub, server):
    assert hub.send("lab3", records(1, 5))["seq"] == 5
    for how, sent in ((signal.SIGINT, 5), (signal.SIGQUIT, 10)):
        server.stop(how)
        assert hub.send("lab3", records(sent + 1, sent + 5), wait=2) is None
        assert hub.process.poll() is None
        assert "cannot" in hub.said()
        server.start()
        eventually(lambda last=sent + 5: (hub.send("lab3", records(last - 4, last), wait=2) or {}).get("seq") == last)
        assert kwh(server) == pytest.approx((sent + 5) / 1000)


def test_a_server_that_stands_still_is_given_up_and_costs_nothing(hub, server):
    assert hub.send("lab3", records(1, 5))["seq"] == 5
    server.freeze(True)
    try:
        assert hub.send("lab3", records(6, 10), wait=2) is None
        eventually(lambda: "the server did not answer in 10 s" in hub.said())
        before = hub.said().count("sent energy that is not understood")
        hub.publish("lab3", "tide/1/lab3/up/energy", "{")  # the loop goes on
        eventually(lambda: hub.said().count("sent energy that is not understood") > before)
    finally:
        server.freeze(False)
    eventually(lambda: (hub.send("lab3", records(6, 10), wait=2) or {}).get("seq") == 10)
    assert kwh(server) == pytest.approx(0.01)


def test_a_page_that_asks_while_the_server_is_away_is_told_to_come_again(build_dir, tmp_path, server):
    hub = Web(build_dir / "tide-hub", tmp_path)
    hub.options = ("--store", server.url())
    hub.start()
    hub.serve()
    try:
        hub.add_user("ada", "administrator")
        hub.enrol("lab3")
        assert hub.send("lab3", records(1, 5))["seq"] == 5
        ada = hub.script("ada")
        hub.publish("lab3", "tide/1/lab3/up/state", json.dumps(
            {"v": 1, "online": True, "synced": True, "role": "unit", "version": "0.1.0", "boot": 7, "policy": 0}))
        paths = ("/v1/energy?by=area", "/v1/areas/lab3/energy")
        eventually(lambda: [ada.raw("GET", path)[0] for path in paths] == [200, 200])
        server.stop()
        # An answer that was dear on a busy machine is given again for a while (answers.h).
        eventually(lambda: [ada.raw("GET", path)[0] for path in paths] == [503, 503])
        for method, path in (*(("GET", path) for path in paths), ("DELETE", "/v1/energy?unit=lab3")):
            status, headers, text = ada.raw(method, path)
            assert (status, headers["Retry-After"]) == (503, "5"), text
        assert ada.call("GET", "/v1/me")[0] == ada.call("GET", "/v1/areas")[0] == 200
        server.start()
        eventually(lambda: [ada.raw("GET", path)[0] for path in paths] == [200, 200])
        assert hub.process.poll() is None
    finally:
        hub.stop()


def test_a_full_disk_of_the_server_costs_no_record_that_has_a_receipt(build_dir, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root, for a file system of its own")
    small = pathlib.Path(tempfile.mkdtemp(prefix="tide-small-"))  # pytest's own folders are root's alone
    small.chmod(0o755)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=110m", "tmpfs", small], check=True)
    server = hub = None
    try:
        server = postgres.Server(small)
        hub = Serving(build_dir / "tide-hub", tmp_path)
        hub.options = ("--store", server.url())
        hub.start()
        hub.serve()
        hub.enrol("lab3")
        assert hub.send("lab3", records(1, 60))["seq"] == 60
        server.stop()
        (small / "filler").write_bytes(b"x" * (small_free(small) - 400_000))
        try:
            server.start()
        except RuntimeError:
            pass  # it cannot even begin
        sent = 60
        while sent < 60_000 and (hub.send("lab3", records(sent + 1, sent + 60), wait=3) or {}).get("seq") == sent + 60:
            sent += 60
            if sent % 600 == 0:  # rows go to the disk, not only to the log
                subprocess.run(server.command("psql", "-h", small, "-U", "tide", "-d", "postgres", "-c", "CHECKPOINT"),
                               capture_output=True, check=False)
        assert sent < 60_000, "the disk never became full"
        (small / "filler").unlink()
        if server.process.poll() is not None:
            server.start()
        eventually(lambda: (hub.send("lab3", records(sent + 1, sent + 60), wait=3) or {}).get("seq") == sent + 60)
        assert kwh(server) == pytest.approx((sent + 60) / 1000)
    finally:
        if hub:
            hub.stop()
        if server:
            server.end()
        subprocess.run(["umount", "-l", small], check=True)
        small.rmdir()


@pytest.mark.parametrize("where, told", [
    ("postgresql://tide:secret@127.0.0.1:1/none", "PostgreSQL: "),
    ("postgresql://tide:secret@/none?host=/nonexistent", "PostgreSQL: "),
    ("postgresql://tide:secret@h/none?hots=x", "PostgreSQL: "),
])
def test_an_address_that_is_wrong_is_said_without_its_password(build_dir, tmp_path, where, told):
    code, out, err = Hub(build_dir / "tide-hub", tmp_path).run("energy", "--store", where)
    assert (code, out) == (3, "")
    assert told in err and "secret" not in err
