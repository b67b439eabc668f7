/* SPDX-License-Identifier: Apache-2.0 */
/* `tide hold`, `tide release`: whether a job may be started, or go on. */
#include "cli/api.h"

static int set_held(const struct command *cmd, const char *job, bool held)
{
    _cleanup_json_ json_t *body = json_pack("{s:b}", "held", (int)held);
    _cleanup_json_ json_t *answer = NULL;
    const char *what = held ? "held" : "released";
    char path[API_PATH_MAX];
    int r = api_job_path(cmd, job, "", path);

    if (r == CLI_OK)
        r = api_request(cmd, "PATCH", path, body, API_TIMEOUT_MS, &answer);
    if (r != CLI_OK)
        return r;
    if (!member_bool(answer, "changed"))
        what = held ? "is held already" : "is not held";
    printf("%s %s: %s\n", member_text(answer, "id"), member_text(answer, "name"), what);
    return CLI_OK;
}

/* Tries every job; returns the exit code of the first that failed. */
static int set_all(const struct command *cmd, int argc, char **argv, bool held)
{
    int result = CLI_OK;
    int r;

    option_none(cmd, argc, argv, 1, argc);
    for (int i = optind; i < argc; i++) {
        r = set_held(cmd, argv[i], held);
        if (result == CLI_OK)
            result = r;
    }
    return result;
}

static int hold_run(int argc, char **argv)
{
    return set_all(&command_hold, argc, argv, true);
}

static int release_run(int argc, char **argv)
{
    return set_all(&command_release, argc, argv, false);
}

const struct command command_hold = {
    .name = "hold",
    .usage = "JOB...",
    .brief = "keep waiting jobs from starting, pause running ones",
    .help = "JOB is an id (j1), a name, or the waiting process's pid. Other jobs overtake it.\n"
            "A job that runs stands still, keeps its memory, and leaves its cores to others;\n"
            "connections that it has open may break meanwhile. 'tide release' lets it go on.\n"
            "A pod is not paused, nor a program in another program's control group.\n"
            "\n"
            "Examples:\n"
            "  tide hold j5\n"
            "  tide hold $(tide queue -q)\n",
    .far = FAR_GOES,
    .run = hold_run,
};

const struct command command_release = {
    .name = "release",
    .usage = "JOB...",
    .brief = "let held jobs start, or go on",
    .help = "The reverse of 'tide hold' and of 'tide submit --hold': from now on the policy\n"
            "may start the job, or let it go on. It keeps its place by age.\n"
            "\n"
            "Examples:\n"
            "  tide release j5\n"
            "  tide release $(tide queue -q)\n",
    .far = FAR_GOES,
    .run = release_run,
};
