# SPDX-License-Identifier: Apache-2.0
"""`tide why`: each word of an error is in the table, each entry of the table is a word of some error, and both interfaces
tell it."""
import os
import pathlib
import re
import subprocess

import conftest
from cli_tools import BUILD, assert_error, filled_in, tide  # noqa: F401
from daemon import GUARD_S

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = "src/cli/why/messages.h"
# Which argument of these functions is the word, counted from 0.
WORD_AT = {"error_word": 2, "request_fail_as": 2, "cli_error_as": 2, "cli_note_as": 1, "cli_usage_as": 1, "say_why": 1}
LITERAL = r'"((?:[^"\\]|\\.)*)"'


def entries():
    return re.findall(rf"\bX\(\s*{LITERAL},", (ROOT / TABLE).read_text())


def arguments(text, at):
    """The arguments of a call whose list begins at `at`."""
    depth, found, i = 1, [""], at
    while depth:
        part = re.compile(rf"{LITERAL}|'(?:[^'\\]|\\.)'|.", re.S).match(text, i)[0]
        depth += (part == "(") - (part == ")")
        if part == "," and depth == 1:
            found.append("")
        else:
            found[-1] += part
        i += len(part)
    return found


def words_of(text):
    """The words that a source gives its errors."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    for call in re.finditer(rf"\b({'|'.join(WORD_AT)})\(", text):
        at = WORD_AT[call[1]]
        word = "".join(arguments(text, call.end())[at:at + 1])
        yield from re.findall(LITERAL, re.sub(r"\(.*?\)", "", word))  # not what a function is told


def test_a_source_is_read():
    text = 'return error_word(err, error_set(err, -1, "a, (%s", f(x, ")")), "one");\ncli_note_as(c, e ? "two" : "three", "%s");'
    assert list(words_of(text)) == ["one", "two", "three"]


def test_table_and_sources_have_the_same_words():
    used = {word for path in (ROOT / "src").rglob("*.c") for word in words_of(path.read_text())}
    listed = entries()
    assert len(listed) == len(set(listed)) and used ^ set(listed) == set()
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", word) and len(word) < 32 for word in listed)


def test_the_reference_is_what_the_table_says():
    page = (ROOT / "docs" / "reference-messages.md").read_text()
    assert page.partition("|---|---|---|\n")[2] == filled_in("@messages@"), f"write it anew: see {page.partition('<!--')[2][:120]}"


def test_words_are_explained(tide):  # noqa: F811
    every = tide("why")
    assert every.returncode == 0 and re.findall(r"^[a-z-]+$", every.stdout, re.M) == entries()
    for word in entries():
        done = tide("why", word)
        assert done.returncode == 0 and re.fullmatch(r"cause: .*\ncure:  .*\n", done.stdout, re.S)
        assert max(map(len, done.stdout.splitlines())) <= 80 and done.stdout.isascii()
    assert_error(tide("why", "no-such-jop"), 2, "tide: why: no error has the word 'no-such-jop': did you mean 'no-such-job'?")
    assert_error(tide("why", "x"), 2, "tide: why: no error has the word 'x'")


def test_without_a_daemon_the_word_says_so(tide):  # noqa: F811
    done = tide("ps")
    assert_error(done, 5, "tide: ps: no daemon runs")
    assert done.stderr.endswith("\nSee 'tide why no-daemon'.\n")
    done = tide("run", "--", "/nowhere/program")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (127, "See 'tide why no-program'.")
    done = tide("set", "x", "--min", "3", "--max", "2")
    assert_error(done, 2, "tide: set: --min 3 is above")
    assert done.stderr.endswith("\nSee 'tide why min-above-max'.\n")


def test_tided_names_the_word_of_a_wrong_configuration(tmp_path):
    (tmp_path / "tide.conf").write_text("[daemon]\npolcy=equal\n")
    done = subprocess.run([BUILD / "tided", "--config", tmp_path / "tide.conf", "--check-config"], capture_output=True,
                          text=True, timeout=GUARD_S, env={**conftest.plain_env(), "TIDE_DIR": str(tmp_path)})
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"tided: .*tide.conf:2: polcy: .* \(tide why config-error\)\n", done.stderr)


def test_the_daemon_tells_the_word_in_json_and_tide_in_its_text(place, build_dir, tmp_path):
    conf = tmp_path / "tide.conf"
    conf.write_text("[daemon]\npower=none\n")
    tided = place.daemon("--cpus", "0-7", "--config", conf).start()
    tided.job(name="cnn")
    for method, path, body, command, word in [
        ("GET", "/v1/jobs/none", None, ["explain", "none"], "no-such-job"),
        ("PUT", "/v1/policy", {"policy": "eqal"}, ["policy", "set", "eqal"], "no-such-policy"),
        ("PUT", "/v1/policy", {"policy": "equal/x=1"}, ["policy", "set", "equal/x=1"], "bad-policy"),
        ("PUT", "/v1/power/cap", {"uw": 10**8}, ["power", "set-cap", "100W"], "no-watts"),
        ("PATCH", "/v1/jobs/cnn", {"pin": True, "cores": "4095"}, ["pin", "cnn", "--cores", "4095"], "bad-cores"),
        ("POST", "/v1/jobs", {"pid": os.getpid(), "name": "cnn"}, ["run", "--name", "cnn", "--", "true"], "name-taken"),
    ]:
        status, answer = tided.api(method, path, body)
        assert status >= 400 and answer["error"]["code"] == word and answer["error"]["message"], answer
        done = subprocess.run([build_dir / "tide", *command], capture_output=True, text=True, timeout=GUARD_S,
                              env={**conftest.plain_env(), "TIDE_DIR": str(tided.dir)})
        assert done.stderr.startswith(f"tide: {command[0]}: {answer['error']['message']}\n"), (command, done.stderr)
        assert done.stderr.endswith(f"\nSee 'tide why {word}'.\n")
    status, answer = tided.api("GET", "/v1/history?limit=x")  # an error without an entry has no code
    assert status == 400 and set(answer["error"]) == {"message", "hint"}
