/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/input/workload.h"

#include "base/cleanup.h"

#include <string.h>

#define ERROR_WORD "bad-scenario"

static const struct value_type jobs_type = {VALUE_COUNT, 1, WORKLOAD_JOBS_MAX, NULL, 0};
static const struct value_type time_type = {VALUE_DURATION, 0, VALUE_DURATION_MAX, NULL, 0};
static const struct value_type burst_type = {VALUE_COUNT, 1, 1000000, NULL, 0};
static const struct value_type share_type = {VALUE_FACTOR, 0, 1000000000, NULL, 0};

struct workload *workload_free(struct workload *workload)
{
    if (!workload)
        return NULL;
    for (size_t i = 0; i < workload->mix_count; i++)
        job_draws_done(&workload->mix[i].draws);
    dist_done(&workload->gap);
    dist_done(&workload->burst);
    dist_done(&workload->within);
    free(workload->mix);
    free(workload);
    return NULL;
}

static void cleanup_workload(struct workload **workload)
{
    workload_free(*workload);
}

/* ---- drawing --------------------------------------------------------------------------------- */

static const struct mix *pick_mix(const struct workload *workload, uint64_t seed, uint64_t index)
{
    struct rng rng = rng_at(seed, "mix", index);
    double at = rng_unit(&rng) * workload->mix[workload->mix_count - 1].share;
    size_t i = 0;

    while (i + 1 < workload->mix_count && workload->mix[i].share <= at)
        i++;
    return &workload->mix[i];
}

static int draw_job(const struct mix *mix, const struct job_context *context, uint64_t seed,
                    uint64_t index, uint64_t arrival_ns, struct sim_job *ret_job, struct error *err)
{
    struct job_spec spec = mix->same;

    for (size_t i = 0; i < mix->draws.count; i++) {
        const struct draw *draw = &mix->draws.draw[i];
        struct rng rng = rng_at(seed, job_key_name(draw->key), index);

        job_spec_put(&spec, draw->key, dist_draw(&draw->dist, job_key_type(draw->key), &rng));
    }
    snprintf(spec.name, sizeof(spec.name), "%.40s-%llu", *mix->same.name ? mix->same.name : "job",
             (unsigned long long)index + 1);
    job_spec_put(&spec, JOB_KEY_ARRIVAL, (int64_t)arrival_ns);
    return job_spec_resolve(&spec, context, ret_job, err);
}

static uint64_t draw_gap(const struct generator *g, const struct dist *dist, const char *attribute,
                         uint64_t index)
{
    struct rng rng = rng_at(g->seed, attribute, index);

    return (uint64_t)dist_draw(dist, &time_type, &rng);
}

static uint64_t draw_burst(const struct generator *g)
{
    struct rng rng = rng_at(g->seed, "burst", g->burst);

    return (uint64_t)dist_draw(&g->workload->burst, &burst_type, &rng);
}

static void advance(struct generator *g)
{
    const struct workload *w = g->workload;

    if (g->index == 0) {
        g->now_ns = w->start_ns;
        g->burst_left = draw_burst(g);
    } else if (g->burst_left > 0) {
        g->now_ns += draw_gap(g, &w->within, "within", g->index);
    } else {
        g->burst++;
        g->now_ns += draw_gap(g, &w->gap, "gap", g->burst);
        g->burst_left = draw_burst(g);
    }
    g->burst_left--;
}

int generator_next(struct generator *g, const struct job_context *context, struct sim_job *ret_job,
                   struct error *err)
{
    const struct workload *w = g->workload;
    const struct mix *mix;
    struct error reason;
    int r;

    if (g->index >= w->jobs || g->now_ns > w->until_ns)
        return 0;
    advance(g);
    if (g->now_ns > w->until_ns)
        return 0;
    if (g->now_ns > VALUE_DURATION_MAX)
        return error_set(err, -EINVAL, "workload: job %llu would arrive after more than 10000 days",
                         (unsigned long long)g->index + 1);
    mix = pick_mix(w, g->seed, g->index);
    r = draw_job(mix, context, g->seed, g->index, g->now_ns, ret_job, &reason);
    if (r < 0)
        return error_set(err, r, "workload.mix[%td]: job %llu of seed %llu: %s", mix - w->mix,
                         (unsigned long long)g->index + 1, (unsigned long long)g->seed,
                         reason.text);
    g->index++;
    return 1;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int read_dist(const struct node *object, const char *key, const struct value_type *type,
                     struct dist *dist, struct error *err)
{
    struct node node = node_member(object, key);

