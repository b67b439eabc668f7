/* SPDX-License-Identifier: Apache-2.0 */
/* `tide energy`: what jobs, users, days or parts of the machine have used, and what that cost. */
#include "cli/api.h"
#include "cli/power_text.h"

#include <libsmartcols/libsmartcols.h>
#include <string.h>
#include <time.h>

#define DAY_S 86400

static void unref_table(struct libscols_table **table)
{
    scols_unref_table(*table);
}

enum column { KEY, NAME, OWNER, ENERGY, BETWEEN, BASIS, COST, CARBON, GAP, COLUMN_MAX };

static const struct {
    const char *title;
    bool right;
} columns[COLUMN_MAX] = {
    [KEY] = {"", false},         [NAME] = {"NAME", false},       [OWNER] = {"OWNER", false},
    [ENERGY] = {"ENERGY", true}, [BETWEEN] = {"BETWEEN", false}, [BASIS] = {"BASIS", false},
    [COST] = {"COST", true},     [CARBON] = {"CO2", true},       [GAP] = {"UNKNOWN", true},
};

/* The columns about jobs for jobs alone; cost and CO2 where they are configured. */
static bool is_shown(enum column c, const char *by, const json_t *rows)
{
    const json_t *first = json_array_get(rows, 0);

    switch (c) {
    case NAME:
    case OWNER:
        return strcmp(by, "job") == 0;
    case COST:
        return json_is_number(json_object_get(first, "cost"));
    case CARBON:
        return json_is_number(json_object_get(first, "gco2"));
    default:
        return true;
    }
}

static void cell(const json_t *row, enum column c, const char *currency, char *buf, size_t size)
{
    double grams = member_number(row, "gco2");

    snprintf(buf, size, "-");
    switch (c) {
    case KEY:
        snprintf(buf, size, "%s", member_text(row, "key"));
        break;
    case NAME:
        snprintf(buf, size, "%s", member_text(row, "name"));
        break;
    case OWNER:
        snprintf(buf, size, "%s", member_text(row, "owner"));
        break;
    case ENERGY:
        text_energy(json_object_get(row, "uj"), buf, size);
        break;
    case BETWEEN:
        text_energy_bounds(json_object_get(row, "low_uj"), json_object_get(row, "high_uj"), buf,
                           size);
        break;
    case BASIS:
        snprintf(buf, size, "%s", member_text(row, "basis"));
        break;
    case COST:
        if (json_is_number(json_object_get(row, "cost")))
            snprintf(buf, size, "%.3g %s", member_number(row, "cost"), currency);
        break;
    case CARBON:
        if (json_is_number(json_object_get(row, "gco2")))
            snprintf(buf, size, grams < 1000 ? "%.3g g" : "%.4g kg",
                     grams < 1000 ? grams : grams / 1000);
        break;
    default:
        if (member_long(row, "gap_ms") >= 1000)
            snprintf(buf, size, "%ld s", member_long(row, "gap_ms") / 1000);
    }
}

static int fill(struct libscols_table *table, const json_t *answer, const char *by)
{
    const json_t *rows = json_object_get(answer, "rows"), *row;
    char text[128];
    size_t i;

    json_array_foreach (rows, i, row) {
        struct libscols_line *line = scols_table_new_line(table, NULL);
        size_t at = 0;

        if (!line)
            return -ENOMEM;
        for (enum column c = 0; c < COLUMN_MAX; c++) {
            if (!is_shown(c, by, rows))
                continue;
            cell(row, c, member_text(answer, "currency"), text, sizeof(text));
            if (scols_line_set_data(line, at++, text) < 0)
                return -ENOMEM;
        }
    }
    return scols_print_table(table) < 0 ? -ENOMEM : 0;
}

