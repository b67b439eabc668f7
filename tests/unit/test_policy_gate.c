/* SPDX-License-Identifier: Apache-2.0 */
/* The switching gate: changes that it drops, changes that it must not drop, and valid plans. */
#include "policy/division/gate.h"
#include "policy/division/layout.h"
#include "test_policy_random.h"

#define MS UINT64_C(1000000)

static struct scene scene;
static struct outcome outcome, bare;

static const struct policy_param params[] = {
    {.name = "reserve", .max = CORES(1000), .unit = "mcpu", .text = "left to others"},
    GATE_PARAMS,
};

enum { RESERVE, FACTOR, DWELL };

/* Makes all jobs run with their requests; a job's class is its worth. */
static int wish_decide(const struct policy *policy, const struct policy_snapshot *snapshot,
                       struct policy_plan *plan)
{
    struct layout layout;

    plan->reserve_mcpu = policy_param(policy, snapshot, RESERVE);
    layout_init(&layout, snapshot, plan, plan->scratch);
    for (uint32_t j = 0; j < snapshot->job_count; j++) {
        layout_present(&layout, j);
        layout_reason(&layout, j, POLICY_REASON_SPARE, 0, 0, 0, 0);
        if (snapshot->jobs[j].deadline_ns != POLICY_NEVER)
            layout_reason(&layout, j, POLICY_REASON_DEADLINE, 0, 0, 0, 0);
        layout_run(&layout, j, snapshot->jobs[j].request.of[POLICY_MCPU]);
        plan->decisions[j].worth = snapshot->jobs[j].class;
    }
    return 0;
}

static void wish_room(const struct policy_snapshot *snapshot, struct policy_room *ret_room)
{
    *ret_room = (struct policy_room){.amounts = layout_amounts(snapshot),
                                     .scratch_bytes = layout_bytes(snapshot)};
}

static const struct policy wish = {
    .name = "wish",
    .brief = "what the request says",
    .params = params,
    .param_count = 1 + GATE_PARAM_COUNT,
    .room = wish_room,
    .decide = wish_decide,
};

/* ---- scenes ---------------------------------------------------------------------------------- */

/* A job with @now cores that the plan wants to have @then, at work for 50 s of one core more. */
static struct policy_job *job(int64_t now, int64_t then)
{
    struct policy_job *j = scene_job(&scene);

    scene_hold(&scene, j, 0, now, 0);
    j->request.of[POLICY_MCPU] = CORES(then);
    j->remaining_ns = 50 * SECOND;
    j->change_ns = 10 * SECOND;
    j->cost_ns[POLICY_ACTION_RESIZE] = MS;
    return j;
}

static const uint32_t linear[] = {1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000};
static const uint32_t flat[] = {1000, 1100, 1150, 1160, 1165, 1166, 1166, 1166};

static void set_curve(struct policy_job *j, const uint32_t *table)
{
    j->curve[POLICY_MCPU] =
        (struct policy_curve){.speedup_permille = table, .count = 8, .confidence_permille = 1000};
}

/* Two jobs with 4 of 8 cores each; the plan takes two from the one that gains little. */
static void exchange(struct policy_job **ret_from, struct policy_job **ret_to)
{
    scene_init(&scene, 8, 0);
    *ret_from = job(4, 2);
    *ret_to = job(4, 6);
    set_curve(*ret_from, flat);
    set_curve(*ret_to, linear);
}

static void decide(void)
{
    outcome_init(&outcome);
    assert_int_equal(policy_decide(&wish, &scene.snapshot, &outcome.plan), 0);
    assert_int_equal(policy_plan_check(&scene.snapshot, &outcome.plan, NULL), 0);
}

static void expect(uint32_t index, int64_t cores, enum policy_verb verb,
                   enum policy_reason_code reason)
{
    assert_int_equal(policy_decision_total(&outcome.plan, index, POLICY_MCPU), CORES(cores));
    assert_int_equal(outcome.decisions[index].verb, verb);
    assert_int_equal(outcome.decisions[index].reason.code, reason);
}

