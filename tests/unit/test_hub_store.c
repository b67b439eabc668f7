/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "hub/store/schema.h"
#include "hub/store/store.h"
#include "test_random.h"

#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#ifdef HAVE_POSTGRES
#include <libpq-fe.h>
#endif

#define NOON    INT64_C(1795435200000) /* 2026-11-23 12:00 UTC */
#define STEPS   4096
#define FOREVER UINT64_C(1000000000000)

static char dir[64], path[256];
static const char *server; /* PostgreSQL's address; NULL: the tests are SQLite's */
static struct error err;
static struct store_put done;

static int remove_one(const char *name, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(name);
}

static void execute_sqlite(const char *sql)
{
    sqlite3 *db;
    char *said = NULL;

    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &said) != SQLITE_OK)
        fail_msg("%s", said);
    sqlite3_close(db);
}

static void execute(const char *sql)
{
#ifdef HAVE_POSTGRES
    if (server) {
        PGconn *c = PQconnectdb(server);
        PGresult *r = PQexec(c, sql);

        if (PQresultStatus(r) != PGRES_COMMAND_OK && PQresultStatus(r) != PGRES_TUPLES_OK)
            fail_msg("%s", PQerrorMessage(c));
        PQclear(r);
        PQfinish(c);
        return;
    }
#endif
    execute_sqlite(sql);
}

/* An empty store. */
static void begin_anew(void)
{
    if (server)
        execute("SET client_min_messages = error; DROP SCHEMA public CASCADE;"
                " CREATE SCHEMA public");
    else
        unlink(path);
}

static int set_up(void **state)
{
    /* In memory: each transaction is synced, and a disk of a busy machine takes its time. */
    strcpy(dir,
           access("/dev/shm", W_OK) == 0 ? "/dev/shm/tide-store-XXXXXX" : "/tmp/tide-store-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/hub.db", dir);
    if (server)
        snprintf(path, sizeof(path), "%s", server);
    begin_anew();
    return 0;
}

