/* SPDX-License-Identifier: Apache-2.0 */
/* The web page of report.h. */
#include "sim/report/report.h"

#include "base/cleanup.h"
#include "base/size.h"
#include "sim/report/svg.h"

#include <math.h>
#include <string.h>

static const char page_style[] =
    ":root{color-scheme:light dark}body{font:15px/1.45 system-ui,sans-serif;max-width:1060px;"
    "margin:2em auto;padding:0 1em;background:#fff;color:#1b1f24}\n"
    "table{border-collapse:collapse;margin:1em 0;font-variant-numeric:tabular-nums}"
    "th,td{padding:.25em .7em;border-bottom:1px solid #8884;text-align:right}"
    "th:first-child,td:first-child,td.text{text-align:left}thead th{vertical-align:bottom}"
    "td{white-space:nowrap}td.text{white-space:normal}small{opacity:.7}.best{font-weight:700}"
    ".scroll{overflow-x:auto}svg{max-width:100%;min-width:720px;height:auto}"
    "code{overflow-wrap:anywhere}h2{margin-top:2em}"
    "summary{cursor:pointer;font-weight:600;margin:.7em 0}\n"
    "@media(prefers-color-scheme:dark){body{background:#14171a;color:#e6e8eb}}\n";

static void cell(FILE *f, const struct compare *compare, uint32_t policy, enum sim_metric metric)
{
    char number[REPORT_NUMBER_MAX];
    struct sim_estimate e;

    compare_estimate(compare, policy, metric, &e);
    fprintf(f, "<td%s>", report_best(compare, metric) == policy ? " class=\"best\"" : "");
    fputs(e.count ? report_number(e.mean, number) : "–", f);
    if (e.count && !isnan(e.low) && e.high > e.low)
        fprintf(f, " <small>± %s</small>", report_number((e.high - e.low) / 2, number));
    fputs("</td>", f);
}

static void metric_name(FILE *f, enum sim_metric metric)
{
    for (const char *p = sim_metric_info(metric)->name; *p; p++)
        putc(*p == '_' ? ' ' : *p, f);
}

/* @unit: "" for a ratio */
static void head_cell(FILE *f, enum sim_metric metric, const char *unit)
{
    fputs("<th title=\"", f);
    svg_text(f, sim_metric_info(metric)->text);
    fputs("\">", f);
    metric_name(f, metric);
    if (*unit)
        fprintf(f, "<br><small>%s</small>", unit);
    fputs("</th>", f);
}

static void summary_table(FILE *f, const struct compare *compare)
{
    fputs("<div class=\"scroll\"><table><thead><tr><th>policy</th>", f);
    for (uint32_t i = 0; i < report_summary_count; i++)
        if (report_is_known(compare, report_summary[i]))
            head_cell(f, report_summary[i], sim_metric_info(report_summary[i])->unit);
    fputs("</tr></thead><tbody>\n", f);
    for (uint32_t p = 0; p < compare->policy_count; p++) {
        fputs("<tr><td>", f);
        svg_text(f, compare->policies[p].text);
        fputs("</td>", f);
        for (uint32_t i = 0; i < report_summary_count; i++)
            if (report_is_known(compare, report_summary[i]))
                cell(f, compare, p, report_summary[i]);
        fputs("</tr>\n", f);
    }
    fputs("</tbody></table></div>\n", f);
}

static void full_table(FILE *f, const struct compare *compare)
{
    fputs("<div class=\"scroll\"><table><thead><tr><th>metric</th>", f);
    for (uint32_t p = 0; p < compare->policy_count; p++) {
        fputs("<th>", f);
        svg_text(f, compare->policies[p].text);
        fputs("</th>", f);
    }
    fputs("</tr></thead><tbody>\n", f);
    for (int m = 0; m < SIM_METRIC_MAX; m++) {
        const struct sim_metric_info *info = sim_metric_info(m);

        fputs("<tr><td>", f);
        svg_text(f, info->text);
        fprintf(f, "%s%s%s</td>", *info->unit ? " <small>" : "", info->unit,
                *info->unit ? "</small>" : "");
        for (uint32_t p = 0; p < compare->policy_count; p++)
            cell(f, compare, p, m);
        fputs("</tr>\n", f);
    }
    fputs("</tbody></table></div>\n", f);
}

