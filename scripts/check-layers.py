#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks every #include against the table of layers (HACKING.md, "Where things go").

usage: scripts/check-layers.py [ROOT]
"""
import argparse
import pathlib
import re
import sys

# Folder of src/ -> the folders of src/ that it may include; "include" is include/tide.
LAYERS = {
    "base": (),
    "proto": ("base",),
    "policy": ("base",),
    "decider": ("base", "policy"),
    "power": ("base",),
    "agent": ("base", "proto", "include"),
    "host": ("base", "power"),
    "edge": ("base", "power", "host"),
    "unit": ("base", "power", "host", "edge"),
    "hub": ("base", "power", "host", "edge"),
    "gate": ("base", "host"),
    "daemon": ("base", "proto", "policy", "decider", "power", "host"),
    "sim": ("base", "policy", "decider"),
    "lib": ("base", "proto", "include", "agent/program_api.h"),
    "runc": ("base",),
    "slurm": ("base",),
    "dlb": ("base", "include"),
    "tfnode": ("base", "agent/program_api.h"),
    "kube": ("base", "policy", "power", "host"),
    "pods": ("base", "proto", "host", "runc/control_dir.h"),
    "cli": ("base", "proto", "policy", "power", "host", "sim"),
}

# Rooms inside a folder, lowest first: a file includes headers of its own room, of those before it and of the
# folder itself. The folder's own sources stand above all rooms, its own headers below them.
ROOMS = {
    "agent": ("process", "gate", "control", "runtimes", "sockets"),
    "daemon": ("job", "confine", "energy", "link", "plan", "peers", "containers", "record", "api"),
    "kube": ("object", "view", "capacity", "grow", "core", "api", "shell", "serve", "inject", "kubectl"),
    "cli": ("why", "remote", "document", "docker", "doctor", "launch", "sim", "views", "commands", "power", "dashboard", "top"),
    "policy": ("core", "model", "division", "rules"),
    "power": ("measure", "model", "cap", "division", "calendar", "site", "rules"),
    "host": ("proc", "cgroup", "power", "trust", "net", "engine"),
    "unit": ("device", "switch", "machine", "area"),
    "hub": ("store", "compile", "trust", "people", "tree", "serve"),
    "sim": ("engine", "input", "report"),
}

# Headers from outside of the C library, and who may use them: everything not listed is libc's.
LIBRARIES = {
    "ini.h": ("host",),
    "microhttpd.h": ("host",),
    "jansson.h": ("daemon", "decider", "gate", "cli", "host", "sim", "kube", "pods", "edge", "unit", "hub"),
    "systemd/": ("daemon", "gate", "host", "kube", "pods", "edge", "unit", "hub", "cli"),
    "crypt.h": ("hub",),
    "curses.h": ("cli",),
    "ncurses.h": ("cli",),
    "ncursesw/": ("cli",),
    "libsmartcols/": ("cli",),
    "libsmartcols.h": ("cli",),
    "resolv.h": ("cli",),
    "libintl.h": ("cli",),
    "curl/": ("host", "kube"),
    "sqlite3.h": ("daemon", "edge", "hub"),
    "gnutls/": ("kube", "host"),
    "yaml.h": ("kube", "hub"),
    "mosquitto.h": ("edge", "hub"),
    "mqtt_protocol.h": ("edge",),
    "modbus/": ("unit",),
    "libpq-fe.h": ("hub",),
    "slurm/": ("slurm",),
}

# Folders of pure code.
PURE = ("policy", "power")

# Headers that these may include: nothing with a clock, I/O, allocation or a random number in it.
POLICY_HEADERS = {
    "assert.h", "errno.h", "inttypes.h", "limits.h", "math.h", "stdbool.h", "stddef.h", "stdint.h",
    "string.h",
}

LIBC = re.compile(
    r"""(sys|linux|asm|arpa|net|netinet|bits)/[\w/]+\.h$
    | (assert|byteswap|ctype|dirent|dlfcn|elf|endian|errno|fcntl|fnmatch|getopt|glob|grp|inttypes
      |langinfo|libgen|limits|link|locale|malloc|math|netdb|paths|poll|pthread|pwd|sched|semaphore
      |signal|spawn|stdalign|stdarg|stdatomic|stdbool|stddef|stdint|stdio|stdlib|stdnoreturn
      |string|strings|syslog|termios|time|ucontext|unistd|wchar|wctype)\.h$""", re.X)

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def allowed_library(layer, header):
    for name, users in LIBRARIES.items():
        if header == name or name.endswith("/") and header.startswith(name):
            return layer in users
    return layer not in PURE and LIBC.match(header) or header in POLICY_HEADERS


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


def rank(path):
    """Where a file of src/ stands in its folder; both ends are the folder's own files."""
    order = ROOMS.get(path.parts[0], ())
    if len(path.parts) < 3:
        return -1 if path.suffix == ".h" else len(order)
    return order.index(path.parts[1])


def upwards(src, path, header):
    """Whether the include goes up among the rooms of one folder."""
    own = path.relative_to(src)
    other = path.parent / header if (path.parent / header).is_file() else src / header
    if not other.is_file() or other.resolve().relative_to(src).parts[0] != own.parts[0]:
        return False
    return rank(other.resolve().relative_to(src)) > rank(own)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("root", nargs="?", default=__file__ + "/../..", type=pathlib.Path)
    options = parser.parse_args()
    root = options.root.resolve()
    src = root / "src"
    wrong, files, includes = [], 0, 0
    for path in sorted([*src.rglob("*.[ch]"), *(root / "include").rglob("*.h")]):
        inside = path.is_relative_to(src)
        layer = path.relative_to(src).parts[0] if inside else "include"
        files += 1
        if inside and layer not in LAYERS:
            wrong.append(f"{path.relative_to(root)}: src/{layer} is not in the table of layers")
            continue
        if inside and len(path.relative_to(src).parts) > 2 and \
                path.relative_to(src).parts[1] not in ROOMS.get(layer, ()):
            wrong.append(f"{path.relative_to(root)}: this room is not in the table of rooms")
            continue
        text = path.read_text()
        for found in INCLUDE.finditer(text):
            includes += 1
            reason = why_not(src, path, layer, *found.groups())
            at = f"{path.relative_to(root)}:{text.count(chr(10), 0, found.start(1)) + 1}: {found[2]}"
            if reason:
                wrong.append(f"{at}: {reason}")
            elif inside and found[1] == '"' and upwards(src, path, found[2]):
                wrong.append(f"{at}: goes up, the order is {', '.join(ROOMS[layer])}")
    print(*wrong, f"layers: {includes} includes in {files} files, {len(wrong)} wrong", sep="\n")
    return 1 if wrong or not files else 0


if __name__ == "__main__":
    sys.exit(main())
