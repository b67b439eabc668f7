#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes files as a C table of `struct embedded_file` (src/host/net/embedded.h).

usage: scripts/embed.py OUT FILE…

The first file is the page itself, which also answers "/". The ETag is a hash of the bytes.
"""
import hashlib
import pathlib
import sys

TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
LINE = 4096  # bytes of the file in one string of the source


def literal(data):
    """C strings that hold @data. An octal escape has three digits, so that none runs into the next byte."""
    def one(byte):
        if byte in b'"\\?':  # "?": no trigraphs
            return f"\\{chr(byte)}"
        return chr(byte) if 0x20 <= byte < 0x7f else f"\\{byte:03o}"
    parts = [data[at:at + LINE] for at in range(0, len(data), LINE)] or [b""]
    return "\n".join('    "' + "".join(map(one, part)) + '"' for part in parts)


def main():
    out, *files = map(pathlib.Path, sys.argv[1:])
    rows = []
    for file in files:
        data = file.read_bytes()
        if b"\0" in data:
            sys.exit(f"embed: {file}: holds a zero byte, and the server sends text alone")
        etag = hashlib.sha256(data).hexdigest()[:32]
        rows.append(f'    {{"/{file.name}", "{TYPES[file.suffix]}", "\\"{etag}\\"",\n'
                    f'{literal(data)},\n    {len(data)}}},\n')
    out.write_text('/* Made by scripts/embed.py. */\n#include "host/net/embedded.h"\n\n'
                   '#pragma GCC diagnostic ignored "-Woverlength-strings"\n'
                   "const struct embedded_file embedded_page[] = {\n" + "".join(rows) +
                   "    {0},\n};\n")


main()
