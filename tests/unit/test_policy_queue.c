/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policies with a queue - fcfs, priority, round-robin -: what they do in known cases, how they go
 * on over time, and what holds for every snapshot and every choice of parameters.
 */
#include "test_policy_random.h"

#include <errno.h>
#include <stdio.h>

#define RANDOM_SNAPSHOTS 20000

static struct scene scene;
static struct outcome outcome;

static void decide_into(struct outcome *o, const struct policy_spec *spec)
{
    static int64_t params[POLICY_PARAMS_MAX]; /* the scene is decided on again later */
    struct policy_fault fault = {0};
    char text[POLICY_TEXT_MAX], name[POLICY_SPEC_TEXT_MAX];

    outcome_init(o);
    memcpy(params, spec->params, sizeof(params));
    scene.snapshot.params = params;
    assert_int_equal(policy_decide(spec->policy, &scene.snapshot, &o->plan), 0);
    if (policy_plan_check(&scene.snapshot, &o->plan, &fault) == 0)
        return;
    policy_fault_text(&fault, text, sizeof(text));
    policy_spec_text(spec, name, sizeof(name));
    fail_msg("%s: %s", name, text);
}

static struct policy_spec choice(const char *text)
{
    struct policy_spec spec;
    struct error err;

    if (policy_spec_parse(text, &spec, &err) < 0)
        fail_msg("%s", err.text);
    return spec;
}

static void decide(const char *text)
{
    struct policy_spec spec = choice(text);

    decide_into(&outcome, &spec);
}

static void expect(uint32_t job, enum policy_verb verb, int64_t cores, const char *why)
{
    char text[POLICY_TEXT_MAX];

    policy_reason_text(&outcome.decisions[job].reason, text, sizeof(text));
    assert_string_equal(text, why);
    assert_string_equal(policy_verb_name(outcome.decisions[job].verb), policy_verb_name(verb));
    assert_int_equal(policy_decision_total(&outcome.plan, job, POLICY_MCPU), CORES(cores));
}

/* A job of one core at least that asks for @cores. */
static struct policy_job *asks(int64_t cores)
{
    struct policy_job *job = scene_job(&scene);

    job->state = POLICY_QUEUED;
    job->request.of[POLICY_MCPU] = CORES(cores);
    return job;
}

static struct policy_job *runs_with(int64_t cores, int64_t request)
{
    struct policy_job *job = asks(request);

    job->state = POLICY_RUNNING;
    scene_hold(&scene, job, 0, cores, 0);
    return job;
}

/* ---- strict ---------------------------------------------------------------------------------- */

static void strict_waits_until_the_full_request_is_free(void **state)
{
    scene_init(&scene, 16, 0);
    runs_with(12, 12)->malleability = POLICY_RIGID;
    asks(8);
    asks(2);
    decide("fcfs/strict");
    expect(0, POLICY_VERB_KEEP, 12, "rigid, stays at 12 cores");
    expect(1, POLICY_VERB_HOLD, 0, "waits for cores: needs 8 cores, 4 cores free");
    expect(2, POLICY_VERB_HOLD, 0, "waits behind job 2"); /* though there is room for it */
    scene.jobs[0].malleability = POLICY_MALLEABLE;
    scene.jobs[0].request.of[POLICY_MCPU] = CORES(8);
    decide("fcfs/strict/moldable");
    expect(1, POLICY_VERB_HOLD, 0, "waits for cores: needs 8 cores, 4 cores free");
    decide("fcfs/strict/resize=grow");
    expect(0, POLICY_VERB_KEEP, 12, "keeps the 12 cores that it has, more than the 8 it asked for");
    expect(1, POLICY_VERB_HOLD, 0, "waits for cores: needs 8 cores, 4 cores free");
}

static void strict_starts_in_order_as_many_as_fit(void **state)
{
    scene_init(&scene, 16, 0);
    for (int i = 0; i < 3; i++)
        asks(8);
    scene.jobs[0].arrival_ns = 50 * SECOND; /* first in the array, but the youngest */
    decide("fcfs/strict/moldable");
    expect(0, POLICY_VERB_HOLD, 0, "waits for cores: needs 8 cores, 0 cores free");
    expect(1, POLICY_VERB_START, 8, "its request of 8 cores");
    expect(2, POLICY_VERB_START, 8, "its request of 8 cores");
}

/* What nobody can start with is used, and given up as soon as somebody can. */
static void strict_malleable_jobs_use_what_is_idle(void **state)
{
    scene_init(&scene, 16, 0);
    runs_with(8, 8);
    runs_with(4, 4);
    decide("fcfs/strict/malleable");
    expect(0, POLICY_VERB_RESIZE, 11, "request of 8 in 12 for 16 cores among 2 jobs");
    expect(1, POLICY_VERB_RESIZE, 5, "request of 4 in 12 for 16 cores among 2 jobs");
    asks(5);
    decide("fcfs/strict/malleable");
    expect(0, POLICY_VERB_RESIZE, 11, "request of 8 in 12 for 16 cores among 2 jobs");
    scene.jobs[2].request.of[POLICY_MCPU] = CORES(4);
    decide("fcfs/strict/malleable");
    expect(0, POLICY_VERB_KEEP, 8, "its request of 8 cores");
    expect(1, POLICY_VERB_KEEP, 4, "its request of 4 cores");
    expect(2, POLICY_VERB_START, 4, "its request of 4 cores");
}

static void a_request_above_the_machine_is_for_all_of_it(void **state)
{
    scene_init(&scene, 16, 0);
    asks(99);
    decide("fcfs/strict/moldable");
    expect(0, POLICY_VERB_START, 16, "16 of the 99 cores it asked for, as no more is free");
    scene.jobs[0].malleability = POLICY_RIGID; /* no fewer will do */
    asks(1);
    decide("fcfs/strict");
    expect(0, POLICY_VERB_INFEASIBLE, 0, "needs 99 cores, more than the 16 cores there are");
    expect(1, POLICY_VERB_START, 16, "equal share of 16 cores among 1 job"); /* not behind that */
}

