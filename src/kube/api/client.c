/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/api/client.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "kube/api/access.h"
#include "kube/api/lenient_json.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>

#define ERROR_WORD "cluster-refused"

#define RETRY_DEFAULT_MS 1000 /* after a refusal that does not say how long */
#define FIELD_MANAGER    "tide-kube"

struct call {
    struct call *next;
    struct client *client;
    client_done *done;
    client_allowed *allowed;
    transfer_data *data;
    void *arg;
    char *path, *body;
    const char *text; /* in place of the body; borrowed */
    int64_t ticket, transfer;
    uint64_t deadline_ns; /* 0: none */
    uint64_t not_before_ns;
    enum client_verb verb;
    bool urgent;
    bool sent; /* under way; else it waits for its turn */
};

struct client {
    sd_event *event;
    sd_event_source *io, *timer;
    struct transfers *http;
    struct transfer_server server;
    struct access access;
    struct call *first, **last;
    int64_t tickets;
    uint64_t sent;
    uint64_t tokens; /* of the bucket, in NS_PER_S-ths of a call */
    uint64_t filled_ns, held_ns, refreshed_ns;
    unsigned rate, burst, n, waiting;
};

static const struct {
    const char *method, *type;
} verbs[] = {
    [CLIENT_GET] = {"GET", NULL},
    [CLIENT_POST] = {"POST", "application/json"},
    [CLIENT_PUT] = {"PUT", "application/json"},
    [CLIENT_APPLY] = {"PATCH", "application/apply-patch+yaml"},
    [CLIENT_MERGE] = {"PATCH", "application/merge-patch+json"},
    [CLIENT_STRATEGIC] = {"PATCH", "application/strategic-merge-patch+json"},
    [CLIENT_JSON] = {"PATCH", "application/json-patch+json"},
    [CLIENT_DELETE] = {"DELETE", "application/json"},
};
static_assert(ARRAY_LEN(verbs) == CLIENT_VERB_MAX, "an entry for each verb");

/* ---- the list of calls, oldest first ---- */

static void append_call(struct client *c, struct call *call)
{
    *c->last = call;
    c->last = &call->next;
    c->n++;
    c->waiting += !call->sent;
}

static void unlink_call(struct client *c, struct call *call)
{
    struct call **at = &c->first;

    while (*at != call)
        at = &(*at)->next;
    *at = call->next;
    if (c->last == &call->next)
        c->last = at;
    c->n--;
    c->waiting -= !call->sent;
}

static void call_free(struct call *call)
{
    free(call->path);
    free(call->body);
    free(call);
}

/* ---- answers ---- */

static int code_of(int status, const char *reason)
{
    switch (status) {
    case 400:
    case 422:
        return -EINVAL;
    case 401:
    case 403:
        return -EACCES;
    case 404:
        return -ENOENT;
    case 409:
        return strcmp(reason, "AlreadyExists") == 0 ? -EEXIST : -EAGAIN;
    case 410:
        return -ESTALE;
    case 429:
    case 503:
        return -EBUSY;
    default:
        return status >= 500 ? -EREMOTEIO : -EPROTO;
    }
}

/* Whether a Status says that the namespace is being deleted, which takes nothing new. */
static bool namespace_ends(const json_t *status)
{
    const json_t *causes = json_object_get(json_object_get(status, "details"), "causes");
    json_t *cause;
    size_t i;

    json_array_foreach (causes, i, cause) {
        const char *reason = json_string_value(json_object_get(cause, "reason"));

        if (reason && strcmp(reason, "NamespaceTerminating") == 0)
            return true;
    }
    return false;
}

static void settle(struct call *call, struct client_answer *answer, const char *why)
{
    char text[ERROR_TEXT_MAX + 512] = "";
    struct error printable = {0};

    if (answer->code < 0) {
        error_set(&printable, answer->code, "%s", why);
        snprintf(text, sizeof(text), "%s %.*s: %s", verbs[call->verb].method,
                 (int)strcspn(call->path, "?"), call->path, printable.text);
    }
    answer->text = text;
    unlink_call(call->client, call); /* done may cancel whatever it remembers */
    call->done(call->arg, answer);
    call_free(call);
}

