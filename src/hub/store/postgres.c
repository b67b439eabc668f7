/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libpq in pipeline mode: the statements of a transaction go out one behind the other, and their
 * outcomes are read before the next question or with the commit. No call waits longer than
 * ANSWER_MS for the server, neither for its answer nor until it takes what is sent: a server that
 * has gone silent costs the event loop no more than that; the connection counts as lost then, and
 * is made anew a little at a time.
 */
#include "hub/store/schema.h"
#include "hub/store/store_dialect.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <libpq-fe.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "store-failed"

#define ANSWER_MS  10000
#define OPEN_MS    10000 /* the first connection */
#define AGAIN_MS   100   /* of a later one, at each attempt to use it */
#define PAUSE_NS   NS_PER_S
#define QUEUE_MAX  400 /* statements on their way: fewer bytes of answers than a socket holds */
#define PARAMS_MAX 13
#define OID_INT8   20
#define OID_TEXT   25

struct queued {
    enum statement which;
    bool statement; /* else BEGIN or COMMIT */
};

struct postgres {
    struct db db;
    PGconn *c;
    PGresult *rows; /* of ask */
    int row;
    char *where;
    bool connecting, prepared;
    bool opened;       /* prepared once: the schema is up to date */
    bool inside;       /* a transaction */
    uint64_t again_ns; /* no further attempt before */
    struct queued queue[QUEUE_MAX];
    int queued;
    int64_t changed;
    int failed;     /* within the transaction */
    bool committed; /* the last COMMIT was one */
    char problem[256];
};

static struct postgres *of(struct db *db)
{
    return (struct postgres *)db; /* its first member */
}

/* ---- failures ---- */

static int lost(struct postgres *p, const char *why)
{
    snprintf(p->problem, sizeof(p->problem), "%s", why);
    p->problem[strcspn(p->problem, "\n")] = '\0';
    if (p->c)
        PQfinish(p->c);
    p->c = NULL;
    p->connecting = p->prepared = false;
    p->queued = 0;
    p->again_ns = clock_now_ns() + PAUSE_NS;
    if (p->inside)
        p->failed = -ENOTCONN;
    return -ENOTCONN;
}

static int errno_of(const char *state)
{
    static const struct {
        const char *begin; /* of an SQLSTATE */
        int r;
    } of_states[] = {
        {"53100", -ENOSPC}, {"53200", -ENOMEM}, {"53300", -ENOTCONN}, {"08", -ENOTCONN},
        {"57P", -ENOTCONN}, {"57014", -EBUSY},  {"55P03", -EBUSY},    {"40", -EBUSY},
        {"42501", -EACCES}, {"28", -EACCES},    {"42", -EBADMSG},     {"XX00", -EBADMSG},
        {"25006", -EACCES}, {"58030", -EIO},
    };

    for (size_t i = 0; state && i < ARRAY_LEN(of_states); i++)
        if (strncmp(state, of_states[i].begin, strlen(of_states[i].begin)) == 0)
            return of_states[i].r;
    return -EIO;
}

/* 0 for a result of a statement that was carried out. */
static int outcome(struct postgres *p, const PGresult *result)
{
    ExecStatusType status = PQresultStatus(result);
    int r;

    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK || status == PGRES_EMPTY_QUERY)
        return 0;
    r = errno_of(PQresultErrorField(result, PG_DIAG_SQLSTATE));
    if (PQstatus(p->c) == CONNECTION_BAD)
        r = -ENOTCONN;
    if (status != PGRES_PIPELINE_ABORTED) {
        snprintf(p->problem, sizeof(p->problem), "%s", PQresultErrorMessage(result));
        p->problem[strcspn(p->problem, "\n")] = '\0';
    }
    return r;
}

/* ---- waiting ---- */

static int wait_for(struct postgres *p, short events, uint64_t until_ns)
{
    uint64_t now = clock_now_ns();
    struct pollfd fd = {.fd = PQsocket(p->c), .events = events};
    int n;

    if (fd.fd < 0)
        return lost(p, "the connection is closed");
    n = poll(&fd, 1, now < until_ns ? (int)((until_ns - now) / NS_PER_MS) + 1 : 0);
    if (n < 0 && errno != EINTR)
        return lost(p, strerror(errno));
    return n == 0 && clock_now_ns() >= until_ns ? -ETIMEDOUT : 0;
}

