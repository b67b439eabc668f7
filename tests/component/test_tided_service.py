# SPDX-License-Identifier: Apache-2.0
"""tided as a service: configuration, reload, systemd's protocols and units, and who may do what."""
import contextlib
import json
import os
import pathlib
import queue
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys

import pytest

from daemon import (GUARD_S, LIST, RESULT, SET, WELCOME, Raw, UnixConnection, control,
                    eventually, hello, remove)
from engine import IMAGE, Engine
from notify import ServiceManager, asks_for_a_watchdog
from permissions import table_behind

ROOT = pathlib.Path(__file__).resolve().parents[2]
OWNER, OTHER = 61001, 61002  # users without a name

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def run_tided(build_dir, *options):
    return subprocess.run([build_dir / "tided", *map(str, options)], capture_output=True, text=True,
                          timeout=30)


def write(path, text):
    path.write_text(text)
    path.chmod(0o644)
    return path


def policy(tided):
    return tided.api("GET", "/v1/policy")[1]["policy"]


def choose(tided, spec):
    status, answer = tided.api("PUT", "/v1/policy", {"policy": spec})
    assert status == 200, answer


# ---- configuration ----

def test_check_config_prints_what_the_files_and_options_say(build_dir, public_dir):
    conf = write(public_dir / "t.conf", "[daemon]\nplacement=quota\nheartbeat=100\n")
    (public_dir / "t.conf.d").mkdir(mode=0o755)
    write(public_dir / "t.conf.d/50-x.conf", "[daemon]\nheartbeat=300\nadmin-group=root\n")
    done = run_tided(build_dir, "--config", conf, "--check-config", "--cpus", "0")
    assert done.returncode == 0 and not done.stderr
    assert {"placement=quota", "heartbeat=300", "cpus=0", "admin-group=root",
            "# group root has the number 0"} <= set(done.stdout.splitlines())
    printed = write(public_dir / "printed.conf", done.stdout)
    assert run_tided(build_dir, "--config", printed, "--check-config").stdout == done.stdout


def test_a_bad_file_is_explained_and_nothing_is_started(build_dir, public_dir):
    conf = write(public_dir / "t.conf", "[daemon]\n\npolcy=equal\n")
    for options in (["--check-config"], ["--dir", public_dir / "run"]):
        done = run_tided(build_dir, "--config", conf, *options)
        assert done.returncode == 2 and not done.stdout
        assert f"{conf}:3: polcy: " in done.stderr and "did you mean policy?" in done.stderr
    assert not (public_dir / "run").exists()
    missing = run_tided(build_dir, "--config", public_dir / "none.conf", "--check-config")
    assert missing.returncode == 2 and "none.conf" in missing.stderr


def test_options_go_before_the_file(place, public_dir):
    conf = write(public_dir / "t.conf", "[daemon]\npolicy=throughput\nplacement=exclusive\ncpus=0-7\n")
    tided = place.daemon("--config", conf, "--placement", "quota").start()
    machine = tided.api("GET", "/v1/machine")[1]
    assert (policy(tided), machine["placement"], machine["cpus"]) == ("throughput", "quota", 8)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
def test_configured_processors_leave_a_job_its_own_affinity(place):
    cpus = sorted(os.sched_getaffinity(0))
    tided = place.daemon("--cpus", ",".join(map(str, cpus))).start()
    peer = tided.peer()
    os.sched_setaffinity(peer.pid, cpus[-1:])
    status, answer = tided.api("POST", "/v1/jobs", {"pid": peer.pid, "placement": "exclusive"})
    assert status == 201, answer
    peer.go(answer["token"], answer["id"], answer["name"])
    peer.expect("target", 1)
    job = eventually(lambda: (j := tided.api("GET", f"/v1/jobs/{answer['id']}")[1])["cores"] and j)
    assert job["cores"] == str(cpus[-1])
    assert os.sched_getaffinity(peer.pid) == {cpus[-1]}


def heartbeat_of(agent):
    kind, body = agent.receive()
    return struct.unpack_from("<QII", body)[2] if kind == WELCOME else heartbeat_of(agent)


