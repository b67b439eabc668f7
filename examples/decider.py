#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A policy of one's own, shortest remaining work first: examples/decider.py SOCKET, then tide sim --policy external:SOCKET"""
import json
import socketserver
import sys


class Decider(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            ask = json.loads(line)
            jobs = [job for job in ask["jobs"] if job["choice"]]
            plan = {job["id"]: job["min"] for job in jobs}
            free = ask["cores"] - sum(job["min"] if job["choice"] else job["equal"] for job in ask["jobs"])
            left = {j["user"]: j["user_cores"] if j["user_cores"] is not None else ask["cores"] for j in ask["jobs"]}
            for job in ask["jobs"]:
                left[job["user"]] -= job["min"] if job["choice"] else job["equal"]
            for job in sorted(jobs, key=lambda j: j["remaining_ns"] or float("inf")):
                more = max(0, min(free, left[job["user"]], job["max"] - job["min"]))
                plan[job["id"]] += more
                free, left[job["user"]] = free - more, left[job["user"]] - more
            answer = {"snapshot": ask["snapshot"], "plan": [{"job": i, "cores": n} for i, n in plan.items()]}
            self.wfile.write(json.dumps(answer).encode() + b"\n")


socketserver.ThreadingUnixStreamServer(sys.argv[1], Decider).serve_forever()
