# SPDX-License-Identifier: Apache-2.0
"""The hub's events, as a page hears them: what was missed, floods, slow readers."""
import json
import re
import socket
import subprocess
import time

from daemon import GUARD_S, eventually
from hub_web import areas, needs_tools
from hub_web import hub  # noqa: F401 (a fixture)

pytestmark = needs_tools


def test_a_page_that_was_away_gets_what_it_missed(hub):  # noqa: F811
    hub.enrol("lab3")
    vera = hub.user("vera")
    stream = vera.stream()
    hub.state_of("lab3")
    first, kind, said = stream.next("state")
    assert (said["area"], said["state"]) == ("unlp/lab3", "connected")
    stream.close()
    hub.publish("lab3", "tide/1/lab3/up/event", json.dumps({"v": 1, "time": 5, "type": "gap", "text": "first"}))
    hub.publish("lab3", "tide/1/lab3/up/event", json.dumps({"v": 1, "time": 6, "type": "gap", "text": "second"}))
    eventually(lambda: any("second" in str(event) for event in heard_since(vera, first, 2)))
    texts = [data["text"] for _, kind, data in heard_since(vera, first, 2) if kind == "event"]
    assert texts == ["first", "second"]


def heard_since(client, last, count):
    """Up to @count events behind @last, without power."""
    stream = client.stream(last)
    stream.connection.sock.settimeout(3)
    heard = []
    try:
        while len(heard) < count:
            heard.append(stream.next("state", "event", "switch", "policy", "missed"))
    except (TimeoutError, socket.timeout):
        pass
    stream.close()
    return heard


def test_who_missed_events_is_told(hub):  # noqa: F811
    vera = hub.user("vera")
    for last in ("1.1", "nonsense", f"{2**32 - 1}.7"):
        stream = vera.stream(last)
        assert stream.next()[1] == "missed"
        stream.close()


def test_power_comes_once_a_second_and_a_stream_ends_with_its_session(hub):  # noqa: F811
    hub.enrol("lab3")
    hub.state_of("lab3")
    vera = hub.user("vera")
    stream = vera.stream()
    for watts in range(100, 140):
        hub.draws("lab3", watts)
    while True:
        said = {told["area"]: told["power"] for told in stream.next("power")[2]}
        if said.get("unlp/lab3") and said["unlp/lab3"]["mid_uw"] == 139_000_000:  # null: unknown yet
            break
    assert hub.run("user", "passwd", "vera")[0] == 3  # no password: nothing happens
    assert vera.call("POST", "/v1/logout")[0] == 200
    while stream.next() is not None:
        pass


def test_an_areas_long_state_reaches_open_pages(hub):  # noqa: F811
    hub.enrol("lab3")
    hub.state_of("lab3")
    vera, heard = hub.user("vera"), []
    stream = vera.stream()
    nodes = [{"node": f"{n:03}" + "x" * 60, "jobs": 1, "cores": 1} for n in range(200)]
    hub.publish("lab3", "tide/1/lab3/up/shrunk", json.dumps({"v": 1, "nodes": nodes, "jobs": []}))
    eventually(lambda: len(areas(vera)["unlp/lab3"]["shrunk"]) == len(nodes))
    time.sleep(2)  # states are told five times a second
    hub.publish("lab3", "tide/1/lab3/up/event", json.dumps({"v": 1, "time": 5, "type": "gap", "text": "after"}))
    while not heard or heard[-1][1] != "event":
        heard.append(stream.next("state", "event"))
    stream.close()
    assert [len(data["shrunk"]) for _, kind, data in heard if kind == "state"][-1:] == [len(nodes)]


class Slow:
    """A stream whose reader leaves what comes in the kernel's smallest buffer."""

    def __init__(self, client):
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain.connect(("127.0.0.1", client.port))
        self.socket = client.context.wrap_socket(plain, server_hostname="127.0.0.1")
        self.socket.sendall(f"GET /v1/events HTTP/1.1\r\nHost: x\r\nCookie: {client.cookie}\r\n\r\n".encode())
        self.socket.settimeout(GUARD_S)

    def read_until(self, text):
        """Everything up to the text."""
        heard = b""
        while text not in heard[-2 * len(text) - 70000:]:
            chunk = self.socket.recv(65536)
            assert chunk, f"hung up on after {len(heard)} bytes"
            heard += chunk
        return heard.decode()


def pour(hub, unit, leaf, messages):
    process = subprocess.Popen(hub.client("mosquitto_pub", unit, "-t", f"tide/1/{unit}/up/{leaf}", "-l"),
                               stdin=subprocess.PIPE, text=True)
    process.communicate("\n".join(json.dumps(message) for message in messages), timeout=GUARD_S)
    assert process.returncode == 0


def test_a_flood_of_states_is_told_as_the_newest_state_and_cuts_no_stream(hub):  # noqa: F811
    hub.enrol("lab3")
    slow = Slow(hub.user("vera"))
    message = {"v": 1, "online": True, "synced": True, "role": "unit", "version": "0.1.0", "boot": 7, "policy": 0,
               "switches": [{"name": f"{n:02}" + "x" * 60, "on": True, "known": True, "always_on": False,
                             "command": True} for n in range(32)]}
    began = time.monotonic()
    pour(hub, "lab3", "state", ({**message, "absent_s": n} for n in range(6000)))
    heard = slow.read_until(b'"absent_s":5999')
    assert heard.count("event: state") <= 5 * (time.monotonic() - began) + 2
    assert "missed" not in heard


def test_a_slow_reader_is_told_that_it_missed_some_and_keeps_its_stream(hub):  # noqa: F811
    hub.enrol("lab3")
    vera = hub.user("vera")
    slow = Slow(vera)
    # More than the kernel's buffers (4 MB) and the 4,096 events that are kept.
    pour(hub, "lab3", "event", ({"v": 1, "time": n, "type": "gap", "text": "x" * 180} for n in range(25000)))
    quick = vera.stream()
    hub.publish("lab3", "tide/1/lab3/up/event", json.dumps({"v": 1, "time": 6, "type": "gap", "text": "before"}))
    while quick.next("event")[2]["text"] != "before":
        pass
    quick.close()
    heard = slow.read_until(b"event: missed")
    hub.publish("lab3", "tide/1/lab3/up/event", json.dumps({"v": 1, "time": 7, "type": "gap", "text": "after"}))
    heard += slow.read_until(b'"text":"after"')
    heard = re.sub(r"\r\n[0-9A-Fa-f]+\r\n", "", heard.partition("\r\n\r\n")[2])  # without the marks of chunks
    whole = [event for event in heard.split("\n\n")[1:-1] if not event.startswith(":")]
    assert len(whole) > 1000 and all(re.fullmatch(r"(id: .*\n)?event: \w+\ndata: {.*}", event) for event in whole)
