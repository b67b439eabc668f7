/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/engine/metrics.h"

#include <math.h>
#include <stddef.h>

static const struct sim_metric_info infos[] = {
    [SIM_MAKESPAN] = {"makespan", "s", "first arrival to last finish", -1},
    [SIM_WAITING] = {"waiting", "s", "mean time queued or paused", -1},
    [SIM_EXECUTION] = {"execution", "s", "mean time with cores", -1},
    [SIM_TURNAROUND] = {"turnaround", "s", "mean time from arrival to finish", -1},
    [SIM_FIRST_RUN] = {"first_run", "s", "mean time from arrival to first run", -1},
    [SIM_SLOWDOWN] = {"slowdown", "", "mean of turnaround / time alone with the request", -1},
    [SIM_SLOWDOWN_P95] = {"slowdown_p95", "", "slowdown that 95 % of the jobs do not exceed", -1},
    [SIM_SLOWDOWN_P99] = {"slowdown_p99", "", "slowdown that 99 % of the jobs do not exceed", -1},
    [SIM_THROUGHPUT] = {"throughput", "jobs/h", "finished jobs per hour", 1},
    [SIM_HELD_CORES] = {"held_cores", "cores", "mean number of cores given to jobs", 0},
    [SIM_BUSY_CORES] = {"busy_cores", "cores", "mean number of busy cores", 0},
    [SIM_USEFUL_CORES] = {"useful_cores", "cores", "mean progress, one core alone makes 1", 1},
    [SIM_RESIZES] = {"resizes", "", "changes of a running job's cores", -1},
    [SIM_PAUSES] = {"pauses", "", "jobs paused, each time", -1},
    [SIM_FAIRNESS] = {"fairness", "", "Jain's index over the slowdowns", 1},
    [SIM_ENERGY] = {"energy", "J", "drawn by the machine, idle power included", -1},
    [SIM_MISSES] = {"misses", "jobs", "deadlines missed", -1},
    [SIM_KEPT] = {"promise_kept", "%", "part of the seconds with requests that kept the promise",
                  1},
    [SIM_LATENCY_P50] = {"latency_p50", "ms", "latency that half of the requests do not exceed",
                         -1},
    [SIM_LATENCY_P99] = {"latency_p99", "ms", "latency that 99 % of the requests do not exceed",
                         -1},
    [SIM_REQUESTS] = {"requests", "", "requests that servers answered", 0},
    [SIM_UNFINISHED] = {"unfinished", "jobs", "jobs that never ended", -1},
};
_Static_assert(sizeof(infos) / sizeof(infos[0]) == SIM_METRIC_MAX, "a text for each metric");

const struct sim_metric_info *sim_metric_info(enum sim_metric metric)
{
    return (unsigned)metric < SIM_METRIC_MAX ? &infos[metric] : NULL;
}

/* ---- quantiles ------------------------------------------------------------------------------- */

/* Keeps a value's leading bit and the 7 behind it; `shift` bits are dropped. */
void sim_quantiles_add(struct sim_quantiles *q, uint64_t value)
{
    int shift = value < SIM_QUANTILE_STEPS ? 0 : 56 - __builtin_clzll(value);

    q->count[shift * SIM_QUANTILE_STEPS + (value >> shift)]++;
    q->total++;
}

void sim_quantiles_merge(struct sim_quantiles *q, const struct sim_quantiles *more)
{
    for (uint32_t b = 0; b < sizeof(q->count) / sizeof(q->count[0]); b++)
        q->count[b] += more->count[b];
    q->total += more->total;
}

/* Returns the middle of a bucket. The first 2 × 128 buckets hold one value each. */
static uint64_t bucket_value(uint32_t bucket)
{
    uint32_t shift = bucket < SIM_QUANTILE_STEPS ? 0 : bucket / SIM_QUANTILE_STEPS - 1;
    uint64_t first = (uint64_t)(bucket - shift * SIM_QUANTILE_STEPS) << shift;

    return first + ((UINT64_C(1) << shift) - 1) / 2;
}

uint64_t sim_quantiles_at(const struct sim_quantiles *q, uint32_t permille)
{
    sim_sum rank = ((sim_sum)q->total * permille + 999) / 1000;
    uint64_t seen = 0;

    for (uint32_t b = 0; b < sizeof(q->count) / sizeof(q->count[0]); b++) {
        seen += q->count[b];
        if (q->count[b] && seen >= rank)
            return bucket_value(b);
    }
    return 0;
}

/* ---- one run --------------------------------------------------------------------------------- */

void sim_metrics_add(struct sim_metrics *m, const struct sim_record *record)
{
    const struct sim_job *job = record->job;
    uint64_t turnaround = record->finish_ns - job->arrival_ns;
    sim_sum permille;
    double slowdown;

    if (job->deadline_ns != POLICY_NEVER) {
        m->with_deadline++;
        m->misses += record->finish_ns > job->deadline_ns; /* POLICY_NEVER is later than all */
    }
    if (record->served) {
        m->servers++;
        m->seconds += record->served->seconds;
        m->kept += record->served->kept;
        sim_quantiles_merge(&m->latency_ns, record->served->latency_ns);
    }
    if (record->finish_ns == POLICY_NEVER || record->served)
        return;
    m->finished++;
    m->wait_ns += record->wait_ns;
    m->run_ns += record->run_ns;
    m->turnaround_ns += turnaround;
    m->first_run_ns += record->start_ns - job->arrival_ns;
    slowdown = (double)turnaround / (double)record->alone_ns;
    m->slowdown += slowdown;
    m->slowdown_squared += slowdown * slowdown;
    permille = (sim_sum)turnaround * 1000 / record->alone_ns;
    sim_quantiles_add(&m->slowdown_permille,
                      permille < UINT64_MAX ? (uint64_t)permille : UINT64_MAX);
}

