# SPDX-License-Identifier: Apache-2.0
"""Probes of the runner's containers: httpGet and tcpSocket, from this machine to the pod's address."""
import http.client
import signal
import socket
import threading
import time


class Prober:
    """One probe of one process of a container; ends with it."""
    KINDS = ("startupProbe", "livenessProbe", "readinessProbe")

    def __init__(self, run, kind):
        self.run, self.kind, self.probe = run, kind, run.spec[kind]
        self.container = run.container
        unknown = self.probe.keys() & {"exec", "grpc"}
        if unknown:
            raise ValueError(f"this runner knows no {unknown.pop()} probes")

    def start(self):
        threading.Thread(target=self.follow, daemon=True).start()
        return self

    def alive(self):
        return self.run.container is self.container and self.container.exit_code() is None

    def sleep(self, seconds):
        end = time.monotonic() + seconds
        while self.alive() and time.monotonic() < end:
            time.sleep(min(0.1, seconds))

    def port(self):
        wanted = (self.probe.get("httpGet") or self.probe["tcpSocket"])["port"]
        if isinstance(wanted, int):
            return wanted
        return next(p["containerPort"] for p in self.run.spec["ports"] if p.get("name") == wanted)

    def good(self):
        limit = self.probe.get("timeoutSeconds", 1)
        place = (self.run.pod_run.ip, self.port())
        try:
            if "tcpSocket" in self.probe:
                socket.create_connection(place, limit).close()
                return True
            connection = http.client.HTTPConnection(*place, timeout=limit)
            try:
                connection.request("GET", self.probe["httpGet"].get("path", "/"))
                return 200 <= connection.getresponse().status < 400
            finally:
                connection.close()
        except (OSError, http.client.HTTPException):
            return False

    def follow(self):
        self.sleep(self.probe.get("initialDelaySeconds", 0))
        times, last = 0, None
        while self.alive():
            if self.kind != "startupProbe" and not self.run.started:
                self.sleep(0.1)
                continue
            good = self.good()
            times, last = (times + 1 if good == last else 1), good
            if times >= self.probe.get(*(("successThreshold", 1) if good else
                                         ("failureThreshold", 3))):
                self.conclude(good)
                if good and self.kind == "startupProbe":
                    return
            self.sleep(self.probe.get("periodSeconds", 10))

    def conclude(self, good):
        if not self.alive():
            return
        if self.kind == "readinessProbe":
            self.run.ready = good
        elif self.kind == "startupProbe" and good:
            self.run.started = True
            self.run.ready = "readinessProbe" not in self.run.spec
        elif not good and not self.run.pod_run.deleting():
            self.container.signal(signal.SIGTERM)
            self.sleep(self.run.pod_run.pod["spec"].get("terminationGracePeriodSeconds", 30))
            self.container.kill()
        self.run.pod_run.wake.set()
