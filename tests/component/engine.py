# SPDX-License-Identifier: Apache-2.0
"""Real container engines for tests: a Docker Engine or a podman service of one's own, as root.

Each has its data, its sockets and its control groups for itself, and a keeper: this file as a
program, in a private mount namespace, which starts and stops the engine at our word and ends with
our end of a pipe, however that comes. It then kills what is left, and removes groups and files.

cgroup v1's memory hierarchy is hidden from the engines: they neither limit nor count memory, and
what already stands in it is left alone.
"""
import contextlib
import io
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

from daemon import GUARD_S, UnixConnection, eventually

CGROUP = pathlib.Path("/sys/fs/cgroup")
HIDDEN = ("memory", "unified", "systemd")
IMAGE = "tide-skeleton:1"
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def skeleton():
    """An image's root as a tar: empty directories and links; run with /usr of the host mounted."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in ("usr", "tmp", "dev", "proc", "sys", "etc", "run", "var"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for name in ("bin", "sbin", "lib", "lib64"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(entry)
    return buffer.getvalue()


def program_mounts(*folders):
    """Options of `docker run`: /usr and @folders, read-only, each at its own path."""
    read = {pathlib.Path(p) for p in ("/usr", *folders)}
    read |= {path.resolve() for path in read}  # an environment may be a link to another place
    return [f"--volume={p}:{p}:ro" for p in sorted(read) if not read & set(p.parents)]


# ---- this side of the pipe ----

class Engine:
    """kind: "docker", "docker-live" (its containers outlive it) or "podman". `cgroup` is the parent
    of all containers' control groups."""

    def __init__(self, kind):
        self.kind = kind.split("-")[0]
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="tide-engine-"))
        self.cgroup = f"/{self.dir.name}"
        self.socket = self.dir / "engine.sock"
        self.log = self.dir / "log"
        self.prefix = "/v1.41" if self.kind == "docker" else "/v4.0.0/libpod"
        self.keeper = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", sys.executable, __file__, kind,
             self.dir], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
            start_new_session=True, env={**os.environ, "PATH": PATH})

    def tell(self, word):
        self.keeper.stdin.write(word + "\n")
        answer = self.keeper.stdout.readline()
        assert answer == f"{word} ok\n", f"{answer}: {self.log.read_text()[-2000:]}"

    def start(self):
        self.tell("start")
        eventually(self.answers)
        return self

    def stop(self):
        """As a service manager does: its containers end, too (Docker's)."""
        self.tell("stop")

    def kill(self):
        self.tell("kill")

    def freeze(self):
        self.tell("freeze")

    def thaw(self):
        self.tell("thaw")

    def end(self):
        if self.keeper.poll() is None:
            self.keeper.stdin.close()
        assert self.keeper.wait(2 * GUARD_S) == 0

    def answers(self):
        try:
            return self.api("GET", "/_ping", prefix="")[0] == 200
        except OSError:
            return False

    def api(self, method, path, body=None, raw=None, prefix=None):
        """(status, answer), as Docker's own client would ask."""
        connection = UnixConnection(self.socket)
        try:
            data = raw if raw is not None else json.dumps(body) if body is not None else None
            kind = "application/x-tar" if raw is not None else "application/json"
            connection.request(method, (self.prefix if prefix is None else prefix) + path, data,
                               {"Content-Type": kind})
            answer = connection.getresponse()
            text = answer.read()
            try:
                return answer.status, json.loads(text)
            except ValueError:
                return answer.status, text.decode()
        finally:
            connection.close()

    def make_container(self, name, command, labels, binds, env, limits):
        """Makes one, from our image and with Docker's words for @limits; returns its id."""
        if self.kind == "docker":
            path, body = f"/containers/create?name={name}", {
                "Image": IMAGE, "Cmd": command, "Labels": labels, "Env": env,
                "StopTimeout": 1,  # its first process has no handler of SIGTERM
                "HostConfig": {"Binds": binds, "NetworkMode": "host", **limits}}
        else:
            mounts = [{"type": "bind", "source": source, "destination": destination,
                       "options": [*options, "rbind"]}
                      for source, destination, *options in (bind.split(":") for bind in binds)]
            most = [{"type": kind, "soft": 1024, "hard": 1024} for kind in ("nofile", "nproc")]
            cpu = {{"CpusetCpus": "cpus", "CpuShares": "shares", "CpuQuota": "quota"}[key]: value
                   for key, value in limits.items()}
            path, body = "/containers/create", {
                "name": name, "image": IMAGE, "command": command, "labels": labels, "mounts": mounts,
                "env": dict(word.split("=", 1) for word in env), "netns": {"nsmode": "host"},
                "r_limits": most, "cgroup_parent": self.cgroup, "resource_limits": {"cpu": cpu}}
        return self.ask("POST", path, body, 201)["Id"]

    def remove(self, container):
        """Also while it runs, and at once."""
        now = "" if self.kind == "docker" else "&timeout=0"
        return self.api("DELETE", f"/containers/{container}?force=true{now}")[0]

    def ask(self, method, path, body=None, expected=204):
        status, answer = self.api(method, path, body)
        assert status == expected, answer
        return answer

    def make_image(self):
        path = (f"/images/create?fromSrc=-&repo={IMAGE.split(':')[0]}&tag={IMAGE.split(':')[1]}"
                if self.kind == "docker" else f"/images/import?reference={IMAGE}")
        status, answer = self.api("POST", path, raw=skeleton())
        assert status == 200, answer
        return self

    def groups(self, container, controller="cpu"):
        """A container's control group, as it is written on the machine."""
        parent = CGROUP / controller if (CGROUP / controller).is_dir() else CGROUP
        return next((parent / self.cgroup[1:]).glob(f"*{container}*"))


