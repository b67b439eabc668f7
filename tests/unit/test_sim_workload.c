/* SPDX-License-Identifier: Apache-2.0 */
/* Generated jobs: distributions, arrivals, and the effect of a seed. */
#include "sim_input.h"

#include "sim/input/random.h"

#include <math.h>

#define HEAD "{'machine': {'cores': 16}, 'workload': {'jobs': 4000, "
#define ONE  "'mix': [{'speedup': 0.9, 'work': 60}]}}"

static struct jobs first, second;

static double mean_of(const struct jobs *jobs, uint64_t (*value)(const struct jobs *, size_t))
{
    double sum = 0;

    for (size_t i = 0; i < jobs->count; i++)
        sum += (double)value(jobs, i);
    return sum / (double)jobs->count;
}

static uint64_t work(const struct jobs *jobs, size_t i)
{
    return jobs->job[i].work_ns;
}

static uint64_t gap(const struct jobs *jobs, size_t i)
{
    return i ? jobs->job[i].arrival_ns - jobs->job[i - 1].arrival_ns : 0;
}

static uint64_t cores(const struct jobs *jobs, size_t i)
{
    return jobs->job[i].request;
}

/* ---- distributions --------------------------------------------------------------------------- */

/*
 * 4000 draws of fixed seeds: the mean of each lies within 5 % of the distribution's (its standard
 * error is below 2 % in all of them).
 */
static void means_are_those_of_the_distributions(void **state)
{
    static const struct {
        const char *work;
        double mean_s;
    } cases[] = {
        {"{'uniform': [10, 30]}", 20},
        {"{'list': [10, 20, 60]}", 30},
        {"{'shares': {'10': 3, '50': 1}}", 20},
        {"{'normal': {'mean': 100, 'sd': 10}}", 100},
        {"{'lognormal': {'mean': 100, 'sigma': 1}}", 100},
        {"{'exponential': {'mean': '1min'}}", 60},
        /* a/(a-1) · L (1 - (L/H)^(a-1)) / (1 - (L/H)^a) */
        {"{'pareto': {'min': 10, 'max': 1000, 'alpha': 1.5}}", 27.027},
    };
    char text[512];

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        double mean;

        snprintf(text, sizeof(text),
                 HEAD "'arrivals': {'gap': 1}, 'mix': [{'speedup': 1, 'work': %s}]}}",
                 cases[i].work);
        load(&first, text, 1);
        assert_int_equal(first.count, 4000);
        mean = mean_of(&first, work) / SECOND;
        if (fabs(mean / cases[i].mean_s - 1) > 0.05)
            fail_msg("%s: mean %g, expected %g", cases[i].work, mean, cases[i].mean_s);
        unload(&first);
    }
}

static void draws_stay_within_their_bounds(void **state)
{
    load(&first,
         HEAD "'arrivals': {'gap': {'normal': {'mean': 1, 'sd': 5}}}, 'mix': [{'speedup': "
              "{'uniform': [0.5, 0.99]}, 'work': {'pareto': {'min': 10, 'max': 1000, 'alpha': 1}},"
              "'request': {'uniform': [8, 15]}, 'min': 1}]}}",
         7);
    assert_int_equal(first.count, 4000);
    for (size_t i = 0; i < first.count; i++) {
        const struct sim_job *job = &first.job[i];

        assert_in_range(job->request, 8, 15);
        assert_in_range(job->work_ns, 10 * SECOND, 1000 * SECOND);
        assert_int_equal(job->work_ns % 1000, 0);                      /* whole microseconds */
        assert_in_range(sim_curve_speed(job->curve, 16), 1882, 13914); /* f = 0.5, 0.99 */
    }
    assert_true(fabs(mean_of(&first, cores) - 11.5) < 0.2);
    unload(&first);
}

static void whole_numbers_are_uniform_with_both_ends(void **state)
{
    size_t count[4] = {0};

    load(&first,
         HEAD "'arrivals': {'gap': 1}, 'mix': [{'speedup': 1, 'work': 1, 'request': "
              "{'uniform': [1, 4]}}]}}",
         3);
    for (size_t i = 0; i < first.count; i++)
        count[first.job[i].request - 1]++;
    for (size_t k = 0; k < 4; k++)
        assert_in_range(count[k], 900, 1100);
    unload(&first);
}

static void shares_of_words_and_kinds_are_kept(void **state)
{
    size_t rigid = 0, small = 0;

    load(&first,
         HEAD "'arrivals': {'gap': 1}, 'mix': [{'name': 's', 'share': 3, 'speedup': 1, "
              "'work': 1, 'request': 2, 'malleability': {'shares': {'rigid': 1, "
              "'malleable': 3}}}, {'name': 'b', 'speedup': 1, 'work': 9}]}}",
         5);
    for (size_t i = 0; i < first.count; i++) {
        if (first.job[i].name[0] == 's') {
            small++;
            rigid += first.job[i].malleability == POLICY_RIGID;
        }
    }
    assert_in_range(small, 2900, 3100);
    assert_in_range(rigid, small / 4 - 80, small / 4 + 80);
    unload(&first);
}

