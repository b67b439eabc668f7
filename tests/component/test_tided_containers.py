# SPDX-License-Identifier: Apache-2.0
"""tided and a real Docker Engine: containers become jobs, cores and threads follow each other."""
import json
import random
import signal
import threading
import time
import types

from box import (ALL, HALVES, N, boxes, connected, engine, job_of, joined, order,  # noqa: F401
                 tided)
from daemon import Peer, eventually


def test_a_container_is_a_job_as_long_as_it_runs(tided, boxes):
    box = boxes("one", labels={"io.threadtide.weight": "250", "io.threadtide.max": "3"})
    job = joined(tided, box)
    assert (job["weight"], job["limit"], job["owner"]) == (250, 3, "root")
    assert job["pids"] == [box.inspect()["State"]["Pid"]]
    box.kill()
    eventually(lambda: job_of(tided, box) is None)


def test_other_containers_are_nobodys_business(tided, boxes):
    other = boxes("other", agent=False)
    refuses = boxes("refuses", agent=False, labels={"io.threadtide": "false"})
    joined(tided, boxes("ours"))
    assert job_of(tided, other) is None and job_of(tided, refuses) is None


def test_a_bad_label_is_a_note(tided, boxes):
    job = joined(tided, boxes("bad", labels={"io.threadtide.min": "many"}))
    assert "io.threadtide.min=many" in job["note"] and job["min"] == 1


