/* SPDX-License-Identifier: Apache-2.0 */
/* `tide history`: lists the jobs that ran, when, with how many threads, and why. */
#include "cli/launch/launch.h"
#include "cli/views/job_text.h"

#include <inttypes.h>
#include <libsmartcols/libsmartcols.h>
#include <string.h>
#include <unistd.h>

#define LIMIT_MAX 1000 /* maximum of one answer of the daemon */

struct history_options {
    const char *job; /* NULL: all */
    long limit;      /* 0: the daemon's default */
    uint64_t since_s;
    bool json;
};

/* ---- texts ---- */

static void text_threads(const json_t *job, char *buf, size_t size)
{
    const json_t *newest = json_array_get(json_object_get(job, "allocations"), 0);

    if (newest)
        snprintf(buf, size, "%ld", member_long(newest, "threads"));
}

static void text_rate(const json_t *job, char *buf, size_t size)
{
    const json_t *progress = json_object_get(job, "progress");
    const char *unit = member_text(progress, "unit");

    if (member_number(progress, "rate") > 0)
        snprintf(buf, size, "%.3g%s%s/s", member_number(progress, "rate"), *unit ? " " : "", unit);
}

static void text_exit(const json_t *job, char *buf, size_t size)
{
    if (json_is_integer(json_object_get(job, "exit")))
        snprintf(buf, size, "%ld%s", member_long(job, "exit"),
                 json_is_true(json_object_get(job, "oom")) ? " oom" : "");
}

static void text_wait(const json_t *job, char *buf, size_t size)
{
    job_text_duration(member_number(job, "wait_s"), buf, size);
}

static void text_run(const json_t *job, char *buf, size_t size)
{
    job_text_duration(member_number(job, "run_s"), buf, size);
}

static void text_submitted(const json_t *job, char *buf, size_t size)
{
    job_text_time(member_number(job, "submitted"), buf, size);
}

/* ---- all jobs: a table ---- */

static const struct {
    const char *title, *key; /* the member that is shown unchanged */
    void (*text)(const json_t *job, char *buf, size_t size);
    int flags;
} columns[] = {
    {"ID", "id", NULL, 0},
    {"NAME", "name", NULL, 0},
    {"OWNER", "owner", NULL, 0},
    {"STATE", "state", NULL, 0},
    {"SUBMITTED", NULL, text_submitted, 0},
    {"WAITED", NULL, text_wait, SCOLS_FL_RIGHT},
    {"RAN", NULL, text_run, SCOLS_FL_RIGHT},
    {"EXIT", NULL, text_exit, SCOLS_FL_RIGHT},
    {"THREADS", NULL, text_threads, SCOLS_FL_RIGHT},
    {"RATE", NULL, text_rate, SCOLS_FL_RIGHT},
    {"COMMAND", "command", NULL, SCOLS_FL_TRUNC},
};

static int fill_line(struct libscols_line *line, const json_t *job)
{
    for (size_t i = 0; i < ARRAY_LEN(columns); i++) {
        char text[512] = "-";

        if (columns[i].text)
            columns[i].text(job, text, sizeof(text));
        else if (*member_text(job, columns[i].key))
            snprintf(text, sizeof(text), "%s", member_text(job, columns[i].key));
        if (scols_line_set_data(line, i, text) < 0)
            return -ENOMEM;
    }
    return 0;
}

static void unref_table(struct libscols_table **table)
{
    scols_unref_table(*table);
}

static int print_table(const json_t *jobs)
{
    _cleanup_(unref_table) struct libscols_table *table = scols_new_table();
    size_t i;
    const json_t *job;

    if (!table)
        return -ENOMEM;
    cli_locale();
    for (i = 0; i < ARRAY_LEN(columns); i++)
        if (!scols_table_new_column(table, columns[i].title,
                                    columns[i].flags & SCOLS_FL_TRUNC ? 0.2 : 0, columns[i].flags))
            return -ENOMEM;
    json_array_foreach (jobs, i, job) {
        struct libscols_line *line = scols_table_new_line(table, NULL);

        if (!line || fill_line(line, job) < 0)
            return -ENOMEM;
    }
    return scols_print_table(table) < 0 ? -ENOMEM : 0;
}

