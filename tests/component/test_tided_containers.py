# SPDX-License-Identifier: Apache-2.0
"""tided and a real Docker Engine: containers become jobs, cores and threads follow each other."""
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import threading
import time
import types

import pytest

from box import (ALL, HALVES, N, boxes, connected, engine, give_way, job_of,  # noqa: F401
                 joined, order, tided)
from conftest import POOL
from daemon import Peer, eventually

v1_only = pytest.mark.skipif(not pathlib.Path("/sys/fs/cgroup/cpu/cpu.shares").exists(),
                             reason="needs cgroup v1")


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


def test_by_hand_paused_takes_no_part_until_that_ends(tided, boxes):
    first, second = boxes("first", "--max 8"), boxes("second", "--max 8")
    connected(tided, first)
    connected(tided, second)
    first.expect("target", N // 2)
    second.act("pause")
    joined(tided, second, state="paused")
    first.expect("target", N)
    second.act("unpause")
    joined(tided, second, state="running")
    first.expect("target", N // 2)


def test_a_held_container_is_paused_until_it_is_released(tided, boxes):
    first, second = boxes("first", "--max 8"), boxes("second", "--max 8")
    connected(tided, first)
    job = connected(tided, second)["id"]
    first.expect("target", N // 2)
    for _ in range(2):
        assert tided.api("PATCH", f"/v1/jobs/{job}", {"held": True})[0] == 200
        joined(tided, second, state="paused", held=True)
        eventually(lambda: second.inspect()["State"]["Paused"])
        first.expect("target", N)
        assert tided.api("PATCH", f"/v1/jobs/{job}", {"held": False})[0] == 200
        joined(tided, second, state="running", held=False)
        first.expect("target", N // 2)
    second.act("pause")
    joined(tided, second, state="paused", held=False)
    status, answer = tided.api("PATCH", f"/v1/jobs/{job}", {"held": True})
    assert status == 409 and "paused by hand" in answer["error"]["message"]
    second.act("unpause")


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
    eventually(lambda: first.limits()[:2] == (ALL, 512))
    eventually(lambda: second.cpus() == ALL)
    tided.start()
    eventually(lambda: sorted((first.cpus(), second.cpus())) == HALVES)
    assert len(tided.jobs()) == 2 and {j["id"] for j in tided.jobs()} == {"j1", "j2"}
    assert tided.stop() == 0
    eventually(lambda: (first.limits()[:2], second.cpus()) == ((ALL, 512), ALL))


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


def machine_notes(tided):
    return "\n".join(tided.api("GET", "/v1/machine")[1]["notes"])


def test_a_job_may_be_named_by_its_compose_service(tided, boxes):
    def put(service, n):
        return tided.api("PATCH", f"/v1/jobs/{service}", {"threads": n})
    label = "com.docker.compose.service"
    first = boxes("app-train-1", "--max 8", labels={label: "train"})
    boxes("app-web-1", "--max 8", labels={label: "web"})
    connected(tided, first)
    eventually(lambda: len(tided.jobs()) == 2)
    assert put("train", 1)[1]["name"] == "app-train-1"
    second = boxes("app-train-2", "--max 8", labels={label: "train"})
    other = joined(tided, second)
    status, answer = put("train", 2)
    assert status == 409 and answer["error"]["message"] == (
        f"the service 'train' has 2 jobs: app-train-1 ({job_of(tided, first)['id']}), "
        f"app-train-2 ({other['id']})")
    assert put("app-train-2", 2)[0] == 200 and put("trai", 2)[0] == 404
    second.kill()
    eventually(lambda: job_of(tided, second) is None)
    assert put("train", 2)[0] == 200


def test_an_engine_that_was_killed_is_met_again(tided, boxes, engine):
    """Without live-restore dockerd ends the containers that it finds at its start: so do their jobs."""
    first = boxes("first", "--max 8", labels={"io.threadtide.placement": "exclusive"})
    connected(tided, first)
    engine.kill()
    eventually(lambda: "docker 1.41" in tided.log.read_text())
    assert job_of(tided, first)["state"] == "running"  # it needs no engine to run
    eventually(lambda: f"{engine.socket} does not answer" in machine_notes(tided))
    engine.start()
    eventually(lambda: machine_notes(tided) == "")
    eventually(lambda: not first.inspect()["State"]["Running"])
    eventually(lambda: job_of(tided, first) is None)
    first.start()
    joined(tided, first)


def test_a_service_is_elastic_again_after_a_reboot(tided, boxes, engine):
    """Everything stops, and what lay in /run is gone; dockerd comes first, and starts a container
    whose control directory is not there."""
    service = boxes("service", "--max 8", labels={"com.docker.compose.service": "train",
                                                  "io.threadtide.placement": "exclusive"},
                    RestartPolicy={"Name": "always"})
    connected(tided, service)
    service.expect("target", N)
    engine.stop()
    eventually(lambda: job_of(tided, service) is None)
    tided.stop()
    shutil.rmtree(tided.dir)
    engine.start()
    eventually(lambda: service.inspect()["State"]["Running"])
    tided.start()
    connected(tided, service)
    service.expect("target", N)
    eventually(lambda: service.cpus() == ALL)
    guest = tided.job("--max", "8", placement="exclusive")
    service.expect("target", N // 2)
    eventually(lambda: sorted((service.cpus(), guest.get()["cores"])) == HALVES)


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
    assert "cannot make the agents' socket" in tided.log.read_text()


def test_a_destroyed_containers_directory_goes(tided, boxes):
    box = boxes("first")
    joined(tided, box)
    folder = tided.dir / "containers" / "first"
    eventually((folder / "agent.sock").exists)
    box.remove()
    eventually(lambda: not folder.exists())
    assert json.dumps(tided.jobs()) == "[]"


def test_a_container_gives_way_to_who_is_more_urgent(place, engine, boxes):
    """`priority` pauses it for a job from the queue, and lets it go on afterwards."""
    daemon, box, peer, urgent = give_way(place, engine.socket, boxes)
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
            eventually(lambda: [box.cpus() for box in pair] == [ALL, ALL])
        tided.start()
        for box in pair:
            joined(tided, box, state="running")
            order(tided, box, None)
        assert {j["id"] for j in tided.jobs()} == {"j1", "j2"}


def test_who_goes_on_with_less_goes_on_at_once(place, engine, boxes):
    """Standing still it cannot park, and has nothing to park."""
    daemon, box, peer, _ = give_way(place, engine.socket, boxes)
    assert daemon.api("PATCH", "/v1/jobs/patient", {"threads": 1})[0] == 200
    peer.end()
    joined(daemon, box, state="running", target=1, active=1)
    assert "did not park" not in daemon.log.read_text()


def test_a_container_paused_by_policy_goes_on_when_no_daemon_is_left(place, engine, boxes):
    daemon, box, peer, _ = give_way(place, engine.socket, boxes)
    daemon.signal(signal.SIGKILL)
    eventually(lambda: not box.inspect()["State"]["Paused"])
    daemon.start()  # to which it is as it was: less urgent
    joined(daemon, box, state="paused")
    eventually(lambda: box.inspect()["State"]["Paused"])
    peer.end()
    joined(daemon, box, state="running")


def test_a_pinned_one_goes_on_with_what_was_changed_while_it_was_paused(place, engine, boxes):
    daemon, box, _, _ = give_way(place, engine.socket, boxes)
    assert daemon.api("PATCH", "/v1/jobs/patient", {"pin": True})[0] == 200

    def changed():  # in the middle of an update of ours it is put right, once
        box.update(CpuShares=700)
        return "are left as they are" in daemon.log.read_text()
    eventually(changed)
    assert box.inspect()["State"]["Paused"]
    daemon.signal(signal.SIGKILL)
    eventually(lambda: not box.inspect()["State"]["Paused"])
    eventually(lambda: box.limits()[1] == 700)


def test_a_pause_of_the_policys_is_ended_by_the_next_daemon_too(place, engine, boxes):
    """It is nobody's by hand, whoever finds it: after an orderly end and after SIGKILL."""
    daemon, box, peer, _ = give_way(place, engine.socket, boxes)
    assert daemon.stop() == 0
    daemon.start()
    joined(daemon, box, state="paused")
    daemon.signal(signal.SIGKILL)
    daemon.start()
    joined(daemon, box, state="paused")
    peer.end()
    joined(daemon, box, state="running")
    eventually(lambda: not box.inspect()["State"]["Paused"])


def test_a_second_container_with_the_same_key_takes_no_socket_away(tided, boxes):
    first = boxes("first", "--max 8")
    connected(tided, first)
    path = tided.dir / "containers" / "first" / "agent.sock"
    socket = path.stat().st_ino
    thief = boxes("thief", agent=False, labels={"io.threadtide.key": "first"})
    joined(tided, thief)
    assert path.stat().st_ino == socket and "/first belongs to container" in tided.log.read_text()
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
    eventually(lambda: "is not in that container" in tided.log.read_text())
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
    eventually(lambda: first.limits()[0] == ALL)


# ---- weights across the tree ----

CPU = pathlib.Path("/sys/fs/cgroup/cpu")


def group_of(job):
    """The control group of a job of `tide run`, once it has one."""
    def find():
        path = next(line.split(":", 2)[2] for line in
                    pathlib.Path(f"/proc/{job.peer.pid}/cgroup").read_text().splitlines()
                    if "cpu" in line.split(":")[1].split(","))
        return path != "/" and CPU / path[1:]
    return eventually(find)


def used_ns(group):
    """Processor time of all that is in a group; the kernel counts it in nanoseconds."""
    return sum(int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[0])
               for pid in (group / "cgroup.procs").read_text().split())


def number(file):
    return int(file.read_text())


@pytest.fixture
def three(place, engine, boxes):
    """Containers of 2 and 4 cores' weight, and a job of 2 elsewhere in the tree: their groups."""
    daemon = place.daemon("--engine", engine.socket, "--cpus", "0-7").start()
    first = boxes("first", "--max 8")
    second = boxes("second", "--max 8", labels={"io.threadtide.weight": "200"})
    job = daemon.job("--max", "8")
    connected(daemon, first)
    connected(daemon, second)
    job.target(2)
    eventually(lambda: (first.shares(), second.shares()) == (2048, 4096))
    group = group_of(job)
    eventually(lambda: number(group / "cpu.shares") == 2048)
    return types.SimpleNamespace(daemon=daemon, first=first, second=second, job=job, group=group)


@v1_only
def test_a_daemons_group_weighs_as_its_jobs_do_against_containers(three):
    """The files say it: an engine's containers together weigh what its parent group does, 1024."""
    parent = three.group.parent
    assert parent.parent == CPU
    for peer in (three.first, three.second, three.job.peer):
        peer.tell("spin 0")
    eventually(lambda: number(parent / "cpu.shares") == 341)  # 1024 * 2 / (2 + 4)
    three.second.kill()
    eventually(lambda: number(parent / "cpu.shares") == 1024)  # 4 and 4 cores now
    three.first.kill()
    eventually(lambda: number(parent / "cpu.shares") == 1024 * os.cpu_count())  # as it was made
    assert three.daemon.stop() == 0
    assert not parent.exists()


@v1_only
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a container of nobody"])
def test_processor_time_is_in_proportion_wherever_a_job_lies(three, boxes, beside):
    """All want the same core: 1 : 2 : 1, whoever else is in the engine's group, and how many."""
    others = [boxes("other", agent=False)] if beside else []
    idle = [three.first.engine.groups(three.first.id).parent / f"idle-{i}" for i in range(100)]
    for group in idle if beside else []:
        group.mkdir()
    for other in others:
        eventually(lambda: other.inspect()["State"]["Running"])
        other.go()
    for peer in (three.first, three.second, three.job.peer, *others):
        peer.tell("spin 0")
    # A container of nobody has 1024 shares beside the 6144 of ours.
    eventually(lambda: number(three.group.parent / "cpu.shares") == (293 if beside else 341))
    groups = [three.first.engine.groups(three.first.id), three.first.engine.groups(three.second.id),
              three.group]
    before = [used_ns(group) for group in groups]
    time.sleep(2)
    first, second, job = [used_ns(group) - start for group, start in zip(groups, before)]
    assert 0.75 < job / first < 1.25 and 1.5 < second / first < 2.5, (first, second, job)
    assert not any("compare" in n for n in three.daemon.api("GET", "/v1/machine")[1]["notes"])
    for group in idle if beside else []:
        group.rmdir()


@v1_only
def test_what_cannot_be_compared_is_said(place, engine, boxes):
    """Two parents of others: ours to read, not to write."""
    daemon = place.daemon("--engine", engine.socket, "--cpus", "0-7").start()
    first = boxes("first", "--max 8")
    deeper = boxes("deeper", "--max 8", CgroupParent=f"{engine.cgroup}/deeper")
    for box in (first, deeper):
        connected(daemon, box)
        box.tell("spin 0")

    def note():
        return next((n for n in daemon.api("GET", "/v1/machine")[1]["notes"] if "control groups" in n), None)
    told = eventually(note)  # 4096 of 4096 + 1024 against the other 1024
    assert "first" in told and "160 %" in told or "deeper" in told and "40 %" in told, told
    first.kill()
    eventually(lambda: not note())


def test_a_target_goes_to_those_of_a_containers_processes_that_work(place, engine, boxes, build_dir):
    """Two real agents in one container, each with a pool of four."""
    daemon = place.daemon("--engine", engine.socket, "--cpus", "0-3").start()
    pool = f"env 'LD_PRELOAD=/opt/threadtide/$LIB/libtide-agent.so' /build/{POOL} 4"
    box = boxes("pools", command=["/bin/sh", "-c", f"{pool} & {pool} & wait"],
                binds=[f"{build_dir}:/build:ro", f"{build_dir}/agent:/opt/threadtide:ro"])

    def parts():
        return {p["pid"]: p["threads"] for p in (job_of(daemon, box) or {}).get("split") or []}
    eventually(lambda: sorted(parts().values()) == [2, 2])
    one, two = parts()
    os.kill(one, signal.SIGUSR1)
    eventually(lambda: parts() == {one: 3, two: 1})
    os.kill(two, signal.SIGUSR1)
    os.kill(one, signal.SIGUSR2)
    eventually(lambda: parts() == {one: 1, two: 3})


def test_a_container_that_found_no_place_among_the_jobs_gets_one_when_a_job_ends(tided, boxes):
    most = 512  # PROTO_JOBS_MAX
    many = f"for i in $(seq {most}); do sleep 1000 & echo $!; done; read end; kill 0"
    with subprocess.Popen(["sh", "-c", many], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          start_new_session=True) as sleepers:
        try:
            pids = [int(sleepers.stdout.readline()) for _ in range(most)]
            for pid in pids:
                assert tided.api("POST", "/v1/jobs", {"pid": pid})[0] == 201
            box = boxes("late", "--max 8")
            eventually((tided.dir / "containers/late/agent.sock").exists)
            assert job_of(tided, box) is None
            os.kill(pids[0], signal.SIGKILL)
            connected(tided, box)
        finally:
            os.killpg(sleepers.pid, signal.SIGKILL)
