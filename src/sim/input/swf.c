/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Standard Workload Format, version 2 (Feitelson, Parallel Workloads Archive): 18 numbers a
 * line, -1 for an unknown value, comments behind ";". Jobs that never ran have no run time, or no
 * processors, and are left out.
 */
#include "sim/input/trace.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define BATCH 10 /* class of the jobs in a queue for batch */

enum swf_field {
    SWF_JOB,
    SWF_SUBMIT, /* seconds */
    SWF_WAIT,
    SWF_RUN,       /* seconds */
    SWF_ALLOCATED, /* processors */
    SWF_CPU_TIME,
    SWF_MEMORY_USED,      /* KiB per processor */
    SWF_REQUESTED,        /* processors */
    SWF_TIME_REQUESTED,   /* seconds */
    SWF_MEMORY_REQUESTED, /* KiB per processor */
    SWF_STATUS,
    SWF_USER,
    SWF_GROUP,
    SWF_EXECUTABLE,
    SWF_QUEUE,
    SWF_PARTITION,
    SWF_PRECEDING,
    SWF_THINK_TIME,
    SWF_FIELD_MAX
};

static const struct field {
    const char *name; /* its name in the format's definition */
    struct value_type type;
} fields[] = {
#define NUMBER                                                                                     \
    {                                                                                              \
        VALUE_FACTOR, -INT64_MAX, INT64_MAX, NULL, 0                                               \
    } /* unused, but must be a number */
#define SECONDS                                                                                    \
    {                                                                                              \
        VALUE_DURATION, -1000000000, VALUE_DURATION_MAX, NULL, 0                                   \
    }
#define CORES                                                                                      \
    {                                                                                              \
        VALUE_COUNT, -1, SIM_CORES_MAX, NULL, 0                                                    \
    }
#define KIBIBYTE                                                                                   \
    {                                                                                              \
        VALUE_COUNT, -1, INT64_C(1) << 34, NULL, 0                                                 \
    }
    [SWF_JOB] = {"job number", {VALUE_COUNT, 0, INT64_C(1) << 50, NULL, 0}},
    [SWF_SUBMIT] = {"submit time", {VALUE_DURATION, 0, VALUE_DURATION_MAX, NULL, 0}},
    [SWF_WAIT] = {"wait time", NUMBER},
    [SWF_RUN] = {"run time", SECONDS},
    [SWF_ALLOCATED] = {"allocated processors", CORES},
    [SWF_CPU_TIME] = {"average CPU time", NUMBER},
    [SWF_MEMORY_USED] = {"used memory", KIBIBYTE},
    [SWF_REQUESTED] = {"requested processors", CORES},
    [SWF_TIME_REQUESTED] = {"requested time", SECONDS},
    [SWF_MEMORY_REQUESTED] = {"requested memory", KIBIBYTE},
    [SWF_STATUS] = {"status", NUMBER},
    [SWF_USER] = {"user", NUMBER},
    [SWF_GROUP] = {"group", NUMBER},
    [SWF_EXECUTABLE] = {"executable", NUMBER},
    [SWF_QUEUE] = {"queue", {VALUE_COUNT, -1, 1000000, NULL, 0}},
    [SWF_PARTITION] = {"partition", NUMBER},
    [SWF_PRECEDING] = {"preceding job", NUMBER},
    [SWF_THINK_TIME] = {"think time", NUMBER},
};
static_assert(sizeof(fields) / sizeof(fields[0]) == SWF_FIELD_MAX, "an entry for each field");

static int read_fields(struct trace *trace, int64_t *value, struct error *err)
{
    char *rest = trace->text, *word;
    struct error reason;

    for (int f = 0; f < SWF_FIELD_MAX; f++) {
        word = strtok_r(f ? NULL : rest, " \t", &rest);
        if (!word)
            return trace_error(trace, -EINVAL, err, "field %d, %s, is missing", f + 1,
                               fields[f].name);
        if (value_from_text(&fields[f].type, word, &value[f], &reason) < 0)
            return trace_error(trace, -EINVAL, err, "field %d, %s: %s", f + 1, fields[f].name,
                               reason.text);
    }
    word = strtok_r(NULL, " \t", &rest);
    return word ? trace_error(trace, -EINVAL, err, "there are more than %d fields", SWF_FIELD_MAX)
                : 0;
}

