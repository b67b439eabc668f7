/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small HTTP or HTTPS server in the event loop: libmicrohttpd parses, and what a peer can make us
 * keep has limits. A request is handled when it is complete; the answer may come later.
 *
 * A connection is trusted once a request of it was answered with a status below 400. One that is
 * not has SERVER_FIRST_MS in all, however busily it sends; and when three quarters of the
 * connections are taken, each new one closes the oldest that is not trusted and waits for no
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
#define SERVER_BODY_SMALL (16 << 10) /* bytes of one that is kept whatever others have sent */
#define SERVER_FILES      8192       /* descriptors that we want to be allowed, and of those … */
#define SERVER_FILES_KEPT 256        /* … so many no peer can take: others than peers need some */

struct server;

struct server_request {
    const char *method, *path; /* during the call of the handler only, as bearer */
    const char *bearer;        /* token; NULL: none */
    const char *body;          /* terminated; "" without one */
    size_t body_len;
    bool cut;                  /* there was one, and it was not kept */
    unsigned char address[16]; /* the peer's, of IPv4 in its last four bytes */
    void *context;             /* the handler's own */
};

/*
 * Handles a complete request: calls server_answer now or later. @gone of the options is called with
 * a request that it did not answer and whose peer has gone.
 */
typedef void server_handler(void *arg, struct server_request *r);

/* With the head of a request alone: so many bytes of its body are worth to be kept. */
typedef size_t server_limit(void *arg, const struct server_request *r);

struct server_options {
    const char *address; /* "HOST:PORT", "[ADDRESS]:PORT" or ":PORT" */
    server_handler *handler, *gone;
    void *arg;
    server_limit *limit;      /* NULL: body_max */
    unsigned connections_max; /* 0: as many as there may be at all */
    unsigned per_address_max; /* 0: the same; else a quarter of them at most */
    size_t body_max;          /* above: 413 */
    unsigned first_ms;        /* 0: SERVER_FIRST_MS */
    size_t bodies_max; /* of all that are longer than SERVER_BODY_SMALL; above: they are cut */
    bool tls;          /* with what identity_serve() was given last */
};

int server_new(sd_event *event, const struct server_options *options, struct server **ret,
               struct error *err);
struct server *server_free(struct server *s); /* takes NULL, returns NULL */

unsigned server_port(const struct server *s);

/*
 * Takes @text over (NULL: out of memory). @type is a literal. @close: the peer is to come back with
 * another connection.
 */
void server_answer(struct server_request *r, unsigned status, const char *type, char *text,
                   bool close);
