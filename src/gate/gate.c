/* SPDX-License-Identifier: Apache-2.0 */
#include "gate/gate.h"

#include "base/bucket.h"
#include "base/cleanup.h"
#include "base/fnv.h"
#include "base/log_limit.h"
#include "base/visible.h"
#include "gate/conf.h"
#include "gate/tokens.h"
#include "host/net/forward.h"
#include "host/net/http.h"
#include "host/trust/identity.h"
#include "host/trust/served.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <jansson.h>
#include <string.h>
#include <time.h>

#define ERROR_WORD "not-known-to-gateway"

#define BUCKETS       1024 /* addresses with the same hash share one */
#define CONNECT_MS    0    /* tided's queue is full, or it takes the connection at once */
#define LOG_LINES     60   /* about refusals, in a minute */
#define AUDIT_LINE    600  /* bytes of an audit line */
#define LOOKS_OF_CERT 30   /* looks at the tokens between two at the certificate */

/* The way in which somebody came in. */
struct login {
    const struct gate_user *user;
    char token[TOKEN_ID_LEN + 1]; /* its id; "": a certificate */
};

struct call {
    struct call *next;
    struct gate *gate;
    struct httpd_request *request;
    struct forward *forward;
    int fd;
    uid_t uid;
    char token[TOKEN_ID_LEN + 1];
    bool stream;
    char *audit; /* of a change, the line's beginning; NULL: it has been written, or none is due */
};

struct gate {
    sd_event *event;
    char path[PATH_MAX];
    struct gate_conf conf;
    struct tokens tokens;
    struct stat tokens_status; /* of the file that was read */
    char *client_ca;
    struct served served;
    struct httpd *httpd;
    sd_event_source *look;
    unsigned looks;
    struct call *calls;
    struct log_limit refusals;
    struct bucket wrong[BUCKETS];
    char last_problem[ERROR_TEXT_MAX + 80];
};

static void say(const char *text)
{
    fprintf(stderr, "tide-gate: %s\n", text);
}

/* ---- answers ---- */

static void refuse_as(struct httpd_request *r, unsigned status, const char *word,
                      const char *message, const char *hint)
{
    json_t *body =
        json_pack("{s:{s:s,s:s,s:s*}}", "error", "message", message, "hint", hint, "code", word);

    if (status == 401)
        httpd_add_header(r, "WWW-Authenticate", "Bearer");
    if (status == 429)
        r->retry_s = 1;
    httpd_answer(r, status, "application/json", body ? json_dumps(body, JSON_COMPACT) : NULL,
                 status == 401);
    json_decref(body);
}

static void refuse(struct httpd_request *r, unsigned status, const char *message, const char *hint)
{
    refuse_as(r, status, NULL, message, hint);
}

static void address_text(const unsigned char address[16], char ret[INET6_ADDRSTRLEN])
{
    static const unsigned char none[12];
    bool v4 = memcmp(address, none, 12) == 0 && address[12];

    inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? address + 12 : address, ret, INET6_ADDRSTRLEN);
}

/* A refusal has a line of the log as long as there are few. */
static void tell_refusal(struct gate *g, const struct httpd_request *r, const char *message)
{
    char from[INET6_ADDRSTRLEN], path[100], method[9];

    if (!log_limit_takes(&g->refusals, "tide-gate", LOG_LINES, 60))
        return;
    address_text(r->address, from);
    snprintf(path, sizeof(path), "%s", r->path);
    visible(path);
    snprintf(method, sizeof(method), "%s", r->method);
    visible(method);
    fprintf(stderr, "tide-gate: refused %s: %s %s: %s" ERROR_WHY "\n", from, method, path, message);
}

/* ---- who asks ---- */

static int by_token(const struct gate *g, const char *header, struct login *ret, struct error *err)
{
    static const char scheme[] = "Bearer ";
    const struct token *t =
        strncasecmp(header, scheme, sizeof(scheme) - 1) == 0
            ? gate_tokens_find(&g->tokens, header + sizeof(scheme) - 1, time(NULL))
            : NULL;

    if (!t)
        return error_set(err, -EACCES, "the token is unknown, or has ended");
    memcpy(ret->token, t->id, sizeof(ret->token));
    ret->user = gate_conf_named(&g->conf, t->user);
    return ret->user ? 0 : error_set(err, -EACCES, "the token's user has no line in gate.conf");
}

static int by_certificate(const struct gate *g, void *session, struct login *ret, struct error *err)
{
    char subject[PEER_SUBJECT_MAX];
    int r = g->client_ca ? peer_subject(session, subject, err) : -ENOENT;

    if (r == -ENOENT)
        return error_set(err, -EACCES, "neither a token nor a certificate was shown");
    if (r < 0)
        return r;
    ret->user = gate_conf_certified(&g->conf, subject);
    visible(subject);
    return ret->user
               ? 0
               : error_set(err, -EACCES, "no user has the certificate's subject '%.150s'", subject);
}

