#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One job alone: what the agent costs when it does nothing, and when it holds threads back.

    throughput.py --case idle                   under `tide run`, no resize / stock
    throughput.py --case held --max 8 --threads 1       8 threads built, held at 1 / stock with 1
    throughput.py --case orphaned               two seconds after the daemon was killed / stock
"""

import argparse
import os
import signal
import time

import harness

MODELS = "cnn,mlp,lstm,attention,savedmodel"


def kill_daemon(bench):
    pid = int((bench.run_dir / "tided.lock").read_text().split()[0])
    os.kill(pid, signal.SIGKILL)
    time.sleep(2)


def measure(model, args):
    with harness.Bench() as bench:
        if args.case == "held":
            counts = [str(args.threads)]
            a = bench.stock(model, "a", "--intra", *counts, "--inter", *counts)
            b = bench.tide(model, "b", run=("--max", str(args.max), "--threads", str(args.threads)))
        else:
            a = bench.stock(model, "a")
            b = bench.tide(model, "b")
        a_side, b_side = harness.Side("stock", [a]), harness.Side("threadtide", [b])
        a_side.warm_up(8)
        b_side.warm_up(8)
        if args.case == "orphaned":
            b.send(signal.SIGCONT)
            kill_daemon(bench)
            b.send(signal.SIGSTOP)
        ratios = harness.interleave(a_side, b_side, args.pairs, args.slice)
        return {"case": args.case, "model": model, "max": args.max, "threads": args.threads,
                "slice_s": args.slice, "rss_ratio": b.rss_kib() / a.rss_kib(), "ratios": ratios,
                **harness.ratio_stats(ratios)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--case", choices=["idle", "held", "orphaned"], default="idle")
    p.add_argument("--models", default=MODELS)
    p.add_argument("--max", type=int, default=8, help="held: threads the pools are built with")
    p.add_argument("--threads", type=int, default=1, help="held: active threads on both sides")
    p.add_argument("--pairs", type=int, default=30)
    p.add_argument("--slice", type=float, default=2, metavar="SECONDS")
    args = p.parse_args()
    goal = 0.99 if args.case == "idle" else 0.98
    name = args.case if args.case != "held" else f"held-{args.max}-at-{args.threads}"
    rows = []
    for model in args.models.split(","):
        row = measure(model, args)
        harness.show_ratio(f"{name} {model} (memory x{row['rss_ratio']:.3f})", row, goal)
        rows.append({**row, "goal": goal})
        harness.save(f"throughput-{name}", rows)


if __name__ == "__main__":
    main()
