/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From heartbeats to decisions on a virtual clock: programs of a known speed-up report their
 * progress. The daemon learns from it, experiments, and divides the cores by it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "daemon/confine/actuate.h"
#include "daemon/daemon.h"
#include "daemon/job/job.h"
#include "daemon/link/agent_socket.h"
#include "daemon/plan/decision.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define CORES   8
#define JOBS    2
#define BEAT_NS (250 * NS_PER_MS)

static struct connection peer; /* that it is there is all that matters */

static struct daemon the_daemon;
static struct job_table job_table;
static struct job job[JOBS];
static struct process process[JOBS];
static double done[JOBS], parallel[JOBS], units_per_s[JOBS];
static uint64_t now;

static void set_policy(const char *text)
{
    struct policy_spec spec;

    assert_int_equal(policy_spec_parse(text, &spec, NULL), 0);
    decision_set_policy(the_daemon.decision, &spec);
}

/* @jobs programs on CORES cores; with one thread, job i does units_per_s[i]. */
static void begin(unsigned jobs, const char *policy)
{
    struct error err;

    now = 1000 * NS_PER_S;
    decision_free(the_daemon.decision);
    memset(&the_daemon, 0, sizeof(the_daemon));
    job_table = (struct job_table){0};
    the_daemon.jobs = &job_table;
    memset(job, 0, sizeof(job));
    memset(process, 0, sizeof(process));
    for (unsigned c = 0; c < CORES; c++)
        cpuset_add(&the_daemon.cpus, c);
    the_daemon.cpus_made_up = true;
    assert_int_equal(decision_new(&the_daemon.decision, &err), 0);
    set_policy(policy);
    for (unsigned i = 0; i < jobs; i++) {
        job[i] = (struct job){.daemon = &the_daemon,
                              .confine = &process_confine,
                              .next = i + 1 < jobs ? &job[i + 1] : NULL,
                              .processes = &process[i],
                              .n_processes = 1,
                              .number = i + 1,
                              .asked.attributes = {.weight = 100},
                              .created_ns = now,
                              .met_ns = now,
                              .placed.quota_mcpu = CGROUP_NO_QUOTA};
        process[i] =
            (struct process){.job = &job[i], .connection = &peer, .n_backends = 1, .beat = true};
        process[i].backend[0] =
            (struct backend){.known = true, .malleable = true, .max.intra = CORES};
        process[i].source = PROTO_SOURCE_DAEMON;
        done[i] = 0;
        parallel[i] = 0.9;
        units_per_s[i] = 1000;
    }
    the_daemon.jobs->first = &job[0];
    the_daemon.jobs->n = jobs;
}

static double speed(double fraction, uint32_t threads)
{
    return 1 / (1 - fraction + fraction / threads);
}

/* The agents carry out each order at once and report the result. */
static void beat(void)
{
    struct error err;

    now += BEAT_NS;
    assert_int_equal(decision_make(&the_daemon, now, false, &err), 0);
    for (unsigned i = 0; i < the_daemon.jobs->n; i++) {
        struct process *p = &process[i];

        p->sent = p->want;
        p->active = p->want.intra;
        done[i] += units_per_s[i] * speed(parallel[i], p->sent.intra) * BEAT_NS / NS_PER_S;
        if (p->progress_total)
            p->progress_done = (uint64_t)done[i];
        else
            p->tasks = (uint64_t)done[i];
        speed_heartbeat(&job[i], now);
    }
}

static void run(unsigned seconds)
{
    for (unsigned i = 0; i < seconds * (NS_PER_S / BEAT_NS); i++)
        beat();
}

static void pin(unsigned i, uint32_t threads)
{
    job[i].asked.pinned = (struct threads){threads, 0};
    job[i].asked.pinned_by = PROTO_SOURCE_DAEMON;
}

static double found(unsigned i)
{
    assert_true(job[i].observed.speed.known);
    return (double)job[i].observed.speed.model.parallel / FIT_ONE;
}

/* ---- learning -------------------------------------------------------------------------------- */

static void threads_set_by_hand_teach_the_curve(void **state)
{
    begin(1, "equal");
    for (uint32_t k = 1; k <= CORES; k *= 2) {
        pin(0, k);
        run(8);
    }
    assert_true(fabs(found(0) - 0.9) < 0.02);
    assert_true(fabs((double)job[0].observed.speed.model.rate_one / SPEED_RATE / units_per_s[0] -
                     1) < 0.02);
    assert_int_equal(job[0].observed.speed.model.counts, 4);
    assert_in_range(job[0].observed.speed.model.confidence_permille, 700, 1000);
}

