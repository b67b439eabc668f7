/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator's engine: scenarios worked out by hand, and properties of every run. */
#include "sim_build.h"

#include <errno.h>

#define ERROR_WORD "usage"

static struct run run, other;

/* ---- by hand --------------------------------------------------------------------------------- */

static void a_job_alone_takes_its_work_over_its_speed(void **state)
{
    const struct sim_record *record = &run.records[1];

    run_init(&run, 4);
    run_job(&run, 2 * SECOND, 10 * SECOND)->curve = &half_serial;
    run_all(&run);
    assert_at(finish_of(&run, 1), 2 * SECOND + 6250 * MS); /* 10 / 1.6 */
    assert_int_equal(record->start_ns, 2 * SECOND);
    assert_at(record->run_ns, 6250 * MS);
    assert_int_equal(record->wait_ns, 0);
    assert_int_equal(record->alone_ns, 10 * SECOND); /* its request is one core */
    assert_at(record->core_ns, 25 * SECOND);
    assert_at(record->busy_ns, 10 * SECOND);
    assert_int_equal(record->useful_ns, 10 * SECOND);
    assert_int_equal(run.totals.begin_ns, 2 * SECOND);
    assert_int_equal(run.totals.end_ns, finish_of(&run, 1));
    assert_int_equal(run.segment_count, 1);
    assert_int_equal(run.segments[0].mcpu, 4000);
}

static void two_jobs_share_and_the_last_takes_all(void **state)
{
    run_init(&run, 4);
    run_job(&run, 0, 4 * SECOND);
    run_job(&run, 0, 8 * SECOND);
    run_all(&run);
    assert_at(finish_of(&run, 1), 2 * SECOND);
    assert_at(finish_of(&run, 2), 3 * SECOND); /* 4 s left at 2 s, on four cores */
    assert_int_equal(run.records[2].resizes, 1);
    assert_int_equal(run.totals.decisions, 2); /* both arrivals at once; no job is left at 3 s */
    assert_int_equal(run.totals.most_alive, 2);
}

/* The policy code that divides among users in tided, too: src/policy/division/users.c. */
static void users_share_before_their_jobs_do(void **state)
{
    run_init(&run, 8);
    for (uint32_t i = 0; i < 4; i++)
        run_job(&run, 0, 8 * SECOND)->user = i == 0 ? 7 : 4000000000;
    run_all(&run);
    assert_at(finish_of(&run, 1), 2 * SECOND); /* four cores, and the three others have four */
    run_init(&run, 8);
    for (uint32_t i = 0; i < 4; i++)
        run_job(&run, 0, 8 * SECOND)->user = 7;
    run_all(&run);
    for (uint32_t id = 1; id <= 4; id++)
        assert_at(finish_of(&run, id), 4 * SECOND); /* two cores each */
}

static void contention_slows_both(void **state)
{
    run_init(&run, 4);
    run.machine.contention_permille = 400;
    for (int i = 0; i < 2; i++)
        run_job(&run, 0, 9 * SECOND)->max = 1;
    run_all(&run);
    /* the other keeps a quarter of the cores busy: 1 - 0.4 / 4 */
    assert_at(finish_of(&run, 1), 10 * SECOND);
    assert_int_equal(finish_of(&run, 1), finish_of(&run, 2));
}

static void a_resize_costs_time_without_progress(void **state)
{
    run_init(&run, 4);
    run_job(&run, 0, 4 * SECOND);
    run_job(&run, 0, 8 * SECOND)->cost_ns[POLICY_ACTION_RESIZE] = SECOND;
    run_all(&run);
    assert_at(finish_of(&run, 2), 4 * SECOND);
    assert_int_equal(run.records[2].core_ns, 12 * SECOND);
    assert_int_equal(run.records[2].busy_ns, 12 * SECOND); /* busy all along … */
    assert_int_equal(run.records[2].useful_ns, 8 * SECOND);
}

static void a_start_costs_and_overlaps_with_a_resize(void **state)
{
    run_init(&run, 4);
    run_job(&run, 0, 4 * SECOND);
    run_job(&run, 0, 8 * SECOND)->cost_ns[POLICY_ACTION_START] = 3 * SECOND;
    run.jobs[1].cost_ns[POLICY_ACTION_RESIZE] = SECOND / 2;
    run_all(&run);
    assert_at(finish_of(&run, 1), 2 * SECOND);
    assert_at(finish_of(&run, 2), 5 * SECOND); /* resized at 2 s, begins at 3 s */
}

