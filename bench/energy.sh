#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The measurements of energy, one after the other, then the report: about five hours on 2 cores that do nothing else.
#
#   bench/energy.sh [ROW…]     these alone; without: all that today's programs have not measured yet, so that a run
#                              that was ended goes on where it was
#
# As root: tided reads the plant's counters, which are nobody else's. TIDE_ENERGY_DATA: see energy_model.py --help.
set -eu
cd "$(dirname "$0")/.."
py=/usr/bin/python3 # a page's probe needs Debian's paho; trainings and tests run in harness.PYTHON
rows="division area machine unit load predicted hub page cap cap-no-limit work attribution kills kills-postgres model"

# The result that a row writes, in bench/results.
result() {
    case $1 in
    cap) echo energy-cap-power-limit ;;
    cap-no-limit) echo energy-cap-no-power-limit ;;
    predicted) echo energy-load-predicted ;;
    hub | page) echo "energy-load-$1" ;;
    *) echo "energy-$1" ;;
    esac
}

measure() {
    case $1 in
    division | machine | unit | kills) $py bench/energy.py "$1" ;;
    area) $py bench/energy_area.py ;;
    kills-postgres) $py bench/energy.py kills --store postgres ;;
    work) $py bench/energy_work.py ;;
    attribution) $py bench/energy_attribution.py ;;
    cap) $py bench/energy_cap.py ;;
    cap-no-limit) $py bench/energy_cap.py --no-limit ;;
    load)
        $py bench/energy_load.py measure 100 300 1000 3000 100 300 1000 3000
        # fewer units at the rate of 10,000: what the rate costs, and what their number
        $py bench/energy_load.py measure --period 3 3000 3000
        $py bench/energy_load.py measure --period 1 300 1000 300 1000 ;;
    predicted) # what 10,000 units will cost is written down before they are there
        $py bench/energy_load.py predict 10000
        $py bench/energy_load.py measure 10000 10000 10000 10000 10000 10000
        $py bench/energy_load.py check ;;
    hub) # a real hub behind the broker; a day's outage of all units
        $py bench/energy_load.py hub 1000 3000 10000
        $py bench/energy_load.py drain 1000 10000 ;;
    page)
        $py bench/energy_load.py page 10000
        $py bench/energy_load.py page 10000 --draws ;;
    model) [ -z "${TIDE_ENERGY_DATA:-}" ] || $py bench/energy_model.py ;;
    *)
        echo "energy.sh: no row '$1': $rows" >&2
        exit 2 ;;
    esac
}

if [ $# -gt 0 ]; then
    for row; do measure "$row"; done
else
    for row in $rows; do
        $py bench/stamp.py "$(result "$row")" || measure "$row"
    done
fi
$py bench/energy_scalability.py
$py bench/report.py
