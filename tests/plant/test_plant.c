/* SPDX-License-Identifier: Apache-2.0 */
#include "truth.h"
#include "use.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define STEP 100000000ULL
#define S    10 /* steps in a second */

static const struct plant_params PLAIN = {
    .idle_uw = 40000000,
    .package_idle_uw = 12000000,
    .dram_idle_uw = 2000000,
    .core_uw = 10000000,
    .heat_ms = 20000,
    .fan_heat_permille = 3000,
    .wander_ms = 10000,
    .rapl_permille = 1000,
    .turbo_permille = 1000,
};

static uint64_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
    return *state >> 33;
}

/* Anything that plant_check() lets pass, without noise. */
static struct plant_params drawn(uint64_t *state)
{
    static const struct {
        uint64_t least, most;
    } BOUNDS[] = {
#define X(name, least, most) {least, most},
        PLANT_PARAMS(X)
#undef X
    };
    struct plant_params params;

    for (int i = 0; i < PLANT_PARAM_COUNT; i++)
        *plant_param(&params, i) =
            BOUNDS[i].least + next(state) % (BOUNDS[i].most - BOUNDS[i].least + 1);
    params.package_idle_uw = params.idle_uw / 2;
    params.dram_idle_uw = params.idle_uw / 4;
    params.noise_permille = params.wander_uw = 0;
    assert_int_equal(plant_check(&params), -1);
    return params;
}

static void run(struct plant *p, int steps, const struct plant_load *load)
{
    for (int i = 0; i < steps; i++)
        plant_step(p, STEP, load);
}

/* Mean wall power above idle over @steps steps of this load. */
static double above_idle(const struct plant_params *params, uint32_t cores,
                         const struct plant_load *load, int steps)
{
    struct plant p;

    plant_init(&p, params, cores, 1);
    run(&p, steps, load);
    return (double)p.total.wall_uj * S / steps - (double)params->idle_uw;
}

static void bounds_are_checked_and_names_found(void **state)
{
    struct plant_params params = PLAIN;

    assert_int_equal(plant_check(&params), -1);
    params.turbo_permille = 999;
    assert_int_equal(plant_check(&params), PLANT_AT_turbo_permille);
    params.turbo_permille = 3001;
    assert_string_equal(plant_param_name(plant_check(&params)), "turbo_permille");
    params = PLAIN;
    params.package_idle_uw = params.idle_uw - params.dram_idle_uw + 1;
    assert_int_equal(plant_check(&params), PLANT_AT_package_idle_uw);
    assert_ptr_equal(plant_param(&params, PLANT_AT_core_uw), &params.core_uw);
    assert_null(plant_param_name(PLANT_PARAM_COUNT));
    assert_null(plant_param_name(-1));
    assert_null(plant_param(&params, PLANT_PARAM_COUNT));
}

static void at_rest_it_draws_idle(void **state)
{
    struct plant_load load[2] = {{0, 1000}, {0, 1000}};
    struct plant p;

    plant_init(&p, &PLAIN, 2, 7);
    plant_step(&p, 10 * S * STEP, load);
    assert_int_equal(p.total.wall_uj, 10 * PLAIN.idle_uw);
    assert_int_equal(p.total.package_uj, 10 * PLAIN.package_idle_uw);
    assert_int_equal(p.total.dram_uj, 10 * PLAIN.dram_idle_uw);
    assert_int_equal(p.total.core_uj, 0);
}

static void parts_of_a_microjoule_add_up(void **state)
{
    struct plant_params params = PLAIN;
    struct plant_load load = {0, 1000};
    struct plant p;

    params.idle_uw += 123;
    plant_init(&p, &params, 1, 7);
    for (int i = 0; i < 1000; i++)
        plant_step(&p, 1000000, &load);
    assert_int_equal(p.total.wall_uj, params.idle_uw);
}

static void a_straight_plant_counts_busy_time_and_loses_in_the_supply(void **state)
{
    struct plant_params params = PLAIN;
    struct plant_load load[2] = {{STEP, 1000}, {STEP / 4, 1000}};
    struct plant p;

    params.supply_permille = 200;
    params.rapl_permille = 900;
    params.dram_uw = 4000000;
    plant_init(&p, &params, 2, 7);
    run(&p, S, load);
    assert_int_equal(p.total.core_uj, 12500000);
    assert_int_equal(p.total.package_uj, (12000000 + 12500000) * 9 / 10);
    assert_int_equal(p.total.dram_uj, 2000000 + 2500000);
    assert_int_equal(p.total.wall_uj, 40000000 + (12500000 + 2500000) * 12 / 10);
}

