/* SPDX-License-Identifier: Apache-2.0 */
/* From samples of jobs to a scenario, with jobs whose true speed-up is known. */
#include "sim_build.h"

#include "base/cleanup.h"
#include "sim/input/recording.h"
#include "sim/input/scenario.h"

#include <math.h>
#include <stdlib.h>

#define CORES    8
#define LOOK_S   0.5
#define RATE_ONE 1000.0 /* units/s of one thread */
#define FRACTION 0.8    /* parallel */
#define ERROR    0.02   /* what looks half a second apart may cost */

static struct recording_job *job[8];
static struct recording recording;

static int setup(void **state)
{
    recording = (struct recording){
        .cores = CORES, .placement = "shared", .policy = "equal", .recorded = "today", .job = job};
    return 0;
}

static int teardown(void **state)
{
    for (size_t i = 0; i < recording.jobs; i++)
        recording_job_free(job[i]);
    return 0;
}

static struct recording_job *add_job(const char *name, double arrival_s)
{
    struct recording_job *j = calloc(1, sizeof(*j));

    assert_non_null(j);
    *j = (struct recording_job){.arrival_ns = (uint64_t)(arrival_s * SECOND),
                                .end_ns = (uint64_t)(arrival_s * SECOND),
                                .malleable = true,
                                .weight = 100,
                                .pool = CORES,
                                .deadline_ns = POLICY_NEVER};
    snprintf(j->name, sizeof(j->name), "%s", name);
    snprintf(j->unit, sizeof(j->unit), "steps");
    job[recording.jobs++] = j;
    return j;
}

static double amdahl(double threads)
{
    return 1 / (1 - FRACTION + FRACTION / threads);
}

/*
 * It goes on for some time with @threads, at @speed times one thread's pace if it were alone, and
 * on as many cores; others make it wait so that it takes @slowdown times as long.
 */
static void spend(struct recording_job *j, double time_s, uint32_t threads, double speed,
                  double slowdown)
{
    struct recording_look now = {.at_ns = j->end_ns};
    double from = 0;

    if (j->looks)
        now = j->look[j->looks - 1];
    if (now.at_ns < j->end_ns)
        now.at_ns = j->end_ns;
    while (from < time_s) {
        double step = fmin(LOOK_S, time_s - from);
        double alone = step / slowdown;

        now.at_ns += (uint64_t)(step * SECOND);
        now.done += (uint64_t)llround(alone * RATE_ONE * speed);
        now.cpu_ns += (uint64_t)(alone * speed * SECOND);
        now.wait_ns += (uint64_t)((step - alone) * speed * SECOND);
        now.threads = threads;
        assert_int_equal(recording_look(j, &now), 0);
        from += step;
    }
    j->end_ns = now.at_ns;
}

static json_t *scenario_of(void)
{
    struct error err = {0};
    json_t *json = recording_scenario(&recording, NULL, &err);

    if (!json)
        fail_msg("%s", err.text);
    return json;
}

/* A scenario that the simulator accepts; the fields have the values of the JSON. */
static struct scenario *parsed(const json_t *json)
{
    char *text = json_dumps(json, JSON_REAL_PRECISION(12));
    struct scenario *scenario;
    struct error err;

    assert_non_null(text);
    if (scenario_parse("recorded.json", text, strlen(text), &scenario, &err) < 0)
        fail_msg("%s", err.text);
    return scenario;
}

static double speedup_of(const struct scenario *s, size_t i, uint32_t threads)
{
    return s->jobs[i].curve->speedup_permille[threads - 1] / 1000.0;
}

static void assert_near(double value, double truth)
{
    if (fabs(value - truth) > ERROR * fabs(truth))
        fail_msg("%g is not %g", value, truth);
}

/* ---- one job --------------------------------------------------------------------------------- */

