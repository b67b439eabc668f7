/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/link/agent_socket.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "daemon/daemon.h"
#include "daemon/job/job.h"
#include "daemon/job/limits.h"
#include "daemon/link/access.h"
#include "daemon/link/account.h"
#include "host/proc/proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define ERROR_WORD "bad-packet"

#define ACCEPT_BURST 64 /* connections accepted in one turn of the loop */

/*
 * Bounds the loop's time for strangers: so many turns of each of their sockets in TURNS_US. An
 * agent needs about one. Decisions come after all messages, so that a flood would delay them.
 */
#define TURNS_US        100000ull
#define TURNS_MESSAGE   32
#define TURNS_ACCEPT    16
#define TURNS_CONTAINER 2 /* accepts on one container's socket */

#define WAIT_US 10000ull /* until a connection without budget is looked at again: one token */

/* Keys of accounts: a user's agents by uid, with one of these added for … */
#define KEY_CONTROLLERS (1ull << 32) /* … the user's controlling programs */
#define KEY_CONTAINERS  (1ull << 33) /* … a container, by its listener's number instead */
#define KEY_CONNECTS    (1ull << 34) /* … the user's new connections */

/* A budget, and who waits for it. */
struct turns {
    struct account account;
    struct connection *first, *last;
    struct listener *listener; /* a container's; NULL: none */
    bool accepts;              /* the listener had the last turn */
};

/* A listening socket: the daemon's own, or one in a container's directory. */
struct listener {
    struct agent_socket *agent_socket;
    struct container *container;     /* NULL: the daemon's own */
    agent_socket_find_job *find_job; /* for that container */
    sd_event_source *source;
    struct turns *turns; /* of the container */
    bool waits;          /* accepts nobody until there is budget */
    uint64_t number;     /* never used twice */
    int fd;
};

struct agent_socket {
    struct daemon *daemon;
    const struct agent_socket_role *agents, *controllers;
    struct listener *own;
    int spare_fd; /* given up for a moment to accept and close when descriptors run out */
    sd_event_source *reap_source;
    struct connection *first;
    unsigned n;
    struct accounts accounts;
    struct account_sum containers; /* of all containers' accounts */
    sd_event_source *turn;         /* of those that wait for budget */
    uint64_t listeners;
};

/* ---- budgets ---- */

static void turns_leave(struct connection *connection)
{
    struct turns *t = connection->turns;
    struct connection *before = NULL, **at;

    if (!t)
        return;
    for (at = &t->first; connection->waits && *at != connection; at = &(*at)->next_turn)
        before = *at;
    if (connection->waits)
        *at = connection->next_turn;
    if (connection->waits && t->last == connection)
        t->last = before;
    connection->waits = false;
    t->account.connections--;
    connection->turns = NULL;
}

/* Counts it among those that share a budget. */
static void turns_join(struct connection *connection, struct turns *t)
{
    t->account.connections++;
    turns_leave(connection);
    connection->turns = t;
}

/* Returns 0 or -ENOMEM. */
static int turns_enter(struct connection *connection, uint64_t key)
{
    struct account *a = account_find(&connection->daemon->agent_socket->accounts, key, 0);

    if (!a)
        return -ENOMEM;
    turns_join(connection, (struct turns *)a);
    return 0;
}

static void turns_charge(struct turns *t, uint64_t began_ns)
{
    if (t)
        account_charge(&t->account, clock_now_ns() - began_ns);
}

/* The first to wait sets the time, so that a stream of others cannot delay it for ever. */
static void turn_later(struct agent_socket *l)
{
    int enabled;

    if (sd_event_source_get_enabled(l->turn, &enabled) < 0 || enabled != SD_EVENT_OFF)
        return;
    sd_event_source_set_time_relative(l->turn, WAIT_US);
    sd_event_source_set_enabled(l->turn, SD_EVENT_ONESHOT);
}

/* Returns true if there is no budget for it now: it then waits behind the others. */
static bool turns_wait(struct connection *connection)
{
    struct agent_socket *l = connection->daemon->agent_socket;
    struct turns *t = connection->turns;

    if (!t || (!t->first && account_has(&l->accounts, &t->account)))
        return false;
    if (connection->io)
        sd_event_source_set_enabled(connection->io, SD_EVENT_OFF);
    connection->waits = true;
    connection->next_turn = NULL;
    *(t->first ? &t->last->next_turn : &t->first) = connection;
    t->last = connection;
    turn_later(l);
    return true;
}

