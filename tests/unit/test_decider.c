/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of a decider: which are plans, and why others are refused. */
#include "decider/answer.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define JOBS 4

/* Two users with two jobs each on eight cores; job 4 is rigid, with two cores. */
struct fixture {
    struct policy_domain root;
    struct policy_job jobs[JOBS];
    struct policy_user users[2];
    struct policy_snapshot s;
    struct policy_decision decisions[JOBS];
    struct policy_domain_use use;
    struct policy_plan plan;
    struct error err;
    int refused;
};

static void set_up(struct fixture *f)
{
    struct policy_room room;

    memset(f, 0, sizeof(*f));
    policy_machine_init(&f->root, 8000, 0);
    for (uint32_t i = 0; i < JOBS; i++) {
        policy_job_init(&f->jobs[i], i + 1);
        f->jobs[i].user = i / 2;
    }
    f->jobs[1].max.of[POLICY_MCPU] = 2000;
    f->jobs[3].malleability = POLICY_RIGID;
    f->jobs[3].request.of[POLICY_MCPU] = 2000;
    f->users[0] = (struct policy_user){1000, 100, POLICY_UNLIMITED};
    f->users[1] = (struct policy_user){1001, 100, POLICY_UNLIMITED};
    f->s = (struct policy_snapshot){.now_ns = 1000,
                                    .epoch = 1,
                                    .generation = 7,
                                    .domains = &f->root,
                                    .domain_count = 1,
                                    .jobs = f->jobs,
                                    .job_count = JOBS,
                                    .users = f->users,
                                    .user_count = 2};
    policy_room(decider_fallback(), &f->s, &room);
    f->plan = (struct policy_plan){.decisions = f->decisions,
                                   .domains = &f->use,
                                   .amounts = calloc(room.amounts + 1, sizeof(*f->plan.amounts)),
                                   .amount_room = room.amounts,
                                   .scratch = malloc(room.scratch_bytes + 1),
                                   .scratch_room = room.scratch_bytes};
    assert_non_null(f->plan.amounts);
    assert_non_null(f->plan.scratch);
}

static void tear_down(struct fixture *f)
{
    free(f->plan.amounts);
    free(f->plan.scratch);
}

/* Reads the answer, applies it if it can be read, and checks the plan that comes of it. */
static int answer(struct fixture *f, const char *line)
{
    int64_t cores[JOBS] = {0};
    int read = decider_read(line, strlen(line), &f->s, cores, &f->err);
    int r = decider_apply(&f->s, read == 0 ? cores : NULL, &f->plan, &f->err);

    assert_int_equal(policy_plan_check(&f->s, &f->plan, NULL), 0);
    return read < 0 ? read : r;
}

static void expect_cores(const struct fixture *f, int a, int b, int c, int d)
{
    const int want[JOBS] = {a, b, c, d};

    for (uint32_t i = 0; i < JOBS; i++)
        assert_int_equal(policy_decision_total(&f->plan, i, POLICY_MCPU), want[i] * 1000);
}

static void a_plan_within_all_bounds_is_taken(void **state)
{
    struct fixture f;

    set_up(&f);
    assert_int_equal(answer(&f, "{\"snapshot\":7,\"plan\":[{\"job\":3,\"cores\":1},"
                                "{\"job\":1,\"cores\":3},{\"job\":2,\"cores\":1}]}"),
                     0);
    expect_cores(&f, 3, 1, 1, 2);
    tear_down(&f);
}

