/* SPDX-License-Identifier: Apache-2.0 */
#include "power/calendar/budget.h"

#include "base/muldiv.h"

#define HOUR_S    3600
#define UNIT      1000 /* weight of the dearest hour */
#define DAY_HOURS 25   /* of the longest ordinary day, when the date is not known */

/* The day's remaining seconds times the weights of their hours; 0: the day is over. */
static uint64_t weighted_left_s(const struct budget *b, int64_t now_utc_s, int64_t *ret_hour)
{
    int64_t hour = (now_utc_s - b->begin_utc_s) / HOUR_S;
    uint64_t weighted_s = 0;

    if (now_utc_s < b->begin_utc_s || now_utc_s >= b->end_utc_s || hour >= BUDGET_HOURS)
        return 0;
    *ret_hour = hour;
    for (int64_t h = hour; h < BUDGET_HOURS; h++) {
        int64_t from = b->begin_utc_s + h * HOUR_S, to = from + HOUR_S;

        from = from > now_utc_s ? from : now_utc_s;
        to = to < b->end_utc_s ? to : b->end_utc_s;
        if (to > from)
            weighted_s += (uint64_t)(to - from) * b->weight[h];
    }
    return weighted_s;
}

uint64_t budget_cap_uw(const struct budget *b, int64_t now_utc_s)
{
    int64_t hour = 0;
    uint64_t weighted_s = weighted_left_s(b, now_utc_s, &hour), cap;

    if (weighted_s == 0)
        return b->floor_uw;
    cap = mul_div(sub_sat(b->day_uj, b->used_uj), b->weight[hour], weighted_s);
    return cap > b->floor_uw ? cap : b->floor_uw;
}

uint64_t budget_of_cap_uj(const struct budget *b, int64_t now_utc_s, uint64_t cap_uw)
{
    int64_t hour = 0;
    uint64_t weighted_s = weighted_left_s(b, now_utc_s, &hour);

    return weighted_s && b->weight[hour] ? mul_div(cap_uw, weighted_s, b->weight[hour]) : 0;
}

uint64_t budget_flat_uw(uint64_t day_uj, uint64_t floor_uw)
{
    uint64_t flat = day_uj / (DAY_HOURS * HOUR_S);

    return flat > floor_uw ? flat : floor_uw;
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
