#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server with a promise of latency beside a training: `tide run --slo`, against static splits and weights.

    promise.py [--rounds 3] [--seconds 40] [--loads light,half,heavy,bursts] [--sides promise,parties,split,weights,stock]

Both programs are stock PyTorch: serve.py, whose requests arrive at random, and the training of runtime_work.py (cnn). The
rule of the loads, made before any run: a request on one core takes s; the promise is that 99 of 100 take at most 6 s. Light
is 0.15 / s requests a second, half 0.5 / s, heavy 1.2 / s (more than one core can serve); bursts is 0.1 / s and 1.2 / s, eight seconds each.

    promise    both by `tide run`, the server with --slo
    parties    both by `tide run` without a promise, threads and weights set from outside as PARTIES does (class Parties)
    split      one core each, one thread each (taskset): on two cores the only static split in which both run
    weights    both with all cores; the training at the lowest niceness
    stock      both as they are

For each: the part of the seconds with requests in which their p99 was at most the promise (a request counts in the second of its arrival),
the p99 of all, and the training's steps a second. Sides take turns within a round, each run begins anew; the first ten seconds do not
count. Goals: 0.99 of the seconds, and 0.95 of the training's steps under the best static split that keeps the promise; where
none does, steps are beyond what a static split could have.
"""

import argparse
import contextlib
import os
import pathlib
import statistics
import subprocess
import threading
import time

import harness

HERE = pathlib.Path(__file__).resolve().parent
LOADS = {"light": (0.15, None), "half": (0.5, None), "heavy": (1.2, None), "bursts": (0.1, (16, 1.2))}
PROMISE, SETTLE_S, WINDOW_S, PATIENCE_S = 6, 10, 1, 30
SIDES = ("promise", "parties", "split", "weights", "stock")
KEPT_GOAL, STEPS_GOAL = 0.99, 0.95
ONE = {"OMP_NUM_THREADS": "1"}


def service_s(bench):
    """Seconds of a request on one core, while nothing else runs."""
    done = subprocess.run(["taskset", "-c", "0", harness.TORCH, HERE / "serve.py", "--calibrate"], env={**bench.env, **ONE},
                          capture_output=True, text=True, check=True, timeout=120)
    return float(done.stdout)


def commands(bench, side, load, s, seconds):
    """(server, training), each a command and its environment."""
    rate, burst = LOADS[load]
    serve = [harness.TORCH, str(HERE / "serve.py"), "--rate", f"{rate / s:.4f}", "--seconds", str(seconds + SETTLE_S),
             "--out", str(bench.folder / "requests")]
    if burst:
        serve += ["--burst", f"{burst[0]}:{burst[1] / s:.4f}"]
    train = [harness.TORCH, str(HERE / "runtime_work.py"), "--work", "cnn", "--seconds", harness.FOREVER]
    python = {"PYTHONPATH": str(harness.ROOT / "python")}
    if side == "promise":
        run = [harness.TIDE, "run", "--name"]
        return (([*run, "serve", "--slo", f"p99={round(PROMISE * s * 1000)}ms", "--", *serve], {**bench.tide_env, **python}),
                ([*run, "train", "--", *train], bench.tide_env))
    if side == "parties":
        run = [harness.TIDE, "run", "--name"]
        return ([*run, "serve", "--", *serve], bench.tide_env), ([*run, "train", "--", *train], bench.tide_env)
    if side == "split":
        return ((["taskset", "-c", "0", *serve], {**bench.env, **ONE}), (["taskset", "-c", "1", *train], {**bench.env, **ONE}))
    nice = ["nice", "-n", "19"] if side == "weights" else []
    return (serve, bench.env), ([*nice, *train], bench.env)


class Parties(threading.Thread):
    """The controller of PARTIES (Chen, Delimitrou, Martinez, ASPLOS 2019) with Threadtide's actuators, `tide set`.

    Each half second it takes the p99 of the requests that were answered meanwhile, as the clients see it. Less slack than 5 %
    of the promise gives the server a core more, of the training; more than 20 % takes one back, which is undone and not
    tried again for 30 s if the promise breaks at the next look. On the last step the server has all cores, and the
    training one thread at a hundredth of its weight, where PARTIES would stop it: Threadtide does not stop it either.
    """
    LOOK_S, LITTLE, MUCH, BAN_S = 0.5, 0.05, 0.20, 30

    def __init__(self, bench, promise_s):
        super().__init__(daemon=True)
        self.bench, self.promise_s, self.ended = bench, promise_s, threading.Event()
        self.cores = os.cpu_count()
        self.step, self.read, self.lowered, self.banned_until, self.changes = 0, 0, False, 0.0, 0

    def go(self, step):
        if not 1 <= step <= self.cores or step == self.step:
            return
        self.bench.cli("set", "serve", "--threads", str(step), "--weight", "10000" if step == self.cores else "100", "--wait", "200")
        self.bench.cli("set", "train", "--threads", str(max(1, self.cores - step)), "--wait", "200")
        self.step, self.changes = step, self.changes + 1

    def look(self, now):
        lines = (self.bench.folder / "requests").read_text().split("\n")[:-1]
        took, self.read = [float(line.split()[1]) for line in lines[self.read:]], len(lines)
        slack = 1 - harness.quantile(took, 0.99) / self.promise_s if took else 1.0
        lowered, self.lowered = self.lowered, False
        if slack < self.LITTLE:
            if lowered:
                self.banned_until = now + self.BAN_S
            self.go(self.step + 1)
        elif slack > self.MUCH and now >= self.banned_until and self.step > 1:
            self.go(self.step - 1)
            self.lowered = True

    def run(self):
        self.go(1)
        while not self.ended.wait(self.LOOK_S):
            self.look(time.monotonic())

    def end(self):
        self.ended.set()
        self.join()


def measured(side, load, s, seconds):
    with harness.Bench() as bench:
        (serve, serve_env), (train, train_env) = commands(bench, side, load, s, seconds)
        training = bench._job(train, train_env, "train")
        training.wait_steps(5)
        server = subprocess.Popen(serve, env=serve_env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=open(bench.folder / "serve.log", "w"))
        try:
            while not (bench.folder / "requests").exists():
                if server.poll() is not None:
                    raise RuntimeError((bench.folder / "serve.log").read_text()[-2000:])
                time.sleep(0.05)
            parties = Parties(bench, PROMISE * s) if side == "parties" else None
            if parties:
                parties.start()
            begin = time.monotonic() + SETTLE_S
            time.sleep(SETTLE_S + seconds)
            end = time.monotonic()
            if parties:
                if not parties.is_alive():
                    raise RuntimeError("the controller of the side 'parties' has failed: see above")
                parties.end()
            steps = sum(begin <= t < end for t in training.steps())
            why = bench.cli("explain", "serve") if side == "promise" and server.poll() is None else ""
            with contextlib.suppress(subprocess.TimeoutExpired):  # then it is so far behind that what waits is broken, too
                server.wait(PATIENCE_S)
        finally:
            behind = server.poll() is None
            server.kill()
        return judged(bench.folder / "requests", begin, seconds, PROMISE * s, behind) | {"steps": steps / (end - begin), "why": why}


def judged(path, begin, seconds, promise_s, behind):
    """@behind: requests were left unanswered, so every second after the last answered one is broken."""
    windows = {}
    for line in path.read_text().splitlines():
        at, took = map(float, line.split())
        if begin <= at < begin + seconds:
            windows.setdefault(int((at - begin) / WINDOW_S), []).append(took)
    kept = [harness.quantile(took, 0.99) <= promise_s for took in windows.values()]
    kept += [False] * (int(seconds / WINDOW_S) - 1 - max(windows, default=-1)) * behind
    every = [took for some in windows.values() for took in some]
    return {"windows": len(kept), "kept": sum(kept), "requests": len(every),
            "p99_ms": 1000 * harness.quantile(every, 0.99) if every else None}


def row(load, s, runs):
    found = {side: {"kept": sum(r["kept"] for r in some) / max(1, sum(r["windows"] for r in some)),
                    "p99_ms": statistics.median(r["p99_ms"] or float("inf") for r in some), "steps": statistics.median(r["steps"] for r in some)}
             for side, some in runs.items()}
    line = {"model": load, "rounds": len(runs["promise"]), "request ms": round(1000 * s, 1), "promise ms": round(6000 * s, 1)}
    for side, f in found.items():
        line |= {f"{side} kept": round(f["kept"], 4), f"{side} p99 ms": round(f["p99_ms"], 1), f"{side} steps/s": round(f["steps"], 2)}
    if "parties" in found:
        line["steps promise / parties"] = round(statistics.median(a["steps"] / b["steps"] for a, b in zip(runs["promise"], runs["parties"])), 3)
    split_keeps = found["split"]["kept"] >= KEPT_GOAL
    ratios = [a["steps"] / b["steps"] for a, b in zip(runs["promise"], runs["split"])]
    line["steps promise / split"] = round(statistics.median(ratios), 3)
    line["0.99 of the seconds"] = "met" if found["promise"]["kept"] >= KEPT_GOAL else "missed"
    line["0.95 of the split's steps"] = ("no static split with a training keeps it" if not split_keeps else
                     "met" if statistics.median(ratios) >= STEPS_GOAL else "missed")
    for side, some in runs.items():
        line[f"{side}: seconds kept, requests, p99 ms, steps/s"] = "; ".join(
            f"{r['kept']}/{r['windows']}, {r['requests']}, {r['p99_ms'] or float('inf'):.1f}, {r['steps']:.2f}" for r in some)
    return line


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=float, default=40)
    p.add_argument("--loads", default=",".join(LOADS))
    p.add_argument("--sides", default=",".join(SIDES), help="promise and split are always among them")
    args = p.parse_args()
    with harness.Bench() as bench:
        s = service_s(bench)
    for load in args.loads.split(","):
        sides = [side for side in SIDES if side in ("promise", "split", *args.sides.split(","))]
        runs = {side: [] for side in sides}
        for i in range(args.rounds):
            for k in range(len(sides)):
                side = sides[(i + k) % len(sides)]
                runs[side].append(measured(side, load, s, args.seconds))
        line = row(load, s, runs)
        print("  ".join(f"{key}: {value}" for key, value in line.items()), flush=True)
        harness.save("promise", [line])


main()