static void a_start_is_work_for_one_core_and_others_have_the_rest(void **state)
{
    run_init(&run, 4);
    run_job(&run, 0, 6 * SECOND);
    run_job(&run, 0, 4 * SECOND)->start_ns = SECOND;
    run_all(&run);
    /* three cores and one for a second, then two each; the second is alone from 2.5 s on */
    assert_at(finish_of(&run, 1), 2500 * MS);
    assert_at(finish_of(&run, 2), 2750 * MS);
    assert_at(run.records[2].alone_ns, 5 * SECOND); /* its request is one core */
    assert_int_equal(run.records[2].useful_ns, 4 * SECOND);
    assert_int_equal(run.records[2].resizes, 2);
}

static void a_start_takes_longer_where_cores_are_short(void **state)
{
    run_init(&run, 1);
    run_job(&run, 0, 4 * SECOND);
    run_job(&run, 0, 4 * SECOND)->start_ns = 2 * SECOND;
    run.jobs[1].stock_threads = 2;
    run_all(&run);
    assert_at(finish_of(&run, 1), 8 * SECOND);
    assert_at(finish_of(&run, 2), 10 * SECOND);
    run.options.policy = NULL; /* two threads weigh more, but only when there are two */
    run_all(&run);
    assert_at(finish_of(&run, 1), 10 * SECOND);
    assert_at(finish_of(&run, 2), 10 * SECOND);
}

static void a_serial_phase_uses_one_core(void **state)
{
    struct sim_job *job;

    run_init(&run, 4);
    job = run_job(&run, SECOND, 12 * SECOND);
    job->serial_permille = 400;
    job->serial_every_ns = 5 * SECOND;
    job->request = 4;
    run_all(&run);
    /* twice 3 s of work on four cores and 2 s on one, and then 2 s on four */
    assert_at(finish_of(&run, 1), SECOND + 2 * 2750 * MS + 500 * MS);
    assert_at(run.records[1].alone_ns, 6 * SECOND);
    assert_in_range(run.records[1].busy_ns, 12 * SECOND - 8, 12 * SECOND + 8);
    assert_at(run.records[1].core_ns, 24 * SECOND);
    assert_int_equal(run.records[1].useful_ns, 12 * SECOND);
    assert_int_equal(run.totals.decisions, 1); /* phases are none of the policy's events */
}

/* The other job's cores are its own: what it leaves idle is nobody's, but without control. */
static void gaps_of_serial_phases_are_nobodys(void **state)
{
    run_init(&run, 4);
    run_job(&run, 0, 8 * SECOND)->stock_threads = 4;
    run_job(&run, 0, 8 * SECOND)->stock_threads = 4;
    run.jobs[0].serial_permille = 999; /* 8 ms of 8 s are parallel */
    run.jobs[0].serial_every_ns = 8 * SECOND;
    run_all(&run);
    assert_at(finish_of(&run, 2), 4 * SECOND); /* two cores */
    run.options.policy = NULL;
    run_all(&run);
    assert_in_range(finish_of(&run, 2), 2500 * MS, 2515 * MS); /* four threads of five */
    assert_in_range(finish_of(&run, 1), 8480 * MS, 8500 * MS); /* its thread shares, too */
}

/* As above, in phases of ten seconds: 20 s, in each half of which the first job leaves one or two
 * cores. */
static void idle_cores_are_lent_and_come_back(void **state)
{
    uint64_t without;

    run_init(&run, 4);
    run_job(&run, 0, 90 * SECOND)->told_curve = NULL;
    run_job(&run, 0, 200 * SECOND)->told_curve = NULL;
    run.jobs[0].serial_permille = 333;
    run.jobs[0].serial_every_ns = 30 * SECOND;
    run_all(&run);
    without = finish_of(&run, 1);
    run.options.extras = true;
    run_all(&run);
    assert_int_equal(finish_of(&run, 1), without); /* its own cores are there when it needs them */
    /* a core for ten seconds, three times, but for two looks each; alone it has all cores */
    assert_in_range(finish_of(&run, 2), (290 * SECOND - 2000 * MS) / 4, 290 * SECOND / 4 + SECOND);
    assert_int_equal(run.records[2].resizes, 2 * 3 + 1);
    run.machine.placement = SIM_EXCLUSIVE;
    run_all(&run);
    assert_int_equal(run.records[2].resizes, 1);
}

