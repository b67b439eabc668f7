/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/dashboard/proxy.h"

#include "base/cleanup.h"
#include "base/rundir.h"
#include "host/net/door.h"
#include "host/net/http.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define CONNECT_MS 200 /* a daemon whose queue is full may delay the page so long */
#define URL_MAX    4096
#define READ_BYTES 16384
#define ANSWER_MAX (HTTP_HEAD_MAX + 2 * (size_t)HTTP_BODY_MAX)
#define END_MS     50 /* for an ssh that has closed the connection to end; the loop waits so long */

/*
 * The server does not notice that a browser has left while its request waits, and has room for few:
 * those for machines that are silent shall leave room for this machine's own.
 */
#define FAR_WAITING_MAX 6

struct call {
    const struct proxy *proxy;
    struct httpd_request *request;
    sd_event_source *io, *timer;
    int fd;               /* of @dial where the machine is another one */
    bool far, kept;       /* the machine is another one; and the connection had been kept */
    struct address there; /* its address */
    struct dial dial;
    char *out; /* the request, of which @sent bytes are on their way */
    size_t out_len, sent;
    char *in; /* the answer; of a stream, what is left of it */
    size_t in_len, in_size;
    bool events, stream, ended; /* may become a stream; is one; tided has closed it */
    bool metrics;
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
    far_waiting -= c->far && c->timer;
    c->timer = sd_event_source_disable_unref(c->timer);
}

static void let_go(struct call *c)
{
    stop_waiting(c);
    c->io = sd_event_source_disable_unref(c->io);
}

static void hang_up(struct call *c)
{
    let_go(c);
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
    let_go(c);
    reach_keep(c->proxy->reach, &c->there, &c->dial);
    c->dial = (struct dial)DIAL_NONE;
    c->fd = -1;
}

static void fail(struct call *c, int code, const char *message)
{
    hang_up(c);
    c->ended = true;
    if (c->stream)
        httpd_wake(c->request);
    else
        door_refuse(c->request, code == -ENOENT ? 503 : 502, message,
                    code == -ENOENT ? "A daemon starts with the first job of 'tide run'." : "");
}

static int begin(struct call *c);

/* A change waits for its acknowledgement; the page gives up a question sooner. */
static unsigned timeout_ms(const struct call *c)
{
    return c->far && strcmp(c->method, "GET") == 0 ? PROXY_FAR_TIMEOUT_MS : PROXY_TIMEOUT_MS;
}

/* The exchange failed with @code. A kept connection may have ended just now: a new one is tried. */
static void broken(struct call *c, int code, const char *message)
{
    struct error err = {0};

    if (c->kept && c->in_len == 0 && strcmp(c->method, "GET") == 0) {
        hang_up(c);
        c->sent = 0;
        code = begin(c);
        if (code < 0)
            fail(c, code, "out of memory");
        return;
    }
    if (c->far) {
        let_go(c);
        c->fd = -1;
        dial_failed(&c->dial, &c->there, code, timeout_ms(c), END_MS, &err);
        message = err.text;
    }
    fail(c, code == -ENOENT ? -EIO : code, message);
}

static ssize_t on_room(void *arg, char *buf, size_t max)
{
    struct call *c = arg;
    size_t n = c->in_len < max ? c->in_len : max;

    memcpy(buf, c->in, n);
    memmove(c->in, c->in + n, c->in_len - n);
    c->in_len -= n;
    if (c->io && c->in_len < PROXY_STREAM_MAX)
        sd_event_source_set_io_events(c->io, EPOLLIN);
    return n ? (ssize_t)n : c->ended ? HTTPD_END : 0;
}

/* True once the answer is a stream of events, whose head is taken off. */
static bool becomes_stream(struct call *c)
{
    const char *end = c->events && c->in_len ? memmem(c->in, c->in_len, "\r\n\r\n", 4) : NULL;
    size_t head = end ? (size_t)(end + 4 - c->in) : 0;

    if (!end || head < 13 || memcmp(c->in + 8, " 200 ", 5) != 0)
        return false;
    memmove(c->in, c->in + head, c->in_len - head);
    c->in_len -= head;
    c->stream = true;
    stop_waiting(c);
    httpd_stream(c->request, "text/event-stream", on_room, c);
    return true;
}

static void take_answer(struct call *c, bool eof)
{
    struct http_response answer;
    int r;

    if (c->stream || becomes_stream(c)) {
        c->ended = eof;
        if (eof)
            hang_up(c);
        else if (c->in_len >= PROXY_STREAM_MAX)
            sd_event_source_set_io_events(c->io, 0); /* until the browser has read some */
        httpd_wake(c->request);
        return;
    }
    r = http_parse_response(c->in ? c->in : "", c->in_len, eof, &answer);
    if (r == -EAGAIN && c->in_len < ANSWER_MAX)
        return;
    r = r == -EAGAIN ? -EMSGSIZE : r;
    if (r < 0) {
        broken(c, r,
               r == -EMSGSIZE ? "the daemon's answer is too long for the page"
                              : "the daemon's answer is cut off or is not HTTP");
        return;
    }
    end_answer(c, answer.closes || eof);
    if (answer.status == 429)
        c->request->retry_s = 1;
    httpd_answer(c->request, (unsigned)answer.status,
                 c->metrics ? "text/plain; version=0.0.4" : "application/json", answer.body, false);
}

