/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instances × threads of a server of several processes: any looks, looks by hand, and a prefork
 * server in small, in which the shape acts on the time of requests and on those in flight.
 */
#include "policy/core/instances.h"

#include "sanitized.h"
#include "test_random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS     UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)

static void assert_bounds(struct instances_shape shape, uint32_t cores, uint32_t processes)
{
    uint32_t most_cores = cores ? cores : 1, most = processes ? processes : 1;

    assert_in_range(shape.count, 1, most < most_cores ? most : most_cores);
    assert_in_range(shape.threads, 1, most_cores);
    assert_true((uint64_t)shape.count * shape.threads <= most_cores);
}

/* ---- any looks ------------------------------------------------------------------------------- */

static uint32_t any_number(void)
{
    return one_in(4) ? random_below(9) : (uint32_t)(random_next() >> (32 + random_below(32)));
}

static void never_more_threads_at_work_than_cores(void **state)
{
    struct instances_state s = {0};
    struct instances_look l = {.now_ns = SECOND, .cores = 4, .processes = 4};

    random_state = 3;
    for (uint32_t i = 0; i < TIMES(1000000); i++) {
        l.now_ns = one_in(50) ? random_next() : l.now_ns + random_below(1u << 28);
        if (one_in(20))
            l.cores = any_number();
        if (one_in(20))
            l.processes = any_number();
        l.at_work = any_number();
        l.service_ns = one_in(4) ? random_next() : any_number();
        l.window_ns = one_in(8) ? random_next() : SECOND;
        l.ended = any_number();
        assert_bounds(instances_choose(&s, &l), l.cores, l.processes);
        if (one_in(1000))
            memset(&s, 0, sizeof(s));
    }
}

/* ---- looks by hand --------------------------------------------------------------------------- */

static struct instances_state s;
static struct instances_look l;
static struct instances_shape shape;

/* A server of @processes on four cores; a request takes a second of a thread, on each of two half.
 */
static void setup(uint32_t processes)
{
    memset(&s, 0, sizeof(s));
    l = (struct instances_look){.now_ns = 1000 * SECOND,
                                .cores = 4,
                                .processes = processes,
                                .at_work = 1,
                                .service_ns = 80 * MS,
                                .window_ns = 3 * SECOND / 2,
                                .ended = 20};
}

/* Looks for so long while a request takes @base_ms / threads, but not less than @least_ms. */
static void look_for(uint32_t ms, uint32_t base_ms, uint32_t least_ms)
{
    for (; ms >= 100; ms -= 100) {
        uint32_t took_ms = shape.threads ? base_ms / shape.threads : base_ms;

        l.now_ns += 100 * MS;
        l.service_ns = (took_ms > least_ms ? took_ms : least_ms) * MS;
        l.ended = (uint32_t)(l.at_work * l.window_ns / l.service_ns);
        shape = instances_choose(&s, &l);
        assert_bounds(shape, l.cores, l.processes);
    }
}

static void assert_shape(uint32_t count, uint32_t threads)
{
    assert_int_equal(shape.count, count);
    assert_int_equal(shape.threads, threads);
}

static void it_begins_with_even_parts(void **state)
{
    setup(4);
    look_for(100, 80, 0);
    assert_shape(4, 1);
    setup(2);
    look_for(100, 80, 0);
    assert_shape(2, 2);
    setup(9);
    look_for(100, 80, 0);
    assert_shape(4, 1);
}

static void one_request_at_a_time_gets_all_threads(void **state)
{
    setup(4);
    look_for(3000, 80, 0);
    assert_shape(2, 2);
    look_for(3000, 80, 0);
    assert_shape(1, 4);
    look_for(600000, 80, 0);
    assert_shape(1, 4);
}

static void many_at_work_narrow_it_soon(void **state)
{
    setup(4);
    look_for(10000, 80, 0);
    assert_shape(1, 4);
    l.at_work = 4;
    look_for(300, 80, 0);
    assert_shape(4, 1);
}

static void two_at_a_time_narrow_it_when_they_last(void **state)
{
    setup(4);
    look_for(10000, 80, 0);
    assert_shape(1, 4);
    l.at_work = 2;
    look_for(500, 80, 0);
    for (uint32_t i = 0; i < 600; i++) {
        assert_shape(2, 2);
        look_for(100, 80, 0);
    }
}

/* Requests take 40 ms with two threads, and no less with four. */
/* With one request after the other, the one process has told the end late, the next one the begin.
 */
static void those_at_work_are_not_counted_twice_where_one_follows_the_other(void **state)
{
    setup(4);
    look_for(10000, 80, 0);
    for (uint32_t i = 0; i < 600; i++) {
        assert_shape(1, 4);
        l.now_ns += 100 * MS;
        l.at_work = one_in(4) ? 1 : 2;
        l.service_ns = 20 * MS;
        l.ended = (uint32_t)(l.window_ns / l.service_ns);
        shape = instances_choose(&s, &l);
    }
}

