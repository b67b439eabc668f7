/* SPDX-License-Identifier: Apache-2.0 */
#include "power/model/prior.h"
#include "power/model/watts.h"
#include "test_random.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "test_watts.h"

#define W    UINT64_C(1000000)
#define RUNS 2000

static struct watts line_of(uint64_t idle_uw, uint64_t full_uw, uint32_t full_mcpu, uint32_t error)
{
    return (struct watts){.point = {{0, idle_uw}, {full_mcpu, full_uw}},
                          .count = 2,
                          .error_permille = error,
                          .basis = POWER_MODELLED};
}

static struct watts random_curve(void)
{
    struct watts w = {.count = 1 + random_below(WATTS_POINTS),
                      .error_permille = random_below(one_in(4) ? WATTS_ERROR_MAX : 200),
                      .basis = POWER_MODELLED};
    uint64_t uw = random_below(200) * W;
    uint32_t load = 0;

    for (uint32_t i = 0; i < w.count; i++) {
        w.point[i] = (struct watts_point){load, uw};
        load += 1 + random_below(one_in(3) ? 100000000 : 8000);
        uw += one_in(4) ? 0 : one_in(8) ? random_below(1000) * 1000 * W / 8 : random_below(50 * W);
    }
    return w;
}

static void nothing_known_has_no_power(void **state)
{
    struct watts none = {0};

    (void)state;
    assert_curve(&none);
    assert_int_equal(watts_at(&none, 1000).basis, POWER_UNKNOWN);
    assert_int_equal(watts_load(&none, 100 * W, false), 0);
}

static void power_lies_on_the_line_and_its_error_around_it(void **state)
{
    struct watts w = line_of(40 * W, 120 * W, 4000, 50);
    struct power_range p = watts_at(&w, 1000);

    (void)state;
    assert_int_equal(p.uw, 60 * W);
    assert_int_equal(p.low_uw, 57 * W);
    assert_int_equal(p.high_uw, 63 * W);
    assert_int_equal(p.basis, POWER_MODELLED);
    assert_int_equal(watts_at(&w, 6000).uw, 160 * W); /* faster than the base frequency */
}

static void load_under_a_power_is_the_largest_one(void **state)
{
    struct watts w = line_of(40 * W, 120 * W, 4000, 50);

    (void)state;
    assert_int_equal(watts_load(&w, 60 * W, false), 1000);
    assert_int_equal(watts_load(&w, 63 * W, true), 1000);
    assert_int_equal(watts_load(&w, 63 * W - 1, true), 999);
    assert_int_equal(watts_load(&w, 39 * W, false), 0);
    w = line_of(40 * W, 40 * W, 4000, 0);
    assert_int_equal(watts_load(&w, 40 * W, false), WATTS_LOAD_MAX);
}

static void load_and_power_agree_on_every_curve(void **state)
{
    (void)state;
    random_state = 1;
    for (int i = 0; i < RUNS; i++) {
        struct watts w = random_curve();
        uint32_t load = random_below(2 * w.point[w.count - 1].load_mcpu + 1000) % WATTS_LOAD_MAX;
        struct power_range at = watts_at(&w, load), next = watts_at(&w, load + 1);

        assert_curve(&w);
        assert_true(at.low_uw <= at.uw && at.uw <= at.high_uw && at.high_uw <= POWER_UW_MAX);
        assert_true(at.uw <= next.uw && at.low_uw <= next.low_uw && at.high_uw <= next.high_uw);
        for (int surely = 0; surely < 2; surely++) {
            uint64_t uw = surely ? at.high_uw : at.uw;
            uint32_t fits = watts_load(&w, uw, surely);
            struct power_range p = watts_at(&w, fits), above = watts_at(&w, fits + 1);

            assert_true(fits >= load);
            assert_true((surely ? p.high_uw : p.uw) <= uw);
            if (fits < WATTS_LOAD_MAX)
                assert_true((surely ? above.high_uw : above.uw) > uw);
        }
    }
}

static void a_shifted_curve_is_a_curve(void **state)
{
    static const int64_t extremes[] = {INT64_MIN, INT64_MAX, 0, -1, 1};

    (void)state;
    random_state = 2;
    for (int i = 0; i < RUNS; i++) {
        struct watts w = random_curve(), before = w;
        int64_t bias = i < 5 ? extremes[i] : (int64_t)random_below(400 * W) - (int64_t)(200 * W);

        watts_shift(&w, bias);
        assert_curve(&w);
        if (bias >= -(int64_t)before.point[0].uw && bias < (int64_t)W)
            assert_int_equal(w.point[0].uw, before.point[0].uw + (uint64_t)bias);
    }
}

static void an_assumed_machine_has_a_wide_error_and_never_0_watts(void **state)
{
    struct watts w;
    unsigned found = 0;

    (void)state;
    for (uint32_t year = 2000; year < 2030; year++)
        for (uint32_t sockets = 0; sockets <= 9; sockets++) {
            int r = prior_watts(year, sockets, 16, &w);

            if (r == -ENOENT)
                continue;
            assert_int_equal(r, 0);
            found++;
            assert_true(year >= PRIOR_YEAR_FIRST && sockets > 0);
            assert_curve(&w);
            assert_int_equal(w.basis, POWER_ASSUMED);
            assert_in_range(w.error_permille, 100, 999);
            assert_true(watts_at(&w, 0).low_uw > 0);
            assert_true(watts_at(&w, 16000).uw > watts_at(&w, 0).uw);
            assert_int_equal(w.point[w.count - 1].load_mcpu, 16000);
        }
    assert_true(found > 60);
}

static void a_curve_between_two_points_goes_through_them(void **state)
{
    struct watts w;

    (void)state;
    assert_int_equal(prior_shape(2019, 40 * W, 180 * W, 8, &w), 0);
    assert_curve(&w);
    assert_int_equal(watts_at(&w, 0).uw, 40 * W);
    assert_int_equal(watts_at(&w, 8000).uw, 180 * W);
    assert_int_equal(w.basis, POWER_MODELLED);
    assert_string_equal(w.source, "idle and full, SPECpower's curve of 2019");
    assert_int_equal(prior_shape(2019, 40 * W, 39 * W, 8, &w), -EINVAL);
    assert_int_equal(prior_shape(2019, 40 * W, POWER_UW_MAX + 1, 8, &w), -EINVAL);
    assert_int_equal(prior_shape(2019, 40 * W, 180 * W, 0, &w), -EINVAL);
    assert_int_equal(prior_shape(2003, 40 * W, 180 * W, 8, &w), -ENOENT);
    assert_int_equal(prior_shape(2019, 40 * W, 40 * W, WATTS_LOAD_MAX / 1000, &w), 0);
    assert_curve(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_known_has_no_power),
        cmocka_unit_test(power_lies_on_the_line_and_its_error_around_it),
        cmocka_unit_test(load_under_a_power_is_the_largest_one),
        cmocka_unit_test(load_and_power_agree_on_every_curve),
        cmocka_unit_test(a_shifted_curve_is_a_curve),
        cmocka_unit_test(an_assumed_machine_has_a_wide_error_and_never_0_watts),
        cmocka_unit_test(a_curve_between_two_points_goes_through_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
