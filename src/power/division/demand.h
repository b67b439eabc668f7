/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The demand of a machine or an area for watts: a concave curve from power to value, in at most
 * eight points. A child sends its curve up; its parent divides a cap by such curves (divide.h) and
 * sends their sum to its own parent. Value has the unit of src/policy/division/worth.h: weight
 * times thousandths of one core's speed. Pure; any thread. Used by src/edge, src/unit, src/hub,
 * src/daemon.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define DEMAND_POINTS 8
#define DEMAND_MAX    (UINT64_C(1) << 50) /* of watts (1.1 GW in uW) and of value; sums end there */

struct demand_point {
    uint64_t uw, value;
};

/*
 * Both members of the points rise, and the slopes fall or stay. Point 0 is the power that is drawn
 * without any job's work; its value is 0. Between two points the curve is straight.
 */
struct demand {
    struct demand_point point[DEMAND_POINTS];
    uint32_t count; /* 0: the child told nothing */
};

/* Checks a curve that came from a file or a message. Returns 0 or -EINVAL. */
int demand_check(const struct demand *d);

/*
 * Reduces @n >= 1 points of a concave curve, by rising uw, to DEMAND_POINTS: again and again the
 * point goes whose absence costs the least value, summed over all caps that could come. First and
 * last point stay. The result lies on or below the curve, so it promises nothing that is not there.
 * O(n).
 */
void demand_reduce(const struct demand_point *steps, size_t n, struct demand *ret);
