#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`make bench-gain`: whole runs of the ten mixes (gain_mixes.py) with no control, under Threadtide, and as the oracle says.

    gain_runs.py                               the curves, where they are not known, then all mixes: hours
    gain_runs.py --mixes servers,light --rounds 1
    gain_runs.py --sides none,equal,equal+leave,response,makespan-oracle,turnaround-oracle
    gain_runs.py --curves                      the curves alone: each program with 1, 2, … threads, ten seconds each

none: the programs as anybody starts them. A policy's name: under `tide run` and a daemon of their own with that
policy; +leave, +lend: with that word for idle-cores. The oracles: the programs with fixed numbers of threads, started in an order, both by
gain_mixes.oracle(). Sides of a round run one after the other, in an order that turns from round to round; what other
programs of the machine used meanwhile is in the results. --cores N takes the first N cores; on a larger machine the mixes have
more jobs. At the end gain_predict.py compares what `tide sim` predicts of the same mixes. bench/results/gain-mixes.json is the file to
send in, by the issue tracker of the repository (HACKING.md, "Measurements of other machines").
"""

import argparse
import dataclasses
import json
import os
import pathlib
import pwd
import signal
import statistics
import subprocess
import sys
import time

import gain_mixes as mixes
import gain_predict
import harness

HERE = harness.ROOT / "bench"
SIDES = ("none", "equal", "makespan-oracle", "turnaround-oracle")
CURVE_S, LIMIT_S = 10, 1800
SYSTEM = pathlib.Path("/run/tide")
OTHER_USER = "nobody"


def command(program, *length):
    if program.startswith("tf-"):
        return [harness.PYTHON, harness.MODELS, "--model", program[3:], *length]
    return [harness.TORCH, str(HERE / "runtime_work.py"), "--work", program, *length]


def fixed(program, threads):
    """More arguments and variables of a program that is to have so many threads."""
    if program.startswith("tf-"):
        return ["--threads", str(threads)], {}
    return [], {"OMP_NUM_THREADS": str(threads), "LOKY_MAX_CPU_COUNT": str(threads)}


# ---- curves ----

def counts(cores):
    """1, 2, 4 … and all."""
    return [*(2 ** k for k in range(cores.bit_length()) if 2 ** k < cores), cores]


def measured_rate(program, threads, cpus):
    """(steps in a second, seconds of its start)"""
    more, env = fixed(program, threads)
    with harness.Bench() as bench:
        began = time.monotonic()
        done = subprocess.run(["taskset", "-c", ",".join(map(str, cpus[:threads])), *command(program, "--seconds", str(CURVE_S)), *more],
                              env={**bench.env, **env}, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode:
        sys.exit(f"gain_runs.py: {program}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout.splitlines()[-1])["steps_per_s"], max(0.0, time.monotonic() - began - CURVE_S)


def curves(cpus, again):
    """Those of the machine, measured if they are not there; and {program: seconds of its start}."""
    path, machine = harness.RESULTS / "gain-curves.json", harness.machine()["model"]
    rows = json.loads(path.read_text())["rows"] if path.exists() and not again else []
    rows = [row for row in rows if row["cores"] == len(cpus) and row["measured"]["machine"]["model"] == machine]
    rates = {row["program"]: row["rates"] for row in rows}
    starts = {row["program"]: row["start_s"] for row in rows if "start_s" in row}
    for program in mixes.ALL:
        if program not in rates:
            measured = {str(n): measured_rate(program, n, cpus) for n in counts(len(cpus))}
            rates[program] = {n: rate for n, (rate, _) in measured.items()}
            starts[program] = round(measured["1"][1], 2)
            print(f"{program:14}", *(f"{n}: {rate:8.2f}" for n, rate in rates[program].items()), flush=True)
            harness.save("gain-curves", [{"model": f"{program}, {len(cpus)} cores", "program": program, "cores": len(cpus),
                                          "rates": rates[program], "start_s": starts[program]}])
    return mixes.Curves(rates), starts


# ---- a run ----

class Run:
    """Jobs of one side. .ends: {job: seconds after the first arrival}."""

    def __init__(self, bench, cpus):
        self.bench, self.cpus, self.began, self.processes, self.ends = bench, cpus, None, {}, {}

    def start(self, i, words, env):
        log = open(self.bench.folder / f"{i}.log", "w", encoding="utf-8")
        self.processes[i] = subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def look(self):
        for i, process in self.processes.items():
            if i not in self.ends and process.poll() is not None:
                self.ends[i] = time.monotonic() - self.began
                if process.returncode:
                    raise RuntimeError(f"job {i} ended with {process.returncode}:\n"
                                       f"{(self.bench.folder / f'{i}.log').read_text()[-2000:]}")

    def go(self, jobs, may_start, start):
        """@may_start(i, those that run) is asked of who has arrived."""
        self.began, waiting = self.began or time.monotonic(), list(range(len(jobs)))
        while len(self.ends) < len(jobs):
            self.look()
            now = time.monotonic() - self.began
            if now > LIMIT_S:
                raise RuntimeError(f"not done after {LIMIT_S} s")
            for i in list(waiting):
                if jobs[i].arrival <= now and may_start(i, waiting, [k for k in self.processes if k not in self.ends]):
                    waiting.remove(i)
                    start(i)
            time.sleep(0.02)

    def stop(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()


def busy_s():
    """Seconds of processor time that this machine's programs have used."""
    user, nice, system, _, _, irq, soft, steal = map(int, pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:9])
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