static void fail(struct call *call, int code, const char *why)
{
    struct client_answer answer = {.code = code, .reason = ""};

    settle(call, &answer, why);
}

unsigned client_retry_after(const char *head)
{
    static const char name[] = "retry-after:";
    unsigned long seconds;

    for (const char *line = strchr(head, '\n'); line; line = strchr(line + 1, '\n')) {
        if (strncasecmp(line + 1, name, sizeof(name) - 1) != 0)
            continue;
        line += sizeof(name);
        line += strspn(line, " \t");
        if (!isdigit((unsigned char)*line))
            return 0; /* a date: the API server sends none */
        seconds = strtoul(line, NULL, 10);
        return seconds > CLIENT_RETRY_MAX_MS / 1000 ? CLIENT_RETRY_MAX_MS
                                                    : (unsigned)seconds * 1000;
    }
    return 0;
}

/*
 * Repeats a call that flow control refused before anything was done. All other calls wait, too, as
 * they would fare the same. False: the deadline comes first.
 */
static bool ask_later(struct call *call, unsigned retry_ms)
{
    struct client *c = call->client;
    uint64_t now = clock_now_ns();
    uint64_t when = now + (retry_ms ? retry_ms : RETRY_DEFAULT_MS) * NS_PER_MS;

    if (call->deadline_ns != 0 && when >= call->deadline_ns)
        return false;
    call->sent = false;
    call->transfer = 0;
    call->not_before_ns = when;
    c->waiting++;
    if (when > c->held_ns)
        c->held_ns = when;
    return true;
}

static void on_failure(struct call *call, const struct transfer_answer *raw)
{
    json_t *body = lenient_json_load(raw->body, raw->body_len);
    const char *reason = json_string_value(json_object_get(body, "reason"));
    const char *message = json_string_value(json_object_get(body, "message"));
    struct client_answer answer = {.status = raw->status, .reason = reason ? reason : ""};
    struct error why = {0};

    answer.retry_ms = client_retry_after(raw->head);
    answer.code = namespace_ends(body) ? -ESHUTDOWN : code_of(raw->status, answer.reason);
    answer.body = json_is_object(body) ? body : NULL;
    if (raw->status == 401)
        call->client->refreshed_ns = 0; /* there may be a new token */
    if ((raw->status == 429 || (raw->status == 503 && answer.retry_ms > 0)) &&
        ask_later(call, answer.retry_ms)) {
        json_decref(body);
        return;
    }
    error_set(&why, answer.code, "%d%s%s%s%s", raw->status, reason ? " " : "", reason ? reason : "",
              message ? ": " : "", message ? message : "");
    settle(call, &answer, why.text);
    json_decref(body);
}

static void on_answer(void *arg, const struct transfer_answer *raw)
{
    struct call *call = arg;
    struct client_answer answer = {.code = raw->code, .status = raw->status, .reason = ""};

    if (raw->code < 0) {
        settle(call, &answer, raw->reason);
        return;
    }
    if (raw->status < 200 || raw->status >= 300) {
        on_failure(call, raw);
        return;
    }
    if (!call->data) {
        answer.body = lenient_json_load(raw->body, raw->body_len);
        if (!json_is_object(answer.body)) {
            json_decref(answer.body);
            answer.body = NULL;
            answer.code = -EBADMSG;
        }
    }
    json_t *body = answer.body;
    settle(call, &answer, "the answer is no JSON object");
    json_decref(body);
}

static ssize_t on_data(void *arg, const char *bytes, size_t len)
{
    struct call *call = arg;

    return call->data(call->arg, bytes, len); /* which may cancel, and so free, the call */
}

/* ---- requests ---- */

static void refresh_credentials(struct client *c, uint64_t now)
{
    struct error ignored; /* the server says it better, should the old ones be of no use */

    if (c->refreshed_ns != 0 && now - c->refreshed_ns < CLIENT_CREDENTIALS_S * NS_PER_S)
        return;
    c->refreshed_ns = now;
    access_refresh(&c->access, &ignored);
    c->server.ca = c->access.ca.text;
    c->server.cert = c->access.cert.text;
    c->server.key = c->access.key.text;
}

