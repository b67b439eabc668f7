/* SPDX-License-Identifier: Apache-2.0 */
/* Users share a machine before their jobs do: known cases, and properties on random snapshots. */
#include "test_policy_random.h"

#include <errno.h>
#include <stdlib.h>

#define RANDOM_SNAPSHOTS TIMES(8000)
#define USERS            5
#define CROWD            12 /* users, where there are many */

static struct scene scene;
static struct outcome outcome, other;
static struct policy_user users[CROWD];

static void decide_by(const char *policy, struct scene *s, struct outcome *o)
{
    struct policy_fault fault = {0};
    char text[POLICY_TEXT_MAX];

    outcome_init(o);
    assert_int_equal(policy_decide(policy_find(policy), &s->snapshot, &o->plan), 0);
    if (policy_plan_check(&s->snapshot, &o->plan, &fault) == 0)
        return;
    policy_fault_text(&fault, text, sizeof(text));
    fail_msg("%s: %s", policy, text);
}

static void tell_users(struct scene *s, uint32_t count)
{
    for (uint32_t i = 0; i < CROWD; i++)
        users[i] =
            (struct policy_user){.id = 1000 + i, .weight = 100, .most_mcpu = POLICY_UNLIMITED};
    s->snapshot.users = users;
    s->snapshot.user_count = count;
}

static struct policy_job *job_of(uint32_t user)
{
    struct policy_job *job = scene_job(&scene);

    job->user = user;
    return job;
}

static int64_t mcpu_of(const struct outcome *o, const struct scene *s, uint32_t user)
{
    int64_t sum = 0;

    for (uint32_t j = 0; j < s->snapshot.job_count; j++)
        if (s->jobs[j].user == user)
            sum += policy_decision_total(&o->plan, j, POLICY_MCPU);
    return sum;
}

static void expect_cores(uint32_t user, int64_t cores)
{
    assert_int_equal(mcpu_of(&outcome, &scene, user), CORES(cores));
}

static void expect_text(uint32_t job, const char *why)
{
    char text[POLICY_TEXT_MAX];

    policy_reason_text(&outcome.decisions[job].reason, NULL, text, sizeof(text));
    assert_string_equal(text, why);
}

/* ---- known cases ----------------------------------------------------------------------------- */

static void many_jobs_of_one_user_have_no_more_than_one_of_another(void **state)
{
    scene_init(&scene, 8, 0);
    tell_users(&scene, 2);
    for (int i = 0; i < 40; i++)
        job_of(0)->min.of[POLICY_MCPU] = CORES(i % 3 + 1);
    job_of(1);
    decide_by("equal", &scene, &outcome);
    expect_cores(1, 4);
    assert_int_equal(outcome.decisions[0].user_mcpu, CORES(4));
    expect_text(40, "alone on 4 cores; its user has 4 of 8 cores, 2 users share"
                    "; oversubscribed: 44 of 8 cores");
}

static void a_pin_counts_up_to_its_users_share(void **state)
{
    struct policy_job *job;

    scene_init(&scene, 8, 0);
    tell_users(&scene, 2);
    job = job_of(0);
    job->pinned_by = POLICY_PIN_HAND;
    job->pinned.of[POLICY_MCPU] = CORES(64);
    job_of(1);
    decide_by("equal", &scene, &outcome);
    expect_cores(0, 4);
    expect_cores(1, 4);
    job->pinned.of[POLICY_MCPU] = CORES(3);
    decide_by("equal", &scene, &outcome);
    expect_cores(0, 3);
    expect_cores(1, 5);
}

static void what_an_administrator_has_pinned_comes_first(void **state)
{
    struct policy_job *job;

    scene_init(&scene, 8, 0);
    tell_users(&scene, 2);
    job = job_of(0);
    job->pinned_by = POLICY_PIN_HAND;
    job->pinned.of[POLICY_MCPU] = CORES(6);
    job->granted = true;
    job_of(0);
    job_of(1);
    decide_by("equal", &scene, &outcome);
    expect_cores(0, 7);
    expect_cores(1, 1);
}

static void what_one_cannot_use_is_the_others(void **state)
{
    scene_init(&scene, 8, 0);
    tell_users(&scene, 3);
    job_of(0)->max.of[POLICY_MCPU] = CORES(1);
    job_of(1);
    job_of(2);
    job_of(2);
    decide_by("equal", &scene, &outcome);
    expect_cores(0, 1);
    expect_cores(1, 4);
    expect_cores(2, 3);
    expect_text(0, "at its maximum of 1 core");
}

