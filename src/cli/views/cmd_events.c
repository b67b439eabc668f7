/* SPDX-License-Identifier: Apache-2.0 */
/* `tide events`: shows what happens to jobs, as it happens. */
#include "cli/api.h"
#include "cli/views/job_text.h"

#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define ERROR_WORD "output-failed"

#define RETRY_MS     1000 /* pause before tide looks again for a daemon that has ended */
#define FAR_RETRY_MS 5000 /* on another machine, where each look is a login */
#define ID_MAX       64
#define KIND_MAX     32

static const char *const kinds[] = {"job-added", "job-changed", "job-ended", "policy-changed",
                                    "cap"};

struct events_options {
    const char *const *jobs; /* ids or names; none: all */
    int n_jobs;
    unsigned kinds; /* a bit for each kind that is shown */
    uint64_t since_s;
    bool follow, json;
};

struct watch {
    const struct events_options *options;
    struct http_stream stream;
    char last[ID_MAX]; /* id of the last event */
    unsigned long shown;
    /* the event that is being read */
    char id[ID_MAX], kind[KIND_MAX];
    char *data;
};

/* ---- one event ---- */

static bool is_wanted(const struct events_options *o, const char *kind, const json_t *event)
{
    bool kind_wanted = false;

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        kind_wanted |= strcmp(kind, kinds[i]) == 0 && (o->kinds & 1u << i);
    if (!kind_wanted || o->n_jobs == 0)
        return kind_wanted;
    for (int i = 0; i < o->n_jobs; i++)
        if (strcmp(member_text(event, "id"), o->jobs[i]) == 0 ||
            strcmp(member_text(event, "name"), o->jobs[i]) == 0)
            return true;
    return false;
}

static void print_object(const char *kind, json_t *event)
{
    _cleanup_json_ json_t *line = json_pack("{s:s}", "event", kind);

    json_object_update(line, event);
    json_dumpf(line, stdout, JSON_COMPACT | JSON_REAL_PRECISION(15));
    putchar('\n');
}

static void print_end(const json_t *event)
{
    const json_t *exit = json_object_get(event, "exit");
    char ran[32];

    job_text_duration(member_number(event, "run_s"), ran, sizeof(ran));
    printf("ran %s", ran);
    if (json_is_integer(exit))
        printf(", exit status %lld", (long long)json_integer_value(exit));
    if (json_is_true(json_object_get(event, "oom")))
        printf("; a process was killed: out of memory");
}

static void print_line(const char *kind, const json_t *event)
{
    double at = member_number(event, "time");
    long target = member_long(event, "target");
    const char *cores = member_text(event, "cores"), *reason = member_text(event, "reason");
    char when[32];

    job_text_time(at, when, sizeof(when));
    printf("%s.%03d  %-14s  ", when, (int)((at - (double)(long long)at) * 1000), kind);
    if (strcmp(kind, "policy-changed") == 0) {
        printf("%s\n", member_text(event, "policy"));
        return;
    }
    if (strcmp(kind, "cap") == 0) {
        printf("%s\n", reason);
        return;
    }
    printf("%s %s: ", member_text(event, "id"), member_text(event, "name"));
    if (strcmp(kind, "job-ended") == 0) {
        print_end(event);
    } else {
        printf("%s", member_text(event, "state"));
        if (target && !job_text_waits(event))
            printf(", %ld %s", target, target == 1 ? "thread" : "threads");
        if (*cores && !job_text_waits(event))
            printf(", cores %s", cores);
        if (*reason)
            printf(": %s", reason);
    }
    printf("\n");
}

/* Flushes, so that the reader of a pipe has the event at once. */
static int show(struct watch *w)
{
    _cleanup_json_ json_t *event = w->data ? api_parse(w->data) : NULL;

    if (strcmp(w->kind, "missed") == 0)
        cli_note(&command_events, "some events are missing here: the daemon has dropped them");
    if (!json_is_object(event) || !is_wanted(w->options, w->kind, event))
        return CLI_OK;
    if (w->options->json)
        print_object(w->kind, event);
    else
        print_line(w->kind, event);
    w->shown++;
    if (fflush(stdout) == 0)
        return CLI_OK;
    return cli_error(&command_events, CLI_FAILED, NULL, "cannot write the output: %s",
                     strerror(errno));
}

/* ---- the stream ---- */

static bool take_field(const char *line, const char *name, char *buf, size_t size)
{
    size_t len = strlen(name);

    if (strncmp(line, name, len) != 0 || line[len] != ':')
        return false;
    line += len + 1;
    snprintf(buf, size, "%s", line + (*line == ' '));
    return true;
}

/* An empty line completes an event; only then does its id count for a new connection. */
static int take_line(struct watch *w, const char *line)
{
    int r = CLI_OK;

    if (*line) {
        if (strncmp(line, "data:", 5) == 0) {
            free(w->data);
            w->data = strdup(line + 5);
        } else if (!take_field(line, "id", w->id, sizeof(w->id))) {
            take_field(line, "event", w->kind, sizeof(w->kind));
        }
        return CLI_OK;
    }
    if (w->data)
        r = show(w);
    if (*w->id)
        memcpy(w->last, w->id, sizeof(w->last));
    w->id[0] = w->kind[0] = '\0';
    free(w->data);
    w->data = NULL;
    return r;
}

