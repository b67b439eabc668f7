/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a promise can be kept: each answer rests on a measurement, and without one is "unknown".
 */
#include "policy/core/promise_known.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)

/* A server whose p99 was 40 ms at best, and which kept 50 ms with three cores; eight may be had. */
static const struct promise_known usual = {.requests = 5000,
                                           .fastest_ns = 12 * MS,
                                           .best_ns = 40 * MS,
                                           .best_cores = 6,
                                           .tried = 8,
                                           .kept_promise_ns = 50 * MS,
                                           .kept_seconds = 600,
                                           .kept_permille = 996,
                                           .kept_mcpu = 3100};

static void judged(const struct promise_known *known, struct promise_asked asked,
                   enum promise_keepable keepable, enum promise_ground ground)
{
    enum promise_ground got;

    assert_int_equal(promise_judge(known, &asked, &got), keepable);
    assert_int_equal(got, ground);
}

static struct promise_asked of(uint64_t ms)
{
    return (struct promise_asked){.promise_ns = ms * MS, .cores = 8};
}

static void a_first_run_is_unknown(void **state)
{
    judged(&(struct promise_known){0}, of(1), PROMISE_UNKNOWN, PROMISE_FIRST_RUN);
}

static void no_promise_is_shorter_than_the_fastest_request(void **state)
{
    struct promise_known few = usual;

    judged(&usual, of(10), PROMISE_UNKEEPABLE, PROMISE_FASTEST);
    few.requests = 99; /* says little */
    few.best_ns = 0;
    judged(&few, of(10), PROMISE_UNKNOWN, PROMISE_LESS);
}

static void the_best_p99_counts_where_all_cores_were_tried(void **state)
{
    struct promise_asked more = of(30);

    judged(&usual, of(30), PROMISE_UNKEEPABLE, PROMISE_BEST);
    more.cores = 12;
    judged(&usual, more, PROMISE_UNKNOWN, PROMISE_LESS);
    judged(&usual, of(45), PROMISE_UNKNOWN, PROMISE_LESS);
}

static void a_promise_that_was_kept_can_be_kept_and_so_can_a_longer_one(void **state)
{
    struct promise_known shortly = usual, badly = usual;

    judged(&usual, of(50), PROMISE_KEEPABLE, PROMISE_WAS_KEPT);
    judged(&usual, of(500), PROMISE_KEEPABLE, PROMISE_WAS_KEPT);
    shortly.kept_seconds = 59;
    judged(&shortly, of(50), PROMISE_UNKNOWN, PROMISE_FIRST_RUN);
    badly.kept_permille = 980;
    judged(&badly, of(50), PROMISE_UNKNOWN, PROMISE_FIRST_RUN);
}

static void promises_of_others_leave_too_little(void **state)
{
    struct promise_asked asked = of(50);

    asked.others = 4;
    judged(&usual, asked, PROMISE_KEEPABLE, PROMISE_WAS_KEPT);
    asked.others = 5; /* it may need fewer than it had: cores that nobody wanted stayed with it */
    judged(&usual, asked, PROMISE_UNKNOWN, PROMISE_CROWDED);
    asked.others = 7;
    judged(&(struct promise_known){0}, asked, PROMISE_UNKNOWN, PROMISE_TAKEN);
    asked.others = 9; /* more than there are */
    judged(&usual, asked, PROMISE_UNKNOWN, PROMISE_CROWDED);
}

static void a_minimum_beyond_what_it_may_have_cannot_be(void **state)
{
    struct promise_asked asked = of(50);

    asked.min = 8;
    judged(&usual, asked, PROMISE_KEEPABLE, PROMISE_WAS_KEPT);
    asked.min = 9;
    judged(&usual, asked, PROMISE_UNKEEPABLE, PROMISE_MINIMUM);
}

static void what_was_just_tried_counts(void **state)
{
    struct promise_asked asked = of(50);

    asked.why = PROMISE_IMPOSSIBLE;
    judged(&usual, asked, PROMISE_UNKEEPABLE, PROMISE_GIVEN_UP_NOW);
    asked.why = PROMISE_NEAR;
    judged(&usual, asked, PROMISE_KEEPABLE, PROMISE_WAS_KEPT);
}

static void windows_add_up(void **state)
{
    struct promise_known k = {0};

    promise_known_window(&k, 0, 4);
    promise_known_window(&k, 90 * MS, 0);
    assert_int_equal(k.tried, 0);
    promise_known_window(&k, 90 * MS, 4);
    promise_known_window(&k, 70 * MS, 2);
    promise_known_window(&k, 80 * MS, 8);
    assert_true(k.best_ns == 70 * MS && k.best_cores == 2 && k.tried == 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_first_run_is_unknown),
        cmocka_unit_test(no_promise_is_shorter_than_the_fastest_request),
        cmocka_unit_test(the_best_p99_counts_where_all_cores_were_tried),
        cmocka_unit_test(a_promise_that_was_kept_can_be_kept_and_so_can_a_longer_one),
        cmocka_unit_test(promises_of_others_leave_too_little),
        cmocka_unit_test(a_minimum_beyond_what_it_may_have_cannot_be),
        cmocka_unit_test(what_was_just_tried_counts),
        cmocka_unit_test(windows_add_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
