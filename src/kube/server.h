/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small HTTP or HTTPS server in the event loop: libmicrohttpd parses, and what a peer can make us
 * keep has limits. A request is handled when it is complete; the answer may come later. Event
 * loop's thread; used by channel.c (TLS) and metrics.c.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#define SERVER_IDLE_S 30 /* a connection that sends nothing is let go */

struct server;

struct server_request {
    const char *method, *path; /* during the call of the handler only, as bearer */
    const char *bearer;        /* token; NULL: none */
    const char *body;          /* terminated; "" without one */
    size_t body_len;
    void *context; /* the handler's own */
};

/*
 * Handles a complete request: calls server_answer now or later. @gone of the options is called with
 * a request that it did not answer and whose peer has gone.
 */
typedef void server_handler(void *arg, struct server_request *r);

struct server_options {
    const char *address; /* "HOST:PORT", "[ADDRESS]:PORT" or ":PORT" */
    server_handler *handler, *gone;
    void *arg;
    unsigned connections_max, per_address_max; /* 0: as many as there may be at all */
    size_t body_max;                           /* above: 413 */
    bool tls;                                  /* with what identity_serve() was given last */
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
