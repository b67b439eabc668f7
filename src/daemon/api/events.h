/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /v1/events: what happens, as server-sent events. The last ones are kept, so that a client
 * that lost its connection goes on where it was (Last-Event-ID). Nobody is waited for: a stream
 * whose reader is further behind than what is kept is ended. Daemon's event loop only; told by
 * chronicle.c, asked by api.c and routes.c.
 */
#pragma once

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define EVENTS_KEPT        1024
#define EVENTS_STREAMS_MAX 32
#define EVENTS_STREAMS_UID 8 /* of one user other than root and the daemon's own */
#define EVENTS_BEAT_S      15
#define EVENTS_TEXT_MAX    2048 /* bytes of one event; a longer one is not told */

/* Where a stream begins, and whether it ends. */
struct events_from {
    const char *last;  /* behind this event, as it was sent as id; or, with NULL, */
    uint64_t since_ms; /* with what happened from then on (CLOCK_REALTIME); 0: from now on */
    bool ends;         /* with what has happened up to now */
};

struct events;
struct daemon;
struct request;
struct stream;

int events_new(struct daemon *d, struct events **ret);
struct events *events_free(struct events *e); /* after api_free(); takes NULL, returns NULL */

/* Takes over @data, an object (NULL: out of memory, nothing is told). @e may be NULL. */
void events_tell(struct events *e, const char *type, json_t *data);

/*
 * A stream for a request. What is not kept, be it another daemon's or too old, is an event "missed"
 * before those that are. Returns 0 or -EAGAIN: there are too many.
 */
int events_open(struct events *e, struct request *r, const struct events_from *from,
                struct stream **ret);

/* api.c: an httpd_reader, and the end of the request. */
ssize_t stream_read(void *arg, char *buf, size_t max);
struct stream *stream_free(struct stream *s); /* takes NULL, returns NULL */

void events_end_streams(struct events *e); /* the daemon ends */
