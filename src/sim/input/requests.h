/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Servers of a scenario: jobs whose work is requests, which come at recorded or generated times.
 *
 *   servers[0] ─▶ struct server_spec, read only ─▶ struct server_requests of a seed ─▶ sim_run()
 *
 * The same seed makes the same requests under every policy. Any thread; a server_requests belongs
 * to one. Used by scenario.c and source.c.
 */
#pragma once

#include "sim/input/jobnode.h"

#define SERVERS_MAX  64      /* of one scenario */
#define REQUESTS_MAX 1000000 /* of one server */

enum requests_kind {
    REQUESTS_RATE,   /* by chance, so many a second */
    REQUESTS_BURSTS, /* of another rate in the first part of each period */
    REQUESTS_SWEEP,  /* of a rate that goes to another one and back in each period */
    REQUESTS_COUNTS, /* so many in each interval, at times by chance */
    REQUESTS_TIMES,  /* at these */
};

struct server_spec {
    struct sim_job job; /* but for its requests and their work */
    size_t index;       /* in the scenario, from 0 */
    enum requests_kind kind;
    double rate, other;                    /* requests a second */
    uint64_t until_ns, every_ns, burst_ns; /* end of arrivals; period or interval; first part */
    struct dist demand;                    /* work of a request */
    uint64_t *times_ns, *works_ns;         /* works_ns NULL: drawn */
    uint32_t *counts;
    size_t count; /* entries of times, or of counts */
};

/*
 * Reads one server, over the fields of @defaults; files are looked for beside @scenario_file. 0, or
 * -errno with the reason: file, line and field.
 */
int server_spec_read(const struct node *node, const struct job_spec *defaults,
                     const struct job_context *context, const char *scenario_file,
                     struct server_spec *ret, struct error *err);
void server_spec_done(struct server_spec *spec);

/* Whether another seed gives other requests. */
bool server_spec_is_random(const struct server_spec *spec);

struct server_requests {
    struct sim_requests requests; /* in one block with its arrays */
    uint64_t work_ns;             /* of all */
};

/* Returns 0, -ENOMEM, or -EINVAL: none, or too many. The caller gives the result to free(). */
int server_requests_make(const struct server_spec *spec, uint64_t seed,
                         struct server_requests **ret, struct error *err);
