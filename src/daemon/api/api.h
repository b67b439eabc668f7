/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api.sock: HTTP/JSON (docs/http-api.md). libmicrohttpd parses, inside the daemon's own loop; a
 * request that waits for an acknowledgement is suspended, and the loop goes on.
 * Daemon's event loop only.
 */
#pragma once

#include "base/error.h"
#include "daemon/link/access.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define API_BODY_MAX        65536
#define API_CONNECTIONS_MAX 256 /* of all users; above, accept and hang up */
#define API_CONNECTIONS_UID 64  /* of one user other than the daemon's own and root */
#define API_IDLE_S          10  /* a connection that sends nothing is let go */

struct api;
struct job;
struct daemon;
struct request;
struct attributes;
struct stream;

/* What a complete request asks for: answers now, or later through request_answer. */
typedef void api_handler(struct request *r);

int api_new(struct daemon *d, api_handler *handler, struct api **ret, struct error *err);
struct api *api_free(struct api *api); /* takes NULL, returns NULL */

/* One request and, in the end, its answer. */
struct request {
    struct daemon *daemon;
    struct caller who;
    const char *method, *path; /* during the call only */
    json_t *body;              /* NULL: none */
    uint64_t received_ns;
    void *connection; /* libmicrohttpd's; NULL once the peer has gone */
    char *text;       /* of the body, as it arrives */
    size_t len;
    unsigned status; /* 0: not answered yet */
    json_t *answer;  /* owned; or */
    char *plain;     /* owned, of the media type */
    const char *type;
    struct stream *stream; /* or this, from events.h */
    bool suspended;
    uint64_t wait;             /* its wait, 0: none */
    struct adoption *adoption; /* that it waits for; NULL: none */
    uint32_t from, to;
    bool changed; /* PATCH: it asked for something else than there was */
};

/* routes.c: the api_handler of the whole interface. */
void routes_handle(struct request *r);

/*
 * routes_limits.c: whether the caller may give a job of user @uid these attributes (NULL: none are
 * changed) and @threads threads; false: answered with the error.
 */
bool routes_within_limits(struct request *r, uid_t uid, const struct attributes *asked,
                          uint32_t threads);

/* routes_record.c: the same of single paths. @none is no job. */
void routes_history(struct request *r, struct job *none);
void routes_events(struct request *r, struct job *none);
void routes_metrics(struct request *r, struct job *none);

/* Of the query and of the head, during the call; NULL: not there. "" where it has no value. */
const char *request_argument(const struct request *r, const char *key);
const char *request_header(const struct request *r, const char *key);

/* 200, at once: takes over @text (NULL: out of memory), and the stream. @type is a literal. */
void request_answer_text(struct request *r, const char *type, char *text);
void request_answer_stream(struct request *r, struct stream *stream);

/* A connection was resumed: libmicrohttpd is to be run. */
void api_resumed(struct api *api);

/* Answers; takes over @answer (NULL: out of memory). */
void request_answer(struct request *r, unsigned status, json_t *answer);
__attribute__((format(printf, 4, 5))) void request_fail(struct request *r, unsigned status,
                                                        const char *hint, const char *fmt, ...);
