# SPDX-License-Identifier: Apache-2.0
"""The demo's own parts, with small programs in place of the trainings: no TensorFlow is loaded."""
import argparse
import itertools
import os
import pathlib
import re
import subprocess
import sys
import time
import xml.etree.ElementTree

import pytest

from daemon import GUARD_S

DEMO = pathlib.Path(__file__).resolve().parents[2] / "demo"
sys.path.insert(0, str(DEMO))

import mix
import picture
import reference
import report
import screen
import servers
import side

# A small train.py: three lines of progress, or a death on the way.
PROGRAM = """
import json, os, sys, time
log = open(sys.argv[sys.argv.index("--log") + 1], "w", buffering=1)
model = sys.argv[sys.argv.index("--model") + 1]
for step in (1, 2, 3):
    log.write(json.dumps({"step": step, "steps": 3}) + "\\n")
if model == "fails":
    sys.exit("no such digit")
if model == "lasts":
    time.sleep(600)
log.write(json.dumps({"step": 3, "steps": 3, "train_loss": 0.5, "test_loss": 0.6, "accuracy": 0.9}) + "\\n")
"""


@pytest.fixture
def run_mix(tmp_path, monkeypatch):
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    monkeypatch.setattr(mix, "TRAIN", program)
    monkeypatch.setattr(mix, "POLL_S", 0.02)

    def run(*specs):
        with open(tmp_path / "screen.txt", "w", encoding="utf-8") as out:
            runner = mix.Mix([mix.Spec(*spec) for spec in specs], tmp_path / "out")
            try:
                return runner.run(side.Stock(), "digits.npz", screen.Screen(2, out)), runner
            except BaseException as e:
                e.jobs = runner.jobs
                raise
    return run


def job(name, arrival, finish, threads, **more):
    return {"name": name, "arrival_s": arrival, "finished_s": finish, "steps": 100, "cpu_s": 10.0,
            "waited_s": 5.0, "threads": threads, "train_loss": 0.5, "test_loss": 0.6, "accuracy": 0.9, **more}


def test_a_mix_runs_to_its_end_and_tells_the_results(run_mix):
    summaries, _ = run_mix(("first", 0), ("second", 0.3))
    assert [s["name"] for s in summaries] == ["first", "second"]
    assert all(s["accuracy"] == 0.9 and s["steps"] == 3 for s in summaries)
    assert summaries[1]["arrival_s"] >= 0.3 and summaries[1]["finished_s"] > summaries[1]["arrival_s"]


def test_a_failed_training_ends_the_others_and_tells_its_words(run_mix):
    with pytest.raises(mix.JobFailed, match="(?s)fails ended with status 1.*no such digit") as failure:
        run_mix(("lasts", 0), ("fails", 0.1))
    for one in failure.value.jobs:
        with pytest.raises(ProcessLookupError):
            os.kill(one.process.pid, 0)


def test_an_interrupt_ends_only_the_demos_own_programs(run_mix, monkeypatch):
    with subprocess.Popen(["sleep", "600"]) as bystander:
        began = time.monotonic()

        def interrupt(self, now, jobs):
            if jobs[0].step == 3 or time.monotonic() - began > GUARD_S:
                raise KeyboardInterrupt
        monkeypatch.setattr(screen.Screen, "draw", interrupt)
        with pytest.raises(KeyboardInterrupt) as stopped:
            run_mix(("lasts", 0))
        assert stopped.value.jobs[0].step == 3
        with pytest.raises(ProcessLookupError):
            os.kill(stopped.value.jobs[0].process.pid, 0)
        assert bystander.poll() is None
        bystander.kill()


