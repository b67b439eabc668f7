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

#define NOON    INT64_C(1795435200000) /* 2026-11-23 12:00 UTC */
#define STEPS   4096
#define FOREVER UINT64_C(1000000000000)

static char dir[64], path[96];
static struct error err;
static struct store_put done;

static int remove_one(const char *name, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(name);
}

static int set_up(void **state)
{
    /* In memory: each transaction is synced, and a disk of a busy machine takes its time. */
    strcpy(dir,
           access("/dev/shm", W_OK) == 0 ? "/dev/shm/tide-store-XXXXXX" : "/tmp/tide-store-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/hub.db", dir);
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
    struct store_keep keep = {0, FOREVER, FOREVER};
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
    for (int seed = 0; seed < 20; seed++) {
        struct store_keep keep = {20000, 300000, FOREVER};
        struct outbox_record sent[300];
        uint64_t total = 0, acked = 0, of_boots = 0, boot = 1;
        size_t n = 0;
        struct store *s;

        random_state = (uint64_t)seed;
        unlink(path);
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

static void execute(const char *sql)
{
    sqlite3 *db;
    char *said = NULL;

    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &said) != SQLITE_OK)
        fail_msg("%s", said);
    sqlite3_close(db);
}

static void a_file_of_every_version_is_read(void **state)
{
    for (unsigned version = 1; version <= store_version; version++) {
        char name[256], text[8192] = "";
        struct store *s;
        FILE *f;

        snprintf(name, sizeof(name), "%s/hub-%u.sql", SCHEMAS, version);
        f = fopen(name, "re");
        assert_non_null(f);
        assert_in_range(fread(text, 1, sizeof(text) - 1, f), 1, sizeof(text) - 2);
        fclose(f);
        unlink(path);
        execute(text);
        s = opened();
        assert_int_equal(store_series(s, "lab3", "meter:main", 0, NOON, 900000, stretches, STEPS,
                                      &(size_t){0}, &err),
                         0);
        assert_int_equal(stretches[0].energy.uj + stretches[1].energy.uj, 3000);
        store_close(s);
    }
}

static void a_newer_or_damaged_file_is_refused_with_the_reason(void **state)
{
    struct store *s = store_close(opened());
    FILE *f;

    execute("PRAGMA user_version = 1000");
    assert_int_equal(store_open(path, &s, &err), -EPROTO);
    assert_non_null(strstr(err.text, "a newer version of this program wrote it"));
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
        TEST(points_of_one_unit_have_a_limit),
        TEST(a_file_of_every_version_is_read),
        TEST(a_newer_or_damaged_file_is_refused_with_the_reason),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
