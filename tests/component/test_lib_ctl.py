# SPDX-License-Identifier: Apache-2.0
"""threadtide.Controller, hence libtide's controller side, against the real tided, agent and jobs."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

from daemon import GUARD_S

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TIDE_BUILD_DIR") or ROOT / "build").resolve()

sys.path.insert(0, str(ROOT / "python"))
os.environ.setdefault("TIDE_LIBRARY", str(BUILD / "libtide.so.1"))
import threadtide  # noqa: E402


def await_true(what):
    """Waits until what() is true; it may fail while the state is not reached yet."""
    deadline = time.monotonic() + GUARD_S
    while not what():
        assert time.monotonic() < deadline, "never came true"
        time.sleep(0.01)


class Machine:
    """A tided in a private directory, and the jobs of one test."""

    def __init__(self, folder):
        self.folder = folder
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("TIDE_")}
        self.env.update(TIDE_DIR=str(folder), TIDE_LIBRARY=str(BUILD / "libtide.so.1"))
        self.env.update(PYTHONPATH=str(ROOT / "python"), PYTHONDONTWRITEBYTECODE="1")
        self.env.update(TIDE_CLAIMS_DIR=str(folder / "claims"))  # no share with other daemons
        self.env.pop("LD_PRELOAD", None)
        self.programs = []
        self.daemon = None
        self.start_daemon()

    def start_daemon(self):
        self.daemon = subprocess.Popen([BUILD / "tided", "--dir", self.folder], env=self.env)
        await_true(self.answers)

    def answers(self):
        try:
            threadtide.Controller(str(self.folder)).close()
            return True
        except ConnectionRefusedError:
            return False

    def kill_daemon(self):
        self.daemon.kill()
        self.daemon.wait()

    def controller(self, **options):
        return threadtide.Controller(str(self.folder), **options)

    def start(self, *command, name="loop"):
        program = subprocess.Popen(
            [BUILD / "tide", "run", "--name", name, "--", *command],
            env=self.env,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.programs.append(program)
        return program

    def start_loop(self, name="loop", workers=4):
        program = self.start(
            BUILD / "examples/malleable_loop", str(workers), "1000000000", name=name
        )
        with self.controller() as controller:
            await_true(lambda: (self.job(controller, name) or threadtide.Job(*16 * [0])).max)
        return program

    @staticmethod
    def job(controller, name):
        return next((job for job in controller.jobs() if job.name == name), None)

    def end(self):
        for program in self.programs:
            program.kill()
            program.wait()
            program.stdout.close()
        self.daemon.send_signal(signal.SIGCONT)
        self.daemon.terminate()
        self.daemon.wait(GUARD_S)


@pytest.fixture
def machine(public_dir):
    (public_dir / "tide").mkdir(0o700)
    made = Machine(public_dir / "tide")
    yield made
    made.end()


def used_ticks(pid):
    ticks = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        ticks[task.name] = int(fields[11]) + int(fields[12])
    return ticks


def busy_threads(pid):
    """One tick may be the end of those milliseconds that a thread which only listens has used so far."""
    before = used_ticks(pid)
    time.sleep(0.3)
    return sum(ticks > before.get(task, 0) + 1 for task, ticks in used_ticks(pid).items())


def stop(pid):
    """SIGSTOP, and waits until no thread runs any more."""
    os.kill(pid, signal.SIGSTOP)
    tasks = pathlib.Path(f"/proc/{pid}/task")
    await_true(
        lambda: all(
            (task / "stat").read_text().rpartition(")")[2].split()[0] == "T"
            for task in tasks.iterdir()
        )
    )


def test_list_shows_a_program_without_a_framework(machine):
    program = machine.start_loop()
    with machine.controller() as controller:
        await_true(lambda: machine.job(controller, "loop").done > 10)
        job = machine.job(controller, "loop")
        assert job.pid == program.pid
        assert job.max == 4
        assert job.state == "running"
        assert job.unit == "chunks"
        assert job.total == 1000000000
        assert (job.lent, job.borrowed) == (0, 0)
        assert controller.jobs() and controller.fileno() >= 0


def test_synchronous_set_returns_when_the_threads_are_parked(machine):
    program = machine.start_loop()
    with machine.controller() as controller:
        for target in (1, 3, 2, 4):
            result = controller.set("loop", target, deadline=20)
            assert not result.partial
            assert result.after == target
            assert 0 < result.latency < 20
            assert machine.job(controller, "loop").active == target
            assert busy_threads(program.pid) <= target
            assert result.oversubscribed == (target > os.cpu_count())
        await_true(lambda: busy_threads(program.pid) == 4)


def test_a_job_has_three_names_and_goes_back_to_automatic(machine):
    program = machine.start_loop()
    with machine.controller() as controller:
        automatic = machine.job(controller, "loop").target
        for name in ("loop", machine.job(controller, "loop").id, program.pid):
            assert controller.set(name, 1).after == 1
            await_true(lambda: machine.job(controller, "loop").target == 1)
            controller.set(name, 0)
            await_true(lambda: machine.job(controller, "loop").target == automatic)


def test_asynchronous_set_arrives_and_failures_are_told(machine):
    machine.start_loop()
    with machine.controller() as controller:
        for target in (1, 2, 3):
            assert controller.set("loop", target, deadline=threadtide.ASYNC) == target
        await_true(lambda: machine.job(controller, "loop").active == 3)
        assert controller.failures() == []
        request = controller.set("nobody", 1, deadline=threadtide.ASYNC)
        failed = []
        await_true(lambda: failed.extend(controller.failures()) or failed)
        assert failed[0].request == request
        assert isinstance(failed[0].error, ProcessLookupError)


def test_bad_requests_are_named_and_change_nothing(machine):
    machine.start_loop()
    with machine.controller() as controller:
        controller.set("loop", 2)
        with pytest.raises(ProcessLookupError, match="nobody"):
            controller.set("nobody", 1)
        with pytest.raises(ProcessLookupError):
            controller.set(None, 1)  # this process is in no job
        for bad in (-1, 4097, 10**9):
            with pytest.raises(ValueError):
                controller.set("loop", bad)
        with pytest.raises(ValueError):
            controller.lend("loop", 0)
        with pytest.raises(ValueError):
            controller.set("x" * 64, 1)
        for name in ("loop\0y", pathlib.Path("loop\0")):  # C would end it at the NUL
            with pytest.raises(ValueError, match="NUL"):
                controller.set(name, 1)
        for bad in (2.5, "2", None):
            with pytest.raises(TypeError, match="whole numbers"):
                controller.set("loop", bad)
        with pytest.raises(OSError, match="pinned"):
            controller.lend("loop", 1)
        assert machine.job(controller, "loop").target == 2
    with pytest.raises(ValueError):
        controller.jobs()  # closed


def as_nobody(machine, script):
    """Runs `script` as another user; what it imports is imported before."""
    become = "import os, threadtide\nos.setgroups([])\nos.setgid(65534)\nos.setuid(65534)\n"
    done = subprocess.run(
        [sys.executable, "-c", become + script],
        env=machine.env,
        capture_output=True,
        text=True,
        timeout=GUARD_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_another_user_does_not_get_into_a_private_daemon(machine):
    script = """
