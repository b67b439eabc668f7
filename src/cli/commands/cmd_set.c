/* SPDX-License-Identifier: Apache-2.0 */
/* `tide set`: changes a job and says how long the change took to be in force. */
#include "cli/terms.h"
#include "cli/views/job_text.h"

#include "proto/proto.h"

#include <string.h>

#define WAIT_DEFAULT_MS  5000
#define WAIT_MAX_MS      60000
#define ANSWER_MARGIN_MS 2000 /* beyond the wait, for the daemon to answer */

enum { OPT_THREADS = 256, OPT_INTRA, OPT_INTER, OPT_AUTO, OPT_PLACEMENT };

struct set_options {
    long threads, intra, inter, wait_ms; /* 0: not given */
    json_t *terms;                       /* NULL: none */
    bool automatic, json;
};

static int parse_one(int c, struct set_options *o)
{
    const struct command *cmd = &command_set;
    const struct {
        int option;
        const char *name;
        long max;
        long *value;
    } numbers[] = {
        {OPT_THREADS, "--threads", PROTO_THREADS_MAX, &o->threads},
        {OPT_INTRA, "--intra", PROTO_THREADS_MAX, &o->intra},
        {OPT_INTER, "--inter", PROTO_THREADS_MAX, &o->inter},
        {'w', "--wait", WAIT_MAX_MS, &o->wait_ms},
    };
    bool term;
    int r = terms_take(cmd, c, &o->terms, &term);

    if (term)
        return r;

    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        if (numbers[i].option == c)
            return option_number(cmd, optarg, numbers[i].name, 1, numbers[i].max, numbers[i].value);
    if (c == OPT_PLACEMENT) /* users try it, so the message says more than "there is no option" */
        return cli_error_as(
            cmd, CLI_USAGE, "placement-fixed",
            "Start it again with --placement, or the label io.threadtide.placement; "
            "'tide pin JOB --cores LIST' reserves cores for a running job.",
            "--placement: a job's placement is fixed when it starts");
    o->automatic |= c == OPT_AUTO;
    o->json |= c == 'j';
    return c == '?' ? CLI_USAGE : CLI_OK;
}

static int check(const struct set_options *o)
{
    const struct command *cmd = &command_set;

    if (o->threads && (o->intra || o->inter))
        return cli_usage(cmd, "--threads sets both, --intra and --inter one each: choose");
    if (!o->intra != !o->inter)
        return cli_usage(cmd, "--intra and --inter go together");
    if (o->automatic && (o->threads || o->intra))
        return cli_usage(cmd, "--auto gives back what --threads fixes: choose one");
    if (!o->threads && !o->intra && !o->automatic && !o->terms)
        return cli_usage(cmd, "nothing to set: --threads, --auto, --min, --weight, %s",
                         cli_glyph(CLI_DOTS));
    return terms_check(cmd, o->terms);
}

static int parse(int argc, char **argv, struct set_options *o)
{
    static const struct option own[] = {
        {"threads", required_argument, NULL, OPT_THREADS},
        {"intra", required_argument, NULL, OPT_INTRA},
        {"inter", required_argument, NULL, OPT_INTER},
        {"auto", no_argument, NULL, OPT_AUTO},
        {"placement", required_argument, NULL, OPT_PLACEMENT},
        {"wait", required_argument, NULL, 'w'},
        {"json", no_argument, NULL, 'j'},
        {0},
    };
    struct option options[TERMS_OPTIONS_MAX];
    int c;

    terms_options(&command_set, own, options);
    while ((c = option_next(&command_set, argc, argv, options, false)) != -1) {
        if (parse_one(c, o) != CLI_OK)
            return CLI_USAGE;
    }
    option_operands(&command_set, argc, argv, 1, 1);
    return check(o);
}

static json_t *request_body(const struct set_options *o)
{
    const struct {
        const char *key;
        long value;
    } members[] = {
        {"threads", o->threads},
        {"intra", o->intra},
        {"inter", o->inter},
        {"deadline_ms", o->wait_ms},
    };
    json_t *body = json_object();

    for (size_t i = 0; i < ARRAY_LEN(members); i++)
        if (members[i].value)
            json_object_set_new(body, members[i].key, json_integer(members[i].value));
    if (o->automatic)
        json_object_set_new(body, "auto", json_true());
    if (o->terms)
        json_object_update(body, o->terms);
    return body;
}