/* Runs the first job from 0 to 1 s and from 3 s on. */
static void pause_then_resume(const struct policy_snapshot *snapshot, struct policy_plan *plan)
{
    uint64_t now_ns = snapshot->now_ns - SIM_CLOCK_START_NS;
    const struct policy_job *job = &snapshot->jobs[0];

    if (job->state == POLICY_QUEUED) {
        decide(snapshot, plan, 0, POLICY_VERB_START, 2000);
        plan->next_wakeup_ns = snapshot->now_ns + SECOND;
    } else if (job->state == POLICY_RUNNING && now_ns == SECOND) {
        decide(snapshot, plan, 0, POLICY_VERB_PAUSE, 0);
        plan->next_wakeup_ns = snapshot->now_ns + 2 * SECOND;
    } else {
        assert_int_equal(job->state, POLICY_PAUSED);
        assert_int_equal(job->current[0].amount.of[POLICY_MEMORY], 1 << 20);
        assert_int_equal(job->run_ns, SECOND);
        assert_int_equal(job->wait_ns, 2 * SECOND);
        assert_int_equal(job->remaining_ns, 4 * SECOND);
        assert_int_equal(job->change_ns, SIM_CLOCK_START_NS + SECOND);
        decide(snapshot, plan, 0, POLICY_VERB_RESUME, 2000);
    }
}

static void a_paused_job_keeps_its_memory_and_makes_no_progress(void **state)
{
    run_init(&run, 4);
    run.machine.memory_bytes = 1 << 20;
    run.options.policy = &scripted;
    script = pause_then_resume;
    run_job(&run, 0, 6 * SECOND)->memory_bytes = 1 << 20;
    run.jobs[0].cost_ns[POLICY_ACTION_PAUSE] = SECOND / 2;
    run_all(&run);
    assert_at(finish_of(&run, 1), 5500 * MS); /* 2 s of work done, 4 s on two cores */
    assert_int_equal(run.records[1].run_ns, 3500 * MS);
    assert_int_equal(run.records[1].wait_ns, 2 * SECOND);
    assert_int_equal(run.records[1].pauses, 1);
    assert_int_equal(run.segment_count, 3);
    assert_int_equal(run.segments[1].mcpu, 0);
    assert_int_equal(run.segments[1].begin_ns, SECOND);
    assert_int_equal(run.segments[1].end_ns, 3 * SECOND);
}

static void pause_at_1_resume_at_3(const struct policy_snapshot *snapshot, struct policy_plan *plan)
{
    uint64_t now_ns = snapshot->now_ns - SIM_CLOCK_START_NS;

    if (now_ns == 3 * SECOND)
        assert_int_equal(snapshot->jobs[0].change_ns, snapshot->now_ns - 2 * SECOND);
    decide(snapshot, plan, 0,
           now_ns == 0        ? POLICY_VERB_START
           : now_ns == SECOND ? POLICY_VERB_PAUSE
                              : POLICY_VERB_RESUME,
           now_ns == SECOND ? 0 : 2000);
    plan->next_wakeup_ns = now_ns == 3 * SECOND
                               ? POLICY_NEVER
                               : snapshot->now_ns + (now_ns == 0 ? SECOND : 2 * SECOND);
}

static void a_pause_does_not_spare_the_rest_of_a_start(void **state)
{
    run_init(&run, 4);
    run.options.policy = &scripted;
    script = pause_at_1_resume_at_3;
    run_job(&run, 0, 6 * SECOND)->cost_ns[POLICY_ACTION_START] = 5 * SECOND;
    run.jobs[0].cost_ns[POLICY_ACTION_PAUSE] = SECOND;
    run_all(&run);
    assert_at(finish_of(&run, 1), 10 * SECOND); /* begins at 3 + 4 s */
}

/* Starts all jobs at once, the first with four cores, the others with one. */
static void four_and_one(const struct policy_snapshot *snapshot, struct policy_plan *plan)
{
    for (uint32_t j = 0; j < snapshot->job_count; j++)
        if (snapshot->jobs[j].state == POLICY_QUEUED)
            decide(snapshot, plan, j, POLICY_VERB_START, snapshot->jobs[j].id == 1 ? 4000 : 1000);
        else
            decide_keep(snapshot, plan, j);
}

