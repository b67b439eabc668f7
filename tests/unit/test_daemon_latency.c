/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of a job: the window, seconds that are judged, processes that begin anew. */
#include "base/clock.h"
#include "daemon/job/job.h"
#include "daemon/job/latency.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define BEGIN (100 * NS_PER_S)
#define MS(n) ((n)*NS_PER_MS)

static struct job job;
static struct process process[2];
static struct proto_latency said[2]; /* what their agents have told */

static int set_up(void **state)
{
    memset(&job, 0, sizeof(job));
    memset(process, 0, sizeof(process));
    memset(said, 0, sizeof(said));
    job.processes = process;
    process[0].next = &process[1];
    process[0].job = process[1].job = &job;
    job.met_ns = job.created_ns = BEGIN;
    job.asked.attributes.slo_us = 50000;
    return 0;
}

/* @count more requests of @ms ended, and @in_flight have not. */
static void tell(unsigned p, uint64_t at_ns, uint32_t count, uint64_t ms, uint32_t in_flight)
{
    said[p].bucket[latency_bucket(MS(ms))] += count;
    said[p].ended += count;
    said[p].begun = said[p].ended + in_flight;
    said[p].most_in_flight = in_flight;
    latency_told(&process[p], &said[p], at_ns);
}

static struct latency_window window(uint64_t at_ns)
{
    struct latency_window w = {0};

    assert_true(latency_look(&job, at_ns, &w));
    return w;
}

static void nothing_is_known_before_the_first_message(void **state)
{
    struct latency_window w;

    assert_false(latency_window(&job, BEGIN, &w));
}

static void the_window_holds_the_last_second_or_two(void **state)
{
    tell(0, BEGIN, 10, 20, 1);
    assert_int_equal(window(BEGIN + MS(900)).ended, 10);
    tell(0, BEGIN + MS(1100), 5, 20, 0);
    assert_int_equal(window(BEGIN + MS(1100)).ended, 15);
    assert_in_range(window(BEGIN + MS(1500)).window_ns, MS(1499), MS(1501));
    assert_in_range(window(BEGIN + MS(1500)).per_second, 9, 10); /* 10 in 1.1 s */
    assert_int_equal(window(BEGIN + MS(2200)).ended, 5);
    assert_int_equal(window(BEGIN + MS(3300)).ended, 0);
    assert_true(window(BEGIN + MS(9000)).p99_ns == 0);
    assert_int_equal(job.latency.requests, 15);
}

static void a_look_that_changes_nothing_says_the_same(void **state)
{
    struct latency_window a, b;

    tell(0, BEGIN, 10, 20, 2);
    for (uint64_t ms = 100; ms < 3000; ms += 300) {
        assert_true(latency_window(&job, BEGIN + MS(ms), &a));
        b = window(BEGIN + MS(ms));
        assert_int_equal(a.ended, b.ended);
        assert_true(a.p99_ns == b.p99_ns && a.in_flight == b.in_flight);
    }
}

static void seconds_are_judged_by_their_p99(void **state)
{
    tell(0, BEGIN, 200, 20, 0);
    tell(0, BEGIN + MS(1000), 1, 80, 0); /* of 200 that are fast one may be slow */
    tell(0, BEGIN + MS(1100), 199, 20, 0);
    tell(0, BEGIN + MS(2000), 10, 80, 0);
    window(BEGIN + MS(3000));
    assert_int_equal(job.latency.seconds.judged, 3);
    assert_int_equal(job.latency.seconds.kept, 2);
    window(BEGIN + MS(9000)); /* no requests: nothing to judge */
    assert_int_equal(job.latency.seconds.judged, 3);
}

static void requests_that_never_end_are_slow_and_after_a_minute_forgotten(void **state)
{
    tell(0, BEGIN, 10, 20, 3);
    assert_true(window(BEGIN + MS(4000)).p99_ns >= MS(3000));
    assert_int_equal(window(BEGIN + MS(5000)).ended, 3);
    assert_true(job.latency.seconds.judged > job.latency.seconds.kept);
    assert_int_equal(window(BEGIN + MS(61000)).in_flight, 0);
    assert_true(window(BEGIN + MS(61000)).p99_ns == 0);
}

static void processes_count_together_and_one_that_leaves_has_none_in_flight(void **state)
{
    tell(0, BEGIN, 5, 20, 2);
    tell(1, BEGIN, 5, 30, 4);
    assert_int_equal(window(BEGIN + 1).in_flight, 6);
    assert_int_equal(window(BEGIN + 1).ended, 10);
    assert_int_equal(latency_take_most(&job, 6), 6);
    tell(1, BEGIN + MS(10), 0, 30, 9);
    assert_int_equal(latency_take_most(&job, 11), 11);
    latency_gone(&process[1]);
    assert_int_equal(window(BEGIN + MS(20)).in_flight, 2);
}

