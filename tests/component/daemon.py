# SPDX-License-Identifier: Apache-2.0
"""A real tided in a private directory, fake peers as its jobs' processes, and the two protocols."""
import http.client
import json
import os
import pathlib
import queue
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

# Guards, and nothing else, take so many times as long: machines are emulated in tests/cluster.
SLOWNESS = int(os.environ.get("TIDE_TEST_SLOWNESS") or 1)
GUARD_S = 90 * SLOWNESS  # whatever takes longer hangs: machines were seen whose cores stood still for 25 s
NOBODY = 65534
MAGIC, VERSION = 0x45444954, 1
HELLO, BACKEND, ACK, HEARTBEAT, LOCAL, WELCOME, TARGET = 1, 2, 3, 4, 5, 6, 7
CONTROL, JOB, RESULT = 9, 10, 11
LIST, SET, LEND, BORROW, RECLAIM, RETURN, BEGIN = range(7)
WAIT, QUIET = 1, 2


def eventually(check, guard=30, pause=0.01):
    """check() until it is true; its last value. Fails after the guard."""
    end = time.monotonic() + guard * SLOWNESS
    while True:
        value = check()
        if value:
            return value
        assert time.monotonic() < end, f"not within {guard} s: {check.__name__}: {value!r}"
        time.sleep(pause)


def remove(folder):
    """Removes an ended daemon's folder. A guardian may still be writing down what it has put back."""
    def gone():
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()
    eventually(gone)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=GUARD_S)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


class Peer:
    """One process of a job: fake_peer, told what to do through stdin, its words in a queue."""

    def __init__(self, program, daemon, *options, uid=None):
        command = [program, *options]
        if uid:
            command = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *command]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
            env={**os.environ, "TIDE_SOCKET": str(daemon.dir / "agent.sock")})
        self.pid = self.process.pid
        if uid:  # registered before setpriv has changed it, it would be root's
            eventually(lambda: os.stat(f"/proc/{self.pid}").st_uid == uid)
            # … and before exec it still has root's capabilities: not a user's to place.
            comm = pathlib.Path(f"/proc/{self.pid}/comm")
            eventually(lambda: comm.read_text().strip() != "setpriv")
        self.words = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.words.put(line.split())

    def tell(self, line):
        self.process.stdin.write(line + "\n")

    def go(self, token="-", job="-", name="-"):
        self.tell(f"go {token} {job} {name}")

    def expect(self, *words, guard=GUARD_S):
        """The next report that begins with these words; what comes before it is dropped."""
        end = time.monotonic() + guard
        while True:
            try:
                got = self.words.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"the peer never said {words}") from None
            if got[:len(words)] == [str(w) for w in words]:
                return got

    def silent(self, seconds):
        """Everything it says within so long."""
        time.sleep(seconds)
        said = []
        while not self.words.empty():
            said.append(self.words.get())
        return said

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()


class Job:
    def __init__(self, daemon, peer, answer):
        self.daemon, self.peer = daemon, peer
        self.id, self.name, self.token = answer["id"], answer["name"], answer["token"]

    def get(self):
        status, job = self.daemon.api("GET", f"/v1/jobs/{self.id}")
        assert status == 200, job
        return job

    def patch(self, **body):
        return self.daemon.api("PATCH", f"/v1/jobs/{self.id}", body)

    def changes(self):
        return self.daemon.api("GET", f"/v1/jobs/{self.id}/explain")[1]["changes"]

    def target(self, n):
        """Waits until the daemon wants n threads and the peer has them."""
        return eventually(lambda: (j := self.get())["target"] == n and j["active"] == n and j)

    def settled(self):
        """Waits until its agent has what the daemon wants, however often that changes meanwhile."""
        return eventually(lambda: (j := self.get())["target"] == j["active"] > 0 and j)

    def record(self):
        """Returns the daemon's file of it, written a little after the daemon has answered; "" before that."""
        path = self.daemon.dir / f"jobs/{self.id}.json"
        return path.read_text() if path.exists() else ""

    def end(self):
        self.peer.end()
        eventually(lambda: self.daemon.api("GET", f"/v1/jobs/{self.id}")[0] == 404)


