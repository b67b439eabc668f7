/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Five situations on paper - preemption, deadline, power cap, NUMA, parameter servers and workers -
 * each with the plan that some later policy would give. The interface can express the plan, and the
 * check accepts it and refuses every error in it. No policy decides here.
 */
#include "test_policy_build.h"

#include <errno.h>

static struct scene scene;
static struct outcome outcome;

/* ---- preemption ------------------------------------------------------------------------------ */

/*
 * 8 cores, 16 GiB. Job 0 (low priority, preemptible) and job 1 (not preemptible) run on 4 cores
 * each; rigid job 2 of high priority wants 4.
 */
static void build_preemption(void)
{
    struct policy_job *low, *other, *urgent;

    scene_init(&scene, 8, GIB(16));
    low = scene_job(&scene);
    low->malleability = POLICY_RIGID;
    low->preemptible = true;
    low->run_ns = 60 * SECOND;
    scene_hold(&scene, low, 0, 4, GIB(6));
    other = scene_job(&scene);
    other->malleability = POLICY_MOLDABLE;
    scene_hold(&scene, other, 0, 4, GIB(2));
    urgent = scene_job(&scene);
    urgent->state = POLICY_QUEUED;
    urgent->malleability = POLICY_RIGID;
    urgent->priority = 10;
    urgent->request = (struct policy_vector){{CORES(4), GIB(8), 0, 0}};
}

static void plan_preemption(void)
{
    build_preemption();
    outcome_begin(&outcome, &scene);
    outcome_decide(&outcome, &scene.jobs[0], 0, POLICY_VERB_PAUSE, POLICY_REASON_PREEMPTED);
    outcome.decisions[0].reason.arg[0] = 3;
    outcome_amount(&outcome, 0, 0, 0, GIB(6));
    outcome_decide(&outcome, &scene.jobs[1], 1, POLICY_VERB_KEEP, POLICY_REASON_MOLDABLE);
    outcome_amount(&outcome, 1, 0, 4, GIB(2));
    outcome_decide(&outcome, &scene.jobs[2], 2, POLICY_VERB_START, POLICY_REASON_PRIORITY);
    outcome_amount(&outcome, 2, 0, 4, GIB(8));
}

static void preemption_pauses_one_job_and_starts_another(void **state)
{
    plan_preemption();
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_NONE);
    assert_int_equal(outcome.domains[0].used.of[POLICY_MCPU], CORES(8));
    assert_int_equal(outcome.domains[0].used.of[POLICY_MEMORY], GIB(16));
}

static void preemption_never_pauses_a_job_that_forbids_it(void **state)
{
    plan_preemption();
    scene.jobs[0].preemptible = false;
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_PREEMPT);
}

static void pause_keeps_memory_and_nothing_else(void **state)
{
    plan_preemption();
    outcome.amounts[0].amount.of[POLICY_MEMORY] = 0;
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_MEMORY);

    plan_preemption();
    outcome.amounts[0].amount.of[POLICY_MCPU] = CORES(1);
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_HOLDS);
}

static void paused_memory_counts_against_the_next_job(void **state)
{
    plan_preemption();
    scene.jobs[2].request.of[POLICY_MEMORY] = GIB(9);
    outcome.amounts[2].amount.of[POLICY_MEMORY] = GIB(9);
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_CAPACITY);
}

static void starting_without_room_is_refused_unless_nothing_else_is_possible(void **state)
{
    struct policy_fault fault;

    plan_preemption();
    outcome.decisions[0].verb = POLICY_VERB_KEEP;
    outcome.decisions[0].reason.code = POLICY_REASON_RIGID;
    outcome.amounts[0].amount.of[POLICY_MCPU] = CORES(4);
    /* rigid sizes force the cores, and the plan marks it: allowed, and visible */
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_NONE);
    assert_true(outcome.domains[0].oversubscribed[POLICY_MCPU]);
    assert_int_equal(outcome.decisions[2].reason.used_mcpu, CORES(12));
    /* unmarked it is a lie */
    outcome.domains[0].oversubscribed[POLICY_MCPU] = false;
    assert_int_equal(policy_plan_check(&scene.snapshot, &outcome.plan, &fault), -EINVAL);
    assert_int_equal(fault.code, POLICY_FAULT_MARK);
    assert_true(fault.in_domain);
    /* a malleable job of four cores forces one only */
    scene.jobs[1].malleability = POLICY_MALLEABLE;
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_CAPACITY);
}

