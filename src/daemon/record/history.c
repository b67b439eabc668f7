/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/record/history.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/daemon.h"
#include "daemon/record/database.h"
#include "daemon/record/shown.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ERROR_WORD "no-history"

#define TRIM_ROWS 64 /* beyond what a batch adds: a file that is too large shrinks slowly */
#define WHY_MAX   128

/* `job` in the last two tables is the id of a row of the first. */
const char *const history_steps[] = {
    "CREATE TABLE job (id INTEGER PRIMARY KEY, number INTEGER NOT NULL, submitted INTEGER NOT NULL,"
    " name TEXT NOT NULL, owner TEXT NOT NULL, uid INTEGER NOT NULL, kind TEXT NOT NULL,"
    " command TEXT NOT NULL, begun INTEGER, ended INTEGER, exit INTEGER, run INTEGER NOT NULL,"
    " wait INTEGER NOT NULL, min INTEGER, max INTEGER, weight INTEGER NOT NULL,"
    " priority INTEGER NOT NULL, class INTEGER NOT NULL, request INTEGER, deadline INTEGER,"
    " placement TEXT NOT NULL, UNIQUE (number, submitted));"
    "CREATE TABLE allocation (id INTEGER PRIMARY KEY, job INTEGER NOT NULL, time INTEGER NOT NULL,"
    " threads INTEGER NOT NULL, cores TEXT NOT NULL, reason TEXT NOT NULL);"
    "CREATE INDEX allocation_by_job ON allocation (job); CREATE TABLE rate (id INTEGER PRIMARY KEY,"
    " job INTEGER NOT NULL, time INTEGER NOT NULL, rate REAL NOT NULL, threads INTEGER NOT NULL,"
    " done INTEGER NOT NULL, total INTEGER NOT NULL, unit TEXT NOT NULL);"
    "CREATE INDEX rate_by_job ON rate (job);",
    "ALTER TABLE job ADD COLUMN oom INTEGER NOT NULL DEFAULT 0;",
    "ALTER TABLE job ADD COLUMN cancelled INTEGER NOT NULL DEFAULT 0;",
    ("CREATE INDEX job_by_name ON job (name); CREATE INDEX job_by_uid ON job (uid);"
     "CREATE INDEX job_by_number ON job (number);"),
};
const unsigned history_version = ARRAY_LEN(history_steps);

enum statement {
    ADD_JOB,
    ADD_ALLOCATION,
    ADD_RATE,
    TRIM_JOB,
    TRIM_ALLOCATION,
    TRIM_RATE,
    FIND_ANY,
    FIND_NAME,
    FIND_NUMBER,
    FIND_OWN,
    LOAD_JOB,
    FIND_ALLOCATION,
    FIND_RATE,
    STATEMENT_MAX
};

/* Row ids only grow, so the limit on rows is a smallest id: the newest one minus the limit. */
#define TRIM(table)                                                                                \
    "DELETE FROM " table " WHERE id <= (SELECT max(id) FROM " table ") - ?1"                       \
    " OR id IN (SELECT id FROM " table " ORDER BY id LIMIT ?2)"

/* Newest first, each row found without a sort, so that a search can stop and go on at any row. */
#define FIND(which)                                                                                \
    "SELECT id, uid, ended, submitted FROM job WHERE " which " AND id < ?1 ORDER BY id DESC"

/* The row of a job; NULL if that was never written, or trimmed. */
#define JOB_ID "(SELECT id FROM job WHERE number = ?1 AND submitted = ?2)"

