# SPDX-License-Identifier: Apache-2.0
"""The hub's policy on its way to units: a real broker between them, the unit's side read with openssl. Its number only
grows, whatever is killed or full."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

from daemon import GUARD_S, eventually
from hub import TOOLS, Serving
from site_bed import Clock

pytestmark = pytest.mark.skipif(not all(map(shutil.which, TOOLS)),
                                reason="mosquitto-clients and openssl are not installed")
HEAD = "version: 1\norg: unlp\nzone: UTC\n"
AREAS = "areas:\n- {area: unlp/lab3, unit: lab3, name: Laboratory 3}\n- {area: unlp/lab4, unit: lab4}\n"


def rules(watts):
    return HEAD + AREAS + f"rules:\n- {{area: unlp, cap: {watts} W}}\n- {{area: unlp/lab4, cap: 20 W}}\n"


@pytest.fixture
def hub(build_dir, tmp_path):
    if b"serve" not in subprocess.run([build_dir / "tide-hub", "--help"], capture_output=True).stdout:
        pytest.skip("tide-hub was built without libmosquitto")
    made = Serving(build_dir / "tide-hub", tmp_path)
    made.options = ("--policy", tmp_path / "etc.yaml")
    made.start()
    made.enrol("lab3")
    made.enrol("lab4")
    yield made
    made.stop()


class Refused(Exception):
    pass


def unseal(hub, unit, context, sealed):
    """Opens a message as a unit does: signature, then text."""
    text = sealed[64:]
    signed, signature = hub.folder / "signed", hub.folder / "signature"
    signed.write_bytes(context.encode() + b"\0" + unit.encode() + b"\0" + text)
    signature.write_bytes(sealed[:64])
    done = subprocess.run(["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", hub.state / "trust/seal.pub", "-rawin",
                           "-in", signed, "-sigfile", signature], capture_output=True, timeout=GUARD_S)
    if done.returncode:
        raise Refused
    return json.loads(text)


def retained(hub, unit, wait=3):
    """The bytes of the policy that the broker has for the unit; b"" for none."""
    done = subprocess.run(hub.client("mosquitto_sub", unit, "-t", f"tide/1/{unit}/down/policy", "-C", "1", "-N", "-W",
                                     wait), capture_output=True, timeout=GUARD_S)
    return done.stdout


def policy(hub, unit):
    return unseal(hub, unit, "tide/1/policy", retained(hub, unit))


def apply(hub, text, code=0):
    path = hub.folder / "new.yaml"
    path.write_text(text)
    status, out, err = hub.run("policy", "apply", path)
    assert status == code, (out, err)
    return out + err


def in_file(hub):
    """(number, edition) of the file in the hub's directory."""
    return tuple(map(int, (hub.state / "policy.yaml").read_text().split()[3:5]))


def test_each_unit_gets_its_rules_under_a_seal(hub):
    hub.serve()
    assert "in force as number" in apply(hub, rules(500))
    eventually(lambda: retained(hub, "lab4"))
    lab3, lab4 = policy(hub, "lab3"), policy(hub, "lab4")
    assert (lab3["area"], lab4["area"]) == ("unlp/lab3", "unlp/lab4")
    assert (len(lab3["rules"]), len(lab4["rules"])) == (1, 2)
    assert lab3["number"] == lab4["number"] == in_file(hub)[0]
    assert abs(lab3["until"] - lab3["made"] - 7 * 86400_000) < 1000
    sealed = retained(hub, "lab3")
    with pytest.raises(Refused):  # one unit's policy is none for another, and no command
        unseal(hub, "lab4", "tide/1/policy", sealed)
    with pytest.raises(Refused):
        unseal(hub, "lab3", "tide/1/cmd", sealed)
    assert hub.run("policy", "show")[1] == rules(500)


def test_the_first_policy_is_that_of_etc(hub):
    (hub.folder / "etc.yaml").write_text(rules(400))
    hub.serve()
    eventually(lambda: retained(hub, "lab3"))
    first = policy(hub, "lab3")["number"]
    apply(hub, rules(300))
    eventually(lambda: policy(hub, "lab3")["number"] > first)
    hub.kill()
    hub.serve()  # from then on what was applied counts
    assert hub.run("policy", "show")[1] == rules(300)


ALONE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


@pytest.mark.skipif(not all(map(shutil.which, ("unshare", "nsenter"))) or
                    subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode != 0,
                    reason="no namespace of processes can be made here")
