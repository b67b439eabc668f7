/* SPDX-License-Identifier: Apache-2.0 */
/* How the control thread is woken. No control thread runs: the test is it. */
#include "agent/agent.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define NOTICES     50000
#define DEADLINE_MS 5000 /* a lost notice would be waited for as long as this */

static int setup(void **state)
{
    (void)state;
    wake_after_fork();
    wake_ensure();
    return 0;
}

static bool readable(int timeout_ms)
{
    struct pollfd fd = {.fd = wake_fd(), .events = POLLIN};

    return poll(&fd, 1, timeout_ms) == 1;
}

static void a_notice_to_a_thread_that_is_awake_keeps_it_awake_without_a_byte(void **state)
{
    (void)state;
    agent_notify();
    assert_false(readable(0));
    assert_false(wake_may_sleep());
    wake_slept();
    wake_drain();
    assert_true(wake_may_sleep());
    wake_slept();
}

static void a_notice_to_a_thread_that_sleeps_wakes_it_once(void **state)
{
    (void)state;
    wake_drain();
    assert_true(wake_may_sleep());
    agent_notify();
    assert_true(readable(0));
    wake_slept();
    wake_drain();
    assert_false(readable(0));
    assert_true(wake_may_sleep());
    assert_false(readable(0));
    wake_slept();
}

static _Atomic unsigned given, taken;

/* Gives a notice, and the next one as soon as the control thread has seen it. */
static void *give(void *arg)
{
    for (unsigned i = 1; i <= NOTICES && !*(_Atomic bool *)arg; i++) {
        given = i;
        agent_notify();
        while (taken < i && !*(_Atomic bool *)arg)
            ;
    }
    return NULL;
}

static void no_notice_is_lost_whenever_it_comes(void **state)
{
    _Atomic bool lost = false;
    pthread_t thread;

    (void)state;
    given = taken = 0;
    assert_int_equal(pthread_create(&thread, NULL, give, (void *)&lost), 0);
    while (taken < NOTICES && !lost) {
        wake_drain();
        taken = given;
        if (taken < NOTICES && wake_may_sleep())
            lost = !readable(DEADLINE_MS);
        wake_slept();
    }
    pthread_join(thread, NULL);
    assert_false(lost);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_notice_to_a_thread_that_is_awake_keeps_it_awake_without_a_byte,
                               setup),
        cmocka_unit_test_setup(a_notice_to_a_thread_that_sleeps_wakes_it_once, setup),
        cmocka_unit_test_setup(no_notice_is_lost_whenever_it_comes, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
