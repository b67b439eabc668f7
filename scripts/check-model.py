#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Says when code has changed that the protocol's model mirrors by hand.

usage: scripts/check-model.py [--update] [ROOT]

The header of tests/models/protocol.pml names the functions that it mirrors, each with a sum over
its text (without comments and white space). Fails when a function is not there any more, or has
another sum: whoever changed it compares it with the model, changes that if need be, and writes the
new sum with --update.
"""
import argparse
import hashlib
import pathlib
import re
import sys

MODEL = "tests/models/protocol.pml"
# " *   src/agent/control/core.c core_set_daemon() 0123456789ab"; a new row may lack the sum
ROW = re.compile(r"^( \*   (src/\S+\.c) (\w+)\(\)) ?([0-9a-f]*)$", re.M)


def text_of(source, function):
    """The function's definition, as clang-format lays it out; None if there is none."""
    found = re.search(rf"^\w[^\n;]*\b{function}\([^;{{]*\n\{{\n.*?^\}}$", source, re.M | re.S)
    return found and found[0]


def sum_of(text):
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    return hashlib.sha256("".join(code.split()).encode()).hexdigest()[:12]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--update", action="store_true", help="the model mirrors them as they are now")
    parser.add_argument("root", nargs="?", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent)
    options = parser.parse_args()
    model = options.root / MODEL
    wrong, rows = [], 0

    def check(row):
        nonlocal rows
        rows += 1
        head, file, function, known = row.groups()
        source = options.root / file
        text = source.exists() and text_of(source.read_text(), function)
        if not text:
            wrong.append(f"{file}: {function}() is gone, and {MODEL} mirrors it")
            return row[0]
        now = sum_of(text)
        if now != known and not options.update:
            wrong.append(f"{file}: {function}() has changed: compare it with {MODEL}, then run "
                         "scripts/check-model.py --update")
        return f"{head} {now}"

    updated = ROW.sub(check, model.read_text())
    if options.update and not wrong:
        model.write_text(updated)
    print(*wrong, f"model: {rows} functions mirrored, {len(wrong)} to be looked at", sep="\n")
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
