# SPDX-License-Identifier: Apache-2.0
"""tided against fake peers: registering, sharing, setting, explaining, lending."""
import os
import signal
import struct
import subprocess
import time

import pytest

from daemon import (BORROW, LEND, LIST, QUIET, RECLAIM, RETURN, SET, TARGET, WAIT, WELCOME, 
                    Raw, acknowledgement, backend, control, eventually, hello)


@pytest.fixture
def tided(place):
    return place.daemon("--cpus", "0-7").start()


# ---- registering ----

def test_a_registered_job_is_listed_with_every_field_of_the_contract(tided):
    job = tided.job(name="cnn", min=2, max=6, weight=50)
    seen = job.target(6)
    assert seen["id"] == "j1" and seen["name"] == "cnn" and seen["owner"] == "root"
    assert seen["state"] == "running" and seen["pids"] == [job.peer.pid]
    assert (seen["min"], seen["limit"], seen["weight"]) == (2, 6, 50)
    assert seen["max"] == 8 and seen["pinned"] is None and seen["placement"] == "shared"
    assert seen["cores"] == "0-7" and seen["allowed"] == 8
    backend, = seen["backends"]
    assert backend["name"] == "fake" and backend["version"] == "1.0" and backend["malleable"]
    assert set(seen) >= {"active", "oversubscribed", "lent", "borrowed", "progress", "reason",
                         "elapsed_s"}
    assert [j["id"] for j in tided.jobs()] == ["j1"]


def test_a_job_is_found_by_id_name_and_pid_and_by_nothing_else(tided):
    job = tided.job(name="cnn")
    for key in ("j1", "cnn", job.peer.pid):
        assert tided.api("GET", f"/v1/jobs/{key}")[1]["id"] == "j1"
    for key in ("j2", "cn", "cnn2", "1", "99999999999999999999", "-1", "0"):
        status, answer = tided.api("GET", f"/v1/jobs/{key}")
        assert status == 404 and key in answer["error"]["message"]


def test_tokens_are_random_and_of_32_hex_digits(tided):
    tokens = {tided.job().token for _ in range(3)}
    assert len(tokens) == 3
    assert all(len(t) == 32 and set(t) <= set("0123456789abcdef") for t in tokens)


def test_a_process_that_registers_again_leaves_its_former_job(tided):
    job = tided.job(name="outer")
    status, answer = tided.api("POST", "/v1/jobs", {"pid": job.peer.pid, "name": "inner"})
    assert status == 201
    eventually(lambda: [j["name"] for j in tided.jobs()] == ["inner"])


def test_a_job_ends_with_its_last_process(tided):
    job = tided.job()
    job.peer.tell("fork")
    eventually(lambda: len(job.get()["pids"]) == 2)
    job.peer.end()  # takes the child with it
    eventually(lambda: tided.jobs() == [])
    eventually(lambda: list((tided.dir / "jobs").glob("*.json")) == [])


@pytest.mark.parametrize("body, words", [
    ({"min": 4, "max": 2}, ["min is 4", "max", "2"]),
    ({"min": 0}, ["min is 0", "1 to 4096"]),
    ({"max": -1}, ["max is -1", "1 to 4096"]),
    ({"max": 10 ** 9}, ["max is 1000000000", "1 to 4096"]),
    ({"weight": 0}, ["weight is 0", "1 to 10000"]),
    ({"threads": "abc"}, ['threads is "abc"', "1 to 4096"]),
    ({"threads": 1.5}, ["threads is 1.5"]),
    ({"threads": True}, ["threads is true"]),
    ({"threads": 2 ** 63 - 1}, ["threads is 9223372036854775807"]),
    ({"placement": "best"}, ["placement is 'best'", "shared, exclusive or quota"]),
    ({"name": ""}, ["name is ''"]),
    ({"name": "a b"}, ["name is 'a b'"]),
    ({"name": "17"}, ["name is '17'"]),
    ({"name": "j17"}, ["name is 'j17'"]),
    ({"name": "x" * 64}, ["name is 'xxx"]),
    ({"name": 5}, ["name is 5"]),
    ({"name": "nul\0nul"}, ["JSON"]),
    ({"pid": 2 ** 31 - 1}, ["pid is 2147483647"]),
    ({"colour": "red"}, ["unknown field 'colour'"]),
])
def test_a_bad_registration_is_refused_with_field_value_and_range(tided, body, words):
    status, answer = tided.api("POST", "/v1/jobs", body)
    assert status == 400
    for word in words:
        assert word in answer["error"]["message"]
    assert tided.jobs() == []


