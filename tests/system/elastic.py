# SPDX-License-Identifier: Apache-2.0
"""Drives elastic_chief.py: a real training under stock TensorFlow, its nodes real processes."""

import json
import pathlib
import queue
import signal
import subprocess
import sys
import threading
import time

from peer import wait_until
from program import BUILD, HERE, ROOT, clean_env

sys.path.insert(0, str(ROOT / "python"))

from threadtide.tensorflow import LocalCluster  # needs no TensorFlow

GUARD_S = 120  # TensorFlow is imported under load
SLOTS = 4


def tensorflow_of(python):
    """Where that interpreter has TensorFlow, and its version."""
    site = next((pathlib.Path(python).parent.parent / "lib").glob("python3*/site-packages"))
    version = next(site.glob("tensorflow_cpu-*.dist-info")).name.split("-")[1].split(".dist")[0]
    return str(site / "tensorflow"), version


def cluster(python, **more):
    settings = {"ps": 1, "workers": 1, "threads": 1, "slots": SLOTS, **more}
    return LocalCluster(tensorflow=tensorflow_of(python)[0], program=str(BUILD / "tide-tfnode"),
                        env={"TF_CPP_MIN_LOG_LEVEL": "2"}, **settings)


class Chief:
    """The training's process."""

    def __init__(self, python, env, **options):
        self._log = open(options.pop("log"), "w+b")
        self.process = subprocess.Popen(
            [python, str(HERE / "elastic_chief.py"), json.dumps(options)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self._log, text=True,
            env=clean_env(TF_CPP_MIN_LOG_LEVEL=2, **env))
        self._answers = {}  # kind: queue
        self._lock = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()
        try:
            self._answer("ready")
        except BaseException:
            self.kill()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        self._log.close()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def _queue(self, kind):
        with self._lock:
            return self._answers.setdefault(kind, queue.Queue())

    def _read(self):
        for line in self.process.stdout:
            answer = json.loads(line)
            for kind in answer:
                self._queue(kind).put(answer)

    def _answer(self, kind):
        end = time.monotonic() + GUARD_S
        while True:
            try:
                return self._queue(kind).get(timeout=0.1)
            except queue.Empty:
                if time.monotonic() < end and self.process.poll() is None:
                    continue
                self.show_threads()
                raise AssertionError(f"no {kind}; the chief's last words:\n{self.words()[-20000:]}") from None

    def show_threads(self):
        """Where the threads of the chief and of all nodes are, for whoever looks for the cause of a hang: Python's in
        the chief's log, the others' in a file beside it."""
        self.process.send_signal(signal.SIGUSR2)
        with open(f"{self._log.name}.threads", "wb") as out:
            for pid in pathlib.Path(f"/proc/self/task/{threading.main_thread().native_id}/children").read_text().split():
                subprocess.run(["gdb", "-p", pid, "-batch", "-ex", "thread apply all backtrace"], stdout=out, stderr=out,
                               stdin=subprocess.DEVNULL, timeout=GUARD_S, check=False)

    def words(self):
        self._log.flush()
        return pathlib.Path(self._log.name).read_text(errors="replace")

    def order(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def begin(self, steps):
        self.order("run", steps)

    def stepped(self):
        """Waits for what was begun; the number of steps that are done."""
        return self._answer("step")["step"]

    def run(self, steps):
        self.begin(steps)
        return self.stepped()

    def stumble(self, steps):
        """One step fails while @steps others are done; the number of steps that are done."""
        self.order("stumble", steps)
        return self._answer("stumbled")["stumbled"]

    def checkpoint(self):
        self.order("checkpoint")
        return self._answer("checkpoint")["checkpoint"]

    def function(self):
        """Seconds that a function takes that is new to TensorFlow."""
        self.order("function")
        return self._answer("function")["function"]

    def evaluate(self):
        """A sum over the weights: as a scheduled function saw them, and a function of the chief's."""
        self.order("evaluate")
        answer = self._answer("weights")
        return answer["weights"], answer["own"]

    def report(self):
        self.order("report")
        return self._answer("report")["report"]

    def wait_nodes(self, **indices):
        """Until exactly these serve: wait_nodes(worker=[0, 2])."""
        def serve():
            nodes = self.report()["nodes"]
            return all(sorted(n["index"] for n in nodes
                              if n["role"] == role and n["state"] == "in") == wanted
                       for role, wanted in indices.items())
        wait_until(serve, f"nodes {indices}", GUARD_S)

    def end(self):
        self.order("end")
        answer = self._answer("digest")
        assert self.process.wait(GUARD_S) == 0, self.words()[-4000:]
        return answer
