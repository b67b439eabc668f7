#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `tide record` and `tide sim` predict, beside what then happens: the demo's mix, shortened.

    replay.py                           three rounds, about fifteen minutes
    replay.py --folder DIR --passes 1   one pass of them, and what can be said by then

A round runs the three trainings under Threadtide as they arrive one after the other (`apart`),
once more almost at once and in another order (`together`), and without control (`stock`). The first
two are recorded. From each recording all three are predicted: itself, the same jobs with the other
arrivals, and without control. A pass that DIR holds already is not run again.
"""

import argparse
import csv
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import harness

DEMO = harness.ROOT / "demo"
sys.path.insert(0, str(DEMO))
import digits  # noqa: E402
import mix  # noqa: E402
import side  # noqa: E402

GOAL_PERCENT = 10
RECORDER_GUARD_S = 30


@dataclasses.dataclass(frozen=True)
class Pass:
    specs: tuple
    recorded: bool

    @property
    def policy(self):
        return "equal" if self.recorded else "none"


APART = (mix.Spec("cnn", 0, 3), mix.Spec("mlp", 8, 9), mix.Spec("attention", 16, 7))
TOGETHER = (mix.Spec("attention", 0, 7), mix.Spec("cnn", 2, 3), mix.Spec("mlp", 4, 9))
PASSES = {"apart": Pass(APART, True), "together": Pass(TOGETHER, True), "stock": Pass(APART, False)}


class Silent:
    """The demo's screen, without."""

    def draw(self, now, jobs):
        pass


class Recorded(side.Threadtide):
    """The demo's way to run programs under Threadtide, with `tide record` beside it."""

    def __init__(self, folder, file):
        super().__init__(harness.BUILD)
        self.file = file
        self.said = open(folder / "record.txt", "w", encoding="utf-8")
        self.recorder = subprocess.Popen([self.tide, "record", "-o", str(file)], stderr=self.said,
                                         env=self.environment())

    def scenario(self):
        """The recorder ends with the daemon, which ends after its last job."""
        if self.recorder.wait(RECORDER_GUARD_S) != 0:
            raise RuntimeError(f"tide record failed: {pathlib.Path(self.said.name).read_text()}")
        return json.loads(self.file.read_text())

    def close(self):
        if self.recorder.poll() is None:
            self.recorder.kill()
            self.recorder.wait()
        self.said.close()
        super().close()