static void the_held_hold_nobody_up(void **state)
{
    scene_init(&scene, 16, 0);
    asks(16)->state = POLICY_HELD;
    asks(16);
    decide("fcfs/strict/rigid");
    expect(0, POLICY_VERB_HOLD, 0, "held by hand");
    expect(1, POLICY_VERB_START, 16, "rigid, stays at 16 cores");
}

/* ---- always-attend --------------------------------------------------------------------------- */

static void always_attend_starts_with_the_rest(void **state)
{
    scene_init(&scene, 16, 0);
    runs_with(13, 13)->malleability = POLICY_MOLDABLE;
    asks(8);
    asks(2);
    decide("fcfs/always-attend/moldable");
    expect(1, POLICY_VERB_START, 3, "3 of the 8 cores it asked for, as no more is free");
    expect(2, POLICY_VERB_HOLD, 0, "waits for cores: needs 1 core, 0 cores free");
    scene.jobs[1].min.of[POLICY_MCPU] = CORES(4);
    decide("fcfs/always-attend/moldable");
    expect(1, POLICY_VERB_HOLD, 0, "waits for cores: needs 4 cores, 3 cores free");
    expect(2, POLICY_VERB_HOLD, 0, "waits behind job 2");
    decide("fcfs/always-attend/rigid");
    expect(1, POLICY_VERB_HOLD, 0, "waits for cores: needs 8 cores, 3 cores free");
}

static void always_attend_completes_malleable_jobs_first(void **state)
{
    scene_init(&scene, 16, 0);
    runs_with(3, 8);
    runs_with(6, 6)->malleability = POLICY_RIGID;
    asks(8);
    decide("fcfs/always-attend/malleable");
    expect(0, POLICY_VERB_RESIZE, 8, "its request of 8 cores");
    expect(2, POLICY_VERB_START, 2, "2 of the 8 cores it asked for, as no more is free");
    decide("fcfs/always-attend/moldable");
    expect(0, POLICY_VERB_KEEP, 3, "moldable, stays at the 3 cores of its start");
    expect(2, POLICY_VERB_START, 7, "7 of the 8 cores it asked for, as no more is free");
}

/* ---- max-prop -------------------------------------------------------------------------------- */

/* As in the thesis' logs: one job of 8 gets all 16 cores, two get 8 each. */
static void max_prop_starts_in_proportion_to_the_requests(void **state)
{
    scene_init(&scene, 16, 0);
    asks(8);
    decide("fcfs/max-prop/moldable");
    expect(0, POLICY_VERB_START, 16, "equal share of 16 cores among 1 job");
    asks(8);
    decide("fcfs/max-prop/moldable");
    expect(0, POLICY_VERB_START, 8, "equal share of 16 cores among 2 jobs");
    expect(1, POLICY_VERB_START, 8, "equal share of 16 cores among 2 jobs");
    asks(16);
    decide("fcfs/max-prop/moldable");
    expect(0, POLICY_VERB_START, 4, "request of 8 in 32 for 16 cores among 3 jobs");
    expect(1, POLICY_VERB_START, 4, "request of 8 in 32 for 16 cores among 3 jobs");
    expect(2, POLICY_VERB_START, 8, "request of 16 in 32 for 16 cores among 3 jobs");
}

static void max_prop_starts_no_more_than_minima_allow(void **state)
{
    scene_init(&scene, 16, 0);
    for (int i = 0; i < 20; i++)
        asks(8)->min.of[POLICY_MCPU] = CORES(2);
    decide("fcfs/max-prop/moldable");
    for (uint32_t i = 0; i < 8; i++)
        expect(i, POLICY_VERB_START, 2, "equal share of 16 cores among 8 jobs");
    expect(8, POLICY_VERB_HOLD, 0, "waits for cores: needs 2 cores, 0 cores free");
    expect(19, POLICY_VERB_HOLD, 0, "waits behind job 9");
}

static void max_prop_moldable_jobs_keep_what_they_started_with(void **state)
{
    scene_init(&scene, 16, 0);
    runs_with(10, 8);
    asks(8);
    asks(16);
    decide("fcfs/max-prop/moldable");
    expect(0, POLICY_VERB_KEEP, 10, "moldable, stays at the 10 cores of its start");
    expect(1, POLICY_VERB_START, 2, "request of 8 in 24 for 6 cores among 2 jobs");
    expect(2, POLICY_VERB_START, 4, "request of 16 in 24 for 6 cores among 2 jobs");
}

static void max_prop_malleable_jobs_make_room_and_grow_again(void **state)
{
    scene_init(&scene, 16, 0);
    runs_with(16, 8);
    asks(8);
    decide("fcfs/max-prop/malleable");
    expect(0, POLICY_VERB_RESIZE, 8, "equal share of 16 cores among 2 jobs");
    expect(1, POLICY_VERB_START, 8, "equal share of 16 cores among 2 jobs");
    scene.snapshot.job_count = 1;
    scene.held[0][0].amount.of[POLICY_MCPU] = CORES(8);
    decide("fcfs/max-prop/malleable");
    expect(0, POLICY_VERB_RESIZE, 16, "equal share of 16 cores among 1 job");
}

/*
 * The rule of the thesis' logs: nobody shrinks; what is free goes to running jobs up to their
 * request, the oldest first, and the rest of it to those who wait (prueba2-16-maleable, 863 s).
 */
