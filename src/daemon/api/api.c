/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/api/api.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/api/events.h"
#include "daemon/containers/container.h"
#include "daemon/daemon.h"
#include "daemon/plan/wait.h"
#include "host/net/httpd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>

struct client {
    struct client *next;
    struct caller who;
};

struct api {
    struct daemon *daemon;
    api_handler *handler;
    struct httpd *http;
    bool passed; /* the socket is systemd's: it stays when we end */
    struct client *clients;
};

/* ---- answers ---- */

void request_answer(struct request *r, unsigned status, json_t *answer)
{
    char *text = answer ? json_dumps(answer, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;

    json_decref(answer);
    httpd_answer(r->http, status, "application/json", text, false);
}

void request_answer_text(struct request *r, const char *type, char *text)
{
    httpd_answer(r->http, HTTP_OK, type, text, false);
}

void request_answer_stream(struct request *r, struct stream *stream)
{
    r->stream = stream;
    httpd_stream(r->http, "text/event-stream", stream_read, stream);
}

void request_fail(struct request *r, unsigned status, const char *hint, const char *fmt, ...)
{
    char message[ERROR_TEXT_MAX];
    va_list ap;
    json_t *answer = NULL;

    va_start(ap, fmt);
    vsnprintf(message, sizeof(message), fmt, ap);
    va_end(ap);
    /* What a client sent may be cut in the middle of a character. */
    for (size_t len = strlen(message) + 1; !answer && len-- > 0;) {
        message[len] = '\0';
        answer = json_pack("{s:{s:s,s:s}}", "error", "message", message, "hint", hint);
    }
    request_answer(r, status, answer);
}

/* ---- requests ---- */

static struct request *begin(struct api *api, struct httpd_request *http)
{
    const struct client *client = http->client;
    struct request *r = calloc(1, sizeof(*r));

    if (!r) {
        httpd_answer(http, 0, "", NULL, true);
        return NULL;
    }
    *r = (struct request){
        .daemon = api->daemon,
        .who = client->who,
        .method = http->method,
        .path = http->path,
        .received_ns = http->received_ns,
        .http = http,
    };
    http->context = r;
    return r;
}

static void on_request(void *arg, struct httpd_request *http)
{
    struct api *api = arg;
    struct request *r = begin(api, http);
    json_error_t error;

    if (!r)
        return;
    if (http->body_len > 0) {
        r->body = json_loadb(http->body, http->body_len, JSON_REJECT_DUPLICATES, &error);
        if (!json_is_object(r->body)) {
            request_fail(r, HTTP_BAD_REQUEST, "Send one JSON object.",
                         r->body ? "the body is no JSON object" : "the body is no JSON: %s",
                         error.text);
            return;
        }
    }
    api->handler(r);
}

static void on_too_long(void *arg, struct httpd_request *http)
{
    struct request *r = begin(arg, http);

    if (r)
        request_fail(r, HTTP_TOO_LARGE, "", "the body is longer than %d bytes", API_BODY_MAX);
}

static void on_over(void *arg, struct httpd_request *http)
{
    struct request *r = http->context;

    if (!r)
        return;
    if (r->wait)
        wait_cancel(r->daemon, r->wait);
    container_adopt_cancel(r->adoption);
    stream_free(r->stream);
    json_decref(r->body);
    free(r);
}

/* ---- connections ---- */

static bool welcome(const struct api *api, uid_t uid)
{
    unsigned of_user = 0;

    for (const struct client *c = api->clients; c; c = c->next)
        of_user += c->who.uid == uid;
    return uid == 0 || uid == api->daemon->uid || of_user < API_CONNECTIONS_UID;
}

static void *admit(void *arg, int fd)
{
    struct api *api = arg;
    struct client *client;
    struct caller who;

    if (control_identify(api->daemon, fd, &who) < 0 || !welcome(api, who.uid))
        return NULL;
    client = malloc(sizeof(*client));
    if (!client)
        return NULL;
    *client = (struct client){api->clients, who};
    api->clients = client;
    return client;
}

static void leave(void *arg, void *client)
{
    struct api *api = arg;
    struct client **at = &api->clients;

    while (*at != client)
        at = &(*at)->next;
    *at = (*at)->next;
    free(client);
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

int api_new(struct daemon *d, api_handler *handler, struct api **ret, struct error *err)
{
    struct api *api = calloc(1, sizeof(*api));
    struct httpd_options options = {
        .fd = -1,
        .handler = on_request,
        .too_long = on_too_long,
        .over = on_over,
        .admit = admit,
        .leave = leave,
        .arg = api,
        .connections_max = API_CONNECTIONS_MAX,
        .idle_s = API_IDLE_S,
        .body_max = API_BODY_MAX,
    };
    int r;

    if (!api)
        return error_set(err, -ENOMEM, "out of memory");
    api->daemon = d;
    api->handler = handler;
    r = take_passed(d, &options.fd);
    api->passed = r > 0;
    if (r == 0)
        options.fd = r = listen_on(d);
    if (r >= 0)
        r = httpd_new(d->event, &options, &api->http, err);
    if (r < 0) {
        api_free(api);
        return error_set(err, r, "cannot listen on %s/" RUNDIR_API_SOCKET ": %s", d->dir,
                         strerror(-r));
    }
    *ret = api;
    return 0;
}

/* Whoever waits is told that the daemon ends. */
struct api *api_free(struct api *api)
{
    if (!api)
        return NULL;
    if (api->http && !api->passed)
        unlinkat(api->daemon->dir_fd, RUNDIR_API_SOCKET, 0);
    wait_give_up_all(api->daemon);
    container_adopt_cancel_all(api->daemon);
    httpd_free(api->http);
    free(api);
    return NULL;
}
