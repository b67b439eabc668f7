/* SPDX-License-Identifier: Apache-2.0 */
/* Policy `equal`: shares and reasons in known cases, and its properties on random snapshots. */
#include "test_policy_random.h"

#include <errno.h>
#include <stdlib.h>

#define RANDOM_SNAPSHOTS TIMES(24000)

static struct scene scene;
static struct outcome outcome;

static void decide(struct scene *s, struct outcome *o)
{
    struct policy_fault fault = {0};
    char text[POLICY_TEXT_MAX];

    outcome_init(o);
    assert_int_equal(policy_decide(policy_find("equal"), &s->snapshot, &o->plan), 0);
    if (policy_plan_check(&s->snapshot, &o->plan, &fault) == 0)
        return;
    policy_fault_text(&fault, text, sizeof(text));
    fail_msg("%s", text);
}

static int64_t cores_of(const struct outcome *o, uint32_t job)
{
    return policy_decision_total(&o->plan, job, POLICY_MCPU) / POLICY_CORE_MCPU;
}

static void expect(uint32_t job, enum policy_verb verb, int64_t cores, const char *why)
{
    char text[POLICY_TEXT_MAX];

    policy_reason_text(&outcome.decisions[job].reason, NULL, text, sizeof(text));
    assert_string_equal(text, why);
    assert_int_equal(outcome.decisions[job].verb, verb);
    assert_int_equal(cores_of(&outcome, job), cores);
}

/* ---- known cases ----------------------------------------------------------------------------- */

static void remainder_goes_to_the_older(void **state)
{
    scene_init(&scene, 8, 0);
    for (int i = 0; i < 3; i++)
        scene_job(&scene);
    scene.jobs[0].arrival_ns = 50 * SECOND; /* first in the array, but the youngest */
    decide(&scene, &outcome);
    expect(0, POLICY_VERB_RESIZE, 2, "equal share of 8 cores among 3 jobs");
    expect(1, POLICY_VERB_RESIZE, 3, "equal share of 8 cores among 3 jobs");
    expect(2, POLICY_VERB_RESIZE, 3, "equal share of 8 cores among 3 jobs");
}

static void bounds_clamp_and_the_surplus_is_shared(void **state)
{
    scene_init(&scene, 8, 0);
    for (int i = 0; i < 4; i++)
        scene_job(&scene);
    scene.jobs[0].min.of[POLICY_MCPU] = CORES(4);
    scene.jobs[3].max.of[POLICY_MCPU] = CORES(1);
    decide(&scene, &outcome);
    expect(0, POLICY_VERB_RESIZE, 4, "minimum 4 raises the share of 1.5");
    expect(1, POLICY_VERB_RESIZE, 2,
           "equal share among 2 jobs of the 3 cores that others leave of 8");
    expect(2, POLICY_VERB_RESIZE, 1,
           "equal share among 2 jobs of the 3 cores that others leave of 8");
    expect(3, POLICY_VERB_RESIZE, 1, "maximum 1 cuts the share of 1.5");
}

static void cores_that_nobody_can_use_stay_free(void **state)
{
    scene_init(&scene, 8, 0);
    scene_job(&scene)->max.of[POLICY_MCPU] = CORES(2);
    scene_job(&scene)->max.of[POLICY_MCPU] = CORES(5);
    decide(&scene, &outcome);
    expect(0, POLICY_VERB_RESIZE, 2, "at its maximum of 2 cores");
    expect(1, POLICY_VERB_RESIZE, 5, "at its maximum of 5 cores");
}

static void weights_divide_by_largest_remainder(void **state)
{
    scene_init(&scene, 10, 0);
    scene_job(&scene)->weight = 3; /* 4.29 */
    scene_job(&scene)->weight = 3; /* 4.29 */
    scene_job(&scene)->weight = 1; /* 1.43 */
    decide(&scene, &outcome);
    expect(0, POLICY_VERB_RESIZE, 4, "weight 3 of 7 in 10 cores among 3 jobs");
    expect(1, POLICY_VERB_RESIZE, 4, "weight 3 of 7 in 10 cores among 3 jobs");
    expect(2, POLICY_VERB_RESIZE, 2, "weight 1 of 7 in 10 cores among 3 jobs");
}

