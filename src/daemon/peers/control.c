/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/control.h"

#include "base/clock.h"
#include "daemon/daemon.h"
#include "daemon/job/confine.h"
#include "daemon/job/limits.h"
#include "daemon/link/agent_socket.h"
#include "daemon/plan/plan.h"
#include "daemon/plan/wait.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define ERROR_WORD "order-refused"

#define WAITS_MAX 16 /* waiting orders of one controlling program */

/* ---- pins ---- */

void control_keep(struct job *j, struct threads threads, const struct cpuset *cores, bool governs)
{
    uint32_t has = j->asked.pinned.intra ? j->asked.pinned.intra
                   : j->wanted.share     ? j->wanted.share
                                         : 1;

    if (threads.intra == 0)
        threads.intra = cores ? cpuset_count(cores) : has;
    j->asked.kept = true;
    j->asked.kept_cores = cores ? *cores : j->wanted.cores;
    control_pin(j, threads, governs);
}

void control_pin(struct job *j, struct threads threads, bool governs)
{
    if (threads.intra == 0 && j->asked.kept) {
        j->asked.kept = false;
        j->confine->unpin(j);
    }
    for (struct process *p = j->processes; p; p = p->next)
        p->local = (struct threads){0};
    j->asked.pinned = threads;
    j->asked.pinned_by = PROTO_SOURCE_DAEMON;
    j->asked.granted = threads.intra && governs;
    j->asked.urgent = true;
    j->dirty = true;
    daemon_store_later(j->daemon);
    plan_make_now(j->daemon);
}

/* ---- answers ---- */

/* An answer may wait for room; a program whose answers overflow the queue is disconnected. */
static void answer(struct connection *connection, const union proto_message *m)
{
    if (connection->n_queue == 0 && connection_send(connection, m) != -EAGAIN)
        return;
    if (!connection->queue)
        connection->queue = calloc(AGENT_SOCKET_QUEUE_MAX, sizeof(*connection->queue));
    if (!connection->queue || connection->n_queue == AGENT_SOCKET_QUEUE_MAX) {
        connection_hang_up(connection);
        return;
    }
    connection->queue[connection->n_queue++] = *m;
}

static void result_init(union proto_message *m, uint32_t cookie, int status, const char *text)
{
    proto_init(m, PROTO_RESULT, cookie);
    m->result.status = status;
    snprintf(m->result.text, sizeof(m->result.text), "%s", text);
}

static void fail(struct connection *connection, uint32_t cookie, const struct error *err)
{
    union proto_message m;

    result_init(&m, cookie, err->code, err->text);
    answer(connection, &m);
}

/* ---- list ---- */

static void job_message(const struct job *j, uint32_t cookie, union proto_message *m)
{
    struct proto_job *row = &m->job;
    const struct process *first = j->processes;
    char cores[CPUSET_TEXT_MAX];
    struct cpuset set;

    proto_init(m, PROTO_JOB, cookie);
    row->pid = first ? (uint32_t)first->pid : 0;
    row->allowed_mcpu = job_allowed_mcpu(j);
    row->target = job_target(j);
    row->active = job_active(j);
    row->max = job_max(j);
    row->oversubscribed = job_oversubscribed(j);
    row->lent = j->asked.lent;
    row->borrowed = j->wanted.borrowed;
    row->rate_milli = (uint64_t)(job_rate(j) * 1000);
    memcpy(row->id, j->id, sizeof(row->id));
    memcpy(row->name, j->name, sizeof(row->name));
    snprintf(row->state, sizeof(row->state), "%s", job_state(j, clock_now_ns()));
    for (const struct process *p = first; p; p = p->next) {
        row->progress_done += p->progress_done ? p->progress_done : p->tasks;
        row->progress_total += p->progress_total;
        if (!row->unit[0])
            snprintf(row->unit, sizeof(row->unit), "%s", p->progress_done ? p->unit : "tasks");
    }
    job_cores(j, &set);
    if (cpuset_format(&set, cores, sizeof(cores)) < 0)
        cores[0] = '\0';
    if (strlen(cores) >= sizeof(row->cores)) {
        cores[sizeof(row->cores) - 4] = '\0';
        char *comma = strrchr(cores, ',');

        strcpy(comma ? comma + 1 : cores, "…");
    }
    memcpy(row->cores, cores, strlen(cores) + 1);
}

/* Goes on where the socket was full; a list is never copied into memory. */
static void list_continue(struct connection *connection)
{
    struct daemon *d = connection->daemon;
    union proto_message m;

    for (const struct job *j = d->jobs->first; j && connection->n_queue == 0; j = j->next) {
        if (j->number <= connection->list_after || !control_may_read(d, &connection->who, j))
            continue;
        job_message(j, connection->list_cookie, &m);
        if (connection_send(connection, &m) != 0)
            return;
        connection->list_after = j->number;
    }
    connection->listing = false;
    result_init(&m, connection->list_cookie, 0, "");
    answer(connection, &m);
}

