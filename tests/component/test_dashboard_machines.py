# SPDX-License-Identifier: Apache-2.0
"""tide-dashboard and other machines: the inventory's, and requests for one of them, through a real sshd to real
daemons. What people see of it is tested in a browser: ui/test/machines.test.mjs."""
import http.client
import json
import os
import time

import pytest

from cli_tools import GUARD_S, tide  # noqa: F401
from daemon import eventually
from far import free_port, home, needs_sshd  # noqa: F401
from test_dashboard import Dashboard
from test_fleet import ssh_processes

pytestmark = needs_sshd


@pytest.fixture
def lab(home, tide):  # noqa: F811
    """A machine with one malleable job of four threads, which the inventory calls lab1."""
    tide.start_pool("cnn", "--max", 4)
    machine = home.machine(tide.dir)
    home.inventory(f"lab1 {machine.address()}")
    return machine


@pytest.fixture
def dashboard(build_dir, home, place):  # noqa: F811
    """The page of a person on a machine of its own, whose daemon has no job."""
    here = place.daemon("--cpus", "0-1").start()
    result = Dashboard(build_dir / "tide-dashboard", here.dir, env=home.env)
    result.enter()
    yield result
    result.end()


def ask(dashboard, path, method="GET", body=None):
    status, _, text = dashboard.ask(method, path, body)
    return status, json.loads(text)


def at(dashboard, path, method="GET", body=None):
    """The answer of lab1, once the inventory has been read."""
    answer = []

    def answered():
        answer[:] = ask(dashboard, f"/v1/at/lab1/{path}", method, body)
        return answer[0] != 503

    eventually(answered)
    return tuple(answer)


def test_all_machines_are_told_as_tide_fleet_tells_them(home, lab, dashboard):
    home.inventory(f"lab1 {lab.address()}", f"lab2 ssh://127.0.0.1:{free_port()}")
    status, machines = ask(dashboard, "/v1/fleet")
    assert status == 200
    told = json.loads(home("fleet", "--json").stdout)
    assert [(m["name"], m["address"], m["reached"], m["error"]) for m in machines] == \
        [(m["name"], m["address"], m["reached"], m["error"]) for m in told]
    first, second = machines
    assert [job["name"] for job in first["jobs"]] == ["cnn"] and first["machine"]["cpus"] > 0
    assert not second["reached"] and "refused" in second["error"] and second["jobs"] is None


def test_without_an_inventory_it_is_said_how_one_is_written(dashboard):
    status, answer = ask(dashboard, "/v1/fleet")
    assert status == 404 and "no inventory" in answer["error"]["message"] and "~/.config/tide/fleet" in answer["error"]["hint"]
    assert ask(dashboard, "/v1/at/lab1/jobs")[0] == 404


def test_each_round_reads_the_inventory_anew(home, lab, dashboard):  # noqa: F811
    assert [m["name"] for m in ask(dashboard, "/v1/fleet")[1]] == ["lab1"]
    home.inventory(f"lab2 {lab.address()}")
    assert [m["name"] for m in ask(dashboard, "/v1/fleet")[1]] == ["lab2"]
    assert (ask(dashboard, "/v1/at/lab1/jobs")[0], ask(dashboard, "/v1/at/lab2/jobs")[0]) == (404, 200)


def test_a_line_that_is_wrong_is_named(home, dashboard):
    home.inventory("lab1 telnet://x")
    status, answer = ask(dashboard, "/v1/fleet")
    assert status == 400 and "telnet://x" in answer["error"]["message"] and "line 1" in answer["error"]["message"]


