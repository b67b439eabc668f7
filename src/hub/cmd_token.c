/* SPDX-License-Identifier: Apache-2.0 */
#include "base/moment.h"
#include "hub/command.h"
#include "hub/people/terminal.h"
#include "hub/trust/state.h"
#include "hub/trust/tokens.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#define ERROR_WORD "usage"

static const char usage[] =
    "Usage: tide-hub token NAME [--area AREA] [--broker HOST[:PORT]] [--for TIME] [--state DIR]\n"
    "       tide-hub token NAME --unit UNIT [--for TIME] [--state DIR]\n"
    "\n"
    "Prints a one-time token with which the unit NAME is enrolled, or, with --unit, a machine "
    "below\n"
    "that unit. On its machine:\n"
    "\n"
    "  tide-power enrol https://HUB:8443 TOKEN\n"
    "\n"
    "  --area AREA   where it stands, as unlp/lab3: goes into the policy when the token is used\n"
    "  --broker HOST the unit has a broker of its own there, for its machines: its certificate is\n"
    "                for HOST, too ('tide-power broker'); port 8883 unless named\n"
    "  --unit UNIT   the machine speaks through the broker of UNIT, and has its leases from it\n"
    "  --for TIME    how long the token is good, at most 30d; default 1h\n"
    "  --state DIR   the hub's directory; default /var/lib/tide-hub\n"
    "\n"
    "Whoever has the token can be that unit: pass it on as you would a password.\n";

static const struct option options[] = {{"area", required_argument, NULL, 'a'},
                                        {"broker", required_argument, NULL, 'b'},
                                        {"unit", required_argument, NULL, 'u'},
                                        {"for", required_argument, NULL, 'f'},
                                        {"state", required_argument, NULL, 's'},
                                        {"help", no_argument, NULL, 'h'},
                                        {0}};

struct asked {
    const char *dir, *area, *unit;
    struct token token;
    uint64_t for_ms;
};

static int take(void *arg, int option)
{
    struct asked *a = arg;

    if (option == 's') {
        a->dir = optarg;
    } else if (option == 'a') {
        a->area = optarg;
    } else if (option == 'u') {
        a->unit = optarg;
    } else if (option == 'b') {
        if (area_broker_read(optarg, a->token.broker) < 0) {
            fprintf(stderr, "tide-hub: --broker '%.100s': use HOST or HOST:PORT\n", optarg);
            return HUB_EXIT_USAGE;
        }
    } else if (moment_duration(optarg, &a->for_ms) < 0) {
        error_print("usage", "tide-hub: --for '%s': use a time as 1h or 30min", optarg);
        return HUB_EXIT_USAGE;
    }
    return 0;
}

static int copy(const char *text, char *ret, size_t size, struct error *err)
{
    return !text || (size_t)snprintf(ret, size, "%s", text) < size
               ? 0
               : error_set(err, -EINVAL, "'%.70s…' is too long", text);
}

static int fill(struct asked *a, const char *name, struct error *err)
{
    int r = copy(name, a->token.name, sizeof(a->token.name), err);

    if (r == 0)
        r = copy(a->area, a->token.area, sizeof(a->token.area), err);
    if (r == 0)
        r = copy(a->unit, a->token.unit, sizeof(a->token.unit), err);
    a->token.until_s =
        a->for_ms / 1000 > TOKENS_FOR_MAX ? TOKENS_FOR_MAX + 1 : (int64_t)(a->for_ms / 1000);
    return r;
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
    r = fill(&a, argv[optind], &err);
    if (r >= 0)
        r = state_open(a.dir, &s, &err);
    if (r >= 0) {
        r = tokens_make_for(a.dir, &a.token, time(NULL), token, &err);
        terminal_audit_in(a.dir, "unit.token", argv[optind], &err);
        state_close(&s);
    }
    if (r >= 0)
        puts(token);
    return command_end(r, &err);
}
