# SPDX-License-Identifier: Apache-2.0
"""A power cap on tided: refused without watts, obeyed under every policy, kept over kills."""
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from daemon import eventually
from power_tree import PowerTree

CORES = 16
# 20 W idle, 5 W and more for each core. The machine's own load counts as idle, so tests leave it room.
MODEL = "power-model=points:20,35,75,120"
FULL, MIDDLE = 150_000_000, 90_000_000


def conf(place, *lines):
    path = place.base / "tide.conf"
    path.write_text("\n".join(("[daemon]", *lines, "")))
    path.chmod(0o644)
    return path


@pytest.fixture
def modelled(place):
    """A daemon on a machine of which only a model is known."""
    return place.daemon("--cpus", f"0-{CORES - 1}", "--config", conf(place, "power=none", MODEL)).start()


def put(tided, **body):
    return tided.api("PUT", "/v1/power/cap", body)


def cap(tided):
    status, answer = tided.api("GET", "/v1/power/cap")
    assert status == 200
    return answer


def threads(tided):
    return sum(job["target"] for job in tided.jobs())


def jobs(tided, n=2):
    made = [tided.job("--max", str(CORES), name=f"train-{i}") for i in range(n)]
    return made


def full(tided):
    """All cores are in use."""
    eventually(lambda: threads(tided) == CORES)


def capped(tided):
    """Jobs have what the cap leaves, which is less than all."""
    def check():
        c = cap(tided)
        return c["state"] == "kept" and (c["cores"] or CORES) < CORES and threads(tided) == max(c["cores"], 2) and c
    return eventually(check)


def test_a_cap_without_watts_is_refused_with_the_reason(place):
    tided = place.daemon("--config", conf(place, "power=none")).start()
    status, answer = put(tided, uw=MIDDLE)
    assert status == 409
    assert "nothing tells this machine's watts" in answer["error"]["message"]
    assert "power-model=" in answer["error"]["hint"]
    assert cap(tided)["state"] == "none"
    assert not (tided.dir / "power-cap").exists()


def test_a_cap_that_only_the_simulator_keeps_is_refused(modelled):
    status, answer = modelled.api("PUT", "/v1/policy", {"policy": "power-cap/cap=90000000"})
    assert status == 400 and "use 'tide power set-cap'" in answer["error"]["message"]
    assert modelled.api("GET", "/v1/policy")[1]["policy"] == "equal"


def test_a_machine_of_which_only_its_year_is_known_takes_a_cap_and_keeps_far_below_it(place):
    tided = place.daemon("--cpus", f"0-{CORES - 1}", "--config", conf(place, "power=none", "power-model=assumed:2019:2")).start()
    jobs(tided)
    full(tided)
    told = eventually(lambda: (power := tided.api("GET", "/v1/power")[1]["power"])["uw"] and power)
    assert told["basis"] == "assumed" and told["low_uw"] < 0.8 * told["uw"] and told["high_uw"] > 1.2 * told["uw"]
    assert put(tided, uw=300_000_000)[0] in (200, 202)
    told = capped(tided)
    # The curve has some 11 cores at 300 W; its upper bound, a third above it, some 7.
    curve = dict(told["model"]["points"])
    assert curve[9600] < 300_000_000 < curve[12800] and 3 <= told["cores"] <= 9, told
    assert cap(tided)["model"]["basis"] == "assumed"


@pytest.mark.parametrize("policy", ["equal", "power-cap", "throughput", "priority"])
def test_every_policy_obeys_and_says_whose_cap_it_is(modelled, policy):
    made = jobs(modelled)
    full(modelled)
    assert modelled.api("PUT", "/v1/policy", {"policy": policy})[0] == 200
    assert put(modelled, uw=MIDDLE)[0] in (200, 202)
    c = capped(modelled)
    assert 2 <= c["cores"] < CORES and c["source"] == "person" and c["until"] is None
    assert c["model"]["source"] == "four points of the configuration" and c["model"]["basis"] == "modelled"
    assert "power cap 90.0 W (set by hand)" in made[0].get()["reason"]
    assert modelled.api("DELETE", "/v1/power/cap")[0] == 200
    full(modelled)
    assert "power cap" not in made[0].get()["reason"]


