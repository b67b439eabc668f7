# SPDX-License-Identifier: Apache-2.0
"""A program's requests, by way of Python's package, libtide and the agent, at the daemon's socket."""
import itertools
import subprocess
import sys

import pytest

from conftest import ROOT, plain_env

sys.path.append(str(ROOT / "tests/system"))
from peer import FEATURE_LATENCY, FEATURE_RUNTIMES, GUARD_S, Daemon, Heartbeat, Latency, wait_until  # noqa: E402

# It evaluates what it is told, a line at a time, and says the value.
PROGRAM = """
import asyncio, contextlib, os, sys, time
import threadtide as t
from threadtide._lib import _request_begin, _request_end

open_requests = []

def begin():
    open_requests.append(_request_begin())
    return open_requests[-1]

def end():
    _request_end(open_requests.pop())

def serve(seconds):
    '''The least and the most that the request can have taken.'''
    began = begin()
    time.sleep(seconds)
    before = time.monotonic_ns()
    end()
    return before - began, time.monotonic_ns() - began

def fork():
    child = os.fork()
    if child == 0:
        end()  # its parent's
        serve(0.001)
        begin()
        time.sleep(60)
    return child

@t.request()
def function(x):
    return x + 1

@t.request()
async def coroutine():
    await asyncio.sleep(0.03)

def with_failure():
    with contextlib.suppress(KeyError), t.request() as told:
        raise KeyError
    return told

def by_hand():
    one = t.request()
    told = one.__enter__()
    one.__exit__(None, None, None)
    one.__exit__(None, None, None)
    return told

for line in sys.stdin:
    print(repr(eval(line)), flush=True)
"""


class Server:
    def __init__(self, build_dir, daemon, **more):
        env = {**plain_env(), "LD_PRELOAD": str(build_dir / "libtide-agent.so"), "TIDE_SOCKET": daemon.path,
               "TIDE_LIBRARY": str(build_dir / "libtide.so.1"), "PYTHONPATH": str(ROOT / "python"),
               "PYTHONDONTWRITEBYTECODE": "1", **more}
        self.process = subprocess.Popen([sys.executable, "-c", PROGRAM], env=env, text=True, bufsize=1,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def do(self, line):
        self.process.stdin.write(line + "\n")
        return eval(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(GUARD_S)


@pytest.fixture
def bed(build_dir, tmp_path):
    """A function that makes a daemon with these features, and a server."""
    ends = []

    def make(features=FEATURE_RUNTIMES | FEATURE_LATENCY, **env):
        daemon = Daemon(tmp_path, features=features)
        ends.append(daemon.stop)
        server = Server(build_dir, daemon, **env)
        ends.append(server.end)
        return daemon, server
    yield make
    for end in reversed(ends):
        end()


def bucket(ns):
    """As latency_bucket() of src/base/latency.c: eight for each doubling, the first ends at 112.5 us."""
    steps = max(0, ns - 1) // 12500
    if steps < 8:
        return 0
    octave = steps.bit_length() - 4
    return min(159, 8 * octave + (steps >> octave) - 8)


def await_beats(agent, count=3):
    beats = len(agent.of(Heartbeat))
    wait_until(lambda: len(agent.of(Heartbeat)) >= beats + count, "heartbeats go on")


def test_requests_arrive_with_their_number_and_how_long_they_took(bed):
    daemon, server = bed()
    took = sorted(server.do(f"serve({seconds})") for seconds in (0.002, 0.002, 0.03, 0.0001))
    agent = daemon.wait_agent(server.process.pid)
    told = agent.wait(Latency, lambda m: m.ended == 4)
    counted = [b for b, count in enumerate(told.bucket) for _ in range(count)]
    assert told.begun == len(counted) == 4
    assert any(all(bucket(least) <= one <= bucket(most) for one, (least, most) in zip(order, took))
               for order in itertools.permutations(counted)), (counted, took)  # two take about as long
    await_beats(agent)
    assert agent.of(Latency)[-1].ended == 4
    messages = len(agent.of(Latency))
    await_beats(agent)
    assert len(agent.of(Latency)) == messages  # nothing is told while nothing is asked


def test_requests_in_flight_are_told_at_once_and_again_while_they_last(bed):
    """The period of 100 ms alone would tell one in five so soon."""
    daemon, server = bed()
    server.do("serve(0)")
    agent = daemon.wait_agent(server.process.pid)
    soon = 0
    for number in range(2, 8):
        agent.wait(Latency, lambda m: m.ended == number - 1)
        server.do("time.sleep(0.1)")
        began = server.do("begin()")
        first = agent.wait(Latency, lambda m: m.begun == number)
        assert (first.ended, first.most_in_flight) == (number - 1, 1)
        soon += first.now_ns - began < 20e6
        if number == 7:
            again = agent.wait(Latency, lambda m: m.now_ns > first.now_ns)
            assert (again.begun, again.ended) == (7, 6)
        server.do("end()")
    assert soon >= 4


def test_a_daemon_of_an_earlier_release_gets_none_and_its_successor_gets_all(bed):
    daemon, server = bed(FEATURE_RUNTIMES)
    for _ in range(3):
        server.do("serve(0.001)")
    agent = daemon.wait_agent(server.process.pid)
    await_beats(agent)
    assert agent.of(Latency) == [] and not agent.closed
    daemon.stop()
    daemon.features |= FEATURE_LATENCY
    daemon.restart()
    told = daemon.wait_agent(server.process.pid, after=agent).wait(Latency)
    assert (told.begun, told.ended, sum(told.bucket)) == (3, 3, 3)


def test_a_forked_child_begins_at_zero_and_its_parent_goes_on(bed):
    daemon, server = bed()
    for _ in range(3):
        server.do("serve(0.001)")
    server.do("begin()")
    child = server.do("fork()")
    try:
        told = daemon.wait_agent(child).wait(Latency, lambda m: m.ended > 0 and m.begun > 1)
        assert (told.begun, told.ended, sum(told.bucket)) == (2, 1, 1)
        server.do("end()")
        told = daemon.wait_agent(server.process.pid).wait(Latency, lambda m: m.ended > 3)
        assert (told.begun, told.ended, sum(told.bucket)) == (4, 4, 4)
    finally:
        server.do(f"os.kill({child}, 9)")


def test_a_forked_child_has_no_progress_of_its_parents(bed):
    daemon, server = bed()
    server.do("t.progress(5, 10, 'images')")
    daemon.wait_agent(server.process.pid).wait(Heartbeat, lambda m: m.progress_done == 5)
    server.do("begin()")  # what the child ends
    child = server.do("fork()")
    try:
        told = daemon.wait_agent(child).wait(Heartbeat)
        assert (told.progress_done, told.progress_total) == (0, 0)
    finally:
        server.do(f"os.kill({child}, 9)")


def test_an_agent_that_is_switched_off_counts_nothing(bed):
    daemon, server = bed(TIDE_DISABLE="1")
    assert server.do("begin(), end()") == (0, None)
    assert server.do("with_failure()") is False
    assert daemon.agents == []


def test_the_package_tells_of_blocks_functions_and_coroutines(bed):
    daemon, server = bed()
    assert server.do("function(1)") == 2
    assert server.do("asyncio.run(coroutine())") is None
    assert server.do("with_failure()") is True
    assert server.do("by_hand()") is True
    told = daemon.wait_agent(server.process.pid).wait(Latency, lambda m: m.ended == 4)
    assert told.begun == 4
    assert sum(told.bucket[bucket(30_000_000):]) >= 1  # the whole coroutine, not its call alone