class Proxy:
    """A socket like an engine's own, on which chosen calls go wrong.

    rule(method, path) says how: None is passed on to the engine, or a function of the client's
    connection and of ask(), which has the engine do it and returns its answer as bytes.
    """

    def __init__(self, path, upstream):
        self.path, self.upstream = str(path), str(upstream)
        self.rule = lambda method, path: None
        self.calls, self.open = [], set()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(128)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        self.open.add(client)
        with client, contextlib.suppress(OSError):
            request = client.recv(65536)
            while request and b"\r\n\r\n" not in request:
                request += client.recv(65536)
            head, _, body = request.partition(b"\r\n\r\n")
            length = int((re.search(rb"(?i)content-length: *(\d+)", head) or [0, 0])[1])
            while len(body) < length:
                more = client.recv(65536)
                request, body = request + more, body + more
            method, path = head.decode().split()[:2]
            self.calls.append((method, path))
            fault = self.rule(method, path)
            if fault:
                fault(client, lambda: self._ask(request))
            else:
                self._pass_on(client, request)
        self.open.discard(client)

    def _reach(self, request):
        server = socket.socket(socket.AF_UNIX)
        server.connect(self.upstream)
        server.sendall(request)
        return server

    def _ask(self, request):
        with self._reach(request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)) as server:
            return b"".join(iter(lambda: server.recv(65536), b""))

    def _pass_on(self, client, request):
        with self._reach(request) as server:
            while True:
                for end in select.select([client, server], [], [])[0]:
                    data = end.recv(65536)
                    if not data:
                        return
                    (client if end is server else server).sendall(data)

    def cut(self):
        """Hangs up on everybody: also the stream of events begins anew."""
        for client in list(self.open):
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def end(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.cut()


# ---- the keeper ----

def reap():
    """Orphans are ours, see PR_SET_CHILD_SUBREAPER below."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


class Keeper:
    def __init__(self, kind, folder):
        self.kind, self.dir, self.process = kind, folder, None
        self.hierarchies = [CGROUP] if (CGROUP / "cgroup.controllers").exists() else [
            p for p in CGROUP.iterdir() if p.is_dir() and not p.is_symlink()]

    def command(self):
        if self.kind.startswith("docker"):
            live = json.dumps({"live-restore": True} if self.kind == "docker-live" else {})
            (self.dir / "daemon.json").write_text(live)
            return ["dockerd", "--config-file", self.dir / "daemon.json",
                    "--host", f"unix://{self.dir}/engine.sock", "--data-root", self.dir / "data",
                    "--exec-root", self.dir / "exec", "--pidfile", self.dir / "pid",
                    "--cgroup-parent", f"/{self.dir.name}",
                    "--exec-opt", "native.cgroupdriver=cgroupfs", "--bridge=none", "--iptables=false",
                    "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"]
        return ["podman", "--root", self.dir / "root", "--runroot", self.dir / "runroot",
                "--tmpdir", self.dir / "tmp", "--cgroup-manager", "cgroupfs", "--runtime", "crun",
                "--events-backend", "file", "system", "service", "--time", "0",
                f"unix://{self.dir}/engine.sock"]

    def start(self):
        for name in ("engine.sock", "pid"):  # a killed engine has left them
            (self.dir / name).unlink(missing_ok=True)
        with open(self.dir / "log", "ab") as log:
            self.process = subprocess.Popen(
                [str(word) for word in self.command()], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, env={**os.environ, "XDG_RUNTIME_DIR": str(self.dir), "TMPDIR": "/tmp"})

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait(GUARD_S)

    def kill(self):
        self.process.kill()
        self.process.wait()
        # Docker's containerd dies with it, and as long as nobody reaps it, the next dockerd takes
        # it for alive.
        file = self.dir / "exec/containerd/containerd.pid"
        end = time.monotonic() + GUARD_S
        while (file.exists() and os.path.exists(f"/proc/{file.read_text()}") and
               time.monotonic() < end):
            reap()
            time.sleep(0.02)

    def freeze(self):
        """Comes back when each thread stands still: on a busy machine one may answer until then."""
        self.process.send_signal(signal.SIGSTOP)
        threads = pathlib.Path(f"/proc/{self.process.pid}/task")
        eventually(lambda: all((t / "stat").read_text().rpartition(")")[2].split()[0] in "TZ" for t in threads.iterdir()))

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    # ---- the end of everything ----

    def our_groups(self):
        """Children before their parents."""
        return [pathlib.Path(folder) for hierarchy in self.hierarchies
                for folder, _, _ in os.walk(hierarchy / self.dir.name, topdown=False)]

    def members(self):
        pids = set()
        for group in self.our_groups():
            try:
                pids.update(int(pid) for pid in (group / "cgroup.procs").read_text().split())
            except OSError:
                pass  # gone meanwhile
        return pids

    def relatives(self):
        """Returns the others in our mount namespace: the engine, its helpers, monitors of containers."""
        ours, pids = os.readlink("/proc/self/ns/mnt"), set()
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(entry / "ns/mnt") == ours and int(entry.name) != os.getpid():
                    pids.add(int(entry.name))
            except OSError:
                pass
        return pids

    def kill_all(self, find):
        end = time.monotonic() + GUARD_S
        while (pids := find()) and time.monotonic() < end:
            for group in self.our_groups():  # a frozen process does not die
                for name, word in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
                    if (group / name).exists():
                        (group / name).write_text(word)
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            reap()
            time.sleep(0.02)

    def end(self):
        self.kill_all(self.relatives)
        self.kill_all(self.members)
        mounts = pathlib.Path("/proc/self/mounts").read_text().splitlines()
        for line in reversed(mounts):
            if line.split()[1].startswith(f"{self.dir}/"):
                subprocess.run(["umount", "--lazy", line.split()[1]], check=False)
        for group in self.our_groups():
            group.rmdir()
        shutil.rmtree(self.dir)


def hide_memory(folder):
    """In our mount namespace: the hierarchies of cgroup v1 again, but for those in HIDDEN."""
    shown = [p for p in CGROUP.iterdir() if os.path.ismount(p) and p.name not in HIDDEN]
    if not shown:
        return  # cgroup v2 is one tree
    place = folder / "cgroup"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "cgroup", place], check=True)
    for hierarchy in shown:
        (place / hierarchy.name).mkdir()
        subprocess.run(["mount", "--bind", hierarchy, place / hierarchy.name], check=True)
    subprocess.run(["umount", "--recursive", CGROUP], check=True)
    subprocess.run(["mount", "--move", place, CGROUP], check=True)
    place.rmdir()


def keep(kind, folder):
    import ctypes

    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans are killed and reaped
    hide_memory(folder)
    keeper = Keeper(kind, folder)
    try:
        for line in sys.stdin:
            getattr(keeper, line.strip())()
            print(line.strip(), "ok", flush=True)
    finally:
        keeper.end()


if __name__ == "__main__":
    keep(sys.argv[1], pathlib.Path(sys.argv[2]))
