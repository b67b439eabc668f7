# SPDX-License-Identifier: Apache-2.0
"""A hub's directory, its broker (a real mosquitto), and keys of units, for tests."""
import json
import os
import socket
import subprocess

from daemon import GUARD_S, eventually

KWH = 3_600_000_000_000  # in microjoules
# Tests of root have directories that nobody else can reach: root's broker has to be asked for.
AS_ROOT = ("--user", "root") if os.geteuid() == 0 else ()
TOOLS = ("mosquitto_pub", "mosquitto_sub", "mosquitto_rr", "openssl")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Hub:
    """A hub's directory, its broker, and the keys of its units."""

    def __init__(self, program, folder):
        self.program, self.folder, self.state = program, folder, folder / "state"
        self.port, self.broker = free_port(), None

    def run(self, *arguments):
        done = subprocess.run([self.program, *map(str, arguments), "--state", self.state],
                              capture_output=True, text=True, timeout=GUARD_S)
        return done.returncode, done.stdout, done.stderr

    def start(self):
        with open(self.folder / "broker.log", "ab") as log:
            self.broker = subprocess.Popen(
                [self.program, "broker", "--state", self.state, "--port", str(self.port),
                 "--address", "127.0.0.1", "--host", "127.0.0.1", *AS_ROOT], stdout=log, stderr=log)
        eventually(self.listens)

    def listens(self):
        assert self.broker.poll() is None, self.log()
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def log(self):
        return (self.folder / "broker.log").read_text()

    def stop(self):
        if self.broker:
            self.broker.terminate()
            self.broker.wait(GUARD_S)

    def request(self, name):
        key, request = self.folder / f"{name}.key", self.folder / f"{name}.csr"
        subprocess.run(["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-keyout", key, "-out", request, "-subj", f"/CN={name}"],
                       check=True, capture_output=True)
        return request

    def enrol(self, name, as_name=None):
        code, cert, err = self.run("unit", "sign", as_name or name, self.request(name))
        assert code == 0, err
        (self.folder / f"{name}.crt").write_text(cert)

    def client(self, program, name, *options):
        cert = self.state / "hub" if name == "hub" else self.folder / name
        return [program, "-V", "5", "-h", "127.0.0.1", "-p", str(self.port), "-q", "1",
                "--cafile", self.state / "trust/ca.crt", "--cert", f"{cert}.crt", "--key", f"{cert}.key",
                *map(str, options)]

    def publish(self, name, topic, text, *options):
        done = subprocess.run(self.client("mosquitto_pub", name, "-t", topic, "-m", text, *options),
                              capture_output=True, text=True, timeout=GUARD_S)
        return done.returncode, done.stderr

    def listen(self, name, topic, *options):
        """A client that has subscribed: what it hears stands in its file."""
        heard = self.folder / f"{name}.heard"
        with open(heard, "wb") as out:
            process = subprocess.Popen(
                ["stdbuf", "-oL", *self.client("mosquitto_sub", name, "-d", "-v", "-t", topic, *options)],
                stdout=out, stderr=subprocess.STDOUT)
        eventually(lambda: "Subscribed" in heard.read_text() or process.poll() is not None)
        return process, heard


def end_listener(process):
    """Ends a mosquitto_sub: its handler of SIGTERM waits for ever if the lock that it takes is its own program's."""
    process.kill()
    process.wait(GUARD_S)


class Serving(Hub):
    def __init__(self, program, folder):
        super().__init__(program, folder)
        self.process, self.options, self.env = None, (), None

    def serve(self):
        with open(self.folder / "hub.log", "ab") as log:
            before = self.said().count("connected to the broker")
            self.process = subprocess.Popen(
                [self.program, "serve", "--state", self.state, "--broker", f"127.0.0.1:{self.port}",
                 "--listen", "127.0.0.1:0", *self.options],
                stdout=log, stderr=log, env={**os.environ, **(self.env or {})})
        eventually(lambda: self.said().count("connected to the broker") > before)

    def said(self):
        path = self.folder / "hub.log"
        return path.read_text() if path.exists() else ""

    def kill(self):
        self.process.kill()
        self.process.wait(GUARD_S)

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            assert self.process.wait(GUARD_S) == 0
        super().stop()

    def send(self, unit, message, wait=10):
        """Sends records; the receipt, or None if none came."""
        text = message if isinstance(message, str) else json.dumps(message)
        done = subprocess.run(
            self.client("mosquitto_rr", unit, "-t", f"tide/1/{unit}/up/energy", "-e",
                        f"tide/1/{unit}/down/receipt", "-m", text, "-W", wait),
            capture_output=True, text=True, timeout=GUARD_S + wait)
        return json.loads(done.stdout) if done.stdout.strip() else None

    def energy(self):
        """(unit, point) -> kWh of everything that is stored; nothing of points of which no energy is known ("-")."""
        code, out, err = self.run("energy")
        assert code == 0, err
        return {tuple(line.split()[:2]): float(line.split()[4]) for line in out.splitlines()[1:] if line.split()[4] != "-"}