/* Cores of its own, some of them of half the speed: the curve is that of fast ones. */
static void slow_cores_do_not_bend_the_curve(void **state)
{
    static const struct {
        uint32_t threads;
        unsigned first, last; /* of its CPUs; those from 4 on are slow */
        double mean;
    } visits[] = {{1, 4, 4, 0.5}, {2, 0, 1, 1}, {4, 2, 5, 0.75}, {8, 0, 7, 0.75}};

    begin(1, "equal");
    job[0].asked.attributes.placement = PLACEMENT_EXCLUSIVE;
    the_daemon.topology.online = the_daemon.cpus;
    for (unsigned c = 0; c < CORES; c++)
        the_daemon.topology.speed[c] = c < 4 ? TOPOLOGY_FASTEST : TOPOLOGY_FASTEST / 2;
    for (unsigned i = 0; i < 4; i++) {
        cpuset_zero(&job[0].placed.cores);
        for (unsigned c = visits[i].first; c <= visits[i].last; c++)
            cpuset_add(&job[0].placed.cores, c);
        units_per_s[0] = 1000 * visits[i].mean;
        pin(0, visits[i].threads);
        run(8);
    }
    assert_true(fabs(found(0) - 0.9) < 0.02);
    assert_true(fabs((double)job[0].observed.speed.model.rate_one / SPEED_RATE / 1000 - 1) < 0.02);
}

static void slow_programs_are_measured_to_a_part_of_a_unit(void **state)
{
    begin(1, "equal");
    units_per_s[0] = 0.7;
    process[0].progress_total = 1000000;
    for (uint32_t k = 1; k <= CORES; k *= 2) {
        pin(0, k);
        run(60);
    }
    assert_true(fabs(found(0) - 0.9) < 0.04);
}

static void one_count_says_nothing(void **state)
{
    begin(1, "equal");
    run(60);
    assert_false(job[0].observed.speed.known);
}

static void what_happens_during_a_change_is_no_sample(void **state)
{
    begin(1, "equal");
    pin(0, 8);
    run(10);
    process[0].sent_generation = 2; /* ordered, not acknowledged */
    process[0].acked_generation = 1;
    units_per_s[0] = 10;
    run(10);
    process[0].acked_generation = 2;
    units_per_s[0] = 1000;
    run(10);
    assert_in_range(job[0].observed.speed.fit.visit, 15,
                    20); /* of 30 s, those with a known count */
    assert_true(fabs((double)job[0].observed.speed.rate / SPEED_RATE / (1000 * speed(0.9, 8)) - 1) <
                0.02);
}

static void where_jobs_take_turns_nothing_is_learnt_of_curves(void **state)
{
    begin(2, "equal");
    pin(0, 8);
    pin(1, 8);
    run(10);
    assert_true(job[0].observed.speed.rate > 0); /* how far it gets is known all the same */
    assert_int_equal(job[0].observed.speed.fit.visit, 0);
    pin(0, 4);
    pin(1, 4);
    run(10);
    assert_in_range(job[0].observed.speed.fit.visit, 5, 10);
    assert_false(job[0].observed.speed.known);
}

static void a_program_that_begins_to_report_is_learnt_anew(void **state)
{
    begin(1, "equal");
    pin(0, 4);
    run(10);
    pin(0, 8);
    run(10);
    assert_true(job[0].observed.speed.known);
    process[0].progress_total = 1000000; /* steps from now on */
    units_per_s[0] = 5;
    done[0] = 1;
    run(10);
    assert_false(job[0].observed.speed.known);
    assert_true(fabs((double)job[0].observed.speed.rate / SPEED_RATE / (5 * speed(0.9, 8)) - 1) <
                0.1);
}

static void the_work_left_is_told_as_time_with_one_thread(void **state)
{
    begin(1, "equal");
    run(10);
    assert_true(speed_remaining_ns(&job[0]) == POLICY_UNKNOWN);
    begin(1, "equal");
    process[0].progress_total = 1000000;
    for (uint32_t k = 2; k <= CORES; k *= 2) {
        pin(0, k);
        run(20);
    }
    assert_true(fabs((double)speed_remaining_ns(&job[0]) / NS_PER_S /
                         ((1000000 - done[0]) / units_per_s[0]) -
                     1) < 0.03);
}