    return node.value ? dist_node_read(&node, type, dist, err) : 0;
}

/* True if no time passes from one draw to the next. */
static bool stands_still(const struct dist *gap)
{
    return gap->a == 0 && (gap->kind == DIST_FIXED || gap->kind == DIST_EXPONENTIAL ||
                           gap->kind == DIST_LOGNORMAL);
}

static int read_arrivals(const struct node *workload, struct workload *w, struct error *err)
{
    static const char *const keys[] = {"start", "gap", "burst", "within", NULL};
    struct node arrivals = node_member(workload, "arrivals");
    struct node gap = node_member(&arrivals, "gap");
    int64_t start = 0;
    int r;

    if (!arrivals.value)
        return node_error(workload, err, "arrivals is missing: {\"gap\": \"30s\"}");
    r = node_object(&arrivals, keys, err);
    if (r == 0 && !gap.value)
        r = node_error(&arrivals, err, "gap is missing: \"30s\", or a distribution");
    if (r == 0)
        r = node_optional(&arrivals, "start", &time_type, &start, err);
    if (r == 0)
        r = read_dist(&arrivals, "gap", &time_type, &w->gap, err);
    if (r == 0 && stands_still(&w->gap) && !node_member(workload, "jobs").value)
        r = node_error(&gap, err, "is 0: workload.jobs must then say how many jobs arrive");
    w->burst.a = 1;
    if (r == 0)
        r = read_dist(&arrivals, "burst", &burst_type, &w->burst, err);
    if (r == 0)
        r = read_dist(&arrivals, "within", &time_type, &w->within, err);
    w->start_ns = (uint64_t)start;
    return r;
}

/* Makes a first job as a trial, so that a missing or contradicting field has a line. */
static int read_mix(const struct node *node, const struct job_spec *defaults,
                    const struct job_context *context, double *share, struct mix *mix,
                    struct error *err)
{
    static const char *const more[] = {"share", NULL};
    struct node arrival = node_member(node, "arrival");
    int64_t own = 1000;
    struct sim_job trial;
    struct error reason;
    int r;

    mix->same = *defaults;
    if (arrival.value)
        return node_error(&arrival, err, "cannot stand here: workload.arrivals sets it");
    r = job_node_read(node, more, context, &mix->same, &mix->draws, err);
    if (r == 0)
        r = node_optional(node, "share", &share_type, &own, err);
    if (r < 0)
        return r;
    *share += (double)own;
    mix->share = *share;
    r = draw_job(mix, context, 0, 0, 0, &trial, &reason);
    return r < 0 ? node_error(node, err, "%s", reason.text) : 0;
}

static int read_mixes(const struct node *workload, const struct job_spec *defaults,
                      const struct job_context *context, struct workload *w, struct error *err)
{
    struct node list = node_member(workload, "mix");
    double share = 0;
    int r;

    if (!list.value)
        return node_error(workload, err, "mix is missing: a list of kinds of jobs");
    r = node_array(&list, 1, WORKLOAD_MIX_MAX, err);
    if (r < 0)
        return r;
    w->mix = calloc(json_array_size(list.value), sizeof(*w->mix));
    if (!w->mix)
        return error_set(err, -ENOMEM, "out of memory");
    while (w->mix_count < json_array_size(list.value)) {
        struct node node = node_element(&list, w->mix_count);

        r = read_mix(&node, defaults, context, &share, &w->mix[w->mix_count++], err);
        if (r < 0)
            return r;
    }
    return share > 0 ? 0 : node_error(&list, err, "all shares are 0");
}

int workload_read(const struct node *node, const struct job_spec *defaults,
                  const struct job_context *context, struct workload **ret_workload,
                  struct error *err)
{
    static const char *const keys[] = {"jobs", "until", "arrivals", "mix", NULL};
    _cleanup_(cleanup_workload) struct workload *w = calloc(1, sizeof(*w));
    int64_t jobs = WORKLOAD_JOBS_MAX, until = INT64_MAX;
    int r;

    if (!w)
        return error_set(err, -ENOMEM, "out of memory");
    r = node_object(node, keys, err);
    if (r == 0 && !node_member(node, "jobs").value && !node_member(node, "until").value)
        r = node_error(node, err, "jobs or until is missing: one of them ends the workload");
    if (r == 0)
        r = node_optional(node, "jobs", &jobs_type, &jobs, err);
    if (r == 0)
        r = node_optional(node, "until", &time_type, &until, err);
    if (r == 0)
        r = read_arrivals(node, w, err);
    if (r == 0)
        r = read_mixes(node, defaults, context, w, err);
    if (r < 0)
        return r;
    w->jobs = (uint64_t)jobs;
    w->until_ns = (uint64_t)until;
    *ret_workload = TAKE_PTR(w);
    return 0;
}
