/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api.sock: HTTP/JSON (docs/http-api.md). A request that waits for an acknowledgement is answered
 * later; the loop goes on. Daemon's event loop only.
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
#define API_CONNECTIONS_MAX 256 /* of all users; further ones are closed */
#define API_CONNECTIONS_UID 64  /* of one user, except root and the daemon's own */
#define API_KEPT            32  /* of all, reserved for those two */
#define API_USERS_MAX       1024
#define API_IDLE_S          10 /* an idle connection is closed after that */

/*
 * The budget of any other user: ACCOUNT_RATE requests a second, and so many at once. A request that
 * takes the loop longer than ACCOUNT_TOKEN_NS counts as several. A request beyond the budget is
 * answered late, with 429.
 */
#define API_BURST     500
#define API_REFUSE_NS 100000000ull
#define API_RETRY_S   1

/* Agents' messages, deaths and decisions come first: a flood of requests delays none of them. */
#define API_PRIORITY (SD_EVENT_PRIORITY_NORMAL + 20)

enum http_status {
    HTTP_OK = 200,
    HTTP_CREATED = 201,
    HTTP_ACCEPTED = 202,
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
struct job_request;
struct memory_change;
struct request;
struct stream;
struct user;

/* Handles a complete request: answers now, or later through request_answer. */
typedef void api_handler(struct request *r);

int api_new(struct daemon *d, api_handler *handler, struct api **ret, struct error *err);
struct api *api_free(struct api *api); /* takes NULL, returns NULL */

/* One request and, in the end, its answer. */
struct request {
    struct daemon *daemon;
    struct caller who;
    const char *method, *path; /* valid during the call only */
    json_t *body;              /* NULL: none */
    uint64_t received_ns;
    struct httpd_request *http;
    struct user *user;            /* whose budget it takes from: @who's */
    struct stream *stream;        /* of events.h, if that is the answer */
    uint64_t wait;                /* id of its wait; 0: none */
    struct adoption *adoption;    /* adoption that it waits for; NULL: none */
    struct memory_change *memory; /* change of a memory limit that it waits for; NULL: none */
    struct request *next;         /* in the list of refused requests that wait for their answer */
    struct history_search *search;
    bool searching;        /* counts as its user's search */
    sd_event_source *turn; /* of the search, while it takes several */
    double since;
    uint32_t from, to;
    bool changed; /* PATCH: it asked for a change */
    bool named;   /* the gateway named @who */
};

/* The api_handler of the whole interface, in routes.c. */
void routes_handle(struct request *r);

/*
 * In routes_limits.c: whether the caller may give a job of user @uid these attributes (NULL:
 * unchanged) and @threads threads. False: answered with the error.
 */
bool routes_within_limits(struct request *r, uid_t uid, const struct attributes *asked,
                          uint32_t threads);

/*
 * In routes_limits.c: whether the machine has the memory and devices that a job of the queue asks
 * for: it would wait for ever. False: answered with the error.
 */
bool routes_fits_machine(struct request *r, const struct attributes *asked);

/* In routes_limits.c: whether the caller may hold the job: it is not in one that would be paused.
 * False: answered with the error. */
bool routes_may_hold(struct request *r, const struct job *j);

/*
 * In routes_limits.c: judges the promise in @asked, of job @j or of a new one, as promised_judge()
 * does. False: it cannot be kept, and tide.conf says that it is refused; answered with the error.
 */
struct promised_verdict;
bool routes_take_promise(struct request *r, const struct job *j, uid_t uid, const char *name,
                         pid_t pid, const struct attributes *asked, struct promised_verdict *ret);

/*
 * The same for a new job of process @pid. One that asks for no promise gets the configured one, an
 * administrator's word: what speaks against it is said, and it is not refused.
 */
bool routes_take_new_promise(struct request *r, uid_t uid, pid_t pid, struct job_request *req,
                             struct promised_verdict *ret);

/*
 * In routes_limits.c: saves a new job before the answer, as an accepted job outlives the daemon.
 * False: a job for the queue could not be saved: it is freed, and the request answered.
 */
bool routes_write_down(struct request *r, struct job *j);

/* In routes_record.c: handlers of single paths. @none is no job. */
void routes_history(struct request *r, struct job *none);
void routes_events(struct request *r, struct job *none);
void routes_metrics(struct request *r, struct job *none);

/* In routes_power.c. */
void routes_power(struct request *r, struct job *none);
void routes_power_sources(struct request *r, struct job *none);
void routes_energy(struct request *r, struct job *none);
void routes_readings(struct request *r, struct job *none);

/* In routes_cap.c. */
void routes_get_cap(struct request *r, struct job *none);
void routes_put_cap(struct request *r, struct job *none);
void routes_delete_cap(struct request *r, struct job *none);
void routes_get_shrunk(struct request *r, struct job *none);

/* In routes_memory.c. */
void routes_put_memory_limit(struct request *r, struct job *j);

/* In routes_lease.c. */
void routes_put_lease(struct request *r, struct job *none);
void routes_get_demand(struct request *r, struct job *none);

/* Whether its user has no other search; false: answered with 429. It is one until the answer. */
bool request_search(struct request *r);

/* When the next step of a search may begin, in µs: between any two of them is time for others. */
uint64_t api_next_turn(struct api *api);

/* Counts @ns of the loop's time for the budget of its user. */
void request_charge(struct request *r, uint64_t ns);

/* 200, at once: takes over @text (NULL: out of memory) and the stream. @type is a literal. */
void request_answer_text(struct request *r, const char *type, char *text);
void request_answer_stream(struct request *r, struct stream *stream);

/*
 * Refuses fields of the body that are not @known, which ends with NULL: a misspelt one would
 * otherwise be ignored without a word. With ATTRIBUTES as the first it takes attributes of a job,
 * too. False: answered with the error.
 */
#define ATTRIBUTES "*"
bool request_only_fields(struct request *r, const char *const *known);

/* Answers; takes over @answer (NULL: out of memory). */
void request_answer(struct request *r, unsigned status, json_t *answer);

/* The same for an error: its word, that of the file or another one of `tide why`, is the "code". */
#define request_fail(r, status, hint, ...) request_fail_as(r, status, ERROR_WORD, hint, __VA_ARGS__)
__attribute__((format(printf, 5, 6))) void request_fail_as(struct request *r, unsigned status,
                                                           const char *word, const char *hint,
                                                           const char *fmt, ...);

/* The same with the text and word of @err. */
void request_fail_with(struct request *r, unsigned status, const char *hint,
                       const struct error *err);
