#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server with a promise of latency beside a training: `tide run --slo`, against static splits and weights.

    promise.py [--rounds 3] [--seconds 40] [--loads light,half,heavy,bursts] [--sides promise,parties,split,weights,stock]
    promise.py --loads sweep      six constant loads, from 0.1 to 1.1 / s

Both programs are stock PyTorch: serve.py, whose requests arrive at random, and the training of runtime_work.py (cnn). The
rule of the loads, made before any run: a request on one core takes s; the promise is that 99 of 100 take at most 6 s. Light
is 0.15 / s requests a second, half 0.5 / s, heavy 1.2 / s (more than one core can serve); bursts is 0.1 / s and 1.2 / s, eight seconds each.

    promise    both by `tide run`, the server with --slo
    parties    both by `tide run` without a promise, threads and weights set from outside as PARTIES does (class PartiesRule)
    split      one core each, one thread each (taskset): on two cores the only static split in which both run. On more cores split-2, split-3 …
               are the others: so many for the server, the rest for the training
    weights    both with all cores; the training at the lowest niceness
    stock      both as they are

For each: the part of the seconds with requests in which their p99 was at most the promise (a request counts in the second of its arrival),
the p99 of all, and the training's steps a second. Sides take turns within a round, each run begins anew; the first ten seconds do not
count. Goals: 0.99 of the seconds, and 0.95 of the training's steps under the best static split that keeps the promise; where
none does, steps are beyond what a static split could have. Over a sweep one static split has to serve all loads: the training's
steps under the promise, all loads together, are to be 1.2 times those under any single split that keeps the promise in every load.
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
SWEEP = {f"sweep-{rate}": (rate, None) for rate in (0.1, 0.3, 0.5, 0.7, 0.9, 1.1)}
PROMISE, SETTLE_S, WINDOW_S, PATIENCE_S = 6, 10, 1, 30
SIDES = ("promise", "parties", "split", *(f"split-{k}" for k in range(2, os.cpu_count())), "weights", "stock")
KEPT_GOAL, STEPS_GOAL, SWEEP_GOAL = 0.99, 0.95, 1.2
ONE = {"OMP_NUM_THREADS": "1"}


def service_s(bench):
    """Seconds of a request on one core, while nothing else runs."""
    done = subprocess.run(["taskset", "-c", "0", harness.TORCH, HERE / "serve.py", "--calibrate"], env={**bench.env, **ONE},
                          capture_output=True, text=True, check=True, timeout=120)
    return float(done.stdout)


def is_split(side):
    return side.partition("-")[0] == "split"


def commands(bench, side, load, s, seconds):
    """(server, training), each a command and its environment."""
    rate, burst = {**LOADS, **SWEEP}[load]
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
    if is_split(side):
        mine, cores = int(side.partition("-")[2] or 1), os.cpu_count()
        rest = cores - mine if "-" in side or cores == 2 else 1
        return ((["taskset", "-c", f"0-{mine - 1}", *serve], {**bench.env, "OMP_NUM_THREADS": str(mine)}),
                (["taskset", "-c", f"{mine}-{mine + rest - 1}", *train], {**bench.env, "OMP_NUM_THREADS": str(rest)}))
    nice = ["nice", "-n", "19"] if side == "weights" else []
    return (serve, bench.env), ([*nice, *train], bench.env)


class PartiesRule:
    """The controller of PARTIES (Chen, Delimitrou, Martinez, ASPLOS 2019): how many cores the server has. No clock, no program.

    Each half second it takes the p99 of the requests that were answered meanwhile, as the clients see it. Less slack than 5 %
    of the promise gives the server a core more, of the training; more than 20 % takes one back, which is undone and not
    tried again for 30 s if the promise breaks at the next look. On the last step the server has all cores.
    """
    LITTLE, MUCH, BAN_S = 0.05, 0.20, 30

    def __init__(self, cores, promise_s):
        self.cores, self.promise_s, self.step, self.lowered, self.banned_until = cores, promise_s, 1, False, 0.0

    def look(self, p99_s, now):
        """@p99_s: None where no request was answered. Returns the server's cores from now on."""
        slack = 1 - p99_s / self.promise_s if p99_s is not None else 1.0
        lowered, self.lowered = self.lowered, False
        if slack < self.LITTLE:
            if lowered:
                self.banned_until = now + self.BAN_S
            self.step = min(self.cores, self.step + 1)
        elif slack > self.MUCH and now >= self.banned_until and self.step > 1:
            self.step -= 1
            self.lowered = True
        return self.step


