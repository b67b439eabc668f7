/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/top/top_model.h"

#include "base/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static json_t *jobs_of(const char *text)
{
    json_t *jobs = json_loads(text, 0, NULL);

    assert_non_null(jobs);
    return jobs;
}

/* The newest sample of @cpus cores and @text's jobs as signs, one for each slot. */
static void assert_owners(unsigned cpus, const char *text, const char *expected)
{
    struct top_model m;
    json_t *jobs = jobs_of(text);
    char signs[64] = "";

    assert_int_equal(top_model_init(&m, cpus), 0);
    top_model_add(&m, jobs);
    assert_int_equal(top_slots(&m), strlen(expected));
    for (unsigned slot = 0; slot < top_slots(&m); slot++)
        signs[slot] = (char)('0' + top_model_owner(&m, 0, slot));
    assert_string_equal(signs, expected);
    top_model_done(&m);
    json_decref(jobs);
}

static void shared_jobs_get_what_their_targets_say(void **state)
{
    assert_owners(4, "[{\"id\":\"j1\",\"target\":1},{\"id\":\"j2\",\"target\":2}]", "111222222000");
}

static void targets_above_the_machine_shrink_in_proportion(void **state)
{
    assert_owners(2, "[{\"id\":\"j1\",\"target\":8},{\"id\":\"j2\",\"target\":4}]", "111111112222");
    assert_owners(
        2,
        "[{\"id\":\"j1\",\"target\":1},{\"id\":\"j2\",\"target\":1},{\"id\":\"j3\",\"target\":1}]",
        "111122223333");
}

static void exclusive_jobs_keep_their_cores(void **state)
{
    assert_owners(4,
                  "[{\"id\":\"j1\",\"target\":9},"
                  "{\"id\":\"j2\",\"target\":2,\"placement\":\"exclusive\",\"cores\":\"1-2\"}]",
                  "111222222111");
}

static void odd_answers_are_survived(void **state)
{
    assert_owners(2, "[]", "000000000000");
    assert_owners(2, "[{},{\"id\":\"j1\",\"target\":-5},{\"id\":7,\"target\":\"x\"}]",
                  "000000000000");
    assert_owners(2,
                  "[{\"id\":\"j1\",\"placement\":\"exclusive\",\"cores\":\"5-9\"},"
                  "{\"id\":\"j2\",\"placement\":\"exclusive\",\"cores\":\"x\"}]",
                  "000000000000");
    assert_owners(2, "[{\"id\":\"j1\",\"target\":9223372036854775807}]", "111111111111");
}

static void large_machine_has_a_slot_for_each_core(void **state)
{
    struct top_model m;

    assert_int_equal(top_model_init(&m, 128), 0);
    assert_int_equal(top_slots(&m), 128);
    top_model_done(&m);
}

static void history_keeps_the_newest_samples(void **state)
{
    json_t *one = jobs_of("[{\"id\":\"j1\",\"target\":1}]");
    json_t *two = jobs_of("[{\"id\":\"j2\",\"target\":1}]");
    struct top_model m;

    assert_int_equal(top_model_init(&m, 1), 0);
    assert_int_equal(top_model_owner(&m, 0, 0), -1);
    top_model_add(&m, one);
    assert_int_equal(top_model_owner(&m, 0, 0), 1);
    assert_int_equal(top_model_owner(&m, 1, 0), -1);
    for (unsigned i = 0; i < TOP_SAMPLES; i++)
        top_model_add(&m, two);
    assert_int_equal(top_model_owner(&m, 0, 0), 2);
    assert_int_equal(top_model_owner(&m, TOP_SAMPLES - 1, 0), 2);
    assert_int_equal(top_model_owner(&m, TOP_SAMPLES, 0), -1);
    assert_int_equal(top_model_owner(&m, 0, 12), -1);
    top_model_done(&m);
    json_decref(one);
    json_decref(two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_jobs_get_what_their_targets_say),
        cmocka_unit_test(targets_above_the_machine_shrink_in_proportion),
        cmocka_unit_test(exclusive_jobs_keep_their_cores),
        cmocka_unit_test(odd_answers_are_survived),
        cmocka_unit_test(large_machine_has_a_slot_for_each_core),
        cmocka_unit_test(history_keeps_the_newest_samples),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