def used_s():
    """… that processes which have ended have used for us."""
    times = os.times()
    return times.children_user + times.children_system


def as_user(job):
    """Returns words that make a command another user's, who may read our interpreters wherever they are."""
    if not job.user:
        return []
    other, rights = pwd.getpwnam(OTHER_USER), "+dac_override,+dac_read_search"
    return ["setpriv", f"--reuid={other.pw_uid}", f"--regid={other.pw_gid}", "--clear-groups", f"--inh-caps={rights}",
            f"--ambient-caps={rights}"]


def cannot_run(mix):
    """Why not, or None."""
    if mixes.MIXES[mix].users > 1 and os.geteuid():
        return "two users need root"
    if mixes.MIXES[mix].users > 1 and (SYSTEM / "api.sock").exists():
        return f"two users need the machine's own daemon, and one runs in {SYSTEM} already"
    return None


def steps(job, more=()):
    rest = ["--pause-after", str(job.rest[0]), "--pause", str(job.rest[1])] if job.rest else []
    return [*command(job.program, "--steps", str(job.steps)), *rest, *more]


def at_once(i, waiting, running):
    return True


def stock(run, jobs, schedule):
    """With no control; or with the numbers of threads and in the order of @schedule."""
    def may_start(i, waiting, running):
        first = next(k for k in schedule.order if k in waiting and jobs[k].arrival <= time.monotonic() - run.began)
        return schedule.crowded or i == first and sum(schedule.threads[k] for k in [*running, i]) <= len(run.cpus)

    def start(i):
        more, env = fixed(jobs[i].program, schedule.threads[i]) if schedule else ([], {})
        run.start(i, [*as_user(jobs[i]), *steps(jobs[i], more)], {**run.bench.env, **env})
    run.go(jobs, may_start if schedule else at_once, start)


def under(run, jobs, policy):
    """The daemon has its lifetime within the run, as one that somebody's first `tide run` starts."""
    name, _, idle = policy.partition("+")
    env, folder = run.bench.tide_env, run.bench.run_dir
    if any(job.user for job in jobs):  # only the machine's daemon has several users' jobs
        env, folder = {key: value for key, value in env.items() if key != "TIDE_DIR"}, SYSTEM
    run.began = time.monotonic()
    daemon = subprocess.Popen([str(harness.BUILD / "tided"), "--dir", str(folder), "--policy", name,
                               *(["--idle-cores", idle] if idle else [])], env=env,
                              stdin=subprocess.DEVNULL, stderr=open(run.bench.folder / "tided.log", "w", encoding="utf-8"))
    try:
        end = time.monotonic() + 30
        while not (folder / "api.sock").exists():
            if daemon.poll() is not None or time.monotonic() > end:
                raise RuntimeError((run.bench.folder / "tided.log").read_text()[-2000:])
            time.sleep(0.02)
        run.go(jobs, at_once, lambda i: run.start(
            i, [*as_user(jobs[i]), harness.TIDE, "run", "--name", jobs[i].name, "--", *steps(jobs[i])], env))
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(30)