class Parties(threading.Thread):
    """PartiesRule with Threadtide's actuators, `tide set`. On the last step the training has one thread at a hundredth of the
    server's weight, where PARTIES would stop it: Threadtide does not stop it either."""
    LOOK_S = 0.5

    def __init__(self, bench, promise_s):
        super().__init__(daemon=True)
        self.bench, self.ended, self.step, self.read = bench, threading.Event(), 0, 0
        self.rule = PartiesRule(os.cpu_count(), promise_s)

    def go(self, step):
        if step == self.step:
            return
        self.bench.cli("set", "serve", "--threads", str(step), "--weight", "10000" if step == self.rule.cores else "100", "--wait", "200")
        self.bench.cli("set", "train", "--threads", str(max(1, self.rule.cores - step)), "--wait", "200")
        self.step = step

    def run(self):
        self.go(self.rule.step)
        while not self.ended.wait(self.LOOK_S):
            lines = (self.bench.folder / "requests").read_text().split("\n")[:-1]
            took, self.read = [float(line.split()[1]) for line in lines[self.read:]], len(lines)
            self.go(self.rule.look(harness.quantile(took, 0.99) if took else None, time.monotonic()))

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


def figures(runs):
    """{side: {"kept", "p99_ms", "steps"}} of {side: runs}."""
    return {side: {"kept": sum(r["kept"] for r in some) / max(1, sum(r["windows"] for r in some)),
                   "p99_ms": statistics.median(r["p99_ms"] or float("inf") for r in some), "steps": statistics.median(r["steps"] for r in some)}
            for side, some in runs.items()}


def best_split(found):
    """The static split with the most steps of those that keep the promise; where none does, that which keeps most seconds."""
    splits = [side for side in found if is_split(side)]
    return max(splits, key=lambda side: (min(found[side]["kept"], KEPT_GOAL), found[side]["steps"]))


def row(load, s, runs):
    found = figures(runs)
    line = {"model": load, "rounds": len(runs["promise"]), "request ms": round(1000 * s, 1), "promise ms": round(6000 * s, 1)}
    for side, f in found.items():
        line |= {f"{side} kept": round(f["kept"], 4), f"{side} p99 ms": round(f["p99_ms"], 1), f"{side} steps/s": round(f["steps"], 2)}
    if "parties" in found:
        line["steps promise / parties"] = round(statistics.median(a["steps"] / b["steps"] for a, b in zip(runs["promise"], runs["parties"])), 3)
    split = best_split(found)
    ratios = [a["steps"] / b["steps"] for a, b in zip(runs["promise"], runs[split])]
    line["steps promise / split"] = round(statistics.median(ratios), 3)
    line["0.99 of the seconds"] = "met" if found["promise"]["kept"] >= KEPT_GOAL else "missed"
    line["0.95 of the split's steps"] = ("no static split with a training keeps it" if found[split]["kept"] < KEPT_GOAL else
                                         "met" if statistics.median(ratios) >= STEPS_GOAL else "missed")
    for side, some in runs.items():
        line[f"{side}: seconds kept, requests, p99 ms, steps/s"] = "; ".join(
            f"{r['kept']}/{r['windows']}, {r['requests']}, {r['p99_ms'] or float('inf'):.1f}, {r['steps']:.2f}" for r in some)
    return line


def sweep_row(found):
    """One row over {load: figures()}: the promise against each single static split that serves all of these loads."""
    together = {side: {"kept": min(of[side]["kept"] for of in found.values()), "steps": statistics.fmean(of[side]["steps"] for of in found.values())}
                for side in set.intersection(*map(set, found.values()))}
    split, ours = best_split(together), together["promise"]
    ratio = ours["steps"] / together[split]["steps"]
    keeps = together[split]["kept"] >= KEPT_GOAL
    line = {"model": "sweep", "loads": len(found), "promise kept, least": round(ours["kept"], 4), "best single split": split,
            "its seconds kept, least": round(together[split]["kept"], 4), "steps promise / single split": round(ratio, 3)}
    line["1.2 of any single split's steps"] = ("missed: the promise is not kept in every load" if ours["kept"] < KEPT_GOAL else
                                               "no single static split keeps it in every load" if not keeps else
                                               "met" if ratio >= SWEEP_GOAL else "missed")
    for side in ("weights", "parties"):
        if side in together:
            line[f"against {side}: kept and steps better"] = " and ".join(
                "yes" if better else "no" for better in (ours["kept"] >= together[side]["kept"], ours["steps"] > together[side]["steps"]))
    return line


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=float, default=40)
    p.add_argument("--loads", default=",".join(LOADS))
    p.add_argument("--sides", default=",".join(SIDES), help="promise and splits are always among them")
    args = p.parse_args()
    with harness.Bench() as bench:
        s = service_s(bench)
    loads = [*SWEEP] if args.loads == "sweep" else args.loads.split(",")
    found = {}
    for load in loads:
        sides = [side for side in SIDES if side == "promise" or is_split(side) or side in args.sides.split(",")]
        runs = {side: [] for side in sides}
        for i in range(args.rounds):
            for k in range(len(sides)):
                side = sides[(i + k) % len(sides)]
                runs[side].append(measured(side, load, s, args.seconds))
        found[load], line = figures(runs), row(load, s, runs)
        print("  ".join(f"{key}: {value}" for key, value in line.items()), flush=True)
        harness.save("promise", [line])
    if args.loads == "sweep":
        line = sweep_row(found)
        print("  ".join(f"{key}: {value}" for key, value in line.items()), flush=True)
        harness.save("promise", [line])


if __name__ == "__main__":
    main()
