# SPDX-License-Identifier: Apache-2.0
"""The organization's cap lent to units by a real hub through a real broker, which is killed at each step of a lease:
what units may draw together never exceeds a cap."""
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import threading
import time

import pytest

from daemon import GUARD_S, eventually
from hub import TOOLS, Serving

SYSTEM_PYTHON = "/usr/bin/python3"  # paho is a Debian package
PAHO = subprocess.run([SYSTEM_PYTHON, "-c", "import paho.mqtt.client"], capture_output=True, check=False).returncode == 0
pytestmark = pytest.mark.skipif(not PAHO or not all(map(shutil.which, TOOLS)),
                                reason="mosquitto-clients, openssl or python3-paho-mqtt are not installed")
W = 1_000_000
CAP, FLOOR_CAP, FLOOR = 1000, 500, 50
POLICY = f"""version: 1
org: unlp
zone: UTC
areas:
- {{area: unlp/floor1/lab3, unit: lab3}}
- {{area: unlp/floor1/lab4, unit: lab4}}
- {{area: unlp/hall, unit: hall}}
rules:
- {{area: unlp, cap: {CAP} W}}
- {{area: unlp/floor1, cap: {FLOOR_CAP} W}}
- {{area: unlp/floor1/lab3, floor: {FLOOR} W}}
- {{area: unlp/floor1/lab4, floor: {FLOOR} W}}
- {{area: unlp/hall, floor: {FLOOR} W}}
"""
STEPS = ["leases-stored", "lease-sent"]


