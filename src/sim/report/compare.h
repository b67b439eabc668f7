/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs one scenario under several policies and seeds: every pair is a separate run, and threads
 * share the runs. Results stand in arrays by policy and seed, so they do not depend on the number
 * of threads. Called by `tide sim`; report.c and svg.c show the results.
 */
#pragma once

#include "base/error.h"
#include "decider/client.h"
#include "sim/engine/metrics.h"
#include "sim/input/scenario.h"
#include "sim/report/chart.h"

#include <stdio.h>

#define COMPARE_POLICIES_MAX 64
#define COMPARE_SEEDS_MAX    10000
#define COMPARE_THREADS_MAX  256
#define COMPARE_NO_CONTROL   "none"               /* the name for running without a policy */
#define COMPARE_EXTRAS       "+idle"              /* behind a policy: idle cores are lent */
#define COMPARE_SPLIT        "+split="            /* behind a policy: cores of each server */
#define COMPARE_EXTERNAL     "external:"          /* before the path of a decider's socket */
#define COMPARE_DEADLINE_NS  UINT64_C(1000000000) /* of each of its answers */

struct compare_policy {
    char text[POLICY_SPEC_TEXT_MAX]; /* the user's spelling */
    struct policy_spec spec;         /* .policy NULL: no control */
    uint32_t split;                  /* every server holds so many cores; 0: promises decide */
    bool extras;                     /* idle cores are lent as extra threads */
    char decider[DECIDER_PATH_MAX];  /* its socket; "": none, the policy itself decides */
};

/*
 * Reads "none", "external:PATH", or the text of policy_spec_parse(), with "+idle" for .extras and
 * "+split=2" for .split. Returns the same.
 */
int compare_policy_parse(const char *text, struct compare_policy *ret_policy, struct error *err);

/* True for the same policy with the same parameters, however written. */
bool compare_policy_equal(const struct compare_policy *a, const struct compare_policy *b);

/* The outcome of one server. */
struct compare_server {
    char name[SIM_NAME_MAX];
    uint64_t requests, seconds, kept;
    double p50_ms, p99_ms; /* NAN: no request was answered */
    double cores;          /* held, mean of the time in which it ran */
};

/* The outcome of one run. */
struct compare_run {
    struct compare_server *servers; /* in the order of their ends */
    size_t server_count;
    double value[SIM_METRIC_MAX];
    struct sim_totals totals;
    double *turnaround_s; /* for each job, by id, NAN: never ended; for the first seed of scenarios
                             with observations, else NULL */
    bool stuck;           /* the policy never ran some jobs; .why says more */
    char why[ERROR_TEXT_MAX];
    uint64_t asked, answered; /* of a decider: all decisions, and those that were its own */
    char decider_fault[ERROR_TEXT_MAX]; /* why it did not decide, the first time */
};

struct compare {
    /* the caller sets these */
    const struct scenario *scenario;
    struct sim_machine machine; /* the scenario's, perhaps with another placement */
    const struct compare_policy *policies;
    uint32_t policy_count;
    uint64_t first_seed;
    uint32_t seed_count;
    uint32_t threads;
    bool check;  /* policy_plan_check() every plan */
    bool charts; /* for the first seed of each policy */
    FILE *jobs;  /* a line of CSV for each job of each run; NULL: not wanted */
    /* Called now and then by the thread that called compare_all(); NULL: not wanted. */
    void (*progress)(const struct compare *compare, double done);

    /* results */
    uint64_t job_count;       /* for the first seed */
    struct compare_run *runs; /* policy_count × seed_count, a policy's seeds side by side */
    struct chart **chart;     /* by policy; NULL without `charts` */
};

/*
 * Runs everything. 0, or -errno with the reason of a run that failed, which ends the others; a
 * stuck run has not failed. Call compare_done() in any case.
 */
int compare_all(struct compare *compare, struct error *err);
void compare_done(struct compare *compare);

/* ---- results --------------------------------------------------------------------------------- */

static inline const struct compare_run *compare_runs(const struct compare *compare, uint32_t policy)
{
    return &compare->runs[(size_t)policy * compare->seed_count];
}

/* Returns a policy's metric over all seeds. */
void compare_estimate(const struct compare *compare, uint32_t policy, enum sim_metric metric,
                      struct sim_estimate *ret_estimate);

/* How many times better the policy is than the first one, seed by seed; count 0: unknown. */
void compare_gain(const struct compare *compare, uint32_t policy, enum sim_metric metric,
                  struct sim_estimate *ret_estimate);
