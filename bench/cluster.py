# SPDX-License-Identifier: Apache-2.0
"""Shared parts of the measurements of elastic clusters: groups with a share of the processor, trainings as
processes, another workload beside them.

A worker is a real process with a quota of its own in cgroup v1's cpu hierarchy (as root), so that a
cluster of four quarter cores is measurable on a machine with two: the chief and the parameter
servers are not limited.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import harness

sys.path[:0] = [str(harness.ROOT / "python"), str(harness.ROOT / "demo")]

import digits  # noqa: E402
from threadtide.tensorflow import LocalCluster  # noqa: E402

CPU = pathlib.Path("/sys/fs/cgroup/cpu")
ACCOUNT = pathlib.Path("/sys/fs/cgroup/cpuacct")
PERIOD_US = 20_000
TRAIN = str(harness.ROOT / "bench" / "cluster_train.py")
LIMIT_S = 400


class Groups:
    """Control groups of our own below one folder; gone with it, and what is in them killed."""

    def __init__(self):
        self.name = f"tide-bench-{os.getpid()}"
        self.made = []
        self.roots = list({os.path.realpath(root): root for root in (CPU, ACCOUNT)}.values())
        for root in self.roots:
            (root / self.name).mkdir()

    def limited(self, cores):
        """A command in front of another one: it runs with so many cores."""
        group = f"{self.name}/{len(self.made)}"
        self.made.append(group)
        for root in self.roots:
            (root / group).mkdir()
        self.set(group, cores)
        files = " ".join(f"{root}/{group}/cgroup.procs" for root in self.roots)
        return ["sh", "-c", f'for f in {files}; do echo $$ >$f; done; exec "$0" "$@"']

    def set(self, group, cores):
        (CPU / group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (CPU / group / "cpu.cfs_quota_us").write_text(str(int(cores * PERIOD_US)))

    def used_s(self):
        """Processor time of all groups so far."""
        return int((ACCOUNT / self.name / "cpuacct.usage").read_text()) / 1e9

    def end(self):
        for group in [*self.made, ""]:
            for root in self.roots:
                self._remove(root / (group or self.name))

    def _remove(self, path):
        end = time.monotonic() + 10
        while path.exists():
            for pid in (path / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), 9)
            with contextlib.suppress(OSError):
                path.rmdir()
            if time.monotonic() > end:
                raise RuntimeError(f"{path} is still in use")
            time.sleep(0.02)


class Training:
    """A chief, and the events that it writes."""

    def __init__(self, cluster, folder, name, *options, **environment):
        self.log = pathlib.Path(folder) / f"{name}.jsonl"
        self.words = pathlib.Path(folder) / f"{name}.log"
        self.log.touch()
        with open(self.words, "wb") as words:
            self.process = subprocess.Popen(
                [harness.PYTHON, TRAIN, "--data", str(data()), "--log", str(self.log),
                 *map(str, options)], stdout=words, stderr=words, stdin=subprocess.DEVNULL,
                env={**clean_environment(), **cluster.env, **environment})

    def events(self):
        return [json.loads(line) for line in self.log.read_text().split("\n")[:-1]]

    def wait(self, found, limit_s=LIMIT_S):
        """Returns the result of @found(events) as soon as that is something."""
        end = time.monotonic() + limit_s
        while True:
            ended = self.process.poll()
            if result := found(self.events()):
                return result
            if ended is not None or time.monotonic() > end:
                raise RuntimeError(f"{self.log.stem} ended with {ended}:\n"
                                   + self.words.read_text(errors="replace")[-3000:])
            time.sleep(0.02)

    def wait_epoch(self, number):
        return self.wait(lambda events: any(e.get("epoch", -1) >= number for e in events))

    def finish(self):
        """Waits for its end; returns the epochs' times, losses and sizes, and its last words."""
        last = self.wait(lambda events: next((e for e in events if "digest" in e), None))
        self.process.wait()
        return {**last, **outcome(self.events())}

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def outcome(events):
    """The epochs' times, losses and sizes, from what a chief has written."""
    epochs = [e for e in events if "epoch" in e]
    times = [next(e["t"] for e in events if "ready" in e), *(e["t"] for e in epochs)]
    return {"total_s": times[-1] - times[0],
            "epoch_s": [round(b - a, 2) for a, b in zip(times, times[1:])],
            "losses": [e["loss"] for e in epochs], "workers": [e["workers"] for e in epochs],
            "ps": [e["ps"] for e in epochs], "computing": [e["computing"] for e in epochs]}


def clean_environment():
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TIDE_", "LD_PRELOAD"))}
    return {**kept, "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}


def data():
    return digits.prepare(harness.ROOT / "demo" / ".cache")[0]


def local_cluster(**settings):
    tensorflow = next(pathlib.Path(harness.PYTHON).parent.parent.glob(
        "lib/python3*/site-packages/tensorflow"))
    return LocalCluster(program=str(harness.BUILD / "tide-tfnode"), tensorflow=str(tensorflow),
                        env={"TF_CPP_MIN_LOG_LEVEL": "3"},
                        **{"threads": 1, "slots": 8, **settings})


@contextlib.contextmanager
def scratch():
    """A folder whose logs are kept if something goes wrong."""
    folder = tempfile.mkdtemp(prefix="tide-bench-")
    try:
        yield pathlib.Path(folder)
    except BaseException:
        print(f"logs are kept in {folder}", file=sys.stderr)
        raise
    for path in pathlib.Path(folder).iterdir():
        path.unlink()
    os.rmdir(folder)
