/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cores for a promise of latency: single looks by hand, and a server in small, with which the stage
 * runs in a closed loop under constant loads, steps, and loads of all frequencies.
 */
#include "policy/core/promise.h"

#include "sanitized.h"
#include "test_promise_server.h"
#include "test_random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define CORES 8

/* ---- looks by hand --------------------------------------------------------------------------- */

static struct promise_state s;
static struct promise_look l;

/* Whole looks; the answer is in place at the next one. */
static void look_for(uint32_t ms)
{
    for (; ms >= 100; ms -= 100) {
        l.now_ns += 100 * MS;
        l.has = promise_need(&s, &l);
        assert_in_range(l.has, l.least, l.most);
    }
}

/* A promise of 50 ms and 4 of 8 cores, seen for five seconds. */
static void setup(uint64_t p99_ms)
{
    memset(&s, 0, sizeof(s));
    l = (struct promise_look){.now_ns = 1000 * SECOND,
                              .promise_ns = 50 * MS,
                              .p99_ns = p99_ms * MS,
                              .window_ns = 3 * SECOND / 2,
                              .ended = 300,
                              .in_flight = 4,
                              .most_in_flight = 8,
                              .has = 4,
                              .least = 1,
                              .most = 8};
    look_for(5000);
}

static void all_cores_at_once_where_p99_is_near_the_promise(void **state)
{
    setup(40);
    assert_int_equal(l.has, 4);
    assert_int_equal(s.why, PROMISE_KEPT);
    l.p99_ns = 46 * MS;
    look_for(100);
    assert_int_equal(l.has, 8);
    assert_int_equal(s.why, PROMISE_NEAR);
}

/* Chance alone makes the largest of five durations exceed the promise in one window of twenty. */
static void few_slow_requests_must_last(void **state)
{
    setup(40);
    l.ended = 5;
    l.p99_ns = 80 * MS;
    look_for(3900);
    assert_int_equal(l.has, 4);
    assert_int_equal(s.why, PROMISE_FEW);
    look_for(300);
    assert_int_equal(l.has, 8);
}

static void a_queue_raises_before_any_p99_shows_it(void **state)
{
    setup(40);
    l.in_flight = l.most_in_flight = 30;
    look_for(100);
    assert_int_equal(l.has, 8);
    assert_int_equal(s.why, PROMISE_RISE);
}

/* 30 of 20,000 a second are served in 1.5 ms. */
static void many_in_flight_that_soon_end_raise_nothing(void **state)
{
    setup(40);
    l.ended = 30000;
    l.in_flight = l.most_in_flight = 30;
    look_for(100);
    assert_int_equal(l.has, 4);
}

static void slack_gives_cores_back_one_by_one(void **state)
{
    uint64_t lowered_ns;

    setup(40);
    l.promise_ns = 1000 * MS;
    l.p99_ns = 400 * MS;
    while (l.has == 4)
        look_for(100);
    assert_int_equal(l.has, 3);
    assert_int_equal(s.why, PROMISE_SLACK);
    lowered_ns = l.now_ns;
    while (l.has == 3)
        look_for(100);
    assert_int_equal(l.has, 2);
    /* Not before the window held only requests that had three cores. */
    assert_true(l.now_ns - lowered_ns >= l.window_ns + l.p99_ns);
    assert_true(l.now_ns - lowered_ns <= 2 * l.window_ns);
    look_for(60000);
    assert_int_equal(l.has, 1);
}

static void with_few_requests_a_core_goes_back_later(void **state)
{
    setup(40);
    l.p99_ns = 20 * MS;
    l.ended = 3; /* two a second */
    look_for(1000);
    assert_int_equal(l.has, 3); /* on requests seen before */
    look_for(20000);
    assert_int_equal(l.has, 3);
    look_for(10000);
    assert_int_equal(l.has, 2);
}

