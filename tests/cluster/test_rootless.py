# SPDX-License-Identifier: Apache-2.0
"""A podman and a tided of an ordinary user: nobody here is root but the tests. systemd gives the user's manager the cpu and
cpuset controllers, as docs/containers.md says, and podman's groups lie below it."""
import os
import pathlib
import shutil
import subprocess

import pytest

from box import Box, HALVES, connected, joined
from daemon import GUARD_S, Place, eventually
from engine import CGROUP, Engine
from system import installed, systemctl, systemd_only  # noqa: F401

pytestmark = [systemd_only, pytest.mark.skipif(not shutil.which("podman") or not shutil.which("newuidmap"),
                                               reason="no podman, or no newuidmap")]
USER, UID = "ana", 1234
RUN = pathlib.Path(f"/run/user/{UID}")
MANAGER = CGROUP / f"user.slice/user-{UID}.slice/user@{UID}.service"
DELEGATE = pathlib.Path("/run/systemd/system/user@.service.d/delegate.conf")


def as_user(*words):
    done = subprocess.run(
        ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--init-groups", "env", "-i", f"HOME=/home/{USER}",
         "PATH=/usr/bin:/bin", f"XDG_RUNTIME_DIR={RUN}", f"DBUS_SESSION_BUS_ADDRESS=unix:path={RUN}/bus", *map(str, words)],
        capture_output=True, text=True, timeout=4 * GUARD_S, cwd="/")
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


class UsersEngine(Engine):
    """`systemctl --user start podman.socket`."""

    def __init__(self):
        self.kind, self.prefix, self.cgroup = "podman", "/v4.0.0/libpod", "user.slice"
        self.socket = RUN / "podman/podman.sock"

    def start(self):
        as_user("systemctl", "--user", "start", "podman.socket")
        eventually(self.answers)
        return self

    def groups(self, container, controller="cpu"):
        scope = next((MANAGER / "user.slice").glob(f"libpod-{container}*"))
        return scope / "container" if controller == "cpuset" else scope


def write(path, text):
    """With the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def make_user():
    subprocess.run(["useradd", "--create-home", f"--uid={UID}", USER], check=True)
    for file in ("/etc/subuid", "/etc/subgid"):
        pathlib.Path(file).write_text(f"{USER}:100000:65536\n")
    assert os.stat(shutil.which("newuidmap")).st_mode & 0o4000
    config = pathlib.Path(f"/home/{USER}/.config/containers")
    # The user may not read the journal, where podman would tell its events.
    write(config / "containers.conf", '[engine]\nevents_logger = "file"\ncgroup_manager = "systemd"\nruntime = "crun"\n'
          '[containers]\nlog_driver = "k8s-file"\n')
    write(config / "storage.conf", '[storage]\ndriver = "vfs"\n')
    subprocess.run(["chown", "-R", f"{UID}:{UID}", f"/home/{USER}"], check=True)


@pytest.fixture(scope="module")
def engine(installed):  # noqa: F811
    make_user()
    write(DELEGATE, "[Service]\nDelegate=cpu cpuset io memory pids\n")
    systemctl("daemon-reload")
    result = UsersEngine()
    try:
        systemctl("start", f"user@{UID}.service")
        yield result.start().make_image()
    finally:
        systemctl("stop", f"user@{UID}.service", check=False)
        subprocess.run(["userdel", "--remove", USER], check=False)
        DELEGATE.unlink()


@pytest.fixture
def place(build_dir):
    result = Place(build_dir / "tided", build_dir / "tests/component/fake_peer")
    (result.base / "claims").mkdir()
    (result.base / "claims").chmod(0o1777)
    yield result
    result.end()


@pytest.fixture
def tided(place, engine):
    return place.daemon("--engine", engine.socket, uid=UID).start()


class UsersBox(Box):
    """Its files are the user's."""

    def start(self):
        for path in (self.dir, *self.dir.iterdir()):
            os.chown(path, UID, UID)
        return super().start()


@pytest.fixture
def boxes(engine, place, tided):
    made = []

    def make(name, *options, **more):
        folder = tided.dir / "containers" / name
        folder.mkdir(parents=True)
        for path in (folder.parent, folder):
            os.chown(path, UID, UID)
        made.append(UsersBox(engine, place, name, *options, **more))
        return made[-1]
    yield make
    for box in made:
        box.remove()


def test_containers_without_root_share_the_cores(tided, boxes):
    exclusive = {"io.threadtide.placement": "exclusive"}
    pair = [boxes(name, "--max 8", labels=exclusive) for name in ("first", "second")]
    for box in pair:
        connected(tided, box)
    eventually(lambda: sorted(box.cpus() for box in pair) == HALVES)
    pair[0].kill()
    eventually(lambda: pair[1].cpus() not in HALVES)
    assert joined(tided, pair[1])["owner"] == USER


def test_weights_follow_where_cores_are_shared(tided, boxes):
    box = boxes("alone", "--max 8")
    connected(tided, box)
    eventually(lambda: box.shares() > 1024)
    tided.stop()
    eventually(lambda: box.shares() == 1024)  # its own again


def memory_max(box):
    """The tighter one of the scope and of crun's group in it."""
    scope = box.engine.groups(box.id)
    texts = [(group / "memory.max").read_text().strip() for group in (scope, scope / "container")]
    return min((int(text) for text in texts if text != "max"), default=None)


def test_its_memory_goes_down_and_up_again(tided, boxes):
    box = boxes("thrifty", "--max 8")
    connected(tided, box)
    job = eventually(lambda: (found := joined(tided, box))["memory_least"] and found)
    path = f"/v1/jobs/{job['id']}/memory-limit"
    assert (job["memory_limit"], memory_max(box)) == (None, None)
    status, lowered = tided.api("PUT", path, {"bytes": 256 << 20})
    assert (status, lowered["memory_limit"], memory_max(box)) == (200, 256 << 20, 256 << 20), lowered
    status, undone = tided.api("PUT", path, {"bytes": None})
    assert (status, undone["memory_limit"], memory_max(box)) == (200, None, None), undone
    assert "limits are changed" not in tided.log.read_text() and "another program" not in tided.log.read_text()
