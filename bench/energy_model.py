#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How near power models come to measured power, on two public data sets.

    TIDE_ENERGY_DATA=FOLDER energy_model.py [--trees]

FOLDER holds three files, fetched by hand; none is part of this tree:
  acpi.csv, rapl.csv   github.com/sustainable-computing-io/kepler-model-db 3bb4d64,
                       models/v0.6/nx12/preprocessed_data/preprocess_abs_default_{acpi,rapl}_Basic.csv: a server's power,
                       its packages' and memory's by RAPL, CPU time and cycles, each 3 s for two hours
  spec.csv             github.com/green-coding-solutions/spec-power-model 9739f29, data/spec_data.csv: published
                       results of SPECpower_ssj2008 (spec.org)

The server: what tided learns from readings, by bench/energy_model.c, on two splits:
  ten blocks of time, each forecast after learning from the nine others;
  sixteen blocks whose bounds, and which of them are held out, follow from the hash of a text (SPLIT). The estimator was
  chosen on the blocks that are not held out alone (--develop: on these, each after learning from the others); the
  figure is of those that are, after learning from all that are not.
--trees: gradient boosted trees (scikit-learn) on the same blocks and the same inputs.
SPECpower: curves through known points, and what is assumed of a machine of its year and sockets, with the tables of
scripts/power-prior.py made again without all machines of the same processor. Two rows are no model of Threadtide: a
straight line from idle to full power, and the mean of all other servers of the same processor and sockets, whose
names no program here knows.
"""

import argparse
import csv
import hashlib
import importlib.util
import os
import pathlib
import random
import statistics
import subprocess
import sys

import harness

BLOCKS = 10
SPLIT, SPLIT_BLOCKS = "threadtide server split 2", 16
BASE_HZ = 2e9
GOAL_W = 4.7
# The design's table: mean and p90 of the relative error.
ANCHORS = {"own 0, 10, 50, 100 %": (0.024, 0.076), "own idle and full": (0.072, 0.177), "none": (0.33, 0.79),
           "own idle and full, straight line": (0.099, 0.238), "same CPU and sockets, another server": (0.079, 0.188)}
NOT_OURS = ("own idle and full, straight line", "same CPU and sockets, another server")
NEW = 2017  # the design's row of four points counts machines since then


def power_prior():
    spec = importlib.util.spec_from_file_location("power_prior", harness.ROOT / "scripts/power-prior.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def server_samples(folder):
    """(sensor uW, busy mcpu, speed permille, uW) by time. CPU time is told in ms a second; where threads run long
    without a switch it is told too late, cycles are not: the two together are load and speed."""
    with open(folder / "acpi.csv", newline="", encoding="utf-8") as a, \
            open(folder / "rapl.csv", newline="", encoding="utf-8") as r:
        rapl = {row["timestamp"]: row for row in csv.DictReader(r)}
        for row in csv.DictReader(a):
            busy = max(float(row["bpf_cpu_time_us"]), 1.0)
            speed = float(row["cpu_cycles"]) / (busy / 1000 * BASE_HZ)
            part = rapl[row["timestamp"]]
            yield (round(1e6 * (float(part["package_power"]) + float(part["dram_power"]))), round(busy),
                   round(1000 * speed), round(1e6 * float(row["platform_power"])))


def blocked(samples):
    return [(i * BLOCKS // len(samples), *sample) for i, sample in enumerate(samples)]


def drawn_split(samples):
    """The lines of blocks that are not held out, and those of all, in which 0 stands for these and 1 for the others."""
    draw, n = random.Random(int.from_bytes(hashlib.sha256(SPLIT.encode()).digest(), "big")), len(samples)
    bounds = sorted(draw.sample(range(1, n), SPLIT_BLOCKS - 1))
    held = [draw.random() < 0.5 for _ in range(SPLIT_BLOCKS)]
    block = [sum(i >= bound for bound in bounds) for i in range(n)]
    ours = sorted({b for b in block if not held[b]})
    return ([(ours.index(b), *s) for b, s in zip(block, samples) if not held[b]],
            [(int(held[b]), *s) for b, s in zip(block, samples)])


def by_fit(lines):
    """(truth, forecast, low, high) in W."""
    done = subprocess.run([str(harness.BUILD / "bench" / "energy_model")], check=True, text=True,
                          input="".join(" ".join(map(str, line)) + "\n" for line in lines),
                          stdout=subprocess.PIPE, timeout=600)
    return [tuple(int(word) / 1e6 for word in line.split()[1:]) for line in done.stdout.splitlines()]


def by_trees(lines):
    """The same with boosted trees, which tell no interval."""
    from sklearn.ensemble import GradientBoostingRegressor
    found = []
    for held in range(BLOCKS):
        rows = [line for line in lines if line[0] != held]
        trees = GradientBoostingRegressor(random_state=0)
        trees.fit([[s, b, b * v] for _, s, b, v, _ in rows], [uw / 1e6 for *_, uw in rows])
        rest = [line for line in lines if line[0] == held]
        found += [(line[4] / 1e6, forecast, 0.0, float("inf")) for line, forecast in
                  zip(rest, trees.predict([[s, b, b * v] for _, s, b, v, _ in rest]))]
    return found


def server_row(what, found, goal=None):
    off = [abs(forecast - truth) for truth, forecast, _, _ in found]
    ratios = [abs(forecast / truth - 1) for truth, forecast, _, _ in found]
    row = {"what": f"server: {what}", "MAE W": round(statistics.fmean(off), 2),
           "error mean": round(statistics.fmean(ratios), 4), "error p90": round(harness.quantile(ratios, 0.9), 4)}
    if found[0][3] != float("inf"):
        row["covered"] = round(statistics.fmean(low <= truth <= high for truth, _, low, high in found), 3)
    if goal:
        row["goal"] = f"MAE ≤ {goal} W, covered ≥ 0.9"
        row["verdict"] = "met" if row["MAE W"] <= goal and row["covered"] >= 0.9 else "missed"
    return row | {"n": len(found)}


def develop(folder):
    lines, _ = drawn_split(list(server_samples(folder)))
    return [server_row("blocks that are not held out", by_fit(lines))]


def by_held_out(lines):
    """Forecasts of block 1 after learning from block 0."""
    return by_fit(lines)[sum(block == 0 for block, *_ in lines):]


def server(folder, trees):
    samples = list(server_samples(folder))
    lines = blocked(samples)
    fresh = drawn_split(samples)[1]
    blind = [(block, 0, *rest) for block, _, *rest in lines]
    rows = [server_row("package and memory sensor, CPU time, cycles", by_fit(lines), GOAL_W),
            server_row("CPU time and cycles alone", by_fit(blind)),
            server_row("package and memory sensor, CPU time, cycles; held out", by_held_out(fresh), GOAL_W)]
    if trees:
        rows += [server_row("boosted trees, package and memory sensor, CPU time, cycles", by_trees(lines)),
                 server_row("boosted trees, CPU time and cycles alone", by_trees(blind))]
    return rows


def family(row):
    return row["HW_CPUName"].strip()


def spec_results(prior, path):
    """(family, (year, sockets, watts))."""
    with open(path, newline="", encoding="utf-8") as file:
        families = [family(row) for row in csv.DictReader(file, delimiter="|")]
    return list(zip(families, prior.read(path)))


def without(results, group_of):
    """For each result the others of its group that are of another family."""
    for name, result in results:
        yield result, [r for other, r in results if other != name and group_of(r) == group_of(result)]


def year_group(prior, result):
    return max(year for year in prior.YEARS if year <= max(result[0], prior.YEARS[0]))


def left_out(prior, results, curve):
    """Errors of results that are left out one by one: intervals follow from them, as in scripts/power-prior.py."""
    return [e for i, (_, _, w) in enumerate(results)
            for e in prior.spread(curve(results[:i] + results[i + 1:], w), w)]


def spec_errors(prior, results):
    """{knowledge: [(relative error, covered or None) of each load of each result]}."""
    found = {"own 0, 10, 50, 100 %": [], "own idle and full": [], "none": []}
    for result, others in without(results, lambda r: year_group(prior, r)):
        year, sockets, watts = result
        if year >= NEW:
            four = [(load, watts[load // 10]) for load in (0, 10, 50, 100)]
            found["own 0, 10, 50, 100 %"] += [(e, None) for e in prior.errors(four, watts)]
        if len(others) < prior.LEAST:
            continue
        fractions = prior.shape(others)
        wide = prior.width(left_out(prior, others, lambda rest, w: prior.drawn(prior.shape(rest), w[0], w[-1])),
                           len(others))
        points = prior.drawn(fractions, watts[0], watts[-1])
        found["own idle and full"] += [(e, s <= wide) for e, s in
                                       zip(prior.errors(points, watts), prior.spread(points, watts))]
        same = [r for r in others if r[1] == sockets]
        if len(same) < prior.LEAST:
            continue
        typical = prior.typical(same, fractions)
        wide = prior.quantile(
            left_out(prior, same, lambda rest, _, fractions=fractions: prior.typical(rest, fractions)), 900)
        found["none"] += [(e, s <= wide) for e, s in zip(prior.errors(typical, watts), prior.spread(typical, watts))]
    return found


def baselines(prior, results):
    """The same for the two rows of the design that are no model of ours."""
    found = {what: [] for what in NOT_OURS}
    for i, (name, (_, sockets, watts)) in enumerate(results):
        straight = [(0, watts[0]), (100, watts[-1])]
        found[NOT_OURS[0]] += [(e, None) for e in prior.errors(straight, watts)]
        alike = [w for k, (other, (_, n, w)) in enumerate(results) if k != i and other == name and n == sockets]
        if alike:
            points = [(load, statistics.fmean(column)) for load, column in zip(prior.LOADS, zip(*alike))]
            found[NOT_OURS[1]] += [(e, None) for e in prior.errors(points, watts)]
    return found


def spec_row(what, found, p90):
    """@p90 of the errors is the caller's, as scripts/power-prior.py has it. The figures are compared as they are, not as rounded."""
    errors = [e for e, _ in found]
    covered = [c for _, c in found if c is not None]
    mean, (goal_mean, goal_p90) = statistics.fmean(errors), ANCHORS[what]
    good = mean <= goal_mean and p90 <= goal_p90 and (not covered or statistics.fmean(covered) >= 0.9)
    row = {"what": f"SPECpower: points known: {what}", "error mean": round(mean, 4), "error p90": round(p90, 4)}
    if covered:
        row["covered"] = round(statistics.fmean(covered), 3)
    if what in NOT_OURS:
        return row | {"goal": f"the design's table: mean {goal_mean}, p90 {goal_p90}", "verdict": "no model of ours",
                      "n": len(errors) // 11}
    return row | {"goal": f"mean ≤ {goal_mean}, p90 ≤ {goal_p90}" + ", covered ≥ 0.9" * bool(covered),
                  "verdict": "met" if good else "missed", "n": len(errors) // 11}


def spec(folder):
    prior = power_prior()
    results = spec_results(prior, folder / "spec.csv")
    return [spec_row(what, found, prior.quantile([e for e, _ in found], 900))
            for what, found in (spec_errors(prior, results) | baselines(prior, results)).items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--develop", action="store_true")
    parser.add_argument("--trees", action="store_true", help="needs scikit-learn")
    options = parser.parse_args()
    folder = os.environ.get("TIDE_ENERGY_DATA")
    if not folder:
        sys.exit("energy_model: TIDE_ENERGY_DATA names no folder; --help says what belongs into it")
    if options.develop:
        print(*develop(pathlib.Path(folder)))
        return
    rows = [{**row, "watts": "data set"} for row in
            [*server(pathlib.Path(folder), options.trees), *spec(pathlib.Path(folder))]]
    for row in rows:
        print(*(f"{key} {value}" for key, value in row.items()), sep="; ")
    harness.save("energy-model", rows)


if __name__ == "__main__":
    main()
