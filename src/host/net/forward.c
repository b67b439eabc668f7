/* SPDX-License-Identifier: Apache-2.0 */
#include "host/net/forward.h"

#include "base/cleanup.h"
#include "host/net/door.h"
#include "host/net/http.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define URL_MAX    4096
#define READ_BYTES 16384
#define ANSWER_MAX (HTTP_HEAD_MAX + 2 * (size_t)HTTP_BODY_MAX)

struct forward {
    struct forward_options o; /* without path and headers */
    forward_told *told;
    void *arg;
    sd_event_source *io, *timer;
    int fd;    /* the owner's */
    char *out; /* the request, of which @sent bytes are on their way */
    size_t out_len, sent;
    char *in; /* the answer; of a stream, what is left of it */
    size_t in_len, in_size;
    bool events, stream, ended; /* may become a stream; is one; the daemon has closed it */
    bool metrics;
};

/* ---- the end ---- */

static void let_go(struct forward *f)
{
    f->timer = sd_event_source_disable_unref(f->timer);
    f->io = sd_event_source_disable_unref(f->io);
    f->fd = -1;
}

static void broken(struct forward *f, int code, const char *message)
{
    let_go(f);
    f->told(f->arg,
            &(struct forward_event){.what = FORWARD_BROKEN, .code = code, .message = message});
}

void forward_fail(struct forward *f, unsigned status, const char *message, const char *hint)
{
    let_go(f);
    f->ended = true;
    if (f->stream)
        httpd_wake(f->o.request);
    else
        door_refuse(f->o.request, status, message, hint);
}

bool forward_answered(const struct forward *f)
{
    return f->in_len > 0 || f->stream;
}

/* ---- the answer ---- */

static ssize_t on_room(void *arg, char *buf, size_t max)
{
    struct forward *f = arg;
    size_t n = f->in_len < max ? f->in_len : max;

    memcpy(buf, f->in, n);
    memmove(f->in, f->in + n, f->in_len - n);
    f->in_len -= n;
    if (f->io && f->in_len < FORWARD_STREAM_MAX)
        sd_event_source_set_io_events(f->io, EPOLLIN);
    return n ? (ssize_t)n : f->ended ? HTTPD_END : 0;
}

/* True once the answer is a stream of events, whose head is taken off. */
static bool becomes_stream(struct forward *f)
{
    const char *end = f->events && f->in_len ? memmem(f->in, f->in_len, "\r\n\r\n", 4) : NULL;
    size_t head = end ? (size_t)(end + 4 - f->in) : 0;

    if (!end || head < 13 || memcmp(f->in + 8, " 200 ", 5) != 0)
        return false;
    memmove(f->in, f->in + head, f->in_len - head);
    f->in_len -= head;
    f->stream = true;
    f->timer = sd_event_source_disable_unref(f->timer);
    f->told(f->arg, &(struct forward_event){.what = FORWARD_STREAMS});
    httpd_stream(f->o.request, "text/event-stream", on_room, f);
    return true;
}

static void take_stream(struct forward *f, bool eof)
{
    f->ended = eof;
    if (eof) {
        let_go(f);
        f->told(f->arg, &(struct forward_event){.what = FORWARD_OVER, .closes = true});
    } else if (f->in_len >= FORWARD_STREAM_MAX) {
        sd_event_source_set_io_events(f->io, 0); /* until the client has read some */
    }
    httpd_wake(f->o.request);
}

static void take_answer(struct forward *f, bool eof)
{
    struct http_response answer;
    int r;

    if (f->stream || becomes_stream(f)) {
        take_stream(f, eof);
        return;
    }
    r = http_parse_response(f->in ? f->in : "", f->in_len, eof, &answer);
    if (r == -EAGAIN && f->in_len < ANSWER_MAX)
        return;
    r = r == -EAGAIN ? -EMSGSIZE : r;
    if (r < 0) {
        broken(f, r,
               r == -EMSGSIZE ? "the daemon's answer is too long to be passed on"
                              : "the daemon's answer is cut off or is not HTTP");
        return;
    }
    let_go(f);
    f->told(f->arg, &(struct forward_event){.what = FORWARD_OVER,
                                            .status = (unsigned)answer.status,
                                            .closes = answer.closes || eof});
    if (answer.status == 429)
        f->o.request->retry_s = 1;
    httpd_answer(f->o.request, (unsigned)answer.status,
                 f->metrics ? "text/plain; version=0.0.4" : "application/json", answer.body, false);
}

