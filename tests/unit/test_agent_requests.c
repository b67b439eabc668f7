/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When the agent tells the daemon of a program's requests, and what. The clock is the test's, and
 * no control thread runs: the test is it.
 */
#include "agent/agent.h"

#include "base/clock.h"
#include "base/latency.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
void __wrap_agent_notify(void);

static _Atomic uint64_t now_ns;
static _Atomic unsigned wakes;

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    uint64_t now = now_ns; /* once: other threads move it */

    (void)clock;
    *ret = (struct timespec){.tv_sec = (time_t)(now / NS_PER_S), .tv_nsec = (long)(now % NS_PER_S)};
    return 0;
}

void __wrap_agent_notify(void)
{
    wakes++;
}

static int setup(void **state)
{
    (void)state;
    now_ns += NS_PER_S;
    requests_after_fork();
    now_ns += NS_PER_S;
    wakes = 0;
    return 0;
}

static void pass(uint64_t ms)
{
    now_ns += ms * NS_PER_MS;
}

static bool due(void)
{
    return requests_due_ns() <= now_ns;
}

static struct proto_latency tell(bool sent)
{
    struct proto_latency m = {.begun = 0};

    requests_read(now_ns, &m);
    assert_true(m.ended <= m.begun && m.begun - m.ended <= m.most_in_flight);
    requests_told(&m, sent);
    return m;
}

static uint64_t sum(const struct proto_latency *m)
{
    uint64_t n = 0;

    for (unsigned b = 0; b < LATENCY_BUCKETS; b++)
        n += m->bucket[b];
    return n;
}

static void requests_are_counted_by_how_long_they_took(void **state)
{
    static const unsigned ms[] = {5, 5, 50, 700};
    struct proto_latency m;

    for (unsigned i = 0; i < 4; i++) {
        uint64_t began = requests_begin();

        assert_true(began == now_ns);
        pass(ms[i]);
        requests_end(began);
    }
    m = tell(true);
    assert_int_equal(m.begun, 4);
    assert_int_equal(m.ended, 4);
    assert_int_equal(m.most_in_flight, 1);
    assert_int_equal(sum(&m), 4);
    assert_int_equal(m.bucket[latency_bucket(5 * NS_PER_MS)], 2);
    assert_int_equal(m.bucket[latency_bucket(50 * NS_PER_MS)], 1);
    assert_int_equal(m.bucket[latency_bucket(700 * NS_PER_MS)], 1);
    assert_true(m.now_ns == now_ns);
}

static void an_idle_server_tells_nothing(void **state)
{
    uint64_t began;

    assert_true(requests_due_ns() == UINT64_MAX);
    began = requests_begin();
    tell(true);
    pass(1);
    requests_end(began);
    pass(100);
    assert_true(due()); /* the last one ended */
    tell(true);
    assert_true(requests_due_ns() == UINT64_MAX);
    assert_int_equal(wakes, 1);
}

static void what_is_in_flight_is_told_ten_times_a_second(void **state)
{
    requests_begin();
    tell(true);
    for (unsigned i = 0; i < 10; i++) {
        assert_true(requests_due_ns() == now_ns + 100 * NS_PER_MS);
        pass(100);
        tell(true);
    }
    assert_int_equal(wakes, 1);
}

static void the_first_request_after_a_pause_is_told_at_once(void **state)
{
    for (unsigned i = 1; i <= 3; i++) {
        uint64_t began = requests_begin();

        assert_int_equal(wakes, i);
        assert_true(due());
        assert_int_equal(tell(true).begun, i);
        pass(1);
        requests_end(began);
        pass(100);
        tell(true);
        pass(500);
    }
}

