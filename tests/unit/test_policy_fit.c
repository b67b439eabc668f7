/* SPDX-License-Identifier: Apache-2.0 */
/* The fit of speed-up curves, on programs made up with noise, outliers and phases; and envelopes.
 */
#include "policy/model/curve.h"
#include "policy/model/fit.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SECOND  UINT64_C(1000000000)
#define THREADS 16

static uint64_t random_state = 88172645463325252ull;

static uint64_t random_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static double uniform(void)
{
    return (double)(random_bits() >> 11) / 9007199254740992.0;
}

/* Close to a normal distribution of mean 0 and deviation 1. */
static double normal(void)
{
    double sum = -6;

    for (int i = 0; i < 12; i++)
        sum += uniform();
    return sum;
}

/* A program and the fit that watches it. */
struct program {
    double parallel, contention; /* of the time with one thread */
    double rate;                 /* with one thread */
    double noise;                /* relative */
    double outliers;             /* share of samples that are far off */
    uint64_t now_ns;
    struct fit fit;
};

static double true_speed(const struct program *p, unsigned threads)
{
    return 1 / (1 - p->parallel + p->parallel / threads + p->contention * (threads - 1));
}

static void run(struct program *p, unsigned threads, unsigned samples)
{
    for (unsigned i = 0; i < samples; i++) {
        double rate = p->rate * true_speed(p, threads) * (1 + p->noise * normal());

        if (uniform() < p->outliers)
            rate *= uniform() < 0.5 ? 0.1 : 4;
        p->now_ns += SECOND;
        fit_add(&p->fit, p->now_ns, threads, rate > 1 ? (uint64_t)rate : 1);
    }
}

static struct program program(double parallel, double contention, double noise)
{
    return (struct program){.parallel = parallel,
                            .contention = contention,
                            .rate = 5e6,
                            .noise = noise,
                            .now_ns = 7 * SECOND};
}

/* Largest relative error of the fitted table up to @threads. */
static double table_error(const struct program *p, unsigned threads)
{
    struct fit_model model;
    uint32_t table[THREADS];
    double worst = 0;

    assert_true(fit_solve(&p->fit, p->now_ns, &model));
    fit_table(&model, threads, table);
    for (unsigned k = 1; k <= threads; k++) {
        double error = fabs(table[k - 1] / (1000 * true_speed(p, k)) - 1);

        worst = error > worst ? error : worst;
    }
    return worst;
}

static struct fit_model solved(const struct program *p)
{
    struct fit_model model = {0};

    assert_true(fit_solve(&p->fit, p->now_ns, &model));
    return model;
}

static double parallel_of(const struct fit_model *model)
{
    return (double)model->parallel / FIT_ONE;
}

/* ---- the fit --------------------------------------------------------------------------------- */

static void without_noise_the_curve_is_found_exactly(void **state)
{
    for (int f = 0; f <= 100; f += 5)
        for (int c = 0; c <= 4; c += 2) {
            struct program p = program(f / 100.0, c / 100.0, 0);
            struct fit_model model;

            for (unsigned k = 1; k <= 16; k *= 2)
                run(&p, k, 6);
            model = solved(&p);
            assert_true(table_error(&p, 16) < 0.03);
            assert_true(fabs((double)model.rate_one / p.rate - 1) < 0.02);
            if (c != 2) /* a little contention looks like a serial part */
                assert_true(fabs(parallel_of(&model) - p.parallel) < 0.03);
        }
}

/* Share of programs whose table is off by more than @bound after @samples at each of @counts. */
static double share_off(double noise, double outliers, unsigned most, double bound)
{
    static const double fractions[] = {0.3, 0.6, 0.8, 0.9, 0.95, 0.99};
    unsigned off = 0, programs = 0;

    for (unsigned i = 0; i < 6; i++)
        for (unsigned seed = 0; seed < 50; seed++) {
            struct program p = program(fractions[i], seed % 2 * 0.01, noise);

            p.outliers = outliers;
            for (unsigned k = 1; k <= most; k *= 2)
                run(&p, k, 12);
            off += table_error(&p, most) > bound;
            programs++;
        }
    return (double)off / programs;
}

static void noise_leaves_the_curve_nearly_where_it_is(void **state)
{
    assert_true(share_off(0.02, 0, 8, 0.05) < 0.1);
    assert_true(share_off(0.02, 0, 8, 0.1) == 0);
    assert_true(share_off(0.05, 0, 8, 0.1) < 0.1);
    assert_true(share_off(0.05, 0, 8, 0.2) == 0);
}

