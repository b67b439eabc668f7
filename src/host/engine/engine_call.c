/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "host/engine/engine_state.h"
#include "host/net/http.h"

#include <assert.h>
#include <stdarg.h>
#include <string.h>

struct engine_call {
    struct engine_call *next;
    struct engine *engine;
    struct engine_then then;
    int64_t ticket, transfer;
    uint64_t started_ns;
    enum engine_verb verb;
    bool again;                  /* the update is sent for the second time */
    struct engine_update update; /* points to the next two members */
    struct cpuset cpus;
    struct engine_quota quota;
    char target[ENGINE_ID_MAX];
};

static const struct {
    const char *name;
    const char *method;
    const char *tail; /* the path behind the container */
} verbs[] = {
    [ENGINE_V_LIST] = {"list", "GET", ""},
    [ENGINE_V_INSPECT] = {"inspect", "GET", "/json"},
    [ENGINE_V_UPDATE] = {"update", "POST", "/update"},
    [ENGINE_V_PAUSE] = {"pause", "POST", "/pause"},
    [ENGINE_V_UNPAUSE] = {"unpause", "POST", "/unpause"},
    [ENGINE_V_STOP] = {"stop", "POST", "/stop"},
};
static_assert(ARRAY_LEN(verbs) == ENGINE_V_MAX, "an entry for each verb");

/* ---- the end of a call ---- */

static void unlink_call(struct engine_call *c)
{
    struct engine_call **at = &c->engine->calls;

    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    c->engine->n_calls--;
}

static void settle(struct engine_call *c, struct engine_result *result, const char *reason)
{
    char text[ENGINE_ID_MAX + ERROR_TEXT_MAX + 32] = "";

    if (result->code < 0)
        snprintf(text, sizeof(text), "%s: %s%s%s: %s", engine_kind_name(c->engine->greeting.kind),
                 verbs[c->verb].name, *c->target ? " " : "", c->target, reason);
    result->verb = c->verb;
    result->target = c->target;
    result->text = text;
    result->took_ns = clock_now_ns() - c->started_ns;
    unlink_call(c); /* done may cancel any call, so this one leaves the list first */
    c->then.done(c->then.arg, result);
    free(c);
}

/* Docker has no status for an unpause without a pause, podman none for several such faults. */
static bool wrong_state(const char *message, const char *cause)
{
    static const char unpaused[] = " is not paused";
    size_t len = strlen(message);

    return strcmp(cause, "container state improper") == 0 ||
           (len >= sizeof(unpaused) &&
            strcmp(message + len - (sizeof(unpaused) - 1), unpaused) == 0);
}

static int code_of_status(int status, const char *message, const char *cause)
{
    switch (status) {
    case 400:
        return -EINVAL;
    case 404:
        return -ENOENT;
    case 409:
        return -EBUSY;
    case 500:
        return wrong_state(message, cause) ? -EBUSY : -EREMOTEIO;
    default:
        return status > 500 ? -EREMOTEIO : -EPROTO;
    }
}

static void on_success(struct engine_call *c, const struct transfer_answer *answer)
{
    struct engine_result result = {.status = answer->status};
    struct engine_containers found = {0};
    struct error err = {0};

    if (c->verb == ENGINE_V_LIST)
        result.code = engine_parse_list(answer->body, answer->body_len, &found, &err);
    else if (c->verb == ENGINE_V_INSPECT)
        result.code = engine_parse_inspect(answer->body, answer->body_len, &found, &err);
    result.containers = found.list;
    result.n_containers = found.n;
    settle(c, &result, err.text);
    engine_containers_done(&found);
}

static int send_call(struct engine_call *c, const char *path, json_t *body);

/* Sends the same update with another quota. False: no other quota, or no time left. */
static bool ask_again(struct engine_call *c, int status, const char *message)
{
    const struct engine_dialect *dialect = c->engine->dialect;
    char path[ENGINE_ID_MAX + 32];

    if (c->verb != ENGINE_V_UPDATE || c->again || !c->update.quota ||
        !dialect->other_quota(&c->quota, status, message, &c->quota))
        return false;
    c->again = true;
    snprintf(path, sizeof(path), "/containers/%s/update", c->target);
    return send_call(c, path, dialect->update(&c->update)) == 0;
}

static void on_answer(void *arg, const struct transfer_answer *answer)
{
    struct engine_call *c = arg;
    struct engine_result result = {.code = answer->code, .status = answer->status};
    char message[ERROR_TEXT_MAX], cause[48];

    if (answer->code < 0) {
        settle(c, &result, answer->reason);
    } else if ((answer->status >= 200 && answer->status < 300) || answer->status == 304) {
        on_success(c, answer);
    } else {
        engine_parse_failure(answer->body, answer->body_len, message, cause, sizeof(cause));
        if (ask_again(c, answer->status, message))
            return;
        result.code = code_of_status(answer->status, message, cause);
        settle(c, &result, message);
    }
}

/* ---- the beginning ---- */

