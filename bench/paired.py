#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two builds of Threadtide against each other: is the new one slower or larger than the old one?

    paired.py --old BUILD [--rounds 5]      BUILD: the build tree of an older commit

Each round runs the same measurements (micro.py, latency.py of today's tree) once with the old build and
once with today's, in turn, A B B A …. A row's figure is the median of the rounds; its ratio new / old is
the geometric mean over the pairs with a 95 % interval. "worse" means: the whole interval lies above 1.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import harness

HERE = pathlib.Path(__file__).resolve().parent
SCRIPTS = (("micro.py", ("--parts", "hooks,api,starts,daemon")),
           ("latency.py", ("--models", "mlp", "--sizes", "8:0,8:3", "--resizes", "50")))


def measure(build, folder):
    """The figures of one run of every script with this build: {(what, unit): value}."""
    found = {}
    for script, options in SCRIPTS:
        rows = pathlib.Path(folder) / "rows.json"
        subprocess.run([sys.executable, str(HERE / script), *options, "--rows", str(rows)], check=True,
                       env={**os.environ, "TIDE_BUILD_DIR": str(build)}, stdout=subprocess.DEVNULL)
        for row in json.loads(rows.read_text()):
            if "what" in row:
                found[row["what"], row["unit"]] = row["p50"]
            else:
                name = f"{row['command']}, {row['other jobs']} other jobs"
                found.update({(f"{name}: lag p50", "ms"): row["lag p50"], (f"{name}: lag p99", "ms"): row["lag p99"]})
    return found


def table(pairs):
    rows = []
    for what, unit in pairs[0][0]:
        old, new = ([side[what, unit] for side in sides] for sides in zip(*pairs))
        row = {"what": what, "unit": unit, "old": harness.quantile(old, 0.5), "new": harness.quantile(new, 0.5)}
        if min(old + new) > 0:
            ratio, low, high = harness.log_interval([y / x for x, y in zip(old, new)])
            verdict = "worse" if low > 1 else "better" if high < 1 else "not told apart"
            row |= {"new / old": f"{ratio:.2f}", "95 %": f"{low:.2f} … {high:.2f}", "verdict": verdict}
        rows.append({**row, "rounds": len(pairs)})
    return rows


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--old", required=True, metavar="BUILD", type=pathlib.Path)
    p.add_argument("--rounds", type=int, default=5)
    args = p.parse_args()
    pairs = []
    with tempfile.TemporaryDirectory() as folder:
        for i in range(args.rounds):
            sides = {}
            for build in (args.old, harness.BUILD) if i % 2 == 0 else (harness.BUILD, args.old):
                sides[build] = measure(build.resolve(), folder)
            pairs.append((sides[args.old], sides[harness.BUILD]))
            rows = table(pairs)
            harness.save("paired", rows, [{"round": i + 1, "old": {k[0]: v for k, v in a.items()},
                                           "new": {k[0]: v for k, v in b.items()}}
                                          for i, (a, b) in enumerate(pairs)])
    for row in rows:
        print("  ".join(str(value) for value in row.values()))


if __name__ == "__main__":
    main()
