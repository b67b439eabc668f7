/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exact comparisons of slopes and areas of demand curves, and the reduction of a curve that comes
 * point by point. Private to this room.
 */
#pragma once

#include <stdbool.h>

#include "base/minmax.h"
#include "power/division/demand.h"

__extension__ typedef unsigned __int128 demand_wide;

/* Points of the curve so far; more than DEMAND_POINTS so that an early choice is no bad one. */
#define DEMAND_OPEN_POINTS 32
struct demand_open {
    struct demand_point point[DEMAND_OPEN_POINTS];
    uint32_t count;
};

/*
 * Adds a point behind the last one. Points that no longer lie above the line between their
 * neighbours go: rounded values stay a concave curve.
 */
void demand_open_add(struct demand_open *open, uint64_t uw, uint64_t value);
void demand_open_close(struct demand_open *open, struct demand *ret);