/* Takes ownership of @body. */
static int send_call(struct engine_call *c, const char *path, json_t *body)
{
    struct engine *e = c->engine;
    uint64_t used_ms = (clock_now_ns() - c->started_ns) / NS_PER_MS;
    struct transfer_request request = {
        .method = verbs[c->verb].method,
        .done = on_answer,
        .arg = c,
        .timeout_ms = c->then.timeout_ms,
    };
    _cleanup_free_ char *text = body ? json_dumps(body, JSON_COMPACT) : NULL, *full = NULL;

    json_decref(body);
    if ((c->verb == ENGINE_V_UPDATE && !text) ||
        asprintf(&full, "%s%s", e->greeting.prefix, path) < 0) {
        full = NULL;
        return -ENOMEM;
    }
    /* the remaining time; 0 would mean no limit */
    request.timeout_ms = used_ms < request.timeout_ms ? request.timeout_ms - used_ms : 1;
    request.path = full;
    request.body = text;
    c->transfer = transfer_send(e->http, &request);
    return c->transfer < 0 ? (int)c->transfer : 0;
}

/* @target "": the call needs none. */
static int begin(struct engine *e, enum engine_verb verb, const char *target,
                 const struct engine_then *then, struct engine_call **ret)
{
    struct engine_call *c;

    if (!e->dialect)
        return -ENOTCONN;
    if (*target && !engine_is_id(target))
        return -EINVAL;
    if (e->n_calls >= ENGINE_CALLS_MAX)
        return -EBUSY;
    c = calloc(1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    c->engine = e;
    c->verb = verb;
    c->then = *then;
    if (then->timeout_ms == 0)
        c->then.timeout_ms = ENGINE_TIMEOUT_MS;
    c->started_ns = clock_now_ns();
    strcpy(c->target, target);
    c->ticket = ++e->tickets;
    c->next = e->calls;
    e->calls = c;
    e->n_calls++;
    *ret = c;
    return 0;
}

/* Sends the call to the path of @fmt. Takes ownership of @body. */
__attribute__((format(printf, 3, 4))) static int64_t finish(struct engine_call *c, json_t *body,
                                                            const char *fmt, ...)
{
    _cleanup_free_ char *path = NULL;
    va_list ap;
    int r;

    va_start(ap, fmt);
    r = vasprintf(&path, fmt, ap);
    va_end(ap);
    if (r < 0) {
        path = NULL;
        json_decref(body);
        r = -ENOMEM;
    } else {
        r = send_call(c, path, body);
    }
    if (r == 0)
        return c->ticket;
    unlink_call(c);
    free(c);
    return r;
}

/* Begins a call that needs only a container, and perhaps "?key=value". */
static int64_t act(struct engine *e, enum engine_verb verb, const char *id, const char *query,
                   const struct engine_then *then)
{
    struct engine_call *c;
    int r = *id ? begin(e, verb, id, then, &c) : -EINVAL;

    return r < 0 ? r : finish(c, NULL, "/containers/%s%s%s", id, verbs[verb].tail, query);
}

int64_t engine_inspect(struct engine *e, const char *id, struct engine_then then)
{
    return act(e, ENGINE_V_INSPECT, id, "", &then);
}

int64_t engine_pause(struct engine *e, const char *id, struct engine_then then)
{
    return act(e, ENGINE_V_PAUSE, id, "", &then);
}

int64_t engine_unpause(struct engine *e, const char *id, struct engine_then then)
{
    return act(e, ENGINE_V_UNPAUSE, id, "", &then);
}

int64_t engine_stop(struct engine *e, const char *id, unsigned grace_s, struct engine_then then)
{
    char query[32];

    if (!e->dialect)
        return -ENOTCONN;
    snprintf(query, sizeof(query), "?%s=%u", e->dialect->grace, grace_s);
    return act(e, ENGINE_V_STOP, id, query, &then);
}

int64_t engine_list(struct engine *e, const char *label, struct engine_then then)
{
    json_t *filter = label ? json_pack("{s:[s]}", "label", label) : json_object();
    _cleanup_free_ char *text = filter ? json_dumps(filter, JSON_COMPACT) : NULL, *escaped = NULL;
    size_t size = text ? strlen(text) * 3 + 4 : 0;
    struct engine_call *c;
    int r = 0;

    json_decref(filter);
    if (!text)
        return label ? -EINVAL : -ENOMEM; /* JSON takes only UTF-8 */
    escaped = malloc(size);
    if (!escaped || http_escape(text, escaped, size) < 0)
        return -ENOMEM;
    r = begin(e, ENGINE_V_LIST, "", &then, &c);
    return r < 0 ? r : finish(c, NULL, "/containers/json?all=true&filters=%s", escaped);
}

int64_t engine_update(struct engine *e, const char *id, const struct engine_update *update,
                      struct engine_then then)
{
    struct engine_call *c;
    int r = *id && (!update->cpus || cpuset_count(update->cpus) > 0)
                ? begin(e, ENGINE_V_UPDATE, id, &then, &c)
                : -EINVAL;

    if (r < 0)
        return r;
    c->update.shares = update->shares;
    c->update.memory_bytes = update->memory_bytes;
    c->update.swap_bytes = update->swap_bytes;
    if (update->cpus) {
        c->cpus = *update->cpus;
        c->update.cpus = &c->cpus;
    }
    if (update->quota) {
        c->quota = *update->quota;
        c->update.quota = &c->quota;
    }
    return finish(c, e->dialect->update(&c->update), "/containers/%s/update", id);
}

void engine_cancel(struct engine *e, int64_t ticket)
{
    struct engine_call *c = e->calls;

    while (c && c->ticket != ticket)
        c = c->next;
    if (!c)
        return;
    unlink_call(c);
    transfer_cancel(e->http, c->transfer);
    free(c);
}

void engine_calls_free(struct engine *e)
{
    while (e->calls)
        engine_cancel(e, e->calls->ticket);
}