/*
 * Returns 0 with *ret, or -EACCES with *err: the request is nobody's. A bad token is bad beside any
 * certificate.
 */
static int identify(const struct gate *g, const struct httpd_request *r, struct login *ret,
                    struct error *err)
{
    const char *header = httpd_header(r, "Authorization");
    int e;

    *ret = (struct login){0};
    e = header ? by_token(g, header, ret, err) : by_certificate(g, httpd_tls(r), ret, err);
    return e < 0 ? error_word(err, e, "not-known-to-gateway") : 0;
}

/* Whether a stream's user could still begin it. */
static bool holds(const struct gate *g, const struct call *c)
{
    const struct gate_user *user = NULL;
    char subject[PEER_SUBJECT_MAX];
    const struct token *t;

    if (*c->token) {
        t = gate_tokens_by_id(&g->tokens, c->token, time(NULL));
        user = t ? gate_conf_named(&g->conf, t->user) : NULL;
    } else if (peer_subject(httpd_tls(c->request), subject, NULL) == 0) {
        user = gate_conf_certified(&g->conf, subject);
    }
    return user && user->uid == c->uid;
}

/* IPv6: the network counts. A right token needs no place here: nobody guesses 256 bits. */
static bool may_be_wrong(struct gate *g, const unsigned char address[16])
{
    static const unsigned char none[12];
    size_t len = memcmp(address, none, sizeof(none)) == 0 ? 16 : 8;
    struct bucket *b = &g->wrong[fnv_bytes(FNV_START, address, len) % BUCKETS];

    return bucket_take(b, GATE_WRONG_RATE, GATE_WRONG_BURST, clock_now_ns());
}

/* ---- what goes through ---- */

static bool goes_through(const char *method, const char *path)
{
    static const char jobs[] = "/v1/jobs/";

    if (strcmp(method, "GET") == 0)
        return strncmp(path, "/v1/", 4) == 0 || strcmp(path, "/metrics") == 0;
    return (strcmp(method, "PATCH") == 0 || strcmp(method, "PUT") == 0 ||
            strcmp(method, "DELETE") == 0) &&
           strncmp(path, jobs, sizeof(jobs) - 1) == 0;
}

static bool has_room(const struct gate *g, uid_t uid, bool stream)
{
    unsigned all = 0, own = 0;

    for (const struct call *c = g->calls; c; c = c->next) {
        all += c->stream == stream;
        own += c->stream == stream && c->uid == uid;
    }
    return stream ? all < GATE_STREAMS_MAX && own < GATE_STREAMS_USER
                  : all < GATE_SHORT_MAX && own < GATE_SHORT_USER;
}

/* ---- a call ---- */

static void tell_audit(struct call *c, const char *outcome)
{
    if (c->audit)
        fprintf(stderr, "tide-gate: audit: %s: %s\n", c->audit, outcome);
    free(c->audit);
    c->audit = NULL;
}

static void on_told(void *arg, const struct forward_event *event)
{
    struct call *c = arg;
    char text[16];

    if (event->what == FORWARD_STREAMS)
        return;
    c->fd = close_fd(c->fd);
    if (event->what == FORWARD_OVER) {
        snprintf(text, sizeof(text), "%u", event->status);
        tell_audit(c, text);
        return;
    }
    tell_audit(c, "no answer: it may or may not be done");
    forward_fail(c->forward, event->code == -ETIMEDOUT ? 504 : 502, event->message, "");
}

/* Each run of blanks becomes one, which could push what counts out of the line; a long one is cut.
 */
static void squeeze(char *text)
{
    char *to = text;

    for (const char *from = text; *from && to < text + AUDIT_LINE; from++)
        if (!isspace((unsigned char)*from))
            *to++ = *from;
        else if (!isspace((unsigned char)from[1]))
            *to++ = ' ';
    *to = '\0';
}

/* "user ana (token 12ab) from 192.0.2.7: PATCH /v1/jobs/cnn {…}" */
static char *audit_text(const struct login *login, const struct httpd_request *r)
{
    char from[INET6_ADDRSTRLEN], *text;

    address_text(r->address, from);
    if (asprintf(&text, "user %s (%s%s) from %s: %s %.200s %s", login->user->name,
                 *login->token ? "token " : "certificate", login->token, from, r->method, r->path,
                 r->body) < 0)
        return NULL;
    squeeze(text);
    visible(text);
    return text;
}

