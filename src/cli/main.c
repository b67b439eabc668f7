/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tide`: the table of its commands, `tide help`, and the choice of the command. This file uses
 * every command and no command uses it.
 */
#include "cli/cli.h"

#include "base/cleanup.h"
#include "base/suggest.h"
#include "cli/api.h"
#include "cli/translate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "usage"

#define COMMAND_ROW(name) &command_##name,
static const struct command *const commands[] = {COMMANDS(COMMAND_ROW)};

static const struct command *find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

/* Says that there is no command @name, and which one comes nearest. */
static int unknown(const char *name)
{
    const char *names[ARRAY_LEN(commands)];
    const char *nearest;

    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        names[i] = commands[i]->name;
    nearest = suggest_nearest(name, names, ARRAY_LEN(commands));
    if (name[0] == '-')
        return cli_usage(NULL, "there is no option '%s'", name);
    if (!nearest)
        return cli_usage(NULL, "there is no command '%s'", name);
    return cli_error(NULL, CLI_USAGE, "'tide help' lists the commands.",
                     "there is no command '%s': did you mean '%s'?", name, nearest);
}

/* ---- tide help ---- */

static const char before_commands[] =
    "Usage: tide COMMAND [ARGUMENT...]\n\n"
    "Changes the active threads of machine-learning programs while they run, so that\n"
    "several share the cores of one machine. The programs stay as they are.\n\n"
    "Commands:\n";

static const char behind_commands[] =
    "\n"
    "Try it:\n"
    "  tide run --name cnn -- python train.py    start a training under control\n"
    "  tide ps                                   see what it has\n"
    "  tide set cnn --threads 2                  change it while it trains\n"
    "  tide top                                  watch all jobs\n"
    "\n"
    "With --host NAME before the command it asks another machine: tide-fleet(1).\n"
    "'tide help COMMAND' explains one command, man tide(1) the rest.\n";

static int overview(void)
{
    fputs(translated(before_commands), stdout);
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        printf("  %-9s  %s\n", commands[i]->name, translated(commands[i]->brief));
    fputs(translated(behind_commands), stdout);
    return CLI_OK;
}

static int help_run(int argc, char **argv)
{
    const struct command *about;

    option_none(&command_help, argc, argv, 0, 1);
    if (optind == argc)
        return overview();
    about = find(argv[optind]);
    return about ? cli_help(about) : unknown(argv[optind]);
}

const struct command command_help = {
    .name = "help",
    .usage = "[COMMAND]",
    .brief = "explain tide, or one command with examples",
    .help = "Examples:\n"
            "  tide help\n"
            "  tide help run        the same as tide run --help\n",
    .far = FAR_SAME,
    .run = help_run,
};

/* ---- choice of the command ---- */

/*
 * "--host NAME" and "--host=NAME" stand before the command. The programs that some commands become
 * read TIDE_HOST, so the option is the same as the variable. Returns how many words it has, or -1
 * after the message.
 */
static int take_host(int argc, char **argv)
{
    static const char option[] = "--host";
    const char *value = argc > 1 ? argv[1] + strlen(option) : NULL;
    int words = 1;

    if (argc < 2 || strncmp(argv[1], option, strlen(option)) != 0 || (*value && *value != '='))
        return 0;
    if (*value) {
        value++;
    } else {
        value = argc > 2 ? argv[2] : "";
        words = 2;
    }
    if (!*value || setenv(API_HOST_VARIABLE, value, 1) < 0) {
        cli_usage(NULL, "--host needs the name or address of a machine");
        return -1;
    }
    return words;
}

/* Whether the command goes with the machine that was chosen, which is chosen then. */
static int go_there(const struct command *cmd)
{
    const char *host = getenv(API_HOST_VARIABLE);

    if (!host || !*host || cmd->far == FAR_SAME)
        return CLI_OK;
    if (cmd->far == FAR_NEVER)
        return cli_error_as(cmd, CLI_USAGE, "not-with-host",
                            "Log in there ('ssh'), or leave out --host and unset TIDE_HOST.",
                            "this command works on the machine where it is called, not on '%.100s'",
                            host);
    return api_host(cmd);
}

static int dispatch(int argc, char **argv)
{
    const struct command *cmd;
    int skip = take_host(argc, argv);
    int r;

    if (skip < 0)
        return CLI_USAGE;
    argc -= skip;
    argv += skip;
    if (argc < 2) {
        overview();
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        cmd = &command_help;
    else if (strcmp(argv[1], "--version") == 0)
        cmd = &command_version;
    else
        cmd = find(argv[1]);
    if (!cmd)
        return unknown(argv[1]);
    r = go_there(cmd);
    return r == CLI_OK ? cmd->run(argc - 1, argv + 1) : r;
}

/* Called as `docker tide …`. */
static int plugin(int argc, char **argv)
{
    int skip = 0;
    int r = docker_plugin(argc, argv, &skip);

    return r == -1 ? dispatch(argc - 1 - skip, argv + 1 + skip) : r;
}

int main(int argc, char **argv)
{
    return cli_end(NULL, docker_is_plugin(argv[0]) ? plugin(argc, argv) : dispatch(argc, argv));
}
