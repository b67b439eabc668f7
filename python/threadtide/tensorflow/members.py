# SPDX-License-Identifier: Apache-2.0
"""The members of the cluster, which the controller or a file names.

On Kubernetes TIDE_CONTROLLER names the controller: one thread posts the training's report every
half a second, and when a node has changed, and gets the members back. Elsewhere TIDE_CLUSTER names
a file with the members, which is read when it changes. While neither can be read the last members
stay, and the training goes on.
"""

import base64
import http.client
import json
import os
import ssl
import threading
import time
import urllib.parse
from typing import NamedTuple

REPORT_S = 0.5
NEWS_S = 0.1  # between two reports at least; the controller refuses more
FILE_S = 0.05
TIMEOUT_S = 5
MAX_BYTES = 1 << 20
MAX_NODES = 4096
STALE_S = 30  # after which a replica knows that another leads: its lease ends sooner
REPLICAS_TRIED = 6  # connections until the replica that leads has answered


def address(host, port):
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Member(NamedTuple):
    role: str  # "ps" or "worker"
    index: int  # never used a second time
    host: str
    port: int
    control_port: int
    leave: bool = False
    threads: int = 0  # 0: the node follows its container's limit

    @property
    def address(self):
        """The address of TensorFlow's port: "host:port"."""
        return address(self.host, self.port)


class Members(NamedTuple):
    generation: int = 0
    mode: str = ""
    slots: int = 0
    suspend: bool = False
    nodes: tuple = ()


def _number(value, low, high, what):
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{what} must be a number from {low} to {high}, not {value!r}")
    return value


def parse(found):
    """Members from what json.loads() gave; ValueError says what is wrong with it."""
    if not isinstance(found, dict):
        raise ValueError("members must be an object")
    nodes = []
    for role in ("ps", "worker"):
        listed = found.get(role, [])
        if not isinstance(listed, list) or len(listed) > MAX_NODES:
            raise ValueError(f"{role} must be a list of at most {MAX_NODES} nodes")
        for node in listed:
            if not isinstance(node, dict) or not isinstance(node.get("host"), str):
                raise ValueError(f"a {role} must be an object with a host")
            nodes.append(Member(
                role, _number(node.get("index"), 0, 2**31 - 1, f"{role}: index"), node["host"],
                _number(node.get("port", 2222), 1, 65535, f"{role}: port"),
                _number(node.get("control_port", 2223), 1, 65535, f"{role}: control_port"),
                bool(node.get("leave", False)),
                _number(node.get("threads", 0), 0, 1 << 16, f"{role}: threads")))
    if len({(n.role, n.index) for n in nodes}) != len(nodes):
        raise ValueError("an index is listed twice")
    mode = found.get("mode", "")
    if mode not in ("", "sync", "async"):
        raise ValueError(f"mode must be sync or async, not {mode!r}")
    return Members(_number(found.get("generation", 0), 0, 2**63 - 1, "generation"), mode,
                   _number(found.get("slots", 0), 0, 4096, "slots"),
                   bool(found.get("suspend", False)), tuple(nodes))


class File:
    """TIDE_CLUSTER: read when its time, size or inode changes."""

    interval_s = FILE_S

    def __init__(self, path):
        self._path, self._seen = path, None

    def exchange(self, _report):
        """The members if they have changed, else None."""
        status = os.stat(self._path)
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        if stamp == self._seen:
            return None
        with open(self._path, encoding="utf-8") as file:
            members = parse(json.loads(file.read(MAX_BYTES)))
        self._seen = stamp
        return members


def _namespace_of(token):
    """The namespace that a projected token was made for, which is where the pod runs."""
    try:
        claims = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        return claims["kubernetes.io"]["namespace"]
    except (IndexError, ValueError, KeyError, TypeError):
        raise ValueError("the token names no namespace: set TIDE_NAMESPACE") from None


