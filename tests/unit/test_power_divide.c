/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Demand curves and the division of a cap: against every division there is, against any tree of
 * parents, and on curves with extreme numbers.
 */
#include "power/division/divide.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CHILDREN_MAX 600

__extension__ typedef unsigned __int128 wide;

static uint64_t state;
static uint64_t scratch[1 << 20];

static uint64_t random_below(uint64_t bound)
{
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % bound;
}

/* A concave curve: @parts parts of width 1…@width, slopes that fall. */
static void draw(struct demand *d, uint32_t parts, uint64_t floor, uint64_t width, uint64_t slope)
{
    struct demand_point *p = d->point;

    *d = (struct demand){.count = parts + 1};
    p[0].uw = floor;
    for (uint32_t i = 1; i <= parts; i++) {
        uint64_t step = 1 + random_below(width);

        slope = 1 + random_below(slope);
        p[i] = (struct demand_point){p[i - 1].uw + step, p[i - 1].value + step * slope};
    }
    assert_int_equal(demand_check(d), 0);
}

/* Value at @uw times the part's width is not needed: tests use slopes that are whole numbers. */
static uint64_t value_at(const struct demand *d, uint64_t uw)
{
    const struct demand_point *p = d->point;

    for (uint32_t i = 1; i < d->count; i++)
        if (uw < p[i].uw)
            return uw <= p[i - 1].uw
                       ? p[i - 1].value
                       : p[i - 1].value + (uint64_t)((wide)(p[i].value - p[i - 1].value) *
                                                     (uw - p[i - 1].uw) / (p[i].uw - p[i - 1].uw));
    return p[d->count - 1].value;
}

static uint64_t sum_of_values(const struct divide_child *child, uint32_t count, const uint64_t *uw)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < count; i++)
        sum += child[i].demand ? value_at(child[i].demand, uw[i]) : 0;
    return sum;
}

static void divide(uint64_t cap, const struct divide_child *child, uint32_t count, uint64_t *uw,
                   uint64_t *left)
{
    uint64_t sum = 0;

    assert_true(divide_bytes(count) <= sizeof(scratch));
    assert_int_equal(divide_cap(cap, child, count, scratch, uw, left), 0);
    for (uint32_t i = 0; i < count; i++) {
        sum += uw[i];
        assert_true(uw[i] >= child[i].floor_uw || child[i].most_uw || child[i].fixed_uw);
        assert_true(!child[i].most_uw || child[i].fixed_uw || uw[i] <= child[i].most_uw);
        if (child[i].fixed_uw)
            assert_int_equal(uw[i], child[i].fixed_uw);
    }
    assert_int_equal(sum + *left, cap);
}

/* ---- against every division ------------------------------------------------------------------ */

static void no_division_has_more_value(void **arg)
{
    for (uint64_t seed = 0; seed < 3000; seed++) {
        struct demand demand[3];
        struct divide_child child[3] = {0};
        uint64_t uw[3], left, cap = 0, best = 0, top[3];

        state = seed;
        for (int i = 0; i < 3; i++) {
            draw(&demand[i], (uint32_t)random_below(6), random_below(4), 3, 40);
            child[i].demand = &demand[i];
            child[i].floor_uw = demand[i].point[0].uw + random_below(4);
            child[i].most_uw = random_below(3) ? 0 : child[i].floor_uw + random_below(8);
            top[i] = child[i].most_uw ? child[i].most_uw : child[i].floor_uw + 20;
            cap += child[i].floor_uw;
        }
        cap += random_below(30);
        divide(cap, child, 3, uw, &left);
        for (uint64_t a = child[0].floor_uw; a <= top[0]; a++)
            for (uint64_t b = child[1].floor_uw; b <= top[1]; b++)
                for (uint64_t c = child[2].floor_uw; c <= top[2] && a + b + c <= cap; c++) {
                    uint64_t value = sum_of_values(child, 3, (uint64_t[]){a, b, c});

                    best = value > best ? value : best;
                }
        assert_int_equal(sum_of_values(child, 3, uw), best);
    }
}

/* ---- against any tree of parents ------------------------------------------------------------- */

struct world {
    struct demand demand[CHILDREN_MAX];
    struct divide_child child[CHILDREN_MAX];
    uint64_t uw[CHILDREN_MAX];
};