/* p99 with eight cores tells nothing of three. */
static void no_core_goes_back_while_more_are_in_place(void **state)
{
    uint32_t need = 8;

    setup(20);
    memset(&s, 0, sizeof(s));
    l.has = 8;
    for (int i = 0; i < 300; i++) {
        l.now_ns += 100 * MS;
        need = promise_need(&s, &l);
        assert_in_range(need, 7, 8);
    }
    assert_int_equal(need, 7);
    l.has = 7; /* somebody uses the eighth */
    look_for(3000);
    assert_int_equal(l.has, 6);
}

/* Three cores are too few, four have slack. */
static void cores_that_broke_the_promise_are_held_off_ever_longer(void **state)
{
    uint64_t before_ns = 0, gap_ns = 0, last_ns = 0;
    uint32_t tries = 0;

    setup(40);
    for (int i = 0; i < 6000; i++) {
        bool had_more = l.has > 3;

        look_for(100);
        l.p99_ns = (l.has > 3 ? 20 : 70) * MS;
        if (had_more && l.has <= 3) {
            assert_int_equal(l.has, 3);
            gap_ns = last_ns ? l.now_ns - last_ns : 0;
            assert_true(gap_ns >= before_ns || gap_ns >= PROMISE_HOLD_MAX_NS);
            before_ns = gap_ns;
            last_ns = l.now_ns;
            tries++;
        }
    }
    assert_in_range(tries, 9, 13); /* in ten minutes */
    assert_true(gap_ns >= PROMISE_HOLD_MAX_NS);
    assert_int_equal(s.why, PROMISE_HOLD);
    assert_int_equal(l.has, 4); /* back to it at once, not one by one */
}

static void a_clearly_lower_load_ends_the_hold_off(void **state)
{
    setup(40);
    for (int i = 0; i < 2000; i++) {
        look_for(100);
        l.p99_ns = (l.has > 3 ? 20 : 70) * MS;
    }
    assert_true(s.until_ns > l.now_ns + 30 * SECOND);
    l.ended = 250; /* not clearly */
    look_for(20000);
    assert_int_equal(l.has, 4);
    l.ended = 100;
    l.p99_ns = 20 * MS;
    look_for(25000);
    assert_int_equal(l.has, 1);
}

/* Four cores of its own are too few; a fifth is one to which others yield. */
static void a_core_to_which_others_yield_goes_back_seldom(void **state)
{
    uint32_t tries = 0;

    setup(40);
    l.own = 4;
    l.most = 5;
    for (int i = 0; i < 10000; i++) {
        bool had_more = l.has > 4, lull = i % 160 >= 80;

        l.ended = lull ? 30 : 300;
        l.in_flight = l.most_in_flight = lull ? 1 : 4;
        look_for(100);
        l.p99_ns = (l.has > 4 || lull ? 20 : 70) * MS;
        tries += had_more && l.has <= 4;
    }
    assert_in_range(tries, 2, 5); /* in 1000 seconds: after 64, 128, 256, … */
    l.ended = 30;
    l.in_flight = l.most_in_flight = 1;
    l.p99_ns = 20 * MS;
    look_for(900 * 1000); /* a lull that lasts ends it, as it ends any hold-off */
    assert_in_range(l.has, 1, 3);
}

/* The same, but what broke the promise were some of its own cores. */
static void its_own_cores_go_back_as_if_nobody_yielded(void **state)
{
    setup(40);
    for (int i = 0; i < 2; i++) {
        l.own = i ? 7 : 0;
        l.has = 4;
        memset(&s, 0, sizeof(s));
        l.p99_ns = 70 * MS;
        look_for(100);
        assert_int_equal(l.has, 8);
        l.p99_ns = 20 * MS;
        look_for(20000);
        assert_int_equal(l.has, 1);
        assert_true(s.hold_ns == PROMISE_HOLD_NS);
    }
}