static void gain_table(FILE *f, const struct compare *compare)
{
    static const enum sim_metric shown[] = {SIM_MAKESPAN, SIM_TURNAROUND, SIM_SLOWDOWN};

    if (compare->policy_count < 2)
        return;
    fputs("<h2>Against ", f);
    svg_text(f, compare->policies[0].text);
    fputs("</h2>\n<p>How many times better, seed by seed; above 1 is better. Seeds in which one of "
          "the two left more jobs unfinished do not count.</p>\n"
          "<div class=\"scroll\"><table><thead><tr><th>policy</th>",
          f);
    for (size_t i = 0; i < ARRAY_LEN(shown); i++)
        head_cell(f, shown[i], "");
    fputs("</tr></thead><tbody>\n", f);
    for (uint32_t p = 1; p < compare->policy_count; p++) {
        fputs("<tr><td>", f);
        svg_text(f, compare->policies[p].text);
        fputs("</td>", f);
        for (size_t i = 0; i < ARRAY_LEN(shown); i++) {
            struct sim_estimate e;

            compare_gain(compare, p, shown[i], &e);
            fprintf(f, e.count ? "<td>×%.2f" : "<td>–", e.mean);
            if (e.count && !isnan(e.low))
                fprintf(f, " <small>%.2f … %.2f</small>", e.low, e.high);
            fputs("</td>", f);
        }
        fputs("</tr>\n", f);
    }
    fputs("</tbody></table></div>\n", f);
}

static void bar_charts(FILE *f, const struct compare *compare)
{
    static const enum sim_metric shown[] = {SIM_MAKESPAN, SIM_TURNAROUND, SIM_SLOWDOWN_P95,
                                            SIM_USEFUL_CORES};
    struct sim_estimate estimate[COMPARE_POLICIES_MAX];
    const char *names[COMPARE_POLICIES_MAX];

    for (size_t i = 0; i < ARRAY_LEN(shown); i++) {
        const struct sim_metric_info *info = sim_metric_info(shown[i]);

        for (uint32_t p = 0; p < compare->policy_count; p++) {
            compare_estimate(compare, p, shown[i], &estimate[p]);
            names[p] = compare->policies[p].text;
        }
        fputs("<h3>", f);
        metric_name(f, shown[i]);
        fputs(" <small>", f);
        svg_text(f, info->text);
        fputs("</small></h3>\n<div class=\"scroll\">", f);
        svg_bars(f, 0, info->unit, names, estimate, compare->policy_count);
        fputs("</div>\n", f);
    }
}

static void prediction_row(FILE *f, const char *name, const char *what,
                           const struct report_compared *c)
{
    fputs("<tr><td>", f);
    svg_text(f, name);
    fprintf(f, "%s <small>s</small></td><td>%.4g</td><td>%.4g</td><td>%+.1f %%</td></tr>\n", what,
            c->observed_s, c->predicted_s, c->error_percent);
}

static void prediction_part(FILE *f, const struct compare *compare)
{
    struct report_prediction p;

    if (report_predict(compare, &p) < 0)
        return;
    fputs("<h2>Prediction and reality</h2>\n<p>What was recorded under ", f);
    svg_text(f, p.policy);
    fputs(".</p>\n<table><thead><tr><th></th><th>observed</th><th>predicted</th><th>error</th>"
          "</tr></thead><tbody>\n",
          f);
    prediction_row(f, "makespan", "", &p.makespan);
    prediction_row(f, "mean turnaround", "", &p.turnaround);
    for (uint32_t i = 0; i < p.jobs && i < REPORT_JOBS_MAX; i++) {
        const struct report_compared c = report_predict_job(compare, &p, i);

        prediction_row(f, compare->scenario->jobs[i].name, ", turnaround", &c);
    }
    fputs("</tbody></table>\n", f);
}

static void parameter(FILE *f, const char *name, const char *fmt, double value)
{
    fprintf(f, "<tr><td>%s</td><td>", name);
    fprintf(f, fmt, value);
    fputs("</td></tr>\n", f);
}

static void machine_table(FILE *f, const struct compare *compare)
{
    static const char *const placements[] = {"shared", "exclusive", "quota"};
    const struct sim_machine *m = &compare->machine;
    char devices[DEVICES_TEXT_MAX];

    fputs("<h3>Machine</h3>\n<table><tbody>\n", f);
    parameter(f, "cores", "%g", m->cores);
    fprintf(f, "<tr><td>placement</td><td>%s</td></tr>\n", placements[m->placement]);
    parameter(f, "NUMA nodes", "%g", m->numa);
    parameter(f, "hardware threads per core", "%g", m->smt);
    for (uint32_t i = 0; i < m->speed_count; i++)
        fprintf(f, "<tr><td>cores of speed %.3g</td><td>%u</td></tr>\n",
                m->speeds[i].permille / 1e3, m->speeds[i].cores);
    parameter(f, "memory, GiB (0: not counted)", "%.4g", (double)m->memory_bytes / 0x1p30);
    if (m->devices)
        fprintf(f, "<tr><td>devices</td><td>%s</td></tr>\n", devices_text(m->devices, devices));
    parameter(f, "idle watts", "%.4g", (double)m->idle_uw / 1e6);
    parameter(f, "watts of a busy core", "%.4g", (double)m->core_uw / 1e6);
    parameter(f, "power cap, watts (0: none)", "%.4g", (double)m->cap_uw / 1e6);
    parameter(f, "loss by oversubscription", "%.3g", m->oversubscription_permille / 1e3);
    parameter(f, "loss by contention", "%.3g", m->contention_permille / 1e3);
    parameter(f, "loss across NUMA nodes", "%.3g", m->numa_permille / 1e3);
    fputs("</tbody></table>\n", f);
}