static void threads_that_shorten_nothing_are_given_back_ever_longer(void **state)
{
    uint32_t wide = 0;

    setup(4);
    look_for(20000, 80, 40);
    assert_shape(2, 2);
    for (uint32_t i = 0; i < 36000; i++) {
        look_for(100, 80, 40);
        wide += shape.threads == 4;
    }
    /* Trials of two seconds after 1, 2, 4, … 32 minutes: at most six in an hour. */
    assert_in_range(wide, 1, 6 * 25);
}

static void an_early_trial_makes_the_next_one_later(void **state)
{
    uint32_t changes = 0;

    setup(4);
    for (uint32_t i = 0; i < 600; i++) { /* three seconds of one, a second of four */
        struct instances_shape before = shape;

        l.at_work = i % 40 < 30 ? 1 : 4;
        look_for(100, 80, 0);
        changes += shape.threads != before.threads && before.threads;
    }
    assert_in_range(changes, 1, 12); /* 30 without */
}

static void other_cores_are_followed_at_once(void **state)
{
    setup(4);
    look_for(10000, 80, 0);
    assert_shape(1, 4);
    l.cores = 2;
    look_for(100, 80, 0);
    assert_shape(1, 2);
    l.cores = 8;
    look_for(100, 80, 0);
    assert_shape(1, 8);
    l.processes = 1;
    look_for(100, 80, 0);
    assert_shape(1, 8);
}

/* ---- a prefork server in small --------------------------------------------------------------- */

#define PROCESSES 8
#define LINE      65536
#define LONGEST   4096 /* ms */

struct load {
    uint32_t cores, processes;
    uint32_t serial_us, parallel_us; /* of each request */
    uint32_t high, low, period_ms;   /* requests in 100 s; the low ones in each second half */
};

static struct world {
    struct load load;
    struct instances_state stage;
    struct instances_shape shape;
    uint32_t line[LINE], head, tail; /* when they came */
    struct {
        uint32_t came_ms, serial_us, parallel_us;
        bool busy;
    } process[PROCESSES];
    uint32_t now_ms, running, took[2][LONGEST], ended[2];
    uint32_t changes;
    uint64_t service_ms, served, wait_ms; /* sums */
    uint32_t work_ms;                     /* of a request's service, of the last one */
} w;

static void arrive(void)
{
    bool low = w.load.period_ms && w.now_ms % w.load.period_ms >= w.load.period_ms / 2;
    uint32_t rate = low ? w.load.low : w.load.high;

    if (random_below(100000) < rate && w.tail - w.head < LINE)
        w.line[w.tail++ % LINE] = w.now_ms;
    for (uint32_t i = 0; i < w.load.processes && w.head < w.tail; i++) {
        if (w.process[i].busy)
            continue;
        w.process[i].busy = true;
        w.process[i].came_ms = w.now_ms; /* a request begins as its process takes it */
        w.wait_ms += w.now_ms - w.line[w.head++ % LINE];
        w.process[i].serial_us = w.load.serial_us;
        w.process[i].parallel_us = w.load.parallel_us;
        w.running++;
    }
}

/* A millisecond: each busy process has its threads, or its part of the cores where these are fewer.
 */
static void work(void)
{
    uint32_t each = w.running ? 1000 * w.load.cores / w.running : 0;

    each = each < 1000 * w.shape.threads ? each : 1000 * w.shape.threads;
    for (uint32_t i = 0; i < w.load.processes; i++) {
        uint32_t one = each < 1000 ? each : 1000, took;

        if (!w.process[i].busy)
            continue;
        if (w.process[i].serial_us) {
            w.process[i].serial_us -= w.process[i].serial_us < one ? w.process[i].serial_us : one;
            continue;
        }
        w.process[i].parallel_us -=
            w.process[i].parallel_us < each ? w.process[i].parallel_us : each;
        if (w.process[i].parallel_us)
            continue;
        took = w.now_ms - w.process[i].came_ms + 1;
        w.took[0][took < LONGEST ? took : LONGEST - 1]++;
        w.ended[0]++;
        w.service_ms += took;
        w.served++;
        w.process[i].busy = false;
        w.running--;
    }
}

static uint64_t median_ns(void)
{
    uint32_t half = (w.ended[0] + w.ended[1] + 1) / 2, seen = 0;

    for (uint32_t ms = 0; ms < LONGEST; ms++)
        if ((seen += w.took[0][ms] + w.took[1][ms]) >= half)
            return ms * MS;
    return 0;
}