static void max_prop_grow_follows_the_logs_of_the_thesis(void **state)
{
    scene_init(&scene, 16, 0);
    runs_with(16, 8);
    asks(8)->min.of[POLICY_MCPU] = CORES(2);
    decide("fcfs/max-prop/malleable/grow");
    expect(0, POLICY_VERB_KEEP, 16, "keeps the 16 cores that it has, more than the 8 it asked for");
    expect(1, POLICY_VERB_HOLD, 0, "waits for cores: needs 2 cores, 0 cores free");

    scene_init(&scene, 16, 0);
    runs_with(6, 8);
    runs_with(2, 8);
    asks(8)->min.of[POLICY_MCPU] = CORES(2);
    decide("fcfs/max-prop/malleable/grow");
    expect(0, POLICY_VERB_RESIZE, 8, "its request of 8 cores");
    expect(1, POLICY_VERB_RESIZE, 8, "its request of 8 cores");
    expect(2, POLICY_VERB_HOLD, 0, "waits for cores: needs 2 cores, 0 cores free");
    scene.domains[0].capacity.of[POLICY_MCPU] = CORES(18);
    decide("fcfs/max-prop/malleable/grow");
    expect(2, POLICY_VERB_START, 2, "equal share of 2 cores among 1 job");
}

/* ---- what runs already, places, other resources ---------------------------------------------- */

/* The daemon's jobs began by themselves, and nobody can stop them. */
static void jobs_that_began_by_themselves_go_on(void **state)
{
    static const char *const all[] = {"fcfs/strict", "priority/strict", "round-robin/strict"};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        scene_init(&scene, 4, 0);
        for (int k = 0; k < 3; k++)
            asks(3)->state = POLICY_RUNNING;
        decide(all[i]);
        expect(0, POLICY_VERB_RESIZE, 2, "2 of the 3 cores it asked for, as no more is free");
        expect(1, POLICY_VERB_RESIZE, 1, "1 of the 3 cores it asked for, as no more is free");
        expect(2, POLICY_VERB_RESIZE, 1, "1 of the 3 cores it asked for, as no more is free");
    }
    scene.domains[0].capacity.of[POLICY_MCPU] = CORES(2);
    decide("fcfs/max-prop");
    expect(2, POLICY_VERB_RESIZE, 1,
           "one thread, as 3 jobs share 2 cores; oversubscribed: 3 of 2 cores");
}

static void pinned_jobs_are_taken_as_given(void **state)
{
    scene_init(&scene, 16, 0);
    runs_with(8, 8)->pinned_by = POLICY_PIN_HAND;
    scene.jobs[0].pinned.of[POLICY_MCPU] = CORES(12);
    asks(8);
    decide("fcfs/max-prop");
    expect(0, POLICY_VERB_RESIZE, 12, "pinned to 12 by hand");
    expect(1, POLICY_VERB_START, 4, "equal share of 4 cores among 1 job");
    decide("fcfs/strict");
    expect(1, POLICY_VERB_HOLD, 0, "waits for cores: needs 8 cores, 4 cores free");
}

static void cores_are_lent_and_come_back(void **state)
{
    scene_init(&scene, 16, 0);
    runs_with(8, 8)->lent = 3;
    runs_with(8, 8)->borrowed = 2;
    asks(3);
    decide("fcfs/strict/malleable");
    expect(0, POLICY_VERB_RESIZE, 5, "share of 8 cores, 3 lent");
    expect(1, POLICY_VERB_RESIZE, 10, "share of 8 cores and 2 borrowed");
    expect(2, POLICY_VERB_HOLD, 0, "waits for cores: needs 3 cores, 0 cores free");
    scene.jobs[0].lent = scene.jobs[1].borrowed = 0;
    scene.held[0][0].amount.of[POLICY_MCPU] = CORES(5);
    scene.held[1][0].amount.of[POLICY_MCPU] = CORES(10);
    decide("fcfs/strict/malleable");
    expect(0, POLICY_VERB_RESIZE, 8, "its request of 8 cores");
    expect(1, POLICY_VERB_RESIZE, 8, "its request of 8 cores");
}

static void a_job_within_one_numa_node_starts_in_the_emptier_one(void **state)
{
    scene_init(&scene, 8, 0);
    scene_domain(&scene, 0, POLICY_NUMA, 4, POLICY_UNLIMITED);
    scene_domain(&scene, 0, POLICY_NUMA, 4, POLICY_UNLIMITED);
    for (int i = 0; i < 3; i++) {
        asks(i == 0 ? 1 : 3)->span = POLICY_NUMA;
        scene.jobs[i].malleability = POLICY_MOLDABLE;
    }
    decide("fcfs/strict");
    expect(0, POLICY_VERB_START, 1, "its request of 1 core");
    expect(1, POLICY_VERB_START, 3, "its request of 3 cores"); /* there is room in either */
    assert_int_equal(outcome.amounts[outcome.decisions[0].amount_first].domain, 1);
    assert_int_equal(outcome.amounts[outcome.decisions[1].amount_first].domain, 2);
    expect(2, POLICY_VERB_START, 3, "its request of 3 cores");
    scene.jobs[0].request.of[POLICY_MCPU] = CORES(2);
    decide("fcfs/strict");
    expect(2, POLICY_VERB_HOLD, 0, "waits for cores: needs 3 cores, 2 cores free");
    scene.jobs[0].request.of[POLICY_MCPU] = CORES(5); /* nowhere that many */
    decide("fcfs/strict/rigid");
    expect(0, POLICY_VERB_START, 4, "rigid, stays at 4 cores");
    scene.jobs[0].malleability = POLICY_RIGID;
    decide("fcfs/strict");
    expect(0, POLICY_VERB_INFEASIBLE, 0, "needs 5 cores, more than the 4 cores there are");
}

