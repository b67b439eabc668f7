#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the models exhaustively, and that each finds the fault it exists for.

usage: tests/models/run.py [BUILD_DIR]

The gate: gate.c runs the agent's sources in every interleaving. For a mutation, one line of a copy
of them is changed; the scenario beside it must then fail with the text beside it. A mutation whose
line is not in the source any more has failed: it has to follow the source.
The protocol: SPIN on protocol.pml; a mutation is a macro, and the assertion beside it must be violated.

Ends with one line `models: N passed, N failed`. Needs gcc and SPIN (Debian: spin).
"""
import concurrent.futures
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SRC = HERE.parent.parent / "src"
GUARD_S = 600
ALL = ""

# Scenarios of gate.c and how many preemptions are tried; ALL: however many.
GATE = {"shrink": ALL, "shrink-grow": 2, "newest-wins": 2, "back-and-forth": 3, "three": 1, "meet": 2, "spurious": 2,
        "destroy": 2, "destroy-early": 2, "destroy-shrunk": 2, "build": 3, "steal": 2, "rescue": 2}

TENSORFLOW = "runtimes/tensorflow/tensorflow"
# Name: file of src/agent, text, its replacement, scenario, what the model says.
GATE_MUTATIONS = {
    "parks without a second look": (
        "gate/gate.c", "        if (surplus(worker)) {\n            report(gate);",
        "        {\n            report(gate);",
        "newest-wins", "a worker below the limit is parked at the end|the gate is not settled|"
        "a target is never acknowledged"),
    "reads the futex word late": (
        "gate/gate.c", "futex_wait(&worker->wake, wake);",
        "futex_wait(&worker->wake, atomic_load(&worker->wake)); (void)wake;",
        "shrink-grow", "a target is never acknowledged"),
    "raises the limit without waking": (
        "gate/gate.c", "            futex_wake(&worker->wake);\n", "",
        "shrink-grow", "a target is never acknowledged"),
    "parks without a nudge": (
        "gate/gate.c", "if (!nudged)", "if (false)", "shrink", "a closure never runs"),
    "goes idle without a report": (
        "gate/gate.c", "if (atomic_load(&worker->gate->watched)) /* ordered behind IDLE */", "if (false)",
        "back-and-forth", "a target is never acknowledged"),
    "wakes up and goes on": (
        "gate/gate.c", "    return !surplus(worker);\n}\n\nbool gate_set", "    return true;\n}\n\nbool gate_set",
        "shrink", "a worker above the acknowledged limit begins a closure"),
    "looks at the limit before it is busy": (
        "gate/gate.c", "    atomic_store(&worker->state, GATE_BUSY);\n    return !surplus(worker);",
        "    bool may = !surplus(worker);\n    atomic_store(&worker->state, GATE_BUSY);\n"
        "    return may;",
        "shrink", "a worker above the acknowledged limit begins a closure|"
        "a target is acknowledged while a surplus worker runs a closure"),
    "looks before it watches": (
        "gate/gate.c", "    atomic_store(&gate->watched, 1);\n"
        "    return gate_settled(gate) && atomic_exchange(&gate->watched, 0);",
        "    if (gate_settled(gate))\n        return true;\n    atomic_store(&gate->watched, 1);\n"
        "    return false;",
        "shrink", "a target is never acknowledged"),
    "counts parked workers as idle": (
        "gate/gate.c", "if (id >= limit ? state == GATE_BUSY : state == GATE_PARKED)",
        "if (id >= limit ? state == GATE_BUSY && false : state == GATE_PARKED)",
        "shrink", "a target is acknowledged while a surplus worker runs a closure"),
    "drops a closure": (
        TENSORFLOW + ".c", "    schedule(eigen, &taken);\n}", "    (void)eigen;\n}",
        "shrink", "a closure never runs"),
    "rescues nobody": (
        TENSORFLOW + ".c", "        gate_set(&pool->gate, limit + 1);\n", "",
        "rescue", "a closure never runs"),
    "destroys a parked pool": (
        TENSORFLOW + "_hooks.c", "        gate_set(&pool->gate, pool->built);\n", "",
        "destroy-early", "a destructor never returns"),
    "nudges what is destroyed": (
        TENSORFLOW + "_hooks.c", "        atomic_store(&pool->eigen, NULL);\n        agent_notify();",
        "        agent_notify();",
        "destroy-shrunk", "a pool is used after its destruction"),
    "destroys without a word": (
        TENSORFLOW + "_hooks.c",
        "        agent_notify(); /* an acknowledgement waits no longer for this pool */\n", "",
        "destroy", "a target is never acknowledged"),
    "builds without a word": (
        TENSORFLOW + "_hooks.c",
        "        if (pool_apply(pool, pool_target(pool, &target)))\n            agent_notify();",
        "        pool_apply(pool, pool_target(pool, &target));",
        "build", "a target is never acknowledged"),
}

OWN = "affinity[0]==3"
PARKED = "expired"
PROTOCOL_MUTATIONS = {
    "MUTATE_ACKNOWLEDGE_EARLY": PARKED, "MUTATE_NO_WAIT": PARKED,
    "MUTATE_ANY_ACKNOWLEDGEMENT": PARKED, "MUTATE_WIDEN_FIRST": "cores[0]&cores[1]",
    "MUTATE_ANY_EPOCH": "g>=generation", "MUTATE_NO_LEASE": "order[0]==0",
    "MUTATE_FENCE_BEFORE_NOTE": OWN, "MUTATE_TABLE_IN_MEMORY": OWN, "MUTATE_GUARDIAN_SLEEPS": OWN,
}


def run(command, cwd=None):
    return subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=GUARD_S)


def build_gate(out, sources):
    """Returns what the compiler complains of."""
    return run(["gcc", "-O2", "-g", "-std=gnu17", "-D_GNU_SOURCE", "-Wall", f"-I{sources}",
                f"-I{SRC}", f"-I{HERE}", "-o", str(out), str(HERE / "gate.c"),
                str(HERE / "explore.c")]).stdout


def explore(program, scenario, bound):
    done = run([str(program), scenario] + ([str(bound)] if bound != ALL else []))
    lines = done.stdout.splitlines() or ["says nothing"]
    return done.returncode, lines[0], lines[-1], done.stdout


def check_scenario(program, scenario, bound):
    code, _, last, text = explore(program, scenario, bound)
    said = f"gate {last}" + (f", at most {bound} preemptions" if bound != ALL else "")
    return code == 0, said + ("" if code == 0 else "\n" + text)


def check_mutation(out, name):
    file, old, new, scenario, expected = GATE_MUTATIONS[name]
    text = (SRC / "agent" / file).read_text()
    folder = out / ("mutation-" + name.replace(" ", "-"))
    (folder / "agent" / file).parent.mkdir(parents=True, exist_ok=True)
    if text.count(old) != 1:
        return False, f"mutation `{name}`: its text is not in src/agent/{file} any more"
    (folder / "agent" / file).write_text(text.replace(old, new))
    said = build_gate(folder / "gate", folder)
    if not (folder / "gate").exists():
        return False, f"mutation `{name}` does not compile\n{said}"
    code, first, last, text = explore(folder / "gate", scenario, GATE[scenario])
    if code != 1 or not any(word in first for word in expected.split("|")):
        return False, f"mutation `{name}` in `{scenario}` is not found: {first}; {last}"
    return True, f"gate finds `{name}`: {first.removeprefix('failed: ')}"


def check_protocol(out, mutation):
    folder = out / ("protocol-" + (mutation or "as-it-is"))
    folder.mkdir(parents=True, exist_ok=True)
    said = run(["spin"] + ([f"-D{mutation}"] if mutation else []) +
               ["-a", str(HERE / "protocol.pml")], folder).stdout
    said += run(["gcc", "-O2", "-DSAFETY", "-DCOLLAPSE", "-DVECTORSZ=2048", "-w", "-o", "pan",
                 "pan.c"], folder).stdout
    said += run(["./pan", "-m100000"], folder).stdout
    found = [line for line in said.splitlines() if "assertion violated" in line]
    if mutation:
        ok = bool(found) and PROTOCOL_MUTATIONS[mutation] in found[0]
        return ok, f"protocol finds {mutation}: {found[0]}" if ok else f"protocol: {mutation}\n{said}"
    states = [line.strip() for line in said.splitlines() if "states, stored" in line]
    ok = "errors: 0" in said and "max search depth too small" not in said and bool(states)
    return ok, f"protocol: {states[0]}" if ok else f"protocol\n{said}"


def main():
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build-check/models").resolve()
    out.mkdir(parents=True, exist_ok=True)
    said = build_gate(out / "gate", out)
    if said:
        sys.exit(said)
    passed = failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(check_scenario, out / "gate", s, b) for s, b in GATE.items()]
        jobs += [pool.submit(check_mutation, out, name) for name in GATE_MUTATIONS]
        jobs += [pool.submit(check_protocol, out, m) for m in ("", *PROTOCOL_MUTATIONS)]
        for job in concurrent.futures.as_completed(jobs):
            ok, text = job.result()
            passed += ok
            failed += not ok
            print("ok   " if ok else "FAIL ", text, flush=True)
    print(f"models: {passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