static void more_than_twice_as_many_are_told_at_once_but_not_within_10_ms(void **state)
{
    uint64_t told;

    requests_begin();
    requests_begin();
    tell(true);
    told = now_ns;
    pass(3);
    requests_begin();
    requests_begin();
    assert_int_equal(wakes, 1); /* for the first of all; four are not more than twice two */
    assert_true(requests_due_ns() == told + 100 * NS_PER_MS);
    requests_begin();
    assert_int_equal(wakes, 2);
    requests_begin();
    requests_begin();
    assert_int_equal(wakes, 2);
    assert_true(requests_due_ns() == told + 10 * NS_PER_MS);
    pass(7);
    assert_int_equal(tell(true).most_in_flight, 7);
    assert_true(requests_due_ns() == now_ns + 100 * NS_PER_MS);
}

/* @late: the control thread comes when the request has ended. */
static void serve_a_second(bool late)
{
    struct proto_latency m = {.begun = 0};
    unsigned messages = 0;

    for (unsigned ms = 0; ms < 1000; ms++) {
        uint64_t began = requests_begin();

        if (late)
            requests_end(began);
        if (due()) {
            m = tell(true);
            messages++;
        }
        if (!late)
            requests_end(began);
        pass(1);
    }
    assert_in_range(messages, 10, 11);
    assert_true(wakes <= messages);
    assert_in_range(m.ended, 900, 1000);
}

static void one_short_request_after_the_other_does_not_wake_the_agent_each_time(void **state)
{
    serve_a_second(false);
    setup(state);
    serve_a_second(true);
}

static void a_peak_between_two_messages_is_in_the_next(void **state)
{
    uint64_t began[20];

    requests_begin();
    tell(true);
    pass(1);
    for (unsigned i = 0; i < 20; i++)
        began[i] = requests_begin();
    for (unsigned i = 0; i < 20; i++)
        requests_end(began[i]);
    assert_int_equal(tell(true).most_in_flight, 21);
    assert_int_equal(tell(true).most_in_flight, 1);
}

static void what_was_not_sent_is_told_later(void **state)
{
    struct proto_latency m;
    uint64_t began[9];

    for (unsigned i = 0; i < 9; i++)
        began[i] = requests_begin();
    for (unsigned i = 0; i < 9; i++)
        requests_end(began[i]);
    tell(false);
    assert_true(requests_due_ns() == now_ns + 100 * NS_PER_MS);
    requests_begin();
    assert_false(due()); /* a daemon that does not read is not asked more often */
    pass(100);
    assert_true(due());
    m = tell(true);
    assert_int_equal(m.most_in_flight, 9);
    assert_int_equal(m.ended, 9);
    assert_int_equal(m.begun, 10);
}

static void a_new_daemon_hears_of_all(void **state)
{
    requests_end(requests_begin());
    tell(true);
    assert_true(requests_due_ns() == UINT64_MAX);
    requests_untold();
    assert_true(due());
    assert_int_equal(tell(true).ended, 1);
    assert_true(requests_due_ns() == UINT64_MAX);
}

static void a_child_of_fork_begins_at_zero(void **state)
{
    uint64_t parents, own;
    struct proto_latency m;

    parents = requests_begin();
    requests_end(requests_begin());
    requests_end(0);
    pass(1);
    requests_after_fork();
    assert_true(requests_due_ns() == UINT64_MAX);
    pass(1);
    requests_end(parents);
    own = requests_begin();
    m = tell(true);
    assert_int_equal(m.begun, 1);
    assert_int_equal(m.ended, 0);
    assert_int_equal(sum(&m), 0);
    requests_end(own);
    m = tell(true);
    assert_int_equal(m.ended, 1);
    assert_int_equal(sum(&m), 1);
}

static void a_program_that_ends_what_never_began_is_told_as_the_protocol_wants(void **state)
{
    union proto_message m;
    uint64_t began = requests_begin();

    requests_end(now_ns + 1);
    for (unsigned i = 0; i < 3; i++)
        requests_end(began);
    proto_init(&m, PROTO_LATENCY, 0);
    requests_read(now_ns, &m.latency);
    assert_int_equal(m.latency.ended, 3);
    assert_int_equal(m.latency.begun, 3);
    assert_int_equal(proto_check(&m, proto_size(PROTO_LATENCY), NULL), 0);
    requests_told(&m.latency, true);
    assert_true(requests_due_ns() == UINT64_MAX);
}

