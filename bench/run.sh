#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The benchmarks of docs/benchmarks.md, one after the other, then the report: about two hours on 2 cores. As
# root, those with containers, of energy (energy.sh) and of elastic clusters (cluster.sh), about five hours more.
# Not those of other runtimes (runtimes.py, `make bench-runtimes`); paired.py only with TIDE_OLD_BUILD.
set -eu
cd "$(dirname "$0")/.."
py=${TIDE_BENCH_PYTHON:-.venv/bin/python}
$py bench/micro.py
$py bench/decide.py
$py bench/kube.py
$py bench/simulate.py
$py bench/latency.py
$py bench/throughput.py --case idle
$py bench/throughput.py --case held --max 8 --threads 1
$py bench/throughput.py --case held --max 8 --threads 2
$py bench/throughput.py --case held --max 64 --threads 2
$py bench/throughput.py --case orphaned --models mlp,attention
$py bench/share.py --jobs 4
$py bench/share.py --jobs 4 --against pinned
$py bench/share.py --jobs 4 --against no-slices
$py bench/share.py --jobs 2
$py bench/share.py --jobs 2 --placement exclusive
$py bench/gain.py
$py bench/promise.py
$py bench/sockets.py
$py bench/replay.py
$py bench/stalls.py
$py bench/tfnode_start.py
[ -z "${TIDE_OLD_BUILD:-}" ] || $py bench/paired.py --old "$TIDE_OLD_BUILD" # the build tree of an older commit
[ "$(id -u)" = 0 ] || $py bench/elastic_pause.py # as root with the others of clusters
if [ "$(id -u)" = 0 ] && command -v dockerd > /dev/null; then
    $py bench/restore.py
    $py bench/containers.py
    $py bench/container_queue.py
fi
if [ "$(id -u)" = 0 ] && [ -d /sys/fs/cgroup/cpu ]; then # control groups of version 1
    $py bench/small_container.py
fi
if [ "$(id -u)" = 0 ]; then
    bench/energy.sh
    exec bench/cluster.sh
fi
$py bench/report.py
