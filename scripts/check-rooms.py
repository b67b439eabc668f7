#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that no files of src/ go round in circles and that rooms stay small.

usage: scripts/check-rooms.py [--build DIR] [--verbose] [AREA…]

A file uses another if its object needs a symbol that the other's object defines (`nm`; static symbols
do not count). Files that use each other, directly or through others, form a circle: more than
CIRCLE_MAX files in one fail.

A room is a folder with C files, src/daemon/job for example; it holds at most ROOM_MAX files, and more than
ROOM_GOOD are named. A private header serves its own room alone: its name ends in _state.h, _private.h,
_internal.h or _dialect.h, or its first comment says "Private to this room". Includes of it from
elsewhere fail.

A struct of functions (a table of callbacks) lets a file call another without a symbol. --verbose lists
every table: its header, the files that fill it in, the files that call through it. Where the callee uses
its caller by symbols as well, the call through the table goes upwards: these edges are always listed, and
more than UPWARDS_MAX of them fail.

--verbose also prints, for each circle, every edge inside it with its symbols. AREA…: only these areas.
"""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CIRCLE_MAX = 3
ROOM_GOOD, ROOM_MAX = 15, 18
UPWARDS_MAX = 138  # as many as there are: a commit that leaves fewer lowers it

PRIVATE_NAME = re.compile(r"_(state|private|internal|dialect)\.h$")
PRIVATE_TEXT = re.compile(r"\bprivate to this room\b", re.I)
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)
COMMENT = re.compile(r"/\*.*?\*/", re.S)


def objects(build, src):
    """File below src/ -> its objects in the build tree."""
    found = collections.defaultdict(list)
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = (pathlib.Path(entry["directory"]) / entry["file"]).resolve()
        if path.is_relative_to(src):
            found[path.relative_to(src).as_posix()].append(build / entry["output"])
    return found


def area(file):
    return file.split("/")[0]


def symbols(build, src):
    """File -> symbols that it defines, file -> symbols that it needs."""
    files = {str(o): source for source, many in objects(build, src).items() for o in many if o.exists()}
    if not files:
        sys.exit(f"check-rooms: {build} holds no objects: build first")
    said = subprocess.run(["nm", "-A", "-g", "-P", *files], capture_output=True, text=True, check=True)
    defined, needed = collections.defaultdict(set), collections.defaultdict(set)
    for line in said.stdout.splitlines():
        name, _, rest = line.partition(": ")
        symbol, kind = rest.split()[:2]
        (needed if kind in "Uwv" else defined)[files[name]].add(symbol)
    return defined, needed


def graph(defined, needed):
    """file -> {file that it uses: symbols}. Programs may define the same symbol: the own area's counts."""
    owners = collections.defaultdict(list)
    for file, names in defined.items():
        for name in names:
            owners[name].append(file)
    uses = {file: collections.defaultdict(set) for file in defined.keys() | needed.keys()}
    for file, names in needed.items():
        for name in names:
            of_area = [o for o in owners[name] if area(o) == area(file)]
            for owner in of_area or owners[name]:
                if owner != file:
                    uses[file][owner].add(name)
    return uses