ASK_AS = """
import http.client, json, socket, sys
where, method, path, body, headers = sys.argv[1:]
c = http.client.HTTPConnection("x")
c.sock = socket.socket(socket.AF_UNIX)
c.sock.connect(where)
c.request(method, path, body or None, json.loads(headers))
answer = c.getresponse()
print(json.dumps([answer.status, answer.read().decode()]))
"""


class Daemon:
    def __init__(self, program, peer_program, directory, claims, *options, uid=None):
        self.program, self.peer_program = program, peer_program
        self.dir, self.claims, self.options, self.uid = directory, claims, options, uid
        self.log = directory.parent / f"{directory.name}.log"
        self.env = {}
        self.peers = []
        self.process = None

    def start(self, ready=True):
        program = self.program if isinstance(self.program, list) else [self.program]
        command = [*program, "--dir", self.dir, *self.options]
        if self.uid:
            command = ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups",
                       *command]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                command, stderr=log,
                env={**os.environ, "TIDE_CLAIMS_DIR": str(self.claims), **self.env})
        if ready:
            eventually(lambda: self.answers() or self.ended())
            assert self.answers(), self.log.read_text()
        return self

    def ended(self):
        return self.process.poll() is not None

    def answers(self):
        try:
            return self.api("GET", "/v1/machine")[0] == 200
        except OSError:
            return False

    def signal(self, number):
        os.kill(self.process.pid, number)
        if number == signal.SIGKILL:
            self.process.wait()

    def stop(self):
        self.process.terminate()
        return self.process.wait(GUARD_S)

    def api(self, method, path, body=None, raw=None):
        connection = UnixConnection(self.dir / "api.sock")
        try:
            data = raw if raw is not None else json.dumps(body) if body is not None else None
            connection.request(method, path, data)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def api_as(self, uid, method, path, body=None, headers=None):
        """[status, the answer's text], as that user asks."""
        words = [sys.executable, "-c", ASK_AS, self.dir / "api.sock", method, path, "" if body is None else json.dumps(body), json.dumps(headers or {})]
        done = subprocess.run(["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *map(str, words)],
                              capture_output=True, text=True, timeout=GUARD_S, check=True)
        return json.loads(done.stdout)

    def jobs(self):
        return self.api("GET", "/v1/jobs")[1]

    def metrics(self):
        connection = UnixConnection(self.dir / "api.sock")
        try:
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            assert answer.status == 200
            assert answer.getheader("Content-Type") == "text/plain; version=0.0.4; charset=utf-8"
            return answer.read().decode()
        finally:
            connection.close()

    def peer(self, *options, uid=None):
        peer = Peer(self.peer_program, self, *options, uid=uid)
        self.peers.append(peer)
        return peer

    def job(self, *options, uid=None, **request):
        """Registers a process as `tide run` does, and lets it say hello."""
        peer = self.peer(*options, uid=uid)
        status, answer = self.api("POST", "/v1/jobs", {"pid": peer.pid, **request})
        assert status == 201, answer
        peer.go(answer["token"], answer["id"], answer["name"])
        peer.expect("welcome")
        return Job(self, peer, answer)

    def controller(self):
        return Controller(self.dir / "agent.sock")

    def end(self):
        for peer in self.peers:
            peer.end()
        if self.process and not self.ended():
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                assert self.process.wait(GUARD_S) == 0, self.log.read_text()  # a sanitizer's word too
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise


def text(value, size):
    return value.encode().ljust(size, b"\0")


def message(kind, body, cookie=0, magic=MAGIC, version=VERSION, size=None):
    size = 16 + len(body) if size is None else size
    return struct.pack("<IHHII", magic, version, kind, size, cookie) + body


def control(verb, flags=0, intra=0, inter=0, deadline_ms=0, job="", cookie=7):
    return message(CONTROL, struct.pack("<6IQ", verb, flags, intra, inter, deadline_ms, 0,
                                        time.monotonic_ns()) + text(job, 64), cookie)


def hello(token="", job="", name=""):
    return message(HELLO, struct.pack("<4I", os.getpid(), 0, 2, 4) + text(token, 40) +
                   text(job, 16) + text(name, 64) + text("test", 32) + text("0", 32))


def beat(epoch=0, generation=0, source=1):
    return message(HEARTBEAT, struct.pack("<2Q4I3Q", epoch, generation, source, 1, 1, 2000, 0, 0, 0) +
                   bytes(32))


def local(intra):
    """A signal set the threads."""
    return message(LOCAL, struct.pack("<4I", 2, intra, 0, 0))


def backend(max_intra=8):
    return message(BACKEND, struct.pack("<8I", 0, 1, max_intra, 0, 0, 0, max_intra, 0) +
                   text("fake", 32) + text("1.0", 32) + bytes(128))


def acknowledgement(target):
    """The ACK to a TARGET with this body."""
    epoch, generation, intra = struct.unpack_from("<2QI", target)
    return message(ACK, struct.pack("<2Q2I", epoch, generation, 0, intra) + bytes(56))


class Raw:
    """A connection to agent.sock on which anything can be sent."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(GUARD_S)
        self.socket.connect(str(path))

    def send(self, data):
        self.socket.send(data)

    def receive(self):
        """(type, body), or None when the daemon hung up."""
        try:
            data = self.socket.recv(2048)
        except ConnectionResetError:
            return None
        return (struct.unpack_from("<H", data, 6)[0], data[16:]) if data else None

    def close(self):
        self.socket.close()


class Controller(Raw):
    def result(self):
        kind, body = self.receive()
        assert kind == RESULT
        status, before, after, over, latency = struct.unpack_from("<i3IQ", body)
        return {"status": status, "from": before, "to": after, "oversubscribed": bool(over),
                "latency_ns": latency, "text": body[24:].split(b"\0")[0].decode()}

    def send_order(self, verb, **fields):
        self.send(control(verb, **fields))

    def order(self, verb, **fields):
        self.send_order(verb, **fields)
        return self.result()

    def list(self):
        self.send(control(LIST))
        rows = []
        while True:
            kind, body = self.receive()
            if kind == RESULT:
                return rows
            numbers = struct.unpack_from("<8I3Q", body)
            keys = ("pid", "allowed_mcpu", "target", "active", "max", "oversubscribed", "lent",
                    "borrowed", "done", "total", "rate_milli")
            rows.append({**dict(zip(keys, numbers)),
                         "id": body[56:72].split(b"\0")[0].decode(),
                         "state": body[72:88].split(b"\0")[0].decode(),
                         "name": body[88:152].split(b"\0")[0].decode()})


class Events:
    """A stream of /v1/events."""

    def __init__(self, daemon, last=None, query=""):
        self.connection = UnixConnection(daemon.dir / "api.sock")
        headers = {"Last-Event-ID": last} if last else {}
        self.connection.request("GET", "/v1/events" + query, headers=headers)
        self.answer = self.connection.getresponse()

    def line(self):
        return self.answer.readline().decode()

    def next(self):
        """(type, data, id) of the next event; comments and retry are passed over."""
        event = {}
        while True:
            line = self.line()
            assert line, "the stream ended"
            if line == "\n":
                if "data" in event:
                    return event["event"], json.loads(event["data"]), event.get("id")
                event = {}
            elif not line.startswith(":"):
                key, value = line.rstrip("\n").split(": ", 1)
                event[key] = value

    def until(self, kind, check=lambda data: True):
        while True:
            event = self.next()
            if event[0] == kind and check(event[1]):
                return event

    def rest(self):
        """The types of all events up to the end of the stream."""
        return re.findall(r"^event: (.*)$", self.answer.read().decode(), re.M)

    def close(self):
        self.connection.close()


class Place:
    """Makes daemons that share one registry of claims, each in a directory of its own."""

    def __init__(self, program, peer_program):
        self.program, self.peer_program = program, peer_program
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="tide-node-"))
        self.base.chmod(0o755)
        self.daemons = []

    def daemon(self, *options, uid=None, name=None, directory=None):
        directory = directory or self.base / (name or f"d{len(self.daemons)}")
        if not directory.is_symlink() and not directory.exists():
            directory.mkdir(mode=0o755 if uid is None else 0o700)
            if uid:
                os.chown(directory, uid, uid)
        daemon = Daemon(self.program, self.peer_program, directory, self.base / "claims", *options,
                        uid=uid)
        self.daemons.append(daemon)
        return daemon

    def end(self):
        for daemon in self.daemons:
            daemon.end()
        remove(self.base)
