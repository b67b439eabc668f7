/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/terms.h"

#include "base/clock.h"
#include "base/moment.h"
#include "base/size.h"

#include <assert.h>
#include <string.h>

void terms_options(const struct command *cmd, const struct option *own,
                   struct option ret[TERMS_OPTIONS_MAX])
{
    size_t n = 0;

    for (each_attribute(a))
        if (attribute_is_of(a, cmd->takes))
            ret[n++] = (struct option){a->key, required_argument, NULL,
                                       TERM_FIRST + (int)(a - attribute_table)};
    do {
        assert(n < TERMS_OPTIONS_MAX);
        ret[n++] = *own;
    } while (own++->name);
}

const struct attribute *terms_of_docker(const char *name, size_t length)
{
    const struct attribute *a = attribute_find(name, length);

    return a && attribute_is_of(a, ATTRIBUTES_OF_DOCKER) ? a : NULL;
}

static int refuse(const struct command *cmd, const struct attribute *a, const char *value, int why)
{
    char buf[64];

    if (a->kind == KIND_CHOICE)
        return cli_usage(cmd, "--%s: '%s' is none of %s", a->key, value,
                         attribute_choices(a, " and ", buf, sizeof(buf)));
    if (a->kind == KIND_PROMISE)
        return cli_usage_as(cmd, "bad-promise",
                            "--%s: '%s' is no promise (p99=50ms, from p99=1ms to p99=60s)", a->key,
                            value);
    if (a->kind == KIND_DEVICES)
        return cli_usage_as(cmd, "bad-devices",
                            "--%s: '%s' is no list of devices (nvidia=1, or nvidia=2,uverbs=1; "
                            "kinds are nvidia, render, accel, uverbs and vfio)",
                            a->key, value);
    if (a->kind == KIND_MEMORY && why == -ERANGE)
        return cli_usage_as(cmd, "bad-memory",
                            "--%s: %s is less than 1 MiB (sizes have units: 512M, 2G)", a->key,
                            value);
    if (a->kind == KIND_MEMORY)
        return cli_usage_as(cmd, "bad-memory", "--%s: '%s' is no amount of memory (512M, 1.5G)",
                            a->key, value);
    if (a->kind == KIND_MOMENT)
        return cli_usage_as(cmd, "bad-time",
                            "--%s: '%s' is no time (90s, 10min, 2h, 1h30min from now, or 18:30)",
                            a->key, value);
    snprintf(buf, sizeof(buf), "--%s", a->key);
    return option_number(cmd, value, buf, a->least, a->most, &(long){0});
}

static int read_value(const struct attribute *a, const char *text, int64_t *ret)
{
    uint64_t at_ms;
    int r;

    if (a->kind != KIND_MOMENT)
        return attribute_parse(a, text, ret);
    r = moment_parse(text, clock_real_ms(), &at_ms);
    if (r == 0)
        *ret = (int64_t)at_ms;
    return r;
}

int terms_set(const struct command *cmd, const struct attribute *a, const char *value,
              json_t **terms)
{
    bool none = a->none_word && strcmp(value, "none") == 0;
    int64_t read = 0;
    int r = none ? 0 : read_value(a, value, &read);
    json_t *json;

    if (r < 0)
        return refuse(cmd, a, value, r);
    if (none)
        json = json_null();
    else if (a->kind == KIND_MOMENT)
        json = json_real((double)read / 1000);
    else if (a->kind == KIND_PROMISE || a->kind == KIND_DEVICES)
        json = json_string(value); /* as it was written: the daemon reads the same */
    else
        json = a->kind == KIND_CHOICE ? json_string(a->choices[read].name) : json_integer(read);
    if (!*terms)
        *terms = json_object();
    if (json_object_set_new(*terms, a->key, json) < 0)
        return cli_no_memory(cmd);
    return CLI_OK;
}

int terms_take(const struct command *cmd, int option, json_t **terms, bool *ret_mine)
{
    *ret_mine = option >= TERM_FIRST && option < TERM_END;
    return *ret_mine ? terms_set(cmd, &attribute_table[option - TERM_FIRST], optarg, terms)
                     : CLI_OK;
}

int terms_check(const struct command *cmd, const json_t *terms)
{
    long min = member_long(terms, "min"), max = member_long(terms, "max");

    if (min && max && min > max)
        return cli_usage_as(cmd, "min-above-max", "--min %ld is above --max %ld", min, max);
    return CLI_OK;
}
