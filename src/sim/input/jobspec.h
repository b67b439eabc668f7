/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job's fields as users write them, in a scenario's objects and as a trace's columns: one table
 * for all readers, and the conversion to the simulator's job. Any thread; used by the readers of
 * scenarios and traces.
 */
#pragma once

#include "sim/engine/sim.h"
#include "sim/input/speedup.h"
#include "sim/input/value.h"

#include <stdbool.h>

enum job_key {
    JOB_KEY_NAME,
    JOB_KEY_ARRIVAL,
    JOB_KEY_WORK,    /* time with one core */
    JOB_KEY_TIME,    /* time with its request, instead of work */
    JOB_KEY_SPEEDUP, /* parallel fraction, or the name of a curve */
    JOB_KEY_TOLD_SPEEDUP,
    JOB_KEY_ESTIMATE,
    JOB_KEY_ESTIMATE_FACTOR,
    JOB_KEY_ESTIMATE_ERROR,
    JOB_KEY_WASTE,
    JOB_KEY_IDLE,
    JOB_KEY_SERIAL,
    JOB_KEY_SERIAL_EVERY,
    JOB_KEY_REQUEST,
    JOB_KEY_MINIMUM,
    JOB_KEY_MAXIMUM,
    JOB_KEY_THREADS,
    JOB_KEY_MEMORY,
    JOB_KEY_DEVICES,
    JOB_KEY_USER,
    JOB_KEY_MALLEABILITY,
    JOB_KEY_CLASS,
    JOB_KEY_WEIGHT,
    JOB_KEY_PRIORITY,
    JOB_KEY_PREEMPTIBLE,
    JOB_KEY_DEADLINE, /* since the scenario's start */
    JOB_KEY_SLACK,    /* deadline as a multiple of the time with its request */
    JOB_KEY_START_WORK,
    JOB_KEY_START_COST,
    JOB_KEY_RESIZE_COST,
    JOB_KEY_PAUSE_COST,
    JOB_KEY_MAX
};

const char *job_key_name(enum job_key key);

/* Returns the key called @name, or -1. */
int job_key_find(const char *name);

/* Returns the type of a key's value; for JOB_KEY_NAME and keys that name a curve, without words. */
const struct value_type *job_key_type(enum job_key key);

#define JOB_CURVES_MAX 256 /* of one scenario */

/* A named curve of a scenario. */
struct named_curve {
    char name[SIM_NAME_MAX];
    struct sim_curve *curve;
};

/* The fields of one job: those in `given` have a value. */
struct job_spec {
    char name[SIM_NAME_MAX];
    uint32_t given;             /* 1 << key */
    int64_t value[JOB_KEY_MAX]; /* of a curve's name: -1 - its index, see job_key_type */
};

/* The data that turns fields into jobs; the curves outlive the jobs. */
struct job_context {
    uint32_t cores;
    const struct named_curve *curves;
    size_t curve_count;
    struct speedup_set *fractions; /* the caller's own set: one per thread */
};

/*
 * Sets one field from a text (a trace's cell, a scenario's string). Returns 0 or -EINVAL with a
 * reason; an empty text is refused.
 */
int job_spec_set(struct job_spec *spec, const struct job_context *context, enum job_key key,
                 const char *text, struct error *err);

/*
 * Makes the job of the fields; id and, if the fields have none, name are left to the caller.
 * Returns 0, or -EINVAL, -ENOMEM, -E2BIG with a reason that begins with the field: "request: 3 is
 * …".
 */
int job_spec_resolve(const struct job_spec *spec, const struct job_context *context,
                     struct sim_job *ret_job, struct error *err);

/*
 * Drops inherited defaults that contradict the fields in @own, a mask like `given`: the job's work
 * displaces an inherited time, its slack an inherited deadline.
 */
void job_spec_displace(struct job_spec *spec, uint32_t own);

static inline bool job_spec_has(const struct job_spec *spec, enum job_key key)
{
    return spec->given & UINT32_C(1) << key;
}

static inline void job_spec_put(struct job_spec *spec, enum job_key key, int64_t value)
{
    spec->value[key] = value;
    spec->given |= UINT32_C(1) << key;
}
