# SPDX-License-Identifier: Apache-2.0
"""The packaged plugin beside Debian's own Slurm: in_slurm.py in a clean root."""
import os
import re
import shutil
import subprocess

import pytest

from clean_root import Root
from conftest import ROOT


def depends(file):
    return subprocess.run(["dpkg-deb", "-f", file, "Depends"], check=True, stdout=subprocess.PIPE, text=True).stdout


def test_it_goes_with_slurms_of_the_release_that_it_was_built_for(packages):
    """Slurm compares the first two numbers with those in the plugin."""
    found = re.search(r"slurm-wlm-basic-plugins \(>= (\d+)\.(\d\d)\), slurm-wlm-basic-plugins \(<< (\d+)\.(\d\d)\)",
                      depends(packages.files["threadtide-slurm"]))
    assert found, depends(packages.files["threadtide-slurm"])
    major, minor, below_major, below_minor = map(int, found.groups())
    assert (major, minor + 1) == (below_major, below_minor)
    for name, file in packages.files.items():
        assert name == "threadtide-slurm" or "slurm" not in depends(file), name


@pytest.mark.skipif(os.geteuid() != 0, reason="hides a folder")
def test_without_slurms_headers_the_build_says_so_or_leaves_the_package_out(tmp_path):
    script = f"""mount -t tmpfs tmpfs /usr/include/slurm
        meson setup -Dslurm=enabled -Dtests=false {tmp_path}/enabled
        meson setup -Dslurm=auto -Dtests=false {tmp_path}/auto >/dev/null
        ninja -C {tmp_path}/auto -t targets all 2>/dev/null
        DEB_BUILD_PROFILES=pkg.threadtide.noslurm dh_listpackages"""
    said = subprocess.run(["unshare", "--mount", "sh", "-c", script], cwd=ROOT, check=True, stdout=subprocess.PIPE,
                          text=True).stdout
    assert "ERROR: C header 'slurm/spank.h' not found" in said
    assert "\ntide-sim: " in said and "\ntide-slurm: " not in said and "\nthreadtide.so: " not in said
    assert "\nthreadtide-power\n" in said and "\nthreadtide-slurm\n" not in said


@pytest.mark.skipif(os.geteuid() != 0, reason="makes root file systems")
def test_with_debians_slurm_tasks_are_jobs_until_the_package_is_removed(archive, loop, packages, later, tmp_path):
    root = Root(archive, tmp_path)
    try:
        there = tmp_path / "packages"
        for file in ("tests/slurm/bed.py", "tests/packages/in_slurm.py", "debian/tests/slurm-option"):
            (there / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, there / file)
        names = ("threadtide", "libtide1", "threadtide-slurm")
        shutil.copy(loop, there)
        for made, to in ((packages, "first"), (later, "later")):
            (there / to).mkdir()
            for name in names:
                shutil.copy(made.files[name], there / to)
        root.apt("install", "slurm-wlm", "iproute2", "python3-pytest")
        root.apt("install", *(f"/packages/first/{packages.files[name].name}" for name in names))
        print(root("env", "TIDE_BUILD_DIR=/usr/bin", "python3", "-m", "pytest", "-v", "-x", "-p", "no:cacheprovider",
                   "--rootdir=/packages", "/packages/tests/packages/in_slurm.py"))
    finally:
        root.end()