static void an_idle_server_needs_its_least_and_is_back_at_once(void **state)
{
    setup(40);
    l.in_flight = l.most_in_flight = 0;
    look_for(2000);
    assert_int_equal(l.has, 4); /* some ended in the window */
    l.ended = 0;
    l.p99_ns = 0;
    look_for(100);
    assert_int_equal(l.has, 1);
    assert_int_equal(s.why, PROMISE_IDLE);
    look_for(60000);
    l.in_flight = 1;
    look_for(100);
    assert_int_equal(l.has, 4);
}

/* A pause of a second and a half, again and again. */
static void short_pauses_are_soon_no_longer_idle(void **state)
{
    uint32_t idle = 0;

    setup(40);
    for (int i = 0; i < 300; i++) {
        l.in_flight = l.most_in_flight = i % 2;
        l.ended = 300 * (i % 2);
        look_for(1500);
        idle += s.why == PROMISE_IDLE;
    }
    assert_in_range(idle, 1, 3);
}

/* The promise breaks when requests come after half a minute. */
static void idle_cores_that_come_back_too_late_are_kept_longer(void **state)
{
    uint32_t idle = 0;

    setup(40);
    for (int i = 0; i < 20; i++) {
        l.in_flight = l.most_in_flight = 0;
        l.ended = 0;
        look_for(30000);
        idle += s.why == PROMISE_IDLE;
        l.in_flight = 1;
        l.most_in_flight = 8;
        l.ended = 300;
        l.p99_ns = (s.why == PROMISE_IDLE ? 60 : 40) * MS;
        look_for(2000);
        l.p99_ns = 40 * MS;
        look_for(28000);
    }
    assert_in_range(idle, 3, 5);
}

static void cores_that_do_not_help_are_given_back(void **state)
{
    uint32_t all = 0, trials = 0;

    setup(40);
    l.p99_ns = 70 * MS;
    look_for(100);
    assert_int_equal(l.has, 8);
    look_for(4000);
    assert_in_range(l.has, 1, 4);
    assert_int_equal(s.why, PROMISE_NO_GAIN);
    assert_true(promise_is_given_up(s.why));
    for (int i = 0; i < 6000; i++) {
        uint32_t had = l.has;

        look_for(100);
        all += l.has > 1;
        trials += had < 8 && l.has == 8;
    }
    assert_in_range(trials, 8, 12);
    assert_in_range(all, 1, 600);
    l.p99_ns = 40 * MS; /* what made it slow is over */
    look_for(3000);
    assert_int_equal(s.stage, PROMISE_STEADY);
}

/* p99 is 400 ms by cores: eight help, and are too few. */
static void an_impossible_promise_does_not_keep_all_cores(void **state)
{
    uint32_t held = 0;

    setup(40);
    for (int i = 0; i < 6000; i++) {
        l.p99_ns = 1600 * MS / l.has;
        look_for(100);
        held += l.has == 8;
        if (i == 250)
            assert_int_equal(l.has, 8); /* has patience once */
    }
    assert_in_range(held, 1, 1500);
    assert_int_equal(s.why, PROMISE_IMPOSSIBLE);
    assert_in_range(l.has, 4, 4);
}

static void the_answer_follows_what_it_may_have(void **state)
{
    setup(40);
    l.most = 3;
    look_for(100);
    assert_int_equal(l.has, 3);
    l.most = 8;
    look_for(100);
    assert_int_equal(l.has, 4);
    l.least = 6;
    look_for(100);
    assert_int_equal(l.has, 6);
    l.p99_ns = 80 * MS;
    l.most = 7;
    look_for(100);
    assert_int_equal(l.has, 7);
    l.most = 8;
    look_for(100);
    assert_int_equal(l.has, 8);
    l.most = 5; /* below the least */
    assert_int_equal(promise_need(&s, &l), 5);
}