static void lists_may_hold_words_beside_numbers(void **state)
{
    size_t machine = 0, request = 0, four = 0;

    load(&first,
         HEAD "'arrivals': {'gap': 1}, 'mix': [{'speedup': 1, 'work': 1, 'request': 2, 'threads': "
              "{'list': ['machine', 'request', 4]}, 'estimate': {'list': ['none', 'exact']}}]}}",
         5);
    for (size_t i = 0; i < first.count; i++) {
        machine += first.job[i].stock_threads == 16;
        request += first.job[i].stock_threads == 2;
        four += first.job[i].stock_threads == 4;
        assert_true(first.job[i].told_ns == POLICY_UNKNOWN || first.job[i].told_ns == SECOND);
    }
    assert_int_equal(machine + request + four, 4000);
    assert_true(machine > 1200 && request > 1200 && four > 1200);
    unload(&first);
}

/* ---- arrivals -------------------------------------------------------------------------------- */

static void fixed_gaps_begin_at_the_start(void **state)
{
    load(&first, HEAD "'arrivals': {'start': '5s', 'gap': '15s'}, " ONE, 1);
    for (size_t i = 0; i < first.count; i++)
        assert_int_equal(first.job[i].arrival_ns, (5 + 15 * i) * SECOND);
    unload(&first);
}

static void poisson_gaps_vary_as_much_as_their_mean(void **state)
{
    double mean, squares = 0;

    load(&first, HEAD "'arrivals': {'gap': {'exponential': {'mean': 10}}}, " ONE, 1);
    mean = mean_of(&first, gap);
    for (size_t i = 1; i < first.count; i++)
        squares += pow((double)gap(&first, i) - mean, 2);
    assert_true(fabs(mean / SECOND - 10) < 0.5);
    assert_true(fabs(sqrt(squares / 4000) / mean - 1) < 0.1);
    unload(&first);
}

static void bursts_come_together(void **state)
{
    load(&first, HEAD "'arrivals': {'gap': '10min', 'burst': 8, 'within': '2s'}, " ONE, 1);
    for (size_t i = 1; i < first.count; i++)
        assert_int_equal(gap(&first, i), (i % 8 ? 2 : 600) * SECOND);
    unload(&first);
}

static void a_workload_ends_by_number_or_time(void **state)
{
    load(&first,
         "{'machine': {'cores': 1}, 'workload': {'until': '1min', 'arrivals': {'gap': 9}, " ONE, 1);
    assert_int_equal(first.count, 7); /* 0, 9, … 54 */
    unload(&first);
    load(&first, "{'machine': {'cores': 1}, 'workload': {'jobs': 3, 'arrivals': {'gap': 9}, " ONE,
         1);
    assert_int_equal(first.count, 3);
    assert_int_equal(first.end, 0);
    unload(&first);
}

static void arrivals_beyond_the_clock_are_an_error_not_a_wrap(void **state)
{
    load(&first, HEAD "'arrivals': {'gap': '9000d'}, " ONE, 1);
    assert_int_equal(first.count, 2);
    assert_int_equal(first.end, -EINVAL);
    assert_non_null(strstr(first.err.text, "s.json: workload: job 3 would arrive after"));
    unload(&first);
}

static void a_draw_that_contradicts_the_rest_is_reported_with_job_and_seed(void **state)
{
    load(&first,
         HEAD "'arrivals': {'gap': 1}, 'mix': [{'speedup': 1, 'work': 1, 'min': 4, "
              "'request': {'uniform': [4, 5]}, 'max': {'uniform': [4, 8]}}]}}",
         1);
    assert_int_equal(first.end, -EINVAL);
    assert_non_null(strstr(first.err.text, "s.json: workload.mix[0]: job "));
    assert_non_null(strstr(first.err.text, " of seed 1: request: 5 is more than max, 4"));
    unload(&first);
}

/* ---- seeds ----------------------------------------------------------------------------------- */

#define RANDOM                                                                                     \
    "'arrivals': {'gap': {'exponential': {'mean': 10}}}, 'mix': [{'share': 2, 'speedup': 0.9, "    \
    "'work': {'lognormal': {'mean': 60, 'sigma': 1}}, 'request': {'uniform': [1, 16]}"

