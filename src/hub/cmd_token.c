/* SPDX-License-Identifier: Apache-2.0 */
#include "base/moment.h"
#include "hub/command.h"
#include "hub/people/terminal.h"
#include "hub/trust/state.h"
#include "hub/trust/tokens.h"

#include <stdio.h>
#include <time.h>

static const char usage[] =
    "Usage: tide-hub token NAME [--area AREA] [--for TIME] [--state DIR]\n"
    "\n"
    "Prints a one-time token with which the unit NAME is enrolled. On the unit's machine:\n"
    "\n"
    "  tide-power enrol https://HUB:8443 TOKEN\n"
    "\n"
    "  --area AREA   where it stands, as unlp/lab3: goes into the policy when the token is used\n"
    "  --for TIME    how long the token is good, at most 30d; default 1h\n"
    "  --state DIR   the hub's directory; default /var/lib/tide-hub\n"
    "\n"
    "Whoever has the token can be that unit: pass it on as you would a password.\n";

static const struct option options[] = {{"area", required_argument, NULL, 'a'},
                                        {"for", required_argument, NULL, 'f'},
                                        {"state", required_argument, NULL, 's'},
                                        {"help", no_argument, NULL, 'h'},
                                        {0}};

struct asked {
    const char *dir, *area;
    uint64_t for_ms;
};

static int take(void *arg, int option)
{
    struct asked *a = arg;

    if (option == 's') {
        a->dir = optarg;
    } else if (option == 'a') {
        a->area = optarg;
    } else if (moment_duration(optarg, &a->for_ms) < 0) {
        fprintf(stderr, "tide-hub: --for '%s': use a time as 1h or 30min\n", optarg);
        return HUB_EXIT_USAGE;
    }
    return 0;
}

int cmd_token(int argc, char **argv)
{
    struct asked a = {.dir = STATE_DIR, .for_ms = TOKENS_FOR_S * UINT64_C(1000)};
    char token[TOKENS_TEXT_MAX];
    struct error err = {0};
    struct state s;
    int r = command_options(argc, argv, usage, options, take, &a);

    if (r)
        return r < 0 ? 0 : r;
    if (optind + 1 != argc)
        return command_wrong(usage);
    r = state_open(a.dir, &s, &err);
    if (r >= 0) {
        r = tokens_make(a.dir, argv[optind], a.area, a.for_ms / 1000, time(NULL), token, &err);
        terminal_audit_in(a.dir, "unit.token", argv[optind], &err);
        state_close(&s);
    }
    if (r >= 0)
        puts(token);
    return command_end(r, &err);
}
