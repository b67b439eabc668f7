# SPDX-License-Identifier: Apache-2.0
"""A real control plane of Kubernetes on loopback, for tests: etcd, kube-apiserver,
kube-controller-manager and kube-scheduler, built by `scripts/setup.sh kube`.

Each has its data and certificates in a folder, and its ports on an address of loopback, which are
nobody else's, so that several run side by side. Its programs end with this process, however that
comes (PR_SET_PDEATHSIG: start them from a thread that stays).
"""
import base64
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import ssl
import subprocess
import threading

from daemon import GUARD_S, eventually
from fault_proxy import FaultProxy
from scratch import Scratch

HERE = pathlib.Path(__file__).resolve().parent
NEEDED = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
# Their default limit is 20 and 50 requests a second: a thousand new nodes take minutes then.
EAGER = ("--kube-api-qps=500", "--kube-api-burst=1000")
PORTS = range(20000, 32000)  # below those that the kernel gives to clients


def tools_folder():
    """Where scripts/setup.sh puts the programs, which depends on the modules' sums."""
    if os.environ.get("TIDE_KUBE_TOOLS"):
        return pathlib.Path(os.environ["TIDE_KUBE_TOOLS"])
    sums = b"".join((HERE / f"tools/{name}/go.sum").read_bytes() for name in ("kubernetes", "kwok"))
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(cache, "threadtide/kube", hashlib.sha256(sums).hexdigest()[:16])


def helm():
    """Where scripts/setup.sh puts it."""
    if os.environ.get("TIDE_KUBE_TOOLS"):
        return tools_folder() / "helm"
    sums = (HERE / "tools/helm/go.sum").read_bytes()
    return tools_folder().parent / f"helm-{hashlib.sha256(sums).hexdigest()[:16]}"


def containerd():
    """The folder where scripts/setup.sh puts containerd 2."""
    sums = (HERE / "tools/containerd/go.sum").read_bytes()
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(cache, f"threadtide/kube/containerd-{hashlib.sha256(sums).hexdigest()[:16]}")


def missing():
    """Why there can be no control plane here, or an empty text."""
    absent = [name for name in NEEDED if not (tools_folder() / name).exists()]
    if shutil.which("openssl") is None:
        absent.append("openssl")
    return f"not installed: {', '.join(absent)} (scripts/setup.sh kube)" if absent else ""


class Address:
    """An address of loopback with a port for each who asks."""

    def __init__(self, ip=None):
        # Random ones meet rarely, and when they do, a port that is taken shows it.
        self.ip = ip or f"127.{random.randrange(64, 128)}.{random.randrange(256)}.1"

    def port(self):
        while True:
            port = random.choice(PORTS)
            with socket.socket() as probe, contextlib.suppress(OSError):
                probe.bind((self.ip, port))
                return port


class Authority:
    """A certificate authority by openssl, and who it has certified, as files NAME.crt and NAME.key."""

    def __init__(self, folder):
        self.folder, self.lock = folder, threading.Lock()
        folder.mkdir()
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                     "-nodes", "-days", "30", "-subj", "/CN=tide-test", "-keyout", "ca.key",
                     "-out", "ca.crt")
        self.ca = folder / "ca.crt"

    def openssl(self, *words):
        done = subprocess.run(["openssl", *words], cwd=self.folder, capture_output=True, text=True,
                              timeout=GUARD_S)
        assert done.returncode == 0, done.stderr

    def issue(self, name, user, groups=(), hosts=()):
        """(certificate, key) of a client, and of a server if it has hosts. Two threads that wanted the same
        one at once would leave a certificate of one key beside another key."""
        with self.lock:
            return self._issue(name, user, groups, hosts)

    def _issue(self, name, user, groups, hosts):
        certificate, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        if certificate.exists():
            return certificate, key
        subject = "".join(f"/O={group}" for group in groups) + f"/CN={user}"
        usage = "clientAuth" + ",serverAuth" * bool(hosts)
        names = ",".join(f"{'IP' if host[0].isdigit() else 'DNS'}:{host}" for host in hosts)
        (self.folder / f"{name}.ext").write_text(
            f"extendedKeyUsage={usage}\n" + (f"subjectAltName={names}\n" if hosts else ""))
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                     "-subj", subject, "-keyout", f"{name}.key", "-out", f"{name}.csr")
        self.openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key",
                     "-set_serial", str(random.getrandbits(63)), "-days", "30", "-extfile",
                     f"{name}.ext", "-out", f"{name}.crt")
        return certificate, key


