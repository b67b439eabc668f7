/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tide-dashboard, the program behind `tide dashboard`: serves the page of this machine on loopback
 * for the user who started it. A link with a token that works once gives the browser a cookie; what
 * the page asks goes to tided with this user's rights (proxy.c).
 */
#include "cli/cli.h"
#include "cli/dashboard/proxy.h"

#include "base/cleanup.h"
#include "host/net/door.h"
#include "host/net/ends.h"

#include <errno.h>
#include <jansson.h>
#include <pwd.h>
#include <signal.h>
#include <string.h>

#define ERROR_WORD "page-not-served"

struct dashboard {
    struct proxy proxy;
    struct door *door;
};

/* ---- requests ---- */

/*
 * The page's user, by number where /etc/passwd has no name, as tided tells owners; of another
 * machine's page, whom its address names: null, and ssh decides. What this user may do the page
 * learns from tided, which decides.
 */
static void session_answer(struct dashboard *d, struct httpd_request *r)
{
    const struct passwd *user = getpwuid(geteuid());
    const char *at = httpd_argument(r, "at");
    struct address there = {0};
    char number[16];
    json_t *body;
    int found = at ? machines_find(d->proxy.machines, at, &there) : 0;

    if (found < 0) {
        proxy_refuse_machine(r, found);
        return;
    }
    snprintf(number, sizeof(number), "%u", (unsigned)geteuid());
    if (at)
        body = json_pack("{s:s,s:s,s:s?,s:s}", "server", "machine", "at", at, "user",
                         *there.user ? there.user : NULL, "version", TIDE_VERSION);
    else
        body = json_pack("{s:s,s:s,s:I,s:s}", "server", "machine", "user",
                         user ? user->pw_name : number, "uid", (json_int_t)geteuid(), "version",
                         TIDE_VERSION);
    httpd_answer(r, 200, "application/json", body ? json_dumps(body, JSON_COMPACT) : NULL, false);
    json_decref(body);
}

static void on_request(void *arg, struct httpd_request *r)
{
    struct dashboard *d = arg;

    if (strcmp(r->path, "/v1/session") == 0 && !door_changes(r))
        session_answer(d, r);
    else if (strcmp(r->path, "/v1/fleet") == 0 && !door_changes(r))
        machines_answer(d->proxy.machines, r);
    else
        proxy_pass(&d->proxy, r);
}

static void on_over(void *arg, struct httpd_request *r)
{
    struct dashboard *d = arg;

    machines_over(d->proxy.machines, r);
    proxy_over(r);
}

/* ---- the program ---- */

static int start(struct dashboard *d, long port, struct error *err)
{
    struct door_options options = {.command = "tide dashboard",
                                   .port = port,
                                   .handler = on_request,
                                   .over = on_over,
                                   .arg = d};
    struct proxy *p = &d->proxy;
    int r = sd_event_new(&p->event);

    signal(SIGCHLD, SIG_DFL); /* where it is ignored, no child's end is known */
    if (r >= 0)
        r = ends_by_signals(p->event, true, NULL, NULL);
    if (r >= 0)
        r = machines_new(p->event, &p->machines);
    if (r >= 0)
        r = reach_new(p->event, &p->reach);
    if (r < 0)
        return error_set(err, r, "cannot start: %s", strerror(-r));
    return door_new(p->event, &options, &d->door, err);
}

static int serve(struct dashboard *d, bool browser)
{
    int r;

    printf("%s\n", door_link(d->door));
    if (isatty(STDOUT_FILENO))
        printf("The link works once. Ctrl-C ends the page.\n");
    if (fflush(stdout) != 0)
        return cli_error(&command_dashboard, CLI_FAILED, NULL, "cannot print the link: %s",
                         strerror(errno));
    if (browser)
        door_open_browser(d->door);
    r = sd_event_loop(d->proxy.event);
    return r < 0 ? cli_error(&command_dashboard, CLI_FAILED, NULL, "%s", strerror(-r)) : CLI_OK;
}

int main(int argc, char **argv)
{
    enum { OPTION_PORT = 128, OPTION_NO_OPEN };
    static const struct option options[] = {{"port", required_argument, NULL, OPTION_PORT},
                                            {"no-open", no_argument, NULL, OPTION_NO_OPEN},
                                            {0}};
    struct dashboard d = {0};
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
    door_free(d.door);
    reach_free(d.proxy.reach);
    machines_free(d.proxy.machines);
    sd_event_unref(d.proxy.event);
    return cli_end(&command_dashboard, r);
}
