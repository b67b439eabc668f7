#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The measurements of energy, one after the other, then the report: about three hours on 2 cores that do nothing else. As root:
# tided reads the plant's counters, which are nobody else's. TIDE_ENERGY_DATA: see energy_model.py --help.
set -eu
cd "$(dirname "$0")/.."
py=/usr/bin/python3 # a page's probe needs Debian's paho; trainings and tests run in harness.PYTHON
$py bench/energy.py division
$py bench/energy.py machine
$py bench/energy.py unit
$py bench/energy.py kills
$py bench/energy_attribution.py
$py bench/energy_cap.py
$py bench/energy_cap.py --no-limit
$py bench/energy_work.py
$py bench/energy_area.py
[ -z "${TIDE_ENERGY_DATA:-}" ] || $py bench/energy_model.py
# What 10,000 units will cost is written down before they are there.
$py bench/energy_load.py measure 100 300 1000 3000 100 300 1000 3000
$py bench/energy_load.py predict 10000
$py bench/energy_load.py measure 10000 10000 10000 10000 10000 10000
$py bench/energy_load.py check
# A real hub behind the broker; a day's outage of all units; a page that is open.
$py bench/energy_load.py hub 1000 3000 10000
$py bench/energy_load.py drain 1000 10000
$py bench/energy_load.py page 10000
$py bench/energy_load.py page 10000 --draws
$py bench/energy_scalability.py
$py bench/report.py
