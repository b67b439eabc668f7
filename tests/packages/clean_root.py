# SPDX-License-Identifier: Apache-2.0
"""A root file system of Debian's with nothing in it, from the mirror that apt has here, and commands inside."""
import pathlib
import shutil
import subprocess
import time

RELEASE = "bookworm"
GUARD_S = 300
KEPT_S = 24 * 3600  # the mirror has other packages than an older root's lists name


def mirrors():
    """Lines of sources.list for Debian's own archives, as they are configured here."""
    said = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)|$(RELEASE)|$(COMPONENT)",
                           "Created-By: Packages", "Origin: Debian"], capture_output=True, text=True, check=True).stdout
    lines = {f"deb {uri} {release} {component}" for uri, release, component in
             (line.split("|") for line in said.splitlines()) if release.startswith(RELEASE)}
    return sorted(lines)


def make(archive, packages=()):
    """Writes a tar of a clean root, once a day."""
    if archive.exists() and time.time() - archive.stat().st_mtime < KEPT_S:
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    unfinished = archive.with_name("unfinished-" + archive.name)
    # apt's lists stay, as on a machine in use.
    subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", "--mode=root", "--skip=cleanup/apt",
                    "--aptopt=Acquire::Check-Valid-Until \"false\"", *([f"--include={','.join(packages)}"] if packages else []),
                    RELEASE, unfinished, *mirrors()], check=True, timeout=GUARD_S)
    unfinished.rename(archive)


class Root:
    """The unpacked archive. Its processes have a PID namespace of their own, which ends with it."""

    def __init__(self, archive, folder):
        self.path = pathlib.Path(folder)
        subprocess.run(["tar", "-C", self.path, "-xf", archive], check=True)
        shutil.copy("/etc/resolv.conf", self.path / "etc/resolv.conf")
        # pivot_root: a process inside may enter another mount namespace, which would lead out of a chroot.
        script = ("mount --bind \"$1\" \"$1\" && cd \"$1\" && mount -t proc proc proc && mount -t sysfs -o ro sysfs sys &&"
                  " mount -t tmpfs tmpfs dev/shm && mount -t tmpfs tmpfs run && pivot_root . mnt && cd / && umount -l /mnt &&"
                  " echo ready && exec sleep infinity")
        self.first = subprocess.Popen(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation=private",
                                       "sh", "-c", script, "sh", self.path], stdout=subprocess.PIPE, text=True)
        assert self.first.stdout.readline() == "ready\n"
        children = pathlib.Path(f"/proc/{self.first.pid}/task/{self.first.pid}/children").read_text()
        self.pid = children.split()[0]

    def command(self, words):
        return ["nsenter", "-t", self.pid, "--mount", "--pid", "/usr/bin/env", "-i",
                "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8",
                "DEBIAN_FRONTEND=noninteractive", *words]

    def try_(self, *words, **more):
        return subprocess.run(self.command(words), text=True, timeout=GUARD_S, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **more)

    def __call__(self, *words, **more):
        done = self.try_(*words, **more)
        assert done.returncode == 0, f"{words}\n{done.stdout}"
        return done.stdout

    def start(self, *words):
        return subprocess.Popen(self.command(words), text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)

    def apt(self, *words):
        return self("apt-get", "-qq", "-y", "--no-install-recommends", "--allow-downgrades", *words)

    def end(self):
        self.first.kill()
        self.first.wait()
        self.first.stdout.close()
