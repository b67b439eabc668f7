/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of energy by the prices when it came in, beside the sums of days. */
#include "hub/store/store_state.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COST_MAX 4e18 /* billionths */

/* A thousandth a kWh is a billionth for 3.6 J. */
bool store_cost(const struct store *s, uint64_t uj, int64_t from_ms, int64_t to_ms, uint64_t *ret)
{
    double milli = s->price ? s->price(s->price_arg, from_ms, to_ms) : -1;
    double cost = (double)uj * milli / 3600000;

    if (milli < 0)
        return false;
    *ret = (uint64_t)(cost < COST_MAX ? cost + 0.5 : COST_MAX);
    return true;
}

int64_t store_quarter_price(const struct store *s, int64_t from_ms)
{
    double milli =
        s->price ? s->price(s->price_arg, from_ms, from_ms + STEP_QUARTER * INT64_C(1000)) : -1;

    return milli < 0 ? -1 : (int64_t)(milli + 0.5);
}

/* Returns 1: @text names another currency, or none. */
static int costs_since(const char *text, const char *currency, int64_t *ret_ms)
{
    char *rest;
    int64_t ms = strtoll(text, &rest, 10);

    if (*rest != ' ' || strcmp(rest + 1, currency) != 0)
        return 1;
    *ret_ms = ms;
    return 0;
}

int store_prices(struct store *s, const char *currency, store_price *price, void *arg,
                 int64_t now_ms, struct error *err)
{
    char text[NOTE_MAX] = "";
    int64_t since_ms = 0;
    int r;

    s->price = currency ? price : NULL;
    s->price_arg = arg;
    if (!currency)
        return 0;
    r = store_note(s, NOTE_COSTS, text);
    if (r < 0 && r != -ENOENT)
        return store_said(s, r, "read since when there are costs", err);
    if (r == 0 && costs_since(text, currency, &s->costs_ms) == 0)
        return 0;
    if (r == 0) /* what was counted is in another currency */
        store_day(s, now_ms, &since_ms);
    snprintf(text, sizeof(text), "%" PRId64 " %s", since_ms, currency);
    r = store_begin(s, err);
    if (r < 0)
        return r;
    s->failed = store_set_note(s, NOTE_COSTS, text);
    r = store_commit(s, err);
    if (r == 0)
        s->costs_ms = since_ms;
    return r;
}
