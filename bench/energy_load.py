#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a broker costs that thousands of units are connected to, and how long their messages take.

    energy_load.py measure UNITS…    one run each, added to the runs that there are; --period S: a message each S seconds
    energy_load.py predict UNITS     what the forecast fitted to runs of at most 3,000 units says of so many: written down
    energy_load.py check             runs of so many units against what was written down before
    energy_load.py hub UNITS…        a real tide-hub takes the messages: until each is stored and has its receipt
    energy_load.py drain UNITS…      … and stores a day's outage of all units first (96 records each)
    energy_load.py page UNITS…       … while a page is open: from a further unit's message until the page has it

A real mosquitto with TLS 1.3 and certificates on both sides; real connections of bench/load_units.c, a message of ten
records per unit each PERIOD s. The broker's CPU time is its threads' (schedstat) between "all are connected" and the
end; the generator, which is also the receiver, has its own. Latency is from a unit's publish to the receiver.

page: all units stand in the hub's policy. A further unit, a connection of its own, sends in turn an event and another
draw (up/event, up/demand); a stream of /v1/events, as a page opens it, shows when it is told. The next one is sent at a random
moment after that. --draws: each of the other units tells another draw with each message, so that the stream tells
them all: twice the messages of the goal. Needs Debian's python3-paho-mqtt, so /usr/bin/python3.

The model of any number of units: CPU = a + b × messages a second (least squares over the runs with the usual period, so
b holds what a connection costs besides); p99 of latency = a fixed part, fitted, and the 99th percentile of the wait in
an M/D/1 queue whose service is b.

The forecast of 10,000 units: CPU and p99 are each e^α × (messages a second)^β × units^γ (least squares of the logarithms).
A broker that slept for long pays more for a message than one that has just had one, so a straight line through low
rates lies too high. Runs of fewer units with shorter periods reach the rate of 10,000 units; only their number is
extrapolated.
"""

import argparse
import contextlib
import http.client
import json
import math
import os
import pathlib
import random
import re
import resource
import select
import shutil
import socket
import ssl
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
PREDICTED_NAME = "energy-load-predicted"
PAGE_NAME = "energy-load-page"
GOAL_UNITS, GOAL_PERCENT, GOAL_DRAIN_S, GOAL_PAGE_S, GOAL_OFF = 10_000, 40, 900, 1.0, 0.15
PROBE, PROBE_GUARD_S = "probe", 20
DAY_RECORDS = 96


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


class Hub:
    """A broker with a tide-hub behind it, on a real disk: what is stored is synced. They end with @stack."""

    def __init__(self, stack, *options):
        self.folder = pathlib.Path(stack.enter_context(
            tempfile.TemporaryDirectory(prefix="tide-bench-", dir="/var/tmp")))
        self.port = free_port()
        self.folder.chmod(0o755)
        hub_state(self.folder)
        self.broker_pid = stack.enter_context(broker(self.folder, self.port))
        self.log = self.folder / "hub.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [harness.BUILD / "tide-hub", "serve", "--state", self.folder / "state", "--broker",
                 f"localhost:{self.port}", *options], stdout=log, stderr=log)
        stack.callback(self.process.wait)
        stack.callback(self.process.terminate)
        self.said("connected to the broker")

    def said(self, pattern):
        """Waits for a match in its log, and returns it."""
        until = time.monotonic() + 60
        while not (found := re.search(pattern, self.log.read_text())):
            if self.process.poll() is not None or time.monotonic() > until:
                sys.exit(f"energy_load: tide-hub did not start: {self.log.read_text()}")
            time.sleep(0.05)
        return found

    def load(self, units, seconds, mode):
        """The generator, once all units are connected."""
        generator = subprocess.Popen(
            [harness.BUILD / "bench/load_units", str(self.port), self.folder, str(units), str(PERIOD_S), str(seconds),
             "200", mode], stdout=subprocess.PIPE, text=True)
        if not generator.stdout.readline().startswith("connected"):
            sys.exit(f"energy_load: {units} units were not connected")
        return generator

    def store_bytes(self):
        return sum(file.stat().st_size for file in (self.folder / "state").glob("hub.db*"))


def with_hub(units, seconds, mode):
    with contextlib.ExitStack() as stack:
        hub = Hub(stack, "--listen", "none")
        generator = hub.load(units, seconds, mode)
        pids = {"broker": hub.broker_pid, "hub": hub.process.pid, "generator": generator.pid}
        before, begin = {name: cpu_ns(pid) for name, pid in pids.items()}, time.monotonic()
        if mode == "hub":
            time.sleep(seconds)
        else:
            select.select([generator.stdout], [], [], seconds + 60)
        used = {name: cpu_ns(pid) - before[name] for name, pid in pids.items() if name != "generator" or mode == "hub"}
        elapsed = time.monotonic() - begin
        row = json.loads(generator.stdout.read())
        generator.wait()
        return {"mode": mode, **row, "rate": round(units / PERIOD_S, 1), "seconds": seconds,
                **{f"{name}_percent": round(ns / elapsed / 1e7, 2) for name, ns in used.items()},
                "hub_rss_mib": round(rss_kib(hub.process.pid) / 1024, 1), "store_bytes": hub.store_bytes()}


def hub_row(r):
    if r["mode"] == "hub":
        return {"p50 ms": r["p50_ms"], "p99 ms": r["p99_ms"], "without receipt": r["sent"] - r["received"]}
    row = {"records": r["acknowledged"], "of": r["units"] * DAY_RECORDS, "stored in s": r["acknowledged_s"]}
    if r["units"] == GOAL_UNITS:
        good = r["acknowledged"] == row["of"] and r["acknowledged_s"] <= GOAL_DRAIN_S
        row |= {"goal": f"all in {GOAL_DRAIN_S} s", "verdict": "met" if good else "missed"}
    return row


def hub_rows(runs):
    return [{"units": r["units"], "what": "a message each per 10 s" if r["mode"] == "hub" else "a day's outage",
             "broker, % of a core": r["broker_percent"], "hub, %": r["hub_percent"], "hub MiB": r["hub_rss_mib"],
             **hub_row(r), "measured": r["measured"]}
            for r in sorted(runs, key=lambda r: (r["mode"], r["units"]))]


def measure_hub(counts, seconds, mode):
    for units in counts:
        add_run(HUB_NAME, hub_rows, with_hub(units, seconds, mode))


def runs_of_today(name):
    """Those of today's programs."""
    today = harness.stamp.today(harness.BUILD, name, harness.machine())["hash"]
    return [run for run in harness.saved_runs(name) if run["measured"]["hash"] == today]