static void pinned_jobs_are_taken_as_given(void **state)
{
    scene_init(&scene, 8, 0);
    for (int i = 0; i < 3; i++)
        scene_job(&scene);
    scene.jobs[1].pinned_by = POLICY_PIN_HAND;
    scene.jobs[1].pinned.of[POLICY_MCPU] = CORES(3);
    decide(&scene, &outcome);
    expect(0, POLICY_VERB_RESIZE, 3,
           "equal share among 2 jobs of the 5 cores that others leave of 8");
    expect(1, POLICY_VERB_RESIZE, 3, "pinned to 3 by hand");
    expect(2, POLICY_VERB_RESIZE, 2,
           "equal share among 2 jobs of the 5 cores that others leave of 8");

    scene.jobs[1].pinned_by = POLICY_PIN_SIGNAL;
    scene.jobs[1].pinned.of[POLICY_MCPU] = CORES(64);
    scene.jobs[1].max.of[POLICY_MCPU] = CORES(4);
    decide(&scene, &outcome);
    expect(0, POLICY_VERB_RESIZE, 1,
           "one thread, as others leave none of 8 cores; oversubscribed: 66 of 8 cores");
    expect(1, POLICY_VERB_RESIZE, 64, "pinned to 64 by a signal; oversubscribed: 66 of 8 cores");
    assert_true(outcome.domains[0].oversubscribed[POLICY_MCPU]);
}

static void more_jobs_than_cores_get_one_thread_each(void **state)
{
    scene_init(&scene, 2, 0);
    for (int i = 0; i < 4; i++)
        scene_job(&scene);
    decide(&scene, &outcome);
    for (uint32_t i = 0; i < 4; i++)
        expect(i, POLICY_VERB_RESIZE, 1,
               "one thread, as 4 jobs share 2 cores; oversubscribed: 4 of 2 cores");
    assert_true(outcome.domains[0].oversubscribed[POLICY_MCPU]);
    assert_int_equal(outcome.domains[0].used.of[POLICY_MCPU], CORES(4));
}

static void minima_above_capacity_are_kept_and_said(void **state)
{
    scene_init(&scene, 4, 0);
    scene_job(&scene)->min.of[POLICY_MCPU] = CORES(4);
    scene_job(&scene)->min.of[POLICY_MCPU] = CORES(2);
    decide(&scene, &outcome);
    expect(0, POLICY_VERB_RESIZE, 4,
           "minimum 4 kept, though the minima add up to 6 of 4 cores; "
           "oversubscribed: 6 of 4 cores");
    expect(1, POLICY_VERB_RESIZE, 2,
           "minimum 2 kept, though the minima add up to 6 of 4 cores; "
           "oversubscribed: 6 of 4 cores");
    /* exactly full is not too much */
    scene.domains[0].capacity.of[POLICY_MCPU] = CORES(6);
    decide(&scene, &outcome);
    expect(0, POLICY_VERB_RESIZE, 4, "minimum 4 raises the share of 2");
    expect(1, POLICY_VERB_RESIZE, 2, "the 2 cores that others leave of 6");
    assert_false(outcome.domains[0].oversubscribed[POLICY_MCPU]);
}

static void lent_cores_go_to_the_borrower(void **state)
{
    scene_init(&scene, 8, 0);
    scene_job(&scene)->lent = 3;
    scene_job(&scene)->borrowed = 2;
    decide(&scene, &outcome);
    expect(0, POLICY_VERB_RESIZE, 1, "share of 4 cores, 3 lent");
    expect(1, POLICY_VERB_RESIZE, 6, "share of 4 cores and 2 borrowed");
    /* the third lent core waits for a borrower: it is no part of the shares */
    assert_int_equal(outcome.domains[0].used.of[POLICY_MCPU], CORES(7));
}