/* Returns the first known one of both, else 0. */
static int64_t known(int64_t first, int64_t second)
{
    return first > 0 ? first : second > 0 ? second : 0;
}

/* Returns the work of a job that takes @time_ns with @cores. */
static int work_of(const struct job_spec *spec, const struct job_context *context, int64_t time_ns,
                   int64_t cores, int64_t *ret_work_ns, struct error *err)
{
    struct job_spec trial = *spec;
    struct sim_job job;
    int r;

    job_spec_displace(&trial, UINT32_C(1) << JOB_KEY_TIME);
    job_spec_put(&trial, JOB_KEY_TIME, time_ns);
    job_spec_put(&trial, JOB_KEY_REQUEST, cores);
    r = job_spec_resolve(&trial, context, &job, err);
    if (r == 0)
        *ret_work_ns = (int64_t)job.work_ns;
    return r;
}

/*
 * A job's work follows from its run time with the processors it got; the policy is told the user's
 * estimate, the requested time, where there is one.
 */
static int make_spec(const int64_t *value, const struct job_context *context, struct job_spec *spec,
                     struct error *err)
{
    int64_t cores = known(value[SWF_REQUESTED], value[SWF_ALLOCATED]);
    int64_t memory = known(value[SWF_MEMORY_REQUESTED], value[SWF_MEMORY_USED]);
    int64_t work_ns;
    int r =
        work_of(spec, context, value[SWF_RUN], known(value[SWF_ALLOCATED], cores), &work_ns, err);

    if (r < 0)
        return r;
    if (value[SWF_TIME_REQUESTED] > 0) {
        int64_t told_ns;

        r = work_of(spec, context, value[SWF_TIME_REQUESTED], cores, &told_ns, err);
        if (r < 0)
            return r;
        job_spec_put(spec, JOB_KEY_ESTIMATE, told_ns);
    }
    job_spec_displace(spec, UINT32_C(1) << JOB_KEY_WORK);
    job_spec_put(spec, JOB_KEY_WORK, work_ns);
    job_spec_put(spec, JOB_KEY_ARRIVAL, value[SWF_SUBMIT]);
    job_spec_put(spec, JOB_KEY_REQUEST, cores);
    if (!job_spec_has(spec, JOB_KEY_THREADS))
        job_spec_put(spec, JOB_KEY_THREADS, cores);
    if (memory > 0)
        job_spec_put(spec, JOB_KEY_MEMORY, memory * 1024 * cores);
    if (value[SWF_QUEUE] >= 0) /* by the format's convention queue 0 is for interactive jobs */
        job_spec_put(spec, JOB_KEY_CLASS, value[SWF_QUEUE] == 0 ? 0 : BATCH);
    snprintf(spec->name, sizeof(spec->name), "swf-%lld", (long long)value[SWF_JOB]);
    return 0;
}

/* Reads on to the next job that ran. */
static int next_line(struct trace *trace, int64_t *value, struct error *err)
{
    for (;;) {
        int r = trace_read_line(trace, err);

        if (r <= 0)
            return r;
        if (trace->text[0] == ';' || trace->text[strspn(trace->text, " \t")] == '\0')
            continue;
        r = read_fields(trace, value, err);
        if (r < 0)
            return r;
        if (value[SWF_RUN] > 0 && known(value[SWF_REQUESTED], value[SWF_ALLOCATED]))
            return 1;
    }
}

int swf_next(struct trace *trace, const struct job_context *context, struct sim_job *ret_job,
             struct error *err)
{
    struct job_spec spec = *trace->defaults;
    int64_t value[SWF_FIELD_MAX];
    struct error reason;
    int r = next_line(trace, value, err);

    if (r <= 0)
        return r;
    r = make_spec(value, context, &spec, &reason);
    return r < 0 ? trace_error(trace, r, err, "%s", reason.text)
                 : trace_job(trace, &spec, context, ret_job, err);
}
