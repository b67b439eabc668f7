# SPDX-License-Identifier: Apache-2.0
"""One training program with pools of 8, commanded by a daemon in every way and misused in many."""

import functools
import os
import random
import struct
import subprocess
import threading
import time

import peer
import pytest
from conftest import BUILT, SOAK, connected
from peer import (ACK_DONE, ACK_STALE, SOURCE_DAEMON, SOURCE_LIMIT, SOURCE_SIGNAL,
                  wait_until)
from program import Program, clean_env, is_newest

STEPS = 30
ROUND_STEPS = 60
ROUNDS = 10  # of a model, at least
MODELS = ("mlp", "cnn", "lstm", "attention", "inference")
RESIZES = 5000 if SOAK else 500


def test_backend_says_what_it_found(live, agent):
    assert agent.backend.version.decode() == live.version
    assert agent.backend.note == b""
    assert (agent.backend.max_intra, agent.backend.max_inter) == (BUILT, BUILT)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_k_of_8_active_threads_work(live, agent, k):
    live.call("model", name="mlp")
    agent.set(BUILT)
    ack = agent.set(k)
    assert ack.active <= k
    assert live.moved(live.intra, lambda: live.call("steps", n=STEPS)) <= k
    wait_until(lambda: live.moved(live.intra, lambda: live.call("steps", n=STEPS), 0) <= k,
               "the others use no CPU at all")
    if k > 1:
        # The first k are all used sooner or later: it is k, not fewer.
        wait_until(lambda: live.moved(live.intra, lambda: live.call("steps", n=STEPS)) >= k - 1,
                   f"{k} threads at work")


def test_grows_back_to_all_threads(live, agent):
    live.call("model", name="mlp")
    agent.set(1)
    agent.set(BUILT)
    wait_until(lambda: live.moved(live.intra, lambda: live.call("steps", n=STEPS)) > 4,
               "more than 4 threads at work")


def test_inter_op_follows_its_own_number(live, agent):
    agent.set(BUILT, 1)
    assert live.moved(live.inter, lambda: live.call("branches", n=STEPS)) <= 1
    agent.wait_backend(lambda b: (b.target_intra, b.target_inter) == (BUILT, 1))
    agent.set(1, BUILT)
    wait_until(lambda: live.moved(live.inter, lambda: live.call("branches", n=STEPS)) > 1,
               "several inter-op threads at work")
    agent.set(1, 3)
    assert live.moved(live.inter, lambda: live.call("branches", n=STEPS)) <= 3
    assert live.moved(live.intra, lambda: live.call("branches", n=STEPS)) <= 1


def train(program, model):
    """The losses of one round, and a digest of the weights and the answers at its end."""
    program.call("model", name=model, guard_s=120)
    losses = program.call("steps", n=ROUND_STEPS, guard_s=120)
    return [float.fromhex(loss) for loss in losses], program.call("digest")


@pytest.fixture(scope="module")
def stock(python):
    """A function: what train() says of each model under stock TensorFlow with @k threads."""
    @functools.cache
    def run(k):
        env = clean_env(TF_NUM_INTRAOP_THREADS=k, TF_NUM_INTEROP_THREADS=k)
        with Program(python, env) as program:
            program.load(k)
            return {model: train(program, model) for model in MODELS}
    return run


@pytest.mark.parametrize("k", [1, 2])
def test_held_at_k_computes_what_stock_does_with_k(live, agent, stock, k):
    agent.set(k)
    assert {model: train(live, model) for model in MODELS} == stock(k)


def run_schedule(live, agent, schedule):
    live.call("model", name="mlp")
    losses = []
    for k in schedule:
        agent.set(k)
        losses += live.call("steps", n=3)
    return losses


def test_same_schedule_of_counts_has_the_same_losses(live, agent):
    rng = random.Random(5)
    schedule = [rng.choice([1, 2, 3, 4, 8]) for _ in range(15)]
    static = {k: run_schedule(live, agent, [k] * 15) for k in (1, 2, 3, 4, 8)}
    resized = run_schedule(live, agent, schedule)
    assert resized == run_schedule(live, agent, schedule)
    if len({tuple(losses) for losses in static.values()}) == 1:  # the count has no influence
        assert resized == static[1]