static void lending_stops_at_the_minimum_and_borrowing_at_what_was_lent(void **state)
{
    scene_init(&scene, 8, 0);
    scene_job(&scene)->lent = 100;
    scene.jobs[0].min.of[POLICY_MCPU] = CORES(3);
    scene_job(&scene)->borrowed = 100;
    decide(&scene, &outcome);
    expect(0, POLICY_VERB_RESIZE, 3, "share of 4 cores, 1 lent");
    expect(1, POLICY_VERB_RESIZE, 5, "share of 4 cores and 1 borrowed");

    scene.jobs[0].lent = 0;
    decide(&scene, &outcome);
    expect(1, POLICY_VERB_RESIZE, 4, "equal share of 8 cores among 2 jobs");
}

static void a_job_that_has_its_share_is_kept(void **state)
{
    scene_init(&scene, 8, GIB(8));
    scene_hold(&scene, scene_job(&scene), 0, 4, GIB(2));
    scene_hold(&scene, scene_job(&scene), 0, 3, 0);
    decide(&scene, &outcome);
    expect(0, POLICY_VERB_KEEP, 4, "equal share of 8 cores among 2 jobs");
    expect(1, POLICY_VERB_RESIZE, 4, "equal share of 8 cores among 2 jobs");
    assert_int_equal(policy_decision_total(&outcome.plan, 0, POLICY_MEMORY), GIB(2));
}

static void rigid_and_moldable_jobs_stay_as_they_are(void **state)
{
    scene_init(&scene, 8, 0);
    scene_hold(&scene, scene_job(&scene), 0, 2, 0);
    scene_hold(&scene, scene_job(&scene), 0, 1, 0);
    scene.jobs[0].malleability = POLICY_RIGID;
    scene.jobs[1].malleability = POLICY_MOLDABLE;
    scene_job(&scene);
    scene_job(&scene)->malleability = POLICY_MOLDABLE; /* has nothing yet: gets a share */
    decide(&scene, &outcome);
    expect(0, POLICY_VERB_KEEP, 2, "rigid, stays at 2 cores");
    expect(1, POLICY_VERB_KEEP, 1, "moldable, stays at the 1 core of its start");
    expect(2, POLICY_VERB_RESIZE, 3,
           "equal share among 2 jobs of the 5 cores that others leave of 8");
    expect(3, POLICY_VERB_RESIZE, 2,
           "equal share among 2 jobs of the 5 cores that others leave of 8");
}

static void queued_jobs_start_when_their_memory_fits(void **state)
{
    scene_init(&scene, 8, GIB(16));
    scene_hold(&scene, scene_job(&scene), 0, 8, GIB(10));
    for (int i = 0; i < 4; i++)
        scene_job(&scene)->state = POLICY_QUEUED;
    scene.jobs[1].min.of[POLICY_MEMORY] = GIB(8);
    scene.jobs[2].request.of[POLICY_MEMORY] = GIB(6);
    scene.jobs[3].min.of[POLICY_MEMORY] = GIB(17);
    scene.jobs[4].state = POLICY_HELD;
    decide(&scene, &outcome);
    expect(0, POLICY_VERB_RESIZE, 4, "equal share of 8 cores among 2 jobs");
    expect(1, POLICY_VERB_HOLD, 0, "waits for memory: needs 8 GiB, 6 GiB free");
    expect(2, POLICY_VERB_START, 4, "equal share of 8 cores among 2 jobs");
    expect(3, POLICY_VERB_INFEASIBLE, 0, "needs 17 GiB, more than the 16 GiB there are");
    expect(4, POLICY_VERB_HOLD, 0, "held by hand");
    assert_int_equal(outcome.domains[0].used.of[POLICY_MEMORY], GIB(16));
}

