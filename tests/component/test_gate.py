# SPDX-License-Identifier: Apache-2.0
"""tide-gate: people without a login ask tided over TLS, as the local users that they are mapped to."""
import json
import os
import re
import socket
import subprocess
import time

import pytest

from daemon import eventually
from gateway import ANA, EVE, GATE, GUARD_S, STRANGER, Authority, gate, needs_gate, raw, tided  # noqa: F401
from test_dashboard import Dashboard

pytestmark = needs_gate
MACHINE = "/v1/machine"


@pytest.fixture
def cnn(tided):  # noqa: F811
    """A job of ANA's."""
    return tided.job("--max", "8", uid=ANA[1])


def error(answer):
    return answer["error"]["message"]


def ends(answer):
    """Reads a stream to its end: heartbeats keep one that goes on from being late."""
    end = time.monotonic() + GUARD_S / 3
    while answer.read1(4096):
        assert time.monotonic() < end, "the stream goes on"


# ---- tokens ----

def test_a_token_lets_its_user_look_and_change_its_own_jobs_and_no_others(gate, tided, cnn):  # noqa: F811
    ana, eve = gate.token(ANA[0]), gate.token(EVE[0])
    gate.start()
    status, jobs = gate.ask("GET", "/v1/jobs", token=ana)
    assert status == 200 and [j["id"] for j in jobs] == [cnn.id]
    assert gate.ask("GET", "/metrics", token=ana)[1].startswith("# ")
    status, answer = gate.ask("PATCH", f"/v1/jobs/{cnn.id}", {"threads": 2}, token=eve)
    assert status == 403 and cnn.get()["pinned"] is None, answer
    assert gate.ask("DELETE", f"/v1/jobs/{cnn.id}", token=eve)[0] == 403
    assert gate.ask("PATCH", f"/v1/jobs/{cnn.id}", {"threads": 2}, token=ana)[0] == 200
    cnn.target(2)
    said = gate.said()
    assert re.search(rf"audit: user {ANA[0]} \(token {ana[:16]}\) from 127.0.0.1: PATCH /v1/jobs/{cnn.id} "
                     r'\{"threads": 2\}: 200', said), said
    assert re.search(rf"audit: user {EVE[0]} .*: DELETE /v1/jobs/{cnn.id} : 403", said), said
    assert ana not in said and ana not in (gate.folder / "tokens").read_text()


def test_whoever_is_not_known_gets_nothing(gate, tided):  # noqa: F811
    token = gate.token(ANA[0])
    gate.start()
    for wrong in (None, token[:-1] + ("0" if token[-1] != "0" else "1"), token[:16], "x" * 81, "-" * 81, token + "0"):
        status, answer = gate.ask("GET", MACHINE, token=wrong)
        assert status == 401 and answer["error"]["code"] == "not-known-to-gateway" and "cpus" not in answer, answer
    assert gate.ask("GET", MACHINE, headers={"Authorization": f"Basic {token}"})[0] == 401
    assert gate.ask("GET", MACHINE, token=token)[0] == 200


def test_a_token_ends_at_its_time_and_with_its_line_on_streams_too(gate, tided):  # noqa: F811
    short, ana = gate.token(ANA[0], "--for", "3s"), gate.token(ANA[0])
    gate.start()
    streams = [gate.connection() for _ in range(2)]
    for stream, token in zip(streams, (short, ana)):
        stream.request("GET", "/v1/events", headers={"Authorization": f"Bearer {token}"})
    answers = [stream.getresponse() for stream in streams]
    assert [a.status for a in answers] == [200, 200]
    ends(answers[0])
    eventually(lambda: gate.ask("GET", MACHINE, token=short)[0] == 401)
    assert gate.ask("GET", MACHINE, token=ana)[0] == 200
    tokens = gate.folder / "tokens"
    tokens.write_text("".join(line for line in tokens.read_text().splitlines(True) if ana[:16] not in line))
    ends(answers[1])
    assert gate.ask("GET", MACHINE, token=ana)[0] == 401


def test_no_token_counts_while_their_file_cannot_be_read(gate, tided):  # noqa: F811
    token = gate.token(ANA[0])
    gate.start()
    tokens = gate.folder / "tokens"
    good, owner = tokens.read_text(), tokens.stat()

    def comes_in():
        return gate.ask("GET", MACHINE, token=token)[0]

    assert comes_in() == 200
    tokens.write_text(good + "nonsense\n")
    eventually(lambda: comes_in() == 401)
    assert "no token counts until it can be read" in gate.said()
    tokens.write_text(good)
    eventually(lambda: comes_in() == 200)
    fresh = gate.folder / "fresh"  # as 'grep -v … >fresh; mv fresh tokens' of somebody whose files are private
    fresh.write_text("# nobody\n")
    fresh.chmod(0o600)
    os.chown(fresh, 0, 0)
    os.replace(fresh, tokens)
    eventually(lambda: comes_in() == 401)
    tokens.write_text(good)
    os.chown(tokens, owner.st_uid, owner.st_gid)
    tokens.chmod(owner.st_mode & 0o777)
    eventually(lambda: comes_in() == 200)


