/* SPDX-License-Identifier: Apache-2.0 */
#include "power/measure/attribution.h"
#include "test_random.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define S     UINT64_C(1000000000)
#define W     UINT64_C(1000000)
#define CORES 8

/* The model of these tests: power at 0 … CORES busy cores, straight in between. */
struct watts {
    uint64_t uw[CORES + 1];
    uint32_t error_permille, basis;
};

static struct power_range power_at(const struct watts *w, uint32_t load_mcpu)
{
    uint32_t core = load_mcpu / 1000 < CORES ? load_mcpu / 1000 : CORES - 1;
    uint64_t part = load_mcpu - core * 1000 < 1000 ? load_mcpu - core * 1000 : 1000;
    uint64_t uw = w->uw[core] + (w->uw[core + 1] - w->uw[core]) * part / 1000;

    return (struct power_range){uw, uw - uw * w->error_permille / 1000,
                                uw + uw * w->error_permille / 1000, w->basis};
}

static struct attribution out;

/* Steps that fall (concave), rise (convex) or neither. */
static struct watts random_watts(unsigned shape)
{
    struct watts w = {.basis = POWER_CALIBRATED, .error_permille = random_below(200)};
    uint64_t step = 2 * W + random_below(30000000);

    w.uw[0] = W + random_below(100000000);
    for (unsigned i = 1; i <= CORES; i++) {
        w.uw[i] = w.uw[i - 1] + step;
        if (shape == 0)
            step -= random_below((uint32_t)(step / 2));
        else if (shape == 1)
            step += random_below((uint32_t)(step / 3));
        else
            step = random_below(30000000);
    }
    return w;
}

static uint64_t sum_of(const struct attribution *a, uint32_t jobs)
{
    uint64_t sum = a->idle.uj + a->system.uj + a->unattributed.uj;

    for (uint32_t i = 0; i < jobs; i++)
        sum += a->job[i].uj;
    return sum;
}

static void check_range(const struct energy_range *e, const struct attribution_input *in)
{
    assert_true(e->low_uj <= e->uj && e->uj <= e->high_uj);
    assert_true(e->high_uj <= in->machine.high_uj);
}

static void check_all(const struct attribution_input *in)
{
    assert_int_equal(sum_of(&out, in->job_count), in->machine.uj);
    check_range(&out.idle, in);
    check_range(&out.system, in);
    check_range(&out.unattributed, in);
    for (uint32_t i = 0; i < in->job_count; i++)
        check_range(&out.job[i], in);
}

static void the_parts_are_the_machine_exactly(void **state)
{
    static struct attribution_load load[ATTRIBUTION_JOBS_MAX];

    for (uint64_t seed = 1; seed <= 3000; seed++) {
        struct attribution_input in = {.jobs = load, .watts_at = power_at};
        struct watts w;

        random_state = seed;
        w = random_watts(random_below(3));
        in.watts = one_in(5) ? NULL : &w;
        in.interval_ns = 1 + (random_next() >> (28 + random_below(30)));
        in.busy_ns = random_next() >> (24 + random_below(40));
        in.speed_permille = 1 + random_below(4000);
        in.complete = !one_in(3);
        in.job_count = one_in(20) ? ATTRIBUTION_JOBS_MAX : random_below(12);
        for (uint32_t i = 0; i < in.job_count; i++)
            load[i] = (struct attribution_load){
                i, one_in(5) ? 0 : random_next() >> (28 + random_below(36)),
                1 + random_below(4000)};
        in.machine = energy_within(random_next() >> (16 + random_below(48)), random_below(1200),
                                   POWER_ASSUMED + random_below(POWER_BASIS_MAX - 1));
        assert_int_equal(attribution_make(&in, &out), 0);
        check_all(&in);
    }
}

/* The dynamic energy is divided by CPU time × frequency, each part to the µJ. */
static void parts_follow_time_and_frequency(void **state)
{
    const struct watts w = {
        .uw = {10 * W, 20 * W, 30 * W, 40 * W, 50 * W, 60 * W, 70 * W, 80 * W, 90 * W},
        .basis = POWER_MODELLED};
    const struct attribution_load load[] = {{1, S, 1000}, {2, S, 2000}, {3, 0, 1000}};
    const struct attribution_input in = {.machine = energy_within(50 * W, 0, POWER_MEASURED),
                                         .interval_ns = S,
                                         .busy_ns = 3 * S,
                                         .speed_permille = 1000,
                                         .watts_at = power_at,
                                         .watts = &w,
                                         .jobs = load,
                                         .job_count = 3,
                                         .complete = true};

    assert_int_equal(attribution_make(&in, &out), 0);
    assert_int_equal(out.idle.uj, 10 * W);
    assert_int_equal(out.job[0].uj, 10 * W);
    assert_int_equal(out.job[1].uj, 20 * W);
    assert_int_equal(out.system.uj, 10 * W);
    assert_int_equal(out.job[2].uj, 0);
    assert_int_equal(out.job[2].high_uj, 0); /* known to be nothing */
    assert_int_equal(out.job[2].basis, POWER_MODELLED);
    assert_int_equal(out.unattributed.uj, 0);
    assert_int_equal(out.unattributed.basis, POWER_MEASURED);
    /* A straight line says the same from both ends. */
    assert_int_equal(out.job[0].low_uj, 10 * W);
    assert_int_equal(out.job[0].high_uj, 10 * W);
}

