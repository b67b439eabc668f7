/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tide dashboard` is a program of its own: the HTTP server's libraries would cost every other
 * command a part of its start.
 */
#include "cli/cli.h"

static int dashboard_run(int argc, char **argv)
{
    return cli_become(&command_dashboard, "tide-dashboard", argv);
}

const struct command command_dashboard = {
    .name = "dashboard",
    .usage = "[--port N] [--no-open]",
    .brief = "show the jobs and their cores in a web browser",
    .help = "Serves a page of this machine on 127.0.0.1 until Ctrl-C: cores coloured by job,\n"
            "threads, progress, history, and why each job has what it has. The page may do\n"
            "what its user may. The link that is printed works once. Machines shows those of\n"
            "your inventory ('tide help fleet') and leads to the page of each.\n"
            "\n"
            "Options:\n"
            "      --port N    listen on this port (default: any free one)\n"
            "      --no-open   print the link, but start no browser\n"
            "\n"
            "Examples:\n"
            "  tide dashboard\n"
            "  tide dashboard --port 8350 --no-open\n"
            "                  on a server; then, where the browser is:\n"
            "                  ssh -L 8350:127.0.0.1:8350 SERVER\n",
    .run = dashboard_run,
};
