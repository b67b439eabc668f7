/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/power/power_view.h"

#include "cli/api.h"
#include "cli/power_text.h"

#include <libsmartcols/libsmartcols.h>
#include <string.h>

/* ---- energy ---- */

static void print_part(const json_t *parts, const char *key, double whole)
{
    const json_t *part = json_object_get(parts, key), *uj = json_object_get(part, "uj");
    char energy[32], bounds[64];

    if (!json_is_number(uj))
        return;
    text_energy(uj, energy, sizeof(energy));
    text_energy_bounds(json_object_get(part, "low_uj"), json_object_get(part, "high_uj"), bounds,
                       sizeof(bounds));
    printf("       %-13s%10s %3.0f %%  (%s)\n", key, energy,
           whole > 0 ? 100 * json_number_value(uj) / whole : 0, bounds);
}

void power_print_energy(const json_t *answer)
{
    static const char *const keys[] = {"jobs", "system", "idle", "unattributed"};
    const json_t *energy = json_object_get(answer, "energy");
    double gap_s = member_number(energy, "gap_ms") / 1000;
    char used[32];

    if (!json_is_number(json_object_get(energy, "uj")))
        return;
    text_energy(json_object_get(energy, "uj"), used, sizeof(used));
    printf("used   %s since tided counts", used);
    if (gap_s >= 1)
        printf("; of %.0f s nothing is known", gap_s);
    printf("\n");
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        print_part(json_object_get(answer, "parts"), keys[i], member_number(energy, "uj"));
}

/* ---- sources ---- */

static void unref_table(struct libscols_table **table)
{
    scols_unref_table(*table);
}

static const struct {
    const char *title, *key; /* key NULL: made of another member */
} columns[] = {
    {"NAME", "name"}, {"KIND", "kind"},   {"SEES", "part"}, {"POWER", NULL},
    {"ERROR", NULL},  {"BASIS", "basis"}, {"USED", NULL},   {"PROBLEM", "problem"},
};

static void cell(const json_t *source, size_t column, char *buf, size_t size)
{
    const char *title = columns[column].title;

    if (columns[column].key)
        snprintf(buf, size, "%s", member_text(source, columns[column].key));
    else if (strcmp(title, "ERROR") == 0)
        snprintf(buf, size, "%.3g %%", member_number(source, "error_permille") / 10);
    else if (strcmp(title, "POWER") == 0)
        text_power(json_object_get(source, "uw"), buf, size);
    else
        snprintf(buf, size, "%s", member_bool(source, "used") ? "yes" : "no");
}

static int print_table(const json_t *sources)
{
    _cleanup_(unref_table) struct libscols_table *table = scols_new_table();
    const json_t *source;
    char text[256];
    size_t i;

    if (!table)
        return -ENOMEM;
    cli_locale();
    for (i = 0; i < ARRAY_LEN(columns); i++)
        if (!scols_table_new_column(table, columns[i].title, 0, 0))
            return -ENOMEM;
    json_array_foreach (sources, i, source) {
        struct libscols_line *line = scols_table_new_line(table, NULL);

        if (!line)
            return -ENOMEM;
        for (size_t k = 0; k < ARRAY_LEN(columns); k++) {
            cell(source, k, text, sizeof(text));
            if (scols_line_set_data(line, k, text) < 0)
                return -ENOMEM;
        }
    }
    return scols_print_table(table) < 0 ? -ENOMEM : 0;
}

int power_sources(const struct command *cmd, bool json)
{
    _cleanup_json_ json_t *sources = NULL;
    int r = api_request(cmd, "GET", "/v1/power/sources", NULL, API_TIMEOUT_MS, &sources);

    if (r != CLI_OK)
        return r;
    if (json)
        return api_print(sources);
    if (json_array_size(sources) == 0) {
        printf("No source of watts: no powercap zone and no chip that tells power was found, as in "
               "most\n"
               "virtual machines, or tide.conf says power=none. A file into which a meter's watts "
               "are\n"
               "written is a source, power=file:/PATH; a model is the next best, power-model=.\n");
        return CLI_OK;
    }
    return print_table(sources) < 0 ? cli_no_memory(cmd) : CLI_OK;
}