def test_operations_learn_the_active_count(live, agent):
    agent.set(3)
    assert live.call("parallelism") == 3
    agent.set(BUILT)
    assert live.call("parallelism") == BUILT


def kill_with(pid, value, number="RTMIN+7"):
    subprocess.run(["/bin/kill", "-s", number, "-q", str(value), str(pid)], check=True)


def test_signal_sets_the_target_until_the_daemon_speaks(live, agent):
    agent.set(2)
    since = time.monotonic()
    kill_with(live.pid, 5)
    local = agent.wait(peer.Local, since=since)
    assert (local.source, local.intra) == (SOURCE_SIGNAL, 5)
    agent.wait_target(5, SOURCE_SIGNAL)
    agent.wait_backend(lambda b: b.target_intra == 5)
    agent.set(3)
    agent.wait_target(3, SOURCE_DAEMON)


def test_signal_with_a_senseless_value_changes_nothing(live, agent):
    agent.set(2)
    since = time.monotonic()
    for value in (10**9, 4097):
        kill_with(live.pid, value)
    subprocess.run(["/bin/kill", "-s", "RTMIN+7", str(live.pid)], check=True)  # no value at all
    agent.wait(peer.Heartbeat, lambda m: m.target == 2, since=since + 0.3)
    assert not agent.of(peer.Local, since)


def test_signal_does_not_disturb_sleep(live, agent):
    live.send("sleep", seconds=1.0)
    for value in (3, 4, 5):
        time.sleep(0.1)
        kill_with(live.pid, value)
    assert live.answer() >= 1.0
    agent.set(2)


def test_stale_generation_is_refused_and_changes_nothing(live, agent):
    generation = agent.command(4)
    agent.wait_ack(generation)
    since = time.monotonic()
    agent.command(7, generation=generation - 1)
    ack = agent.wait(peer.Ack, lambda m: m.generation == generation - 1 and m.status == ACK_STALE,
                     since=since)
    assert ack.status == ACK_STALE
    agent.wait_target(4, SOURCE_DAEMON)


def test_older_epoch_is_refused(live, agent):
    agent.set(4)
    newer = agent.daemon.next_generation() + 10**9  # no other order's number, however many come
    agent.command(7, generation=newer, epoch=agent.daemon.epoch - 1)
    assert agent.wait(peer.Ack, lambda m: m.generation == newer).status == ACK_STALE
    agent.wait_target(4, SOURCE_DAEMON)


def test_stale_command_does_not_swallow_a_pending_acknowledgement(live, agent):
    """The acknowledgement of a freeze is still owed when something older arrives."""
    agent.set(6)
    live.call("model", name="mlp")
    live.send("steps", n=200)
    for _ in range(20):
        generation = agent.command(1)
        agent.command(7, generation=generation - 1)
        assert agent.wait_ack(generation).status == ACK_DONE
        agent.set(8)
    live.answer()
    agent.wait_target(8, SOURCE_DAEMON)


def test_lease_ends_when_the_daemon_stops_answering(live, agent):
    agent.set(5)
    agent.lease = False
    agent.wait_target(limit_threads(live.pid), SOURCE_LIMIT)
    assert not agent.closed
    agent.lease = True
    agent.wait_target(5, SOURCE_DAEMON)


def test_stale_command_after_the_lease_does_not_keep_the_order_from_coming_back(live, agent):
    generation = agent.command(5)
    agent.wait_ack(generation)
    agent.lease = False
    agent.wait_target(limit_threads(live.pid), SOURCE_LIMIT)
    agent.command(7, generation=generation - 1)
    agent.lease = True
    agent.wait_target(5, SOURCE_DAEMON)


def limit_threads(pid):
    return len(os.sched_getaffinity(pid))


