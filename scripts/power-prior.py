#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes src/power/model/prior_rows.h from results of SPECpower_ssj2008.

usage: scripts/power-prior.py spec_data.csv COMMIT > src/power/model/prior_rows.h

The table is data/spec_data.csv of github.com/green-coding-solutions/spec-power-model at COMMIT: one published
result a line, fields separated by "|". It is fetched by hand and is no part of this tree; what goes into the
tree are medians of groups of at least LEAST results.
"""
import csv
import statistics
import sys

LOADS = (0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
KEPT = (10, 20, 40, 60, 80, 90)  # with 0 and 100: the eight points of a curve
YEARS = (2004, 2009, 2011, 2014, 2017, 2019, 2021)  # a group begins; the last one has no end
SOCKETS = (1, 2, 4, 8)
LEAST = 8
WIDEST = 0.9  # an interval of more than the value itself would begin at 0 W, which no machine draws


def read(path):
    """(year, sockets, watts by load) of each result."""
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="|"):
            chips = next(p for p in row["HW_CPUsEnabled"].split(",") if "chip" in p and "/" not in p)
            watts = [float(row["ActiveIdle"])] + [float(row[f"{p}_AvgPower"]) for p in LOADS[1:]]
            yield int(row["Hardware_Availability"][-4:]), int(chips.split()[0]), watts


def quantile(values, permille):
    values = sorted(values)
    return values[min(len(values) - 1, len(values) * permille // 1000)]


def width(spreads, machines):
    """Width of an interval that holds 90 % of all loads with a confidence of 95 %. Loads of one machine are alike, so
    the uncertainty of the quantile is that of so many machines (Wilks' tolerance limit in its normal approximation)."""
    return quantile(spreads, min(999, round(900 + 1000 * 1.645 * (0.9 * 0.1 / machines) ** 0.5)))


def line(points, load):
    """The piecewise line through points, which watts.c draws."""
    for (a, low), (b, high) in zip(points, points[1:]):
        if load <= b:
            return low + (high - low) * (load - a) / (b - a)
    raise ValueError(load)


def shape(results):
    """Part of the way from idle to full, in permille, at each kept load."""
    return [round(1000 * statistics.fmean((w[p // 10] - w[0]) / (w[-1] - w[0]) for _, _, w in results))
            for p in KEPT]


def drawn(fractions, idle, full):
    return [(0, idle), *((p, idle + (full - idle) * f / 1000) for p, f in zip(KEPT, fractions)), (100, full)]


def errors(points, watts):
    return [abs(line(points, p) / w - 1) for p, w in zip(LOADS, watts)]


def spread(points, watts):
    """As errors(), but relative to what the curve says: how wide its interval has to be."""
    return [abs(1 - w / line(points, p)) for p, w in zip(LOADS, watts)]


def typical(results, fractions):
    """The medians, raised until 90 % of the results lie within WIDEST of the curve."""
    points = drawn(fractions, statistics.median(w[0] for _, _, w in results),
                   statistics.median(w[-1] for _, _, w in results))
    wide = quantile([e for _, _, w in results for e in spread(points, w)], 900)
    raised = max(1, (1 + wide) / (1 + WIDEST))
    return [(load, watts * raised) for load, watts in points]


def near(results, begin, end, sockets):
    """The results of these sockets in these years, and in more years until there are enough."""
    for more in range(20):
        found = [r for r in results if r[1] == sockets and begin - more <= r[0] < end + more]
        if len(found) >= LEAST:
            return found
    return []


def main():
    path, commit = sys.argv[1:]
    results = list(read(path))
    groups = list(zip(YEARS, YEARS[1:] + (max(y for y, _, _ in results) + 1,)))
    print(f"""/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Written by scripts/power-prior.py; do not edit. Medians and mean curves of groups of results of
 * SPECpower_ssj2008 (spec.org), as collected at
 *   github.com/green-coding-solutions/spec-power-model {commit}, data/spec_data.csv
 * Errors are those of results that were left out one by one. Private to this room.
 */
/* clang-format off */""")
    print("#define PRIOR_SHAPES(ROW) /* first year, error, permille from idle to full at 10, 20, 40, 60, 80, 90 % */ \\")
    every, lines, fractions_of = [], [], {}
    for begin, end in groups:
        group = [r for r in results if begin <= r[0] < end]
        fractions_of[begin] = shape(group)
        out, wide = [], []
        for i, (_, _, w) in enumerate(group):
            points = drawn(shape(group[:i] + group[i + 1:]), w[0], w[-1])
            out += errors(points, w)
            wide += spread(points, w)
        every += out
        lines.append(f"    ROW({begin}, {round(1000 * width(wide, len(group)))}, "
                     + ", ".join(map(str, fractions_of[begin])) + ")")
    print(" \\\n".join(lines))
    print(f"shape, own idle and full: mean {statistics.fmean(every):.3f}, p90 {quantile(every, 900):.3f}",
          file=sys.stderr)
    print("#define PRIOR_ROWS(ROW) /* first year, sockets, idle and full in W, error in permille, results */ \\")
    every, lines = [], []
    for begin, end in groups:
        for sockets in SOCKETS:
            group = near(results, begin, end, sockets)
            if not group:
                continue
            out, wide = [], []
            for i, (_, _, w) in enumerate(group):
                points = typical(group[:i] + group[i + 1:], fractions_of[begin])
                out += errors(points, w)
                wide += spread(points, w)
            if quantile(wide, 900) >= 1:
                continue  # too few, too far apart: nothing is known of such machines
            every += out
            points = typical(group, fractions_of[begin])
            lines.append(f"    ROW({begin}, {sockets}, {round(points[0][1])}, {round(points[-1][1])}, "
                         f"{round(1000 * quantile(wide, 900))}, {len(group)})")
    print(" \\\n".join(lines))
    print("/* clang-format on */")
    print(f"same years and sockets: mean {statistics.fmean(every):.3f}, p90 {quantile(every, 900):.3f}",
          file=sys.stderr)


if __name__ == "__main__":
    main()
