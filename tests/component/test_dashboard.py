# SPDX-License-Identifier: Apache-2.0
"""tide-dashboard: who gets the page, and what goes through it to a real tided. The page itself is tested in
a browser: ui/test."""
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import urllib.parse

import pytest

from daemon import GUARD_S, NOBODY, eventually


class Dashboard:
    def __init__(self, program, folder, *options, who=(), env=None):
        self.process = subprocess.Popen([*who, program, "--no-open", *options], stdout=subprocess.PIPE, text=True,
                                        env={**(env or os.environ), "TIDE_DIR": str(folder)})
        self.link = self.process.stdout.readline().strip()
        found = urllib.parse.urlsplit(self.link)
        assert found.hostname == "127.0.0.1", self.link
        self.port, self.token = found.port, urllib.parse.parse_qs(found.query)["token"][0]
        self.cookie = None

    def ask(self, method, path, body=None, headers=None, cookie=True):
        """(status, headers, text)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=GUARD_S)
        try:
            every = {"Cookie": self.cookie} if cookie and self.cookie else {}
            if method not in ("GET", "HEAD"):
                every["Origin"] = f"http://127.0.0.1:{self.port}"
            every.update(headers or {})
            connection.request(method, path, None if body is None else json.dumps(body), every)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()

    def enter(self, host=None):
        status, headers, _ = self.ask("GET", f"/?token={self.token}", headers={"Host": host} if host else None)
        assert status == 303, status
        self.cookie = headers["Set-Cookie"].split(";")[0]
        return headers

    def end(self):
        self.process.terminate()
        assert self.process.wait(GUARD_S) == 0
        self.process.stdout.close()


@pytest.fixture
def tided(place):
    return place.daemon("--cpus", "0-1").start()


@pytest.fixture
def dashboard(build_dir, tided):
    result = Dashboard(build_dir / "tide-dashboard", tided.dir)
    yield result
    result.end()


def test_a_link_opens_once_and_leaves_a_cookie_that_scripts_cannot_read(dashboard):
    assert dashboard.ask("GET", "/")[0] == 403
    assert dashboard.ask("GET", "/?token=" + "0" * 32)[0] == 403
    headers = dashboard.enter()
    assert headers["Location"] == "/"
    assert re.fullmatch(rf"tide-{dashboard.port}=[0-9a-f]{{32}}; Path=/; HttpOnly; SameSite=Lax", headers["Set-Cookie"])
    assert dashboard.token not in headers["Set-Cookie"]
    assert dashboard.ask("GET", "/")[0] == 200
    status, headers, text = dashboard.ask("GET", f"/?token={dashboard.token}", cookie=False)
    assert (status, headers["Set-Cookie"]) == (403, None)
    assert "works once" in text or "each works once" in text


@pytest.mark.parametrize("path", ["/", "/page.js", "/page.css", "/v1/jobs", "/v1/session", "/v1/events", "/metrics"])
def test_nothing_is_told_without_the_cookie(dashboard, path):
    dashboard.enter()
    assert dashboard.ask("GET", path, cookie=False)[0] == 403
    assert dashboard.ask("GET", path, headers={"Cookie": f"tide-{dashboard.port}={'0' * 32}"})[0] == 403
    assert dashboard.ask("GET", path, headers={"Cookie": dashboard.cookie.replace("tide-", "tide-1")})[0] == 403


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "127.0.0.1:x",
                                  "10.0.0.1", "", "localhost:123456"])
def test_a_foreign_name_that_leads_here_is_refused(dashboard, host):
    dashboard.enter()
    status, _, text = dashboard.ask("GET", "/v1/jobs", headers={"Host": host})
    assert (status, "127.0.0.1" in text) == (421, True)


@pytest.mark.parametrize("host,port", [("localhost", 80), ("LOCALHOST:9", 9), ("127.0.0.1:65535", 65535), ("[::1]:80", 80), ("[::1]", 80)])
def test_a_forwarded_port_of_loopback_is_served_with_a_cookie_of_its_own(dashboard, host, port):
    """Those of two servers, whose own ports may be the same, do not overwrite each other in the browser."""
    dashboard.enter(host)
    assert dashboard.cookie.startswith(f"tide-{port}=")
    assert dashboard.ask("GET", "/v1/jobs", headers={"Host": host})[0] == 200
    other = {"Host": host, "Cookie": f"tide-{dashboard.port}={'0' * 32}; {dashboard.cookie}"}
    assert dashboard.ask("GET", "/v1/jobs", headers=other)[0] == 200


@pytest.mark.parametrize("origin", ["http://127.0.0.1:1", "http://localhost:{port}", "https://127.0.0.1:{port}", "null", ""])
def test_another_page_changes_nothing(dashboard, tided, origin):
    dashboard.enter()
    job = tided.job()
    job.target(2)
    status, _, text = dashboard.ask("PATCH", f"/v1/jobs/{job.id}", {"threads": 1}, {"Origin": origin.format(port=dashboard.port)})
    assert (status, "another page" in text) == (403, True)
    assert job.get()["target"] == 2
    assert dashboard.ask("PATCH", f"/v1/jobs/{job.id}", {"threads": 1})[0] == 200
    job.target(1)


def test_every_answer_forbids_what_is_not_the_page(dashboard):
    dashboard.enter()
    for path in ("/", "/page.js", "/v1/jobs", "/v1/jobs/none", "/nothing"):
        headers = dashboard.ask("GET", path)[1]
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "script-src 'self'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert (headers["X-Content-Type-Options"], headers["X-Frame-Options"]) == ("nosniff", "DENY")
        assert headers["Referrer-Policy"] == "no-referrer"


def test_files_are_sent_again_only_when_they_are_others(dashboard):
    dashboard.enter()
    status, headers, text = dashboard.ask("GET", "/page.js")
    assert (status, headers["Content-Type"]) == (200, "text/javascript; charset=utf-8")
    assert len(text) > 10000
    assert dashboard.ask("GET", "/page.js", headers={"If-None-Match": headers["ETag"]})[0] == 304
    assert dashboard.ask("GET", "/page.js", headers={"If-None-Match": '"x"'})[0] == 200
    assert dashboard.ask("GET", "/src/main.ts")[0] == 404


def test_the_page_speaks_with_tided(dashboard, tided):
    dashboard.enter()
    job = tided.job(name="a+b:c@d")
    job.settled()
    told = json.loads(dashboard.ask("GET", "/v1/jobs")[2])
    assert [j["name"] for j in told] == ["a+b:c@d"]
    assert json.loads(dashboard.ask("GET", "/v1/jobs/" + urllib.parse.quote("a+b:c@d"))[2])["id"] == job.id
    assert json.loads(dashboard.ask("GET", f"/v1/jobs/{job.id}/explain")[2])["id"] == job.id
    assert len(json.loads(dashboard.ask("GET", "/v1/history?since=1&limit=10")[2])) == 1
    assert dashboard.ask("GET", "/v1/history?since=soon")[0] == 400
    assert dashboard.ask("GET", "/metrics")[2].startswith("# ")
    status, headers, text = dashboard.ask("GET", "/v1/jobs/none")
    assert (status, headers["Content-Type"]) == (404, "application/json")
    assert "none" in json.loads(text)["error"]["message"]
    assert json.loads(dashboard.ask("GET", "/v1/session")[2])["server"] == "machine"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("group,governs", [("games", True), ("mail", False)])
def test_what_its_user_may_is_tideds_word(build_dir, place, group, governs):
    """Whatever the administrators' group is called."""
    number = int(next(line for line in open("/etc/group") if line.startswith(group + ":")).split(":")[2])
    tided = place.daemon("--cpus", "0-1", "--admin-group", "games").start()
    dashboard = Dashboard(build_dir / "tide-dashboard", tided.dir,
                          who=("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", f"--groups={number}"))
    dashboard.enter()
    assert json.loads(dashboard.ask("GET", "/v1/machine")[2])["governs"] is governs
    assert dashboard.ask("PUT", "/v1/policy", {"policy": "equal"})[0] == (200 if governs else 403)
    assert "admin" not in json.loads(dashboard.ask("GET", "/v1/session")[2])
    dashboard.end()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_user_whom_etc_passwd_does_not_name_is_called_as_the_owner_of_the_jobs_is(build_dir, tided):
    uid = next(uid for uid in range(64000, 65000) if f":{uid}:" not in open("/etc/passwd").read())
    job = tided.job(uid=uid)
    dashboard = Dashboard(build_dir / "tide-dashboard", tided.dir,
                          who=("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"))
    dashboard.enter()
    session = json.loads(dashboard.ask("GET", "/v1/session")[2])
    assert (session["user"], session["uid"]) == (job.get()["owner"], uid) == (str(uid), uid)
    dashboard.end()


