/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of days: by unit, user and day, what they cost, and what a hub above is told. */
#include "test_hub_store.h"
#include "test_random.h"

static void energy_is_told_by_unit_user_and_day(void **state)
{
    struct store *s = opened();
    struct outbox_record r[] = {
        stretch("area", 1, NOON, NOON + 1000, 5000000),
        stretch("area", 2, NOON + DAY_MS, NOON + DAY_MS + 1000, 5000700),
        stretch("machine", 3, NOON, NOON + 1000, 77),
        stretch("user:ana", 4, NOON, NOON + 1000, 30),
        stretch("user:ben", 5, NOON, NOON + 1000, 40),
    };

    put(s, "lab3", r, 5);
    put(s, "lab4", &r[2], 3);
    ask(s, STORE_BY_UNIT, NOON, NOON + 1, NULL);
    assert_int_equal(n_totals, 2);
    assert_string_equal(totals[0].key, "lab3");
    assert_int_equal(uj(&totals[0].mid), 5000000); /* the area's; its machine is a part of it */
    assert_int_equal(uj(&totals[0].low), 4500000);
    assert_int_equal(totals[0].basis, POWER_MEASURED);
    assert_int_equal(uj(&totals[1].mid), 77);
    assert_int_equal(span.from_ms, NOON - DAY_MS / 2);
    assert_int_equal(span.to_ms, NOON + DAY_MS / 2);
    ask(s, STORE_BY_DAY, NOON, NOON + 2 * DAY_MS, NULL);
    assert_int_equal(n_totals, 2);
    assert_int_equal(uj(&totals[0].mid), 5000077);
    assert_int_equal(totals[1].day_ms, NOON + DAY_MS / 2);
    assert_int_equal(uj(&totals[1].mid), 700);
    assert_int_equal(totals[1].gap_ms, DAY_MS / 2); /* nobody measured since midnight */
    assert_int_equal(totals[0].gap_ms, DAY_MS / 2 - 1000);
    assert_int_equal(store_units(s, (const char *const[]){"lab3"}, 1, &err), 0);
    ask(s, STORE_BY_DAY, NOON, NOON + 1, NULL); /* lab4 lies in the area of lab3 */
    assert_true(n_totals == 1 && uj(&totals[0].mid) == 5000000);
    s = store_close(s);
    s = opened();
    ask(s, STORE_BY_DAY, NOON, NOON + 1, NULL);
    assert_true(n_totals == 1 && uj(&totals[0].mid) == 5000000);
    ask(s, STORE_BY_UNIT, NOON, NOON + 1, NULL);
    assert_int_equal(n_totals, 2);
    assert_int_equal(store_units(s, NULL, 0, &err), 0); /* a policy without units */
    ask(s, STORE_BY_DAY, NOON, NOON + 1, NULL);
    assert_int_equal(n_totals, 0);
    assert_int_equal(store_units(s, (const char *const[]){"lab3", "lab4"}, 2, &err), 0);
    ask(s, STORE_BY_DAY, NOON, NOON + 1, NULL);
    assert_true(n_totals == 1 && uj(&totals[0].mid) == 5000077);
    ask(s, STORE_BY_USER, NOON, NOON + DAY_MS, NULL);
    assert_int_equal(n_totals, 2);
    assert_string_equal(totals[0].key, "ana");
    assert_int_equal(uj(&totals[0].mid), 60);
    assert_int_equal(uj(&totals[1].mid), 80);
    ask(s, STORE_BY_USER, NOON, NOON + DAY_MS, "ben");
    assert_true(n_totals == 1 && uj(&totals[0].mid) == 80);
    ask(s, STORE_BY_DAY, NOON, NOON + DAY_MS, "ana");
    assert_true(n_totals == 1 && uj(&totals[0].mid) == 60);
    ask(s, STORE_BY_UNIT, NOON + 5 * DAY_MS, NOON + 6 * DAY_MS, NULL);
    assert_int_equal(n_totals, 0);
    store_close(s);
}

