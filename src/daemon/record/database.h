/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A SQLite file of the daemon's: readable by its owner alone, held for itself (exclusive locking,
 * no shared memory), with a schema that is upgraded when it is opened. Nothing waits for the disk:
 * the write-ahead log keeps the file whole when the daemon is killed, and a file that a power
 * failure breaks is found damaged, moved aside (FILE.corrupt) and replaced.
 *
 * Daemon's event loop only; used by this room.
 */
#pragma once

#include <limits.h>
#include <sqlite3.h>
#include <stdbool.h>

#define DATABASE_PAGE_BYTES 4096

struct database {
    sqlite3 *db;         /* NULL: not open */
    const char *refusal; /* why we, not SQLite, refuse to open it */
    char path[PATH_MAX];
};

/* Statements that turn version K of the schema into version K+1. */
struct database_steps {
    const char *const *sql;
    unsigned n;
};

/*
 * Opens or makes the file, at most @pages_max pages large. Returns an SQLite code; a file that a
 * newer version of tided wrote is left alone. A damaged file is moved aside and replaced once, and
 * *ret_aside, which may be set already, is then true.
 */
int database_open(struct database *d, struct database_steps steps, int pages_max, bool *ret_aside);
void database_close(struct database *d); /* its statements have been finalized */

/* Whether an operation failed in a way that a later attempt would meet again. */
bool database_is_damage(int code);
void database_move_aside(struct database *d); /* closes it */

/* The failure @code for a person. */
const char *database_why(const struct database *d, int code);

int database_run(struct database *d, const char *sql);