def garbage():
    rng = random.Random(1)
    target = peer.Target(epoch=1, generation=10**9, intra=1)
    target.h = peer.Header(peer.MAGIC, peer.VERSION, peer.TARGET, 48, 0)
    good = bytes(target)
    yield b"x"
    yield bytes(rng.randrange(256) for _ in range(48))
    yield good[:-1]
    yield good + b"\0"
    yield good + bytes(2000)
    yield good[:4] + struct.pack("<H", 99) + good[6:]  # another version
    yield good[:6] + struct.pack("<H", 77) + good[8:]  # unknown type
    yield good[:6] + struct.pack("<H", peer.HELLO) + good[8:]  # not for an agent
    yield good[:32] + struct.pack("<I", 10**9) + good[36:]  # 10^9 threads


def test_garbage_from_the_daemon_makes_the_agent_hang_up_only(live, agent):
    live.call("model", name="mlp")
    live.call("run")
    for packet in garbage():
        agent.set(3)
        agent.send_raw(packet)
        agent.wait_closed()
        agent = connected(live, agent)
    assert agent.set(2).status == ACK_DONE
    assert live.call("stop")


def test_target_before_the_welcome_is_no_command(live, agent):
    refused = []

    def command(unwelcome):
        refused.append(unwelcome)
        unwelcome.command(1)

    greet, live.daemon.greet = live.daemon.greet, command
    try:
        agent.close()
        connections = len(live.daemon.agents)
        wait_until(lambda: len(live.daemon.agents) > connections + 1, "hangs up, connects again")
    finally:
        live.daemon.greet = greet
    connected(live, agent).set(2)
    assert refused and not any(unwelcome.of(peer.Ack) for unwelcome in refused)


def test_vanished_daemon_leaves_the_own_limit(live, agent):
    agent.set(7)
    live.call("model", name="mlp")
    live.call("run")
    live.daemon.stop()
    wait_until(lambda: live.call("state")["source"] == SOURCE_LIMIT, "own limit again")
    state = live.call("state")
    assert state["target"] == limit_threads(live.pid)
    wait_until(lambda: live.call("state")["active"] <= limit_threads(live.pid), "threads follow")
    live.daemon.restart()
    agent = connected(live, agent)
    # The new daemon has commanded nothing yet: the order of the dead one must not come back.
    agent.wait_target(limit_threads(live.pid), SOURCE_LIMIT, since=time.monotonic() + 0.5)
    agent.set(3)
    assert live.call("stop")


def test_same_order_from_a_daemon_that_reconnects_is_obeyed(live, agent):
    """A daemon that says again what it said before the connection broke must be believed."""
    generation = agent.command(6)
    agent.wait_ack(generation)
    agent.close()
    agent = connected(live, agent)
    agent.command(6, generation=generation)
    assert agent.wait_ack(generation).status == ACK_DONE
    agent.wait_target(6, SOURCE_DAEMON)


def test_closed_descriptors_are_noticed_and_files_of_the_program_left_alone(live, agent):
    live.call("model", name="mlp")
    agent.set(4)
    assert live.call("closerange") > 512
    agent.wait_closed()
    agent = connected(live, agent)
    kill_with(live.pid, 2)
    agent.wait_target(2, SOURCE_SIGNAL)
    agent.set(1)
    assert live.moved(live.intra, lambda: live.call("steps", n=STEPS)) <= 1
    assert live.call("files_untouched")


class Resizer:
    """Resizes as fast as acknowledgements come while its body runs."""

    def __init__(self, agent, seed=3, counts=(1, 2, 3, 4, 8)):
        self.agent, self.rng, self.counts = agent, random.Random(seed), counts
        self.done, self.error = 0, None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        try:
            while not self._end.is_set():
                self.agent.set(self.rng.choice(self.counts), self.rng.choice((1, 2, 8)))
                self.done += 1
        except (AssertionError, OSError) as e:
            self.error = e

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self._end.set()
        self._thread.join()
        if exc[0] is None:
            assert self.error is None, self.error
            assert self.done > 0


def test_children_in_the_middle_of_resizes(live, agent):
    with Resizer(agent):
        results = live.call("children", guard_s=120)
    assert results == {"fork": [3, 2, 1], "spawn": [3, 2, 1], "subprocess": "hello\n", "system": 3}


