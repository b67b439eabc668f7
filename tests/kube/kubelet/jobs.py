#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""In the machine of the tests: prints the jobs of the node's tided, a line each: name, target, active threads, cores,
note or reason."""
import http.client
import json
import socket


class Tided(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect("/run/tide/api.sock")


tided = Tided("tided")
tided.request("GET", "/v1/jobs")
for job in json.loads(tided.getresponse().read()):
    print(job["name"] or job["id"], job["target"], job["active"], job["cores"] or "-", job["note"] or job["reason"])