def test_a_taken_name_is_refused(tided):
    tided.job(name="cnn")
    status, answer = tided.api("POST", "/v1/jobs", {"name": "cnn", "pid": os.getpid()})
    assert status == 409 and "'cnn' is taken by job j1" in answer["error"]["message"]
    assert len(tided.jobs()) == 1


@pytest.mark.parametrize("raw", ["{", "[]", "5", '{"min":1,"min":2}', '{"min":1}x', "\xff",
                                 "[" * 20000])
def test_a_body_that_is_no_json_object_is_refused(tided, raw):
    assert tided.api("POST", "/v1/jobs", raw=raw.encode("latin-1"))[0] == 400
    assert tided.answers()


def test_a_body_over_64_kib_is_refused(tided):
    status, answer = tided.api("POST", "/v1/jobs", raw=b'{"name":"' + b"x" * 70000 + b'"}')
    assert status == 413 and "65536" in answer["error"]["message"]


@pytest.mark.parametrize("method, path, status", [
    ("GET", "/", 404), ("GET", "/v1/jobs/", 404), ("GET", "/v1/jobs/x/y/z", 404),
    ("DELETE", "/v1/jobs", 405), ("GET", "/v1/jobs/%00", 404), ("GET", "/v1/" + "a" * 3000, 404),
])
def test_unknown_paths_and_methods_get_an_error(tided, method, path, status):
    assert tided.api(method, path)[0] == status


# ---- sharing ----

def test_equal_shares_while_jobs_come_and_go(tided):
    jobs = []
    for count, shares in ((1, [8]), (2, [4, 4]), (3, [3, 3, 2]), (4, [2, 2, 2, 2])):
        jobs.append(tided.job())
        for job, share in zip(jobs, shares, strict=True):
            job.target(share)
    for shares in ([3, 3, 2], [4, 4], [8]):
        jobs.pop().end()
        for job, share in zip(jobs, shares, strict=True):
            job.target(share)


def test_min_max_and_weight_bound_a_share(tided):
    small, big = tided.job(max=1), tided.job()
    small.target(1), big.target(7)
    greedy = tided.job(min=5)
    greedy.target(5), small.target(1), big.target(2)
    assert greedy.patch(min=1, weight=200)[0] == 200
    greedy.target(5), big.target(2)  # 7 cores as 2 : 1
    assert small.patch(max=None)[0] == 200
    small.target(2), greedy.target(4), big.target(2)


def test_more_jobs_than_cores_have_one_thread_each(place):
    tided = place.daemon("--cpus", "0-1").start()
    for job in [tided.job() for _ in range(4)]:
        job.target(1)
    assert tided.api("GET", "/v1/machine")[1]["oversubscribed"]


def test_a_pool_that_is_smaller_than_the_share_leaves_the_rest_to_others(tided):
    small, other = tided.job("--max", "2"), tided.job()
    small.target(2), other.target(6)
    small.peer.tell("max 8")
    small.target(4), other.target(4)


def test_a_job_without_agent_counts_as_one_core_and_never_more(tided):
    silent = tided.job("--no-backend")
    job = tided.job()
    job.target(7)
    assert silent.get()["state"] == "starting"
    assert [w for w in silent.peer.silent(0.3) if w[0] == "target"] == []


def test_a_script_counts_for_no_core_until_a_program_of_it_reports_threads(tided):
    script, job = tided.job("--no-backend", script=True), tided.job()
    job.target(8)
    program = tided.peer()
    program.go(script.token, script.id, script.name)
    job.target(4)