static void gaps_are_filled_where_cores_are_shared_and_only_there(void **state)
{
    run_init(&run, 4);
    run.options.policy = &scripted;
    run.options.check = false; /* five cores of four */
    script = four_and_one;
    run_job(&run, 0, 16 * SECOND)->curve = &half_serial;
    run_job(&run, 0, 8 * SECOND);
    run_all(&run);
    assert_at(finish_of(&run, 1), 10 * SECOND);
    assert_at(finish_of(&run, 2), 8 * SECOND);
    run.machine.placement = SIM_EXCLUSIVE;
    run_all(&run);
    assert_at(finish_of(&run, 1), 10 * SECOND);
    assert_at(finish_of(&run, 2), 10 * SECOND); /* 0.8 of a core */
}

static void half_a_core(const struct policy_snapshot *snapshot, struct policy_plan *plan)
{
    decide(snapshot, plan, 0, POLICY_VERB_START, 500);
}

static void a_quota_below_a_core_throttles(void **state)
{
    run_init(&run, 4);
    run.machine.placement = SIM_QUOTA;
    run.options.policy = &scripted;
    run.options.check = false; /* less than one core is no minimum that policies grant */
    script = half_a_core;
    run_job(&run, 0, SECOND);
    run_all(&run);
    assert_at(finish_of(&run, 1), 2 * SECOND);
    assert_int_equal(run.records[1].busy_ns, SECOND);
}

static void without_control_stock_threads_overlap(void **state)
{
    run_init(&run, 2);
    run.options.policy = NULL;
    run.machine.oversubscription_permille = 500;
    for (int i = 0; i < 2; i++)
        run_job(&run, 0, 2 * SECOND)->stock_threads = 2;
    run_all(&run);
    /* each has one core of two, and four threads on two cores cost a third */
    assert_at(finish_of(&run, 1), 3 * SECOND);
    assert_int_equal(run.records[2].start_ns, 0);
    assert_int_equal(run.totals.decisions, 0);
    run.machine.placement = SIM_EXCLUSIVE; /* no daemon fences cores there */
    run_all(&run);
    assert_at(finish_of(&run, 1), 3 * SECOND);
}

static void energy_is_idle_and_busy_power_over_time(void **state)
{
    run_init(&run, 4);
    run.machine.idle_uw = 10000000;
    run.machine.core_uw = 5000000;
    run_job(&run, SECOND, 20 * SECOND)->max = 2;
    run_job(&run, 21 * SECOND, 10 * SECOND)->max = 1; /* after ten idle seconds */
    run_all(&run);
    assert_int_equal(run.totals.energy_uj, 10 * 20000000 + 10 * 10000000 + 10 * 15000000);
}

static void finishes_are_rounded_up_to_the_resolution(void **state)
{
    run_init(&run, 1);
    run.options.resolution_ns = 10 * MS;
    run_job(&run, 0, 1001 * MS);
    run_all(&run);
    assert_at(finish_of(&run, 1), 1010 * MS);
    assert_int_equal(run.records[1].useful_ns, 1001 * MS);
}

/* ---- what the policy sees -------------------------------------------------------------------- */

static void look(const struct policy_snapshot *snapshot, struct policy_plan *plan)
{
    const struct policy_job *job = &snapshot->jobs[0];

    assert_int_equal(snapshot->seed, 77);
    assert_int_equal(snapshot->domain_count, 3);
    assert_int_equal(snapshot->domains[0].capacity.of[POLICY_MCPU], 8000);
    assert_int_equal(snapshot->domains[2].capacity.of[POLICY_MCPU], 4000);
    assert_int_equal(snapshot->domains[2].capacity.of[POLICY_MEMORY], 50);
    assert_int_equal(job->arrival_ns, SIM_CLOCK_START_NS);
    assert_int_equal(job->deadline_ns, SIM_CLOCK_START_NS + 9 * SECOND);
    assert_int_equal(job->max.of[POLICY_MCPU], 8000);
    assert_int_equal(job->min.of[POLICY_MCPU], 1000);
    assert_int_equal(job->request.of[POLICY_MCPU], 1000);
    assert_int_equal(job->min.of[POLICY_MEMORY], 30);
    assert_int_equal(job->remaining_error_ns, SECOND);
    assert_int_equal(job->curve[POLICY_MCPU].count, 4);
    if (job->state == POLICY_QUEUED) {
        assert_int_equal(job->start_ns, 0); /* never ran, though it is time 0 */
        assert_int_equal(job->remaining_ns, 5 * SECOND);
        assert_null(snapshot->state);
        decide(snapshot, plan, 0, POLICY_VERB_START, 1000);
    } else {
        assert_int_equal(job->start_ns, SIM_CLOCK_START_NS);
        assert_int_equal(*(const uint64_t *)snapshot->state, snapshot->now_ns - 3 * SECOND);
        /* it needs 10 s; its estimate was 5 s */
        assert_int_equal(job->remaining_ns,
                         job->run_ns < 5 * SECOND ? 5 * SECOND - job->run_ns : SECOND / 2 + 1);
        decide_keep(snapshot, plan, 0);
    }
    plan->next_wakeup_ns = snapshot->now_ns + 3 * SECOND;
    *(uint64_t *)plan->state_out = snapshot->now_ns;
    plan->state_size = sizeof(uint64_t);
}