static int tear_down(void **state)
{
    return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static struct store *opened(void)
{
    struct store *s = NULL;

    if (store_open(path, &s, &err) < 0)
        fail_msg("%s", err.text);
    return s;
}

/* The record of a point that has used @uj since the boot, a tenth more or less, at @second. */
static struct outbox_record record(const char *point, uint64_t boot, uint64_t seq, int second,
                                   uint64_t uj)
{
    struct outbox_record r = {.boot = boot,
                              .seq = seq,
                              .from_ms = (uint64_t)(NOON + second * 1000 - 1000),
                              .to_ms = (uint64_t)(NOON + second * 1000),
                              .total = {uj, uj - uj / 10, uj + uj / 10, POWER_MEASURED}};

    snprintf(r.point, sizeof(r.point), "%s", point);
    return r;
}

static void put(struct store *s, const char *unit, const struct outbox_record *r, size_t n)
{
    if (store_put(s, unit, r, n, &done, &err) < 0)
        fail_msg("%s", err.text);
}

static struct store_stretch stretches[STEPS];

static size_t series(struct store *s, const char *point, int from, int to, int step)
{
    size_t n = 0;

    if (store_series(s, "lab3", point, NOON + from * 1000, NOON + to * 1000, step * 1000, stretches,
                     STEPS, &n, &err) < 0)
        fail_msg("%s", err.text);
    return n;
}

static struct energy_range sum_of(struct store *s, const char *point)
{
    struct energy_range sum = {.basis = POWER_MEASURED};
    size_t n = series(s, point, -1000000, 1000000, 1000);

    for (size_t i = 0; i < n; i++)
        energy_add(&sum, &stretches[i].energy);
    return sum;
}

static void what_comes_twice_or_late_changes_nothing(void **state)
{
    struct outbox_record r[] = {record("m", 7, 1, 1, 100), record("m", 7, 2, 2, 250),
                                record("m", 7, 3, 3, 300)};
    struct store *s = opened();

    put(s, "lab3", r, 2);
    assert_true(done.stored == 2 && done.known == 0);
    put(s, "lab3", r, 3);
    assert_true(done.stored == 1 && done.known == 2);
    assert_int_equal(series(s, "m", 0, 10, 1), 3);
    assert_int_equal(stretches[1].energy.uj, 150);
    assert_int_equal(stretches[1].energy.low_uj, 225 - 90);
    assert_int_equal(stretches[1].from_ms, NOON + 1000);
    put(s, "lab3", &r[0], 1);
    assert_int_equal(sum_of(s, "m").uj, 300);
    store_close(s);
}

static void a_lost_record_costs_resolution_and_no_energy(void **state)
{
    struct outbox_record r[] = {record("m", 7, 1, 1, 100), record("m", 7, 9, 9, 900)};
    struct store *s = opened();

    put(s, "lab3", r, 2);
    assert_int_equal(series(s, "m", 0, 10, 1), 2);
    assert_int_equal(stretches[1].energy.uj, 800);
    store_close(s);
}

static void a_new_boot_begins_at_nothing(void **state)
{
    struct outbox_record r[] = {record("m", 7, 5, 1, 1000), record("m", 8, 1, 2, 30)};
    struct store *s = opened();

    put(s, "lab3", &r[0], 1);
    put(s, "lab3", &r[1], 1);
    assert_int_equal(done.reboots, 1);
    assert_int_equal(sum_of(s, "m").uj, 1030);
    store_close(s);
}

static void a_unit_that_lies_changes_nothing(void **state)
{
    struct outbox_record good = record("m", 7, 5, 5, 1000), r;
    struct store *s = opened();

    put(s, "lab3", &good, 1);
#define REFUSED(change)                                                                            \
    do {                                                                                           \
        r = record("m", 7, 6, 6, 2000);                                                            \
        change;                                                                                    \
        put(s, "lab3", &r, 1);                                                                     \
        assert_true(done.refused == 1 && done.stored == 0);                                        \
        assert_int_equal(sum_of(s, "m").uj, 1000);                                                 \
    } while (0)
    REFUSED(r = record("m", 7, 6, 6, 999)); /* fell within a boot */
    REFUSED(r.total.low_uj = 1);            /* so did its lower bound */
    REFUSED(r.total.low_uj = 2001);         /* above the value */
    REFUSED(r.total.high_uj = UINT64_MAX);  /* a lifetime counter's spike */
    REFUSED(r.total.basis = POWER_BASIS_MAX);
    REFUSED(r.to_ms = UINT64_MAX);
    REFUSED(r.from_ms = r.to_ms + 1);
    REFUSED(r.seq = UINT64_MAX);
    REFUSED(r.boot = UINT64_MAX);
    r = record("m", 7, 6, 6, 2000);
    put(s, "lab3", &r, 1);
    assert_int_equal(sum_of(s, "m").uj, 2000);
    store_close(s);
}

static void units_do_not_see_each_other(void **state)
{
    struct outbox_record a = record("m", 7, 1, 1, 100), b = record("m", 7, 9, 1, 5);
    struct store *s = opened();

    put(s, "lab3", &a, 1);
    put(s, "lab4", &b, 1);
    assert_int_equal(sum_of(s, "m").uj, 100);
    put(s, "lab3", &a, 1);
    assert_int_equal(done.known, 1);
    store_close(s);
}

static void old_rows_become_minutes_and_quarters_and_keep_every_microjoule(void **state)
{
    struct store_keep keep = {0, FOREVER, FOREVER, FOREVER};
    struct store *s = opened();

    for (int i = 1; i <= 1800; i++) {
        struct outbox_record r = record("m", 7, (uint64_t)i, i, (uint64_t)i * 10);

        r.total.basis = i == 90 ? POWER_ASSUMED : POWER_MEASURED;
        r.gap_ms = i == 90 ? 400 : 0;
        put(s, "lab3", &r, 1);
    }
    assert_int_equal(series(s, "m", 0, 1800, 1), 1800);
    while (store_rollup(s, &keep, NOON + 1800000, 100, &err) == 1)
        ;
    assert_int_equal(series(s, "m", 0, 1800, 1), 30);
    assert_int_equal(series(s, "m", 0, 1800, 60), 30);
    assert_int_equal(stretches[1].energy.uj, 600);
    assert_int_equal(stretches[1].energy.basis, POWER_ASSUMED);
    assert_int_equal(stretches[1].gap_ms, 400);
    assert_int_equal(stretches[2].energy.basis, POWER_MEASURED);
    keep.minute_ms = 900000; /* the first quarter is older than a quarter of an hour */
    assert_int_equal(store_rollup(s, &keep, NOON + 1800000, 1000, &err), 0);
    assert_int_equal(series(s, "m", 0, 1800, 60), 1 + 15);
    assert_int_equal(series(s, "m", 0, 1800, 900), 2);
    assert_true(stretches[0].energy.uj == 9000 && stretches[1].energy.uj == 9000);
    assert_int_equal(sum_of(s, "m").uj, 18000);
    keep.minute_ms = keep.quarter_ms = 0;
    assert_int_equal(store_rollup(s, &keep, NOON + 1800000, 1000, &err), 0);
    assert_int_equal(series(s, "m", 0, 1800, 900), 0);
    store_close(s);
}

/* Sends what a unit would, with losses, repetitions, kills of the hub and sums in between. */
static void whatever_happens_the_rows_add_up_to_the_newest_total(void **state)
{
    for (int seed = 0; seed < (server ? 3 : 20); seed++) {
        struct store_keep keep = {20000, 300000, FOREVER, FOREVER};
        struct outbox_record sent[300];
        uint64_t total = 0, acked = 0, of_boots = 0, boot = 1;
        size_t n = 0;
        struct store *s;

        random_state = (uint64_t)seed;
        begin_anew();
        s = opened();
        for (int second = 1; second < 1500; second++) {
            total += random_below(1000);
            sent[n] = record("m", boot, n + 1, second, total);
            n++;
            if (one_in(3)) { /* a batch of what has no receipt; sometimes its receipt is lost */
                size_t from = acked && one_in(2) ? acked - 1 : acked;

                if (one_in(4) && n - from > 2)
                    from += random_below((uint32_t)(n - from - 1)); /* lost on the way */
                put(s, "lab3", sent + from, n - from);
                assert_int_equal(sum_of(s, "m").uj, of_boots + total);
                acked = one_in(3) ? acked : n;
            }
            if (one_in(20)) {
                s = store_close(s);
                s = opened();
            }
            if (one_in(10))
                assert_true(store_rollup(s, &keep, NOON + second * 1000, 50, &err) >= 0);
            if (n == ARRAY_LEN(sent)) { /* its disk is new */
                put(s, "lab3", &sent[n - 1], 1);
                of_boots += total;
                total = n = acked = 0;
                boot++;
            }
        }
        store_close(s);
    }
}

static bool count_points(void *arg, const struct store_point *p)
{
    ++*(int *)arg;
    return true;
}

static void an_erased_point_leaves_nothing(void **state)
{
    struct outbox_record r[] = {record("m", 7, 1, 1, 100), record("user:ana", 7, 2, 1, 30)};
    struct store *s = opened();
    int n = 0;

    put(s, "lab3", r, 2);
    assert_int_equal(store_erase(s, "lab3", "user:ana", &err), 0);
    assert_int_equal(store_erase(s, "lab3", "user:ana", &err), -ENOENT);
    assert_int_equal(series(s, "user:ana", -10, 10, 1), 0);
    assert_int_equal(sum_of(s, "m").uj, 100);
    assert_int_equal(store_points(s, count_points, &n, &err), 0);
    assert_int_equal(n, 1);
    assert_int_equal(store_erase(s, "lab3", NULL, &err), 0);
    n = 0;
    assert_int_equal(store_points(s, count_points, &n, &err), 0);
    assert_int_equal(n, 0);
    store_close(s);
}

/* ---- days ---- */

#define DAY_MS INT64_C(86400000)

static struct store_total totals[64];
static size_t n_totals;
static struct store_span span;

static bool keep_total(void *arg, const struct store_total *t)
{
    assert_true(n_totals < ARRAY_LEN(totals));
    totals[n_totals++] = *t;
    return true;
}

static void ask(struct store *s, enum store_by by, int64_t from_ms, int64_t to_ms, const char *user)
{
    struct store_question q = {.by = by, .from_ms = from_ms, .to_ms = to_ms, .user = user};

    n_totals = 0;
    if (store_totals(s, &q, &span, keep_total, NULL, &err) < 0)
        fail_msg("%s", err.text);
}

static uint64_t uj(const struct store_amount *a)
{
    return a->j * 1000000 + a->uj;
}

static struct outbox_record stretch(const char *point, uint64_t seq, int64_t from_ms, int64_t to_ms,
                                    uint64_t total)
{
    struct outbox_record r = record(point, 7, seq, 1, total);

    r.from_ms = (uint64_t)from_ms;
    r.to_ms = (uint64_t)to_ms;
    return r;
}

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
    assert_true(n_totals == 1 && uj(&totals[0].mid) == 40);
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
    struct outbox_record r[] = {record("user:ana", 7, 1, 60, 20), record("area", 7, 2, 60, 20)};
    struct store *s = opened();

    put(s, "lab3", r, 2);
    for (int64_t now = NOON + 10 * DAY_MS - 1800000; now <= NOON + 12 * DAY_MS; now += 1800000)
        assert_in_range(store_rollup(s, &keep, now, 100, &err), 0, 1);
    ask(s, STORE_BY_USER, NOON, NOON + DAY_MS, NULL);
    assert_int_equal(n_totals, 0);
    assert_int_equal(series(s, "user:ana", 0, 3600, 60), 0);
    assert_int_equal(sum_of(s, "area").uj, 20); /* the area's own stay */
    r[0] = stretch("user:ana", 3, NOON + 12 * DAY_MS, NOON + 12 * DAY_MS + 1000, 27);
    put(s, "lab3", r, 1); /* she comes back, as somebody new */
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

/* ---- transactions ---- */

static void a_transaction_that_is_not_ended_stores_nothing(void **state)
{
    struct store *s = opened();
    struct outbox_record r[] = {record("m", 7, 1, 1, 100), record("m", 7, 2, 2, 250)};

    assert_int_equal(store_begin(s, &err), 0);
    put(s, "lab3", r, 2);
    s = store_close(s);
    s = opened();
    assert_int_equal(sum_of(s, "m").uj, 0);
    assert_int_equal(store_begin(s, &err), 0);
    put(s, "lab3", r, 1);
    put(s, "lab3", r, 2);
    assert_true(done.stored == 1 && done.known == 1);
    assert_int_equal(store_commit(s, &err), 0);
    assert_int_equal(sum_of(s, "m").uj, 250);
    store_close(s);
}

static void two_programs_do_not_count_twice(void **state)
{
    struct store *a = opened(), *b = opened();
    struct outbox_record r[] = {record("m", 7, 1, 1, 100), record("m", 7, 2, 2, 250),
                                record("m", 7, 3, 3, 300)};

    put(a, "lab3", r, 1);
    put(b, "lab3", r, 2);
    assert_int_equal(store_put(a, "lab3", r, 3, &done, &err), -ESTALE);
    assert_non_null(strstr(err.text, "another program"));
    assert_int_equal(sum_of(a, "m").uj, 250);
    put(a, "lab3", r, 3);
    assert_true(done.known == 2 && done.stored == 1);
    assert_int_equal(sum_of(b, "m").uj, 300);
    store_close(a);
    store_close(b);
}

static void a_lost_connection_comes_back(void **state)
{
    struct store *s;
    struct outbox_record r[] = {record("m", 7, 1, 1, 100), record("m", 7, 2, 2, 250),
                                record("m", 7, 3, 3, 300)};
    int tries = 0;

    if (!server)
        return; /* a file has none */
    s = opened();
    put(s, "lab3", r, 1);
    for (int inside = 0; inside < 2; inside++) {
        if (inside) {
            assert_int_equal(store_begin(s, &err), 0);
            put(s, "lab3", &r[2], 1);
        }
        execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <>"
                " pg_backend_pid() AND backend_type = 'client backend'");
        if (inside)
            assert_int_equal(store_commit(s, &err), -ENOTCONN);
        while (store_put(s, "lab3", &r[1 + inside], 1, &done, &err) == -ENOTCONN) {
            assert_true(tries++ < 600);
            usleep(50000);
        }
        assert_int_equal(sum_of(s, "m").uj, inside ? 300 : 250);
    }
    assert_true(tries > 0);
    store_close(s);
}

