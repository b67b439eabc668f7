/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generated jobs: how often they come and what they are like. A workload is read only, a generator
 * is one run through it. Any thread; used by scenario.c and source.c.
 */
#pragma once

#include "sim/input/jobnode.h"

#define WORKLOAD_JOBS_MAX INT64_C(10000000)
#define WORKLOAD_MIX_MAX  256

/* One kind of jobs. */
struct mix {
    double share; /* cumulated */
    struct job_spec same;
    struct job_draws draws;
};

struct workload {
    uint64_t jobs;      /* at most this many jobs, */
    uint64_t until_ns;  /* and none that arrives later */
    uint64_t start_ns;  /* arrival of the first */
    struct dist gap;    /* between bursts */
    struct dist burst;  /* jobs in a burst */
    struct dist within; /* gap in a burst */
    struct mix *mix;
    size_t mix_count;
};

/*
 * Reads the scenario's member "workload"; jobs begin with the fields of @defaults. 0, or -EINVAL,
 * -ENOMEM with the reason.
 */
int workload_read(const struct node *node, const struct job_spec *defaults,
                  const struct job_context *context, struct workload **ret_workload,
                  struct error *err);
struct workload *workload_free(struct workload *workload); /* NULL */

struct generator {
    const struct workload *workload;
    uint64_t seed;
    uint64_t index;      /* index of the next job */
    uint64_t burst;      /* index of the burst */
    uint64_t burst_left; /* jobs of the burst still to come */
    uint64_t now_ns;
};

/* Returns the next job; the caller sets its id. 1, 0 at the end, or -errno with the reason. */
int generator_next(struct generator *generator, const struct job_context *context,
                   struct sim_job *ret_job, struct error *err);
