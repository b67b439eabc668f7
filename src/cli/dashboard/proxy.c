/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/dashboard/proxy.h"

#include "base/cleanup.h"
#include "base/rundir.h"
#include "cli/remote/gateway.h"
#include "host/net/door.h"
#include "host/net/forward.h"
#include "host/net/http.h"

#include <errno.h>
#include <string.h>

#define ERROR_WORD "run-directory"

#define CONNECT_MS 200 /* a daemon whose queue is full may delay the page so long */
#define END_MS     50 /* for an ssh that has closed the connection to end; the loop waits so long */

/*
 * The server does not notice that a browser has left while its request waits, and has room for few:
 * those for machines that are silent shall leave room for this machine's own.
 */
#define FAR_WAITING_MAX 6

struct call {
    const struct proxy *proxy;
    struct httpd_request *request;
    struct forward *forward;
    int fd;                  /* of @dial where the machine is another one */
    bool far, kept, waiting; /* the machine is another one; the connection had been kept; counts */
    struct address there;    /* its address */
    struct dial dial;
    bool events; /* may become a stream */
    char method[8];
};

static unsigned far_waiting; /* calls to other machines that have no answer yet */

/* Requests of the page. A prefix that ends in "/" stands for all below it. */
static const struct {
    const char *method, *path;
} allowed[] = {
    {"GET", "/v1/"},
    {"GET", "/metrics"},
    {"PATCH", "/v1/jobs/"},
    {"DELETE", "/v1/jobs/"},
    {"PUT", "/v1/policy"},
    {"PUT", "/v1/power/cap"},
    {"DELETE", "/v1/power/cap"},
};

static bool is_allowed(const char *method, const char *path)
{
    for (size_t i = 0; i < ARRAY_LEN(allowed); i++) {
        size_t len = strlen(allowed[i].path);

        if (strcmp(method, allowed[i].method) != 0)
            continue;
        if (allowed[i].path[len - 1] == '/' ? strncmp(path, allowed[i].path, len) == 0
                                            : strcmp(path, allowed[i].path) == 0)
            return true;
    }
    return false;
}

/* ---- the call ---- */

/* A stream, or what has ended, waits no more. */
static void stop_waiting(struct call *c)
{
    far_waiting -= c->waiting;
    c->waiting = false;
}

static void hang_up(struct call *c)
{
    stop_waiting(c);
    if (c->far)
        dial_close(&c->dial);
    else
        close_fd(c->fd);
    c->fd = -1;
}

/* The answer has ended: the connection to another machine may serve the next request. */
static void end_answer(struct call *c, bool closes)
{
    if (!c->far || closes) {
        hang_up(c);
        return;
    }
    stop_waiting(c);
    reach_keep(c->proxy->reach, &c->there, &c->dial);
    c->dial = (struct dial)DIAL_NONE;
    c->fd = -1;
}

static void fail(struct call *c, int code, const char *message)
{
    hang_up(c);
    forward_fail(c->forward, code == -ENOENT ? 503 : 502, message,
                 code == -ENOENT ? "A daemon starts with the first job of 'tide run'." : "");
}

static int begin(struct call *c);

/* A change waits for its acknowledgement; the page gives up a question sooner. */
static unsigned timeout_ms(const struct call *c)
{
    return c->far && strcmp(c->method, "GET") == 0 ? PROXY_FAR_TIMEOUT_MS : PROXY_TIMEOUT_MS;
}

/*
 * The exchange failed with @code. A kept connection may have ended just now: a new one is tried;
 * but waiting as long again would help nobody.
 */
static void try_again(struct call *c, int code, const char *message)
{
    struct error err = {0};

    if (c->kept && code != -ETIMEDOUT && !forward_answered(c->forward) &&
        strcmp(c->method, "GET") == 0) {
        hang_up(c);
        code = begin(c);
        if (code < 0)
            fail(c, code, "out of memory");
        return;
    }
    if (c->far) {
        stop_waiting(c);
        c->fd = -1;
        dial_failed(&c->dial, &c->there, code, timeout_ms(c), END_MS, &err);
        message = err.text;
    }
    fail(c, code == -ENOENT ? -EIO : code, message);
}

static void on_told(void *arg, const struct forward_event *event)
{
    switch (event->what) {
    case FORWARD_STREAMS:
        stop_waiting(arg);
        break;
    case FORWARD_OVER:
        end_answer(arg, event->closes);
        break;
    case FORWARD_BROKEN:
        try_again(arg, event->code, event->message);
        break;
    }
}

/* ---- the request ---- */

