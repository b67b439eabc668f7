/* SPDX-License-Identifier: Apache-2.0 */
#include "host/net/httpd.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define ERROR_WORD "cannot-listen"

#define MEMORY_PER_PEER 16384 /* headers (tokens have 1-2 KiB) and buffers of one connection */
#define BODY_IGNORE_MAX (1u << 20)
#define CONNECTIONS_MAX 4096
#define STREAM_BLOCK    4096 /* bytes that libmicrohttpd asks a reader for at once */

#define SWEEP_MS 250 /* between two checks for late connections */

/* A flood of bytes or connections gets this many turns of the loop in this time. */
#define TURNS_US     10000
#define TURNS_IO     200
#define TURNS_ACCEPT 16
#define ACCEPT_BURST 16 /* connections accepted in one turn */

/* An open connection; the list is in order of arrival. */
struct connection {
    struct connection *next, *before;
    int fd; /* owned by libmicrohttpd */
    unsigned char address[16];
    void *client;
    uint64_t since_ns; /* when it was opened or last answered */
    bool trusted;      /* one of its requests was answered with a status below 400 */
    bool busy;         /* its request is complete, but not answered yet */
    bool shut;
};

struct httpd {
    struct httpd_options options; /* options with defaults filled in */
    sd_event *event;
    struct MHD_Daemon *http;
    sd_event_source *listen, *io, *timer, *resume, *sweep;
    struct connection *oldest, *newest;
    unsigned count, crowded; /* number of connections; three quarters of the maximum */
    uint64_t late_ns;        /* requests complete after this time wait for the next turn */
    struct exchange *first;  /* suspended exchanges, the longest first */
    size_t bodies;
    unsigned port;
    int spare_fd; /* closed for a moment when descriptors run out, to reject the caller */
    bool ending;
};

struct header {
    const char *name;
    char *value;
};

struct exchange {
    struct httpd_request request;
    struct httpd *server;
    struct exchange *next;
    struct MHD_Connection *connection;
    struct connection *peer;
    char *body, *text;
    const char *type;
    struct header header[HTTPD_HEADERS_MAX];
    unsigned headers;
    size_t len, limit; /* bytes of the body received, and kept at most */
    size_t charged;    /* bytes that count towards bodies_max */
    unsigned status;
    httpd_reader *reader;
    void *reader_arg;
    sd_event_source *gone; /* for a sleeping stream: libmicrohttpd does not see its client leave */
    bool suspended, answered, handed, close, left;
};

/* ---- answers ---- */

static void unlink_exchange(struct exchange *x)
{
    struct exchange **at = &x->server->first;

    while (*at && *at != x)
        at = &(*at)->next;
    if (*at)
        *at = x->next;
}

static void suspend(struct exchange *x)
{
    struct exchange **at = &x->server->first;

    while (*at)
        at = &(*at)->next;
    *at = x;
    x->next = NULL;
    x->suspended = true;
    MHD_suspend_connection(x->connection);
}

/* Resumes in the next MHD_run, which needs this call and must not be nested. */
static void resume(struct exchange *x)
{
    if (!x->suspended)
        return;
    x->suspended = false;
    unlink_exchange(x);
    MHD_resume_connection(x->connection);
    if (!x->server->ending)
        sd_event_source_set_enabled(x->server->resume, SD_EVENT_ONESHOT);
}

void httpd_answer(struct httpd_request *r, unsigned status, const char *type, char *text,
                  bool close)
{
    struct exchange *x = (struct exchange *)r;

    x->status = text ? status : MHD_HTTP_INTERNAL_SERVER_ERROR;
    x->type = type;
    free(x->text);
    x->text = text;
    x->close = close;
    x->answered = true;
    x->peer->busy = false;
    x->peer->since_ns = clock_now_ns();
    x->peer->trusted |= x->status < 400;
    resume(x);
}

size_t httpd_put(char *buf, size_t room, const char *text, size_t *sent, bool *ret_whole)
{
    size_t len = strlen(text + *sent), part = len < room ? len : room;

    memcpy(buf, text + *sent, part);
    *sent += part;
    *ret_whole = part == len;
    return part;
}

void httpd_stream(struct httpd_request *r, const char *type, httpd_reader *reader, void *arg)
{
    struct exchange *x = (struct exchange *)r;

    x->status = MHD_HTTP_OK;
    x->type = type;
    x->reader = reader;
    x->reader_arg = arg;
    x->answered = true;
    resume(x);
}

