/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/record/energy_history.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/muldiv.h"
#include "daemon/daemon.h"
#include "daemon/energy/meter.h"
#include "daemon/job/job.h"
#include "daemon/record/database.h"
#include "daemon/record/shown.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "no-history"

#define VERSION    1
#define TRIM_EVERY 60   /* writes between two looks for old rows */
#define STEPS      1000 /* of SQLite's machine between two looks at the clock */

static const char schema[] =
    "PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL;"
    "PRAGMA mmap_size = 0; PRAGMA cache_size = -256; PRAGMA temp_store = MEMORY;"
    "CREATE TABLE IF NOT EXISTS part (time INTEGER, part INTEGER, uj INTEGER NOT NULL,"
    " low INTEGER NOT NULL, high INTEGER NOT NULL, basis INTEGER NOT NULL, gap INTEGER NOT NULL,"
    " PRIMARY KEY (time, part)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS job (time INTEGER, submitted INTEGER, number INTEGER,"
    " uid INTEGER NOT NULL, name TEXT NOT NULL, owner TEXT NOT NULL, uj INTEGER NOT NULL,"
    " low INTEGER NOT NULL, high INTEGER NOT NULL, basis INTEGER NOT NULL, gap INTEGER NOT NULL,"
    " PRIMARY KEY (time, submitted, number)) WITHOUT ROWID;"
    "PRAGMA user_version = 1";

/* The worst known basis; 0 is unknown and adds nothing. */
#define ADD                                                                                        \
    " DO UPDATE SET uj = uj + excluded.uj, low = low + excluded.low, high = high + excluded.high," \
    " gap = gap + excluded.gap, basis = CASE WHEN basis = 0 THEN excluded.basis"                   \
    " WHEN excluded.basis = 0 THEN basis ELSE min(basis, excluded.basis) END"
#define SUMS " sum(uj), sum(low), sum(high), coalesce(min(nullif(basis, 0)), 0), sum(gap)"
#define OF_JOBS                                                                                    \
    " FROM job WHERE time >= ?1 AND time < ?2 AND (?3 OR uid = ?4)"                                \
    " AND (?5 IS NULL OR name = ?5 OR 'j' || number = ?5)"
#define OF_PARTS " FROM part WHERE time >= ?1 AND time < ?2"

enum statement {
    ADD_PART,
    ADD_JOB,
    TRIM_PART,
    TRIM_JOB,
    TRIM_ROWS,
    QUERY,
    STATEMENT_MAX = QUERY + ENERGY_BY_MAX
};

static const char *const statement_text[] = {
    [ADD_PART] = "INSERT INTO part (time, uj, low, high, basis, gap, part)"
                 " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (time, part)" ADD,
    [ADD_JOB] = "INSERT INTO job (time, uj, low, high, basis, gap, submitted, number, uid, name,"
                " owner) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)"
                " ON CONFLICT (time, submitted, number)" ADD,
    [TRIM_PART] = "DELETE FROM part WHERE time < ?1",
    [TRIM_JOB] = "DELETE FROM job WHERE time < ?1",
    [TRIM_ROWS] = "DELETE FROM job WHERE time <= (SELECT time FROM job ORDER BY time DESC"
                  " LIMIT 1 OFFSET ?1)",
    [QUERY + ENERGY_BY_JOB] = "SELECT 'j' || number, name, owner," SUMS OF_JOBS
                              " GROUP BY submitted, number ORDER BY 4 DESC LIMIT ?6",
    [QUERY + ENERGY_BY_USER] =
        "SELECT owner, NULL, owner," SUMS OF_JOBS " GROUP BY uid ORDER BY 4 DESC LIMIT ?6",
    [QUERY + ENERGY_BY_PART] = "SELECT part, NULL, NULL," SUMS OF_PARTS " GROUP BY part ORDER BY 1"
                               " LIMIT ?6",
    [QUERY + ENERGY_BY_DAY] =
        "SELECT strftime('%Y-%m-%d', time, 'unixepoch', 'localtime'), NULL, NULL," SUMS OF_PARTS
        " AND part = 0 GROUP BY 1 ORDER BY 1 LIMIT ?6",
};
static_assert(ARRAY_LEN(statement_text) == STATEMENT_MAX, "a statement without text");