static void on_writable(struct connection *connection)
{
    unsigned sent = 0;

    while (sent < connection->n_queue && connection_send(connection, &connection->queue[sent]) == 0)
        sent++;
    connection->n_queue -= sent;
    if (connection->queue)
        memmove(connection->queue, connection->queue + sent,
                connection->n_queue * sizeof(*connection->queue));
    if (connection->listing && connection->n_queue == 0)
        list_continue(connection);
}

/* ---- orders ---- */

struct order {
    struct order *next; /* of the same connection */
    struct connection *connection;
    struct job *begins; /* waits until this job runs; NULL: for an acknowledgement */
    uint64_t wait;
    uint32_t cookie, flags, from, to;
    bool fewer; /* of cores than requested */
};

static void order_unlink(struct order *o)
{
    struct order **at = &o->connection->orders;

    while (*at && *at != o)
        at = &(*at)->next;
    if (*at)
        *at = o->next;
}

static void order_done(void *arg, struct job *j, enum wait_outcome outcome, uint64_t latency_ns)
{
    static const char *const texts[] = {
        [WAIT_DONE] = "",
        [WAIT_PENDING] = "accepted; no process of the job has a thread pool yet",
        [WAIT_PARTIAL] = "not every process has acknowledged in time",
        [WAIT_GONE] = "the job ended",
    };
    struct order *o = arg;
    union proto_message m;

    result_init(&m, o->cookie, 0, texts[outcome]);
    if (outcome == WAIT_PARTIAL || (outcome != WAIT_GONE && o->fewer))
        m.result.status = PROTO_RESULT_PARTIAL;
    if (outcome == WAIT_GONE)
        m.result.status = -ESRCH;
    if (o->fewer && !m.result.text[0])
        snprintf(m.result.text, sizeof(m.result.text), "fewer cores than requested");
    m.result.from = o->from;
    m.result.to = o->to;
    m.result.oversubscribed = j && job_oversubscribed(j);
    m.result.latency_ns = o->flags & PROTO_CONTROL_WAIT ? latency_ns : 0;
    order_unlink(o);
    if (!(o->flags & PROTO_CONTROL_QUIET) || m.result.status < 0)
        answer(o->connection, &m);
    free(o);
}

static void order_begins(void *arg, int result)
{
    struct order *o = arg;
    union proto_message m;

    order_unlink(o);
    if (result != -ESHUTDOWN) { /* else the runner asks the next daemon */
        result_init(&m, o->cookie, result, result ? "the job was cancelled" : "");
        answer(o->connection, &m);
    }
    free(o);
}

static void on_gone(struct connection *connection)
{
    while (connection->orders) {
        struct order *o = connection->orders;

        connection->orders = o->next;
        if (o->begins)
            admission_forget(o->begins, o);
        else
            wait_cancel(connection->daemon, o->wait);
        free(o);
    }
}

static unsigned waiting(const struct connection *connection)
{
    unsigned n = 0;

    for (const struct order *o = connection->orders; o; o = o->next)
        n++;
    return n;
}

static struct order *order_new(struct connection *connection, const struct proto_control *m,
                               const struct order *made)
{
    struct order *o = malloc(sizeof(*o));

    if (!o) {
        connection_hang_up(connection);
        return NULL;
    }
    *o = *made;
    o->connection = connection;
    o->cookie = m->h.cookie;
    o->flags = m->flags;
    o->next = connection->orders;
    connection->orders = o;
    return o;
}

/* Answers at once, or when the job is settled. */
static void conclude(struct connection *connection, const struct proto_control *m, struct job *j,
                     const struct order *made)
{
    uint64_t now = clock_now_ns();
    uint64_t sent = m->sent_ns && m->sent_ns < now ? m->sent_ns : now;
    uint64_t deadline_ms = m->deadline_ms ? m->deadline_ms : DAEMON_WAIT_MS;
    struct order *o = order_new(connection, m, made);

    if (!o)
        return;
    if (deadline_ms > DAEMON_WAIT_MAX_MS)
        deadline_ms = DAEMON_WAIT_MAX_MS;
    if (!(m->flags & PROTO_CONTROL_WAIT))
        order_done(o, j, WAIT_DONE, 0);
    else if (wait_start(j, sent, now + deadline_ms * NS_PER_MS, order_done, o, &o->wait) < 0)
        order_done(o, j, WAIT_PARTIAL, 0);
}

static void do_set(struct connection *connection, const struct proto_control *m, struct job *j)
{
    struct order o = {.from = job_target(j)};

    control_pin(j, (struct threads){m->intra, m->intra ? m->inter : 0},
                control_may_govern(j->daemon, &connection->who));
    o.to = job_target(j);
    conclude(connection, m, j, &o);
}

