/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/input/value.h"

#include "base/suggest.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "bad-scenario"

#define WORDS_MAX 16

struct unit {
    const char *name;
    double factor; /* number of base units */
};

/* Larger units stand behind smaller ones; an entry without a name ends each list. */
static const struct unit durations[] = {{"ns", 1},     {"us", 1e3},   {"ms", 1e6},    {"s", 1e9},
                                        {"min", 6e10}, {"h", 3.6e12}, {"d", 8.64e13}, {0}};
static const struct unit bytes[] = {{"", 1},       {"K", 0x1p10}, {"M", 0x1p20},
                                    {"G", 0x1p30}, {"T", 0x1p40}, {0}};
static const struct unit watts[] = {{"W", 1e6}, {0}};
static const struct unit none[] = {{0}};

static const struct kind {
    const char *what; /* stands behind "is no" */
    double factor;    /* factor of a bare number */
    const struct unit *units;
} kinds[] = {
    [VALUE_COUNT] = {"whole number", 1, none},
    [VALUE_DURATION] = {"duration (seconds, or with ns, us, ms, s, min, h, d)", 1e9, durations},
    [VALUE_BYTES] = {"number of bytes (or with K, M, G, T)", 1, bytes},
    [VALUE_POWER] = {"power (watts)", 1e6, watts},
    [VALUE_FACTOR] = {"number", 1e3, none},
    [VALUE_FRACTION] = {"number from 0 to 1", 1e9, none},
    [VALUE_WORD] = {"word that is known here", 1, none},
    [VALUE_DEVICES] = {"list of devices (nvidia=1, or nvidia=2,uverbs=1)", 1, none},
};
static_assert(sizeof(kinds) / sizeof(kinds[0]) == VALUE_KIND_MAX, "one entry for each kind");

static size_t word_count(const struct value_type *type)
{
    size_t n = 0;

    while (type->words && type->words[n])
        n++;
    return n;
}

static int no_value(const struct value_type *type, const char *text, struct error *err)
{
    const char *near = suggest_nearest(text, type->words, word_count(type));
    char list[128] = "";
    size_t length = 0;

    for (size_t i = 0; i < word_count(type) && length < sizeof(list); i++)
        length += (size_t)snprintf(list + length, sizeof(list) - length, "%s%s", i ? ", " : "",
                                   type->words[i]);
    if (type->kind == VALUE_WORD)
        return error_set(err, -EINVAL, "'%.40s' is none of %s%s%s%s", text, list,
                         near ? ": did you mean '" : "", near ? near : "", near ? "'?" : "");
    return error_set(err, -EINVAL, "'%.40s' is no %s%s%s", text, kinds[type->kind].what,
                     *list ? ", nor one of: " : "", list);
}

/* @number of units of @factor; a message quotes @text. */
static int take(const struct value_type *type, double number, double factor, const char *text,
                int64_t *ret_value, struct error *err)
{
    double units = number * factor;
    char low[VALUE_TEXT_MAX], high[VALUE_TEXT_MAX];

    if (type->kind == VALUE_WORD || type->kind == VALUE_DEVICES || !isfinite(units) ||
        (type->kind == VALUE_COUNT && units != floor(units)))
        return no_value(type, text, err);
    /* 2^63 as a double is exact, INT64_MAX is not */
    if (units < -0x1p63 || units >= 0x1p63 || llround(units) < type->min ||
        llround(units) > type->max)
        return error_set(err, -EINVAL, "%.40s is out of range: %s to %s", text,
                         value_text(type, type->min, low), value_text(type, type->max, high));
    *ret_value = llround(units);
    return 0;
}

int value_from_number(const struct value_type *type, double number, int64_t *ret_value,
                      struct error *err)
{
    char text[VALUE_TEXT_MAX];

    snprintf(text, sizeof(text), "%.15g", number);
    return take(type, number, kinds[type->kind].factor, text, ret_value, err);
}

int value_from_text(const struct value_type *type, const char *text, int64_t *ret_value,
                    struct error *err)
{
    const struct kind *kind = &kinds[type->kind];
    char *end = NULL;
    double number;

    for (size_t i = 0; i < word_count(type); i++)
        if (strcmp(text, type->words[i]) == 0) {
            *ret_value = type->first_word + (int64_t)i;
            return 0;
        }
    if (type->kind == VALUE_DEVICES && devices_parse(text, ret_value) == 0)
        return 0;
    /* Refuses the other forms of strtod(): blanks, inf, nan, hexadecimal. */
    if (!isdigit((unsigned char)text[strspn(text, "+-.")]) || strpbrk(text, "xX"))
        return no_value(type, text, err);
    number = strtod(text, &end);
    if (*end == '\0')
        return take(type, number, kind->factor, text, ret_value, err);
    for (const struct unit *unit = kind->units; unit->name; unit++)
        if (strcmp(end, unit->name) == 0)
            return take(type, number, unit->factor, text, ret_value, err);
    return no_value(type, text, err);
}

int64_t value_round(const struct value_type *type, double units)
{
    double grain = type->kind == VALUE_DURATION ? 1e3 : type->kind == VALUE_FRACTION ? 1e6 : 1;
    double value = round(units / grain) * grain;

    /* True also for NaN, which compares false. */
    if (!(value > (double)type->min))
        return type->min;
    return value < (double)type->max ? (int64_t)value : type->max;
}

const char *value_text(const struct value_type *type, int64_t value, char buf[VALUE_TEXT_MAX])
{
    const struct kind *kind = &kinds[type->kind];
    const char *name = "";
    double factor = kind->factor;

    for (const struct unit *unit = kind->units; unit->name; unit++)
        if (value && unit->factor <= fabs((double)value)) {
            name = unit->name;
            factor = unit->factor;
        }
    if (value >= type->first_word && value < type->first_word + (int64_t)word_count(type))
        snprintf(buf, VALUE_TEXT_MAX, "%s", type->words[value - type->first_word]);
    else if (type->kind == VALUE_DEVICES)
        devices_text(value, buf);
    else
        snprintf(buf, VALUE_TEXT_MAX, "%.12g%s", (double)value / factor, name);
    return buf;
}
