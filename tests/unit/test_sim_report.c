/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing runs under policies of the test's own, and drawing them. */
#include "sim_input.h"

#include "sim/report/compare.h"
#include "sim/report/report.h"
#include "sim/report/svg.h"

#include <math.h>

/* ---- timelines ------------------------------------------------------------------------------- */

/* Amount × time, as read back from the bins. */
static double integral(const struct timeline *t)
{
    double value[TIMELINE_BINS], sum = 0;
    uint32_t count = timeline_values(t, value);

    for (uint32_t i = 0; i < count; i++) {
        uint64_t begin = i * t->bin_ns, end = begin + t->bin_ns;

        sum += value[i] * (double)((end < t->end_ns ? end : t->end_ns) - begin);
    }
    return sum;
}

static void timelines_keep_every_nanosecond_however_long_the_run(void **state)
{
    static struct timeline t;
    uint64_t seed = 7, length;
    double expected = 0;

    memset(&t, 0, sizeof(t));
    for (int i = 0; i < 20000; i++) {
        uint64_t begin;

        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        begin = (seed >> 20) % (UINT64_C(1) << (20 + i / 1000)); /* later and later */
        length = (seed >> 33) % (UINT64_C(1) << (10 + i / 1000));
        timeline_add(&t, begin, begin + length, i % 5);
        expected += (double)length * (i % 5);
    }
    assert_true(fabs(integral(&t) / expected - 1) < 1e-9);
}

static void a_timeline_shows_when_what_was_there(void **state)
{
    static struct timeline t;
    double value[TIMELINE_BINS];
    uint32_t count;

    memset(&t, 0, sizeof(t));
    timeline_add(&t, 0, 100 * SECOND, 2);
    timeline_add(&t, 50 * SECOND, 100 * SECOND, 3);
    timeline_add(&t, 70 * SECOND, 70 * SECOND, 1000); /* no time at all */
    count = timeline_values(&t, value);
    assert_in_range(count, TIMELINE_BINS / 4, TIMELINE_BINS);
    for (uint32_t i = 0; i < count; i++)
        if (i != count / 2)
            assert_true(fabs(value[i] - (i < count / 2 ? 2 : 5)) < 1e-9);
}

/* ---- text ------------------------------------------------------------------------------------ */

static void markup_in_names_stays_text(void **state)
{
    char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);

    svg_text(file, "<a href=\"x\">&é");
    fclose(file);
    assert_string_equal(text, "&lt;a href=&quot;x&quot;&gt;&amp;é");
    free(text);
}

static void numbers_have_about_four_digits(void **state)
{
    char text[REPORT_NUMBER_MAX];

    assert_string_equal(report_number(0, text), "0.00");
    assert_string_equal(report_number(0.5236, text), "0.52");
    assert_string_equal(report_number(-13.44, text), "-13.4");
    assert_string_equal(report_number(13570.4, text), "13570");
    assert_string_equal(report_number(1.442e7, text), "1.442e+07");
}

/* ---- policies that misbehave ----------------------------------------------------------------- */

static void no_room(const struct policy_snapshot *snapshot, struct policy_room *ret_room)
{
    *ret_room = (struct policy_room){.amounts = snapshot->job_count};
}

/* Never starts a job. */
static int hold_all(const struct policy *policy, const struct policy_snapshot *snapshot,
                    struct policy_plan *plan)
{
    for (uint32_t i = 0; i < snapshot->job_count; i++) {
        plan->decisions[i].verb = POLICY_VERB_HOLD;
        plan->decisions[i].reason.code = POLICY_REASON_HELD;
    }
    return 0;
}

/* Is no policy from the second job on. */
static int give_up(const struct policy *policy, const struct policy_snapshot *snapshot,
                   struct policy_plan *plan)
{
    return snapshot->job_count > 1 ? -EDOM : hold_all(policy, snapshot, plan);
}

static const struct policy holds = {
    .name = "holds", .brief = "", .room = no_room, .decide = hold_all};
static const struct policy breaks = {
    .name = "breaks", .brief = "", .room = no_room, .decide = give_up};

#define GENERATED                                                                                  \
    "{'machine': {'cores': 8}, 'workload': {'jobs': 40, 'arrivals': {'gap': {'exponential': "      \
    "{'mean': 9}}}, 'mix': [{'name': 'j', 'speedup': 0.9, 'work': {'exponential': {'mean': "       \
    "60}}}]}}"

