/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small HTTP or HTTPS server in the event loop. libmicrohttpd parses; limits bound the memory
 * that a client can use. The handler gets complete requests and may answer them later.
 *
 * A connection is trusted once one of its requests was answered with a status below 400. Any other
 * connection has SERVER_FIRST_MS in all, however busily it sends. When three quarters of the
 * connections are taken, each new one closes the oldest that is neither trusted nor waiting for an
 * answer. So strangers cannot keep chiefs out.
 *
 * Event loop's thread; used by chiefs_channel.c (TLS) and kube_metrics.c.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#define SERVER_IDLE_S 30 /* a connection that sends nothing is closed */
#define SERVER_FIRST_MS                                                                            \
    10000 /* from the connection to its first complete request: TLS, head and body */
#define SERVER_NEXT_MS    60000      /* from an answer to the next complete request */
#define SERVER_BODY_SMALL (16 << 10) /* bytes of a body that always fits, whatever others send */
#define SERVER_FILES      8192       /* wanted limit of descriptors … */
#define SERVER_FILES_KEPT 256        /* … and those reserved for other uses than connections */

struct server;

struct server_request {
    const char *method, *path; /* during the call of the handler only, as bearer */
    const char *bearer;        /* token; NULL: none */
    const char *body;          /* terminated; "" without one */
    size_t body_len;
    bool cut;                  /* the body was too large and was dropped */
    unsigned char address[16]; /* the client's; IPv4 in the last four bytes */
    void *context;             /* the handler's own */
};

/*
 * Handles a complete request: calls server_answer() now or later. If the client leaves before the
 * answer, the server calls @gone of the options with the request.
 */
typedef void server_handler(void *arg, struct server_request *r);

/* Called with the head of a request alone: returns how many bytes of its body to keep at most. */
typedef size_t server_limit(void *arg, const struct server_request *r);

struct server_options {
    const char *address; /* "HOST:PORT", "[ADDRESS]:PORT" or ":PORT" */
    server_handler *handler, *gone;
    void *arg;
    server_limit *limit;      /* NULL: body_max */
    unsigned connections_max; /* 0: the largest possible number */
    unsigned per_address_max; /* 0: the same; else at most a quarter of connections_max */
    size_t body_max;          /* above: 413 */
    unsigned first_ms;        /* 0: SERVER_FIRST_MS */
    size_t bodies_max; /* for all bodies above SERVER_BODY_SMALL; beyond it they are dropped */
    bool tls;          /* serves the last identity_serve() */
};

int server_new(sd_event *event, const struct server_options *options, struct server **ret,
               struct error *err);
struct server *server_free(struct server *s); /* takes NULL, returns NULL */

unsigned server_port(const struct server *s);

/*
 * Takes @text over (NULL: out of memory). @type is a literal. @close: the client has to open
 * another connection for its next request.
 */
void server_answer(struct server_request *r, unsigned status, const char *type, char *text,
                   bool close);