def test_the_browser_can_wait_for_programs_of_its_own(build_dir, tided, tmp_path):
    said = tmp_path / "said"
    browser = tmp_path / "xdg-open"
    browser.write_text(f"#!{sys.executable}\nimport os, signal\n"
                       f"open('{said}.new', 'w').write(str(signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL))\n"
                       f"os.rename('{said}.new', '{said}')\n")
    browser.chmod(0o755)
    with subprocess.Popen([build_dir / "tide-dashboard"], stdout=subprocess.PIPE, text=True, env={
            **os.environ, "TIDE_DIR": str(tided.dir), "DISPLAY": ":0", "PATH": f"{tmp_path}:{os.environ['PATH']}"}) as process:
        process.stdout.readline()
        eventually(said.exists)
        process.terminate()
    assert said.read_text() == "True"


def test_events_come_as_they_happen(dashboard, tided):
    dashboard.enter()
    connection = http.client.HTTPConnection("127.0.0.1", dashboard.port, timeout=GUARD_S)
    connection.request("GET", "/v1/events", headers={"Cookie": dashboard.cookie})
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream")
    job = tided.job(name="seen")
    lines = iter(answer.readline, b"")
    assert any(b"job-added" in line for line in lines)
    assert any(b"seen" in line for line in lines)
    job.end()
    assert any(b"job-ended" in line for line in lines)
    connection.close()
    assert dashboard.ask("GET", "/v1/jobs")[0] == 200