static void look(void)
{
    struct instances_look look = {.now_ns = SECOND + w.now_ms * MS,
                                  .cores = w.load.cores,
                                  .processes = w.load.processes,
                                  .at_work = w.running,
                                  .window_ns = SECOND + (w.now_ms % 1000) * MS,
                                  .ended = w.ended[0] + w.ended[1]};
    struct instances_shape next;

    look.service_ns = look.ended ? median_ns() : 0;
    next = instances_choose(&w.stage, &look);
    assert_bounds(next, w.load.cores, w.load.processes);
    w.changes += next.threads != w.shape.threads;
    w.shape = next;
}

static void run_for(uint32_t seconds, bool chosen)
{
    w.changes = 0;
    w.service_ms = w.served = w.wait_ms = 0;
    for (uint32_t end_ms = w.now_ms + 1000 * seconds; w.now_ms < end_ms; w.now_ms++) {
        arrive();
        work();
        if (chosen && w.now_ms % 100 == 0)
            look();
        if (w.now_ms % 1000 == 999) {
            memcpy(w.took[1], w.took[0], sizeof(w.took[0]));
            memset(w.took[0], 0, sizeof(w.took[0]));
            w.ended[1] = w.ended[0];
            w.ended[0] = 0;
        }
    }
}

static void begin(const struct load *load, uint32_t threads)
{
    memset(&w, 0, sizeof(w));
    w.load = *load;
    w.shape = (struct instances_shape){1, threads};
    random_state = 11;
}

/* Mean time of a request, waiting included, in microseconds: with @threads, or with those chosen.
 */
static uint64_t mean_us(const struct load *load, uint32_t threads, bool chosen)
{
    begin(load, threads);
    run_for(60, chosen);
    run_for(300, chosen);
    return 1000 * (w.service_ms + w.wait_ms) / (w.served ? w.served : 1);
}

/*
 * 40 ms of work a request, a tenth of it serial, on four cores. In this world threads beyond the
 * cores cost nothing, so that the widest shape is the best one also where many requests overlap.
 */
static void
a_light_load_is_as_fast_as_with_all_threads_and_none_slower_than_even_parts(void **state)
{
    struct load load = {.cores = 4, .processes = 4, .serial_us = 4000, .parallel_us = 36000};
    static const uint32_t rates[] = {100, 300, 800, 1500, 3000, 5000, 8000};

    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        uint64_t chosen, even, wide;

        load.high = rates[i];
        even = mean_us(&load, 1, false);
        wide = mean_us(&load, 4, false);
        chosen = mean_us(&load, 1, true);
        assert_true(chosen <= even + even / 20);
        assert_true(rates[i] > 3000 || chosen <= wide + wide / 10);
    }
}

static void a_constant_load_comes_to_rest(void **state)
{
    struct load load = {.cores = 8, .processes = 8, .serial_us = 4000, .parallel_us = 60000};

    for (uint32_t rate = 50; rate <= 12800; rate *= 2) {
        load.high = rate;
        begin(&load, 1);
        run_for(TIMES(1200), true);
        run_for(600, true);
        if (w.changes > 12)
            fail_msg("%u changes in ten minutes with %u in 100 s", w.changes, rate);
    }
}

/* Loads that change by turns, of periods around those of the stage. */
static void no_load_makes_it_swing(void **state)
{
    struct load load = {.cores = 4,
                        .processes = 4,
                        .serial_us = 4000,
                        .parallel_us = 36000,
                        .high = 8000,
                        .low = 200};

    for (uint32_t period_ms = 100; period_ms <= 102400; period_ms *= 2) {
        uint32_t turns, most;

        load.period_ms = period_ms;
        begin(&load, 1);
        run_for(TIMES(600), true);
        run_for(600, true);
        turns = 600000 / period_ms;
        most = 12 + (turns < 20 ? 8 * turns : 160);
        if (w.changes > most)
            fail_msg("%u changes in ten minutes with a period of %u ms", w.changes, period_ms);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_more_threads_at_work_than_cores),
        cmocka_unit_test(it_begins_with_even_parts),
        cmocka_unit_test(one_request_at_a_time_gets_all_threads),
        cmocka_unit_test(many_at_work_narrow_it_soon),
        cmocka_unit_test(two_at_a_time_narrow_it_when_they_last),
        cmocka_unit_test(those_at_work_are_not_counted_twice_where_one_follows_the_other),
        cmocka_unit_test(threads_that_shorten_nothing_are_given_back_ever_longer),
        cmocka_unit_test(an_early_trial_makes_the_next_one_later),
        cmocka_unit_test(other_cores_are_followed_at_once),
        cmocka_unit_test(
            a_light_load_is_as_fast_as_with_all_threads_and_none_slower_than_even_parts),
        cmocka_unit_test(a_constant_load_comes_to_rest),
        cmocka_unit_test(no_load_makes_it_swing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
