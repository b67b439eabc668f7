# SPDX-License-Identifier: Apache-2.0
"""The hub's HTTPS as people and scripts use it, for tests."""
import http.client
import json
import re
import ssl
import subprocess

from daemon import GUARD_S, eventually
from hub import Serving

PASSWORD = "correct horse battery"


class Web(Serving):
    """A hub with its page."""

    def add_user(self, name, role, password=PASSWORD):
        done = subprocess.run([self.program, "user", "add", name, "--role", role, "--state", self.state],
                              input=password + "\n", capture_output=True, text=True, timeout=GUARD_S)
        assert done.returncode == 0, done.stderr

    def token(self, name, *more):
        code, out, err = self.run("user", "token", name, *more)
        assert code == 0, err
        return out.strip()

    def web_port(self):
        eventually(lambda: "serving https://" in self.said().rpartition("connected to")[0]
                   or "serving https://" in self.said())
        return int(re.findall(r"serving https://[^:]+:(\d+)/", self.said())[-1])

    def guest(self):
        return Client(self)

    def user(self, name, password=PASSWORD):
        """Somebody who has logged in as a browser does."""
        client = Client(self)
        status, answer = client.call("POST", "/v1/login", {"user": name, "password": password})
        assert status == 200, answer
        return client

    def script(self, name):
        return Client(self, token=self.token(name))


class Client:
    """Keeps the cookie, and sends the origin of the hub's own page."""

    def __init__(self, hub, token=None):
        self.port, self.token, self.cookie = hub.web_port(), token, None
        self.context = ssl.create_default_context(cafile=hub.state / "trust/ca.crt")
        self.origin = f"https://127.0.0.1:{self.port}"

    def connect(self, timeout=GUARD_S):
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout, context=self.context)

    def headers(self, more=None):
        headers = {} if self.token else {"Origin": self.origin}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        if self.cookie:
            headers["Cookie"] = self.cookie
        headers.update(more or {})
        return {name: value for name, value in headers.items() if value is not None}

    def raw(self, method, path, body=None, headers=None):
        """Status, headers and text."""
        connection = self.connect()
        try:
            connection.request(method, path, body, self.headers(headers))
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        cookie = answer.headers.get("Set-Cookie")
        if cookie:
            self.cookie = None if "Max-Age=0" in cookie else cookie.split(";")[0]
        return answer.status, answer.headers, text

    def call(self, method, path, body=None, headers=None):
        """Status and answer."""
        status, _, text = self.raw(method, path, None if body is None else json.dumps(body), headers)
        return status, json.loads(text)

    def stream(self, last=None):
        return Stream(self, last)


class Stream:
    """Server-sent events of the hub."""

    def __init__(self, client, last=None):
        self.connection = client.connect()
        self.connection.request("GET", "/v1/events", headers=client.headers({"Last-Event-ID": last}))
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200, self.answer.read()
        assert self.answer.headers["Content-Type"] == "text/event-stream"

    def next(self, *types):
        """(id, type, data) of the next event of one of these types; None at the end."""
        event = {}
        while True:
            line = self.answer.readline().decode()
            if not line:
                return None
            if line == "\n" and "event" in event and (not types or event["event"] in types):
                return event.get("id"), event["event"], json.loads(event["data"])
            if line == "\n":
                event = {}
            elif not line.startswith(":"):
                name, _, value = line.rstrip("\n").partition(": ")
                event[name] = value

    def close(self):
        self.connection.close()
