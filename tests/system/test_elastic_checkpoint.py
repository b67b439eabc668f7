# SPDX-License-Identifier: Apache-2.0
"""Checkpoints where the disk is full, is not there, or belongs to another chief. No TensorFlow."""

import contextlib
import errno
import os
import stat
import subprocess
import sys

import numpy as np
import pytest

from program import ROOT

sys.path.insert(0, str(ROOT / "python"))

from threadtide.tensorflow import checkpoint  # noqa: E402


class Variable:
    """A variable as a snapshot has it, and its value."""

    name = "weight#1"

    def __init__(self, value):
        self.value = value

    def row(self):
        return [self.name, list(self.value.shape), str(self.value.dtype)]

    def numpy(self):
        return self.value


def save(checkpoints, step, size=4):
    variable = Variable(np.full(size, step, np.float32))
    checkpoints.begin({"step": step, "variables": [variable.row()]}, [variable])
    checkpoints.wait()
    assert checkpoints.latest.meta["step"] == step
    assert checkpoints.latest.value(variable).tolist() == variable.value.tolist()


def names(directory):
    return sorted(p.name for p in directory.iterdir() if p.name != "lock")


def file(step):
    return f"step-{step:012}.tide"


@pytest.fixture
def small_disk(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("mounts: as root")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=True)
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def test_a_full_disk_leaves_no_parts_and_the_checkpoint_in_memory(small_disk, capfd):
    with contextlib.closing(checkpoint.Checkpoints(small_disk, 30)) as checkpoints:
        save(checkpoints, 1)
        assert not checkpoints.error
        save(checkpoints, 2, size=1 << 20)
        assert "No space left" in str(checkpoints.error)
        assert "step 2 stays in memory" in capfd.readouterr().err
        assert names(small_disk) == [file(1)]
        save(checkpoints, 3)
        assert not checkpoints.error and names(small_disk) == [file(1), file(3)]
    assert checkpoint.Checkpoints(small_disk, 30).latest.meta["step"] == 3


def test_a_directory_that_cannot_be_is_no_reason_to_stop(tmp_path):
    (tmp_path / "file").write_text("")
    with contextlib.closing(checkpoint.Checkpoints(tmp_path / "file/below", 30)) as checkpoints:
        assert checkpoints.latest is None
        save(checkpoints, 1)
        assert isinstance(checkpoints.error, OSError)
        (tmp_path / "file").unlink()
        save(checkpoints, 2)  # it has come
        assert not checkpoints.error and names(tmp_path / "file/below") == [file(2)]


def test_a_file_system_that_does_not_flush_directories_has_files_all_the_same(tmp_path, monkeypatch):
    flush = os.fsync

    def fsync(fd):
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        flush(fd)

    monkeypatch.setattr(checkpoint.os, "fsync", fsync)
    with contextlib.closing(checkpoint.Checkpoints(tmp_path, 30)) as checkpoints:
        for step in (1, 2, 3):
            save(checkpoints, step)
            assert not checkpoints.error
    assert names(tmp_path) == [file(2), file(3)]


CHIEF = """
import sys
sys.path.insert(0, sys.argv[1])
from threadtide.tensorflow.checkpoint import Checkpoints
held = Checkpoints(sys.argv[2], 30)
print("here", flush=True)
sys.stdin.read()
"""


def test_a_directory_has_one_chief_who_removes_what_is_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "LOCK_S", 0.2)
    chief = subprocess.Popen([sys.executable, "-c", CHIEF, str(ROOT / "python"), str(tmp_path)],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert chief.stdout.readline() == "here\n"
        (tmp_path / (file(7) + ".partial")).write_text("half")
        with pytest.raises(checkpoint.DirectoryInUse, match=f"process {chief.pid} of .*use another"):
            checkpoint.Checkpoints(tmp_path, 30)
    finally:
        chief.kill()
        chief.wait()
    with contextlib.closing(checkpoint.Checkpoints(tmp_path, 30)) as checkpoints:
        assert names(tmp_path) == []
        (tmp_path / file(1)).write_text("of somebody who does not see the lock")
        for step in (2, 3, 4):
            save(checkpoints, step)
        assert names(tmp_path) == [file(1), file(3), file(4)]
