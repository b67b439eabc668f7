#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a resize of containers costs, against a real Docker Engine of its own (root only).

Two kinds of containers. In the first rows a program speaks as an agent does and acknowledges at once:
they are the daemon's and the engine's part alone, no resize of a training. In the rows `real TensorFlow`
a model of models.py trains in the container with the agent, and a resize ends when its threads are
parked or awake and its cores are in place. Each row is in ms; `own part` is the median of the resizes
less that of the bare updates, which were made in turn with them.

    containers.py [--resizes 100] [--many 200] [--model mlp]
"""

import argparse
import contextlib
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import harness

TESTS = harness.ROOT / "tests" / "component"
sys.path.insert(0, str(TESTS))

from box import Box, connected, job_of  # noqa: E402
from daemon import Place, eventually  # noqa: E402
from engine import IMAGE, Engine, program_mounts  # noqa: E402

WARM_S = 10  # from the model's pools to steps like all others
EXCLUSIVE = {"io.threadtide.placement": "exclusive"}


def compile_peer(folder):
    program = pathlib.Path(folder) / "fake_peer"
    src = harness.ROOT / "src"
    subprocess.run(["gcc", "-O1", f"-I{src}", "-D_GNU_SOURCE", TESTS / "fake_peer.c",
                    src / "proto/proto.c", src / "base/error.c", src / "base/latency.c", "-o", program],
                   check=True)
    return program


@contextlib.contextmanager
def own_engine():
    """A place for daemons and a Docker Engine, both gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        place = Place(harness.BUILD / "tided", compile_peer(folder))
        engine = Engine("docker")
        try:
            yield place, engine.start().make_image()
        finally:
            place.end()
            engine.end()


def row(what, values, goal=None):
    ms = [1000 * v for v in values]
    result = {"what": what, "unit": "ms", "n": len(ms), "p50": round(statistics.median(ms), 2),
              "p99": round(harness.quantile(ms, 0.99), 2), "max": round(max(ms), 2),
              "goal": goal if goal is not None else ""}
    print(*result.values(), flush=True)
    return result


def timed(call):
    begin = time.monotonic()
    call()
    return time.monotonic() - begin


def patch(tided, box, **body):
    status, answer = tided.api("PATCH", f"/v1/jobs/{box.name}", body)
    assert status == 200 and answer["status"] == "done", answer


def resizes(tided, engine, place, n):
    """Exclusive: threads and cpuset. A second container stands by, with which bare updates are made."""
    box = Box(engine, place, "resized", "--max 8", labels=EXCLUSIVE)
    bare = Box(engine, place, "bare", agent=False)
    connected(tided, box)
    eventually(lambda: box.cpus() == "0-1")
    update, shrink, grow = [], [], []
    for i in range(n):
        update.append(timed(lambda: bare.update(CpusetCpus=f"0-{i % 2}")))
        shrink.append(timed(lambda: patch(tided, box, threads=1)))
        assert box.cpus() in ("0", "1")
        update.append(timed(lambda: bare.update(CpusetCpus=f"0-{(i + 1) % 2}")))
        grow.append(timed(lambda: patch(tided, box, threads=2)))
        assert box.cpus() == "0-1"
    both = shrink + grow
    own = statistics.median(both) - statistics.median(update)
    rows = [row("bare update of a cpuset by the engine", update),
            row("resize, exclusive, acknowledged at once: command to cores in place", both, 60),
            row("… shrink, acknowledged at once", shrink), row("… grow, acknowledged at once", grow),
            row("… own part (difference of the medians)", [own], 3)]
    box.remove()
    bare.remove()
    return rows


