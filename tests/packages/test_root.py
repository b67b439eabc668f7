# SPDX-License-Identifier: Apache-2.0
"""Install, upgrade, downgrade, remove and purge in a clean root without systemd."""
import os
import re
import shutil
import time

import pytest

from clean_root import Root
from conftest import NAMES, ROOT

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes root file systems")
WAIT_S = 30
MINUTE_S = 60
# Files that any package leaves: dpkg's and apt's own books, and copies of accounts before a change.
BOOKS = re.compile(r"/(proc|sys|dev|run|packages|tmp/apt|var/log|var/lib/(dpkg|apt|systemd/deb-systemd-helper)|var/cache)(/|$)"
                   r"|/etc/(passwd|group|shadow|gshadow|subuid|subgid)-$|/etc/\.pwd\.lock$|/etc/ld\.so\.cache$|\.pyc$|/__pycache__$")


def wait(condition):
    end = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.1)
    return found


def bring(made, root):
    folder = root.path / "packages" / made.version
    folder.mkdir(parents=True)
    for file in made.files.values():
        shutil.copy(file, folder)


@pytest.fixture
def root(archive, loop, packages, tmp_path):
    result = Root(archive, tmp_path)
    try:
        bring(packages, result)
        shutil.copy(loop, tmp_path / "packages/loop")
        shutil.copy(ROOT / "debian/tests/first-job", tmp_path / "packages")
        yield result
    finally:
        result.end()


@pytest.fixture
def later(root, later):
    bring(later, root)
    return later


def files(made, *names):
    return [f"/packages/{made.version}/{made.files[name].name}" for name in names]


def everything(root):
    """path -> what it is, but for what is of dpkg and apt."""
    found = {}
    for folder, folders, names in os.walk(root.path):
        folders[:] = [n for n in folders if not BOOKS.search("/" + os.path.relpath(f"{folder}/{n}", root.path))]
        for name in [*folders, *names]:
            path = "/" + os.path.relpath(f"{folder}/{name}", root.path)
            if not BOOKS.search(path):
                real = f"{folder}/{name}"
                found[path] = (os.readlink(real) if os.path.islink(real) else
                               open(real, "rb").read() if os.path.isfile(real) else "folder")
    return found


def jobs(root):
    """name -> {column: text} of `tide ps`; none before there is a daemon."""
    done = root.try_("tide", "ps")
    head, *rows = [re.split(r"\s+", line) for line in done.stdout.splitlines()]
    return {row[1]: dict(zip(head[:9], row)) for row in rows} if head[0] == "ID" else {}


def start_job(root, *words):
    process = root.start("tide", "run", "--name", "long", *words, "--", "/packages/loop", "8", "900000000")
    wait(lambda: jobs(root).get("long", {}).get("STATE") == "running")
    return process


@pytest.mark.ci
def test_a_minute_after_the_first_word_two_jobs_have_shared_the_machine(root, packages, capsys):
    """apt fetches what is missing from the mirror; its lists are there."""
    begin = time.monotonic()
    root.apt("install", *files(packages, "threadtide", "libtide1"))
    installed = time.monotonic() - begin
    with root.start("sh", "-c", "PROGRAM=/packages/loop sh /packages/first-job") as jobs_:
        assert jobs_.stdout.readline().startswith("ID "), "first-job shows `tide ps` once both have their half"
        took = time.monotonic() - begin
        jobs_.stdout.read()
    assert jobs_.returncode == 0
    with capsys.disabled():
        print(f"\napt install: {installed:.1f} s; since it began, until two jobs shared the machine: {took:.1f} s,"
              f" until both were done: {time.monotonic() - begin:.1f} s")
    assert took < MINUTE_S


def test_units_and_accounts_are_as_users_of_debian_expect(root, packages):
    root.apt("install", *files(packages, *NAMES))

    def enabled(unit):
        return any((root.path / f"etc/systemd/system/{target}.wants/{unit}").is_symlink()
                   for target in ("multi-user.target", "sockets.target"))
    assert enabled("tided.service") and enabled("tided.socket")
    assert not any(enabled(f"{unit}.service") for unit in ("tide-gate", "tide-power", "tide-hub", "tide-hub-broker"))
    accounts = (root.path / "etc/passwd").read_text() + (root.path / "etc/group").read_text()
    for name in ("tide-admin", "tide-gate", "tide-power", "tide-hub"):
        assert f"\n{name}:" in accounts
    said = root("python3", "-c", "import threadtide, threadtide.controller; print(threadtide.available())")
    assert said == "False\n"  # no agent in this process; the library was found
    for program in ("tide", "tided", "tide-hub", "tide-power", "tide-kube"):
        assert packages.version.rpartition("-")[0] in root(program, "--version")
    assert root("tided", "--check-config").startswith("[daemon]")
    assert root("dpkg", "--verify", *NAMES) == ""


