/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/serve/call.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#define ERROR_WORD "hub-state"

#define CALL_RETRY_S  5               /* until somebody asks a store that is away again */
#define CALL_FLOOD_NS (60 * NS_PER_S) /* between two rows of the log about a flood */

/* ---- answers ---- */

void call_answer(struct call *c, unsigned status, json_t *answer)
{
    char *text = answer ? json_dumps(answer, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;

    json_decref(answer);
    if (httpd_add_header(c->http, "Cache-Control", "no-store") < 0) {
        free(text);
        text = NULL;
    }
    httpd_answer(c->http, status, "application/json", text, false);
}

void call_text(struct call *c, const char *type, char *text)
{
    httpd_answer(c->http, HTTP_OK, type, text, false);
}

static const char *word_of(unsigned status)
{
    switch (status) {
    case HTTP_UNAUTHORIZED:
        return "not-logged-in";
    case HTTP_FORBIDDEN:
        return "role-too-low";
    case HTTP_NOT_FOUND:
        return "hub-has-none";
    case HTTP_CONFLICT:
        return "hub-conflict";
    case HTTP_TOO_MANY:
        return "hub-busy";
    case HTTP_FAILED: /* an answer that does not fit in memory */
        return "out-of-memory";
    default:
        return "bad-request";
    }
}

void call_fail_as(struct call *c, unsigned status, const char *word, const char *hint,
                  const char *fmt, ...)
{
    char message[ERROR_TEXT_MAX];
    json_t *answer = NULL;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(message, sizeof(message), fmt, ap);
    va_end(ap);
    /* A client's text may be cut in the middle of a character. */
    for (size_t len = strlen(message) + 1; !answer && len-- > 0;) {
        message[len] = '\0';
        answer = json_pack("{s:{s:s,s:s,s:s}}", "error", "message", message, "hint", hint, "code",
                           word ? word : word_of(status));
    }
    call_answer(c, status, answer);
}

void call_fail_of(struct call *c, const struct error *err)
{
    switch (-err->code) {
    case ENOENT:
        call_fail_as(c, HTTP_NOT_FOUND, error_why(err), "", "%s", err->text);
        break;
    case EEXIST:
    case EBUSY:
    case ESTALE:
    case EHOSTUNREACH:
        call_fail_as(c, HTTP_CONFLICT, error_why(err), "", "%s", err->text);
        break;
    case EINVAL:
    case E2BIG:
        call_fail_as(c, HTTP_BAD_REQUEST, error_why(err), "", "%s", err->text);
        break;
    case EACCES:
    case EPERM:
    case EKEYREVOKED:
        call_fail_as(c, HTTP_FORBIDDEN, error_why(err), "", "%s", err->text);
        break;
    case EAGAIN:
        call_fail_as(c, HTTP_TOO_MANY, error_why(err), "", "%s", err->text);
        break;
    case ENOTCONN: /* the store's server; it is connected to again by itself */
        c->http->retry_s = CALL_RETRY_S;
        call_fail_as(c, HTTP_UNAVAILABLE, error_why(err), "The store is away: try again.", "%s",
                     err->text);
        break;
    case ENOSPC:
        call_fail_as(c, HTTP_NO_ROOM, error_why(err), "", "%s", err->text);
        break;
    default:
        call_fail_as(c, HTTP_FAILED, error_why(err), "", "%s", err->text);
    }
}

/* Anybody can send what is refused without a look at it: one row tells of many. */
static bool now_and_then(void)
{
    static uint64_t told_ns; /* the process's, as there is one hub in it */
    uint64_t now = clock_now_ns();

    if (told_ns && now - told_ns < CALL_FLOOD_NS)
        return false;
    told_ns = now;
    return true;
}

void call_audit(struct call *c, const char *what, const char *target, const struct error *err)
{
    struct audit_row row;
    struct error log = {0};
    char line[ERROR_TEXT_MAX + 6 * AUDIT_TEXT_MAX];
    int code = err ? err->code : 0;

    if (code == -EAGAIN && !c->known && !now_and_then())
        return;
    if (code && c->known && !refusals_row(c->refusals, c->who.name, c->from))
        return;
    snprintf(row.user, sizeof(row.user), "%s", c->known ? c->who.name : "");
    snprintf(row.from, sizeof(row.from), "%s", c->from);
    snprintf(row.what, sizeof(row.what), "%s", what);
    snprintf(row.target, sizeof(row.target), "%s", target);
    if (code)
        snprintf(row.outcome, sizeof(row.outcome), "%s: %.100s",
                 code == -EPERM || code == -EACCES || code == -EAGAIN ? "refused" : "failed",
                 err->text);
    else
        snprintf(row.outcome, sizeof(row.outcome), "done");
    if (audit_append(c->hub->people, &row, &log) == 0)
        return;
    snprintf(line, sizeof(line), "%s: %s %s of '%s' from %s: %s (tide why %s)", log.text, row.what,
             row.target, row.user, row.from, row.outcome, error_why(&log));
    c->hub->say(c->hub->arg, NULL, line);
}

json_t *call_uj(uint64_t uj)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRIu64, uj);
    return json_string(text);
}