def test_failed_log_ins_are_slowed_down_and_hinder_nobody_who_is_known(gate, tided):  # noqa: F811
    token = gate.token(ANA[0])
    gate.start()
    seen = [gate.ask("GET", MACHINE, token="0" * 81)[0] for _ in range(40)]
    assert set(seen) == {401, 429} and seen[:10] == [401] * 10
    assert gate.ask("GET", MACHINE, token=token)[0] == 200
    assert gate.said().count("refused 127.0.0.1") == seen.count(401)


# ---- certificates ----

def test_a_certificate_of_the_authority_with_a_line_is_its_user(gate, tided, cnn):  # noqa: F811
    ana = gate.authority.sign("ana", "/O=Lab/CN=ana")
    gate.start()
    assert gate.ask("PATCH", f"/v1/jobs/{cnn.id}", {"threads": 3}, cert=ana)[0] == 200
    cnn.target(3)
    assert f"audit: user {ANA[0]} (certificate) from 127.0.0.1: PATCH" in gate.said()
    status, answer = gate.ask("GET", MACHINE, cert=ana, token="0" * 81)  # a bad token beside it
    assert status == 401 and "token" in error(answer)


def test_no_other_certificate_lets_anybody_in(gate, tided, public_dir):  # noqa: F811
    other = Authority(public_dir, "other")
    cases = {
        "has expired": gate.authority.sign("old", "/O=Lab/CN=ana", days=-1),
        "none of the authorities": other.sign("foreign", "/O=Lab/CN=ana"),
        "is not for clients": gate.authority.sign("wrong", "/O=Lab/CN=ana", extensions="extendedKeyUsage=serverAuth"),
        "no user has the certificate's subject 'CN=mallory,O=Lab'": gate.authority.sign("mallory", "/O=Lab/CN=mallory"),
        "no user has the certificate's subject 'O=Lab,CN=ana'": gate.authority.sign("turned", "/CN=ana/O=Lab"),
    }
    gate.start()
    for why, cert in cases.items():
        status, answer = gate.ask("GET", MACHINE, cert=cert)
        assert status == 401 and why in error(answer), (why, answer)


# ---- root, and other users of the header ----

def test_root_is_nobody_for_the_gateway(gate, tided):  # noqa: F811
    token = gate.token(ANA[0])
    gate.configure("user = root CN=ana,O=Lab")
    done = gate.command("serve", uid=GATE)
    assert done.returncode == 2 and "'root' is root" in done.stderr
    gate.configure(f"user = {ANA[0]}")
    with open(gate.folder / "tokens", "a") as tokens:
        tokens.write(tokens_line := (gate.folder / "tokens").read_text().replace(ANA[0], "root", 1).replace(token[:16], "f" * 16))
    assert tokens_line.startswith("root ")
    gate.start()
    assert gate.ask("GET", MACHINE, token="f" * 16 + token[16:])[0] == 401
    assert gate.command("token", "root").returncode == 2
    assert gate.command("serve").returncode == 2  # as root


def headers(tided, uid, *values, path=MACHINE):  # noqa: F811
    """The daemon's words to user @uid who sends the header with these values; None: without."""
    said = [tided.api_as(uid, "GET", path, headers={} if value is None else {"Tide-User": value}) for value in values]
    return [(status, json.loads(text).get("error", {}).get("message", "")) for status, text in said]


def test_the_daemon_takes_the_header_from_the_gateways_user_alone(tided, cnn):  # noqa: F811
    for uid in (STRANGER, ANA[1], 0):
        [(status, why), (plain, _)] = headers(tided, uid, str(EVE[1]), None) if uid else (
            *headers_of_root(tided, str(EVE[1])), (200, ""))
        assert status == 403 and f"user {uid} is not its user" in why and plain == 200
    assert headers(tided, GATE, str(ANA[1])) == [(200, "")]


def headers_of_root(tided, value):  # noqa: F811
    from daemon import UnixConnection
    c = UnixConnection(tided.dir / "api.sock")
    c.request("GET", MACHINE, headers={"Tide-User": value})
    answer = c.getresponse()
    return [(answer.status, json.loads(answer.read()).get("error", {}).get("message", ""))]


