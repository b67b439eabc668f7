/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/input/jobspec.h"

#include "base/suggest.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#define ERROR_WORD "bad-scenario"

#define CORES_MAX  ((int64_t)SIM_CORES_MAX)
#define FACTOR_MAX INT64_C(1000000000) /* a million, in thousandths */

#define SERIAL_EVERY     INT64_C(10000000000) /* ns of work */
#define SERIAL_EVERY_MIN 1000000

/* Values for words: below all quantities and indices of curves, and exact as a double (lists). */
#define WORDS   (-(INT64_C(1) << 40))
#define EXACT   WORDS
#define NOTHING (WORDS + 1)
#define REQUEST WORDS
#define MACHINE (WORDS + 1)

static const char *const told_words[] = {"exact", "none", NULL};
static const char *const thread_words[] = {"request", "machine", NULL};
static const char *const flag_words[] = {"false", "true", NULL};
static const char *const malleability_words[] = {
    [POLICY_RIGID] = "rigid",
    [POLICY_MOLDABLE] = "moldable",
    [POLICY_MALLEABLE] = "malleable",
    [POLICY_MALLEABILITY_MAX] = NULL,
};
static_assert(POLICY_MALLEABILITY_MAX == 3, "a word for each malleability");
static_assert(JOB_KEY_MAX <= 32, "job_spec.given has a bit for each key");

#define DURATION(least)                                                                            \
    {                                                                                              \
        VALUE_DURATION, least, VALUE_DURATION_MAX, NULL, 0                                         \
    }
#define COUNT(low, high)                                                                           \
    {                                                                                              \
        VALUE_COUNT, low, high, NULL, 0                                                            \
    }
#define FRACTION(words)                                                                            \
    {                                                                                              \
        VALUE_FRACTION, 0, SPEEDUP_UNIT, words, WORDS                                              \
    }

static const struct job_key_entry {
    const char *name;
    struct value_type type;
} keys[] = {
    [JOB_KEY_NAME] = {"name", {VALUE_WORD, 0, 0, NULL, 0}},
    [JOB_KEY_ARRIVAL] = {"arrival", DURATION(0)},
    [JOB_KEY_WORK] = {"work", DURATION(1)},
    [JOB_KEY_TIME] = {"time", DURATION(1)},
    [JOB_KEY_SPEEDUP] = {"speedup", FRACTION(NULL)},
    [JOB_KEY_TOLD_SPEEDUP] = {"told_speedup", FRACTION(told_words)},
    [JOB_KEY_ESTIMATE] = {"estimate", {VALUE_DURATION, 1, VALUE_DURATION_MAX, told_words, WORDS}},
    [JOB_KEY_ESTIMATE_FACTOR] = {"estimate_factor", {VALUE_FACTOR, 1, FACTOR_MAX, NULL, 0}},
    [JOB_KEY_ESTIMATE_ERROR] = {"estimate_error", {VALUE_FACTOR, 0, FACTOR_MAX, NULL, 0}},
    [JOB_KEY_WASTE] = {"waste", {VALUE_FACTOR, 0, 100000, NULL, 0}},
    [JOB_KEY_IDLE] = {"idle", {VALUE_FACTOR, 0, 999, NULL, 0}},
    [JOB_KEY_SERIAL] = {"serial", {VALUE_FACTOR, 0, 999, NULL, 0}},
    [JOB_KEY_SERIAL_EVERY] = {"serial_every", DURATION(SERIAL_EVERY_MIN)},
    [JOB_KEY_REQUEST] = {"request", COUNT(1, CORES_MAX)},
    [JOB_KEY_MINIMUM] = {"min", COUNT(1, CORES_MAX)},
    [JOB_KEY_MAXIMUM] = {"max", COUNT(1, CORES_MAX)},
    [JOB_KEY_THREADS] = {"threads", {VALUE_COUNT, 1, CORES_MAX, thread_words, WORDS}},
    [JOB_KEY_MEMORY] = {"memory", {VALUE_BYTES, 0, INT64_C(1) << 60, NULL, 0}},
    [JOB_KEY_DEVICES] = {"devices", {VALUE_DEVICES, 0, DEVICES_COUNTS_MAX, NULL, 0}},
    [JOB_KEY_USER] = {"user", COUNT(0, UINT32_MAX)},
    [JOB_KEY_MALLEABILITY] = {"malleability", {VALUE_WORD, 0, 0, malleability_words, 0}},
    [JOB_KEY_CLASS] = {"class", COUNT(0, 1000000)},
    [JOB_KEY_WEIGHT] = {"weight", COUNT(1, POLICY_WEIGHT_MAX)},
    [JOB_KEY_PRIORITY] = {"priority", COUNT(-1000000, 1000000)},
    [JOB_KEY_PREEMPTIBLE] = {"preemptible", {VALUE_WORD, 0, 0, flag_words, 0}},
    [JOB_KEY_DEADLINE] = {"deadline", DURATION(0)},
    [JOB_KEY_SLACK] = {"slack", {VALUE_FACTOR, 1, FACTOR_MAX, NULL, 0}},
    [JOB_KEY_START_WORK] = {"start_work", DURATION(0)},
    [JOB_KEY_START_COST] = {"start_cost", DURATION(0)},
    [JOB_KEY_RESIZE_COST] = {"resize_cost", DURATION(0)},
    [JOB_KEY_PAUSE_COST] = {"pause_cost", DURATION(0)},
};
static_assert(sizeof(keys) / sizeof(keys[0]) == JOB_KEY_MAX, "an entry for each key");