def add_run(name, rows, run_):
    """Joins a run with those that there are."""
    show({key: value for key, value in run_.items() if not isinstance(value, (list, dict))})
    stamp = harness.stamp.today(harness.BUILD, name, harness.machine())
    runs = harness.stamp.stamped([*runs_of_today(name), run_], stamp)  # those of other programs are not pooled with it
    harness.save(name, rows(runs), runs)


class Stream(threading.Thread):
    """The events that a page hears; tells when the wanted one was there whole."""

    def __init__(self, port, ca, token):
        super().__init__(daemon=True)
        self.connection = http.client.HTTPSConnection("localhost", port, timeout=PROBE_GUARD_S,
                                                      context=ssl.create_default_context(cafile=ca))
        self.connection.request("GET", "/v1/events", headers={"Authorization": f"Bearer {token}"})
        self.answer = self.connection.getresponse()
        if self.answer.status != 200:
            sys.exit(f"energy_load: /v1/events: {self.answer.status} {self.answer.read()}")
        self.wanted, self.heard, self.found_s, self.events = "", threading.Event(), 0.0, 0
        self.start()

    def want(self, text):
        self.wanted = text
        self.heard.clear()

    def run(self):
        with contextlib.suppress(OSError, ValueError):
            while line := self.answer.readline():
                if not line.startswith(b"data:"):
                    continue
                self.events += 1
                if self.wanted and self.wanted in line.decode():
                    self.found_s = time.monotonic()
                    self.wanted = ""
                    self.heard.set()


