/* SPDX-License-Identifier: Apache-2.0 */
/* `tide queue`: lists the waiting jobs, for how long they wait, and for what. */
#include "cli/api.h"
#include "cli/views/job_table.h"

#include <string.h>

static const enum job_field columns[] = {
    JOB_PLACE,    JOB_ID,      JOB_NAME,   JOB_OWNER,  JOB_STATE,
    JOB_PRIORITY, JOB_REQUEST, JOB_MEMORY, JOB_WAITED, JOB_REASON,
};

static bool waits(const json_t *job)
{
    return job_text_waits(job) || strcmp(member_text(job, "state"), "paused") == 0;
}

/* Returns where a waiting job goes in @rows, by its place; the first @from rows do not wait. */
static size_t find_row(const json_t *rows, size_t from, const json_t *job)
{
    long place = member_long(job, "place");
    size_t at = json_array_size(rows);

    while (place && at > from) {
        long before = member_long(json_array_get(rows, at - 1), "place");

        if (before && before <= place)
            break;
        at--;
    }
    return at;
}

/*
 * The running jobs (with @all), then the waiting ones in the policy's order, then waiting jobs that
 * have no place in that order. Within each part jobs stand by age, as the daemon lists them.
 */
static json_t *select_jobs(const json_t *jobs, bool all)
{
    json_t *rows = json_array();
    json_t *job;
    size_t i, running;

    json_array_foreach (jobs, i, job)
        if (all && !waits(job))
            json_array_append(rows, job);
    running = json_array_size(rows);
    json_array_foreach (jobs, i, job)
        if (waits(job))
            json_array_insert(rows, find_row(rows, running, job), job);
    return rows;
}

static int print_people(const json_t *rows)
{
    if (json_array_size(rows) == 0) {
        printf("No job waits. Submit one: tide submit -- python train.py\n");
        return CLI_OK;
    }
    if (job_table_print(rows, columns, ARRAY_LEN(columns)) < 0)
        return cli_no_memory(&command_queue);
    return CLI_OK;
}

static int queue_run(int argc, char **argv)
{
    static const struct option options[] = {{"all", no_argument, NULL, 'a'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"quiet", no_argument, NULL, 'q'},
                                            {0}};
    const struct command *cmd = &command_queue;
    _cleanup_json_ json_t *jobs = NULL, *rows = NULL;
    bool all = false, json = false, quiet = false;
    int c;
    int r;

    while ((c = option_next(cmd, argc, argv, options, false)) != -1) {
        all |= c == 'a';
        json |= c == 'j';
        quiet |= c == 'q';
    }
    if (json && quiet)
        return cli_usage(cmd, "--json and --quiet: choose one");
    option_operands(cmd, argc, argv, 0, 0);
    r = api_request(cmd, "GET", "/v1/jobs", NULL, API_TIMEOUT_MS, &jobs);
    if (r != CLI_OK)
        return r;
    rows = select_jobs(jobs, all);
    if (json)
        return api_print(rows);
    return quiet ? job_table_members(rows, "id") : print_people(rows);
}

const struct command command_queue = {
    .name = "queue",
    .usage = "[--all] [--json | --quiet]",
    .brief = "list the waiting jobs, and why each of them waits",
    .help = "Options:\n"
            "  -a, --all    running jobs, too, in front of the waiting ones\n"
            "  -j, --json   everything about the jobs, as a JSON array\n"
            "  -q, --quiet  only the ids\n"
            "\n"
            "In the order in which the policy would start them now. Policies without a queue\n"
            "order ('tide policy') choose anew each time: no places, the oldest at the top.\n"
            "\n"
            "Columns:\n"
            "  PLACE     in that order; a dash: held, can never run, or there is none\n"
            "  STATE     queued; held: until 'tide release'; paused: has given way to others\n"
            "  PRIORITY  larger goes first, under policies that use priorities\n"
            "  REQUEST   cores that it asked for\n"
            "  MEMORY    memory that it asked for; a paused job keeps its memory\n"
            "  WAITED    how long it has waited, pauses included\n"
            "  REASON    what it waits for\n"
            "\n"
            "Examples:\n"
            "  tide queue\n"
            "  tide queue --json | jq '.[] | {name, wait_s, reason}'\n"
            "  tide cancel $(tide queue -q)\n",
    .far = FAR_GOES,
    .run = queue_run,
};
