/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control port: a small HTTP/1.1 server for a node's chief and the kubelet's probes. One
 * request a connection; a watcher stays and is told every state of the node. Everything is bounded:
 * connections, bytes, and how long a client may take. Main thread, called by node.c; never blocks.
 */
#pragma once

#include "tfnode/request.h"

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONTROL_CONNECTIONS_MAX 64
#define CONTROL_WATCHERS_MAX    16              /* chiefs; the others stay free for probes */
#define CONTROL_LINE_MAX        320             /* a watcher's line, or the body of an answer */
#define CONTROL_REQUEST_NS      (5 * NS_PER_S)  /* from the connection to the end of the request */
#define CONTROL_ANSWER_NS       (5 * NS_PER_S)  /* … of the answer, and of the client's words */
#define CONTROL_STALL_NS        (10 * NS_PER_S) /* a watcher that reads nothing */
#define CONTROL_REPEAT_NS       (5 * NS_PER_S)  /* the last line again, as a sign of life */

#define CONTROL_POLL_MAX (CONTROL_CONNECTIONS_MAX + 1)

struct control;
struct conn;
struct pollfd;

/* A whole request has arrived: the callee calls control_answer(), _wait() or _watch() for it. */
typedef void (*control_request_fn)(void *arg, struct conn *conn, const struct request *request);

/*
 * Listens on @port (0: the kernel's choice, in *ret_port).
 * Returns 0, or -errno with *err. Never freed: its life is the process's.
 */
int control_open(uint32_t port, control_request_fn on_request, void *arg, struct control **ret,
                 uint32_t *ret_port, struct error *err);

/* Answers with @status and the JSON text @body, and closes when the client has had it. */
void control_answer(struct conn *conn, int status, const char *body);

/* Keeps the client for an answer that comes later: until @ticket is reached or @deadline_ns. */
void control_wait(struct conn *conn, uint64_t ticket, uint64_t deadline_ns);

/* The client is told every line from now on, the present one first. False: too many of them. */
bool control_watch(struct conn *conn);

/* The next connection that waits, behind @after (NULL: the first); NULL: no more. */
struct conn *control_waiting(struct control *c, const struct conn *after);
uint64_t conn_ticket(const struct conn *conn);
uint64_t conn_deadline(const struct conn *conn);

/* The state of the node, one line of JSON with its newline: goes to all watchers. */
void control_publish(struct control *c, const char *line);

unsigned control_watchers(const struct control *c);

/* What to poll() for; at most CONTROL_POLL_MAX. Returns their number. */
size_t control_poll(struct control *c, struct pollfd *fds);

/* Serves what poll() found, and the clocks. Returns when it wants to be called again at the latest.
 */
uint64_t control_serve(struct control *c, const struct pollfd *fds, size_t n, uint64_t now_ns);
