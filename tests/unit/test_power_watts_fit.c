/* SPDX-License-Identifier: Apache-2.0 */
#include "power/model/watts_fit.h"
#include "test_random.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "test_watts.h"

#define W     UINT64_C(1000000)
#define CORES 8u

static void assert_near(uint64_t got, uint64_t want, uint32_t permille)
{
    uint64_t off = got > want ? got - want : want - got;

    if (off * 1000 > want * permille)
        fail_msg("%llu is not within %u permille of %llu", (unsigned long long)got, permille,
                 (unsigned long long)want);
}

static uint64_t noisy(uint64_t uw, uint32_t permille)
{
    return uw * (1000 - permille + random_below(2 * permille + 1)) / 1000;
}

/* A wall that draws 25 W and a tenth more than its package and a watt per core. */
static struct watts_sample wall_sample(void)
{
    struct watts_sample s = {.sensor_uw = (10 + random_below(60)) * W,
                             .busy_mcpu = random_below(CORES * 1000 + 1),
                             .speed_permille = 700 + random_below(500)};

    s.uw = 25 * W + s.sensor_uw * 11 / 10 + s.busy_mcpu * (W / 1000);
    return s;
}

static void weights_find_a_wall_behind_a_package_sensor(void **state)
{
    struct watts_fit f = {0};

    (void)state;
    random_state = 1;
    for (int i = 0; i < 300; i++) {
        struct watts_sample s = wall_sample();

        s.uw = noisy(s.uw, 5);
        watts_fit_add(&f, &s);
    }
    for (int i = 0; i < 100; i++) {
        struct watts_sample s = wall_sample();
        struct power_range p = watts_fit_at(&f, &s);

        assert_near(p.uw, s.uw, 10);
        assert_true(p.low_uw <= s.uw && s.uw <= p.high_uw);
        assert_int_equal(p.basis, POWER_CALIBRATED);
    }
    assert_int_equal(watts_fit_check(&f), 0);
}

/* A meter that tells one sample in ten of a moment of another load. */
static void samples_that_are_far_off_move_the_weights_little(void **state)
{
    struct watts_fit f = {0};
    uint64_t off = 0;

    (void)state;
    random_state = 8;
    for (int i = 0; i < 1500; i++) {
        struct watts_sample s = wall_sample();

        s.uw = noisy(s.uw, 10) + (one_in(10) ? 40 * W : 0);
        watts_fit_add(&f, &s);
    }
    for (int i = 0; i < 100; i++) {
        struct watts_sample s = wall_sample();
        uint64_t uw = watts_fit_at(&f, &s).uw;

        off += (uw > s.uw ? uw - s.uw : s.uw - uw) / 100;
    }
    assert_true(off < 5 * W / 2); /* all alike would be off by the mean, 4 W */
}

/* Each of 20 machines: nine of ten samples that it did not learn lie within, not half of the time.
 */
static void nine_of_ten_lie_within_on_nearly_every_machine(void **state)
{
    int held = 0;

    (void)state;
    random_state = 9;
    for (int machine = 0; machine < 20; machine++) {
        struct watts_fit f = {0};
        int inside = 0;

        for (int i = 0; i < 600; i++) {
            struct watts_sample s = wall_sample();

            s.uw = noisy(s.uw, 100);
            watts_fit_add(&f, &s);
        }
        for (int i = 0; i < 1000; i++) {
            struct watts_sample s = wall_sample();
            struct power_range p = watts_fit_at(&f, &s);

            s.uw = noisy(s.uw, 100);
            inside += p.low_uw <= s.uw && s.uw <= p.high_uw;
        }
        held += inside >= 900;
    }
    assert_true(held >= 18);
}

static uint64_t concave_uw(uint32_t load_mcpu)
{
    uint64_t load = load_mcpu;

    return 40 * W + 120 * W * load / (load + CORES * 500) + load * 2 * W / 1000;
}