json_t *call_text_or_null(const char *text)
{
    return text && *text ? json_string(text) : json_null();
}

/* ---- input ---- */

/* 1: it is there; 0: it is not, which is good; -1: answered. */
static int look(struct call *c, const char *key, bool needed, const json_t **ret)
{
    *ret = json_object_get(c->body, key);
    if (*ret && !json_is_null(*ret))
        return 1;
    if (!needed)
        return 0;
    call_fail(c, HTTP_BAD_REQUEST, "See docs/openapi-hub.yaml.", "%s is missing", key);
    return -1;
}

bool call_take_text(struct call *c, const char *key, bool needed, const char **ret)
{
    const json_t *value;
    int r = look(c, key, needed, &value);

    if (r <= 0)
        return r == 0;
    if (json_is_string(value) && strlen(json_string_value(value)) == json_string_length(value)) {
        *ret = json_string_value(value);
        return true;
    }
    call_fail(c, HTTP_BAD_REQUEST, "", "%s is no text", key);
    return false;
}

bool call_take_flag(struct call *c, const char *key, bool needed, bool *ret)
{
    const json_t *value;
    int r = look(c, key, needed, &value);

    if (r <= 0)
        return r == 0;
    if (json_is_boolean(value)) {
        *ret = json_is_true(value);
        return true;
    }
    call_fail(c, HTTP_BAD_REQUEST, "", "%s is neither true nor false", key);
    return false;
}

bool call_take_whole(struct call *c, const char *key, bool needed, int64_t min, int64_t max,
                     int64_t *ret)
{
    const json_t *value;
    int r = look(c, key, needed, &value);

    if (r <= 0)
        return r == 0;
    if (json_is_integer(value) && json_integer_value(value) >= min &&
        json_integer_value(value) <= max) {
        *ret = json_integer_value(value);
        return true;
    }
    call_fail(c, HTTP_BAD_REQUEST, "", "%s must be a whole number from %" PRId64 " to %" PRId64,
              key, min, max);
    return false;
}

bool call_query_whole(struct call *c, const char *key, int64_t min, int64_t max, int64_t *ret)
{
    const char *text = httpd_argument(c->http, key);
    char *end = NULL;
    long long value;

    if (!text)
        return true;
    errno = 0;
    value = strtoll(text, &end, 10);
    if (*text && !*end && errno == 0 && value >= min && value <= max && *text != ' ') {
        *ret = value;
        return true;
    }
    call_fail(c, HTTP_BAD_REQUEST, "",
              "%s is '%.40s': use a whole number from %" PRId64 " to %" PRId64, key, text, min,
              max);
    return false;
}