/* ---- one job in full ---- */

static void print_times(const json_t *job)
{
    char submitted[32], ended[32], waited[32], ran[32];

    job_text_time(member_number(job, "submitted"), submitted, sizeof(submitted));
    job_text_time(member_number(job, "ended"), ended, sizeof(ended));
    text_wait(job, waited, sizeof(waited));
    text_run(job, ran, sizeof(ran));
    printf("  submitted %s by %s, waited %s, ran %s", submitted, member_text(job, "owner"), waited,
           ran);
    if (member_number(job, "ended") > 0)
        printf(", ended %s", ended);
    printf("\n");
}

static void print_progress(const json_t *progress)
{
    const char *unit = member_text(progress, "unit");
    long total = member_long(progress, "total");

    if (!json_is_object(progress))
        return;
    printf("  did %ld", member_long(progress, "done"));
    if (total)
        printf(" of %ld", total);
    printf("%s%s, %.3g a second on average\n", *unit ? " " : "", unit,
           member_number(progress, "rate"));
}

static void print_allocations(const json_t *allocations)
{
    size_t n = json_array_size(allocations);

    if (n)
        printf("\n%-19s  %7s  %-8s  %s\n", "TIME", "THREADS", "CORES", "REASON");
    while (n-- > 0) {
        const json_t *a = json_array_get(allocations, n);
        char when[32];

        job_text_time(member_number(a, "time"), when, sizeof(when));
        printf("%s  %7ld  %-8s  %s\n", when, member_long(a, "threads"), member_text(a, "cores"),
               member_text(a, "reason"));
    }
}

static void print_job(const json_t *job)
{
    const json_t *exit = json_object_get(job, "exit");
    bool container = strcmp(member_text(job, "kind"), "container") == 0;
    char terms[JOB_TERMS_MAX];

    printf("%s %s: %s", member_text(job, "id"), member_text(job, "name"),
           member_text(job, "state"));
    if (json_is_integer(exit))
        printf(", exit status %lld", (long long)json_integer_value(exit));
    if (json_is_true(json_object_get(job, "oom")))
        printf("; a process was killed: out of memory");
    printf("\n  %s: %s\n", container ? "image" : "command", member_text(job, "command"));
    print_times(job);
    job_text_terms(job, terms, sizeof(terms));
    printf("  placement %s\n", terms);
    print_progress(json_object_get(job, "progress"));
    print_allocations(json_object_get(job, "allocations"));
}

/* ---- command ---- */

static int print_people(const struct history_options *o, const json_t *jobs)
{
    const json_t *job;
    size_t i;

    if (!o->job && json_array_size(jobs) == 0) {
        printf("No job%s. Start one: tide run -- python train.py\n",
               o->since_s ? " since then" : " has run yet");
        return CLI_OK;
    }
    if (!o->job)
        return print_table(jobs) < 0 ? cli_no_memory(&command_history) : CLI_OK;
    json_array_foreach (jobs, i, job) {
        if (i)
            printf("\n");
        print_job(job);
    }
    return CLI_OK;
}

static void print_objects(const json_t *jobs)
{
    const json_t *job;
    size_t i;

    json_array_foreach (jobs, i, job) {
        json_dumpf(job, stdout, JSON_COMPACT | JSON_REAL_PRECISION(15));
        putchar('\n');
    }
}

/* The daemon's answer begins with the newest job; a terminal shows the newest best at the end. */
static json_t *oldest_first(const json_t *jobs)
{
    json_t *list = json_array();

    for (size_t n = json_array_size(jobs); n > 0; n--)
        json_array_append(list, json_array_get(jobs, n - 1));
    return list;
}

static int make_path(const struct history_options *o, char ret[API_PATH_MAX])
{
    char name[API_PATH_MAX - 128];
    int n = snprintf(ret, API_PATH_MAX, "/v1/history?limit=%ld", o->limit);

    if (o->since_s)
        n += snprintf(ret + n, API_PATH_MAX - (size_t)n, "&since=%" PRIu64, o->since_s);
    if (!o->job)
        return 0;
    if (http_escape(o->job, name, sizeof(name)) < 0)
        return -ENAMETOOLONG;
    snprintf(ret + n, API_PATH_MAX - (size_t)n, "&job=%s", name);
    return 0;
}

