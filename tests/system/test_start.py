# SPDX-License-Identifier: Apache-2.0
"""How a program was started decides what its pools are; its own limit, its own wishes."""

import glob
import os
import pathlib
import signal
import subprocess

import peer
import pytest
from conftest import BUILT, SOAK, connected, follows_in_time
from peer import SOURCE_LIMIT, wait_until
from program import IMPORT_GUARD_S, Program, agent_env, clean_env, is_newest, thread_cpu_ns

STEPS = 30
FEATURE_MOVES = 1 << 4  # src/proto/proto.h: a policy chooses the targets

needs_two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


@pytest.fixture
def daemon(tmp_path):
    with peer.Daemon(tmp_path) as daemon:
        yield daemon


def start(python, daemon, built, wrapper=(), arguments=None, **env):
    program = Program(python, agent_env(daemon, **env), wrapper)
    program.load(built, **(arguments or {}))
    program.daemon = daemon
    return program


@needs_two_cores
def test_started_on_one_core_grows_beyond(python, daemon):
    """Pools are built for the machine, follow the affinity, and grow beyond both by command."""
    with start(python, daemon, BUILT, wrapper=("taskset", "-c", "0"), TIDE_MAX=BUILT) as program:
        agent = connected(program)
        agent.wait_target(1, SOURCE_LIMIT)
        program.call("model", name="mlp")
        assert program.moved(program.intra, lambda: program.call("steps", n=STEPS)) <= 1
        allowed = {0, 1}

        def pin(count):
            for task in os.listdir(f"/proc/{program.pid}/task"):
                try:
                    os.sched_setaffinity(int(task), list(allowed)[:count])
                except ProcessLookupError:
                    pass
        follows_in_time(agent, pin, (2, 1))
        pin(2)
        agent.wait_target(2, SOURCE_LIMIT)
        wait_until(lambda: program.call("parallelism") == 2, "operations know of the second core")
        assert program.moved(program.intra, lambda: program.call("steps", n=STEPS)) <= 2
        agent.set(BUILT)
        wait_until(lambda: program.moved(
            program.intra, lambda: program.call("steps", n=STEPS)) > 4, "more than 4 at work")
        agent.set(1, 1)
        program.send("exit", how="os")
        assert program.wait() == 5


def test_convolutions_that_began_on_one_thread_are_shared_out_after_a_grow(python, daemon):
    """oneDNN's primitives keep the number of threads for which they were made: a job that began on one thread and has
    two now leaves as little to the inter-op threads as one that began on two."""
    if not SOAK and not is_newest(python):
        pytest.skip("with one version; with all under TIDE_SOAK")

    daemon.features = FEATURE_MOVES

    def left_to_inter_op(program, n):
        """Computed by inter-op threads in @n steps, in parts of what the pool for pieces computed."""
        before = [[thread_cpu_ns(program.pid, t) for t in pool] for pool in (program.intra, program.inter)]
        program.call("steps", n=n)
        intra, inter = (sum(thread_cpu_ns(program.pid, t) for t in pool) - sum(b)
                        for pool, b in zip((program.intra, program.inter), before))
        return inter / max(1, intra)

    def begin(threads):
        program = start(python, daemon, BUILT, TIDE_MAX=BUILT, TF_ENABLE_ONEDNN_OPTS=1)  # also on older processors
        agent = connected(program)
        agent.set(threads)
        program.call("model", name="cnn")
        program.call("steps", n=STEPS)
        agent.set(2)
        return program, agent

    program, agent = begin(1)
    with program:
        grown = left_to_inter_op(program, 10 * STEPS)
        agent.set(1)
        left_to_inter_op(program, 10 * STEPS)  # now the calls that make primitives are over
        alone = left_to_inter_op(program, 2 * STEPS)
    program, _ = begin(2)
    with program:
        right = left_to_inter_op(program, 10 * STEPS)
    assert grown < 1.4 * right, (grown, right)
    assert alone > 2 * right, "an op's own thread computes what else only one pool's thread would"


@needs_two_cores
def test_without_tide_max_the_machine_is_the_maximum(python, daemon):
    cores = os.cpu_count()
    with start(python, daemon, cores, wrapper=("taskset", "-c", "0")) as program:
        agent = connected(program)
        assert agent.backend.max_intra == agent.backend.max_inter == cores
        agent.wait_target(1, SOURCE_LIMIT)
        for task in os.listdir(f"/proc/{program.pid}/task"):
            os.sched_setaffinity(int(task), {0, 1})
        agent.wait_target(2, SOURCE_LIMIT)
        program.send("exit", how="exec")
        assert program.wait() == 5