static void weights_of_users_count(void **state)
{
    scene_init(&scene, 6, 0);
    tell_users(&scene, 2);
    users[0].weight = 200;
    job_of(0);
    for (int i = 0; i < 10; i++)
        job_of(1);
    decide_by("equal", &scene, &outcome);
    expect_cores(0, 4);
    assert_int_equal(outcome.decisions[1].user_mcpu, CORES(2));
}

static void a_users_limit_holds_also_alone(void **state)
{
    scene_init(&scene, 8, 0);
    tell_users(&scene, 1);
    users[0].most_mcpu = CORES(3);
    job_of(0);
    decide_by("equal", &scene, &outcome);
    expect_cores(0, 3);
    expect_text(0, "alone on 3 cores; its user has 3 of 8 cores");
}

static void with_more_users_than_cores_each_has_a_fraction(void **state)
{
    scene_init(&scene, 2, 0);
    tell_users(&scene, 3);
    for (uint32_t i = 0; i < 3; i++)
        job_of(i);
    decide_by("equal", &scene, &outcome);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(mcpu_of(&outcome, &scene, i), CORES(1));
        assert_in_range(outcome.decisions[i].user_mcpu, 666, 667);
    }
}

static struct policy_job *rigid_job(uint32_t user, int64_t cores)
{
    struct policy_job *job = job_of(user);

    job->state = POLICY_QUEUED;
    job->malleability = POLICY_RIGID;
    job->request.of[POLICY_MCPU] = CORES(cores);
    return job;
}

/* Eight cores, a lender and its user's other job, and another user's job. */
static void fill_lenders(uint32_t lent)
{
    scene_init(&scene, 8, 0);
    tell_users(&scene, 2);
    job_of(0)->lent = lent;
    job_of(0);
    job_of(1);
}

static void what_a_user_lends_leaves_the_rest_of_the_share(void **state)
{
    static const char *const policies[] = {"equal", "response", "throughput"};

    for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
        fill_lenders(1);
        decide_by(policies[i], &scene, &outcome);
        expect_cores(0, 3);
        expect_cores(1, 5);
    }
}

static void a_user_borrows_no_more_than_others_leave(void **state)
{
    fill_lenders(1);
    scene.jobs[2].borrowed = 6;
    decide_by("equal", &scene, &outcome);
    expect_cores(0, 3);
    expect_cores(1, 5);
    fill_lenders(1);
    scene.jobs[1].borrowed = 1; /* the lender's user needs it */
    decide_by("equal", &scene, &outcome);
    expect_cores(0, 4);
    expect_cores(1, 4);
    assert_int_equal(policy_decision_total(&outcome.plan, 1, POLICY_MCPU), CORES(3));
}

static void a_job_larger_than_its_users_share_begins_when_others_leave_room(void **state)
{
    scene_init(&scene, 4, 0);
    tell_users(&scene, 2);
    rigid_job(0, 3);
    rigid_job(1, 3);
    decide_by("fcfs", &scene, &outcome); /* the one that has waited longer */
    assert_int_equal(outcome.decisions[0].verb, POLICY_VERB_START);
    assert_int_equal(outcome.decisions[1].verb, POLICY_VERB_HOLD);
    scene.jobs[0].arrival_ns = 50 * SECOND;
    decide_by("fcfs", &scene, &outcome);
    assert_int_equal(outcome.decisions[0].verb, POLICY_VERB_HOLD);
    assert_int_equal(outcome.decisions[1].verb, POLICY_VERB_START);
}

static void priority_orders_within_a_user_alone(void **state)
{
    scene_init(&scene, 4, 0);
    tell_users(&scene, 2);
    for (int i = 0; i < 3; i++) {
        struct policy_job *job = rigid_job(0, 2);

        job->priority = 1000 + i;
    }
    rigid_job(1, 2);
    decide_by("priority", &scene, &outcome);
    assert_int_equal(outcome.decisions[2].verb, POLICY_VERB_START);
    assert_int_equal(outcome.decisions[1].verb, POLICY_VERB_HOLD);
    assert_int_equal(outcome.decisions[3].verb, POLICY_VERB_START);
}

/* ---- properties ------------------------------------------------------------------------------ */