static struct world world;

/* Divides among children [from, to) through parents drawn at random. */
static void divide_tree(uint64_t cap, uint32_t from, uint32_t to)
{
    struct divide_child half[2] = {0};
    struct demand merged[2];
    uint64_t part[2], left;
    uint32_t middle;

    if (to - from == 1) {
        world.uw[from] = cap;
        return;
    }
    middle = from + 1 + (uint32_t)random_below(to - from - 1);
    divide_merge(&world.child[from], middle - from, scratch, &merged[0]);
    divide_merge(&world.child[middle], to - middle, scratch, &merged[1]);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(demand_check(&merged[i]), 0);
        half[i] = (struct divide_child){.demand = &merged[i], .floor_uw = merged[i].point[0].uw};
    }
    divide(cap, half, 2, part, &left);
    divide_tree(part[0], from, middle);
    divide_tree(part[1], middle, to);
}

static uint64_t draw_world(uint32_t count, uint32_t parts, uint64_t width, uint64_t slope)
{
    uint64_t floors = 0;

    for (uint32_t i = 0; i < count; i++) {
        draw(&world.demand[i], parts, 1 + random_below(50), width, slope);
        world.child[i] = (struct divide_child){.demand = &world.demand[i],
                                               .floor_uw = world.demand[i].point[0].uw};
        floors += world.child[i].floor_uw;
    }
    return floors;
}

/* Up to 7 parts in all, so that no merged curve is reduced: every tree is as good as no tree, but
 * for slopes that are alike, of which either may get more. */
static void a_tree_is_as_good_as_one_parent(void **arg)
{
    for (uint64_t seed = 0; seed < 2000; seed++) {
        uint64_t cap, flat, left, uw[7];
        uint32_t count;

        state = seed;
        count = 2 + (uint32_t)random_below(6);
        cap = draw_world(count, 1, 100, 50);
        cap += random_below(400);
        divide(cap, world.child, count, uw, &left);
        flat = sum_of_values(world.child, count, uw);
        divide_tree(cap, 0, count);
        assert_in_range(sum_of_values(world.child, count, world.uw), flat - flat / 32,
                        flat + flat / 32);
    }
}

/* With reduction in each of a deep tree's parents: at most a tenth is lost under any cap, near the
 * floors; a hundredth on average. */
static void reduced_curves_lose_little(void **arg)
{
    uint64_t lost_permille = 0;

    for (uint64_t seed = 0; seed < 200; seed++) {
        uint64_t cap, flat, left, uw[64];

        state = seed;
        cap = draw_world(64, 7, 20000000, 1000);
        cap += random_below(64 * 70000000ull);
        divide(cap, world.child, 64, uw, &left);
        flat = sum_of_values(world.child, 64, uw);
        divide_tree(cap, 0, 64);
        assert_true(sum_of_values(world.child, 64, world.uw) >= flat / 10 * 9);
        assert_true(sum_of_values(world.child, 64, world.uw) <= flat);
        lost_permille += 1000 - sum_of_values(world.child, 64, world.uw) * 1000 / flat;
    }
    assert_true(lost_permille / 200 <= 10);
}

/* ---- properties ------------------------------------------------------------------------------ */

static void order_of_children_does_not_matter_for_value(void **arg)
{
    for (uint64_t seed = 0; seed < 300; seed++) {
        uint32_t count = CHILDREN_MAX / 2;
        uint64_t cap, left, value;

        state = seed;
        cap = draw_world(count, 7, 1000, 30) + random_below(count * 3500);
        divide(cap, world.child, count, world.uw, &left);
        value = sum_of_values(world.child, count, world.uw);
        for (uint32_t i = count - 1; i > 0; i--) {
            uint32_t j = (uint32_t)random_below(i + 1);
            struct divide_child swap = world.child[i];

            world.child[i] = world.child[j];
            world.child[j] = swap;
        }
        divide(cap, world.child, count, world.uw, &left);
        assert_int_equal(sum_of_values(world.child, count, world.uw), value);
    }
}

