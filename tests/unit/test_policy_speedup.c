/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policies that give cores where they speed up most, against all possible allocations. The
 * plans of every policy by speed-up, size, deadline or watts are right on random snapshots.
 */
#include "test_policy_curves.h"

/* With other parameters than the defaults where they lead elsewhere. */
static const char *const choices[] = {
    "weighted",
    "throughput",
    "throughput/confidence=1000",
    "response",
    "response/exponent=1000/long=1000/overtake=1000",
    "hesrpt",
    "hesrpt/unit=1/p=800",
    "makespan",
    "deadline",
    "deadline/late=refuse/margin=100",
    "power-cap",
    "power-cap/cap=60000000",
};
#define CHOICES (sizeof(choices) / sizeof(choices[0]))

/* ---- throughput ------------------------------------------------------------------------------ */

/* The largest sum of weighted speeds of job @job and those after it with @left cores. */
static int64_t best_from(uint32_t job, int64_t left)
{
    int64_t best = -1;

    if (job == scene.snapshot.job_count)
        return 0;
    for (int64_t k = scene.jobs[job].state == POLICY_RUNNING; k <= left; k++) {
        int64_t rest = best_from(job + 1, left - k);

        if (rest >= 0 && rest + scene.jobs[job].weight * (int64_t)speed_of(job, k) > best)
            best = rest + scene.jobs[job].weight * (int64_t)speed_of(job, k);
    }
    return best;
}

static int64_t value_of_plan(void)
{
    int64_t value = 0;

    for (uint32_t j = 0; j < scene.snapshot.job_count; j++)
        value += scene.jobs[j].weight * (int64_t)speed_of(j, cores_of(j));
    return value;
}

static void throughput_is_the_best_of_all_allocations(void **state)
{
    for (uint32_t n = 0; n < BRUTE_CASES; n++) {
        random_small_case(n, true);
        decide("throughput");
        assert_int_equal(value_of_plan(), best_from(0, machine_cores()));
    }
}

/* The loss by the envelope has no promised bound. The test prints it; it is never a gain. */
static void throughput_on_uneven_tables_loses_little(void **state)
{
    double lost = 0, worst = 0;
    uint32_t exact = 0;

    for (uint32_t n = 0; n < BRUTE_CASES / 4; n++) {
        int64_t best, value;
        double gap;

        random_small_case(n, false);
        decide("throughput");
        best = best_from(0, machine_cores());
        value = value_of_plan();
        assert_true(value <= best);
        gap = 1 - (double)value / (double)best;
        lost += gap;
        worst = gap > worst ? gap : worst;
        exact += value == best;
    }
    print_message("uneven tables: %.1f %% exact, mean gap %.2f %%, largest %.1f %%\n",
                  exact * 400.0 / BRUTE_CASES, lost * 400 / BRUTE_CASES, worst * 100);
    assert_true(lost * 4 / BRUTE_CASES < 0.05);
}

static void throughput_known_case(void **state)
{
    scene_init(&scene, 8, 0);
    for (uint32_t j = 0; j < 3; j++)
        scene_job(&scene);
    give_amdahl(0, 500); /* 1, 1.333, 1.5, 1.6 … */
    give_amdahl(1, 950); /* 1, 1.904, 2.727, 3.478, 4.166, 4.8 … */
    scene.jobs[2].state = POLICY_QUEUED;
    scene.jobs[2].max.of[POLICY_MCPU] = CORES(1);
    decide("throughput");
    expect(0, POLICY_VERB_RESIZE, 1,
           "1 core: the last adds 100 % of one, the next would add 33.3 %");
    expect(1, POLICY_VERB_RESIZE, 6,
           "6 cores: the last adds 63.4 % of one, the next would add 58.4 %");
    expect(2, POLICY_VERB_START, 1, "at its maximum of 1 core");

    scene.jobs[0].weight = 3;
    decide("throughput");
    expect(0, POLICY_VERB_RESIZE, 2,
           "2 cores: the last adds 33.3 % of one, the next would add 16.7 %");
    assert_int_equal(cores_of(1), 5);
}