static void policies_table(FILE *f, const struct compare *compare)
{
    fputs("<h3>Policies</h3>\n<table><tbody>\n", f);
    for (uint32_t p = 0; p < compare->policy_count; p++) {
        const struct policy_spec *spec = &compare->policies[p].spec;

        fputs("<tr><td>", f);
        svg_text(f, compare->policies[p].text);
        fputs("</td><td class=\"text\">", f);
        svg_text(f, spec->policy ? spec->policy->brief
                                 : "no control: every job runs at once, with "
                                   "the threads that it starts by itself");
        for (uint32_t i = 0; spec->policy && i < spec->policy->param_count; i++) {
            char text[64];

            policy_param_text(&spec->policy->params[i], spec->params[i], text, sizeof(text));
            fprintf(f, "%s%s = ", i ? ", " : "<br><small>", spec->policy->params[i].name);
            svg_text(f, text);
        }
        fputs(spec->policy && spec->policy->param_count ? "</small></td></tr>\n" : "</td></tr>\n",
              f);
    }
    fputs("</tbody></table>\n", f);
}

static void charts_part(FILE *f, const struct compare *compare)
{
    fprintf(f, "<h2>Over time</h2>\n<p>Seed %llu. Point at a bar for its times.</p>\n",
            (unsigned long long)compare->first_seed);
    for (uint32_t p = 0; p < compare->policy_count; p++) {
        const struct chart *chart = compare->chart[p];

        fprintf(f, "<details%s><summary>", p ? "" : " open");
        svg_text(f, compare->policies[p].text);
        fputs("</summary>\n<div class=\"scroll\">", f);
        svg_timelines(f, 0, chart, compare->machine.cores);
        svg_gantt(f, 0, chart);
        fputs("</div>\n", f);
        if (compare->job_count > CHART_JOBS_MAX)
            fprintf(f, "<p><small>The first %d of %llu jobs.</small></p>\n", CHART_JOBS_MAX,
                    (unsigned long long)compare->job_count);
        if (chart->cut)
            fputs("<p><small>Not all changes of these jobs are drawn: there are too "
                  "many.</small></p>\n",
                  f);
        fputs("</details>\n", f);
    }
}

void report_html(FILE *f, const struct compare *compare, const char *command)
{
    const struct scenario *s = compare->scenario;

    fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
          "<meta name=\"viewport\" content=\"width=device-width\">\n<title>",
          f);
    svg_text(f, s->name);
    fprintf(f, "</title>\n<style>\n%s%s</style></head><body>\n<h1>", svg_style, page_style);
    svg_text(f, s->name);
    fputs("</h1>\n<p>", f);
    svg_text(f, s->text);
    fprintf(f, "</p>\n<p>%llu job%s on %u cores, seed%s %llu",
            (unsigned long long)compare->job_count, compare->job_count == 1 ? "" : "s",
            compare->machine.cores, compare->seed_count == 1 ? "" : "s",
            (unsigned long long)compare->first_seed);
    if (compare->seed_count > 1)
        fprintf(f,
                " to %llu. Values are means over the seeds, ± is half of the 95 %% confidence "
                "interval",
                (unsigned long long)compare->first_seed + compare->seed_count - 1);
    fputs("; the best of each column is bold.</p>\n", f);
    summary_table(f, compare);
    gain_table(f, compare);
    prediction_part(f, compare);
    bar_charts(f, compare);
    charts_part(f, compare);
    fputs("<h2>All metrics</h2>\n", f);
    full_table(f, compare);
    fputs("<h2>Parameters</h2>\n<p><code>", f);
    svg_text(f, command);
    fputs("</code></p>\n<p><small>tide " TIDE_VERSION "</small></p>\n", f);
    machine_table(f, compare);
    policies_table(f, compare);
    fputs("</body></html>\n", f);
}