static int64_t useful_mcpu(const struct scene *s, uint32_t user)
{
    int64_t sum = 0, machine = s->domains[0].capacity.of[POLICY_MCPU];

    for (uint32_t j = 0; j < s->snapshot.job_count; j++) {
        int64_t most = policy_job_most(&s->jobs[j], POLICY_MCPU);

        if (s->jobs[j].user == user)
            sum += most < machine ? most : machine;
    }
    return sum;
}

static uint32_t random_users(uint32_t n, unsigned flavour)
{
    uint32_t count;

    random_scene(&scene, n, flavour);
    count = 1 + random_below(USERS);
    tell_users(&scene, count);
    for (uint32_t j = 0; j < scene.snapshot.job_count; j++)
        scene.jobs[j].user = random_below(one_in(2) ? count : 1);
    return count;
}

/* The main property, for any requests and any number of jobs of other users. */
static void nobody_has_less_than_their_share_while_they_can_use_it(void **state)
{
    for (uint32_t n = 0; n < RANDOM_SNAPSHOTS; n++) {
        uint32_t count = random_users(n, 0), active = 0;
        int64_t cores = scene.domains[0].capacity.of[POLICY_MCPU] / POLICY_CORE_MCPU;

        for (uint32_t u = 0; u < count; u++)
            active += useful_mcpu(&scene, u) > 0;
        for (uint32_t j = 0; j < scene.snapshot.job_count; j++)
            if (scene.jobs[j].user == 0 && one_in(3)) {
                scene.jobs[j].pinned_by = POLICY_PIN_HAND;
                scene.jobs[j].pinned.of[POLICY_MCPU] = CORES(1 + random_below(40));
            }
        decide_by("equal", &scene, &outcome);
        for (uint32_t u = 1; u < count; u++) {
            int64_t least = CORES(cores / active), useful = useful_mcpu(&scene, u);

            if (mcpu_of(&outcome, &scene, u) < (useful < least ? useful : least))
                fail_msg("snapshot %u, user %u: %lld", n, u,
                         (long long)mcpu_of(&outcome, &scene, u));
        }
    }
}

static void no_core_is_idle_while_somebody_can_use_it(void **state)
{
    for (uint32_t n = 0; n < RANDOM_SNAPSHOTS; n++) {
        uint32_t count = random_users(n, 0);
        int64_t capacity = scene.domains[0].capacity.of[POLICY_MCPU], used = 0, useful = 0;

        capacity -= capacity % POLICY_CORE_MCPU;
        decide_by("equal", &scene, &outcome);
        for (uint32_t u = 0; u < count; u++) {
            used += mcpu_of(&outcome, &scene, u);
            useful += useful_mcpu(&scene, u);
        }
        assert_true(used >= (useful < capacity ? useful : capacity));
    }
}

static void a_user_who_lends_loses_no_more_than_is_lent(void **state)
{
    for (uint32_t n = 0; n < RANDOM_SNAPSHOTS; n++) {
        uint32_t count = random_users(n, 0), lender = random_below(scene.snapshot.job_count + 1);
        int64_t before;

        if (lender == scene.snapshot.job_count)
            continue;
        for (uint32_t j = 0; j < scene.snapshot.job_count; j++)
            scene.jobs[j].lent = scene.jobs[j].borrowed = 0;
        decide_by("equal", &scene, &outcome);
        before = mcpu_of(&outcome, &scene, scene.jobs[lender].user);
        scene.jobs[lender].lent = 1 + random_below(4);
        decide_by("equal", &scene, &outcome);
        if (count > 1 && mcpu_of(&outcome, &scene, scene.jobs[lender].user) <
                             before - CORES(scene.jobs[lender].lent))
            fail_msg("snapshot %u: %lld of %lld left", n,
                     (long long)mcpu_of(&outcome, &scene, scene.jobs[lender].user),
                     (long long)before);
    }
}

/* Each user has rigid jobs of growing size, so that growing shares fit one after the other. */
static void random_stairs(uint32_t n)
{
    uint32_t count;

    random_state = n;
    scene_init(&scene, 4 + random_below(60), 0);
    count = 2 + random_below(CROWD - 1);
    tell_users(&scene, count);
    for (uint32_t u = 0; u < count; u++) {
        uint32_t cores = 1 + random_below(4), step = random_below(4);

        users[u].weight = one_in(2) ? 100 : 1 + random_below(1000);
        for (uint32_t i = 1 + random_below(5); i > 0; i--, cores += step) {
            struct policy_job *job = job_of(u);

            job->arrival_ns = random_below(100);
            job->state = POLICY_QUEUED;
            job->malleability = POLICY_RIGID;
            job->request.of[POLICY_MCPU] = CORES(cores);
        }
    }
}

