/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /metrics: the daemon and its jobs in Prometheus' text format 0.0.4. Daemon's event loop only;
 * asked by routes_record.c.
 */
#pragma once

#include <stdio.h>

#define METRICS_BUCKETS 12

struct request;

extern const struct job_observer metrics_observer; /* counts resizes */

/* The text with the jobs that @r's user may see; the caller frees it. NULL: out of memory. */
char *metrics_text(const struct request *r);

/* In metrics_power.c: writes those of power and energy. */
void metrics_power(FILE *f, const struct request *r);
