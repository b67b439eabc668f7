#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runtimes other than TensorFlow under Threadtide: PyTorch, scikit-learn, XGBoost, LightGBM, NumPy, MKL, BLIS, ONNX Runtime, llama.cpp.

    runtimes.py --part idle         `tide run --spin`, no resize / stock: what the agent costs
    runtimes.py --part held         8 threads built, one core: held at 1 / stock, started with 1
    runtimes.py --part held-uncontrolled  8 threads built, one core: held at 1 / stock with 8
    runtimes.py --part started      8 threads wanted, one core: `tide run --threads 1` / stock with 8
    runtimes.py --part four         four trainings on the machine: `tide run` / one thread each, / waiting without spinning alone,
                                    / uncontrolled
    runtimes.py --part staggered    the same four, each with a fixed number of steps, arrivals apart: turnarounds of stock with one
                                    thread each / `tide run`
    runtimes.py --part mix          TensorFlow, PyTorch, XGBoost and a forest at once: `tide run` / uncontrolled, / weights only
    runtimes.py --part latency      100 shrinks and grows each: the wait for a safe point, and from there until the new number is in
                                    force, in ms (safe_points.py)
    runtimes.py --part all

Both sides run in turn (harness.py). A part's works are those that its rows name; one whose package is missing is left out
and said. `held` needs a malleable runtime with eight threads: a work that the daemon does not call so, or whose pool is smaller, is left out, too. --env gives every program
of ours one more variable, to try what is not usual yet.
"""

import argparse
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import time

import harness
import latency
import safe_points

HERE = pathlib.Path(__file__).resolve().parent
# The environment with PyTorch; without it the works that .venv-runtimes has: forest, histgb, kmeans, gemm, mkl, blis, ort.
PYTHON = os.environ.get("TIDE_PYTHON_TORCH") or next(
    (str(path) for path in (pathlib.Path(harness.TORCH), harness.ROOT / ".venv-runtimes/bin/python") if path.exists()),
    "")
BUILT = 8
WAITS = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "1000", "OPENBLAS_THREAD_TIMEOUT": "15"}  # as `tide run` sets them
# Variables that size a work; the last three are runtime_work.py's own, which tells the library or the option of the program.
NUMBERS = ("OMP_NUM_THREADS", "LLAMA_ARG_THREADS", "WORK_ORT_THREADS", "WORK_BLAS_THREADS", "WORK_FOREST_JOBS")
PREFIXES = ("OMP_", "GOMP_", "KMP_", "MKL_", "BLIS_", "OPENBLAS_", "LLAMA_", "WORK_")

IDLE = dict.fromkeys(("cnn", "transformer", "lstm", "forest", "kmeans", "xgboost", "lightgbm", "gemm", "mkl", "blis", "ort", "llama"), 0.99)
HELD = dict.fromkeys(IDLE, 0.98)
UNCONTROLLED = {"cnn": 3, "transformer": 3, "mlp": 3, "lstm": 3, "ort": 5, "xgboost": 2, "llama": 5}
# A forest with n_jobs=-1 has no more threads than cores, by joblib's own count. Here stock's has n_jobs=8, and ours -1: a number that the program names stays.
STARTED = {**UNCONTROLLED, "histgb": 2, "forest": 2}
FOUR = {"cnn": {"one thread each": 0.97, "waiting alone": 1.05, "uncontrolled": 1},
        "mlp": {"one thread each": 0.97, "waiting alone": 1.25, "uncontrolled": 1},
        "transformer": {"one thread each": 0.97, "waiting alone": 1.25, "uncontrolled": 1}}
STAGGERED = dict.fromkeys(FOUR, {"mean": 1.0, "last": 1.2})
STEPS = {"cnn": 600, "mlp": 9000, "transformer": 1200}  # of each, some twenty seconds of a core: arrivals overlap
LATENCY = ("cnn", "transformer", "xgboost", "gemm", "ort", "llama", "openmp")
MIX = ("tensorflow", "transformer", "xgboost", "forest")
MIX_GOALS = {"uncontrolled": 1.5, "weights only": 1.2}
TENSORFLOW_GOAL = 1.3


class Bench(harness.Bench):
    def __init__(self, more):
        super().__init__()
        self.more, self.length = more, ["--seconds", harness.FOREVER]
        for env in (self.env, self.tide_env):
            for name in [n for n in env if n.startswith(PREFIXES)]:
                del env[name]

    def program(self, work):
        if work == "tensorflow":
            return super().program("cnn")
        return [PYTHON, str(HERE / "runtime_work.py"), "--work", work, *self.length]

    def plain(self, work, name, env=(), prefix=()):
        return self._job([*prefix, *self.program(work)], {**self.env, **dict(env)}, name)

    def ours(self, work, name, *run, env=(), prefix=()):
        return self._job([*prefix, harness.TIDE, "run", "--name", name, *run, "--", *self.program(work)],
                         {**self.tide_env, **self.more, **dict(env)}, name)

    def job(self, name):
        return next(job for job in json.loads(self.cli("ps", "--json")) if job["name"] == name)


def one_core():
    return ("taskset", "-c", str(min(os.sched_getaffinity(0))))


def per_job(side):
    """Steps per second of each job, a list a slice."""
    counts = [harness.active_progress(job.steps(), side.slices, side.tail) for job in side.jobs]
    return [[n / (e - b) for n in of_slice] for of_slice, (b, e) in zip(zip(*counts), side.slices)]


def missing(work):
    """Why this work cannot run here, or None."""
    if work == "openmp":
        return None if shutil.which("gcc") else "no gcc"
    if work == "tensorflow":
        done = subprocess.run([harness.PYTHON, "-c", "import tensorflow"], capture_output=True, text=True)
    else:
        done = subprocess.run([PYTHON, str(HERE / "runtime_work.py"), "--work", work, "--steps", "1"], capture_output=True,
                              text=True)
    return None if done.returncode == 0 else (done.stderr.strip().splitlines() or ["it does not start"])[-1]


def pair(part, work, a, b, args, against="stock"):
    """Both sides once warm, then in turn. Returns the row."""
    a_side, b_side = harness.Side(against, a), harness.Side("threadtide", b)
    a_side.warm_up(args.warm)
    b_side.warm_up(args.warm)
    ratios = harness.interleave(a_side, b_side, args.pairs, args.slice)
    return {"case": part, "model": work if against == "stock" else f"{work} / {against}", "slice_s": args.slice,
            "ratios": ratios, **harness.ratio_stats(ratios)}, (a_side, b_side)


def idle(work, args):
    with Bench(args.env) as bench:
        yield pair("idle", work, [bench.plain(work, "a")], [bench.ours(work, "b", "--spin")], args)[0], IDLE[work]


def held_at_one(bench, work, args):
    """A program of ours on one core that has built eight threads and is held at one. Returns the job and the number of its threads, or None with the
    reason on the terminal."""
    job = bench.ours(work, "b", "--max", str(BUILT), env=dict.fromkeys(NUMBERS, str(BUILT)), prefix=one_core())
    job.wait_steps(args.warm)
    bench.cli("set", "b", "--threads", str(BUILT))
    job.wait_steps(len(job.steps()) + args.warm)
    row, tasks = bench.job("b"), len(os.listdir(f"/proc/{job.pid}/task"))
    if not row["malleable"] or row["max"] != BUILT or tasks < BUILT:
        print(f"held {work}: left out: malleable: {row['malleable']}, pool of {row['max']}, {tasks} threads")
        return None
    bench.cli("set", "b", "--threads", "1")
    return job, tasks


def held(work, args):
    with Bench(args.env) as bench:
        b = held_at_one(bench, work, args)
        if b:
            a = bench.plain(work, "a", env=dict.fromkeys(NUMBERS, "1"), prefix=one_core())
            yield {**pair("held", work, [a], [b[0]], args)[0], "threads built": b[1]}, HELD[work]


def held_uncontrolled(work, args):
    with Bench(args.env) as bench:
        b = held_at_one(bench, work, args)
        if b:
            a = bench.plain(work, "a", env=dict.fromkeys(NUMBERS, str(BUILT)), prefix=one_core())
            yield {**pair("held", work, [a], [b[0]], args, f"{BUILT} threads")[0], "threads built": b[1]}, UNCONTROLLED[work]


def started(work, args):
    asks = {"LLAMA_ARG_THREADS": str(BUILT), "WORK_FOREST_TREES": str(BUILT)}  # the program's own option; work for so many threads
    many = {**dict.fromkeys(NUMBERS, str(BUILT)), "LOKY_MAX_CPU_COUNT": str(BUILT), **asks}
    many["ORT_INTRA_OP_NUM_THREADS"] = many.pop("WORK_ORT_THREADS")
    with Bench(args.env) as bench:
        a = bench.plain(work, "a", env=many, prefix=one_core())
        b = bench.ours(work, "b", "--threads", "1", env=asks, prefix=one_core())
        yield pair("started", work, [a], [b], args, f"{BUILT} threads")[0], STARTED[work]


def four(work, args):
    env = {"one thread each": {"OMP_NUM_THREADS": "1"}, "waiting alone": {"OMP_WAIT_POLICY": "passive"}, "uncontrolled": {}}
    for against, goal in FOUR[work].items():
        with Bench(args.env) as bench:
            a = [bench.plain(work, f"a{i}", env=env[against]) for i in range(4)]
            b = [bench.ours(work, f"b{i}") for i in range(4)]
            yield pair("four", work, a, b, args, against)[0], goal


def turnarounds(start, args):
    """Four programs of a fixed number of steps, one more every --apart seconds; each one's seconds from its start to its end."""
    jobs, begun, ended = [], [], {}
    while len(ended) < 4:
        if len(jobs) < 4 and time.monotonic() >= (begun[-1] + args.apart if begun else 0):
            begun.append(time.monotonic())
            jobs.append(start(len(jobs)))
        for i, job in enumerate(jobs):
            if i not in ended and job.process.poll() is not None:
                ended[i] = time.monotonic()
                if job.process.returncode:
                    job.check()
        time.sleep(0.02)
    return [ended[i] - begun[i] for i in range(4)]


