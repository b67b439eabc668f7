# SPDX-License-Identifier: Apache-2.0
"""Promises of latency: a server whose requests are slow gets the cores of its user's other jobs, and gives them back."""
import contextlib
import functools
import os
import shutil
import subprocess
import sys
import threading
import time

import pytest

from cli_tools import BUILD, POOL, Queue, tide  # noqa: F401
from conftest import ROOT
from daemon import Job, eventually
from workers import CPU_GROUP, cpu_groups, group, weighs

ONE, TWO = 61001, 61002
USER = ONE if os.geteuid() == 0 else None
CPUS = 8
NEITHER = 40  # ms: no cause to ask for cores nor to give any back, where 50 are promised


class Server:
    """A job whose process tells requests ten times a second, as set()."""

    def __init__(self, job):
        self.job, self.told, self.ended = job, None, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def set(self, count, ms, in_flight=1):
        self.told = (count, ms, in_flight)

    def run(self):
        told = None
        with contextlib.suppress(ValueError, OSError):  # the peer has ended
            while not self.ended.wait(0.1):
                if self.told and (any(self.told[::2]) or told != self.told):  # an idle server's agent is silent
                    self.job.peer.tell("requests {} {} {}".format(*self.told))
                told = self.told

    def end(self):
        self.ended.set()
        self.thread.join()

    def latency(self):
        return self.job.get()["latency"]


root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def tided(place):
    """A user's own, which sets no weights: nobody yields."""
    made = place.daemon("--cpus", f"0-{CPUS - 1}", uid=USER).start()
    made.job = functools.partial(made.job, uid=USER)
    return made


@pytest.fixture
def roots(place):
    """Root's, where weights can be set."""
    return place.daemon("--cpus", f"0-{CPUS - 1}").start()


@pytest.fixture
def server(tided):
    result = Server(tided.job("--max", str(CPUS), name="server", slo="p99=50ms"))
    yield result
    result.end()


@pytest.fixture
def batch(tided):
    return tided.job("--max", str(CPUS), name="batch")


def targets(*jobs):
    return tuple(job.get()["target"] for job in jobs)