static void paused_jobs_resume(void **state)
{
    scene_init(&scene, 8, GIB(16));
    scene_hold(&scene, scene_job(&scene), 0, 8, GIB(10));
    scene_hold(&scene, scene_job(&scene), 0, 8, GIB(4));
    scene.jobs[0].state = POLICY_PAUSED;
    decide(&scene, &outcome);
    expect(0, POLICY_VERB_RESUME, 4, "equal share of 8 cores among 2 jobs");
    expect(1, POLICY_VERB_RESIZE, 4, "equal share of 8 cores among 2 jobs");
}

static void fractions_of_cores_are_left_over_not_given_twice(void **state)
{
    scene_init(&scene, 0, 0);
    scene.domains[0].capacity.of[POLICY_MCPU] = 3500;
    scene_job(&scene);
    scene_job(&scene);
    scene.jobs[1].max.of[POLICY_MCPU] = 1500;
    decide(&scene, &outcome);
    assert_int_equal(policy_decision_total(&outcome.plan, 0, POLICY_MCPU), 2000);
    assert_int_equal(policy_decision_total(&outcome.plan, 1, POLICY_MCPU), 1000);
    scene.jobs[1].max.of[POLICY_MCPU] = 1; /* one thread is the least there is */
    scene.jobs[1].min.of[POLICY_MCPU] = 0;
    decide(&scene, &outcome);
    assert_int_equal(policy_decision_total(&outcome.plan, 1, POLICY_MCPU), 1000);
}

static void jobs_bound_to_a_numa_node_share_it_with_the_others(void **state)
{
    scene_init(&scene, 8, 0);
    scene_domain(&scene, 0, POLICY_NUMA, 4, POLICY_UNLIMITED);
    scene_domain(&scene, 0, POLICY_NUMA, 4, POLICY_UNLIMITED);
    for (int i = 0; i < 4; i++)
        scene_job(&scene)->home = i < 3 ? 1 : 0;
    decide(&scene, &outcome);
    expect(0, POLICY_VERB_RESIZE, 2, "equal share of 4 cores among 3 jobs");
    expect(1, POLICY_VERB_RESIZE, 1, "equal share of 4 cores among 3 jobs");
    expect(2, POLICY_VERB_RESIZE, 1, "equal share of 4 cores among 3 jobs");
    expect(3, POLICY_VERB_RESIZE, 4, "the 4 cores that others leave of 8");
}

static void a_power_cap_is_less_capacity(void **state)
{
    scene_init(&scene, 16, 0);
    scene.domains[0].idle_uw = 40000000;
    scene.domains[0].core_uw = 5000000;
    scene.domains[0].cap_uw = 93000000;
    scene_job(&scene);
    scene_job(&scene);
    decide(&scene, &outcome);
    expect(0, POLICY_VERB_RESIZE, 5, "equal share of 10 cores among 2 jobs");
    expect(1, POLICY_VERB_RESIZE, 5, "equal share of 10 cores among 2 jobs");
}

/* ---- registry and rooms ---------------------------------------------------------------------- */

static void policies_are_found_by_name(void **state)
{
    assert_true(policy_count() >= 1);
    for (size_t i = 0; i < policy_count(); i++)
        assert_ptr_equal(policy_find(policy_at(i)->name), policy_at(i));
    assert_null(policy_at(policy_count()));
    assert_null(policy_find("equa"));
    assert_null(policy_find("equals"));
    assert_null(policy_find(""));
    assert_string_equal(policy_at(0)->name, "equal");
}