static void noise_leaves_the_parallel_fraction_nearly_where_it_is(void **state)
{
    for (unsigned seed = 0; seed < 200; seed++) {
        struct program p = program(0.5 + 0.5 * uniform(), 0, 0.02);
        struct fit_model model;

        for (unsigned k = 1; k <= 8; k *= 2)
            run(&p, k, 12);
        model = solved(&p);
        assert_true(fabs(parallel_of(&model) - p.parallel) < 0.05);
        assert_true(model.confidence_permille > 700);
    }
}

static void outliers_do_not_move_it(void **state)
{
    double without = share_off(0.02, 0, 8, 0.06);

    assert_true(share_off(0.02, 0.1, 8, 0.06) < without + 0.1);
}

static void a_count_measured_in_a_bad_moment_is_outvoted(void **state)
{
    struct program p = program(0.95, 0, 0.01);

    for (unsigned k = 1; k <= 16; k *= 2) {
        p.rate = k == 4 ? 3e6 : 5e6; /* something else used the machine */
        run(&p, k, 8);
    }
    assert_true(table_error(&p, 16) < 0.1);
}

static void confidence_rises_with_counts_and_samples(void **state)
{
    struct program p = program(0.9, 0, 0.02);
    struct fit_model model;
    uint32_t before = 0;

    run(&p, 8, 50);
    assert_false(fit_solve(&p.fit, p.now_ns, &model)); /* one count is no curve */
    for (unsigned k = 4; k >= 1; k /= 2) {
        run(&p, k, 10);
        model = solved(&p);
        assert_true(model.confidence_permille > before);
        before = model.confidence_permille;
    }
    assert_int_equal(model.counts, 4);
    assert_true(before > 850);
    for (unsigned k = 1; k <= 8; k *= 2)
        run(&p, k, 10);
    assert_true(solved(&p).confidence_permille >= before);
    p.now_ns += 4 * FIT_HALF_LIFE_NS; /* old samples count less */
    assert_true(solved(&p).confidence_permille < before);
}

static void a_program_of_no_such_shape_gets_no_confidence(void **state)
{
    struct program p = program(0.9, 0, 0.01);

    for (unsigned k = 1; k <= 16; k *= 2) {
        p.rate = k == 2 || k == 8 ? 2e6 : 9e6;
        run(&p, k, 10);
    }
    assert_true(solved(&p).confidence_permille < 300);
}

static void a_slower_phase_keeps_the_shape(void **state)
{
    struct program p = program(0.9, 0, 0.02);

    for (unsigned k = 1; k <= 8; k *= 2)
        run(&p, k, 10);
    p.rate /= 3; /* while it runs with 8: the other counts are not seen again */
    run(&p, 8, 12);
    assert_true(table_error(&p, 8) < 0.1);
    assert_true(fabs((double)solved(&p).rate_one / p.rate - 1) < 0.1);
}

static void slow_drift_keeps_the_shape(void **state)
{
    struct program p = program(0.9, 0, 0.01);

    for (unsigned k = 1; k <= 8; k *= 2)
        run(&p, k, 10);
    for (unsigned i = 0; i < 300; i++) {
        p.rate *= 0.995;
        run(&p, 8, 1);
    }
    assert_true(table_error(&p, 8) < 0.1);
}

static void a_phase_of_another_shape_is_learnt(void **state)
{
    struct program p = program(0.95, 0, 0.02);

    for (unsigned k = 1; k <= 8; k *= 2)
        run(&p, k, 20);
    p.parallel = 0.4;
    for (unsigned k = 1; k <= 8; k *= 2)
        run(&p, k, 10);
    assert_true(table_error(&p, 8) < 0.1);
}

static void tables_rise_without_contention_and_never_above_the_threads(void **state)
{
    for (unsigned round = 0; round < 2000; round++) {
        struct fit_model model = {.parallel = random_bits() % (FIT_ONE + 1),
                                  .contention = round % 2 ? random_bits() % 1000000 : 0};
        uint32_t table[256];

        fit_table(&model, 256, table);
        assert_int_equal(table[0], 1000);
        for (uint32_t k = 2; k <= 256; k++) {
            assert_in_range(table[k - 1], 1, 1000 * k);
            if (model.contention == 0)
                assert_true(table[k - 1] >= table[k - 2]);
        }
    }
}

