#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every check of the project and ends with one line `N passed, N failed, N skipped`.

usage: scripts/check.py [--quick | --cluster | --all] [--list] [PHASE…]

A phase is a command and the phases that it needs; two that need nothing from each other run side by
side, and those that measure or fill the machine run alone. Those that only compute (compilers, clang-tidy)
run besides, at the lowest priority: suites wait more than they compute, and these take what is left of the cores.
Each test of a suite counts, every other phase counts as one test. A phase that could not start because one before it failed has failed, and
so has a suite that ran no test. Logs: build-check/log/PHASE.log.

--quick: what a developer runs between two edits, without TensorFlow. --cluster: with Kubernetes, and
in virtual machines. --all: that and everything else, as CI does: one run is shorter than two.
A phase with Kubernetes or a machine which ends with 77 cannot run here: it is skipped, and with it all that need it.
TIDE_CHECK_MUST_RUN=1, as CI sets it: as root the end-to-end tests (END_TO_END) count as failed where they are skipped.
PHASE…: these and what they need. TIDE_CHECK_JOBS: how many phases run side by side (2).

Up to five failed tests of a suite of pytest or meson, wherever it runs, are run a second time, by themselves:
whoever passes then counts as passed and as flaky, a fault to be mended, and whoever does not run then has failed.
What failed and what is flaky is named once more at the end, where a log that is cut still shows it. The log of a suite
that left no report at its first try is kept as build-check/log/PHASE.first.log, and its end is shown.

What a suite of pytest leaves running is named in its log and ended: it would take the cores from all that follow.

Two kinds of trouble are none of the tests'. A core on which the kernel ran nothing for a while (seen: 230 s, Linux
6.18) is named, of the suites that ran meanwhile more tests get a second try, and the last lines say which flaky tests
were theirs. A virtual machine that falls silent is started a second time.
"""
import argparse
import collections.abc
import dataclasses
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "build-check"
LOGS = OUT / "log"
TAIL_LINES = 60  # of a failed phase's log
CANNOT_RUN = 77
WHOLE = "as a whole"  # what failed or is flaky where no test is named
STOOD_STILL = ", while a core stood still"  # of a flaky test of a suite in whose time that was
NOT_AGAIN = "failed, and did not run at the second try"  # skipped, or the try was stopped before
STOP_S = 20  # for a stopped phase to say what it knows
TEST_LIMIT_S = 240  # one test of pytest; who hangs has failed, and says where
REASON_MAX = 240    # characters of why a test was not good at its first try
SECOND_TRY_MAX = 5  # tests of a suite that get a second try …
SECOND_TRY_STALLED_MAX = 60  # … and after a core has stood still
SECOND_TRY_STALLED_S = 900
STALL_S = 20        # how late a process that sleeps for a second wakes up on a core that stands still
MARK = "CHECKED_IN"  # in the environment of all that a phase starts: which phase of which run
IDLE_PLACES = 2     # phases of the lowest priority side by side
IDLE_LIMIT_S = 4500  # for one of these: it gets what others leave, on a busy machine nothing for long
# For bash. The kernel compares the niceness of processes inside a session only where it groups processes by their
# session (sched_autogroup); the groups have a niceness of their own there.
LOWEST_PRIORITY = """renice -n 19 $$ >/dev/null
[ ! -e /proc/self/autogroup ] || echo 19 2>/dev/null >/proc/self/autogroup || true
"""

# A machine without Docker or qemu must not stay green in CI, which installs both: by phase, what has to have run.
MUST_RUN = os.environ.get("TIDE_CHECK_MUST_RUN") == "1" and os.geteuid() == 0
END_TO_END = {"system": ("test_two_trainings_share_the_cores_and_obey_tide_set", "test_cores_and_threads_of_a_container_follow_each_other"),
              "kubelet": ("test_cores_and_threads_of_a_worker_that_trains_follow_each_other",),
              "packages": ("test_a_minute_after_the_first_word_two_jobs_have_shared_the_machine",
                           "test_a_minute_after_pip_two_numpy_programs_of_a_user_without_root_or_a_compiler_share_the_machine")}

# The interpreters with TensorFlow: the environments that setup.sh makes, or what the user names.
PYTHONS = [os.environ.get(f"TIDE_PYTHON_{name.upper()}") or str(ROOT / folder / "bin/python")
           for name, folder in (("tf221", ".venv"), ("tf218", ".venv-tf218"),
                                ("tf215", ".venv-tf215"))]
TORCH = os.environ.get("TIDE_PYTHON_TORCH") or str(ROOT / ".venv-torch/bin/python")
PYTEST = (f"{PYTHONS[0]} -m pytest -v -rfEs --durations=10 -p no:cacheprovider --rootdir={ROOT} "
          f"--timeout={TEST_LIMIT_S}")
C_SOURCES = " ".join(f"'{folder}/*.{kind}'" for kind in ("c", "h", "cc")
                     for folder in ("src", "include", "tests", "fuzz", "bench", "examples"))
# The sanitizers' own fixed addresses collide with address randomisation of 32 bits.
FIXED_ADDRESSES = "$(! setarch -R true 2>/dev/null || echo setarch -R)"


@dataclasses.dataclass
class Results:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    names: tuple = ()     # of what failed
    flaky: tuple = ()     # of what passed at the second try only
    ran: tuple = ()       # of tests of pytest that passed


def meson_log(name, log):
    """Each test's name, what it said, and how it ended."""
    file = OUT / name / "meson-logs" / f"{log}.json"
    if not file.exists():
        return {}
    tests = map(json.loads, file.read_text().splitlines())
    return {test["name"]: (f"{test.get('stdout')}\n{test.get('stderr')}", test["result"])
            for test in tests}


