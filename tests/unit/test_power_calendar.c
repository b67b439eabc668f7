/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Zones of the tz database against libc at every change of 1900 to 2100, windows against a walk
 * over every minute of a year, budgets against the sum of what they allow.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "power/calendar/budget.h"
#include "power/calendar/window.h"
#include "power/calendar/zone.h"

#define ZONES "/usr/share/zoneinfo"
#define HOUR  3600
#define DAY   86400

static const char *const names[] = {
    "America/Argentina/Buenos_Aires",
    "America/New_York",
    "America/Sao_Paulo",
    "America/Santiago",
    "America/Asuncion",
    "America/St_Johns",
    "America/Havana",
    "America/Caracas",
    "America/Nuuk",
    "America/Mexico_City",
    "America/Los_Angeles",
    "America/Anchorage",
    "America/Bogota",
    "Europe/Berlin",
    "Europe/Dublin",
    "Europe/London",
    "Europe/Moscow",
    "Europe/Istanbul",
    "Europe/Lisbon",
    "Europe/Chisinau",
    "Africa/Casablanca",
    "Africa/Cairo",
    "Africa/Nairobi",
    "Africa/Lagos",
    "Asia/Tehran",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Asia/Tokyo",
    "Asia/Shanghai",
    "Asia/Gaza",
    "Asia/Beirut",
    "Asia/Jerusalem",
    "Asia/Pyongyang",
    "Australia/Lord_Howe",
    "Australia/Sydney",
    "Australia/Eucla",
    "Pacific/Apia",
    "Pacific/Chatham",
    "Pacific/Kiritimati",
    "Antarctica/Troll",
    "Etc/UTC",
    "Etc/GMT+12",
};

static struct zone zone;

static int load(const char *name)
{
    static char bytes[ZONE_BYTES_MAX];
    char path[256];
    size_t len;
    FILE *f;

    snprintf(path, sizeof(path), ZONES "/%s", name);
    f = fopen(path, "rb");
    if (!f)
        fail_msg("%s: %s (Debian's package tzdata has it)", path, strerror(errno));
    len = fread(bytes, 1, sizeof(bytes), f);
    fclose(f);
    setenv("TZ", name, 1);
    tzset();
    return zone_parse(bytes, len, &zone);
}

static int64_t libc_offset(int64_t utc_s)
{
    time_t t = utc_s;
    struct tm tm;

    localtime_r(&t, &tm);
    return tm.tm_gmtoff;
}

static void compare(const char *name, int64_t utc_s)
{
    if (zone_offset_s(&zone, utc_s) != libc_offset(utc_s))
        fail_msg("%s at %ld: %d, libc says %ld", name, utc_s, zone_offset_s(&zone, utc_s),
                 libc_offset(utc_s));
}

static void local_time_is_libcs_at_every_change(void **state)
{
    const int64_t end = INT64_C(4102444800); /* 2100 */
    unsigned changes = 0;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_int_equal(load(names[i]), 0);
        compare(names[i], INT64_C(-2208988800));
        for (int64_t at = zone_next_change_s(&zone, INT64_C(-2208988800)); at < end;
             at = zone_next_change_s(&zone, at)) {
            compare(names[i], at - 1);
            compare(names[i], at);
            changes++;
        }
        for (int64_t at = 0; at < end; at += 19 * DAY + 7777) /* no change was overlooked */
            compare(names[i], at);
    }
    assert_true(changes > 4000);
}

static void moments_without_end_have_an_offset(void **state)
{
    assert_int_equal(load("Europe/Berlin"), 0);
    zone_offset_s(&zone, INT64_MAX);
    zone_offset_s(&zone, INT64_MIN);
    assert_true(zone_next_change_s(&zone, INT64_MIN) < 0);
    assert_int_equal(load("Asia/Tokyo"), 0);
    assert_true(zone_next_change_s(&zone, 0) == INT64_MAX);
}

