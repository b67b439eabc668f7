/* SPDX-License-Identifier: Apache-2.0 */
#include "edge/outbox.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "edge/sqlite_errno.h"

#define ERROR_WORD "outbox-failed"

#define SEQ_BLOCK  100000    /* numbers that are reserved at once, so that none is used twice */
#define GAP_MAX_MS INT32_MAX /* 24 days: a longer gap counts as so long */
#define ANEW_UJ    (UINT64_C(1) << 61) /* from here on a restart begins new totals */
#define MINUTE_MS  60000
#define QUARTER_MS 900000

/* Each step upgrades a file of the version before it; no step ever changes. */
static const char *const steps[] = {
    ("CREATE TABLE record (seq INTEGER PRIMARY KEY, point TEXT NOT NULL, from_ms INTEGER NOT NULL,"
     " to_ms INTEGER NOT NULL, mono_ns INTEGER NOT NULL, uj INTEGER NOT NULL, low INTEGER NOT NULL,"
     " high INTEGER NOT NULL, basis INTEGER NOT NULL, gap INTEGER NOT NULL);"
     "CREATE TABLE total (point TEXT PRIMARY KEY, uj INTEGER NOT NULL, low INTEGER NOT NULL,"
     " high INTEGER NOT NULL, basis INTEGER NOT NULL) WITHOUT ROWID;"
     "CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;"),
    ("ALTER TABLE total ADD COLUMN raw INTEGER NOT NULL DEFAULT 0;"
     "ALTER TABLE total ADD COLUMN to_ms INTEGER NOT NULL DEFAULT 0;"),
};

enum statement { ADD, TOTAL, LAST, NEXT, RECEIPT, RESERVE, STATEMENT_MAX };

static const char *const statement_text[] = {
    [ADD] = "INSERT INTO record VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    [TOTAL] = "INSERT OR REPLACE INTO total VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    [LAST] = "SELECT uj, low, high, basis, raw, to_ms FROM total WHERE point = ?1",
    [NEXT] = ("SELECT seq, point, from_ms, to_ms, mono_ns, uj, low, high, basis, gap FROM record"
              " WHERE seq > ?1 ORDER BY seq LIMIT ?2"),
    [RECEIPT] = "DELETE FROM record WHERE seq <= ?1",
    [RESERVE] = "INSERT OR REPLACE INTO meta VALUES ('seq', ?1)",
};
static_assert(ARRAY_LEN(statement_text) == STATEMENT_MAX, "a statement without text");

struct outbox {
    sqlite3 *db;
    sqlite3_stmt *statement[STATEMENT_MAX];
    uint64_t boot, seq, reserved; /* seq: the last one used */
    int64_t pages_max;
    struct outbox_record *waiting; /* put, and not written yet */
    size_t n_waiting;
    struct outbox_record *note; /* the newest of each point, and not written yet */
    size_t notes;
};

/* ---- SQLite ---------------------------------------------------------------------------------- */

static int run(struct outbox *o, const char *sql)
{
    return sqlite_errno(sqlite3_exec(o->db, sql, NULL, NULL, NULL));
}

/* Runs a statement without rows; its values are bound. */
static int finish(sqlite3_stmt *s)
{
    int rc = sqlite3_step(s);

    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    return sqlite_errno(rc);
}

static int64_t number(struct outbox *o, const char *sql, int64_t otherwise)
{
    sqlite3_stmt *s;

    if (sqlite3_prepare_v2(o->db, sql, -1, &s, NULL) != SQLITE_OK)
        return otherwise;
    if (sqlite3_step(s) == SQLITE_ROW)
        otherwise = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return otherwise;
}

static int upgrade(struct outbox *o)
{
    int64_t version = number(o, "PRAGMA user_version", -1);
    char text[64];
    int r = 0;

    if (version < 0)
        return -EBADMSG;
    if (version > (int64_t)ARRAY_LEN(steps))
        return -EPROTO;
    for (; r == 0 && version < (int64_t)ARRAY_LEN(steps); version++) {
        snprintf(text, sizeof(text), "PRAGMA user_version = %" PRId64 "; COMMIT", version + 1);
        r = run(o, "BEGIN IMMEDIATE");
        r = r ? r : run(o, steps[version]);
        r = r ? r : run(o, text);
    }
    return r;
}