def one_run(side, mix, jobs, known, cpus):
    """One run of @side and its figures; times are in seconds."""
    cores = len(cpus)
    schedule = (mixes.oracle(jobs, known, cores, ("makespan-oracle", "turnaround-oracle").index(side))
                if side.endswith("-oracle") else None)
    stranger = None
    with harness.Bench() as bench:
        run = Run(bench, cpus)
        busy, ours = busy_s(), used_s()
        began = time.monotonic()
        try:
            if mixes.MIXES[mix].stranger:
                stranger = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            if side == "none" or schedule:
                stock(run, jobs, schedule)
            else:
                under(run, jobs, side)
            took = time.monotonic() - began
        finally:
            run.stop()
            if stranger:
                stranger.kill()
                stranger.wait()
    others = max(0.0, busy_s() - busy - (used_s() - ours)) / took / os.cpu_count()
    turnarounds = [run.ends[i] - job.arrival for i, job in enumerate(jobs)]
    found = {"side": side, "makespan": max(run.ends.values()), "turnaround": statistics.fmean(turnarounds),
             "slowdown": max(t / known.alone(job, cores) for t, job in zip(turnarounds, jobs)),
             "turnarounds": [round(t, 2) for t in turnarounds], "others": round(others, 3)}
    if schedule:
        found["schedule"] = dataclasses.asdict(schedule)
        found["model"] = [round(x, 1) for x in mixes.outcome(jobs, schedule, known, cores)]
    return found


# ---- all of it ----

def judged(pairs, measure, goal=None, least=None):
    """How many times better @measure of the second is than that of the first of each of @pairs, and whether that meets
    @goal: in the middle, and in the whole interval not below @least (usual: the goal)."""
    middle, low, high = harness.log_interval([a[measure] / b[measure] for a, b in pairs])
    found = {measure: round(middle, 3)}
    if len(pairs) > 1:
        found[f"{measure} 95 %"] = f"{low:.2f} … {high:.2f}"
    if goal:
        met = len(pairs) > 1 and middle >= goal and low >= (least or goal)
        missed = middle < goal if len(pairs) < 2 else high < goal
        found[f"{measure} goal"] = f">= {goal}: " + ("met" if met else "missed" if missed else "not shown")
    return found


def rounds_of(runs, mix, cores):
    """{number: {side: run}}"""
    return {of["round"]: {r["side"]: r for r in of["runs"]} for of in runs if (of["mix"], of["cores"]) == (mix, cores)}


def row(mix, cores, side, runs):
    """@side against no control, over the rounds that have both; None if there is none. Goals are for those of ours."""
    pairs = [(of["none"], of[side]) for of in rounds_of(runs, mix, cores).values() if {"none", side} <= of.keys()]
    if not pairs:
        return None
    ours, of_none = (max(run["slowdown"] for run in some) for some in zip(*[(b, a) for a, b in pairs]))
    goals = () if side.endswith("-oracle") else (1.0, 0.97)
    slowdown = {"worst slowdown goal": f"<= that of none: {'met' if ours <= of_none else 'missed'}"} if goals else {}
    return {"model": f"{mix}, {cores} cores: {side} / none", "mix": mix, "rounds": len(pairs),
            **judged(pairs, "makespan", *goals), **judged(pairs, "turnaround", *goals[:1]),
            "worst slowdown": round(ours, 2), "of none": round(of_none, 2), **slowdown}


