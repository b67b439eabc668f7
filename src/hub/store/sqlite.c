/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/store/schema.h"
#include "hub/store/store_dialect.h"

#include "base/cleanup.h"
#include "edge/sqlite_errno.h"

#include <errno.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "store-failed"

#define SQL_MAX 2048

struct sqlite {
    struct db db;
    sqlite3 *file;
    sqlite3_stmt *statement[STATEMENT_MAX];
    sqlite3_stmt *asked; /* its rows are read */
};

static struct sqlite *of(struct db *db)
{
    return (struct sqlite *)db; /* its first member */
}

static int run(struct db *db, const char *sql)
{
    return sqlite_errno(sqlite3_exec(of(db)->file, sql, NULL, NULL, NULL));
}

static int version(struct db *db, int64_t *ret)
{
    sqlite3_stmt *q;
    int rc = sqlite3_prepare_v2(of(db)->file, "PRAGMA user_version", -1, &q, NULL);

    if (rc != SQLITE_OK)
        return sqlite_errno(rc);
    rc = sqlite3_step(q);
    if (rc == SQLITE_ROW)
        *ret = sqlite3_column_int64(q, 0);
    sqlite3_finalize(q);
    return rc == SQLITE_ROW ? 0 : sqlite_errno(rc);
}

static int set_version(struct db *db, int64_t number)
{
    char text[64];

    snprintf(text, sizeof(text), "PRAGMA user_version = %" PRId64, number);
    return run(db, text);
}

/* PostgreSQL's $1 is SQLite's ?1. */
static int prepare(struct db *db)
{
    struct sqlite *s = of(db);
    int r = 0;

    for (int i = 0; r == 0 && i < STATEMENT_MAX; i++) {
        char sql[SQL_MAX];
        size_t n = strlen(statement_text[i].sql) + 1;

        if (n > sizeof(sql))
            return -ENAMETOOLONG;
        for (size_t k = 0; k < n; k++)
            sql[k] = statement_text[i].sql[k] == '$' ? '?' : statement_text[i].sql[k];
        r = sqlite_errno(sqlite3_prepare_v3(s->file, sql, -1, SQLITE_PREPARE_PERSISTENT,
                                            &s->statement[i], NULL));
    }
    return r;
}

static void close_file(struct db *db)
{
    struct sqlite *s = of(db);

    for (int i = 0; i < STATEMENT_MAX; i++)
        sqlite3_finalize(s->statement[i]);
    sqlite3_close(s->file);
    free(s);
}

/* ---- statements ---- */

static int begin(struct db *db)
{
    return run(db, "BEGIN IMMEDIATE");
}

static int commit(struct db *db)
{
    return run(db, "COMMIT");
}

static void rollback(struct db *db)
{
    run(db, "ROLLBACK");
}

static sqlite3_stmt *bound(struct db *db, enum statement which, const struct values *v)
{
    sqlite3_stmt *q = of(db)->statement[which];

    for (unsigned i = 0; i < v->texts; i++)
        if (v->text[i])
            sqlite3_bind_text(q, (int)i + 1, v->text[i], -1, SQLITE_STATIC);
    for (unsigned i = 0; i < v->numbers; i++)
        sqlite3_bind_int64(q, (int)(v->texts + i) + 1, v->number[i]);
    return q;
}

static int finish(sqlite3_stmt *q, int rc)
{
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    return sqlite_errno(rc);
}

static int do_write(struct db *db, enum statement which, const struct values *v)
{
    sqlite3_stmt *q = bound(db, which, v);
    int r = finish(q, sqlite3_step(q));

    if (r == 0 && statement_text[which].one && sqlite3_changes(of(db)->file) != 1)
        return -ESTALE;
    return r;
}

static int changed(struct db *db, int64_t *ret)
{
    *ret = sqlite3_changes(of(db)->file);
    return 0;
}

static int ask(struct db *db, enum statement which, const struct values *v)
{
    of(db)->asked = bound(db, which, v);
    return 0;
}

static int next(struct db *db)
{
    int rc = sqlite3_step(of(db)->asked);

    return rc == SQLITE_ROW ? 1 : sqlite_errno(rc);
}

static int64_t number(struct db *db, int column)
{
    return sqlite3_column_int64(of(db)->asked, column);
}

static const char *text(struct db *db, int column)
{
    const unsigned char *t = sqlite3_column_text(of(db)->asked, column);

    return t ? (const char *)t : "";
}

static void end(struct db *db)
{
    finish(of(db)->asked, SQLITE_OK);
    of(db)->asked = NULL;
}

static const char *problem(struct db *db)
{
    return sqlite3_errmsg(of(db)->file);
}

static const struct db_dialect dialect = DB_DIALECT(store_steps, close_file);

int sqlite_store_open(const char *path, struct db **ret, struct error *err)
{
    struct sqlite *s = calloc(1, sizeof(*s));
    int r;

    if (!s)
        return error_set(err, -ENOMEM, "out of memory");
    s->db.dialect = &dialect;
    r = sqlite_errno(sqlite3_open_v2(
        path, &s->file, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL));
    if (r == 0)
        sqlite3_busy_timeout(s->file, 1000);
    r = r ? r
          : run(&s->db, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
                        "PRAGMA cache_size = -32768");
    if (r < 0) {
        error_set(err, r, "%s: %s", path, s->file ? sqlite3_errmsg(s->file) : strerror(-r));
        close_file(&s->db);
        return r;
    }
    *ret = &s->db;
    return 0;
}
