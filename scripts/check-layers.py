#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks every #include against the table of layers (HACKING.md, "Where things go").

usage: scripts/check-layers.py [ROOT]
"""
import pathlib
import re
import sys

# Folder of src/ -> the folders of src/ that it may include; "include" is include/tide.
LAYERS = {
    "base": (),
    "proto": ("base",),
    "policy": ("base",),
    "agent": ("base", "proto", "include"),
    "host": ("base",),
    "daemon": ("base", "proto", "policy", "host"),
    "sim": ("base", "policy"),
    "lib": ("base", "proto", "include", "agent/program_api.h"),
    "runc": ("base",),
    "tfnode": ("base", "agent/program_api.h"),
    "kube": ("base", "policy", "host"),
    "cli": ("base", "proto", "host", "sim"),
}

# Headers from outside of the C library, and who may use them: everything not listed is libc's.
LIBRARIES = {
    "ini.h": ("daemon",),
    "microhttpd.h": ("daemon", "kube"),
    "jansson.h": ("daemon", "cli", "host", "sim", "kube"),
    "systemd/": ("daemon", "kube"),
    "curses.h": ("cli",),
    "ncurses.h": ("cli",),
    "ncursesw/": ("cli",),
    "libsmartcols/": ("cli",),
    "libsmartcols.h": ("cli",),
    "curl/": ("host", "kube"),
    "sqlite3.h": ("daemon",),
    "gnutls/": ("kube",),
    "yaml.h": ("kube",),
}

# What policies may include: nothing with a clock, I/O, allocation or a random number in it.
POLICY_HEADERS = {
    "assert.h", "errno.h", "inttypes.h", "limits.h", "math.h", "stdbool.h", "stddef.h", "stdint.h",
    "string.h",
}

LIBC = re.compile(
    r"""(sys|linux|asm|arpa|net|netinet|bits)/[\w/]+\.h$
    | (assert|byteswap|ctype|dirent|dlfcn|elf|endian|errno|fcntl|fnmatch|getopt|glob|grp|inttypes
      |langinfo|libgen|limits|link|locale|malloc|math|netdb|paths|poll|pthread|pwd|sched|semaphore
      |setjmp|signal|spawn|stdalign|stdarg|stdatomic|stdbool|stddef|stdint|stdio|stdlib|stdnoreturn
      |string|strings|syslog|termios|time|ucontext|unistd|wchar|wctype)\.h$""", re.X)

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def allowed_library(layer, header):
    for name, users in LIBRARIES.items():
        if header == name or name.endswith("/") and header.startswith(name):
            return layer in users
    return layer != "policy" and LIBC.match(header) or header in POLICY_HEADERS


def why_not(src, path, layer, bracket, header):
    """The reason why the file may not include the header, or None."""
    if header.startswith("tide/"):
        return None if layer == "include" or "include" in LAYERS[layer] else "not a user of tide.h"
    if bracket == "<":
        return None if allowed_library(layer, header) else f"{layer} does not use this library"
    if layer == "include":
        return "public headers stand alone"
    if (path.parent / header).is_file():
        owner = (path.parent / header).resolve().relative_to(src.resolve()).as_posix()
    elif (src / header).is_file():
        owner = header
    else:
        return "no such file under src/"
    folder = owner.split("/")[0]
    if folder == layer or folder in LAYERS[layer] or owner in LAYERS[layer]:
        return None
    return f"{layer} may include {', '.join(LAYERS[layer]) or 'libc only'}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__ + "/../..").resolve()
    src = root / "src"
    wrong, files, includes = [], 0, 0
    for path in sorted([*src.rglob("*.[ch]"), *(root / "include").rglob("*.h")]):
        inside = path.is_relative_to(src)
        layer = path.relative_to(src).parts[0] if inside else "include"
        files += 1
        if inside and layer not in LAYERS:
            wrong.append(f"{path.relative_to(root)}: src/{layer} is not in the table of layers")
            continue
        text = path.read_text()
        for found in INCLUDE.finditer(text):
            includes += 1
            reason = why_not(src, path, layer, *found.groups())
            if reason:
                line = text.count("\n", 0, found.start(1)) + 1
                wrong.append(f"{path.relative_to(root)}:{line}: {found[2]}: {reason}")
    print(*wrong, f"layers: {includes} includes in {files} files, {len(wrong)} wrong", sep="\n")
    return 1 if wrong or not files else 0


if __name__ == "__main__":
    sys.exit(main())
