/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/serve/https_server.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "kube/serve/identity.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define MEMORY_PER_PEER 16384 /* headers (tokens have 1-2 KiB) and buffers of one connection */
#define BODY_IGNORE_MAX (1u << 20)
#define CONNECTIONS_MAX 4096

#define SWEEP_MS 250 /* between two checks for late connections */

/* An open connection; the list is in order of arrival. */
struct connection {
    struct connection *next, *before;
    int fd;            /* libmicrohttpd's */
    uint64_t since_ns; /* when it was opened or last answered */
    bool trusted;      /* has had an answer with a status below 400 */
    bool busy;         /* its request is complete, but not answered yet */
    bool shut;
};

struct server {
    struct MHD_Daemon *http;
    sd_event_source *io, *timer, *resume, *sweep;
    struct connection *oldest, *newest;
    unsigned count, crowded; /* connections; three quarters of their maximum */
    uint64_t first_ns;
    server_handler *handler, *gone;
    server_limit *limit;
    void *arg;
    struct exchange *first; /* suspended */
    size_t body_max, bodies_max, bodies;
    unsigned port;
    bool ending;
};

struct exchange {
    struct server_request request;
    struct server *server;
    struct exchange *next;
    struct MHD_Connection *connection;
    struct connection *peer;
    char *body, *text;
    const char *type;
    size_t len, limit; /* bytes of the body received, and kept at most */
    size_t charged;    /* bytes that count for bodies_max */
    unsigned status;
    bool suspended, answered, handed, close;
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

void server_answer(struct server_request *r, unsigned status, const char *type, char *text,
                   bool close)
{
    struct exchange *x = (struct exchange *)r;

    x->status = text ? status : MHD_HTTP_INTERNAL_SERVER_ERROR;
    x->type = type;
    x->text = text;
    x->close = close;
    x->answered = true;
    x->peer->busy = false;
    x->peer->since_ns = clock_now_ns();
    x->peer->trusted |= x->status < 400;
    if (!x->suspended)
        return;
    x->suspended = false;
    unlink_exchange(x);
    MHD_resume_connection(x->connection);
    if (!x->server->ending)
        sd_event_source_set_enabled(x->server->resume, SD_EVENT_ONESHOT);
}

static enum MHD_Result send_answer(struct exchange *x)
{
    const char *text = x->text ? x->text : "";
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(text), (void *)text, MHD_RESPMEM_MUST_COPY);
    enum MHD_Result r;

    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, "Content-Type", x->type);
    if (x->close)
        MHD_add_response_header(response, "Connection", "close");
    r = MHD_queue_response(x->connection, x->status, response);
    MHD_destroy_response(response);
    return r;
}

/* ---- connections ---- */

/* Ends a connection for both sides: libmicrohttpd closes it when it reads the end, too. */
static void shut(struct connection *peer)
{
    peer->shut = true;
    shutdown(peer->fd, SHUT_RDWR);
}

static void evict_oldest(struct server *s)
{
    for (struct connection *peer = s->oldest; peer; peer = peer->next)
        if (!peer->trusted && !peer->busy && !peer->shut) {
            shut(peer);
            return;
        }
}

static void opened(struct server *s, struct MHD_Connection *connection, void **slot)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct connection *peer = info ? calloc(1, sizeof(*peer)) : NULL;

    *slot = peer;
    if (!peer)
        return;
    if (s->count >= s->crowded)
        evict_oldest(s);
    *peer = (struct connection){
        .before = s->newest, .fd = info->connect_fd, .since_ns = clock_now_ns()};
    *(s->newest ? &s->newest->next : &s->oldest) = peer;
    s->newest = peer;
    if (s->count++ == 0) {
        sd_event_source_set_time_relative(s->sweep, SWEEP_MS * 1000);
        sd_event_source_set_enabled(s->sweep, SD_EVENT_ONESHOT);
    }
}

static void closed(struct server *s, struct connection *peer)
{
    if (!peer)
        return;
    *(peer->before ? &peer->before->next : &s->oldest) = peer->next;
    *(peer->next ? &peer->next->before : &s->newest) = peer->before;
    s->count--;
    free(peer);
}

static void on_connection(void *arg, struct MHD_Connection *connection, void **slot,
                          enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        opened(arg, connection, slot);
    else
        closed(arg, *slot);
}