/* Moments that lie in one local date by libc; the day's ends are its first and last ones. */
static void a_day_is_all_moments_of_its_date(void **state)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_int_equal(load(names[i]), 0);
        for (int64_t at = INT64_C(1704067200); at < INT64_C(1767225600); at += 5 * HOUR + 1234) {
            int64_t begin, end, again, ends[] = {0, 0};
            struct tm in, out;
            time_t t = at;

            zone_day(&zone, at, &begin, &end);
            assert_true(begin <= at && at < end);
            assert_true(end - begin >= 22 * HOUR && end - begin <= 26 * HOUR);
            localtime_r(&t, &in);
            ends[0] = begin;
            ends[1] = end - 1;
            for (int e = 0; e < 2; e++) {
                t = ends[e];
                localtime_r(&t, &out);
                assert_int_equal(out.tm_yday, in.tm_yday);
            }
            t = begin - 1;
            localtime_r(&t, &out);
            assert_int_not_equal(out.tm_yday, in.tm_yday);
            zone_day(&zone, end, &again, &begin);
            assert_int_equal(again, end); /* the next day begins there */
        }
    }
}

static void what_is_no_zone_file_is_refused(void **state)
{
    static unsigned char bytes[ZONE_BYTES_MAX];
    FILE *f = fopen(ZONES "/Europe/Berlin", "rb");
    struct zone kept;
    size_t len;

    assert_non_null(f);
    len = fread(bytes, 1, sizeof(bytes), f);
    fclose(f);
    memset(&zone, 0x5a, sizeof(zone));
    kept = zone;
    for (size_t n = 0; n < len; n++) /* cut anywhere */
        assert_int_equal(zone_parse(bytes, n, &zone), -EINVAL);
    assert_memory_equal(&zone, &kept, sizeof(zone));
    bytes[4] = '1';
    assert_int_equal(zone_parse(bytes, len, &zone), -EINVAL);
}

/* ---- windows --------------------------------------------------------------------------------- */

static struct window window_of(const char *text)
{
    struct window w;
    size_t n;

    assert_int_equal(window_parse(text, &n, &w), 0);
    assert_int_equal(window_check(&w, 1), 0);
    return w;
}

static bool by_libc(const struct window *w, int64_t utc_s)
{
    int minute, today, yesterday;
    time_t t = utc_s;
    struct tm tm;

    localtime_r(&t, &tm);
    minute = tm.tm_hour * 60 + tm.tm_min;
    today = w->days >> (tm.tm_wday + 6) % 7 & 1;
    yesterday = w->days >> (tm.tm_wday + 5) % 7 & 1;
    if (w->from_min < w->to_min)
        return today && minute >= w->from_min && minute < w->to_min;
    return (today && minute >= w->from_min) || (yesterday && minute < w->to_min);
}

static void windows_are_open_by_the_clock_on_the_wall(void **state)
{
    static const char *const texts[] = {"Mon-Fri 18:00-23:00", "Sat,Sun 00:00-24:00",
                                        "22:00-06:00",         "Fri-Mon 02:30-02:45",
                                        "Sun 23:30-00:30",     "Wed 12:00-12:00"};
    static const char *const zones[] = {"America/Argentina/Buenos_Aires", "Europe/Berlin",
                                        "Australia/Lord_Howe", "America/Havana", "Asia/Beirut"};

    for (size_t z = 0; z < 5; z++)
        for (size_t i = 0; i < 6; i++) {
            struct window w = window_of(texts[i]);
            const int64_t begin = INT64_C(1735689600), end = begin + 366 * DAY;
            int64_t edge = begin;
            bool open;

            assert_int_equal(load(zones[z]), 0);
            open = window_open(&w, &zone, begin);
            for (int64_t at = begin; at < end; at += 300) { /* all changes are at full minutes */
                bool wanted = by_libc(&w, at);

                assert_int_equal(window_open(&w, &zone, at), wanted);
                if (wanted != open) { /* then the edges told of it */
                    while (edge < at && window_open(&w, &zone, edge) == open)
                        edge = window_edge(&w, &zone, edge);
                    assert_true(edge <= at && edge > at - 300);
                    open = wanted;
                }
            }
        }
}