static void send_call(struct client *c, struct call *call, uint64_t now)
{
    uint64_t left_ms =
        call->deadline_ns > now ? (call->deadline_ns - now + NS_PER_MS - 1) / NS_PER_MS : 1;
    struct transfer_request request = {
        .method = verbs[call->verb].method,
        .path = call->path,
        .body = call->text ? call->text : call->body,
        .type = verbs[call->verb].type,
        .bearer = c->access.token.text,
        .data = call->data ? on_data : NULL,
        .done = on_answer,
        .arg = call,
        .timeout_ms = call->deadline_ns == 0 ? 0 : (unsigned)left_ms,
    };
    int64_t r;

    if (call->allowed && !call->allowed(call->arg)) {
        fail(call, -EPERM, "not sent: this replica does not lead any more");
        return;
    }
    refresh_credentials(c, now);
    request.bearer = c->access.token.text;
    r = transfer_send(c->http, &request);
    if (r < 0) {
        fail(call, (int)r, r == -EBUSY ? "too many requests are under way" : "out of memory");
        return;
    }
    call->transfer = r;
    call->sent = true;
    c->waiting--;
    c->sent++;
}

static void fill_bucket(struct client *c, uint64_t now)
{
    uint64_t full = c->burst * NS_PER_S, passed = now - c->filled_ns;

    c->filled_ns = now;
    if (passed >= full / c->rate)
        c->tokens = full;
    else
        c->tokens = c->tokens + passed * c->rate < full ? c->tokens + passed * c->rate : full;
}

static bool may_be_sent(const struct client *c, const struct call *call, uint64_t now)
{
    if (call->sent || call->not_before_ns > now)
        return false;
    return call->urgent || (c->held_ns <= now && c->tokens >= NS_PER_S);
}

/* When a waiting call has to be sent or has to time out next. */
static uint64_t next_time(const struct client *c, uint64_t now)
{
    uint64_t next = UINT64_MAX;
    uint64_t token_ns = now + (c->tokens >= NS_PER_S ? 0 : (NS_PER_S - c->tokens) / c->rate + 1);

    for (const struct call *call = c->first; call; call = call->next) {
        uint64_t when = call->not_before_ns;

        if (call->sent)
            continue;
        if (!call->urgent && when < c->held_ns)
            when = c->held_ns;
        if (!call->urgent && when < token_ns)
            when = token_ns;
        if (call->deadline_ns != 0 && call->deadline_ns < when)
            when = call->deadline_ns;
        if (when < next)
            next = when;
    }
    return next;
}

/* Sends the calls that are due. Callbacks may begin and cancel calls, so each step starts anew. */
static void pump(struct client *c)
{
    uint64_t now = clock_now_ns(), next;
    struct call *call;

    fill_bucket(c, now);
    for (;;) {
        for (call = c->first; call; call = call->next)
            if (!call->sent && call->deadline_ns != 0 && call->deadline_ns <= now)
                break;
        if (call) {
            fail(call, -ETIMEDOUT, "not sent: it waited too long for its turn (--rate, --burst)");
            continue;
        }
        for (call = c->first; call && !may_be_sent(c, call, now); call = call->next)
            ;
        if (!call)
            break;
        if (!call->urgent)
            c->tokens -= NS_PER_S;
        send_call(c, call, now);
    }
    next = next_time(c, now);
    if (next != UINT64_MAX)
        sd_event_source_set_time(c->timer, next / NS_PER_US + 1);
    sd_event_source_set_enabled(c->timer, next != UINT64_MAX ? SD_EVENT_ONESHOT : SD_EVENT_OFF);
}

static int on_timer(sd_event_source *s, uint64_t usec, void *arg)
{
    pump(arg);
    return 0;
}

static int on_io(sd_event_source *s, int fd, uint32_t events, void *arg)
{
    struct client *c = arg;

    transfers_dispatch(c->http);
    pump(c);
    return 0;
}

/* Server-side apply owns fields in the name of its manager, and takes them from others. */
static char *full_path(const struct client_request *request)
{
    bool writes = request->verb != CLIENT_GET && request->verb != CLIENT_DELETE;
    char *path;

    if (!writes)
        return strdup(request->path);
    if (asprintf(&path, "%s%cfieldManager=%s%s", request->path,
                 strchr(request->path, '?') ? '&' : '?',
                 request->manager ? request->manager : FIELD_MANAGER,
                 request->verb == CLIENT_APPLY ? "&force=true" : "") < 0)
        return NULL;
    return path;
}

