# SPDX-License-Identifier: Apache-2.0
"""tide-runc in front of a runtime that only shows what it was given: whatever happens, it starts."""
import json
import os
import shutil
import stat
import subprocess

import pytest

import conftest

ID = "0a1b" * 16
REAL = """#!/bin/sh
for word; do printf '%s\\n' "$word"; done
echo noise >&2
exit 42
"""


class Bundle:
    def __init__(self, build_dir, folder):
        self.program, self.dir, self.run_dir = build_dir / "tide-runc", folder / "b", folder / "run"
        self.dir.mkdir()
        self.config = self.dir / "config.json"
        shutil.copy(conftest.ROOT / "fuzz/corpus/bundle/docker", self.config)
        self.before = self.config.read_bytes()
        self.real = folder / "runc"
        self.real.write_text(REAL)
        self.real.chmod(0o755)
        self.env = {**conftest.plain_env(), "TIDE_DIR": str(self.run_dir),
                    "TIDE_RUNC": str(self.real), "TIDE_AGENT_DIR": str(build_dir / "agent")}

    def call(self, *words):
        """The real runtime was called with the same words, and nothing else was said."""
        words = [str(word) for word in words]
        result = conftest.run([self.program, *words], self.env)
        assert (result.returncode, result.stderr) == (42, "noise\n")
        assert result.stdout.splitlines() == words

    def create(self, *options, name=ID):
        self.call(*options, "create", "--bundle", self.dir, "--pid-file", "/p", name)

    def untouched(self):
        return self.config.read_bytes() == self.before and os.listdir(self.dir) == ["config.json"]


@pytest.fixture
def bundle(build_dir, tmp_path):
    return Bundle(build_dir, tmp_path)


@pytest.fixture
def log(tmp_path):
    """log(): options for a log, then its only line."""
    path = tmp_path / "log"

    class Log:
        options = ["--log", path, "--log-format", "json"]

        def line(self):
            return json.loads(path.read_text())
    return Log()


def test_bundle_is_edited_once_and_keeps_its_mode(bundle):
    bundle.config.chmod(0o640)
    bundle.create()
    once = bundle.config.read_bytes()
    assert once != bundle.before and json.loads(once)["mounts"][-1]["source"] == \
        f"{bundle.run_dir}/containers/{ID}"
    assert stat.S_IMODE(bundle.config.stat().st_mode) == 0o640
    assert stat.S_IMODE((bundle.run_dir / "containers" / ID).stat().st_mode) == 0o711
    bundle.create()
    assert bundle.config.read_bytes() == once and os.listdir(bundle.dir) == ["config.json"]


@pytest.mark.parametrize("words", [
    ["--version"], [], ["--root", "/r", "delete", "--force", ID], ["state", ID], ["create"],
    ["--unknown", "value", "create", ID], ["exec", "--process", "/no/such/file", ID],
], ids=" ".join)
def test_other_calls_are_passed_on(bundle, words):
    bundle.call(*words)
    assert bundle.untouched() and not bundle.run_dir.exists()


def spoil_json(bundle):
    bundle.config.write_text('{"process":')


def spoil_size(bundle):
    bundle.config.write_text(" " * (4 << 20) + bundle.config.read_text())


def spoil_link(bundle):
    bundle.config.rename(bundle.dir.parent / "elsewhere")
    bundle.config.symlink_to(bundle.dir.parent / "elsewhere")


def spoil_run_dir(bundle):
    bundle.run_dir.write_text("")


def spoil_agent(bundle):
    bundle.env["TIDE_AGENT_DIR"] = "/no/such/directory"


def spoil_control(bundle):
    (bundle.run_dir / "containers").mkdir(parents=True)
    (bundle.run_dir / "containers" / ID).symlink_to("/etc")


@pytest.mark.parametrize("spoil, reason", [
    (spoil_json, "line 1 is no JSON"), (spoil_size, "File too large"),
    (spoil_link, "Too many levels"), (spoil_run_dir, "Not a directory"),
    (spoil_agent, "no agent in /no/such"), (spoil_control, "Not a directory"),
], ids=lambda value: getattr(value, "__name__", ""))
def test_failure_is_logged_and_the_bundle_starts_as_it_was(bundle, log, spoil, reason):
    spoil(bundle)
    bundle.before = bundle.config.read_bytes()
    bundle.create(*log.options)
    assert bundle.untouched()
    assert log.line()["level"] == "warning" and reason in log.line()["msg"]
    assert log.line()["msg"].startswith("tide-runc: the container starts without the agent: ")


@pytest.mark.parametrize("name", ["../../x", "a.b", "x" * 65])
def test_id_that_is_no_key_names_no_directory(bundle, log, name):
    bundle.create(*log.options, name=name)
    assert bundle.untouched() and not bundle.run_dir.exists()
    assert "cannot name a directory" in log.line()["msg"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_full_disk_leaves_the_bundle_as_it_was(bundle, log):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", bundle.dir], check=True)
    try:
        bundle.config.write_bytes(bundle.before)
        with open(bundle.dir / "rest", "wb", buffering=0) as rest, pytest.raises(OSError):
            while True:
                rest.write(b"x" * 512)
        bundle.create(*log.options)
        assert bundle.config.read_bytes() == bundle.before
        assert sorted(os.listdir(bundle.dir)) == ["config.json", "rest"]
        assert "No space left" in log.line()["msg"]
    finally:
        subprocess.run(["umount", bundle.dir], check=True)


def test_program_of_a_container_without_agent_is_left_alone(bundle, tmp_path):
    process = tmp_path / "process.json"
    shutil.copy(conftest.ROOT / "fuzz/corpus/bundle/process", process)
    before = process.read_text()
    bundle.call("exec", "--process", process, ID)
    assert process.read_text() == before
    bundle.create()
    bundle.call("exec", "--process", process, ID)
    assert "libtide-agent.so" in process.read_text()


def test_runtime_is_found_in_path_and_never_ourselves(bundle, tmp_path):
    """A runc that is a link to tide-runc would be an endless chain."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    (first / "runc").symlink_to(bundle.program)
    bundle.real.rename(second / "runc")
    del bundle.env["TIDE_RUNC"]
    bundle.env["PATH"] = f"relative::{first}:{second}:{bundle.env['PATH']}"
    bundle.create()