static void any_samples_at_all_give_a_sane_curve(void **state)
{
    struct fit fit = {0};
    uint64_t now = 0;

    for (unsigned round = 0; round < 200000; round++) {
        uint32_t kind = (uint32_t)random_bits();
        uint32_t threads = kind % 3 ? 1 + kind % 7 : (uint32_t)random_bits();
        uint64_t rate = random_bits() >> (kind >> 8) % 64;
        struct fit_model model;
        uint32_t table[64], to;

        now += random_bits() >> (20 + (kind >> 16) % 44);
        fit_add(&fit, now, threads, rate);
        to = fit_explore(&fit, now, threads, 1);
        assert_true(to < threads || to == 0);
        if (kind >> 24 == 0)
            fit_forget(&fit);
        if (!fit_solve(&fit, now, &model))
            continue;
        assert_in_range(model.counts, 2, FIT_COUNTS);
        assert_in_range(model.confidence_permille, 0, 1000);
        assert_in_range(model.parallel, 0, FIT_ONE);
        assert_in_range(model.contention, 0, FIT_ONE);
        fit_table(&model, 64, table);
        for (uint32_t k = 1; k <= 64; k++)
            assert_in_range(table[k - 1], 1, 1000 * k);
    }
}

static void what_cannot_be_a_sample_is_ignored(void **state)
{
    struct fit fit = {0}, nothing = {0};

    fit_add(&fit, SECOND, 0, 5);
    fit_add(&fit, SECOND, 4, 0);
    fit_add(&fit, SECOND, FIT_THREADS_MAX + 1, 5);
    fit_add(&fit, SECOND, 4, FIT_RATE_MAX + 1);
    assert_memory_equal(&fit, &nothing, sizeof(fit));
}

static void the_state_is_bytes(void **state)
{
    struct program p = program(0.8, 0.01, 0.1), copy;
    struct fit_model a, b;

    run(&p, 4, 10);
    memcpy(&copy, &p, sizeof(p));
    random_state = 1;
    run(&p, 2, 10);
    random_state = 1;
    run(&copy, 2, 10);
    a = solved(&p);
    b = solved(&copy);
    assert_memory_equal(&p.fit, &copy.fit, sizeof(p.fit));
    assert_memory_equal(&a, &b, sizeof(a));
}

/* ---- exploration ----------------------------------------------------------------------------- */

/* The cost of an hour with @have threads and the requested explorations. */
struct hour {
    unsigned explorations;
    double lost; /* share of the progress */
    uint32_t fewest;
    unsigned counts;
};

static struct hour an_hour(struct program *p, uint32_t have, uint32_t least)
{
    struct hour hour = {.fewest = have};
    uint32_t threads = have;
    bool seen[THREADS + 1] = {false};

    for (unsigned second = 0; second < 3600; second++) {
        uint32_t to;

        run(p, threads, 1);
        hour.lost += (1 - true_speed(p, threads) / true_speed(p, have)) / 3600;
        to = fit_explore(&p->fit, p->now_ns, have, least);
        hour.explorations += to && threads == have;
        threads = to ? to : have;
        hour.counts += !seen[threads];
        seen[threads] = true;
        hour.fewest = threads < hour.fewest ? threads : hour.fewest;
    }
    return hour;
}

static void exploration_is_rare_and_cheap_and_finds_the_curve(void **state)
{
    static const double fractions[] = {0.5, 0.9, 1};

    for (unsigned i = 0; i < 3; i++) {
        struct program p = program(fractions[i], 0, 0.03);
        struct hour hour = an_hour(&p, 8, 1);

        assert_in_range(hour.explorations, 3, 15);
        assert_true(hour.lost < FIT_BUDGET_PERMILLE / 1000.0 / 2);
        assert_true(hour.counts >= 3);
        assert_true(hour.fewest <= 4);
        assert_true(table_error(&p, 8) < 0.1);
    }
}

static void exploration_keeps_the_minimum_and_the_only_thread(void **state)
{
    struct program p = program(0.9, 0, 0.03), q = program(0.9, 0, 0.03);

    assert_int_equal(an_hour(&p, 8, 5).fewest, 6);
    assert_int_equal(an_hour(&q, 1, 1).explorations, 0);
}

static void exploration_ends_when_the_grant_changes(void **state)
{
    struct program p = program(0.9, 0, 0.03);
    uint32_t to = 0;

    while (!to) {
        run(&p, 8, 1);
        to = fit_explore(&p.fit, p.now_ns, 8, 1);
    }
    assert_int_equal(fit_explore(&p.fit, p.now_ns, 8, 1), to);
    assert_int_equal(fit_explore(&p.fit, p.now_ns, 6, 1), 0);
    assert_int_equal(fit_explore(&p.fit, p.now_ns, 8, 1), 0);
}

static void exploration_ends_without_samples_too(void **state)
{
    struct program p = program(0.9, 0, 0.03);

    while (!fit_explore(&p.fit, p.now_ns, 8, 1))
        run(&p, 8, 1);
    assert_int_equal(fit_explore(&p.fit, p.now_ns + 60 * SECOND, 8, 1), 0);
}

/* ---- envelopes ------------------------------------------------------------------------------- */

