# SPDX-License-Identifier: Apache-2.0
"""A container runtime as a plugin of NRI sees one: the wire format of containerd 2.x and CRI-O, written down here once
more from its specifications (ttrpc's PROTOCOL.md, nri's api.proto). It makes control groups as runc would,
where a test is root, so that tided and kernel agree about who is in which container."""
import contextlib
import os
import pathlib
import queue
import socket
import struct
import threading

from daemon import GUARD_S, eventually

CGROUP = pathlib.Path("/sys/fs/cgroup")
PLUGIN, RUNTIME = 1, 2  # connections
CALL, ANSWER = 1, 2     # kinds of messages
CREATED, PAUSED, RUNNING, STOPPED = 1, 2, 3, 4
CREATE_CONTAINER, POST_START_CONTAINER, STOP_CONTAINER, REMOVE_CONTAINER = 4, 7, 10, 11
SERVICE = "nri.pkg.api.v1alpha1."


# ---- Protocol Buffers ----

def varint(value):
    out = b""
    value &= (1 << 64) - 1
    while value > 0x7f:
        out += bytes([value & 0x7f | 0x80])
        value >>= 7
    return out + bytes([value])


def encode(fields):
    """{number: int, text, bytes, a message as such a dictionary, or a list of these}; None is left out."""
    out = b""
    for number, value in fields.items():
        for one in value if isinstance(value, list) else [value]:
            if one is None:
                continue
            if isinstance(one, int):
                out += varint(number << 3) + varint(one)
            else:
                data = encode(one) if isinstance(one, dict) else one.encode() if isinstance(one, str) else one
                out += varint(number << 3 | 2) + varint(len(data)) + data
    return out


def decode(data):
    """{number: [int or bytes, …]}"""
    fields, at = {}, 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return value
    while at < len(data):
        tag = number()
        if tag & 7 == 0:
            value = number()
        else:
            assert tag & 7 == 2, tag
            size = number()
            value = data[at:at + size]
            assert len(value) == size
            at += size
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def words(mapping):
    return [{1: key, 2: value} for key, value in (mapping or {}).items()]


# ---- containers ----

class Groups:
    """The control groups of one container, on cgroup v1 or v2."""

    def __init__(self, parent, name):
        tops = [CGROUP] if (CGROUP / "cgroup.controllers").exists() else [CGROUP / "cpu", CGROUP / "cpuset"]
        self.folders = [top / parent / name for top in tops]
        for folder in self.folders:
            folder.mkdir(parents=True)
            for one in (folder.parent, folder):  # v1: empty ones take no process
                for file in ("cpuset.mems", "cpuset.cpus"):
                    if (one / file).exists() and not (one / file).read_text().strip():
                        (one / file).write_text((one.parent / file).read_text())

    def enter(self, pid):
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def set(self, cpus=None, quota=None):
        for folder in self.folders:
            if cpus and (folder / "cpuset.cpus").exists():
                (folder / "cpuset.cpus").write_text(cpus)
            if quota and (folder / "cpu.cfs_quota_us").exists():
                (folder / "cpu.cfs_quota_us").write_text(str(quota))
            if quota and (folder / "cpu.max").exists():
                (folder / "cpu.max").write_text(f"{quota} 100000" if quota > 0 else "max 100000")

    def cpus(self):
        return next((f / "cpuset.cpus").read_text().strip() for f in self.folders if (f / "cpuset.cpus").exists())

    def remove(self):
        for folder in self.folders:
            eventually(lambda folder=folder: not (folder / "cgroup.procs").read_text().split())
            folder.rmdir()


