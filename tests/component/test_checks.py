# SPDX-License-Identifier: Apache-2.0
"""The project's own checks find what they are there to find."""
import importlib.util
import json
import subprocess

import pytest

from conftest import GUARD_S, ROOT


def script(name, *arguments):
    return subprocess.run([ROOT / "scripts" / name, *arguments], capture_output=True, text=True,
                          timeout=GUARD_S)


@pytest.mark.parametrize("file, include, allowed", [
    ("src/proto/a.c", '"base/error.h"', True),
    ("src/base/a.c", '"proto/proto.h"', False),
    ("src/policy/a.c", "<stdint.h>", True),
    ("src/policy/a.c", "<time.h>", False),
    ("src/agent/a.c", "<jansson.h>", False),
    ("src/cli/a.c", "<jansson.h>", True),
    ("src/lib/a.c", '"agent/program_api.h"', True),
    ("src/lib/a.c", '"agent/agent.h"', False),
    ("src/base/a.c", '"nowhere.h"', False),
    ("src/utils/a.c", "<stdint.h>", False),
    ("include/tide/a.h", '"base/error.h"', False),
])
def test_layers(tmp_path, file, include, allowed):
    for name in ("base/error.h", "proto/proto.h", "agent/program_api.h", "agent/agent.h", "../" + file):
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (tmp_path / file).write_text(f"#include {include}\n")
    result = script("check-layers.py", tmp_path)
    assert (result.returncode == 0) == allowed
    assert allowed or f"{file}" in result.stdout


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


@pytest.fixture
def check(tmp_path):
    spec = importlib.util.spec_from_file_location("check", ROOT / "scripts/check.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.OUT = module.LOGS = tmp_path
    return module


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


def junit(*ends):
    cases = "".join(f"<testcase classname='t' name='n{i}'>{f'<{end}/>' if end else ''}</testcase>"
                    for i, end in enumerate(ends))
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


def test_second_try_of_pytest_counts(check, tmp_path):
    report = tmp_path / "s.xml"
    report.write_text(junit("failure", "error", ""))
    check.second_try(report).write_text(junit("", "error"))
    found = check.pytest_results(report)
    assert (found.passed, found.failed) == (2, 1)
    assert (found.names, found.unsteady) == (("t::n1",), ("t::n0",))


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
    assert (found.passed, found.failed, found.unsteady) == (6, 1, ("threadtide / bad",))