static void rigid_jobs_keep_their_size(void **state)
{
    plan_preemption();
    outcome.decisions[1].verb = POLICY_VERB_RESIZE;
    outcome.amounts[1].amount.of[POLICY_MCPU] = CORES(2);
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_RIGID);

    plan_preemption();
    outcome.amounts[2].amount.of[POLICY_MCPU] = CORES(2);
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_RIGID);
}

static void a_paused_job_resumes_as_it_was(void **state)
{
    build_preemption();
    scene.jobs[0].state = POLICY_PAUSED;
    scene.snapshot.job_count = 1;
    outcome_begin(&outcome, &scene);
    outcome_decide(&outcome, &scene.jobs[0], 0, POLICY_VERB_RESUME, POLICY_REASON_RIGID);
    outcome_amount(&outcome, 0, 0, 4, GIB(6));
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_NONE);
    outcome.amounts[0].amount.of[POLICY_MEMORY] = GIB(5);
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_RIGID);
    scene.jobs[0].malleability = POLICY_MALLEABLE;
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_MEMORY);
    outcome.amounts[0].amount.of[POLICY_MEMORY] = GIB(6);
    outcome.amounts[0].amount.of[POLICY_MCPU] = CORES(3);
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_NONE);
}

static void verbs_fit_states(void **state)
{
    static const struct {
        enum policy_state state;
        enum policy_verb verb;
    } wrong[] = {
        {POLICY_QUEUED, POLICY_VERB_KEEP},   {POLICY_QUEUED, POLICY_VERB_RESIZE},
        {POLICY_QUEUED, POLICY_VERB_PAUSE},  {POLICY_QUEUED, POLICY_VERB_RESUME},
        {POLICY_QUEUED, POLICY_VERB_NONE},   {POLICY_HELD, POLICY_VERB_START},
        {POLICY_RUNNING, POLICY_VERB_START}, {POLICY_RUNNING, POLICY_VERB_RESUME},
        {POLICY_RUNNING, POLICY_VERB_HOLD},  {POLICY_RUNNING, POLICY_VERB_INFEASIBLE},
        {POLICY_PAUSED, POLICY_VERB_START},  {POLICY_PAUSED, POLICY_VERB_KEEP},
        {POLICY_RUNNING, POLICY_VERB_MAX},
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        plan_preemption();
        scene.jobs[0].state = wrong[i].state;
        if (wrong[i].state == POLICY_QUEUED || wrong[i].state == POLICY_HELD)
            scene.jobs[0].current_count = 0;
        outcome.decisions[0].verb = wrong[i].verb;
        assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_VERB);
    }
}

/* ---- deadline -------------------------------------------------------------------------------- */

static const uint32_t speedup[8] = {1000, 1900, 2700, 3400, 4000, 4500, 4900, 5200};

/*
 * 8 cores, time 100 s. Job 0 has 27 s of work and a deadline in 10 s: it needs 3 cores. Job 1 has
 * none and takes the rest. Job 2 asks for what cannot be: 60 s of work in 10 s.
 */
static void plan_deadline(void)
{
    scene_init(&scene, 8, 0);
    for (int i = 0; i < 3; i++) {
        struct policy_job *job = scene_job(&scene);

        job->curve[POLICY_MCPU] = (struct policy_curve){.speedup_permille = speedup, .count = 8};
    }
    scene_hold(&scene, &scene.jobs[0], 0, 4, 0);
    scene.jobs[0].remaining_ns = 27 * SECOND;
    scene.jobs[0].deadline_ns = 110 * SECOND;
    scene_hold(&scene, &scene.jobs[1], 0, 4, 0);
    scene.jobs[2].state = POLICY_QUEUED;
    scene.jobs[2].remaining_ns = 60 * SECOND;
    scene.jobs[2].remaining_error_ns = SECOND;
    scene.jobs[2].deadline_ns = 110 * SECOND;

    outcome_begin(&outcome, &scene);
    outcome_decide(&outcome, &scene.jobs[0], 0, POLICY_VERB_RESIZE, POLICY_REASON_DEADLINE);
    outcome_amount(&outcome, 0, 0, 3, 0);
    outcome_decide(&outcome, &scene.jobs[1], 1, POLICY_VERB_RESIZE, POLICY_REASON_SPARE);
    outcome_amount(&outcome, 1, 0, 5, 0);
    outcome_decide(&outcome, &scene.jobs[2], 2, POLICY_VERB_INFEASIBLE,
                   POLICY_REASON_DEADLINE_MISSED);
    outcome.plan.next_wakeup_ns = 105 * SECOND;
}

