/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/report/report.h"

#include "base/cleanup.h"

#include <math.h>
#include <string.h>

const enum sim_metric report_summary[] = {
    SIM_MAKESPAN, SIM_TURNAROUND, SIM_SLOWDOWN, SIM_SLOWDOWN_P95, SIM_USEFUL_CORES,
    SIM_ENERGY,   SIM_MISSES,     SIM_KEPT,     SIM_LATENCY_P99,  SIM_UNFINISHED,
};
const uint32_t report_summary_count = ARRAY_LEN(report_summary);

/* ---- choosing a table's metrics -------------------------------------------------------------- */

/* True if any policy has a value of the metric. */
bool report_is_known(const struct compare *compare, enum sim_metric metric)
{
    for (uint32_t p = 0; p < compare->policy_count; p++) {
        struct sim_estimate estimate;

        compare_estimate(compare, p, metric, &estimate);
        if (estimate.count && (estimate.mean != 0 || metric != SIM_UNFINISHED))
            return true;
    }
    return false;
}

/* Returns the mean number of jobs that the policy left unfinished. */
static double left_behind(const struct compare *compare, uint32_t policy)
{
    struct sim_estimate estimate;

    compare_estimate(compare, policy, SIM_UNFINISHED, &estimate);
    return estimate.count ? estimate.mean : 0;
}

/* Compares those that left the fewest jobs: leaving long jobs makes a run end soon. */
uint32_t report_best(const struct compare *compare, enum sim_metric metric)
{
    int better = sim_metric_info(metric)->better;
    uint32_t best = compare->policy_count;
    double most = -INFINITY, left = INFINITY;

    for (uint32_t p = 0; p < compare->policy_count; p++)
        left = fmin(left, left_behind(compare, p));
    for (uint32_t p = 0; better && p < compare->policy_count; p++) {
        struct sim_estimate estimate;

        compare_estimate(compare, p, metric, &estimate);
        if (estimate.count && better * estimate.mean > most && left_behind(compare, p) <= left) {
            most = better * estimate.mean;
            best = p;
        }
    }
    return best;
}

const char *report_number(double value, char buf[REPORT_NUMBER_MAX])
{
    double size = fabs(value);

    snprintf(buf, REPORT_NUMBER_MAX,
             size >= 1e7   ? "%.3e"
             : size >= 100 ? "%.0f"
             : size >= 10  ? "%.1f"
                           : "%.2f",
             value);
    return buf;
}

/* ---- prediction ------------------------------------------------------------------------------ */

static struct report_compared beside(int64_t observed_ns, double predicted_s)
{
    double observed_s = (double)observed_ns / 1e9;

    return (struct report_compared){.observed_s = observed_s,
                                    .predicted_s = predicted_s,
                                    .error_percent = (predicted_s / observed_s - 1) * 100};
}

static struct report_compared compared(const struct compare *compare, uint32_t policy,
                                       enum sim_metric metric, int64_t observed_ns)
{
    struct sim_estimate estimate;

    compare_estimate(compare, policy, metric, &estimate);
    return beside(observed_ns, estimate.count ? estimate.mean : NAN);
}

int report_predict(const struct compare *compare, struct report_prediction *ret_prediction)
{
    const struct scenario_observed *observed = &compare->scenario->observed;
    struct compare_policy then;

    if (!observed->present ||
        compare_policy_parse(*observed->policy ? observed->policy : COMPARE_NO_CONTROL, &then,
                             NULL) < 0)
        return -ENOENT;
    for (uint32_t p = 0; p < compare->policy_count; p++) {
        if (!compare_policy_equal(&compare->policies[p], &then))
            continue;
        *ret_prediction = (struct report_prediction){
            .policy = compare->policies[p].text,
            .index = p,
            .jobs = observed->turnaround_ns ? (uint32_t)compare->job_count : 0,
            .makespan = compared(compare, p, SIM_MAKESPAN, observed->makespan_ns),
            .turnaround = compared(compare, p, SIM_TURNAROUND, observed->mean_turnaround_ns)};
        return 0;
    }
    return -ENOENT;
}

