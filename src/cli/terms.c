/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/terms.h"

#include "base/clock.h"
#include "base/moment.h"
#include "proto/proto.h"

#include <string.h>

static int read_deadline(const struct command *cmd, json_t **ret)
{
    uint64_t at_ms;

    if (moment_parse(optarg, clock_real_ms(), &at_ms) < 0)
        return cli_usage(cmd,
                         "--deadline: '%s' is no time (90s, 10min, 2h, 1h30min from now, or 18:30)",
                         optarg);
    *ret = json_real((double)at_ms / 1000);
    return CLI_OK;
}

static int read_number(const struct command *cmd, const char *name, long min, long max,
                       json_t **ret)
{
    long value;
    int r = option_number(cmd, optarg, name, min, max, &value);

    if (r == CLI_OK)
        *ret = json_integer(value);
    return r;
}

int terms_take(const struct command *cmd, int option, json_t **terms, bool *ret_mine)
{
    static const char *const keys[] = {"priority", "deadline", "class", "request"};
    json_t *value = NULL;
    int r;

    *ret_mine = option >= TERM_PRIORITY && option <= TERM_REQUEST;
    if (!*ret_mine)
        return CLI_OK;
    if (strcmp(optarg, "none") == 0 && (option == TERM_DEADLINE || option == TERM_REQUEST)) {
        value = json_null();
        r = CLI_OK;
    } else if (option == TERM_DEADLINE) {
        r = read_deadline(cmd, &value);
    } else if (option == TERM_PRIORITY) {
        r = read_number(cmd, "--priority", -PROTO_PRIORITY_MAX, PROTO_PRIORITY_MAX, &value);
    } else if (option == TERM_CLASS) {
        r = read_number(cmd, "--class", 0, PROTO_CLASS_MAX, &value);
    } else {
        r = read_number(cmd, "--request", 1, PROTO_THREADS_MAX, &value);
    }
    if (r != CLI_OK)
        return r;
    if (!*terms)
        *terms = json_object();
    if (json_object_set_new(*terms, keys[option - TERM_PRIORITY], value) < 0)
        return cli_error(cmd, CLI_FAILED, NULL, "out of memory");
    return CLI_OK;
}