class Probe:
    """A unit: its connection with TLS and a certificate, its messages."""

    def __init__(self, hub, units):
        import paho.mqtt.client as mqtt  # Debian's
        self.units, self.number = units, 0
        self.client = mqtt.Client(client_id=PROBE, protocol=mqtt.MQTTv5)
        self.client.tls_set(str(hub.folder / "ca.crt"), str(hub.folder / "unit.crt"), str(hub.folder / "unit.key"))
        up = threading.Event()
        self.client.on_connect = lambda *_: up.set()
        self.client.connect("localhost", hub.port)
        self.client.loop_start()
        if not up.wait(PROBE_GUARD_S):
            sys.exit("energy_load: the probe is not connected")
        self.send("state", {"v": 1, "online": True, "role": "unit", "version": "0", "boot": 1, "policy": 0, "synced": True})

    def send(self, leaf, message):
        self.client.publish(f"tide/1/{PROBE}/up/{leaf}", json.dumps(message), qos=1)

    def latency_s(self, leaf, stream):
        """One message's latency; None: it was not told in PROBE_GUARD_S."""
        self.number += 1
        if leaf == "event":
            mark = f"message {self.number}."
            message = {"v": 1, "time": int(time.time() * 1000), "type": "late", "text": mark}
        else:
            uw = 1_000_000_000 + self.number  # nobody else draws that
            mark = f'"area":"bench/{PROBE}","power":{{"low_uw":{uw},'
            message = {"v": 1, "points": [], "floor": 0,
                       "draw": {"uw": uw, "low": uw, "high": uw, "basis": "measured"}}
        stream.want(mark)
        begin = time.monotonic()
        self.send(leaf, message)
        return stream.found_s - begin if stream.heard.wait(PROBE_GUARD_S) else None


def page_policy(folder, units):
    names = [*(f"unit-{n}" for n in range(units)), PROBE]
    path = folder / "policy.yaml"
    path.write_text("version: 1\norg: bench\nzone: UTC\nrules: []\nareas:\n" +
                    "".join(f"- {{area: bench/{name}, unit: {name}}}\n" for name in names))
    return path


def viewer(hub):
    """A token of somebody who may look."""
    program, state = harness.BUILD / "tide-hub", ("--state", hub.folder / "state")
    run(program, "user", "add", "bench", "--role", "viewer", *state, input=b"correct horse battery\n")
    return subprocess.run([program, "user", "token", "bench", *state], check=True, capture_output=True,
                          text=True).stdout.strip()


def with_page(units, seconds, draws):
    chance = random.Random(units)
    with contextlib.ExitStack() as stack:
        policy = page_policy(pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory())), units)
        hub = Hub(stack, "--listen", "127.0.0.1:0", "--policy", policy)
        stream = Stream(int(hub.said(r"serving https://[^:]+:(\d+)/")[1]), hub.folder / "state/trust/ca.crt", viewer(hub))
        probe = Probe(hub, units)
        stack.callback(probe.client.loop_stop)
        generator = hub.load(units, seconds, "draws" if draws else "hub")
        time.sleep(PERIOD_S)  # all have told that they are there
        seconds -= PERIOD_S
        pids = {"broker": hub.broker_pid, "hub": hub.process.pid}
        before, begin, told = {name: cpu_ns(pid) for name, pid in pids.items()}, time.monotonic(), stream.events
        found = {"event": [], "demand": []}
        while time.monotonic() < begin + seconds:
            for leaf, latencies in found.items():
                latencies.append(probe.latency_s(leaf, stream))
                time.sleep(chance.uniform(0.01, 0.2))
        elapsed = time.monotonic() - begin
        used = {f"{name}_percent": round((cpu_ns(pid) - before[name]) / elapsed / 1e7, 2) for name, pid in pids.items()}
        told = stream.events - told
        row = json.loads(generator.stdout.read())
        generator.wait()
    return {"draws": draws, **row, "rate": round(units / PERIOD_S * (2 if draws else 1), 1), "seconds": seconds, **used,
            "told_per_s": round(told / elapsed, 1),
            **{f"{leaf}_s": [None if s is None else round(s, 4) for s in latencies] for leaf, latencies in found.items()}}


def quantile_interval(values, q):
    """The q-quantile with its distribution-free 95 % interval: the ranks between which it lies (binomial)."""
    ordered, n = sorted(values), len(values)
    below, total = [], 0.0
    for k in range(n + 1):
        total += math.comb(n, k) * q ** k * (1 - q) ** (n - k)
        below.append(total)  # P(at most k of them lie below the quantile)
    low = next((k for k in range(n) if below[k] > 0.025), 0)
    high = next((k for k in range(n + 1) if below[k] >= 0.975), n)
    return harness.quantile(values, q), ordered[low], ordered[high] if high < n else math.inf