def test_a_rigid_job_says_so_and_gets_no_target(tided):
    rigid, job = tided.job("--rigid"), tided.job()
    job.target(4)
    seen = rigid.get()
    assert seen["state"] == "rigid" and seen["backends"][0]["note"] == "unknown version"
    assert not seen["backends"][0]["malleable"]
    assert [w for w in rigid.peer.silent(0.3) if w[0] == "target"] == []


def test_several_processes_share_the_jobs_threads_and_have_one_at_least(tided):
    job = tided.job()
    job.peer.tell("fork")
    eventually(lambda: sorted(b["target"] for b in job.get()["backends"]) == [4, 4])
    assert job.patch(threads=3)[1]["status"] == "done"
    eventually(lambda: sorted(b["target"] for b in job.get()["backends"]) == [1, 2])
    assert job.patch(threads=1)[1]["status"] == "done"
    eventually(lambda: sorted(b["target"] for b in job.get()["backends"]) == [1, 1])


def test_an_agent_without_token_belongs_to_the_job_of_its_ancestor(tided):
    # The shell is registered, as `tide run` would be; the peer below it never learns the token.
    shell = subprocess.Popen(["sh", "-c", 'read l; echo "$l" | "$0"; :', tided.peer_program],
                             stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
                             env={**os.environ, "TIDE_SOCKET": str(tided.dir / "agent.sock")})
    try:
        status, answer = tided.api("POST", "/v1/jobs", {"pid": shell.pid})
        assert status == 201
        shell.stdin.write("go - - -\n")
        shell.stdin.close()
        seen = eventually(lambda: (j := tided.jobs()[0])["state"] == "running" and j)
        assert seen["id"] == answer["id"] and len(seen["pids"]) == 2
    finally:
        for pid in tided.jobs()[0]["pids"]:
            os.kill(pid, signal.SIGKILL)
        shell.wait()


# ---- setting ----

def test_a_set_is_acknowledged_and_explained(tided):
    job = tided.job()
    job.target(8)
    status, answer = job.patch(threads=3)
    assert status == 200
    assert (answer["from"], answer["to"], answer["status"]) == (8, 3, "done")
    assert answer["latency_us"] > 0 and not answer["oversubscribed"]
    assert job.get()["pinned"] == 3 and job.get()["active"] == 3
    last = job.changes()[-1]
    assert (last["from"], last["to"], last["cores"]) == (8, 3, "0-7")
    assert "3" in last["reason"] and last["latency_us"] > 0 and abs(last["time"] - time.time()) < 60
    assert job.patch(threads=8)[1]["reason"] == job.get()["reason"] == "pinned to 8 by hand"
    answer = job.patch(auto=True)[1]
    assert answer["to"] == 8 and "pinned" not in answer["reason"]
    assert job.get()["pinned"] is None and "pinned" not in job.get()["reason"]


def test_intra_and_inter_are_sent_apart(tided):
    job = tided.job("--inter", "4")
    job.target(8)
    assert job.patch(intra=3, inter=2)[1]["status"] == "done"
    job.peer.expect("target", 3, 2)
    assert job.get()["backends"][0]["inter"]["target"] == 2


def test_threads_above_the_cores_are_accepted_and_marked(tided):
    job = tided.job("--max", "64")
    job.target(8)
    answer = job.patch(threads=20)[1]
    assert answer["to"] == 20 and answer["oversubscribed"] and job.get()["oversubscribed"]
    assert job.patch(threads=8)[1]["oversubscribed"] is False


@pytest.mark.parametrize("body, words", [
    ({"threads": 0}, ["threads is 0", "1 to 4096"]), ({"threads": -1}, ["threads is -1"]),
    ({"threads": 10 ** 9}, ["threads is 1000000000"]), ({"threads": "abc"}, ['threads is "abc"']),
    ({"min": 9, "max": 3}, ["min is 9"]), ({}, ["nothing to change"]),
    ({"deadline_ms": 100}, ["nothing to change"]), ({"inter": 2}, ["inter without intra"]),
    ({"threads": 2, "auto": True}, ["exclude"]), ({"threads": 2, "intra": 2}, ["exclude"]),
    ({"auto": False}, ["auto"]), ({"deadline_ms": 0, "threads": 1}, ["deadline_ms is 0"]),
    ({"name": "new"}, ["unknown field 'name'"]),
])
def test_a_bad_change_is_refused_and_changes_nothing(tided, body, words):
    job = tided.job()
    before = job.target(8)
    status, answer = job.patch(**body)
    assert status == 400
    for word in words:
        assert word in answer["error"]["message"]
    after = job.get()
    assert all(before[k] == after[k] for k in ("target", "min", "limit", "weight", "pinned"))


