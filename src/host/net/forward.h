/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passes a request of one of our servers on to a daemon, over a connection that its owner has
 * opened, and the answer back, streams of events included:
 *
 *     httpd_request ─ forward_new(): path, arguments, body; no header of the client but
 *     Last-Event-ID ─ forward_begin(fd) ─▶ daemon ─▶ httpd_answer() or httpd_stream()
 *
 * A client that reads slowly holds FORWARD_STREAM_MAX bytes of a stream, and nobody else up. Event
 * loop's thread; used by tide-dashboard and tide-gate.
 */
#pragma once

#include "host/net/httpd.h"

#include <stdbool.h>
#include <stddef.h>
#include <systemd/sd-event.h>

#define FORWARD_STREAM_MAX 65536 /* bytes of a stream that wait for a slow client */

struct forward;

struct forward_options {
    sd_event *event;
    struct httpd_request *request;
    const char *path;    /* decoded: each of its segments is encoded anew */
    const char *headers; /* further lines of the head, each with its end, or "" */
    bool keeps;          /* the connection may serve a further request: HTTP/1.1 */
    unsigned timeout_ms; /* for the answer, or the beginning of a stream */
};

enum forward_what {
    FORWARD_STREAMS, /* a stream of events has begun: it waits for nothing any more */
    FORWARD_OVER,    /* the answer, or a stream of it, has ended */
    FORWARD_BROKEN,  /* the exchange failed */
};

/*
 * With the last two the connection is the owner's again. After FORWARD_BROKEN the owner calls
 * forward_fail() or, while there is no byte of an answer, forward_begin() with another one.
 */
struct forward_event {
    enum forward_what what;
    unsigned status;     /* FORWARD_OVER: of the answer; 0: it was a stream */
    bool closes;         /* FORWARD_OVER: the connection serves no further request */
    int code;            /* FORWARD_BROKEN: -errno … */
    const char *message; /* … and its text for a person */
};

typedef void forward_told(void *arg, const struct forward_event *event);

/*
 * Writes the request down, to be called while its handler runs; @told with @arg hears what becomes
 * of it. Returns 0, -ENAMETOOLONG or -EINVAL
 * (path, argument or header), or -ENOMEM.
 */
int forward_new(const struct forward_options *options, forward_told *told, void *arg,
                struct forward **ret);

/* After the end of the client's request. The connection stays the owner's. Takes NULL. */
struct forward *forward_free(struct forward *f);

/* Begins the exchange on @fd, which does not block. Returns 0 or -errno. */
int forward_begin(struct forward *f, int fd);

/* Whether a byte of an answer has come. */
bool forward_answered(const struct forward *f);

/*
 * Ends the client's request, whatever it waits for: a stream by its end, otherwise with this status
 * and message. The connection is the owner's again.
 */
void forward_fail(struct forward *f, unsigned status, const char *message, const char *hint);
