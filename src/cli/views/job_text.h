/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One job of the daemon's answer as texts, field by field: the columns of `tide ps`, `tide queue`
 * and `tide top`. Any thread, pure.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum job_field {
    JOB_MACHINE, /* `tide fleet ps` says which one it is */
    JOB_ID,
    JOB_NAME,
    JOB_OWNER,
    JOB_STATE,
    JOB_PIDS,  /* the first, and how many more: "17 +3" */
    JOB_CORES, /* "0-3" */
    JOB_ALLOWED,
    JOB_TARGET, /* with a "!" behind it when oversubscribed */
    JOB_ACTIVE,
    JOB_MAX,
    JOB_PROGRESS, /* "120/500 steps"; "waits 3min20s" before the job has begun */
    JOB_RATE,     /* "12.3/s" */
    JOB_REASON,
    JOB_PRIORITY,
    JOB_REQUEST, /* cores */
    JOB_WAITED,  /* "3min20s" */
    JOB_PLACE,   /* in the queue, from 1 */
    JOB_MEMORY,  /* memory that the daemon counts for it: "1.5G" */
    JOB_POWER,   /* "12.3 W"; "-" also for a job whose watts are not the caller's to see */
    JOB_ENERGY,  /* "4.21 Wh" */
    JOB_BETWEEN, /* its bounds: "4.1 to 4.9 Wh" */
    JOB_BASIS,   /* how that is known: "modelled" */
    JOB_FIELD_MAX
};

/* Returns the column's heading, in capitals. */
const char *job_field_title(enum job_field field);

/* True for numbers, which are aligned at the right. */
bool job_field_right(enum job_field field);

/* Writes the field's text, "-" for an unknown value; cut to @size. */
void job_text(const json_t *job, enum job_field field, char *buf, size_t size);

/* The runtime whose calls are taken for the requests of a job's "latency"; NULL: its program tells
 * them, or there are none. */
const char *job_text_calls(const json_t *latency);

/* True if the job was submitted and has not begun: it has no threads yet. */
bool job_text_waits(const json_t *job);

/* Writes a duration as the command line takes it: "45s", "3min20s", "2h5min", "1d3h". */
void job_text_duration(double seconds, char *buf, size_t size);

/* Writes a time of the daemon's as local time: "2026-01-31 18:30:00", "-" for 0. */
void job_text_time(double seconds, char *buf, size_t size);

/* Writes the daemon's answer to a change: "2 → 1 thread", "stays at 2 threads", "automatic". */
void job_text_change(const json_t *answer, char *buf, size_t size);

/* Writes "shared, weight 100, max 4": the attributes that are numbers, those that are 0 left out.
 */
#define JOB_TERMS_MAX 256
void job_text_terms(const json_t *job, char *buf, size_t size);

/*
 * Writes "keeps 2 cores: feeds nvidia0, nvidia1"; empty for a job that holds no device. Cut to
 * @size. Returns @buf.
 */
#define JOB_DEVICES_MAX 320
const char *job_text_devices(const json_t *job, char *buf, size_t size);

/*
 * Writes the apportionment: "3 python 4711 (uses 2.9) + 1 python 4712 (uses 0)"; empty with one
 * process. Cut to @size.
 */
void job_text_split(const json_t *job, char *buf, size_t size);