/* The system's daemon, or the user's own when that one does not run, as `tide` finds it. */
static int dial(int *ret_fd, struct error *err)
{
    char dir[RUNDIR_PATH_MAX], own[RUNDIR_PATH_MAX];
    char path[RUNDIR_PATH_MAX + sizeof(RUNDIR_API_SOCKET) + 1];
    int r = rundir_find(dir);

    if (r < 0)
        return error_set(err, r,
                         "the path in TIDE_DIR or XDG_RUNTIME_DIR is too long for a socket: set "
                         "TIDE_DIR to a shorter one");
    snprintf(path, sizeof(path), "%s/" RUNDIR_API_SOCKET, dir);
    r = http_connect(path, CONNECT_MS, ret_fd, err);
    if ((r == -ENOENT || r == -ECONNREFUSED || r == -EACCES) && rundir_user(own) == 0 &&
        strcmp(own, dir) != 0) {
        snprintf(path, sizeof(path), "%s/" RUNDIR_API_SOCKET, own);
        r = http_connect(path, CONNECT_MS, ret_fd, err);
    }
    return r == -ECONNREFUSED ? -ENOENT : r;
}

static void call_free(struct call *c)
{
    forward_free(c->forward);
    hang_up(c);
    free(c);
}

/*
 * Opens the connection, with which the exchange begins. Returns 0, also after it has refused the
 * request, or -errno.
 */
static int begin(struct call *c)
{
    struct error err = {0};
    int r;

    c->kept = c->far && !c->events && !c->kept && reach_take(c->proxy->reach, &c->there, &c->dial);
    if (c->kept)
        r = 0;
    else if (c->far)
        r = dial_open(&c->there, true, &c->dial, &err);
    else
        r = dial(&c->fd, &err);
    if (r < 0) {
        fail(c, c->far ? -EIO : r, err.text);
        return 0;
    }
    if (c->far)
        c->fd = c->dial.fd;
    r = forward_begin(c->forward, c->fd);
    c->waiting = r >= 0 && c->far;
    far_waiting += c->waiting;
    return r;
}

void proxy_refuse_machine(struct httpd_request *r, int found)
{
    if (found == -ENOENT)
        door_refuse(r, 404, "no machine of the inventory has this name",
                    "'tide fleet' lists them.");
    else if (found == -EAGAIN)
        door_refuse(r, 503, "the inventory of machines is being read", "");
    else
        door_refuse(r, 500, "out of memory", "");
}

/*
 * The path of @r is "/v1/at/NAME/REST". Returns "/v1/REST", the caller's, and where NAME is
 * reached; or NULL after the refusal.
 */
static char *split(const struct proxy *p, struct httpd_request *r, struct address *ret)
{
    const char *name = r->path + strlen(PROXY_AT), *rest = strchr(name, '/');
    _cleanup_free_ char *machine = rest ? strndup(name, (size_t)(rest - name)) : NULL;
    char *path = NULL;
    int found = machine ? machines_find(p->machines, machine, ret) : -ENOENT;

    if (found == 0 && asprintf(&path, "/v1%s", rest) < 0)
        found = -ENOMEM;
    if (found == 0)
        return path;
    proxy_refuse_machine(r, found);
    return NULL;
}

/* Returns 0 or -errno; -EACCES: *err says why nothing proves to that machine who asks. */
static int write_down(struct call *c, const char *path, struct error *err)
{
    char headers[GATEWAY_HEADERS_MAX] = "";

    if (c->far && gateway_headers(&c->there, headers, err) < 0)
        return -EACCES;
    return forward_new(&(struct forward_options){.event = c->proxy->event,
                                                 .request = c->request,
                                                 .path = path,
                                                 .headers = headers,
                                                 .keeps = c->far && !c->events,
                                                 .timeout_ms = timeout_ms(c)},
                       on_told, c, &c->forward);
}

void proxy_pass(const struct proxy *p, struct httpd_request *r)
{
    _cleanup_free_ char *far_path = NULL;
    bool far = strncmp(r->path, PROXY_AT, strlen(PROXY_AT)) == 0;
    struct address there = {0};
    const char *path = r->path;
    struct error err = {0};
    struct call *c;
    int error;

    if (far) {
        path = far_path = split(p, r, &there);
        if (!path)
            return;
    }
    if (!is_allowed(r->method, path)) {
        door_refuse(r, 403, "the page may not send this request",
                    "'tide help' lists the commands that do more.");
        return;
    }
    if (far && far_waiting == FAR_WAITING_MAX) {
        r->retry_s = 1;
        door_refuse(r, 429, "other machines have not answered earlier requests yet", "");
        return;
    }
    c = calloc(1, sizeof(*c));
    if (!c) {
        door_refuse(r, 500, "out of memory", "");
        return;
    }
    *c = (struct call){.proxy = p,
                       .request = r,
                       .fd = -1,
                       .far = far,
                       .there = there,
                       .dial = DIAL_NONE,
                       .events = strcmp(path, "/v1/events") == 0};
    snprintf(c->method, sizeof(c->method), "%s", r->method);
    r->context = c;
    error = write_down(c, path, &err);
    if (error == -EACCES) {
        door_refuse(r, 502, err.text, "");
        return;
    }
    if (error < 0) {
        door_refuse(r, 400, "the path or an argument is too long, or not text", "");
        return;
    }
    error = begin(c);
    if (error < 0)
        fail(c, error, "out of memory");
}

void proxy_over(struct httpd_request *r)
{
    if (r->context)
        call_free(r->context);
    r->context = NULL;
}
