/* SPDX-License-Identifier: Apache-2.0 */
#include "tfnode/control.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>

#define ERROR_WORD "replica-not-started"

#define OUT_MAX         1024              /* bytes; the largest head with the largest body */
#define DISCARD_MAX     65536             /* bytes that a client may send after its request */
#define ACCEPT_PAUSE_NS (100 * NS_PER_MS) /* wait before accept() while no descriptor is free */

enum conn_phase {
    CONN_FREE,
    CONN_REQUEST, /* reads the request */
    CONN_WAIT,    /* control_wait() */
    CONN_ANSWER,  /* writes it, then reads what is left: closing before would reset the client */
    CONN_WATCH,
    CONN_PHASE_MAX
};

struct conn {
    struct control *control;
    int fd;
    enum conn_phase phase;
    uint64_t deadline_ns; /* closes the connection; a watcher's only if `out` is not empty */
    uint64_t opened_ns;
    uint64_t ticket;
    uint64_t repeat_ns; /* when a watcher gets the line again */
    size_t in_len;
    size_t out_len;
    size_t out_sent;
    bool stale; /* the watcher has not got the newest line */
    char in[REQUEST_MAX];
    char out[OUT_MAX];
};

struct control {
    control_request_fn on_request;
    void *arg;
    uint64_t accept_ns; /* no accept() before this time */
    int listener;
    char line[CONTROL_LINE_MAX];
    struct conn conn[CONTROL_CONNECTIONS_MAX];
};

static void conn_close(struct conn *conn)
{
    conn->fd = close_fd(conn->fd);
    conn->phase = CONN_FREE;
}

/* ---- writing ---- */

__attribute__((format(printf, 2, 3))) static void put(struct conn *conn, const char *fmt, ...)
{
    size_t room = sizeof(conn->out) - conn->out_len;
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(conn->out + conn->out_len, room, fmt, args);
    va_end(args);
    if (n > 0)
        conn->out_len += (size_t)n < room ? (size_t)n : room - 1;
}

/* Sends as much of `out` as the socket takes. Returns false when the client is gone. */
static bool flush_out(struct conn *conn)
{
    while (conn->out_sent < conn->out_len) {
        ssize_t n = send(conn->fd, conn->out + conn->out_sent, conn->out_len - conn->out_sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN;
        conn->out_sent += (size_t)n;
    }
    conn->out_len = conn->out_sent = 0;
    return true;
}

static const char *reason_of(int status)
{
    switch (status) {
    case 200:
        return "OK";
    case 202:
        return "Accepted";
    case 403:
        return "Forbidden";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 413:
        return "Content Too Large";
    case 415:
        return "Unsupported Media Type";
    case 501:
        return "Not Implemented";
    case 503:
        return "Service Unavailable";
    case 505:
        return "HTTP Version Not Supported";
    default:
        return "Bad Request";
    }
}

static void write_answer(struct conn *conn)
{
    if (!flush_out(conn))
        conn_close(conn);
    else if (conn->out_len == 0)
        shutdown(conn->fd, SHUT_WR);
}

void control_answer(struct conn *conn, int status, const char *body)
{
    put(conn,
        "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
        "Connection: close\r\n\r\n%s",
        status, reason_of(status), strlen(body), body);
    conn->phase = CONN_ANSWER;
    conn->deadline_ns = clock_now_ns() + CONTROL_ANSWER_NS;
    conn->in_len = 0;
    write_answer(conn);
}

void control_wait(struct conn *conn, uint64_t ticket, uint64_t deadline_ns)
{
    conn->phase = CONN_WAIT;
    conn->ticket = ticket;
    conn->deadline_ns = deadline_ns;
}

/* Sends the newest line once the client has read the last; it does not need those between. */
static void send_line(struct conn *conn, uint64_t now_ns)
{
    bool alive = flush_out(conn);

    if (alive && conn->stale && conn->out_len == 0) {
        put(conn, "%zx\r\n%s\r\n", strlen(conn->control->line), conn->control->line);
        conn->stale = false;
        conn->deadline_ns = now_ns + CONTROL_STALL_NS;
        conn->repeat_ns = now_ns + CONTROL_REPEAT_NS;
        alive = flush_out(conn);
    }
    if (!alive)
        conn_close(conn);
}

bool control_watch(struct conn *conn)
{
    unsigned millis = CONTROL_STALL_NS / NS_PER_MS;

    if (control_watchers(conn->control) >= CONTROL_WATCHERS_MAX)
        return false;
    /* A chief whose machine lost power closes nothing: only unacknowledged lines show it. */
    setsockopt(conn->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &millis, sizeof(millis));
    put(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nCache-Control: no-store\r\n"
              "Transfer-Encoding: chunked\r\n\r\n");
    conn->phase = CONN_WATCH;
    conn->stale = true;
    send_line(conn, clock_now_ns());
    return true;
}

void control_publish(struct control *c, const char *line)
{
    uint64_t now_ns = clock_now_ns();

    snprintf(c->line, sizeof(c->line), "%s", line);
    for (size_t i = 0; i < ARRAY_LEN(c->conn); i++) {
        if (c->conn[i].phase == CONN_WATCH) {
            c->conn[i].stale = true;
            send_line(&c->conn[i], now_ns);
        }
    }
}

/* ---- reading ---- */

static void refuse(struct conn *conn, int r)
{
    if (r == -EMSGSIZE)
        control_answer(conn, 413, "{\"error\":\"the request is too large\"}\n");
    else if (r == -EPERM)
        control_answer(conn, 403,
                       "{\"error\":\"requests of web pages are refused: send no Origin, and as "
                       "Host an address or localhost\"}\n");
    else if (r == -EMEDIUMTYPE)
        control_answer(conn, 415, "{\"error\":\"send Content-Type: application/json\"}\n");
    else if (r == -ENOTSUP)
        control_answer(conn, 501, "{\"error\":\"send a Content-Length, no transfer coding\"}\n");
    else
        control_answer(conn, 400, "{\"error\":\"the request is no HTTP/1.1\"}\n");
}

static void read_request(struct conn *conn)
{
    ssize_t n =
        recv(conn->fd, conn->in + conn->in_len, sizeof(conn->in) - conn->in_len, MSG_DONTWAIT);
    struct request request;
    int r;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        conn_close(conn);
        return;
    }
    conn->in_len += (size_t)n;
    r = request_parse(conn->in, conn->in_len, &request);
    if (r == 0)
        conn->control->on_request(conn->control->arg, conn, &request);
    else if (r != -EAGAIN)
        refuse(conn, r);
}