static void expect_made(void)
{
    decide();
    for (uint32_t i = 0; i < scene.snapshot.job_count; i++)
        assert_int_equal(policy_decision_total(&outcome.plan, i, POLICY_MCPU),
                         scene.jobs[i].request.of[POLICY_MCPU]);
}

static void expect_held(enum policy_reason_code reason)
{
    decide();
    for (uint32_t i = 0; i < scene.snapshot.job_count; i++) {
        const struct policy_job *j = &scene.jobs[i];

        assert_int_equal(policy_decision_total(&outcome.plan, i, POLICY_MCPU),
                         policy_amount_total(j->current, j->current_count, POLICY_MCPU));
        assert_int_equal(outcome.decisions[i].verb, POLICY_VERB_KEEP);
        assert_int_equal(outcome.decisions[i].reason.code, reason);
    }
}

/* ---- what pays ------------------------------------------------------------------------------- */

static void an_exchange_is_made_if_it_saves_twice_its_cost(void **state)
{
    struct policy_job *from, *to;

    exchange(&from, &to);
    /* gain 6000 − 4000 − (1160 − 1100) = 1940 for 50 s / 6 = 8.3 s; speeds now 1160 + 4000 */
    from->cost_ns[POLICY_ACTION_RESIZE] = to->cost_ns[POLICY_ACTION_RESIZE] = 1566 * MS;
    expect_made();
    from->cost_ns[POLICY_ACTION_RESIZE] = to->cost_ns[POLICY_ACTION_RESIZE] = 1567 * MS;
    expect_held(POLICY_REASON_SWITCH_COST);
    assert_int_equal(outcome.plan.next_wakeup_ns, POLICY_NEVER);
}

static void the_factor_and_the_worth_count(void **state)
{
    struct policy_job *from, *to;
    int64_t values[] = {[RESERVE] = 0, [FACTOR] = 20, [DWELL] = 0};

    exchange(&from, &to);
    from->cost_ns[POLICY_ACTION_RESIZE] = to->cost_ns[POLICY_ACTION_RESIZE] = 500 * MS;
    expect_made();
    scene.snapshot.params = values;
    expect_held(POLICY_REASON_SWITCH_COST);
    values[FACTOR] = 2;
    expect_made();
    from->class = 100; /* it loses 60, and that counts more than the 2000 of the other */
    expect_held(POLICY_REASON_SWITCH_COST);
    from->class = 0;
    from->weight = 100;
    expect_held(POLICY_REASON_SWITCH_COST);
}

static void the_first_end_is_the_horizon(void **state)
{
    struct policy_job *from, *to;

    exchange(&from, &to);
    from->cost_ns[POLICY_ACTION_RESIZE] = to->cost_ns[POLICY_ACTION_RESIZE] = 100 * MS;
    expect_made();
    from->remaining_ns = 100 * MS;
    expect_held(POLICY_REASON_SWITCH_COST);
}

static void a_change_for_nothing_is_not_made(void **state)
{
    struct policy_job *from, *to;

    exchange(&from, &to);
    from->cost_ns[POLICY_ACTION_RESIZE] = to->cost_ns[POLICY_ACTION_RESIZE] = 0;
    expect_made();
    set_curve(from, linear); /* what one gains the other loses */
    expect_held(POLICY_REASON_SWITCH_COST);
}

static void of_unknown_work_as_much_is_expected_as_was_done(void **state)
{
    struct policy_job *from, *to;
    unsigned decisions = 0;

    exchange(&from, &to);
    from->remaining_ns = to->remaining_ns = POLICY_UNKNOWN;
    from->cost_ns[POLICY_ACTION_RESIZE] = to->cost_ns[POLICY_ACTION_RESIZE] = 2 * SECOND;
    /* needs 2 * 2 s * 5160 / 1940 = 10.6 s */
    do {
        uint64_t before = scene.snapshot.now_ns;

        decide();
        if (outcome.decisions[0].verb == POLICY_VERB_RESIZE)
            break;
        assert_true(outcome.plan.next_wakeup_ns != POLICY_NEVER);
        scene.snapshot.now_ns = outcome.plan.next_wakeup_ns;
        from->run_ns += scene.snapshot.now_ns - before;
        to->run_ns += scene.snapshot.now_ns - before;
    } while (++decisions < 20);
    assert_in_range(decisions, 2, 5);
    assert_in_range(from->run_ns, 10 * SECOND, 22 * SECOND);
}

