# SPDX-License-Identifier: Apache-2.0
"""`tide record`: what jobs did becomes a scenario, which `tide sim` replays."""
import json
import os
import signal
import subprocess
import time

import pytest

from cli_tools import GUARD_S, assert_error, tide  # noqa: F401


@pytest.fixture
def recorder(tide, tmp_path):
    """recorder(*options): `tide record` in the background; its file, once it has ended."""
    class Recorder:
        file = tmp_path / "run.json"

        def start(self, *options):
            self.process = tide.start("record", "-o", self.file, *options, stderr=subprocess.PIPE)
            return self

        def end(self, number=signal.SIGINT):
            if number:
                self.process.send_signal(number)
            self.said = self.process.communicate(timeout=GUARD_S)[1]
            assert self.process.returncode == 0, self.said
            return json.loads(self.file.read_text())
    return Recorder()


def loop(tide, build_dir, name, chunks, *options, workers=2):
    return tide.start("run", "--name", name, *options, "--", build_dir / "examples/malleable_loop",
                      workers, chunks, stdout=subprocess.DEVNULL)


def test_jobs_become_a_scenario_with_what_happened(tide, build_dir, recorder):
    recorder.start()
    first = loop(tide, build_dir, "first", 8000, "--priority", 5, "--request", 1, "--weight", 200)
    tide.wait(lambda: tide("ps").returncode == 0 and tide.jobs())
    time.sleep(1)  # apart, so that their order can be told
    second = loop(tide, build_dir, "second", 4000)
    for process in (first, second):
        assert process.wait(GUARD_S) == 0
    scenario = recorder.end(number=None)  # the daemon ends after its last job, and the recording
    assert scenario["machine"] == {"cores": os.cpu_count(), "placement": "shared"}
    jobs, observed = scenario["jobs"], scenario["observed"]
    assert [j["name"] for j in jobs] == ["first", "second"]
    assert jobs[0]["arrival"] == 0 and 0.9 < jobs[1]["arrival"] < GUARD_S
    assert (jobs[0]["priority"], jobs[0]["request"], jobs[0]["weight"]) == (5, 1, 200)
    assert not jobs[0]["preemptible"] and jobs[0]["threads"] == 2
    assert jobs[0]["work"] > jobs[1]["work"] > 0
    assert observed["policy"] == "equal"
    assert [j["name"] for j in observed["jobs"]] == ["first", "second"]
    ends = [j["finish"] for j in observed["jobs"]]
    assert observed["makespan"] == max(ends)
    turnarounds = [j["turnaround"] for j in observed["jobs"]]
    assert abs(observed["mean_turnaround"] - sum(turnarounds) / 2) < 0.002
    for job in observed["jobs"]:
        assert not job["cut"] and job["unit"] == "chunks" and job["cpu"] > 0
        assert job["rates"] and all(r["rate_alone"] >= r["rate"] > 0 for r in job["rates"])
    assert "2 jobs, makespan" in recorder.said and "tide sim" in recorder.said


def test_the_scenario_replays(tide, build_dir, recorder):
    recorder.start()
    assert loop(tide, build_dir, "only", 3000).wait(GUARD_S) == 0
    recorder.end(number=None)
    done = tide("sim", recorder.file, "--policy", "equal,none")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Recorded under equal:" in done.stdout
    assert "makespan        observed" in done.stdout
    assert "Turnaround of each job:\n  only            observed" in done.stdout
    answer = json.loads(tide("sim", recorder.file, "--policy", "equal", "--json").stdout)
    predicted = answer["prediction"]
    job, = predicted["jobs"]
    assert job["name"] == "only"
    assert job["observed"] == predicted["makespan"]["observed"] == predicted["turnaround"]["observed"]
    assert job["predicted"] == predicted["turnaround"]["predicted"]
    page = recorder.file.with_suffix(".html")
    assert tide("sim", recorder.file, "--policy", "equal", "--html", page).returncode == 0
    assert "only, turnaround" in page.read_text()


def test_what_still_runs_at_the_end_is_cut_there(tide, build_dir, recorder):
    job = loop(tide, build_dir, "long", 100000000)
    tide.wait(lambda: tide("ps").returncode == 0 and any(j["progress"]["done"] for j in tide.jobs()))
    recorder.start("--for", "2s")
    scenario = recorder.end(number=None)
    observed, = scenario["observed"]["jobs"]
    assert observed["cut"] and 1.5 < observed["turnaround"] < 2.5
    assert "jobs still running, recorded as if they had ended now: 1" in recorder.said
    assert job.poll() is None


def test_ctrl_c_ends_the_recording_not_the_jobs(tide, recorder):
    process = tide.start_pool("cnn")
    recorder.start()
    tide.wait(lambda: recorder.file.exists())
    time.sleep(1.2)
    recorder.process.send_signal(signal.SIGINT)
    said = recorder.process.communicate(timeout=GUARD_S)[1]
    # The pool's threads only pretend to work: there is nothing to replay.
    assert recorder.process.returncode == 1 and "nothing recorded" in said
    assert process.poll() is None


def test_programs_that_sleep_are_left_out(tide, build_dir, recorder):
    recorder.start()
    tide.start("run", "--name", "idle", "--", "sleep", "600")
    assert loop(tide, build_dir, "busy", 1000).wait(GUARD_S) == 0
    scenario = recorder.end()
    assert [j["name"] for j in scenario["jobs"]] == ["busy"]
    assert "jobs left out, since they hardly used a core: 1" in recorder.said


def test_the_policys_spec_is_in_the_file(tide, build_dir, recorder):
    tide.start("run", "--name", "idle", "--", "sleep", "600")
    tide.wait(lambda: tide("ps").returncode == 0 and tide.jobs())
    assert tide("policy", "set", "priority/ageing=90s").returncode == 0
    recorder.start()
    assert loop(tide, build_dir, "busy", 4000).wait(GUARD_S) == 0
    assert recorder.end()["observed"]["policy"] == "priority/ageing=90s"


def test_without_a_daemon_it_waits_and_says_so(tide, tmp_path):
    done = tide("record", "--for", "300ms", "-o", tmp_path / "none.json")
    assert done.returncode == 5
    assert "no daemon runs yet: waiting" in done.stderr and "no daemon ran" in done.stderr


def test_a_file_that_cannot_be_written_is_said_at_once(tide):
    done = tide("record", "-o", "/nowhere/run.json")
    assert (done.returncode, done.stdout) == (1, "")
    assert_error(done, 1, "tide: record: cannot write /nowhere/run.json: No such file or directory")


def test_a_failed_recording_leaves_the_old_file(tide, tmp_path):
    path = tmp_path / "old.json"
    path.write_text("precious")
    assert tide("record", "--for", "300ms", "-o", path).returncode == 5
    assert path.read_text() == "precious"


@pytest.mark.parametrize("args", [["extra"], ["--for", "90"], ["--for", "0s"], ["--for"], ["-o"],
                                  ["--bogus"]], ids=" ".join)
def test_wrong_command_lines_are_usage_errors(tide, args):
    assert_error(tide("record", *args), 2, "tide: record: ", "tide help record")