static void days_are_those_of_the_zone_also_after_it_changes(void **state)
{
    struct store_keep keep = {DAY_MS, FOREVER, FOREVER, FOREVER};
    struct store *s = opened();
    struct outbox_record r[] = {
        stretch("area", 1, NOON, NOON + 1000, 100),
        /* 02:00 in UTC is the evening before in Buenos Aires */
        stretch("area", 2, NOON + 14 * 3600000, NOON + 14 * 3600000 + 1000, 130),
        stretch("area", 3, NOON + 40 * DAY_MS, NOON + 40 * DAY_MS + 1000, 1130),
    };

    put(s, "lab3", r, 3);
    ask(s, STORE_BY_DAY, NOON, NOON + 1, NULL);
    assert_int_equal(uj(&totals[0].mid), 100);
    assert_int_equal(store_days(s, "Nowhere/None", &err), -EINVAL);
    assert_int_equal(store_days(s, "../../etc/passwd", &err), -EINVAL);
    assert_int_equal(store_days(s, "America/Argentina/Buenos_Aires", &err), 0);
    ask(s, STORE_BY_DAY, NOON, NOON + 1, NULL);
    assert_true(span.filling);
    s = store_close(s);
    s = opened(); /* the zone, and how far the days are, survive */
    assert_int_equal(store_rollup(s, &keep, NOON + 41 * DAY_MS, 100, &err), 1);
    ask(s, STORE_BY_DAY, NOON + 40 * DAY_MS, NOON + 40 * DAY_MS + 1, NULL);
    assert_false(span.filling); /* the newest day is counted first */
    ask(s, STORE_BY_DAY, NOON, NOON + 50 * DAY_MS, NULL);
    assert_true(span.filling);
    while (store_rollup(s, &keep, NOON + 41 * DAY_MS, 100, &err) == 1)
        ;
    ask(s, STORE_BY_DAY, NOON, NOON + 50 * DAY_MS, NULL);
    assert_false(span.filling);
    assert_true(n_totals == 2 && uj(&totals[0].mid) == 130 && uj(&totals[1].mid) == 1000);
    assert_int_equal(totals[0].day_ms, NOON - 9 * 3600000);
    put(s, "lab3", &(struct outbox_record){0}, 0);
    r[0] = stretch("area", 4, NOON + 15 * 3600000 - 1, NOON + 15 * 3600000, 1131);
    put(s, "lab3", r, 1); /* the last moment of a day */
    ask(s, STORE_BY_DAY, NOON, NOON + 1, NULL);
    assert_int_equal(uj(&totals[0].mid), 131);
    assert_int_equal(store_days(s, "Europe/Madrid", &err), 0);
    while (store_rollup(s, &keep, NOON + 41 * DAY_MS, 100, &err) == 1)
        ;
    ask(s, STORE_BY_DAY, INT64_C(1792879200000), INT64_C(1792879200001), NULL);
    assert_int_equal(span.to_ms - span.from_ms, 25 * 3600000); /* summer time ends */
    ask(s, STORE_BY_DAY, NOON, NOON + 50 * DAY_MS, NULL);
    assert_int_equal(n_totals, 3);
    store_close(s);
}

static void days_say_the_same_as_rows(void **state)
{
    struct store *s = opened();
    uint64_t total = 0, by_days = 0;

    random_state = 11;
    for (uint64_t i = 1; i <= 300; i++) {
        struct outbox_record r =
            stretch("area", i, NOON + (int64_t)(i - 1) * 1800000, NOON + (int64_t)i * 1800000,
                    total += random_below(1000000));

        put(s, "lab3", &r, 1);
    }
    ask(s, STORE_BY_DAY, NOON, NOON + 300 * 1800000, NULL);
    for (size_t i = 0; i < n_totals; i++)
        by_days += uj(&totals[i].mid);
    assert_int_equal(n_totals, 7);
    assert_int_equal(by_days, total);
    ask(s, STORE_BY_UNIT, NOON, NOON + 300 * 1800000, NULL);
    assert_int_equal(uj(&totals[0].mid), total);
    store_close(s);
}

