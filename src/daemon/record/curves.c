/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/record/curves.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/daemon.h"
#include "daemon/job/job.h"
#include "daemon/job/program.h"
#include "daemon/record/database.h"
#include "host/proc/file.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "state-unusable"

#define LEARN_NS    NS_PER_S /* between two looks at what a job has learnt */
#define AGE_S       60       /* a row's time is written anew at most this often */
#define PAGES_MAX   1024     /* a row takes about 100 bytes */
#define THREADS_MAX (FIT_COUNTS * 5 + 1)

const char *const curves_steps[] = {
    "CREATE TABLE curve (slot INTEGER PRIMARY KEY, uid INTEGER NOT NULL, program INTEGER NOT NULL,"
    " processor INTEGER NOT NULL, parallel INTEGER NOT NULL, contention INTEGER NOT NULL,"
    " error INTEGER NOT NULL, confidence INTEGER NOT NULL, threads TEXT NOT NULL,"
    " used INTEGER NOT NULL);",
};
const unsigned curves_version = ARRAY_LEN(curves_steps);

enum statement { READ, PUT, REMOVE, STATEMENT_MAX };

static const char *const statement_text[] = {
    [READ] = "SELECT slot, uid, program, processor, parallel, contention, error, confidence,"
             " threads, used FROM curve",
    [PUT] = "INSERT OR REPLACE INTO curve (slot, uid, program, processor, parallel, contention,"
            " error, confidence, threads, used) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    [REMOVE] = "DELETE FROM curve WHERE slot = ?1",
};
static_assert(ARRAY_LEN(statement_text) == STATEMENT_MAX, "a statement without text");

static const struct database_form form = {curves_steps, ARRAY_LEN(curves_steps), statement_text,
                                          STATEMENT_MAX, 256};

struct row {
    struct curves_key key;
    struct prior prior; /* count 0: the row is free */
    uint64_t used_s;    /* since 1970 */
    bool dirty;         /* to be written, or removed from the file */
};

struct curves {
    struct database file;
    sqlite3_stmt *statement[STATEMENT_MAX];
    struct row row[CURVES_MAX]; /* a row's number is its slot in the file */
    uint64_t processor, written_ns, retry_ns;
    bool processor_known, read, failed, dirty;
    bool ended; /* a job has: no later look may follow */
};

/* ---- the file -------------------------------------------------------------------------------- */

static void give_up(struct curves *c, int code)
{
    if (!c->failed)
        daemon_err("cannot keep speed-up curves in %s: %s; the jobs go on", c->file.path,
                   database_why(&c->file, code));
    c->failed = true;
    database_close(&c->file);
    c->retry_ns = clock_now_ns() + CURVES_RETRY_NS;
}

static bool parse_threads(const char *text, struct prior *ret)
{
    while (text && *text) {
        uint64_t threads;

        if (ret->count == FIT_COUNTS || text_scan_u64(&text, &threads) < 0 ||
            threads > FIT_THREADS_MAX)
            return false;
        ret->threads[ret->count++] = (uint32_t)threads;
        text += *text == ' ';
    }
    return prior_valid(ret);
}

/* A number of the file, larger than any valid one where it is negative. */
static uint64_t column(sqlite3_stmt *s, int at)
{
    return (uint64_t)sqlite3_column_int64(s, at);
}

static void take_row(struct curves *c, sqlite3_stmt *s)
{
    uint64_t slot = column(s, 0), uid = column(s, 1);
    struct row row = {
        .key = {.uid = (uid_t)uid, .program = column(s, 2), .processor = column(s, 3)},
        .prior = {.parallel = column(s, 4), .contention = column(s, 5)},
        .used_s = column(s, 9)};
    uint64_t error = column(s, 6), confidence = column(s, 7);

    if (slot >= CURVES_MAX || uid >= UINT32_MAX || error > 1000 || confidence > 1000)
        return;
    row.prior.error_permille = (uint32_t)error;
    row.prior.confidence_permille = (uint32_t)confidence;
    if (parse_threads((const char *)sqlite3_column_text(s, 8), &row.prior))
        c->row[slot] = row;
}