/* Prints "acknowledged in 1.2 ms", or why there is no time (yet). */
static void print_status(const struct set_options *o, const json_t *answer)
{
    const char *status = member_text(answer, "status");
    double latency_us = member_number(answer, "latency_us");

    if (strcmp(status, "pending") == 0)
        printf(", takes effect with its first thread pool");
    else if (strcmp(status, "partial") == 0)
        printf(", not acknowledged within %ld ms", o->wait_ms ? o->wait_ms : (long)WAIT_DEFAULT_MS);
    else if (latency_us > 0)
        printf(", acknowledged in %.1f ms", latency_us / 1000);
    printf("%s\n", member_bool(answer, "oversubscribed") ? ", oversubscribed" : "");
}

/* A target that no pool can reach still holds for later pools, so tide says so. */
static void print_unreachable(const json_t *answer)
{
    _cleanup_answer_ struct api_answer job = {0};
    char path[API_PATH_MAX];
    struct error err;
    long max;

    if (api_job_path(&command_set, member_text(answer, "id"), "", path) != CLI_OK ||
        api_try("GET", path, NULL, API_TIMEOUT_MS, &job, &err) < 0)
        return;
    max = member_long(job.body, "max");
    if (max && member_long(answer, "to") > max)
        printf("  its pools were built with %ld threads: no more can be active\n", max);
}

static void print_result(const struct set_options *o, const json_t *answer)
{
    const char *reason = member_text(answer, "reason");
    const json_t *promise = json_object_get(answer, "promise");
    char change[64];

    job_text_change(answer, change, sizeof(change));
    printf("%s %s: %s", member_text(answer, "id"), member_text(answer, "name"), change);
    print_status(o, answer);
    if (*reason)
        printf("  %s\n", reason);
    if (member_bool(answer, "oversubscribed"))
        print_unreachable(answer);
    if (json_object_get(o->terms, "slo") && strcmp(member_text(promise, "keepable"), "no") == 0)
        cli_note_as(&command_set, "promise-refused",
                    "its promise cannot be kept as far as is known: %s",
                    member_text(promise, "reason"));
}

static int set(const struct set_options *o, const char *job)
{
    _cleanup_json_ json_t *answer = NULL;
    _cleanup_json_ json_t *body = request_body(o);
    long wait_ms = o->wait_ms ? o->wait_ms : WAIT_DEFAULT_MS;
    char path[API_PATH_MAX];
    int r = api_job_path(&command_set, job, "", path);

    if (r == CLI_OK)
        r = api_request(&command_set, "PATCH", path, body, (unsigned)wait_ms + ANSWER_MARGIN_MS,
                        &answer);
    if (r != CLI_OK)
        return r;
    if (o->json)
        api_print(answer);
    else
        print_result(o, answer);
    return strcmp(member_text(answer, "status"), "partial") == 0 ? CLI_PARTIAL : CLI_OK;
}

static int set_run(int argc, char **argv)
{
    struct set_options o = {0};
    int r = parse(argc, argv, &o);

    if (r == CLI_OK)
        r = set(&o, argv[optind]);
    json_decref(o.terms);
    return r;
}

const struct command command_set = {
    .name = "set",
    .usage = "JOB (--threads K | --auto | --min K | --weight W | ...)...",
    .brief = "change a job's threads, limits, weight or priority while it runs",
    .help = "JOB is an id (j1), a name, or the pid of one of its processes.\n"
            "\n"
            "Options:\n"
            "      --threads K    hold it at K active threads; may exceed the cores\n"
            "      --intra K --inter K\n"
            "                     the same, apart for threads inside one operation and for\n"
            "                     operations side by side\n"
            "      --auto         back to the share that the policy gives\n" TERMS_HERE
            "                     'none' takes back a request, memory, devices, a deadline\n"
            "                     or a promise\n"
            "  -w, --wait MS      wait so long for the acknowledgement (default 5000); after\n"
            "                     that the change stays ordered and tide ends with status 6\n"
            "  -j, --json         print the daemon's answer\n"
            "\n"
            "Examples:\n"
            "  tide set cnn --threads 1\n"
            "  tide set j2 --min 2 --weight 300\n"
            "  tide set cnn --auto\n",
    .takes = ATTRIBUTES_OF_CHANGE,
    .far = FAR_GOES,
    .run = set_run,
};
