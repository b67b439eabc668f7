/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/serve/cost.h"

#define QUARTER_S  900
#define QUARTERS   4096 /* of a longer time, as many are looked at */
#define UJ_PER_KWH 3.6e12

const char *cost_currency(const struct in_force *policy)
{
    return policy && *policy->rules.tariff.currency ? policy->rules.tariff.currency : NULL;
}

static int64_t step_of(int64_t from_s, int64_t to_s)
{
    int64_t step = (to_s - from_s) / QUARTERS / QUARTER_S * QUARTER_S;

    return step > QUARTER_S ? step : QUARTER_S;
}

double cost_price(const struct in_force *policy, int64_t from_ms, int64_t to_ms)
{
    int64_t step_ms = step_of(from_ms / 1000, to_ms / 1000) * 1000, next_ms;
    double sum = 0;

    if (!cost_currency(policy))
        return -1;
    to_ms = to_ms > from_ms ? to_ms : from_ms + 1;
    for (int64_t at_ms = from_ms; at_ms < to_ms; at_ms = next_ms) {
        next_ms = (at_ms / step_ms + 1) * step_ms;
        next_ms = next_ms < to_ms ? next_ms : to_ms;
        sum += (double)policy_price(&policy->rules, at_ms / 1000 / QUARTER_S * QUARTER_S) *
               (double)(next_ms - at_ms);
    }
    return sum / (double)(to_ms - from_ms);
}

double cost_of(const struct in_force *policy, double uj, int64_t from_ms, int64_t to_ms)
{
    return cost_currency(policy) ? uj / UJ_PER_KWH * cost_price(policy, from_ms, to_ms) / 1000 : 0;
}

json_t *cost_json(const struct in_force *policy, double cost)
{
    return cost_currency(policy) ? json_real(cost) : json_null();
}

json_t *cost_prices(const struct in_force *policy, int64_t from_ms, int64_t to_ms)
{
    int64_t from_s = from_ms / 1000, to_s = to_ms / 1000, step = step_of(from_s, to_s);
    uint64_t last = RULE_UNKNOWN;
    json_t *list = json_array();

    if (!cost_currency(policy))
        return list;
    for (int64_t at = from_s; at < to_s && json_array_size(list) < COST_PRICES_MAX;
         at = at / step * step + step) {
        uint64_t price = policy_price(&policy->rules, at);

        if (price != last)
            json_array_append_new(list, json_pack("{s:I,s:f}", "from_ms", (json_int_t)at * 1000,
                                                  "amount", (double)price / 1000));
        last = price;
    }
    return list;
}
