/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of the last ten minutes, and the limit that this asks for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "daemon/containers/memory_watch.h"

#define MIB      (UINT64_C(1) << 20)
#define MINUTE   (60 * NS_PER_S)
#define BEGIN_NS (3 * MINUTE + 17 * NS_PER_S) /* a machine that has just started */

/* Adds @bytes each second for @seconds; returns the time behind them. */
static uint64_t add(struct memory_watch *w, uint64_t bytes, uint64_t now, unsigned seconds)
{
    for (unsigned i = 0; i < seconds; i++, now += NS_PER_S)
        memory_watch_add(w, bytes, now);
    return now;
}

static void nothing_is_known_before_the_first_look(void **state)
{
    struct memory_watch w = {0};

    assert_int_equal(memory_watch_high(&w, BEGIN_NS), 0);
    assert_int_equal(memory_watch_least(&w, 0, BEGIN_NS), 0);
}

static void a_high_value_counts_for_ten_minutes_and_no_more_than_eleven(void **state)
{
    struct memory_watch w = {0};
    uint64_t now = add(&w, 900 * MIB, BEGIN_NS, 1), last = now - NS_PER_S;

    while (now - last <= 10 * MINUTE) {
        now = add(&w, 100 * MIB, now, 1);
        assert_int_equal(memory_watch_high(&w, now - NS_PER_S), 900 * MIB);
    }
    now = add(&w, 100 * MIB, now, 61);
    assert_int_equal(memory_watch_high(&w, now), 100 * MIB);
}

static void what_was_not_looked_at_for_long_is_forgotten(void **state)
{
    static const unsigned gaps[] = {11, 12, 23, 1000};

    for (unsigned i = 0; i < sizeof(gaps) / sizeof(gaps[0]); i++) {
        struct memory_watch w = {0};
        uint64_t now = add(&w, 900 * MIB, BEGIN_NS, 700) + gaps[i] * MINUTE;

        assert_int_equal(memory_watch_high(&w, now), 0);
        add(&w, 7 * MIB, now, 1);
        assert_int_equal(memory_watch_high(&w, now), 7 * MIB);
        assert_false(memory_watch_is_whole(&w, now));
        assert_int_equal(memory_watch_least(&w, 0, now), 0);
    }
}

static void the_kernels_peak_stands_for_the_first_ten_minutes(void **state)
{
    struct memory_watch w = {0};
    uint64_t now = add(&w, 800 * MIB, BEGIN_NS, 30);

    assert_int_equal(memory_watch_least(&w, 0, now), 0); /* it may have needed more before */
    assert_int_equal(memory_watch_least(&w, 1600 * MIB, now), 1800 * MIB);
    now = add(&w, 800 * MIB, now, 600);
    assert_int_equal(memory_watch_least(&w, 1600 * MIB, now), 900 * MIB);
    assert_int_equal(memory_watch_least(&w, 0, now), 900 * MIB);
}

static void a_reserve_is_left_in_whole_mib(void **state)
{
    struct memory_watch w = {0};
    uint64_t now = add(&w, 10 * MIB + 1, BEGIN_NS, 601);

    assert_int_equal(memory_watch_least(&w, 0, now), 75 * MIB); /* at least 64 MiB */
    now = add(&w, 4096 * MIB, now, 1);
    assert_int_equal(memory_watch_least(&w, 0, now), 4608 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_known_before_the_first_look),
        cmocka_unit_test(a_high_value_counts_for_ten_minutes_and_no_more_than_eleven),
        cmocka_unit_test(what_was_not_looked_at_for_long_is_forgotten),
        cmocka_unit_test(the_kernels_peak_stands_for_the_first_ten_minutes),
        cmocka_unit_test(a_reserve_is_left_in_whole_mib),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