/* Returns how many bytes came, 0 at the end, or -errno. */
static ssize_t read_some(struct forward *f)
{
    ssize_t n;

    if (f->in_size - f->in_len < READ_BYTES) {
        size_t size = f->in_size ? 2 * f->in_size : 2 * READ_BYTES;
        char *bigger = realloc(f->in, size);

        if (!bigger)
            return -ENOMEM;
        f->in = bigger;
        f->in_size = size;
    }
    n = recv(f->fd, f->in + f->in_len, READ_BYTES, 0);
    if (n < 0)
        return -errno;
    f->in_len += (size_t)n;
    return n;
}

static int send_some(struct forward *f)
{
    ssize_t n = send(f->fd, f->out + f->sent, f->out_len - f->sent, MSG_NOSIGNAL);

    if (n < 0 && errno != EAGAIN && errno != EINTR && errno != EPIPE)
        return -errno;
    /* EPIPE: a server may refuse early and close the connection; its answer counts. */
    f->sent = n < 0 && errno == EPIPE ? f->out_len : f->sent + (n > 0 ? (size_t)n : 0);
    if (f->sent == f->out_len)
        return sd_event_source_set_io_events(f->io, EPOLLIN);
    return 0;
}

static int on_io(sd_event_source *source, int fd, uint32_t events, void *arg)
{
    struct forward *f = arg;
    ssize_t n = 0;

    if (events & EPOLLOUT && f->sent < f->out_len)
        n = send_some(f);
    if (n >= 0 && events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        n = read_some(f);
        if (n >= 0)
            take_answer(f, n == 0);
    }
    if (n < 0 && n != -EAGAIN && n != -EINTR)
        broken(f, (int)n, "the connection to the daemon broke");
    return 0;
}

static int on_late(sd_event_source *source, uint64_t usec, void *arg)
{
    broken(arg, -ETIMEDOUT, "the daemon does not answer");
    return 0;
}

int forward_begin(struct forward *f, int fd)
{
    int r = sd_event_add_io(f->o.event, &f->io, fd, EPOLLIN | EPOLLOUT, on_io, f);

    f->fd = fd;
    f->sent = 0;
    if (r >= 0)
        r = sd_event_add_time_relative(f->o.event, &f->timer, CLOCK_MONOTONIC,
                                       f->o.timeout_ms * UINT64_C(1000), 0, on_late, f);
    if (r < 0)
        let_go(f);
    return r < 0 ? r : 0;
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
static int make_request(struct forward *f, const char *path, const char *headers)
{
    const struct httpd_request *r = f->o.request;
    const char *last = httpd_header(r, "Last-Event-ID");
    _cleanup_free_ char *head = NULL;
    struct url url = {0};
    int n = make_url(r, path, &url);

    if (n < 0)
        return n;
    if (last && !is_plain(last))
        return -EINVAL;
    n = asprintf(&head,
                 "%s %s HTTP/1.%d\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 "%s%s%s%sContent-Length: %zu\r\n\r\n",
                 r->method, url.text, f->o.keeps, headers, last ? "Last-Event-ID: " : "",
                 last ? last : "", last ? "\r\n" : "", r->body_len);
    if (n < 0)
        head = NULL;
    f->out = head ? realloc(head, (size_t)n + r->body_len + 1) : NULL;
    if (!f->out)
        return -ENOMEM;
    head = NULL;
    memcpy(f->out + n, r->body, r->body_len);
    f->out_len = (size_t)n + r->body_len;
    return 0;
}

int forward_new(const struct forward_options *options, forward_told *told, void *arg,
                struct forward **ret)
{
    struct forward *f = calloc(1, sizeof(*f));
    int r;

    if (!f)
        return -ENOMEM;
    *f = (struct forward){.o = *options,
                          .told = told,
                          .arg = arg,
                          .fd = -1,
                          .events = strcmp(options->path, "/v1/events") == 0,
                          .metrics = strcmp(options->path, "/metrics") == 0};
    f->o.path = f->o.headers = NULL;
    r = make_request(f, options->path, options->headers);
    if (r < 0) {
        forward_free(f);
        return r;
    }
    *ret = f;
    return 0;
}

struct forward *forward_free(struct forward *f)
{
    if (!f)
        return NULL;
    let_go(f);
    free(f->out);
    free(f->in);
    free(f);
    return NULL;
}
