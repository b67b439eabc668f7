/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include <stdio.h>

static int overview(void)
{
    printf("Usage: tide COMMAND [ARGUMENT...]\n\n"
           "Changes the active threads of machine-learning programs while they run, so that\n"
           "several share the cores of one machine. The programs stay as they are.\n\n"
           "Commands:\n");
    for (const struct command *const *c = commands; *c; c++)
        printf("  %-8s  %s\n", (*c)->name, (*c)->brief);
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
    static const struct option options[] = {{"help", no_argument, NULL, 'h'}, {0}};
    const struct command *about;
    int c;

    while ((c = option_next(&command_help, argc, argv, options, false)) != -1)
        return c == 'h' ? cli_help(&command_help) : CLI_USAGE;
    if (option_operands(&command_help, argc, argv, 0, 1) != CLI_OK)
        return CLI_USAGE;
    if (optind == argc)
        return overview();
    about = command_find(argv[optind]);
    return about ? cli_help(about) : command_unknown(argv[optind]);
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