static int reserve(struct outbox *o)
{
    int r;

    sqlite3_bind_int64(o->statement[RESERVE], 1, (int64_t)(o->seq + SEQ_BLOCK));
    r = finish(o->statement[RESERVE]);
    if (r == 0)
        o->reserved = o->seq + SEQ_BLOCK;
    return r;
}

/*
 * Totals that come near their end begin anew under another boot, as those of a new file do, when
 * all records have their receipt. The meters' own counts stay: they go on where they were.
 */
static int begin_anew(struct outbox *o, uint64_t boot)
{
    char sql[192];

    if (number(o, "SELECT max(high) FROM total", 0) < (int64_t)ANEW_UJ ||
        number(o, "SELECT count(*) FROM record", 1) != 0)
        return 0;
    snprintf(sql, sizeof(sql),
             "BEGIN; UPDATE meta SET value = %" PRIu64 " WHERE key = 'boot';"
             "UPDATE total SET uj = 0, low = 0, high = 0; COMMIT",
             boot & INT64_MAX);
    return run(o, sql);
}

static int load(struct outbox *o, uint64_t boot)
{
    char sql[128];
    int r;

    if (number(o, "SELECT value FROM meta WHERE key = 'boot'", -1) < 0) {
        snprintf(sql, sizeof(sql), "INSERT INTO meta VALUES ('boot', %" PRIu64 ")",
                 boot & INT64_MAX);
        r = run(o, sql);
        if (r < 0)
            return r;
    }
    r = begin_anew(o, boot);
    if (r < 0)
        return r;
    for (int i = 0; i < STATEMENT_MAX; i++) {
        r = sqlite_errno(sqlite3_prepare_v3(o->db, statement_text[i], -1, SQLITE_PREPARE_PERSISTENT,
                                            &o->statement[i], NULL));
        if (r < 0)
            return r;
    }
    o->boot = (uint64_t)number(o, "SELECT value FROM meta WHERE key = 'boot'", 0);
    o->seq = (uint64_t)number(o, "SELECT value FROM meta WHERE key = 'seq'", 0);
    return reserve(o);
}

static void close_file(struct outbox *o)
{
    for (int i = 0; i < STATEMENT_MAX; i++) {
        sqlite3_finalize(o->statement[i]);
        o->statement[i] = NULL;
    }
    sqlite3_close(o->db);
    o->db = NULL;
}

static int open_file(struct outbox *o, const char *path, uint64_t bytes_max, uint64_t boot)
{
    int r = sqlite_errno(sqlite3_open_v2(
        path, &o->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL));

    r = r ? r
          : run(o, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -256;"
                   "PRAGMA wal_autocheckpoint = 128; PRAGMA temp_store = MEMORY");
    if (r == 0 && number(o, "SELECT quick_check <> 'ok' FROM pragma_quick_check(1)", 1) != 0)
        r = -EBADMSG;
    r = r ? r : upgrade(o);
    r = r ? r : load(o, boot);
    if (r < 0) {
        close_file(o);
        return r;
    }
    o->pages_max = (int64_t)bytes_max / number(o, "PRAGMA page_size", 4096);
    return 0;
}

/* ---- open and close -------------------------------------------------------------------------- */

static const char *problem(int r)
{
    return r == -EPROTO ? "a newer version of this program wrote it" : strerror(-r);
}

int outbox_open(const char *path, uint64_t bytes_max, uint64_t boot, struct outbox **ret,
                struct error *err)
{
    struct outbox *o = calloc(1, sizeof(*o));
    char aside[PATH_MAX], wal[PATH_MAX + 8];
    int r, moved = 0;