/* libmicrohttpd's timeout ends silence only: a byte now and then would keep a connection open. */
static int on_sweep(sd_event_source *source, uint64_t usec, void *arg)
{
    struct server *s = arg;
    uint64_t now = clock_now_ns(), next_ns = SERVER_NEXT_MS * UINT64_C(1000000);

    for (struct connection *peer = s->oldest; peer; peer = peer->next)
        if (!peer->busy && !peer->shut &&
            now - peer->since_ns >= (peer->trusted ? next_ns : s->first_ns))
            shut(peer);
    if (s->count) {
        sd_event_source_set_time_relative(s->sweep, SWEEP_MS * 1000);
        sd_event_source_set_enabled(s->sweep, SD_EVENT_ONESHOT);
    }
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

/* Whether @all bytes of the body may be kept; if so, counts them. */
static bool charge(struct exchange *x, size_t all)
{
    struct server *s = x->server;
    size_t more = all > SERVER_BODY_SMALL ? all - x->charged : 0;

    if (all > x->limit || s->bodies + more > s->bodies_max)
        return false;
    s->bodies += more;
    x->charged += more;
    return true;
}

/* Reads dropped bytes all the same, so that the client goes on to read the answer. */
static enum MHD_Result take_body(struct exchange *x, const char *data, size_t len)
{
    char *body;

    if (x->len + len > BODY_IGNORE_MAX)
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

static void read_head(struct exchange *x, const char *method, const char *path)
{
    const char *authorization =
        MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "Authorization");

    x->request.method = method;
    x->request.path = path;
    x->request.bearer =
        authorization && strncasecmp(authorization, "Bearer ", 7) == 0 ? authorization + 7 : NULL;
}

static void forget_head(struct exchange *x)
{
    x->request.method = x->request.path = x->request.bearer = NULL;
}

static void read_address(struct exchange *x)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *peer = info ? info->client_addr : NULL;

    if (peer && peer->sa_family == AF_INET)
        memcpy(&x->request.address[12], &((const struct sockaddr_in *)peer)->sin_addr, 4);
    else if (peer && peer->sa_family == AF_INET6)
        memcpy(x->request.address, &((const struct sockaddr_in6 *)peer)->sin6_addr, 16);
}

static enum MHD_Result begin(struct server *s, struct MHD_Connection *connection,
                             const char *method, const char *path, void **slot)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct connection *peer = info ? info->socket_context : NULL;
    struct exchange *x = peer ? calloc(1, sizeof(*x)) : NULL;

    if (!x)
        return MHD_NO;
    x->server = s;
    x->peer = peer;
    x->connection = connection;
    x->limit = s->body_max;
    read_address(x);
    if (s->limit) {
        read_head(x, method, path);
        x->limit = s->limit(s->arg, &x->request);
        forget_head(x);
    }
    *slot = x;
    return MHD_YES;
}

static void hand_over(struct exchange *x, const char *method, const char *path)
{
    x->handed = true;
    x->peer->busy = true;
    if (x->len > x->server->body_max) {
        server_answer(&x->request, MHD_HTTP_CONTENT_TOO_LARGE, "text/plain",
                      strdup("the body is too long\n"), true);
        return;
    }
    read_head(x, method, path);
    x->request.body = x->body ? x->body : "";
    x->request.body_len = x->body ? x->len : 0;
    x->server->handler(x->server->arg, &x->request);
    forget_head(x);
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *len, void **slot)
{
    struct server *s = arg;
    struct exchange *x = *slot;

    if (!x)
        return begin(s, connection, method, url, slot);
    if (*len > 0) {
        size_t n = *len;

        *len = 0;
        return take_body(x, data, n);
    }
    if (!x->handed)
        hand_over(x, method, url);
    if (x->answered)
        return send_answer(x);
    x->suspended = true;
    x->next = s->first;
    s->first = x;
    MHD_suspend_connection(connection);
    return MHD_YES;
}

static void on_completed(void *arg, struct MHD_Connection *connection, void **slot,
                         enum MHD_RequestTerminationCode code)
{
    struct exchange *x = *slot;

    if (!x)
        return;
    *slot = NULL;
    if (x->handed && !x->answered && x->server->gone)
        x->server->gone(x->server->arg, &x->request);
    unlink_exchange(x);
    drop_body(x);
    free(x->text);
    free(x);
}

/* ---- the loop ---- */

