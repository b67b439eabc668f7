/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/agent.h"

#include "base/clock.h"
#include "base/failpoint.h"
#include "daemon/daemon.h"
#include "daemon/job/apportion.h"
#include "daemon/job/confine.h"
#include "daemon/job/job.h"
#include "daemon/job/latency.h"
#include "daemon/link/access.h"
#include "daemon/link/agent_socket.h"
#include "daemon/link/target.h"
#include "daemon/plan/plan.h"
#include "daemon/plan/promises.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ERROR_WORD "bad-packet"

#define RATE_SAMPLE_NS NS_PER_S /* how often a rate is measured */
#define RATE_KEEP      0.6      /* weight of the old value */
#define RESEND_NS      NS_PER_S /* after a lapsed lease: shortest time between two targets */

/* ---- which job ---- */

/* A job that this daemon does not know: of an earlier one, or started without `tide run`. */
static int adopt(struct connection *connection, const struct proto_hello *hello, struct job **ret,
                 struct error *err)
{
    struct daemon *d = connection->daemon;
    struct job_request req = job_request_usual(d);
    struct job *j;
    int r;

    if (!control_may_join(d, &connection->who))
        return error_set(err, -EACCES, "user %u may not have jobs in this daemon",
                         (unsigned)connection->who.uid);
    if (job_name_valid(hello->job_name) && !job_find(d, hello->job_name))
        req.name = hello->job_name;
    job_request_promise(d, connection->who.uid, &req, sizeof(j->name));
    r = job_new(d, connection->who.uid, &req, &j, err);
    if (r < 0)
        return r;
    job_set_id(j, hello->job_id); /* if that fails, the job keeps its new id */
    /* As make_token() makes them: whatever else it is, the job's file could not hold it. */
    if (hello->token[0] && !hello->token[strspn(hello->token, "0123456789abcdef")])
        snprintf(j->token, sizeof(j->token), "%s", hello->token);
    daemon_log("job %s (%s) made for process %d, which was running already", j->id, j->name,
               (int)connection->who.pid);
    *ret = j;
    return 0;
}

static int find_job(struct connection *connection, const struct proto_hello *hello,
                    struct job **ret, struct error *err)
{
    struct job *j;

    if (connection->container)
        return connection->find_job(connection->container, connection->who.pid, ret, err);
    j = job_find_token(connection->daemon, hello->token);
    if (!j)
        j = job_find_pid(connection->daemon, connection->who.pid, connection->who.uid);
    if (!j)
        return adopt(connection, hello, ret, err);
    if (!control_may_speak(&connection->who, j))
        return error_set(err, -EACCES, "job %s does not belong to user %u", j->id,
                         (unsigned)connection->who.uid);
    *ret = j;
    return 0;
}

/*
 * Calls of runtimes are taken for requests where there is a promise and no process of the job tells
 * any; they cost nothing elsewhere.
 */
static bool wants_calls(const struct job *j)
{
    bool told = j->latency.seconds.since_ns && j->latency.source == PROTO_REQUESTS_TOLD;

    return j->asked.attributes.slo_us > 0 && !told;
}

/* The daemon's features, and what holds for the job at present. */
static uint32_t features_of(const struct job *j)
{
    return PROTO_FEATURES | (wants_calls(j) ? PROTO_FEATURE_CALLS : 0) |
           (j->asked.pinned.intra == 0 ? PROTO_FEATURE_MOVES : 0);
}

static void send_welcome(struct connection *connection, const struct job *j)
{
    uint32_t features = features_of(j);
    union proto_message m;

    proto_init(&m, PROTO_WELCOME, features);
    m.welcome.epoch = connection->daemon->epoch;
    m.welcome.lease_ms = DAEMON_LEASE_MS;
    m.welcome.heartbeat_ms = connection->daemon->heartbeat_ms;
    memcpy(m.welcome.job_id, j->id, sizeof(m.welcome.job_id));
    memcpy(m.welcome.job_name, j->name, sizeof(m.welcome.job_name));
    if (connection_send(connection, &m) == -EAGAIN)
        features = 0; /* again at the next heartbeat */
    connection->process->features = features;
}