/* Machines that are alike but for what was measured of them: shares follow the curves, a little. */
static void nearly_equal_curves_get_nearly_equal_amounts(void **arg)
{
    uint64_t left, width = UINT64_C(60000000);
    uint32_t count = 500;

    state = 7;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t slope = 1000000 + random_below(1000); /* a thousandth */

        world.demand[i] = (struct demand){
            .point = {{40000000, 0}, {40000000 + width, width / 1000 * slope}}, .count = 2};
        world.child[i] = (struct divide_child){.demand = &world.demand[i]};
    }
    divide(count * (40000000 + width / 4), world.child, count, world.uw, &left);
    assert_int_equal(left, 0);
    for (uint32_t i = 0; i < count; i++)
        assert_in_range(world.uw[i], 40000000 + width / 100 * 23, 40000000 + width / 100 * 27);
}

/* However much noise there is, who is steeper never gets a smaller part, and twice as steep all. */
static void shares_move_little_when_curves_do(void **arg)
{
    for (uint64_t permille = 1; permille <= 40; permille++) {
        struct demand a = {.point = {{0, 0}, {1000000, 1000000000}}, .count = 2};
        struct demand b = {.point = {{0, 0}, {1000000, 1000000 * (1000 + permille)}}, .count = 2};
        struct divide_child child[] = {{.demand = &a}, {.demand = &b}};
        uint64_t uw[2], left;

        divide(1000000, child, 2, uw, &left);
        assert_int_equal(left, 0);
        assert_true(uw[1] > uw[0]);
        assert_true(uw[1] - uw[0] <= 33000 * permille);
        b.point[1].value = 2000000000;
        divide(1000000, child, 2, uw, &left);
        assert_int_equal(uw[1], 1000000);
    }
}

/* Slopes between 2^-50 and 2^50. */
static void extreme_slopes_keep_their_order(void **arg)
{
    uint64_t left;

    for (uint32_t i = 0; i < 100; i++) {
        uint32_t j = i * 37 % 100;

        world.demand[i] = (struct demand){
            .point = {{0, 0},
                      {j < 50 ? UINT64_C(1) << (50 - j) : 1, j < 50 ? 1 : UINT64_C(1) << (j - 49)}},
            .count = 2};
        world.child[i] = (struct divide_child){.demand = &world.demand[i]};
        assert_int_equal(demand_check(&world.demand[i]), 0);
    }
    divide(50 + 6, world.child, 100, world.uw, &left); /* all with a whole slope, then 2 + 4 */
    assert_int_equal(left, 0);
    for (uint32_t i = 0; i < 100; i++) {
        uint32_t j = i * 37 % 100;

        assert_int_equal(world.uw[i], j >= 50 ? 1 : j == 49 ? 2 : j == 48 ? 4 : 0);
    }
}

/* Half of what they would like: no index is better than another. */
static void identical_machines_get_equal_amounts(void **arg)
{
    struct demand d = {.point = {{40, 0}, {61, 210}, {100, 300}}, .count = 3};
    struct divide_child child[4] = {{.demand = &d}, {.demand = &d}, {.demand = &d}, {.demand = &d}};
    uint64_t uw[4], left;

    divide(4 * 40 + 2 * 21, child, 4, uw, &left);
    assert_int_equal(left, 0);
    for (int i = 0; i < 4; i++)
        assert_in_range(uw[i], 50, 51);
    child[3].most_uw = 45; /* a narrower part gets less */
    divide(4 * 40 + 34, child, 4, uw, &left);
    assert_int_equal(uw[0], 51);
    assert_in_range(uw[3], 42, 43);
}

static void watts_without_value_are_left_over(void **arg)
{
    struct demand d = {.point = {{10, 0}, {20, 100}}, .count = 2};
    struct divide_child child[] = {{.demand = &d, .floor_uw = 5}, {.floor_uw = 7}};
    uint64_t uw[2], left;

    divide(100, child, 2, uw, &left);
    assert_int_equal(uw[0], 20);
    assert_int_equal(uw[1], 7);
    assert_int_equal(left, 73);
}

/* A machine that idles at 10 W and has a floor of 5 W: the 5 W between come before anybody's work.
 */
