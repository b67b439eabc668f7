/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control port: a small HTTP/1.1 server for the chief and the kubelet's probes. It takes one
 * request a connection; a watcher stays and gets every new state of the TensorFlow node. It limits
 * connections, bytes and a client's time. Main thread, called by node.c; never blocks.
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
#define CONTROL_ANSWER_NS       (5 * NS_PER_S)  /* … of the answer, and of what is left to read */
#define CONTROL_STALL_NS        (10 * NS_PER_S) /* until a watcher that reads nothing is closed */
#define CONTROL_REPEAT_NS       (5 * NS_PER_S)  /* the last line again, as a sign of life */

#define CONTROL_POLL_MAX (CONTROL_CONNECTIONS_MAX + 1)

struct control;
struct conn;
struct pollfd;

/* A whole request has arrived: the callee calls control_answer(), _wait() or _watch() for it. */
typedef void (*control_request_fn)(void *arg, struct conn *conn, const struct request *request);

/*
 * Listens on @port (0: the kernel chooses); *ret_port is the port in use.
 * Returns 0, or -errno with *err. *ret lives as long as the process.
 */
int control_open(uint32_t port, control_request_fn on_request, void *arg, struct control **ret,
                 uint32_t *ret_port, struct error *err);

/* Answers with @status and the JSON text @body, and closes when the client has read it. */
void control_answer(struct conn *conn, int status, const char *body);

/* Keeps the client for an answer that comes later: until @ticket is reached or @deadline_ns. */
void control_wait(struct conn *conn, uint64_t ticket, uint64_t deadline_ns);

/* Sends the client the present line and each later one. Returns false: too many watchers. */
bool control_watch(struct conn *conn);

/* Returns the next waiting connection behind @after (NULL: the first), or NULL. */
struct conn *control_waiting(struct control *c, const struct conn *after);
uint64_t conn_ticket(const struct conn *conn);
uint64_t conn_deadline(const struct conn *conn);

/* Sends all watchers the state of the TensorFlow node, one line of JSON with its newline. */
void control_publish(struct control *c, const char *line);

unsigned control_watchers(const struct control *c);

/* Fills in at most CONTROL_POLL_MAX descriptors for poll(). Returns their number. */
size_t control_poll(struct control *c, struct pollfd *fds);

/* Serves what poll() found, and expired deadlines. Returns the latest time for the next call. */
uint64_t control_serve(struct control *c, const struct pollfd *fds, size_t n, uint64_t now_ns);
