# SPDX-License-Identifier: Apache-2.0
"""The hub's HTTPS as people and scripts use it, for tests; units are played by mosquitto's clients."""
import http.client
import json
import re
import ssl
import shutil
import subprocess
import time

import pytest

from daemon import GUARD_S, eventually
from hub import KWH, TOOLS, Serving

PASSWORD = "correct horse battery"
needs_tools = pytest.mark.skipif(not all(map(shutil.which, TOOLS)),
                                 reason="mosquitto-clients and openssl are not installed")
POLICY = """\
version: 1
org: unlp
zone: America/Argentina/Buenos_Aires
areas:
- {area: unlp/lab3, unit: lab3, name: "Laboratory 3"}
- {area: unlp/lab4, unit: lab4}
tariff:
  unit: EUR
  price: 0.25 EUR/kWh
rules:
- {area: unlp/lab3, cap: 1200 W, floor: 300 W, kind: breaker}
- {area: unlp, budget: 90 kWh/day}
"""


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


class Hub(Web):
    def policy(self, text=POLICY):
        path = self.folder / "policy.yaml"
        path.write_text(text)
        self.options = ("--policy", str(path))

    def state_of(self, unit, **more):
        """The unit says how it is."""
        message = {"v": 1, "online": True, "synced": True, "role": "unit", "version": "0.1.0", "boot": 7, "policy": 0}
        self.publish(unit, f"tide/1/{unit}/up/state", json.dumps({**message, **more}), "-r")

    def draws(self, unit, watts):
        uw = int(watts * 1_000_000)
        self.publish(unit, f"tide/1/{unit}/up/demand", json.dumps(
            {"v": 1, "points": [], "floor": 0, "draw": {"uw": uw, "low": uw, "high": uw, "basis": "measured"}}))

    def shrinks(self, unit, node, *jobs):
        """The unit tells whose jobs have fewer cores: (job, user, cores), …"""
        nodes = [{"node": node, "jobs": len(jobs), "cores": sum(cores for _, _, cores in jobs)}] if jobs else []
        self.publish(unit, f"tide/1/{unit}/up/shrunk", json.dumps(
            {"v": 1, "nodes": nodes, "jobs": [{"node": node, "job": job, "user": user, "cores": cores}
                                              for job, user, cores in jobs if user]}))

    def used(self, unit, kwh, point="area"):
        """The unit sends a record of the last quarter of an hour."""
        now, uj = int(time.time() * 1000), int(kwh * KWH)
        record = {"point": point, "seq": 1, "from": now - 900_000, "to": now, "mono": 10**9, "uj": uj, "low": uj,
                  "high": uj, "basis": "measured", "gap": 0}
        assert self.send(unit, {"v": 1, "boot": 7, "records": [record]})


@pytest.fixture
def hub(build_dir, tmp_path):
    if b"serve" not in subprocess.run([build_dir / "tide-hub", "--help"], capture_output=True).stdout:
        pytest.skip("tide-hub was built without libmosquitto")
    made = Hub(build_dir / "tide-hub", tmp_path)
    made.start()
    for name, role in (("ada", "administrator"), ("olga", "operator"), ("vera", "viewer")):
        made.add_user(name, role)
    made.policy()
    made.serve()
    yield made
    made.stop()


def areas(client):
    return {area["area"]: area for area in client.call("GET", "/v1/areas")[1]["areas"]}