static void busy_time_beyond_the_step_counts_as_the_step(void **state)
{
    struct plant_load full = {STEP, 1000}, more = {UINT64_MAX, 1000};

    assert_true(above_idle(&PLAIN, 1, &full, 5) == above_idle(&PLAIN, 1, &more, 5));
}

static void more_load_never_draws_less(void **state)
{
    uint64_t seed = 1;

    for (int i = 0; i < 2000; i++) {
        struct plant_params params = drawn(&seed);
        struct plant_load load[4];
        struct plant p;

        for (int k = 0; k < 4; k++)
            load[k] = (struct plant_load){next(&seed) % STEP, 400 + (uint32_t)next(&seed) % 2000};
        plant_init(&p, &params, 4, 0);
        uint64_t before = plant_package_uw(&p, STEP, load);
        struct plant_load *one = &load[next(&seed) % 4];
        if (next(&seed) % 2)
            one->busy_ns += next(&seed) % STEP;
        else
            one->speed_permille += (uint32_t)next(&seed) % 500;
        assert_true(plant_package_uw(&p, STEP, load) >= before);
    }
}

static void half_a_core_costs_more_than_half_where_it_bends(void **state)
{
    struct plant_params params = PLAIN;
    struct plant_load one[2] = {{STEP, 1000}, {0, 1000}};
    struct plant_load halves[2] = {{STEP / 2, 1000}, {STEP / 2, 1000}};

    params.core_bend_permille = 500;
    assert_true(fabs(above_idle(&params, 2, one, S) - 1e7) < 100);
    /* 0.5 × 1.5 / 1.25 */
    assert_true(fabs(above_idle(&params, 2, halves, S) - 1.2e7) < 200);
    params.core_bend_permille = 0;
    params.uncore_uw = 6000000;
    params.uncore_bend_permille = 2000;
    /* Half of the machine: 0.5 × 3 / 2 of the uncore, on whichever cores. */
    assert_true(fabs(above_idle(&params, 2, one, S) - 1.45e7) < 200);
    assert_true(fabs(above_idle(&params, 2, halves, S) - 1.45e7) < 200);
}

static void the_cubic_part_goes_with_the_speed_cubed(void **state)
{
    struct plant_params params = PLAIN;
    struct plant_load load = {STEP, 1500};

    params.cubic_permille = 600;
    assert_true(fabs(above_idle(&params, 1, &load, S) - 1e7 * (0.4 * 1.5 + 0.6 * 3.375)) < 2e4);
    load.speed_permille = 500;
    assert_true(fabs(above_idle(&params, 1, &load, S) - 1e7 * (0.4 * 0.5 + 0.6 * 0.125)) < 2e4);
}

static void heat_and_leakage_follow_with_delay(void **state)
{
    struct plant_params params = PLAIN;
    struct plant_load load[2] = {{STEP, 1000}, {STEP, 1000}};
    struct plant p;
    uint64_t cold, warm;

    params.leak_permille = 100;
    params.leak_bend_permille = 1000;
    params.heat_ms = 10000;
    plant_init(&p, &params, 2, 0);
    cold = plant_package_uw(&p, STEP, load);
    run(&p, 10 * S, load);
    /* 1 - 1/e of full heat and a little, since leakage warms as well. */
    assert_in_range(p.heat, (1ULL << 30) * 62 / 100, (1ULL << 30) * 69 / 100);
    run(&p, 200 * S, load);
    warm = plant_package_uw(&p, STEP, load);
    /* A tenth of 20 W at full heat, more above it: x = 1 + 0.1 (x + x²)/2 has its root at 1.1185.
     */
    assert_in_range(p.heat, (1ULL << 30) * 1116 / 1000, (1ULL << 30) * 1121 / 1000);
    assert_in_range(warm - cold, 2350000, 2450000);
    load[0].busy_ns = load[1].busy_ns = 0;
    run(&p, 300 * S, load);
    assert_in_range(p.heat, 0, 1 << 20);
}