def test_explain_names_the_cap(modelled, build_dir):
    jobs(modelled)
    full(modelled)
    explain = lambda: subprocess.run([build_dir / "tide", "explain", "train-0"], env={**os.environ, "TIDE_DIR": str(modelled.dir)},
                                     capture_output=True, text=True, check=True).stdout
    assert "power cap" not in explain()
    put(modelled, uw=MIDDLE)
    capped(modelled)
    assert "power cap 90.0 W (set by hand)" in explain()


def test_a_cap_ends_by_itself(modelled):
    jobs(modelled)
    full(modelled)
    until = int(time.time()) + 3
    status, _ = put(modelled, uw=MIDDLE, until=until)
    assert status in (200, 202)
    assert abs(capped(modelled)["until"] - until) <= 1
    eventually(lambda: cap(modelled)["state"] == "none")
    full(modelled)


def test_a_higher_cap_is_used_at_once(modelled):
    jobs(modelled)
    full(modelled)
    put(modelled, uw=MIDDLE - 30_000_000)
    low = capped(modelled)["cores"]
    put(modelled, uw=MIDDLE + 15_000_000)
    assert eventually(lambda: (now := cap(modelled)["cores"]) > low and now) > low + 1


def reboot(tided, off_s=0, tampered=lambda text: text):
    """The daemon ends, and finds its files as after another boot, @off_s seconds later."""
    tided.stop()
    file = tided.dir / "power-cap"
    lines = [line.split() for line in file.read_text().splitlines()]
    lines[0][1] = "another-boot"
    lines[1][2] = str(int(lines[1][2]) - off_s * 1000)
    file.write_text(tampered("".join(" ".join(line) + "\n" for line in lines)))
    tided.start()


def test_a_cap_set_by_hand_outlives_a_reboot_until_its_end(modelled):
    put(modelled, uw=MIDDLE)
    reboot(modelled)
    assert cap(modelled)["uw"] == MIDDLE and cap(modelled)["until"] is None
    until = int(time.time()) + 3600
    put(modelled, uw=MIDDLE, until=until)
    reboot(modelled, off_s=600)
    assert cap(modelled)["uw"] == MIDDLE
    assert abs(cap(modelled)["until"] - (until - 600)) <= 2  # the file is 600 s older, and so is its end
    put(modelled, uw=MIDDLE, until=until)
    reboot(modelled, off_s=3700)
    assert cap(modelled)["state"] == "none"


def test_ps_top_events_and_the_power_show_the_cap(modelled):
    jobs(modelled)
    env = {**os.environ, "TIDE_DIR": str(modelled.dir)}

    def tide(*args):
        return subprocess.run([modelled.program.parent / "tide", *args], env=env, capture_output=True, text=True,
                              check=True).stdout
    assert "power cap" not in tide("ps") + tide("top") + tide("events")
    put(modelled, uw=MIDDLE)
    capped(modelled)
    text = "power cap 90.0 W (set by hand): "
    assert f"note: {text}" in tide("ps")
    assert text in tide("top").splitlines()[0]
    eventually(lambda: text in tide("events", "--type", "cap"))
    found = modelled.api("GET", "/v1/power")[1]["cap"]
    assert (found["uw"], found["source"], found["state"]) == (MIDDLE, "person", "kept")
    modelled.api("DELETE", "/v1/power/cap")
    eventually(lambda: "no power cap any more" in tide("events", "--type", "cap"))
    assert modelled.api("GET", "/v1/power")[1]["cap"]["uw"] is None


