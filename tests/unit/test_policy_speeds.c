/* SPDX-License-Identifier: Apache-2.0 */
/* Cores of several speeds: known cases, and properties on random machines, jobs and users. */
#include "test_policy_scene.h"

#define RANDOM_SNAPSHOTS TIMES(3000)
#define USERS            4

static struct policy_user users[USERS];

/* @fast cores, and @slow ones of 600 permille. */
static void machine(uint32_t fast, uint32_t slow)
{
    scene_init(&scene, fast + slow, 0);
    scene.snapshot.speeds[0] = (struct policy_speed){fast, 1000};
    scene.snapshot.speeds[1] = (struct policy_speed){slow, 600};
    scene.snapshot.speed_count = 2;
}

static struct policy_job *fenced(uint32_t user)
{
    struct policy_job *job = scene_job(&scene);

    job->fenced = true;
    job->user = user;
    if (user >= scene.snapshot.user_count) {
        users[user] =
            (struct policy_user){.id = user, .weight = 100, .most_mcpu = POLICY_UNLIMITED};
        scene.snapshot.users = users;
        scene.snapshot.user_count = user + 1;
    }
    return job;
}

static void decide(const char *policy)
{
    struct policy_spec spec = choice(policy);

    decide_into(&outcome, &spec);
}

static int64_t cores_of(uint32_t j)
{
    return policy_decision_total(&outcome.plan, j, POLICY_MCPU) / POLICY_CORE_MCPU;
}

static int64_t speed_of(uint32_t j)
{
    int64_t speed = 0;

    for (uint32_t i = 0; i < scene.snapshot.speed_count; i++)
        speed +=
            (int64_t)outcome.decisions[j].of_speed[i] * (int64_t)scene.snapshot.speeds[i].permille;
    return speed;
}

static void expect_cores(uint32_t j, uint32_t fast, uint32_t slow)
{
    assert_int_equal(outcome.decisions[j].of_speed[0], fast);
    assert_int_equal(outcome.decisions[j].of_speed[1], slow);
    assert_int_equal(cores_of(j), fast + slow);
}

static void equal_shares_are_equal_in_speed(void **state)
{
    machine(4, 4);
    for (int i = 0; i < 3; i++)
        fenced(0);
    decide("equal");
    expect_cores(0, 2, 0); /* 2.0, 2.2 and 2.2 of a fast core; 3, 3 and 2 by number */
    expect_cores(1, 1, 2);
    expect_cores(2, 1, 2);
}

static void weights_count_speed(void **state)
{
    machine(4, 4);
    fenced(0)->weight = 3;
    fenced(0);
    decide("equal");
    assert_int_equal(speed_of(0), 4800);
    assert_int_equal(speed_of(1), 1600);
}

static void users_come_before_their_jobs(void **state)
{
    machine(4, 4);
    fenced(0);
    for (int i = 0; i < 3; i++)
        fenced(1);
    decide("equal");
    assert_int_equal(speed_of(0), 3200);
    assert_int_equal(speed_of(1) + speed_of(2) + speed_of(3), 3200);
    machine(2, 5); /* three users: 5000 of speed, seven cores */
    for (uint32_t i = 0; i < 3; i++)
        fenced(i);
    decide("equal");
    expect_cores(0, 1, 1);
    expect_cores(1, 1, 1);
    expect_cores(2, 0, 3);
    assert_int_equal(outcome.decisions[2].user_mcpu, CORES(3)); /* no more than its share */
}

/* It is cut to the share where users share, and stays cut where speeds are exchanged. */
static void a_minimum_above_its_users_share_takes_nothing_from_another_user(void **state)
{
    for (int pinned = 0; pinned < 2; pinned++) {
        struct policy_job *job;

        machine(4, 4);
        job = fenced(0);
        if (pinned) {
            job->pinned_by = POLICY_PIN_HAND;
            job->pinned.of[POLICY_MCPU] = CORES(8);
        } else {
            job->min.of[POLICY_MCPU] = CORES(8);
        }
        fenced(1);
        decide("equal");
        assert_true(cores_of(0) + cores_of(1) <= 8);
        assert_true(speed_of(1) >= 2800); /* half of 6400, but for a core's rounding */
    }
}

static void their_number_stays_where_count_is_shared(void **state)
{
    machine(4, 4);
    for (int i = 0; i < 3; i++)
        fenced(0);
    decide("equal/hybrid=count");
    for (uint32_t j = 0; j < 3; j++)
        assert_int_equal(cores_of(j), j < 2 ? 3 : 2);
    expect_cores(0, 2, 1); /* each its part of the fast cores */
    expect_cores(1, 1, 2);
    expect_cores(2, 1, 1);
}

static void fixed_jobs_keep_their_number(void **state)
{
    struct policy_job *job;

    machine(4, 4);
    job = fenced(0);
    job->pinned_by = POLICY_PIN_HAND;
    job->pinned.of[POLICY_MCPU] = CORES(2);
    fenced(0)->max.of[POLICY_MCPU] = CORES(1);
    fenced(0);
    decide("equal");
    assert_int_equal(cores_of(0), 2);
    assert_int_equal(cores_of(1), 1);
    assert_int_equal(cores_of(2), 5);
}