static const char *const statement_text[] = {
    [ADD_JOB] =
        "INSERT INTO job (number, submitted, name, owner, uid, kind, command, begun, ended, exit,"
        " run, wait, min, max, weight, priority, class, request, deadline, placement, oom,"
        " cancelled) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15,"
        " ?16, ?17, ?18, ?19, ?20, ?21, ?22) ON CONFLICT (number, submitted) DO UPDATE SET command"
        " = excluded.command, begun = coalesce(begun, excluded.begun), ended = excluded.ended,"
        " exit = excluded.exit, run = excluded.run, wait = excluded.wait, min = excluded.min, max"
        " = excluded.max, weight = excluded.weight, priority = excluded.priority, class ="
        " excluded.class, request = excluded.request, deadline = excluded.deadline, placement ="
        " excluded.placement, oom = excluded.oom, cancelled = excluded.cancelled",
    [ADD_ALLOCATION] = "INSERT OR IGNORE INTO allocation (job, time, threads, cores, reason)"
                       " VALUES (" JOB_ID ", ?3, ?4, ?5, ?6)",
    [ADD_RATE] = "INSERT OR IGNORE INTO rate (job, time, rate, threads, done, total, unit)"
                 " VALUES (" JOB_ID ", ?3, ?4, ?5, ?6, ?7, ?8)",
    [TRIM_JOB] = TRIM("job"),
    [TRIM_ALLOCATION] = TRIM("allocation"),
    [TRIM_RATE] = TRIM("rate"),
    [FIND_ANY] = FIND("?2 IS NULL"),
    [FIND_NAME] = FIND("name = ?2"),
    [FIND_NUMBER] = FIND("number = ?2"),
    [FIND_OWN] = FIND("uid = ?2"),
    [LOAD_JOB] = "SELECT id, number, submitted, name, owner, kind, command, begun, ended, exit,"
                 " run, wait, min, max, weight, priority, class, request, deadline, placement, oom,"
                 " cancelled FROM job WHERE id = ?1",
    [FIND_ALLOCATION] = ("SELECT time, threads, cores, reason FROM allocation WHERE job = ?1"
                         " AND time < ?2 ORDER BY id DESC"),
    [FIND_RATE] = "SELECT avg(rate), max(done), max(total), max(unit) FROM rate WHERE job = ?1",
};
static_assert(ARRAY_LEN(statement_text) == STATEMENT_MAX, "a statement without text");

static const struct database_form form = {history_steps, ARRAY_LEN(history_steps), statement_text,
                                          STATEMENT_MAX, 512};

struct row {
    struct row *next;
    enum kind { ROW_JOB, ROW_ALLOCATION, ROW_RATE } kind;
    union {
        struct history_job job;
        struct history_allocation allocation;
        struct history_rate rate;
    };
};

struct history {
    struct database file; /* not open: the history is off for now */
    sqlite3_stmt *statement[STATEMENT_MAX];
    struct row *first, **last;
    unsigned n;
    uint64_t written_ns, retry_ns, dropped;
    bool failed; /* logged; no second line until a write succeeds */
    char why[WHY_MAX];
};

/* ---- the file ---- */

static void move_aside(struct history *h, int code)
{
    if (!h->failed)
        daemon_err("%s is damaged (%s): moved aside and replaced by an empty one", h->file.path,
                   sqlite3_errstr(code));
    database_move_aside(&h->file);
}

/* Closes the file; the history is off until the next attempt. */
static void give_up(struct history *h, int code)
{
    snprintf(h->why, sizeof(h->why), "%s", database_why(&h->file, code));
    database_close(&h->file);
    h->retry_ns = clock_now_ns() + HISTORY_RETRY_NS;
    if (!h->failed)
        daemon_err("cannot keep history in %s: %s; the jobs go on", h->file.path, h->why);
    h->failed = true;
}

/* A damaged file is replaced once; if the new one is damaged too, the disk is at fault. */
static void open_history(struct history *h)
{
    int r = database_open(&h->file);

    if (database_is_damage(r)) {
        move_aside(h, r);
        r = database_open(&h->file);
    }
    if (r != SQLITE_OK)
        give_up(h, r);
}

/* After a failure a query is a reason to try again; waiting rows are not. */
static bool is_open(struct history *h, bool at_once)
{
    if (!h->file.db && (at_once || clock_now_ns() >= h->retry_ns))
        open_history(h);
    return h->file.db;
}

/* An operation on the open file failed. */
static void fail(struct history *h, int code)
{
    if (!database_is_damage(code)) {
        give_up(h, code);
        return;
    }
    move_aside(h, code);
    open_history(h);
}

int history_new(const char *dir, uint32_t mib, struct history **ret)
{
    struct history *h = calloc(1, sizeof(*h));

    if (!h)
        return -ENOMEM;
    h->last = &h->first;
    h->file.form = &form;
    h->file.statement = h->statement;
    h->file.pages_max = (int)(mib * ((1u << 20) / DATABASE_PAGE_BYTES));
    h->file.journal_pages = h->file.pages_max / 16;
    snprintf(h->file.path, sizeof(h->file.path), "%s/" HISTORY_FILE, dir);
    open_history(h);
    *ret = h;
    return 0;
}

