/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent.sock: accepts connections, checks and reads their messages, sends ours, and closes
 * connections that break the rules. A role gives messages their meaning: agent.c and control.c,
 * which the daemon's top level registers. No connection can make the loop wait: every call is
 * non-blocking. A message that does not fit into a socket is sent later from the state at that time
 * (a target), or stops the reading (answers to a controlling program). Daemon's event loop only.
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
    (10 * 1000000000ull)                /* a connection without a message is closed after that */
#define AGENT_SOCKET_QUEUE_MAX      32  /* answers to a controlling program that wait for room */
#define AGENT_SOCKET_CONTAINER_MAX  64  /* connections from one container, … */
#define AGENT_SOCKET_CONTAINERS_MAX 512 /* … from all containers */
#define AGENT_SOCKET_KEPT           64  /* of PROTO_CONNECTIONS_MAX, reserved for root */

/*
 * The budget of a user's agents, of the user's controlling programs, of the user's new connections,
 * and of a container: so much of the loop's time at once, ACCOUNT_RATE of it each second. All
 * containers together have AGENT_SOCKET_CONTAINERS times that: nobody knows whose they are. Beyond
 * it they are not read, by turns again when there is budget: connections and messages wait in their
 * sockets, none is lost.
 */
#define AGENT_SOCKET_BURST      200 /* ms */
#define AGENT_SOCKET_CONTAINERS 2

struct container;
struct job;
struct agent_socket;
struct listener;
struct daemon;
struct order;
struct connection;
struct process;
struct turns;

/* The job of process @pid, which came through @container's socket. 0, or -errno with *err. */
typedef int agent_socket_find_job(struct container *container, pid_t pid, struct job **ret,
                                  struct error *err);

/* Handles messages of one kind of connection, received and checked by agent_socket.c. */
struct agent_socket_role {
    /* Returns 0, or -errno with *err: the connection is then closed. */
    int (*message)(struct connection *connection, union proto_message *m, struct error *err);
    void (*writable)(struct connection *connection); /* its socket has room again */
    void (*gone)(struct connection *connection);     /* about to be freed */
};

enum connection_role { CONNECTION_NEW, CONNECTION_AGENT, CONNECTION_CONTROLLER };

struct connection {
    struct connection *next;
    struct daemon *daemon;
    struct container *container;     /* the container whose socket it came through; or NULL */
    agent_socket_find_job *find_job; /* for that container */
    int fd;
    sd_event_source *io; /* NULL: it waits to be settled */
    enum connection_role role;
    struct caller who;
    uint64_t start; /* of the process, ticks after boot; read at accept */
    uint64_t connected_ns;
    bool doomed;                  /* to be closed before the loop sleeps */
    bool full;                    /* waits for room in the socket */
    struct turns *turns;          /* whose budget its messages take; NULL: no budget */
    bool waits;                   /* is not read until there is budget … */
    struct connection *next_turn; /* … and the one behind it */
    struct process *process;      /* of an agent, after its hello */
    /* of a controlling program: */
    union proto_message *queue; /* AGENT_SOCKET_QUEUE_MAX messages, allocated when needed */
    unsigned n_queue;
    bool listing;         /* a LIST is under way … */
    uint32_t list_after;  /* … which has reached the job of this number */
    uint32_t list_cookie; /* … and has this cookie */
    struct order *orders; /* waiting orders, see control.c */
};

/* Listens on agent.sock in the daemon's directory. Returns 0 or -errno. */
int agent_socket_new(struct daemon *d, const struct agent_socket_role *agents,
                     const struct agent_socket_role *controllers, struct agent_socket **ret,
                     struct error *err);
struct agent_socket *agent_socket_free(struct agent_socket *l); /* takes NULL, returns NULL */

/*
 * Listens on an agent.sock in @dir_fd, for the processes of @container alone: only it has the
 * directory. Replaces an old socket. Returns 0 or -errno.
 */
int agent_socket_listen(struct agent_socket *l, int dir_fd, struct container *container,
                        agent_socket_find_job *find_job, struct listener **ret);
struct listener *
agent_socket_unlisten(struct listener *at); /* closes its connections; takes NULL, returns NULL */

/*
 * Sends one message. Returns 0, -EAGAIN (the socket is full; the role's writable() is called when
 * there is room) or -errno (the connection is closed before the loop sleeps).
 */
int connection_send(struct connection *connection, const union proto_message *m);

/* Closes the connection before the loop sleeps. */
void connection_hang_up(struct connection *connection);

extern const struct job_observer agent_socket_observer;

/* The connection's process is freed: forgets it and closes the connection. */
void connection_detach(struct connection *connection);

/* Closes connections that never sent a message. */
void agent_socket_tick(struct agent_socket *l);

unsigned agent_socket_count(const struct agent_socket *l); /* for fuzz/ */
