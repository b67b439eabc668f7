/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/command.h"

#include <stdio.h>

#define ERROR_WORD "hub-state"

int command_options(int argc, char **argv, const char *usage, const struct option *options,
                    int (*take)(void *arg, int option), void *arg)
{
    int option, r = 0;

    while (r == 0 && (option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
        if (option == 'h') {
            fputs(usage, stdout);
            return -1;
        }
        if (option == '?') { /* getopt has said what is wrong */
            error_print("usage", "Try 'tide-hub %s --help'.", argv[0]);
            return HUB_EXIT_USAGE;
        }
        r = take(arg, option);
    }
    return r;
}

int command_wrong(const char *usage)
{
    fputs(usage, stderr);
    return HUB_EXIT_USAGE;
}

int command_end(int r, const struct error *err)
{
    if (r < 0)
        error_print(error_why(err), "tide-hub: %s", err->text);
    return r < 0 || fflush(stdout) ? HUB_EXIT_FAILED : 0;
}