def test_a_job_keeps_running_with_its_threads_over_upgrade_and_downgrade(root, packages, later):
    root.apt("install", *files(packages, "threadtide", "libtide1"))
    job = start_job(root)
    root("tide", "set", "long", "--threads", "1")
    pids = root("tide", "ps", "--json")
    wait(lambda: jobs(root)["long"]["ACTIVE"] == "1")
    for version in (later, packages):
        root.apt("install", *files(version, "threadtide", "libtide1"))
        assert root("tide", "--version").split()[1] == version.version.rpartition("-")[0]
        shown = jobs(root)["long"]
        assert (shown["TARGET"], shown["ACTIVE"], shown["STATE"]) == ("1", "1", "running")
        assert re.findall(r'"pids": \[\s*\d+', root("tide", "ps", "--json")) == re.findall(r'"pids": \[\s*\d+', pids)
        assert job.poll() is None


def test_a_changed_configuration_stays_and_remove_keeps_it(root, packages, later):
    root.apt("install", *files(packages, "threadtide"))
    conf = root.path / "etc/tide/tide.conf"
    conf.write_text(conf.read_text() + "policy=fcfs\n")
    root.apt("install", *files(later, "threadtide"))
    assert "policy=fcfs\n" in conf.read_text()
    root.apt("remove", "threadtide")
    assert "policy=fcfs\n" in conf.read_text()
    assert not (root.path / "usr/bin/tide").exists()


def test_removed_with_a_running_daemon_the_daemon_ends_and_its_job_goes_on(root, packages):
    """A system's daemon that nobody but its administrator has started."""
    root.apt("install", *files(packages, "threadtide", "libtide1"))
    daemon = root.start("tided")
    wait(lambda: root.try_("test", "-S", "/run/tide/api.sock").returncode == 0)
    job = start_job(root)
    root.apt("remove", "threadtide")
    daemon.wait(timeout=WAIT_S)
    assert job.poll() is None
    assert root.try_("test", "-e", "/run/tide").returncode != 0


def test_purged_they_leave_nothing_behind(root, packages):
    needs = [root("dpkg-deb", "-f", file, "Depends").strip() for file in files(packages, *NAMES)]
    ours = "|".join(NAMES)
    needs = [need.strip() for line in needs for need in line.split(",")]
    root.apt("satisfy", ", ".join(need for need in needs if need and not re.match(f"({ours})\\b", need)))
    before = everything(root)
    root.apt("install", *files(packages, *NAMES))
    daemon = root.start("tided")
    wait(lambda: root.try_("test", "-S", "/run/tide/api.sock").returncode == 0)
    root("sh", "-c", "PROGRAM=/packages/loop sh /packages/first-job")
    for name in ("tide-power", "tide-hub", "tide"):
        root("sh", "-c", f"mkdir -p /var/lib/{name}; echo x >/var/lib/{name}/x; echo x >/etc/tide/{name}.conf")
    root("sh", "-c", "mkdir -p /etc/docker && tide setup docker")
    assert everything(root) != before
    root.apt("purge", *NAMES)
    daemon.wait(timeout=WAIT_S)
    (root.path / "etc/docker").rmdir()
    after = everything(root)
    assert sorted(after.keys() ^ before.keys()) == []
    assert [path for path in after if after[path] != before[path]] == []
    assert root("sh", "-c", "ls /run/tide /dev/shm/tide-claims 2>/dev/null || true") == ""


def test_docker_is_told_before_the_runtime_goes(root, packages):
    root.apt("install", *files(packages, "threadtide", "threadtide-docker"))
    config = root.path / "etc/docker/daemon.json"
    config.parent.mkdir()
    config.write_text('{"debug": true}')
    root("tide", "setup", "docker")
    assert "/usr/bin/tide-runc" in config.read_text()
    asked = config.read_text()
    config.write_text(asked.replace('"debug": true', '"debug": true, "default-runtime": "tide"'))
    done = root.try_("dpkg", "--remove", "threadtide-docker")
    assert done.returncode != 0 and "default runtime" in done.stdout
    assert (root.path / "usr/bin/tide-runc").exists()
    config.write_text(asked)
    root.apt("remove", "threadtide-docker")
    assert config.read_text() == '{"debug": true}'
