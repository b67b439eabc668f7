# SPDX-License-Identifier: Apache-2.0
"""scripts/check.py: which phases run when, what counts, what is tried again, what is said."""
import argparse
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
import types

import pytest

from conftest import GUARD_S, ROOT
from project_scripts import check, module  # noqa: F401 (a fixture)


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
    # A process that has not become sleep yet has the name of its shell.
    leave = f"setsid sleep 86399 >/dev/null 2>&1 & echo $! > {tmp_path}/left; until grep -qx sleep /proc/$!/comm; do sleep 0.01; done"
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
