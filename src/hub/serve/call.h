/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request to the hub: who asks, with what, and the ways to answer. Private to this room: the
 * handlers of paths (routes_*.c) get one.
 */
#pragma once

#include "host/net/httpd.h"
#include "hub/people/refusals.h"
#include "hub/serve/answers.h"
#include "hub/serve/request.h"
#include "hub/serve/stream.h"
#include "hub/serve/web.h"

#include <jansson.h>
#include <netinet/in.h>

#define CALL_ANYBODY (-1) /* as a role: without a login */

enum {
    HTTP_OK = 200,
    HTTP_CREATED = 201,
    HTTP_ACCEPTED = 202,
    HTTP_BAD_REQUEST = 400,
    HTTP_UNAUTHORIZED = 401,
    HTTP_FORBIDDEN = 403,
    HTTP_NOT_FOUND = 404,
    HTTP_NOT_ALLOWED = 405,
    HTTP_CONFLICT = 409,
    HTTP_TOO_LARGE = 413,
    HTTP_TOO_MANY = 429,
    HTTP_FAILED = 500,
    HTTP_UNAVAILABLE = 503,
    HTTP_NO_ROOM = 507,
};

struct call;

/* A row of the table in routes.c. */
struct route {
    const char *method, *path; /* "**" stands for a path of an area, "*" for a name */
    int least;                 /* enum role, or CALL_ANYBODY */
    void (*handle)(struct call *c);
    const char *fields[REQUEST_FIELDS_MAX]; /* that its body may have */
};

struct call {
    const struct web_options *hub;
    struct httpd_request *http;
    const struct route *route;
    struct streams *streams;
    struct answers *answers;
    struct refusals *refusals;
    struct stream *stream;   /* that answers it */
    const char *cookie_name; /* of sessions */
    bool known;              /* @who asks */
    bool local;              /* from this machine */
    struct who who;
    char from[INET6_ADDRSTRLEN];
    char area[AREA_PATH_MAX], name[64]; /* for "**" and "*" */
    json_t *body;                       /* an object; NULL: none was sent */
};

/* ---- answers: one for each call; @answer is stolen, NULL: no memory ---- */

void call_answer(struct call *c, unsigned status, json_t *answer);
void call_text(struct call *c, const char *type, char *text);
/* An error whose word in `tide why`, sent as "code", is that of its status. */
#define call_fail(c, status, hint, ...) call_fail_as(c, status, NULL, hint, __VA_ARGS__)
__attribute__((format(printf, 5, 6))) void call_fail_as(struct call *c, unsigned status,
                                                        const char *word, const char *hint,
                                                        const char *fmt, ...);
/* The status comes from the code of @err: -ENOENT 404, -EEXIST and -EBUSY and -ESTALE 409, -EINVAL
 * 400, … */
void call_fail_of(struct call *c, const struct error *err);

/*
 * Writes what was asked for into the audit log. @err: why it was not done; its code -EPERM or
 * -EACCES: "refused", another: "failed"; 0 or NULL: "done". Many that were not done share a row
 * (people/refusals.h). A log that cannot be written goes to stderr.
 */
void call_audit(struct call *c, const char *what, const char *target, const struct error *err);

/* ---- input; each false: answered with the error ---- */

bool call_take_text(struct call *c, const char *key, bool needed, const char **ret);
bool call_take_flag(struct call *c, const char *key, bool needed, bool *ret);
bool call_take_whole(struct call *c, const char *key, bool needed, int64_t min, int64_t max,
                     int64_t *ret);
/* A number of the query. */
bool call_query_whole(struct call *c, const char *key, int64_t min, int64_t max, int64_t *ret);

/* µJ as a decimal text: a number of JSON is exact up to 2^53 alone. */
json_t *call_uj(uint64_t uj);
json_t *call_text_or_null(const char *text);

/* ---- handlers ---- */

extern const struct route routes[]; /* ends with a NULL method */

void route_session(struct call *c);
void route_login(struct call *c);
void route_logout(struct call *c);
void route_me(struct call *c);
void route_own_password(struct call *c);
void route_users(struct call *c);
void route_add_user(struct call *c);
void route_change_user(struct call *c);
void route_remove_user(struct call *c);
void route_audit(struct call *c);
void route_areas(struct call *c);
void route_area_energy(struct call *c);
void route_explain(struct call *c);
void route_area_shrunk(struct call *c);
void route_switch(struct call *c);
void route_energy(struct call *c);
void route_erase(struct call *c);
void route_policy(struct call *c);
void route_check_policy(struct call *c);
void route_put_policy(struct call *c);
void route_units(struct call *c);
void route_revoke(struct call *c);
void route_admit(struct call *c);
void route_make_token(struct call *c);
void route_ca(struct call *c);
void route_enrol(struct call *c);
void route_events(struct call *c);
void route_metrics(struct call *c);
