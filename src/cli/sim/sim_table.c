/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/sim/sim_table.h"

#include "cli/cli.h"

#include "base/cleanup.h"
#include "sim/report/report.h"

#include <ctype.h>
#include <libsmartcols/libsmartcols.h>
#include <math.h>
#include <string.h>

static void unref_table(struct libscols_table **table)
{
    scols_unref_table(*table);
}

/* One cell of a policy's row. */
struct shown {
    enum sim_metric metric;
    bool gain; /* compared with the first policy, instead of the mean */
};

/* Writes "1521 ±2.1%"; "-" where there is no value. */
static void mean_text(const struct sim_estimate *e, char *buf, size_t size)
{
    char number[REPORT_NUMBER_MAX];
    double half = (e->high - e->low) / 2;

    if (!e->count)
        snprintf(buf, size, "-");
    else if (isnan(half) || half <= 0 || e->mean == 0)
        snprintf(buf, size, "%s", report_number(e->mean, number));
    else
        snprintf(buf, size, "%s ±%.1f%%", report_number(e->mean, number),
                 100 * half / fabs(e->mean));
}

/* "×1.42 (1.38 … 1.46)" */
static void gain_text(const struct sim_estimate *e, char *buf, size_t size)
{
    if (!e->count)
        snprintf(buf, size, "-");
    else if (isnan(e->low))
        snprintf(buf, size, "×%.2f", e->mean);
    else
        snprintf(buf, size, "×%.2f (%.2f %s %.2f)", e->mean, e->low, cli_glyph(CLI_DOTS), e->high);
}

static void cell_text(const struct compare *compare, uint32_t policy, const struct shown *shown,
                      char *buf, size_t size)
{
    struct sim_estimate estimate;

    if (shown->gain) {
        compare_gain(compare, policy, shown->metric, &estimate);
        gain_text(&estimate, buf, size);
    } else {
        compare_estimate(compare, policy, shown->metric, &estimate);
        mean_text(&estimate, buf, size);
    }
}

/* "MAKESPAN s", "USEFUL CORES" */
static void title_text(const struct shown *shown, char *buf, size_t size)
{
    const struct sim_metric_info *info = sim_metric_info(shown->metric);
    /* Leaves out units that the name already tells: "useful_cores", and the "s" of "makespan". */
    bool said = strlen(info->unit) > 1 && strstr(info->name, info->unit);
    bool unit = !shown->gain && *info->unit && !said;
    size_t length = strlen(info->name);

    snprintf(buf, size, "%s%s%s", info->name, unit ? " " : "", unit ? info->unit : "");
    for (size_t i = 0; i < length && i + 1 < size; i++)
        buf[i] = (char)(buf[i] == '_' ? ' ' : toupper((unsigned char)buf[i]));
}

/* Prints a line for each policy from @first on. */
static int print_by_policy(const struct compare *compare, uint32_t first, const struct shown *shown,
                           size_t count)
{
    _cleanup_(unref_table) struct libscols_table *table = scols_new_table();
    char text[96];

    if (!table || !scols_table_new_column(table, "POLICY", 0, 0))
        return -ENOMEM;
    for (size_t c = 0; c < count; c++) {
        title_text(&shown[c], text, sizeof(text));
        if (!scols_table_new_column(table, text, 0, SCOLS_FL_RIGHT))
            return -ENOMEM;
    }
    for (uint32_t p = first; p < compare->policy_count; p++) {
        struct libscols_line *line = scols_table_new_line(table, NULL);

        if (!line || scols_line_set_data(line, 0, compare->policies[p].text) < 0)
            return -ENOMEM;
        for (size_t c = 0; c < count; c++) {
            cell_text(compare, p, &shown[c], text, sizeof(text));
            if (scols_line_set_data(line, c + 1, text) < 0)
                return -ENOMEM;
        }
    }
    return scols_print_table(table);
}

