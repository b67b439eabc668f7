/* SPDX-License-Identifier: Apache-2.0 */
/* Relays and presence: the known cases, and a relay under orders at random times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "power/site/loads.h"
#include "power/site/presence.h"
#include "power/site/relay.h"

#define SECOND UINT64_C(1000000000)
#define HOUR   (3600 * SECOND)

static uint64_t later;

static void minimum_times_are_kept(void **state)
{
    struct relay r = {.min_on_s = 60, .min_off_s = 300};

    relay_is(&r, true, 1000 * SECOND);
    assert_int_equal(relay_ask(&r, true, 1001 * SECOND, &later), RELAY_ALREADY);
    assert_int_equal(relay_ask(&r, false, 1059 * SECOND, &later), RELAY_LATER);
    assert_int_equal(later, 1060 * SECOND);
    assert_int_equal(relay_ask(&r, false, 1060 * SECOND, &later), RELAY_SWITCH);
    assert_true(relay_is(&r, false, 1060 * SECOND));
    assert_false(relay_is(&r, false, 1070 * SECOND));
    assert_int_equal(relay_ask(&r, true, 1100 * SECOND, &later), RELAY_LATER);
    assert_int_equal(later, 1360 * SECOND);
}

static void what_must_stay_on_is_never_switched_off(void **state)
{
    struct relay r = {.always_on = true};

    assert_int_equal(relay_ask(&r, false, 5 * HOUR, &later),
                     RELAY_NEVER); /* even if it is not known */
    assert_int_equal(later, UINT64_MAX);
    relay_is(&r, false, 5 * HOUR); /* somebody's hand */
    assert_int_equal(relay_ask(&r, true, 6 * HOUR, &later), RELAY_SWITCH);
}

static void a_relay_that_never_spoke_is_not_switched(void **state)
{
    struct relay r = {.min_off_s = 300};

    assert_int_equal(relay_ask(&r, true, 5 * HOUR, &later), RELAY_LATER);
    assert_int_equal(later, UINT64_MAX);
    relay_is(&r, false, 5 * HOUR);
    assert_int_equal(relay_ask(&r, true, 5 * HOUR + SECOND, &later), RELAY_LATER);
    assert_int_equal(later, 5 * HOUR + 300 * SECOND);
}

static void a_relay_that_does_not_answer_is_not_ordered_all_the_time(void **state)
{
    struct relay r = {0};

    relay_is(&r, false, HOUR);
    assert_int_equal(relay_ask(&r, true, HOUR + SECOND, &later), RELAY_SWITCH);
    assert_int_equal(relay_ask(&r, true, HOUR + 2 * SECOND, &later), RELAY_LATER);
    assert_int_equal(later, HOUR + 11 * SECOND);
    assert_int_equal(relay_ask(&r, true, HOUR + 11 * SECOND, &later), RELAY_SWITCH);
    relay_is(&r, true, HOUR + 12 * SECOND);
    assert_int_equal(relay_ask(&r, false, HOUR + 13 * SECOND, &later), RELAY_SWITCH);
}

static void a_relay_that_chatters_is_left_alone(void **state)
{
    struct relay r = {.most_per_hour = 4};

    for (uint64_t i = 0; i < 5; i++)
        relay_is(&r, i & 1, 10 * HOUR + i * SECOND);
    assert_int_equal(relay_ask(&r, true, 10 * HOUR + 9 * SECOND, &later), RELAY_NEVER);
    assert_int_equal(later, 11 * HOUR);
    assert_int_equal(relay_ask(&r, true, 11 * HOUR, &later), RELAY_SWITCH);
}

/* However it is asked: never a state shorter than its minimum, never more changes in an hour than
 * allowed. */
static void no_order_of_questions_breaks_the_rules(void **state)
{
    for (unsigned seed = 0; seed < 200; seed++) {
        struct relay r = {.min_on_s = 20, .min_off_s = 40, .most_per_hour = 30};
        uint64_t now = HOUR, last = 0;

        srand(seed);
        relay_is(&r, false, now);
        last = now;
        for (int i = 0; i < 2000; i++) {
            bool on = rand() & 1;

            now += (uint64_t)(rand() % 30) * SECOND;
            if (relay_ask(&r, on, now, &later) != RELAY_SWITCH)
                continue;
            assert_true(now - last >= (on ? 40 : 20) * SECOND);
            assert_true(relay_is(&r, on, now));
            assert_true(r.changes <= 30);
            last = now;
        }
    }
}