static void memory_is_needed_like_cores_and_a_paused_job_keeps_its_own(void **state)
{
    struct policy_job *paused;

    scene_init(&scene, 8, GIB(16));
    paused = asks(4);
    paused->state = POLICY_PAUSED;
    paused->malleability = POLICY_RIGID;
    scene_hold(&scene, paused, 0, 4, GIB(10));
    scene.jobs[0].arrival_ns = 50 * SECOND; /* behind the others */
    runs_with(6, 6)->malleability = POLICY_RIGID;
    asks(1)->request.of[POLICY_MEMORY] = GIB(8);
    asks(1);
    decide("fcfs/strict/rigid");
    expect(0, POLICY_VERB_HOLD, 0, "waits for cores: needs 4 cores, 2 cores free");
    assert_int_equal(policy_decision_total(&outcome.plan, 0, POLICY_MEMORY), GIB(10));
    expect(2, POLICY_VERB_HOLD, 0, "waits for memory: needs 8 GiB, 6 GiB free");
    expect(3, POLICY_VERB_HOLD, 0, "waits behind job 3");
}

static void memory_that_is_too_little_holds_up_those_who_need_some(void **state)
{
    scene_init(&scene, 8, GIB(4));
    runs_with(2, 2);
    scene.held[0][0].amount.of[POLICY_MEMORY] = GIB(5); /* it has that, whatever there is */
    asks(2);
    asks(2)->min.of[POLICY_MEMORY] = 1;
    decide("fcfs/strict/rigid");
    expect(1, POLICY_VERB_START, 2, "rigid, stays at 2 cores");
    expect(2, POLICY_VERB_HOLD, 0, "waits for memory: needs 1 B, 0 B free");
    assert_true(outcome.domains[0].oversubscribed[POLICY_MEMORY]);
}

/* Else the job in front waited for ever for memory that the one behind it holds. */
static void a_paused_job_passes_one_that_waits_for_memory(void **state)
{
    struct policy_job *paused;

    scene_init(&scene, 8, GIB(16));
    asks(1)->request.of[POLICY_MEMORY] = GIB(8);
    asks(1);
    paused = asks(4);
    paused->state = POLICY_PAUSED;
    scene_hold(&scene, paused, 0, 4, GIB(10));
    decide("fcfs/strict/rigid");
    expect(0, POLICY_VERB_HOLD, 0, "waits for memory: needs 8 GiB, 6 GiB free");
    expect(1, POLICY_VERB_HOLD, 0, "waits behind job 1");
    expect(2, POLICY_VERB_RESUME, 4, "rigid, stays at 4 cores");
    /* not one that waits for cores */
    scene.jobs[0].request.of[POLICY_MEMORY] = 0;
    scene.jobs[0].request.of[POLICY_MCPU] = CORES(8);
    runs_with(1, 1);
    decide("fcfs/strict/rigid");
    expect(0, POLICY_VERB_HOLD, 0, "waits for cores: needs 8 cores, 7 cores free");
    expect(2, POLICY_VERB_HOLD, 0, "waits behind job 1");
}

/* ---- priority -------------------------------------------------------------------------------- */

/* 16 cores full of four preemptible jobs of priority 0. */
static void build_full_machine(void)
{
    static const struct {
        int64_t cores;
        uint64_t run_s;
    } runs[] = {{2, 30}, {6, 50}, {4, 50}, {4, 10}};

    scene_init(&scene, 16, GIB(16));
    for (int i = 0; i < 4; i++) {
        struct policy_job *job = runs_with(runs[i].cores, runs[i].cores);

        job->run_ns = runs[i].run_s * SECOND;
        job->preemptible = true;
        scene.held[i][0].amount.of[POLICY_MEMORY] = GIB(3);
    }
}

static void higher_priority_pauses_the_longest_run_then_the_smallest_request(void **state)
{
    build_full_machine();
    asks(4)->priority = 5;
    decide("priority/strict/rigid");
    expect(2, POLICY_VERB_PAUSE, 0, "paused for job 5: priority 5 against 0");
    assert_int_equal(policy_decision_total(&outcome.plan, 2, POLICY_MEMORY), GIB(3));
    expect(4, POLICY_VERB_START, 4, "rigid, stays at 4 cores");
    for (uint32_t i = 0; i < 4; i++)
        if (i != 2)
            assert_int_equal(outcome.decisions[i].verb, POLICY_VERB_KEEP);
    scene.jobs[3].run_ns = 60 * SECOND;
    decide("priority/strict/rigid");
    expect(3, POLICY_VERB_PAUSE, 0, "paused for job 5: priority 5 against 0");
    scene.jobs[4].request.of[POLICY_MCPU] = CORES(9); /* 4 + 4 + 6: the first is not needed then */
    decide("priority/strict/rigid");
    expect(0, POLICY_VERB_KEEP, 2, "rigid, stays at 2 cores");
    expect(1, POLICY_VERB_PAUSE, 0, "paused for job 5: priority 5 against 0");
    expect(3, POLICY_VERB_PAUSE, 0, "paused for job 5: priority 5 against 0");
    expect(2, POLICY_VERB_KEEP, 4, "rigid, stays at 4 cores");
}

static void nobody_is_paused_in_vain(void **state)
{
    build_full_machine();
    asks(4)->priority = 5;
    scene.jobs[4].request.of[POLICY_MEMORY] = GIB(5); /* 4 are free, and stay all there is */
    decide("priority/strict/rigid");
    expect(4, POLICY_VERB_HOLD, 0, "waits for memory: needs 5 GiB, 4 GiB free");
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(outcome.decisions[i].verb, POLICY_VERB_KEEP);

    scene.jobs[4].request.of[POLICY_MEMORY] = 0;
    scene.jobs[4].request.of[POLICY_MCPU] = CORES(16);
    scene.jobs[1].preemptible = false; /* the others have ten */
    decide("priority/strict/rigid");
    expect(4, POLICY_VERB_HOLD, 0, "waits for cores: needs 16 cores, 0 cores free");
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(outcome.decisions[i].verb, POLICY_VERB_KEEP);
}

