/* SPDX-License-Identifier: Apache-2.0 */
/* The machine model, job by job: speeds worked out by hand. */
#include "sim_build.h"

#include "sim/engine/machine.h"

#include <errno.h>

#define TASKS 8

/* Jobs that run at once, each with its cores. */
struct bench {
    struct sim_machine machine;
    struct sim_job job;
    struct machine_task tasks[TASKS], *task[TASKS];
    uint32_t count;
    uint64_t power_uw;
};

static void bench_init(struct bench *b, uint32_t cores, enum sim_placement placement)
{
    memset(b, 0, sizeof(*b));
    b->machine = (struct sim_machine){.cores = cores, .numa = 1, .smt = 1, .placement = placement};
    b->job = (struct sim_job){.curve = &linear, .work_ns = SECOND};
}

static void add(struct bench *b, const struct sim_curve *curve, int64_t mcpu)
{
    b->job.curve = curve;
    b->task[b->count] = &b->tasks[b->count];
    machine_hold(&b->machine, &b->job, mcpu, false, b->task[b->count++]);
}

/* In thousandths of a core, rounded to the nearest. */
static uint64_t permille(uint64_t fixed)
{
    return (uint64_t)(((sim_sum)fixed * 1000 + MACHINE_ONE / 2) >> 32);
}

static void expect(struct bench *b, uint32_t task, uint64_t rate_permille, uint64_t usage_permille)
{
    b->power_uw = machine_share(&b->machine, b->task, b->count);
    assert_int_equal(permille(b->tasks[task].rate), rate_permille);
    assert_int_equal(permille(b->tasks[task].usage), usage_permille);
}

static void a_curve_ends_flat(void **state)
{
    assert_int_equal(sim_curve_speed(&half_serial, 2), 1333);
    assert_int_equal(sim_curve_speed(&half_serial, 4), 1600);
    assert_int_equal(sim_curve_speed(&half_serial, 64), 1600);
}

static void alone_a_job_follows_its_curve(void **state)
{
    struct bench b;

    bench_init(&b, 8, SIM_SHARED);
    b.machine.contention_permille = b.machine.oversubscription_permille = 500;
    add(&b, &half_serial, 4000);
    expect(&b, 0, 1600, 1600); /* its gaps stay idle */
    b.job.request = 4;
    assert_at(machine_alone_ns(&b.machine, &b.job), SECOND * 10 / 16);
    b.job.request = 0; /* the default: all CPUs */
    assert_at(machine_alone_ns(&b.machine, &b.job), SECOND * 10 / 16);
    b.job.request = 1;
    assert_at(machine_alone_ns(&b.machine, &b.job), SECOND);
}

static void jobs_that_sleep_leave_their_cores_and_still_meet(void **state)
{
    struct bench b;

    bench_init(&b, 1, SIM_SHARED);
    b.job.idle_permille = 500;
    add(&b, &linear, 1000);
    expect(&b, 0, 1000, 500);
    add(&b, &linear, 1000);
    /* awake half of the time; then, half of the time, so is the other: 1 / (0.5 + 0.5 * 1.5) */
    expect(&b, 0, 800, 400);
    expect(&b, 1, 800, 400);
    b.job.idle_permille = 0;
    add(&b, &linear, 1000);
    expect(&b, 0, 571, 286); /* 1 / (0.5 + 0.5 * 2.5): itself, the other's half, the third */
    expect(&b, 2, 333, 333);
    bench_init(&b, 2, SIM_EXCLUSIVE);
    b.job.idle_permille = 500;
    add(&b, &linear, 1000);
    add(&b, &linear, 1000);
    expect(&b, 1, 1000, 500);
}

static void parallel_threads_waste_cpu_time(void **state)
{
    struct bench b;

    bench_init(&b, 8, SIM_SHARED);
    b.job.waste_permille = 400;
    add(&b, &half_serial, 1000);
    add(&b, &half_serial, 4000);
    expect(&b, 0, 1000, 1000);
    expect(&b, 1, 1600, 2080); /* 1.6 * (1 + 0.4 * 3/4) */
    b.job.waste_permille = 10000;
    machine_hold(&b.machine, &b.job, 4000, false, &b.tasks[1]);
    expect(&b, 1, 1600, 4000); /* no more than its threads */
}

static void below_its_demand_a_job_slows_down(void **state)
{
    struct bench b;

    bench_init(&b, 2, SIM_SHARED);
    b.job.waste_permille = 400;
    add(&b, &half_serial, 4000);
    expect(&b, 0, 1538, 2000); /* 1.6 * 2 / 2.08 */
}

static void shared_gaps_are_filled_by_others(void **state)
{
    struct bench b;

    bench_init(&b, 4, SIM_SHARED);
    add(&b, &half_serial, 4000);
    add(&b, &linear, 1000);
    add(&b, &linear, 1000);
    expect(&b, 0, 1600, 1600);
    expect(&b, 1, 1000, 1000);
    expect(&b, 2, 1000, 1000);
}

