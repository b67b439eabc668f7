/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tide-dashboard, the program behind `tide dashboard`: serves the page of this machine on loopback
 * for the user who started it. A link with a token that works once gives the browser a cookie; what
 * the page asks goes to tided with this user's rights (proxy.c).
 */
#include "cli/cli.h"
#include "cli/dashboard/guest.h"
#include "cli/dashboard/proxy.h"

#include "base/cleanup.h"
#include "host/net/embedded.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <jansson.h>
#include <pwd.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>

#define ADMIN_GROUP     "tide-admin" /* of the system's daemon: docs/permissions.md */
#define CONNECTIONS_MAX 64
#define GROUPS_MAX      1024

extern char **environ;

struct dashboard {
    sd_event *event;
    struct httpd *httpd;
    int proc; /* of /proc/self */
    char token[GUEST_SECRET_LEN + 1], cookie[GUEST_SECRET_LEN + 1];
    char cookie_name[16]; /* with our port: cookies are shared by all ports of a host */
    bool used;            /* the token has been */
};

/* ---- requests ---- */

static void text_answer(struct httpd_request *r, unsigned status, const char *text)
{
    httpd_answer(r, status, "text/plain; charset=utf-8", strdup(text), false);
}

static bool is_known(const struct dashboard *d, const struct httpd_request *r)
{
    char value[GUEST_SECRET_LEN + 1];

    return guest_cookie(httpd_header(r, "Cookie"), d->cookie_name, value, sizeof(value)) &&
           guest_knows(value, d->cookie);
}

/* Takes the link's token for a cookie. The address bar and the history keep no token. */
static void enter(struct dashboard *d, struct httpd_request *r, const char *token)
{
    char cookie[128];

    if (d->used || !guest_knows(token, d->token)) {
        text_answer(r, 403,
                    d->used ? "This link has been used: each works once.\n"
                              "Run 'tide dashboard' again for another one.\n"
                            : "This is not the link that 'tide dashboard' printed.\n");
        return;
    }
    /* Strict would not come back when the link is clicked on another site; changes need Origin. */
    snprintf(cookie, sizeof(cookie), "%s=%s; Path=/; HttpOnly; SameSite=Lax", d->cookie_name,
             d->cookie);
    if (httpd_add_header(r, "Set-Cookie", cookie) < 0 || httpd_add_header(r, "Location", "/") < 0 ||
        httpd_add_header(r, "Cache-Control", "no-store") < 0) {
        text_answer(r, 500, "out of memory\n");
        return;
    }
    d->used = true;
    text_answer(r, 303, "");
}

static bool in_admin_group(void)
{
    struct group *group = getgrnam(ADMIN_GROUP);
    gid_t groups[GROUPS_MAX];
    int n = getgroups(GROUPS_MAX, groups);

    for (int i = 0; group && i < n; i++)
        if (groups[i] == group->gr_gid)
            return true;
    return group && getegid() == group->gr_gid;
}

/* What the page shows of its user; it hides what tided would refuse, which decides. */
static void session_answer(struct httpd_request *r)
{
    struct passwd *user = getpwuid(geteuid());
    json_t *body = json_pack("{s:s,s:s,s:i,s:b,s:s}", "server", "machine", "user",
                             user ? user->pw_name : "?", "uid", (int)geteuid(), "admin",
                             geteuid() == 0 || in_admin_group(), "version", TIDE_VERSION);

    httpd_answer(r, 200, "application/json", body ? json_dumps(body, JSON_COMPACT) : NULL, false);
    json_decref(body);
}

static bool changes(const struct httpd_request *r)
{
    return strcmp(r->method, "GET") != 0 && strcmp(r->method, "HEAD") != 0;
}

static void on_request(void *arg, struct httpd_request *r)
{
    struct dashboard *d = arg;
    const char *host = httpd_header(r, "Host");
    const char *token = strcmp(r->path, "/") == 0 ? httpd_argument(r, "token") : NULL;

    if (embedded_protect(r) < 0)
        text_answer(r, 500, "out of memory\n");
    else if (!guest_host(host))
        text_answer(r, 421, "This server answers to 127.0.0.1 and localhost alone.\n");
    else if (changes(r) && !guest_origin(httpd_header(r, "Origin"), host))
        proxy_refuse(r, 403, "another page asks for this change", "");
    else if (token && !is_known(d, r))
        enter(d, r, token);
    else if (!is_known(d, r))
        text_answer(r, 403,
                    "This page opens by the link that 'tide dashboard' prints; each works once.\n");
    else if (strcmp(r->path, "/v1/session") == 0 && !changes(r))
        session_answer(r);
    else if (strncmp(r->path, "/v1/", 4) == 0 || strcmp(r->path, "/metrics") == 0)
        proxy_pass(d->event, r);
    else if (changes(r) || !embedded_answer(embedded_page, r))
        text_answer(r, 404, "There is no such page.\n");
}

