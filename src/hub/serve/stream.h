/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Server-sent events: the last STREAM_KEPT, of STREAM_KEPT_BYTES at most, are kept, so that a page
 * that was away for a moment gets what it missed by Last-Event-ID. A reader that is slower than
 * they are dropped is told that it missed some, and goes on with the next one. Event loop's thread;
 * private to this room.
 */
#pragma once

#include "host/net/httpd.h"
#include "hub/people/people.h"

#include <jansson.h>
#include <systemd/sd-event.h>

#define STREAM_KEPT       4096
#define STREAM_KEPT_BYTES (64 << 20)
#define STREAM_TEXT_MAX   65536 /* an area's state has 256 machines, of 63 letters, at most */
#define STREAM_BEAT_S     15

struct streams;
struct stream;

/* @people, borrowed, says at each beat whether a stream's session or token is still good. */
int streams_new(sd_event *event, struct people *people, struct streams **ret);
struct streams *streams_free(struct streams *s); /* takes NULL, returns NULL */

/* Whether anybody listens. */
bool streams_open(const struct streams *s);

/* Tells everybody; takes @data (NULL: nothing happens). One that is too long is told as missed. */
void streams_tell(struct streams *s, const char *type, json_t *data);

/* Something was not told, as nobody listens: who comes back has missed it. */
void streams_skip(struct streams *s);

/*
 * Begins a stream behind the event @last (NULL: with the next one), which answers @http. Returns 0,
 * -EAGAIN (@most streams, or @most_of_user) or -ENOMEM.
 */
int stream_begin(struct streams *s, struct httpd_request *http, const struct who *who,
                 const char *last, unsigned most, unsigned most_of_user, struct stream **ret);
struct stream *stream_free(struct stream *one); /* at the end of its request; takes NULL */

/* Ends streams of the sessions that are gone, and all of them with @all. */
void streams_review(struct streams *s, bool all);
