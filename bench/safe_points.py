# SPDX-License-Identifier: Apache-2.0
"""How long a command waits for a safe point, and how soon behind it the new number of threads is in force; for runtimes.py --part latency.

A program of Python tells the end of what ran when the command was sent by the next call, or return, of a function on its main thread
(runtime_work.py --marks). region_marks.c, for OpenMP, tells each region with the threads that took part, so that "in force" is the begin of the
first one with the new number. For the others it is when the agent says so.

    wait     from the command to the end of the call or region that was running
    beyond   from there until the new number is in force; 0: it was already. Goal: p50 at most 0.2 ms, p99 at most 10 ms
    total    from the command until it is in force
"""
import array
import pathlib
import subprocess

import harness

HERE = pathlib.Path(__file__).resolve().parent
GOAL_MS = (0.2, 10)  # p50, p99


def compiled(folder):
    """The path of region_marks."""
    path = str(pathlib.Path(folder) / "region_marks")
    subprocess.run(["gcc", "-O2", "-fopenmp", str(HERE / "region_marks.c"), "-o", path], check=True)
    return path


def numbers(path):
    """Whole numbers of 64 bits that a program has written so far."""
    data = pathlib.Path(path).read_bytes()
    found = array.array("q")
    found.frombytes(data[:len(data) // 8 * 8])
    return found


def of_calls(acks, path):
    """(wait, beyond, total) of each command, in ns, by the marks of a Python program."""
    marks, found, at = numbers(path), [], 0
    for ack in acks:
        while at < len(marks) and marks[at] < ack.sent_ns:
            at += 1
        if at < len(marks):
            safe = marks[at]
            found.append((safe - ack.sent_ns, max(0, ack.placed_ns - safe), ack.placed_ns - ack.sent_ns))
    return found


def of_regions(acks, path, threads):
    """The same by the regions of region_marks; @threads: the number that each command asked for."""
    flat, found = numbers(path), []
    regions = list(zip(flat[0::3], flat[1::3], flat[2::3]))
    for ack, wanted in zip(acks, threads):
        running = next((end for begin, end, _ in regions if begin <= ack.sent_ns < end), ack.sent_ns)
        first = next((begin for begin, _, team in regions if begin >= ack.sent_ns and team == wanted), None)
        if first is not None:
            found.append((running - ack.sent_ns, max(0, first - running), first - ack.sent_ns))
    return found


def row(model, n, found):
    """A row of the results: found as of_calls() or of_regions() return it; @n: commands that were sent."""
    result = {"model": model, "n": len(found), "sent": n}
    for name, values in zip(("wait", "beyond", "total"), zip(*found)):
        p50, p99, most = (round(harness.quantile([v / 1e6 for v in values], q), 3) for q in (0.5, 0.99, 1.0))
        result |= {f"{name} p50 ms": p50, f"{name} p99 ms": p99, f"{name} max ms": most}
    if found:
        met = result["beyond p50 ms"] <= GOAL_MS[0] and result["beyond p99 ms"] <= GOAL_MS[1]
        result |= {"goal ms": f"{GOAL_MS[0]} / {GOAL_MS[1]}", "verdict": "met" if met else "missed"}
    return result