def beside_oracle(mix, cores, side, runs):
    """@side against the best fixed numbers and order, each measure against that measure's own; None if there is none."""
    found = {}
    for measure in ("makespan", "turnaround"):
        oracle = f"{measure}-oracle"
        pairs = [(of[oracle], of[side]) for of in rounds_of(runs, mix, cores).values() if {oracle, side} <= of.keys()]
        if pairs:
            found |= {"rounds": len(pairs), **judged(pairs, measure, 0.95)}
    return {"model": f"{mix}, {cores} cores: {side} / oracle", "mix": mix, **found} if found else None


def backlog(cores, side, runs):
    """Means over the mixes under backlog, in the rounds in which all have both sides; None if there is none."""
    of = [rounds_of(runs, mix, cores) for mix in mixes.BACKLOG]
    whole = [number for number in set.intersection(*map(set, of)) if all({"none", side} <= rounds[number].keys() for rounds in of)]
    pairs = []
    for number in sorted(whole):
        better = {m: statistics.geometric_mean([r[number]["none"][m] / r[number][side][m] for r in of])
                  for m in ("makespan", "turnaround")}
        pairs.append((better, dict.fromkeys(better, 1.0)))
    return {"model": f"mean of those under backlog, {cores} cores: {side} / none", "mix": "backlog, all", "rounds": len(pairs),
            **judged(pairs, "makespan", 1.15), **judged(pairs, "turnaround", 1.5)} if pairs else None


def rows(runs):
    asked = dict.fromkeys((of["mix"], of["cores"], r["side"]) for of in runs for r in of["runs"] if r["side"] != "none")
    ours = [of for of in asked if not of[2].endswith("-oracle")]
    return list(filter(None, [*(row(*of, runs) for of in asked), *(beside_oracle(*of, runs) for of in ours),
                              *(backlog(cores, side, runs) for cores, side in dict.fromkeys(of[1:] for of in ours))]))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--mixes", default=",".join(mixes.MIXES))
    p.add_argument("--sides", default=",".join(SIDES))
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--curves", action="store_true", help="measure the curves anew, and nothing else")
    args = p.parse_args()
    cpus = sorted(os.sched_getaffinity(0))[:args.cores]
    if len(cpus) < args.cores or args.cores < 2:
        sys.exit(f"gain_runs.py: --cores {args.cores}: this process may use {len(cpus)} cores, and mixes need two")
    chosen, sides = args.mixes.split(","), args.sides.split(",")
    unknown = [mix for mix in chosen if mix not in mixes.MIXES]
    if unknown:
        sys.exit(f"gain_runs.py: no mix {unknown[0]!r}: {', '.join(mixes.MIXES)}")
    os.sched_setaffinity(0, cpus)
    known, starts = curves(cpus, args.curves)
    if args.curves:
        return
    runs = harness.saved_runs("gain-mixes")
    for mix in chosen:
        if why := cannot_run(mix):
            print(f"{mix}: left out: {why}")
            continue
        first = 1 + max((of["round"] for of in runs if (of["mix"], of["cores"]) == (mix, args.cores)), default=0)
        for number in range(first, first + args.rounds):
            jobs = mixes.draw(mix, args.cores, number)
            turned = sides[number % len(sides):] + sides[:number % len(sides)]
            if number % 2:  # who comes after whom changes, too
                turned.reverse()
            of = {"mix": mix, "cores": args.cores, "round": number, "jobs": [dataclasses.asdict(job) for job in jobs],
                  "runs": [one_run(side, mix, jobs, known, cpus) for side in turned]}
            for r in of["runs"]:
                print(f"{mix:12} {number} {r['side']:18} makespan {r['makespan']:6.1f}  turnaround {r['turnaround']:6.1f}  "
                      f"slowdown {r['slowdown']:5.2f}  others {r['others']:.3f}", flush=True)
            runs.append(of)
            harness.save("gain-mixes", rows(runs), runs)
    gain_predict.save(runs, known, starts, args.cores)


if __name__ == "__main__":
    main()
