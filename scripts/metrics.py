#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/reference-metrics.md from the sources: each metric's name, type and one line.

usage: scripts/metrics.py [--check]     --check: status 1 if the page says anything else than the sources
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/reference-metrics.md"
PROGRAMS = (("tided", "`curl --unix-socket /run/tide/api.sock http://localhost/metrics`; Prometheus reads a file of it ([dashboard.md](dashboard.md)). Those of a "
             "job have the labels `job`, its id, and `name`, and are those of jobs that the asker may see", "src/daemon"),
            ("tide-kube", "`/metrics` of 127.0.0.1:8080, another address with `--metrics`", "src/kube/serve"),
            ("tide-kube inject", "`/metrics` of 127.0.0.1:8081, another address with `--metrics`", "src/kube/inject"),
            ("tide-power", "`/metrics` of the port on loopback that the key `metrics` names; in the chart 9465", "src/unit"),
            ("tide-hub", "`/metrics` of its address, for its users", "src/hub"))
HEAD = """# Metrics

In Prometheus' text format, made from the sources by `scripts/metrics.py`. Dashboards and rules that use them are in `PREFIX/share/threadtide/grafana` and
`prometheus`. Programs also tell `process_cpu_seconds_total` and `process_resident_memory_bytes` of themselves. What is not known has no line, and never reads 0.
"""
METRIC = re.compile(r'"((?:tide|kepler)_[a-z0-9_]+)",\s*"(gauge|counter|histogram)",\s*((?:"(?:[^"\\]|\\.)*"\s*)+)')


def text_of(literals):
    """The text of C's string literals that stand side by side."""
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literals)).replace('\\"', '"')


def metrics(folder):
    """(name, type, text) of the metrics in a folder's sources, by name."""
    found = {}
    for path in sorted((ROOT / folder).rglob("*.c")):
        for name, kind, literals in METRIC.findall(path.read_text()):
            found[name] = (name, kind, text_of(literals))
    return [found[name] for name in sorted(found)]


def page():
    lines = [HEAD]
    for program, where, folder in PROGRAMS:
        rows = metrics(folder)
        if rows:
            lines += [f"## {program}", "", f"Where: {where}.", "", "| metric | type | is |", "|---|---|---|"]
            lines += [f"| `{name}` | {kind} | {text.rstrip('.')} |" for name, kind, text in rows]
            lines.append("")
    return "\n".join(lines)


def main():
    if sys.argv[1:] == ["--check"]:
        if not PAGE.exists() or PAGE.read_text() != page():
            sys.exit(f"{PAGE.relative_to(ROOT)} is not what the sources say: scripts/metrics.py writes it anew")
    elif sys.argv[1:]:
        sys.exit("usage: scripts/metrics.py [--check]")
    else:
        PAGE.write_text(page())


if __name__ == "__main__":
    main()
