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

json_t *cost_of(const struct in_force *policy, double uj, int64_t from_ms, int64_t to_ms)
{
    int64_t from_s = from_ms / 1000, to_s = to_ms / 1000, step = step_of(from_s, to_s), n = 0;
    double sum = 0;

    if (!cost_currency(policy))
        return json_null();
    for (int64_t at = from_s; at < to_s || n == 0; at += step, n++)
        sum += (double)policy_price(&policy->rules, at) / 1000;
    return json_real(uj / UJ_PER_KWH * sum / (double)n);
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