static double ratio(double a, double b)
{
    return b > 0 ? a / b : NAN;
}

static double seconds(sim_sum ns)
{
    return (double)ns / 1e9;
}

static uint64_t span_ns(uint64_t begin_ns, uint64_t end_ns)
{
    return end_ns > begin_ns ? end_ns - begin_ns : 0;
}

void sim_metrics_finish(const struct sim_metrics *m, const struct sim_machine *machine,
                        const struct sim_totals *totals, double *ret_value)
{
    double n = (double)m->finished;
    double span = seconds(span_ns(totals->begin_ns, totals->end_ns));
    double makespan = seconds(span_ns(totals->begin_ns, totals->work_end_ns));
    const struct sim_quantiles *slow = &m->slowdown_permille, *took = &m->latency_ns;

    ret_value[SIM_MAKESPAN] = m->finished ? makespan : NAN;
    ret_value[SIM_WAITING] = ratio(seconds(m->wait_ns), n);
    ret_value[SIM_EXECUTION] = ratio(seconds(m->run_ns), n);
    ret_value[SIM_TURNAROUND] = ratio(seconds(m->turnaround_ns), n);
    ret_value[SIM_FIRST_RUN] = ratio(seconds(m->first_run_ns), n);
    ret_value[SIM_SLOWDOWN] = ratio(m->slowdown, n);
    ret_value[SIM_SLOWDOWN_P95] = m->finished ? (double)sim_quantiles_at(slow, 950) / 1000 : NAN;
    ret_value[SIM_SLOWDOWN_P99] = m->finished ? (double)sim_quantiles_at(slow, 990) / 1000 : NAN;
    ret_value[SIM_THROUGHPUT] = ratio(n * 3600, makespan);
    ret_value[SIM_HELD_CORES] = ratio(seconds(totals->core_ns), span);
    ret_value[SIM_BUSY_CORES] = ratio(seconds(totals->busy_ns), span);
    ret_value[SIM_USEFUL_CORES] = ratio(seconds(totals->useful_ns), span);
    ret_value[SIM_RESIZES] = (double)totals->resizes;
    ret_value[SIM_PAUSES] = (double)totals->pauses;
    ret_value[SIM_FAIRNESS] = ratio(m->slowdown * m->slowdown, n * m->slowdown_squared);
    ret_value[SIM_ENERGY] =
        machine->idle_uw || machine->core_uw ? (double)totals->energy_uj / 1e6 : NAN;
    ret_value[SIM_MISSES] = m->with_deadline ? (double)m->misses : NAN;
    ret_value[SIM_KEPT] = ratio(100 * (double)m->kept, (double)m->seconds);
    ret_value[SIM_LATENCY_P50] = took->total ? (double)sim_quantiles_at(took, 500) / 1e6 : NAN;
    ret_value[SIM_LATENCY_P99] = took->total ? (double)sim_quantiles_at(took, 990) / 1e6 : NAN;
    ret_value[SIM_REQUESTS] = m->servers ? (double)took->total : NAN;
    ret_value[SIM_UNFINISHED] = (double)(totals->jobs - totals->finished);
}

/* ---- over seeds ------------------------------------------------------------------------------ */

/* Student's t, two-sided 95 %, by degrees of freedom; between two entries, the smaller one's. */
static double student_t(uint32_t freedom)
{
    static const double table[] = {
        NAN,   12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
        2.201, 2.179,  2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080,
        2.074, 2.069,  2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
    };

    if (freedom < sizeof(table) / sizeof(table[0]))
        return table[freedom];
    return freedom < 40 ? 2.042 : freedom < 60 ? 2.021 : freedom < 120 ? 2.000 : 1.980;
}

/* Mean and squared deviations in one pass (Welford), exact also for nearly equal values. */
struct sample {
    uint32_t count;
    double mean, squares;
};

static void sample_add(struct sample *s, double value)
{
    double from_mean = value - s->mean;

    if (!isfinite(value))
        return;
    s->count++;
    s->mean += from_mean / s->count;
    s->squares += from_mean * (value - s->mean);
}

static void conclude(const struct sample *s, struct sim_estimate *ret_estimate)
{
    double half =
        s->count > 1 ? student_t(s->count - 1) * sqrt(s->squares / (s->count - 1) / s->count) : NAN;

    *ret_estimate = (struct sim_estimate){
        .count = s->count,
        .mean = s->count ? s->mean : NAN,
        .low = s->mean - half,
        .high = s->mean + half,
    };
}

void sim_estimate(const double *values, uint32_t count, struct sim_estimate *ret_estimate)
{
    struct sample sample = {0};

    for (uint32_t i = 0; i < count; i++)
        sample_add(&sample, values[i]);
    conclude(&sample, ret_estimate);
}

void sim_compare(const double *a, const double *b, uint32_t count,
                 struct sim_estimate *ret_estimate)
{
    struct sample logs = {0};
    struct sim_estimate e;

    for (uint32_t i = 0; i < count; i++)
        if (a[i] > 0 && b[i] > 0)
            sample_add(&logs, log(a[i] / b[i]));
    conclude(&logs, &e);
    *ret_estimate = (struct sim_estimate){e.count, exp(e.mean), exp(e.low), exp(e.high)};
}