static void shares_are_never_more_than_the_machine(void **state)
{
    static const char *const policies[] = {"fcfs", "priority", "makespan"};

    for (uint32_t n = 0; n < RANDOM_SNAPSHOTS; n++) {
        int64_t shares = 0, used = 0, share[CROWD] = {0};

        random_stairs(n);
        decide_by(policies[n % 3], &scene, &outcome);
        for (uint32_t j = 0; j < scene.snapshot.job_count; j++) {
            share[scene.jobs[j].user] = outcome.decisions[j].user_mcpu;
            used += policy_decision_total(&outcome.plan, j, POLICY_MCPU);
        }
        for (uint32_t u = 0; u < CROWD; u++)
            shares += share[u];
        if (shares > scene.domains[0].capacity.of[POLICY_MCPU] ||
            used > scene.domains[0].capacity.of[POLICY_MCPU])
            fail_msg("snapshot %u: shares are %lld, used are %lld of %lld", n, (long long)shares,
                     (long long)used, (long long)scene.domains[0].capacity.of[POLICY_MCPU]);
    }
}

static void one_user_has_the_same_plan_as_without_users(void **state)
{
    for (size_t p = 0; p < policy_count(); p++)
        for (uint32_t n = 0; n < RANDOM_SNAPSHOTS / 20; n++) {
            random_scene(&scene, n, n % FLAVOURS);
            decide_by(policy_at(p)->name, &scene, &other);
            tell_users(&scene, USERS);
            for (uint32_t j = 0; j < scene.snapshot.job_count; j++)
                scene.jobs[j].user = 3;
            decide_by(policy_at(p)->name, &scene, &outcome);
            assert_int_equal(outcome.plan.amount_count, other.plan.amount_count);
            assert_int_equal(outcome.plan.state_size, other.plan.state_size);
            assert_memory_equal(outcome.state, other.state, outcome.plan.state_size);
            for (uint32_t j = 0; j < scene.snapshot.job_count; j++) {
                assert_true(same_decision(&outcome, j, &other, j));
                assert_int_equal(outcome.decisions[j].reason.user_mcpu, 0);
            }
        }
}

/* Every policy's plans are valid for several users, too; and its state comes back to it. */
static void every_policy_serves_several_users(void **state)
{
    static uint64_t kept[1024];

    for (size_t p = 0; p < policy_count(); p++)
        for (uint32_t n = 0; n < RANDOM_SNAPSHOTS / 20; n++) {
            uint32_t from[BUILD_JOBS];

            random_users(n, (n % FLAVOURS) & ~(unsigned)WITH_TREE);
            decide_by(policy_at(p)->name, &scene, &outcome);
            memcpy(kept, outcome.state, outcome.plan.state_size);
            scene.snapshot.state = outcome.plan.state_size ? kept : NULL;
            scene.snapshot.state_size = outcome.plan.state_size;
            decide_by(policy_at(p)->name, &scene, &outcome);
            random_shuffle(&scene, from);
            decide_by(policy_at(p)->name, &scene, &other);
            for (uint32_t j = 0; j < scene.snapshot.job_count; j++)
                assert_true(same_decision(&other, j, &outcome, from[j]));
        }
}

/* The first user is decided for before the second, whose job has no place in any plan yet. */
static void what_another_users_job_has_begun_with_is_not_there(void **state)
{
    int device = POLICY_DEVICE + DEVICE_NVIDIA;

    scene_init(&scene, 4, GIB(64));
    tell_users(&scene, 2);
    scene.domains[0].capacity.of[device] = 2;
    job_of(0)->state = POLICY_QUEUED;
    job_of(1);
    scene.jobs[0].min.of[POLICY_MEMORY] = GIB(60);
    scene.jobs[1].min.of[POLICY_MEMORY] = GIB(5);
    decide_by("equal", &scene, &outcome);
    assert_int_equal(outcome.decisions[0].verb, POLICY_VERB_HOLD);
    scene.jobs[0].min.of[POLICY_MEMORY] = GIB(59);
    decide_by("equal", &scene, &outcome);
    assert_int_equal(outcome.decisions[0].verb, POLICY_VERB_START);
    scene.jobs[0].min.of[device] = 1;
    scene.jobs[1].min.of[device] = 2;
    decide_by("equal", &scene, &outcome);
    assert_int_equal(outcome.decisions[0].verb, POLICY_VERB_HOLD);
    scene.jobs[1].min.of[device] = 1;
    decide_by("equal", &scene, &outcome);
    assert_int_equal(outcome.decisions[0].verb, POLICY_VERB_START);
}