class Program:
    """One program: start, stop, kill, pause, resume; by its process id, never by its name."""

    def __init__(self, folder, ready, name, *options):
        self.name, self.ready, self.process = name, ready, None
        self.command = [str(word) for word in (tools_folder() / name, *options)]
        self.folder, self.log = folder, folder / f"{name}.log"

    def launch(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self.command], cwd=self.folder, stdout=log,
                stderr=log, stdin=subprocess.DEVNULL, env={**os.environ, "HOME": str(self.folder)})

    def start(self):
        """Returns when it serves."""
        self.launch()
        self.wait()

    def wait(self):
        def serves():
            assert self.alive(), f"{self.name} has ended:\n{self.tail()}"
            return self.ready()
        eventually(serves, 60)

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def send(self, number):
        if self.alive():
            self.process.send_signal(number)

    def stop(self):
        self.resume()
        self.send(signal.SIGTERM)
        self.process.wait(2 * GUARD_S)

    def kill(self):
        self.send(signal.SIGKILL)
        if self.process:
            self.process.wait(GUARD_S)

    def pause(self):
        self.send(signal.SIGSTOP)

    def resume(self):
        self.send(signal.SIGCONT)

    def tail(self):
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""


class Client:
    """Asks the API server as somebody: of a client certificate, or of a token."""

    def __init__(self, host, port, make_context, token=None, timeout=2 * GUARD_S):
        self.host, self.port, self.make_context, self.token = host, port, make_context, token
        self.timeout, self.local = timeout, threading.local()

    def connection(self, timeout=None):
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout or self.timeout,
                                           context=self.make_context())

    def _kept_connection(self):
        """One for each thread."""
        if not hasattr(self.local, "connection"):
            self.local.connection = self.connection()
        return self.local.connection

    def _headers(self, **more):
        return {"Accept": "application/json", **more,
                **({"Authorization": f"Bearer {self.token}"} if self.token else {})}

    def api(self, method, path, body=None, content_type=None):
        """(status, answer). PATCH is a merge patch for objects, a JSON patch for lists, unless told
        otherwise."""
        content_type = content_type or ("application/json" if method != "PATCH" else
                                        "application/json-patch+json" if isinstance(body, list) else
                                        "application/merge-patch+json")
        data = body if isinstance(body, (str, bytes, type(None))) else json.dumps(body)
        connection = self._kept_connection()
        kept = connection.sock is not None
        try:
            connection.request(method, path, data, self._headers(**{"Content-Type": content_type}))
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            if not kept:
                raise
            # Most likely the server had hung up on it before: again, with a new one.
            return self.api(method, path, body, content_type)
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text.decode()

    def must(self, method, path, body=None, content_type=None):
        """api() that has to succeed; the answer."""
        status, answer = self.api(method, path, body, content_type)
        assert 200 <= status < 300, f"{method} {path}: {status} {answer}"
        return answer

    def watch(self, path, seconds=None):
        """Yields a watch's events until the server ends it."""
        connection = self.connection((seconds or 3600) + GUARD_S)
        with contextlib.closing(connection):
            mark, limit = "&" if "?" in path else "?", f"&timeoutSeconds={seconds}" if seconds else ""
            connection.request("GET", f"{path}{mark}watch=true{limit}", headers=self._headers())
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            while line := answer.readline():
                yield json.loads(line)