static void a_policy_sees_what_it_is_told_and_its_own_state(void **state)
{
    struct sim_job *job;

    run_init(&run, 8);
    run.machine.numa = 2;
    run.machine.memory_bytes = 100;
    run.options.policy = &scripted;
    run.options.seed = 77;
    script = look;
    job = run_job(&run, 0, 10 * SECOND);
    job->told_ns = 5 * SECOND;
    job->told_error_ns = SECOND;
    job->told_curve = &half_serial;
    job->memory_bytes = 30;
    job->deadline_ns = 9 * SECOND;
    run_all(&run);
    assert_at(finish_of(&run, 1), 10 * SECOND);
    assert_int_equal(run.totals.decisions, 4);
}

/* ---- what holds in every run ----------------------------------------------------------------- */

static uint32_t chance(uint32_t *seed, uint32_t below)
{
    *seed = *seed * 1664525 + 1013904223;
    return (*seed >> 8) % below;
}

/* Many jobs that overlap, of all kinds. */
static void fill(struct run *r, uint32_t count, uint32_t seed)
{
    uint64_t arrival_ns = 0;

    for (uint32_t i = 0; i < count; i++) {
        struct sim_job *job = run_job(r, arrival_ns, 1 + chance(&seed, 1u << 24) * UINT64_C(999));

        job->curve = chance(&seed, 2) ? &linear : &half_serial;
        job->malleability = chance(&seed, POLICY_MALLEABILITY_MAX);
        job->request = 1 + chance(&seed, 4);
        job->weight = 1 + chance(&seed, 3);
        job->stock_threads = 1 + chance(&seed, 8);
        job->waste_permille = chance(&seed, 1000);
        job->memory_bytes = chance(&seed, 100);
        job->priority = (int32_t)chance(&seed, 3);
        job->preemptible = chance(&seed, 2);
        job->deadline_ns =
            chance(&seed, 2) ? POLICY_NEVER : arrival_ns + chance(&seed, 60) * SECOND;
        job->cost_ns[POLICY_ACTION_START] = chance(&seed, 3) * 50 * MS;
        job->cost_ns[POLICY_ACTION_RESIZE] = chance(&seed, 3) * MS;
        arrival_ns += chance(&seed, 4) ? chance(&seed, 1u << 24) * UINT64_C(100) : 0;
    }
}

static void expect_conserved(const struct run *r)
{
    sim_sum useful = 0, busy = 0, held[RUN_JOBS + 1] = {0};
    uint64_t span = r->totals.end_ns - r->totals.begin_ns;

    for (uint32_t i = 0; i < r->segment_count; i++) {
        const struct sim_segment *s = &r->segments[i];

        assert_true(s->begin_ns < s->end_ns);
        held[s->job->id] += (sim_sum)s->mcpu * (s->end_ns - s->begin_ns);
    }
    for (uint32_t id = 1; id <= r->job_count; id++) {
        const struct sim_record *record = &r->records[id];
        const struct sim_job *job = &r->jobs[id - 1];

        assert_int_equal(record->useful_ns, job->work_ns);
        assert_int_equal(record->run_ns + record->wait_ns, record->finish_ns - job->arrival_ns);
        assert_true(record->core_ns == held[id] / 1000);
        /* what a job needs of CPU time is its work; a nanosecond may be lost to rounding */
        assert_true(record->busy_ns + 1 >= record->useful_ns);
        useful += job->work_ns;
        busy += record->busy_ns;
    }
    assert_true(useful == r->totals.useful_ns);
    assert_true(busy == r->totals.busy_ns);
    assert_true(busy <= (sim_sum)span * r->machine.cores);
}