static void deadline_takes_the_cores_that_it_needs(void **state)
{
    plan_deadline();
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_NONE);
    /* the table says that three cores do and two do not */
    assert_int_equal(policy_time_with(&scene.jobs[0], POLICY_MCPU, 3), 10 * SECOND);
    assert_true(policy_time_with(&scene.jobs[0], POLICY_MCPU, 2) > 10 * SECOND);
    assert_int_equal(policy_time_with(&scene.jobs[0], POLICY_MCPU, 100),
                     policy_time_with(&scene.jobs[0], POLICY_MCPU, 8));
    assert_int_equal(policy_time_with(&scene.jobs[1], POLICY_MCPU, 3), POLICY_UNKNOWN);
}

static void infeasible_must_be_true(void **state)
{
    plan_deadline();
    scene.jobs[2].remaining_ns = 50 * SECOND; /* 9.6 s with all eight */
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_FEASIBLE);
    scene.jobs[2].max.of[POLICY_MCPU] = CORES(7); /* 10.2 s with the seven that it may have */
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_NONE);
}

static void next_wakeup_lies_in_the_future(void **state)
{
    plan_deadline();
    outcome.plan.next_wakeup_ns = scene.snapshot.now_ns;
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_WAKEUP);
}

static void keep_and_resize_mean_what_they_say(void **state)
{
    plan_deadline();
    outcome.decisions[0].verb = POLICY_VERB_KEEP;
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_NOT_KEPT);

    plan_deadline();
    outcome.amounts[0].amount.of[POLICY_MCPU] = CORES(4);
    outcome.amounts[1].amount.of[POLICY_MCPU] = CORES(4);
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_NO_CHANGE);
}

static void a_plan_is_for_one_snapshot(void **state)
{
    plan_deadline();
    scene.snapshot.generation++;
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_STALE);

    plan_deadline();
    scene.snapshot.epoch++;
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_STALE);

    plan_deadline();
    outcome.decisions[1].id = 99;
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_ID);

    plan_deadline();
    outcome.decisions[1].reason.code = POLICY_REASON_NONE;
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_REASON);
}

static void bounds_and_pins_are_kept(void **state)
{
    plan_deadline();
    scene.jobs[0].min.of[POLICY_MCPU] = CORES(4);
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_MINIMUM);

    plan_deadline(); /* zero threads is no size, even without a minimum */
    scene.jobs[0].min.of[POLICY_MCPU] = 0;
    outcome.amounts[0].amount.of[POLICY_MCPU] = 0;
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_MINIMUM);

    plan_deadline();
    scene.jobs[1].max.of[POLICY_MCPU] = CORES(4);
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_MAXIMUM);

    plan_deadline();
    scene.jobs[1].pinned_by = POLICY_PIN_SIGNAL;
    scene.jobs[1].pinned.of[POLICY_MCPU] = CORES(6);
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_PINNED);

    /* a pin goes above the maximum, and above the machine if need be */
    scene.jobs[1].max.of[POLICY_MCPU] = CORES(4);
    outcome.amounts[1].amount.of[POLICY_MCPU] = CORES(6);
    outcome.amounts[0].amount.of[POLICY_MCPU] = CORES(2);
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_NONE);
    scene.jobs[1].pinned.of[POLICY_MCPU] = CORES(12);
    outcome.amounts[1].amount.of[POLICY_MCPU] = CORES(12);
    outcome.amounts[0].amount.of[POLICY_MCPU] = CORES(1);
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_NONE);
    assert_true(outcome.domains[0].oversubscribed[POLICY_MCPU]);
}

/* ---- power cap ------------------------------------------------------------------------------- */

/*
 * 16 cores of 5 W above 40 W idle, capped at 90 W: ten cores may be busy. Three jobs share them.
 */
