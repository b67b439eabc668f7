# SPDX-License-Identifier: Apache-2.0
"""Threadtide's libdlb.so with a real tided and agent: programs for DLB lend, borrow, poll and steer (docs/dlb.md)."""
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from daemon import eventually
from program import run, tided  # noqa: F401 (fixtures)

CALLS = pathlib.Path(__file__).parent / "dlb/calls.py"
NOTED, NOUPDT, NOSHMEM, NOPROC, DISABLED, TIMEOUT = 1, 2, -5, -6, -4, -9


@pytest.fixture
def program(run, build_dir):  # noqa: F811
    def start(name, threads=8):
        """Begun by `tide run`; its pool has so many threads, and it has polled once."""
        made = run(sys.executable, CALLS, build_dir / "libdlb.so", backend="program", options=["--name", name])
        made.expect("begun")
        assert made.ask(f"lib.DLB_Init({threads}, None, None)", "poll() >= 0")[0] == "0"
        return made
    if not (build_dir / "libdlb.so").exists():
        pytest.skip("built without libdlb.so")
    return start


def polls(program, n):  # noqa: F811
    """Its polls tell it this number, and the daemon learns that it has followed."""
    eventually(lambda: program.ask("number()") == str(n), pause=0.05)
    eventually(lambda: program.row()["active"] == n)


def test_programs_that_poll_share_the_cores(program):
    first = program("first")
    second = program("second")
    polls(first, 4), polls(second, 4)
    second.end()
    polls(first, 8)


def test_cores_are_lent_borrowed_and_reclaimed(program):
    first, second = program("first"), program("second")
    polls(first, 4), polls(second, 4)
    assert second.ask("lib.DLB_BorrowCpus(2)") == str(NOUPDT)
    assert first.ask("lib.DLB_LendCpus(2)") == "0"
    polls(first, 2)
    assert second.ask("lib.DLB_BorrowCpus(2)") == "0"
    polls(second, 6)
    assert first.ask("lib.DLB_Reclaim()") in ("0", str(NOTED))  # the other gives them up with its next poll
    polls(second, 4), polls(first, 4)
    assert first.ask("lib.DLB_Reclaim()") == str(NOUPDT)


def test_one_program_steers_another(program):
    first, second = program("first"), program("second")
    polls(first, 4)
    assert second.ask("lib.DLB_DROM_Attach()") == "0"
    result, *both = second.ask("pids()[0]", "*pids()[1]")
    assert result == "0" and sorted(map(int, both)) == sorted([first.process.pid, second.process.pid])
    assert second.ask(f"lib.DLB_DROM_SetProcessMask({first.process.pid}, ctypes.byref(Cpus(0, 1, 5)), 0)") == "0"
    polls(first, 3)
    assert second.ask("lib.DLB_DROM_SetProcessMaskStr(1, b'0-3', 0)") == str(NOPROC)


def test_a_daemon_that_hangs_holds_up_no_program(program, tided):  # noqa: F811
    first = program("first")
    polls(first, 8)
    os.kill(tided.process.pid, signal.SIGSTOP)
    try:
        results, seconds = first.ask("*clocked(200, lambda: lib.DLB_LendCpus(1))")
    finally:
        os.kill(tided.process.pid, signal.SIGCONT)
    assert results == str({TIMEOUT}).replace(" ", "") and float(seconds) < 50, "each would have taken half a second"
    eventually(lambda: first.ask("lib.DLB_LendCpus(1)") == "0", pause=0.2)


def test_without_tide_the_program_goes_on(build_dir, tmp_path):
    env = {k: v for k, v in os.environ.items() if not k.startswith("TIDE_") and k != "LD_PRELOAD"}
    said = subprocess.run([sys.executable, CALLS, build_dir / "libdlb.so"], text=True, capture_output=True, timeout=60,
                          env={**env, "TIDE_DIR": str(tmp_path)}, check=True, input="".join(
                              f"say({call})\n" for call in ("lib.DLB_Init(0, None, None)", "lib.DLB_Lend()", "poll()",
                                                            "lib.DLB_DROM_Attach()", "lib.DLB_Finalize()"))).stdout
    assert [int(word) for word in said.split()[1:]] == [0, NOSHMEM, DISABLED, NOSHMEM, 0]