static void jobs_without_curve_get_the_equal_share(void **state)
{
    scene_init(&scene, 9, 0);
    for (uint32_t j = 0; j < 3; j++)
        scene_job(&scene);
    give_amdahl(0, 990);
    give_amdahl(1, 990);
    scene.jobs[1].curve[POLICY_MCPU].confidence_permille = 299;
    decide("throughput");
    expect(0, POLICY_VERB_RESIZE, 3,
           "3 cores: the last adds 96.1 % of one, the next would add 94.2 %");
    expect(1, POLICY_VERB_RESIZE, 3, "3 cores, as its speed-up is not known: the equal share is 3");
    expect(2, POLICY_VERB_RESIZE, 3, "3 cores, as its speed-up is not known: the equal share is 3");
    /* what the first one cannot use goes to them */
    table[0][1] = 1000;
    give_curve(0, 2, true);
    decide("throughput");
    expect(0, POLICY_VERB_RESIZE, 1, "1 core: the last adds 100 % of one, the next would add 0 %");
    assert_int_equal(cores_of(1), 4);
    assert_int_equal(cores_of(2), 4);
}

static void cores_that_nobody_gains_from_stay_free(void **state)
{
    scene_init(&scene, 8, 0);
    scene_job(&scene);
    table[0][0] = 1000;
    table[0][1] = 1500;
    table[0][2] = 1400;
    give_curve(0, 3, true);
    decide("throughput");
    expect(0, POLICY_VERB_RESIZE, 2, "2 cores: the last adds 50 % of one, the next would add 0 %");
}

/* With no curve at all it is the policy equal. */
static void without_curves_throughput_is_equal(void **state)
{
    static struct outcome equal;

    for (uint32_t n = 0; n < RANDOM_SNAPSHOTS; n++) {
        random_scene(&scene, n, 0);
        decide("throughput");
        decide_by(&equal, "equal");
        for (uint32_t j = 0; j < scene.snapshot.job_count; j++)
            assert_int_equal(mcpu_of(&outcome, j), mcpu_of(&equal, j));
    }
}

/* ---- weighted -------------------------------------------------------------------------------- */

static void weighted_known_case(void **state)
{
    scene_init(&scene, 12, 0);
    for (uint32_t j = 0; j < 3; j++)
        scene_job(&scene);
    scene.jobs[0].min.of[POLICY_MCPU] = CORES(4);
    scene.jobs[1].weight = 2;
    decide("weighted");
    expect(0, POLICY_VERB_RESIZE, 6, "minimum 4 and weight 1 of 4 in 6 cores");
    expect(1, POLICY_VERB_RESIZE, 4, "minimum 1 and weight 2 of 4 in 6 cores");
    expect(2, POLICY_VERB_RESIZE, 2, "minimum 1 and weight 1 of 4 in 6 cores");
    scene.jobs[1].max.of[POLICY_MCPU] = CORES(2);
    decide("weighted");
    expect(0, POLICY_VERB_RESIZE, 7, "minimum 4 and weight 1 of 2 in 5 cores");
    expect(1, POLICY_VERB_RESIZE, 2, "maximum 2 cuts the share of 6");
    expect(2, POLICY_VERB_RESIZE, 3, "minimum 1 and weight 1 of 2 in 5 cores");
}

/* Without maxima: min_j + (C - sum of minima) w_j / sum of weights, off by less than one core. */
static void weighted_follows_its_formula(void **state)
{
    for (uint32_t n = 0; n < RANDOM_SNAPSHOTS; n++) {
        int64_t minima = 0, weights = 0, used = 0, spare;

        random_scene(&scene, n, WITH_WEIGHTS);
        for (uint32_t j = 0; j < scene.snapshot.job_count; j++) {
            scene.jobs[j].max.of[POLICY_MCPU] = POLICY_UNLIMITED;
            minima += policy_job_least(&scene.jobs[j], POLICY_MCPU) / POLICY_CORE_MCPU;
            weights += scene.jobs[j].weight;
        }
        decide("weighted");
        spare = machine_cores() - minima > 0 ? machine_cores() - minima : 0;
        for (uint32_t j = 0; j < scene.snapshot.job_count; j++) {
            int64_t more = cores_of(j) - policy_job_least(&scene.jobs[j], POLICY_MCPU) / 1000;
            int64_t exact = spare * scene.jobs[j].weight;

            assert_true(more == exact / weights ||
                        (more == exact / weights + 1 && exact % weights));
            used += cores_of(j);
        }
        assert_int_equal(used, minima + spare);
    }
}

/* ---- makespan -------------------------------------------------------------------------------- */

static double time_of(uint32_t job, int64_t cores)
{
    return (double)scene.jobs[job].remaining_ns * 1000 / speed_of(job, cores);
}