/* Discards what a client sends after its request, up to DISCARD_MAX, until the client ends. */
static void read_rest(struct conn *conn)
{
    char buf[2048];
    ssize_t n = recv(conn->fd, buf, sizeof(buf), MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    conn->in_len += n > 0 ? (size_t)n : 0;
    if (n <= 0 || conn->in_len > DISCARD_MAX)
        conn_close(conn);
}

static void serve_conn(struct conn *conn, short events, uint64_t now_ns)
{
    if ((events & POLLOUT) && conn->phase == CONN_WATCH)
        send_line(conn, now_ns);
    else if ((events & POLLOUT) && conn->phase == CONN_ANSWER)
        write_answer(conn);
    if (!(events & (POLLIN | POLLHUP | POLLERR)))
        return;
    if (conn->phase == CONN_REQUEST)
        read_request(conn);
    else if (conn->phase != CONN_FREE)
        read_rest(conn);
}

/* ---- connections ---- */

/* Finds a free place, else that of the oldest client that neither watches nor waits. */
static struct conn *find_place(struct control *c)
{
    struct conn *oldest = NULL;

    for (size_t i = 0; i < ARRAY_LEN(c->conn); i++) {
        struct conn *conn = &c->conn[i];

        if (conn->phase == CONN_FREE)
            return conn;
        if ((conn->phase == CONN_REQUEST || conn->phase == CONN_ANSWER) &&
            (!oldest || conn->opened_ns < oldest->opened_ns))
            oldest = conn;
    }
    if (oldest)
        conn_close(oldest);
    return oldest;
}

static void accept_all(struct control *c, uint64_t now_ns)
{
    static const int one = 1;

    for (int i = 0; i < CONTROL_CONNECTIONS_MAX; i++) {
        int fd = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        struct conn *conn = fd >= 0 ? find_place(c) : NULL;

        if (fd < 0) {
            c->accept_ns = errno == EAGAIN ? 0 : now_ns + ACCEPT_PAUSE_NS;
            return;
        }
        if (!conn) {
            close(fd);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        *conn = (struct conn){.control = c,
                              .fd = fd,
                              .phase = CONN_REQUEST,
                              .opened_ns = now_ns,
                              .deadline_ns = now_ns + CONTROL_REQUEST_NS};
    }
}

static int listen_on(const struct sockaddr *address, socklen_t size)
{
    _cleanup_fd_ int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1, off = 0;

    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (address->sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, address, size) < 0 || listen(fd, CONTROL_CONNECTIONS_MAX) < 0)
        return -errno;
    return TAKE_FD(fd);
}

/* IPv6's any-address takes IPv4 clients, too; a machine without IPv6 needs IPv4's. */
static int listen_anywhere(uint32_t port)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = listen_on((struct sockaddr *)&six, sizeof(six));

    return fd >= 0 || fd == -EADDRINUSE ? fd : listen_on((struct sockaddr *)&four, sizeof(four));
}

