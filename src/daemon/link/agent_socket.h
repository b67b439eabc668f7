/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent.sock: accepts peers, checks and reads their messages, sends ours, and hangs up on whoever
 * breaks the rules. What a message means is the word of a role: agent.c and control.c, which the
 * daemon's top level registers. No connection can make the loop
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

#define AGENT_SOCKET_SILENT_NS                                                                     \
    (10 * 1000000000ull)                /* one that has said nothing so long is closed */
#define AGENT_SOCKET_QUEUE_MAX      32  /* a controller's answers that wait for room */
#define AGENT_SOCKET_CONTAINER_MAX  64  /* connections out of one container, … */
#define AGENT_SOCKET_CONTAINERS_MAX 512 /* … out of all */
#define AGENT_SOCKET_KEPT           64  /* of PROTO_CONNECTIONS_MAX, for root alone */

struct container;
struct job;
struct agent_socket;
struct listener;
struct daemon;
struct order;
struct connection;
struct process;

/* The job of process @pid, which came through @container's socket. 0 or -errno with *err. */
typedef int agent_socket_find_job(struct container *container, pid_t pid, struct job **ret,
                                  struct error *err);

/* What one kind of connection says: called with what agent_socket.c has received and checked. */
struct agent_socket_role {
    /* Returns 0, or -errno with *err: the connection is then closed. */
    int (*message)(struct connection *connection, union proto_message *m, struct error *err);
    void (*writable)(struct connection *connection); /* there is room in its socket again */
    void (*gone)(struct connection *connection);     /* it is about to be freed */
};

enum connection_role { CONNECTION_NEW, CONNECTION_AGENT, CONNECTION_CONTROLLER };

struct connection {
    struct connection *next;
    struct daemon *daemon;
    struct container *container;     /* that it lives in, by the socket it came through; or NULL */
    agent_socket_find_job *find_job; /* of that container */
    int fd;
    sd_event_source *io;
    enum connection_role role;
    struct caller who;
    uint64_t start; /* of the process, ticks after boot; looked up at accept */
    uint64_t connected_ns;
    bool doomed;             /* closed before the loop sleeps */
    bool full;               /* waits for room in the socket */
    struct process *process; /* of an agent that said hello */
    /* a controller's: */
    union proto_message *queue; /* AGENT_SOCKET_QUEUE_MAX messages, made when first needed */
    unsigned n_queue;
    bool listing;         /* a LIST is under way … */
    uint32_t list_after;  /* … behind the job of this number */
    uint32_t list_cookie; /* … with this cookie */
    struct order *orders; /* that wait, see control.c */
};

/* Listens on agent.sock in the node's directory. Returns 0 or -errno. */
int agent_socket_new(struct daemon *d, const struct agent_socket_role *agents,
                     const struct agent_socket_role *controllers, struct agent_socket **ret,
                     struct error *err);
struct agent_socket *agent_socket_free(struct agent_socket *l); /* takes NULL, returns NULL */

/*
 * Listens on an agent.sock in @dir_fd for the processes of @container, and for nobody else: only it
 * has the directory. An old socket there makes way. Returns 0 or -errno.
 */
int agent_socket_listen(struct agent_socket *l, int dir_fd, struct container *container,
                        agent_socket_find_job *find_job, struct listener **ret);
struct listener *
agent_socket_unlisten(struct listener *at); /* and hangs up; takes NULL, returns NULL */

/*
 * Sends one message. Returns 0, -EAGAIN (the socket is full; the role's writable() is called
 * when there is room) or -errno (the connection is closed before the loop sleeps).
 */
int connection_send(struct connection *connection, const union proto_message *m);

/* Hangs up, before the loop sleeps. */
void connection_hang_up(struct connection *connection);

extern const struct job_observer agent_socket_observer;

/* Its process is forgotten: forgets it, too, and hangs up. */
void connection_detach(struct connection *connection);

/* Lets peers go that never said a word. */
void agent_socket_tick(struct agent_socket *l);

unsigned agent_socket_count(const struct agent_socket *l); /* for fuzz/ */
