/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns observations of real jobs into a scenario that replays them, beside the real outcome
 * (tide-sim(1), "observed").
 *
 *   looks at a job ─▶ rates by thread count ─▶ speed-up table, work, start cost ─▶ JSON
 *
 * The simulator itself models jobs that compete for cores, so a job's speed must be its speed
 * without other jobs. If its threads ran for c and waited for a CPU for w within a time T, then
 * n = max(1, (c + w)/T) threads were under way, and alone it would have taken T - w/n.
 * The rates of work in that time, in their order, say how the speed depends on threads
 * (src/policy/model/fit.h: rates drift, and tasks do not always mean the same work). For a job with
 * one number of threads, the cores that it kept busy say so. Its work is what it did at those
 * speeds.
 *
 * One thread; used by `tide record`. Times are those of one clock.
 */
#pragma once

#include "sim/engine/sim.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RECORDING_JOBS_MAX  2000 /* the file stays within what a scenario may be */
#define RECORDING_LOOKS_MAX 2048 /* per job; beyond that, every other look is kept */

/* One look at a job; sums since its beginning. */
struct recording_look {
    uint64_t at_ns;
    uint64_t done; /* units of work */
    uint64_t cpu_ns;
    uint64_t wait_ns; /* runnable, while others used the CPUs */
    uint32_t threads; /* active; 0: it has no pool yet */
};

struct recording_job {
    char name[SIM_NAME_MAX];
    char unit[SIM_NAME_MAX];
    uint64_t arrival_ns, end_ns;
    uint64_t queued_ns; /* from its arrival to its start by the policy */
    bool early;         /* it ran before the recording began, when it "arrives" */
    bool cut;           /* it still ran when the recording ended */
    bool malleable;
    bool sized;             /* it reports its total work */
    uint32_t min, max;      /* max 0: none */
    uint32_t pinned;        /* held at one number by a user, all the time; 0: not */
    uint32_t pool, request; /* threads of its pools, requested cores; 0: unknown */
    uint32_t class, weight;
    int32_t priority;
    uint64_t deadline_ns; /* POLICY_NEVER: none */
    struct recording_look *look;
    size_t looks;
    uint64_t spacing_ns; /* looks are kept at least so far apart; 0: all */
};

struct recording {
    uint32_t cores;
    const char *placement;
    const char *policy;   /* in force, as text */
    const char *recorded; /* time of the recording, as text */
    double others;        /* mean cores that programs outside of all jobs kept busy */
    struct recording_job **job;
    size_t jobs;
};

/* Adds a look, later than the one before. 0 or -ENOMEM. */
int recording_look(struct recording_job *job, const struct recording_look *look);

struct recording_job *recording_job_free(struct recording_job *job); /* NULL */

/*
 * Returns the scenario of jobs that have ended or were cut; the array is sorted by arrival. Jobs
 * that hardly used a core (a shell, a program that sleeps) are left out: *ret_left_out, if not
 * NULL, is their number. A new reference, or NULL with *err: -ENODATA (no job is left), -ENOMEM.
 */
json_t *recording_scenario(struct recording *recording, size_t *ret_left_out, struct error *err);
