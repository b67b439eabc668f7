/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small HTTP or HTTPS server in the event loop. libmicrohttpd parses; limits bound the memory
 * and the time of the loop that a client can use. The handler gets complete requests and may
 * answer them later.
 *
 * A connection is trusted once one of its requests was answered with a status below 400. Any other
 * connection has HTTPD_FIRST_MS in all, however busily it sends. When three quarters of the
 * connections are taken, each new one closes the oldest that is neither trusted nor waiting for an
 * answer. So strangers cannot keep others out.
 *
 * One turn of the loop handles requests for HTTPD_TURN_NS; further ones wait for the next turn, so
 * that sources of a higher priority come in between.
 *
 * Event loop's thread; used by tided (api.c), tide-kube (chiefs_channel.c, kube_metrics.c) and
 * tide-dashboard.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#define HTTPD_FIRST_MS   10000 /* from the connection to its first complete request, TLS included */
#define HTTPD_NEXT_MS    60000 /* from an answer to the next complete request */
#define HTTPD_BODY_SMALL (16 << 10) /* bytes of a body that is always accepted */
#define HTTPD_FILES      8192       /* wanted limit of descriptors … */
#define HTTPD_FILES_KEPT 256        /* … and those reserved for other uses than connections */
#define HTTPD_TURN_NS    2000000

#define HTTPD_HEADERS_MAX 12 /* that a handler adds to one answer */

struct httpd;

struct httpd_request {
    const char *method, *path; /* during the call of the handler only */
    const char *body;          /* terminated; "" without a body */
    size_t body_len;
    uint64_t received_ns;         /* when its head was complete */
    bool cut;                     /* the body was too large and was dropped */
    const unsigned char *address; /* 16 bytes, the client's address; IPv4 in the last four */
    void *client;                 /* data about the connection, made by @admit of the options */
    void *context;                /* the handler's own */
    unsigned retry_s;             /* the answer's Retry-After; 0: none */
};

typedef void httpd_handler(void *arg, struct httpd_request *r);

/* Called with the head of a request; returns how many bytes of its body to keep at most. */
typedef size_t httpd_limit(void *arg, const struct httpd_request *r);

/* Called with a new connection: returns the caller's data about it, or NULL to reject it. */
typedef void *httpd_admit(void *arg, int fd);

struct httpd_options {
    const char *address; /* "HOST:PORT", "[ADDRESS]:PORT" or ":PORT"; NULL: */
    int fd;              /* a listening socket, which the server closes in the end */
    int64_t priority;    /* of its event sources */
    /*
     * @handler handles a complete request: it calls httpd_answer() now or later. @too_long (NULL:
     * answers 413) does so if the body is longer than body_max. @over (NULL: none) hears of the end
     * of each request, whether it was answered or its client left.
     */
    httpd_handler *handler, *too_long, *over;
    httpd_limit *limit;                     /* NULL: body_max */
    httpd_admit *admit;                     /* NULL: admits every client */
    void (*leave)(void *arg, void *client); /* frees the data that @admit made */
    void *arg;
    unsigned connections_max; /* 0: the largest possible number */
    unsigned per_address_max; /* 0: no other limit; else at most a quarter of connections_max */
    unsigned first_ms;        /* 0: HTTPD_FIRST_MS */
    unsigned idle_s;          /* a connection that sends nothing is closed */
    size_t body_max;
    size_t bodies_max; /* for all bodies above HTTPD_BODY_SMALL, which are dropped beyond it; 0: no
                          limit */
    size_t ignore_max; /* of a body that is not kept, to be read so that its client goes on to read
                          the answer; a longer one loses its connection. 0: a MiB */
    const char *client_ca; /* PEM texts of authorities: clients are asked for a certificate, which
                              httpd_tls() leads to; NULL: they are not */
    void *certificate; /* GnuTLS's callback that finds a certificate: serves TLS; NULL: no TLS */
};

/* Takes ownership of options->fd, also if it fails. Returns 0, or -errno with *err. */
int httpd_new(sd_event *event, const struct httpd_options *options, struct httpd **ret,
              struct error *err);
struct httpd *httpd_free(struct httpd *s); /* takes NULL, returns NULL */

unsigned httpd_port(const struct httpd *s);

/* Read the query and the head, during the handler's call; NULL: absent. "" without a value. */
const char *httpd_argument(const struct httpd_request *r, const char *key);
const char *httpd_header(const struct httpd_request *r, const char *key);

/* GnuTLS's session of the request's connection, until the request is over; NULL: without TLS. */
void *httpd_tls(const struct httpd_request *r);

/*
 * Takes ownership of @text (NULL: out of memory). @type is a literal. @close: the client has to
 * open another connection for its next request.
 */
void httpd_answer(struct httpd_request *r, unsigned status, const char *type, char *text,
                  bool close);

/*
 * Adds a header to the answer that will be given; call it before httpd_answer() or httpd_stream().
 * @name is a literal, @value is copied. Returns 0, -ENOSPC (HTTPD_HEADERS_MAX) or -ENOMEM.
 */
int httpd_add_header(struct httpd_request *r, const char *name, const char *value);

/*
 * Calls @each with each argument of the query, decoded, until it returns other than 0, which is
 * returned. During the handler's call only.
 */
int httpd_arguments(const struct httpd_request *r,
                    int (*each)(void *arg, const char *key, const char *value), void *arg);

/*
 * Fills @buf and returns how many bytes; 0: nothing yet, and httpd_wake() will be called; or one of
 * those below. Its @arg lives until the request is over.
 */
typedef ssize_t httpd_reader(void *arg, char *buf, size_t max);

#define HTTPD_END    (-1)
#define HTTPD_BROKEN (-2) /* the client shall notice that the answer is incomplete */

/* For a reader: puts @text from byte *sent on into the @room of @buf. Returns how many bytes. */
size_t httpd_put(char *buf, size_t room, const char *text, size_t *sent, bool *ret_whole);

/* Answers 200 with what @reader has, now and later. The request is busy until its client leaves. */
void httpd_stream(struct httpd_request *r, const char *type, httpd_reader *reader, void *arg);
void httpd_wake(struct httpd_request *r);
