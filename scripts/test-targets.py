#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Names the targets of ninja that the tests of a build tree need, without those of some suites.

usage: test-targets.py BUILD_DIR [SUITE…]     for `meson test --no-suite SUITE…`
"""
import json
import pathlib
import sys


def targets(build, without):
    """Files that are built for the tests in no suite of @without."""
    info = build.resolve() / "meson-info"
    files = {target["id"]: target["filename"] for target in json.loads((info / "intro-targets.json").read_text())}
    needed = {target for test in json.loads((info / "intro-tests.json").read_text())
              if not {suite.split(":")[-1] for suite in test["suite"]} & without for target in test["depends"]}
    return sorted(str(pathlib.Path(file).relative_to(build.resolve())) for target in needed for file in files[target])


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    found = targets(pathlib.Path(sys.argv[1]), set(sys.argv[2:]))
    if not found:
        sys.exit(f"test-targets: {sys.argv[1]} has no such tests")
    print(*found)
