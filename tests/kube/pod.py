# SPDX-License-Identifier: Apache-2.0
"""One pod of the runner: a thread that starts its containers, probes, restarts, resizes and ends
them, and reports its status as kubelet 1.34 does."""
import datetime
import http.client
import signal
import threading
import time

import container
import network
import podspec
from probe import Prober

TICK_S = 0.05
RETRY_S = 0.5
LINGER_S = 1.0     # kubelet looks for containers that have ended once a second
RESIZING_S = 0.2   # how long a resize is seen to be in progress
RESIZE_CONDITIONS = ("PodResizePending", "PodResizeInProgress")
UNREACHABLE = (OSError, http.client.HTTPException)


def now_text():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Run:
    """One container through its restarts."""

    def __init__(self, pod_run, spec):
        self.pod_run, self.spec, self.name = pod_run, spec, spec["name"]
        self.container, self.group, self.probers = None, None, []
        self.state, self.last, self.restarts = {"waiting": {"reason": "ContainerCreating"}}, {}, 0
        self.ready = self.started = False
        self.resources = spec.get("resources", {})  # as they are in force
        self.restart_at = 0

    def launch(self, environment, mounts):
        pod_run = self.pod_run
        if container.has_cpu_groups() and not self.group:
            self.group = container.CpuGroup(
                f"{pod_run.runner.group}/{pod_run.uid}/{self.name}", pod_run.runner.period_us)
            self.apply(self.resources)
        words = [podspec.expand(word, environment) for word in
                 [*self.spec["command"], *self.spec.get("args", ())]]
        security = {**pod_run.pod["spec"].get("securityContext", {}),
                    **self.spec.get("securityContext", {})}
        user = security.get("runAsUser")
        self.container = container.Container(
            pod_run.folder / self.name, pod_run.sandbox, self.group, words, environment, mounts,
            pod_run.folder / f"{self.name}.log", self.spec.get("workingDir", "/"),
            (user, security.get("runAsGroup", user)) if user else None)
        self.state = {"running": {"startedAt": now_text()}}
        self.started = "startupProbe" not in self.spec
        self.ready = self.started and "readinessProbe" not in self.spec
        self.probers = [Prober(self, kind).start() for kind in Prober.KINDS if kind in self.spec]

    def apply(self, resources):
        """Applies requests and limits of the processor alone: memory is counted and not limited."""
        self.resources = resources
        if self.group:
            limits = podspec.mcpu(resources.get("limits", {}).get("cpu"))
            self.group.set(podspec.mcpu(resources.get("requests", {}).get("cpu")) or limits, limits)

    def alive(self):
        return "running" in self.state

    def done(self):
        """Has ended and is not to be started again."""
        return "terminated" in self.state

    def look(self):
        """Whether it has just ended."""
        code = self.container.exit_code() if self.alive() else None
        if code is None:
            return False
        self.state = {"terminated": {
            "exitCode": code, "reason": "Completed" if code == 0 else "Error",
            "startedAt": self.state["running"]["startedAt"], "finishedAt": now_text(),
            "containerID": self.container_id()}}
        self.ready = self.started = False
        return True

    def wants_restart(self, policy):
        return policy == "Always" or (policy == "OnFailure" and
                                      self.state["terminated"]["exitCode"] != 0)

    def back_off(self):
        self.last, wait = self.state, self.pod_run.runner.backoff_s * 2 ** min(self.restarts, 5)
        self.restarts, self.restart_at = self.restarts + 1, time.monotonic() + wait
        self.state = {"waiting": {"reason": "CrashLoopBackOff", "message":
                                  f"back-off {wait:g}s restarting container {self.name}"}}

    def container_id(self):
        return f"runner://{self.pod_run.uid}/{self.name}/{self.restarts}"

    def status(self):
        result = {"name": self.name, "state": self.state, "lastState": self.last, "ready": self.ready,
                  "started": self.started, "restartCount": self.restarts,
                  "image": self.spec.get("image", ""), "imageID": ""}
        if "waiting" not in self.state:
            result.update(containerID=self.container_id(), resources=self.resources)
            if "requests" in self.spec.get("resources", {}):
                result["allocatedResources"] = self.spec["resources"]["requests"]
        return result

    def end(self):
        if self.container:
            self.container.end()
        if self.group:
            self.group.remove()
            self.group = None