static const char *const by_names[] = {"job", "user", "part", "day"};
static_assert(ARRAY_LEN(by_names) == ENERGY_BY_MAX, "a name for each");

/* Numbers of parts in the file: they stay. */
static const char *const part_names[] = {"machine", "jobs", "system", "idle", "unattributed"};

struct energy_history {
    sqlite3 *db; /* NULL: there is none for now */
    sqlite3_stmt *statement[STATEMENT_MAX];
    struct ledger written; /* what of the ledger is in the file */
    uint64_t next_ns;      /* then it writes, or without a file tries to have one */
    uint64_t until_ns;
    unsigned writes;
    bool failed; /* logged; no second line until a write succeeds */
    char why[ERROR_TEXT_MAX];
    char path[PATH_MAX];
};

const char *energy_by_name(enum energy_by by)
{
    return (unsigned)by < ENERGY_BY_MAX ? by_names[by] : NULL;
}

/* ---- the file ---- */

static void close_file(struct energy_history *h)
{
    for (unsigned i = 0; i < STATEMENT_MAX; i++) {
        sqlite3_finalize(h->statement[i]);
        h->statement[i] = NULL;
    }
    sqlite3_close(h->db);
    h->db = NULL;
}

static int version_of(sqlite3 *db)
{
    sqlite3_stmt *s;
    int version = -1;

    if (sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &s, NULL) != SQLITE_OK)
        return -1;
    if (sqlite3_step(s) == SQLITE_ROW)
        version = sqlite3_column_int(s, 0);
    sqlite3_finalize(s);
    return version;
}

static int open_file(struct energy_history *h)
{
    int error, r = database_open_file(h->path, &h->db, &error);

    if (r != SQLITE_OK)
        return r;
    if (version_of(h->db) > VERSION)
        return SQLITE_CANTOPEN; /* a newer tided's: left alone */
    r = sqlite3_exec(h->db, schema, NULL, NULL, NULL);
    for (unsigned i = 0; r == SQLITE_OK && i < STATEMENT_MAX; i++)
        r = sqlite3_prepare_v3(h->db, statement_text[i], -1, SQLITE_PREPARE_PERSISTENT,
                               &h->statement[i], NULL);
    return r;
}

static void move_aside(struct energy_history *h)
{
    close_file(h);
    daemon_err("%s is damaged: moved aside and replaced by an empty one", h->path);
    database_rename_aside(h->path);
}

static bool is_damage(int code)
{
    int primary = code & 0xff;

    return primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB || primary == SQLITE_ERROR;
}

/* Closes the file until the next attempt; what is used meanwhile is written then. */
static void give_up(struct energy_history *h, int code)
{
    snprintf(h->why, sizeof(h->why), "%s", sqlite3_errstr(code));
    close_file(h);
    h->next_ns = clock_now_ns() + ENERGY_WRITE_NS;
    if (!h->failed)
        daemon_err("cannot keep the history of energy in %s: %s; the jobs go on", h->path, h->why);
    h->failed = true;
}

/* A damaged file is replaced once; if the new one is damaged too, the disk is at fault. */
static void open_history(struct energy_history *h)
{
    int r = open_file(h);

    if (is_damage(r)) {
        move_aside(h);
        r = open_file(h);
    }
    if (r != SQLITE_OK)
        give_up(h, r);
}

int energy_history_new(struct daemon *d, const char *dir, struct energy_history **ret)
{
    struct energy_history *h = calloc(1, sizeof(*h));

    if (!h)
        return -ENOMEM;
    snprintf(h->path, sizeof(h->path), "%s/" ENERGY_HISTORY_FILE, dir);
    h->written = *meter_ledger(d->meter);
    open_history(h);
    *ret = h;
    return 0;
}

struct energy_history *energy_history_free(struct energy_history *h)
{
    if (!h)
        return NULL;
    close_file(h);
    free(h);
    return NULL;
}

/* ---- writing ---- */

/* The energy in @now that is not in @written. The bounds of sums only grow. */
static struct energy_range since(const struct energy_range *now, const struct energy_range *written)
{
    return (struct energy_range){.uj = sub_sat(now->uj, written->uj),
                                 .low_uj = sub_sat(now->low_uj, written->low_uj),
                                 .high_uj = sub_sat(now->high_uj, written->high_uj),
                                 .basis = now->basis};
}

