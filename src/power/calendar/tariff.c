/* SPDX-License-Identifier: Apache-2.0 */
#include "power/calendar/tariff.h"

uint64_t tariff_price(const struct policy_tariff *t, const struct zone *const *zone, int64_t utc_s)
{
    if (!t->currency[0])
        return UINT64_MAX;
    for (uint32_t i = 0; i < t->count; i++) {
        const struct window *w = &t->window[i].window;

        if (!zone_known(zone[w->zone]))
            return UINT64_MAX;
        if (window_open(w, zone[w->zone], utc_s))
            return t->window[i].milli;
    }
    return t->milli;
}