int httpd_add_header(struct httpd_request *r, const char *name, const char *value)
{
    struct exchange *x = (struct exchange *)r;
    char *copy = x->headers < HTTPD_HEADERS_MAX ? strdup(value) : NULL;

    if (!copy)
        return x->headers < HTTPD_HEADERS_MAX ? -ENOMEM : -ENOSPC;
    x->header[x->headers++] = (struct header){.name = name, .value = copy};
    return 0;
}

void httpd_wake(struct httpd_request *r)
{
    resume((struct exchange *)r);
}

/* libmicrohttpd asks for more only when all earlier bytes are on their way. */
static ssize_t on_room(void *arg, uint64_t pos, char *buf, size_t max)
{
    struct exchange *x = arg;
    ssize_t n = x->left || x->server->ending ? HTTPD_BROKEN : x->reader(x->reader_arg, buf, max);

    if (n == 0)
        suspend(x);
    return n >= 0           ? n
           : n == HTTPD_END ? MHD_CONTENT_READER_END_OF_STREAM
                            : MHD_CONTENT_READER_END_WITH_ERROR;
}

static int on_left(sd_event_source *source, int fd, uint32_t events, void *arg)
{
    struct exchange *x = arg;

    sd_event_source_set_enabled(source, SD_EVENT_OFF);
    x->left = true;
    resume(x);
    return 0;
}

static struct MHD_Response *make_response(struct exchange *x)
{
    char *text = x->text ? TAKE_PTR(x->text) : strdup("");
    struct MHD_Response *response;

    if (x->reader) {
        free(text);
        if (sd_event_add_io(x->server->event, &x->gone, x->peer->fd, EPOLLRDHUP, on_left, x) < 0)
            return NULL;
        return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, on_room, x, NULL);
    }
    response =
        text ? MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE) : NULL;
    if (!response)
        free(text);
    return response;
}

static enum MHD_Result send_answer(struct exchange *x)
{
    struct MHD_Response *response = make_response(x);
    char seconds[12];
    enum MHD_Result r;

    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, "Content-Type", x->type);
    if (x->reader)
        MHD_add_response_header(response, "Cache-Control", "no-store");
    if (x->close)
        MHD_add_response_header(response, "Connection", "close");
    if (x->request.retry_s) {
        snprintf(seconds, sizeof(seconds), "%u", x->request.retry_s);
        MHD_add_response_header(response, "Retry-After", seconds);
    }
    for (unsigned i = 0; i < x->headers; i++)
        if (MHD_add_response_header(response, x->header[i].name, x->header[i].value) == MHD_NO) {
            MHD_destroy_response(response); /* an answer without what protects it is none */
            return MHD_NO;
        }
    r = MHD_queue_response(x->connection, x->status, response);
    MHD_destroy_response(response);
    return r;
}

/* ---- connections ---- */

/* Ends a connection for both sides: libmicrohttpd closes it when it reads the end. */
static void shut(struct connection *peer)
{
    peer->shut = true;
    shutdown(peer->fd, SHUT_RDWR);
}

static void evict_oldest(struct httpd *s)
{
    for (struct connection *peer = s->oldest; peer; peer = peer->next)
        if (!peer->trusted && !peer->busy && !peer->shut) {
            shut(peer);
            return;
        }
}

static struct connection *find_connection(struct httpd *s, int fd)
{
    struct connection *peer = s->newest;

    while (peer && peer->fd != fd)
        peer = peer->before;
    return peer;
}

static void closed(struct httpd *s, struct connection *peer)
{
    *(peer->before ? &peer->before->next : &s->oldest) = peer->next;
    *(peer->next ? &peer->next->before : &s->newest) = peer->before;
    s->count--;
    if (s->options.leave)
        s->options.leave(s->options.arg, peer->client);
    free(peer);
}

static void on_connection(void *arg, struct MHD_Connection *connection, void **slot,
                          enum MHD_ConnectionNotificationCode code)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);

    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        *slot = info ? find_connection(arg, info->connect_fd) : NULL;
    else if (*slot)
        closed(arg, *slot);
}

