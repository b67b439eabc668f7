# SPDX-License-Identifier: Apache-2.0
"""tided and its guardian torn away: what containers began with is what they end with."""
import fcntl
import os
import random
import signal
import struct
import subprocess

import pytest

from box import boxes, connected, engine, joined  # noqa: F401, fixtures too
from daemon import eventually

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a container engine needs root")
EXCLUSIVE = {"io.threadtide.placement": "exclusive"}


# ---- limits outlive everything: src/daemon/confine/journal.c's file ----

SLOT, SLOTS = 512, 1024
HEADER = struct.pack("<QII", 0x7065656b65646974, 1, SLOTS)


def record(path, container, cpus=3, quota=(0, -1, 0), shares=1024, paused=0):
    body = (struct.pack("<Q120xQqQII", cpus, *quota, shares, paused) +
            str(path).encode().ljust(108, b"\0") + container.encode().ljust(68, b"\0"))
    total = 0xcbf29ce484222325
    for byte in body:
        total = (total ^ byte) * 0x100000001b3 % 2 ** 64
    return (struct.pack("<Q", total) + body).ljust(SLOT, b"\0")


def table(records):
    return HEADER.ljust(SLOT, b"\0") + b"".join(records).ljust(SLOT * SLOTS, b"\0")


@pytest.fixture
def state(tmp_path, monkeypatch):
    """A daemon's limits, which outlive a reboot."""
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    return tmp_path / "limits"


def children(pid):
    out = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    return [int(p) for p in out.stdout.split()]


def lose_power(tided):
    """Neither daemon nor guardian can do anything any more, and the run directory is empty."""
    guardians = children(tided.process.pid)
    tided.signal(signal.SIGSTOP)  # it would start another guardian
    for pid in guardians:
        os.kill(pid, signal.SIGKILL)
    tided.signal(signal.SIGKILL)
    for path in [*tided.dir.glob("jobs/*.json"), tided.dir / "epoch"]:
        path.unlink(missing_ok=True)


def test_own_limits_survive_a_loss_of_power(place, engine, boxes, state):
    tided = place.daemon("--engine", engine.socket).start()
    own = {"CpusetCpus": "0-1", "CpuShares": 512, "NanoCpus": 1500000000}
    first = boxes("first", "--max 8", labels=EXCLUSIVE, RestartPolicy={"Name": "always"}, **own)
    second = boxes("second", "--max 8", labels=EXCLUSIVE, **own)
    began_with = ("0-1", 512, 0, 1500000000)
    for box in (first, second):
        connected(tided, box)
    eventually(lambda: sorted((first.cpus(), second.cpus())) == ["0", "1"])
    pids = [box.inspect()["State"]["Pid"] for box in (first, second)]
    lose_power(tided)
    engine.kill()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    engine.start()
    eventually(lambda: first.inspect()["State"]["Running"])
    assert sorted((first.limits()[0], second.limits()[0])) == ["0", "1"]  # Docker remembers ours
    tided.start()
    eventually(lambda: second.limits() == began_with)  # although it does not run
    joined(tided, first)
    assert tided.stop() == 0
    eventually(lambda: (first.limits(), second.limits()) == (began_with, began_with))
    eventually(lambda: state.read_bytes() == table([]))


