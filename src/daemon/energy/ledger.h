/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accounts of energy: of the machine, of its parts, and of each job. All are sums of divisions
 * (power/measure/attribution.h), so that the parts are the machine at any time.
 *
 * A job's watts tell what its program does. So the figures that anybody is shown of a job change at
 * the end of a window of LEDGER_WINDOW_NS alone, together with its energy, from which watts could
 * be told.
 *
 * Daemon's event loop only; written by meter.c, read by the views and the record.
 */
#pragma once

#include "power/measure/attribution.h"
#include "power/measure/range.h"

#include <stdint.h>

#define LEDGER_WINDOW_NS UINT64_C(10000000000)

struct daemon;
struct job;

/* The machine's account of energy: jobs + system + idle + unattributed == machine, in µJ. */
struct ledger {
    struct energy_range machine, jobs, system, idle, unattributed;
    uint64_t gap_ns; /* time in which nothing was known of the machine */
};

/*
 * Adds the division of @machine: its jobs are all of @d's, in the order of the table. Nothing is
 * known of @gap_ns of the interval. A job whose part is unknown has a gap of the whole interval.
 */
void ledger_add(struct daemon *d, struct ledger *l, const struct energy_range *machine,
                const struct attribution *division, uint64_t interval_ns, uint64_t gap_ns);

/* Nothing is known of an interval. */
void ledger_gap(struct daemon *d, struct ledger *l, uint64_t interval_ns);
