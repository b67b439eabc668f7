#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tide-kube on a large simulated cluster: memory, processor time and requests, steady and growing.

API server, etcd, scheduler and controller manager are the real ones; nodes and pods are KWOK's. Each
training has a chief that reports every half a second over the real channel, with its pod's token. On
760 of 1,000 nodes every training has 15 workers; then the other 240 nodes come, each may have 20, and
grows: that is measured, with the requests that it takes, and afterwards a time in which nothing changes.
"""

import argparse
import re
import sys
import time

import harness

sys.path[:0] = [str(harness.ROOT / "tests" / name) for name in ("component", "kube")]

import control_plane  # noqa: E402
import controller  # noqa: E402
import kwok  # noqa: E402

NODES, JOBS, OTHERS = 1000, 200, 600  # with 22 pods of each job: 5,000
CORES = 5                             # of a node
EARLY_WORKERS, WORKERS = 15, 20       # of a job, at most
EARLY = 0.76                          # of the nodes, at first
SPACES = 10
RATE_GOAL, MEMORY_GOAL_MIB = 20, 100
CALM_S = 10
# Leases of simulated nodes are 100 requests a second otherwise, on the same two cores.
NODE_LEASE_S = 600
FLAGS = {"kube-controller-manager": (f"--node-monitor-grace-period={NODE_LEASE_S}s",)}


class Reporter(controller.Chief):
    """A chief whose training is the faster the more workers it has, whatever this machine is doing:
    it counts no examples, which would be timed here, but says its rate."""
    every_s = 0.5

    def connect(self):
        """Its pod stays the same: to ask each time is more than this API server can answer."""
        return self.dial() if self.uid else super().connect()

    def report(self):
        rate = 20.0 * sum(not m["leave"] for m in self.members.get("worker", ()))
        return {**super().report(), "examples": 0, "examples_per_s": rate}


class Cluster:
    def __init__(self, size):
        """@size: 1.0 is that of the goal."""
        self.nodes, self.jobs, self.others = (round(n * size) for n in (NODES, JOBS, OTHERS))
        self.plane = control_plane.ControlPlane(FLAGS)
        self.reporters, self.controllers = {}, []

    def start(self):
        self.plane.start()
        controller.install(self.plane)
        self.kwok = kwok.Kwok(self.plane, NODE_LEASE_S).start()
        self.more_nodes("early-", round(self.nodes * EARLY))
        for space in [f"space-{i}" for i in range(SPACES)] + ["others"]:
            self.plane.must("POST", "/api/v1/namespaces", {"metadata": {"name": space}})
            controller.admit(self.plane, space)
        kwok.each(self.add_other, range(self.others))
        kwok.each(self.add_training, range(self.jobs))

    def more_nodes(self, prefix, count):
        self.kwok.nodes(count, cpu=str(CORES), memory="32Gi", prefix=prefix)

    def add_other(self, number):
        self.plane.must("POST", "/api/v1/namespaces/others/pods", {
            "metadata": {"name": f"other-{number}"},
            "spec": {"serviceAccountName": "default", "containers": [
                {"name": "c", "image": "local/none", "resources": {"requests": {"cpu": "500m"}}}]}})

    def add_training(self, number):
        half = {"requests": {"cpu": "500m", "memory": "64Mi"}}
        one = {"requests": {"cpu": "1", "memory": "64Mi"}}
        path = controller.TRAININGS.format(f"space-{number % SPACES}")
        self.plane.must("POST", path, controller.training(
            f"train-{number}", mode="async", chief={"resources": half}, ps={"resources": half},
            workers={"min": 1, "max": EARLY_WORKERS, "resources": one}))

    def allow_more(self, number):
        path = controller.TRAININGS.format(f"space-{number % SPACES}")
        self.plane.must("PATCH", f"{path}/train-{number}", {"spec": {"workers": {"max": WORKERS}}})

    def run(self, *options):
        """A controller with such options, paced as it is by default."""
        self.controllers[:] = [controller.Controller(self.plane, *options, pace=())]
        return self.controllers[0].start()

    def pods(self):
        return self.plane.must("GET", "/api/v1/pods?resourceVersion=0")["items"]

    def begin_reports(self):
        """Begins reporting for chiefs that have begun to run since."""
        chiefs = self.plane.must(
            "GET", "/api/v1/pods?labelSelector=threadtide.io/role=chief&resourceVersion=0")["items"]
        for pod in chiefs:
            key = pod["metadata"]["namespace"], pod["metadata"]["labels"]["threadtide.io/job"]
            if pod["status"].get("phase") == "Running" and key not in self.reporters:
                self.reporters[key] = Reporter(self.plane, *key, self.controllers)

    def joined(self):
        """Workers that chiefs have been told of, by training."""
        return [len(r.members.get("worker", ())) for r in list(self.reporters.values())]

    def until(self, done, guard_s):
        end, last = time.monotonic() + guard_s, 0
        while not done():
            if time.monotonic() > end:
                raise RuntimeError(f"not within {guard_s} s; workers: {sorted(self.joined())}")
            if len(self.reporters) < self.jobs:
                self.begin_reports()
            if time.monotonic() - last > 10:
                last = time.monotonic()
                print(f"{len(self.reporters)} report, {sum(self.joined())} workers", flush=True)
            time.sleep(0.5)

    def until_calm(self, guard_s):
        """All report, and for a while no pod has been made and no chief been told of one."""
        seen = {"pods": None, "since": 0.0}

        def calm():
            made = self.controllers[0].metrics()['tide_kube_actions_total{action="create pod"}']
            if (made, sum(self.joined())) != seen["pods"]:
                seen.update(pods=(made, sum(self.joined())), since=time.monotonic())
            return len(self.reporters) == self.jobs and time.monotonic() - seen["since"] > CALM_S
        self.until(calm, guard_s)

    def end(self):
        for reporter in self.reporters.values():
            reporter.ended.set()
        for one in self.controllers:
            one.kill()
        if hasattr(self, "kwok"):
            self.kwok.program.kill()
        self.plane.end()


class Meter:
    """Counts of the controller, from now until a later moment."""
    STATUS = re.compile(r'apiserver_request_total\{[^}]*resource="elastictrainingjobs",[^}]*'
                        r'subresource="status",[^}]*\} ([0-9.e+]+)')

    def __init__(self, cluster):
        self.cluster, self.running = cluster, cluster.controllers[0]
        self.status = self.patches()  # takes the API server a while
        self.at, self.before = time.monotonic(), self.running.metrics()
        self.rates = []

    def patches(self):
        """Patches of trainings' statuses, as the API server has counted them."""
        text = self.cluster.plane.api("GET", "/metrics")[1]
        return sum(float(value) for value in self.STATUS.findall(text))

    def watch(self, seconds=None, done=None):
        """Looks every second, for so long or until it is done; how long that took."""
        last = self.before["tide_kube_requests_total"], self.at
        while not (done() if done else time.monotonic() - self.at >= seconds):
            time.sleep(1)
            now = self.running.metrics()["tide_kube_requests_total"], time.monotonic()
            self.rates.append((now[0] - last[0]) / (now[1] - last[1]))
            last = now
            if len(self.rates) % 10 == 0:
                print(f"{sum(self.cluster.joined())} workers, {self.rates[-1]:.0f} requests/s", flush=True)
            if done and time.monotonic() - self.at > seconds:
                raise RuntimeError(f"not within {seconds} s: {sorted(self.cluster.joined())}")
        return time.monotonic() - self.at

    def rss_mib(self, field="VmRSS"):
        with open(f"/proc/{self.running.process.pid}/status", encoding="ascii") as f:
            return int(re.search(field + r":\s+(\d+)", f.read()).group(1)) / 1024

    def row(self, situation):
        now, seconds = self.running.metrics(), time.monotonic() - self.at

        def rate(name):
            return (now[name] - self.before[name]) / seconds
        looks = rate("tide_kube_reconciles_total")
        patches = (self.patches() - self.status) / seconds
        jobs = self.cluster.jobs
        return {
            "situation": situation, "nodes": int(now['tide_kube_objects{kind="node"}']), "jobs": jobs,
            "pods": int(now['tide_kube_objects{kind="pod"}']), "seconds": round(seconds),
            "requests/s": round(rate("tide_kube_requests_total"), 1),
            "most in a second": round(max(self.rates)),
            "status patches/s": round(patches, 1),
            "of a job, one in s": round(jobs / patches, 1) if patches else "",
            "token reviews/s": round(rate("tide_kube_token_reviews_total"), 1),
            "reports/s": round(rate('tide_kube_reports_total{result="accepted"}')),
            "looks/s": round(looks, 1),
            "ms each": round(rate("tide_kube_reconcile_seconds_total") / looks * 1000, 1) if looks else "",
            "share of a core": round(rate("process_cpu_seconds_total"), 3),
            "MiB": round(self.rss_mib(), 1), "MiB at most": round(self.rss_mib("VmHWM"), 1)}