static int connect_it(struct call *c, struct error *err)
{
    int r = http_connect(c->gate->conf.api, CONNECT_MS, &c->fd, err);

    if (r == 0)
        r = forward_begin(c->forward, c->fd);
    if (r < 0)
        c->fd = close_fd(c->fd);
    return r;
}

static void pass(struct gate *g, struct httpd_request *r, const struct login *login)
{
    struct call *c = calloc(1, sizeof(*c));
    struct error err = {0};
    char header[40];
    int e;

    if (!c) {
        refuse(r, 500, "out of memory", "");
        return;
    }
    *c = (struct call){.next = g->calls,
                       .gate = g,
                       .request = r,
                       .fd = -1,
                       .uid = login->user->uid,
                       .stream = strcmp(r->path, "/v1/events") == 0};
    memcpy(c->token, login->token, sizeof(c->token));
    g->calls = c;
    r->context = c;
    snprintf(header, sizeof(header), "Tide-User: %u\r\n", (unsigned)c->uid);
    if (strcmp(r->method, "GET") != 0)
        c->audit = audit_text(login, r);
    e = forward_new(&(struct forward_options){.event = g->event,
                                              .request = r,
                                              .path = r->path,
                                              .headers = header,
                                              .timeout_ms = GATE_TIMEOUT_MS},
                    on_told, c, &c->forward);
    if (e < 0) {
        tell_audit(c, "refused");
        refuse(r, 400, "the path or an argument is too long, or not text", "");
        return;
    }
    e = connect_it(c, &err);
    if (e < 0) {
        tell_audit(c, "no daemon");
        refuse(r, e == -ETIMEDOUT ? 429 : 503, *err.text ? err.text : "out of memory", "");
    }
}

static void refuse_stranger(struct gate *g, struct httpd_request *r, const struct error *err)
{
    if (!may_be_wrong(g, r->address)) {
        refuse(r, 429, "too many log-ins from this address failed", "Try again in a second.");
        return;
    }
    tell_refusal(g, r, err->text);
    refuse_as(r, 401, err->word, err->text,
              "tide-fleet(1) says how a gateway is shown who you are.");
}

static void on_request(void *arg, struct httpd_request *r)
{
    static const char elsewhere[] = "this does not go through a gateway";
    bool stream = strcmp(r->path, "/v1/events") == 0;
    struct gate *g = arg;
    struct error err = {0};
    struct login login;

    if (identify(g, r, &login, &err) < 0) {
        refuse_stranger(g, r, &err);
    } else if (!goes_through(r->method, r->path)) {
        tell_refusal(g, r, elsewhere);
        refuse(r, 403, elsewhere, "Call it on that machine: 'ssh HOST tide ...'.");
    } else if (r->cut) {
        refuse(r, 413, "the body is too long", "");
    } else if (!has_room(g, login.user->uid, stream)) {
        refuse(r, 429,
               stream ? "too many streams of events, of this user or of all"
                      : "too many requests at the same time, of this user or of all",
               "Try again in a second.");
    } else {
        pass(g, r, &login);
    }
}

static void on_over(void *arg, struct httpd_request *r)
{
    struct gate *g = arg;
    struct call *c = r->context, **at = &g->calls;

    if (!c)
        return;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    forward_free(c->forward);
    close_fd(c->fd);
    tell_audit(c, "the client left before the answer");
    free(c);
}

/* ---- files ---- */

/*
 * Reads the tokens unless the file is still the one of @status. Returns 1 with *ret and the new
 * status, 0 if nothing has changed, or -errno with *err.
 */
static int read_tokens(const char *path, struct stat *status, struct tokens *ret, struct error *err)
{
    struct stat now = {0};
    int r = 0;

    if (*path && stat(path, &now) < 0 && errno != ENOENT)
        return error_word(err, error_set(err, -errno, "%.200s: %s", path, strerror(errno)),
                          "config-error");
    if (now.st_mtim.tv_sec == status->st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == status->st_mtim.tv_nsec && now.st_ino == status->st_ino &&
        now.st_size == status->st_size)
        return 0;
    *ret = (struct tokens){0};
    if (*path)
        r = gate_tokens_read(path, ret, err);
    if (r < 0)
        return r;
    *status = now;
    return 1;
}

/* In a file that cannot be read any token may have been taken away, so none counts until it can. */
static int look_at_tokens(struct gate *g, struct error *err)
{
    struct tokens fresh;
    int r = read_tokens(g->conf.tokens, &g->tokens_status, &fresh, err);

    if (r == 0)
        return 0;
    gate_tokens_done(&g->tokens);
    if (r > 0)
        g->tokens = fresh;
    else
        g->tokens_status = (struct stat){0};
    return r;
}

/* Ends the streams of those who may not come in any more. */
static void review(struct gate *g)
{
    for (struct call *c = g->calls; c; c = c->next) {
        if (!c->stream || c->fd < 0 || holds(g, c))
            continue;
        forward_fail(c->forward, 401, "whoever began this may not come in any more", "");
        c->fd = close_fd(c->fd);
    }
}