@pytest.mark.parametrize("source", ["person", "lease"])
@pytest.mark.parametrize("where", ["cap-stored", "cap-placed"])
def test_an_accepted_cap_outlives_a_kill(place, where, source):
    tided = place.daemon("--cpus", f"0-{CORES - 1}", "--config", conf(place, "power=none", MODEL))
    tided.env = {"TIDE_FAILPOINT": f"{where}:1"}
    tided.start()
    with pytest.raises((OSError, Exception)):
        put(tided, uw=MIDDLE) if source == "person" else lease(tided, uw=MIDDLE, kind="breaker", floor=60_000_000, ttl=300_000)
    assert tided.process.wait(30) == -signal.SIGKILL
    tided.env = {}
    tided.start()
    found = cap(tided)
    assert found["uw"] == MIDDLE and found["source"] == source
    jobs(tided)
    capped(tided)


def test_a_cap_whose_file_cannot_be_written_is_no_cap(modelled):
    (modelled.dir / "power-cap.new").mkdir()
    status, answer = put(modelled, uw=MIDDLE)
    assert status == 507 and "cannot write" in answer["error"]["message"]
    assert cap(modelled)["state"] == "none"


def test_a_damaged_file_is_told_of_and_ignored(modelled):
    put(modelled, uw=MIDDLE)
    modelled.stop()
    (modelled.dir / "power-cap").write_text("boot x\ncap 1 -5 0 0 0\n")
    modelled.start()
    assert cap(modelled)["state"] == "none"
    assert "power-cap is ignored" in modelled.log.read_text()


@pytest.mark.parametrize("body", [{}, {"uw": 0}, {"uw": -5}, {"uw": 1.5}, {"uw": 2 ** 41}, {"uw": "120W"},
                                  {"uw": MIDDLE, "until": 5}, {"uw": MIDDLE, "till": 5}])
def test_what_is_no_cap_is_refused(modelled, body):
    status, answer = put(modelled, **body)
    assert status == 400 and answer["error"]["message"]
    assert cap(modelled)["state"] == "none"


def test_a_configured_cap_is_in_force_from_the_first_job_on(place):
    path = conf(place, "power=none", MODEL, "power-cap=90 W")
    tided = place.daemon("--cpus", f"0-{CORES - 1}", "--config", path).start()
    assert cap(tided)["source"] == "configuration"
    jobs(tided)
    capped(tided)
    put(tided, uw=FULL)  # a person cannot raise it
    assert cap(tided)["uw"] == MIDDLE
    assert {c["source"] for c in cap(tided)["caps"]} == {"configuration", "person"}
    assert 'tide_power_cap_watts{source="configuration"} 90\n' in tided.metrics()
    conf(place, "power=none", MODEL)
    tided.signal(signal.SIGHUP)
    eventually(lambda: cap(tided)["uw"] == FULL)


def test_a_machine_that_stays_above_is_said_to_be(place, build_dir):
    tree = PowerTree(place.base / "root", {"intel-rapl:1": 80})
    try:
        tided = place.daemon("--cpus", "0-3", "--config", conf(place, f"power-root={place.base / 'root'}")).start()
        jobs(tided, 1)
        eventually(lambda: tided.api("GET", "/v1/power")[1]["power"]["uw"])
        put(tided, uw=50_000_000)
        eventually(lambda: cap(tided)["state"] == "over")
        assert "the machine draws more" in cap(tided)["why"]
        eventually(lambda: "tide_power_cap_over_seconds_total 0\n" not in tided.metrics())
        done = subprocess.run([build_dir / "tide", "power", "set-cap", "50W"], text=True, capture_output=True,
                              env={**os.environ, "TIDE_DIR": str(tided.dir)}, check=False)
        assert done.returncode == 6 and "over" in done.stdout, done
        tree.watts["intel-rapl:1"] = 30
        eventually(lambda: cap(tided)["state"] == "kept")
    finally:
        tree.end()


