/* SPDX-License-Identifier: Apache-2.0 */
#include "base/moment.h"

#include "base/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

static void durations_are_sums_of_parts_with_units(void **state)
{
    static const struct {
        const char *text;
        uint64_t ms;
    } good[] = {{"90s", 90000}, {"10min", 600000},     {"2h", 7200000}, {"1h30min", 5400000},
                {"500ms", 500}, {"1d1s1ms", 86401001}, {"007s", 7000},  {"3650d", MOMENT_MAX_MS}};
    uint64_t ms;

    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_int_equal(moment_duration(good[i].text, &ms), 0);
        assert_int_equal(ms, good[i].ms);
    }
}

static void what_is_no_duration_is_refused(void **state)
{
    static const char *const bad[] = {"",
                                      "90",
                                      "s",
                                      "-1s",
                                      "1.5h",
                                      "1 h",
                                      "1h30",
                                      "1m",
                                      "0s",
                                      "3650d1ms",
                                      "0x10s",
                                      "10min ",
                                      "18:30",
                                      "99999999999999999999999s",
                                      "9999999999999999ms9999999999999999ms"};
    uint64_t ms = 42;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(moment_duration(bad[i], &ms), -EINVAL);
    assert_int_equal(ms, 42);
}

/* 2023-06-15 12:00:00 in a zone without summer time */
static const uint64_t noon_ms = 1686830400000;

static void moments_count_from_now_or_follow_the_clock(void **state)
{
    uint64_t ms;

    assert_int_equal(moment_parse("90s", noon_ms + 7, &ms), 0);
    assert_int_equal(ms, noon_ms + 7 + 90000);
    assert_int_equal(moment_parse("18:30", noon_ms + 7, &ms), 0);
    assert_int_equal(ms, noon_ms + 6 * 3600000 + 30 * 60000);
    assert_int_equal(moment_parse("9:05", noon_ms, &ms), 0); /* tomorrow */
    assert_int_equal(ms, noon_ms + 21 * 3600000 + 5 * 60000);
    assert_int_equal(moment_parse("12:00", noon_ms, &ms), 0); /* this very second has begun */
    assert_int_equal(ms, noon_ms + 24 * 3600000);
}

static void assert_half_past_six(uint64_t evening_ms, uint64_t hours_later)
{
    uint64_t ms = 0;

    assert_int_equal(moment_parse("18:30", evening_ms, &ms), 0);
    assert_int_equal(ms, evening_ms + hours_later * 3600000 + 30 * 60000);
    assert_int_equal(moment_past("20:00", ms, &ms), 0);
    assert_int_equal(ms, evening_ms);
}

/* From 20:00 to the next day's 18:30 in Madrid. */
static void a_night_of_summer_time_is_an_hour_shorter_or_longer(void **state)
{
    setenv("TZ", "Europe/Madrid", 1);
    tzset();
    assert_half_past_six(1679770800000, 21); /* 2023-03-25 */
    assert_half_past_six(1698516000000, 23); /* 2023-10-28 */
    setenv("TZ", "UTC", 1);
    tzset();
}

static void what_is_no_moment_is_refused(void **state)
{
    static const char *const bad[] = {"",        "18",     "24:00", "18:60",  "1830",
                                      "18:3",    ":30",    "18:",   "-1:30",  "18.30",
                                      "18:30pm", "118:30", "noon",  "18:30 ", "1a:30"};
    uint64_t ms = 42;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(moment_parse(bad[i], noon_ms, &ms), -EINVAL);
    assert_int_equal(ms, 42);
}

static void assert_past(const char *text, uint64_t expected_ms)
{
    uint64_t ms = 42;

    assert_int_equal(moment_past(text, noon_ms + 7, &ms), 0);
    assert_int_equal(ms, expected_ms);
}

static void the_past_is_ago_or_on_the_clock_or_in_the_calendar(void **state)
{
    assert_past("90s", noon_ms + 7 - 90000);
    assert_past("3650d", noon_ms + 7 - 3650 * 86400000ull);
    assert_past("9:05", noon_ms - (2 * 60 + 55) * 60000);
    assert_past("12:00", noon_ms);
    assert_past("12:01", noon_ms - 86400000 + 60000); /* yesterday */
    assert_past("2023-06-15", noon_ms - 12 * 3600000);
    assert_past("2023-06-14 11:00", noon_ms - 25 * 3600000);
    assert_past("2023-06-15T11:59:58", noon_ms - 2000);
    assert_past("1686830400", noon_ms);
}

static void what_is_no_past_is_refused(void **state)
{
    static const char *const bad[] = {
        "",         "1",           "1234",         "24:00",
        "soon",     "2023-13-01",  "2023-06-15 x", "2023-06-15 11:00 ",
        "1900-1-1", "-1686830400", "168683040000"};
    uint64_t ms = 42;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(moment_past(bad[i], noon_ms, &ms), -EINVAL);
    assert_int_equal(ms, 42);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations_are_sums_of_parts_with_units),
        cmocka_unit_test(what_is_no_duration_is_refused),
        cmocka_unit_test(moments_count_from_now_or_follow_the_clock),
        cmocka_unit_test(a_night_of_summer_time_is_an_hour_shorter_or_longer),
        cmocka_unit_test(what_is_no_moment_is_refused),
        cmocka_unit_test(the_past_is_ago_or_on_the_clock_or_in_the_calendar),
        cmocka_unit_test(what_is_no_past_is_refused),
    };

    setenv("TZ", "UTC", 1);
    tzset();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