/* The next result, NULL at the end of a statement's. What was sent goes out meanwhile. */
static int result(struct postgres *p, PGresult **ret)
{
    uint64_t until = clock_now_ns() + ANSWER_MS * NS_PER_MS;
    int unsent;

    while ((unsent = PQflush(p->c)) == 1 || (unsent == 0 && PQisBusy(p->c))) {
        int r = wait_for(p, unsent ? POLLIN | POLLOUT : POLLIN, until);

        if (r == -ETIMEDOUT)
            return lost(p, "the server did not answer in 10 s");
        if (r < 0)
            return r;
        if (!PQconsumeInput(p->c))
            return lost(p, PQerrorMessage(p->c));
    }
    if (unsent < 0)
        return lost(p, PQerrorMessage(p->c));
    *ret = PQgetResult(p->c);
    return 0;
}

/* Judges the result of the queue's @i-th entry. Returns 0 or -errno. */
static int judge(struct postgres *p, int i, const PGresult *got)
{
    int r = outcome(p, got);

    if (r < 0)
        return r;
    if (!p->queue[i].statement) {
        p->committed = strcmp(PQcmdStatus((PGresult *)got), "COMMIT") == 0;
        return 0;
    }
    p->changed = strtoll(PQcmdTuples((PGresult *)got), NULL, 10);
    return statement_text[p->queue[i].which].one && p->changed != 1 ? -ESTALE : 0;
}

/* Reads the outcomes of what was sent; the first failure stays in p->failed. */
static int drain(struct postgres *p)
{
    PGresult *got = NULL;
    int r = 0;

    if (p->queued == 0)
        return p->failed;
    if (!PQpipelineSync(p->c))
        return lost(p, PQerrorMessage(p->c));
    for (int i = 0; r == 0 && i < p->queued;) {
        r = result(p, &got);
        if (r == 0 && got) {
            int k = judge(p, i, got);

            p->failed = p->failed ? p->failed : k;
            PQclear(got);
        } else if (r == 0) {
            i++;
        }
    }
    if (r == 0)
        r = result(p, &got); /* the end of the pipeline */
    if (r == 0) {
        PQclear(got);
        p->queued = 0;
        PQexitPipelineMode(p->c);
        if (PQstatus(p->c) == CONNECTION_BAD)
            r = lost(p, PQerrorMessage(p->c));
    }
    return r ? r : p->failed;
}

static int sent(struct postgres *p, int good, struct queued what)
{
    if (!good)
        return lost(p, PQerrorMessage(p->c));
    p->queue[p->queued++] = what;
    return p->queued == QUEUE_MAX ? drain(p) : 0;
}

static int queue_command(struct postgres *p, const char *sql)
{
    if (PQpipelineStatus(p->c) == PQ_PIPELINE_OFF)
        PQenterPipelineMode(p->c);
    return sent(p, PQsendQueryParams(p->c, sql, 0, NULL, NULL, NULL, NULL, 0),
                (struct queued){STATEMENT_MAX, false});
}

/* ---- the connection ---- */

static int run_now(struct postgres *p, const char *sql)
{
    PGresult *got = NULL;
    int r = PQsendQuery(p->c, sql) ? 0 : lost(p, PQerrorMessage(p->c)), failed = 0;

    while (r == 0 && (r = result(p, &got)) == 0 && got) {
        int k = outcome(p, got);

        failed = failed ? failed : k;
        PQclear(got);
    }
    return r ? r : failed;
}

static int prepare_one(struct postgres *p, int which)
{
    Oid types[PARAMS_MAX];
    char name[16];
    PGresult *got = NULL;
    int r, failed = 0;

    for (unsigned i = 0; i < PARAMS_MAX; i++)
        types[i] = i < statement_text[which].texts ? OID_TEXT : OID_INT8;
    snprintf(name, sizeof(name), "s%d", which);
    r = PQsendPrepare(p->c, name, statement_text[which].sql, PARAMS_MAX, types)
            ? 0
            : lost(p, PQerrorMessage(p->c));
    while (r == 0 && (r = result(p, &got)) == 0 && got) {
        int k = outcome(p, got);

        failed = failed ? failed : k;
        PQclear(got);
    }
    return r ? r : failed;
}

