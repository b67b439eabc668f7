# SPDX-License-Identifier: Apache-2.0
"""The system's Docker, whose containers are systemd's scopes, and the system's tided; memory that
runs out. What does not depend on who makes the groups is tested by tests/component."""
import re
import signal
import subprocess
import types

import pytest

from box import ALL, N, boxes, connected, job_of, joined  # noqa: F401
from daemon import eventually
from system import (TIDE, SystemEngine, installed, service, shown, systemctl,  # noqa: F401
                    systemd_only)

pytestmark = systemd_only
MEMORY = {"Memory": 64 << 20, "MemorySwap": 64 << 20}
GROW = "python3 -c 'import time; m = bytearray(1) * (300 << 20); time.sleep(600)'"


@pytest.fixture(scope="module")
def engine():
    result = SystemEngine()
    try:
        yield result.start().make_image()
    finally:
        result.end()


@pytest.fixture
def tided(service):
    return service.start()


@pytest.fixture
def place(tided, tmp_path):
    """As far as boxes need one."""
    return types.SimpleNamespace(base=tmp_path, peer_program=tided.peer_program, daemons=[tided])


def scope(box):
    return f"docker-{box.id}.scope"


def cpu_max(box):
    return (box.engine.groups(box.id) / "cpu.max").read_text().split()[0]


def numbers(text):
    """Returns the CPUs of a list, the kernel's "0,2-4" or systemd's "0 2-4"."""
    parts = [part.split("-") for part in text.replace(",", " ").split()]
    return {n for part in parts for n in range(int(part[0]), int(part[-1]) + 1)}


