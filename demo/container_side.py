# SPDX-License-Identifier: Apache-2.0
"""The two ways of side.py with every program in a container: `docker run`, `tide docker run`.

The Docker Engine is one of the demo's own, with its data, socket and control groups for itself, and
is gone afterwards. The image is empty directories; the machine's /usr and the project's Python
environment are mounted into it, so that nothing has to be fetched.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import side

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "component"))

from engine import IMAGE, Engine, program_mounts  # noqa: E402

START_S = 10
END_S = 10


def start_engine():
    return Engine("docker").start().make_image()


class Stock:
    key, title = "docker-stock", "containers, uncontrolled"
    child = False  # it is docker's client

    def __init__(self, engine, out):
        self.engine, self.out = engine, out

    def docker_run(self):
        return ["docker", "run"]

    def command(self, name, command):
        """In the foreground: its output and its status are the container's."""
        return [*self.docker_run(), "--rm", "--name", name, "--network", "host", *program_mounts(sys.prefix, sys.base_prefix, ROOT),
                f"--volume={self.out}:{self.out}",
                f"--workdir={ROOT}", IMAGE, *command]

    def environment(self):
        return {**side.without_our_variables(), "DOCKER_HOST": f"unix://{self.engine.socket}"}

    def pid(self, name):
        status, answer = self.engine.api("GET", f"/containers/{name}/json")
        return answer["State"]["Pid"] if status == 200 else 0

    def observe(self, names):
        found = {name: pid for name in names if (pid := self.pid(name))}
        return side.Stock().observe(found)

    def close(self):
        pass


class Threadtide(Stock):
    key, title = "docker-threadtide", "containers under Threadtide"

    def __init__(self, build, engine, out):
        super().__init__(engine, out)
        self.tide = str(build / "tide")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tide-demo-"))
        self.folder.chmod(0o755)
        self.daemon = subprocess.Popen(
            [str(build / "tided"), "--dir", str(self.folder), "--engine", str(engine.socket)],
            env=self.environment(), stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + START_S
        while self.ps() is None and time.monotonic() < deadline:
            time.sleep(0.05)

    def docker_run(self):
        return [self.tide, "docker", "run"]

    def environment(self):
        return {**super().environment(), "TIDE_DIR": str(self.folder),
                "TIDE_CLAIMS_DIR": str(self.folder / "claims")}

    def ps(self):
        answer = subprocess.run([self.tide, "ps", "--json"], env=self.environment(), check=False,
                                capture_output=True, text=True, timeout=side.CALL_TIMEOUT_S)
        return json.loads(answer.stdout) if answer.returncode == 0 else None

    def observe(self, names):
        return {job["name"]: {"threads": job["active"], "cores": job["cores"], "reason": job["reason"]}
                for job in self.ps() or [] if job["name"] in names and job["active"]}

    def close(self):
        self.daemon.send_signal(signal.SIGTERM)
        try:
            self.daemon.wait(END_S)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            self.daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def check():
    if os.geteuid() != 0:
        sys.exit("demo: a Docker Engine of one's own needs root.")
    if not shutil.which("dockerd"):
        sys.exit("demo: there is no dockerd. Run `make demo-docker`, or install docker.io.")
