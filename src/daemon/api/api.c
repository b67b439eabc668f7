/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/api/api.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/api/events.h"
#include "daemon/containers/container.h"
#include "daemon/daemon.h"
#include "daemon/plan/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <stdarg.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>

#define ACCEPT_BURST    64
#define BODY_IGNORE_MAX (1u << 20) /* of a body that is too long: read to the end, then cut off */
#define MEMORY_PER_PEER 8192       /* headers and buffers of one connection */

struct client {
    struct client *next;
    struct caller who;
};

struct api {
    struct daemon *daemon;
    api_handler *handler;
    struct MHD_Daemon *http;
    int fd, spare_fd;
    bool passed; /* the socket is systemd's: it stays when we end */
    sd_event_source *listen_source, *http_source, *timer, *resume_source;
    struct client *clients;
    unsigned n;
};

/* ---- answers ---- */

static enum MHD_Result send_answer(struct request *r)
{
    struct stream *stream = TAKE_PTR(r->stream);
    char *text = r->plain    ? TAKE_PTR(r->plain)
                 : r->answer ? json_dumps(r->answer, JSON_COMPACT | JSON_REAL_PRECISION(15))
                             : NULL;
    struct MHD_Response *response;
    enum MHD_Result result;

    if (stream)
        return stream_send(stream, r->connection) == 0 ? MHD_YES : MHD_NO;
    if (!text)
        return MHD_NO;
    response = MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
    if (!response) {
        free(text);
        return MHD_NO;
    }
    MHD_add_response_header(response, "Content-Type", r->type ? r->type : "application/json");
    result = MHD_queue_response(r->connection, r->status, response);
    MHD_destroy_response(response);
    return result;
}

void request_answer(struct request *r, unsigned status, json_t *answer)
{
    json_decref(r->answer);
    r->answer = answer;
    r->status = status;
    if (!r->suspended)
        return;
    r->suspended = false;
    MHD_resume_connection(r->connection);
    api_resumed(r->daemon->api);
}

/* It goes on in the next MHD_run, which nothing else calls for, and which must not be nested: one
 * request can settle another. */
void api_resumed(struct api *api)
{
    sd_event_source_set_enabled(api->resume_source, SD_EVENT_ONESHOT);
}

void request_answer_text(struct request *r, const char *type, char *text)
{
    if (!text) {
        request_answer(r, MHD_HTTP_OK, NULL);
        return;
    }
    r->plain = text;
    r->type = type;
    r->status = MHD_HTTP_OK;
}

void request_answer_stream(struct request *r, struct stream *stream)
{
    r->stream = stream;
    r->status = MHD_HTTP_OK;
}

const char *request_argument(const struct request *r, const char *key)
{
    return MHD_lookup_connection_value(r->connection, MHD_GET_ARGUMENT_KIND, key);
}

const char *request_header(const struct request *r, const char *key)
{
    return MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, key);
}

void request_fail(struct request *r, unsigned status, const char *hint, const char *fmt, ...)
{
    char message[ERROR_TEXT_MAX];
    va_list ap;
    json_t *answer;

    va_start(ap, fmt);
    vsnprintf(message, sizeof(message), fmt, ap);
    va_end(ap);
    /* What a client sent may be cut in the middle of a character. */
    for (size_t len = strlen(message); len > 0;) {
        answer = json_pack("{s:{s:s,s:s}}", "error", "message", message, "hint", hint);
        if (answer) {
            request_answer(r, status, answer);
            return;
        }
        message[--len] = '\0';
    }
    request_answer(r, status, json_pack("{s:{s:s,s:s}}", "error", "message", "", "hint", hint));
}

/* ---- requests ---- */

static enum MHD_Result begin(struct api *api, struct MHD_Connection *connection, void **slot)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    const struct client *client = info ? info->socket_context : NULL;
    struct request *r = client ? calloc(1, sizeof(*r)) : NULL;

    if (!r)
        return MHD_NO;
    r->daemon = api->daemon;
    r->who = client->who;
    r->connection = connection;
    r->received_ns = clock_now_ns();
    *slot = r;
    return MHD_YES;
}

static enum MHD_Result take_body(struct request *r, const char *data, size_t len)
{
    if (r->len + len > BODY_IGNORE_MAX)
        return MHD_NO;
    if (r->len + len <= API_BODY_MAX) {
        char *text = realloc(r->text, r->len + len + 1);

        if (!text)
            return MHD_NO;
        memcpy(text + r->len, data, len);
        text[r->len + len] = '\0';
        r->text = text;
    }
    r->len += len;
    return MHD_YES;
}

