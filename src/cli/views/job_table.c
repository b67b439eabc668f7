/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/views/job_table.h"

#include "cli/api.h"

#include <libsmartcols/libsmartcols.h>

static void unref_table(struct libscols_table **table)
{
    scols_unref_table(*table);
}

/* On a narrow terminal only the reason is cut; `tide explain` shows it in full. */
static struct libscols_column *new_column(struct libscols_table *table, enum job_field field)
{
    int flags = job_field_right(field) ? SCOLS_FL_RIGHT : 0;

    if (field == JOB_REASON)
        return scols_table_new_column(table, job_field_title(field), 0.2, SCOLS_FL_TRUNC);
    return scols_table_new_column(table, job_field_title(field), 0, flags);
}

static int fill_line(struct libscols_table *table, const json_t *job, const enum job_field *fields,
                     size_t n)
{
    struct libscols_line *line = scols_table_new_line(table, NULL);
    char text[512];

    if (!line)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        job_text(job, fields[i], text, sizeof(text));
        if (scols_line_set_data(line, i, text) < 0)
            return -ENOMEM;
    }
    if (member_bool(job, "oversubscribed"))
        scols_line_set_color(line, "red");
    return 0;
}

int job_table_print(const json_t *jobs, const enum job_field *fields, size_t n)
{
    _cleanup_(unref_table) struct libscols_table *table = scols_new_table();
    const json_t *job;
    size_t i;

    if (!table)
        return -ENOMEM;
    cli_locale();
    scols_table_enable_colors(table, cli_color());
    for (i = 0; i < n; i++)
        if (!new_column(table, fields[i]))
            return -ENOMEM;
    json_array_foreach (jobs, i, job)
        if (fill_line(table, job, fields, n) < 0)
            return -ENOMEM;
    return scols_print_table(table) < 0 ? -ENOMEM : 0;
}

int job_table_members(const json_t *jobs, const char *key)
{
    const json_t *job;
    size_t i;

    json_array_foreach (jobs, i, job)
        printf("%s\n", member_text(job, key));
    return CLI_OK;
}
