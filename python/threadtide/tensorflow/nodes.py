# SPDX-License-Identifier: Apache-2.0
"""Links to the control ports of a training's nodes (tide-tfnode): which are there, and in what
state.

One background thread serves all links of a chief; no call here ever waits for a node::

    links = NodeLinks()
    links.add("worker", 3, "10.0.0.7", 2223)
    for event in links.events(timeout=0.5):
        ...  # Event(kind="ready", role="worker", index=3, ...)
    links.set_threads("worker", 3, 2)
    links.release("worker", 3)

TensorFlow is not imported here.
"""

import collections
import errno
import json
import logging
import queue
import selectors
import socket
import threading
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

_CONNECT_S = 2.0  # one try; an address that nobody has answers nothing at all
_RETRY_S = (0.02, 0.5)  # first and longest pause between two tries
_SILENCE_S = 15.0  # a node repeats its state every 5 s
_UNREACHABLE_S = 5  # its kernel, which answers however busy the node is, has not
_COMMAND_S = 5.0  # the node acknowledges threads within 2 s
_IDLE_S = 60.0
_LATE_S = 1.0
_LINE_MAX = 4096
_HEAD_MAX = 8192

Key = Tuple[str, int]  # role and index


class State(NamedTuple):
    """The state that a node told last."""

    state: str  # "starting", "ready", "draining"
    threads: int  # active ones that are in place; 0: none yet
    max: int
    port: int  # TensorFlow's
    tensorflow: str  # its version


class Event(NamedTuple):
    """Something happened to a node. `kind`:

    "up"        its control port answers
    "ready"     TensorFlow listens there
    "draining"  it was asked to end, and waits to be released
    "threads"   `threads` active threads are in place
    "refused"   it did not do as it was told; `reason` says why
    "released"  it has ended as it was told; the link's last event
    "lost"      it has ended without being told to, or is cut off; the link's last event
    """

    kind: str
    role: str
    index: int
    threads: int = 0
    port: int = 0
    reason: str = ""


# ---- the two ends of HTTP that are needed, as pure readers of bytes ----


class WatchReader:
    """Takes a watch's answer in pieces, gives its lines. ValueError for anything else."""

    def __init__(self) -> None:
        self._bytes = b""
        self._line = b""
        self._in_body = False
        self._chunk: Optional[int] = None  # bytes of the present one, its CR LF included

    def feed(self, data: bytes) -> List[dict]:
        self._bytes += data
        if not self._in_body and not self._take_head():
            return []
        return self._take_chunks()

    def _take_head(self) -> bool:
        head, blank, rest = self._bytes.partition(b"\r\n\r\n")
        if not blank:
            if len(head) > _HEAD_MAX:
                raise ValueError("its answer has no end")
            return False
        status = head.split(b"\r\n", 1)[0].split(b" ")
        if len(status) < 2 or not status[0].startswith(b"HTTP/1.") or status[1] != b"200":
            raise ValueError(f"it answered {head[:60]!r}")
        if b"transfer-encoding: chunked" not in head.lower():
            raise ValueError("its answer is no watch")
        self._in_body, self._bytes = True, rest
        return True

    def _take_chunks(self) -> List[dict]:
        lines: List[dict] = []
        while True:
            if self._chunk is None:
                size, end, rest = self._bytes.partition(b"\r\n")
                if not end:
                    if len(size) > 16:
                        raise ValueError("a chunk without a size")
                    return lines
                self._chunk, self._bytes = int(size, 16) + 2, rest
                if not 2 < self._chunk <= _LINE_MAX:
                    raise ValueError("a chunk of an impossible size")
            if len(self._bytes) < self._chunk:
                return lines
            self._line += self._bytes[: self._chunk - 2]
            self._bytes, self._chunk = self._bytes[self._chunk :], None
            *whole, self._line = self._line.split(b"\n")
            if len(self._line) > _LINE_MAX:
                raise ValueError("a line without an end")
            lines += [_object(line) for line in whole]


def _object(text: bytes) -> dict:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("no JSON object")
    return value


def _answer(data: bytes) -> Tuple[int, dict]:
    """Status and body of a whole answer; ValueError if it is none."""
    head, blank, body = data.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)
    if not blank or not head.startswith(b"HTTP/1.") or len(status) < 2:
        raise ValueError("the answer was cut off")
    return int(status[1]), _object(body)


def _request(method: str, path: str, address: str, body: str = "") -> bytes:
    """A request to the node at `address`, an IP address: a node refuses names as its Host."""
    host = f"[{address}]" if ":" in address else address
    return (
        f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}"
    ).encode("ascii", "replace")


