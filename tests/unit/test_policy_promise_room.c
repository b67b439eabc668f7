/* SPDX-License-Identifier: Apache-2.0 */
/* Promises in a snapshot: minima and maxima, who yields, one promise beside another. */
#include "policy/core/promise_room.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define JOBS   4
#define CORES  8
#define MS     UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)

static struct promise_room room[JOBS], *rooms[JOBS];
static struct policy_job policy[JOBS];
static struct promise_state stage;

static void divide(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        policy_job_init(&policy[i], i + 1);
        policy[i].malleability = POLICY_MALLEABLE;
        policy[i].state = POLICY_RUNNING;
        policy[i].min.of[POLICY_MCPU] = POLICY_CORE_MCPU;
        policy[i].max.of[POLICY_MCPU] = CORES * POLICY_CORE_MCPU;
    }
    promise_room_divide(rooms, policy, count, CORES * POLICY_CORE_MCPU);
}

/* The first two are servers that need nothing yet, the others batch jobs. */
static int set_up(void **state)
{
    memset(room, 0, sizeof(room));
    memset(&stage, 0, sizeof(stage));
    for (uint32_t i = 0; i < JOBS; i++) {
        rooms[i] = &room[i];
        room[i].id = i + 1;
        room[i].wanted = true;
        room[i].promised = i < 2;
        room[i].may_yield = i >= 2;
    }
    divide(JOBS); /* their needs are not known yet */
    return 0;
}

static void needs(uint32_t i, uint32_t cores)
{
    room[i].need = cores;
    room[i].binds = cores > 0;
}

static int64_t least(uint32_t i)
{
    return policy[i].min.of[POLICY_MCPU] / POLICY_CORE_MCPU;
}

static int64_t most(uint32_t i)
{
    return policy[i].max.of[POLICY_MCPU] / POLICY_CORE_MCPU;
}

static void a_need_is_minimum_and_maximum_within_what_others_leave(void **state)
{
    needs(0, 3);
    divide(JOBS);
    assert_int_equal(least(0), 3);
    assert_int_equal(most(0), 3);
    assert_int_equal(room[0].most, CORES - 3);
    needs(0, CORES);
    divide(JOBS);
    assert_int_equal(least(0), CORES - 3);
}

static void without_a_request_or_a_promise_nothing_is_bounded(void **state)
{
    divide(JOBS);
    for (uint32_t i = 0; i < JOBS; i++) {
        assert_int_equal(least(i), 1);
        assert_int_equal(most(i), CORES);
    }
    room[1].promised = false;
    room[1].need = 4;
    divide(JOBS);
    assert_int_equal(room[1].need, 0);
    assert_int_equal(room[1].most, 0);
}

static void alone_it_is_not_bounded(void **state)
{
    needs(0, 2);
    room[1].wanted = room[2].wanted = room[3].wanted = false;
    divide(JOBS);
    assert_true(room[0].alone);
    assert_int_equal(most(0), CORES);
}

static void the_users_share_bounds_it(void **state)
{
    room[2].user = room[3].user = 7;
    room[0].user_mcpu = 4 * POLICY_CORE_MCPU;
    needs(0, CORES);
    divide(JOBS);
    assert_int_equal(least(0), 3); /* the other server keeps its minimum */
}

static void what_may_yield_does_where_the_others_minima_leave_too_little(void **state)
{
    room[0].may_share = true;
    needs(0, CORES - 1);
    divide(JOBS);
    assert_int_equal(room[0].own, CORES - 3);
    assert_int_equal(room[0].most, CORES - 1); /* two batch jobs yield */
    assert_int_equal(room[0].threads, CORES - 1);
    assert_int_equal(room[2].yields_to, 1);
    assert_int_equal(room[3].yields_to, 1);
    assert_int_equal(room[1].yields_to, 0);
    needs(0, 2);
    divide(JOBS);
    assert_int_equal(room[0].threads, 0);
    assert_int_equal(room[2].yields_to, 0);
}

static void a_promise_that_is_given_up_is_a_minimum_only(void **state)
{
    needs(0, 4);
    room[0].why = PROMISE_IMPOSSIBLE;
    divide(JOBS);
    assert_int_equal(least(0), 4);
    assert_int_equal(most(0), CORES);
}

/* The older one asks for all: the younger one keeps what it needs, and the batch jobs a core. */
static void a_promise_leaves_the_next_one_what_it_needs(void **state)
{
    needs(0, 2), needs(1, 3);
    divide(JOBS);
    assert_int_equal(room[0].most, 3); /* 8 - 3 - 1 - 1 */
    assert_int_equal(room[0].left, 2);
    assert_int_equal(room[1].most, 4);
    needs(0, CORES);
    divide(JOBS);
    assert_int_equal(least(0), 3);
    assert_int_equal(least(1), 3);
    room[1].why = PROMISE_NO_GAIN; /* a promise that is given up needs nothing */
    divide(JOBS);
    assert_int_equal(room[0].most, CORES - 3);
    room[1].why = PROMISE_KEPT;
    room[1].user = 9; /* users' shares are what divides between users */
    divide(JOBS);
    assert_int_equal(room[0].most, CORES - 3);
}

static void look(uint64_t at_ms, uint64_t p99_ms, uint32_t has)
{
    struct promise_look l = {.now_ns = SECOND + at_ms * MS,
                             .promise_ns = 50 * MS,
                             .p99_ns = p99_ms * MS,
                             .window_ns = 3 * SECOND / 2,
                             .ended = 200,
                             .in_flight = 4,
                             .most_in_flight = 4,
                             .has = has};

    promise_room_need(&room[0], &stage, &l);
}

/* Not even with all the rest: then the older one comes first, until its trial is over. */
static void the_one_in_front_comes_first_where_the_rest_is_too_little(void **state)
{
    needs(0, 2), needs(1, 3);
    divide(JOBS);
    for (uint64_t ms = 0; ms < 1000; ms += 100)
        look(ms, 70, 2);
    assert_int_equal(room[0].need, 3); /* all that is left by the other */
    assert_false(room[0].presses);
    divide(JOBS);
    for (uint64_t ms = 1000; ms < 4000 && !room[0].presses; ms += 100)
        look(ms, 70, 3);
    assert_true(room[0].presses);
    assert_int_equal(room[0].need, 5);
    divide(JOBS);
    assert_int_equal(least(0), 5);
    assert_int_equal(least(1), 1);
    for (uint64_t ms = 4000; ms < 8000; ms += 100)
        look(ms, 30, 5);
    assert_false(room[0].presses);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_need_is_minimum_and_maximum_within_what_others_leave, set_up),
        cmocka_unit_test_setup(without_a_request_or_a_promise_nothing_is_bounded, set_up),
        cmocka_unit_test_setup(alone_it_is_not_bounded, set_up),
        cmocka_unit_test_setup(the_users_share_bounds_it, set_up),
        cmocka_unit_test_setup(what_may_yield_does_where_the_others_minima_leave_too_little,
                               set_up),
        cmocka_unit_test_setup(a_promise_that_is_given_up_is_a_minimum_only, set_up),
        cmocka_unit_test_setup(a_promise_leaves_the_next_one_what_it_needs, set_up),
        cmocka_unit_test_setup(the_one_in_front_comes_first_where_the_rest_is_too_little, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