static void a_window_that_never_changes_has_its_edge_in_eight_days(void **state)
{
    struct window w = window_of("00:00-24:00");

    assert_int_equal(load("Etc/UTC"), 0);
    assert_int_equal(window_edge(&w, &zone, 1000), 1000 + 8 * DAY);
}

static void texts_are_read_up_to_the_zone(void **state)
{
    struct window w;
    size_t n;

    assert_int_equal(window_parse("Mon-Fri  18:00-23:00 Europe/Berlin", &n, &w), 0);
    assert_int_equal(n, 21);
    assert_int_equal(w.days, 0x1f);
    assert_int_equal(w.from_min, 1080);
    assert_int_equal(w.to_min, 1380);
    assert_int_equal(window_parse("sun-tue,fri 07:05-24:00", &n, &w), 0);
    assert_int_equal(w.days, 0x40 | 0x3 | 0x10);
}

static void texts_that_are_no_window_are_refused_where_they_go_wrong(void **state)
{
    static const struct {
        const char *text;
        size_t at;
    } wrong[] = {{"", 0},
                 {"Mon", 3},
                 {"Mon-", 4},
                 {"Mon-Foo 18:00-19:00", 4},
                 {"Mon,18:00-19:00", 4},
                 {"Mon 1800-1900", 6},
                 {"24:00-25:00", 0},
                 {"18:00-24:01", 6},
                 {"18:60-19:00", 0},
                 {"18:00", 5},
                 {"18:00-19:00x", 11},
                 {"18:00-19:0", 10}};

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct window w;
        size_t n = 99;

        assert_int_equal(window_parse(wrong[i].text, &n, &w), -EINVAL);
        if (n != wrong[i].at)
            fail_msg("'%s': refused at %zu, not at %zu", wrong[i].text, n, wrong[i].at);
    }
    assert_int_equal(window_check(&(struct window){.days = 0, .to_min = 5}, 1), -EINVAL);
    assert_int_equal(window_check(&(struct window){.days = 0xff, .to_min = 5}, 1), -EINVAL);
    assert_int_equal(window_check(&(struct window){.days = 1, .from_min = 1440}, 1), -EINVAL);
    assert_int_equal(window_check(&(struct window){.days = 1, .zone = 1}, 1), -EINVAL);
}

/* ---- budgets --------------------------------------------------------------------------------- */

/* An area that draws all of its cap uses the day's energy exactly, whatever the weights and day. */
static void a_day_at_the_cap_uses_the_budget(void **state)
{
    static const int64_t days[] = {INT64_C(1743202800) /* 23 h */, INT64_C(1761343200) /* 25 h */,
                                   INT64_C(1748736000)};

    assert_int_equal(load("Europe/Berlin"), 0);
    for (int d = 0; d < 3; d++)
        for (int shape = 0; shape < 3; shape++) {
            struct budget b = {.day_uj = UINT64_C(324000000000000)}; /* 90 kWh */
            uint64_t price[BUDGET_HOURS];

            for (uint64_t h = 0; h < BUDGET_HOURS; h++)
                price[h] = shape == 0 ? 100 : shape == 1 ? (h < 8 ? 50 : 300) : 100 + h * h;
            budget_weigh(price, BUDGET_HOURS, 4, b.weight);
            zone_day(&zone, days[d] + 30000, &b.begin_utc_s, &b.end_utc_s);
            for (int64_t now = b.begin_utc_s; now < b.end_utc_s; now += 60)
                b.used_uj += budget_cap_uw(&b, now) * 60;
            assert_true(b.used_uj <= b.day_uj);
            assert_true(b.used_uj >= b.day_uj - b.day_uj / 1000);
        }
}

static void cheap_hours_get_more(void **state)
{
    struct budget b = {.day_uj = UINT64_C(86400) * 1000000, .end_utc_s = 86400};
    uint64_t price[24];
    uint64_t night, noon;

    for (int h = 0; h < 24; h++)
        price[h] = h < 12 ? 100 : 400;
    budget_weigh(price, 24, 3, b.weight);
    night = budget_cap_uw(&b, 0);
    b.used_uj = night * 12 * HOUR;
    noon = budget_cap_uw(&b, 12 * HOUR);
    assert_int_equal(night, 1500000);
    assert_int_equal(noon, 500000);
}