/* An agent starts over after exec or a lost connection: its earlier reports are void. */
static void process_connect(struct process *p, struct connection *connection,
                            const struct proto_hello *hello)
{
    if (p->connection)
        connection_detach(p->connection);
    p->connection = connection;
    connection->process = p;
    p->n_backends = 0;
    memset(p->backend, 0, sizeof(p->backend));
    p->sent = p->local = (struct threads){0};
    p->sent_generation = p->acked_generation = 0;
    p->shrink_since_ns = 0;
    p->held = 0;
    p->unsent = p->later = p->waits = p->beat = false;
    p->rate_ns = 0;
    p->rate = 0;
    latency_gone(p);
    p->signal = hello->signal;
    p->hello_max = hello->max;
    memcpy(p->comm, hello->comm, sizeof(p->comm));
}

static int on_hello(struct connection *connection, const struct proto_hello *hello,
                    struct error *err)
{
    struct daemon *d = connection->daemon;
    struct job *j = NULL;
    struct process *p;
    int r;

    if (connection->process)
        return error_set(err, -EBADMSG, "second hello message");
    r = find_job(connection, hello, &j, err);
    if (r < 0)
        return r;
    r = process_join(j, connection->who.pid, connection->start, &p);
    if (r < 0) {
        if (!j->processes)
            job_free(j);
        return error_set(err, r, "cannot follow process %d: %s", (int)connection->who.pid,
                         strerror(-r));
    }
    admission_began(j);
    connection->role = CONNECTION_AGENT;
    process_connect(p, connection, hello);
    send_welcome(connection, j);
    daemon_store_later(d);
    daemon_changed(d);
    return 0;
}

/* ---- reports ---- */

static void on_backend(struct process *p, const struct proto_backend *m)
{
    struct backend *b = &p->backend[m->index];
    struct backend before = *b;

    b->known = true;
    b->malleable = m->malleable;
    b->max = (struct threads){m->max_intra, m->max_inter};
    b->target = (struct threads){m->target_intra, m->target_inter};
    b->active = (struct threads){m->active_intra, m->active_inter};
    memcpy(b->name, m->name, sizeof(b->name));
    memcpy(b->version, m->version, sizeof(b->version));
    memcpy(b->note, m->note, sizeof(b->note));
    if (m->index >= p->n_backends)
        p->n_backends = m->index + 1;
    if (!before.known || before.malleable != b->malleable || before.max.intra != b->max.intra)
        daemon_changed(p->job->daemon);
}

static void on_ack(struct process *p, const struct proto_ack *m)
{
    struct job *j = p->job;
    struct daemon *d = j->daemon;

    if (m->epoch != d->epoch || m->generation < p->sent_generation ||
        m->generation > p->sent_generation || m->status == PROTO_ACK_STALE)
        return; /* answers an older target: the newest one's is still to come */
    p->waits = m->status == PROTO_ACK_WAITING;
    if (p->waits) {
        plan_advance(d); /* others need not wait for it */
        return;
    }
    failpoint(FAILPOINT_ACK_RECEIVED);
    p->acked_generation = m->generation;
    p->later = m->status == PROTO_ACK_LATER;
    p->held = p->sent.intra;
    p->shrink_since_ns = 0;
    if (!p->later) {
        p->active = m->active;
        p->target = p->sent.intra;
    }
    plan_acknowledged(j);
}

static void measure_rate(struct process *p, uint64_t now)
{
    bool own = p->progress_done > 0;
    uint64_t count = own ? p->progress_done : p->tasks;

    if (p->rate_ns == 0 || count < p->rate_base) {
        p->rate_ns = now;
        p->rate_base = count;
        return;
    }
    if (now - p->rate_ns < RATE_SAMPLE_NS)
        return;
    double sample = (double)(count - p->rate_base) * 1e9 / (double)(now - p->rate_ns);
    p->rate = p->rate > 0 ? RATE_KEEP * p->rate + (1 - RATE_KEEP) * sample : sample;
    p->rate_ns = now;
    p->rate_base = count;
}

static void send_lease(struct process *p)
{
    union proto_message m;

    if (p->sent.intra == 0)
        return;
    proto_init(&m, PROTO_LEASE, 0);
    m.lease.epoch = p->job->daemon->epoch;
    if (!p->connection->full) /* a full socket holds enough leases already */
        connection_send(p->connection, &m);
}

/* The lease lapsed, as the daemon was stopped or too slow: the agent follows its own limit. */
static void command_again(struct process *p, uint64_t now)
{
    if (p->want.intra == 0 || p->acked_generation < p->sent_generation || p->later ||
        now - p->resent_ns < RESEND_NS)
        return;
    p->resent_ns = now;
    p->job->daemon->generation++;
    target_send(p);
}