static void fewer_fast_cores_than_jobs_go_to_those_that_use_them_best(void **state)
{
    static const uint32_t flat[] = {1000, 1050, 1050, 1050}, steep[] = {1000, 2000, 3000, 4000};

    machine(1, 3);
    for (int i = 0; i < 2; i++)
        fenced(0)->curve[POLICY_MCPU] = (struct policy_curve){i ? steep : flat, NULL, 4, 1000};
    decide("equal/hybrid=count");
    expect_cores(0, 0, 2);
    expect_cores(1, 1, 1);
}

static void both_gain_by_an_exchange(void **state)
{
    static const uint32_t flat[] = {1000, 1333, 1500, 1600},
                          steep[] = {1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000};

    machine(4, 4);
    fenced(0)->curve[POLICY_MCPU] = (struct policy_curve){flat, NULL, 4, 1000};
    fenced(0)->curve[POLICY_MCPU] = (struct policy_curve){steep, NULL, 8, 1000};
    decide("equal");
    expect_cores(0, 3, 0); /* 1.5 instead of 1.6 × 0.8 */
    expect_cores(1, 1, 4); /* 3.4 instead of 3.2 */
}

static void jobs_on_shared_cores_are_left_alone(void **state)
{
    static struct outcome alike;

    for (uint32_t n = 0; n < RANDOM_SNAPSHOTS; n++) {
        struct policy_spec spec = choice(policy_at(n % policy_count())->name);

        random_scene(&scene, n, WITH_WEIGHTS | WITH_FIXED | WITH_HISTORY);
        decide_into(&alike, &spec);
        scene.snapshot.speeds[0] = (struct policy_speed){2, 1000};
        scene.snapshot.speeds[1] = (struct policy_speed){200, 1 + random_below(999)};
        scene.snapshot.speed_count = 2;
        if (n % 2)
            scene.snapshot.speed_count = 1;
        for (uint32_t j = 0; j < scene.snapshot.job_count; j++)
            scene.jobs[j].fenced = n % 2;
        decide_into(&outcome, &spec);
        for (uint32_t j = 0; j < scene.snapshot.job_count; j++) {
            assert_true(same_decision(&alike, j, &outcome, j));
            assert_int_equal(speed_of(j), 0);
        }
    }
}

static void random_machine(uint32_t n)
{
    uint32_t count;

    random_state = n;
    scene_init(&scene, 0, 0);
    scene.snapshot.speed_count = 1 + random_below(POLICY_SPEEDS_MAX);
    for (uint32_t i = 0, permille = 1000; i < scene.snapshot.speed_count; i++) {
        uint32_t cores = 1 + random_below(8);

        scene.snapshot.speeds[i] = (struct policy_speed){cores, permille};
        scene.domains[0].capacity.of[POLICY_MCPU] += CORES(cores);
        permille -= 1 + random_below(250);
    }
    count = 1 + random_below((uint32_t)(scene.domains[0].capacity.of[POLICY_MCPU] / CORES(1)));
    for (uint32_t i = 0; i < count && i < 24; i++)
        fenced(random_below(USERS));
    while (scene.snapshot.user_count < USERS)
        users[scene.snapshot.user_count++] =
            (struct policy_user){.id = 9, .weight = 100, .most_mcpu = POLICY_UNLIMITED};
}

/* No core has two owners, whatever the policy, bounds and states. */
static void no_core_is_given_twice(void **state)
{
    uint32_t with = 0;

    for (uint32_t n = 0; n < RANDOM_SNAPSHOTS; n++) {
        struct policy_spec spec = choice(policy_at(n % policy_count())->name);
        int64_t given[POLICY_SPEEDS_MAX] = {0};

        random_machine(n);
        for (uint32_t j = 0; j < scene.snapshot.job_count; j++) {
            struct policy_job *job = &scene.jobs[j];

            job->fenced = !one_in(4);
            job->weight = 1 + random_below(3);
            job->min.of[POLICY_MCPU] = CORES(random_below(3));
            if (one_in(3))
                job->max.of[POLICY_MCPU] = CORES(2 + random_below(4));
            if (one_in(3))
                scene_hold(&scene, job, 0, 1 + random_below(3), 0);
        }
        decide_into(&outcome, &spec);
        for (uint32_t j = 0; j < scene.snapshot.job_count; j++) {
            int64_t sum = 0;

            for (uint32_t i = 0; i < scene.snapshot.speed_count; i++) {
                given[i] += outcome.decisions[j].of_speed[i];
                sum += outcome.decisions[j].of_speed[i];
            }
            if (sum == 0)
                continue;
            with++;
            assert_true(scene.jobs[j].fenced);
            assert_int_equal(sum, cores_of(j));
        }
        for (uint32_t i = 0; i < scene.snapshot.speed_count; i++)
            assert_true(given[i] <= scene.snapshot.speeds[i].cores);
    }
    assert_true(with > RANDOM_SNAPSHOTS);
}

