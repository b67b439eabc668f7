# SPDX-License-Identifier: Apache-2.0
"""The project's own checks find what they are there to find."""
import argparse
import dataclasses
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import types

import pytest

from conftest import GUARD_S, ROOT


def script(name, *arguments):
    return subprocess.run([ROOT / "scripts" / name, *arguments], capture_output=True, text=True,
                          timeout=GUARD_S)


def module(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"scripts/{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.mark.parametrize("file, include, allowed", [
    ("src/proto/a.c", '"base/error.h"', True),
    ("src/base/a.c", '"proto/proto.h"', False),
    ("src/policy/a.c", "<stdint.h>", True),
    ("src/policy/a.c", "<time.h>", False),
    ("src/agent/a.c", "<jansson.h>", False),
    ("src/cli/a.c", "<jansson.h>", True),
    ("src/lib/a.c", '"agent/program_api.h"', True),
    ("src/lib/a.c", '"agent/agent.h"', False),
    ("src/base/a.c", "<setjmp.h>", False),
    ("src/base/a.c", '"nowhere.h"', False),
    ("src/utils/a.c", "<stdint.h>", False),
    ("include/tide/a.h", '"base/error.h"', False),
    # rooms of a folder are layers, too
    ("src/policy/rules/a.c", '"policy/core/plan.h"', True),
    ("src/policy/core/a.c", '"policy/rules/rule.h"', False),
    ("src/policy/a.c", '"policy/rules/rule.h"', True),
    ("src/policy/core/a.c", '"policy/top.h"', True),
    ("src/policy/top.h", '"policy/core/plan.h"', False),
    ("src/policy/attic/a.c", "<stdint.h>", False),
    ("src/base/attic/a.c", "<stdint.h>", False),
])
def test_layers(tmp_path, file, include, allowed):
    for name in ("base/error.h", "proto/proto.h", "agent/program_api.h", "agent/agent.h", "policy/core/plan.h",
                 "policy/rules/rule.h", "policy/top.h", "../" + file):
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (tmp_path / file).write_text(f"#include {include}\n")
    result = script("check-layers.py", tmp_path)
    assert (result.returncode == 0) == allowed
    assert allowed or file in result.stdout


@pytest.mark.parametrize("body, good", [(98, True), (99, False)])
def test_function_length(tmp_path, body, good):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.c").write_text("int f(int a,\n      int b)\n{\n" + "    a++;\n" * body + "}\n")
    result = script("check-size.py", tmp_path)
    assert f"src/a.c:1: f: {body + 2} lines" in result.stdout
    assert (result.returncode == 0) == good


def test_file_length(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.c").write_text("void f(void)\n{\n}\n" + "\n" * 798)
    assert script("check-size.py", tmp_path).returncode == 1


def test_agent_elf_accepts_the_agent_only(build_dir):
    assert script("check-agent-elf.sh", build_dir / "libtide-agent.so").returncode == 0
    other = script("check-agent-elf.sh", build_dir / "libtide.so")
    assert other.returncode == 1 and "exports tide_" in other.stderr


def test_agent_elf_refuses_lazy_thread_locals_and_new_symbols(tmp_path):
    (tmp_path / "a.c").write_text("""
        #include <pthread.h>
        __thread int lazy;
        int *tide_agent_program_api(void)
        {
            pthread_create(0, 0, 0, 0);
            return &lazy;
        }""")
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", tmp_path / "a.so", tmp_path / "a.c"],
                   check=True)
    result = script("check-agent-elf.sh", tmp_path / "a.so")
    assert result.returncode == 1
    assert "__tls_get_addr" in result.stderr and "exports lazy" in result.stderr


PROGRAMS = ("tide", "tided", "tide-hub", "tide-power", "tide-kube", "tide-pods", "tide-runc", "tide-tfnode", "tide-sim",
            "tide-dashboard", "tide-gate", "tide-tls", "tide-top", "tide-slurm", "threadtide.so", "libdlb.so", "libtide.so")


def test_hardening_accepts_what_we_ship(build_dir):
    result = script("check-hardening.sh", *(build_dir / name for name in PROGRAMS))
    assert result.returncode == 0, result.stderr
    assert script("check-hardening.sh", "--lazy", build_dir / "libtide-agent.so").returncode == 0
    result = script("check-hardening.sh", build_dir / "libtide-agent.so")
    assert result.returncode == 1 and "binds symbols after its start" in result.stderr


@pytest.mark.parametrize("without, complaint", [
    ((), None),
    (("-fno-stack-protector",), "has no stack protector"),
    (("-U_FORTIFY_SOURCE",), "was compiled without _FORTIFY_SOURCE"),
    (("-no-pie", "-fno-pie"), "is not position independent"),
    (("-Wl,-z,lazy",), "binds symbols after its start"),
    (("-Wl,-z,norelro",), "keeps its relocations writable"),
    (("-Wl,-z,execstack",), "has a segment both writable and executable"),
])
def test_hardening_names_what_is_missing(tmp_path, without, complaint):
    (tmp_path / "a.c").write_text("""
        #include <stdio.h>
        #include <string.h>
        int main(int argc, char **argv)
        {
            char text[64];
            snprintf(text, argc * 20, "%s", argv[0]);
            return strlen(text) > 9;
        }""")
    subprocess.run(["gcc", "-O2", "-w", "-fstack-protector-strong", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2",
                    "-fpie", "-pie", "-Wl,-z,relro,-z,now,-z,noexecstack", *without,
                    "-o", tmp_path / "a", tmp_path / "a.c"], check=True)
    result = script("check-hardening.sh", tmp_path / "a")
    assert result.returncode == (complaint is not None)
    assert complaint is None or complaint in result.stderr


@pytest.fixture
def check(tmp_path):
    loaded = module("check")
    loaded.OUT = loaded.LOGS = tmp_path
    return loaded