def test_the_mix_of_servers_runs_each_program_with_its_interpreter_and_tells_what_it_is(run_mix, tmp_path, monkeypatch):
    monkeypatch.setattr(servers, "TRAIN", mix.TRAIN)  # the same small program
    monkeypatch.setattr(servers, "PYTHON", sys.executable)
    with open(tmp_path / "screen.txt", "w", encoding="utf-8") as out:
        runner = servers.Mix([mix.Spec(s.name, 0) for s in servers.MIX], tmp_path / "out")
        stock = runner.run(servers.Stock(), "digits.npz", screen.Screen(2, out))
    assert [job["name"] for job in stock] == ["cnn", "transformer", "xgboost", "forest"]
    rows = servers.table([{"stock": stock, "threadtide": stock}])
    assert [row[1] for row in rows] == ["runtime", "TensorFlow", "PyTorch", "XGBoost", "scikit-learn"]
    assert [row[-1] for row in rows[1:]] == ["1.00x"] * 4
    assert pathlib.Path(servers.Job(servers.MIX[1], None, None).program()[1]) == servers.TRAIN


def test_a_round_in_which_other_programs_disturbed_one_pass_is_done_again(monkeypatch, capsys):
    import run
    disturbed = iter([0.4, 0.02, 0.03, 0.02, 0.5, 0.1, 0.6, 0.1])
    passes = []

    def run_pass(how, case, args, data, view, count):
        passes.append(how)
        return [how], next(disturbed)
    monkeypatch.setattr(run, "run_pass", run_pass)
    args = argparse.Namespace(rounds=2)
    makers = [lambda: "stock", lambda: "ours"]
    rounds, left_out = run.run_rounds(args, None, makers, None, None)
    assert passes == ["stock", "ours", "ours", "stock"] * 2
    assert [r["others"] for r in rounds] == [{"stock": 0.02, "threadtide": 0.03}, {"stock": 0.1, "threadtide": 0.6}]
    assert [r["others"]["stock"] for r in left_out] == [0.4, 0.5]
    said = capsys.readouterr().out
    assert "40% of the machine in the stock pass, 2% in Threadtide's: more in one pass" in said and "again more in one" in said


def test_what_other_programs_use_is_what_the_demos_do_not(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    assert mix.others_share((100, 10), (160, 30), 40, 4) == pytest.approx(36 / 80)
    assert mix.others_share((100, 10), (130, 40.5), 40, 0) == 0  # ticks are counted coarsely
    assert mix.others_share((0, 10), (0, 30), 40, 0) is None and mix.others_share((0, 0), (10, 30), 40, 0) is None
    before, time_before = mix.busy_s(), time.process_time()
    while time.process_time() - time_before < 0.3:
        pass
    after = mix.busy_s()
    assert after[1] - before[1] >= 0.3 and after[0] - before[0] >= 0.2


def test_gains_are_above_one_where_threadtide_is_better():
    stock = [job("cnn", 0, 100, []), job("mlp", 20, 60, [])]
    tide = [job("cnn", 0, 80, []), job("mlp", 20, 50, [])]
    gains = report.gains([{"stock": stock, "threadtide": tide}])
    assert gains["makespan"] == [pytest.approx(1.25)]
    assert gains["mean turnaround"] == [pytest.approx(70 / 55)]
    assert gains["total steps/s"] == [pytest.approx(1.25)]


def test_results_are_judged_by_the_spread_of_fixed_thread_counts():
    rows = [{"train_loss": loss, "accuracy": 0.9} for loss in (0.50, 0.51, 0.52, 0.53)]

    def judge(loss, accuracy=0.9):
        return reference.verdict(rows, {"train_loss": loss, "accuracy": accuracy})
    assert judge(0.515) == "within"
    assert judge(0.54) == "near"
    assert judge(0.70) == "OUTSIDE"
    assert judge(0.515, accuracy=0.8) == "OUTSIDE"
    same = [{"train_loss": 0.5, "accuracy": 0.9}] * 4
    assert reference.verdict(same, {"train_loss": 0.5, "accuracy": 0.9}) == "equal"
    assert reference.verdict(same, {"train_loss": 0.500001, "accuracy": 0.9}) == "OUTSIDE"


def test_the_picture_is_xml_and_hatches_exactly_the_surplus_threads():
    jobs = [job("a<b", 0, 30, [[2, 2], [10, 1], [25, 2]]), job("mlp", 8, 25, [[10, 2]])]
    svg = picture.draw([("stock & all", "done", jobs)], 2, "title", "subtitle")
    root = xml.etree.ElementTree.fromstring(svg)
    over = [e for e in root.iter() if e.get("class") == "over" and e.find("{*}title") is not None]
    assert [e.find("{*}title").text for e in over] == ["3 threads for 2 cores, 10.0 to 25.0 s"]
    assert picture.total(jobs) == [(2, 10, 2), (10, 25, 3), (25, 30, 2)]


def test_blocks_of_one_lane_do_not_overlap():
    one = job("cnn", 0, 30, [[2, 2], [10, 1], [12, 0], [15, 4]])
    spans = list(picture.spans(one))
    assert spans == [(2, 10, 2), (10, 12, 1), (15, 30, 4)]
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))