/* The sum over a user's jobs, and its slowest core. */
static int64_t speed_of_user(uint32_t user, int64_t *ret_slowest)
{
    int64_t sum = 0;

    *ret_slowest = 0;
    for (uint32_t j = 0; j < scene.snapshot.job_count; j++) {
        if (scene.jobs[j].user != user)
            continue;
        sum += speed_of(j);
        for (uint32_t i = 0; i < scene.snapshot.speed_count; i++)
            if (outcome.decisions[j].of_speed[i] &&
                (*ret_slowest == 0 || scene.snapshot.speeds[i].permille < *ret_slowest))
                *ret_slowest = scene.snapshot.speeds[i].permille;
    }
    return sum;
}

/* Fewer cores than jobs are no choice. */
static bool has_only_minima(uint32_t user)
{
    for (uint32_t j = 0; j < scene.snapshot.job_count; j++)
        if (scene.jobs[j].user == user && cores_of(j) > 1)
            return false;
    return true;
}

/* True if no user would still be ahead of another one without the slowest of its cores. */
static bool users_are_even(void)
{
    for (uint32_t u = 0; u < USERS; u++)
        for (uint32_t v = 0; v < USERS; v++) {
            int64_t slowest, other, speed = speed_of_user(u, &slowest);

            if (!has_only_minima(u) && speed_of_user(v, &other) &&
                speed - slowest > speed_of_user(v, &other))
                return false;
        }
    return true;
}

static bool jobs_are_even(void)
{
    for (uint32_t j = 0; j < scene.snapshot.job_count; j++)
        for (uint32_t k = 0; k < scene.snapshot.job_count; k++) {
            uint32_t i = scene.snapshot.speed_count - 1;

            while (outcome.decisions[j].of_speed[i] == 0)
                i--;
            if (scene.jobs[j].user == scene.jobs[k].user && cores_of(j) > 1 &&
                speed_of(j) - scene.snapshot.speeds[i].permille > speed_of(k))
                return false;
        }
    return true;
}

static void nobody_is_ahead_by_more_than_a_core(void **state)
{
    uint32_t with = 0, by_count = 0;

    for (uint32_t n = 0; n < RANDOM_SNAPSHOTS; n++) {
        random_machine(n);
        decide("equal");
        if (speed_of(0) == 0) /* one speed, or less than a core for each */
            continue;
        with++;
        assert_true(users_are_even());
        assert_true(jobs_are_even());
        decide("equal/hybrid=count");
        by_count += users_are_even() && jobs_are_even();
    }
    assert_true(with > RANDOM_SNAPSHOTS / 4);
    assert_true(by_count < with); /* by number some are */
}

/* Given its own plan as the present, it keeps every core. */
static void it_repeats_itself(void **state)
{
    static uint32_t of_speed[BUILD_JOBS][POLICY_SPEEDS_MAX];

    for (uint32_t n = 0; n < RANDOM_SNAPSHOTS; n++) {
        random_machine(n);
        decide("equal");
        for (uint32_t j = 0; j < scene.snapshot.job_count; j++) {
            memcpy(of_speed[j], outcome.decisions[j].of_speed, sizeof(of_speed[j]));
            scene.held[j][0] = outcome.amounts[outcome.decisions[j].amount_first];
            scene.jobs[j].current_count = 1;
        }
        decide("equal");
        for (uint32_t j = 0; j < scene.snapshot.job_count; j++) {
            assert_int_equal(outcome.decisions[j].verb, POLICY_VERB_KEEP);
            assert_memory_equal(of_speed[j], outcome.decisions[j].of_speed, sizeof(of_speed[j]));
        }
    }
}

static void speeds_that_cannot_be_are_refused(void **state)
{
    struct policy_fault fault;

    machine(4, 4);
    assert_int_equal(policy_snapshot_check(&scene.snapshot, &fault), 0);
    scene.snapshot.speeds[1].permille = 1000;
    assert_true(policy_snapshot_check(&scene.snapshot, &fault) < 0);
    assert_int_equal(fault.code, POLICY_FAULT_SPEED);
    scene.snapshot.speeds[1] = (struct policy_speed){0, 600};
    assert_true(policy_snapshot_check(&scene.snapshot, &fault) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_shares_are_equal_in_speed),
        cmocka_unit_test(weights_count_speed),
        cmocka_unit_test(users_come_before_their_jobs),
        cmocka_unit_test(a_minimum_above_its_users_share_takes_nothing_from_another_user),
        cmocka_unit_test(their_number_stays_where_count_is_shared),
        cmocka_unit_test(fixed_jobs_keep_their_number),
        cmocka_unit_test(fewer_fast_cores_than_jobs_go_to_those_that_use_them_best),
        cmocka_unit_test(both_gain_by_an_exchange),
        cmocka_unit_test(jobs_on_shared_cores_are_left_alone),
        cmocka_unit_test(no_core_is_given_twice),
        cmocka_unit_test(nobody_is_ahead_by_more_than_a_core),
        cmocka_unit_test(it_repeats_itself),
        cmocka_unit_test(speeds_that_cannot_be_are_refused),
    };

    return cmocka_run_group_tests_name("policy speeds", tests, NULL, NULL);
}
