/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/api.h"
#include "cli/views/job_table.h"
#include "cli/views/job_text.h"

#include <string.h>

static const enum job_field columns[] = {
    JOB_ID,     JOB_NAME,   JOB_OWNER, JOB_STATE,  JOB_PIDS,     JOB_CORES, JOB_ALLOWED,
    JOB_TARGET, JOB_ACTIVE, JOB_MAX,   JOB_MEMORY, JOB_PROGRESS, JOB_RATE,  JOB_REASON,
};

static const enum job_field power_columns[] = {
    JOB_ID,     JOB_NAME,  JOB_OWNER,  JOB_STATE,   JOB_CORES,
    JOB_TARGET, JOB_POWER, JOB_ENERGY, JOB_BETWEEN, JOB_BASIS,
};

/* Explains below the table the mark "!", and why a program's threads do not change. */
static void print_notes(const json_t *jobs)
{
    const json_t *backend;
    const json_t *job;
    bool legend = false;
    size_t i;
    size_t k;

    json_array_foreach (jobs, i, job) {
        legend |= member_bool(job, "oversubscribed");
        json_array_foreach (json_object_get(job, "backends"), k, backend) {
            if (member_bool(backend, "malleable"))
                continue;
            printf("%s %s: %s %s keeps its threads: %s\n", member_text(job, "id"),
                   member_text(job, "name"), member_text(backend, "name"),
                   member_text(backend, "version"), member_text(backend, "note"));
        }
    }
    if (legend)
        printf("! oversubscribed: more threads than cores; 'tide explain JOB' says why\n");
}

/* Returns the text of a note about a job, behind its "j17: "; NULL: the note is not about a job. */
static const char *job_note(const char *note)
{
    size_t digits = *note == 'j' ? strspn(note + 1, "0123456789") : 0;

    return digits && strncmp(note + 1 + digits, ": ", 2) == 0 ? note + digits + 3 : NULL;
}

/* Jobs with the same note share one line, which names the first of them. */
static void print_note(const json_t *notes, size_t at, const char *note)
{
    const char *text = job_note(note);
    const json_t *other;
    unsigned more = 0;
    size_t i;

    json_array_foreach (notes, i, other) {
        const char *said = text ? job_note(json_string_value(other)) : NULL;

        if (i == at || !said || strcmp(said, text) != 0)
            continue;
        if (i < at)
            return;
        more++;
    }
    if (more)
        printf("note: %.*s and %u more: %s\n", (int)(text - note) - 2, note, more, text);
    else
        printf("note: %s\n", note);
}

static void print_machine_notes(void)
{
    _cleanup_answer_ struct api_answer machine = {0};
    struct error err;
    const json_t *notes, *note;
    size_t i;

    if (api_try("GET", "/v1/machine", NULL, API_TIMEOUT_MS, &machine, &err) < 0)
        return;
    notes = json_object_get(machine.body, "notes");
    json_array_foreach (notes, i, note)
        print_note(notes, i, json_string_value(note));
}

static void print_splits(const json_t *jobs)
{
    const json_t *job;
    char split[512];
    size_t i;

    json_array_foreach (jobs, i, job) {
        job_text_split(job, split, sizeof(split));
        if (*split)
            printf("%s %s: %ld threads: %s\n", member_text(job, "id"), member_text(job, "name"),
                   member_long(job, "target"), split);
    }
}

/* Each runtime of each process and how large its pools are, as the agents have reported it. */
static void print_pools(const json_t *jobs)
{
    const json_t *backend, *job;
    size_t i, k;

    json_array_foreach (jobs, i, job)
        json_array_foreach (json_object_get(job, "backends"), k, backend) {
            long inter = member_long(json_object_get(backend, "inter"), "max");

            printf("%s %s: process %ld: %s %s%s, pool of %ld, %ld active", member_text(job, "id"),
                   member_text(job, "name"), member_long(backend, "pid"),
                   member_text(backend, "name"), member_text(backend, "version"),
                   member_bool(backend, "malleable") ? ": malleable" : "",
                   member_long(backend, "max"), member_long(backend, "active"));
            if (inter > 0)
                printf(", inter-op pool of %ld", inter);
            printf("\n");
        }
}

static void print_devices(const json_t *jobs)
{
    const json_t *job;
    char feeds[JOB_DEVICES_MAX];
    size_t i;

    json_array_foreach (jobs, i, job)
        if (*job_text_devices(job, feeds, sizeof(feeds)))
            printf("%s %s: %s\n", member_text(job, "id"), member_text(job, "name"), feeds);
}