/* The earliest end of job @job and those after it with @left cores. */
static double soonest_from(uint32_t job, int64_t left)
{
    double soonest = INFINITY;

    if (job == scene.snapshot.job_count)
        return 0;
    for (int64_t k = 1; k <= left; k++) {
        double end = fmax(time_of(job, k), soonest_from(job + 1, left - k));

        soonest = fmin(soonest, end);
    }
    return soonest;
}

static void makespan_is_the_soonest_of_all_allocations(void **state)
{
    for (uint32_t n = 0; n < BRUTE_CASES / 2; n++) {
        double end = 0;

        random_small_case(n, true);
        if (scene.snapshot.job_count > machine_cores())
            continue;
        for (uint32_t j = 0; j < scene.snapshot.job_count; j++)
            scene.jobs[j].remaining_ns = (1 + random_below(one_in(2) ? 10 : 1000)) * SECOND;
        decide("makespan");
        for (uint32_t j = 0; j < scene.snapshot.job_count; j++)
            end = fmax(end, time_of(j, cores_of(j)));
        assert_true(end <= soonest_from(0, machine_cores()) * (1 + 1e-6));
    }
}

static void makespan_known_case(void **state)
{
    scene_init(&scene, 6, 0);
    for (uint32_t j = 0; j < 3; j++) {
        scene_job(&scene)->remaining_ns = (j + 1) * 60 * SECOND;
        give_amdahl(j, 1000);
    }
    decide("makespan");
    expect(0, POLICY_VERB_RESIZE, 1, "1 core to end in 60 s");
    expect(1, POLICY_VERB_RESIZE, 2, "2 cores to end in 60 s");
    expect(2, POLICY_VERB_RESIZE, 3, "3 cores to end in 60 s");
    /* with more jobs than cores, the longest start */
    scene.domains[0].capacity.of[POLICY_MCPU] = CORES(2);
    for (uint32_t j = 0; j < 3; j++)
        scene.jobs[j].state = POLICY_QUEUED;
    decide("makespan");
    expect(0, POLICY_VERB_HOLD, 0, "waits for cores: needs 1 core, 0 cores free");
    expect(1, POLICY_VERB_START, 1, "1 core to end in 120 s");
    expect(2, POLICY_VERB_START, 1, "1 core to end in 180 s");
}

/* ---- power cap ------------------------------------------------------------------------------- */

static void power_scene(uint64_t cap_uw)
{
    scene_init(&scene, 16, 0);
    scene.domains[0].idle_uw = 40000000;
    scene.domains[0].core_uw = 5000000;
    scene.domains[0].cap_uw = cap_uw;
}

static void power_cap_known_cases(void **state)
{
    power_scene(93000000);
    for (uint32_t j = 0; j < 2; j++) {
        scene_job(&scene);
        give_amdahl(j, 950);
    }
    decide("power-cap");
    for (uint32_t j = 0; j < 2; j++)
        expect(j, POLICY_VERB_RESIZE, 5, "power cap of 93 W allows 10.6 cores");
    decide("power-cap/cap=61000000");
    for (uint32_t j = 0; j < 2; j++)
        expect(j, POLICY_VERB_RESIZE, 2, "power cap of 61 W allows 4 cores");
    scene.domains[0].cap_uw = 0;
    decide("power-cap/cap=1000000");
    for (uint32_t j = 0; j < 2; j++)
        expect(j, POLICY_VERB_RESIZE, 1, "power cap of 1 W allows 0 cores");
}

static void nobody_runs_for_whom_there_is_no_power(void **state)
{
    power_scene(51000000); /* two cores */
    for (uint32_t j = 0; j < 4; j++) {
        scene_job(&scene)->preemptible = true;
        give_amdahl(j, 950);
        if (j == 3)
            scene.jobs[j].state = POLICY_QUEUED;
        else
            scene_hold(&scene, &scene.jobs[j], 0, 1, 0);
    }
    decide("power-cap");
    assert_int_equal(outcome.decisions[0].verb, POLICY_VERB_KEEP);
    assert_int_equal(outcome.decisions[1].verb, POLICY_VERB_KEEP);
    expect(2, POLICY_VERB_PAUSE, 0, "power cap of 51 W allows 2.2 cores");
    expect(3, POLICY_VERB_HOLD, 0, "power cap of 51 W allows 2.2 cores");
}