static void the_fan_steps_up_and_holds_on_for_a_while(void **state)
{
    struct plant_params params = PLAIN;
    struct plant_load busy = {STEP, 1000}, idle = {0, 1000};
    struct plant p;
    int up = 0, down = 0, changes = 0;

    params.fan_heat_permille = 500;
    params.fan_uw = 3000000;
    plant_init(&p, &params, 1, 0);
    for (int i = 1; i <= 1200; i++) {
        bool before = p.fan;

        plant_step(&p, STEP, i <= 600 ? &busy : &idle);
        changes += p.fan != before;
        if (p.fan && !before)
            up = i;
        if (!p.fan && before)
            down = i;
    }
    assert_int_equal(changes, 2);
    /* Half the heat after ln 2 of 20 s; 7/16 of it again by cooling from 0.95: 0.775 × 20 s. */
    assert_in_range(up, 136, 142);
    assert_in_range(down - 600, 152, 159);
}

static void noise_has_its_mean_and_width_and_a_seed_its_own(void **state)
{
    struct plant_params params = PLAIN;
    struct plant_load load = {0, 1000};
    struct plant p, same, other;
    double sum = 0, squares = 0;
    int alike = 0;

    params.noise_permille = 10;
    plant_init(&p, &params, 1, 42);
    plant_init(&same, &params, 1, 42);
    plant_init(&other, &params, 1, 43);
    for (int i = 0; i < 20000; i++) {
        plant_step(&p, STEP, &load);
        plant_step(&same, STEP, &load);
        plant_step(&other, STEP, &load);
        double off = (double)p.wall_uw / 40e6 - 1;
        sum += off;
        squares += off * off;
        alike += p.wall_uw == other.wall_uw;
        assert_int_equal(p.wall_uw, same.wall_uw);
    }
    assert_memory_equal(&p.total, &same.total, sizeof p.total);
    assert_memory_equal(&p.rest, &same.rest, sizeof p.rest);
    assert_true(alike < 20);
    assert_true(fabs(sum / 20000) < 0.0003);
    assert_true(fabs(sqrt(squares / 20000) - 0.01) < 0.0003);
    assert_int_equal(p.total.package_uj, 2000 * PLAIN.package_idle_uw);
}

static void the_wander_stays_within_its_amplitude_and_has_no_jumps(void **state)
{
    struct plant_params params = PLAIN;
    struct plant_load load = {0, 1000};
    struct plant p;
    int64_t before = (int64_t)PLAIN.idle_uw, least = INT64_MAX, most = 0, jump = 0;

    params.wander_uw = 500000;
    params.wander_ms = 5000;
    plant_init(&p, &params, 1, 3);
    for (int i = 0; i < 10000; i++) {
        plant_step(&p, STEP, &load);
        int64_t now = (int64_t)p.wall_uw;
        if (i > 0 && llabs(now - before) > jump)
            jump = llabs(now - before);
        before = now;
        least = now < least ? now : least;
        most = now > most ? now : most;
    }
    assert_in_range(least, PLAIN.idle_uw - 500000, PLAIN.idle_uw - 400000);
    assert_in_range(most, PLAIN.idle_uw + 400000, PLAIN.idle_uw + 500000);
    assert_in_range(jump, 1, 2 * 500000 / 50 + 100);
}

static void a_long_step_is_many_short_ones(void **state)
{
    uint64_t seed = 5;

    for (int i = 0; i < 20; i++) {
        struct plant_params params = drawn(&seed);
        struct plant_load load[2] = {{STEP / 3, 1200}, {STEP, 900}};
        struct plant_load long_load[2] = {{STEP / 3 * 50, 1200}, {STEP * 50, 900}};
        struct plant one, many;

        params.noise_permille = 5;
        plant_init(&one, &params, 2, 9);
        plant_init(&many, &params, 2, 9);
        plant_step(&one, 50 * STEP, long_load);
        run(&many, 50, load);
        assert_int_equal(one.tick, many.tick);
        assert_int_equal(one.time_ns, many.time_ns);
        assert_true(llabs((int64_t)(one.total.wall_uj - many.total.wall_uj)) <= 2);
    }
}