def test_a_set_before_there_is_a_pool_is_pending_and_applied_later(tided):
    job = tided.job("--no-backend")
    assert job.patch(threads=3)[1]["status"] == "pending"
    later = tided.job("--later", threads=2)
    later.peer.expect("target", 2)
    assert later.patch(threads=3)[1]["status"] == "pending"


def test_a_peer_that_never_acknowledges_is_partial_and_oversubscribed(tided):
    deaf, other = tided.job("--no-ack"), tided.job()
    deaf.peer.expect("target", 4)
    start = time.monotonic()
    status, answer = deaf.patch(threads=2, deadline_ms=300)
    assert status == 200 and answer["status"] == "partial" and answer["oversubscribed"]
    assert time.monotonic() - start >= 0.3
    assert deaf.get()["oversubscribed"]
    other.target(6)  # what it should have left is given on
    deaf.peer.tell("ack")
    eventually(lambda: not deaf.get()["oversubscribed"])


@pytest.mark.parametrize("placement", ["shared", "quota"])
def test_a_grow_waits_for_the_others_shrink(tided, placement):
    slow = tided.job("--no-ack", placement=placement)
    slow.peer.expect("target", 8)
    job = tided.job(placement=placement)
    job.peer.expect("target", 4)  # from what its own pool had
    job.patch(weight=300, deadline_ms=10)  # 6 : 2
    slow.peer.expect("target", 2)
    assert [w for w in job.peer.silent(0.5) if w[:2] == ["target", "6"]] == []
    slow.peer.tell("ack")
    job.peer.expect("target", 6)


def test_a_process_on_its_way_to_a_safe_point_is_not_waited_for(tided):
    """It says so and keeps its threads; once it is there, all is as ever."""
    slow = tided.job("--no-ack")
    slow.peer.expect("target", 8)
    job = tided.job()
    job.target(4)
    slow.peer.tell("ack")
    slow.target(4)
    slow.peer.tell("mute")
    job.patch(weight=300, deadline_ms=10)  # 6 : 2
    slow.peer.expect("target", 2)
    slow.peer.tell("wait")
    job.peer.expect("target", 6)
    assert not slow.get()["oversubscribed"], "the target came at the end of the grace"
    assert slow.get()["note"].startswith("waiting for a safe point")
    assert slow.get()["active"] == 4
    slow.peer.tell("ack")
    assert slow.target(2)["note"] == ""


def test_an_ordered_grow_in_shared_does_not_wait_for_others(tided):
    slow, job = tided.job("--no-ack"), tided.job()
    job.target(4)
    answer = job.patch(threads=6)[1]
    assert answer["status"] == "done" and answer["latency_us"] < 1e6
    slow.peer.expect("target", 2)


def test_acknowledgements_of_older_generations_do_not_count(tided):
    agent = Raw(tided.dir / "agent.sock")
    agent.send(hello("a" * 32))
    agent.send(backend(8))
    assert agent.receive()[0] == WELCOME
    kind, first = agent.receive()
    assert kind == TARGET
    agent.send(acknowledgement(first))
    eventually(lambda: tided.jobs()[0]["active"] == 8 or tided.jobs()[0]["target"] == 8)
    controller = tided.controller()
    controller.send(control(SET, flags=WAIT, intra=2, deadline_ms=300, job="j1"))
    kind, second = agent.receive()
    assert kind == TARGET and struct.unpack_from("<QQI", second)[:2] > struct.unpack_from("<QQ", first)
    agent.send(acknowledgement(first))  # once more: it is old news
    assert controller.result()["status"] == 1
    assert tided.jobs()[0]["oversubscribed"]
    agent.send(acknowledgement(second))
    eventually(lambda: not tided.jobs()[0]["oversubscribed"])


