/* SPDX-License-Identifier: Apache-2.0 */
/* Makes curves of power (power/model/watts.h), for tests that need one. */
#pragma once

#include "power/model/watts.h"

static inline void assert_curve(const struct watts *w)
{
    assert_true(w->count <= WATTS_POINTS && w->error_permille <= WATTS_ERROR_MAX);
    assert_true(w->basis < POWER_BASIS_MAX && (w->count == 0) == (w->basis == POWER_UNKNOWN));
    assert_int_equal(w->source[WATTS_SOURCE_MAX - 1], '\0');
    for (uint32_t i = 0; i < w->count; i++) {
        const struct watts_point *p = &w->point[i];

        assert_true(p->uw <= POWER_UW_MAX && p->load_mcpu <= WATTS_LOAD_MAX);
        if (i == 0)
            assert_int_equal(p->load_mcpu, 0);
        else
            assert_true(p->load_mcpu > p[-1].load_mcpu && p->uw >= p[-1].uw);
    }
}
