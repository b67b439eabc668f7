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
#include "base/wallclock.h"
#include "edge/outbox.h"
#include "unit/area/points.h"
#include "unit/area/spend.h"
#include "unit/device/device.h"

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
    struct points_news news = {.total_uj = total_uj += uj, .known = true};

    now_ns += NS_PER_S;
    spend_tick(&spend, NULL, utc_s, &news, UNCAPPED, now_ns);
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
    struct points_news news = {.known = true};

    second(MONDAY + 17 * HOUR, 0);
    second(MONDAY + 17 * HOUR, 500);
    news.total_uj = total_uj;
    spend_tick(&spend, &buenos_aires, MONDAY + 17 * HOUR, &news, UNCAPPED, now_ns);
    assert_int_equal(spend_used_uj(&spend), 500);
    assert_int_equal(spend.day[0].begin_s, MONDAY + 3 * HOUR);
    assert_int_equal(spend.end_s, MONDAY + 27 * HOUR);
}

/* ---- meters ---------------------------------------------------------------------------------- */

static struct meter_config plug = {.name = "plug", .ops = &device_tasmota, .most_uw = 3600 * W};
static struct device device;
static struct points *points;
static struct outbox *outbox;
static uint64_t raw_uj;
static int64_t clock_s;

static void trouble(void *arg, const struct device *d)
{
}

static int plug_in(void **state)
{
    char path[80];
    struct error err;

    begin_anew(state);
    snprintf(path, sizeof(path), "%s/outbox.db", folder);
    assert_true(outbox_open(path, 1 << 20, 7, &outbox, &err) >= 0);
    device = (struct device){.config = &plug, .counter.most_uw = plug.most_uw, .trouble = trouble};
    assert_int_equal(points_new(&device, 1, outbox, &points), 0);
    raw_uj = 1000 * W;
    clock_s = MONDAY + 8 * HOUR;
    return 0;
}

static int plug_out(void **state)
{
    char path[80];

    points_free(points);
    outbox_close(outbox);
    snprintf(path, sizeof(path), "%s/outbox.db", folder);
    unlink(path);
    return 0;
}

/* The plug tells. */
static void tell(void)
{
    device_energy(&device, now_ns, raw_uj);
    device_watts(&device, now_ns, 300 * W);
}

/* So many seconds in which 300 W are drawn below a cap of 1200 W; @period_s 0: nothing is told. */
static uint64_t draw(int seconds, int period_s)
{
    struct points_news news;

    for (int i = 1; i <= seconds; i++) {
        now_ns += NS_PER_S;
        clock_s++;
        raw_uj += 300 * W;
        if (period_s && i % period_s == 0)
            tell();
        points_take(points, now_ns, &news);
        spend_tick(&spend, NULL, clock_s, &news, 1200 * W, now_ns);
    }
    return spend_used_uj(&spend);
}

static void a_plug_that_tells_seldom_costs_what_was_drawn(void **state)
{
    uint64_t before;

    tell();
    before = draw(1, 0);
    assert_int_equal(draw(300, 300) - before, 301 * 300 * W);
    before = spend_used_uj(&spend);
    assert_int_equal(draw(11 * 300, 300) - before, 11 * 300 * 300 * W);
    before = spend_used_uj(&spend);
    assert_int_equal(draw(299, 0), before); /* its power counts as known, its energy comes later */
}

static void what_a_counter_tells_of_its_time_away_replaces_what_was_assumed(void **state)
{
    uint64_t before;

    tell();
    before = draw(10, 10);
    device_lost(&device, "gone");
    assert_int_equal(draw(600, 0) - before, 600 * 1200 * W);
    tell();
    assert_int_equal(draw(10, 10) - before, 610 * 300 * W);
    before = spend_used_uj(&spend);
    device_lost(&device, "gone");
    draw(600, 0);
    raw_uj = 5 * W; /* it is back, and its counter has begun anew */
    tell();
    assert_int_equal(draw(10, 10) - before, 600 * 1200 * W + 10 * 300 * W);
}

