/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policies with a queue (fcfs, priority, round-robin): which job starts with how much in known
 * cases, and properties for every snapshot and every choice of parameters. test_policy_turns.c
 * tests pauses.
 */
#include "test_policy_queue.h"

#define RANDOM_SNAPSHOTS TIMES(20000)

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

static void interactive_jobs_go_before_older_batch_jobs(void **state)
{
    struct policy_job *batch;

    scene_init(&scene, 8, 0);
    batch = asks(4);
    batch->class = 10;
    asks(6);
    decide("fcfs/strict/rigid");
    expect(0, POLICY_VERB_HOLD, 0, "waits for cores: needs 4 cores, 2 cores free");
    expect(1, POLICY_VERB_START, 6, "rigid, stays at 6 cores");
    /* who runs goes on */
    scene_init(&scene, 8, 0);
    batch = runs_with(4, 4);
    batch->class = 10;
    asks(6);
    decide("fcfs/strict/rigid");
    expect(0, POLICY_VERB_KEEP, 4, "rigid, stays at 4 cores");
    expect(1, POLICY_VERB_HOLD, 0, "waits for cores: needs 6 cores, 4 cores free");
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

static void who_made_no_request_is_not_told_of_one(void **state)
{
    scene_init(&scene, 16, 0);
    asks(0)->min.of[POLICY_MCPU] = CORES(2);
    asks(3)->max.of[POLICY_MCPU] = CORES(2);
    asks(1)->min.of[POLICY_MCPU] = CORES(2);
    decide("fcfs/strict/moldable");
    expect(0, POLICY_VERB_START, 2, "its minimum of 2 cores, as it made no request");
    expect(1, POLICY_VERB_START, 2, "its maximum of 2 cores, below its request of 3");
    expect(2, POLICY_VERB_START, 2, "its minimum of 2 cores, above its request of 1");
    scene_init(&scene, 16, 0);
    runs_with(12, 0);
    decide("fcfs/strict/grow");
    expect(0, POLICY_VERB_KEEP, 12, "keeps the 12 cores that it has, more than its minimum of 1");
}

/* Running jobs use cores with which no job can start, and give them up as soon as one can. */
static void strict_malleable_jobs_use_what_is_idle(void **state)
{
    scene_init(&scene, 16, 0);
    runs_with(8, 8);
    runs_with(4, 4);
    decide("fcfs/strict/malleable");
    expect(0, POLICY_VERB_RESIZE, 11, "request of 8 out of 12 in 16 cores among 2 jobs");
    expect(1, POLICY_VERB_RESIZE, 5, "request of 4 out of 12 in 16 cores among 2 jobs");
    asks(5);
    decide("fcfs/strict/malleable");
    expect(0, POLICY_VERB_RESIZE, 11, "request of 8 out of 12 in 16 cores among 2 jobs");
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
    expect(1, POLICY_VERB_START, 16, "alone on 16 cores"); /* not behind that */
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
    expect(0, POLICY_VERB_START, 16, "alone on 16 cores");
    asks(8);
    decide("fcfs/max-prop/moldable");
    expect(0, POLICY_VERB_START, 8, "equal share of 16 cores among 2 jobs");
    expect(1, POLICY_VERB_START, 8, "equal share of 16 cores among 2 jobs");
    asks(16);
    decide("fcfs/max-prop/moldable");
    expect(0, POLICY_VERB_START, 4, "request of 8 out of 32 in 16 cores among 3 jobs");
    expect(1, POLICY_VERB_START, 4, "request of 8 out of 32 in 16 cores among 3 jobs");
    expect(2, POLICY_VERB_START, 8, "request of 16 out of 32 in 16 cores among 3 jobs");
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
    expect(1, POLICY_VERB_START, 2, "request of 8 out of 24 in 6 cores among 2 jobs");
    expect(2, POLICY_VERB_START, 4, "request of 16 out of 24 in 6 cores among 2 jobs");
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
    expect(0, POLICY_VERB_RESIZE, 16, "alone on 16 cores");
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
    expect(2, POLICY_VERB_START, 2, "the 2 cores that others leave of 18");
}

/* ---- what runs already, places, other resources ---------------------------------------------- */

/* The daemon's jobs began by themselves and cannot be paused. */
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
    expect(1, POLICY_VERB_START, 4, "the 4 cores that others leave of 16");
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
    scene.held[0][0].amount.of[POLICY_MEMORY] = GIB(5); /* more than the machine has */
    asks(2);
    asks(2)->min.of[POLICY_MEMORY] = 1;
    decide("fcfs/strict/rigid");
    expect(1, POLICY_VERB_START, 2, "rigid, stays at 2 cores");
    expect(2, POLICY_VERB_HOLD, 0, "waits for memory: needs 1 B, 0 B free");
    assert_true(outcome.domains[0].oversubscribed[POLICY_MEMORY]);
}