static void plan_power(void)
{
    scene_init(&scene, 16, 0);
    scene.domains[0].idle_uw = 40000000;
    scene.domains[0].core_uw = 5000000;
    scene.domains[0].cap_uw = 90000000;
    outcome_begin(&outcome, &scene);
    for (uint32_t i = 0; i < 3; i++) {
        struct policy_job *job = scene_job(&scene);

        scene_hold(&scene, job, 0, 5, 0);
        outcome_decide(&outcome, job, i, POLICY_VERB_RESIZE, POLICY_REASON_POWER_CAP);
        outcome.decisions[i].reason.arg[0] = 90000000;
        outcome.decisions[i].reason.arg[1] = CORES(10);
        outcome_amount(&outcome, i, 0, i == 0 ? 4 : 3, 0);
    }
}

static void power_cap_limits_busy_cores(void **state)
{
    plan_power();
    assert_int_equal(policy_domain_capacity(&scene.snapshot, 0, POLICY_MCPU), CORES(10));
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_NONE);
    outcome.amounts[1].amount.of[POLICY_MCPU] = CORES(4);
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_CAPACITY);
}

static void power_cap_counts_children_and_the_dearest_core(void **state)
{
    plan_power();
    for (int i = 0; i < 2; i++)
        scene_domain(&scene, 0, POLICY_NUMA, 8, POLICY_UNLIMITED);
    scene.domains[1].idle_uw = 10000000;
    scene.domains[2].core_uw = 8000000;
    /* (90 - 40 - 10) W / 8 W a core */
    assert_int_equal(policy_domain_capacity(&scene.snapshot, 0, POLICY_MCPU), CORES(5));
    assert_int_equal(policy_domain_capacity(&scene.snapshot, 1, POLICY_MCPU), CORES(8));
    scene.domains[0].cap_uw = 50000000;
    assert_int_equal(policy_domain_capacity(&scene.snapshot, 0, POLICY_MCPU), 0);
}

/* ---- NUMA ------------------------------------------------------------------------------------ */

/*
 * Two NUMA nodes of 4 cores with 2 SMT threads each and 8 GiB. Job 0 must stay within one, job 1
 * is bound to the second, job 2 may lie across both.
 */
static void plan_numa(void)
{
    scene_init(&scene, 8, GIB(16));
    for (uint32_t n = 0; n < 2; n++) {
        uint32_t numa = scene_domain(&scene, 0, POLICY_NUMA, 4, GIB(8));

        for (int c = 0; c < 4; c++) {
            uint32_t core = scene_domain(&scene, numa, POLICY_CORE, 1, 0);

            scene_domain(&scene, core, POLICY_SMT, 1, 0);
            scene_domain(&scene, core, POLICY_SMT, 1, 0);
        }
    }
    for (int i = 0; i < 3; i++)
        scene_job(&scene)->state = POLICY_QUEUED;
    scene.jobs[0].span = POLICY_NUMA;
    scene.jobs[1].home = 14; /* NUMA nodes are domains 1 and 14, each followed by its cores */

    outcome_begin(&outcome, &scene);
    outcome_decide(&outcome, &scene.jobs[0], 0, POLICY_VERB_START, POLICY_REASON_LOCALITY);
    outcome_amount(&outcome, 0, 2, 1, 0);
    outcome_amount(&outcome, 0, 5, 1, 0);
    outcome_amount(&outcome, 0, 1, 0, GIB(4));
    outcome_decide(&outcome, &scene.jobs[1], 1, POLICY_VERB_START, POLICY_REASON_LOCALITY);
    outcome_amount(&outcome, 1, 15, 1, 0);
    outcome_amount(&outcome, 1, 19, 1, 0);
    outcome_decide(&outcome, &scene.jobs[2], 2, POLICY_VERB_START, POLICY_REASON_SPARE);
    outcome_amount(&outcome, 2, 1, 2, GIB(2));
    outcome_amount(&outcome, 2, 14, 2, GIB(2));
}

static void numa_plan_names_nodes_cores_and_threads(void **state)
{
    plan_numa();
    assert_int_equal(scene.domains[14].level, POLICY_NUMA);
    assert_int_equal(scene.domains[19].level, POLICY_SMT);
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_NONE);
    assert_int_equal(outcome.domains[1].used.of[POLICY_MCPU], CORES(4));
    assert_int_equal(outcome.domains[18].used.of[POLICY_MCPU], CORES(1));
    assert_int_equal(outcome.domains[0].used.of[POLICY_MEMORY], GIB(8));
}

static void numa_bound_jobs_stay_in_their_node(void **state)
{
    plan_numa();
    outcome.amounts[1].domain = 18; /* job 0 would lie in both nodes */
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_PLACE);

    plan_numa();
    outcome.amounts[3].domain = 8; /* job 1 out of its home */
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_PLACE);
}