def test_sighup_applies_policy_placement_and_heartbeat(place, public_dir):
    conf = write(public_dir / "t.conf", "[daemon]\npolicy=equal\ncpus=0-7\n")
    tided = place.daemon("--config", conf).start()
    agent = Raw(tided.dir / "agent.sock")
    agent.send(hello("a" * 32))
    assert heartbeat_of(agent) == 250
    write(conf, "[daemon]\npolicy=throughput\nplacement=exclusive\nheartbeat=100\n")
    tided.signal(signal.SIGHUP)
    eventually(lambda: policy(tided) == "throughput")
    assert heartbeat_of(agent) == 100
    machine = tided.api("GET", "/v1/machine")[1]
    assert (machine["placement"], machine["cpus"]) == ("exclusive", 8)
    eventually(lambda: "when tided is restarted" in tided.log.read_text())  # cpus
    agent.close()


def test_a_bad_file_at_a_reload_changes_nothing(place, public_dir):
    conf = write(public_dir / "t.conf", "[daemon]\npolicy=throughput\ncpus=0-7\n")
    tided = place.daemon("--config", conf).start()
    write(conf, "[daemon]\npolicy=equal\nplacement=best\n")
    tided.signal(signal.SIGHUP)
    eventually(lambda: f"{conf}:3: placement: 'best'" in tided.log.read_text())
    assert "the previous configuration stays in force" in tided.log.read_text()
    machine = tided.api("GET", "/v1/machine")[1]
    assert (policy(tided), machine["placement"]) == ("throughput", "shared")


def reload(tided):
    count = tided.log.read_text().count("configuration reloaded")
    tided.signal(signal.SIGHUP)
    eventually(lambda: tided.log.read_text().count("configuration reloaded") > count)


def test_a_policy_that_was_set_holds_until_another_one_is_configured(place, public_dir):
    conf = write(public_dir / "t.conf", "[daemon]\npolicy=throughput\ncpus=0-7\n")
    tided = place.daemon("--config", conf).start()
    choose(tided, "priority")
    write(conf, "[daemon]\npolicy=throughput\ncpus=0-7\nheartbeat=100\n")
    reload(tided)
    assert policy(tided) == "priority"
    tided.signal(signal.SIGKILL)
    assert policy(tided.start()) == "priority"
    tided.signal(signal.SIGKILL)
    write(conf, "[daemon]\npolicy=equal\ncpus=0-7\n")
    assert policy(tided.start()) == "equal"
    choose(tided, "priority")
    write(conf, "[daemon]\npolicy=throughput\ncpus=0-7\n")
    reload(tided)
    assert policy(tided) == "throughput"
    write(conf, "[daemon]\ncpus=0-7\n")
    reload(tided)
    assert policy(tided) == "equal"


def test_without_a_file_sighup_ends_it_as_a_closed_terminal_does(place):
    tided = place.daemon("--cpus", "0-1").start()
    tided.signal(signal.SIGHUP)
    assert tided.process.wait(30) == 0


# ---- systemd ----

class Manager:
    """A service's systemd: the socket that it reports to."""

    def __init__(self, folder):
        self.path = folder / "notify"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(self.path))
        self.socket.settimeout(30)

    def hear(self):
        return dict(line.split("=", 1) for line in self.socket.recv(4096).decode().splitlines())


@pytest.fixture
def manager(public_dir, monkeypatch):
    result = Manager(public_dir)
    monkeypatch.setenv("NOTIFY_SOCKET", str(result.path))
    yield result
    result.socket.close()


def test_it_tells_systemd_when_it_is_ready_reloads_and_stops(place, public_dir, manager):
    conf = write(public_dir / "t.conf", "[daemon]\ncpus=0-1\n")
    tided = place.daemon("--config", conf).start(ready=False)
    assert manager.hear()["READY"] == "1"
    assert tided.answers()  # at once, without waiting
    tided.signal(signal.SIGHUP)
    heard = manager.hear()
    assert heard["RELOADING"] == "1" and int(heard["MONOTONIC_USEC"]) > 0
    assert manager.hear()["READY"] == "1"
    tided.process.terminate()
    assert manager.hear()["STOPPING"] == "1"
    assert tided.process.wait(30) == 0


