#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What energy costs tided and a parent of units.

    energy.py division    a cap divided over 10,000 machines: runs bench/power_divide.c
    energy.py machine     tided that reads sensors once a second, against tided without, 50 jobs each
    energy.py unit        tide-power with 50 devices, and a real hub above it
    energy.py kills       1,000 kills and partitions of unit, broker and hub: whether a microjoule is lost
    energy.py kills --piece K/N    the K-th of N pieces of them alone, joined with those that there are
    energy.py kills --store postgres    the same with the hub's store in PostgreSQL, which is killed, too (energy-kills-postgres)

machine: both daemons run at the same time, each with jobs of its own that wake up fifty times a second, and are looked
at for a minute: that gives one difference of CPU time (of all threads, /proc/PID/task/TID/schedstat) and one of memory
(Pss). Then both are started anew, the other one first: what one start of a daemon or its place among the cores adds is
in the interval. Beside each stands how many reads it made a second: a side that looks at processes less often than the
other is not the same program with sensors. The one reads the powercap tree and the frequencies of a plant (tests/plant),
whose own CPU time is not counted.

unit: 50 plugs of three firmwares (tests/plant/plant_plug.py) on a real mosquitto, each a connection of its own; the unit
tells each second what its area draws, and sends its records to a real tide-hub over TLS. Two such units run at the same time:
plugs of one tell each 10 s, those of the other each second. CPU time and resident memory of tide-power alone.