static void without_a_model_all_is_unattributed(void **state)
{
    const struct attribution_load load[] = {{1, S, 1000}, {2, 0, 1000}};
    struct attribution_input in = {.machine = energy_within(50 * W, 10, POWER_MEASURED),
                                   .interval_ns = S,
                                   .busy_ns = S,
                                   .speed_permille = 1000,
                                   .jobs = load,
                                   .job_count = 2,
                                   .complete = true};

    assert_int_equal(attribution_make(&in, &out), 0);
    assert_int_equal(out.unattributed.uj, 50 * W);
    assert_int_equal(out.idle.basis, POWER_UNKNOWN);
    assert_int_equal(out.job[0].basis, POWER_UNKNOWN);
    assert_int_equal(out.job[0].low_uj, 0);
    assert_int_equal(out.job[0].high_uj, in.machine.high_uj);
    assert_int_equal(out.job[1].high_uj, 0);
}

static void of_an_unknown_machine_nothing_is_known(void **state)
{
    const struct watts w = {.uw = {W}, .basis = POWER_MODELLED};
    const struct attribution_load load[] = {{1, S, 1000}};
    struct attribution_input in = {.interval_ns = S,
                                   .busy_ns = S,
                                   .speed_permille = 1000,
                                   .watts_at = power_at,
                                   .watts = &w,
                                   .jobs = load,
                                   .job_count = 1};

    assert_int_equal(attribution_make(&in, &out), 0);
    assert_int_equal(out.idle.basis, POWER_UNKNOWN);
    assert_int_equal(out.system.basis, POWER_UNKNOWN);
    assert_int_equal(out.unattributed.basis, POWER_UNKNOWN);
    assert_int_equal(out.job[0].basis, POWER_UNKNOWN);
    assert_int_equal(sum_of(&out, 1), 0);
}

static void load_that_may_be_a_jobs_is_nobodys(void **state)
{
    const struct watts w = {.uw = {10 * W, 20 * W, 30 * W, 40 * W}, .basis = POWER_MODELLED};
    const struct attribution_load load[] = {{1, S, 1000}};
    struct attribution_input in = {.machine = energy_within(30 * W, 0, POWER_MEASURED),
                                   .interval_ns = S,
                                   .busy_ns = 2 * S,
                                   .speed_permille = 1000,
                                   .watts_at = power_at,
                                   .watts = &w,
                                   .jobs = load,
                                   .job_count = 1,
                                   .complete = false};

    assert_int_equal(attribution_make(&in, &out), 0);
    assert_int_equal(out.job[0].uj, 10 * W);
    assert_int_equal(out.job[0].high_uj, 20 * W); /* it may have used all of it */
    assert_int_equal(out.unattributed.uj, 10 * W);
    assert_int_equal(out.system.basis, POWER_UNKNOWN);
    in.job_count = 0;
    in.busy_ns = 0; /* watts above idle, and nothing ran */
    in.complete = true;
    assert_int_equal(attribution_make(&in, &out), 0);
    assert_int_equal(out.unattributed.uj, 20 * W);
    assert_int_equal(out.system.uj, 0);
    assert_int_equal(out.system.basis, POWER_MODELLED);
}

static void a_machine_below_the_models_idle_only_idles(void **state)
{
    const struct watts w = {.uw = {10 * W, 20 * W}, .basis = POWER_MODELLED, .error_permille = 100};
    const struct attribution_load load[] = {{1, S / 10, 1000}};
    const struct attribution_input in = {.machine = energy_within(8 * W, 10, POWER_MEASURED),
                                         .interval_ns = S,
                                         .busy_ns = S / 10,
                                         .speed_permille = 1000,
                                         .watts_at = power_at,
                                         .watts = &w,
                                         .jobs = load,
                                         .job_count = 1,
                                         .complete = true};

    assert_int_equal(attribution_make(&in, &out), 0);
    assert_int_equal(out.idle.uj, 8 * W);
    assert_int_equal(out.job[0].uj, 0);
    check_all(&in);
}

