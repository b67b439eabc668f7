/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/link/link.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "daemon/job/limits.h"
#include "daemon/link/access.h"
#include "daemon/node.h"
#include "host/proc/proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define ACCEPT_BURST 64 /* connections taken in one turn of the loop */

/*
 * How much of the loop strangers may have: so many turns of each of their sockets in so long. An
 * agent needs about one; decisions come behind all messages, and would wait as long as one floods.
 */
#define TURNS_US        100000ull
#define TURNS_MESSAGE   32
#define TURNS_ACCEPT    16
#define TURNS_CONTAINER 2 /* of accepting out of one */

/* A socket on which peers arrive: the daemon's own, or one in a container's directory. */
struct listener {
    struct link *link;
    struct container *container; /* NULL: the daemon's own */
    link_find_job *find_job;     /* of that container */
    sd_event_source *source;
    int fd;
};

struct link {
    struct node *node;
    const struct link_role *agents, *controllers;
    struct listener *own;
    int spare_fd; /* given up for a moment when descriptors run out, to hang up on the caller */
    sd_event_source *reap_source;
    struct peer *first;
    unsigned n;
};

static struct peer *peer_free(struct peer *peer)
{
    sd_event_source_disable_unref(peer->io);
    close_fd(peer->fd);
    free(peer->queue);
    free(peer);
    return NULL;
}

static const struct link_role *role_of(const struct peer *peer)
{
    const struct link *l = peer->node->link;

    return peer->role == PEER_CONTROLLER ? l->controllers : l->agents;
}

static void peer_gone(struct peer *peer)
{
    if (peer->role != PEER_NEW)
        role_of(peer)->gone(peer);
}

static int on_reap(sd_event_source *s, void *arg)
{
    struct link *l = arg;

    for (struct peer **at = &l->first; *at;) {
        struct peer *peer = *at;

        if (!peer->doomed) {
            at = &peer->next;
            continue;
        }
        *at = peer->next;
        l->n--;
        peer_gone(peer);
        peer_free(peer);
    }
    return 0;
}

void link_hang_up(struct peer *peer)
{
    if (peer->doomed)
        return;
    peer->doomed = true;
    sd_event_source_set_enabled(peer->io, SD_EVENT_OFF);
    sd_event_source_set_enabled(peer->node->link->reap_source, SD_EVENT_ONESHOT);
}

static void process_gone(struct process *p)
{
    if (p->peer)
        link_detach(p->peer);
}

const struct job_observer link_observer = {.process_gone = process_gone};

void link_detach(struct peer *peer)
{
    peer->process = NULL;
    link_hang_up(peer);
}

/* While answers wait for room, a controller is not read: it cannot make us collect more of them. */
static void peer_wait_for_room(struct peer *peer, bool full)
{
    uint32_t events = full ? EPOLLOUT : EPOLLIN;

    if (full && peer->role == PEER_AGENT)
        events |= EPOLLIN;
    if (peer->full == full || peer->doomed)
        return;
    peer->full = full;
    sd_event_source_set_io_events(peer->io, events);
}

