# SPDX-License-Identifier: Apache-2.0
"""A peer of the agent: the daemon's side of agent.sock, as src/proto/proto.h says, for tests.

    with Daemon(directory) as daemon:
        process = subprocess.Popen(..., env={..., "TIDE_SOCKET": daemon.path})
        agent = daemon.wait_agent(process.pid)
        ack = agent.set(2)          # sends TARGET, waits for the ACK

One thread per connection receives, answers HELLO and HEARTBEAT, and keeps every message.
"""

import ctypes
import os
import socket
import threading
import time

MAGIC = 0x45444954
VERSION = 1
GUARD_S = 90 * int(os.environ.get("TIDE_TEST_SLOWNESS") or 1)  # a test that waits longer has found a hang

(HELLO, BACKEND, ACK, HEARTBEAT, LOCAL, WELCOME, TARGET, LEASE) = range(1, 9)
LATENCY = 12
FEATURE_RUNTIMES, FEATURE_LATENCY = 1, 2
ACK_DONE, ACK_LATER, ACK_STALE = range(3)
SOURCE_LIMIT, SOURCE_DAEMON, SOURCE_SIGNAL, SOURCE_API = range(4)

u16, u32, u64 = ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64


class Header(ctypes.Structure):
    _fields_ = [("magic", u32), ("version", u16), ("type", u16), ("size", u32), ("cookie", u32)]


def _message(name, number, *fields):
    """A message: a header and fields of (name, u32 | u64 | number of characters)."""
    layout = [("h", Header)]
    for field, kind in fields:
        layout.append((field, kind if isinstance(kind, type) else ctypes.c_char * kind))
    return type(name, (ctypes.Structure,), {"_fields_": layout, "TYPE": number})


Hello = _message("Hello", HELLO, ("pid", u32), ("signal", u32), ("cpus", u32), ("max", u32),
                 ("token", 40), ("job_id", 16), ("job_name", 64), ("comm", 32),
                 ("agent_version", 32))
Backend = _message("Backend", BACKEND, ("index", u32), ("malleable", u32), ("max_intra", u32),
                   ("max_inter", u32), ("target_intra", u32), ("target_inter", u32),
                   ("active_intra", u32), ("active_inter", u32), ("name", 32), ("version", 32),
                   ("note", 128))
Ack = _message("Ack", ACK, ("epoch", u64), ("generation", u64), ("status", u32), ("active", u32),
               ("sent_ns", u64), ("received_ns", u64), ("closure_end_ns", u64), ("placed_ns", u64),
               ("longest_ns", u64), ("surplus_cpu_ns", u64), ("lag_ns", u64))
Heartbeat = _message("Heartbeat", HEARTBEAT, ("epoch", u64), ("generation", u64), ("source", u32),
                     ("target", u32), ("active", u32), ("allowed_mcpu", u32), ("tasks", u64),
                     ("progress_done", u64), ("progress_total", u64), ("unit", 32))
Local = _message("Local", LOCAL, ("source", u32), ("intra", u32), ("inter", u32), ("pad", u32))
Welcome = _message("Welcome", WELCOME, ("epoch", u64), ("lease_ms", u32), ("heartbeat_ms", u32),
                   ("job_id", 16), ("job_name", 64))
Target = _message("Target", TARGET, ("epoch", u64), ("generation", u64), ("intra", u32),
                  ("inter", u32), ("sent_ns", u64))
Lease = _message("Lease", LEASE, ("epoch", u64))

Latency = _message("Latency", LATENCY, ("now_ns", u64), ("begun", u64), ("ended", u64),
                   ("most_in_flight", u32), ("pad", u32), ("bucket", u32 * 160))

_FROM_AGENT = {c.TYPE: c for c in (Hello, Backend, Ack, Heartbeat, Local, Latency)}


def wait_until(condition, what, guard_s=GUARD_S):
    """Polls until condition() is true and returns its value; fails after the guard."""
    end = time.monotonic() + guard_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"not within {guard_s} s: {what}"
        time.sleep(0.005)


