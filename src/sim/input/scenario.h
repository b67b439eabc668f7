/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scenario: a machine and the jobs that come to it, from a JSON file (tide-sim(1) describes it):
 * listed one by one, generated, read from a trace, servers, or all of these, merged by arrival.
 *
 *   scenario.json ─▶ struct scenario, read only ─▶ a source for each run ─▶ sim_run()
 *
 * Threads may share a scenario; a source belongs to one. Nothing here reads a clock: a scenario and
 * a seed make the same jobs on every run. Used by `tide sim`.
 */
#pragma once

#include "base/error.h"
#include "sim/engine/sim.h"
#include "sim/input/jobspec.h"
#include "sim/input/requests.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCENARIO_TEXT_MAX 1024
#define SCENARIO_JOBS_MAX 100000 /* listed one by one; traces and generators go on for longer */

/* The real outcome, in a scenario that `tide record` wrote. */
struct scenario_observed {
    bool present;
    char policy[POLICY_SPEC_TEXT_MAX]; /* in force during the recording; "": none */
    int64_t makespan_ns;
    int64_t mean_turnaround_ns;
    int64_t *turnaround_ns; /* for each listed job, by arrival; NULL: unknown */
};

enum scenario_trace { SCENARIO_TRACE_NONE, SCENARIO_TRACE_CSV, SCENARIO_TRACE_SWF };

struct workload;

struct scenario {
    char name[SIM_NAME_MAX];      /* the file's, when it has none of its own */
    char text[SCENARIO_TEXT_MAX]; /* its description, may be empty */
    struct sim_machine machine;
    uint64_t resolution_ns;
    struct scenario_observed observed;
    /* For the sources. */
    char *file;
    struct named_curve *curves;
    size_t curve_count;
    struct speedup_set fractions; /* curves of the listed jobs */
    struct job_spec defaults;
    struct sim_job *jobs; /* listed, by arrival */
    size_t job_count;
    struct server_spec *servers; /* by arrival */
    size_t server_count;
    struct workload *workload; /* NULL: none */
    enum scenario_trace trace;
    char *trace_path;
};

/* Reads the file @path. 0, or -errno with the reason: file, line and field. */
int scenario_load(const char *path, struct scenario **ret_scenario, struct error *err);

/*
 * Reads the same from a text in memory, of which it takes ownership, also on failure; a NUL stands
 * behind its @size bytes. @path names it in messages; a trace is searched in its directory.
 */
int scenario_parse(const char *path, char *text, size_t size, struct scenario **ret_scenario,
                   struct error *err);
struct scenario *scenario_free(struct scenario *scenario); /* NULL */

/* Whether another seed makes other jobs or requests. */
bool scenario_is_random(const struct scenario *scenario);

/* ---- sources --------------------------------------------------------------------------------- */

struct scenario_source;

/*
 * Makes the jobs of one run; opens the trace, if there is one. The scenario must outlive the
 * source. 0, -ENOMEM, or the error of opening the trace.
 */
int scenario_source_new(const struct scenario *scenario, uint64_t seed,
                        struct scenario_source **ret_source, struct error *err);
struct scenario_source *scenario_source_free(struct scenario_source *source); /* NULL */

/* Returns the source for sim_run(); it and the curves of its jobs live as long as @source. */
struct sim_source *scenario_source_jobs(struct scenario_source *source);
