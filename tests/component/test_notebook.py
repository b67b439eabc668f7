# SPDX-License-Identifier: Apache-2.0
"""Jupyter kernels as jobs: what `python -m threadtide kernel install` writes is run as Jupyter would, with the real tide
and tided; in place of ipykernel stands a module that says what it sees. %tide is called as IPython does."""
import json
import os
import pathlib
import subprocess
import sys

import conftest
import pytest
from daemon import GUARD_S

ROOT = pathlib.Path(__file__).resolve().parents[2]
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
