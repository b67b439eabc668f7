# SPDX-License-Identifier: Apache-2.0
"""The agent under programs that are not its business: nothing may tell that it is there."""
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time

import pytest

import conftest

HERE = pathlib.Path(__file__).parent

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def assert_same(preloaded, *command, **more):
    """Same output, same messages, same status, and nobody called the daemon. Returns the result."""
    stock = preloaded.without(*command, **more)
    ours = preloaded.with_agent(*command, **more)
    assert (ours.returncode, ours.stdout, ours.stderr) == \
        (stock.returncode, stock.stdout, stock.stderr)
    assert preloaded.connections() == 0
    return stock


@pytest.mark.parametrize("command, status", [
    (["bash", "-c", "echo out; echo err >&2; (exit 3); exit 7"], 7),
    (["bash", "-c", "for i in 1 2 3; do /bin/echo $i | cat; done & wait; kill -TERM $$"], -15),
    (["bash", "-c", "exec 0<&- 1>&- 2>&-; exit 9"], 9),
    (["git", "--version"], 0),
    (["git", "rev-parse", "--no-such-thing"], None),
    (["env", "-i", "/bin/true"], 0),
    (["timeout", "5", "sh", "-c", "exit 4"], 4),
    ([sys.executable, "-c", "import sys; sys.exit('bye')"], 1),
], ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "")
def test_program_runs_as_without_the_agent(preloaded, command, status):
    stock = assert_same(preloaded, *command)
    assert status is None or stock.returncode == status


def test_git_makes_the_same_commit(preloaded, tmp_path):
    script = """set -e; git init -q "$1"; cd "$1"; echo hello > file; git add file
        git -c user.name=t -c user.email=t@t commit -q -m first --date=2020-01-01T00:00:00Z
        git log --format=%T; git fsck --strict"""
    stock = preloaded.without("bash", "-c", script, "sh", tmp_path / "a")
    ours = preloaded.with_agent("bash", "-c", script, "sh", tmp_path / "b")
    assert (stock.returncode, ours.returncode) == (0, 0)
    assert (ours.stdout, ours.stderr) == (stock.stdout, stock.stderr)
    assert preloaded.connections() == 0


def test_no_thread_no_handler_no_descriptor(preloaded, compiled, tmp_path):
    stock = assert_same(preloaded, compiled("inert/show.c"), tmp_path / "agent")
    assert "Threads:\t1\n" in stock.stdout
    # with_agent ran last: the agent really was there.
    assert (tmp_path / "agent").read_text() == "mapped\n"


def test_python_has_one_thread_and_the_same_handlers(preloaded):
    code = "print([l for l in open('/proc/self/status') if l.startswith(('Threads', 'SigCgt', 'SigBlk'))])"
    assert "'Threads:\\t1\\n'" in assert_same(preloaded, sys.executable, "-c", code).stdout


def test_user_namespace_can_be_made(preloaded):
    """The kernel refuses CLONE_NEWUSER to a process with a second thread."""
    if preloaded.without("unshare", "-U", "true").returncode != 0:
        pytest.skip("no user namespaces here")
    assert preloaded.with_agent("unshare", "-U", "true").returncode == 0
    assert_same(preloaded, "unshare", "-U", "-r", "id", "-u")


@needs_root
@pytest.mark.parametrize("user", ["nobody", "root"])
def test_setuid_program_runs_without_the_agent(build_dir, public_dir, compiled, user):
    """ld.so does not preload into it, and says nothing; the environment is what it always is."""
    shutil.copytree(build_dir / "agent", public_dir / "agent")
    preloaded = conftest.Preloaded(public_dir / "agent", public_dir)
    program = public_dir / "show"
    shutil.copy(compiled("inert/show.c"), program)
    os.chown(program, 0, 0)
    program.chmod(0o4755)
    probe = public_dir / "agent-seen"
    stock = assert_same(preloaded, program, probe, user=user, cwd="/")
    assert "euid 0\n" in stock.stdout, "the file system ignores setuid bits"
    assert probe.read_text() == ("absent\n" if user == "nobody" else "mapped\n")