def halved(lists):
    """Which half is whose, and whether it is in one piece, depends on who grew first."""
    owned = [numbers(text) for text in lists]
    return [len(o) for o in owned] == [N // 2] * 2 and not owned[0] & owned[1]


def test_cores_are_put_in_force_through_systemd_and_stay(tided, boxes):
    """A reload makes systemd write again what it holds to be the limits."""
    exclusive = {"io.threadtide.placement": "exclusive"}
    pair = [boxes(name, "--max 8", labels=exclusive) for name in ("first", "second")]
    for box in pair:
        connected(tided, box)
    eventually(lambda: halved(box.cpus() for box in pair))
    assert halved(shown(scope(box), "AllowedCPUs") for box in pair)
    systemctl("daemon-reload")
    assert halved(box.cpus() for box in pair)
    first = tided.pid()
    tided.signal(signal.SIGKILL)
    eventually(lambda: tided.pid() not in (0, first))
    for box in pair:
        joined(tided, box, state="running")
    eventually(lambda: halved(box.cpus() for box in pair))
    tided.stop()
    eventually(lambda: [box.cpus() for box in pair] == [ALL, ALL])


def test_weights_and_quotas_are_put_in_force_through_systemd(tided, boxes):
    shared = boxes("shared", "--max 8")
    connected(tided, shared)
    eventually(lambda: shared.shares() == 1024 * N)
    capped = boxes("capped", "--max 8", labels={"io.threadtide.placement": "quota"})
    connected(tided, capped)
    eventually(lambda: cpu_max(capped) == str(50000 * N))
    eventually(lambda: shared.shares() == 512 * N)
    shared.kill()
    eventually(lambda: cpu_max(capped) == str(100000 * N))


def test_a_paused_container_is_frozen_and_has_no_share(tided, boxes):
    first, second = boxes("first", "--max 8"), boxes("second", "--max 8")
    for box in (first, second):
        connected(tided, box)
    first.expect("target", N // 2)
    second.act("pause")
    assert "frozen 1" in (second.engine.groups(second.id) / "cgroup.events").read_text()
    joined(tided, second, state="paused")
    first.expect("target", N)
    second.act("unpause")
    first.expect("target", N // 2)


MIB = 1 << 20


def memory_max(box):
    return int((box.engine.groups(box.id) / "memory.max").read_text())


def memory(*words):
    return subprocess.run([TIDE, "memory", *map(str, words)], capture_output=True, text=True)


def limits(box):
    """The kernel's and the engine's word, in MiB."""
    return memory_max(box) / MIB, box.inspect()["HostConfig"]["Memory"] / MIB


def test_memory_goes_down_to_what_a_container_needs_and_up_again(service, place, boxes):
    service.stop()
    service.configure("memory=900M")
    tided = service.start()
    box = boxes("thrifty", "--max 8", Memory=512 * MIB, MemorySwap=512 * MIB)
    connected(tided, box)
    least = eventually(lambda: joined(tided, box)["memory_least"]) // MIB
    assert joined(tided, box)["memory_limit"] == 512 * MIB and 64 < least < 200
    refused = memory("thrifty", f"{least - 20}M")
    assert refused.returncode == 2 and re.search(r"its limit can be \d+M or more", refused.stderr) and limits(box) == (512, 512)
    waits = subprocess.Popen([TIDE, "submit", "--wait", "--memory", "600M", "--", "true"])
    eventually(lambda: any(job["state"] == "queued" for job in tided.jobs()))
    lowered = memory("thrifty", "256M")
    assert lowered.returncode == 0 and ": limit 256M, needed up to " in lowered.stdout, lowered
    assert limits(box) == (256, 256)
    assert waits.wait(60) == 0  # it has the memory that was given back
    box.expect("target", N)  # the job goes on
    first = tided.pid()
    tided.signal(signal.SIGKILL)
    eventually(lambda: tided.pid() not in (0, first))
    assert joined(tided, box, memory_limit=256 * MIB) and limits(box) == (256, 256)
    assert memory("--undo", "thrifty").returncode == 0 and limits(box) == (512, 512)
    taken = memory("thrifty", "1G")  # root may give more than it began with, but not more than there is
    assert taken.returncode == 2 and "900M together, and 900M are left" in taken.stderr and limits(box) == (512, 512)
    assert memory("thrifty", "800M").returncode == 0 and limits(box) == (800, 800)
    box.update(Memory=700 * MIB, MemorySwap=700 * MIB)  # by hand: its own from now on
    joined(tided, box, memory_limit=700 * MIB)
    assert memory("thrifty", "300M").returncode == 0 and memory("--undo", "thrifty").returncode == 0
    assert limits(box) == (700, 700)


def test_a_container_without_a_limit_gets_one_and_is_without_again(tided, boxes):
    box = boxes("free", "--max 8")
    connected(tided, box)
    eventually(lambda: joined(tided, box)["memory_least"])
    assert ": limit none" in memory("free").stdout
    assert memory("free", "256M").returncode == 0 and limits(box) == (256, 256)
    assert memory("--undo", "free").returncode == 0
    assert (box.engine.groups(box.id) / "memory.max").read_text() == "max\n"
    assert joined(tided, box, memory_limit=None) and ": limit none" in memory("free").stdout


def test_memory_that_a_container_needs_is_not_taken(tided, boxes):
    hold = "python3 -c 'import time; m = bytearray(1) * (200 << 20); time.sleep(600)'"
    box = boxes("needy", command=["/bin/sh", "-c", f"exec {hold}"], agent=False,
                labels={"io.threadtide": "true"}, Memory=512 * MIB, MemorySwap=512 * MIB)
    eventually(lambda: (joined(tided, box)["memory_high"] or 0) > 200 * MIB)
    refused = memory("needy", "240M")
    assert refused.returncode == 2 and 200 <= int(re.search(r"needed up to (\d+)M in", refused.stderr)[1]) < 240
    assert limits(box) == (512, 512)
    assert memory("needy", "400M").returncode == 0 and limits(box) == (400, 400)
    assert oom_kills(box) == 0


def oom_kills(box):
    events = (box.engine.groups(box.id) / "memory.events").read_text().split()
    return int(events[events.index("oom_kill") + 1])


def of_history(tided, box):
    return next(j for j in tided.api("GET", "/v1/history")[1] if j["name"] == box.name)


def told_of(name):
    """Returns which of `tide history` and `tide events` say that memory ran out, once both tell of the end."""
    words = {"events": ["events", "--type", "job-ended", name], "history": ["history", name]}
    said = {kind: eventually(lambda: subprocess.run([TIDE, *command], capture_output=True, text=True, check=True).stdout)
            for kind, command in words.items()}
    return {kind for kind, text in said.items() if "; a process was killed: out of memory" in text}


def test_a_job_goes_on_when_a_process_of_its_is_killed_for_memory(tided, boxes):
    """The peer lives, the child that grew does not; no thread or core is lost, and it is told."""
    box = boxes("grows", command=["/bin/sh", "-c", f"{GROW} & exec /box/peer --max 8 "
                                  "</box/in >/box/out"], **MEMORY)
    connected(tided, box)
    eventually(lambda: oom_kills(box) == 1)
    box.expect("target", N)
    job = joined(tided, box, note="a process was killed: out of memory")
    assert (job["state"], job["target"]) == ("running", N)
    assert job["pids"] == [box.inspect()["State"]["Pid"]]
    box.kill()
    eventually(lambda: job_of(tided, box) is None)
    assert of_history(tided, box)["oom"]
    assert told_of("grows") == {"history", "events"}


def test_a_container_that_is_killed_for_memory_is_told_as_such(tided, boxes):
    """Its first process: the job ends with it, before its engine has said why. systemd removes the group at once: now and
    then (seen: one of 40) before the runtime and tided have read why, and nobody knows any more. So one of two has to be told."""
    def told(n):
        box = boxes(f"first{n}", command=["/bin/sh", "-c", f"read go </box/in; exec {GROW}"], **MEMORY)
        joined(tided, box)
        box.tell("go")
        eventually(lambda: job_of(tided, box) is None)
        eventually(lambda: of_history(tided, box)["exit"] == 137)
        return told_of(box.name)
    both = {"history", "events"}
    first = told(0)
    assert first in (both, set()) and both in (first, told(1))
