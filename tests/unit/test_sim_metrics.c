/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics of runs worked out by hand, quantiles against sorting, intervals against tables. */
#include "sim_build.h"

#include "sim/engine/metrics.h"

#include <math.h>
#include <stdlib.h>

static struct run run;
static struct sim_metrics metrics;
static struct sim_quantiles quantiles;
static double value[SIM_METRIC_MAX];

static void assert_near(double a, double b)
{
    assert_true(fabs(a - b) < 1e-9 * (1 + fabs(b)));
}

static void measure(void)
{
    memset(&metrics, 0, sizeof(metrics));
    for (uint32_t id = 1; id <= run.job_count; id++)
        sim_metrics_add(&metrics, &run.records[id]);
    sim_metrics_finish(&metrics, &run.machine, &run.totals, value);
}

static void two_jobs_by_hand(void **state)
{
    run_init(&run, 4);
    run.machine.idle_uw = 1000000;
    run_job(&run, SECOND, 4 * SECOND)->deadline_ns = 3 * SECOND;
    run_job(&run, SECOND, 8 * SECOND)->deadline_ns = 3 * SECOND;
    run_all(&run);
    measure(); /* they end 2 and 3 seconds after they came */
    assert_near(value[SIM_MAKESPAN], 3);
    assert_near(value[SIM_WAITING], 0);
    assert_near(value[SIM_EXECUTION], 2.5);
    assert_near(value[SIM_TURNAROUND], 2.5);
    assert_near(value[SIM_FIRST_RUN], 0);
    assert_near(value[SIM_SLOWDOWN], (2.0 / 4 + 3.0 / 8) / 2); /* they asked for one core */
    assert_near(value[SIM_THROUGHPUT], 2400);
    assert_near(value[SIM_HELD_CORES], 4);
    assert_near(value[SIM_BUSY_CORES], 4);
    assert_near(value[SIM_USEFUL_CORES], 4);
    assert_near(value[SIM_RESIZES], 1);
    assert_near(value[SIM_PAUSES], 0);
    assert_near(value[SIM_FAIRNESS], 0.875 * 0.875 / (2 * (0.25 + 0.375 * 0.375)));
    assert_near(value[SIM_ENERGY], 3);
    assert_near(value[SIM_MISSES], 1);
    assert_near(value[SIM_UNFINISHED], 0);
}

static void what_cannot_be_said_is_no_number(void **state)
{
    run_init(&run, 4);
    run.machine.memory_bytes = 10;
    run_job(&run, 0, SECOND)->memory_bytes = 11;
    assert_int_equal(run_try(&run), 0);
    measure();
    assert_near(value[SIM_UNFINISHED], 1);
    assert_true(isnan(value[SIM_MAKESPAN]) && isnan(value[SIM_TURNAROUND]) &&
                isnan(value[SIM_SLOWDOWN_P99]) && isnan(value[SIM_FAIRNESS]));
    assert_true(isnan(value[SIM_ENERGY]) && isnan(value[SIM_MISSES]));
    run.jobs[0].deadline_ns = 5;
    assert_int_equal(run_try(&run), 0);
    measure();
    assert_near(value[SIM_MISSES], 1); /* a job that never ends is late, too */
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static void quantiles_are_off_by_less_than_they_say(void **state)
{
    static uint64_t values[10001];
    uint32_t seed = 3;

    memset(&quantiles, 0, sizeof(quantiles));
    assert_int_equal(sim_quantiles_at(&quantiles, 500), 0);
    for (int i = 0; i < 10001; i++) {
        seed = seed * 1664525 + 1013904223;
        values[i] = (uint64_t)seed << (seed >> 8) % 33 >> (seed >> 4) % 30;
        sim_quantiles_add(&quantiles, values[i]);
    }
    sim_quantiles_add(&quantiles, UINT64_MAX); /* the last bucket exists */
    qsort(values, 10001, sizeof(values[0]), ascending);
    for (uint32_t permille = 1; permille < 1000; permille++) {
        uint64_t exact = values[(10002 * permille + 999) / 1000 - 1];
        uint64_t told = sim_quantiles_at(&quantiles, permille);
        uint64_t off = told > exact ? told - exact : exact - told;

        assert_true(off <= exact / 256);
    }
    assert_true(sim_quantiles_at(&quantiles, 1000) >= UINT64_MAX - UINT64_MAX / 256);
}

static void small_quantiles_are_exact(void **state)
{
    memset(&quantiles, 0, sizeof(quantiles));
    for (uint64_t v = 1; v <= 200; v++)
        sim_quantiles_add(&quantiles, v);
    assert_int_equal(sim_quantiles_at(&quantiles, 500), 100);
    assert_int_equal(sim_quantiles_at(&quantiles, 950), 190);
    assert_int_equal(sim_quantiles_at(&quantiles, 1), 1);
    assert_int_equal(sim_quantiles_at(&quantiles, 1000), 200);
}

static void an_interval_follows_students_t(void **state)
{
    const double values[] = {1, NAN, 2, 3, 4};
    struct sim_estimate e;

    sim_estimate(values, 5, &e);
    assert_int_equal(e.count, 4);
    assert_near(e.mean, 2.5);
    assert_near(e.high - 2.5, 3.182 * sqrt(5.0 / 3 / 4));
    assert_near(2.5 - e.low, e.high - 2.5);
    sim_estimate(values, 1, &e);
    assert_near(e.mean, 1);
    assert_true(isnan(e.low));
    sim_estimate(values, 0, &e);
    assert_true(e.count == 0 && isnan(e.mean));
}

static void policies_are_compared_seed_by_seed(void **state)
{
    const double a[] = {2, 40, 600, NAN}, b[] = {1, 10, 300, 5};
    struct sim_estimate e;

    sim_compare(a, b, 4, &e); /* ratios 2, 4, 2 */
    assert_int_equal(e.count, 3);
    assert_near(e.mean, cbrt(16));
    assert_near(e.high / e.mean, exp(4.303 * log(2) / 3)); /* deviation of the logs: ln 2 / √3 */
    assert_near(e.mean / e.low, e.high / e.mean);
}

static void every_metric_has_a_text(void **state)
{
    for (int m = 0; m < SIM_METRIC_MAX; m++) {
        assert_non_null(sim_metric_info(m)->name);
        for (int other = 0; other < m; other++)
            assert_string_not_equal(sim_metric_info(m)->name, sim_metric_info(other)->name);
    }
    assert_null(sim_metric_info(SIM_METRIC_MAX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_jobs_by_hand),
        cmocka_unit_test(what_cannot_be_said_is_no_number),
        cmocka_unit_test(quantiles_are_off_by_less_than_they_say),
        cmocka_unit_test(small_quantiles_are_exact),
        cmocka_unit_test(an_interval_follows_students_t),
        cmocka_unit_test(policies_are_compared_seed_by_seed),
        cmocka_unit_test(every_metric_has_a_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