static void drop_first(struct history *h)
{
    struct row *row = h->first;

    h->first = row->next;
    if (!h->first)
        h->last = &h->first;
    h->n--;
    free(row);
}

struct history *history_free(struct history *h)
{
    if (!h)
        return NULL;
    history_write(h, true);
    while (h->first)
        drop_first(h);
    database_close(&h->file);
    free(h);
    return NULL;
}

/* ---- writing ---- */

static struct row *queue(struct history *h, enum kind kind)
{
    unsigned most = HISTORY_QUEUE_MAX - (kind == ROW_JOB ? 0 : HISTORY_QUEUE_JOBS);
    struct row *row = h && h->n < most ? malloc(sizeof(*row)) : NULL;

    if (!row) {
        if (h)
            h->dropped++;
        return NULL;
    }
    row->next = NULL;
    row->kind = kind;
    *h->last = row;
    h->last = &row->next;
    h->n++;
    return row;
}

void history_job(struct history *h, const struct history_job *job)
{
    struct row *row = queue(h, ROW_JOB);

    if (row)
        row->job = *job;
}

void history_allocation(struct history *h, const struct history_allocation *allocation)
{
    struct row *row = queue(h, ROW_ALLOCATION);

    if (row)
        row->allocation = *allocation;
}

void history_rate(struct history *h, const struct history_rate *rate)
{
    struct row *row = queue(h, ROW_RATE);

    if (row)
        row->rate = *rate;
}

static void bind_text(sqlite3_stmt *s, int at, const char *text)
{
    sqlite3_bind_text(s, at, text, -1, SQLITE_STATIC);
}

static void bind_known(sqlite3_stmt *s, int at, uint64_t value)
{
    if (value)
        sqlite3_bind_int64(s, at, (sqlite3_int64)value);
    else
        sqlite3_bind_null(s, at);
}

static sqlite3_stmt *bind_key(struct history *h, enum statement which,
                              const struct history_key *key)
{
    sqlite3_stmt *s = h->statement[which];

    sqlite3_bind_int64(s, 1, key->number);
    sqlite3_bind_int64(s, 2, (sqlite3_int64)key->submitted_ms);
    return s;
}

static sqlite3_stmt *bind_job(struct history *h, const struct history_job *j)
{
    sqlite3_stmt *s = bind_key(h, ADD_JOB, &j->key);

    bind_text(s, 3, j->name);
    bind_text(s, 4, j->owner);
    sqlite3_bind_int64(s, 5, j->uid);
    bind_text(s, 6, j->container ? "container" : "process");
    bind_text(s, 7, j->command);
    bind_known(s, 8, j->begun_ms);
    bind_known(s, 9, j->ended_ms);
    if (j->exit >= 0)
        sqlite3_bind_int(s, 10, j->exit);
    else
        sqlite3_bind_null(s, 10);
    sqlite3_bind_int64(s, 11, (sqlite3_int64)j->run_ms);
    sqlite3_bind_int64(s, 12, (sqlite3_int64)j->wait_ms);
    bind_known(s, 13, j->asked.min);
    bind_known(s, 14, j->asked.max);
    sqlite3_bind_int64(s, 15, j->asked.weight);
    sqlite3_bind_int(s, 16, j->asked.priority);
    sqlite3_bind_int64(s, 17, j->asked.class);
    bind_known(s, 18, j->asked.request);
    bind_known(s, 19, j->asked.deadline_ms);
    bind_text(s, 20, placement_name(j->asked.placement));
    sqlite3_bind_int(s, 21, j->oom);
    sqlite3_bind_int(s, 22, j->cancelled);
    return s;
}

static sqlite3_stmt *bind_allocation(struct history *h, const struct history_allocation *a)
{
    sqlite3_stmt *s = bind_key(h, ADD_ALLOCATION, &a->key);

    sqlite3_bind_int64(s, 3, (sqlite3_int64)a->time_ms);
    sqlite3_bind_int64(s, 4, a->threads);
    bind_text(s, 5, a->cores);
    bind_text(s, 6, a->reason);
    return s;
}

