/* SPDX-License-Identifier: Apache-2.0 */
/* The common part of the formats of traces: reading lines, and naming the place of a fault. */
#include "sim/input/trace.h"

#include "base/cleanup.h"

#include <stdarg.h>
#include <string.h>

#define ERROR_WORD "bad-scenario"

#define NAME_SHOWN 64 /* last bytes of the file's name that a message shows */

void trace_init(struct trace *trace, FILE *file, const char *name, const struct job_spec *defaults)
{
    *trace = (struct trace){.file = file, .name = name, .defaults = defaults};
}

void trace_done(struct trace *trace)
{
    if (trace->file)
        fclose(trace->file);
    trace->file = NULL;
}

int trace_error(const struct trace *trace, int code, struct error *err, const char *fmt, ...)
{
    size_t length = strlen(trace->name);
    const char *name = length > NAME_SHOWN ? trace->name + length - NAME_SHOWN : trace->name;
    char text[ERROR_TEXT_MAX];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return error_set(err, code, "%s%s:%lu: %s", name > trace->name ? "…" : "", name, trace->line,
                     text);
}

int trace_read_line(struct trace *trace, struct error *err)
{
    size_t length = 0;
    int c;

    trace->line++;
    while ((c = getc_unlocked(trace->file)) != EOF && c != '\n') {
        if (c == '\0')
            return trace_error(trace, -EINVAL, err, "holds a NUL byte: it is not a text file");
        if (length > TRACE_LINE_MAX)
            return trace_error(trace, -EINVAL, err, "the line is longer than %d bytes",
                               TRACE_LINE_MAX);
        trace->text[length++] = (char)c;
    }
    if (c == EOF && ferror(trace->file))
        return trace_error(trace, -EIO, err, "cannot be read: %s", strerror(errno));
    if (length > 0 && trace->text[length - 1] == '\r')
        length--;
    trace->text[length] = '\0';
    return c != EOF || length > 0;
}

int trace_job(struct trace *trace, const struct job_spec *spec, const struct job_context *context,
              struct sim_job *ret_job, struct error *err)
{
    struct error reason;
    struct sim_job job;
    int r = job_spec_resolve(spec, context, &job, &reason);

    if (r < 0)
        return trace_error(trace, r, err, "%s", reason.text);
    if (job.arrival_ns < trace->arrival_ns)
        return trace_error(trace, -EINVAL, err,
                           "arrival: is before that of the job above; sort the file by it");
    trace->arrival_ns = job.arrival_ns;
    *ret_job = job;
    return 1;
}
