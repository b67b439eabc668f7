# SPDX-License-Identifier: Apache-2.0
"""tided's policies: chosen while it runs, kept over restarts, told what jobs say of themselves."""
import json
import signal
import time

import pytest

from daemon import eventually


@pytest.fixture
def tided(place):
    return place.daemon("--cpus", "0-7").start()


def policy(tided):
    return tided.api("GET", "/v1/policy")[1]


def choose(tided, spec):
    status, answer = tided.api("PUT", "/v1/policy", {"policy": spec})
    assert status == 200, answer
    return answer


def param(answer, name, key):
    found, = (p for p in answer["policies"] if p["name"] == name)
    return next(p for p in found["params"] if p["name"] == key)


def test_a_policy_is_told_with_every_parameter(tided):
    answer = policy(tided)
    assert (answer["name"], answer["policy"]) == ("equal", "equal")
    names = [p["name"] for p in answer["policies"]]
    assert names[0] == "equal" and {"fcfs", "priority", "round-robin"} <= set(names)
    assert param(answer, "fcfs", "reassignment")["values"] == ["strict", "always-attend", "max-prop"]
    for found in answer["policies"]:
        assert found["brief"]
        for p in found["params"]:
            assert p["name"] and p["text"] and p["value"] == p["default"]
            assert p["values"] is None or p["default"] in p["values"]


def test_every_policy_can_be_chosen_by_its_default_and_by_its_parameters(tided):
    """With jobs that run already: none of them may be paused or held back."""
    jobs = [tided.job(name=f"j-{i}", priority=i, request=4) for i in range(3)]
    for found in policy(tided)["policies"]:
        if found["name"] == "power-cap":  # refused: see below
            continue
        specs = [found["name"]]
        for p in found["params"]:
            specs += [f"{found['name']}/{p['name']}={value}"
                      for value in p["values"] or (p["min"], p["max"]) if value]
        for spec in specs:
            answer = choose(tided, spec)
            assert answer["name"] == found["name"]
            for job in jobs:
                seen = job.get()
                assert seen["target"] >= 1, spec
                assert seen["reason"], spec
    assert "no decision" not in tided.log.read_text()


def test_a_parameter_has_effect_at_once_and_shows_its_value(tided):
    answer = choose(tided, "priority/ageing=90s")
    assert param(answer, "priority", "ageing")["value"] == "90s"
    assert param(answer, "priority", "ageing")["default"] != "90s"
    assert tided.api("GET", "/v1/machine")[1]["policy"] == "priority"
    answer = choose(tided, "priority")
    assert param(answer, "priority", "ageing")["value"] == param(answer, "priority", "ageing")["default"]


@pytest.mark.parametrize("body, word", [
    ({"policy": "luck"}, '"luck"'), ({"policy": ""}, '""'), ({"policy": 7}, "7"),
    ({"policy": "equal/strict"}, '"strict"'), ({"policy": "priority/ageing=x"}, '"x"'),
    ({"policy": "priority/ageing=-1s"}, '"-1s"'), ({"policy": "priority//"}, '""'),
    ({"policy": "priority/ageing=1s/ageing=2s"}, "second time"), ({}, "missing"),
    ({"policy": "equal", "name": "equal"}, "send one"), ({"polcy": "equal"}, "polcy"),
], ids=str)
def test_a_wrong_choice_is_refused_and_the_old_one_stays(tided, body, word):
    choose(tided, "priority/ageing=90s")
    status, answer = tided.api("PUT", "/v1/policy", body)
    assert status == 400 and word in answer["error"]["message"] and "hint" in answer["error"]
    assert policy(tided)["policy"] == "priority/ageing=90s"


def test_the_choice_outlives_the_daemon(place):
    tided = place.daemon("--cpus", "0-7").start()
    choose(tided, "priority/ageing=90s")
    tided.stop()
    assert policy(tided.start())["policy"] == "priority/ageing=90s"
    tided.signal(signal.SIGKILL)
    assert policy(tided.start())["policy"] == "priority/ageing=90s"
    tided.stop()
    tided.options = ("--cpus", "0-7", "--policy", "fcfs")  # what is asked for now goes first
    assert policy(tided.start())["policy"] == "fcfs"
    tided.stop()
    tided.options = ("--cpus", "0-7")
    assert policy(tided.start())["policy"] == "priority/ageing=90s"


