/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The history of energy: a SQLite file, energy.db, with a row for each quarter of an hour and job,
 * and for each quarter and part of the machine. It is for people, never the truth: the daemon goes
 * on without it when it cannot be written, and tries again a minute later or when it is asked. Rows
 * of the present quarter grow once a minute. Nothing waits for the disk. A damaged file is moved
 * aside. Rows older than a year go, the oldest jobs' also beyond ENERGY_ROWS_MAX.
 *
 * Daemon's event loop only; written by daemon.c's tick and when a job goes, asked by
 * routes_power.c.
 */
#pragma once

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define ENERGY_HISTORY_FILE "energy.db"
#define ENERGY_STEP_S       900
#define ENERGY_WRITE_NS     UINT64_C(60000000000)
#define ENERGY_KEEP_S       (366 * UINT64_C(86400))
#define ENERGY_ROWS_MAX     100000             /* of jobs */
#define ENERGY_ANSWER_MAX   1000               /* rows of an answer */
#define ENERGY_QUERY_NS     UINT64_C(50000000) /* a query that takes longer is given up */

struct daemon;
struct energy_history;
struct job_observer;

extern const struct job_observer energy_history_observer;

/* Opens or makes the file in @dir. A file that cannot be opened is logged; 0 or -ENOMEM. */
int energy_history_new(struct daemon *d, const char *dir, struct energy_history **ret);
struct energy_history *energy_history_free(struct energy_history *h); /* takes NULL, returns NULL */

/*
 * Writes what was used since the last time, once a minute; @now: at once, for a caller who may see
 * that (meter_tell()). @d may have none.
 */
void energy_history_tick(struct daemon *d, bool now);

enum energy_by { ENERGY_BY_JOB, ENERGY_BY_USER, ENERGY_BY_PART, ENERGY_BY_DAY, ENERGY_BY_MAX };

struct energy_query {
    enum energy_by by;
    uint64_t since_s, until_s; /* since 1970; quarters that begin in between */
    const char *job;           /* only jobs of this name or id; NULL: all */
    bool all;                  /* jobs of every user, else those of @uid */
    uid_t uid;
};

/*
 * The sums, as rows {"key","name","owner","uj","low_uj","high_uj","basis","gap_ms"}, the largest
 * first, days in order. Returns 0, -ENODATA (no file now) or -ETIME (too many rows), with *err.
 */
int energy_history_query(struct energy_history *h, const struct energy_query *q, json_t **ret,
                         struct error *err);

const char *energy_by_name(enum energy_by by); /* "job"; NULL for another number */