/* Returns how many bytes came, 0 at the end, or -errno. */
static ssize_t read_some(struct call *c)
{
    ssize_t n;

    if (c->in_size - c->in_len < READ_BYTES) {
        size_t size = c->in_size ? 2 * c->in_size : 2 * READ_BYTES;
        char *bigger = realloc(c->in, size);

        if (!bigger)
            return -ENOMEM;
        c->in = bigger;
        c->in_size = size;
    }
    n = recv(c->fd, c->in + c->in_len, READ_BYTES, 0);
    if (n < 0)
        return -errno;
    c->in_len += (size_t)n;
    return n;
}

static int send_some(struct call *c)
{
    ssize_t n = send(c->fd, c->out + c->sent, c->out_len - c->sent, MSG_NOSIGNAL);

    if (n < 0 && errno != EAGAIN && errno != EINTR && errno != EPIPE)
        return -errno;
    /* EPIPE: a server may refuse early and close the connection; its answer counts. */
    c->sent = n < 0 && errno == EPIPE ? c->out_len : c->sent + (n > 0 ? (size_t)n : 0);
    if (c->sent == c->out_len)
        return sd_event_source_set_io_events(c->io, EPOLLIN);
    return 0;
}

static int on_io(sd_event_source *source, int fd, uint32_t events, void *arg)
{
    struct call *c = arg;
    ssize_t n = 0;

    if (events & EPOLLOUT && c->sent < c->out_len)
        n = send_some(c);
    if (n >= 0 && events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        n = read_some(c);
        if (n >= 0)
            take_answer(c, n == 0);
    }
    if (n < 0 && n != -EAGAIN && n != -EINTR)
        broken(c, (int)n, "the connection to the daemon broke");
    return 0;
}

static int on_late(sd_event_source *source, uint64_t usec, void *arg)
{
    struct call *c = arg;

    c->kept = false; /* waiting as long again would help nobody */
    broken(c, -ETIMEDOUT, "the daemon does not answer");
    return 0;
}

/* ---- the request ---- */

struct url {
    char text[URL_MAX];
    size_t len;
};

static int put(struct url *u, const char *text)
{
    size_t n = strlen(text);

    if (u->len + n >= sizeof(u->text))
        return -ENAMETOOLONG;
    memcpy(u->text + u->len, text, n + 1);
    u->len += n;
    return 0;
}

static int put_escaped(struct url *u, const char *text)
{
    int r = http_escape(text, u->text + u->len, sizeof(u->text) - u->len);

    if (r == 0)
        u->len += strlen(u->text + u->len);
    return r;
}

static int put_argument(void *arg, const char *key, const char *value)
{
    struct url *u = arg;
    int r = put(u, strchr(u->text, '?') ? "&" : "?");

    if (r == 0)
        r = put_escaped(u, key);
    if (r == 0)
        r = put(u, "=");
    return r < 0 ? r : put_escaped(u, value);
}

/* The path came decoded: each segment is encoded anew. */
static int make_url(const struct httpd_request *r, const char *asked, struct url *ret)
{
    _cleanup_free_ char *path = strdup(asked + 1);
    char *rest = path, *segment;
    int error = path ? 0 : -ENOMEM;

    while (error == 0 && (segment = strsep(&rest, "/"))) {
        error = put(ret, "/");
        if (error == 0)
            error = put_escaped(ret, segment);
    }
    return error < 0 ? error : httpd_arguments(r, put_argument, ret);
}

/* A header's value that holds a line's end would begin another header. */
static bool is_plain(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            return false;
    return true;
}

/* HTTP/1.0 keeps the server from sending a stream in chunks; 1.1 leaves the connection open. */
static int make_request(const struct httpd_request *r, const char *path, bool keep, char **ret,
                        size_t *ret_len)
{
    const char *last = httpd_header(r, "Last-Event-ID");
    struct url url = {0};
    int n = make_url(r, path, &url);

    if (n < 0)
        return n;
    if (last && !is_plain(last))
        return -EINVAL;
    n = asprintf(ret,
                 "%s %s HTTP/1.%d\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 "%s%s%sContent-Length: %zu\r\n\r\n%s",
                 r->method, url.text, keep, last ? "Last-Event-ID: " : "", last ? last : "",
                 last ? "\r\n" : "", r->body_len, r->body);
    if (n < 0) {
        *ret = NULL;
        return -ENOMEM;
    }
    *ret_len = (size_t)n;
    return 0;
}

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
    hang_up(c);
    free(c->out);
    free(c->in);
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
    r = sd_event_add_io(c->proxy->event, &c->io, c->fd, EPOLLIN | EPOLLOUT, on_io, c);
    if (r >= 0)
        r = sd_event_add_time_relative(c->proxy->event, &c->timer, CLOCK_MONOTONIC,
                                       timeout_ms(c) * UINT64_C(1000), 0, on_late, c);
    far_waiting += r >= 0 && c->far;
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

void proxy_pass(const struct proxy *p, struct httpd_request *r)
{
    _cleanup_free_ char *far_path = NULL;
    bool far = strncmp(r->path, PROXY_AT, strlen(PROXY_AT)) == 0;
    struct address there = {0};
    const char *path = r->path;
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
                       .events = strcmp(path, "/v1/events") == 0,
                       .metrics = strcmp(path, "/metrics") == 0};
    snprintf(c->method, sizeof(c->method), "%s", r->method);
    r->context = c;
    error = make_request(r, path, far && !c->events, &c->out, &c->out_len);
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
