/* SPDX-License-Identifier: Apache-2.0 */
#include "power/measure/amount.h"

#include "base/muldiv.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#define DIGITS_MAX 18 /* of the whole number: it fits into 63 bits */

static const struct {
    const char *name;
    enum amount_kind kind;
    uint64_t micro;
} units[] = {
    {"", AMOUNT_PLAIN, 1000000},
    {"uW", AMOUNT_POWER, 1},
    {"mW", AMOUNT_POWER, 1000},
    {"W", AMOUNT_POWER, 1000000},
    {"kW", AMOUNT_POWER, 1000000000},
    {"MW", AMOUNT_POWER, UINT64_C(1000000000000)},
    {"uJ", AMOUNT_ENERGY, 1},
    {"mJ", AMOUNT_ENERGY, 1000},
    {"J", AMOUNT_ENERGY, 1000000},
    {"kJ", AMOUNT_ENERGY, 1000000000},
    {"MJ", AMOUNT_ENERGY, UINT64_C(1000000000000)},
    {"Wh", AMOUNT_ENERGY, UINT64_C(3600000000)},
    {"kWh", AMOUNT_ENERGY, UINT64_C(3600000000000)},
    {"MWh", AMOUNT_ENERGY, UINT64_C(3600000000000000)},
};

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static const char *skip_blanks(const char *p)
{
    while (blank(*p))
        p++;
    return p;
}

/* Reads digits into *value; false if there are too many. */
static bool digits(const char **p, uint64_t *value, unsigned *count)
{
    for (; **p >= '0' && **p <= '9'; (*p)++) {
        if (*value > 0 || **p > '0')
            ++*count;
        if (*count > DIGITS_MAX)
            return false;
        *value = *value * 10 + (uint64_t)(**p - '0');
    }
    return true;
}

/* The number as @value / @below. Further digits of the fraction than fit are skipped. */
static int read_number(const char **p, uint64_t *value, uint64_t *below)
{
    const char *begin = *p;
    unsigned count = 0;

    *value = 0;
    *below = 1;
    if (!digits(p, value, &count))
        return -ERANGE;
    if (*p == begin)
        return -EINVAL;
    if (**p != '.')
        return 0;
    begin = ++*p;
    for (; **p >= '0' && **p <= '9'; (*p)++)
        if (count < DIGITS_MAX && *below < UINT64_C(1000000000000)) {
            *value = *value * 10 + (uint64_t)(**p - '0');
            *below *= 10;
            count += *value > 0;
        }
    return *p > begin ? 0 : -EINVAL;
}

int amount_parse(const char *text, uint64_t *ret_micro, enum amount_kind *ret_kind)
{
    const char *p = skip_blanks(text), *end;
    uint64_t value, below, micro;
    size_t len;
    int r = read_number(&p, &value, &below);

    if (r < 0)
        return r;
    p = skip_blanks(p);
    for (end = p; *end && !blank(*end); end++)
        ;
    len = (size_t)(end - p);
    if (*skip_blanks(end))
        return -EINVAL;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        const char *name = units[i].name;
        size_t k = 0;

        while (k < len && name[k] == p[k])
            k++;
        if (k < len || name[k])
            continue;
        micro = mul_div(value, units[i].micro, below);
        if (micro == UINT64_MAX)
            return -ERANGE;
        *ret_micro = micro;
        *ret_kind = units[i].kind;
        return 0;
    }
    return -EINVAL;
}