/* Without control first, then @second. */
static struct compare comparison(struct jobs *jobs, struct compare_policy *policies,
                                 const struct policy *second, uint32_t threads)
{
    load(jobs, GENERATED, 1);
    assert_int_equal(compare_policy_parse("none", &policies[0], NULL), 0);
    policies[1] = (struct compare_policy){.spec.policy = second};
    strcpy(policies[1].text, second->name);
    return (struct compare){.scenario = jobs->scenario,
                            .machine = jobs->scenario->machine,
                            .policies = policies,
                            .policy_count = 2,
                            .first_seed = 1,
                            .seed_count = 5,
                            .threads = threads};
}

static struct jobs jobs;
static struct compare_policy policies[2];

static void idle_behind_a_policy_is_another_way_to_run_it(void **state)
{
    struct compare_policy plain, lends;
    struct error err;

    assert_int_equal(compare_policy_parse("fcfs/strict", &plain, NULL), 0);
    assert_int_equal(compare_policy_parse("fcfs/strict+idle", &lends, NULL), 0);
    assert_string_equal(lends.text, "fcfs/strict+idle");
    assert_ptr_equal(lends.spec.policy, plain.spec.policy);
    assert_true(lends.extras && !plain.extras);
    assert_false(compare_policy_equal(&plain, &lends));
    assert_int_equal(compare_policy_parse("none+idle", &lends, &err), -EINVAL);
    assert_true(compare_policy_parse("+idle", &lends, &err) < 0);
}

static void a_policy_that_runs_nothing_is_stuck_and_the_others_are_not(void **state)
{
    struct compare c = comparison(&jobs, policies, &holds, 3);
    struct sim_estimate estimate;
    struct error err;

    assert_int_equal(compare_all(&c, &err), 0);
    assert_int_equal(c.job_count, 40);
    for (uint32_t s = 0; s < 5; s++) {
        assert_false(compare_runs(&c, 0)[s].stuck);
        assert_true(compare_runs(&c, 1)[s].stuck);
        assert_non_null(strstr(compare_runs(&c, 1)[s].why, "jobs are left"));
    }
    compare_estimate(&c, 1, SIM_UNFINISHED, &estimate);
    assert_true(estimate.mean == 40);
    compare_estimate(&c, 0, SIM_UNFINISHED, &estimate);
    assert_true(estimate.mean == 0);
    compare_gain(&c, 1, SIM_MAKESPAN, &estimate);
    assert_int_equal(estimate.count, 0); /* nothing ended */
    compare_done(&c);
    unload(&jobs);
}

static void a_policy_that_fails_ends_everything_and_is_named(void **state)
{
    for (uint32_t threads = 1; threads <= 4; threads++) {
        struct compare c = comparison(&jobs, policies, &breaks, threads);
        struct error err = {0};

        c.jobs = tmpfile();
        assert_true(compare_all(&c, &err) < 0);
        assert_int_equal(strncmp(err.text, "breaks, seed ", 13), 0);
        fclose(c.jobs);
        compare_done(&c);
        unload(&jobs);
    }
}

static void lines_of_jobs_come_in_the_order_of_runs(void **state)
{
    struct compare c = comparison(&jobs, policies, policy_at(0), 4);
    unsigned long long seed, last = 0;
    char line[512], name[64];
    unsigned lines = 0;
    struct error err;

    c.jobs = tmpfile();
    assert_int_equal(compare_all(&c, &err), 0);
    rewind(c.jobs);
    assert_non_null(fgets(line, sizeof(line), c.jobs)); /* the header */
    while (fgets(line, sizeof(line), c.jobs)) {
        assert_int_equal(sscanf(line, "%63[^,],%llu,", name, &seed), 2);
        seed += strcmp(name, "none") == 0 ? 0 : 100;
        assert_true(seed >= last);
        last = seed;
        lines++;
    }
    assert_int_equal(lines, 400);
    fclose(c.jobs);
    compare_done(&c);
    unload(&jobs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_behind_a_policy_is_another_way_to_run_it),
        cmocka_unit_test(timelines_keep_every_nanosecond_however_long_the_run),
        cmocka_unit_test(a_timeline_shows_when_what_was_there),
        cmocka_unit_test(markup_in_names_stays_text),
        cmocka_unit_test(numbers_have_about_four_digits),
        cmocka_unit_test(a_policy_that_runs_nothing_is_stuck_and_the_others_are_not),
        cmocka_unit_test(a_policy_that_fails_ends_everything_and_is_named),
        cmocka_unit_test(lines_of_jobs_come_in_the_order_of_runs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