/* Curves learnt before the file could be read join the rows that it has. */
static int read_rows(struct curves *c)
{
    _cleanup_free_ struct row *before = c->dirty ? malloc(sizeof(c->row)) : NULL;
    sqlite3_stmt *s = c->statement[READ];
    int r;

    if (c->dirty && !before)
        return SQLITE_NOMEM;
    if (before) {
        memcpy(before, c->row, sizeof(c->row));
        memset(c->row, 0, sizeof(c->row));
    }
    while ((r = sqlite3_step(s)) == SQLITE_ROW)
        take_row(c, s);
    sqlite3_reset(s);
    for (unsigned i = 0; before && i < CURVES_MAX; i++)
        if (before[i].prior.count)
            curves_keep(c, &before[i].key, &before[i].prior, before[i].used_s);
    return r == SQLITE_DONE ? SQLITE_OK : r;
}

/* Puts down all that is in memory: the file is a new one. */
static void write_all_anew(struct curves *c)
{
    if (!c->failed)
        daemon_err("%s is damaged: moved aside and replaced", c->file.path);
    for (unsigned i = 0; i < CURVES_MAX; i++)
        c->row[i].dirty = c->row[i].prior.count > 0;
    c->dirty = true;
}

static int open_and_read(struct curves *c)
{
    int r = database_open(&c->file);

    return r == SQLITE_OK && !c->read ? read_rows(c) : r;
}

void curves_open(struct curves *c, bool at_once)
{
    int r;

    if (c->file.db || (!at_once && clock_now_ns() < c->retry_ns))
        return;
    r = open_and_read(c);
    if (database_is_damage(r)) {
        database_move_aside(&c->file);
        r = open_and_read(c);
        write_all_anew(c);
    }
    if (r != SQLITE_OK) {
        give_up(c, r);
        return;
    }
    c->read = true;
}

static int write_row(struct curves *c, unsigned slot)
{
    const struct row *row = &c->row[slot];
    sqlite3_stmt *s = c->statement[row->prior.count ? PUT : REMOVE];
    char threads[THREADS_MAX] = "";
    int len = 0;

    sqlite3_bind_int(s, 1, (int)slot);
    if (row->prior.count == 0)
        return database_finish(s);
    for (uint32_t i = 0; i < row->prior.count; i++)
        len += snprintf(threads + len, sizeof(threads) - (size_t)len, "%s%u", i ? " " : "",
                        row->prior.threads[i]);
    sqlite3_bind_int64(s, 2, row->key.uid);
    sqlite3_bind_int64(s, 3, (sqlite3_int64)row->key.program);
    sqlite3_bind_int64(s, 4, (sqlite3_int64)row->key.processor);
    sqlite3_bind_int64(s, 5, (sqlite3_int64)row->prior.parallel);
    sqlite3_bind_int64(s, 6, (sqlite3_int64)row->prior.contention);
    sqlite3_bind_int64(s, 7, row->prior.error_permille);
    sqlite3_bind_int64(s, 8, row->prior.confidence_permille);
    sqlite3_bind_text(s, 9, threads, len, SQLITE_TRANSIENT);
    sqlite3_bind_int64(s, 10, (sqlite3_int64)row->used_s);
    return database_finish(s);
}

static int write_batch(struct curves *c)
{
    int r = database_run(&c->file, "BEGIN IMMEDIATE");

    for (unsigned i = 0; r == SQLITE_OK && i < CURVES_MAX; i++)
        if (c->row[i].dirty)
            r = write_row(c, i);
    return r == SQLITE_OK ? database_run(&c->file, "COMMIT") : r;
}

