/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policies that go by the work left - response, hesrpt, deadline -: what they do in known
 * cases, and against optima found by search.
 */
#include "test_policy_curves.h"

/* ---- hesrpt ---------------------------------------------------------------------------------- */

static void sized_jobs(uint32_t count, int64_t cores)
{
    scene_init(&scene, cores, 0);
    for (uint32_t j = 0; j < count; j++) {
        scene_job(&scene)->min.of[POLICY_MCPU] = 0;
        scene.jobs[j].remaining_ns = (1 + random_below(1000)) * SECOND;
    }
}

/* Place of the job by size, 1 is the largest. */
static uint32_t rank_of(uint32_t job)
{
    uint32_t rank = 1;

    for (uint32_t j = 0; j < scene.snapshot.job_count; j++)
        rank += scene.jobs[j].remaining_ns > scene.jobs[job].remaining_ns ||
                (scene.jobs[j].remaining_ns == scene.jobs[job].remaining_ns && j > job);
    return rank;
}

static void hesrpt_is_its_closed_form(void **state)
{
    char choice[64];

    for (uint32_t n = 0; n < 2000; n++) {
        uint32_t p, count;
        double exponent;

        random_state = n;
        p = 50 + random_below(900);
        count = 1 + random_below(40);
        exponent = 1000.0 / (1000 - p);
        sized_jobs(count, 16 + random_below(128));
        snprintf(choice, sizeof(choice), "hesrpt/unit=1/p=%u", p);
        decide(choice);
        for (uint32_t j = 0; j < count; j++) {
            double i = rank_of(j);
            double exact = CORES(machine_cores()) *
                           (pow(i / count, exponent) - pow((i - 1) / count, exponent));

            /* a thousandth of a core is the smallest amount there is */
            assert_true(fabs((double)mcpu_of(&outcome, j) - exact) <= fmax(0.01 * exact, 1));
        }
    }
}

/* Sum of the ends when jobs of the given sizes, at most 3, share optimally; speed-up k^p. */
static double best_flow(const double *size, uint32_t count, double cores, double p)
{
    double best = INFINITY;
    uint32_t steps = count == 2 ? 300 : 80;

    if (count == 1)
        return size[0] / pow(cores, p);
    for (uint32_t a = 0; a <= steps; a++)
        for (uint32_t b = 0; b <= (count == 2 ? 0 : steps - a); b++) {
            double part[3] = {(double)a / steps, (double)b / steps, 0}, rest[2], end = INFINITY;
            uint32_t first = 0, left = 0;

            part[count - 1] = 1 - part[0] - (count == 3 ? part[1] : 0);
            for (uint32_t j = 0; j < count; j++) {
                double time = size[j] / pow(cores * part[j], p);

                if (time < end) {
                    end = time;
                    first = j;
                }
            }
            for (uint32_t j = 0; j < count; j++)
                if (j != first)
                    rest[left++] = size[j] - end * pow(cores * part[j], p);
            if (count * end < best)
                best = fmin(best, count * end + best_flow(rest, left, cores, p));
        }
    return best;
}

/* The same when the policy decides, now and after each end. */
static double flow_of_policy(const char *choice, double cores, double p)
{
    double flow = 0;
    uint32_t left = scene.snapshot.job_count;

    while (left > 0) {
        double end = INFINITY;
        uint32_t first = 0;

        decide(choice);
        for (uint32_t j = 0; j < left; j++) {
            double time = (double)scene.jobs[j].remaining_ns /
                          pow((double)mcpu_of(&outcome, j) / POLICY_CORE_MCPU, p);

            if (time < end) {
                end = time;
                first = j;
            }
        }
        for (uint32_t j = 0; j < left; j++)
            scene.jobs[j].remaining_ns -=
                (uint64_t)(end * pow((double)mcpu_of(&outcome, j) / POLICY_CORE_MCPU, p));
        flow += left * end;
        scene.jobs[first] = scene.jobs[--left];
        scene.snapshot.job_count = left;
    }
    return flow;
}