static void what_others_took_is_not_counted_against_a_job(void **state)
{
    struct recording_job *j = add_job("cnn", 100);
    struct scenario *s;
    json_t *json;

    spend(j, 20, 4, amdahl(4), 1.0);
    spend(j, 30, 1, amdahl(1), 1.6);
    spend(j, 20, 2, amdahl(2), 1.3);
    json = scenario_of();
    s = parsed(json);
    assert_near(s->jobs[0].work_ns / 1e9, 20 * amdahl(4) + 30 / 1.6 + 20 / 1.3 * amdahl(2));
    assert_near(speedup_of(s, 0, 2), amdahl(2));
    assert_near(speedup_of(s, 0, 4), amdahl(4));
    assert_near(speedup_of(s, 0, 3), amdahl(3)); /* never seen */
    assert_near(speedup_of(s, 0, 8), amdahl(8));
    assert_true(s->jobs[0].cost_ns[POLICY_ACTION_START] < SECOND / 2);
    assert_true(s->jobs[0].waste_permille < 50);
    assert_true(s->observed.present);
    assert_near(s->observed.makespan_ns / 1e9, 70);
    scenario_free(s);
    json_decref(json);
}

static void time_without_work_is_the_costs_of_the_start(void **state)
{
    struct recording_job *j = add_job("cnn", 5);
    struct scenario *s;
    json_t *json;

    spend(j, 7, 0, 0, 1);    /* imports */
    spend(j, 4, 2, 0.01, 1); /* a trickle */
    spend(j, 30, 2, amdahl(2), 1);
    spend(j, 3, 2, 0, 1); /* the test, without progress */
    json = scenario_of();
    s = parsed(json);
    assert_near(s->jobs[0].cost_ns[POLICY_ACTION_START] / 1e9, 14);
    assert_near(s->jobs[0].work_ns / 1e9, 30 * amdahl(2));
    scenario_free(s);
    json_decref(json);
}

static void waiting_in_the_queue_is_no_cost_of_the_start(void **state)
{
    struct recording_job *j = add_job("cnn", 5), *rigid = add_job("rigid", 5);
    struct scenario *s;
    json_t *json;

    j->queued_ns = rigid->queued_ns = 20 * SECOND;
    spend(j, 23, 0, 0, 1); /* 20 s of them in the queue */
    spend(j, 30, 2, amdahl(2), 1);
    rigid->malleable = false;
    spend(rigid, 20, 0, 0, 1);
    spend(rigid, 10, 1, 1, 1);
    json = scenario_of();
    s = parsed(json);
    assert_near(s->jobs[0].cost_ns[POLICY_ACTION_START] / 1e9, 3);
    assert_near(s->jobs[0].arrival_ns / 1e9 + 1, 1);
    assert_near(s->jobs[1].work_ns / 1e9, 10);
    assert_near(s->observed.makespan_ns / 1e9, 53);
    scenario_free(s);
    json_decref(json);
}

static void what_the_start_computes_is_told_from_what_it_sleeps(void **state)
{
    struct recording_job *j = add_job("cnn", 5);
    struct recording_look look = {.at_ns = 5 * SECOND};
    struct scenario *s;
    json_t *json;

    for (int i = 0; i < 24; i++) { /* 6 s of imports on half a core, others have the other half */
        look.at_ns += SECOND / 2;
        look.cpu_ns += SECOND / 4;
        look.wait_ns += SECOND / 4;
        assert_int_equal(recording_look(j, &look), 0);
    }
    j->end_ns = look.at_ns;
    spend(j, 2, 0, 0, 1); /* waits for a disk */
    spend(j, 30, 2, amdahl(2), 1);
    json = scenario_of();
    s = parsed(json);
    assert_near(s->jobs[0].start_ns / 1e9, 6);
    assert_near(s->jobs[0].cost_ns[POLICY_ACTION_START] / 1e9, 2);
    assert_near(s->jobs[0].work_ns / 1e9, 30 * amdahl(2));
    scenario_free(s);
    json_decref(json);
}

