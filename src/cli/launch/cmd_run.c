/* SPDX-License-Identifier: Apache-2.0 */
/* `tide run`: registers its own process as a job, then becomes the program. */
#include "cli/launch/launch.h"

#include <stdio.h>
#include <string.h>

#define KEY_MAX 32 /* bytes of an attribute's name */

/* Returns CLI_OK, CLI_USAGE, or -1 after printing the help: nothing is to run. */
static int parse(int argc, char **argv, struct launch *l)
{
    static const struct option own[] = {
        LAUNCH_OPTIONS,
        {0},
    };
    struct option options[TERMS_OPTIONS_MAX];
    int c;

    terms_options(l->cmd, own, options);
    while ((c = option_next(l->cmd, argc, argv, options, true)) != -1) {
        if (launch_take(l, c) != CLI_OK)
            return CLI_USAGE;
    }
    return launch_command(l, argc, argv);
}

/*
 * Leaves out what the daemon refused this user, who may not have more than a share: the program is
 * governed all the same. Returns the option's name, or NULL if the refusal is of another kind.
 */
static const char *without_refused(struct launch *l, const char *code)
{
    if (strcmp(code, "share-exceeded") == 0 && l->threads) {
        l->threads = 0;
        return "--threads";
    }
    if (strcmp(code, "promise-refused") == 0 && l->terms && json_object_del(l->terms, "slo") == 0)
        return "--slo";
    if (strcmp(code, "priority-too-high") == 0 && l->terms &&
        json_object_del(l->terms, "priority") == 0)
        return "--priority";
    return NULL;
}

/*
 * Leaves out an attribute that a daemon of an earlier version does not know: it runs on until
 * somebody restarts it. Returns whether one was left out, its key in @key.
 */
static bool without_unknown(struct launch *l, const char *message, char key[KEY_MAX])
{
    return sscanf(message, "unknown field '%31[a-z]'", key) == 1 && l->terms &&
           json_object_del(l->terms, key) == 0;
}

/* Leaves out what was refused, after one line that says so. Returns whether there was something. */
static bool without_what_is_refused(struct launch *l, const struct api_answer *answer)
{
    const json_t *error = json_object_get(answer->body, "error");
    const char *code = member_text(error, "code"), *message = member_text(error, "message");
    const char *left_out = answer->status == 403 ? without_refused(l, code) : NULL;
    char key[KEY_MAX];

    if (left_out)
        cli_note_as(l->cmd, code, "the program is a job without %s: %s", left_out, message);
    else if (answer->status == 400 && without_unknown(l, message, key))
        cli_note_as(l->cmd, "bad-request",
                    "the program is a job without --%s: the daemon is of an earlier version, which "
                    "does not know it; 'tide version' shows both",
                    key);
    else
        return false;
    return true;
}

/* As launch_register(), again without what is refused. */
static int register_within_limits(struct launch *l, struct api_answer *ret, struct error *err)
{
    int r;

    while ((r = launch_register(l, ret, err)) == 0 && without_what_is_refused(l, ret))
        api_answer_done(ret);
    return r;
}

/*
 * Registers this process as a job. Returns CLI_OK also if that fails, after one line that says so.
 * Another code means that the user asked for something impossible: the program must not run.
 */
static int become_job(struct launch *l)
{
    _cleanup_answer_ struct api_answer answer = {0};
    struct error err = {0};
    const json_t *error;

    if (register_within_limits(l, &answer, &err) < 0) {
        cli_note_as(l->cmd, err.word, "the program runs, but not as a job: %s", err.text);
        return CLI_OK;
    }
    error = json_object_get(answer.body, "error");
    if (api_exit_code(answer.status) == CLI_USAGE)
        return api_refused(l->cmd, &answer);
    if (answer.status >= 400)
        cli_note_as(l->cmd, member_text(error, "code"), "the program runs, but not as a job: %s",
                    member_text(error, "message"));
    else
        launch_prepare(l, answer.body);
    return CLI_OK;
}

static int run_run(int argc, char **argv)
{
    struct launch l = {.cmd = &command_run};
    int r = parse(argc, argv, &l);

    if (r == CLI_OK)
        r = become_job(&l);
    launch_done(&l);
    if (r != CLI_OK)
        return r;
    return launch_exec(&l);
}

const struct command command_run = {
    .name = "run",
    .usage = "[OPTION...] [--] PROGRAM [ARGUMENT...]",
    .brief = "run a program as a job whose threads can change while it runs",
    .help = "The program runs in place of tide: same pid, terminal and exit status. If no\n"
            "daemon runs, one is started for you; it ends with its last job. Without a\n"
            "daemon, or without the agent (the library that governs its threads), the program\n"
            "runs all the same, and one line says so.\n"
            "\n"
            "Options:\n" LAUNCH_HELP "\n"
            "Examples:\n"
            "  tide run -- python train.py\n"
            "  tide run --name cnn --max 8 -- python train.py --epochs 10\n"
            "  tide run --weight 300 -- python urgent.py    three times the usual share\n"
            "\n"
            "Exit status: that of the program; 2 wrong options (nothing was run), 126 the\n"
            "program cannot be executed, 127 there is no such program.\n",
    .takes = ATTRIBUTES_OF_START,
    .run = run_run,
};
