/* SPDX-License-Identifier: Apache-2.0 */
/* The history's file: schema steps, bounds, and every kind of damage, which must do no harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "daemon/record/history.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64], path[128];

static void remove_all(const char *pattern)
{
    char text[160];
    glob_t found;

    snprintf(text, sizeof(text), "%s/%s", dir, pattern);
    if (glob(text, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++)
            if (unlink(found.gl_pathv[i]) < 0)
                rmdir(found.gl_pathv[i]);
        globfree(&found);
    }
}

static unsigned count_aside(void)
{
    char text[160];
    glob_t found;
    unsigned n = 0;

    snprintf(text, sizeof(text), "%s/history.db.corrupt", dir);
    if (glob(text, 0, NULL, &found) == 0) {
        n = (unsigned)found.gl_pathc;
        globfree(&found);
    }
    return n;
}

static int setup(void **unused)
{
    snprintf(dir, sizeof(dir), "/tmp/tide-history-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof(path), "%s/" HISTORY_FILE, dir);
    return 0;
}

static int teardown(void **unused)
{
    remove_all("*");
    return rmdir(dir);
}

static struct history *open_here(void)
{
    struct history *h;

    assert_int_equal(history_new(dir, HISTORY_MIB_STD, &h), 0);
    return h;
}

static struct history_job job_of(uint32_t number)
{
    struct history_job job = {
        .key = {1000000 + number, number}, .asked = {.weight = 100}, .exit = -1, .uid = number % 3};

    snprintf(job.name, sizeof(job.name), "job%u", number);
    snprintf(job.owner, sizeof(job.owner), "somebody");
    memset(job.command, 'x', sizeof(job.command) - 1);
    return job;
}

static void add(struct history *h, uint32_t number)
{
    struct history_job job = job_of(number);
    struct history_allocation a = {.key = job.key, .time_ms = number, .threads = number};
    struct history_rate rate = {.key = job.key, .time_ms = number, .rate = 2.5, .done = number};

    memset(a.reason, 'y', sizeof(a.reason) - 1);
    snprintf(a.cores, sizeof(a.cores), "0-3");
    history_job(h, &job);
    history_allocation(h, &a);
    history_rate(h, &rate);
}

static int query(struct history *h, const struct history_filter *filter, json_t **ret,
                 struct error *err)
{
    struct history_search *q;
    int r = history_search_new(h, filter, &q, err);

    if (r < 0)
        return r;
    r = history_search_go(q, UINT64_MAX, ret, err);
    history_search_free(q);
    return r;
}

static json_t *ask(struct history *h, uint32_t limit)
{
    struct history_filter all = {.all = true, .limit = limit};
    json_t *list;

    assert_int_equal(query(h, &all, &list, NULL), 0);
    return list;
}

static size_t count(struct history *h)
{
    json_t *list = ask(h, HISTORY_LIMIT_MAX);
    size_t n = json_array_size(list);

    json_decref(list);
    return n;
}

/* Reads one number from the file, which no process has open. */
static long value_of(const char *sql)
{
    sqlite3 *db;
    sqlite3_stmt *s;
    long value;

    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &s, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    value = (long)sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    sqlite3_close(db);
    return value;
}

static void execute(const char *sql)
{
    sqlite3 *db;

    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static void what_was_written_is_found_again(void **unused)
{
    struct history *h = open_here();
    struct history_filter mine = {.uid = 1, .limit = 10}, named = {.all = true, .limit = 10};
    struct history_job ended = job_of(2);
    json_t *list;

    for (uint32_t i = 1; i <= 5; i++)
        add(h, i);
    ended.ended_ms = 5000000;
    ended.exit = 3;
    ended.oom = true;
    history_job(h, &ended);
    history_free(h);
    h = open_here();
    assert_int_equal(count(h), 5);
    assert_int_equal(query(h, &mine, &list, NULL), 0); /* 1 and 4 */
    assert_int_equal(json_array_size(list), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 0), "name")),
                        "job4");
    assert_true(json_is_false(json_object_get(json_array_get(list, 0), "oom")));
    json_decref(list);
    named.job = "j2";
    assert_int_equal(query(h, &named, &list, NULL), 0);
    assert_int_equal(json_array_size(list), 1);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(list, 0), "exit")), 3);
    assert_true(json_is_true(json_object_get(json_array_get(list, 0), "oom")));
    assert_int_equal(json_array_size(json_object_get(json_array_get(list, 0), "allocations")), 1);
    json_decref(list);
    history_free(h);
}