static void what_a_counter_bridges_over_midnight_is_divided(void **state)
{
    uint64_t before;

    clock_s = MONDAY + DAY - 100;
    tell();
    assert_int_equal(draw(300, 300), 200 * 300 * W);
    assert_int_equal(spend.day[0].begin_s, MONDAY + DAY);
    assert_int_equal(draw(300, 300), 500 * 300 * W);
    /* This process was away for an hour; half of it is yesterday's. */
    begin_anew(state);
    clock_s = MONDAY + DAY + 1800;
    device = (struct device){.config = &plug,
                             .counter.most_uw = plug.most_uw,
                             .trouble = trouble,
                             .total = device.total,
                             .stored_uj = raw_uj,
                             .stored_ms = wallclock_ms() - 3600000};
    before = draw(1, 0);
    raw_uj += 3600 * 300 * W;
    tell();
    assert_in_range(draw(1, 0) - before, 1795 * 300 * W, 1805 * 300 * W);
}

/* ---- other loads: lights, whose watts are not lent ---------------------------------------------
 */

static struct meter_config lights = {
    .name = "lights", .ops = &device_tasmota, .error_permille = 0, .covers_other = true};

static void restart(uint64_t seconds_later)
{
    char path[80];
    struct error err;

    snprintf(path, sizeof(path), "%s/outbox.db", folder);
    if (seconds_later) { /* the note is as old as that */
        struct outbox_record last;

        assert_int_equal(outbox_last(outbox, "other:lights", &last), 0);
        snprintf(last.point, sizeof(last.point), "other:lights");
        last.to_ms -= seconds_later * 1000;
        outbox_note(outbox, &last);
    }
    points_free(points);
    outbox_close(outbox);
    assert_int_equal(outbox_open(path, 1 << 20, 7, &outbox, &err), 0);
    device = (struct device){.config = &lights, .trouble = trouble};
    assert_int_equal(points_new(&device, 1, outbox, &points), 0);
}

static uint64_t other_uw(void)
{
    return points_other_uw(points, clock_now_ns());
}

static void lights_says(uint64_t uw)
{
    device_watts(&device, clock_now_ns(), uw);
    points_tick(points, clock_now_ns(), wallclock_ms());
}

static void lights_count_after_a_restart_before_they_are_heard(void **state)
{
    restart(0);
    assert_int_equal(other_uw(), 0); /* never heard at all */
    assert_false(points_other_known(points, clock_now_ns()));
    assert_true(points_other_known(points, clock_now_ns() + 61 * NS_PER_S));
    lights_says(180 * W);
    assert_true(points_other_known(points, clock_now_ns()));
    lights_says(60 * W);
    restart(0);
    assert_int_equal(other_uw(), 60 * W);
    restart(0); /* once more, before they told anything */
    assert_int_equal(other_uw(), 60 * W);
    assert_int_equal(points_other_uw(points, clock_now_ns() + 121 * NS_PER_S), 180 * W);
    restart(121);
    assert_int_equal(other_uw(), 180 * W);
    lights_says(20 * W);
    assert_int_equal(other_uw(), 20 * W);
    device_lost(&device, "gone");
    points_tick(points, clock_now_ns(), wallclock_ms());
    assert_int_equal(other_uw(), 180 * W);
    restart(0);
    assert_int_equal(other_uw(), 180 * W);
    lights.most_uw = 200 * W;
    assert_int_equal(other_uw(), 200 * W);
    lights.most_uw = 0;
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
        cmocka_unit_test_setup_teardown(a_plug_that_tells_seldom_costs_what_was_drawn, plug_in,
                                        plug_out),
        cmocka_unit_test_setup_teardown(
            what_a_counter_tells_of_its_time_away_replaces_what_was_assumed, plug_in, plug_out),
        cmocka_unit_test_setup_teardown(what_a_counter_bridges_over_midnight_is_divided, plug_in,
                                        plug_out),
        cmocka_unit_test_setup_teardown(lights_count_after_a_restart_before_they_are_heard, plug_in,
                                        plug_out),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