static void idle_power_comes_before_work(void **arg)
{
    struct demand worker = {.point = {{10, 0}, {20, 1000000}}, .count = 2};
    struct demand idler = {.point = {{10, 0}, {20, 1}}, .count = 2};
    struct divide_child child[] = {{.demand = &worker, .floor_uw = 10},
                                   {.demand = &idler, .floor_uw = 5}};
    uint64_t uw[2], left;

    divide(22, child, 2, uw, &left);
    assert_int_equal(uw[0], 12);
    assert_int_equal(uw[1], 10);
}

static void floors_above_the_cap_are_refused_untouched(void **arg)
{
    struct divide_child child[] = {{.floor_uw = 60}, {.fixed_uw = 41}};
    uint64_t uw[2] = {1, 2}, left = 3;

    assert_int_equal(divide_cap(100, child, 2, scratch, uw, &left), -ENOSPC);
    assert_int_equal(uw[0], 1);
    assert_int_equal(uw[1], 2);
    assert_int_equal(left, 3);
    child[1].fixed_uw = 40;
    divide(100, child, 2, uw, &left);
    assert_int_equal(uw[1], 40);
}

static void what_a_child_takes_anyway_is_not_divided(void **arg)
{
    struct demand d = {.point = {{0, 0}, {100, 100}}, .count = 2};
    struct divide_child child[] = {{.demand = &d}, {.demand = &d, .fixed_uw = 70}};
    uint64_t uw[2], left;

    divide(90, child, 2, uw, &left);
    assert_int_equal(uw[0], 20);
    assert_int_equal(uw[1], 70);
}

/* At its points the parent's curve is what the children reach under that cap. */
static void a_merged_curve_of_many_lies_close_below_theirs(void **arg)
{
    static uint64_t uw[CHILDREN_MAX];
    struct demand merged;
    uint64_t last;

    state = 5;
    draw_world(CHILDREN_MAX, 7, 20000000, 1000);
    divide_merge(world.child, CHILDREN_MAX, scratch, &merged);
    assert_int_equal(demand_check(&merged), 0);
    assert_int_equal(merged.count, DEMAND_POINTS);
    last = merged.point[merged.count - 1].uw;
    for (uint32_t i = 1; i < merged.count; i++) {
        uint64_t left, flat;

        divide(merged.point[i].uw, world.child, CHILDREN_MAX, uw, &left);
        flat = sum_of_values(world.child, CHILDREN_MAX, uw);
        assert_in_range(merged.point[i].value, flat - flat / 1000, flat + flat / 1000);
    }
    divide(last + 1000000, world.child, CHILDREN_MAX, uw, &last);
    assert_int_equal(last, 1000000); /* the curve ends where nobody wants more */
}

/* Sums that leave the range of a curve end there and stay curves. */
static void a_merged_curve_of_giants_is_a_curve(void **arg)
{
    struct demand merged;

    state = 3;
    for (uint32_t i = 0; i < CHILDREN_MAX; i++) {
        world.demand[i] =
            (struct demand){.point = {{DEMAND_MAX / 2, 0}, {DEMAND_MAX, DEMAND_MAX}}, .count = 2};
        world.child[i] =
            (struct divide_child){.demand = &world.demand[i], .floor_uw = DEMAND_MAX / 2};
    }
    divide_merge(world.child, CHILDREN_MAX, scratch, &merged);
    assert_int_equal(demand_check(&merged), 0);
    divide_merge(world.child, 1, scratch, &merged);
    assert_memory_equal(&merged, &world.demand[0], sizeof(merged));
    divide_merge(world.child, 0, scratch, &merged);
    assert_int_equal(demand_check(&merged), 0);
    assert_int_equal(merged.count, 1);
}

/* Bounds inside a part make values that are no whole numbers: the merged curve stays concave. */
static void rounding_keeps_a_merged_curve_concave(void **arg)
{
    for (uint64_t seed = 0; seed < 3000; seed++) {
        struct demand merged;

        state = seed;
        draw_world(12, 7, 9, 4);
        for (uint32_t i = 0; i < 12; i++) {
            struct demand *d = &world.demand[i];

            for (uint32_t p = 0; p < d->count; p++)
                d->point[p].uw = d->point[p].uw * 7 + 3; /* slopes are sevenths now */
            world.child[i].floor_uw = d->point[0].uw + random_below(40);
            world.child[i].most_uw = world.child[i].floor_uw + random_below(200);
        }
        divide_merge(world.child, 12, scratch, &merged);
        assert_int_equal(demand_check(&merged), 0);
    }
}