class Borrowers:
    """hub_borrowers.py: its lines are checked as they come."""

    def __init__(self, hub, names):
        self.lines, self.wrong, self.last = 0, [], {"draw": [], "number": []}
        self.process = subprocess.Popen(
            [SYSTEM_PYTHON, pathlib.Path(__file__).with_name("hub_borrowers.py"), str(hub.port),
             hub.state / "trust/ca.crt", hub.folder, str(FLOOR * W), *names],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.last = json.loads(line)
            lab3, lab4, hall = (uw / W for uw in self.last["draw"])
            if lab3 + lab4 > self.floor_cap or lab3 + lab4 + hall > self.cap:
                self.wrong.append(line)
            self.lines += 1

    cap, floor_cap = CAP, FLOOR_CAP

    def want(self, *watts):
        self.process.stdin.write(" ".join(str(w * W) for w in watts) + "\n")
        self.process.stdin.flush()
        self.after(5)

    def after(self, lines):
        before = self.lines
        eventually(lambda: self.lines >= before + lines)
        assert not self.wrong

    def settle(self, wants, expected):
        self.want(*wants)
        eventually(lambda: [uw // W for uw in self.last["draw"]] == expected or self.wrong)
        assert not self.wrong

    def end(self):
        self.process.stdin.close()
        self.process.wait(GUARD_S)
        assert not self.wrong


@pytest.fixture
def hub(build_dir, tmp_path):
    if b"serve" not in subprocess.run([build_dir / "tide-hub", "--help"], capture_output=True).stdout:
        pytest.skip("tide-hub was built without libmosquitto")
    made = Serving(build_dir / "tide-hub", tmp_path)
    (tmp_path / "etc.yaml").write_text(POLICY)
    made.options = ("--policy", tmp_path / "etc.yaml")
    made.start()
    for name in ("lab3", "lab4", "hall"):
        made.enrol(name)
    (made.state / "leases").write_text("threadtide leases 1 0 0\n")  # the first start of all
    yield made
    made.stop()


@pytest.fixture
def units(hub):
    made = Borrowers(hub, ("lab3", "lab4", "hall"))
    yield made
    made.end()


def test_shared_caps_are_divided_by_demand(hub, units):
    hub.serve()
    units.settle((600, 100, 900), [400, 100, 500])
    units.settle((100, 600, 300), [100, 400, 300])
    units.settle((600, 600, 2000), [250, 250, 500])


def test_a_new_policy_moves_the_caps(hub, units):
    hub.serve()
    units.settle((600, 100, 900), [400, 100, 500])
    path = hub.folder / "new.yaml"
    path.write_text(POLICY.replace(f"floor1, cap: {FLOOR_CAP} W", "floor1, cap: 200 W"))
    assert hub.run("policy", "apply", path)[0] == 0
    units.settle((600, 100, 900), [100, 100, 800])


@pytest.mark.parametrize("step", STEPS)
def test_a_hub_that_is_killed_at_a_step_of_a_lease_lends_nothing_twice(hub, units, step):
    chance = random.Random(step)
    hub.serve()
    units.settle((600, 100, 900), [400, 100, 500])
    for turn in range(6):
        hub.kill()
        os.environ["TIDE_FAILPOINT"] = f"{step}:{chance.randint(1, 9)}"
        try:
            with open(hub.folder / "hub.log", "ab") as log:
                dying = subprocess.Popen([hub.program, "serve", "--state", hub.state, "--broker",
                                          f"127.0.0.1:{hub.port}", "--listen", "none"], stdout=log, stderr=log)
        finally:
            del os.environ["TIDE_FAILPOINT"]
        units.want(*((600, 100, 900) if turn % 2 else (100, 600, 300)))
        assert dying.wait(GUARD_S) == -signal.SIGKILL
        units.after(5)
        hub.serve()
        units.after(10)
    units.settle((100, 600, 300), [100, 400, 300])


def test_without_its_book_a_hub_lends_nothing_for_a_term(hub, units):
    hub.serve()
    units.settle((600, 100, 900), [400, 100, 500])
    hub.kill()
    (hub.state / "leases").unlink()
    before = units.last["number"]
    hub.serve()
    assert "which leases are in force is not known" in hub.said()
    units.want(600, 600, 900)
    units.after(10)
    assert units.last["number"] == before


def test_the_steps_are_those_of_the_source(pytestconfig):
    source = (pytestconfig.rootpath / "src/base/failpoint.c").read_text()
    assert set(STEPS) == set(re.findall(r'"(lease[a-z]*-[a-z]+)"', source))


def test_a_lease_counts_where_its_unit_stood_until_it_has_ended(hub, units):
    """lab3 is silent, and a policy says that it stands elsewhere: what it has is not lent on its floor before its lease is over."""
    together = POLICY.replace("unlp/hall", "unlp/floor1/hall")
    (hub.folder / "etc.yaml").write_text(together)
    hub.serve()
    units.settle((200, 150, 150), [200, 150, 150])
    units.floor_cap, units.cap = CAP, FLOOR_CAP + FLOOR  # in the end lab3 has its floor elsewhere
    units.want(0, 600, 600)
    (hub.folder / "new.yaml").write_text(together.replace("floor1/lab3", "attic/lab3"))
    assert hub.run("policy", "apply", hub.folder / "new.yaml")[0] == 0
    late = time.monotonic() + 2 * GUARD_S
    while [uw // W for uw in units.last["draw"]] != [FLOOR, 250, 250]:
        assert time.monotonic() < late and not units.wrong, (units.last, units.wrong[:1])
        time.sleep(0.2)


def test_a_lease_counts_where_its_unit_stood_also_beside_a_single_unit(hub, units):
    """lab4 alone is left on the floor, and shares its cap with what silent lab3 may still draw."""
    hub.serve()
    units.settle((200, 600, 300), [200, 300, 300])
    units.floor_cap = FLOOR_CAP + FLOOR  # in the end lab3 has its floor elsewhere
    units.want(0, 600, 300)
    (hub.folder / "new.yaml").write_text(POLICY.replace("floor1/lab3", "attic/lab3"))
    assert hub.run("policy", "apply", hub.folder / "new.yaml")[0] == 0
    late = time.monotonic() + 2 * GUARD_S
    while [uw // W for uw in units.last["draw"]] != [FLOOR, FLOOR_CAP, 300]:
        assert time.monotonic() < late and not units.wrong, (units.last, units.wrong[:1])
        time.sleep(0.2)


def test_a_unit_that_shares_no_cap_any_more_is_told_that_it_is_free(hub, units):
    """The last lease of a breaker would hold it to its floor for ever."""
    alone = POLICY.replace(f"- {{area: unlp, cap: {CAP} W}}\n", "")
    (hub.folder / "etc.yaml").write_text(alone)
    hub.serve()
    units.settle((600, 600, 300), [250, 250, FLOOR])
    assert units.last["kind"] == ["breaker", "breaker", None]
    units.floor_cap = units.cap = 10**10
    (hub.folder / "new.yaml").write_text(alone.replace(f"- {{area: unlp/floor1, cap: {FLOOR_CAP} W}}\n", ""))
    assert hub.run("policy", "apply", hub.folder / "new.yaml")[0] == 0
    eventually(lambda: min(units.last["draw"][:2]) >= 600 * W)
    assert units.last["kind"] == ["advice", "advice", None]