static void what_resizes_take_is_smoothed(void **state)
{
    begin(1, "equal");
    assert_true(speed_resize_ns(&job[0]) > 0);
    speed_resized(&job[0], 8 * NS_PER_MS);
    assert_int_equal(speed_resize_ns(&job[0]), 8 * NS_PER_MS);
    speed_resized(&job[0], 4 * NS_PER_MS);
    assert_int_equal(speed_resize_ns(&job[0]), 7 * NS_PER_MS);
}

/* ---- earlier runs ---------------------------------------------------------------------------- */

/* The prior that a run at 1, 2, 4 and 8 threads leaves behind. */
static struct prior of_earlier_run(double fraction)
{
    struct prior prior;

    begin(1, "equal");
    parallel[0] = fraction;
    assert_false(speed_learnt(&job[0], now, &prior));
    for (uint32_t k = 1; k <= CORES; k *= 2) {
        pin(0, k);
        run(8);
    }
    assert_true(speed_learnt(&job[0], now, &prior));
    return prior;
}

static void a_run_begins_with_the_curve_of_earlier_ones(void **state)
{
    struct prior prior = of_earlier_run(0.9);

    begin(1, "equal");
    process[0].progress_total = 1000000;
    units_per_s[0] = 300; /* another input */
    speed_recall(&job[0], &prior, false, now);
    assert_true(fabs(found(0) - 0.9) < 0.02);
    assert_true(speed_remaining_ns(&job[0]) == POLICY_UNKNOWN); /* no rate yet */
    run(4);
    assert_true(fabs(found(0) - 0.9) < 0.02);
    assert_true(speed_recalled(&job[0]));
    assert_true(fabs((double)speed_remaining_ns(&job[0]) / NS_PER_S /
                         ((1000000 - done[0]) / units_per_s[0]) -
                     1) < 0.05);
}

/* Two programs whose curves are known are given the right cores without an experiment. */
static void decisions_rest_on_it_at_once(void **state)
{
    struct prior poor = of_earlier_run(0.3), good = of_earlier_run(0.99);

    begin(2, "throughput");
    parallel[0] = 0.3;
    parallel[1] = 0.99;
    speed_recall(&job[0], &poor, false, now);
    speed_recall(&job[1], &good, true, now);
    run(30);
    assert_in_range(job[0].wanted.share, 1, 2);
    assert_int_equal(job[1].wanted.share, CORES - job[0].wanted.share);
}

static void a_curve_that_is_wrong_by_now_is_dropped(void **state)
{
    struct prior prior = of_earlier_run(0.9), next;

    begin(1, "equal");
    parallel[0] = 0.2;
    speed_recall(&job[0], &prior, false, now);
    pin(0, 8);
    run(8);
    assert_true(speed_recalled(&job[0]));
    pin(0, 1);
    run(8);
    assert_false(speed_recalled(&job[0]));
    assert_int_equal(job[0].observed.speed.earlier, SPEED_EARLIER_REFUTED);
    assert_true(fabs(found(0) - 0.2) < 0.03);
    assert_true(speed_learnt(&job[0], now, &next));
    assert_int_equal(next.count, 2); /* nothing of the old one */
}

/* Another user's measurements never become this user's own. */
static void a_shared_curve_is_not_handed_on(void **state)
{
    struct prior prior = of_earlier_run(0.9), next;

    for (int shared = 0; shared < 2; shared++) {
        begin(1, "equal");
        speed_recall(&job[0], &prior, shared, now);
        pin(0, 3);
        run(8);
        assert_false(speed_learnt(&job[0], now, &next)); /* one count */
        pin(0, 6);
        run(8);
        assert_true(speed_recalled(&job[0]));
        assert_true(speed_learnt(&job[0], now, &next));
        assert_int_equal(next.count, shared ? 2 : 6);
    }
}

static void another_unit_keeps_the_shape(void **state)
{
    struct prior prior = of_earlier_run(0.9);

    begin(1, "equal");
    speed_recall(&job[0], &prior, false, now);
    run(10);
    process[0].progress_total = 1000000; /* steps from now on */
    units_per_s[0] = 5;
    done[0] = 1;
    run(1);
    assert_true(fabs(found(0) - 0.9) < 0.02);
    assert_true(speed_recalled(&job[0]));
}