def test_the_latest_of_many_orders_wins(tided):
    job = tided.job()
    job.target(8)
    controller = tided.controller()
    for i in range(200):
        controller.send(control(SET, flags=QUIET, intra=1 + i % 7, job="j1"))
    assert controller.order(SET, flags=WAIT, intra=5, job="j1")["status"] == 0
    job.target(5)
    generations = []
    while not job.peer.words.empty():
        word = job.peer.words.get()
        if word[0] == "target":
            generations.append(int(word[4]))
    assert generations == sorted(generations)


def test_a_target_set_from_within_pins_and_zero_lets_go(tided):
    job = tided.job()
    job.target(8)
    job.peer.tell("local 3 0")
    assert job.target(3)["pinned"] == 3
    assert "program" in job.get()["reason"]
    job.peer.tell("local 0 0")
    assert job.target(8)["pinned"] is None


def test_progress_is_shown_with_unit_and_rate(tided):
    job = tided.job("--beat", "20")
    assert eventually(lambda: job.get()["progress"]["rate"]) > 0
    assert job.get()["progress"]["unit"] == "tasks"
    job.peer.tell("progress 50 200 steps")
    seen = eventually(lambda: (p := job.get()["progress"])["unit"] == "steps" and p)
    assert (seen["done"], seen["total"]) == (50, 200)


def test_a_job_that_ran_with_different_threads_has_a_speedup(tided):
    job = tided.job("--beat", "100")  # whose work is in proportion to its threads
    assert tided.api("GET", f"/v1/jobs/{job.id}/explain")[1]["speedup"] is None
    for threads in (8, 2):
        job.patch(threads=threads)
        before = job.target(threads)["progress"]["done"]
        # it does 100 a second with each thread; a sample takes a second
        eventually(lambda: job.get()["progress"]["done"] - before > 350 * threads)
    found = eventually(lambda: tided.api("GET", f"/v1/jobs/{job.id}/explain")[1]["speedup"])
    assert found["counts"] == 2 and len(found["table"]) == 8
    assert found["table"][0] == 1 and sorted(found["table"]) == found["table"]
    assert 0.8 < found["parallel"] <= 1 and 0 < found["confidence"] <= 1
    assert found["resize_us"] > 0


# ---- controllers ----

def test_a_controller_lists_sets_and_waits(tided):
    job = tided.job(name="cnn")
    job.target(8)
    controller = tided.controller()
    row, = controller.list()
    assert (row["id"], row["name"], row["target"], row["state"]) == ("j1", "cnn", 8, "running")
    result = controller.order(SET, flags=WAIT, intra=3, job="cnn")
    assert (result["status"], result["from"], result["to"]) == (0, 8, 3)
    assert 0 < result["latency_ns"] < 30e9
    assert job.get()["active"] == 3
    assert controller.order(SET, intra=0, job=str(job.peer.pid))["to"] == 8


def test_a_waiting_order_is_partial_at_its_deadline(tided):
    job = tided.job("--no-ack")
    job.peer.expect("target", 8)
    result = tided.controller().order(SET, flags=WAIT, intra=2, deadline_ms=100, job="j1")
    assert result["status"] == 1 and result["oversubscribed"]
    assert result["latency_ns"] >= 100e6


def test_a_quiet_order_is_answered_only_when_it_fails(tided):
    tided.job().target(8)
    controller = tided.controller()
    controller.send(control(SET, flags=QUIET, intra=2, job="j1", cookie=1))
    controller.send(control(SET, flags=QUIET, intra=2, job="none", cookie=2))
    result = controller.result()
    assert result["status"] == -3 and "'none'" in result["text"]


def test_the_wait_of_a_job_that_ends_is_answered(tided):
    job = tided.job("--no-ack")
    job.peer.expect("target", 8)
    controller = tided.controller()
    controller.send(control(SET, flags=WAIT, intra=2, deadline_ms=20000, job="j1"))
    job.peer.expect("target", 2)
    job.peer.end()
    controller.socket.settimeout(10)  # long before the deadline
    assert controller.result()["status"] in (-3, 0)  # 0: the agent's hang-up was seen first


