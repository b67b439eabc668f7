# SPDX-License-Identifier: Apache-2.0
"""One row of src/proto/attribute_rows.h is all that an attribute of a job needs: each row is taken
as an option and as JSON, shown, kept over a restart, and stands in help, manual pages, completions
and the description of the API. No attribute is named here."""
import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

import test_tided_observe
from cli_tools import BUILD, filled_in, tide  # noqa: F401
from daemon import GUARD_S

ROWS = json.loads(filled_in("@json@"))
each_row = pytest.mark.parametrize("row", ROWS, ids=[row["key"] for row in ROWS])


def value_of(row):
    """(as an option, as the API shows it); it is not the usual one. A deadline is shown by itself."""
    if row["kind"] == "choice":
        names = row["names"].split()
        name = names[(row["usual"] + 1) % len(names)]
        return name, name
    if row["kind"] == "memory":
        return "3M", 3 << 20
    if row["kind"] == "moment":
        return "2h", None
    if row["kind"] == "promise":
        return "p99=1.5s", "p99=1500ms"
    if row["kind"] == "devices":
        return "uverbs=2", "uverbs=2"
    number = row["least"] + 2
    return str(number), number


def check_shown(row, job, since):
    shown = value_of(row)[1]
    if row["kind"] == "moment":
        assert 7190 < job[row["shown"]] - since < 7200 + GUARD_S
    else:
        assert job[row["shown"]] == shown


def submit(tide, row, text):
    return tide("submit", "--hold", "--output", "/dev/null", "--name", "job", f"--{row['key']}",
                text, "--", "sleep", "600")


def test_the_table_is_not_empty():
    assert len(ROWS) >= 9 and len({row["key"] for row in ROWS}) == len(ROWS)


@each_row
def test_the_option_is_taken_shown_and_kept_over_a_restart(tide, row):
    since = time.time()
    if row["kind"] == "devices":  # a job that would wait for what the machine has not is refused
        tide.start_pool("job", "--devices", value_of(row)[0])
    else:
        done = submit(tide, row, value_of(row)[0])
        assert (done.returncode, done.stderr) == (0, "")
    check_shown(row, tide.job("job"), since)
    os.kill(tide.daemon(), signal.SIGKILL)
    tide.wait(lambda: tide.daemon() is None)
    tide("run", "true")  # starts another
    check_shown(row, tide.job("job"), since)
    tide("cancel", "job")


@each_row
def test_a_job_that_is_there_is_changed_and_the_value_taken_back(tide, row):
    text, since = value_of(row)[0], time.time()
    tide.start_pool("job")
    done = tide("set", "job", f"--{row['key']}", text)
    if row["fixed"]:
        assert done.returncode == 2 and "fixed" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    check_shown(row, tide.job("job"), since)
    done = tide("set", "job", f"--{row['key']}", "none")
    assert done.returncode == (0 if row["none_word"] else 2)
    if row["none_word"]:
        assert tide.job("job")[row["shown"]] is None


@each_row
def test_what_is_out_of_bounds_is_refused_by_name(tide, row):
    wrong = ["rubbish", ""]
    if row["kind"] == "number":
        wrong += [row["least"] - 1, row["most"] + 1, f" {row['least']}", "1e3", "9" * 30]
    if row["kind"] == "memory":
        wrong += ["0M", row["least"] - 1]
    if row["kind"] == "promise":
        wrong += ["50ms", "p99=", "p99=50", "p99=0.5ms", "p99=61s", "p99=-1s", "p99=1.0001s", "p95=50ms", "p99=50ms ", "p99=1e3ms"]
    if row["kind"] == "devices":
        wrong += ["gpu=1", "nvidia", "nvidia=0", "nvidia=65", "nvidia=1,", "nvidia=1,nvidia=1", "nvidia=1 "]
    for text in wrong:
        done = submit(tide, row, str(text))
        assert done.returncode == 2 and f"--{row['key']}: " in done.stderr, (text, done)
        assert text != "0M" or "0M is less than 1 MiB" in done.stderr
    assert tide.daemon() is None