/* ---- calls of a runtime ---- */

#define ALL ((1u << PROTO_REQUESTS_MAX) - 1)

static void calls_are_requests_where_the_daemon_wants_them(void **state)
{
    struct proto_latency m;
    uint64_t began = requests_call_begin(PROTO_REQUESTS_ONNX, NULL);

    assert_true(began == 0); /* nobody does */
    requests_wanted(ALL, true);
    pass(1);
    requests_call_end(began);
    assert_true(requests_due_ns() == UINT64_MAX);
    for (unsigned i = 1; i <= 3; i++) {
        began = requests_call_begin(PROTO_REQUESTS_ONNX, NULL);
        assert_true(began == now_ns);
        pass(5);
        requests_call_end(began);
    }
    m = tell(true);
    assert_int_equal(m.source, PROTO_REQUESTS_ONNX);
    assert_int_equal(m.ended, 3);
    assert_int_equal(m.bucket[latency_bucket(5 * NS_PER_MS)], 3);
    began = requests_call_begin(PROTO_REQUESTS_ONNX, NULL);
    requests_wanted(ALL, false);
    requests_call_end(began); /* it is not in flight for ever */
    requests_call_end(requests_call_begin(PROTO_REQUESTS_ONNX, NULL));
    m = tell(true);
    assert_int_equal(m.begun, 4);
    assert_int_equal(m.ended, 4);
}

static void a_call_within_a_call_is_none(void **state)
{
    uint64_t outer, inner;
    struct proto_latency m;

    requests_wanted(ALL, true);
    outer = requests_call_begin(PROTO_REQUESTS_ONNX, NULL);
    pass(1);
    for (unsigned i = 0; i < 3; i++) {
        inner = requests_call_begin(PROTO_REQUESTS_ONNX, NULL);
        pass(1);
        requests_call_end(inner);
    }
    assert_int_equal(tell(true).begun, 1);
    requests_call_end(outer);
    m = tell(true);
    assert_int_equal(m.ended, 1);
    assert_int_equal(m.bucket[latency_bucket(4 * NS_PER_MS)], 1);
}

static void a_call_that_returns_before_its_answer_is_in_flight_until_then(void **state)
{
    uint64_t first, second;
    struct proto_latency m;

    requests_wanted(ALL, true);
    first = requests_call_begin(PROTO_REQUESTS_ONNX, NULL);
    requests_call_left();
    second = requests_call_begin(PROTO_REQUESTS_ONNX, NULL); /* not within the first */
    requests_call_left();
    assert_int_equal(tell(true).begun, 2);
    pass(7);
    requests_call_answered(second);
    requests_call_answered(first);
    requests_call_answered(0);
    m = tell(true);
    assert_int_equal(m.ended, 2);
    assert_int_equal(m.bucket[latency_bucket(7 * NS_PER_MS)], 2);
}

static void as_soon_as_the_program_tells_one_calls_are_none(void **state)
{
    uint64_t warming, request;
    struct proto_latency m;

    requests_wanted(ALL, true);
    requests_call_end(requests_call_begin(PROTO_REQUESTS_ONNX, NULL));
    warming = requests_call_begin(PROTO_REQUESTS_ONNX, NULL);
    assert_int_equal(tell(true).source, PROTO_REQUESTS_ONNX);
    request = requests_begin();
    requests_call_end(warming);
    requests_call_end(requests_call_begin(PROTO_REQUESTS_ONNX, NULL));
    m = tell(true);
    assert_int_equal(m.source, PROTO_REQUESTS_TOLD);
    assert_int_equal(m.begun, 1);
    assert_int_equal(m.ended, 0);
    requests_end(request);
    m = tell(true);
    assert_int_equal(m.ended, 1);
    assert_int_equal(sum(&m), 1);
    assert_true(requests_due_ns() == UINT64_MAX);
}

