/* SPDX-License-Identifier: Apache-2.0 */
/* The table of earlier runs' curves and its file: whose rows are whose, bounds, upgrades, damage.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/record/curves.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ME  1000
#define YOU 1001

static char dir[64], path[128];

static int setup(void **unused)
{
    snprintf(dir, sizeof(dir), "/tmp/tide-curves-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof(path), "%s/" CURVES_FILE, dir);
    return 0;
}

static int teardown(void **unused)
{
    static const char *const endings[] = {"", "-wal", "-shm", ".corrupt", ".corrupt-wal"};
    char text[160];

    for (size_t i = 0; i < 5; i++) {
        snprintf(text, sizeof(text), "%s%s", path, endings[i]);
        unlink(text);
    }
    rmdir(path);
    return rmdir(dir);
}

static struct curves *open_here(void)
{
    struct curves *c;

    assert_int_equal(curves_new(dir, &c), 0);
    curves_open(c, true);
    return c;
}

static struct curves_key key(uid_t uid, uint64_t program)
{
    return (struct curves_key){.uid = uid, .program = program, .processor = UINT64_MAX - 1};
}

static struct prior prior(uint64_t parallel)
{
    return (struct prior){.parallel = parallel,
                          .contention = 5,
                          .error_permille = 12,
                          .confidence_permille = 800,
                          .count = FIT_COUNTS,
                          .threads = {1, 2, 3, 4, 8, 16, 4085, 4086, 4087, 4088, 4089, 4096}};
}

static void keep(struct curves *c, uid_t uid, uint64_t program, uint64_t parallel, uint64_t at)
{
    struct curves_key k = key(uid, program);
    struct prior p = prior(parallel);

    curves_keep(c, &k, &p, at);
}

/* `parallel` of the row, or -1. */
static int64_t find(const struct curves *c, uid_t uid, uint64_t program, bool shared)
{
    struct curves_key k = key(uid, program);
    struct prior p;
    uid_t whose;

    return curves_find(c, &k, shared, &p, &whose) ? (int64_t)p.parallel : -1;
}

static void sql(const char *statement)
{
    sqlite3 *db;

    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, statement, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static bool is_aside(void)
{
    char text[160];

    snprintf(text, sizeof(text), "%s.corrupt", path);
    return access(text, F_OK) == 0;
}

/* ---- what is kept ---------------------------------------------------------------------------- */

static void a_row_survives_as_it_was(void **state)
{
    struct curves *c = open_here();
    struct curves_key k = key(ME, UINT64_MAX);
    struct prior before = prior(FIT_ONE), after;
    struct stat st;
    uid_t uid;

    curves_keep(c, &k, &before, 5);
    curves_free(c);
    c = open_here();
    assert_true(curves_find(c, &k, false, &after, &uid));
    assert_memory_equal(&before, &after, offsetof(struct prior, threads) + sizeof(before.threads));
    assert_int_equal(uid, ME);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    curves_free(c);
}

static void a_user_has_own_rows_only(void **state)
{
    struct curves *c = open_here();

    keep(c, YOU, 1, 10, 5);
    assert_int_equal(find(c, ME, 1, false), -1);
    keep(c, ME, 1, 20, 5);
    assert_int_equal(find(c, ME, 1, false), 20);
    assert_int_equal(find(c, YOU, 1, false), 10);
    curves_forget(c, &(struct curves_key){ME, 1, key(ME, 1).processor});
    assert_int_equal(find(c, ME, 1, false), -1);
    assert_int_equal(find(c, YOU, 1, false), 10); /* nobody else's */
    curves_free(c);
    c = open_here();
    assert_int_equal(find(c, ME, 1, false), -1);
    assert_int_equal(find(c, YOU, 1, false), 10);
    curves_free(c);
}

static void shared_rows_stand_in_for_missing_own_ones(void **state)
{
    struct curves *c = open_here();

    keep(c, YOU, 1, 10, 5);
    keep(c, YOU + 1, 1, 11, 7);
    keep(c, YOU + 2, 1, 12, 6);
    assert_int_equal(find(c, ME, 1, true), 11); /* the latest */
    keep(c, ME, 1, 20, 1);
    assert_int_equal(find(c, ME, 1, true), 20);
    assert_int_equal(find(c, ME, 2, true), -1);
    curves_free(c);
}

static void another_processor_is_another_row(void **state)
{
    struct curves *c = open_here();
    struct curves_key k = key(ME, 1);
    struct prior p;
    uid_t uid;

    keep(c, ME, 1, 10, 5);
    k.processor++;
    assert_false(curves_find(c, &k, true, &p, &uid));
    curves_free(c);
}

/* A user with many programs loses the oldest of these, and nobody else a row. */
static void a_full_table_takes_from_whom_has_most(void **state)
{
    struct curves *c = open_here();

    for (uint64_t i = 0; i < 10; i++)
        keep(c, YOU, i, i, 1); /* the oldest of all */
    for (uint64_t i = 0; i < 2 * CURVES_MAX; i++)
        keep(c, ME, i, i, 100 + i);
    for (uint64_t i = 0; i < 10; i++)
        assert_int_equal(find(c, YOU, i, false), i);
    for (uint64_t i = 0; i < 2 * CURVES_MAX; i++)
        assert_int_equal(find(c, ME, i, false), i < CURVES_MAX + 10 ? -1 : (int64_t)i);
    curves_free(c);
    c = open_here();
    assert_int_equal(find(c, YOU, 9, false), 9);
    assert_int_equal(find(c, ME, 2 * CURVES_MAX - 1, false), 2 * CURVES_MAX - 1);
    assert_int_equal(find(c, ME, 0, false), -1);
    curves_free(c);
}

/* ---- the file -------------------------------------------------------------------------------- */

static void each_older_schema_is_upgraded(void **state)
{
    for (unsigned version = 0; version <= curves_version; version++) {
        char pragma[48];
        struct curves *c;

        sql("PRAGMA user_version = 0");
        for (unsigned i = 0; i < version; i++)
            sql(curves_steps[i]);
        snprintf(pragma, sizeof(pragma), "PRAGMA user_version = %u", version);
        sql(pragma);
        if (version)
            sql("INSERT INTO curve VALUES (3, 1000, 1, -2, 77, 0, 0, 500, '1 4', 9)");
        c = open_here();
        assert_int_equal(find(c, ME, 1, false), version ? 77 : -1);
        keep(c, ME, 2, 5, 9);
        curves_free(c);
        c = open_here();
        assert_int_equal(find(c, ME, 2, false), 5);
        curves_free(c);
        assert_false(is_aside());
        unlink(path);
    }
}

static void a_newer_tideds_file_is_left_alone(void **state)
{
    struct curves *c;

    sql("CREATE TABLE other (a); PRAGMA user_version = 99");
    c = open_here();
    keep(c, ME, 1, 10, 5);
    assert_int_equal(find(c, ME, 1, false), 10); /* as long as the daemon runs */
    curves_write(c);
    curves_free(c);
    assert_false(is_aside());
    sql("INSERT INTO other VALUES (1)");
}

static void rows_that_no_fit_can_leave_are_ignored(void **state)
{
    struct curves *c = open_here();
    static const char *const rows[] = {
        "(-1, 1000, 1, -2, 1, 0, 0, 500, '1 4', 9)",
        "(1024, 1000, 2, -2, 1, 0, 0, 500, '1 4', 9)",
        "(2, -1, 3, -2, 1, 0, 0, 500, '1 4', 9)",
        "(3, 1000, 4, -2, -1, 0, 0, 500, '1 4', 9)",
        "(4, 1000, 5, -2, 1, 0, 0, 500, '4 1', 9)",
        "(5, 1000, 6, -2, 1, 0, 0, 500, '', 9)",
        "(6, 1000, 7, -2, 1, 0, 0, 500, '1 9999', 9)",
        "(7, 1000, 8, -2, 1, 0, 0, 500, '1,x', 9)",
        "(8, 1000, 9, -2, 1, 0, 0, 5000, '1 4', 9)",
        "(9, 1000, 10, -2, 1, 0, 0, 500, x'00', 9)",
        "(10, 1000, 11, -2, 'a', 'b', -7, 'c', '1 2 3 4 5 6 7 8 9 10 11 12 13', 9)"};

    curves_free(c);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[200];

        snprintf(text, sizeof(text), "INSERT INTO curve VALUES %s", rows[i]);
        sql(text);
    }
    c = open_here();
    for (uint64_t i = 0; i < 12; i++)
        assert_int_equal(find(c, ME, i, true), -1);
    curves_free(c);
    assert_false(is_aside());
}

