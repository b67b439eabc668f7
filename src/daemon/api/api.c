/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/api/api.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/api/events.h"
#include "daemon/containers/container.h"
#include "daemon/daemon.h"
#include "daemon/job/limits.h"
#include "daemon/link/account.h"
#include "daemon/plan/wait.h"
#include "daemon/record/history.h"
#include "host/net/httpd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>

#define ERROR_WORD "cannot-listen"

struct user {
    struct account account; /* by uid */
    bool searching;
};

struct client {
    struct user *user;
    struct caller who;
};

struct api {
    struct daemon *daemon;
    api_handler *handler;
    struct httpd *http;
    bool passed; /* the socket is systemd's: it outlives the daemon */
    struct accounts users;
    unsigned connections;
    struct request *refused, **refused_last; /* to be answered later */
    sd_event_source *refuse;
    uint64_t next_turn_ns; /* of the searches */
};

/* ---- searches ---- */

bool request_search(struct request *r)
{
    struct user *user = r->user;

    if (limits_exempt(r->daemon, r->who.uid))
        return true;
    if (user->searching) {
        r->http->retry_s = API_RETRY_S;
        request_fail_as(r, HTTP_TOO_MANY, "too-many-requests", "Try again in a second.",
                        "another search of user %u goes on", (unsigned)r->who.uid);
        return false;
    }
    r->searching = user->searching = true;
    return true;
}

static void end_search(struct request *r)
{
    if (r->searching)
        r->user->searching = false;
    r->searching = false;
}

uint64_t api_next_turn(struct api *api)
{
    uint64_t now = clock_now_ns();

    if (api->next_turn_ns < now)
        api->next_turn_ns = now;
    api->next_turn_ns += 2 * HTTPD_TURN_NS;
    return api->next_turn_ns / NS_PER_US;
}

/* ---- answers ---- */