static void time_that_nobody_measured_is_a_gap_of_its_days(void **state)
{
    struct store *s = opened();
    struct outbox_record r[] = {
        stretch("area", 1, NOON, NOON + 1000, 100),
        stretch("area", 2, NOON + 2 * DAY_MS, NOON + 2 * DAY_MS + 500, 150)};
    uint64_t gap = 0;

    r[1].gap_ms = 200;
    put(s, "lab3", r, 2);
    ask(s, STORE_BY_DAY, NOON, NOON + 3 * DAY_MS, NULL);
    assert_int_equal(n_totals, 3);
    assert_int_equal(totals[0].gap_ms, DAY_MS / 2 - 1000);
    assert_int_equal(totals[1].gap_ms, DAY_MS);
    assert_int_equal(totals[2].gap_ms, DAY_MS / 2 + 200);
    assert_int_equal(totals[1].basis, POWER_UNKNOWN);
    assert_int_equal(uj(&totals[2].mid), 50);
    assert_int_equal(series(s, "area", 0, 4 * 86400, 900), 2);
    for (int i = 0; i < 2; i++)
        gap += stretches[i].gap_ms;
    assert_int_equal(gap, 2 * DAY_MS - 1000 + 200);
    store_close(s);
}

static void sums_larger_than_64_bits_are_told(void **state)
{
    struct store *s = opened();
    char text[STORE_AMOUNT_MAX];

    for (uint64_t boot = 1; boot <= 6; boot++) {
        struct outbox_record r = stretch("area", 1, NOON, NOON + (int64_t)boot, 0);

        r.boot = boot;
        r.total = (struct energy_range){(UINT64_C(1) << 62) - 1, (UINT64_C(1) << 62) - 1,
                                        (UINT64_C(1) << 62) - 1, POWER_MEASURED};
        r.from_ms = r.to_ms;
        put(s, boot % 2 ? "lab3" : "lab4", &r, 1);
        put(s, boot % 2 ? "lab5" : "lab6", &r, 1);
    }
    /* One point's day ends at 2^62 µJ, and four of them need more than 64 bits. */
    ask(s, STORE_BY_DAY, NOON, NOON + 1, NULL);
    assert_string_equal(store_amount_text(&totals[0].mid, text), "18446744073709551616");
    assert_int_equal(series(s, "area", -1, 10, 1), 1);
    store_close(s);
}

/* ---- what it costs ---- */

#define KWH UINT64_C(3600000000000)

/* A tenth of the currency a kWh, and from a quarter past noon on five of these. */
static double two_prices(void *arg, int64_t from_ms, int64_t to_ms)
{
    double cheap_ms = (double)(NOON + 900000 - from_ms), all_ms = (double)(to_ms - from_ms);

    return cheap_ms <= 0 ? 500 : cheap_ms >= all_ms ? 100 : 500 - 400 * cheap_ms / all_ms;
}

static double one_price(void *arg, int64_t from_ms, int64_t to_ms)
{
    return 500;
}

static void costs(struct store *s, enum store_by by, int64_t micro, uint64_t priced_uj)
{
    ask(s, by, NOON - DAY_MS, NOON + DAY_MS, NULL);
    assert_int_equal(n_totals, 1);
    assert_int_equal((int64_t)(totals[0].cost * 1e6 + 0.5), micro);
    assert_int_equal((uint64_t)totals[0].priced_uj, priced_uj);
}

static void energy_costs_the_price_of_its_time_in_sums_too(void **state)
{
    struct store_keep keep = {DAY_MS, FOREVER, FOREVER, FOREVER};
    struct store *s = opened();
    struct outbox_record r[] = {
        stretch("area", 1, NOON, NOON + 900000, KWH),
        stretch("area", 2, NOON + 900000, NOON + 901000, 3 * KWH),
        stretch("user:ana", 3, NOON + 600000, NOON + 1200000, KWH), /* half before the quarter */
    };

    assert_int_equal(store_prices(s, "EUR", two_prices, NULL, NOON, &err), 0);
    put(s, "lab3", r, 3);
    costs(s, STORE_BY_UNIT, 1100000, 3 * KWH);
    costs(s, STORE_BY_DAY, 1100000, 3 * KWH);
    costs(s, STORE_BY_USER, 300000, KWH);
    assert_int_equal(store_days(s, "Europe/Madrid", &err), 0); /* days are counted again */
    while (store_rollup(s, &keep, NOON + 2 * DAY_MS, 100, &err) == 1)
        ;
    costs(s, STORE_BY_UNIT, 1100000, 3 * KWH);
    assert_true(totals[0].day_ms == 0 && totals[0].end_ms == 0);
    costs(s, STORE_BY_DAY, 1100000, 3 * KWH);
    assert_int_equal(totals[0].end_ms - totals[0].day_ms, DAY_MS);
    assert_int_equal(store_prices(s, NULL, NULL, NULL, NOON, &err), 0); /* no tariff any more */
    r[0] = stretch("area", 4, NOON + 901000, NOON + 902000, 10 * KWH);
    put(s, "lab3", r, 1);
    costs(s, STORE_BY_UNIT, 1100000, 3 * KWH);
    assert_int_equal(uj(&totals[0].mid), 10 * KWH);
    store_close(s);
}

