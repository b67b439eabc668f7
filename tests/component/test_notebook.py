# SPDX-License-Identifier: Apache-2.0
"""Jupyter kernels as jobs: what `python -m threadtide kernel install` writes is run as Jupyter would, with the real tide
and tided; in place of ipykernel stands a module that says what it sees. %tide is called as IPython does. With TIDE_SOAK=1 and a
Python that has ipykernel (TIDE_PYTHON_HOSTS, scripts/setup.sh hosts) the last test is a real notebook's."""
import json
import os
import pathlib
import subprocess
import sys

import conftest
import pytest
from daemon import GUARD_S

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOSTS_PYTHON = os.environ.get("TIDE_PYTHON_HOSTS")
sys.path.insert(0, str(ROOT / "python"))

import threadtide  # noqa: E402
from threadtide import kernel  # noqa: E402

KERNEL = """import os, sys, json
print(json.dumps({"argv": sys.argv[1:], "job": os.environ.get("TIDE_JOB_ID"),
                  "agent": "libtide-agent" in open("/proc/self/maps").read()}), flush=True)
sys.stdin.read()
"""


def env_of(tmp_path, build_dir, **more):
    (tmp_path / "ipykernel_launcher.py").write_text(KERNEL)
    return {**conftest.plain_env(), "PYTHONPATH": f"{ROOT / 'python'}:{tmp_path}",
            "PATH": f"{build_dir}:/usr/bin:/bin" if build_dir else "/usr/bin:/bin", **more}


def install(tmp_path, env, *words):
    return subprocess.run([sys.executable, "-m", "threadtide", "kernel", *words], env=env, capture_output=True, text=True,
                          timeout=GUARD_S, cwd=tmp_path)


@pytest.fixture
def argv(tmp_path):
    """The command of an installed kernel."""
    done = install(tmp_path, env_of(tmp_path, None), "install", "--prefix", tmp_path / "prefix")
    assert done.returncode == 0, done.stderr
    spec = json.loads((tmp_path / "prefix/share/jupyter/kernels/threadtide/kernel.json").read_text())
    assert (spec["display_name"], spec["language"]) == ("Python (Threadtide)", "python")
    return [word.replace("{connection_file}", "/run/kernel-1.json") for word in spec["argv"]]


def run(argv, env):
    """A running kernel, and what it saw."""
    process = subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return process, json.loads(process.stdout.readline())


def test_a_kernel_is_a_job_of_its_own_name(place, tmp_path, build_dir, argv):
    tided = place.daemon("--cpus", "0-3").start()
    env = env_of(tmp_path, build_dir, TIDE_DIR=str(tided.dir), JPY_SESSION_NAME="/home/x/My notes.ipynb")
    process, saw = run(argv, env)
    with process:
        assert saw["argv"] == ["-f", "/run/kernel-1.json"] and saw["agent"]
        job = tided.api("GET", f"/v1/jobs/{saw['job']}")[1]
        assert job["name"] == f"My_notes-{process.pid}"
        process.stdin.close()
        assert process.wait(GUARD_S) == 0


def test_without_tide_the_kernel_runs_all_the_same(tmp_path, argv):
    process, saw = run(argv, env_of(tmp_path, None))
    with process:
        assert saw == {"argv": ["-f", "/run/kernel-1.json"], "job": None, "agent": False}
        process.stdin.close()


def test_a_tide_that_cannot_be_executed_stops_no_kernel(tmp_path, argv):
    (tmp_path / "tide").write_text("no program")
    (tmp_path / "tide").chmod(0o755)
    process, saw = run(argv, {**env_of(tmp_path, None), "PATH": f"{tmp_path}:/usr/bin:/bin"})
    with process:
        assert saw["job"] is None
        process.stdin.close()


def test_wrong_words_of_kernel_are_told(tmp_path):
    env = env_of(tmp_path, None)
    done = install(tmp_path, env, "instal")
    assert (done.returncode, done.stdout) == (1, "") and "kernel install [--name NAME]" in done.stderr
    done = install(tmp_path, env, "install", "--name", "../x")
    assert done.returncode == 2 and "'../x' is no name of a kernel" in done.stderr
    (tmp_path / "file").write_text("")
    done = install(tmp_path, env, "install", "--prefix", tmp_path / "file")
    assert done.returncode == 1 and "cannot write" in done.stderr and "Traceback" not in done.stderr


class Shell:
    """The shell that %load_ext passes."""

    def __init__(self):
        self.magics = {}

    def register_magic_function(self, function, magic_kind="line", magic_name=None):
        assert magic_kind == "line"
        self.magics[magic_name] = function


