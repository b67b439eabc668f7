/* SPDX-License-Identifier: Apache-2.0 */
#include "host/net/http.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/httphead.h"
#include "base/rundir.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define ERROR_WORD "daemon-silent"

/* Room for head, body, and the overhead of small chunks. */
#define RECEIVE_MAX (HTTP_HEAD_MAX + 2 * (size_t)HTTP_BODY_MAX)

/* ---- the answer ---- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

struct beginning {
    int status;
    bool closes; /* the server closes the connection behind the answer */
};

/* "HTTP/1.1 200 OK" */
static int parse_status_line(void *arg, struct http_text text)
{
    struct beginning *b = arg;
    const char *line = text.start;
    size_t len = text.len;
    int status;

    if (len < 12 || memcmp(line, "HTTP/1.", 7) != 0 || !is_digit(line[7]) || line[8] != ' ' ||
        !is_digit(line[9]) || !is_digit(line[10]) || !is_digit(line[11]) ||
        (len > 12 && line[12] != ' '))
        return -EBADMSG;
    status = (line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0');
    *b = (struct beginning){.status = status, .closes = line[7] == '0'};
    return status >= 100 && status <= 599 ? 0 : -EBADMSG;
}

static void take_header(void *arg, struct http_text name, struct http_text value)
{
    struct beginning *b = arg;

    if (http_text_is(name, "Connection"))
        b->closes |= http_text_is(value, "close");
}

static int parse_head(const char *buf, size_t len, struct beginning *ret_begin,
                      struct http_head *ret)
{
    static const struct http_reader answers = {.body_max = HTTP_BODY_MAX,
                                               .chunked = true,
                                               .first = parse_status_line,
                                               .header = take_header};
    size_t limit = len < HTTP_HEAD_MAX ? len : HTTP_HEAD_MAX;
    int r = http_head_parse(buf, limit, &answers, ret_begin, ret);

    return r == -EAGAIN && len >= HTTP_HEAD_MAX ? -EMSGSIZE : r;
}

/* "1a;extension" */
static int parse_chunk_size(const char *line, size_t len, size_t *ret)
{
    size_t value = 0, i = 0;

    for (; i < len && line[i] != ';' && line[i] != ' '; i++) {
        const char *hex = "0123456789abcdef";
        const char *digit = line[i] ? strchr(hex, line[i] | 0x20) : NULL;

        if (!digit)
            return -EBADMSG;
        value = value * 16 + (size_t)(digit - hex);
        if (value > HTTP_BODY_MAX)
            return -EMSGSIZE;
    }
    if (i == 0)
        return -EBADMSG;
    *ret = value;
    return 0;
}

/* Skips trailer fields up to the blank line, which must end the answer. */
static int skip_trailer(const char *buf, size_t len, size_t at)
{
    for (;;) {
        size_t n;
        int r = http_find_line(buf, len, at, &n);

        if (r < 0)
            return r;
        at += n + 2;
        if (n == 0)
            return at == len ? 0 : -EBADMSG;
    }
}

/* Joins the chunks into @body, which has room for @len bytes. */
static int parse_chunks(const char *buf, size_t len, char *body, size_t *ret_len)
{
    size_t at = 0, total = 0;

    for (;;) {
        size_t n, size = 0;
        int r = http_find_line(buf, len, at, &n);

        if (r == 0)
            r = parse_chunk_size(buf + at, n, &size);
        if (r < 0)
            return r;
        at += n + 2;
        if (size == 0)
            break;
        if (total + size > HTTP_BODY_MAX)
            return -EMSGSIZE;
        if (len - at < size + 2)
            return -EAGAIN;
        if (buf[at + size] != '\r' || buf[at + size + 1] != '\n')
            return -EBADMSG;
        memcpy(body + total, buf + at, size);
        total += size;
        at += size + 2;
    }
    *ret_len = total;
    return skip_trailer(buf, len, at);
}

static int take_body(const struct http_head *head, int status, const char *buf, size_t len,
                     bool eof, char *body, size_t *ret_len)
{
    size_t want = head->length;

    if (head->chunked)
        return parse_chunks(buf, len, body, ret_len);
    if (status < 200 || status == 204 || status == 304)
        want = 0; /* answers with these statuses never have a body */
    else if (!head->have_length) {
        if (len > HTTP_BODY_MAX)
            return -EMSGSIZE;
        if (!eof)
            return -EAGAIN;
        want = len; /* the body ends when the server closes the connection */
    }
    if (len < want)
        return -EAGAIN;
    if (len > want)
        return -EBADMSG;
    memcpy(body, buf, want);
    *ret_len = want;
    return 0;
}

int http_parse_response(const char *buf, size_t len, bool eof, struct http_response *ret)
{
    _cleanup_free_ char *body = NULL;
    struct http_head head;
    struct beginning begin;
    size_t body_len = 0;
    int r = parse_head(buf, len, &begin, &head);

    if (r == 0) {
        body = malloc(len - head.size + 1);
        if (!body)
            return -ENOMEM;
        r = take_body(&head, begin.status, buf + head.size, len - head.size, eof, body, &body_len);
    }
    if (r == -EAGAIN && eof)
        return -EBADMSG;
    if (r < 0)
        return r;
    body[body_len] = '\0';
    *ret = (struct http_response){.status = begin.status,
                                  .closes = begin.closes || eof,
                                  .body = TAKE_PTR(body),
                                  .body_len = body_len};
    return 0;
}

/* ---- the exchange ---- */

static int wait_for(int fd, short events, uint64_t deadline_ns)
{
    for (;;) {
        uint64_t now = clock_now_ns();
        struct pollfd p = {.fd = fd, .events = events};
        uint64_t left_ms = deadline_ns > now ? (deadline_ns - now + NS_PER_MS - 1) / NS_PER_MS : 0;
        int n = poll(&p, 1, left_ms > INT_MAX ? INT_MAX : (int)left_ms);

        if (n > 0)
            return 0;
        if (n == 0)
            return -ETIMEDOUT;
        if (errno != EINTR)
            return -errno;
    }
}

/*
 * Any user can make a directory of the right name in /tmp and listen in it. Root may name a user's
 * directory by $TIDE_DIR: then it means that user's daemon.
 */
static bool is_trusted(int fd, const char *path)
{
    struct ucred server;
    socklen_t size = sizeof(server);
    struct stat socket;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &server, &size) < 0)
        return false;
    if (server.uid == 0 || server.uid == geteuid())
        return true;
    return geteuid() == 0 && rundir_is_named() && lstat(path, &socket) == 0 &&
           socket.st_uid == server.uid;
}