NEVER_INSTALLED = {"document"}  # fills in manual pages and completions at build time


def test_every_installed_program_is_checked_for_hardening(check, build_dir):
    """A new program or library must not be shipped unseen, nor one that only some options install: all that the root meson.build links count."""
    targets = json.loads(subprocess.run(["meson", "introspect", "--targets", build_dir], capture_output=True, check=True).stdout)
    linked = {pathlib.Path(target["filename"][0]).name for target in targets
              if target["type"] in ("executable", "shared library", "shared module")
              and (target["installed"] or target["defined_in"] == str(ROOT / "meson.build"))}
    linked = {re.sub(r"\.so[.\d]+$", ".so", name) for name in linked} - NEVER_INSTALLED
    assert {"tided", "tide-slurm", "threadtide.so", "libdlb.so"} <= linked
    command = check.PHASE["hardening"].command.replace(")", " ")
    assert linked <= set(command.split())
    assert linked == {*PROGRAMS, "libtide-agent.so"}
    assert "--lazy libtide-agent.so" in command


def test_failed_phase_fails_what_needs_it(check, tmp_path):
    phases = [check.Phase("bad", "false | true"), check.Phase("behind", "touch ran", ("bad",)),
              check.Phase("good", "true"), check.Phase("slow", "sleep 60", limit_s=1)]
    total = check.run_all(phases, 2)
    assert (total.passed, total.failed) == (1, 3)
    assert total.names == ("bad: as a whole", "slow: as a whole")
    assert "stopped after 1 s" in (tmp_path / "slow.log").read_text()


def test_phase_that_needs_the_cores_runs_alone(check, tmp_path):
    mark = f"echo start-$0 >> {tmp_path}/order; sleep 0.2; echo end-$0 >> {tmp_path}/order"
    phases = [check.Phase(n, mark.replace("$0", n), alone=n == "b") for n in "abc"]
    assert check.run_all(phases, 2).passed == 3
    order = (tmp_path / "order").read_text().split()
    at = order.index("start-b")
    assert order[at + 1] == "end-b"


def test_phases_that_only_compute_run_beside_those_that_need_the_cores(check, tmp_path):
    """At the lowest priority; no more of them than there are places."""
    (tmp_path / "go").touch()
    look = f"[ ! -e /proc/self/autogroup ] || cat /proc/self/autogroup >{tmp_path}/$0.group; nice >{tmp_path}/$0"
    wait = f"while [ -e {tmp_path}/go ]; do sleep 0.05; done"
    phases = [check.Phase(n, f"{look.replace('$0', n)}; {wait}", idle=True) for n in "abc"]
    phases.append(check.Phase("suite", f"""
        until [ -s {tmp_path}/a ] && [ -s {tmp_path}/b ]; do sleep 0.05; done
        [ ! -e {tmp_path}/c ]
        nice >{tmp_path}/suite
        rm {tmp_path}/go""", alone=True))
    assert check.run_all(phases, 1).passed == 4
    assert [int((tmp_path / n).read_text()) for n in ("a", "b", "c", "suite")] == [19, 19, 19, os.nice(0)]
    assert all(" nice 19" in file.read_text() for file in tmp_path.glob("*.group"))


def test_phases_that_only_compute_pause_while_another_measures(check, tmp_path):
    ticks, over = tmp_path / "ticks", tmp_path / "over"
    size = f"$(stat -c %s {ticks})"
    wait = f"while [ $before = {size} ]; do sleep 0.05; done"
    phases = [check.Phase("ticks", f"echo >{ticks}; while [ ! -e {over} ]; do echo >>{ticks}; done", idle=True),
              check.Phase("begun", f"until [ -s {ticks} ]; do sleep 0.05; done; before={size}; {wait}"),
              # It may tick until the runner has seen to it, not for longer.
              check.Phase("measures", f"for i in {{1..20}}; do before={size}; sleep 0.5; [ $before != {size} ] || exit 0; done;"
                          " exit 1", ("begun",), quiet=True),
              check.Phase("over", f"before={size}; {wait}; touch {over}", ("measures",))]
    assert check.run_all(phases, 2).names == ()


def test_paused_phase_ends_with_the_run(check, tmp_path):
    run = check.Run(check.Phase("ticks", f"touch {tmp_path}/runs; sleep 60", idle=True))
    run.pause(True)
    run.stop()
    assert run.process.returncode < 0 and run.cpu_s < 5


def test_all_are_the_phases_of_both(check):
    def chosen(**more):
        options = {"quick": False, "cluster": False, "all": False, "phase": []}
        return [phase.name for phase in check.selected(argparse.Namespace(**{**options, **more}))]
    assert sorted(chosen(all=True)) == sorted(check.PHASE)
    assert set(chosen()) | set(chosen(cluster=True)) == set(check.PHASE)


def test_tests_that_ci_leaves_out_are_run_by_a_target_of_make_that_is_documented():
    makefile, hacking = (ROOT / "Makefile").read_text(), (ROOT / "HACKING.md").read_text()
    for target, tests in (("check-kueue", "kube/test_kueue.py"), ("check-packages", "packages"), ("check-pods", "kube/shared_node.py"),
                          ("check-slurm", "slurm"), ("soak", "runtimes")):
        recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", makefile, re.M)[1]
        assert re.search(rf" tests/{tests}( tests/[a-z_/]+\.py)*\n", recipe) and f"| `make {target}` |" in hacking and f"'make {target} " in makefile, target


