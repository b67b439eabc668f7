/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/division/worth.h"
#include "policy/model/curve.h"
#include "sanitized.h"
#include "test_policy_build.h"
#include "test_random.h"

static struct scene scene;
static uint32_t scratch[BUILD_JOBS];
static uint64_t worth[257];
static uint32_t table[BUILD_JOBS][16], envelope[BUILD_JOBS][16];

static void no_job_values_no_core(void **state)
{
    (void)state;
    scene_init(&scene, 8, 0);
    worth_of_cores(&scene.snapshot, 8, scratch, worth);
    for (int k = 0; k <= 8; k++)
        assert_int_equal(worth[k], 0);
}

static void each_core_goes_where_it_is_worth_most(void **state)
{
    static const uint32_t flat[] = {1000, 1200, 1300};
    struct policy_job *linear, *slow;

    (void)state;
    scene_init(&scene, 8, 0);
    linear = scene_job(&scene);
    linear->max.of[POLICY_MCPU] = CORES(2);
    slow = scene_job(&scene);
    slow->weight = 2;
    slow->curve[POLICY_MCPU] = (struct policy_curve){.speedup_permille = flat, .count = 3};
    worth_of_cores(&scene.snapshot, 8, scratch, worth);
    assert_int_equal(worth[1], 2000);
    assert_int_equal(worth[2], 3000);
    assert_int_equal(worth[3], 4000);
    assert_int_equal(worth[4], 4400);
    assert_int_equal(worth[5], 4600);
    assert_int_equal(worth[6], 4600);
    assert_int_equal(worth[8], 4600);
}

static void a_minimum_counts_as_a_whole_and_a_held_job_not_at_all(void **state)
{
    static const uint32_t curve[] = {1000, 1800, 2400, 2700};
    struct policy_job *job;

    (void)state;
    scene_init(&scene, 8, 0);
    job = scene_job(&scene);
    job->min.of[POLICY_MCPU] = CORES(3);
    job->curve[POLICY_MCPU] = (struct policy_curve){.speedup_permille = curve, .count = 4};
    scene_job(&scene)->state = POLICY_HELD;
    worth_of_cores(&scene.snapshot, 8, scratch, worth);
    assert_int_equal(worth[1], 800);
    assert_int_equal(worth[3], 2400);
    assert_int_equal(worth[4], 2700);
    assert_int_equal(worth[8], 2700);
    job->malleability = POLICY_RIGID;
    job->request.of[POLICY_MCPU] = CORES(2);
    worth_of_cores(&scene.snapshot, 8, scratch, worth);
    assert_int_equal(worth[2], 1800);
    assert_int_equal(worth[8], 1800);
}

/* The most that any division of @cores cores over the jobs from @j on is worth. */
static uint64_t brute_force(uint32_t j, uint32_t cores)
{
    uint64_t best = 0;

    if (j == scene.snapshot.job_count)
        return 0;
    for (uint32_t k = 0; k <= cores; k++) {
        const struct policy_job *job = &scene.jobs[j];
        int64_t most = job->max.of[POLICY_MCPU] / POLICY_CORE_MCPU;
        int64_t has = k < most ? k : most;
        uint64_t own = job->weight * (has ? curve_speed(&job->curve[POLICY_MCPU], CORES(has)) : 0);
        uint64_t rest = brute_force(j + 1, cores - k);

        best = own + rest > best ? own + rest : best;
    }
    return best;
}

static void random_job(uint32_t j)
{
    struct policy_job *job = scene_job(&scene);
    uint32_t step = 1000, speed = 0, count = 1 + random_below(8);

    job->weight = 1 + random_below(5);
    job->max.of[POLICY_MCPU] = CORES(1 + random_below(9));
    for (uint32_t k = 0; k < count; k++) {
        speed += step;
        table[j][k] = speed;
        step = random_below(step + 1);
    }
    job->curve[POLICY_MCPU] = (struct policy_curve){.speedup_permille = table[j], .count = count};
}

static void it_is_what_brute_force_finds_on_concave_curves(void **state)
{
    (void)state;
    random_state = 1;
    for (int run = 0; run < TIMES(300); run++) {
        uint32_t jobs = 1 + random_below(3);

        scene_init(&scene, 8, 0);
        for (uint32_t j = 0; j < jobs; j++)
            random_job(j);
        worth_of_cores(&scene.snapshot, 8, scratch, worth);
        for (uint32_t k = 0; k <= 8; k++)
            assert_int_equal(worth[k], brute_force(0, k));
    }
}

static void it_is_concave_on_any_curves(void **state)
{
    (void)state;
    random_state = 2;
    for (int run = 0; run < TIMES(500); run++) {
        scene_init(&scene, 8, 0);
        for (uint32_t j = 0; j < 1 + random_below(20); j++) {
            struct policy_job *job = scene_job(&scene);
            uint32_t count = 1 + random_below(16);

            table[j][0] = 1000;
            for (uint32_t k = 1; k < count; k++)
                table[j][k] = 1 + random_below(20000);
            curve_envelope(table[j], count, envelope[j]);
            job->weight = 1 + random_below(100);
            job->min.of[POLICY_MCPU] = random_below(6000);
            job->max.of[POLICY_MCPU] = job->min.of[POLICY_MCPU] + random_below(20000);
            if (one_in(3))
                continue;
            job->curve[POLICY_MCPU] = (struct policy_curve){
                .speedup_permille = table[j], .envelope_permille = envelope[j], .count = count};
        }
        worth_of_cores(&scene.snapshot, 256, scratch, worth);
        assert_int_equal(worth[0], 0);
        for (int k = 1; k < 256; k++) {
            assert_true(worth[k] >= worth[k - 1]);
            assert_true(worth[k + 1] - worth[k] <= worth[k] - worth[k - 1]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_job_values_no_core),
        cmocka_unit_test(each_core_goes_where_it_is_worth_most),
        cmocka_unit_test(a_minimum_counts_as_a_whole_and_a_held_job_not_at_all),
        cmocka_unit_test(it_is_what_brute_force_finds_on_concave_curves),
        cmocka_unit_test(it_is_concave_on_any_curves),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