static int connect_to(const char *path, uint64_t deadline_ns, int *ret_fd)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    _cleanup_fd_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -errno;
    if (strlen(path) >= sizeof(address.sun_path))
        return -ENAMETOOLONG;
    strcpy(address.sun_path, path);
    while (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        /* EAGAIN: the listener's queue is full; there is nothing to poll for. */
        if (errno != EAGAIN && errno != EINTR)
            return -errno;
        if (clock_now_ns() >= deadline_ns)
            return -ETIMEDOUT;
        poll(NULL, 0, 1);
    }
    if (!is_trusted(fd, path))
        return -EPERM;
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static int send_all(int fd, struct iovec *part, size_t n, uint64_t deadline_ns)
{
    while (n > 0) {
        struct msghdr message = {.msg_iov = part, .msg_iovlen = n};
        ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);

        if (sent < 0 && errno == EAGAIN) {
            int r = wait_for(fd, POLLOUT, deadline_ns);

            if (r < 0)
                return r;
            continue;
        }
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return -errno;
        for (; n > 0 && (size_t)sent >= part->iov_len; n--)
            sent -= (ssize_t)(part++)->iov_len;
        if (n > 0) {
            part->iov_base = (char *)part->iov_base + sent;
            part->iov_len -= (size_t)sent;
        }
    }
    return 0;
}

/* True for a stream, which never ends: the caller reads on behind its head. */
static bool begins_stream(const char *buf, size_t len, struct http_stream *stream)
{
    struct beginning begin;
    struct http_head head;

    if (!stream || parse_head(buf, len, &begin, &head) < 0 || begin.status != 200 ||
        head.have_length)
        return false;
    stream->from = head.size;
    return true;
}

/* With @stream an answer of status 200 is a stream and takes ownership of the buffer. */
static int receive(int fd, uint64_t deadline_ns, struct http_response *ret,
                   struct http_stream *stream)
{
    _cleanup_free_ char *buf = NULL;
    size_t len = 0, size = 0;

    for (;;) {
        ssize_t n;
        int r;

        if (len == size) {
            char *bigger = realloc(buf, size = size ? size * 2 : 8192);

            if (!bigger)
                return -ENOMEM;
            buf = bigger;
        }
        n = recv(fd, buf + len, size - len, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            r = wait_for(fd, POLLIN, deadline_ns);
            if (r < 0)
                return r;
            continue;
        }
        if (n < 0)
            return errno != ECONNRESET ? -errno : len ? -EBADMSG : -ENODATA;
        len += (size_t)n;
        if (begins_stream(buf, len, stream)) {
            *ret = (struct http_response){.status = 200};
            stream->buf = TAKE_PTR(buf);
            stream->len = len;
            stream->size = size;
            return 0;
        }
        if (len == 0)
            return -ENODATA;
        r = http_parse_response(buf, len, n == 0, ret);
        if (r != -EAGAIN)
            return r;
        if (len > RECEIVE_MAX)
            return -EMSGSIZE;
        if (clock_now_ns() >= deadline_ns) /* a server that sends single bytes must not hold us */
            return -ETIMEDOUT;
    }
}