static int prepare(struct db *db)
{
    struct postgres *p = of(db);
    int r = 0;

    for (int i = 0; r == 0 && i < STATEMENT_MAX; i++)
        r = prepare_one(p, i);
    p->prepared = r == 0;
    p->opened |= p->prepared;
    return r;
}

/* Whatever the server's settings are, a commit is on its disk when it is told. */
static int settle(struct postgres *p)
{
    int r = run_now(p, "SET synchronous_commit = on; SET client_min_messages = warning;"
                       "SET default_transaction_isolation = 'read committed'");
    const char *version = PQparameterStatus(p->c, "server_version");

    if (r == 0 && PQserverVersion(p->c) < 120000) {
        snprintf(p->problem, sizeof(p->problem), "the server is PostgreSQL %.20s: use 12 or newer",
                 version ? version : "?");
        r = -EPROTONOSUPPORT;
    }
    return r;
}

static void ignore_notice(void *arg, const PGresult *notice)
{
}

/* Goes on with a connection until it is there, for at most @most_ms. */
static int connect_on(struct postgres *p, uint64_t most_ms)
{
    uint64_t until = clock_now_ns() + most_ms * NS_PER_MS;
    PostgresPollingStatusType state = PGRES_POLLING_WRITING;
    int r;

    if (!p->connecting) {
        p->c = PQconnectStart(p->where);
        if (!p->c)
            return -ENOMEM;
        p->connecting = true;
    } else {
        state = PQconnectPoll(p->c);
    }
    while (PQstatus(p->c) != CONNECTION_BAD && state != PGRES_POLLING_OK &&
           state != PGRES_POLLING_FAILED) {
        r = wait_for(p, state == PGRES_POLLING_READING ? POLLIN : POLLOUT, until);
        if (r < 0)
            return r == -ETIMEDOUT ? -ENOTCONN : r;
        state = PQconnectPoll(p->c);
    }
    if (state != PGRES_POLLING_OK)
        return lost(p, PQerrorMessage(p->c));
    p->connecting = false;
    PQsetNoticeReceiver(p->c, ignore_notice, NULL);
    r = PQsetnonblocking(p->c, 1) == 0 ? settle(p) : lost(p, PQerrorMessage(p->c));
    if (r < 0 && p->c) {
        char why[sizeof(p->problem)];

        memcpy(why, p->problem, sizeof(why));
        lost(p, why);
    }
    return r;
}

/* Outside of a transaction. */
static int ready(struct postgres *p)
{
    int r = 0;

    if (p->c && !p->connecting && PQstatus(p->c) == CONNECTION_OK && (p->prepared || !p->opened))
        return 0;
    if (!p->connecting && p->c)
        lost(p, PQerrorMessage(p->c));
    if (!p->connecting && clock_now_ns() < p->again_ns)
        return -ENOTCONN;
    r = connect_on(p, AGAIN_MS);
    return r ? r : prepare(&p->db);
}

static void close_connection(struct db *db)
{
    struct postgres *p = of(db);

    if (p->rows)
        PQclear(p->rows);
    if (p->c)
        PQfinish(p->c);
    free(p->where);
    free(p);
}

/* ---- statements ---- */

static int run(struct db *db, const char *sql)
{
    int r = drain(of(db)); /* the beginning of a transaction */

    return r ? r : run_now(of(db), sql);
}

static int begin(struct db *db)
{
    struct postgres *p = of(db);
    int r = ready(p);

    p->failed = 0;
    p->inside = r == 0;
    return r ? r : queue_command(p, "BEGIN");
}

static int commit(struct db *db)
{
    struct postgres *p = of(db);
    int r =
        p->failed ? p->failed : drain(p); /* a statement that changed no row is no error there */

    p->committed = false;
    r = r ? r : queue_command(p, "COMMIT");
    r = r ? r : drain(p);
    if (r == 0 && !p->committed)
        r = -EIO; /* the server says ROLLBACK */
    p->inside = r < 0;
    return r;
}

static void rollback(struct db *db)
{
    struct postgres *p = of(db);
    char why[sizeof(p->problem)];

    memcpy(why, p->problem, sizeof(why));
    if (p->c && !p->connecting) {
        drain(p);
        if (p->c)
            run_now(p, "ROLLBACK");
    }
    p->failed = 0;
    p->inside = false;
    memcpy(p->problem, why, sizeof(why));
}

