/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record of past jobs, their times, cores and threads: a SQLite file, history.db. It is for
 * people, never the truth: the daemon reads it to answer queries and for nothing else, and goes on
 * without it when it cannot be written.
 *
 * Rows are queued in memory and written in batches when there is time. A file that is found to be
 * damaged is moved aside (history.db.corrupt) and a new one begun. Bounded in rows and bytes: the
 * oldest rows go first. Nothing waits for the disk. The daemon holds the file for itself (SQLite's
 * exclusive locking): no shared memory file that somebody could truncate under it, and a second
 * daemon on the same file has no history.
 *
 * Daemon's event loop only; fed by chronicle.c, asked by routes.c.
 */
#pragma once

#include "daemon/job/job.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define HISTORY_FILE        "history.db"
#define HISTORY_STATE_DIR   "/var/lib/tide" /* the system daemon's */
#define HISTORY_ROWS_MAX    100000          /* in each table */
#define HISTORY_MIB_STD     64              /* size of the file */
#define HISTORY_MIB_MAX     1024
#define HISTORY_QUEUE_MAX   4096 /* rows that wait to be written; further ones are dropped */
#define HISTORY_QUEUE_JOBS  1024 /* of these, kept for jobs: one that changes often hides no end */
#define HISTORY_WRITE_NS    1000000000ull  /* shortest time between two batches */
#define HISTORY_RETRY_NS    60000000000ull /* after a failure */
#define HISTORY_COMMAND_MAX 256
#define HISTORY_LIMIT_MAX   1000 /* jobs in an answer … */
#define HISTORY_LIMIT_STD   50
#define HISTORY_SHOWN_MAX   8000 /* … and allocations of them all; each has some at least */

struct history;
struct history_search;

/*
 * A job for ever: ids begin anew with a new directory, but not in the same millisecond, and both
 * survive a daemon that is started again.
 */
struct history_key {
    uint64_t submitted_ms; /* CLOCK_REALTIME, as all times here */
    uint32_t number;       /* number in the id */
};

struct history_job {
    struct history_key key;
    uint64_t begun_ms, ended_ms; /* 0: not yet */
    uint64_t run_ms, wait_ms;
    struct attributes asked;
    uid_t uid;
    int exit; /* -1: not known */
    bool container;
    bool cancelled;
    bool oom; /* the kernel killed a process of the job for want of memory */
    char name[PROTO_NAME_MAX];
    char owner[PROTO_SHORT_MAX];
    char command[HISTORY_COMMAND_MAX]; /* or image */
};

struct history_allocation {
    struct history_key key;
    uint64_t time_ms;
    uint32_t threads;
    char cores[JOB_CORES_MAX];
    char reason[JOB_REASON_MAX];
};

struct history_rate {
    struct history_key key;
    uint64_t time_ms, done, total;
    double rate; /* units/s */
    uint32_t threads;
    char unit[PROTO_SHORT_MAX];
};

/*
 * Opens or makes HISTORY_FILE in @dir (mode 0600), which grows to @mib (1 … HISTORY_MIB_MAX) at
 * most. A file that cannot be opened is logged, and tried again later: the only failure is -ENOMEM.
 */
int history_new(const char *dir, uint32_t mib, struct history **ret);
struct history *history_free(struct history *h); /* writes what waits; takes NULL, returns NULL */

/* Queues a row: adds a new one, or updates the row of a known job. @h may be NULL. */
void history_job(struct history *h, const struct history_job *job);
void history_allocation(struct history *h, const struct history_allocation *allocation);
void history_rate(struct history *h, const struct history_rate *rate);

/*
 * Writes the queued rows if the last batch is HISTORY_WRITE_NS old; with @at_once always, even
 * right after a failure. @h may be NULL.
 */
void history_write(struct history *h, bool at_once);

/* Changes with each new file; the jobs that run are then written into that one. */
unsigned history_made(const struct history *h);

uint64_t history_dropped(const struct history *h); /* rows that were never written */

struct history_filter {
    const char *job; /* a name or id; NULL: all */
    bool all;        /* jobs of every user, else those of @uid */
    uid_t uid;
    uint64_t since_ms; /* leaves out jobs that had ended by then */
    uint64_t until_ms; /* … or were not there yet, and what they had from then on; 0: none */
    uint32_t limit;    /* 1 … HISTORY_LIMIT_MAX */
};

/*
 * The jobs that match, newest first, each with its allocations, or the newest ones and `cut`. A
 * search is made of steps, since a file can have many rows that do not match; jobs that are written
 * meanwhile may be missed. Returns 0, -ENODATA (*err: why there is no history) or -ENOMEM. @h may
 * be NULL, and outlives the search otherwise.
 */
int history_search_new(struct history *h, const struct history_filter *filter,
                       struct history_search **ret, struct error *err);
struct history_search *history_search_free(struct history_search *q); /* takes NULL, returns NULL */

/*
 * One step, until @until_ns of the monotonic clock and a row at least. Returns 0 with a new
 * reference to a JSON array, 1 (to be called again), or -ENODATA (*err: why there is none now).
 */
int history_search_go(struct history_search *q, uint64_t until_ns, json_t **ret, struct error *err);

/* For tests: the statements that turn version K of the schema into version K+1. */
extern const char *const history_steps[];
extern const unsigned history_version; /* the newest */