static void unknown_curves_are_still_evened_out(void **state)
{
    scene_init(&scene, 8, 0);
    job(6, 4);
    job(2, 4);
    expect_made();
}

/* ---- dwell ----------------------------------------------------------------------------------- */

static void nobody_is_shrunk_within_its_dwell(void **state)
{
    struct policy_job *from, *to;

    exchange(&from, &to);
    to->change_ns = scene.snapshot.now_ns - MS; /* a growing job need not wait */
    expect_made();
    from->change_ns = scene.snapshot.now_ns - 400 * MS;
    expect_held(POLICY_REASON_DWELL);
    assert_int_equal(outcome.plan.next_wakeup_ns, scene.snapshot.now_ns + 600 * MS);
    scene.snapshot.now_ns = outcome.plan.next_wakeup_ns;
    expect_made();
}

static void free_cores_are_taken_at_once(void **state)
{
    struct policy_job *a, *b;

    scene_init(&scene, 8, 0);
    a = job(2, 4); /* a job with 4 cores has ended */
    b = job(2, 4);
    a->change_ns = b->change_ns = scene.snapshot.now_ns;
    expect_made();
    a->cost_ns[POLICY_ACTION_RESIZE] = 100 * SECOND; /* it ends in 25 s with 2 cores */
    decide();
    expect(0, 2, POLICY_VERB_KEEP, POLICY_REASON_SWITCH_COST);
    expect(1, 4, POLICY_VERB_RESIZE, POLICY_REASON_SPARE);
}

static void a_held_exchange_still_takes_what_is_free(void **state)
{
    struct policy_job *from, *to;

    exchange(&from, &to);
    scene.domains[0].capacity.of[POLICY_MCPU] = CORES(9);
    to->request.of[POLICY_MCPU] = CORES(7);
    from->change_ns = scene.snapshot.now_ns;
    decide();
    expect(0, 4, POLICY_VERB_KEEP, POLICY_REASON_DWELL);
    expect(1, 5, POLICY_VERB_RESIZE, POLICY_REASON_FREE_CORES);
}

static void alternating_plans_do_not_flap(void **state)
{
    struct policy_job *from, *to;
    unsigned resizes = 0, decisions = 0;

    exchange(&from, &to);
    for (uint64_t end = scene.snapshot.now_ns + 60 * SECOND; scene.snapshot.now_ns < end;
         scene.snapshot.now_ns += 50 * MS, decisions++) {
        bool even = decisions % 2 == 0;

        /* as if noise made now the one, now the other curve the better one */
        set_curve(from, even ? flat : linear);
        set_curve(to, even ? linear : flat);
        from->request.of[POLICY_MCPU] = CORES(even ? 2 : 6);
        to->request.of[POLICY_MCPU] = CORES(even ? 6 : 2);
        decide();
        for (uint32_t i = 0; i < 2; i++)
            if (outcome.decisions[i].verb == POLICY_VERB_RESIZE) {
                scene.held[i][0].amount.of[POLICY_MCPU] =
                    policy_decision_total(&outcome.plan, i, POLICY_MCPU);
                scene.jobs[i].change_ns = scene.snapshot.now_ns;
                resizes++;
            }
    }
    assert_int_equal(decisions, 1200);
    assert_in_range(resizes, 2, 2 * 61); /* each job once in a dwell */
}

/* ---- what must not be held up ---------------------------------------------------------------- */

/* An exchange that neither pays nor has dwelt. */
static void hopeless(struct policy_job **ret_from, struct policy_job **ret_to)
{
    exchange(ret_from, ret_to);
    (*ret_from)->change_ns = (*ret_to)->change_ns = scene.snapshot.now_ns;
    (*ret_from)->cost_ns[POLICY_ACTION_RESIZE] = 1000 * SECOND;
    expect_held(POLICY_REASON_DWELL);
}

