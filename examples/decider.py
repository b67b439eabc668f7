#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A policy of one's own: examples/decider.py SOCKET, then tide sim --policy external:SOCKET

Each user's jobs have together what the policy equal gives them. Each job keeps half of that; the other half goes
core by core where it adds most speed for the work that is left: short jobs end early, none starves.
"""
import json
import socketserver
import sys


def divide(jobs):
    known = [job for job in jobs if job["remaining_ns"] and job["speedup_permille"]]
    plan = {job["id"]: max(job["min"], job["equal"] // 2 if job in known else job["equal"]) for job in jobs}
    free = sum(max(job["min"], job["equal"]) for job in jobs) - sum(plan.values())
    gains = sorted((((job["speedup_permille"][n] - job["speedup_permille"][n - 1]) / job["remaining_ns"], job["id"])
                    for job in known for n in range(plan[job["id"]], min(job["max"], len(job["speedup_permille"])))), reverse=True)
    for _, job in gains[:free]:
        plan[job] += 1
    return [{"job": job, "cores": cores} for job, cores in plan.items()]


class Decider(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            ask, plan = json.loads(line), []
            for user in {job["user"] for job in ask["jobs"]}:
                plan += divide([job for job in ask["jobs"] if job["choice"] and job["user"] == user])
            self.wfile.write(json.dumps({"snapshot": ask["snapshot"], "plan": plan}).encode() + b"\n")


socketserver.ThreadingUnixStreamServer(sys.argv[1], Decider).serve_forever()