static void points_of_one_unit_have_a_limit(void **state)
{
    struct store *s = opened();
    struct outbox_record *r = calloc(STORE_POINTS_MAX + 3, sizeof(*r));
    char name[32];

    for (int i = 0; i < STORE_POINTS_MAX + 3; i++) {
        snprintf(name, sizeof(name), "p%d", i);
        r[i] = record(name, 7, (uint64_t)i + 1, 1, 1);
    }
    put(s, "lab3", r, STORE_POINTS_MAX + 3);
    assert_true(done.stored == STORE_POINTS_MAX && done.refused == 3);
    put(s, "lab4", r, 1);
    assert_int_equal(done.stored, 1);
    free(r);
    store_close(s);
}

static bool keep_point(void *arg, const struct store_point *p)
{
    *(struct store_point *)arg = *p;
    return true;
}

static void a_file_of_every_version_is_read(void **state)
{
    for (unsigned version = 1; version <= store_version; version++) {
        char name[256], text[8192] = "";
        struct store_point point = {0};
        struct store *s;
        FILE *f;

        snprintf(name, sizeof(name), "%s/hub-%u%s.sql", SCHEMAS, version,
                 server ? "-postgres" : "");
        f = fopen(name, "re");
        if (!f && server && version == 1)
            continue; /* no program wrote that one */
        assert_non_null(f);
        assert_in_range(fread(text, 1, sizeof(text) - 1, f), 1, sizeof(text) - 2);
        fclose(f);
        begin_anew();
        execute(text);
        s = opened();
        assert_int_equal(store_series(s, "lab3", "meter:main", 0, NOON, 900000, stretches, STEPS,
                                      &(size_t){0}, &err),
                         0);
        assert_int_equal(stretches[0].energy.uj + stretches[1].energy.uj, 3000);
        assert_int_equal(store_points(s, keep_point, &point, &err), 0);
        assert_true(point.first_ms == INT64_C(1795391999000) &&
                    point.last_ms == INT64_C(1795392003000) && point.energy.uj == 3000);
        put(s, "lab3",
            &(struct outbox_record){.point = "meter:main",
                                    .boot = 77,
                                    .seq = 4,
                                    .from_ms = 1795392003000,
                                    .to_ms = 1795392004000,
                                    .total = {3007, 2707, 3307, POWER_MEASURED}},
            1);
        assert_int_equal(store_points(s, keep_point, &point, &err), 0);
        assert_int_equal(point.energy.uj, 3007);
        store_close(s);
    }
}

