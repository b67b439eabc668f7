# SPDX-License-Identifier: Apache-2.0
"""A container of the runner: a local process with namespaces of its own for mounts and processes, in
a pod's network, and in a group of cgroup v1's cpu hierarchy where there is one. Its root is this
machine's; what it has mounted, and the directories that this takes, only it sees. As root."""
import dataclasses
import os
import pathlib
import select
import shlex
import signal
import subprocess

from daemon import GUARD_S, eventually

CPU = pathlib.Path("/sys/fs/cgroup/cpu")
PERIOD_US = 100_000  # of quotas, unless a node has another one


def has_cpu_groups():
    return (CPU / "cpu.cfs_quota_us").exists() and os.access(CPU, os.W_OK)


class CpuGroup:
    """A container's control group. Limits and requests become quota and shares, as with kubelet."""

    def __init__(self, path, period_us=PERIOD_US):
        self.path, self.period_us = CPU / path, period_us
        self.path.mkdir(parents=True)
        (self.path / "cpu.cfs_period_us").write_text(str(period_us))

    def set(self, request_mcpu, limit_mcpu):
        quota = max(1000, limit_mcpu * self.period_us // 1000) if limit_mcpu else -1
        (self.path / "cpu.shares").write_text(str(max(2, request_mcpu * 1024 // 1000)))
        (self.path / "cpu.cfs_quota_us").write_text(str(quota))

    @property
    def procs(self):
        return self.path / "cgroup.procs"

    def remove(self):
        """Those in it have been killed, and take a moment to go."""
        def gone():
            try:
                self.path.rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                return False
            return True
        eventually(gone)


@dataclasses.dataclass
class Mount:
    source: pathlib.Path
    target: str
    read_only: bool = False


def existing_parent(path):
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def mount_script(mounts, private):
    """Commands that mount @mounts. Where a target is missing, the closest directory above it gets an
    overlay in which it can be made, so that nothing of it appears outside."""
    mounts = sorted(((os.path.realpath(m.target), m) for m in mounts), key=lambda pair: pair[0])
    covers = sorted({existing_parent(target) for target, _ in mounts if not os.path.exists(target)})
    quote, lines = shlex.quote, []
    if covers:
        lines.append(f"/bin/mount -t tmpfs tmpfs {private}")
    for number, cover in enumerate(covers):
        if cover == "/":
            raise ValueError("cannot mount below a directory of / that this machine does not have")
        if any(cover.startswith(other + "/") for other in covers):
            continue
        parts = f"{private}/{number}"
        lines.append(f"/bin/mkdir -p {parts}/upper {parts}/work")
        lines.append(f"/bin/mount -t overlay -o lowerdir={quote(cover)},upperdir={parts}/upper,"
                     f"workdir={parts}/work overlay {quote(cover)}")
    for target, mount in mounts:
        if mount.source.is_dir():
            lines.append(f"/bin/mkdir -p {quote(target)}")
        else:
            folder = quote(os.path.dirname(target))
            lines.append(f"/bin/mkdir -p {folder} && [ -e {quote(target)} ] || : >{quote(target)}")
        lines.append(f"/bin/mount --bind {quote(str(mount.source))} {quote(target)}")
        if mount.read_only:
            lines.append(f"/bin/mount -o remount,bind,ro {quote(target)}")
    return lines


# The shell that started the container waits for its first process and tells how that ended; with the
# shell ends the process, and with this one all others of its namespace. stdin: the pipe below.
PARENT = """
exec 3<&0 </dev/null
/usr/bin/setpriv --pdeathsig KILL /bin/sh "$@" &
exec 3<&-
wait $!
"""


class Container:
    """A process that is process 1 of its namespace: when it ends, so do all that it has started.
    @holder: the process whose network it enters. @group: a CpuGroup or None. @user: (uid, gid) or None."""

    def __init__(self, folder, holder, group, command, environment, mounts, log, directory="/",
                 user=None):
        (folder / "private").mkdir(parents=True, exist_ok=True)
        lines = ["set -e", "/bin/mount -t proc proc /proc",
                 *([f"echo 0 >{group.procs}"] if group else []),
                 *mount_script(mounts, folder / "private"), f"cd {shlex.quote(directory)}"]
        become = (["/usr/bin/setpriv", f"--reuid={user[0]}", f"--regid={user[1]}", "--clear-groups",
                   "--"] if user else [])
        script = folder / "start.sh"
        # The end of the pipe closes when all is mounted and the command begins.
        script.write_text("\n".join([*lines, 'exec "$@" 3<&-']) + "\n")
        begun, held = os.pipe()
        with open(log, "ab") as output:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "nsenter", f"--net=/proc/{holder.pid}/ns/net",
                 f"--uts=/proc/{holder.pid}/ns/uts", "unshare", "--mount", "--pid", "/bin/sh", "-c",
                 PARENT, "sh", script, *become, *command],
                stdin=held, stdout=output, stderr=output, env=environment, start_new_session=True)
        os.close(held)
        select.select([begun], [], [], GUARD_S)
        os.close(begun)

    @property
    def pid(self):
        """Its first process, as this machine numbers it; None when it has none (any more)."""
        try:
            children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
            return int(children.read_text().split()[0])
        except (OSError, IndexError):
            return None

    def signal(self, number):
        pid = self.pid
        if pid:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def kill(self):
        """Whether or not it has got as far as its first process."""
        self.signal(signal.SIGKILL)
        if self.process.poll() is None and self.pid is None:
            self.process.kill()

    def end(self):
        """Returns when nothing of it is left: its first process is the last of its namespace to go."""
        self.kill()
        self.process.wait(GUARD_S)

    def exit_code(self):
        """As a container runtime says it, or None while it runs."""
        code = self.process.poll()
        return None if code is None else code if code >= 0 else 128 - code
