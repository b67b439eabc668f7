#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# All measurements of elastic clusters (`make bench-cluster`), then the report.
set -eu
cd "$(dirname "$0")/.."
py=${TIDE_BENCH_PYTHON:-.venv/bin/python}
$py bench/cluster_accuracy.py --case sync
$py bench/cluster_accuracy.py --case async
$py bench/elastic_pause.py
$py bench/cluster_quota.py
$py bench/kube_response.py
$py bench/worker_start.py
$py bench/cluster_split.py
$py bench/kube_scale.py
$py bench/cluster_mix.py
$py bench/cluster_mix.py --length original
$py bench/cluster_curves.py
$py bench/cluster_simulated.py
$py bench/report.py
