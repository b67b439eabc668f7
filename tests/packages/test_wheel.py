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


@pytest.mark.ci
def test_a_minute_after_pip_two_numpy_programs_of_a_user_without_root_or_a_compiler_share_the_machine(wheel, user, capsys):
    home, who = user
    tools, cores = home / "venv/bin", len(os.sched_getaffinity(0))
    env = {"PATH": str(tools), "HOME": str(home), "TIDE_DIR": str(home / "run"), "TIDE_CLAIMS_DIR": str(home / "claims"),
           **{name: value for name, value in os.environ.items() if name.startswith("PIP_")}}
    assert not any(shutil.which(program, path=env["PATH"]) for program in ("cc", "gcc", "clang"))

    def start(*words, **more):
        return subprocess.Popen(words, env=env, cwd=home, text=True, stdout=subprocess.PIPE, **who, **more)

    def out(*words, statuses=(0,)):
        with start(*words, stdin=subprocess.DEVNULL) as process:
            said, _ = process.communicate(timeout=GUARD_S)
        assert process.returncode in statuses, words
        return said

    def shares():
        said = out(tools / "tide", "ps", "--json", statuses=(0, NO_DAEMON))  # the first job is about to start it
        return {job["name"]: (job["target"], job["active"]) for job in json.loads(said or "[]")}

    def eventually(jobs, threads):
        """So many jobs have so many threads together, each as many as it is told."""
        end = time.monotonic() + GUARD_S
        while [len(found := shares()), sum(active for _, active in found.values() if active)] != [jobs, threads] or any(
                target != active for target, active in found.values()):
            assert time.monotonic() < end, found
            time.sleep(0.1)

    (home / "wanted.txt").write_text(pinned("numpy"))
    (home / wheel.name).write_bytes(wheel.read_bytes())
    out("/usr/bin/python3", "-m", "venv", home / "venv")
    out(tools / "pip", "install", "-q", "--require-hashes", "-r", home / "wanted.txt")  # a user's program has it
    begin = time.monotonic()
    out(tools / "pip", "install", "-q", "--no-index", home / wheel.name)
    with contextlib.ExitStack() as stack:
        one, two = (stack.enter_context(start(tools / "tide", "run", "--name", name, "--", tools / "python", "-c", PRODUCTS,
                                              stdin=subprocess.PIPE)) for name in ("one", "two"))
        eventually(2, max(cores, 2))
        took = time.monotonic() - begin
        two.stdin.close()
        assert two.wait(GUARD_S) == 0
        eventually(1, cores)
        one.stdin.close()
        assert one.wait(GUARD_S) == 0
    with capsys.disabled():
        print(f"\nsince pip install began, until two programs shared the machine: {took:.1f} s")
    assert took < MINUTE_S


@pytest.fixture(scope="module")
def wheel():
    found = list(BUILD.with_name("wheel").glob("*.whl"))
    assert found, "`make wheel` makes it"
    return found[0]


@pytest.mark.ci
def test_its_tag_is_the_oldest_glibc_that_all_its_programs_run_with(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    needed = set()
    for file in tmp_path.rglob("*"):
        if file.is_file() and file.read_bytes()[:5] == b"\x7fELF\x02":  # of 64 bits
            said = subprocess.run(["objdump", "-T", file], check=True, stdout=subprocess.PIPE, text=True).stdout
            needed |= {tuple(map(int, v.split("."))) for v in re.findall(r"\(?GLIBC_([0-9.]+)", said)}
    assert re.search(r"-manylinux_(\d+)_(\d+)_x86_64\.whl$", wheel.name).groups() == tuple(map(str, max(needed)[:2]))


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


def test_the_one_for_older_systems_runs_two_jobs_without_a_compiler(old_wheel, tmp_path):
    wheel = old_wheel
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
