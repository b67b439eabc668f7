/* SPDX-License-Identifier: Apache-2.0 */
#include "power/division/demand.h"

#include <errno.h>
#include <stdbool.h>

#include "power/division/demand_shape.h"

/* Less than 0: the slope from @a to @b is less than the one from @b to @c. */
static int bend(const struct demand_point *a, const struct demand_point *b,
                const struct demand_point *c)
{
    demand_wide before = (demand_wide)(b->value - a->value) * (c->uw - b->uw);
    demand_wide behind = (demand_wide)(c->value - b->value) * (b->uw - a->uw);

    return (before > behind) - (before < behind);
}

int demand_check(const struct demand *d)
{
    const struct demand_point *p = d->point;

    if (d->count == 0 || d->count > DEMAND_POINTS || p[0].value != 0)
        return -EINVAL;
    for (uint32_t i = 0; i < d->count; i++) {
        if (p[i].uw > DEMAND_MAX || p[i].value > DEMAND_MAX)
            return -EINVAL;
        if (i >= 1 && (p[i].uw <= p[i - 1].uw || p[i].value <= p[i - 1].value))
            return -EINVAL;
        if (i >= 2 && bend(&p[i - 2], &p[i - 1], &p[i]) < 0)
            return -EINVAL;
    }
    return 0;
}

/* Twice the area between the curve over three points and the line from the first to the third. */
static demand_wide area_lost(const struct demand_point *p)
{
    return (demand_wide)(p[1].value - p[0].value) * (p[2].uw - p[1].uw) -
           (demand_wide)(p[2].value - p[1].value) * (p[1].uw - p[0].uw);
}

static void drop_cheapest(struct demand_open *open)
{
    demand_wide least = 0;
    uint32_t cheapest = 0;

    for (uint32_t i = 1; i + 1 < open->count; i++) {
        demand_wide lost = area_lost(&open->point[i - 1]);

        if (cheapest == 0 || lost < least) {
            least = lost;
            cheapest = i;
        }
    }
    open->count--;
    for (uint32_t i = cheapest; i < open->count; i++)
        open->point[i] = open->point[i + 1];
}

void demand_open_add(struct demand_open *open, uint64_t uw, uint64_t value)
{
    struct demand_point *p = open->point;

    if (open->count && uw <= p[open->count - 1].uw)
        return;
    while (open->count >= 2 &&
           bend(&p[open->count - 2], &p[open->count - 1], &(struct demand_point){uw, value}) <= 0)
        open->count--;
    if (open->count == DEMAND_OPEN_POINTS)
        drop_cheapest(open);
    p[open->count++] = (struct demand_point){uw, value};
}

/* A last point that adds no value goes: watts without value are nobody's demand. */
void demand_open_close(struct demand_open *open, struct demand *ret)
{
    while (open->count > 1 &&
           open->point[open->count - 1].value == open->point[open->count - 2].value)
        open->count--;
    while (open->count > DEMAND_POINTS)
        drop_cheapest(open);
    *ret = (struct demand){.count = open->count};
    for (uint32_t i = 0; i < open->count; i++)
        ret->point[i] = open->point[i];
}

void demand_reduce(const struct demand_point *steps, size_t n, struct demand *ret)
{
    struct demand_open open;

    open.count = 0;
    for (size_t i = 0; i < n; i++)
        demand_open_add(&open, steps[i].uw, steps[i].value);
    demand_open_close(&open, ret);
}