def test_without_a_build_the_demo_says_what_to_do(tmp_path):
    answer = subprocess.run([sys.executable, str(DEMO / "run.py")], capture_output=True, text=True,
                            env={**os.environ, "TIDE_BUILD_DIR": str(tmp_path)}, timeout=GUARD_S, check=False)
    assert answer.returncode == 1 and "make demo" in answer.stderr


@pytest.mark.parametrize("words, context", [
    ([], None), (["CLUSTER=kind-kind"], "kind-kind"), (["KUBECONFIG=/k3s.yaml"], "current"), (["CLUSTER=one", "KUBECONFIG=/k3s.yaml"], "one")])
def test_make_takes_a_cluster_that_exists_where_it_is_named(words, context):
    """And not by a KUBECONFIG of the environment, which many have: the demo would surprise them."""
    done = subprocess.run(["make", "-n", "demo-cluster", *words], cwd=DEMO.parent, capture_output=True, text=True, timeout=GUARD_S, check=True,
                          env={**os.environ, "KUBECONFIG": "/somebodys"})
    assert (f"demo/your_cluster.py --context {context} " in done.stdout) == bool(context), done.stdout
    assert ("demo/cluster.py" in done.stdout) == ("setup.sh tf221 kube" in done.stdout) == (not context)


def test_building_kubernetes_shows_that_it_goes_on(tmp_path):
    """Also before the first package is compiled; a build that fails fails, and nothing is held when it has ended."""
    function = re.search(r"^tell_progress\(\) \{.*?^\}", (DEMO.parent / "scripts/setup.sh").read_text(), re.S | re.M)[0]
    build = "{ echo 'go: downloading one'; sleep 3; echo k8s.io/api; sleep 3; exit 7; }"
    script = f"set -euo pipefail\nexec 9>lock\nflock 9\n{function}\n{build} | tell_progress log"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=GUARD_S, check=False,
                          env={**os.environ, "TIDE_PROGRESS_S": "1"})
    assert done.returncode == 7 and "k8s.io/api" in (tmp_path / "log").read_text()
    lines = done.stdout.splitlines()
    assert lines[0].startswith("setup: 0 min 1 s: 1 modules fetched, 0 packages compiled; last: go: downloading one")
    assert "1 packages compiled; last: k8s.io/api" in lines[-1]
    assert subprocess.run(["flock", "-n", tmp_path / "lock", "true"], check=False).returncode == 0


# ---- demo/cluster.py's picture ----

def test_the_picture_of_a_node_shows_who_had_how_much_and_every_epoch():
    import cluster_picture

    def used(other, workers):
        return {"other workload": other, "chief": 400, "servers": 100, "workers": workers}
    run = {"name": "elastic", "ends": [2.0, 5.0, 6.0],
           "samples": [(-1.0, used(750, 250)), (2.5, used(0, 1000)), (7.0, used(750, 250))]}
    assert [(a, b, u["workers"]) for a, b, u in cluster_picture.spans(run)] == [
        (0.0, 2.5, 250), (2.5, 6.0, 1000)]
    root = xml.etree.ElementTree.fromstring(cluster_picture.draw([run, run], 1650))
    hints = [element.text for element in root.iter("{http://www.w3.org/2000/svg}title")]
    assert hints.count("workers: 1000") == 2 and hints.count("other workload: 750") == 2
    letters = cluster_picture.text([run], 1650)
    assert "." in letters and "W" in letters and letters.count("+") == 3
