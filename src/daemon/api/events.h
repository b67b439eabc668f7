/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /v1/events: what happens to jobs, as server-sent events. The last ones are kept, so that a
 * client that lost its connection resumes where it was (Last-Event-ID). The daemon waits for no
 * client: a stream that falls behind the oldest event kept is ended. Daemon's event loop only; fed
 * by chronicle.c, asked by api.c and routes.c.
 */
#pragma once

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define EVENTS_KEPT        1024
#define EVENTS_STREAMS_MAX 32
#define EVENTS_STREAMS_UID 8 /* of one user, except root and the daemon's own */
#define EVENTS_BEAT_S      15
#define EVENTS_TEXT_MAX    2048 /* bytes of one event; a longer one is dropped */

/* The first event of a stream, and whether the stream ends. */
struct events_from {
    const char *last;  /* after the event with this id; or, with NULL, … */
    uint64_t since_ms; /* … from this time on (CLOCK_REALTIME); 0: from now on */
    bool ends;         /* after the events so far */
};

struct events;
struct daemon;
struct request;
struct stream;

int events_new(struct daemon *d, struct events **ret);
struct events *events_free(struct events *e); /* after api_free(); takes NULL, returns NULL */

/* Takes over @data, an object (NULL: out of memory, no event). @e may be NULL. */
void events_tell(struct events *e, const char *type, json_t *data);

/*
 * A stream for a request. Events no longer kept, or of another daemon, become one event "missed"
 * before the kept ones. Returns 0 or -EAGAIN: too many streams.
 */
int events_open(struct events *e, struct request *r, const struct events_from *from,
                struct stream **ret);

/* For api.c: an httpd_reader, and the end of the request. */
ssize_t stream_read(void *arg, char *buf, size_t max);
struct stream *stream_free(struct stream *s); /* takes NULL, returns NULL */

void events_end_streams(struct events *e); /* the daemon ends */