static void parameters_have_defaults_and_ranges(void **state)
{
    const struct policy *equal = policy_find("equal");
    int reserve = policy_param_find(equal, "reserve");
    int64_t value[2] = {CORES(2)};

    assert_int_equal(reserve, 0);
    assert_int_equal(policy_param_find(equal, "unheard-of"), -ENOENT);
    scene_init(&scene, 8, 0);
    scene_job(&scene);
    scene_job(&scene);
    assert_int_equal(policy_param(equal, &scene.snapshot, 0), equal->params[0].def);
    scene.snapshot.params = value;
    decide(&scene, &outcome);
    expect(0, POLICY_VERB_RESIZE, 3,
           "equal share among 2 jobs of the 6 cores that others leave of 8");
    value[0] = -1;
    assert_int_equal(policy_decide(equal, &scene.snapshot, &outcome.plan), -ERANGE);
    value[0] = equal->params[0].max + 1;
    assert_int_equal(policy_decide(equal, &scene.snapshot, &outcome.plan), -ERANGE);
}

static void too_little_room_is_refused(void **state)
{
    const struct policy *equal = policy_find("equal");
    struct policy_room room;

    scene_init(&scene, 8, 0);
    scene_hold(&scene, scene_job(&scene), 0, 4, 0);
    scene_job(&scene);
    policy_room(equal, &scene.snapshot, &room);
    outcome_init(&outcome);
    outcome.plan.amount_room = room.amounts - 1;
    assert_int_equal(policy_decide(equal, &scene.snapshot, &outcome.plan), -ENOSPC);
    outcome.plan.amount_room = room.amounts;
    outcome.plan.scratch_room = room.scratch_bytes - 1;
    assert_int_equal(policy_decide(equal, &scene.snapshot, &outcome.plan), -ENOSPC);
    outcome.plan.scratch_room = room.scratch_bytes;
    assert_int_equal(policy_decide(equal, &scene.snapshot, &outcome.plan), 0);
    scene.jobs[1].weight = 0;
    assert_int_equal(policy_decide(equal, &scene.snapshot, &outcome.plan), -EINVAL);
}

static void no_jobs_is_a_plan_too(void **state)
{
    scene_init(&scene, 8, 0);
    decide(&scene, &outcome);
    assert_int_equal(outcome.plan.amount_count, 0);
    assert_int_equal(outcome.plan.next_wakeup_ns, POLICY_NEVER);
}

/* ---- random snapshots ------------------------------------------------------------------------ */

/* The check accepts it (capacity, minima, maxima, verbs), and so for every kind of snapshot. */
static void every_plan_is_right_and_the_same_again(void **state)
{
    static struct outcome again;

    for (uint32_t n = 0; n < RANDOM_SNAPSHOTS; n++) {
        random_scene(&scene, n, n % FLAVOURS);
        decide(&scene, &outcome);
        decide(&scene, &again);
        for (uint32_t i = 0; i < scene.snapshot.job_count; i++)
            assert_true(same_decision(&outcome, i, &again, i));
        assert_memory_equal(outcome.domains, again.domains,
                            scene.snapshot.domain_count * sizeof(outcome.domains[0]));
    }
}

static void the_order_of_jobs_does_not_matter(void **state)
{
    static struct outcome shuffled;

    for (uint32_t n = 0; n < RANDOM_SNAPSHOTS; n++) {
        uint32_t from[BUILD_JOBS];

        random_scene(&scene, n, n % FLAVOURS);
        decide(&scene, &outcome);
        random_shuffle(&scene, from);
        decide(&scene, &shuffled);
        for (uint32_t i = 0; i < scene.snapshot.job_count; i++)
            assert_true(same_decision(&outcome, from[i], &shuffled, i));
    }
}

static void a_larger_weight_never_gives_less(void **state)
{
    static struct outcome heavier;

    for (uint32_t n = 0; n < RANDOM_SNAPSHOTS; n++) {
        uint32_t job;

        random_scene(&scene, n, n % FLAVOURS & ~WITH_LENDING);
        decide(&scene, &outcome);
        job = random_below(scene.snapshot.job_count);
        scene.jobs[job].weight += random_below(POLICY_WEIGHT_MAX - scene.jobs[job].weight + 1);
        decide(&scene, &heavier);
        assert_true(policy_decision_total(&heavier.plan, job, POLICY_MCPU) >=
                    policy_decision_total(&outcome.plan, job, POLICY_MCPU));
    }
}

