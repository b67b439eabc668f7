/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "base/wholefile.h"
#include "hub/command.h"
#include "hub/people/terminal.h"
#include "hub/trust/state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define ERROR_WORD "hub-state"

#define REQUEST_MAX 65536

static const char usage[] =
    "Usage: tide-hub unit sign NAME REQUEST [--state DIR]\n"
    "       tide-hub unit revoke|admit NAME [--state DIR]\n"
    "       tide-hub unit list [--state DIR]\n"
    "\n"
    "Certificates of units: who may connect to the broker of 'tide-hub broker', and as whom.\n"
    "\n"
    "  sign     reads a request (PEM, as 'openssl req -new' makes it) and prints a certificate "
    "for\n"
    "           90 days with that NAME, which is the unit's in all topics; sign again to renew\n"
    "  revoke   refuses the name and all its certificates, also on connections that are open\n"
    "  admit    lets a revoked name have new certificates; the old ones stay revoked\n"
    "  list     every certificate: name, serial number, signed or revoked, when\n"
    "\n"
    "  --state DIR   where the authority lies; default /var/lib/tide-hub\n";

static const struct option options[] = {
    {"state", required_argument, NULL, 's'}, {"help", no_argument, NULL, 'h'}, {0}};

static int sign(const struct state *s, const char *name, const char *path)
{
    _cleanup_free_ char *request = NULL, *cert = NULL;
    struct error err = {0};
    struct stat status;
    size_t len;
    int r = wholefile_read(path, REQUEST_MAX, &request, &len, &status);

    if (r < 0) {
        error_set(&err, r, "%s: %s", path, strerror(-r));
        return command_end(r, &err);
    }
    r = authority_sign(s->authority, request, name, time(NULL), &cert, &err);
    terminal_audit_in(s->dir, "unit.sign", name, &err);
    if (r >= 0)
        fputs(cert, stdout);
    return command_end(r, &err);
}

static int list(const struct authority *a)
{
    const struct authority_unit *unit;
    size_t n = authority_units(a, &unit);

    for (size_t i = 0; i < n; i++) {
        time_t at = unit[i].time_s;
        char when[32];
        struct tm tm;

        strftime(when, sizeof(when), "%FT%TZ", gmtime_r(&at, &tm));
        printf("%-24s %-32s %-8s %s\n", unit[i].name, unit[i].serial,
               unit[i].revoked ? "revoked" : "signed", when);
    }
    return 0;
}

/* The running broker learns of it at once, if there is one. */
static int change(struct state *s, const char *name, bool revoke)
{
    struct error err = {0};
    int r = revoke ? authority_revoke(s->authority, name, time(NULL), &err)
                   : authority_admit(s->authority, name, time(NULL), &err);

    if (r >= 0)
        r = state_tell_broker(s, &err);
    terminal_audit_in(s->dir, revoke ? "unit.revoke" : "unit.admit", name, &err);
    return command_end(r, &err);
}

static int run(struct state *s, int argc, char **argv)
{
    const char *verb = argc ? argv[0] : "";

    if (strcmp(verb, "sign") == 0 && argc == 3)
        return sign(s, argv[1], argv[2]);
    if (strcmp(verb, "revoke") == 0 && argc == 2)
        return change(s, argv[1], true);
    if (strcmp(verb, "admit") == 0 && argc == 2)
        return change(s, argv[1], false);
    if (strcmp(verb, "list") == 0 && argc == 1)
        return list(s->authority);
    return command_wrong(usage);
}

static int take(void *arg, int option)
{
    const char **dir = arg;

    *dir = optarg;
    return 0;
}

int cmd_unit(int argc, char **argv)
{
    const char *dir = STATE_DIR;
    struct error err = {0};
    struct state s;
    int r = command_options(argc, argv, usage, options, take, &dir);

    if (r)
        return r < 0 ? 0 : r;
    if (optind == argc)
        return command_wrong(usage);
    r = state_open(dir, &s, &err);
    if (r < 0)
        return command_end(r, &err);
    r = run(&s, argc - optind, argv + optind);
    state_close(&s);
    return r;
}