def meson_results(name):
    """Results of `meson test`: cmocka's functions count one by one, other tests as one."""
    first, again = meson_log(name, "testlog"), meson_log(name, "again")
    found = Results()
    if not first:
        raise ValueError("no test has run")
    for test, (output, result) in {**first, **again}.items():
        good = len(re.findall(r"^\[       OK \] ", output, re.M))
        bad = re.findall(r"^\[  FAILED  \] ([A-Za-z_]\w*)$", output, re.M)
        if result in ("OK", "EXPECTEDFAIL"):
            found.passed += max(good, 1)
            found.flaky += (test,) if test in again else ()
        elif result == "SKIP" and test not in again:
            found.skipped += 1
        else:
            bad = tuple(dict.fromkeys(bad)) or (NOT_AGAIN if result == "SKIP" else result,)
            found.passed += good
            found.failed += len(bad)
            found.names += tuple(f"{test}: {function}" for function in bad)
    return found


def shortened(line):
    """Its middle left out where it is long."""
    return line if len(line) <= REASON_MAX else f"{line[:REASON_MAX * 2 // 3 - 3]} … {line[-REASON_MAX // 3:]}"


def reason_of(case):
    """The first line of what a failed test said."""
    text = next((end.get("message") or "" for end in case if end.tag in ("failure", "error")), "")
    return shortened(text.strip().split("\n")[0])


def last_words(log):
    """Why a suite without a report failed: its last line, behind the line under which that one is indented."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    if not lines:
        return "its log is empty"
    head = next((line for line in reversed(lines) if not line[0].isspace()), lines[-1])
    return shortened(" ".join(dict.fromkeys((head.strip(), lines[-1].strip()))))


def pytest_results(file):
    """Results of pytest, and of its second try, see suite_phase()."""
    again = second_try(file)
    if not file.exists() and again.exists():
        found = pytest_results(again)
        found.flaky += (WHOLE,)
        return found
    found, reasons = Results(), {}
    for suite in xml.etree.ElementTree.parse(file).getroot().iter("testsuite"):
        for case in suite.iter("testcase"):
            ends = {end.tag for end in case}
            if ends & {"failure", "error"}:
                found.failed += 1
                found.names += (f"{case.get('classname')}::{case.get('name')}",)
                reasons[found.names[-1]] = reason_of(case)
            elif "skipped" in ends:
                found.skipped += 1
            else:
                found.passed += 1
                found.ran += (f"{case.get('classname')}::{case.get('name')}",)
    if again.exists():
        second = pytest_results(again)
        left = tuple(dict.fromkeys(name for name in found.names if name not in (*second.ran, *second.names)))
        found.flaky = tuple(f"{name} ({reasons[name]})" for name in dict.fromkeys(found.names) if name in second.ran)
        found.passed += second.passed
        found.ran += second.ran
        found.failed, found.names = second.failed + len(left), second.names + tuple(f"{name} ({NOT_AGAIN})" for name in left)
    return found


def node_results(name):
    """Results of node's test runner (TAP): the tests inside of each describe()."""
    found = Results()
    for bad, test, skipped in re.findall(r"^    (not )?ok \d+ - (.*?)( # SKIP.*)?$",
                                         (LOGS / f"{name}.log").read_text(errors="replace"), re.M):
        if skipped:
            found.skipped += 1
        elif bad:
            found.failed += 1
            found.names += (test,)
        else:
            found.passed += 1
    return found