static struct connection *turns_next(struct turns *t)
{
    struct connection *connection = t->first;

    t->first = connection->next_turn;
    if (!t->first)
        t->last = NULL;
    connection->waits = false;
    return connection;
}

static struct connection *connection_free(struct connection *connection)
{
    turns_leave(connection);
    sd_event_source_disable_unref(connection->io);
    close_fd(connection->fd);
    free(connection->queue);
    free(connection);
    return NULL;
}

static const struct agent_socket_role *role_of(const struct connection *connection)
{
    const struct agent_socket *l = connection->daemon->agent_socket;

    return connection->role == CONNECTION_CONTROLLER ? l->controllers : l->agents;
}

static void connection_gone(struct connection *connection)
{
    if (connection->role != CONNECTION_NEW)
        role_of(connection)->gone(connection);
}

static int on_reap(sd_event_source *s, void *arg)
{
    struct agent_socket *l = arg;

    for (struct connection **at = &l->first; *at;) {
        struct connection *connection = *at;
        struct turns *turns;
        uint64_t began;

        if (!connection->doomed) {
            at = &connection->next;
            continue;
        }
        began = clock_now_ns();
        turns = connection->turns;
        *at = connection->next;
        l->n--;
        connection_gone(connection);
        connection_free(connection);
        turns_charge(turns, began);
    }
    return 0;
}

void connection_hang_up(struct connection *connection)
{
    if (connection->doomed)
        return;
    connection->doomed = true;
    if (connection->io)
        sd_event_source_set_enabled(connection->io, SD_EVENT_OFF);
    sd_event_source_set_enabled(connection->daemon->agent_socket->reap_source, SD_EVENT_ONESHOT);
}

static void process_gone(struct process *p)
{
    if (p->connection)
        connection_detach(p->connection);
}

const struct job_observer agent_socket_observer = {.process_gone = process_gone};

void connection_detach(struct connection *connection)
{
    connection->process = NULL;
    connection_hang_up(connection);
}

/* While answers wait for room, the controlling program is not read: no more can pile up. */
static uint32_t connection_events(const struct connection *connection)
{
    if (!connection->full)
        return EPOLLIN;
    return connection->role == CONNECTION_AGENT ? EPOLLIN | EPOLLOUT : EPOLLOUT;
}

static void connection_wait_for_room(struct connection *connection, bool full)
{
    if (connection->full == full || connection->doomed)
        return;
    connection->full = full;
    sd_event_source_set_io_events(connection->io, connection_events(connection));
}

