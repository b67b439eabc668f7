# SPDX-License-Identifier: Apache-2.0
"""A power cap's quota reaches the containers of a real Docker Engine, and goes with the cap or the daemon."""
import re
import signal
import threading

import pytest

from box import N, boxes, connected, engine, joined  # noqa: F401
from daemon import eventually
from engine import Proxy
from test_tided_cap import quota as group_quota

SPIN = ["/bin/sh", "-c", "while :; do :; done"]
OWN_MCPU = 350  # a container's own quota
LEAST_MCPU = 100  # less would stop a job (KEEPER_QUOTA_MIN)


@pytest.fixture
def tided(place, engine):  # noqa: F811
    return daemon_with(place, engine, "none")


def daemon_with(place, engine, power, *options):  # noqa: F811
    path = place.base / "tide.conf"
    path.write_text(f"[daemon]\npower={power}\npower-model=points:20,35,75,120\n")
    daemon = place.daemon("--engine", getattr(engine, "socket", engine), "--config", path, *options).start()
    if not daemon.api("GET", "/v1/machine")[1]["weights"]:
        pytest.skip("control groups cannot be written here")
    return daemon


def cap(tided, watts):
    if watts:
        assert tided.api("PUT", "/v1/power/cap", {"uw": watts * 1_000_000})[0] in (200, 202)
    else:
        assert tided.api("DELETE", "/v1/power/cap")[0] == 200


def quota(box):
    """Returns its quota in the kernel, in mcpu; None: none."""
    group = box.engine.groups(box.id, "cpu")
    v1 = group / "cpu.cfs_quota_us"
    if v1.exists():
        us, period = int(v1.read_text()), int((group / "cpu.cfs_period_us").read_text())
        return us * 1000 // period if us > 0 else None
    us, period = (group / "cpu.max").read_text().split()
    return None if us == "max" else int(us) * 1000 // int(period)


def throttled(box):
    text = (box.engine.groups(box.id, "cpu") / "cpu.stat").read_text()
    return int(dict(line.split() for line in text.splitlines())["nr_throttled"])


def held(tided, *containers):
    """All together use no more than the cap leaves to jobs, but for what each needs to go on."""
    most = tided.api("GET", "/v1/power/cap")[1]["most_mcpu"]
    quotas = [quota(box) for box in containers]
    return None not in quotas and sum(quotas) <= max(most, LEAST_MCPU * len(quotas)) + 2 and quotas


def test_containers_watts_have_keplers_names(tided, boxes):  # noqa: F811
    spinner = boxes("spinner", agent=False, labels={"io.threadtide": "true"}, command=SPIN)
    joined(tided, spinner)

    def told(metric):
        line = re.search(f'^{metric}{{container_id="{spinner.id}",container_name="spinner",zone="machine"}} (.*)$', tided.metrics(), re.M)
        return line and float(line[1])
    eventually(lambda: told("kepler_container_cpu_watts"))
    eventually(lambda: told("kepler_container_cpu_joules_total"))


def test_a_cap_holds_containers_by_a_quota_and_gives_their_own_back(tided, boxes):  # noqa: F811
    spinner = boxes("spinner", agent=False, labels={"io.threadtide": "true"}, command=SPIN)
    asked = boxes("asked", "--max 8", NanoCpus=OWN_MCPU * 1_000_000)
    connected(tided, asked)
    joined(tided, spinner)
    assert (quota(spinner), quota(asked)) == (None, OWN_MCPU)
    cap(tided, 70)
    eventually(lambda: held(tided, spinner, asked))
    assert LEAST_MCPU <= quota(asked) <= OWN_MCPU  # a cap never gives more than the owner did
    before = throttled(spinner)
    eventually(lambda: throttled(spinner) > before)
    cap(tided, None)
    eventually(lambda: (quota(spinner), quota(asked)) == (None, OWN_MCPU))