static void bounds_pins_and_capacity_are_obeyed_at_once(void **state)
{
    struct policy_job *from, *to;

    hopeless(&from, &to);
    to->min.of[POLICY_MCPU] = CORES(5);
    expect_made();
    hopeless(&from, &to);
    from->max.of[POLICY_MCPU] = CORES(3);
    decide();
    expect(0, 2, POLICY_VERB_RESIZE, POLICY_REASON_SPARE);
    hopeless(&from, &to);
    to->pinned_by = POLICY_PIN_HAND;
    to->pinned.of[POLICY_MCPU] = CORES(6);
    expect_made();
    hopeless(&from, &to);
    scene.domains[0].capacity.of[POLICY_MCPU] = CORES(7);
    to->request.of[POLICY_MCPU] = CORES(5);
    expect_made();
}

static void deadlines_loans_orders_and_reserves_are_not_held_up(void **state)
{
    int64_t values[] = {[RESERVE] = CORES(1), [FACTOR] = 2, [DWELL] = (int64_t)SECOND};
    struct policy_job *from, *to;

    hopeless(&from, &to);
    to->deadline_ns = 200 * SECOND;
    expect_made();
    hopeless(&from, &to);
    to->borrowed = 2;
    from->lent = 2;
    expect_made();
    hopeless(&from, &to);
    scene.snapshot.at_once = true;
    expect_made();
    hopeless(&from, &to);
    scene.snapshot.params = values;
    to->request.of[POLICY_MCPU] = CORES(5);
    expect_made();
}

/* The decisions of `equal`, with and without a gate. */
static void decide_equally(bool gated)
{
    static struct policy equal;
    struct outcome *o = gated ? &outcome : &bare;

    equal = *policy_find("equal");
    if (gated) {
        equal.params = params;
        equal.param_count = 1 + GATE_PARAM_COUNT;
    }
    outcome_init(o);
    assert_int_equal(policy_decide(&equal, &scene.snapshot, &o->plan), 0);
    assert_int_equal(policy_plan_check(&scene.snapshot, &o->plan, NULL), 0);
}

static void an_arrival_starts_whatever_it_costs_the_others(void **state)
{
    struct policy_job *a, *b, *c;

    scene_init(&scene, 8, 0);
    a = job(4, 0);
    b = job(4, 0);
    a->change_ns = b->change_ns = scene.snapshot.now_ns;
    a->cost_ns[POLICY_ACTION_RESIZE] = b->cost_ns[POLICY_ACTION_RESIZE] = 1000 * SECOND;
    c = scene_job(&scene);
    c->state = POLICY_QUEUED;
    decide_equally(true);
    assert_int_equal(outcome.decisions[2].verb, POLICY_VERB_START);
    assert_int_equal(policy_decision_total(&outcome.plan, 2, POLICY_MCPU), CORES(2));
}

/* ---- any snapshot ---------------------------------------------------------------------------- */

static void random_costs(void)
{
    for (uint32_t i = 0; i < scene.snapshot.job_count; i++) {
        struct policy_job *j = &scene.jobs[i];

        j->cost_ns[POLICY_ACTION_RESIZE] = one_in(8) ? random_next() : random_below(5000) * MS;
        j->remaining_ns = one_in(3) ? POLICY_UNKNOWN : random_next() >> random_below(64);
        j->change_ns = one_in(2) ? scene.snapshot.now_ns - random_below(3000) * MS : 0;
        j->run_ns = one_in(8) ? random_next() : random_below(100) * SECOND;
        if (one_in(2))
            set_curve(j, one_in(2) ? linear : flat);
    }
    scene.snapshot.at_once = one_in(20);
}