/* One run of each policy, and of none, on machines of all kinds. */
static void work_is_neither_lost_nor_created(void **state)
{
    for (uint32_t round = 0; round < 6 * (policy_count() + 1); round++) {
        run_init(&run, 8);
        run.options.policy = policy_at(round / 6); /* NULL at last */
        run.machine.placement = round % SIM_PLACEMENT_MAX;
        run.machine.memory_bytes = 400;
        run.machine.contention_permille = round % 2 * 300;
        run.machine.oversubscription_permille = round % 4 * 100;
        run.machine.smt = 1 + round % 2;
        run.machine.numa = 1 + round / 3 % 2;
        run.machine.numa_permille = 200;
        run.machine.idle_uw = 10000000;
        run.machine.core_uw = 5000000;
        run.machine.cap_uw = round % 2 * 40000000;
        fill(&run, 250, round);
        run_all(&run);
        expect_conserved(&run);
    }
}

static void two_runs_are_the_same_to_the_byte(void **state)
{
    for (uint32_t round = 0; round < 4; round++) {
        run_init(&run, 8);
        run.machine.contention_permille = 200;
        run.machine.placement = round % SIM_PLACEMENT_MAX;
        fill(&run, RUN_JOBS, round);
        run_all(&run);
        memcpy(&other, &run, sizeof(run));
        run_all(&run);
        assert_memory_equal(run.records, other.records, sizeof(run.records));
        assert_memory_equal(run.segments, other.segments, sizeof(run.segments));
        assert_memory_equal(&run.totals, &other.totals, sizeof(run.totals));
        assert_int_equal(run.decisions_hash, other.decisions_hash);
    }
}

static void jobs_that_arrive_together_may_come_in_any_order(void **state)
{
    for (uint32_t round = 0; round < 10; round++) {
        run_init(&run, 8);
        run.options.policy = NULL;
        fill(&run, 60, round);
        for (uint32_t i = 0; i < 60; i++)
            run.jobs[i].arrival_ns = 0;
        memcpy(&other, &run, sizeof(run));
        for (uint32_t i = 0; i < 60; i++) {
            other.jobs[i] = run.jobs[59 - i];
            other.jobs[i].id = i + 1;
        }
        run_all(&run);
        run_all(&other);
        for (uint32_t id = 1; id <= 60; id++)
            assert_int_equal(finish_of(&run, id), finish_of(&other, 61 - id));
    }
}

static uint64_t wakeup_gap_ns;

static void one_core_each(const struct policy_snapshot *snapshot, struct policy_plan *plan)
{
    for (uint32_t j = 0; j < snapshot->job_count; j++)
        if (snapshot->jobs[j].state == POLICY_QUEUED)
            decide(snapshot, plan, j, POLICY_VERB_START, 1000);
        else
            decide_keep(snapshot, plan, j);
    if (wakeup_gap_ns)
        plan->next_wakeup_ns = snapshot->now_ns + wakeup_gap_ns;
}

static void looking_more_often_changes_nothing(void **state)
{
    run_init(&run, 3);
    run.options.policy = &scripted;
    run.options.check = false;
    run.machine.contention_permille = 123;
    script = one_core_each;
    fill(&run, 100, 5);
    memcpy(&other, &run, sizeof(run));
    wakeup_gap_ns = 0;
    run_all(&run);
    wakeup_gap_ns = 7777777;
    run_all(&other);
    assert_true(other.totals.decisions > 2 * run.totals.decisions);
    for (uint32_t id = 1; id <= 100; id++) {
        assert_int_equal(finish_of(&run, id), finish_of(&other, id));
        assert_int_equal(run.records[id].busy_ns, other.records[id].busy_ns);
    }
}

/* ---- edges ----------------------------------------------------------------------------------- */

static void no_jobs_make_an_empty_run(void **state)
{
    const struct sim_totals zero = {0};

    run_init(&run, 4);
    assert_int_equal(run_try(&run), 0);
    assert_memory_equal(&run.totals, &zero, sizeof(zero));
}

