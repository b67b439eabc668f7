#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training grows and shrinks on a cluster that exists: kind, k3s, or another one that kubectl reaches.

The data's way: kubectl asks the cluster which node has room -> a placeholder pod takes it, the training
starts with one worker -> the placeholder goes, tide-kube gives the training workers -> the placeholder
comes back and waits, tide-kube takes workers away -> the numbers of this are printed, and all that the
demo has made is deleted. Where no tide-kube decides, the demo installs it for as long as it runs.

Everything goes through kubectl, so whatever way of logging in works for kubectl works here.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("TIDE_BUILD_DIR", "build")).resolve()
MANIFESTS, IMAGES = ROOT / "dist/kubernetes", ("tide-kube", "tide-node")
SPACE, NAME, ROLE = "threadtide-demo", "digits", "tide-kube-trainings"
FIRST = 33                                   # resize of pods in place came to everybody with 1.33
CHIEF, SERVER, WORKER, MOST = 200, 100, 250, 4  # millicores; the most workers
MEMORY = 512 << 20                           # bytes of each pod
SIGN_S = 10                                  # a line at least so often
SUFFIXES = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


class Sorry(Exception):
    """Why the demo cannot go on, as a person needs it."""


def millicores(text):
    text = str(text or 0)
    return int(float(text[:-1])) if text.endswith("m") else round(1000 * float(text))


def in_bytes(text):
    text = str(text or 0)
    for suffix, factor in SUFFIXES.items():
        if text.endswith(suffix):
            return round(float(text[:-len(suffix)]) * factor)
    return round(float(text[:-1]) / 1000) if text.endswith("m") else round(float(text))


