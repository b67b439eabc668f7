/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to another machine's daemon, one after the other. A connection is kept for the next
 * request, since making one takes longer than an answer. One thread at a time.
 */
#pragma once

#include "cli/remote/dial.h"
#include "host/net/http.h"

#include <stdint.h>

#define REMOTE_CONNECT_MS 12000 /* more for a first answer: names, keys, a login */
#define REMOTE_PERSON_MS  60000 /* … and a password, where somebody can type it */

struct remote {
    struct address address;
    bool alone;          /* nobody is there to be asked for a password */
    unsigned connect_ms; /* more for an exchange that has to connect first */
    struct dial dial;
    uint64_t used_ns;   /* when the connection was last answered on */
    struct dial stream; /* the child of the last stream, which has its descriptor */
};

/* Reaches for nothing yet. */
void remote_init(struct remote *r, const struct address *a, bool alone);
void remote_done(struct remote *r);

/* As http_request() and http_stream_open(); -EHOSTUNREACH says why the machine is not reached. */
int remote_request(struct remote *r, const char *method, const char *path, const char *body,
                   unsigned timeout_ms, int *ret_status, char **ret_body, struct error *err);
int remote_stream(struct remote *r, const char *path, const char *last, unsigned timeout_ms,
                  struct http_stream *ret, int *ret_status, char **ret_body, struct error *err);