    if (!o || !(o->waiting = calloc(OUTBOX_MEMORY_MAX, sizeof(*o->waiting))) ||
        !(o->note = calloc(OUTBOX_NOTES_MAX, sizeof(*o->note)))) {
        outbox_close(o);
        return error_set(err, -ENOMEM, "out of memory: no outbox");
    }
    r = open_file(o, path, bytes_max, boot);
    if (r == -EBADMSG) {
        snprintf(aside, sizeof(aside), "%s.damaged-%" PRIu64, path, clock_real_ms());
        if (rename(path, aside) == 0) {
            snprintf(wal, sizeof(wal), "%s-wal", path);
            remove(wal);
            snprintf(wal, sizeof(wal), "%s-shm", path);
            remove(wal);
            r = open_file(o, path, bytes_max, boot);
            moved = 1;
        }
    }
    if (r < 0) {
        outbox_close(o);
        return error_set(err, r, "cannot use the outbox %s: %s", path, problem(r));
    }
    if (moved)
        error_set(err, 0, "the outbox %s was damaged; it is %s now, and a new one begins", path,
                  aside);
    *ret = o;
    return moved;
}

struct outbox *outbox_close(struct outbox *o)
{
    if (!o)
        return NULL;
    if (o->db)
        outbox_flush(o, NULL);
    close_file(o);
    free(o->waiting);
    free(o->note);
    free(o);
    return NULL;
}

uint64_t outbox_boot(const struct outbox *o)
{
    return o->boot;
}

/* ---- records --------------------------------------------------------------------------------- */

static size_t note_of(const struct outbox *o, const char *point)
{
    size_t i = 0;

    while (i < o->notes && strcmp(o->note[i].point, point) != 0)
        i++;
    return i;
}

int outbox_last(struct outbox *o, const char *point, struct outbox_record *ret)
{
    sqlite3_stmt *s = o->statement[LAST];
    int r = -ENOENT;

    if (note_of(o, point) < o->notes) {
        *ret = o->note[note_of(o, point)];
        return 0;
    }
    for (size_t i = o->n_waiting; i-- > 0;)
        if (strcmp(o->waiting[i].point, point) == 0) {
            *ret = o->waiting[i];
            return 0;
        }
    sqlite3_bind_text(s, 1, point, -1, SQLITE_STATIC);
    if (sqlite3_step(s) == SQLITE_ROW) {
        *ret = (struct outbox_record){
            .total = {.uj = (uint64_t)sqlite3_column_int64(s, 0),
                      .low_uj = (uint64_t)sqlite3_column_int64(s, 1),
                      .high_uj = (uint64_t)sqlite3_column_int64(s, 2),
                      .basis = (uint32_t)sqlite3_column_int64(s, 3)},
            .raw_uj = (uint64_t)sqlite3_column_int64(s, 4),
            .to_ms = (uint64_t)sqlite3_column_int64(s, 5),
        };
        r = 0;
    }
    sqlite3_reset(s);
    return r;
}

/* Leaves the newest record of each point: it takes over the time and the gaps of the others. */
static void shrink_waiting(struct outbox *o)
{
    size_t kept = 0;

    for (size_t i = 0; i < o->n_waiting; i++) {
        struct outbox_record r = o->waiting[i];
        size_t k = 0;

        while (k < kept && strcmp(o->waiting[k].point, r.point) != 0)
            k++;
        if (k < kept) {
            r.from_ms = o->waiting[k].from_ms;
            r.gap_ms = o->waiting[k].gap_ms < GAP_MAX_MS - r.gap_ms
                           ? r.gap_ms + o->waiting[k].gap_ms
                           : GAP_MAX_MS;
            memmove(&o->waiting[k], &o->waiting[k + 1], (--kept - k) * sizeof(r));
        }
        o->waiting[kept++] = r;
    }
    o->n_waiting = kept;
}

/* Whether the total is past what a parent takes: it stays at the end. */
static bool limit(struct energy_range *total)
{
    bool past = total->high_uj > OUTBOX_UJ_MAX;

    total->uj = total->uj < OUTBOX_UJ_MAX ? total->uj : OUTBOX_UJ_MAX;
    total->low_uj = total->low_uj < OUTBOX_UJ_MAX ? total->low_uj : OUTBOX_UJ_MAX;
    total->high_uj = total->high_uj < OUTBOX_UJ_MAX ? total->high_uj : OUTBOX_UJ_MAX;
    return past;
}

void outbox_note(struct outbox *o, const struct outbox_record *r)
{
    size_t i = note_of(o, r->point);

    if (i == OUTBOX_NOTES_MAX)
        return;
    o->note[i] = *r;
    limit(&o->note[i].total);
    o->notes += i == o->notes;
}