def staggered(work, args):
    """Pairs of whole runs, A B B A: a job that comes last has the machine alone in the end, and can grow."""
    raw, count = [], args.steps or STEPS[work]
    for n in range(args.rounds):
        took = {}
        for side in ("stock", "tide") if n % 2 == 0 else ("tide", "stock"):
            with Bench(args.env) as bench:
                bench.length = ["--steps", str(count)]
                took[side] = turnarounds(lambda i: bench.plain(work, f"a{i}", env={"OMP_NUM_THREADS": "1"}) if side == "stock"
                                         else bench.ours(work, f"b{i}"), args)
        raw.append(took)
    for what, goal in STAGGERED[work].items():
        of = (lambda took: sum(took) / 4) if what == "mean" else (lambda took: took[-1])
        ratios = [of(took["stock"]) / of(took["tide"]) for took in raw]
        yield {"case": "staggered", "model": f"{work}, turnaround of the {'last' if what == 'last' else 'four'}", "apart_s": args.apart,
               "steps": count, "turnarounds": raw, "ratios": ratios, **harness.ratio_stats(ratios)}, goal


def mix(works, args):
    """A row for all four (geometric mean of their ratios) and one for TensorFlow's training."""
    for against, goal in MIX_GOALS.items():
        with Bench(args.env) as bench, Bench({}) as other:
            if against == "uncontrolled":
                a = [bench.plain(work, f"a-{work}") for work in works]
            else:
                a = [other.ours(work, f"a-{work}", "--spin", env={"TIDE_DISABLE": "1"}) for work in works]
            b = [bench.ours(work, f"b-{work}") for work in works]
            row, sides = pair("mix", "mix", a, b, args, against)
            each = [[y / x if x and y else math.nan for x, y in zip(*rates)] for rates in zip(*map(per_job, sides))]
            whole = [math.exp(sum(map(math.log, ratios)) / len(ratios)) for ratios in each if not any(map(math.isnan, ratios))]
            if len(whole) < len(each):
                print(f"mix / {against}: {len(each) - len(whole)} of {len(each)} pairs left out: a program made no step")
            yield {**row, "each": each, "works": list(works), "ratios": whole, **harness.ratio_stats(whole)}, goal
            own = [ratios[works.index("tensorflow")] for ratios in each] if "tensorflow" in works else []
            own = [ratio for ratio in own if not math.isnan(ratio)]
            if own and against == "uncontrolled":
                yield {**row, "model": "mix: TensorFlow's own / uncontrolled", "ratios": own, **harness.ratio_stats(own)}, \
                    TENSORFLOW_GOAL