def test_the_command_sets_shows_and_lifts(modelled, build_dir):
    def tide(*words):
        return subprocess.run([build_dir / "tide", "power", *words], text=True, capture_output=True,
                              env={**os.environ, "TIDE_DIR": str(modelled.dir)}, check=False)
    done = tide("set-cap", "1.2kW", "--until", "2h")
    assert done.returncode == 0 and "1200.0 W (person, until" in done.stdout, done
    assert "four points" in tide().stdout
    assert json.loads(tide("--json").stdout)["cap"]["uw"] == 1_200_000_000
    assert "none" in tide("clear-cap").stdout
    for words, message in ((("set-cap",), "watts are missing"), (("set-cap", "12kWh"), "no power cap"),
                           (("set-cap", "0W"), "no power cap"), (("set-cap", "9W", "--until", "x"), "no future time"),
                           (("clear-cap", "--until", "2h"), "set-cap alone"), (("raise",), "none of")):
        done = tide(*words)
        assert done.returncode == 2 and message in done.stderr, done


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_only_administrators_set_and_lift(modelled):
    client = ("import http.client, socket, sys\n"
              "c = http.client.HTTPConnection('x'); c.sock = socket.socket(socket.AF_UNIX)\n"
              "c.sock.connect(sys.argv[1]); c.request(sys.argv[2], '/v1/power/cap', '{\"uw\": 1000}')\n"
              "print(c.getresponse().status)")
    for method, want in (("PUT", "403"), ("DELETE", "403"), ("GET", "200")):
        done = subprocess.run(["setpriv", "--reuid=61002", "--regid=61002", "--clear-groups", "/usr/bin/python3", "-c", client,
                               modelled.dir / "api.sock", method], text=True, capture_output=True, check=True)
        assert done.stdout.strip() == want, (method, done)
    assert cap(modelled)["state"] == "none"


@pytest.mark.parametrize("line, words", [("power-model=60 W", "is none of points:"),
                                         ("power-model=points:50,40", "must not fall"),
                                         ("power-model=points:1,2,3", "two or four"),
                                         ("power-model=assumed:1970:1", "nothing is known"),
                                         ("power-cap=-4 W", "watts like 120 W"),
                                         ("power-cap=4 kWh", "watts like 120 W")])
