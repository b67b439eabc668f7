#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures functions, files and comments of the C sources.

usage: scripts/check-size.py [ROOT]

Fails on a function over 100 or a file over 800 lines; lists functions over 60. Relies on
clang-format's shape: a function's body is what stands between a `{` and a `}` in column 1.
"""
import pathlib
import re
import sys

FUNCTION_LIST = 60
FUNCTION_MAX = 100
FILE_MAX = 800


def functions(lines):
    """Yields (name, first line, lines), counted from the body's opening brace to its closing one."""
    start = None
    for number, line in enumerate(lines, 1):
        if line == "{":
            start = number
        elif line == "}" and start:
            # The declarator may be folded over several lines: go back to the one in column 1.
            head = start - 1
            while head > 1 and lines[head - 1][:1] in (" ", "\t"):
                head -= 1
            name = re.search(r"(\w+)\s*\(", lines[head - 1])
            yield name[1] if name else "?", head, number - start + 1
            start = None


def is_comment(lines):
    """For each line, whether it holds nothing but comment."""
    inside = False
    for line in lines:
        text = line.strip()
        starts = text.startswith(("/*", "//"))
        yield inside or starts
        if "/*" in text or inside:
            inside = text.rfind("*/") < max(text.rfind("/*"), 0)


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else 0


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__ + "/../..").resolve()
    lengths, code, comments, wrong = [], 0, 0, 0
    for path in sorted(p for d in ("src", "include", "tests", "fuzz", "bench", "examples")
                       for p in (root / d).rglob("*.[ch]")):
        name = path.relative_to(root)
        lines = path.read_text().splitlines()
        if len(lines) > FILE_MAX:
            print(f"{name}: {len(lines)} lines, the limit is {FILE_MAX}")
            wrong += 1
        for function, line, length in functions(lines):
            if name.parts[0] == "src":
                lengths.append(length)
            if length > FUNCTION_LIST:
                over = length > FUNCTION_MAX
                wrong += over
                print(f"{name}:{line}: {function}: {length} lines"
                      + (f", the limit is {FUNCTION_MAX}" if over else ""))
        if name.parts[0] in ("src", "include"):
            comment = list(is_comment(lines))
            comments += sum(comment)
            code += sum(bool(l.strip()) and not c for l, c in zip(lines, comment))
    print(f"size: {code} lines of code, {comments / max(code, 1):.2f} comment lines per code line; "
          f"{len(lengths)} functions, p50 {percentile(lengths, .5)}, p90 {percentile(lengths, .9)}, "
          f"longest {max(lengths, default=0)}; {wrong} over a limit")
    return 1 if wrong or not lengths else 0


if __name__ == "__main__":
    sys.exit(main())
