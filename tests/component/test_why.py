# SPDX-License-Identifier: Apache-2.0
"""`tide why`: each error has a word, each word of an error is in the table, each entry of the table is a word of some error, and
the programs' interfaces and logs tell it."""
import os
import pathlib
import re
import subprocess

import conftest
import pytest
from cli_tools import BUILD, assert_error, filled_in, tide  # noqa: F401
from daemon import GUARD_S

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLES = [f"src/cli/why/{name}.h" for name in ("messages", "messages_energy", "messages_cluster")]
# Which argument of these functions is the word, counted from 0.
WORD_AT = {"error_word": 2, "request_fail_as": 2, "cli_error_as": 2, "cli_note_as": 1, "cli_usage_as": 1, "daemon_log_as": 0,
           "call_fail_as": 2, "error_print": 0}
# Other functions that print lines for people, of errors and of other news. Where these have a word, it is in the text.
LINES = ("daemon_log", "unit_log", "pods_log", "kube_log", "tree_say", "say", "log", "tell", "slurm_error", "cli_note", "fprintf", "fputs")
ERROR = re.compile(r"cannot|could not|fail|refus|damaged|ignored|unknown|invalid|error|too (many|long)|out of (memory|file)|lost the|no connection|"
                   r"not (set|removed|sent|used|taken|understood|valid)|has to|\bis (no|not|missing)\b|(\.|->)text\b|strerror|\bproblem\b")
WORDED = re.compile(r"tide why |ERROR_WHY|error_(said|why)\(")
PROGRAMS = ("cli", "daemon", "gate", "hub", "unit", "edge", "kube", "pods", "runc", "slurm", "tfnode")
# Lines that only sound like errors, or that hand on a text with its word: what the call has in it.
EXCEPT = (
    "tell(task.out", "say(&known", "say(const struct error", "tell(struct ",  # the page's machines; a promise's ground; heads of functions
    "tell(m, m->refusal", "say(w, problem", "%s%s%s%s%s%s", 'text ? text : "out of memory"',  # these have the word further down, or from above
    "jobs missed", "not the real one", "unit revoked: ", "too many log lines",  # news
)
LITERAL = r'"((?:[^"\\]|\\.)*)"'


def entries():
    return [word for table in TABLES for word in re.findall(rf"\bX\(\s*{LITERAL},", (ROOT / table).read_text())]


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


def bare(text):
    return re.sub(r'"\s+"', "", re.sub(r"/\*.*?\*/", "", text, flags=re.S))  # long literals stand in pieces


def calls(text, names):
    """Name and arguments of each call."""
    for call in re.finditer(rf"\b({'|'.join(names)})\(", text):
        *first, last = arguments(text, call.end())
        yield call[1], [*first, last[:-1]]  # its bracket


def words_of(text):
    """The words that a source gives its errors."""
    text = bare(text)
    for name, arg in calls(text, WORD_AT):
        word = "".join(arg[WORD_AT[name]:WORD_AT[name] + 1])
        yield from re.findall(LITERAL, re.sub(r"\(.*?\)", "", word))  # not what a function is told
    yield from re.findall(rf"^#define ERROR_WORD {LITERAL}$", text, re.M)
    yield from re.findall(r"\(tide why ([a-z-]+)\)", text)
    for body in re.findall(r"^static const char \*word_of\(.*?^}", text, re.M | re.S):
        yield from re.findall(rf"return {LITERAL};", body)


def wordless(text):
    """The calls that tell a person of an error and give it no word. error_set() and others take ERROR_WORD: the compiler asks for it."""
    for name, arg in calls(bare(text), [*WORD_AT, *LINES]):
        call = " ".join(f"{name}({','.join(arg)})".split())
        if name in WORD_AT:
            if arg[WORD_AT[name]:WORD_AT[name] + 1] and arg[WORD_AT[name]].strip() in ("NULL", '""', "0"):
                yield call
        elif name in ("fprintf", "fputs") and not re.search(r"\bstderr\b", call):
            continue
        elif ERROR.search(call.partition("(")[2]) and not WORDED.search(call) and not any(e in call for e in EXCEPT):
            yield call


def test_a_source_is_read():
    text = 'return error_word(err, error_set(err, -1, "a, (%s", f(x, ")")), "one");\ncli_note_as(c, e ? "two" : "three", "%s");'
    assert list(words_of(text)) == ["one", "two", "three"]
    text = '#define ERROR_WORD "one"\nunit_log("no %s (tide why two)", a);\nstatic const char *word_of(int a)\n{\n    return "three";\n}\n'
    assert list(words_of(text)) == ["one", "two", "three"]
    text = 'daemon_log("job %s ended", id); daemon_log("cannot read %s",\n f(x)); cli_error_as(c, 1, NULL, NULL, "%s", a);'
    assert list(wordless(text)) == ['daemon_log("cannot read %s", f(x))', 'cli_error_as(c, 1, NULL, NULL, "%s", a)']


def test_every_error_has_a_word():
    found = [f"{path.relative_to(ROOT)}: {call}" for program in PROGRAMS for path in sorted((ROOT / "src" / program).rglob("*.c"))
             for call in wordless(path.read_text())]
    assert not found, "errors without a word of `tide why` (src/cli/why/messages.h):\n" + "\n".join(found)


def test_table_and_sources_have_the_same_words():
    used = {word for path in (ROOT / "src").rglob("*.c") for word in words_of(path.read_text())}
    listed = entries()
    assert len(listed) == len(set(listed)) and used ^ set(listed) == set()
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", word) and len(word) < 32 for word in listed)


def test_the_reference_is_what_the_table_says():
    page = (ROOT / "docs" / "reference-messages.md").read_text()
    assert page.partition("build/document -->\n")[2] == filled_in("@messages@"), f"write it anew: see {page.partition('<!--')[2][:120]}"


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


@pytest.mark.parametrize("program, args, code, word", [
    ("tided", ["x"], 2, "usage"), ("tide-hub", ["policy", "check", "FILE"], 3, "bad-policy-file"), ("tide-hub", ["audit", "--since", "x"], 2, "usage"),
    ("tide-hub", ["serve", "--config", "FILE"], 2, "config-error"), ("tide-power", ["--check", "--config", "FILE"], 1, "config-error"),
    ("tide-kube", ["x"], 2, "usage"), ("tide-kube", ["--kubeconfig", "/nowhere"], 1, "bad-kubeconfig"), ("tide-pods", ["x"], 2, "usage"),
    ("tide-tfnode", ["--role", "x"], 2, "usage"),
])
def test_other_programs_end_an_error_with_its_word(tmp_path, program, args, code, word):
    file = tmp_path / "file"
    file.write_text("[x\n")
    done = subprocess.run([BUILD / program, *[str(file) if arg == "FILE" else arg for arg in args]], capture_output=True, text=True,
                          timeout=GUARD_S, env={**conftest.plain_env(), "TIDE_DIR": str(tmp_path)})
    assert done.returncode == code and done.stderr.endswith(f" (tide why {word})\n"), done


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
    status, answer = tided.api("GET", "/v1/history?limit=x")
    assert status == 400 and answer["error"]["code"] == "bad-request" and set(answer["error"]) == {"message", "hint", "code"}
