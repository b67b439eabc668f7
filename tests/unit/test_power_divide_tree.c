/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Division of a cap over groups with caps of their own, in random trees: no group gets more than
 * its cap, no leaf less than its floor, and where no group has a cap it is the flat division.
 */
#include "power/division/divide_tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GROUPS 6
#define LEAVES 12
#define TURNS  20000

static uint64_t state;
static struct divide_group group[GROUPS];
static struct divide_leaf leaf[LEAVES];
static struct demand demand[LEAVES];
static uint32_t groups, leaves;
static uint64_t uw[LEAVES];
static void *scratch;

static uint64_t random_below(uint64_t bound)
{
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % bound;
}

static void draw_demand(struct demand *d)
{
    uint64_t slope = 1000 + random_below(1000);

    d->count = 2 + (uint32_t)random_below(DEMAND_POINTS - 1);
    d->point[0] = (struct demand_point){random_below(50), 0};
    for (uint32_t i = 1; i < d->count; i++) {
        uint64_t width = 1 + random_below(80);

        d->point[i].uw = d->point[i - 1].uw + width;
        d->point[i].value = d->point[i - 1].value + width * slope;
        slope -= random_below(slope / 3);
    }
    assert_int_equal(demand_check(d), 0);
}

static bool lies_in(uint32_t g, uint32_t top)
{
    while (g != top && g != DIVIDE_NO_GROUP)
        g = g ? group[g].parent : DIVIDE_NO_GROUP;
    return g == top;
}

static uint64_t floors_of(uint32_t g)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < leaves; i++)
        sum += lies_in(leaf[i].group, g) ? leaf[i].child.floor_uw : 0;
    return sum;
}

static uint64_t sum_of(uint32_t g)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < leaves; i++)
        sum += lies_in(leaf[i].group, g) ? uw[i] : 0;
    return sum;
}

static void draw_tree(bool caps)
{
    groups = 1 + (uint32_t)random_below(GROUPS);
    leaves = (uint32_t)random_below(LEAVES + 1);
    for (uint32_t i = 0; i < leaves; i++) {
        bool told = random_below(4) != 0;

        draw_demand(&demand[i]);
        leaf[i] = (struct divide_leaf){
            .child = {.demand = told ? &demand[i] : NULL, .floor_uw = random_below(60)},
            .group = (uint32_t)random_below(groups),
            .rest = !told && caps && random_below(2)};
        if (caps && random_below(4) == 0)
            leaf[i].child.most_uw = leaf[i].child.floor_uw + random_below(200) + 1;
    }
    for (uint32_t g = 0; g < groups; g++)
        group[g] =
            (struct divide_group){g ? (uint32_t)random_below(g) : DIVIDE_NO_GROUP, DEMAND_MAX, 0};
    for (uint32_t g = 0; g < groups; g++)
        if (g == 0 || (caps && random_below(3)))
            group[g].cap_uw = floors_of(g) + random_below(500);
}

static void no_group_gets_more_than_its_cap_and_no_leaf_less_than_its_floor(void **arg)
{
    for (state = 0; state < TURNS;) {
        uint64_t seed = state;

        state = seed * 1000;
        draw_tree(true);
        if (random_below(8) == 0)
            group[0].cap_uw = DEMAND_MAX;
        divide_tree(group, groups, leaf, leaves, scratch, uw, NULL);
        for (uint32_t i = 0; i < leaves; i++) {
            if (uw[i] < leaf[i].child.floor_uw)
                fail_msg("seed %lu: leaf %u gets %lu", seed, i, uw[i]);
            if (leaf[i].child.most_uw && uw[i] > leaf[i].child.most_uw)
                fail_msg("seed %lu: leaf %u gets %lu, above its most", seed, i, uw[i]);
        }
        for (uint32_t g = 0; g < groups; g++)
            if (group[g].cap_uw < DEMAND_MAX && sum_of(g) > group[g].cap_uw)
                fail_msg("seed %lu: group %u gets %lu of %lu", seed, g, sum_of(g), group[g].cap_uw);
        state = seed + 1;
    }
}

static uint64_t value_of(uint32_t i, uint64_t got)
{
    const struct demand *d = leaf[i].child.demand;

    for (uint32_t p = 1; d && p < d->count; p++) {
        const struct demand_point *x = &d->point[p - 1], *y = &d->point[p];

        if (got <= x->uw)
            return x->value;
        if (got < y->uw)
            return x->value + (y->value - x->value) * (got - x->uw) / (y->uw - x->uw);
    }
    return d ? d->point[d->count - 1].value : 0;
}

static uint64_t value_of_all(void)
{
    uint64_t value = 0;

    for (uint32_t i = 0; i < leaves; i++)
        value += value_of(i, uw[i]);
    return value;
}

/* Merged curves have eight points, so a little of the flat division's value may be missing. */
static void without_caps_of_groups_it_is_the_flat_division(void **arg)
{
    uint64_t tree = 0, flat = 0;

    for (uint64_t seed = 0; seed < 2000; seed++) {
        state = seed * 1000 + 7;
        draw_tree(false);
        divide_tree(group, groups, leaf, leaves, scratch, uw, NULL);
        tree += value_of_all();
        for (uint32_t i = 0; i < leaves; i++)
            leaf[i].group = 0;
        divide_tree(group, 1, leaf, leaves, scratch, uw, NULL);
        flat += value_of_all();
    }
    assert_true(tree <= flat + flat / 1000);
    assert_true(tree >= flat - flat / 100);
}

static void what_nothing_bounds_is_unbounded(void **arg)
{
    group[0] = (struct divide_group){DIVIDE_NO_GROUP, DEMAND_MAX, 0};
    group[1] = (struct divide_group){0, 100, 0};
    leaf[0] = (struct divide_leaf){.group = 0};
    leaf[1] = (struct divide_leaf){.group = 1, .rest = true};
    leaf[2] = (struct divide_leaf){.group = 1, .rest = true, .child.floor_uw = 10};
    leaf[3] = (struct divide_leaf){.group = 0, .child.most_uw = 50};
    divide_tree(group, 2, leaf, 4, scratch, uw, NULL);
    assert_int_equal(uw[0], DEMAND_MAX);
    assert_int_equal(uw[1] + uw[2], 100);
    assert_int_equal(uw[2], 55);
    assert_int_equal(uw[3], 50);
}

/* The curve upwards is that of all, so a parent of this parent divides as if it had them all. */
static void the_merged_curve_knows_the_caps_in_it(void **arg)
{
    struct demand all;

    demand[0] = (struct demand){{{10, 0}, {110, 1000}}, 2};
    group[0] = (struct divide_group){DIVIDE_NO_GROUP, DEMAND_MAX, 0};
    group[1] = (struct divide_group){0, 60, 0};
    leaf[0] = (struct divide_leaf){.group = 1, .child.demand = &demand[0]};
    divide_tree(group, 2, leaf, 1, scratch, uw, &all);
    assert_int_equal(all.count, 2);
    assert_int_equal(all.point[1].uw, 60);
    assert_int_equal(all.point[1].value, 500);
    assert_int_equal(uw[0], 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_group_gets_more_than_its_cap_and_no_leaf_less_than_its_floor),
        cmocka_unit_test(without_caps_of_groups_it_is_the_flat_division),
        cmocka_unit_test(what_nothing_bounds_is_unbounded),
        cmocka_unit_test(the_merged_curve_knows_the_caps_in_it),
    };
    int failed;

    scratch = malloc(divide_tree_bytes(GROUPS, LEAVES));
    failed = scratch ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
    free(scratch);
    return failed;
}
