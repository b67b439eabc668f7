#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How soon after its start a node's TensorFlow port listens, in seconds: in turn

  tide-tfnode        with the agent inside
  without agent      the same with the agent switched off (TIDE_DISABLE)
  Python             tf.distribute.Server, as TensorFlow's tutorial starts a parameter server

    tfnode_start.py [--rounds 11]

From fork to the first accepted connection, as another process sees it. Files are in the page cache:
a first round is not counted.
"""
import argparse
import itertools
import os
import random
import socket
import statistics
import subprocess
import sys
import time

import harness

sys.path.insert(0, str(harness.ROOT / "python"))
from threadtide.tensorflow import local  # noqa: E402

SERVER = """
import sys, tensorflow as tf
spec = tf.train.ClusterSpec({"ps": ["localhost:" + sys.argv[1]]})
tf.distribute.Server(spec, job_name="ps", task_index=0, protocol="grpc").join()
"""
PROBE_S = 0.002
GUARD_S = 120


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def command(side, port):
    if side == "Python":
        return [harness.PYTHON, "-c", SERVER, port]
    return [harness.BUILD / "tide-tfnode", "--role", "ps", "--port", port, "--control-port", 0,
            "--tensorflow", TENSORFLOW]


def environment(side):
    env = {k: v for k, v in os.environ.items() if not k.startswith("TIDE_") and k != "LD_PRELOAD"}
    env["TF_CPP_MIN_LOG_LEVEL"] = "3"
    return env | ({"TIDE_DISABLE": "1"} if side == "without agent" else {})


def used(pid):
    """Processor seconds and MiB of the process so far."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    with open(f"/proc/{pid}/statm") as statm:
        pages = int(statm.read().split()[1])
    return ((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
            pages * os.sysconf("SC_PAGE_SIZE") / 2**20)


def measure(side):
    port = free_port()
    began = time.monotonic()
    process = subprocess.Popen([str(word) for word in command(side, port)], env=environment(side),
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not listens(port):
            if process.poll() is not None or time.monotonic() - began > GUARD_S:
                sys.exit(f"{side} does not listen")
            time.sleep(PROBE_S)
        return time.monotonic() - began, *used(process.pid)
    finally:
        process.kill()
        process.wait()


def interval(values):
    found = harness.ratio_stats(values)
    return f"{found['ratio']:.2f} [{found['low']:.2f}, {found['high']:.2f}]"


def row(side, found, python):
    """Medians with their 95 % intervals."""
    seconds, cpu, memory = zip(*found)
    ratios = [theirs[0] / ours for ours, theirs in zip(seconds, python)]
    return {"started": side, "listening after s (goal ≤ 1)": interval(seconds),
            "max": round(max(seconds), 2), "times as fast as Python": interval(ratios),
            "CPU s": round(statistics.median(cpu), 2), "MiB": round(statistics.median(memory)),
            "rounds": len(found)}


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--rounds", type=int, default=11)
    rounds = arguments.parse_args().rounds
    sides = ["tide-tfnode", "without agent", "Python"]
    orders = itertools.cycle(random.Random(1).sample(list(itertools.permutations(sides)), 6))
    found = {side: [] for side in sides}
    for number in range(rounds + 1):
        for side in next(orders):
            result = measure(side)
            if number > 0:
                found[side].append(result)
    rows = [row(side, found[side], found["Python"]) for side in sides]
    for each in rows:
        print("  ".join(f"{name}: {value}" for name, value in each.items()))
    harness.save("tfnode-start", rows)


TENSORFLOW = os.environ.get("TIDE_TENSORFLOW") or local.find_tensorflow()

if __name__ == "__main__":
    main()