/* False: there is nothing to add. */
static bool bind(sqlite3_stmt *s, uint64_t time_s, const struct energy_range *e, uint64_t gap_ns)
{
    uint64_t quarter = time_s / ENERGY_STEP_S;

    if (e->uj == 0 && e->high_uj == 0 && gap_ns < NS_PER_MS)
        return false;
    sqlite3_bind_int64(s, 1, (sqlite3_int64)quarter * ENERGY_STEP_S);
    sqlite3_bind_int64(s, 2, (sqlite3_int64)e->uj);
    sqlite3_bind_int64(s, 3, (sqlite3_int64)e->low_uj);
    sqlite3_bind_int64(s, 4, (sqlite3_int64)e->high_uj);
    sqlite3_bind_int(s, 5, (int)e->basis);
    sqlite3_bind_int64(s, 6, (sqlite3_int64)(gap_ns / NS_PER_MS));
    return true;
}

static int finish(sqlite3_stmt *s)
{
    int r = sqlite3_step(s);

    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    return r == SQLITE_DONE ? SQLITE_OK : r;
}

static int add_job(struct energy_history *h, const struct job *j)
{
    sqlite3_stmt *s = h->statement[ADD_JOB];
    const struct job_energy *e = &j->observed.energy;
    struct energy_range more = since(&e->total, &e->written);

    if (!bind(s, clock_real_ms() / 1000, &more, e->gap_ns - e->written_gap_ns))
        return SQLITE_OK;
    sqlite3_bind_int64(s, 7, (sqlite3_int64)j->created_ms);
    sqlite3_bind_int64(s, 8, j->number);
    sqlite3_bind_int64(s, 9, j->uid);
    sqlite3_bind_text(s, 10, j->name, -1, SQLITE_STATIC);
    sqlite3_bind_text(s, 11, j->owner, -1, SQLITE_STATIC);
    return finish(s);
}

static int add_parts(struct energy_history *h, const struct ledger *l)
{
    const struct energy_range *now[] = {&l->machine, &l->jobs, &l->system, &l->idle,
                                        &l->unattributed};
    const struct energy_range *old[] = {&h->written.machine, &h->written.jobs, &h->written.system,
                                        &h->written.idle, &h->written.unattributed};
    sqlite3_stmt *s = h->statement[ADD_PART];
    int r = SQLITE_OK;

    static_assert(ARRAY_LEN(now) == ARRAY_LEN(part_names), "a name for each part");
    for (unsigned i = 0; r == SQLITE_OK && i < ARRAY_LEN(now); i++) {
        struct energy_range more = since(now[i], old[i]);

        if (!bind(s, clock_real_ms() / 1000, &more, i ? 0 : l->gap_ns - h->written.gap_ns))
            continue;
        sqlite3_bind_int(s, 7, (int)i);
        r = finish(s);
    }
    return r;
}

static int trim(struct energy_history *h)
{
    uint64_t now = clock_real_ms() / 1000;
    int r = SQLITE_OK;

    for (enum statement i = TRIM_PART; r == SQLITE_OK && i <= TRIM_ROWS; i++) {
        sqlite3_bind_int64(h->statement[i], 1,
                           i == TRIM_ROWS ? ENERGY_ROWS_MAX
                                          : (sqlite3_int64)sub_sat(now, ENERGY_KEEP_S));
        r = finish(h->statement[i]);
    }
    return r;
}

static void fail(struct energy_history *h, int code)
{
    if (!is_damage(code)) {
        give_up(h, code);
        return;
    }
    move_aside(h);
    open_history(h);
}

/* The file has all that the job has used: none of it is added again. */
static void mark(struct job *j)
{
    struct job_energy *e = &j->observed.energy;

    e->written = e->total;
    e->written_gap_ns = e->gap_ns;
}

static void committed(struct energy_history *h, struct daemon *d)
{
    h->written = *meter_ledger(d->meter);
    for (struct job *j = d->jobs->first; j; j = j->next)
        mark(j);
    h->failed = false;
}

