#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Idle cores lent as extra threads, the default: no control, idle-cores=leave and idle-cores=lend, in turn.

    gain.py                       all workloads, 12 rounds of a slice of 12 s for each side, after 3 s that do not count
    gain.py --workloads tensorflow --rounds 6

tensorflow: two trainings (CNN), of which one rests now and then, as if it awaited its data.
torch: four trainings that each rest three quarters of the time, so that fewer run than there are cores.
busy: two trainings that never rest: nothing is to be lent, and nothing to be lost.

Rests are counted in time in which their side runs, so that slices begin and end anywhere in them. Before each slice its side,
also that without a daemon, runs for LEAD_S: what a daemon knows of jobs that have just stood still is over then. Rates are steps
per second of all jobs of a side. A ratio compares two slices of one round; in six rounds the sides come in each order once.
"""

import argparse
import pathlib
import subprocess
import sys
import time

import harness

HERE = harness.ROOT / "bench"
LEAD_S = 3  # tided looks once a second whether jobs run, and lends to those that have for two seconds
GOALS = {("leave", "lend"): 1.0, ("none", "lend"): 1.0}
NOT_LENT = "idle cores are not lent for a minute"  # src/daemon/plan/idle.c


def models(*pauses):
    return [[harness.PYTHON, harness.MODELS, "--model", "cnn", "--seconds", harness.FOREVER, *pause]
            for pause in pauses]


def torch(*pauses):
    return [[harness.TORCH, str(HERE / "runtime_work.py"), "--work", "cnn", "--seconds", harness.FOREVER, *pause]
            for pause in pauses]


def rest(steps, seconds):
    return ["--pause-after", str(steps), "--pause", str(seconds)]


WORKLOADS = {
    "tensorflow": models([], rest(24, 4)),
    "torch": torch(rest(60, 6), rest(50, 5.5), rest(70, 7), rest(40, 5)),
    "busy": models([], []),
}


def start_daemon(bench, idle_cores):
    """`tide run` then finds it, and starts none."""
    daemon = subprocess.Popen([str(harness.BUILD / "tided"), "--dir", str(bench.run_dir), "--idle-cores", idle_cores],
                              env=bench.tide_env, stdin=subprocess.DEVNULL,
                              stderr=open(bench.folder / "tided.log", "w"))
    end = time.monotonic() + 30
    while not (bench.run_dir / "api.sock").exists():
        if time.monotonic() > end:
            sys.exit(f"gain.py: no daemon in {bench.run_dir}")
        time.sleep(0.05)
    return daemon.pid


def cpu_ms(pid):
    return int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6


def side(bench, name, commands, idle_cores=None):
    pid = start_daemon(bench, idle_cores) if idle_cores else None
    jobs = []
    for i, command in enumerate(commands):
        run = [harness.TIDE, "run", "--name", f"{name}-{i}", "--"] if idle_cores else []
        jobs.append(bench._job([*run, *command], bench.tide_env if idle_cores else bench.env, f"{name}-{i}"))
    side = harness.Side(name, jobs)
    side.warm_up(8)
    side.daemon = pid
    return side


def order(sides, number):
    """The sides in the order in which this round has them: of three, each of the six in six rounds."""
    turned = sides[number % len(sides):] + sides[:number % len(sides)]
    return turned[::-1] if number % 2 else turned


def measure(workload, rounds, slice_s):
    commands = WORKLOADS[workload]
    with harness.Bench() as none, harness.Bench() as leave, harness.Bench() as lend:
        sides = [side(none, "none", commands), side(leave, "leave", commands, "leave"),
                 side(lend, "lend", commands, "lend")]
        used = {s.name: 0.0 for s in sides}
        for i in range(rounds):
            for s in order(sides, i):
                before = cpu_ms(s.daemon) if s.daemon else 0
                s.run(slice_s, LEAD_S)
                used[s.name] += cpu_ms(s.daemon) - before if s.daemon else 0
        for s in sides:
            s.finish_steps()
        rates = {s.name: s.rates() for s in sides}
        paused = NOT_LENT in (lend.folder / "tided.log").read_text()
    if paused:
        print(f"{workload}: tided said \"{NOT_LENT}\": these rows are not of lent cores alone")
    rows = []
    for a, b in (("leave", "lend"), ("none", "leave"), ("none", "lend")):
        ratios = [y / x for x, y in zip(rates[a], rates[b])]
        rows.append({"model": f"{workload}: {b} / {a}", "rounds": rounds, "slice_s": slice_s, "lead_s": LEAD_S,
                     "rates": {name: [round(r, 3) for r in rates[name]] for name in (a, b)},
                     "tided_percent": round(used[b] / (rounds * (slice_s + LEAD_S) * 10), 2),
                     **({"lending paused": True} if paused and b == "lend" else {}),
                     **({"goal": GOALS[a, b]} if (a, b) in GOALS else {}),
                     "ratios": ratios, **harness.ratio_stats(ratios)})
    return rows


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--workloads", default=",".join(WORKLOADS))
    p.add_argument("--rounds", type=int, default=12)
    p.add_argument("--slice", type=float, default=12, metavar="SECONDS")
    args = p.parse_args()
    rows = []
    for workload in args.workloads.split(","):
        if workload == "torch" and not pathlib.Path(harness.TORCH).exists():
            print("torch: left out, as there is no interpreter with PyTorch (TIDE_PYTHON_TORCH)")
            continue
        rows += measure(workload, args.rounds, args.slice)
        for row in rows[-3:]:
            harness.show_ratio(row["model"], row, 1.0)
        harness.save("gain", rows)


if __name__ == "__main__":
    main()