static void absence_counts_from_the_first_report_of_it(void **state)
{
    struct presence p = {0};

    assert_int_equal(presence_absent_s(&p, 900 * SECOND), 0); /* nobody knows */
    presence_is(&p, true, 1000 * SECOND);
    assert_int_equal(presence_absent_s(&p, 2000 * SECOND), 0);
    presence_is(&p, false, 2000 * SECOND);
    presence_is(&p, false, 2500 * SECOND);
    assert_int_equal(presence_absent_s(&p, 2900 * SECOND), 900);
    presence_is(&p, true, 2901 * SECOND);
    assert_int_equal(presence_absent_s(&p, 2902 * SECOND), 0);
}

static void a_dead_sensor_means_nobody_knows(void **state)
{
    struct presence p = {0};
    uint64_t dead = (1000 + PRESENCE_SILENT_S + 1) * SECOND;

    presence_is(&p, false, 1000 * SECOND);
    assert_true(presence_absent_s(&p, dead - SECOND) > 0);
    assert_int_equal(presence_absent_s(&p, dead), 0);
    presence_is(&p, false, dead); /* alive again: its silence proves no absence */
    assert_int_equal(presence_absent_s(&p, dead + 10 * SECOND), 10);
}

#define W UINT64_C(1000000)

static void more_load_counts_at_once_and_less_when_it_has_lasted(void **state)
{
    struct loads l = {0};
    uint64_t now = 5 * SECOND;

    assert_int_equal(loads_hold(&l, 99 * W + 1, now), 100 * W);
    assert_int_equal(loads_hold(&l, 20 * W, now += SECOND), 100 * W);
    assert_int_equal(loads_hold(&l, 120 * W, now += SECOND), 120 * W);
    for (uint64_t end = now + LOADS_FALL_NS - SECOND; now < end;)
        assert_int_equal(loads_hold(&l, 20 * W, now += SECOND), 120 * W);
    assert_int_equal(loads_hold(&l, 20 * W, now += 31 * SECOND), 20 * W);
}

static void noise_of_a_reading_moves_nothing(void **state)
{
    struct loads l = {0};
    uint64_t now = SECOND, before = loads_hold(&l, 100 * W, now);
    unsigned changes = 0;

    srand(7);
    for (int i = 0; i < 3600; i++) {
        uint64_t held = loads_hold(&l, 99 * W + (uint64_t)rand() % W, now += SECOND);

        changes += held != before;
        before = held;
    }
    assert_int_equal(changes, 0);
}

/* Whatever the loads do, what counts is never below them, and falls at most once in half a minute.
 */
static void what_counts_is_never_below_what_is_drawn(void **state)
{
    for (unsigned seed = 0; seed < 200; seed++) {
        struct loads l = {0};
        uint64_t now = SECOND, before = 0, fell = 0, uw = 0;

        srand(seed);
        for (int i = 0; i < 500; i++) {
            uint64_t held;

            if (rand() % 4 == 0)
                uw = (uint64_t)rand() % 400 * W / 2;
            held = loads_hold(&l, uw, now += (uint64_t)(rand() % 3) * SECOND + 1);
            assert_true(held >= uw);
            if (held < before) {
                assert_true(fell == 0 || now - fell >= LOADS_FALL_NS);
                fell = now;
            }
            before = held;
        }
        uw = 0;
        for (int i = 0; i < 70; i++)
            before = loads_hold(&l, uw, now += SECOND);
        assert_int_equal(before, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(minimum_times_are_kept),
        cmocka_unit_test(more_load_counts_at_once_and_less_when_it_has_lasted),
        cmocka_unit_test(noise_of_a_reading_moves_nothing),
        cmocka_unit_test(what_counts_is_never_below_what_is_drawn),
        cmocka_unit_test(what_must_stay_on_is_never_switched_off),
        cmocka_unit_test(a_relay_that_never_spoke_is_not_switched),
        cmocka_unit_test(a_relay_that_does_not_answer_is_not_ordered_all_the_time),
        cmocka_unit_test(a_relay_that_chatters_is_left_alone),
        cmocka_unit_test(no_order_of_questions_breaks_the_rules),
        cmocka_unit_test(absence_counts_from_the_first_report_of_it),
        cmocka_unit_test(a_dead_sensor_means_nobody_knows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
