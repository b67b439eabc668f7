# SPDX-License-Identifier: Apache-2.0
"""tided and Docker as services of the machine's systemd, with the interface of tests' own ones."""
import json
import os
import pathlib
import subprocess

import pytest

from daemon import GUARD_S, Daemon
from engine import CGROUP, Engine

TIDE = pathlib.Path("/usr/local/bin/tide")
CONFIG = pathlib.Path("/etc/tide/tide.conf")
DROP_IN = pathlib.Path("/run/systemd/system/tided.service.d/test.conf")

systemd_only = pytest.mark.skipif(not os.path.isdir("/run/systemd/system"), reason="needs systemd")


def systemctl(*words, check=True):
    done = subprocess.run(["systemctl", *words], capture_output=True, text=True, timeout=GUARD_S)
    assert done.returncode == 0 or not check, done.stderr + journal()
    return done.stdout.strip()


def shown(unit, name):
    return systemctl("show", "--property", name, "--value", unit)


def journal(unit="tided"):
    return subprocess.run(["journalctl", "--no-pager", "-n", "30", "-o", "cat", "-u", unit],
                          capture_output=True, text=True).stdout


class Service(Daemon):
    """The system's tided: what tests' daemons are, started by systemctl."""

    def __init__(self, peer_program):
        self.dir, self.peer_program = pathlib.Path("/run/tide"), peer_program
        self.peers = []

    def start(self):
        systemctl("start", "tided")
        return self

    def configure(self, text):
        CONFIG.parent.mkdir(exist_ok=True)
        CONFIG.write_text(f"[daemon]\n{text}\n")

    def amend(self, text):
        """A drop-in of the unit."""
        DROP_IN.parent.mkdir(parents=True, exist_ok=True)
        DROP_IN.write_text(f"[Service]\n{text}\n")
        systemctl("daemon-reload")

    def pid(self):
        return int(shown("tided", "MainPID"))

    def signal(self, number):
        os.kill(self.pid(), number)

    def stop(self):
        systemctl("stop", "tided.service", "tided.socket")

    def end(self):
        for peer in self.peers:
            peer.end()
        self.stop()
        systemctl("reset-failed", "tided.service", check=False)
        CONFIG.unlink(missing_ok=True)
        if DROP_IN.exists():
            DROP_IN.unlink()
            systemctl("daemon-reload")


class SystemEngine(Engine):
    """docker.service. Its containers are scopes of systemd's."""

    def __init__(self):
        self.kind, self.prefix = "docker", "/v1.41"
        self.socket = pathlib.Path("/run/docker.sock")

    def start(self):
        folder = pathlib.Path("/etc/docker")
        folder.mkdir(exist_ok=True)
        (folder / "daemon.json").write_text(json.dumps({
            "bridge": "none", "iptables": False, "ip6tables": False, "ip-forward": False,
            "exec-opts": ["native.cgroupdriver=systemd"]}))
        systemctl("start", "docker")
        return self

    def groups(self, container, controller="cpu"):
        return CGROUP / f"system.slice/docker-{container}.scope"

    def end(self):
        systemctl("stop", "docker.service", "docker.socket", "containerd.service")


@pytest.fixture(scope="session")
def installed():
    """Units and groups are as `make install` has left them; the system learns of them."""
    subprocess.run(["systemd-sysusers"], check=True)
    systemctl("daemon-reload")


@pytest.fixture
def service(installed, build_dir):
    result = Service(build_dir / "tests/component/fake_peer")
    yield result
    result.end()