static void handle(struct request *r)
{
    json_error_t error;

    if (r->len > API_BODY_MAX) {
        request_fail(r, MHD_HTTP_CONTENT_TOO_LARGE, "", "the body is longer than %d bytes",
                     API_BODY_MAX);
        return;
    }
    if (r->len > 0) {
        r->body = json_loadb(r->text, r->len, JSON_REJECT_DUPLICATES, &error);
        if (!json_is_object(r->body)) {
            request_fail(r, MHD_HTTP_BAD_REQUEST, "Send one JSON object.",
                         r->body ? "the body is no JSON object" : "the body is no JSON: %s",
                         error.text);
            return;
        }
    }
    r->daemon->api->handler(r);
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *len, void **slot)
{
    struct request *r = *slot;

    if (!r)
        return begin(arg, connection, slot);
    if (*len > 0) {
        size_t n = *len;

        *len = 0;
        return take_body(r, data, n);
    }
    if (r->status == 0) {
        r->method = method;
        r->path = url;
        handle(r);
    }
    if (r->status != 0)
        return send_answer(r);
    r->suspended = true;
    MHD_suspend_connection(connection);
    return MHD_YES;
}

static void on_completed(void *arg, struct MHD_Connection *connection, void **slot,
                         enum MHD_RequestTerminationCode code)
{
    struct request *r = *slot;

    if (!r)
        return;
    *slot = NULL;
    if (r->wait)
        wait_cancel(r->daemon, r->wait);
    container_adopt_cancel(r->adoption);
    json_decref(r->body);
    json_decref(r->answer);
    free(r->plain);
    free(r->text);
    free(r);
}

/* ---- connections ---- */

static void on_connection(void *arg, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct api *api = arg;
    const union MHD_ConnectionInfo *info;
    struct client *client = *context;

    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        struct client **at = &api->clients;

        while (*at && *at != client)
            at = &(*at)->next;
        if (!*at)
            return;
        *at = client->next;
        api->n--;
        free(client);
        return;
    }
    info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    client = calloc(1, sizeof(*client));
    if (!client || !info || control_identify(api->daemon, info->connect_fd, &client->who) < 0) {
        free(client); /* without a context its requests are refused */
        return;
    }
    client->next = api->clients;
    api->clients = client;
    api->n++;
    *context = client;
}

static bool welcome(const struct api *api, int fd)
{
    struct ucred cred;
    socklen_t len = sizeof(cred);
    unsigned of_user = 0;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0 || api->n >= API_CONNECTIONS_MAX)
        return false;
    for (const struct client *c = api->clients; c; c = c->next)
        of_user += c->who.uid == cred.uid;
    return cred.uid == 0 || cred.uid == api->daemon->uid || of_user < API_CONNECTIONS_UID;
}

/* Lets libmicrohttpd do what it can, and learns when it wants to be called again. */
static void run(struct api *api)
{
    MHD_UNSIGNED_LONG_LONG ms;

    MHD_run(api->http);
    if (MHD_get_timeout(api->http, &ms) == MHD_NO) {
        sd_event_source_set_enabled(api->timer, SD_EVENT_OFF);
        return;
    }
    sd_event_source_set_time_relative(api->timer, ms * 1000);
    sd_event_source_set_enabled(api->timer, SD_EVENT_ONESHOT);
}

static int on_http(sd_event_source *s, int fd, uint32_t events, void *arg)
{
    run(arg);
    return 0;
}

static int on_timer(sd_event_source *s, uint64_t usec, void *arg)
{
    run(arg);
    return 0;
}

static int on_resume(sd_event_source *s, void *arg)
{
    run(arg);
    return 0;
}

static int on_listen(sd_event_source *s, int listen_fd, uint32_t events, void *arg)
{
    struct api *api = arg;
    const struct sockaddr addr = {.sa_family = AF_UNIX};

    for (unsigned i = 0; i < ACCEPT_BURST; i++) {
        int fd = accept4(api->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
            /* No descriptor: the caller would keep the loop awake; hang up on it. */
            api->spare_fd = close_fd(api->spare_fd);
            close_fd(accept4(api->fd, NULL, NULL, SOCK_CLOEXEC));
            api->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        }
        if (fd < 0)
            break;
        if (!welcome(api, fd))
            close(fd);
        else
            MHD_add_connection(api->http, fd, &addr, sizeof(addr)); /* closes it on failure */
    }
    run(api);
    return 0;
}