static void the_same_priority_pauses_nobody(void **state)
{
    build_full_machine();
    asks(1);
    decide("priority/strict/rigid");
    expect(4, POLICY_VERB_HOLD, 0, "waits for cores: needs 1 core, 0 cores free");
    assert_int_equal(outcome.plan.next_wakeup_ns, POLICY_NEVER);
}

static void higher_priority_starts_first_and_makes_malleable_jobs_shrink(void **state)
{
    scene_init(&scene, 8, 0);
    asks(6);
    asks(6)->priority = 1;
    decide("priority/always-attend/moldable");
    expect(0, POLICY_VERB_START, 2, "2 of the 6 cores it asked for, as no more is free");
    expect(1, POLICY_VERB_START, 6, "its request of 6 cores");

    scene_init(&scene, 8, 0);
    runs_with(8, 8)->preemptible = true;
    asks(6)->priority = 1;
    decide("priority/always-attend/malleable"); /* no need to pause it */
    expect(0, POLICY_VERB_RESIZE, 2, "2 of the 8 cores it asked for, as no more is free");
    expect(1, POLICY_VERB_START, 6, "its request of 6 cores");
    decide("priority/always-attend/moldable");
    expect(0, POLICY_VERB_PAUSE, 0, "paused for job 2: priority 1 against 0");
    expect(1, POLICY_VERB_START, 6, "its request of 6 cores");
}

static void the_paused_resume_when_there_is_room(void **state)
{
    scene_init(&scene, 8, 0);
    runs_with(4, 4)->state = POLICY_PAUSED;
    runs_with(6, 6)->priority = 1;
    decide("priority/strict/moldable");
    expect(0, POLICY_VERB_HOLD, 0, "waits for cores: needs 4 cores, 2 cores free");
    scene.jobs[1].request.of[POLICY_MCPU] = scene.held[1][0].amount.of[POLICY_MCPU] = CORES(4);
    decide("priority/strict/moldable");
    expect(0, POLICY_VERB_RESUME, 4, "moldable, stays at the 4 cores of its start");
}

/* Waiting for 100 s is worth two: at 150 s it will be three, one above the other's two. */
static void ageing_raises_who_waits_and_asks_to_be_woken(void **state)
{
    scene_init(&scene, 8, 0);
    runs_with(8, 8)->priority = 2;
    scene.jobs[0].preemptible = true;
    asks(8)->wait_ns = 100 * SECOND;
    decide("priority/strict/rigid/ageing=50s");
    expect(1, POLICY_VERB_HOLD, 0, "waits for cores: needs 8 cores, 0 cores free");
    assert_int_equal(outcome.plan.next_wakeup_ns, scene.snapshot.now_ns + 50 * SECOND);
    scene.jobs[1].wait_ns += 50 * SECOND - 1;
    decide("priority/strict/rigid/ageing=50s");
    assert_int_equal(outcome.plan.next_wakeup_ns, scene.snapshot.now_ns + 1);
    scene.jobs[1].wait_ns++;
    decide("priority/strict/rigid/ageing=50s");
    expect(0, POLICY_VERB_PAUSE, 0, "paused for job 2: priority 3 against 2");
    expect(1, POLICY_VERB_START, 8, "rigid, stays at 8 cores");
    assert_int_equal(outcome.plan.next_wakeup_ns, POLICY_NEVER);
}

/* ---- over time ------------------------------------------------------------------------------- */

static uint64_t saved_state[1024];

/* Carries the plan out, and lets time pass until the policy wants to be asked, at most @most_ns. */
static void go_on(uint64_t most_ns)
{
    uint64_t wakeup = outcome.plan.next_wakeup_ns, now = scene.snapshot.now_ns;
    uint64_t passed = wakeup - now < most_ns ? wakeup - now : most_ns;

    for (uint32_t i = 0; i < scene.snapshot.job_count; i++) {
        struct policy_job *job = &scene.jobs[i];
        const struct policy_decision *decision = &outcome.decisions[i];

        switch (decision->verb) {
        case POLICY_VERB_PAUSE:
            job->state = POLICY_PAUSED;
            job->change_ns = now;
            break;
        case POLICY_VERB_START:
        case POLICY_VERB_RESUME:
        case POLICY_VERB_RESIZE:
            job->state = POLICY_RUNNING;
            job->change_ns = now;
            job->current_count = decision->amount_count;
            memcpy(scene.held[i], outcome.amounts + decision->amount_first,
                   decision->amount_count * sizeof(scene.held[i][0]));
            break;
        default:
            break;
        }
        *(job->state == POLICY_RUNNING ? &job->run_ns : &job->wait_ns) += passed;
    }
    scene.snapshot.now_ns += passed;
    scene.snapshot.state_size = outcome.plan.state_size;
    scene.snapshot.state = saved_state;
    memcpy(saved_state, outcome.state, outcome.plan.state_size);
}

/* Jobs of high priority come and go without a gap; does the low one ever run? */
static uint64_t run_time_of_the_low_one(const char *policy)
{
    scene_init(&scene, 4, 0);
    asks(4)->preemptible = true;
    asks(4)->priority = 3;
    scene.jobs[1].preemptible = true;
    for (int i = 0; i < 200; i++) {
        decide(policy);
        go_on(10 * SECOND);
        if (scene.jobs[1].run_ns < 40 * SECOND)
            continue;
        /* it ends, and the next one like it is there */
        scene.jobs[1].id += 1000;
        scene.jobs[1].state = POLICY_QUEUED;
        scene.jobs[1].run_ns = scene.jobs[1].wait_ns = scene.jobs[1].change_ns = 0;
        scene.jobs[1].current_count = 0;
        scene.jobs[1].arrival_ns = scene.snapshot.now_ns;
    }
    return scene.jobs[0].run_ns;
}