static int send(struct postgres *p, enum statement which, const struct values *v)
{
    const char *value[PARAMS_MAX] = {0};
    char digits[10][24], name[16];

    for (unsigned i = 0; i < v->texts; i++)
        value[i] = v->text[i];
    for (unsigned i = 0; i < v->numbers; i++) {
        snprintf(digits[i], sizeof(digits[i]), "%" PRId64, v->number[i]);
        value[v->texts + i] = digits[i];
    }
    snprintf(name, sizeof(name), "s%d", (int)which);
    return PQsendQueryPrepared(p->c, name, PARAMS_MAX, value, NULL, NULL, 0);
}

static int do_write(struct db *db, enum statement which, const struct values *v)
{
    struct postgres *p = of(db);

    if (p->failed || !p->c)
        return p->failed ? p->failed : -ENOTCONN;
    if (PQpipelineStatus(p->c) == PQ_PIPELINE_OFF)
        PQenterPipelineMode(p->c);
    return sent(p, send(p, which, v), (struct queued){which, true});
}

static int changed(struct db *db, int64_t *ret)
{
    int r = drain(of(db));

    if (r == 0)
        *ret = of(db)->changed;
    return r;
}

static void end(struct db *db)
{
    struct postgres *p = of(db);

    if (p->rows)
        PQclear(p->rows);
    p->rows = NULL;
}

/* The rows of what was sent last stay in p->rows. */
static int read_rows(struct postgres *p)
{
    PGresult *got = NULL;
    int r, failed = 0;

    while ((r = result(p, &got)) == 0 && got) {
        int k = outcome(p, got);

        if (k == 0 && !p->rows)
            p->rows = got;
        else
            PQclear(got);
        failed = failed ? failed : k;
    }
    r = r ? r : failed;
    if (r < 0)
        end(&p->db);
    p->row = -1;
    return r;
}

static int ask(struct db *db, enum statement which, const struct values *v)
{
    struct postgres *p = of(db);
    int r = p->inside ? drain(p) : ready(p);

    if (r == 0 && !send(p, which, v))
        r = lost(p, PQerrorMessage(p->c));
    r = r ? r : read_rows(p);
    if (r < 0 && p->inside)
        p->failed = r;
    return r;
}

static int next(struct db *db)
{
    return ++of(db)->row < PQntuples(of(db)->rows);
}

static int64_t number(struct db *db, int column)
{
    return strtoll(PQgetvalue(of(db)->rows, of(db)->row, column), NULL, 10);
}

static const char *text(struct db *db, int column)
{
    return PQgetvalue(of(db)->rows, of(db)->row, column);
}

static const char *problem(struct db *db)
{
    return of(db)->problem;
}

/* ---- versions ---- */

static int version(struct db *db, int64_t *ret)
{
    struct postgres *p = of(db);
    int r = run_now(p, "CREATE TABLE IF NOT EXISTS tide_hub (version BIGINT NOT NULL)");

    if (r == 0 && !PQsendQuery(p->c, "SELECT coalesce(max(version), 0) FROM tide_hub"))
        r = lost(p, PQerrorMessage(p->c));
    r = r ? r : read_rows(p);
    if (r == 0 && next(db))
        *ret = number(db, 0);
    end(db);
    return r;
}

static int set_version(struct db *db, int64_t to)
{
    char sql[128];

    snprintf(sql, sizeof(sql),
             "DELETE FROM tide_hub; INSERT INTO tide_hub (version) VALUES (%" PRId64 ")", to);
    return run_now(of(db), sql);
}

static const struct db_dialect dialect = DB_DIALECT(store_steps_postgres, close_connection);

int postgres_store_open(const char *where, struct db **ret, struct error *err)
{
    struct postgres *p = calloc(1, sizeof(*p));
    int r;

    if (!p || !(p->where = strdup(where))) {
        free(p);
        return error_set(err, -ENOMEM, "out of memory");
    }
    p->db.dialect = &dialect;
    r = connect_on(p, OPEN_MS);
    if (r < 0) {
        error_set(err, r, "PostgreSQL: %s", p->problem[0] ? p->problem : "no answer in 10 s");
        close_connection(&p->db);
        return r;
    }
    *ret = &p->db;
    return 0;
}