/* @n changes of a job, one each millisecond from @from_ms on. */
static void add_changes(struct history *h, uint32_t number, uint32_t from_ms, uint32_t n)
{
    const struct history_key key = {.submitted_ms = job_of(number).key.submitted_ms,
                                    .number = number};

    for (uint32_t i = 0; i < n; i++) {
        struct history_allocation a = {.key = key, .time_ms = from_ms + i, .threads = i};

        history_allocation(h, &a);
        if (i % 1000 == 0)
            history_write(h, true);
    }
}

static const json_t *changes_of(const json_t *list, const char *name)
{
    const json_t *job;
    size_t i;

    json_array_foreach (list, i, job)
        if (strcmp(json_string_value(json_object_get(job, "name")), name) == 0)
            return json_object_get(job, "allocations");
    return NULL;
}

static bool is_cut(const json_t *list, size_t i)
{
    return json_is_true(json_object_get(json_array_get(list, i), "cut"));
}

static void a_job_that_changes_often_is_shown_whole_or_says_what_is_missing(void **unused)
{
    struct history *h = open_here();
    json_t *list;

    for (uint32_t i = 1; i <= 3; i++)
        add(h, i);
    add_changes(h, 2, 100, 500);
    list = ask(h, HISTORY_LIMIT_MAX);
    assert_int_equal(json_array_size(changes_of(list, "job2")), 501);
    assert_false(is_cut(list, 1));
    json_decref(list);
    add_changes(h, 2, 1000, HISTORY_SHOWN_MAX);
    list = ask(h, HISTORY_LIMIT_MAX);
    assert_true(json_array_size(changes_of(list, "job2")) > 1000);
    assert_true(json_array_size(changes_of(list, "job2")) < HISTORY_SHOWN_MAX / 2);
    assert_true(is_cut(list, 1));
    assert_false(is_cut(list, 0) || is_cut(list, 2));
    assert_int_equal(json_array_size(changes_of(list, "job1")), 1);
    json_decref(list);
    history_free(h);
}

static void a_window_has_what_was_in_force_in_it(void **unused)
{
    struct history *h = open_here();
    struct history_filter window = {
        .all = true, .limit = 10, .since_ms = 2000010, .until_ms = 2000015};
    const json_t *changes;
    json_t *list;

    add(h, 1);
    add_changes(h, 1, 2000000, 50);
    add(h, 1100000); /* submitted behind the window */
    history_write(h, true);
    assert_int_equal(query(h, &window, &list, NULL), 0);
    assert_int_equal(json_array_size(list), 1);
    changes = changes_of(list, "job1");
    assert_int_equal(json_array_size(changes), 5);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(changes, 0), "threads")),
                     14);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(changes, 4), "threads")),
                     10);
    assert_false(is_cut(list, 0));
    json_decref(list);
    history_free(h);
}

/* A step looks at one row when it has no time; a search goes on where it was, whatever is written.
 */
static void a_search_in_steps_finds_the_same(void **unused)
{
    const struct history_filter filters[] = {{.all = true, .limit = 20},
                                             {.uid = 1, .limit = HISTORY_LIMIT_MAX},
                                             {.all = true, .limit = 5, .job = "job33"},
                                             {.all = true, .limit = 5, .job = "j33"},
                                             {.all = true, .limit = 5, .since_ms = 1}};
    struct history *h = open_here();

    for (uint32_t i = 1; i <= 60; i++)
        add(h, i);
    for (size_t i = 0; i < sizeof(filters) / sizeof(filters[0]); i++) {
        struct history_search *q;
        json_t *whole, *stepped = NULL;
        unsigned steps = 0;

        assert_int_equal(query(h, &filters[i], &whole, NULL), 0);
        assert_true(json_array_size(whole) > 0);
        assert_int_equal(history_search_new(h, &filters[i], &q, NULL), 0);
        while (history_search_go(q, 0, &stepped, NULL) == 1) {
            add(h, 1000 + 100 * (uint32_t)i + steps++);
            history_write(h, true);
        }
        assert_true(steps >= json_array_size(whole) - 1);
        assert_true(json_equal(whole, stepped));
        json_decref(whole);
        json_decref(stepped);
        history_search_free(q);
    }
    history_free(h);
}

