/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scenarios in C strings, with ' for ", and the jobs that they give. For the tests of the
 * simulator's input; one thread.
 */
#pragma once

#include "base/cleanup.h"
#include "sim/input/scenario.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define SECOND   INT64_C(1000000000)
#define JOBS_MAX 4096

struct jobs {
    struct scenario *scenario;
    struct scenario_source *source;
    struct sim_job job[JOBS_MAX];
    size_t count;
    struct error err;
    int end; /* what ended them: 0 or -errno */
};

static inline int parse_quoted(const char *text, struct scenario **ret, struct error *err)
{
    char *copy = strdup(text);

    for (char *p = copy; *p; p++)
        if (*p == '\'')
            *p = '"';
    return scenario_parse("s.json", copy, strlen(text), ret, err);
}

/* The jobs of a scenario that is in order. */
static inline void load(struct jobs *jobs, const char *text, uint64_t seed)
{
    struct sim_source *source;

    memset(jobs, 0, sizeof(*jobs));
    if (parse_quoted(text, &jobs->scenario, &jobs->err) < 0 ||
        scenario_source_new(jobs->scenario, seed, &jobs->source, &jobs->err) < 0)
        fail_msg("%s", jobs->err.text);
    source = scenario_source_jobs(jobs->source);
    while (jobs->count < JOBS_MAX &&
           (jobs->end = source->next(source, &jobs->job[jobs->count], &jobs->err)) > 0)
        jobs->count++;
}

static inline void unload(struct jobs *jobs)
{
    scenario_source_free(jobs->source);
    scenario_free(jobs->scenario);
}