def busy_s():
    """Time that the processors have spent on anything since the boot."""
    with open("/proc/stat", encoding="ascii") as f:
        user, nice, system, _, _, irq, softirq = map(int, f.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def run_pass(what, data, folder):
    """Runs the mix; returns what became of each job, and the recording if there is one."""
    how = Recorded(folder, folder / "recording.json") if what.recorded else side.Stock()
    try:
        busy = busy_s()
        jobs = mix.Mix(what.specs, folder).run(how, data, Silent())
        busy = busy_s() - busy - sum(job["cpu_s"] for job in jobs)
        return {"jobs": jobs, "others": busy / max(job["finished_s"] for job in jobs),
                "scenario": how.scenario() if what.recorded else None}
    finally:
        how.close()


# ---- prediction ----

def predict(scenario, real, policy):
    """{name: (arrival, finish)} as simulated when jobs arrive as they really did."""
    begin = min(job["arrival_s"] for job in real)
    arrivals = {job["name"]: job["arrival_s"] - begin for job in real}
    jobs = [{**job, "arrival": arrivals[job["name"]]} for job in scenario["jobs"]]
    with tempfile.TemporaryDirectory(prefix="tide-bench-") as folder:
        path, table = pathlib.Path(folder) / "scenario.json", pathlib.Path(folder) / "jobs.csv"
        path.write_text(json.dumps({**scenario, "jobs": jobs}))
        subprocess.run([harness.TIDE, "sim", path, "--policy", policy, "--csv", table], check=True,
                       stdout=subprocess.DEVNULL)
        with table.open(encoding="utf-8") as lines:
            return {row["name"]: (float(row["arrival"]), float(row["finish"]))
                    for row in csv.DictReader(lines)}


def makespan(times):
    return max(end for _, end in times.values()) - min(begin for begin, _ in times.values())


def turnaround(times):
    return statistics.fmean(end - begin for begin, end in times.values())


def percent(predicted, real):
    return round(100 * (predicted / real - 1), 1)


def verdict(row):
    worst = max(abs(row["makespan error %"]), abs(row["turnaround error %"]))
    return "met" if worst <= GOAL_PERCENT else "missed"


def compare(number, recorded, target, passes):
    """One row: the recording of one pass against what happened in another of the same round."""
    jobs = passes[target]["jobs"]
    real = {job["name"]: (job["arrival_s"], job["finished_s"]) for job in jobs}
    guess = predict(passes[recorded]["scenario"], jobs, PASSES[target].policy)
    errors = {name: percent(guess[name][1] - guess[name][0], end - begin)
              for name, (begin, end) in real.items()}
    row = {"recorded": recorded, "predicted": target, "round": number,
           "others' cores": round(passes[target]["others"], 2)}
    for name, measure in (("makespan", makespan), ("turnaround", turnaround)):
        row |= {f"{name} s": round(measure(real), 1), f"predicted {name} s": round(measure(guess), 1),
                f"{name} error %": percent(measure(guess), measure(real))}
    return {**row, **{f"{name} error %": errors[name] for name in sorted(errors)},
            "goal %": GOAL_PERCENT, "verdict": verdict(row)}


def with_mean(rows):
    """The rows of one kind, and what their means amount to: single runs differ among themselves."""
    mean = {**rows[-1], "round": "mean"}
    for key in rows[-1]:
        if key.endswith((" s", " cores", " %")) and key != "goal %":
            mean[key] = round(statistics.fmean(row[key] for row in rows), 2 if "cores" in key else 1)
    for name in ("makespan", "turnaround"):
        mean[f"{name} error %"] = percent(mean[f"predicted {name} s"], mean[f"{name} s"])
    return [*rows, mean | {"verdict": verdict(mean)}]


def rows_of(rounds):
    rows = []
    for recorded in (name for name, how in PASSES.items() if how.recorded):
        for target in PASSES:
            kind = [compare(number, recorded, target, passes) for number, passes
                    in enumerate(rounds, 1) if recorded in passes and target in passes]
            rows += with_mean(kind) if len(kind) > 1 else kind
    return rows


# ---- the whole ----

def parse_args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--folder", type=pathlib.Path, help="keep passes there, use those that it holds")
    p.add_argument("--passes", type=int, help="run at most so many now")
    return p.parse_args()


def warm_up():
    """Loads TensorFlow once: else the first pass alone would read its gigabyte from the disk."""
    subprocess.run([sys.executable, str(mix.TRAIN), "--help"], stdout=subprocess.DEVNULL, check=True)


def measure(args, folder):
    data, _ = digits.prepare(DEMO / ".cache")
    left = args.passes if args.passes is not None else len(PASSES) * args.rounds
    rounds = []
    for number in range(1, args.rounds + 1):
        rounds.append({})
        order = list(PASSES) if number % 2 else list(reversed(PASSES))
        for name in order:
            file = folder / f"{number}-{name}.json"
            if not file.exists() and left > 0:
                warm_up()
                left -= 1
                file.write_text(json.dumps(run_pass(PASSES[name], data, folder)))
            if file.exists():
                rounds[-1][name] = json.loads(file.read_text())
    return rounds


def main():
    args = parse_args()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    with tempfile.TemporaryDirectory(prefix="tide-bench-") as scratch:
        folder = args.folder or pathlib.Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        rows = rows_of(measure(args, folder))
    for row in rows:
        print(*row.values(), sep="\t")
    if rows:
        harness.save("replay", rows)


if __name__ == "__main__":
    main()