/* A job that waits or may be paused does not count against a cap. */
static void power_stays_under_the_cap(void **state)
{
    for (uint32_t n = 0; n < RANDOM_SNAPSHOTS; n++) {
        const struct policy_domain *root = &scene.domains[0];

        random_scene(&scene, n, 0);
        scene.domains[0].idle_uw = random_below(50000000);
        scene.domains[0].core_uw = 1 + random_below(10000000);
        scene.domains[0].cap_uw = 1 + random_below(100000000);
        for (uint32_t j = 0; j < scene.snapshot.job_count; j++) {
            give_amdahl(j, random_below(1001));
            scene.jobs[j].preemptible = true;
            if (scene.jobs[j].current_count == 0)
                scene.jobs[j].state = POLICY_QUEUED;
        }
        decide(one_in(2) ? "power-cap" : "power-cap/cap=60000000");
        assert_true(outcome.domains[0].used.of[POLICY_MCPU] == 0 ||
                    root->idle_uw + (uint64_t)outcome.domains[0].used.of[POLICY_MCPU] / 1000 *
                                        root->core_uw <=
                        root->cap_uw);
    }
}

/* ---- every snapshot -------------------------------------------------------------------------- */

/* They come back where there is room, which is not always where they were. */
static void workers_of_a_paused_job_take_no_others_room(void **state)
{
    for (size_t c = 0; c < CHOICES; c++) {
        scene_init(&scene, 8, 0);
        scene.domains[0].level = POLICY_CLUSTER;
        scene.domains[0].capacity.of[POLICY_WORKER] = POLICY_UNLIMITED;
        scene_domain(&scene, 0, POLICY_NODE, 8, POLICY_UNLIMITED);
        scene.domains[1].capacity.of[POLICY_WORKER] = 2;
        scene_hold(&scene, scene_job(&scene), 1, 2, 0);
        scene.jobs[0].state = POLICY_PAUSED;
        scene.held[0][0].amount.of[POLICY_WORKER] = 2;
        scene.jobs[0].max.of[POLICY_WORKER] = 2;
        scene_job(&scene)->state = POLICY_QUEUED;
        scene.jobs[1].home = 1;
        scene.jobs[1].min.of[POLICY_WORKER] = scene.jobs[1].max.of[POLICY_WORKER] = 1;
        decide(choices[c]); /* the check would find three of two workers */
        assert_int_equal(outcome.decisions[0].verb, POLICY_VERB_RESUME);
        assert_int_equal(outcome.decisions[1].verb, POLICY_VERB_START);
    }
}

/* Curves, sizes, deadlines, costs and watts for a random scene. */
static void random_extras(void)
{
    if (one_in(3)) {
        scene.domains[0].idle_uw = random_below(40000000);
        scene.domains[0].core_uw = random_below(6000000);
        scene.domains[0].cap_uw = random_below(120000000);
    }
    for (uint32_t j = 0; j < scene.snapshot.job_count; j++) {
        struct policy_job *job = &scene.jobs[j];
        uint32_t count = 1 + random_below(CURVE_MAX);

        if (!one_in(4)) {
            if (one_in(2))
                give_random_concave(j, count);
            else
                give_random_table(j, count);
            job->curve[POLICY_MCPU].confidence_permille = random_below(1001);
        }
        if (!one_in(4))
            job->remaining_ns = random_next() >> random_below(64);
        if (one_in(3))
            job->deadline_ns = one_in(8) ? random_below(100) * SECOND
                                         : scene.snapshot.now_ns + random_below(1000) * SECOND;
        for (int i = 0; i < POLICY_ACTION_MAX; i++)
            job->cost_ns[i] = one_in(2) ? 0 : random_next() >> random_below(64);
    }
}

static void every_plan_is_right_and_the_same_again(void **state)
{
    static struct outcome again;

    for (uint32_t n = 0; n < RANDOM_SNAPSHOTS; n++)
        for (size_t c = 0; c < CHOICES; c++) {
            random_scene(&scene, n, n % FLAVOURS);
            random_extras();
            gated = one_in(2);
            decide(choices[c]);
            decide_by(&again, choices[c]);
            for (uint32_t i = 0; i < scene.snapshot.job_count; i++)
                assert_true(same_decision(&outcome, i, &again, i));
            assert_int_equal(outcome.plan.next_wakeup_ns, again.plan.next_wakeup_ns);
        }
    gated = false;
}