static void a_wrong_answer_is_refused_whole_and_equal_decides(void **state)
{
    enum { STALE = 2 };
    static const struct {
        const char *line, *why;
    } rows[] = {
        {"", "no JSON"},
        {"[]", "no \"snapshot\""},
        {"{\"snapshot\":6,\"plan\":[]}", "answers snapshot 6, not 7"},
        {"{\"snapshot\":7,\"snapshot\":7,\"plan\":[]}", "no JSON"},
        {"{\"snapshot\":7,\"plan\":[{\"job\":1}]}", "an entry is not"},
        {"{\"snapshot\":7,\"plan\":[{\"job\":9,\"cores\":1}]}", "there is no job 9"},
        {"{\"snapshot\":7,\"plan\":[{\"job\":1,\"cores\":0}]}", "0 is no number of cores"},
        {"{\"snapshot\":7,\"plan\":[{\"job\":1,\"cores\":1},{\"job\":1,\"cores\":1}]}", "twice"},
        {"{\"snapshot\":7,\"plan\":[{\"job\":1,\"cores\":1}]}", "leaves job 2 out"},
        {"{\"snapshot\":7,\"plan\":[{\"job\":1,\"cores\":1},{\"job\":2,\"cores\":3},"
         "{\"job\":3,\"cores\":1}]}",
         "outside of its min and max"},
        {"{\"snapshot\":7,\"plan\":[{\"job\":1,\"cores\":1},{\"job\":2,\"cores\":1},"
         "{\"job\":3,\"cores\":1},{\"job\":4,\"cores\":1}]}",
         "job 4 has no choice"},
        {"{\"snapshot\":7,\"plan\":[{\"job\":1,\"cores\":4},{\"job\":2,\"cores\":1},"
         "{\"job\":3,\"cores\":1}]}",
         "beyond its share"},
        {"{\"snapshot\":7,\"plan\":[{\"job\":1,\"cores\":6},{\"job\":2,\"cores\":2},"
         "{\"job\":3,\"cores\":6}]}",
         "more than the machine has"},
    };
    struct fixture f;

    set_up(&f);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        f.err.text[0] = '\0';
        assert_int_equal(answer(&f, rows[i].line), i == STALE ? -ESTALE : -EBADMSG);
        if (!strstr(f.err.text, rows[i].why))
            fail_msg("%s: %s", rows[i].line, f.err.text);
        expect_cores(&f, 2, 2, 2, 2);
    }
    tear_down(&f);
}

static void a_question_is_one_line_with_the_bounds_of_an_answer(void **state)
{
    struct fixture f;
    char *line;

    set_up(&f);
    assert_int_equal(decider_apply(&f.s, NULL, &f.plan, &f.err), 0);
    line = decider_question(&f.s, &f.plan);
    assert_non_null(line);
    assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
    assert_non_null(strstr(line, "\"version\":1,\"snapshot\":7,"));
    assert_non_null(strstr(line, "\"id\":2,\"state\":\"running\",\"kind\":\"malleable\","
                                 "\"choice\":true,\"min\":1,\"max\":2,\"cores\":0,\"equal\":2,"
                                 "\"user\":1000,\"user_cores\":4,"));
    assert_non_null(strstr(line, "\"kind\":\"rigid\",\"choice\":false,"));
    assert_non_null(strstr(line, "\"remaining_ns\":null,\"speedup_permille\":null"));
    free(line);
    tear_down(&f);
}

/* ---- an answer that stays in force ---- */

/* Decides by @kept, as a daemon does. Returns what decider_keep() says. */
static int decide_by(struct fixture *f, const struct decider_kept *kept, size_t count)
{
    int64_t cores[JOBS];
    int complete, r;

    assert_int_equal(decider_apply(&f->s, NULL, &f->plan, &f->err), 0);
    complete = decider_keep(&f->s, &f->plan, kept, count, cores);
    r = decider_apply_kept(&f->s, cores, &f->plan, &f->err);
    assert_true(r == 0 || r == -EBADMSG);
    f->refused += r != 0;
    assert_int_equal(policy_plan_check(&f->s, &f->plan, NULL), 0);
    return complete;
}

