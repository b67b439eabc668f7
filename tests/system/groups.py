# SPDX-License-Identifier: Apache-2.0
"""Control groups with a quota of processor time, as a container's --cpus sets it. Root, and cgroup v1's cpu hierarchy."""

import os
import pathlib

from peer import wait_until

CPU_GROUPS = pathlib.Path("/sys/fs/cgroup/cpu")


class CpuGroup:
    """A cgroup v1 of our own with a CPU quota, removed afterwards."""

    def __init__(self):
        self.path = CPU_GROUPS / f"tide-test-{os.getpid()}"

    def __enter__(self):
        self.path.mkdir()
        return self

    def adopt(self, pid):
        (self.path / "cgroup.procs").write_text(str(pid))

    def quota(self, cores):
        (self.path / "cpu.cfs_quota_us").write_text(str(int(cores * 100000)) if cores else "-1")

    def __exit__(self, *exc):
        home = CPU_GROUPS / pathlib.Path("/proc/self/cgroup").read_text().split(":cpu:")[1].split(
            "\n")[0].lstrip("/")
        for pid in (self.path / "cgroup.procs").read_text().split():
            (home / "cgroup.procs").write_text(pid)
        wait_until(self._remove, "the test's cgroup is empty")

    def _remove(self):
        try:
            self.path.rmdir()
        except OSError:
            return False
        return True


def can_make_groups():
    try:
        with CpuGroup():
            return True
    except (OSError, IndexError):
        return False