def components(uses):
    """The strongly connected components of the graph (Tarjan), without recursion."""
    index, low, on, stack, found = {}, {}, set(), [], []
    for root in sorted(uses):
        if root in index:
            continue
        work = [(root, iter(sorted(uses[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on.add(root)
        while work:
            file, rest = work[-1]
            for other in rest:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on.add(other)
                    work.append((other, iter(sorted(uses[other]))))
                    break
                if other in on:
                    low[file] = min(low[file], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[file])
                if low[file] == index[file]:
                    at = stack.index(file)
                    found.append(sorted(stack[at:]))
                    on -= set(stack[at:])
                    del stack[at:]
    return found


def shortest_path(uses, start, goal, inside):
    """Files from start to goal, both included, by the fewest edges; start may be the goal."""
    before, row = {}, [start]
    while row:
        following = []
        for file in row:
            for other in sorted(uses[file]):
                if other in inside and other not in before:
                    before[other] = file
                    following.append(other)
        if goal in before:
            path = [goal]
            while len(path) == 1 or path[-1] != start:
                path.append(before[path[-1]])
            return path[::-1]
        row = following
    return None


def told(uses, path):
    return path[0] + "".join(f" -> {b} ({min(uses[a][b])})" for a, b in zip(path, path[1:]))


def circles(uses, verbose, wanted, say):
    """Reports the circles that are too large; returns how many these are."""
    wrong = 0
    for files in components(uses):
        if len(files) <= CIRCLE_MAX:
            continue
        name = collections.Counter(map(area, files)).most_common(1)[0][0]
        if wanted and name not in wanted:
            continue
        inside = set(files)
        wrong += 1
        say(f"{name}: FAILED: circle of {len(files)} files: " + " ".join(files))
        path = min((shortest_path(uses, file, file, inside) for file in files), key=len)
        say(f"    shortest: {told(uses, path)}")
        for one in files * verbose:
            for other in sorted(inside & uses[one].keys()):
                say(f"    {one} -> {other} ({', '.join(sorted(uses[one][other]))})")
    return wrong


class Texts:
    """The sources, without their comments where code is looked for."""

    def __init__(self, src):
        self.raw = {p.relative_to(src).as_posix(): p.read_text() for p in sorted(src.rglob("*.[ch]"))}
        self.code = {file: COMMENT.sub(" ", text) for file, text in self.raw.items()}
        self.includes = {file: {self.resolve(file, i) for i in INCLUDE.findall(text)} - {None}
                         for file, text in self.raw.items()}

    def resolve(self, file, header):
        near = f"{file.rpartition('/')[0]}/{header}"
        return near if near in self.raw else header if header in self.raw else None

    def sees(self, header):
        """The files that include the header, directly or through others."""
        seen, before = {header}, 0
        while len(seen) > before:
            before = len(seen)
            seen |= {file for file, headers in self.includes.items() if headers & seen}
        return seen


def room(file):
    return file.rpartition("/")[0]


def private_includes(texts, say):
    """Reports includes of another room's private headers; returns (private headers, wrong includes)."""
    private = {file for file, text in texts.raw.items() if file.endswith(".h") and
               (PRIVATE_NAME.search(file) or PRIVATE_TEXT.search(" ".join(COMMENT.findall(text)[1:2])))}
    wrong = [(file, header) for file, headers in texts.includes.items()
             for header in sorted(headers & private) if room(file) != room(header)]
    for file, header in wrong:
        say(f"FAILED: {file} includes {header}, which is private to {room(header)}")
    return len(private), len(wrong)


def struct_bodies(code):
    for found in re.finditer(r"\bstruct (\w+)\s*\{", code):
        depth, at = 1, found.end()
        while depth and at < len(code):
            depth += {"{": 1, "}": -1}.get(code[at], 0)
            at += 1
        yield found[1], code[found.end():at]


def tables(texts):
    """Yields (struct, header, members) of the structs with functions in them."""
    callbacks = {name for code in texts.code.values()
                 for name in re.findall(r"typedef[^;]*?\(\*?\s*(\w+)\)\s*\(", code)}
    for header, code in texts.code.items():
        if header.endswith(".h"):
            for name, body in struct_bodies(code):
                members = set(re.findall(r"\(\*(?:const )?(\w+)\)\s*\(", body))
                members |= {m for kind, m in re.findall(r"\b(\w+)\s+\*?(\w+);", body) if kind in callbacks}
                if members:
                    yield name, header, members


def reaches(uses, start):
    seen, todo = set(), [start]
    while todo:
        for other in uses.get(todo.pop(), ()):
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return seen


def callback_edges(texts, uses, verbose, say):
    """Lists the tables of callbacks and the calls through them that go upwards; returns both counts.
    Says what to do where these calls are too many."""
    count, upwards = 0, 0
    for name, header, members in tables(texts):
        one_of = "|".join(sorted(members))
        fills = re.compile(rf"(?:\.|->)(?:{one_of})\s*=[^=]"
                           rf"|\bstruct {name} \w+(?:\[\w*\])?\s*=\s*\{{\s*[^0\s}}]")
        calls = re.compile(rf"(?:\.|->)(?:{one_of})\)?\s*\(")
        seers = [file for file in texts.sees(header) if file.endswith(".c")]
        named = re.compile(rf"\bstruct {name}\b")
        fillers = sorted(file for file in seers
                         if named.search(texts.code[file]) and fills.search(texts.code[file]))
        callers = sorted(file for file in seers if calls.search(texts.code[file]))
        count += 1
        if verbose:
            say(f"table: struct {name} ({header}: {', '.join(sorted(members))}),")
            say(f"    filled in by {' '.join(fillers) or 'nobody'}; called by {' '.join(callers) or 'nobody'}")
        below = {filler: reaches(uses, filler) for filler in fillers}
        for caller in callers:
            up = [filler for filler in fillers if filler != caller and caller in below[filler]]
            upwards += len(up)
            if up:
                say(f"upwards: {caller} calls {' '.join(up)} through struct {name}")
    if upwards > UPWARDS_MAX:
        say(f"FAILED: {upwards} calls upwards through tables, {UPWARDS_MAX} the limit. Let the lower file return what "
            "it found to its caller, or move what both files need below both. A call that has to go upwards raises "
            "UPWARDS_MAX in scripts/check-rooms.py, and its commit says why.")
    return count, upwards


def rooms(texts, say):
    sizes = collections.Counter(room(file) for file in texts.raw if file.endswith(".c"))
    wrong = 0
    for name, size in sorted(sizes.items()):
        wrong += size > ROOM_MAX
        if size > ROOM_GOOD:
            say(f"src/{name}: {'FAILED: ' * (size > ROOM_MAX)}{size} files in one room, "
                f"{ROOM_GOOD} are good, {ROOM_MAX} the limit")
    return len(sizes), wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build-check/gcc",
                        help="a finished build tree (build-check/gcc)")
    parser.add_argument("--src", type=pathlib.Path, default=ROOT / "src", help="the sources")
    parser.add_argument("--verbose", action="store_true", help="every edge of circles, every table")
    parser.add_argument("area", nargs="*", help="circles of these areas only")
    options = parser.parse_args()
    src = options.src.resolve()
    uses = graph(*symbols(options.build.resolve(), src))
    texts = Texts(src)
    wrong = circles(uses, options.verbose, options.area, print)
    room_count, large = rooms(texts, print)
    private, foreign = private_includes(texts, print)
    table_count, upwards = callback_edges(texts, uses, options.verbose, print)
    failed = wrong + large + foreign + (upwards > UPWARDS_MAX)
    print(f"rooms: {len(uses)} files in {room_count} rooms, {sum(map(len, uses.values()))} uses; "
          f"{wrong} circles of more than {CIRCLE_MAX} files; {private} private headers, {foreign} "
          f"foreign includes of them; {table_count} tables of callbacks, {upwards} calls upwards, "
          f"{UPWARDS_MAX} the limit; {failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