void curves_write(struct curves *c)
{
    int r;

    if (!c->dirty || !c->file.db)
        return;
    r = write_batch(c);
    if (database_is_damage(r)) {
        database_move_aside(&c->file);
        write_all_anew(c);
        curves_open(c, true);
        r = c->file.db ? write_batch(c) : SQLITE_OK; /* else it is given up already */
    }
    if (!c->file.db)
        return;
    if (r != SQLITE_OK) {
        give_up(c, r);
        return;
    }
    for (unsigned i = 0; i < CURVES_MAX; i++)
        c->row[i].dirty = false;
    c->dirty = false;
    if (c->failed)
        daemon_log("keeping speed-up curves in %s again", c->file.path);
    c->failed = false;
}

/* ---- the table ------------------------------------------------------------------------------- */

static bool is_of(const struct row *row, const struct curves_key *key)
{
    return row->prior.count && row->key.program == key->program &&
           row->key.processor == key->processor;
}

static struct row *row_of(struct curves *c, const struct curves_key *key)
{
    for (unsigned i = 0; i < CURVES_MAX; i++)
        if (is_of(&c->row[i], key) && c->row[i].key.uid == key->uid)
            return &c->row[i];
    return NULL;
}

bool curves_find(const struct curves *c, const struct curves_key *key, bool shared,
                 struct prior *ret, uid_t *ret_uid)
{
    const struct row *found = NULL;

    for (unsigned i = 0; i < CURVES_MAX; i++) {
        const struct row *row = &c->row[i];
        bool own = row->key.uid == key->uid;

        if (!is_of(row, key) || (!own && !shared))
            continue;
        if (own || !found || (found->key.uid != key->uid && row->used_s > found->used_s))
            found = row;
        if (own)
            break;
    }
    if (!found)
        return false;
    *ret = found->prior;
    *ret_uid = found->key.uid;
    return true;
}

static unsigned rows_of(const struct curves *c, uid_t uid)
{
    unsigned n = 0;

    for (unsigned i = 0; i < CURVES_MAX; i++)
        n += c->row[i].prior.count && c->row[i].key.uid == uid;
    return n;
}

/* A free row, else the least recently used one of the user who has the most. */
static struct row *make_room(struct curves *c)
{
    struct row *worst = &c->row[0];
    unsigned most = 0;

    for (unsigned i = 0; i < CURVES_MAX; i++) {
        struct row *row = &c->row[i];
        unsigned n;

        if (row->prior.count == 0)
            return row;
        n = row->key.uid == worst->key.uid && most ? most : rows_of(c, row->key.uid);
        if (n > most || (n == most && row->used_s < worst->used_s))
            worst = row;
        most = n > most ? n : most;
    }
    return worst;
}

static void change(struct curves *c, struct row *row)
{
    row->dirty = c->dirty = true;
}

void curves_keep(struct curves *c, const struct curves_key *key, const struct prior *prior,
                 uint64_t now_s)
{
    struct row *row = row_of(c, key);

    if (!row)
        row = make_room(c);
    *row = (struct row){.key = *key, .prior = *prior, .used_s = now_s};
    change(c, row);
}