def test_targets_of_tests_are_those_of_other_suites_too(tmp_path):
    info = tmp_path / "meson-info"
    info.mkdir()
    (info / "intro-targets.json").write_text(json.dumps(
        [{"id": f"{name}@exe", "filename": [f"{tmp_path}/tests/{name}"]} for name in ("one", "two", "both", "lib")]))
    (info / "intro-tests.json").write_text(json.dumps([
        {"suite": ["p"], "depends": ["one@exe"]}, {"suite": ["p:pure"], "depends": ["two@exe", "both@exe"]},
        {"suite": ["p:other"], "depends": ["both@exe", "lib@exe"]}]))
    assert script("test-targets.py", tmp_path).stdout == "tests/both tests/lib tests/one tests/two\n"
    assert script("test-targets.py", tmp_path, "pure").stdout == "tests/both tests/lib tests/one\n"
    assert script("test-targets.py", tmp_path, "pure", "other", "p").returncode == 1


def junit(*ends):
    def said(end, i):
        return f"<{end} message='{end} of {i}&#10;more'/>" if end else ""
    cases = "".join(f"<testcase classname='t' name='n{i}'>{said(end, i)}</testcase>" for i, end in enumerate(ends))
    return f"<testsuites><testsuite>{cases}</testsuite></testsuites>"


@pytest.mark.parametrize("left, status, expected", [
    (junit("failure", "skipped", ""), 1, (1, 1, 1, ("s: t::n0",))),
    (junit("", "skipped", ""), 0, (2, 0, 1, ())),
    (junit(), 0, (0, 1, 0, ("s: as a whole",))),
    (junit("", "", ""), 3, (3, 1, 0, ("s: as a whole",))),
    (None, 0, (0, 1, 0, ("s: as a whole",))),
], ids=["failed", "passed", "empty", "died", "no report"])
def test_pytest_counts(check, tmp_path, left, status, expected):
    report = tmp_path / "s.xml"
    write = f"echo \"{left}\" > {report}" if left else ":"
    phase = check.Phase("s", f"{write}; exit {status}", results=(check.pytest_results, report, report))
    total = check.run_all([phase], 1)
    assert (total.passed, total.failed, total.skipped, total.names) == expected


@pytest.mark.parametrize("must, expected", [(True, (2, 2, 0)), (False, (2, 0, 2))], ids=["CI", "elsewhere"])
def test_end_to_end_tests_that_were_skipped_fail_where_they_must_run(check, tmp_path, must, expected):
    """One in a suite that ran others, the other in a phase whose tools are not here."""
    check.MUST_RUN, check.END_TO_END = must, {"s": ("n0", "n1"), "machine": ("far",)}
    report = tmp_path / "s.xml"
    phases = [check.Phase("s", f"echo \"{junit('', 'skipped')}\" > {report}", results=(check.pytest_results, report, report)),
              check.Phase("tools", "echo none; exit 77"), check.Phase("machine", "true", ("tools",)), check.Phase("other", "true")]
    total = check.run_all(phases, 1)
    assert (total.passed, total.failed, total.skipped - 1) == expected
    assert [name.split(" (")[0] for name in total.names] == ["s: n1", "machine: far"] * must


def test_end_to_end_tests_are_those_of_their_phases_and_ci_asks_for_them(check):
    assert "export TIDE_CHECK_MUST_RUN=1\n" in (ROOT / ".ci/run").read_text()
    for phase, tests in check.END_TO_END.items():
        folder = {"system": "system", "kubelet": "kube", "packages": "packages"}[phase]
        text = "".join(file.read_text() for file in (ROOT / "tests" / folder).glob("test_*.py"))
        assert all(f"\ndef {test}(" in text for test in tests) and f"tests/{folder}" in check.PHASE[phase].command


SUITE = """
import pathlib
import pytest


def first(name):
    mark = pathlib.Path(__file__).with_name(name + ".mark")
    return not mark.exists() and not mark.touch()


@pytest.mark.parametrize("word", ["it's here", "b"])
def test_flaky(word):
    assert word == "b" or not first("flaky")


def test_bad():
    assert not BAD


@pytest.mark.parametrize("n", range(6))
def test_many(n):
    assert not MANY or not first(str(n))


def test_good():
    assert first("good"), "only what has failed is tried again"
"""


def phase_of_suite(check, tmp_path, bad, many):
    check.ROOT = tmp_path
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_suite.py").write_text(SUITE.replace("BAD", str(bad)).replace("MANY", str(many)))

    def command(what, file):
        return f"{sys.executable} -m pytest -q -p no:cacheprovider --rootdir={tmp_path} --junitxml={file} {what}"
    return check.suite_phase("s", command, "tests/test_suite.py", (), tmp_path / "s.xml")


@pytest.mark.parametrize("bad, many, expected, flaky", [
    (False, False, (10, 0), 1), (True, False, (9, 1), 1), (False, True, (3, 7), 0)], ids=["flaky", "bad", "many"])
def test_failed_tests_of_pytest_get_a_second_try(check, tmp_path, bad, many, expected, flaky):
    """Phases of every kind, but that no machine boots, try up to five tests again, with a time of their own."""
    total = check.run_all([phase_of_suite(check, tmp_path, bad, many)], 1)
    assert (total.passed, total.failed, len(total.flaky)) == expected + (flaky,)
    assert ("once more" in (tmp_path / "s.log").read_text()) != many


def test_after_a_core_stood_still_more_tests_get_a_second_try(check, tmp_path, capsys):
    phase = phase_of_suite(check, tmp_path, bad=True, many=True)
    said = iter([[], ["core 1 ran nothing for 40 s"]])
    stalls = types.SimpleNamespace(lines=lambda: next(said, []))
    total = check.run_in_turn([phase], 1, stalls)
    assert (total.passed, total.failed, len(total.flaky)) == (9, 1, 7)
    assert "check: core 1 ran nothing for 40 s" in capsys.readouterr().out.splitlines()
    check.conclude(total)
    assert "7 flaky: passed at the second try only, 7 of them in suites in whose time a core stood still" in capsys.readouterr().out