static void on_over(void *arg, struct httpd_request *r)
{
    proxy_over(r);
}

/* Another user's program gets no answer at all; root may see everything anyhow. */
static void *on_admit(void *arg, int fd)
{
    struct dashboard *d = arg;
    uid_t uid;

    return guest_uid(d->proc, fd, &uid) == 0 && (uid == geteuid() || uid == 0) ? d : NULL;
}

/* ---- the program ---- */

static int start(struct dashboard *d, long port, struct error *err)
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
    sigset_t ends;
    int r;

    snprintf(address, sizeof(address), "127.0.0.1:%ld", port);
    d->proc = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (d->proc < 0)
        return error_set(err, -errno, "/proc/self: %s", strerror(errno));
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGHUP);
    if (sigprocmask(SIG_BLOCK, &ends, NULL) < 0)
        return error_set(err, -errno, "signals: %s", strerror(errno));
    r = guest_secret(d->token);
    if (r == 0)
        r = guest_secret(d->cookie);
    if (r == 0)
        r = sd_event_new(&d->event);
    /* Without a handler, sd-event ends its loop at the signal. */
    if (r >= 0)
        r = sd_event_add_signal(d->event, NULL, SIGINT, NULL, NULL);
    if (r >= 0)
        r = sd_event_add_signal(d->event, NULL, SIGTERM, NULL, NULL);
    if (r >= 0)
        r = sd_event_add_signal(d->event, NULL, SIGHUP, NULL, NULL);
    if (r < 0)
        return error_set(err, r, "cannot start: %s", strerror(-r));
    return httpd_new(d->event, &options, &d->httpd, err);
}

/* The link is printed in any case: a browser that does not come up is no failure. */
static void open_browser(const char *link)
{
    char *argv[] = {"xdg-open", (char *)link, NULL};
    posix_spawnattr_t attributes;
    sigset_t none;
    pid_t pid;

    if (!getenv("DISPLAY") && !getenv("WAYLAND_DISPLAY"))
        return;
    sigemptyset(&none);
    if (posix_spawnattr_init(&attributes) != 0)
        return;
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setpgroup(&attributes, 0);
    signal(SIGCHLD, SIG_IGN); /* nobody waits for it */
    posix_spawnp(&pid, argv[0], NULL, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
}

static int serve(struct dashboard *d, bool browser)
{
    char link[128];
    int r;

    snprintf(d->cookie_name, sizeof(d->cookie_name), "tide-%u", httpd_port(d->httpd));
    snprintf(link, sizeof(link), "http://127.0.0.1:%u/?token=%s", httpd_port(d->httpd), d->token);
    printf("%s\n", link);
    if (isatty(STDOUT_FILENO))
        printf("The link works once. Ctrl-C ends the page.\n");
    if (fflush(stdout) != 0)
        return cli_error(&command_dashboard, CLI_FAILED, NULL, "cannot print the link: %s",
                         strerror(errno));
    if (browser)
        open_browser(link);
    r = sd_event_loop(d->event);
    return r < 0 ? cli_error(&command_dashboard, CLI_FAILED, NULL, "%s", strerror(-r)) : CLI_OK;
}

int main(int argc, char **argv)
{
    enum { OPTION_PORT = 128, OPTION_NO_OPEN };
    static const struct option options[] = {{"port", required_argument, NULL, OPTION_PORT},
                                            {"no-open", no_argument, NULL, OPTION_NO_OPEN},
                                            {0}};
    struct dashboard d = {.proc = -1};
    struct error err = {0};
    bool browser = true;
    long port = 0;
    int option, r;

    while ((option = option_next(&command_dashboard, argc, argv, options, false)) != -1) {
        if (option == OPTION_NO_OPEN)
            browser = false;
        else if (option_number(&command_dashboard, optarg, "--port", 0, 65535, &port) != CLI_OK)
            return CLI_USAGE;
    }
    option_operands(&command_dashboard, argc, argv, 0, 0);
    r = start(&d, port, &err);
    r = r < 0
            ? cli_error(&command_dashboard, CLI_FAILED,
                        r == -EADDRINUSE ? "Choose another --port, or none." : NULL, "%s", err.text)
            : serve(&d, browser);
    httpd_free(d.httpd);
    sd_event_unref(d.event);
    close_fd(d.proc);
    return cli_end(&command_dashboard, r);
}