static void knots_follow_a_concave_machine(void **state)
{
    struct watts_fit f = {0};
    struct watts w;

    (void)state;
    random_state = 2;
    for (int i = 0; i < 500; i++) {
        struct watts_sample s = {.busy_mcpu = random_below(CORES * 1000 + 1),
                                 .speed_permille = 1000};

        s.uw = noisy(concave_uw(s.busy_mcpu), 10);
        watts_fit_add(&f, &s);
    }
    assert_true(watts_fit_solve(&f, CORES * 1000, &w));
    assert_curve(&w);
    assert_int_equal(w.basis, POWER_CALIBRATED);
    assert_in_range(w.error_permille, 1, 60);
    for (uint32_t load = 0; load <= CORES * 1000; load += 500)
        assert_near(watts_at(&w, load).uw, concave_uw(load), 30);
}

static void a_curve_needs_three_loads_apart(void **state)
{
    struct watts_fit f = {0};
    struct watts w = {.count = 77};

    (void)state;
    for (int i = 0; i < 50; i++)
        for (uint32_t load = 0; load <= 4000; load += 4000)
            watts_fit_add(&f, &(struct watts_sample){.busy_mcpu = load,
                                                     .speed_permille = 1000,
                                                     .uw = 40 * W + load * W / 100});
    assert_false(watts_fit_solve(&f, CORES * 1000, &w));
    assert_int_equal(w.count, 77);
    watts_fit_add(&f,
                  &(struct watts_sample){.busy_mcpu = 2000, .speed_permille = 1000, .uw = 60 * W});
    assert_true(watts_fit_solve(&f, CORES * 1000, &w));
    assert_near(watts_at(&w, CORES * 1000).uw, 120 * W, 20); /* beyond what was seen */
    assert_int_equal(w.point[0].load_mcpu, 0);
}

/* Its readings draw a line whose idle power is far above the machine's. */
static void a_busy_machine_does_not_tell_its_idling(void **state)
{
    struct watts_fit f = {0};
    struct watts w;

    (void)state;
    for (int i = 0; i < 50; i++)
        for (uint32_t load = 5000; load <= 8000; load += 1000)
            watts_fit_add(&f, &(struct watts_sample){.busy_mcpu = load,
                                                     .speed_permille = 1000,
                                                     .uw = concave_uw(load)});
    assert_true(watts_fit_solve(&f, CORES * 1000, &w));
    assert_true(watts_at(&w, 0).uw > concave_uw(0) * 3 / 2);
    assert_false(watts_fit_knows_idle(&f, CORES * 1000));
    for (int i = 0; i < 8; i++) {
        assert_false(watts_fit_knows_idle(&f, CORES * 1000));
        watts_fit_add(&f, &(struct watts_sample){
                              .busy_mcpu = 100, .speed_permille = 1000, .uw = concave_uw(100)});
    }
    assert_true(watts_fit_knows_idle(&f, CORES * 1000));
}

static void a_steady_load_forgets_nothing_of_others(void **state)
{
    struct watts_fit f = {0};

    (void)state;
    random_state = 3;
    for (int i = 0; i < 200; i++) {
        struct watts_sample s = wall_sample();

        watts_fit_add(&f, &s);
    }
    struct watts_sample steady = wall_sample();
    for (int i = 0; i < 100000; i++)
        watts_fit_add(&f, &(struct watts_sample){steady.sensor_uw, steady.busy_mcpu,
                                                 steady.speed_permille, noisy(steady.uw, 10)});
    assert_int_equal(watts_fit_check(&f), 0);
    for (int i = 0; i < 50; i++) {
        struct watts_sample s = wall_sample();

        assert_near(watts_fit_at(&f, &s).uw, s.uw, 20);
    }
}

static void a_machine_that_changes_is_learnt_anew(void **state)
{
    struct watts_fit f = {0};

    (void)state;
    random_state = 4;
    for (int i = 0; i < 3000; i++) {
        struct watts_sample s = wall_sample();

        if (i >= 1000)
            s.uw += 15 * W; /* another fan */
        watts_fit_add(&f, &s);
    }
    for (int i = 0; i < 50; i++) {
        struct watts_sample s = wall_sample();

        /* A nearly idle machine is seen rarely here, and is learnt later. */
        assert_near(watts_fit_at(&f, &s).uw, s.uw + 15 * W, s.busy_mcpu < 2000 ? 60 : 30);
    }
}