const char *job_key_name(enum job_key key)
{
    return keys[key].name;
}

int job_key_find(const char *name)
{
    for (int key = 0; key < JOB_KEY_MAX; key++)
        if (strcmp(name, keys[key].name) == 0)
            return key;
    return -1;
}

const struct value_type *job_key_type(enum job_key key)
{
    return &keys[key].type;
}

/* ---- one field ------------------------------------------------------------------------------- */

/* Terminals, tables and web pages show names: no control characters. */
static int set_name(struct job_spec *spec, const char *text, struct error *err)
{
    size_t length = strlen(text);

    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            return error_set(err, -EINVAL, "holds a control character");
    if (length >= SIM_NAME_MAX)
        return error_set(err, -EINVAL, "%.20s… is longer than %d bytes", text, SIM_NAME_MAX - 1);
    memcpy(spec->name, text, length + 1);
    spec->given |= UINT32_C(1) << JOB_KEY_NAME;
    return 0;
}

static int64_t find_curve(const struct job_context *context, const char *text)
{
    for (size_t i = 0; i < context->curve_count; i++)
        if (strcmp(text, context->curves[i].name) == 0)
            return -1 - (int64_t)i;
    return 0;
}

static int no_curve(const struct job_context *context, const char *text, struct error *err)
{
    const char *names[JOB_CURVES_MAX];
    const char *near;
    size_t n;

    for (n = 0; n < context->curve_count && n < JOB_CURVES_MAX; n++)
        names[n] = context->curves[n].name;
    near = suggest_nearest(text, names, n);
    return error_set(err, -EINVAL,
                     "'%.40s' is neither a parallel fraction (0.95) nor one of the "
                     "scenario's speedups%s%.40s%s",
                     text, near ? ": did you mean '" : "", near ? near : "", near ? "'?" : "");
}

int job_spec_set(struct job_spec *spec, const struct job_context *context, enum job_key key,
                 const char *text, struct error *err)
{
    bool curve = key == JOB_KEY_SPEEDUP || key == JOB_KEY_TOLD_SPEEDUP;
    struct error reason;
    int64_t value;
    int r;

    if (*text == '\0')
        return error_set(err, -EINVAL, "is empty");
    if (key == JOB_KEY_NAME)
        return set_name(spec, text, err);
    value = curve ? find_curve(context, text) : 0;
    if (value == 0) {
        r = value_from_text(&keys[key].type, text, &value, &reason);
        if (r < 0 && curve)
            return no_curve(context, text, err);
        if (r < 0)
            return error_set(err, r, "%s", reason.text);
    }
    job_spec_put(spec, key, value);
    return 0;
}

void job_spec_displace(struct job_spec *spec, uint32_t own)
{
    static const enum job_key rivals[][2] = {{JOB_KEY_WORK, JOB_KEY_TIME},
                                             {JOB_KEY_DEADLINE, JOB_KEY_SLACK}};

    for (size_t i = 0; i < sizeof(rivals) / sizeof(rivals[0]); i++) {
        uint32_t first = UINT32_C(1) << rivals[i][0], second = UINT32_C(1) << rivals[i][1];

        if ((own & (first | second)) == first)
            spec->given &= ~second;
        if ((own & (first | second)) == second)
            spec->given &= ~first;
    }
}

/* ---- the whole job --------------------------------------------------------------------------- */

static int64_t value_or(const struct job_spec *spec, enum job_key key, int64_t otherwise)
{
    return job_spec_has(spec, key) ? spec->value[key] : otherwise;
}