def test_requests_for_a_machine_reach_its_daemon_with_the_rights_of_the_login(tide, lab, dashboard):  # noqa: F811
    status, [job] = at(dashboard, "jobs")
    assert status == 200 and job["name"] == "cnn" and job["id"] == tide.job("cnn")["id"]
    assert ask(dashboard, "/v1/jobs") == (200, [])  # this machine's own
    status, done = at(dashboard, f"jobs/{job['id']}", "PATCH", {"threads": 2})
    assert (status, done["to"]) == (200, 2) and tide.job("cnn")["target"] == 2
    status, told = at(dashboard, "jobs/none")
    assert status == 404 and "no job" in told["error"]["message"]


def test_the_page_may_ask_another_machine_for_no_more_than_its_own(lab, dashboard):
    assert at(dashboard, "jobs")[0] == 200
    for method, path in (("POST", "jobs"), ("PUT", "power/lease"), ("DELETE", "policy")):
        assert ask(dashboard, f"/v1/at/lab1/{path}", method, {})[0] == 403, (method, path)


def test_requests_one_after_the_other_share_a_login(lab, dashboard):
    assert at(dashboard, "jobs")[0] == 200
    before = lab.logins()
    for _ in range(5):
        assert ask(dashboard, "/v1/at/lab1/jobs")[0] == 200
    assert lab.logins() == before


def test_a_kept_login_that_has_ended_is_made_anew(home, lab, dashboard):
    assert at(dashboard, "jobs")[0] == 200
    before = lab.logins()
    for pid in list(ssh_processes(home)):
        os.kill(pid, 9)
    assert ask(dashboard, "/v1/at/lab1/jobs")[0] == 200
    assert lab.logins() == before + 1


def test_logins_that_nobody_needs_end(home, lab, dashboard):
    assert at(dashboard, "jobs")[0] == 200
    assert list(ssh_processes(home))
    eventually(lambda: not list(ssh_processes(home)))


def test_events_of_another_machine_arrive(tide, lab, dashboard):  # noqa: F811
    assert at(dashboard, "jobs")[0] == 200
    connection = http.client.HTTPConnection("127.0.0.1", dashboard.port, timeout=GUARD_S)
    connection.request("GET", "/v1/at/lab1/events", headers={"Cookie": dashboard.cookie})
    answer = connection.getresponse()
    assert answer.status == 200 and answer.headers["Content-Type"] == "text/event-stream"
    tide("run", "--name", "early", "--", "true")
    seen = b""
    while b"early" not in seen:
        seen += answer.read1()
    connection.close()


def test_who_the_page_is_there_is_the_login(home, lab, dashboard):
    home.inventory(f"lab1 {lab.address().replace('ssh://', 'ssh://ana@')}", f"lab2 {lab.address()}")

    def session(name):
        answer = []
        eventually(lambda: answer.append(ask(dashboard, f"/v1/session?at={name}")) or answer[-1][0] != 503)
        return answer[-1]

    status, told = session("lab1")
    assert status == 200 and (told["user"], told["at"], told.get("uid")) == ("ana", "lab1", None)
    assert session("lab2")[1]["user"] is None  # ssh's own configuration decides
    assert session("lab9")[0] == 404
    assert "uid" in ask(dashboard, "/v1/session")[1]


@pytest.mark.parametrize("path", ["/v1/at/lab9/jobs", "/v1/at/lab1", "/v1/at//jobs", "/v1/at/ssh:%2F%2F127.0.0.1/jobs"])
def test_only_names_of_the_inventory_are_reached(lab, dashboard, path):
    assert at(dashboard, "jobs")[0] == 200
    before = lab.logins()
    status, answer = ask(dashboard, path)
    assert status == 404 and "no machine of the inventory" in answer["error"]["message"]
    assert lab.logins() == before


def test_why_a_machine_is_not_reached_is_said(home, dashboard):
    home.inventory(f"lab1 ssh://127.0.0.1:{free_port()}")
    status, answer = at(dashboard, "jobs")
    assert status == 502 and "ssh does not reach 127.0.0.1" in answer["error"]["message"]