/* ---- the socket ---- */

/* Connections made while the daemon is started again wait in a socket that systemd holds. */
static int take_passed(const struct daemon *d, int *ret_fd)
{
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    int r = sd_listen_fds(true), flags;

    if (r <= 0)
        return r;
    snprintf(path, sizeof(path), "%s/" RUNDIR_API_SOCKET, d->dir);
    if (r > 1 || sd_is_socket_unix(SD_LISTEN_FDS_START, SOCK_STREAM, 1, path, 0) <= 0) {
        daemon_log("what systemd passed is not the one socket %s: see tided.socket", path);
        return -EINVAL;
    }
    flags = fcntl(SD_LISTEN_FDS_START, F_GETFL);
    if (flags < 0 || fcntl(SD_LISTEN_FDS_START, F_SETFL, flags | O_NONBLOCK) < 0)
        return -errno;
    *ret_fd = SD_LISTEN_FDS_START;
    return 1;
}

static int listen_on(const struct daemon *d)
{
    _cleanup_fd_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    if (fd < 0)
        return -errno;
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/" RUNDIR_API_SOCKET, d->dir);
    unlinkat(d->dir_fd, RUNDIR_API_SOCKET, 0);
    if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 ||
        chmod(addr.sun_path, d->uid == 0 ? 0666 : 0600) < 0 || listen(fd, SOMAXCONN) < 0)
        return -errno;
    return TAKE_FD(fd);
}

static int start_http(struct api *api)
{
    const union MHD_DaemonInfo *info;

    api->http = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL,
        on_request, api, MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, api, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)API_CONNECTIONS_MAX, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MEMORY_PER_PEER,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)API_IDLE_S, MHD_OPTION_END);
    info = api->http ? MHD_get_daemon_info(api->http, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    if (!info)
        return -EIO;
    return sd_event_add_io(api->daemon->event, &api->http_source, info->epoll_fd, EPOLLIN, on_http,
                           api);
}

int api_new(struct daemon *d, api_handler *handler, struct api **ret, struct error *err)
{
    struct api *api = calloc(1, sizeof(*api));
    int r;

    if (!api)
        return error_set(err, -ENOMEM, "out of memory");
    api->daemon = d;
    api->handler = handler;
    api->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    r = sd_event_add_time(d->event, &api->timer, CLOCK_MONOTONIC, 0, 1000, on_timer, api);
    if (r >= 0)
        r = sd_event_source_set_enabled(api->timer, SD_EVENT_OFF);
    if (r >= 0)
        r = sd_event_add_defer(d->event, &api->resume_source, on_resume, api);
    if (r >= 0)
        r = sd_event_source_set_enabled(api->resume_source, SD_EVENT_OFF);
    if (r >= 0)
        r = start_http(api);
    api->fd = -1;
    if (r >= 0)
        r = take_passed(d, &api->fd);
    api->passed = r > 0;
    if (r == 0)
        api->fd = r = listen_on(d);
    if (r >= 0)
        r = sd_event_add_io(d->event, &api->listen_source, api->fd, EPOLLIN, on_listen, api);
    if (r < 0) {
        api_free(api);
        return error_set(err, r, "cannot listen on %s/" RUNDIR_API_SOCKET ": %s", d->dir,
                         strerror(-r));
    }
    *ret = api;
    return 0;
}

/* A suspended connection must not outlive the daemon: whoever waits is told that it ended. */
static void answer_waiting(struct api *api)
{
    wait_give_up_all(api->daemon);
    container_adopt_cancel_all(api->daemon);
    MHD_run(api->http);
}

struct api *api_free(struct api *api)
{
    if (!api)
        return NULL;
    if (api->http) {
        answer_waiting(api);
        MHD_stop_daemon(api->http);
    }
    sd_event_source_disable_unref(api->listen_source);
    sd_event_source_disable_unref(api->http_source);
    sd_event_source_disable_unref(api->timer);
    sd_event_source_disable_unref(api->resume_source);
    if (api->fd >= 0 && !api->passed)
        unlinkat(api->daemon->dir_fd, RUNDIR_API_SOCKET, 0);
    close_fd(api->fd);
    close_fd(api->spare_fd);
    free(api);
    return NULL;
}