static void every_level_has_its_capacity(void **state)
{
    plan_numa();
    outcome.amounts[5].amount.of[POLICY_MCPU] = CORES(3); /* the node has room, its NUMA node not */
    outcome.amounts[6].amount.of[POLICY_MCPU] = CORES(1);
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_CAPACITY);

    plan_numa();
    outcome.amounts[5].domain = 2; /* two cores' worth on one core that job 0 has already */
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_CAPACITY);
}

static void amounts_are_well_formed(void **state)
{
    plan_numa();
    outcome.amounts[1].domain = 2; /* twice in one domain */
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_PLACE);

    plan_numa();
    outcome.amounts[1].amount.of[POLICY_MCPU] = -CORES(1);
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_PLACE);

    plan_numa();
    policy_plan_account(&scene.snapshot, &outcome.plan);
    outcome.amounts[7] = (struct policy_amount){.domain = 2}; /* harmless, but not of the plan */
    outcome.decisions[2].amount_count = 3;
    assert_int_equal(policy_plan_check(&scene.snapshot, &outcome.plan, NULL), -EINVAL);

    plan_numa();
    policy_plan_account(&scene.snapshot, &outcome.plan);
    outcome.domains[1].used.of[POLICY_MCPU]--;
    assert_int_equal(policy_plan_check(&scene.snapshot, &outcome.plan, NULL), -EINVAL);
}

static void infeasible_looks_into_every_node(void **state)
{
    plan_numa();
    outcome.plan.amount_count = 0;
    outcome_decide(&outcome, &scene.jobs[0], 0, POLICY_VERB_INFEASIBLE, POLICY_REASON_TOO_LARGE);
    scene.snapshot.job_count = 1;
    scene.jobs[0].min.of[POLICY_MCPU] = CORES(4);
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_FEASIBLE);
    scene.jobs[0].min.of[POLICY_MCPU] = CORES(5); /* fits the machine, but no NUMA node */
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_NONE);
    scene.jobs[0].span = POLICY_NODE;
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_FEASIBLE);
}

/* ---- parameter servers and workers ----------------------------------------------------------- */

/*
 * A cluster of three nodes. Job 0 trains with one parameter server and one worker; another workload
 * has left, so it gets two workers and a parameter server more. Job 1 was pinned to two workers.
 */
static void plan_tasks(void)
{
    static const struct policy_vector node = {{CORES(8), GIB(16), 2, 4}};
    static const uint32_t by_worker[4] = {1000, 1900, 2600, 3000};
    struct policy_vector *amount;

    scene_init(&scene, 24, GIB(48));
    scene.domains[0].level = POLICY_CLUSTER;
    scene.domains[0].capacity.of[POLICY_PS] = 4;
    scene.domains[0].capacity.of[POLICY_WORKER] = 6;
    for (int i = 1; i <= 3; i++)
        scene.domains[scene_domain(&scene, 0, POLICY_NODE, 8, 0)].capacity = node;
    for (uint32_t i = 0; i < 2; i++) {
        struct policy_job *job = scene_job(&scene);

        job->min = (struct policy_vector){{CORES(2), GIB(1), 1, 1}};
        job->max = (struct policy_vector){{CORES(24), GIB(48), 3, 5}};
        job->communication_permille = 400;
        job->cost_ns[POLICY_ACTION_ADD_WORKER] = SECOND / 2;
        job->cost_ns[POLICY_ACTION_MOVE_PS] = 2 * SECOND;
        job->curve[POLICY_WORKER] = (struct policy_curve){
            .speedup_permille = by_worker, .count = 4, .confidence_permille = 800};
        scene_hold(&scene, job, 1 + i, 4, GIB(2));
        scene.held[i][0].amount.of[POLICY_PS] = 1;
        scene.held[i][0].amount.of[POLICY_WORKER] = 1;
    }
    scene.jobs[1].pinned_by = POLICY_PIN_HAND;
    scene.jobs[1].pinned.of[POLICY_WORKER] = 2;

    outcome_begin(&outcome, &scene);
    outcome_decide(&outcome, &scene.jobs[0], 0, POLICY_VERB_RESIZE, POLICY_REASON_WORKERS);
    amount = outcome_amount(&outcome, 0, 1, 4, GIB(2));
    amount->of[POLICY_PS] = 1;
    amount->of[POLICY_WORKER] = 1;
    amount = outcome_amount(&outcome, 0, 3, 8, GIB(6));
    amount->of[POLICY_PS] = 1;
    amount->of[POLICY_WORKER] = 2;
    outcome_decide(&outcome, &scene.jobs[1], 1, POLICY_VERB_RESIZE, POLICY_REASON_PINNED);
    amount = outcome_amount(&outcome, 1, 2, 6, GIB(4));
    amount->of[POLICY_PS] = 1;
    amount->of[POLICY_WORKER] = 2;
}

