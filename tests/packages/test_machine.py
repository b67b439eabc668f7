# SPDX-License-Identifier: Apache-2.0
"""The same under systemd: in_machine.py in a virtual machine of Debian's own packages, without a network."""
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

import pytest

import clean_root
from conftest import BUILD, NAMES, ROOT

sys.path.append(str(ROOT / "tests/cluster"))

import image  # noqa: E402

pytestmark = [pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="needs qemu"),
              pytest.mark.skipif(not clean_root.mirrors(), reason="needs a mirror of Debian's")]
SYSTEM = ("systemd", "dbus", "kmod", "procps", "iproute2", "python3-pytest")
LIMIT_S = 900


def needs(packages):
    """The first choice of each dependency that is not of our own: the machine has no network."""
    found = set()
    for file in packages.files.values():
        said = subprocess.run(["dpkg-deb", "-f", file, "Depends"], check=True, stdout=subprocess.PIPE, text=True).stdout
        found |= {re.split(r"[ (|:]", need.strip())[0] for need in said.split(",") if need.strip()}
    return sorted(found - set(NAMES))


def make_disk(out, packages):
    """Makes in @out what vm.py boots from."""
    with tempfile.TemporaryDirectory(dir=out) as name:
        kernel, root = pathlib.Path(name, "kernel"), pathlib.Path(name, "root")
        kernel.mkdir(), root.mkdir(mode=0o755)
        release = image.fetch_kernel(image.kernel_package(image.KERNELS), kernel)
        shutil.copy(kernel / "boot" / f"vmlinuz-{release}", out / "vmlinuz")
        image.make_initrd(out / "initrd", kernel, release)
        archive = pathlib.Path(name, "root.tar")
        clean_root.make(archive, (*SYSTEM, *needs(packages)))
        subprocess.run(["tar", "-C", root, "-xf", archive], check=True)
        archive.unlink()
        shutil.copytree(image.GUEST, root, dirs_exist_ok=True)
        (root / "etc/fstab").write_text("")
        (root / "etc/hostname").write_text("machine\n")
        (root / "etc/hosts").write_text("127.0.0.1 localhost machine\n")
        shutil.copytree(kernel / "lib/modules", root / "usr/lib/modules", symlinks=True, dirs_exist_ok=True)
        with open(out / "disk.img", "wb") as file:
            file.truncate(image.DISK_BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-d", root, out / "disk.img"], check=True)


@pytest.fixture(scope="module")
def machine(packages, later, loop):
    if image.os.geteuid() != 0:
        pytest.skip("makes a root file system")
    out = BUILD.with_name("package-machine")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    make_disk(out, packages)
    with tarfile.open(out / "project.tar", "w") as tar:
        for made in (packages, later):
            for file in made.files.values():
                tar.add(file, f"project/packages/{made.version}/{file.name}")
        tar.add(loop, "project/loop")
        for file in ("tests/packages/in_machine.py", "tests/cluster/inside.sh", "debian/tests/first-job"):
            tar.add(ROOT / file, f"project/{file}")
    yield out
    shutil.rmtree(out)


def test_under_systemd_jobs_keep_their_threads_while_packages_come_and_go(machine, packages, later):
    results = machine / "results"
    words = "tests/cluster/inside.sh -x tests/packages/in_machine.py"
    command = f"EARLIER={packages.version} LATER={later.version} {words}"
    done = subprocess.run([ROOT / "tests/cluster/vm.py", "--systemd", "--cpus", "4", "--memory", "2048", "--limit",
                           str(LIMIT_S), "--results", results, machine, command], stdout=subprocess.PIPE, text=True,
                          timeout=LIMIT_S + 60)
    print(done.stdout)
    print((results / "targets").read_text())
    assert done.returncode == 0
    assert re.search(r"=+ \d+ passed in", done.stdout)
