/* SPDX-License-Identifier: Apache-2.0 */
/* Curves, readings and steps for tests of the keeper of a cap. */
#pragma once

#include "power/cap/keeper.h"
#include "power/model/watts.h"

#define W      UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)

static inline struct watts curve_of(uint64_t idle_uw, uint64_t full_uw, uint32_t cores,
                                    uint32_t error)
{
    /* Concave: two thirds of the way at half the load. */
    return (struct watts){.point = {{0, idle_uw},
                                    {cores * 500, idle_uw + (full_uw - idle_uw) * 2 / 3},
                                    {cores * 1000, full_uw}},
                          .count = 3,
                          .error_permille = error,
                          .basis = POWER_MODELLED};
}

static inline struct power_range measured(uint64_t uw)
{
    return (struct power_range){uw, uw - uw / 100, uw + uw / 100, POWER_MEASURED};
}

/* A machine of two cores, one of them busy, with a meter and a quota. */
static inline struct keeper_input two_cores(const struct watts *curve, uint64_t cap_uw)
{
    return (struct keeper_input){.now_ns = SECOND,
                                 .cap_uw = cap_uw,
                                 .machine_ns = SECOND,
                                 .sensed = true,
                                 .load_mcpu = 1000,
                                 .cores = 2,
                                 .watts = curve,
                                 .quota = true};
}