def test_a_core_that_stands_still_is_seen(check):
    check.STALL_S = 3
    with check.Stalls() as stalls:
        assert len(stalls.watchers) == len(os.sched_getaffinity(0))
        time.sleep(1.5)
        assert not stalls.lines()
        watcher = stalls.watchers[0]
        os.kill(watcher.pid, signal.SIGSTOP)  # its core gives it no time
        time.sleep(6)
        os.kill(watcher.pid, signal.SIGCONT)
        end, lines = time.monotonic() + 10, []
        while not lines and time.monotonic() < end:
            lines = stalls.lines()
            time.sleep(0.05)
        assert re.fullmatch(r"core \d+ ran nothing for \d+ s", lines[0]) and len(lines) == 1
    assert all(watcher.returncode is not None for watcher in stalls.watchers)


def silent_machine(check, tmp_path, said="", whole=True):
    """A suite that says this at its first try and leaves no report."""
    (tmp_path / "said").write_text(said)

    def command(what, file):
        return (f"[ {file} != {tmp_path / 's.xml'} ] || {{ cat {tmp_path}/said; exit 1; }}; "
                f"echo \"{junit('', '')}\" > {file}; echo good now; : {what}")
    return check.suite_phase("s", command, "tests/t.py", (), tmp_path / "s.xml", again_whole=whole)


@pytest.mark.parametrize("whole, expected, flaky", [(True, (2, 0), ("s: as a whole (its log is empty)",)), (False, (0, 1), ())],
                         ids=["machine", "other"])
def test_a_machine_that_falls_silent_is_started_once_more(check, tmp_path, whole, expected, flaky):
    total = check.run_all([silent_machine(check, tmp_path, whole=whole)], 1)
    assert (total.passed, total.failed, total.flaky) == expected + (flaky,)
    assert ("once more: the whole suite" in (tmp_path / "s.log").read_text()) == whole


@pytest.mark.parametrize("said, reason", [
    ("up 9\nvm: it said nothing for 240 s; its console ended:\n    [ 0.1] one\n    [ 0.2] two\n\n",
     "vm: it said nothing for 240 s; its console ended: [ 0.2] two"),
    ("vm: it said nothing; its console ended:\n", "vm: it said nothing; its console ended:"),
    ("up 9\nqemu: no such option\n", "qemu: no such option"),
    ("  one\n  two\n", "two"),
    (f"vm:{'x' * 500}the end\n", None),
], ids=["console", "no console", "word", "indented", "long"])
def test_why_the_first_try_of_a_whole_suite_failed_is_said_and_its_log_kept(check, tmp_path, capsys, said, reason):
    total = check.run_all([silent_machine(check, tmp_path, said)], 1)
    (flaky,) = total.flaky
    if reason:
        assert flaky == f"s: as a whole ({reason})"
    else:
        assert flaky.startswith("s: as a whole (vm:xxx") and flaky.endswith("xthe end)")
        assert len(flaky) == len("s: as a whole ()") + check.REASON_MAX
    assert (tmp_path / "s.first.log").read_text() == said
    shown = capsys.readouterr().out
    assert all(f"    {line}\n" in shown for line in said.splitlines()) and f"({tmp_path / 's.first.log'})" in shown
    assert check.run_all([check.Phase("s", "true")], 1).flaky == () and not (tmp_path / "s.first.log").exists()


def test_a_machine_without_a_report_ends_with_its_own_words(check, tmp_path):
    """Its log's last line says why, and nothing stands behind that."""
    check.ROOT = tmp_path
    machine = tmp_path / "tests/cluster/vm.py"
    machine.parent.mkdir(parents=True)
    machine.write_text("#!/bin/sh\necho vm: it said nothing\nexit 1\n")
    machine.chmod(0o755)
    phase = check.machine_phase("s", "", "tests/t.py")
    total = check.run_all([dataclasses.replace(phase, needs=())], 1)
    assert (total.names, total.flaky) == (("s: as a whole",), ())
    assert (tmp_path / "s.first.log").read_text() == "vm: it said nothing\n"


@pytest.mark.parametrize("program, trouble", [
    ("sleep 60", "it said nothing for 2 s"), ("for i in 1 2 3 4; do echo $i; sleep 1; done", None)], ids=["silent", "slow"])
def test_the_silence_of_a_machine_has_an_end(tmp_path, program, trouble):
    options = types.SimpleNamespace(limit=GUARD_S, silence=2, console=tmp_path / "console")
    with subprocess.Popen(["sh", "-c", f"exec 2>&1; {program}"], stdout=subprocess.PIPE) as machine:
        try:
            assert module("../tests/cluster/vm").watch(machine, options) == trouble
        finally:
            machine.kill()


@pytest.mark.parametrize("cpus, thread", [(8, "multi"), (64, "single")])
def test_many_emulated_cpus_take_turns(tmp_path, cpus, thread):
    options = types.SimpleNamespace(cpus=cpus, nodes=4, threads=2, memory=1024, systemd=False, wire=None, drive=None,
                                    out=tmp_path, console=tmp_path / "console")
    assert f"tcg,thread={thread}" in module("../tests/cluster/vm").qemu(options, tmp_path)


def test_second_try_ends_at_its_own_limit(check, tmp_path):
    report = tmp_path / "s.xml"
    phase = check.Phase("s", f"echo \"{junit('failure', '')}\" > {report}; exit 1",
                        results=(check.pytest_results, report, report), again=lambda failed: "sleep 60", again_s=1)
    total = check.run_all([phase], 1)
    assert (total.passed, total.failed, total.names) == (1, 1, ("s: t::n0",))
    assert "stopped after 1 s" in (tmp_path / "s.log").read_text()