int64_t client_send(struct client *c, const struct client_request *request)
{
    unsigned timeout_ms = request->timeout_ms ? request->timeout_ms
                          : request->data     ? 0
                                              : CLIENT_TIMEOUT_MS;
    struct call *call;

    if (c->n >= CLIENT_CALLS_MAX)
        return -EBUSY;
    call = calloc(1, sizeof(*call));
    if (!call)
        return -ENOMEM;
    call->path = full_path(request);
    call->text = request->text;
    if (request->body)
        call->body = json_dumps(request->body, JSON_COMPACT);
    if (!call->path || (request->body && !call->body)) {
        call_free(call);
        return -ENOMEM;
    }
    call->client = c;
    call->verb = request->verb;
    call->data = request->data;
    call->done = request->done;
    call->allowed = request->allowed;
    call->arg = request->arg;
    call->urgent = request->urgent;
    call->deadline_ns = timeout_ms ? clock_now_ns() + timeout_ms * NS_PER_MS : 0;
    call->ticket = ++c->tickets;
    append_call(c, call);
    /* Sent from the loop, so that nobody is called back from here. */
    sd_event_source_set_time(c->timer, 0);
    sd_event_source_set_enabled(c->timer, SD_EVENT_ONESHOT);
    return call->ticket;
}

void client_cancel(struct client *c, int64_t ticket)
{
    struct call *call = c->first;

    while (call && call->ticket != ticket)
        call = call->next;
    if (!call)
        return;
    if (call->sent)
        transfer_cancel(c->http, call->transfer);
    unlink_call(c, call);
    call_free(call);
}

/* ---- the client ---- */

int client_new(sd_event *event, struct access *access, const struct client_limits *limits,
               struct client **ret, struct error *err)
{
    struct client *c = calloc(1, sizeof(*c));
    int r;

    if (!c) {
        access_done(access);
        return error_set(err, -ENOMEM, "out of memory");
    }
    c->event = sd_event_ref(event);
    c->access = *access;
    *access = (struct access){0};
    c->last = &c->first;
    c->rate = limits && limits->rate ? limits->rate : CLIENT_RATE;
    c->burst = limits && limits->burst ? limits->burst : CLIENT_BURST;
    c->tokens = c->burst * NS_PER_S;
    c->filled_ns = clock_now_ns();
    c->server.url = c->access.server;
    c->server.insecure = c->access.insecure;
    refresh_credentials(c, clock_now_ns());
    r = transfers_new(&c->server, &c->http);
    if (r >= 0)
        r = sd_event_add_io(event, &c->io, transfers_fd(c->http), EPOLLIN, on_io, c);
    if (r >= 0)
        r = sd_event_add_time(event, &c->timer, CLOCK_MONOTONIC, 0, 1, on_timer, c);
    if (r >= 0)
        r = sd_event_source_set_enabled(c->timer, SD_EVENT_OFF);
    if (r < 0) {
        client_free(c);
        return error_set(err, r, "no client for the API server: %s", strerror(-r));
    }
    *ret = c;
    return 0;
}

struct client *client_free(struct client *c)
{
    if (!c)
        return NULL;
    while (c->first)
        client_cancel(c, c->first->ticket);
    sd_event_source_disable_unref(c->io);
    sd_event_source_disable_unref(c->timer);
    transfers_free(c->http);
    access_done(&c->access);
    sd_event_unref(c->event);
    free(c);
    return NULL;
}

const char *client_namespace(const struct client *c)
{
    return c->access.name_space;
}

uint64_t client_sent(const struct client *c)
{
    return c->sent;
}

unsigned client_waiting(const struct client *c)
{
    return c->waiting;
}

int client_escape(const char *text, char *ret, size_t size)
{
    static const char plain[] = "-._~";
    size_t len = 0;

    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;

        if (len + 4 > size)
            return -ENAMETOOLONG;
        if (isalnum(byte) || strchr(plain, byte))
            ret[len++] = (char)byte;
        else
            len += (size_t)snprintf(ret + len, 4, "%%%02X", byte);
    }
    if (len >= size)
        return -ENAMETOOLONG;
    ret[len] = '\0';
    return 0;
}
