# SPDX-License-Identifier: Apache-2.0
"""libtide.so, its header, the examples and the Python package: without an agent, and with the real
agent but no daemon. TIDE_BUILD_DIR names the build tree."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from daemon import GUARD_S

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TIDE_BUILD_DIR") or ROOT / "build").resolve()
AGENT = BUILD / "libtide-agent.so"


def environment(tmp_path, agent):
    """A program's environment with no daemon to be found."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("TIDE_") and k != "LD_PRELOAD"}
    env.update(TIDE_DIR=str(tmp_path / "nobody"), TIDE_LIBRARY=str(BUILD / "libtide.so.1"))
    env.update(PYTHONPATH=str(ROOT / "python"), PYTHONDONTWRITEBYTECODE="1")
    if agent:
        env["LD_PRELOAD"] = str(AGENT)
    return env


def python(script, env):
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=GUARD_S
    )
    assert done.stderr == ""
    assert done.returncode == 0
    return done.stdout


def compilers():
    return [c for c in ("gcc", "clang") if shutil.which(c)]


@pytest.mark.parametrize("compiler", compilers())
@pytest.mark.parametrize("language", ["c -std=c99", "c -std=c17", "c++ -std=c++11", "c++ -std=c++20"])
def test_header_is_clean_alone(compiler, language):
    command = [compiler, "-x", *language.split(), "-fsyntax-only", "-pedantic-errors", "-Wall"]
    command += ["-Wextra", "-Werror", "-I", str(ROOT / "include"), "-"]
    source = "#include <tide/tide.h>\nint main(void) { return tide_progress(1, 2, 0); }\n"
    done = subprocess.run(command, input=source, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.returncode == 0


def test_every_function_of_the_header_is_exported_with_its_version_and_nothing_else():
    text = (ROOT / "include/tide/tide.h").read_text()
    declared = set(re.findall(r"^TIDE_API [^;(]*?\*?(tide_\w+)\(", text, re.M))
    lines = subprocess.check_output(
        ["nm", "-D", "--defined-only", "--with-symbol-versions", str(BUILD / "libtide.so")], text=True
    ).splitlines()
    exported = {line.split()[-1] for line in lines if line.split()[-2] != "A"}
    assert len(declared) > 15
    assert exported == {name + "@@TIDE_1.0" for name in declared}


def test_library_needs_libc_alone_and_has_its_soname():
    dynamic = subprocess.check_output(["readelf", "-d", str(BUILD / "libtide.so")], text=True)
    needed = set(re.findall(r"NEEDED\).*\[(.*)\]", dynamic))
    # The stack protector's value lies in ld.so on aarch64.
    assert needed <= {"libc.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-aarch64.so.1"}
    assert re.findall(r"SONAME\).*\[(.*)\]", dynamic) == ["libtide.so.1"]


def test_example_runs_without_an_agent_and_says_so(tmp_path):
    done = subprocess.run(
        [BUILD / "examples/malleable_loop", "3", "20"],
        env=environment(tmp_path, agent=False),
        capture_output=True,
        text=True,
        timeout=GUARD_S,
    )
    assert done.returncode == 0
    assert done.stdout == "pi = 3.141592653590, 20 chunks, 0 changes of target\n"
    assert "no agent is loaded" in done.stderr


def busy_threads(pid):
    """Threads of `pid` that compute: a hundredth of the time at least, however busy the machine."""

    def used_ns():
        return {task.name: int((task / "schedstat").read_text().split()[0])
                for task in pathlib.Path(f"/proc/{pid}/task").iterdir()}

    before, began_ns = used_ns(), time.monotonic_ns()
    time.sleep(0.3)
    after, passed_ns = used_ns(), time.monotonic_ns() - began_ns
    return sum(after[task] - before[task] > passed_ns / 100 for task in before)


def await_equal(function, expected):
    deadline = time.monotonic() + GUARD_S
    while function() != expected and time.monotonic() < deadline:
        time.sleep(0.01)
    assert function() == expected


def signal_caught(pid):
    caught = re.search(r"^SigCgt:\s*(\w+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)
    return bool(int(caught[1], 16) >> (signal.SIGRTMIN + 7 - 1) & 1)


def test_example_follows_the_signal_and_gets_the_same_result(tmp_path):
    env = environment(tmp_path, agent=True)
    program = subprocess.Popen(
        [BUILD / "examples/malleable_loop", "4", "1000000"], env=env, stdout=subprocess.DEVNULL
    )
    try:
        await_equal(lambda: signal_caught(program.pid), True)
        for target in (1, 3, 2):
            command = ["/bin/kill", "-s", "RTMIN+7", "-q", str(target), str(program.pid)]
            subprocess.run(command, check=True)
            await_equal(lambda: busy_threads(program.pid), target)
    finally:
        program.kill()
        program.wait()


WITHOUT_AGENT = """
import threadtide as t
print(t.available(), t.progress(1, 2), t.state(), t.set_threads(2), t.on_change(print))
with t.freeze() as held, t.request() as told:
    print(held, told)
try:
    t.Controller()
"""


def test_package_without_library_does_nothing_and_says_so(tmp_path):
    env = environment(tmp_path, agent=False)
    env["TIDE_LIBRARY"] = str(tmp_path / "missing.so")
    output = python(
        WITHOUT_AGENT + """except FileNotFoundError:
    print("no library")
import sys, threadtide.keras
print("keras" in sys.modules, "tensorflow" in sys.modules)
""",
        env,
    )
    assert output == "False False None False False\nFalse False\nno library\nFalse False\n"


def test_package_without_agent_does_nothing_and_finds_no_daemon(tmp_path):
    output = python(
        WITHOUT_AGENT + """except ConnectionRefusedError:
    print("no daemon")
for bad in (-1, 4097, 10**9):
    try:
        t.set_threads(bad)
    except ValueError:
        print("refused")
""",
        environment(tmp_path, agent=False),
    )
    assert output == "False False None False False\nFalse False\nno daemon\n" + 3 * "refused\n"


def test_package_steers_its_own_process_through_the_agent(tmp_path):
    output = python(
        """
import queue
import threadtide as t
changes = queue.Queue()
print(t.available(), t.on_change(changes.put))
t.set_threads(3)
seen = changes.get(timeout=20)
while seen.source is t.Source.LIMIT:  # the agent has just started, and looks at its own limit
    seen = changes.get(timeout=20)
print(seen.target, seen.source is t.Source.API, t.state().target)
with t.freeze() as held:
    print(held, t.state().frozen)
    t.set_threads(1)
    try:
        changes.get(timeout=0.3)
        print("changed while frozen")
    except queue.Empty:
        pass
print(changes.get(timeout=20).target, t.state().frozen)
t.set_threads(0)
print(changes.get(timeout=20).source is t.Source.LIMIT, t.progress(1, 2, "images"))
""",
        environment(tmp_path, agent=True),
    )
    assert output == "True True\n3 True 3\nTrue True\n1 False\nTrue True\n"


def test_package_finds_the_library_beside_the_agent(tmp_path):
    env = environment(tmp_path, agent=False)
    env["LD_PRELOAD"] = f"{BUILD}/agent/$LIB/libtide-agent.so"
    del env["TIDE_LIBRARY"]
    script = "import threadtide as t; print(t.available(), t._lib.library._name)"
    assert python(script, env) == f"True {BUILD}/libtide.so.1\n"


def test_package_finds_the_library_of_its_own_source_tree(tmp_path):
    env = environment(tmp_path, agent=False)
    del env["TIDE_LIBRARY"]
    script = "import threadtide as t; print(t._lib.library._name)"
    assert python(script, {**env, "TIDE_BUILD_DIR": str(BUILD)}) == f"{BUILD}/libtide.so.1\n"
    shutil.copytree(ROOT / "python/threadtide", tmp_path / "tree/python/threadtide")
    (tmp_path / "tree/meson.build").touch()
    (tmp_path / "tree/build").symlink_to(BUILD)
    env["PYTHONPATH"] = str(tmp_path / "tree/python")
    assert python(script, env) == f"{BUILD}/libtide.so.1\n"


def test_a_callback_may_replace_and_remove_itself(tmp_path):
    output = python(
        """
import queue
import threadtide as t
seen = queue.Queue()
def second(state):
    t.on_change(None)
    seen.put("second")
def first(state):
    t.on_change(second)
    seen.put("first")
t.on_change(first)
for target in (3, 4):
    t.set_threads(target)
    print(seen.get(timeout=20))
t.set_threads(5)
try:
    print(seen.get(timeout=0.3))
except queue.Empty:
    print("none")
""",
        environment(tmp_path, agent=True),
    )
    assert output == "first\nsecond\nnone\n"


def test_interpreter_ends_while_changes_come_in(tmp_path):
    script = """
import threading
import threadtide as t
first = threading.Event()
def change(state):
    first.set()
t.on_change(change)
def storm():
    k = 1
    while True:
        t.set_threads(k % 4 + 1)
        k += 1
threading.Thread(target=storm, daemon=True).start()
assert first.wait(20)
print("end")
"""
    for _ in range(5):
        assert python(script, environment(tmp_path, agent=True)) == "end\n"


def test_a_forked_child_reports_for_itself(tmp_path):
    output = python(
        """
import os
import threadtide as t
t.on_change(lambda state: None)
t.set_threads(2)
child = os.fork()
if child == 0:
    ok = t.progress(1, 2) and t.set_threads(1) and t.state().target == 1
    os._exit(0 if ok else 1)
print(os.waitpid(child, 0)[1], t.state().target)
""",
        environment(tmp_path, agent=True),
    )
    assert output == "0 2\n"


def test_pip_installs_the_package(tmp_path):
    for tool in ("setuptools", "wheel"):  # otherwise pip fetches them, and tests stay offline
        pytest.importorskip(tool)
    source = tmp_path / "source"
    shutil.copytree(ROOT / "python", source, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--quiet"]
    command += ["--no-build-isolation", "--target", str(tmp_path / "site"), str(source)]
    subprocess.run(command, check=True, timeout=120)
    env = environment(tmp_path, agent=False)
    env["PYTHONPATH"] = str(tmp_path / "site")
    assert python("import threadtide as t; print(t.__file__)", env).startswith(str(tmp_path / "site"))