static void hesrpt_is_within_a_percent_of_the_optimum(void **state)
{
    char choice[64];

    for (uint32_t n = 0; n < 60; n++) {
        uint32_t p, count;
        double size[3], best, flow;

        random_state = n;
        p = 100 + 100 * random_below(8);
        count = n % 10 == 0 ? 3 : 2;
        sized_jobs(count, 16);
        for (uint32_t j = 0; j < count; j++)
            size[j] = (double)scene.jobs[j].remaining_ns;
        best = best_flow(size, count, 16, p / 1000.0);
        snprintf(choice, sizeof(choice), "hesrpt/unit=1/p=%u", p);
        flow = flow_of_policy(choice, 16, p / 1000.0);
        assert_true(flow <= best * 1.01);
        assert_true(flow >= best * 0.99); /* or the search found no optimum */
    }
}

static void hesrpt_known_case(void **state)
{
    scene_init(&scene, 16, 0);
    for (uint32_t j = 0; j < 4; j++)
        scene_job(&scene)->remaining_ns = (j + 1) * 60 * SECOND;
    decide("hesrpt"); /* 7, 5, 3, 1 of 16ths */
    expect(0, POLICY_VERB_RESIZE, 7, "7 cores as number 1 of 4 jobs by work left");
    expect(1, POLICY_VERB_RESIZE, 5, "5 cores as number 2 of 4 jobs by work left");
    expect(2, POLICY_VERB_RESIZE, 3, "3 cores as number 3 of 4 jobs by work left");
    expect(3, POLICY_VERB_RESIZE, 1, "1 core as number 4 of 4 jobs by work left");
    /* a minimum above the formula is kept; of those who wait the smallest start */
    scene.domains[0].capacity.of[POLICY_MCPU] = CORES(5);
    scene.jobs[3].min.of[POLICY_MCPU] = CORES(3);
    for (uint32_t j = 0; j < 3; j++)
        scene.jobs[j].state = POLICY_QUEUED;
    decide("hesrpt");
    expect(0, POLICY_VERB_START, 1, "1 core as number 1 of 4 jobs by work left");
    expect(1, POLICY_VERB_START, 1, "minimum 1 raises the share of 0.71");
    expect(2, POLICY_VERB_HOLD, 0, "waits for cores: needs 1 core, 0 cores free");
    expect(3, POLICY_VERB_RESIZE, 3, "minimum 3 raises the share of 0.14");
}

/* ---- response -------------------------------------------------------------------------------- */

/* Jobs with so much work each, in seconds, that run on a core each or wait. */
static void response_scene(int64_t cores, uint32_t count, const uint32_t *work_s, uint32_t running)
{
    scene_init(&scene, cores, 0);
    for (uint32_t j = 0; j < count; j++) {
        struct policy_job *job = scene_job(&scene);

        job->remaining_ns = work_s[j] * SECOND;
        give_amdahl(j, 950);
        if (j < running)
            scene_hold(&scene, job, 0, 1, 0);
        else
            job->state = POLICY_QUEUED;
    }
}

static void the_shorter_gets_more_and_starts_first(void **state)
{
    response_scene(8, 4, (const uint32_t[]){100, 40, 60, 80}, 4);
    decide("response/exponent=500");
    expect(0, POLICY_VERB_KEEP, 1, "1 core as number 4 of 4 jobs by work left");
    expect(1, POLICY_VERB_RESIZE, 4, "4 cores as number 1 of 4 jobs by work left");
    expect(2, POLICY_VERB_RESIZE, 2, "2 cores as number 2 of 4 jobs by work left");
    expect(3, POLICY_VERB_KEEP, 1, "1 core as number 3 of 4 jobs by work left");
    decide("response/exponent=0");
    for (uint32_t j = 0; j < 4; j++)
        assert_int_equal(cores_of(j), 2);
    /* the exponent fades with fewer jobs than half the cores */
    scene.domains[0].capacity.of[POLICY_MCPU] = CORES(80);
    decide("response/exponent=500");
    assert_in_range(cores_of(0), 18, 20);
    assert_in_range(cores_of(1), 20, 22);

    /* a job that uses cores badly gets fewer, but some: its time counts, too */
    response_scene(16, 2, (const uint32_t[]){1000, 60}, 2);
    give_amdahl(0, 990);
    give_amdahl(1, 800);
    decide("throughput");
    assert_int_equal(cores_of(1), 1);
    decide("response");
    assert_in_range(cores_of(1), 4, 6);

    response_scene(2, 4, (const uint32_t[]){40, 30, 20, 50}, 0);
    decide("response/long=1000000");
    expect(0, POLICY_VERB_HOLD, 0, "waits for cores: needs 1 core, 0 cores free");
    expect(1, POLICY_VERB_START, 1, "1 core as number 2 of 4 jobs by work left");
    expect(2, POLICY_VERB_START, 1, "1 core as number 1 of 4 jobs by work left");
    expect(3, POLICY_VERB_HOLD, 0, "waits for cores: needs 1 core, 0 cores free");
}