class Cluster:
    """The cluster that kubectl reaches by a context of its configuration; None: the current one."""

    def __init__(self, context):
        if not shutil.which("kubectl"):
            raise Sorry("there is no kubectl on PATH: install one no more than a version away from the cluster's")
        self.words = ["kubectl", *(("--context", context) if context else ())]

    def run(self, *words, given=None, check=True):
        done = subprocess.run([*self.words, "--request-timeout=60s", *words], input=given, capture_output=True, text=True, check=False)
        if check and done.returncode != 0:
            raise Sorry(f"kubectl {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout if done.returncode == 0 else ""

    def get(self, *words):
        """The object; None: it is not there."""
        text = self.run("get", *words, "--ignore-not-found", "-o", "json")
        return json.loads(text) if text.strip() else None

    def items(self, *words):
        return (self.get(*words) or {"items": []})["items"]

    def apply(self, *objects):
        self.run("apply", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    def check(self):
        """(what it is, name of its context); raises Sorry where the demo cannot run."""
        name = self.run("config", "current-context").strip() if len(self.words) == 1 else self.words[2]
        found = json.loads(self.run("version", "-o", "json")).get("serverVersion")
        if not found:
            raise Sorry(f"context {name}: no answer from the cluster; `kubectl cluster-info` says more")
        minor = int("".join(c for c in found["minor"] if c.isdigit()))
        if (int(found["major"]), minor) < (1, FIRST):
            raise Sorry(f"the cluster has Kubernetes {found['gitVersion']}: tide-kube needs 1.{FIRST} or newer, for pods that are resized in place")
        if self.run("auth", "can-i", "*", "*", "--all-namespaces", check=False).strip() != "yes":
            raise Sorry(f"context {name} has no administrator's rights: the demo makes a namespace, and roles where tide-kube is not installed")
        return found["gitVersion"], name


def room(cluster):
    """(name, free millicores) of the node with the least room that is enough: the demo is in the way of as little as can be."""
    used, least = {}, CHIEF + SERVER + 2 * WORKER
    for pod in cluster.items("pods", "--all-namespaces"):
        if pod["spec"].get("nodeName") and pod["status"].get("phase") not in ("Succeeded", "Failed"):
            cpu, memory = used.get(pod["spec"]["nodeName"], (0, 0))
            for container in pod["spec"]["containers"]:
                asked = container.get("resources", {}).get("requests", {})
                cpu, memory = cpu + millicores(asked.get("cpu")), memory + in_bytes(asked.get("memory"))
            used[pod["spec"]["nodeName"]] = cpu, memory
    free = []
    for node in cluster.items("nodes"):
        name, has, spec = node["metadata"]["name"], node["status"]["allocatable"], node["spec"]
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", ()))
        closed = spec.get("unschedulable") or any(t["effect"] != "PreferNoSchedule" for t in spec.get("taints", ()))
        cpu, memory = used.get(name, (0, 0))
        if ready and not closed and in_bytes(has["memory"]) - memory >= 5 * MEMORY:
            free.append((millicores(has["cpu"]) - cpu, name))
    enough = sorted(one for one in free if one[0] >= least)
    if not enough:
        raise Sorry(f"no node has {least} millicores and {5 * MEMORY >> 20} MiB that no pod requests; the most is {max(free, default=(0,))[0]} millicores")
    return enough[0][1], enough[0][0]


def pod_resources(mcpu, limit=True):
    amounts = {"cpu": f"{mcpu}m", "memory": str(MEMORY)}
    return {"requests": amounts, **({"limits": {**amounts, "memory": str(2 * MEMORY)}} if limit else {})}


def training(image, node):
    """As docs/kubernetes.md has it, but on one node and with checkpoints that nobody keeps."""
    at = {"spec": {"nodeSelector": {"kubernetes.io/hostname": node}}}
    chief = {"spec": {**at["spec"], "containers": [{"name": "tide", "volumeMounts": [{"name": "program", "mountPath": "/opt/demo/program"},
                                                                                    {"name": "training", "mountPath": "/opt/demo/training"}]}],
                      "volumes": [{"name": "program", "configMap": {"name": "program"}}, {"name": "training", "emptyDir": {}}]}}
    return {"apiVersion": "threadtide.io/v1alpha1", "kind": "ElasticTrainingJob", "metadata": {"name": NAME, "namespace": SPACE}, "spec": {
        "image": image, "slots": 8, "command": ["python", "/opt/demo/program/elastic_mlp.py", "--epochs", "1000000"],
        "env": [{"name": "TF_CPP_MIN_LOG_LEVEL", "value": "2"}],
        "checkpoint": {"path": "/opt/demo/training/checkpoints", "intervalSeconds": 60},
        "chief": {"resources": pod_resources(CHIEF, limit=False), "template": chief},
        "ps": {"min": 1, "max": 1, "resources": pod_resources(SERVER, limit=False), "template": at},
        "workers": {"min": 1, "max": MOST, "cpu": {"start": "1"}, "resources": pod_resources(WORKER), "template": at}}}


def placeholder(image, node, mcpu):
    """Requests room and uses none."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "placeholder", "namespace": SPACE}, "spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "nodeSelector": {"kubernetes.io/hostname": node},
        "containers": [{"name": "main", "image": image, "command": ["sleep", "100000"],
                        "resources": {"requests": {"cpu": f"{mcpu}m", "memory": "16Mi"}}}]}}


class Demo:
    def __init__(self, cluster, args):
        self.cluster, self.args, self.begin = cluster, args, time.monotonic()
        self.undo = contextlib.ExitStack()

    def say(self, text):
        print(f"{time.monotonic() - self.begin:6.1f} s  {text}", flush=True)

    def until(self, what, check, state):
        """check()'s result, when there is one; a line with state() as it changes, and now and then."""
        begin, told, last = time.monotonic(), time.monotonic(), None
        while not (result := check()):
            now, text = time.monotonic(), state()
            if now - begin > self.args.wait:
                raise Sorry(f"{what}: not within {self.args.wait} s ({text})\n{self.events()}")
            if text != last or now - told > SIGN_S:
                self.say(f"{what}: {text}")
                told, last = now, text
            time.sleep(0.5)
        return result

    def events(self):
        spaces = [self.cluster.run("get", "events", "-n", space, "--sort-by=.lastTimestamp", check=False) for space in (SPACE, "threadtide")]
        return "\n".join("\n".join(text.splitlines()[-12:]) for text in spaces)

    def pods(self, space=SPACE):
        """A sentence about the pods: the first container that waits tells why."""
        told = []
        for pod in self.cluster.items("pods", "-n", space):
            why = [c["state"]["waiting"].get("reason", "") for c in pod["status"].get("containerStatuses", ()) if "waiting" in c["state"]]
            why += [c["message"] for c in pod["status"].get("conditions", ()) if c["status"] == "False" and c.get("message")]
            told.append(f"{pod['metadata']['name']} {pod['status'].get('phase')}" + (f" ({': '.join(dict.fromkeys(why))})" if why and pod["status"].get("phase") == "Pending" else ""))
        return ", ".join(told) or "no pods yet"

    # ---- tide-kube ----

    def decides(self):
        """Some tide-kube has renewed its lease lately."""
        lease = self.cluster.get("lease", "tide-kube", "-n", "threadtide")
        spec = (lease or {}).get("spec", {})
        if not spec.get("holderIdentity") or not spec.get("renewTime"):
            return False
        renewed = datetime.datetime.fromisoformat(spec["renewTime"].replace("Z", "+00:00"))
        return (datetime.datetime.now(datetime.timezone.utc) - renewed).total_seconds() < 60

    def bring_images(self, version, context):
        """Into the cluster's nodes, where there is a tool for that; else the registry has them, or the nodes already."""
        if self.args.registry:
            return
        if context.startswith("kind-") and shutil.which("kind"):
            tool = ["kind", "load", "image-archive", "--name", context.removeprefix("kind-")]
        elif "k3s" in version and shutil.which("k3s"):
            tool = ["k3s", "ctr", "images", "import"]
        else:
            self.say(f"the nodes have to have the images threadtide/{' and threadtide/'.join(IMAGES)} (docs/kubernetes.md, Install), or name a --registry")
            return
        subprocess.run([ROOT / "scripts/images.py", "--build", BUILD, *IMAGES], check=True)
        for name in IMAGES:
            self.say(f"{' '.join(tool)} {BUILD}/images/{name}.tar")
            done = subprocess.run([*tool, BUILD / f"images/{name}.tar"], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise Sorry(f"{tool[0]} did not take the image: {done.stderr.strip()}")

    def install(self, version, context):
        """As docs/kubernetes.md says, and away again at the end; the definition stays where it was there before."""
        names = ["namespace.yaml", "rbac.yaml", "admission.yaml", "tide-kube.yaml"]
        if self.cluster.get("namespace", "threadtide"):
            raise Sorry("the cluster has a namespace threadtide in which no tide-kube decides: mend or remove that first "
                        "(kubectl -n threadtide get pods; docs/kubernetes.md, Install)")
        if not self.cluster.get("crd", "elastictrainingjobs.threadtide.io"):
            names.insert(0, "crd.yaml")
        self.bring_images(version, context)
        self.say("no tide-kube decides here: the demo installs it, and removes it at the end")
        texts = {name: (MANIFESTS / name).read_text() for name in names}
        if self.args.registry:
            texts = {name: text.replace("threadtide/tide-", f"{self.args.registry}/tide-") for name, text in texts.items()}

        def remove():
            for name in reversed(names):
                self.cluster.run("delete", "--ignore-not-found", "--wait=false", "-f", "-", given=texts[name], check=False)
            self.say("tide-kube is removed")
        self.undo.callback(remove)
        for name in names:
            self.cluster.run("apply", "--server-side", "-f", "-", given=texts[name])
        self.cluster.run("wait", "--for=condition=Established", "--timeout=60s", "crd/elastictrainingjobs.threadtide.io")
        self.until("tide-kube", self.decides, lambda: self.pods("threadtide"))

    # ---- the training ----

    def status(self):
        """(phase, workers in it, workers wanted, step)"""
        status = (self.cluster.get("etj", NAME, "-n", SPACE) or {}).get("status", {})
        if status.get("phase") in ("Failed", "Invalid"):
            raise Sorry(f"the training: {status['phase']}: {status.get('message', '')}\n{self.events()}")
        workers = status.get("workers", {})
        return status.get("phase"), workers.get("ready", 0), workers.get("desired", 0), status.get("progress", {}).get("step", 0)

    def told(self):
        phase, ready, _, step = self.status()
        return f"{ready} workers, step {step}" if phase == "Running" and step else self.pods()

    def size(self):
        return f"{self.status()[1]} workers"

    def prepare(self, node, free):
        # A finalizer holds the training until tide-kube has drained it; that is waited for before the namespace goes.
        def remove():
            self.cluster.run("delete", "etj", NAME, "-n", SPACE, "--ignore-not-found", "--timeout=60s", check=False)
            self.cluster.run("delete", "namespace", SPACE, "--ignore-not-found", "--wait=false", check=False)
            self.say(f"namespace {SPACE} is deleted")
        if self.cluster.get("namespace", SPACE):
            raise Sorry(f"the cluster has a namespace {SPACE}, of another run of this demo: kubectl delete namespace {SPACE}")
        self.undo.callback(remove)
        self.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
        program = (ROOT / "examples/elastic_mlp.py").read_text()
        self.cluster.apply(
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": ROLE, "namespace": SPACE},
             "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE},
             "subjects": [{"kind": "ServiceAccount", "name": "tide-kube", "namespace": "threadtide"}]},
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "program", "namespace": SPACE}, "data": {"elastic_mlp.py": program}},
            {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": NAME, "namespace": SPACE}, "spec": {
                "podSelector": {"matchLabels": {"threadtide.io/job": NAME}}, "policyTypes": ["Ingress"],
                "ingress": [{"from": [{"podSelector": {"matchLabels": {"threadtide.io/job": NAME}}}]}]}})
        return placeholder(self.args.image, node, free - CHIEF - SERVER - WORKER)

    def runs(self, pod):
        return (self.cluster.get("pod", pod["metadata"]["name"], "-n", SPACE) or {"status": {}})["status"].get("phase") == "Running"

    def play(self, node, free):
        """[(what, seconds)] and the number of workers that it had in between."""
        fits = min(MOST, (free - CHIEF - SERVER) // WORKER)
        other = self.prepare(node, free)
        self.cluster.apply(other)
        self.until("the placeholder", lambda: self.runs(other), self.pods)
        self.cluster.apply(training(self.args.image, node))
        self.until("the training", lambda: self.status()[0] == "Running" and self.status()[1] == 1 and self.status()[3], self.told)
        before = self.chief()
        self.say(f"the training runs with one worker beside a placeholder that requests {free - CHIEF - SERVER - WORKER} millicores of {node}; now that goes")
        freed = time.monotonic()
        self.cluster.run("delete", "pod", "placeholder", "-n", SPACE, "--now")
        first = self.until("the first new worker", lambda: self.status()[1] > 1 and time.monotonic(), self.size)
        most = self.until("as many as it gets", lambda: self.status()[1] > 1 and self.status()[1] >= min(fits, self.status()[2]) and self.status()[1], self.size)
        self.say(f"the training has {most} workers; now the placeholder wants its room back")
        wanted = time.monotonic()
        self.cluster.apply(other)
        self.until("the placeholder", lambda: self.runs(other), self.size)
        back = time.monotonic()
        left, step = self.status()[1], self.status()[3]
        self.until("a step after it", lambda: self.status()[3] > step, self.told)
        if self.chief() != before:
            raise Sorry("the chief was made anew in between")
        return [("room is free -> first new worker is in the training", f"{first - freed:.1f} s"), ("workers beside the placeholder -> without it", f"1 -> {most}"),
                ("room is wanted back -> the other pod runs", f"{back - wanted:.1f} s"), ("workers then", str(left)), ("restarts of the chief", "0")]

    def chief(self):
        """Which process of which pod it is."""
        pod = self.cluster.get("pod", f"{NAME}-chief", "-n", SPACE) or {"metadata": {}, "status": {}}
        return pod["metadata"].get("uid"), [c["restartCount"] for c in pod["status"].get("containerStatuses", ())]

    def run(self):
        version, context = self.cluster.check()
        node, free = room(self.cluster)
        self.say(f"context {context}: Kubernetes {version}; {free} millicores of {node} are free, and all of them are requested while the demo runs")
        with self.undo:
            if self.decides():
                self.say("a tide-kube decides here already: the demo uses it, and leaves it")
            else:
                self.install(version, context)
                node, free = room(self.cluster)
            return self.play(node, free)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--context", default="current", help="of kubectl's configuration, say kind-kind; current: the one that kubectl uses")
    p.add_argument("--image", default="tensorflow/tensorflow:2.21.0", help="with Python and TensorFlow")
    p.add_argument("--registry", help="where the cluster's nodes get our images from: REGISTRY/tide-kube:VERSION")
    p.add_argument("--wait", type=int, default=900, metavar="SECONDS", help="for each step, the longest of which is pulling an image")
    args = p.parse_args()

    def stop(number, frame):
        raise KeyboardInterrupt(number)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    try:
        rows = Demo(Cluster(None if args.context == "current" else args.context), args).run()
    except Sorry as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: stopped; what it had made in the cluster is deleted.", file=sys.stderr)
        return 130
    width = max(len(what) for what, _ in rows)
    print("\n" + "\n".join(f"  {what.ljust(width)}  {value}" for what, value in rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