# ---- connections, all of them the background thread's ----


class _Connection:
    """A non-blocking connection with a request to send and a deadline."""

    def __init__(self, links: "NodeLinks", link: "_Link", request: bytes, limit_s: float):
        self.links, self.link, self.out = links, link, request
        self.deadline = time.monotonic() + limit_s
        family = socket.AF_INET6 if ":" in link.address else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in (
                (socket.TCP_KEEPIDLE, 1),
                (socket.TCP_KEEPINTVL, 1),
                (socket.TCP_USER_TIMEOUT, 1000 * _UNREACHABLE_S),
            ):
                self.socket.setsockopt(socket.IPPROTO_TCP, option, value)
            code = self.socket.connect_ex((link.address, link.port))
            if code not in (0, errno.EINPROGRESS):
                raise OSError(code, "connect")
            links._selector.register(
                self.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, self.serve
            )
        except BaseException:
            self.socket.close()
            raise

    def close(self) -> None:
        if self.socket.fileno() >= 0:
            self.links._selector.unregister(self.socket)
            self.socket.close()

    def serve(self, ready: int) -> None:
        try:
            if ready & selectors.EVENT_WRITE:
                self.out = self.out[self.socket.send(self.out) :]
                if not self.out:
                    self.links._selector.modify(self.socket, selectors.EVENT_READ, self.serve)
            if ready & selectors.EVENT_READ:
                data = self.socket.recv(65536)
                self.received(data)
        except BlockingIOError:
            pass
        except (OSError, ValueError, TypeError, RecursionError) as error:  # whatever it sends
            self.failed(str(error) or type(error).__name__)

    def received(self, data: bytes) -> None:
        raise NotImplementedError

    def failed(self, reason: str) -> None:
        raise NotImplementedError


class _Watch(_Connection):
    def __init__(self, links: "NodeLinks", link: "_Link"):
        self.reader = WatchReader()
        super().__init__(links, link, _request("GET", "/v1/watch", link.address), _CONNECT_S)

    def received(self, data: bytes) -> None:
        if not data:
            self.failed("it hung up")
            return
        for line in self.reader.feed(data):
            self.deadline = time.monotonic() + _SILENCE_S
            self.link.told(line)

    def failed(self, reason: str) -> None:
        self.close()
        self.link.cut(reason)


class _Command(_Connection):
    """A POST. `done` is given its status and body; 0 and a reason when there is no answer."""

    def __init__(self, links: "NodeLinks", link: "_Link", path: str, body: str, done: Callable):
        self.data, self.done = b"", done
        super().__init__(links, link, _request("POST", path, link.address, body), _COMMAND_S)
        link.commands.append(self)

    def received(self, data: bytes) -> None:
        self.data += data
        if len(self.data) > _HEAD_MAX:
            raise ValueError("its answer has no end")
        if not data:
            status, body = _answer(self.data)
            self._end(status, body)

    def failed(self, reason: str) -> None:
        self._end(0, {"error": reason})

    def _end(self, status: int, body: dict) -> None:
        self.close()
        if self in self.link.commands:
            self.link.commands.remove(self)
        self.done(status, body)


