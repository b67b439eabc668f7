/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/serve/web.h"

#include "base/bucket.h"
#include "base/cleanup.h"
#include "base/fnv.h"
#include "base/wallclock.h"
#include "host/net/embedded.h"
#include "host/trust/identity.h"
#include "hub/people/refusals.h"
#include "hub/serve/events.h"
#include "hub/serve/routes.h"
#include "hub/trust/certificate.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ERROR_WORD "cannot-listen"

#define RETRY_US   5000000                  /* until a port that was taken is tried again */
#define LOOK_US    (60 * UINT64_C(1000000)) /* at the files of the certificate */
#define TIDY_LOOKS 60
#define BUCKETS    1024 /* users with the same hash share one */

struct web {
    struct web_options o;
    struct httpd *httpd;
    struct streams *streams;
    struct events *events;
    struct answers answers;
    struct refusals refusals;
    struct served certificate;
    sd_event_source *retry, *look;
    unsigned looks;
    char cookie_name[32]; /* with our port: cookies are shared by all ports of a host */
    char last_problem[ERROR_TEXT_MAX];
    struct bucket budget[BUCKETS];
};

/* ---- who asks ---- */

/* A bearer token that is no good counts as nobody, even beside a good cookie. */
static bool identify(struct web *w, const struct httpd_request *r, struct who *ret)
{
    static const char scheme[] = "Bearer ";
    const char *authorization = httpd_header(r, "Authorization");
    char cookie[SECRET_LEN + 1];

    if (authorization)
        return strncasecmp(authorization, scheme, sizeof(scheme) - 1) == 0 &&
               people_bearer(w->o.people, authorization + sizeof(scheme) - 1, ret) == 0;
    return request_cookie(httpd_header(r, "Cookie"), w->cookie_name, cookie) &&
           people_session(w->o.people, cookie, ret) == 0;
}

static void tell_address(struct call *c, const unsigned char address[16])
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff}, none[12],
                               loopback[16] = {[15] = 1};
    bool v4 = memcmp(address, mapped, 12) == 0 ||
              (memcmp(address, none, 12) == 0 && memcmp(address, loopback, 16) != 0);

    inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? address + 12 : address, c->from, sizeof(c->from));
    c->local = v4 ? address[12] == 127 : memcmp(address, loopback, 16) == 0;
    /* A proxy on this machine may pass on anybody's request. */
    c->local &= !httpd_header(c->http, "X-Forwarded-For") && !httpd_header(c->http, "Forwarded");
}

/*
 * Whether the page that asks is our own. A browser says with each change which page it is from;
 * only programs, which send no cookie by themselves, may leave it out.
 */
static bool own_page(const struct httpd_request *r)
{
    static const char scheme[] = "https://";
    const char *origin = httpd_header(r, "Origin"), *host = httpd_header(r, "Host");

    if (!origin)
        return !httpd_header(r, "Cookie") && !httpd_header(r, "Sec-Fetch-Site");
    return host && strncmp(origin, scheme, sizeof(scheme) - 1) == 0 &&
           strcasecmp(origin + sizeof(scheme) - 1, host) == 0;
}

/* ---- requests ---- */

static bool changes(const struct httpd_request *r)
{
    return strcmp(r->method, "GET") != 0 && strcmp(r->method, "HEAD") != 0;
}

/* Such a body may be long. */
static bool holds_policy(const struct httpd_request *r)
{
    return strcmp(r->path, "/v1/policy") == 0 || strcmp(r->path, "/v1/policy/check") == 0;
}

static bool within_budget(struct web *w, const struct call *c)
{
    struct bucket *b = &w->budget[fnv_text(FNV_START, c->who.name) % BUCKETS];

    return bucket_take(b, WEB_RATE, WEB_BURST, clock_now_ns());
}

/* Whether the request may go on to its handler; else it has been answered. */
static bool allowed(struct web *w, struct call *c)
{
    bool metrics = c->route->handle == route_metrics && c->local;

    if (changes(c->http) && !(c->known && !c->who.session) && !own_page(c->http)) {
        call_fail(c, HTTP_FORBIDDEN, "Scripts send a token: Authorization: Bearer …",
                  "a page of another site asks for this change");
        return false;
    }
    if (c->known && !within_budget(w, c)) {
        c->http->retry_s = 1;
        call_fail(c, HTTP_TOO_MANY, "Try again in a second.",
                  "%s sends more than %d requests a second", c->who.name, WEB_RATE);
        return false;
    }
    if (c->route->least == CALL_ANYBODY || metrics)
        return true;
    if (!c->known) {
        httpd_add_header(c->http, "WWW-Authenticate", "Bearer");
        call_fail(c, HTTP_UNAUTHORIZED, "Log in, or send a token of 'tide-hub user token'.",
                  httpd_header(c->http, "Authorization") ? "the token is unknown, or has ended"
                                                         : "nobody is logged in");
        return false;
    }
    if ((int)c->who.role >= c->route->least)
        return true;
    call_fail(c, HTTP_FORBIDDEN, "See docs/permissions.md.", "%s is %s: this takes %s", c->who.name,
              role_name(c->who.role), role_name((enum role)c->route->least));
    if (changes(c->http)) {
        struct error err = {0};

        error_set(&err, -EPERM, "%s is %s", c->who.name, role_name(c->who.role));
        call_audit(c, c->route->path + sizeof("/v1/") - 1, *c->name ? c->name : c->area, &err);
    }
    return false;
}

