# SPDX-License-Identifier: Apache-2.0
"""An HTTPS proxy in front of the API server, on which chosen requests go wrong.

It ends TLS with a certificate of the plane's authority. Who speaks with a client certificate is known
to the API server by the proxy's word for it (--requestheader-*), tokens are passed on.

    plane.proxy.rule = lambda request: refuse(429, retry_after=1) if request.is_watch else None

A rule returns None (pass it on) or one of the faults below. plane.proxy.cut() hangs up on everybody,
stop() and start() make the API server unreachable and reachable again, .requests are all so far.
"""
import contextlib
import dataclasses
import http.client
import http.server
import json
import socket
import struct
import threading
import time
import urllib.parse

from daemon import GUARD_S

HOP_BY_HOP = ("connection", "keep-alive", "transfer-encoding", "te", "upgrade", "content-length")


@dataclasses.dataclass
class Request:
    method: str
    path: str           # without the query
    query: dict         # {name: first value}
    headers: object
    body: bytes
    user: str           # of the client certificate, or ""
    at: float           # time.monotonic()
    status: int = 0     # once it is answered

    @property
    def is_watch(self):
        return self.query.get("watch") in ("true", "1")


# ---- faults: functions of the exchange ----

def status_object(code, reason, message):
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "code": code, "reason": reason, "message": message}


def refuse(code, reason="", retry_after=None):
    """Answers so itself; the API server hears nothing of it."""
    def fault(exchange):
        headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
        exchange.answer(code, status_object(code, reason, "refused by the fault proxy"), headers)
    return fault


def lose():
    """The API server does it, and the answer gets lost."""
    def fault(exchange):
        exchange.ask().read()
        exchange.hang_up()
    return fault


def cut(after=0):
    """Hangs up, without an end, when so many bytes of the answer's body have been passed on."""
    def fault(exchange):
        left = after

        def pump(data):
            nonlocal left
            exchange.send(data[:left])
            left -= len(data)
            if left <= 0:
                exchange.hang_up()
                return False
            return True
        exchange.forward(pump if after else lambda data: exchange.hang_up())
    return fault


def slow(seconds):
    """Everything of the answer comes so much later."""
    def fault(exchange):
        def pump(data):
            exchange.pause(seconds)
            return exchange.send(data)
        exchange.forward(pump)
    return fault


def hang():
    """Never answers; the connection stays."""
    return lambda exchange: exchange.pause(float("inf"))


def silent():
    """A watch that opens and then tells nothing, as of a server that has vanished."""
    return lambda exchange: exchange.forward(lambda data: exchange.pause(float("inf")))


def expire():
    """A watch that says 410 Gone at once: its resourceVersion is too old."""
    def fault(exchange):
        event = {"type": "ERROR", "object": status_object(410, "Expired", "too old resource version")}
        exchange.answer(200, event)
    return fault


# ---- the proxy ----

class Exchange(http.server.BaseHTTPRequestHandler):
    """A connection of a client, with one of its own to the API server."""
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self):
        self.request.do_handshake()
        super().setup()
        self.proxy, self.upstream = self.server.proxy, None
        certificate = self.connection.getpeercert() or {}
        names = [pair for part in certificate.get("subject", ()) for pair in part]
        self.user = next((value for name, value in names if name == "commonName"), "")
        self.groups = [value for name, value in names if name == "organizationName"]

    def finish(self):
        if self.upstream:
            self.upstream.close()
        with contextlib.suppress(OSError):
            super().finish()

    def serve(self):
        url = urllib.parse.urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        query = {name: values[0] for name, values in urllib.parse.parse_qs(url.query).items()}
        self.heard = Request(self.command, url.path, query, self.headers, body, self.user,
                             time.monotonic())
        self.proxy.requests.append(self.heard)
        fault = self.proxy.rule(self.heard)
        try:
            fault(self) if fault else self.forward()
        except (OSError, http.client.HTTPException):
            self.hang_up()  # as the API server has done

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = serve

    def ask(self):
        """Has the API server do it; http.client's answer."""
        if self.upstream is None:
            self.upstream = self.proxy.connect(by_token="Authorization" in self.headers)
        headers = [(name, value) for name, value in self.headers.items()
                   if name.lower() not in HOP_BY_HOP and not name.lower().startswith("x-remote-")]
        if self.user and "Authorization" not in self.headers:
            headers += [("X-Remote-User", self.user)] + [("X-Remote-Group", g) for g in self.groups]
        self.upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers:
            self.upstream.putheader(name, value)
        self.upstream.putheader("Content-Length", str(len(self.heard.body)))
        self.upstream.endheaders(self.heard.body)
        return self.upstream.getresponse()

    def forward(self, pump=None):
        """Passes on what the API server answers; @pump(data) does so in another way and returns
        whether there is to be more."""
        answer = self.ask()
        self.heard.status = answer.status
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        no_body = self.command == "HEAD" or answer.status in (204, 304)
        if not no_body:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        while data := answer.read1(1 << 16):
            if not (pump or self.send)(data):
                return
        answer.close()  # http.client does not take a body for read whose length was known, and refuses the next request
        if not no_body:
            self.wfile.write(b"0\r\n\r\n")

    def send(self, data):
        if data:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        return True

    def answer(self, code, body, headers=None):
        text = json.dumps(body).encode() + b"\n"
        self.heard.status = code
        self.send_response_only(code)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(text)),
                            **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    def pause(self, seconds):
        """Until so much later, or somebody hangs up."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.connection in self.server.open:
            time.sleep(0.01)
        return False

    def hang_up(self):
        """With a reset, as a machine does that has forgotten the connection."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.shutdown(socket.SHUT_RDWR)
        return False

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, proxy, place):
        self.proxy, self.open = proxy, set()
        super().__init__(place, Exchange)

    def get_request(self):
        client, peer = super().get_request()
        client.settimeout(2 * GUARD_S)
        # Its thread shakes hands, see setup(): who connects and says nothing holds nobody up.
        return self.proxy.server_context.wrap_socket(client, server_side=True,
                                                     do_handshake_on_connect=False), peer

    def process_request(self, request, client_address):
        self.open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request):
        self.open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request, client_address):
        pass  # clients hang up


class FaultProxy:
    """@ip: where it listens, on a port of its own."""

    def __init__(self, plane, ip=None):
        self.plane, self.ip = plane, ip or plane.address.ip
        self.port, self.server = plane.address.__class__(self.ip).port(), None
        self.url = f"https://{self.ip}:{self.port}"
        self.forget()
        self.server_context = plane.server_context(f"proxy-{self.ip}", (self.ip, "localhost"))

    def forget(self):
        """Faults and requests so far."""
        self.rule, self.requests = lambda request: None, []

    def connect(self, by_token):
        """To the API server. A certificate would be taken for more than a token."""
        client = (self.plane.client(token="the request's own") if by_token else
                  self.plane.client("fault-proxy"))
        return client.connection()

    def start(self):
        self.server = Server(self, (self.ip, self.port))
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def cut(self):
        for client in list(self.server.open):
            self.server.open.discard(client)
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def stop(self):
        """Nobody listens there any more, and all connections are gone."""
        if self.server:
            self.server.shutdown()
            self.server.server_close()
            self.cut()
            self.server = None