def training(tided, engine, name, model):
    """`tide docker run` of a model, until it is malleable and has made steps."""
    base = subprocess.run([harness.PYTHON, "-c", "import sys; print(sys.base_prefix)"], check=True,
                          capture_output=True, text=True).stdout.strip()
    mounts = program_mounts(pathlib.Path(harness.PYTHON).parent.parent, base, harness.ROOT)
    environment = {**os.environ, "TIDE_DIR": str(tided.dir), "DOCKER_HOST": f"unix://{engine.socket}"}
    process = subprocess.Popen(
        [harness.TIDE, "docker", "run", "--placement", "exclusive", "--rm", "--name", name, "--network",
         "host", *mounts, IMAGE, harness.PYTHON, harness.MODELS, "--model", model, "--seconds",
         harness.FOREVER], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    eventually(lambda: any(j["name"] == name and j["malleable"] and j["active"] == 2 for j in tided.jobs()),
               guard=120)
    time.sleep(WARM_S)
    return process


def real_resizes(tided, engine, model, n):
    process = training(tided, engine, "training", model)
    shrink, grow = [], []

    def to(threads):
        status, answer = tided.api("PATCH", "/v1/jobs/training", {"threads": threads})
        assert status == 200 and answer["status"] == "done", answer
    for _ in range(n):
        shrink.append(timed(lambda: to(1)))
        time.sleep(0.2)  # some steps in between
        grow.append(timed(lambda: to(2)))
        time.sleep(0.2)
    engine.api("DELETE", "/containers/training?force=1")
    process.wait()
    eventually(lambda: not tided.jobs())
    what = f"resize, exclusive, real TensorFlow ({model}): command to cores and threads in place"
    return [row(what, shrink + grow), row("… shrink, real", shrink), row("… grow, real", grow)]


def arrivals(tided, engine, place, n):
    """From the engine's answer to `start` to the moment that both have their new cores."""
    first = Box(engine, place, "first", "--max 8", labels=EXCLUSIVE)
    connected(tided, first)
    times = []
    for i in range(n):
        eventually(lambda: first.cpus() == "0-1")
        second = Box(engine, place, f"second{i}", "--max 8", labels=EXCLUSIVE, start=False)
        second.go()
        second.start()
        begin = time.monotonic()
        eventually(lambda: sorted((first.cpus(), second.cpus())) == ["0", "1"])
        times.append(time.monotonic() - begin)
        second.remove()
        eventually(lambda: job_of(tided, second) is None)
    first.remove()
    return [row("arrival of a container to the new allocation in place", times, 150)]


def cost_of(tided, seconds):
    def cpu_s():
        fields = pathlib.Path(f"/proc/{tided.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    begin, cpu = time.monotonic(), cpu_s()
    time.sleep(seconds)
    percent = 100 * (cpu_s() - cpu) / (time.monotonic() - begin)
    status = pathlib.Path(f"/proc/{tided.process.pid}/status").read_text()
    rss = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    return percent, rss / 1024


def many(tided, engine, place, n):
    """Half of them sleep, half spin (all on a low weight of their own: the machine has few cores)."""
    boxes = []
    for i in range(n):
        command = ["/bin/sh", "-c", "while :; do :; done"] if i % 2 else ["/bin/sleep", "3600"]
        boxes.append(Box(engine, place, f"many{i}", command=command, labels={"io.threadtide": "true"}))
    eventually(lambda: len(tided.jobs()) == n, guard=120)
    time.sleep(5)
    percent, rss = cost_of(tided, 20)
    rows = [{"what": f"tided with {n} containers: CPU", "unit": "% of a core", "n": 1,
             "p50": round(percent, 2), "p99": "", "max": "", "goal": 3},
            {"what": f"tided with {n} containers: resident memory", "unit": "MiB", "n": 1,
             "p50": round(rss, 1), "p99": "", "max": "", "goal": 30}]
    for r in rows:
        print(*r.values(), flush=True)
    for box in boxes:
        os.kill(box.inspect()["State"]["Pid"], signal.SIGKILL)
        box.remove()
    return rows


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--resizes", type=int, default=100)
    p.add_argument("--model", default="mlp", help="which trains in a container (mlp)")
    p.add_argument("--many", type=int, default=200)
    args = p.parse_args()
    if os.geteuid() != 0:
        p.error("a container engine of one's own needs root")
    with own_engine() as (place, engine):
        tided = place.daemon("--engine", engine.socket).start()
        rows = resizes(tided, engine, place, args.resizes)
        rows += real_resizes(tided, engine, args.model, args.resizes)
        rows += arrivals(tided, engine, place, max(10, args.resizes // 5))
        if args.many:
            rows += many(tided, engine, place, args.many)
        harness.save("containers", rows)


if __name__ == "__main__":
    main()
