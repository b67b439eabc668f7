/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tide sim` is a program of its own: the simulator's libraries alone would cost every other
 * command a tenth of its start.
 */
#include "cli/cli.h"

static int sim_run(int argc, char **argv)
{
    return cli_become(&command_sim, "tide-sim", argv);
}

const struct command command_sim = {
    .name = "sim",
    .usage = "SCENARIO [--policy SPEC,…] [--seeds N|A-B] [OPTION…]",
    .brief = "simulate what policies would make of a scenario, and compare them",
    .help = "SCENARIO is a JSON file: a machine and jobs, listed, generated or from a trace.\n"
            "tide-sim(1) describes it. No daemon is needed.\n"
            "\n"
            "Options:\n"
            "  -p, --policy SPEC,…   policies to compare: NAME[/VALUE…], as in\n"
            "                        fcfs/max-prop/moldable or priority/ageing=60s;\n"
            "                        none: no control\n"
            "      --seeds N|A-B     generate the jobs anew with seeds 1 to N, or A to B;\n"
            "                        listed and traced jobs are the same for every seed\n"
            "      --placement HOW   shared, exclusive or quota, whatever the scenario says\n"
            "      --parallel N      so many runs at a time (default: one for each CPU);\n"
            "                        --jobs N, its old name, does not set how many jobs\n"
            "  -a, --all             every metric\n"
            "  -j, --json            everything as JSON\n"
            "      --csv FILE        a line for each job of each run\n"
            "      --gantt FILE      charts of the first seed as SVG\n"
            "      --html FILE       a report with tables, charts and parameters\n"
            "      --check           check every plan of every policy\n"
            "\n"
            "Examples:\n"
            "  tide sim mix.json\n"
            "  tide sim mix.json --policy none,equal,fcfs/strict --seeds 20\n"
            "  tide sim trace.json --policy response --html report.html\n",
    .far = FAR_SAME,
    .run = sim_run,
};