/* ---- curves ---------------------------------------------------------------------------------- */

static void a_reduced_curve_keeps_its_ends_and_stays_below(void **arg)
{
    for (uint64_t seed = 0; seed < 500; seed++) {
        struct demand_point steps[300];
        size_t n;
        struct demand d;
        uint64_t slope = 1000000;

        state = seed;
        n = 1 + random_below(300);
        steps[0] = (struct demand_point){random_below(1000), 0};
        for (size_t i = 1; i < n; i++) {
            uint64_t width = 1 + random_below(1000);

            slope -= random_below(3000);
            steps[i] =
                (struct demand_point){steps[i - 1].uw + width, steps[i - 1].value + width * slope};
        }
        demand_reduce(steps, n, &d);
        assert_int_equal(demand_check(&d), 0);
        assert_memory_equal(&d.point[0], &steps[0], sizeof(steps[0]));
        assert_memory_equal(&d.point[d.count - 1], &steps[n - 1], sizeof(steps[0]));
        for (size_t i = 0; i < n; i++) {
            assert_true(value_at(&d, steps[i].uw) <= steps[i].value);
            /* parabolas of eight points lie within a fiftieth of their height */
            assert_true(steps[i].value - value_at(&d, steps[i].uw) <= steps[n - 1].value / 50 + 1);
        }
    }
}

static void points_on_a_line_are_one_step(void **arg)
{
    struct demand_point steps[100];
    struct demand d;

    for (uint64_t i = 0; i < 100; i++)
        steps[i] = (struct demand_point){i * 3, i < 50 ? i * 9 : 450 + (i - 50) * 6};
    demand_reduce(steps, 100, &d);
    assert_int_equal(d.count, 3);
    assert_int_equal(d.point[1].uw, 150);
}

static void what_is_no_curve_is_refused(void **arg)
{
    static const struct demand wrong[] = {
        {.count = 0},
        {.count = DEMAND_POINTS + 1},
        {.point = {{5, 1}}, .count = 1},                          /* value at the floor */
        {.point = {{5, 0}, {5, 1}}, .count = 2},                  /* no width */
        {.point = {{5, 0}, {4, 1}}, .count = 2},                  /* backwards */
        {.point = {{5, 0}, {6, 0}}, .count = 2},                  /* no value */
        {.point = {{0, 0}, {10, 10}, {20, 21}}, .count = 3},      /* bends up */
        {.point = {{0, 0}, {DEMAND_MAX + 1, 1}}, .count = 2},     /* too much */
        {.point = {{0, 0}, {1, UINT64_MAX}, {2, 1}}, .count = 3}, /* wraps */
    };
    struct demand right = {.point = {{0, 0}, {10, 10}, {20, 20}}, .count = 3};

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(demand_check(&wrong[i]), -EINVAL);
    assert_int_equal(demand_check(&right), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_division_has_more_value),
        cmocka_unit_test(a_tree_is_as_good_as_one_parent),
        cmocka_unit_test(reduced_curves_lose_little),
        cmocka_unit_test(order_of_children_does_not_matter_for_value),
        cmocka_unit_test(nearly_equal_curves_get_nearly_equal_amounts),
        cmocka_unit_test(shares_move_little_when_curves_do),
        cmocka_unit_test(extreme_slopes_keep_their_order),
        cmocka_unit_test(identical_machines_get_equal_amounts),
        cmocka_unit_test(watts_without_value_are_left_over),
        cmocka_unit_test(idle_power_comes_before_work),
        cmocka_unit_test(floors_above_the_cap_are_refused_untouched),
        cmocka_unit_test(what_a_child_takes_anyway_is_not_divided),
        cmocka_unit_test(a_merged_curve_of_many_lies_close_below_theirs),
        cmocka_unit_test(a_merged_curve_of_giants_is_a_curve),
        cmocka_unit_test(rounding_keeps_a_merged_curve_concave),
        cmocka_unit_test(a_reduced_curve_keeps_its_ends_and_stays_below),
        cmocka_unit_test(points_on_a_line_are_one_step),
        cmocka_unit_test(what_is_no_curve_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
