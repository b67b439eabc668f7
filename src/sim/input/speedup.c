/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/input/speedup.h"

#include "base/cleanup.h"
#include "policy/model/curve.h"

#include <math.h>
#include <string.h>

#define MOST_PERMILLE 4000000000.0 /* of a measured point; fits into the table's entries */

/* Allocates a curve, its table and room for its envelope in one block. */
static struct sim_curve *curve_new(uint32_t count, uint32_t **ret_table)
{
    struct sim_curve *curve = calloc(1, sizeof(*curve) + 2 * (size_t)count * sizeof(uint32_t));

    if (!curve)
        return NULL;
    *ret_table = (uint32_t *)(curve + 1);
    curve->speedup_permille = *ret_table;
    curve->count = count;
    return curve;
}

/* Amdahl's law needs this, too: rounding to thousandths makes dents in the flat end. */
static struct sim_curve *with_envelope(struct sim_curve *curve, uint32_t *table)
{
    uint32_t *envelope = table + curve->count;

    curve_envelope(table, curve->count, envelope);
    if (memcmp(table, envelope, curve->count * sizeof(*table)) != 0)
        curve->envelope_permille = envelope;
    return curve;
}

struct sim_curve *speedup_amdahl(int64_t parallel, int64_t contention, uint32_t count)
{
    uint32_t *table;
    struct sim_curve *curve = curve_new(count, &table);

    if (!curve)
        return NULL;
    for (uint64_t k = 1; k <= count; k++) {
        uint64_t time = (uint64_t)SPEEDUP_UNIT + (uint64_t)(SPEEDUP_UNIT - parallel) * (k - 1) +
                        (uint64_t)contention * (k * (k - 1));
        uint64_t speed = (k * 1000 * (uint64_t)SPEEDUP_UNIT + time / 2) / time;

        table[k - 1] = speed ? (uint32_t)speed : 1;
    }
    return with_envelope(curve, table);
}

/* Speed with @k cores between the two points around it; the last is at or before *at. */
static double between(const uint32_t *cores, const double *speed, size_t points, uint32_t k,
                      size_t *at)
{
    while (*at + 1 < points && cores[*at + 1] <= k)
        (*at)++;
    if (*at + 1 == points)
        return speed[*at];
    return speed[*at] +
           (speed[*at + 1] - speed[*at]) * (k - cores[*at]) / (cores[*at + 1] - cores[*at]);
}

struct sim_curve *speedup_measured(const uint32_t *cores, const double *speed, size_t points,
                                   uint32_t count)
{
    uint32_t *table;
    struct sim_curve *curve = curve_new(count, &table);
    size_t at = 0;

    if (!curve)
        return NULL;
    for (uint32_t k = 1; k <= count; k++) {
        double permille = round(1000 * between(cores, speed, points, k, &at) / speed[0]);

        table[k - 1] = (uint32_t)fmin(fmax(permille, 1), MOST_PERMILLE);
    }
    return with_envelope(curve, table);
}

/* ---- sets ------------------------------------------------------------------------------------ */

/* Returns the place of @parallel, present or not. */
static size_t set_find(const struct speedup_set *set, int64_t parallel)
{
    size_t low = 0, high = set->count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (set->entries[middle].parallel < parallel)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int speedup_set_get(struct speedup_set *set, int64_t parallel, const struct sim_curve **ret_curve)
{
    size_t at = set_find(set, parallel);
    struct speedup_entry *entries;
    struct sim_curve *curve;

    if (at < set->count && set->entries[at].parallel == parallel) {
        *ret_curve = set->entries[at].curve;
        return 0;
    }
    if ((set->count + 1) * set->cores > SPEEDUP_ENTRIES_MAX)
        return -E2BIG;
    /* Doubles the room at powers of two. */
    if ((set->count & (set->count - 1)) == 0) {
        entries = reallocarray(set->entries, set->count ? 2 * set->count : 1, sizeof(*entries));
        if (!entries)
            return -ENOMEM;
        set->entries = entries;
    }
    curve = speedup_amdahl(parallel, 0, set->cores);
    if (!curve)
        return -ENOMEM;
    memmove(&set->entries[at + 1], &set->entries[at], (set->count - at) * sizeof(*set->entries));
    set->entries[at] = (struct speedup_entry){parallel, curve};
    set->count++;
    *ret_curve = curve;
    return 0;
}

void speedup_set_done(struct speedup_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        free(set->entries[i].curve);
    free(set->entries);
    *set = (struct speedup_set){0};
}