static void a_job_that_can_never_run_is_told_apart(void **state)
{
    run_init(&run, 4);
    run.machine.memory_bytes = 1000;
    run_job(&run, 0, SECOND)->memory_bytes = 1001;
    run_job(&run, 0, SECOND)->max = 1;
    assert_int_equal(run_try(&run), 0);
    assert_int_equal(run.totals.infeasible, 1);
    assert_int_equal(run.totals.finished, 1);
    assert_true(run.records[1].infeasible);
    assert_true(run.records[1].finish_ns == POLICY_NEVER &&
                run.records[1].start_ns == POLICY_NEVER);
    assert_int_equal(finish_of(&run, 2), SECOND);
}

static void hold_all(const struct policy_snapshot *snapshot, struct policy_plan *plan)
{
    for (uint32_t j = 0; j < snapshot->job_count; j++)
        decide(snapshot, plan, j, POLICY_VERB_HOLD, 0);
    if (wakeup_gap_ns)
        plan->next_wakeup_ns = snapshot->now_ns + wakeup_gap_ns;
}

static void a_policy_that_starts_nothing_is_found_out(void **state)
{
    for (int asks = 0; asks < 2; asks++) {
        wakeup_gap_ns = asks * MS;
        run_init(&run, 4);
        run.options.policy = &scripted;
        script = hold_all;
        run_job(&run, 3 * SECOND, SECOND);
        run_job(&run, 4 * SECOND, SECOND);
        assert_int_equal(run_try(&run), -EDEADLK);
        assert_non_null(strstr(run.error.text, "job-1"));
        assert_int_equal(run.record_count, 2);
        assert_true(run.records[2].finish_ns == POLICY_NEVER);
        assert_int_equal(run.totals.jobs, 2);
        assert_int_equal(run.totals.finished, 0);
    }
}

/* Resizes the job every millisecond, which costs it two. */
static void thrash(const struct policy_snapshot *snapshot, struct policy_plan *plan)
{
    const struct policy_job *job = &snapshot->jobs[0];

    if (job->state == POLICY_QUEUED)
        decide(snapshot, plan, 0, POLICY_VERB_START, 1000);
    else
        decide(snapshot, plan, 0, POLICY_VERB_RESIZE,
               3000 - job->current[0].amount.of[POLICY_MCPU]);
    plan->next_wakeup_ns = snapshot->now_ns + MS;
}

static void a_policy_that_lets_nobody_work_is_found_out(void **state)
{
    run_init(&run, 4);
    run.options.policy = &scripted;
    run.sink.segment = NULL;
    script = thrash;
    run_job(&run, 0, SECOND)->cost_ns[POLICY_ACTION_RESIZE] = 2 * MS;
    assert_int_equal(run_try(&run), -EDEADLK);
    assert_non_null(strstr(run.error.text, "progress"));
    assert_int_equal(run.records[1].useful_ns, MS); /* before the first resize */
}

static void too_many_cores(const struct policy_snapshot *snapshot, struct policy_plan *plan)
{
    decide(snapshot, plan, 0, POLICY_VERB_START, 8000);
}

static void wake_in_the_past(const struct policy_snapshot *snapshot, struct policy_plan *plan)
{
    decide(snapshot, plan, 0, POLICY_VERB_START, 1000);
    plan->next_wakeup_ns = snapshot->now_ns;
}

static void resume_what_never_ran(const struct policy_snapshot *snapshot, struct policy_plan *plan)
{
    decide(snapshot, plan, 0, POLICY_VERB_RESUME, 1000);
}

static void a_plan_that_cannot_be_ends_the_run(void **state)
{
    const struct {
        script_fn script;
        bool check;
    } plans[] = {{too_many_cores, true}, {wake_in_the_past, false}, {resume_what_never_ran, false}};

    for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
        run_init(&run, 4);
        run.options.policy = &scripted;
        run.options.check = plans[i].check;
        script = plans[i].script;
        run_job(&run, 0, SECOND);
        assert_int_equal(run_try(&run), -EPROTO);
        assert_non_null(strstr(run.error.text, "policy scripted"));
    }
}

static const struct sim_curve not_from_one = {linear_speeds + 1, NULL, 2};
static const struct sim_curve empty = {linear_speeds, NULL, 0};