def listening(path):
    result = socket.socket(socket.AF_UNIX)
    result.bind(str(path))
    result.listen(16)
    return result


def activate(tided, passed, count=1):
    """Starts the daemon as systemd does with a socket unit: descriptor 3, named by pid."""
    def become():
        for i in range(count):
            os.dup2(passed.fileno(), 3 + i)
    log = open(tided.log, "ab")
    tided.process = subprocess.Popen(
        ["sh", "-c", 'LISTEN_PID=$$ LISTEN_FDS=$0 exec "$@"', str(count), tided.program, "--dir",
         tided.dir, *tided.options],
        stderr=log, env={**os.environ, "TIDE_CLAIMS_DIR": str(tided.claims)}, preexec_fn=become,
        close_fds=False)
    log.close()


def test_calls_wait_in_systemds_socket_while_no_daemon_runs(place):
    tided = place.daemon("--cpus", "0-1")
    passed = listening(tided.dir / "api.sock")
    for _ in range(2):  # the second time it is started again
        early = UnixConnection(tided.dir / "api.sock")
        early.request("GET", "/v1/machine")
        activate(tided, passed)
        assert early.getresponse().status == 200
        early.close()
        assert tided.stop() == 0
        assert (tided.dir / "api.sock").exists()
    passed.close()


def test_another_socket_than_its_own_is_refused(place, public_dir):
    tided = place.daemon("--cpus", "0-1")
    passed = listening(public_dir / "other.sock")
    activate(tided, passed)
    assert tided.process.wait(30) == 1
    assert "see tided.socket" in tided.log.read_text()
    passed.close()


def test_the_service_manager_hears_of_a_loop_that_goes_on_and_of_no_other(place, public_dir):
    manager = ServiceManager(public_dir)
    tided = place.daemon("--cpus", "0-7")
    tided.env = {**manager.env, "TIDE_FAILPOINT": "target-lowered:2:delay=600000ms"}
    tided.start()
    job = tided.job()
    job.target(8)
    manager.hears_of_a_loop_that_goes_on()
    order = UnixConnection(tided.dir / "api.sock")
    order.request("PATCH", f"/v1/jobs/{job.id}", json.dumps({"threads": 1}))  # the loop stands still
    manager.hears_no_more()
    tided.signal(signal.SIGKILL)
    manager.end()
    order.close()
    assert asks_for_a_watchdog("tided")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_the_units_are_what_systemd_understands(build_dir, tmp_path):
    text = (ROOT / "dist/tided.service.in").read_text().replace("@BINDIR@", str(build_dir))
    write(tmp_path / "tided.service", text)
    text = (ROOT / "dist/tide-gate.service.in").read_text().replace("@BINDIR@", str(build_dir))
    write(tmp_path / "tide-gate.service", text)
    shutil.copy(ROOT / "dist/tided.socket", tmp_path)
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", tmp_path / "tided.service", tmp_path / "tide-gate.service",
                           tmp_path / "tided.socket"], capture_output=True, text=True, timeout=60)
    ours = [line for line in done.stderr.splitlines() if "tide" in line]
    assert done.returncode == 0 and not ours, done.stderr


@pytest.mark.skipif(not shutil.which("systemd-sysusers"), reason="needs systemd-sysusers")
@root_only
def test_the_administrators_group_is_made(tmp_path):
    (tmp_path / "etc").mkdir()
    subprocess.run(["systemd-sysusers", f"--root={tmp_path}", *(ROOT / "dist").glob("*.sysusers")],
                   check=True, timeout=30)
    assert "tide-admin:" in (tmp_path / "etc/group").read_text()
    assert "tide-gate:" in (tmp_path / "etc/passwd").read_text()