static void a_damaged_file_is_replaced(void **state)
{
    FILE *file = fopen(path, "w");
    struct curves *c;

    for (int i = 0; i < 1000; i++)
        fputs("no database", file);
    fclose(file);
    c = open_here();
    assert_true(is_aside());
    keep(c, ME, 1, 10, 5);
    curves_free(c);
    c = open_here();
    assert_int_equal(find(c, ME, 1, false), 10);
    curves_free(c);
}

static void damage_that_shows_while_writing_loses_nothing(void **state)
{
    struct curves *c = open_here();

    keep(c, ME, 1, 10, 5);
    curves_free(c);
    sql("DROP TABLE curve; CREATE TABLE curve (slot INTEGER PRIMARY KEY, uid, program, processor,"
        " parallel, contention, error, confidence, threads, used, CHECK (uid = 0))");
    c = open_here();
    keep(c, ME, 2, 20, 5);
    curves_write(c);
    assert_true(is_aside());
    curves_free(c);
    c = open_here();
    assert_int_equal(find(c, ME, 2, false), 20);
    curves_free(c);
}

/* Until the file can be had, the table in memory serves; then both go together. */
static void a_file_that_comes_late_is_joined(void **state)
{
    struct curves *c = open_here();
    char away[160];

    keep(c, YOU, 1, 10, 5);
    keep(c, ME, 7, 70, 5);
    curves_free(c);
    snprintf(away, sizeof(away), "%s.away", path);
    assert_int_equal(rename(path, away), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    c = open_here();
    keep(c, ME, 1, 11, 6);
    keep(c, ME, 7, 71, 6);
    curves_write(c);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rename(away, path), 0);
    curves_open(c, false); /* too soon after the failure */
    assert_int_equal(find(c, YOU, 1, false), -1);
    curves_open(c, true);
    assert_int_equal(find(c, YOU, 1, false), 10);
    assert_int_equal(find(c, ME, 1, false), 11);
    curves_free(c);
    c = open_here();
    assert_int_equal(find(c, YOU, 1, false), 10);
    assert_int_equal(find(c, ME, 1, false), 11);
    assert_int_equal(find(c, ME, 7, false), 71);
    curves_free(c);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_row_survives_as_it_was),
        TEST(a_user_has_own_rows_only),
        TEST(shared_rows_stand_in_for_missing_own_ones),
        TEST(another_processor_is_another_row),
        TEST(a_full_table_takes_from_whom_has_most),
        TEST(each_older_schema_is_upgraded),
        TEST(a_newer_tideds_file_is_left_alone),
        TEST(rows_that_no_fit_can_leave_are_ignored),
        TEST(a_damaged_file_is_replaced),
        TEST(damage_that_shows_while_writing_loses_nothing),
        TEST(a_file_that_comes_late_is_joined),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