def test_a_mistake_in_the_keys_is_named(place, line, words):
    done = subprocess.run([place.program, "--check-config", "--config", conf(place, line)], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 2 and words in done.stderr, done.stderr


# ---- the backstop ----

OWN = 100_000_000  # the package's limit before ours


@pytest.fixture
def limited(place):
    """A function that makes a daemon on a tree with a package that has a power limit, and the limit's file."""
    trees = []

    def make(*lines, watts=None, step_s=0.02):
        root = place.base / "root"
        trees.append(PowerTree(root, watts or {"intel-rapl:0": 60}, step_s=step_s))
        limit = trees[0].folder("intel-rapl:0") / "constraint_0_power_limit_uw"
        limit.write_text(f"{OWN}\n")
        return place.daemon("--cpus", "0-3", "--config", conf(place, f"power-root={root}", *lines)), limit
    yield make
    for tree in trees:
        tree.end()


def number(path):
    """Returns the number in the file; a writer may just have emptied it."""
    return eventually(lambda: (text := path.read_text().strip()) and int(text))


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@needs_root
def test_a_power_limit_holds_the_cap_and_is_put_back(limited):
    tided, limit = limited()
    tided.start()
    tided.job()
    eventually(lambda: tided.api("GET", "/v1/power")[1]["power"]["uw"])
    put(tided, uw=50_000_000)
    eventually(lambda: number(limit) == 49_000_000)
    put(tided, uw=4 * OWN)  # above the package's own: that is never raised
    eventually(lambda: number(limit) == OWN)
    eventually(lambda: cap(tided)["state"] == "kept" and "processors and their memory alone are measured" in cap(tided)["why"])
    put(tided, uw=40_000_000)
    eventually(lambda: number(limit) == 39_200_000)
    tided.api("DELETE", "/v1/power/cap")
    assert number(limit) == OWN
    put(tided, uw=30_000_000)
    eventually(lambda: number(limit) == 29_400_000)
    assert tided.stop() == 0
    assert number(limit) == OWN


@needs_root
def test_a_limit_that_cannot_be_put_back_at_once_is_put_back_later(limited):
    tided, limit = limited()
    tided.start()
    tided.job()
    eventually(lambda: tided.api("GET", "/v1/power")[1]["power"]["uw"])
    put(tided, uw=50_000_000)
    eventually(lambda: number(limit) == 49_000_000)
    limit.rename(limit.parent / "away")
    assert tided.api("DELETE", "/v1/power/cap")[0] == 200
    (limit.parent / "away").rename(limit)
    assert number(limit) != OWN
    eventually(lambda: number(limit) == OWN)


@needs_root
def test_a_power_limit_leaves_out_what_it_does_not_reach(limited):
    tided, limit = limited(watts={"intel-rapl:0": 40, "intel-rapl:1": 65})
    tided.start()
    tided.job()
    put(tided, uw=60_000_000)
    eventually(lambda: number(limit) != OWN)
    limits = []
    for _ in range(20):  # also between ticks, when readings are of shorter times
        limits.append(number(limit))
        time.sleep(0.2)
    # One reading may fall between the tree's writes of its two counters, when its thread waits for a core; it lasts a second.
    assert len({uw for uw in limits if not 31_000_000 < uw < 37_000_000}) <= 1, limits


@needs_root
def test_a_reading_that_fails_does_not_lift_the_cap(limited):
    """Also when there was only one before, and nothing is learnt yet."""
    tided, limit = limited()
    tided.start()
    tided.job()
    eventually(lambda: tided.api("GET", "/v1/power")[1]["power"]["uw"])
    put(tided, uw=50_000_000)
    eventually(lambda: number(limit) == 49_000_000)
    energy = limit.parent / "energy_uj"
    energy.rename(limit.parent / "away")
    eventually(lambda: tided.api("GET", "/v1/power")[1]["power"]["uw"] is None)
    for _ in range(20):
        assert number(limit) == 49_000_000 and cap(tided)["state"] in ("kept", "over")
        time.sleep(0.1)


@needs_root
def test_a_counter_that_moved_before_the_last_brief_reading_has_moved(limited):
    """Seconds whose energy brief readings have seen already were no readings; the cap was kept without any."""
    tided, _ = limited(step_s=0.4)
    tided.start()
    tided.job()
    eventually(lambda: tided.api("GET", "/v1/power")[1]["power"]["uw"])
    put(tided, uw=50_000_000)
    seen, end = set(), time.monotonic() + 20
    while time.monotonic() < end:
        seen.add(tided.api("GET", "/v1/power")[1]["energy"]["uj"])
        time.sleep(0.1)
    assert len(seen) >= 16


@needs_root
def test_the_guardian_puts_a_limit_back_after_a_kill(limited):
    tided, limit = limited()
    tided.start()
    tided.job()
    eventually(lambda: tided.api("GET", "/v1/power")[1]["power"]["uw"])
    put(tided, uw=50_000_000)
    eventually(lambda: number(limit) == 49_000_000)
    tided.signal(signal.SIGKILL)
    eventually(lambda: number(limit) == OWN)
    tided.start()  # the cap goes on, and the new daemon's original is the package's own
    tided.job()
    eventually(lambda: number(limit) == 49_000_000)
    tided.api("DELETE", "/v1/power/cap")
    assert number(limit) == OWN


@needs_root
def test_a_kill_between_note_and_limit_leaves_the_packages_own(limited):
    tided, limit = limited("power-model=points:20,100", "power-cap=60 W")
    tided.env = {"TIDE_FAILPOINT": "backstop-noted:1"}
    tided.start(ready=False)
    assert tided.process.wait(30) == -signal.SIGKILL
    tided.env = {}
    assert number(limit) == OWN
    tided.start()
    eventually(lambda: number(limit) == 58_800_000)
    tided.signal(signal.SIGKILL)
    eventually(lambda: number(limit) == OWN)


def quota(tided):
    """On the daemon's group, in cores; None: no group or none set."""
    name = f"tide-{os.geteuid()}-{tided.api('GET', '/v1/machine')[1]['epoch']}"
    for path in (f"/sys/fs/cgroup/cpu/{name}/cpu.cfs_quota_us", f"/sys/fs/cgroup/{name}/cpu.max"):
        try:
            text = open(path).read().split()[0]
            return None if text in ("-1", "max") else int(text) / 100_000
        except FileNotFoundError:
            continue
    return None


@needs_root
def test_a_quota_on_all_jobs_holds_the_cap(modelled):
    if not modelled.api("GET", "/v1/machine")[1]["weights"]:
        pytest.skip("control groups cannot be written here")
    made = jobs(modelled)
    full(modelled)
    put(modelled, uw=MIDDLE)
    c = capped(modelled)
    assert quota(modelled) == pytest.approx(cap(modelled)["most_mcpu"] / 1000, abs=0.01) or cap(modelled) != c
    # The quota on all is no limit of each: with one job left, that has all the cap leaves.
    made[1].end()
    eventually(lambda: made[0].get()["target"] == cap(modelled)["cores"])
    modelled.api("DELETE", "/v1/power/cap")
    assert quota(modelled) is None
    eventually(lambda: made[0].get()["target"] == CORES)


@needs_root
def test_the_quota_ends_with_the_daemon(modelled):
    if not modelled.api("GET", "/v1/machine")[1]["weights"]:
        pytest.skip("control groups cannot be written here")
    job = jobs(modelled, 1)[0]
    put(modelled, uw=MIDDLE)
    eventually(lambda: quota(modelled))
    group = f"tide-{os.geteuid()}-{modelled.api('GET', '/v1/machine')[1]['epoch']}"
    eventually(lambda: group in open(f"/proc/{job.peer.pid}/cgroup").read())
    modelled.signal(signal.SIGKILL)
    eventually(lambda: group not in open(f"/proc/{job.peer.pid}/cgroup").read())
    eventually(lambda: not os.path.exists(f"/sys/fs/cgroup/cpu/{group}") and
               not os.path.exists(f"/sys/fs/cgroup/{group}"))
    modelled.start()


# ---- the power lease, and what watts are worth ----

def lease(tided, **body):
    return tided.api("PUT", "/v1/power/lease", {"v": 1, "boot": 5, "stamp": 1, "number": 1, "floor": 0, "ttl": 30_000,
                                                "kind": "budget", **body})


def test_the_smaller_of_lease_and_hand_counts(modelled):
    jobs(modelled)
    put(modelled, uw=FULL)
    assert lease(modelled, uw=MIDDLE)[0] in (200, 202)
    c = capped(modelled)
    assert (c["uw"], c["source"]) == (MIDDLE, "lease")
    assert "of the power lease" in modelled.jobs()[0]["reason"]
    put(modelled, uw=MIDDLE - 10_000_000)
    assert cap(modelled)["source"] == "person"


@pytest.mark.parametrize("kind, left", [("breaker", 60_000_000), ("budget", None), ("advice", None)])
def test_a_lease_ends_by_its_kind(modelled, kind, left):
    lease(modelled, uw=MIDDLE, floor=60_000_000, kind=kind, ttl=300)
    eventually(lambda: cap(modelled)["uw"] == left)
    modelled.signal(signal.SIGKILL)
    modelled.start()  # what is left of it is in the file
    assert cap(modelled)["uw"] == left


def test_an_overtaken_lease_is_stale(modelled):
    assert lease(modelled, uw=MIDDLE, number=7)[0] in (200, 202)
    status, answer = lease(modelled, uw=FULL, number=6)
    assert status == 409 and "stale" in answer["error"]["message"]
    assert cap(modelled)["uw"] == MIDDLE
    assert lease(modelled, uw=FULL, number=1, boot=6)[0] in (200, 202)  # the child began anew
    assert cap(modelled)["uw"] == FULL


def test_after_a_leases_end_any_number_counts(modelled):
    """A parent that has lost its book numbers leases from 1; the machine's connection goes on with the same boot."""
    floor = 60_000_000
    assert lease(modelled, uw=MIDDLE, number=7, kind="breaker", floor=floor, ttl=300)[0] in (200, 202)
    eventually(lambda: cap(modelled)["uw"] == floor)
    status, answer = lease(modelled, uw=FULL, number=1, kind="breaker", floor=floor)
    assert status in (200, 202), answer
    assert cap(modelled)["uw"] == FULL


@pytest.mark.parametrize("wrong", [{"uw": 0}, {"ttl": 0}, {"ttl": 600_001}, {"kind": "law"}, {"v": 2}, {"uw": None}])
def test_what_is_no_lease_is_refused(modelled, wrong):
    assert lease(modelled, **{"uw": MIDDLE, **wrong})[0] == 400
    assert cap(modelled)["state"] == "none"


def demand(tided):
    status, answer = tided.api("GET", "/v1/power/demand")
    assert status == 200
    return answer


def test_demand_is_a_concave_curve_and_a_cap_on_it_leaves_its_cores(modelled):
    assert demand(modelled)["points"][0][1] == 0 and len(demand(modelled)["points"]) == 1  # no job
    jobs(modelled)
    full(modelled)
    found = eventually(lambda: (d := demand(modelled)) and len(d["points"]) > 1 and d)
    points = found["points"]
    assert 2 <= len(points) <= 8 and points[0] == [found["floor"], 0] and points[-1][1] == CORES * 1000 * modelled.jobs()[0]["weight"]
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in zip(points, points[1:])]
    assert all(s > 0 for s in slopes) and all(a >= b * 0.999 for a, b in zip(slopes, slopes[1:]))
    # Load of no job has come and gone meanwhile, and moves the curve.
    lease(modelled, uw=points[-1][0] + 8_000_000)
    eventually(lambda: cap(modelled)["cores"] >= CORES - 3)


