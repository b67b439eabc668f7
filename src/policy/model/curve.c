/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/model/curve.h"

/* ---- envelope -------------------------------------------------------------------------------- */

/* Returns the rise of the table per step between two of its places, rounded down. */
static int64_t slope(const uint32_t *table, uint32_t from, uint32_t to)
{
    int64_t rise = (int64_t)table[to] - table[from];
    int64_t run = (int64_t)to - from;

    return rise / run - (rise % run < 0);
}

/* True if the corner @b lies on or below the line from @a to @c. */
static bool is_covered(const uint32_t *table, uint32_t a, uint32_t b, uint32_t c)
{
    int64_t to_b = (int64_t)table[b] - table[a];
    int64_t to_c = (int64_t)table[c] - table[a];

    return to_b * ((int64_t)c - a) <= to_c * ((int64_t)b - a);
}

/* Finds the corners of the upper hull, the stack of Andrew's monotone chain; returns how many. */
static uint32_t find_corners(const uint32_t *table, uint32_t count, uint32_t *corner)
{
    uint32_t n = 0;

    for (uint32_t k = 0; k < count; k++) {
        while (n >= 2 && is_covered(table, corner[n - 2], corner[n - 1], k))
            n--;
        corner[n++] = k;
    }
    return n;
}

/*
 * Between two corners the hull rises by a fraction, but steps are integers. Neighbouring edges
 * whose slopes lie between the same integers m and m + 1 are replaced together: by the line of
 * slope m + 1 through their left end and that of slope m through their right end.
 *
 * The corners are kept in the result itself: corner i is never left of place i, and what is written
 * from the right end lies right of every corner that is still to be read.
 */
void curve_envelope(const uint32_t *table, uint32_t count, uint32_t *ret_envelope)
{
    uint32_t *corner = ret_envelope;
    uint32_t left;

    if (count == 0)
        return;
    left = find_corners(table, count, corner) - 1;
    while (left > 0) {
        uint32_t right = left--;
        int64_t m = slope(table, corner[left], corner[right]);
        int64_t a, b;

        while (left > 0 && slope(table, corner[left - 1], corner[left]) == m)
            left--;
        a = corner[left];
        b = corner[right];
        for (int64_t k = b; k > a; k--) {
            int64_t rising = table[a] + (m + 1) * (k - a);
            int64_t level = table[b] - m * (b - k);

            ret_envelope[k] = (uint32_t)(rising < level ? rising : level);
        }
    }
    ret_envelope[0] = table[0];
}

/* ---- speed ----------------------------------------------------------------------------------- */

/* 1 / (0.1 + 0.9 / k) */
static uint64_t guess(uint64_t cores)
{
    return cores * 10 * 1000 / (cores + 9);
}

static uint64_t speed_with(const struct policy_curve *curve, uint64_t cores)
{
    if (curve->count == 0)
        return guess(cores);
    return curve->speedup_permille[(cores < curve->count ? cores : curve->count) - 1];
}

uint64_t curve_speed(const struct policy_curve *curve, int64_t mcpu)
{
    uint64_t cores = mcpu > 0 ? (uint64_t)mcpu / POLICY_CORE_MCPU : 0;
    int64_t part = mcpu > 0 ? mcpu % POLICY_CORE_MCPU : 0;
    int64_t below, above;

    if (cores > POLICY_CORES_MAX)
        return speed_with(curve, POLICY_CORES_MAX);
    below = cores ? (int64_t)speed_with(curve, cores) : 0;
    above = (int64_t)speed_with(curve, cores + 1);
    return (uint64_t)(below + (above - below) * part / POLICY_CORE_MCPU);
}
