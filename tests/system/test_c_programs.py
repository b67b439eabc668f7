# SPDX-License-Identifier: Apache-2.0
"""Plain C programs under the agent: TensorFlow's C API, blocked system calls, an unknown library."""

import os
import pathlib
import random
import select
import subprocess
import time

import peer
import pytest
from conftest import BUILT, follows_in_time
from groups import CpuGroup, can_make_groups
from peer import GUARD_S, wait_until
from program import HERE, IMPORT_GUARD_S, ROOT, Program, agent_env, clean_env


@pytest.fixture
def daemon(tmp_path):
    with peer.Daemon(tmp_path) as daemon:
        yield daemon


def compile_c(output, name, *arguments):
    subprocess.run(["cc", "-O1", "-g", "-D_GNU_SOURCE", f"-I{ROOT}/src", "-o", str(output),
                    str(HERE / "programs" / name), *map(str, arguments)], check=True)
    return str(output)


class CProgram:
    """A program that says "ready" (or its first line) and ends when its input does."""

    def __init__(self, argv, env):
        self.process = subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.pid = self.process.pid

    def line(self):
        assert select.select([self.process.stdout], [], [], GUARD_S)[0], "no output"
        return self.process.stdout.readline().strip()

    def end(self, last_input=None):
        """Closes the input; returns what it still prints."""
        output, _ = self.process.communicate(last_input, timeout=GUARD_S)
        assert self.process.returncode == 0
        return output.strip()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.process.kill()
        self.process.wait()


def library_directory(python):
    return next(pathlib.Path(python).parent.parent.glob("lib*/python3*/site-packages/tensorflow"))


def test_saved_model_in_c_in_the_middle_of_resizes(python, daemon, tmp_path):
    model = str(tmp_path / "model")
    with Program(python, clean_env()) as exporter:
        exporter.call("import", IMPORT_GUARD_S)
        names = exporter.call("export", path=model)
    directory = library_directory(python)
    infer = compile_c(tmp_path / "infer", "infer.c", directory / "libtensorflow_cc.so.2",
                      directory / "libtensorflow_framework.so.2", f"-Wl,-rpath,{directory}",
                      "-Wl,--allow-shlib-undefined")
    env = agent_env(daemon, TIDE_MAX=BUILT, TF_CPP_MIN_LOG_LEVEL=3)
    with CProgram([infer, model, *names], env) as program:
        assert program.line() == "ready"
        agent = daemon.wait_agent(program.pid)
        agent.wait_backend(lambda b: b.malleable and b.max_intra == BUILT)
        rng = random.Random(4)
        for _ in range(200):
            agent.set(rng.choice((1, 2, 3, 8)), rng.choice((1, 2, 8)))
            time.sleep(0.002)
        agent.set(1, 1)
        verdict, runs = program.end().split()
        assert verdict == "same"
        assert int(runs) > 100


def test_blocked_read_goes_on_after_the_signal(tmp_path):
    program = compile_c(tmp_path / "blocked_read", "blocked_read.c", "-ldl")
    with CProgram([program], agent_env()) as program:
        assert program.line() == "ready"
        for value in range(1, 8):
            subprocess.run(["/bin/kill", "-s", "RTMIN+7", "-q", str(value), str(program.pid)],
                           check=True)
            time.sleep(0.02)
        assert program.end("hello") == "read 5 target 7"


@pytest.mark.skipif(not can_make_groups(), reason="needs root and cgroup v1's cpu hierarchy")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_quota_of_the_cgroup_is_followed(daemon, tmp_path):
    program = compile_c(tmp_path / "blocked_read", "blocked_read.c", "-ldl")
    with CProgram([program], agent_env(daemon)) as program, CpuGroup() as group:
        assert program.line() == "ready"
        agent = daemon.wait_agent(program.pid)
        group.adopt(program.pid)
        follows_in_time(agent, group.quota, (1, 2))
        group.quota(1.9)  # whole cores
        agent.wait_target(1)
        group.quota(None)
        agent.wait_target(len(os.sched_getaffinity(program.pid)))
        group.quota(0.01)  # never less than one
        agent.wait_target(1)
        agent.command(6)
        agent.wait_target(6, peer.SOURCE_DAEMON)  # a command may exceed the limit
        program.end("x")


def test_unknown_tensorflow_runs_as_if_we_were_not_there(daemon, tmp_path):
    library = compile_c(tmp_path / "libtensorflow_framework.so.2", "fake_framework.c", "-shared",
                        "-fPIC", "-Wl,-soname,libtensorflow_framework.so.2")
    user = compile_c(tmp_path / "fake_user", "fake_user.c", library, f"-Wl,-rpath,{tmp_path}")
    with CProgram([user], agent_env(daemon, TIDE_MAX=BUILT)) as program:
        assert program.line() == "pool numa_-1_Eigen 4"  # not BUILT
        agent = daemon.wait_agent(program.pid)
        backend = wait_until(lambda: agent.backend, "the backend describes itself")
        assert not backend.malleable
        assert backend.version == b"9.9.9"
        assert b"cannot park the threads of TensorFlow 9.9.9" in backend.note
        generation = agent.command(2)
        assert agent.wait_ack(generation).status == peer.ACK_LATER
        assert program.end() == "gone"