static void handle(struct web *w, struct call *c)
{
    struct httpd_request *r = c->http;
    struct error err = {0};

    if (!allowed(w, c))
        return;
    if (r->cut)
        call_fail(c, HTTP_TOO_LARGE, "", "the body has more than %d bytes",
                  holds_policy(r) ? WEB_BODY_MAX : WEB_BODY_SMALL);
    else if (request_body(r->body, r->body_len, c->route->fields, &c->body, &err) < 0)
        call_fail_as(c, HTTP_BAD_REQUEST, error_why(&err),
                     "Send one JSON object; see docs/openapi-hub.yaml.", "%s", err.text);
    else
        c->route->handle(c);
}

static void answer_text(struct httpd_request *r, unsigned status, const char *text)
{
    httpd_answer(r, status, "text/plain; charset=utf-8", strdup(text), false);
}

static void on_request(void *arg, struct httpd_request *r)
{
    struct web *w = arg;
    struct call *c = calloc(1, sizeof(*c));
    bool other;

    r->context = c;
    if (!c || embedded_protect(r) < 0) {
        answer_text(r, HTTP_FAILED, "out of memory\n");
        return;
    }
    c->hub = &w->o;
    c->http = r;
    c->streams = w->streams;
    c->answers = &w->answers;
    c->refusals = &w->refusals;
    c->cookie_name = w->cookie_name;
    tell_address(c, r->address);
    c->route = routes_find(r->method, r->path, c, &other);
    if (c->route) {
        c->known = identify(w, r, &c->who);
        handle(w, c);
    } else if (other) {
        call_fail(c, HTTP_NOT_ALLOWED, "See docs/openapi-hub.yaml.", "%s cannot be done to %.100s",
                  r->method, r->path);
    } else if (strncmp(r->path, "/v1/", 4) == 0) {
        call_fail(c, HTTP_NOT_FOUND, "See docs/openapi-hub.yaml.", "there is no %.100s", r->path);
    } else if (changes(r) || !embedded_answer(embedded_page, r)) {
        answer_text(r, HTTP_NOT_FOUND, "There is no such page.\n");
    }
}

static void on_over(void *arg, struct httpd_request *r)
{
    struct call *c = r->context;

    if (!c)
        return;
    stream_free(c->stream);
    json_decref(c->body);
    free(c);
}

/* Only an administrator's policy is long. */
static size_t on_limit(void *arg, const struct httpd_request *r)
{
    struct web *w = arg;
    struct who who;

    return holds_policy(r) && identify(w, r, &who) && who.role == ROLE_ADMINISTRATOR
               ? WEB_BODY_MAX
               : WEB_BODY_SMALL;
}

/* ---- the server ---- */

static void say(struct web *w, const char *text)
{
    w->o.say(w->o.arg, NULL, text);
}

static int listen_now(struct web *w, struct error *err)
{
    const struct httpd_options options = {.address = w->o.conf->listen,
                                          .handler = on_request,
                                          .too_long = on_request,
                                          .over = on_over,
                                          .limit = on_limit,
                                          .arg = w,
                                          .connections_max = WEB_CONNECTIONS,
                                          .per_address_max = w->o.conf->per_address,
                                          .idle_s = WEB_IDLE_S,
                                          .body_max = WEB_BODY_MAX,
                                          .bodies_max = WEB_BODIES_MAX,
                                          .ignore_max = WEB_IGNORE_MAX,
                                          .certificate = identity_callback()};
    char text[2 * CONF_HOST_MAX + 64], host[CONF_HOSTS_MAX][CONF_HOST_MAX];
    int r = httpd_new(w->o.event, &options, &w->httpd, err);

    if (r < 0)
        return r;
    certificate_hosts(w->o.conf, host);
    snprintf(w->cookie_name, sizeof(w->cookie_name), "__Host-tide-%u", httpd_port(w->httpd));
    snprintf(text, sizeof(text), "serving https://%s:%u/ (on %s)", host[0], httpd_port(w->httpd),
             w->o.conf->listen);
    say(w, text);
    return 0;
}