class _Link:
    """One node, from add() until it is gone."""

    def __init__(self, links: "NodeLinks", role: str, index: int, host: str, port: int):
        self.links, self.role, self.index, self.host, self.port = links, role, index, host, port
        self.address = _numeric(host)
        self.state: Optional[State] = None
        self.released = False
        self.watch: Optional[_Watch] = None
        self.commands: List[_Command] = []
        self.threads: Optional[int] = None  # as ordered last
        self.ordering: Optional[int] = None  # the node is being told
        self.again = float("inf")  # when it is told again, since it has not answered
        self.gone = False
        self.pause = _RETRY_S[0]
        self.retry = 0.0  # when to connect

    def emit(self, kind: str, reason: str = "") -> None:
        threads, port = (self.state.threads, self.state.port) if self.state else (0, 0)
        self.links._emit(Event(kind, self.role, self.index, threads, port, reason))

    def connect(self) -> None:
        try:
            self.watch = _Watch(self.links, self)
        except OSError:
            self.postpone()

    def postpone(self) -> None:
        self.watch = None
        self.retry = time.monotonic() + self.pause
        self.pause = min(2 * self.pause, _RETRY_S[1])

    def told(self, line: dict) -> None:
        before = self.state
        if line.get("role") != self.role or line.get("index") != self.index:
            raise ValueError("another node has its address now")
        self.state = State(
            str(line.get("state", "")),
            int(line.get("threads", 0)),
            int(line.get("max", 0)),
            int(line.get("port", 0)),
            str(line.get("tensorflow", "")),
        )
        if before is None:
            self.emit("up")
            if self.released:
                self.release()
            elif self.threads is not None:
                self.set_threads(self.threads)
        if self.state.state != (before.state if before else "starting"):
            if self.state.state in ("ready", "draining"):
                self.emit(self.state.state)
        if self.state.threads != (before.threads if before else 0):
            self.emit("threads")

    def cut(self, reason: str) -> None:
        """The watch has ended. A node that was there once is gone for good."""
        if self.state is None:
            self.postpone()
            return
        self.links._forget(self)
        self.emit("released" if self.released else "lost", reason)

    def set_threads(self, threads: int) -> None:
        """Orders @threads active threads (0: as its own limit allows). One order at a time is on
        its way: of two the older one might arrive last."""
        self.threads, self.again = threads, float("inf")
        if self.state is None or self.ordering is not None:
            return  # it is told when it is there, or has answered
        self.ordering = threads
        self.command("/v1/threads", json.dumps({"threads": threads}), self._threads_done)

    def _threads_done(self, status: int, body: dict) -> None:
        ordered, self.ordering = self.ordering, None
        if status == 200 and self.state:
            self.state = self.state._replace(threads=int(body.get("threads", 0)))
            self.emit("threads")
        elif status == 0:
            self.again = time.monotonic() + _RETRY_S[1]
            return
        elif status != 202:  # then the watch says when they are in place
            self.emit("refused", f"threads: {body.get('error', status)}")
        if self.threads is not None and self.threads != ordered:
            self.set_threads(self.threads)

    def release(self) -> None:
        self.released = True
        if self.state is not None:
            self.command("/v1/release", "", self._release_done)

    def _release_done(self, status: int, body: dict) -> None:
        if status not in (0, 200):
            self.released = False
            self.emit("refused", f"release: {body.get('error', status)}")

    def command(self, path: str, body: str, done: Callable) -> None:
        try:
            _Command(self.links, self, path, body, done)
        except OSError as error:
            done(0, {"error": str(error)})

    def connections(self) -> List[_Connection]:
        return [*self.commands, *([self.watch] if self.watch else [])]

    def close(self) -> None:
        for connection in self.connections():
            connection.close()
        self.commands.clear()


def _numeric(host: str) -> Optional[str]:
    """The address if it is one; None: a name, which has to be looked up."""
    try:
        found = socket.getaddrinfo(host, 0, flags=socket.AI_NUMERICHOST)
    except OSError:
        return "127.0.0.1" if host == "localhost" else None
    return found[0][4][0]


