/* SPDX-License-Identifier: Apache-2.0 */
#include "test_hub_store.h"
#include "hub/store/schema.h"
#include "test_random.h"

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

/* Two programs of one name, or an outbox that was put back. */
static void a_boot_that_comes_back_goes_on_from_its_own_total(void **state)
{
    struct outbox_record old[] = {record("m", 7, 5, 1, 1000), record("m", 7, 6, 3, 1010)};
    struct outbox_record new[] = {record("m", 8, 1, 2, 30), record("m", 8, 2, 4, 35)};
    struct outbox_record fallen = record("m", 7, 7, 5, 1009);
    struct store *s = opened();

    put(s, "lab3", &old[0], 1);
    put(s, "lab3", &new[0], 1);
    put(s, "lab3", &old[0], 1);
    assert_true(done.known == 1 && done.stored == 0 && done.returned == 0);
    s = store_close(s);
    s = opened();
    put(s, "lab3", &old[1], 1);
    assert_true(done.stored == 1 && done.returned == 1 && done.reboots == 0);
    assert_int_equal(sum_of(s, "m").uj, 1040);
    assert_int_equal(sum_of(s, "m").low_uj, 909 + 27);
    put(s, "lab3", new, 2);
    assert_true(done.stored == 1 && done.known == 1 && done.returned == 1);
    assert_int_equal(sum_of(s, "m").uj, 1045);
    put(s, "lab3", &fallen, 1);
    assert_true(done.refused == 1 && done.stored == 0);
    put(s, "lab3", &new[1], 1);
    assert_int_equal(done.known, 1);
    assert_int_equal(sum_of(s, "m").uj, 1045);
    store_close(s);
}

static void put_boot(struct store *s, uint64_t boot, uint64_t seq, uint64_t uj)
{
    struct outbox_record r = record("m", boot, seq, 1, uj);

    put(s, "lab3", &r, 1);
    assert_int_equal(done.stored, 1);
}

static void the_last_8_boots_of_a_point_are_remembered(void **state)
{
    struct store *s = opened();

    for (uint64_t boot = 1; boot <= 10; boot++)
        put_boot(s, boot, 1, 100);
    put_boot(s, 2, 2, 101);
    assert_int_equal(done.returned, 1);
    assert_int_equal(sum_of(s, "m").uj, 1001);
    for (uint64_t turn = 3; turn < 30; turn++) { /* two in turns push no other one out */
        put_boot(s, 10, turn, 100 + turn);
        put_boot(s, 2, turn, 100 + turn);
    }
    assert_int_equal(sum_of(s, "m").uj, 1000 + 29 + 29);
    put_boot(s, 4, 2, 100);
    assert_int_equal(done.returned, 1);
    put_boot(s, 1, 2, 101); /* it is one too many, and counts anew */
    assert_true(done.returned == 0 && done.reboots == 1);
    assert_int_equal(sum_of(s, "m").uj, 1000 + 29 + 29 + 101);
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

static void what_was_erased_does_not_come_back_with_an_earlier_boot(void **state)
{
    struct outbox_record r[] = {record("user:ana", 7, 1, 1, 100), record("user:ana", 8, 1, 2, 50),
                                record("user:ana", 7, 2, 3, 110), record("user:ana", 9, 1, 4, 1),
                                record("user:ana", 7, 3, 5, 111)};
    struct store *s = opened();

    put(s, "lab3", &r[0], 1);
    put(s, "lab3", &r[1], 1);
    assert_int_equal(store_erase(s, "lab3", "user:ana", &err), 0);
    put(s, "lab3", &r[2], 1);
    assert_int_equal(done.returned, 1);
    assert_int_equal(sum_of(s, "user:ana").uj, 10);
    assert_int_equal(store_erase(s, "lab3", NULL, &err), 0); /* all of it begins anew */
    put(s, "lab3", &r[3], 1);
    put(s, "lab3", &r[4], 1);
    assert_true(done.returned == 0 && done.reboots == 1);
    assert_int_equal(sum_of(s, "user:ana").uj, 112);
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
        put(s, "lab3",
            &(struct outbox_record){.point = "meter:main",
                                    .boot = 76,
                                    .seq = 3,
                                    .from_ms = 1795392003000,
                                    .to_ms = 1795392004000,
                                    .total = {510, 460, 560, POWER_MEASURED}},
            1);
        assert_int_equal(done.returned, version >= 4);
        assert_int_equal(store_points(s, keep_point, &point, &err), 0);
        assert_int_equal(point.energy.uj, 3007 + (version >= 4 ? 10 : 510));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_comes_twice_or_late_changes_nothing),
        TEST(a_lost_record_costs_resolution_and_no_energy),
        TEST(a_new_boot_begins_at_nothing),
        TEST(a_boot_that_comes_back_goes_on_from_its_own_total),
        TEST(the_last_8_boots_of_a_point_are_remembered),
        TEST(a_unit_that_lies_changes_nothing),
        TEST(units_do_not_see_each_other),
        TEST(old_rows_become_minutes_and_quarters_and_keep_every_microjoule),
        TEST(whatever_happens_the_rows_add_up_to_the_newest_total),
        TEST(an_erased_point_leaves_nothing),
        TEST(what_was_erased_does_not_come_back_with_an_earlier_boot),
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
