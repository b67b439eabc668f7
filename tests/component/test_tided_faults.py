# SPDX-License-Identifier: Apache-2.0
"""tided and what goes wrong: kills, stops, bad messages, floods, other users, bad directories."""
import http.client
import os
import pathlib
import resource
import signal
import socket
import subprocess
import time

import pytest

from daemon import (BACKEND, CONTROL, LIST, NOBODY, RESULT, SET, WAIT, Raw,
                    UnixConnection, beat, control, eventually, hello, message)

ROOT = pathlib.Path(__file__).resolve().parents[2]
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def tided(place):
    return place.daemon("--cpus", "0-7").start()


# ---- the daemon dies ----

def test_a_new_daemon_finds_the_jobs_of_a_killed_one(tided):
    first, second = tided.job(name="one", min=2, weight=50), tided.job(name="two", max=5)
    first.patch(threads=3)
    first.target(3), second.target(5)
    epoch = tided.api("GET", "/v1/machine")[1]["epoch"]
    eventually(lambda: '"intra":3' in first.record())
    tided.signal(signal.SIGKILL)
    first.peer.expect("closed")
    tided.start()
    assert tided.api("GET", "/v1/machine")[1]["epoch"] > epoch
    # Known at once, by their processes; commanded again as soon as the agents are back.
    assert [j["name"] for j in tided.jobs()] == ["one", "two"]
    seen = first.target(3)
    assert (seen["min"], seen["weight"], seen["pinned"]) == (2, 50, 3)
    assert second.target(5)["limit"] == 5
    welcome = first.peer.expect("target", 3)
    assert int(welcome[3]) > epoch
    assert first.patch(auto=True)[0] == 200
    third = tided.job()
    assert third.id == "j3"  # numbers are not used again


def test_an_agent_that_claims_the_last_number_leaves_others_ids_that_a_new_daemon_knows(tided):
    stray = tided.peer()
    stray.go("f" * 32, "j999999999", "stray")
    stray.expect("welcome")
    job, other = tided.job(name="one"), tided.job()
    assert other.get()["name"] == other.id != job.id
    eventually(lambda: job.record() and other.record())
    ids = {"j999999999", job.id, other.id}
    assert {j["id"] for j in tided.jobs()} == ids
    tided.signal(signal.SIGKILL)
    tided.start()
    assert {j["id"] for j in tided.jobs()} == ids
    assert {entry.name for entry in (tided.dir / "jobs").iterdir()} == {f"{name}.json" for name in ids}


def test_what_many_processes_set_themselves_is_a_pin_that_a_new_daemon_knows(tided):
    job = tided.job(name="many", weight=50)
    peers = [job.peer, *(tided.peer() for _ in range(2))]
    for peer in peers[1:]:
        peer.go(job.token, job.id, "many")
        peer.expect("welcome")
    for peer in peers:
        peer.tell("local 2000 0")
    eventually(lambda: job.get()["pinned"] == 4096)  # PROTO_THREADS_MAX
    eventually(lambda: '"intra":4096' in job.record())
    tided.signal(signal.SIGKILL)
    tided.start()
    assert "does not describe a job" not in tided.log.read_text()
    assert (job.get()["name"], job.get()["weight"]) == ("many", 50)


def test_a_terminated_daemon_writes_down_its_last_order_first(tided):
    job = tided.job()
    job.target(8)
    job.patch(threads=3)
    assert tided.stop() == 0
    assert '"intra":3' in job.record()


def test_a_job_whose_record_is_lost_is_rebuilt_from_its_agent(tided):
    job = tided.job(name="one")
    job.target(8)
    eventually(lambda: (tided.dir / "jobs/j1.json").exists())
    tided.signal(signal.SIGKILL)
    (tided.dir / "jobs/j1.json").unlink()
    job.peer.expect("closed")
    tided.start()
    job.peer.expect("welcome")
    seen = job.target(8)
    assert (seen["id"], seen["name"]) == ("j1", "one")