def test_what_a_suite_leaves_running_is_named_and_ended_before_its_second_try_and_at_its_end(check, tmp_path):
    report, again = tmp_path / "s.xml", check.second_try(tmp_path / "s.xml")
    alive = f"sleep 0.5; grep -c sleep /proc/$(cat {tmp_path}/left)/cmdline > {tmp_path}/alive 2>/dev/null || true"  # of one that has ended: nothing
    leave = f"setsid sleep 86399 >/dev/null 2>&1 & echo $! > {tmp_path}/left"
    phase = check.Phase("s", f"{leave}; echo \"{junit('failure')}\" > {report}; exit 1", results=(check.pytest_results, report, report),
                        again=lambda failed: f"{alive}; {leave}; echo \"{junit('')}\" > {again}")
    total = check.run_all([phase], 1)
    assert (total.passed, total.failed, len(total.flaky)) == (1, 0, 1)
    assert (tmp_path / "alive").read_text().strip() in ("", "0")
    left = int((tmp_path / "left").read_text())
    said = (tmp_path / "s.log").read_text()
    assert len(re.findall(r"^check: left behind, ended: \d+ (?:setsid )?sleep 86399$", said, re.M)) == 2 and f"ended: {left} " in said
    end = time.monotonic() + GUARD_S
    while left in check.left_behind(f"{os.getpid()}.s"):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_every_suite_of_pytest_has_a_second_try(check):
    suites = {name: phase for name, phase in check.PHASE.items() if phase.results[:1] == (check.pytest_results,)}
    assert {"component", "system", "kube", "kubelet", "cluster-v2", "cluster-powercap", "cluster-64"} <= suites.keys()
    for phase in suites.values():
        command = phase.again(["tests/a.py::test_b[it's]"])
        assert str(check.second_try(phase.results[2])) in command and "tests/a.py::test_b[it" in command
        assert subprocess.run(["bash", "-n", "-c", command], check=False).returncode == 0
        assert 0 < phase.again_s <= phase.limit_s


def test_second_try_of_pytest_counts(check, tmp_path):
    report = tmp_path / "s.xml"
    report.write_text(junit("failure", "error", ""))
    check.second_try(report).write_text(junit("", "error"))
    found = check.pytest_results(report)
    assert (found.passed, found.failed) == (2, 1)
    assert (found.names, found.flaky) == (("t::n1",), ("t::n0 (failure of 0)",))


@pytest.mark.parametrize("second", [("skipped",), ()], ids=["skipped", "stopped"])
def test_a_failed_test_that_does_not_run_at_the_second_try_has_failed(check, tmp_path, second):
    """Once, also where it is one that must run."""
    check.MUST_RUN, check.END_TO_END = True, {"s": ("n0",)}
    report = tmp_path / "s.xml"
    report.write_text(junit("failure", "skipped", ""))
    check.second_try(report).write_text(junit(*second))
    found = check.with_what_must_run(check.Phase("s", "true"), check.pytest_results(report))
    assert (found.passed, found.failed, found.skipped, found.flaky) == (1, 1, 1, ())
    assert found.names == (f"t::n0 ({check.NOT_AGAIN})",)


def test_flaky_tests_are_named_and_counted_before_the_last_line(check, tmp_path, capsys):
    report = tmp_path / "s.xml"
    (tmp_path / "first").write_text(junit("failure", ""))
    (tmp_path / "second").write_text(junit(""))
    write = f"cp {tmp_path / 'first'} {report}; cp {tmp_path / 'second'} {check.second_try(report)}"
    phases = [check.Phase("s", write, results=(check.pytest_results, report, report)),
              check.Phase("bad", "false")]
    check.conclude(check.run_all(phases, 1))
    assert capsys.readouterr().out.splitlines()[-4:] == [
        "failed: bad: as a whole", "flaky: s: t::n0 (failure of 0)", "1 flaky: passed at the second try only",
        "2 passed, 1 failed, 0 skipped"]


def test_nothing_flaky_is_not_mentioned(check, capsys):
    check.conclude(check.run_all([check.Phase("good", "true")], 1))
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 0 failed, 0 skipped"
    check.conclude(check.Results(passed=3))
    assert capsys.readouterr().out == "3 passed, 0 failed, 0 skipped\n"


def meson_log(tests):
    return "\n".join(json.dumps({"name": f"threadtide / {name}", "stdout": said, "result": result})
                     for name, said, result in tests)


def test_meson_counts(check, tmp_path):
    logs = tmp_path / "b/meson-logs"
    logs.mkdir(parents=True)
    bad = "[       OK ] a\n[  FAILED  ] x\n[  FAILED  ] 1 test(s), listed below:\n[  FAILED  ] x\n"
    (logs / "testlog.json").write_text(meson_log([
        ("good", "[       OK ] a\n[       OK ] b\n[  PASSED  ] 2 test(s).\n", "OK"),
        ("plain", "", "OK"), ("absent", "", "SKIP"), ("bad", bad, "FAIL"),
        ("slow", "[       OK ] a\n", "TIMEOUT")]))
    found = check.meson_results("b")
    assert (found.passed, found.failed, found.skipped) == (5, 2, 1)
    assert found.names == ("threadtide / bad: x", "threadtide / slow: TIMEOUT")
    (logs / "again.json").write_text(meson_log([
        ("bad", "[       OK ] a\n[       OK ] x\n", "OK"), ("slow", "[       OK ] a\n", "TIMEOUT")]))
    found = check.meson_results("b")
    assert (found.passed, found.failed, found.flaky) == (6, 1, ("threadtide / bad",))
    (logs / "again.json").write_text(meson_log([("bad", "", "SKIP"), ("slow", "[       OK ] a\n", "OK")]))
    found = check.meson_results("b")
    assert (found.passed, found.failed, found.skipped) == (4, 1, 1)
    assert (found.names, found.flaky) == ((f"threadtide / bad: {check.NOT_AGAIN}",), ("threadtide / slow",))