static int print_table(const json_t *answer, const char *by)
{
    _cleanup_(unref_table) struct libscols_table *table = scols_new_table();
    const json_t *rows = json_object_get(answer, "rows");
    const char *key = strcmp(by, "job") == 0    ? "JOB"
                      : strcmp(by, "user") == 0 ? "USER"
                      : strcmp(by, "day") == 0  ? "DAY"
                                                : "PART";
    int r = table ? 0 : -ENOMEM;

    if (json_array_size(rows) == 0) {
        printf(
            "Nothing is known of any energy in that time: 'tide power' shows what is known now.\n");
        return CLI_OK;
    }
    cli_locale();
    for (enum column c = 0; r == 0 && c < COLUMN_MAX; c++)
        if (is_shown(c, by, rows) &&
            !scols_table_new_column(table, c == KEY ? key : columns[c].title, 0,
                                    columns[c].right ? SCOLS_FL_RIGHT : 0))
            r = -ENOMEM;
    if (r == 0)
        r = fill(table, answer, by);
    return r < 0 ? cli_no_memory(&command_energy) : CLI_OK;
}

/* Whether the value of --by is one; the daemon says the same of others' requests. */
static bool is_by(const char *text)
{
    static const char *const known[] = {"job", "user", "day", "part"};

    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (strcmp(text, known[i]) == 0)
            return true;
    return false;
}

static int energy_run(int argc, char **argv)
{
    static const struct option options[] = {{"by", required_argument, NULL, 'b'},
                                            {"since", required_argument, NULL, 's'},
                                            {"json", no_argument, NULL, 'j'},
                                            {0}};
    uint64_t since = (uint64_t)time(NULL) - DAY_S;
    _cleanup_json_ json_t *answer = NULL;
    const char *by = "job", *job = NULL;
    char path[API_PATH_MAX];
    bool json = false;
    int c, r = CLI_OK;

    while ((c = option_next(&command_energy, argc, argv, options, false)) != -1) {
        if (c == 'b')
            by = optarg;
        else if (c == 's')
            r = option_since(&command_energy, optarg, &since);
        else
            json = true;
        if (r != CLI_OK)
            return r;
    }
    option_operands(&command_energy, argc, argv, 0, 1);
    job = optind < argc ? argv[optind] : NULL;
    if (!is_by(by))
        return cli_usage(&command_energy, "--by: '%.40s' is none of job, user, day and part", by);
    if (job && strcmp(by, "job") != 0 && strcmp(by, "user") != 0)
        return cli_usage(&command_energy, "--by %s shows the whole machine: leave out JOB", by);
    if (job && job[strcspn(job, "&#?% +/")])
        return cli_error_as(&command_energy, CLI_NOT_FOUND, "no-such-job",
                            "'tide ps' lists the jobs.", "there is no job '%.60s'", job);
    snprintf(path, sizeof(path), "/v1/energy?by=%s&since=%llu%s%s", by, (unsigned long long)since,
             job ? "&job=" : "", job ? job : "");
    r = api_request(&command_energy, "GET", path, NULL, API_TIMEOUT_MS, &answer);
    if (r != CLI_OK)
        return r;
    return json ? api_print(answer) : print_table(answer, by);
}

const struct command command_energy = {
    .name = "energy",
    .usage = "[JOB] [--by WHAT] [--since TIME] [--json]",
    .brief = "show what jobs and the machine have used, and what that cost",
    .help = "Shows the energy of your jobs (of everybody's for administrators) above the\n"
            "machine's idling, since yesterday at this time. Ended jobs are kept a year.\n"
            "Energy is kept by quarters of an hour: the one in which TIME lies counts whole.\n"
            "The last minute is shown to administrators alone.\n"
            "\n"
            "Options:\n"
            "  -b, --by WHAT     job (the default), user, day or part; the last two are\n"
            "                    of the whole machine\n"
            "  -s, --since TIME  90s or 2h ago, 18:30 or 2026-01-31\n"
            "  -j, --json        the daemon's answer; null where unknown\n"
            "\n"
            "COST and CO2 are shown where tide.conf(5) has a tariff= and carbon=; UNKNOWN is\n"
            "the time of which nothing is known.\n"
            "\n"
            "Examples:\n"
            "  tide energy\n"
            "  tide energy cnn --since 2h\n"
            "  tide energy --by day --since 2026-01-01\n",
    .far = FAR_GOES,
    .run = energy_run,
};
