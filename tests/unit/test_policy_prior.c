/* SPDX-License-Identifier: Apache-2.0 */
/* Curves of earlier runs: what a run takes over from them, and when it no longer does. */
#include "policy/model/prior.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define SECOND UINT64_C(1000000000)

struct program {
    double parallel, rate;
    double wobble; /* each second sample is off by this part, up and down */
    uint64_t now_ns;
    struct fit fit;
};

static double speed(double parallel, unsigned threads)
{
    return 1 / (1 - parallel + parallel / threads);
}

static void run(struct program *p, unsigned threads, unsigned samples)
{
    for (unsigned i = 0; i < samples; i++) {
        double off = p->wobble * (i % 2 ? 1 : -1);

        p->now_ns += SECOND;
        fit_add(&p->fit, p->now_ns, threads,
                (uint64_t)(p->rate * speed(p->parallel, threads) * (1 + off)));
    }
}

static struct program begin(double parallel, double rate)
{
    return (struct program){.parallel = parallel, .rate = rate, .now_ns = 7 * SECOND};
}

/* The prior of a program that ran with 1, 2, 4 and 8 threads. */
static struct prior of_earlier_run(double parallel)
{
    struct program p = begin(parallel, 5e6);
    struct prior prior;

    for (unsigned k = 1; k <= 8; k *= 2)
        run(&p, k, 8);
    assert_true(prior_learn(&p.fit, NULL, p.now_ns, &prior));
    return prior;
}

static double fraction(uint64_t part)
{
    return (double)part / FIT_ONE;
}

static void a_run_hands_down_the_shape_of_its_curve(void **state)
{
    const uint32_t threads[] = {1, 2, 4, 8};
    struct prior prior = of_earlier_run(0.9);

    assert_true(fabs(fraction(prior.parallel) - 0.9) < 0.01);
    assert_int_equal(prior.contention, 0);
    assert_int_equal(prior.count, 4);
    assert_memory_equal(prior.threads, threads, sizeof(threads));
    assert_in_range(prior.confidence_permille, 600, 1000);
}

static void one_count_or_one_sample_teaches_nothing(void **state)
{
    struct program p = begin(0.9, 5e6);
    struct prior prior = {.count = 77};

    run(&p, 8, 20);
    assert_false(prior_learn(&p.fit, NULL, p.now_ns, &prior));
    run(&p, 2, 1);
    assert_false(prior_learn(&p.fit, NULL, p.now_ns, &prior));
    assert_int_equal(prior.count, 77); /* untouched */
    run(&p, 2, 1);
    assert_true(prior_learn(&p.fit, NULL, p.now_ns, &prior));
}

static void before_the_first_rate_the_curve_is_that_of_earlier_runs(void **state)
{
    struct prior prior = of_earlier_run(0.9);
    struct fit_model model;

    prior_solve(&(struct fit){0}, &prior, SECOND, &model);
    assert_int_equal(model.parallel, prior.parallel);
    assert_int_equal(model.confidence_permille, prior.confidence_permille);
    assert_int_equal(model.rate_one, 0);
    assert_int_equal(model.counts, 4);
}

/* Another input, another unit: the rate is the run's own from the first sample on. */
static void the_first_rate_tells_that_of_one_thread(void **state)
{
    struct prior prior = of_earlier_run(0.9);

    for (double rate = 2e3; rate < 1e10; rate *= 1e3) {
        struct program p = begin(0.9, rate);
        struct fit_model model;

        run(&p, 4, 1);
        prior_solve(&p.fit, &prior, p.now_ns, &model);
        assert_true(fabs(fraction(model.parallel) - 0.9) < 0.02);
        assert_true(fabs((double)model.rate_one / rate - 1) < 0.02);
        assert_true(model.confidence_permille >= prior.confidence_permille);
    }
}

/* A difference below what counts as noise does not refute, but what is measured wins. */
static void what_is_measured_outweighs_the_prior(void **state)
{
    struct prior prior = of_earlier_run(0.9);
    struct program p = begin(0.86, 5e6);
    struct fit_model model;

    run(&p, 8, 16);
    run(&p, 4, 16);
    run(&p, 2, 16);
    assert_false(prior_disagrees(&p.fit, &prior, p.now_ns));
    prior_solve(&p.fit, &prior, p.now_ns, &model);
    assert_true(fabs(fraction(model.parallel) - 0.86) < 0.01);
}

static void a_run_of_another_shape_refutes_the_prior(void **state)
{
    const double others[] = {0.1, 0.5, 0.7, 1};
    struct prior prior = of_earlier_run(0.9);

    for (unsigned i = 0; i < 4; i++) {
        struct program p = begin(others[i], 3e7);

        run(&p, 8, 10);
        assert_false(prior_disagrees(&p.fit, &prior, p.now_ns)); /* one count has no shape */
        run(&p, 1, 2);
        assert_false(
            prior_disagrees(&p.fit, &prior, p.now_ns)); /* two samples may be a bad moment */
        run(&p, 1, 4);
        assert_true(prior_disagrees(&p.fit, &prior, p.now_ns));
    }
}

