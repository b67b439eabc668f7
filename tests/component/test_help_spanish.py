# SPDX-License-Identifier: Apache-2.0
"""`tide help` in Spanish: po/es/LC_MESSAGES/threadtide.po. English is what the other tests of help see."""
import os
import re
import shutil
import subprocess

import pytest

from cli_tools import BUILD
from conftest import ROOT
from test_cli import COMMANDS as SOME

PO = ROOT / "po/es/LC_MESSAGES/threadtide.po"
EVERY = sorted({*SOME, "docker", "fleet", "power", "setup", "dial"})
WIDE = 80

pytestmark = pytest.mark.skipif(not (BUILD / "po/es/LC_MESSAGES/threadtide.mo").exists(), reason="built without msgfmt (gettext)")


def tide(*words, program=BUILD / "tide", **env):
    plain = {key: value for key, value in os.environ.items() if key not in ("LANGUAGE", "LANG") and not key.startswith("LC_")}
    done = subprocess.run([program, *words], env={**plain, **env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
    return done.stdout.decode()


def english(*words):
    return tide(*words, LC_ALL="C")


def spanish(*words):
    return tide(*words, LANG="es_ES.UTF-8")


@pytest.mark.parametrize("env", [
    {"LANG": "es_ES.UTF-8"}, {"LANG": "es_AR.UTF-8"}, {"LC_ALL": "es_ES.UTF-8", "LANG": "en_US.UTF-8"}, {"LC_MESSAGES": "es"},
    {"LANG": "C.UTF-8", "LANGUAGE": "es"}])
def test_the_locale_chooses_installed_or_not(env):
    assert tide("help", **env).startswith("Uso: tide COMMAND")


@pytest.mark.parametrize("env", [
    {}, {"LANG": "C"}, {"LANG": "C.UTF-8"}, {"LANG": "en_US.UTF-8"}, {"LANG": "fr_FR.UTF-8"}, {"LC_ALL": "C", "LANG": "es_ES.UTF-8"},
    {"LC_ALL": "POSIX", "LANGUAGE": "es"}, {"LANG": "es_ES.UTF-8", "LANGUAGE": "en"}, {"LANG": "x" * 300}, {"LANG": "../../../etc"}])
def test_others_see_english(env):
    assert tide("help", **env) == english("help")


def options(text):
    return re.findall(r"^ +(?:-\w, )?(--[\w-]+|-\w)", text, re.M)


def examples(text):
    """The commands behind the heading, without what is said of them at their right."""
    behind = re.split(r"^(?:Examples?|Ejemplos?):\n", text, flags=re.M)[1:]
    return [re.split(r" {2,}\S", line.strip())[0] for part in behind for line in part.split("\n\n")[0].splitlines() if line.startswith("  tide ")]


@pytest.mark.parametrize("command", EVERY)
def test_each_commands_help_is_translated_and_says_the_same(command):
    one, other = english("help", command), spanish("help", command)
    usage, title, *_ = other.split("\n\n")
    assert usage == one.split("\n\n")[0].replace("Usage", "Uso") and title != one.split("\n\n")[1]
    assert options(one) == options(other)
    assert examples(one) == examples(other)
    for line in other.splitlines()[1:]:
        assert len(line) <= WIDE, line
    # Sentences are those lines that have several words of English's own: none is left.
    left = [line for line in set(one.splitlines()) & set(other.splitlines())
            if len(re.findall(r"\b(?:the|and|of|is|are|that|its|their|which|with|until|when|for)\b", line)) > 1]
    assert not left


def test_the_list_of_commands_is_translated():
    one, other = english("help").splitlines(), spanish("help").splitlines()
    rows = [re.findall(r"^  ([a-z]+)  +(\S.*)", "\n".join(lines), re.M) for lines in (one, other)]
    assert [name for name, _ in rows[0]] == [name for name, _ in rows[1]]
    same = {text for _, text in rows[0]} & {text for _, text in rows[1]}
    assert same <= {text for name, text in rows[0] if name == "tide"}, same


def test_every_program_that_a_command_becomes_speaks_it(tmp_path):
    for command in ("top", "dashboard", "sim"):
        assert tide(command, "--help", LANG="es_ES.UTF-8") == spanish("help", command)


def test_where_the_translation_is_missing_help_is_english(tmp_path):
    shutil.copy(BUILD / "tide", tmp_path)
    assert tide("help", program=tmp_path / "tide", LANG="es_ES.UTF-8") == english("help")


def test_messages_stay_as_they_are_looked_for():
    assert tide("nonsense", LANG="es_ES.UTF-8") == english("nonsense")


def test_the_file_holds_nothing_that_help_does_not_say():
    """A text that was changed in the source leaves no translation behind that nobody sees."""
    said = "\n".join(english("help", command) for command in EVERY) + english("help")
    for entry in re.findall(r'^msgid ((?:".*"\n)+)', PO.read_text(), re.M)[1:]:
        text = "".join(re.findall(r'"(.*)"', entry)).encode().decode("unicode_escape")
        first = max(text.splitlines(), key=len).split("%")[0].strip()
        assert first.lower() in said.lower(), first