def test_the_gateways_user_is_believed_about_ordinary_users_alone(tided):  # noqa: F811
    wrong = ("0", "00", "-1", "4294967295", "4294967296", "99999999999999999999", "", "1 ", "0x1", "daemon", str(GATE), "1,2")
    for value, (status, why) in zip(wrong, headers(tided, GATE, *wrong)):
        assert status == 403 and "the gateway named" in why, (value, status, why)
    assert headers(tided, GATE, None) == [(403, "the gateway named no user")]


def test_a_memory_limit_of_ones_own_job_goes_through(gate, cnn):  # noqa: F811
    token = gate.token(ANA[0])
    gate.start()
    status, answer = gate.ask("PUT", f"/v1/jobs/{cnn.id}/memory-limit", {"bytes": 1 << 30}, token=token)
    assert status == 409 and "is no container" in error(answer)


def test_a_mapped_user_is_in_no_group(gate, tided):  # noqa: F811
    """Even one who governs at home: the daemon sees no group of somebody whom the gateway names."""
    token = gate.token(ANA[0])
    gate.start()
    for method, path, body in (("PUT", "/v1/policy", {"policy": "weighted"}), ("PUT", "/v1/power/cap", {"cap": "10 W"}),
                               ("POST", "/v1/jobs", {"pid": os.getpid()}), ("POST", "/v1/adoptions", {"container": "x"})):
        status, answer = gate.ask(method, path, body, token=token)
        assert status == 403 and "does not go through a gateway" in error(answer)
    # … and the daemon itself, were the gateway broken into:
    done = call_as(tided, GATE, ANA[1], "PUT", "/v1/policy", {"policy": "weighted"})
    assert done[0] == 403, done
    assert call_as(tided, GATE, ANA[1], "POST", "/v1/jobs", {"pid": os.getpid()})[0] == 403


def call_as(tided, uid, named, method, path, body):  # noqa: F811
    return tided.api_as(uid, method, path, body, {"Tide-User": str(named)})


def test_without_the_key_nobody_is_believed(place, build_dir, public_dir):
    tided_ = place.daemon("--cpus", "0-3").start()
    [(status, why), (plain, _)] = headers(tided_, GATE, str(ANA[1]), None)
    assert status == 403 and f"user {GATE} is not its user" in why and plain == 200
    done = subprocess.run([build_dir / "tided", "--check-config", "--config", write(public_dir, "gateway-user=root")],
                          capture_output=True, text=True, timeout=30)
    assert done.returncode != 0 and "'root' is root" in done.stderr


def write(folder, line):
    path = folder / "x.conf"
    path.write_text(f"[daemon]\n{line}\n")
    path.chmod(0o644)
    return path


# ---- faults ----

def test_a_gateway_that_is_killed_ends_its_streams_and_leaves_the_daemon_as_it_is(gate, tided, cnn):  # noqa: F811
    token = gate.token(ANA[0])
    gate.start()
    stream = gate.connection()
    stream.request("GET", "/v1/events", headers={"Authorization": f"Bearer {token}"})
    answer = stream.getresponse()
    assert answer.status == 200
    gate.process.kill()
    gate.process.wait()
    with pytest.raises(Exception):
        while answer.read(1):
            pass
        raise EOFError
    assert tided.api("GET", f"/v1/jobs/{cnn.id}")[0] == 200
    gate.start()
    assert gate.ask("GET", MACHINE, token=token)[0] == 200


def test_a_gateway_that_is_ended_ends_its_streams(gate, tided):  # noqa: F811
    token = gate.token(ANA[0])
    gate.start()
    stream = gate.connection()
    stream.request("GET", "/v1/events", headers={"Authorization": f"Bearer {token}"})
    assert stream.getresponse().status == 200
    gate.process.terminate()
    assert gate.process.wait(GUARD_S) == 0, gate.said()


def test_a_daemon_that_is_away_is_told_of_and_found_again(gate, tided):  # noqa: F811
    token = gate.token(ANA[0])
    gate.start()
    tided.stop()
    status, answer = gate.ask("GET", MACHINE, token=token)
    assert status == 503 and "no daemon" in error(answer)
    tided.start()
    assert gate.ask("GET", MACHINE, token=token)[0] == 200


