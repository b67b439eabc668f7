# SPDX-License-Identifier: Apache-2.0
"""Rows of bench/results say with which programs they were measured; nothing is measured here."""
import argparse
import importlib.util
import itertools
import json
import math
import re
import shutil
import statistics
import subprocess
import sys
import types

import pytest

from conftest import ROOT

sys.path.insert(0, str(ROOT / "bench"))

import energy_model
import harness
import stamp


def by_path(name):
    """Loaded by its path: others have modules of the same name, whose tests may run in this process."""
    spec = importlib.util.spec_from_file_location(f"bench_{name}", ROOT / f"bench/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


report = by_path("report")


@pytest.fixture
def build(tmp_path, monkeypatch):
    """A build tree and a folder of results of our own; programs and object files are copies of a real program."""
    launch, main = objects = ("tide.p/src_cli_launch_launch.c.o", "tide.p/src_cli_main.c.o")
    (tmp_path / "build.ninja").write_text(f"rule link\n  command = false\nbuild tide: link {launch} {main}\n")
    for folder in ("tide.p", "bench"):
        (tmp_path / folder).mkdir()
    for name in ("tide", *stamp.NODE[1:], *objects):
        shutil.copy("/bin/true", tmp_path / name)
    shutil.copy("/bin/true", tmp_path / "bench/savedmodel_infer")
    monkeypatch.setattr(harness, "BUILD", tmp_path)
    monkeypatch.setattr(harness, "RESULTS", tmp_path / "results")
    stamp.hash_of.cache_clear()
    yield tmp_path
    stamp.hash_of.cache_clear()


def change(program):
    shutil.copy("/bin/false", program)
    stamp.hash_of.cache_clear()


def saved(name):
    return json.loads((harness.RESULTS / f"{name}.json").read_text())


def test_rows_that_stay_keep_the_stamp_of_their_own_measurement(build):
    harness.save("throughput-x", [{"model": "mlp", "value": 1}, {"model": "cnn", "value": 2}])
    first = saved("throughput-x")["rows"]
    change(build / "tided")
    harness.save("throughput-x", [{"model": "cnn", "value": 3}])
    kept, new = saved("throughput-x")["rows"]
    assert kept == first[0]
    assert new["value"] == 3 and new["measured"]["hash"] != kept["measured"]["hash"]
    assert "**stale**" in stamp.told(kept, build, "throughput-x")
    assert "**stale**" not in stamp.told(new, build, "throughput-x")


def test_a_row_made_of_runs_of_different_programs_is_stale(build):
    run = {"side": "static", "round": 1}
    harness.save("share-x", [{"side": "static"}], [run])
    change(build / "tided")
    runs = [*harness.saved_runs("share-x"), {"side": "elastic", "round": 1}]
    harness.save("share-x", [{"side": "static"}, {"side": "elastic"}], runs)
    static, elastic = saved("share-x")["rows"]
    assert static["measured"] == runs[0]["measured"]
    assert "**stale**" in stamp.told(static, build, "share-x")
    assert "**stale**" not in stamp.told(elastic, build, "share-x")
    harness.save("share-x", [{"side": "static"}], [*harness.saved_runs("share-x"), {**run, "round": 2}])
    assert "**stale**" in stamp.told(saved("share-x")["rows"][0], build, "share-x")


def test_of_tide_counts_what_starts_a_job(build):
    """Its other commands make no row stale."""
    harness.save("share-x", [{"side": "static"}])
    row = saved("share-x")["rows"][0]
    change(build / "tide.p/src_cli_main.c.o")
    assert "**stale**" not in stamp.told(row, build, "share-x")
    change(build / "tide.p/src_cli_launch_launch.c.o")
    assert "**stale**" in stamp.told(row, build, "share-x")


def test_of_a_library_the_files_count_that_a_program_uses(tmp_path):
    for name, code in (("main", "int used(void); int main(void) { return used(); }"), ("used", "int used(void) { return 1; }"),
                       ("unused", "int unused(void) { return 2; }")):
        folder = tmp_path / ("tide.p" if name == "main" else "lib/libx.a.p")
        folder.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{name}.c").write_text(code)
        subprocess.run(["gcc", "-c", tmp_path / f"{name}.c", "-o", folder / f"{name}.c.o"], check=True)
    subprocess.run(["ar", "rc", "lib/libx.a", "lib/libx.a.p/used.c.o", "lib/libx.a.p/unused.c.o"], cwd=tmp_path, check=True)
    subprocess.run(["gcc", "-o", "tide", "tide.p/main.c.o", "lib/libx.a"], cwd=tmp_path, check=True)
    (tmp_path / "build.ninja").write_text("rule link\n  command = false\nbuild lib/libx.a: link lib/libx.a.p/used.c.o lib/libx.a.p/unused.c.o\n"
                                          "build tide: link tide.p/main.c.o lib/libx.a\n")
    assert stamp.objects_of(tmp_path, "tide") == ["lib/libx.a.p/used.c.o", "tide.p/main.c.o"]


def test_each_part_of_a_program_has_object_files(build_dir):
    for part, (program, _) in stamp.PARTS.items():
        files = stamp.files_of(build_dir, part)
        assert len(files) > 20 and all(path.exists() for path in files), part
        assert len(files) < len(stamp.objects_of(build_dir, program)), part


def test_row_without_a_stamp_is_stale(build):
    assert "**stale**" in stamp.told({"model": "mlp"}, build, "share-x")


def test_hash_knows_programs_by_what_they_do(build, tmp_path):
    """Not by their debugging symbols and build id; another instruction counts."""
    def hash_with(code, *options):
        (tmp_path / "a.c").write_text(code)
        subprocess.run(["gcc", "-O2", *options, "-o", tmp_path / "tide", tmp_path / "a.c"], check=True)
        stamp.hash_of.cache_clear()
        return stamp.hash_of(tmp_path, ("tide",))

    plain = hash_with("int main(void) { return 1; }")
    assert plain == hash_with("int main(void) { return 1; }", "-g", "-Wl,--build-id=sha1")
    assert plain != hash_with("int main(void) { return 2; }")


def test_tables_name_commit_and_day_of_each_row(build):
    harness.save("share-x", [{"what": "a", "p50": 1}])
    lines = report.value_table(saved("share-x"))
    assert lines[0] == "| what | p50 | measured |"
    assert re.fullmatch(r"\| a \| 1 \| \S+, \d{4}-\d\d-\d\d \|", lines[2])


def test_a_result_is_fresh_while_the_programs_are_those_that_it_measured(build, tmp_path):
    assert not stamp.is_fresh(build, "share-x", tmp_path / "nothing.json")
    harness.save("share-x", [{"what": "a", "p50": 1}, {"what": "b", "p50": 1}])
    path = harness.RESULTS / "share-x.json"
    assert stamp.is_fresh(build, "share-x", path)
    result = json.loads(path.read_text())
    result["rows"][1]["measured"]["hash"] = "another"
    path.write_text(json.dumps(result))
    assert not stamp.is_fresh(build, "share-x", path)


def test_rows_of_energy_that_are_unknown_are_refused_and_the_known_ones_named():
    done = subprocess.run([ROOT / "bench/energy.sh", "cap2"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    rows = done.stderr.split(": ")[-1].split()
    assert "no row 'cap2'" in done.stderr and {"division", "cap", "work"} <= set(rows)


# Beginning of a result's name -> the target of make that writes it; all others are written by `make bench` as root.
TARGETS = {"runtimes-": "bench-runtimes", "openmp": "bench-runtimes", "demo": "bench-runtimes", "gain-curves": "bench-gain", "gain-mixes": "bench-gain", "gain-predicted": "bench-gain"}
# Results for which `make bench` has to be told something.
ASKED_FOR = {"energy-model": "TIDE_ENERGY_DATA", "paired": "TIDE_OLD_BUILD"}


def scripts_of(target):
    """The scripts of bench/ that a target of make runs, those included that its shell scripts run."""
    recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M)[1]
    found, texts = set(), [recipe]
    while texts:
        for script in set(re.findall(r"\bbench/\w+\.(?:py|sh)\b", texts.pop())) - found:
            found.add(script)
            if script.endswith(".sh"):
                texts.append(re.sub(r"(?:^|\s)#.*", "", (ROOT / script).read_text(), flags=re.M))
    return found


def writers_of(result):
    """The scripts of bench/ that save a result of this name; where names have parts in braces, the one with the longest rest."""
    fits = {}
    for script in (ROOT / "bench").glob("*.py"):
        text = script.read_text()
        for save in re.findall(r'(?:save\(|name, options = |(?i:name) = )f?"([\w{}.-]+)"', text) + re.findall(r'name = .* else "([\w-]+)"', text):
            literal = re.split(r"\{[^}]*\}", save)
            if re.fullmatch(".+".join(map(re.escape, literal)), result):
                fits.setdefault(len("".join(literal)), set()).add(f"bench/{script.name}")
    return fits[max(fits)] if fits else set()


@pytest.mark.parametrize("path", sorted((ROOT / "bench/results").glob("*.json")), ids=lambda path: path.stem)
def test_every_result_is_known_and_written_by_the_target_of_make_that_the_documents_name(path):
    assert stamp.programs(path.stem)
    writers = writers_of(path.stem)
    target = next((target for name, target in TARGETS.items() if path.stem.startswith(name)), "bench")
    assert writers & scripts_of(target), (target, writers)
    assert target == "bench" or not writers & scripts_of("bench"), (target, writers)
    if target != "bench" or path.stem in ASKED_FOR:
        method = (ROOT / "docs/benchmarks.md").read_text().split("## Method")[1].split("\n## ")[0]
        for text in (method, (ROOT / "HACKING.md").read_text()):
            assert f"`{path.stem}`" in text and f"`make {target}`" in text and ASKED_FOR.get(path.stem, "") in text


def test_make_bench_asks_for_no_more_than_it_is_said_to():
    """Lines of its shell scripts that run a program only if somebody has set a variable."""
    shells = "".join((ROOT / script).read_text() for script in sorted(scripts_of("bench")) if script.endswith(".sh"))
    asked = re.findall(r"\$\{(TIDE_\w+):-\}.*\|\| \$py (bench/\w+\.py)", shells)
    assert asked == [(ASKED_FOR[name], writer) for name in ASKED_FOR for writer in writers_of(name)]


def rows_of(name):
    return {row["what"]: row for row in json.loads((ROOT / f"bench/results/{name}.json").read_text())["rows"]}


def test_documents_quote_the_rows_that_were_measured():
    """A measurement that is made again changes the documents, too."""
    elastic = (ROOT / "docs/elastic-tensorflow.md").read_text()
    pauses = [row for row in rows_of("elastic-pause").values() if row["unit"] == "ms"]
    assert len(pauses) == 7
    for row in pauses:
        assert f"| {row['what']} | {row['n']} | {row['median']} | {row['p95']} | {row['most']} |" in elastic
    sentence = (ROOT / "docs/containers.md").read_text().split("A resize takes")[1].split("([measurements]")[0]
    said = re.findall(r"([\d.]+) ms", sentence)
    rows = rows_of("containers")
    assert [float(ms) for ms in said] == [round(rows[what]["p50"], 1) for what in (
        "resize, exclusive, acknowledged at once: command to cores in place",
        "resize, exclusive, real TensorFlow (mlp): command to cores and threads in place",
        "bare update of a cpuset by the engine")]


def ratios_of(name):
    """{label: median ratio and its interval}, as the table of this result has them."""
    rows = json.loads((ROOT / f"bench/results/{name}.json").read_text())["rows"]
    return {row["model"]: tuple(harness.ratio_stats(row["ratios"])[key] for key in ("ratio", "low", "high")) for row in rows}


def near(said, value):
    """Whether a document's figure is this one, however it was rounded from the table's."""
    return abs(float(said) - value) <= 0.56 * 10.0 ** -len(said.partition(".")[2])


def quotes(text, pattern, *values):
    """Whether the text has the pattern, and each of its figures (# in the pattern) is near its value."""
    found = re.search(re.escape(pattern).replace(r"\#", r"(\d+(?:\.\d+)?)"), text)
    return found and len(found.groups()) == len(values) and all(map(near, found.groups(), values))


def text_of(document):
    return " ".join((ROOT / document).read_text().split())


def test_manuals_and_decisions_quote_the_rows_that_were_measured():
    said = text_of("man/tide-run.1.scd")
    for model, figures in ratios_of("share-4-shared-no-slices").items():
        name = model if model == "attention" else model.upper()
        assert quotes(said, f"{name} ×# (# to #)", *figures), (model, figures)
    cnn = ratios_of("share-4-shared-stock")["cnn"]
    assert quotes(text_of("docs/comparison.md"), "four convolution nets on two cores reach ×# (# … #)", *cnn), cnn
    engine = rows_of("containers")["bare update of a cpuset by the engine"]
    assert quotes(text_of("docs/design/13-engines.md"), "takes # ms in the engine (median of #; p99 #)",
                  engine["p50"], engine["n"], engine["p99"]), engine
    calls = [rows_of("micro")[what]["p50"] for what in (
        "hooked call between two closures", "a call of a stock function, for comparison", "hooked call around a worker's sleep")]
    gate = text_of("docs/design/01-gate.md")
    assert quotes(gate, "# ns between two closures, where an empty call takes #; # ns around a worker's sleep", *calls), calls
    longest = max(row["longest closure"] for row in json.loads((ROOT / "bench/results/latency.json").read_text())["rows"]
                  if row["model"] == "cnn" and not row["other jobs"])
    assert quotes(gate, "# ms were measured for a convolution alone", longest), longest


def summary():
    """Rows of the tables that open docs/benchmarks.md."""
    return [line for line in (ROOT / "docs/benchmarks.md").read_text().split("## Method")[0].splitlines() if line.startswith("| ")]


RATIOS = [path for name in ("share-", "throughput-", "gain.", "runtimes-") for path in sorted((ROOT / "bench/results").glob(f"{name}*json"))]


@pytest.mark.parametrize("path", RATIOS, ids=lambda path: path.stem)
def test_each_ratio_has_a_row_with_its_interval(path):
    """Nothing that was measured is left out of what a reader sees first."""
    rows = ratios_of(path.stem)
    assert rows
    named = path.stem.startswith(("share-", "throughput-"))  # the others' rows say in words what ran

    def tells(line, model, ratio, *interval):
        return ((not named or model in line.lower()) and any(near(said, ratio) for said in re.findall(r"\d+\.\d+", line))
                and any(all(map(near, ends, interval)) for ends in re.findall(r"(\d+\.\d+) … (\d+\.\d+)", line)))
    for model, figures in rows.items():
        assert any(tells(line, model, *figures) for line in summary()), (model, figures)


def test_goals_of_containers_that_queue_have_a_row():
    for row in json.loads((ROOT / "bench/results/container-queue.json").read_text())["rows"]:
        for what in ("makespan", "mean turnaround"):
            goal = row[f"{what} goal"]
            cells = goal and f"| {goal} | {row[f'{what}: threadtide ×']} | {row[f'{what} 95 %']}, "
            assert not goal or any(cells in line for line in summary()), cells


def test_a_goal_of_the_model_of_power_is_missed_by_what_rounding_would_forgive():
    found = [(0.0242, None)] * 11
    assert energy_model.spec_row("own 0, 10, 50, 100 %", found, 0.076)["verdict"] == "missed"
    assert energy_model.spec_row("own 0, 10, 50, 100 %", [(0.024, None)] * 11, 0.0762)["verdict"] == "missed"
    assert energy_model.spec_row("own 0, 10, 50, 100 %", [(0.0239, None)] * 11, 0.076)["verdict"] == "met"


def test_verdicts_of_the_model_of_power_are_those_of_its_figures():
    names = {"MAE": "MAE W", "mean": "error mean", "p90": "error p90", "covered": "covered"}
    for row in rows_of("energy-model").values():
        goals = re.findall(r"(\w+) (≤|≥) ([\d.]+)", row.get("goal", ""))
        good = all(row[names[name]] <= float(goal) if sign == "≤" else row[names[name]] >= float(goal) for name, sign, goal in goals)
        assert not goals or row["verdict"] == ("met" if good else "missed"), row


def figures_of(name):
    return json.loads((ROOT / f"bench/results/{name}.json").read_text())["rows"]


def ends(values):
    return min(values), max(values)


def decisions():
    by_jobs = {jobs: [row["p50_us"] for row in figures_of("policy-decide") if row["jobs"] == jobs] for jobs in (128, 10_000)}
    return *ends(by_jobs[128]), *(us / 1000 for us in ends(by_jobs[10_000]))


def simulated(*keys):
    rows = {(row["policy"], row["load_percent"]): row for row in figures_of("sim-speed")}
    return [rows["response", load][key] for load in (80, 95) for key in keys]


def lags(verb):
    rows = [row for row in figures_of("latency") if row["command"].startswith(verb)]
    return *ends([row["lag p50"] for row in rows]), *ends([row["lag p99"] for row in rows]), len(rows), rows[0]["n"]


def micro(*whats):
    rows = rows_of("micro")
    return [rows[what]["p50"] for what in whats]


@pytest.mark.parametrize("pattern, values", [
    ("| 100 µs / 10 ms | #–# µs / #–# ms |", decisions),
    ("| 100,000 jobs simulated, 80 % / 95 % load | 20 s | # / # s | # … #, # … #, 6 seeds each |",
     lambda: [*simulated("seconds"), *simulated("low_s", "high_s")]),
    ("| shrink: beyond the running closure, p50 / p99 | 0.2 / 10 ms | #–# / #–# ms | # rows of # |", lambda: lags("shrink")),
    ("| grow: p50 / p99 | 0.2 / 5 ms | #–# / #–# ms | # rows of # |", lambda: lags("grow")),
    ("(a plain call: # ns) | 6 / 20 ns | # / # ns |", lambda: micro(
        "a call of a stock function, for comparison", "hooked call between two closures", "hooked call around a worker's sleep")),
    ("(a bare `send()` that wakes: #) | 5 µs | # / # µs |", lambda: micro(
        "… a bare send() that wakes a sleeping process", "asynchronous set, in rows of 8", "asynchronous set, alone: wakes the daemon")),
    ("| lend, reclaim: until the thread runs | 200 µs | #, # µs |", lambda: micro(
        "lend: until the borrower's woken thread runs", "reclaim: until the owner's woken thread runs")),
    ("that starts the daemon | 5 / 30 / 30 ms | # / # / # ms", lambda: micro(
        "process: tide set, acknowledged", "tide run -- true, daemon running", "tide run -- true, starting the daemon")),
    ("| tided with 50 jobs, 10 heartbeats/s each | 2 %, 20 MiB | # % of a core", lambda: micro(
        "tided, 50 jobs, 10 heartbeats/s each: CPU, by 5 s")),
], ids=["decisions", "simulator", "shrink", "grow", "hooks", "set", "loans", "commands", "daemon"])
def test_the_summary_quotes_what_was_measured(pattern, values):
    assert quotes(" ".join(summary()), pattern, *values()), (pattern, values())


@pytest.mark.parametrize("name, attention", [("README.md", "attention"), ("README.es.md", "atención")])
def test_the_front_page_quotes_what_was_measured(name, attention):
    text, four = (ROOT / name).read_text(), ratios_of("share-4-shared-stock")
    assert quotes(text, f"| MLP ×#, LSTM ×#, {attention} ×#, CNN ×# |", *[four[model][0] for model in ("mlp", "lstm", "attention", "cnn")])


def test_the_rest_of_what_was_compared_with_an_older_commit_is_told_apart():
    """The summary's last row of `paired` holds all rows that have none of their own."""
    own = ("hooked call", "process: tide set", "process: tide help", "tide_get", "tided, 50 jobs", "a call of a stock", "… a bare send()")
    rest = [row for row in figures_of("paired") if not row["what"].startswith(own) and "new / old" in row]
    found = [row for row in rest if row["verdict"] != "not told apart"]
    assert quotes(" ".join(summary()), "lag of resizes | 1.0 | # to # |", *ends([float(row["new / old"]) for row in rest]))
    line = next(line for line in summary() if "lag of resizes" in line)
    assert all(row["95 %"] in line for row in found) and bool(found) == ("1 inside each but" in line), found


# ---- how figures are made ----

def test_the_interval_of_a_median_is_the_narrowest_that_holds_it_often_enough():
    for n in range(6, 60):
        found = harness.ratio_stats(list(range(1, n + 1)))

        def outside(k):
            """How often the median lies beyond the k-th smallest or largest of n."""
            return 2 * sum(math.comb(n, i) for i in range(k)) / 2 ** n
        k = found["low"]
        assert found["high"] == n + 1 - k and outside(k) <= 0.05 < outside(k + 1), n
    assert harness.ratio_stats([1, 2, 3, 4, 5])["low"] == 0  # five cannot tell


@pytest.mark.parametrize("n, t", [(2, 12.706), (5, 2.776), (10, 2.262), (13, 2.179), (17, 2.120), (23, 2.093), (500, 1.980)])
def test_the_interval_of_a_mean_is_students(n, t):
    """Where no quantile is noted, that of fewer values: never too narrow."""
    values = [i % 7 for i in range(n)]
    assert harness.half_width(values) == pytest.approx(t * statistics.stdev(values) / math.sqrt(n))
    assert harness.half_width([1]) == math.inf


def test_steps_before_a_slice_are_not_of_it():
    leads, slices = [(0, 3), (20, 23)], [(3, 7), (23, 27)]
    steps = [at + 0.5 for at in (*range(7), *range(20, 27), 40)]
    assert harness.active_progress(steps, slices, (40, 41), leads) == pytest.approx([4, 4])


def test_a_side_runs_for_a_while_before_its_slice(monkeypatch):
    sent, clock = [], [100.0]
    monkeypatch.setattr(harness, "time", types.SimpleNamespace(
        monotonic=lambda: clock[0], sleep=lambda s: clock.__setitem__(0, clock[0] + s)))
    side = harness.Side("a", [types.SimpleNamespace(send=sent.append, name="a")])
    side.run(4, 3)
    side.run(4)
    assert (side.leads, side.slices) == ([(100, 103)], [(103, 107), (107, 111)])
    assert len(sent) == 4


def test_sides_of_gain_come_in_each_order_once_in_six_rounds():
    gain = by_path("gain")
    assert sorted(map(tuple, (gain.order(["a", "b", "c"], i) for i in range(6)))) == sorted(itertools.permutations("abc"))


@pytest.fixture
def pieces(monkeypatch):
    """Sleeps of a program that rests."""
    import resting
    found = []
    monkeypatch.setattr(resting, "time", types.SimpleNamespace(sleep=found.append))
    return found


def test_a_program_that_was_stopped_rests_on(pieces, monkeypatch):
    """It sleeps in short pieces: of what passes while it is stopped no more than one counts."""
    callbacks = types.SimpleNamespace(Callback=object)
    arguments = argparse.Namespace(times=None, warmup=0, steps=None, seconds=60, pause_after=2, pause=4)
    clock = by_path("models").step_clock(types.SimpleNamespace(callbacks=callbacks), arguments)
    for step in range(5):
        clock.on_train_batch_end(step, {"loss": 1.0})
    assert sum(pieces) == pytest.approx(8) and max(pieces) <= 0.25
    pieces.clear()
    work = by_path("runtime_work")
    monkeypatch.setitem(work.WORK, "gemm", lambda: (lambda: None, "none"))
    monkeypatch.setattr(sys, "argv", ["runtime_work.py", "--work", "gemm", "--steps", "5", "--pause-after", "2", "--pause", "3.6"])
    work.main()
    assert sum(pieces) == pytest.approx(7.2) and max(pieces) <= 0.25
