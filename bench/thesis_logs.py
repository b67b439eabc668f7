#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns the thesis scheduler's logs and request lists into what bench/reproduction.py reads.

    bench/thesis_logs.py DIRECTORY-WITH-THE-LOGS

writes bench/scenarios/thesis/: requests-*.csv, traces for `tide sim` (when each job came and what it
asked for), and measured-*.csv, one line a job of what happened: seconds since the first request,
cores at the start, and each growth as time:cores. A log names threads of TensorFlow's inter-op and
intra-op pools; their sum is what the scheduler reserved.
"""

import csv
import datetime
import pathlib
import sys

OUT = pathlib.Path(__file__).resolve().parent / "scenarios" / "thesis"
GROWTHS = 8  # more than any log has


def seconds(text):
    return datetime.datetime.strptime(text, "%Y-%m-%d %H:%M:%S.%f").timestamp()


def cores(row, prefix):
    return int(row[f"{prefix}_Inter" if "Reas" in prefix else f"Inter_{prefix}"]) + \
        int(row[f"{prefix}_Intra" if "Reas" in prefix else f"Intra_{prefix}"])


def read_log(path):
    rows = list(csv.DictReader(path.open()))
    zero = min(seconds(row["Start_Request"]) for row in rows)
    for row in sorted(rows, key=lambda row: int(row["Container"])):
        growths = [f"{seconds(row[key]) - zero:.1f}:{cores(row, key)}"
                   for key in (f"Reassigment_{i}" for i in range(1, GROWTHS + 1)) if row.get(key)]
        yield [int(row["Container"]) + 1, f"{seconds(row['Start_Request']) - zero:.1f}",
               f"{seconds(row['Execution_Start']) - zero:.1f}",
               f"{seconds(row['Execution_Finish']) - zero:.1f}",
               cores(row, "Parallelism_Request"), cores(row, "Parallelism_Initial"),
               " ".join(growths)]


def read_requests(path):
    """A line's gap is waited before its job; the first only delays the whole list."""
    arrival = 0.0
    for i, line in enumerate(path.read_text().split()):
        _, job, _, request, gap = line.split(",")
        arrival += float(gap.strip("[]")) if i else 0
        yield [f"{arrival:.3f}s", f"job-{int(job) + 1}", request]


def write(name, header, rows):
    with (OUT / name).open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def main():
    logs = pathlib.Path(sys.argv[1])
    OUT.mkdir(parents=True, exist_ok=True)
    for path in sorted(logs.glob("*-requests.txt")):
        name = path.name.removesuffix("-requests.txt")
        write(f"requests-{name}.csv", ["arrival", "name", "request"], read_requests(path))
    # The run of 32 jobs has no list; its log shows one request every 20 s.
    write("requests-prueba2-32.csv", ["arrival", "name", "request"],
          ([f"{20 * i}s", f"job-{i + 1}", 8] for i in range(32)))
    for path in sorted(logs.glob("prueba*.csv")):
        write(f"measured-{path.name}", ["job", "arrival", "start", "finish", "request", "cores",
                                        "growths"], read_log(path))


if __name__ == "__main__":
    main()