static void the_same_shape_is_never_refuted(void **state)
{
    struct prior prior = of_earlier_run(0.9);
    struct program p = begin(0.9, 3e7);

    p.wobble = 0.12;
    for (unsigned i = 0; i < 100; i++) {
        run(&p, 1 + i * 7 % 8, 1 + i % 13);
        assert_false(prior_disagrees(&p.fit, &prior, p.now_ns));
    }
}

/* The program gets slower at once, at a number of threads that it keeps: no other shape. */
static void a_slower_phase_does_not_refute_the_prior(void **state)
{
    struct prior prior = of_earlier_run(0.9);
    struct program p = begin(0.9, 3e7);

    run(&p, 8, 12);
    run(&p, 4, 12);
    p.rate = 1e7;
    run(&p, 4, 12);
    assert_false(prior_disagrees(&p.fit, &prior, p.now_ns));
}

static void runs_add_to_what_earlier_ones_knew(void **state)
{
    struct prior prior = of_earlier_run(0.9), next;
    struct program p = begin(0.9, 3e7);

    run(&p, 3, 8);
    run(&p, 6, 8);
    assert_true(prior_learn(&p.fit, &prior, p.now_ns, &next));
    assert_int_equal(next.count, 6);
    assert_int_equal(next.threads[2], 3);
    assert_int_equal(next.threads[5], 8);
    assert_true(next.confidence_permille >= prior.confidence_permille);
}

/* However many runs there are, and whatever their numbers of threads. */
static void a_prior_stays_within_its_bounds(void **state)
{
    struct prior prior = of_earlier_run(0.9);

    for (unsigned i = 0; i < 50; i++) {
        struct program p = begin(0.9, 3e7);

        run(&p, 1 + i * 37 % 500, 3);
        run(&p, 1 + i * 91 % 800, 3);
        prior_learn(&p.fit, &prior, p.now_ns, &prior);
        assert_true(prior_valid(&prior));
    }
    assert_int_equal(prior.count, FIT_COUNTS);
}

static void what_no_fit_can_leave_is_invalid(void **state)
{
    const struct prior good = of_earlier_run(0.9);
    struct prior bad[8];

    for (unsigned i = 0; i < 8; i++)
        bad[i] = good;
    bad[0].count = 1;
    bad[1].count = FIT_COUNTS + 1;
    bad[2].parallel = FIT_ONE + 1;
    bad[3].contention = UINT64_MAX;
    bad[4].threads[1] = bad[4].threads[0];
    bad[5].threads[0] = 0;
    bad[6].threads[3] = FIT_THREADS_MAX + 1;
    bad[7].confidence_permille = 1001;
    assert_true(prior_valid(&good));
    for (unsigned i = 0; i < 8; i++)
        assert_false(prior_valid(&bad[i]));
}

/* Files hold any valid numbers: none of them may do harm. */
static void extreme_priors_do_no_harm(void **state)
{
    const uint64_t parts[] = {0, 1, FIT_ONE / 2, FIT_ONE};
    struct fit_model model;
    uint32_t table[64];

    for (unsigned i = 0; i < 16; i++) {
        struct prior prior = {.parallel = parts[i / 4],
                              .contention = parts[i % 4],
                              .count = 2,
                              .threads = {1, FIT_THREADS_MAX}};

        assert_true(prior_valid(&prior));
        for (double rate = 1; rate < 2e11; rate *= 1e3) {
            struct program p = begin(0.5, rate);

            run(&p, 1, 6);
            run(&p, FIT_THREADS_MAX, 6);
            prior_disagrees(&p.fit, &prior, p.now_ns);
            prior_solve(&p.fit, &prior, p.now_ns, &model);
            fit_table(&model, 64, table);
            for (unsigned k = 0; k < 64; k++)
                assert_in_range(table[k], 1, 1000 * (k + 1));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_hands_down_the_shape_of_its_curve),
        cmocka_unit_test(one_count_or_one_sample_teaches_nothing),
        cmocka_unit_test(before_the_first_rate_the_curve_is_that_of_earlier_runs),
        cmocka_unit_test(the_first_rate_tells_that_of_one_thread),
        cmocka_unit_test(what_is_measured_outweighs_the_prior),
        cmocka_unit_test(a_run_of_another_shape_refutes_the_prior),
        cmocka_unit_test(the_same_shape_is_never_refuted),
        cmocka_unit_test(a_slower_phase_does_not_refute_the_prior),
        cmocka_unit_test(runs_add_to_what_earlier_ones_knew),
        cmocka_unit_test(a_prior_stays_within_its_bounds),
        cmocka_unit_test(what_no_fit_can_leave_is_invalid),
        cmocka_unit_test(extreme_priors_do_no_harm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