class NodeLinks:
    """Links to all nodes of a chief. Any thread may call; nothing here waits, but events()."""

    def __init__(self, on_event: Optional[Callable[[Event], None]] = None):
        """With `on_event` the background thread calls it for every event, and it must return soon;
        else events() hands them out.
        """
        self._on_event = on_event
        self._events: "queue.SimpleQueue[Event]" = queue.SimpleQueue()
        self._orders: "collections.deque[Callable[[], None]]" = collections.deque()
        self._links: Dict[Key, _Link] = {}  # the background thread's alone
        self._states: Dict[Key, State] = {}  # replaced, never changed: any thread reads it
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = socket.socketpair()
        for end in (self._wake_read, self._wake_write):
            end.setblocking(False)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="tide-nodes", daemon=True)
        self._thread.start()

    # -- any thread --

    def add(self, role: str, index: int, host: str, port: int) -> None:
        """Begins to look for the node at its control port; it need not listen yet. Of one that is
        known already nothing changes.
        """
        self._order(lambda: self._add(role, index, host, port))

    def remove(self, role: str, index: int) -> None:
        """Forgets the node, without an event."""
        self._order(lambda: self._forget(self._links.get((role, index))))

    def set_threads(self, role: str, index: int, threads: int) -> None:
        """Orders active threads (0: what the node's own limit allows); "threads" or "refused"
        follows. A node that is not there yet is told when it is.
        """
        self._order(lambda: self._with((role, index), lambda link: link.set_threads(threads)))

    def release(self, role: str, index: int) -> None:
        """Tells the node to end, when it is there; "released" follows when it has."""
        self._order(lambda: self._with((role, index), lambda link: link.release()))

    def disconnect(self, host: str, port: int) -> None:
        """Has all nodes end their connections to an address: whose machine is gone."""
        body = json.dumps({"host": host, "port": port})

        def tell() -> None:
            for link in list(self._links.values()):
                if link.state is not None:
                    link.command("/v1/disconnect", body, lambda status, answer: None)

        self._order(tell)

    def states(self) -> Dict[Key, State]:
        """The State of each node that is there, by (role, index). Not to be changed."""
        return self._states

    def events(self, timeout: Optional[float] = 0) -> List[Event]:
        """All events since the last call; waits up to `timeout` seconds for the first (None: for
        ever).
        """
        found: List[Event] = []
        try:
            found.append(self._events.get(timeout != 0, timeout or None))
            while True:
                found.append(self._events.get_nowait())
        except queue.Empty:
            return found

    def close(self) -> None:
        """Ends the thread and all connections. Tells no node anything."""
        if self._thread.is_alive():
            self._order(self._stop)
            if threading.current_thread() is not self._thread:
                self._thread.join()

    def __enter__(self) -> "NodeLinks":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    # -- the background thread --

    def _order(self, order: Callable[[], None]) -> None:
        self._orders.append(order)
        try:
            self._wake_write.send(b"\0")
        except OSError:  # full: it is awake; closed: nobody is there any more
            pass

    def _with(self, key: Key, order: Callable[[_Link], None]) -> None:
        link = self._links.get(key)
        if link is not None:
            order(link)

    def _add(self, role: str, index: int, host: str, port: int) -> None:
        if (role, index) in self._links:
            return
        link = self._links[role, index] = _Link(self, role, index, host, port)
        if link.address is None:
            link.retry = float("inf")
            threading.Thread(target=self._resolve, args=(link,), daemon=True,
                             name=f"tide-resolve-{role}-{index}").start()

    def _resolve(self, link: _Link) -> None:
        """A thread of its own: a name server may take its time."""
        while not (self._closed or link.gone) and link.address is None:
            try:
                link.address = socket.getaddrinfo(link.host, 0)[0][4][0]
            except OSError:
                time.sleep(_RETRY_S[1])
        self._order(lambda: setattr(link, "retry", 0.0))

    def _forget(self, link: Optional[_Link]) -> None:
        if link is not None and self._links.get((link.role, link.index)) is link:
            del self._links[link.role, link.index]
            link.gone = True
            link.close()

    def _emit(self, event: Event) -> None:
        # The table first: who hears of an event finds its state there.
        self._states = {key: link.state for key, link in self._links.items() if link.state}
        if not self._on_event:
            self._events.put(event)
            return
        try:
            self._on_event(event)
        except Exception:  # the caller's mistake must not cut all links
            logging.getLogger(__name__).exception("on_event failed for %s", event)

    def _stop(self) -> None:
        self._closed = True

    def _due(self) -> float:
        """When _tick() has something to do."""
        due = [time.monotonic() + _IDLE_S]
        for link in self._links.values():
            due += [link.retry if not link.watch else link.watch.deadline, link.again]
            due += [command.deadline for command in link.commands]
        return min(due)

    def _tick(self, now: float, late: float) -> None:
        """`late`: for how long nobody looked, since this machine or process stood still. A node's
        silence does not count then: it may have stood still as well.
        """
        for link in list(self._links.values()):
            for connection in link.connections():
                if late > _LATE_S:
                    connection.deadline = now + _SILENCE_S
                if now >= connection.deadline:
                    connection.failed("it says nothing")
            if not link.watch and now >= link.retry and link is self._links.get(
                (link.role, link.index)
            ):
                link.connect()
            if now >= link.again and link.threads is not None:
                link.set_threads(link.threads)

    def _run(self) -> None:
        try:
            while not self._closed:
                due = self._due()
                ready_now = self._selector.select(max(0.0, due - time.monotonic()))
                now = time.monotonic()  # the only one: it may stand still at any moment
                for key, ready in ready_now:
                    if key.data is not None:
                        # One that was ended by an event before this one has no socket any more.
                        if key.fileobj.fileno() >= 0:
                            key.data(ready)
                    else:
                        self._drain()
                while self._orders:
                    self._orders.popleft()()
                self._tick(now, now - due)
        finally:
            for link in list(self._links.values()):
                link.close()
            self._selector.close()
            self._wake_read.close()
            self._wake_write.close()

    def _drain(self) -> None:
        try:
            while self._wake_read.recv(4096):
                pass
        except BlockingIOError:
            pass
