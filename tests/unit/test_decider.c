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
        assert_int_equal(answer(&f, rows[i].line), -EBADMSG);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_within_all_bounds_is_taken),
        cmocka_unit_test(a_wrong_answer_is_refused_whole_and_equal_decides),
        cmocka_unit_test(a_question_is_one_line_with_the_bounds_of_an_answer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