def with_what_must_run(phase, found):
    """The results, in which skipped tests that must run here have failed."""
    tried = {re.split(r"[\[ ]", name.split("::")[-1])[0] for name in (*found.ran, *found.names)}
    skipped = [name for name in END_TO_END.get(phase.name, ()) if name not in tried] if MUST_RUN and found.skipped else []
    return dataclasses.replace(found, failed=found.failed + len(skipped), skipped=max(found.skipped - len(skipped), 0),
                               names=(*found.names, *(f"{name} (skipped, and TIDE_CHECK_MUST_RUN is set)" for name in skipped)))


def second_try(file):
    return file.with_suffix(".again.xml")


def failed_tests(file):
    """The failed tests of pytest, as it wants them named; () if what failed is not a test."""
    failed = []
    for case in xml.etree.ElementTree.parse(file).getroot().iter("testcase"):
        if {end.tag for end in case} & {"failure", "error"}:
            path = case.get("classname").replace(".", "/") + ".py"
            failed.append(f"{path}::{case.get('name')}" if path != ".py" else None)
    return () if None in failed else tuple(dict.fromkeys(failed))


def summary_results(name):
    """Results of the fuzzers and the models, from their last line."""
    found = re.findall(r"^(?:fuzzers|models): (\d+) passed, (\d+) failed$",
                       (LOGS / f"{name}.log").read_text(errors="replace"), re.M)
    return Results(*map(int, found[-1])) if found else Results()


@dataclasses.dataclass
class Phase:
    name: str
    command: str            # for bash -e, run in ROOT
    needs: tuple = ()
    results: tuple = ()     # of a suite: (function, argument), and the file that it reads
    quick: bool = False     # part of --quick
    alone: bool = False     # needs the cores for itself
    light: bool = False     # mostly waits for a network: runs beside the others
    idle: bool = False      # only computes: runs beside all others, with what they leave of the cores
    quiet: bool = False     # alone, and idle phases pause: it measures what the whole machine does
    limit_s: int = 600
    again: collections.abc.Callable | None = None  # of a suite of pytest: the command that tries these tests again
    again_whole: bool = False  # a suite that left no report is tried again, too: again(()) is its command
    again_s: int = 300      # its limit


TESTS = "meson-test-prereq"  # the target of meson that is all that its tests need


def compile_phase(name, compiler, options="", target="", **more):
    """Configures build-check/NAME, again should the options have changed, and compiles it, or @target alone."""
    return Phase(name, f"""
        export CC={compiler} CXX={dict(gcc='g++', clang='clang++')[compiler]}
        meson setup $([ ! -f {OUT}/{name}/build.ninja ] || echo --reconfigure) \\
            {OUT}/{name} --werror {options}
        ninja -C {OUT}/{name} {target}""", limit_s=1200, **more)


def unit_phase(name, prefix="", options="", **more):
    log = OUT / name / "meson-logs"
    test = f"{prefix} meson test -C {OUT}/{name} --no-rebuild --print-errorlogs"
    failed = r"""sed -nE 's/^\{"name": "[^"]* \/ ([^"]*)".*"result": "(FAIL|ERROR|TIMEOUT)".*/\1/p'"""
    return Phase(f"unit-{name}", f"""
        rm -f {log}/again.*
        {test} {options} || {{
            [ -f {log}/testlog.json ] || exit 1
            failed=$({failed} {log}/testlog.json)
            [ $(wc -w <<< "$failed") -le {SECOND_TRY_MAX} ] || exit 1
            echo "---- once more, one after the other: $failed ----"
            {test} {options} --logbase again --num-processes 1 $failed
        }}""", (name,), (meson_results, name, log / "testlog.json"), **more)