@pytest.mark.parametrize("record", ["", "{", "null", "[]", '{"id":"j1"}', "x" * 70000,
                                    '{"id":"../x","name":"n","token":"t","uid":-5}'])
def test_a_damaged_record_is_ignored(place, record):
    tided = place.daemon("--cpus", "0-7")
    (tided.dir / "jobs").mkdir()
    (tided.dir / "jobs/j1.json").write_text(record)
    tided.start()
    assert tided.jobs() == []
    tided.job().target(8)


def test_the_record_of_a_dead_job_is_removed(tided):
    job = tided.job()
    eventually(lambda: (tided.dir / "jobs/j1.json").exists())
    tided.signal(signal.SIGKILL)
    job.peer.end()
    tided.start()
    assert tided.jobs() == [] and list((tided.dir / "jobs").iterdir()) == []


def test_epochs_grow_although_the_clock_stands_still(place):
    tided = place.daemon("--cpus", "0-1")
    future = 2 ** 62
    (tided.dir / "epoch").write_text(f"{future}\n")
    tided.start()
    assert tided.api("GET", "/v1/machine")[1]["epoch"] == future + 1


def test_agents_are_told_by_a_killed_daemons_hang_up(tided):
    job = tided.job()
    job.target(8)
    tided.signal(signal.SIGKILL)
    job.peer.expect("closed")


def affinities(pid):
    return {tuple(sorted(os.sched_getaffinity(int(t))))
            for t in os.listdir(f"/proc/{pid}/task")}


def groups(pid):
    lines = pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return [line for line in lines if "/tide" in line]