kills: tests/component/test_hub_kills.py. The meter's own count is the truth: what the hub has stored in the end is that,
to the microjoule, what was acknowledged is there after each kill, and time that nobody measured is a gap.
"""

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time

import harness

sys.path[:0] = [str(harness.ROOT / "tests/component"), str(harness.ROOT / "tests/plant")]
import daemon  # noqa: E402
import hub as hub_bed  # noqa: E402
import rig  # noqa: E402

DIVISION_GOAL_US = 10_000
CPU_GOAL = 0.3  # percent of a core
PSS_GOAL_KIB = 2048
JOBS = 50
SETTLE_S = 15
DEVICES = 50
KINDS = {"tasmota": "", "shelly": "", "json": "energy-path = energy\npower-path = power\n"}
DEVICE_PERIODS = (10, 1)  # s; Tasmota tells each 300 s if nobody sets it, and never more often than each 10 s
UNIT_CPU_GOAL, UNIT_RSS_GOAL_KIB = 1.0, 16 * 1024
KILLS = 1000


def division():
    done = subprocess.run([str(harness.BUILD / "bench" / "power_divide"), "--json"], check=True,
                          stdout=subprocess.PIPE, text=True, timeout=600)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    for row in rows:
        row["verdict"] = "met" if row["p99_us"] <= DIVISION_GOAL_US else "missed"
        print(*row.values())
    harness.save("energy-division", rows)


class Side:
    """A tided and its jobs, which end with @stack."""

    def __init__(self, folder, stack, *lines):
        folder.mkdir()
        (folder / "claims").mkdir()
        (folder / "tide.conf").write_text("\n".join(["[daemon]", *lines, ""]))
        self.tided = daemon.Daemon(harness.BUILD / "tided", None, folder / "run", folder / "claims",
                                   "--engine", "none", "--config", folder / "tide.conf").start()
        stack.callback(self.tided.end)
        env = {"PATH": "/usr/bin:/bin", "TIDE_DIR": str(folder / "run"), "TIDE_CLAIMS_DIR": str(folder / "claims")}
        for _ in range(JOBS):
            job = subprocess.Popen([harness.TIDE, "run", "--", harness.BUILD / "tests/component/pool", "1"],
                                   env=env, stdout=subprocess.PIPE)
            stack.callback(job.wait)
            stack.callback(job.kill)
            if not job.stdout.readline():
                sys.exit("energy.py: a job did not start: build the tests, too (meson configure -Dtests=true)")


def cpu_ns(pid):
    tasks = pathlib.Path(f"/proc/{pid}/task")
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir())


def kib(pid, what):
    """"Pss" or "Rss"."""
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(f"{what}:"))


def window(pids, seconds, memory):
    """Percent of a core that each process used, and its memory at the end."""
    begin, before = time.monotonic(), [cpu_ns(pid) for pid in pids]
    time.sleep(seconds)
    used = [cpu_ns(pid) - ns for pid, ns in zip(pids, before)]
    elapsed = time.monotonic() - begin
    return [ns / elapsed / 1e7 for ns in used], [kib(pid, memory) for pid in pids]


def row(what, unit, goal, pairs):
    """@pairs: (without, with)."""
    stats = harness.ratio_stats([b - a for a, b in pairs])
    verdict = "met" if stats["high"] <= goal else "not shown" if stats["low"] <= goal else "missed"
    return {"what": what, "unit": unit, "without": round(sorted(a for a, _ in pairs)[len(pairs) // 2], 3),
            "more": round(stats["ratio"], 3), "95 % low": round(stats["low"], 3),
            "95 % high": round(stats["high"], 3), "repeats": stats["repeats"], "goal": goal, "verdict": verdict}


def reads(pid):
    text = pathlib.Path(f"/proc/{pid}/io").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("syscr:"))


def one_start(folder, meter, sensors_first, seconds):
    """(CPU, memory, reads a second) of tided without and with sensors."""
    lines = {"without": ["power=none"], "with": ["power=powercap", f"power-root={meter.tree}"]}
    with contextlib.ExitStack() as stack:
        folder.mkdir()
        sides = {name: Side(folder / name, stack, *lines[name]) for name in sorted(lines, reverse=not sensors_first)}
        pids = [sides[name].tided.process.pid for name in ("without", "with")]
        time.sleep(SETTLE_S)
        before = [reads(pid) for pid in pids]
        cpu, memory = window(pids, seconds, "Pss")
        read = [round((reads(pid) - n) / seconds) for pid, n in zip(pids, before)]
        _, power = sides["with"].tided.api("GET", "/v1/power")
        assert power["power"]["uw"], "tided has read no sensor"
    return cpu, memory, read


def machine(starts, seconds):
    found = []
    with harness.Bench() as bench, contextlib.ExitStack() as stack:
        meter = rig.Meter(harness.BUILD, bench.folder / "meter", "machine", "--psys")
        stack.callback(meter.end)
        for n in range(starts):
            found.append(one_start(bench.folder / f"start-{n}", meter, n % 2 == 0, seconds))
            print(found[-1], flush=True)
    rows = [row("tided with sensors at 1 s, 50 jobs: CPU time", "% of a core", CPU_GOAL, [tuple(f[0]) for f in found]),
            row("tided with sensors at 1 s, 50 jobs: memory (Pss)", "KiB", PSS_GOAL_KIB,
                [tuple(f[1]) for f in found])]
    for each in rows:
        print(*each.values())
    harness.save("energy-machine", rows, [{"cpu_percent": [round(c, 4) for c in cpu], "pss_kib": pss, "reads_per_s": read}
                                          for cpu, pss, read in found])


class Unit:
    """A tide-power with its plugs, and the hub that takes its records; they end with @stack."""

    def __init__(self, folder, stack, period):
        folder.mkdir()
        self.hub = hub_bed.Serving(harness.BUILD / "tide-hub", folder)
        self.hub.options = ("--listen", "none")
        stack.callback(self.hub.stop)
        self.hub.start()
        self.hub.serve()
        self.hub.enrol("lab")
        local = rig.Broker(folder)
        stack.callback(local.end)
        names = [(kind, f"plug{n}") for n, kind in zip(range(DEVICES), list(KINDS) * DEVICES)]
        (folder / "tide-power.conf").write_text(
            f"[unit]\nname = lab\nstate-dir = {folder}\n[local]\nbroker = 127.0.0.1:{local.port}\n"
            f"[uplink]\nbroker = 127.0.0.1:{self.hub.port}\nca = {self.hub.state}/trust/ca.crt\n"
            f"cert = {folder}/lab.crt\nkey = {folder}/lab.key\n" +
            "".join(f"[meter {name}]\nkind = {kind}\ntopic = {name}\n{KINDS[kind]}" for kind, name in names))
        with open(folder / "log", "wb") as log:
            process = subprocess.Popen([harness.BUILD / "tide-power", "--config", folder / "tide-power.conf"], stderr=log)
        stack.callback(rig.end, process)
        self.pid = process.pid
        plugs = rig.Plugs(local, *(f"{kind}:{name}=500W" for kind, name in names), period=period)
        stack.callback(plugs.end)

    def points(self):
        """Plugs of which the hub has energy."""
        return [point for _, point in self.hub.energy() if point.startswith("meter:")]


def unit(windows, seconds):
    with harness.Bench() as bench, contextlib.ExitStack() as stack:
        units = [Unit(bench.folder / f"every-{period}-s", stack, period) for period in DEVICE_PERIODS]
        time.sleep(SETTLE_S + 2 * max(DEVICE_PERIODS))
        found = []
        for _ in range(windows):
            found.append(window([each.pid for each in units], seconds, "Rss"))
            print(found[-1], flush=True)
        heard = [len(each.points()) for each in units]
    assert heard == [DEVICES] * len(units), f"the hub has energy of {heard} plugs"
    rows = []
    for i, period in enumerate(DEVICE_PERIODS):
        what = f"tide-power, {DEVICES} plugs that tell each {period} s: "
        rows += [level(what + "CPU time", "% of a core", UNIT_CPU_GOAL, [cpu[i] for cpu, _ in found]),
                 level(what + "memory (Rss)", "KiB", UNIT_RSS_GOAL_KIB, [rss[i] for _, rss in found])]
    for each in rows:
        print(*each.values())
    harness.save("energy-unit", rows, [{"cpu_percent": [round(c, 4) for c in cpu], "rss_kib": rss}
                                       for cpu, rss in found])


def level(what, unit_, goal, values):
    """A row of a figure that has to stay below its goal."""
    stats = harness.ratio_stats(values)
    verdict = "met" if stats["high"] <= goal else "not shown" if stats["low"] <= goal else "missed"
    return {"what": what, "unit": unit_, "median": round(stats["ratio"], 3), "95 % low": round(stats["low"], 3),
            "95 % high": round(stats["high"], 3), "most": round(stats["max"], 3), "repeats": stats["repeats"],
            "goal": f"≤ {goal:g}", "verdict": verdict}


def kills(piece, store):
    """A test that fails has lost or doubled something, or a program did not come back: its output tells."""
    number, pieces = (int(n) for n in piece.split("/"))
    begin = time.monotonic()
    done = subprocess.run(
        [harness.PYTHON, "-m", "pytest", harness.ROOT / "tests/component/test_hub_kills.py", "-q", "-x", "-p",
         "no:cacheprovider", "-k", f"no_microjoule and {store}"],
        env={**os.environ, "TIDE_SOAK": piece if pieces > 1 else "1", "TIDE_BUILD_DIR": str(harness.BUILD)},
        capture_output=True, text=True, check=False)
    if (" passed" if done.returncode == 0 else " failed") not in done.stdout or "skipped" in done.stdout:
        sys.exit(f"energy: the test did not run:\n{done.stdout}{done.stderr}")
    print(done.stdout[-3000:] if done.returncode else done.stdout, flush=True)
    name = "energy-kills-postgres" if store == "postgres" else "energy-kills"
    runs = [run for run in harness.saved_runs(name) if run["piece"] != piece]
    runs.append({"piece": piece, "kills": KILLS // pieces, "passed": done.returncode == 0,
                 "seconds": round(time.monotonic() - begin)})
    harness.save(name, [kills_row(runs)], runs)
    sys.exit(done.returncode)


def kills_row(runs):
    total, good = sum(r["kills"] for r in runs), all(r["passed"] for r in runs)
    return {"what": "kills and partitions of unit, broker and hub: acknowledged or counted µJ that are lost or counted twice",
            "lost": "none" if good else "a test failed", "kills": total, "pieces": len(runs), "goal": f"none in {KILLS:,}",
            "verdict": "missed" if not good else "met" if total >= KILLS else "not shown"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=("division", "machine", "unit", "kills"))
    parser.add_argument("--windows", type=int, default=10, help="machine: starts of both daemons, each with one window")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--piece", default="1/1", metavar="K/N")
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    options = parser.parse_args()
    if options.case == "division":
        division()
    elif options.case == "kills":
        kills(options.piece, options.store)
    else:
        {"machine": machine, "unit": unit}[options.case](options.windows, options.seconds)


if __name__ == "__main__":
    main()