def page_rows(runs):
    rows = []
    keys = sorted({(r["draws"], r["units"]) for r in runs})
    for draws, units in keys:
        for leaf, what in (("event", "an event"), ("demand", "another draw")):
            same = [r for r in runs if (r["draws"], r["units"]) == (draws, units)]
            values = [math.inf if s is None else s for r in same for s in r[f"{leaf}_s"]]
            p99, low, high = quantile_interval(values, 0.99)
            verdict = "met" if high <= GOAL_PAGE_S else "not shown" if low <= GOAL_PAGE_S else "missed"
            rows.append({"units": units, "what": f"{what}: message until the page has it",
                         "others": "energy and draws" if draws else "energy", "messages": len(values),
                         "median s": round(harness.quantile(values, 0.5), 3), "p99 s": round(p99, 3),
                         "95 % low": round(low, 3), "95 % high": round(high, 3), "most s": round(max(values), 3),
                         "broker, % of a core": same[-1]["broker_percent"], "hub, %": same[-1]["hub_percent"],
                         "told to the page a second": same[-1]["told_per_s"], "goal": f"p99 ≤ {GOAL_PAGE_S:g} s",
                         "verdict": verdict, "measured": harness.stamp.of_runs({}, same)})
    return rows


def measured(units, seconds, period_s):
    with tempfile.TemporaryDirectory(prefix="tide-bench-") as name:
        folder, port = pathlib.Path(name), free_port()
        folder.chmod(0o755)
        certificates(folder)
        with broker(folder, port) as pid:
            generator = subprocess.Popen(
                [harness.BUILD / "bench/load_units", str(port), folder, str(units), str(period_s), str(seconds)],
                stdout=subprocess.PIPE, text=True)
            if not generator.stdout.readline().startswith("connected"):
                sys.exit(f"energy_load: {units} units were not connected")
            before, begin = cpu_ns(pid), time.monotonic()  # until now, certificates and keys were its work
            ours = cpu_ns(generator.pid)
            time.sleep(seconds)
            used, elapsed = cpu_ns(pid) - before, time.monotonic() - begin
            ours = cpu_ns(generator.pid) - ours
            row = json.loads(generator.stdout.read())
            generator.wait()
            return {**row, "period_s": period_s, "rate": round(units / period_s, 1), "seconds": seconds,
                    "connect_cpu_ms": round(before / units / 1e6, 3),
                    "broker_percent": round(used / elapsed / 1e7, 2),
                    "generator_percent": round(ours / elapsed / 1e7, 2), "broker_rss_mib": round(rss_kib(pid) / 1024, 1)}


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


def least_squares(inputs, values):
    """The weights w with which the sums of w × input come nearest to the values."""
    n = range(len(inputs[0]))
    normal = [[sum(x[i] * x[k] for x in inputs) for k in n] for i in n]
    return solve(normal, [sum(x[i] * v for x, v in zip(inputs, values)) for i in n])


def usual(runs):
    """Those in which each unit sent as often as units do."""
    return [run_ for run_ in runs if run_.get("period_s", PERIOD_S) == PERIOD_S]


def fit(runs):
    """(a, b, d): CPU = a + b × messages a second, and the fixed part of p99, ms."""
    a, b = least_squares([[1.0, run_["rate"]] for run_ in runs], [run_["broker_percent"] for run_ in runs])
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


def forecast(runs, key, units, rate):
    """A run's @key as forecast, and the weights (α, β, γ) of 1, ln rate and ln units in its logarithm."""
    inputs = [[1.0, math.log(run_["rate"]), math.log(run_["units"])] for run_ in runs]
    weights = least_squares(inputs, [math.log(run_[key]) for run_ in runs])
    return math.exp(sum(w * x for w, x in zip(weights, (1.0, math.log(rate), math.log(units))))), weights


def show(row):
    print(*(f"{key} {value}" for key, value in row.items()), sep="; ", flush=True)


