# SPDX-License-Identifier: Apache-2.0
"""Another machine for tests: a real sshd of this test's own on loopback, behind which a daemon's directory lies."""
import getpass
import os
import pathlib
import shutil
import socket
import subprocess

import pytest

import conftest
from daemon import GUARD_S, eventually

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
needs_sshd = pytest.mark.skipif(not SSHD or not shutil.which("ssh"), reason="needs openssh-server and openssh-client")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Machine:
    """An sshd whose sessions have the daemon's directory `run` as theirs."""

    def __init__(self, home, tide, run, *lines):
        self.home, self.port, self.tide = home, free_port(), tide
        self.log = home.folder / f"sshd-{self.port}.log"
        config = home.folder / f"sshd-{self.port}.conf"
        config.write_text("\n".join((
            f"Port {self.port}", "ListenAddress 127.0.0.1", f"HostKey {home.folder}/host", "PidFile none",
            f"AuthorizedKeysFile {home.folder}/authorized", "StrictModes no", "UsePAM no", "PermitRootLogin prohibit-password",
            "PrintMotd no", f"SetEnv TIDE_DIR={run}", *lines, "")))
        if os.geteuid() == 0:
            pathlib.Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([SSHD, "-D", "-e", "-f", config], stderr=log, stdin=subprocess.DEVNULL)
        eventually(lambda: "Server listening" in self.said() or self.process.poll() is not None)
        assert self.process.poll() is None, self.said()

    def address(self, program=None):
        return f"ssh://127.0.0.1:{self.port}{self.tide if program is None else program}"

    def said(self):
        return self.log.read_text()

    def logins(self):
        return self.said().count("Accepted publickey")

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(GUARD_S)


class Home:
    """Whoever looks from here: keys, a home directory, `ssh` that asks no file of this machine; and `tide`."""

    def __init__(self, build_dir, folder):
        self.folder, self.tide, self.machines = folder, build_dir / "tide", []
        for key in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True, timeout=GUARD_S)
        self.allow("")
        self.program("ssh", f"exec {shutil.which('ssh')} -F none -i {folder}/user -o UserKnownHostsFile={folder}/known "
                            f"-o StrictHostKeyChecking=no -l {getpass.getuser()} \"$@\"")
        (folder / "config/tide").mkdir(parents=True)
        self.env = {**conftest.plain_env(), "XDG_CONFIG_HOME": str(folder / "config"), "HOME": str(folder), "LC_ALL": "C.UTF-8",
                    "XDG_RUNTIME_DIR": str(folder / "nothing"), "PATH": f"{folder}/bin:{os.environ['PATH']}"}

    def program(self, name, text):
        (self.folder / "bin").mkdir(exist_ok=True)
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def allow(self, options):
        (self.folder / "authorized").write_text(options + (self.folder / "user.pub").read_text())

    def machine(self, run, *lines):
        self.machines.append(Machine(self, self.tide, run, *lines))
        return self.machines[-1]

    def inventory(self, *lines):
        (self.folder / "config/tide/fleet").write_text("".join(f"{line}\n" for line in lines))

    def __call__(self, *arguments, env=None, program=(), **more):
        return subprocess.run([*program, self.tide, *map(str, arguments)], env={**self.env, **(env or {})}, text=True,
                              timeout=2 * GUARD_S, **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE,
                                                      "stderr": subprocess.PIPE, **more})

    def end(self):
        for machine in self.machines:
            machine.end()


@pytest.fixture
def home(build_dir, public_dir):
    result = Home(build_dir, public_dir)
    yield result
    result.end()
