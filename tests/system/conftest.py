# SPDX-License-Identifier: Apache-2.0
"""Fixtures: the TensorFlow versions, and one program that many tests resize in turn."""

import os
import pathlib
import platform
import time

import pytest

from peer import SOURCE_LIMIT, Daemon, wait_until
from program import Program, agent_env, agent_library, tensorflow_pythons

BUILT = 8  # TIDE_MAX of the programs under test
SOAK = os.environ.get("TIDE_SOAK", "0") != "0"  # make soak: longer, nothing left out
FOLLOWS_WITHIN_S = 0.5  # the promise; one try of several must keep it on a busy machine
TRIES = 4


def pytest_sessionstart(session):
    library = pathlib.Path(agent_library().replace("$LIB", f"lib/{platform.machine()}-linux-gnu"))
    if not library.exists():
        pytest.exit(f"{library} is missing: build first, or set TIDE_BUILD_DIR", returncode=2)


@pytest.fixture(scope="session", params=tensorflow_pythons(),
                ids=lambda p: pathlib.Path(p).parent.parent.name.lstrip("."))
def python(request):
    if not pathlib.Path(request.param).exists():
        pytest.skip(f"no TensorFlow at {request.param}: make sets it up, or set TIDE_TF_PYTHONS")
    return request.param


@pytest.fixture(scope="module")
def live(python, tmp_path_factory):
    """A program with pools of 8 under a daemon; every test may command it and leaves it running."""
    with Daemon(tmp_path_factory.mktemp("run")) as daemon:
        with Program(python, agent_env(daemon, TIDE_MAX=BUILT)) as program:
            program.load(BUILT)
            program.daemon = daemon
            yield program


def connected(program, after=None):
    """The program's connection (a newer one than @after), its backend and both pools known. One that
    the agent is about to end because it was not welcomed has no backend, and is not waited for."""
    def find():
        agent = program.daemon.find_agent(program.pid, after)
        backend = agent and agent.backend
        return backend and backend.malleable and backend.max_inter > 0 and agent
    return wait_until(find, f"process {program.pid} says hello and describes its backend")


@pytest.fixture
def agent(live):
    return connected(live)


def follows_in_time(agent, change, targets):
    """change(target) in turn, until one was followed within the promised time."""
    took = []
    for i in range(TRIES):
        for target in targets:
            begin = time.monotonic()
            change(target)
            agent.wait_target(target, SOURCE_LIMIT, since=begin)
            took.append(time.monotonic() - begin)
        if max(took[-len(targets):]) < FOLLOWS_WITHIN_S:
            return
    raise AssertionError(f"followed only after {took} s")
