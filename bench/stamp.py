# SPDX-License-Identifier: Apache-2.0
"""The stamp of a row of bench/results: commit, day, machine, and a hash of what ran.

The hash covers the programs without their symbols and build ids, of some programs the object files that a row runs
(PARTS), and the Python sources where these take part: it changes when a measurement could. report.py compares it
with that of today's files.

    stamp.py NAME      exit status 0: all rows of bench/results/NAME.json were measured with today's programs
"""

import datetime
import functools
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "scripts"))

from images import stripped  # noqa: E402

PYTHON_PACKAGE = "python/threadtide"

# Parts that rows run of programs that do more: the program, and which of its object files.
PARTS = {
    "tide run": ("tide", re.compile(r"src_cli_launch_|libtide-(base|proto)\.a")),  # then the job's program takes its place
    "tide-kube without page": ("tide-kube", re.compile(r"^(?!.*libtide-page\.a)")),
    "tide-hub without page": ("tide-hub", re.compile(r"^(?!.*libtide-page\.a)")),
}
NODE = ("tide run", "tided", "libtide-agent.so", "libtide.so")
TRAINING = ("tide-tfnode", "libtide-agent.so", PYTHON_PACKAGE)
CONTROLLER = "tide-kube without page"
HUB = "tide-hub without page"
CLUSTER = (CONTROLLER, *TRAINING)
RESTING = ("bench/models.py", "bench/runtime_work.py", "bench/resting.py")  # programs that rest
# Beginning of a result's name -> what it measures; the longest that fits counts.
MEASURED = {
    "container": NODE, "latency": NODE, "micro": ("tide", *NODE[1:], "bench/hook_cost"), "replay": (*NODE, "tide-sim"),
    "restore": NODE,
    "small-container": ("libtide-agent.so",),
    "demo": NODE, "gain": (*NODE, "bench/gain.py", *RESTING), "gain-curves": (),
    "gain-predicted": ("tide-sim", "bench/gain_mixes.py", "bench/gain_predict.py"),
    "gain-mixes": (*NODE, "bench/gain_mixes.py", "bench/gain_runs.py", *RESTING),
    "promise": (*NODE, PYTHON_PACKAGE), "paired": (*NODE, "bench/hook_cost"), "share": NODE, "throughput": (*NODE, "bench/savedmodel_infer"),
    "container-queue-predicted": ("tide-sim",),
    "kube-reconcile": ("bench/kube_reconcile",), "policy-decide": ("bench/policy_decide",),
    "openmp": ("libtide-agent.so",),
    "runtimes": NODE,
    "stalls": ("libtide-agent.so",),
    "sim-speed": ("bench/sim_speed",), "sockets": NODE,
    "energy-attribution": NODE, "energy-division": ("bench/power_divide",), "energy-machine": ("tided",),
    "energy-cap-power-limit": ("tided",), "energy-cap-no-power-limit": ("tided",),
    "energy-cap-kernels-powercap": ("tided",),
    "energy-unit": ("tide-power",), "energy-kills": ("tide-power", HUB), "energy-kills-postgres": ("tide-power", HUB),
    "energy-load-predicted": ("bench/load_units",), "energy-load-page": ("bench/load_units", "tide-hub"),
    "energy-area": ("tided", "tide-power", HUB), "energy-work": NODE,
    "energy-load": ("bench/load_units",), "energy-load-hub": ("bench/load_units", HUB),
    "energy-model": ("bench/energy_model",),
    "cluster": CLUSTER, "kube-response": CLUSTER, "kube-scale": (CONTROLLER,),
    "cluster-async": TRAINING, "cluster-sync": TRAINING, "cluster-curves": TRAINING,
    "cluster-mix-simulated": ("bench/kube_mix",), "cluster-simulated": ("bench/kube_mix",),
    "elastic-pause": TRAINING, "tfnode-start": TRAINING, "worker-start": CLUSTER,
}


def programs(name):
    fits = [beginning for beginning in MEASURED if name.startswith(beginning)]
    if not fits:
        raise KeyError(f"bench/stamp.py does not say what {name} measures")
    return MEASURED[max(fits, key=len)]


def symbols_of(build, *files):
    """{file: the names that it defines for others}; of a program, all that are in it."""
    asked = subprocess.run(["nm", "-A", "--defined-only", *files], cwd=build, capture_output=True, text=True, check=True)
    found = {}
    for line in asked.stdout.splitlines():
        file, _, rest = line.partition(":")
        if rest.split()[-2] not in "tdbr" or len(files) == 1:
            found.setdefault(file, set()).add(rest.split()[-1])
    return found


def objects_of(build, program):
    """The names of the object files that are in a program, of its libraries those that it uses, in a fixed order."""
    asked = subprocess.run(["ninja", "-C", build, "-t", "inputs", program], capture_output=True, text=True, check=True)
    objects = sorted(line for line in asked.stdout.split() if line.endswith(".o"))
    here, defined = symbols_of(build, program).get(program, set()), symbols_of(build, *objects)
    return [name for name in objects if ".a.p/" not in name or defined.get(name, {""}) <= here]


def files_of(build, part):
    """The files whose bytes are those of a part, in a fixed order."""
    if part in PARTS:
        program, wanted = PARTS[part]
        found = [build / name for name in objects_of(build, program) if wanted.search(name)]
        if not found:
            raise FileNotFoundError(f"no object file of {program} is one of '{part}'")
        return found
    if part == PYTHON_PACKAGE:
        return sorted((ROOT / part).rglob("*.py"))
    return [(ROOT if part.endswith(".py") else build) / part]


@functools.lru_cache(None)
def hash_of(build, parts):
    total = hashlib.sha256()
    for part in parts:
        for path in files_of(build, part):
            total.update(stripped(path))
    return total.hexdigest()[:16]


def today(build, name, machine):
    """The stamp of a row of this result that is measured now."""
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty=+", "--exclude=*"],
                            capture_output=True, text=True)
    return {"commit": commit.stdout.strip() or "unknown", "date": datetime.date.today().isoformat(),
            "hash": hash_of(build, programs(name)), "machine": machine}


def stamped(items, stamp):
    """The rows or runs; those that have a stamp keep it."""
    return [item if "measured" in item else {**item, "measured": stamp} for item in items]


def of_runs(row, runs):
    """The stamp of a row that was made of several runs: the oldest's; of different programs, no hash."""
    own = [run["measured"] for run in runs
           if all(row[key] == run[key] for key in ("side", "change", "seed", "units", "mix") if key in row and key in run)]
    own = own or [run["measured"] for run in runs]
    oldest = min(own, key=lambda stamp: stamp["date"])
    same = len({stamp["hash"] for stamp in own}) == 1
    return oldest if same else {**oldest, "hash": "several"}


def told(row, build, name):
    """For the reader of a table: commit and day, and whether the programs are others today."""
    stamp = row.get("measured")
    if not stamp:
        return "before rows were stamped, **stale**"
    stale = stamp["hash"] != hash_of(build, programs(name))
    return f"{stamp['commit']}, {stamp['date']}" + ", **stale**" * stale


def is_fresh(build, name, path):
    """Whether there are rows and today's programs gave all of them."""
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    return bool(rows) and all("stale" not in told(row, build, name) for row in rows)


if __name__ == "__main__":
    _, asked = sys.argv
    built = pathlib.Path(os.environ.get("TIDE_BUILD_DIR", ROOT / "build")).resolve()
    sys.exit(not is_fresh(built, asked, ROOT / "bench/results" / f"{asked}.json"))