@needs_root
@pytest.mark.parametrize("user, tasks", [("nobody", 1), ("root", 2)])
def test_agent_that_is_a_library_of_a_setuid_program_begins_nothing(build_dir, public_dir, user, tasks):
    """LD_PRELOAD does not reach such a program, so the agent's own check is all that holds it back here."""
    shutil.copy(build_dir / "libtide-agent.so", public_dir)
    preloaded = conftest.Preloaded(public_dir, public_dir)
    program = public_dir / "declares"
    subprocess.run(["gcc", "-O1", "-Wall", "-Werror", f"-I{conftest.ROOT / 'src'}", HERE / "inert/declares.c", "-o", program, "-Wl,--no-as-needed",
                    public_dir / "libtide-agent.so", f"-Wl,-rpath,{public_dir}"], check=True)
    program.chmod(0o4755)
    done = preloaded.without(program, user=user, cwd="/")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"agent 1 tasks {tasks}\n", "")
    assert (preloaded.connections() > 0) == (user == "root")


def test_static_program(preloaded, compiled):
    assert assert_same(preloaded, compiled("inert/show.c", "-static")).returncode == 42


@pytest.fixture(scope="session")
def exit32(tmp_path_factory):
    """exit32(*ld_options): a 32-bit program, made with binutils alone."""
    folder = tmp_path_factory.mktemp("exit32")

    def link(name, *options):
        subprocess.run(["as", "--32", HERE / "inert/exit32.s", "-o", folder / "exit32.o"],
                       check=True)
        subprocess.run(["ld", "-m", "elf_i386", *options, "-o", folder / name,
                        folder / "exit32.o"], check=True)
        try:
            subprocess.run([folder / name], check=False)
        except OSError:
            pytest.skip("this kernel runs no 32-bit programs")
        return folder / name
    return link


def test_static_32_bit_program(preloaded, exit32):
    assert assert_same(preloaded, exit32("static")).returncode == 42


def dynamic32(exit32):
    libc = [p for p in ("/lib32/libc.so.6", "/lib/i386-linux-gnu/libc.so.6") if os.path.exists(p)]
    if not libc:
        pytest.skip("no 32-bit C library (libc6-i386)")
    return exit32("dynamic", "-dynamic-linker", "/lib/ld-linux.so.2", "--no-as-needed", *libc)


def test_dynamic_32_bit_program_gets_the_empty_library(preloaded, exit32):
    assert assert_same(preloaded, dynamic32(exit32)).returncode == 42


def test_dynamic_32_bit_program_would_complain_without_it(preloaded, exit32, tmp_path):
    """The test above can fail: ld.so does write to stderr where there is no such library."""
    shutil.copytree(preloaded.directory / "lib64", tmp_path / "lib64")
    preloaded.env["LD_PRELOAD"] = f"{tmp_path}/$LIB/libtide-agent.so"
    result = preloaded.with_agent(dynamic32(exit32))
    assert result.returncode == 42 and "cannot be preloaded" in result.stderr


@pytest.mark.parametrize("options", [[], ["-static"]], ids=["dynamic", "static"])
def test_musl_program(preloaded, compiled, options, tmp_path):
    if not shutil.which("musl-gcc"):
        pytest.skip("no musl-gcc (musl-tools)")
    program = compiled("inert/show.c", *options, cc="musl-gcc")
    assert assert_same(preloaded, program, tmp_path / "agent").returncode == 42
    assert (tmp_path / "agent").read_text() == "absent\n"


def test_environment_is_passed_on(preloaded):
    code = "import os, subprocess; print(subprocess.check_output(['bash', '-c', 'env'], text=True))"
    result = preloaded.with_agent(sys.executable, "-c", code)
    seen = dict(l.split("=", 1) for l in result.stdout.splitlines() if "=" in l)
    for name, value in preloaded.env.items():
        if name == "LD_PRELOAD" or name.startswith("TIDE_"):
            assert seen[name] == value


def test_missing_agent_file_never_fails_a_program(preloaded):
    preloaded.env["LD_PRELOAD"] = "/nonexistent/$LIB/libtide-agent.so"
    result = preloaded.with_agent("bash", "-c", "echo out; exit 5")
    assert (result.returncode, result.stdout) == (5, "out\n")