static void a_job_that_sleeps_is_not_taken_to_compute(void **state)
{
    struct recording_job *j = add_job("pauses", 0);
    struct scenario *s;
    json_t *json;

    for (int i = 0; i < 10; i++) {
        spend(j, 6, 1, 1, 1.5);
        spend(j, 1, 1, 0, 1);
    }
    spend(j, 6, 1, 1, 1.5);
    json = scenario_of();
    s = parsed(json);
    assert_near(s->jobs[0].work_ns / 1e9, 54);
    assert_in_range(s->jobs[0].idle_permille, 180, 195); /* 10 of 54 s, less at the edges */
    scenario_free(s);
    json_decref(json);
}

static void one_count_alone_says_by_its_cores_how_parallel_a_job_is(void **state)
{
    struct recording_job *j = add_job("mlp", 0);
    struct scenario *s;
    json_t *json;

    spend(j, 40, 4, amdahl(4), 1.2);
    json = scenario_of();
    s = parsed(json);
    assert_near(speedup_of(s, 0, 4), amdahl(4));
    assert_near(speedup_of(s, 0, 2), amdahl(2));
    assert_near(s->jobs[0].work_ns / 1e9, 40 / 1.2 * amdahl(4));
    scenario_free(s);
    json_decref(json);
}

static void cores_that_gain_nothing_are_waste(void **state)
{
    struct recording_job *j = add_job("spin", 0);
    struct recording_look last;
    struct scenario *s;
    json_t *json;

    spend(j, 20, 1, 1, 1);
    last = j->look[j->looks - 1];
    for (int i = 0; i < 40; i++) { /* two threads, two cores, half again as fast */
        last.at_ns += SECOND / 2;
        last.cpu_ns += SECOND;
        last.done += (uint64_t)(0.5 * 1.5 * RATE_ONE);
        last.threads = 2;
        assert_int_equal(recording_look(j, &last), 0);
    }
    j->end_ns = last.at_ns;
    json = scenario_of();
    s = parsed(json);
    assert_near(speedup_of(s, 0, 2), 1.5);
    assert_near(s->jobs[0].waste_permille, 667); /* 2 = 1.5 (1 + w/2) */
    scenario_free(s);
    json_decref(json);
}

static void tasks_that_become_larger_do_not_bend_the_curve(void **state)
{
    struct recording_job *j = add_job("tasks", 0);
    struct recording_look look = {0};
    struct scenario *s;
    double rate = 3000;
    json_t *json;

    for (int i = 1; i <= 240; i++) { /* 40 s with one thread, 40 s with two, 40 s with one */
        bool two = i > 80 && i <= 160;

        rate += (1000 - rate) / 20;
        look.at_ns = (uint64_t)i * SECOND / 2;
        look.threads = two ? 2 : 1;
        look.done += (uint64_t)(rate / 2 * (two ? 1.7 : 1));
        look.cpu_ns += two ? 19 * SECOND / 20 : SECOND / 2;
        assert_int_equal(recording_look(j, &look), 0);
    }
    j->end_ns = look.at_ns;
    json = scenario_of();
    s = parsed(json);
    assert_near(speedup_of(s, 0, 2), 1.7);
    assert_near(s->jobs[0].work_ns / 1e9, 80 + 40 * 1.7);
    scenario_free(s);
    json_decref(json);
}

static void a_program_that_ran_before_counts_from_the_recording_on(void **state)
{
    struct recording_job *j = add_job("old", 50);
    struct scenario *s;
    json_t *json;

    j->early = true;
    j->cut = true;
    assert_int_equal(
        recording_look(
            j, &(struct recording_look){.at_ns = 50 * SECOND, .done = 1000000, .threads = 2}),
        0);
    spend(j, 30, 2, amdahl(2), 1);
    json = scenario_of();
    s = parsed(json);
    assert_near(s->jobs[0].work_ns / 1e9, 30 * amdahl(2));
    assert_true(json_is_true(json_object_get(
        json_array_get(json_object_get(json_object_get(json, "observed"), "jobs"), 0), "cut")));
    scenario_free(s);
    json_decref(json);
}