void outbox_put(struct outbox *o, struct outbox_record *r)
{
    if (o->n_waiting == OUTBOX_MEMORY_MAX)
        shrink_waiting(o);
    if (o->n_waiting == OUTBOX_MEMORY_MAX) { /* more points than there is memory for */
        memmove(o->waiting, o->waiting + 1, --o->n_waiting * sizeof(*r));
    }
    if (limit(&r->total)) /* what it used since is not told: better a gap than 0 */
        r->gap_ms =
            (uint32_t)(r->to_ms - r->from_ms < GAP_MAX_MS ? r->to_ms - r->from_ms : GAP_MAX_MS);
    r->gap_ms = r->gap_ms < GAP_MAX_MS ? r->gap_ms : GAP_MAX_MS;
    r->boot = o->boot;
    r->seq = ++o->seq;
    o->waiting[o->n_waiting++] = *r;
    if (note_of(o, r->point) < o->notes)
        outbox_note(o, r); /* the older one is no use any more */
}

static int write_total(struct outbox *o, const struct outbox_record *r)
{
    sqlite3_stmt *total = o->statement[TOTAL];

    sqlite3_bind_text(total, 1, r->point, -1, SQLITE_STATIC);
    sqlite3_bind_int64(total, 2, (int64_t)r->total.uj);
    sqlite3_bind_int64(total, 3, (int64_t)r->total.low_uj);
    sqlite3_bind_int64(total, 4, (int64_t)r->total.high_uj);
    sqlite3_bind_int64(total, 5, r->total.basis);
    sqlite3_bind_int64(total, 6, (int64_t)r->raw_uj);
    sqlite3_bind_int64(total, 7, (int64_t)r->to_ms);
    return finish(total);
}

static int write_one(struct outbox *o, const struct outbox_record *r)
{
    sqlite3_stmt *add = o->statement[ADD];
    int error;

    sqlite3_bind_int64(add, 1, (int64_t)r->seq);
    sqlite3_bind_text(add, 2, r->point, -1, SQLITE_STATIC);
    sqlite3_bind_int64(add, 3, (int64_t)r->from_ms);
    sqlite3_bind_int64(add, 4, (int64_t)r->to_ms);
    sqlite3_bind_int64(add, 5, (int64_t)r->mono_ns);
    sqlite3_bind_int64(add, 6, (int64_t)r->total.uj);
    sqlite3_bind_int64(add, 7, (int64_t)r->total.low_uj);
    sqlite3_bind_int64(add, 8, (int64_t)r->total.high_uj);
    sqlite3_bind_int64(add, 9, r->total.basis);
    sqlite3_bind_int64(add, 10, r->gap_ms);
    error = finish(add);
    return error ? error : write_total(o, r);
}

/* ---- a file that is full --------------------------------------------------------------------- */

static bool full(struct outbox *o)
{
    return number(o, "PRAGMA page_count", 0) - number(o, "PRAGMA freelist_count", 0) > o->pages_max;
}

/* The oldest half of the records that span less than @slot_ms: one for each point and slot stays.
 */
static int coarsen(struct outbox *o, int64_t slot_ms)
{
    static const char text[] =
        "CREATE TEMP TABLE slot AS SELECT max(seq) AS last, min(from_ms) AS first, min(sum(gap), "
        "2147483647) AS gap,"
        " point, from_ms / %1$" PRId64 " AS slot FROM record WHERE to_ms - from_ms < %1$" PRId64
        " AND seq <= (SELECT seq FROM record ORDER BY seq LIMIT 1 OFFSET (SELECT count(*) / 2 FROM"
        " record)) GROUP BY point, from_ms / %1$" PRId64 " HAVING count(*) > 1;"
        "CREATE UNIQUE INDEX slot_of ON slot (point, slot);"
        "DELETE FROM record WHERE to_ms - from_ms < %1$" PRId64
        " AND EXISTS (SELECT 1 FROM slot WHERE slot.point = record.point AND slot.slot ="
        " record.from_ms / %1$" PRId64 " AND record.seq < slot.last);"
        "UPDATE record SET from_ms = slot.first, gap = slot.gap FROM slot WHERE seq = slot.last;"
        "DROP TABLE slot;";
    char sql[2048];

    snprintf(sql, sizeof(sql), text, slot_ms);
    return run(o, sql);
}

