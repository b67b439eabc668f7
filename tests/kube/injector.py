# SPDX-License-Identifier: Apache-2.0
"""`tide-kube inject` as a process, with the rights of dist/kubernetes/inject.yaml and no others, and pods for it."""
import base64
import contextlib
import subprocess

from controller import BUILD, MANIFESTS
from daemon import GUARD_S, eventually
from objects import pod

SPACE, ACCOUNT, AGENT = "threadtide", "tide-inject", "threadtide-agent"
ASKS, DONE = {"threadtide.io/inject": "true"}, "threadtide.io/injected"
SECRET = f"/api/v1/namespaces/{SPACE}/secrets/tide-inject-ca"
WEBHOOK = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/tide-inject"


@contextlib.contextmanager
def installed(plane):
    """With what inject.yaml has. No node takes the Deployment's pods: a node that is gone would hold on to them."""
    account = "      serviceAccountName: tide-inject\n"
    text = "\n---\n".join((MANIFESTS / name).read_text() for name in ("namespace.yaml", "inject.yaml"))
    assert account in text
    text = text.replace(account, account + "      nodeSelector: {tide-test/pool: none}\n")
    eventually(lambda: plane.kubectl("apply", "--server-side", "--force-conflicts", "--validate=strict", "-f", "-", input=text,
                                     check=False)[0] == 0)
    try:
        yield
    finally:
        plane.kubectl("delete", "--wait=false", "--ignore-not-found", "-f", str(MANIFESTS / "inject.yaml"))


def token(plane):
    return base64.b64decode(plane.must("GET", SECRET)["data"]["path"]).decode()


def call(plane, address, port, authority):
    """The API server asks who listens there; there is no Service without kube-proxy."""
    hooks = plane.must("GET", WEBHOOK)["webhooks"]
    config = {"url": f"https://{address}:{port}/pods/{token(plane)}", "caBundle": base64.b64encode(authority.encode()).decode()}
    plane.must("PATCH", WEBHOOK, [{"op": "replace", "path": f"/webhooks/{i}/clientConfig", "value": config}
                                  for i in range(len(hooks))])


def make(plane, namespace, name, *command, labels=ASKS, query="", notes=None, **more):
    """The pod as it was stored."""
    made = pod(name, *command, **more)
    made["metadata"].update(labels=labels or {}, annotations=notes or {})
    return plane.must("POST", f"/api/v1/namespaces/{namespace}/pods{query}", made)


def said(made):
    return made["metadata"].get("annotations", {}).get(DONE)


class Injector:
    """Serves, and the API server calls it, when this returns."""

    def __init__(self, plane, folder):
        self.plane = plane
        self.ports = [plane.address.port() for _ in range(3)]
        agent = folder / "agent/lib/x86_64-linux-gnu"
        agent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["strip", "--strip-unneeded", "-o", agent / "libtide-agent.so", BUILD / "libtide-agent.so"], check=True)
        config = plane.kubeconfig(ACCOUNT, token=plane.token(ACCOUNT, SPACE))
        self.command = ["setpriv", "--pdeathsig", "KILL", BUILD / "tide-kube", "inject", "--kubeconfig", config, "--namespace", SPACE,
                        "--service", plane.address.ip, "--agent-dir", folder / "agent"]
        self.process = self.begin(*self.ports, "--drain=1")
        secret = plane.must("GET", SECRET)
        self.authority = base64.b64decode(secret["data"]["ca.crt"]).decode()
        call(plane, plane.address.ip, self.ports[0], self.authority)
        eventually(lambda: said(make(plane, "default", "try", query="?dryRun=All")))  # it learns of the address in its own time

    def begin(self, port, health, metrics, *more):
        ip = self.plane.address.ip
        process = subprocess.Popen([*self.command, f"--listen={ip}:{port}", f"--health={ip}:{health}", f"--metrics={ip}:{metrics}",
                                    *more])
        eventually(lambda: self.plane.answers(f"http://{ip}:{health}", "/readyz"))
        return process

    def end(self):
        self.process.terminate()
        assert self.process.wait(GUARD_S) == 0
