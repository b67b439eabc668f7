/* SPDX-License-Identifier: Apache-2.0 */
/* `tide pin`, `tide unpin`: whether a job stays with the cores and threads that it has. */
#include "cli/views/job_text.h"

#include "cli/api.h"
#include "proto/proto.h"

#define PIN_TIMEOUT_MS 7000 /* the daemon waits for the acknowledgement */

enum { OPT_THREADS = 256, OPT_CORES };

static int patch(const struct command *cmd, const char *job, json_t *body, const char *what)
{
    _cleanup_json_ json_t *answer = NULL;
    char path[API_PATH_MAX], change[64];
    int r = api_job_path(cmd, job, "", path);

    if (r == CLI_OK)
        r = api_request(cmd, "PATCH", path, body, PIN_TIMEOUT_MS, &answer);
    if (r != CLI_OK)
        return r;
    if (!member_bool(answer, "changed")) {
        printf("%s %s: is not pinned\n", member_text(answer, "id"), member_text(answer, "name"));
        return CLI_OK;
    }
    job_text_change(answer, change, sizeof(change));
    printf("%s %s: %s, %s\n", member_text(answer, "id"), member_text(answer, "name"), what, change);
    return CLI_OK;
}

static int pin_run(int argc, char **argv)
{
    static const struct option options[] = {{"threads", required_argument, NULL, OPT_THREADS},
                                            {"cores", required_argument, NULL, OPT_CORES},
                                            {0}};
    const struct command *cmd = &command_pin;
    _cleanup_json_ json_t *body = json_pack("{s:b}", "pin", 1);
    long threads;
    int c;

    while ((c = option_next(cmd, argc, argv, options, false)) != -1) {
        if (c == OPT_CORES) {
            json_object_set_new(body, "cores", json_string(optarg));
            continue;
        }
        if (option_number(cmd, optarg, "--threads", 1, PROTO_THREADS_MAX, &threads) != CLI_OK)
            return CLI_USAGE;
        json_object_set_new(body, "threads", json_integer(threads));
    }
    option_operands(cmd, argc, argv, 1, 1);
    return patch(cmd, argv[optind], body, "pinned");
}

static int unpin_run(int argc, char **argv)
{
    const struct command *cmd = &command_unpin;
    _cleanup_json_ json_t *body = json_pack("{s:b}", "pin", 0);

    option_none(cmd, argc, argv, 1, 1);
    return patch(cmd, argv[optind], body, "unpinned");
}

const struct command command_pin = {
    .name = "pin",
    .usage = "JOB [--cores LIST] [--threads K]",
    .brief = "let a job stay with the cores and threads that it has",
    .help = "JOB is an id (j1), a name, the pid of one of its processes, or the beginning of\n"
            "its container's id. The policy works around it until 'tide unpin'. Limits of a\n"
            "container that are changed by hand meanwhile, with docker update, stay as they\n"
            "are; of an unpinned one they are put right.\n"
            "\n"
            "Options:\n"
            "      --cores LIST   these cores, like 0-1,4, instead of those that it has\n"
            "      --threads K    so many threads (default: as many as cores)\n"
            "\n"
            "Examples:\n"
            "  tide pin web\n"
            "  tide pin web --cores 2-3\n"
            "  docker update --cpuset-cpus 1 web\n",
    .far = FAR_GOES,
    .run = pin_run,
};

const struct command command_unpin = {
    .name = "unpin",
    .usage = "JOB",
    .brief = "give a pinned job back to the policy",
    .help = "The reverse of 'tide pin'; 'tide set JOB --auto' does the same. What was changed\n"
            "by hand while it was pinned bounds what the policy may give it.\n"
            "\n"
            "Examples:\n"
            "  tide unpin web\n",
    .far = FAR_GOES,
    .run = unpin_run,
};