/* Whole cores that lie free in the domain and all that it is part of. */
static int64_t free_around(uint32_t domain, const int64_t *spoken_for)
{
    int64_t least = INT64_MAX;

    for (uint32_t d = domain; d != POLICY_NO_PARENT; d = scene.domains[d].parent) {
        int64_t free = policy_domain_capacity(&scene.snapshot, d, POLICY_MCPU) - spoken_for[d];

        least = free < least ? free : least;
    }
    return least > 0 ? least / POLICY_CORE_MCPU : 0;
}

static void no_core_is_left_while_someone_could_use_it(void **state)
{
    for (uint32_t n = 0; n < RANDOM_SNAPSHOTS; n++) {
        int64_t spoken_for[BUILD_DOMAINS] = {0};

        random_scene(&scene, n, n % FLAVOURS & ~WITH_LENDING);
        decide(&scene, &outcome);
        for (uint32_t i = 0; i < scene.snapshot.job_count; i++) {
            int64_t mcpu = policy_decision_total(&outcome.plan, i, POLICY_MCPU);

            /* a share that ends within a core takes all of it; a pin or rigid size does not */
            if (policy_job_fixed(&scene.jobs[i], POLICY_MCPU) < 0)
                mcpu = (mcpu + POLICY_CORE_MCPU - 1) / POLICY_CORE_MCPU * POLICY_CORE_MCPU;
            for (uint32_t d = policy_job_place(&scene.snapshot, &scene.jobs[i]);
                 d != POLICY_NO_PARENT; d = scene.domains[d].parent)
                spoken_for[d] += mcpu;
        }
        for (uint32_t i = 0; i < scene.snapshot.job_count; i++) {
            const struct policy_job *job = &scene.jobs[i];
            int64_t mcpu = policy_decision_total(&outcome.plan, i, POLICY_MCPU);

            if (mcpu == 0 || policy_job_fixed(job, POLICY_MCPU) >= 0 ||
                mcpu >= policy_job_most(job, POLICY_MCPU))
                continue;
            assert_int_equal(free_around(policy_job_place(&scene.snapshot, job), spoken_for), 0);
        }
    }
}

static bool goes_before(uint32_t a, uint32_t b, const int64_t *cores)
{
    const struct policy_job *x = &scene.jobs[a], *y = &scene.jobs[b];

    if (cores[a] != cores[b])
        return cores[a] < cores[b];
    return x->arrival_ns != y->arrival_ns ? x->arrival_ns < y->arrival_ns : x->id < y->id;
}

/* Gives core by core to the job with fewest, the older first: another way to the same shares. */
static void hand_out_one_by_one(int64_t *cores)
{
    int64_t left = scene.domains[0].capacity.of[POLICY_MCPU] / POLICY_CORE_MCPU;
    uint32_t next = 0;

    for (uint32_t i = 0; i < scene.snapshot.job_count; i++) {
        cores[i] = policy_job_least(&scene.jobs[i], POLICY_MCPU) / POLICY_CORE_MCPU;
        left -= cores[i];
    }
    for (; left > 0 && next != UINT32_MAX; left--) {
        next = UINT32_MAX;
        for (uint32_t i = 0; i < scene.snapshot.job_count; i++)
            if (CORES(cores[i]) < policy_job_most(&scene.jobs[i], POLICY_MCPU) &&
                (next == UINT32_MAX || goes_before(i, next, cores)))
                next = i;
        if (next != UINT32_MAX)
            cores[next]++;
    }
}

static void equal_weights_give_what_handing_out_one_by_one_gives(void **state)
{
    for (uint32_t n = 0; n < RANDOM_SNAPSHOTS; n++) {
        int64_t cores[BUILD_JOBS];

        random_scene(&scene, n, 0);
        decide(&scene, &outcome);
        hand_out_one_by_one(cores);
        for (uint32_t i = 0; i < scene.snapshot.job_count; i++)
            assert_int_equal(cores_of(&outcome, i), cores[i]);
    }
}

