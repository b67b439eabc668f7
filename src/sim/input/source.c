/* SPDX-License-Identifier: Apache-2.0 */
/* The jobs of one run: a scenario's servers, listed, generated and traced jobs, merged by arrival.
 */
#include "sim/input/scenario.h"

#include "base/cleanup.h"
#include "sim/input/trace.h"
#include "sim/input/workload.h"

#include <string.h>

#define ERROR_WORD "bad-scenario"

enum branch { BRANCH_SERVERS, BRANCH_LISTED, BRANCH_GENERATED, BRANCH_TRACE, BRANCH_MAX };

struct scenario_source {
    struct sim_source jobs;
    const struct scenario *scenario;
    struct speedup_set fractions;
    struct job_context context;
    size_t listed; /* number of listed jobs already returned */
    size_t served; /* number of servers, each with its requests */
    struct server_requests *requests[SERVERS_MAX];
    uint64_t seed;
    struct generator generator;
    struct trace trace;
    struct sim_job next[BRANCH_MAX]; /* for each branch, where `waiting` */
    bool waiting[BRANCH_MAX];
    bool dry[BRANCH_MAX];
    uint64_t last_id;
};

static int next_server(struct scenario_source *s, struct sim_job *ret_job, struct error *err)
{
    const struct server_spec *spec = &s->scenario->servers[s->served];
    struct error reason;
    int r = server_requests_make(spec, s->seed, &s->requests[s->served], &reason);

    if (r < 0)
        return error_set(err, r, "%s: %s", s->scenario->file, reason.text);
    *ret_job = spec->job;
    ret_job->requests = &s->requests[s->served]->requests;
    ret_job->work_ns = s->requests[s->served]->work_ns;
    s->served++;
    return 1;
}

static int fetch(struct scenario_source *s, enum branch branch, struct error *err)
{
    const struct scenario *scenario = s->scenario;
    struct error reason;
    int r;

    switch (branch) {
    case BRANCH_SERVERS:
        return s->served < scenario->server_count ? next_server(s, &s->next[branch], err) : 0;
    case BRANCH_LISTED:
        if (s->listed == scenario->job_count)
            return 0;
        s->next[branch] = scenario->jobs[s->listed++];
        return 1;
    case BRANCH_GENERATED:
        if (!scenario->workload)
            return 0;
        r = generator_next(&s->generator, &s->context, &s->next[branch], &reason);
        return r < 0 ? error_set(err, r, "%s: %s", scenario->file, reason.text) : r;
    case BRANCH_TRACE:
        if (scenario->trace == SCENARIO_TRACE_NONE)
            return 0;
        return (scenario->trace == SCENARIO_TRACE_CSV ? csv_next : swf_next)(&s->trace, &s->context,
                                                                             &s->next[branch], err);
    case BRANCH_MAX:
        break;
    }
    return 0;
}

/* Returns the earliest of the branches' jobs; among equals the first branch's. */
static int next_job(struct sim_source *jobs, struct sim_job *ret_job, struct error *err)
{
    struct scenario_source *s = (struct scenario_source *)jobs;
    int first = -1;

    for (int b = 0; b < BRANCH_MAX; b++) {
        if (!s->waiting[b] && !s->dry[b]) {
            int r = fetch(s, (enum branch)b, err);

            if (r < 0)
                return r;
            s->waiting[b] = r > 0;
            s->dry[b] = r == 0;
        }
        if (s->waiting[b] && (first < 0 || s->next[b].arrival_ns < s->next[first].arrival_ns))
            first = b;
    }
    if (first < 0)
        return 0;
    s->waiting[first] = false;
    *ret_job = s->next[first];
    ret_job->id = ++s->last_id;
    return 1;
}

static int open_trace(struct scenario_source *s, struct error *err)
{
    const char *path = s->scenario->trace_path;
    FILE *file = fopen(path, "re");

    if (!file)
        return error_set(err, -errno, "%s: %s (named in %s: trace.file)", path, strerror(errno),
                         s->scenario->file);
    trace_init(&s->trace, file, path, &s->scenario->defaults);
    return 0;
}

static void cleanup_source(struct scenario_source **source)
{
    scenario_source_free(*source);
}

int scenario_source_new(const struct scenario *scenario, uint64_t seed,
                        struct scenario_source **ret_source, struct error *err)
{
    _cleanup_(cleanup_source) struct scenario_source *s = calloc(1, sizeof(*s));
    int r;

    if (!s)
        return error_set(err, -ENOMEM, "out of memory");
    s->jobs.next = next_job;
    s->scenario = scenario;
    s->seed = seed;
    s->fractions.cores = scenario->machine.cores;
    s->context = (struct job_context){.cores = scenario->machine.cores,
                                      .curves = scenario->curves,
                                      .curve_count = scenario->curve_count,
                                      .fractions = &s->fractions};
    s->generator = (struct generator){.workload = scenario->workload, .seed = seed};
    r = scenario->trace == SCENARIO_TRACE_NONE ? 0 : open_trace(s, err);
    if (r == 0)
        *ret_source = TAKE_PTR(s);
    return r;
}

struct scenario_source *scenario_source_free(struct scenario_source *source)
{
    if (!source)
        return NULL;
    for (size_t i = 0; i < source->served; i++)
        free(source->requests[i]);
    trace_done(&source->trace);
    speedup_set_done(&source->fractions);
    free(source);
    return NULL;
}

struct sim_source *scenario_source_jobs(struct scenario_source *source)
{
    return &source->jobs;
}