static bool is_token(const char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text <= ' ' || *text == 0x7f)
            return false;
    }
    return true;
}

static int exchange(int fd, const char *head, const char *body, uint64_t deadline_ns,
                    struct http_response *ret, struct http_stream *stream)
{
    struct iovec part[] = {{(char *)head, strlen(head)}, {(char *)body, body ? strlen(body) : 0}};
    int r = send_all(fd, part, body ? 2 : 1, deadline_ns);

    /* A server may refuse early and close the connection unread; its answer counts. */
    return r < 0 && r != -EPIPE ? r : receive(fd, deadline_ns, ret, stream);
}

static bool is_good_request(const char *method, const char *path)
{
    return *method && is_token(method) && *path == '/' && is_token(path);
}

/* @headers has lines with their ends. */
static int send_request(int fd, const char *method, const char *path, const char *headers,
                        const char *body, uint64_t deadline_ns, struct http_response *ret)
{
    _cleanup_free_ char *head = NULL;

    if (asprintf(&head,
                 "%s %s HTTP/1.1\r\nHost: localhost\r\n%s"
                 "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
                 method, path, headers, body ? strlen(body) : 0) < 0) {
        head = NULL;
        return -ENOMEM;
    }
    return exchange(fd, head, body, deadline_ns, ret, NULL);
}

/* For callers to whom no answer is as bad as half of one. */
static int as_cut_off(int r)
{
    return r == -ENODATA ? -EBADMSG : r;
}

static int request(const char *socket_path, const char *method, const char *path, const char *body,
                   uint64_t deadline_ns, struct http_response *ret)
{
    _cleanup_fd_ int fd = -1;
    int r;

    if (!is_good_request(method, path))
        return -EINVAL;
    r = connect_to(socket_path, deadline_ns, &fd);
    if (r == 0)
        r = send_request(fd, method, path, "Connection: close\r\n", body, deadline_ns, ret);
    return as_cut_off(r);
}

/* HTTP/1.0 keeps the server from sending chunks. */
static int begin_stream(const char *path, const char *last, const char *headers,
                        uint64_t deadline_ns, struct http_response *ret, struct http_stream *stream)
{
    _cleanup_free_ char *head = NULL;
    int r;

    if (asprintf(&head, "GET %s HTTP/1.0\r\nHost: localhost\r\n%s%s%s%s\r\n", path, headers,
                 *last ? "Last-Event-ID: " : "", last, *last ? "\r\n" : "") < 0) {
        head = NULL;
        return -ENOMEM;
    }
    r = exchange(stream->fd, head, NULL, deadline_ns, ret, stream);
    if (r == 0 && ret->status == 200 && !stream->buf) { /* an answer that ends */
        free(ret->body);
        r = -EBADMSG;
    }
    return r;
}

static int open_stream(const char *socket_path, const char *path, const char *last,
                       uint64_t deadline_ns, struct http_response *ret, struct http_stream *stream)
{
    int r;

    if (!is_good_request("GET", path) || !is_token(last))
        return -EINVAL;
    r = connect_to(socket_path, deadline_ns, &stream->fd);
    return r < 0 ? r : as_cut_off(begin_stream(path, last, "", deadline_ns, ret, stream));
}

static int describe(struct error *err, int r, const char *socket_path, unsigned timeout_ms)
{
    switch (r) {
    case -ENOENT:
        return error_set(err, r, "no daemon: %s does not exist", socket_path);
    case -ECONNREFUSED:
        return error_set(err, r, "no daemon listens on %s (it ended without cleaning up)",
                         socket_path);
    case -EACCES:
        return error_set(err, r, "not allowed to connect to %s", socket_path);
    case -EPERM:
        return error_set(err, r, "%s is served by another user, who is neither you nor root",
                         socket_path);
    case -ETIMEDOUT:
        return error_set(err, r, "the daemon at %s did not answer within %u ms", socket_path,
                         timeout_ms);
    case -EBADMSG:
        return error_set(err, r, "the answer from %s is cut off or is not HTTP", socket_path);
    case -EMSGSIZE:
        return error_set(err, r, "the answer from %s is larger than %u bytes", socket_path,
                         HTTP_BODY_MAX);
    case -EINVAL:
        return error_set(err, r, "the request's method or path is malformed");
    default:
        return error_set(err, r, "%s: %s", socket_path, strerror(-r));
    }
}