def test_clients_that_are_slow_or_many_hinder_no_other(gate, tided):  # noqa: F811
    ana, eve = gate.token(ANA[0]), gate.token(EVE[0])
    gate.start()
    silent = [socket.create_connection(("127.0.0.1", gate.port)) for _ in range(8)]
    half = [raw(gate, b"GET /v1/machine HTTP/1.1\r\nHost: x\r\n") for _ in range(8)]
    deaf = []
    for n in range(6):  # streams that nobody reads
        deaf.append(gate.connection())
        deaf[-1].request("GET", "/v1/events?since=1", headers={"Authorization": f"Bearer {ana}"})
    seen = [c.getresponse().status for c in deaf]
    assert sorted(seen) == [200] * 4 + [429] * 2
    assert gate.ask("GET", MACHINE, token=ana)[0] == 200
    stream = gate.connection()
    stream.request("GET", "/v1/events", headers={"Authorization": f"Bearer {eve}"})
    assert stream.getresponse().status == 200
    for c in (*silent, *half, *deaf, stream):
        c.close()


def test_what_is_too_large_is_refused(gate, tided, cnn):  # noqa: F811
    token = gate.token(ANA[0])
    gate.start()
    assert gate.ask("PATCH", f"/v1/jobs/{cnn.id}", {"name": "x" * 70000}, token=token)[0] == 413
    assert gate.ask("GET", "/v1/jobs/" + "x" * 6000, token=token)[0] in (400, 414, 431)
    assert gate.ask("GET", "/v1/jobs/a%0d%0aTide-User:%200", token=token)[0] == 404
    assert gate.ask("GET", MACHINE, token=token, headers={"Tide-User": "0", "Last-Event-ID": "1"})[0] == 200
    assert gate.ask("GET", "/", token=token)[0] == 403


def test_a_mistake_in_the_configuration_leaves_the_former_one(gate, tided):  # noqa: F811
    token = gate.token(ANA[0])
    gate.start()
    gate.configure("usr = daemon")
    gate.reload()
    assert "did you mean 'user'?" in gate.said() and gate.ask("GET", MACHINE, token=token)[0] == 200
    gate.configure(f"user = {EVE[0]}")
    gate.reload()
    status, answer = gate.ask("GET", MACHINE, token=token)
    assert status == 401 and "no line in gate.conf" in error(answer)
    gate.configure(f"user = {ANA[0]}")
    gate.reload()
    assert gate.ask("GET", MACHINE, token=token)[0] == 200
    lines = gate.config.read_text()
    for key, wrong, told in (("certificate", "/nonexistent", "/nonexistent"), ("tokens", gate.config, "USER ID HASH UNTIL")):
        gate.configure(f"user = {EVE[0]}")  # the rest is as wrong as can be: nothing of it counts
        gate.config.write_text(re.sub(f"(?m)^{key} = .*", f"{key} = {wrong}", gate.config.read_text()))
        gate.reload()
        assert told in gate.said() and gate.ask("GET", MACHINE, token=token)[0] == 200, (key, gate.said())
    gate.config.write_text("".join(line for line in lines.splitlines(True) if not line.startswith("tokens")))
    gate.reload()
    assert gate.ask("GET", MACHINE, token=token)[0] == 401  # no file: nobody comes in by a token
    (gate.folder / "tokens").chmod(0o666)
    gate.configure(f"user = {ANA[0]}")
    assert "others may write it" in gate.command("check").stderr


# ---- tide from elsewhere ----

def test_tide_goes_through_with_a_token_and_with_a_certificate(gate, tided, cnn):  # noqa: F811
    token = gate.token(ANA[0])
    cert, key = gate.authority.sign("ana", "/O=Lab/CN=ana")
    gate.start()
    ca, host = f"ca={gate.authority.cert}", f"127.0.0.1:{gate.port}"
    done = gate.home("--host", gate.address(), "ps", "--json", env={"TIDE_GATEWAY_TOKEN": token})
    assert done.returncode == 0 and [j["id"] for j in json.loads(done.stdout)] == [cnn.id], done
    done = gate.home("--host", gate.address(), "set", cnn.id, "--threads", "2", gateways=[f"{host} {ca} cert={cert} key={key}"])
    assert done.returncode == 0, done
    cnn.target(2)
    done = gate.home("--host", gate.address(), "events", env={"TIDE_GATEWAY_TOKEN": token})
    assert done.returncode == 0 and "job-" in done.stdout, done