def suite_phase(name, command, tests, needs, file, **more):
    """pytest; @command makes the command from what to test and from the report's file."""
    return Phase(name, command(tests, file), needs, (pytest_results, file, file),
                 again=lambda failed: command(" ".join(map(shlex.quote, failed)) or tests, second_try(file)), **more)


def pytest_phase(folder, needs, workers, **more):
    """@workers run files side by side: these tests wait more than they compute."""
    def command(tests, file):
        return f"{PYTEST} --junitxml={file} {tests}"
    return suite_phase(folder, command, f"{workers} tests/{folder}", needs, OUT / f"{folder}.xml", **more)


def kube_phase(name, tests, options="", needs=(), setting="", **more):
    """pytest with a control plane of Kubernetes."""
    def command(what, file):
        return f"{setting} {PYTEST} {options} --junitxml={file} {what}"
    return suite_phase(name, command, tests, ("gcc", "tf221", "kube-tools", *needs), OUT / f"{name}.xml",
                       alone=True, **more)


def image_phase(name, options=""):
    """Makes the disk that a virtual machine boots from, see tests/cluster/image.py."""
    return Phase(name, f"""
        command -v qemu-system-x86_64 >/dev/null || {{ echo "qemu is not installed"; exit 77; }}
        tests/cluster/image.py {options} {OUT}/{name} {OUT}/gcc""", ("gcc",), idle=True)


def machine_phase(name, options, tests, image="machine"):
    """pytest in a virtual machine of its own, see tests/cluster/vm.py, which empties the folder of its results."""
    def command(what, file):
        results = file.with_suffix("")
        return f"""
            status=0
            tests/cluster/vm.py {options} --silence 240 --results {results} {OUT}/{image} \
                {shlex.quote(f"tests/cluster/inside.sh {what}")} || status=$?
            [ ! -e {results}/junit.xml ] || mv {results}/junit.xml {file}
            exit $status"""
    return suite_phase(name, command, tests, (image,), OUT / f"{name}.xml", alone=True, limit_s=700, again_s=650,
                       again_whole=True)


# Learns what a load of this machine draws, which it cannot while others compute.
CALIBRATION = "tests/component/test_tided_cap.py::test_calibration_learns_the_curve_and_a_restart_keeps_it"

# The component tests that say something new on cgroup v2; each takes ten times as long there.
ON_V2 = " ".join(f"tests/component/test_tided_{name}" for name in (
    "containers.py::test_a_quota_follows_the_share_and_stays_of_its_kind",
    "placement.py::test_root_gives_shares_in_proportion_and_takes_them_back",
    "placement.py::test_group_of_a_large_process_that_takes_its_time_to_exit_is_removed",
    "placement.py::test_root_sets_a_quota_and_removes_it"))