/* The job's runner: waits without a deadline, and disconnects if it gives up. */
static void do_begin(struct connection *connection, const struct proto_control *m, struct job *j)
{
    struct order *o = order_new(connection, m, &(struct order){.begins = j});

    if (o && admission_wait(j, order_begins, o) < 0)
        connection_hang_up(connection);
}

static int check_loan(const struct proto_control *m, const struct job *j, struct error *err)
{
    if ((m->verb == PROTO_VERB_LEND || m->verb == PROTO_VERB_BORROW) && m->intra == 0)
        return error_set(err, -EINVAL, "the number of cores to %s is 0: use 1 or more",
                         m->verb == PROTO_VERB_LEND ? "lend" : "borrow");
    if ((m->verb == PROTO_VERB_LEND || m->verb == PROTO_VERB_BORROW) && j->asked.pinned.intra)
        return error_set(err, -EBUSY, "job %s is pinned to %u threads: run 'tide set --auto' first",
                         j->id, j->asked.pinned.intra);
    return 0;
}

static void do_loan(struct connection *connection, const struct proto_control *m, struct job *j)
{
    bool lends = m->verb == PROTO_VERB_LEND || m->verb == PROTO_VERB_RECLAIM;
    struct order o = {.from = lends ? j->asked.lent : j->wanted.borrowed};
    uint32_t least = devices_least(j), room;

    daemon_decide_due(j->daemon); /* the share of a job that has just begun */
    room = j->wanted.share > least ? j->wanted.share - least : 0;
    switch (m->verb) {
    case PROTO_VERB_LEND:
        j->asked.lent += m->intra < room ? m->intra : room;
        break;
    case PROTO_VERB_RECLAIM:
        j->asked.lent = 0;
        break;
    case PROTO_VERB_BORROW:
        j->asked.wants = j->wanted.borrowed + m->intra;
        j->asked.borrow_order = ++j->daemon->jobs->last_borrow;
        break;
    case PROTO_VERB_RETURN:
        j->asked.wants = j->wanted.borrowed = 0;
        break;
    }
    plan_make_now(j->daemon);
    o.to = lends ? j->asked.lent : j->wanted.borrowed;
    if (m->verb == PROTO_VERB_LEND || m->verb == PROTO_VERB_BORROW)
        o.fewer = o.to < o.from + m->intra;
    conclude(connection, m, j, &o);
}

static struct job *find_target(struct connection *connection, const struct proto_control *m,
                               struct error *err)
{
    struct daemon *d = connection->daemon;
    struct job *j;

    if (m->job[0]) {
        j = control_find(d, &connection->who, m->job, err);
    } else {
        j = job_find_pid(d, connection->who.pid, connection->who.uid);
        error_set(err, -ESRCH, "this process belongs to no job");
    }
    if (!j)
        return NULL;
    if (!control_may_change(d, &connection->who, j)) {
        error_set(err, -EACCES, "job %s belongs to user %u", j->id, (unsigned)j->uid);
        return NULL;
    }
    return j;
}

static int carry_out(struct connection *connection, const struct proto_control *m,
                     struct error *err)
{
    struct job *j;

    if (connection->listing || waiting(connection) >= WAITS_MAX)
        return error_set(err, -EBUSY, "more than %d orders wait for acknowledgements", WAITS_MAX);
    if (m->verb == PROTO_VERB_LIST) {
        connection->listing = true;
        connection->list_after = 0;
        connection->list_cookie = m->h.cookie;
        list_continue(connection);
        return 0;
    }
    j = find_target(connection, m, err);
    if (!j)
        return err->code;
    if (m->verb == PROTO_VERB_BEGIN) {
        do_begin(connection, m, j);
        return 0;
    }
    if (m->verb == PROTO_VERB_SET) {
        if (!control_may_govern(connection->daemon, &connection->who) &&
            limits_check_pin(connection->daemon, j->uid, m->intra > m->inter ? m->intra : m->inter,
                             err) < 0)
            return err->code;
        do_set(connection, m, j);
        return 0;
    }
    int r = check_loan(m, j, err);
    if (r == 0)
        do_loan(connection, m, j);
    return r;
}

static int on_message(struct connection *connection, union proto_message *message,
                      struct error *err)
{
    const struct proto_control *m = &message->control;
    struct error why = {0};

    if (m->h.type != PROTO_CONTROL)
        return error_set(err, -EBADMSG, "message type %u is not one that controlling programs send",
                         m->h.type);
    if (carry_out(connection, m, &why) < 0)
        fail(connection, m->h.cookie, &why);
    return 0;
}

const struct agent_socket_role control_role = {
    .message = on_message, .writable = on_writable, .gone = on_gone};
