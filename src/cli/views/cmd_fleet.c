/* SPDX-License-Identifier: Apache-2.0 */
/* `tide fleet`: the machines of an inventory, and with `ps` their jobs. */
#include "cli/api.h"
#include "cli/power_text.h"
#include "cli/remote/fleet.h"
#include "cli/views/job_table.h"

#include "base/moment.h"

#include <assert.h>
#include <libsmartcols/libsmartcols.h>
#include <limits.h>
#include <string.h>

static const enum job_field job_columns[] = {JOB_MACHINE, JOB_ID,       JOB_NAME,   JOB_OWNER,
                                             JOB_STATE,   JOB_CORES,    JOB_TARGET, JOB_ACTIVE,
                                             JOB_MEMORY,  JOB_PROGRESS, JOB_REASON};

enum column { MACHINE, CORES, FREE, LOAD, JOBS, WAITING, POWER, POLICY, STATE, COLUMN_MAX };

struct fleet_options {
    const char *inventory;
    uint64_t deadline_ms;
    bool jobs, json;
};

/* ---- machines ---- */

static void number(long value, char *buf, size_t size)
{
    snprintf(buf, size, "%ld", value);
}

static void cell(const struct fleet_answer *a, enum column column, char *buf, size_t size)
{
    double load;

    snprintf(buf, size, "-");
    if (column == MACHINE)
        snprintf(buf, size, "%s", a->machine->name);
    else if (column == STATE)
        snprintf(buf, size, "%s%s",
                 a->reached ? "ok" : "unreachable: ", a->reached ? "" : a->why.text);
    if (!a->reached)
        return;
    switch (column) {
    case CORES:
        number(fleet_cores(a), buf, size);
        break;
    case FREE:
        number(member_long(a->state, "free"), buf, size);
        break;
    case LOAD:
        load = fleet_load(a);
        if (load >= 0)
            snprintf(buf, size, "%.1f", load);
        break;
    case JOBS:
        number(fleet_jobs(a) - fleet_waiting(a), buf, size);
        break;
    case WAITING:
        number(fleet_waiting(a), buf, size);
        break;
    case POWER:
        text_power(json_object_get(json_object_get(a->power, "power"), "uw"), buf, size);
        break;
    case POLICY:
        snprintf(buf, size, "%s", member_text(a->state, "policy"));
        break;
    default:
        break;
    }
}

static void unref_table(struct libscols_table **table)
{
    scols_unref_table(*table);
}

static int print_machines(const struct fleet *f)
{
    static const char *const title[] = {
        [MACHINE] = "MACHINE", [CORES] = "CORES",   [FREE] = "FREE",
        [LOAD] = "LOAD",       [JOBS] = "JOBS",     [WAITING] = "WAITING",
        [POWER] = "POWER",     [POLICY] = "POLICY", [STATE] = "STATE"};
    static_assert(ARRAY_LEN(title) == COLUMN_MAX, "one title for each column");
    _cleanup_(unref_table) struct libscols_table *table = scols_new_table();
    char text[ERROR_TEXT_MAX + 32];

    if (!table)
        return -ENOMEM;
    cli_locale();
    scols_table_enable_colors(table, cli_color());
    for (int c = 0; c < COLUMN_MAX; c++)
        if (!scols_table_new_column(table, title[c], c == STATE ? 0.3 : 0,
                                    c == STATE                    ? SCOLS_FL_WRAP
                                    : c == MACHINE || c == POLICY ? 0
                                                                  : SCOLS_FL_RIGHT))
            return -ENOMEM;
    for (size_t k = 0; k < f->n; k++) {
        struct libscols_line *line = scols_table_new_line(table, NULL);

        for (int c = 0; c < COLUMN_MAX; c++) {
            cell(&f->answer[k], (enum column)c, text, sizeof(text));
            if (!line || scols_line_set_data(line, (size_t)c, text) < 0)
                return -ENOMEM;
        }
        if (!f->answer[k].reached)
            scols_line_set_color(line, "red");
    }
    return scols_print_table(table) < 0 ? -ENOMEM : 0;
}

/* ---- jobs ---- */

/* The jobs of all machines, each with its "machine". */
static json_t *all_jobs(const struct fleet *f)
{
    json_t *list = json_array(), *job;
    size_t i;

    for (size_t k = 0; k < f->n; k++)
        json_array_foreach (f->answer[k].jobs, i, job) {
            json_object_set_new(job, "machine", json_string(f->answer[k].machine->name));
            json_array_append(list, job);
        }
    return list;
}