@pytest.mark.parametrize("text", ["luck\n", "priority/ageing=never\n", "", "x" * 1000, "\xff\0"])
def test_a_stored_policy_that_is_none_is_ignored(place, text):
    tided = place.daemon("--cpus", "0-7")
    tided.dir.mkdir(exist_ok=True)
    (tided.dir / "policy").write_text(text)
    assert policy(tided.start())["policy"] == "equal"
    assert "policy is ignored" in tided.log.read_text()


# ---- what jobs say ----

def test_priority_and_request_decide_who_has_cores(tided):
    low = tided.job(name="low", request=6)
    high = tided.job(name="high", request=6, priority=5)
    low.target(4), high.target(4)
    choose(tided, "priority/always-attend")
    high.target(6), low.target(2)
    assert low.patch(priority=9)[0] == 200
    low.target(6), high.target(2)
    assert low.patch(request=4)[0] == 200
    low.target(4), high.target(4)
    choose(tided, "fcfs/always-attend")  # first come: the priority is nothing to it
    assert low.patch(request=7)[0] == 200
    low.target(7), high.target(1)


def test_who_came_first_stays_first_over_a_restart(tided):
    first, second = tided.job(name="first", request=7), tided.job(name="second", request=7)
    choose(tided, "fcfs/always-attend")
    first.target(7), second.target(1)
    tided.signal(signal.SIGKILL)
    tided.start()
    first.target(7), second.target(1)



def test_jobs_tell_priority_class_request_and_deadline(tided):
    soon = time.time() + 3600
    job = tided.job(priority=-7, **{"class": 3}, request=5, deadline=soon)
    seen = job.get()
    assert (seen["priority"], seen["class"], seen["request"]) == (-7, 3, 5)
    assert abs(seen["deadline"] - soon) < 0.002
    assert job.patch(priority=1000, request=None, deadline=None)[0] == 200
    seen = job.get()
    assert (seen["priority"], seen["class"], seen["request"], seen["deadline"]) == (1000, 3, None, None)
    other = tided.job().get()
    assert (other["priority"], other["class"], other["request"], other["deadline"]) == (0, 0, None, None)


@pytest.mark.parametrize("field, value", [
    ("priority", 1001), ("priority", -1001), ("priority", "high"), ("priority", None), ("class", -1),
    ("class", 1001), ("request", 0), ("request", 4097), ("request", 1.5), ("deadline", 0),
    ("deadline", "18:30"), ("deadline", 1000000000), ("deadline", 1e300), ("deadline", True),
])
def test_terms_out_of_bounds_are_refused_by_name(tided, field, value):
    job = tided.job()
    status, answer = job.patch(**{field: value})
    assert status == 400 and answer["error"]["message"].startswith(f"{field} is ")
    peer = tided.peer()
    assert tided.api("POST", "/v1/jobs", {"pid": peer.pid, field: value})[0] == 400


def test_terms_and_age_outlive_the_daemon(tided):
    old = tided.job(name="old", priority=3, **{"class": 2}, request=6, deadline=time.time() + 900)
    before = old.get()
    time.sleep(0.3)
    tided.signal(signal.SIGKILL)
    tided.start()
    after = eventually(lambda: tided.api("GET", "/v1/jobs/old")[1])
    for key in ("priority", "class", "request", "deadline"):
        assert after[key] == before[key]
    assert after["elapsed_s"] > before["elapsed_s"] + 0.3


def test_a_file_of_an_older_tided_is_still_a_job(tided):
    job = tided.job(name="old", priority=3)
    path = tided.dir / "jobs" / f"{job.id}.json"
    tided.signal(signal.SIGKILL)
    stored = json.loads(path.read_text())
    for key in ("priority", "class", "request", "deadline_ms"):
        del stored[key]
    path.write_text(json.dumps(stored))
    tided.start()
    assert tided.api("GET", "/v1/jobs/old")[1]["priority"] == 0


def test_a_policy_that_goes_by_watts_is_refused_where_nobody_knows_them(tided, place):
    status, answer = tided.api("PUT", "/v1/policy", {"policy": "power-cap"})
    assert status == 400 and "nothing tells this machine's watts" in answer["error"]["message"]
    assert policy(tided)["policy"] == "equal"
    other = place.daemon("--policy", "power-cap").start(ready=False)
    assert other.process.wait(30) != 0 and "nothing tells this machine's watts" in other.log.read_text()
