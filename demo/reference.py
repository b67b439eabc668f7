# SPDX-License-Identifier: Apache-2.0
"""Results of stock TensorFlow with fixed numbers of threads: the yardstick for "the same results".

TensorFlow sums in another order with another number of threads, and rounding grows as a training
goes on: the same program with 1, 2 or 4 threads ends at slightly different losses. Threads that
change during the training may add nothing to that. `run.py --reference` measures it (about ten
minutes) and writes reference.json, which the demo compares with.
"""

import importlib.metadata
import json
import math
import pathlib
import platform
import statistics
import subprocess
import sys

from mix import TRAIN
from side import without_our_variables

PATH = pathlib.Path(__file__).with_name("reference.json")
THREADS = (1, 2, 3, 4, 6, 8)
MEASURES = ("train_loss", "accuracy")
WORDS = ("equal: the same number; within: between the lowest and the highest of them; "
         "near: where 99 of 100 further fixed ones would lie.")
# Two-sided 99 % quantiles of Student's t by degrees of freedom.
T99 = {1: 63.66, 2: 9.92, 3: 5.84, 4: 4.60, 5: 4.03, 6: 3.71, 7: 3.50}


def environment_of(threads):
    """TensorFlow's own variables: the program stays as it is."""
    return {**without_our_variables(), "TF_NUM_INTRAOP_THREADS": str(threads),
            "TF_NUM_INTEROP_THREADS": str(threads)}


def measure(specs, data, source, folder):
    folder.mkdir(parents=True, exist_ok=True)
    runs = {spec.name: [] for spec in specs}
    for spec in specs:
        for threads in THREADS:
            log = folder / f"reference-{spec.name}-{threads}.jsonl"
            subprocess.run([sys.executable, str(TRAIN), "--model", spec.name, "--data", str(data),
                            "--log", str(log)], env=environment_of(threads), check=True,
                           stderr=subprocess.DEVNULL)
            last = json.loads(log.read_text().splitlines()[-1])
            runs[spec.name].append({"threads": threads, "steps": last["steps"],
                                    **{k: last[k] for k in MEASURES}})
    PATH.write_text(json.dumps({"data": source, **versions(), "runs": runs}, indent=1) + "\n")


def tensorflow_version():
    """Version of the wheel, tensorflow or tensorflow-cpu: its files are asked, TensorFlow is not loaded."""
    for wheel in ("tensorflow", "tensorflow-cpu"):
        try:
            return importlib.metadata.version(wheel)
        except importlib.metadata.PackageNotFoundError:
            pass
    return "unknown"


def versions():
    return {"cpu": cpu_name(), "tensorflow": tensorflow_version(), "keras": importlib.metadata.version("keras")}


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def load(source, steps):
    """Returns ({job: runs}, note): the runs that are comparable with trainings of `steps` each."""
    if not PATH.exists():
        return {}, f"not measured: {PATH.name} is missing (run.py --reference)"
    stored = json.loads(PATH.read_text())
    if stored["data"] != source:
        return {}, f"not measured with {source} (run.py --reference)"
    runs = {name: rows for name, rows in stored["runs"].items() if rows[0]["steps"] == steps.get(name)}
    here = versions()
    other = [f"{k} {stored[k]}" for k in here if here[k] != stored[k]]
    note = f"stock TensorFlow, {', '.join(map(str, THREADS))} threads, each alone"
    if other:
        note += f"; measured with {', '.join(other)}: figures of this machine may be rounded differently"
    return runs, note


def spread(rows, measure_name):
    """(lowest, highest) of the fixed counts, and the range in which 99 of 100 further runs lie.

    The second is the prediction interval for one more normal value, mean ± t·s·sqrt(1 + 1/n).
    """
    values = [row[measure_name] for row in rows]
    half = T99[len(values) - 1] * statistics.stdev(values) * math.sqrt(1 + 1 / len(values))
    mean = statistics.fmean(values)
    return (min(values), max(values)), (min(mean - half, min(values)), max(mean + half, max(values)))


def verdict(rows, result):
    """One word for each measure, the worst of them first: bitwise, within, near, outside."""
    words = []
    for name in MEASURES:
        (low, high), (from_, to) = spread(rows, name)
        value = result[name]
        words.append("equal" if low == high == value else "within" if low <= value <= high
                     else "near" if from_ <= value <= to else "OUTSIDE")
    return max(words, key=("equal", "within", "near", "OUTSIDE").index)