static void read_address(const struct sockaddr_storage *from, unsigned char ret[16])
{
    if (from->ss_family == AF_INET)
        memcpy(ret + 12, &((const struct sockaddr_in *)from)->sin_addr, 4);
    else if (from->ss_family == AF_INET6)
        memcpy(ret, &((const struct sockaddr_in6 *)from)->sin6_addr, 16);
}

static void arm_sweep(struct httpd *s)
{
    sd_event_source_set_time_relative(s->sweep, SWEEP_MS * 1000);
    sd_event_source_set_enabled(s->sweep, SD_EVENT_ONESHOT);
}

static void take(struct httpd *s, int fd, const struct sockaddr_storage *from, socklen_t len)
{
    const struct httpd_options *o = &s->options;
    struct connection *peer = s->count < o->connections_max ? calloc(1, sizeof(*peer)) : NULL;

    if (!peer || (o->admit && !(peer->client = o->admit(o->arg, fd)))) {
        free(peer);
        close(fd);
        return;
    }
    if (s->count >= s->crowded)
        evict_oldest(s);
    peer->before = s->newest;
    peer->fd = fd;
    peer->since_ns = clock_now_ns();
    read_address(from, peer->address);
    *(s->newest ? &s->newest->next : &s->oldest) = peer;
    s->newest = peer;
    if (s->count++ == 0)
        arm_sweep(s);
    if (len < sizeof(struct sockaddr))
        len = sizeof(struct sockaddr);
    /* On failure it closes the socket, and may or may not have told on_connection(). */
    if (MHD_add_connection(s->http, fd, (const struct sockaddr *)from, len) == MHD_NO &&
        (peer = find_connection(s, fd)))
        closed(s, peer);
}

/* libmicrohttpd's timeout ends only silence: a byte now and then would keep a connection open. */
static int on_sweep(sd_event_source *source, uint64_t usec, void *arg)
{
    struct httpd *s = arg;
    uint64_t now = clock_now_ns();

    for (struct connection *peer = s->oldest; peer; peer = peer->next)
        if (!peer->busy && !peer->shut &&
            now - peer->since_ns >=
                (peer->trusted ? HTTPD_NEXT_MS : s->options.first_ms) * NS_PER_MS)
            shut(peer);
    if (s->count)
        arm_sweep(s);
    return 0;
}

/* ---- requests ---- */

static void drop_body(struct exchange *x)
{
    x->server->bodies -= x->charged;
    x->charged = 0;
    free(x->body);
    x->body = NULL;
}

/* True if @all bytes of the body may be kept; if so, counts them. */
static bool charge(struct exchange *x, size_t all)
{
    struct httpd *s = x->server;
    size_t more = all > HTTPD_BODY_SMALL ? all - x->charged : 0;

    if (all > x->limit || s->bodies + more > s->options.bodies_max)
        return false;
    s->bodies += more;
    x->charged += more;
    return true;
}

/* Dropped bytes must still be read, so that the client goes on to read the answer. */
static enum MHD_Result take_body(struct exchange *x, const char *data, size_t len)
{
    char *body;

    if (x->len + len > x->server->options.ignore_max)
        return MHD_NO;
    if (!x->request.cut && !charge(x, x->len + len)) {
        drop_body(x);
        x->request.cut = true;
    }
    if (!x->request.cut) {
        body = realloc(x->body, x->len + len + 1);
        if (!body)
            return MHD_NO;
        memcpy(body + x->len, data, len);
        body[x->len + len] = '\0';
        x->body = body;
    }
    x->len += len;
    return MHD_YES;
}

const char *httpd_argument(const struct httpd_request *r, const char *key)
{
    const struct exchange *x = (const struct exchange *)r;

    return MHD_lookup_connection_value(x->connection, MHD_GET_ARGUMENT_KIND, key);
}

const char *httpd_header(const struct httpd_request *r, const char *key)
{
    const struct exchange *x = (const struct exchange *)r;

    return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, key);
}

void *httpd_tls(const struct httpd_request *r)
{
    const struct exchange *x = (const struct exchange *)r;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);

    return info ? info->tls_session : NULL;
}

struct visit {
    int (*each)(void *arg, const char *key, const char *value);
    void *arg;
    int result;
};

static enum MHD_Result on_argument(void *arg, enum MHD_ValueKind kind, const char *key,
                                   const char *value)
{
    struct visit *v = arg;

    v->result = v->each(v->arg, key, value ? value : "");
    return v->result ? MHD_NO : MHD_YES;
}