static void each_version_of_the_schema_becomes_the_newest_with_its_rows(void **unused)
{
    for (unsigned from = 0; from <= history_version; from++) {
        char pragma[48];
        struct history *h;

        remove_all("*");
        for (unsigned i = 0; i < from; i++)
            execute(history_steps[i]);
        snprintf(pragma, sizeof(pragma), "PRAGMA user_version = %u", from);
        execute(pragma);
        if (from > 0)
            execute(
                "INSERT INTO job (number, submitted, name, owner, uid, kind, command, run, wait,"
                " weight, priority, class, placement) VALUES (1, 1, 'old', 'o', 0, 'process',"
                " 'c', 1, 1, 100, 0, 0, 'shared')");
        h = open_here();
        add(h, 7);
        assert_int_equal(count(h), from > 0 ? 2 : 1);
        history_free(h);
        assert_int_equal(value_of("PRAGMA user_version"), history_version);
        assert_int_equal(count_aside(), 0);
    }
}

static void a_file_of_a_newer_tided_is_left_alone(void **unused)
{
    struct history_filter all = {.all = true, .limit = 1};
    struct history *h;
    json_t *list;

    execute("CREATE TABLE job (future TEXT); PRAGMA user_version = 1000");
    h = open_here();
    add(h, 1);
    history_write(h, true);
    assert_int_equal(query(h, &all, &list, NULL), -ENODATA);
    history_free(h);
    assert_int_equal(value_of("PRAGMA user_version"), 1000);
    assert_int_equal(count_aside(), 0);
}

static void rows_are_bounded_and_the_oldest_go_first(void **unused)
{
    struct history *h = open_here();
    json_t *list;

    for (uint32_t i = 1; i <= HISTORY_ROWS_MAX + 500; i++) {
        add(h, i);
        if (i % 1000 == 0)
            history_write(h, true);
    }
    list = ask(h, 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 0), "id")),
                        "j100500");
    json_decref(list);
    history_free(h);
    for (unsigned i = 0; i < 3; i++) {
        static const char *const tables[] = {"job", "allocation", "rate"};
        char sql[64];

        snprintf(sql, sizeof(sql), "SELECT count(*) FROM %s", tables[i]);
        assert_in_range(value_of(sql), 10000, HISTORY_ROWS_MAX);
    }
    assert_true(value_of("SELECT min(number) FROM job") > 500);
    assert_true(value_of("PRAGMA page_count") * value_of("PRAGMA page_size") <= HISTORY_MIB_STD
                                                                                    << 20);
    assert_int_equal(count_aside(), 0);
}

static void what_waits_is_bounded_where_nothing_can_be_written(void **unused)
{
    struct history *h;

    assert_int_equal(mkdir(path, 0700), 0);
    h = open_here();
    for (uint32_t i = 1; i <= HISTORY_QUEUE_MAX; i++)
        add(h, i);
    history_write(h, true);
    assert_int_equal(history_dropped(h), 2 * HISTORY_QUEUE_MAX);
    history_free(h);
}

/* Else a user whose jobs change all the time would make others' jobs "lost". */
static void the_end_of_a_job_has_room_behind_any_number_of_changes(void **unused)
{
    struct history *h = open_here();
    struct history_job job = job_of(2);
    struct history_allocation change = {.key = {1000001, 1}, .threads = 1};

    add(h, 1);
    for (uint32_t i = 0; i < 2 * HISTORY_QUEUE_MAX; i++)
        history_allocation(h, &change);
    assert_true(history_dropped(h) >= HISTORY_QUEUE_MAX);
    job.ended_ms = 2000000;
    history_job(h, &job);
    history_write(h, true);
    history_free(h);
    assert_int_equal(value_of("SELECT ended FROM job WHERE number = 2"), 2000000);
}

static void a_file_that_another_has_open_is_no_history_and_no_damage(void **unused)
{
    struct history *first = open_here(), *second;
    struct history_filter all = {.all = true, .limit = 1};
    json_t *list;

    add(first, 1);
    history_write(first, true);
    second = open_here();
    add(second, 2);
    assert_int_equal(query(second, &all, &list, NULL), -ENODATA);
    history_free(second);
    assert_int_equal(count(first), 1);
    history_free(first);
    assert_int_equal(count_aside(), 0);
}

static void a_symbolic_link_is_not_followed(void **unused)
{
    char target[160];
    struct history *h;

    snprintf(target, sizeof(target), "%s/target", dir);
    assert_int_equal(symlink(target, path), 0);
    h = open_here();
    add(h, 1);
    history_free(h);
    assert_int_equal(access(target, F_OK), -1);
}

static void fill(void)
{
    struct history *h = open_here();

    for (uint32_t i = 1; i <= 300; i++)
        add(h, i);
    history_free(h);
}