static void exclusive_gaps_stay_idle(void **state)
{
    struct bench b;

    bench_init(&b, 4, SIM_EXCLUSIVE);
    add(&b, &half_serial, 4000);
    add(&b, &linear, 1000);
    expect(&b, 0, 1600, 1600);
    expect(&b, 1, 800, 800); /* 5 cores on 4: its fence is 0.8 of one, though 2.4 are idle */
}

static void exclusive_jobs_that_fit_do_not_meet(void **state)
{
    struct bench b;

    bench_init(&b, 4, SIM_EXCLUSIVE);
    add(&b, &linear, 3000);
    add(&b, &linear, 1000);
    expect(&b, 0, 3000, 3000);
    expect(&b, 1, 1000, 1000);
}

static void scarce_cores_are_shared_by_weight_up_to_the_demand(void **state)
{
    struct bench b;

    bench_init(&b, 4, SIM_SHARED);
    add(&b, &half_serial, 4000); /* wants 1.6, its part would be 4 * 4/9 = 1.78 */
    add(&b, &linear, 3000);      /* of the 2.4 left, 3/5 */
    add(&b, &linear, 2000);
    expect(&b, 0, 1600, 1600);
    expect(&b, 1, 1440, 1440);
    expect(&b, 2, 960, 960);
}

static void a_quota_throttles_the_only_thread(void **state)
{
    struct bench b;

    bench_init(&b, 4, SIM_QUOTA);
    add(&b, &linear, 500);
    add(&b, &linear, 2500); /* two threads: the half core is of no use */
    expect(&b, 0, 500, 500);
    expect(&b, 1, 2000, 2000);
    b.machine.placement = SIM_SHARED;
    machine_hold(&b.machine, &b.job, 500, false, &b.tasks[0]);
    expect(&b, 0, 1000, 1000); /* where cores are free, a weight limits no job */
}

static void contention_is_what_others_cause(void **state)
{
    struct bench b;

    bench_init(&b, 4, SIM_SHARED);
    b.machine.contention_permille = 400;
    add(&b, &linear, 1000);
    expect(&b, 0, 1000, 1000);
    add(&b, &linear, 2000);
    expect(&b, 0, 800, 1000);  /* 1 - 0.4 * 2/4 */
    expect(&b, 1, 1800, 2000); /* 2 * (1 - 0.4 * 1/4) */
}

static void oversubscription_costs_more_than_the_share(void **state)
{
    struct bench b;

    bench_init(&b, 2, SIM_SHARED);
    b.machine.oversubscription_permille = 500;
    add(&b, &linear, 2000);
    expect(&b, 0, 2000, 2000);
    add(&b, &linear, 2000);
    expect(&b, 0, 667, 1000); /* half of the cores, and 1 / (1 + 0.5 * (2 - 1)) */
}

static void second_hardware_threads_add_their_gain(void **state)
{
    struct bench b;

    bench_init(&b, 4, SIM_SHARED);
    b.machine.smt = 2;
    b.machine.smt_gain_permille = 250;
    add(&b, &linear, 2000);
    expect(&b, 0, 2000, 2000); /* two cores of their own */
    add(&b, &linear, 2000);
    expect(&b, 0, 1250, 2000); /* (2 + 2 * 0.25) / 4 of the speed */
}

static void leaving_a_numa_node_costs(void **state)
{
    struct bench b;

    bench_init(&b, 8, SIM_SHARED);
    b.machine.numa = 2;
    b.machine.numa_permille = 200;
    add(&b, &linear, 4000);
    expect(&b, 0, 4000, 4000);
    machine_hold(&b.machine, &b.job, 5000, false, &b.tasks[0]);
    expect(&b, 0, 4000, 5000);
    machine_hold(&b.machine, &b.job, 4000, true, &b.tasks[0]);
    expect(&b, 0, 3200, 4000);
}

/* Two fast cores, and two of half the speed. */
static void of_two_speeds(struct bench *b, enum sim_placement placement)
{
    bench_init(b, 4, placement);
    b->machine.speed_count = 2;
    b->machine.speeds[0] = (struct policy_speed){2, 1000};
    b->machine.speeds[1] = (struct policy_speed){2, 500};
}

static void where_cores_overlap_the_fastest_are_busy(void **state)
{
    struct bench b;

    of_two_speeds(&b, SIM_SHARED);
    add(&b, &linear, 2000);
    expect(&b, 0, 2000, 2000);
    add(&b, &linear, 1000);
    expect(&b, 0, 1667, 2000); /* three busy cores of 2500 together */
    expect(&b, 1, 833, 1000);
    add(&b, &linear, 1000);
    expect(&b, 0, 1500, 2000);
}

