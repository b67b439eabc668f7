# SPDX-License-Identifier: Apache-2.0
"""`tide sim`: comparisons, files, and what it says about scenarios that are wrong."""
import csv
import html.parser
import itertools
import json
import math
import os
import pathlib
import pty
import re
import subprocess
import xml.etree.ElementTree

import pytest

from cli_tools import assert_error, tide  # noqa: F401
from conftest import GUARD_S, ROOT

EXAMPLES = sorted((ROOT / "examples/scenarios").glob("*.json"))
SVG = "{http://www.w3.org/2000/svg}"

RANDOM = {
    "name": "a test <&>",
    "machine": {"cores": 8, "oversubscription": 0.1, "idle_watts": 20, "core_watts": 5},
    "workload": {
        "jobs": 60,
        "arrivals": {"gap": {"exponential": {"mean": 20}}},
        "mix": [{"name": "a, \"b\" <c>", "speedup": {"uniform": [0.8, 0.99]}, "slack": 3,
                 "work": {"lognormal": {"mean": 120, "sigma": 1}},
                 "request": {"uniform": [1, 8]},
                 "malleability": {"shares": {"rigid": 1, "moldable": 1, "malleable": 2}}}]}}

FIXED = {"machine": {"cores": 4},
         "jobs": [{"name": "long", "work": 40, "speedup": 1},
                  {"name": "short", "work": 4, "speedup": 1, "arrival": 1}]}


@pytest.fixture
def scenario(tmp_path):
    """scenario(object or text): the path of a file that holds it."""
    number = itertools.count()

    def write(content, name=None):
        path = tmp_path / (name or f"s{next(number)}.json")
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path
    return write


