#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A policy of one's own: examples/decider.py SOCKET, then tide sim --policy external:SOCKET

Each user's jobs have together what the policy equal gives them. Each job keeps half of that, and the other half goes
core by core to the job that gains most speed with it for the work that it has left: short jobs end early, none starves.
"""
import json
import socketserver
import sys


def gain(job, cores):
    speed = job["speedup_permille"]
    if cores >= min(job["max"], len(speed)):
        return 0
    return (speed[cores] - speed[cores - 1]) / (job["remaining_ns"] + 1)


def divide(jobs):
    plan = {job["id"]: max(job["min"], job["equal"]) for job in jobs}
    known = [job for job in jobs if job["speedup_permille"] and job["remaining_ns"] is not None]
    free = sum(plan.values())
    for job in known:
        plan[job["id"]] = max(job["min"], job["equal"] // 2)
    free -= sum(plan.values())
    while free > 0 and known:
        best = max(known, key=lambda job: gain(job, plan[job["id"]]))
        if gain(best, plan[best["id"]]) <= 0:
            break
        plan[best["id"]] += 1
        free -= 1
    return plan


class Decider(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            ask = json.loads(line)
            users = {}
            for job in ask["jobs"]:
                if job["choice"]:
                    users.setdefault(job["user"], []).append(job)
            plan = [{"job": job, "cores": n} for jobs in users.values() for job, n in divide(jobs).items()]
            self.wfile.write(json.dumps({"snapshot": ask["snapshot"], "plan": plan}).encode() + b"\n")


socketserver.ThreadingUnixStreamServer(sys.argv[1], Decider).serve_forever()