# In the order in which they start when nothing holds them up: long ones first.
PHASES = [
    Phase("tf221", "scripts/setup.sh tf221", light=True, limit_s=900),
    Phase("torch", "scripts/setup.sh torch", ("tf221",), light=True, limit_s=900),
    Phase("tf218", "scripts/setup.sh tf218", ("torch",), light=True, limit_s=900),
    Phase("tf215", "scripts/setup.sh tf215", ("tf218",), light=True, limit_s=900),
    compile_phase("gcc", "gcc", quick=True),
    unit_phase("gcc", quick=True),
    compile_phase("clang", "clang", "-Dtests=false", idle=True),  # the tests: by asan and tsan, with clang, too
    Phase("layers", "scripts/check-layers.py", quick=True),
    Phase("rooms", f"scripts/check-rooms.py --build {OUT}/gcc", ("gcc",), quick=True),
    Phase("size", "scripts/check-size.py", quick=True),
    Phase("documents", "scripts/check-documents.py && scripts/metrics.py --check", quick=True),
    Phase("mirror", "scripts/check-model.py", quick=True),
    Phase("format", f"git ls-files -z {C_SOURCES} | xargs -0 clang-format --dry-run -Werror",
          quick=True),
    Phase("agent-elf", f"""
        scripts/check-agent-elf.sh {OUT}/gcc/libtide-agent.so
        scripts/check-agent-elf.sh {OUT}/clang/libtide-agent.so""", ("gcc", "clang")),
    Phase("hardening", f"""
        for built in gcc clang; do
            (cd {OUT}/$built
            {ROOT}/scripts/check-hardening.sh tide tided tide-hub tide-power tide-kube tide-pods tide-runc tide-tfnode tide-sim \
                tide-dashboard tide-gate tide-tls tide-top tide-slurm threadtide.so libdlb.so libtide.so
            {ROOT}/scripts/check-hardening.sh --lazy libtide-agent.so)
        done""", ("gcc", "clang")),
    Phase("purity", f"""
        scripts/check-policy-purity.sh {OUT}/gcc/src/policy/libtide-policy.a
        scripts/check-policy-purity.sh {OUT}/clang/src/policy/libtide-policy.a
        for built in gcc clang; do
            scripts/check-policy-purity.sh --kube {OUT}/$built/src/kube/libtide-kube-core.a \
                {OUT}/$built/src/policy/libtide-policy.a || exit 1
        done""", ("gcc", "clang")),
    compile_phase("asan", "clang", "-Db_sanitize=address,undefined -Db_lundef=false -Doptimization=1", TESTS, idle=True),
    unit_phase("asan", "UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1"),
    compile_phase("tsan", "clang", "-Db_sanitize=thread -Db_lundef=false -Doptimization=1",
                  f"$(scripts/test-targets.py {OUT}/tsan pure)", idle=True),
    unit_phase("tsan", f"TSAN_OPTIONS=halt_on_error=1 {FIXED_ADDRESSES}", "-t 5 --no-suite pure"),
    Phase("tidy", f"git ls-files -z 'src/*.c' | xargs -0 -P 2 -n 4 clang-tidy -p {OUT}/clang --quiet",
          ("clang",), idle=True),
    compile_phase("fuzzers", "clang", "-Dfuzz=true -Dtests=false",
                  "$(cd fuzz; printf 'fuzz/%s ' fuzz_*.c | sed 's/[.]c / /g')", idle=True),
    Phase("fuzz", f"scripts/run-fuzzers.sh 2 {OUT}/fuzzers 1", ("fuzzers",),
          (summary_results, "fuzz", LOGS / "fuzz.log")),
    Phase("models", f"tests/models/run.py {OUT}/models",
          (), (summary_results, "models", LOGS / "models.log"), idle=True),
    # The page is built again from its pinned packages: the committed bundle has to be the same bytes.
    Phase("ui-tools", "scripts/setup.sh ui || { echo 'no npm packages, see above'; exit 77; }",
          light=True),
    Phase("ui", f"""
        cd ui
        npx --no-install tsc --noEmit -p .
        rm -rf {OUT}/ui
        node build.mjs {OUT}/ui
        diff -rq {OUT}/ui dist || {{ echo "ui/dist is old: run 'node build.mjs' in ui"; exit 1; }}
        node --test --test-reporter=tap test/*.test.mjs""", ("gcc", "ui-tools"),
          (node_results, "ui", LOGS / "ui.log"), limit_s=1200),
    # As users get it: Debian packages and a wheel, each made once, installed where nothing else is.
    Phase("package-tools", "scripts/setup.sh packages-ci || { echo 'neither debhelper nor mmdebstrap, see above'; exit 77; }",
          light=True),
    Phase("package-files", f"""
        scripts/packages.py --binary --no-lintian --to {OUT}/packages
        python3 scripts/wheel.py --to {OUT}/wheel""", ("package-tools",), idle=True),
    pytest_phase("component", ("gcc", "tf221", "torch"), f"-n 4 --dist loadfile --deselect {CALIBRATION}", limit_s=2400),
    suite_phase("calibration", lambda what, file: f"{PYTEST} --junitxml={file} {what}", CALIBRATION, ("gcc", "tf221"),
                OUT / "calibration.xml", quiet=True),
    suite_phase("packages", lambda what, file: f"TIDE_PACKAGES={OUT}/packages {PYTEST} -m ci --junitxml={file} {what}",
                "tests/packages", ("package-files", "tf221"), OUT / "packages.xml", alone=True),
    pytest_phase("system", ("gcc", "tf221", "tf218", "tf215"), "-n 2 --dist loadfile", alone=True, limit_s=1500, again_s=600),
]