static int get_curve(const struct job_context *context, int64_t value,
                     const struct sim_curve **ret_curve, struct error *err)
{
    int r;

    if (value < 0) {
        *ret_curve = context->curves[-1 - value].curve;
        return 0;
    }
    r = speedup_set_get(context->fractions, value, ret_curve);
    if (r == -E2BIG)
        error_set(err, r, "speedup: more than %zu different fractions: round them",
                  context->fractions->count);
    else if (r < 0)
        error_set(err, r, "out of memory");
    return r;
}

static int resolve_curves(const struct job_spec *spec, const struct job_context *context,
                          struct sim_job *job, struct error *err)
{
    int64_t told = value_or(spec, JOB_KEY_TOLD_SPEEDUP, EXACT);
    int r;

    if (!job_spec_has(spec, JOB_KEY_SPEEDUP))
        return error_set(err, -EINVAL,
                         "speedup is missing: the parallel fraction (0.95), or the "
                         "name of one of the scenario's speedups");
    r = get_curve(context, spec->value[JOB_KEY_SPEEDUP], &job->curve, err);
    if (r < 0 || told == NOTHING)
        return r;
    if (told != EXACT)
        return get_curve(context, told, &job->told_curve, err);
    job->told_curve = job->curve;
    return 0;
}

/* A core for each of its devices, as far as its other bounds allow; tided's device-cores is 1. */
static void feed_devices(const struct job_context *context, struct sim_job *job)
{
    uint32_t feed = devices_total(job->devices);

    feed = feed < context->cores ? feed : context->cores;
    feed = job->max && job->max < feed ? job->max : feed;
    feed = job->request && job->request < feed ? job->request : feed;
    job->min = feed > job->min ? feed : job->min;
}

static int resolve_cores(const struct job_spec *spec, const struct job_context *context,
                         struct sim_job *job, struct error *err)
{
    int64_t threads = value_or(spec, JOB_KEY_THREADS, MACHINE);

    job->request = (uint32_t)value_or(spec, JOB_KEY_REQUEST, 0);
    job->min = (uint32_t)value_or(spec, JOB_KEY_MINIMUM, 1);
    job->max = (uint32_t)value_or(spec, JOB_KEY_MAXIMUM, 0);
    if (job->max && job->min > job->max)
        return error_set(err, -EINVAL, "min: %u is more than max, %u", job->min, job->max);
    if (job->request && job->request < job->min)
        return error_set(err, -EINVAL, "request: %u is less than min, %u", job->request, job->min);
    if (job->max && job->request > job->max)
        return error_set(err, -EINVAL, "request: %u is more than max, %u", job->request, job->max);
    feed_devices(context, job);
    if (job->malleability == POLICY_RIGID && job->request == 0)
        return error_set(err, -EINVAL,
                         "request is missing: a rigid job runs with this and no "
                         "other number of cores");
    if (threads == MACHINE || (threads == REQUEST && job->request == 0))
        threads = context->cores;
    else if (threads == REQUEST)
        threads = job->request;
    job->stock_threads = (uint32_t)threads;
    return 0;
}

/* Returns the cores with which a job runs alone: its request, else as many as it can have. */
static uint32_t alone_cores(const struct job_context *context, const struct sim_job *job)
{
    uint32_t cores = job->request ? job->request : job->max ? job->max : context->cores;

    return cores < context->cores ? cores : context->cores;
}

/* Speed over all phases of a job with @speed in the parallel ones, both in thousandths. */
static uint32_t mean_speed(const struct sim_job *job, uint32_t speed)
{
    uint64_t serial = job->serial_permille;

    return (uint32_t)(UINT64_C(1000000) * speed / (1000 * (1000 - serial) + serial * speed));
}

/* Returns @ns · @factor/1000, at most @most. */
static uint64_t scaled(uint64_t ns, uint64_t factor, uint64_t most)
{
    sim_sum product = (sim_sum)ns * factor / 1000;

    return product < most ? (uint64_t)product : most;
}

static int resolve_work(const struct job_spec *spec, uint32_t speed, struct sim_job *job,
                        struct error *err)
{
    int64_t told = value_or(spec, JOB_KEY_ESTIMATE, EXACT);