int connection_send(struct connection *connection, const union proto_message *m)
{
    int r;

    if (connection->doomed)
        return -EPIPE;
    if (fault(FAULT_SEND) == 0 &&
        send(connection->fd, m, m->h.size, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
        return 0;
    if (errno == EAGAIN || errno == ENOBUFS) {
        connection_wait_for_room(connection, true);
        return -EAGAIN;
    }
    r = -errno; /* closing makes system calls, too */
    connection_hang_up(connection);
    return r;
}

/* ---- reading ---- */

static int connection_first(struct connection *connection, union proto_message *m,
                            struct error *err)
{
    struct turns *t = connection->turns;

    if (m->h.type == PROTO_CONTROL && connection->container)
        return error_set(err, -EACCES, "a process in a container may not control jobs");
    if (m->h.type == PROTO_CONTROL)
        connection->role = CONNECTION_CONTROLLER;
    else if (m->h.type != PROTO_HELLO)
        return error_set(err, -EBADMSG, "the first message has type %u, neither hello nor control",
                         m->h.type);
    /* A program that orders too much does not have agents of its user wait. */
    if (t && m->h.type == PROTO_CONTROL &&
        turns_enter(connection, t->account.key | KEY_CONTROLLERS) < 0)
        return error_set(err, -ENOMEM, "out of memory");
    return 0;
}

static int connection_message(struct connection *connection, union proto_message *m, size_t len,
                              struct error *err)
{
    int r = proto_check(m, len, err);

    if (r == 0 && connection->role == CONNECTION_NEW)
        r = connection_first(connection, m, err);
    if (r < 0)
        return r;
    /* The first message is a hello, or connection_first() has made it a controlling program. */
    return role_of(connection)->message(connection, m, err);
}

static void connection_refuse(struct connection *connection, const union proto_message *m,
                              const struct error *err)
{
    union proto_message answer;

    daemon_log_as(error_why(err), "process %d (uid %u): %s; connection closed",
                  (int)connection->who.pid, (unsigned)connection->who.uid, err->text);
    if (connection->role != CONNECTION_AGENT) {
        proto_init(&answer, PROTO_RESULT, m->h.cookie);
        answer.result.status = err->code;
        snprintf(answer.result.text, sizeof(answer.result.text), "%.*s", PROTO_TEXT_MAX - 1,
                 err->text);
        connection_send(connection, &answer);
    }
    connection_hang_up(connection);
}

static void connection_read(struct connection *connection)
{
    union proto_message m;
    struct error err = {0};
    ssize_t len;

    memset(&m.h, 0, sizeof(m.h));
    len = recv(connection->fd, &m, sizeof(m), MSG_DONTWAIT | MSG_TRUNC);
    if (len < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (len <= 0)
        connection_hang_up(connection);
    else if (connection_message(connection, &m, (size_t)len, &err) < 0)
        connection_refuse(connection, &m, &err);
}

static void connection_serve(struct connection *connection, uint32_t events)
{
    uint64_t began = clock_now_ns();

    if (events & EPOLLOUT) {
        connection_wait_for_room(connection, false);
        if (connection->role != CONNECTION_NEW)
            role_of(connection)->writable(connection);
    }
    if (events & EPOLLIN)
        connection_read(connection);
    else if (events & (EPOLLHUP | EPOLLERR))
        connection_hang_up(connection);
    turns_charge(connection->turns, began);
}

static int on_peer(sd_event_source *s, int fd, uint32_t events, void *arg)
{
    if (!turns_wait(arg))
        connection_serve(arg, events);
    return 0;
}

/* ---- accepting ---- */

static unsigned peers_of(const struct agent_socket *l, uid_t uid)
{
    unsigned n = 0;

    for (const struct connection *connection = l->first; connection; connection = connection->next)
        n += !connection->container && connection->who.uid == uid;
    return n;
}

static unsigned peers_in(const struct agent_socket *l, const struct container *container)
{
    unsigned n = 0;

    for (const struct connection *connection = l->first; connection; connection = connection->next)
        n += connection->container == container;
    return n;
}

/* Counts connections of all containers: together they may have as many as one more user. */
static unsigned containers_peers(const struct agent_socket *l)
{
    unsigned n = 0;

    for (const struct connection *connection = l->first; connection; connection = connection->next)
        n += connection->container != NULL;
    return n;
}

/* Root inside of a container has no privilege here. */
static bool connection_welcome(const struct listener *at, uid_t uid)
{
    const struct agent_socket *l = at->agent_socket;
    uint32_t most = l->daemon->config.user_connections;

    if (at->container)
        return l->n < PROTO_CONNECTIONS_MAX - AGENT_SOCKET_KEPT &&
               containers_peers(l) < AGENT_SOCKET_CONTAINERS_MAX &&
               peers_in(l, at->container) < AGENT_SOCKET_CONTAINER_MAX;
    if (limits_exempt(l->daemon, uid))
        return l->n < PROTO_CONNECTIONS_MAX;
    return l->n < PROTO_CONNECTIONS_MAX - AGENT_SOCKET_KEPT && (!most || peers_of(l, uid) < most);
}

/* Learns whose process it is, and reads it from now on. Returns 0 or -errno. */
static int connection_settle(struct connection *connection)
{
    struct daemon *d = connection->daemon;
    const struct caller *who = &connection->who;
    int r = proc_identify_peer(d->root, connection->fd, who->pid, who->uid, &connection->start);

    if (r == -EPERM)
        daemon_log_as(
            "mixed-rights",
            "process %d (uid %u) also has the rights of another user (a setuid program?); "
            "connection closed",
            (int)who->pid, (unsigned)who->uid);
    if (r < 0)
        return r;
    connection->connected_ns = clock_now_ns();
    r = sd_event_add_io(d->event, &connection->io, connection->fd, EPOLLIN, on_peer, connection);
    if (r >= 0 && connection->turns && !connection->container)
        r = turns_enter(connection, who->uid);
    if (r >= 0 && (connection->container || who->uid != d->uid))
        r = sd_event_source_set_ratelimit(connection->io, TURNS_US, TURNS_MESSAGE);
    return r;
}

/* Accepting a connection that then waits is free: else a flood of them would pile up a debt. */
static int connection_new(struct listener *at, int fd, const struct caller *who,
                          struct turns *turns, uint64_t began_ns)
{
    struct agent_socket *l = at->agent_socket;
    struct connection *connection;
    int r = 0;

    if (!connection_welcome(at, who->uid)) {
        daemon_log_as("too-many-connections",
                      "process %d (uid %u): too many connections; closed the new one",
                      (int)who->pid, (unsigned)who->uid);
        return -ENOSPC;
    }
    connection = fault(FAULT_PEER_MEMORY) < 0 ? NULL : calloc(1, sizeof(*connection));
    if (!connection)
        return -ENOMEM;
    *connection = (struct connection){.daemon = l->daemon,
                                      .container = at->container,
                                      .find_job = at->find_job,
                                      .fd = fd,
                                      .who = *who};
    if (turns)
        turns_join(connection, turns);
    if (at->container || !turns_wait(connection))
        r = connection_settle(connection);
    if (!at->container && !connection->waits)
        turns_charge(turns, began_ns);
    if (r < 0) {
        turns_leave(connection);
        sd_event_source_disable_unref(connection->io);
        free(connection);
        return r;
    }
    connection->next = l->first;
    l->first = connection;
    l->n++;
    return 0;
}

/*
 * Connections that wait to be settled and were given up without a message need no turn. With each
 * that comes two may go, so that those who connect and hang up do not take their user's places.
 */
static void turns_forget_gone(struct turns *t)
{
    char byte;

    for (unsigned i = 0; i < 2 && t->first && !t->first->io; i++) {
        if (recv(t->first->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 0)
            return;
        connection_hang_up(turns_next(t));
    }
}

/* A container's connects take its own budget, a user's one for connects: its agents go on. */
static int connection_accepted(struct listener *at, int fd, uint64_t began_ns)
{
    struct agent_socket *l = at->agent_socket;
    struct turns *turns = at->turns;
    struct caller who;
    int r = control_identify(l->daemon, fd, &who);

    if (r < 0)
        return r;
    if (!at->container && !limits_exempt(l->daemon, who.uid)) {
        turns = (struct turns *)account_find(&l->accounts, who.uid | KEY_CONNECTS, 0);
        if (!turns)
            return -ENOMEM;
    }
    if (turns)
        turns_forget_gone(turns);
    return connection_new(at, fd, &who, turns, began_ns);
}

/* Without a free descriptor the caller would stay in the queue and wake the loop for ever. */
static void hang_up_on_next(const struct listener *at)
{
    struct agent_socket *l = at->agent_socket;

    l->spare_fd = close_fd(l->spare_fd);
    close_fd(accept4(at->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
    l->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    daemon_log_as("system-refused", "out of file descriptors; closed a new connection");
}

/* Returns false if nobody is there to be accepted. */
static bool accept_one(struct listener *at)
{
    uint64_t began = clock_now_ns();
    int fd =
        fault(FAULT_ACCEPT) < 0 ? -1 : accept4(at->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int r;

    if (fd < 0 && (errno == EMFILE || errno == ENFILE))
        hang_up_on_next(at);
    if (fd < 0)
        return false;
    r = connection_accepted(at, fd, began);
    if (r == -ENOMEM)
        daemon_log_as("out-of-memory", "out of memory; closed a new connection");
    if (r < 0)
        close(fd);
    turns_charge(at->turns, began); /* refused ones, too: a container might connect without end */
    return true;
}

/* Only a container's can wait: whoever connects to the daemon's own is known once accepted. */
static bool listener_wait(struct listener *at)
{
    if (!at->turns || account_has(&at->agent_socket->accounts, &at->turns->account))
        return false;
    sd_event_source_set_enabled(at->source, SD_EVENT_OFF);
    at->waits = true;
    turn_later(at->agent_socket);
    return true;
}

static int on_listen(sd_event_source *s, int listen_fd, uint32_t events, void *arg)
{
    struct listener *at = arg;

    for (unsigned i = 0; i < ACCEPT_BURST; i++)
        if (listener_wait(at) || !accept_one(at))
            break;
    return 0;
}

/* ---- taking turns ---- */

static bool somebody_waits(const struct turns *t)
{
    return t->first || (t->listener && t->listener->waits);
}

static struct turns *next_turn(struct agent_socket *l)
{
    for (struct account *a = l->accounts.first; a; a = a->next)
        if (somebody_waits((struct turns *)a) && account_has(&l->accounts, a))
            return (struct turns *)a;
    return NULL;
}

static void serve_connection(struct connection *connection)
{
    struct turns *t = connection->turns;
    uint64_t began = clock_now_ns();

    if (connection->doomed)
        return;
    if (connection->io) {
        sd_event_source_set_enabled(connection->io, SD_EVENT_ON);
        connection_serve(connection, connection_events(connection));
        return;
    }
    if (connection_settle(connection) < 0)
        connection_hang_up(connection);
    turns_charge(t, began);
}

/* One message or one connect; in a container both by turns. */
static void serve(struct turns *t)
{
    struct listener *at = t->listener;

    t->accepts = at && at->waits && (!t->first || !t->accepts);
    if (!t->accepts)
        serve_connection(turns_next(t));
    else if (!accept_one(at)) {
        at->waits = false;
        sd_event_source_set_enabled(at->source, SD_EVENT_ON);
    }
}

/* Whoever was served longest ago comes first: where many share a budget, each has its turn. */
static int on_turn(sd_event_source *s, uint64_t usec, void *arg)
{
    struct agent_socket *l = arg;
    uint64_t began = clock_now_ns();
    struct turns *t;
    bool more = false;

    for (; (t = next_turn(l)); began = clock_now_ns()) {
        account_last(&l->accounts, &t->account);
        turns_charge(t, began); /* the search, too: many may wait */
        serve(t);
    }
    for (const struct account *a = l->accounts.first; a; a = a->next)
        more |= somebody_waits((const struct turns *)a);
    if (more)
        turn_later(l);
    return 0;
}

/* ---- connections without a message ---- */

void agent_socket_tick(struct agent_socket *l)
{
    uint64_t now = clock_now_ns();

    for (struct connection *connection = l->first; connection; connection = connection->next)
        if (connection->role == CONNECTION_NEW && !connection->waits &&
            now - connection->connected_ns > AGENT_SOCKET_SILENT_NS)
            connection_hang_up(connection);
}

unsigned agent_socket_count(const struct agent_socket *l)
{
    return l->n;
}

/* ---- the socket ---- */

/* Goes through the descriptor: the path may be too long for a socket's address, or change. */
static int bind_in(int dir_fd, mode_t mode)
{
    _cleanup_fd_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    mode_t mask;
    int r;

    if (fd < 0)
        return -errno;
    snprintf(addr.sun_path, sizeof(addr.sun_path), "/proc/self/fd/%d/" RUNDIR_AGENT_SOCKET, dir_fd);
    if (unlinkat(dir_fd, RUNDIR_AGENT_SOCKET, 0) < 0 && errno != ENOENT)
        return -errno;
    /* Sets the mode at creation: a later chmod could be redirected by the container. */
    mask = umask(0777 & ~mode);
    r = bind(fd, (struct sockaddr *)&addr, sizeof(addr));
    umask(mask);
    failpoint(FAILPOINT_SOCKET_BOUND);
    if (r < 0 || listen(fd, SOMAXCONN) < 0)
        return -errno;
    return TAKE_FD(fd);
}

/* The listener counts as a connection: its account lasts as long as itself. */
static int listener_pay(struct listener *at)
{
    struct agent_socket *l = at->agent_socket;

    if (!at->container)
        return 0;
    at->turns = (struct turns *)account_find(&l->accounts, KEY_CONTAINERS | at->number, 0);
    if (!at->turns)
        return -ENOMEM;
    at->turns->account.connections++;
    at->turns->account.sum = &l->containers;
    at->turns->listener = at;
    return 0;
}

static struct listener *listener_free(struct listener *at)
{
    sd_event_source_disable_unref(at->source);
    close_fd(at->fd);
    if (at->turns) {
        at->turns->account.connections--;
        at->turns->listener = NULL;
    }
    free(at);
    return NULL;
}

static int listener_new(struct agent_socket *l, int dir_fd, mode_t mode,
                        struct container *container, struct listener **ret)
{
    struct listener *at = calloc(1, sizeof(*at));
    int r;

    if (!at)
        return -ENOMEM;
    *at = (struct listener){.agent_socket = l, .container = container, .number = l->listeners++};
    at->fd = r = bind_in(dir_fd, mode);
    if (r >= 0)
        r = sd_event_add_io(l->daemon->event, &at->source, at->fd, EPOLLIN, on_listen, at);
    if (r >= 0)
        r = sd_event_source_set_ratelimit(at->source, TURNS_US,
                                          container ? TURNS_CONTAINER : TURNS_ACCEPT);
    if (r >= 0)
        r = listener_pay(at);
    if (r < 0) {
        listener_free(at);
        return r;
    }
    *ret = at;
    return 0;
}

int agent_socket_listen(struct agent_socket *l, int dir_fd, struct container *container,
                        agent_socket_find_job *find_job, struct listener **ret)
{
    int r = listener_new(l, dir_fd, 0666, container, ret);

    if (r == 0)
        (*ret)->find_job = find_job;
    return r;
}

struct listener *agent_socket_unlisten(struct listener *at)
{
    if (!at)
        return NULL;
    for (struct connection *connection = at->agent_socket->first; at->container && connection;
         connection = connection->next)
        if (connection->container == at->container) {
            connection->container = NULL;
            connection_hang_up(connection);
        }
    return listener_free(at);
}

int agent_socket_new(struct daemon *d, const struct agent_socket_role *agents,
                     const struct agent_socket_role *controllers, struct agent_socket **ret,
                     struct error *err)
{
    struct agent_socket *l = calloc(1, sizeof(*l));
    int r;

    if (!l)
        return error_set(err, -ENOMEM, "out of memory");
    l->daemon = d;
    l->agents = agents;
    l->controllers = controllers;
    l->accounts = (struct accounts){.size = sizeof(struct turns), .burst = AGENT_SOCKET_BURST};
    l->containers = (struct account_sum){.rate = AGENT_SOCKET_CONTAINERS * ACCOUNT_RATE,
                                         .burst = AGENT_SOCKET_CONTAINERS * AGENT_SOCKET_BURST};
    l->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    /* Root's daemon serves every user and tells them apart; any other serves its own user. */
    r = listener_new(l, d->dir_fd, d->uid == 0 ? 0666 : 0600, NULL, &l->own);
    if (r >= 0)
        r = sd_event_add_time(d->event, &l->turn, CLOCK_MONOTONIC, 0, 1000, on_turn, l);
    if (r >= 0)
        r = sd_event_source_set_enabled(l->turn, SD_EVENT_OFF);
    if (r >= 0)
        r = sd_event_add_defer(d->event, &l->reap_source, on_reap, l);
    if (r >= 0)
        r = sd_event_source_set_enabled(l->reap_source, SD_EVENT_OFF);
    if (r < 0) {
        agent_socket_free(l);
        return error_word(err,
                          error_set(err, r, "cannot listen on %s/" RUNDIR_AGENT_SOCKET ": %s",
                                    d->dir, strerror(-r)),
                          "cannot-listen");
    }
    *ret = l;
    return 0;
}

struct agent_socket *agent_socket_free(struct agent_socket *l)
{
    if (!l)
        return NULL;
    while (l->first) {
        struct connection *connection = l->first;

        l->first = connection->next;
        connection_gone(connection);
        connection_free(connection);
    }
    agent_socket_unlisten(l->own);
    sd_event_source_disable_unref(l->reap_source);
    sd_event_source_disable_unref(l->turn);
    accounts_free(&l->accounts);
    close_fd(l->spare_fd);
    free(l);
    return NULL;
}