static void ageing_ends_starvation(void **state)
{
    assert_int_equal(run_time_of_the_low_one("priority/strict/rigid"), 0);
    assert_true(run_time_of_the_low_one("priority/strict/rigid/ageing=30s") > 100 * SECOND);
}

static void ageing_makes_equals_take_turns_of_twice_its_time(void **state)
{
    scene_init(&scene, 4, 0);
    for (int i = 0; i < 2; i++)
        asks(4)->preemptible = true;
    for (uint64_t turn = 0; turn < 6; turn++) {
        decide("priority/strict/rigid/ageing=30s");
        assert_int_equal(outcome.decisions[turn % 2].verb,
                         turn < 2 ? POLICY_VERB_START : POLICY_VERB_RESUME);
        go_on(UINT64_MAX);
        assert_int_equal(scene.snapshot.now_ns, (100 + 30 + 60 * turn) * SECOND);
    }
}

static void quantum_rotates(void **state)
{
    scene_init(&scene, 4, 0);
    for (int i = 0; i < 3; i++)
        asks(3)->preemptible = true;
    for (uint64_t turn = 0; turn < 9; turn++) {
        decide("round-robin/strict/rigid/quantum=20s");
        assert_int_equal(outcome.decisions[turn % 3].verb,
                         turn < 3 ? POLICY_VERB_START : POLICY_VERB_RESUME);
        assert_int_equal(outcome.plan.next_wakeup_ns, scene.snapshot.now_ns + 20 * SECOND);
        go_on(UINT64_MAX);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(scene.jobs[i].run_ns, 60 * SECOND);
    decide("round-robin/strict/rigid/quantum=20s");
    expect(2, POLICY_VERB_PAUSE, 0, "ran for 20 s, now it is the turn of job 1");
}

static void two_jobs_take_turns_as_well(void **state)
{
    scene_init(&scene, 4, 0);
    asks(3)->preemptible = true;
    asks(3)->preemptible = true;
    for (int turn = 0; turn < 8; turn++) {
        decide("round-robin/strict/rigid/quantum=20s");
        go_on(UINT64_MAX);
    }
    assert_int_equal(scene.jobs[0].run_ns, 80 * SECOND);
    assert_int_equal(scene.jobs[1].run_ns, 80 * SECOND);
}

static void nobody_is_paused_before_its_quantum_or_for_nobody(void **state)
{
    scene_init(&scene, 4, 0);
    asks(3)->preemptible = true;
    decide("round-robin/strict/rigid/quantum=20s");
    assert_int_equal(outcome.plan.next_wakeup_ns, POLICY_NEVER);
    go_on(15 * SECOND);
    asks(1);
    asks(2);
    decide("round-robin/strict/rigid/quantum=20s");
    expect(0, POLICY_VERB_KEEP, 3, "rigid, stays at 3 cores");
    expect(1, POLICY_VERB_START, 1, "rigid, stays at 1 core"); /* beside it */
    expect(2, POLICY_VERB_HOLD, 0, "waits for cores: needs 2 cores, 0 cores free");
    assert_int_equal(outcome.plan.next_wakeup_ns, scene.snapshot.now_ns + 5 * SECOND);
}

/* A malleable job that loses its turn leaves all of its cores. */
static void the_paused_take_no_part_in_the_division(void **state)
{
    scene_init(&scene, 8, 0);
    asks(4)->preemptible = true;
    decide("round-robin/strict/malleable/quantum=20s");
    expect(0, POLICY_VERB_START, 8, "equal share of 8 cores among 1 job");
    go_on(20 * SECOND);
    asks(6);
    decide("round-robin/strict/malleable/quantum=20s");
    expect(0, POLICY_VERB_PAUSE, 0, "ran for 20 s, now it is the turn of job 2");
    expect(1, POLICY_VERB_START, 8, "equal share of 8 cores among 1 job");
}

/* A malleable job is resized often; its turn goes on. */
static void resizing_begins_no_new_turn(void **state)
{
    scene_init(&scene, 4, 0);
    asks(4)->preemptible = true;
    scene.jobs[0].min.of[POLICY_MCPU] = CORES(3);
    decide("round-robin/max-prop/malleable/quantum=20s");
    expect(0, POLICY_VERB_START, 4, "equal share of 4 cores among 1 job");
    go_on(10 * SECOND);
    asks(1);
    decide("round-robin/max-prop/malleable/quantum=20s");
    assert_int_equal(outcome.decisions[0].verb, POLICY_VERB_RESIZE);
    go_on(5 * SECOND);
    asks(1);
    decide("round-robin/max-prop/malleable/quantum=20s");
    assert_int_equal(outcome.plan.next_wakeup_ns, scene.snapshot.now_ns + 5 * SECOND);
}

static void a_foreign_state_is_refused(void **state)
{
    struct policy_spec spec = choice("round-robin/quantum=20s");
    size_t size;

    scene_init(&scene, 4, 0);
    for (int i = 0; i < 2; i++)
        asks(4);
    decide_into(&outcome, &spec);
    go_on(SECOND);
    size = scene.snapshot.state_size;
    assert_int_equal(policy_decide(spec.policy, &scene.snapshot, &outcome.plan), 0);
    scene.snapshot.state_size--;
    assert_int_equal(policy_decide(spec.policy, &scene.snapshot, &outcome.plan), -EPROTO);
    scene.snapshot.state_size = 1;
    assert_int_equal(policy_decide(spec.policy, &scene.snapshot, &outcome.plan), -EPROTO);
    scene.snapshot.state_size = size;
    saved_state[0] ^= 1;
    assert_int_equal(policy_decide(spec.policy, &scene.snapshot, &outcome.plan), -EPROTO);
    scene.snapshot.state_size = 0; /* none is fine */
    assert_int_equal(policy_decide(spec.policy, &scene.snapshot, &outcome.plan), 0);
}

/* ---- random snapshots ------------------------------------------------------------------------ */

static const char *const policies[] = {"fcfs", "priority", "round-robin"};

#define CHOICES 24 /* of one policy: reassignment, variant and resize in all combinations */

/* Number @n of the choices; what else the policy has is set so that it matters. */
static struct policy_spec numbered_choice(const char *policy, uint32_t n)
{
    struct policy_spec spec = choice(policy);
    int own = policy_param_find(spec.policy, "ageing");

    spec.params[policy_param_find(spec.policy, "reassignment")] = n % 3;
    spec.params[policy_param_find(spec.policy, "variant")] = n / 3 % 4;
    spec.params[policy_param_find(spec.policy, "resize")] = n / 12 % 2;
    if (own >= 0 && n % 2)
        spec.params[own] = 50 * (int64_t)SECOND;
    own = policy_param_find(spec.policy, "quantum");
    if (own >= 0)
        spec.params[own] = 30 * (int64_t)SECOND;
    return spec;
}

static void random_queue(uint32_t n)
{
    random_scene(&scene, n, (n / 3 % FLAVOURS) | (one_in(4) ? 0 : WITH_FIXED | WITH_HISTORY));
}

/* Round-robin's turns: some have lasted longer than the quantum. */
static void random_turns(const struct policy_spec *spec)
{
    scene.snapshot.state_size = 0;
    decide_into(&outcome, spec);
    scene.snapshot.state = saved_state;
    scene.snapshot.state_size = outcome.plan.state_size;
    memcpy(saved_state, outcome.state, outcome.plan.state_size);
    for (uint32_t i = 0; i < scene.snapshot.job_count; i++)
        if (scene.jobs[i].state == POLICY_RUNNING)
            scene.jobs[i].run_ns += random_below(3) * 20 * SECOND;
}

static void every_plan_is_right_and_the_same_again(void **state)
{
    static struct outcome again;

    for (uint32_t n = 0; n < RANDOM_SNAPSHOTS; n++) {
        random_queue(n);
        for (uint32_t k = 0; k < CHOICES; k++) {
            struct policy_spec spec = numbered_choice(policies[n % 3], k);

            if (n % 3 == 2 && k % 3 == 0)
                random_turns(&spec);
            decide_into(&outcome, &spec);
        }
        outcome_init(&again);
        assert_int_equal(policy_decide(policy_find(policies[n % 3]), &scene.snapshot, &again.plan),
                         0);
        for (uint32_t i = 0; i < scene.snapshot.job_count; i++)
            assert_true(same_decision(&outcome, i, &again, i));
        assert_int_equal(outcome.plan.next_wakeup_ns, again.plan.next_wakeup_ns);
        assert_memory_equal(outcome.state, again.state, outcome.plan.state_size);
    }
}

static void the_order_of_jobs_does_not_matter(void **state)
{
    static struct outcome shuffled;

    for (uint32_t n = 0; n < RANDOM_SNAPSHOTS; n++) {
        struct policy_spec spec = numbered_choice(policies[n % 3], n / 3 % CHOICES);
        uint32_t from[BUILD_JOBS];

        random_queue(n);
        if (n % 3 == 2)
            random_turns(&spec);
        decide_into(&outcome, &spec);
        random_shuffle(&scene, from);
        decide_into(&shuffled, &spec);
        for (uint32_t i = 0; i < scene.snapshot.job_count; i++)
            assert_true(same_decision(&outcome, from[i], &shuffled, i));
        assert_int_equal(outcome.plan.state_size, shuffled.plan.state_size);
        assert_memory_equal(outcome.state, shuffled.state, outcome.plan.state_size);
    }
}

static bool begins(uint32_t job)
{
    return outcome.decisions[job].verb == POLICY_VERB_START ||
           outcome.decisions[job].verb == POLICY_VERB_RESUME;
}

/* Under fcfs: whoever begins is older than all who wait for room, or passes one short of memory. */
static void nobody_overtakes(void **state)
{
    uint32_t held = 0;

    for (uint32_t n = 0; n < RANDOM_SNAPSHOTS; n++) {
        struct policy_spec spec = numbered_choice("fcfs", n % CHOICES);

        random_queue(n);
        decide_into(&outcome, &spec);
        for (uint32_t i = 0; i < scene.snapshot.job_count; i++) {
            const struct policy_reason *reason = &outcome.decisions[i].reason;

            if (reason->code != POLICY_REASON_NO_ROOM)
                continue;
            held++;
            for (uint32_t k = 0; k < scene.snapshot.job_count; k++) {
                const struct policy_job *a = &scene.jobs[i], *b = &scene.jobs[k];
                bool younger =
                    b->arrival_ns != a->arrival_ns ? b->arrival_ns > a->arrival_ns : b->id > a->id;

                if (begins(k) && younger)
                    assert_true(reason->arg[0] == POLICY_MEMORY && b->state == POLICY_PAUSED);
            }
        }
    }
    assert_true(held > 100);
}

static int64_t place_capacity(uint32_t job)
{
    const struct policy_decision *decision = &outcome.decisions[job];
    int64_t least = INT64_MAX;

    for (uint32_t d = outcome.amounts[decision->amount_first].domain; d != POLICY_NO_PARENT;
         d = scene.domains[d].parent) {
        int64_t capacity = policy_domain_capacity(&scene.snapshot, d, POLICY_MCPU);

        least = capacity < least ? capacity : least;
    }
    return least;
}

/* Whatever the policy: who starts under strict has its full request, or all that its place has. */
static void strict_never_starts_with_less(void **state)
{
    uint32_t started = 0;

    for (uint32_t n = 0; n < RANDOM_SNAPSHOTS; n++) {
        struct policy_spec spec = numbered_choice(policies[n % 3], n / 3 % (CHOICES / 3) * 3);

        random_queue(n);
        decide_into(&outcome, &spec);
        for (uint32_t i = 0; i < scene.snapshot.job_count; i++) {
            int64_t want = scene.jobs[i].request.of[POLICY_MCPU], has;

            if (outcome.decisions[i].verb != POLICY_VERB_START || scene.jobs[i].pinned_by ||
                scene.jobs[i].lent)
                continue;
            started++;
            has = policy_decision_total(&outcome.plan, i, POLICY_MCPU);
            if (want > policy_job_most(&scene.jobs[i], POLICY_MCPU))
                want = policy_job_most(&scene.jobs[i], POLICY_MCPU);
            assert_true(has >= want || (has <= place_capacity(i) && want > place_capacity(i)));
        }
    }
    assert_true(started > 100);
}

/* A pause is of a preemptible job, for one that begins in this plan. */
static void pauses_serve_somebody(void **state)
{
    uint32_t paused = 0;

    for (uint32_t n = 0; n < RANDOM_SNAPSHOTS; n++) {
        struct policy_spec spec = numbered_choice(policies[n % 3], n / 3 % CHOICES);

        random_queue(n);
        if (n % 3 == 2)
            random_turns(&spec);
        decide_into(&outcome, &spec);
        for (uint32_t i = 0; i < scene.snapshot.job_count; i++) {
            const struct policy_reason *reason = &outcome.decisions[i].reason;
            int64_t id = reason->arg[reason->code == POLICY_REASON_QUANTUM];
            uint32_t k = 0;

            if (outcome.decisions[i].verb != POLICY_VERB_PAUSE)
                continue;
            paused++;
            assert_true(scene.jobs[i].preemptible);
            assert_int_not_equal(n % 3, 0);
            while (k < scene.snapshot.job_count && (int64_t)scene.jobs[k].id != id)
                k++;
            assert_true(k < scene.snapshot.job_count && begins(k));
            if (reason->code == POLICY_REASON_PREEMPTED)
                assert_true(reason->arg[1] > reason->arg[2]);
            else
                assert_true(reason->arg[0] >= 30 * (int64_t)SECOND);
        }
    }
    assert_true(paused > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strict_waits_until_the_full_request_is_free),
        cmocka_unit_test(strict_starts_in_order_as_many_as_fit),
        cmocka_unit_test(strict_malleable_jobs_use_what_is_idle),
        cmocka_unit_test(a_request_above_the_machine_is_for_all_of_it),
        cmocka_unit_test(the_held_hold_nobody_up),
        cmocka_unit_test(always_attend_starts_with_the_rest),
        cmocka_unit_test(always_attend_completes_malleable_jobs_first),
        cmocka_unit_test(max_prop_starts_in_proportion_to_the_requests),
        cmocka_unit_test(max_prop_starts_no_more_than_minima_allow),
        cmocka_unit_test(max_prop_moldable_jobs_keep_what_they_started_with),
        cmocka_unit_test(max_prop_malleable_jobs_make_room_and_grow_again),
        cmocka_unit_test(max_prop_grow_follows_the_logs_of_the_thesis),
        cmocka_unit_test(jobs_that_began_by_themselves_go_on),
        cmocka_unit_test(pinned_jobs_are_taken_as_given),
        cmocka_unit_test(cores_are_lent_and_come_back),
        cmocka_unit_test(a_job_within_one_numa_node_starts_in_the_emptier_one),
        cmocka_unit_test(memory_is_needed_like_cores_and_a_paused_job_keeps_its_own),
        cmocka_unit_test(memory_that_is_too_little_holds_up_those_who_need_some),
        cmocka_unit_test(a_paused_job_passes_one_that_waits_for_memory),
        cmocka_unit_test(higher_priority_pauses_the_longest_run_then_the_smallest_request),
        cmocka_unit_test(nobody_is_paused_in_vain),
        cmocka_unit_test(the_same_priority_pauses_nobody),
        cmocka_unit_test(higher_priority_starts_first_and_makes_malleable_jobs_shrink),
        cmocka_unit_test(the_paused_resume_when_there_is_room),
        cmocka_unit_test(ageing_raises_who_waits_and_asks_to_be_woken),
        cmocka_unit_test(ageing_ends_starvation),
        cmocka_unit_test(ageing_makes_equals_take_turns_of_twice_its_time),
        cmocka_unit_test(quantum_rotates),
        cmocka_unit_test(two_jobs_take_turns_as_well),
        cmocka_unit_test(nobody_is_paused_before_its_quantum_or_for_nobody),
        cmocka_unit_test(the_paused_take_no_part_in_the_division),
        cmocka_unit_test(resizing_begins_no_new_turn),
        cmocka_unit_test(a_foreign_state_is_refused),
        cmocka_unit_test(every_plan_is_right_and_the_same_again),
        cmocka_unit_test(the_order_of_jobs_does_not_matter),
        cmocka_unit_test(nobody_overtakes),
        cmocka_unit_test(strict_never_starts_with_less),
        cmocka_unit_test(pauses_serve_somebody),
    };

    return cmocka_run_group_tests_name("policy queue", tests, NULL, NULL);
}