try:
    threadtide.Controller()
except PermissionError as error:
    print(error.strerror)
"""
    assert "denied" in as_nobody(machine, script)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_another_user_sees_a_job_of_the_machine_but_may_not_change_it(machine):
    machine.start_loop()
    machine.folder.chmod(0o755)  # as /run/tide is
    script = """
with threadtide.Controller() as controller:
    for job in controller.jobs():
        try:
            controller.set(job.id, 3)
        except PermissionError as error:
            print(job.name, job.target, error.strerror)
"""
    output = as_nobody(machine, script)
    assert output.startswith("loop ")
    with machine.controller() as controller:
        assert machine.job(controller, "loop").target == int(output.split()[1])
        assert machine.job(controller, "loop").target != 3


def test_a_stopped_job_is_partial_at_the_deadline(machine):
    program = machine.start_loop()
    with machine.controller() as controller:
        controller.set("loop", 3, deadline=20)
        stop(program.pid)
        assert controller.set("loop", 1, deadline=0.2).partial
        program.send_signal(signal.SIGCONT)
        await_true(lambda: machine.job(controller, "loop").active == 1)


def test_a_stopped_daemon_is_a_timeout_and_no_hang(machine):
    machine.start_loop()
    with machine.controller(timeout=0.2) as controller:
        stop(machine.daemon.pid)
        with pytest.raises(TimeoutError):
            controller.set("loop", 1, deadline=0.1)
        with pytest.raises(TimeoutError):
            controller.jobs()
        machine.daemon.send_signal(signal.SIGCONT)
        await_true(lambda: machine.job(controller, "loop").target == 1)


def test_a_daemon_killed_while_a_call_waits_is_named_and_its_successor_used(machine):
    program = machine.start_loop()
    with machine.controller() as controller:
        controller.set("loop", 3, deadline=20)
        stop(program.pid)  # so that the call waits
        killer = threading.Timer(0.3, machine.daemon.kill)
        killer.start()
        with pytest.raises(ConnectionResetError):
            controller.set("loop", 1, deadline=20)
        killer.join()
        machine.daemon.wait()
        with pytest.raises(ConnectionRefusedError):
            controller.jobs()
        program.send_signal(signal.SIGCONT)
        machine.start_daemon()
        await_true(lambda: (machine.job(controller, "loop") or threadtide.Job(*16 * [0])).max)
        assert controller.set("loop", 2, deadline=20).after == 2


def test_a_program_steers_the_job_it_is_in(machine):
    script = """