static sqlite3_stmt *bind_rate(struct history *h, const struct history_rate *rate)
{
    sqlite3_stmt *s = bind_key(h, ADD_RATE, &rate->key);

    sqlite3_bind_int64(s, 3, (sqlite3_int64)rate->time_ms);
    sqlite3_bind_double(s, 4, rate->rate);
    sqlite3_bind_int64(s, 5, rate->threads);
    sqlite3_bind_int64(s, 6, (sqlite3_int64)rate->done);
    sqlite3_bind_int64(s, 7, (sqlite3_int64)rate->total);
    bind_text(s, 8, rate->unit);
    return s;
}

static int write_row(struct history *h, const struct row *row)
{
    switch (row->kind) {
    case ROW_JOB:
        return database_finish(bind_job(h, &row->job));
    case ROW_ALLOCATION:
        return database_finish(bind_allocation(h, &row->allocation));
    default:
        return database_finish(bind_rate(h, &row->rate));
    }
}

/* Pages in use; -1 if that cannot be read. */
static int pages_used(struct history *h)
{
    static const char *const pragmas[] = {"PRAGMA page_count", "PRAGMA freelist_count"};
    int count[2] = {0};

    for (unsigned i = 0; i < 2; i++) {
        sqlite3_stmt *s;

        if (sqlite3_prepare_v2(h->file.db, pragmas[i], -1, &s, NULL) != SQLITE_OK)
            return -1;
        if (sqlite3_step(s) == SQLITE_ROW)
            count[i] = sqlite3_column_int(s, 0);
        sqlite3_finalize(s);
    }
    return count[0] - count[1];
}

/* Trims before the batch is written, so that the batch has room. */
static int trim(struct history *h)
{
    bool large = pages_used(h) > h->file.pages_max - h->file.pages_max / 16;
    int r = SQLITE_OK;

    for (enum statement i = TRIM_JOB; r == SQLITE_OK && i <= TRIM_RATE; i++) {
        sqlite3_bind_int64(h->statement[i], 1, HISTORY_ROWS_MAX);
        sqlite3_bind_int64(h->statement[i], 2, large ? (int)(h->n + TRIM_ROWS) : 0);
        r = database_finish(h->statement[i]);
    }
    return r;
}

static int write_batch(struct history *h)
{
    int r = database_run(&h->file, "BEGIN IMMEDIATE");

    for (const struct row *row = h->first; r == SQLITE_OK && row; row = row->next)
        r = write_row(h, row);
    if (r == SQLITE_OK)
        r = trim(h);
    if (r == SQLITE_OK)
        r = database_run(&h->file, "COMMIT");
    if (r != SQLITE_OK && h->file.db)
        database_run(&h->file, "ROLLBACK");
    return r;
}

/* Writes into a new file if the old one turns out to be damaged. */
static int write_rows(struct history *h)
{
    int r = write_batch(h);

    if (r == SQLITE_OK)
        return r;
    fail(h, r);
    r = h->file.db ? write_batch(h) : r;
    if (r != SQLITE_OK && h->file.db)
        give_up(h, r);
    return r;
}

void history_write(struct history *h, bool at_once)
{
    uint64_t now = clock_now_ns();

    if (!h || !h->first || (!at_once && now - h->written_ns < HISTORY_WRITE_NS) ||
        !is_open(h, at_once))
        return;
    h->written_ns = now;
    if (write_rows(h) != SQLITE_OK)
        return; /* the rows wait, up to HISTORY_QUEUE_MAX */
    while (h->first)
        drop_first(h);
    if (h->failed)
        daemon_log("keeping history in %s again", h->file.path);
    h->failed = false;
}

unsigned history_made(const struct history *h)
{
    return h ? h->file.made : 0;
}

uint64_t history_dropped(const struct history *h)
{
    return h ? h->dropped : 0;
}

/* ---- asking ---- */

/* A file can hold any bytes. */
static json_t *column_text(sqlite3_stmt *s, int at)
{
    const unsigned char *text = sqlite3_column_text(s, at);

    return shown_text(text ? (const char *)text : "");
}

static json_t *column_number(sqlite3_stmt *s, int at)
{
    return sqlite3_column_type(s, at) == SQLITE_NULL ? json_null()
                                                     : json_integer(sqlite3_column_int64(s, at));
}

static json_t *column_seconds(sqlite3_stmt *s, int at)
{
    bool none = sqlite3_column_type(s, at) == SQLITE_NULL;

    return none ? json_null() : json_real((double)sqlite3_column_int64(s, at) / 1000);
}