def sim_json(tide, *args):
    done = tide("sim", *args, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def metrics(result, policy):
    return next(p for p in result["policies"] if p["policy"] == policy)["metrics"]


def test_seeds_of_given_jobs_are_said_to_be_the_same(tide, scenario):
    done = tide("sim", scenario(FIXED), "--seeds", "3", "--json")
    assert done.returncode == 0 and "every seed gives the same run" in done.stderr
    assert json.loads(done.stdout)["seeds"] == 1
    assert tide("sim", scenario(RANDOM), "--seeds", "2", "--parallel", "1").stderr == ""


def test_a_job_refused_for_its_deadline_could_run_on_this_machine(tide, scenario):
    late = {"machine": {"cores": 4}, "jobs": [{"work": 400, "speedup": 1, "deadline": 10}]}
    done = tide("sim", scenario(late), "--policy", "deadline/refuse")
    assert done.returncode == 6 and "could not have met their deadlines" in done.stderr, done
    assert "never run" not in done.stderr
    large = {"machine": {"cores": 4}, "jobs": [{"work": 400, "speedup": 1, "min": 5, "request": 5, "memory": "1T"}]}
    assert "never run on this machine" in tide("sim", scenario(large), "--policy", "fcfs").stderr


def test_jobs_wait_for_devices_and_keep_cores_for_them(tide, scenario):
    job = {"work": 40, "speedup": 1, "devices": "nvidia=1", "max": 2}
    one = {"machine": {"cores": 8, "devices": "nvidia=1"}, "jobs": [job, job]}
    two = {"machine": {"cores": 8, "devices": "nvidia=2"}, "jobs": [job, job]}
    for policy in ("fcfs", "equal", "throughput"):
        assert metrics(sim_json(tide, scenario(one), "--policy", policy), policy)["makespan"]["mean"] == pytest.approx(40)
        assert metrics(sim_json(tide, scenario(two), "--policy", policy), policy)["makespan"]["mean"] == pytest.approx(20)
    none = {"machine": {"cores": 8, "devices": "uverbs=1"}, "jobs": [job]}
    assert "never run on this machine" in tide("sim", scenario(none), "--policy", "fcfs").stderr
    heavy = {"name": "heavy", "work": 70, "speedup": 1, "weight": 10000}
    fed = {"name": "fed", "work": 40, "speedup": 1, "weight": 1, "devices": "nvidia=2"}
    run = sim_json(tide, scenario({"machine": {"cores": 9}, "jobs": [heavy, fed]}), "--policy", "equal")
    # 7 cores and 2 for 10 s; then it has all 9. Without devices it would have begun with one.
    assert metrics(run, "equal")["makespan"]["mean"] == pytest.approx(10 + 20 / 9)


def test_watts_of_a_scenario_are_enough_for_power_cap(tide, scenario):
    assert tide("sim", scenario(RANDOM), "--policy", "power-cap", "--seeds", "1").returncode == 0


# ---- results ----

def test_no_control_shares_the_machine_as_the_kernel_would(tide, scenario):
    result = sim_json(tide, scenario(FIXED), "--policy", "none")
    mean = {name: value and value["mean"] for name, value in metrics(result, "none").items()}
    # 4 cores; alone for 1 s, then 2 each until `short` has its 4 core-seconds at 3 s, then alone.
    assert mean["makespan"] == pytest.approx(11)
    assert mean["turnaround"] == pytest.approx((11 + 2) / 2)
    assert mean["useful_cores"] == pytest.approx(4)
    assert mean["energy"] is None and mean["misses"] is None


def test_a_policy_is_compared_with_the_first(tide, scenario):
    result = sim_json(tide, scenario(RANDOM), "--policy", "fcfs/strict,equal", "--seeds", "4")
    assert [p["policy"] for p in result["policies"]] == ["fcfs/strict", "equal"]
    assert result["policies"][0]["gain"] == {}
    strict, equal = ([run["makespan"] for run in p["runs"]] for p in result["policies"])
    gain = result["policies"][1]["gain"]["makespan"]
    ratios = [a / b for a, b in zip(strict, equal)]
    assert gain["mean"] == pytest.approx(math.prod(ratios) ** (1 / 4))
    assert gain["low"] < gain["mean"] < gain["high"]
    mean = metrics(result, "equal")["makespan"]
    assert mean["mean"] == pytest.approx(sum(equal) / 4)
    assert mean["low"] < mean["mean"] < mean["high"]


def test_seeds_are_the_ones_asked_for(tide, scenario):
    path = scenario(RANDOM)
    some = sim_json(tide, path, "--policy", "equal", "--seeds", "3-5")
    assert [run["seed"] for run in some["policies"][0]["runs"]] == [3, 4, 5]
    more = sim_json(tide, path, "--policy", "equal", "--seeds", "5")
    assert more["policies"][0]["runs"][2:] == some["policies"][0]["runs"]
    assert len({run["makespan"] for run in more["policies"][0]["runs"]}) == 5


def test_scenarios_without_chance_run_once(tide, scenario):
    assert sim_json(tide, scenario(FIXED))["seeds"] == 1
    assert sim_json(tide, scenario(RANDOM))["seeds"] == 10


def test_placement_of_the_command_line_wins(tide, scenario):
    shared, exclusive = (
        metrics(sim_json(tide, scenario(RANDOM), "--policy", "equal", "--placement", placement),
                "equal")["makespan"]["mean"] for placement in ("shared", "exclusive"))
    assert shared != exclusive


def test_everything_is_the_same_in_every_run_and_with_any_number_of_threads(tide, scenario,
                                                                            tmp_path):
    path = scenario(RANDOM)
    results = []
    for number, jobs in enumerate(("1", "2", "7", "2")):
        files = [tmp_path / f"{number}.{kind}" for kind in ("csv", "svg", "html")]
        done = tide("sim", path, "--seeds", "3", "--jobs", jobs, "--check", "--all", "--policy",
                    "none,equal,fcfs/max-prop,throughput,response", "--csv", files[0], "--gantt",
                    files[1], "--html", files[2])
        assert (done.returncode, done.stderr) == (0, "")
        results.append([done.stdout, *(f.read_text() for f in files)])
    assert results[0] == results[1] == results[2] == results[3]


def test_every_policy_passes_its_check_on_every_example(tide):
    listed = tide("sim", EXAMPLES[0], "--policy", "nonsense")
    names = re.search(r"there are (.*)", listed.stderr.splitlines()[0])[1].split(", ")
    assert "equal" in names
    for path in EXAMPLES:
        result = sim_json(tide, path, "--policy", ",".join(names), "--seeds", "1", "--check")
        for policy in result["policies"]:
            assert policy["metrics"]["unfinished"]["mean"] == 0, (path, policy["policy"])


# ---- the table ----

def test_table_shows_policies_metrics_and_gains(tide, scenario):
    done = tide("sim", scenario(RANDOM), "--policy", "none,equal", "--seeds", "3")
    lines = done.stdout.splitlines()
    assert lines[0] == ("a test <&>: 60 jobs on 8 cores, mean of seeds 1 to 3 ± half of the 95 % "
                        "confidence interval")
    assert re.search(r"^POLICY +MAKESPAN s +TURNAROUND s +SLOWDOWN +SLOWDOWN P95 +USEFUL CORES "
                     r"+ENERGY J +MISSES jobs$", lines[2])
    assert re.search(r"^none +\d+ ±\d+\.\d%", lines[3])
    assert re.search(r"^equal +\d+ ±\d+\.\d%", lines[4])
    assert "How many times better than none:" in lines
    assert re.search(r"^equal +×\d\.\d\d \(\d\.\d\d … \d\.\d\d\)", lines[-1])


def test_all_metrics_stand_in_lines(tide, scenario):
    done = tide("sim", scenario(FIXED), "--all", "--policy", "equal,none")
    assert re.search(r"^METRIC +equal +none$", done.stdout, re.M)
    names = sim_json(tide, scenario(FIXED))["metrics"]
    for name in names:
        assert re.search(rf"^{name.upper().replace('_', ' ')}\b", done.stdout, re.M)


def test_default_policies_begin_with_no_control(tide, scenario):
    result = sim_json(tide, scenario(FIXED))
    assert [p["policy"] for p in result["policies"]] == ["none", "equal", "fcfs/strict",
                                                         "throughput", "response"]


def test_progress_is_shown_on_a_terminal_and_removed(build_dir, scenario):
    leader, follower = pty.openpty()
    process = subprocess.Popen([build_dir / "tide", "sim", scenario(RANDOM)],
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=follower)
    os.close(follower)
    seen = b""
    try:
        while chunk := os.read(leader, 4096):
            seen += chunk
    except OSError:  # the terminal of a process that has ended
        pass
    assert process.wait(GUARD_S) == 0
    os.close(leader)
    assert re.match(rb"\r *\d+ % \[#* *\] ", seen)
    assert seen.endswith(b"\r\x1b[K")


# ---- prediction against what was observed ----

def test_prediction_stands_beside_what_was_observed(tide, scenario):
    observed = {"policy": "fcfs", "makespan": 10, "mean_turnaround": 8, "recorded": "then",
                "others": 0.1, "jobs": []}
    path = scenario(dict(FIXED, observed=observed))
    result = sim_json(tide, path)
    # fcfs is the default list's fcfs/strict, so it is there once
    assert len(result["policies"]) == 5
    assert result["prediction"]["policy"] == "fcfs/strict"
    makespan = metrics(result, "fcfs/strict")["makespan"]["mean"]
    assert result["prediction"]["makespan"] == {
        "observed": 10, "predicted": makespan, "error_percent": pytest.approx(makespan * 10 - 100)}
    shown = tide("sim", path).stdout
    assert "Recorded under fcfs/strict:\n" in shown
    assert f"observed 10.0 s, predicted {makespan:.1f} s: {makespan * 10 - 100:+.1f} %" in shown
    assert "Recorded under fcfs: add it to --policy" in tide("sim", path, "--policy", "none").stdout


def test_recorded_policy_is_compared_by_default(tide, scenario):
    observed = {"policy": "priority/ageing=60s", "makespan": 10, "mean_turnaround": 8}
    result = sim_json(tide, scenario(dict(FIXED, observed=observed)))
    assert result["policies"][-1]["policy"] == "priority/ageing=60s"
    assert result["prediction"]["policy"] == "priority/ageing=60s"


def test_an_unknown_recorded_policy_matters_when_it_would_be_compared(tide, scenario):
    observed = {"policy": "sjf", "makespan": 10, "mean_turnaround": 8}
    path = scenario(dict(FIXED, observed=observed))
    assert_error(tide("sim", path), 2, "tide: sim: observed.policy of the scenario: ", '"sjf"')
    done = tide("sim", path, "--policy", "equal")
    assert (done.returncode, done.stderr) == (0, "")


# ---- files ----

def test_csv_has_a_line_for_each_job_of_each_run(tide, scenario, tmp_path):
    path = tmp_path / "jobs.csv"
    result = sim_json(tide, scenario(RANDOM), "--policy", "none,equal", "--seeds", "2", "--csv",
                      path)
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    keys = [(row["policy"], row["seed"]) for row in rows]
    assert keys == sorted(keys, key=[("none", "1"), ("none", "2"), ("equal", "1"),
                                     ("equal", "2")].index)
    assert len(rows) == 240
    assert len({(row["policy"], row["seed"], row["job"]) for row in rows}) == 240
    assert all(row["name"] == f"a, \"b\" <c>-{row['job']}" for row in rows)
    equal = [row for row in rows if (row["policy"], row["seed"]) == ("equal", "2")]
    mean = sum(float(row["turnaround"]) for row in equal) / 60
    assert mean == pytest.approx(result["policies"][1]["runs"][1]["turnaround"], abs=1e-5)
    for row in rows:
        assert row["state"] == "finished"
        assert float(row["finish"]) - float(row["arrival"]) == pytest.approx(
            float(row["waiting"]) + float(row["execution"]), abs=1e-5)


def test_gantt_is_svg_with_a_bar_for_each_job(tide, scenario, tmp_path):
    path = tmp_path / "gantt.svg"
    sim_json(tide, scenario(RANDOM), "--policy", "none,equal", "--seeds", "2", "--gantt", path)
    root = xml.etree.ElementTree.parse(path).getroot()
    assert root.tag == SVG + "svg"
    assert root.find(SVG + "title").text == "a test <&>"
    titles = [t.text for t in root.iter(SVG + "title")]
    for policy_jobs in (1, 60):
        assert any(t.startswith(f"a, \"b\" <c>-{policy_jobs}: ") for t in titles)
    assert len([r for r in root.iter(SVG + "rect") if r.get("class") == "bar"]) >= 120
    height = float(root.get("height"))
    for child in root.findall(SVG + "svg"):
        assert float(child.get("y")) + float(child.get("height")) <= height
    assert all(0 <= float(r.get("x")) <= 960 for r in root.iter(SVG + "rect"))


class Page(html.parser.HTMLParser):
    """Elements that are open, and everything that could lead out of the page."""
    VOID = {"meta", "br"}

    def __init__(self):
        super().__init__()
        self.open, self.outside, self.text = [], [], []

    def handle_starttag(self, tag, attributes):
        if tag not in self.VOID:
            self.open.append(tag)
        self.outside += [(tag, a) for a in attributes
                         if a[0] in ("src", "href", "xlink:href", "srcset", "action", "style")]
        if tag in ("script", "link", "iframe", "img", "object", "embed", "base"):
            self.outside.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_html_stands_alone(tide, scenario, tmp_path):
    path = tmp_path / "report.html"
    tide("sim", scenario(dict(RANDOM, description="what <it> is")), "--policy",
         "none,priority/ageing=60s", "--seeds", "2-4", "--html", path)
    source = path.read_text()
    page = Page()
    page.feed(source)
    page.close()
    assert page.open == [] and page.outside == []
    assert set(re.findall(r"\w+://[^\s\"<]*", source)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"@import|url\(|<script", source)
    assert "prefers-color-scheme:dark" in source
    text = "".join(page.text)
    for part in ("a test <&>", "what <it> is", "60 jobs on 8 cores, seeds 2 to 4", "ageing = ",
                 "priority/ageing=60s", "tide sim ", "Jain's index", "oversubscription"):
        assert part in text, part
    for svg in re.findall(r"<svg .*?</svg>\n", source, re.S):
        xml.etree.ElementTree.fromstring(svg)


def test_html_shows_names_in_full_and_ratios_without_unit(tide, scenario, tmp_path):
    path = tmp_path / "report.html"
    long = "priority/max-prop/malleable/grow/ageing=10min"
    tide("sim", scenario(RANDOM), "--policy", f"none,{long}", "--seeds", "2", "--html", path)
    source = path.read_text()
    gains = source[source.index("<h2>Against none"):source.index("<h3>")]
    assert re.findall(r"<th title[^>]*>(.*?)</th>", gains) == ["makespan", "turnaround", "slowdown"]
    bars = re.findall(r"<h3>.*?(<svg .*?</svg>)\n", source[:source.index("<h2>Over time")], re.S)
    assert len(bars) == 4
    for svg in map(xml.etree.ElementTree.fromstring, bars):
        labels = {t.text: t for t in svg.iter(SVG + "text")}
        assert float(labels[long].get("x")) > 6 * len(long)  # it ends there
        assert all(float(r.get("x")) >= float(labels[long].get("x"))
                   for r in svg.iter(SVG + "rect"))
        assert not any("e+" in text for text in labels)


@pytest.mark.parametrize("option", ["--csv", "--gantt", "--html"])
def test_what_is_read_is_not_written(tide, scenario, tmp_path, option):
    trace = scenario("arrival,work,speedup\n0,1,1\n", "t.csv")
    path = scenario({"machine": {"cores": 7}, "trace": {"file": "t.csv"}})
    for target in (path, trace):
        before = target.read_text()
        assert_error(tide("sim", path, option, tmp_path / "." / target.name), 2, "tide: sim: ",
                     "is the scenario, its trace or another output")
        assert target.read_text() == before
    assert tide("sim", path, "--csv", tmp_path / "o", option.replace("csv", "html"),
                tmp_path / "o").returncode == 2
    assert tide("sim", path, "--csv", "/dev/null", "--html", "/dev/null").returncode == 0


def test_files_that_cannot_be_written_are_no_success(tide, scenario):
    path = scenario(FIXED)
    for option in ("--csv", "--gantt", "--html"):
        for target, reason in (("/dev/full", "No space left"), ("/nowhere/x", "No such file")):
            done = tide("sim", path, option, target)
            assert done.returncode == 1
            assert f"tide: sim: cannot write {target}: {reason}" in done.stderr


# ---- servers ----

SERVED = {
    "name": "served", "machine": {"cores": 4},
    "servers": [{"name": "serve", "slo": "p99=50ms", "demand": {"exponential": {"mean": "6ms"}}, "speedup": 0.5,
                 "requests": {"rate": 40, "bursts": {"rate": 250, "every": "40s", "for": "10s"}, "until": "2min"}}],
    "jobs": [{"name": "train", "work": "10min", "speedup": 0.95}]}


def test_a_server_keeps_its_promise_beside_a_job_and_static_splits_stand_beside(tide, scenario):
    result = sim_json(tide, scenario(SERVED), "--seeds", 2)
    assert [p["policy"] for p in result["policies"]] == ["none", "equal", "equal+idle"] + [f"equal+split={k}" for k in (1, 2, 3)]
    mean = {p["policy"]: {name: value and value["mean"] for name, value in p["metrics"].items()} for p in result["policies"]}
    assert mean["equal"]["promise_kept"] > 95 > mean["none"]["promise_kept"]
    assert mean["equal+split=1"]["promise_kept"] < mean["equal+split=2"]["promise_kept"] < mean["equal+split=3"]["promise_kept"]
    assert mean["equal"]["makespan"] < mean["equal+split=3"]["makespan"]
    assert mean["equal+split=1"]["latency_p99"] > 1000 > 100 > mean["equal"]["latency_p99"] > mean["equal"]["latency_p50"] > 0
    run = result["policies"][1]["runs"][0]
    (server,) = run["servers"]
    assert server["name"] == "serve" and server["requests"] == run["requests"] > 5000
    assert 0 < server["kept_seconds"] <= server["seconds"] <= 121 and 1 < server["cores"] < 4
    assert all(p["runs"][0]["servers"][0]["requests"] == server["requests"] for p in result["policies"])  # the same ones
    table = tide("sim", scenario(SERVED), "--seeds", 2).stdout
    assert "PROMISE KEPT" in table and "LATENCY P99 ms" in table and "equal+split=3" in table


def test_servers_give_the_same_every_time(tide, scenario):
    path = scenario(SERVED)
    runs = [tide("sim", path, "--policy", "none,equal", "--seeds", "2", "--parallel", n, "--json", "--check").stdout for n in (1, 2)]
    assert runs[0] == runs[1]
    seeds = json.loads(runs[0])["policies"][1]["runs"]
    assert seeds[0]["requests"] != seeds[1]["requests"]


def test_requests_come_from_lists_files_and_counts(tide, scenario, tmp_path):
    scenario("arrival\n0\n0.5s\n1\n", "a.csv"), scenario("arrival,demand\n0,10ms\n250ms,20ms\n", "b.csv"), scenario([0, "100ms", 2.5], "c.json")
    listed = {"at": [0, 0.2, "300ms"]}, {"file": "a.csv"}, {"file": "c.json"}
    for requests in listed:
        served = {"machine": {"cores": 2}, "servers": [{"demand": "100ms", "speedup": 1, "requests": requests}]}
        run = sim_json(tide, scenario(served), "--policy", "equal")["policies"][0]["runs"][0]
        assert run["requests"] == 3 and run["latency_p50"] == pytest.approx(50, rel=0.01) and run["promise_kept"] is None
        assert run["makespan"] is None and run["unfinished"] == 0
    served["servers"][0] = {"speedup": 1, "requests": {"file": "b.csv"}}
    run = sim_json(tide, scenario(served), "--policy", "equal", "--csv", tmp_path / "jobs.csv")["policies"][0]["runs"][0]
    assert (run["requests"], run["latency_p99"]) == (2, pytest.approx(10, rel=0.01))
    with open(tmp_path / "jobs.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["name"], row["requests"], row["seconds"]) == ("server-1", "2", "0") and float(row["p50_ms"]) == pytest.approx(5, rel=0.01)
    served["servers"][0] = {"speedup": 1, "demand": "1ms", "requests": {"counts": [5, 0, 7], "every": "10s"}}
    runs = sim_json(tide, scenario(served), "--policy", "equal", "--seeds", 2)["policies"][0]["runs"]
    assert [run["requests"] for run in runs] == [12, 12] and runs[0] != runs[1]


def test_the_example_shows_what_the_document_says(tide):
    """docs/promises.md: the promise is kept beside more work than any static split that keeps it leaves."""
    result = sim_json(tide, ROOT / "examples/scenarios/server-beside-batch.json", "--seeds", 2)
    rows = {p["policy"]: {name: p["metrics"][name]["mean"] for name in ("promise_kept", "makespan")} for p in result["policies"]}
    assert rows["equal+idle"]["promise_kept"] > 99 and rows["equal"]["promise_kept"] > 99 > rows["equal+split=4"]["promise_kept"]
    fastest = min(row["makespan"] for policy, row in rows.items() if "split" in policy and row["promise_kept"] >= 99)
    assert rows["equal"]["makespan"] < 0.9 * fastest and rows["equal+idle"]["makespan"] < 0.75 * fastest
    assert rows["none"]["promise_kept"] < 95


def test_equal_speed_ends_sooner_than_equal_numbers(tide):
    """docs/policies.md, of fast and slow cores."""
    result = sim_json(tide, ROOT / "examples/scenarios/hybrid-cores.json", "--policy", "equal,equal/hybrid=count", "--seeds", 3, "--check")
    rows = {p["policy"]: p["metrics"]["turnaround"]["mean"] for p in result["policies"]}
    assert rows["equal"] < 0.97 * rows["equal/hybrid=count"]


def test_a_recorded_server_keeps_its_promise_more_often_than_any_static_split(tide):
    """Requests of a real server, from its file: docs/promises.md."""
    folder = ROOT / "examples/scenarios"
    policies = ["none", "equal", *(f"equal+split={cores}" for cores in (1, 2, 3))]
    result = sim_json(tide, folder / "recorded-arrivals.json", "--policy", ",".join(policies))
    (*rows,) = (metrics(result, policy) for policy in policies)
    lines = (folder / "recorded-arrivals.csv").read_text().splitlines()
    assert {row["requests"]["mean"] for row in rows} == {len(lines) - 1}
    kept = [row["promise_kept"]["mean"] for row in rows]
    assert kept[1] > 85 and kept[1] > max(kept[0], *kept[2:])


SERVER = {"demand": "1ms", "speedup": 1, "requests": {"at": [0]}}


@pytest.mark.parametrize("server, says", [
    ({"slo": "50ms"}, "servers[0].slo: '50ms' is no promise (p99=50ms)"),
    ({"slo": "p99=2h"}, "servers[0].slo: 2h is out of range"),
    ({"work": 3}, "servers[0].work: is not for servers"),
    ({"requests": None}, "servers[0].requests: must be an object"),
    ({"requests": {"rate": 3}}, "until is missing"),
    ({"requests": {"rate": 3, "at": [1], "until": 4}}, "needs one of rate, at, counts and file"),
    ({"requests": {"at": [1, 0]}}, "at[1]: is before the one in front of it"),
    ({"requests": {"at": [1], "every": 2}}, "every goes with counts"),
    ({"requests": {"counts": [0]}}, "no request comes"),
    ({"requests": {"rate": 1e6, "until": "1d"}}, "are more than 1000000"),
    ({"requests": {"rate": 2e4, "until": "1min"}}, "more than 1000000 requests"),
    ({"requests": {"rate": 0.001, "until": "1ms"}}, "no request comes"),
    ({"requests": {"rate": 1, "until": 9, "bursts": {"rate": 2, "every": 1, "for": 1}}}, "bursts: for must be less than every"),
    ({"requests": {"rate": 1, "until": 9, "sweep": {"to": 2}}}, "every is missing"),
    ({"requests": {"file": "x.txt"}}, "must end with .csv or .json"),
    ({"requests": {"file": "none.csv"}}, "none.csv: No such file"),
    ({"requests": {"file": "bad.csv"}}, "bad.csv:3: arrival: 'x' is no duration"),
    ({"requests": {"file": "cells.csv"}}, "cells.csv:2: has more cells"),
    ({"requests": {"file": "bad.json"}}, "bad.json: [1]: is before"),
    ({"workers": 0}, "workers: 0 is out of range"),
    ({"processes": 0}, "processes: 0 is out of range"),
    ({"processes": 2, "workers": 3}, "workers: is not for servers of several processes"),
    ({"demand": None}, "demand: must be a number"),
    ({"promise": 1}, "promise: is not a key here"),
], ids=range(24))
def test_bad_servers_name_file_line_and_field(tide, scenario, server, says):
    scenario("arrival\n1\nx\n", "bad.csv"), scenario("arrival\n1,2\n", "cells.csv"), scenario("[2, 1]", "bad.json")
    done = tide("sim", scenario({"machine": {"cores": 2}, "servers": [{**SERVER, **server}]}), "--policy", "equal")
    assert done.returncode == 2 and says in done.stderr and done.stdout == "", done


# ---- the documents ----

def blocks(page):
    return re.findall(r"^```\n(.*?)^```$", (ROOT / "man" / page).read_text(), re.S | re.M)


def test_the_manuals_scenario_runs(tide, scenario):
    first = next(b for b in blocks("tide-sim.1.scd") if b.startswith("{\n"))
    result = sim_json(tide, scenario(first))
    assert result["jobs"] == len(json.loads(first)["jobs"])
    for policy in result["policies"]:
        assert policy["metrics"]["makespan"]["mean"] > 0


def test_the_manuals_workload_and_table_run(tide, scenario):
    workload = next(b for b in blocks("tide-sim.1.scd") if b.startswith('"workload"'))
    result = sim_json(tide, scenario('{"machine": {"cores": 16}, ' + workload + "}"), "--seeds", 2)
    assert 0 < result["jobs"] <= 200
    table = next(b for b in blocks("tide-sim.1.scd") if b.startswith("arrival,"))
    scenario(table, "jobs.csv")
    result = sim_json(tide, scenario({"machine": {"cores": 8}, "trace": {"file": "jobs.csv"}}))
    assert result["jobs"] == 2


@pytest.mark.parametrize("policy", ["equal", "weighted"])
def test_users_share_before_their_jobs_do(tide, scenario, tmp_path, policy):
    """As under tided (test_tided_users.py): who submits three jobs has no more than who submits one."""
    def turnarounds(*users):
        jobs = [{**JOB, "name": f"job{n}", "work": 8, "user": user} for n, user in enumerate(users)]
        sim_json(tide, scenario({"machine": {"cores": 8}, "jobs": jobs}), "--policy", policy, "--check", "--csv",
                 tmp_path / "jobs.csv")
        with open(tmp_path / "jobs.csv") as file:
            return [float(row["turnaround"]) for row in csv.DictReader(file)]
    one, *three = turnarounds(1, 2, 2, 2)
    assert one == 2  # on four cores
    assert all(t > 2 for t in three)
    assert turnarounds(1, 1, 1, 1) == turnarounds(2, 2, 2, 2) == [4, 4, 4, 4]


def test_every_field_is_in_the_manual(tide, scenario):
    page = (ROOT / "man/tide-sim.1.scd").read_text()
    fields = re.findall(r'\[JOB_KEY_\w+\] = \{"(\w+)"', (ROOT / "src/sim/input/jobspec.c").read_text())
    assert len(fields) > 20
    own = re.findall(r'(?:node_member|need_value|node_optional)\(&?\w+, "(\w+)"', (ROOT / "src/sim/input/requests.c").read_text())
    assert {"requests", "slo", "demand", "workers", "processes", "bursts", "sweep"} <= set(own)
    for field in [*fields, *own, *sim_json(tide, scenario(FIXED))["metrics"]]:
        assert re.search(rf"\b_?{field.replace('_', '[_ ]')}_?\b", page), field


def test_every_example_runs_by_default(tide):
    assert len(EXAMPLES) >= 4
    for path in EXAMPLES:
        scenario = json.loads(path.read_text())
        generates = "workload" in scenario or any("file" not in server["requests"] for server in scenario.get("servers", []))
        assert sim_json(tide, path, *(["--seeds", "2"] if generates else []))["jobs"] > 0


# ---- what is wrong ----

JOB = {"work": 1, "speedup": 1}


@pytest.mark.parametrize("content, says", [
    ("", "s.json:1: "),
    ('{\n"machine": {"cores": 8,}\n}', "s.json:2: "),
    ('{\n"machine": {"cores": 8},\n"jobs": [{"work": 1,\n"speedup": 1, "requst": 4}]}',
     "s.json:4: jobs[0].requst: is not a key here: did you mean 'request'?"),
    ({"machine": {"cores": 7, "numa": 2}, "jobs": [JOB]}, "s.json:1: machine: 7 cores cannot be divided"),
    ({"machine": {"cores": 7}, "jobs": [dict(JOB, min=3, max=2)]}, "jobs[0]: min: 3 is more"),
    ({"machine": {"cores": 7}, "jobs": [dict(JOB, name="\x1b[31m")]}, "control character"),
    ({"machine": {"cores": 7}, "trace": {"file": "none.csv"}}, "none.csv: No such file"),
    ({"machine": {"cores": 7}, "trace": {"file": "bad.csv"}},
     "bad.csv:3: work: 'one' is no duration"),
    ({"machine": {"cores": 7}, "trace": {"file": "bad.swf"}},
     "bad.swf:2: field 4, run time: 'x' is no duration"),
    ({"machine": {"cores": 8}, "workload": {"jobs": 50, "arrivals": {"gap": 1}, "mix": [
        dict(JOB, min=4, max={"uniform": [4, 8]}, request={"uniform": [4, 8]})]}},
     "s.json: workload.mix[0]: job "),
    ({"machine": {"cores": 8}, "workload": {"until": 50, "arrivals": {"gap": 0}, "mix": [JOB]}},
     "s.json:1: workload.arrivals.gap: is 0: workload.jobs must then say how many jobs arrive"),
    ({"machine": {"cores": 8}, "speedups": {"x": {"table": [1, 1e13]}}, "jobs": [JOB]},
     "speedups.x.table[1]: must be a speed, above 0 and below 1e12"),
], ids=range(12))
def test_bad_scenarios_name_file_line_and_field(tide, scenario, tmp_path, content, says):
    scenario("arrival,work,speedup\n0,1,1\n1,one,1\n", "bad.csv")
    scenario("; comment\n1 0 -1 x 1 -1 -1 1 1 1 1 1 1 1 1 1 1 1\n", "bad.swf")
    done = tide("sim", scenario(content, "s.json"), "--seeds", "1", "--policy", "none")
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert done.stderr.startswith("tide: sim: ")
    assert says in done.stderr
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize("args, says", [
    ([], "an argument is missing"), (["a", "b"], "one argument too many"),
    (["{}", "--seeds", "0"], "'0' is no number of seeds"),
    (["{}", "--seeds", "5-3"], "'5-3'"), (["{}", "--seeds", "1-x"], "'1-x'"),
    (["{}", "--seeds", "-1"], "'-1'"), (["{}", "--seeds", "99999999999999999999"], "seeds"),
    (["{}", "--seeds", "10001"], "'10001'"),
    (["{}", "--jobs", "0"], "--jobs: 0 is outside"),
    (["{}", "--placement", "here"], "--placement: 'here' is none of"),
    (["{}", "--policy", ""], '""'), (["{}", "--policy", "equl"], "did you mean equal?"),
    (["{}", "--policy", "equal,"], '""'), (["{}", "--policy", "equal+split=0"], "0 is out of range"),
    (["{}", "--policy", "none+split=2"], "without a policy"), (["{}", "--policy", "fcfs/nonsense"], '"nonsense"'),
    (["{}", "--frobnicate"], "--frobnicate"),
], ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_wrong_command_lines_exit_2(tide, scenario, args, says):
    path = scenario(FIXED)
    assert_error(tide("sim", *(path if a == "{}" else a for a in args)), 2, "tide: sim: ", says,
                 "help sim")


def test_a_directory_is_no_trace(tide, scenario):
    done = tide("sim", scenario({"machine": {"cores": 7}, "trace": {"file": ".", "format": "swf"}}))
    assert done.returncode == 1
    assert "/.:1: cannot be read: Is a directory" in done.stderr


def test_a_scenario_that_is_not_there_is_named(tide):
    assert_error(tide("sim", "/nowhere.json"), 2, "tide: sim: /nowhere.json: No such file",
                 "tide-sim(1)")


def test_jobs_that_can_never_run_are_counted_and_said(tide, scenario, tmp_path):
    big = dict(FIXED, jobs=[dict(JOB, request=9, malleability="rigid"), JOB])
    done = tide("sim", scenario(big), "--policy", "equal,fcfs/strict", "--json", "--html",
                tmp_path / "r.html")
    result = json.loads(done.stdout)
    assert metrics(result, "fcfs/strict")["unfinished"]["mean"] == 1
    assert done.returncode == 6
    assert "fcfs/strict: in 1 run, 1 job can never run on this machine" in done.stderr
    assert "equal:" not in done.stderr
    # who leaves the long job out is no better for it
    assert metrics(result, "fcfs/strict")["makespan"]["mean"] < metrics(
        result, "equal")["makespan"]["mean"]
    assert next(p for p in result["policies"] if p["policy"] == "fcfs/strict")["gain"] == {}
    rows = re.findall(r"<tr><td>(.*?)</td>(.*?)</tr>", (tmp_path / "r.html").read_text())
    assert "best" in dict(rows[:2])["equal"] and "best" not in dict(rows[:2])["fcfs/strict"]


def test_a_scenario_without_a_job_is_refused(tide, scenario):
    scenario("arrival,work,speedup\n", "t.csv")
    scenario("; nobody ran\n1 0 0 -1 -1 -1 -1 4 20 -1 5 1 1 1 1 1 -1 -1\n", "t.swf")
    late = {"until": "1h", "arrivals": {"start": "2h", "gap": 1}, "mix": [JOB]}
    for none, says in (({"trace": {"file": "t.csv"}}, "t.csv\n"),
                       ({"trace": {"file": "t.swf"}}, "t.swf\n"),
                       ({"workload": late}, "workload.until\n")):
        done = tide("sim", scenario(dict({"machine": {"cores": 7}, "defaults": {"speedup": 1}},
                                         **none)))
        assert (done.returncode, done.stdout) == (2, "")
        assert "there are no jobs: " in done.stderr and says.strip() in done.stderr.splitlines()[0]


def test_without_its_program_sim_says_so(tide, build_dir, tmp_path):
    alone = tmp_path / "tide"
    alone.write_bytes((build_dir / "tide").read_bytes())
    alone.chmod(0o755)
    done = subprocess.run([alone, "sim", "x"], capture_output=True, text=True, timeout=GUARD_S)
    assert done.returncode == 1
    assert done.stderr.startswith(f"tide: sim: cannot run {pathlib.Path(alone)}-sim: No such file")
