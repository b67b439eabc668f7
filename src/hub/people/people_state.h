/* SPDX-License-Identifier: Apache-2.0 */
/* The file of people, its schema and its statements. Private to this room. */
#pragma once

#include "hub/people/guess.h"
#include "hub/people/people.h"

#include <sqlite3.h>

struct people {
    sqlite3 *db;
    struct people_options options;
    struct guess guess;
};

/*
 * A statement with its values: 's' a text (NULL: null), 'i' an int64_t. Returns NULL if it cannot
 * be prepared, which people_said() explains.
 */
sqlite3_stmt *people_query(struct people *p, const char *sql, const char *types, ...);

/* Carries out a statement without rows, and ends it. Returns the changed rows, or -errno. */
int people_change(struct people *p, sqlite3_stmt *q);

/* The one number that a statement answers, or @otherwise; ends it. */
int64_t people_number(sqlite3_stmt *q, int64_t otherwise);

/* Ends a statement whose rows were read up to @rc. Returns 0 or -errno. */
int people_finish(sqlite3_stmt *q, int rc);

/* Sets *err for @r below 0, and returns it. */
int people_said(struct people *p, int r, const char *doing, struct error *err);

void people_text(sqlite3_stmt *q, int column, char *ret, size_t size);
