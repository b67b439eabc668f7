/* SPDX-License-Identifier: Apache-2.0 */
#include "power/model/stand_in.h"
#include "test_random.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define W     UINT64_C(1000000)
#define CORES 8u
#define HOUR  3600

static const struct power_range away;

/* The machine and its meter. */
static struct plant {
    uint64_t wall_uw, core_uw; /* of no load, and per busy core */
    uint32_t tenths;           /* of what the packages draw is drawn from the wall */
    uint32_t noise_permille, meter_permille;
    uint32_t most_mcpu;
    bool packages;
} plant;

static void begin(void **state)
{
    (void)state;
    random_state = 11;
    plant = (struct plant){.wall_uw = 25 * W,
                           .core_uw = W,
                           .tenths = 11,
                           .noise_permille = 10,
                           .meter_permille = 10,
                           .most_mcpu = CORES * 1000,
                           .packages = true};
}

static uint64_t noisy(uint64_t uw, uint32_t permille)
{
    return uw * (1000 - permille + random_below(2 * permille + 1)) / 1000;
}

/* Its true power is the sample's uw. */
static struct watts_sample draw(void)
{
    struct watts_sample s = {.busy_mcpu = random_below(plant.most_mcpu + 1),
                             .speed_permille = 700 + random_below(500)};
    uint64_t packages =
        10 * W + (uint64_t)s.busy_mcpu * s.speed_permille * 6 * W / 1000000 + random_below(3 * W);

    s.uw = noisy(plant.wall_uw + packages * plant.tenths / 10 + s.busy_mcpu * plant.core_uw / 1000,
                 plant.noise_permille);
    s.sensor_uw = plant.packages ? packages : 0;
    return s;
}

static struct power_range read_meter(const struct watts_sample *s)
{
    uint64_t error = s->uw * plant.meter_permille / 1000;

    return (struct power_range){s->uw, s->uw - error, s->uw + error, POWER_MEASURED};
}

static void teach(struct stand_in *in, int readings)
{
    while (readings-- > 0) {
        struct watts_sample s = draw();
        struct power_range reading = read_meter(&s);

        stand_in_add(in, &s, &reading);
    }
}

/* How many of @n intervals without the meter lie within the forecast's bounds. */
static int covered(struct stand_in *in, int n, uint32_t basis)
{
    int inside = 0;

    for (int i = 0; i < n; i++) {
        struct watts_sample s = draw();
        struct power_range p = stand_in_at(in, &s);

        assert_int_equal(p.basis, basis);
        assert_true(p.low_uw <= p.uw && p.uw <= p.high_uw);
        inside += p.low_uw <= s.uw && s.uw <= p.high_uw;
        stand_in_add(in, &s, &away);
    }
    return inside;
}

static void a_sensor_that_goes_away_after_an_hour_is_stood_in_for(void **state)
{
    struct stand_in in = {0};
    uint64_t off = 0;

    begin(state);
    teach(&in, HOUR);
    assert_true(covered(&in, 1000, POWER_CALIBRATED) >= 900);
    for (int i = 0; i < 100; i++) {
        struct watts_sample s = draw();
        uint64_t uw = stand_in_at(&in, &s).uw;

        off += (uw > s.uw ? uw - s.uw : s.uw - uw) / 100;
    }
    assert_true(off < W);
}

/* Each of 20 machines, without packages' sensors and with much noise. */
static void intervals_cover_on_nearly_every_machine(void **state)
{
    int held = 0;

    begin(state);
    plant.packages = false;
    plant.meter_permille = 0;
    for (int machine = 0; machine < 20; machine++) {
        struct stand_in in = {0};

        plant.wall_uw = (10 + random_below(200)) * W;
        plant.noise_permille = 10 + random_below(100);
        teach(&in, 800);
        held += covered(&in, 1000, POWER_CALIBRATED) >= 900;
    }
    assert_true(held >= 18);
}

static void nothing_is_forecast_before_enough_was_read(void **state)
{
    struct stand_in in = {0};
    struct watts_sample s;

    begin(state);
    s = draw();
    assert_int_equal(stand_in_at(&in, &s).basis, POWER_UNKNOWN);
    teach(&in, STAND_IN_SAMPLES - 1);
    s = draw();
    assert_int_equal(stand_in_at(&in, &s).basis, POWER_UNKNOWN);
    teach(&in, 1);
    assert_int_equal(stand_in_at(&in, &s).basis, POWER_CALIBRATED);
}

static void the_same_meter_goes_on_teaching_when_it_is_back(void **state)
{
    struct stand_in in = {0};
    uint32_t samples;

    begin(state);
    teach(&in, HOUR);
    covered(&in, 300, POWER_CALIBRATED);
    samples = in.fit.samples;
    teach(&in, STAND_IN_TRIAL);
    assert_int_equal(in.fit.samples, samples); /* compared, not learnt */
    teach(&in, 100);
    assert_int_equal(in.fit.samples, samples + 100);
    assert_true(covered(&in, 1000, POWER_CALIBRATED) >= 900);
}

static void a_meter_that_comes_back_changed_is_learnt_anew(void **state)
{
    struct stand_in in = {0};
    struct watts_sample s;

    begin(state);
    teach(&in, HOUR);
    covered(&in, 300, POWER_CALIBRATED);
    plant.wall_uw = 60 * W; /* two disks and a card more */
    plant.tenths = 13;
    teach(&in, STAND_IN_TRIAL);
    s = draw();
    assert_int_equal(stand_in_at(&in, &s).basis, POWER_UNKNOWN);
    teach(&in, 2 * STAND_IN_SAMPLES);
    assert_true(covered(&in, 1000, POWER_CALIBRATED) >= 900);
}