    if (job_spec_has(spec, JOB_KEY_WORK) == job_spec_has(spec, JOB_KEY_TIME))
        return error_set(err, -EINVAL,
                         job_spec_has(spec, JOB_KEY_WORK)
                             ? "time: work is given too; give only one of them"
                             : "work is missing: how long it takes on one core; or time, how long "
                               "with its request");
    if (job_spec_has(spec, JOB_KEY_WORK))
        job->work_ns = (uint64_t)spec->value[JOB_KEY_WORK];
    else
        job->work_ns = scaled((uint64_t)spec->value[JOB_KEY_TIME], speed, UINT64_MAX);
    if (job->work_ns > VALUE_DURATION_MAX)
        return error_set(err, -EINVAL, "time: that is more than 10000 days on one core");
    job->told_ns = POLICY_UNKNOWN;
    if (told == NOTHING)
        return 0;
    job->told_ns =
        scaled(told == EXACT ? job->work_ns : (uint64_t)told,
               (uint64_t)value_or(spec, JOB_KEY_ESTIMATE_FACTOR, 1000), VALUE_DURATION_MAX);
    job->told_ns = job->told_ns ? job->told_ns : 1;
    job->told_error_ns = scaled(job->told_ns, (uint64_t)value_or(spec, JOB_KEY_ESTIMATE_ERROR, 0),
                                VALUE_DURATION_MAX);
    return 0;
}

static int resolve_deadline(const struct job_spec *spec, uint32_t speed, struct sim_job *job,
                            struct error *err)
{
    uint64_t alone = (uint64_t)((sim_sum)job->work_ns * 1000 / speed);

    job->deadline_ns = POLICY_NEVER;
    if (job_spec_has(spec, JOB_KEY_DEADLINE) && job_spec_has(spec, JOB_KEY_SLACK))
        return error_set(err, -EINVAL, "slack: deadline is given too; give only one of them");
    if (job_spec_has(spec, JOB_KEY_DEADLINE))
        job->deadline_ns = (uint64_t)spec->value[JOB_KEY_DEADLINE];
    if (job_spec_has(spec, JOB_KEY_SLACK))
        job->deadline_ns = job->arrival_ns +
                           scaled(alone, (uint64_t)spec->value[JOB_KEY_SLACK], VALUE_DURATION_MAX);
    if (job->deadline_ns < job->arrival_ns)
        return error_set(err, -EINVAL, "deadline: is before the arrival");
    return 0;
}

int job_spec_resolve(const struct job_spec *spec, const struct job_context *context,
                     struct sim_job *ret_job, struct error *err)
{
    struct sim_job job = {
        .arrival_ns = (uint64_t)value_or(spec, JOB_KEY_ARRIVAL, 0),
        .start_ns = (uint64_t)value_or(spec, JOB_KEY_START_WORK, 0),
        .waste_permille = (uint32_t)value_or(spec, JOB_KEY_WASTE, 0),
        .idle_permille = (uint32_t)value_or(spec, JOB_KEY_IDLE, 0),
        .serial_permille = (uint32_t)value_or(spec, JOB_KEY_SERIAL, 0),
        .serial_every_ns = (uint64_t)value_or(spec, JOB_KEY_SERIAL_EVERY, SERIAL_EVERY),
        .memory_bytes = value_or(spec, JOB_KEY_MEMORY, 0),
        .devices = value_or(spec, JOB_KEY_DEVICES, 0),
        .user = (uint32_t)value_or(spec, JOB_KEY_USER, 0),
        .malleability = (uint32_t)value_or(spec, JOB_KEY_MALLEABILITY, POLICY_MALLEABLE),
        .class = (uint32_t)value_or(spec, JOB_KEY_CLASS, 0),
        .weight = (uint32_t)value_or(spec, JOB_KEY_WEIGHT, 100),
        .priority = (int32_t)value_or(spec, JOB_KEY_PRIORITY, 0),
        .preemptible = value_or(spec, JOB_KEY_PREEMPTIBLE, 1),
        .cost_ns = {[POLICY_ACTION_START] = (uint64_t)value_or(spec, JOB_KEY_START_COST, 0),
                    [POLICY_ACTION_RESIZE] = (uint64_t)value_or(spec, JOB_KEY_RESIZE_COST, 0),
                    [POLICY_ACTION_PAUSE] = (uint64_t)value_or(spec, JOB_KEY_PAUSE_COST, 0)},
    };
    uint32_t speed;
    int r = resolve_curves(spec, context, &job, err);

    if (r == 0)
        r = resolve_cores(spec, context, &job, err);
    if (r < 0)
        return r;
    speed = mean_speed(&job, sim_curve_speed(job.curve, alone_cores(context, &job)));
    r = resolve_work(spec, speed, &job, err);
    if (r == 0)
        r = resolve_deadline(spec, speed, &job, err);
    if (r < 0)
        return r;
    memcpy(job.name, spec->name, sizeof(job.name));
    *ret_job = job;
    return 0;
}