def test_entry_of_the_user_comes_first(preloaded, compiled, tmp_path):
    """Behind another library in LD_PRELOAD the agent is as quiet."""
    library = compiled("inert/constructor.c", "-shared", "-fPIC")
    preloaded.env["LD_PRELOAD"] = f"{library}:{preloaded.env['LD_PRELOAD']}"
    assert assert_same(preloaded, compiled("inert/show.c"), tmp_path / "agent").returncode == 42
    assert (tmp_path / "agent").read_text() == "mapped\n"


PYTHON_LIVES = {
    "closerange": "import os; os.closerange(3, 65536); print(open('/proc/self/comm').read())",
    "fork": """
import multiprocessing, os
context = multiprocessing.get_context("fork")
with context.Pool(2) as pool:
    print(pool.map(abs, range(-20, 0)))""",
    "spawn": """
import multiprocessing
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print(pool.map(abs, range(-20, 0)))""",
    "subprocess": """
import subprocess, sys
print(subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, check=True))
print(subprocess.run("exit 3", shell=True, close_fds=False).returncode)""",
    "exec": "import os; os.execvp('bash', ['bash', '-c', 'ls /proc/self/task | wc -l; exit 8'])",
    "thread": """
import threading
t = threading.Thread(target=print, args=("hello",)); t.start(); t.join()""",
}


@pytest.mark.parametrize("life", PYTHON_LIVES)
def test_python_program(preloaded, tmp_path, life):
    script = tmp_path / "program.py"
    script.write_text(PYTHON_LIVES[life])
    stock = assert_same(preloaded, sys.executable, script)
    assert stock.returncode == (8 if life == "exec" else 0) and not stock.stderr


def system_calls(preloaded, preload, tmp_path):
    """name -> number of calls of `bash -c :` with that library preloaded."""
    report = tmp_path / "strace"
    result = preloaded.without("strace", "-f", "-c", "-U", "calls,name", "-o", report, "-E",
                               f"LD_PRELOAD={preload}", "bash", "-c", ":")
    if result.returncode != 0:
        pytest.skip(f"strace cannot trace here: {result.stderr.strip()}")
    return {name: int(calls) for calls, name in re.findall(r"^ *(\d+) (\w+)$", report.read_text(),
                                                           re.M) if name != "total"}


def test_start_costs_no_call_but_the_loaders(preloaded, compiled, tmp_path):
    """Against a library that does nothing: all that differs is how many segments are mapped."""
    empty = compiled("inert/constructor.c", "-shared", "-fPIC")
    shutil.copytree(preloaded.directory, tmp_path / "empty")
    for library in (tmp_path / "empty").rglob("libtide-agent.so"):
        shutil.copy(empty, library)
    stock = system_calls(preloaded, f"{tmp_path}/empty/$LIB/libtide-agent.so", tmp_path)
    ours = system_calls(preloaded, preloaded.env["LD_PRELOAD"], tmp_path)
    assert stock["openat"] > 2 and stock["execve"] == 1
    mapping = {"mmap", "mprotect", "munmap", "brk"}
    assert {k: v for k, v in ours.items() if k not in mapping} == \
        {k: v for k, v in stock.items() if k not in mapping}
    assert sum(ours.get(k, 0) for k in mapping) <= sum(stock.get(k, 0) for k in mapping) + 2


def test_start_time_is_reported(preloaded, record_testsuite_property):
    """Recorded, not judged: machines are noisy. Pairs, interleaved."""
    def seconds(method):
        start = time.perf_counter()
        assert method("bash", "-c", ":").returncode == 0
        return time.perf_counter() - start
    pairs = [(seconds(preloaded.without), seconds(preloaded.with_agent)) for _ in range(50)]
    extra_us = statistics.median(b - a for a, b in pairs) * 1e6
    record_testsuite_property("bash_start_extra_us_median", round(extra_us))
    print(f"bash -c : starts {extra_us:.0f} us later with the agent (median of 50 pairs)")
