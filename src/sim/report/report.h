/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a comparison as JSON and as a self-contained web page: no script, no external file, light
 * or dark as the reader's screen. Any thread; called by `tide sim`.
 */
#pragma once

#include "sim/report/compare.h"

#include <jansson.h>

/* The metrics of a summary, in its order; the full tables have the others. */
extern const enum sim_metric report_summary[];
extern const uint32_t report_summary_count;

/* True if any policy has a value of the metric. */
bool report_is_known(const struct compare *compare, enum sim_metric metric);

/*
 * Returns the policy with the best mean among those that left the fewest jobs unfinished, or
 * policy_count where none can be better.
 */
uint32_t report_best(const struct compare *compare, enum sim_metric metric);

#define REPORT_NUMBER_MAX 32
#define REPORT_JOBS_MAX   50 /* predictions of single jobs that tables show */

/* Writes about four digits: "0.52", "13.4", "5771". */
const char *report_number(double value, char buf[REPORT_NUMBER_MAX]);

/* A prediction beside the observation. */
struct report_prediction {
    const char *policy; /* as in the comparison; borrowed */
    uint32_t index;     /* its index in the comparison */
    uint32_t jobs;      /* number of jobs with an observed turnaround */
    struct report_compared {
        double observed_s, predicted_s;
        double error_percent; /* predicted against observed */
    } makespan, turnaround;
};

/*
 * Predicts under the policy of the recording, beside the observation. 0, or -ENOENT: the scenario
 * has no observation, or that policy is not in the comparison.
 */
int report_predict(const struct compare *compare, struct report_prediction *ret_prediction);

/* Predicts the turnaround of job @job (from 0, by arrival) under that policy and first seed. */
struct report_compared report_predict_job(const struct compare *compare,
                                          const struct report_prediction *prediction, uint32_t job);

/* Returns everything as one object; the caller's. NULL without memory. */
json_t *report_json(const struct compare *compare);

/*
 * Writes the page; @command is the command line that makes it again. The stream holds failures to
 * write. The comparison needs its charts.
 */
void report_html(FILE *file, const struct compare *compare, const char *command);