static void a_newer_or_damaged_file_is_refused_with_the_reason(void **state)
{
    struct store *s = store_close(opened());
    FILE *f;

    execute(server ? "UPDATE tide_hub SET version = 1000" : "PRAGMA user_version = 1000");
    assert_int_equal(store_open(path, &s, &err), -EPROTO);
    assert_non_null(strstr(err.text, "a newer version of this program wrote it"));
    if (server)
        return;
    f = fopen(path, "we");
    fputs("this is no database, however long one looks at it; and it never was one, either", f);
    fclose(f);
    assert_int_equal(store_open(path, &s, &err), -EBADMSG);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(store_open("/none/hub.db", &s, &err), -EACCES);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_comes_twice_or_late_changes_nothing),
        TEST(a_lost_record_costs_resolution_and_no_energy),
        TEST(a_new_boot_begins_at_nothing),
        TEST(a_unit_that_lies_changes_nothing),
        TEST(units_do_not_see_each_other),
        TEST(old_rows_become_minutes_and_quarters_and_keep_every_microjoule),
        TEST(whatever_happens_the_rows_add_up_to_the_newest_total),
        TEST(an_erased_point_leaves_nothing),
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
        TEST(a_transaction_that_is_not_ended_stores_nothing),
        TEST(two_programs_do_not_count_twice),
        TEST(a_lost_connection_comes_back),
        TEST(points_of_one_unit_have_a_limit),
        TEST(a_file_of_every_version_is_read),
        TEST(a_newer_or_damaged_file_is_refused_with_the_reason),
    };

    server = getenv("TIDE_TEST_POSTGRES");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