def test_a_hub_that_is_the_first_process_of_a_container_takes_a_policy(hub):
    program, script = hub.program, hub.folder / "inside"

    def inside(*words):
        script.write_text("#!/bin/sh\nexec " + " ".join(map(str, (*words, program))) + ' "$@"\n')
        script.chmod(0o755)
        hub.program = script

    inside(*ALONE)
    hub.serve()
    child = int((pathlib.Path("/proc") / str(hub.process.pid) / "task" / str(hub.process.pid) / "children").read_text())
    try:
        inside("nsenter", "--target", child, "--pid", "--mount")
        assert "in force as number" in apply(hub, rules(500))
    finally:
        os.kill(child, signal.SIGTERM)
        assert hub.process.wait(GUARD_S) == 0
        hub.program = program


def test_a_wrong_policy_changes_nothing(hub):
    hub.serve()
    apply(hub, rules(500))
    number = in_file(hub)
    said = apply(hub, HEAD + "rules:\n- {area: unlp, floor: 6 W}\n- {area: unlp, cap: 5 W}\n", code=3)
    assert "new.yaml:5:16: the floor of unlp, 6 W, is above the cap of 5 W" in said or "above the cap" in said
    said = apply(hub, HEAD + AREAS + "- {area: unlp/lab5, unit: lab3}\nrules: []\n", code=3)
    assert "new.yaml:7:3: unit lab3 stands in unlp/lab3 already (line 5)" in said
    assert "more than a MiB" in apply(hub, "x" * (10 << 20), code=3)
    assert in_file(hub) == number
    (hub.state / "policy.yaml").write_text("nonsense: [")  # by hand, past our check
    hub.process.send_signal(signal.SIGHUP)
    eventually(lambda: "the policy in force stays" in hub.said())
    assert policy(hub, "lab3")["number"] == number[0]


def test_who_is_taken_out_of_the_policy_finds_none_any_more(hub):
    hub.serve()
    apply(hub, rules(500))
    eventually(lambda: retained(hub, "lab4"))
    apply(hub, HEAD + "areas: [{area: unlp/lab3, unit: lab3}]\nrules: []\n")
    eventually(lambda: retained(hub, "lab4", wait=1) == b"")
    assert policy(hub, "lab3")["rules"] == []


def test_a_unit_whose_rules_are_too_long_keeps_the_policy_that_it_has_and_each_such_unit_is_named(hub):
    hub.enrol("lab5")
    head = HEAD + "areas: [{area: unlp, unit: lab4}, {area: unlp/lab3, unit: lab3}, {area: unlp/lab5, unit: lab5}]\nrules:\n"
    hub.serve()
    apply(hub, head + "- {area: unlp/lab3, cap: 500 W}\n")
    eventually(lambda: retained(hub, "lab5"))
    before = {name: policy(hub, name)["number"] for name in ("lab3", "lab4", "lab5")}
    apply(hub, head + "".join(f"- {{area: unlp/lab3/r{n}, cap: {n + 1} W}}\n" for n in range(3500)))
    eventually(lambda: policy(hub, "lab5")["number"] > before["lab5"])
    told = [f"{name}: policy {in_file(hub)[0]} cannot be sent, it keeps what it has" for name in ("lab3", "lab4")]
    eventually(lambda: all(line in hub.said() for line in told))
    assert {name: policy(hub, name)["number"] for name in ("lab3", "lab4")} == {"lab3": before["lab3"], "lab4": before["lab4"]}
    hub.broker.kill()  # all policies go out again; what was said of this number is not said again
    hub.broker.wait(GUARD_S)
    hub.start()
    eventually(lambda: retained(hub, "lab5"))
    assert [hub.said().count(line) for line in told] == [1, 1]


@pytest.mark.parametrize("point", ["policy-stored:1", "policy-sent:1", "policy-sent:2"])
def test_a_hub_that_is_killed_gives_no_number_twice(hub, point):
    hub.serve()
    apply(hub, rules(500))
    eventually(lambda: retained(hub, "lab4"))
    before = policy(hub, "lab3")["number"]
    hub.kill()
    hub.run("policy", "apply", hub.folder / "new.yaml")
    (hub.folder / "new.yaml").write_text(rules(300))
    assert hub.run("policy", "apply", hub.folder / "new.yaml")[0] == 0  # the next hub takes it, and dies
    os.environ["TIDE_FAILPOINT"] = point
    try:
        with open(hub.folder / "hub.log", "ab") as log:
            dying = subprocess.Popen([hub.program, "serve", "--state", hub.state, "--broker", f"127.0.0.1:{hub.port}",
                                      "--listen", "none"], stdout=log, stderr=log)
        assert dying.wait(GUARD_S) == -signal.SIGKILL
    finally:
        del os.environ["TIDE_FAILPOINT"]
    number = in_file(hub)[0]
    assert number > before
    hub.serve()
    for unit in ("lab3", "lab4"):
        eventually(lambda unit=unit: policy(hub, unit)["number"] == number)
        assert "300000000" in json.dumps(policy(hub, unit)["rules"])