class Agent:
    """One connection of an agent."""

    def __init__(self, daemon, conn):
        self.daemon, self.conn = daemon, conn
        self.messages = []  # (time, message), in order of arrival
        self.closed = False
        self.lease = True  # answer heartbeats
        self._changed = threading.Condition()
        threading.Thread(target=self._receive, daemon=True).start()

    # -- sending --

    def send(self, message, cookie=0):
        message.h = Header(MAGIC, VERSION, message.TYPE, ctypes.sizeof(message), cookie)
        self.send_raw(bytes(message))

    def send_raw(self, packet):
        self.conn.send(packet)

    def command(self, intra, inter=0, generation=None, epoch=None):
        """Sends a TARGET without waiting. Returns its generation."""
        if generation is None:
            generation = self.daemon.next_generation()
        if epoch is None:
            epoch = self.daemon.epoch
        self.send(Target(epoch=epoch, generation=generation, intra=intra, inter=inter,
                         sent_ns=time.monotonic_ns()), cookie=generation & 0xffffffff)
        return generation

    def set(self, intra, inter=0):
        """Sends a TARGET and returns its ACK, which must say that it is in place."""
        ack = self.wait_ack(self.command(intra, inter))
        assert ack.status == ACK_DONE, f"status {ack.status}"
        return ack

    def close(self):
        try:
            self.conn.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    # -- what came --

    def of(self, kind, since=0.0):
        with self._changed:
            return [m for t, m in self.messages if isinstance(m, kind) and t >= since]

    def wait(self, kind, accept=lambda m: True, since=0.0, guard_s=GUARD_S):
        """The first message of that kind that is accepted, already here or still to come."""
        end = time.monotonic() + guard_s
        with self._changed:
            while True:
                for t, m in self.messages:
                    if isinstance(m, kind) and t >= since and accept(m):
                        return m
                left = end - time.monotonic()
                assert left > 0, f"no {kind.__name__} within {guard_s} s (closed: {self.closed})"
                assert not self.closed, f"the agent hung up before a {kind.__name__}"
                self._changed.wait(left)

    def wait_ack(self, generation, guard_s=GUARD_S):
        return self.wait(Ack, lambda m: m.generation == generation, guard_s=guard_s)

    def wait_target(self, target, source=None, since=None, guard_s=GUARD_S):
        """The first HEARTBEAT from now on that reports this target."""
        since = time.monotonic() if since is None else since
        return self.wait(Heartbeat, lambda m: m.target == target and source in (None, m.source),
                         since=since, guard_s=guard_s)

    def wait_closed(self):
        wait_until(lambda: self.closed, "the agent hangs up")

    @property
    def backend(self):
        """The last description of the TensorFlow backend, or None."""
        found = [m for m in self.of(Backend) if m.name == b"tensorflow"]
        return found[-1] if found else None

    def wait_backend(self, accept=lambda b: b.max_intra > 0):
        return wait_until(lambda: self.backend and accept(self.backend) and self.backend,
                          "the backend describes itself")

    def _receive(self):
        while True:
            try:
                packet = self.conn.recv(2048)
            except OSError:
                packet = b""
            if not packet:
                break
            header = Header.from_buffer_copy(packet)
            kind = _FROM_AGENT[header.type]
            assert header.magic == MAGIC and header.version == VERSION
            assert header.size == len(packet) == ctypes.sizeof(kind)
            message = kind.from_buffer_copy(packet)
            with self._changed:
                self.messages.append((time.monotonic(), message))
                self._changed.notify_all()
            try:
                if isinstance(message, Hello):
                    self.daemon.greet(self)
                elif isinstance(message, Heartbeat) and self.lease:
                    self.send(Lease(epoch=self.daemon.epoch))
            except OSError:
                break
        with self._changed:
            self.closed = True
            self._changed.notify_all()
        self.conn.close()


class Daemon:
    """Listens as tided does. `welcome` False: accepts and says nothing."""

    def __init__(self, directory, epoch=1, lease_ms=1000, heartbeat_ms=100, features=0):
        self.path = os.path.join(str(directory), "agent.sock")
        self.epoch, self.lease_ms, self.heartbeat_ms = epoch, lease_ms, heartbeat_ms
        self.features = features  # in WELCOME's cookie
        self.agents = []
        self._generation = 0
        self._lock = threading.Lock()
        self.listen()

    def listen(self):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(self.path)
        self._socket.listen(64)
        threading.Thread(target=self._accept, args=(self._socket,), daemon=True).start()

    def next_generation(self):
        with self._lock:
            self._generation += 1
            return self._generation

    def greet(self, agent):
        agent.send(Welcome(epoch=self.epoch, lease_ms=self.lease_ms,
                           heartbeat_ms=self.heartbeat_ms, job_id=b"j1", job_name=b"test"),
                   cookie=self.features)

    def find_agent(self, pid, after=None):
        """The newest open connection whose HELLO names @pid, a newer one than @after; or None."""
        for agent in reversed(self.agents):
            if agent is after:
                break
            if not agent.closed and any(h.pid == pid for h in agent.of(Hello)):
                return agent
        return None

    def wait_agent(self, pid, after=None):
        """The same; waits for it."""
        return wait_until(lambda: self.find_agent(pid, after), f"process {pid} says hello")

    def stop(self):
        """Vanishes as a killed daemon does: nobody listens, every connection is closed."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._socket.close()
        os.unlink(self.path)
        for agent in self.agents:
            agent.close()

    def restart(self, epoch=None):
        self.epoch = self.epoch + 1 if epoch is None else epoch
        self._generation = 0
        self.listen()

    def _accept(self, listener):
        while True:
            try:
                conn, _ = listener.accept()
            except OSError:
                return
            self.agents.append(Agent(self, conn))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if os.path.exists(self.path):
            self.stop()
