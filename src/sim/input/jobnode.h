/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs and distributions as JSON objects of a scenario. Any thread, pure; used by scenario.c and
 * workload.c.
 */
#pragma once

#include "sim/input/document.h"
#include "sim/input/jobspec.h"
#include "sim/input/random.h"

#define DIST_LIST_MAX 4096 /* entries */

/* A field whose value is drawn for each job of one kind. */
struct draw {
    enum job_key key;
    struct dist dist;
};

/* The fields that one object gives to many jobs. */
struct job_draws {
    struct draw draw[JOB_KEY_MAX];
    size_t count;
};

/*
 * Reads the fields of @object over those that *spec has. The caller reads the keys in @more (ended
 * by NULL, may be NULL); other keys are refused. A field whose value is a distribution goes to
 * *draws, or is refused when that is NULL. 0, or -EINVAL, -ENOMEM with the reason.
 */
int job_node_read(const struct node *object, const char *const *more,
                  const struct job_context *context, struct job_spec *spec, struct job_draws *draws,
                  struct error *err);
void job_draws_done(struct job_draws *draws);

/* Reads a plain value, or an object with one member, named for the distribution; the same. */
int dist_node_read(const struct node *node, const struct value_type *type, struct dist *ret_dist,
                   struct error *err);