def test_the_guardian_gives_containers_their_quota_back_after_a_kill(tided, boxes):  # noqa: F811
    spinner = boxes("spinner", agent=False, labels={"io.threadtide": "true"}, command=SPIN)
    asked = boxes("asked", "--max 8", CpuPeriod=100_000, CpuQuota=OWN_MCPU * 100)
    connected(tided, asked)
    joined(tided, spinner)
    cap(tided, 70)
    eventually(lambda: held(tided, spinner, asked))
    tided.signal(signal.SIGKILL)
    eventually(lambda: (quota(spinner), quota(asked)) == (None, OWN_MCPU))
    tided.start()  # the cap goes on
    eventually(lambda: held(tided, spinner, asked))
    cap(tided, None)
    eventually(lambda: (quota(spinner), quota(asked)) == (None, OWN_MCPU))


def test_a_paused_container_leaves_its_part_of_the_cap_to_the_processes(place, engine, boxes):  # noqa: F811
    """A meter tells 30 W less than the cap, whatever else runs on this machine."""
    meter = place.base / "watts"
    meter.write_text("80 W\n")
    tided = daemon_with(place, engine, f"file:{meter}")
    spinner = boxes("spinner", agent=False, labels={"io.threadtide": "true"}, command=SPIN)
    joined(tided, spinner)
    tided.job()
    eventually(lambda: tided.api("GET", "/v1/power")[1]["power"]["uw"])
    cap(tided, 110)

    def shared(*containers):
        """Whether containers and the group of all processes together have what the cap leaves to jobs, and that is more
        than the least of each."""
        meter.write_text("80 W\n")
        most = tided.api("GET", "/v1/power/cap")[1]["most_mcpu"]
        quotas = [quota(box) for box in containers] + [1000 * (group_quota(tided) or 0)]
        return None not in quotas and most >= 3 * LEAST_MCPU and abs(sum(quotas) - most) <= 60
    eventually(lambda: shared(spinner), pause=0.2)
    spinner.act("pause")
    eventually(shared, pause=0.2)  # the processes have all of it
    spinner.act("unpause")
    eventually(lambda: shared(spinner), pause=0.2)


def test_a_container_whose_pause_is_under_way_keeps_its_part_of_the_cap(place, engine, boxes):  # noqa: F811
    """The policy has it give way to a process, and the engine is late: until then it runs on."""
    proxy, late = Proxy(place.base / "engine.sock", engine.socket), threading.Event()

    def wait(client, ask):
        late.wait(30)
        client.sendall(ask())
    proxy.rule = lambda method, path: wait if path.endswith("/pause") else None
    meter = place.base / "watts"
    meter.write_text("80 W\n")
    tided = daemon_with(place, proxy.path, f"file:{meter}", "--policy", "priority")
    patient = boxes("patient", f"--max {N}", labels={"io.threadtide.request": str(N)})
    connected(tided, patient)
    eventually(lambda: tided.api("GET", "/v1/power")[1]["power"]["uw"])
    cap(tided, 110)

    def most():
        meter.write_text("80 W\n")
        return tided.api("GET", "/v1/power/cap")[1]["most_mcpu"]

    def shared():
        """Five times in a row the processes have less than the cap leaves to jobs, which is enough to divide."""
        return all(most() >= 3 * LEAST_MCPU and 1000 * (group_quota(tided) or N) + LEAST_MCPU / 2 <= most()
                   for _ in range(5))
    try:
        eventually(lambda: most() >= 3 * LEAST_MCPU and quota(patient), pause=0.2)
        assert tided.api("POST", "/v1/jobs", {"pid": tided.peer().pid, "queue": True, "priority": 10, "request": N,
                                              "name": "urgent"})[0] == 201
        eventually(lambda: any(path.endswith("/pause") for _, path in proxy.calls))
        eventually(shared, guard=6, pause=0.1)
        assert not patient.inspect()["State"]["Paused"]
    finally:
        late.set()
        proxy.end()