static bool yes(void)
{
    return true;
}

static bool no(void)
{
    return false;
}

static void a_call_that_answers_nothing_is_none_nor_are_those_within(void **state)
{
    uint64_t training, inner;

    requests_wanted(ALL, true);
    training = requests_call_begin(PROTO_REQUESTS_PYTORCH, no);
    inner = requests_call_begin(PROTO_REQUESTS_PYTORCH, yes);
    assert_true(training == 0 && inner == 0);
    requests_call_end(inner);
    requests_call_end(training);
    assert_true(requests_due_ns() == UINT64_MAX);
    requests_call_end(requests_call_begin(PROTO_REQUESTS_PYTORCH, yes));
    assert_int_equal(tell(true).begun, 1);
}

static void a_call_that_fails_was_in_flight_and_has_no_duration(void **state)
{
    uint64_t first, second;
    struct proto_latency m;

    requests_wanted(ALL, true);
    first = requests_call_begin(PROTO_REQUESTS_ONNX, NULL);
    m = tell(true);
    assert_int_equal(m.begun - m.ended, 1);
    requests_call_returned(first, true);
    pass(100);
    assert_true(due()); /* the daemon hears that none is in flight */
    m = tell(true);
    assert_int_equal(m.begun, 1);
    assert_int_equal(m.ended, 1);
    assert_int_equal(sum(&m), 0);
    second = requests_call_begin(PROTO_REQUESTS_ONNX, NULL); /* not within the first */
    assert_true(second > 0);
    requests_call_returned(second, false);
    m = tell(true);
    assert_int_equal(m.ended, 2);
    assert_int_equal(sum(&m), 1);
}

static void the_child_of_a_fork_in_a_call_has_calls_of_its_own(void **state)
{
    uint64_t outer, inner, own;
    struct proto_latency m;

    requests_wanted(ALL, true);
    outer = requests_call_begin(PROTO_REQUESTS_PYTORCH, NULL);
    inner = requests_call_begin(PROTO_REQUESTS_PYTORCH, NULL);
    pass(1);
    requests_after_fork();
    requests_wanted(ALL, true);
    pass(1);
    for (unsigned i = 0; i < 2;
         i++) { /* while it is in its parent's calls, and after it left them */
        own = requests_call_begin(PROTO_REQUESTS_PYTORCH, NULL);
        assert_true(own > 0);
        assert_true(requests_call_begin(PROTO_REQUESTS_PYTORCH, NULL) == 0);
        requests_call_returned(0, false);
        requests_call_returned(own, false);
        requests_call_returned(inner, false);
        requests_call_returned(outer, true);
    }
    m = tell(true);
    assert_int_equal(m.begun, 2);
    assert_int_equal(m.ended, 2);
}

static void a_process_serves_after_some_calls_unless_it_has_trained_before(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 100; i++)
        assert_false(requests_serves(true));
    for (unsigned i = 0; i < 8; i++)
        assert_false(requests_serves(false));
    assert_true(requests_serves(false));
    assert_true(requests_serves(true)); /* in another thread */
    requests_trained = true;
    assert_false(requests_serves(true));
    requests_trained = false;
}

static void calls_of_two_runtimes_count_together_and_have_the_firsts_name(void **state)
{
    struct proto_latency m;

    requests_wanted(ALL, true);
    requests_call_end(requests_call_begin(PROTO_REQUESTS_PYTORCH, NULL));
    requests_call_end(requests_call_begin(PROTO_REQUESTS_ONNX, NULL));
    m = tell(true);
    assert_int_equal(m.source, PROTO_REQUESTS_PYTORCH);
    assert_int_equal(m.ended, 2);
}