static void on_heartbeat(struct process *p, const struct proto_heartbeat *m)
{
    uint64_t now = clock_now_ns();
    bool allowance = p->allowed_mcpu != m->allowed_mcpu;
    bool own = p->progress_done > 0;

    p->beat = true;
    p->source = (enum proto_source)m->source;
    p->target = m->target;
    p->active = m->active;
    p->allowed_mcpu = m->allowed_mcpu;
    p->tasks = m->tasks;
    p->progress_done = m->progress_done;
    p->progress_total = m->progress_total;
    memcpy(p->unit, m->unit, sizeof(p->unit));
    if (own != (p->progress_done > 0))
        p->rate_ns = 0; /* the unit of progress changed */
    measure_rate(p, now);
    speed_heartbeat(p->job, now);
    apportion_heartbeat(p, now);
    send_lease(p);
    if (p->connection && p->features != features_of(p->job))
        send_welcome(p->connection, p->job);
    if (p->source == PROTO_SOURCE_LIMIT && p->sent.intra)
        command_again(p, now);
    if (allowance && p->job->confine->look_at_allowance(p->job))
        daemon_changed(p->job->daemon);
}

/*
 * A signal or the program's own call set the threads of a process. That process has them already;
 * its job is pinned to what its processes have now, as by `tide set`.
 */
static void on_local(struct process *p, const struct proto_local *m)
{
    struct job *j = p->job;
    uint32_t sum = 0, locals = 0;

    p->local = (struct threads){m->intra, m->intra ? m->inter : 0};
    for (const struct process *q = j->processes; q; q = q->next) {
        locals += q->local.intra > 0;
        sum += q->local.intra ? q->local.intra : q->want.intra;
    }
    if (locals == 0) {
        j->asked.pinned = (struct threads){0};
    } else {
        sum = sum < PROTO_THREADS_MAX ? sum : PROTO_THREADS_MAX; /* as any other pin */
        j->asked.pinned = (struct threads){sum, j->n_processes == 1 ? m->inter : 0};
        j->asked.pinned_by = (enum proto_source)m->source;
    }
    j->asked.granted = false; /* the program's own pin replaces an administrator's */
    j->dirty = true;
    daemon_store_later(j->daemon);
    plan_make_now(j->daemon);
}

static int on_message(struct connection *connection, union proto_message *m, struct error *err)
{
    if (m->h.type == PROTO_HELLO)
        return on_hello(connection, &m->hello, err);
    if (!connection->process)
        return error_set(err, -EBADMSG, "message type %u sent before the hello message", m->h.type);
    switch (m->h.type) {
    case PROTO_BACKEND:
        on_backend(connection->process, &m->backend);
        return 0;
    case PROTO_ACK:
        on_ack(connection->process, &m->ack);
        return 0;
    case PROTO_HEARTBEAT:
        on_heartbeat(connection->process, &m->heartbeat);
        return 0;
    case PROTO_LATENCY:
        latency_told(connection->process, &m->latency, clock_now_ns());
        promises_look(connection->process->job);
        return 0;
    case PROTO_LOCAL:
        on_local(connection->process, &m->local);
        return 0;
    default:
        return error_set(err, -EBADMSG, "message type %u is not one that agents send", m->h.type);
    }
}

/* ---- connections ---- */

static void on_writable(struct connection *connection)
{
    if (connection->process && connection->process->unsent)
        target_send(connection->process);
}

static void on_gone(struct connection *connection)
{
    struct process *p = connection->process;

    if (!p)
        return;
    p->connection = NULL;
    p->held = 0;
    p->beat = p->waits = false;
    p->shrink_since_ns = 0;
    latency_gone(p);
    daemon_changed(p->job->daemon); /* nobody waits for that agent now, but its process may go on */
}

const struct agent_socket_role agent_role = {
    .message = on_message, .writable = on_writable, .gone = on_gone};

void agent_welcome_all(struct daemon *d)
{
    for (struct job *j = d->jobs->first; j; j = j->next)
        for (struct process *p = j->processes; p; p = p->next)
            if (p->connection)
                send_welcome(p->connection, j);
}

void agent_release_all(struct daemon *d)
{
    d->generation++;
    for (struct job *j = d->jobs->first; j; j = j->next)
        for (struct process *p = j->processes; p; p = p->next)
            if (p->connection && p->sent.intra) {
                p->want = (struct threads){0};
                target_send(p);
            }
}