static void interactive_jobs_come_before_shorter_batch_jobs(void **state)
{
    response_scene(8, 4, (const uint32_t[]){100, 40, 60, 80}, 4);
    scene.jobs[1].class = scene.jobs[2].class = scene.jobs[3].class = 10;
    decide("response/exponent=500");
    expect(0, POLICY_VERB_RESIZE, 4, "4 cores as number 1 of 4 jobs by class and work left");
    expect(1, POLICY_VERB_RESIZE, 2, "2 cores as number 2 of 4 jobs by class and work left");
    expect(3, POLICY_VERB_KEEP, 1, "1 core as number 4 of 4 jobs by class and work left");

    response_scene(1, 2, (const uint32_t[]){40, 400}, 0);
    scene.jobs[0].class = 10;
    decide("response/long=1000000");
    assert_int_equal(outcome.decisions[0].verb, POLICY_VERB_HOLD);
    assert_int_equal(outcome.decisions[1].verb, POLICY_VERB_START);
    scene.jobs[0].wait_ns = 20 * 40 * SECOND; /* late */
    decide("response/long=1000000");
    assert_int_equal(outcome.decisions[0].verb, POLICY_VERB_START);
    assert_int_equal(outcome.decisions[1].verb, POLICY_VERB_HOLD);
}

static void rigid_jobs_start_by_the_core_time_they_take(void **state)
{
    /* on 8 cores each, of 8: the short one uses them badly, and goes first all the same */
    response_scene(8, 3, (const uint32_t[]){600, 60, 300}, 0);
    for (uint32_t j = 0; j < 3; j++) {
        scene.jobs[j].malleability = POLICY_RIGID;
        scene.jobs[j].request.of[POLICY_MCPU] = CORES(8);
    }
    give_amdahl(1, 500);
    decide("response/long=1000000");
    assert_int_equal(cores_of(1), 8);
    /* 60 s of work, but 480 s of core time, and the other 324 */
    give_amdahl(1, 0);
    scene.jobs[2].remaining_ns = 240 * SECOND;
    decide("response/long=1000000");
    assert_int_equal(cores_of(2), 8);
}

static void a_job_that_would_end_last_anyhow_does_not_wait(void **state)
{
    /* 300 in all, a mean of 150 per core */
    response_scene(2, 4, (const uint32_t[]){20, 30, 10, 240}, 0);
    decide("response/long=1600");
    expect(3, POLICY_VERB_START, 1, "1 core as number 4 of 4 jobs by work left");
    expect(2, POLICY_VERB_START, 1, "1 core as number 1 of 4 jobs by work left");
    decide("response/long=1601");
    expect(3, POLICY_VERB_HOLD, 0, "waits for cores: needs 1 core, 0 cores free");
    expect(0, POLICY_VERB_START, 1, "1 core as number 2 of 4 jobs by work left");
}

static void a_much_shorter_job_starts_beside_those_who_run(void **state)
{
    /* the next one would have to be shorter still */
    response_scene(2, 5, (const uint32_t[]){120, 900, 100, 99, 101}, 2);
    decide("response");
    expect(2, POLICY_VERB_HOLD, 0, "waits for cores: needs 1 core, 0 cores free");
    expect(3, POLICY_VERB_START, 1,
           "1 core as number 1 of 5 jobs by work left; oversubscribed: 3 of 2 cores");
    expect(4, POLICY_VERB_HOLD, 0, "waits for cores: needs 1 core, 0 cores free");
    /* as long as the bound with what its start costs */
    scene.jobs[3].cost_ns[POLICY_ACTION_START] = 1 * SECOND;
    decide("response");
    expect(3, POLICY_VERB_HOLD, 0, "waits for cores: needs 1 core, 0 cores free");
    /* rigid ones, too, by the time that they take */
    scene.jobs[2].malleability = POLICY_RIGID;
    scene.jobs[2].request.of[POLICY_MCPU] = CORES(2); /* 52 s */
    decide("response");
    expect(2, POLICY_VERB_START, 2, "rigid, stays at 2 cores; oversubscribed: 4 of 2 cores");
    scene.jobs[2].malleability = POLICY_MALLEABLE;
    /* there is no such place where there is no core at all */
    scene.domains[0].capacity.of[POLICY_MCPU] = 0;
    scene.jobs[3].remaining_ns = 1 * SECOND;
    decide("response");
    expect(3, POLICY_VERB_INFEASIBLE, 0, "needs 1 core, more than the 0 cores there are");
}

