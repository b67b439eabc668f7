#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a broker costs that thousands of units are connected to, and how long their messages take.

    energy_load.py measure UNITS…    one run each, added to the runs that there are
    energy_load.py predict UNITS     what the model fitted to runs of at most 3,000 units says of so many: written down
    energy_load.py check             runs beyond 3,000 units against what was written down before
    energy_load.py hub UNITS…        a real tide-hub takes the messages: until each is stored and has its receipt
    energy_load.py drain UNITS…      … and stores a day's outage of all units first (96 records each)

A real mosquitto with TLS 1.3 and certificates on both sides; real connections of bench/load_units.c, a message of ten
records per unit each PERIOD s. The broker's CPU time is its threads' (schedstat) between "all are connected" and the
end; the generator, which is also the receiver, has its own. Latency is from a unit's publish to the receiver.

The model: CPU = a + b × messages a second (least squares; every unit sends at the same rate, so b holds what a
connection costs besides); p99 of latency = a fixed part, fitted, and the 99th percentile of the wait in an M/D/1 queue
whose service is b.
"""

import argparse
import contextlib
import json
import math
import os
import pathlib
import resource
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

import harness

NAME = "energy-load"
HUB_NAME = "energy-load-hub"
FITTED_MAX = 3000
PERIOD_S = 10
PREDICTED = harness.RESULTS / "energy-load-predicted.json"


def run(*command, **more):
    subprocess.run(command, check=True, capture_output=True, **more)


def certificates(folder):
    """An authority, the broker's certificate and the one that all units share here."""
    def key(name):
        run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", folder / f"{name}.key")
    key("ca")
    run("openssl", "req", "-x509", "-new", "-key", folder / "ca.key", "-subj", "/CN=bench", "-days", "2",
        "-out", folder / "ca.crt")
    for name, subject in (("broker", "localhost"), ("unit", "unit")):
        key(name)
        run("openssl", "req", "-new", "-key", folder / f"{name}.key", "-subj", f"/CN={subject}",
            "-addext", f"subjectAltName=DNS:{subject}", "-out", folder / f"{name}.csr")
        run("openssl", "x509", "-req", "-in", folder / f"{name}.csr", "-CA", folder / "ca.crt", "-CAkey",
            folder / "ca.key", "-CAcreateserial", "-copy_extensions", "copy", "-days", "2", "-out",
            folder / f"{name}.crt")
    for file in folder.iterdir():
        file.chmod(0o644)  # mosquitto gives up root


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def many_files():
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextlib.contextmanager
def broker(folder, port):
    (folder / "mosquitto.conf").write_text(
        f"listener {port} 127.0.0.1\ncafile {folder}/ca.crt\ncertfile {folder}/broker.crt\n"
        f"keyfile {folder}/broker.key\nrequire_certificate true\ntls_version tlsv1.3\nallow_anonymous true\n"
        "persistence false\nmax_inflight_messages 200\nmax_queued_messages 20000\nsys_interval 10\n")
    program = shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin")
    process = subprocess.Popen([program, "-c", folder / "mosquitto.conf"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, preexec_fn=many_files)
    try:
        until = time.monotonic() + 30
        while True:
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", port)) == 0:
                    break
            if process.poll() is not None or time.monotonic() > until:
                sys.exit("energy_load: mosquitto does not listen")
            time.sleep(0.05)
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def cpu_ns(pid):
    return sum(int((task / "schedstat").read_text().split()[0])
               for task in pathlib.Path(f"/proc/{pid}/task").iterdir())


def rss_kib(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS:"))


def hub_state(folder):
    """A hub's directory; the bench's certificates are its authority's."""
    run(harness.BUILD / "tide-hub", "broker", "--state", folder / "state", "--host", "localhost", "--write",
        *(("--user", "root") if os.geteuid() == 0 else ()))
    trust = folder / "state/trust"
    for name in ("broker", "unit"):
        run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", folder / f"{name}.key")
        subject = "localhost" if name == "broker" else name
        run("openssl", "req", "-new", "-key", folder / f"{name}.key", "-subj", f"/CN={subject}", "-addext",
            f"subjectAltName=DNS:{subject}", "-out", folder / f"{name}.csr")
        run("openssl", "x509", "-req", "-in", folder / f"{name}.csr", "-CA", trust / "ca.crt", "-CAkey",
            trust / "ca.key", "-set_serial", "7", "-copy_extensions", "copy", "-days", "2", "-out",
            folder / f"{name}.crt")
    shutil.copy(trust / "ca.crt", folder / "ca.crt")
    for name in ("ca.crt", "broker.crt", "broker.key", "unit.crt", "unit.key"):
        (folder / name).chmod(0o644)


def hub_store(kind, folder, stack):
    """Where tide-hub stores, and what tells the CPU time and bytes of that."""
    if kind == "sqlite":
        return str(folder / "state/hub.db"), lambda: 0, lambda: (folder / "state/hub.db").stat().st_size
    sys.path.append(str(harness.ROOT / "tests/component"))
    import postgres
    (folder / "postgres").mkdir()
    server = postgres.Server(folder / "postgres")
    stack.callback(server.end)

    def cpu():
        pid = server.process.pid
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        total = cpu_ns(pid)
        for child in children:
            with contextlib.suppress(OSError):
                total += cpu_ns(child)
        return total
    return server.url(), cpu, lambda: int(server.ask("SELECT pg_database_size('postgres')"))


def with_hub(units, seconds, kind, mode):
    with contextlib.ExitStack() as stack:
        # On a real disk: what is stored is synced.
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tide-bench-", dir="/var/tmp")))
        port = free_port()
        folder.chmod(0o755)
        hub_state(folder)
        where, store_cpu, size = hub_store(kind, folder, stack)
        broker_pid = stack.enter_context(broker(folder, port))
        hub = subprocess.Popen([harness.BUILD / "tide-hub", "serve", "--state", folder / "state", "--store", where,
                                "--broker", f"localhost:{port}", "--listen", "none"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        stack.callback(hub.wait)
        stack.callback(hub.terminate)
        while "connected to the broker" not in (line := hub.stderr.readline()):
            if not line:
                sys.exit("energy_load: tide-hub did not start")
        threading.Thread(target=hub.stderr.read, daemon=True).start()
        generator = subprocess.Popen(
            [harness.BUILD / "bench/load_units", str(port), folder, str(units), str(PERIOD_S), str(seconds), "200", mode],
            stdout=subprocess.PIPE, text=True)
        if not generator.stdout.readline().startswith("connected"):
            sys.exit(f"energy_load: {units} units were not connected")
        pids = {"broker": lambda: cpu_ns(broker_pid), "hub": lambda: cpu_ns(hub.pid),
                "generator": lambda: cpu_ns(generator.pid), "store": store_cpu}
        before, begin = {name: cpu() for name, cpu in pids.items()}, time.monotonic()
        if mode == "hub":
            time.sleep(seconds)
        else:
            select.select([generator.stdout], [], [], seconds + 60)
        used = {name: cpu() - before[name] for name, cpu in pids.items() if name != "generator" or mode == "hub"}
        elapsed = time.monotonic() - begin
        row = json.loads(generator.stdout.read())
        generator.wait()
        return {"mode": mode, "store": kind, **row, "rate": round(units / PERIOD_S, 1), "seconds": seconds,
                **{f"{name}_percent": round(ns / elapsed / 1e7, 2) for name, ns in used.items()},
                "hub_rss_mib": round(rss_kib(hub.pid) / 1024, 1), "store_bytes": size()}


def hub_rows(runs):
    rows = []
    for r in sorted(runs, key=lambda r: (r["mode"], r["store"], r["units"])):
        row = {"units": r["units"], "what": "a message each per 10 s" if r["mode"] == "hub" else "a day's outage",
               "store": r["store"], "broker, % of a core": r["broker_percent"], "hub, %": r["hub_percent"],
               "PostgreSQL, %": r["store_percent"] or "", "hub MiB": r["hub_rss_mib"]}
        if r["mode"] == "hub":
            row |= {"p50 ms": r["p50_ms"], "p99 ms": r["p99_ms"], "without receipt": r["sent"] - r["received"]}
        else:
            row |= {"records": r["acknowledged"], "of": r["units"] * 96, "stored in s": r["acknowledged_s"]}
        rows.append({**row, "measured": r["measured"]})
    return rows


def measure_hub(counts, seconds, mode, stores):
    runs = harness.saved_runs(HUB_NAME)
    for units in counts:
        for kind in stores:
            run_ = with_hub(units, seconds, kind, mode)
            show(run_)
            runs.append(run_)
            runs = harness.stamp.stamped(runs, harness.stamp.today(harness.BUILD, HUB_NAME, harness.machine()))
            harness.save(HUB_NAME, hub_rows(runs), runs)


def measured(units, seconds):
    with tempfile.TemporaryDirectory(prefix="tide-bench-") as name:
        folder, port = pathlib.Path(name), free_port()
        folder.chmod(0o755)
        certificates(folder)
        with broker(folder, port) as pid:
            generator = subprocess.Popen(
                [harness.BUILD / "bench/load_units", str(port), folder, str(units), str(PERIOD_S), str(seconds)],
                stdout=subprocess.PIPE, text=True)
            if not generator.stdout.readline().startswith("connected"):
                sys.exit(f"energy_load: {units} units were not connected")
            before, begin = cpu_ns(pid), time.monotonic()  # until now, certificates and keys were its work
            time.sleep(seconds)
            used, elapsed = cpu_ns(pid) - before, time.monotonic() - begin
            row = json.loads(generator.stdout.read())
            generator.wait()
            return {**row, "rate": round(units / PERIOD_S, 1), "seconds": seconds,
                    "connect_cpu_ms": round(before / units / 1e6, 3),
                    "broker_percent": round(used / elapsed / 1e7, 2), "broker_rss_mib": round(rss_kib(pid) / 1024, 1)}


def solve(matrix, right):
    """A system of linear equations (Gauss); small and well behaved."""
    rows = [[*line, value] for line, value in zip(matrix, right)]
    n = len(rows)
    for i in range(n):
        pivot = max(range(i, n), key=lambda k: abs(rows[k][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for k in range(n):
            if k != i:
                factor = rows[k][i] / rows[i][i]
                rows[k] = [a - factor * b for a, b in zip(rows[k], rows[i])]
    return [rows[i][n] / rows[i][i] for i in range(n)]


def fit(runs):
    """(a, b, d): CPU = a + b × messages a second, and the fixed part of p99, ms."""
    ones = [[1.0, run_["rate"]] for run_ in runs]
    values = [run_["broker_percent"] for run_ in runs]
    normal = [[sum(x[i] * x[k] for x in ones) for k in range(2)] for i in range(2)]
    a, b = solve(normal, [sum(x[i] * v for x, v in zip(ones, values)) for i in range(2)])
    fixed = [run_["p99_ms"] - wait_ms(run_["rate"], b) for run_ in runs]
    return a, b, sum(fixed) / len(fixed)


def wait_ms(rate, percent_per_message):
    """99th percentile of the wait in an M/D/1 queue, by the exponential tail of its distribution (Cramér-Lundberg)."""
    service = percent_per_message / 100  # seconds of one core
    load = min(rate * service, 0.999)
    if load <= 0.01:
        return 0.0  # fewer than one in a hundred waits at all
    # How fast the tail falls: the positive root of rate × (e^(service x) - 1) = x.
    low, high = 1e-6 / service, 50 / service
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if load / service * math.expm1(service * middle) < middle else (low, middle)
    factor = (1 - load) / (load * math.exp(service * low) - 1)
    return max(0.0, math.log(factor / 0.01) / low * 1e3)


def show(row):
    print(*(f"{key} {value}" for key, value in row.items()), sep="; ", flush=True)


def rows_of(runs):
    return [{"units": r["units"], "messages a second": r["rate"], "broker, % of a core": r["broker_percent"],
             "broker MiB": r["broker_rss_mib"], "p50 ms": r["p50_ms"], "p99 ms": r["p99_ms"],
             "connected in s": r["connect_s"], "lost": r["sent"] - r["received"], "measured": r["measured"]}
            for r in sorted(runs, key=lambda r: r["units"])]


def measure(counts, seconds):
    runs = harness.saved_runs(NAME)
    for units in counts:
        run_ = measured(units, seconds)
        show(run_)
        runs.append(run_)
        runs = harness.stamp.stamped(runs, harness.stamp.today(harness.BUILD, NAME, harness.machine()))
        harness.save(NAME, rows_of(runs), runs)


def predict(units):
    runs = [r for r in harness.saved_runs(NAME) if r["units"] <= FITTED_MAX]
    a, b, fixed = fit(runs)
    rate = units / PERIOD_S
    row = {"units": units, "broker_percent": round(a + b * rate, 2), "p99_ms": round(fixed + wait_ms(rate, b), 3),
           "fitted": {"a": a, "b": b, "fixed_ms": fixed, "units": sorted(r["units"] for r in runs)}}
    PREDICTED.write_text(json.dumps(row, indent=1) + "\n")
    show(row)


def check():
    said = json.loads(PREDICTED.read_text())
    for run_ in harness.saved_runs(NAME):
        if run_["units"] == said["units"]:
            show({"units": run_["units"], "broker": run_["broker_percent"] / said["broker_percent"] - 1,
                  "p99": run_["p99_ms"] / said["p99_ms"] - 1})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=("measure", "predict", "check", "hub", "drain"))
    parser.add_argument("units", type=int, nargs="*")
    parser.add_argument("--seconds", type=int, default=0, help="60; of a drain at most 900")
    parser.add_argument("--store", choices=("sqlite", "postgres"), action="append")
    options = parser.parse_args()
    if options.case == "measure":
        measure(options.units, options.seconds or 60)
    elif options.case in ("hub", "drain"):
        measure_hub(options.units, options.seconds or (60 if options.case == "hub" else 900), options.case,
                    options.store or ("sqlite", "postgres"))
    elif options.case == "predict":
        predict(options.units[0])
    else:
        check()


if __name__ == "__main__":
    main()
