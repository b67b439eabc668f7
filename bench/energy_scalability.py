#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables and the picture of docs/energy-scalability.md, from the runs in bench/results (energy_load.py).

    energy_scalability.py           writes docs/energy-scalability.md below its mark, and docs/img/energy-scalability.svg

Formulas stand in the document. Whatever was not measured is left out, and said so.
"""

import math

import energy_load
import harness

DOCUMENT = harness.ROOT / "docs/energy-scalability.md"
PICTURE = harness.ROOT / "docs/img/energy-scalability.svg"
MARK = "<!-- tables -->"
PERIOD_S = energy_load.PERIOD_S
CURVE = [100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000]
FAN_OUT = 3000       # units of one hub in the tree: the largest number that the model was fitted to
DAY_S = 86_400
GOAL_PERCENT = 40
CASES = [("a laboratory", 20), ("Facultad: 400 processors in 25 areas", 25),
         ("Facultad: a unit for each of 400 machines", 400), ("a university", 3000), ("goal", 10_000)]


def table(head, rows):
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head),
            *("| " + " | ".join(str(x) for x in row) + " |" for row in rows), ""]


def share(percent):
    return "more than a core" if percent >= 100 else f"{percent:.2f}"


def mean_wait_ms(rate, service_s):
    """Pollaczek-Khinchine for M/D/1."""
    load = rate * service_s
    return math.inf if load >= 1 else load * service_s / (2 * (1 - load)) * 1e3


def model(runs):
    a, b, fixed = energy_load.fit(runs)
    return {"a": a, "b": b, "fixed_ms": fixed, "service_s": b / 100}


def predicted(m, units):
    rate = units / PERIOD_S
    return {"rate": rate, "percent": m["a"] + m["b"] * rate,
            "p99_ms": m["fixed_ms"] + energy_load.wait_ms(rate, m["b"]),
            "mean_ms": mean_wait_ms(rate, m["service_s"]), "bound_s": units * m["service_s"]}


def residuals(m, runs):
    rows = []
    for run in sorted(runs, key=lambda r: r["units"]):
        said = predicted(m, run["units"])
        rows.append([f"{run['units']:,}", "fitted" if run["units"] <= energy_load.FITTED_MAX else "",
                     run["broker_percent"], f"{said['percent']:.2f}",
                     f"{run['broker_percent'] / said['percent'] - 1:+.1%}", run["p99_ms"], f"{said['p99_ms']:.2f}",
                     f"{run['p99_ms'] / said['p99_ms'] - 1:+.1%}"])
    return table(["units", "", "broker, % of a core", "model", "residual", "p99 ms", "model", "residual"], rows)


def broker_part(runs):
    fitted = [r for r in runs if r["units"] <= energy_load.FITTED_MAX]
    if len({r["units"] for r in fitted}) < 2:
        return None, ["No runs with two different numbers of units up to 3,000 are in `bench/results`: "
                      "nothing is fitted, and no figure is given.", ""]
    m = model(fitted)
    lines = [f"CPU of the broker = {m['a']:.3f} % + {m['b']:.5f} % × messages a second: {m['service_s'] * 1e6:.0f} µs "
             f"a message with what its connection costs. Fixed part of p99: {m['fixed_ms']:.2f} ms.", ""]
    lines += residuals(m, runs)
    rows = []
    for name, units in CASES + [("", n) for n in CURVE if n not in dict.fromkeys(n for _, n in CASES)]:
        p = predicted(m, units)
        full = p["percent"] >= 100
        rows.append([name, f"{units:,}", f"{p['rate']:,.1f}", share(p["percent"]),
                     "-" if full else f"{p['mean_ms']:.3f}", "-" if full else f"{p['p99_ms']:.2f}",
                     f"{p['bound_s'] * 1e3:,.0f}"])
    lines += ["One broker, by the model (nothing below is measured beyond the rows above):", ""]
    lines += table(["", "units", "messages a second", "broker, % of a core", "mean wait ms (M/D/1)", "p99 ms",
                    "all at once: bound ms"], rows)
    most = (GOAL_PERCENT - m["a"]) / m["b"] * PERIOD_S
    lines += [f"{GOAL_PERCENT} % of a core are reached at {most:,.0f} units of one broker, by this straight line: "
              "extrapolated, and above what 10,000 units took. Its p99 was too low there, and is no forecast.", ""]
    return m, lines


def storm_part(runs):
    costs = [r["connect_cpu_ms"] for r in runs if "connect_cpu_ms" in r]
    if not costs:
        return []
    cost = sorted(costs)[len(costs) // 2]
    rows = [[f"{n:,}", f"{n * cost / 1e3:,.1f}", f"{1e3 / cost:,.0f}"] for n in (400, 3000, 10_000)]
    return ["", f"A connection with TLS 1.3 and two certificates costs the broker {cost:.2f} ms of CPU time (median of runs).",
            "", *table(["units that all come back", "s of the broker's core", "connections a second at most"], rows)]


def tree_part(m):
    rows = []
    for units in (10_000, 100_000, 1_000_000):
        leaves = math.ceil(units / FAN_OUT)
        p, root = predicted(m, min(units, FAN_OUT)), predicted(m, leaves)
        rows.append([f"{units:,}", leaves, f"{p['percent']:.1f}", f"{root['percent']:.2f}",
                     f"{leaves * p['percent'] / 100 + root['percent'] / 100:.1f}", f"{p['p99_ms'] + root['p99_ms']:.1f}"])
    return [f"A tree of two levels, {FAN_OUT:,} units to a hub; a hub is one unit of its parent:", "",
            *table(["units", "hubs below the root", "broker of each, % of a core", "root's broker, %",
                    "cores of all brokers", "p99 ms, sum of both levels"], rows)]


def hub_part(runs):
    if not runs:
        return ["No run with a real hub is in `bench/results`: neither drain nor growth has figures yet.", ""]
    lines = table(["units", "what", "hub, % of a core", "p99 ms until the receipt", "records stored", "in s",
                   "records a second", "bytes a record"],
                  [[f"{r['units']:,}", "a message each per 10 s" if r["mode"] == "hub" else "a day's outage",
                    r["hub_percent"], r["p99_ms"] if r["mode"] == "hub" else "",
                    f"{r['acknowledged']:,}", r["acknowledged_s"],
                    f"{r['acknowledged'] / max(r['acknowledged_s'], 0.1):,.0f}",
                    f"{r['store_bytes'] / max(r['acknowledged'], 1):.0f}" if r["acknowledged"] > 50_000 else ""]
                   for r in sorted(runs, key=lambda r: (r["mode"], r["units"]))])
    return lines


def page_part(runs):
    """Until the page has a message, with all units at work."""
    if not runs:
        return []
    rows = [[f"{r['units']:,}", r["others"], r["what"].split(":")[0], r["messages"], r["median s"], r["p99 s"],
             f"{r['95 % low']} … {r['95 % high']}", r["hub, %"], r["told to the page a second"]]
            for r in energy_load.page_rows(runs)]
    return ["### Until the page has it", "",
            *table(["units", "which tell their", "message", "messages", "median s", "p99 s", "95 %", "hub, % of a core",
                    "events a second to the page"], rows)]


def said_part(predictions):
    lines = []
    for row in energy_load.predicted_rows(predictions):
        said = f"{row['units']:,} units, {row['what']}: predicted {row['predicted']}"
        if "over predicted" in row:
            said += (f", measured {row['measured in median']}: ×{row['over predicted']} ({row['95 % low']} … "
                     f"{row['95 % high']}, n = {row['repeats']}), goal {row['goal']}: **{row['verdict']}**")
        lines.append(f"* {said}.")
    if lines:
        fitted = predictions[0]["fitted"]
        grows = " and ".join(f"{what} as (messages a second)^{fitted[key][1]:.2f} × units^{fitted[key][2]:.2f}"
                             for key, what in (("broker_percent", "CPU"), ("p99_ms", "p99")))
        sizes = ", ".join(f"{units:,} × {period}" for units, period in sorted(set(map(tuple, fitted["runs"]))))
        lines = ["### What was written down before", "",
                 f"The forecast, fitted on {len(fitted['runs'])} runs (units × seconds between two messages of each: {sizes}) "
                 f"before so many units were measured: {grows}.", "",
                 *lines, ""]
    return lines


def scale(value, low, high, size):
    return (math.log10(value) - math.log10(low)) / (math.log10(high) - math.log10(low)) * size


def picture(m, runs):
    """CPU of one broker over units, both logarithmic: the line is the model, points are runs."""
    width, height, left, top = 560, 300, 70, 20
    x = lambda n: left + scale(n, 50, 2e6, width)          # noqa: E731
    y = lambda p: top + height - scale(max(p, 0.05), 0.05, 2000, height)  # noqa: E731
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width + left + 30} {height + top + 50}" '
           'font-family="sans-serif" font-size="12">',
           "<title>CPU of one broker over the number of units: model and runs</title>",
           f'<rect width="{width + left + 30}" height="{height + top + 50}" fill="#fff"/>']
    for n in (100, 1000, 10_000, 100_000, 1_000_000):
        out.append(f'<path d="M{x(n):.1f} {top}v{height}" stroke="#ddd"/>'
                   f'<text x="{x(n):.1f}" y="{top + height + 16}" text-anchor="middle">{n:,}</text>')
    for p in (0.1, 1, 10, 100, 1000):
        out.append(f'<path d="M{left} {y(p):.1f}h{width}" stroke="#ddd"/>'
                   f'<text x="{left - 6}" y="{y(p) + 4:.1f}" text-anchor="end">{p:g} %</text>')
    out.append(f'<path d="M{left} {y(GOAL_PERCENT):.1f}h{width}" stroke="#c00" stroke-dasharray="4 3"/>'
               f'<text x="{left + 6}" y="{y(GOAL_PERCENT) - 4:.1f}" fill="#c00">goal: {GOAL_PERCENT} % of a core</text>')
    line = " ".join(f"{x(n):.1f},{y(predicted(m, n)['percent']):.1f}" for n in CURVE)
    tree = " ".join(f"{x(n):.1f},{y(predicted(m, min(n, FAN_OUT))['percent']):.1f}" for n in CURVE)
    out += [f'<polyline points="{line}" fill="none" stroke="#06c" stroke-width="2"/>',
            f'<polyline points="{tree}" fill="none" stroke="#080" stroke-width="2" stroke-dasharray="7 4"/>',
            f'<text x="{left + width - 4}" y="{top + 24}" text-anchor="end" fill="#06c">one broker (model)</text>',
            f'<text x="{left + width - 4}" y="{y(predicted(m, FAN_OUT)["percent"]) - 6:.1f}" text-anchor="end" '
            f'fill="#080">each broker of the tree</text>']
    for run in runs:
        fill = "#06c" if run["units"] <= energy_load.FITTED_MAX else "#fff"
        out.append(f'<circle cx="{x(run["units"]):.1f}" cy="{y(run["broker_percent"]):.1f}" r="4" fill="{fill}" '
                   'stroke="#06c"/>')
    out += [f'<text x="{left + width / 2}" y="{top + height + 36}" text-anchor="middle">units (filled: fitted, open: '
            'not fitted)</text>', "</svg>", ""]
    PICTURE.write_text("\n".join(out))


def main():
    runs, hub_runs = energy_load.usual(harness.saved_runs(energy_load.NAME)), harness.saved_runs(energy_load.HUB_NAME)
    m, lines = broker_part(runs)
    lines = [MARK, "", "## Figures", "", *lines]
    if m:
        lines += tree_part(m)
        picture(m, runs)
        lines += ["![CPU of one broker over the number of units](img/energy-scalability.svg)", ""]
    lines += storm_part(runs)
    lines += ["### The hub and its store", "", *hub_part(hub_runs)]
    lines += page_part(harness.saved_runs(energy_load.PAGE_NAME))
    lines += said_part(harness.saved_runs(energy_load.PREDICTED_NAME))
    text = DOCUMENT.read_text()
    DOCUMENT.write_text(text.split(MARK)[0] + "\n".join(lines))
    print(f"written to {DOCUMENT}")


if __name__ == "__main__":
    main()