static void a_much_longer_job_is_paused(void **state)
{
    response_scene(1, 2, (const uint32_t[]){119, 100}, 1);
    scene.jobs[0].preemptible = true;
    decide("response/long=1000000");
    expect(0, POLICY_VERB_KEEP, 1, "1 core as number 1 of 2 jobs by work left");
    scene.jobs[0].remaining_ns = 121 * SECOND;
    decide("response/long=1000000");
    expect(0, POLICY_VERB_PAUSE, 0, "paused, as others gain more from its 1 core");
    expect(1, POLICY_VERB_START, 1, "1 core as number 1 of 2 jobs by work left");
}

static void a_job_of_unknown_size_gives_way_in_time(void **state)
{
    response_scene(1, 2, (const uint32_t[]){0, 100}, 1);
    scene.jobs[0].remaining_ns = POLICY_UNKNOWN;
    scene.jobs[0].run_ns = 90 * SECOND;
    decide("response");
    expect(1, POLICY_VERB_HOLD, 0, "waits for cores: needs 1 core, 0 cores free");
    assert_int_equal(outcome.plan.next_wakeup_ns, scene.snapshot.now_ns + 30 * SECOND);
    scene.jobs[0].run_ns = 120 * SECOND;
    decide("response");
    expect(1, POLICY_VERB_HOLD, 0, "waits for cores: needs 1 core, 0 cores free");
    assert_int_equal(outcome.plan.next_wakeup_ns, scene.snapshot.now_ns + SECOND);
    scene.jobs[0].run_ns = 121 * SECOND;
    decide("response");
    expect(1, POLICY_VERB_START, 1,
           "1 core as number 1 of 2 jobs by work left; oversubscribed: 2 of 1 core");
    assert_int_equal(outcome.plan.next_wakeup_ns, POLICY_NEVER);
}

/* ---- deadline -------------------------------------------------------------------------------- */

static struct policy_job *due_in(uint32_t seconds, uint32_t work_s)
{
    struct policy_job *job = scene_job(&scene);

    job->deadline_ns = scene.snapshot.now_ns + seconds * SECOND;
    job->remaining_ns = work_s * SECOND;
    give_amdahl((uint32_t)(job - scene.jobs), 1000);
    return job;
}

static void deadline_known_cases(void **state)
{
    scene_init(&scene, 8, 0);
    due_in(60, 170);
    due_in(60, 60);
    scene_job(&scene);
    give_amdahl(2, 900);
    decide("deadline");
    expect(0, POLICY_VERB_RESIZE, 6, "3 cores to meet the deadline in 60 s");
    expect(1, POLICY_VERB_RESIZE, 1, "1 core to meet the deadline in 60 s");
    expect(2, POLICY_VERB_RESIZE, 1,
           "1 core: the last adds 100 % of one, the next would add 81.8 %");
    decide("deadline/margin=100"); /* 54 s */
    expect(0, POLICY_VERB_RESIZE, 5, "4 cores to meet the deadline in 60 s");
    expect(1, POLICY_VERB_RESIZE, 2, "2 cores to meet the deadline in 60 s");

    /* not for both: the priority decides, and the other gets no part of it */
    scene.domains[0].capacity.of[POLICY_MCPU] = CORES(4);
    scene.jobs[1].remaining_ns = 120 * SECOND;
    scene.jobs[1].priority = 1;
    decide("deadline");
    expect(0, POLICY_VERB_RESIZE, 1, "needs 170 s, but the deadline is in 60 s");
    expect(1, POLICY_VERB_RESIZE, 2, "2 cores to meet the deadline in 60 s");
}