def test_tide_says_why_it_does_not_get_through(gate, tided, public_dir):  # noqa: F811
    token = gate.token(ANA[0])
    gate.start()
    other, host = Authority(public_dir, "other"), f"127.0.0.1:{gate.port}"
    for code, why, lines in ((4, "neither a token nor a certificate", None), (4, "the token is unknown", (f"{host} ca={gate.authority.cert} "
                              "token=abc",)), (5, "certificate", (f"{host} ca={other.cert} token={token}",)),
                             (5, "a token is for one gateway", (f"* token={token}",)), (5, "neither token=", (f"{host} tokn=a",)),
                             (5, "certificate", ("# none",))):
        done = gate.home("--host", gate.address(), "ps", gateways=lines)
        assert done.returncode == code and why in done.stderr, (why, done)
    (gate.folder / "config/tide/gateways").write_text(f"{host} ca={gate.authority.cert} token={token}\n")
    (gate.folder / "config/tide/gateways").chmod(0o644)
    done = subprocess.run([gate.tide, "--host", gate.address(), "ps"], text=True, capture_output=True, timeout=GUARD_S,
                          env={**os.environ, "XDG_CONFIG_HOME": str(gate.folder / "config"), "XDG_RUNTIME_DIR": "/nonexistent"})
    assert done.returncode == 5 and "chmod 600" in done.stderr, done
    assert "Put it before" not in done.stderr and token not in gate.said()


def test_a_fleet_shows_gateways_and_shows_each_its_own_token_alone(gate, tided, cnn):  # noqa: F811
    token = gate.token(ANA[0])
    gate.start()
    (gate.folder / "config/tide").mkdir(parents=True)
    (gate.folder / "config/tide/fleet").write_text(f"lab1 {gate.address()}\nlab2 https://localhost:{gate.port}\n")
    lines = [f"127.0.0.1:{gate.port} token={token} ca={gate.authority.cert}", f"* ca={gate.authority.cert}"]
    fleet = json.loads(gate.home("fleet", "--json", gateways=lines, env={"TIDE_GATEWAY_TOKEN": token}).stdout)
    assert [(m["name"], m["reached"]) for m in fleet] == [("lab1", True), ("lab2", False)], fleet
    assert "neither a token nor" in fleet[1]["error"] and fleet[0]["address"] == gate.address()
    jobs = gate.home("fleet", "ps", "--json", gateways=lines)
    assert jobs.returncode == 6 and [j["machine"] for j in json.loads(jobs.stdout)] == ["lab1"], jobs
    done = gate.home("submit", "--any", "--", "true", gateways=lines)
    assert done.returncode != 0 and "gateway" in done.stderr, done


# ---- the program ----

def test_the_program_says_what_is_wrong_with_its_configuration(gate):  # noqa: F811
    for lines, why in ((("user = nobody-of-this-name",), "there is no user 'nobody-of-this-name'"), (("usr = x",), "did you mean 'user'?"),
                       (("key = relative",), "no absolute path"), ((f"user = {ANA[0]} CN=a", f"user = {EVE[0]} CN=a"), "stands there twice")):
        gate.configure(*lines)
        done = gate.command("check")
        assert done.returncode == 2 and why in done.stderr, done
    gate.configure(f"user = {ANA[0]}")
    done = gate.command("check")
    assert (done.returncode, done.stderr) == (0, "") and "1 users" in done.stdout
    assert gate.command("token", EVE[0]).returncode == 2 and not (gate.folder / "tokens").exists()
    assert gate.command("token", ANA[0], "--for", "soon").returncode == 2


def test_requests_that_are_over_count_no_more(gate, tided):  # noqa: F811
    """tided counts each as a connection of the user whom the gateway named: 64 at the same time."""
    token = gate.token(ANA[0])
    gate.start()
    connection = gate.connection()
    assert {gate.ask("GET", MACHINE, token=token, connection=connection)[0] for _ in range(80)} == {200}


def test_the_page_shows_a_machine_behind_a_gateway(gate, tided, cnn, place, build_dir):  # noqa: F811
    token = gate.token(ANA[0])
    gate.start()
    config = gate.folder / "config/tide"
    config.mkdir(parents=True)
    (config / "fleet").write_text(f"lab1 {gate.address()}\n")
    (config / "gateways").touch(mode=0o600)
    (config / "gateways").write_text(f"127.0.0.1:{gate.port} token={token} ca={gate.authority.cert}\n")
    page = Dashboard(build_dir / "tide-dashboard", place.daemon("--cpus", "0-1").start().dir,
                     env={**os.environ, "XDG_CONFIG_HOME": str(gate.folder / "config")})
    try:
        page.enter()
        [machine] = json.loads(page.ask("GET", "/v1/fleet", None)[2])
        assert machine["reached"] and [j["id"] for j in machine["jobs"]] == [cnn.id]
        status, _, text = page.ask("PATCH", f"/v1/at/lab1/jobs/{cnn.id}", {"threads": 2})
        assert status == 200, text
        cnn.target(2)
        status, _, text = page.ask("PUT", "/v1/at/lab1/policy", {"policy": "weighted"})
        assert status == 403 and "gateway" in text
    finally:
        page.end()
