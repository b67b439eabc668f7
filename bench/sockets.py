#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cost for a server when its requests are read from its sockets (`tide run --sockets`): processor time of a request.

    sockets.py [--pairs 20] [--seconds 2]

Two servers of tests/component/sockets/serve.py (asyncio, HTTP/1.1) under one tided, both with a promise, one of them with
--sockets. A client asks one of them after the other, on one connection each, as fast as answers come, in turn; nobody else
does anything. A figure is the server's processor time of a slice by its requests.
"""

import argparse
import pathlib
import socket
import subprocess
import time

import harness

SERVE = harness.ROOT / "tests/component/sockets/serve.py"
SIDES = {"not read": (), "read": ("--sockets",)}
ASK = b"GET /0 HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n"
END = b"0\r\n\r\n"  # of an answer in chunks
WARM_S = 3


class Server:
    def __init__(self, bench, name, options):
        self.process = subprocess.Popen(
            [harness.TIDE, "run", "--name", name, "--slo", "p99=100ms", *options, "--", harness.PYTHON, SERVE, "asyncio"],
            env=bench.tide_env, stdout=subprocess.PIPE, text=True)
        self.peer = socket.create_connection(("127.0.0.1", int(self.process.stdout.readline().split()[1])))

    def cpu_ns(self):
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)

    def us_of_a_request(self, seconds):
        before, end, n = self.cpu_ns(), time.monotonic() + seconds, 0
        while time.monotonic() < end:
            self.peer.sendall(ASK)
            answer = b""
            while not answer.endswith(END):
                answer += self.peer.recv(4096)
            n += 1
        return (self.cpu_ns() - before) / n / 1000

    def end(self):
        self.process.kill()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=2)
    options = parser.parse_args()
    found = {side: [] for side in SIDES}
    with harness.Bench() as bench:
        servers = {side: Server(bench, side.replace(" ", "-"), options_) for side, options_ in SIDES.items()}
        for server in servers.values():
            server.us_of_a_request(WARM_S)
        for i in range(options.pairs):
            for side in list(SIDES)[::1 if i % 2 == 0 else -1]:
                found[side].append(servers[side].us_of_a_request(options.seconds))
            print({side: round(values[-1], 2) for side, values in found.items()}, flush=True)
        read = bench.cli("explain", "read")
        assert "estimated from its sockets" in read and "estimated" not in bench.cli("explain", "not-read"), read
        for server in servers.values():
            server.end()
    more = harness.ratio_stats([b - a for a, b in zip(*found.values())])
    ratio = harness.ratio_stats([a / b for a, b in zip(*found.values())])
    rows = [{"what": "processor time of a request of a server with asyncio, µs", "not read": round(harness.quantile(found["not read"], 0.5), 2),
             "more when read": round(more["ratio"], 2), "95 % low": round(more["low"], 2), "95 % high": round(more["high"], 2),
             "requests a second, read / not read": round(ratio["ratio"], 3), "pairs": more["repeats"]}]
    harness.save("sockets", rows, [{side.replace(" ", "_"): [round(v, 3) for v in values] for side, values in found.items()}])


if __name__ == "__main__":
    main()