@pytest.mark.parametrize("method,path", [("POST", "/v1/jobs"), ("POST", "/v1/adoptions"), ("DELETE", "/v1/jobs"),
                                         ("PUT", "/v1/jobs/j1"), ("PATCH", "/v1/policy"), ("OPTIONS", "/v1/jobs")])
def test_what_the_page_does_not_do_is_refused(dashboard, method, path):
    dashboard.enter()
    assert dashboard.ask(method, path, {})[0] == 403


def test_a_daemon_that_comes_and_goes_is_told_and_found_again(dashboard, tided):
    dashboard.enter()
    assert dashboard.ask("GET", "/v1/jobs")[0] == 200
    tided.stop()
    status, _, text = dashboard.ask("GET", "/v1/jobs")
    assert (status, "no daemon" in json.loads(text)["error"]["message"]) == (503, True)
    assert dashboard.ask("GET", "/")[0] == 200
    tided.start()
    assert dashboard.ask("GET", "/v1/jobs")[0] == 200


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_another_user_of_the_machine_gets_no_answer(dashboard):
    """The link stands in a browser's command line, and a cookie goes to every port of a host."""
    dashboard.enter()
    asks = ("import http.client, sys\nc = http.client.HTTPConnection('127.0.0.1', int(sys.argv[1]))\n"
            "try:\n c.request('GET', '/v1/jobs', headers={'Cookie': sys.argv[2]}); print(c.getresponse().status)\n"
            "except (ConnectionError, http.client.BadStatusLine): print('closed')\n")

    def ask(*who):
        return subprocess.run([*who, sys.executable, "-c", asks, str(dashboard.port), dashboard.cookie],
                              capture_output=True, text=True, timeout=GUARD_S, check=True).stdout.strip()
    assert ask() == "200"
    assert ask("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups") == "closed"


def test_a_port_in_use_and_wrong_words_are_told(build_dir, tided):
    def run(*words):
        return subprocess.run([build_dir / "tide-dashboard", *words], capture_output=True, text=True, timeout=GUARD_S,
                              env={**os.environ, "TIDE_DIR": str(tided.dir)}, check=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("--no-open", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 1
    assert "cannot listen on 127.0.0.1:" in done.stderr and "--port" in done.stderr
    assert run("--port", "70000").returncode == 2
    assert run("now").returncode == 2


def test_a_client_that_leaves_in_the_middle_costs_nothing(dashboard, tided):
    dashboard.enter()
    head = f"GET /v1/events HTTP/1.1\r\nHost: localhost:{dashboard.port}\r\nCookie: {dashboard.cookie}\r\n\r\n".encode()
    for _ in range(70):  # more than there may be connections
        with socket.create_connection(("127.0.0.1", dashboard.port)) as client:
            client.sendall(head)
            assert client.recv(12) == b"HTTP/1.1 200"
    eventually(lambda: dashboard.ask("GET", "/v1/jobs")[0] == 200)