def test_a_controller_that_does_not_read_blocks_nobody(tided):
    jobs = [tided.job() for _ in range(8)]
    deaf = tided.controller()
    deaf.socket.settimeout(0.2)
    try:
        for _ in range(100000):  # more than sockets hold; the daemon stops reading it
            deaf.send(control(LIST))
    except TimeoutError:
        pass
    assert jobs[0].patch(threads=2)[1]["status"] == "done"
    deaf.close()
    assert tided.answers()


def test_lend_borrow_reclaim_and_return(tided):
    owner, borrower = tided.job(name="owner"), tided.job(name="borrower")
    owner.target(4), borrower.target(4)
    controller = tided.controller()
    result = controller.order(LEND, flags=WAIT, intra=3, job="owner")
    assert (result["status"], result["from"], result["to"]) == (0, 0, 3)
    assert owner.target(1)["lent"] == 3
    result = controller.order(BORROW, flags=WAIT, intra=2, job="borrower")
    assert (result["status"], result["to"]) == (0, 2)
    assert borrower.target(6)["borrowed"] == 2
    result = controller.order(RETURN, flags=WAIT, job="borrower")
    assert (result["status"], result["from"], result["to"]) == (0, 2, 0)
    borrower.target(4)
    controller.order(BORROW, flags=WAIT, intra=3, job="borrower")
    borrower.target(7)
    result = controller.order(RECLAIM, flags=WAIT, job="owner")
    assert (result["status"], result["from"], result["to"]) == (0, 3, 0)
    owner.target(4), borrower.target(4)
    assert borrower.get()["borrowed"] == 0 and owner.get()["lent"] == 0


def test_a_borrower_waits_for_a_lender_and_parks_first_at_a_reclaim(tided):
    owner, borrower = tided.job(name="owner"), tided.job(name="borrower")
    owner.target(4), borrower.target(4)
    controller = tided.controller()
    result = controller.order(BORROW, intra=2, job="borrower")
    assert result["status"] == 1 and result["to"] == 0  # fewer than asked for, so far
    controller.order(LEND, intra=2, job="owner")
    borrower.target(6), owner.target(2)
    controller.order(RECLAIM, flags=WAIT, job="owner")
    borrower.target(4), owner.target(4)


def test_lending_keeps_the_minimum_and_refuses_nonsense(tided):
    owner = tided.job(name="owner", min=3)
    owner.target(8)
    controller = tided.controller()
    result = controller.order(LEND, intra=20, job="owner")
    assert result["status"] == 1 and result["to"] == 5
    owner.target(3)
    assert controller.order(LEND, intra=0, job="owner")["status"] == -22
    assert controller.order(BORROW, intra=0, job="owner")["status"] == -22
    assert controller.order(RECLAIM, job="owner")["to"] == 0
    controller.order(SET, intra=2, job="owner")
    result = controller.order(LEND, intra=1, job="owner")
    assert result["status"] == -16 and "pinned" in result["text"]


def test_lent_cores_go_back_when_the_lender_ends(tided):
    owner, borrower = tided.job(name="owner"), tided.job(name="borrower", max=6)
    owner.target(4), borrower.target(4)
    controller = tided.controller()
    controller.order(LEND, intra=2, job="owner")
    controller.order(BORROW, intra=2, job="borrower")
    borrower.target(6)
    owner.end()
    # All six are the borrower's own now.
    eventually(lambda: (j := borrower.get())["borrowed"] == 0 and j["target"] == 6)


# ---- the rest ----

def test_machine_and_policy(tided):
    machine = tided.api("GET", "/v1/machine")[1]
    assert (machine["cpus"], machine["online"], machine["free"]) == (8, "0-7", 8)
    assert machine["pid"] == tided.process.pid and machine["policy"] == "equal"
    policy = tided.api("GET", "/v1/policy")[1]
    assert policy["name"] == "equal" and any(p["name"] == "equal" for p in policy["policies"])
    assert tided.api("PUT", "/v1/policy", {"name": "equal"})[0] == 200
    status, answer = tided.api("PUT", "/v1/policy", {"name": "luck"})
    assert status == 400 and '"luck"' in answer["error"]["message"]