void curves_forget(struct curves *c, const struct curves_key *key)
{
    struct row *row = row_of(c, key);

    if (!row)
        return;
    *row = (struct row){0};
    change(c, row);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static struct curves_key key_of(struct curves *c, const struct job *j)
{
    if (!c->processor_known)
        c->processor = program_processor(j->daemon->root);
    c->processor_known = true;
    return (struct curves_key){j->uid, j->program.hash, c->processor};
}

/* The first process that reports how far it is: by then it runs its program. */
static const struct process *reporter(const struct job *j)
{
    for (const struct process *p = j->processes; p; p = p->next)
        if (process_malleable(p) && p->beat)
            return p;
    return NULL;
}

static void meet(struct curves *c, struct job *j, uint64_t now)
{
    const struct process *p = reporter(j);
    struct curves_key key;
    struct prior prior;
    struct row *row;
    uid_t uid;

    if (!p)
        return;
    j->program.looked = true;
    j->program.pid = p->pid;
    j->program.known = program_read(j->daemon->root, p->pid, &j->program.hash) == 0;
    if (!j->program.known)
        return;
    key = key_of(c, j);
    if (!curves_find(c, &key, j->daemon->config.curves == CURVES_SHARE, &prior, &uid))
        return;
    speed_recall(j, &prior, uid != j->uid, now);
    row = row_of(c, &key);
    if (row) {
        row->used_s = clock_real_ms() / 1000;
        change(c, row);
    }
}

/* Whether a row would be another one for those who begin with it. */
static bool is_news(const struct row *row, const struct prior *prior, uint64_t now_s)
{
    const struct prior *old = &row->prior;
    uint64_t parallel = old->parallel > prior->parallel ? old->parallel - prior->parallel
                                                        : prior->parallel - old->parallel;

    return parallel > FIT_ONE / 50 || (old->contention == 0) != (prior->contention == 0) ||
           old->count != prior->count ||
           memcmp(old->threads, prior->threads, sizeof(old->threads)) != 0 ||
           prior->confidence_permille > old->confidence_permille + 50 ||
           now_s > row->used_s + AGE_S;
}

static void learn(struct curves *c, struct job *j, uint64_t now)
{
    uint64_t now_s = clock_real_ms() / 1000;
    struct curves_key key;
    struct prior prior;
    const struct row *row;

    if (!j->program.known)
        return;
    key = key_of(c, j);
    if (j->observed.speed.earlier == SPEED_EARLIER_REFUTED && !j->program.refuted) {
        curves_forget(c, &key);
        j->program.refuted = true;
    }
    if (!speed_learnt(j, now, &prior))
        return;
    row = row_of(c, &key);
    if (!row || is_news(row, &prior, now_s))
        curves_keep(c, &key, &prior, now_s);
}

static void look_at(struct curves *c, struct job *j, uint64_t now)
{
    if (!j->program.looked)
        meet(c, j, now);
    if (now - j->program.at_ns < LEARN_NS)
        return;
    j->program.at_ns = now;
    learn(c, j, now);
}

void curves_look(struct daemon *d)
{
    struct curves *c = d->curves;
    uint64_t now = clock_now_ns();

    if (!c || d->config.curves == CURVES_NONE)
        return;
    curves_open(c, false);
    for (struct job *j = d->jobs->first; j; j = j->next)
        look_at(c, j, now);
    if (c->dirty && (c->ended || now - c->written_ns >= CURVES_WRITE_NS)) {
        c->written_ns = now;
        curves_write(c);
    }
    c->ended = false;
}

/* The job's next programs say nothing of this one. */
static void process_gone(struct process *p)
{
    struct job *j = p->job;

    if (!j->program.known || j->program.pid != p->pid || !j->daemon->curves)
        return;
    if (j->daemon->config.curves != CURVES_NONE)
        learn(j->daemon->curves, j, clock_now_ns());
    j->program.known = false;
}

static void gone(struct job *j)
{
    if (j->daemon->curves)
        j->daemon->curves->ended = true;
}

const struct job_observer curves_observer = {.process_gone = process_gone, .gone = gone};

int curves_new(const char *dir, struct curves **ret)
{
    struct curves *c = calloc(1, sizeof(*c));

    if (!c)
        return -ENOMEM;
    c->file.form = &form;
    c->file.statement = c->statement;
    c->file.pages_max = PAGES_MAX;
    c->file.journal_pages = DATABASE_WAL_PAGES;
    snprintf(c->file.path, sizeof(c->file.path), "%s/" CURVES_FILE, dir);
    *ret = c;
    return 0;
}

struct curves *curves_free(struct curves *c)
{
    if (!c)
        return NULL;
    curves_write(c);
    database_close(&c->file);
    free(c);
    return NULL;
}
