#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The measurements of energy, one after the other, then the report: half an hour on 2 cores that do nothing else. As root:
# tided reads the plant's counters, which are nobody else's. TIDE_ENERGY_DATA: see energy_model.py --help.
set -eu
cd "$(dirname "$0")/.."
py=/usr/bin/python3 # the plant's plugs need Debian's paho; trainings run in harness.PYTHON
$py bench/energy.py division
$py bench/energy.py machine
$py bench/energy_attribution.py
[ -z "${TIDE_ENERGY_DATA:-}" ] || $py bench/energy_model.py
# What 10,000 units will cost is written down before they are there.
$py bench/energy_load.py measure 100 300 1000 3000
$py bench/energy_load.py predict 10000
$py bench/energy_load.py measure 10000
$py bench/energy_load.py check
$py bench/report.py
