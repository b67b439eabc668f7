/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/store/schema.h"
#include "hub/store/store.h"

#include "base/cleanup.h"
#include "edge/sqlite_errno.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

enum { STEP_SECOND = 1, STEP_MINUTE = 60, STEP_QUARTER = 900 };

#define TIME_MAX_MS (INT64_C(1) << 45) /* the year 3084 */
#define ENERGY_MAX  (UINT64_C(1) << 62)

enum statement {
    FIND_POINT,
    ADD_POINT,
    SET_POINT,
    COUNT_POINTS,
    ADD_SAMPLE,
    OLD_SAMPLES,
    DROP_SAMPLE,
    SERIES,
    POINTS,
    ERASE_SAMPLES,
    ERASE_POINTS,
    STATEMENT_MAX
};

/* Rows that end at the same time (after a step of the clock) are added to each other. */
#define ADD_TO                                                                                     \
    " ON CONFLICT (step, point, to_ms) DO UPDATE SET from_ms = min(from_ms, excluded.from_ms),"    \
    " uj = uj + excluded.uj, low = low + excluded.low, high = high + excluded.high,"               \
    " basis = min(basis, excluded.basis), gap = gap + excluded.gap"
#define OF_UNIT "(SELECT id FROM point WHERE unit = ?1 AND (?2 IS NULL OR name = ?2))"

static const char *const statement_text[] = {
    [FIND_POINT] = "SELECT id, boot, seq, uj, low, high FROM point WHERE unit = ?1 AND name = ?2",
    [ADD_POINT] = "INSERT INTO point (unit, name, boot, seq, uj, low, high)"
                  " VALUES (?1, ?2, 0, 0, 0, 0, 0)",
    [SET_POINT] = "UPDATE point SET boot = ?2, seq = ?3, uj = ?4, low = ?5, high = ?6"
                  " WHERE id = ?1",
    [COUNT_POINTS] = "SELECT count(*) FROM point WHERE unit = ?1",
    [ADD_SAMPLE] = "INSERT INTO sample (step, point, to_ms, from_ms, uj, low, high, basis, gap)"
                   " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)" ADD_TO,
    [OLD_SAMPLES] = "SELECT point, to_ms, from_ms, uj, low, high, basis, gap FROM sample"
                    " WHERE step = ?1 AND to_ms <= ?2 ORDER BY to_ms LIMIT ?3",
    [DROP_SAMPLE] = "DELETE FROM sample WHERE step = ?1 AND point = ?2 AND to_ms = ?3",
    [SERIES] = "SELECT (to_ms - 1) / ?5, sum(uj), sum(low), sum(high), min(basis), sum(gap)"
               " FROM sample WHERE point = (SELECT id FROM point WHERE unit = ?1 AND name = ?2)"
               " AND step IN (1, 60, 900) AND to_ms > ?3 AND to_ms <= ?4"
               " GROUP BY 1 ORDER BY 1 LIMIT ?6",
    [POINTS] = "SELECT unit, name, min(from_ms), max(to_ms), sum(s.uj), sum(s.low), sum(s.high),"
               " min(basis), sum(gap) FROM point p JOIN sample s ON s.point = p.id"
               " AND s.step IN (1, 60, 900) GROUP BY p.id ORDER BY unit, name",
    [ERASE_SAMPLES] = "DELETE FROM sample WHERE point IN " OF_UNIT,
    [ERASE_POINTS] = "DELETE FROM point WHERE id IN " OF_UNIT,
};
static_assert(ARRAY_LEN(statement_text) == STATEMENT_MAX, "a statement without text");

struct store {
    sqlite3 *db;
    sqlite3_stmt *statement[STATEMENT_MAX];
};

/* ---- SQLite ---- */

static int said(struct store *s, int r, const char *doing, struct error *err)
{
    return r < 0 ? error_set(err, r, "cannot %s: %s", doing, s->db ? sqlite3_errmsg(s->db) : "")
                 : r;
}

static int run(struct store *s, const char *sql)
{
    return sqlite_errno(sqlite3_exec(s->db, sql, NULL, NULL, NULL));
}

/* Ends a statement whose rows are read, or that has none. */
static int finish(sqlite3_stmt *q, int rc)
{
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    return sqlite_errno(rc);
}

static int carry_out(sqlite3_stmt *q)
{
    return finish(q, sqlite3_step(q));
}

static void bind_text(sqlite3_stmt *q, int i, const char *text)
{
    sqlite3_bind_text(q, i, text, -1, SQLITE_STATIC);
}