@root_only
def test_it_works_with_the_privileges_that_the_unit_leaves_it(place, public_dir):
    unit = (ROOT / "dist/tided.service.in").read_text()
    kept = re.search("^CapabilityBoundingSet=(.*)$", unit, re.M)[1].replace("CAP_", "+").lower()
    wrapper = public_dir / "tided"
    wrapper.write_text("#!/bin/sh\nexec setpriv --no-new-privs --bounding-set=-all,"
                       f"{kept.replace(' ', ',')} {place.program} \"$@\"\n")
    wrapper.chmod(0o755)
    place.program = wrapper
    tided = place.daemon("--policy", "equal").start()
    cpus = os.sched_getaffinity(0)
    job = tided.job(uid=OWNER, placement="exclusive")
    job.target(len(cpus))
    assert job.patch(max=1)[0] == 200
    job.target(1)
    eventually(lambda: len(os.sched_getaffinity(job.peer.pid)) == 1)
    eventually(lambda: '"limit":1' in job.record())
    tided.signal(signal.SIGKILL)  # and its guardian
    eventually(lambda: os.sched_getaffinity(job.peer.pid) == cpus)
    tided.start()
    eventually(lambda: len(os.sched_getaffinity(job.peer.pid)) == 1)
    assert tided.api("DELETE", f"/v1/jobs/{job.id}")[0] == 200
    job.peer.process.wait(30)


class System:
    """A mount namespace with a /run and an /etc of its own: tided as the system's daemon."""

    def __init__(self, build_dir, folder, claims):
        self.build_dir, self.tided = build_dir, None
        etc = folder / "etc"
        subprocess.run(["cp", "-a", "/etc", etc], check=True, timeout=60)
        (etc / "tide/tide.conf.d").mkdir(parents=True, exist_ok=True)
        self.conf = etc / "tide/tide.conf"
        self.group = etc / "group"
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith("TIDE_") and k != "XDG_RUNTIME_DIR"}
        self.env["TIDE_CLAIMS_DIR"] = str(claims)
        self.holder = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c",
             'mount --bind "$0" /etc && mount -t tmpfs -o mode=755 none /run && echo ready && exec cat',
             etc], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.holder.stdout.readline() == "ready\n"

    def command(self, *command, who=()):
        inside = ["nsenter", f"--mount=/proc/{self.holder.pid}/ns/mnt", "--"]
        return [*inside, *(["setpriv", *who] if who else []), *map(str, command)]

    def start(self):
        self.tided = subprocess.Popen(self.command(self.build_dir / "tided"), env=self.env)
        eventually(lambda: self.tide("ps").returncode == 0)

    def tide(self, *args, who=()):
        return subprocess.run(self.command(self.build_dir / "tide", *args, who=who), env=self.env,
                              capture_output=True, text=True, timeout=60)

    def daemon_said(self, who=()):
        checks = json.loads(self.tide("doctor", "--json", who=who).stdout)["checks"]
        return next(check["text"] for check in checks if check["name"] == "daemon")

    def end(self):
        if self.tided:
            self.tided.terminate()
            assert self.tided.wait(30) == 0
        self.holder.stdin.close()
        self.holder.wait(30)


@pytest.fixture
def system(build_dir, public_dir):
    try:
        subprocess.run(["unshare", "--mount", "true"], check=True, timeout=30)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mount namespaces need more privileges")
    result = System(build_dir, public_dir, public_dir / "claims")
    yield result
    result.end()


@root_only
def test_the_systems_daemon_obeys_etc_and_serves_every_user(system):
    write(system.conf, "[daemon]\npolicy=equal\nplacement=quota\n")
    write(system.conf.parent / "tide.conf.d/10-policy.conf", "[daemon]\npolicy=throughput\n")
    with open(system.group, "a", encoding="utf-8") as group:
        group.write("tide-admin:x:60123:\n")
    system.start()
    user = as_caller("other", None)
    admin = [*user[:2], "--groups=60123"]
    said = system.daemon_said(user)
    assert "in /run/tide (the system's daemon, preferred to your own)" in said
    assert "policy throughput, placement quota" in said
    ran = system.tide("run", "--", "sh", "-c", "echo $TIDE_SOCKET", who=user)
    assert ran.stdout == "/run/tide/agent.sock\n", ran.stderr
    refused = system.tide("policy", "set", "equal", who=user)
    assert refused.returncode != 0 and "admin group" in refused.stderr
    assert system.tide("policy", "set", "equal", who=admin).returncode == 0
    assert "policy equal" in system.daemon_said()


