#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the parts cost: one call, one hook, one command, one start, one daemon.

Where two things are compared they run in turn. "difference" is that of the pairs. The followers
(bench/follower.c) do nothing but follow their target, so that what is left is Threadtide's part.
"""

import argparse
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time

import harness

TIDED = str(harness.BUILD / "tided")
PROGRAMS = harness.BUILD / "bench"
AGENT = str(harness.BUILD / "agent" / "$LIB" / "libtide-agent.so")
GUARD_S = 60
SETS = 300        # of each direction, by the C API
TF_SETS = 60      # … of TensorFlow, which answers slowly
LOANS = 500
COMMANDS = 200    # `tide set` as a process
STARTS = 100
COLD_STARTS = 20
BASH_PAIRS = 400
JOBS = 50
WINDOWS, WINDOW_S = 6, 5
MIB = 1 << 20


class Table:
    """The rows, printed as they come."""

    def __init__(self):
        self.rows = []

    def add(self, what, unit, values, goal="", goal_at="p50"):
        row = {"what": what, "unit": unit, "n": len(values),
               **{name: round(harness.quantile(values, q), 2)
                  for name, q in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))}, "goal": goal}
        verdict = "" if goal == "" else "met" if row[goal_at] <= goal else "missed"
        print(f"{what:66} {unit:10} n={row['n']:<5} p50 {row['p50']:<9} p99 {row['p99']:<9} "
              f"max {row['max']:<9} {f'goal {goal}: {verdict}' if verdict else ''}", flush=True)
        self.rows.append(row)


# ---- programs ----

def eventually(what, check):
    end = time.monotonic() + GUARD_S
    while not (result := check()):
        if time.monotonic() > end:
            raise RuntimeError(f"not within {GUARD_S} s: {what}")
        time.sleep(0.05)
    return result


@contextlib.contextmanager
def running(command, env):
    process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def daemon(bench, *options):
    with running([TIDED, "--dir", str(bench.run_dir), *options], bench.tide_env) as process:
        eventually("a daemon", lambda: (bench.run_dir / "api.sock").exists())
        yield process.pid


@contextlib.contextmanager
def followers(bench, names, threads):
    """Followers under `tide run`, once all of them have a target."""
    with contextlib.ExitStack() as stack:
        for name in names:
            command = [harness.TIDE, "run", "--name", name, "--", str(PROGRAMS / "follower"),
                       str(threads), str(stamps(bench, name))]
            stack.enter_context(running(command, bench.tide_env))
        eventually("followers", lambda: sum(j["active"] > 0 for j in jobs(bench)) == len(names))
        yield


def stamps(bench, name):
    return bench.folder / f"{name}.stamps"


def jobs(bench):
    return json.loads(bench.cli("ps", "--json"))


def lists(program, *args, env):
    """Runs one of the C programs: its lists of samples by name."""
    done = subprocess.run([str(PROGRAMS / program), *map(str, args)], env=env, check=True,
                          stdout=subprocess.PIPE, text=True, timeout=300)
    return json.loads(done.stdout)


def scaled(values, divisor):
    return [v / divisor for v in values]


NULL = [(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)]


def timed(command, env):
    """Milliseconds from the start of a program to its end."""
    begin = time.perf_counter_ns()
    pid = os.posix_spawnp(command[0], command, env, file_actions=NULL)
    status = os.waitpid(pid, 0)[1]
    end = time.perf_counter_ns()
    if status:
        raise RuntimeError(f"{' '.join(command)}: status {os.waitstatus_to_exitcode(status)}")
    return (end - begin) / 1e6


def in_turn(n, **sides):
    """n rounds of every side, each a function that gives one number; every other round backwards."""
    found = {name: [] for name in sides}
    for i in range(n):
        for name in (list(sides) if i % 2 == 0 else reversed(list(sides))):
            found[name].append(sides[name]())
    return found


def difference(a, b):
    return [y - x for x, y in zip(a, b)]


# ---- what is measured ----

def measure_hooks(table, bench):
    hooks = {name: scaled(ps, 1e3) for name, ps in lists("hook_cost", env=bench.env).items()}
    table.add("a call of a stock function, for comparison", "ns", hooks["stock"])
    table.add("hooked call between two closures", "ns", hooks["pass"], 6)
    table.add("hooked call around a worker's sleep", "ns", hooks["idle"], 20)
    get = lists("api_cost", "get", 500, env={**bench.env, "LD_PRELOAD": AGENT})
    table.add("tide_get, nothing changed", "ns", scaled(get["get_ps"], 1e3))


def measure_api(table, bench):
    with daemon(bench, "--cpus", "0-3"), followers(bench, ["one", "two"], 4):
        found = lists("api_cost", "async", "one", 1000, env=bench.tide_env)
        table.add("asynchronous set, in rows of 8", "us", scaled(found["row"], 1e3), 5)
        table.add("asynchronous set, alone: wakes the daemon", "us", scaled(found["alone"], 1e3), 5)
        table.add("… a bare send() that wakes a sleeping process", "us", scaled(found["kernel"], 1e3))
        found = lists("api_cost", "sync", "one", 1, 4, SETS, env=bench.tide_env)
        table.add("synchronous set, follower, 4 to 1", "us", scaled(found["shrink"], 1e3))
        table.add("synchronous set, follower, 1 to 4", "us", scaled(found["grow"], 1e3))
        measure_loans(table, bench)
        measure_commands(table, bench)


def measure_loans(table, bench):
    found = lists("api_cost", "loan", "one", "two", stamps(bench, "one"), stamps(bench, "two"),
                  LOANS, env=bench.tide_env)
    for verb, other in (("lend", "borrower"), ("reclaim", "owner")):
        table.add(f"{verb}: until the {other}'s callback runs", "us",
                  scaled(found[f"{verb}_told"], 1e3))
        table.add(f"{verb}: until the {other}'s woken thread runs", "us",
                  scaled(found[f"{verb}_runs"], 1e3), 200)


def measure_commands(table, bench):
    count = iter(range(10 ** 9))
    env = bench.tide_env
    found = in_turn(COMMANDS,
                    true=lambda: timed(["true"], env),
                    help=lambda: timed([harness.TIDE, "help"], env),
                    version=lambda: timed([harness.TIDE, "version"], env),
                    set=lambda: timed([harness.TIDE, "set", "one", "--threads",
                                       str(1 + next(count) % 2)], env))
    bench.cli("set", "one", "--auto")
    table.add("process: true", "ms", found["true"])
    table.add("process: tide help (tide's own start)", "ms", found["help"])
    table.add("process: tide version (and one request)", "ms", found["version"])
    table.add("process: tide set, acknowledged", "ms", found["set"], 5)


def measure_tensorflow(table, bench):
    with daemon(bench):
        job = bench.tide("mlp", "mlp")
        job.wait_steps(20)
        found = lists("api_cost", "sync", "mlp", 1, os.cpu_count(), TF_SETS, env=bench.tide_env)
        cpus = os.cpu_count()
        table.add(f"synchronous set, TensorFlow mlp, {cpus} to 1", "us", scaled(found["shrink"], 1e3))
        table.add(f"synchronous set, TensorFlow mlp, 1 to {cpus}", "us", scaled(found["grow"], 1e3))
        job.end()


def measure_starts(table, bench):
    with daemon(bench):
        found = in_turn(STARTS, true=lambda: timed(["true"], bench.tide_env),
                        run=lambda: timed([harness.TIDE, "run", "--", "true"], bench.tide_env))
    table.add("tide run -- true, daemon running", "ms", found["run"])
    table.add("… more than true", "ms", difference(found["true"], found["run"]), 30)
    found = in_turn(COLD_STARTS, true=lambda: timed(["true"], bench.tide_env),
                    run=lambda: cold_start(bench))
    table.add("tide run -- true, starting the daemon", "ms", found["run"])
    table.add("… more than true, starting the daemon", "ms", difference(found["true"], found["run"]), 30)


def cold_start(bench):
    took = timed([harness.TIDE, "run", "--", "true"], bench.tide_env)
    pid = int((bench.run_dir / "tided.lock").read_text())
    os.kill(pid, signal.SIGTERM)
    eventually("the daemon's end", lambda: not os.path.exists(f"/proc/{pid}"))
    return took


def measure_bash(table, bench):
    agent = {**bench.env, "LD_PRELOAD": AGENT}
    found = in_turn(BASH_PAIRS, plain=lambda: timed(["bash", "-c", ":"], bench.env),
                    agent=lambda: timed(["bash", "-c", ":"], agent))
    table.add("bash -c :", "ms", found["plain"])
    table.add("bash -c : with the agent", "ms", found["agent"])
    table.add("… difference", "ms", difference(found["plain"], found["agent"]))


def cpu_s(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mib(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB


def measure_daemon(table, bench):
    names = [f"job{i}" for i in range(JOBS)]
    with daemon(bench, "--heartbeat", "100") as pid, followers(bench, names, 4):
        time.sleep(WINDOW_S)  # what the arrivals caused is over
        shares, sizes = [], []
        for _ in range(WINDOWS):
            begin, used = time.monotonic(), cpu_s(pid)
            time.sleep(WINDOW_S)
            shares.append(100 * (cpu_s(pid) - used) / (time.monotonic() - begin))
            sizes.append(rss_mib(pid))
        if sum(j["state"] == "running" for j in jobs(bench)) != JOBS:
            raise RuntimeError("not every job is there any more")
    table.add(f"tided, {JOBS} jobs, 10 heartbeats/s each: CPU, by {WINDOW_S} s", "% of a core",
              shares, 2)
    table.add(f"tided, {JOBS} jobs: resident memory", "MiB", sizes, 20, "max")


PARTS = {"hooks": measure_hooks, "api": measure_api, "tensorflow": measure_tensorflow,
         "starts": measure_starts, "bash": measure_bash, "daemon": measure_daemon}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--parts", default=",".join(PARTS), help="default, and only then saved: %(default)s")
    p.add_argument("--rows", metavar="FILE", help="write the rows there as JSON")
    args = p.parse_args()
    table = Table()
    for name in args.parts.split(","):
        with harness.Bench() as bench:
            PARTS[name](table, bench)
    if args.rows:
        pathlib.Path(args.rows).write_text(json.dumps(table.rows))
    elif args.parts == ",".join(PARTS):
        harness.save("micro", table.rows)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: exit(1))  # ends what was started
    main()