def show(row):
    print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    return row


def grow(cluster):
    cluster.more_nodes("late-", cluster.nodes - round(cluster.nodes * EARLY))
    meter, had = Meter(cluster), sum(cluster.joined())
    kwok.each(cluster.allow_more, range(cluster.jobs))
    took = meter.watch(cluster.guard_s, lambda: min(cluster.joined()) == WORKERS)
    return {**show(meter.row("growing")), "workers": f"{had} … {sum(cluster.joined())}",
            "all have grown after s": round(took)}


def stay(cluster, seconds):
    meter = Meter(cluster)
    meter.watch(seconds)
    row = show(meter.row("steady"))
    row["goal"] = (
        f"{RATE_GOAL} requests/s: {'met' if row['requests/s'] <= RATE_GOAL else 'missed'}; "
        f"{MEMORY_GOAL_MIB} MiB: {'met' if row['MiB at most'] <= MEMORY_GOAL_MIB else 'missed'}")
    return row


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--size", type=float, default=1.0, help="of the cluster; 1 is that of the goal")
    p.add_argument("--seconds", type=int, default=60, help="of the steady part")
    p.add_argument("--wait", action="store_true",
                   help="for a line on standard input before the measured part")
    args = p.parse_args()
    cluster = Cluster(args.size)
    cluster.guard_s = 900
    try:
        begin = time.monotonic()
        cluster.start()
        # A controller in a hurry, of which the measured one takes over.
        cluster.run("--rate=200", "--burst=400", "--settle=1s")
        cluster.until_calm(cluster.guard_s)
        cluster.controllers[0].end()
        cluster.run()
        cluster.until_calm(cluster.guard_s)
        print(f"set up in {time.monotonic() - begin:.0f} s, workers: {sorted(cluster.joined())}",
              flush=True)
        if args.wait:
            sys.stdin.readline()
            cluster.until_calm(cluster.guard_s)
        rows = [grow(cluster)]
        cluster.until_calm(cluster.guard_s)
        rows.append(stay(cluster, args.seconds))
        if args.size == 1:
            harness.save("kube-scale", rows)
    finally:
        cluster.end()


if __name__ == "__main__":
    main()
