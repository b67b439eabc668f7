/* SPDX-License-Identifier: Apache-2.0 */
/* A store for a test: a file of SQLite, or a database of the server that TIDE_TEST_POSTGRES names.
 */
#pragma once

#include "base/cleanup.h"
#include "hub/store/store.h"

#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#ifdef HAVE_POSTGRES
#include <libpq-fe.h>
#endif

#define NOON    INT64_C(1795435200000) /* 2026-11-23 12:00 UTC */
#define STEPS   4096
#define FOREVER UINT64_C(1000000000000)

static char dir[64], path[256];
static const char *server; /* PostgreSQL's address; NULL: the tests are SQLite's */
static struct error err;
static struct store_put done;

static inline int remove_one(const char *name, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(name);
}

static inline void execute_sqlite(const char *sql)
{
    sqlite3 *db;
    char *said = NULL;

    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &said) != SQLITE_OK)
        fail_msg("%s", said);
    sqlite3_close(db);
}

static inline void execute(const char *sql)
{
#ifdef HAVE_POSTGRES
    if (server) {
        PGconn *c = PQconnectdb(server);
        PGresult *r = PQexec(c, sql);

        if (PQresultStatus(r) != PGRES_COMMAND_OK && PQresultStatus(r) != PGRES_TUPLES_OK)
            fail_msg("%s", PQerrorMessage(c));
        PQclear(r);
        PQfinish(c);
        return;
    }
#endif
    execute_sqlite(sql);
}

/* An empty store. */
static inline void begin_anew(void)
{
    if (server)
        execute("SET client_min_messages = error; DROP SCHEMA public CASCADE;"
                " CREATE SCHEMA public");
    else
        unlink(path);
}

static inline int set_up(void **state)
{
    /* In memory: each transaction is synced, and a disk of a busy machine takes its time. */
    strcpy(dir,
           access("/dev/shm", W_OK) == 0 ? "/dev/shm/tide-store-XXXXXX" : "/tmp/tide-store-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/hub.db", dir);
    if (server)
        snprintf(path, sizeof(path), "%s", server);
    begin_anew();
    return 0;
}

static inline int tear_down(void **state)
{
    return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static inline struct store *opened(void)
{
    struct store *s = NULL;

    if (store_open(path, &s, &err) < 0)
        fail_msg("%s", err.text);
    return s;
}

/* The record of a point that has used @uj since the boot, a tenth more or less, at @second. */
static inline struct outbox_record record(const char *point, uint64_t boot, uint64_t seq,
                                          int second, uint64_t uj)
{
    struct outbox_record r = {.boot = boot,
                              .seq = seq,
                              .from_ms = (uint64_t)(NOON + second * 1000 - 1000),
                              .to_ms = (uint64_t)(NOON + second * 1000),
                              .total = {uj, uj - uj / 10, uj + uj / 10, POWER_MEASURED}};

    snprintf(r.point, sizeof(r.point), "%s", point);
    return r;
}

static inline void put(struct store *s, const char *unit, const struct outbox_record *r, size_t n)
{
    if (store_put(s, unit, r, n, &done, &err) < 0)
        fail_msg("%s", err.text);
}

static struct store_stretch stretches[STEPS];

static inline size_t series(struct store *s, const char *point, int from, int to, int step)
{
    size_t n = 0;

    if (store_series(s, "lab3", point, NOON + from * 1000, NOON + to * 1000, step * 1000, stretches,
                     STEPS, &n, &err) < 0)
        fail_msg("%s", err.text);
    return n;
}

static inline struct energy_range sum_of(struct store *s, const char *point)
{
    struct energy_range sum = {.basis = POWER_MEASURED};
    size_t n = series(s, point, -1000000, 1000000, 1000);

    for (size_t i = 0; i < n; i++)
        energy_add(&sum, &stretches[i].energy);
    return sum;
}

static inline bool count_points(void *arg, const struct store_point *p)
{
    ++*(int *)arg;
    return true;
}

#define DAY_MS INT64_C(86400000)

static struct store_total totals[64];
static size_t n_totals;
static struct store_span span;

static inline bool keep_total(void *arg, const struct store_total *t)
{
    assert_true(n_totals < ARRAY_LEN(totals));
    totals[n_totals++] = *t;
    return true;
}

static inline void ask(struct store *s, enum store_by by, int64_t from_ms, int64_t to_ms,
                       const char *user)
{
    struct store_question q = {.by = by, .from_ms = from_ms, .to_ms = to_ms, .user = user};

    n_totals = 0;
    if (store_totals(s, &q, &span, keep_total, NULL, &err) < 0)
        fail_msg("%s", err.text);
}

static inline uint64_t uj(const struct store_amount *a)
{
    return a->j * 1000000 + a->uj;
}

static inline struct outbox_record stretch(const char *point, uint64_t seq, int64_t from_ms,
                                           int64_t to_ms, uint64_t total)
{
    struct outbox_record r = record(point, 7, seq, 1, total);

    r.from_ms = (uint64_t)from_ms;
    r.to_ms = (uint64_t)to_ms;
    return r;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