static void the_order_of_jobs_does_not_matter(void **state)
{
    static struct outcome shuffled;

    for (uint32_t n = 0; n < RANDOM_SNAPSHOTS / 4; n++)
        for (size_t c = 0; c < CHOICES; c++) {
            uint32_t from[BUILD_JOBS];

            random_scene(&scene, n, n % FLAVOURS);
            random_extras();
            decide(choices[c]);
            random_shuffle(&scene, from);
            decide_by(&shuffled, choices[c]);
            for (uint32_t i = 0; i < scene.snapshot.job_count; i++)
                assert_true(same_decision(&outcome, from[i], &shuffled, i));
        }
}

static void a_larger_weight_never_gives_less(void **state)
{
    static const char *const weighing[] = {"weighted", "throughput", "response", "power-cap"};
    static struct outcome heavier;

    for (uint32_t n = 0; n < RANDOM_SNAPSHOTS; n++) {
        const char *choice = weighing[n / FLAVOURS % 4];
        uint32_t job;

        random_scene(&scene, n, n % FLAVOURS & ~WITH_LENDING);
        random_extras();
        decide(choice);
        job = random_below(scene.snapshot.job_count);
        scene.jobs[job].weight += random_below(POLICY_WEIGHT_MAX - scene.jobs[job].weight + 1);
        decide_by(&heavier, choice);
        if (mcpu_of(&heavier, job) < mcpu_of(&outcome, job))
            fail_msg("%s, snapshot %u, job %u", choice, n, job);
    }
}

/* Whole cores that lie free in the domain and all that it is part of. */
static int64_t free_around(uint32_t domain)
{
    int64_t least = INT64_MAX;

    for (uint32_t d = domain; d != POLICY_NO_PARENT; d = scene.domains[d].parent) {
        int64_t free = policy_domain_capacity(&scene.snapshot, d, POLICY_MCPU) -
                       outcome.domains[d].used.of[POLICY_MCPU];

        least = free < least ? free : least;
    }
    return least > 0 ? least / POLICY_CORE_MCPU : 0;
}

/* Running jobs have all cores that they gain from; waiting jobs lack some resource. */
static void no_core_is_left_while_someone_gains_from_it(void **state)
{
    for (uint32_t n = 0; n < RANDOM_SNAPSHOTS; n++) {
        random_scene(&scene, n, n % FLAVOURS & ~WITH_LENDING);
        random_extras();
        decide(n % 2 ? "throughput" : "response");
        for (uint32_t j = 0; j < scene.snapshot.job_count; j++) {
            const struct policy_job *job = &scene.jobs[j];
            const struct policy_reason *reason = &outcome.decisions[j].reason;

            if (reason->code == POLICY_REASON_NO_ROOM && reason->arg[0] == POLICY_MCPU)
                assert_true(reason->arg[1] > reason->arg[2]);
            if (reason->code == POLICY_REASON_NO_CURVE ||
                (reason->code == POLICY_REASON_GAIN && reason->arg[2] > 0))
                assert_int_equal(free_around(policy_job_place(&scene.snapshot, job)), 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(throughput_is_the_best_of_all_allocations),
        cmocka_unit_test(throughput_on_uneven_tables_loses_little),
        cmocka_unit_test(throughput_known_case),
        cmocka_unit_test(jobs_without_curve_get_the_equal_share),
        cmocka_unit_test(cores_that_nobody_gains_from_stay_free),
        cmocka_unit_test(without_curves_throughput_is_equal),
        cmocka_unit_test(weighted_known_case),
        cmocka_unit_test(weighted_follows_its_formula),
        cmocka_unit_test(makespan_is_the_soonest_of_all_allocations),
        cmocka_unit_test(makespan_known_case),
        cmocka_unit_test(power_cap_known_cases),
        cmocka_unit_test(nobody_runs_for_whom_there_is_no_power),
        cmocka_unit_test(power_stays_under_the_cap),
        cmocka_unit_test(workers_of_a_paused_job_take_no_others_room),
        cmocka_unit_test(every_plan_is_right_and_the_same_again),
        cmocka_unit_test(the_order_of_jobs_does_not_matter),
        cmocka_unit_test(a_larger_weight_never_gives_less),
        cmocka_unit_test(no_core_is_left_while_someone_gains_from_it),
    };

    return cmocka_run_group_tests_name("policies by speed-up", tests, NULL, NULL);
}