static int on_retry(sd_event_source *source, uint64_t usec, void *arg)
{
    struct web *w = arg;
    struct error err = {0};

    if (listen_now(w, &err) == 0)
        return 0;
    sd_event_source_set_time_relative(source, RETRY_US);
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

/* Each problem is told once. */
static void look_at_certificate(struct web *w)
{
    struct error err = {0};
    int r = certificate_look(&w->certificate, w->o.conf, &err);
    const char *problem = r < 0 ? error_said(&err) : "";

    if (*problem && strcmp(problem, w->last_problem) != 0)
        say(w, problem);
    snprintf(w->last_problem, sizeof(w->last_problem), "%s", problem);
}

static void tell_refusals(void *arg, const struct refusal *refusal)
{
    struct web *w = arg;
    struct audit_row row = {.what = "refused changes",
                            .outcome = "refused or failed: too many for a row each"};
    struct error err = {0};

    snprintf(row.user, sizeof(row.user), "%s", refusal->user);
    snprintf(row.from, sizeof(row.from), "%s", refusal->from);
    snprintf(row.target, sizeof(row.target), "%u more", (unsigned)refusal->more);
    if (audit_append(w->o.people, &row, &err) < 0)
        say(w, error_said(&err));
}

static int on_look(sd_event_source *source, uint64_t usec, void *arg)
{
    struct web *w = arg;
    struct error err = {0};
    int64_t old_ms = retention_ms(w->o.retention, (int64_t)wallclock_ms());

    look_at_certificate(w);
    refusals_tell(&w->refusals, tell_refusals, w);
    if (w->looks++ % TIDY_LOOKS == 0) {
        people_tidy(w->o.people);
        if (audit_tidy(w->o.people, w->o.conf->keep_audit_ms / 1000, old_ms, &err) < 0)
            say(w, error_said(&err));
    }
    sd_event_source_set_time_relative(source, LOOK_US);
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

static int begin(struct web *w, struct error *err)
{
    char text[ERROR_TEXT_MAX + 80];
    int r = streams_new(w->o.event, w->o.people, &w->streams);

    if (r >= 0)
        r = events_new(&w->o, w->streams, &w->events);
    if (r >= 0)
        r = sd_event_add_time_relative(w->o.event, &w->look, CLOCK_MONOTONIC, LOOK_US, 0, on_look,
                                       w);
    if (r < 0)
        return error_set(err, r, "cannot serve the page: %s", strerror(-r));
    r = certificate_look(&w->certificate, w->o.conf, err);
    if (r >= 0)
        r = listen_now(w, err);
    if (r != -EADDRINUSE && r != -EADDRNOTAVAIL)
        return r;
    snprintf(text, sizeof(text), "%s: no page until it is free" ERROR_WHY, err->text);
    say(w, text);
    r = sd_event_add_time_relative(w->o.event, &w->retry, CLOCK_MONOTONIC, RETRY_US, 0, on_retry,
                                   w);
    return r < 0 ? error_set(err, r, "no timer: %s", strerror(-r)) : 0;
}

int web_new(const struct web_options *options, struct web **ret, struct error *err)
{
    struct web *w = calloc(1, sizeof(*w));
    int r;

    if (!w)
        return error_set(err, -ENOMEM, "out of memory");
    w->o = *options;
    r = begin(w, err);
    if (r < 0)
        web_free(w);
    else
        *ret = w;
    return r < 0 ? r : 0;
}

struct web *web_free(struct web *w)
{
    if (!w)
        return NULL;
    if (w->streams)
        streams_review(w->streams, true);
    httpd_free(w->httpd);
    identity_serve(NULL);
    events_free(w->events);
    streams_free(w->streams);
    answers_forget(&w->answers);
    refusals_tell(&w->refusals, tell_refusals, w);
    refusals_done(&w->refusals);
    sd_event_source_disable_unref(w->retry);
    sd_event_source_disable_unref(w->look);
    free(w);
    return NULL;
}

void web_changed(struct web *w, const struct unit *u, enum tree_what what,
                 const struct payload_event *event)
{
    if (w)
        events_changed(w->events, u, what, event);
}

void web_ordered(struct web *w, const struct tree_order *order)
{
    if (w)
        events_ordered(w->events, order);
}

void web_ruled(struct web *w, const struct in_force *policy)
{
    if (w)
        events_ruled(w->events, policy);
}