int httpd_arguments(const struct httpd_request *r,
                    int (*each)(void *arg, const char *key, const char *value), void *arg)
{
    const struct exchange *x = (const struct exchange *)r;
    struct visit v = {.each = each, .arg = arg};

    MHD_get_connection_values(x->connection, MHD_GET_ARGUMENT_KIND, on_argument, &v);
    return v.result;
}

static enum MHD_Result begin(struct httpd *s, struct MHD_Connection *connection, const char *method,
                             const char *path, void **slot)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct connection *peer = info ? info->socket_context : NULL;
    struct exchange *x = peer ? calloc(1, sizeof(*x)) : NULL;

    if (!x)
        return MHD_NO;
    *x = (struct exchange){
        .request = {.method = method,
                    .path = path,
                    .received_ns = clock_now_ns(),
                    .address = peer->address,
                    .client = peer->client},
        .server = s,
        .peer = peer,
        .connection = connection,
    };
    x->limit =
        s->options.limit ? s->options.limit(s->options.arg, &x->request) : s->options.body_max;
    x->request.method = x->request.path = NULL;
    *slot = x;
    return MHD_YES;
}

static void hand_over(struct exchange *x, const char *method, const char *path)
{
    const struct httpd_options *o = &x->server->options;

    x->handed = true;
    x->request.method = method;
    x->request.path = path;
    x->request.body = x->body ? x->body : "";
    x->request.body_len = x->body ? x->len : 0;
    if (x->len <= o->body_max)
        o->handler(o->arg, &x->request);
    else if (o->too_long)
        o->too_long(o->arg, &x->request);
    else
        httpd_answer(&x->request, MHD_HTTP_CONTENT_TOO_LARGE, "text/plain",
                     strdup("the body is too long\n"), true);
    x->request.method = x->request.path = NULL;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *len, void **slot)
{
    struct httpd *s = arg;
    struct exchange *x = *slot;

    if (!x)
        return begin(s, connection, method, url, slot);
    if (*len > 0) {
        size_t n = *len;

        *len = 0;
        return take_body(x, data, n);
    }
    /* A request that has waited for this turn is handled in any case. */
    if (!x->handed && !x->answered && (x->peer->busy || clock_now_ns() < s->late_ns))
        hand_over(x, method, url);
    x->peer->busy = !x->answered || x->reader;
    if (x->answered)
        return send_answer(x);
    if (s->ending)
        return MHD_NO;
    suspend(x);
    if (!x->handed)
        sd_event_source_set_enabled(s->resume, SD_EVENT_ONESHOT);
    return MHD_YES;
}

static void on_completed(void *arg, struct MHD_Connection *connection, void **slot,
                         enum MHD_RequestTerminationCode code)
{
    struct exchange *x = *slot;

    if (!x)
        return;
    *slot = NULL;
    if (x->handed && x->server->options.over)
        x->server->options.over(x->server->options.arg, &x->request);
    x->peer->busy = false;
    sd_event_source_disable_unref(x->gone);
    unlink_exchange(x);
    drop_body(x);
    for (unsigned i = 0; i < x->headers; i++)
        free(x->header[i].value);
    free(x->text);
    free(x);
}

/* ---- the loop ---- */

/* Lets libmicrohttpd work, and learns when it needs the next call. */
static void run(struct httpd *s)
{
    MHD_UNSIGNED_LONG_LONG ms;

    s->late_ns = clock_now_ns() + HTTPD_TURN_NS;
    MHD_run(s->http);
    if (MHD_get_timeout(s->http, &ms) == MHD_NO) {
        sd_event_source_set_enabled(s->timer, SD_EVENT_OFF);
        return;
    }
    sd_event_source_set_time_relative(s->timer, ms * 1000);
    sd_event_source_set_enabled(s->timer, SD_EVENT_ONESHOT);
}

static int on_io(sd_event_source *source, int fd, uint32_t events, void *arg)
{
    run(arg);
    return 0;
}

static int on_timer(sd_event_source *source, uint64_t usec, void *arg)
{
    run(arg);
    return 0;
}

/*
 * One request that waits for a turn has its turn: then this is called once more. A source of time,
 * since one that defers would always come before new connections.
 */
static int on_resume(sd_event_source *source, uint64_t usec, void *arg)
{
    struct httpd *s = arg;
    struct exchange *x = s->first;

    while (x && x->handed)
        x = x->next;
    if (x)
        resume(x);
    run(s);
    return 0;
}

