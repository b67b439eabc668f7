/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api.sock: HTTP/JSON (docs/http-api.md). A request that waits for an acknowledgement is answered
 * later, and the loop goes on.
 * Daemon's event loop only.
 */
#pragma once

#include "base/error.h"
#include "daemon/link/access.h"
#include "host/net/httpd.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define API_BODY_MAX        65536
#define API_CONNECTIONS_MAX 256 /* of all users; above, accept and hang up */
#define API_CONNECTIONS_UID 64  /* of one user other than the daemon's own and root */
#define API_KEPT            32  /* of all, for those two */
#define API_USERS_MAX       1024
#define API_IDLE_S          10 /* a connection that sends nothing is let go */

/*
 * The budget of a user other than those two: so many requests a second and at once. A request that
 * takes the loop longer than API_TOKEN_NS counts as several. One too many is answered with 429, and
 * not at once.
 */
#define API_RATE      100
#define API_BURST     500
#define API_TOKEN_NS  1000000
#define API_REFUSE_NS 100000000ull
#define API_RETRY_S   1
#define API_FORGET_NS 10000000000ull /* of no connections: then the budget is full again */

/* Behind messages of agents, deaths and decisions: a flood of requests holds none of them up. */
#define API_PRIORITY (SD_EVENT_PRIORITY_NORMAL + 20)

enum http_status {
    HTTP_OK = 200,
    HTTP_CREATED = 201,
    HTTP_BAD_REQUEST = 400,
    HTTP_FORBIDDEN = 403,
    HTTP_NOT_FOUND = 404,
    HTTP_NOT_ALLOWED = 405,
    HTTP_CONFLICT = 409,
    HTTP_TOO_LARGE = 413,
    HTTP_TOO_MANY = 429,
    HTTP_UNAVAILABLE = 503,
};

struct adoption;
struct api;
struct attributes;
struct daemon;
struct history_search;
struct job;
struct request;
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
    struct httpd_request *http;
    struct stream *stream;     /* from events.h, where it is the answer */
    uint64_t wait;             /* its wait, 0: none */
    struct adoption *adoption; /* that it waits for; NULL: none */
    struct request *next;      /* of those that are refused, and wait to be told */
    struct history_search *search;
    sd_event_source *turn; /* of the search, while it takes several */
    double since;
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

/*
 * routes_limits.c: writes a new job down before the answer: a job that was promised outlives this
 * daemon. False: one that was to wait is refused and freed; answered with the error.
 */
bool routes_write_down(struct request *r, struct job *j);

/* routes_record.c: the same of single paths. @none is no job. */
void routes_history(struct request *r, struct job *none);
void routes_events(struct request *r, struct job *none);
void routes_metrics(struct request *r, struct job *none);

/* Counts @ns of the loop's time for the budget of its user. */
void request_charge(struct request *r, uint64_t ns);

/* 200, at once: takes over @text (NULL: out of memory), and the stream. @type is a literal. */
void request_answer_text(struct request *r, const char *type, char *text);
void request_answer_stream(struct request *r, struct stream *stream);

/* Answers; takes over @answer (NULL: out of memory). */
void request_answer(struct request *r, unsigned status, json_t *answer);
__attribute__((format(printf, 4, 5))) void request_fail(struct request *r, unsigned status,
                                                        const char *hint, const char *fmt, ...);