static void costs_in_another_currency_are_not_added_to_these(void **state)
{
    struct store *s = opened();
    struct outbox_record r[] = {stretch("area", 1, NOON, NOON + 1000, KWH),
                                stretch("area", 2, NOON + DAY_MS, NOON + DAY_MS + 1000, 2 * KWH)};

    assert_int_equal(store_prices(s, "EUR", one_price, NULL, NOON, &err), 0);
    put(s, "lab3", r, 1);
    costs(s, STORE_BY_UNIT, 500000, KWH);
    for (int times = 0; times < 2; times++) {
        assert_int_equal(store_prices(s, "ARS", one_price, NULL, NOON + times * DAY_MS, &err), 0);
        costs(s, STORE_BY_UNIT, times ? 500000 : 0, times ? KWH : 0);
        put(s, "lab3", &r[1], 1);
        s = store_close(s);
        s = opened();
    }
    store_close(s);
}

/* ---- users ---- */

static void users_energy_is_kept_by_the_quarter_and_goes_in_time(void **state)
{
    struct store_keep keep = {FOREVER, FOREVER, FOREVER, 10 * DAY_MS};
    struct store *s = opened();

    for (int i = 1; i <= 20; i++) {
        struct outbox_record r[] = {record("user:ana", 7, (uint64_t)i * 2, i * 60, (uint64_t)i),
                                    record("area", 7, (uint64_t)i * 2 + 1, i * 60, (uint64_t)i)};

        put(s, "lab3", r, 2);
    }
    assert_int_equal(series(s, "user:ana", 0, 3600, 60), 2);
    assert_int_equal(series(s, "area", 0, 3600, 60), 20);
    assert_int_equal(sum_of(s, "user:ana").uj, 20);
    store_rollup(s, &keep, NOON + 9 * DAY_MS, 100, &err);
    ask(s, STORE_BY_USER, NOON, NOON + DAY_MS, NULL);
    assert_int_equal(n_totals, 1);
    store_rollup(s, &keep, NOON + 12 * DAY_MS, 100, &err);
    ask(s, STORE_BY_USER, NOON, NOON + DAY_MS, NULL);
    assert_int_equal(n_totals, 0);
    assert_int_equal(series(s, "user:ana", 0, 3600, 60), 0);
    assert_int_equal(sum_of(s, "area").uj, 20);
    store_close(s);
}

static void users_energy_goes_in_time_however_often_rows_are_summed_up(void **state)
{
    struct store_keep keep = {FOREVER, FOREVER, FOREVER, 10 * DAY_MS};
    struct outbox_record r[] = {record("area", 7, 1, 60, 20), record("user:ana", 7, 2, 60, 13)};
    struct outbox_record again = record("user:ana", 8, 1, 60, 7);
    struct store *s = opened();

    put(s, "lab3", r, 2);
    put(s, "lab3", &again, 1);
    for (int64_t now = NOON + 10 * DAY_MS - 1800000; now <= NOON + 12 * DAY_MS; now += 1800000)
        assert_in_range(store_rollup(s, &keep, now, 100, &err), 0, 1);
    ask(s, STORE_BY_USER, NOON, NOON + DAY_MS, NULL);
    assert_int_equal(n_totals, 0);
    assert_int_equal(series(s, "user:ana", 0, 3600, 60), 0);
    assert_int_equal(sum_of(s, "area").uj, 20); /* the area's own stay */
    again = stretch("user:ana", 1, NOON + 12 * DAY_MS, NOON + 12 * DAY_MS + 1000, 7);
    again.boot = 9;
    put(s, "lab3", &again, 1); /* she comes back, as somebody new */
    again = stretch("user:ana", 3, NOON + 12 * DAY_MS, NOON + 12 * DAY_MS + 1000, 20);
    put(s, "lab3", &again, 1); /* also to the boots of before */
    assert_int_equal(done.returned, 0);
    ask(s, STORE_BY_USER, NOON + 12 * DAY_MS, NOON + 13 * DAY_MS, NULL);
    assert_true(n_totals == 1 && uj(&totals[0].mid) == 27);
    store_close(s);
}

