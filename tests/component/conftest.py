# SPDX-License-Identifier: Apache-2.0
"""Fixtures that component tests share: the build tree, the agent as `tide run` would preload it, a compiler.

TIDE_BUILD_DIR names the build tree (default: build).
"""
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile

import pytest

import daemon
from daemon import GUARD_S

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEER = "tests/component/fake_peer"
POOL = "tests/component/pool"
PLANT_METER = "tests/plant/plant_meter"


@pytest.fixture(scope="session")
def build_dir():
    """The build tree; a copy of what runs in it where other users cannot enter (below /root)."""
    path = pathlib.Path(os.environ.get("TIDE_BUILD_DIR") or ROOT / "build").resolve()
    if not (path / "libtide-agent.so").exists():
        pytest.exit(f"nothing is built in {path}: run make, or set TIDE_BUILD_DIR", 2)
    if all(folder.stat().st_mode & 0o005 == 0o005 for folder in (path, *path.parents)):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="tide-test-") as name:
        copy = pathlib.Path(name)
        copy.chmod(0o755)
        for program in (*path.glob("tide*"), *path.glob("libtide*")):
            if program.is_file():
                shutil.copy(program, copy)
        for folder in ("agent", "examples"):
            shutil.copytree(path / folder, copy / folder)
        for program in (PEER, POOL, PLANT_METER):
            if (path / program).exists():
                (copy / program).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path / program, copy / program)
        yield copy


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """compiled(source, *options, cc="gcc"): the program made from a file of this folder."""
    folder = tmp_path_factory.mktemp("programs")

    def compile_(source, *options, cc="gcc"):
        name = "-".join([pathlib.Path(source).stem, cc, *options]).replace("/", "_")[:100]
        program = folder / name
        if not program.exists():
            dialect = ["-cpp", f"-J{folder}"] if cc == "gfortran" else [f"-I{ROOT}/src", "-D_GNU_SOURCE"]
            subprocess.run([cc, "-O1", "-Wall", *dialect, pathlib.Path(__file__).parent / source, "-o", program,
                            *options], check=True, timeout=GUARD_S)
        return program
    return compile_


@pytest.fixture
def place(build_dir):
    """Makes daemons in directories of their own, see daemon.py; all end with the test."""
    result = daemon.Place(build_dir / "tided", build_dir / PEER)
    yield result
    result.end()


@pytest.fixture
def public_dir():
    """A directory that every user may enter, which tmp_path is not."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="tide-test-"))
    path.chmod(0o755)
    yield path
    daemon.remove(path)


class Preloaded:
    """Runs programs with the agent in LD_PRELOAD and a daemon's socket to talk to, or without."""

    def __init__(self, directory, folder):
        self.directory = directory
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.bind(str(folder / "agent.sock"))
        self.socket.listen(64)
        self.socket.setblocking(False)
        self.env = {
            **plain_env(),
            "LD_PRELOAD": f"{directory}/$LIB/libtide-agent.so",
            "TIDE_SOCKET": str(folder / "agent.sock"),
            "TIDE_TOKEN": "0123456789abcdef0123456789abcdef",
            "TIDE_JOB_ID": "j1",
            "TIDE_JOB_NAME": "inert",
        }

    def with_agent(self, *command, **more):
        return run(command, self.env, **more)

    def without(self, *command, **more):
        env = {k: v for k, v in self.env.items() if k != "LD_PRELOAD"}
        return run(command, env, **more)

    def connections(self):
        """How many agents have connected since the last call."""
        count = 0
        while True:
            try:
                self.socket.accept()[0].close()
            except BlockingIOError:
                return count
            count += 1


def plain_env():
    """This environment without anything that a job around the tests may have set."""
    return {k: v for k, v in os.environ.items()
            if not k.startswith("TIDE_") and k != "LD_PRELOAD"}


def run(command, env, **more):
    return subprocess.run([str(c) for c in command], env=env, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=GUARD_S, **more)


@pytest.fixture
def preloaded(build_dir, tmp_path):
    result = Preloaded(build_dir / "agent", tmp_path)
    yield result
    result.socket.close()