class Container:
    """A container as the runtime knows it. notes: annotations of its pod, labels: its labels."""

    def __init__(self, name, space="default", labels=None, notes=None, qos="burstable", env=(), mounts=(),
                 quota=0, part="main"):
        self.id = os.urandom(8).hex()  # short: the path of the socket in its control directory has 107 bytes
        self.pod_id = os.urandom(32).hex()
        self.name, self.space, self.part, self.labels, self.notes = name, space, part, labels, notes
        self.parent = "/kubepods" + ("" if qos == "guaranteed" else f"/{qos}") + f"/pod{self.pod_id[:8]}"
        self.env, self.mounts, self.quota, self.cpus = list(env), list(mounts), quota, ""
        self.state, self.pid, self.started, self.exit_code = CREATED, 0, 0, 0
        self.groups = None

    def pod(self):
        return {1: self.pod_id, 2: self.name, 3: self.pod_id[:8], 4: self.space, 5: words(self.labels),
                6: words(self.notes), 8: {3: self.parent}}

    def resources(self):
        return {1: {1: {1: 1 << 30}}, 2: {1: {1: 1024}, 2: {1: self.quota} if self.quota else None,
                                          3: {1: 100000}, 6: self.cpus or None}}

    def container(self):
        return {1: self.id, 2: self.pod_id, 3: self.part, 4: self.state, 6: words({"io.kubernetes.cri.image-name": "img:1"}),
                8: self.env, 9: [{1: path, 2: "bind", 3: "/somewhere"} for path in self.mounts],
                11: {3: self.resources()}, 12: self.pid, 15: self.started, 17: self.exit_code}

    def both(self):
        return {1: self.pod(), 2: self.container()}


class Session:
    """One connection of a plugin: sends calls, and serves the plugin's."""

    def __init__(self, runtime, connection):
        self.runtime, self.socket = runtime, connection
        self.streams, self.answers, self.next = {PLUGIN: b"", RUNTIME: b""}, {}, 1
        self.lock = threading.Lock()
        self.registered = None

    def send(self, connection, stream, kind, body):
        message = struct.pack(">IIBB", len(body), stream, kind, 0) + body
        with self.lock:
            for at in range(0, len(message), 4096):
                piece = message[at:at + 4096]
                self.socket.sendall(struct.pack(">II", connection, len(piece)) + piece)

    def call(self, method, payload, guard=GUARD_S):
        """Returns (code, payload) of the answer."""
        stream, self.next = self.next, self.next + 2
        self.answers[stream] = queue.Queue()
        self.send(PLUGIN, stream, CALL, encode({1: SERVICE + "Plugin", 2: method, 3: payload if isinstance(payload, bytes) else encode(payload)}))
        answer = self.answers[stream].get(timeout=guard)
        assert answer is not None, f"{method}: the plugin has hung up"
        status = decode(answer.get(1, [b""])[0])
        return status.get(1, [0])[0], answer.get(2, [b""])[0]

    def ask(self, method, payload):
        code, answer = self.call(method, payload)
        assert code == 0, (method, code)
        return decode(answer)

    def run(self):
        try:
            trunk = b""
            while data := self.socket.recv(65536):
                trunk += data
                while len(trunk) >= 8:
                    to, size = struct.unpack_from(">II", trunk)
                    assert size <= 4096, "larger than what the other end reads at once"
                    if len(trunk) < 8 + size:
                        break
                    self.streams[to] += trunk[8:8 + size]
                    trunk = trunk[8 + size:]
                    self.take(to)
        except OSError:
            pass
        finally:
            for answers in self.answers.values():
                answers.put(None)
            self.runtime.lost(self)

    def take(self, connection):
        data = self.streams[connection]
        while len(data) >= 10:
            size, stream, kind, _ = struct.unpack_from(">IIBB", data)
            if len(data) < 10 + size:
                break
            body, data = decode(data[10:10 + size]), data[10 + size:]
            if connection == PLUGIN:
                assert kind == ANSWER
                self.answers[stream].put(body)
            else:
                assert kind == CALL and body[1] == [(SERVICE + "Runtime").encode()]
                threading.Thread(target=self.serve, args=(stream, body[2][0].decode(), body.get(3, [b""])[0]), daemon=True).start()
        self.streams[connection] = data

    def serve(self, stream, method, payload):
        if method == "RegisterPlugin":
            self.registered = [field[0].decode() for _, field in sorted(decode(payload).items())]
            self.send(RUNTIME, stream, ANSWER, b"")
            self.runtime.registers(self)
            return
        assert method == "UpdateContainers"
        with contextlib.suppress(OSError):  # a test has hung up meanwhile
            self.send(RUNTIME, stream, ANSWER, encode({2: encode(self.runtime.update(payload))}))

    def cut(self):
        self.socket.shutdown(socket.SHUT_RDWR)