static void what_was_erased_of_a_user_does_not_come_back(void **state)
{
    struct store *s = opened();
    struct outbox_record r = record("user:ana", 7, 1, 1, 1000), other = record("area", 7, 2, 1, 5);
    int n = 0;

    put(s, "lab3", &r, 1);
    put(s, "lab4", &r, 1);
    put(s, "lab4", &other, 1);
    assert_int_equal(store_erase(s, NULL, "user:ana", &err), 0);
    ask(s, STORE_BY_USER, NOON, NOON + DAY_MS, NULL);
    assert_int_equal(n_totals, 0);
    assert_int_equal(store_points(s, count_points, &n, &err), 0);
    assert_int_equal(n, 1);
    assert_int_equal(store_erase(s, NULL, "user:ana", &err), -ENOENT);
    r = record("user:ana", 7, 3, 2, 1010); /* she works on, and her machine counts on */
    put(s, "lab3", &r, 1);
    ask(s, STORE_BY_USER, NOON, NOON + DAY_MS, NULL);
    assert_true(n_totals == 1 && uj(&totals[0].mid) == 10);
    assert_int_equal(store_erase(s, NULL, "user:ana", &err), 0);
    put(s, "lab3", &r, 1);
    assert_int_equal(done.known, 1); /* nor does a repetition bring it back */
    assert_int_equal(store_erase(s, NULL, NULL, &err), -EINVAL);
    store_close(s);
}

/* ---- for a hub above ---- */

#define PAST INT64_C(1699999200000) /* a quarter of an hour of 2023: it is no time to come */

static struct store_news news[STORE_NEWS_MAX];
static size_t n_news;
static uint64_t batch;

static void ask_news(struct store *s, uint64_t told, int64_t upto_ms)
{
    n_news = 0;
    if (store_news(s, told, upto_ms, news, &n_news, &batch, &err) < 0)
        fail_msg("%s", err.text);
}

static void a_hub_above_is_told_each_thing_once_and_of_the_time_of_its_use(void **state)
{
    struct outbox_record r[] = {stretch("area", 1, PAST, PAST + 1000, 100),
                                stretch("area", 2, PAST + 1000, PAST + 2000, 150),
                                stretch("area", 3, PAST + 60000, PAST + 61000, 250),
                                stretch("meter:m", 4, PAST, PAST + 1000, 900)};
    struct store *s = opened();

    put(s, "lab4", r, 1); /* there is none yet */
    store_told(s, PAST);
    put(s, "lab3", r, 4);
    for (int times = 0; times < 2; times++) { /* killed before anybody has written it down */
        ask_news(s, 0, PAST + 60000);
        assert_int_equal(n_news, 1);
        assert_int_equal(news[0].to_ms, PAST + 60000);
        assert_true(news[0].energy.uj == 150 && news[0].energy.low_uj == 135 &&
                    news[0].energy.high_uj == 165 && news[0].energy.basis == POWER_MEASURED);
        assert_int_equal(news[0].gap_ms, 0);
        assert_int_equal(batch, 1);
        s = store_close(s);
        s = opened();
        store_told(s, PAST + 60000);
    }
    ask_news(s, 0, PAST + 180000); /* not the next ones before the first are told */
    assert_true(n_news == 1 && news[0].to_ms == PAST + 60000);
    assert_int_equal(store_erase(s, "lab3", NULL, &err), 0);
    ask_news(s, 1, PAST + 180000);
    assert_true(n_news == 1 && batch == 2);
    assert_int_equal(news[0].to_ms, PAST + 120000);
    assert_int_equal(news[0].energy.uj, 100);
    assert_int_equal(news[0].gap_ms, 58000); /* since its last record nobody measured */
    ask_news(s, 2, PAST + 180000);
    assert_int_equal(n_news, 0);
    store_told(s, PAST + 1000000);
    r[0] = stretch("area", 2, PAST + 61000, PAST + 62000, 130);
    r[1] = stretch("area", 3, PAST + 999000, PAST + 1000001, 135);
    put(s, "lab4", r, 2); /* late: one by the quarter of an hour; of that of now nobody knows all */
    ask_news(s, 2, PAST + 1080000);
    assert_int_equal(n_news, 2);
    assert_true(news[0].to_ms == PAST + 900000 && news[0].energy.uj == 30);
    assert_true(news[1].to_ms == PAST + 1020000 && news[1].energy.uj == 5);
    store_close(s);
}