int link_send(struct peer *peer, const union proto_message *m)
{
    int r;

    if (peer->doomed)
        return -EPIPE;
    if (fault(FAULT_SEND) == 0 && send(peer->fd, m, m->h.size, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
        return 0;
    if (errno == EAGAIN || errno == ENOBUFS) {
        peer_wait_for_room(peer, true);
        return -EAGAIN;
    }
    r = -errno; /* hanging up makes calls of its own */
    link_hang_up(peer);
    return r;
}

/* ---- reading ---- */

static int peer_first(struct peer *peer, union proto_message *m, struct error *err)
{
    if (m->h.type == PROTO_CONTROL && peer->container)
        return error_set(err, -EACCES, "a container speaks for itself only");
    if (m->h.type == PROTO_CONTROL)
        peer->role = PEER_CONTROLLER;
    else if (m->h.type != PROTO_HELLO)
        return error_set(err, -EBADMSG,
                         "the first message is of type %u, neither hello nor control", m->h.type);
    return 0;
}

static int peer_message(struct peer *peer, union proto_message *m, size_t len, struct error *err)
{
    int r = proto_check(m, len, err);

    if (r == 0 && peer->role == PEER_NEW)
        r = peer_first(peer, m, err);
    if (r < 0)
        return r;
    /* A new peer's first message is a hello, or peer_first() has made it a controller. */
    return role_of(peer)->message(peer, m, err);
}

static void peer_refuse(struct peer *peer, const union proto_message *m, const struct error *err)
{
    union proto_message answer;

    node_log("peer %d (uid %u): %s; hung up", (int)peer->who.pid, (unsigned)peer->who.uid,
             err->text);
    if (peer->role != PEER_AGENT) {
        proto_init(&answer, PROTO_RESULT, m->h.cookie);
        answer.result.status = err->code;
        snprintf(answer.result.text, sizeof(answer.result.text), "%.*s", PROTO_TEXT_MAX - 1,
                 err->text);
        link_send(peer, &answer);
    }
    link_hang_up(peer);
}

static void peer_read(struct peer *peer)
{
    union proto_message m;
    struct error err = {0};
    ssize_t len;

    memset(&m.h, 0, sizeof(m.h));
    len = recv(peer->fd, &m, sizeof(m), MSG_DONTWAIT | MSG_TRUNC);
    if (len < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (len <= 0)
        link_hang_up(peer);
    else if (peer_message(peer, &m, (size_t)len, &err) < 0)
        peer_refuse(peer, &m, &err);
}

static int on_peer(sd_event_source *s, int fd, uint32_t events, void *arg)
{
    struct peer *peer = arg;

    if (events & EPOLLOUT) {
        peer_wait_for_room(peer, false);
        if (peer->role != PEER_NEW)
            role_of(peer)->writable(peer);
    }
    if (events & EPOLLIN)
        peer_read(peer);
    else if (events & (EPOLLHUP | EPOLLERR))
        link_hang_up(peer);
    return 0;
}

/* ---- accepting ---- */

static unsigned peers_of(const struct link *l, uid_t uid)
{
    unsigned n = 0;

    for (const struct peer *peer = l->first; peer; peer = peer->next)
        n += !peer->container && peer->who.uid == uid;
    return n;
}

static unsigned peers_in(const struct link *l, const struct container *container)
{
    unsigned n = 0;

    for (const struct peer *peer = l->first; peer; peer = peer->next)
        n += peer->container == container;
    return n;
}

/* Their users are the containers': all of them together count as one more user. */
static unsigned containers_peers(const struct link *l)
{
    unsigned n = 0;

    for (const struct peer *peer = l->first; peer; peer = peer->next)
        n += peer->container != NULL;
    return n;
}

/* A container's root is nobody special. */
static bool peer_welcome(const struct listener *at, uid_t uid)
{
    const struct link *l = at->link;
    uint32_t most = l->node->config.user_connections;

    if (at->container)
        return l->n < PROTO_CONNECTIONS_MAX - LINK_KEPT &&
               containers_peers(l) < LINK_CONTAINERS_MAX &&
               peers_in(l, at->container) < LINK_CONTAINER_MAX;
    if (limits_exempt(l->node, uid))
        return l->n < PROTO_CONNECTIONS_MAX;
    return l->n < PROTO_CONNECTIONS_MAX - LINK_KEPT && (!most || peers_of(l, uid) < most);
}

static int peer_new(struct listener *at, int fd)
{
    struct link *l = at->link;
    struct caller who;
    struct peer *peer;
    uint64_t start;
    int r = control_identify(l->node, fd, &who);

    if (r < 0)
        return r;
    r = proc_identify_peer(l->node->root, fd, who.pid, who.uid, &start);
    if (r == -EPERM)
        node_log("peer %d (uid %u) runs with the rights of another user, too (a setuid program?); "
                 "hung up",
                 (int)who.pid, (unsigned)who.uid);
    if (r < 0)
        return r;
    if (!peer_welcome(at, who.uid)) {
        node_log("peer %d (uid %u): too many connections; hung up", (int)who.pid,
                 (unsigned)who.uid);
        return -ENOSPC;
    }
    peer = fault(FAULT_PEER_MEMORY) < 0 ? NULL : calloc(1, sizeof(*peer));
    if (!peer)
        return -ENOMEM;
    *peer = (struct peer){.node = l->node,
                          .container = at->container,
                          .find_job = at->find_job,
                          .fd = fd,
                          .who = who};
    peer->start = start;
    peer->connected_ns = clock_now_ns();
    r = sd_event_add_io(l->node->event, &peer->io, fd, EPOLLIN, on_peer, peer);
    if (r >= 0 && (peer->container || who.uid != l->node->uid))
        r = sd_event_source_set_ratelimit(peer->io, TURNS_US, TURNS_MESSAGE);
    if (r < 0) {
        sd_event_source_disable_unref(peer->io);
        free(peer);
        return r;
    }
    peer->next = l->first;
    l->first = peer;
    l->n++;
    return 0;
}

/* Without a free descriptor the caller would stay in the queue and keep the loop awake. */
static void hang_up_on_next(const struct listener *at)
{
    struct link *l = at->link;

    l->spare_fd = close_fd(l->spare_fd);
    close_fd(accept4(at->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
    l->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    node_log("no descriptor left for another peer; hung up");
}

static int on_listen(sd_event_source *s, int listen_fd, uint32_t events, void *arg)
{
    struct listener *at = arg;

    for (unsigned i = 0; i < ACCEPT_BURST; i++) {
        int fd = fault(FAULT_ACCEPT) < 0
                     ? -1
                     : accept4(at->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        int r;

        if (fd < 0 && (errno == EMFILE || errno == ENFILE))
            hang_up_on_next(at);
        if (fd < 0)
            return 0;
        r = peer_new(at, fd);
        if (r == -ENOMEM)
            node_log("no memory for another peer; hung up");
        if (r < 0)
            close(fd);
    }
    return 0;
}

void link_tick(struct link *l)
{
    uint64_t now = clock_now_ns();

    for (struct peer *peer = l->first; peer; peer = peer->next)
        if (peer->role == PEER_NEW && now - peer->connected_ns > LINK_SILENT_NS)
            link_hang_up(peer);
}

unsigned link_count(const struct link *l)
{
    return l->n;
}

/* ---- the socket ---- */

/* Through the descriptor: a directory's path may be longer than a socket's address, or change. */
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
    /* Made with its mode: by name, a container that may write there would choose the file. */
    mask = umask(0777 & ~mode);
    r = bind(fd, (struct sockaddr *)&addr, sizeof(addr));
    umask(mask);
    failpoint(FAILPOINT_SOCKET_BOUND);
    if (r < 0 || listen(fd, SOMAXCONN) < 0)
        return -errno;
    return TAKE_FD(fd);
}

static int listener_new(struct link *l, int dir_fd, mode_t mode, struct container *container,
                        struct listener **ret)
{
    struct listener *at = calloc(1, sizeof(*at));
    int r;

    if (!at)
        return -ENOMEM;
    *at = (struct listener){.link = l, .container = container};
    at->fd = r = bind_in(dir_fd, mode);
    if (r >= 0)
        r = sd_event_add_io(l->node->event, &at->source, at->fd, EPOLLIN, on_listen, at);
    if (r >= 0)
        r = sd_event_source_set_ratelimit(at->source, TURNS_US,
                                          container ? TURNS_CONTAINER : TURNS_ACCEPT);
    if (r < 0) {
        sd_event_source_disable_unref(at->source);
        close_fd(at->fd);
        free(at);
        return r;
    }
    *ret = at;
    return 0;
}

int link_listen(struct link *l, int dir_fd, struct container *container, link_find_job *find_job,
                struct listener **ret)
{
    int r = listener_new(l, dir_fd, 0666, container, ret);

    if (r == 0)
        (*ret)->find_job = find_job;
    return r;
}

struct listener *link_unlisten(struct listener *at)
{
    if (!at)
        return NULL;
    for (struct peer *peer = at->link->first; at->container && peer; peer = peer->next)
        if (peer->container == at->container) {
            peer->container = NULL;
            link_hang_up(peer);
        }
    sd_event_source_disable_unref(at->source);
    close_fd(at->fd);
    free(at);
    return NULL;
}

int link_new(struct node *n, const struct link_role *agents, const struct link_role *controllers,
             struct link **ret, struct error *err)
{
    struct link *l = calloc(1, sizeof(*l));
    int r;

    if (!l)
        return error_set(err, -ENOMEM, "out of memory");
    l->node = n;
    l->agents = agents;
    l->controllers = controllers;
    l->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    /* Root's daemon serves every user and tells them apart; anybody else's serves its user. */
    r = listener_new(l, n->dir_fd, n->uid == 0 ? 0666 : 0600, NULL, &l->own);
    if (r >= 0)
        r = sd_event_add_defer(n->event, &l->reap_source, on_reap, l);
    if (r >= 0)
        r = sd_event_source_set_enabled(l->reap_source, SD_EVENT_OFF);
    if (r < 0) {
        link_free(l);
        return error_set(err, r, "cannot listen on %s/" RUNDIR_AGENT_SOCKET ": %s", n->dir,
                         strerror(-r));
    }
    *ret = l;
    return 0;
}

struct link *link_free(struct link *l)
{
    if (!l)
        return NULL;
    while (l->first) {
        struct peer *peer = l->first;

        l->first = peer->next;
        peer_gone(peer);
        peer_free(peer);
    }
    link_unlisten(l->own);
    sd_event_source_disable_unref(l->reap_source);
    close_fd(l->spare_fd);
    free(l);
    return NULL;
}
