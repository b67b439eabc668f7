/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Divides a cap over machines or areas by what each would do with the watts (demand.h). First come
 * the floors, then the steepest parts of all curves: the sum of value is the largest that the cap
 * allows, but for a twentieth of what the last parts served are worth. Merging curves
 * (sup-convolution) is associative, so a tree of parents reaches the same value as one parent of
 * all, but for that and for the reduction of merged curves to eight points.
 * Pure; any thread. Used by src/unit and src/hub.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "power/division/demand.h"

struct divide_child {
    const struct demand *demand; /* checked; NULL or without points: the child gets its floor */
    uint64_t floor_uw;           /* given before anything else */
    uint64_t most_uw;            /* the child may not draw more; 0: no bound */
    uint64_t fixed_uw;           /* not 0: the child takes this, whatever it is told */
};

/* The bytes of scratch, aligned as uint64_t, that @count children need. */
size_t divide_bytes(uint32_t count);

/*
 * ret_uw[i] becomes the power of child i. After floors and fixed powers, each child gets what it
 * draws without work (point 0 of its curve), by index; then the steepest parts of the curves are
 * served. Where the watts end, parts whose slopes differ by less than about a twentieth share them,
 * the steeper more of its width than the flatter: a curve that moves a little moves the shares a
 * little, and equal slopes get equal parts of their widths. Watts that no curve wants are
 * *ret_left_uw. O(n).
 * Returns 0, or -ENOSPC: floors and fixed powers alone exceed the cap (nothing is written).
 */
int divide_cap(uint64_t cap_uw, const struct divide_child *child, uint32_t count, void *scratch,
               uint64_t *ret_uw, uint64_t *ret_left_uw);

/*
 * The curve of the parent: what all children together would do with watts. Sums end at DEMAND_MAX.
 */
void divide_merge(const struct divide_child *child, uint32_t count, void *scratch,
                  struct demand *ret);