static void programs_without_pools_are_rigid_or_left_out(void **state)
{
    struct recording_job *busy = add_job("make", 0), *idle = add_job("sleep", 1);
    size_t left_out = 0;
    struct scenario *s;
    struct error err;
    json_t *json;

    busy->malleable = idle->malleable = false;
    spend(busy, 10, 0, 3, 1);
    spend(idle, 500, 0, 0.01, 1);
    json = recording_scenario(&recording, &left_out, &err);
    assert_non_null(json);
    assert_int_equal(left_out, 1);
    s = parsed(json);
    assert_int_equal(s->job_count, 1);
    assert_int_equal(s->jobs[0].malleability, POLICY_RIGID);
    assert_int_equal(s->jobs[0].request, 3);
    assert_near(s->jobs[0].work_ns / 1e9, 30);
    assert_near(s->observed.makespan_ns / 1e9, 10);
    scenario_free(s);
    json_decref(json);
}

static void nothing_but_idlers_is_no_scenario(void **state)
{
    struct error err = {0};

    assert_null(recording_scenario(&recording, NULL, &err));
    assert_int_equal(err.code, -ENODATA);
    spend(add_job("sleep", 1), 100, 0, 0, 1);
    add_job("nothing", 1); /* never looked at */
    assert_null(recording_scenario(&recording, NULL, &err));
    assert_int_equal(err.code, -ENODATA);
}

/* ---- the owner's requests -------------------------------------------------------------------- */

static void the_owners_word_is_passed_on(void **state)
{
    struct recording_job *j = add_job("cnn", 100);
    struct scenario *s;
    json_t *json;

    j->min = 2;
    j->max = 6;
    j->request = 4;
    j->priority = -3;
    j->class = 2;
    j->deadline_ns = 200 * SECOND;
    spend(j, 10, 4, amdahl(4), 1);
    json = scenario_of();
    s = parsed(json);
    assert_int_equal(s->jobs[0].min, 2);
    assert_int_equal(s->jobs[0].max, 6);
    assert_int_equal(s->jobs[0].request, 4);
    assert_int_equal(s->jobs[0].priority, -3);
    assert_int_equal(s->jobs[0].class, 2);
    assert_int_equal(s->jobs[0].weight, 100);
    assert_int_equal(s->jobs[0].deadline_ns, 100 * SECOND);
    assert_false(s->jobs[0].preemptible);
    assert_int_equal(s->jobs[0].told_ns, POLICY_UNKNOWN); /* it never reported its total */
    scenario_free(s);
    json_decref(json);
}

static void bounds_that_contradict_each_other_still_make_a_scenario(void **state)
{
    struct recording_job *j[] = {add_job("a", 1), add_job("b", 2), add_job("c", 3),
                                 add_job("d", 4)};
    struct scenario *s;
    json_t *json;

    j[0]->min = 6; /* more than its pool */
    j[0]->pool = 2;
    j[1]->request = 20;
    j[1]->pool = 3;
    j[2]->request = 1;
    j[2]->min = 4;
    j[2]->deadline_ns = 1; /* long ago */
    j[3]->pinned = 5;
    j[3]->max = 2;
    for (size_t i = 0; i < ARRAY_LEN(j); i++)
        spend(j[i], 5, 2, 1.5, 1);
    json = scenario_of();
    s = parsed(json);
    assert_int_equal(s->jobs[0].min, 6);
    assert_int_equal(s->jobs[0].max, 6);
    assert_int_equal(s->jobs[1].request, 3);
    assert_int_equal(s->jobs[2].request, 4);
    assert_int_equal(s->jobs[2].deadline_ns, POLICY_NEVER);
    assert_int_equal(s->jobs[3].min, 5);
    assert_int_equal(s->jobs[3].max, 5);
    scenario_free(s);
    json_decref(json);
}

/* ---- all together ---------------------------------------------------------------------------- */

static double time_in_rates(const json_t *json)
{
    const json_t *jobs = json_object_get(json_object_get(json, "observed"), "jobs");
    const json_t *rate;
    double time = 0;
    size_t i;

    json_array_foreach (json_object_get(json_array_get(jobs, 0), "rates"), i, rate)
        time += json_number_value(json_object_get(rate, "time"));
    return time;
}

