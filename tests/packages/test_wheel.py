# SPDX-License-Identifier: Apache-2.0
"""The wheel of `make wheel`, in a clean root that has nothing but Python."""
import contextlib
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import zipfile

import pytest

from clean_root import Root
from conftest import BUILD, ROOT, bill_of, made_twice

VENV = "/venv/bin"
MINUTE_S = 60
GUARD_S = 120
NOBODY = 65534
NO_DAEMON = 5  # how tide ends without one
PRODUCTS = """
import sys, threading, numpy
threading.Thread(target=sys.stdin.read).start()
a = numpy.ones((700, 700))
while threading.active_count() > 1:
    a @ a
"""
JOB = "import threadtide as t; print(t.available(), flush=True); input()"


def pinned(package):
    """The lines of requirements/ that pin it."""
    return re.search(rf"^{package}==.*?(?<!\\)\n", (ROOT / "requirements/tf221.txt").read_text(), re.M | re.S)[0]


@pytest.fixture
def user():
    """A folder of a user without root, and how to start that user's programs."""
    who = {"user": NOBODY, "group": NOBODY, "extra_groups": ()} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory(prefix="tide-user-") as name:
        if who:
            os.chown(name, NOBODY, NOBODY)
        yield pathlib.Path(name), who


def compilers_that_tell(folder, home):
    """Programs in @folder that write down that somebody wanted to compile, and fail. The file with their words."""
    folder.mkdir()
    for name in ("cc", "gcc", "g++", "c++", "clang", "clang++", "x86_64-linux-gnu-gcc", "x86_64-linux-gnu-g++"):  # pip itself asks rustc
        (folder / name).write_text(f'#!/bin/sh\necho "$0 $*" >>{home}/compiled\nexit 1\n')
        (folder / name).chmod(0o755)
    return home / "compiled"


