/* SPDX-License-Identifier: Apache-2.0 */
#include "host/net/door.h"

#include "base/cleanup.h"
#include "host/net/embedded.h"
#include "host/net/guest.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <unistd.h>

#define ERROR_WORD "page-not-served"

#define CONNECTIONS_MAX 64
#define COOKIE_NAME_MAX 16

extern char **environ;

struct door {
    struct door_options options;
    struct httpd *httpd;
    int proc; /* of /proc/self */
    char token[GUEST_SECRET_LEN + 1], cookie[GUEST_SECRET_LEN + 1];
    char link[128];
    bool used; /* the token has been */
};

/* ---- answers ---- */

static void text_answer(struct httpd_request *r, unsigned status, char *text)
{
    httpd_answer(r, status, "text/plain; charset=utf-8", text, false);
}

void door_refuse(struct httpd_request *r, unsigned status, const char *message, const char *hint)
{
    json_t *body = json_pack("{s:{s:s,s:s}}", "error", "message", message, "hint", hint);

    httpd_answer(r, status, "application/json", body ? json_dumps(body, JSON_COMPACT) : NULL,
                 false);
    json_decref(body);
}

static char *with_command(const struct door *d, const char *before, const char *after)
{
    char *text;

    return asprintf(&text, "%s'%s'%s\n", before, d->options.command, after) < 0 ? NULL : text;
}

/* ---- requests ---- */

bool door_changes(const struct httpd_request *r)
{
    return strcmp(r->method, "GET") != 0 && strcmp(r->method, "HEAD") != 0;
}

/*
 * Cookies are shared by all ports of a host, so the name has the port: the browser's, which differs
 * from ours when ssh -L forwards the page. Pages of two servers with the same port of their own
 * must not end each other's session. @host is good.
 */
static void cookie_name(const char *host, char ret[COOKIE_NAME_MAX])
{
    const char *port = strrchr(host, ':');

    snprintf(ret, COOKIE_NAME_MAX, "tide-%.5s", port && !strchr(port, ']') ? port + 1 : "80");
}

static bool has_cookie(const struct door *d, const struct httpd_request *r, const char *host)
{
    char value[GUEST_SECRET_LEN + 1], name[COOKIE_NAME_MAX];

    cookie_name(host, name);
    return guest_cookie(httpd_header(r, "Cookie"), name, value, sizeof(value)) &&
           guest_knows(value, d->cookie);
}

/* Takes the link's token for a cookie. The address bar and the history keep no token. */
static void enter(struct door *d, struct httpd_request *r, const char *host, const char *token)
{
    char cookie[128], name[COOKIE_NAME_MAX];

    if (d->used || !guest_knows(token, d->token)) {
        text_answer(r, 403,
                    d->used ? with_command(d, "This link has been used: each works once.\nRun ",
                                           " again for another one.")
                            : with_command(d, "This is not the link that ", " printed."));
        return;
    }
    cookie_name(host, name);
    /* Strict would not come back when the link is clicked on another site; changes need Origin. */
    snprintf(cookie, sizeof(cookie), "%s=%s; Path=/; HttpOnly; SameSite=Lax", name, d->cookie);
    if (httpd_add_header(r, "Set-Cookie", cookie) < 0 || httpd_add_header(r, "Location", "/") < 0 ||
        httpd_add_header(r, "Cache-Control", "no-store") < 0) {
        text_answer(r, 500, strdup("out of memory\n"));
        return;
    }
    d->used = true;
    text_answer(r, 303, strdup(""));
}

static void on_request(void *arg, struct httpd_request *r)
{
    struct door *d = arg;
    const char *host = httpd_header(r, "Host");
    const char *token = strcmp(r->path, "/") == 0 ? httpd_argument(r, "token") : NULL;
    bool good = guest_host(host), known = good && has_cookie(d, r, host);

    if (embedded_protect(r) < 0)
        text_answer(r, 500, strdup("out of memory\n"));
    else if (!good)
        text_answer(r, 421, strdup("This server answers to 127.0.0.1 and localhost alone.\n"));
    else if (door_changes(r) && !guest_origin(httpd_header(r, "Origin"), host))
        door_refuse(r, 403, "another page asks for this change",
                    "Ask for it on this server's own page.");
    else if (token && !known)
        enter(d, r, host, token);
    else if (!known)
        text_answer(
            r, 403,
            with_command(d, "This page opens by the link that ", " prints; each works once."));
    else if (strncmp(r->path, "/v1/", 4) == 0 || strcmp(r->path, "/metrics") == 0)
        d->options.handler(d->options.arg, r);
    else if (door_changes(r) || !embedded_answer(embedded_page, r))
        text_answer(r, 404, strdup("There is no such page.\n"));
}

static void on_over(void *arg, struct httpd_request *r)
{
    struct door *d = arg;

    if (d->options.over)
        d->options.over(d->options.arg, r);
}

/* Another user's program gets no answer at all; root may see everything anyhow. */
static void *on_admit(void *arg, int fd)
{
    struct door *d = arg;
    uid_t uid;

    return guest_uid(d->proc, fd, &uid) == 0 && (uid == geteuid() || uid == 0) ? d : NULL;
}

/* ---- begin and end ---- */

const char *door_link(const struct door *d)
{
    return d->link;
}

static int open_door(struct door *d, sd_event *event, struct error *err)
{
    char address[32];
    struct httpd_options options = {.address = address,
                                    .handler = on_request,
                                    .over = on_over,
                                    .admit = on_admit,
                                    .arg = d,
                                    .connections_max = CONNECTIONS_MAX,
                                    .per_address_max = CONNECTIONS_MAX,
                                    .body_max = HTTPD_BODY_SMALL};
    int r;

    snprintf(address, sizeof(address), "127.0.0.1:%ld", d->options.port);
    d->proc = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (d->proc < 0)
        return error_set(err, -errno, "/proc/self: %s", strerror(errno));
    r = guest_secret(d->token);
    if (r == 0)
        r = guest_secret(d->cookie);
    if (r < 0)
        return error_set(err, r, "no random numbers: %s", strerror(-r));
    r = httpd_new(event, &options, &d->httpd, err);
    if (r < 0)
        return r;
    snprintf(d->link, sizeof(d->link), "http://127.0.0.1:%u/?token=%s", httpd_port(d->httpd),
             d->token);
    return 0;
}

int door_new(sd_event *event, const struct door_options *options, struct door **ret,
             struct error *err)
{
    struct door *d = calloc(1, sizeof(*d));
    int r;

    if (!d)
        return error_set(err, -ENOMEM, "out of memory");
    d->options = *options;
    d->proc = -1;
    r = open_door(d, event, err);
    if (r < 0) {
        door_free(d);
        return r;
    }
    *ret = d;
    return 0;
}

struct door *door_free(struct door *d)
{
    if (!d)
        return NULL;
    httpd_free(d->httpd);
    close_fd(d->proc);
    free(d);
    return NULL;
}

void door_open_browser(const struct door *d)
{
    char *argv[] = {"xdg-open", (char *)d->link, NULL};
    posix_spawnattr_t attributes;
    sigset_t none, ours;
    pid_t pid; /* nobody waits for it: it stays a zombie until this program ends */

    if (!getenv("DISPLAY") && !getenv("WAYLAND_DISPLAY"))
        return;
    sigemptyset(&none);
    sigemptyset(&ours);
    sigaddset(&ours, SIGCHLD); /* the browser waits for children of its own */
    if (posix_spawnattr_init(&attributes) != 0)
        return;
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                              POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &ours);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnp(&pid, argv[0], NULL, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
}