static void training_grows_by_workers_and_parameter_servers(void **state)
{
    plan_tasks();
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_NONE);
    assert_int_equal(outcome.domains[0].used.of[POLICY_WORKER], 5);
    assert_int_equal(outcome.domains[3].used.of[POLICY_PS], 1);
    assert_int_equal(policy_decision_total(&outcome.plan, 0, POLICY_WORKER), 3);
}

static void tasks_have_capacity_bounds_and_pins(void **state)
{
    plan_tasks();
    outcome.amounts[1].amount.of[POLICY_WORKER] = 4; /* seven in a cluster that may have six */
    scene.jobs[0].max.of[POLICY_WORKER] = 9;
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_CAPACITY);

    plan_tasks();
    outcome.amounts[0].amount.of[POLICY_PS] = 0;
    outcome.amounts[1].amount.of[POLICY_PS] = 0;
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_MINIMUM);

    plan_tasks();
    scene.jobs[0].max.of[POLICY_WORKER] = 2;
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_MAXIMUM);

    plan_tasks();
    outcome.amounts[2].amount.of[POLICY_WORKER] = 3;
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_PINNED);

    plan_tasks();
    scene.jobs[0].span = POLICY_NODE; /* as if it were one program */
    assert_int_equal(outcome_fault(&scene, &outcome), POLICY_FAULT_PLACE);
}

/* ---- snapshots ------------------------------------------------------------------------------- */

static enum policy_fault_code snapshot_fault(void)
{
    struct policy_fault fault = {0};
    int r = policy_snapshot_check(&scene.snapshot, &fault);

    assert_int_equal(r, fault.code == POLICY_FAULT_NONE ? 0 : -EINVAL);
    return fault.code;
}

#define WRONG(expected, assignment)                                                                \
    do {                                                                                           \
        plan_numa();                                                                               \
        assert_int_equal(snapshot_fault(), POLICY_FAULT_NONE);                                     \
        assignment;                                                                                \
        assert_int_equal(snapshot_fault(), expected);                                              \
    } while (0)