def test_a_full_disk_leaves_the_policy_and_its_number(hub, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root, for a file system of its own")
    hub.serve()
    apply(hub, rules(500))
    before = in_file(hub)
    hub.kill()
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", small], check=True)
    try:
        shutil.copytree(hub.state, small / "state", dirs_exist_ok=True)
        hub.state, whole = small / "state", hub.state
        hub.serve()
        with open(small / "filler", "wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(b"x" * 4096)
            except OSError:
                pass
        assert "No space left" in apply(hub, rules(300), code=3)
        assert in_file(hub) == before
        assert policy(hub, "lab3")["number"] == before[0]
        (small / "filler").unlink()
        apply(hub, rules(300))
        assert in_file(hub)[0] > before[0]
    finally:
        hub.process.kill()
        hub.process.wait(GUARD_S)
        hub.process = None
        subprocess.run(["umount", "-l", small], check=True)
        hub.state = whole


def test_a_policy_is_made_anew_each_day_while_the_hub_lives(hub):
    hub.serve()
    apply(hub, rules(500))
    eventually(lambda: retained(hub, "lab3"))
    before, edition = policy(hub, "lab3"), in_file(hub)[1]
    hub.kill()
    os.environ["TIDE_CLOCK"] = f"{int(time.time()) + 86400 + 60},1"
    try:
        hub.serve()
    finally:
        del os.environ["TIDE_CLOCK"]
    eventually(lambda: policy(hub, "lab3")["number"] > before["number"])
    after = policy(hub, "lab3")
    assert after["until"] - before["until"] > 86000_000
    assert after["rules"] == before["rules"]
    assert in_file(hub)[1] == edition  # who edits the text notices nothing


def test_a_policy_that_is_made_anew_does_not_undo_what_was_applied_a_moment_before(hub, tmp_path):
    clock = Clock(tmp_path, int(time.time()))
    hub.env = {"TIDE_CLOCK": str(clock.path)}
    hub.serve()
    apply(hub, rules(500))
    file, number = hub.state / "policy.yaml", in_file(hub)[0]
    file.write_text(file.read_text().replace("500 W", "450 W"))  # SIGHUP is on its way
    clock.set(int(time.time()) + 86400 + 60)
    eventually(lambda: in_file(hub)[0] > number)
    assert hub.run("policy", "show")[1] == rules(450)


def test_the_carbon_intensity_of_a_file_reaches_units(hub, tmp_path):
    carbon, now = tmp_path / "carbon", int(time.time())
    hour = now - now % 3600
    carbon.write_text("# g/kWh\n" + "".join(f"{hour + n * 3600} {300 + n}\n" for n in range(-5, 80)))
    hub.options += ("--carbon-file", carbon)
    hub.serve()
    apply(hub, rules(500))
    eventually(lambda: retained(hub, "lab3"))
    told = policy(hub, "lab3")
    assert [g for _, g in told["carbon"]][:2] == [300, 301]
    assert 48 <= len(told["carbon"]) <= 50
    carbon.write_text(f"{time.strftime('%Y-%m-%dT%H:00Z', time.gmtime(hour))} 512.3\n")
    eventually(lambda: policy(hub, "lab3")["carbon"] == [[hour * 1000, 513]])
    assert policy(hub, "lab3")["number"] > told["number"]
    carbon.write_text("today 5\n")
    eventually(lambda: f"{carbon}:1: no time and intensity" in hub.said())


def test_a_request_over_the_own_connection_gets_a_certificate(hub):
    hub.serve()
    request = (hub.folder / "lab3.csr").read_text()

    def ask(name, text):
        done = subprocess.run(hub.client("mosquitto_rr", name, "-t", f"tide/1/{name}/up/request", "-e",
                                         f"tide/1/{name}/down/certificate", "-m", text, "-W", 5),
                              capture_output=True, text=True, timeout=GUARD_S)
        return done.stdout

    cert = ask("lab3", request)
    assert "BEGIN CERTIFICATE" in cert
    (hub.folder / "renewed.crt").write_text(cert)
    said = subprocess.run(["openssl", "x509", "-in", hub.folder / "renewed.crt", "-noout", "-subject"],
                          capture_output=True, text=True, check=True).stdout
    assert said.strip().endswith("CN = lab3")
    # The request says lab4, the broker has proved lab3.
    assert "a new certificate" in hub.said() and "lab3" in hub.said()
    assert ask("lab4", "no request") == ""
    assert "lab4: no new certificate: " in hub.said()