static int upgrade(struct store *s)
{
    sqlite3_stmt *q;
    char text[64];
    int64_t version = -1;
    int r = 0;

    if (sqlite3_prepare_v2(s->db, "PRAGMA user_version", -1, &q, NULL) == SQLITE_OK &&
        sqlite3_step(q) == SQLITE_ROW)
        version = sqlite3_column_int64(q, 0);
    sqlite3_finalize(q);
    if (version < 0)
        return -EBADMSG;
    if (version > store_version)
        return -EPROTO;
    for (; r == 0 && version < store_version; version++) {
        snprintf(text, sizeof(text), "PRAGMA user_version = %" PRId64 "; COMMIT", version + 1);
        r = run(s, "BEGIN IMMEDIATE");
        r = r ? r : run(s, store_steps[version]);
        r = r ? r : run(s, text);
    }
    return r;
}

static int open_file(struct store *s, const char *path)
{
    int r = sqlite_errno(sqlite3_open_v2(
        path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL));

    if (r == 0)
        sqlite3_busy_timeout(s->db, 1000);
    r = r ? r : run(s, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL");
    r = r ? r : upgrade(s);
    for (int i = 0; r == 0 && i < STATEMENT_MAX; i++)
        r = sqlite_errno(sqlite3_prepare_v3(s->db, statement_text[i], -1, SQLITE_PREPARE_PERSISTENT,
                                            &s->statement[i], NULL));
    return r;
}

int store_open(const char *path, struct store **ret, struct error *err)
{
    struct store *s = calloc(1, sizeof(*s));
    int r;

    if (!s)
        return error_set(err, -ENOMEM, "out of memory");
    r = open_file(s, path);
    if (r == 0) {
        *ret = s;
        return 0;
    }
    error_set(err, r, "%s: %s", path,
              r == -EPROTO ? "a newer version of this program wrote it"
              : s->db      ? sqlite3_errmsg(s->db)
                           : strerror(-r));
    store_close(s);
    return r;
}

struct store *store_close(struct store *s)
{
    if (!s)
        return NULL;
    for (int i = 0; i < STATEMENT_MAX; i++)
        sqlite3_finalize(s->statement[i]);
    sqlite3_close(s->db);
    free(s);
    return NULL;
}

/* ---- records ---- */

struct known {
    int64_t id;
    uint64_t boot, seq;
    struct energy_range total;
};

static uint64_t column(sqlite3_stmt *q, int i)
{
    return (uint64_t)sqlite3_column_int64(q, i);
}

static int find(struct store *s, const char *unit, const char *point, struct known *ret)
{
    sqlite3_stmt *q = s->statement[FIND_POINT];
    int rc;

    bind_text(q, 1, unit);
    bind_text(q, 2, point);
    rc = sqlite3_step(q);
    if (rc == SQLITE_ROW)
        *ret =
            (struct known){(int64_t)column(q, 0),
                           column(q, 1),
                           column(q, 2),
                           {.uj = column(q, 3), .low_uj = column(q, 4), .high_uj = column(q, 5)}};
    finish(q, rc);
    return rc == SQLITE_ROW ? 0 : rc == SQLITE_DONE ? -ENOENT : sqlite_errno(rc);
}

static int add_point(struct store *s, const char *unit, const char *point, struct known *ret)
{
    sqlite3_stmt *q = s->statement[COUNT_POINTS];
    int64_t count = 0;
    int rc, r;

    bind_text(q, 1, unit);
    rc = sqlite3_step(q);
    if (rc == SQLITE_ROW)
        count = sqlite3_column_int64(q, 0);
    r = finish(q, rc);
    if (r < 0)
        return r;
    if (count >= STORE_POINTS_MAX)
        return -EUSERS;
    q = s->statement[ADD_POINT];
    bind_text(q, 1, unit);
    bind_text(q, 2, point);
    r = carry_out(q);
    *ret = (struct known){.id = sqlite3_last_insert_rowid(s->db)};
    return r;
}

static bool possible(const struct outbox_record *r)
{
    return r->to_ms > 0 && r->to_ms < TIME_MAX_MS && r->from_ms <= r->to_ms && r->seq > 0 &&
           r->seq <= INT64_MAX && r->boot <= INT64_MAX && r->total.high_uj < ENERGY_MAX &&
           r->total.low_uj <= r->total.uj && r->total.uj <= r->total.high_uj &&
           r->total.basis < POWER_BASIS_MAX;
}

static int add_sample(struct store *s, int step, int64_t point, int64_t to_ms, int64_t from_ms,
                      const struct energy_range *e, int64_t gap_ms)
{
    sqlite3_stmt *q = s->statement[ADD_SAMPLE];
    const int64_t values[] = {
        step,     point, to_ms, from_ms, (int64_t)e->uj, (int64_t)e->low_uj, (int64_t)e->high_uj,
        e->basis, gap_ms};

    for (int i = 0; i < (int)ARRAY_LEN(values); i++)
        sqlite3_bind_int64(q, i + 1, values[i]);
    return carry_out(q);
}

static int set_point(struct store *s, int64_t id, const struct outbox_record *r)
{
    sqlite3_stmt *q = s->statement[SET_POINT];
    const uint64_t values[] = {(uint64_t)id, r->boot,         r->seq,
                               r->total.uj,  r->total.low_uj, r->total.high_uj};

    for (int i = 0; i < (int)ARRAY_LEN(values); i++)
        sqlite3_bind_int64(q, i + 1, (int64_t)values[i]);
    return carry_out(q);
}

/* The energy since the newest record that is known. What was never sent is in the difference. */
static int put_one(struct store *s, const char *unit, const struct outbox_record *r,
                   struct store_put *ret)
{
    struct energy_range since = r->total;
    struct known known = {0};
    int k = possible(r) ? find(s, unit, r->point, &known) : -EINVAL;

    if (k == -ENOENT)
        k = add_point(s, unit, r->point, &known);
    if (k < 0) {
        ret->refused += k == -EINVAL || k == -EUSERS;
        return k == -EINVAL || k == -EUSERS ? 0 : k;
    }
    if (known.seq && known.boot == r->boot) {
        if (r->seq <= known.seq) {
            ret->known++;
            return 0;
        }
        if (r->total.uj < known.total.uj || r->total.low_uj < known.total.low_uj ||
            r->total.high_uj < known.total.high_uj) {
            ret->refused++;
            return 0;
        }
        since.uj -= known.total.uj;
        since.low_uj -= known.total.low_uj;
        since.high_uj -= known.total.high_uj;
    } else {
        ret->reboots += known.seq != 0;
    }
    k = add_sample(s, STEP_SECOND, known.id, (int64_t)r->to_ms, (int64_t)r->from_ms, &since,
                   r->gap_ms);
    ret->stored++;
    return k ? k : set_point(s, known.id, r);
}

int store_put(struct store *s, const char *unit, const struct outbox_record *r, size_t n,
              struct store_put *ret, struct error *err)
{
    struct store_put done = {0};
    int k = run(s, "SAVEPOINT put"); /* outside of a transaction it is one */

    for (size_t i = 0; k == 0 && i < n; i++)
        k = put_one(s, unit, &r[i], &done);
    k = k ? k : run(s, "RELEASE put");
    if (k < 0) {
        said(s, k, "store records of energy", err);
        run(s, "ROLLBACK TO put; RELEASE put");
        return k;
    }
    *ret = done;
    return 0;
}

int store_begin(struct store *s, struct error *err)
{
    return said(s, run(s, "BEGIN IMMEDIATE"), "begin to store", err);
}

int store_commit(struct store *s, struct error *err)
{
    int r = said(s, run(s, "COMMIT"), "store records of energy", err);

    if (r < 0)
        run(s, "ROLLBACK");
    return r;
}

/* ---- sums ---- */

/* Moves rows of a step that end before @until_ms into rows of the next step; 0: drops them. */
static int sum_up(struct store *s, int step, int next, int64_t until_ms, uint32_t rows)
{
    sqlite3_stmt *old = s->statement[OLD_SAMPLES], *drop = s->statement[DROP_SAMPLE];
    uint32_t n = 0;
    int rc = SQLITE_DONE, r = 0;

    sqlite3_bind_int64(old, 1, step);
    sqlite3_bind_int64(old, 2, until_ms);
    sqlite3_bind_int64(old, 3, rows);
    while (r == 0 && (rc = sqlite3_step(old)) == SQLITE_ROW) {
        struct energy_range e = {column(old, 3), column(old, 4), column(old, 5),
                                 (uint32_t)column(old, 6)};
        int64_t point = (int64_t)column(old, 0), to_ms = (int64_t)column(old, 1);
        int64_t end_ms = next ? (to_ms + next * 1000 - 1) / (next * 1000) * (next * 1000) : 0;

        if (next)
            r = add_sample(s, next, point, end_ms, (int64_t)column(old, 2), &e,
                           (int64_t)column(old, 7));
        sqlite3_bind_int64(drop, 1, step);
        sqlite3_bind_int64(drop, 2, point);
        sqlite3_bind_int64(drop, 3, to_ms);
        r = r ? r : carry_out(drop);
        n++;
    }
    rc = finish(old, rc);
    r = r ? r : rc;
    return r < 0 ? r : n == rows;
}

int store_rollup(struct store *s, const struct store_keep *keep, int64_t now_ms, uint32_t rows,
                 struct error *err)
{
    const struct {
        int step, next;
        uint64_t keep_ms;
    } steps[] = {{STEP_SECOND, STEP_MINUTE, keep->second_ms},
                 {STEP_MINUTE, STEP_QUARTER, keep->minute_ms},
                 {STEP_QUARTER, 0, keep->quarter_ms}};
    int r = run(s, "BEGIN IMMEDIATE"), more = 0;

    for (size_t i = 0; r >= 0 && i < ARRAY_LEN(steps); i++) {
        r = sum_up(s, steps[i].step, steps[i].next, now_ms - (int64_t)steps[i].keep_ms, rows);
        more |= r > 0;
    }
    r = r < 0 ? r : run(s, "COMMIT");
    if (r < 0) {
        said(s, r, "sum up old energy", err);
        run(s, "ROLLBACK");
        return r;
    }
    return more;
}

/* ---- questions ---- */

int store_series(struct store *s, const char *unit, const char *point, int64_t from_ms,
                 int64_t to_ms, int64_t step_ms, struct store_stretch *ret, size_t max,
                 size_t *ret_n, struct error *err)
{
    sqlite3_stmt *q = s->statement[SERIES];
    size_t n = 0;
    int rc;

    if (step_ms <= 0 || from_ms < 0)
        return error_set(err, -EINVAL, "a step of %" PRId64 " ms from %" PRId64, step_ms, from_ms);
    bind_text(q, 1, unit);
    bind_text(q, 2, point);
    sqlite3_bind_int64(q, 3, from_ms / step_ms * step_ms);
    sqlite3_bind_int64(q, 4, to_ms);
    sqlite3_bind_int64(q, 5, step_ms);
    sqlite3_bind_int64(q, 6, (int64_t)max + 1);
    while ((rc = sqlite3_step(q)) == SQLITE_ROW && n < max)
        ret[n++] = (struct store_stretch){
            (int64_t)column(q, 0) * step_ms,
            {column(q, 1), column(q, 2), column(q, 3), (uint32_t)column(q, 4)},
            column(q, 5)};
    if (rc == SQLITE_ROW) {
        finish(q, rc);
        return error_set(err, -ENOSPC, "more than %zu steps: ask for longer ones", max);
    }
    rc = finish(q, rc);
    if (rc == 0)
        *ret_n = n;
    return said(s, rc, "read the energy", err);
}

int store_points(struct store *s, bool (*each)(void *arg, const struct store_point *p), void *arg,
                 struct error *err)
{
    sqlite3_stmt *q = s->statement[POINTS];
    bool more = true;
    int rc = SQLITE_DONE;

    while (more && (rc = sqlite3_step(q)) == SQLITE_ROW) {
        struct store_point p = {
            .first_ms = (int64_t)column(q, 2),
            .last_ms = (int64_t)column(q, 3),
            .energy = {column(q, 4), column(q, 5), column(q, 6), (uint32_t)column(q, 7)},
            .gap_ms = column(q, 8)};

        snprintf(p.unit, sizeof(p.unit), "%s", (const char *)sqlite3_column_text(q, 0));
        snprintf(p.point, sizeof(p.point), "%s", (const char *)sqlite3_column_text(q, 1));
        more = each(arg, &p);
    }
    return said(s, finish(q, rc), "read the points", err);
}

int store_erase(struct store *s, const char *unit, const char *point, struct error *err)
{
    int r = run(s, "BEGIN IMMEDIATE"), gone = 0;

    for (int i = ERASE_SAMPLES; r == 0 && i <= ERASE_POINTS; i++) {
        bind_text(s->statement[i], 1, unit);
        if (point)
            bind_text(s->statement[i], 2, point);
        r = carry_out(s->statement[i]);
        gone = sqlite3_changes(s->db);
    }
    r = r ? r : run(s, "COMMIT");
    if (r < 0) {
        said(s, r, "erase", err);
        run(s, "ROLLBACK");
        return r;
    }
    return gone ? 0
                : error_set(err, -ENOENT, "nothing is stored of %s%s%s", unit, point ? " " : "",
                            point ? point : "");
}