import time
import threadtide
library_beside_the_agent = threadtide._lib.library._name
with threadtide.Controller() as controller:
    controller.set(None, 2)
    while threadtide.state().target != 2:
        time.sleep(0.01)
    print(controller.jobs()[0].name, library_beside_the_agent.endswith("/libtide.so.1"))
"""
    del machine.env["TIDE_LIBRARY"]
    program = machine.start(sys.executable, "-c", script, name="self")
    assert program.communicate(timeout=GUARD_S)[0] == "self True\n"


def test_lent_cores_come_back(machine):
    machine.start_loop()
    with machine.controller() as controller:
        share = machine.job(controller, "loop").target
        if share < 2:
            pytest.skip("one core cannot be lent")
        lent = controller.lend("loop", 1, deadline=20)
        assert (lent.before, lent.after, lent.partial) == (0, 1, False)
        assert machine.job(controller, "loop").lent == 1
        await_true(lambda: machine.job(controller, "loop").active == share - 1)
        reclaimed = controller.reclaim("loop", deadline=20)
        assert (reclaimed.before, reclaimed.after) == (1, 0)
        await_true(lambda: machine.job(controller, "loop").active == share)


def test_a_borrower_gets_what_is_lent_and_loses_it_to_the_reclaim(machine):
    """Two jobs on four cores of the daemon's: two each, then three and one, then two each."""
    machine.kill_daemon()
    machine.daemon = subprocess.Popen(
        [BUILD / "tided", "--dir", machine.folder, "--cpus", "0-3"], env=machine.env
    )
    await_true(machine.answers)
    for name in ("lender", "borrower"):
        machine.start_loop(name)
    with machine.controller() as controller:

        def active():
            return [machine.job(controller, name).active for name in ("lender", "borrower")]

        await_true(lambda: active() == [2, 2])
        lent = controller.lend("lender", 3, deadline=20)  # it keeps one
        assert lent.partial and lent.message == "fewer cores than requested"
        assert controller.borrow("borrower", 1, deadline=20).after == 1
        await_true(lambda: active() == [1, 3])
        assert machine.job(controller, "borrower").borrowed == 1
        controller.reclaim("lender", deadline=20)
        await_true(lambda: active() == [2, 2])
        assert machine.job(controller, "borrower").borrowed == 0


def test_returned_cores_are_the_lenders_again_or_lie_in_the_pool(machine):
    machine.start_loop()
    with machine.controller() as controller:
        result = controller.give_back("loop", deadline=20)
        assert (result.before, result.after) == (0, 0)


def test_controller_example_runs(machine):
    machine.start_loop()
    done = subprocess.run(
        [BUILD / "examples/controller"],
        env=machine.env,
        capture_output=True,
        text=True,
        timeout=GUARD_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"call took [\d.]+ us$", done.stdout, re.M)) == 6
    refused = subprocess.run(
        [BUILD / "examples/controller", "nobody"],
        env=machine.env,
        capture_output=True,
        text=True,
        timeout=GUARD_S,
    )
    assert refused.returncode == 1
    assert "nobody" in refused.stdout
