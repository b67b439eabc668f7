/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a trace in memory to its end: it gives jobs in order, or a reason with file and line. */
#pragma once

#include "input.h"
#include "sim/input/trace.h"

static inline void read_trace(const uint8_t *data, size_t size,
                              int (*next)(struct trace *trace, const struct job_context *context,
                                          struct sim_job *ret_job, struct error *err))
{
    struct speedup_set fractions = {.cores = 16};
    struct job_context context = {.cores = 16, .fractions = &fractions};
    struct job_spec defaults = {0};
    /* fmemopen() refuses an empty buffer. */
    FILE *file = size ? fmemopen((void *)(uintptr_t)data, size, "r") : fopen("/dev/null", "r");
    struct trace *trace = malloc(sizeof(*trace));
    uint64_t last_ns = 0;
    struct sim_job job;
    struct error err = {0};
    int r;

    CHECK(file && trace);
    job_spec_put(&defaults, JOB_KEY_SPEEDUP, SPEEDUP_UNIT / 2);
    trace_init(trace, file, "t", &defaults);
    while ((r = next(trace, &context, &job, &err)) > 0) {
        CHECK(job.arrival_ns >= last_ns && job.work_ns > 0 && job.told_ns > 0);
        CHECK(job.work_ns <= VALUE_DURATION_MAX && job.memory_bytes >= 0 && *job.name);
        CHECK(job.stock_threads > 0 && (job.max == 0 || job.min <= job.max));
        last_ns = job.arrival_ns;
    }
    CHECK(r == 0 || (err.code == r && strncmp(err.text, "t:", 2) == 0));
    trace_done(trace);
    free(trace);
    speedup_set_done(&fractions);
}