/* Requests of ten seconds: p99 shows late that the core is missed. */
static void a_core_is_missed_later_where_requests_are_long(void **state)
{
    setup(40);
    l.promise_ns = 20 * SECOND;
    l.p99_ns = 10 * SECOND;
    while (l.has == 4)
        look_for(100);
    look_for(11000);
    assert_int_equal(l.has, 3);
    l.p99_ns = 16 * SECOND; /* below 0.9 */
    look_for(100);
    assert_int_equal(l.has, 8);
}

/* Others lend and take a core at each look. */
static void cores_that_change_all_the_time_are_no_reason_to_give_up(void **state)
{
    setup(40);
    l.p99_ns = 60 * MS;
    look_for(100);
    l.p99_ns = 40 * MS;
    for (int i = 0; i < 600; i++) {
        l.now_ns += 100 * MS;
        l.has = 7 + i % 2;
        promise_need(&s, &l);
        assert_false(promise_is_given_up(s.why));
    }
}

static void without_a_promise_or_a_request_it_needs_its_least(void **state)
{
    setup(80);
    l.promise_ns = 0;
    look_for(100);
    assert_int_equal(l.has, 1);
    assert_int_equal(s.why, PROMISE_NONE);
    memset(&s, 0, sizeof(s));
    l = (struct promise_look){.promise_ns = MS, .has = 4, .least = 2, .most = 8};
    look_for(5000);
    assert_int_equal(l.has, 2);
    assert_int_equal(s.why, PROMISE_NONE);
}

static void a_clock_that_went_back_stops_nothing(void **state)
{
    setup(20);
    look_for(20000);
    l.p99_ns = 80 * MS;
    look_for(100);
    l.now_ns = SECOND;
    look_for(100);
    assert_int_equal(l.has, 8);
    l.p99_ns = 20 * MS;
    look_for(60000);
    assert_int_equal(l.has, 1);
}

static void every_reason_has_a_text(void **state)
{
    for (unsigned i = 0; i < PROMISE_WHY_MAX; i++)
        assert_string_not_equal(promise_why_text(i), "?");
    assert_string_equal(promise_why_text(PROMISE_WHY_MAX), "?");
}

/* A number that is small, large, or anything. */
static uint64_t any(void)
{
    uint64_t r = random_next();

    switch (r % 5) {
    case 0:
        return 0;
    case 1:
        return UINT64_MAX - r / 5 % 3;
    case 2:
        return r >> (r / 5 % 64);
    case 3:
        return r / 5 % 10 * SECOND;
    default:
        return r / 5 % 20;
    }
}

static void garbage_stays_in_bounds(void **state)
{
    random_state = 3;
    for (int i = 0; i < TIMES(200000); i++) {
        uint32_t need;

        if (one_in(50))
            memset(&s, 0, sizeof(s));
        if (one_in(2))
            l.now_ns = one_in(20) ? any() : l.now_ns + any() % SECOND;
        if (one_in(4))
            l.promise_ns = any();
        l.p99_ns = any();
        l.window_ns = any();
        l.ended = (uint32_t)any();
        l.in_flight = (uint32_t)any();
        l.most_in_flight = (uint32_t)any();
        if (one_in(3)) {
            l.has = (uint32_t)any();
            l.least = (uint32_t)any();
            l.most = (uint32_t)any();
        }
        need = promise_need(&s, &l);
        assert_true(need <= l.most);
        assert_true(need >= (l.least < l.most ? l.least : l.most));
        assert_true(s.why < PROMISE_WHY_MAX);
        assert_true(s.hold_ns <= PROMISE_HOLD_MAX_NS && s.pause_ns <= PROMISE_PAUSE_MAX_NS);
    }
}

/* ---- in a closed loop ------------------------------------------------------------------------ */

#define SETTLES 30                       /* seconds */
#define STRIDE  (TIMES(40) < 40 ? 5 : 1) /* one of so many loads */

static struct server fixed, staged;

static uint32_t kept(const struct server *m, uint32_t from_second)
{
    uint32_t n = 0;

    for (uint32_t i = from_second; i < m->seconds; i++)
        n += m->kept[i];
    return n;
}