static void before_eight_forecasts_nothing_is_said(void **state)
{
    struct watts_fit f = {0};
    struct watts_sample s;

    (void)state;
    random_state = 5;
    for (int i = 0; i < WATTS_FIT_FEATURES + 7; i++) {
        s = wall_sample();
        watts_fit_add(&f, &s);
        assert_int_equal(watts_fit_at(&f, &s).basis, POWER_UNKNOWN);
    }
    watts_fit_add(&f, &s);
    assert_int_equal(watts_fit_at(&f, &s).basis, POWER_CALIBRATED);
}

/* Whatever is read, the fit stays a fit, and what it draws is a curve. */
static void any_samples_leave_a_fit(void **state)
{
    (void)state;
    random_state = 6;
    for (int run = 0; run < 300; run++) {
        struct watts_fit f = {0}, copy;
        struct watts w;

        for (int i = 0; i < 200; i++) {
            struct watts_sample s = {.sensor_uw = one_in(3) ? 0 : random_next() >> random_below(64),
                                     .busy_mcpu =
                                         (uint32_t)(random_next() >> (32 + random_below(32))),
                                     .speed_permille = one_in(5) ? random_below(5000) : 1000,
                                     .uw = one_in(9) ? 0 : random_next() >> random_below(64)};

            watts_fit_add(&f, &s);
            watts_fit_at(&f, &s);
        }
        assert_int_equal(watts_fit_check(&f), 0);
        copy = f;
        if (watts_fit_solve(&copy, 1 + random_below(100000), &w))
            assert_curve(&w);
        assert_memory_equal(&copy, &f, sizeof(f));
    }
}

static void bytes_that_are_no_fit_are_refused(void **state)
{
    struct watts_fit good = {0}, f;

    (void)state;
    random_state = 7;
    assert_int_equal(watts_fit_check(&good), 0);
    for (int i = 0; i < 60; i++) {
        struct watts_sample s = wall_sample();

        watts_fit_add(&good, &s);
    }
    assert_int_equal(watts_fit_check(&good), 0);
    assert_true(good.knots > 2);
#define REFUSED(change) (f = good, change, assert_int_equal(watts_fit_check(&f), -EINVAL))
    REFUSED(f.version++);
    REFUSED(f.usual_w = -1);
    REFUSED(f.samples = 0);
    REFUSED(f.knots = WATTS_FIT_KNOTS + 1);
    REFUSED(f.knot[1].mcpu = -1);
    REFUSED(f.knot[0].mcpu = f.knot[1].mcpu + 1);
    REFUSED(f.knot[0].mcpu = f.knot[1].mcpu);
    REFUSED(f.weight[2] = 1e308);
    REFUSED(f.weight[3] = -1e101);
    REFUSED(memset(&f.weight[2], 0xff, sizeof(f.weight[2])));
    REFUSED(memset(&f.covariance[1][2], 0xff, sizeof(f.covariance[1][2])));
    REFUSED(memset(&f.error[3], 0xff, sizeof(f.error[3])));
    REFUSED(f.knot_error[3] = -1);
    REFUSED(f.knot[0].weight = 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_find_a_wall_behind_a_package_sensor),
        cmocka_unit_test(samples_that_are_far_off_move_the_weights_little),
        cmocka_unit_test(nine_of_ten_lie_within_on_nearly_every_machine),
        cmocka_unit_test(knots_follow_a_concave_machine),
        cmocka_unit_test(a_curve_needs_three_loads_apart),
        cmocka_unit_test(a_busy_machine_does_not_tell_its_idling),
        cmocka_unit_test(a_steady_load_forgets_nothing_of_others),
        cmocka_unit_test(a_machine_that_changes_is_learnt_anew),
        cmocka_unit_test(before_eight_forecasts_nothing_is_said),
        cmocka_unit_test(any_samples_leave_a_fit),
        cmocka_unit_test(bytes_that_are_no_fit_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
