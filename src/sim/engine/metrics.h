/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metrics of a run: numbers from its records and totals, in memory of fixed size. One thread
 * per struct; called by the reports on runs.
 */
#pragma once

#include "sim/engine/sim.h"

enum sim_metric {
    SIM_MAKESPAN, /* first arrival to last finish; servers do not count here and in means of jobs */
    SIM_WAITING,  /* means over the finished jobs: queued or paused */
    SIM_EXECUTION,  /* with cores */
    SIM_TURNAROUND, /* arrival to finish */
    SIM_FIRST_RUN,  /* arrival to first run */
    SIM_SLOWDOWN,   /* turnaround / time alone on the machine with its request */
    SIM_SLOWDOWN_P95,
    SIM_SLOWDOWN_P99,
    SIM_THROUGHPUT, /* finished jobs per hour of makespan */
    SIM_HELD_CORES, /* means over the makespan: allocated cores; overlapping ones may add up to more
                       than there are */
    SIM_BUSY_CORES, /* CPU time used */
    SIM_USEFUL_CORES, /* of that, the time that one core alone would have needed for the work */
    SIM_RESIZES,      /* of all jobs */
    SIM_PAUSES,
    SIM_FAIRNESS, /* Jain's index over slowdowns, (Σs)² / (n Σs²): from 1, all equal, down to 1/n */
    SIM_ENERGY, /* of the machine, idle power included; NAN: the scenario gives no powers */
    SIM_MISSES, /* jobs with a deadline that ended later or never; NAN: no job has one */
    SIM_KEPT,   /* percent of the seconds with requests in which their p99 kept the promise, of all
                   servers; NAN: none promises anything */
    SIM_LATENCY_P50, /* of all servers' requests, from arrival to answer; NAN: there are none */
    SIM_LATENCY_P99,
    SIM_REQUESTS,   /* answered */
    SIM_UNFINISHED, /* left when no further event could happen, or infeasible */
    SIM_METRIC_MAX
};

struct sim_metric_info {
    const char *name; /* "slowdown_p95" */
    const char *unit; /* "s", "J", "cores", … or "" */
    const char *text; /* one line */
    int better;       /* 1: larger is better, -1: smaller, 0: neither */
};

/* Lives forever; NULL for no metric. */
const struct sim_metric_info *sim_metric_info(enum sim_metric metric);

/*
 * Counts by size, 128 buckets to each power of two: a quantile is off by 0.4 % at most. Values
 * below 256 are exact.
 */
#define SIM_QUANTILE_STEPS 128
struct sim_quantiles {
    uint64_t total;
    uint64_t count[(64 - 7 + 1) * SIM_QUANTILE_STEPS];
};

void sim_quantiles_add(struct sim_quantiles *q, uint64_t value);

/* Returns the smallest value that at least @permille of all do not exceed; 0 without values. */
uint64_t sim_quantiles_at(const struct sim_quantiles *q, uint32_t permille);

/* Adds all of @more. */
void sim_quantiles_merge(struct sim_quantiles *q, const struct sim_quantiles *more);

/* All zero is the first state. About 120 KiB. */
struct sim_metrics {
    uint64_t finished;
    uint64_t with_deadline, misses;
    sim_sum wait_ns, run_ns, turnaround_ns, first_run_ns;
    double slowdown, slowdown_squared; /* sums */
    struct sim_quantiles slowdown_permille;
    uint64_t servers, seconds, kept; /* as struct sim_served */
    struct sim_quantiles latency_ns;
};

void sim_metrics_add(struct sim_metrics *metrics, const struct sim_record *record);

/* Fills @ret_value[SIM_METRIC_MAX]; NAN for a metric without a value. Times are in seconds. */
void sim_metrics_finish(const struct sim_metrics *metrics, const struct sim_machine *machine,
                        const struct sim_totals *totals, double *ret_value);

/* ---- over seeds ------------------------------------------------------------------------------ */

/* A mean with its 95 % confidence interval (Student's t); of one value, the interval is NAN. */
struct sim_estimate {
    uint32_t count; /* values that are numbers */
    double mean;
    double low, high;
};

void sim_estimate(const double *values, uint32_t count, struct sim_estimate *ret_estimate);

/*
 * Returns how many times larger @a is than @b, seed by seed: the geometric mean of the ratios a/b,
 * its interval from the logarithms. Leaves out pairs that are not two positive numbers.
 */
void sim_compare(const double *a, const double *b, uint32_t count,
                 struct sim_estimate *ret_estimate);