@root_only
def test_a_socket_that_the_systems_daemon_left_hides_nobodys_own(system):
    system.start()
    system.tided.send_signal(signal.SIGKILL)
    system.tided.wait(30)
    system.tided = None
    user = as_caller("other", None)
    ran = system.tide("run", "--", "sh", "-c", "echo $TIDE_SOCKET; $0 doctor --json",
                      system.build_dir / "tide", who=user)
    sock, _, doctor = ran.stdout.partition("\n")
    assert sock == f"/tmp/tide-{OTHER}/agent.sock", ran.stderr
    checks = {check["name"]: check["text"] for check in json.loads(doctor)["checks"]}
    assert f"in /tmp/tide-{OTHER} (your own; the system's tided left a socket" in checks["daemon"]
    own = pathlib.Path(f"/tmp/tide-{OTHER}")
    pid = int((own / "tided.lock").read_text())
    eventually(lambda: not pathlib.Path(f"/proc/{pid}").exists())  # two seconds after the last job
    remove(own)


# ---- who may do what: the table of docs/permissions.md ----

CALLER = """
import http.client, json, socket, struct, sys
class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX); self.sock.connect(folder + "/api.sock")
def api(method, path, body=None):
    c = Connection("x"); c.request(method, path, body); return c.getresponse().status
def agent(data):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(folder + "/agent.sock")
    s.send(bytes.fromhex(data)); answer = s.recv(2048); s.close()
    return [struct.unpack_from("<H", answer, 6)[0], struct.unpack_from("<i", answer, 16)[0],
            answer[32:48].rstrip(bytes(1)).decode("ascii", "replace")]
def sees(job):
    c = Connection("x"); c.request("GET", "/v1/power")
    return 200 if job in [row["id"] for row in json.load(c.getresponse())["jobs"]] else 403
folder = sys.argv[1]
answers = {}
for verb, kind, *args in json.loads(sys.argv[2]):
    try:
        answers[verb] = {"api": api, "agent": agent, "jobs with watts": sees}[kind](*args)
    except PermissionError:
        answers[verb] = "no way in"
print(json.dumps(answers))
"""

# Column of the table: what is tried for it.
VERBS_OF = {
    "list, explain": ("list", "explain"),
    "see the machine's watts": ("sources", "watts"),
    "see the job's watts": ("meter",),
    "hand readings of power down": ("readings",),
    "set, order, hold, pin, cancel": ("set", "limit", "order", "hold", "pin", "cancel"),
    "set the policy, a power cap": ("policy", "cap"),
    "adopt a container, let it go": ("adopt", "release"),
    "make a job of the owner's process": ("register",),
    "speak as the job's agent": ("hello",),
}
VERBS = [verb for verbs in VERBS_OF.values() for verb in verbs]
# The row of the table for each caller.
ROW_OF = {"root": "root", "owner": "the job's owner", "other": "another user", "other, power": "another user in `tide-power`",
          **{f"other, {admin}": "another user in `tide-admin`" for admin in ("admin", "admin first", "many groups")}}
IN_A_CONTAINER = "a process in a container, on its own socket"  # the test of containers' sockets, below


def may_on_roots(who):
    """{verb: yes or no}, as the document says."""
    rows = dict(table_behind("**The system's daemon**"))
    assert rows.keys() == {*ROW_OF.values(), IN_A_CONTAINER}
    cells = rows[ROW_OF[who]]
    assert cells.keys() == VERBS_OF.keys()
    return {verb: cells[column] for column, verbs in VERBS_OF.items() for verb in verbs}


def may_on_a_users(who):
    """The two sentences behind the table."""
    return {verb: "-" if who.startswith("other") else "no" if (who, verb) == ("root", "hello") else "yes" for verb in VERBS}


# Errors that only callers with the right see: there is no such container, no engine, no adopted job, and no container.
GRANTED = {"adopt": (404, 503), "release": (409,), "limit": (409,)}