@each_row
def test_json_is_checked_by_the_daemon(tide, build_dir, row):
    tide.start_pool("job")
    method, path = ("POST", "/v1/jobs") if row["fixed"] else ("PATCH", "/v1/jobs/job")
    wrong = [[], True, "rubbish"] + ([] if row["none"] else [None])
    if row["kind"] in ("number", "memory"):
        wrong += [row["least"] - 1, row["most"] + 1, row["least"] + 0.5]
    for value in wrong:
        answer = subprocess.run(
            ["curl", "-sS", "--unix-socket", tide.dir / "api.sock", "-X", method, "-d",
             json.dumps({row["key"]: value}), f"http://localhost{path}"],
            text=True, capture_output=True, check=True, timeout=GUARD_S).stdout
        message = json.loads(answer)["error"]["message"]
        assert message.startswith(f"{row['key']} is "), (value, message)


@each_row
def test_help_says_what_it_is(tide, row):
    for command in ("run", "submit", "adopt", "set", "docker"):
        lines = tide("help", command).stdout.splitlines()
        missing = row["fixed"] and command == "set" or row["docker_has"] and command == "docker"
        assert any(line.startswith(f"      --{row['key']} ") for line in lines) != bool(missing)


@each_row
def test_manual_pages_and_completions_have_it(row):
    for page in ("run", "submit", "adopt", "set", "docker"):
        source = BUILD / f"man/tide-{page}.1.scd"
        if not source.exists():
            pytest.skip("built without scdoc")
        missing = row["fixed"] and page == "set" or row["docker_has"] and page == "docker"
        assert (f"\n*--{row['key']}* _" in source.read_text()) != bool(missing), page
        assert not re.search(r"@[a-z]+( [a-z]+)?@", source.read_text()), page
    assert f"*{row['key']}*" in (BUILD / "man/tide-docker.1.scd").read_text()
    assert f"'--{row['key']}[" in (BUILD / "completions/_tide").read_text()
    assert f" -l {row['key']} -x" in (BUILD / "completions/tide.fish").read_text()


def complete(*words):
    """Returns bash's offers for the last of the words."""
    script = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tide; '
              'printf "%s\\n" "${COMPREPLY[@]}"')
    return subprocess.run(["bash", "-c", script, "bash", BUILD / "completions/tide", *words],
                          text=True, capture_output=True, check=True, timeout=GUARD_S,
                          env={**os.environ, "PATH": f"{BUILD}:{os.environ['PATH']}"}
                          ).stdout.split()


@each_row
def test_bash_completes_the_option_and_its_values(row):
    option = f"--{row['key']}"
    for command in ("run", "submit", "adopt", "docker", "set"):
        words = ["tide", command, *(["j1"] if command in ("set", "docker") else []), "--"]
        missing = row["fixed"] and command == "set" or row["docker_has"] and command == "docker"
        assert (option in complete(*words)) != bool(missing), command
    if row["kind"] == "choice":
        assert complete("tide", "run", option, "") == row["names"].split()
    # Its value is no program: options follow.
    assert "--name" in complete("tide", "run", option, "x", "--")


def test_completions_are_good_for_their_shells():
    files = {"bash": "tide", "zsh": "_tide", "fish": "tide.fish"}
    for shell, name in files.items():
        if shutil.which(shell):
            subprocess.run([shell, "-n", BUILD / "completions" / name], check=True,
                           timeout=GUARD_S)


def test_bash_completes_commands_as_help_lists_them(tide):
    listed = [line.split()[0] for line in tide("help").stdout.splitlines()
              if line.startswith("  ") and line[2:12].strip().isalpha() and "  " in line.strip()]
    assert [w for w in complete("tide", "") if not w.startswith("-")] == [
        word for word in listed if word != "tide"]


@each_row
@pytest.mark.parametrize("schema, changes", [("NewJob", False), ("Adoption", False),
                                             ("JobChange", True)])
def test_the_description_of_the_api_agrees(row, schema, changes):
    schemas = test_tided_observe.DESCRIPTION["components"]["schemas"]
    types = {"number": "integer", "memory": "integer", "moment": "number", "choice": "string",
             "promise": "string", "devices": "string"}
    if changes and row["fixed"]:
        assert row["key"] not in schemas[schema]["properties"]
        return
    described = schemas[schema]["properties"][row["key"]]
    assert described["type"] == types[row["kind"]]
    assert described.get("nullable", False) == row["none"]
    shown = schemas["Job"]["properties"][row["shown"]]
    assert shown["type"] == types[row["kind"]]
    assert shown.get("enum", row["names"].split()) == row["names"].split()
    past = schemas["HistoryJob"]["properties"]  # keeps neither memory, devices nor promises
    assert row["kind"] in ("memory", "devices", "promise") or past[row["shown"]]["type"] == types[row["kind"]]
