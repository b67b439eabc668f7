/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tide`: the table of its commands, `tide help`, and the choice of the command. This file uses
 * every command and no command uses it.
 */
#include "cli/cli.h"

#include "base/cleanup.h"
#include "base/suggest.h"

#include <stdio.h>
#include <string.h>

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

static int overview(void)
{
    printf("Usage: tide COMMAND [ARGUMENT...]\n\n"
           "Changes the active threads of machine-learning programs while they run, so that\n"
           "several share the cores of one machine. The programs stay as they are.\n\n"
           "Commands:\n");
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        printf("  %-9s  %s\n", commands[i]->name, commands[i]->brief);
    printf("\n"
           "Try it:\n"
           "  tide run --name cnn -- python train.py    start a training under control\n"
           "  tide ps                                   see what it has\n"
           "  tide set cnn --threads 2                  change it while it trains\n"
           "  tide top                                  watch all jobs\n"
           "\n"
           "'tide help COMMAND' explains one command, man tide(1) the rest.\n");
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
    .run = help_run,
};

/* ---- choice of the command ---- */

static int dispatch(int argc, char **argv)
{
    const struct command *cmd;

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
    return cmd ? cmd->run(argc - 1, argv + 1) : unknown(argv[1]);
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