/* Orders of jobs, and how much each adds when the jobs before it run already. */
static void shapley(const struct watts *w, const struct attribution_load *load, unsigned n,
                    double *ret)
{
    double weight[6], factorial[7] = {1};

    for (unsigned i = 1; i <= n; i++)
        factorial[i] = factorial[i - 1] * i;
    for (unsigned i = 0; i < n; i++)
        weight[i] = factorial[i] * factorial[n - 1 - i] / factorial[n];
    for (unsigned i = 0; i < n; i++) {
        ret[i] = 0;
        for (unsigned set = 0; set < 1u << n; set++) {
            uint64_t ns = 0;

            if (set >> i & 1)
                continue;
            for (unsigned k = 0; k < n; k++)
                if (set >> k & 1)
                    ns += load[k].cpu_ns;
            ret[i] += weight[__builtin_popcount(set)] *
                      ((double)power_at(w, (uint32_t)((ns + load[i].cpu_ns) / 1000000)).uw -
                       (double)power_at(w, (uint32_t)(ns / 1000000)).uw);
        }
    }
}

/* The true shares by all orders lie within the bounds, on a curve that bends one way. */
static void bounds_hold_the_shapley_value(void **state)
{
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        struct attribution_load load[6];
        struct attribution_input in = {.interval_ns = S,
                                       .speed_permille = 1000,
                                       .watts_at = power_at,
                                       .jobs = load,
                                       .complete = true};
        struct watts w;
        double truth[6];

        random_state = seed;
        w = random_watts(random_below(2));
        w.error_permille = 0;
        in.watts = &w;
        in.job_count = 2 + random_below(5);
        for (uint32_t i = 0; i < in.job_count; i++) {
            load[i] = (struct attribution_load){i, random_below(1300) * UINT64_C(1000000), 1000};
            in.busy_ns += load[i].cpu_ns;
        }
        in.machine =
            energy_within(power_at(&w, (uint32_t)(in.busy_ns / 1000000)).uw, 0, POWER_MEASURED);
        shapley(&w, load, in.job_count, truth);
        assert_int_equal(attribution_make(&in, &out), 0);
        for (uint32_t i = 0; i < in.job_count; i++) {
            /* Curves in whole µW: a few of them are lost by rounding. */
            assert_true(truth[i] >= (double)out.job[i].low_uj - 10);
            assert_true(truth[i] <= (double)out.job[i].high_uj + 10);
        }
    }
}

static void the_order_of_jobs_changes_a_microjoule_at_most(void **state)
{
    const struct watts w = {.uw = {W, 2 * W, 3 * W, 4 * W, 5 * W, 6 * W, 7 * W, 8 * W, 9 * W},
                            .basis = POWER_MODELLED};
    struct attribution_load load[40], back[40];
    struct attribution_input in = {.machine = energy_within(7 * W + 3, 0, POWER_MEASURED),
                                   .interval_ns = S,
                                   .speed_permille = 1000,
                                   .watts_at = power_at,
                                   .watts = &w,
                                   .jobs = load,
                                   .job_count = 40,
                                   .complete = true};
    static struct attribution first;

    random_state = 9;
    for (unsigned i = 0; i < 40; i++) {
        load[i] = (struct attribution_load){i, random_below(200000000), 1000};
        back[39 - i] = load[i];
    }
    attribution_make(&in, &first);
    in.jobs = back;
    attribution_make(&in, &out);
    for (unsigned i = 0; i < 40; i++)
        assert_in_range(out.job[39 - i].uj + 1, first.job[i].uj, first.job[i].uj + 2);
}

static void what_no_machine_can_be_is_refused(void **state)
{
    static struct attribution_load load[ATTRIBUTION_JOBS_MAX + 1];
    struct attribution_input in = {.interval_ns = S, .speed_permille = 1000, .jobs = load};

    in.job_count = ATTRIBUTION_JOBS_MAX + 1;
    assert_int_equal(attribution_make(&in, &out), -EINVAL);
    in.job_count = 1; /* speed 0 */
    assert_int_equal(attribution_make(&in, &out), -EINVAL);
    load[0] = (struct attribution_load){1, UINT64_MAX, 1000};
    assert_int_equal(attribution_make(&in, &out), -EINVAL);
    load[0].cpu_ns = 1;
    assert_int_equal(attribution_make(&in, &out), 0);
    in.busy_ns = UINT64_MAX;
    assert_int_equal(attribution_make(&in, &out), -EINVAL);
    in.busy_ns = 0;
    in.speed_permille = 0;
    assert_int_equal(attribution_make(&in, &out), -EINVAL);
    in.speed_permille = 1;
    in.interval_ns = 0;
    assert_int_equal(attribution_make(&in, &out), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_parts_are_the_machine_exactly),
        cmocka_unit_test(parts_follow_time_and_frequency),
        cmocka_unit_test(without_a_model_all_is_unattributed),
        cmocka_unit_test(of_an_unknown_machine_nothing_is_known),
        cmocka_unit_test(load_that_may_be_a_jobs_is_nobodys),
        cmocka_unit_test(a_machine_below_the_models_idle_only_idles),
        cmocka_unit_test(bounds_hold_the_shapley_value),
        cmocka_unit_test(the_order_of_jobs_changes_a_microjoule_at_most),
        cmocka_unit_test(what_no_machine_can_be_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
