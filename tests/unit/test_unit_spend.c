/* SPDX-License-Identifier: Apache-2.0 */
/* A day's energy: each day once, whatever the clock, the meters and the disk do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "unit/area/spend.h"

#define HOUR     3600
#define DAY      (24 * HOUR)
#define MONDAY   INT64_C(1795392000) /* 2026-11-23 00:00 UTC */
#define UNKNOWN  0                   /* of the time */
#define UNCAPPED UINT64_MAX
#define W        UINT64_C(1000000)

static char folder[] = "/tmp/tide-spend-XXXXXX";
static char file[64];
static struct spend spend;
static uint64_t total_uj, now_ns;

static void begin(void)
{
    spend_open(&spend, folder);
}

static int begin_anew(void **state)
{
    unlink(file);
    total_uj = 5000;
    now_ns = 1000 * NS_PER_S;
    begin();
    return 0;
}

/* A second, at whose end it is so late; the meters counted so much in it. Returns today's energy.
 */
static uint64_t second(int64_t utc_s, uint64_t uj)
{
    total_uj += uj;
    now_ns += NS_PER_S;
    spend_tick(&spend, NULL, utc_s, total_uj, true, UNCAPPED, now_ns);
    return spend_used_uj(&spend);
}

static void a_day_begins_at_midnight_and_with_nothing(void **state)
{
    assert_int_equal(second(MONDAY + 17 * HOUR, 300), 0); /* of before, nobody knows when */
    assert_int_equal(second(MONDAY + 17 * HOUR + 1, 500), 500);
    assert_int_equal(second(MONDAY + DAY - 1, 20), 520);
    second(MONDAY + DAY, 0);
    assert_int_equal(spend.day[0].begin_s, MONDAY + DAY);
    assert_int_equal(spend.end_s, MONDAY + 2 * DAY);
    assert_int_equal(second(MONDAY + DAY + 10, 7), 7);
}

static void a_step_of_the_clock_and_its_correction_give_no_day_twice(void **state)
{
    second(MONDAY + 17 * HOUR, 0);
    assert_int_equal(second(MONDAY + 17 * HOUR, 500), 500);
    assert_int_equal(second(MONDAY - 7 * HOUR, 0), 500); /* it is Monday still, for all we know */
    assert_int_equal(second(MONDAY + 17 * HOUR, 0), 500);
    assert_int_equal(second(MONDAY + 41 * HOUR, 0), 0);
    assert_int_equal(second(MONDAY + 17 * HOUR, 0), 500);
    assert_int_equal(second(MONDAY + 900 * DAY, 0), 0);
    assert_int_equal(second(MONDAY + 17 * HOUR, 0), 500);
    assert_int_equal(second(MONDAY + DAY + 1, 3), 3); /* and the next day is a new one */
}

static void what_is_used_while_the_clock_is_wrong_counts_when_it_is_right(void **state)
{
    second(MONDAY + 17 * HOUR, 0);
    second(MONDAY + 17 * HOUR, 500);
    second(MONDAY + 41 * HOUR, 0);
    assert_int_equal(second(MONDAY + 42 * HOUR, 200), 200);
    assert_int_equal(second(MONDAY + 18 * HOUR, 40), 740);
    assert_int_equal(second(MONDAY + 42 * HOUR, 0), 240); /* if that was right: the same */
}

static void while_nobody_knows_the_day_the_last_one_goes_on(void **state)
{
    second(MONDAY + 17 * HOUR, 0);
    second(MONDAY + 17 * HOUR, 500);
    begin(); /* as of the last writing: at most a minute is counted by what the meters tell */
    assert_int_equal(second(UNKNOWN, 10), 510);
    assert_int_equal(second(UNKNOWN, 10), 520);
    assert_int_equal(second(MONDAY + 18 * HOUR, 10), 530);
    begin();
    assert_int_equal(second(MONDAY + DAY + HOUR, 0), 0);
}

static void days_are_on_the_disk(void **state)
{
    second(MONDAY + 17 * HOUR, 0);
    second(MONDAY + 17 * HOUR, 500);
    second(MONDAY + 41 * HOUR, 0);
    second(MONDAY + 41 * HOUR, 60);
    begin();
    assert_int_equal(second(MONDAY + 41 * HOUR, 0), 60);
    begin();
    assert_int_equal(second(MONDAY + 17 * HOUR, 0), 560);
}

static void a_file_of_an_earlier_version_is_read_and_a_damaged_one_told(void **state)
{
    FILE *f = fopen(file, "w");

    fprintf(f, "threadtide budget 1 %lld 900 0 4000\n", (long long)MONDAY);
    fclose(f);
    begin();
    assert_int_equal(second(MONDAY + HOUR, 0), 1900); /* and what the meters counted since then */
    f = fopen(file, "w");
    fputs("threadtide budget 1 -9223372036854775808 900 0 4000\n", f);
    fclose(f);
    begin();
    assert_int_equal(second(MONDAY + HOUR, 0), 0);
}

/* Three hours later: nobody knows how much of the day's energy was used in them. */
static void days_of_another_zone_are_the_same_days(void **state)
{
    static const struct zone buenos_aires = {
        .count = 1, .from_s = {INT64_MIN}, .offset_s = {-3 * HOUR}, .tail.offset_s = -3 * HOUR};

    second(MONDAY + 17 * HOUR, 0);
    second(MONDAY + 17 * HOUR, 500);
    spend_tick(&spend, &buenos_aires, MONDAY + 17 * HOUR, total_uj, true, UNCAPPED, now_ns);
    assert_int_equal(spend_used_uj(&spend), 500);
    assert_int_equal(spend.day[0].begin_s, MONDAY + 3 * HOUR);
    assert_int_equal(spend.end_s, MONDAY + 27 * HOUR);
}

static int make_folder(void **state)
{
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof(file), "%s/budget", folder);
    return 0;
}

static int remove_folder(void **state)
{
    unlink(file);
    rmdir(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_day_begins_at_midnight_and_with_nothing, begin_anew),
        cmocka_unit_test_setup(a_step_of_the_clock_and_its_correction_give_no_day_twice,
                               begin_anew),
        cmocka_unit_test_setup(what_is_used_while_the_clock_is_wrong_counts_when_it_is_right,
                               begin_anew),
        cmocka_unit_test_setup(while_nobody_knows_the_day_the_last_one_goes_on, begin_anew),
        cmocka_unit_test_setup(days_are_on_the_disk, begin_anew),
        cmocka_unit_test_setup(a_file_of_an_earlier_version_is_read_and_a_damaged_one_told,
                               begin_anew),
        cmocka_unit_test_setup(days_of_another_zone_are_the_same_days, begin_anew),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