def resizes(work, args):
    """A row for shrinks and one for grows."""
    def ready(agent):
        latency.peer.wait_until(lambda: any(b.max_intra > 1 for b in agent.of(latency.peer.Backend)), f"{work} follows")
    with Bench(args.env) as bench:
        marks, regions = pathlib.Path(bench.folder) / "marks", work == "openmp"
        command = [*([safe_points.compiled(bench.folder)] if regions else bench.program(work)), "--marks", str(marks)]
        env = {**WAITS, **({"TIDE_OPENMP": "on"} if work == "openmp" else {}), **args.env}
        acks = latency.resized(bench, command, BUILT, 1, 0, args.resizes, 7, ready, env)
        job, rows = bench.jobs[-1], []
        job.wait_steps(len(job.steps()) + 2)  # what follows the last command is written at the end of a step
        for direction, found in acks.items():
            wanted = [BUILT if direction == "grow" else 1] * len(found)
            each = safe_points.of_regions(found, marks, wanted) if regions else safe_points.of_calls(found, marks)
            rows.append(safe_points.row(f"{work}, {direction}", len(found), each))
            print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    return rows


def here(works):
    found = []
    for work in works:
        why = missing(work)
        if why:
            print(f"{work}: left out: {why}")
        else:
            found.append(work)
    return found


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"latency": (None, LATENCY), "idle": (idle, IDLE), "held": (held, HELD),
             "held-uncontrolled": (held_uncontrolled, UNCONTROLLED), "started": (started, STARTED), "four": (four, FOUR),
             "staggered": (staggered, STAGGERED), "mix": (mix, MIX)}
    p.add_argument("--part", choices=[*parts, "all"], default="all")
    p.add_argument("--works", help="a list; usual: all of the part")
    p.add_argument("--pairs", type=int, default=20)
    p.add_argument("--slice", type=float, default=3, metavar="SECONDS")
    p.add_argument("--rounds", type=int, default=6, help="staggered: whole runs of each side")
    p.add_argument("--steps", type=int, help="staggered: of each program (usual: some twenty seconds of a core)")
    p.add_argument("--apart", type=float, default=5, metavar="SECONDS", help="staggered: between two arrivals")
    p.add_argument("--warm", type=int, default=8, metavar="STEPS")
    p.add_argument("--resizes", type=int, default=100, help="latency: of each direction")
    p.add_argument("--no-results", action="store_true", help="to try it: print, and save nothing")
    p.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="for the programs of ours")
    args = p.parse_args()
    args.env = dict(one.split("=", 1) for one in args.env)
    if not PYTHON or not pathlib.Path(PYTHON).exists():
        sys.exit(f"runtimes.py: {PYTHON or 'no interpreter'}: run `scripts/setup.sh runtimes`, or name one with PyTorch in TIDE_PYTHON_TORCH")
    for part in parts if args.part == "all" else [args.part]:
        measure, usual = parts[part]
        works = here([w for w in (args.works.split(",") if args.works else usual) if w in usual])
        rows = []
        if part == "latency":
            for work in works:
                rows += resizes(work, args)
                if not args.no_results:
                    harness.save("runtimes-latency", rows)
            continue
        for what in ([works] if part == "mix" else works):
            for row, goal in measure(what, args):
                harness.show_ratio(f"{part} {row['model']}", row, goal)
                rows.append({**row, "goal": goal, **({"env": args.env} if args.env else {})})
                if not args.no_results:
                    harness.save(f"runtimes-{part}", rows)


if __name__ == "__main__":
    main()