@pytest.fixture
def check_rooms(tmp_path):
    """A function that compiles {file: code} as src/ and runs check-rooms.py on it."""
    def run(files, *arguments):
        commands = []
        for name, code in files.items():
            path = tmp_path / "src" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(code)
            if name.endswith(".c"):
                out = name.replace("/", "_") + ".o"
                subprocess.run(["gcc", "-c", "-w", "-I", tmp_path / "src", "-o", tmp_path / out, path],
                               check=True)
                commands.append({"directory": str(tmp_path), "file": f"src/{name}", "output": out})
        (tmp_path / "compile_commands.json").write_text(json.dumps(commands))
        return script("check-rooms.py", "--build", tmp_path, "--src", tmp_path / "src", *arguments)
    return run


def ring(area, size):
    """Files that call each other round in a circle, nine in a room."""
    return {f"{area}/r{i // 9}/f{i}.c":
            f"void v{(i + 1) % size}(void); void v{i}(void) {{ v{(i + 1) % size}(); }}" for i in range(size)}


def test_rooms_allow_a_circle_of_three(check_rooms):
    assert check_rooms(ring("some", 3) | {"other/a.c": "int a;"}).returncode == 0


def test_rooms_refuse_a_circle_of_four_and_print_its_path(check_rooms):
    result = check_rooms(ring("some", 4))
    assert result.returncode == 1
    assert ("shortest: some/r0/f0.c -> some/r0/f1.c (v1) -> some/r0/f2.c (v2)"
            " -> some/r0/f3.c (v3) -> some/r0/f0.c (v0)") in result.stdout


def test_rooms_know_static_symbols_and_other_programs_apart(check_rooms):
    own = {f"one/f{i}.c": f"static void one{(i + 1) % 4}(void) {{}} void one{i}(void)"
                          f" {{ one{(i + 1) % 4}(); }}" for i in range(4)}
    # a.c of each program calls its own run(), not the other's.
    chain = {"one/a.c": "void run(void); void one_b(void) { run(); }", "one/b.c": "void run(void) {}",
             "two/a.c": "void run(void); void two_b(void) { run(); }",
             "two/b.c": "void one_b(void); void run(void) { one_b(); }"}
    assert check_rooms(own | chain).returncode == 0


def test_rooms_refuse_too_many_files(check_rooms):
    files = {f"some/room/f{i}.c": f"int v{i};" for i in range(16)}
    result = check_rooms(files)
    assert result.returncode == 0 and "src/some/room: 16 files" in result.stdout
    result = check_rooms(files | {f"some/room/g{i}.c": f"int w{i};" for i in range(3)})
    assert result.returncode == 1 and "src/some/room: FAILED: 19 files" in result.stdout


@pytest.mark.parametrize("header, text", [
    ("some/room/a_state.h", ""), ("some/room/a.h", "/* SPDX */\n/* Private to this room: x. */\n")])
def test_rooms_refuse_another_rooms_private_header(check_rooms, header, text):
    own = {header: text, "some/room/a.c": f'#include "{header}"\nint a;'}
    assert check_rooms(own).returncode == 0
    result = check_rooms(own | {"some/hall/b.c": f'#include "{header}"\nint b;'})
    assert result.returncode == 1
    assert f"some/hall/b.c includes {header}, which is private to some/room" in result.stdout


def test_rooms_list_the_calls_that_go_upwards_through_a_table(check_rooms):
    result = check_rooms({
        "low/a.h": "struct ops { void (*done)(void); };\nvoid low(const struct ops *ops);\n",
        "low/a.c": '#include "low/a.h"\nvoid low(const struct ops *ops) { ops->done(); }',
        "high/b.c": '#include "low/a.h"\nstatic void done(void) {}\n'
                    "static const struct ops ops = { .done = done };\nvoid high(void) { low(&ops); }",
    })
    assert "upwards: low/a.c calls high/b.c through struct ops" in result.stdout
    assert "1 tables of callbacks, 1 calls upwards" in result.stdout


def test_rooms_refuse_one_call_upwards_more_than_the_limit_and_say_what_to_do(check_rooms):
    limit = int(re.search(r"^UPWARDS_MAX = (\d+)", (ROOT / "scripts/check-rooms.py").read_text(), re.M)[1])

    def upwards(count):
        """Two files with so many tables."""
        each = range(count)
        return {
            "low/a.h": "".join(f"struct ops{i} {{ void (*done{i})(void); }};\nvoid low{i}(const struct ops{i} *);\n" for i in each),
            "low/a.c": '#include "low/a.h"\n' + "".join(
                f"void low{i}(const struct ops{i} *ops) {{ ops->done{i}(); }}\n" for i in each),
            "high/b.c": '#include "low/a.h"\nstatic void done(void) {}\n' + "".join(
                f"static const struct ops{i} ops{i} = {{ .done{i} = done }};\nvoid high{i}(void) {{ low{i}(&ops{i}); }}\n"
                for i in each)}

    result = check_rooms(upwards(limit))
    assert result.returncode == 0 and f"{limit} calls upwards, {limit} the limit; 0 wrong" in result.stdout
    result = check_rooms(upwards(limit + 1))
    assert result.returncode == 1
    assert f"FAILED: {limit + 1} calls upwards through tables, {limit} the limit" in result.stdout
    assert "UPWARDS_MAX in scripts/check-rooms.py" in result.stdout


BARE = re.compile(r'(?:\A|(?<=\n))[ \t]*(?:/\*+\s*(?:\*[ \t]*)?|"""|#[ \t]+|//[ \t]+|--[ \t]+)(?:Of|Who|Whom|That|By|What)\b.*')
BARE_LINE = re.compile(r"^\t?(?:- )?(?:Of|Who|Whom|That|What)\b.*", re.M)


