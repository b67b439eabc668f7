/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/compile/amount.h"

#include "power/rules/rules.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct unit {
    const char *name;
    uint64_t factor; /* of the smallest unit */
};

static const struct unit powers[] = {
    {"mW", 1000}, {"W", 1000000}, {"kW", 1000000000}, {"MW", 1000000000000}};
static const struct unit budgets[] = {
    {"Wh/day", 3600000000}, {"kWh/day", 3600000000000}, {"MWh/day", 3600000000000000}};
static const struct unit shares[] = {{"%", 10}};
static const struct unit carbons[] = {{"g/kWh", 1}};

/* Digits, a point and at most nine further digits; *ret_rest is behind blanks. */
static int read_number(const char *text, uint64_t *ret_whole, uint64_t *ret_part,
                       uint64_t *ret_scale, const char **ret_rest)
{
    uint64_t whole = 0, part = 0, scale = 1;

    if (!isdigit((unsigned char)*text))
        return -EINVAL;
    for (; isdigit((unsigned char)*text); text++) {
        if (whole > UINT64_MAX / 100)
            return -EINVAL;
        whole = whole * 10 + (uint64_t)(*text - '0');
    }
    if (*text == '.') {
        if (!isdigit((unsigned char)*++text))
            return -EINVAL;
        for (; isdigit((unsigned char)*text); text++) {
            if (scale == 1000000000)
                return -EINVAL;
            scale *= 10;
            part = part * 10 + (uint64_t)(*text - '0');
        }
    }
    while (*text == ' ')
        text++;
    *ret_whole = whole;
    *ret_part = part;
    *ret_scale = scale;
    *ret_rest = text;
    return 0;
}

/* Refuses an amount that is no multiple of the smallest unit: nobody means a tenth of a uW. */
static int scaled(uint64_t whole, uint64_t part, uint64_t scale, uint64_t factor, uint64_t max,
                  uint64_t *ret)
{
    uint64_t step = factor % scale == 0 ? factor / scale : 0, sum;

    if (part && !step) {
        /* as 0.25 g: reduce the fraction */
        while (part % 10 == 0 && scale > 1) {
            part /= 10;
            scale /= 10;
        }
        if (factor % scale != 0)
            return -EINVAL;
        step = factor / scale;
    }
    if (__builtin_mul_overflow(whole, factor, &sum) ||
        __builtin_add_overflow(sum, part * step, &sum) || sum > max)
        return -EINVAL;
    *ret = sum;
    return 0;
}

static int read_amount(const char *text, const struct unit *units, size_t n, uint64_t max,
                       uint64_t *ret)
{
    uint64_t whole, part, scale;
    const char *rest;

    if (read_number(text, &whole, &part, &scale, &rest) < 0)
        return -EINVAL;
    for (size_t i = 0; i < n; i++)
        if (strcmp(rest, units[i].name) == 0)
            return scaled(whole, part, scale, units[i].factor, max, ret);
    return -EINVAL;
}

int amount_power(const char *text, uint64_t *ret_uw)
{
    return read_amount(text, powers, 4, RULE_AMOUNT_MAX, ret_uw);
}

int amount_budget(const char *text, uint64_t *ret_uj)
{
    return read_amount(text, budgets, 3, RULE_AMOUNT_MAX, ret_uj);
}

int amount_share(const char *text, uint64_t *ret_permille)
{
    return read_amount(text, shares, 1, 1000, ret_permille);
}

int amount_carbon(const char *text, uint64_t *ret_g)
{
    return read_amount(text, carbons, 1, 100000, ret_g);
}

int amount_price(const char *text, const char *currency, uint64_t *ret_milli)
{
    char name[CURRENCY_MAX + 8];
    struct unit unit = {name, 1000};

    snprintf(name, sizeof(name), "%s/kWh", currency);
    return read_amount(text, &unit, 1, 1000000000, ret_milli);
}

/* The number in the largest unit of which there is at least one, without zeros behind. */
static void write_amount(uint64_t amount, const struct unit *units, size_t n,
                         char ret[AMOUNT_TEXT_MAX])
{
    const struct unit *u = &units[0];
    uint64_t rest;
    char part[24];
    int len;

    for (size_t i = 0; i < n; i++)
        if (amount >= units[i].factor)
            u = &units[i];
    rest = amount % u->factor; /* in thousand-millionths of the unit, without an overflow */
    rest =
        u->factor <= 10000000000 ? rest * 1000000000 / u->factor : rest / (u->factor / 1000000000);
    len = snprintf(part, sizeof(part), "%09" PRIu64, rest);
    while (len > 0 && part[len - 1] == '0')
        part[--len] = '\0';
    snprintf(ret, AMOUNT_TEXT_MAX, "%" PRIu64 "%s%s %s", amount / u->factor, len > 0 ? "." : "",
             part, u->name);
}

void amount_power_text(uint64_t uw, char ret[AMOUNT_TEXT_MAX])
{
    write_amount(uw, powers, uw < 1000000 ? 1 : uw < 10000000000 ? 2 : 4, ret);
}

void amount_budget_text(uint64_t uj, char ret[AMOUNT_TEXT_MAX])
{
    write_amount(uj, budgets, 3, ret);
}

void amount_share_text(uint64_t permille, char ret[AMOUNT_TEXT_MAX])
{
    write_amount(permille, shares, 1, ret);
}