def test_demand_of_an_unknown_machine_is_unknown(place):
    tided = place.daemon("--config", conf(place, "power=none")).start()
    assert demand(tided) == {"v": 1, "points": [], "floor": None,
                             "draw": {"uw": None, "low": None, "high": None, "basis": "unknown"}}


@needs_root
def test_only_the_power_group_and_root_lease(place):
    group = next(line.split(":")[2] for line in open("/etc/group") if line.startswith("games:"))
    tided = place.daemon("--config", conf(place, "power=none", MODEL, "power-group=games", "admin-group=none")).start()
    client = ("import http.client, socket, sys\n"
              "c = http.client.HTTPConnection('x'); c.sock = socket.socket(socket.AF_UNIX)\n"
              "c.sock.connect(sys.argv[1]); c.request('GET', '/v1/power/demand')\n"
              "a = c.getresponse(); a.read(); print(a.status)\n"
              "c.request('PUT', '/v1/power/lease', '{\"uw\": 90000000, \"ttl\": 900, \"kind\": \"budget\"}')\n"
              "a = c.getresponse(); a.read(); print(a.status)")
    for groups, want in (["--clear-groups"], ["403", "403"]), ([f"--groups={group}"], ["200", "200"]):
        done = subprocess.run(["setpriv", "--reuid=61002", "--regid=61002", *groups, "/usr/bin/python3", "-c", client,
                               tided.dir / "api.sock"], text=True, capture_output=True, check=True)
        assert done.stdout.split() == want, (groups, done)