def test_comments_open_with_their_subject():
    """Bare words in a noun's place cost readers a second look: HACKING's words, kept where they are kept today.
    Comments that begin a line alone; those behind code are not looked at."""
    goes_on = re.compile(r"\n[ \t]*(#|//|--)[^\n]*\n\Z")
    assert BARE.search("/*\n * Of the number") and BARE.search('    """What a') and not BARE.search("/* Offers */")
    assert BARE.search("x: 1\n  # What") and BARE.search("  /** Of a") and BARE.search("// That") and not BARE.search("// Thatch")
    kept = [(folder, kind) for folder in ("src", "include", "tests", "fuzz", "bench", "examples")
            for kind in ("*.[ch]", "meson.build")]
    kept += [(folder, "*.py") for folder in ("tests", "bench", "python", "scripts", "demo")]
    kept += [(folder, kind) for folder in ("dist", "debian", "completions", ".ci") for kind in ("*",)]
    kept += [("scripts", "*.sh"), ("tests", "*.sh"), ("tests", "*.sql"), ("tests", "*.y*ml"), ("bench", "*.y*ml"), ("demo", "*.sh"),
             ("ui/src", "*.ts"), ("ui/test", "*.mjs"), (".", "meson.build"), (".", "meson_options.txt"), (".", "Makefile"),
             (".", "mkdocs.yml")]
    files = {file for folder, kind in kept for file in (ROOT / folder).glob(kind if folder == "." else f"**/{kind}") if file.is_file()}
    assert {"dist/kubernetes/rbac.yaml", ".ci/run", "ui/src/machine.ts", "completions/tide.bash.in", "meson.build"} <= {
        str(file.relative_to(ROOT)) for file in files}
    found = [f"{file.relative_to(ROOT)}: {match[0].strip()}" for file in sorted(files)
             for match in BARE.finditer(file.read_text(errors="replace"))
             if not goes_on.search(match.string, 0, match.start())]
    assert not found


def test_lines_of_manual_pages_open_with_their_subject():
    """A paragraph or the text of an option begins with what it is about, not with a bare Of, That, Who, Whom or What."""
    goes_on = re.compile(r"[^\n]\n\Z")
    texts = sorted((ROOT / "man").glob("*.scd")) + [ROOT / "docs" / name for name in ("permissions.md", "api.md")]
    found = [f"{file.relative_to(ROOT)}: {match[0].strip()}" for file in texts for match in BARE_LINE.finditer(file.read_text())
             if match[0].startswith("- ") or not goes_on.search(match.string[:match.start()]) or
             match[0].startswith("\t") and not re.search(r"\n\t[^\n]*\n\Z", match.string[:match.start()])]
    assert len(texts) > 30 and not found


@pytest.mark.parametrize("name, others", [
    ("kwok", {"github.com/spf13/cobra", "github.com/spf13/pflag", "k8s.io/cri-api", "k8s.io/cri-client"}),
    ("helm", {"github.com/Azure/go-ansiterm", "github.com/spf13/cobra", "github.com/spf13/pflag"})])
def test_tools_of_kubernetes_share_what_is_compiled(name, others):
    """Two modules with different versions of a library compile it, and all that uses it, twice: minutes."""
    def versions(name):
        text = (ROOT / f"tests/kube/tools/{name}/go.mod").read_text()
        found = dict(re.findall(r"^(?:require)?\s+(\S+/\S+) (v\S+)", text, re.M))
        return found | dict(re.findall(r"^(?:replace)?\s+(\S+) => \S+ (v\S+)", text, re.M))
    kubernetes, own = versions("kubernetes"), versions(name)
    assert kubernetes["k8s.io/client-go"] == own["k8s.io/client-go"]
    assert {module for module in kubernetes.keys() & own.keys() if kubernetes[module] != own[module]} == others


@pytest.mark.parametrize("file", sorted((ROOT / "requirements").glob("*.txt")), ids=lambda file: file.stem)
def test_every_pinned_wheel_has_its_hash(file):
    """One without would make pip refuse the whole file."""
    pins = file.read_text().replace("\\\n", "").splitlines()
    pins = [line for line in pins if line and not line.startswith("#")]
    assert pins
    for pin in pins:
        version, *hashes = pin.split("--hash=sha256:")
        assert "==" in version and hashes, pin
        assert all(len(h.strip()) == 64 for h in hashes), pin
    assert (ROOT / "scripts/setup.sh").read_text().count("--require-hashes -r") == 2


