# SPDX-License-Identifier: Apache-2.0
"""The tables at the end of the demo. `rounds` is a list of {side key: [job summaries]}."""

import math
import statistics

import reference

MEASURES = (  # name, unit, whether more is better
    ("makespan", "s", False),
    ("mean turnaround", "s", False),
    ("total steps/s", "", True),
    ("CPU time", "s", False),
    ("waiting for a core", "s", False),  # all threads together
)


def measures(jobs):
    makespan = max(job["finished_s"] for job in jobs)
    result = {
        "makespan": makespan,
        "mean turnaround": statistics.fmean(job["finished_s"] - job["arrival_s"] for job in jobs),
        "total steps/s": sum(job["steps"] for job in jobs) / makespan,
    }
    if all(job["cpu_s"] is not None for job in jobs):  # else they were not our own children
        result["CPU time"] = sum(job["cpu_s"] for job in jobs)
        result["waiting for a core"] = sum(job["waited_s"] for job in jobs)
    return result


def gains(rounds):
    """{measure: [Threadtide's gain in each round]}, above 1 where Threadtide is better."""
    result = {name: [] for name, _, _ in MEASURES}
    for one in rounds:
        stock, tide = measures(one["stock"]), measures(one["threadtide"])
        for name, _, more in MEASURES:
            if name not in stock:
                continue
            result[name].append(tide[name] / stock[name] if more else stock[name] / tide[name])
    return result


def geometric_mean(values):
    return math.exp(statistics.fmean(map(math.log, values)))


def speed_table(rounds, chosen=MEASURES):
    stock = [measures(one["stock"]) for one in rounds]
    tide = [measures(one["threadtide"]) for one in rounds]
    several = f"gain, mean of {len(rounds)} rounds (range)"
    rows = [["", "stock", "Threadtide", several if len(rounds) > 1 else "gain"]]
    for name, unit, _ in chosen:
        values = gains(rounds)[name]
        if not values:
            continue
        gain = f"{geometric_mean(values):.2f}x"
        if len(rounds) > 1:
            gain += f"  ({min(values):.2f} – {max(values):.2f})"
        rows.append([name, *(f"{statistics.median(m[name] for m in side):.1f} {unit}".rstrip()
                             for side in (stock, tide)), gain])
    return rows


def others_text(others):
    """Work that the machine did for nobody of the demo."""
    return (f"other programs used {others['stock']:.0%} of the machine in the stock pass, "
            f"{others['threadtide']:.0%} in Threadtide's")


def job_table(rounds):
    """Finishing times of the last round, beside the results of every job."""
    rows = [["job", "arrives", "finishes, stock", "Threadtide", "turnaround"]]
    for a, b in zip(rounds[-1]["stock"], rounds[-1]["threadtide"]):
        gain = (a["finished_s"] - a["arrival_s"]) / (b["finished_s"] - b["arrival_s"])
        rows.append([a["name"], f"{a['arrival_s']:.0f} s", f"{a['finished_s']:.1f} s",
                     f"{b['finished_s']:.1f} s", f"{gain:.2f}x"])
    return rows


def result_table(rounds, fixed):
    rows = [["job", "", "stock", "Threadtide", "fixed threads", ""]]
    for a, b in zip(rounds[-1]["stock"], rounds[-1]["threadtide"]):
        known = fixed.get(a["name"])
        for label, key, style in (("final loss", "train_loss", ".6f"), ("accuracy", "accuracy", ".2%")):
            between = "–"
            if known:
                (low, high), _ = reference.spread(known, key)
                between = f"{low:{style}}" if low == high else f"{low:{style}} – {high:{style}}"
            first = key == "train_loss"
            rows.append([a["name"] if first else "", label, f"{a[key]:{style}}", f"{b[key]:{style}}",
                         between, reference.verdict(known, b) if known and first else ""])
    return rows if fixed else [row[:4] for row in rows]


def print_table(rows, paint=str, left=1):
    """The first `left` columns are words, the others numbers; the first row is the heading."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for n, row in enumerate(rows):
        cells = [cell.ljust(w) if i < left else cell.rjust(w)
                 for i, (cell, w) in enumerate(zip(row, widths))]
        line = "  " + "   ".join(cells).rstrip()
        print(paint(line) if n == 0 else line)