/* Lending moves cores and makes none; it takes no other job's. */
static void lending_leaves_everyone_else_alone(void **state)
{
    static struct outcome without;

    for (uint32_t n = 0; n < RANDOM_SNAPSHOTS; n++) {
        int64_t lent = 0, borrowed = 0;

        random_scene(&scene, n, n % FLAVOURS | WITH_LENDING);
        decide(&scene, &outcome);
        for (uint32_t i = 0; i < scene.snapshot.job_count; i++)
            scene.jobs[i].lent = 0;
        decide(&scene, &without); /* borrowers alone get nothing that was not a share */
        for (uint32_t i = 0; i < scene.snapshot.job_count; i++) {
            int64_t now = policy_decision_total(&outcome.plan, i, POLICY_MCPU);
            int64_t before = policy_decision_total(&without.plan, i, POLICY_MCPU);

            assert_int_not_equal(without.decisions[i].reason.code, POLICY_REASON_LENT);
            assert_int_not_equal(without.decisions[i].reason.code, POLICY_REASON_BORROWED);
            lent += now < before ? before - now : 0;
            borrowed += now > before ? now - before : 0;
            if (now > before)
                assert_int_equal(outcome.decisions[i].reason.code, POLICY_REASON_BORROWED);
            if (now < before && outcome.decisions[i].reason.code != POLICY_REASON_BORROWED)
                assert_int_equal(outcome.decisions[i].reason.code, POLICY_REASON_LENT);
        }
        assert_true(borrowed <= lent + (int64_t)scene.snapshot.job_count * POLICY_CORE_MCPU *
                                           ((n % FLAVOURS & WITH_FRACTIONS) != 0));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(remainder_goes_to_the_older),
        cmocka_unit_test(bounds_clamp_and_the_surplus_is_shared),
        cmocka_unit_test(cores_that_nobody_can_use_stay_free),
        cmocka_unit_test(weights_divide_by_largest_remainder),
        cmocka_unit_test(pinned_jobs_are_taken_as_given),
        cmocka_unit_test(more_jobs_than_cores_get_one_thread_each),
        cmocka_unit_test(minima_above_capacity_are_kept_and_said),
        cmocka_unit_test(lent_cores_go_to_the_borrower),
        cmocka_unit_test(lending_stops_at_the_minimum_and_borrowing_at_what_was_lent),
        cmocka_unit_test(a_job_that_has_its_share_is_kept),
        cmocka_unit_test(rigid_and_moldable_jobs_stay_as_they_are),
        cmocka_unit_test(queued_jobs_start_when_their_memory_fits),
        cmocka_unit_test(paused_jobs_resume),
        cmocka_unit_test(fractions_of_cores_are_left_over_not_given_twice),
        cmocka_unit_test(jobs_bound_to_a_numa_node_share_it_with_the_others),
        cmocka_unit_test(a_power_cap_is_less_capacity),
        cmocka_unit_test(policies_are_found_by_name),
        cmocka_unit_test(parameters_have_defaults_and_ranges),
        cmocka_unit_test(too_little_room_is_refused),
        cmocka_unit_test(no_jobs_is_a_plan_too),
        cmocka_unit_test(every_plan_is_right_and_the_same_again),
        cmocka_unit_test(the_order_of_jobs_does_not_matter),
        cmocka_unit_test(a_larger_weight_never_gives_less),
        cmocka_unit_test(no_core_is_left_while_someone_could_use_it),
        cmocka_unit_test(equal_weights_give_what_handing_out_one_by_one_gives),
        cmocka_unit_test(lending_leaves_everyone_else_alone),
    };

    return cmocka_run_group_tests_name("policy equal", tests, NULL, NULL);
}