static void malformed_snapshots_are_refused(void **state)
{
    WRONG(POLICY_FAULT_COUNT, scene.snapshot.domain_count = 0);
    WRONG(POLICY_FAULT_COUNT, scene.snapshot.domain_count = POLICY_DOMAINS_MAX + 1);
    WRONG(POLICY_FAULT_COUNT, scene.snapshot.job_count = POLICY_JOBS_MAX + 1);
    WRONG(POLICY_FAULT_DOMAIN, scene.domains[0].parent = 0);
    WRONG(POLICY_FAULT_DOMAIN, scene.domains[3].parent = 3);
    WRONG(POLICY_FAULT_DOMAIN, scene.domains[3].level = POLICY_NUMA);
    WRONG(POLICY_FAULT_DOMAIN, scene.domains[3].level = POLICY_LEVEL_MAX);
    WRONG(POLICY_FAULT_DOMAIN, scene.domains[1].capacity.of[POLICY_MEMORY] = -1);
    WRONG(POLICY_FAULT_DOMAIN, scene.domains[1].capacity.of[POLICY_MCPU] = POLICY_UNLIMITED);
    WRONG(POLICY_FAULT_DOMAIN, scene.domains[1].cap_uw = POLICY_POWER_MAX + 1);
    WRONG(POLICY_FAULT_ENUM, scene.jobs[1].state = POLICY_STATE_MAX);
    WRONG(POLICY_FAULT_ENUM, scene.jobs[1].malleability = POLICY_MALLEABILITY_MAX);
    WRONG(POLICY_FAULT_ENUM, scene.jobs[1].pinned_by = POLICY_PIN_MAX);
    WRONG(POLICY_FAULT_ENUM, scene.jobs[1].span = POLICY_LEVEL_MAX);
    WRONG(POLICY_FAULT_WEIGHT, scene.jobs[1].weight = 0);
    WRONG(POLICY_FAULT_WEIGHT, scene.jobs[1].weight = POLICY_WEIGHT_MAX + 1);
    WRONG(POLICY_FAULT_BOUNDS, scene.jobs[1].max.of[POLICY_MCPU] = 1);
    WRONG(POLICY_FAULT_BOUNDS, scene.jobs[1].min.of[POLICY_MEMORY] = -1);
    WRONG(POLICY_FAULT_BOUNDS, scene.jobs[1].pinned.of[POLICY_MCPU] = INT64_MAX);
    WRONG(POLICY_FAULT_BOUNDS, scene.jobs[1].pinned.of[POLICY_MEMORY] = 1);
    WRONG(POLICY_FAULT_CURRENT, scene.jobs[1].home = scene.snapshot.domain_count);
    WRONG(POLICY_FAULT_CURRENT, scene.jobs[1].state = POLICY_PAUSED);
    WRONG(POLICY_FAULT_CURRENT, scene_hold(&scene, &scene.jobs[1], 14, 1, 0)); /* and queued */
    WRONG(POLICY_FAULT_CURRENT, {
        scene.jobs[1].state = POLICY_RUNNING;
        scene_hold(&scene, &scene.jobs[1], 2, 1, 0);
    });
    WRONG(POLICY_FAULT_CURRENT, {
        scene.jobs[0].state = POLICY_RUNNING;
        scene_hold(&scene, &scene.jobs[0], 999, 1, 0);
    });
    WRONG(POLICY_FAULT_CURRENT, {
        scene.jobs[0].state = POLICY_RUNNING;
        scene_hold(&scene, &scene.jobs[0], 2, 1, 0);
        scene_hold(&scene, &scene.jobs[0], 2, 1, 0);
    });
    WRONG(POLICY_FAULT_CURRENT, {
        scene.jobs[0].state = POLICY_RUNNING;
        scene_hold(&scene, &scene.jobs[0], 2, 1, 0);
        scene_hold(&scene, &scene.jobs[0], 15, 1, 0);
    });
    WRONG(POLICY_FAULT_SAME_ID, scene.jobs[2].id = scene.jobs[0].id);
    WRONG(POLICY_FAULT_CURVE, scene.jobs[2].curve[POLICY_MCPU].count = 3);
    WRONG(POLICY_FAULT_CURVE, scene.jobs[2].curve[POLICY_MCPU].speedup_permille = speedup);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(preemption_pauses_one_job_and_starts_another),
        cmocka_unit_test(preemption_never_pauses_a_job_that_forbids_it),
        cmocka_unit_test(pause_keeps_memory_and_nothing_else),
        cmocka_unit_test(paused_memory_counts_against_the_next_job),
        cmocka_unit_test(starting_without_room_is_refused_unless_nothing_else_is_possible),
        cmocka_unit_test(rigid_jobs_keep_their_size),
        cmocka_unit_test(a_paused_job_resumes_as_it_was),
        cmocka_unit_test(verbs_fit_states),
        cmocka_unit_test(deadline_takes_the_cores_that_it_needs),
        cmocka_unit_test(infeasible_must_be_true),
        cmocka_unit_test(next_wakeup_lies_in_the_future),
        cmocka_unit_test(keep_and_resize_mean_what_they_say),
        cmocka_unit_test(a_plan_is_for_one_snapshot),
        cmocka_unit_test(bounds_and_pins_are_kept),
        cmocka_unit_test(power_cap_limits_busy_cores),
        cmocka_unit_test(power_cap_counts_children_and_the_dearest_core),
        cmocka_unit_test(numa_plan_names_nodes_cores_and_threads),
        cmocka_unit_test(numa_bound_jobs_stay_in_their_node),
        cmocka_unit_test(every_level_has_its_capacity),
        cmocka_unit_test(amounts_are_well_formed),
        cmocka_unit_test(infeasible_looks_into_every_node),
        cmocka_unit_test(training_grows_by_workers_and_parameter_servers),
        cmocka_unit_test(tasks_have_capacity_bounds_and_pins),
        cmocka_unit_test(malformed_snapshots_are_refused),
    };

    return cmocka_run_group_tests_name("policy interface", tests, NULL, NULL);
}