# `make check-cluster`: what needs Kubernetes, cgroup v2, systemd, or more cores than there are.
CLUSTER = [
    Phase("kube-tools", """
        scripts/setup.sh kube || { echo "neither etcd nor Kubernetes, see above"; exit 77; }""",
          idle=True),
    kube_phase("kube", "-n 2 --dist loadfile --ignore tests/kube/test_kubelet.py tests/kube",
               needs=("torch",), setting="scripts/setup.sh ui || true  # its page in a browser\n", limit_s=900),
    image_phase("machine"),
    image_phase("machine-plant", "--plant"),
    kube_phase("kubelet", "tests/kube/test_kubelet.py", "--timeout=1000", ("machine",),
               f"TIDE_MACHINE={OUT}/machine", limit_s=1500, again_s=1000),
    machine_phase("cluster-v2", "--systemd --cpus 8",
                  f"tests/cluster/test_service.py tests/cluster/test_containers.py tests/cluster/test_rootless.py "
                  f"tests/cluster/test_recycling.py {ON_V2}"),
    machine_phase("cluster-powercap", "--cpus 4 --memory 1024", "tests/cluster/test_powercap.py",
                  "machine-plant"),
    machine_phase("cluster-32", "--cpus 32 --nodes 2 --threads 2", "tests/cluster/test_cores.py"),
    machine_phase("cluster-64", "--cpus 64 --nodes 4 --threads 2", "tests/cluster/test_cores.py"),
]
PHASE = {phase.name: phase for phase in [*PHASES, *CLUSTER]}


def left_behind(mark):
    """Processes in whose environment the mark stands: {pid: command line}."""
    found = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:  # it has ended, or is another's
            continue
    return found


class Run:
    """One phase at work: its process group, its log, and what became of it."""

    def __init__(self, phase):
        self.phase = phase
        self.log = LOGS / f"{phase.name}.log"
        self.first_log = LOGS / f"{phase.name}.first.log"  # of a first try without a report
        self.started = time.monotonic()
        self.log.unlink(missing_ok=True)
        self.first_log.unlink(missing_ok=True)
        if phase.results:
            phase.results[2].unlink(missing_ok=True)
        if phase.again:
            second_try(phase.results[2]).unlink(missing_ok=True)
        self.mark = f"{os.getpid()}.{phase.name}"
        self.is_again = self.is_paused = self.is_stalled = False
        self.cpu_s = 0
        self.begin(phase.command, phase.limit_s)

    def begin(self, command, limit_s):
        limit_s = max(limit_s, IDLE_LIMIT_S * self.phase.idle)
        self.limit_s, self.end = limit_s, time.monotonic() + limit_s
        env = dict(os.environ, TIDE_BUILD_DIR=str(OUT / "gcc"), PYTHONDONTWRITEBYTECODE="1",
                   TIDE_TF_PYTHONS=":".join(PYTHONS), TIDE_TORCH_PYTHON=TORCH, **{MARK: self.mark})
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", LOWEST_PRIORITY * self.phase.idle + command], cwd=ROOT, env=env, stdout=log,
                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True)

    def say(self, text):
        with open(self.log, "a", encoding="utf-8") as log:
            log.write(f"\ncheck: {text}\n")

    def sweep(self):
        """Ends what a suite of pytest, which has ended, left behind."""
        for pid, command in left_behind(self.mark).items() if self.phase.again else ():
            self.say(f"left behind, ended: {pid} {shortened(command)}")
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def ended(self):
        """Whether the command has ended; adds up what it and those that it waited for have used of the cores."""
        if self.process.returncode is None:
            pid, status, used = os.wait4(self.process.pid, os.WNOHANG)
            if pid:
                self.process.returncode = os.waitstatus_to_exitcode(status)
                self.cpu_s += used.ru_utime + used.ru_stime
        return self.process.returncode is not None

    def finished(self):
        if self.ended():
            self.sweep()
            return not self.tries_again()
        if time.monotonic() > self.end:
            self.stop()
            self.say(f"stopped after {self.limit_s} s")
            self.sweep()
            return True
        return False

    def pause(self, wanted):
        if wanted != self.is_paused:
            self.is_paused = wanted
            os.killpg(self.process.pid, signal.SIGSTOP if wanted else signal.SIGCONT)

    def tries_again(self):
        """Whether a second try of what has failed is under way."""
        if not self.phase.again or self.is_again or self.process.returncode != 1:
            return False  # 1: tests have failed, not pytest itself
        most, limit_s = SECOND_TRY_MAX, self.phase.again_s
        if self.is_stalled:
            most, limit_s = SECOND_TRY_STALLED_MAX, max(limit_s, SECOND_TRY_STALLED_S)
        try:
            failed = failed_tests(self.phase.results[2])
            if not 0 < len(failed) <= most:
                return False
        except (OSError, xml.etree.ElementTree.ParseError):
            if not self.phase.again_whole:
                return False
            failed = ()
            shutil.copy(self.log, self.first_log)
        self.is_again = True
        self.say(f"once more: {' '.join(failed) or 'the whole suite'}")
        self.begin(self.phase.again(failed), limit_s)
        return True

    def stop(self):
        """Lets a suite say first what it has found so far."""
        os.killpg(self.process.pid, signal.SIGINT)
        self.pause(False)
        end = time.monotonic() + STOP_S
        while not self.ended() and time.monotonic() < end:
            time.sleep(0.05)
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        while not self.ended():
            time.sleep(0.01)

    def results(self):
        """A suite that failed without a failed test counts as one."""
        good = self.process.returncode == 0
        if self.process.returncode == CANNOT_RUN:
            return with_what_must_run(self.phase, Results(skipped=1))
        if not self.phase.results:
            return Results(passed=int(good), failed=int(not good))
        read, argument, _ = self.phase.results
        try:
            found = read(argument)
        except (OSError, ValueError, xml.etree.ElementTree.ParseError):
            found = Results()
        if found.failed == 0 and (not good or found.passed + found.skipped == 0):
            found.failed = 1
        if self.first_log.exists():
            found.flaky = tuple(f"{name} ({last_words(self.first_log)})" if name == WHOLE else name for name in found.flaky)
        return with_what_must_run(self.phase, found)

    def report(self):
        found = self.results()
        seconds = time.monotonic() - self.started
        counts = (f"{found.passed} passed, {found.failed} failed, {found.skipped} skipped"
                  if self.phase.results else "")
        if self.process.returncode == CANNOT_RUN and not found.failed:
            word, counts = "skipped", self.log.read_text(errors="replace").splitlines()[-1]
        else:
            word = "FAILED " if found.failed else "ok     "
        print(f"{word} {self.phase.name:<10} {seconds:6.1f} s  {self.cpu_s:6.1f} s of a core  {counts}".rstrip(), flush=True)
        for name in found.flaky:
            print(f"        flaky, good at the second try: {name}", flush=True)
        if self.first_log.exists():
            print("    its first try ended:")
            self.show(self.first_log)
        if found.failed:
            self.show(self.log)
        return found

    @staticmethod
    def show(log):
        lines = log.read_text(errors="replace").splitlines()
        print(*(f"    {line}" for line in lines[-TAIL_LINES:]), f"    ({log})", sep="\n", flush=True)