/* A reading that fails now and then is no other meter. */
static void short_pauses_do_not_keep_it_from_learning(void **state)
{
    struct stand_in in = {0};

    begin(state);
    for (int i = 0; i < 100; i++) {
        teach(&in, 10);
        covered(&in, 1, in.fit.samples < STAND_IN_SAMPLES ? POWER_UNKNOWN : POWER_CALIBRATED);
    }
    assert_int_equal(in.fit.samples, 1000);
}

static void loads_that_were_never_seen_are_unknown(void **state)
{
    struct stand_in in = {0};
    struct watts_sample full = {.sensor_uw = 90 * W, .busy_mcpu = 8000, .speed_permille = 1000};

    begin(state);
    plant.most_mcpu = 2000;
    teach(&in, HOUR);
    assert_int_equal(stand_in_at(&in, &full).basis, POWER_UNKNOWN);
    full.busy_mcpu = 1500;
    assert_int_equal(stand_in_at(&in, &full).basis, POWER_CALIBRATED);
}

static void without_the_packages_that_it_learnt_beside_it_says_nothing(void **state)
{
    struct stand_in in = {0};
    struct watts_sample s;

    begin(state);
    teach(&in, HOUR);
    s = draw();
    s.sensor_uw = 0;
    assert_int_equal(stand_in_at(&in, &s).basis, POWER_UNKNOWN);
    plant.packages = false; /* their driver is gone for good */
    teach(&in, STAND_IN_ODD - 1);
    plant.packages = true;
    teach(&in, 1);
    assert_int_equal(in.fit.samples, HOUR + 1);
    plant.packages = false;
    teach(&in, STAND_IN_ODD + STAND_IN_SAMPLES);
    assert_true(covered(&in, 1000, POWER_CALIBRATED) >= 900);
}

/* The packages' power alone is a bound of the machine: it must not replace a meter's. */
static void packages_alone_teach_nothing_after_a_meter(void **state)
{
    struct stand_in in = {0};
    struct watts_sample s;

    begin(state);
    teach(&in, HOUR);
    for (int i = 0; i < HOUR; i++) {
        struct power_range part;

        s = draw();
        part = (struct power_range){s.sensor_uw, s.sensor_uw, 3 * s.sensor_uw, POWER_MODELLED};
        stand_in_add(&in, &s, &part);
    }
    assert_int_equal(in.fit.samples, HOUR);
    assert_true(covered(&in, 1000, POWER_CALIBRATED) >= 900);
}

static void bounds_are_no_narrower_than_those_of_the_readings(void **state)
{
    struct stand_in in = {0};

    begin(state);
    for (int i = 0; i < HOUR; i++) { /* no meter was ever there */
        struct watts_sample s = draw();
        struct power_range part = {s.sensor_uw, s.sensor_uw * 9 / 10, 3 * s.sensor_uw,
                                   POWER_MODELLED};

        stand_in_add(&in, &s, &part);
    }
    for (int i = 0; i < 100; i++) { /* nor are there packages now */
        struct watts_sample s = draw();
        struct power_range p;

        s.sensor_uw = 0;
        p = stand_in_at(&in, &s);
        assert_int_equal(p.basis, POWER_MODELLED);
        assert_true(p.high_uw >= 3 * p.uw && p.low_uw <= p.uw * 9 / 10);
    }
    teach(&in, STAND_IN_SAMPLES); /* a meter comes: what was learnt before is none of its */
    assert_int_equal(in.fit.samples, STAND_IN_SAMPLES);
    assert_int_equal(in.basis, POWER_CALIBRATED);
}

static void damaged_bytes_are_refused(void **state)
{
    struct stand_in in = {0}, bad;

    begin(state);
    assert_int_equal(stand_in_check(&in), 0);
    teach(&in, 100);
    assert_int_equal(stand_in_check(&in), 0);
    bad = in;
    bad.basis = POWER_MEASURED;
    assert_int_equal(stand_in_check(&bad), -EINVAL);
    bad = in;
    bad.basis = POWER_UNKNOWN;
    assert_int_equal(stand_in_check(&bad), -EINVAL);
    bad = in;
    bad.below_permille = 1001;
    assert_int_equal(stand_in_check(&bad), -EINVAL);
    bad = in;
    bad.fit.knots = WATTS_FIT_KNOTS + 1;
    assert_int_equal(stand_in_check(&bad), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sensor_that_goes_away_after_an_hour_is_stood_in_for),
        cmocka_unit_test(intervals_cover_on_nearly_every_machine),
        cmocka_unit_test(nothing_is_forecast_before_enough_was_read),
        cmocka_unit_test(the_same_meter_goes_on_teaching_when_it_is_back),
        cmocka_unit_test(a_meter_that_comes_back_changed_is_learnt_anew),
        cmocka_unit_test(short_pauses_do_not_keep_it_from_learning),
        cmocka_unit_test(loads_that_were_never_seen_are_unknown),
        cmocka_unit_test(without_the_packages_that_it_learnt_beside_it_says_nothing),
        cmocka_unit_test(packages_alone_teach_nothing_after_a_meter),
        cmocka_unit_test(bounds_are_no_narrower_than_those_of_the_readings),
        cmocka_unit_test(damaged_bytes_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
