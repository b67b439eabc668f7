#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the models, and that each finds the fault it exists for.

usage: tests/models/run.py [BUILD_DIR]
       tests/models/run.py --whole SCENARIO…    each in every interleaving, however long: minutes to hours, 8 GiB

The gate: gate.c runs the agent's sources in every interleaving, most scenarios only in those with few
preemptions (GATE). For a mutation, one line of a copy of them is changed; the scenario beside it must
then fail with the text beside it. A mutation whose line is not in the source any more has failed: it
has to follow the source.
A transaction's next step: settle.c in the world of tests/unit/test_daemon_settle.c, as a test of its
own in each build; here are its mutations, for each of which that test must fail with the text beside it.
The protocol: SPIN on protocol.pml; a mutation is a macro, and the assertion beside it must be violated.

Ends with one line `models: N passed, N failed`. Needs gcc, cmocka and SPIN (Debian: spin).
"""
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SRC = HERE.parent.parent / "src"
GUARD_S = 1800
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
        "gate/gate.c", "if (atomic_load(&worker->gate->watched)) /* must come", "if (false) /* must come",
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
        "        agent_notify(); /* an acknowledgement may have waited for this pool */\n", "",
        "destroy", "a target is never acknowledged"),
    "builds without a word": (
        TENSORFLOW + "_hooks.c",
        "        if (pool_apply(pool, pool_target(pool, &target)))\n            agent_notify();",
        "        pool_apply(pool, pool_target(pool, &target));",
        "build", "a target is never acknowledged"),
}

# Name: text of settle.c, its replacement, what the test says.
SETTLE_MUTATIONS = {
    "waits for no acknowledgement": (
        "            now_ns < j->processes[i].shrink_since_ns + SETTLE_GRACE_NS)", "            false)",
        "threads park"),
    "waits for ever": (
        " && !j->processes[i].waits &&\n            now_ns < j->processes[i].shrink_since_ns + SETTLE_GRACE_NS)",
        ")", "it does not come to rest"),
    "waits for what stands still": (
        "!stands_still(j); i++)\n        if (j->processes[i].shrink_since_ns && !",
        "true; i++)\n        if (j->processes[i].shrink_since_ns && !",
        "[  FAILED  ] what_stands_still_is_not_waited_for"),
    "calls nobody late": (
        "now_ns >= j->processes[i].shrink_since_ns + SETTLE_GRACE_NS", "false", "s.job.late"),
    "does not look again": (
        "next_deadline(s);", "SETTLE_NEVER;", "[  FAILED  ] a_shrink_is_waited_for_until_it_expires"),
    "raises with what it lowers": (
        "j->processes[k].want.intra <= present(&j->processes[k])", "true",
        "a target is raised before its time"),
    "lowers at the end": (
        "j->processes[k].want.intra <= present(&j->processes[k])", "false",
        "threads grow while others park"),
    "raises without the cores": (
        "if (!cpuset_equal(&j->cores, &j->want_cores) || j->busy ||\n        (somebody", "if ((somebody",
        "threads grow before their cores are there"),
    "raises while an engine works": (
        "j->busy ||\n        (somebody", "\n        (somebody",
        "threads grow before their cores are there"),
    "raises while others park": (
        "(somebody_leaves && !j->urgent && !j->exclusive)", "(false && somebody_leaves)",
        "threads grow while others park"),
    "takes the unfenced for gone": (
        "    else if (is_leaving(o, s->now_ns))\n        *ret = s->cpus;\n", "",
        "a core is given away while its owner's threads park"),
    "gives what others have": (
        "if (o == j || (!o->exclusive && !j->exclusive))", "if (true)",
        "a core is given away while its owner's threads park"),
    "narrows under threads": (
        "if (is_leaving(j, w->s->now_ns) || j->stuck || !is_fenced", "if (j->stuck || !is_fenced",
        "cores are taken from threads that park"),
    "widens into what is not free": (
        "!force && is_fenced(&j->want_cores)", "false",
        "a core is given away while its owner's threads park"),
    "lets nobody go first": (
        "moved = widen(w, &s->jobs[i], true)", "moved = false", "it does not come to rest"),
    "lets one go first while others park": (
        "!moved && !parking && i", "!moved && i",
        "a core is given away while its owner's threads park"),
    "takes an engine's word before it is given": (
        "    if (!j->remote) {\n        j->cores = *cores;\n        return;\n    }",
        "    j->cores = *cores;\n    if (!j->remote)\n        return;",
        "a core is given away before an engine has taken it from its owner"),
    "asks an engine that does not answer": (
        "|| j->stuck || !is_fenced", "|| !is_fenced", "it goes round in circles"),
    "narrows a quota under threads": (
        "(j->want_quota_mcpu < j->quota_mcpu && is_shrinking(j, w->s->now_ns))", "false",
        "a quota is narrowed while threads park"),
    "starts while others leave": (
        "i < s->n_jobs && !leaves; i++", "i < s->n_jobs; i++", "a job starts before there is room"),
    "starts without its cores": (
        "!j->busy && cpuset_equal(&j->cores, &j->want_cores))", "!j->busy)",
        "a job starts before there is room"),
    "does not wait for pauses": (
        " || (!s->jobs[i].wanted && s->jobs[i].running);", ";", "threads grow while others park"),
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


def build_gate(out, sources, *options):
    """Returns what the compiler complains of."""
    return run(["gcc", "-O2", "-g", "-std=gnu17", "-D_GNU_SOURCE", "-Wall", *options, f"-I{sources}",
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


def check_settle(out, name):
    old, new, expected = SETTLE_MUTATIONS[name]
    text = (SRC / "daemon/plan/settle.c").read_text()
    folder = out / ("settle-" + name.replace(" ", "-"))
    folder.mkdir(parents=True, exist_ok=True)
    if text.count(old) != 1:
        return False, f"mutation `{name}`: its text is not in src/daemon/plan/settle.c any more"
    (folder / "settle.c").write_text(text.replace(old, new))
    said = run(["gcc", "-O1", "-std=gnu17", "-D_GNU_SOURCE", "-w", f"-I{SRC}", "-o", str(folder / "test"),
                str(HERE.parent / "unit/test_daemon_settle.c"), str(folder / "settle.c"),
                str(SRC / "base/cpuset.c"), "-lcmocka"])
    if said.returncode:
        return False, f"mutation `{name}` does not compile\n{said.stdout}"
    try:
        done = run([str(folder / "test")])
    except subprocess.TimeoutExpired:
        return False, f"mutation `{name}` of settle() makes the test hang"
    if done.returncode == 0 or expected not in done.stdout:
        return False, f"mutation `{name}` of settle() is not found\n{done.stdout}"
    return True, f"settle finds `{name}`: {expected}"


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


def whole(scenarios):
    """One scenario after the other, without a bound of preemptions."""
    unknown = [scenario for scenario in scenarios if scenario not in GATE]
    if unknown or not scenarios:
        sys.exit(f"{unknown[0] + ' is no scenario' if unknown else 'name a scenario'}: {', '.join(GATE)}")
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "gate"
        said = build_gate(program, SRC, "-DTABLE_BITS=30")
        if said:
            sys.exit(said)
        return max(subprocess.run([program, scenario], check=False).returncode for scenario in scenarios)


def main():
    if sys.argv[1:2] == ["--whole"]:
        return whole(sys.argv[2:])
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build-check/models").resolve()
    out.mkdir(parents=True, exist_ok=True)
    said = build_gate(out / "gate", out)
    if said:
        sys.exit(said)
    passed = failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(check_scenario, out / "gate", s, b) for s, b in GATE.items()]
        jobs += [pool.submit(check_mutation, out, name) for name in GATE_MUTATIONS]
        jobs += [pool.submit(check_settle, out, name) for name in SETTLE_MUTATIONS]
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