@pytest.fixture
def magic(monkeypatch, build_dir):
    monkeypatch.setenv("PATH", f"{build_dir}:/usr/bin:/bin")
    shell = Shell()
    threadtide.load_ipython_extension(shell)
    return shell.magics["tide"]


def test_the_magic_means_this_kernels_job(place, tmp_path, magic, monkeypatch, capsys):
    tided = place.daemon("--cpus", "0-3").start()
    tided.job(name="cnn")
    monkeypatch.setenv("TIDE_DIR", str(tided.dir))
    monkeypatch.setenv("TIDE_JOB_ID", "cnn")
    magic("")
    assert "cnn" in capsys.readouterr().out.splitlines()[0]
    magic("set --weight 200")
    assert tided.api("GET", "/v1/jobs/cnn")[1]["weight"] == 200, capsys.readouterr().out
    magic("ps")
    assert "cnn" in capsys.readouterr().out
    magic("set cnn --weight 300")
    assert tided.api("GET", "/v1/jobs/cnn")[1]["weight"] == 300


def test_the_magic_never_raises(magic, monkeypatch, capsys):
    monkeypatch.delenv("TIDE_JOB_ID", raising=False)
    for line, says in [("", "this kernel is no job"), ("set 2", "this kernel is no job"), ("set '", "No closing quotation"),
                       ("nothing", "tide:")]:
        magic(line)
        assert says in capsys.readouterr().out
    monkeypatch.setenv("PATH", "/nowhere")
    magic("ps")
    assert capsys.readouterr().out == "tide: there is no program tide: see docs/install.md\n"


@pytest.mark.parametrize("line, words", [("", ["explain", "j1"]), ("set 2", ["set", "j1", "--threads", "2"]),
                                         ("set --auto", ["set", "j1", "--auto"]), ("set j2 --min 1", ["set", "j2", "--min", "1"]),
                                         ("ps --all", ["ps", "--all"])])
def test_words_of_the_magic(line, words):
    assert kernel.order(line, "j1") == words


# Threads at work are those that used a tenth of the busiest one's time: the kernel's account, not ours.
CELLS = ["%load_ext threadtide", """import os, time, threading
import numpy as np
def used():
    found = {}
    for tid in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{tid}/schedstat") as f:
            found[tid] = int(f.read().split()[0])
    return found
def at_work(seconds=2):
    a, before, end = np.ones((800, 800)), used(), time.monotonic() + seconds
    while time.monotonic() < end:
        a @ a
    spent = [now - before.get(tid, 0) for tid, now in used().items()]
    return sum(10 * one > max(spent) for one in spent)
def settled(wanted):
    end = time.monotonic() + 60
    while (found := at_work()) != wanted and time.monotonic() < end:
        pass
    return found
np.ones((800, 800)) @ np.ones((800, 800))""",
         "%tide set 1", "print(settled(1))", "%tide set 2", "print(settled(2))", "%tide"]


@pytest.mark.skipif(not (HOSTS_PYTHON and os.environ.get("TIDE_SOAK")), reason="TIDE_SOAK is not set, or TIDE_PYTHON_HOSTS names no Python")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_in_a_real_notebook_the_magic_sets_how_many_threads_compute(place, tmp_path, build_dir):
    tided = place.daemon("--cpus", ",".join(map(str, sorted(os.sched_getaffinity(0))[:2]))).start()
    env = {**conftest.plain_env(), "PYTHONPATH": str(ROOT / "python"), "PATH": f"{build_dir}:/usr/bin:/bin", "TIDE_DIR": str(tided.dir),
           "OPENBLAS_NUM_THREADS": "2", "HOME": str(tmp_path), "JPY_SESSION_NAME": "/home/x/My notes.ipynb"}
    done = subprocess.run([HOSTS_PYTHON, "-m", "threadtide", "kernel", "install", "--prefix", tmp_path / "prefix"], env=env,
                          capture_output=True, text=True, timeout=GUARD_S, check=False)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([HOSTS_PYTHON, pathlib.Path(__file__).parent / "hosts/notebook.py", tmp_path / "prefix", *CELLS], env=env,
                          capture_output=True, text=True, timeout=5 * GUARD_S, check=False)
    assert done.returncode == 0, done.stderr
    loaded, defined, one, at_one, two, at_two, why = json.loads(done.stdout)
    assert (loaded, defined) == ("", "")
    assert "→ 1 thread" in one and at_one == "1\n", (one, at_one)
    assert "→ 2 threads" in two and at_two == "2\n", (two, at_two)
    assert "My_notes" in why.splitlines()[0] and "2 threads active" in why, why