static void an_answer_stays_in_force_for_jobs_that_stay_as_they_are(void **state)
{
    const int64_t cores[JOBS] = {3, 1, 1, 0};
    struct decider_kept kept[JOBS];
    struct fixture f;

    set_up(&f);
    assert_int_equal(decider_accept(&f.s, cores, kept, &f.err), 3);
    f.s.generation++;
    assert_int_equal(decide_by(&f, kept, 3), 1);
    expect_cores(&f, 3, 1, 1, 2);
    f.jobs[1].max.of[POLICY_MCPU] = 1000; /* equal decides on it anew */
    assert_int_equal(decide_by(&f, kept, 3), 0);
    expect_cores(&f, 3, 1, 1, 2);
    f.jobs[2].id = 9; /* job 3 has left, another one has come */
    f.jobs[2].max.of[POLICY_MCPU] = 4000;
    assert_int_equal(decide_by(&f, kept, 3), 0);
    expect_cores(&f, 3, 1, 2, 2);
    tear_down(&f);
}

static void an_answer_makes_room_for_those_who_come(void **state)
{
    const struct decider_kept kept[] = {{1, 1000, POLICY_UNLIMITED, 4}};
    struct fixture f;

    set_up(&f);
    f.jobs[0].max.of[POLICY_MCPU] = POLICY_UNLIMITED;
    assert_int_equal(policy_job_most(&f.jobs[0], POLICY_MCPU), kept[0].most_mcpu);
    assert_int_equal(decide_by(&f, kept, 1), 0);
    expect_cores(&f, 3, 1, 2, 2); /* its user has four cores */
    tear_down(&f);
}

static void an_answer_names_every_job_that_has_a_choice(void **state)
{
    const int64_t cores[JOBS] = {3, 0, 1, 0};
    struct decider_kept kept[JOBS];
    struct fixture f;

    set_up(&f);
    assert_int_equal(decider_accept(&f.s, cores, kept, &f.err), -EBADMSG);
    assert_non_null(strstr(f.err.text, "leaves job 2 out"));
    tear_down(&f);
}

/* There is room for all minima. */
static void no_kept_answer_exceeds_the_cores_or_a_share(void **state)
{
    struct fixture f;

    srand(7);
    set_up(&f);
    for (int round = 0; round < 3000; round++) {
        struct decider_kept kept[JOBS];
        size_t count = 0;
        int64_t total = 0, shares[2] = {0};

        for (uint32_t i = 0; i < JOBS; i++) {
            f.jobs[i].max.of[POLICY_MCPU] = (1 + rand() % 8) * 1000;
            if (rand() % 3)
                kept[count++] =
                    (struct decider_kept){i + 1, policy_job_least(&f.jobs[i], POLICY_MCPU),
                                          policy_job_most(&f.jobs[i], POLICY_MCPU),
                                          1 + rand() % (f.jobs[i].max.of[POLICY_MCPU] / 1000)};
        }
        policy_machine_init(&f.root, (6 + rand() % 5) * 1000, 0);
        decide_by(&f, kept, count);
        for (uint32_t i = 0; i < JOBS; i++) {
            total += policy_decision_total(&f.plan, i, POLICY_MCPU);
            shares[i / 2] += policy_decision_total(&f.plan, i, POLICY_MCPU);
        }
        assert_true(total <= policy_domain_capacity(&f.s, 0, POLICY_MCPU));
        assert_int_equal(decider_apply(&f.s, NULL, &f.plan, &f.err), 0);
        for (uint32_t i = 0; i < JOBS; i++)
            if (f.plan.decisions[i].user_mcpu)
                assert_true(shares[i / 2] <= f.plan.decisions[i].user_mcpu);
    }
    assert_in_range(f.refused, 1, 1500); /* most are kept, those named too many are not */
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_within_all_bounds_is_taken),
        cmocka_unit_test(a_wrong_answer_is_refused_whole_and_equal_decides),
        cmocka_unit_test(an_answer_stays_in_force_for_jobs_that_stay_as_they_are),
        cmocka_unit_test(an_answer_makes_room_for_those_who_come),
        cmocka_unit_test(an_answer_names_every_job_that_has_a_choice),
        cmocka_unit_test(no_kept_answer_exceeds_the_cores_or_a_share),
        cmocka_unit_test(a_question_is_one_line_with_the_bounds_of_an_answer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