static void hopeless_deadlines_are_said(void **state)
{
    scene_init(&scene, 4, 0);
    due_in(60, 400);
    due_in(60, 400)->state = POLICY_QUEUED;
    decide("deadline");
    expect(0, POLICY_VERB_RESIZE, 4, "needs 100 s, but the deadline is in 60 s");
    expect(1, POLICY_VERB_HOLD, 0, "needs 100 s, but the deadline is in 60 s");
    decide("deadline/late=refuse");
    expect(0, POLICY_VERB_RESIZE, 4, "needs 100 s, but the deadline is in 60 s");
    expect(1, POLICY_VERB_INFEASIBLE, 0, "needs 100 s, but the deadline is in 60 s");
}

static void jobs_are_paused_for_a_deadline(void **state)
{
    scene_init(&scene, 4, 0);
    for (uint32_t j = 0; j < 3; j++) {
        scene_hold(&scene, scene_job(&scene), 0, 1, 0);
        give_amdahl(j, 900);
        scene.jobs[j].preemptible = true;
        scene.jobs[j].priority = j == 1 ? -1 : 0;
    }
    due_in(60, 60)->state = POLICY_QUEUED;
    decide("deadline");
    for (uint32_t j = 0; j < 3; j++)
        assert_int_equal(cores_of(j), 1);
    expect(3, POLICY_VERB_START, 1, "1 core to meet the deadline in 60 s");
    scene.jobs[3].remaining_ns = 120 * SECOND;
    decide("deadline");
    expect(1, POLICY_VERB_PAUSE, 0, "paused, as others gain more from its 1 core");
    expect(3, POLICY_VERB_START, 2, "2 cores to meet the deadline in 60 s");
}

/* Where what all need is there, all are in time; and no fewer cores would do. */
static void deadlines_that_can_be_met_are(void **state)
{
    uint32_t all = 0;

    for (uint32_t n = 0; n < BRUTE_CASES; n++) {
        int64_t need[6], sum = 0, capacity;
        bool possible = true;

        random_small_case(n, one_in(2));
        capacity = machine_cores();
        for (uint32_t j = 0; j < scene.snapshot.job_count; j++) {
            struct policy_job *job = &scene.jobs[j];

            job->priority = (int32_t)random_below(3);
            job->remaining_ns = (1 + random_below(100)) * SECOND;
            job->deadline_ns = scene.snapshot.now_ns + (1 + random_below(150)) * SECOND;
            for (need[j] = 1; need[j] <= capacity; need[j]++)
                if (policy_time_with(job, POLICY_MCPU, (uint32_t)need[j]) <=
                    job->deadline_ns - scene.snapshot.now_ns)
                    break;
            possible &= need[j] <= capacity;
            sum += need[j];
        }
        decide("deadline");
        if (!possible || sum > capacity)
            continue;
        all++;
        for (uint32_t j = 0; j < scene.snapshot.job_count; j++) {
            assert_int_equal(outcome.decisions[j].reason.code, POLICY_REASON_DEADLINE);
            assert_true(cores_of(j) >= need[j]);
            if (!scene.jobs[j].curve[POLICY_MCPU].envelope_permille)
                assert_int_equal(outcome.decisions[j].reason.arg[0], CORES(need[j]));
        }
    }
    assert_true(all > BRUTE_CASES / 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hesrpt_is_its_closed_form),
        cmocka_unit_test(hesrpt_is_within_a_percent_of_the_optimum),
        cmocka_unit_test(hesrpt_known_case),
        cmocka_unit_test(the_shorter_gets_more_and_starts_first),
        cmocka_unit_test(interactive_jobs_come_before_shorter_batch_jobs),
        cmocka_unit_test(rigid_jobs_start_by_the_core_time_they_take),
        cmocka_unit_test(a_job_that_would_end_last_anyhow_does_not_wait),
        cmocka_unit_test(a_much_shorter_job_starts_beside_those_who_run),
        cmocka_unit_test(a_much_longer_job_is_paused),
        cmocka_unit_test(a_job_of_unknown_size_gives_way_in_time),
        cmocka_unit_test(deadline_known_cases),
        cmocka_unit_test(hopeless_deadlines_are_said),
        cmocka_unit_test(jobs_are_paused_for_a_deadline),
        cmocka_unit_test(deadlines_that_can_be_met_are),
    };

    return cmocka_run_group_tests_name("policies by size and deadline", tests, NULL, NULL);
}
