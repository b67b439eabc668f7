# SPDX-License-Identifier: Apache-2.0
"""The packages that dist/rpm/threadtide.spec makes of the tree, as far as Debian's rpm tells."""
import re
import shutil
import subprocess

import pytest

from conftest import BUILD, ROOT, bill_of, made_twice

RPM = BUILD.with_name("rpm")
pytestmark = pytest.mark.skipif(not shutil.which("rpm"), reason="needs rpm")
NAMES = ("threadtide", "libtide", "libtide-devel", "python3-threadtide", "threadtide-docker", "threadtide-power",
         "threadtide-hub", "threadtide-slurm", "tide-kube")


def file_of(name):
    return next(file for file in RPM.glob("*.x86_64.rpm") if file.name.startswith(f"{name}-0") or file.name.startswith(f"{name}-1"))


def query(name, *words):
    return subprocess.run(["rpm", "-qp", *words, file_of(name)], check=True, stdout=subprocess.PIPE, text=True).stdout


def test_the_same_commit_gives_the_same_bytes():
    """In another folder, time zone, language and umask. The source package names its folder, and is not compared."""
    names = made_twice(RPM, "*.x86_64.rpm", "*.tar.*", "*.spdx.json")
    assert len([name for name in names if name.endswith(".x86_64.rpm")]) >= len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_bill_of_materials_names_every_file_and_dependency(name):
    """rpm tells the hashes; folders and links have none."""
    listed = (line.partition(" ") for line in query(name, "--qf", "[%{FILEDIGESTS} %{FILENAMES}\n]").splitlines())
    bill = bill_of(file_of(name), {f".{path}": digest for digest, _, path in listed if digest})
    needs = {re.split(r"[ (]", line)[0] for line in query(name, "--requires").splitlines()} - {"rpmlib", "config", "rtld"}
    assert needs <= {package["name"].split("(")[0] for package in bill["packages"]}
    assert query(name, "--qf", "%{VERSION}-%{RELEASE}") in [p["versionInfo"] for p in bill["packages"] if p["name"] == name]


def test_its_packages_hold_what_debians_hold(packages):
    """Programs, units, accounts and manual pages."""
    found = {line for name in NAMES for line in query(name, "-l").splitlines()}
    for name, file in packages.files.items():
        listed = subprocess.run(["dpkg-deb", "--fsys-tarfile", file], check=True, stdout=subprocess.PIPE).stdout
        names = subprocess.run(["tar", "-t"], input=listed, check=True, stdout=subprocess.PIPE).stdout.decode()
        for path in names.splitlines():
            path = path.removeprefix(".").removesuffix(".gz").replace("/kubectl_complete-tide.1", "/kubectl-tide.1")
            if path.startswith(("/usr/bin/", "/usr/share/man/man", "/usr/lib/sysusers.d/", "/usr/lib/threadtide/",
                                "/etc/")) and not path.endswith("/"):
                assert path in found, f"{name}: {path}"
            if path.startswith("/lib/systemd/system/t"):
                assert f"/usr{path}" in found, path


def test_the_agent_brings_no_dependencies_and_the_configuration_is_kept():
    needs = query("threadtide", "--requires")
    assert "libtide-agent" not in query("threadtide", "--provides") + needs and "systemd" in needs
    assert "/etc/tide/tide.conf" in query("threadtide", "--configfiles").split()
    assert "libtide.so.1()(64bit)" in query("libtide", "--provides")
    for name, account in (("threadtide", "threadtide"), ("threadtide-power", "threadtide-power"),
                          ("threadtide-hub", "threadtide-hub")):
        assert f"/{account}.conf" in query(name, "--scripts")


def test_unpacked_its_program_says_the_version(tmp_path):
    version = subprocess.run(["rpmspec", "-q", "--srpm", "--qf", "%{VERSION}", ROOT / "dist/rpm/threadtide.spec"],
                             check=True, stdout=subprocess.PIPE, text=True).stdout
    file, = RPM.glob(f"threadtide-{version}-1.x86_64.rpm")
    with subprocess.Popen(["rpm2cpio", file], stdout=subprocess.PIPE) as process:
        subprocess.run(["cpio", "-id", "--quiet"], stdin=process.stdout, cwd=tmp_path, check=True)
    said = subprocess.run([tmp_path / "usr/bin/tided", "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert said == f"tided {version}\n"
    for place in ("lib64", "lib"):  # of 64-bit programs there, and of 32-bit ones
        assert (tmp_path / "usr/lib/threadtide" / place / "libtide-agent.so").exists()


def test_the_plugin_of_slurm_lies_where_fedoras_slurm_looks_and_needs_its_release():
    needs = query("threadtide-slurm", "--requires")
    major, minor = map(int, re.search(r"^slurm\(x86-64\) >= (\d+)\.(\d\d)$", needs, re.M).groups())
    assert f"slurm(x86-64) < {major}.{minor + 1:02}\n" in needs
    files = query("threadtide-slurm", "-l").split()
    assert {"/usr/lib64/slurm/threadtide.so", "/usr/share/threadtide/slurm/plugstack.conf"} <= set(files)
    assert query("threadtide-slurm", "--configfiles").split() == ["/etc/slurm/plugstack.conf.d/threadtide.conf"]