/* The fewest cores that keep the promise in 99 of 100 seconds; CORES + 1: all are too few. */
static uint32_t fewest(const struct load *load)
{
    uint32_t n = 1 + load->high * (load->serial_us + load->parallel_us) / 1000000;

    for (; n <= CORES; n++) {
        begin(&fixed, load, n, true);
        run(&fixed, 200);
        if (kept(&fixed, SETTLES) * 100 >= (200 - SETTLES) * 99)
            break;
    }
    return n;
}

static const struct load steady_loads[] = {
    {.promise_ms = 50, .serial_us = 8000, .width = 1, .high = 20},
    {.promise_ms = 50, .serial_us = 8000, .width = 1, .high = 101},
    {.promise_ms = 50, .serial_us = 8000, .width = 1, .high = 209},
    {.promise_ms = 50, .serial_us = 8000, .width = 1, .high = 425},
    {.promise_ms = 50, .serial_us = 8000, .width = 1, .high = 857},
    {.promise_ms = 50, .serial_us = 2000, .parallel_us = 12000, .width = 4, .high = 101},
    {.promise_ms = 50, .serial_us = 2000, .parallel_us = 12000, .width = 4, .high = 209},
    {.promise_ms = 100, .serial_us = 20000, .parallel_us = 20000, .width = 8, .high = 47},
    {.promise_ms = 30, .serial_us = 5000, .width = 1, .high = 425},
    {.promise_ms = 200, .serial_us = 10000, .parallel_us = 40000, .width = 8, .high = 47},
};

/* All together keep the promise in 99 of 100 seconds, each alone in 98: chance differs by load. */
static void a_constant_load_gets_little_more_than_the_fewest_cores(void **state)
{
    uint32_t did = 0, all = 0;

    for (size_t i = 0; i < sizeof(steady_loads) / sizeof(steady_loads[0]); i += STRIDE) {
        struct load load = steady_loads[i];
        uint32_t few, more = 0;

        load.least = 1;
        load.most = CORES;
        few = fewest(&load);
        assert_true(few <= CORES);
        begin(&staged, &load, CORES, false);
        run(&staged, 400);
        assert_true(kept(&staged, SETTLES) * 100 >= (400 - SETTLES) * 98);
        did += kept(&staged, SETTLES);
        all += 400 - SETTLES;
        /* All come back for seconds where one fewer is tried; p99 of few requests is uncertain. */
        for (uint32_t k = SETTLES; k < 400; k++)
            more += staged.held[k] > few + 1 + (load.high < 100);
        assert_true(more * 100 <= (400 - SETTLES) * 15);
        assert_true(staged.changes <= CORES + 3 * (4 + 400 / 64) * 2);
    }
    assert_true(did * 100 >= all * 99);
}

static void a_step_of_the_load_is_followed(void **state)
{
    static const struct load load = {.promise_ms = 50,
                                     .serial_us = 8000,
                                     .width = 1,
                                     .low = 60,
                                     .high = 600,
                                     .period_ms = 240000,
                                     .least = 1,
                                     .most = CORES};
    uint32_t high;

    begin(&staged, &load, 1, false);
    run(&staged, 120);
    high = kept(&staged, 0);
    assert_true(high >= 118); /* from one core */
    assert_in_range(staged.cores, 6, CORES);
    run(&staged, 60);
    assert_in_range(staged.cores, 1, 3); /* given back */
    run(&staged, 120);
    assert_in_range(staged.cores, 6, CORES); /* again, from few */
    assert_true(kept(&staged, 0) >= 297);
}

static const uint32_t periods_ms[] = {100,  300,  500,   700,   1000,  2000, 3000,
                                      5000, 8000, 12000, 20000, 30000, 60000};

/*
 * A square wave. Cores are taken some 15 times in 270 s at most: four times while the hold-off
 * doubles and then once a minute, for the load and for the time without; where a period is long
 * enough to be followed, twice more in each. Where all cores keep the promise, so does the stage in
 * 99 of 100 seconds of all periods, and in 97 of each.
 */