class Runtime:
    """rule(id, resources): how an update is carried out; returns the fields of the answer."""

    def __init__(self, folder, at_once=True):
        self.path, self.cgroup = folder / "nri.sock", f"tide-test-{os.getpid()}-{os.urandom(3).hex()}"
        self.containers, self.sessions, self.updates, self.events = [], [], [], None
        self.rule, self.at_once, self.per_message = None, at_once, None
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.listener.listen(8)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                connection = self.listener.accept()[0]
            except OSError:
                return
            session = Session(self, connection)
            threading.Thread(target=session.run, daemon=True).start()

    def registers(self, session):
        """Configures the plugin and tells it of all containers, as containerd does."""
        answer = session.ask("Configure", {2: "test", 3: "1", 5: 2000})
        self.events = answer[2][0]
        if self.at_once:
            self.synchronize(session)
        self.sessions.append(session)

    def synchronize(self, session):
        left = [c for c in self.containers if c.state != STOPPED]
        while True:
            now, left = (left, []) if not self.per_message else (left[:self.per_message], left[self.per_message:])
            answer = session.ask("Synchronize", {1: [c.pod() for c in now], 2: [c.container() for c in now], 3: 1 if left else None})
            assert bool(answer.get(2, [0])[0]) == bool(left)
            if not left:
                return

    def lost(self, session):
        if session in self.sessions:
            self.sessions.remove(session)

    @property
    def plugin(self):
        eventually(lambda: self.sessions)
        return self.sessions[-1]

    def update(self, payload):
        """Changes the containers, or says which it could not."""
        failed = []
        for one in decode(payload)[1]:
            fields = decode(one)
            name = fields[1][0].decode()
            cpu = decode(decode(decode(fields[2][0])[1][0])[2][0])
            assert set(cpu) == {6}, f"only CPUs are ours to change: {cpu}"
            cpus = cpu[6][0].decode()
            self.updates.append((name, cpus))
            if self.rule and (answer := self.rule(name, cpus)) is not None:
                return answer
            container = next((c for c in self.containers if c.id == name), None)
            if container:
                container.cpus = cpus
                if container.groups:
                    container.groups.set(cpus)
        return {1: failed}

    # ---- the life of a container ----

    def add(self, container):
        """One that runs before anybody connects."""
        self.containers.append(container)
        return container

    def create(self, container):
        """Returns the adjustment: {"env": {…}, "mounts": {where: what}, "unset": […]}."""
        self.add(container)
        answer = self.plugin.ask("CreateContainer", container.both())
        return adjustment(answer)

    def start(self, container, pid, notify=True):
        container.state, container.pid, container.started = RUNNING, pid, 1_700_000_000_000_000_000
        if os.geteuid() == 0 and not container.groups:
            container.groups = Groups(self.cgroup, container.id)
            container.groups.enter(pid)
            container.groups.set(container.cpus, container.quota)
        if notify:
            self.plugin.ask("PostStartContainer", container.both())

    def resize(self, container, quota=None, cpus=None):
        """As the kubelet does: the plugin hears of it, then it happens."""
        container.quota, container.cpus = quota or container.quota, cpus or container.cpus
        cpu = {1: {1: 512}, 2: {1: quota}, 3: {1: 100000}} if quota else {6: cpus}
        self.plugin.ask("UpdateContainer", {**container.both(), 3: {2: cpu}})
        if container.groups:
            container.groups.set(cpus, quota)

    def stop(self, container, code=0):
        container.state, container.exit_code = STOPPED, code
        self.plugin.ask("StopContainer", container.both())

    def remove(self, container):
        self.containers.remove(container)
        self.plugin.ask("RemoveContainer", container.both())

    def end(self):
        self.listener.close()
        for session in list(self.sessions):
            session.cut()
        for container in self.containers:
            if container.groups:
                container.groups.remove()
        tops = [CGROUP] if (CGROUP / "cgroup.controllers").exists() else [CGROUP / "cpu", CGROUP / "cpuset"]
        for top in tops:
            if (top / self.cgroup).exists():
                (top / self.cgroup).rmdir()


def adjustment(answer):
    fields = decode(answer[1][0]) if 1 in answer else {}
    pairs = [tuple(decode(one).get(i, [b""])[0].decode() for i in (1, 2)) for one in fields.get(4, [])]
    mounts = [decode(one) for one in fields.get(3, [])]
    return {"env": {key: value for key, value in pairs if not key.startswith("-")},
            "unset": [key[1:] for key, _ in pairs if key.startswith("-")],
            "mounts": {one[1][0].decode(): one[3][0].decode() for one in mounts},
            "options": {one[1][0].decode(): {o.decode() for o in one[4]} for one in mounts}}