/* ---- experiments and decisions --------------------------------------------------------------- */

/* Runs until an experiment begins; how many seconds that took, 0: none within @seconds. */
static unsigned until_experiment(unsigned i, unsigned seconds)
{
    for (unsigned s = 1; s <= seconds; s++) {
        run(1);
        if (job[i].observed.speed.explore)
            return s;
    }
    return 0;
}

static void experiments_are_for_policies_that_go_by_curves(void **state)
{
    begin(1, "equal");
    assert_int_equal(until_experiment(0, 1000), 0);
    set_policy("throughput");
    assert_in_range(until_experiment(0, 200), 1, 200);
    beat();
    assert_true(process[0].sent.intra < CORES && job[0].wanted.share == CORES);
    assert_non_null(strstr(job[0].wanted.reason, "to learn its speed-up"));
    set_policy("equal");
    run(2);
    assert_int_equal(process[0].sent.intra, CORES);
}

static void an_experiment_is_short_and_ends_with_an_order(void **state)
{
    begin(1, "throughput");
    assert_true(until_experiment(0, 200) > 60);
    run(12);
    assert_int_equal(job[0].observed.speed.explore, 0);
    assert_int_equal(process[0].sent.intra, CORES);
    assert_true(until_experiment(0, 2000) > 0);
    pin(0, 5);
    run(1);
    assert_int_equal(process[0].sent.intra, 5);
    assert_int_equal(job[0].observed.speed.explore, 0);
    assert_int_equal(until_experiment(0, 1000), 0); /* a person has set the number */
}

static void the_minimum_holds_in_experiments(void **state)
{
    begin(1, "throughput");
    job[0].asked.attributes.min = 5;
    for (unsigned s = 0; s < 1000; s++) {
        run(1);
        assert_true(process[0].sent.intra >= 5);
    }
    assert_int_equal(job[0].observed.speed.fit.explore_to, 6);
}

/* The program that uses cores better gets them in the end, though both begin unknown. */
static void cores_go_where_they_are_found_to_be_of_use(void **state)
{
    unsigned changes = 0;
    uint32_t before;

    begin(2, "throughput");
    parallel[0] = 0.3;
    parallel[1] = 0.99;
    run(10);
    assert_int_equal(job[0].wanted.share, CORES / 2); /* the equal share, while nothing is known */
    run(1800);
    assert_in_range(job[0].wanted.share, 1, 2);
    assert_int_equal(job[1].wanted.share, CORES - job[0].wanted.share);
    before = job[0].wanted.share;
    for (unsigned s = 0; s < 1800; s++) {
        run(1);
        changes += job[0].wanted.share != before;
        before = job[0].wanted.share;
    }
    assert_in_range(changes, 0, 4); /* and it stays so */
}

static int end(void **state)
{
    the_daemon.decision = decision_free(the_daemon.decision);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_set_by_hand_teach_the_curve),
        cmocka_unit_test(slow_cores_do_not_bend_the_curve),
        cmocka_unit_test(slow_programs_are_measured_to_a_part_of_a_unit),
        cmocka_unit_test(one_count_says_nothing),
        cmocka_unit_test(what_happens_during_a_change_is_no_sample),
        cmocka_unit_test(where_jobs_take_turns_nothing_is_learnt_of_curves),
        cmocka_unit_test(a_program_that_begins_to_report_is_learnt_anew),
        cmocka_unit_test(the_work_left_is_told_as_time_with_one_thread),
        cmocka_unit_test(what_resizes_take_is_smoothed),
        cmocka_unit_test(a_run_begins_with_the_curve_of_earlier_ones),
        cmocka_unit_test(decisions_rest_on_it_at_once),
        cmocka_unit_test(a_curve_that_is_wrong_by_now_is_dropped),
        cmocka_unit_test(a_shared_curve_is_not_handed_on),
        cmocka_unit_test(another_unit_keeps_the_shape),
        cmocka_unit_test(experiments_are_for_policies_that_go_by_curves),
        cmocka_unit_test(an_experiment_is_short_and_ends_with_an_order),
        cmocka_unit_test(the_minimum_holds_in_experiments),
        cmocka_unit_test(cores_go_where_they_are_found_to_be_of_use),
    };

    return cmocka_run_group_tests(tests, NULL, end);
}