/* Without a free descriptor the caller would stay in the queue and keep the loop awake. */
static void hang_up_on_next(struct httpd *s, int listen_fd)
{
    s->spare_fd = close_fd(s->spare_fd);
    close_fd(accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
    s->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static int on_listen(sd_event_source *source, int listen_fd, uint32_t events, void *arg)
{
    struct httpd *s = arg;

    for (unsigned i = 0; i < ACCEPT_BURST; i++) {
        struct sockaddr_storage from = {0};
        socklen_t len = sizeof(from);
        int fd = accept4(listen_fd, (struct sockaddr *)&from, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0 && (errno == EMFILE || errno == ENFILE))
            hang_up_on_next(s, listen_fd);
        if (fd < 0)
            break;
        take(s, fd, &from, len);
    }
    run(s);
    return 0;
}

/* ---- the socket ---- */

/* Opens a listening socket for "HOST:PORT", or returns -errno. */
static int listen_on(const char *address, unsigned *ret_port, struct error *err)
{
    _cleanup_free_ char *host = strdup(address);
    char *port = host ? strrchr(host, ':') : NULL, *name = host;
    struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM}, *found = NULL;
    _cleanup_fd_ int fd = -1;
    struct sockaddr_storage bound;
    socklen_t len = sizeof(bound);
    char service[NI_MAXSERV];
    int r, on = 1;

    if (!port)
        return error_set(err, -EINVAL, "'%s' is no HOST:PORT", address);
    *port++ = '\0';
    if (name[0] == '[' && name[strlen(name) - 1] == ']') {
        name[strlen(name) - 1] = '\0';
        name++;
    }
    r = getaddrinfo(*name ? name : NULL, port, &hints, &found);
    if (r != 0)
        return error_set(err, -EINVAL, "'%s' is no HOST:PORT: %s", address, gai_strerror(r));
    fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    r = fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
                bind(fd, found->ai_addr, found->ai_addrlen) < 0 || listen(fd, SOMAXCONN) < 0 ||
                getsockname(fd, (struct sockaddr *)&bound, &len) < 0
            ? -errno
            : 0;
    freeaddrinfo(found);
    if (r < 0)
        return error_set(err, r, "cannot listen on %s: %s", address, strerror(-r));
    if (getnameinfo((struct sockaddr *)&bound, len, NULL, 0, service, sizeof(service),
                    NI_NUMERICSERV) == 0)
        *ret_port = (unsigned)strtoul(service, NULL, 10);
    return TAKE_FD(fd);
}

/* Returns the wanted number of connections, less the descriptors reserved for other uses. */
static unsigned connections_of(unsigned wanted)
{
    unsigned most = wanted ? wanted : CONNECTIONS_MAX;
    struct rlimit files;
    rlim_t left;

    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return most;
    if (files.rlim_cur < HTTPD_FILES && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max < HTTPD_FILES ? files.rlim_max : HTTPD_FILES;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    left = files.rlim_cur > 2 * HTTPD_FILES_KEPT ? files.rlim_cur - HTTPD_FILES_KEPT
                                                 : files.rlim_cur / 2;
    return most < left ? most : (unsigned)left;
}

/* Our own limit of connections comes first: only a mistake would meet libmicrohttpd's. */
static int start(struct httpd *s)
{
    const struct httpd_options *o = &s->options;
    unsigned most = o->connections_max;
    /* The last three entries are for TLS: without it the list ends before them. */
    struct MHD_OptionItem options[] = {
        {MHD_OPTION_CONNECTION_LIMIT, most, NULL},
        {MHD_OPTION_CONNECTION_TIMEOUT, o->idle_s, NULL},
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, MEMORY_PER_PEER, NULL},
        {MHD_OPTION_PER_IP_CONNECTION_LIMIT,
         o->per_address_max < most / 4 ? o->per_address_max : most / 4, NULL},
        {o->certificate ? MHD_OPTION_HTTPS_CERT_CALLBACK : MHD_OPTION_END, 0, o->certificate},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)"SECURE128:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"},
        {o->client_ca ? MHD_OPTION_HTTPS_MEM_TRUST : MHD_OPTION_END, 0, (void *)o->client_ca},
        {MHD_OPTION_END, 0, NULL},
    };

    s->http = MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME |
                                   (o->certificate ? MHD_USE_TLS : 0),
                               0, NULL, NULL, on_request, s, MHD_OPTION_NOTIFY_COMPLETED,
                               on_completed, NULL, MHD_OPTION_NOTIFY_CONNECTION, on_connection, s,
                               MHD_OPTION_ARRAY, options, MHD_OPTION_END);
    return s->http ? 0 : -EIO;
}