def test_the_agent_inside_gets_its_targets(tided, boxes):
    first = boxes("first", "--max 8")
    connected(tided, first)
    first.expect("target", N)
    second = boxes("second", "--max 8")
    connected(tided, second)
    first.expect("target", N // 2)
    second.expect("target", N // 2)
    second.kill()
    first.expect("target", N)


def test_weights_follow_the_shares(tided, boxes):
    first = boxes("first", "--max 8")
    connected(tided, first)
    eventually(lambda: first.shares() == 1024 * N)
    second = boxes("second", "--max 8")
    connected(tided, second)
    eventually(lambda: (first.shares(), second.shares()) == (512 * N, 512 * N))


def test_exclusive_cores_are_disjoint_and_given_back(tided, boxes):
    exclusive = {"io.threadtide.placement": "exclusive"}
    first = boxes("first", "--max 8", labels=exclusive)
    connected(tided, first)
    eventually(lambda: first.cpus() == ALL)
    second = boxes("second", "--max 8", labels=exclusive)
    connected(tided, second)
    eventually(lambda: sorted((first.cpus(), second.cpus())) == HALVES)
    second.kill()
    eventually(lambda: first.cpus() == ALL)
    if second.engine.kind == "docker":  # podman's next start has what it was made with, anyhow
        eventually(lambda: second.limits()[0] == ALL)


def test_a_quota_follows_the_share_and_stays_of_its_kind(tided, boxes):
    quota = {"io.threadtide.placement": "quota"}
    half, half_core = N // 2 * 1000000000, 500000000
    first = boxes("first", "--max 8", labels=quota)
    second = boxes("second", "--max 8", labels=quota, NanoCpus=half + half_core)
    connected(tided, first)
    connected(tided, second)
    eventually(lambda: first.limits()[2] == 50000 * N)
    eventually(lambda: second.limits()[3] == half)
    first.kill()
    eventually(lambda: second.limits()[3] == half)  # all of it, but for its own limit


def test_cores_leave_only_after_the_threads_have_parked(tided, boxes):
    exclusive = {"io.threadtide.placement": "exclusive"}
    first = boxes("first", "--max 8", "--no-ack", labels=exclusive)
    connected(tided, first)
    first.tell("ack")
    eventually(lambda: first.cpus() == ALL)
    first.tell("mute")
    second = boxes("second", "--max 8", labels=exclusive)
    connected(tided, second)
    first.expect("target", N // 2)
    assert first.cpus() == ALL
    first.tell("ack")
    eventually(lambda: sorted((first.cpus(), second.cpus())) == HALVES)


def test_a_container_speaks_for_itself_only(tided, boxes):
    """From inside: not as a controller, whatever job it names."""
    job = tided.job(name="victim")
    script = ("import socket, struct, time\n"
              "def ask(data):\n"
              "    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
              "    s.connect('/run/threadtide/agent.sock'); s.send(data)\n"
              "    s.settimeout(20); return s.recv(2048)\n"
              "body = struct.pack('<6IQ', 1, 1, 7, 0, 0, 0, 0) + b'victim'.ljust(64, b'\\0')\n"
              "head = struct.pack('<IHHII', 0x45444954, 1, 9, 16 + len(body), 5)\n"
              "answer = ask(head + body)\n"
              "print(struct.unpack_from('<i', answer, 16)[0], answer[48:].split(b'\\0')[0])\n")
    box = boxes("spy", start=False)
    (box.dir / "spy.py").write_text(script)
    box.remove()
    spy = boxes("spy2", command=["/usr/bin/python3", "/box/spy.py"], start=False)
    (spy.dir / "spy.py").write_text(script)
    spy.start()
    eventually(lambda: not spy.inspect()["State"]["Running"])
    status, logs = spy.engine.api("GET", f"/containers/{spy.id}/logs?stdout=1&stderr=1")
    assert status == 200 and "-13" in logs and "itself only" in logs, logs
    assert job.get()["pinned"] is None


def test_by_hand_paused_takes_no_part_until_that_ends(tided, boxes):
    first, second = boxes("first", "--max 8"), boxes("second", "--max 8")
    connected(tided, first)
    connected(tided, second)
    first.expect("target", N // 2)
    second.ask("POST", f"/containers/{second.id}/pause")
    joined(tided, second, state="paused")
    first.expect("target", N)
    second.ask("POST", f"/containers/{second.id}/unpause")
    joined(tided, second, state="running")
    first.expect("target", N // 2)


def test_drift_is_put_right(tided, boxes):
    first = boxes("first", "--max 8", labels={"io.threadtide.placement": "exclusive"})
    connected(tided, first)
    eventually(lambda: first.cpus() == ALL)
    first.update(CpusetCpus="0")
    eventually(lambda: first.cpus() == ALL)


def test_a_daemon_that_is_killed_leaves_the_original_limits(tided, boxes):
    exclusive = {"io.threadtide.placement": "exclusive"}
    first = boxes("first", "--max 8", labels=exclusive, CpusetCpus=ALL, CpuShares=512)
    second = boxes("second", "--max 8", labels=exclusive)
    connected(tided, first)
    connected(tided, second)
    eventually(lambda: sorted((first.cpus(), second.cpus())) == HALVES)
    tided.signal(signal.SIGKILL)
    eventually(lambda: first.limits()[:2] == (ALL, 512), guard=5)
    eventually(lambda: second.cpus() == ALL, guard=5)
    tided.start()
    eventually(lambda: sorted((first.cpus(), second.cpus())) == HALVES)
    assert len(tided.jobs()) == 2 and {j["id"] for j in tided.jobs()} == {"j1", "j2"}
    assert tided.stop() == 0
    eventually(lambda: (first.limits()[:2], second.cpus()) == ((ALL, 512), ALL), guard=5)


def test_the_agent_finds_a_new_daemon_through_its_directory(tided, boxes):
    box = boxes("first", "--max 8")
    connected(tided, box)
    tided.signal(signal.SIGKILL)
    box.expect("closed")
    tided.start()
    box.expect("welcome")
    joined(tided, box, state="running", id="j1")


def test_containers_that_were_there_before_are_found(place, engine, boxes):
    daemon = place.daemon("--engine", engine.socket)
    box = boxes("early", "--max 8")  # dockerd makes the directory
    daemon.start()
    connected(daemon, box)


def test_an_engine_that_was_killed_is_met_again(tided, boxes, engine):
    """Without live-restore dockerd ends the containers that it finds at its start: so do their jobs."""
    first = boxes("first", "--max 8", labels={"io.threadtide.placement": "exclusive"})
    connected(tided, first)
    engine.kill()
    eventually(lambda: "docker 1.41" in tided.log.read_text())
    assert job_of(tided, first)["state"] == "running"  # it needs no engine to run
    engine.start()
    eventually(lambda: not first.inspect()["State"]["Running"])
    eventually(lambda: job_of(tided, first) is None)
    first.start()
    joined(tided, first)


def test_an_engine_that_stands_still_holds_nobody_up(tided, boxes, engine):
    """Threads follow at once, cores when it answers again; and the daemon answers all the while."""
    first = boxes("first", "--max 8", labels={"io.threadtide.placement": "exclusive"})
    connected(tided, first)
    order(tided, first, None)  # answered when threads and cores are in place
    assert first.cpus() == ALL
    engine.freeze()
    try:
        second = tided.job("--max", "8", placement="exclusive")
        first.expect("target", N // 2)
        assert first.cpus() == ALL and tided.answers()
        assert second.get()["cores"] == ""  # none is free before the engine has answered
    finally:
        engine.thaw()
    eventually(lambda: sorted((first.cpus(), second.get()["cores"])) == HALVES)


def test_a_file_instead_of_a_directory_is_no_way_in(tided, boxes, place):
    """A link planted where the directory should be is not followed."""
    target = place.base / "elsewhere"
    target.mkdir()
    eventually(lambda: (tided.dir / "containers").is_dir())
    (tided.dir / "containers" / "first").symlink_to(target)
    box = boxes("first")
    joined(tided, box)
    assert list(target.iterdir()) == []
    assert "no socket" in tided.log.read_text()


def test_a_destroyed_containers_directory_goes(tided, boxes):
    box = boxes("first")
    joined(tided, box)
    folder = tided.dir / "containers" / "first"
    eventually((folder / "agent.sock").exists)
    box.remove()
    eventually(lambda: not folder.exists())
    assert json.dumps(tided.jobs()) == "[]"


def give_way(place, engine, boxes):
    """A daemon, and a container that it has paused for a more urgent job: peer and answer."""
    daemon = place.daemon("--engine", engine.socket, "--policy", "priority").start()
    box = boxes("patient", f"--max {N}", labels={"io.threadtide.request": str(N)})
    connected(daemon, box)
    peer = daemon.peer()
    status, urgent = daemon.api("POST", "/v1/jobs", {"pid": peer.pid, "queue": True, "priority": 10,
                                                     "request": N, "name": "urgent"})
    assert status == 201, urgent
    joined(daemon, box, state="paused")
    return daemon, box, peer, urgent


def test_a_container_gives_way_to_who_is_more_urgent(place, engine, boxes):
    """`priority` pauses it for a job from the queue, and lets it go on afterwards."""
    daemon, box, peer, urgent = give_way(place, engine, boxes)
    assert box.inspect()["State"]["Paused"]
    assert "for urgent: priority 10 against 0" in job_of(daemon, box)["reason"]
    eventually(lambda: daemon.api("GET", "/v1/jobs/urgent")[1]["state"] != "queued")
    peer.end()
    joined(daemon, box, state="running")
    assert not box.inspect()["State"]["Paused"]
    box.expect("target", N)


def test_killed_at_any_moment_of_a_resize_no_core_is_lost_or_owned_twice(tided, boxes):
    exclusive = {"io.threadtide.placement": "exclusive"}
    pair = [boxes(name, "--max 8", labels=exclusive) for name in ("first", "second")]
    for box in pair:
        connected(tided, box)
    chance = random.Random(7)
    for round_ in range(10):
        eventually(lambda: sorted(box.cpus() for box in pair) == HALVES)
        chooser = chance.choice(pair)
        # A grow of one and a shrink of the other, or back, from which the daemon is torn away.
        threading.Thread(target=order, args=(tided, chooser, chance.choice([N // 2, N])), daemon=True).start()
        time.sleep(chance.uniform(0, 0.06))
        tided.signal(signal.SIGKILL)
        assert all(box.inspect()["State"]["Running"] for box in pair), round_
        if round_ % 3 == 0:  # nobody comes at first: the guardian gives back what they began with
            eventually(lambda: [box.cpus() for box in pair] == [ALL, ALL], guard=5)
        tided.start()
        for box in pair:
            joined(tided, box, state="running")
            order(tided, box, None)
        assert {j["id"] for j in tided.jobs()} == {"j1", "j2"}


def test_a_container_paused_by_policy_goes_on_when_no_daemon_is_left(place, engine, boxes):
    daemon, box, peer, _ = give_way(place, engine, boxes)
    daemon.signal(signal.SIGKILL)
    eventually(lambda: not box.inspect()["State"]["Paused"], guard=5)
    daemon.start()  # to which it is as it was: less urgent
    joined(daemon, box, state="paused")
    eventually(lambda: box.inspect()["State"]["Paused"])
    peer.end()
    joined(daemon, box, state="running")


def test_a_pause_of_the_policys_is_ended_by_the_next_daemon_too(place, engine, boxes):
    """It is nobody's by hand, whoever finds it: after an orderly end and after SIGKILL."""
    daemon, box, peer, _ = give_way(place, engine, boxes)
    assert daemon.stop() == 0
    daemon.start()
    joined(daemon, box, state="paused")
    daemon.signal(signal.SIGKILL)
    daemon.start()
    joined(daemon, box, state="paused")
    peer.end()
    joined(daemon, box, state="running")
    assert not box.inspect()["State"]["Paused"]


def test_a_second_container_with_the_same_key_takes_no_socket_away(tided, boxes):
    first = boxes("first", "--max 8")
    connected(tided, first)
    path = tided.dir / "containers" / "first" / "agent.sock"
    socket = path.stat().st_ino
    thief = boxes("thief", agent=False, labels={"io.threadtide.key": "first"})
    joined(tided, thief)
    assert path.stat().st_ino == socket and "/first is container" in tided.log.read_text()
    thief.remove()
    eventually(lambda: job_of(tided, thief) is None)
    assert path.stat().st_ino == socket


def test_a_process_of_the_host_cannot_speak_for_a_container(tided, boxes, place):
    """Keys are no secrets: tide-runc's is the container's id."""
    box = boxes("first", "--max 8")
    connected(tided, box)
    stranger = Peer(place.peer_program, types.SimpleNamespace(dir=tided.dir / "containers" / "first"))
    tided.peers.append(stranger)
    stranger.go()
    eventually(lambda: "it is not in that" in tided.log.read_text())
    assert job_of(tided, box)["pids"] == [box.inspect()["State"]["Pid"]]


def test_limits_of_a_resize_under_way_do_not_outlive_the_container(tided, boxes, engine):
    exclusive = {"io.threadtide.placement": "exclusive"}
    first = boxes("first", "--max 8", labels=exclusive)
    connected(tided, first)
    eventually(lambda: first.cpus() == ALL)
    second = boxes("second", "--max 8", labels=exclusive)
    joined(tided, second)
    threading.Thread(target=connected, args=(tided, second), daemon=True).start()
    second.go()
    first.expect("target", N // 2)  # the engine's update is on its way
    first.kill()
    second.remove()
    eventually(lambda: tided.jobs() == [])
    eventually(lambda: first.limits()[0] == ALL, guard=5)
