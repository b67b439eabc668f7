/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs from a file, read line by line as the simulation goes: CSV whose header names the fields of
 * a job (csv.c), and the Standard Workload Format of the Parallel Workloads Archive (swf.c). Memory
 * is that of one line. A trace belongs to one thread; used by source.c.
 */
#pragma once

#include "sim/input/jobspec.h"

#include <stdio.h>

#define TRACE_LINE_MAX    4096
#define TRACE_COLUMNS_MAX 64

struct trace {
    FILE *file;                             /* owned */
    const char *name;                       /* of the file, for messages; borrowed */
    const struct job_spec *defaults;        /* fields that the trace leaves unset; borrowed */
    unsigned long line;                     /* number of the line in `text`, from 1 */
    char text[TRACE_LINE_MAX + 2];          /* with the newline, and NUL */
    uint64_t arrival_ns;                    /* arrival of the last job */
    enum job_key column[TRACE_COLUMNS_MAX]; /* CSV: the field of each column */
    size_t column_count;                    /* 0: the header is not read yet */
};

void trace_init(struct trace *trace, FILE *file, const char *name, const struct job_spec *defaults);
void trace_done(struct trace *trace); /* also of one that is all zeroes */

/* The next job; the caller sets its id. 1, 0 at the end, or -errno with file, line and field. */
int csv_next(struct trace *trace, const struct job_context *context, struct sim_job *ret_job,
             struct error *err);
int swf_next(struct trace *trace, const struct job_context *context, struct sim_job *ret_job,
             struct error *err);

/* ---- for the formats ------------------------------------------------------------------------- */

/*
 * Reads the next line into trace->text, without its end. 1, 0 at the end of the file, or -errno
 * with the reason: it cannot be read, is too long, or holds a NUL.
 */
int trace_read_line(struct trace *trace, struct error *err);

/* Writes "FILE:LINE: text" to *err; returns @code. */
__attribute__((format(printf, 4, 5))) int trace_error(const struct trace *trace, int code,
                                                      struct error *err, const char *fmt, ...);

/* Makes the job of the present line, which must not arrive before the last one. 1 or -errno. */
int trace_job(struct trace *trace, const struct job_spec *spec, const struct job_context *context,
              struct sim_job *ret_job, struct error *err);
