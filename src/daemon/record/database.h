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
#define DATABASE_WAL_PAGES  128 /* copied in one checkpoint: about a millisecond of the loop */

/* How a file is made. */
struct database_form {
    const char *const *steps; /* statements that turn version K of the schema into K+1 */
    unsigned version;         /* number of steps */
    const char *const *text;  /* of the statements that are prepared */
    unsigned statements;
    int cache_kib;
};

/* Its owner sets all but the first three. */
struct database {
    sqlite3 *db;         /* NULL: not open */
    const char *refusal; /* why we, not SQLite, refuse to open it */
    unsigned made;       /* how often its schema was made anew */
    const struct database_form *form;
    sqlite3_stmt **statement; /* room for the prepared ones */
    int pages_max, journal_pages;
    char path[PATH_MAX];
};

/*
 * Opens or makes the file and prepares the statements. Returns an SQLite code; a file that a newer
 * version of tided wrote is left alone. After a failure it may be open: database_close().
 */
int database_open(struct database *d);
void database_close(struct database *d);

/* Whether an operation failed in a way that a later attempt would meet again. */
bool database_is_damage(int code);
void database_move_aside(struct database *d); /* closes it */

/* The failure @code for a person. */
const char *database_why(const struct database *d, int code);

int database_run(struct database *d, const char *sql);

/* Runs a prepared statement without rows and resets it. Returns an SQLite code. */
int database_finish(sqlite3_stmt *s);

/*
 * The two below are for a file with settings of its own. Opens or makes the plain file @path of
 * this user. Returns an SQLite code, SQLITE_CANTOPEN with *ret_errno above 0 where it is none.
 */
int database_open_file(const char *path, sqlite3 **ret, int *ret_errno);
void database_rename_aside(const char *path);
