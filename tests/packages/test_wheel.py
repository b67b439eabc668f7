# SPDX-License-Identifier: Apache-2.0
"""The wheel of `make wheel`, in a clean root that has nothing but Python."""
import os
import pathlib
import re
import shutil
import subprocess
import zipfile

import pytest

from clean_root import Root
from conftest import BUILD, ROOT

VENV = "/venv/bin"
JOB = "import threadtide as t; print(t.available(), flush=True); input()"


@pytest.fixture(scope="module")
def wheel():
    found = list(BUILD.with_name("wheel").glob("*.whl"))
    assert found, "`make wheel` makes it"
    return found[0]


def test_its_tag_is_the_oldest_glibc_that_all_its_programs_run_with(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    needed = set()
    for file in tmp_path.rglob("*"):
        if file.is_file() and file.read_bytes()[:5] == b"\x7fELF\x02":  # of 64 bits
            said = subprocess.run(["objdump", "-T", file], check=True, stdout=subprocess.PIPE, text=True).stdout
            needed |= {tuple(map(int, v.split("."))) for v in re.findall(r"\(?GLIBC_([0-9.]+)", said)}
    assert re.search(r"-manylinux_(\d+)_(\d+)_x86_64\.whl$", wheel.name).groups() == tuple(map(str, max(needed)[:2]))


def test_the_one_for_older_systems_runs_two_jobs_without_a_compiler(tmp_path):
    found = list(BUILD.with_name("wheel-old").glob("*.whl"))
    if not found:
        pytest.skip("`make wheel-old` makes it")
    wheel, = found
    assert wheel.name.endswith("-py3-none-manylinux_2_28_x86_64.whl")
    subprocess.run(["/usr/bin/python3", "-m", "venv", tmp_path / "venv"], check=True)
    tools = tmp_path / "venv/bin"
    env = {"PATH": str(tools), "HOME": str(tmp_path), "TIDE_DIR": str(tmp_path / "run")}

    def out(*command):
        return subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True, timeout=60).stdout

    out(tools / "pip", "install", "-q", "--no-index", wheel)
    assert wheel.name.split("-")[1] in out(tools / "tide", "version")
    with subprocess.Popen([tools / "python", "-m", "threadtide", "run", "--name", "loop", "--", tools / "python", "-c", JOB],
                          env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout.readline().split() == ["True"]
        assert "loop" in out(tools / "tide", "ps")
        out(tools / "tide", "set", "loop", "--max", "1")
        job.communicate("end\n", timeout=60)
        assert job.returncode == 0
    out(tools / "pip", "uninstall", "-q", "-y", "threadtide")
    assert not list(tmp_path.glob("venv/lib/python3*/site-packages/threadtide*")) and not (tools / "tide").exists()


def test_each_bundled_library_comes_with_a_licence(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    bundled = {re.match(r"threadtide\.libs/(lib[a-z0-9+-]*?)-[0-9a-f]{8}\.", name)[1]
               for name in names if re.match(r"threadtide\.libs/lib", name)}
    licences = {name.rpartition("/")[2] for name in names if "/licenses/" in name}
    assert "libgnutls" in bundled and {"LICENSE", "uplot"} <= licences
    for library in bundled:
        assert [name for name in licences if name.startswith(library)], library


@pytest.mark.skipif(os.geteuid() != 0, reason="makes root file systems")
def test_pip_brings_all_that_two_jobs_need(archive, loop, wheel, tmp_path):
    root = Root(archive, tmp_path)
    try:
        (tmp_path / "packages").mkdir()
        for file in (wheel, loop, ROOT / "debian/tests/first-job"):
            shutil.copy(file, tmp_path / "packages")
        root.apt("install", "python3-venv")
        root("python3", "-m", "venv", "/venv")
        root(f"{VENV}/pip", "install", "--no-index", f"/packages/{wheel.name}")
        own, = (tmp_path / "venv").glob("lib/python3*/site-packages/threadtide/bin")
        library = pathlib.Path("/") / own.relative_to(tmp_path)
        root("env", f"PATH={VENV}:/usr/bin:/bin", f"LD_LIBRARY_PATH={library}", "PROGRAM=/packages/loop",
             "sh", "/packages/first-job")
        said = root(f"{VENV}/python", "-m", "threadtide", "run", "--", f"{VENV}/python", "-c",
                    "import threadtide as t; print(t.available(), t._lib.library._name)")
        assert said.split()[-2:] == ["True", f"{library}/libtide.so.1"]
        assert "tide sim" in root(f"{VENV}/tide", "sim", "--help")
        version = wheel.name.split("-")[1]
        assert f" {version}" in root(f"{VENV}/tided", "--version")
        assert f" {version}" in root(library / "tide-tfnode", "--version")
        root(f"{VENV}/pip", "uninstall", "-y", "threadtide")
        assert not own.exists() and not (tmp_path / "venv/bin/tide").exists()
    finally:
        root.end()