static int make_room(struct outbox *o)
{
    static const int64_t slots[] = {MINUTE_MS, MINUTE_MS, QUARTER_MS, QUARTER_MS, INT64_MAX / 2};
    int r = 0;

    for (size_t i = 0; r == 0 && i < ARRAY_LEN(slots) && full(o); i++)
        r = coarsen(o, slots[i]);
    return r;
}

int outbox_flush(struct outbox *o, struct error *err)
{
    int r = o->seq >= o->reserved ? reserve(o) : 0;

    if (o->n_waiting == 0 && o->notes == 0)
        return r;
    r = r ? r : run(o, "BEGIN IMMEDIATE");
    for (size_t i = 0; r == 0 && i < o->n_waiting; i++)
        r = write_one(o, &o->waiting[i]);
    for (size_t i = 0; r == 0 && i < o->notes; i++)
        r = write_total(o, &o->note[i]);
    r = r ? r : make_room(o);
    r = r ? r : run(o, "COMMIT");
    if (r < 0) {
        error_set(err, r, "cannot write %zu records into the outbox: %s", o->n_waiting,
                  sqlite3_errmsg(o->db));
        run(o, "ROLLBACK");
        return r;
    }
    o->n_waiting = o->notes = 0;
    return 0;
}

/* ---- forward --------------------------------------------------------------------------------- */

static void read_row(sqlite3_stmt *s, uint64_t boot, struct outbox_record *ret)
{
    *ret = (struct outbox_record){
        .boot = boot,
        .seq = (uint64_t)sqlite3_column_int64(s, 0),
        .from_ms = (uint64_t)sqlite3_column_int64(s, 2),
        .to_ms = (uint64_t)sqlite3_column_int64(s, 3),
        .mono_ns = (uint64_t)sqlite3_column_int64(s, 4),
        .total = {.uj = (uint64_t)sqlite3_column_int64(s, 5),
                  .low_uj = (uint64_t)sqlite3_column_int64(s, 6),
                  .high_uj = (uint64_t)sqlite3_column_int64(s, 7),
                  .basis = (uint32_t)sqlite3_column_int64(s, 8)},
        .gap_ms = (uint32_t)sqlite3_column_int64(s, 9),
    };
    snprintf(ret->point, sizeof(ret->point), "%s", (const char *)sqlite3_column_text(s, 1));
}

int outbox_next(struct outbox *o, uint64_t after_seq, size_t max, struct outbox_record *ret,
                size_t *ret_n)
{
    sqlite3_stmt *s = o->statement[NEXT];
    size_t n = 0;
    int rc = SQLITE_DONE;

    outbox_flush(o, NULL);
    sqlite3_bind_int64(s, 1, (int64_t)after_seq);
    sqlite3_bind_int64(s, 2, (int64_t)max);
    while (n < max && (rc = sqlite3_step(s)) == SQLITE_ROW)
        read_row(s, o->boot, &ret[n++]);
    sqlite3_reset(s);
    if (n == 0 && sqlite_errno(rc) < 0)
        return sqlite_errno(rc);
    for (size_t i = 0; i < o->n_waiting && n < max; i++) /* newer than any in the file */
        if (o->waiting[i].seq > after_seq)
            ret[n++] = o->waiting[i];
    *ret_n = n;
    return 0;
}

int outbox_receipt(struct outbox *o, uint64_t boot, uint64_t seq)
{
    size_t gone = 0;

    if (boot != o->boot)
        return 0;
    while (gone < o->n_waiting && o->waiting[gone].seq <= seq)
        gone++;
    o->n_waiting -= gone;
    memmove(o->waiting, o->waiting + gone, o->n_waiting * sizeof(*o->waiting));
    sqlite3_bind_int64(o->statement[RECEIPT], 1, (int64_t)(seq < o->seq ? seq : o->seq));
    return finish(o->statement[RECEIPT]);
}
