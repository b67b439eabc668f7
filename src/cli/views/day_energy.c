/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/views/day_energy.h"

#include "cli/api.h"
#include "cli/power_text.h"
#include "cli/views/job_text.h"
#include "sim/report/svg.h"

#include <string.h>

#define ROWS_MAX 200 /* of a table: tided tells those first that used the most */

void day_energy_done(struct day_energy *e)
{
    json_decref(e->parts);
    json_decref(e->users);
    json_decref(e->jobs);
    *e = (struct day_energy){0};
}

static const json_t *rows_of(const json_t *answer)
{
    return json_object_get(answer, "rows");
}

/* The machine's own row, beside which its parts stand. */
static const json_t *machine_of(const struct day_energy *e)
{
    const json_t *row;
    size_t i;

    json_array_foreach (rows_of(e->parts), i, row)
        if (strcmp(member_text(row, "key"), "machine") == 0)
            return row;
    return NULL;
}

bool day_energy_known(const struct day_energy *e)
{
    return json_is_number(json_object_get(machine_of(e), "uj"));
}

static void cost_text(const json_t *row, const json_t *answer, char *buf, size_t size)
{
    if (json_is_number(json_object_get(row, "cost")))
        snprintf(buf, size, "%.3g %s", member_number(row, "cost"), member_text(answer, "currency"));
    else
        snprintf(buf, size, "–");
}

static void carbon_text(const json_t *row, char *buf, size_t size)
{
    double grams = member_number(row, "gco2");

    if (json_is_number(json_object_get(row, "gco2")))
        snprintf(buf, size, grams < 1000 ? "%.3g g" : "%.4g kg",
                 grams < 1000 ? grams : grams / 1000);
    else
        snprintf(buf, size, "–");
}

static void bounds_text(const json_t *row, char *buf, size_t size)
{
    text_energy_bounds(json_object_get(row, "low_uj"), json_object_get(row, "high_uj"), buf, size);
}

static void put_item(FILE *file, const char *name, const char *text)
{
    fprintf(file, "<div><dt>%s</dt><dd>", name);
    svg_text(file, text);
    fputs("</dd></div>", file);
}

void day_energy_summary(FILE *file, const struct day_energy *e)
{
    const json_t *machine = machine_of(e);
    char text[96];

    if (!day_energy_known(e))
        return;
    text_energy(json_object_get(machine, "uj"), text, sizeof(text));
    put_item(file, "Energy", text);
    if (json_is_number(json_object_get(machine, "cost"))) {
        cost_text(machine, e->parts, text, sizeof(text));
        put_item(file, "Cost", text);
    }
    if (json_is_number(json_object_get(machine, "gco2"))) {
        carbon_text(machine, text, sizeof(text));
        put_item(file, "CO₂", text);
    }
}

void day_cell(FILE *file, const char *kind, const char *text)
{
    fprintf(file, "<td%s>", kind);
    svg_text(file, text);
    fputs("</td>", file);
}

static void put_row(FILE *file, const json_t *answer, const json_t *row, bool job)
{
    const char *name = member_text(row, "name");
    char text[96];

    fputs("<tr>", file);
    day_cell(file, "", *name ? name : member_text(row, "key"));
    if (job)
        day_cell(file, "", member_text(row, "owner"));
    text_energy(json_object_get(row, "uj"), text, sizeof(text));
    day_cell(file, " class=\"n\"", text);
    bounds_text(row, text, sizeof(text));
    day_cell(file, "", text);
    cost_text(row, answer, text, sizeof(text));
    day_cell(file, " class=\"n\"", text);
    carbon_text(row, text, sizeof(text));
    day_cell(file, " class=\"n\"", text);
    day_cell(file, "", member_text(row, "basis"));
    fputs("</tr>\n", file);
}

static void put_table(FILE *file, const char *title, const json_t *answer, bool job)
{
    const json_t *rows = rows_of(answer), *row;
    size_t i, n = json_array_size(rows);

    if (n == 0)
        return;
    fprintf(file,
            "<h2>%s</h2>\n<table><thead><tr><th>%s</th>%s<th class=\"n\">Energy</th><th>Between"
            "</th><th class=\"n\">Cost</th><th class=\"n\">CO₂</th><th>Known as</th></tr></thead>"
            "<tbody>\n",
            title, job ? "Job" : "User", job ? "<th>Owner</th>" : "");
    json_array_foreach (rows, i, row)
        if (i < ROWS_MAX)
            put_row(file, answer, row, job);
    fputs("</tbody></table>\n", file);
    if (n > ROWS_MAX)
        fprintf(file, "<p>%zu further ones are not listed.</p>\n", n - ROWS_MAX);
}

void day_energy_tables(FILE *file, const struct day_energy *e)
{
    const json_t *machine = machine_of(e);
    long gap_s = member_long(machine, "gap_ms") / 1000;
    char text[96];

    if (!e->parts)
        return; /* this daemon measures nothing */
    if (!day_energy_known(e)) {
        fputs("<h2>Energy</h2>\n<p>Nothing is known of the machine's energy on this day.</p>\n",
              file);
        return;
    }
    bounds_text(machine, text, sizeof(text));
    fputs("<h2>Energy</h2>\n<p>The machine used ", file);
    svg_text(file, text);
    fprintf(file, " (%s). ", member_text(machine, "basis"));
    if (gap_s > 0) {
        job_text_duration((double)gap_s, text, sizeof(text));
        fprintf(file, "Nothing is known of %s: that is unknown, not zero. ", text);
    }
    fputs("Users and jobs have their share above the machine's idling; quarters of an hour count "
          "whole.</p>\n",
          file);
    put_table(file, "Energy by user", e->users, false);
    put_table(file, "Energy by job", e->jobs, true);
}