int control_open(uint32_t port, control_request_fn on_request, void *arg, struct control **ret,
                 uint32_t *ret_port, struct error *err)
{
    struct sockaddr_in6 bound; /* the port is at the same place in sockaddr_in */
    socklen_t size = sizeof(bound);
    struct control *c;
    int fd = listen_anywhere(port);

    if (fd < 0)
        return error_set(err, fd, "the control port %u cannot be opened: %s", port, strerror(-fd));
    c = calloc(1, sizeof(*c));
    if (!c || getsockname(fd, (struct sockaddr *)&bound, &size) < 0) {
        free(c);
        close(fd);
        return error_set(err, -ENOMEM, "the control port %u: out of memory", port);
    }
    c->listener = fd;
    c->on_request = on_request;
    c->arg = arg;
    *ret = c;
    *ret_port = ntohs(bound.sin6_port);
    return 0;
}

struct conn *control_waiting(struct control *c, const struct conn *after)
{
    for (size_t i = after ? (size_t)(after - c->conn) + 1 : 0; i < ARRAY_LEN(c->conn); i++) {
        if (c->conn[i].phase == CONN_WAIT)
            return &c->conn[i];
    }
    return NULL;
}

uint64_t conn_ticket(const struct conn *conn)
{
    return conn->ticket;
}

uint64_t conn_deadline(const struct conn *conn)
{
    return conn->deadline_ns;
}

unsigned control_watchers(const struct control *c)
{
    unsigned n = 0;

    for (size_t i = 0; i < ARRAY_LEN(c->conn); i++)
        n += c->conn[i].phase == CONN_WATCH;
    return n;
}

size_t control_poll(struct control *c, struct pollfd *fds)
{
    size_t n = 0;

    fds[n++] = (struct pollfd){.fd = c->accept_ns > 0 ? -1 : c->listener, .events = POLLIN};
    for (size_t i = 0; i < ARRAY_LEN(c->conn); i++) {
        const struct conn *conn = &c->conn[i];

        if (conn->phase != CONN_FREE)
            fds[n++] = (struct pollfd){
                .fd = conn->fd, .events = (short)(POLLIN | (conn->out_len > 0 ? POLLOUT : 0))};
    }
    return n;
}

/* Closes a late client, repeats a watcher's line. Returns when the connection is due again. */
static uint64_t tick_conn(struct conn *conn, uint64_t now_ns)
{
    if (conn->phase == CONN_WATCH) {
        if (conn->out_len == 0 && now_ns >= conn->repeat_ns) {
            conn->stale = true;
            send_line(conn, now_ns);
        } else if (conn->out_len > 0 && now_ns >= conn->deadline_ns) {
            conn_close(conn);
        }
        return conn->out_len > 0 ? conn->deadline_ns : conn->repeat_ns;
    }
    if (now_ns >= conn->deadline_ns && conn->phase != CONN_WAIT)
        conn_close(conn);
    return conn->deadline_ns;
}

uint64_t control_serve(struct control *c, const struct pollfd *fds, size_t n, uint64_t now_ns)
{
    uint64_t next_ns = UINT64_MAX;

    /* Looks them up by descriptor: an answer to one client may end another's connection. */
    for (size_t i = 1; i < n; i++) {
        for (size_t k = 0; k < ARRAY_LEN(c->conn) && fds[i].revents; k++) {
            if (c->conn[k].phase != CONN_FREE && c->conn[k].fd == fds[i].fd)
                serve_conn(&c->conn[k], fds[i].revents, now_ns);
        }
    }
    if (fds[0].revents || (c->accept_ns > 0 && now_ns >= c->accept_ns))
        accept_all(c, now_ns);
    if (c->accept_ns > 0)
        next_ns = c->accept_ns;
    for (size_t k = 0; k < ARRAY_LEN(c->conn); k++) {
        if (c->conn[k].phase != CONN_FREE) {
            uint64_t due_ns = tick_conn(&c->conn[k], now_ns);

            if (c->conn[k].phase != CONN_FREE && due_ns < next_ns)
                next_ns = due_ns;
        }
    }
    return next_ns;
}