def test_without_requests_a_promise_changes_nothing(tided, server, batch):
    batch.target(CPUS // 2), server.job.target(CPUS // 2)
    assert server.job.get()["slo"] == "p99=50ms" and server.latency() is None


def test_slow_requests_get_all_cores_and_fast_ones_give_them_back(server, batch):
    server.set(10, 80)
    server.job.target(CPUS - 1), batch.target(1)  # the other keeps its minimum
    server.set(10, NEITHER)
    assert "its promise p99=50ms needs" in server.job.get()["reason"]
    seen = eventually(lambda: (now := server.latency())["seconds"] > 0 and now)
    assert seen["seconds_kept"] == 0 and 80_000 <= seen["p99_us"] <= 92_000 and seen["in_flight"] == 1
    server.job.target(CPUS - 1)
    server.set(10, 5)
    eventually(lambda: targets(server.job)[0] < CPUS - 2)
    batch.target(CPUS - server.job.settled()["target"])
    eventually(lambda: server.latency()["seconds_kept"] > 0)


def test_a_queue_is_seen_before_any_request_is_slow(server, batch):
    server.set(10, 5)
    eventually(lambda: targets(server.job)[0] < CPUS // 2)
    server.set(10, 5, in_flight=40)
    server.job.target(CPUS - 1), batch.target(1)
    assert server.latency()["p99_us"] < 50_000


def test_an_idle_server_keeps_its_minimum_and_gets_back_what_it_had(tided, batch):
    server = Server(tided.job("--max", str(CPUS), name="server", slo="p99=50ms", min=2))
    server.set(10, 80)
    server.job.target(CPUS - 1)
    server.set(10, NEITHER)
    server.set(0, 0, in_flight=0)
    server.job.target(2), batch.target(CPUS - 2)
    server.set(10, NEITHER)
    server.job.target(CPUS - 1), batch.target(1)
    server.end()


def test_it_leaves_what_others_hold_by_hand_and_the_jobs_that_wait_hold_nothing(tided, server):
    pinned, waits = tided.job("--max", str(CPUS), name="pinned"), 5
    for i in range(waits):
        assert tided.api("POST", "/v1/jobs", {"name": f"waits{i}", "queue": True, "held": True})[0] == 201
    assert pinned.patch(threads=3)[1]["status"] == "done"
    server.set(10, 80)
    eventually(lambda: server.latency() and server.latency()["need"] == CPUS - 3)
    server.job.target(CPUS - 3), pinned.target(3)
    assert not server.job.get()["oversubscribed"]


def test_two_promises_share_what_there_is(tided, server, batch):
    other = Server(tided.job("--max", str(CPUS), name="other", slo="p99=50ms"))
    server.set(10, 80), other.set(10, 80)
    eventually(lambda: sum(targets(server.job, other.job, batch)) == CPUS and targets(batch) == (1,))
    other.end()


def test_a_promise_leaves_the_next_one_what_it_needs_and_comes_first_where_that_is_too_little(tided, server, batch):
    other = Server(tided.job("--max", str(CPUS), name="other", slo="p99=50ms"))
    other.set(10, 80)
    other.job.target(CPUS - 2)
    other.set(10, NEITHER)
    server.set(10, 80)
    eventually(lambda: server.latency() and server.latency()["requests"] >= 60)  # its trial took what is left: nothing
    assert targets(server.job, other.job, batch) == (1, CPUS - 2, 1)
    server.job.target(CPUS - 2), other.job.target(1)  # tried, and still slow: the older job's promise comes first
    other.end()


def test_cores_that_no_other_job_can_use_stay_with_the_server(tided, server):
    small = tided.job("--max", "2", name="small")
    server.set(10, 1)
    small.target(2), server.job.target(CPUS - 2)
    eventually(lambda: server.latency() and server.latency()["seconds"] >= 4)
    assert targets(server.job, small) == (CPUS - 2, 2)


def test_a_server_that_stands_still_is_slow(server, batch):
    server.set(10, 5)
    eventually(lambda: server.latency() and server.latency()["seconds"] > 0)
    server.set(0, 0, in_flight=3)
    server.job.target(CPUS - 1)
    eventually(lambda: server.latency()["seconds"] > server.latency()["seconds_kept"])


def test_another_program_in_the_process_counts_anew(server, batch):
    server.set(10, NEITHER, in_flight=3)
    eventually(lambda: server.latency() and server.latency()["in_flight"] == 3)
    server.told = None
    server.job.peer.tell("bye")
    eventually(lambda: server.latency()["in_flight"] == 0)


def test_cores_that_do_not_help_go_back(server, batch):
    server.set(10, 80)
    server.job.target(CPUS - 1)
    eventually(lambda: "is not kept" in server.job.get()["reason"])
    server.job.target(CPUS // 2), batch.target(CPUS // 2)


def test_a_promise_is_taken_back_and_given_to_a_job_that_runs(server, batch):
    server.set(10, 80)
    server.job.target(CPUS - 1)
    server.set(10, NEITHER)
    assert server.job.patch(slo=None)[0] == 200
    server.job.target(CPUS // 2), batch.target(CPUS // 2)
    assert server.latency()["promise_us"] is None and server.latency()["need"] is None
    assert server.job.patch(slo="p99=60ms")[0] == 200
    server.job.target(CPUS - 1)
    assert server.latency()["promise_us"] == 60_000


def test_alone_it_has_all_cores_whatever_it_needs(server, tided):
    server.set(10, 1)
    eventually(lambda: server.latency() and server.latency()["seconds"] >= 2)
    server.job.target(CPUS)


def test_a_daemon_that_is_started_again_counts_from_there(server, batch, tided):
    server.set(10, 80)
    server.job.target(CPUS - 1)
    before = eventually(lambda: (now := server.latency()["requests"]) >= 100 and now)
    tided.stop()
    tided.start()
    told = eventually(lambda: (now := server.latency()) and now["requests"] > 0 and now)
    assert server.job.get()["slo"] == "p99=50ms" and told["requests"] < before
    server.set(10, 80)
    server.job.target(CPUS - 1)


@root_only
def test_no_other_user_gives_cores_for_it(roots):
    server = Server(roots.job("--max", str(CPUS), uid=ONE, name="server", slo="p99=50ms"))
    own, other = roots.job("--max", str(CPUS), uid=ONE, name="own"), roots.job("--max", str(CPUS), uid=TWO, name="other")
    server.set(10, 80)
    other.target(CPUS // 2), server.job.target(CPUS // 2 - 1), own.target(1)
    server.end()


def yields(job):
    """A kernel before 5.15 has the weight alone, which that of an idle group cannot be compared with."""
    eventually(lambda: group(job) != CPU_GROUP)
    if not (group(job) / "cpu.idle").exists():
        return weighs(job, 6)
    return eventually(lambda: (group(job) / "cpu.idle").read_text() == "1\n")


@root_only
@cpu_groups
def test_where_weights_can_be_set_the_others_yield_and_the_server_has_threads_on_all_cores(roots):
    server = Server(roots.job("--max", str(CPUS), name="server", slo="p99=50ms"))
    batch = roots.job("--max", str(CPUS), name="batch")
    server.set(10, 80)
    server.job.target(CPUS), batch.target(1)
    server.set(10, NEITHER)
    weighs(server.job, 100 * (CPUS - 1) + 94), yields(batch)
    assert f"needs {CPUS} cores, on 1 of them others yield" in server.job.get()["reason"]
    assert batch.get()["reason"].endswith("; yields to server for its promise")
    server.set(0, 0, in_flight=0)
    server.job.target(1), batch.target(CPUS - 1)
    weighs(server.job, 100), weighs(batch, 100 * (CPUS - 1))
    server.set(10, NEITHER)
    server.job.target(CPUS), yields(batch)
    server.end()


@root_only
@cpu_groups
@pytest.mark.parametrize("what", ["taken back", "another user", "reserve", "ended"])
def test_nobody_yields_any_longer_than_the_cause_lasts(roots, what):
    server = Server(roots.job("--max", str(CPUS), name="server", slo="p99=50ms"))
    batch = roots.job("--max", str(CPUS), name="batch")
    server.set(10, 80)
    server.job.target(CPUS), yields(batch)
    server.set(10, NEITHER)
    if what == "taken back":
        assert server.job.patch(slo=None)[0] == 200
        server.job.target(CPUS // 2), weighs(server.job, 100 * CPUS // 2), weighs(batch, 100 * CPUS // 2)
    elif what == "another user":
        roots.job("--max", str(CPUS), name="other", uid=TWO).target(CPUS // 2)
        server.job.target(CPUS // 2 - 1), weighs(server.job, 100 * (CPUS // 2 - 1)), weighs(batch, 100)
    elif what == "reserve":
        assert roots.api("PUT", "/v1/policy", {"policy": "equal/reserve=1"})[0] == 200
        server.job.target(CPUS - 2), weighs(batch, 100)
    else:
        server.end(), server.job.end()
        batch.target(CPUS), weighs(batch, 100 * CPUS)
    server.end()


@root_only
@cpu_groups
def test_a_job_yields_to_one_promise_only(roots):
    one, two = (Server(roots.job("--max", str(CPUS), name=name, slo="p99=50ms")) for name in ("one", "two"))
    batch = roots.job("--max", str(CPUS), name="batch")
    one.set(10, 80), two.set(10, 80)
    yields(batch)
    one.set(10, NEITHER), two.set(10, NEITHER)

    def reasons():
        return [job.get()["reason"] for job in (one.job, two.job, batch)]
    eventually(lambda: sum("others yield" in reason for reason in reasons()[:2]) == 1 and "yields to" in reasons()[2])
    assert sum(job.get()["target"] for job in (one.job, two.job, batch)) == CPUS + 1
    one.end(), two.end()


SERVES = POOL.replace("time.sleep(600)", """
lib.tide_request_begin.restype = ctypes.c_uint64
while True:
    began = ctypes.c_uint64(lib.tide_request_begin())
    time.sleep(0.01)
    lib.tide_request_end(began)
""")


def test_a_queued_job_begins_beside_a_server_that_has_all_cores(tide):
    queue = Queue(tide)
    queue.start("--cpus", "0-3", "--policy", "fcfs")
    try:
        tide.start("run", "--name", "server", "--slo", "p99=50ms", "--", "python3", "-c", SERVES)
        tide.wait(lambda: (queue.job("server") or {}).get("target") == 4 and (queue.job("server")["latency"] or {}).get("seconds"))
        job = queue.submit("--", "sleep", 600)
        queue.waits_for(job, "starting", "rigid")
        tide.wait(lambda: queue.job("server")["target"] == 3)
    finally:
        queue.end()


@root_only
@cpu_groups
@pytest.mark.parametrize("who", ["pinned", "promised", "quota", "min", "of-another", "reserve"])
def test_who_has_its_cores_for_a_reason_does_not_yield(roots, who):
    server = Server(roots.job("--max", str(CPUS), name="server", slo="p99=50ms"))
    more = {"promised": {"slo": "p99=50ms"}, "quota": {"placement": "quota"}, "min": {"min": 2},
            "of-another": {"uid": TWO}}.get(who, {})
    other = roots.job("--max", str(CPUS), name="other", **more)
    if who == "pinned":
        assert other.patch(threads=1)[1]["status"] == "done"
    if who == "reserve":  # the policy keeps cores unused on purpose
        assert roots.api("PUT", "/v1/policy", {"policy": "equal/reserve=1"})[0] == 200
    server.set(10, 80)
    server.job.target({"of-another": CPUS // 2, "min": CPUS - 2, "reserve": CPUS - 2}.get(who, CPUS - 1))
    assert "yield" not in server.job.get()["reason"] + other.get()["reason"]
    server.end()


def test_metrics_tell_requests_and_how_the_promise_is_kept(server, batch, tided):
    server.set(10, 80)
    eventually(lambda: server.latency() and server.latency()["seconds"] > 0)
    text = tided.metrics()
    assert 'tide_job_promise_seconds{job="j1",name="server",quantile="0.99"} 0.05' in text
    assert 'tide_job_latency_seconds{job="j1",name="server",quantile="0.99",source="told"} 0.' in text
    assert 'tide_job_promise_judged_seconds_total{job="j1",name="server",kept="no"}' in text
    assert 'tide_job_requests_in_flight{job="j1",name="server"} 1' in text and 'name="batch",quantile' not in text


def test_a_promise_that_is_given_to_a_running_job_repeats_no_order_of_its_program(tide):
    """The agent is welcomed once more, as calls of runtimes are wanted now."""
    queue = Queue(tide)
    queue.start("--cpus", "0-2", "--policy", "equal")
    try:
        process = tide.start_pool("pool")
        tide.wait(lambda: queue.job("pool")["target"] == 3)
        subprocess.run(["/bin/kill", "-s", "RTMIN+7", "-q", "3", str(process.pid)], check=True)
        tide.wait(lambda: queue.job("pool")["pinned"] == 3)
        assert tide("set", "pool", "--auto").returncode == 0
        assert tide("set", "pool", "--slo", "p99=50ms").returncode == 0
        time.sleep(0.8)  # three heartbeats
        assert (queue.job("pool")["pinned"], queue.job("pool")["target"]) == (None, 3)
    finally:
        queue.end()


# ---- several processes of a server ----

class Workers:
    """A job of several processes, as gunicorn's workers, each of which tells requests like a Server."""

    def __init__(self, tided, count, **request):
        self.job = tided.job("--max", str(CPUS), **request)
        self.servers = [Server(self.job)]
        for _ in range(count - 1):
            peer = tided.peer("--max", str(CPUS), uid=USER)
            peer.go(self.job.token, self.job.id, self.job.name)
            peer.expect("welcome")
            self.servers.append(Server(Job(tided, peer, {"id": self.job.id, "name": self.job.name, "token": self.job.token})))

    def set(self, *told):
        for server in self.servers:
            server.set(*told)

    def split(self):
        return [part["threads"] for part in self.job.get()["split"] or []]

    def end(self):
        for server in self.servers:
            server.end()


def test_requests_of_all_workers_count_together_and_its_cores_are_divided_over_them(tided, batch):
    workers = Workers(tided, 4, name="server", slo="p99=50ms")
    workers.set(3, 80, 2)
    eventually(lambda: (seen := workers.job.get()["latency"]) and seen["in_flight"] == 8 and seen["need"] == CPUS - 1)
    eventually(lambda: (split := workers.split()) and len(split) == 4 and sum(split) == CPUS - 1 and min(split) >= 1)
    batch.target(1)
    workers.set(3, NEITHER, 2)
    eventually(lambda: (workers.job.get()["latency"]["p99_us"] or 0) < 50_000)
    workers.servers[0].set(3, 80, 2)  # a quarter of the requests
    eventually(lambda: (workers.job.get()["latency"]["p99_us"] or 0) > 72_000)
    gone = workers.servers.pop()  # a worker that is replaced
    before = workers.job.get()["latency"]["requests"]
    gone.end(), gone.job.peer.end()
    eventually(lambda: (seen := workers.job.get()["latency"])["in_flight"] == 6 and seen["requests"] > before + 30)
    eventually(lambda: len(split := workers.split()) == 3 and sum(split) == CPUS - 1)
    workers.end()


def test_two_servers_of_several_processes_that_exclude_each_other_settle(tided, batch):
    one, two = (Workers(tided, 3, name=name, slo="p99=50ms") for name in ("one", "two"))
    one.set(4, 80), two.set(4, 80)
    eventually(lambda: all("is not kept" in w.job.get()["reason"] for w in (one, two)))
    jobs = one.job, two.job, batch
    eventually(lambda: (now := targets(*jobs)) and sum(now) == CPUS and min(now) >= 1)
    seen = {w.job.name: len(w.job.changes()) for w in (one, two)}
    time.sleep(2)
    assert all(len(w.job.changes()) <= seen[w.job.name] + 6 for w in (one, two))  # a trial, and back
    one.end(), two.end()


WORKERS = """
import os, time
import threadtide
print("runs", flush=True)
for worker in range(4):
    if os.fork() == 0:
        for _ in range(40):
            with threadtide.request():
                time.sleep(0.02)
        time.sleep(60)
time.sleep(60)
"""


def test_workers_that_a_program_forks_are_one_server(tide):
    program = tide.start("run", "--name", "server", "--slo", "p99=5ms", "--", sys.executable, "-c", WORKERS,
                         env={"PYTHONPATH": str(ROOT / "python"), "TIDE_LIBRARY": str(BUILD / "libtide.so.1")}, stdout=subprocess.PIPE)
    assert program.stdout.readline() == "runs\n"
    told = eventually(lambda: (job := tide.job("server")) and job["latency"] and job["latency"]["requests"] == 160 and job)
    assert told["latency"]["in_flight"] == 0 and told["latency"]["seconds_kept"] == 0


# ---- whether it can be kept ----

def judged(job):
    return job.get()["promise"]


def slow_runs(tided, name="serve", uid=USER):
    """A run whose requests all took 80 ms, which is known afterwards."""
    ran = Server(tided.job("--max", str(CPUS), name=name, slo="p99=50ms", uid=uid))
    assert judged(ran.job) == {"keepable": "unknown", "reason": "too little was measured of it so far"}
    ran.set(10, 80)
    eventually(lambda: ran.latency() and ran.latency()["requests"] >= 110)
    ran.job.patch(slo="p99=20ms")
    eventually(lambda: judged(ran.job)["keepable"] == "no")
    ran.end(), ran.job.end()
    eventually(lambda: tided.api("GET", "/v1/jobs")[1] == [])


def test_a_promise_that_no_request_ever_met_is_said_to_be_impossible_and_is_not_refused(tided):
    slow_runs(tided)
    assert (tided.job("--max", "2", name="plain")).get()["promise"] is None
    tided.stop(), tided.start()
    peer = tided.peer("--max", str(CPUS), uid=USER)
    status, answer = tided.api("POST", "/v1/jobs", {"pid": peer.pid, "name": "serve", "slo": "p99=20ms"})
    assert status == 201 and answer["note"].startswith("its promise p99=20ms cannot be kept as far as is known: the fastest of ")
    job = next(j for j in tided.api("GET", "/v1/jobs")[1] if j["name"] == "serve")
    assert job["promise"]["keepable"] == "no" and "requests took more than 7" in job["promise"]["reason"] and "cannot be kept" in job["note"]
    assert any("cannot be kept" in note for note in tided.api("GET", "/v1/machine")[1]["notes"])
    assert 'tide_job_promise_keepable{job="%s",name="serve",keepable="no"} 1' % job["id"] in tided.metrics()
    status, answer = tided.api("PATCH", f"/v1/jobs/{job['id']}", {"slo": "p99=200ms"})
    assert status == 200 and answer["promise"]["keepable"] == "unknown"
    status, answer = tided.api("PATCH", f"/v1/jobs/{job['id']}", {"slo": "p99=10ms"})
    assert status == 200 and answer["promise"]["keepable"] == "no"


def test_other_promises_that_need_all_cores_make_a_first_run_no_more_than_unknown(tided, server, batch):
    server.set(10, 80)
    server.job.target(CPUS - 1)
    server.set(10, NEITHER)
    job = tided.job("--max", str(CPUS), name="second", slo="p99=50ms")
    assert judged(job)["keepable"] == "unknown" and "other promises of its user need" in judged(job)["reason"]


@root_only
def test_an_administrators_key_refuses_what_cannot_be_kept_and_programs_run_without(place, public_dir, build_dir):
    conf = public_dir / "tide.conf"
    conf.write_text("[daemon]\npromises=refuse\n")
    tided = place.daemon("--config", conf, "--cpus", f"0-{CPUS - 1}").start()
    slow_runs(tided, uid=ONE)
    tide = shutil.copy(build_dir / "tide", public_dir)
    user = ["setpriv", f"--reuid={ONE}", f"--regid={ONE}", "--clear-groups", tide]
    env = {**os.environ, "TIDE_DIR": str(tided.dir)}
    run = subprocess.Popen([*user, "run", "--name", "serve", "--slo", "p99=20ms", "--weight=200", "--", "sleep", "600"], env=env,
                           stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        (job,) = eventually(tided.jobs)
        assert (job["name"], job["slo"], job["weight"]) == ("serve", None, 200)

        def ordered(slo, who=user):
            return subprocess.run([*who, "set", "serve", "--slo", slo], env=env, capture_output=True, text=True, timeout=60)
        refused = ordered("p99=10ms")
        assert refused.returncode != 0 and "the promise p99=10ms cannot be kept: the fastest of" in refused.stderr
        assert ordered("p99=200ms").returncode == 0 and tided.jobs()[0]["slo"] == "p99=200ms"
        warned = ordered("p99=10ms", [tide])  # root's word
        assert warned.returncode == 0 and "its promise cannot be kept as far as is known: the fastest of" in warned.stderr
    finally:
        run.kill()
        said = run.communicate()[1]
    (line,) = [line for line in said.splitlines() if "the program is a job without --slo: " in line]
    assert "tide why promise-refused" in line and "the fastest of" in line


def test_an_administrator_promises_for_programs_by_their_name(place, public_dir):
    conf = public_dir / "tide.conf"
    conf.write_text(f"[daemon]\npromises=refuse\nslo={USER or os.geteuid()}/mine:p99=20ms\nslo=serve*:p99=50ms\n")
    tided = place.daemon("--config", conf, "--cpus", f"0-{CPUS - 1}", uid=USER).start()

    def slo(name, **more):
        return tided.job("--max", "2", name=name, uid=USER, **more).get()["slo"]
    assert (slo("mine"), slo("serve"), slo("server-2"), slo("other")) == ("p99=20ms", "p99=50ms", "p99=50ms", None)
    assert slo("serve-3", slo="p99=80ms") == "p99=80ms"  # the job's own
    peer = tided.peer("--max", "2", uid=USER)
    name = f"mine-{peer.pid}"  # as `tide run` calls a program without --name
    assert tided.api("POST", "/v1/jobs", {"pid": peer.pid, "name": name})[0] == 201
    job = next(j for j in tided.jobs() if j["name"] == name)
    assert job["slo"] == "p99=20ms"
    status, answer = tided.api("PATCH", f"/v1/jobs/{job['id']}", {"slo": None})
    assert status == 200, answer
    eventually(lambda: next(j for j in tided.jobs() if j["name"] == name)["slo"] is None)


def test_a_configured_promise_that_cannot_be_kept_is_said_and_not_refused(place, public_dir):
    conf = public_dir / "tide.conf"
    conf.write_text("[daemon]\npromises=refuse\nslo=serve:p99=20ms\n")
    tided = place.daemon("--config", conf, "--cpus", f"0-{CPUS - 1}", uid=USER).start()
    slow_runs(tided)
    peer = tided.peer("--max", str(CPUS), uid=USER)
    status, answer = tided.api("POST", "/v1/jobs", {"pid": peer.pid, "name": "serve"})
    assert status == 201 and answer["note"].startswith("its promise p99=20ms cannot be kept as far as is known: the fastest of ")


PROGRAM = """
import os, threading, time
import threadtide
slow = threadtide.request()
with slow:                                         # a queue: these end on other threads
    def one():
        with threadtide.request():
            time.sleep(0.02)
    threads = [threading.Thread(target=one) for _ in range(20)]
    [t.start() for t in threads], [t.join() for t in threads]
    time.sleep(0.3)

@threadtide.request()
def handler():
    time.sleep(0.001)

for _ in range(30):
    handler()
began = time.perf_counter()
for _ in range(20000):
    with threadtide.request():
        pass
print((time.perf_counter() - began) / 20000 * 1e6, flush=True)
if os.fork() == 0:
    threadtide._lib.library.tide_request_end(5)    # began before the fork: not its own
    with threadtide.request():
        time.sleep(0.05)
time.sleep(60)
"""


def test_a_program_tells_its_requests_through_the_agent(tide):
    program = tide.start("run", "--name", "server", "--slo", "p99=50ms", "--", sys.executable, "-c", PROGRAM,
                         env={"PYTHONPATH": str(ROOT / "python"), "TIDE_LIBRARY": str(BUILD / "libtide.so.1")},
                         stdout=subprocess.PIPE)
    microseconds = float(program.stdout.readline())
    assert microseconds < 50  # about one; sanitizers and busy machines take longer
    eventually(lambda: (tide.job("server")["latency"] or {}).get("requests") == 1 + 20 + 30 + 20000 + 1)
    eventually(lambda: tide.job("server")["latency"]["in_flight"] == 0)
    assert "promised 50 ms" in tide("explain", "server").stdout
    row = next(line for line in tide("ps").stdout.splitlines() if "server" in line)
    assert "/50ms" in row