# ---- learning ----

def busy_cores(seconds):
    """How many of this machine's cores are busy in the time to come."""
    def busy():
        fields = [int(f) for f in open("/proc/stat").readline().split()[1:9]]
        return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")
    before, began = busy(), time.monotonic()
    time.sleep(seconds)
    return (busy() - before) / (time.monotonic() - began)


class Busy:
    """A tree whose package draws 20 W, and 15 W for each core of this machine that is busy."""

    def __init__(self, root):
        self.tree = PowerTree(root, {"intel-rapl:1": 20})
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.ending.is_set():
            self.tree.watts["intel-rapl:1"] = 20 + 15 * busy_cores(0.2)

    def end(self):
        self.ending.set()
        self.thread.join()
        self.tree.end()


def test_calibration_learns_the_curve_and_a_restart_keeps_it(place, build_dir):
    machine = Busy(place.base / "root")
    try:
        tided = place.daemon("--config", conf(place, f"power-root={place.base / 'root'}")).start()
        eventually(lambda: tided.api("GET", "/v1/power")[1]["power"]["uw"])
        others = busy_cores(5)
        done = subprocess.run([build_dir / "tide", "power", "calibrate", "--seconds", "15", "--force"], text=True,
                              capture_output=True, env={**os.environ, "TIDE_DIR": str(tided.dir)}, check=False)
        if "not seen at three different loads" in done.stderr and others > 0.5:
            pytest.skip(f"other programs keep {others:.1f} of this machine's cores busy")
        assert done.returncode == 0 and "learnt from" in done.stdout and "calibrated" in done.stdout, done
        model = cap(tided)["model"]
        assert model["basis"] == "calibrated" and len(model["points"]) >= 2
        # 15 W a core, as long as no reading was of two loads.
        first, last = model["points"][0], model["points"][-1]
        assert 8e6 < (last[1] - first[1]) / (last[0] - first[0]) * 1000 < 25e6
        assert tided.stop() == 0
        tided.start()
        assert "learnt" in cap(tided)["model"]["source"]
    finally:
        machine.end()