void request_answer(struct request *r, unsigned status, json_t *answer)
{
    char *text = answer ? json_dumps(answer, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;

    end_search(r);
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

void request_fail_as(struct request *r, unsigned status, const char *word, const char *hint,
                     const char *fmt, ...)
{
    char message[ERROR_TEXT_MAX];
    json_t *answer = NULL;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(message, sizeof(message), fmt, ap);
    va_end(ap);
    /* A client's text may be cut in the middle of a character. */
    for (size_t len = strlen(message) + 1; !answer && len-- > 0;) {
        message[len] = '\0';
        answer = json_pack("{s:{s:s,s:s,s:s*}}", "error", "message", message, "hint", hint, "code",
                           word);
    }
    request_answer(r, status, answer);
}

void request_fail_with(struct request *r, unsigned status, const char *hint,
                       const struct error *err)
{
    request_fail_as(r, status, error_why(err), hint, "%s", err->text);
}

bool request_only_fields(struct request *r, const char *const *known)
{
    bool attributes = strcmp(known[0], ATTRIBUTES) == 0;
    const char *key;
    json_t *value;

    json_object_foreach (r->body, key, value) {
        size_t i = 0;

        while (known[i] && strcmp(known[i], key) != 0)
            i++;
        if (known[i] || (attributes && attribute_find(key, strlen(key))))
            continue;
        request_fail_as(r, HTTP_BAD_REQUEST, "bad-request", "See docs/http-api.md.",
                        "unknown field '%.60s'", key);
        return false;
    }
    return true;
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
        .user = client->user,
        .method = http->method,
        .path = http->path,
        .received_ns = http->received_ns,
        .http = http,
    };
    http->context = r;
    return r;
}

/* ---- the budget ---- */

static bool within_budget(const struct request *r)
{
    return limits_exempt(r->daemon, r->who.uid) ||
           account_take(&r->daemon->api->users, &r->user->account);
}

void request_charge(struct request *r, uint64_t ns)
{
    account_charge(&r->user->account, ns);
}

static void arm_refuse(struct api *api)
{
    if (!api->refused)
        return;
    sd_event_source_set_time(api->refuse, (api->refused->received_ns + API_REFUSE_NS) / NS_PER_US);
    sd_event_source_set_enabled(api->refuse, SD_EVENT_ONESHOT);
}

static void take_out(struct api *api, struct request *r)
{
    struct request **at = &api->refused;

    while (*at && *at != r)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = r->next;
    if (!*at)
        api->refused_last = at;
}

/* Answers later: the client shall wait before it asks again, but the daemon does not. */
static void refuse(struct api *api, struct request *r)
{
    bool first = !api->refused;

    *api->refused_last = r;
    api->refused_last = &r->next;
    if (first)
        arm_refuse(api);
}

static int on_refuse(sd_event_source *s, uint64_t usec, void *arg)
{
    struct api *api = arg;
    struct request *r;
    uint64_t now = clock_now_ns();

    while ((r = api->refused) && r->received_ns + API_REFUSE_NS <= now) {
        take_out(api, r);
        r->http->retry_s = API_RETRY_S;
        request_fail_as(r, HTTP_TOO_MANY, "too-many-requests", "Try again in a second.",
                        "user %u sends too many requests: a tenth of the daemon's time, or %d a "
                        "second, is the most",
                        (unsigned)r->who.uid, ACCOUNT_RATE);
    }
    arm_refuse(api);
    return 0;
}

/* ---- the gateway ---- */

static struct user *find_user(struct api *api, uid_t uid)
{
    return (struct user *)account_find(&api->users, uid,
                                       limits_exempt(api->daemon, uid) ? 0 : API_USERS_MAX);
}

/* The request becomes the user's: it takes from that user's budget and counts as a connection. */
static bool become(struct request *r, const struct caller *who)
{
    struct user *user = find_user(r->daemon->api, who->uid);

    if (!user || user->account.connections >= API_CONNECTIONS_UID) {
        r->http->retry_s = API_RETRY_S;
        request_fail_as(r, HTTP_TOO_MANY, "too-many-requests", "Try again in a second.",
                        "user %u has too many connections", (unsigned)who->uid);
        return false;
    }
    user->account.connections++;
    r->who = *who;
    r->user = user;
    r->named = true;
    return true;
}

/* Whose request it is, if the gateway names somebody. False: answered with the error. */
static bool take_name(struct request *r)
{
    const char *header = httpd_header(r->http, ACCESS_GATEWAY_HEADER);
    bool gateway = control_is_gateway(r->daemon, &r->who);
    struct error err = {0};
    struct caller who;

    if (!header && !gateway)
        return true;
    if (!header)
        error_set(&err, -EPERM, "the gateway named no user");
    else if (control_identify_named(r->daemon, &r->who, header, &who, &err) == 0)
        return become(r, &who);
    if (!within_budget(r))
        refuse(r->daemon->api, r);
    else
        request_fail_as(r, HTTP_FORBIDDEN, "not-the-gateway", "See tide-gate(8).", "%s", err.text);
    return false;
}

/* ---- requests ---- */

static void parse(struct request *r)
{
    const struct httpd_request *http = r->http;
    json_error_t error;

    if (http->body_len > 0) {
        r->body = json_loadb(http->body, http->body_len, JSON_REJECT_DUPLICATES, &error);
        if (!json_is_object(r->body)) {
            request_fail_as(r, HTTP_BAD_REQUEST, "bad-request", "Send one JSON object.",
                            r->body ? "the body is no JSON object" : "the body is no JSON: %s",
                            error.text);
            return;
        }
    }
    r->daemon->api->handler(r);
}

static void on_request(void *arg, struct httpd_request *http)
{
    struct request *r = begin(arg, http);
    uint64_t began = clock_now_ns();

    if (!r || !take_name(r))
        return;
    if (!within_budget(r)) {
        refuse(arg, r);
    } else {
        parse(r);
        request_charge(r, clock_now_ns() - began);
    }
}

static void on_too_long(void *arg, struct httpd_request *http)
{
    struct request *r = begin(arg, http);

    if (!r || !take_name(r))
        return;
    if (!within_budget(r))
        refuse(arg, r);
    else
        request_fail_as(r, HTTP_TOO_LARGE, "bad-request", "", "the body is longer than %d bytes",
                        API_BODY_MAX);
}

static void on_over(void *arg, struct httpd_request *http)
{
    struct request *r = http->context;

    if (!r)
        return;
    if (r->wait)
        wait_cancel(r->daemon, r->wait);
    container_adopt_cancel(r->adoption);
    container_memory_cancel(r->memory);
    take_out(arg, r);
    end_search(r);
    sd_event_source_disable_unref(r->turn);
    history_search_free(r->search);
    stream_free(r->stream);
    json_decref(r->body);
    if (r->named)
        r->user->account.connections--;
    free(r);
}

/* ---- connections ---- */

static void *admit(void *arg, int fd)
{
    struct api *api = arg;
    struct client *client;
    struct caller who;
    struct user *user;

    if (control_identify(api->daemon, fd, &who) < 0 || !(user = find_user(api, who.uid)))
        return NULL;
    if (!limits_exempt(api->daemon, who.uid) &&
        (user->account.connections >= API_CONNECTIONS_UID ||
         api->connections >= API_CONNECTIONS_MAX - API_KEPT))
        return NULL;
    client = malloc(sizeof(*client));
    if (!client)
        return NULL;
    *client = (struct client){user, who};
    user->account.connections++;
    api->connections++;
    return client;
}

static void leave(void *arg, void *data)
{
    struct api *api = arg;
    struct client *client = data;

    api->connections--;
    client->user->account.connections--;
    free(client);
}

/* ---- the socket ---- */

/* While the daemon restarts, connections wait in a socket that systemd holds. */
static int take_passed(const struct daemon *d, int *ret_fd)
{
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    int r = sd_listen_fds(true), flags;

    if (r <= 0)
        return r;
    snprintf(path, sizeof(path), "%s/" RUNDIR_API_SOCKET, d->dir);
    if (r > 1 || sd_is_socket_unix(SD_LISTEN_FDS_START, SOCK_STREAM, 1, path, 0) <= 0) {
        daemon_err("systemd passed another socket than %s, or more than one: see tided.socket",
                   path);
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
        .priority = API_PRIORITY,
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
    api->users = (struct accounts){.size = sizeof(struct user), .burst = API_BURST};
    api->refused_last = &api->refused;
    r = sd_event_add_time(d->event, &api->refuse, CLOCK_MONOTONIC, 0, 1000, on_refuse, api);
    if (r >= 0)
        r = sd_event_source_set_enabled(api->refuse, SD_EVENT_OFF);
    if (r >= 0)
        r = sd_event_source_set_priority(api->refuse, API_PRIORITY);
    if (r >= 0)
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

/* Tells waiting clients that the daemon ends. */
struct api *api_free(struct api *api)
{
    if (!api)
        return NULL;
    if (api->http && !api->passed)
        unlinkat(api->daemon->dir_fd, RUNDIR_API_SOCKET, 0);
    wait_give_up_all(api->daemon);
    container_adopt_cancel_all(api->daemon);
    httpd_free(api->http);
    sd_event_source_disable_unref(api->refuse);
    accounts_free(&api->users);
    free(api);
    return NULL;
}