/* Returns CLI_OK at the end of the stream, or when the reader of our output has ended. */
static int read_stream(struct watch *w, bool *ret_unread)
{
    struct pollfd fds[] = {{.fd = w->stream.fd, .events = POLLIN}, {.fd = STDOUT_FILENO}};
    const char *line;

    for (;;) {
        int r = http_stream_line(&w->stream, &line);

        if (r == 0) {
            r = take_line(w, line);
            if (r != CLI_OK)
                return r;
            continue;
        }
        if (r != -EAGAIN)
            return CLI_OK;
        if (poll(fds, ARRAY_LEN(fds), -1) < 0 && errno != EINTR)
            return cli_error_as(&command_events, CLI_FAILED, "system-refused", NULL,
                                "cannot wait for events: %s", strerror(errno));
        if (fds[1].revents & POLLERR) {
            *ret_unread = true;
            return CLI_OK;
        }
    }
}

static int open_stream(struct watch *w, struct api_answer *ret, struct error *err)
{
    const struct events_options *o = w->options;
    char path[128];
    int n = snprintf(path, sizeof(path), "/v1/events?follow=%s", o->follow ? "true" : "false");

    if (o->since_s)
        snprintf(path + n, sizeof(path) - (size_t)n, "&since=%" PRIu64, o->since_s);
    return api_stream(path, w->last, &w->stream, ret, err);
}

/*
 * The first connection has to succeed. Later the daemon may be away for a while, or have no room:
 * tide asks again until it answers.
 */
static int meet(struct watch *w, bool again)
{
    bool told = false;

    for (;; poll(NULL, 0, api_host_name() ? FAR_RETRY_MS : RETRY_MS)) {
        _cleanup_answer_ struct api_answer answer = {0};
        struct error err = {0};
        int r = open_stream(w, &answer, &err);
        bool no_room = r == 0 && (answer.status == 429 || answer.status == 503);

        if (r == 0 && answer.status == 200) {
            if (told)
                cli_note(&command_events, "the daemon answers again");
            return CLI_OK;
        }
        if (r < 0 && !again)
            return api_unreachable(&command_events, r, &err);
        if (r == 0 && !(again && no_room))
            return api_refused(&command_events, &answer);
        if (!told)
            cli_note(&command_events,
                     no_room ? "the daemon has no room for another follower now; asking again "
                               "until it has (Ctrl-C quits)"
                             : "the daemon has ended; waiting for it to return (Ctrl-C quits)");
        told = true;
    }
}

static int watch(const struct events_options *o)
{
    struct watch w = {.options = o, .stream = {.fd = -1}};
    bool unread = false;
    int r = meet(&w, false);

    while (r == CLI_OK) {
        r = read_stream(&w, &unread);
        http_stream_done(&w.stream);
        if (r != CLI_OK || unread || !o->follow)
            break;
        w.id[0] = '\0'; /* drops half an event */
        free(w.data);
        w.data = NULL;
        r = meet(&w, true);
    }
    free(w.data);
    if (r == CLI_OK && !o->follow && !o->json && w.shown == 0)
        printf("The daemon has no such event; 'tide events --follow' waits for the next.\n");
    return r;
}

/* ---- command line ---- */

/* "job-added,job-ended" */
static int take_kinds(const char *text, unsigned *ret)
{
    *ret = 0;
    for (size_t len; *text; text += len + (text[len] == ',')) {
        size_t i = 0;

        len = strcspn(text, ",");
        while (i < ARRAY_LEN(kinds) &&
               (strlen(kinds[i]) != len || strncmp(kinds[i], text, len) != 0))
            i++;
        if (i == ARRAY_LEN(kinds))
            return cli_usage(&command_events,
                             "--type: there is no '%.*s' (job-added, job-changed, job-ended, "
                             "policy-changed, cap)",
                             (int)len, text);
        *ret |= 1u << i;
    }
    return *ret ? CLI_OK : cli_usage(&command_events, "--type is empty");
}

static int events_run(int argc, char **argv)
{
    static const struct option options[] = {{"follow", no_argument, NULL, 'f'},
                                            {"since", required_argument, NULL, 's'},
                                            {"type", required_argument, NULL, 't'},
                                            {"json", no_argument, NULL, 'j'},
                                            {0}};
    const struct command *cmd = &command_events;
    struct events_options o = {.kinds = ~0u};
    int c, r = CLI_OK;

    while (r == CLI_OK && (c = option_next(cmd, argc, argv, options, false)) != -1) {
        if (c == 's')
            r = option_since(cmd, optarg, &o.since_s);
        if (c == 't')
            r = take_kinds(optarg, &o.kinds);
        o.follow |= c == 'f';
        o.json |= c == 'j';
    }
    if (r != CLI_OK)
        return r;
    o.jobs = (const char *const *)argv + optind;
    o.n_jobs = argc - optind;
    if (!o.follow && !o.since_s)
        o.since_s = 1; /* all that the daemon has */
    return watch(&o);
}

const struct command command_events = {
    .name = "events",
    .usage = "[--follow] [--since TIME] [--type TYPE] [--json] [JOB...]",
    .brief = "show what happened to the jobs, or what happens as it happens",
    .help = "The last 1024 events that the daemon keeps, oldest first, of all jobs or of\n"
            "the named ones. With --follow, new events as they happen, until Ctrl-C; if the\n"
            "daemon restarts, tide finds it again and continues where it was.\n"
            "\n"
            "Options:\n"
            "  -f, --follow      from now on, or from --since on\n"
            "  -s, --since TIME  from then on: 90s or 2h ago, 18:30, 2026-01-31\n"
            "  -t, --type TYPE   only these, with commas between: job-added, job-changed,\n"
            "                    job-ended, policy-changed, cap\n"
            "  -j, --json        one object a line\n"
            "\n"
            "Examples:\n"
            "  tide events\n"
            "  tide events --follow cnn\n"
            "  tide events -f --type job-ended --json | jq -r .name\n",
    .far = FAR_GOES,
    .run = events_run,
};
