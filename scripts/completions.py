#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Completions of tide-hub and tide-power, from the commands, verbs and options that the program's --help tells.

    completions.py PROGRAM bash|zsh|fish [RUNNER…] >FILE

RUNNER: what runs the program, where it is one of another processor.
"""
import os
import re
import subprocess
import sys

ROLES = ("viewer", "operator", "administrator")
FILES = re.compile(r"FILE|PATH|DIR")
OPERANDS = re.compile(r"\b(FILE|OLD|NEW|REQUEST)\b")


def told(path, *words):
    done = subprocess.run([*path, *words, "--help"], capture_output=True, text=True, timeout=60)
    return done.stdout if done.returncode == 0 else ""


class Command:
    """A command's verbs, options {name: its value or ""}, and whether it takes files."""

    def __init__(self, program, name, text):
        usage = text.partition("\n\n")[0]
        after = re.findall(rf"{program} {name} ([a-z|]+)(?=\s|$)" if name else r"$^", usage)
        self.name = name
        self.verbs = list(dict.fromkeys(verb for word in after for verb in word.split("|")))
        self.files = any(OPERANDS.search(re.sub(r"--\w+ \w+", "", line)) for line in usage.splitlines()) and name != ""
        self.options = {}
        for line in text.splitlines():
            if re.match(r"  --[a-z]", line):
                self.take(line.strip())
        self.options["help"] = ""

    def take(self, line):
        """ "--keep-1s, --keep-1min TIME   how long …": the value of the last one is that of all."""
        found = re.match(r"(--[\w-]+(?: [A-Z][^\s,]*)?(?:, )?)+", line)[0]
        options = re.findall(r"--([\w-]+)(?: ([^\s,]+))?", found)
        for name, value in options:
            self.options[name] = value or options[-1][1]


def commands_of(path, program):
    """The commands that there are in this build; the first is that without a command."""
    text = told(path)
    lines = text.splitlines()
    names = [line.split()[0] for line in lines if re.match(r"  [a-z]", line)]
    names += re.findall(rf"^ +{program} ([a-z]+)\b", text, re.M)
    all_ = [Command(program, "", text)]
    all_[0].options["version"] = ""
    for name in dict.fromkeys(names):
        help_ = told(path, name)
        if help_.startswith(f"Usage: {program} {name}"):
            all_.append(Command(program, name, help_))
    return all_


def values(value):
    return ROLES if value == "ROLE" else ()


def bash(program, all_):
    f = "_" + program.replace("-", "_")
    files, words = 'COMPREPLY=($(compgen -f -- "$cur"))', 'COMPREPLY=($(compgen -W "%s" -- "$cur"))'
    print(f"# bash completion of {program}; written by scripts/completions.py\n\n{f}()\n{{")
    print("    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command=\n    COMPREPLY=()")
    print("    ((COMP_CWORD > 1)) && [[ ${COMP_WORDS[1]} != -* ]] && command=${COMP_WORDS[1]}\n    case $command:$prev in")
    for c in all_:
        for option, value in c.options.items():
            if value:
                do = files if FILES.search(value) else words % " ".join(values(value)) if values(value) else ":"
                print(f"    {c.name}:--{option}) {do}; return ;;")
        if c.verbs:
            print(f"    {c.name}:{c.name}) [[ $cur == -* ]] || {{ {words % ' '.join(c.verbs)}; return; }} ;;")
    print("    esac\n    case $command in")
    for c in all_:
        options = " ".join(f"--{option}" for option in c.options)
        first = " ".join(c.name for c in all_[1:]) + " " if not c.name else ""
        print(f"    '{c.name}')\n        {words % (first + options)}")
        if c.files:
            print(f"        [[ $cur == -* ]] || {files}")
        print("        ;;")
    print(f"    esac\n}}\n\ncomplete -o filenames -F {f} {program}")


def zsh(program, all_):
    print(f"#compdef {program}\n# zsh completion of {program}; written by scripts/completions.py\n")
    print("local command=\n[[ $CURRENT -gt 2 && $words[2] != -* ]] && command=$words[2]\ncase $command in")
    for c in all_:
        print(f"'{c.name}') _arguments \\")
        for option, value in c.options.items():
            do = "_files" if FILES.search(value) else f"({' '.join(values(value))})" if values(value) else " "
            print(f"    '*--{option}{f':{value.lower().replace(chr(58), chr(32))}:{do}' if value else ''}' \\")
        if not c.name and all_[1:]:
            print(f"    '1:command:({' '.join(c.name for c in all_[1:])})'")
        elif c.verbs:
            print(f"    '2:what:({' '.join(c.verbs)})' '*::operand:{'_files' if c.files else ' '}'")
        else:
            print(f"    '*::operand:{'_files' if c.files else ' '}'")
        print("    ;;")
    print("esac")


def fish(program, all_):
    print(f"# fish completion of {program}; written by scripts/completions.py\n\ncomplete -c {program} -f")
    for c in all_:
        here = f"'__fish_seen_subcommand_from {c.name}'" if c.name else "__fish_use_subcommand"
        words = c.verbs if c.name else [c.name for c in all_[1:]]
        if words:
            verbs = f" && not __fish_seen_subcommand_from {' '.join(words)}" if c.name else ""
            print(f"complete -c {program} -n {here[:-1] + verbs + chr(39) if c.name else here} -a '{' '.join(words)}'")
        if c.files:
            print(f"complete -c {program} -n {here} -F")
        for option, value in c.options.items():
            do = "" if not value else " -r -F" if FILES.search(value) else f" -x -a '{' '.join(values(value))}'" if values(value) else " -x"
            print(f"complete -c {program} -n {here} -l {option}{do}")


def main():
    path, shell, *runner = sys.argv[1:]
    program = os.path.basename(path)
    print("# SPDX-License-Identifier: Apache-2.0") if shell != "zsh" else None
    {"bash": bash, "zsh": zsh, "fish": fish}[shell](program, commands_of([*runner, path], program))


if __name__ == "__main__":
    main()