/* Whatever became of the file: new rows are written and found, in it or in a new one. */
static void works(void)
{
    struct history *h = open_here();
    json_t *list;

    json_decref(ask(h, 100));
    add(h, 100000);
    list = ask(h, 10);
    assert_true(json_array_size(list) > 0);
    json_decref(list);
    history_free(h);
}

static void a_truncated_file_does_not_matter(void **unused)
{
    static const off_t sizes[] = {0, 1, 15, 100, 4095, 4096, 5000, 8192, 20480, 65536};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        remove_all("*");
        fill();
        assert_int_equal(truncate(path, sizes[i]), 0);
        works();
    }
}

static void flip_bits(uint32_t *seed, unsigned n)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    off_t size = lseek(fd, 0, SEEK_END);

    assert_true(fd >= 0 && size > 0);
    for (unsigned i = 0; i < n; i++) {
        unsigned char byte;
        off_t at;

        *seed = *seed * 1664525u + 1013904223u;
        at = *seed % (i % 2 ? size : 4096); /* half of them in the header and the schema */
        if (at >= 60 && at < 64)
            continue; /* the schema's version: another one is a newer tided's */
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= (unsigned char)(1u << (*seed >> 29));
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    close(fd);
}

static void flipped_bits_do_not_matter(void **unused)
{
    uint32_t seed = 1;

    for (unsigned round = 0; round < 150; round++) {
        remove_all("*");
        fill();
        flip_bits(&seed, 1 + round % 40);
        works();
    }
}

static void damage_under_an_open_file_is_noticed_and_survived(void **unused)
{
    struct history *h;

    fill();
    h = open_here();
    assert_int_equal(truncate(path, 4096), 0);
    for (uint32_t i = 1; i <= 2000; i++)
        add(h, 1000 + i);
    history_write(h, true);
    add(h, 5000);
    assert_true(count(h) > 0);
    history_free(h);
    works();
}

static sqlite3 *connection; /* the history's own */

static int note_connection(sqlite3 *db, char **error, const struct sqlite3_api_routines *api)
{
    connection = db;
    return SQLITE_OK;
}

static void no_search_sorts(void **unused)
{
    struct history *h;
    sqlite3_stmt *s, *plan;
    char sql[256];
    unsigned found = 0;

    sqlite3_auto_extension((void (*)(void))note_connection);
    h = open_here();
    sqlite3_cancel_auto_extension((void (*)(void))note_connection);
    for (s = sqlite3_next_stmt(connection, NULL); s; s = sqlite3_next_stmt(connection, s)) {
        const char *text = sqlite3_sql(s);

        if (strncmp(text, "SELECT id, uid", 14) != 0)
            continue;
        found++;
        snprintf(sql, sizeof(sql), "EXPLAIN QUERY PLAN %s", text);
        assert_int_equal(sqlite3_prepare_v2(connection, sql, -1, &plan, NULL), SQLITE_OK);
        assert_int_equal(sqlite3_step(plan), SQLITE_ROW);
        do {
            const char *step = (const char *)sqlite3_column_text(plan, 3);

            if (strstr(step, "TEMP B-TREE"))
                fail_msg("%s: %s", text, step);
        } while (sqlite3_step(plan) == SQLITE_ROW);
        sqlite3_finalize(plan);
    }
    assert_int_equal(found, 4);
    history_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_written_is_found_again, setup, teardown),
        cmocka_unit_test_setup_teardown(a_search_in_steps_finds_the_same, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_job_that_changes_often_is_shown_whole_or_says_what_is_missing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_window_has_what_was_in_force_in_it, setup, teardown),
        cmocka_unit_test_setup_teardown(no_search_sorts, setup, teardown),
        cmocka_unit_test_setup_teardown(each_version_of_the_schema_becomes_the_newest_with_its_rows,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_of_a_newer_tided_is_left_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(rows_are_bounded_and_the_oldest_go_first, setup, teardown),
        cmocka_unit_test_setup_teardown(what_waits_is_bounded_where_nothing_can_be_written, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_end_of_a_job_has_room_behind_any_number_of_changes,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_that_another_has_open_is_no_history_and_no_damage,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_symbolic_link_is_not_followed, setup, teardown),
        cmocka_unit_test_setup_teardown(a_truncated_file_does_not_matter, setup, teardown),
        cmocka_unit_test_setup_teardown(flipped_bits_do_not_matter, setup, teardown),
        cmocka_unit_test_setup_teardown(damage_under_an_open_file_is_noticed_and_survived, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