/* Prints a line for each metric. */
static int print_all(const struct compare *compare)
{
    _cleanup_(unref_table) struct libscols_table *table = scols_new_table();
    char text[96];

    if (!table || !scols_table_new_column(table, "METRIC", 0, 0))
        return -ENOMEM;
    for (uint32_t p = 0; p < compare->policy_count; p++)
        if (!scols_table_new_column(table, compare->policies[p].text, 0, SCOLS_FL_RIGHT))
            return -ENOMEM;
    for (int m = 0; m < SIM_METRIC_MAX; m++) {
        const struct shown shown = {.metric = (enum sim_metric)m};
        struct libscols_line *line = scols_table_new_line(table, NULL);

        title_text(&shown, text, sizeof(text));
        if (!line || scols_line_set_data(line, 0, text) < 0)
            return -ENOMEM;
        for (uint32_t p = 0; p < compare->policy_count; p++) {
            cell_text(compare, p, &shown, text, sizeof(text));
            if (scols_line_set_data(line, p + 1, text) < 0)
                return -ENOMEM;
        }
    }
    return scols_print_table(table);
}

static int print_summary(const struct compare *compare)
{
    struct shown shown[SIM_METRIC_MAX];
    size_t count = 0;

    for (uint32_t i = 0; i < report_summary_count; i++)
        if (report_is_known(compare, report_summary[i]))
            shown[count++] = (struct shown){.metric = report_summary[i]};
    return print_by_policy(compare, 0, shown, count);
}

static int print_gains(const struct compare *compare)
{
    static const struct shown shown[] = {
        {SIM_MAKESPAN, true}, {SIM_TURNAROUND, true}, {SIM_SLOWDOWN, true}};

    if (compare->policy_count < 2)
        return 0;
    printf("\nHow many times better than %s:\n", compare->policies[0].text);
    return print_by_policy(compare, 1, shown, ARRAY_LEN(shown));
}

static void print_compared(const char *what, const struct report_compared *c)
{
    printf("  %-15s observed %.1f s, predicted %.1f s: %+.1f %%\n", what, c->observed_s,
           c->predicted_s, c->error_percent);
}

static void print_compared_jobs(const struct compare *compare, const struct report_prediction *p)
{
    if (p->jobs)
        printf("Turnaround of each job:\n");
    for (uint32_t i = 0; i < p->jobs && i < REPORT_JOBS_MAX; i++) {
        const struct report_compared c = report_predict_job(compare, p, i);

        print_compared(compare->scenario->jobs[i].name, &c);
    }
    if (p->jobs > REPORT_JOBS_MAX)
        printf("  ... and of %u more with --json\n", p->jobs - REPORT_JOBS_MAX);
}

static void print_prediction(const struct compare *compare)
{
    const struct scenario_observed *observed = &compare->scenario->observed;
    struct report_prediction p;

    if (!observed->present)
        return;
    if (report_predict(compare, &p) < 0) {
        printf("\nRecorded under %s: add it to --policy to compare with what happened.\n",
               *observed->policy ? observed->policy : COMPARE_NO_CONTROL);
        return;
    }
    printf("\nRecorded under %s:\n", p.policy);
    print_compared("makespan", &p.makespan);
    print_compared("mean turnaround", &p.turnaround);
    print_compared_jobs(compare, &p);
}

int sim_table_print(const struct compare *compare, bool all)
{
    const unsigned long long first = compare->first_seed, last = first + compare->seed_count - 1;
    int r;

    cli_locale();
    printf("%s: %llu job%s on %u cores, ", compare->scenario->name,
           (unsigned long long)compare->job_count, compare->job_count == 1 ? "" : "s",
           compare->machine.cores);
    if (last > first)
        printf("mean of seeds %llu to %llu ± half of the 95 %% confidence interval\n\n", first,
               last);
    else
        printf("seed %llu\n\n", first);
    r = all ? print_all(compare) : print_summary(compare);
    if (r == 0)
        r = print_gains(compare);
    if (r == 0)
        print_prediction(compare);
    return r < 0 ? -ENOMEM : 0;
}