static int tune(int r, const struct httpd *s, sd_event_source *source, unsigned turns)
{
    if (r >= 0)
        r = sd_event_source_set_priority(source, s->options.priority);
    if (r >= 0 && turns)
        return sd_event_source_set_ratelimit(source, TURNS_US, turns);
    return r < 0 ? r : sd_event_source_set_enabled(source, SD_EVENT_OFF);
}

/* The socket opens last: the first client finds everything ready. */
static int watch_it(struct httpd *s)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(s->http, MHD_DAEMON_INFO_EPOLL_FD);
    int r = info ? 0 : -EIO;

    if (r >= 0)
        r = sd_event_add_io(s->event, &s->io, info->epoll_fd, EPOLLIN, on_io, s);
    r = tune(r, s, s->io, TURNS_IO);
    if (r >= 0)
        r = sd_event_add_time(s->event, &s->timer, CLOCK_MONOTONIC, 0, 1000, on_timer, s);
    r = tune(r, s, s->timer, 0);
    if (r >= 0)
        r = sd_event_add_time(s->event, &s->sweep, CLOCK_MONOTONIC, 0, 1000, on_sweep, s);
    r = tune(r, s, s->sweep, 0);
    if (r >= 0)
        r = sd_event_add_time(s->event, &s->resume, CLOCK_MONOTONIC, 0, 1, on_resume, s);
    r = tune(r, s, s->resume, 0);
    if (r >= 0)
        r = sd_event_add_io(s->event, &s->listen, s->options.fd, EPOLLIN, on_listen, s);
    return tune(r, s, s->listen, TURNS_ACCEPT);
}

int httpd_new(sd_event *event, const struct httpd_options *options, struct httpd **ret,
              struct error *err)
{
    struct httpd *s = calloc(1, sizeof(*s));
    int fd = options->fd, r;

    if (!s) {
        close_fd(options->address ? -1 : fd);
        return error_set(err, -ENOMEM, "out of memory");
    }
    s->event = event;
    s->options = *options;
    s->options.connections_max = connections_of(options->connections_max);
    s->crowded = s->options.connections_max - s->options.connections_max / 4;
    s->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (!options->first_ms)
        s->options.first_ms = HTTPD_FIRST_MS;
    if (!options->ignore_max)
        s->options.ignore_max = BODY_IGNORE_MAX;
    if (!options->bodies_max)
        s->options.bodies_max = SIZE_MAX;
    if (options->address)
        fd = listen_on(options->address, &s->port, err);
    s->options.fd = fd;
    r = fd < 0 ? fd : start(s);
    if (r >= 0)
        r = watch_it(s);
    if (r < 0) {
        httpd_free(s);
        return fd < 0 ? r
                      : error_set(err, r, "cannot serve on %s: %s",
                                  options->address ? options->address : "a socket", strerror(-r));
    }
    *ret = s;
    return 0;
}

/* A suspended connection must not outlive libmicrohttpd's daemon, so it is answered. */
struct httpd *httpd_free(struct httpd *s)
{
    if (!s)
        return NULL;
    s->ending = true;
    for (struct exchange *x = s->first; x; x = s->first) {
        if (x->reader)
            resume(x);
        else
            httpd_answer(&x->request, MHD_HTTP_SERVICE_UNAVAILABLE, "text/plain",
                         strdup("ending\n"), true);
    }
    if (s->http) {
        MHD_run(s->http);
        MHD_stop_daemon(s->http);
    }
    sd_event_source_disable_unref(s->listen);
    sd_event_source_disable_unref(s->io);
    sd_event_source_disable_unref(s->timer);
    sd_event_source_disable_unref(s->resume);
    sd_event_source_disable_unref(s->sweep);
    close_fd(s->options.fd);
    close_fd(s->spare_fd);
    free(s);
    return NULL;
}

unsigned httpd_port(const struct httpd *s)
{
    return s->port;
}
