/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random numbers of generated workloads: every draw depends on (seed, attribute, index of the job)
 * and on nothing else. So a new attribute, or another distribution for one, changes no other
 * attribute and no other job. SplitMix64 (Steele, Lea, Flood 2014) is good enough for workloads,
 * but not for secrets. Any thread, pure; used by workload.c and scenario.c.
 */
#pragma once

#include "sim/input/value.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rng {
    uint64_t state;
};

/* The generator of one draw; @attribute names the drawn field ("work"). */
struct rng rng_at(uint64_t seed, const char *attribute, uint64_t index);

uint64_t rng_next(struct rng *rng);
double rng_unit(struct rng *rng); /* 0 <= x < 1, 53 bits */

enum dist_kind {
    DIST_FIXED,
    DIST_UNIFORM,
    DIST_LIST, /* with shares */
    DIST_NORMAL,
    DIST_LOGNORMAL,
    DIST_EXPONENTIAL,
    DIST_PARETO, /* bounded */
    DIST_KIND_MAX
};

/* A distribution of amounts in the unit that a value's type counts in. */
struct dist {
    enum dist_kind kind;
    double a;      /* fixed value; uniform, Pareto: least; (log)normal, exponential: mean */
    double b;      /* uniform, Pareto: most; normal: standard deviation; lognormal: sigma */
    double c;      /* Pareto: alpha */
    double *value; /* list */
    double *share; /* list: cumulated, the last is the sum */
    size_t count;
};

/* free() frees the list. */
void dist_done(struct dist *dist);

/* Draws once; returns a value of @type (value_round). Uniform whole numbers include both ends. */
int64_t dist_draw(const struct dist *dist, const struct value_type *type, struct rng *rng);