/* Lets libmicrohttpd do what it can, and learns when it wants to be called again. */
static void run(struct server *s)
{
    MHD_UNSIGNED_LONG_LONG ms;

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

/* A resumed connection goes on in the next MHD_run, which nothing else calls for. */
static int on_resume(sd_event_source *source, void *arg)
{
    run(arg);
    return 0;
}

/* ---- the socket ---- */

/* "HOST:PORT" → a listening socket, or -errno. */
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

/* The wanted number of connections, less the descriptors reserved for the API server and files. */
static unsigned connections_of(const struct server_options *o)
{
    unsigned most = o->connections_max ? o->connections_max : CONNECTIONS_MAX;
    struct rlimit files;
    rlim_t left;

    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return most;
    if (files.rlim_cur < SERVER_FILES && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max < SERVER_FILES ? files.rlim_max : SERVER_FILES;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    left = files.rlim_cur > 2 * SERVER_FILES_KEPT ? files.rlim_cur - SERVER_FILES_KEPT
                                                  : files.rlim_cur / 2;
    return most < left ? most : (unsigned)left;
}

static int start(struct server *s, const struct server_options *o, int fd)
{
    /* The last two entries are of TLS: the list ends before them without it. */
    unsigned connections = connections_of(o);
    struct MHD_OptionItem options[] = {
        {MHD_OPTION_LISTEN_SOCKET, fd, NULL},
        {MHD_OPTION_CONNECTION_LIMIT, connections, NULL},
        {MHD_OPTION_CONNECTION_TIMEOUT, SERVER_IDLE_S, NULL},
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, MEMORY_PER_PEER, NULL},
        {MHD_OPTION_PER_IP_CONNECTION_LIMIT,
         o->per_address_max < connections / 4 ? o->per_address_max : connections / 4, NULL},
        {o->tls ? MHD_OPTION_HTTPS_CERT_CALLBACK : MHD_OPTION_END, 0, identity_callback()},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)"SECURE128:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"},
        {MHD_OPTION_END, 0, NULL},
    };

    s->crowded = connections - connections / 4;
    s->http = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | (o->tls ? MHD_USE_TLS : 0), 0, NULL, NULL,
        on_request, s, MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, s, MHD_OPTION_ARRAY, options, MHD_OPTION_END);
    return s->http ? 0 : -EIO;
}

static int watch_it(struct server *s, sd_event *event)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(s->http, MHD_DAEMON_INFO_EPOLL_FD);
    int r = info ? 0 : -EIO;

    if (r >= 0)
        r = sd_event_add_io(event, &s->io, info->epoll_fd, EPOLLIN, on_io, s);
    if (r >= 0)
        r = sd_event_add_time(event, &s->timer, CLOCK_MONOTONIC, 0, 1000, on_timer, s);
    if (r >= 0)
        r = sd_event_source_set_enabled(s->timer, SD_EVENT_OFF);
    if (r >= 0)
        r = sd_event_add_time(event, &s->sweep, CLOCK_MONOTONIC, 0, 1000, on_sweep, s);
    if (r >= 0)
        r = sd_event_source_set_enabled(s->sweep, SD_EVENT_OFF);
    if (r >= 0)
        r = sd_event_add_defer(event, &s->resume, on_resume, s);
    return r < 0 ? r : sd_event_source_set_enabled(s->resume, SD_EVENT_OFF);
}

int server_new(sd_event *event, const struct server_options *options, struct server **ret,
               struct error *err)
{
    struct server *s = calloc(1, sizeof(*s));
    int fd, r;

    if (!s)
        return error_set(err, -ENOMEM, "out of memory");
    s->handler = options->handler;
    s->gone = options->gone;
    s->arg = options->arg;
    s->limit = options->limit;
    s->first_ns = (options->first_ms ? options->first_ms : SERVER_FIRST_MS) * UINT64_C(1000000);
    s->body_max = options->body_max;
    s->bodies_max = options->bodies_max ? options->bodies_max : SIZE_MAX;
    fd = listen_on(options->address, &s->port, err);
    if (fd < 0) {
        server_free(s);
        return fd;
    }
    r = start(s, options, fd);
    if (r < 0)
        close_fd(fd);
    if (r >= 0)
        r = watch_it(s, event);
    if (r < 0) {
        server_free(s);
        return error_set(err, r, "cannot serve on %s: %s", options->address, strerror(-r));
    }
    *ret = s;
    return 0;
}

/* A suspended connection must not outlive libmicrohttpd's daemon: it is answered. */
struct server *server_free(struct server *s)
{
    if (!s)
        return NULL;
    s->ending = true;
    for (struct exchange *x = s->first; x; x = s->first) {
        if (s->gone)
            s->gone(s->arg, &x->request);
        server_answer(&x->request, MHD_HTTP_SERVICE_UNAVAILABLE, "text/plain", strdup("ending\n"),
                      true);
    }
    if (s->http) {
        MHD_run(s->http);
        MHD_stop_daemon(s->http); /* closes the socket, too */
    }
    sd_event_source_disable_unref(s->io);
    sd_event_source_disable_unref(s->timer);
    sd_event_source_disable_unref(s->resume);
    sd_event_source_disable_unref(s->sweep);
    free(s);
    return NULL;
}

unsigned server_port(const struct server *s)
{
    return s->port;
}
