/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comma-separated values as of RFC 4180, without line breaks inside of quotes. The first line names
 * the columns; an empty cell leaves its field unset.
 */
#include "sim/input/trace.h"

#include "base/suggest.h"

#include <errno.h>
#include <string.h>

#define BOM "\xef\xbb\xbf"

/*
 * Cuts the first cell off *rest, which becomes NULL after the last one. Removes quotes in place.
 * NULL: a quote does not end, or text follows it.
 */
static char *cut_cell(char **rest)
{
    char *cell = *rest, *in = cell, *out = cell;

    if (*in != '"') {
        in += strcspn(in, ",");
        *rest = *in ? in + 1 : NULL;
        *in = '\0';
        return cell;
    }
    for (in++; *in; in++) {
        if (*in == '"' && *++in != '"')
            break;
        *out++ = *in;
    }
    if (in[-1] != '"' || (*in && *in != ','))
        return NULL;
    *rest = *in ? in + 1 : NULL;
    *out = '\0';
    return cell;
}

static int add_column(struct trace *trace, const char *name, struct error *err)
{
    const char *names[JOB_KEY_MAX], *near;
    int key = job_key_find(name);

    for (int k = 0; k < JOB_KEY_MAX; k++)
        names[k] = job_key_name(k);
    near = suggest_nearest(name, names, JOB_KEY_MAX);
    if (key < 0)
        return trace_error(trace, -EINVAL, err, "there is no column '%.40s'%s%s%s", name,
                           near ? ": did you mean '" : "", near ? near : "", near ? "'?" : "");
    for (size_t i = 0; i < trace->column_count; i++)
        if (trace->column[i] == (enum job_key)key)
            return trace_error(trace, -EINVAL, err, "column %s is there twice", name);
    trace->column[trace->column_count++] = (enum job_key)key;
    return 0;
}

static int read_header(struct trace *trace, struct error *err)
{
    int r = trace_read_line(trace, err);
    char *rest = trace->text;

    if (r < 0)
        return r;
    if (r == 0)
        return trace_error(trace, -EINVAL, err, "is empty: the first line names the columns");
    if (strncmp(rest, BOM, strlen(BOM)) == 0)
        rest += strlen(BOM);
    while (rest) {
        const char *name = cut_cell(&rest);

        if (!name)
            return trace_error(trace, -EINVAL, err, "a quoted name does not end with \"");
        r = add_column(trace, name, err);
        if (r < 0)
            return r;
    }
    for (size_t i = 0; i < trace->column_count; i++)
        if (trace->column[i] == JOB_KEY_ARRIVAL)
            return 0;
    return trace_error(trace, -EINVAL, err, "there is no column arrival");
}

static int read_row(struct trace *trace, const struct job_context *context, struct job_spec *spec,
                    struct error *err)
{
    char *rest = trace->text, *cells[TRACE_COLUMNS_MAX];
    uint32_t own = 0;

    for (size_t i = 0; i < trace->column_count; i++) {
        cells[i] = rest ? cut_cell(&rest) : NULL;
        if (!cells[i])
            return trace_error(trace, -EINVAL, err,
                               "%s: the line ends before this column, or a "
                               "quoted cell does not end with \"",
                               job_key_name(trace->column[i]));
        own |= *cells[i] ? UINT32_C(1) << trace->column[i] : 0;
    }
    if (rest)
        return trace_error(trace, -EINVAL, err, "there are more cells than the header's %zu",
                           trace->column_count);
    job_spec_displace(spec, own);
    for (size_t i = 0; i < trace->column_count; i++) {
        struct error reason;
        int r = *cells[i] ? job_spec_set(spec, context, trace->column[i], cells[i], &reason) : 0;

        if (r < 0)
            return trace_error(trace, r, err, "%s: %s", job_key_name(trace->column[i]),
                               reason.text);
    }
    return 0;
}

int csv_next(struct trace *trace, const struct job_context *context, struct sim_job *ret_job,
             struct error *err)
{
    struct job_spec spec = *trace->defaults;
    int r = trace->column_count ? 0 : read_header(trace, err);

    if (r < 0)
        return r;
    do {
        r = trace_read_line(trace, err);
        if (r <= 0)
            return r;
    } while (trace->text[0] == '\0');
    r = read_row(trace, context, &spec, err);
    if (r < 0)
        return r;
    if (!job_spec_has(&spec, JOB_KEY_ARRIVAL))
        return trace_error(trace, -EINVAL, err, "arrival: is empty");
    if (!*spec.name)
        snprintf(spec.name, sizeof(spec.name), "line-%lu", trace->line);
    return trace_job(trace, &spec, context, ret_job, err);
}
