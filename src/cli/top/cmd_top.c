/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tide top` is a program of its own: loading the screen's libraries would cost every other command
 * nearly as much as the rest of its start.
 */
#include "cli/cli.h"

static int top_run(int argc, char **argv)
{
    return cli_become(&command_top, "tide-top", argv);
}

const struct command command_top = {
    .name = "top",
    .usage = "",
    .brief = "watch the jobs and their cores, and change them",
    .help = "One row a job, and a strip with the last seconds: each column is a second, each\n"
            "core a few rows, coloured and marked for the job that has it (1 is j1, a is\n"
            "j10, a dot is free). Jobs that share cores are drawn in proportion to their\n"
            "threads. NO_COLOR=1 leaves the marks. When the output is no terminal, one frame\n"
            "is printed as text.\n"
            "\n"
            "Keys:\n"
            "  up, down   choose a job             +, -   one thread more or less for it\n"
            "  a          back to automatic        q      quit\n"
            "\n"
            "Examples:\n"
            "  tide top\n"
            "  tide top > now.txt\n",
    .far = FAR_GOES,
    .run = top_run,
};