struct history_search {
    struct history *history;
    struct history_filter filter;
    char job[PROTO_NAME_MAX + 1];
    sqlite3_int64 below; /* id of the oldest row examined so far */
    unsigned made;
    uint32_t shown; /* allocations in the list */
    json_t *list;
};

/* Most jobs change seldom: one that changes often may show many, and leaves the others enough. */
static uint32_t allocations_of_next(const struct history_search *q)
{
    uint32_t left =
        HISTORY_SHOWN_MAX - (q->shown < HISTORY_SHOWN_MAX ? q->shown : HISTORY_SHOWN_MAX);
    uint32_t least = HISTORY_SHOWN_MAX / HISTORY_LIMIT_MAX;

    if (q->filter.limit == 1)
        return HISTORY_SHOWN_MAX;
    return left / 4 > least ? left / 4 : least;
}

/* Those in the window, newest first, with the one in force when it begins. */
static int find_allocations(struct history_search *q, sqlite3_int64 id, json_t *ret, bool *cut)
{
    sqlite3_stmt *s = q->history->statement[FIND_ALLOCATION];
    uint32_t most = allocations_of_next(q), n = 0;
    bool begins = false;
    int r;

    *cut = false;
    sqlite3_bind_int64(s, 1, id);
    sqlite3_bind_int64(s, 2, (sqlite3_int64)q->filter.until_ms);
    while (!begins && (r = sqlite3_step(s)) == SQLITE_ROW && !(*cut = n == most)) {
        begins = sqlite3_column_int64(s, 0) <= (sqlite3_int64)q->filter.since_ms;
        json_array_append_new(ret, json_pack("{s:o,s:o,s:o,s:o}", "time", column_seconds(s, 0),
                                             "threads", column_number(s, 1), "cores",
                                             column_text(s, 2), "reason", column_text(s, 3)));
        n++;
    }
    q->shown += n;
    sqlite3_reset(s);
    return begins || *cut || r == SQLITE_DONE ? SQLITE_OK : r;
}

/* The job's mean speed and its last progress. */
static int find_progress(struct history *h, sqlite3_int64 id, json_t **ret)
{
    sqlite3_stmt *s = h->statement[FIND_RATE];
    int r;

    sqlite3_bind_int64(s, 1, id);
    r = sqlite3_step(s);
    if (r == SQLITE_ROW && sqlite3_column_type(s, 0) != SQLITE_NULL)
        *ret =
            json_pack("{s:f,s:o,s:o,s:o}", "rate", sqlite3_column_double(s, 0), "done",
                      column_number(s, 1), "total", column_number(s, 2), "unit", column_text(s, 3));
    else
        *ret = json_null();
    sqlite3_reset(s);
    return r == SQLITE_ROW ? SQLITE_OK : r;
}

static json_t *job_of(sqlite3_stmt *s, json_t *allocations, bool cut, json_t *progress)
{
    return json_pack(
        "{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:b,"
        "s:b,s:b}",
        "id", json_sprintf("j%lld", (long long)sqlite3_column_int64(s, 1)), "submitted",
        column_seconds(s, 2), "name", column_text(s, 3), "owner", column_text(s, 4), "kind",
        column_text(s, 5), "command", column_text(s, 6), "begun", column_seconds(s, 7), "ended",
        column_seconds(s, 8), "exit", column_number(s, 9), "run_s", column_seconds(s, 10), "wait_s",
        column_seconds(s, 11), "min", column_number(s, 12), "limit", column_number(s, 13), "weight",
        column_number(s, 14), "priority", column_number(s, 15), "class", column_number(s, 16),
        "request", column_number(s, 17), "deadline", column_seconds(s, 18), "placement",
        column_text(s, 19), "allocations", allocations, "progress", progress, "cut", cut, "oom",
        sqlite3_column_int(s, 20) != 0, "cancelled", sqlite3_column_int(s, 21) != 0);
}

static int load_job(struct history_search *q, sqlite3_int64 id)
{
    sqlite3_stmt *s = q->history->statement[LOAD_JOB];
    json_t *allocations = json_array(), *progress = NULL;
    bool cut;
    int r = find_allocations(q, id, allocations, &cut);

    if (r == SQLITE_OK)
        r = find_progress(q->history, id, &progress);
    sqlite3_bind_int64(s, 1, id);
    if (r == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW)
        json_array_append_new(q->list,
                              job_of(s, json_incref(allocations), cut, json_incref(progress)));
    json_decref(allocations);
    json_decref(progress);
    sqlite3_reset(s);
    return r;
}

