# SPDX-License-Identifier: Apache-2.0
"""Packages that `make check-packages` has made, in clean roots and in a virtual machine.

Tests marked `ci` need the packages and the wheel once, without a source package: CI runs them (scripts/check.py packages).
"""
import json
import os
import pathlib
import subprocess

import pytest

import clean_root

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TIDE_PACKAGES") or ROOT / "build/packages").resolve()
NAMES = ("threadtide", "libtide1", "libtide-dev", "python3-threadtide", "threadtide-docker", "threadtide-power",
         "threadtide-hub", "threadtide-slurm", "tide-kube")


def pytest_configure(config):
    config.addinivalue_line("markers", "ci: CI runs it")


class Packages:
    """A folder of packages of one version."""

    def __init__(self, folder, names=NAMES):
        self.folder = folder
        self.files = {name: next(folder.glob(f"{name}_*.deb"), None) for name in names}
        missing = [name for name, file in self.files.items() if not file]
        assert not missing, f"{folder} lacks {missing}: `make check-packages` makes them"
        self.version = subprocess.run(["dpkg-deb", "-f", self.files["threadtide"], "Version"], check=True,
                                      stdout=subprocess.PIPE, text=True).stdout.strip()

    def unpack(self, to, *names):
        for name in names:
            subprocess.run(["dpkg-deb", "-x", self.files[name], to], check=True)
        return to


@pytest.fixture(scope="session")
def packages():
    return Packages(BUILD)


@pytest.fixture(scope="session")
def later():
    """The same with a higher version."""
    return Packages(BUILD.with_name(BUILD.name + "-later"))


def made_twice(folder, *kinds):
    """Names of the files that are the same bytes there and in the folder of the second making."""
    here, there = ({file.name: file for kind in kinds for file in place.glob(kind)}
                   for place in (folder, folder.with_name(folder.name + "-again")))
    assert here.keys() == there.keys()
    assert [name for name in here if here[name].read_bytes() != there[name].read_bytes()] == []
    return here.keys()


def bill_of(file, inside):
    """The bill of materials beside a package or wheel, which has to list what is @inside: {path: SHA-256}."""
    bill = json.loads(file.with_name(f"{file.stem}.spdx.json").read_text())
    assert {f["fileName"]: {c["algorithm"]: c["checksumValue"] for c in f["checksums"]}["SHA256"] for f in bill["files"]} == inside
    ids = [element["SPDXID"] for kind in ("packages", "files") for element in bill[kind]]
    assert len(ids) == len(set(ids))
    return bill


def compiled_example(folder, name):
    """One of the library's examples, as a user compiles it with libtide-dev, which is unpacked in @folder."""
    env = {**os.environ, "PKG_CONFIG_PATH": str(next(folder.glob("usr/lib/*/pkgconfig"))),
           "PKG_CONFIG_SYSROOT_DIR": str(folder)}
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "threadtide"], env=env, check=True,
                           stdout=subprocess.PIPE, text=True).stdout.split()
    program = folder / name
    source = folder / f"usr/share/doc/libtide-dev/examples/{name}.c"
    subprocess.run(["cc", "-o", program, source, *flags, "-pthread"], check=True)
    return program


@pytest.fixture(scope="session")
def loop(packages, tmp_path_factory):
    folder = packages.unpack(tmp_path_factory.mktemp("dev"), "libtide1", "libtide-dev")
    return compiled_example(folder, "malleable_loop").rename(folder / "loop")


@pytest.fixture(scope="session")
def archive():
    """A clean root, made once and kept beside the packages."""
    if not clean_root.mirrors():
        pytest.skip("needs a mirror of Debian's")
    file = BUILD.with_name("clean-root.tar")
    clean_root.make(file)
    return file