static int show_jobs(const struct fleet *f, bool json)
{
    _cleanup_json_ json_t *jobs = all_jobs(f);
    int r = CLI_OK;

    if (json)
        api_print(jobs);
    else if (json_array_size(jobs) == 0)
        printf("No jobs; %zu of %zu machines were reached.\n", f->reached, f->n);
    else if (job_table_print(jobs, job_columns, ARRAY_LEN(job_columns)) < 0)
        r = cli_no_memory(&command_fleet);
    for (size_t k = 0; k < f->n; k++)
        if (!f->answer[k].reached)
            cli_note_as(&command_fleet, "host-unreachable", "%s is unreachable: %s",
                        f->answer[k].machine->name, f->answer[k].why.text);
    return r;
}

static int show_machines(const struct fleet *f, bool json)
{
    if (json) {
        _cleanup_json_ json_t *machines = fleet_json(f);

        return api_print(machines);
    }
    if (print_machines(f) < 0)
        return cli_no_memory(&command_fleet);
    return CLI_OK;
}

/* ---- the command ---- */

static int show(const struct fleet_options *o)
{
    _cleanup_(inventory_done) struct inventory inventory = {0};
    _cleanup_(fleet_done) struct fleet fleet = {0};
    struct error err = {0};
    int r = inventory_read(o->inventory, &inventory, &err);

    if (r < 0)
        return cli_error_as(&command_fleet, CLI_USAGE, err.word,
                            "tide-fleet(1) says what an inventory is.", "%s", err.text);
    if (inventory.n == 0)
        return cli_error_as(&command_fleet, CLI_USAGE, "no-inventory",
                            "A line is NAME ssh://HOST, for example.", "%.180s has no machine",
                            inventory.from);
    if (fleet_ask(&inventory, (unsigned)o->deadline_ms, &fleet) < 0)
        return cli_no_memory(&command_fleet);
    r = o->jobs ? show_jobs(&fleet, o->json) : show_machines(&fleet, o->json);
    if (r != CLI_OK || fleet.reached == fleet.n)
        return r;
    return fleet.reached ? CLI_PARTIAL : CLI_UNREACHABLE;
}

static int fleet_run(int argc, char **argv)
{
    static const struct option options[] = {{"inventory", required_argument, NULL, 'i'},
                                            {"deadline", required_argument, NULL, 'd'},
                                            {"json", no_argument, NULL, 'j'},
                                            {0}};
    const struct command *cmd = &command_fleet;
    struct fleet_options o = {.deadline_ms = FLEET_DEADLINE_MS};
    int c;

    while ((c = option_next(cmd, argc, argv, options, false)) != -1) {
        if (c == 'i')
            o.inventory = optarg;
        if (c == 'd' && (moment_duration(optarg, &o.deadline_ms) < 0 || o.deadline_ms > 3600000))
            return cli_usage(cmd, "--deadline: '%s' is no time like 500ms or 10s, up to 1h",
                             optarg);
        o.json |= c == 'j';
    }
    option_operands(cmd, argc, argv, 0, 1);
    if (optind < argc && strcmp(argv[optind], "ps") != 0)
        return cli_usage(cmd, "'%s' is not ps", argv[optind]);
    o.jobs = optind < argc;
    return show(&o);
}

const struct command command_fleet = {
    .name = "fleet",
    .usage = "[ps] [--inventory FILE] [--deadline TIME] [--json]",
    .brief = "show many machines, or the jobs of all of them",
    .help = "Asks the machines of an inventory at the same time. A line of it is a name and\n"
            "an address, in ~/.config/tide/fleet, else in /etc/tide/fleet:\n"
            "  lab1  ssh://ana@lab1.example.org\n"
            "  lab2  ssh://lab2.example.org:2222\n"
            "'tide --host lab1 COMMAND' asks one of them; there, an address does, too.\n"
            "\n"
            "Options:\n"
            "  -i, --inventory FILE  these machines; also dns:NAME (SRV records) or\n"
            "                        kubernetes:SELECTOR (nodes with these labels)\n"
            "  -d, --deadline TIME   what has not answered by then is unreachable (10s)\n"
            "  -j, --json            everything as JSON\n"
            "\n"
            "Columns: CORES of the machine, FREE: given to no job; LOAD: busy cores; JOBS\n"
            "that run; WAITING in the queue; a dash: not known.\n"
            "\n"
            "Examples:\n"
            "  tide fleet\n"
            "  tide fleet ps --deadline 3s\n"
            "  tide --host lab1 top\n"
            "  tide --host ssh://ana@lab1.example.org set cnn --threads 2\n"
            "\n"
            "Exit status: 6 when some machine was not reached, 5 when none was.\n",
    .far = FAR_SAME,
    .run = fleet_run,
};