class Controller:
    """TIDE_CONTROLLER: an HTTPS request for each report. The connection is kept, since its
    handshake costs more than the report; the token is read anew each time. A replica that does not
    lead answers 503 and hangs up: the next connection may reach the one that leads."""

    interval_s = REPORT_S

    def __init__(self, url, ca, token_file, namespace, job):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "https" or not parts.hostname:
            raise ValueError(f"TIDE_CONTROLLER must be https://HOST[:PORT], not {url}")
        self._host, self._port = parts.hostname, parts.port or 443
        self._prefix = parts.path.rstrip("/")
        self._ca, self._token_file, self._namespace, self._job = ca, token_file, namespace, job
        self._connection = None
        self._newest, self._told = 0, 0.0  # generation of the members, and when it was told last

    def exchange(self, report):
        """Posts @report; the members that the controller wants, or None."""
        with open(self._token_file, encoding="utf-8") as file:  # the kubelet renews it
            token = file.read(1 << 16).strip()
        namespace = self._namespace or _namespace_of(token)
        path = f"{self._prefix}/v1/jobs/{namespace}/{self._job}/report"
        for _ in range(REPLICAS_TRIED):
            status, body = self._post(path, json.dumps(report), token)
            if status != 503:
                break
        if status != 200:
            raise OSError(f"the controller answers {status}: {body[:200]!r}")
        members = parse(json.loads(body).get("members"))
        now = time.monotonic()
        if members.generation < self._newest and now - self._told < STALE_S:
            return None
        self._newest, self._told = members.generation, now
        return members

    def _post(self, path, body, token):
        kept = self._connection is not None
        try:
            return self._ask(path, body, token)
        except (OSError, http.client.HTTPException):
            if not kept:
                raise
            return self._ask(path, body, token)  # it had hung up on the connection before

    def _ask(self, path, body, token):
        """(status, body). The connection is kept only after an answer that was complete."""
        connection, self._connection = self._connection, None
        if connection is None:
            connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=TIMEOUT_S,
                context=ssl.create_default_context(cafile=self._ca))
        try:
            connection.request("POST", path, body, {
                "Authorization": f"Bearer {token}", "Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read(MAX_BYTES)
            if answer.status == 200 and not answer.will_close and answer.isclosed():
                self._connection = connection
            return answer.status, text
        finally:
            if self._connection is None:
                connection.close()


def from_environment(environ=os.environ):
    """The source that the environment names; ValueError when it names none."""
    if environ.get("TIDE_CONTROLLER"):
        return Controller(environ["TIDE_CONTROLLER"], environ.get("TIDE_CONTROLLER_CA"),
                          environ.get("TIDE_TOKEN_FILE", "/var/run/threadtide/token"),
                          environ.get("TIDE_NAMESPACE", ""), environ.get("TIDE_JOB", ""))
    if environ.get("TIDE_CLUSTER"):
        return File(environ["TIDE_CLUSTER"])
    raise ValueError("neither TIDE_CONTROLLER nor TIDE_CLUSTER is set: on Kubernetes the controller "
                     "sets the first; elsewhere see threadtide.tensorflow.LocalCluster")


class Channel:
    """A thread that sends the report and gets the members. It logs a failure once and tries
    again."""

    def __init__(self, source, report, on_members, log):
        self._source, self._report = source, report
        self._on_members, self._log = on_members, log
        self._stop, self._news = threading.Event(), threading.Event()
        self._failing = ""
        self._thread = threading.Thread(target=self._run, name="tide-members", daemon=True)
        self._thread.start()

    def _run(self):
        while not self._stop.is_set():
            begin = time.monotonic()
            self._once()
            self._stop.wait(min(NEWS_S, self._source.interval_s))
            self._news.wait(max(0.0, self._source.interval_s - (time.monotonic() - begin)))
            self._news.clear()

    def _once(self):
        try:
            members = self._source.exchange(self._report())
        except (OSError, ValueError, KeyError, AttributeError, http.client.HTTPException) as error:
            if type(error).__name__ != self._failing:
                self._failing = type(error).__name__
                self._log(f"members: {error}; the training goes on with those it has")
            return
        if self._failing:
            self._failing = ""
            self._log("members: they can be read again")
        if members is not None:
            self._on_members(members)

    def tell(self):
        """Sends the next report at once: a node has come, left or changed its state."""
        self._news.set()

    def close(self):
        """Ends the thread, and sends the last report, which says whether the training has
        finished."""
        self._stop.set()
        self._news.set()
        self._thread.join(TIMEOUT_S + 1)
        self._once()