static int on_look(sd_event_source *source, uint64_t usec, void *arg)
{
    struct gate *g = arg;
    struct error err = {0};
    char said[ERROR_TEXT_MAX + 80] = "";
    int r = look_at_tokens(g, &err);

    if (r < 0)
        snprintf(said, sizeof(said), "%s: no token counts until it can be read", error_said(&err));
    else if (g->looks++ % LOOKS_OF_CERT == 0 &&
             served_look(&g->served, g->conf.certificate, g->conf.key, &err) < 0)
        snprintf(said, sizeof(said), "%s", error_said(&err));
    if (*said && strcmp(said, g->last_problem) != 0)
        say(said);
    snprintf(g->last_problem, sizeof(g->last_problem), "%s", said);
    review(g);
    sd_event_source_set_time_relative(source, GATE_LOOK_S * UINT64_C(1000000));
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

static int listen_now(struct gate *g, struct error *err)
{
    const struct httpd_options options = {.address = g->conf.listen,
                                          .handler = on_request,
                                          .too_long = on_request,
                                          .over = on_over,
                                          .arg = g,
                                          .connections_max = GATE_CONNECTIONS,
                                          .per_address_max = GATE_PER_ADDRESS,
                                          .idle_s = GATE_IDLE_S,
                                          .body_max = GATE_BODY_MAX,
                                          .bodies_max = GATE_BODIES_MAX,
                                          .client_ca = g->client_ca,
                                          .certificate = identity_callback()};

    return httpd_new(g->event, &options, &g->httpd, err);
}

static int begin(struct gate *g, struct error *err)
{
    struct timespec unused;
    char text[300];
    int r = gate_conf_read(g->path, &g->conf, err);

    if (r >= 0 && *g->conf.client_ca)
        r = served_read(g->conf.client_ca, &g->client_ca, &unused, err);
    if (r >= 0)
        r = look_at_tokens(g, err);
    if (r >= 0)
        r = served_look(&g->served, g->conf.certificate, g->conf.key, err);
    if (r >= 0)
        r = listen_now(g, err);
    if (r < 0)
        return r;
    r = sd_event_add_time_relative(g->event, &g->look, CLOCK_MONOTONIC,
                                   GATE_LOOK_S * UINT64_C(1000000), 0, on_look, g);
    if (r < 0)
        return error_word(err, error_set(err, r, "no timer: %s", strerror(-r)), "system-refused");
    snprintf(text, sizeof(text), "listens on %s, port %u, for %zu users", g->conf.listen,
             httpd_port(g->httpd), g->conf.users);
    say(text);
    return 0;
}

int gate_new(sd_event *event, const char *path, struct gate **ret, struct error *err)
{
    struct gate *g = calloc(1, sizeof(*g));
    int r;

    if (!g)
        return error_set(err, -ENOMEM, "out of memory");
    g->event = event;
    snprintf(g->path, sizeof(g->path), "%s", path);
    r = begin(g, err);
    if (r < 0)
        gate_free(g);
    else
        *ret = g;
    return r;
}

int gate_reload(struct gate *g, struct error *err)
{
    struct gate_conf fresh;
    struct tokens tokens = {0};
    struct stat status = {0};
    int r = gate_conf_read(g->path, &fresh, err);

    if (r < 0)
        return r;
    r = read_tokens(fresh.tokens, &status, &tokens, err);
    if (r >= 0)
        r = served_look(&g->served, fresh.certificate, fresh.key, err);
    if (r < 0) {
        gate_tokens_done(&tokens);
        gate_conf_done(&fresh);
        return r;
    }
    if (strcmp(fresh.listen, g->conf.listen) != 0 ||
        strcmp(fresh.client_ca, g->conf.client_ca) != 0)
        say("new 'listen' or 'client-ca' take effect when tide-gate is restarted");
    memcpy(fresh.listen, g->conf.listen, sizeof(fresh.listen));
    memcpy(fresh.client_ca, g->conf.client_ca, sizeof(fresh.client_ca));
    gate_conf_done(&g->conf);
    g->conf = fresh;
    gate_tokens_done(&g->tokens);
    g->tokens = tokens;
    g->tokens_status = status;
    review(g);
    return 0;
}

struct gate *gate_free(struct gate *g)
{
    if (!g)
        return NULL;
    httpd_free(g->httpd); /* which ends all calls */
    identity_serve(NULL);
    sd_event_source_disable_unref(g->look);
    gate_tokens_done(&g->tokens);
    gate_conf_done(&g->conf);
    free(g->client_ca);
    free(g);
    return NULL;
}