static void what_is_used_up_leaves_the_floor(void **state)
{
    struct budget b = {.day_uj = 1000, .used_uj = 2000, .floor_uw = 7, .end_utc_s = 86400};

    for (int h = 0; h < BUDGET_HOURS; h++)
        b.weight[h] = 1;
    assert_int_equal(budget_cap_uw(&b, 5), 7);
    assert_int_equal(budget_cap_uw(&b, -5), 7);
    assert_int_equal(budget_cap_uw(&b, 86400), 7);
    memset(b.weight, 0, sizeof(b.weight));
    b.used_uj = 0;
    assert_int_equal(budget_cap_uw(&b, 5), 7);
}

/*
 * Three units draw all that they are lent, in parts that change each minute; at some minute the
 * lender dies, and each goes on with what its last lease came to.
 */
static void shares_of_a_cap_come_to_what_is_left_whenever_the_lender_dies(void **state)
{
    static const int64_t days[] = {INT64_C(1743202800) /* 23 h */, INT64_C(1761343200) /* 25 h */};
    static const uint32_t deaths[] = {1, 59, 61, 700, 1379};
    const uint64_t whole = UINT64_C(324000000000000);

    assert_int_equal(load("Europe/Berlin"), 0);
    for (int k = 0; k < 20; k++) {
        struct budget all = {.day_uj = whole}, one[3];
        uint64_t price[BUDGET_HOURS], used[3] = {0}, lease[3] = {0};
        int64_t now, death;

        for (uint64_t h = 0; h < BUDGET_HOURS; h++)
            price[h] = k < 10 ? 100 : h % 7 < 3 ? 50 : 300;
        budget_weigh(price, BUDGET_HOURS, 4, all.weight);
        zone_day(&zone, days[k % 2] + 30000, &all.begin_utc_s, &all.end_utc_s);
        death = all.begin_utc_s + deaths[k / 2 % 5] * 60;
        for (now = all.begin_utc_s; now < death; now += 60) {
            uint64_t cap = budget_cap_uw(&all, now), part = (uint64_t)(now / 60) % 5;

            lease[0] = cap * part / 10;
            lease[1] = cap / 2;
            lease[2] = cap - lease[0] - lease[1];
            for (int i = 0; i < 3; i++)
                used[i] += lease[i] * 60;
            all.used_uj = used[0] + used[1] + used[2];
        }
        for (int i = 0; i < 3; i++) {
            one[i] = all;
            one[i].used_uj = used[i];
            one[i].day_uj = used[i] + budget_of_cap_uj(&all, now - 60, lease[i]) - lease[i] * 60;
        }
        for (; now < all.end_utc_s; now += 60)
            for (int i = 0; i < 3; i++)
                one[i].used_uj += budget_cap_uw(&one[i], now) * 60;
        all.used_uj = one[0].used_uj + one[1].used_uj + one[2].used_uj;
        assert_true(all.used_uj <= whole);
        assert_true(all.used_uj >= whole - whole / 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(local_time_is_libcs_at_every_change),
        cmocka_unit_test(moments_without_end_have_an_offset),
        cmocka_unit_test(a_day_is_all_moments_of_its_date),
        cmocka_unit_test(what_is_no_zone_file_is_refused),
        cmocka_unit_test(windows_are_open_by_the_clock_on_the_wall),
        cmocka_unit_test(a_window_that_never_changes_has_its_edge_in_eight_days),
        cmocka_unit_test(texts_are_read_up_to_the_zone),
        cmocka_unit_test(texts_that_are_no_window_are_refused_where_they_go_wrong),
        cmocka_unit_test(a_day_at_the_cap_uses_the_budget),
        cmocka_unit_test(shares_of_a_cap_come_to_what_is_left_whenever_the_lender_dies),
        cmocka_unit_test(cheap_hours_get_more),
        cmocka_unit_test(what_is_used_up_leaves_the_floor),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