def rows_of(runs):
    return [{"units": r["units"], "a message each s": r.get("period_s", PERIOD_S), "messages a second": r["rate"],
             "broker, % of a core": r["broker_percent"],
             "broker MiB": r["broker_rss_mib"], "p50 ms": r["p50_ms"], "p99 ms": r["p99_ms"],
             "connected in s": r["connect_s"], "lost": r["sent"] - r["received"],
             **({"goal": f"broker ≤ {GOAL_PERCENT} %", "verdict": "met" if r["broker_percent"] <= GOAL_PERCENT else "missed"}
                if r["units"] == GOAL_UNITS else {}), "measured": r["measured"]}
            for r in sorted(runs, key=lambda r: (r["rate"], r["units"]))]


def measure(counts, seconds, period_s):
    for units in counts:
        add_run(NAME, rows_of, measured(units, seconds, period_s))


def predict(units):
    """Once: a prediction that is there already stays."""
    measured_, predicted_ = runs_of_today(NAME), runs_of_today(PREDICTED_NAME)
    if any(r["units"] == units for r in measured_ + predicted_):
        sys.exit(f"energy_load: {units} units are predicted or measured already")
    runs = [r for r in measured_ if r["units"] <= FITTED_MAX]
    if len(usual(runs)) == len(runs) or len({r["units"] for r in usual(runs)}) < 2:
        sys.exit("energy_load: a forecast needs runs with the usual period of two numbers of units, and with another "
                 "period: energy_load.py measure [--period S] UNITS…")
    said = {key: forecast(runs, key, units, units / PERIOD_S) for key in ("broker_percent", "p99_ms")}
    add_run(PREDICTED_NAME, predicted_rows, {
        "units": units, **{key: round(value, 3) for key, (value, _) in said.items()},
        "fitted": {**{key: weights for key, (_, weights) in said.items()},
                   "runs": sorted([r["units"], r.get("period_s", PERIOD_S)] for r in runs)}})


def predicted_rows(predictions):
    """Each prediction and, where it was measured since, how near that came."""
    rows, runs = [], harness.saved_runs(NAME)
    for said in predictions:
        for key, what in (("broker_percent", "broker, % of a core"), ("p99_ms", "p99 of latency, ms")):
            row = {"units": said["units"], "what": what, "predicted": said[key]}
            values = [r[key] for r in runs if r["units"] == said["units"]]
            if values:
                stats = harness.ratio_stats([value / said[key] for value in values])
                bound = [abs(stats["low"] - 1), abs(stats["high"] - 1)]
                good = abs(stats["ratio"] - 1) <= GOAL_OFF
                row |= {"measured in median": round(stats["ratio"] * said[key], 3),
                        "over predicted": round(stats["ratio"], 3), "95 % low": round(stats["low"], 3),
                        "95 % high": round(stats["high"], 3), "repeats": stats["repeats"],
                        "goal": f"within {GOAL_OFF:.0%}",
                        "verdict": "met" if max(bound) <= GOAL_OFF else "not shown" if good or
                        stats["low"] <= 1 + GOAL_OFF and stats["high"] >= 1 - GOAL_OFF else "missed"}
            rows.append({**row, "measured": said["measured"]})
    return rows


def check():
    predictions = harness.saved_runs(PREDICTED_NAME)
    for row in predicted_rows(predictions):
        show({key: value for key, value in row.items() if key != "measured"})
    harness.save(PREDICTED_NAME, predicted_rows(predictions), predictions)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=("measure", "predict", "check", "hub", "drain", "page"))
    parser.add_argument("units", type=int, nargs="*")
    parser.add_argument("--seconds", type=int, default=0, help="60; of a drain at most 900")
    parser.add_argument("--period", type=int, default=PERIOD_S, help="measure: seconds between two messages of a unit")
    parser.add_argument("--draws", action="store_true")
    options = parser.parse_intermixed_args()
    if options.case == "page" and 0 < options.seconds <= PERIOD_S:
        parser.error(f"page: --seconds must be more than {PERIOD_S}: so long are all units heard first")
    if options.case == "measure":
        measure(options.units, options.seconds or 60, options.period)
    elif options.case in ("hub", "drain"):
        measure_hub(options.units, options.seconds or (60 if options.case == "hub" else GOAL_DRAIN_S), options.case)
    elif options.case == "page":
        for units in options.units:
            add_run(PAGE_NAME, page_rows, with_page(units, options.seconds or 300, options.draws))
    elif options.case == "predict":
        predict(options.units[0])
    else:
        check()


if __name__ == "__main__":
    main()