/* The definition: below all lines of an integer slope that touch the table from above. */
static int64_t envelope_by_lines(const int64_t *touch, int64_t steepest, int64_t k)
{
    int64_t least = INT64_MAX;

    for (int64_t m = -steepest; m <= steepest; m++)
        least = touch[m + steepest] + m * k < least ? touch[m + steepest] + m * k : least;
    return least;
}

static void the_envelope_is_the_smallest_concave_one(void **state)
{
    enum { COUNT = 12, HEIGHT = 60 };

    for (unsigned round = 0; round < 3000; round++) {
        uint32_t count = 1 + (uint32_t)(random_bits() % COUNT);
        uint32_t table[COUNT], envelope[COUNT];
        int64_t touch[2 * HEIGHT + 1];

        for (uint32_t k = 0; k < count; k++)
            table[k] = 1 + (uint32_t)(random_bits() % HEIGHT);
        for (int64_t m = -HEIGHT; m <= HEIGHT; m++) {
            touch[m + HEIGHT] = INT64_MIN;
            for (uint32_t k = 0; k < count; k++)
                if (table[k] - m * k > touch[m + HEIGHT])
                    touch[m + HEIGHT] = table[k] - m * k;
        }
        curve_envelope(table, count, envelope);
        for (uint32_t k = 0; k < count; k++)
            assert_int_equal(envelope[k], envelope_by_lines(touch, HEIGHT, k));
    }
}

static void the_envelope_of_large_tables_is_concave_and_above(void **state)
{
    enum { COUNT = 1024 };
    static uint32_t table[COUNT], envelope[COUNT];

    for (unsigned round = 0; round < 200; round++) {
        for (uint32_t k = 0; k < COUNT; k++)
            table[k] = round % 2 ? UINT32_MAX - (uint32_t)(random_bits() % 1000)
                                 : 1 + (uint32_t)random_bits();
        curve_envelope(table, COUNT, envelope);
        for (uint32_t k = 0; k < COUNT; k++) {
            assert_true(envelope[k] >= table[k]);
            if (k >= 2)
                assert_true((int64_t)envelope[k] - envelope[k - 1] <=
                            (int64_t)envelope[k - 1] - envelope[k - 2]);
        }
    }
}

static void speed_is_read_between_the_cores(void **state)
{
    static const uint32_t table[] = {1000, 1900, 2500};
    struct policy_curve curve = {.speedup_permille = table, .count = 3}, unknown = {0};

    assert_int_equal(curve_speed(&curve, 0), 0);
    assert_int_equal(curve_speed(&curve, 500), 500);
    assert_int_equal(curve_speed(&curve, 1000), 1000);
    assert_int_equal(curve_speed(&curve, 1500), 1450);
    assert_int_equal(curve_speed(&curve, 3000), 2500);
    assert_int_equal(curve_speed(&curve, 9500), 2500);
    assert_int_equal(curve_speed(&curve, INT64_MAX), 2500);
    assert_int_equal(curve_speed(&unknown, 1000), 1000);
    assert_int_equal(curve_speed(&unknown, 9000), 5000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_noise_the_curve_is_found_exactly),
        cmocka_unit_test(noise_leaves_the_curve_nearly_where_it_is),
        cmocka_unit_test(noise_leaves_the_parallel_fraction_nearly_where_it_is),
        cmocka_unit_test(outliers_do_not_move_it),
        cmocka_unit_test(a_count_measured_in_a_bad_moment_is_outvoted),
        cmocka_unit_test(confidence_rises_with_counts_and_samples),
        cmocka_unit_test(a_program_of_no_such_shape_gets_no_confidence),
        cmocka_unit_test(a_slower_phase_keeps_the_shape),
        cmocka_unit_test(slow_drift_keeps_the_shape),
        cmocka_unit_test(a_phase_of_another_shape_is_learnt),
        cmocka_unit_test(tables_rise_without_contention_and_never_above_the_threads),
        cmocka_unit_test(any_samples_at_all_give_a_sane_curve),
        cmocka_unit_test(what_cannot_be_a_sample_is_ignored),
        cmocka_unit_test(the_state_is_bytes),
        cmocka_unit_test(exploration_is_rare_and_cheap_and_finds_the_curve),
        cmocka_unit_test(exploration_keeps_the_minimum_and_the_only_thread),
        cmocka_unit_test(exploration_ends_when_the_grant_changes),
        cmocka_unit_test(exploration_ends_without_samples_too),
        cmocka_unit_test(the_envelope_is_the_smallest_concave_one),
        cmocka_unit_test(the_envelope_of_large_tables_is_concave_and_above),
        cmocka_unit_test(speed_is_read_between_the_cores),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