/* The same formulas with doubles: what overflows or is cut too short differs. */
static void integers_agree_with_real_numbers_up_to_the_largest_plant(void **state)
{
    uint64_t seed = 11;

    for (int i = 0; i < 500; i++) {
        struct plant_params q = drawn(&seed);
        uint32_t cores = i % 2 ? PLANT_CORES_MAX : 1 + (uint32_t)next(&seed) % 8;
        struct plant_load load[PLANT_CORES_MAX];
        struct plant p;
        double core = 0, busy = 0, heat, leak, uncore, wall;

        if (i == 1) /* the most of everything */
            for (int k = PLANT_AT_core_uw; k < PLANT_PARAM_COUNT; k++)
                while (plant_check(&q) < 0 && *plant_param(&q, k) < UINT64_C(1) << 40)
                    *plant_param(&q, k) += *plant_param(&q, k) / 64 + 1;
        if (i == 1)
            for (int k = 0; k < PLANT_PARAM_COUNT; k++)
                while (plant_check(&q) == k)
                    --*plant_param(&q, k);
        q.noise_permille = q.wander_uw = 0;
        plant_init(&p, &q, cores, 0);
        p.heat = next(&seed) % (3ULL << 30);
        for (uint32_t k = 0; k < cores; k++) {
            load[k] = (struct plant_load){next(&seed) % STEP, (uint32_t)next(&seed) % 3001};
            double u = (double)load[k].busy_ns / STEP, f = load[k].speed_permille / 1e3;
            double b = (double)q.core_bend_permille / 1e3, c = (double)q.cubic_permille / 1e3;
            busy += u;
            core += (double)q.core_uw * u * (1 + b) / (1 + u * b) * ((1 - c) * f + c * f * f * f);
        }
        busy /= cores;
        heat = (double)p.heat / (1 << 30);
        leak = (double)q.leak_bend_permille / 1e3;
        leak = (heat + heat * heat * leak) / (1 + leak) * (double)q.leak_permille / 1e3 *
               (double)(q.core_uw * cores + q.uncore_uw);
        uncore = (double)q.uncore_bend_permille / 1e3;
        uncore = (double)q.uncore_uw * busy * (1 + uncore) / (1 + busy * uncore);
        wall = (double)q.idle_uw + (1 + (double)q.supply_permille / 1e3) *
                                       (core + uncore + leak + busy * (double)q.dram_uw);
        plant_step(&p, STEP, load);
        assert_true(fabs((double)p.wall_uw - wall) < wall * 0.002 + 1000 * cores);
        assert_true(fabs((double)p.total.wall_uj * S - wall) < wall * 0.002 + 1000 * cores);
    }
}

static void the_governor_keeps_the_limit_with_the_most_speed(void **state)
{
    uint64_t seed = 21;
    int bound = 0;

    for (int i = 0; i < 1000; i++) {
        struct plant_params params = drawn(&seed);
        struct plant_load load[2] = {{STEP, 0}, {next(&seed) % STEP, 0}};
        struct plant p;

        plant_init(&p, &params, 2, 0);
        uint32_t free = plant_govern(&p, STEP, 0, load);
        assert_in_range(free, 1000, params.turbo_permille);
        uint64_t full = plant_package_uw(&p, STEP, load);
        uint64_t rest = params.package_idle_uw * params.rapl_permille / 1000;
        uint64_t limit = full - (full - rest) / 4;
        uint32_t speed = plant_govern(&p, STEP, limit, load);
        assert_int_equal(load[0].speed_permille, speed);
        assert_int_equal(load[1].speed_permille, speed);
        if (speed == PLANT_SPEED_MIN)
            continue;
        bound++;
        assert_true(plant_package_uw(&p, STEP, load) <= limit);
        load[0].speed_permille = load[1].speed_permille = speed + 1;
        assert_true(plant_package_uw(&p, STEP, load) > limit || speed == free);
    }
    assert_true(bound > 300);
}

/* The definition: what each adds when it comes, over all orders of coming. */
static void by_all_orders(const int64_t *value, uint32_t players, uint32_t set, double *sum,
                          double *orders)
{
    double before = *orders;

    if (set == (UINT32_C(1) << players) - 1) {
        ++*orders;
        return;
    }
    for (uint32_t i = 0; i < players; i++) {
        if (set >> i & 1)
            continue;
        before = *orders;
        by_all_orders(value, players, set | UINT32_C(1) << i, sum, orders);
        sum[i] += (*orders - before) * (double)(value[set | UINT32_C(1) << i] - value[set]);
    }
}

static void shapley_equals_the_mean_over_all_orders(void **state)
{
    uint64_t seed = 31;

    for (int i = 0; i < 60; i++) {
        uint32_t players = 1 + (uint32_t)i % 8;
        int64_t value[256], share[8], total = 0;
        double sum[8] = {0}, orders = 0;

        for (int k = 0; k < 256; k++)
            value[k] = (int64_t)(next(&seed) % 2000000) - 500000;
        truth_shapley(value, players, share);
        by_all_orders(value, players, 0, sum, &orders);
        for (uint32_t k = 0; k < players; k++) {
            assert_true(fabs((double)share[k] - sum[k] / orders) < 1.0 + 1e-6);
            total += share[k];
        }
        assert_int_equal(total, value[(1 << players) - 1] - value[0]);
    }
}

