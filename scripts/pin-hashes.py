#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes into requirements/*.txt the hash of every wheel that pip takes for them, for each Python.

usage: scripts/pin-hashes.py [NAME…]

For whoever changed a version: pip then installs nothing but these wheels (--require-hashes). The hashes
are the package index's own. Python 3.10 to 3.12 (3.11 for tf215) on this machine's platform.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "requirements"
PYTHONS = {"tf215": ("3.10", "3.11"), "runtimes": ("3.11", "3.12"), "torch": ("3.11", "3.12"),
           "hosts": ("3.11", "3.12")}
ALL = ("3.10", "3.11", "3.12")


def wheels(requirements, python, folder):
    """(package, sha256) for what this version of Python would install."""
    report = pathlib.Path(folder, "report.json")
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--ignore-installed",
                    "--no-deps", "--only-binary=:all:", "--python-version", python, "--target", folder,
                    "--report", report, "-r", requirements], check=True)
    for item in json.loads(report.read_text())["install"]:
        yield (item["metadata"]["name"].lower().replace("_", "-"),
               item["download_info"]["archive_info"]["hashes"]["sha256"])


def main():
    for path in sorted(FOLDER.glob("*.txt")):
        if len(sys.argv) > 1 and path.stem not in sys.argv[1:]:
            continue
        # exceptiongroup and tomli are only for old Pythons; pip asks this machine's about markers.
        plain = re.sub(r" \\\n +--hash=\S+", "", path.read_text())
        hashes = {}
        with tempfile.TemporaryDirectory() as folder:
            bare = pathlib.Path(folder, "bare.txt")
            bare.write_text(re.sub(r" ;.*", "", plain))
            for python in PYTHONS.get(path.stem, ALL):
                for name, sum_ in wheels(bare, python, folder):
                    hashes.setdefault(name, []).append(sum_)
        lines = []
        for line in plain.splitlines():
            found = re.match(r"([\w.-]+)==", line)
            lines.append(" \\\n    ".join([line, *(f"--hash=sha256:{s}" for s in sorted(
                set(hashes[found[1]])))] if found else [line]))
        path.write_text("\n".join(lines) + "\n")
        print(f"{path.name}: {sum(len(set(h)) for h in hashes.values())} wheels")


if __name__ == "__main__":
    main()
