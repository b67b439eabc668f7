#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/benchmarks.md's tables from bench/results/*.json; the reading above them is ours.

The text before the line `<!-- tables -->` is kept, what follows is replaced. Each row says at which commit
and on which day it was measured, and is marked stale when the programs of the build tree are others.
"""

import json

import harness
import stamp

DOCUMENT = harness.ROOT / "docs" / "benchmarks.md"
MARK = "<!-- tables -->"


def verdict(row):
    if "goal" not in row:
        return ""
    if row["low"] >= row["goal"]:
        return "met"
    return "not shown" if row["high"] >= row["goal"] else "missed"


def ratio_table(result):
    lines = ["| | median ratio | 95 % interval | min … max | pairs | goal | | measured |", "|" + "---|" * 8]
    for row in result["rows"]:
        row = {**row, **harness.ratio_stats(row["ratios"])}
        label = row["model"] + (f", memory ×{row['rss_ratio']:.3f}" if "rss_ratio" in row else "")
        lines.append(f"| {label} | {row['ratio']:.3f} | {row['low']:.3f} … {row['high']:.3f} | "
                     f"{row['min']:.2f} … {row['max']:.2f} | {row['repeats']} | "
                     f"{row.get('goal', '')} | {verdict(row)} | "
                     f"{stamp.told(row, harness.BUILD, result['bench'])} |")
    return lines


def value_table(result):
    rows = [{**row, "measured": stamp.told(row, harness.BUILD, result["bench"])} for row in result["rows"]]
    keys = [*dict.fromkeys(key for row in rows for key in row if key != "measured"), "measured"]
    lines = ["| " + " | ".join(keys) + " |", "|" + "---|" * len(keys)]
    lines += ["| " + " | ".join(str(row.get(k, "")) for k in keys) + " |" for row in rows]
    return lines


def main():
    lines = [MARK, ""]
    for path in sorted(harness.RESULTS.glob("*.json")):
        result = json.loads(path.read_text())
        m = result["machine"]
        lines += [f"## {result['bench']}", "",
                  f"{m['cpus']} cores, {m['model']}, Linux {m['kernel']}", ""]
        lines += ratio_table(result) if "ratio" in result["rows"][0] else value_table(result)
        lines.append("")
    text = DOCUMENT.read_text() if DOCUMENT.exists() else ""
    DOCUMENT.write_text(text.split(MARK)[0] + "\n".join(lines))


if __name__ == "__main__":
    main()