def test_a_damaged_table_harms_nothing(place, engine, boxes, state):
    box = boxes("first", agent=False, CpusetCpus="0-1", CpuShares=512)
    whole = table([record(engine.socket, box.id, cpus=1, shares=300)])
    chance = random.Random(5)
    flips = [chance.randrange(SLOT * 2) for _ in range(6)]
    damaged = [whole[:at] + bytes([whole[at] ^ 1 << chance.randrange(8)]) + whole[at + 1:]
               for at in [*flips, 0, 9, SLOT, SLOT + 8, SLOT + 170, SLOT + 280]]
    damaged += [whole[:n] for n in (1, 17, SLOT, SLOT + 100)] + [os.urandom(len(whole))]
    tided = place.daemon("--engine", engine.socket)
    for content in damaged:
        state.write_bytes(content)
        tided.start()
        eventually(lambda: "docker 1.41" in tided.log.read_text())
        assert tided.stop() == 0
        with open(tided.dir / "guardian.lock", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the guardian, too, has ended
        unchanged = content[:16] + content[SLOT:SLOT + 344] == whole[:16] + whole[SLOT:SLOT + 344]
        assert box.limits()[:2] == (("0", 300) if unchanged else ("0-1", 512))
        box.update(CpusetCpus="0-1", CpuShares=512)
    state.write_bytes(whole)
    tided.start()
    eventually(lambda: box.limits()[:2] == ("0", 300))  # not the table's fault, then


def test_limits_are_on_disk_before_the_first_change_and_many_wait_for_it_once(place, engine, boxes,
                                                                              state, tmp_path):
    """The disk takes a quarter of a second. What comes meanwhile is written together."""
    tided = place.daemon("--engine", engine.socket)
    made = [boxes(f"c{n}", CpuShares=512) for n in range(8)]
    calls = tmp_path / "calls"
    strace = ["strace", "-D", "--seccomp-bpf", "-f", "-qq", "-s", "600", "-o", calls,
              "-e", "trace=pwrite64,fdatasync,sendto", "-e", "inject=fdatasync:delay_exit=250000"]
    tided.program = [*strace, tided.program]
    tided.env["ASAN_OPTIONS"] = "detect_leaks=0"
    tided.start()
    for box in made:
        joined(tided, box)
    eventually(lambda: all(box.shares() != 512 for box in made))
    tided.stop()
    noted, on_disk, changed, waits = set(), set(), set(), 0
    for line in calls.read_text().splitlines():
        ids = {box.id for box in made if box.id in line}
        if "pwrite64(" in line:
            noted |= ids
        elif "fdatasync(" in line:
            on_disk |= noted
            waits += len(changed) < len(made)
        elif "/update" in line:
            assert ids <= on_disk, line
            changed |= ids
    assert len(changed) == len(made) and waits <= 4, waits


@pytest.mark.parametrize("spoil", [lambda p: p.mkdir(), lambda p: p.symlink_to("/etc/passwd"),
                                   lambda p: p.touch(0o666) or p.chmod(0o666), os.mkfifo],
                         ids=["directory", "link", "anybody's", "pipe"])
def test_a_table_that_is_not_ours_is_said_and_left_alone(place, engine, state, spoil):
    spoil(state)
    tided = place.daemon("--engine", engine.socket).start()
    assert f"{state}: " in tided.log.read_text()


def test_a_full_disk_leaves_the_memory_to_the_guardian(place, engine, boxes, state):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tide-test", state.parent], check=True)
    try:
        tided = place.daemon("--engine", engine.socket).start()
        assert "No space left" in tided.log.read_text()
        box = boxes("first", "--max 8", labels=EXCLUSIVE, CpuShares=512)
        connected(tided, box)
        eventually(lambda: box.limits()[:2] == ("0-1", 2048))
        tided.signal(signal.SIGKILL)
        eventually(lambda: box.limits()[:2] == ("0-1", 512))
    finally:
        subprocess.run(["umount", "--lazy", state.parent], check=True)


def test_a_guardian_puts_back_more_containers_than_an_engine_takes_calls(place, engine, boxes, state):
    """A thousand and more of its table's are gone: it says so of each. The last is there."""
    box = boxes("first", agent=False, start=False, CpuShares=512)
    gone = [record(engine.socket, f"{n:064x}") for n in range(SLOTS - 1)]
    state.write_bytes(table([*gone, record(engine.socket, box.id, shares=300)]))
    tided = place.daemon("--engine", "/nowhere").start()  # nobody asks, but its guardian
    tided.signal(signal.SIGKILL)
    eventually(lambda: box.limits()[1] == 300)
    eventually(lambda: state.read_bytes() == table([]))
