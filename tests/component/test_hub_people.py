# SPDX-License-Identifier: Apache-2.0
"""Access to the hub: users, logins, sessions, tokens, limits against guessing, the audit log."""
import json
import os
import pty
import re
import shutil
import sqlite3
import subprocess
import time

import pytest

from daemon import GUARD_S
from hub import TOOLS
from hub_web import PASSWORD, Client, Web

pytestmark = pytest.mark.skipif(not all(map(shutil.which, TOOLS)),
                                reason="mosquitto-clients and openssl are not installed")

LAST = "'ada' is the last administrator: make somebody else one first ('tide-hub user role')"


@pytest.fixture
def hub(build_dir, tmp_path):
    if b"serve" not in subprocess.run([build_dir / "tide-hub", "--help"], capture_output=True).stdout:
        pytest.skip("tide-hub was built without libmosquitto")
    made = Web(build_dir / "tide-hub", tmp_path)
    made.start()
    made.add_user("ada", "administrator")
    made.serve()
    yield made
    made.stop()


def audit(hub):
    """(user, what, target, outcome) of all rows, oldest first."""
    file = sqlite3.connect(hub.state / "people.db", timeout=10)
    rows = file.execute("SELECT user, what, target, outcome FROM audit ORDER BY id").fetchall()
    file.close()
    return rows


def change_file(hub, sql):
    """As time would: the hub reads the file at each request."""
    with sqlite3.connect(hub.state / "people.db", timeout=10) as file:
        file.execute(sql)
    file.close()