static void shapley_gives_nothing_to_a_dummy_and_alike_to_the_alike(void **state)
{
    uint64_t seed = 41;

    for (int i = 0; i < 200; i++) {
        int64_t value[1 << TRUTH_PLAYERS_MAX], share[TRUTH_PLAYERS_MAX];
        int64_t of[1 << 8];

        /* Players 0 and 1 count alike, player 9 does not count. */
        for (int k = 0; k < 256; k++)
            of[k] = (int64_t)(next(&seed) % INT32_MAX) << 12;
        for (int k = 0; k < 1 << TRUTH_PLAYERS_MAX; k++)
            value[k] = of[(k >> 2 & 0x7f) ^ (((k & 1) + (k >> 1 & 1)) * 85)];
        truth_shapley(value, TRUTH_PLAYERS_MAX, share);
        assert_int_equal(share[9], 0);
        assert_in_range(share[0] - share[1] + 1, 0, 2);
    }
}

static void truth_of_a_straight_plant_is_what_each_draws(void **state)
{
    struct plant_params params = PLAIN;
    uint64_t busy[3][2] = {{STEP / 2, 0}, {STEP / 4, STEP}, {0, 0}};
    uint32_t speed[2] = {1000, 500};
    struct truth *t = NULL;
    int64_t share[3];

    params.noise_permille = 10; /* is nobody's */
    params.rapl_permille = 800;
    assert_int_equal(truth_new(&params, 2, 3, &t), 0);
    for (int i = 0; i < 100; i++)
        truth_step(t, STEP, &busy[0][0], speed);
    truth_shares(t, TRUTH_WALL, share);
    assert_int_equal(share[0], 50000000);
    assert_int_equal(share[1], 75000000);
    assert_int_equal(share[2], 0);
    truth_shares(t, TRUTH_RAPL, share);
    assert_int_equal(share[0], 40000000);
    assert_int_equal(share[1], 60000000);
    assert_int_equal(truth_idle_uj(t, TRUTH_WALL), 10 * params.idle_uw);
    assert_int_equal(truth_idle_uj(t, TRUTH_RAPL), 10 * (12000000 * 8 / 10 + 2000000));
    assert_null(truth_free(t));
}

static void truth_divides_all_that_any_plant_draws_above_idle(void **state)
{
    uint64_t seed = 51;

    for (int i = 0; i < 40; i++) {
        struct plant_params params = drawn(&seed);
        uint64_t busy[5][4] = {0};
        uint32_t speed[4];
        struct truth *t = NULL;

        assert_int_equal(truth_new(&params, 4, 5, &t), 0);
        for (int step = 0; step < 50; step++) {
            /* Players 0 and 1 do the same, player 4 nothing. */
            for (int k = 0; k < 4; k++) {
                busy[0][k] = busy[1][k] = next(&seed) % (STEP / 4);
                busy[2][k] = next(&seed) % (STEP / 4);
                busy[3][k] = next(&seed) % (STEP / 4);
                speed[k] = 800 + (uint32_t)next(&seed) % 400;
            }
            truth_step(t, STEP, &busy[0][0], speed);
        }
        for (enum truth_of of = TRUTH_WALL; of <= TRUTH_RAPL; of++) {
            int64_t share[5], sum = 0;

            truth_shares(t, of, share);
            for (int k = 0; k < 5; k++)
                sum += share[k];
            assert_int_equal(sum, truth_all_uj(t, of) - truth_idle_uj(t, of));
            assert_in_range(share[0] - share[1] + 1, 0, 2);
            assert_true(share[2] > 0);
            assert_int_equal(share[4], 0);
        }
        truth_free(t);
    }
}

static void a_player_who_comes_later_changes_nothing_of_before(void **state)
{
    uint64_t seed = 61;

    for (int i = 0; i < 20; i++) {
        struct plant_params params = drawn(&seed);
        uint64_t busy[3] = {STEP / 5, STEP / 3, 0};
        uint32_t speed = 1000;
        struct truth *all = NULL, *late = NULL;
        int64_t share[3], same[3];

        assert_int_equal(truth_new(&params, 1, 3, &all), 0);
        assert_int_equal(truth_new(&params, 1, 2, &late), 0);
        for (int step = 0; step < 60; step++) {
            if (step == 30) {
                assert_int_equal(truth_add(&late), 0);
                busy[2] = STEP / 4;
            }
            truth_step(all, STEP, busy, &speed);
            truth_step(late, STEP, busy, &speed);
        }
        truth_shares(all, TRUTH_WALL, share);
        truth_shares(late, TRUTH_WALL, same);
        assert_memory_equal(share, same, sizeof share);
        assert_true(share[2] > 0);
        truth_free(all);
        truth_free(late);
    }
}

