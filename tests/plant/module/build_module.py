#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Builds tide_plant.ko for a kernel of the distribution that is not installed here.

usage: build_module.py RELEASE OUT

OUT gets the kernel's headers, unpacked, tide_plant.ko and what its making leaves. Nothing is installed.
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SOURCES = (HERE / "Kbuild", HERE / "front.c", HERE.parent / "plant.c", HERE.parent / "plant.h")


def needed(package):
    """The headers' package and those that it builds with; the compiler is this machine's."""
    found = subprocess.run(["apt-cache", "depends", "--important", package], text=True, check=True,
                           capture_output=True).stdout
    words = (line.strip().partition("Depends: ")[2] for line in found.splitlines())
    return [package, *(w for w in words if w.startswith(("linux-headers-", "linux-kbuild-")))]


def fetch(release, headers, to):
    """Unpacks the headers of this kernel in HEADERS, which will be moved to TO."""
    with tempfile.TemporaryDirectory(dir=headers) as downloads:
        subprocess.run(["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download",
                        *needed(f"linux-headers-{release}")], check=True, cwd=downloads)
        for file in pathlib.Path(downloads).glob("*.deb"):
            subprocess.run(["dpkg", "-x", file, headers], check=True)
    # Debian's include each other by where they lie when they are installed.
    for makefile in (headers / "usr/src").glob(f"linux-headers-{release}/Makefile"):
        if not makefile.is_symlink():
            text = makefile.read_text()
            makefile.write_text(text.replace("include /usr/src/", f"include {to}/usr/src/"))


def build(headers, release, out):
    """Returns the module's path."""
    out.mkdir(parents=True, exist_ok=True)
    for source in SOURCES:
        shutil.copy(source, out)
    done = subprocess.run(["make", "-s", "-C", headers / f"usr/src/linux-headers-{release}", f"M={out}",
                           "modules"], text=True, capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(f"build_module.py: the module was not built:\n{done.stdout}{done.stderr}")
    return out / "tide_plant.ko"


def main():
    release, out = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    headers = out / "headers"
    if not headers.exists():
        headers.mkdir(parents=True)
        fetch(release, headers, headers)
    print(build(headers, release, out / "module"))


if __name__ == "__main__":
    main()