static int print_power(const json_t *jobs)
{
    if (json_array_size(jobs) == 0) {
        printf("No jobs. Start one: tide run -- python train.py\n");
        return CLI_OK;
    }
    if (job_table_print(jobs, power_columns, ARRAY_LEN(power_columns)) < 0)
        return cli_no_memory(&command_ps);
    return CLI_OK;
}

static int print_people(const json_t *jobs, bool verbose)
{
    if (json_array_size(jobs) == 0) {
        printf("No jobs. Start one: tide run -- python train.py\n");
        return CLI_OK;
    }
    if (job_table_print(jobs, columns, ARRAY_LEN(columns)) < 0)
        return cli_no_memory(&command_ps);
    if (verbose) {
        print_splits(jobs);
        print_pools(jobs);
    }
    print_devices(jobs);
    print_notes(jobs);
    print_machine_notes();
    return CLI_OK;
}

static int ps_run(int argc, char **argv)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'},  {"quiet", no_argument, NULL, 'q'},
        {"names", no_argument, NULL, 'n'}, {"verbose", no_argument, NULL, 'v'},
        {"power", no_argument, NULL, 'p'}, {0}};
    _cleanup_json_ json_t *jobs = NULL;
    int form = 0; /* letter of the option that chose the form */
    int c;
    int r;

    while ((c = option_next(&command_ps, argc, argv, options, false)) != -1) {
        if (form && form != c)
            return cli_usage(&command_ps,
                             "--json, --quiet, --names, --verbose and --power: choose one");
        form = c;
    }
    option_operands(&command_ps, argc, argv, 0, 0);
    r = api_request(&command_ps, "GET", "/v1/jobs", NULL, API_TIMEOUT_MS, &jobs);
    if (r != CLI_OK)
        return r;
    if (form == 'j')
        return api_print(jobs);
    if (form == 'q' || form == 'n')
        return job_table_members(jobs, form == 'q' ? "id" : "name");
    if (form == 'p')
        return print_power(jobs);
    return print_people(jobs, form == 'v');
}

const struct command command_ps = {
    .name = "ps",
    .usage = "[--json | --quiet | --names | --verbose | --power]",
    .brief = "list the jobs, their cores and their threads",
    .help = "Options:\n"
            "  -j, --json     everything about the jobs, as a JSON array\n"
            "  -q, --quiet    only the ids\n"
            "  -n, --names    only the names\n"
            "  -v, --verbose  also how a target is divided among a job's processes, and\n"
            "                 their runtimes with the sizes of their pools\n"
            "  -p, --power    what each job draws and has used, above the machine's idling;\n"
            "                 of other users' jobs for administrators only\n"
            "\n"
            "Columns (a dash: not known, or not yet):\n"
            "  ID       what other commands call it, as they do its NAME\n"
            "  OWNER    the user whose job it is\n"
            "  STATE    running: its threads can be changed; starting: for ten seconds at\n"
            "           most, until an agent reports; moldable: its threads were chosen at\n"
            "           its start, and stay (MAX), its cores change; rigid: its threads\n"
            "           cannot be changed, the lines below the table say why; queued, held,\n"
            "           paused: see 'tide queue'\n"
            "  PIDS     its first process, and how many more there are\n"
            "  CORES    numbers of the cores that it may run on\n"
            "  ALLOWED  how many cores it may use (fewer under a quota)\n"
            "  TARGET   threads that it should use; ! more than cores (oversubscribed)\n"
            "  ACTIVE   threads that may work: not parked (put to sleep by the agent)\n"
            "  MAX      threads that its pools were built with, or that it was started with\n"
            "  MEMORY   reserved for it when others are to begin: what it asked for or\n"
            "           what it uses, whichever is more\n"
            "  PROGRESS units of work done, and of how many; for a waiting job its wait\n"
            "  RATE     units of work in a second\n"
            "  REASON   why it has what it has; whole in 'tide explain JOB'\n"
            "  POWER    mean of ten seconds\n"
            "  ENERGY   since it began; BETWEEN: its bounds; BASIS: how it is known\n"
            "\n"
            "Examples:\n"
            "  tide ps\n"
            "  tide ps --json | jq '.[] | {name, target, active}'\n"
            "  for j in $(tide ps -q); do tide set $j --auto; done\n",
    .far = FAR_GOES,
    .run = ps_run,
};
