/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Divides the energy that a machine used in one interval among its jobs, the system (processes of
 * no job), idling, and what can be given to nobody. In integers, and exactly: idle + system +
 * unattributed + Σ jobs == machine, at every interval.
 *
 * Idle is the model's power at no load, never a residual. The rest is the machine's dynamic energy;
 * it is divided by CPU time × frequency, which is the Aumann–Shapley value of any curve of the
 * total load. Each part's bounds are what it would cost as the first and as the last load under the
 * model's curve, widened by the errors of the source and of the model: for a concave or a convex
 * curve, the Shapley value of the parts lies between these two.
 *
 * Pure; any thread; O(jobs).
 */
#pragma once

#include "power/measure/range.h"

#include <stdbool.h>

#define ATTRIBUTION_JOBS_MAX 512

struct watts; /* of power/model, the room above */

struct attribution_load {
    uint64_t id;             /* the caller's */
    uint64_t cpu_ns;         /* CPU time in the interval */
    uint32_t speed_permille; /* of the CPUs that it ran on; 1000: base frequency */
};

struct attribution_input {
    struct energy_range machine; /* basis UNKNOWN: all that is below stays UNKNOWN */
    uint64_t interval_ns;
    uint64_t busy_ns;        /* of all CPUs, by /proc/stat; at least the jobs' sum counts */
    uint32_t speed_permille; /* of the load that is no job's */
    /* The machine's power at a load of busy cores × speed, as watts_at(). @watts NULL: idle is
     * unknown, all is unattributed, and each job has used between 0 and all of it. */
    struct power_range (*watts_at)(const struct watts *watts, uint32_t load_mcpu);
    const struct watts *watts;
    uint32_t error_permille; /* of the curve's shape */
    const struct attribution_load *jobs;
    uint32_t job_count;
    bool complete; /* false: some processes could not be read, so load of no job is nobody's */
};

/* A part of basis UNKNOWN has the value 0 and still true bounds. */
struct attribution {
    struct energy_range idle, system, unattributed;
    struct energy_range job[ATTRIBUTION_JOBS_MAX]; /* as input.jobs */
};

/* Returns 0, or -EINVAL (too many jobs, a speed or the interval is 0). */
int attribution_make(const struct attribution_input *in, struct attribution *ret);