def as_caller(who, group, power_group=None):
    """setpriv's options."""
    many = ",".join(map(str, [*range(70000, 70100), group]))
    return {
        "root": ["--reuid=0", "--regid=0", "--clear-groups"],
        "owner": [f"--reuid={OWNER}", f"--regid={OWNER}", "--clear-groups"],
        "other": [f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups"],
        "other, admin": [f"--reuid={OTHER}", f"--regid={OTHER}", f"--groups={OTHER},{group}"],
        "other, admin first": [f"--reuid={OTHER}", f"--regid={group}", "--clear-groups"],
        "other, many groups": [f"--reuid={OTHER}", f"--regid={OTHER}", f"--groups={many}"],
        "other, power": [f"--reuid={OTHER}", f"--regid={OTHER}", f"--groups={power_group}"],
    }[who]


def meaning(answer, *, hello_=False, granted=()):
    """An answer in the words of the table."""
    if answer == "no way in":
        return "-"
    if answer in granted:
        return "yes"
    if isinstance(answer, int):
        return {200: "yes", 201: "yes", 403: "no"}.get(answer, answer)
    kind, status, _ = answer
    if hello_ and kind == WELCOME:
        return "yes"
    assert kind == RESULT, answer
    return {0: "yes", -13: "no"}.get(status, status)


@contextlib.contextmanager
def group_of_admins(group="games"):
    """The number of a group that /etc/group has, and nobody in these tests is in by accident."""
    for line in pathlib.Path("/etc/group").read_text().splitlines():
        name, _, number, *_ = line.split(":")
        if name == group:
            yield name, int(number)
            return
    pytest.skip("no group to try this with in /etc/group")


def try_everything(tided, who, *groups):
    """{verb: answer}: every verb as @who, on jobs of OWNER: two run, one waits in the queue."""
    runs, victim = tided.job(uid=OWNER, request=8), tided.job(uid=OWNER)
    pinned = tided.job(uid=OWNER)
    waits = tided.peer(uid=OWNER)
    status, queued = tided.api("POST", "/v1/jobs", {"pid": waits.pid, "queue": True, "request": 8})
    assert status == 201
    eventually(lambda: tided.api("GET", f"/v1/jobs/{queued['id']}")[1]["state"] == "queued")
    free = tided.peer(uid=OWNER)
    calls = {
        "list": ("api", "GET", "/v1/jobs"),
        "explain": ("api", "GET", f"/v1/jobs/{runs.id}/explain"),
        "set": ("api", "PATCH", f"/v1/jobs/{runs.id}", json.dumps({"weight": 200})),
        "limit": ("api", "PUT", f"/v1/jobs/{runs.id}/memory-limit", json.dumps({"bytes": 1 << 30})),
        "order": ("agent", control(SET, intra=3, job=runs.id).hex()),
        "hold": ("api", "PATCH", f"/v1/jobs/{queued['id']}", json.dumps({"held": True})),
        "sources": ("api", "GET", "/v1/power/sources"),
        "watts": ("api", "GET", "/v1/power"),
        "meter": ("jobs with watts", runs.id),
        "readings": ("api", "POST", "/v1/power/readings", json.dumps({"name": "plug", "uw": 5})),
        "policy": ("api", "PUT", "/v1/policy", json.dumps({"policy": "fcfs/strict"})),
        "cap": ("api", "DELETE", "/v1/power/cap"),
        "pin": ("api", "PATCH", f"/v1/jobs/{pinned.id}", json.dumps({"pin": True})),
        "adopt": ("api", "POST", "/v1/adoptions", json.dumps({"container": "is-none"})),
        "release": ("api", "DELETE", f"/v1/jobs/{runs.id}/adoption"),
        "register": ("api", "POST", "/v1/jobs", json.dumps({"pid": free.pid})),
        "hello": ("agent", hello(runs.token).hex()),
        "cancel": ("api", "DELETE", f"/v1/jobs/{victim.id}"),
    }
    done = subprocess.run(["setpriv", *as_caller(who, *groups), sys.executable, "-c", CALLER,
                           tided.dir, json.dumps([(v, *c) for v, c in calls.items()])],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    may = {verb: str(meaning(answers[verb], hello_=verb == "hello", granted=GRANTED.get(verb, ())))
           for verb in VERBS}
    # The answers are true: what was refused has not happened, and what was granted has.
    job, waiting = runs.get(), tided.api("GET", f"/v1/jobs/{queued['id']}")[1]
    assert (job["weight"] == 200) == (may["set"] == "yes")
    assert pinned.get()["kept"] == (may["pin"] == "yes")
    assert (job["pinned"] == 3) == (may["order"] == "yes")
    assert (waiting["state"] == "held") == (may["hold"] == "yes")
    if may["cancel"] == "yes":
        victim.peer.process.wait(30)
    else:
        assert victim.peer.process.poll() is None
    return may


def try_on_a_daemon(place, public_dir, who, **more):
    with group_of_admins() as (admins, number), group_of_admins("mail") as (power, power_number):
        conf = write(public_dir / "t.conf", "[daemon]\ncpus=0-7\npolicy=fcfs/strict\npower=none\n"
                     f"admin-group={admins}\npower-group={power}\n")
        return try_everything(place.daemon("--config", conf, **more).start(), who, number, power_number)


@root_only
@pytest.mark.parametrize("who", ROW_OF)
def test_who_may_do_what_on_the_systems_daemon(place, public_dir, who):
    assert try_on_a_daemon(place, public_dir, who) == may_on_roots(who)


@root_only
@pytest.mark.parametrize("who", [who for who in ROW_OF if who not in ("other, admin first", "other, many groups")])
def test_who_may_do_what_on_a_users_daemon(place, public_dir, who):
    assert try_on_a_daemon(place, public_dir, who, uid=OWNER) == may_on_a_users(who)


@root_only
def test_the_group_is_looked_up_again_at_a_reload(place, public_dir):
    with group_of_admins() as (name, number):
        conf = write(public_dir / "t.conf", "[daemon]\nadmin-group=none\ncpus=0-7\n")
        tided = place.daemon("--config", conf).start()
        call = json.dumps([("policy", "api", "PUT", "/v1/policy", '{"policy":"equal"}')])
        command = ["setpriv", *as_caller("other, admin", number), sys.executable, "-c", CALLER,
                   tided.dir, call]
        for group, expected in (("none", 403), (name, 200), ("no-such-group", 403)):
            write(conf, f"[daemon]\nadmin-group={group}\ncpus=0-7\n")
            reload(tided)
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
            assert json.loads(done.stdout)["policy"] == expected, group


@root_only
def test_a_containers_socket_takes_no_orders_and_hears_nobody_from_outside(place):
    """Processes in it are heard: test_tided_containers.py. Those that only have the directory are not."""
    cells = dict(table_behind("**The system's daemon**"))[IN_A_CONTAINER]
    assert {cell for column, cell in cells.items() if VERBS_OF[column] != ("hello",)} == {"no"}
    engine = Engine("docker")
    try:
        engine.start().make_image()
        tided = place.daemon("--engine", engine.socket).start()
        victim = tided.job(uid=OWNER)
        folder = tided.dir / "containers/box"
        status, made = engine.api("POST", "/containers/create?name=box", {
            "Image": IMAGE, "Cmd": ["/bin/sh", "-c", "read forever"], "OpenStdin": True,
            "Labels": {"io.threadtide.key": "box"},
            "HostConfig": {"NetworkMode": "host",
                           "Binds": ["/usr:/usr:ro", f"{folder}:/run/threadtide:ro"]}})
        assert status == 201, made
        assert engine.api("POST", f"/containers/{made['Id']}/start")[0] == 204
        box = eventually(lambda: next((j for j in tided.jobs() if j["name"] == "box"), None))
        eventually((folder / "agent.sock").exists)
        calls = {"list": control(LIST), "order": control(SET, intra=1, job=victim.id),
                 "own": control(SET, intra=1, job=box["id"]),
                 "hello": hello(victim.token, victim.id, victim.name)}
        for who in ("root", "owner", "other"):  # as anybody in it, a container's root too
            done = subprocess.run(
                ["setpriv", *as_caller(who, None), sys.executable, "-c", CALLER, folder,
                 json.dumps([(v, "agent", data.hex()) for v, data in calls.items()])],
                capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr
            answers = json.loads(done.stdout)
            assert [meaning(answers[v]) for v in calls] == ["no"] * 4
        assert victim.get()["pinned"] is None and len(victim.get()["pids"]) == 1
        engine.api("DELETE", f"/containers/{made['Id']}?force=1")
    finally:
        engine.end()