static void a_hub_above_is_told_what_adds_up_alone(void **state)
{
    struct outbox_record inner = stretch("area", 1, PAST, PAST + 1000, 400);
    struct outbox_record lab[] = {stretch("area", 1, PAST, PAST + 1000, 20),
                                  stretch("machine", 2, PAST, PAST + 1000, 5)};
    struct outbox_record pc[] = {stretch("machine", 1, PAST, PAST + 1000, 10),
                                 stretch("area", 2, PAST + 1000, PAST + 2000, 7),
                                 stretch("machine", 3, PAST + 1000, PAST + 2000, 30)};
    struct store *s = opened();

    store_told(s, PAST);
    assert_int_equal(store_units(s, (const char *const[]){"lab3", "pc"}, 2, &err), 0);
    put(s, "box", &inner, 1);
    put(s, "lab3", lab, 2);
    put(s, "pc", pc, 3); /* from its second record on it measures an area */
    ask_news(s, 0, PAST + 60000);
    assert_int_equal(n_news, 1);
    assert_int_equal(news[0].energy.uj, 20 + 10 + 7);
    inner = stretch("area", 2, PAST + 60000, PAST + 61000, 410);
    assert_int_equal(store_units(s, (const char *const[]){"box"}, 1, &err), 0);
    put(s, "box", &inner, 1);
    ask_news(s, batch, PAST + 120000);
    assert_true(n_news == 1 && news[0].energy.uj == 10);
    store_close(s);
}

static void what_a_hub_below_tells_late_opens_no_gap(void **state)
{
    struct outbox_record r[] = {stretch("area", 1, PAST, PAST + 1000, 100),
                                stretch("area", 2, PAST - 900000, PAST, 130),
                                stretch("area", 3, PAST + 1000, PAST + 2000, 150),
                                stretch("area", 4, PAST - 1800000, PAST - 900000, 160),
                                stretch("area", 5, PAST + 2500, PAST + 3000, 190)};
    uint64_t gap = 0;
    struct store *s = opened();

    put(s, "lab3", r, 4);
    s = store_close(s);
    s = opened();
    put(s, "lab3", r, 5);
    assert_int_equal(done.stored, 1);
    ask(s, STORE_BY_DAY, PAST - DAY_MS, PAST + DAY_MS, NULL);
    for (size_t i = 0; i < n_totals; i++)
        gap += totals[i].gap_ms;
    assert_int_equal(gap, 500);
    store_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(energy_is_told_by_unit_user_and_day),
        TEST(days_are_those_of_the_zone_also_after_it_changes),
        TEST(days_say_the_same_as_rows),
        TEST(time_that_nobody_measured_is_a_gap_of_its_days),
        TEST(sums_larger_than_64_bits_are_told),
        TEST(energy_costs_the_price_of_its_time_in_sums_too),
        TEST(costs_in_another_currency_are_not_added_to_these),
        TEST(users_energy_is_kept_by_the_quarter_and_goes_in_time),
        TEST(users_energy_goes_in_time_however_often_rows_are_summed_up),
        TEST(what_was_erased_of_a_user_does_not_come_back),
        TEST(a_hub_above_is_told_each_thing_once_and_of_the_time_of_its_use),
        TEST(a_hub_above_is_told_what_adds_up_alone),
        TEST(what_a_hub_below_tells_late_opens_no_gap),
    };

    server = getenv("TIDE_TEST_POSTGRES");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