int http_request(const char *socket_path, const char *method, const char *path, const char *body,
                 unsigned timeout_ms, int *ret_status, char **ret_body, struct error *err)
{
    uint64_t deadline_ns = clock_now_ns() + timeout_ms * NS_PER_MS;
    struct http_response response;
    int r = request(socket_path, method, path, body, deadline_ns, &response);

    if (r < 0)
        return describe(err, r, socket_path, timeout_ms);
    *ret_status = response.status;
    *ret_body = response.body;
    return 0;
}

int http_connect(const char *socket_path, unsigned timeout_ms, int *ret_fd, struct error *err)
{
    int r = connect_to(socket_path, clock_now_ns() + timeout_ms * NS_PER_MS, ret_fd);

    return r < 0 ? describe(err, r, socket_path, timeout_ms) : 0;
}

int http_stream_open(const char *socket_path, const char *path, const char *last,
                     unsigned timeout_ms, struct http_stream *ret, int *ret_status, char **ret_body,
                     struct error *err)
{
    uint64_t deadline_ns = clock_now_ns() + timeout_ms * NS_PER_MS;
    struct http_stream stream = {.fd = -1};
    struct http_response response;
    int r = open_stream(socket_path, path, last, deadline_ns, &response, &stream);

    if (r < 0 || !stream.buf)
        http_stream_done(&stream);
    if (r < 0)
        return describe(err, r, socket_path, timeout_ms);
    *ret = stream;
    *ret_status = response.status;
    *ret_body = response.body;
    return 0;
}

int http_exchange(int fd, const char *method, const char *path, const char *headers,
                  const char *body, unsigned timeout_ms, struct http_response *ret)
{
    if (!is_good_request(method, path))
        return -EINVAL;
    return send_request(fd, method, path, headers, body, clock_now_ns() + timeout_ms * NS_PER_MS,
                        ret);
}

int http_stream_over(int fd, const char *path, const char *last, const char *headers,
                     unsigned timeout_ms, struct http_stream *ret, int *ret_status, char **ret_body)
{
    struct http_stream stream = {.fd = fd};
    struct http_response response;
    int r = is_good_request("GET", path) && is_token(last)
                ? begin_stream(path, last, headers, clock_now_ns() + timeout_ms * NS_PER_MS,
                               &response, &stream)
                : -EINVAL;

    if (r < 0 || !stream.buf)
        http_stream_done(&stream);
    if (r < 0)
        return r;
    *ret = stream;
    *ret_status = response.status;
    *ret_body = response.body;
    return 0;
}

void http_stream_done(struct http_stream *s)
{
    s->fd = close_fd(s->fd);
    free(s->buf);
    s->buf = NULL;
}

/* Makes room and reads the waiting bytes. Returns their number, or -errno. */
static ssize_t read_more(struct http_stream *s)
{
    ssize_t n;

    memmove(s->buf, s->buf + s->from, s->len - s->from);
    s->len -= s->from;
    s->from = 0;
    if (s->len == s->size) {
        char *bigger = s->size < HTTP_LINE_MAX ? realloc(s->buf, s->size * 2) : NULL;

        if (!bigger)
            return s->size < HTTP_LINE_MAX ? -ENOMEM : -EMSGSIZE;
        s->buf = bigger;
        s->size *= 2;
    }
    do
        n = recv(s->fd, s->buf + s->len, s->size - s->len, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    s->len += (size_t)n;
    return n ? n : -ENODATA;
}

int http_stream_line(struct http_stream *s, const char **ret)
{
    for (;;) {
        char *line = s->buf + s->from, *lf = memchr(line, '\n', s->len - s->from);
        ssize_t n;

        if (lf) {
            s->from = (size_t)(lf + 1 - s->buf);
            lf[lf > line && lf[-1] == '\r' ? -1 : 0] = '\0';
            *ret = line;
            return 0;
        }
        n = read_more(s);
        if (n < 0)
            return (int)n;
    }
}

int http_escape(const char *text, char *buf, size_t size)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    static const char hex[] = "0123456789ABCDEF";
    size_t n = 0;

    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;

        if (n + 4 > size)
            return -ENAMETOOLONG;
        if (strchr(plain, c)) {
            buf[n++] = (char)c;
        } else {
            buf[n++] = '%';
            buf[n++] = hex[c >> 4];
            buf[n++] = hex[c & 15];
        }
    }
    if (n >= size)
        return -ENAMETOOLONG;
    buf[n] = '\0';
    return 0;
}