def fenced_pair(place, uid=None):
    """A daemon, two jobs with cores of their own, and what these had before."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("needs two CPUs")
    tided = place.daemon("--placement", "exclusive", uid=uid).start()
    jobs = [tided.job(uid=uid), tided.job(uid=uid)]
    for job in jobs:
        eventually(lambda job=job: len(os.sched_getaffinity(job.peer.pid)) < len(cpus) and
                   job.get()["cores"])
    return tided, jobs, {tuple(cpus)}


@pytest.mark.parametrize("uid", [pytest.param(None, id="as-we-are"),
                                 pytest.param(NOBODY, id="nobody", marks=root_only)])
def test_a_killed_daemons_guardian_gives_cores_and_groups_back(place, uid):
    tided, jobs, before = fenced_pair(place, uid)
    tided.signal(signal.SIGKILL)
    for job in jobs:
        eventually(lambda job=job: affinities(job.peer.pid) == before)
        eventually(lambda job=job: groups(job.peer.pid) == [])
        assert job.peer.process.poll() is None


def test_sigterm_gives_cores_and_groups_back_before_it_ends(place):
    tided, jobs, before = fenced_pair(place)
    assert tided.stop() == 0
    for job in jobs:
        assert affinities(job.peer.pid) == before and groups(job.peer.pid) == []


def children(pid):
    out = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    return [int(p) for p in out.stdout.split()]


def test_a_killed_guardian_is_replaced_and_still_restores(place):
    tided, jobs, before = fenced_pair(place)
    guardian, = children(tided.process.pid)
    os.kill(guardian, signal.SIGKILL)
    eventually(lambda: [p for p in children(tided.process.pid) if p != guardian])
    tided.signal(signal.SIGKILL)
    for job in jobs:
        eventually(lambda job=job: affinities(job.peer.pid) == before)


def test_a_guardian_that_cannot_be_started_is_started_when_it_can(tided):
    guardian, = children(tided.process.pid)
    usual = resource.prlimit(tided.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(tided.process.pid, resource.RLIMIT_NOFILE, (3, usual[1]))
    os.kill(guardian, signal.SIGKILL)
    eventually(lambda: "guardian was killed; no new one can be started" in tided.log.read_text())
    assert children(tided.process.pid) == []
    resource.prlimit(tided.process.pid, resource.RLIMIT_NOFILE, usual)
    eventually(lambda: children(tided.process.pid))
    assert tided.log.read_text().count("guardian was") == 2  # said once, and that it is back


def test_a_stopped_daemon_loses_its_lease_and_commands_again_afterwards(tided):
    job = tided.job("--ack-after", "100")
    job.target(8)
    controller = tided.controller()
    controller.send(control(SET, flags=WAIT, intra=3, job="j1", deadline_ms=20000))
    job.peer.expect("target", 3)
    tided.signal(signal.SIGSTOP)  # in the middle of the resize
    job.peer.expect("lapsed")
    tided.signal(signal.SIGCONT)
    assert controller.result()["status"] == 0
    job.peer.expect("target", 3)  # the same again: the lease had ended
    job.target(3)


def test_a_killed_daemon_in_the_middle_of_a_resize_is_continued_by_the_next(tided):
    job = tided.job("--no-ack")
    job.peer.expect("target", 8)
    with pytest.raises((ConnectionResetError, http.client.RemoteDisconnected)):
        connection = UnixConnection(tided.dir / "api.sock")
        connection.request("PATCH", "/v1/jobs/j1", '{"threads":3,"deadline_ms":20000}')
        job.peer.expect("target", 3)
        eventually(lambda: '"intra":3' in job.record())
        tided.signal(signal.SIGKILL)
        connection.getresponse()
    tided.start()
    job.peer.tell("ack")
    job.target(3)


def test_an_agent_that_stops_in_the_middle_of_a_resize_delays_only_itself(tided):
    stopped, other = tided.job(), tided.job()
    stopped.target(4), other.target(4)
    os.kill(stopped.peer.pid, signal.SIGSTOP)
    status, answer = stopped.patch(threads=1, deadline_ms=200)
    assert status == 200 and answer["status"] == "partial" and answer["oversubscribed"]
    other.target(7)
    os.kill(stopped.peer.pid, signal.SIGCONT)
    stopped.target(1)
    eventually(lambda: not stopped.get()["oversubscribed"])


def test_an_agent_that_is_killed_in_the_middle_of_a_resize_frees_its_cores(tided):
    dying, other = tided.job("--no-ack"), tided.job()
    other.target(4)
    dying.peer.end()
    other.target(8)


def test_a_fork_in_the_middle_of_a_resize_is_counted(tided):
    job = tided.job("--ack-after", "200")
    job.target(8)
    controller = tided.controller()
    controller.send(control(SET, flags=WAIT, intra=4, job="j1", deadline_ms=20000))
    job.peer.expect("target", 4)
    job.peer.tell("fork")
    assert controller.result()["status"] == 0
    eventually(lambda: sorted(b["target"] for b in job.get()["backends"]) == [2, 2])


# ---- bad messages ----

BAD = {
    "empty header": b"\0" * 16,
    "one byte": b"T",
    "truncated": control(LIST)[:-1],
    "oversized": control(LIST) + b"\0",
    "huge": b"x" * 60000,
    "wrong magic": message(CONTROL, control(LIST)[16:], magic=1),
    "old version": message(CONTROL, control(LIST)[16:], version=0),
    "new version": message(CONTROL, control(LIST)[16:], version=99),
    "unknown type": message(77, b""),
    "size that lies": message(CONTROL, control(LIST)[16:], size=20),
    "unknown verb": control(99),
    "threads above the range": control(SET, intra=5000, job="j1"),
    "a daemon's type": message(RESULT, bytes(4 * 6 + 256)),
    "heartbeat before hello": beat(),
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD.keys())
def test_a_bad_message_closes_only_its_own_connection(tided, data):
    job = tided.job()
    job.target(8)
    raw = Raw(tided.dir / "agent.sock")
    raw.send(data)
    kind, body = raw.receive()
    assert kind == RESULT and int.from_bytes(body[:4], "little", signed=True) < 0
    assert body[24:].split(b"\0")[0]  # and says why
    assert raw.receive() is None
    assert job.patch(threads=2)[1]["status"] == "done"
    assert [w for w in job.peer.silent(0.1) if w[0] == "closed"] == []


def test_an_agent_that_sends_nonsense_is_hung_up_on_and_may_return(tided):
    raw = Raw(tided.dir / "agent.sock")
    raw.send(hello("a" * 32))
    assert raw.receive()[0] == 6
    raw.send(message(BACKEND, b"short"))
    assert raw.receive() is None
    again = Raw(tided.dir / "agent.sock")
    again.send(hello("a" * 32))
    assert again.receive()[0] == 6
    assert len(tided.jobs()) == 1


def test_texts_that_are_not_utf8_do_no_harm(tided):
    raw = Raw(tided.dir / "agent.sock")
    raw.send(hello("a" * 32))
    assert raw.receive()[0] == 6
    raw.send(message(BACKEND, (0).to_bytes(4, "little") + (1).to_bytes(4, "little") +
                     (4).to_bytes(4, "little") + bytes(20) + b"\xff\xfe".ljust(32, b"\xff") +
                     b"\x80" * 32 + b"\xc3" * 128))
    seen = eventually(lambda: (b := tided.jobs()[0]["backends"]) and b)
    assert seen[0]["name"].startswith("??")


def test_a_token_that_is_not_utf8_keeps_no_job_from_being_written_down(tided):
    raw = Raw(tided.dir / "agent.sock")
    raw.send(hello("?" * 32, "j1").replace(b"?" * 32, b"\xff" * 32))
    assert raw.receive()[0] == 6
    status, job = tided.api("POST", "/v1/jobs", {"pid": tided.peer().pid, "queue": True})
    assert status == 201, job
    # A file that is being written again has a name of its own for a moment.
    eventually(lambda: {entry.name for entry in (tided.dir / "jobs").iterdir()} == {"j1.json", f"{job['id']}.json"})


def test_a_silent_connection_is_let_go(tided):
    raw = Raw(tided.dir / "agent.sock")
    tided.job().target(8)  # the clean-up runs while there are jobs
    assert raw.receive() is None


# ---- floods ----

@pytest.fixture
def many_descriptors():
    old = resource.getrlimit(resource.RLIMIT_NOFILE)
    if old[1] != resource.RLIM_INFINITY and old[1] < 4096:
        pytest.skip("needs 4,096 descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, old[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, old)


def flood(path, kind, count):
    connections = []
    for _ in range(count):
        s = socket.socket(socket.AF_UNIX, kind)
        s.settimeout(10)
        s.connect(str(path))
        connections.append(s)
    return connections


def test_three_thousand_connections_to_the_agent_socket(tided, many_descriptors):
    job = tided.job()
    job.target(8)
    held = flood(tided.dir / "agent.sock", socket.SOCK_SEQPACKET, 3000)
    eventually(lambda: 1000 < descriptors(tided) < 1100)  # the cap, and its own
    assert job.patch(threads=3)[1]["status"] == "done"
    for s in held:
        s.close()
    # Room again for others.
    assert eventually(lambda: controller_works(tided))
    assert [w for w in job.peer.silent(0.1) if w[0] == "closed"] == []


def descriptors(tided):
    return len(os.listdir(f"/proc/{tided.process.pid}/fd"))


def controller_works(tided):
    try:
        return tided.controller().list()
    except (TypeError, OSError):
        return None


def test_three_thousand_connections_to_the_api_socket(tided, many_descriptors):
    job = tided.job()
    job.target(8)
    held = flood(tided.dir / "api.sock", socket.SOCK_STREAM, 3000)
    eventually(lambda: 192 <= descriptors(tided) < 320)  # above three quarters of 256 the silent make room
    assert tided.controller().order(SET, flags=WAIT, intra=3, job="j1")["status"] == 0
    for s in held:
        s.close()
    eventually(tided.answers)
    assert job.get()["target"] == 3


def test_half_a_request_blocks_nobody_and_is_let_go(tided):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(30)
    s.connect(str(tided.dir / "api.sock"))
    s.send(b"POST /v1/jobs HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")
    assert tided.answers()
    assert s.recv(1) == b""


def test_a_daemon_with_few_descriptors_stays_reachable(place):
    tided = place.daemon("--cpus", "0-7")
    tided.program = ["prlimit", "--nofile=64:64", str(tided.program)]
    command = [*tided.program, "--dir", str(tided.dir), *tided.options]
    tided.process = subprocess.Popen(command, stderr=open(tided.log, "ab"),
                                     env={**os.environ, "TIDE_CLAIMS_DIR": str(tided.claims)})
    eventually(tided.answers)
    held = flood(tided.dir / "agent.sock", socket.SOCK_SEQPACKET, 200)
    time.sleep(0.2)
    used = cpu_seconds(tided.process.pid)
    time.sleep(1)
    assert cpu_seconds(tided.process.pid) - used < 0.5  # does not spin
    for s in held:
        s.close()
    eventually(tided.answers)


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# ---- other users ----

def as_user(uid, code, *args):
    return subprocess.run(["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups",
                           "/usr/bin/env", "python3", "-c", code, *map(str, args)],
                          capture_output=True, text=True, timeout=30)


API_CALL = """
import http.client, socket, sys
class C(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX); self.sock.connect(sys.argv[1])
c = C("x"); c.request(sys.argv[2], sys.argv[3], sys.argv[4] if len(sys.argv) > 4 else None)
a = c.getresponse(); print(a.status, a.read().decode())
"""


@root_only
def test_another_user_may_read_roots_daemon_but_not_change_others_jobs(tided):
    job = tided.job(name="roots")
    job.target(8)
    sock = tided.dir / "api.sock"
    assert as_user(NOBODY, API_CALL, sock, "GET", "/v1/jobs").stdout.startswith("200")
    refused = as_user(NOBODY, API_CALL, sock, "PATCH", "/v1/jobs/roots", '{"threads":1}').stdout
    assert refused.startswith("403") and "root" in refused
    refused = as_user(NOBODY, API_CALL, sock, "POST", "/v1/jobs",
                      f'{{"pid":{job.peer.pid}}}').stdout
    assert refused.startswith("403")
    refused = as_user(NOBODY, API_CALL, sock, "PUT", "/v1/policy", '{"name":"equal"}').stdout
    assert refused.startswith("403")
    assert job.get()["target"] == 8


CONTROLLER_CALL = """
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(sys.argv[1])
s.send(bytes.fromhex(sys.argv[2])); print(s.recv(2048).hex())
"""


@root_only
def test_another_users_controller_and_stolen_token_are_refused(tided):
    job = tided.job(name="roots")
    job.target(8)
    sock = tided.dir / "agent.sock"
    answer = bytes.fromhex(as_user(NOBODY, CONTROLLER_CALL, sock,
                                   control(SET, intra=1, job="roots").hex()).stdout)
    assert int.from_bytes(answer[16:20], "little", signed=True) == -13
    answer = bytes.fromhex(as_user(NOBODY, CONTROLLER_CALL, sock,
                                   hello(job.token).hex()).stdout)
    assert int.from_bytes(answer[16:20], "little", signed=True) == -13
    assert job.get()["target"] == 8 and len(job.get()["pids"]) == 1


@root_only
def test_a_users_own_daemon_lets_no_other_user_in(place):
    tided = place.daemon(uid=NOBODY).start()
    other = as_user(NOBODY - 1, API_CALL, tided.dir / "api.sock", "GET", "/v1/jobs")
    assert other.returncode != 0 and "PermissionError" in other.stderr


@root_only
def test_roots_daemon_serves_a_users_job(tided):
    peer = tided.peer(uid=NOBODY)
    answer = as_user(NOBODY, API_CALL, tided.dir / "api.sock", "POST", "/v1/jobs",
                     f'{{"pid":{peer.pid},"name":"theirs"}}').stdout
    assert answer.startswith("201")
    token = answer.split('"token":"')[1].split('"')[0]
    peer.go(token, "j1", "theirs")
    peer.expect("target", 8)
    changed = as_user(NOBODY, API_CALL, tided.dir / "api.sock", "PATCH", "/v1/jobs/theirs",
                      '{"threads":2}').stdout
    assert changed.startswith("200")


# ---- directories and disks ----

def failure(daemon):
    daemon.start(ready=False)
    assert daemon.process.wait(30) == 1
    return daemon.log.read_text()


def test_a_missing_directory_is_made(place):
    tided = place.daemon("--cpus", "0-1")
    tided.dir.rmdir()
    tided.start()
    assert tided.dir.stat().st_mode & 0o777 == 0o700


def test_a_missing_parent_a_file_and_a_symbolic_link_are_refused(place):
    tided = place.daemon()
    tided.dir.rmdir()
    tided.dir = tided.dir / "deeper"
    tided.log = place.base / "log"
    assert "cannot make the directory" in failure(tided)
    file = place.daemon()
    file.dir.rmdir()
    file.dir.write_text("")
    assert "no directory" in failure(file)
    link = place.daemon()
    link.dir.rmdir()
    (place.base / "elsewhere").mkdir()
    link.dir.symlink_to(place.base / "elsewhere")
    assert "symbolic link" in failure(link)
    assert list((place.base / "elsewhere").iterdir()) == []


def test_a_directory_that_others_may_write_is_refused(place):
    tided = place.daemon()
    tided.dir.chmod(0o777)
    assert "others may write" in failure(tided)


@root_only
def test_a_foreign_or_read_only_directory_is_refused(place):
    foreign = place.daemon()
    os.chown(foreign.dir, NOBODY, NOBODY)
    assert "another user" in failure(foreign)
    read_only = place.daemon(uid=NOBODY)
    read_only.dir.chmod(0o500)
    assert "cannot write" in failure(read_only)


def test_a_socket_replaced_by_a_link_is_not_followed(place):
    tided = place.daemon("--cpus", "0-1")
    victim = place.base / "victim"
    victim.write_text("precious")
    for name in ("api.sock", "agent.sock"):
        (tided.dir / name).symlink_to(victim)
    tided.start()
    assert victim.read_text() == "precious"
    for name in ("tided.lock", "epoch"):
        linked = place.daemon("--cpus", "0-1")
        (linked.dir / name).symlink_to(victim)
        linked.start(ready=False)
        eventually(lambda: linked.ended() or linked.answers())
        assert victim.read_text() == "precious"


@pytest.fixture
def full_disk(place):
    """Much larger than what tided's databases take at first: they alone shall not fill it."""
    path = place.base / "full"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k,mode=755", "tmpfs", path], check=True)
    yield path
    subprocess.run(["umount", "-l", path], check=True)


def fill(path):
    """Also what somebody has freed since the last time."""
    with open(path / "filler", "ab", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass


@root_only
def test_a_full_disk_costs_only_the_records(place, full_disk):
    tided = place.daemon("--cpus", "0-7", directory=full_disk).start()
    first = tided.job(name="one")
    fill(full_disk)
    second = tided.job(name="two")
    first.target(4), second.target(4)

    def is_said():  # databases that could not be opened on the full disk give their pages back
        fill(full_disk)
        threads = 7 - first.get()["target"]
        assert first.patch(threads=threads)[1]["status"] == "done"
        return "cannot be written" in tided.log.read_text()
    eventually(is_said)
    epoch = tided.api("GET", "/v1/machine")[1]["epoch"]
    tided.signal(signal.SIGKILL)
    tided.start()  # on the full disk
    assert tided.api("GET", "/v1/machine")[1]["epoch"] > epoch
    eventually(lambda: sorted(j["name"] for j in tided.jobs()) == ["one", "two"])
    assert (full_disk / "filler").stat().st_blocks * 512 > 128 << 10  # so much is free again
    (full_disk / "filler").unlink()
    tided.job(name="three")
    eventually(lambda: any("three" in f.read_text() for f in (full_disk / "jobs").iterdir()))