/* True if a user's own daemon, which ended with its last job, has left a history. */
static bool left_behind(void)
{
    char path[RUNDIR_PATH_MAX + sizeof("/history.db")];

    if (rundir_user(path) < 0)
        return false;
    strcat(path, "/history.db");
    return access(path, F_OK) == 0;
}

/* Only a daemon reads the file, so tide starts one again for the answer. */
static int ask(const char *path, struct api_answer *ret)
{
    struct error err = {0}, why;
    int r = api_try("GET", path, NULL, API_TIMEOUT_MS, ret, &err);

    if (r == -ENOENT && left_behind() && launch_start_daemon(NULL, &why) >= 0)
        r = api_try("GET", path, NULL, API_TIMEOUT_MS, ret, &err);
    if (r < 0)
        return api_unreachable(&command_history, r, &err);
    return ret->status >= 400 ? api_refused(&command_history, ret) : CLI_OK;
}

static int show(const struct history_options *o)
{
    _cleanup_answer_ struct api_answer answer = {0};
    _cleanup_json_ json_t *jobs = NULL;
    char path[API_PATH_MAX];
    int r = CLI_OK;

    if (make_path(o, path) == 0)
        r = ask(path, &answer);
    if (r != CLI_OK)
        return r;
    jobs = oldest_first(answer.body);
    if (o->job && json_array_size(jobs) == 0)
        return cli_error_as(&command_history, CLI_NOT_FOUND, "no-such-job",
                            "'tide history' lists the jobs.", "no job '%.64s' is in the history",
                            o->job);
    if (!o->json)
        return print_people(o, jobs);
    print_objects(jobs);
    return CLI_OK;
}

static int history_run(int argc, char **argv)
{
    static const struct option options[] = {{"since", required_argument, NULL, 's'},
                                            {"lines", required_argument, NULL, 'n'},
                                            {"json", no_argument, NULL, 'j'},
                                            {0}};
    const struct command *cmd = &command_history;
    struct history_options o = {.limit = 50};
    int c, r = CLI_OK;

    while (r == CLI_OK && (c = option_next(cmd, argc, argv, options, false)) != -1) {
        if (c == 's')
            r = option_since(cmd, optarg, &o.since_s);
        if (c == 'n')
            r = option_number(cmd, optarg, "--lines", 1, LIMIT_MAX, &o.limit);
        o.json |= c == 'j';
    }
    if (r != CLI_OK)
        return r;
    option_operands(cmd, argc, argv, 0, 1);
    o.job = argv[optind];
    if (o.job && !*o.job)
        return cli_usage(cmd, "JOB is empty: give an id or a name");
    return show(&o);
}

const struct command command_history = {
    .name = "history",
    .usage = "[--since TIME] [--lines N] [--json] [JOB]",
    .brief = "list the jobs that ran, when, with how many threads, and why",
    .help = "One row a job, the newest last; yours, or everybody's for root and the admin\n"
            "group. With JOB (an id or a name) everything about it, and its changes.\n"
            "\n"
            "Options:\n"
            "  -s, --since TIME  only those that had not ended then: 90s or 2h ago, 18:30,\n"
            "                    2026-01-31\n"
            "  -n, --lines N     the newest N, at most 1000 (default 50)\n"
            "  -j, --json        one object a line\n"
            "\n"
            "Columns:\n"
            "  STATE    ended, cancelled; lost: it ended while no daemon ran; else as in\n"
            "           'tide ps'\n"
            "  WAITED   in the queue, pauses included\n"
            "  EXIT     status, 128 and more: a signal; a dash: not known (possible\n"
            "           before Linux 6.15). oom: a process of it was killed, out of memory\n"
            "  THREADS  that it had last\n"
            "  RATE     units of work in a second, on average\n"
            "\n"
            "Examples:\n"
            "  tide history --since 2h\n"
            "  tide history cnn\n"
            "  tide history --json | jq -r 'select(.exit > 0) | .name'\n",
    .far = FAR_GOES,
    .run = history_run,
};