def test_only_the_last_64_changes_are_kept(tided):
    job = tided.job()
    job.target(8)
    for i in range(70):
        assert job.patch(threads=1 + i % 2)[0] == 200
    changes = job.changes()
    assert len(changes) == 64 and changes[-1]["to"] == 2 and changes[-2]["to"] == 1


def test_auto_exit_ends_after_the_last_job(place):
    tided = place.daemon("--auto-exit").start()
    job = tided.job()
    job.peer.silent(3)
    assert not tided.ended()
    job.peer.end()
    assert tided.process.wait(30) == 0
    assert not (tided.dir / "api.sock").exists()


def test_sigterm_releases_agents_and_exits_0(tided):
    job = tided.job()
    job.target(8)
    assert tided.stop() == 0
    job.peer.expect("target", 0)


def test_a_second_daemon_in_the_same_directory_refuses(place, tided):
    second = place.daemon(directory=tided.dir).start(ready=False)
    assert second.process.wait(30) == 1
    assert "another tided" in second.log.read_text()
    assert tided.answers()


def test_processors_that_do_not_exist_are_refused(place):
    daemon = place.daemon("--cpus", "1020").start(ready=False)
    assert daemon.process.wait(30) == 1
    assert "cpus: none of these CPUs is online" in daemon.log.read_text()


@pytest.mark.parametrize("options, word", [
    (["--placement", "best"], "shared, exclusive or quota"), (["--policy", "luck"], "luck"),
    (["--cpus", "3-1"], "0-3,8"), (["--dir", "relative"], "absolute"), (["--nonsense"], "--help"),
    (["extra"], "extra"), (["--heartbeat", "99"], "100 to 500"), (["--heartbeat", "1s"], "100 to 500"),
])
def test_bad_options_are_usage_errors(build_dir, options, word):
    done = subprocess.run([build_dir / "tided", *options], capture_output=True, text=True,
                          timeout=30)
    assert done.returncode == 2 and word in done.stderr


def test_help_and_version(build_dir):
    for option, word in (("--help", "--auto-exit"), ("--version", "tided ")):
        done = subprocess.run([build_dir / "tided", option], capture_output=True, text=True,
                              timeout=30)
        assert done.returncode == 0 and word in done.stdout and not done.stderr


def test_agents_report_as_often_as_the_daemon_was_told_to_ask(place):
    raw = place.daemon("--heartbeat", "120").start().controller()
    raw.send(hello("f" * 32))
    kind, body = raw.receive()
    assert kind == 6 and struct.unpack_from("<QII", body)[1:] == (1000, 120)


def test_an_agent_without_job_gets_one_of_its_own(tided):
    peer = tided.peer()
    peer.go("f" * 32, "j40", "stray")
    peer.expect("welcome")
    job, = tided.jobs()
    assert (job["id"], job["name"]) == ("j40", "stray")
    raw = tided.controller()
    raw.send(hello("f" * 32))
    assert raw.receive()[0] == 6
    assert len(tided.jobs()) == 1


def test_the_engines_of_a_daemon_that_was_killed_are_watched_by_the_next(place):
    """One that `tide run` starts is told of none; after one that has ended there is none."""
    tided = place.daemon("--engine", "/nowhere/engine.sock").start()
    options, tided.options = tided.options, ()
    for _ in range(2):
        tided.signal(signal.SIGKILL)
        tided.start()
        assert "watching the container engines of the previous tided, which was killed: /nowhere" in tided.log.read_text()
        tided.log.write_text("")
    tided.signal(signal.SIGKILL)
    tided.options = ("--engine", "none")
    tided.start()
    assert "/nowhere" not in tided.log.read_text()
    tided.options = options
    assert tided.stop() == 0 and tided.start().stop() == 0
    tided.options = ()
    tided.start()
    assert "watches" not in tided.log.read_text()
