/* SPDX-License-Identifier: Apache-2.0 */
#include "power/site/loads.h"

#define STEP_UW    UINT64_C(1000000) /* noise below a watt moves no lease */
#define FALL_SHARE 32                /* less than such a part of what counts is no change */
#define LEAST_FALL (2 * STEP_UW)
#define MOST_UW    (UINT64_C(1) << 50)

static uint64_t round_up(uint64_t uw)
{
    return uw < MOST_UW ? (uw + STEP_UW - 1) / STEP_UW * STEP_UW : MOST_UW;
}

uint64_t loads_hold(struct loads *l, uint64_t uw, uint64_t now_ns)
{
    uint64_t up = round_up(uw), least = l->held_uw / FALL_SHARE;

    least = least > LEAST_FALL ? least : LEAST_FALL;
    if (up >= l->held_uw || l->since_ns == 0) {
        *l = (struct loads){up, 0, now_ns ? now_ns : 1};
        return up;
    }
    if (l->most_uw < up)
        l->most_uw = up;
    if (now_ns - l->since_ns < LOADS_FALL_NS)
        return l->held_uw;
    if (l->held_uw - l->most_uw >= least || (uw == 0 && l->most_uw == 0))
        l->held_uw = l->most_uw;
    l->most_uw = up;
    l->since_ns = now_ns;
    return l->held_uw;
}
