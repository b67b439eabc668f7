# SPDX-License-Identifier: Apache-2.0
"""A hub's directory, its broker (a real mosquitto), and keys of units, for tests."""
import socket
import subprocess

from daemon import GUARD_S, eventually

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
                 "--address", "127.0.0.1", "--host", "127.0.0.1"], stdout=log, stderr=log)
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


def end(process):
    process.terminate()
    process.wait(GUARD_S)