class PodRun:
    """.pod is the object as it was seen last; .runs its containers by name."""

    def __init__(self, runner, pod):
        self.thread = threading.Thread(target=self.live, daemon=True)
        self.runner, self.pod = runner, pod
        self.name, self.uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        self.path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{self.name}"
        self.folder = runner.folder / self.uid
        self.runs = {spec["name"]: Run(self, spec) for spec in pod["spec"]["containers"]}
        self.first = [Run(self, spec) for spec in pod["spec"].get("initContainers", ())]
        self.sandbox = self.volumes = self.ip = None
        self.begun, self.terminating_since = now_text(), None
        self.gone, self.dropped = False, False  # from the API; by a node that has died
        self.requests = podspec.pod_requests(pod)  # what it holds of the node
        self.resizing_until, self.resize = None, {}
        self.conditions, self.published = {}, None
        self.trouble, self.retry_at, self.wake = "", 0, threading.Event()

    # ---- called by the runner ----

    def update(self, pod):
        self.pod = pod
        self.wake.set()

    def vanish(self):
        """The object is no more: without a grace."""
        self.gone = True
        self.wake.set()

    def drop(self):
        """As when the machine loses power: nothing is told to anybody."""
        self.dropped = True
        self.wake.set()

    # ---- its life ----

    def live(self):
        try:
            while not (self.over() or self.gone or self.dropped):
                self.step()
                self.publish()
                self.wake.wait(TICK_S)
                self.wake.clear()
            self.linger()
        finally:
            self.release()
        # The object stays until somebody deletes it, and then until we confirm it.
        while not (self.gone or self.dropped):
            if self.publish() and self.deleting() and self.confirm():
                break
            self.wake.wait(0.2)
            self.wake.clear()
        self.runner.forget(self)

    def linger(self):
        """Keeps the network of a pod that has ended by itself for a moment, as kubelet does: whoever
        calls it is refused at first."""
        end = time.monotonic() + LINGER_S
        while not (self.gone or self.dropped or self.deleting()) and time.monotonic() < end:
            self.publish()
            self.wake.wait(TICK_S)
            self.wake.clear()

    def deleting(self):
        return "deletionTimestamp" in self.pod["metadata"]

    def all_runs(self):
        return [*self.first, *self.runs.values()]

    def over(self):
        """No container runs, and none will."""
        if self.deleting() or any(run.done() and run.state["terminated"]["exitCode"]
                                  for run in self.first):
            return not any(run.alive() for run in self.all_runs())
        return all(run.done() for run in self.runs.values())

    def step(self):
        policy = self.pod["spec"].get("restartPolicy", "Always")
        for run in self.all_runs():
            if run.look() and not self.deleting() and (
                    run.wants_restart(policy) if run not in self.first else
                    policy != "Never" and run.state["terminated"]["exitCode"]):
                run.back_off()
        if self.deleting():
            self.terminate()
            return
        if time.monotonic() >= self.retry_at:
            try:
                if self.volumes is None:
                    self.prepare()
                self.volumes.refresh()
                self.start_due()
                self.trouble = ""
            except (podspec.NotYet, AssertionError, ValueError, *UNREACHABLE) as error:
                self.trouble, self.retry_at = str(error), time.monotonic() + RETRY_S
        self.follow_resize()

    def prepare(self):
        """Network and volumes; again a little later when something is missing."""
        self.folder.mkdir(exist_ok=True)
        if self.sandbox is None:
            self.sandbox = network.hold_namespaces(self.name)
        if self.ip is None:
            self.ip = self.runner.network.attach(self.sandbox)
        self.volumes = podspec.Volumes(self.runner.client, self.pod, self.folder / "volumes",
                                       self.addresses())

    def start_due(self):
        """Those of the first ones one after the other, then the others together."""
        for run in self.first:
            if not run.done():
                self.start(run)
                return
        for run in self.runs.values():
            self.start(run)

    def start(self, run):
        if "waiting" not in run.state or time.monotonic() < run.restart_at:
            return
        image = run.spec.get("image", "")
        if self.runner.images is not None and image not in self.runner.images:
            run.state = {"waiting": {"reason": "ImagePullBackOff",
                                     "message": f'Back-off pulling image "{image}"'}}
            return
        if "command" not in run.spec:
            run.state = {"waiting": {"reason": "CreateContainerError",
                                     "message": "this runner has no images: a command is needed"}}
            return
        environment = podspec.environment_of(self.runner.client, self.pod, run.spec,
                                             self.addresses(), self.runner.environment)
        run.launch(environment, self.mounts(run))

    def mounts(self, run):
        result = []
        for entry in run.spec.get("volumeMounts", ()):
            source = self.volumes.paths[entry["name"]]
            if "subPath" in entry:
                source = source / entry["subPath"]
            result.append(container.Mount(source, entry["mountPath"], entry.get("readOnly", False)))
        hosts = self.folder / "hosts"
        names = {**self.runner.hosts, self.name: self.ip, "localhost": "127.0.0.1"}
        lines = [f"{ip}\t{name}" for name, ip in names.items()]
        for alias in self.pod["spec"].get("hostAliases", ()):
            lines.append(f"{alias['ip']}\t{' '.join(alias['hostnames'])}")
        podspec.write(hosts, "\n".join(lines) + "\n")
        return [*result, container.Mount(hosts, "/etc/hosts")]

    def addresses(self):
        return {"podIP": self.ip or "", "hostIP": self.runner.network.gateway}

    def terminate(self):
        """SIGTERM, and SIGKILL after the grace, which a second deletion may shorten."""
        if self.terminating_since is None:
            self.terminating_since = time.monotonic()
            for run in self.all_runs():
                run.container and run.alive() and run.container.signal(signal.SIGTERM)
        grace = self.pod["metadata"].get("deletionGracePeriodSeconds", 30)
        if time.monotonic() - self.terminating_since > grace:
            for run in self.all_runs():
                run.container and run.alive() and run.container.kill()

    def release(self):
        for run in self.all_runs():
            run.end()
            run.look()
        if self.sandbox:
            self.sandbox.kill()
            self.sandbox.wait()
        if self.ip:
            self.runner.network.release(self.ip)
        if container.has_cpu_groups() and (container.CPU / self.runner.group / self.uid).exists():
            (container.CPU / self.runner.group / self.uid).rmdir()

    # ---- in-place resize ----

    def wanted(self):
        return {spec["name"]: spec.get("resources", {}) for spec in self.pod["spec"]["containers"]}

    def follow_resize(self):
        wanted = self.wanted()
        if self.resizing_until is not None:
            if time.monotonic() >= self.resizing_until:
                for run in self.runs.values():
                    run.apply(run.spec.get("resources", {}))
                self.resizing_until = None
                self.resize.pop("PodResizeInProgress", None)
            return
        if all(run.spec.get("resources", {}) == wanted[name] for name, run in self.runs.items()):
            self.resize = {}
            return
        requests = podspec.pod_requests(self.pod)
        reason, message = self.runner.judge(self, requests)
        if reason:
            self.resize["PodResizePending"] = {"reason": reason, "message": message}
            return
        self.requests = requests
        for name, run in self.runs.items():
            run.spec = {**run.spec, "resources": wanted[name]}  # allocated, not yet in force
        self.resize = {"PodResizeInProgress": {}}
        self.resizing_until = time.monotonic() + RESIZING_S

    # ---- what the API is told ----

    def phase(self):
        runs = self.runs.values()
        if all(run.done() for run in runs):
            return "Failed" if any(run.state["terminated"]["exitCode"] for run in runs) else "Succeeded"
        if any(run.done() and run.state["terminated"]["exitCode"] for run in self.first):
            return "Failed"
        if self.over():
            return "Failed"  # deleted before all had begun
        return "Running" if all(r.alive() or r.restarts or r.done() for r in runs) else "Pending"

    def condition(self, kind, true, **more):
        status = "True" if true else "False"
        old = self.conditions.get(kind, {})
        since = old["lastTransitionTime"] if old.get("status") == status else now_text()
        return {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": since,
                "observedGeneration": self.pod["metadata"].get("generation", 1),
                "reason": None, "message": None, **more}

    def status(self):
        phase, runs = self.phase(), self.runs.values()
        ready = phase == "Running" and all(run.ready for run in runs)
        why = {} if ready else {"reason": "PodCompleted" if phase == "Succeeded" else
                                "ContainersNotReady", "message": self.trouble or None}
        conditions = [
            self.condition("PodScheduled", True),
            self.condition("PodReadyToStartContainers", self.sandbox and self.sandbox.poll() is None),
            self.condition("Initialized", all(run.done() for run in self.first)),
            self.condition("ContainersReady", ready, **why), self.condition("Ready", ready, **why),
            *(self.condition(kind, True, **more) for kind, more in self.resize.items())]
        self.conditions = {entry["type"]: entry for entry in conditions}
        ip = {"podIP": self.ip, "podIPs": [{"ip": self.ip}]} if self.ip else {}
        host = self.runner.network.gateway
        return {"phase": phase, "startTime": self.begun, "hostIP": host, "hostIPs": [{"ip": host}], **ip,
                "observedGeneration": self.pod["metadata"].get("generation", 1),
                "conditions": conditions, "containerStatuses": [run.status() for run in runs],
                **({"initContainerStatuses": [r.status() for r in self.first]} if self.first else {})}

    def publish(self):
        """Tells the API what has changed; whether it knows it all."""
        status = self.status()
        if status == self.published or self.dropped or self.gone:
            return True
        before = {entry["type"] for entry in (self.published or {}).get("conditions", ())}
        patch = {**status, "conditions": status["conditions"] + [
            {"type": kind, "$patch": "delete"} for kind in before - self.conditions.keys()]}
        try:
            code, answer = self.runner.client.api(
                "PATCH", f"{self.path}/status", {"metadata": {"uid": self.uid}, "status": patch},
                "application/strategic-merge-patch+json")
        except UNREACHABLE:
            return False
        if code in (404, 409) and (code == 404 or "uid" in str(answer).lower()):
            self.gone = True
        if code == 200:
            self.published = status
        elif not self.gone:
            self.runner.say(f"{self.name}: status: {code} {answer}")
        return code == 200

    def confirm(self):
        """Says that nothing of it is left; returns whether the API has heard it."""
        try:
            code, _ = self.runner.client.api("DELETE", self.path, {
                "gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}})
        except UNREACHABLE:
            return False
        return code in (200, 404, 409)