static void a_job_waits_for_devices_and_paused_ones_keep_theirs(void **state)
{
    struct policy_job *paused;

    scene_init(&scene, 8, GIB(16));
    scene.domains[0].capacity.of[POLICY_DEVICE + DEVICE_NVIDIA] = 3;
    asks(1)->min.of[POLICY_DEVICE + DEVICE_NVIDIA] = 2;
    paused = asks(4);
    paused->state = POLICY_PAUSED;
    scene_hold(&scene, paused, 0, 4, GIB(1));
    scene.held[1][0].amount.of[POLICY_DEVICE + DEVICE_NVIDIA] = 2;
    runs_with(8, 8);
    decide("fcfs/strict/rigid");
    expect(0, POLICY_VERB_HOLD, 0,
           "waits for nvidia devices: needs 2 nvidia devices, 1 nvidia device free");
    expect(1, POLICY_VERB_HOLD, 0, "waits for cores: needs 4 cores, 0 cores free");
    assert_int_equal(policy_decision_total(&outcome.plan, 1, POLICY_DEVICE + DEVICE_NVIDIA), 2);
    scene.snapshot.job_count = 2; /* the paused one passes: it has what the first waits for */
    decide("fcfs/strict/rigid");
    expect(1, POLICY_VERB_RESUME, 4, "rigid, stays at 4 cores");
    scene.domains[0].capacity.of[POLICY_DEVICE + DEVICE_NVIDIA] = 1;
    decide("fcfs/strict/rigid");
    expect(0, POLICY_VERB_INFEASIBLE, 0,
           "needs 2 nvidia devices, more than the 1 nvidia device there are");
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
    for (uint32_t i = 0; i < scene.snapshot.job_count && one_in(2); i++)
        scene.jobs[i].class = 10 * one_in(2);
}

/* Round-robin's turns: some have lasted longer than the quantum. */
static void random_turns(const struct policy_spec *spec)
{
    scene.snapshot.state_size = 0;
    decide_into(&outcome, spec);
    keep_state();
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

static bool is_after(const struct policy_job *b, const struct policy_job *a)
{
    if (b->class != a->class)
        return b->class > a->class;
    return b->arrival_ns != a->arrival_ns ? b->arrival_ns > a->arrival_ns : b->id > a->id;
}

/* Under fcfs: whoever begins is of a smaller class than all who wait for room, or as old in the
 * same class, or passes one short of memory or devices. */
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
                if (begins(k) && is_after(&scene.jobs[k], &scene.jobs[i]))
                    assert_true(policy_stays((int)reason->arg[0]) &&
                                scene.jobs[k].state == POLICY_PAUSED);
            }
        }
    }
    assert_true(held > 100);
}

/* Places are a row without gaps, and nobody else has one; under fcfs they follow class and age. */
static void places_number_those_who_wait(void **state)
{
    uint32_t waiting = 0;

    for (uint32_t n = 0; n < RANDOM_SNAPSHOTS; n++) {
        struct policy_spec spec = numbered_choice(policies[n % 3], n / 3 % CHOICES);
        const struct policy_job *at[BUILD_JOBS + 1] = {0};
        uint32_t last = 0;

        random_queue(n);
        decide_into(&outcome, &spec);
        for (uint32_t i = 0; i < scene.snapshot.job_count; i++) {
            const struct policy_decision *d = &outcome.decisions[i];
            bool waits = scene.jobs[i].state != POLICY_HELD &&
                         (d->verb == POLICY_VERB_HOLD || d->verb == POLICY_VERB_PAUSE);

            assert_int_equal(d->place != 0, waits);
            if (!waits)
                continue;
            assert_true(d->place <= scene.snapshot.job_count && !at[d->place]);
            at[d->place] = &scene.jobs[i];
            last = d->place > last ? d->place : last;
        }
        waiting += last;
        for (uint32_t i = 1; i <= last; i++) {
            assert_non_null(at[i]);
            if (n % 3 == 0 && i > 1)
                assert_true(is_after(at[i], at[i - 1]));
        }
    }
    assert_true(waiting > RANDOM_SNAPSHOTS / 20);
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
    assert_true(paused > TIMES(200));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strict_waits_until_the_full_request_is_free),
        cmocka_unit_test(interactive_jobs_go_before_older_batch_jobs),
        cmocka_unit_test(strict_starts_in_order_as_many_as_fit),
        cmocka_unit_test(who_made_no_request_is_not_told_of_one),
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
        cmocka_unit_test(a_job_waits_for_devices_and_paused_ones_keep_theirs),
        cmocka_unit_test(a_paused_job_passes_one_that_waits_for_memory),
        cmocka_unit_test(every_plan_is_right_and_the_same_again),
        cmocka_unit_test(the_order_of_jobs_does_not_matter),
        cmocka_unit_test(nobody_overtakes),
        cmocka_unit_test(places_number_those_who_wait),
        cmocka_unit_test(strict_never_starts_with_less),
        cmocka_unit_test(pauses_serve_somebody),
    };

    return cmocka_run_group_tests_name("policy queue", tests, NULL, NULL);
}