static void another_program_in_a_process_counts_from_zero(void **state)
{
    tell(0, BEGIN, 5, 20, 0);
    memset(&said[0], 0, sizeof(said[0]));
    tell(0, BEGIN + MS(100), 50, 30, 0); /* more than before, in other buckets */
    assert_int_equal(window(BEGIN + MS(100)).ended, 55);
    assert_int_equal(job.latency.requests, 55);
}

static void what_an_earlier_daemon_counted_does_not_count_again(void **state)
{
    job.created_ns = BEGIN - 1;
    tell(0, BEGIN, 100000, 900, 2);
    assert_int_equal(window(BEGIN).ended, 0);
    assert_int_equal(window(BEGIN).in_flight, 2);
    tell(0, BEGIN + MS(100), 3, 20, 2);
    assert_int_equal(window(BEGIN + MS(100)).ended, 3);
}

static void counts_of_buckets_may_wrap(void **state)
{
    job.created_ns = BEGIN - 1;
    said[0].bucket[latency_bucket(MS(20))] = UINT32_MAX - 1;
    tell(0, BEGIN, 0, 20, 0);
    tell(0, BEGIN + MS(100), 5, 20, 0);
    assert_int_equal(window(BEGIN + MS(100)).ended, 5);
}

static void calls_of_a_process_are_none_where_another_tells_requests(void **state)
{
    said[0].source = PROTO_REQUESTS_ONNX;
    tell(0, BEGIN, 5, 20, 3);
    assert_int_equal(job.latency.source, PROTO_REQUESTS_ONNX);
    assert_int_equal(window(BEGIN + MS(10)).in_flight, 3);
    tell(1, BEGIN + MS(1100), 2, 80, 1); /* what ended before was no request, either */
    assert_int_equal(job.latency.source, PROTO_REQUESTS_TOLD);
    tell(0, BEGIN + MS(1200), 50, 20, 4);
    assert_int_equal(window(BEGIN + MS(1200)).ended, 2);
    assert_int_equal(window(BEGIN + MS(1200)).in_flight, 1);
    assert_int_equal(job.latency.requests, 2);
    assert_int_equal(job.latency.seconds.judged, 0);
}

static void calls_of_two_runtimes_in_two_processes_count_together(void **state)
{
    said[0].source = PROTO_REQUESTS_PYTORCH;
    said[1].source = PROTO_REQUESTS_ONNX;
    tell(0, BEGIN, 5, 20, 1);
    tell(1, BEGIN + MS(100), 2, 80, 1);
    assert_int_equal(job.latency.source, PROTO_REQUESTS_PYTORCH);
    assert_int_equal(window(BEGIN + MS(110)).ended, 7);
    assert_int_equal(window(BEGIN + MS(110)).in_flight, 2);
}

static void a_process_that_begins_to_tell_counts_from_zero(void **state)
{
    job.created_ns = BEGIN - 1; /* also under a daemon that has met it */
    said[0].source = PROTO_REQUESTS_ONNX;
    tell(0, BEGIN, 5, 20, 0);
    tell(0, BEGIN + MS(100), 2, 20, 0);
    assert_int_equal(job.latency.requests, 2);
    memset(&said[0], 0, sizeof(said[0]));
    tell(0, BEGIN + MS(200), 9, 20, 1);
    assert_int_equal(job.latency.requests, 9);
    assert_int_equal(window(BEGIN + MS(200)).in_flight, 1);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup(name, set_up)
    const struct CMUnitTest tests[] = {
        T(nothing_is_known_before_the_first_message),
        T(the_window_holds_the_last_second_or_two),
        T(a_look_that_changes_nothing_says_the_same),
        T(seconds_are_judged_by_their_p99),
        T(requests_that_never_end_are_slow_and_after_a_minute_forgotten),
        T(processes_count_together_and_one_that_leaves_has_none_in_flight),
        T(another_program_in_a_process_counts_from_zero),
        T(what_an_earlier_daemon_counted_does_not_count_again),
        T(counts_of_buckets_may_wrap),
        T(calls_of_a_process_are_none_where_another_tells_requests),
        T(calls_of_two_runtimes_in_two_processes_count_together),
        T(a_process_that_begins_to_tell_counts_from_zero),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
