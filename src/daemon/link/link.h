/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent.sock: accepts peers, checks and reads their messages, sends ours, and hangs up on whoever
 * breaks the rules. What a message means is the word of a role: agent.c and control.c, which the
 * daemon's top level registers. No peer can make the loop
 * wait: every call is non-blocking, and what does not fit into a socket is dropped or sent again
 * from the state when there is room (a target), or stops the reading (a controller's answers).
 * Daemon's event loop only.
 */
#pragma once

#include "base/error.h"
#include "daemon/link/access.h"
#include "proto/proto.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#define LINK_SILENT_NS      (10 * 1000000000ull) /* a peer that has said nothing so long is let go */
#define LINK_QUEUE_MAX      32                   /* a controller's answers that wait for room */
#define LINK_CONTAINER_MAX  64                   /* connections out of one container, … */
#define LINK_CONTAINERS_MAX 512                  /* … out of all */
#define LINK_KEPT           64                   /* of PROTO_CONNECTIONS_MAX, for root alone */

struct container;
struct job;
struct link;
struct listener;
struct node;
struct order;
struct peer;
struct process;

/* The job of process @pid, which came through @container's socket. 0 or -errno with *err. */
typedef int link_find_job(struct container *container, pid_t pid, struct job **ret,
                          struct error *err);

/* What one kind of peer says: called with what link.c has received and checked. */
struct link_role {
    /* Returns 0, or -errno with *err: the peer is then hung up on. */
    int (*message)(struct peer *peer, union proto_message *m, struct error *err);
    void (*writable)(struct peer *peer); /* there is room in its socket again */
    void (*gone)(struct peer *peer);     /* it is about to be freed */
};

enum peer_role { PEER_NEW, PEER_AGENT, PEER_CONTROLLER };

struct peer {
    struct peer *next;
    struct node *node;
    struct container *container; /* that it lives in, by the socket it came through; or NULL */
    link_find_job *find_job;     /* of that container */
    int fd;
    sd_event_source *io;
    enum peer_role role;
    struct caller who;
    uint64_t start; /* of the process, ticks after boot; looked up at accept */
    uint64_t connected_ns;
    bool doomed;             /* closed before the loop sleeps */
    bool full;               /* waits for room in the socket */
    struct process *process; /* of an agent that said hello */
    /* a controller's: */
    union proto_message *queue; /* LINK_QUEUE_MAX messages, made when first needed */
    unsigned n_queue;
    bool listing;         /* a LIST is under way … */
    uint32_t list_after;  /* … behind the job of this number */
    uint32_t list_cookie; /* … with this cookie */
    struct order *orders; /* that wait, see control.c */
};

/* Listens on agent.sock in the node's directory. Returns 0 or -errno. */
int link_new(struct node *n, const struct link_role *agents, const struct link_role *controllers,
             struct link **ret, struct error *err);
struct link *link_free(struct link *l); /* takes NULL, returns NULL */

/*
 * Listens on an agent.sock in @dir_fd for the processes of @container, and for nobody else: only it
 * has the directory. An old socket there makes way. Returns 0 or -errno.
 */
int link_listen(struct link *l, int dir_fd, struct container *container, link_find_job *find_job,
                struct listener **ret);
struct listener *link_unlisten(struct listener *at); /* and hangs up; takes NULL, returns NULL */

/*
 * Sends one message. Returns 0, -EAGAIN (the socket is full; the role's writable() is called
 * when there is room) or -errno (the peer is hung up on before the loop sleeps).
 */
int link_send(struct peer *peer, const union proto_message *m);

/* Hangs up, before the loop sleeps. */
void link_hang_up(struct peer *peer);

extern const struct job_observer link_observer;

/* Its process is forgotten: forgets it, too, and hangs up. */
void link_detach(struct peer *peer);

/* Lets peers go that never said a word. */
void link_tick(struct link *l);

unsigned link_count(const struct link *l);