static void assert_same_but(const struct jobs *a, const struct jobs *b, bool with_work)
{
    assert_int_equal(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        assert_int_equal(a->job[i].arrival_ns, b->job[i].arrival_ns);
        assert_int_equal(a->job[i].request, b->job[i].request);
        if (with_work)
            assert_int_equal(a->job[i].work_ns, b->job[i].work_ns);
    }
}

static void a_seed_gives_the_same_jobs_every_time_and_another_seed_others(void **state)
{
    size_t same = 0;

    load(&first, HEAD RANDOM "}]}}", 1);
    load(&second, HEAD RANDOM "}]}}", 1);
    assert_same_but(&first, &second, true);
    unload(&second);
    load(&second, HEAD RANDOM "}]}}", 2);
    for (size_t i = 0; i < first.count; i++)
        same += first.job[i].work_ns == second.job[i].work_ns;
    assert_true(same < 40);
    unload(&first);
    unload(&second);
}

static void an_attribute_more_changes_no_other(void **state)
{
    load(&first, HEAD RANDOM "}]}}", 1);
    load(&second,
         HEAD RANDOM ", 'priority': {'uniform': [0, 9]}, 'estimate_factor': {'lognormal': {'mean': "
                     "1, 'sigma': 0.5}}, 'malleability': {'list': ['rigid', 'malleable']}}]}}",
         1);
    assert_same_but(&first, &second, true);
    unload(&first);
    unload(&second);
}

static void another_distribution_of_one_attribute_changes_no_other(void **state)
{
    load(&first, HEAD RANDOM "}]}}", 1);
    load(&second,
         HEAD "'arrivals': {'gap': {'exponential': {'mean': 10}}}, 'mix': [{'speedup': 0.9, 'work':"
              "{'normal': {'mean': 60, 'sd': 9}}, 'request': {'uniform': [1, 16]}}]}}",
         1);
    assert_same_but(&first, &second, false);
    unload(&first);
    unload(&second);
}

static void fewer_jobs_are_the_first_ones(void **state)
{
    load(&first, HEAD RANDOM "}]}}", 1);
    load(&second, "{'machine': {'cores': 16}, 'workload': {'jobs': 40, " RANDOM "}]}}", 1);
    assert_int_equal(second.count, 40);
    first.count = 40;
    assert_same_but(&first, &second, true);
    unload(&first);
    unload(&second);
}

/* So that scenarios of today give the same jobs next year. */
static void the_generator_is_the_one_that_it_was(void **state)
{
    struct rng rng = rng_at(1, "work", 0);

    assert_int_equal(rng_next(&rng), UINT64_C(0x93f70b1a7438666c));
    assert_int_equal(rng_next(&rng), UINT64_C(0x6748de5023f8814f));
}

/* ---- all kinds of jobs together -------------------------------------------------------------- */

static void listed_and_generated_jobs_are_merged_by_arrival(void **state)
{
    load(&first,
         "{'machine': {'cores': 16}, 'defaults': {'speedup': 1, 'work': 1}, 'jobs': ["
         "{'name': 'x', 'arrival': 20}, {'name': 'y', 'arrival': 5}], 'workload': {"
         "'jobs': 4, 'arrivals': {'gap': 10}, 'mix': [{'name': 'g'}]}}",
         1);
    static const char *const names[] = {"g-1", "y", "g-2", "x", "g-3", "g-4"};

    assert_int_equal(first.count, 6);
    for (size_t i = 0; i < 6; i++) {
        assert_string_equal(first.job[i].name, names[i]);
        assert_int_equal(first.job[i].id, i + 1);
    }
    unload(&first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(means_are_those_of_the_distributions),
        cmocka_unit_test(draws_stay_within_their_bounds),
        cmocka_unit_test(whole_numbers_are_uniform_with_both_ends),
        cmocka_unit_test(shares_of_words_and_kinds_are_kept),
        cmocka_unit_test(lists_may_hold_words_beside_numbers),
        cmocka_unit_test(fixed_gaps_begin_at_the_start),
        cmocka_unit_test(poisson_gaps_vary_as_much_as_their_mean),
        cmocka_unit_test(bursts_come_together),
        cmocka_unit_test(a_workload_ends_by_number_or_time),
        cmocka_unit_test(arrivals_beyond_the_clock_are_an_error_not_a_wrap),
        cmocka_unit_test(a_draw_that_contradicts_the_rest_is_reported_with_job_and_seed),
        cmocka_unit_test(a_seed_gives_the_same_jobs_every_time_and_another_seed_others),
        cmocka_unit_test(an_attribute_more_changes_no_other),
        cmocka_unit_test(another_distribution_of_one_attribute_changes_no_other),
        cmocka_unit_test(fewer_jobs_are_the_first_ones),
        cmocka_unit_test(the_generator_is_the_one_that_it_was),
        cmocka_unit_test(listed_and_generated_jobs_are_merged_by_arrival),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
