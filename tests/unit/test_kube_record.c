/* SPDX-License-Identifier: Apache-2.0 */
/* The states of a training's record (kube/view/record.h). */
#include "kube/view/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static const enum record_state first_of[RECORD_REGIONS + 1] = {
    LIFE_WAITS, WORKERS_ENOUGH, SERVERS_ENOUGH, SAMPLE_COLD, THREADS_FOLLOW, RECORD_STATE_MAX};

static void each_region_stays_in_its_own_states(void **state)
{
    bool seen[RECORD_STATE_MAX] = {false};
    struct record r;

    srandom(12);
    record_init(&r);
    for (int i = 0; i < 10000; i++) {
        record_move(&r, (enum record_event)(random() % RECORD_EVENT_MAX), i);
        for (int region = 0; region < RECORD_REGIONS; region++) {
            enum record_state now = r.stage[region].state;

            assert_true(now >= first_of[region] && now < first_of[region + 1]);
            seen[now] = true;
        }
    }
    for (int s = 0; s < RECORD_STATE_MAX; s++)
        assert_true(seen[s]);
}

static void a_state_keeps_the_time_at_which_it_began(void **state)
{
    struct record r;

    record_init(&r);
    record_move(&r, ON_LACK_WORKERS, 5);
    record_move(&r, ON_LACK_WORKERS, 9);
    assert_int_equal(record_since(&r, WORKERS_DUE), 5);
    record_move(&r, ON_CHANGE, 10);
    assert_int_equal(record_since(&r, WORKERS_DUE), 0);
    record_move(&r, ON_LACK_WORKERS, 11);
    assert_int_equal(record_since(&r, WORKERS_DUE), 11);
}

/* A training that is deleted while it is suspended has drained since it was suspended. */
static void draining_begins_once(void **state)
{
    struct record r;

    record_init(&r);
    record_move(&r, ON_RUN, 3);
    record_move(&r, ON_DRAIN, 7);
    record_move(&r, ON_DRAIN, 8);
    assert_int_equal(record_since(&r, LIFE_RUNS), 0);
    assert_int_equal(record_since(&r, LIFE_DRAINS), 7);
}

static void servers_are_ordered_only_when_they_were_due(void **state)
{
    struct record r;

    record_init(&r);
    record_move(&r, ON_ORDER_SERVERS, 1);
    assert_int_equal(record_since(&r, SERVERS_ORDERED), 0);
    record_move(&r, ON_LACK_SERVERS, 2);
    record_move(&r, ON_HAVE_SERVERS, 3); /* another server came: these are due still */
    assert_int_equal(record_since(&r, SERVERS_DUE), 2);
    record_move(&r, ON_ORDER_SERVERS, 4);
    record_move(&r, ON_DROP_SERVERS, 5);
    assert_int_equal(record_since(&r, SERVERS_ORDERED), 4);
}

static void the_first_sample_of_a_size_is_told_from_the_later_ones(void **state)
{
    struct record r;

    record_init(&r);
    record_move(&r, ON_BEGIN_SAMPLE, 1);
    record_move(&r, ON_VOID_SAMPLE, 2);
    record_move(&r, ON_BEGIN_SAMPLE, 3);
    assert_int_equal(record_since(&r, SAMPLE_FIRST), 3);
    record_move(&r, ON_END_SAMPLE, 4);
    assert_int_equal(record_since(&r, SAMPLE_OPEN), 4);
    record_move(&r, ON_CHANGE, 5);
    record_move(&r, ON_BEGIN_SAMPLE, 6);
    assert_int_equal(record_since(&r, SAMPLE_OPEN), 6);
    record_move(&r, ON_NEW_SIZE, 7);
    record_move(&r, ON_BEGIN_SAMPLE, 8);
    assert_int_equal(record_since(&r, SAMPLE_FIRST), 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_region_stays_in_its_own_states),
        cmocka_unit_test(a_state_keeps_the_time_at_which_it_began),
        cmocka_unit_test(draining_begins_once),
        cmocka_unit_test(servers_are_ordered_only_when_they_were_due),
        cmocka_unit_test(the_first_sample_of_a_size_is_told_from_the_later_ones),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