def test_changes_by_commands_are_in_the_log_too(hub, tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text("version: 1\norg: unlp\nzone: UTC\nareas:\n- {area: unlp/lab3, unit: lab3}\n"
                      "rules:\n- {area: unlp/lab3, cap: 900 W}\n")
    hub.enrol("lab3")
    assert hub.run("unit", "revoke", "lab3")[0] == 0
    assert hub.run("unit", "revoke", "lab8")[0] != 0
    assert hub.run("unit", "admit", "lab3")[0] == 0
    token = hub.run("token", "lab4")[1].strip()
    assert hub.run("policy", "apply", policy)[0] == 0
    rows = audit(hub)
    me = rows[0][0]
    assert [(*row[:3], row[3].split(":")[0]) for row in rows[1:]] == [
        (me, "unit.sign", "lab3", "done"), (me, "unit.revoke", "lab3", "done"), (me, "unit.revoke", "lab8", "failed"),
        (me, "unit.admit", "lab3", "done"), (me, "unit.token", "lab4", "done"), (me, "policy.apply", str(policy)[:127], "done")]
    assert token and token.split("-")[1] not in str(rows)
    assert (hub.state / "people.db").stat().st_mode & 0o077 == 0


# ---- logins ----

def test_a_login_begins_a_session_and_a_logout_ends_it(hub):
    guest = hub.guest()
    assert guest.call("GET", "/v1/session")[1]["user"] is None
    status, answer = guest.call("GET", "/v1/me")
    assert (status, answer["error"]["message"]) == (401, "nobody is logged in")
    status, headers, text = guest.raw("POST", "/v1/login", json.dumps({"user": "ada", "password": PASSWORD}))
    assert status == 200 and json.loads(text)["may"] == ["switch", "policy", "users", "units"]
    cookie = headers["Set-Cookie"]
    assert re.fullmatch(rf"__Host-tide-{hub.web_port()}=[0-9a-f]{{64}}; Path=/; Secure; HttpOnly; SameSite=Strict",
                        cookie)
    assert guest.call("GET", "/v1/me")[1]["user"] == "ada"
    stolen = guest.cookie
    assert guest.call("POST", "/v1/logout")[0] == 200 and guest.cookie is None
    guest.cookie = stolen
    assert guest.call("GET", "/v1/me")[0] == 401


def test_there_is_no_default_password(build_dir, tmp_path):
    hub = Web(build_dir / "tide-hub", tmp_path)
    hub.start()
    try:
        hub.serve()
        assert "nobody may log in yet: tide-hub user add NAME --role administrator" in hub.said()
        status, answer = hub.guest().call("POST", "/v1/login", {"user": "admin", "password": "admin"})
        assert status == 401 and answer["error"]["hint"].startswith("On the hub: tide-hub user add")
    finally:
        hub.stop()


def test_a_wrong_password_and_an_unknown_name_sound_the_same(hub):
    guest = hub.guest()
    answers = [guest.call("POST", "/v1/login", {"user": name, "password": "wrong password"}) for name in ("ada", "eve")]
    assert answers[0] == answers[1] and answers[0][0] == 401
    assert [row[3].split(":")[0] for row in audit(hub)[-2:]] == ["refused", "refused"]


def test_guessing_is_slowed_down_even_with_the_right_password_and_told_in_the_log(hub):
    guest = hub.guest()
    statuses = [guest.call("POST", "/v1/login", {"user": "ada", "password": f"guess number {n}"})[0]
                for n in range(6)]
    assert statuses == [401] * 5 + [429]
    status, headers, text = guest.raw("POST", "/v1/login", json.dumps({"user": "ada", "password": PASSWORD}))
    assert status == 429 and 0 < int(headers["Retry-After"]) <= 900
    assert "try again in" in json.loads(text)["error"]["message"]
    hub.add_user("bob", "viewer")
    assert hub.user("bob").call("GET", "/v1/me")[0] == 200  # others are not concerned
    assert hub.script("ada").call("GET", "/v1/me")[0] == 200  # nor what ada has already
    assert ("", "login", "ada", "refused: too many wrong passwords") in [
        (*row[:3], row[3].partition(": try")[0]) for row in audit(hub)]


def test_a_session_that_is_not_used_ends(hub):
    ada = hub.user("ada")
    assert ada.call("GET", "/v1/me")[0] == 200
    change_file(hub, "UPDATE session SET seen_ms = seen_ms - 43201000")
    status, answer = ada.call("GET", "/v1/me")
    assert (status, answer["error"]["message"]) == (401, "nobody is logged in")


def test_a_session_ends_at_its_time_however_busy(hub):
    hub.kill()
    hub.options = ("--session-idle", "2s", "--session-end", "3s")
    hub.serve()
    ada = hub.user("ada")
    began, answered = time.monotonic(), 0
    while ada.call("GET", "/v1/me")[0] == 200:
        answered += 1
        assert time.monotonic() - began < GUARD_S
        time.sleep(0.2)
    assert answered and hub.user("ada").call("GET", "/v1/me")[0] == 200


def test_a_new_password_ends_stolen_sessions(hub):
    thief, ada = hub.user("ada"), hub.user("ada")
    new = "another horse battery"
    assert ada.call("POST", "/v1/me/password", {"old": "not the password", "new": new})[0] == 401
    assert ada.call("POST", "/v1/me/password", {"old": PASSWORD, "new": "short"})[0] == 400
    assert ada.call("POST", "/v1/me/password", {"old": PASSWORD, "new": new})[0] == 200
    assert thief.call("GET", "/v1/me")[0] == 401
    assert hub.user("ada", new).call("GET", "/v1/me")[0] == 200


def test_a_new_password_ends_stolen_tokens_unless_they_are_to_be_kept(hub):
    new, third = "another horse battery", "a third horse battery"
    thief = hub.script("ada")
    assert hub.user("ada").call("POST", "/v1/me/password", {"old": PASSWORD, "new": new})[0] == 200
    assert thief.call("GET", "/v1/me")[0] == 401
    kept, ada = hub.script("ada"), hub.user("ada", new)
    assert ada.call("POST", "/v1/me/password", {"old": new, "new": third, "keep_tokens": True})[0] == 200
    assert ada.call("GET", "/v1/me")[0] == 401
    assert kept.call("GET", "/v1/me")[0] == 200
    assert kept.call("PATCH", "/v1/users/ada", {"password": PASSWORD})[0] == 200
    assert kept.call("GET", "/v1/me")[0] == 401
    log = hub.user("ada").call("GET", "/v1/audit")[1]
    assert [row["what"] for row in log if "password" in row["what"]] == [
        "user.password", "user.password, tokens kept", "user.password"]


def test_another_role_ends_sessions_and_tokens_and_a_removed_user_is_out(hub):
    hub.add_user("bob", "viewer")
    bob, script = hub.user("bob"), hub.script("bob")
    assert bob.call("GET", "/v1/users")[0] == 403
    assert hub.run("user", "role", "bob", "--role", "administrator", "--keep-tokens")[0] == 0
    assert bob.call("GET", "/v1/users")[0] == 401
    assert script.call("GET", "/v1/users")[0] == 200
    assert hub.run("user", "role", "bob", "--role", "operator")[0] == 0
    assert script.call("GET", "/v1/me")[0] == 401
    assert hub.run("user", "role", "bob", "--role", "administrator")[0] == 0
    bob, script = hub.user("bob"), hub.script("bob")
    assert hub.run("user", "remove", "bob")[0] == 0
    assert bob.call("GET", "/v1/users")[0] == script.call("GET", "/v1/users")[0] == 401


def test_a_refused_password_leaves_the_role_and_the_sessions_as_they_were(hub):
    hub.add_user("bob", "viewer")
    bob, ada = hub.user("bob"), hub.user("ada")
    status, answer = ada.call("PATCH", "/v1/users/bob", {"role": "operator", "password": "bob's own password"})
    assert (status, answer["error"]["message"]) == (400, "the password contains the user's name: use another one")
    assert bob.call("GET", "/v1/me")[1]["role"] == "viewer"
    assert ada.call("PATCH", "/v1/users/bob", {"role": "operator", "password": "another horse battery"})[0] == 200
    assert bob.call("GET", "/v1/me")[0] == 401
    assert hub.guest().call("POST", "/v1/login", {"user": "bob", "password": "another horse battery"})[1]["role"] == "operator"


def test_users_sessions_tokens_and_the_log_survive_a_kill(hub):
    hub.add_user("bob", "operator")
    bob, script, before = hub.user("bob"), hub.script("bob"), audit(hub)
    hub.kill()
    hub.serve()
    bob.port = script.port = hub.web_port()
    bob.cookie = re.sub(r"tide-\d+=", f"tide-{bob.port}=", bob.cookie)  # the port differs in this test alone
    assert bob.call("GET", "/v1/me")[1] == script.call("GET", "/v1/me")[1]
    assert audit(hub)[:len(before)] == before


# ---- other pages, thieves ----

@pytest.mark.parametrize("headers", [
    {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": None}, {"Origin": "http://127.0.0.1:{port}"},
    {"Origin": None, "Sec-Fetch-Site": "cross-site"}, {"Origin": "https://127.0.0.1:1"},
])
def test_another_page_changes_nothing_with_a_users_cookie(hub, headers):
    ada = hub.user("ada")
    headers = {name: value and value.replace("{port}", str(ada.port)) for name, value in headers.items()}
    status, answer = ada.call("POST", "/v1/users", {"user": "eve", "role": "administrator", "password": PASSWORD},
                              headers)
    assert (status, answer["error"]["message"]) == (403, "a page of another site asks for this change")
    assert [user["user"] for user in ada.call("GET", "/v1/users")[1]] == ["ada"]


def test_another_page_cannot_log_a_browser_in(hub):
    status, _ = hub.guest().call("POST", "/v1/login", {"user": "ada", "password": PASSWORD},
                                 {"Origin": "https://evil.example"})
    assert status == 403


def test_a_script_logs_in_without_an_origin_and_changes_with_its_token(hub):
    status, _ = hub.guest().call("POST", "/v1/login", {"user": "ada", "password": PASSWORD}, {"Origin": None})
    assert status == 200
    script = hub.script("ada")
    assert script.call("POST", "/v1/users", {"user": "bob", "role": "viewer", "password": PASSWORD})[0] == 201


def test_tokens_end_in_time_and_when_revoked(hub):
    short, script = Client(hub, hub.token("ada", "--for", "1h")), hub.script("ada")
    assert short.call("GET", "/v1/me")[0] == 200
    change_file(hub, "UPDATE token SET until_ms = until_ms - 3600001 WHERE until_ms > 0")
    status, answer = short.call("GET", "/v1/me")
    assert (status, answer["error"]["message"]) == (401, "the token is unknown, or has ended")
    assert script.call("GET", "/v1/me")[0] == 200
    assert hub.run("user", "token", "ada", "--revoke")[0] == 0
    assert script.call("GET", "/v1/me")[0] == 401


def test_a_bad_token_is_not_helped_by_a_good_cookie(hub):
    ada = hub.user("ada")
    assert ada.call("GET", "/v1/me", headers={"Authorization": "Bearer tide_" + "0" * 64})[0] == 401
    assert ada.call("GET", "/v1/me", headers={"Authorization": "Basic YWRhOmFkYQ=="})[0] == 401


def test_what_leaves_the_hub_is_nobody_elses_to_read(hub):
    mode = (hub.state / "people.db").stat().st_mode
    assert mode & 0o077 == 0
    _, headers, _ = hub.user("ada").raw("GET", "/v1/users")
    assert headers["Cache-Control"] == "no-store"
    _, headers, page = hub.guest().raw("GET", "/")
    assert "default-src 'none'" in headers["Content-Security-Policy"] and "<script" in page


# ---- the command ----

def test_the_password_is_asked_for_on_the_terminal_and_not_shown(hub):
    def typed(*answers):
        pid, terminal = pty.fork()
        if pid == 0:
            os.execv(hub.program, [str(hub.program), "user", "add", "tty", "--role", "viewer", "--state",
                                   str(hub.state)])
        shown = b""
        for question, answer in zip((b"Password: ", b"Once more: "), answers):
            while question not in shown:
                shown += os.read(terminal, 1000)
            os.write(terminal, answer.encode() + b"\n")
        try:
            while chunk := os.read(terminal, 1000):
                shown += chunk
        except OSError:
            pass
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode()

    code, shown = typed("correct horse battery", "correct horse batterie")
    assert code == 3 and "the two passwords differ: nothing was changed" in shown
    code, shown = typed("correct horse battery", "correct horse battery")
    assert code == 0 and "horse" not in shown
    assert hub.user("tty").call("GET", "/v1/me")[1]["role"] == "viewer"


def test_the_commands_tell_who_there_is_and_what_was_done(hub):
    hub.add_user("bob", "viewer")
    hub.token("bob")
    hub.user("bob")
    assert hub.run("user", "role", "ada", "--role", "viewer") == (3, "", f"tide-hub: {LAST} (tide why hub-conflict)\n")
    rows = [line.split() for line in hub.run("user", "list")[1].splitlines()]
    assert rows[1][:3] == ["ada", "administrator", "-"] and rows[1][-1] == "0"
    assert rows[2][:2] == ["bob", "viewer"] and rows[2][-2:] == ["1", "1"]
    lines = hub.run("audit")[1].splitlines()
    assert [re.split(r"  +", line)[3:] for line in lines[1:]] == [
        ["user.add as administrator", "ada", "done"], ["user.add as viewer", "bob", "done"],
        ["user.token", "bob", "done"], ["login", "bob", "done"],
        ["user.role as viewer", "ada", f"failed: {LAST}"]]
    assert [line for line in hub.run("audit", "--limit", "1")[1].splitlines()][1:] == lines[-1:]


@pytest.mark.parametrize("arguments, code, told", [
    (("user",), 2, "Usage: tide-hub user"),
    (("user", "add", "bob"), 2, "add needs --role viewer, operator or administrator"),
    (("user", "add", "bob", "--role", "king"), 2, "--role 'king': use viewer, operator or administrator"),
    (("user", "add", "Bob", "--role", "viewer"), 3, "'Bob' is no name of a user"),
    (("user", "passwd", "eve"), 3, "no user 'eve'"),
    (("user", "token", "ada", "--for", "soon"), 2, "--for 'soon': use a time as 90d"),
    (("user", "list", "--stat", "x", "--config", "none.conf"), 2, "none.conf: No such file"),
    (("audit", "--since", "x"), 2, "--since 'x': use a time"),
    (("audit", "--limit", "0"), 2, "--limit '0': use a number from 1 to 1000"),
    (("serve", "--session-idle", "9d"), 2, "session-idle is longer than session-end"),
    (("serve", "--certificate", "/x"), 2, "certificate and key belong together: key is missing"),
])
def test_wrong_use_says_what_is_right(hub, arguments, code, told):
    done = subprocess.run([hub.program, *arguments, "--state", hub.state], input=PASSWORD + "\n", capture_output=True,
                          text=True, timeout=GUARD_S)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert told in done.stderr


def test_the_configuration_says_where_the_hub_is(build_dir, tmp_path):
    hub = Web(build_dir / "tide-hub", tmp_path)
    hub.state.mkdir(mode=0o700)
    conf = tmp_path / "hub.conf"
    conf.write_text(f"[hub]\nstate = {hub.state}\n")
    done = subprocess.run([hub.program, "user", "add", "ada", "--role", "administrator", "--config", conf],
                          input=PASSWORD, capture_output=True, text=True, timeout=GUARD_S)
    assert done.returncode == 0, done.stderr
    assert (hub.state / "people.db").exists()
    conf.write_text("[hub]\nstaet = /x\n")
    done = subprocess.run([hub.program, "serve", "--config", conf], capture_output=True, text=True, timeout=GUARD_S)
    assert done.returncode == 2
    assert done.stderr == f"tide-hub: {conf}:2: staet: there is no such key: did you mean 'state'? (tide why config-error)\n"