static void malformed_jobs_are_refused_by_name(void **state)
{
    for (int fault = 0; fault < 14; fault++) {
        struct sim_job *job;

        run_init(&run, 4);
        run_job(&run, SECOND, SECOND);
        job = run_job(&run, SECOND, SECOND);
        switch (fault) {
        case 0:
            job->work_ns = 0;
            break;
        case 1:
            job->work_ns = UINT64_MAX;
            break;
        case 2:
            job->id = 1;
            break;
        case 3:
            job->arrival_ns = 0;
            break;
        case 4:
            job->curve = NULL;
            break;
        case 5:
            job->curve = &empty;
            break;
        case 6:
            job->told_curve = &not_from_one;
            break;
        case 7:
            job->weight = 0;
            break;
        case 8:
            job->min = 3, job->max = 2;
            break;
        case 9:
            job->malleability = POLICY_MALLEABILITY_MAX;
            break;
        case 10:
            job->stock_threads = 0;
            break;
        case 11:
            job->told_ns = 0;
            break;
        case 12:
            job->malleability = POLICY_RIGID, job->request = 0;
            break;
        case 13:
            job->cost_ns[POLICY_ACTION_PAUSE] = UINT64_MAX;
            break;
        }
        assert_int_equal(run_try(&run), -EINVAL);
        assert_non_null(strstr(run.error.text, fault == 2 ? "job 1" : "job 2"));
        assert_non_null(strstr(run.error.text, "job-2"));
    }
}

static int broken_next(struct sim_source *source, struct sim_job *ret_job, struct error *err)
{
    return error_set(err, -EBADMSG, "line 3: no number");
}

static int full_disk(struct sim_sink *sink, const struct sim_record *record)
{
    return -ENOSPC;
}

static void errors_of_source_and_sink_end_the_run(void **state)
{
    run_init(&run, 4);
    run.source.next = broken_next;
    assert_int_equal(run_try(&run), -EBADMSG);
    assert_string_equal(run.error.text, "line 3: no number");
    run_init(&run, 4);
    run_job(&run, 0, SECOND);
    run_job(&run, 0, SECOND);
    run.sink.record = full_disk;
    assert_int_equal(run_try(&run), -ENOSPC);
}

static void a_run_beyond_the_clock_is_refused(void **state)
{
    run_init(&run, 1);
    run_job(&run, 0, SIM_TIME_MAX);
    run_job(&run, 0, SIM_TIME_MAX);
    assert_int_equal(run_try(&run), -EOVERFLOW);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_alone_takes_its_work_over_its_speed),
        cmocka_unit_test(two_jobs_share_and_the_last_takes_all),
        cmocka_unit_test(users_share_before_their_jobs_do),
        cmocka_unit_test(contention_slows_both),
        cmocka_unit_test(a_resize_costs_time_without_progress),
        cmocka_unit_test(a_start_costs_and_overlaps_with_a_resize),
        cmocka_unit_test(a_start_is_work_for_one_core_and_others_have_the_rest),
        cmocka_unit_test(a_start_takes_longer_where_cores_are_short),
        cmocka_unit_test(a_serial_phase_uses_one_core),
        cmocka_unit_test(gaps_of_serial_phases_are_nobodys),
        cmocka_unit_test(idle_cores_are_lent_and_come_back),
        cmocka_unit_test(a_paused_job_keeps_its_memory_and_makes_no_progress),
        cmocka_unit_test(a_pause_does_not_spare_the_rest_of_a_start),
        cmocka_unit_test(gaps_are_filled_where_cores_are_shared_and_only_there),
        cmocka_unit_test(a_quota_below_a_core_throttles),
        cmocka_unit_test(without_control_stock_threads_overlap),
        cmocka_unit_test(energy_is_idle_and_busy_power_over_time),
        cmocka_unit_test(finishes_are_rounded_up_to_the_resolution),
        cmocka_unit_test(a_policy_sees_what_it_is_told_and_its_own_state),
        cmocka_unit_test(work_is_neither_lost_nor_created),
        cmocka_unit_test(two_runs_are_the_same_to_the_byte),
        cmocka_unit_test(jobs_that_arrive_together_may_come_in_any_order),
        cmocka_unit_test(looking_more_often_changes_nothing),
        cmocka_unit_test(no_jobs_make_an_empty_run),
        cmocka_unit_test(a_job_that_can_never_run_is_told_apart),
        cmocka_unit_test(a_policy_that_starts_nothing_is_found_out),
        cmocka_unit_test(a_policy_that_lets_nobody_work_is_found_out),
        cmocka_unit_test(a_plan_that_cannot_be_ends_the_run),
        cmocka_unit_test(malformed_jobs_are_refused_by_name),
        cmocka_unit_test(errors_of_source_and_sink_end_the_run),
        cmocka_unit_test(a_run_beyond_the_clock_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