def test_calibration_without_a_source_is_refused(modelled, build_dir):
    done = subprocess.run([build_dir / "tide", "power", "calibrate"], text=True, capture_output=True,
                          env={**os.environ, "TIDE_DIR": str(modelled.dir)}, check=False)
    assert done.returncode == 1 and "nothing to learn from" in done.stderr, done


CHILDREN = """import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits: what a child has used is nobody's when it ends
while True:
    if os.fork() == 0:
        end = time.process_time() + 0.02
        while time.process_time() < end:
            pass
        os._exit(0)
    time.sleep(0.04)
"""


@needs_root
@pytest.mark.skipif(not os.path.exists("/sys/fs/cgroup/cgroup.controllers"), reason="needs cgroup v2: groups count CPU time")
def test_children_that_have_ended_count_for_their_job(modelled):
    if not modelled.api("GET", "/v1/machine")[1]["weights"]:
        pytest.skip("control groups cannot be written here")
    env = {**os.environ, "TIDE_DIR": str(modelled.dir), "TIDE_CLAIMS_DIR": str(modelled.claims)}
    job = subprocess.Popen([modelled.program.parent / "tide", "run", "--", sys.executable, "-S", "-c", CHILDREN], env=env)
    try:
        eventually(lambda: modelled.jobs())
        put(modelled, uw=MIDDLE)  # its quota needs groups
        eventually(lambda: "tide-" in open(f"/proc/{job.pid}/cgroup").read())

        def busy():
            load = modelled.api("GET", "/v1/power")[1]["load"]
            return load["mcpu"] - load["other_mcpu"]
        # Children of 20 ms: a look at the processes alone finds one of them, now and then.
        eventually(lambda: busy() > 200)
        seen = []
        for _ in range(5):
            time.sleep(1)
            seen.append(busy())
        assert sorted(seen)[2] > 150, seen
    finally:
        job.kill()
        job.wait()
