/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns observations of real jobs into a scenario that replays them, beside the real outcome
 * (tide-sim(1), "observed").
 *
 *   looks at a job ─▶ rates by thread count ─▶ speed-up table, work, start cost ─▶ JSON
 *
 * The simulator itself models jobs that compete for cores, so a job's speed must be that without
 * other jobs: a job whose threads in a time T ran for c and waited for a CPU for w had
 * n = max(1, (c + w)/T) threads under way, and alone would have taken T - w/n.
 * The rates of work in that time, in the order in which they were seen, say how the speed depends
 * on threads (src/policy/model/fit.h: rates drift, and tasks do not always mean the same work); of
 * a job with one number of threads, the cores that it kept busy do. Its work is what it did at
 * those speeds.
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
#define RECORDING_LOOKS_MAX 2048 /* of one job; then they are kept half as often */

/* One look at a job; sums since its beginning. */
struct recording_look {
    uint64_t at_ns;
    uint64_t done; /* units of work */
    uint64_t cpu_ns;
    uint64_t wait_ns; /* runnable, with others on the processors */
    uint32_t threads; /* active; 0: it has no pool yet */
};

struct recording_job {
    char name[SIM_NAME_MAX];
    char unit[SIM_NAME_MAX];
    uint64_t arrival_ns, end_ns;
    uint64_t queued_ns; /* from its arrival, until the policy let it begin */
    bool early;         /* it ran before the recording began, when it "arrives" */
    bool cut;           /* it still ran when the recording ended */
    bool malleable;
    bool sized;             /* it says how much it has to do in all */
    uint32_t min, max;      /* max 0: none */
    uint32_t pinned;        /* to one number by hand, all the time; 0: not */
    uint32_t pool, request; /* threads it was built with, cores asked for; 0: not known */
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
    const char *recorded; /* when, for people */
    double others;        /* cores that programs which are no jobs kept busy, on average */
    struct recording_job **job;
    size_t jobs;
};

/* Adds a look, later than the one before. 0 or -ENOMEM. */
int recording_look(struct recording_job *job, const struct recording_look *look);

struct recording_job *recording_job_free(struct recording_job *job); /* NULL */

/*
 * The scenario, of jobs that have ended or were cut; the array is sorted by arrival. Jobs that
 * hardly used a processor (a shell, a program that sleeps) are left out: *ret_left_out, if not
 * NULL, is their number. A new reference, or NULL with *err: -ENODATA (no job is left), -ENOMEM.
 */
json_t *recording_scenario(struct recording *recording, size_t *ret_left_out, struct error *err);
