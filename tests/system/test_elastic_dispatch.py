# SPDX-License-Identifier: Apache-2.0
"""Calls that are never answered, told to the queue of tasks alone: no cluster, no processes."""

import json
import subprocess

import pytest

from program import ROOT, tensorflow_pythons

SETTING = """
import threading, time, types
from threadtide.tensorflow import dispatch

dispatch.AGAIN_S = dispatch.OVERDUE_S = dispatch.PREPARED_S = dispatch.FIRST_S = 0.2
dispatch.AGAIN_TIMES = dispatch.OVERDUE_TIMES = 0

class Cluster:
    updated, gone = 0.0, []
    def released(self, node):
        self.gone.append(node.index)

cluster, never, once = Cluster(), threading.Event(), threading.Event()
queue = dispatch.Dispatcher(cluster, lambda: False)
node = types.SimpleNamespace(index=0, state="in", device="")
usual = dispatch.Usual()
usual.add(0.01)

def feed(prepare=None):
    return dispatch.Worker(node, cluster, queue, prepare)

def task(run, usual=usual):
    made = dispatch.Task(lambda device, executor: run(), usual)
    queue.submit([made])
    return made

def change():
    "The cluster changes, once the worker is at its call, if there is one."
    end = time.monotonic() + 1
    while not (queue._running or queue.preparing()) and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.05)
    cluster.updated = time.monotonic()

def until(condition, what):
    end, dead = time.monotonic() + 30, []
    while not condition(dead):
        assert time.monotonic() < end, what
        dead += queue.overdue()
        time.sleep(0.01)
    return dead
"""

CASES = {
    "a worker that never ends preparing begins without": """
feed(lambda *_: never.wait())
change()
made = task(lambda: 7)
assert until(lambda dead: made.finished, "done") == [] and made.result == 7
""",
    "a worker that prepares is known as such, from the first moment until it has": """
feed(lambda *_: once.wait())
assert queue.preparing() == {0}
once.set()
until(lambda dead: not queue.preparing(), "prepared")
""",
    "a worker is joining until it can be asked whether it prepares": """
from threadtide.tensorflow import cluster as real
made, seen = real.Cluster(lambda: None), []
joins = real.Node(types.SimpleNamespace(role="worker", index=4))
made.nodes[joins.key] = joins
made.on_worker = lambda node: seen.append(made.report()[0]["state"])
made._serve([joins])
assert [*seen, made.report()[0]["state"]] == ["joining", "in"]
""",
    "what is made again counts once, also when the first answer comes after all": """
first = feed()
calls = []
made = task(lambda: calls.append(1) or (once.wait() if len(calls) == 1 else None) or len(calls))
change()
assert until(lambda dead: made.finished, "done") == []
assert (made.result, made.interrupted) == (2, 1)
once.set()
first.join(5)
assert not first.is_alive() and made.result == 2 and cluster.gone == []
other = task(lambda: 3)
assert until(lambda dead: other.finished, "done") == []
""",
    "a worker that is to leave leaves though its call is not answered": """
feed()
made = task(never.wait)
node.state = "draining"
change()
until(lambda dead: cluster.gone, "released")
assert not made.finished
""",
    "a worker that does not answer the next call either is given up": """
feed()
task(never.wait)
change()
assert until(lambda dead: dead, "given up") == [node]
""",
    "a worker that is lost while it prepares gets no other thread": """
worker = feed(lambda *_: never.wait())
change()
node.state = "lost"
queue.wake()
time.sleep(0.3)
assert queue.overdue() == [] and not worker.replaced
""",
    "a worker whose calls fail without a word is given up": """
import tensorflow as tf
dispatch.EXPLAIN_S = 0.01
def fail():
    raise tf.errors.CancelledError(None, None, "")
def lost(node, why):
    node.state = "lost"
    cluster.gone.append(why)
    queue.wake()
cluster.lost = lost
feed()
task(fail)
until(lambda dead: cluster.gone, "given up")
assert cluster.gone == ["its calls fail: CancelledError"]
""",
    "a measurement that fails is not made again and costs no worker": """
import tensorflow as tf
dispatch.EXPLAIN_S = 0.01
calls = []
def fail():
    calls.append(1)
    raise tf.errors.UnavailableError(None, None, "a server that has left")
feed()
for _ in range(dispatch.FAILURES + 1):
    made = dispatch.Task(lambda device, executor: fail(), usual, needed=False)
    queue.submit([made])
    until(lambda dead: made.finished, "done")
assert node.state == "in" and len(calls) == dispatch.FAILURES + 1
assert isinstance(made.error, tf.errors.UnavailableError)
""",
    "the first call of its kind is made again, too, and costs no worker": """
feed()
calls, first = [], dispatch.Usual()
def call():
    calls.append(1)
    if len(calls) == 1:
        never.wait()
    time.sleep(1)
    return 7
made = task(call, first)
change()
assert until(lambda dead: made.finished, "done") == [] and (made.result, made.interrupted) == (7, 1)
""",
    "a call that begins after the change has all the time it needs": """
feed()
change()
time.sleep(0.01)
made = task(lambda: time.sleep(1) or 5)
assert until(lambda dead: made.finished, "done") == [] and made.interrupted == 0
""",
}

PROGRAM = """
import json, os, sys, traceback
sys.path.insert(0, sys.argv[1])
said = {}
for case, text in json.loads(sys.argv[2]).items():
    try:
        exec(text, {})
    except Exception:
        said[case] = traceback.format_exc()
print(json.dumps(said), flush=True)
os._exit(0)  # threads wait for what never comes
"""


@pytest.fixture(scope="module")
def failures():
    """All cases in one process: TensorFlow takes seconds to start."""
    texts = json.dumps({case: SETTING + text for case, text in CASES.items()})
    run = subprocess.run([tensorflow_pythons()[0], "-c", PROGRAM, str(ROOT / "python"), texts], check=True,
                         capture_output=True, text=True, timeout=120)
    return json.loads(run.stdout)


@pytest.mark.parametrize("case", CASES)
def test_unanswered(failures, case):
    assert case not in failures, failures[case]
