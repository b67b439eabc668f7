/* SPDX-License-Identifier: Apache-2.0 */
/* Which job is paused for which under priority and round-robin, and the turns over time. */
#include "test_policy_queue.h"

#include <errno.h>

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
    keep_state();
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
    expect(0, POLICY_VERB_START, 8, "alone on 8 cores");
    go_on(20 * SECOND);
    asks(6);
    decide("round-robin/strict/malleable/quantum=20s");
    expect(0, POLICY_VERB_PAUSE, 0, "ran for 20 s, now it is the turn of job 2");
    expect(1, POLICY_VERB_START, 8, "alone on 8 cores");
}

/* A malleable job is resized often; its turn goes on. */
static void resizing_begins_no_new_turn(void **state)
{
    scene_init(&scene, 4, 0);
    asks(4)->preemptible = true;
    scene.jobs[0].min.of[POLICY_MCPU] = CORES(3);
    decide("round-robin/max-prop/malleable/quantum=20s");
    expect(0, POLICY_VERB_START, 4, "alone on 4 cores");
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

/* ---- nobody starves, whatever the jobs are --------------------------------------------------- */

#define STREAMS   TIMES(400)
#define PRIORITY  4             /* so many different ones */
#define RUN_TIME  (40 * SECOND) /* after which a job ends and another one comes */
#define UNIT      (10 * SECOND) /* of ageing, and the quantum */
#define UNIT_TEXT "10s"

static void come(struct policy_job *job)
{
    int64_t cores = scene.domains[0].capacity.of[POLICY_MCPU] / POLICY_CORE_MCPU;
    uint32_t request = 1 + random_below((uint32_t)cores);

    job->id += BUILD_JOBS;
    job->state = POLICY_QUEUED;
    job->malleability = random_below(POLICY_MALLEABILITY_MAX);
    job->request.of[POLICY_MCPU] = CORES(request);
    job->min.of[POLICY_MCPU] = CORES(1 + random_below(request));
    job->priority = (int32_t)random_below(PRIORITY);
    job->run_ns = job->wait_ns = job->change_ns = 0;
    job->current_count = 0;
    job->arrival_ns = scene.snapshot.now_ns;
}

/* The longest that any job waited in one piece, in a stream of random jobs that never ends. */
static uint64_t longest_wait(const struct policy_spec *spec, uint32_t stream, bool preemptible)
{
    uint64_t waits[BUILD_JOBS] = {0}, longest = 0, end;

    random_state = stream;
    scene_init(&scene, 1 + random_below(16), 0);
    for (uint32_t i = 2 + random_below(10); i > 0; i--) {
        struct policy_job *job = scene_job(&scene);

        job->preemptible = preemptible;
        come(job);
    }
    end = scene.snapshot.now_ns + 3 * BUILD_JOBS * RUN_TIME;
    while (scene.snapshot.now_ns < end && longest < end / 2) {
        uint64_t before = scene.snapshot.now_ns;

        decide_into(&outcome, spec);
        go_on(1 + random_below(20) * SECOND);
        for (uint32_t i = 0; i < scene.snapshot.job_count; i++) {
            struct policy_job *job = &scene.jobs[i];
            bool runs = job->state == POLICY_RUNNING;

            waits[i] = runs ? 0 : waits[i] + scene.snapshot.now_ns - before;
            longest = waits[i] > longest ? waits[i] : longest;
            if (job->run_ns >= RUN_TIME)
                come(job);
        }
    }
    return longest;
}

/* Fails if some job waits longer than @each for each job there is. Returns how many streams do. */
static uint32_t streams_that_starve(const char *text, bool preemptible, uint64_t each)
{
    uint32_t starving = 0;

    for (uint32_t n = 0; n < STREAMS; n++) {
        struct policy_spec spec = choice(text);

        spec.params[policy_param_find(spec.policy, "reassignment")] = n % 3;
        spec.params[policy_param_find(spec.policy, "variant")] = n / 3 % 4;
        spec.params[policy_param_find(spec.policy, "resize")] = n / 12 % 2;
        starving += longest_wait(&spec, n, preemptible) > scene.snapshot.job_count * each;
    }
    return starving;
}

/* A step of the stream is up to 19 s longer than what the policy asks for. */
static void nobody_starves_where_that_is_promised(void **state)
{
    const uint64_t step = 20 * SECOND;
    const uint64_t risen = (PRIORITY + 2) * UNIT; /* until it is above any that began meanwhile */

    assert_int_equal(streams_that_starve("fcfs", false, RUN_TIME + step), 0);
    assert_int_equal(streams_that_starve("round-robin/quantum=" UNIT_TEXT, true, UNIT + step), 0);
    assert_int_equal(streams_that_starve("priority/ageing=" UNIT_TEXT, true, risen + step), 0);
    assert_true(streams_that_starve("priority", true, risen + step) > STREAMS / 20);
}

/* ---- the bounded slowdown of `response` ------------------------------------------------------ */

#define LONGEST       (200 * SECOND)
#define SLOWDOWN      5
#define SIZED_STREAMS TIMES(16)
#define MOST_SIZED    16
#define ASSUMED       (60 * SECOND) /* by `unknown`, the policy's default */

/* The jobs that come: whether jobs tell what is left of them, and how many users they are of. */
struct sized {
    bool unknown, classes;
    uint32_t users;
};

static struct policy_user sized_users[MOST_SIZED];

/* A job that takes 1 s to LONGEST of one core; short ones are many. */
static void come_sized(uint32_t i, uint64_t sizes[], const struct sized *kind)
{
    struct policy_job *job = &scene.jobs[i];
    uint32_t cores = (uint32_t)(scene.domains[0].capacity.of[POLICY_MCPU] / POLICY_CORE_MCPU);

    come(job);
    if (kind->users > 1) /* what is larger than its user's share waits for the others to rest */
        job->request.of[POLICY_MCPU] = CORES(1 + random_below(cores / kind->users));
    job->class = kind->classes ? random_below(3) : 0;
    job->min.of[POLICY_MCPU] = CORES(1);
    sizes[i] = random_below(4) ? (1 + random_below(10)) * SECOND
                               : (1 + random_below(LONGEST / SECOND)) * SECOND;
    job->remaining_ns = kind->unknown ? POLICY_UNKNOWN : sizes[i];
}

/*
 * The time that a job may wait before it is late: SLOWDOWN times its own time. Of a job of unknown
 * size that is what it has run, and as long again, or the work that is assumed for a new one.
 */
static uint64_t patience(uint64_t size, const struct sized *kind)
{
    uint64_t own = size;

    if (kind->unknown)
        own += size > ASSUMED ? size : ASSUMED;
    return SLOWDOWN * own;
}

/*
 * A stream in which each job that ends is followed by another one at once, of the same user.
 * Returns the longest wait of any job beyond its patience.
 */
static uint64_t longest_late(const struct policy_spec *spec, uint32_t stream,
                             const struct sized *kind)
{
    uint64_t sizes[BUILD_JOBS], longest = 0, end;

    random_state = stream;
    scene_init(&scene, kind->users + random_below(4), 0);
    scene.snapshot.users = sized_users;
    scene.snapshot.user_count = kind->users;
    for (uint32_t u = 0; u < kind->users; u++)
        sized_users[u] =
            (struct policy_user){.id = u, .weight = 100, .most_mcpu = POLICY_UNLIMITED};
    for (uint32_t i = 0, n = 6 + random_below(MOST_SIZED - 6); i < n; i++) {
        scene_job(&scene)->preemptible = true;
        scene.jobs[i].user = i % 3 ? 0 : i / 3 % kind->users; /* the first one has most */
        come_sized(i, sizes, kind);
    }
    end = scene.snapshot.now_ns + 6 * MOST_SIZED * LONGEST;
    while (scene.snapshot.now_ns < end) {
        decide_into(&outcome, spec);
        go_on(1 + random_below(5) * SECOND);
        for (uint32_t i = 0; i < scene.snapshot.job_count; i++) {
            struct policy_job *job = &scene.jobs[i];

            uint64_t may = patience(sizes[i], kind);

            if (job->wait_ns > may && job->wait_ns - may > longest)
                longest = job->wait_ns - may;
            if (job->run_ns >= sizes[i])
                come_sized(i, sizes, kind);
            else if (!kind->unknown)
                job->remaining_ns = sizes[i] - job->run_ns;
        }
    }
    return longest;
}

/* Whoever is late waits for older late ones at most: each of them takes LONGEST, and a step. */
static void keeps_its_bound(const struct sized *kind)
{
    struct policy_spec bounded = choice("response/slowdown=5000"),
                       unbounded = choice("response/slowdown=1000000000");
    uint32_t starving = 0;

    for (uint32_t n = 0; n < SIZED_STREAMS; n++) {
        assert_true(longest_late(&bounded, n, kind) <=
                    scene.snapshot.job_count * (LONGEST + 6 * SECOND));
        starving +=
            longest_late(&unbounded, n, kind) > scene.snapshot.job_count * (LONGEST + 6 * SECOND);
    }
    assert_true(starving > (kind->unknown ? 0 : SIZED_STREAMS / 4));
}

static void response_keeps_its_bound_of_slowdown(void **state)
{
    keeps_its_bound(&(struct sized){.users = 1});
}

static void response_keeps_it_for_jobs_of_unknown_size(void **state)
{
    keeps_its_bound(&(struct sized){.unknown = true, .users = 1});
}

static void response_keeps_it_for_batch_beside_interactive_jobs(void **state)
{
    keeps_its_bound(&(struct sized){.classes = true, .users = 1});
}

static void response_keeps_it_for_each_of_several_users(void **state)
{
    keeps_its_bound(&(struct sized){.users = 3});
    keeps_its_bound(&(struct sized){.unknown = true, .users = 3});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
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
        cmocka_unit_test(nobody_starves_where_that_is_promised),
        cmocka_unit_test(response_keeps_its_bound_of_slowdown),
        cmocka_unit_test(response_keeps_it_for_jobs_of_unknown_size),
        cmocka_unit_test(response_keeps_it_for_batch_beside_interactive_jobs),
        cmocka_unit_test(response_keeps_it_for_each_of_several_users),
    };

    return cmocka_run_group_tests_name("policy turns", tests, NULL, NULL);
}
