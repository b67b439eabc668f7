/* SPDX-License-Identifier: Apache-2.0 */
#include "power/model/watts.h"

#include "base/minmax.h"
#include "base/muldiv.h"

/* The line's value, rounded down; it never falls with the load. */
static uint64_t line_at(const struct watts *w, uint32_t load_mcpu)
{
    uint32_t i = 1;

    if (w->count == 1)
        return w->point[0].uw;
    while (i + 1 < w->count && w->point[i].load_mcpu <= load_mcpu)
        i++;
    const struct watts_point *to = &w->point[i], *from = to - 1;
    return smaller_u64(from->uw + mul_div(to->uw - from->uw, load_mcpu - from->load_mcpu,
                                          to->load_mcpu - from->load_mcpu),
                       POWER_UW_MAX);
}

struct power_range watts_at(const struct watts *w, uint32_t load_mcpu)
{
    struct power_range ret = {.basis = w->basis};
    uint64_t error;

    if (w->count == 0)
        return (struct power_range){0};
    ret.uw = line_at(w, load_mcpu < WATTS_LOAD_MAX ? load_mcpu : WATTS_LOAD_MAX);
    error = mul_div_up(ret.uw, w->error_permille, 1000);
    ret.low_uw = sub_sat(ret.uw, error);
    ret.high_uw = smaller_u64(ret.uw + error, POWER_UW_MAX);
    return ret;
}

uint32_t watts_load(const struct watts *w, uint64_t uw, bool surely)
{
    uint32_t fits = 0, above = WATTS_LOAD_MAX + 1;

    if (w->count == 0)
        return 0;
    /* 30 steps; both bounds rise with the load. */
    while (above - fits > 1) {
        uint32_t middle = fits + (above - fits) / 2;
        struct power_range p = watts_at(w, middle);

        if ((surely ? p.high_uw : p.uw) <= uw)
            fits = middle;
        else
            above = middle;
    }
    return fits;
}

void watts_shift(struct watts *w, int64_t bias_uw)
{
    for (uint32_t i = 0; i < w->count; i++) {
        uint64_t uw = w->point[i].uw;

        w->point[i].uw = bias_uw < 0 ? sub_sat(uw, -(uint64_t)bias_uw)
                                     : smaller_u64(add_sat(uw, (uint64_t)bias_uw), POWER_UW_MAX);
    }
}
