/* SPDX-License-Identifier: Apache-2.0 */
#include "power/calendar/budget.h"

#include "base/muldiv.h"

#define HOUR_S 3600
#define UNIT   1000 /* weight of the dearest hour */

uint64_t budget_cap_uw(const struct budget *b, int64_t now_utc_s)
{
    uint64_t weighted_s = 0, left_uj = sub_sat(b->day_uj, b->used_uj), cap;
    int64_t hour = (now_utc_s - b->begin_utc_s) / HOUR_S;

    if (now_utc_s < b->begin_utc_s || now_utc_s >= b->end_utc_s || hour >= BUDGET_HOURS)
        return b->floor_uw;
    for (int64_t h = hour; h < BUDGET_HOURS; h++) {
        int64_t from = b->begin_utc_s + h * HOUR_S, to = from + HOUR_S;

        from = from > now_utc_s ? from : now_utc_s;
        to = to < b->end_utc_s ? to : b->end_utc_s;
        if (to > from)
            weighted_s += (uint64_t)(to - from) * b->weight[h];
    }
    if (weighted_s == 0)
        return b->floor_uw;
    cap = mul_div(left_uj, b->weight[hour], weighted_s);
    return cap > b->floor_uw ? cap : b->floor_uw;
}

void budget_weigh(const uint64_t *price, uint32_t hours, uint16_t spread, uint16_t *ret_weight)
{
    uint64_t low = UINT64_MAX, high = 0, sum = 0, known = 0;

    for (uint32_t h = 0; h < hours; h++) {
        if (!price[h])
            continue;
        low = price[h] < low ? price[h] : low;
        high = price[h] > high ? price[h] : high;
        sum = add_sat(sum, price[h]);
        known++;
    }
    for (uint32_t h = 0; h < hours; h++) {
        uint64_t p = price[h] ? price[h]
                     : known  ? sum / known
                              : 0,
                 most = spread > 64 ? 64 : spread;

        ret_weight[h] = UNIT;
        if (known && high > low && most > 1)
            ret_weight[h] +=
                (uint16_t)mul_div(high - (p < high ? p : high), UNIT * (most - 1), high - low);
    }
}
