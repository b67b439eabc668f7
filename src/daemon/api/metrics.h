/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /metrics: the daemon and its jobs in Prometheus' text format 0.0.4. Daemon's event loop only;
 * fed by speed.c, asked by routes.c.
 */
#pragma once

#include <stdint.h>

#define METRICS_TYPE    "text/plain; version=0.0.4; charset=utf-8"
#define METRICS_BUCKETS 12

struct node;
struct request;

/* What is counted, of the whole daemon; part of the node. */
struct metrics {
    uint64_t resizes, resize_sum_ns;
    uint64_t resize_bucket[METRICS_BUCKETS]; /* not cumulative; what is longer is in none */
};

/* A change of a job's threads was acknowledged by all of its agents after so long. */
void metrics_resized(struct node *n, uint64_t latency_ns);

/* The text, for @r's user to see; the caller frees. NULL: out of memory. */
char *metrics_text(const struct request *r);