static bool matches(const struct history_filter *f, sqlite3_stmt *s)
{
    return (f->all || sqlite3_column_int64(s, 1) == f->uid) &&
           sqlite3_column_int64(s, 3) < (sqlite3_int64)f->until_ms &&
           (sqlite3_column_type(s, 2) == SQLITE_NULL ||
            sqlite3_column_int64(s, 2) >= (sqlite3_int64)f->since_ms);
}

static sqlite3_stmt *bind_search(const struct history_search *q)
{
    bool by_id = q->job[0] == 'j' && q->job[1] && !q->job[1 + strspn(q->job + 1, "0123456789")];
    sqlite3_stmt *s = q->history->statement[by_id           ? FIND_NUMBER
                                            : q->job[0]     ? FIND_NAME
                                            : q->filter.all ? FIND_ANY
                                                            : FIND_OWN];

    sqlite3_clear_bindings(s);
    sqlite3_bind_int64(s, 1, q->below);
    if (by_id)
        sqlite3_bind_int64(s, 2, atoll(q->job + 1));
    else if (q->job[0])
        bind_text(s, 2, q->job);
    else if (!q->filter.all)
        sqlite3_bind_int64(s, 2, q->filter.uid);
    return s;
}

/* Returns SQLITE_DONE, SQLITE_ROW (more rows may follow) or an error. */
static int find_jobs(struct history_search *q, uint64_t until_ns)
{
    sqlite3_stmt *s = bind_search(q);
    int r;

    while ((r = sqlite3_step(s)) == SQLITE_ROW) {
        q->below = sqlite3_column_int64(s, 0);
        if (matches(&q->filter, s) && (r = load_job(q, q->below)) != SQLITE_OK)
            break;
        r = json_array_size(q->list) >= q->filter.limit ? SQLITE_DONE : SQLITE_ROW;
        if (r == SQLITE_DONE || clock_now_ns() >= until_ns)
            break;
    }
    sqlite3_reset(s);
    return r;
}

/* Starts at the newest row of the present file. */
static void begin_search(struct history_search *q)
{
    q->below = INT64_MAX;
    q->made = q->history->file.made;
    q->shown = 0;
    json_array_clear(q->list);
}

/* If the search finds damage, a new, empty file takes the old one's place. */
static int search(struct history_search *q, uint64_t until_ns)
{
    struct history *h = q->history;
    int r;

    if (q->made != h->file.made)
        begin_search(q);
    r = find_jobs(q, until_ns);
    if (r == SQLITE_DONE || r == SQLITE_ROW)
        return r;
    fail(h, r);
    begin_search(q);
    return h->file.db ? find_jobs(q, until_ns) : r;
}

int history_search_new(struct history *h, const struct history_filter *filter,
                       struct history_search **ret, struct error *err)
{
    struct history_search *q;

    if (!h)
        return error_word(err, error_set(err, -ENODATA, "this daemon keeps no history"),
                          "no-history");
    history_write(h, true);
    q = calloc(1, sizeof(*q));
    if (!q || !(q->list = json_array())) {
        free(q);
        return error_set(err, -ENOMEM, "out of memory");
    }
    q->history = h;
    q->filter = *filter;
    if (!q->filter.until_ms)
        q->filter.until_ms = INT64_MAX;
    snprintf(q->job, sizeof(q->job), "%s", filter->job ? filter->job : "");
    begin_search(q);
    *ret = q;
    return 0;
}

int history_search_go(struct history_search *q, uint64_t until_ns, json_t **ret, struct error *err)
{
    struct history *h = q->history;
    int r = is_open(h, true) ? search(q, until_ns) : SQLITE_CANTOPEN;

    if (r == SQLITE_ROW)
        return 1;
    if (r != SQLITE_DONE)
        return error_set(err, -ENODATA, "cannot keep history in %s: %s", h->file.path, h->why);
    *ret = json_incref(q->list);
    return 0;
}

struct history_search *history_search_free(struct history_search *q)
{
    if (q)
        json_decref(q->list);
    free(q);
    return NULL;
}