static void a_job_with_cores_of_its_own_has_their_speed(void **state)
{
    static const uint32_t own[POLICY_SPEEDS_MAX] = {1, 2};
    struct bench b;

    of_two_speeds(&b, SIM_EXCLUSIVE);
    add(&b, &linear, 3000);
    machine_own_cores(&b.machine, own, 3, &b.tasks[0]);
    expect(&b, 0, 2000, 3000);
    machine_hold(&b.machine, &b.job, 1000, false, &b.tasks[0]); /* a serial phase */
    machine_own_cores(&b.machine, own, 1, &b.tasks[0]);
    expect(&b, 0, 1000, 1000);
    b.job.request = 4;
    assert_at(machine_alone_ns(&b.machine, &b.job), SECOND / 3);
}

static void busy_cores_draw_power_up_to_the_cap(void **state)
{
    struct bench b;

    bench_init(&b, 4, SIM_SHARED);
    b.machine.idle_uw = 10000000;
    b.machine.core_uw = 5000000;
    assert_int_equal(machine_share(&b.machine, NULL, 0), 10000000);
    add(&b, &linear, 2000);
    expect(&b, 0, 2000, 2000);
    assert_int_equal(b.power_uw, 20000000);
    b.machine.cap_uw = 15000000;
    expect(&b, 0, 1000, 2000);
    assert_int_equal(b.power_uw, 15000000);
}

static void no_share_exceeds_the_machine(void **state)
{
    struct bench b;
    uint32_t seed = 1;

    for (int round = 0; round < 5000; round++) {
        uint64_t usage = 0, limit = 0;

        bench_init(&b, 1 + (uint32_t)round % 8, round % SIM_PLACEMENT_MAX);
        while (b.count < TASKS) {
            seed = seed * 1664525 + 1013904223;
            b.job.waste_permille = seed >> 22;
            add(&b, seed & 0x10000 ? &linear : &half_serial, 1 + (seed >> 20) % 8000);
        }
        machine_share(&b.machine, b.task, b.count);
        for (uint32_t i = 0; i < b.count; i++) {
            const struct machine_task *t = &b.tasks[i];

            assert_true(t->usage <= t->limit && t->rate <= t->speed && t->rate > 0);
            usage += t->usage;
            limit += t->limit;
        }
        assert_true(usage <= b.machine.cores * MACHINE_ONE);
        /* work-conserving but for exclusive cores, to the rounding */
        if (b.machine.placement != SIM_EXCLUSIVE)
            assert_true(usage == limit || usage + TASKS > b.machine.cores * MACHINE_ONE);
    }
}

static void a_machine_that_cannot_be_is_refused(void **state)
{
    const struct sim_machine good = {.cores = 8, .numa = 2, .smt = 2};
    struct sim_machine bad[] = {good, good, good, good, good, good, good, good, good, good, good};
    struct error err;

    assert_int_equal(machine_check(&good, &err), 0);
    bad[0].cores = 0;
    bad[1].numa = 3;
    bad[2].smt = 0;
    bad[3].contention_permille = 1000;
    bad[4].memory_bytes = -1;
    bad[5].cap_uw = bad[5].idle_uw = 5;
    bad[6].placement = SIM_PLACEMENT_MAX;
    bad[7].core_uw = UINT64_MAX;
    bad[8].speed_count = bad[9].speed_count = bad[10].speed_count = 2;
    bad[8].speeds[0] = bad[8].speeds[1] = (struct policy_speed){4, 1000};
    bad[9].speeds[0] = (struct policy_speed){4, 1000};
    bad[9].speeds[1] = (struct policy_speed){5, 500};
    bad[10].speeds[0] = (struct policy_speed){4, 900};
    bad[10].speeds[1] = (struct policy_speed){4, 500};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        err.text[0] = 0;
        assert_int_equal(machine_check(&bad[i], &err), -EINVAL);
        assert_non_null(strstr(err.text, "machine: "));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_curve_ends_flat),
        cmocka_unit_test(alone_a_job_follows_its_curve),
        cmocka_unit_test(jobs_that_sleep_leave_their_cores_and_still_meet),
        cmocka_unit_test(parallel_threads_waste_cpu_time),
        cmocka_unit_test(below_its_demand_a_job_slows_down),
        cmocka_unit_test(shared_gaps_are_filled_by_others),
        cmocka_unit_test(exclusive_gaps_stay_idle),
        cmocka_unit_test(exclusive_jobs_that_fit_do_not_meet),
        cmocka_unit_test(scarce_cores_are_shared_by_weight_up_to_the_demand),
        cmocka_unit_test(a_quota_throttles_the_only_thread),
        cmocka_unit_test(contention_is_what_others_cause),
        cmocka_unit_test(oversubscription_costs_more_than_the_share),
        cmocka_unit_test(second_hardware_threads_add_their_gain),
        cmocka_unit_test(leaving_a_numa_node_costs),
        cmocka_unit_test(where_cores_overlap_the_fastest_are_busy),
        cmocka_unit_test(a_job_with_cores_of_its_own_has_their_speed),
        cmocka_unit_test(busy_cores_draw_power_up_to_the_cap),
        cmocka_unit_test(no_share_exceeds_the_machine),
        cmocka_unit_test(a_machine_that_cannot_be_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