void energy_history_tick(struct daemon *d, bool now)
{
    struct energy_history *h = d->energy_history;
    int r;

    if (!h || (!now && clock_now_ns() < h->next_ns))
        return;
    if (!h->db)
        open_history(h);
    if (!h->db)
        return;
    h->next_ns = clock_now_ns() + ENERGY_WRITE_NS;
    r = sqlite3_exec(h->db, "BEGIN", NULL, NULL, NULL);
    if (r == SQLITE_OK)
        r = add_parts(h, meter_ledger(d->meter));
    for (struct job *j = d->jobs->first; r == SQLITE_OK && j; j = j->next)
        r = add_job(h, j);
    if (r == SQLITE_OK && h->writes++ % TRIM_EVERY == 0)
        r = trim(h);
    if (r == SQLITE_OK)
        r = sqlite3_exec(h->db, "COMMIT", NULL, NULL, NULL);
    if (r == SQLITE_OK)
        committed(h, d);
    else
        fail(h, r);
}

static void gone(struct job *j)
{
    struct energy_history *h = j->daemon->energy_history;
    int r;

    if (!h || !h->db)
        return;
    r = add_job(h, j);
    if (r == SQLITE_OK)
        mark(j);
    else
        fail(h, r);
}

const struct job_observer energy_history_observer = {.gone = gone};

/* ---- asking ---- */

static int look_at_clock(void *arg)
{
    const struct energy_history *h = arg;

    return clock_now_ns() > h->until_ns;
}

static json_t *text_at(sqlite3_stmt *s, int at, const struct energy_query *q)
{
    int part = sqlite3_column_int(s, at);

    if (sqlite3_column_type(s, at) == SQLITE_NULL)
        return json_null();
    if (q->by == ENERGY_BY_PART && at == 0)
        return json_string(part >= 0 && (unsigned)part < ARRAY_LEN(part_names) ? part_names[part]
                                                                               : "?");
    return shown_text((const char *)sqlite3_column_text(s, at));
}

static json_t *amount_at(sqlite3_stmt *s, int at, uint32_t basis)
{
    return basis == POWER_UNKNOWN ? json_null() : json_integer(sqlite3_column_int64(s, at));
}

int energy_history_query(struct energy_history *h, const struct energy_query *q, json_t **ret,
                         struct error *err)
{
    sqlite3_stmt *s;
    json_t *rows;
    int r;

    if (h && !h->db)
        open_history(h);
    if (!h || !h->db)
        return error_word(err,
                          error_set(err, -ENODATA, "there is no history of energy: %.150s",
                                    h ? h->why : "tide.conf says history=none"),
                          "no-history");
    s = h->statement[QUERY + q->by];
    rows = json_array();
    sqlite3_bind_int64(s, 1, (sqlite3_int64)q->since_s);
    sqlite3_bind_int64(s, 2, (sqlite3_int64)q->until_s);
    sqlite3_bind_int(s, 6, ENERGY_ANSWER_MAX);
    if (q->by == ENERGY_BY_JOB || q->by == ENERGY_BY_USER) {
        sqlite3_bind_int(s, 3, q->all);
        sqlite3_bind_int64(s, 4, q->uid);
        if (q->job)
            sqlite3_bind_text(s, 5, q->job, -1, SQLITE_STATIC);
    }
    h->until_ns = clock_now_ns() + ENERGY_QUERY_NS;
    sqlite3_progress_handler(h->db, STEPS, look_at_clock, h);
    while ((r = sqlite3_step(s)) == SQLITE_ROW) {
        uint32_t basis = (uint32_t)sqlite3_column_int(s, 6);

        json_array_append_new(
            rows,
            json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:s,s:I}", "key", text_at(s, 0, q), "name",
                      text_at(s, 1, q), "owner", text_at(s, 2, q), "uj", amount_at(s, 3, basis),
                      "low_uj", amount_at(s, 4, basis), "high_uj", amount_at(s, 5, basis), "basis",
                      power_basis_name(basis), "gap_ms", (json_int_t)sqlite3_column_int64(s, 7)));
    }
    sqlite3_progress_handler(h->db, 0, NULL, NULL);
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    if (r == SQLITE_DONE) {
        *ret = rows;
        return 0;
    }
    json_decref(rows);
    if (r == SQLITE_INTERRUPT)
        return error_word(
            err, error_set(err, -ETIME, "this is too much at once: ask for a shorter time"),
            "search-too-long");
    fail(h, r);
    return error_set(err, -ENODATA, "there is no history of energy: %s", sqlite3_errstr(r));
}
