/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/remote/remote.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/remote/gateway.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void remote_init(struct remote *r, const struct address *a, bool alone)
{
    *r = (struct remote){.address = *a,
                         .alone = alone,
                         .connect_ms = REMOTE_CONNECT_MS + (alone ? 0 : REMOTE_PERSON_MS),
                         .dial = DIAL_NONE,
                         .stream = DIAL_NONE};
}

void remote_done(struct remote *r)
{
    dial_close(&r->dial);
    dial_close(&r->stream);
}

/* Returns 1: the connection is new, 0: it is the kept one, or -errno. */
static int reach(struct remote *r, struct error *err)
{
    if (r->dial.fd >= 0 && !dial_is_stale(&r->dial, r->used_ns))
        return 0;
    dial_close(&r->dial);
    /* Another code could say that no daemon runs on this machine. */
    return dial_open(&r->address, r->alone, &r->dial, err) < 0 ? -EHOSTUNREACH : 1;
}

int remote_request(struct remote *r, const char *method, const char *path, const char *body,
                   unsigned timeout_ms, int *ret_status, char **ret_body, struct error *err)
{
    char headers[GATEWAY_HEADERS_MAX];
    struct http_response answer;
    unsigned limit_ms;
    int fresh, e;

    if (gateway_headers(&r->address, headers, err) < 0)
        return -EHOSTUNREACH;
    for (;;) {
        fresh = reach(r, err);
        if (fresh < 0)
            return fresh;
        limit_ms = fresh ? timeout_ms + r->connect_ms : timeout_ms;
        e = http_exchange(r->dial.fd, method, path, headers, body, limit_ms, &answer);
        /* A kept connection may end just now. What changes nothing is asked again. */
        if (e != -ENODATA || fresh || strcmp(method, "GET") != 0)
            break;
        dial_close(&r->dial);
    }
    if (e < 0)
        return dial_failed(&r->dial, &r->address, e, limit_ms, DIAL_WAIT_MS, err);
    r->used_ns = clock_now_ns();
    if (answer.closes)
        dial_close(&r->dial);
    *ret_status = answer.status;
    *ret_body = answer.body;
    return 0;
}

/* A stream has a connection of its own, until its end. */
int remote_stream(struct remote *r, const char *path, const char *last, unsigned timeout_ms,
                  struct http_stream *ret, int *ret_status, char **ret_body, struct error *err)
{
    unsigned limit_ms = timeout_ms + r->connect_ms;
    char headers[GATEWAY_HEADERS_MAX];
    int e;

    if (gateway_headers(&r->address, headers, err) < 0)
        return -EHOSTUNREACH;

    dial_close(&r->dial);
    if (dial_open(&r->address, r->alone, &r->dial, err) < 0)
        return -EHOSTUNREACH;
    e = http_stream_over(r->dial.fd, path, last, headers, limit_ms, ret, ret_status, ret_body);
    r->dial.fd = -1; /* it is the stream's, or closed */
    if (e < 0)
        return dial_failed(&r->dial, &r->address, e, limit_ms, DIAL_WAIT_MS, err);
    dial_close(&r->stream);
    r->stream = r->dial;
    r->dial = (struct dial)DIAL_NONE;
    return 0;
}