class Person:
    """A user without root, with an environment of Python's into which nothing has come but pip's wheels."""

    def __init__(self, home, who, cores):
        self.home, self.who, self.cores, self.tools = home, who, cores, home / "venv/bin"
        self.compiled = compilers_that_tell(home / "compilers", home)
        self.env = {"PATH": f"{self.tools}:{home}/compilers", "HOME": str(home), "TIDE_DIR": str(home / "run"),
                    "TIDE_CLAIMS_DIR": str(home / "claims"),
                    **{name: value for name, value in os.environ.items() if name.startswith("PIP_")}}

    def start(self, *words, **more):
        return subprocess.Popen(words, env=self.env, cwd=self.home, text=True, stdout=subprocess.PIPE, **self.who, **more)

    def out(self, *words, statuses=(0,)):
        with self.start(*words, stdin=subprocess.DEVNULL) as process:
            said, _ = process.communicate(timeout=GUARD_S)
        assert process.returncode in statuses, words
        return said

    def tide(self, *words, **more):
        return self.out(self.tools / "tide", *words, **more)

    def eventually(self, threads, *names):
        """These jobs, and no others, have so many threads together, each its share, and as many as it is told; an odd core is any's."""
        end = time.monotonic() + GUARD_S
        while True:
            said = self.tide("ps", "--json", statuses=(0, NO_DAEMON))  # the first job is about to start it
            found = {job["name"]: (job["target"], job["active"]) for job in json.loads(said or "[]")}
            if sorted(found) == sorted(names) and sum(target or 0 for target, _ in found.values()) == threads and all(
                    target == active and target >= threads // len(names) for target, active in found.values()):
                return
            assert time.monotonic() < end, found
            time.sleep(0.1)

    def prepare(self, wheel):
        (self.home / "wanted.txt").write_text(pinned("numpy"))
        (self.home / wheel.name).write_bytes(wheel.read_bytes())
        self.out("/usr/bin/python3", "-m", "venv", self.home / "venv")
        self.out(self.tools / "pip", "install", "-q", "--require-hashes", "-r", self.home / "wanted.txt")  # a user's program has it

    def share(self, wheel):
        """Installs the wheel; two programs of NumPy share the cores, and one follows what its user says. Seconds until they shared."""
        begin = time.monotonic()
        self.out(self.tools / "pip", "install", "-q", "--no-index", self.home / wheel.name)
        with contextlib.ExitStack() as stack:
            one, two = (stack.enter_context(self.start(self.tools / "tide", "run", "--name", name, "--", self.tools / "python", "-c", PRODUCTS,
                                                       stdin=subprocess.PIPE)) for name in ("one", "two"))
            self.eventually(max(self.cores, 2), "one", "two")
            took = time.monotonic() - begin
            two.stdin.close()
            assert two.wait(GUARD_S) == 0
            self.eventually(self.cores, "one")
            self.tide("set", "one", "--max", "1")
            self.eventually(1, "one")
            self.tide("set", "one", "--max", str(self.cores))
            self.eventually(self.cores, "one")
            one.stdin.close()
            assert one.wait(GUARD_S) == 0
        return took


@pytest.fixture
def person(user):
    return Person(*user, len(os.sched_getaffinity(0)))


@pytest.mark.ci
def test_a_minute_after_pip_two_numpy_programs_of_a_user_without_root_or_a_compiler_share_the_machine(wheel, person, capsys):
    person.prepare(wheel)
    took = person.share(wheel)
    with capsys.disabled():
        print(f"\nsince pip install began, until two programs shared the machine: {took:.1f} s")
    assert took < MINUTE_S
    assert not person.compiled.exists(), person.compiled.read_text()


@pytest.fixture(scope="module")
def wheel():
    found = list(BUILD.with_name("wheel").glob("*.whl"))
    assert found, "`make wheel` makes it"
    return found[0]


def needed_glibc(wheel, folder):
    """The newest version of which a program or library for 64 bits in there needs a symbol."""
    zipfile.ZipFile(wheel).extractall(folder)
    needed = set()
    for file in folder.rglob("*"):
        if file.is_file() and file.read_bytes()[:5] == b"\x7fELF\x02":
            said = subprocess.run(["objdump", "-T", file], check=True, stdout=subprocess.PIPE, text=True).stdout
            needed |= {tuple(map(int, v.split("."))) for v in re.findall(r"\(?GLIBC_([0-9.]+)", said)}
    return max(needed)[:2]


def tagged_glibc(wheel):
    return tuple(map(int, re.search(r"-manylinux_(\d+)_(\d+)_x86_64\.whl$", wheel.name).groups()))


@pytest.mark.ci
def test_its_tag_is_the_oldest_glibc_that_all_its_programs_run_with(wheel, tmp_path):
    assert tagged_glibc(wheel) == needed_glibc(wheel, tmp_path)


@pytest.fixture(scope="module")
def old_wheel():
    found = list(BUILD.with_name("wheel-old").glob("*.whl"))
    if not found:
        pytest.skip("`make wheel-old` makes it")
    return found[0]


@pytest.mark.parametrize("name", ["wheel", "wheel-old"])
def test_the_same_tree_gives_the_same_bytes(name):
    """In another folder, time zone, language and umask."""
    assert len(made_twice(BUILD.with_name(name), "*.whl", "*.spdx.json")) == 2


def checked_bill(wheel):
    """The wheel's bill of materials, and the names of files that are from a package of Debian's."""
    with zipfile.ZipFile(wheel) as archive:
        bill = bill_of(wheel, {f"./{name}": hashlib.sha256(archive.read(name)).hexdigest()
                               for name in archive.namelist() if not name.endswith("/")})
    ours = {r["relatedSpdxElement"] for r in bill["relationships"]
            if (r["spdxElementId"], r["relationshipType"]) == ("SPDXRef-Package-threadtide", "CONTAINS")}
    return bill, {file["fileName"] for file in bill["files"] if file["SPDXID"] not in ours}


@pytest.mark.ci
def test_the_bill_of_materials_names_every_file_and_whose_the_libraries_are(wheel):
    bill, others = checked_bill(wheel)
    assert others == {f["fileName"] for f in bill["files"] if f["fileName"].startswith("./threadtide.libs/")}
    assert "libgnutls30" in {package["name"] for package in bill["packages"]}


def test_the_bill_of_the_one_for_older_systems_names_what_is_in_its_programs(old_wheel):
    bill, others = checked_bill(old_wheel)
    linked = {r["relatedSpdxElement"] for r in bill["relationships"] if r["relationshipType"] == "STATIC_LINK"}
    assert linked == {f"SPDXRef-Package-{name}" for name in (
        "libinih-dev", "libjansson-dev", "libmicrohttpd", "libncurses-dev", "libsqlite3-dev", "systemd", "util-linux")}
    assert not others and linked < {package["SPDXID"] for package in bill["packages"]}


def test_the_one_for_older_systems_needs_no_newer_glibc(old_wheel, tmp_path):
    assert tagged_glibc(old_wheel) == (2, 28) >= needed_glibc(old_wheel, tmp_path)


def test_two_jobs_share_the_machine_by_the_one_for_older_systems(old_wheel, person):
    person.prepare(old_wheel)
    person.share(old_wheel)
    assert not person.compiled.exists(), person.compiled.read_text()
    assert old_wheel.name.split("-")[1] in person.tide("version")
    with person.start(person.tools / "python", "-m", "threadtide", "run", "--name", "loop", "--", person.tools / "python", "-c", JOB,
                      stdin=subprocess.PIPE) as job:
        assert job.stdout.readline().split() == ["True"]
        job.communicate("end\n", timeout=GUARD_S)
        assert job.returncode == 0
    person.out(person.tools / "pip", "uninstall", "-q", "-y", "threadtide")
    assert not list(person.home.glob("venv/lib/python3*/site-packages/threadtide*")) and not (person.tools / "tide").exists()


@pytest.mark.ci
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