static void a_job_of_nobody_is_refused(void **state)
{
    struct policy_fault fault;

    scene_init(&scene, 4, 0);
    tell_users(&scene, 2);
    job_of(2);
    assert_int_equal(policy_snapshot_check(&scene.snapshot, &fault), -EINVAL);
    assert_int_equal(fault.code, POLICY_FAULT_USER);
}

/* A job's own words: its work left, and its speed with any number of cores. */
static void lie(struct policy_job *job, uint32_t *table, uint32_t cores)
{
    bool told = !one_in(4);

    job->remaining_ns = one_in(4) ? POLICY_UNKNOWN : 1 + random_below(100000) * SECOND / 100;
    table[0] = 1000;
    for (uint32_t k = 1; k < cores; k++)
        table[k] = 1 + random_below(1 << (1 + random_below(28)));
    job->curve[POLICY_MCPU] =
        (struct policy_curve){told ? table : NULL, NULL, told ? cores : 0, 1000};
}

static void what_one_user_tells_takes_nothing_from_another(void **state)
{
    static uint32_t tables[BUILD_JOBS][32];
    uint32_t moved = 0;

    for (uint32_t n = 0; n < RANDOM_SNAPSHOTS / 4; n++) {
        const char *policy = policy_at(n % policy_count())->name;
        uint32_t cores, count;
        int64_t used = 0, of_liars = 0, share;

        random_state = n;
        cores = 4 + random_below(28);
        count = 2 + random_below(cores / 2);
        share = CORES(cores / (count < 3 ? count : 3));
        scene_init(&scene, cores, 0);
        tell_users(&scene, 3);
        for (uint32_t i = 0; i < count; i++) {
            struct policy_job *job = job_of(i % 3);

            lie(job, tables[i], cores);
            scene_hold(&scene, job, 0, 1, 0);
        }
        for (int round = 0; round < 4; round++) {
            decide_by(policy, &scene, &outcome);
            if (round == 0)
                used = mcpu_of(&outcome, &scene, 0);
            /* Cores that it gets beyond are those that others do not want at present. */
            assert_true(mcpu_of(&outcome, &scene, 0) >= (used < share ? used : share));
            moved += round && of_liars != policy_decision_total(&outcome.plan, 1, POLICY_MCPU);
            of_liars = policy_decision_total(&outcome.plan, 1, POLICY_MCPU);
            for (uint32_t i = 0; i < count; i++)
                if (scene.jobs[i].user)
                    lie(&scene.jobs[i], tables[i], cores);
        }
    }
    assert_true(moved > RANDOM_SNAPSHOTS / 100); /* among their own jobs they decide something */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_jobs_of_one_user_have_no_more_than_one_of_another),
        cmocka_unit_test(a_pin_counts_up_to_its_users_share),
        cmocka_unit_test(what_an_administrator_has_pinned_comes_first),
        cmocka_unit_test(what_one_cannot_use_is_the_others),
        cmocka_unit_test(weights_of_users_count),
        cmocka_unit_test(a_users_limit_holds_also_alone),
        cmocka_unit_test(with_more_users_than_cores_each_has_a_fraction),
        cmocka_unit_test(what_a_user_lends_leaves_the_rest_of_the_share),
        cmocka_unit_test(a_user_borrows_no_more_than_others_leave),
        cmocka_unit_test(a_job_larger_than_its_users_share_begins_when_others_leave_room),
        cmocka_unit_test(priority_orders_within_a_user_alone),
        cmocka_unit_test(nobody_has_less_than_their_share_while_they_can_use_it),
        cmocka_unit_test(a_user_who_lends_loses_no_more_than_is_lent),
        cmocka_unit_test(no_core_is_idle_while_somebody_can_use_it),
        cmocka_unit_test(shares_are_never_more_than_the_machine),
        cmocka_unit_test(one_user_has_the_same_plan_as_without_users),
        cmocka_unit_test(every_policy_serves_several_users),
        cmocka_unit_test(what_another_users_job_has_begun_with_is_not_there),
        cmocka_unit_test(a_job_of_nobody_is_refused),
        cmocka_unit_test(what_one_user_tells_takes_nothing_from_another),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