# For Python: sleeps on this core for a second at a time, and says when it woke up late. Ends with its standard input.
WATCH = """
import os, select, sys, time
core, stall_s = int(sys.argv[1]), float(sys.argv[2])
os.sched_setaffinity(0, {core})
begin = time.monotonic()
while not select.select([sys.stdin], [], [], 1)[0]:
    now = time.monotonic()
    if now - begin > stall_s + 1:
        print(f"core {core} ran nothing for {now - begin - 1:.0f} s", flush=True)
    begin = now
"""


class Stalls:
    """Watches each core for times in which it stands still. A context; lines() says what was seen since it was last asked."""

    def __enter__(self):
        self.watchers = []
        for core in os.sched_getaffinity(0):
            watcher = subprocess.Popen([sys.executable, "-c", WATCH, str(core), str(STALL_S)],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            os.set_blocking(watcher.stdout.fileno(), False)
            self.watchers.append(watcher)
        return self

    def lines(self):
        return [line for watcher in self.watchers for line in (watcher.stdout.read() or b"").decode().splitlines()]

    def __exit__(self, *_):
        for watcher in self.watchers:
            watcher.stdin.close()
            watcher.kill()
            watcher.wait()
            watcher.stdout.close()


def may_start(phase, waiting, running, places):
    if any(need in (p.name for p in [*waiting, *(r.phase for r in running)])
           for need in phase.needs):
        return False
    if phase.idle:
        return not any(r.phase.quiet for r in running) and sum(r.phase.idle for r in running) < IDLE_PLACES
    others = [r.phase for r in running if not r.phase.idle]
    if phase.alone or phase.quiet or any(other.alone or other.quiet for other in others):
        return not others
    return phase.light or sum(not other.light for other in others) < places


def run_all(phases, places):
    """Runs the phases; returns the sums of passed, failed and skipped, what has failed and what is flaky."""
    with Stalls() as stalls:
        return run_in_turn(phases, places, stalls)


def run_in_turn(phases, places, stalls):
    total, broken, absent = Results(), set(), set()
    waiting, running = list(phases), []
    try:
        while waiting or running:
            for line in stalls.lines():
                print(f"check: {line}", flush=True)
                for run in running:
                    run.is_stalled = True
            for phase in list(waiting):
                if broken & set(phase.needs):
                    waiting.remove(phase)
                    broken.add(phase.name)
                    total.failed += 1
                    print(f"FAILED  {phase.name:<10}  not run: {', '.join(broken & set(phase.needs))}"
                          " failed", flush=True)
                elif absent & set(phase.needs):
                    waiting.remove(phase)
                    absent.add(phase.name)
                    found = with_what_must_run(phase, Results(skipped=1))
                    total.skipped += found.skipped
                    total.failed += found.failed
                    total.names += tuple(f"{phase.name}: {name}" for name in found.names)
                    print(f"{'FAILED ' if found.failed else 'skipped'} {phase.name:<10}  not run: {', '.join(absent & set(phase.needs))} cannot run here",
                          flush=True)
                elif may_start(phase, waiting, running, places):
                    waiting.remove(phase)
                    running.append(Run(phase))
            is_quiet = any(r.phase.quiet for r in running)
            for run in list(running):
                if not run.finished():
                    run.pause(is_quiet and run.phase.idle)
                    continue
                running.remove(run)
                found = run.report()
                total.passed += found.passed
                total.failed += found.failed
                total.skipped += found.skipped
                total.names += tuple(f"{run.phase.name}: {name}" for name in
                                     found.names or (WHOLE,) * bool(found.failed))
                total.flaky += tuple(f"{run.phase.name}: {name}{STOOD_STILL * run.is_stalled}" for name in found.flaky)
                if found.failed:
                    broken.add(run.phase.name)
                elif run.process.returncode == CANNOT_RUN:
                    absent.add(run.phase.name)
            time.sleep(0.05)
    finally:
        for run in running:
            run.stop()
    return total


def selected(options):
    if options.quick:
        return [phase for phase in PHASES if phase.quick]
    if options.all:  # what takes ten minutes of both cores begins first, what computes and holds up nobody last
        needed = {need for phase in PHASE.values() for need in phase.needs}
        return sorted(PHASE.values(), key=lambda phase: (phase.name != "kube-tools", phase.idle and phase.name not in needed))
    if not options.phase and not options.cluster:
        return PHASES
    wanted = list(options.phase) or [phase.name for phase in CLUSTER]
    for name in wanted:
        if name not in PHASE:
            sys.exit(f"check: no phase {name!r}: {' '.join(PHASE)}")
        wanted += PHASE[name].needs
    return [phase for phase in PHASE.values() if phase.name in wanted]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="without TensorFlow and sanitizers")
    parser.add_argument("--cluster", action="store_true", help="with Kubernetes, and in virtual machines")
    parser.add_argument("--all", action="store_true", help="with these, and everything else")
    parser.add_argument("--list", action="store_true", help="name the phases")
    parser.add_argument("phase", nargs="*", help="only these and what they need")
    options = parser.parse_args()
    if options.list:
        print(*PHASE)
        return 0
    LOGS.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    # Signals that our starter ignores (nohup, a shell's &) would be ignored by the tested programs, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # A stop by the outside ends the phases too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    total = run_all(selected(options), int(os.environ.get("TIDE_CHECK_JOBS") or 2))
    print(f"check: {time.monotonic() - started:.0f} s")
    conclude(total)
    return 0 if total.passed and not total.failed else 1


def conclude(total):
    """The last lines; the very last one is what CI reads."""
    for name in total.names:
        print(f"failed: {name}")
    for name in total.flaky:
        print(f"flaky: {name}")
    if total.flaky:
        stalled = sum(name.endswith(STOOD_STILL) for name in total.flaky)
        print(f"{len(total.flaky)} flaky: passed at the second try only"
              + f", {stalled} of them in suites in whose time a core stood still" * bool(stalled))
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped")


if __name__ == "__main__":
    sys.exit(main())