static void a_day_of_looks_says_the_same_as_a_minute(void **state)
{
    struct recording_job *j = add_job("long", 0);
    struct scenario *s;
    json_t *json;

    for (int i = 0; i < 20; i++) {
        spend(j, 300, 1, 1, 1.1);
        spend(j, 600, 3, amdahl(3), 1);
    }
    assert_true(j->looks < RECORDING_LOOKS_MAX);
    assert_int_equal(j->look[j->looks - 1].at_ns, 18000 * SECOND);
    json = scenario_of();
    s = parsed(json);
    assert_near(speedup_of(s, 0, 3), amdahl(3));
    assert_near(s->jobs[0].work_ns / 1e9, 20 * (300 / 1.1 + 600 * amdahl(3)));
    assert_true(time_in_rates(json) > 0.9 * 18000); /* of early looks as well as of late ones */
    scenario_free(s);
    json_decref(json);
}

/* The samples that a recorder would have taken from a simulated run. */
static void record_run(const struct run *run)
{
    for (uint32_t i = 0; i < run->job_count; i++)
        add_job(run->jobs[i].name, run->jobs[i].arrival_ns / 1e9);
    for (uint32_t i = 0; i < run->segment_count; i++) {
        const struct sim_segment *g = &run->segments[i];
        uint32_t threads = (uint32_t)(g->mcpu / POLICY_CORE_MCPU);

        spend(job[g->job->id - 1], (double)(g->end_ns - g->begin_ns) / 1e9, threads,
              sim_curve_speed(g->job->curve, threads) / 1000.0, 1);
    }
}

static double replay(const struct scenario *s, struct run *run)
{
    run->job_count = (uint32_t)s->job_count;
    for (size_t i = 0; i < s->job_count; i++) {
        run->jobs[i] = s->jobs[i];
        run->jobs[i].id = i + 1;
    }
    assert_int_equal(run_try(run), 0);
    return (double)(run->totals.end_ns - run->totals.begin_ns) / 1e9;
}

static void a_recorded_run_replays_as_itself(void **state)
{
    static struct run run;
    struct scenario *s;
    double makespan;
    json_t *json;

    run_init(&run, CORES);
    for (uint64_t i = 0; i < 5; i++)
        run_job(&run, i * 20 * SECOND, (60 + 30 * (i % 3)) * SECOND)->curve =
            i % 2 ? &half_serial : &linear;
    assert_int_equal(run_try(&run), 0);
    makespan = (double)(run.totals.end_ns - run.totals.begin_ns) / 1e9;
    record_run(&run);
    json = scenario_of();
    s = parsed(json);
    assert_int_equal(s->job_count, 5);
    assert_near(s->observed.makespan_ns / 1e9, makespan);
    assert_near(replay(s, &run), makespan);
    scenario_free(s);
    json_decref(json);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_others_took_is_not_counted_against_a_job),
        TEST(time_without_work_is_the_costs_of_the_start),
        TEST(waiting_in_the_queue_is_no_cost_of_the_start),
        TEST(what_the_start_computes_is_told_from_what_it_sleeps),
        TEST(a_job_that_sleeps_is_not_taken_to_compute),
        TEST(one_count_alone_says_by_its_cores_how_parallel_a_job_is),
        TEST(cores_that_gain_nothing_are_waste),
        TEST(tasks_that_become_larger_do_not_bend_the_curve),
        TEST(a_program_that_ran_before_counts_from_the_recording_on),
        TEST(programs_without_pools_are_rigid_or_left_out),
        TEST(nothing_but_idlers_is_no_scenario),
        TEST(the_owners_word_is_passed_on),
        TEST(bounds_that_contradict_each_other_still_make_a_scenario),
        TEST(a_day_of_looks_says_the_same_as_a_minute),
        TEST(a_recorded_run_replays_as_itself),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
