/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scenario: an accepted one gives jobs in an order that the simulator takes; a refused one gives
 * a reason. The target opens no traces, because they have targets of their own; files of requests
 * are not there.
 */
#include "input.h"
#include "sim/input/scenario.h"

#include <errno.h>

#define DRAWN 64

static void check_job(const struct sim_job *job, uint64_t id, uint64_t last_ns)
{
    CHECK(job->id == id && job->arrival_ns >= last_ns && job->arrival_ns <= VALUE_DURATION_MAX);
    CHECK(memchr(job->name, 0, sizeof(job->name)) && *job->name);
    CHECK(job->work_ns > 0 && job->told_ns > 0);
    CHECK(job->requests || job->work_ns <= VALUE_DURATION_MAX);
    CHECK(!job->requests || (job->requests->count > 0 && job->workers > 0));
    for (size_t i = 0; job->requests && i < job->requests->count; i++)
        CHECK(job->requests->work_ns[i] > 0 &&
              (i == 0 || job->requests->arrival_ns[i] >= job->requests->arrival_ns[i - 1]));
    CHECK(job->curve->count > 0 && job->curve->speedup_permille[0] == 1000);
    CHECK(sim_curve_speed(job->curve, job->curve->count) > 0);
    CHECK(job->stock_threads > 0 && job->stock_threads <= SIM_CORES_MAX);
    CHECK(job->max == 0 || job->min <= job->max);
    CHECK(job->malleability != POLICY_RIGID || job->request > 0);
    CHECK(job->weight > 0 && job->weight <= POLICY_WEIGHT_MAX && job->memory_bytes >= 0);
    CHECK(job->deadline_ns >= job->arrival_ns);
}

static void draw(const struct scenario *scenario)
{
    struct scenario_source *source;
    struct sim_source *jobs;
    struct sim_job job;
    struct error err;
    uint64_t last_ns = 0;

    CHECK(scenario_source_new(scenario, 1, &source, &err) == 0);
    jobs = scenario_source_jobs(source);
    for (uint64_t id = 1; id <= DRAWN; id++) {
        int r = jobs->next(jobs, &job, &err);

        if (r <= 0) {
            CHECK(r == 0 || (err.code == r && *err.text));
            break;
        }
        check_job(&job, id, last_ns);
        last_ns = job.arrival_ns;
    }
    scenario_source_free(source);
}

/* A file of requests that is not there, or is no such file. */
static bool names_file(const char *text)
{
    return strstr(text, ".csv:") || strstr(text, ".json:");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct scenario *scenario = NULL;
    struct error err = {0};
    int r = scenario_parse("s.json", input_text(data, size), size, &scenario, &err);

    if (r < 0)
        CHECK(!scenario && err.code == r &&
              (strncmp(err.text, "s.json:", 7) == 0 || names_file(err.text)));
    else if (scenario->trace == SCENARIO_TRACE_NONE)
        draw(scenario);
    scenario_free(scenario);
    return 0;
}