static void sweep(const struct load *of, uint32_t low)
{
    uint32_t all = 0, both = 0;

    for (size_t i = 0; i < sizeof(periods_ms) / sizeof(periods_ms[0]); i += STRIDE) {
        struct load load = *of;
        uint32_t could = 0, did = 0;

        load.low = low;
        load.period_ms = periods_ms[i];
        load.least = 1;
        load.most = CORES;
        begin(&fixed, &load, CORES, true);
        run(&fixed, 270);
        begin(&staged, &load, CORES, false);
        run(&staged, 270);
        for (uint32_t k = SETTLES; k < 270; k++) {
            could += fixed.kept[k];
            did += fixed.kept[k] && staged.kept[k];
        }
        assert_true(did * 1000 >= could * 970);
        all += could;
        both += did;
        assert_true(staged.raises <=
                    15 + (load.period_ms < 16000 ? 0 : 2 * 270000 / load.period_ms));
        assert_true(staged.changes <= 90);
    }
    assert_true(both * 1000 >= all * 990);
}

static void no_load_makes_it_swing(void **state)
{
    static const struct load serial = {
        .promise_ms = 50, .serial_us = 8000, .width = 1, .high = 600};
    static const struct load parallel = {
        .promise_ms = 100, .serial_us = 20000, .parallel_us = 20000, .width = 8, .high = 130};

    sweep(&serial, 100);
    sweep(&serial, 0);
    sweep(&parallel, 20); /* all cores are hardly enough */
    sweep(&parallel, 0);
}

/* Two minutes with strangers on half of its cores: those that it has do half of the work. */
static void strangers_are_outdone_and_what_was_taken_is_given_back(void **state)
{
    struct load load = {
        .promise_ms = 50, .serial_us = 8000, .width = 1, .high = 300, .least = 1, .most = CORES};
    uint32_t few = 0, late = 0, most = 0;

    begin(&staged, &load, 4, false);
    run(&staged, 120);
    staged.taken_permille = 500;
    run(&staged, 120);
    staged.taken_permille = 0;
    run(&staged, 180);
    for (uint32_t k = 60; k < 420; k++) {
        late += k >= 130 && k < 240 && !staged.kept[k];
        most += k >= 130 && k < 240 && staged.held[k] >= 6;
        few += (k < 120 || k >= 330) && staged.held[k] <= 5;
    }
    assert_true(most >= 100); /* of 110 s */
    assert_true(late <= 11);
    assert_true(few >= 135); /* of 150 s */
    assert_true(staged.changes <= 60);
}

/* It waits for a database. */
static void a_server_whose_latency_ignores_cores_has_its_least(void **state)
{
    static const uint32_t promises_ms[] = {100, 500, 550, 700, 1000, 2000};

    for (size_t i = 0; i < sizeof(promises_ms) / sizeof(promises_ms[0]); i++) {
        struct load load = {.promise_ms = promises_ms[i],
                            .serial_us = 1000,
                            .width = 1,
                            .high = 50,
                            .waits_ms = 500,
                            .least = 1,
                            .most = CORES};
        uint32_t least = 0;

        begin(&staged, &load, 4, false);
        run(&staged, 600);
        for (uint32_t k = 300; k < 600; k++)
            least += staged.held[k] == 1;
        assert_true(least >= 270);
    }
}

/* p99 of this server is 30 ms at best. */
static void an_impossible_promise_does_not_take_all_for_good(void **state)
{
    struct load load = {.promise_ms = 15,
                        .serial_us = 10000,
                        .parallel_us = 40000,
                        .width = 8,
                        .high = 50,
                        .least = 1,
                        .most = CORES};

    for (uint32_t from = 1; from <= CORES; from += 7) {
        uint32_t all = 0;

        begin(&staged, &load, from, false);
        run(&staged, 600);
        for (uint32_t k = 300; k < 600; k++)
            all += staged.held[k] == CORES;
        assert_in_range(all, 1, 60);
        assert_true(staged.given_up_ms > 400000);
        assert_true(in_flight(&staged) < 60); /* it still follows its load */
    }
}