static void an_older_daemon_hears_of_sources_that_it_knows(void **state)
{
    uint64_t began;

    requests_wanted(1u << PROTO_REQUESTS_ONNX, true);
    assert_false(requests_want_calls(PROTO_REQUESTS_PYTORCH));
    assert_true(requests_call_begin(PROTO_REQUESTS_PYTORCH, NULL) == 0);
    requests_call_end(0);
    assert_true(requests_want_calls(PROTO_REQUESTS_ONNX));
    requests_wanted(ALL, true);
    began = requests_call_begin(PROTO_REQUESTS_PYTORCH, NULL);
    pass(100);
    assert_true(due());
    requests_wanted(1u << PROTO_REQUESTS_ONNX, true); /* it comes back as an older one */
    assert_false(due());
    requests_call_end(began);
    requests_end(requests_begin());
    assert_true(due());
}

static void the_programs_first_request_is_told_though_as_many_calls_have_ended(void **state)
{
    requests_wanted(ALL, true);
    requests_call_end(requests_call_begin(PROTO_REQUESTS_ONNX, NULL));
    tell(true);
    requests_end(requests_begin());
    pass(100);
    assert_true(due());
}

#define THREADS 4
#define EACH    60000

static void *serve(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < EACH; i++) {
        uint64_t began = requests_begin();

        now_ns += 1000;
        requests_end(began);
    }
    return NULL;
}

static void no_request_is_lost_between_threads(void **state)
{
    pthread_t thread[THREADS];
    struct proto_latency m;

    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, serve, NULL), 0);
    do {
        m = tell(true);
        assert_true(sum(&m) >= m.ended);
    } while (m.ended < THREADS * EACH / 2);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    m = tell(true);
    assert_int_equal(m.begun, THREADS * EACH);
    assert_int_equal(m.ended, THREADS * EACH);
    assert_int_equal(sum(&m), THREADS * EACH);
    assert_in_range(wakes, 1, THREADS * EACH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(requests_are_counted_by_how_long_they_took, setup),
        cmocka_unit_test_setup(an_idle_server_tells_nothing, setup),
        cmocka_unit_test_setup(what_is_in_flight_is_told_ten_times_a_second, setup),
        cmocka_unit_test_setup(the_first_request_after_a_pause_is_told_at_once, setup),
        cmocka_unit_test_setup(more_than_twice_as_many_are_told_at_once_but_not_within_10_ms,
                               setup),
        cmocka_unit_test_setup(one_short_request_after_the_other_does_not_wake_the_agent_each_time,
                               setup),
        cmocka_unit_test_setup(a_peak_between_two_messages_is_in_the_next, setup),
        cmocka_unit_test_setup(what_was_not_sent_is_told_later, setup),
        cmocka_unit_test_setup(a_new_daemon_hears_of_all, setup),
        cmocka_unit_test_setup(a_child_of_fork_begins_at_zero, setup),
        cmocka_unit_test_setup(a_program_that_ends_what_never_began_is_told_as_the_protocol_wants,
                               setup),
        cmocka_unit_test_setup(no_request_is_lost_between_threads, setup),
        cmocka_unit_test_setup(calls_are_requests_where_the_daemon_wants_them, setup),
        cmocka_unit_test_setup(a_call_within_a_call_is_none, setup),
        cmocka_unit_test_setup(a_call_that_fails_was_in_flight_and_has_no_duration, setup),
        cmocka_unit_test_setup(the_child_of_a_fork_in_a_call_has_calls_of_its_own, setup),
        cmocka_unit_test_setup(a_call_that_answers_nothing_is_none_nor_are_those_within, setup),
        cmocka_unit_test_setup(a_process_serves_after_some_calls_unless_it_has_trained_before,
                               setup),
        cmocka_unit_test_setup(calls_of_two_runtimes_count_together_and_have_the_firsts_name,
                               setup),
        cmocka_unit_test_setup(an_older_daemon_hears_of_sources_that_it_knows, setup),
        cmocka_unit_test_setup(a_call_that_returns_before_its_answer_is_in_flight_until_then,
                               setup),
        cmocka_unit_test_setup(as_soon_as_the_program_tells_one_calls_are_none, setup),
        cmocka_unit_test_setup(the_programs_first_request_is_told_though_as_many_calls_have_ended,
                               setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