@pytest.mark.parametrize("status", [0, 1], ids=["built", "failed"])
def test_a_build_of_kubernetes_keeps_its_result_or_tells_its_error(tmp_path, status):
    for name, body in (("dpkg-query", "printf 'installed %s\\n' \"${@:4}\""), ("go", f"""
            [ "$1" = version ] && {{ echo go version go1.99.0 linux/amd64; exit; }}
            seq 300 | sed s,^,example.org/package/, >&2
            [ {status} = 0 ] || {{ echo no such module >&2; exit 1; }}
            while [ "$1" != -o ]; do shift; done
            case "$2" in */) touch "$2/server" ;; *) touch "$2"; chmod +x "$2" ;; esac""")):
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    environment = {key: value for key, value in os.environ.items() if key != "TIDE_KUBE_TOOLS"}
    done = subprocess.run(
        [ROOT / "scripts/setup.sh", "kube"], capture_output=True, text=True, timeout=GUARD_S,
        env={**environment, "PATH": f"{tmp_path}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert (done.returncode, "setup: building etcd" in done.stdout) == (status, True), done
    assert "no such module" in done.stderr if status else len(list(tmp_path.glob("cache/threadtide/kube/*/etcd"))) == 1


@pytest.mark.parametrize("helm, said", [
    ("helm-that-is-not-there", "there is no program 'helm-that-is-not-there'"),
    ("false", "false cannot render namespace.yaml"),
])
def test_manifests_that_cannot_be_made_are_left_as_they_are(tmp_path, helm, said):
    (tmp_path / "namespace.yaml").write_text("as it was\n")
    done = subprocess.run([ROOT / "scripts/manifests.sh", tmp_path], capture_output=True, text=True,
                          timeout=GUARD_S, env={**os.environ, "HELM": helm})
    assert done.returncode == 1
    assert said in done.stderr and done.stderr.endswith("Nothing was written.\n")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("namespace.yaml", "as it was\n")]


MIRRORED = "/* why */\nstatic int\ng(int a,\n  int b)\n{\n    return a;\n}\n\nint f(int a)\n{\n    return a;\n}\n"


@pytest.mark.parametrize("change, says", [
    (("/* why */", "/* because */"), ""),
    (("int f(int a)\n{\n    return a;", "int f(int a)\n{\n    /* as it is */\n    return a;"), ""),
    (("return a;\n}\n\nint f", "return 1;\n}\n\nint f"), ""),  # another function
    (("int f(int a)\n{\n    return a;", "int f(int a)\n{\n    return -a;"), "f() has changed"),
    (("int f(int a)", "int f(long a)"), "f() has changed"),
    (("int f(", "int h("), "f() is gone"),
])
def test_a_function_that_the_model_mirrors_does_not_change_unseen(tmp_path, change, says):
    source, model = tmp_path / "src/a.c", tmp_path / "tests/models/protocol.pml"
    for path in (source, model):
        path.parent.mkdir(parents=True)
    source.write_text(MIRRORED)
    model.write_text("/*\n *   src/a.c f()\n */\n")
    assert "compare it" in script("check-model.py", tmp_path).stdout  # it has no sum yet
    assert script("check-model.py", "--update", tmp_path).returncode == 0
    assert script("check-model.py", tmp_path).returncode == 0
    source.write_text(MIRRORED.replace(*change))
    result = script("check-model.py", tmp_path)
    assert (result.returncode == 1) == bool(says) and says in result.stdout


def test_the_page_of_metrics_is_what_the_sources_say(tmp_path):
    shutil.copytree(ROOT / "src", tmp_path / "src")
    for file in ("scripts/metrics.py", "docs/reference-metrics.md"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)

    def check():
        return subprocess.run([tmp_path / "scripts/metrics.py", "--check"], capture_output=True, text=True, timeout=GUARD_S)
    assert check().returncode == 0
    source = tmp_path / "src/daemon/api/metrics.c"
    source.write_text(source.read_text().replace('"Jobs by state."', '"Jobs by their state."'))
    assert check().returncode == 1 and "docs/reference-metrics.md is not what the sources say" in check().stderr


DOCUMENTS = {
    "README.md": "# It\n\n[docs](docs/README.md) ([es](README.es.md))\n\n```\nrun 1  # now\n```\n\n2 of `a b`, `c`\n",
    "README.es.md": "# Eso\n\n[docs](docs/README.md) ([en](README.md))\n\n```\nrun 1  # ya\n```\n\n`c` y\n`a b` por 2\n",
    "docs/README.md": "# All\n\n[one](one.md#the-first-one)\n",
    "docs/one.md": "# One\n\n## The *first*: `one`\n\n## Again\n\n## Again\n\n[again](#again-1) [code](../a.c)\n\n    [no](link)\n",
    "a.c": "",
    "mkdocs.yml": "site_name: x.md\nnav:\n  - It: README.md\n  - All: docs/README.md\n  - In:\n      - One: docs/one.md\n",
}


@pytest.mark.parametrize("file, change, says", [
    ("a.c", ("", ""), ""),
    ("docs/README.md", ("one.md#", "two.md#"), "docs/README.md: no file two.md#the-first-one"),
    ("docs/README.md", ("first-one", "first"), "docs/README.md: no heading one.md#the-first"),
    ("docs/one.md", ("#again-1", "#again-2"), "docs/one.md: no heading #again-2"),
    ("docs/one.md", ("../a.c", "../../a.c"), "docs/one.md: no file ../../a.c"),
    ("docs/one.md", ("../a.c", "../docs"), "docs/one.md: no file ../docs"),
    ("docs/deep/two.md", ("", "# Two\n"), "docs/deep/two.md: neither docs/README.md nor mkdocs.yml leads to it"),
    ("mkdocs.yml", ("docs/one.md", "docs/two.md"), "mkdocs.yml: no page docs/two.md"),
    ("mkdocs.yml", ("docs/one.md", "docs/README.md"), "mkdocs.yml: docs/README.md stands there twice"),
    ("mkdocs.yml", ("docs/one.md", "README.md"), "mkdocs.yml: docs/one.md is missing"),
    ("docs/two.es.md", ("", "# Dos\n"), "docs/two.es.md: there is no docs/two.md"),
    ("README.md", ("run 1", "run --fast 1"), "README.es.md: other blocks of code than README.md"),
    ("README.md", ("# now", "# at once"), ""),
    ("README.es.md", ("`c`", "`d`"), "README.es.md: other code than README.md: d is c there"),
    ("README.md", ("2 of", "3 of"), "README.es.md: other figures than README.md: 2 is 3 there"),
    ("README.md", ("docs/README.md", "docs/one.md"), "README.es.md: other links than README.md"),
])
def test_documents_lead_to_what_exists_and_translations_keep_up(tmp_path, file, change, says):
    for name, text in {**DOCUMENTS, file: DOCUMENTS.get(file, "").replace(*change, 1)}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    result = script("check-documents.py", tmp_path)
    assert (result.returncode == 1) == bool(says) and says in result.stdout, result.stdout
