#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL server of one's own: in a temporary directory, on a Unix socket, as an unprivileged user.

    postgres.py COMMAND…    runs the command with its address in TIDE_TEST_POSTGRES; 77: PostgreSQL is not installed
"""
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from daemon import GUARD_S


def programs():
    """The folder of initdb and postgres; None: not installed."""
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parent.name), reverse=True)
    on_path = shutil.which("initdb")
    found += [pathlib.Path(on_path).resolve().parent] if on_path else []
    return next((folder for folder in found if (folder / "initdb").exists() and (folder / "postgres").exists()), None)


class Server:
    """@folder: an empty one, or none for a temporary one in memory. Commits are synchronous, as by default."""

    def __init__(self, folder=None, *settings):
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.own = folder is None
        self.folder = pathlib.Path(folder or tempfile.mkdtemp(prefix="tide-postgres-", dir=memory))
        self.data, self.settings, self.process = self.folder / "data", settings, None
        self.user = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
        if os.geteuid() == 0:
            os.chown(self.folder, self.user.pw_uid, self.user.pw_gid)
        self.run("initdb", "-D", self.data, "-U", "tide", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
        self.start()

    def command(self, program, *arguments):
        return [programs() / program, *map(str, arguments)]

    def become(self):
        return {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}

    def run(self, program, *arguments):
        done = subprocess.run(self.command(program, *arguments), capture_output=True, text=True, cwd="/",
                              env={**os.environ, "HOME": "/"}, check=False, **self.become())
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr}")
        return done.stdout

    def url(self):
        return f"postgresql://tide@/postgres?host={self.folder}&port=5432"

    def start(self):
        options = ["listen_addresses=", f"unix_socket_directories={self.folder}", "shared_buffers=16MB",
                   "max_connections=20", "autovacuum=off", "min_wal_size=32MB", "wal_level=minimal",
                   "max_wal_senders=0", *self.settings]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                self.command("postgres", "-D", self.data, *(x for o in options for x in ("-c", o))), cwd="/",
                env={**os.environ, "HOME": "/"}, stdout=log, stderr=log, start_new_session=True, **self.become())
        until = time.monotonic() + GUARD_S
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"postgres: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.05)

    def answers(self):
        return subprocess.run(self.command("pg_isready", "-q", "-h", self.folder), check=False).returncode == 0

    def ask(self, sql):
        return self.run("psql", "-h", self.folder, "-U", "tide", "-d", "postgres", "-X", "-A", "-t", "-c", sql).strip()

    def stop(self, how=signal.SIGINT):
        """SIGINT: fast; SIGQUIT: at once, as in a crash."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(GUARD_S)

    def kill(self):
        """As in a power cut, but for what the kernel has."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(GUARD_S)
        time.sleep(0.1)

    def freeze(self, frozen):
        """All its processes stand still, or go on."""
        pids = [self.process.pid, *map(int, pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split())]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP if frozen else signal.SIGCONT)

    def end(self):
        self.stop(signal.SIGQUIT)
        if self.own:
            shutil.rmtree(self.folder, ignore_errors=True)


def main():
    if not programs():
        sys.exit(77)
    server = Server()
    try:
        sys.exit(subprocess.run(sys.argv[1:], env={**os.environ, "TIDE_TEST_POSTGRES": server.url()},
                                check=False).returncode)
    finally:
        server.end()


if __name__ == "__main__":
    main()