def test_user_set_size_is_kept_and_can_grow(python, daemon):
    """intra_op_parallelism_threads=2: two until somebody commands, then up to TIDE_MAX."""
    handler = signal.SIGRTMIN + 7
    with start(python, daemon, BUILT, TIDE_MAX=BUILT,
               arguments={"intra": 2, "inter": 2, "own_signal": handler}) as program:
        agent = connected(program)
        program.call("model", name="mlp")
        assert agent.backend.max_intra == BUILT
        wait_until(lambda: agent.backend.target_intra == 2, "the user's own number holds")
        assert program.moved(program.intra, lambda: program.call("steps", n=STEPS)) <= 2
        expected = program.call("steps", n=STEPS)
        agent.set(6)
        wait_until(lambda: program.moved(
            program.intra, lambda: program.call("steps", n=STEPS)) > 2, "more than 2 at work")
        agent.set(2)
        program.call("model", name="mlp")
        program.call("steps", n=STEPS)
        assert program.call("steps", n=STEPS) == expected

        # The program had a handler of its own on that signal: it keeps it.
        assert agent.of(peer.Hello)[0].signal == 0
        subprocess.run(["/bin/kill", "-s", "RTMIN+7", "-q", "1", str(program.pid)], check=True)
        wait_until(lambda: program.call("signals_seen") == [handler], "the program's handler runs")
        agent.wait_target(2)

        agent.set(1, 1)
        program.process.terminate()
        assert program.wait() == -signal.SIGTERM


def handlers(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.split("SigCgt:")[1].split()[0], 16)


def test_nested_blocking_at_one_thread_is_rescued_and_signal_is_off(python, daemon):
    """Two operations wait for each other, one thread: stock hangs, the watchdog lets a second go."""
    if SOAK:
        with Program(python, clean_env(TF_NUM_INTEROP_THREADS=1)) as stock:
            stock.call("import", IMPORT_GUARD_S)
            with pytest.raises(AssertionError, match="hangs"):
                stock.call("nested")
    with start(python, daemon, BUILT, TIDE_MAX=BUILT, TIDE_SIGNAL="0") as program:
        agent = connected(program)
        assert agent.of(peer.Hello)[0].signal == 0
        assert not handlers(program.pid) & 1 << (signal.SIGRTMIN + 7 - 1)
        agent.set(1, 1)
        assert program.call("nested") == 3
        assert program.call("nested") == 3
        agent.set(2, 2)
        assert program.call("nested") == 3


@pytest.mark.parametrize("name", ["libjemalloc.so.2", "libtcmalloc_minimal.so.4"])
def test_an_allocator_of_the_user_serves_tensorflow_beside_the_agent(python, daemon, name):
    """Targets are followed, and the results are stock's with the same allocator."""
    if not SOAK and not is_newest(python):
        pytest.skip("with one version; with all under TIDE_SOAK")
    found = glob.glob(f"/usr/lib/*/{name}")
    if not found:
        pytest.skip(f"no {name}: scripts/setup.sh check installs it")
    with Program(python, clean_env(LD_PRELOAD=found[0], TF_NUM_INTRAOP_THREADS=2)) as stock:
        stock.call("import", IMPORT_GUARD_S)
        stock.call("model", name="mlp")
        stock.call("steps", n=STEPS)
        expected = stock.call("digest")
    env = agent_env(daemon, TIDE_MAX=BUILT)
    env["LD_PRELOAD"] = f"{found[0]}:{env['LD_PRELOAD']}"
    with Program(python, env) as program:
        program.load(BUILT)
        program.daemon = daemon
        agent = connected(program)
        maps = pathlib.Path(f"/proc/{program.pid}/maps").read_text()
        assert name in maps and "libtide-agent" in maps
        agent.set(2)
        agent.wait_target(2)
        program.call("model", name="mlp")
        program.call("steps", n=STEPS)
        assert program.call("digest") == expected
        for target in (1, 6, 3):
            agent.set(target)
            agent.wait_target(target)
            assert program.moved(program.intra, lambda: program.call("steps", n=STEPS)) <= target
        program.send("exit", how="os")
        assert program.wait() == 5


def test_resize_signal_number_is_configurable(python):
    env = agent_env(TIDE_MAX=BUILT, TIDE_SIGNAL="9")
    with Program(python, env) as program:  # no daemon at all
        program.load(BUILT)
        assert handlers(program.pid) & 1 << (signal.SIGRTMIN + 9 - 1)
        assert not handlers(program.pid) & 1 << (signal.SIGRTMIN + 7 - 1)
        subprocess.run(["/bin/kill", "-s", "RTMIN+9", "-q", "3", str(program.pid)], check=True)
        wait_until(lambda: program.call("parallelism") == 3, "the target of the signal")
        assert program.call("state")["source"] == peer.SOURCE_SIGNAL
        subprocess.run(["/bin/kill", "-s", "RTMIN+9", "-q", "0", str(program.pid)], check=True)
        wait_until(lambda: program.call("state")["source"] == SOURCE_LIMIT, "automatic again")