def test_forked_child_says_hello_for_itself(live, agent):
    with Resizer(agent):
        child = live.call("fork_speaks")
        other = live.daemon.wait_agent(child)
        beat = other.wait(peer.Heartbeat, lambda m: m.progress_total == 4)
        assert (beat.progress_done, beat.unit) == (3, b"children")
        assert live.call("reap") == 7
    other.wait_closed()


def test_dataset_gives_the_same_in_the_middle_of_resizes(live, agent):
    agent.set(BUILT)
    expected = live.call("dataset")
    with Resizer(agent):
        assert live.call("dataset", guard_s=120) == expected
        assert live.call("dataset", private=3, guard_s=120) == expected
    agent.set(1, 1)
    assert live.call("dataset", guard_s=120) == expected


def test_compiled_by_xla_in_the_middle_of_resizes(live, agent):
    agent.set(1)
    live.call("model", name="mlp", jit=True, guard_s=120)
    expected = [float.fromhex(x) for x in live.call("steps", n=STEPS, guard_s=120)]
    live.call("model", name="mlp", jit=True)
    with Resizer(agent):
        losses = [float.fromhex(x) for x in live.call("steps", n=STEPS, guard_s=120)]
    assert losses == pytest.approx(expected, rel=1e-3)
    agent.set(2)
    assert live.moved(live.intra, lambda: live.call("steps", n=STEPS)) <= 2


def test_session_and_a_second_pool_in_the_middle_of_resizes(live, agent):
    with Resizer(agent):
        for own_threads in (0, 2, 3):
            assert live.call("session", n=20, own_threads=own_threads) == 256.0**3
    # The second pool is gone; the first still has its say.
    agent.set(3)
    assert live.call("parallelism") == 3


def test_freeze_holds_a_target_back(live, agent):
    agent.set(6)
    live.call("freeze", on=1)
    generation = agent.command(2)
    assert agent.wait_ack(generation).status == peer.ACK_LATER
    assert live.call("parallelism") == 6
    live.call("freeze", on=0)
    wait_until(lambda: live.call("parallelism") == 2, "the held-back target is applied")


SLACK = 5e-5


@pytest.mark.parametrize("model", MODELS)
def test_resizes_in_the_middle_of_steps_leave_the_results_as_they_are(live, agent, stock, model):
    """The very bits of stock wherever these are the same for one thread and for two.

    Elsewhere TensorFlow adds in an order that follows the number of threads. Each loss must then lie
    within those of stock's runs with fixed numbers, give or take 0.005 %: a run that changes its number
    rounds like none of them, and a last bit can decide which of two pixels the CNN's pooling takes. The
    largest difference seen is 0.0005 %, in three of CI's runs, from one step on.
    """
    if model not in ("mlp", "cnn") and not SOAK and not is_newest(live.python):
        pytest.skip("older versions learn two models; all of them under TIDE_SOAK")
    fixed = [stock(k)[model] for k in (1, 2)]
    same_bits = fixed[0] == fixed[1]
    if not same_bits:
        fixed.append(stock(BUILT)[model])
    ranges = [(min(at_step), max(at_step)) for at_step in zip(*(losses for losses, _ in fixed))]
    rounds = 0
    with Resizer(agent, seed=model) as resizer:
        while not resizer.error and (resizer.done < RESIZES or rounds < ROUNDS):
            losses, digest = train(live, model)
            outside = [(step, loss, ends) for step, (loss, ends) in enumerate(zip(losses, ranges))
                       if not ends[0] * (1 - SLACK) <= loss <= ends[1] * (1 + SLACK)]
            assert not outside, f"after {resizer.done} resizes: {outside[:3]}"
            assert not same_bits or digest == fixed[0][1], f"other weights after {resizer.done} resizes"
            rounds += 1


def test_exits_while_parked(live, agent):
    """Last of the live program: it parks and leaves with its own status."""
    agent.set(1, 1)
    live.send("exit", how="sys")
    assert live.wait() == 5
