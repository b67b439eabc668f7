# SPDX-License-Identifier: Apache-2.0
"""A real tide-gate before a real tided of root's, with certificates that openssl makes, for test_gate.py."""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess

import pytest

import conftest
from daemon import GUARD_S, eventually

GATE, STRANGER = 61003, 61004  # users without a name
ANA, EVE = ("daemon", 1), ("bin", 2)  # users whom every machine has
needs_gate = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("openssl"), reason="needs root and openssl")


class Authority:
    """A certificate authority in a folder, and what it signs."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        self.cert = folder / f"{name}.pem"
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                     "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", self.cert)

    def openssl(self, *words):
        subprocess.run(["openssl", *map(str, words)], cwd=self.folder, check=True, capture_output=True, timeout=GUARD_S)

    def sign(self, file, subject, days=2, extensions="extendedKeyUsage=clientAuth"):
        """FILE.pem and FILE.key, which every user may read."""
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", subject,
                     "-keyout", f"{file}.key", "-out", f"{file}.csr")
        (self.folder / f"{file}.ext").write_text(extensions + "\n")
        self.openssl("x509", "-req", "-in", f"{file}.csr", "-CA", self.cert, "-CAkey", f"{self.name}.key",
                     "-CAcreateserial", "-days", days, "-extfile", f"{file}.ext", "-out", f"{file}.pem")
        (self.folder / f"{file}.key").chmod(0o644)
        return self.folder / f"{file}.pem", self.folder / f"{file}.key"


class Gate:
    def __init__(self, build_dir, folder, tided):
        self.program, self.folder, self.tided = build_dir / "tide-gate", folder, tided
        self.tide = build_dir / "tide"
        self.authority = Authority(folder, "ca")
        self.authority.sign("server", "/CN=localhost", extensions="subjectAltName=DNS:localhost,IP:127.0.0.1\n"
                                                                   "extendedKeyUsage=serverAuth")
        self.config, self.log, self.process = folder / "gate.conf", folder / "gate.log", None
        self.configure(f"user = {ANA[0]} CN=ana,O=Lab", f"user = {EVE[0]}")

    def configure(self, *lines):
        self.config.write_text("\n".join((
            "[gate]", "listen = 127.0.0.1:0", f"certificate = {self.folder}/server.pem", f"key = {self.folder}/server.key",
            f"client-ca = {self.authority.cert}", f"tokens = {self.folder}/tokens", f"api = {self.tided.dir}/api.sock",
            *lines, "")))
        self.config.chmod(0o644)

    def command(self, *words, uid=None):
        who = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"] if uid else []
        return subprocess.run([*who, self.program, *words, "--config", self.config], capture_output=True, text=True,
                              timeout=GUARD_S)

    def token(self, user, *options):
        done = self.command("token", user, *options)
        assert (done.returncode, done.stderr) == (0, ""), done
        (self.folder / "tokens").chmod(0o644)
        return done.stdout.strip()

    def start(self):
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                ["setpriv", f"--reuid={GATE}", f"--regid={GATE}", "--clear-groups", self.program, "serve", "--config",
                 self.config], stderr=log)
        eventually(lambda: "port" in self.said() or self.process.poll() is not None)
        assert self.process.poll() is None, self.said()
        self.port = int(re.search(r"port (\d+)", self.said())[1])
        return self

    def said(self):
        return self.log.read_text()

    def reload(self):
        before = self.said().count("configuration")
        self.process.send_signal(signal.SIGHUP)
        eventually(lambda: self.said().count("configuration") > before)

    def connection(self, cert=None):
        context = ssl.create_default_context(cafile=self.authority.cert)
        if cert:
            context.load_cert_chain(*cert)
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=GUARD_S)

    def ask(self, method, path, body=None, token=None, cert=None, headers=None, connection=None):
        """The status and the answer, with a token or a certificate."""
        connection = connection or self.connection(cert)
        connection.request(method, path, json.dumps(body) if body is not None else None,
                           {**({"Authorization": f"Bearer {token}"} if token else {}), **(headers or {})})
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text.startswith((b"{", b"[")) else text.decode()

    def address(self):
        return f"https://127.0.0.1:{self.port}"

    def home(self, *words, env=None, gateways=None):
        """`tide WORDS` of somebody elsewhere, whose file of gateways has these lines."""
        (self.folder / "config/tide").mkdir(parents=True, exist_ok=True)
        file = self.folder / "config/tide/gateways"
        file.write_text("\n".join(gateways or (f"* ca={self.authority.cert}",)) + "\n")
        file.chmod(0o600)
        return subprocess.run([self.tide, *map(str, words)], text=True, capture_output=True, timeout=GUARD_S, stdin=subprocess.DEVNULL,
                              env={**conftest.plain_env(), "XDG_CONFIG_HOME": str(self.folder / "config"), "HOME": str(self.folder),
                                   "XDG_RUNTIME_DIR": str(self.folder / "nothing"), "LC_ALL": "C.UTF-8", **(env or {})})

    def end(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(GUARD_S)


def raw(gate, text=b""):
    """A connection over TLS on which the client has sent this and nothing else."""
    context = ssl.create_default_context(cafile=gate.authority.cert)
    sock = socket.create_connection(("127.0.0.1", gate.port), timeout=GUARD_S)
    wrapped = context.wrap_socket(sock, server_hostname="127.0.0.1")
    wrapped.sendall(text)
    return wrapped


@pytest.fixture
def tided(place, public_dir):
    """Root's daemon, which believes the gateway's user."""
    conf = public_dir / "tide.conf"
    conf.write_text(f"[daemon]\ncpus=0-7\npolicy=equal\ngateway-user={GATE}\n")
    conf.chmod(0o644)
    return place.daemon("--config", conf).start()


@pytest.fixture
def gate(build_dir, public_dir, tided):
    result = Gate(build_dir, public_dir, tided)
    yield result
    result.end()