/* Each needs more than half of the cores, and has half while the other one wants more. */
static void two_promises_that_exclude_each_other_do_not_swing(void **state)
{
    static const uint32_t loads[] = {480, 560}; /* half of the cores are too slow, or too few */
    struct server *a = &fixed, *b = &staged;

    for (size_t i = 0; i < sizeof(loads) / sizeof(loads[0]); i++) {
        struct load load = {.promise_ms = 50,
                            .serial_us = 8000,
                            .width = 1,
                            .high = loads[i],
                            .least = 1,
                            .most = CORES - 1};

        begin(a, &load, 4, false);
        begin(b, &load, 4, false);
        for (uint32_t ms = 0; ms < 600000; ms++) {
            uint32_t of_a = a->asked, of_b = b->asked;

            if (of_a + of_b > CORES) {
                if (of_a > CORES / 2)
                    of_a = of_b <= CORES / 2 ? CORES - of_b : CORES / 2;
                of_b = CORES - of_a;
            }
            tick(a, of_a);
            tick(b, of_b);
        }
        assert_true(a->raises <= 30 && b->raises <= 30);
        assert_true(a->given_up_ms > 300000 && b->given_up_ms > 300000);
        assert_true(a->core_ms > 3 * 600000 && b->core_ms > 3 * 600000); /* as without promises */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_cores_at_once_where_p99_is_near_the_promise),
        cmocka_unit_test(few_slow_requests_must_last),
        cmocka_unit_test(a_queue_raises_before_any_p99_shows_it),
        cmocka_unit_test(many_in_flight_that_soon_end_raise_nothing),
        cmocka_unit_test(slack_gives_cores_back_one_by_one),
        cmocka_unit_test(with_few_requests_a_core_goes_back_later),
        cmocka_unit_test(no_core_goes_back_while_more_are_in_place),
        cmocka_unit_test(cores_that_broke_the_promise_are_held_off_ever_longer),
        cmocka_unit_test(a_clearly_lower_load_ends_the_hold_off),
        cmocka_unit_test(a_core_to_which_others_yield_goes_back_seldom),
        cmocka_unit_test(its_own_cores_go_back_as_if_nobody_yielded),
        cmocka_unit_test(an_idle_server_needs_its_least_and_is_back_at_once),
        cmocka_unit_test(short_pauses_are_soon_no_longer_idle),
        cmocka_unit_test(idle_cores_that_come_back_too_late_are_kept_longer),
        cmocka_unit_test(cores_that_do_not_help_are_given_back),
        cmocka_unit_test(an_impossible_promise_does_not_keep_all_cores),
        cmocka_unit_test(the_answer_follows_what_it_may_have),
        cmocka_unit_test(a_core_is_missed_later_where_requests_are_long),
        cmocka_unit_test(cores_that_change_all_the_time_are_no_reason_to_give_up),
        cmocka_unit_test(without_a_promise_or_a_request_it_needs_its_least),
        cmocka_unit_test(a_clock_that_went_back_stops_nothing),
        cmocka_unit_test(every_reason_has_a_text),
        cmocka_unit_test(garbage_stays_in_bounds),
        cmocka_unit_test(a_constant_load_gets_little_more_than_the_fewest_cores),
        cmocka_unit_test(a_step_of_the_load_is_followed),
        cmocka_unit_test(no_load_makes_it_swing),
        cmocka_unit_test(strangers_are_outdone_and_what_was_taken_is_given_back),
        cmocka_unit_test(a_server_whose_latency_ignores_cores_has_its_least),
        cmocka_unit_test(an_impossible_promise_does_not_take_all_for_good),
        cmocka_unit_test(two_promises_that_exclude_each_other_do_not_swing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