struct report_compared report_predict_job(const struct compare *compare,
                                          const struct report_prediction *prediction, uint32_t job)
{
    return beside(compare->scenario->observed.turnaround_ns[job],
                  compare_runs(compare, prediction->index)->turnaround_s[job]);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* JSON has no NaN. */
static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *estimate_json(const struct sim_estimate *e)
{
    return e->count ? json_pack("{s:o, s:o, s:o}", "mean", number(e->mean), "low", number(e->low),
                                "high", number(e->high))
                    : json_null();
}

static json_t *servers_json(const struct compare_run *run)
{
    json_t *list = json_array();

    for (size_t i = 0; i < run->server_count; i++) {
        const struct compare_server *s = &run->servers[i];

        json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:I, s:o, s:o, s:f}", "name",
                                              s->name, "requests", (json_int_t)s->requests,
                                              "seconds", (json_int_t)s->seconds, "kept_seconds",
                                              (json_int_t)s->kept, "p50_ms", number(s->p50_ms),
                                              "p99_ms", number(s->p99_ms), "cores", s->cores));
    }
    return list;
}

static json_t *run_json(const struct compare *compare, uint32_t policy, uint32_t seed)
{
    const struct compare_run *run = &compare_runs(compare, policy)[seed];
    json_t *json = json_pack("{s:I, s:I, s:I, s:b}", "seed", (json_int_t)compare->first_seed + seed,
                             "jobs", (json_int_t)run->totals.jobs, "decisions",
                             (json_int_t)run->totals.decisions, "stuck", run->stuck);

    for (int m = 0; json && m < SIM_METRIC_MAX; m++)
        json_object_set_new(json, sim_metric_info(m)->name, number(run->value[m]));
    if (json && run->server_count)
        json_object_set_new(json, "servers", servers_json(run));
    if (json && run->stuck)
        json_object_set_new(json, "why", json_string(run->why));
    return json;
}

static json_t *policy_json(const struct compare *compare, uint32_t policy)
{
    json_t *runs = json_array(), *means = json_object(), *gains = json_object();

    for (uint32_t s = 0; s < compare->seed_count; s++)
        json_array_append_new(runs, run_json(compare, policy, s));
    for (int m = 0; m < SIM_METRIC_MAX; m++) {
        struct sim_estimate estimate;

        compare_estimate(compare, policy, m, &estimate);
        json_object_set_new(means, sim_metric_info(m)->name, estimate_json(&estimate));
        if (policy == 0)
            continue;
        compare_gain(compare, policy, m, &estimate);
        if (estimate.count)
            json_object_set_new(gains, sim_metric_info(m)->name, estimate_json(&estimate));
    }
    return json_pack("{s:s, s:o, s:o, s:o}", "policy", compare->policies[policy].text, "metrics",
                     means, "gain", gains, "runs", runs);
}

static json_t *compared_json(const struct report_compared *c)
{
    return json_pack("{s:o, s:o, s:o}", "observed", number(c->observed_s), "predicted",
                     number(c->predicted_s), "error_percent", number(c->error_percent));
}

static json_t *compared_jobs_json(const struct compare *compare, const struct report_prediction *p)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < p->jobs; i++) {
        const struct report_compared c = report_predict_job(compare, p, i);
        json_t *job = compared_json(&c);

        json_object_set_new(job, "name", json_string(compare->scenario->jobs[i].name));
        json_array_append_new(list, job);
    }
    return list;
}

json_t *report_json(const struct compare *compare)
{
    json_t *policies = json_array(), *metrics = json_object(), *json;
    struct report_prediction then;

    for (uint32_t p = 0; p < compare->policy_count; p++)
        json_array_append_new(policies, policy_json(compare, p));
    for (int m = 0; m < SIM_METRIC_MAX; m++) {
        const struct sim_metric_info *info = sim_metric_info(m);

        json_object_set_new(metrics, info->name,
                            json_pack("{s:s, s:s, s:i}", "unit", info->unit, "text", info->text,
                                      "better", info->better));
    }
    json = json_pack("{s:s, s:I, s:I, s:I, s:o, s:o}", "scenario", compare->scenario->name,
                     "first_seed", (json_int_t)compare->first_seed, "seeds",
                     (json_int_t)compare->seed_count, "jobs", (json_int_t)compare->job_count,
                     "metrics", metrics, "policies", policies);
    if (json && report_predict(compare, &then) == 0)
        json_object_set_new(json, "prediction",
                            json_pack("{s:s, s:o, s:o, s:o}", "policy", then.policy, "makespan",
                                      compared_json(&then.makespan), "turnaround",
                                      compared_json(&then.turnaround), "jobs",
                                      compared_jobs_json(compare, &then)));
    return json;
}
