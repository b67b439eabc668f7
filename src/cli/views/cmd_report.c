/* SPDX-License-Identifier: Apache-2.0 */
/* `tide report`: a day of the machine as one web page, from the daemon's history. */
#include "cli/api.h"
#include "cli/views/day_report.h"

#include "base/clock.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>

#define ERROR_WORD "output-failed"

#define LIMIT_MAX  1000 /* jobs of one answer of the daemon */
#define TIMEOUT_MS 60000

struct report_options {
    const char *day, *output;
};

/* Sets the day's bounds by the local clock: one of 23 or 25 hours is as long as it was. */
static int read_day(const char *text, struct day *day)
{
    time_t now = time(NULL);
    struct tm t, next;
    char rest;
    int back = strcmp(text, "yesterday") == 0;

    localtime_r(&now, &t);
    if (strcmp(text, "today") != 0 && !back) {
        if (strlen(text) != strlen("2026-01-31") ||
            sscanf(text, "%4d-%2d-%2d%c", &t.tm_year, &t.tm_mon, &t.tm_mday, &rest) != 3 ||
            t.tm_mon < 1 || t.tm_mon > 12 || t.tm_mday < 1 || t.tm_mday > 31)
            return -EINVAL;
        t.tm_year -= 1900;
        t.tm_mon -= 1;
    }
    t = (struct tm){
        .tm_year = t.tm_year, .tm_mon = t.tm_mon, .tm_mday = t.tm_mday - back, .tm_isdst = -1};
    next = t;
    next.tm_mday++;
    back = t.tm_mday;
    day->from_s = (double)mktime(&t);
    day->to_s = (double)mktime(&next);
    if (back > 0 && t.tm_mday != back)
        return -EINVAL; /* 31 April */
    if (day->from_s <= 0 || day->from_s > (double)now)
        return -ERANGE;
    strftime(day->name, sizeof(day->name), "%A, %d %B %Y", &t);
    return 0;
}

static int write_page(const struct report_options *o, const struct day *day, const json_t *history,
                      const struct day_energy *energy)
{
    const struct command *cmd = &command_report;
    FILE *file = o->output ? fopen(o->output, "we") : stdout;
    bool failed;

    if (!file)
        return cli_error(cmd, CLI_FAILED, NULL, "cannot write %s: %s", o->output, strerror(errno));
    day_report_html(file, day, history, energy);
    if (!o->output)
        return CLI_OK; /* main tells when stdout fails */
    failed = ferror(file);
    if (fclose(file) != 0 || failed)
        return cli_error(cmd, CLI_FAILED, NULL, "cannot write %s: %s", o->output, strerror(errno));
    return CLI_OK;
}

/* NULL where the daemon measures nothing, or tells this user nothing: the page does without. */
static json_t *ask_energy(const struct day *day, const char *by)
{
    _cleanup_answer_ struct api_answer answer = {0};
    struct error err = {0};
    char path[API_PATH_MAX];

    snprintf(path, sizeof(path), "/v1/energy?by=%s&since=%.0f&until=%.0f", by, day->from_s,
             ceil(day->to_s));
    if (api_try("GET", path, NULL, TIMEOUT_MS, &answer, &err) < 0 || answer.status != 200)
        return NULL;
    return json_incref(answer.body);
}

static int report(const struct report_options *o, const struct day *asked)
{
    struct day day = *asked;
    _cleanup_json_ json_t *machine = NULL, *history = NULL;
    _cleanup_(day_energy_done) struct day_energy energy = {0};
    char path[API_PATH_MAX], host[256] = "this machine";
    const json_t *job;
    size_t i;
    int r = api_request(&command_report, "GET", "/v1/machine", NULL, API_TIMEOUT_MS, &machine);

    if (r != CLI_OK)
        return r;
    snprintf(path, sizeof(path), "/v1/history?since=%.0f&until=%.0f&limit=%d", day.from_s,
             ceil(day.to_s), LIMIT_MAX);
    r = api_request(&command_report, "GET", path, NULL, TIMEOUT_MS, &history);
    if (r != CLI_OK)
        return r;
    if (day.to_s > (double)clock_real_ms() / 1000)
        day.to_s = (double)clock_real_ms() / 1000;
    if (api_host_name())
        snprintf(host, sizeof(host), "%s", api_host_name());
    else
        gethostname(host, sizeof(host) - 1);
    day.host = host;
    day.cores = member_long(machine, "cpus");
    day.cut = json_array_size(history) >= LIMIT_MAX;
    json_array_foreach (history, i, job)
        day.cut_jobs += json_is_true(json_object_get(job, "cut"));
    energy = (struct day_energy){.parts = ask_energy(&day, "part"),
                                 .users = ask_energy(&day, "user"),
                                 .jobs = ask_energy(&day, "job")};
    return write_page(o, &day, history, &energy);
}

static int report_run(int argc, char **argv)
{
    static const struct option options[] = {
        {"day", required_argument, NULL, 'd'}, {"output", required_argument, NULL, 'o'}, {0}};
    const struct command *cmd = &command_report;
    struct report_options o = {.day = "today"};
    struct day day = {0};
    int option, r;

    while ((option = option_next(cmd, argc, argv, options, false)) != -1)
        *(option == 'd' ? &o.day : &o.output) = optarg;
    option_operands(cmd, argc, argv, 0, 0);
    r = read_day(o.day, &day);
    if (r == -ERANGE)
        return cli_usage(cmd, "--day: '%s' has not begun, or lies before 1970", o.day);
    if (r < 0)
        return cli_usage(cmd, "--day: '%s' is no day: today, yesterday or YYYY-MM-DD", o.day);
    return report(&o, &day);
}

const struct command command_report = {
    .name = "report",
    .usage = "[--day DATE] [--output FILE]",
    .brief = "write what the machine did in a day as a web page",
    .help = "One file without scripts and links, to be sent by mail: jobs over the day,\n"
            "threads, users, what each job used and why, and the energy with its cost.\n"
            "\n"
            "Options:\n"
            "  -d, --day DATE     today (unless it is given), yesterday, or YYYY-MM-DD\n"
            "  -o, --output FILE  write it there instead of to standard output\n"
            "\n"
            "Examples:\n"
            "  tide report --day yesterday -o report.html\n"
            "  tide report --day 2026-01-31 | mail -a 'Content-Type: text/html' boss\n",
    .far = FAR_GOES,
    .run = report_run,
};
