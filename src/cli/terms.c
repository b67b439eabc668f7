/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/terms.h"

#include "base/clock.h"
#include "base/moment.h"
#include "base/size.h"
#include "host/cgroup/cgroup.h"
#include "proto/proto.h"

#include <assert.h>
#include <string.h>

#define MEMORY_MIN (1 << 20) /* bytes; the daemon takes no less */

/* In the order of TERM_…. Numbers have a range; the others are read by functions of their own. */
static const struct {
    const char *option;
    long min, max;
} table[] = {
    {"--min", 1, PROTO_THREADS_MAX},
    {"--max", 1, PROTO_THREADS_MAX},
    {"--weight", CGROUP_WEIGHT_MIN, CGROUP_WEIGHT_MAX},
    {"--priority", -PROTO_PRIORITY_MAX, PROTO_PRIORITY_MAX},
    {"--deadline", 0, 0},
    {"--class", 0, PROTO_CLASS_MAX},
    {"--request", 1, PROTO_THREADS_MAX},
    {"--placement", 0, 0},
    {"--memory", 0, 0},
};
static_assert(ARRAY_LEN(table) == TERM_END - TERM_MIN, "an entry for each term");

static int read_deadline(const struct command *cmd, const char *value, json_t **ret)
{
    uint64_t at_ms;

    if (moment_parse(value, clock_real_ms(), &at_ms) < 0)
        return cli_usage(
            cmd, "--deadline: '%s' is no time (90s, 10min, 2h, 1h30min from now, or 18:30)", value);
    *ret = json_real((double)at_ms / 1000);
    return CLI_OK;
}

static int read_placement(const struct command *cmd, const char *value, json_t **ret)
{
    static const char *const placements[] = {"shared", "exclusive", "quota"};

    for (size_t i = 0; i < ARRAY_LEN(placements); i++) {
        if (strcmp(value, placements[i]) == 0) {
            *ret = json_string(value);
            return CLI_OK;
        }
    }
    return cli_usage(cmd, "--placement: '%s' is none of shared, exclusive and quota", value);
}

static int read_memory(const struct command *cmd, const char *value, json_t **ret)
{
    uint64_t bytes;

    if (size_parse(value, &bytes) < 0)
        return cli_usage(cmd, "--memory: '%s' is no amount of memory (512M, 1.5G)", value);
    if (bytes < MEMORY_MIN)
        return cli_usage(cmd, "--memory: %s is less than a MiB (write %sM?)", value, value);
    *ret = json_integer((json_int_t)bytes);
    return CLI_OK;
}

static int read_value(const struct command *cmd, int option, const char *value, json_t **ret)
{
    size_t i = (size_t)(option - TERM_MIN);
    long number;
    int r;

    if (strcmp(value, "none") == 0 &&
        (option == TERM_DEADLINE || option == TERM_REQUEST || option == TERM_MEMORY)) {
        *ret = json_null();
        return CLI_OK;
    }
    if (option == TERM_DEADLINE)
        return read_deadline(cmd, value, ret);
    if (option == TERM_PLACEMENT)
        return read_placement(cmd, value, ret);
    if (option == TERM_MEMORY)
        return read_memory(cmd, value, ret);
    r = option_number(cmd, value, table[i].option, table[i].min, table[i].max, &number);
    if (r == CLI_OK)
        *ret = json_integer(number);
    return r;
}

int terms_find(const char *name, size_t length)
{
    for (size_t i = 0; i < TERM_MEMORY - TERM_MIN; i++)
        if (strlen(table[i].option + 2) == length &&
            strncmp(table[i].option + 2, name, length) == 0)
            return TERM_MIN + (int)i;
    return 0;
}

int terms_set(const struct command *cmd, int option, const char *value, json_t **terms)
{
    json_t *read = NULL;
    int r = read_value(cmd, option, value, &read);

    if (r != CLI_OK)
        return r;
    if (!*terms)
        *terms = json_object();
    if (json_object_set_new(*terms, table[option - TERM_MIN].option + 2, read) < 0)
        return cli_error(cmd, CLI_FAILED, NULL, "out of memory");
    return CLI_OK;
}

int terms_take(const struct command *cmd, int option, json_t **terms, bool *ret_mine)
{
    *ret_mine = option >= TERM_MIN && option < TERM_END;
    return *ret_mine ? terms_set(cmd, option, optarg, terms) : CLI_OK;
}

int terms_check(const struct command *cmd, const json_t *terms)
{
    long min = member_long(terms, "min"), max = member_long(terms, "max");

    if (min && max && min > max)
        return cli_usage(cmd, "--min %ld is above --max %ld", min, max);
    return CLI_OK;
}