/* Between what it has and what the bare plan gives; as in that where it does not stay or grow. */
static void check_one(uint32_t i)
{
    const struct policy_decision *gated = &outcome.decisions[i], *plain = &bare.decisions[i];
    int64_t planned = policy_decision_total(&bare.plan, i, POLICY_MCPU);
    int64_t got = policy_decision_total(&outcome.plan, i, POLICY_MCPU);
    int64_t now =
        policy_amount_total(scene.jobs[i].current, scene.jobs[i].current_count, POLICY_MCPU);

    if (gated->reason.code != POLICY_REASON_DWELL &&
        gated->reason.code != POLICY_REASON_FREE_CORES &&
        gated->reason.code != POLICY_REASON_SWITCH_COST) {
        assert_int_equal(gated->verb, plain->verb);
        assert_int_equal(got, planned);
        return;
    }
    assert_int_equal(plain->verb, POLICY_VERB_RESIZE);
    if (gated->reason.code == POLICY_REASON_FREE_CORES)
        assert_true(got > now && got < planned);
    else
        assert_true(gated->verb == POLICY_VERB_KEEP && got == now);
}

static void plans_stay_valid_and_the_same_in_any_order(void **state)
{
    uint32_t from[BUILD_JOBS], held = 0;
    static struct outcome shuffled;

    for (uint32_t n = 0; n < 40000; n++) {
        random_scene(&scene, n, random_below(FLAVOURS) | (n % 2 ? 0 : WITH_WEIGHTS));
        random_costs();
        decide_equally(false);
        decide_equally(true);
        for (uint32_t i = 0; i < scene.snapshot.job_count; i++) {
            check_one(i);
            held += outcome.decisions[i].verb != bare.decisions[i].verb;
        }
        if (n % 8)
            continue;
        shuffled = outcome;
        shuffled.plan.amounts = shuffled.amounts;
        random_shuffle(&scene, from);
        decide_equally(true);
        for (uint32_t i = 0; i < scene.snapshot.job_count; i++)
            assert_true(same_decision(&outcome, i, &shuffled, from[i]));
    }
    assert_true(held > 1000); /* else the test has tested too little */
}

/* The policies that ask for the gate, with prices and reserves of their own. */
static void plans_of_every_policy_stay_valid(void **state)
{
    unsigned policies = 0, held = 0;

    for (size_t p = 0; policy_at(p); p++) {
        if (policy_param_find(policy_at(p), "switch-factor") < 0)
            continue;
        policies++;
        for (uint32_t n = 0; n < 4000; n++) {
            random_scene(&scene, n, random_below(FLAVOURS) | (n % 2 ? 0 : WITH_WEIGHTS));
            random_costs();
            outcome_init(&outcome);
            assert_int_equal(policy_decide(policy_at(p), &scene.snapshot, &outcome.plan), 0);
            assert_int_equal(policy_plan_check(&scene.snapshot, &outcome.plan, NULL), 0);
            scene.snapshot.at_once = true;
            outcome_init(&bare);
            assert_int_equal(policy_decide(policy_at(p), &scene.snapshot, &bare.plan), 0);
            for (uint32_t i = 0; i < scene.snapshot.job_count; i++) {
                check_one(i);
                held += outcome.decisions[i].verb != bare.decisions[i].verb;
            }
        }
    }
    assert_in_range(policies, 4, policy_count());
    assert_true(held > 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_exchange_is_made_if_it_saves_twice_its_cost),
        cmocka_unit_test(the_factor_and_the_worth_count),
        cmocka_unit_test(the_first_end_is_the_horizon),
        cmocka_unit_test(a_change_for_nothing_is_not_made),
        cmocka_unit_test(of_unknown_work_as_much_is_expected_as_was_done),
        cmocka_unit_test(unknown_curves_are_still_evened_out),
        cmocka_unit_test(nobody_is_shrunk_within_its_dwell),
        cmocka_unit_test(free_cores_are_taken_at_once),
        cmocka_unit_test(a_held_exchange_still_takes_what_is_free),
        cmocka_unit_test(alternating_plans_do_not_flap),
        cmocka_unit_test(bounds_pins_and_capacity_are_obeyed_at_once),
        cmocka_unit_test(deadlines_loans_orders_and_reserves_are_not_held_up),
        cmocka_unit_test(an_arrival_starts_whatever_it_costs_the_others),
        cmocka_unit_test(plans_stay_valid_and_the_same_in_any_order),
        cmocka_unit_test(plans_of_every_policy_stay_valid),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