class ControlPlane:
    """The programs are .etcd, .apiserver, .controller_manager and .scheduler, and .proxy stands
    before the second. @flags: {program's name: more options}."""

    def __init__(self, flags=None):
        self.scratch = Scratch("tide-kube-")
        self.folder = self.scratch.path
        self.flags, self.address = flags or {}, Address()
        self.port = self.address.port()
        self.url = f"https://{self.address.ip}:{self.port}"
        self.pki = Authority(self.folder / "pki")
        self.etcd = self._etcd()
        self.apiserver = self._apiserver()
        self.controller_manager = self._controller_manager()
        self.scheduler = self._scheduler()
        self.programs = (self.etcd, self.apiserver, self.controller_manager, self.scheduler)
        self.proxy = FaultProxy(self)
        self.admin = self.client()
        self.api, self.must, self.watch = self.admin.api, self.admin.must, self.admin.watch

    # ---- the programs ----

    def program(self, ready, name, *options):
        return Program(self.folder, ready, name, *options, *self.flags.get(name, ()))

    def _etcd(self):
        client, peer = (f"http://{self.address.ip}:{self.address.port()}" for _ in range(2))
        self.etcd_url = client

        def ready():
            return self.answers(client, "/health")
        return self.program(
            ready, "etcd", "--data-dir", self.folder / "etcd", "--unsafe-no-fsync", "--log-level",
            "error", "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", f"default={peer}")

    def _apiserver(self):
        certificate, key = self.pki.issue("apiserver", "kube-apiserver", hosts=(
            self.address.ip, "10.0.0.1", "localhost", "kubernetes.default.svc"))
        # Tokens of service accounts are signed with the same key.
        return self.program(
            lambda: self.answers(self.url, "/readyz"), "kube-apiserver",
            f"--etcd-servers={self.etcd_url}", f"--bind-address={self.address.ip}",
            f"--advertise-address={self.address.ip}", f"--secure-port={self.port}",
            "--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.0.0.0/24",
            f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}",
            f"--client-ca-file={self.pki.ca}", "--authorization-mode=Node,RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={certificate}", f"--service-account-signing-key-file={key}",
            "--allow-privileged", "--enable-admission-plugins=NodeRestriction",
            # The fault proxy says with its certificate for whom it speaks.
            f"--requestheader-client-ca-file={self.pki.ca}",
            "--requestheader-allowed-names=fault-proxy", "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-")

    def _controller_manager(self):
        port = self.address.port()
        config = self.kubeconfig("system:kube-controller-manager")
        return self.program(
            lambda: self.answers(f"https://{self.address.ip}:{port}", "/healthz"),
            "kube-controller-manager", f"--kubeconfig={config}",
            f"--service-account-private-key-file={self.folder}/pki/apiserver.key",
            f"--root-ca-file={self.pki.ca}", "--use-service-account-credentials",
            "--leader-elect=false", f"--bind-address={self.address.ip}", f"--secure-port={port}",
            f"--cert-dir={self.folder}/controller-manager", *EAGER)

    def _scheduler(self):
        port = self.address.port()
        config = self.kubeconfig("system:kube-scheduler")
        return self.program(
            lambda: self.answers(f"https://{self.address.ip}:{port}", "/healthz"), "kube-scheduler",
            f"--kubeconfig={config}", "--leader-elect=false", f"--bind-address={self.address.ip}",
            f"--secure-port={port}", f"--cert-dir={self.folder}/scheduler", *EAGER)

    def answers(self, url, path):
        scheme, _, address = url.partition("://")
        context = ssl._create_unverified_context()  # who answers there, we have started ourselves
        connection = (http.client.HTTPConnection(address, timeout=5) if scheme == "http" else
                      http.client.HTTPSConnection(address, timeout=5, context=context))
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", path)
            return connection.getresponse().status == 200
        return False

    def start(self):
        self.etcd.start()
        self.proxy.start()
        self.apiserver.start()
        # These two would not wait for it for more than ten seconds.
        for program in self.programs[2:]:
            program.launch()
        for program in self.programs[2:]:
            program.wait()
        eventually(lambda: self.api("GET", "/api/v1/namespaces/default/serviceaccounts/default")[0]
                   == 200)
        return self

    def end(self):
        self.proxy.stop()
        for program in reversed(self.programs):
            program.kill()
        self.scratch.end()

    # ---- who asks ----

    def kubeconfig(self, user="admin", groups=None, url=None, token=None):
        """Its path. Members of system:masters may do everything: "admin" is one unless told otherwise.
        @url: of a proxy. @token: instead of a certificate."""
        if groups is None:
            groups = ("system:masters",) if user == "admin" else ()
        name = hashlib.sha256(repr((user, groups, url, token)).encode()).hexdigest()[:12]
        path = self.folder / f"{user.replace(':', '-')}-{name}.kubeconfig"
        if token:
            credential = {"token": token}
        else:
            certificate, key = self.pki.issue(path.stem, user, groups)
            credential = {"client-certificate": str(certificate), "client-key": str(key)}
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {
                "server": url or self.url, "certificate-authority": str(self.pki.ca)}}],
            "users": [{"name": user, "user": credential}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}]}, indent=1))
        return path

    def token(self, account, namespace="default", audience=None, pod=None, seconds=3600):
        """Makes a token of a service account, as kubelets get them for pods. @pod: the object that it is bound to."""
        spec = {"expirationSeconds": seconds, "audiences": [audience] if audience else []}
        if pod:
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod",
                                      "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        return self.must("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token",
                         {"spec": spec})["status"]["token"]

    def context(self, user="admin", groups=None):
        """ssl.SSLContext of somebody."""
        path = self.kubeconfig(user, groups)
        context = ssl.create_default_context(cafile=self.pki.ca)
        context.load_cert_chain(self.folder / f"pki/{path.stem}.crt", self.folder / f"pki/{path.stem}.key")
        return context

    def client(self, user="admin", groups=None, token=None, timeout=2 * GUARD_S):
        """A client that asks as this user, or as the one of the token."""
        return Client(self.address.ip, self.port, lambda: (
            ssl.create_default_context(cafile=self.pki.ca) if token else self.context(user, groups)),
            token, timeout)

    def server_context(self, name, hosts):
        """The context of a server of the test's own, which asks its clients for their certificates."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.pki.issue(name, name, hosts=hosts))
        context.load_verify_locations(self.pki.ca)
        context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def kubectl(self, *words, input=None, check=True, config=None):
        """Returns its output, or fails the test. Without @check: (status, output, errors)."""
        done = subprocess.run(
            [tools_folder() / "kubectl", *words], input=input, capture_output=True, text=True,
            timeout=2 * GUARD_S, env={"PATH": os.environ["PATH"], "HOME": str(self.folder),
                                      "KUBECONFIG": str(config or self.kubeconfig())})
        assert done.returncode == 0 or not check, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout if check else (done.returncode, done.stdout, done.stderr)

    def token_claims(self, token):
        """Returns the claims in a token, unverified."""
        part = token.split(".")[1]
        return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
