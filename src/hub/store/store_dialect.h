/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's interface to SQLite and PostgreSQL, and the SQL that both understand.
 * Private to this room: store.c, sums.c and questions.c ask through struct db, sqlite.c and
 * postgres.c answer.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum statement {
    FIND_POINT,
    ADD_POINT,
    SET_POINT,
    COUNT_POINTS,
    FIND_BOOT,
    KEEP_BOOT,
    DROP_BOOTS,
    ADD_SAMPLE,
    ADD_DAY,
    GET_NOTE,
    SET_NOTE,
    NTH_SAMPLE,
    SUM_UP,
    DROP_SAMPLES,
    DROP_DAYS,
    NEWEST_SAMPLE,
    CLEAR_DAY,
    FILL_DAY,
    DROP_USER_SAMPLES,
    DROP_USER_DAYS,
    DROP_USER_BOOTS,
    DROP_USERS,
    SERIES,
    POINTS,
    BY_UNIT,
    BY_USER,
    BY_DAY,
    CLEAR_COUNTED,
    ADD_COUNTED,
    ADD_NEWS,
    DROP_NEWS,
    NEWEST_BATCH,
    NUMBER_NEWS,
    NEWS,
    ERASE_SAMPLES,
    ERASE_DAYS,
    ERASE_BOOTS,
    ERASE_POINTS,
    HIDE_POINTS,
    SHOW_POINT,
    STATEMENT_MAX
};

/* $1, $2, … are texts first, then numbers. */
struct statement_text {
    const char *sql;
    unsigned texts;
    bool one; /* changes exactly one row, or somebody else has changed the store meanwhile */
};
extern const struct statement_text statement_text[STATEMENT_MAX];

struct values {
    unsigned texts, numbers;
    const char *text[3]; /* NULL: no value */
    int64_t number[10];
};

/* One statement with rows at a time. */
struct db {
    const struct db_dialect *dialect;
};

/*
 * All return 0 or -errno: -ENOTCONN (the connection is lost), -ESTALE (a statement that changes one
 * row changed none), -ENOSPC, -EBADMSG, ….
 */
struct db_dialect {
    const char *const *steps;
    int (*version)(struct db *db, int64_t *ret);
    int (*set_version)(struct db *db, int64_t version); /* within the step's transaction */
    int (*run)(struct db *db, const char *sql);         /* several statements without rows */
    int (*prepare)(struct db *db);                      /* of a schema that is up to date */
    void (*close)(struct db *db);                       /* takes what open gave */

    int (*begin)(struct db *db);
    int (*commit)(struct db *db);
    void (*rollback)(struct db *db);

    /* A statement without rows. Its failure may come as late as with the commit. */
    int (*write)(struct db *db, enum statement which, const struct values *v);
    /* Rows changed by the last write(), which is carried out now. */
    int (*changed)(struct db *db, int64_t *ret);

    /* Its texts stay where they are until end(). */
    int (*ask)(struct db *db, enum statement which, const struct values *v);
    int (*next)(struct db *db); /* 1: a row, 0: no more */
    int64_t (*number)(struct db *db, int column);
    const char *(*text)(struct db *db, int column); /* until next() */
    void (*end)(struct db *db);                     /* of a statement with rows; keeps errno */

    const char *(*problem)(struct db *db); /* of the last failure, in words */
};

/* The table of a file in which a function for each member has the member's name. */
#define DB_DIALECT(its_steps, closes)                                                              \
    {                                                                                              \
        .steps = (its_steps), .version = version, .set_version = set_version, .run = run,          \
        .prepare = prepare, .close = (closes), .begin = begin, .commit = commit,                   \
        .rollback = rollback, .write = do_write, .changed = changed, .ask = ask, .next = next,     \
        .number = number, .text = text, .end = end, .problem = problem                             \
    }

int sqlite_store_open(const char *path, struct db **ret, struct error *err);
int postgres_store_open(const char *where, struct db **ret, struct error *err);