static void truth_refuses_what_it_cannot_hold(void **state)
{
    struct plant_params params = PLAIN;
    struct truth *t = NULL;

    assert_int_equal(truth_new(&params, 2, TRUTH_PLAYERS_MAX + 1, &t), -EINVAL);
    assert_int_equal(truth_new(&params, 2, 0, &t), -EINVAL);
    assert_int_equal(truth_new(&params, PLANT_CORES_MAX + 1, 2, &t), -EINVAL);
    params.idle_uw = 0;
    assert_int_equal(truth_new(&params, 2, 2, &t), -EINVAL);
    assert_null(t);
    assert_int_equal(truth_new(&PLAIN, 1, TRUTH_PLAYERS_MAX, &t), 0);
    assert_int_equal(truth_add(&t), -E2BIG);
    truth_free(t);
    assert_null(truth_free(NULL));
}

static void jobs_never_have_more_of_a_cpu_than_it_was_busy(void **state)
{
    uint64_t job[2][2] = {{70, 10}, {50, 0}}, busy[2] = {100, 30}, over[USE_JOBS_MAX] = {0};

    /* 20 too much on the first CPU go to the second one. */
    use_fit(&job[0][0], 2, 2, busy, over);
    assert_int_equal(job[0][0], 70);
    assert_int_equal(job[1][0], 30);
    assert_int_equal(job[0][1], 10);
    assert_int_equal(job[1][1], 20);
    assert_int_equal(over[0] + over[1], 0);
}

static void what_finds_no_room_comes_again(void **state)
{
    uint64_t job[1][2] = {{90, 0}}, busy[2] = {60, 10}, over[USE_JOBS_MAX] = {0};

    use_fit(&job[0][0], 1, 2, busy, over);
    assert_int_equal(job[0][0], 60);
    assert_int_equal(job[0][1], 10);
    assert_int_equal(over[0], 20);
    job[0][0] = 30;
    job[0][1] = 0;
    use_fit(&job[0][0], 1, 2, busy, over);
    assert_int_equal(job[0][0] + job[0][1], 50);
    assert_int_equal(over[0], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_are_checked_and_names_found),
        cmocka_unit_test(at_rest_it_draws_idle),
        cmocka_unit_test(parts_of_a_microjoule_add_up),
        cmocka_unit_test(a_straight_plant_counts_busy_time_and_loses_in_the_supply),
        cmocka_unit_test(busy_time_beyond_the_step_counts_as_the_step),
        cmocka_unit_test(more_load_never_draws_less),
        cmocka_unit_test(half_a_core_costs_more_than_half_where_it_bends),
        cmocka_unit_test(the_cubic_part_goes_with_the_speed_cubed),
        cmocka_unit_test(heat_and_leakage_follow_with_delay),
        cmocka_unit_test(the_fan_steps_up_and_holds_on_for_a_while),
        cmocka_unit_test(noise_has_its_mean_and_width_and_a_seed_its_own),
        cmocka_unit_test(the_wander_stays_within_its_amplitude_and_has_no_jumps),
        cmocka_unit_test(a_long_step_is_many_short_ones),
        cmocka_unit_test(integers_agree_with_real_numbers_up_to_the_largest_plant),
        cmocka_unit_test(the_governor_keeps_the_limit_with_the_most_speed),
        cmocka_unit_test(shapley_equals_the_mean_over_all_orders),
        cmocka_unit_test(shapley_gives_nothing_to_a_dummy_and_alike_to_the_alike),
        cmocka_unit_test(truth_of_a_straight_plant_is_what_each_draws),
        cmocka_unit_test(truth_divides_all_that_any_plant_draws_above_idle),
        cmocka_unit_test(a_player_who_comes_later_changes_nothing_of_before),
        cmocka_unit_test(truth_refuses_what_it_cannot_hold),
        cmocka_unit_test(jobs_never_have_more_of_a_cpu_than_it_was_busy),
        cmocka_unit_test(what_finds_no_room_comes_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
