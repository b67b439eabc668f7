/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/attribute.h"

#include "base/cleanup.h"
#include "base/devices.h"
#include "base/size.h"
#include "proto/proto.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct attribute_choice placements[] = {
    [PLACEMENT_SHARED] = {"shared", "cores overlap, threads match the share (default)"},
    [PLACEMENT_EXCLUSIVE] = {"exclusive", "cores of its own"},
    [PLACEMENT_QUOTA] = {"quota", "a hard limit of processor time"},
};
static_assert(ARRAY_LEN(placements) == PLACEMENT_MAX, "a placement without a name");

const struct attribute attribute_table[ATTRIBUTE_COUNT] = {
#define ATTRIBUTE(ID, member, ...)                                                                 \
    [ATTRIBUTE_##ID] = {.offset = offsetof(struct attributes, member), __VA_ARGS__},
#include "proto/attribute_rows.h"
#undef ATTRIBUTE
};

struct attributes attributes_usual(void)
{
    struct attributes usual;

    for (each_attribute(a))
        attribute_set(a, &usual, a->usual);
    return usual;
}

int64_t attribute_get(const struct attribute *a, const struct attributes *from)
{
    int64_t value;

    memcpy(&value, (const char *)from + a->offset, sizeof(value));
    return value;
}

void attribute_set(const struct attribute *a, struct attributes *to, int64_t value)
{
    memcpy((char *)to + a->offset, &value, sizeof(value));
}

bool attribute_holds(const struct attribute *a, int64_t value)
{
    return (value >= a->least && value <= a->most) || (a->none && value == 0);
}

const struct attribute *attribute_find(const char *key, size_t length)
{
    for (each_attribute(a))
        if (strlen(a->key) == length && strncmp(a->key, key, length) == 0)
            return a;
    return NULL;
}

bool attribute_is_of(const struct attribute *a, enum attributes_of which)
{
    return which == ATTRIBUTES_OF_START || (which == ATTRIBUTES_OF_CHANGE && !a->fixed) ||
           (which == ATTRIBUTES_OF_DOCKER && !a->docker_has);
}

const char *attribute_help(const struct attribute *a, char *buf, size_t size)
{
    if (a->kind == KIND_NUMBER && !a->none)
        snprintf(buf, size, "%s, %" PRId64 " to %" PRId64 " (default %" PRId64 ")", a->text,
                 a->least, a->most, a->usual);
    else
        snprintf(buf, size, "%s", a->text);
    return buf;
}

/* Takes only digits and a minus sign, because strtol() accepts blanks and stops anywhere. */
static int parse_number(const char *text, int64_t *ret)
{
    const char *digits = text + (*text == '-');

    if (!*digits || digits[strspn(digits, "0123456789")])
        return -EINVAL;
    errno = 0;
    *ret = strtoll(text, NULL, 10);
    return errno ? -ERANGE : 0;
}

static int parse_choice(const struct attribute *a, const char *text, int64_t *ret)
{
    for (*ret = a->least; *ret <= a->most; ++*ret)
        if (strcmp(text, a->choices[*ret].name) == 0)
            return 0;
    return -EINVAL;
}

static const struct {
    const char *name;
    int64_t us;
} promise_units[] = {{"s", 1000000}, {"ms", 1000}, {"us", 1}};

/* "p99=50ms", "p99=1.5s": three digits behind the point at most, so nothing is rounded away. */
static int parse_promise(const char *text, int64_t *ret)
{
    static const char prefix[] = "p99=";
    const char *digits = text + strlen(prefix), *point;
    size_t whole, part = 0;
    int64_t value, thousandths = 0;

    if (strncmp(text, prefix, strlen(prefix)) != 0)
        return -EINVAL;
    whole = strspn(digits, "0123456789");
    if (whole < 1 || whole > 9)
        return -EINVAL;
    value = strtoll(digits, NULL, 10);
    point = digits + whole;
    if (*point == '.') {
        part = strspn(point + 1, "0123456789");
        if (part < 1 || part > 3)
            return -EINVAL;
        thousandths = strtoll(point + 1, NULL, 10) * (part == 1 ? 100 : part == 2 ? 10 : 1);
        part++;
    }
    for (size_t i = 0; i < ARRAY_LEN(promise_units); i++) {
        if (strcmp(point + part, promise_units[i].name) != 0)
            continue;
        *ret = value * promise_units[i].us + thousandths * promise_units[i].us / 1000;
        return 0;
    }
    return -EINVAL;
}

const char *promise_text(int64_t us, char buf[PROMISE_TEXT_MAX])
{
    size_t i = 0;

    while (promise_units[i].us > 1 && us % promise_units[i].us)
        i++;
    snprintf(buf, PROMISE_TEXT_MAX, "p99=%" PRId64 "%s", us / promise_units[i].us,
             promise_units[i].name);
    return buf;
}

int attribute_parse(const struct attribute *a, const char *text, int64_t *ret)
{
    uint64_t bytes = 0;
    int64_t value = 0;
    int r = -EINVAL;

    if (a->kind == KIND_NUMBER)
        r = parse_number(text, &value);
    else if (a->kind == KIND_CHOICE)
        r = parse_choice(a, text, &value);
    else if (a->kind == KIND_PROMISE)
        r = parse_promise(text, &value);
    else if (a->kind == KIND_DEVICES)
        r = devices_parse(text, &value);
    else if (a->kind == KIND_MEMORY)
        r = size_parse(text, &bytes);
    if (r < 0)
        return r;
    if (a->kind == KIND_MEMORY)
        value = (int64_t)bytes;
    if (value < a->least || value > a->most)
        return -ERANGE;
    *ret = value;
    return 0;
}

const char *attribute_choices(const struct attribute *a, const char *last, char *buf, size_t size)
{
    size_t n = 0;

    *buf = '\0';
    for (int64_t i = a->least; i <= a->most && n < size; i++)
        n += (size_t)snprintf(buf + n, size - n, "%s%s",
                              i == a->least  ? ""
                              : i == a->most ? last
                                             : ", ",
                              a->choices[i].name);
    return buf;
}

const char *placement_name(enum placement placement)
{
    return placements[placement].name;
}

int placement_parse(const char *text, enum placement *ret)
{
    int64_t value;
    int r = attribute_parse(&attribute_table[ATTRIBUTE_PLACEMENT], text, &value);

    if (r == 0)
        *ret = (enum placement)value;
    return r;
}