def test_a_machine_without_a_daemon_says_so(home, dashboard, tmp_path):
    machine = home.machine(tmp_path / "empty")
    home.inventory(f"lab1 {machine.address()}")
    status, answer = at(dashboard, "jobs")
    assert status == 502 and "no daemon runs there" in answer["error"]["message"]


def test_a_machine_that_is_silent_holds_up_neither_the_page_nor_its_end(home, dashboard):
    """A person who closes the page does not wait for the ssh that still tries."""
    home.program("ssh", "exec sleep 1000")
    home.inventory("lab1 ssh://lab1.invalid")
    connections = []
    eventually(lambda: ask(dashboard, "/v1/at/lab9/jobs")[0] == 404)
    for path in ("/v1/fleet", "/v1/at/lab1/jobs"):
        connections.append(http.client.HTTPConnection("127.0.0.1", dashboard.port, timeout=GUARD_S))
        connections[-1].request("GET", path, headers={"Cookie": dashboard.cookie})
    eventually(lambda: len(list(ssh_processes(home, "sleep"))) >= 2)
    began = time.monotonic()
    assert ask(dashboard, "/v1/jobs") == (200, [])
    assert time.monotonic() - began < 5
    for connection in connections:
        connection.close()
    eventually(lambda: not list(ssh_processes(home, "sleep")))  # what nobody waits for any more ends


def test_more_requests_than_may_wait_are_put_off(home, dashboard):
    home.program("ssh", "exec sleep 1000")
    home.inventory("lab1 ssh://lab1.invalid")
    connections = [http.client.HTTPConnection("127.0.0.1", dashboard.port, timeout=GUARD_S) for _ in range(4)]
    for connection in connections:
        connection.request("GET", "/v1/fleet", headers={"Cookie": dashboard.cookie})
    eventually(lambda: ask(dashboard, "/v1/at/lab9/jobs")[0] == 404)
    eventually(lambda: dashboard.ask("GET", "/v1/fleet")[0] == 429)
    told = [(answer.status, json.loads(answer.read())) for answer in (connection.getresponse() for connection in connections)]
    assert all(status == 200 and not machines[0]["reached"] for status, machines in told)
    for connection in connections:
        connection.close()


def test_silent_machines_leave_room_for_this_one(home, dashboard):
    home.program("ssh", "exec sleep 1000")
    home.inventory("lab1 ssh://lab1.invalid")
    eventually(lambda: ask(dashboard, "/v1/at/lab9/jobs")[0] == 404)
    connections = [http.client.HTTPConnection("127.0.0.1", dashboard.port, timeout=GUARD_S) for _ in range(6)]
    for connection in connections:
        connection.request("GET", "/v1/at/lab1/jobs", headers={"Cookie": dashboard.cookie})
    eventually(lambda: ask(dashboard, "/v1/at/lab1/jobs")[0] == 429)
    assert ask(dashboard, "/v1/jobs") == (200, [])
    for connection in connections:
        answer = connection.getresponse()
        assert answer.status == 502 and "did not answer within 20 s" in answer.read().decode()
        connection.close()
    eventually(lambda: not list(ssh_processes(home, "sleep")))


def test_what_only_seems_to_be_a_daemon_is_not_reached(home, dashboard):
    home.program("ssh", "while read -r line; do case $line in ?) printf 'HTTP/1.1 200 OK\\r\\nContent-Length: 6\\r\\n\\r\\n[null]' ;; esac; done")
    home.inventory("lab1 ssh://lab1.invalid")
    status, [machine] = ask(dashboard, "/v1/fleet")
    assert status == 200 and not machine["reached"] and machine["error"] == "its answers are not those of a tided"


def test_a_name_that_is_no_word_of_a_path_is_refused(home, dashboard):
    home.inventory("rack1/lab1 ssh://lab1.invalid")
    status, answer = ask(dashboard, "/v1/fleet")
    assert status == 400 and "'rack1/lab1' is no name of a machine" in answer["error"]["message"]
